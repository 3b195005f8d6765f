//! Life of the sections: a state machine without I/O.
//!
//! Its input are events of processes and interfaces, with their time; its output are [`Action`]s.
//! Each section is one process, because a crash in one parser of network input must not take the
//! others along, and because a section that did not change must not lose a packet when another is
//! reloaded.
//!
//! A section whose interfaces are missing waits for them. After the end of its process a section
//! starts again, after a pause that doubles from [`FIRST_PAUSE`] to [`LONGEST_PAUSE`]. A change of
//! the interfaces shortens the pause, because the process may have ended for want of one.

use super::section::{Difference, Key, Kind, Section};
use sheaf_stage::{Duration, Instant};
use std::collections::{BTreeMap, btree_map};

/// Pause after the first end of a process.
pub const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause. A user who has removed the cause waits this long without suspecting a fault.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Pause after a change of the interfaces: a service has to be back within 2 s of its interface,
/// and a slow router takes one of them to start a process and to load programs. With no pause at
/// all a process that makes an interface and then fails would cause its own next start for ever.
const NEWS_PAUSE: Duration = Duration::from_secs(1);
/// Life of a process that counts as work: after it the next pause is the first again.
const PROVEN: Duration = Duration::from_secs(10);
/// Longest time between two signs of life of a process that gives them. The loop of a service turns
/// every millisecond to every second, so a process that misses this hangs.
pub const SIGN_LIMIT: Duration = Duration::from_secs(30);
/// Time to end after SIGTERM. The services need milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// Indices of the interfaces that exist, by name.
pub type Interfaces = BTreeMap<String, u32>;

/// A step for the driver to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start its command with these words.
    Start(Key, Vec<String>),
    /// Ask its process to end (SIGTERM).
    Terminate(Key),
    /// End its process (SIGKILL).
    Kill(Key),
    /// Ask the service to take over these words, and report with [`Supervisor::changed`].
    Change(Key, Vec<String>),
}

/// Effect of a reload on a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is new.
    Added,
    /// It is not in the file any more.
    Removed,
    /// Its words differ.
    Changed,
}

/// State of a section, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// These interfaces are missing.
    Waiting(Vec<String>),
    /// Its process ended; the next one starts at this time.
    Pausing(Instant),
    /// Its process starts.
    Starting,
    /// It is at work; its process started at this time.
    Running(Instant),
    /// It is at work without a process.
    Applied,
    /// Its process is ending.
    Ending,
}

#[derive(Clone, Debug)]
struct Entry {
    section: Section,
    phase: Phase,
    /// The next pause.
    pause: Duration,
    /// Indices of its interfaces when its process started.
    on: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Interfaces are missing.
    Waiting,
    /// The last process ended at `since`, the next one starts at `until`.
    Pausing { since: Instant, until: Instant },
    /// A process runs. `ready`: it reported that it is at work. `hangs`: time by which it has to
    /// give the next sign of life, once it has given one.
    Running { since: Instant, ready: bool, hangs: Option<Instant> },
    /// The command has done its work and ended.
    Applied,
    /// The process was asked to end, and is killed when it still runs at `kill`.
    Ending { next: Next, kill: Instant },
}

/// Step after the end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Start another process.
    Start,
    /// Remove the section.
    Remove,
    /// Take off what the process leaves on its interface, and then remove the section.
    TakeOff,
}

/// All sections.
#[derive(Clone, Debug, Default)]
pub struct Supervisor {
    entries: BTreeMap<Key, Entry>,
    interfaces: Interfaces,
    stopping: bool,
}

impl Supervisor {
    /// A supervisor without sections, on a host with these interfaces.
    pub fn new(interfaces: Interfaces) -> Supervisor {
        Supervisor { interfaces, ..Supervisor::default() }
    }

