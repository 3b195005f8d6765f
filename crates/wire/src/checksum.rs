//! The Internet checksum (RFC 1071), and how Linux leaves it unfinished.
//!
//! A packet from a local socket usually still lacks its UDP or TCP checksum when a program at
//! the egress hook sees it: the kernel has written only the folded sum of the pseudo header and
//! leaves the rest to the device (`CHECKSUM_PARTIAL`). A packet copied in that state into another
//! is wrong on the wire for ever. A field that equals that sum is therefore finished here.
//! Finishing is harmless to a packet that was finished and happens to carry the same value: the
//! result is then the value it had.

use crate::ip::{Ip, Protocol, Version};

/// The ones' complement sum of `bytes` as big-endian words, added to `sum`, not yet folded.
///
/// Overflows only beyond 128 KiB of bytes.
pub fn sum(bytes: &[u8], sum: u32) -> u32 {
    let (words, rest) = bytes.as_chunks::<2>();
    let sum = words.iter().fold(sum, |sum, word| sum + u32::from(u16::from_be_bytes(*word)));
    rest.first().map_or(sum, |last| sum + (u32::from(*last) << 8))
}

/// Folds a sum into 16 bits.
pub fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The checksum of an IPv4 header: zero over a header that carries a right one.
pub fn ipv4_header(header: &[u8]) -> u16 {
    !fold(sum(header, 0))
}

/// The checksum that an IPv4 header of 20 bytes should carry, whatever its field contains.
///
/// # Panics
/// A `header` of fewer than 20 bytes panics.
pub fn ipv4_field(header: &[u8]) -> u16 {
    !fold(sum(&header[12..20], sum(&header[..10], 0)))
}

/// Updates the checksum in `field`, two bytes, after one word that it covers went from `before` to
/// `after` (RFC 1624, equation 3). One that was wrong stays wrong.
///
/// # Panics
/// When `field` does not have two bytes.
pub fn adjust(field: &mut [u8], before: u16, after: u16) {
    let checksum = u16::from_be_bytes([field[0], field[1]]);
    let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    field.copy_from_slice(&(!fold(sum)).to_be_bytes());
}

/// Whether the UDP or TCP checksum of `packet` is unfinished: equal to the folded sum of its
/// pseudo header. `None` for a packet without such a checksum (other protocols, no room for the
/// header, UDP's zero over IPv4).
pub fn is_unfinished(packet: &[u8]) -> Option<bool> {
    let view = Ip::parse(packet).ok()?;
    let field = checksum_offset(&view)?;
    let stored = u16::from_be_bytes([view.bytes()[field], view.bytes()[field + 1]]);
    Some(stored == pseudo_header(&view))
}

/// Finishes the UDP or TCP checksum of `packet` if it [is unfinished](is_unfinished); answers
/// whether it was.
pub fn finish(packet: &mut [u8]) -> bool {
    let Ok(view) = Ip::parse(packet) else { return false };
    let Some(field) = checksum_offset(&view) else { return false };
    let pseudo = pseudo_header(&view);
    let (len, transport) = (view.bytes().len(), view.transport_offset());
    if u16::from_be_bytes([packet[field], packet[field + 1]]) != pseudo {
        return false;
    }
    finish_at(&mut packet[transport..len], field - transport).is_some()
}

/// Finishes the checksum of what `covered` has: the field at `offset` in it holds the pseudo
/// header's sum. `None`, and nothing is changed, when the field lies outside.
pub fn finish_at(covered: &mut [u8], offset: usize) -> Option<()> {
    // The field is part of what is summed, so the pseudo header counts, too.
    let checksum = match !fold(sum(covered, 0)) {
        // Zero in UDP stands for no checksum (RFC 768). TCP takes zero and 0xffff for the same, and
        // Linux writes 0xffff (skb_checksum_help()).
        0 => 0xffff,
        checksum => checksum,
    };
    covered.get_mut(offset..offset + 2)?.copy_from_slice(&checksum.to_be_bytes());
    Some(())
}

