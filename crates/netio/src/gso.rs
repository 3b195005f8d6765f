//! Super-packets (GSO), taken apart.
//!
//! Principle (linux: Documentation/networking/segmentation-offloads.rst, `tcp_gso_segment`,
//! `__udp_gso_segment`): headers are repeated before every `gso_size` bytes of payload; IPv4's
//! identification and TCP's sequence number count on; FIN and PSH belong to the last segment, CWR
//! to the first. Checksums of the segments are left unfinished, as they were: only the pseudo
//! header's sum is written, so no payload is read but to copy it.

use crate::vnet::{self, Header};
use sheaf_wire::checksum::{fold, ipv4_header, sum};
use sheaf_wire::ip::Ip;

/// Ethernet header bytes.
const ETHERNET: usize = 14;
/// Segments with less payload than this come from no sane stack; taking them apart would multiply
/// the packet by its headers.
const LEAST: usize = 8;
/// Datagrams that a kernel joins at most, of any size (UDP_MAX_SEGMENTS).
const MOST_DATAGRAMS: usize = 128;

/// TCP flags (RFC 9293, section 3.1; RFC 3168).
const FIN: u8 = 1;
const PSH: u8 = 8;
const CWR: u8 = 0x80;

/// A super-packet behind a virtio header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Headers that its segments repeat.
    pub headers: Headers,
    /// Bytes of the whole packet.
    len: usize,
}

/// The headers that each segment repeats. Offsets are from the start of the packet, a virtio header
/// left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    ip: usize,
    transport: usize,
    /// Bytes of all of them.
    pub len: usize,
    /// Payload bytes of each segment but the last.
    pub size: usize,
    udp: bool,
    v6: bool,
}

impl Gso {
    /// Looks at `bytes`: a virtio header and a packet, an Ethernet frame where `ethernet`, else an
    /// IP packet. `None` for what is no super-packet of TCP or UDP.
    pub fn parse(bytes: &[u8], ethernet: bool) -> Option<Gso> {
        let virtio = Header::parse(bytes)?;
        let kind = virtio.gso_type & !Header::ECN;
        if ![Header::TCP_V4, Header::TCP_V6, Header::UDP].contains(&kind) {
            return None;
        }
        let packet = &bytes[vnet::LEN..];
        let ip = if ethernet { network_offset(packet)? } else { 0 };
        let v6 = packet.get(ip)? >> 4 == 6;
        let transport = match virtio.partial {
            true => usize::from(virtio.csum_start),
            false => ip + Ip::parse(packet.get(ip..)?).ok()?.transport_offset(),
        };
        let udp = kind == Header::UDP;
        let len = transport
            + match udp {
                true => 8,
                false => usize::from(packet.get(transport + 12)? >> 4) * 4,
            };
        let size = usize::from(virtio.gso_size);
        let least = transport + if udp { 8 } else { 20 };
        let fits = transport >= ip + if v6 { 40 } else { 20 } && len >= least;
        let headers = Headers { ip, transport, len, size, udp, v6 };
        let gso = Gso { headers, len: packet.len() };
        let has_payload = size > 0 && packet.len() > len;
        let is_sane = |gso: &Gso| size >= LEAST || udp && gso.count() <= MOST_DATAGRAMS;
        (fits && has_payload && is_sane(&gso)).then_some(gso)
    }

    /// Number of segments.
    pub fn count(&self) -> usize {
        (self.len - self.headers.len).div_ceil(self.headers.size)
    }

    /// Writes segment `index` of `bytes`, which this was made from, to `to`: a virtio header and a
    /// packet with an unfinished checksum.
    ///
    /// # Panics
    /// When `index` is not below [`Gso::count`], or `bytes` are others.
    pub fn segment(&self, bytes: &[u8], index: usize, to: &mut Vec<u8>) {
        let packet = &bytes[vnet::LEN..];
        let Headers { transport, len, size, udp, .. } = self.headers;
        let start = len + index * size;
        let end = packet.len().min(start + size);
        to.clear();
        to.extend_from_slice(&[0; vnet::LEN]);
        to.extend_from_slice(&packet[..len]);
        to.extend_from_slice(&packet[start..end]);
        Header {
            partial: true,
            csum_start: transport as u16,
            csum_offset: if udp { 6 } else { 16 },
            ..Header::default()
        }
        .emit(to);
        self.headers.complete(&mut to[vnet::LEN..], index, index + 1 == self.count());
    }
}

