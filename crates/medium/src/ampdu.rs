//! Aggregation in the MAC: several frames to one station in one transmission (A-MPDU) with one
//! block acknowledgement (IEEE 802.11-2020, 10.12 and 10.25).
//!
//! A station whose back-off is over sends the first frame of its queue and, with it, the frames to
//! the same station that wait behind, as far as the limits allow; all are best effort. Each
//! subframe meets bit errors and losses on its own, while a collision spoils all of them. The block
//! acknowledgement names those that arrived; the others are sent again, in front of what has come
//! since. Without a block acknowledgement all are sent again, as by the driver ath9k.
//!
//! Frames to one station leave the medium in their order, as behind the receiver's reordering
//! buffer: one that arrived before an earlier one waits until that arrives or is given up, and
//! keeps its place in the transmit queue meanwhile. A frame alone is sent and acknowledged as any
//! other.
//!
//! Left out: the exchange that agrees on block acknowledgements, and the request that moves the
//! receiver on after a frame was given up; both are rare. A receiver may ask for 8 µs between the
//! beginnings of subframes; these take as long from IP packets of 30 bytes on.

use sheaf_stage::Duration;

/// The limits of one A-MPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ampdu {
    /// Bytes, 1..=65535; [`Ampdu::MOST_BYTES`].
    pub bytes: u32,
    /// Time on the air, up to [`Ampdu::LONGEST`]; 4 ms, as the driver ath9k has it.
    pub air_time: Duration,
    /// Frames from the first unacknowledged one on, 1..=64: the window of the block
    /// acknowledgement; [`Ampdu::MOST_FRAMES`].
    pub frames: u32,
}

impl Ampdu {
    /// The longest A-MPDU of HT in bytes (9.4.2.55.3).
    pub const MOST_BYTES: u32 = 65_535;
    /// The frames that a compressed block acknowledgement names.
    pub const MOST_FRAMES: u32 = 64;
    /// The longest frame in mixed format: its legacy signal field cannot say more (table 19-25,
    /// aPPDUMaxTime).
    pub const LONGEST: Duration = Duration::from_micros(5_484);
}

impl Default for Ampdu {
    fn default() -> Self {
        Ampdu {
            bytes: Ampdu::MOST_BYTES,
            air_time: Duration::from_millis(4),
            frames: Ampdu::MOST_FRAMES,
        }
    }
}

/// The delimiter before each subframe, in bytes.
pub(crate) const DELIMITER: u32 = 4;
/// All subframes but the last are padded to a multiple of this many bytes.
const ALIGNMENT: u32 = 4;

/// Bytes of an A-MPDU of `length` bytes, 0 for an empty one, with a subframe more around a frame of
/// `frame` bytes.
pub(crate) const fn with_subframe(length: u32, frame: u32) -> u32 {
    length.next_multiple_of(ALIGNMENT) + DELIMITER + frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_subframes_but_the_last_are_padded() {
        let of = |frames: &[u32]| frames.iter().fold(0, |sum, frame| with_subframe(sum, *frame));
        assert_eq!(of(&[98]), 102);
        assert_eq!(of(&[98, 98]), 104 + 102);
        assert_eq!(of(&[98, 97, 1538]), 104 + 104 + 1542);
    }
}
