//! The receiving side of parities ([`wire`](sheaf_wire::trunk::parity)): frames that were lost,
//! from those that came.
//!
//! Bounded: the last [`KEPT`] data frames, and [`BLOCKS`] parities of which more than one frame is
//! missing. Nothing is kept until a parity comes, and once none has come for [`FORGET`].

use sheaf_stage::{Duration, Instant};
use sheaf_wire::trunk::parity::{Members, Sum};
use sheaf_wire::trunk::{Data, Packing, Parity, Predecessor, Repr};
use std::collections::VecDeque;

/// Data frames kept: those of a tenth of a second, by which links differ, at 100 Mbit/s. A power of
/// two, so that places go on where numbers wrap.
const KEPT: usize = 1024;
/// Parities kept of which more than one frame is missing.
const BLOCKS: usize = 32;
/// Time without a parity after which all is given back.
const FORGET: Duration = Duration::from_secs(10);

/// A data frame that came.
#[derive(Clone, Debug)]
struct Kept {
    seq: u32,
    packing: Packing,
    predecessor: Predecessor,
    payload: Vec<u8>,
}

/// A parity, less the frames that came.
#[derive(Clone, Debug, Default)]
struct Block {
    missing: Members,
    sum: Sum,
}

/// Frames that came and parities, from which lost frames are recovered.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    /// By the low bits of their numbers; empty while no parities come.
    kept: Vec<Option<Kept>>,
    blocks: VecDeque<Block>,
    spare: Vec<Block>,
    last_parity: Instant,
    recovered: u64,
}

impl Recovery {
    /// Frames recovered.
    pub fn recovered(&self) -> u64 {
        self.recovered
    }

