//! Growth of the receive window as Linux has it: for the acknowledgements that it brings forth.
//!
//! A window here has its full size from the start, and Linux's stays ahead of a transfer. But Linux
//! acknowledges each segment that raises it at once, in slow start up to half of them. HyStart sees
//! its trains in these on slow links, which spread the acknowledgements of pairs too far.

use sheaf_stage::{Duration, Instant};

/// Window from which it grows, that of an answer to a SYN: the most full segments with time stamps
/// that fit without a scale.
const FIRST: u64 = 45 * 1448;
/// The buffer at the start (`net.ipv4.tcp_rmem`), and the share of it that is data, in 256ths: what
/// a full segment of Ethernet has of the memory that it takes (`scaling_ratio`).
const BUFFER: u64 = 131_072;
const DATA: u64 = 160;
/// Full segments that arrive in a round trip without raising the buffer (TCP_INIT_CWND).
const SPACE: u64 = 10;

/// Linux's receive window and buffer, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Growth {
    /// Where it is (`rcv_ssthresh`), where it may go now (`window_clamp`), and ever.
    window: u64,
    clamp: u64,
    most: u64,
    /// The most that arrived in a round trip (`rcvq_space`).
    space: u64,
    /// Beginning of this round trip, what had arrived then, and how long it takes.
    since: Instant,
    from: u64,
    trip: Option<Duration>,
    /// The time stamp that was echoed last.
    echo: Option<u32>,
}

impl Growth {
    /// A window of at most `most` bytes.
    pub fn new(most: u64) -> Growth {
        let clamp = most.min(BUFFER * DATA / 256);
        let window = FIRST.min(clamp);
        let (since, from) = (Instant::ZERO, 1);
        Growth { window, clamp, most, space: 0, since, from, trip: None, echo: None }
    }

    /// The connection is established.
    pub fn begin(&mut self, now: Instant) {
        self.since = now;
    }

    /// A full segment echoed the time stamp `echo`, `millis` after it was sent: as long as the peer
    /// takes to answer, queues included (tcp_rcv_rtt_update).
    pub fn note_echo(&mut self, echo: u32, millis: u32) {
        if self.echo.replace(echo) == Some(echo) || millis == 0 {
            return;
        }
        let trip = Duration::from_millis(millis.into());
        let longer = self.trip.filter(|old| *old <= trip);
        self.trip = Some(longer.map_or(trip, |old| old - old / 8 + trip / 8));
    }

    /// A segment of `len` bytes arrived, the largest so far had `full`. Returns whether it raises
    /// the window (Linux's tcp_grow_window).
    pub fn raise(&mut self, len: u64, full: u64) -> bool {
        let room = self.clamp.saturating_sub(self.window);
        // What is small takes more memory than its part of a window.
        if room == 0 || len < full {
            return false;
        }
        self.window += room.min(2 * len);
        true
    }

    /// The application took everything before `next` (tcp_rcv_space_adjust and tcp_rcvbuf_grow).
    pub fn taken(&mut self, next: u64, full: u64, now: Instant) {
        if self.trip.is_none_or(|trip| now - self.since < trip) {
            return;
        }
        let (taken, space) = (next - self.from, self.space.max(SPACE * full));
        (self.from, self.since) = (next, now);
        if taken <= space {
            return;
        }
        self.space = taken;
        // This round trip is over: the next one brings twice as much, and more in slow start. Below
        // a millisecond Linux makes less of it, of which time stamps do not tell.
        let next = 2 * taken;
        let more = u128::from(2 * next) * u128::from(taken - space) / u128::from(space.max(1));
        let wanted = next.saturating_add(u64::try_from(more).unwrap_or(u64::MAX));
        self.clamp = self.clamp.max(wanted.min(self.most));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SEGMENT: u64 = 1448;

    #[test]
    fn a_window_grows_with_full_segments_and_by_what_a_round_trip_brings() {
        let mut growth = Growth::new(6 << 20);
        growth.note_echo(1, 20);
        let raised =
            |growth: &mut Growth| (0..200).filter(|_| growth.raise(SEGMENT, SEGMENT)).count();
        // 16,760 bytes by 2,896 each.
        assert_eq!(raised(&mut growth), 6);
        assert!(!growth.raise(100, SEGMENT), "small segments do not");
        growth.taken(1 + 10 * SEGMENT, SEGMENT, Instant::ZERO + 20 * MS);
        assert_eq!(raised(&mut growth), 0, "ten segments a round trip are as expected");
        growth.taken(1 + 20 * SEGMENT, SEGMENT, Instant::ZERO + 30 * MS);
        assert_eq!(raised(&mut growth), 0, "the round trip is not over");
        growth.taken(1 + 30 * SEGMENT, SEGMENT, Instant::ZERO + 40 * MS);
        // 20 segments where 10 were expected: 40, and twice as much again.
        assert_eq!(growth.clamp, 120 * SEGMENT);
        assert_eq!(raised(&mut growth), 32);
    }

    #[test]
    fn its_round_trip_follows_longer_ones_slowly_and_shorter_ones_at_once() {
        let mut growth = Growth::new(6 << 20);
        for (echo, millis, trip) in [(1, 20, 20), (1, 90, 20), (2, 60, 25), (3, 0, 25), (4, 10, 10)]
        {
            growth.note_echo(echo, millis);
            assert_eq!(growth.trip, Some(MS * trip), "{echo}");
        }
    }

    #[test]
    fn a_window_does_not_grow_beyond_its_most() {
        let mut growth = Growth::new(100_000);
        growth.note_echo(1, 1);
        growth.taken(u64::from(u32::MAX), SEGMENT, Instant::ZERO + MS);
        assert_eq!(growth.clamp, 100_000);
        let mut small = Growth::new(2_048);
        assert!(!small.raise(SEGMENT, SEGMENT));
    }
}
