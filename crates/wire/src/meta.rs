//! The meta packet: several IP packets to one place, in one.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-------+-------+-----------+---+-------------------------------+
//! |   4   |   5   |   DSCP    |ECN|         total length          |
//! +-------+-------+-----------+---+-----+-------------------------+
//! |      identification = 0       |0 1 0|            0            |
//! +---------------+---------------+-----+-------------------------+
//! | TTL 255 or 64 | protocol 253  |        header checksum        |
//! +---------------+---------------+-------------------------------+
//! |                        source address                         |
//! |                      destination address                      |
//! +---------------------------------------------------------------+
//! | first inner packet, complete, header and payload …            |
//! | second inner packet, at once behind it …                      |
//! +---------------------------------------------------------------+
//! ```
//!
//! or the same behind an IPv6 header with next header 253. Inner packets are IPv4 and IPv6 mixed;
//! the first nibble tells which, its own length field where the next begins. The last ends where
//! the meta packet ends. A first nibble of 0 is [format 2](crate::aggfrag), which has a header of
//! its own; any other is refused.
//!
//! Source: "Packet aggregation in Linux" (Karlstad University, 2008), chapter 3; IPv6 inside and
//! outside, class and ECN bits, and the checks are additions. The hop limit says how far the sender
//! is: a neighbour sends 255, which no router leaves as it is (GTSM, RFC 5082).

use crate::checksum;
use crate::ecn::Ecn;
use crate::ethernet;
use crate::ip::{Ip, IpError, Protocol};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use thiserror::Error;

/// The largest meta packet, outer header included, in bytes.
pub const MAX_LEN: usize = 2048;
/// The smallest setting of the largest meta packet, in bytes (KAU's range is 100..2048).
pub const MIN_MAX_LEN: usize = 100;
/// Hop limit (TTL) of a meta packet to a neighbour, and the only one that a splitter accepts from a
/// neighbour: the largest there is, so it cannot have crossed a router (RFC 5082, section 3).
pub const HOP_LIMIT_NEIGHBOUR: u8 = 255;
/// Hop limit (TTL) of a meta packet to a far end: the default of RFC 1700 for what is routed.
pub const HOP_LIMIT_FAR: u8 = 64;
/// The most inner packets in one meta packet: as many bare IPv4 headers as fit.
pub const MAX_PACKETS: usize = (MAX_LEN - field::V4_END) / 20;

mod field {
    use super::Range;
    pub const TOTAL_LEN: Range<usize> = 2..4;
    pub const FRAGMENT: Range<usize> = 6..8;
    pub const TTL: usize = 8;
    pub const PROTOCOL: usize = 9;
    pub const CHECKSUM: Range<usize> = 10..12;
    pub const SRC: Range<usize> = 12..16;
    pub const DST: Range<usize> = 16..20;
    pub const V4_END: usize = 20;

    pub const V6_PAYLOAD_LEN: Range<usize> = 4..6;
    pub const V6_NEXT_HEADER: usize = 6;
    pub const V6_HOP_LIMIT: usize = 7;
    pub const V6_SRC: Range<usize> = 8..24;
    pub const V6_DST: Range<usize> = 24..40;
    pub const V6_END: usize = 40;
}

/// Addresses of the outer header: from one aggregator to the next (hop-to-hop) or to the far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outer {
    /// An IPv4 outer header of 20 bytes.
    V4 {
        /// Our address.
        src: Ipv4Addr,
        /// The splitter's address.
        dst: Ipv4Addr,
    },
    /// An IPv6 outer header of 40 bytes.
    V6 {
        /// Our address.
        src: Ipv6Addr,
        /// The splitter's address.
        dst: Ipv6Addr,
    },
    /// No outer header: a frame of format 2 of the EtherType [`ethernet::FRAMES`], to a neighbour.
    Link {
        /// Our link address.
        src: [u8; 6],
        /// The splitter's link address.
        dst: [u8; 6],
    },
}

