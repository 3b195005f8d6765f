//! The frames of a link of which a parity is sent next.

use sheaf_stage::{Duration, Instant};
use sheaf_wire::trunk::Data;
use sheaf_wire::trunk::parity::{Members, Sum};

/// Frames of one parity at most. With a loss of 2 %, two of them are lost one time in twenty-five.
const MOST_FRAMES: u32 = 16;
/// Age of the first frame above which a sum begins anew: repairs take about as long.
const OLDEST: Duration = Duration::from_millis(30);

/// The sum of frames that left and that no parity has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unprotected {
    members: Members,
    sum: Sum,
    /// Time at which the first of them left.
    since: Instant,
}

impl Unprotected {
    /// Adds a frame. Frames leave in the order of their numbers; one that does not begins anew.
    pub fn add(&mut self, data: &Data<'_>, now: Instant) {
        let seq = data.repr.seq;
        let is_full = self.members.mask.count_ones() >= MOST_FRAMES;
        if self.is_empty() || is_full || self.is_over(now) {
            self.begin(seq, now);
        }
        let bit = self.members.bit(seq).unwrap_or_else(|| self.begin(seq, now));
        if self.members.mask & bit == 0 {
            self.members.mask |= bit;
            self.sum.add(data);
        }
    }

    /// Begins a sum with a frame; returns its bit.
    fn begin(&mut self, seq: u32, now: Instant) -> u32 {
        (self.members, self.since) = (Members { first: seq, mask: 0 }, now);
        self.sum.clear();
        1
    }

    /// Forgets the frames.
    pub fn clear(&mut self) {
        self.members.mask = 0;
    }

    /// Forgets the frames once it is too late for their parity.
    pub fn expire(&mut self, now: Instant) {
        if self.is_over(now) {
            self.clear();
        }
    }

    /// Returns true if no frame waits for a parity.
    pub fn is_empty(&self) -> bool {
        self.members.mask == 0
    }

    /// Bytes of the longest payload.
    pub fn payload_len(&self) -> usize {
        self.sum.len()
    }

    /// Whether it is too late for a parity of these frames.
    fn is_over(&self, now: Instant) -> bool {
        now - self.since > OLDEST
    }

    /// The time at which the first frame left, if a parity that leaves at `now` is worth it.
    pub fn since(&self, now: Instant) -> Option<Instant> {
        (!self.is_empty() && !self.is_over(now)).then_some(self.since)
    }

    /// Takes the frames and their sum, which the next frame overwrites.
    pub fn take(&mut self) -> (Members, &Sum) {
        (std::mem::take(&mut self.members), &self.sum)
    }
}
