//! Sums of data frames, and what [`Parity`] frames say of them: with a parity and all of its frames
//! but one, that one is known.
//!
//! * *Packing*, *length* (of the payload), *predecessor* and *payload* are sums modulo 2 (exclusive
//!   or) of those of the frames; payloads are taken as followed by zeros.
//! * A parity of one frame is a copy of it.
//!
//! Principle: RFC 8627 (FlexFEC), section 4.2.2, with its mask; of one row only.

use super::{Data, HEADER_LEN, IN_ORDER, Parity, SPAN, field};

/// Sequence numbers within [`SPAN`] of each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The lowest number.
    pub first: u32,
    /// One bit for each of the [`SPAN`] numbers from there, the lowest first: 1 for a member.
    pub mask: u32,
}

impl Members {
    /// The bit of a number, if it can have one.
    pub fn bit(self, seq: u32) -> Option<u32> {
        let place = seq.wrapping_sub(self.first);
        (place < SPAN).then(|| 1 << place)
    }

    /// The numbers.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        let is_member = move |place: &u32| self.mask & 1 << place != 0;
        (0..SPAN).filter(is_member).map(move |place| self.first.wrapping_add(place))
    }
}

/// Sum modulo 2 of data frames, as far as these do not depend on the link that they took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    packing: u8,
    length: u16,
    predecessor: u8,
    payload: Vec<u8>,
}

impl Sum {
    /// Begins anew.
    pub fn clear(&mut self) {
        (self.packing, self.length, self.predecessor) = (0, 0, 0);
        self.payload.clear();
    }

    /// Bytes of the longest payload.
    pub fn len(&self) -> usize {
        self.payload.len()
    }

    /// Whether no payload was added.
    pub fn is_empty(&self) -> bool {
        self.payload.is_empty()
    }

    /// Adds a data frame, or takes it away again.
    pub fn add(&mut self, data: &Data<'_>) {
        let length = data.payload.len() as u16;
        self.add_parts(data.repr.packing as u8, length, data.repr.predecessor.code(), data.payload);
    }

    /// Adds the frames of a parity.
    pub fn add_parity(&mut self, parity: &Parity<'_>) {
        let Parity { packing, length, predecessor, payload, .. } = *parity;
        self.add_parts(packing, length, predecessor, payload);
    }

