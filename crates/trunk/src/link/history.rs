//! The data frames that a link sent lately, in case the other end asks for them again.
//!
//! Bounded by time, frames and bytes; the oldest go first. The buffers come from the sender's spare
//! ones and return there, so steady traffic allocates none.

use super::Queued;
use sheaf_stage::{Duration, Instant};
use std::collections::VecDeque;

/// Frames and bytes kept for one link at most: at 300 Mbit/s these are what is sent in a tenth of a
/// second, the time of a round trip and a request.
const FRAMES: usize = 4096;
const BYTES: usize = 4 << 20;
/// Time beyond the round trip for which a frame is kept: the request can be delayed by the
/// receiver's reordering window, by its spacing, and is repeated.
const RESERVE: Duration = Duration::from_millis(120);
/// Transmissions of a frame at most: with 2 % loss on each link, three leave one loss in 125,000.
const TRANSMISSIONS: u8 = 3;

#[derive(Clone, Debug)]
struct Sent {
    number: u32,
    at: Instant,
    /// `None` once it was sent again: then it is kept under another number.
    queued: Option<Queued>,
}

/// The frames kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    sent: VecDeque<Sent>,
    bytes: usize,
}

impl History {
    /// Keeps a frame that leaves under `number`.
    pub fn keep(&mut self, number: u32, queued: Queued, now: Instant) {
        self.bytes += queued.bytes.len();
        self.sent.push_back(Sent { number, at: now, queued: Some(queued) });
    }

    /// Whether a frame sent now could be asked for again, as far as its transmissions go.
    pub fn is_wanted(queued: &Queued) -> bool {
        queued.mark.is_none() && !queued.copy && queued.transmissions < TRANSMISSIONS
    }

    /// Removes and returns the frame sent under `number`, if it is kept.
    pub fn take(&mut self, number: u32) -> Option<Queued> {
        let front = self.sent.front()?.number;
        let place = number.wrapping_sub(front);
        let at = self.sent.binary_search_by_key(&place, |sent| sent.number.wrapping_sub(front));
        let queued = self.sent[at.ok()?].queued.take()?;
        self.bytes -= queued.bytes.len();
        Some(queued)
    }

    /// Removes the oldest frame once its time is over; returns its buffer.
    pub fn expire(&mut self, round_trip: Duration, now: Instant) -> Option<Vec<u8>> {
        loop {
            let oldest = self.sent.front()?;
            let full = self.sent.len() > FRAMES || self.bytes > BYTES;
            let old = now - oldest.at > round_trip + round_trip / 2 + RESERVE;
            if !full && !old && oldest.queued.is_some() {
                return None;
            }
            if let Some(queued) = self.sent.pop_front().and_then(|sent| sent.queued) {
                self.bytes -= queued.bytes.len();
                return Some(queued.bytes);
            }
        }
    }

    /// Removes and returns the newest frame that was sent after number `heard`, the last that the
    /// other end reported.
    pub fn take_unheard(&mut self, heard: Option<u32>) -> Option<Queued> {
        loop {
            let newest = self.sent.back()?;
            let known = |heard: u32| newest.number.wrapping_sub(heard).cast_signed() <= 0;
            if heard.is_some_and(known) {
                return None;
            }
            if let Some(queued) = self.sent.pop_back().and_then(|sent| sent.queued) {
                self.bytes -= queued.bytes.len();
                return Some(queued);
            }
        }
    }
}
