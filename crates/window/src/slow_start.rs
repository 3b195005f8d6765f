//! The growth of windows: limited slow start (RFC 3742), for all flows of a link together.
//!
//! Principle: a sender in slow start sends two segments for each that is acknowledged (RFC 5681
//! 3.1), twice the rate of the link. So what its window grows by within a round trip stands in the
//! queue at the end of it: half of its share, where it is given that at once. So all flows that
//! grow may grow together in a round trip by what the link carries in [`QUEUE`], and flows that
//! begin have as much.
//!
//! While the capacity is searched for, flows begin as on a link of the first assumption. From what
//! has been seen to arrive on, windows grow by a part of what they carry of that. They stay what
//! they are while packets wait, as senders with HyStart++ leave slow start (RFC 9406): each window
//! after a round trip of its flow that shows it, and all of them while most of the data waits.

use crate::flow::Rtt;
use crate::key::Direction;
use crate::segment::FULL_SEGMENT;
use sheaf_stage::Duration;

/// Queue that growth may make, seconds. With the pairs that delayed acknowledgements let go it is
/// about 15 ms, which a call does not notice.
const QUEUE: f64 = 13e-3;
/// The same while nothing is known, as it is seen a round trip and a step of the controller later;
/// and as a part of the round-trip time, or a long path would be held back for seconds.
const UNKNOWN_QUEUE: f64 = 8e-3;
const UNKNOWN_PART: f64 = 0.1;
/// Part of the estimate that must arrive before windows grow carefully.
const SHOWN: f64 = 0.9;
/// Bytes that they grow by then at least: two segments, for which there is one acknowledgement.
const LEAST: u32 = 2 * FULL_SEGMENT;
/// Bytes of all flows that begin while nothing is known: the segments of RFC 6928 for downloads.
/// For uploads, which have the slower link in most homes, those of RFC 3390, as ten take 30 ms at 4
/// Mbit/s.
const FIRST: [u32; 2] = [10 * FULL_SEGMENT, 4 * FULL_SEGMENT];
/// Bytes by which windows grow before that has arrived: as much for downloads, so that pages take
/// no longer; for uploads what 4 Mbit/s carry in [`UNKNOWN_QUEUE`].
const BEFORE_SHOWN: [u32; 2] = [10 * FULL_SEGMENT, 4_000];
/// Wait that ends growth while nothing is known, as a part of the round-trip time, and its bounds
/// (RFC 9406 4.3: MIN_RTT_DIVISOR, MIN_RTT_THRESH, MAX_RTT_THRESH).
const DIVISOR: u32 = 8;
const SHORTEST_WAIT: Duration = Duration::from_millis(4);
const LONGEST_WAIT: Duration = Duration::from_millis(16);
/// The same of a single flow, which is judged by one round trip: a little sooner, as only that
/// window stays what it is, and only until the next round trip.
const DIVISOR_OF_ONE: u32 = 10;
/// A growth of nothing; 0 would be any.
pub(crate) const NONE: u32 = 1;

/// The growth of windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// Most bytes by which a window grows in a round trip, as in limited slow start (RFC 3742); 0
    /// for any.
    pub bytes: u32,
    /// Wait in the latest round trip beyond the interface from which on it does not grow, µs; 0
    /// for any.
    pub wait: u32,
}

impl Growth {
    /// Bytes by which the window of a flow grows after the round trips `rtt`.
    pub(crate) fn after(self, rtt: &Rtt) -> u32 {
        match self.wait > 0 && self.bytes > 0 && rtt.waits(self.wait) {
            true => NONE,
            false => self.bytes,
        }
    }
}

/// Rates at which data arrives, bit/s on the wire.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrived {
    /// Of all traffic: the link has at least that.
    pub all: f64,
    /// Of the flows whose windows grow.
    pub governed: f64,
}

/// Bytes by which the windows of all flows may grow in a round trip, where `free` bit/s are for
/// them.
pub(crate) fn known(free: f64) -> u32 {
    (free / 8.0 * QUEUE) as u32
}

/// The same of data in `direction` while the capacity is searched for, and is at least `estimate`
/// bit/s: so much has `arrived`, in a round trip of `rtt` packets `wait`; and bytes for those that
/// begin. Growth is a part of what windows govern of that: where others have 12 of 20 Mbit/s, a kB
/// that is too much in the windows waits for 1 ms, as it leaves at 8 Mbit/s.
pub(crate) fn unknown(
    direction: Direction,
    arrived: Arrived,
    estimate: f64,
    rtt: Duration,
    wait: Duration,
) -> (u32, u32) {
    if wait > (rtt / DIVISOR).clamp(SHORTEST_WAIT, LONGEST_WAIT) {
        return (NONE, NONE);
    }
    let (least, first) = match arrived.all >= estimate * SHOWN {
        true => (LEAST, LEAST),
        false => (BEFORE_SHOWN[direction.index()], FIRST[direction.index()]),
    };
    let queue = (rtt.as_secs_f64() * UNKNOWN_PART).max(UNKNOWN_QUEUE);
    let growth = ((arrived.governed / 8.0 * queue) as u32).max(least);
    (growth, growth.max(first))
}