/// Where the transport checksum of the packet lies, if it has one.
fn checksum_offset(view: &Ip<'_>) -> Option<usize> {
    let (inside, header) = match view.protocol() {
        Protocol::UDP => (6, 8),
        Protocol::TCP => (16, 20),
        _ => return None,
    };
    if view.is_fragment() || view.transport().len() < header {
        return None;
    }
    let field = view.transport_offset() + inside;
    let zero = view.bytes()[field..field + 2] == [0, 0];
    let absent = zero && view.protocol() == Protocol::UDP && view.version() == Version::V4;
    (!absent).then_some(field)
}

/// The folded sum of the pseudo header (RFC 768, RFC 9293 3.1, RFC 8200 8.1).
fn pseudo_header(view: &Ip<'_>) -> u16 {
    let length = view.transport().len() as u32;
    let fixed = (length >> 16) + (length & 0xffff) + u32::from(view.protocol().0);
    fold(sum(view.addresses(), fixed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adjusted_checksum_is_that_of_the_changed_header_and_a_wrong_one_stays_wrong() {
        let mut header = *b"\x45\0\0\x1c\0\0\x40\0\x3f\x11\0\0\x0a\x01\0\x01\x0a\x4d\0\x02";
        let checksum = ipv4_header(&header);
        let mut fields = [checksum, checksum ^ 0x100].map(u16::to_be_bytes);
        header[1] = 3;
        fields.iter_mut().for_each(|field| adjust(field, 0x4500, 0x4503));
        let right = ipv4_header(&header).to_be_bytes();
        assert_eq!(fields[0], right);
        assert_ne!(fields[1], right);
    }

    #[test]
    fn the_example_header_carries_the_right_checksum() {
        assert_eq!(ipv4_header(&crate::ip::example_v4()), 0);
    }

    fn udp_with_pseudo_sum() -> Vec<u8> {
        let mut packet = crate::ip::example_udp(&[7; 20]);
        let pseudo = pseudo_header(&Ip::parse(&packet).unwrap());
        packet[26..28].copy_from_slice(&pseudo.to_be_bytes());
        packet
    }

    #[test]
    fn an_unfinished_udp_checksum_becomes_the_one_a_library_computes() {
        let right = crate::ip::example_udp(&[7; 20]);
        let mut packet = udp_with_pseudo_sum();
        assert_eq!(is_unfinished(&packet), Some(true));
        assert!(finish(&mut packet));
        assert_eq!(packet, right);
    }

    #[test]
    fn a_tcp_checksum_that_comes_to_zero_is_written_as_linux_writes_it() {
        // A TCP header of 20 bytes whose urgent pointer makes up what the others lack.
        let mut packet = [&b"\x45\0\0\x28\0\0\x40\0\x40\x06\0\0"[..], &[10; 8], &[7; 20]].concat();
        packet[36..40].fill(0);
        let pseudo = pseudo_header(&Ip::parse(&packet).unwrap());
        packet[36..38].copy_from_slice(&pseudo.to_be_bytes());
        let rest = !fold(sum(&packet[20..], 0));
        packet[38..40].copy_from_slice(&rest.to_be_bytes());
        assert!(finish(&mut packet));
        assert_eq!(packet[36..38], [0xff, 0xff]);
    }

    #[test]
    fn a_finished_checksum_and_an_absent_one_stay_as_they_are() {
        let mut finished = crate::ip::example_udp(&[7; 20]);
        let before = finished.clone();
        assert!(!finish(&mut finished));
        assert_eq!(finished, before);

        let mut absent = before;
        absent[26..28].copy_from_slice(&[0, 0]);
        let before = absent.clone();
        assert!(!finish(&mut absent));
        assert_eq!(absent, before);
    }

    #[test]
    fn the_sum_agrees_with_the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(&bytes, 0)), 0xddf2);
        assert_eq!(fold(sum(&bytes[..7], 0)), fold(0xddf2 + 0xffff - 0x00f7));
    }
}
