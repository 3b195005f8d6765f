//! The other end: takes meta packets apart, and frames of format 2 where these were agreed on.
//!
//! Everything is checked before anything is delivered; a refused meta packet is dropped whole and
//! counted by reason. Congestion marks of the outer header reach the inner packets (RFC 6040).
//!
//! Principle of trust: a hop limit of 255 outside proves that the sender is on the link (GTSM,
//! RFC 5082), so a neighbour has to send it. A far end cannot prove where it is. Therefore nothing
//! is taken from its meta packets that the host would believe only of a neighbour: neighbour
//! discovery (RFC 4861), a hop limit of 255, link-local and multicast addresses. Such inner packets
//! are dropped one by one.
//!
//! Frames to a group ([`sheaf_wire::group`]) come from neighbours only.

use crate::inner::Inner;
use crate::receiver::{Carrier, Received, Receiver};
use sheaf_wire::aggfrag::{self, FEEDBACK, FRAME};
use sheaf_wire::compress::feedback::Feedback;
use sheaf_wire::ecn::Ecn;
use sheaf_wire::ethernet;
use sheaf_wire::group;
use sheaf_wire::header::set_ecn;
use sheaf_wire::ip::{Ip, Protocol, Version};
use sheaf_wire::meta::{HOP_LIMIT_NEIGHBOUR, Meta, Outer, Refusal, Repr};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use thiserror::Error;

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

    /// Whether this address is given one by one, not as one of any.
    fn names(&self, address: IpAddr) -> bool {
        self.neighbours.contains(&address) || self.far_ends.contains(&address)
    }

    /// Whether a station on the link with this address may send frames without a header of IP.
    fn has_station(&self, address: IpAddr) -> bool {
        self.any || self.neighbours.contains(&address)
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

/// Outcome of a meta packet that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Its packets were delivered. If the message has items, the caller sends it to whom the packet
    /// came from.
    Delivered(Feedback),
    /// It was a message about what was sent to where it came from: for
    /// [`Aggregator::said`](crate::Aggregator::said).
    Heard(Feedback),
}

/// Reason for which a meta packet was dropped whole.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refused {
    /// By its outer header, or in format 1.
    #[error(transparent)]
    Meta(#[from] Refusal),
    /// In format 2.
    #[error(transparent)]
    Frame(#[from] aggfrag::Refusal),
}

/// Takes meta packets apart and counts them.
#[derive(Clone, Debug)]
pub struct Splitter {
    senders: Senders,
    /// `None`: format 2 is not taken.
    receiver: Option<Receiver>,
    counts: Counts,
    refused: [u64; Refusal::ALL.len()],
    refused_frames: [u64; aggfrag::Refusal::ALL.len()],
}

/// Counters of what was accepted.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    meta_packets: u64,
    packets: u64,
    not_capable: u64,
    only_neighbours_say: u64,
}

impl Splitter {
    /// Accepts meta packets from `senders`.
    pub fn new(senders: Senders) -> Self {
        Splitter {
            senders,
            receiver: None,
            counts: Counts::default(),
            refused: Default::default(),
            refused_frames: Default::default(),
        }
    }

