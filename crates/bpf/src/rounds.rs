//! Looks for probes that this process takes unasked, where it takes long to come when asked.
//!
//! Packets that leave in place cannot be tracked, so only probes show that the device got busy
//! ([`crate::lane`]). A probe waits until this process looks. Where a processor has no interrupt
//! for itself, a question is heard only at the kernel's next tick, up to 10 ms later: probes are
//! too dear to be frequent, and meanwhile packets that leave in place fill the device's queues
//! unseen. A timer is not late there. So while packets leave in place, this process looks at set
//! times, its rounds, and only packets that come shortly before one are probes.

use sheaf_stage::{Duration, Instant};

/// The longest that a probe waits for its round: a millisecond, as long as a slow radio takes for
/// a small frame. A process that comes sooner when asked needs no rounds.
const WINDOW: Duration = Duration::from_millis(1);
/// Between rounds, as a multiple of the time that a probe may wait: of packets that come evenly one
/// in so many waits at most, or fewer ([`Rule::between`](crate::merge::Rule)).
const SHARE: u32 = 64;
/// A gate without a packet for so long needs no round: the first packets after it ask, or the next
/// look for another reason begins again. As `NEAR` in `maps.h`.
pub(crate) const SILENCE: Duration = Duration::from_millis(64);

/// When the next look for probes is.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    next: Option<Instant>,
}

impl Rounds {
    /// Plans the round after `now`, where this process takes `reaction` to come when asked. `used`
    /// says that packets have left a moment ago.
    pub fn plan(&mut self, used: bool, reaction: Duration, now: Instant) {
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        // Where timers are as coarse as the kernel's tick, a probe waits for that, too.
        let late = self.next.map_or(Duration::ZERO, |next| now - next);
        let needed = used && reaction > WINDOW;
        self.next = needed.then(|| now + (WINDOW + late) * SHARE);
    }

    /// The next round.
    pub fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Whether a look at `now` is a round: a question before it has not called this process.
    pub fn is_due(&self, now: Instant) -> bool {
        self.next.is_some_and(|next| now >= next)
    }

    /// From when on packets are probes that wait for the next round.
    pub fn probe_at(&self) -> Instant {
        self.next.map_or(Instant::MAX, |next| next - WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Duration = Duration::from_millis(10);
    const START: Instant = Instant::from_millis(5);

    #[test]
    fn where_questions_are_heard_late_one_packet_in_64_is_a_probe_and_waits_a_millisecond() {
        let mut rounds = Rounds::default();
        rounds.plan(true, SLOW, START);
        for round in 1..4 {
            let at = START + Duration::from_millis(64) * round;
            assert_eq!((rounds.next(), rounds.probe_at()), (Some(at), at - WINDOW));
            assert!(!rounds.is_due(at - WINDOW) && rounds.is_due(at));
            rounds.plan(true, SLOW, at - WINDOW);
            assert_eq!(rounds.next(), Some(at), "a look before the round changes nothing");
            rounds.plan(true, SLOW, at);
        }
    }

    #[test]
    fn who_comes_at_once_when_asked_or_has_nothing_to_send_goes_no_rounds() {
        let mut rounds = Rounds::default();
        rounds.plan(true, WINDOW, START);
        assert_eq!((rounds.next(), rounds.probe_at()), (None, Instant::MAX));
        rounds.plan(true, SLOW, START);
        rounds.plan(false, SLOW, START + SILENCE);
        assert_eq!((rounds.next(), rounds.probe_at()), (None, Instant::MAX));
    }

    #[test]
    fn where_timers_are_late_rounds_are_fewer() {
        let mut rounds = Rounds::default();
        rounds.plan(true, SLOW, START);
        let late = START + Duration::from_millis(64 + 9);
        rounds.plan(true, SLOW, late);
        assert_eq!(rounds.next(), Some(late + Duration::from_millis(10 * 64)));
    }
}
