//! The rest: bulk data that windows do not govern, held to a fair share by marks and drops.
//!
//! Principle: QUIC, other UDP and TCP that began unseen have no window that could be lowered, but
//! most of them slow down by a mark or a loss. Nothing waits here that could be marked: what comes
//! in has passed the bottleneck, and what leaves meets it later. So each flow has a *virtual* queue
//! (Kunniyur and Srikant, "An Adaptive Virtual Queue Algorithm", 2001) that drains at its max-min
//! share, and CoDel (RFC 8289) decides by the wait in it. Who stays below the share has no queue
//! there and is never touched, so a call, a game or a DNS request needs no rule of its own.
//! CoDel and not PIE: it needs no random numbers, so that the program and this model decide alike.
//!
//! Whole numbers alone, because the eBPF program has nothing else (`window/rest.h`).

use crate::cost;
use crate::key::Key;
use sheaf_stage::{Duration, Instant};

/// The treatment of the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// Leave it alone; TCP gets what it does not use.
    #[default]
    Leave,
    /// Mark packets that understand it (RFC 3168) of flows above their share.
    Mark,
    /// The same, and drop packets that do not.
    Police,
}

impl Policy {
    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Leave => "leave",
            Policy::Mark => "mark",
            Policy::Police => "police",
        }
    }
}

/// Rate below which a flow is sparse and never touched, however small its share; bit/s. A quarter
/// of the capacity where that is less.
pub const SPARSE: f64 = 500_000.0;
/// Part of its share at which the virtual queue of a flow drains: what is left lets the real queue
/// run empty.
pub const DRAIN: f64 = 0.98;
/// Part of the capacity up to which voice is never touched, as in the voice tin of CAKE (Høiland-
/// Jørgensen et al., "Piece of CAKE", 2018).
pub const VOICE: f64 = 0.25;

/// Wait in the virtual queue that may stand (RFC 8289, 4.3); at least the time of a full frame.
pub const TARGET: Duration = Duration::from_millis(5);
/// Time for which it may be longer (RFC 8289, 4.2): a round trip of most paths.
pub const INTERVAL: Duration = Duration::from_millis(100);
/// Longest wait in the virtual queue. It remembers no more; who polices drops what is beyond it, as
/// a sender that is not slowed down by single losses would fill the real queue.
pub const LIMIT: Duration = Duration::from_millis(200);
/// Intervals within which a new spell of signals goes on at the pace of the last one (RFC 8289,
/// 5.6).
const SOON: u64 = 16;
/// Bytes of a full frame.
const FULL_FRAME: u32 = 1514;

/// A flow of the rest: windows of TCP are known by the ends alone, here the protocol counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RestKey {
    /// Both ends.
    pub ends: Key,
    /// Protocol of the packets (IANA).
    pub protocol: u8,
}

/// Treatment of the rest of one direction by the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestSetting {
    /// [Time of a byte](crate::cost::of) at the share; 0: leave the rest alone.
    pub cost: u32,
    /// Whether packets are dropped that cannot be marked.
    pub drops: bool,
    /// Whether packets of class EF or CS6 pass untouched.
    pub voice: bool,
}

/// The outcome for a packet of the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on as it came.
    Pass,
    /// It is to be marked: congestion experienced.
    Mark,
    /// It is to be dropped.
    Drop,
}

/// One direction of a flow of the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    /// Bytes on the wire, without those that were dropped on their way out.
    pub wire: u64,
    /// Packets that can carry a mark.
    pub capable: u32,
    /// Time at which the virtual queue is empty.
    pub due: Instant,
    /// Time from which on its wait has been too long for an interval; zero while it is not.
    pub above: Instant,
    /// Time of the next signal of this spell.
    pub next: Instant,
    /// Signals of this spell, from which the pace of the next one follows.
    pub count: u32,
    /// The same at its beginning.
    pub first: u32,
    /// 1 / √count in parts of 2⁻¹⁶.
    pub inverse: u16,
    /// Whether a spell of signals is under way.
    pub signals: bool,
}

impl Rest {
    /// Decides about a packet of `wire` bytes with these ECN bits that passes at `now`.
    pub fn pass(&mut self, wire: u32, ecn: u8, setting: RestSetting, now: Instant) -> Verdict {
        self.capable = self.capable.wrapping_add(u32::from(ecn != 0));
        if ecn == 0 && !setting.drops {
            return Verdict::Pass;
        }
        let start = self.due.max(now);
        let wait = start - now;
        if wait > LIMIT && setting.drops {
            return Verdict::Drop;
        }
        let signal = self.is_signal(wait, setting.cost, now);
        if signal && ecn == 0 {
            return Verdict::Drop;
        }
        self.due = start + cost::time(wire, setting.cost);
        if !setting.drops {
            self.due = self.due.min(now + LIMIT);
        }
        // Who is marked already has its signal.
        if signal && ecn != 3 { Verdict::Mark } else { Verdict::Pass }
    }

