//! HELLO: what a router tells its neighbours of itself, once a period, to all on the link.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------+---------------+-------+-------+---------------+
//! |   'S' (0x53)  |   'h' (0x68)  | vers 1| flags |    period     |
//! +---------------+---------------+-------+-------+---------------+
//! |                    sequence number, 32 bits                   |
//! |                      node, 64 bits                            |
//! |                                                               |
//! +---------------+---------------+---------------+---------------+
//! |     type      |    length     |  value of `length` bytes …    |
//! +---------------+---------------+---------------+---------------+
//!
//! Splits (1):  formats (8 bits) | largest frame in bytes (16)
//! Reports (2): entries of 15 bytes, one for each neighbour:
//!              node (64) | its last sequence number heard (32) |
//!              largest packet that it should send here (16) | share of its HELLOs heard (8)
//! Seal (3):    HMAC-SHA-256 over the sender's link address and all that stands before this
//!              element, its first 16 bytes; the last element
//! ```
//!
//! * *Flags*: bit 0 goodbye (the sender ends), bit 1 asks (the sender is new, or has a new
//!   neighbour: whoever hears it says HELLO soon), bit 2 partial (reports are left out for lack of
//!   room; without it, a neighbour that is not listed may send packets of any size).
//! * *Period*: tenths of a second within which the next HELLO leaves. Whoever is silent for
//!   [`SILENT_PERIODS`] of them is gone.
//! * *Node*: random, another one at each start; a neighbour with another node has started again.
//! * A message without Splits is of a router that takes nothing apart.
//! * Unknown elements are skipped, so that later versions can add some; unknown flags are ignored.
//!
//! It travels in UDP over IPv4 to [`GROUP_V4`] or IPv6 to [`GROUP_V6`], port [`PORT`], with a hop
//! limit of 255, so that it cannot have crossed a router (RFC 5082). Groups and port are those that
//! RFC 4727 sets aside for experiments.
//!
//! Source: "Packet aggregation in Linux" (Karlstad University, 2008), section 3.4, where a HELLO
//! lists each neighbour with the largest packet that it should send. That one was longer than the
//! routing daemon's own and was dropped by others; this is a message of its own.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use thiserror::Error;

/// IPv4 group: link-local experiments (RFC 4727, section 2.4).
pub const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 254);
/// IPv6 group: experiments (RFC 4727, section 3.2), link-local.
pub const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x114);
/// UDP port of source and destination: experiment 1 (RFC 4727, section 6). Below 1024, so only
/// privileged programs of this host can speak from it.
pub const PORT: u16 = 1021;
/// Bytes of the longest message: it fits an IPv6 packet of 1280 bytes, which every link takes.
pub const MAX_LEN: usize = 1200;
/// Bytes of a message without elements.
const HEADER_LEN: usize = 16;
/// Periods without a HELLO after which a neighbour is gone (KAU, section 3.4).
pub const SILENT_PERIODS: u32 = 5;
/// Bytes of a seal.
pub const SEAL_LEN: usize = 16;
/// Bytes of the element Seal, type and length included.
pub const SEALED_LEN: usize = ELEMENT + SEAL_LEN;
/// Bytes of one report.
pub const REPORT_LEN: usize = 15;
/// A largest packet that limits nothing.
pub const UNLIMITED: u16 = u16::MAX;

/// Type and length of an element.
const ELEMENT: usize = 2;
/// Reports in one element, whose length has eight bits.
const REPORTS: usize = 255 / REPORT_LEN;
const MAGIC: [u8; 2] = *b"Sh";
const VERSION: u8 = 1;
const GOODBYE: u8 = 1;
const ASKS: u8 = 2;
const PARTIAL: u8 = 4;

mod kind {
    pub const SPLITS: u8 = 1;
    pub const REPORTS: u8 = 2;
    pub const SEAL: u8 = 3;
}