impl Outer {
    /// Outer addresses of one family; `None` when the families differ. Two addresses that stand for
    /// stations ([`ethernet::station`]) are those of a link.
    pub fn new(src: IpAddr, dst: IpAddr) -> Option<Outer> {
        if let (Some(src), Some(dst)) = (ethernet::link_address(src), ethernet::link_address(dst)) {
            return Some(Outer::Link { src, dst });
        }
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Some(Outer::V4 { src, dst }),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some(Outer::V6 { src, dst }),
            _ => None,
        }
    }

    /// Bytes of the outer header.
    pub const fn header_len(self) -> usize {
        match self {
            Outer::V4 { .. } => field::V4_END,
            Outer::V6 { .. } => field::V6_END,
            Outer::Link { .. } => 0,
        }
    }

    /// EtherType of what begins with this header.
    pub const fn ethertype(self) -> u16 {
        match self {
            Outer::V4 { .. } => ethernet::IPV4,
            Outer::V6 { .. } => ethernet::IPV6,
            Outer::Link { .. } => ethernet::FRAMES,
        }
    }

    /// Whether it has no header of IP: then only frames of format 2 stand behind it.
    pub const fn is_link(self) -> bool {
        matches!(self, Outer::Link { .. })
    }

    /// The same from the splitter back.
    pub const fn back(self) -> Outer {
        match self {
            Outer::V4 { src, dst } => Outer::V4 { src: dst, dst: src },
            Outer::V6 { src, dst } => Outer::V6 { src: dst, dst: src },
            Outer::Link { src, dst } => Outer::Link { src: dst, dst: src },
        }
    }

    /// Its sender.
    pub fn source(self) -> IpAddr {
        match self {
            Outer::V4 { src, .. } => IpAddr::V4(src),
            Outer::V6 { src, .. } => IpAddr::V6(src),
            Outer::Link { src, .. } => IpAddr::V6(ethernet::station(src)),
        }
    }

    /// Address of who splits it.
    pub fn destination(self) -> IpAddr {
        match self {
            Outer::V4 { dst, .. } => IpAddr::V4(dst),
            Outer::V6 { dst, .. } => IpAddr::V6(dst),
            Outer::Link { dst, .. } => IpAddr::V6(ethernet::station(dst)),
        }
    }

    /// Whether all who hear the frame split it ([`crate::group`]).
    pub fn is_to_group(self) -> bool {
        self.destination().is_multicast()
    }
}

/// Contents of the outer header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Outer addresses.
    pub outer: Outer,
    /// Class of all inner packets, 0..63.
    pub dscp: u8,
    /// Outer ECN field.
    pub ecn: Ecn,
    /// Outer hop limit or TTL: [`HOP_LIMIT_NEIGHBOUR`] or [`HOP_LIMIT_FAR`] when sent, what routers
    /// left of it when received.
    pub hop_limit: u8,
}

impl Repr {
    /// Reads and checks the outer header of the meta packet `bytes`; the inner packets are not
    /// looked at.
    pub fn parse(bytes: &[u8]) -> Result<Repr, Refusal> {
        Repr::with_payload(bytes).map(|(repr, _)| repr)
    }

    /// The same, with the bytes behind the outer header, whose first nibble tells the format: 4 and
    /// 6 are this one, 0 is [`aggfrag`](crate::aggfrag).
    pub fn with_payload(bytes: &[u8]) -> Result<(Repr, &[u8]), Refusal> {
        let outer = Ip::parse(bytes).map_err(|error| match error {
            IpError::Truncated => Refusal::Truncated,
            IpError::Version | IpError::Header => Refusal::BadVersion,
        })?;
        if outer.protocol() != Protocol::META {
            return Err(Refusal::NotMeta);
        }
        if outer.bytes().len() > MAX_LEN {
            return Err(Refusal::Oversized);
        }
        let repr = Repr {
            outer: outer_addresses(&outer)?,
            dscp: outer.dscp(),
            ecn: outer.ecn(),
            hop_limit: outer.hop_limit(),
        };
        Ok((repr, outer.transport()))
    }

    /// The outer header of a message back to the sender of this one.
    pub fn reply(&self) -> Repr {
        // Who is heard with 255 is a neighbour, and believes a neighbour only.
        let hop_limit = match self.hop_limit {
            HOP_LIMIT_NEIGHBOUR => HOP_LIMIT_NEIGHBOUR,
            _ => HOP_LIMIT_FAR,
        };
        Repr { outer: self.outer.back(), dscp: self.dscp, ecn: Ecn::NotEct, hop_limit }
    }

