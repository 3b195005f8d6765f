//! Ethernet frames, as far as Sheaf reads them, and addresses of stations on the link.

use std::net::{IpAddr, Ipv6Addr};

/// Bytes of the header (IEEE 802.3): two addresses and the EtherType, without VLAN tags.
pub const HEADER_LEN: usize = 14;

/// The least EtherType: below it, the field is a length (IEEE 802.3, clause 3.2.6).
pub const LEAST_TYPE: u16 = 0x0600;
/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;
/// EtherType of batman-adv.
pub const BATMAN: u16 = 0x4305;
/// EtherType of format 2 right behind the Ethernet header ([`aggfrag`](crate::aggfrag)): IEEE 802
/// local experimental 1. Number 2 is that of [`trunk`](crate::trunk) frames.
pub const FRAMES: u16 = 0x88b5;

/// Bytes of a link address at the end of the address that stands for it.
const MAC_AT: usize = 10;
/// First byte of such an address: prefix 100::/64, in which no host is (RFC 6666).
const DISCARD: u8 = 0x01;

/// Whether an EtherType is that of IP.
pub fn is_ip(ethertype: u16) -> bool {
    matches!(ethertype, IPV4 | IPV6)
}

/// EtherType of an IP packet, by its version.
pub fn of_ip(packet: &[u8]) -> u16 {
    if packet.first().is_some_and(|first| first >> 4 == 6) { IPV6 } else { IPV4 }
}

/// The IPv6 address that stands for a station on the link where its frames have no header of IP:
/// 100::/64 with the link address at the end. Streams and contexts are named by addresses of IP,
/// and so is this station; the prefix is for what is to be discarded (RFC 6666), so that no host
/// has the address, and nothing that is sent there by mistake arrives.
pub fn station(mac: [u8; 6]) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets[0] = DISCARD;
    octets[MAC_AT..].copy_from_slice(&mac);
    octets.into()
}

/// The link address for which `address` stands, if it is that of a [`station`].
pub fn link_address(address: IpAddr) -> Option<[u8; 6]> {
    let IpAddr::V6(v6) = address else { return None };
    let mac = *v6.octets().last_chunk()?;
    (station(mac) == v6).then_some(mac)
}

/// The header of a frame from station `src` to station `dst`.
pub fn header(src: [u8; 6], dst: [u8; 6], ethertype: u16) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..6].copy_from_slice(&dst);
    header[6..12].copy_from_slice(&src);
    header[12..].copy_from_slice(&ethertype.to_be_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_the_discard_prefix_stands_for_a_station_and_no_other_does() {
        let mac = [2, 0, 0, 0, 9, 1];
        assert_eq!(station(mac).to_string(), "100::200:0:901");
        assert_eq!(link_address(station(mac).into()), Some(mac));
        for other in ["100::1:200:0:901", "fe80::200:0:901", "101::200:0:901", "10.0.0.1"] {
            assert_eq!(link_address(other.parse().unwrap()), None, "{other}");
        }
    }
}
