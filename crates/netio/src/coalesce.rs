//! Packets for the host, joined to super-packets.
//!
//! Principle: generic receive offload as in Linux (net/ipv4/tcp_offload.c). TCP segments of one
//! flow that follow each other, alike in all but sequence number, length and checksum, go to the
//! host as one super-packet, which costs it one way through its stack. Only what cutting gives
//! back byte for byte is joined: full segments, the last perhaps shorter, of plain ACK and PSH.
//! The host does not check the sums of a super-packet, so they are checked here, and a wrong one
//! goes up alone for the host to count. Nothing waits: what is joined leaves at the end of a turn.

use crate::tun::Offload;
use sheaf_wire::checksum::{fold, ipv4_header, sum};

/// The largest IP packet.
const LARGEST: usize = 65_535;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// Joins packets of one flow at a time.
#[derive(Debug, Default)]
pub struct Coalescer {
    bytes: Vec<u8>,
    /// The first segment; `None` while nothing is joined.
    first: Option<Segment>,
    count: usize,
    next_seq: u32,
}

/// A packet that can be joined.
#[derive(Clone, Copy, Debug)]
struct Segment {
    transport: usize,
    /// Offset of its payload.
    payload: usize,
    /// Bytes of its payload.
    size: usize,
    seq: u32,
    push: bool,
}

impl Coalescer {
    /// Takes a packet. What cannot be joined any more is handed to `send`: its bytes, what is left
    /// to do to it, and the length of its headers.
    pub fn push(&mut self, packet: &[u8], mut send: impl FnMut(&[u8], Offload, u16)) {
        let segment = Segment::read(packet);
        match (segment, self.first) {
            (Some(next), Some(first)) if self.follows(packet, next, first) => {
                self.bytes.extend_from_slice(&packet[next.payload..]);
                self.next_seq = next.seq.wrapping_add(next.size as u32);
                self.count += 1;
                if next.push {
                    self.bytes[first.transport + 13] |= PSH;
                }
                if next.push || next.size < first.size {
                    self.flush(send);
                }
            }
            (Some(next), _) if !next.push => {
                self.flush(&mut send);
                self.bytes.clear();
                self.bytes.extend_from_slice(packet);
                self.first = Some(next);
                self.next_seq = next.seq.wrapping_add(next.size as u32);
                self.count = 1;
            }
            _ => {
                self.flush(&mut send);
                send(packet, Offload::default(), 0);
            }
        }
    }

