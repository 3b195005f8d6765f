//! A packet train: full frames in a row when a link comes up, to learn its rate from.
//!
//! Principle: the bottleneck of a link spreads a train so that its bytes over the time from its
//! first to its last frame are the rate (Dovrolis et al., see [`rate`](crate::rate)). The frames
//! are reports, padded; the other end replies to each at once with what it received, and when.

use sheaf_stage::{Duration, Instant};
use sheaf_wire::trunk::Report;

/// Frames of a train: 15 KB, as many as TCP starts with (RFC 6928). On a link of 1 Mbit/s they take
/// an eighth of a second.
pub(crate) const TRAIN: u8 = 10;
/// Frames behind the first that make a rate: of fewer, one that waited for another is too much.
const LEAST: u32 = 5;
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
}

impl Train {
    /// A train whose first frame has number `first`.
    pub fn new(first: u32, now: Instant) -> Train {
        Train { first, began: now, from: None, done: false }
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
        self.done = behind >= last;
        // Frames behind the train count as well in such a report, and they did not follow it.
        let enough = report.frames.wrapping_sub(frames) >= LEAST && behind <= last;
        // The bytes start anew with the reports of a restarted end.
        let bytes = total.checked_sub(bytes).filter(|_| enough)?;
        Some((bytes, report.last_at.wrapping_sub(at)))
    }

    /// Whether nothing more is to be learned from it.
    pub fn is_over(&self, now: Instant) -> bool {
        self.done || now - self.began > PATIENCE
    }
}