    /// CoDel's decision about a packet that would wait for `wait` (RFC 8289, 5.3 to 5.6; one signal
    /// a packet).
    fn is_signal(&mut self, wait: Duration, cost: u32, now: Instant) -> bool {
        let frame = cost::time(FULL_FRAME, cost);
        if wait <= TARGET.max(frame) {
            (self.above, self.signals) = (Instant::ZERO, false);
            return false;
        }
        if self.above == Instant::ZERO {
            self.above = now + INTERVAL;
            return false;
        }
        if now < self.above || self.signals && now < self.next {
            return false;
        }
        if self.signals {
            self.count = self.count.saturating_add(1);
        } else {
            self.signals = true;
            let before = self.count.saturating_sub(self.first);
            let soon = now < self.next + INTERVAL * SOON as u32;
            self.count = if soon && before > 1 { before } else { 1 };
            self.first = self.count;
            self.next = now;
        }
        self.step_inverse();
        let pace = (INTERVAL.as_nanos() as u64 * u64::from(self.inverse)) >> 16;
        self.next += Duration::from_nanos(pace);
        true
    }

    /// One step of Newton's method towards 1 / √count, as Linux's CoDel has it.
    fn step_inverse(&mut self) {
        if self.count == 1 {
            self.inverse = u16::MAX;
            return;
        }
        let inverse = u64::from(self.inverse) << 16;
        let square = (inverse * inverse) >> 32;
        // (3 - count · inverse²) / 2, a quarter of it first so that nothing overflows.
        let quarter = (3u64 << 32).saturating_sub(u64::from(self.count) * square) >> 2;
        self.inverse = ((quarter * inverse) >> (32 - 2 + 1 + 16)) as u16;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 Mbit/s: a packet of 1250 bytes takes 10 ms.
    fn setting(drops: bool) -> RestSetting {
        RestSetting { cost: cost::of(1e6), drops, voice: true }
    }

    const PACKET: u32 = 1250;

    /// The verdicts on packets with these ECN bits that come every `gap` ms for 2 s.
    fn verdicts(gap: f64, ecn: u8, drops: bool) -> Vec<(Instant, Verdict)> {
        let mut flow = Rest::default();
        let at = |number: u32| Instant::from_nanos((1e9 + f64::from(number) * gap * 1e6) as u64);
        (0..(2000.0 / gap) as u32)
            .map(|number| (at(number), flow.pass(PACKET, ecn, setting(drops), at(number))))
            .collect()
    }

    fn count(verdicts: &[(Instant, Verdict)], what: Verdict) -> usize {
        verdicts.iter().filter(|(_, verdict)| *verdict == what).count()
    }

    #[test]
    fn a_flow_at_its_share_is_never_touched_and_a_burst_of_an_interval_neither() {
        assert_eq!(count(&verdicts(10.0, 0, true), Verdict::Pass), 200);
        let mut flow = Rest::default();
        let now = Instant::from_millis(1000);
        // 15 packets at once stand for 150 ms, and for less than an interval above the target.
        let burst = (0..15).map(|_| flow.pass(PACKET, 0, setting(true), now));
        assert!(burst.into_iter().all(|verdict| verdict == Verdict::Pass));
    }

    #[test]
    fn who_has_more_is_marked_where_it_understands_and_dropped_only_where_that_is_asked_for() {
        let marked = verdicts(8.0, 2, false);
        assert!(count(&marked, Verdict::Mark) > 5);
        assert_eq!(count(&marked, Verdict::Drop), 0);
        let deaf = verdicts(8.0, 0, false);
        assert_eq!(count(&deaf, Verdict::Pass), deaf.len(), "it is left alone");
        let policed = verdicts(8.0, 0, true);
        assert!(count(&policed, Verdict::Drop) > 5);
        assert_eq!(count(&policed, Verdict::Mark), 0);
        // Who is marked already has its signal.
        assert_eq!(count(&verdicts(8.0, 3, false), Verdict::Mark), 0);
    }

    #[test]
    fn signals_come_faster_by_the_square_root_of_their_number() {
        let marks: Vec<_> = verdicts(8.0, 2, false)
            .into_iter()
            .filter(|(_, verdict)| *verdict == Verdict::Mark)
            .map(|(at, _)| at.as_secs_f64() * 1e3)
            .collect();
        assert!(marks.len() > 10, "{marks:?}");
        // One step of Newton's method from 1 leads to 0.5 where 1 / √2 is right.
        for (number, pair) in (1..).zip(marks.windows(2)).filter(|(number, _)| *number != 2) {
            let (gap, law) = (pair[1] - pair[0], 100.0 / f64::from(number).sqrt());
            // Packets come every 8 ms, and the next signal does not wait for a late one.
            assert!((gap - law).abs() <= 10.0, "{number}: {gap} ms, by the law {law}");
        }
    }

    #[test]
    fn a_sender_that_is_not_slowed_down_gets_its_share_and_no_more() {
        for ecn in 0..4 {
            // Five times the share.
            let all = verdicts(2.0, ecn, true);
            let late = &all[500..];
            let passed = late.len() - count(late, Verdict::Drop);
            assert!((90..=110).contains(&passed), "{passed} of the 100 packets of a second");
        }
    }
}
