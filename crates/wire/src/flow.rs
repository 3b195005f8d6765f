//! Flows: the five-tuple of a packet, and its hash.

use crate::ip::{Ip, Protocol};

/// Addresses, protocol and ports of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FiveTuple<'a> {
    /// Source and destination address, back to back: 8 or 32 bytes.
    pub addresses: &'a [u8],
    /// The protocol.
    pub protocol: Protocol,
    /// Source and destination port; 0 and 0 for a packet without ports. The ports of a fragment are
    /// unknown, so the fragments of a flow stay together at least.
    pub ports: (u16, u16),
}

impl<'a> FiveTuple<'a> {
    /// The five-tuple of `packet`.
    pub fn of(packet: &Ip<'a>) -> FiveTuple<'a> {
        FiveTuple {
            addresses: packet.addresses(),
            protocol: packet.protocol(),
            ports: packet.ports().unwrap_or_default(),
        }
    }

    /// Its hash. A `seed` that others do not know keeps them from choosing flows that collide.
    pub fn hash(&self, seed: u64) -> u64 {
        let transport = u64::from(self.protocol.0) << 32
            | u64::from(self.ports.0) << 16
            | u64::from(self.ports.1);
        fold(mix(seed ^ transport), self.addresses)
    }
}

/// Mixes `bytes` into a hash, eight at a time.
pub fn fold(hash: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(hash, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(hash ^ u64::from_le_bytes(word))
    })
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): every bit of the input moves half of
/// the output's. 0 stays 0.
pub const fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::example_udp;

    #[test]
    fn a_flow_has_one_hash_whatever_its_payload_and_another_one_with_another_port() {
        let hash = |packet: &[u8]| FiveTuple::of(&Ip::parse(packet).unwrap()).hash(1);
        let mut packet = example_udp(&[0; 8]);
        let before = hash(&packet);
        assert_eq!(hash(&example_udp(&[9; 30])), before);
        packet[21] ^= 1;
        assert_ne!(hash(&packet), before);
    }

    #[test]
    fn fragments_of_a_flow_are_one_flow() {
        let mut first = example_udp(&[0; 8]);
        first[6] = 0x20; // more fragments
        let mut second = first.clone();
        second[20..24].copy_from_slice(&[1, 2, 3, 4]); // data, where the first one has ports
        let tuple = |packet: &[u8]| FiveTuple::of(&Ip::parse(packet).unwrap()).hash(0);
        assert_eq!(tuple(&first), tuple(&second));
    }
}
