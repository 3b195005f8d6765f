//! Structures in the maps of the splitting program, byte for byte as in `src/c/split/maps.h`.

use crate::frames::Base;
use bytemuck::{Pod, Zeroable};

/// Bit of a stream's number: the configuration names its sender.
pub const NAMED: u32 = 1;
/// Streams of all senders together, and those of senders without a name.
pub const STREAMS: usize = 256;
/// Streams that senders without a name can have.
pub const STREAMS_UNNAMED: usize = 192;
/// Most items that the program says about one frame.
pub const ITEMS: usize = 66;

/// `struct split_config`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct SplitConfig {
    /// Whether every address may be a neighbour.
    pub any: u32,
    /// Families of which the host's addresses are noted: bit 0 for IPv4, bit 1 for IPv6.
    pub own_known: u32,
    /// Order of the generations of contexts.
    pub secret: u64,
    /// Whether format 2 is taken.
    pub frames: u32,
    /// Streams of senders without a name that were removed so far, modulo 2³².
    pub streams_swept: u32,
    /// Their contexts, likewise.
    pub contexts_swept: u32,
    /// Whether format 2 is taken without a header of IP, too.
    pub link: u32,
}

/// `struct stream_name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct StreamName {
    /// Sender, as [`mapped`](crate::layout::mapped).
    pub source: [u8; 16],
    /// Receiver, likewise.
    pub destination: [u8; 16],
    /// Tag, 0..16.
    pub tag: u32,
}

/// `struct stream`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Stream {
    bytes: [u8; 2048],
    /// When the last frame came; ns of CLOCK_MONOTONIC.
    pub last: u64,
    /// Number, with [`NAMED`].
    pub id: u32,
    check: u32,
    len: u16,
    have: u16,
    ecn: u8,
    started: u8,
    newest: u8,
    defined: u8,
    seen: [u32; 256],
    lens: [u16; 256],
}

/// `struct context_name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ContextName {
    /// Number of its stream.
    pub stream: u32,
    /// Its number in the stream, 0..256.
    pub number: u32,
}

/// `struct context`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Context {
    template: [u64; 8],
    lines: [Base; 2],
    sum: u32,
    ip_sum: u32,
    newest: u16,
    generation: u16,
    payload_len: u16,
    id: u16,
    stride: u16,
    start: u8,
    end: u8,
    rule: u8,
    rtp: u8,
    pad: [u8; 2],
    check: u32,
    pad2: u32,
}

/// `struct made`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Made {
    /// Number of the next stream.
    pub ids: u32,
    generations: u32,
    streams: u32,
    contexts: u32,
}

/// `struct item`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Item {
    /// As on the cable.
    pub kind: u8,
    /// Context.
    pub number: u8,
    /// Its generation.
    pub generation: u16,
    /// CRC-32 of its constants.
    pub check: u32,
}

/// `struct event` up to its items or its message.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Event {
    /// Stream of the frame.
    pub stream: StreamName,
    /// 0: items to say; 1: a message that came.
    pub kind: u32,
    /// Items, or bytes of the message.
    pub count: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirrors::{same, structures};

    #[test]
    fn structures_are_laid_out_as_in_c() {
        let split = structures(include_bytes!(concat!(env!("OUT_DIR"), "/split.bpf.o")));
        same!(
            split,
            "split_config",
            SplitConfig { any, own_known, secret, frames, streams_swept, contexts_swept, link }
        );
        same!(split, "stream_name", StreamName { source, destination, tag });
        same!(
            split,
            "stream",
            Stream { bytes, last, id, check, len, have, ecn, started, newest, defined, seen, lens }
        );
        same!(split, "context_name", ContextName { stream, number });
        same!(
            split,
            "context",
            Context {
                template,
                lines,
                sum,
                ip_sum,
                newest,
                generation,
                payload_len,
                id,
                stride,
                start,
                end,
                rule,
                rtp,
                pad,
                check,
                pad2,
            }
        );
        same!(split, "made", Made { ids, generations, streams, contexts });
        same!(split, "item", Item { kind, number, generation, check });
        let event = &split["event"];
        let head: Vec<_> = event.members.iter().take(3).map(|(_, at)| *at).collect();
        assert_eq!(head, [0, 36, 40], "stream, kind, count");
        assert_eq!(event.size, size_of::<Event>() + ITEMS * size_of::<Item>());
    }
}