    /// The parity of the frames `members`, whose sum this is.
    pub fn parity(&self, link: u8, tag: u8, link_seq: u16, members: Members) -> Parity<'_> {
        let Sum { packing, length, predecessor, ref payload } = *self;
        let Members { first, mask } = members;
        Parity { link, tag, link_seq, first, mask, packing, length, predecessor, payload }
    }

    fn add_parts(&mut self, packing: u8, length: u16, predecessor: u8, payload: &[u8]) {
        self.packing ^= packing;
        self.length ^= length;
        self.predecessor ^= predecessor;
        if self.payload.len() < payload.len() {
            self.payload.resize(payload.len(), 0);
        }
        self.payload.iter_mut().zip(payload).for_each(|(sum, byte)| *sum ^= byte);
    }

    /// Writes the frame with number `seq` over `bytes`, if this is the sum of a single one. Its
    /// link, tag and link number, which the sum does not have, are 0, and it is one that overtook
    /// others: it says nothing of what came before it on a link.
    pub fn write_frame(&self, seq: u32, bytes: &mut Vec<u8>) -> Option<()> {
        let payload = self.payload.get(..usize::from(self.length))?;
        let rest = &self.payload[payload.len()..];
        if self.packing >= IN_ORDER || rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.clear();
        bytes.resize(HEADER_LEN, 0);
        bytes[0] = self.packing << 4;
        bytes[4] = self.predecessor;
        bytes[field::SEQ_LOW].copy_from_slice(&seq.to_be_bytes()[1..]);
        bytes.extend_from_slice(payload);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Frame, PARITY_LEN, Packing, Predecessor, Refusal, Repr, SEQ_MASK};
    use super::*;
    use proptest::prelude::*;

    const FIRST: u32 = 0xff_fff0;

    /// A data frame, on a link of its own.
    fn frame(seq: u32, packing: Packing, payload: &[u8]) -> Vec<u8> {
        let repr = Repr {
            packing,
            overtakes: seq.is_multiple_of(2),
            link: seq as u8 & 0xf,
            tag: 7,
            link_seq: seq as u16,
            predecessor: Predecessor::at(1 + seq % 300),
            seq,
        };
        let mut bytes = vec![0; HEADER_LEN];
        repr.emit(&mut bytes);
        super::super::push(packing, payload, &mut bytes);
        bytes
    }

    fn data(bytes: &[u8]) -> Data<'_> {
        match Frame::parse(bytes) {
            Ok(Frame::Data(data)) => data,
            other => panic!("{other:?}"),
        }
    }

    fn parity(bytes: &[u8]) -> Parity<'_> {
        match Frame::parse(bytes) {
            Ok(Frame::Parity(parity)) => parity,
            other => panic!("{other:?}"),
        }
    }

    proptest! {
        /// The frames take several links and have any length and packing; Ethernet pads the parity.
        #[test]
        fn a_parity_and_all_frames_but_one_give_that_one(
            payloads in proptest::collection::vec(
                (0..SPAN, any::<bool>(), proptest::collection::vec(any::<u8>(), 1..200)), 1..16),
            lost in any::<prop::sample::Index>(),
            padding in 0usize..30,
        ) {
            let mut frames = std::collections::BTreeMap::new();
            frames.insert(FIRST, frame(FIRST, Packing::One, &[9; 40]));
            for (place, alone, payload) in &payloads {
                let packing = if *alone { Packing::One } else { Packing::Length };
                let seq = FIRST.wrapping_add(*place);
                frames.insert(seq, frame(seq, packing, payload));
            }
            let (mut sum, mut members) = (Sum::default(), Members { first: FIRST, mask: 0 });
            for (seq, bytes) in &frames {
                sum.add(&data(bytes));
                members.mask |= members.bit(*seq).unwrap();
            }
            let mut sent = Vec::new();
            sum.parity(3, 7, 500, members).emit(&mut sent);
            sent.resize(sent.len() + padding, 0);
            let heard = parity(&sent);
            prop_assert_eq!((heard.link, heard.tag, heard.link_seq), (3, 7, 500));
            prop_assert_eq!((heard.first, heard.mask), (FIRST & SEQ_MASK, members.mask));
            let expected: Vec<u32> = members.iter().collect();
            prop_assert_eq!(expected.clone(), frames.keys().copied().collect::<Vec<_>>());

            let lost = expected[lost.index(expected.len())];
            let mut rest = Sum::default();
            rest.add_parity(&heard);
            frames.iter().filter(|(seq, _)| **seq != lost).for_each(|(_, bytes)| {
                rest.add(&data(bytes));
            });
            let mut recovered = Vec::new();
            rest.write_frame(lost, &mut recovered).unwrap();
            let (recovered, sent) = (data(&recovered), data(&frames[&lost]));
            prop_assert!(recovered.repr.overtakes, "it says nothing of a link");
            let Repr { packing, predecessor, seq, .. } = sent.repr;
            prop_assert_eq!((packing, predecessor, seq), {
                let Repr { packing, predecessor, seq, .. } = recovered.repr;
                (packing, predecessor, seq)
            });
            prop_assert_eq!(recovered.payload, sent.payload);
        }
    }

    #[test]
    fn the_sum_of_several_frames_is_no_frame() {
        let (mut sum, mut bytes) = (Sum::default(), Vec::new());
        sum.add(&data(&frame(1, Packing::One, &[1; 100])));
        assert!(sum.write_frame(1, &mut bytes).is_some());
        sum.add(&data(&frame(2, Packing::One, &[2; 60])));
        assert!(sum.write_frame(1, &mut bytes).is_none(), "bytes beyond its length");
    }

    #[test]
    fn a_parity_that_is_cut_or_begins_with_no_frame_of_its_own_is_refused() {
        let mut sum = Sum::default();
        sum.add(&data(&frame(1, Packing::One, &[1; 100])));
        let mut bytes = Vec::new();
        sum.parity(0, 1, 2, Members { first: 1, mask: 0b10 }).emit(&mut bytes);
        assert_eq!(Frame::parse(&bytes).unwrap_err(), Refusal::Field);
        assert_eq!(Frame::parse(&bytes[..PARITY_LEN - 1]).unwrap_err(), Refusal::Truncated);
    }
}
