//! Fields of an IP header, read and changed in place without a check of the whole packet.

use crate::checksum::adjust;
use crate::ecn::Ecn;

/// Bytes of an IPv4 header without options.
const V4_LEN: usize = 20;
/// Place of the IPv4 header's checksum.
const V4_CHECKSUM: std::ops::Range<usize> = 10..12;

/// The TOS or traffic class of the packet that begins with `bytes`; `None` if that is not IP.
pub fn traffic_class(bytes: &[u8]) -> Option<u8> {
    match bytes {
        [first, class, ..] if first >> 4 == 4 => Some(*class),
        [first, class, ..] if first >> 4 == 6 => Some(first << 4 | class >> 4),
        _ => None,
    }
}

/// The ECN field of the packet that begins with `bytes`; [`Ecn::NotEct`] if that is not IP.
pub fn ecn(bytes: &[u8]) -> Ecn {
    traffic_class(bytes).map_or(Ecn::NotEct, Ecn::from_bits)
}

/// Writes the ECN field of the packet that begins with `bytes`, with the IPv4 header's checksum
/// updated. Leaves alone what is not IP, or too short for an IPv4 header.
pub fn set_ecn(bytes: &mut [u8], ecn: Ecn) {
    match bytes {
        [first, class, ..] if *first >> 4 == 6 => *class = *class & !0x30 | (ecn as u8) << 4,
        [first, ..] if *first >> 4 == 4 && bytes.len() >= V4_LEN => {
            let before = u16::from_be_bytes([bytes[0], bytes[1]]);
            bytes[1] = bytes[1] & !3 | ecn as u8;
            let after = u16::from_be_bytes([bytes[0], bytes[1]]);
            adjust(&mut bytes[V4_CHECKSUM], before, after);
        }
        _ => {}
    }
}

/// Marks the packet that begins with `bytes` with CE (RFC 3168), and returns whether it carries
/// that mark now: false for one whose sender does not understand it.
pub fn set_ce(bytes: &mut [u8]) -> bool {
    if ecn(bytes) == Ecn::NotEct {
        return false;
    }
    set_ecn(bytes, Ecn::Ce);
    ecn(bytes) == Ecn::Ce
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::ipv4_header;
    use crate::ip::{example_udp, example_v4};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_marked_ipv4_header_has_the_checksum_of_its_bytes(
            tos in any::<u8>(), id in any::<u16>()
        ) {
            let mut packet = example_udp(&[0; 8]);
            packet[1] = tos;
            packet[4..6].copy_from_slice(&id.to_be_bytes());
            packet[10..12].fill(0);
            let checksum = ipv4_header(&packet[..20]);
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
            let marked = set_ce(&mut packet);
            prop_assert_eq!(marked, tos & 3 != 0);
            let class = if marked { tos | 3 } else { tos };
            prop_assert_eq!((packet[1], traffic_class(&packet)), (class, Some(class)));
            prop_assert_eq!(ipv4_header(&packet[..20]), 0);
        }

        #[test]
        fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            set_ce(&mut bytes);
        }
    }

    #[test]
    fn an_ipv6_packet_is_marked_in_its_traffic_class() {
        let mut packet = [0u8; 40];
        packet[0] = 0x6a;
        packet[1] = 0xa7; // traffic class 0xaa: ECT(0), flow label 7…
        assert!(set_ce(&mut packet));
        assert_eq!(packet[..2], [0x6a, 0xb7]);
    }

    #[test]
    fn a_wrong_checksum_stays_wrong() {
        let mut packet = example_v4();
        packet[1] = 2;
        set_ce(&mut packet);
        assert_ne!(ipv4_header(&packet), 0);
    }
}
