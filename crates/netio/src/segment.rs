//! Super-packets from the host, cut into packets.
//!
//! Principle: TCP segmentation offload as a network card does it ([`crate::gso`]), in place:
//! headers are written in front of each piece of payload, over the piece before, which was sent
//! already, so no payload is copied. Checksums are finished here, because no card follows.

use crate::gso;
use crate::tun::Offload;
use crate::vnet::finish_checksum;

/// Headers of at most this many bytes: IPv4 with options or IPv6 with short extensions, and TCP.
const HEADERS: usize = 160;
/// A segment carries at least this many bytes of payload; no path is that narrow (RFC 791: 68
/// bytes of packet).
const LEAST: usize = 8;
/// Where TCP's checksum stands in its header.
const CHECKSUM: usize = 16;

/// Finishes what `offload` leaves to do to `packet` and hands it, or every segment of it, to
/// `each`. Returns whether that was possible; otherwise the packet is lost.
pub fn finish(packet: &mut [u8], offload: Offload, mut each: impl FnMut(&[u8])) -> bool {
    match (offload.segment, offload.checksum) {
        (None, None) => each(packet),
        (None, Some((start, offset))) => {
            if finish_checksum(packet, start.into(), offset.into()).is_none() {
                return false;
            }
            each(packet);
        }
        (Some(size), checksum) => {
            let Some(plan) = Plan::new(packet, size.into(), checksum.map(|sum| sum.0.into()))
            else {
                return false;
            };
            plan.run(packet, each);
        }
    }
    true
}

/// Way in which a super-packet is cut.
struct Plan {
    /// Its headers.
    bytes: [u8; HEADERS],
    transport: usize,
    headers: gso::Headers,
}

impl Plan {
    /// Returns `None` for a packet that is not TCP over IP with room for its headers.
    fn new(packet: &[u8], size: usize, start: Option<usize>) -> Option<Plan> {
        let v6 = packet.first()? >> 4 == 6;
        let least = if v6 { 40 } else { 20 };
        let transport = match start {
            Some(start) => start,
            None if v6 => 40,
            None => usize::from(packet[0] & 0xf) * 4,
        };
        let data_offset = usize::from(packet.get(transport + 12)? >> 4) * 4;
        let payload = transport + data_offset;
        let fits = transport >= least && data_offset >= 20 && payload <= HEADERS;
        if !fits || size < LEAST || payload > packet.len() {
            return None;
        }
        let mut bytes = [0; HEADERS];
        bytes[..payload].copy_from_slice(&packet[..payload]);
        let headers = gso::Headers::tcp(v6, transport, payload, size);
        Some(Plan { bytes, transport, headers })
    }

