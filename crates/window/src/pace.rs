//! The clock of uploads: their windows open no faster than the link carries what they let go.
//!
//! Principle: while a download runs, the acknowledgements of an upload wait in its queue and come
//! here in clumps. Each clump lets a burst of the upload go, the acknowledgements of the download
//! wait behind that, and let a burst of the download go in turn (Zhang, Shenker and Clark,
//! "Observations on the Dynamics of a Congestion Control Algorithm: The Effects of Two-Way
//! Traffic", 1991). Both queues stand for a round trip, and both links idle for as long. So the
//! right edges of all uploads together advance at the rate of the link. What an acknowledgement
//! must not give any more is *withheld*: a copy of it comes back a little later and gives that, as
//! nothing else would come meanwhile.
//!
//! Acknowledgements of downloads are in clumps only behind this place, so nothing is won there.
//!
//! Whole numbers alone, because the eBPF program has nothing else (`window/pace.h`).

use crate::cost;
use sheaf_stage::{Duration, Instant};

/// Time after which a copy of an acknowledgement comes back: as much as three full packets take at
/// 12 Mbit/s, and few enough wake-ups for a router.
pub const COPY: Duration = Duration::from_millis(3);
/// Segments that an upload may send back to back after a pause: receivers acknowledge every second
/// one (RFC 9293 3.8.6.3).
const BURST: u32 = 2;
/// Longest wait of a segment: a step of the controller. Each flow keeps one segment under way
/// whatever the clock says, and those of many flows must not hold back others for long.
const AHEAD: Duration = Duration::from_millis(100);

/// The clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    /// [Time of a byte](cost::of); 0 while windows open as acknowledgements come.
    pub cost: u32,
    /// Time at which the link has carried everything that was let go.
    due: Instant,
}

impl Pace {
    /// Bytes that may be let go at `now`, of segments of `mss` bytes.
    pub fn credit(&mut self, mss: u32, now: Instant) -> u32 {
        let burst = cost::time(BURST * mss, self.cost);
        let earliest = now.as_nanos().saturating_sub(burst.as_nanos() as u64);
        self.due = self.due.clamp(Instant::from_nanos(earliest), now + AHEAD);
        cost::bytes(now.saturating_since(self.due), self.cost)
    }

    /// So many bytes were let go.
    pub fn take(&mut self, bytes: u32) {
        self.due += cost::time(bytes, self.cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 4 Mbit/s: a segment of 1000 bytes takes 2 ms.
    fn clock() -> Pace {
        Pace { cost: cost::of(4e6), ..Pace::default() }
    }

    #[test]
    fn two_segments_go_at_once_after_a_pause_and_others_at_the_rate_of_the_link() {
        let (mut pace, start) = (clock(), Instant::from_millis(1000));
        assert_eq!(pace.credit(1000, start), 2000);
        pace.take(2000);
        let credits = [0, 1, 2, 3].map(|ms| pace.credit(1000, start + Duration::from_millis(ms)));
        assert_eq!(credits, [0, 500, 1000, 1500]);
        pace.take(1500);
        assert_eq!(pace.credit(1000, start + Duration::from_millis(5)), 1000);
        assert_eq!(pace.credit(1000, start + Duration::from_secs(9)), 2000, "no more is saved up");
    }

    #[test]
    fn what_was_let_go_ahead_of_time_is_waited_for() {
        let (mut pace, start) = (clock(), Instant::from_millis(1000));
        pace.credit(1000, start);
        pace.take(5000);
        assert_eq!(pace.credit(1000, start + Duration::from_millis(6)), 0);
        assert_eq!(pace.credit(1000, start + Duration::from_millis(7)), 500);
        pace.take(5_000_000);
        assert_eq!(pace.credit(1000, start + Duration::from_millis(8)), 0);
        assert_eq!(pace.credit(1000, start + Duration::from_millis(109)), 500, "not for long");
    }

    #[test]
    fn the_slowest_link_lets_two_segments_go() {
        let mut slowest = Pace { cost: u32::MAX, ..Pace::default() };
        assert_eq!(slowest.credit(u32::from(u16::MAX), Instant::from_millis(1 << 40)), 131_069);
    }
}
