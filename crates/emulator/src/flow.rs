//! The flow of a packet, as a hash.

use crate::random::{Dice, Purpose, mix};
use sheaf_wire::ip::Ip;

/// A seeded hash of addresses, protocol and ports. Packets that are not IP are of one flow for each
/// pair of link addresses.
pub(crate) fn flow_hash(bytes: &[u8], ip: usize, dice: Dice) -> u64 {
    let mut hash = dice.word(Purpose::FlowHash, 0);
    match Ip::parse(bytes.get(ip..).unwrap_or(&[])) {
        Ok(view) => {
            // The ports of a fragment are unknown, so fragments of a flow stay together at least.
            let (source, destination) = view.ports().unwrap_or((0, 0));
            let ports = u64::from(source) << 16 | u64::from(destination);
            hash = mix(hash ^ (u64::from(view.protocol().0) << 32 | ports));
            fold(hash, view.addresses())
        }
        Err(_) => fold(hash, &bytes[..bytes.len().min(ip).min(12)]),
    }
}

/// Mixes bytes into a hash.
pub(crate) fn fold(hash: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(hash, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(hash ^ u64::from_le_bytes(word))
    })
}