impl Headers {
    /// Those of an IP packet with TCP, whose header is from `transport` to `len`, in segments of
    /// `size` bytes of payload.
    pub fn tcp(v6: bool, transport: usize, len: usize, size: usize) -> Headers {
        Headers { ip: 0, transport, len, size, udp: false, v6 }
    }

    /// Makes the headers that `segment` begins with, as they stood in the super-packet, those of
    /// segment `index`; `last`: none follows. Its checksum is unfinished then.
    ///
    /// # Panics
    /// When `segment` is shorter than its headers, or they are shorter than IP and TCP or UDP have
    /// them.
    pub fn complete(&self, segment: &mut [u8], index: usize, last: bool) {
        let pseudo = self.network(&mut segment[self.ip..], index);
        self.transport(&mut segment[self.transport..], index, last, pseudo);
    }

    /// Makes the IP header that of segment `index`; answers the sum of the pseudo header.
    fn network(&self, ip: &mut [u8], index: usize) -> u32 {
        let rest = (ip.len() + self.ip - self.transport) as u32;
        let protocol = if self.udp { 17 } else { 6 };
        if self.v6 {
            let len = (ip.len() - 40) as u16;
            ip[4..6].copy_from_slice(&len.to_be_bytes());
            return sum(&ip[8..40], protocol + rest);
        }
        let len = ip.len() as u16;
        let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(index as u16);
        ip[2..4].copy_from_slice(&len.to_be_bytes());
        ip[4..6].copy_from_slice(&id.to_be_bytes());
        ip[10..12].fill(0);
        let header = self.transport - self.ip;
        let checksum = ipv4_header(&ip[..header]);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        sum(&ip[12..20], protocol + rest)
    }

    fn transport(&self, part: &mut [u8], index: usize, last: bool, pseudo: u32) {
        let field = if self.udp {
            let len = part.len() as u16;
            part[4..6].copy_from_slice(&len.to_be_bytes());
            6
        } else {
            let sequence = u32::from_be_bytes([part[4], part[5], part[6], part[7]]);
            let sequence = sequence.wrapping_add((index * self.size) as u32);
            part[4..8].copy_from_slice(&sequence.to_be_bytes());
            if !last {
                part[13] &= !(FIN | PSH);
            }
            if index > 0 {
                part[13] &= !CWR;
            }
            16
        };
        part[field..field + 2].copy_from_slice(&fold(pseudo).to_be_bytes());
    }
}

