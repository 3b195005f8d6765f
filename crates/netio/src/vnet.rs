//! The virtio header before a packet: what its sender left for the device to do.
//!
//! Principle (Virtual I/O Device 1.2, section 5.1.6; linux/virtio_net.h): a packet whose checksum
//! is unfinished, or that stands for many (GSO), is handed over as it is, with ten bytes before it
//! that say what is left to do. Who only carries it hands these bytes on and touches no payload.
//!
//! ```text
//! 0      1         2         4          6            8             10
//! flags  gso_type  hdr_len   gso_size   csum_start   csum_offset   packet …
//! ```
//! Numbers are in the machine's byte order, as packet sockets and TUN devices have them.

use sheaf_wire::checksum;

/// Bytes of the header.
pub const LEN: usize = 10;
/// The most bytes of a packet behind it: 64 KiB of IP, Ethernet and two VLAN tags.
pub const LONGEST: usize = (1 << 16) + 22;

/// The checksum is unfinished.
const NEEDS_CSUM: u8 = 1;

/// Work that is left for a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The checksum from `csum_start` on is unfinished: its field holds the pseudo header's sum.
    pub partial: bool,
    /// Kind of segmentation, 0: none (`VIRTIO_NET_HDR_GSO_…`).
    pub gso_type: u8,
    /// Bytes of all headers; a hint.
    pub hdr_len: u16,
    /// Payload bytes of a segment.
    pub gso_size: u16,
    /// Where the checksum begins, from the start of the packet.
    pub csum_start: u16,
    /// Where its field is, from `csum_start`.
    pub csum_offset: u16,
}

impl Header {
    /// Segments are TCP over IPv4.
    pub const TCP_V4: u8 = 1;
    /// Segments are TCP over IPv6.
    pub const TCP_V6: u8 = 4;
    /// Segments are UDP datagrams.
    pub const UDP: u8 = 5;
    /// Set beside a TCP type: only the first segment has CWR.
    pub const ECN: u8 = 0x80;

    /// Reads the first [`LEN`] of `bytes`; `None` when they are fewer. Claims that a checksum is
    /// right are dropped: they are nothing to hand on.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let bytes: &[u8; LEN] = bytes.first_chunk()?;
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Some(Header {
            partial: bytes[0] & NEEDS_CSUM != 0,
            gso_type: bytes[1],
            hdr_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
        })
    }

    /// Writes it to the first [`LEN`] of `bytes`.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[0] = if self.partial { NEEDS_CSUM } else { 0 };
        bytes[1] = self.gso_type;
        let words = [self.hdr_len, self.gso_size, self.csum_start, self.csum_offset];
        for (to, word) in bytes[2..LEN].chunks_exact_mut(2).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
    }
}

/// Finishes the checksum of the packet behind the header `bytes` begin with, where it is
/// unfinished. A super-packet stays as it is: its segments' checksums do not exist yet.
pub fn finish(bytes: &mut [u8]) {
    let Some(header) = Header::parse(bytes) else { return };
    if !header.partial || header.gso_type != 0 {
        return;
    }
    let packet = &mut bytes[LEN..];
    // Where the places lie outside there is no checksum to finish.
    let _ = finish_checksum(packet, header.csum_start.into(), header.csum_offset.into());
    Header::default().emit(bytes);
}

/// Finishes the checksum of what is from `start` on in `packet`: its field, `offset` behind
/// `start`, holds the pseudo header's sum. `None`, and nothing is changed, when the field lies
/// outside.
pub fn finish_checksum(packet: &mut [u8], start: usize, offset: usize) -> Option<()> {
    checksum::finish_at(packet.get_mut(start..)?, offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_wire::checksum::{fold, sum};

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = Header {
            partial: true,
            gso_type: Header::TCP_V6 | Header::ECN,
            hdr_len: 74,
            gso_size: 1440,
            csum_start: 54,
            csum_offset: 16,
        };
        let mut bytes = [0xff; LEN];
        header.emit(&mut bytes);
        assert_eq!(Header::parse(&bytes), Some(header));
        assert_eq!(Header::parse(&bytes[..9]), None);
    }

    #[test]
    fn an_unfinished_checksum_is_finished_once_and_places_outside_harm_nothing() {
        let whole = sheaf_wire::ip::example_udp(b"sheaf");
        let mut bytes = vec![0; LEN];
        bytes.extend_from_slice(&whole);
        // The pseudo header's sum in place of the checksum, as a sender leaves it.
        let pseudo = sum(&whole[12..20], 17 + (whole.len() - 20) as u32);
        bytes[LEN + 26..LEN + 28].copy_from_slice(&fold(pseudo).to_be_bytes());
        Header { partial: true, csum_start: 20, csum_offset: 6, ..Header::default() }
            .emit(&mut bytes);
        finish(&mut bytes);
        let udp = &bytes[LEN + 20..];
        assert_eq!(fold(sum(udp, pseudo)), 0xffff, "it adds up");
        assert_eq!(Header::parse(&bytes), Some(Header::default()));
        let done = bytes.clone();
        finish(&mut bytes);
        assert_eq!(bytes, done);
        for (csum_start, csum_offset) in [(60000, 6), (20, 60000), (65535, 65535)] {
            Header { partial: true, csum_start, csum_offset, ..Header::default() }.emit(&mut bytes);
            finish(&mut bytes);
            assert_eq!(bytes[LEN..], done[LEN..]);
        }
    }
}
