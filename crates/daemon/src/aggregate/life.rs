//! Whether the host at a next hop splits: what probes, their replies and errors say.
//!
//! Principle: a probe is a meta packet with an echo request inside; only a host that splits replies
//! to it. Packets share frames from the first reply on. While frames leave, a probe leaves every
//! [`IN_USE`]; as many probes missed in a row as make a false alarm rare ([`RARE`]), or one error
//! that says so, end it at once. How long a reply is waited for follows RFC 6298, with a lower
//! floor. A reply counts however late it comes.
//!
//! On a radio a probe costs as much air as a packet. A host that sends frames itself is there, and
//! a splitter goes with a goodbye or an error; so while its frames come, probes leave every
//! [`WHILE_HEARD`] only. They never stop, as anybody can forge where a frame is from.
//!
//! This is a state machine without I/O: it is told the time, and returns what is to be done.

use sheaf_stage::{Duration, Instant};
use std::collections::VecDeque;

/// Between probes while frames leave that only a host that splits takes. With [`FLOOR`] twice, a
/// host that falls silent is noticed within a second; on a radio of 2 Mbit/s a probe and its reply
/// take 0.4 % of the time.
const IN_USE: Duration = Duration::from_millis(500);
/// Between probes while frames come from that host, too: a radio of 2 Mbit/s with six such pairs
/// of hosts would spend 2.5 % of its time on probes, and 0.25 % so.
const WHILE_HEARD: Duration = Duration::from_secs(5);
/// Between probes while none leave: what is shown stays true.
const IDLE: Duration = Duration::from_secs(10);
/// The shortest wait for a reply.
const FLOOR: Duration = Duration::from_millis(250);
/// The longest: beyond this a path is of no use to a call.
const CEILING: Duration = Duration::from_secs(3);
/// Between probes of a named host that does not split, at first: it may be restarting.
const RETRY: Duration = Duration::from_secs(1);
/// How many of these come before the pauses grow.
const RETRIES: u32 = 30;
/// So many probes of a host that did split follow one after the other, each as soon as the one
/// before was waited for: a queue that fills up loses probes, too, or delays them. Where half are
/// lost, all of these are in one case of 256.
const QUICK: u32 = 8;
/// The longest pause between probes of a host that does not split.
const REST: Duration = Duration::from_secs(10);
/// Misses in a row that say nothing happen less often than this, by the losses seen so far.
const RARE: f64 = 0.001;
/// At least so many misses, since one says nothing.
const MISSES: u32 = 2;
/// At most so many, whatever the loss: a second at [`FLOOR`].
const MOST_MISSES: u32 = 4;
/// Weight of one probe in the share that is lost: about the last 16 count.
const WEIGHT: f64 = 1.0 / 16.0;
/// Probes whose replies are still recognized.
const REMEMBERED: usize = 16;
/// Between two probes, whatever asks for them.
const GAP: Duration = Duration::from_millis(50);

/// What is known of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Splits {
    /// Nothing yet: its packets pass.
    Unknown,
    /// It splits: packets share frames.
    Yes,
    /// It does not: its packets pass.
    No,
}

impl Splits {
    /// The word in statistics and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Splits::Unknown => "unknown",
            Splits::Yes => "yes",
            Splits::No => "no",
        }
    }
}

/// How much effort a host that does not split is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faith {
    /// It is taken at its word (`probe off`): no probes; an error ends frames for [`REST`].
    Trusted,
    /// It is named, so it is expected to come back.
    Named,
    /// It is any neighbour, and may never have heard of this.
    Any,
}

/// One probe that left.
#[derive(Clone, Copy, Debug)]
struct Probe {
    sequence: u16,
    cookie: u64,
    sent: Instant,
    replied: bool,
}

/// The state of one host.
#[derive(Clone, Debug)]
pub struct Life {
    splits: Splits,
    faith: Faith,
    probes: VecDeque<Probe>,
    /// A reply is awaited until then.
    awaited: Option<Instant>,
    /// The next probe is due, unless one is awaited.
    next: Instant,
    last: Option<Instant>,
    /// When it was last known that frames leave.
    used: Option<Instant>,
    /// Time of the last frame from it.
    heard: Option<Instant>,
    /// Probes missed in a row.
    missed: u32,
    /// Probes in vain since it last split.
    vain: u32,
    /// Share of probes without a reply while it splits.
    loss: f64,
    /// Smoothed round-trip time and its variation, in seconds.
    round_trip: Option<(f64, f64)>,
    sent: u64,
}

