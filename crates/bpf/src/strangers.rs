//! Whether others than Sheaf have so much in a device's fair queues that sparse flows are better
//! off alone.
//!
//! Beside a download a fair queue serves a packet of a sparse flow next, but a frame of several in
//! its turn. So sparse flows do not share frames there, unless together they are what fills the
//! link: then alone they would not fit.

use sheaf_stage::{Duration, Instant};

/// Bytes and packets are counted over this time: longer than a download of one flow is silent
/// between two super-packets at 2 Mbit/s (64 KiB).
pub(crate) const WINDOW: Duration = Duration::from_millis(250);
/// So many bytes of others in a window count: ten full frames, 0.5 Mbit/s.
const MANY: u32 = 15_000;
/// For each packet of ours others must have so many bytes. A full frame takes a radio at 2 Mbit/s
/// as long as seven small ones, so below this our packets take four fifths of the air.
const SHARE: u32 = 54;
/// The same while packets share frames, which leaves more to others.
const SHARE_GATHERED: u32 = 160;

/// Traffic of others on a device.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    /// Beginning of the window, and what had passed by then: bytes of others, packets of ours.
    since: Instant,
    start: (u32, u64),
    many: bool,
}

impl Strangers {
    /// Whether the window is over at `now`.
    pub fn is_due(&self, now: Instant) -> bool {
        now.saturating_since(self.since) >= WINDOW
    }

    /// The window is over at `now`: by then `bytes` of others have passed, modulo 2^32, and
    /// `packets` of ours.
    pub fn note(&mut self, bytes: u32, packets: u64, now: Instant) {
        // After a longer silence nobody knows when in it they passed.
        let known = now.saturating_since(self.since) < WINDOW * 2;
        let theirs = bytes.wrapping_sub(self.start.0);
        let ours = packets.saturating_sub(self.start.1);
        let share = if self.many { SHARE } else { SHARE_GATHERED };
        self.many = known && theirs >= MANY && u64::from(theirs) >= ours * u64::from(share);
        (self.since, self.start) = (now, (bytes, packets));
    }

    /// Whether their frames are in front of ours, and ours are few beside them.
    pub fn are_many(&self) -> bool {
        self.many
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether they are many after each of `windows`: bytes of others and packets of ours.
    fn many(windows: &[(u32, u64)]) -> Vec<bool> {
        let mut strangers = Strangers::default();
        let (mut bytes, mut packets, mut now) = (u32::MAX - 20_000, 0, Instant::ZERO + WINDOW * 4);
        strangers.note(bytes, packets, now);
        let after = |(theirs, ours): &(u32, u64)| {
            (bytes, packets, now) = (bytes.wrapping_add(*theirs), packets + ours, now + WINDOW);
            strangers.note(bytes, packets, now);
            strangers.are_many()
        };
        windows.iter().map(after).collect()
    }

    #[test]
    fn a_download_counts_while_it_lasts_and_single_frames_never() {
        assert_eq!(many(&[(1500, 1), (60_000, 100), (0, 100)]), [false, true, false]);
    }

    #[test]
    fn a_download_that_our_packets_leave_next_to_nothing_of_a_link_does_not_count() {
        // 15 calls beside a download at 2 Mbit/s go alone; 30, which would not fit, share frames.
        assert_eq!(many(&[(35_000, 188), (15_500, 188)]), [true, true]);
        assert_eq!(many(&[(37_000, 375), (37_000, 375)]), [false, false]);
    }

    #[test]
    fn what_passed_in_a_long_silence_does_not_count() {
        let mut strangers = Strangers::default();
        strangers.note(0, 0, Instant::ZERO + WINDOW);
        strangers.note(1 << 20, 0, Instant::ZERO + WINDOW * 5);
        assert!(!strangers.are_many());
    }
}
