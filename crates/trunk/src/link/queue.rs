//! The frames that wait for a link, in two queues: urgent frames go first.
//!
//! Principle: a strict priority that is bounded, as a priority queue with a policer (RFC 3246,
//! section 2): urgent frames go first until they are a few frames ahead of those that wait behind
//! them; beyond that both queues take turns, so that neither starves.

use crate::flow::Flow;
use sheaf_wire::trunk::{Packing, Predecessor};
use std::collections::VecDeque;

/// Bytes that urgent frames may be ahead of those that wait behind them; beyond, they have half.
/// Four full frames: some twenty packets of calls, more than come at a time.
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

/// Both queues.
#[derive(Debug)]
pub(crate) struct PriorityQueues {
    /// Bytes that the carrier adds to each frame.
    overhead: u16,
    urgent: VecDeque<Queued>,
    other: VecDeque<Queued>,
    /// Bytes of both queues, and of the urgent one, carrier headers included.
    bytes: u64,
    urgent_bytes: u64,
    /// Bytes by which urgent frames are ahead while others wait.
    lead: u64,
}

impl PriorityQueues {
    pub fn new(overhead: u16) -> PriorityQueues {
        let (urgent, other) = (VecDeque::new(), VecDeque::new());
        PriorityQueues { overhead, urgent, other, bytes: 0, urgent_bytes: 0, lead: 0 }
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

    /// Counts the bytes of another packet in that frame.
    pub fn grew(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Takes everything.
    pub fn take_all(&mut self) -> impl Iterator<Item = Queued> {
        (self.bytes, self.urgent_bytes, self.lead) = (0, 0, 0);
        self.urgent.drain(..).chain(self.other.drain(..))
    }

    /// Takes the frame to send next, and its bytes on the link: an urgent one, unless these have
    /// had their share.
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

    /// Whether no frame waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether all frames that wait are urgent.
    pub fn has_urgent_only(&self) -> bool {
        self.other.is_empty()
    }

    /// Number of the frames, and of their bytes, that leave before one that is queued now.
    pub fn before(&self, urgent: bool) -> (usize, u64) {
        if urgent { (self.urgent.len(), self.urgent_bytes) } else { (self.len(), self.bytes) }
    }

    /// Bytes that wait, carrier headers included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The lowest number that waits. Both queues are in the order of their numbers.
    pub fn next_seq(&self) -> Option<u32> {
        let other = self.other.iter().find(|queued| queued.mark.is_none());
        let both = other.into_iter().chain(self.urgent.front()).map(|queued| queued.seq);
        both.reduce(|a, b| if a.wrapping_sub(b).cast_signed() < 0 { a } else { b })
    }
}
