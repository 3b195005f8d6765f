//! A packet train: full frames in a row when a link comes up, to learn its rate from.
//!
//! Principle: the bottleneck of a link spreads a train so that its bytes over the time from its
//! first to its last frame are the rate (Dovrolis et al., see [`rate`](crate::rate)). The frames
//! are reports, padded; the other end replies to each at once with what it received, and when.
//!
//! The frames of a train leave together and are looked at in the order of their arrival, so their
//! delays grow from one to the next: by the queue that they make or, on a path whose delay varies,
//! by that. Frames that overtake each other tell these apart.

use sheaf_stage::{Duration, Instant};
use sheaf_wire::trunk::{HEADER_LEN, Report};

/// Frames of a train: 15 KB, as many as TCP starts with (RFC 6928). On a link of 1 Mbit/s they take
/// an eighth of a second.
pub(crate) const TRAIN: u8 = 10;
/// The most bytes of one of them, as in 15 KB: an Ethernet packet behind its header. Where frames
/// may be larger, ten of them would be a burst, and each buffer that held one would stay as large.
pub(crate) const TRAIN_FRAME: usize = 1500 + HEADER_LEN;
/// Frames behind the first that make a rate: of fewer, one that waited for another is too much.
const LEAST: u32 = 5;
/// Numbers between the highest that arrived and all that did, more or less from one report to the
/// next, that show that frames overtake: one alone may be lost.
const JUMBLED: u32 = 2;
/// Time after which no more of a train is expected: it takes that long at 60 kbit/s.
const PATIENCE: Duration = Duration::from_secs(2);

/// A train under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Train {
    /// The number of its first frame.
    first: u32,
    began: Instant,
    /// Frames and bytes received up to the first report about it, and the receiver's clock.
    from: Option<(u32, u64, u32)>,
    done: bool,
    jumbled: bool,
}

impl Train {
    /// A train whose first frame has number `first`.
    pub fn new(first: u32, now: Instant) -> Train {
        Train { first, began: now, from: None, done: false, jumbled: false }
    }

    /// Takes a report and the bytes received in all; returns bytes and µs that show a rate.
    pub fn note(&mut self, report: &Report, total: u64) -> Option<(u64, u32)> {
        let behind = report.highest.wrapping_sub(self.first);
        if behind.cast_signed() < 0 {
            return None;
        }
        let Some((frames, bytes, at)) = self.from else {
            self.from = Some((report.frames, total, report.last_at));
            return None;
        };
        let last = u32::from(TRAIN) - 1;
        // Behind frames that overtook others, some are still to come.
        self.done = behind >= last + u32::from(self.jumbled);
        // Frames behind the train count as well in such a report, and they did not follow it.
        let enough = report.frames.wrapping_sub(frames) >= LEAST && behind <= last;
        // The bytes start anew with the reports of a restarted end.
        let bytes = total.checked_sub(bytes).filter(|_| enough)?;
        Some((bytes, report.last_at.wrapping_sub(at)))
    }

    /// Takes the numbers by which the highest grew since the report before, and the frames that
    /// arrived; returns whether frames of the train overtook each other.
    pub fn is_jumbled(&mut self, sent: u32, frames: u32) -> bool {
        self.jumbled |= sent.abs_diff(frames) >= JUMBLED;
        self.jumbled
    }

    /// Whether nothing more is to be learned from it.
    pub fn is_over(&self, now: Instant) -> bool {
        self.done || now - self.began > PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_is_jumbled_when_frames_overtake_and_not_when_one_is_lost() {
        let jumbled = |counts: &[(u32, u32)]| {
            let mut train = Train::new(0, Instant::ZERO);
            counts.iter().any(|(sent, frames)| train.is_jumbled(*sent, *frames))
        };
        assert!(!jumbled(&[(1, 1), (1, 1), (2, 1), (3, 3), (0, 0)]), "one is lost");
        assert!(jumbled(&[(1, 1), (4, 1)]), "number 4 came before 1 to 3");
        assert!(jumbled(&[(0, 2)]), "they came after a higher one");
    }
}
