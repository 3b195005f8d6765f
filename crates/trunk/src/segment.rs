//! What a packet is to TCP.

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
    match Segment::of(packet, ip) {
        Segment::Acknowledgement => true,
        Segment::Answer | Segment::Data => false,
        Segment::Other => {
            let packet = if ip { Some(packet) } else { packet.get(ethernet::HEADER_LEN..) };
            let view = packet.and_then(|packet| Ip::parse(packet).ok());
            view.is_some_and(|view| {
                view.traffic_class() >> 2 == dscp::EF && view.protocol() != Protocol::TCP
            })
        }
    }
}

impl Segment {
    /// That of an IP packet, or (`ip` false) of an Ethernet frame.
    pub fn of(packet: &[u8], ip: bool) -> Segment {
        const SYN_ACK: u8 = 0x12;
        const ACK: u8 = 0x10;
        /// FIN, SYN, RST and URG; PSH, ECE and CWR change nothing.
        const SPECIAL: u8 = 0x27;
        let packet = if ip { Some(packet) } else { packet.get(ethernet::HEADER_LEN..) };
        let view = packet.and_then(|packet| Ip::parse(packet).ok());
        let Some(view) = view.filter(|view| view.protocol() == Protocol::TCP) else {
            return Segment::Other;
        };
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
