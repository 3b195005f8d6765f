//! The packets that wait for one next hop in one class, packed into frames as they come.
//!
//! Packing greedily on arrival gives the same frames as packing on departure, because the queue
//! is first in, first out and `max` bounds both; and it leaves one copy per packet and none when
//! a frame leaves.

use crate::classify::FlowBits;
use sheaf_stage::Instant;
use sheaf_wire::ecn::Ecn;
use sheaf_wire::meta::{MAX_PACKETS, Repr};
use std::collections::VecDeque;

/// A frame under construction: room for the outer header, then the inner packets.
#[derive(Debug)]
pub(crate) struct Pending {
    pub bytes: Vec<u8>,
    pub packets: u32,
    pub oldest: Instant,
    /// Length of the packet added last.
    last: usize,
}

/// One queue.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    frames: VecDeque<Pending>,
    /// Bytes of all waiting packets, outer headers not counted.
    pub bytes: u32,
    pub packets: u32,
    /// The flows that wait here.
    flows: FlowBits,
}

/// A frame that left its queue.
pub(crate) struct Left {
    pub bytes: Vec<u8>,
    pub packets: u32,
    /// Bytes of its packets, the outer header not counted.
    pub payload: u32,
    pub oldest: Instant,
}

impl Queue {
    /// Frames that wait.
    pub fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Since when the oldest packet waits.
    pub fn oldest(&self) -> Option<Instant> {
        self.frames.front().map(|frame| frame.oldest)
    }

    /// Whether the first frame cannot take another packet like its last.
    pub fn has_full_frame(&self, max: u16) -> bool {
        self.frames.front().is_some_and(|frame| {
            self.frames.len() > 1 || frame.bytes.len() + frame.last > usize::from(max)
        })
    }

    /// Whether a packet of `len` bytes would need another frame.
    pub fn needs_frame(&self, len: usize, max: u16) -> bool {
        self.frames.back().is_none_or(|last| {
            last.bytes.len() + len > usize::from(max) || last.packets as usize == MAX_PACKETS
        })
    }

    /// Whether packets of one of these flows wait here.
    pub fn holds(&self, flow: FlowBits) -> bool {
        self.flows.meets(flow)
    }

    /// Adds a packet at the end, in a new frame made of `buffer` where one is given.
    pub fn push(
        &mut self,
        packet: &[u8],
        header: usize,
        flow: FlowBits,
        buffer: Option<Vec<u8>>,
        now: Instant,
    ) {
        if let Some(mut bytes) = buffer {
            bytes.clear();
            bytes.resize(header, 0);
            self.frames.push_back(Pending { bytes, packets: 0, oldest: now, last: 0 });
        }
        let frame = self.frames.back_mut().expect("a queue without frames was given a buffer");
        frame.bytes.extend_from_slice(packet);
        frame.packets += 1;
        frame.last = packet.len();
        self.bytes += packet.len() as u32;
        self.packets += 1;
        self.flows.add(flow);
    }

    /// Takes the oldest frame: a meta packet, or, for a single packet, that packet as it was.
    pub fn pop(&mut self, repr: &Repr) -> Option<Left> {
        let Pending { mut bytes, packets, oldest, .. } = self.frames.pop_front()?;
        let payload = (bytes.len() - repr.header_len()) as u32;
        self.bytes -= payload;
        self.packets -= packets;
        if self.frames.is_empty() {
            self.flows = FlowBits::default();
        }
        if packets == 1 {
            bytes.drain(..repr.header_len());
        } else {
            repr.emit(bytes.len(), &mut bytes);
        }
        Some(Left { bytes, packets, payload, oldest })
    }
}

/// Key of a queue: next hop, class, and ECN capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub hop: u32,
    pub dscp: u8,
    pub ecn: Ecn,
}