    /// Bytes of the outer header.
    pub const fn header_len(&self) -> usize {
        self.outer.header_len()
    }

    /// Writes the outer header of a meta packet of `len` bytes in all to the start of `bytes`. On a
    /// link it has none.
    ///
    /// # Panics
    /// When `bytes` is shorter than the header or `len` is not in header..=[`MAX_LEN`].
    pub fn emit(&self, len: usize, bytes: &mut [u8]) {
        assert!((self.header_len()..=MAX_LEN).contains(&len), "a meta packet of {len} bytes");
        let class = self.dscp << 2 | self.ecn as u8;
        match self.outer {
            Outer::V4 { src, dst } => {
                let header = &mut bytes[..field::V4_END];
                header.fill(0);
                header[0] = 0x45;
                header[1] = class;
                header[field::TOTAL_LEN].copy_from_slice(&(len as u16).to_be_bytes());
                header[field::FRAGMENT].copy_from_slice(&0x4000u16.to_be_bytes()); // DF
                header[field::TTL] = self.hop_limit;
                header[field::PROTOCOL] = Protocol::META.0;
                header[field::SRC].copy_from_slice(&src.octets());
                header[field::DST].copy_from_slice(&dst.octets());
                let checksum = checksum::ipv4_header(header);
                header[field::CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
            }
            Outer::V6 { src, dst } => {
                let header = &mut bytes[..field::V6_END];
                header.fill(0);
                header[0] = 0x60 | class >> 4;
                header[1] = class << 4;
                let payload = (len - field::V6_END) as u16;
                header[field::V6_PAYLOAD_LEN].copy_from_slice(&payload.to_be_bytes());
                header[field::V6_NEXT_HEADER] = Protocol::META.0;
                header[field::V6_HOP_LIMIT] = self.hop_limit;
                header[field::V6_SRC].copy_from_slice(&src.octets());
                header[field::V6_DST].copy_from_slice(&dst.octets());
            }
            Outer::Link { .. } => {}
        }
    }
}

/// Why a meta packet is refused. It is then dropped whole and counted; nothing of it is delivered.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Refusal {
    /// Not protocol 253: no meta packet at all.
    #[error("not protocol 253")]
    NotMeta,
    /// Shorter than a length field says, outside or inside, or without an inner packet.
    #[error("truncated")]
    Truncated,
    /// Bytes behind the last inner packet.
    #[error("trailing bytes")]
    Trailing,
    /// A meta packet inside a meta packet.
    #[error("nested")]
    Nested,
    /// An inner packet that is neither IPv4 nor IPv6, or whose header is impossible.
    #[error("unknown inner version")]
    BadVersion,
    /// A wrong outer IPv4 header checksum.
    #[error("wrong header checksum")]
    BadChecksum,
    /// Sent by an address that is no peer.
    #[error("unknown peer")]
    UnknownPeer,
    /// An outer IPv4 header with options.
    #[error("outer options")]
    Options,
    /// A fragment of a meta packet.
    #[error("fragment")]
    Fragment,
    /// Longer than [`MAX_LEN`].
    #[error("oversized")]
    Oversized,
    /// From a neighbour, but with a hop limit below [`HOP_LIMIT_NEIGHBOUR`]: it crossed a router.
    #[error("not from the link")]
    NotFromTheLink,
}

impl Refusal {
    /// Every reason, in the order of their discriminants.
    pub const ALL: [Refusal; 11] = [
        Refusal::NotMeta,
        Refusal::Truncated,
        Refusal::Trailing,
        Refusal::Nested,
        Refusal::BadVersion,
        Refusal::BadChecksum,
        Refusal::UnknownPeer,
        Refusal::Options,
        Refusal::Fragment,
        Refusal::Oversized,
        Refusal::NotFromTheLink,
    ];

