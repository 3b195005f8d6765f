//! State of a flow whose segments measure the round trip of TCP (see `steady`).

use crate::segment::Segment;
use sheaf_stage::{Duration, Instant};

/// Time for which BBR remembers the least round trip (`bbr_min_rtt_win_sec`).
const REMEMBERED: Duration = Duration::from_secs(10);

/// The ways that the packets of a flow took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steady {
    /// Time until which they are kept to the main link.
    until: Instant,
    /// Time at which one was last free to take a quick link.
    quick_at: Option<Instant>,
}

impl Steady {
    /// Whether a segment is kept to the main link. `is_full`: it is as long as a frame can be.
    pub fn keeps(&mut self, segment: Segment, is_full: bool, now: Instant) -> bool {
        let is_unmeasured = self.quick_at.is_none_or(|at| now - at >= REMEMBERED);
        let keeps = match segment {
            Segment::Other | Segment::Acknowledgement => return false,
            Segment::Answer => true,
            Segment::Data => now < self.until || is_full && is_unmeasured,
        };
        match keeps {
            false => self.quick_at = Some(now),
            true if segment == Segment::Answer => {
                *self = Steady { until: now + REMEMBERED, quick_at: None };
            }
            true if is_full => self.until = now + REMEMBERED,
            true => {}
        }
        keeps
    }

    /// Notes a segment for which there was no main link.
    pub fn was_free(&mut self, now: Instant) {
        *self = Steady { until: Instant::ZERO, quick_at: Some(now) };
    }
}