    /// Whether parities come, so that data frames are to be noted.
    pub fn is_on(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Forgets everything.
    pub fn restart(&mut self) {
        *self = Recovery { recovered: self.recovered, ..Recovery::default() };
    }

    /// Notes a data frame with the whole number `seq`.
    pub fn note(&mut self, seq: u32, data: &Data<'_>, now: Instant) {
        if !self.is_on() {
            return;
        }
        if now - self.last_parity >= FORGET {
            return self.restart();
        }
        let place = seq as usize % KEPT;
        if self.kept[place].as_ref().is_some_and(|kept| kept.seq == seq) {
            return;
        }
        let Repr { packing, predecessor, .. } = data.repr;
        let mut payload = self.kept[place].take().map(|kept| kept.payload).unwrap_or_default();
        payload.clear();
        payload.extend_from_slice(data.payload);
        self.kept[place] = Some(Kept { seq, packing, predecessor, payload });
        for block in &mut self.blocks {
            if let Some(bit) = block.missing.bit(seq).filter(|bit| block.missing.mask & bit != 0) {
                block.missing.mask &= !bit;
                block.sum.add(data);
            }
        }
    }

    /// Takes a parity, the lowest number of whose frames is `first`.
    pub fn parity(&mut self, first: u32, parity: &Parity<'_>, now: Instant) {
        self.last_parity = now;
        if !self.is_on() {
            // What came before is not known.
            self.kept.resize(KEPT, None);
            return;
        }
        let mut block = self.spare.pop().unwrap_or_default();
        block.sum.clear();
        block.missing = Members { first, mask: parity.mask };
        block.sum.add_parity(parity);
        for seq in block.missing.iter() {
            let kept = self.kept[seq as usize % KEPT].as_ref().filter(|kept| kept.seq == seq);
            if let (Some(kept), Some(bit)) = (kept, block.missing.bit(seq)) {
                block.missing.mask &= !bit;
                let Kept { packing, predecessor, ref payload, .. } = *kept;
                let (overtakes, link, tag, link_seq) = (true, 0, 0, 0);
                let repr = Repr { packing, overtakes, link, tag, link_seq, predecessor, seq };
                block.sum.add(&Data { repr, payload });
            }
        }
        if block.missing.mask == 0 {
            self.spare.push(block);
            return;
        }
        if self.blocks.len() == BLOCKS
            && let Some(oldest) = self.blocks.pop_front()
        {
            self.spare.push(oldest);
        }
        self.blocks.push_back(block);
    }

    /// Writes a frame that can be recovered over `bytes`, and returns its number.
    pub fn pop(&mut self, bytes: &mut Vec<u8>) -> Option<u32> {
        while let Some(at) =
            self.blocks.iter().position(|block| block.missing.mask.count_ones() <= 1)
        {
            let block = self.blocks.remove(at)?;
            let seq = block.missing.iter().next();
            let written = seq.and_then(|seq| block.sum.write_frame(seq, bytes));
            self.spare.push(block);
            if written.is_some() {
                self.recovered += 1;
                return seq;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_wire::trunk::{Frame, HEADER_LEN};

    const SECOND: Duration = Duration::from_secs(1);

    fn frame(seq: u32) -> Vec<u8> {
        let (packing, predecessor) = (Packing::One, Predecessor::Back(1));
        let (overtakes, link, tag, link_seq) = (false, 1, 2, seq as u16);
        let mut bytes = vec![seq as u8; HEADER_LEN + 100 + seq as usize % 50];
        Repr { packing, overtakes, link, tag, link_seq, predecessor, seq }.emit(&mut bytes);
        bytes
    }

    fn data(bytes: &[u8]) -> Data<'_> {
        match Frame::parse(bytes) {
            Ok(Frame::Data(data)) => data,
            other => panic!("{other:?}"),
        }
    }

    /// The receiver, and what it told.
    #[derive(Default)]
    struct Heard {
        recovery: Recovery,
        bytes: Vec<u8>,
        recovered: Vec<u32>,
    }

    impl Heard {
        /// A receiver that has heard a parity, and frame 0 after it.
        fn begun() -> Heard {
            let mut heard = Heard::default();
            heard.parity(0, 1, Instant::ZERO);
            heard.data(0, Instant::ZERO);
            assert!(heard.recovered.is_empty(), "what came before the first is not known");
            heard
        }

        fn data(&mut self, seq: u32, now: Instant) {
            self.recovery.note(seq, &data(&frame(seq)), now);
            self.take();
        }

        fn parity(&mut self, first: u32, mask: u32, now: Instant) {
            let (members, mut sum) = (Members { first, mask }, Sum::default());
            members.iter().for_each(|seq| sum.add(&data(&frame(seq))));
            self.recovery.parity(first, &sum.parity(0, 2, 0, members), now);
            self.take();
        }

        fn take(&mut self) {
            while let Some(seq) = self.recovery.pop(&mut self.bytes) {
                let told = data(&self.bytes);
                assert_eq!(told.payload, &frame(seq)[HEADER_LEN..]);
                self.recovered.push(seq);
                self.recovery.note(seq, &told, self.recovery.last_parity);
            }
        }
    }

    #[test]
    fn a_frame_is_known_with_the_last_of_the_others_whichever_comes_first() {
        let now = Instant::ZERO;
        let mut heard = Heard::begun();
        (1..4).for_each(|seq| heard.data(seq, now));
        heard.parity(1, 0b1111, now);
        assert_eq!(heard.recovered, [4], "the parity came last");
        heard.parity(10, 0b1011, now);
        heard.data(13, now);
        assert_eq!(heard.recovered, [4]);
        heard.data(10, now);
        assert_eq!(heard.recovered, [4, 11], "a frame came last");
        heard.data(11, now);
        heard.parity(13, 0b1, now);
        assert_eq!(heard.recovered, [4, 11], "all are known");
    }

    #[test]
    fn one_recovered_frame_tells_another_parity_the_one_that_it_misses() {
        let now = Instant::ZERO;
        let mut heard = Heard::begun();
        heard.parity(20, 0b11, now);
        heard.parity(21, 0b11, now);
        assert!(heard.recovered.is_empty());
        heard.data(20, now);
        assert_eq!(heard.recovered, [21, 22]);
    }

    #[test]
    fn what_is_kept_is_bounded_and_given_back_once_no_parity_comes() {
        let now = Instant::ZERO;
        let mut heard = Heard::begun();
        for n in 0..10_000 {
            // Of these two are missing for good.
            heard.parity(4 * n, 0b111, now);
            heard.data(4 * n, now);
        }
        assert_eq!((heard.recovery.blocks.len(), heard.recovery.kept.len()), (BLOCKS, KEPT));
        assert!(heard.recovered.is_empty());
        heard.data(50_000, now + FORGET - SECOND);
        assert!(heard.recovery.is_on());
        heard.data(50_001, now + FORGET);
        assert!(!heard.recovery.is_on());
        assert_eq!((heard.recovery.blocks.len(), heard.recovery.kept.len()), (0, 0));
    }

    #[test]
    fn numbers_may_wrap() {
        let mut heard = Heard::begun();
        (0..3).for_each(|n| heard.data((u32::MAX - 1).wrapping_add(n), Instant::ZERO));
        heard.parity(u32::MAX - 1, 0b1111, Instant::ZERO);
        assert_eq!(heard.recovered, [1]);
    }
}