    /// Sends the packets joined so far.
    pub fn flush(&mut self, mut send: impl FnMut(&[u8], Offload, u16)) {
        let Some(first) = self.first.take() else { return };
        if self.count == 1 {
            return send(&self.bytes, Offload::default(), 0);
        }
        let len = self.bytes.len();
        let bytes = &mut self.bytes;
        let v6 = bytes[0] >> 4 == 6;
        if v6 {
            bytes[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
        } else {
            bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            bytes[10..12].fill(0);
            let checksum = ipv4_header(&bytes[..first.transport]);
            bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        let pseudo = fold(pseudo_header(bytes, first.transport));
        bytes[first.transport + 16..][..2].copy_from_slice(&pseudo.to_be_bytes());
        let checksum = Some((first.transport as u16, 16));
        let offload = Offload { checksum, segment: Some(first.size as u16) };
        send(bytes, offload, first.payload as u16);
    }

    /// Whether `packet` continues the packets joined so far.
    fn follows(&self, packet: &[u8], next: Segment, first: Segment) -> bool {
        let same = |range: std::ops::Range<usize>| packet[range.clone()] == self.bytes[range];
        let at = first.transport;
        let fits = self.bytes.len() + next.size <= LARGEST && next.size <= first.size;
        if next.seq != self.next_seq || next.payload != first.payload || !fits {
            return false;
        }
        let ip = match at {
            // Version and class, "don't fragment", time to live, addresses …
            20 => same(0..2) && same(6..10) && same(12..20) && self.numbered(packet),
            // … or class and flow label, next header, hop limit, addresses.
            _ => same(0..4) && same(6..40),
        };
        // Ports; acknowledgement; data offset; window; urgent pointer and options.
        let tcp = same(at..at + 4) && same(at + 8..at + 13) && same(at + 14..at + 16);
        ip && tcp && same(at + 18..first.payload)
    }

    /// Whether the IPv4 identification counts on, as cutting will make it.
    fn numbered(&self, packet: &[u8]) -> bool {
        let id = |bytes: &[u8]| u16::from_be_bytes([bytes[4], bytes[5]]);
        id(packet) == id(&self.bytes).wrapping_add(self.count as u16)
    }
}

impl Segment {
    /// Returns `None` for a packet that goes to the host as it is.
    fn read(packet: &[u8]) -> Option<Segment> {
        let (transport, len, protocol) = match packet.first()? {
            0x45 if packet.len() >= 40 => {
                // Fragments and what may become some are left alone.
                let whole = packet[6..8] == [0x40, 0];
                let len = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
                (20, len, if whole { packet[9] } else { 0 })
            }
            0x60..=0x6f if packet.len() >= 60 => {
                let len = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
                (40, 40 + len, packet[6])
            }
            _ => return None,
        };
        let tcp = &packet[transport..];
        let payload = transport + usize::from(tcp[12] >> 4) * 4;
        let plain = tcp[13] & !PSH == ACK && tcp[12] & 0xf == 0;
        if protocol != 6 || !plain || len != packet.len() {
            return None;
        }
        let size = len.checked_sub(payload).filter(|size| *size > 0)?;
        if payload < transport + 20 || fold(sum(tcp, pseudo_header(packet, transport))) != 0xffff {
            return None;
        }
        let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        Some(Segment { transport, payload, size, seq, push: tcp[13] & PSH != 0 })
    }
}

/// The sum of the pseudo header of TCP in a packet (RFC 9293, 3.1; RFC 8200, 8.1).
fn pseudo_header(packet: &[u8], transport: usize) -> u32 {
    let addresses = if transport == 20 { &packet[12..20] } else { &packet[8..40] };
    sum(addresses, 6 + (packet.len() - transport) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{finish, tests::super_packet};
    use sheaf_wire::ip::{Version, example_udp};

    /// The segments of a flow with `payload` bytes; PSH on the last.
    fn segments(version: Version, payload: usize) -> Vec<Vec<u8>> {
        let (mut packet, transport) = super_packet(version, payload);
        packet[transport + 13] = ACK | PSH;
        let offload = Offload { checksum: Some((transport as u16, 16)), segment: Some(1000) };
        let mut segments = Vec::new();
        assert!(finish(&mut packet, offload, |segment| segments.push(segment.to_vec())));
        segments
    }

    /// Packets that go up for `packets`, with the number of packets that each is.
    fn joined(packets: &[Vec<u8>]) -> Vec<(Vec<u8>, Offload)> {
        let (mut coalescer, mut sent) = (Coalescer::default(), Vec::new());
        for packet in packets {
            coalescer.push(packet, |bytes, offload, _| sent.push((bytes.to_vec(), offload)));
        }
        coalescer.flush(|bytes, offload, _| sent.push((bytes.to_vec(), offload)));
        sent
    }

    /// Packets that go up, cut again.
    fn cut(joined: Vec<(Vec<u8>, Offload)>) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        for (mut bytes, offload) in joined {
            assert!(finish(&mut bytes, offload, |packet| packets.push(packet.to_vec())));
        }
        packets
    }

    #[test]
    fn segments_in_a_row_go_up_as_one_and_cutting_gives_them_back_byte_for_byte() {
        for version in [Version::V4, Version::V6] {
            for payload in [2000, 5300, 60_000] {
                let packets = segments(version, payload);
                let up = joined(&packets);
                assert_eq!(up.len(), 1, "{payload}");
                assert_eq!(up[0].1.segment, Some(1000));
                assert_eq!(cut(up), packets);
            }
        }
    }

    #[test]
    fn what_differs_or_is_missing_ends_a_row_and_nothing_is_changed_or_overtaken() {
        let packets = segments(Version::V4, 6000);
        let refold = |packet: &mut Vec<u8>| {
            packet[36..38].fill(0);
            let sum = !fold(sum(&packet[20..], pseudo_header(packet, 20)));
            packet[36..38].copy_from_slice(&sum.to_be_bytes());
        };
        // A class, a time to live, an identification, an acknowledgement, a window, an option.
        for at in [1, 8, 5, 31, 35, 41] {
            let mut packets = packets.clone();
            packets[3][at] ^= 1;
            refold(&mut packets[3]);
            let up = joined(&packets);
            assert!(up.len() >= 2, "byte {at}");
            assert_eq!(cut(up), packets, "byte {at}");
        }
        let mut gap = packets.clone();
        gap.remove(2);
        assert_eq!(cut(joined(&gap)), gap);
        let mut swapped = packets.clone();
        swapped.swap(1, 2);
        assert_eq!(cut(joined(&swapped)), swapped);
        let mut between = packets.clone();
        between.insert(2, example_udp(&[0; 9]));
        assert_eq!(cut(joined(&between)), between);
        // SYN, FIN, RST, URG, ECE, CWR.
        for flag in [0x02, 0x01, 0x04, 0x20, 0x40, 0x80] {
            let mut packets = packets.clone();
            packets[3][33] |= flag;
            refold(&mut packets[3]);
            assert_eq!(cut(joined(&packets)), packets, "flag {flag:#x}");
        }
    }

    #[test]
    fn a_wrong_checksum_goes_up_alone_and_stays_wrong() {
        for version in [Version::V4, Version::V6] {
            let mut packets = segments(version, 6000);
            *packets[2].last_mut().unwrap() ^= 1;
            let up = joined(&packets);
            assert!(up.contains(&(packets[2].clone(), Offload::default())));
            assert_eq!(cut(up), packets);
        }
    }

    #[test]
    fn a_super_packet_never_outgrows_the_length_field() {
        let mut packets = segments(Version::V4, 60_000);
        // No PSH ends it: another sixty would follow.
        packets.last_mut().unwrap()[33] = ACK;
        let last = packets.pop().unwrap();
        let mut more = packets.clone();
        for number in 0..40u32 {
            let mut packet = packets[0].clone();
            let seq = 0xffff_fff0_u32.wrapping_add(1000 * (59 + number));
            packet[4..6]
                .copy_from_slice(&(0xfffe_u16.wrapping_add(59 + number as u16)).to_be_bytes());
            packet[24..28].copy_from_slice(&seq.to_be_bytes());
            packet[10..12].fill(0);
            let header = ipv4_header(&packet[..20]);
            packet[10..12].copy_from_slice(&header.to_be_bytes());
            packet[33] = ACK;
            packet[36..38].fill(0);
            let checksum = !fold(sum(&packet[20..], pseudo_header(&packet, 20)));
            packet[36..38].copy_from_slice(&checksum.to_be_bytes());
            more.push(packet);
        }
        drop(last);
        let up = joined(&more);
        assert!(up.len() == 2 && up.iter().all(|(bytes, _)| bytes.len() <= LARGEST));
        assert_eq!(cut(up), more);
    }

    #[test]
    fn bytes_that_are_no_packet_go_up_as_they_are() {
        for first in [0x00, 0x45, 0x46, 0x60, 0xff] {
            for len in 0..100 {
                let mut packet = vec![0; len];
                packet.iter_mut().take(1).for_each(|byte| *byte = first);
                assert_eq!(joined(&[packet.clone()]), [(packet, Offload::default())]);
            }
        }
    }
}