impl Life {
    /// A host of which nothing is known at `now`.
    pub fn new(faith: Faith, now: Instant) -> Life {
        Life {
            splits: if faith == Faith::Trusted { Splits::Yes } else { Splits::Unknown },
            faith,
            probes: VecDeque::new(),
            awaited: None,
            next: if faith == Faith::Trusted { Instant::MAX } else { now },
            last: None,
            used: None,
            heard: None,
            missed: 0,
            vain: 0,
            loss: 0.0,
            round_trip: None,
            sent: 0,
        }
    }

    /// Whether it splits.
    pub fn splits(&self) -> Splits {
        self.splits
    }

    /// Whether a first probe was answered or given up.
    pub fn is_known(&self) -> bool {
        self.splits != Splits::Unknown
    }

    /// Whether its state is looked at before that of hosts that may never split.
    pub fn is_urgent(&self) -> bool {
        self.faith == Faith::Named || self.splits == Splits::Yes
    }

    /// Probes that left.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// When [`Life::is_due`] has something to say at the latest; `Instant::MAX` for never.
    pub fn deadline(&self) -> Instant {
        self.awaited.unwrap_or(self.next)
    }

    /// Counts what was missed by `now`; returns whether a probe is to leave.
    pub fn is_due(&mut self, now: Instant) -> bool {
        if self.awaited.is_some_and(|until| now >= until) {
            self.awaited = None;
            self.miss(now);
        }
        if self.faith == Faith::Trusted {
            if now >= self.next {
                // The pause after an error is over.
                (self.splits, self.next) = (Splits::Yes, Instant::MAX);
            }
            return false;
        }
        self.awaited.is_none() && now >= self.next
    }

    /// A probe left at `now`.
    pub fn probed(&mut self, sequence: u16, cookie: u64, now: Instant) {
        if self.probes.len() == REMEMBERED {
            self.probes.pop_front();
        }
        self.probes.push_back(Probe { sequence, cookie, sent: now, replied: false });
        self.last = Some(now);
        self.awaited = Some(now + self.patience());
        self.sent += 1;
    }

    /// Nothing could be sent at `now`; it is tried again later.
    pub fn postpone(&mut self, until: Instant) {
        (self.awaited, self.next) = (None, until);
    }

    /// A reply came at `now`; returns whether it is to one of the probes.
    pub fn replied(&mut self, sequence: u16, cookie: u64, now: Instant) -> bool {
        let to = |probe: &&mut Probe| (probe.sequence, probe.cookie) == (sequence, cookie);
        let Some(probe) = self.probes.iter_mut().rev().find(to) else { return false };
        if std::mem::replace(&mut probe.replied, true) {
            return true;
        }
        let took = now.saturating_since(probe.sent).as_secs_f64();
        self.round_trip = Some(match self.round_trip {
            None => (took, took / 2.0),
            Some((mean, variation)) => {
                let variation = variation + ((took - mean).abs() - variation) / 4.0;
                (mean + (took - mean) / 8.0, variation)
            }
        });
        // Misses count as loss only when a reply follows them soon: else the host was not there.
        if self.missed <= MOST_MISSES {
            (0..self.missed).for_each(|_| self.loss += (1.0 - self.loss) * WEIGHT);
        }
        self.loss -= self.loss * WEIGHT;
        (self.splits, self.missed, self.vain) = (Splits::Yes, 0, 0);
        self.awaited = None;
        let used = self.used.is_some_and(|used| now.saturating_since(used) <= IN_USE);
        let idle = self.last.unwrap_or(now) + IDLE;
        self.next = if used { self.next_in_use(now) } else { idle };
        true
    }

    /// A frame came from it at `at`, as far as anybody can tell.
    pub fn heard(&mut self, at: Instant) {
        self.heard = self.heard.max(Some(at));
        if self.splits == Splits::Yes && self.awaited.is_none() {
            self.next = self.next.max(self.next_in_use(at));
        }
    }

