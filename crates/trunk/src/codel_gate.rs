//! A gate before the queues: drops single packets before the queues are full, so that TCP slows
//! down in time.
//!
//! Principle: CoDel ("Controlling Queue Delay", ACM Queue 2012; RFC 8289): when the shortest wait
//! of an interval is above the target, drop one packet; while that lasts, the next one after
//! interval / √count. A queue that drops only when it is full makes TCP lose many packets together,
//! and makes all others wait for as long as it lets them.
//!
//! Unlike CoDel it judges packets on arrival, not on departure: those that leave are numbered, and
//! the receiver would wait for a number that was dropped. The wait of a packet is known on arrival,
//! because the rates of the links are.

use sheaf_stage::{Duration, Instant};

/// The interval: longer than most round trips (RFC 8289, section 4.3).
const INTERVAL: Duration = Duration::from_millis(100);
/// Time after dropping ended in which it goes on where it was, as in Linux's CoDel (16 intervals
/// there, of packets that leave).
const RECENT: Duration = Duration::from_millis(800);
/// Drops by which it starts again below where it was.
const STEP_BACK: u32 = 2;

/// CoDel at the entrance of the queues.
#[derive(Clone, Debug, Default)]
pub(crate) struct CodelGate {
    /// Time at which the wait will have been above the target for an interval.
    above_until: Option<Instant>,
    /// Time of the next drop; `None` while nothing is dropped.
    next: Option<Instant>,
    count: u32,
    /// The count when dropping last ended.
    last_count: u32,
    ended: Instant,
}

impl CodelGate {
    /// Whether a packet that would wait for `wait` is dropped.
    pub fn drops(&mut self, wait: Duration, target: Duration, now: Instant) -> bool {
        if wait < target {
            self.above_until = None;
            if self.next.take().is_some() {
                self.last_count = self.count;
                self.ended = now;
            }
            return false;
        }
        match self.next {
            Some(next) if now < next => false,
            Some(next) => {
                self.count = self.count.saturating_add(1);
                self.next = Some(next + self.gap());
                true
            }
            None if now < *self.above_until.get_or_insert(now + INTERVAL) => false,
            None => {
                // Where dropping ended a short while ago, its rate was nearly right (RFC 8289,
                // section 5.4).
                let recent = now - self.ended < RECENT && self.last_count > STEP_BACK;
                self.count = if recent { self.last_count - STEP_BACK } else { 1 };
                self.next = Some(now + self.gap());
                true
            }
        }
    }

    fn gap(&self) -> Duration {
        INTERVAL.div_f64(f64::from(self.count.max(1)).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_millis(25);

    /// The milliseconds in which a packet is dropped, with one packet each millisecond that would
    /// wait for `wait` of the millisecond.
    fn dropped(wait: impl Fn(u64) -> u64, until: u64) -> Vec<u64> {
        let mut gate = CodelGate::default();
        let drops = |at: &u64| {
            let wait = Duration::from_millis(wait(*at));
            gate.drops(wait, TARGET, Instant::from_millis(*at))
        };
        (0..until).filter(drops).collect()
    }

    #[test]
    fn a_queue_that_stands_loses_one_packet_an_interval_and_then_more() {
        assert_eq!(dropped(|_| 30, 400), [100, 200, 271, 329, 379]);
    }

    #[test]
    fn a_burst_that_passes_loses_nothing() {
        assert!(dropped(|at| if at % 100 < 95 { 90 } else { 10 }, 1_000).is_empty());
        assert!(dropped(|_| 24, 1_000).is_empty());
    }

    #[test]
    fn dropping_that_begins_again_soon_begins_where_it_ended() {
        let again = dropped(|at| if (1_000..1_010).contains(&at) { 10 } else { 30 }, 1_300);
        let after: Vec<_> = again.iter().filter(|at| **at >= 1_010).collect();
        assert!(after.len() > 5, "{after:?}");
    }
}
