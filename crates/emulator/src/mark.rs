//! Congestion marks in the IP header (RFC 3168), with the IPv4 header checksum kept right.

use sheaf_wire::checksum::fold;
use sheaf_wire::ecn::Ecn;

/// The TOS or traffic class of the IP packet that begins at `ip`; `None` if it is not IP.
pub fn class(bytes: &[u8], ip: usize) -> Option<u8> {
    match bytes.get(ip..).unwrap_or(&[]) {
        [first, class, ..] if first >> 4 == 4 => Some(*class),
        [first, class, ..] if first >> 4 == 6 => Some(first << 4 | class >> 4),
        _ => None,
    }
}

/// The ECN field of the IP packet that begins at `ip`; `Ecn::NotEct` if it is not IP.
pub fn ecn(bytes: &[u8], ip: usize) -> Ecn {
    class(bytes, ip).map_or(Ecn::NotEct, Ecn::from_bits)
}

/// Marks the packet with CE and returns whether it carries that mark now: false for one whose
/// sender does not understand it.
pub fn mark(bytes: &mut [u8], ip: usize) -> bool {
    match ecn(bytes, ip) {
        Ecn::NotEct => return false,
        Ecn::Ce => return true,
        Ecn::Ect0 | Ecn::Ect1 => {}
    }
    let header = &mut bytes[ip..];
    if header[0] >> 4 == 6 {
        header[1] |= 0x30;
        return true;
    }
    if header.len() < 20 {
        return false;
    }
    // RFC 1624, equation 3: the checksum is changed by what changed, so that a wrong one stays
    // wrong.
    let word = |b: &[u8], at: usize| u32::from(u16::from_be_bytes([b[at], b[at + 1]]));
    let before = word(header, 0);
    header[1] |= 3;
    let sum = (!word(header, 10) & 0xffff) + (!before & 0xffff) + word(header, 0);
    let checksum = !fold(sum);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sheaf_wire::checksum::ipv4_header;

    proptest! {
        #[test]
        fn a_marked_ipv4_header_has_the_checksum_of_its_bytes(
            tos in any::<u8>(), id in any::<u16>(), link_header in 0usize..20
        ) {
            let mut packet = sheaf_wire::ip::example_udp(&[0; 8]);
            packet[1] = tos;
            packet[4..6].copy_from_slice(&id.to_be_bytes());
            packet[10..12].fill(0);
            let checksum = ipv4_header(&packet[..20]);
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
            let mut frame = vec![0xaa; link_header];
            frame.extend_from_slice(&packet);
            let marked = mark(&mut frame, link_header);
            prop_assert_eq!(marked, tos & 3 != 0);
            let class = if marked { tos | 3 } else { tos };
            prop_assert_eq!(frame[link_header + 1], class);
            prop_assert_eq!(ipv4_header(&frame[link_header..link_header + 20]), 0);
        }

        #[test]
        fn no_bytes_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..40), ip in 0usize..50,
        ) {
            mark(&mut bytes, ip);
        }
    }

    #[test]
    fn an_ipv6_packet_is_marked_in_its_traffic_class() {
        let mut packet = [0u8; 40];
        packet[0] = 0x6a;
        packet[1] = 0xa7; // traffic class 0xaa: ECT(0), flow label 7…
        assert!(mark(&mut packet, 0));
        assert_eq!(packet[..2], [0x6a, 0xb7]);
    }
}
