//! Ethernet frames, as far as Sheaf reads them.

/// Bytes of the header (IEEE 802.3): two addresses and the EtherType, without VLAN tags.
pub const HEADER_LEN: usize = 14;
