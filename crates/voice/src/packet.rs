//! The content of a voice packet: a real RTP header (RFC 3550), and in the place of the voice its
//! flow, its number and the time it was sent, so that one clock measures the one-way delay.
//!
//! ```text
//! 0      12 bytes RTP: version 2, payload type, sequence number, time stamp, SSRC = flow
//! 12     flow (u32), number (u32), sent (u64, ns), all big-endian
//! 28     zeros up to the codec's payload
//! ```

use crate::emodel::Codec;
use sheaf_stage::Instant;

/// Bytes of an RTP header without extensions.
pub const RTP_HEADER: usize = 12;
const STAMP: usize = 16;

/// The payload that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the flow.
    pub flow: u32,
    /// Number of the packet in its flow, from 0.
    pub number: u32,
    /// Time at which it was sent.
    pub sent: Instant,
}

impl Stamp {
    /// Bytes of RTP header and voice of `codec`.
    pub const fn len(codec: Codec) -> usize {
        RTP_HEADER + codec.payload()
    }

    /// Writes RTP header and payload of one packet of `codec` into `bytes`.
    ///
    /// # Panics
    /// Panics when `bytes` is not [`Stamp::len`] bytes.
    pub fn emit(&self, codec: Codec, bytes: &mut [u8]) {
        assert_eq!(bytes.len(), Stamp::len(codec), "RTP header and voice");
        let payload_type = match codec {
            Codec::G711 => 0,
            Codec::G729A => 18,
        };
        bytes.fill(0);
        bytes[0] = 2 << 6;
        bytes[1] = payload_type;
        bytes[2..4].copy_from_slice(&(self.number as u16).to_be_bytes());
        // 20 ms at 8 kHz.
        bytes[4..8].copy_from_slice(&self.number.wrapping_mul(160).to_be_bytes());
        bytes[8..12].copy_from_slice(&self.flow.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.flow.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.number.to_be_bytes());
        bytes[20..28].copy_from_slice(&self.sent.as_nanos().to_be_bytes());
    }

    /// Reads the stamp behind an RTP header; `None` when the packet is not one of ours.
    pub fn parse(bytes: &[u8]) -> Option<Stamp> {
        let ours = bytes.len() >= RTP_HEADER + STAMP && bytes[0] == 2 << 6;
        let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let flow = word(12).filter(|flow| ours && word(8) == Some(*flow))?;
        let sent = u64::from(word(20)?) << 32 | u64::from(word(24)?);
        Some(Stamp { flow, number: word(16)?, sent: Instant::from_nanos(sent) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_written_is_read(flow: u32, number: u32, nanos: u64) {
            let stamp = Stamp { flow, number, sent: Instant::from_nanos(nanos) };
            let mut bytes = [0; 32];
            stamp.emit(Codec::G729A, &mut bytes);
            prop_assert_eq!(Stamp::parse(&bytes), Some(stamp));
        }

        #[test]
        fn foreign_bytes_are_no_stamp(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some(stamp) = Stamp::parse(&bytes) {
                prop_assert_eq!(&stamp.flow.to_be_bytes(), &bytes[8..12]);
            }
        }
    }

    #[test]
    fn a_g729_packet_is_60_bytes_of_ip() {
        assert_eq!(20 + 8 + Stamp::len(Codec::G729A), 60);
    }
}
