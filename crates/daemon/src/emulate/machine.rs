//! The links of an emulation: one each way, or the pipes of rules.

use super::describe::ClassSettings;
use super::settings::Plan;
use anyhow::anyhow;
use sheaf_emulator::classes::quantum;
use sheaf_emulator::{
    ClassConfig, ConfigError, Direction, Link, LinkConfig, Log, Loss, Packet, PipeConfig,
    PipeStats, Pipes,
};
use sheaf_netio::vnet;
use sheaf_stage::{Bitrate, Instant, Stage};

/// At this rate and above super-packets pass whole: 64 KiB take 105 µs then, about what a wake-up
/// may be late. Below it, every segment has a departure of its own.
const WHOLE_FROM: u64 = 5_000_000_000;

/// A change of what runs.
#[derive(Clone, Debug)]
pub enum Change {
    /// Both directions.
    Links(Box<[LinkConfig; 2]>),
    /// A pipe, by its name.
    Pipe(String, Box<LinkConfig>),
    /// Terms of a class, by its name.
    Class(String, ClassChange),
}

/// New terms of a class; what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassChange {
    /// Its rate.
    pub rate: Option<Bitrate>,
    /// The most that it gets.
    pub ceil: Option<Bitrate>,
    /// Its priority.
    pub prio: Option<u8>,
    /// Its share of what is lent to several.
    pub quantum: Option<u64>,
    /// Bytes that it saves up of its rate.
    pub burst: Option<u64>,
    /// Bytes that it saves up of its ceil.
    pub cburst: Option<u64>,
}

impl ClassChange {
    /// `class` with these terms. A quantum and a root's ceil that followed from the rate follow it.
    fn apply(&self, class: &ClassConfig) -> ClassConfig {
        let rate = self.rate.unwrap_or(class.rate);
        let follows = class.quantum == quantum(class.rate);
        let follows = if follows { quantum(rate) } else { class.quantum };
        let ceil = if class.parent.is_none() { rate } else { class.ceil };
        ClassConfig {
            parent: class.parent,
            rate,
            ceil: self.ceil.unwrap_or(ceil),
            prio: self.prio.unwrap_or(class.prio),
            quantum: self.quantum.unwrap_or(follows),
            burst: self.burst.unwrap_or(class.burst),
            cburst: self.cburst.unwrap_or(class.cburst),
            overhead: class.overhead,
        }
    }
}

/// Takes packets in and gives them out at their time.
pub struct Machine {
    links: Links,
    /// Numbers of packets, by direction.
    numbers: [u64; 2],
    whole: bool,
    finish: bool,
    capture: bool,
    /// The trace of a direction waits for the first packet.
    armed: bool,
}

enum Links {
    Each(Box<[Link; 2]>),
    Pipes { pipes: Box<Pipes>, names: Vec<String>, configs: Vec<LinkConfig> },
}

/// Index of a direction.
fn index(direction: Direction) -> usize {
    usize::from(direction == Direction::In)
}

impl Machine {
    /// The links of `plan`, for Ethernet frames or IP packets. Their traces begin together: at
    /// `now`, or with the first packet of any of them.
    pub fn new(plan: &Plan, ethernet: bool, seed: u64, now: Instant) -> anyhow::Result<Self> {
        let wrong = |error| anyhow!("{error}; change the link's options");
        let links = match plan {
            Plan::Links(configs) => {
                let [out, back] = &**configs;
                let link = |config, seed| Link::new(beginning(config, now), seed).map_err(wrong);
                Links::Each(Box::new([link(out, seed)?, link(back, seed.wrapping_add(1))?]))
            }
            Plan::Rules(set) => {
                let header = vnet::LEN + if ethernet { 14 } else { 0 };
                let mut pipes = Pipes::new(header, seed);
                for (_, pipe) in &set.pipes {
                    let link = beginning(&pipe.link, now);
                    pipes.add(PipeConfig { link, ..pipe.clone() }).map_err(wrong)?;
                }
                pipes.set_rules(set.rules.clone()).map_err(wrong)?;
                Links::Pipes {
                    pipes: Box::new(pipes),
                    names: set.pipes.iter().map(|(name, _)| name.clone()).collect(),
                    configs: set.pipes.iter().map(|(_, pipe)| pipe.link.clone()).collect(),
                }
            }
        };
        let mut machine = Machine {
            links,
            numbers: [0; 2],
            whole: false,
            finish: false,
            capture: false,
            armed: false,
        };
        machine.settle();
        Ok(machine)
    }