mod field {
    use super::Range;
    pub const MAGIC: Range<usize> = 0..2;
    pub const VERSION_AND_FLAGS: usize = 2;
    pub const PERIOD: usize = 3;
    pub const SEQUENCE: Range<usize> = 4..8;
    pub const NODE: Range<usize> = 8..16;
    pub const REPORT_NODE: Range<usize> = 0..8;
    pub const REPORT_SEQUENCE: Range<usize> = 8..12;
    pub const REPORT_LARGEST: Range<usize> = 12..14;
    pub const REPORT_HEARD: usize = 14;
}

/// One run of a router's service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u64);

/// Wire formats that a splitter takes apart, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Formats(pub u8);

impl Formats {
    /// Format 1: [`crate::meta`].
    pub const META: Formats = Formats(1);
    /// Format 2: [`crate::aggfrag`], with headers compressed or not.
    pub const FRAMES: Formats = Formats(2);
    /// Frames of format 2 with Ethernet payloads in them: those of batman-adv.
    pub const PAYLOADS: Formats = Formats(4);
    /// Frames of format 2 to a group ([`crate::group`]), of any neighbour.
    pub const GROUPS: Formats = Formats(8);
    /// Frames of format 2 right behind the Ethernet header, of [`crate::ethernet::FRAMES`].
    pub const LINK: Formats = Formats(16);

    /// Whether all of `others` are among them.
    pub fn contain(self, others: Formats) -> bool {
        self.0 & others.0 == others.0
    }
}

/// A splitter's abilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Splits {
    /// Formats that it takes apart.
    pub formats: Formats,
    /// Largest frame that it takes, in bytes of IP.
    pub largest: u16,
}

/// A report about one neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The neighbour.
    pub node: Node,
    /// The last sequence number that was heard of it.
    pub sequence: u32,
    /// Largest packet that it should send here, in bytes of IP; [`UNLIMITED`] for any.
    pub largest: u16,
    /// Share of its HELLOs that are heard, of 255.
    pub heard: u8,
}

/// Reason for which a message is refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// Shorter than a header.
    #[error("too short")]
    Short,
    /// Not a HELLO: the first two bytes are others.
    #[error("not a HELLO")]
    Magic,
    /// Of another version.
    #[error("of another version")]
    Version,
    /// Longer than [`MAX_LEN`].
    #[error("too long")]
    Long,
    /// An element goes beyond the end, or has a length that its type does not have.
    #[error("an element has a wrong length")]
    Element,
    /// A type that may stand once stands twice, or something stands behind the seal.
    #[error("elements stand in a wrong order")]
    Order,
    /// A period of 0.
    #[error("a period of 0")]
    Period,
}

/// A checked view of a message.
#[derive(Clone, Copy, Debug)]
pub struct Hello<'a> {
    bytes: &'a [u8],
    splits: Option<Splits>,
    seal: Option<&'a [u8; SEAL_LEN]>,
}

