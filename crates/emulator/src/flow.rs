//! The flow of a packet, as a hash.

use crate::packet::Packet;
use crate::random::{Dice, Purpose};
use sheaf_wire::flow::{FiveTuple, fold};
use sheaf_wire::ip::Ip;

/// Bytes of the two addresses at the start of an Ethernet header.
const LINK_ADDRESSES: usize = 12;

/// A seeded hash of addresses, protocol and ports. Packets that are not IP are of one flow for each
/// pair of link addresses.
pub(crate) fn flow_hash(packet: &Packet, ip: usize, dice: Dice) -> u64 {
    let seed = dice.word(Purpose::FlowHash, 0);
    match Ip::parse(packet.after_link(ip)) {
        Ok(view) => FiveTuple::of(&view).hash(seed),
        Err(_) => fold(seed, &packet.bytes[..packet.bytes.len().min(ip).min(LINK_ADDRESSES)]),
    }
}