    /// Whether super-packets pass whole; otherwise they are to be taken apart.
    pub fn whole(&self) -> bool {
        self.whole
    }

    /// Whether checksums are to be finished: a bit flipped in a packet whose checksum is not yet
    /// computed would never be found.
    pub fn finish(&self) -> bool {
        self.finish
    }

    /// Makes the links other ones; their traces begin together, as in [`Machine::new`]. Nothing
    /// queued is lost.
    pub fn change(&mut self, change: &Change, now: Instant) -> anyhow::Result<()> {
        let wrong = |error| anyhow!("{error}; change the link's options");
        match (&mut self.links, change) {
            (Links::Each(links), Change::Links(configs)) => {
                // Both before either: a change that is refused changes nothing.
                configs.iter().try_for_each(LinkConfig::check).map_err(wrong)?;
                for (link, config) in links.iter_mut().zip(configs.iter()) {
                    link.change(beginning(config, now), now).map_err(wrong)?;
                }
            }
            (Links::Pipes { pipes, names, configs }, Change::Pipe(name, config)) => {
                let number = number(names, "pipe", name)?;
                let changed = pipes.change(number, beginning(config, now), now);
                changed.map_err(|error| match error {
                    ConfigError::Inner { .. } => anyhow!(
                        "class {name} has others below it, whose links packets take; change one \
                         of these"
                    ),
                    error => wrong(error),
                })?;
                configs[number].clone_from(config);
            }
            (Links::Pipes { pipes, names, .. }, Change::Class(name, terms)) => {
                let number = number(names, "class", name)?;
                let Some((class, _)) = pipes.class(number) else {
                    return Err(anyhow!("{name} is a pipe, not a class; write pipe {name} LINK"));
                };
                let class = terms.apply(class);
                pipes.change_class(number, class, now).map_err(|error| {
                    anyhow!("class {name}: {error}; change the other one first, or give another")
                })?;
            }
            (Links::Each(_), Change::Class(..)) => {
                return Err(anyhow!("no classes run here; leave out class NAME"));
            }
            (Links::Each(_), Change::Pipe(..)) => {
                return Err(anyhow!("no pipes run here; leave out pipe NAME"));
            }
            (Links::Pipes { names, .. }, Change::Links(_)) => {
                return Err(anyhow!("pipes run here; name one: pipe {}", names.join("|")));
            }
        }
        self.settle();
        Ok(())
    }

    /// Works out what follows from the links' options.
    fn settle(&mut self) {
        let configs: Vec<&LinkConfig> = match &self.links {
            Links::Each(links) => links.iter().map(Link::config).collect(),
            Links::Pipes { configs, .. } => configs.iter().collect(),
        };
        let fast = |rate: Bitrate| rate.as_bps() >= WHOLE_FROM;
        let classes = match &self.links {
            Links::Each(_) => true,
            Links::Pipes { pipes, names, .. } => (0..names.len())
                .filter_map(|number| pipes.class(number))
                .all(|(class, _)| fast(class.rate)),
        };
        self.whole = classes && configs.iter().all(|config| treats_alike(config));
        let corrupts = configs.iter().any(|config| config.corrupt.probability > 0.0);
        self.finish = corrupts || self.capture;
        self.armed = match &self.links {
            Links::Each(links) => links.iter().any(Link::is_armed),
            // Pipes see to it themselves: a packet may pass by all of them.
            Links::Pipes { .. } => false,
        };
    }

    /// Takes in what came at `arrived` by interface number `interface`: a virtio header and a
    /// packet.
    pub fn enqueue(
        &mut self,
        bytes: Vec<u8>,
        segments: Option<sheaf_emulator::Segments>,
        (direction, interface): (Direction, u16),
        arrived: Instant,
        now: Instant,
    ) {
        let number = &mut self.numbers[index(direction)];
        // Pipes are shared by both directions, whose packets are not to share their fates.
        let mut packet = Packet::new(bytes, arrived, *number << 1 | index(direction) as u64);
        *number += 1;
        packet.direction = direction;
        packet.interface = interface;
        packet.prefix = vnet::LEN as u16;
        packet.segments = segments;
        // What the links drop is counted there by its cause.
        let _ = match &mut self.links {
            Links::Each(links) => {
                if self.armed {
                    links.iter_mut().for_each(|link| link.start_trace(arrived));
                    self.armed = false;
                }
                packet.number >>= 1;
                links[index(direction)].enqueue(packet, now)
            }
            Links::Pipes { pipes, .. } => pipes.enqueue(packet, now),
        };
    }

