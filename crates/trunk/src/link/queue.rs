//! What waits for a link, in two lanes: urgent frames go first.
//!
//! Principle: a strict priority that is bounded, as a priority queue with a policer (RFC 3246,
//! section 2): while urgent frames are no more than a few frames ahead of those that wait behind
//! them they go first, beyond that both lanes take turns, so that nobody starves.

use crate::flow::Flow;
use sheaf_wire::trunk::{Packing, Predecessor};
use std::collections::VecDeque;

/// Bytes that urgent frames may be ahead of those that wait behind them; beyond, they have half.
const LEAD: u64 = 6_000;

/// A frame that waits: room for the header, then packets; or a mark of the baselines.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    pub seq: u32,
    pub flow: Flow,
    pub predecessor: Predecessor,
    pub packing: Packing,
    pub packets: u32,
    /// Round and deficit, when it is a mark; `bytes` is then empty.
    pub mark: Option<(u32, i32)>,
    /// It goes before those that are not.
    pub urgent: bool,
    /// Other links have, or had, the same.
    pub copy: bool,
    pub bytes: Vec<u8>,
}

/// Both lanes.
#[derive(Debug)]
pub(crate) struct Lanes {
    /// Bytes that the carrier adds to each frame.
    overhead: u16,
    urgent: VecDeque<Queued>,
    other: VecDeque<Queued>,
    /// Bytes of both lanes, and of the urgent one, carrier headers included.
    bytes: u64,
    urgent_bytes: u64,
    /// Bytes by which urgent frames are ahead while others wait.
    lead: u64,
}

impl Lanes {
    pub fn new(overhead: u16) -> Lanes {
        let (urgent, other) = (VecDeque::new(), VecDeque::new());
        Lanes { overhead, urgent, other, bytes: 0, urgent_bytes: 0, lead: 0 }
    }

    fn cost(&self, queued: &Queued) -> u64 {
        queued.bytes.len() as u64 + u64::from(self.overhead)
    }

    pub fn push(&mut self, queued: Queued) {
        let cost = self.cost(&queued);
        self.bytes += cost;
        if queued.urgent {
            self.urgent_bytes += cost;
            self.urgent.push_back(queued);
        } else {
            self.other.push_back(queued);
        }
    }

    /// The last frame that is not urgent.
    pub fn last_mut(&mut self) -> Option<&mut Queued> {
        self.other.back_mut()
    }

    /// Another packet shares that frame.
    pub fn grew(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Takes everything.
    pub fn take_all(&mut self) -> impl Iterator<Item = Queued> {
        (self.bytes, self.urgent_bytes, self.lead) = (0, 0, 0);
        self.urgent.drain(..).chain(self.other.drain(..))
    }

    /// Takes the frame to send next, and says what it costs: an urgent one, unless these have had
    /// their share.
    pub fn pop(&mut self) -> Option<(Queued, u64)> {
        let urgent_first = self.lead < LEAD || self.other.is_empty();
        let urgent = urgent_first.then(|| self.urgent.pop_front()).flatten();
        let queued = urgent.or_else(|| self.other.pop_front())?;
        let cost = self.cost(&queued);
        self.bytes -= cost;
        if queued.urgent {
            self.urgent_bytes -= cost;
            self.lead = if self.other.is_empty() { 0 } else { self.lead + cost };
        } else {
            self.lead = self.lead.saturating_sub(cost);
        }
        Some((queued, cost))
    }

    /// Frames that wait.
    pub fn len(&self) -> usize {
        self.urgent.len() + self.other.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether none waits that is not urgent.
    pub fn has_urgent_only(&self) -> bool {
        self.other.is_empty()
    }

    /// Frames, and their bytes, that leave before one that comes now.
    pub fn before(&self, urgent: bool) -> (usize, u64) {
        if urgent { (self.urgent.len(), self.urgent_bytes) } else { (self.len(), self.bytes) }
    }

    /// Bytes that wait, carrier headers included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The lowest number that waits. Both lanes are in the order of their numbers.
    pub fn next_seq(&self) -> Option<u32> {
        let other = self.other.iter().find(|queued| queued.mark.is_none());
        let both = other.into_iter().chain(self.urgent.front()).map(|queued| queued.seq);
        both.reduce(|a, b| if a.wrapping_sub(b).cast_signed() < 0 { a } else { b })
    }
}
