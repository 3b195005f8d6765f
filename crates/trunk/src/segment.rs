//! Kinds of packets, by what TCP and calls need of their order.

use sheaf_wire::ip::{Ip, Protocol};
use sheaf_wire::{dscp, ethernet};

/// Kind of a packet, by what TCP does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// No segment, or one that nobody acknowledges.
    Other,
    /// An acknowledgement without data.
    Acknowledgement,
    /// The second one of a handshake, SYN and ACK.
    Answer,
    /// With data.
    Data,
}

/// Whether a packet waits for no repair of another: an acknowledgement of TCP alone, as the next
/// one says as much and more, and TCP passes over one that comes late (RFC 9293, section
/// 3.10.7.4); and what is of class EF but TCP, as its receiver plays it by a clock.
pub(crate) fn is_hasty(packet: &[u8], ip: bool) -> bool {
    let Some(view) = view(packet, ip) else { return false };
    match view.protocol() {
        Protocol::TCP => Segment::of_view(&view) == Segment::Acknowledgement,
        _ => view.traffic_class() >> 2 == dscp::EF,
    }
}

/// The IP packet of a packet, or (`ip` false) of an Ethernet frame.
fn view(packet: &[u8], ip: bool) -> Option<Ip<'_>> {
    let packet = if ip { packet } else { packet.get(ethernet::HEADER_LEN..)? };
    Ip::parse(packet).ok()
}

impl Segment {
    /// That of an IP packet, or (`ip` false) of an Ethernet frame.
    pub fn of(packet: &[u8], ip: bool) -> Segment {
        view(packet, ip).map_or(Segment::Other, |view| Segment::of_view(&view))
    }

    fn of_view(view: &Ip<'_>) -> Segment {
        const SYN_ACK: u8 = 0x12;
        const ACK: u8 = 0x10;
        /// FIN, SYN, RST and URG; PSH, ECE and CWR change nothing.
        const SPECIAL: u8 = 0x27;
        if view.protocol() != Protocol::TCP {
            return Segment::Other;
        }
        let header = view.transport();
        let Some(&[length, flags]) = header.get(12..14).filter(|_| !view.is_fragment()) else {
            return Segment::Other;
        };
        if flags & SYN_ACK == SYN_ACK {
            return Segment::Answer;
        }
        match header.len() > 4 * usize::from(length >> 4) {
            true => Segment::Data,
            false if flags & (SPECIAL | ACK) == ACK => Segment::Acknowledgement,
            false => Segment::Other,
        }
    }
}