    /// The next packet that leaves by `now`.
    pub fn dequeue(&mut self, now: Instant) -> Option<Packet> {
        match &mut self.links {
            Links::Each(links) => links.iter_mut().find_map(|link| link.dequeue(now)),
            Links::Pipes { pipes, .. } => pipes.dequeue(now),
        }
    }

    /// Takes note of when packets left that were handed out together; `first` is the first of them.
    pub fn left(&mut self, first: &Packet, at: Instant) {
        // Which pipe a packet came from last is not known here: theirs count the calls alone.
        if let Links::Each(links) = &mut self.links {
            links[index(first.direction)].left(first, at);
        }
    }

    /// Time at which the next packet leaves, or something else comes to pass.
    pub fn next_deadline(&self) -> Instant {
        let next = match &self.links {
            Links::Each(links) => links.iter().filter_map(Link::next_deadline).min(),
            Links::Pipes { pipes, .. } => pipes.next_deadline(),
        };
        next.unwrap_or(Instant::MAX)
    }

    /// A buffer used before, where there is one: what links dropped.
    pub fn buffer(&mut self) -> Option<Vec<u8>> {
        let Links::Each(links) = &mut self.links else { return None };
        links.iter_mut().map(Link::buffer).find(|buffer| buffer.capacity() > 0)
    }

    /// Tells `log` of every event, and finishes checksums for it.
    pub fn set_log(&mut self, log: Log) {
        match &mut self.links {
            Links::Each(links) => {
                links.iter_mut().for_each(|link| link.set_log(Some(log.clone())));
            }
            Links::Pipes { pipes, .. } => pipes.set_log(Some(log)),
        }
        self.capture = true;
        self.settle();
    }

    /// Counters of each link, or of each pipe by name, summed over all flows.
    pub fn stats(&self) -> Vec<(Option<&str>, PipeStats)> {
        let one = |link: &Link| PipeStats { links: link.stats(), ..PipeStats::default() };
        match &self.links {
            Links::Each(links) => links.iter().map(|link| (None, one(link))).collect(),
            Links::Pipes { pipes, names, .. } => {
                let stats = |number| pipes.stats(number).unwrap_or_default();
                (0..).zip(names).map(|(at, name)| (Some(name.as_str()), stats(at))).collect()
            }
        }
    }

    /// Settings of link number `index`, in the order of [`Machine::stats`].
    pub fn config(&self, index: usize) -> &LinkConfig {
        match &self.links {
            Links::Each(links) => links[index].config(),
            Links::Pipes { configs, .. } => &configs[index],
        }
    }

    /// Terms of link number `index` as a class, if it is one.
    pub fn class(&self, index: usize) -> Option<ClassSettings> {
        let Links::Pipes { pipes, names, .. } = &self.links else { return None };
        let (class, leaf) = pipes.class(index)?;
        let parent = class.parent.and_then(|parent| names.get(parent)).cloned();
        Some(ClassSettings::new(class, leaf, parent))
    }

    /// Packets dropped by rules.
    pub fn denied(&self) -> u64 {
        match &self.links {
            Links::Each(_) => 0,
            Links::Pipes { pipes, .. } => pipes.counters().dropped(sheaf_stage::DropReason::Denied),
        }
    }
}

/// The number of the pipe or class `name` among all.
fn number(names: &[String], kind: &str, name: &str) -> anyhow::Result<usize> {
    let number = names.iter().position(|known| known == name);
    number.ok_or_else(|| anyhow!("there is no {kind} {name}; there are {}", names.join(", ")))
}

/// `config` with a trace that begins at `now`, unless it waits for the first packet.
fn beginning(config: &LinkConfig, now: Instant) -> LinkConfig {
    let mut config = config.clone();
    if let Some(start) = config.trace.as_mut().and_then(|trace| trace.start.as_mut()) {
        *start = now;
    }
    config
}