impl<'a> Hello<'a> {
    /// Checks all of a message.
    pub fn parse(bytes: &'a [u8]) -> Result<Hello<'a>, Refusal> {
        if bytes.len() < HEADER_LEN {
            return Err(Refusal::Short);
        }
        if bytes.len() > MAX_LEN {
            return Err(Refusal::Long);
        }
        if bytes[field::MAGIC] != MAGIC {
            return Err(Refusal::Magic);
        }
        if bytes[field::VERSION_AND_FLAGS] >> 4 != VERSION {
            return Err(Refusal::Version);
        }
        if bytes[field::PERIOD] == 0 {
            return Err(Refusal::Period);
        }
        let mut hello = Hello { bytes, splits: None, seal: None };
        let mut rest = &bytes[HEADER_LEN..];
        while !rest.is_empty() {
            if hello.seal.is_some() {
                return Err(Refusal::Order);
            }
            let (kind, value, behind) = element(rest).ok_or(Refusal::Element)?;
            match kind {
                kind::SPLITS if hello.splits.is_some() => return Err(Refusal::Order),
                kind::SPLITS => {
                    let [formats, high, low] = *value else { return Err(Refusal::Element) };
                    let largest = u16::from_be_bytes([high, low]);
                    hello.splits = Some(Splits { formats: Formats(formats), largest });
                }
                kind::REPORTS if value.len() % REPORT_LEN != 0 => return Err(Refusal::Element),
                kind::SEAL => hello.seal = Some(value.try_into().map_err(|_| Refusal::Element)?),
                _ => {}
            }
            rest = behind;
        }
        Ok(hello)
    }

    /// The sender.
    pub fn node(&self) -> Node {
        Node(u64::from_be_bytes(number(&self.bytes[field::NODE])))
    }

    /// Number of this message, one more for each.
    pub fn sequence(&self) -> u32 {
        u32::from_be_bytes(number(&self.bytes[field::SEQUENCE]))
    }

    /// Tenths of a second within which the next one leaves; at least 1.
    pub fn period(&self) -> u8 {
        self.bytes[field::PERIOD]
    }

    /// Whether the sender ends.
    pub fn is_goodbye(&self) -> bool {
        self.bytes[field::VERSION_AND_FLAGS] & GOODBYE != 0
    }

    /// Whether the sender asks for a HELLO.
    pub fn asks(&self) -> bool {
        self.bytes[field::VERSION_AND_FLAGS] & ASKS != 0
    }

    /// Whether reports are left out for lack of room.
    pub fn is_partial(&self) -> bool {
        self.bytes[field::VERSION_AND_FLAGS] & PARTIAL != 0
    }

    /// Abilities of the sender's splitter; `None` without one.
    pub fn splits(&self) -> Option<Splits> {
        self.splits
    }

    /// The sender's reports about its neighbours.
    pub fn reports(&self) -> impl Iterator<Item = Report> + 'a {
        let mut rest = &self.bytes[HEADER_LEN..];
        let elements = std::iter::from_fn(move || {
            let (kind, value, behind) = element(rest)?;
            rest = behind;
            Some((kind, value))
        });
        elements
            .filter(|(kind, _)| *kind == kind::REPORTS)
            .flat_map(|(_, value)| value.chunks_exact(REPORT_LEN))
            .map(|entry| Report {
                node: Node(u64::from_be_bytes(number(&entry[field::REPORT_NODE]))),
                sequence: u32::from_be_bytes(number(&entry[field::REPORT_SEQUENCE])),
                largest: u16::from_be_bytes(number(&entry[field::REPORT_LARGEST])),
                heard: entry[field::REPORT_HEARD],
            })
    }

    /// The bytes that the seal covers, and the seal; `None` without one.
    pub fn seal(&self) -> Option<(&'a [u8], &'a [u8; SEAL_LEN])> {
        let seal = self.seal?;
        // It is the last element.
        Some((&self.bytes[..self.bytes.len() - SEALED_LEN], seal))
    }
}

/// The first element of `bytes`: its type, its value, and the bytes behind it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let [kind, len, rest @ ..] = bytes else { return None };
    let (value, behind) = rest.split_at_checked(usize::from(*len))?;
    Some((*kind, value, behind))
}

/// A number's bytes, of a range that a check has found to be there.
fn number<const LEN: usize>(bytes: &[u8]) -> [u8; LEN] {
    bytes.try_into().expect("fields have the length of their number")
}

/// A message to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The sender.
    pub node: Node,
    /// Number of this message.
    pub sequence: u32,
    /// Tenths of a second within which the next one leaves; at least 1.
    pub period: u8,
    /// Whether the sender ends.
    pub goodbye: bool,
    /// Whether the sender asks for a HELLO.
    pub asks: bool,
    /// Abilities of the sender's splitter.
    pub splits: Option<Splits>,
}

