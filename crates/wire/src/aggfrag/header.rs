//! The four bytes before the blocks.

use super::{FRAME, HEADER_LEN, MAX_LEN, Refusal};

/// The largest tag of a stream.
pub const MAX_TAG: u8 = 15;
/// The tag of probes, which bear frame numbers of their own. No other stream has it.
pub const PROBES_TAG: u8 = MAX_TAG;

/// Place of the tag in the last two bytes, above the block offset.
const TAG_SHIFT: u32 = 12;
/// The block offset's bits.
const OFFSET_MASK: u16 = 0x0fff;

/// Fields of the header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Name of the stream among those from one source to one destination, 0..=[`MAX_TAG`].
    pub tag: u8,
    /// Number of the frame in its stream, modulo 256.
    pub sequence: u8,
    /// Bytes before the first block of this frame, 0..4096. More than the frame has: the block that
    /// it continues goes on in the next one.
    pub offset: u16,
}

impl Header {
    /// Reads the header of the payload `bytes`, and returns what follows it.
    pub fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), Refusal> {
        if bytes.len() > MAX_LEN {
            return Err(Refusal::Oversized);
        }
        let (header, rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(Refusal::Truncated)?;
        let [sub_type, sequence, high, low] = *header;
        if sub_type != FRAME {
            return Err(Refusal::SubType);
        }
        let word = u16::from_be_bytes([high, low]);
        let tag = (word >> TAG_SHIFT) as u8;
        Ok((Header { tag, sequence, offset: word & OFFSET_MASK }, rest))
    }

    /// The bytes of the header.
    ///
    /// # Panics
    /// If tag or offset are out of range.
    pub fn emit(self) -> [u8; HEADER_LEN] {
        assert!(self.tag <= MAX_TAG && self.offset <= OFFSET_MASK, "{self:?}");
        let [high, low] = (u16::from(self.tag) << TAG_SHIFT | self.offset).to_be_bytes();
        [FRAME, self.sequence, high, low]
    }
}
