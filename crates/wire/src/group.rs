//! Frames of format 2 to a group of hosts.
//!
//! The outer header has the group's address as its destination and hop limit 255, and the Ethernet
//! frame around it the group's link address: switches that snoop on groups and the filters of
//! receivers treat it as they treat the packets that are in it. Behind it is a header of
//! [`aggfrag`](crate::aggfrag) with tag, number and block offset 0, and then nothing but whole
//! packets to that very group, or a pad.
//!
//! On a radio nobody acknowledges such a frame and nobody repeats it, and receivers come and go.
//! So each frame stands for itself: no packet continues in the next one, no header is compressed,
//! and a receiver keeps nothing from one frame to another.

use crate::aggfrag::{FEEDBACK, Header, MAX_BLOCKS, Refusal, packet_len};
use crate::ip::Ip;
use std::net::IpAddr;

/// The header of each frame.
pub const HEADER: Header = Header { tag: 0, sequence: 0, offset: 0 };

/// First three octets of the groups of IPv4 that no router forwards (RFC 5771, section 4).
const V4_OF_THE_LINK: [u8; 3] = [224, 0, 0];
/// The widest scope of IPv6 within a link: below it are the interface and what is
/// reserved (RFC 7346, section 2).
const V6_LINK_SCOPE: u8 = 2;

/// Whether packets to `address` may share frames: a group, but none of those that are the link's
/// own. In these, neighbours find each other, routers speak and names are looked up, by hosts
/// without Sheaf, too.
pub fn may_share(address: IpAddr) -> bool {
    address.is_multicast()
        && match address {
            IpAddr::V4(v4) => v4.octets()[..3] != V4_OF_THE_LINK,
            IpAddr::V6(v6) => v6.octets()[1] & 0xf > V6_LINK_SCOPE,
        }
}

/// Checks all of the payload `bytes` of a frame to `group`; returns the end of each packet,
/// counted from the start of the payload.
pub fn ends(bytes: &[u8], group: IpAddr) -> Result<Vec<usize>, Refusal> {
    if bytes.first() == Some(&FEEDBACK) {
        return Err(Refusal::Group);
    }
    let (header, body) = Header::parse(bytes)?;
    if header.offset != 0 {
        return Err(Refusal::Group);
    }
    let (mut ends, mut at) = (Vec::new(), bytes.len() - body.len());
    while at < bytes.len() {
        let rest = &bytes[at..];
        match rest[0] >> 4 {
            0 if rest.iter().all(|byte| *byte == 0) => break,
            0 => return Err(Refusal::Padding),
            4 | 6 => {
                let len = packet_len(rest)?;
                let packet = Ip::parse(&rest[..len]).map_err(|_| Refusal::BadPacket)?;
                if packet.destination() != group {
                    return Err(Refusal::Group);
                }
                if ends.len() == MAX_BLOCKS {
                    return Err(Refusal::TooMany);
                }
                at += len;
                ends.push(at);
            }
            _ => return Err(Refusal::Group),
        }
    }
    if ends.is_empty() { Err(Refusal::Empty) } else { Ok(ends) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::example_udp;
    use proptest::prelude::*;

    const GROUP: [u8; 4] = [239, 1, 2, 3];

    fn packet(to: [u8; 4], len: usize) -> Vec<u8> {
        let mut packet = example_udp(&vec![7; len]);
        packet[16..20].copy_from_slice(&to);
        packet
    }

    fn frame(blocks: &[&[u8]]) -> Vec<u8> {
        [&HEADER.emit()[..], &blocks.concat()].concat()
    }

    fn refusal(bytes: &[u8]) -> Refusal {
        ends(bytes, GROUP.into()).unwrap_err()
    }

    #[test]
    fn whole_packets_to_the_group_are_found_and_a_pad_behind_them() {
        let (first, second) = (packet(GROUP, 9), packet(GROUP, 0));
        let bytes = frame(&[&first, &second, &[0; 9]]);
        assert_eq!(ends(&bytes, GROUP.into()), Ok(vec![41, 69]));
        assert_eq!((&bytes[4..41], &bytes[41..69]), (&first[..], &second[..]));
    }

    #[test]
    fn whatever_else_is_in_a_frame_has_it_refused_whole() {
        let good = packet(GROUP, 9);
        for other in [[239, 1, 2, 4], [10, 0, 0, 1], [224, 0, 0, 251]] {
            assert_eq!(refusal(&frame(&[&good, &packet(other, 9)])), Refusal::Group);
        }
        // A packet of IPv6 to the same bits; an Ethernet payload; one that goes on; a context.
        let mut mapped = vec![0x60, 0, 0, 0, 0, 0, 17, 64];
        mapped.resize(34, 0);
        mapped.extend_from_slice(&[0xff, 0xff, 239, 1, 2, 3]);
        for block in [&mapped[..], &[0x20, 0, 0x43, 5], &[0x80, 40, 1, 2, 3, 4], &[0xc0; 8]] {
            assert_eq!(refusal(&frame(&[&good, block])), Refusal::Group, "{block:?}");
        }
        assert_eq!(refusal(&[FEEDBACK, 1, 0x30]), Refusal::Group);
        assert_eq!(refusal(&[&[0, 0, 0, 9][..], &good].concat()), Refusal::Group);
        assert_eq!(refusal(&frame(&[&good, &[0, 1]])), Refusal::Padding);
        assert_eq!(refusal(&frame(&[&good[..good.len() - 1]])), Refusal::Truncated);
        assert_eq!(refusal(&frame(&[])), Refusal::Empty);
        assert_eq!(refusal(&frame(&[&packet(GROUP, 0).repeat(MAX_BLOCKS + 1)])), Refusal::TooMany);
    }

    #[test]
    fn groups_of_the_link_and_what_is_no_group_share_no_frames() {
        for (address, shares) in [
            ("239.1.2.3", true),
            ("224.0.1.1", true),
            ("ff05::2", true),
            ("ff1e::1:2", true),
            ("224.0.0.251", false),
            ("ff02::fb", false),
            ("ff12::8384", false),
            ("ff01::1", false),
            ("255.255.255.255", false),
            ("10.0.0.255", false),
            ("fe80::1", false),
        ] {
            assert_eq!(may_share(address.parse().unwrap()), shares, "{address}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = ends(&bytes, GROUP.into());
            let _ = ends(&frame(&[&bytes]), GROUP.into());
        }
    }
}