impl Repr {
    /// Writes the message with as many of `reports` as fit `limit` bytes (at most [`MAX_LEN`], a
    /// seal not counted) behind what `to` holds; returns the number of reports written.
    pub fn emit(
        &self,
        reports: impl IntoIterator<Item = Report>,
        limit: usize,
        to: &mut Vec<u8>,
    ) -> usize {
        let start = to.len();
        let flags = if self.goodbye { GOODBYE } else { 0 } | if self.asks { ASKS } else { 0 };
        to.extend_from_slice(&MAGIC);
        to.extend_from_slice(&[VERSION << 4 | flags, self.period.max(1)]);
        to.extend_from_slice(&self.sequence.to_be_bytes());
        to.extend_from_slice(&self.node.0.to_be_bytes());
        if let Some(Splits { formats, largest }) = self.splits {
            let [high, low] = largest.to_be_bytes();
            to.extend_from_slice(&[kind::SPLITS, 3, formats.0, high, low]);
        }
        let limit = limit.min(MAX_LEN);
        let (mut written, mut length_at) = (0, None);
        for report in reports {
            let opens = written % REPORTS == 0;
            let needed = REPORT_LEN + if opens { ELEMENT } else { 0 };
            if to.len() - start + needed > limit {
                to[start + field::VERSION_AND_FLAGS] |= PARTIAL;
                break;
            }
            if opens {
                length_at = Some(to.len() + 1);
                to.extend_from_slice(&[kind::REPORTS, 0]);
            }
            to.extend_from_slice(&report.node.0.to_be_bytes());
            to.extend_from_slice(&report.sequence.to_be_bytes());
            to.extend_from_slice(&report.largest.to_be_bytes());
            to.push(report.heard);
            to[length_at.expect("an element is open")] += REPORT_LEN as u8;
            written += 1;
        }
        written
    }
}

/// Writes the period of a message: a pause may depend on the length, which is known at the end.
///
/// # Panics
/// Where `message` is not one that [`Repr::emit`] wrote.
pub fn set_period(message: &mut [u8], tenths: u8) {
    message[field::PERIOD] = tenths.max(1);
}

