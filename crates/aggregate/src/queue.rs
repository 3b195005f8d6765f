//! The packets that wait for one next hop in one class, packed into frames as they come.
//!
//! Packing greedily on arrival gives the same frames as packing on departure, because the queue
//! is first in, first out and `max` bounds both; and it leaves one copy per packet and none when
//! a frame leaves. In format 2 a packet that does not fit is cut, so that only the last frame of a
//! queue is not full.

use crate::classify::FlowBits;
use sheaf_stage::Instant;
use sheaf_wire::aggfrag::{self, CUT_HEADER, Cut, ETHERNET_HEADER, Header, MAX_BLOCKS, Payload};
use sheaf_wire::ecn::Ecn;
use sheaf_wire::ethernet;
use sheaf_wire::group;
use sheaf_wire::meta::{MAX_PACKETS, Repr};
use std::collections::VecDeque;

/// A packet is cut if the frame takes at least this many bytes of it: fewer do not pay for the
/// header of the cut.
const MIN_PART: usize = CUT_HEADER + 2;

/// The part of a frame between the outer header and the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Nothing: packets back to back.
    Meta,
    /// The header of format 2, with the tag of the stream.
    Frame {
        /// Its tag.
        tag: u8,
    },
    /// The header of a frame to a group, in which no packet continues.
    Group,
}

impl Layout {
    /// Bytes of the header.
    pub const fn header_len(self) -> usize {
        match self {
            Layout::Meta => 0,
            Layout::Frame { .. } | Layout::Group => aggfrag::HEADER_LEN,
        }
    }

    /// The most packets of a frame; a cut one may come on top.
    const fn max_packets(self) -> usize {
        match self {
            Layout::Meta => MAX_PACKETS,
            Layout::Frame { .. } | Layout::Group => MAX_BLOCKS - 1,
        }
    }
}

/// A packet as it is put into a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival<'a> {
    /// The bytes that travel: the packet, or a block that stands for it.
    pub block: &'a [u8],
    /// Whether that is the packet as it is.
    pub plain: bool,
    /// Bytes of the packet.
    pub len: usize,
    pub label: Label,
    pub now: Instant,
}

/// Properties of a packet that say what it must not overtake and how large its frame may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label {
    pub flow: FlowBits,
    pub mark: u32,
}

/// A frame under construction: room for the headers, then the blocks.
#[derive(Debug)]
struct Pending {
    bytes: Vec<u8>,
    layout: Layout,
    /// Bytes that continue the last packet of the frame before.
    offset: u16,
    /// Packets that end here.
    packets: u32,
    /// Their bytes.
    payload: u32,
    /// Whether all blocks are packets as they are.
    plain: bool,
    oldest: Instant,
    /// Length of the block added last.
    last: usize,
}

/// One queue.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    frames: VecDeque<Pending>,
    /// Bytes of all waiting blocks, headers of frames not counted.
    pub bytes: u32,
    pub packets: u32,
    /// The flows that wait here.
    flows: FlowBits,
    /// Mark of the packet added last.
    pub mark: u32,
}

/// A frame that left its queue.
pub(crate) struct Left {
    pub ethertype: u16,
    pub bytes: Vec<u8>,
    pub packets: u32,
    /// Bytes of the packets that end in it.
    pub payload: u32,
    /// Whether it is a single packet as it was.
    pub alone: bool,
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

    /// Whether packets of one of these flows wait here.
    pub fn holds(&self, flow: FlowBits) -> bool {
        self.flows.meets(flow)
    }

    /// Adds a packet at the end, behind an outer header of `header` bytes, and returns the number
    /// of frames that it began, in buffers that `buffer` returns.
    pub fn push(
        &mut self,
        arrival: Arrival<'_>,
        (layout, header): (Layout, usize),
        max: u16,
        mut buffer: impl FnMut() -> Vec<u8>,
    ) -> usize {
        let Arrival { block, plain, len, label: Label { flow, mark }, now } = arrival;
        let before = self.frames.len();
        let max = usize::from(max);
        self.packets += 1;
        self.flows.add(flow);
        self.mark = mark;
        let last = self.frames.back_mut().filter(|frame| {
            frame.layout == layout && (frame.packets as usize) < layout.max_packets()
        });
        let room = last.as_ref().map_or(0, |frame| max.saturating_sub(frame.bytes.len()));
        let mut cut = 0;
        match last {
            Some(frame) if block.len() <= room => {
                frame.add(block, (plain, len));
                self.bytes += block.len() as u32;
                return 0;
            }
            Some(frame)
                if matches!(layout, Layout::Frame { .. }) && room >= CUT_HEADER + MIN_PART =>
            {
                cut = room - CUT_HEADER;
                frame.bytes.extend_from_slice(&Cut::header(block));
                frame.bytes.extend_from_slice(&block[..cut]);
                frame.plain = false;
                self.bytes += room as u32;
            }
            _ => {}
        }
        let (mut bytes, rest) = (buffer(), &block[cut..]);
        bytes.clear();
        bytes.resize(header + layout.header_len(), 0);
        let offset = if cut == 0 { 0 } else { rest.len() as u16 };
        let mut frame = Pending {
            bytes,
            layout,
            offset,
            packets: 0,
            payload: 0,
            plain: offset == 0,
            oldest: now,
            last: 0,
        };
        frame.add(rest, (plain, len));
        self.frames.push_back(frame);
        self.bytes += rest.len() as u32;
        self.frames.len() - before
    }

    /// Takes the oldest frame behind an outer header `repr`: a meta packet, a frame whose number
    /// `sequence` returns for its tag, or, for a single packet, that packet as it was.
    pub fn pop(&mut self, repr: &Repr, sequence: impl FnOnce(u8) -> u8) -> Option<Left> {
        let frame = self.frames.pop_front()?;
        let Pending { mut bytes, layout, offset, packets, payload, plain, oldest, .. } = frame;
        let header = repr.header_len() + layout.header_len();
        self.bytes -= (bytes.len() - header) as u32;
        self.packets -= packets;
        if self.frames.is_empty() {
            self.flows = FlowBits::default();
        }
        let alone = packets == 1 && plain;
        let ethertype = if alone {
            let (ethertype, skipped) = match Payload::parse(&bytes[header..]) {
                Ok(payload) => (payload.ethertype, header + ETHERNET_HEADER),
                Err(_) => (ethernet::of_ip(&bytes[header..]), header),
            };
            bytes.drain(..skipped);
            ethertype
        } else {
            let inner = match layout {
                Layout::Meta => None,
                Layout::Frame { tag } => Some(Header { tag, sequence: sequence(tag), offset }),
                Layout::Group => Some(group::HEADER),
            };
            if let Some(inner) = inner {
                bytes[repr.header_len()..header].copy_from_slice(&inner.emit());
            }
            repr.emit(bytes.len(), &mut bytes);
            repr.outer.ethertype()
        };
        Some(Left { ethertype, bytes, packets, payload, alone, oldest })
    }
}

impl Pending {
    /// Adds the block, or the rest of one, with which a packet of `len` bytes ends.
    fn add(&mut self, block: &[u8], (plain, len): (bool, usize)) {
        self.bytes.extend_from_slice(block);
        self.packets += 1;
        self.payload += len as u32;
        self.plain &= plain;
        self.last = block.len();
    }
}

/// Key of a queue: next hop, class, and ECN capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub hop: u32,
    pub dscp: u8,
    pub ecn: Ecn,
}