    /// The name used in statistics and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Refusal::NotMeta => "not-meta",
            Refusal::Truncated => "truncated",
            Refusal::Trailing => "trailing",
            Refusal::Nested => "nested",
            Refusal::BadVersion => "bad-version",
            Refusal::BadChecksum => "bad-checksum",
            Refusal::UnknownPeer => "unknown-peer",
            Refusal::Options => "options",
            Refusal::Fragment => "fragment",
            Refusal::Oversized => "oversized",
            Refusal::NotFromTheLink => "not-from-the-link",
        }
    }
}

/// A checked meta packet: every inner packet has been seen to be whole.
#[derive(Clone, Copy, Debug)]
pub struct Meta<'a> {
    repr: Repr,
    inner: &'a [u8],
    count: usize,
}

impl<'a> Meta<'a> {
    /// Checks all of `bytes`, which begin with the outer IP header. Link padding behind the outer
    /// packet is ignored.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Refusal> {
        let (repr, inner) = Repr::with_payload(bytes)?;
        Ok(Meta { repr, inner, count: count_packets(inner)? })
    }

    /// Contents of the outer header.
    pub fn repr(&self) -> Repr {
        self.repr
    }

    /// Number of packets inside, 1..=[`MAX_PACKETS`].
    pub fn len(&self) -> usize {
        self.count
    }

    /// Never: an empty meta packet is refused.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The inner packets in order.
    pub fn packets(&self) -> Packets<'a> {
        Packets { rest: self.inner }
    }
}

/// The inner packets of a checked meta packet.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Packets<'a> {
    type Item = Ip<'a>;

    fn next(&mut self) -> Option<Ip<'a>> {
        // Checked in `Meta::parse`: the packets tile the bytes, so an error is the end.
        let packet = Ip::parse(self.rest).ok()?;
        self.rest = &self.rest[packet.bytes().len()..];
        Some(packet)
    }
}

/// The outer addresses, after the checks that only IPv4's header needs.
fn outer_addresses(outer: &Ip<'_>) -> Result<Outer, Refusal> {
    let addresses = outer.addresses();
    if let Ok(both) = <[u8; 32]>::try_from(addresses) {
        let (src, dst) = both.split_at(16);
        let octets = |half: &[u8]| <[u8; 16]>::try_from(half).expect("half of 32 bytes");
        return Ok(Outer::V6 { src: octets(src).into(), dst: octets(dst).into() });
    }
    if outer.header_len() != field::V4_END {
        return Err(Refusal::Options);
    }
    if outer.is_fragment() {
        return Err(Refusal::Fragment);
    }
    let header = &outer.bytes()[..field::V4_END];
    if checksum::ipv4_header(header) != 0 {
        return Err(Refusal::BadChecksum);
    }
    let octets = |range: Range<usize>| <[u8; 4]>::try_from(&header[range]).expect("4 bytes");
    Ok(Outer::V4 { src: octets(field::SRC).into(), dst: octets(field::DST).into() })
}