/// Wait in a round trip of `rtt` after which the window of a flow stays what it is, µs; 0 for any,
/// where most of what has `arrived` is of others, who make the queue.
pub(crate) fn longest_wait(arrived: Arrived, rtt: Duration) -> u32 {
    match arrived.governed >= arrived.all / 2.0 {
        true => (rtt / DIVISOR_OF_ONE).clamp(SHORTEST_WAIT, LONGEST_WAIT).as_micros() as u32,
        false => 0,
    }
}

/// The part of `growth` for each of so many flows that grow.
pub(crate) fn each(growth: u32, growing: usize) -> u32 {
    (growth / growing.max(1) as u32).max(NONE)
}

/// True where windows stay what they are.
pub(crate) fn is_none(growth: u32) -> bool {
    growth == NONE
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{In, Out};

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn alone(rate: f64) -> Arrived {
        Arrived { all: rate, governed: rate }
    }

    #[test]
    fn a_known_link_takes_a_few_milliseconds_of_growth() {
        assert_eq!(known(20e6), 32_500);
        assert_eq!(each(known(20e6), 5), 6_500);
        assert!(is_none(each(known(20e6), 40_000)), "never any");
    }

    #[test]
    fn an_unknown_link_takes_less_and_a_long_path_a_part_of_its_round_trip() {
        let grown = |rtt| unknown(In, alone(20e6), 20e6, MS(rtt), Duration::ZERO).0;
        assert_eq!(grown(20), 20_000);
        assert_eq!(grown(600), 150_000, "a satellite is not held back");
    }

    #[test]
    fn beside_traffic_that_no_window_governs_growth_is_a_part_of_what_windows_carry() {
        let grown =
            |all| unknown(In, Arrived { all, governed: 8e6 }, 10e6, MS(40), Duration::ZERO).0;
        assert_eq!([grown(20e6), grown(9e6)], [8_000; 2]);
        assert_eq!(grown(8e6), 14_600, "flows begin as ever");
    }

    #[test]
    fn flows_begin_as_ever_below_what_has_been_seen_to_arrive() {
        let grown = |way, delivered| unknown(way, alone(delivered), 10e6, MS(40), Duration::ZERO);
        assert_eq!(grown(In, 1e6), (14_600, 14_600));
        assert_eq!(grown(Out, 1e6), (4_000, 5_840), "4 Mbit/s is a usual uplink");
        assert_eq!(grown(In, 9e6), (9_000, 9_000));
    }

    #[test]
    fn nothing_grows_while_packets_wait() {
        let stays = |rtt, wait| is_none(unknown(In, alone(20e6), 10e6, MS(rtt), MS(wait)).0);
        assert!(stays(8, 5) && stays(40, 6) && stays(600, 17));
        assert!(!stays(8, 4) && !stays(40, 5) && !stays(600, 15));
    }

    #[test]
    fn a_window_does_not_grow_after_a_round_trip_of_its_flow_that_waited() {
        let wait = |rtt| longest_wait(alone(20e6), MS(rtt));
        assert_eq!([8, 60, 600].map(wait), [4_000, 6_000, 16_000]);
        let beside = Arrived { all: 20e6, governed: 8e6 };
        assert_eq!(longest_wait(beside, MS(60)), 0, "the queue is that of others");
        let mut rtt = Rtt::default();
        let now = sheaf_stage::Instant::from_millis(1);
        let growth = Growth { bytes: 9_000, wait: 4_000 };
        assert_eq!(growth.after(&rtt), 9_000, "nothing is known of its round trips");
        for (millis, grown) in [(20, 9_000), (24, 9_000), (25, NONE), (20, 9_000)] {
            rtt.sample(MS(millis).as_nanos() as u64, now);
            assert_eq!(growth.after(&rtt), grown, "{millis} ms");
        }
        rtt.sample(MS(90).as_nanos() as u64, now);
        assert_eq!(Growth { wait: 0, ..growth }.after(&rtt), 9_000, "the link is known");
        assert_eq!(Growth { bytes: 0, ..growth }.after(&rtt), 0, "any growth");
    }
}