/// Appends a seal to the message that ends `to`.
pub fn append_seal(seal: &[u8; SEAL_LEN], to: &mut Vec<u8>) {
    to.extend_from_slice(&[kind::SEAL, SEAL_LEN as u8]);
    to.extend_from_slice(seal);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn repr() -> Repr {
        let splits = Some(Splits { formats: Formats::META, largest: 1500 });
        let node = Node(0x0102_0304_0506_0708);
        Repr { node, sequence: 513, period: 32, goodbye: false, asks: true, splits }
    }

    fn report(number: u64) -> Report {
        let (sequence, largest) = (number as u32, 100 + number as u16);
        Report { node: Node(number), sequence, largest, heard: number as u8 }
    }

    #[test]
    fn formats_have_a_bit_each_and_are_said_together() {
        let all = [Formats::META, Formats::FRAMES, Formats::PAYLOADS, Formats::GROUPS];
        assert_eq!(all.map(|one| one.0), [1, 2, 4, 8]);
        let (mut bytes, formats) = (Vec::new(), Formats(15));
        let splits = Some(Splits { formats, largest: 1500 });
        Repr { splits, ..repr() }.emit([], MAX_LEN, &mut bytes);
        let said = Hello::parse(&bytes).unwrap().splits().unwrap().formats;
        assert!(all.iter().all(|one| said.contain(*one)));
        // A splitter of before says nothing of groups.
        assert!(!Formats(7).contain(Formats::GROUPS));
    }

    #[test]
    fn a_message_at_rest_has_21_bytes_and_is_read_as_it_was_written() {
        let mut bytes = Vec::new();
        assert_eq!(repr().emit([], MAX_LEN, &mut bytes), 0);
        assert_eq!(
            bytes,
            [b'S', b'h', 0x12, 32, 0, 0, 2, 1, 1, 2, 3, 4, 5, 6, 7, 8, 1, 3, 1, 0x05, 0xdc]
        );
        let hello = Hello::parse(&bytes).unwrap();
        assert_eq!((hello.node(), hello.sequence(), hello.period()), (repr().node, 513, 32));
        assert!(hello.asks() && !hello.is_goodbye() && !hello.is_partial());
        assert_eq!((hello.splits(), hello.reports().count()), (repr().splits, 0));
        assert!(hello.seal().is_none());
    }

    #[test]
    fn as_many_reports_are_written_as_fit_and_a_seal_stands_last() {
        let mut bytes = vec![7; 3];
        let written = repr().emit((0..200).map(report), MAX_LEN - SEALED_LEN, &mut bytes);
        append_seal(&[9; SEAL_LEN], &mut bytes);
        let message = &bytes[3..];
        assert!(message.len() <= MAX_LEN && message.len() + REPORT_LEN + ELEMENT > MAX_LEN);
        let hello = Hello::parse(message).unwrap();
        let read: Vec<_> = hello.reports().collect();
        assert!(hello.is_partial());
        assert_eq!(read, (0..written as u64).map(report).collect::<Vec<_>>());
        let (covered, seal) = hello.seal().unwrap();
        assert_eq!((covered.len(), seal), (message.len() - SEALED_LEN, &[9; SEAL_LEN]));
    }

    #[test]
    fn unknown_elements_are_skipped_and_wrong_ones_refused() {
        let mut bytes = Vec::new();
        repr().emit([report(1)], MAX_LEN, &mut bytes);
        let with = |more: &[u8]| [&bytes, more].concat();
        let known = with(&[77, 2, 1, 2]);
        assert_eq!(Hello::parse(&known).unwrap().reports().count(), 1);
        for (message, refusal) in [
            (with(&[77]), Refusal::Element),
            (with(&[77, 1]), Refusal::Element),
            (with(&[2, 2, 0, 0]), Refusal::Element),
            (with(&[1, 3, 1, 0, 0]), Refusal::Order),
            (with(&[3, 1, 0]), Refusal::Element),
            (with(&[&[3, 16], [0; 16].as_slice(), &[77, 0]].concat()), Refusal::Order),
            (bytes[..15].to_vec(), Refusal::Short),
            (with(&[0; MAX_LEN]), Refusal::Long),
        ] {
            assert_eq!(Hello::parse(&message).unwrap_err(), refusal, "{message:?}");
        }
        for (at, refusal) in [(0, Refusal::Magic), (2, Refusal::Version), (3, Refusal::Period)] {
            let mut damaged = bytes.clone();
            damaged[at] = 0;
            assert_eq!(Hello::parse(&damaged).unwrap_err(), refusal);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..1300)) {
            if let Ok(hello) = Hello::parse(&bytes) {
                prop_assert!(hello.reports().count() <= MAX_LEN / REPORT_LEN);
            }
        }

        #[test]
        fn what_is_written_is_read(
            node in any::<u64>(),
            sequence in any::<u32>(),
            period in 1_u8..,
            (goodbye, asks) in any::<(bool, bool)>(),
            splits in proptest::option::of(any::<(u8, u16)>()),
            reports in 0_u64..120,
        ) {
            let splits =
                splits.map(|(formats, largest)| Splits { formats: Formats(formats), largest });
            let repr = Repr { node: Node(node), sequence, period, goodbye, asks, splits };
            let mut bytes = Vec::new();
            let written = repr.emit((0..reports).map(report), MAX_LEN, &mut bytes);
            let hello = Hello::parse(&bytes).unwrap();
            prop_assert_eq!(hello.reports().count(), written);
            prop_assert_eq!(hello.splits(), splits);
            prop_assert_eq!((hello.node().0, hello.sequence()), (node, sequence));
            prop_assert_eq!((hello.is_goodbye(), hello.asks()), (goodbye, asks));
        }
    }
}
