//! Frames of batman-adv (linux/batadv_packet.h), as far as their flows have to be told apart.

use crate::ethernet;
use crate::ip::Ip;

/// Type and version of a unicast frame.
const UNICAST: u8 = 0x40;
const VERSION: u8 = 15;
/// Bytes of its header, with the Ethernet header behind it.
const HEADER_LEN: usize = 10 + ethernet::HEADER_LEN;
/// First byte of an IPv4 packet without options.
const V4_FIRST: u8 = 0x45;

/// The packet of UDP or TCP, with its ports, in a unicast frame of the mesh. `None` where there is
/// another one, or none whose flow can be seen: fragments, VLANs, control frames of the mesh.
pub fn inner(frame: &[u8]) -> Option<Ip<'_>> {
    let (header, packet) = frame.split_at_checked(HEADER_LEN)?;
    let ethertype = u16::from_be_bytes([header[HEADER_LEN - 2], header[HEADER_LEN - 1]]);
    let is_plain = match ethertype {
        ethernet::IPV4 => packet.first() == Some(&V4_FIRST),
        ethernet::IPV6 => packet.first().is_some_and(|first| first >> 4 == 6),
        _ => false,
    };
    if header[..2] != [UNICAST, VERSION] || !is_plain {
        return None;
    }
    Ip::parse(packet).ok().filter(|packet| packet.ports().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::example_udp;

    fn unicast(packet: &[u8]) -> Vec<u8> {
        let mut frame = vec![UNICAST, VERSION, 50, 1];
        frame.extend_from_slice(&[2; 6 + 12]);
        frame.extend_from_slice(&ethernet::of_ip(packet).to_be_bytes());
        frame.extend_from_slice(packet);
        frame
    }

    #[test]
    fn the_packet_in_a_unicast_frame_is_found_and_nothing_in_others() {
        let packet = example_udp(&[7; 20]);
        let frame = unicast(&packet);
        assert_eq!(inner(&frame).unwrap().bytes(), packet);
        let mut fragment = packet.clone();
        fragment[6] = 0x20;
        assert!(inner(&unicast(&fragment)).is_none());
        for (at, value) in [(0, 0x41), (1, 14), (22, 0x81), (24, 0x46)] {
            let mut other = frame.clone();
            other[at] = value;
            assert!(inner(&other).is_none(), "byte {at}");
        }
        for len in 0..frame.len() - 20 {
            assert!(inner(&frame[..len]).is_none(), "{len} bytes");
        }
    }
}
