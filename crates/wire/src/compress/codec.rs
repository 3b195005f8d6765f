//! The header of a compressed packet, and the way back.

use super::context::{Context, IdRule};
use super::headers::{Headers, IPV4, MARKER, UDP, ip_len, udp_checksum};
use super::reference::{Reference, Width};
use crate::checksum;
use crate::crc::crc16;
use crate::ip::Version;

/// Low bits of the compact form's counter.
const COUNTER_BITS: u32 = 6;
const COUNTER_MASK: u8 = 0x3f;
/// Bits of the long form's first byte.
const LONG: u8 = 0xa0;
const FLAG_MARKER: u8 = 8;
const FLAG_LENGTH: u8 = 4;
const FLAG_TIMESTAMP: u8 = 2;
const FLAG_ID: u8 = 1;

/// Header of a compressed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressed {
    /// Number of its context.
    pub number: u8,
    /// Low bits of its counter.
    low: u8,
    width: Width,
    /// CRC-16 of the generation and the original headers.
    check: u16,
    marker: bool,
    /// Bytes of the payload, where it is not that of the context.
    pub length: Option<u16>,
    timestamp: Option<u32>,
    id: Option<u16>,
}

impl Compressed {
    /// Compresses a packet that [fits](Context::fits) `context`. With `explicit`, the time stamp is
    /// sent even if it did not jump. `sure` is the newest counter that the receiver has even if a
    /// frame was lost. `None`: the packet's counter is too far from it.
    pub fn of(
        headers: &Headers<'_>,
        (number, context, generation): (u8, &Context, u16),
        reference: &Reference,
        (explicit, sure): (bool, u16),
    ) -> Option<Compressed> {
        let counter = context.counter(headers);
        let rules = context.rules();
        let rtp = headers.rtp().filter(|_| rules.rtp);
        let payload_len = (headers.packet().len() - context.headers_len()) as u16;
        let expected = reference.timestamp(counter, rules.stride);
        let length = (payload_len != context.payload_len()).then_some(payload_len);
        let timestamp = rtp.map(|rtp| rtp.timestamp).filter(|stamp| explicit || *stamp != expected);
        let id = headers.identification().filter(|id| implied_id(context, counter) != Some(*id));
        let marker = rtp.is_some_and(|rtp| rtp.marker);
        let compact = !marker && length.is_none() && timestamp.is_none() && id.is_none();
        let width = match reference.width(counter, sure)? {
            Width::Compact if compact => Width::Compact,
            _ => Width::Long,
        };
        let low = match width {
            Width::Compact => counter as u8 & COUNTER_MASK,
            Width::Long => counter as u8,
        };
        let check = check(generation, &headers.packet()[..context.headers_len()]);
        Some(Compressed { number, low, width, check, marker, length, timestamp, id })
    }

    /// Whether the time stamp is explicit.
    pub fn has_timestamp(&self) -> bool {
        self.timestamp.is_some()
    }

    /// Whether this is the compact form.
    pub fn is_compact(&self) -> bool {
        self.width == Width::Compact
    }

    /// Reads the header at the start of `bytes`, whose first nibble is 10 or at least 12, and
    /// returns its length, too. `None`: it is cut off.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Compressed, usize)> {
        let first = *bytes.first()?;
        if first >= 0xc0 {
            let word = u32::from_be_bytes(*bytes.first_chunk()?);
            let low = (word >> 16) as u8 & COUNTER_MASK;
            let header = Compressed {
                number: (word >> (16 + COUNTER_BITS)) as u8,
                low,
                width: Width::Compact,
                check: word as u16,
                marker: false,
                length: None,
                timestamp: None,
                id: None,
            };
            return Some((header, 4));
        }
        let [_, number, low, check @ ..] = *bytes.first_chunk::<5>()?;
        let mut at = 5;
        let length = take(bytes, &mut at, first & FLAG_LENGTH != 0)?.map(u16::from_be_bytes);
        let timestamp = take(bytes, &mut at, first & FLAG_TIMESTAMP != 0)?.map(u32::from_be_bytes);
        let id = take(bytes, &mut at, first & FLAG_ID != 0)?.map(u16::from_be_bytes);
        let (width, check) = (Width::Long, u16::from_be_bytes(check));
        let marker = first & FLAG_MARKER != 0;
        Some((Compressed { number, low, width, check, marker, length, timestamp, id }, at))
    }

    /// Appends the header to `block`.
    pub fn emit(&self, block: &mut Vec<u8>) {
        if self.is_compact() {
            let word = 0b11 << 30
                | u32::from(self.number) << (16 + COUNTER_BITS)
                | u32::from(self.low) << 16
                | u32::from(self.check);
            block.extend_from_slice(&word.to_be_bytes());
            return;
        }
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let first = LONG
            | flag(self.marker, FLAG_MARKER)
            | flag(self.length.is_some(), FLAG_LENGTH)
            | flag(self.timestamp.is_some(), FLAG_TIMESTAMP)
            | flag(self.id.is_some(), FLAG_ID);
        block.extend_from_slice(&[first, self.number, self.low]);
        block.extend_from_slice(&self.check.to_be_bytes());
        self.length.iter().for_each(|length| block.extend_from_slice(&length.to_be_bytes()));
        self.timestamp.iter().for_each(|stamp| block.extend_from_slice(&stamp.to_be_bytes()));
        self.id.iter().for_each(|id| block.extend_from_slice(&id.to_be_bytes()));
    }
}

