//! The frames of a link of which a parity is sent next.

use sheaf_stage::{Duration, Instant};
use sheaf_wire::trunk::Data;
use sheaf_wire::trunk::parity::{Members, Sum};

/// Frames of one parity at most. With a loss of 2 %, two of them are lost one time in twenty-five.
const MOST_FRAMES: u32 = 16;
/// Age of the first frame above which it is too late for a parity: repairs take about as long.
const OLDEST: Duration = Duration::from_millis(30);

/// The sums of frames that left and that no parity has: of the last ones, and of a group before
/// them that takes no more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unprotected {
    /// Takes the frames that leave.
    open: Group,
    /// Takes no more.
    full: Group,
}

/// Frames that share a parity.
#[derive(Clone, Debug, Default)]
struct Group {
    members: Members,
    sum: Sum,
    /// Time at which the first of them left.
    since: Instant,
}

impl Group {
    fn is_empty(&self) -> bool {
        self.members.mask == 0
    }

    /// The time at which the first frame left, if a parity that leaves at `now` is worth it.
    fn since(&self, now: Instant) -> Option<Instant> {
        (!self.is_empty() && now - self.since <= OLDEST).then_some(self.since)
    }
}

impl Unprotected {
    /// Adds a frame. Frames leave in the order of their numbers; one that does not begins a group.
    pub fn add(&mut self, data: &Data<'_>, now: Instant) {
        let seq = data.repr.seq;
        if self.open.since(now).is_none() || self.open.members.bit(seq).is_none() {
            self.close(now);
            self.open.members.first = seq;
            self.open.since = now;
        }
        let bit = self.open.members.bit(seq).unwrap_or_default();
        if self.open.members.mask & bit == 0 {
            self.open.members.mask |= bit;
            self.open.sum.add(data);
        }
        if self.open.members.mask.count_ones() >= MOST_FRAMES {
            self.close(now);
        }
    }

    /// The open group takes no more frames. One that still waits for its parity is given up.
    fn close(&mut self, now: Instant) {
        if self.open.since(now).is_some() {
            std::mem::swap(&mut self.open, &mut self.full);
        }
        self.open.members.mask = 0;
        self.open.sum.clear();
    }

    /// Forgets the frames.
    pub fn clear(&mut self) {
        (self.open.members.mask, self.full.members.mask) = (0, 0);
    }

    /// Returns true if no frame waits for a parity.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.full.is_empty()
    }

    /// Bytes of the longest payload of the next parity.
    pub fn payload_len(&self) -> usize {
        self.next().sum.len()
    }

    /// Forgets the frames for whose parity it is too late.
    pub fn expire(&mut self, now: Instant) {
        for group in [&mut self.open, &mut self.full] {
            if group.since(now).is_none() {
                group.members.mask = 0;
            }
        }
    }

    /// The time at which the first frame left, if a parity that leaves at `now` is worth it.
    pub fn since(&self, now: Instant) -> Option<Instant> {
        self.full.since(now).or(self.open.since(now))
    }

    /// The same of a group that takes no more frames.
    pub fn full_since(&self, now: Instant) -> Option<Instant> {
        self.full.since(now)
    }

    fn next(&self) -> &Group {
        if self.full.is_empty() { &self.open } else { &self.full }
    }

    /// Takes the frames of the next parity and their sum, which later frames overwrite.
    pub fn take(&mut self) -> (Members, &Sum) {
        let group = if self.full.is_empty() { &mut self.open } else { &mut self.full };
        (std::mem::take(&mut group.members), &group.sum)
    }
}