/// Walks the inner packets and counts them, or says what is wrong with the first bad one.
fn count_packets(mut rest: &[u8]) -> Result<usize, Refusal> {
    let mut count = 0;
    while !rest.is_empty() {
        let packet = Ip::parse(rest).map_err(|error| match error {
            // Behind a whole packet, a remainder too short for any header is rubbish, such as the
            // zeros of a padded tail, not a packet that was cut.
            IpError::Truncated | IpError::Version if rest.len() < 20 => match count {
                0 => Refusal::Truncated,
                _ => Refusal::Trailing,
            },
            IpError::Truncated => Refusal::Truncated,
            IpError::Version | IpError::Header => Refusal::BadVersion,
        })?;
        if packet.protocol() == Protocol::META {
            return Err(Refusal::Nested);
        }
        rest = &rest[packet.bytes().len()..];
        count += 1;
    }
    if count == 0 { Err(Refusal::Truncated) } else { Ok(count) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::{example_udp, example_v4};
    use proptest::prelude::*;

    const OUTER: Outer =
        Outer::V4 { src: Ipv4Addr::new(10, 0, 0, 1), dst: Ipv4Addr::new(10, 0, 0, 2) };

    fn build(outer: Outer, inner: &[&[u8]]) -> Vec<u8> {
        let repr = Repr { outer, dscp: 46, ecn: Ecn::Ect0, hop_limit: HOP_LIMIT_FAR };
        let mut bytes = vec![0; repr.header_len()];
        inner.iter().for_each(|packet| bytes.extend_from_slice(packet));
        let len = bytes.len();
        repr.emit(len, &mut bytes);
        bytes
    }

    fn reseal(bytes: &mut [u8]) {
        bytes[10..12].fill(0);
        let checksum = checksum::ipv4_header(&bytes[..20]);
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    }

    #[test]
    fn what_was_packed_comes_out_behind_both_outer_headers() {
        let (a, b) = (example_udp(&[1; 20]), example_v4());
        let v6 = Outer::V6 { src: Ipv6Addr::LOCALHOST, dst: Ipv6Addr::LOCALHOST };
        for outer in [OUTER, v6] {
            let bytes = build(outer, &[&a, &b, &a]);
            let meta = Meta::parse(&bytes).unwrap();
            let repr = Repr { outer, dscp: 46, ecn: Ecn::Ect0, hop_limit: HOP_LIMIT_FAR };
            assert_eq!(meta.repr(), repr);
            assert_eq!(Repr::parse(&bytes), Ok(repr));
            let packets: Vec<_> = meta.packets().map(|p| p.bytes().to_vec()).collect();
            assert_eq!(packets, [a.clone(), b.clone(), a.clone()]);
        }
    }

    #[test]
    fn each_fault_is_refused_with_its_own_reason() {
        let inner = example_udp(&[1; 20]);
        let good = build(OUTER, &[&inner, &inner]);
        let refusal = |bytes: &[u8]| Meta::parse(bytes).unwrap_err();

        assert_eq!(refusal(&good[..good.len() - 1]), Refusal::Truncated);
        assert_eq!(refusal(&build(OUTER, &[])), Refusal::Truncated);
        assert_eq!(refusal(&build(OUTER, &[&inner, &inner[..30]])), Refusal::Truncated);
        assert_eq!(refusal(&build(OUTER, &[&inner, &[0; 5]])), Refusal::Trailing);
        assert_eq!(refusal(&build(OUTER, &[&build(OUTER, &[&inner])])), Refusal::Nested);
        assert_eq!(refusal(&build(OUTER, &[&[0x11; 40]])), Refusal::BadVersion);
        assert_eq!(refusal(&build(OUTER, &[&[0x11; 12]])), Refusal::Truncated);
        assert_eq!(refusal(&inner), Refusal::NotMeta);

        let mut bad = good.clone();
        bad[10] ^= 1;
        assert_eq!(refusal(&bad), Refusal::BadChecksum);
        let mut fragment = good.clone();
        fragment[6] = 0x20;
        reseal(&mut fragment);
        assert_eq!(refusal(&fragment), Refusal::Fragment);
        let mut long = vec![0u8; 3000];
        long[..20].copy_from_slice(&good[..20]);
        long[2..4].copy_from_slice(&3000u16.to_be_bytes());
        reseal(&mut long);
        assert_eq!(refusal(&long), Refusal::Oversized);
        let mut options = good;
        options[0] = 0x46;
        assert_eq!(refusal(&options), Refusal::Options);
    }

    #[test]
    fn link_padding_behind_a_short_meta_packet_is_no_trailing_byte() {
        let mut bytes = build(OUTER, &[&example_v4()]);
        bytes.extend_from_slice(&[0; 6]);
        assert_eq!(Meta::parse(&bytes).unwrap().len(), 1);
    }

    proptest! {
        #[test]
        fn damaged_meta_packets_are_refused_or_tile_exactly(
            seed in proptest::collection::vec(any::<u8>(), 0..8),
            at in any::<prop::sample::Index>(), value in any::<u8>(), cut in 0usize..40,
        ) {
            let inner = example_udp(&seed);
            let mut bytes = build(OUTER, &[&inner, &example_v4(), &inner]);
            let index = at.index(bytes.len());
            bytes[index] = value;
            reseal(&mut bytes);
            bytes.truncate(bytes.len() - cut);
            if let Ok(meta) = Meta::parse(&bytes) {
                let total: usize = meta.packets().map(|p| p.bytes().len()).sum();
                prop_assert_eq!(total, meta.inner.len());
                prop_assert_eq!(meta.packets().count(), meta.len());
            }
        }
    }
}