/// Writes the packet over `packet` that was compressed to `header` and `payload`, and takes note of
/// it in `reference`. Returns false, and leaves the reference as it is, when the check fails: the
/// bytes in `packet` are then not the original's.
pub fn restore(
    header: &Compressed,
    payload: &[u8],
    (context, generation): (&Context, u16),
    reference: &mut Reference,
    packet: &mut Vec<u8>,
) -> bool {
    let rules = context.rules();
    let counter = reference.counter(header.low, header.width);
    let timestamp = header.timestamp.unwrap_or_else(|| reference.timestamp(counter, rules.stride));
    packet.clear();
    packet.extend_from_slice(context.template());
    packet.extend_from_slice(payload);
    let (total, ip_len, headers_len) =
        (packet.len(), ip_len(context.version()), context.headers_len());
    let (ip, segment) = packet.split_at_mut(ip_len);
    if rules.rtp {
        let rtp = &mut segment[UDP..];
        rtp[1] |= if header.marker { MARKER } else { 0 };
        rtp[2..4].copy_from_slice(&counter.to_be_bytes());
        rtp[4..8].copy_from_slice(&timestamp.to_be_bytes());
    }
    let udp_len = segment.len() as u16;
    segment[4..6].copy_from_slice(&udp_len.to_be_bytes());
    let addresses = match context.version() {
        Version::V4 => {
            let id = header.id.or_else(|| implied_id(context, counter)).unwrap_or(0);
            ip[2..4].copy_from_slice(&(total as u16).to_be_bytes());
            ip[4..6].copy_from_slice(&id.to_be_bytes());
            let checksum = checksum::ipv4_field(&ip[..IPV4]);
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            &ip[12..20]
        }
        Version::V6 => {
            ip[4..6].copy_from_slice(&udp_len.to_be_bytes());
            &ip[8..40]
        }
    };
    // The template has 1 there if the flow has checksums.
    let checksum = if segment[7] == 0 { 0 } else { udp_checksum(addresses, segment) };
    segment[6..8].copy_from_slice(&checksum.to_be_bytes());
    let right = check(generation, &packet[..headers_len]) == header.check;
    if right {
        reference.observe(counter, timestamp, rules.stride);
    }
    right
}

impl Reference {
    /// Whether the time stamp of a packet is not where the stride puts it.
    pub fn jumps(&self, context: &Context, headers: &Headers<'_>) -> bool {
        let expected = self.timestamp(context.counter(headers), context.rules().stride);
        headers.rtp().is_some_and(|rtp| context.rules().rtp && rtp.timestamp != expected)
    }

    /// Takes note of a packet that was sent compressed.
    pub fn sent(&mut self, context: &Context, headers: &Headers<'_>) {
        let rules = context.rules();
        let timestamp = headers.rtp().filter(|_| rules.rtp).map_or(0, |rtp| rtp.timestamp);
        self.observe(context.counter(headers), timestamp, rules.stride);
    }
}

/// The identification that a packet without an explicit one has; `None`: it is always explicit.
fn implied_id(context: &Context, counter: u16) -> Option<u16> {
    match context.rules().id {
        IdRule::Constant => Some(context.id()),
        IdRule::Follows => Some(context.id().wrapping_add(counter)),
        IdRule::Explicit => None,
    }
}

/// The check of a packet with these headers: their CRC, shuffled by the generation.
///
/// Each generation shuffles one to one, so the check finds what the CRC finds. Were the generation
/// only added to the CRC, a forged context that suits one packet of a flow would suit them all.
fn check(generation: u16, headers: &[u8]) -> u16 {
    // Odd factors, one to one modulo 2¹⁶: the golden ratio's and that of MurmurHash 3.
    let mut mixed = (crc16(u16::MAX, headers) ^ generation).wrapping_mul(0x9e37);
    mixed ^= mixed >> 8;
    mixed = mixed.wrapping_add(generation.rotate_left(5)).wrapping_mul(0x85eb);
    mixed ^ mixed >> 7
}

/// Takes a field of `N` bytes at `at` if it is there. Outer `None`: it is cut off.
fn take<const N: usize>(bytes: &[u8], at: &mut usize, there: bool) -> Option<Option<[u8; N]>> {
    if !there {
        return Some(None);
    }
    let field = *bytes.get(*at..)?.first_chunk::<N>()?;
    *at += N;
    Some(Some(field))
}
