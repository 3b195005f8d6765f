//! The frames that wait for a link, in four queues: urgent frames go first, then those of new flows
//! of which nothing else waits, then those that are sent again, because the receiver waits for
//! them.
//!
//! Principle: a strict priority that is bounded, as a priority queue with a policer (RFC 3246,
//! section 2): urgent frames go first until they are a few frames ahead of those that wait behind
//! them; beyond that they and the others take turns, so that neither starves. Frames of a new flow
//! (`flow_queues`) go before what was dealt out earlier, which is as much as links differ in delay,
//! within the same bound.

use crate::flow::Flow;
use sheaf_wire::trunk::{HEADER_LEN, LENGTH_LEN, MIN_OPAQUE, Packing, Predecessor};
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
    pub precedence: Precedence,
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
        let urgent = self.precedence == Precedence::Urgent;
        let precedence = if urgent { Precedence::Urgent } else { Precedence::None };
        Queued { precedence, transmissions: self.transmissions + 1, bytes, ..*self }
    }

    /// Leaves out the length before a packet that is alone: it ends with the frame, but where
    /// Ethernet pads that.
    fn leave_out_length(&mut self) {
        let packet = HEADER_LEN + LENGTH_LEN;
        let has_length = self.packing == Packing::Length && self.packets == 1;
        if has_length && self.bytes.len() >= packet + MIN_OPAQUE {
            self.bytes.drain(HEADER_LEN..packet);
            self.packing = Packing::One;
        }
    }
}

/// The precedence of a frame over others that wait; the first goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precedence {
    /// Of class EF or CS6, or sent again.
    Urgent,
    /// Of a new flow, and nothing else of it waits for a link.
    Sparse,
    /// In the order of numbers.
    None,
}

/// Kinds of precedence.
const PRECEDENCES: usize = 3;

/// All queues.
#[derive(Debug)]
pub(crate) struct PriorityQueues {
    /// Bytes that the carrier adds to each frame.
    overhead: u16,
    urgent: VecDeque<Queued>,
    sparse: VecDeque<Queued>,
    /// Frames sent again, urgent ones apart.
    repairs: VecDeque<Queued>,
    other: VecDeque<Queued>,
    /// Bytes of each precedence, carrier headers included.
    bytes: [u64; PRECEDENCES],
    /// Bytes by which urgent frames are ahead while others wait.
    lead: u64,
}

impl PriorityQueues {
    pub fn new(overhead: u16) -> PriorityQueues {
        let [urgent, sparse, repairs, other] = [const { VecDeque::new() }; 4];
        let bytes = [0; PRECEDENCES];
        PriorityQueues { overhead, urgent, sparse, repairs, other, bytes, lead: 0 }
    }

    fn cost(&self, queued: &Queued) -> u64 {
        queued.bytes.len() as u64 + u64::from(self.overhead)
    }

    pub fn push(&mut self, queued: Queued) {
        let cost = self.cost(&queued);
        self.bytes[queued.precedence as usize] += cost;
        match (queued.precedence, queued.transmissions) {
            (Precedence::Urgent, 0) => self.urgent.push_back(queued),
            (Precedence::Urgent, _) => self.urgent.push_front(queued),
            (Precedence::Sparse, _) => self.sparse.push_back(queued),
            (Precedence::None, 0) => self.other.push_back(queued),
            (Precedence::None, _) => self.repairs.push_back(queued),
        }
    }

    /// The last frame of a precedence that others can join.
    pub fn last(&self, precedence: Precedence) -> Option<&Queued> {
        match precedence {
            Precedence::Urgent => None,
            Precedence::Sparse => self.sparse.back(),
            Precedence::None => self.other.back(),
        }
    }

    /// The same, to be changed.
    pub fn last_mut(&mut self, precedence: Precedence) -> Option<&mut Queued> {
        match precedence {
            Precedence::Urgent => None,
            Precedence::Sparse => self.sparse.back_mut(),
            Precedence::None => self.other.back_mut(),
        }
    }

    /// Counts the bytes of another packet in that frame.
    pub fn grew(&mut self, precedence: Precedence, bytes: usize) {
        self.bytes[precedence as usize] += bytes as u64;
    }

    /// Takes everything.
    pub fn take_all(&mut self) -> impl Iterator<Item = Queued> {
        (self.bytes, self.lead) = ([0; PRECEDENCES], 0);
        let first = self.urgent.drain(..).chain(self.sparse.drain(..));
        first.chain(self.repairs.drain(..)).chain(self.other.drain(..))
    }

    /// Takes the frame to send next, and its bytes on the link: an urgent one, unless these have
    /// had their share.
    pub fn pop(&mut self) -> Option<(Queued, u64)> {
        let preferred = match self.lead < LEAD || !self.has_ordinary() {
            true => self.urgent.pop_front().or_else(|| self.sparse.pop_front()),
            false => None,
        };
        let leads = preferred.is_some();
        let mut queued = preferred.or_else(|| self.pop_ordinary())?;
        self.bytes[queued.precedence as usize] -= self.cost(&queued);
        // No other packet can join the frame any more.
        queued.leave_out_length();
        let cost = self.cost(&queued);
        self.lead = match leads {
            true if self.has_ordinary() => self.lead + cost,
            true => 0,
            false => self.lead.saturating_sub(cost),
        };
        Some((queued, cost))
    }