/// Where the network header of an Ethernet frame begins, behind up to two VLAN tags.
fn network_offset(frame: &[u8]) -> Option<usize> {
    let mut at = ETHERNET;
    for _ in 0..2 {
        match frame.get(at - 2..at)? {
            [0x81, 0x00] | [0x88, 0xa8] => at += 4,
            _ => break,
        }
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A super-packet as a sender hands it over, with a TCP or UDP header and `payload`.
    fn super_packet(v6: bool, udp: bool, tagged: bool, size: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        if tagged {
            frame.extend_from_slice(&[0x81, 0, 0, 5]);
        }
        frame.extend_from_slice(if v6 { &[0x86, 0xdd] } else { &[8, 0] });
        let transport_len = if udp { 8 } else { 32 } + payload.len();
        let protocol = if udp { 17 } else { 6 };
        if v6 {
            frame.extend_from_slice(&[0x60, 0, 0, 0, 0, 0, protocol, 64]);
            frame[18 + usize::from(tagged) * 4..][..2]
                .copy_from_slice(&(transport_len as u16).to_be_bytes());
            frame.extend_from_slice(&[0xfd; 16]);
            frame.extend_from_slice(&[0xfe; 16]);
        } else {
            let len = ((20 + transport_len) as u16).to_be_bytes();
            let header = [0x45, 0, len[0], len[1], 0xff, 0xfe, 0x40, 0, 64, protocol, 0, 0];
            frame.extend_from_slice(&header);
            frame.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        }
        let csum_start = frame.len() as u16;
        if udp {
            frame.extend_from_slice(&[0, 53, 0, 99]);
            frame.extend_from_slice(&(transport_len as u16).to_be_bytes());
            frame.extend_from_slice(&[0, 0]);
        } else {
            // Sequence number 0xfffffff0 wraps; FIN, PSH, ACK and CWR; options of twelve bytes.
            frame.extend_from_slice(&[0, 80, 0, 81, 0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 9]);
            frame.extend_from_slice(&[0x80, 0x99, 1, 0, 0, 0, 0, 0]);
            frame.extend_from_slice(&[1; 12]);
        }
        frame.extend_from_slice(payload);
        let gso_type = match (udp, v6) {
            (true, _) => Header::UDP,
            (false, true) => Header::TCP_V6,
            (false, false) => Header::TCP_V4 | Header::ECN,
        };
        let csum_offset = if udp { 6 } else { 16 };
        let header =
            Header { partial: true, gso_type, hdr_len: 0, gso_size: size, csum_start, csum_offset };
        let mut bytes = vec![0; vnet::LEN];
        header.emit(&mut bytes);
        bytes.extend_from_slice(&frame);
        bytes
    }

    #[test]
    fn datagrams_of_a_byte_are_taken_apart_as_far_as_a_kernel_joins_them() {
        let count = |udp, payload| {
            let bytes = super_packet(false, udp, false, 1, &vec![0; payload]);
            Gso::parse(&bytes, true).map(|gso| gso.count())
        };
        assert_eq!(count(true, MOST_DATAGRAMS), Some(MOST_DATAGRAMS));
        assert_eq!(count(true, MOST_DATAGRAMS + 1), None);
        assert_eq!(count(false, 2), None, "no stack makes such segments of TCP");
        assert_eq!(Gso::parse(&super_packet(false, true, false, 0, &[0; 9]), true), None);
    }

    proptest! {
        #[test]
        fn segments_have_right_checksums_and_carry_every_byte_once_in_order(
            v6 in any::<bool>(), udp in any::<bool>(), tagged in any::<bool>(),
            size in 8u16..1500, len in 1usize..20_000
        ) {
            let payload: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
            let bytes = super_packet(v6, udp, tagged, size, &payload);
            let gso = Gso::parse(&bytes, true).expect("it is a super-packet");
            let (mut carried, mut segment) = (Vec::new(), Vec::new());
            let count = gso.count();
            prop_assert_eq!(count, len.div_ceil(usize::from(size)));
            for index in 0..count {
                gso.segment(&bytes, index, &mut segment);
                vnet::finish(&mut segment);
                let packet = &segment[vnet::LEN..];
                let ip = Ip::parse(&packet[if tagged { 18 } else { 14 }..]).expect("it is IP");
                prop_assert_eq!(ip.bytes().len(), packet.len() - if tagged { 18 } else { 14 });
                if !v6 {
                    prop_assert_eq!(ipv4_header(&ip.bytes()[..20]), 0);
                    let id = u16::from_be_bytes([ip.bytes()[4], ip.bytes()[5]]);
                    prop_assert_eq!(id, 0xfffe_u16.wrapping_add(index as u16));
                }
                let part = ip.transport();
                let pseudo = sum(ip.addresses(), u32::from(ip.protocol().0) + part.len() as u32);
                prop_assert_eq!(fold(sum(part, pseudo)), 0xffff);
                if udp {
                    let len = u16::from_be_bytes([part[4], part[5]]);
                    prop_assert_eq!(usize::from(len), part.len());
                    carried.extend_from_slice(&part[8..]);
                } else {
                    let sequence = u32::from_be_bytes([part[4], part[5], part[6], part[7]]);
                    prop_assert_eq!(sequence, 0xffff_fff0_u32.wrapping_add(carried.len() as u32));
                    prop_assert_eq!(part[13] & (FIN | PSH) != 0, index + 1 == count);
                    prop_assert_eq!(part[13] & CWR != 0, index == 0);
                    carried.extend_from_slice(&part[32..]);
                }
            }
            prop_assert_eq!(carried, payload);
        }

        #[test]
        fn no_bytes_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
            kind in 0usize..3,
        ) {
            if let Some(place) = bytes.get_mut(1) {
                *place = [Header::TCP_V4, Header::TCP_V6, Header::UDP][kind];
            }
            if let Some(gso) = Gso::parse(&bytes, true) {
                let mut segment = Vec::new();
                (0..gso.count()).for_each(|index| gso.segment(&bytes, index, &mut segment));
            }
        }
    }

    #[test]
    fn what_is_no_super_packet_is_left_alone() {
        let bytes = super_packet(false, false, false, 1000, &[0; 3000]);
        assert!(Gso::parse(&bytes, true).is_some());
        let mut plain = bytes.clone();
        plain[1] = 0;
        assert_eq!(Gso::parse(&plain, true), None);
        assert_eq!(Gso::parse(&bytes[..40], true), None);
        let mut tiny = bytes;
        tiny[4..6].copy_from_slice(&1u16.to_ne_bytes());
        assert_eq!(Gso::parse(&tiny, true), None);
    }
}
