//! Ethernet frames, as far as Sheaf reads them.

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

/// Whether an EtherType is that of IP.
pub fn is_ip(ethertype: u16) -> bool {
    matches!(ethertype, IPV4 | IPV6)
}

/// EtherType of an IP packet, by its version.
pub fn of_ip(packet: &[u8]) -> u16 {
    if packet.first().is_some_and(|first| first >> 4 == 6) { IPV6 } else { IPV4 }
}
