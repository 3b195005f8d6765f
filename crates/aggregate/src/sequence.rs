//! Frames of a stream that have been received.
//!
//! A sequence number of 8 bits comes again after 256 frames. Up to 128 frames after the newest it
//! counts as newer, up to 128 before it as older (RFC 1982). An older number whose frame has been
//! received is a duplicate if the frame is the same, by a fingerprint of all its bytes. Otherwise
//! the sender has started again, or more than 127 frames in a row were lost, and the frame begins
//! the stream anew. Without the fingerprint such a gap would cost up to 128 more frames.

/// Frames ahead of the newest that count as newer.
const AHEAD: u8 = 128;

/// Place of a frame among those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The one behind the newest.
    Next,
    /// Newer, but so many frames before it are missing; also the first of all, with 0.
    Gap(u8),
    /// Overtaken by newer ones.
    Late,
    /// Received before.
    Duplicate,
}

/// The frames of one stream.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    newest: Option<u8>,
    /// Fingerprint of the frame that had each number last.
    seen: Box<[Option<u32>; 256]>,
}

impl Default for Sequence {
    fn default() -> Self {
        Sequence { newest: None, seen: Box::new([None; 256]) }
    }
}

impl Sequence {
    /// Takes note of the frame with this number.
    pub fn place(&mut self, number: u8, frame: &[u8]) -> Place {
        let print = fingerprint(frame);
        let place = self.find(number, print);
        if place != Place::Duplicate {
            self.seen[usize::from(number)] = Some(print);
        }
        if matches!(place, Place::Next | Place::Gap(_)) {
            self.newest = Some(number);
        }
        place
    }

    fn find(&mut self, number: u8, print: u32) -> Place {
        let Some(newest) = self.newest else { return Place::Gap(0) };
        let ahead = number.wrapping_sub(newest);
        if (1..=AHEAD).contains(&ahead) {
            // What the numbers in between had was 256 frames ago.
            (1..ahead).for_each(|step| self.seen[usize::from(newest.wrapping_add(step))] = None);
            return if ahead == 1 { Place::Next } else { Place::Gap(ahead - 1) };
        }
        match self.seen[usize::from(number)] {
            None => Place::Late,
            Some(seen) if seen == print => Place::Duplicate,
            Some(_) => {
                self.seen.fill(None);
                Place::Gap(0)
            }
        }
    }
}

/// 32 bits that frames with other bytes have in common with a chance of 2⁻³². The Internet checksum
/// would not do: over a packet with a right checksum it is always the same.
fn fingerprint(frame: &[u8]) -> u32 {
    // The golden ratio's; each step is one to one, so no word is forgotten.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let step = |hash: u64, word: u64| {
        let mixed = (hash ^ word).wrapping_mul(FACTOR);
        mixed ^ mixed >> 32
    };
    let (words, rest) = frame.as_chunks::<8>();
    let hash =
        words.iter().fold(frame.len() as u64, |hash, word| step(hash, u64::from_be_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    (step(hash, u64::from_be_bytes(last)).wrapping_mul(FACTOR) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(number: u32) -> [u8; 4] {
        number.to_be_bytes()
    }

    fn place(sequence: &mut Sequence, number: u32) -> Place {
        sequence.place(number as u8, &frame(number))
    }

    #[test]
    fn duplicates_up_to_127_frames_late_are_found_and_late_frames_are_none() {
        let mut sequence = Sequence::default();
        for number in (0..1000).filter(|number| *number != 900) {
            assert!(matches!(place(&mut sequence, number), Place::Next | Place::Gap(_)));
        }
        for number in (872..1000).filter(|number| *number != 900) {
            assert_eq!(place(&mut sequence, number), Place::Duplicate, "{number}");
        }
        assert_eq!(place(&mut sequence, 900), Place::Late);
        assert_eq!(place(&mut sequence, 900), Place::Duplicate);
    }

    #[test]
    fn a_gap_of_any_length_costs_no_frame_behind_it() {
        for gap in [1, 2, 100, 127, 128, 129, 200, 255, 256, 257, 511, 700] {
            let mut sequence = Sequence::default();
            for number in (0..300).chain(300 + gap..600 + gap) {
                assert_ne!(place(&mut sequence, number), Place::Duplicate, "gap {gap}, {number}");
            }
        }
    }

    #[test]
    fn frames_that_are_all_the_same_are_no_duplicates() {
        let mut sequence = Sequence::default();
        for number in 0..1000u32 {
            assert_ne!(sequence.place(number as u8, b"same"), Place::Duplicate);
        }
    }

    #[test]
    fn a_sender_that_starts_again_is_heard_at_once() {
        let mut sequence = Sequence::default();
        (0..70).for_each(|number| assert_ne!(place(&mut sequence, number), Place::Duplicate));
        for number in 0..70u8 {
            assert_ne!(sequence.place(number, &[7, number]), Place::Duplicate);
        }
    }

    #[test]
    fn every_bit_of_a_frame_counts_in_its_fingerprint() {
        let frame = [0x5a; 61];
        for bit in 0..frame.len() * 8 {
            let mut other = frame;
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(fingerprint(&frame), fingerprint(&other), "bit {bit}");
        }
    }
}