    /// An error at `now` says that it does not split.
    pub fn refused(&mut self, now: Instant) {
        match (self.faith, self.splits) {
            (Faith::Trusted, _) => self.next = now + REST,
            // The error may be forged, or the host back already: a probe decides.
            (_, Splits::Yes) => self.next = self.soon(now),
            // An answer to a probe, however many more of them come.
            (_, Splits::Unknown) => self.next = now + self.pause(),
            (_, Splits::No) if self.awaited.is_some() => self.next = now + self.pause(),
            (_, Splits::No) => {}
        }
        (self.splits, self.awaited, self.missed) = (Splits::No, None, 0);
    }

    /// It probes this host itself, so it may have just started: a probe leaves soon.
    pub fn stirred(&mut self, now: Instant) {
        if self.splits != Splits::Yes && self.awaited.is_none() {
            self.next = self.next.min(self.soon(now));
        }
    }

    /// Frames left for it since the last time this was called.
    pub fn used(&mut self, now: Instant) {
        self.used = Some(now);
        if self.splits == Splits::Yes && self.awaited.is_none() {
            self.next = self.next.min(self.next_in_use(now).max(now));
        }
    }

    /// Time of the next probe while frames leave.
    fn next_in_use(&self, now: Instant) -> Instant {
        let last = self.last.unwrap_or(now);
        let shown = self.heard.map_or(last, |heard| heard.max(last));
        (shown + IN_USE).min(last + WHILE_HEARD)
    }

    /// As soon as the gap between probes allows.
    fn soon(&self, now: Instant) -> Instant {
        self.last.map_or(now, |last| now.max(last + GAP))
    }

    fn miss(&mut self, now: Instant) {
        self.missed += 1;
        self.next = now;
        match self.splits {
            Splits::Yes => {
                let enough = self.missed >= self.misses();
                if enough {
                    self.splits = Splits::No;
                }
            }
            Splits::Unknown if self.missed < MISSES => {}
            Splits::Unknown => {
                self.splits = Splits::No;
                self.next = now + self.pause();
            }
            Splits::No => self.next = now + self.pause(),
        }
    }

    /// Misses in a row that end it: so many that the usual loss brings them about rarely.
    fn misses(&self) -> u32 {
        let rare = |count: &u32| libm::pow(self.loss, f64::from(*count)) <= RARE;
        (MISSES..MOST_MISSES).find(rare).unwrap_or(MOST_MISSES)
    }

    /// The pause before the next probe of a host that does not split.
    fn pause(&mut self) -> Duration {
        self.vain = self.vain.saturating_add(1);
        let did_split = self.round_trip.is_some();
        if did_split && self.vain <= QUICK {
            return GAP;
        }
        let patient = if did_split || self.faith == Faith::Named { RETRIES } else { 0 };
        let doublings = self.vain.saturating_sub(patient).min(4);
        (RETRY * (1 << doublings)).min(REST)
    }

