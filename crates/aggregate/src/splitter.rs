//! The other end: takes meta packets apart.
//!
//! Everything is checked before anything is delivered; a refused meta packet is dropped whole and
//! counted by reason. Congestion marks of the outer header reach the inner packets (RFC 6040).
//!
//! Principle of trust: a hop limit of 255 outside proves that the sender is on the link (GTSM,
//! RFC 5082), so a neighbour has to send it. A far end cannot prove where it is. Therefore nothing
//! is taken from its meta packets that the host would believe only of a neighbour: neighbour
//! discovery (RFC 4861), a hop limit of 255, link-local and multicast addresses. Such inner packets
//! are dropped one by one.

use sheaf_wire::header::set_ecn;
use sheaf_wire::ip::{Ip, Protocol, Version};
use sheaf_wire::meta::{HOP_LIMIT_NEIGHBOUR, Meta, Refusal, Repr};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// ICMPv6 types of neighbour discovery, from router solicitation to redirect (RFC 4861).
const DISCOVERY: RangeInclusive<u8> = 133..=137;
/// First octet from which IPv4 addresses are multicast, reserved or broadcast (RFC 1112).
const V4_MULTICAST: u8 = 224;

/// Senders whose meta packets are taken apart. An address may be a neighbour and a far end at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Senders {
    /// Every neighbour.
    pub any: bool,
    /// These neighbours.
    pub neighbours: BTreeSet<IpAddr>,
    /// These hosts behind routers.
    pub far_ends: BTreeSet<IpAddr>,
}

/// Place of a meta packet's sender, as far as the outer header proves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Neighbour,
    Anywhere,
}

impl Senders {
    /// Accepts every neighbour, and no far end.
    pub fn any() -> Senders {
        Senders { any: true, ..Senders::default() }
    }

    /// Accepts these neighbours only.
    pub fn neighbours(addresses: impl IntoIterator<Item = IpAddr>) -> Senders {
        Senders { neighbours: addresses.into_iter().collect(), ..Senders::default() }
    }

    /// Accepts these far ends only.
    pub fn far_ends(addresses: impl IntoIterator<Item = IpAddr>) -> Senders {
        Senders { far_ends: addresses.into_iter().collect(), ..Senders::default() }
    }

    fn origin(&self, repr: &Repr) -> Result<Origin, Refusal> {
        let source = repr.outer.source();
        let neighbour = self.any || self.neighbours.contains(&source);
        if neighbour && repr.hop_limit == HOP_LIMIT_NEIGHBOUR {
            Ok(Origin::Neighbour)
        } else if self.far_ends.contains(&source) {
            Ok(Origin::Anywhere)
        } else if neighbour {
            Err(Refusal::NotFromTheLink)
        } else {
            Err(Refusal::UnknownPeer)
        }
    }
}

/// Takes meta packets apart and counts them.
#[derive(Clone, Debug)]
pub struct Splitter {
    senders: Senders,
    meta_packets: u64,
    packets: u64,
    not_capable: u64,
    only_neighbours_say: u64,
    refused: [u64; Refusal::ALL.len()],
}

impl Splitter {
    /// Accepts meta packets from `senders`.
    pub fn new(senders: Senders) -> Self {
        Splitter {
            senders,
            meta_packets: 0,
            packets: 0,
            not_capable: 0,
            only_neighbours_say: 0,
            refused: Default::default(),
        }
    }

    /// Accepts meta packets from `senders` and from nobody else from now on; goes on counting.
    pub fn set_senders(&mut self, senders: Senders) {
        self.senders = senders;
    }

    /// Accepts meta packets from these neighbours only.
    pub fn accepting(neighbours: impl IntoIterator<Item = IpAddr>) -> Self {
        Splitter::new(Senders::neighbours(neighbours))
    }

    /// Accepts meta packets from every neighbour.
    pub fn accepting_any() -> Self {
        Splitter::new(Senders::any())
    }

    /// Splits the meta packet `bytes` and hands each inner packet to `deliver`, in order.
    ///
    /// An inner packet whose ECN field changes is changed in place, its checksum with it.
    pub fn split(
        &mut self,
        bytes: &mut [u8],
        mut deliver: impl FnMut(&mut [u8]),
    ) -> Result<(), Refusal> {
        let (origin, repr, count) = match self.accept(bytes) {
            Ok(accepted) => accepted,
            Err(refusal) => {
                self.refused[refusal as usize] += 1;
                return Err(refusal);
            }
        };
        self.meta_packets += 1;
        let mut at = repr.header_len();
        for _ in 0..count {
            let Ok(view) = Ip::parse(&bytes[at..]) else { break };
            let (inner, len) = (view.ecn(), view.bytes().len());
            let believed = origin == Origin::Neighbour || !only_neighbours_say(&view);
            let packet = &mut bytes[at..at + len];
            at += len;
            match inner.decapsulate(repr.ecn) {
                _ if !believed => self.only_neighbours_say += 1,
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

    /// Origin of the meta packet, its outer header, and the number of its inner packets.
    fn accept(&self, bytes: &[u8]) -> Result<(Origin, Repr, usize), Refusal> {
        // The sender first, so that a stranger's flood costs no walk over the inner packets.
        let repr = Repr::parse(bytes)?;
        let origin = self.senders.origin(&repr)?;
        Ok((origin, repr, Meta::parse(bytes)?.len()))
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

    /// Inner packets of far ends dropped because only a neighbour may send them (RFC 5082).
    pub fn only_neighbours_say(&self) -> u64 {
        self.only_neighbours_say
    }

    /// Meta packets refused for `reason`.
    pub fn refused(&self, reason: Refusal) -> u64 {
        self.refused[reason as usize]
    }
}

/// Whether a host would believe this packet only when a neighbour sent it.
fn only_neighbours_say(packet: &Ip<'_>) -> bool {
    // Neighbour discovery behind extension headers needs no look: it counts with 255 only.
    let discovery = packet.version() == Version::V6
        && packet.protocol() == Protocol::ICMPV6
        && packet.transport().first().is_some_and(|kind| DISCOVERY.contains(kind));
    discovery
        || packet.hop_limit() == HOP_LIMIT_NEIGHBOUR
        || is_of_the_link(packet.source())
        || is_of_the_link(packet.destination())
}

/// Whether an address is valid on one link only, or does not belong to a single host.
fn is_of_the_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.octets()[0] >= V4_MULTICAST,
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_multicast(),
    }
}