    /// Takes over the sections of a file; returns the steps to take, and the effect on each section
    /// that differs from before.
    pub fn load(
        &mut self,
        sections: BTreeMap<Key, Section>,
        now: Instant,
    ) -> (Vec<Action>, BTreeMap<Key, Fate>) {
        let (mut actions, mut fates) = (Vec::new(), BTreeMap::new());
        let gone: Vec<_> =
            self.entries.keys().filter(|key| !sections.contains_key(*key)).cloned().collect();
        for key in gone {
            let was_ending = self.is_being_removed(&key);
            self.remove(&key, now, &mut actions);
            if !was_ending {
                fates.insert(key, Fate::Removed);
            }
        }
        for (key, section) in sections {
            match self.entries.entry(key.clone()) {
                btree_map::Entry::Vacant(vacant) => {
                    vacant.insert(Entry {
                        section,
                        phase: Phase::Waiting,
                        pause: FIRST_PAUSE,
                        on: Vec::new(),
                    });
                    fates.insert(key.clone(), Fate::Added);
                    self.begin(&key, now, &mut actions);
                }
                btree_map::Entry::Occupied(mut occupied) => {
                    let entry = occupied.get_mut();
                    let difference = entry.section.difference(&section);
                    entry.section = section;
                    if let Phase::Ending { next, .. } = &mut entry.phase
                        && *next != Next::Start
                    {
                        // It was taken out and put back before its process had ended.
                        *next = Next::Start;
                        fates.insert(key, Fate::Added);
                    } else if difference != Difference::None {
                        fates.insert(key.clone(), Fate::Changed);
                        self.adapt(&key, difference, now, &mut actions);
                    }
                }
            }
        }
        (actions, fates)
    }

    fn is_being_removed(&self, key: &Key) -> bool {
        matches!(self.entries[key].phase, Phase::Ending { next: Next::Remove | Next::TakeOff, .. })
    }

    /// Brings the new words of the section `key` to its process.
    fn adapt(&mut self, key: &Key, difference: Difference, now: Instant, out: &mut Vec<Action>) {
        let entry = self.entries.get_mut(key).expect("it was found");
        match (&entry.phase, difference) {
            (Phase::Running { ready: true, .. }, Difference::Words(words)) => {
                out.push(Action::Change(key.clone(), words));
            }
            (Phase::Running { .. }, _) => self.restart(key, now, out),
            // The new words may remove the cause of the last failure.
            (Phase::Waiting | Phase::Pausing { .. } | Phase::Applied, _) => {
                entry.pause = FIRST_PAUSE;
                self.begin(key, now, out);
            }
            (Phase::Ending { .. }, _) => {}
        }
    }