    /// How long a reply is waited for (RFC 6298, section 2).
    fn patience(&self) -> Duration {
        let Some((mean, variation)) = self.round_trip else { return FLOOR };
        Duration::from_secs_f64(mean + 4.0 * variation).clamp(FLOOR, CEILING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// Runs `life` from `from` to `to` (ms) with frames leaving all the time; `reply` says after
    /// how many ms a probe sent at a time is answered. Returns when the state changed, and to what.
    fn run(
        life: &mut Life,
        (from, to): (u64, u64),
        mut reply: impl FnMut(u64) -> Option<u64>,
    ) -> Vec<(u64, Splits)> {
        let (mut changes, mut replies, mut number) = (Vec::new(), Vec::new(), 0);
        for ms in from..to {
            let before = life.splits();
            replies.retain(|(when, sequence)| {
                if *when == ms {
                    assert!(life.replied(*sequence, 7, at(ms)));
                }
                *when > ms
            });
            if ms % 500 == 0 {
                life.used(at(ms));
            }
            if life.deadline() <= at(ms) && life.is_due(at(ms)) {
                number += 1;
                life.probed(number, 7, at(ms));
                replies.extend(reply(ms).map(|after| (ms + after.max(1), number)));
            }
            if life.splits() != before {
                changes.push((ms, life.splits()));
            }
        }
        changes
    }

    #[test]
    fn frames_are_shared_from_the_first_reply_on_and_not_before() {
        let mut life = Life::new(Faith::Named, at(0));
        assert_eq!(life.splits(), Splits::Unknown);
        assert_eq!(run(&mut life, (0, 3000), |_| Some(3)), [(3, Splits::Yes)]);
    }

    #[test]
    fn silence_ends_it_within_a_second_and_the_first_reply_brings_it_back_within_two() {
        for falls_silent in 3000..3600 {
            let mut life = Life::new(Faith::Named, at(0));
            let back = falls_silent + 5000;
            let changes = run(&mut life, (0, back + 3000), |ms| {
                (ms < falls_silent || ms >= back).then_some(3)
            });
            let [_, (ended, Splits::No), (again, Splits::Yes)] = changes[..] else {
                panic!("{changes:?}")
            };
            assert!((falls_silent..=falls_silent + 1001).contains(&ended), "{ended}");
            assert!((back..=back + 2000).contains(&again), "{again}");
        }
    }

    /// The same with frames that come from it, too, up to `last` (ms). Returns the probes' times.
    fn run_heard(life: &mut Life, (from, to): (u64, u64), last: u64) -> Vec<u64> {
        let mut probes = Vec::new();
        for ms in from..to {
            if ms % 500 == 0 {
                life.used(at(ms));
            }
            if life.deadline() <= at(ms) {
                life.heard(at(ms.min(last)));
            }
            if life.deadline() <= at(ms) && life.is_due(at(ms)) {
                let number = ms as u16;
                life.probed(number, 7, at(ms));
                probes.push(ms);
                if ms <= last {
                    assert!(life.replied(number, 7, at(ms)));
                }
            }
        }
        probes
    }

    #[test]
    fn who_sends_frames_is_asked_every_five_seconds_and_silence_still_shows_within_a_second() {
        for falls_silent in 20_000..20_600 {
            let mut life = Life::new(Faith::Any, at(0));
            let probes = run_heard(&mut life, (0, falls_silent), falls_silent);
            assert!((4..=6).contains(&probes.len()), "{probes:?}");
            run_heard(&mut life, (falls_silent, falls_silent + 1001), falls_silent);
            assert_eq!(life.splits(), Splits::No, "{falls_silent}");
        }
    }

    #[test]
    fn forged_frames_hide_a_host_that_fell_silent_for_six_seconds_at_most() {
        for falls_silent in 20_000..25_000 {
            let mut life = Life::new(Faith::Any, at(0));
            run_heard(&mut life, (0, falls_silent), falls_silent);
            let mut ended = falls_silent;
            while life.splits() == Splits::Yes {
                life.heard(at(ended));
                if life.is_due(at(ended)) {
                    life.probed(1, 1, at(ended));
                }
                ended += 1;
            }
            assert!(ended <= falls_silent + 6000, "{falls_silent}: {ended}");
        }
    }

    #[test]
    fn frames_of_a_host_that_never_replied_bring_nothing() {
        let mut life = Life::new(Faith::Any, at(0));
        for ms in 0..60_000 {
            life.heard(at(ms));
            if life.is_due(at(ms)) {
                life.probed(1, 1, at(ms));
            }
            assert_ne!(life.splits(), Splits::Yes);
        }
        assert!(life.sent() >= 6, "{}", life.sent());
    }

    #[test]
    fn probes_lost_as_a_queue_fills_up_end_it_for_a_second_or_two() {
        let mut dice = 1_u64;
        let mut returns: Vec<_> = (0..100)
            .map(|_| {
                // Nobody named this neighbour. Calls fill its queue, so two probes are lost, and
                // of those that leave while packets pass as they are, two in five.
                let mut life = Life::new(Faith::Any, at(0));
                run(&mut life, (0, 3000), |_| Some(3));
                let changes = run(&mut life, (3000, 33_000), |ms| {
                    dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (ms > 3700 && (dice >> 33) % 5 > 1).then_some(224)
                });
                let [(ended, Splits::No), (again, Splits::Yes), ..] = changes[..] else {
                    panic!("{changes:?}")
                };
                again - ended
            })
            .collect();
        returns.sort_unstable();
        assert!(returns[50] <= 600 && returns[99] <= 3000, "{returns:?}");
    }

    #[test]
    fn who_did_split_and_has_gone_is_asked_ever_less_often_in_the_end() {
        let mut life = Life::new(Faith::Any, at(0));
        run(&mut life, (0, 3000), |_| Some(3));
        let before = life.sent();
        run(&mut life, (3000, 123_000), |_| None);
        assert!((30..=50).contains(&(life.sent() - before)), "{}", life.sent() - before);
    }

    #[test]
    fn an_error_ends_it_at_once_and_a_forged_one_for_a_round_trip() {
        let mut life = Life::new(Faith::Named, at(0));
        run(&mut life, (0, 2100), |_| Some(3));
        life.refused(at(2100));
        assert_eq!(life.splits(), Splits::No);
        let changes = run(&mut life, (2100, 3000), |_| Some(3));
        let [(again, Splits::Yes)] = changes[..] else { panic!("{changes:?}") };
        assert!(again <= 2100 + 60, "{again}");
    }

    #[test]
    fn many_errors_for_one_probe_do_not_bring_more_probes() {
        let mut life = Life::new(Faith::Any, at(0));
        for ms in 0..60_000 {
            if life.is_due(at(ms)) {
                life.probed(1, 1, at(ms));
            }
            life.refused(at(ms));
        }
        // 0, 1, 3, 7, 15, 25, 35, 45, 55 s and the like.
        assert!((6..=10).contains(&life.sent()), "{}", life.sent());
    }

    #[test]
    fn replies_that_take_long_are_learnt_and_do_not_end_it_for_good() {
        for round_trip in [320, 800, 2000] {
            let mut life = Life::new(Faith::Named, at(0));
            run(&mut life, (0, 10_000), |_| Some(round_trip));
            assert_eq!(run(&mut life, (10_000, 60_000), |_| Some(round_trip)), [], "{round_trip}");
            assert_eq!(life.splits(), Splits::Yes);
        }
    }

    #[test]
    fn a_lossy_path_needs_more_misses_than_a_good_one() {
        let mut life = Life::new(Faith::Named, at(0));
        let mut dice = 1_u64;
        let changes = run(&mut life, (0, 600_000), |_| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // One in five is lost.
            (dice >> 33).is_multiple_of(5).then_some(()).map_or(Some(3), |()| None)
        });
        let ended = changes.iter().filter(|(_, splits)| *splits == Splits::No).count();
        assert!(ended <= 6, "{ended} false alarms in 10 minutes");
    }

    #[test]
    fn a_neighbour_that_never_answers_is_asked_ever_less_often() {
        let mut life = Life::new(Faith::Any, at(0));
        run(&mut life, (0, 120_000), |_| None);
        assert!((12..=20).contains(&life.sent()), "{}", life.sent());
        let mut named = Life::new(Faith::Named, at(0));
        run(&mut named, (0, 20_000), |_| None);
        assert!(named.sent() >= 15, "{}", named.sent());
    }

    #[test]
    fn who_probes_us_is_probed_at_once_unless_known() {
        let mut life = Life::new(Faith::Any, at(0));
        run(&mut life, (0, 30_000), |_| None);
        life.stirred(at(30_000));
        let changes = run(&mut life, (30_000, 31_000), |_| Some(3));
        let [(again, Splits::Yes)] = changes[..] else { panic!("{changes:?}") };
        assert!(again <= 30_300, "{again}");
        let due = life.deadline();
        life.stirred(at(31_000));
        assert_eq!(life.deadline(), due);
    }

    #[test]
    fn a_reply_with_the_wrong_cookie_proves_nothing() {
        let mut life = Life::new(Faith::Named, at(0));
        assert!(life.is_due(at(0)));
        life.probed(1, 77, at(0));
        assert!(!life.replied(1, 78, at(1)) && !life.replied(2, 77, at(1)));
        assert_eq!(life.splits(), Splits::Unknown);
        assert!(life.replied(1, 77, at(2)));
        assert_eq!(life.splits(), Splits::Yes);
    }

    #[test]
    fn who_is_trusted_is_never_probed_and_rests_after_an_error() {
        let mut life = Life::new(Faith::Trusted, at(0));
        assert_eq!((life.splits(), life.deadline()), (Splits::Yes, Instant::MAX));
        life.refused(at(1000));
        assert_eq!(life.splits(), Splits::No);
        assert!(!life.is_due(at(10_000)));
        assert_eq!(life.splits(), Splits::No);
        assert!(!life.is_due(at(11_000)));
        assert_eq!((life.splits(), life.sent()), (Splits::Yes, 0));
    }
}