    /// Takes format 2, too. `secret` is a random number that no sender can know.
    pub fn with_frames(self, secret: u64) -> Self {
        Splitter { receiver: Some(Receiver::new(secret)), ..self }
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

    /// Splits the meta packet `bytes` and hands what is in it to `deliver`, in order.
    ///
    /// An inner packet whose ECN field changes is changed in place, its checksum with it.
    pub fn split(
        &mut self,
        bytes: &mut [u8],
        deliver: impl FnMut(Inner<'_>),
    ) -> Result<Split, Refused> {
        let result = self.take_apart(bytes, deliver);
        self.count(&result);
        result
    }

    fn count(&mut self, result: &Result<Split, Refused>) {
        match *result {
            Ok(_) => {}
            Err(Refused::Meta(refusal)) => self.refused[refusal as usize] += 1,
            Err(Refused::Frame(refusal)) => self.refused_frames[refusal as usize] += 1,
        }
    }

    /// The same for the payload of an Ethernet frame of [`ethernet::FRAMES`] between stations with
    /// the link addresses `outer`. Where it is refused for [`Refusal::NotMeta`],
    /// [`Refusal::UnknownPeer`] or [`aggfrag::Refusal::SubType`], it is not Sheaf's, or not for
    /// this splitter, and goes on as it is.
    pub fn split_link(
        &mut self,
        outer: Outer,
        payload: &[u8],
        deliver: impl FnMut(Inner<'_>),
    ) -> Result<Split, Refused> {
        let result = self.take_link_apart(outer, payload, deliver);
        self.count(&result);
        result
    }

    fn take_link_apart(
        &mut self,
        outer: Outer,
        payload: &[u8],
        deliver: impl FnMut(Inner<'_>),
    ) -> Result<Split, Refused> {
        let source = outer.source();
        if self.receiver.is_none() || !outer.is_link() {
            return Err(Refusal::NotMeta.into());
        }
        if !self.senders.has_station(source) {
            return Err(Refusal::UnknownPeer.into());
        }
        if !matches!(payload.first(), Some(&(FRAME | FEEDBACK))) {
            return Err(aggfrag::Refusal::SubType.into());
        }
        if payload.len() > aggfrag::MAX_LEN {
            return Err(aggfrag::Refusal::Oversized.into());
        }
        // Nothing marks such a frame, and nobody forwards it.
        let named = self.senders.names(source);
        let destination = outer.destination();
        let carrier = Carrier { source, destination, ecn: Ecn::NotEct, named };
        self.take_frame(carrier, Origin::Neighbour, payload, deliver)
    }

    /// Takes the payload of format 2 apart.
    fn take_frame(
        &mut self,
        carrier: Carrier,
        origin: Origin,
        payload: &[u8],
        mut deliver: impl FnMut(Inner<'_>),
    ) -> Result<Split, Refused> {
        let (counts, receiver) = (&mut self.counts, self.receiver.as_mut());
        let receiver = receiver.ok_or(Refusal::NotMeta)?;
        if payload[0] == FEEDBACK {
            return Ok(Split::Heard(Feedback::parse(payload)?));
        }
        let feedback = receiver.receive(carrier, payload, |inner, ecn| {
            counts.deliver(inner, (origin, ecn), &mut deliver);
        })?;
        counts.meta_packets += 1;
        Ok(Split::Delivered(feedback))
    }

    fn take_apart(
        &mut self,
        bytes: &mut [u8],
        mut deliver: impl FnMut(Inner<'_>),
    ) -> Result<Split, Refused> {
        // The sender first, so that a stranger's flood costs no walk over the inner packets.
        let (repr, payload) = Repr::with_payload(bytes)?;
        let origin = self.senders.origin(&repr)?;
        let counts = &mut self.counts;
        if repr.outer.is_to_group() {
            if origin != Origin::Neighbour {
                return Err(Refusal::NotFromTheLink.into());
            }
            let receiver = self.receiver.as_mut().filter(|_| is_format_2(payload));
            let receiver = receiver.ok_or(aggfrag::Refusal::Group)?;
            let ends = group::ends(payload, repr.outer.destination())?;
            receiver.took_one_to_a_group();
            counts.meta_packets += 1;
            let (payload, mut at) = (&mut bytes[repr.header_len()..], aggfrag::HEADER_LEN);
            for end in ends {
                let packet = Inner::ip(&mut payload[at..end]);
                counts.deliver(packet, (origin, repr.ecn), &mut deliver);
                at = end;
            }
            return Ok(Split::Delivered(Feedback::default()));
        }
        if self.receiver.is_some() && is_format_2(payload) {
            let source = repr.outer.source();
            let named = self.senders.names(source);
            let destination = repr.outer.destination();
            let carrier = Carrier { source, destination, ecn: repr.ecn, named };
            return self.take_frame(carrier, origin, payload, deliver);
        }
        let count = Meta::parse(bytes)?.len();
        counts.meta_packets += 1;
        let mut at = repr.header_len();
        for _ in 0..count {
            let Ok(view) = Ip::parse(&bytes[at..]) else { break };
            let len = view.bytes().len();
            counts.deliver(Inner::ip(&mut bytes[at..at + len]), (origin, repr.ecn), &mut deliver);
            at += len;
        }
        Ok(Split::Delivered(Feedback::default()))
    }

    /// Meta packets taken apart.
    pub fn meta_packets(&self) -> u64 {
        self.counts.meta_packets
    }

    /// Packets delivered.
    pub fn packets(&self) -> u64 {
        self.counts.packets
    }

    /// Inner packets dropped because they met congestion and cannot be marked (RFC 6040).
    pub fn not_capable(&self) -> u64 {
        self.counts.not_capable
    }

    /// Inner packets of far ends dropped because only a neighbour may send them (RFC 5082).
    pub fn only_neighbours_say(&self) -> u64 {
        self.counts.only_neighbours_say
    }

    /// Meta packets refused for `reason`.
    pub fn refused(&self, reason: Refusal) -> u64 {
        self.refused[reason as usize]
    }

    /// Frames of format 2 refused for `reason`.
    pub fn refused_frames(&self, reason: aggfrag::Refusal) -> u64 {
        self.refused_frames[reason as usize]
    }

    /// Counters of format 2; `None` where it is not taken.
    pub fn received(&self) -> Option<Received> {
        self.receiver.as_ref().map(Receiver::received)
    }
}

impl Counts {
    /// Delivers one inner packet, unless its sender may not send it or it met congestion that it
    /// cannot be marked with; or an Ethernet payload, which only a neighbour may send.
    fn deliver(
        &mut self,
        inner: Inner<'_>,
        (origin, outer): (Origin, Ecn),
        deliver: &mut impl FnMut(Inner<'_>),
    ) {
        if !ethernet::is_ip(inner.ethertype) {
            match origin {
                Origin::Neighbour => {
                    self.packets += 1;
                    deliver(inner);
                }
                Origin::Anywhere => self.only_neighbours_say += 1,
            }
            return;
        }
        let packet = inner.bytes;
        let Ok(view) = Ip::parse(packet) else { return };
        let before = view.ecn();
        let believed = origin == Origin::Neighbour || !only_neighbours_say(&view);
        match before.decapsulate(outer) {
            _ if !believed => self.only_neighbours_say += 1,
            None => self.not_capable += 1,
            Some(ecn) => {
                if ecn != before {
                    set_ecn(packet, ecn);
                }
                self.packets += 1;
                deliver(Inner::ip(packet));
            }
        }
    }
}

/// Whether the payload behind an outer header is format 2.
fn is_format_2(payload: &[u8]) -> bool {
    payload.first().is_some_and(|first| first >> 4 == 0)
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