    /// Takes the next frame without regard to precedence. A sparse one takes its turn by its
    /// number, or frames of its own flow that came later would overtake it.
    fn pop_ordinary(&mut self) -> Option<Queued> {
        let is_first = |sparse: &Queued, other: &Queued| {
            other.mark.is_none() && sparse.seq.wrapping_sub(other.seq).cast_signed() < 0
        };
        let sparse_first = match (self.sparse.front(), self.other.front()) {
            (Some(sparse), Some(other)) => is_first(sparse, other),
            (sparse, _) => sparse.is_some(),
        };
        let repair = self.repairs.pop_front();
        let sparse = || if sparse_first { self.sparse.pop_front() } else { None };
        repair.or_else(sparse).or_else(|| self.other.pop_front())
    }

    /// Frames that wait.
    pub fn len(&self) -> usize {
        self.urgent.len() + self.sparse.len() + self.repairs.len() + self.other.len()
    }

    /// Frames of a precedence that wait.
    pub fn len_of(&self, precedence: Precedence) -> usize {
        match precedence {
            Precedence::Urgent => self.urgent.len(),
            Precedence::Sparse => self.sparse.len(),
            Precedence::None => self.repairs.len() + self.other.len(),
        }
    }

    /// Whether no frame waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether frames wait that have no precedence.
    fn has_ordinary(&self) -> bool {
        !self.repairs.is_empty() || !self.other.is_empty()
    }

    /// Whether a frame of a precedence waits that others can join.
    pub fn has_last(&self, precedence: Precedence) -> bool {
        match precedence {
            Precedence::Urgent => false,
            Precedence::Sparse => !self.sparse.is_empty(),
            Precedence::None => !self.other.is_empty(),
        }
    }

    /// Number of the frames, and of their bytes, that leave before one that is queued now.
    pub fn before(&self, precedence: Precedence) -> (usize, u64) {
        let frames = match precedence {
            Precedence::Urgent => self.urgent.len(),
            Precedence::Sparse => self.urgent.len() + self.sparse.len(),
            Precedence::None => self.len(),
        };
        (frames, self.bytes[..=precedence as usize].iter().sum())
    }

    /// Bytes that wait, carrier headers included.
    pub fn bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// The lowest number that waits to be sent for the first time. The queues of such frames are in
    /// the order of their numbers.
    pub fn next_seq(&self) -> Option<u32> {
        let other = self.other.iter().find(|queued| queued.mark.is_none());
        let urgent = self.urgent.iter().find(|queued| queued.transmissions == 0);
        let both =
            other.into_iter().chain(urgent).chain(self.sparse.front()).map(|queued| queued.seq);
        both.reduce(|a, b| if a.wrapping_sub(b).cast_signed() < 0 { a } else { b })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Flow;
    use sheaf_wire::trunk::push;

    /// A frame with packets of these lengths, each behind its length.
    fn frame(lengths: &[usize]) -> Queued {
        let mut bytes = vec![0; HEADER_LEN];
        lengths.iter().for_each(|len| push(Packing::Length, &vec![7; *len], &mut bytes));
        Queued {
            seq: 1,
            flow: Flow::default(),
            predecessor: Predecessor::Free,
            packing: Packing::Length,
            packets: lengths.len() as u32,
            mark: None,
            precedence: Precedence::None,
            copy: false,
            transmissions: 0,
            bytes,
        }
    }

    #[test]
    fn only_packets_that_share_a_frame_or_that_ethernet_may_pad_leave_behind_their_length() {
        const OVERHEAD: u16 = 28;
        let (one, length) = (Packing::One, Packing::Length);
        for (lengths, packing, payload) in [
            (&[1_400][..], one, 1_400),
            (&[MIN_OPAQUE], one, MIN_OPAQUE),
            (&[MIN_OPAQUE - 1], length, LENGTH_LEN + MIN_OPAQUE - 1),
            (&[500, 600], length, LENGTH_LEN + 500 + LENGTH_LEN + 600),
        ] {
            let mut queues = PriorityQueues::new(OVERHEAD);
            queues.push(frame(lengths));
            let (queued, cost) = queues.pop().unwrap();
            let len = HEADER_LEN + payload;
            assert_eq!((queued.packing, queued.bytes.len()), (packing, len), "{lengths:?}");
            assert!(packing == length || queued.bytes[HEADER_LEN..].iter().all(|byte| *byte == 7));
            assert_eq!((cost, queues.bytes()), ((len + usize::from(OVERHEAD)) as u64, 0));
        }
    }
}