/// Whether a link does to a super-packet what it would do to its segments, to within the precision
/// of a wake-up.
fn treats_alike(config: &LinkConfig) -> bool {
    config.rate.is_none_or(|rate| rate.as_bps() >= WHOLE_FROM)
        // A super-packet is a burst of itself.
        && config.burst.is_none_or(|burst| burst >= vnet::LONGEST as u64)
        && config.trace.is_none()
        && config.loss == Loss::None
        && config.duplicate.probability == 0.0
        && config.corrupt.probability == 0.0
        && config.reorder.is_none()
        && !config.single
        && config.slot.is_none()
        && config.delay.jitter.is_zero()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_emulator::trace::Steps;
    use sheaf_emulator::{Chance, Delay, Reorder, Slot, SlotWait, Trace, TraceConfig};
    use sheaf_stage::{Bitrate, Duration};

    /// Delays in milliseconds of packets that come this way at these times, in milliseconds.
    fn delays(machine: &mut Machine, packets: &[(Direction, u64)]) -> Vec<u64> {
        let mut delay = |(way, ms)| {
            let at = Instant::from_millis(ms);
            machine.enqueue(vec![0; 100], None, (way, 0), at, at);
            // A row of the trace that begins meanwhile is a deadline, too.
            let left = std::iter::repeat_with(|| machine.dequeue(machine.next_deadline()));
            let left = left.take(3).flatten().next().unwrap().depart;
            (left - at).as_nanos() as u64 / 1_000_000
        };
        packets.iter().copied().map(&mut delay).collect()
    }

    #[test]
    fn traces_of_both_directions_begin_together_whenever_their_words_were_read() {
        let steps = Steps::parse("time,delay\n0,10\n0.1,20\n0.2,30\n").unwrap();
        let traced = |start: Option<u64>| {
            let start = start.map(Instant::from_millis);
            let trace = Trace::Steps(steps.clone().into());
            let trace = Some(TraceConfig { trace, start, looped: false });
            LinkConfig { trace, ..LinkConfig::default() }
        };
        let machine = |configs: [LinkConfig; 2]| {
            let plan = Plan::Links(Box::new(configs));
            Machine::new(&plan, true, 1, Instant::from_millis(1000)).unwrap()
        };
        let (out, back) = (Direction::Out, Direction::In);
        let mut now = machine([traced(Some(950)), traced(Some(999))]);
        assert_eq!(delays(&mut now, &[(out, 1090), (back, 1095), (back, 1105)]), [10, 10, 20]);
        let mut armed = machine([traced(None), traced(None)]);
        let packets = [(back, 5000), (out, 5090), (out, 5150), (back, 5210)];
        assert_eq!(delays(&mut armed, &packets), [10, 10, 20, 30]);
        // A change arms again.
        let change = Change::Links(Box::new([traced(None), traced(Some(0))]));
        armed.change(&change, Instant::from_millis(6000)).unwrap();
        assert_eq!(delays(&mut armed, &[(back, 6150), (out, 6190), (out, 6260)]), [20, 10, 20]);
    }

    #[test]
    fn super_packets_pass_whole_only_where_no_segment_could_tell() {
        const MS: Duration = Duration::from_millis(1);
        let base = LinkConfig::default;
        let delay = Delay::constant(20 * MS);
        let (rare, often) = (Chance::of(0.01), Chance::of(0.05));
        let jitter = Delay { jitter: MS, ..delay.clone() };
        let slot = Slot { wait: SlotWait::Between(MS, MS), packets: 0, bytes: 0 };
        let fast = Some(Bitrate::from_mbps(10_000));
        for (config, whole) in [
            (base(), true),
            (LinkConfig { delay: delay.clone(), ..base() }, true),
            (LinkConfig { rate: fast, ..base() }, true),
            (LinkConfig { rate: Some(Bitrate::from_mbps(1_000)), ..base() }, false),
            (LinkConfig { rate: fast, burst: Some(3028), ..base() }, false),
            (LinkConfig { rate: fast, burst: Some(100_000), ..base() }, true),
            (LinkConfig { loss: Loss::Random(rare), ..base() }, false),
            (LinkConfig { duplicate: rare, ..base() }, false),
            (LinkConfig { corrupt: rare, ..base() }, false),
            (LinkConfig { delay: jitter, ..base() }, false),
            (LinkConfig { reorder: Some(Reorder { chance: often, gap: 1 }), ..base() }, false),
            (LinkConfig { slot: Some(slot), ..base() }, false),
            (LinkConfig { delay, single: true, ..base() }, false),
        ] {
            assert_eq!(treats_alike(&config), whole, "{config:?}");
        }
    }
}