    fn run(self, packet: &mut [u8], mut each: impl FnMut(&[u8])) {
        let gso::Headers { len, size, .. } = self.headers;
        let (end, mut at, mut index) = (packet.len(), len, 0);
        loop {
            let next = end.min(at + size);
            let segment = &mut packet[at - len..next];
            segment[..len].copy_from_slice(&self.bytes[..len]);
            self.headers.complete(segment, index, next == end);
            // The headers have room for it: `new` made sure.
            let _ = finish_checksum(segment, self.transport, CHECKSUM);
            each(segment);
            if next == end {
                return;
            }
            (at, index) = (next, index + 1);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use sheaf_wire::checksum::{fold, ipv4_header, is_unfinished, sum};
    use sheaf_wire::ip::{Ip, Version, example_udp};

    const FIN: u8 = 0x01;
    const PSH: u8 = 0x08;

    /// A super-packet of TCP with 12 bytes of options, all flags that matter, and its payload.
    pub fn super_packet(version: Version, payload: usize) -> (Vec<u8>, usize) {
        let mut packet = match version {
            Version::V4 => {
                let mut header = vec![0x45, 0, 0, 0, 0xff, 0xfe, 0x40, 0, 64, 6, 0, 0];
                header.extend([10, 0, 0, 1, 10, 0, 0, 2]);
                header
            }
            Version::V6 => {
                let mut header = vec![0x60, 0, 0, 0, 0, 0, 6, 64];
                header.extend((0..32u8).map(|byte| byte | 0x20));
                header
            }
        };
        let transport = packet.len();
        packet.extend([0x12, 0x34, 0, 80, 0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 1, 0x80, 0x99]);
        packet.extend([1, 0, 0, 0, 0, 0]);
        packet.extend([1; 12]);
        packet.extend((0..payload).map(|at| (at * 7) as u8));
        let len = packet.len() as u16;
        match version {
            Version::V4 => packet[2..4].copy_from_slice(&len.to_be_bytes()),
            Version::V6 => packet[4..6].copy_from_slice(&(len - 40).to_be_bytes()),
        }
        (packet, transport)
    }

    fn cut(version: Version, payload: usize, size: u16) -> (Vec<Vec<u8>>, usize) {
        let (mut packet, transport) = super_packet(version, payload);
        let offload = Offload { checksum: Some((transport as u16, 16)), segment: Some(size) };
        let mut segments = Vec::new();
        assert!(finish(&mut packet, offload, |segment| segments.push(segment.to_vec())));
        (segments, transport)
    }

    fn transport_sum(packet: &[u8]) -> u16 {
        let view = Ip::parse(packet).unwrap();
        let len = view.transport().len() as u32;
        fold(sum(view.transport(), sum(view.addresses(), 6 + len)))
    }

    #[test]
    fn segments_carry_the_payload_whole_with_lengths_numbers_and_checksums_that_are_right() {
        for version in [Version::V4, Version::V6] {
            for (payload, size, count) in [(5000, 1448, 4), (2896, 1448, 2), (10, 1448, 1)] {
                let (segments, transport) = cut(version, payload, size);
                assert_eq!(segments.len(), count);
                let mut data = Vec::new();
                for (number, segment) in segments.iter().enumerate() {
                    let view = Ip::parse(segment).unwrap();
                    assert_eq!(view.bytes().len(), segment.len());
                    assert_eq!(transport_sum(segment), 0xffff, "a right sum is all ones");
                    if version == Version::V4 {
                        assert_eq!(ipv4_header(&segment[..20]), 0);
                        let id = u16::from_be_bytes([segment[4], segment[5]]);
                        assert_eq!(id, 0xfffe_u16.wrapping_add(number as u16));
                    }
                    let tcp = view.transport();
                    let seq = u32::from_be_bytes(tcp[4..8].try_into().unwrap());
                    assert_eq!(seq, 0xffff_fff0_u32.wrapping_add(data.len() as u32));
                    let (first, last) = (number == 0, number + 1 == count);
                    let flags = 0x10 | (u8::from(first) << 7) | (u8::from(last) * (FIN | PSH));
                    assert_eq!(tcp[13], flags, "CWR on the first, FIN and PSH on the last");
                    data.extend_from_slice(&segment[transport + 32..]);
                }
                assert_eq!(data, (0..payload).map(|at| (at * 7) as u8).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn an_unfinished_checksum_of_a_single_packet_is_finished() {
        let right = example_udp(&[3; 21]);
        let mut packet = right.clone();
        let view = Ip::parse(&right).unwrap();
        let len = view.transport().len() as u32;
        let pseudo = fold(sum(view.addresses(), 17 + len));
        packet[26..28].copy_from_slice(&pseudo.to_be_bytes());
        assert_eq!(is_unfinished(&packet), Some(true));
        let offload = Offload { checksum: Some((20, 6)), segment: None };
        let mut finished = Vec::new();
        assert!(finish(&mut packet, offload, |packet| finished.push(packet.to_vec())));
        assert_eq!(finished, [right]);
    }

    #[test]
    fn headers_that_lie_lose_the_packet_and_nothing_else() {
        let (packet, transport) = super_packet(Version::V4, 100);
        for len in 0..transport + 32 {
            let offload = Offload { checksum: Some((transport as u16, 16)), segment: Some(50) };
            assert!(!finish(&mut packet[..len].to_vec(), offload, |_| panic!("{len}")));
        }
        for (start, size) in [(u16::MAX, 50), (0, 50), (20, 0), (130, 50)] {
            let offload = Offload { checksum: Some((start, 16)), segment: Some(size) };
            assert!(!finish(&mut packet.clone(), offload, |_| panic!("{start} {size}")));
        }
        for checksum in [(u16::MAX, 0), (0, u16::MAX), (151, 0)] {
            let offload = Offload { checksum: Some(checksum), segment: None };
            assert!(!finish(&mut packet.clone(), offload, |_| panic!("{checksum:?}")));
        }
    }
}