    fn restart(&mut self, key: &Key, now: Instant, out: &mut Vec<Action>) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.phase = Phase::Ending { next: Next::Start, kill: now + PATIENCE };
            entry.pause = FIRST_PAUSE;
            out.push(Action::Terminate(key.clone()));
        }
    }

    fn remove(&mut self, key: &Key, now: Instant, out: &mut Vec<Action>) {
        let is_present = self.interfaces.contains_key(&key.name);
        let entry = self.entries.get_mut(key).expect("it was found");
        let removed = Phase::Ending { next: Next::Remove, kill: now + PATIENCE };
        match &entry.phase {
            Phase::Running { .. } => {
                entry.phase = match key.kind {
                    // One that says HELLO parts from its neighbours first.
                    Kind::Split => Phase::Ending { next: Next::TakeOff, kill: now + PATIENCE },
                    _ => removed,
                };
                out.push(Action::Terminate(key.clone()));
            }
            Phase::Ending { next: Next::Start, kill } => {
                entry.phase = Phase::Ending { next: Next::Remove, kill: *kill };
            }
            Phase::Ending { .. } => {}
            Phase::Applied if is_present => {
                entry.phase = removed;
                let words = ["dev", &key.name, "off"].map(str::to_owned).to_vec();
                out.push(Action::Start(key.clone(), words));
            }
            Phase::Waiting | Phase::Pausing { .. } | Phase::Applied => {
                self.entries.remove(key);
            }
        }
    }

    /// Starts a section that has no process, if its interfaces are there.
    fn begin(&mut self, key: &Key, now: Instant, out: &mut Vec<Action>) {
        let (missing, indices) = (!self.missing(key).is_empty(), self.indices(key));
        let entry = self.entries.get_mut(key).expect("it was found");
        if missing {
            entry.phase = Phase::Waiting;
            return;
        }
        entry.phase = Phase::Running { since: now, ready: false, hangs: None };
        entry.on = indices;
        out.push(Action::Start(key.clone(), entry.section.words()));
    }

    /// Indices of the interfaces that a section needs, of those that exist.
    fn indices(&self, key: &Key) -> Vec<u32> {
        let needs = self.entries[key].section.needs().into_iter();
        needs.filter_map(|name| self.interfaces.get(&name).copied()).collect()
    }

    /// The interfaces that a section waits for.
    fn missing(&self, key: &Key) -> Vec<String> {
        self.entries[key].section.waits_for(|name| self.interfaces.contains_key(name))
    }

    /// The process of a section reported that it is at work.
    pub fn ready(&mut self, key: &Key) {
        if let Some(entry) = self.entries.get_mut(key)
            && let Phase::Running { ready, .. } = &mut entry.phase
        {
            *ready = true;
        }
    }

    /// The process of a section gave a sign of life.
    pub fn alive(&mut self, key: &Key, now: Instant) {
        if let Some(entry) = self.entries.get_mut(key)
            && let Phase::Running { hangs, .. } = &mut entry.phase
        {
            *hangs = Some(now + SIGN_LIMIT);
        }
    }

    /// A service took over the words of an [`Action::Change`], or refused them.
    pub fn changed(&mut self, key: &Key, taken: bool, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        let runs = |entry: &Entry| matches!(entry.phase, Phase::Running { .. });
        if !taken && self.entries.get(key).is_some_and(runs) {
            self.restart(key, now, &mut actions);
        }
        actions
    }

    /// The process of a section ended; `success`: with status 0.
    pub fn ended(&mut self, key: &Key, success: bool, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        let Some(entry) = self.entries.get_mut(key) else { return actions };
        match entry.phase {
            Phase::Ending { next: Next::Remove, .. } => {
                self.entries.remove(key);
            }
            Phase::Ending { next: Next::TakeOff, .. } => {
                entry.phase = Phase::Applied;
                self.remove(key, now, &mut actions);
            }
            Phase::Ending { next: Next::Start, .. } if !self.stopping => {
                self.begin(key, now, &mut actions);
            }
            Phase::Running { .. } if success && key.kind.is_done_once(&entry.section.words()) => {
                entry.phase = Phase::Applied;
                entry.pause = FIRST_PAUSE;
                // The command may have worked on an interface that was deleted and made again.
                if self.indices(key) != self.entries[key].on {
                    self.begin(key, now, &mut actions);
                }
            }
            Phase::Running { since, .. } => {
                if now.saturating_since(since) >= PROVEN {
                    entry.pause = FIRST_PAUSE;
                }
                entry.phase = Phase::Pausing { since: now, until: now + entry.pause };
                entry.pause = (entry.pause * 2).min(LONGEST_PAUSE);
                if !self.missing(key).is_empty() {
                    self.entries.get_mut(key).expect("it was found").phase = Phase::Waiting;
                }
            }
            Phase::Ending { .. } | Phase::Waiting | Phase::Pausing { .. } | Phase::Applied => {}
        }
        actions
    }

    /// Interfaces or addresses changed; `interfaces` exist now.
    pub fn news(&mut self, interfaces: Interfaces, now: Instant) -> Vec<Action> {
        self.interfaces = interfaces;
        let mut actions = Vec::new();
        if self.stopping {
            return actions;
        }
        for key in self.entries.keys().cloned().collect::<Vec<_>>() {
            let (missing, indices) = (!self.missing(&key).is_empty(), self.indices(&key));
            let entry = self.entries.get_mut(&key).expect("it is there");
            match &mut entry.phase {
                Phase::Waiting if !missing => self.begin(&key, now, &mut actions),
                Phase::Pausing { .. } if missing => entry.phase = Phase::Waiting,
                Phase::Pausing { since, until } => {
                    *until = (*until).min((*since + NEWS_PAUSE).max(now));
                }
                // The interface was made anew: what the command put on the old one is gone.
                Phase::Applied if entry.on != indices => self.begin(&key, now, &mut actions),
                _ => {}
            }
        }
        actions
    }

    /// Returns the steps that are due at `now`.
    pub fn on_deadline(&mut self, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        for key in self.entries.keys().cloned().collect::<Vec<_>>() {
            let entry = self.entries.get_mut(&key).expect("it is there");
            match &mut entry.phase {
                Phase::Pausing { until, .. } if *until <= now => {
                    self.begin(&key, now, &mut actions);
                }
                Phase::Running { hangs, .. } if hangs.is_some_and(|at| at <= now) => {
                    *hangs = None;
                    actions.push(Action::Kill(key));
                }
                Phase::Ending { kill, .. } if *kill <= now => {
                    // One SIGKILL is enough; the process may take a while to disappear.
                    *kill = Instant::MAX;
                    actions.push(Action::Kill(key));
                }
                _ => {}
            }
        }
        actions
    }

    /// Time at which [`Supervisor::on_deadline`] has something to do; `None` for never.
    pub fn next_deadline(&self) -> Option<Instant> {
        let deadline = |entry: &Entry| match entry.phase {
            Phase::Pausing { until, .. } => Some(until),
            Phase::Ending { kill, .. } => Some(kill),
            Phase::Running { hangs, .. } => hangs,
            Phase::Waiting | Phase::Applied => None,
        };
        self.entries.values().filter_map(deadline).min().filter(|at| *at != Instant::MAX)
    }

    /// Ends everything. Splitters stay on their interfaces, because peers go on sending meta
    /// packets.
    pub fn stop(&mut self, now: Instant) -> Vec<Action> {
        self.stopping = true;
        let mut actions = Vec::new();
        self.entries.retain(|key, entry| {
            let kill = match entry.phase {
                Phase::Running { .. } => {
                    actions.push(Action::Terminate(key.clone()));
                    now + PATIENCE
                }
                Phase::Ending { kill, .. } => kill,
                Phase::Waiting | Phase::Pausing { .. } | Phase::Applied => return false,
            };
            entry.phase = Phase::Ending { next: Next::Remove, kill };
            true
        });
        actions
    }

    /// Whether no process is left after [`Supervisor::stop`].
    pub fn has_stopped(&self) -> bool {
        self.stopping && self.entries.is_empty()
    }

    /// Whether no process is between its start and its first sign of work.
    pub fn is_settled(&self) -> bool {
        !self
            .entries
            .values()
            .any(|entry| matches!(entry.phase, Phase::Running { ready: false, .. }))
    }

    /// State of each section.
    pub fn states(&self) -> impl Iterator<Item = (&Key, State)> {
        self.entries.iter().map(|(key, entry)| {
            let state = match &entry.phase {
                Phase::Waiting => State::Waiting(self.missing(key)),
                Phase::Pausing { until, .. } => State::Pausing(*until),
                Phase::Running { ready: false, .. } => State::Starting,
                Phase::Running { since, .. } => State::Running(*since),
                Phase::Applied => State::Applied,
                Phase::Ending { .. } => State::Ending,
            };
            (key, state)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::config;
    use super::*;

    const AGGREGATE: &str = "[[aggregate]]\ndev = \"a\"\npeer = \"any\"\n";
    const WINDOW: &str = "[[window]]\ndev = \"b\"\ncapacity = \"20mbit\"\n";
    const SPLIT: &str = "[[split]]\ndev = \"a\"\npeer = \"any\"\n";

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn links(names: &[(&str, u32)]) -> Interfaces {
        names.iter().map(|(name, index)| ((*name).to_owned(), *index)).collect()
    }

    fn sections(text: &str) -> BTreeMap<Key, Section> {
        config::parse(text).unwrap().sections
    }

    fn key(text: &str) -> Key {
        sections(text).into_keys().next().unwrap()
    }

    /// A supervisor on a host with interfaces a and b that has loaded `text`.
    fn loaded(text: &str) -> (Supervisor, Vec<Action>) {
        let mut supervisor = Supervisor::new(links(&[("a", 2), ("b", 3)]));
        let (actions, _) = supervisor.load(sections(text), at(0));
        (supervisor, actions)
    }

    fn start(text: &str) -> Action {
        let (key, section) = sections(text).into_iter().next().unwrap();
        Action::Start(key, section.words())
    }

    #[test]
    fn pauses_double_up_to_five_seconds_and_are_short_again_after_ten_of_life() {
        let (mut supervisor, actions) = loaded(AGGREGATE);
        assert_eq!(actions, [start(AGGREGATE)]);
        let aggregate = key(AGGREGATE);
        let mut now = at(0);
        for pause in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            assert!(supervisor.ended(&aggregate, true, now).is_empty());
            let until = now + Duration::from_millis(pause);
            assert_eq!(supervisor.next_deadline(), Some(until));
            assert!(supervisor.on_deadline(until - Duration::from_nanos(1)).is_empty());
            assert_eq!(supervisor.on_deadline(until), [start(AGGREGATE)]);
            now = until;
        }
        now += PROVEN;
        supervisor.ended(&aggregate, false, now);
        assert_eq!(supervisor.next_deadline(), Some(now + FIRST_PAUSE));
    }

    #[test]
    fn a_section_without_its_interface_waits_and_begins_with_the_news_of_it() {
        let (mut supervisor, _) = loaded(WINDOW);
        let window = key(WINDOW);
        assert!(supervisor.news(links(&[("a", 2)]), at(50)).is_empty(), "the service ends itself");
        supervisor.ended(&window, false, at(60));
        assert_eq!(supervisor.next_deadline(), None, "no process is started in vain");
        let states: Vec<_> = supervisor.states().map(|(_, state)| state).collect();
        assert_eq!(states, [State::Waiting(vec!["b".to_owned()])]);
        assert!(supervisor.news(links(&[("a", 2)]), at(70)).is_empty());
        assert_eq!(supervisor.news(links(&[("a", 2), ("b", 9)]), at(80)), [start(WINDOW)]);
    }

    #[test]
    fn news_of_interfaces_shortens_a_pause_to_a_second() {
        let (mut supervisor, _) = loaded(WINDOW);
        let (window, present) = (key(WINDOW), links(&[("b", 3)]));
        let mut now = at(0);
        for _ in 0..7 {
            supervisor.ended(&window, false, now);
            now += LONGEST_PAUSE;
            supervisor.on_deadline(now);
        }
        supervisor.ended(&window, false, now);
        assert_eq!(supervisor.next_deadline(), Some(now + LONGEST_PAUSE));
        supervisor.news(present.clone(), now + Duration::from_millis(1));
        assert_eq!(supervisor.next_deadline(), Some(now + NEWS_PAUSE));
        let late = now + Duration::from_secs(2);
        supervisor.news(present, late);
        assert_eq!(supervisor.next_deadline(), Some(now + NEWS_PAUSE));
        assert_eq!(supervisor.on_deadline(late), [start(WINDOW)]);
    }

    #[test]
    fn a_reload_touches_nothing_that_did_not_change() {
        let (mut supervisor, _) = loaded(&format!("{AGGREGATE}{WINDOW}"));
        supervisor.ready(&key(AGGREGATE));
        supervisor.ready(&key(WINDOW));
        // The window moved to another line.
        let (actions, fates) =
            supervisor.load(sections(&format!("# news\n{WINDOW}{AGGREGATE}")), at(1));
        assert!(actions.is_empty() && fates.is_empty(), "{actions:?}");
        let (actions, fates) =
            supervisor.load(sections(&format!("{AGGREGATE}{WINDOW}slack = \"2ms\"\n")), at(2));
        let words = ["slack", "2ms"].map(str::to_owned).to_vec();
        assert_eq!(actions, [Action::Change(key(WINDOW), words)]);
        assert_eq!(fates, [(key(WINDOW), Fate::Changed)].into());
        assert!(supervisor.changed(&key(WINDOW), true, at(3)).is_empty());
    }

    #[test]
    fn what_a_service_cannot_change_while_it_runs_starts_it_anew_with_the_new_words() {
        let (mut supervisor, _) = loaded(WINDOW);
        let window = key(WINDOW);
        supervisor.ready(&window);
        let changed = format!("{WINDOW}rest = \"mark\"\n");
        supervisor.load(sections(&changed), at(1));
        assert_eq!(supervisor.changed(&window, false, at(2)), [Action::Terminate(window.clone())]);
        assert_eq!(supervisor.ended(&window, true, at(3)), [start(&changed)]);
        // A word less cannot be said at all.
        supervisor.ready(&window);
        let (actions, _) = supervisor.load(sections(WINDOW), at(4));
        assert_eq!(actions, [Action::Terminate(window)]);
    }

    #[test]
    fn a_service_that_is_not_at_work_yet_is_not_asked_to_change() {
        let (mut supervisor, _) = loaded(WINDOW);
        let (actions, _) = supervisor.load(sections(&format!("{WINDOW}rest = \"mark\"\n")), at(1));
        assert_eq!(actions, [Action::Terminate(key(WINDOW))]);
    }

    #[test]
    fn a_removed_section_ends_and_one_put_back_meanwhile_begins_after_that() {
        let (mut supervisor, _) = loaded(WINDOW);
        let window = key(WINDOW);
        let (actions, fates) = supervisor.load(BTreeMap::new(), at(1));
        assert_eq!(actions, [Action::Terminate(window.clone())]);
        assert_eq!(fates[&window], Fate::Removed);
        let (actions, fates) = supervisor.load(sections(WINDOW), at(2));
        assert!(actions.is_empty());
        assert_eq!(fates[&window], Fate::Added);
        assert_eq!(supervisor.ended(&window, true, at(3)), [start(WINDOW)]);
        supervisor.load(BTreeMap::new(), at(4));
        assert!(supervisor.ended(&window, true, at(5)).is_empty());
        assert_eq!(supervisor.states().count(), 0);
    }

    #[test]
    fn a_process_that_does_not_end_is_killed_once() {
        let (mut supervisor, _) = loaded(WINDOW);
        supervisor.load(BTreeMap::new(), at(0));
        let late = at(0) + PATIENCE;
        assert_eq!(supervisor.next_deadline(), Some(late));
        assert_eq!(supervisor.on_deadline(late), [Action::Kill(key(WINDOW))]);
        assert_eq!(supervisor.next_deadline(), None);
        assert!(supervisor.on_deadline(late + PATIENCE).is_empty());
    }

    #[test]
    fn a_process_that_gave_signs_of_life_and_stops_to_is_killed_and_started_again() {
        let (mut supervisor, _) = loaded(WINDOW);
        let window = key(WINDOW);
        assert_eq!(supervisor.next_deadline(), None, "nobody has to give any");
        supervisor.alive(&window, at(0));
        supervisor.alive(&window, at(1000));
        let late = at(1000) + SIGN_LIMIT;
        assert!(supervisor.on_deadline(late - FIRST_PAUSE).is_empty());
        assert_eq!(supervisor.on_deadline(late), [Action::Kill(window.clone())]);
        assert!(supervisor.on_deadline(late + SIGN_LIMIT).is_empty());
        supervisor.ended(&window, false, late);
        assert_eq!(supervisor.on_deadline(late + FIRST_PAUSE), [start(WINDOW)]);
    }

    #[test]
    fn a_splitter_is_put_on_once_again_on_a_new_interface_and_taken_off() {
        let (mut supervisor, actions) = loaded(SPLIT);
        assert_eq!(actions, [start(SPLIT)]);
        let split = key(SPLIT);
        assert!(!supervisor.is_settled());
        assert!(supervisor.ended(&split, true, at(1)).is_empty());
        assert!(supervisor.is_settled() && supervisor.next_deadline().is_none());
        assert!(supervisor.news(links(&[("a", 2)]), at(2)).is_empty());
        assert!(supervisor.news(links(&[]), at(3)).is_empty(), "it waits");
        assert_eq!(supervisor.news(links(&[("a", 7)]), at(4)), [start(SPLIT)]);
        supervisor.ended(&split, true, at(5));
        // Made anew between two looks.
        assert_eq!(supervisor.news(links(&[("a", 8)]), at(6)), [start(SPLIT)]);
        supervisor.ended(&split, true, at(7));
        let (actions, _) = supervisor.load(BTreeMap::new(), at(8));
        let off = ["dev", "a", "off"].map(str::to_owned).to_vec();
        assert_eq!(actions, [Action::Start(split.clone(), off)]);
        supervisor.ended(&split, true, at(9));
        assert_eq!(supervisor.states().count(), 0);
    }

    #[test]
    fn a_splitter_that_says_hello_runs_until_its_section_goes_and_is_taken_off_then() {
        const HELLO: &str = "[[split]]\ndev = \"a\"\n";
        let (mut supervisor, actions) = loaded(HELLO);
        assert_eq!(actions, [start(HELLO)]);
        let split = key(HELLO);
        supervisor.ready(&split);
        // It ended by itself, so it begins again.
        assert!(supervisor.ended(&split, true, at(1)).is_empty());
        assert_eq!(supervisor.on_deadline(at(1) + FIRST_PAUSE), [start(HELLO)]);
        let (actions, _) = supervisor.load(BTreeMap::new(), at(8_000));
        assert_eq!(actions, [Action::Terminate(split.clone())]);
        let off = ["dev", "a", "off"].map(str::to_owned).to_vec();
        assert_eq!(supervisor.ended(&split, true, at(9_000)), [Action::Start(split.clone(), off)]);
        supervisor.ended(&split, true, at(9_001));
        assert_eq!(supervisor.states().count(), 0);
    }

    #[test]
    fn at_the_end_processes_end_and_splitters_stay() {
        let (mut supervisor, _) = loaded(&format!("{AGGREGATE}{SPLIT}{WINDOW}"));
        supervisor.ended(&key(SPLIT), true, at(1));
        supervisor.ended(&key(WINDOW), false, at(1));
        assert_eq!(supervisor.stop(at(2)), [Action::Terminate(key(AGGREGATE))]);
        assert!(!supervisor.has_stopped());
        assert!(supervisor.news(links(&[("b", 3)]), at(3)).is_empty());
        assert!(supervisor.ended(&key(AGGREGATE), true, at(4)).is_empty());
        assert!(supervisor.has_stopped());
    }
}
