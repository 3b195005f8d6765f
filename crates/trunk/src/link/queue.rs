//! The frames that wait for a link, in three queues: urgent frames go first, then those that are
//! sent again, because the receiver waits for them.
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
    /// Times that it was sent and lost.
    pub transmissions: u8,
    pub bytes: Vec<u8>,
}

impl Queued {
    /// The same frame, to be sent once more than this one, with its content in `bytes`.
    pub fn again(&self, mut bytes: Vec<u8>) -> Queued {
        bytes.clear();
        bytes.extend_from_slice(&self.bytes);
        let transmissions = self.transmissions + 1;
        let Queued { seq, flow, predecessor, packing, packets, mark, urgent, copy, .. } = *self;
        Queued {
            seq,
            flow,
            predecessor,
            packing,
            packets,
            mark,
            urgent,
            copy,
            transmissions,
            bytes,
        }
    }
}

/// All queues.
#[derive(Debug)]
pub(crate) struct PriorityQueues {
    /// Bytes that the carrier adds to each frame.
    overhead: u16,
    urgent: VecDeque<Queued>,
    /// Frames sent again, urgent ones apart.
    repairs: VecDeque<Queued>,
    other: VecDeque<Queued>,
    /// Bytes of all queues, and of the urgent one, carrier headers included.
    bytes: u64,
    urgent_bytes: u64,
    /// Bytes by which urgent frames are ahead while others wait.
    lead: u64,
}

impl PriorityQueues {
    pub fn new(overhead: u16) -> PriorityQueues {
        let [urgent, repairs, other] = [const { VecDeque::new() }; 3];
        PriorityQueues { overhead, urgent, repairs, other, bytes: 0, urgent_bytes: 0, lead: 0 }
    }

    fn cost(&self, queued: &Queued) -> u64 {
        queued.bytes.len() as u64 + u64::from(self.overhead)
    }

    pub fn push(&mut self, queued: Queued) {
        let cost = self.cost(&queued);
        self.bytes += cost;
        if queued.urgent {
            self.urgent_bytes += cost;
            match queued.transmissions {
                0 => self.urgent.push_back(queued),
                _ => self.urgent.push_front(queued),
            }
        } else if queued.transmissions > 0 {
            self.repairs.push_back(queued);
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
        self.urgent.drain(..).chain(self.repairs.drain(..)).chain(self.other.drain(..))
    }

    /// Takes the frame to send next, and its bytes on the link: an urgent one, unless these have
    /// had their share.
    pub fn pop(&mut self) -> Option<(Queued, u64)> {
        let urgent_first = self.lead < LEAD || self.has_urgent_only();
        let urgent = urgent_first.then(|| self.urgent.pop_front()).flatten();
        let ordinary = || self.repairs.pop_front().or_else(|| self.other.pop_front());
        let queued = urgent.or_else(ordinary)?;
        let cost = self.cost(&queued);
        self.bytes -= cost;
        if queued.urgent {
            self.urgent_bytes -= cost;
            self.lead = if self.has_urgent_only() { 0 } else { self.lead + cost };
        } else {
            self.lead = self.lead.saturating_sub(cost);
        }
        Some((queued, cost))
    }

    /// Frames that wait.
    pub fn len(&self) -> usize {
        self.urgent.len() + self.repairs.len() + self.other.len()
    }

    /// Whether no frame waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether all frames that wait are urgent.
    pub fn has_urgent_only(&self) -> bool {
        self.repairs.is_empty() && self.other.is_empty()
    }

    /// Number of the frames, and of their bytes, that leave before one that is queued now.
    pub fn before(&self, urgent: bool) -> (usize, u64) {
        if urgent { (self.urgent.len(), self.urgent_bytes) } else { (self.len(), self.bytes) }
    }

    /// Bytes that wait, carrier headers included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The lowest number that waits to be sent for the first time. Both queues of such frames are in
    /// the order of their numbers.
    pub fn next_seq(&self) -> Option<u32> {
        let other = self.other.iter().find(|queued| queued.mark.is_none());
        let urgent = self.urgent.iter().find(|queued| queued.transmissions == 0);
        let both = other.into_iter().chain(urgent).map(|queued| queued.seq);
        both.reduce(|a, b| if a.wrapping_sub(b).cast_signed() < 0 { a } else { b })
    }
}
