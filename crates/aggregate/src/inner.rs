//! Content of meta packets, as a splitter hands it on.

use sheaf_wire::ethernet;

/// A packet or payload that was inside of a meta packet.
#[derive(Debug, PartialEq, Eq)]
pub struct Inner<'a> {
    /// EtherType: of IP, or of another protocol on the link, such as batman-adv.
    pub ethertype: u16,
    /// The IP packet, or what stands behind the Ethernet header.
    pub bytes: &'a mut [u8],
}

impl<'a> Inner<'a> {
    /// An IP packet.
    pub(crate) fn ip(packet: &'a mut [u8]) -> Inner<'a> {
        Inner { ethertype: ethernet::of_ip(packet), bytes: packet }
    }
}
