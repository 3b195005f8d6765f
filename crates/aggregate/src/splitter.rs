//! The other end: takes meta packets apart.
//!
//! Everything is checked before anything is delivered; a refused meta packet is dropped whole and
//! counted by reason. Congestion marks of the outer header reach the inner packets (RFC 6040).

use sheaf_wire::checksum;
use sheaf_wire::ecn::Ecn;
use sheaf_wire::ip::{Ip, Version};
use sheaf_wire::meta::{Meta, Refusal};
use std::collections::HashSet;
use std::net::IpAddr;

/// Who may send meta packets.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Peers {
    Any,
    These(HashSet<IpAddr>),
}

/// Takes meta packets apart and counts what it saw.
#[derive(Clone, Debug)]
pub struct Splitter {
    peers: Peers,
    meta_packets: u64,
    packets: u64,
    not_capable: u64,
    refused: [u64; Refusal::ALL.len()],
}

impl Splitter {
    /// Accepts meta packets from these addresses only.
    pub fn accepting(peers: impl IntoIterator<Item = IpAddr>) -> Self {
        Splitter::new(Peers::These(peers.into_iter().collect()))
    }

    /// Accepts meta packets from anyone.
    pub fn accepting_any() -> Self {
        Splitter::new(Peers::Any)
    }

    fn new(peers: Peers) -> Self {
        Splitter { peers, meta_packets: 0, packets: 0, not_capable: 0, refused: Default::default() }
    }

    /// Splits the meta packet `bytes` and hands each inner packet to `deliver`, in order.
    ///
    /// An inner packet whose ECN field changes is changed in place, its checksum with it.
    pub fn split(
        &mut self,
        bytes: &mut [u8],
        mut deliver: impl FnMut(&mut [u8]),
    ) -> Result<(), Refusal> {
        let (outer, mut at, count) = match self.accept(bytes) {
            Ok(accepted) => accepted,
            Err(refusal) => {
                self.refused[refusal as usize] += 1;
                return Err(refusal);
            }
        };
        self.meta_packets += 1;
        for _ in 0..count {
            let Ok(view) = Ip::parse(&bytes[at..]) else { break };
            let (inner, len) = (view.ecn(), view.bytes().len());
            let packet = &mut bytes[at..at + len];
            at += len;
            match inner.decapsulate(outer) {
                None => self.not_capable += 1,
                Some(ecn) => {
                    if ecn != inner {
                        set_ecn(packet, ecn);
                    }
                    self.packets += 1;
                    deliver(packet);
                }
            }
        }
        Ok(())
    }

    fn accept(&self, bytes: &[u8]) -> Result<(Ecn, usize, usize), Refusal> {
        let meta = Meta::parse(bytes)?;
        let repr = meta.repr();
        match &self.peers {
            Peers::These(peers) if !peers.contains(&repr.outer.source()) => {
                Err(Refusal::UnknownPeer)
            }
            _ => Ok((repr.ecn, repr.header_len(), meta.len())),
        }
    }

    /// Meta packets taken apart.
    pub fn meta_packets(&self) -> u64 {
        self.meta_packets
    }

    /// Packets delivered.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Inner packets dropped because they met congestion and cannot be marked (RFC 6040).
    pub fn not_capable(&self) -> u64 {
        self.not_capable
    }

    /// Meta packets refused for `reason`.
    pub fn refused(&self, reason: Refusal) -> u64 {
        self.refused[reason as usize]
    }
}

/// Writes the ECN field of a whole IP packet and, for IPv4, adjusts its header checksum.
fn set_ecn(packet: &mut [u8], ecn: Ecn) {
    let word = |at: usize, packet: &[u8]| u16::from_be_bytes([packet[at], packet[at + 1]]);
    match Ip::parse(packet).map(|view| view.version()) {
        Ok(Version::V4) => {
            let before = word(0, packet);
            packet[1] = packet[1] & !3 | ecn as u8;
            let checksum = checksum::adjust(word(10, packet), before, word(0, packet));
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        Ok(Version::V6) => packet[1] = packet[1] & !0x30 | (ecn as u8) << 4,
        Err(_) => {}
    }
}
