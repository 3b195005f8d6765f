//! A packet on its way through emulated links.

use crate::cause::{Cause, Causes};
use crate::overhead::Overhead;
use sheaf_stage::Instant;
use sheaf_wire::flow::mix;
use sheaf_wire::header;
use std::sync::Arc;

/// Direction of a packet, for rules that apply to one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Towards the network.
    #[default]
    Out,
    /// From the network.
    In,
}

/// A packet that the kernel hands over for many: headers once, and the payload of several segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Bytes of all headers, link header included, which each segment repeats.
    pub header: u16,
    /// Payload bytes of each segment but the last (virtio's `gso_size`).
    pub payload: u16,
}

/// A packet, with its arrival and direction, and with the record of what links did to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet {
    /// A whole Ethernet frame or an IP packet; `LinkConfig::link_header` says where IP begins.
    pub bytes: Vec<u8>,
    /// Logical arrival: the time stamp of its reception or the logical departure from
    /// the link before, not the time of the call. A link takes it as no later than `now` and no
    /// earlier than the arrival before it.
    pub arrived: Instant,
    /// Its number in its stream, which together with the seed decides its fate.
    pub number: u64,
    /// Time at which it leaves, by the link's own arithmetic; set by the link.
    pub depart: Instant,
    /// Causes of everything that links did to it so far.
    pub causes: Causes,
    /// Set for a super-packet (GSO): it takes the wire as long as its segments do. It counts as one
    /// packet otherwise, is lost whole, and leaves whole when its last segment would have.
    pub segments: Option<Segments>,
    /// The queue of a weighted scheduler that it takes (DRR, WF2Q+); others ignore it.
    pub queue: u16,
    /// Its direction.
    pub direction: Direction,
    /// The interface it came from, by the caller's numbering.
    pub interface: u16,
    /// Bytes before the packet that are on no wire, such as a virtio header. Queues and counts
    /// leave them out; a rate does not, so take them off by [`Overhead::packet`].
    pub prefix: u16,
    copy: bool,
    pub(crate) fate: Fate,
    pub(crate) route: Route,
}

/// Decisions of the random models about a packet, made when it arrived; carried out when it leaves
/// the rate queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Fate {
    pub lost: Option<Cause>,
    pub duplicated: bool,
    pub corrupted: bool,
    pub reordered: bool,
    /// The jitter in standard deviations.
    pub jitter: f64,
}

/// A pipe that a packet takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its number, from 0.
    pub pipe: usize,
    /// The queue there, for weighted schedulers; `None` keeps the packet's own.
    pub queue: Option<u16>,
}

/// Position of a packet in its row of pipes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Route {
    /// The pipes it takes; `None` outside of pipes.
    pub row: Option<Arc<[Target]>>,
    /// The next of them.
    pub hop: u32,
}

impl Packet {
    /// A packet that arrived at `arrived` as number `number` of its stream.
    pub fn new(bytes: Vec<u8>, arrived: Instant, number: u64) -> Self {
        Packet {
            bytes,
            arrived,
            number,
            depart: arrived,
            causes: Causes::default(),
            segments: None,
            queue: 0,
            direction: Direction::default(),
            interface: 0,
            prefix: 0,
            copy: false,
            fate: Fate::default(),
            route: Route::default(),
        }
    }

    /// Whether a link made this packet as a duplicate. A copy counts as no packet in the balance
    /// of any link, so that duplicates of duplicates are not counted twice.
    pub fn is_copy(&self) -> bool {
        self.copy
    }

    /// Bytes of the packet itself, as queues count them.
    pub fn size(&self) -> usize {
        self.bytes.len().saturating_sub(usize::from(self.prefix))
    }

    /// The packet from its IP header on, which begins at byte `ip`; empty where it ends before.
    pub(crate) fn after_link(&self, ip: usize) -> &[u8] {
        self.bytes.get(ip..).unwrap_or_default()
    }

    /// Its class (DSCP); 0 for what is not IP.
    pub(crate) fn dscp(&self, ip: usize) -> u8 {
        header::traffic_class(self.after_link(ip)).unwrap_or(0) >> 2
    }

    /// Bytes on the wire.
    pub fn wire_len(&self, overhead: Overhead) -> u64 {
        let len = self.bytes.len();
        let Some(Segments { header, payload }) = self.segments.filter(|s| s.payload > 0) else {
            return overhead.wire_len(len);
        };
        let (header, each) = (usize::from(header), usize::from(payload));
        let all = len.saturating_sub(header);
        let last = match all % each {
            0 if all > 0 => 0,
            rest => overhead.wire_len(header.min(len) + rest),
        };
        (all / each) as u64 * overhead.wire_len(header + each) + last
    }

    /// A duplicate with its bytes in `buffer`. It has a number of its own, so that the next link
    /// decides about it apart.
    pub(crate) fn duplicate(&self, mut buffer: Vec<u8>) -> Packet {
        buffer.clear();
        buffer.extend_from_slice(&self.bytes);
        let number = mix(self.number) | 1 << 63;
        Packet { bytes: buffer, number, copy: true, route: self.route.clone(), ..*self }
    }
}
