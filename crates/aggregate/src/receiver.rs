//! The receiving side of format 2: frames in, packets out, one state for each stream.
//!
//! Everything is checked before anything is delivered. Only the newest frame of a stream continues
//! the one before it: a frame that comes late delivers its complete packets, and the parts at its
//! ends are dropped. So the loss of a frame costs the packets in it and the one that continued from
//! it or into it, and there is never more than one packet in parts.
//!
//! Streams are bounded. A new one takes the place of the one that was silent for longest, and a
//! sender that was named in the configuration never has to make room for one that was not. So a
//! neighbour that invents senders, where every neighbour is accepted, stops no named one.

use crate::decompressor::Decompressor;
use crate::inner::Inner;
use crate::sequence::{Place, Sequence};
use sheaf_wire::aggfrag::{Block, Cut, Frame, Header, MAX_LEN, Refusal};
use sheaf_wire::compress::feedback::Feedback;
use sheaf_wire::crc::crc32;
use sheaf_wire::ecn::Ecn;
use sheaf_wire::flow::mix;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Streams of all senders together, each of up to about 40 KiB: 16 neighbours with all their tags.
const MAX_STREAMS: usize = 256;

/// Name of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    source: IpAddr,
    destination: IpAddr,
    tag: u8,
}

/// Outer header of a frame, and the standing of its source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carrier {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub ecn: Ecn,
    /// Whether the configuration names the source.
    pub named: bool,
}

/// Counters of the receiving side of format 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Frames taken apart.
    pub frames: u64,
    /// Frames that were missing when a newer one came.
    pub missing: u64,
    /// Frames that came after a newer one.
    pub late: u64,
    /// Packets, or blocks, of which one part came without the others, or whose parts did not fit.
    pub unjoined: u64,
    /// Compressed packets that could not be restored, and frames whose end could not be found
    /// because of one.
    pub unrestored: u64,
}

/// A block of which the rest is in the next frame.
#[derive(Clone, Debug)]
struct Partial {
    bytes: Vec<u8>,
    len: usize,
    check: u32,
    ecn: Ecn,
}

/// One stream.
#[derive(Clone, Debug, Default)]
struct Stream {
    sequence: Sequence,
    partial: Option<Partial>,
    decompressor: Decompressor,
    named: bool,
    /// Time of its last frame, in frames of all streams.
    last_used: u64,
}

/// The receiving side of format 2.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    streams: BTreeMap<Name, Stream>,
    received: Received,
    generations: Generations,
    /// Frames of all streams.
    clock: u64,
    packet: Vec<u8>,
}

impl Receiver {
    /// A receiver that draws the generations of contexts from `secret`.
    pub fn new(secret: u64) -> Receiver {
        Receiver {
            streams: BTreeMap::new(),
            received: Received::default(),
            generations: Generations { secret, drawn: 0 },
            clock: 0,
            packet: Vec::with_capacity(MAX_LEN),
        }
    }

    pub fn received(&self) -> Received {
        self.received
    }

    /// Takes note of a frame to a group, of which nothing is kept.
    pub fn took_one_to_a_group(&mut self) {
        self.received.frames += 1;
    }

    /// Takes the frame `payload` apart, hands what is in it to `deliver` with the ECN field that it
    /// travelled under, and returns what its sender is to be told.
    pub fn receive(
        &mut self,
        carrier: Carrier,
        payload: &[u8],
        mut deliver: impl FnMut(Inner<'_>, Ecn),
    ) -> Result<Feedback, Refusal> {
        let Carrier { source, destination, ecn, named } = carrier;
        let (Header { tag, sequence, .. }, _) = Header::parse(payload)?;
        let name = Name { source, destination, tag };
        let known = self.streams.get(&name).map(|stream| &stream.decompressor);
        let frame = Frame::parse(payload, |number| known?.payload_len(number))?;
        self.make_room(name, named)?;
        self.clock += 1;
        let stream = self.streams.entry(name).or_default();
        (stream.named, stream.last_used) = (named, self.clock);
        if frame.doubt().is_some() {
            self.received.unrestored += frame.len() as u64;
            return Ok(stream.decompressor.doubt(tag, &frame));
        }
        let place = stream.sequence.place(sequence, payload);
        self.received.count(place)?;

        let mut feedback = Feedback::default();
        let mut blocks = Blocks {
            tag,
            decompressor: &mut stream.decompressor,
            generations: &mut self.generations,
            received: &mut self.received,
            feedback: &mut feedback,
            packet: &mut self.packet,
        };
        if place != Place::Late {
            let partial = stream.partial.take();
            stream.partial = blocks.join(partial, &frame, (place, ecn), &mut deliver);
        } else if !frame.continuation().is_empty() {
            blocks.received.unjoined += 1;
        }
        if blocks.take_all(&frame, ecn, &mut deliver) {
            match frame.cut() {
                Some(cut) if place != Place::Late => stream.partial = Some(Partial::of(cut, ecn)),
                Some(_) => blocks.received.unjoined += 1,
                None => {}
            }
        }
        Ok(feedback)
    }

    /// Makes sure that there is a place for this stream.
    fn make_room(&mut self, name: Name, named: bool) -> Result<(), Refusal> {
        if self.streams.len() < MAX_STREAMS || self.streams.contains_key(&name) {
            return Ok(());
        }
        let replaceable = self.streams.iter().filter(|(_, stream)| named || !stream.named);
        let oldest = replaceable.min_by_key(|(_, stream)| (stream.named, stream.last_used));
        let oldest = *oldest.ok_or(Refusal::TooManyStreams)?.0;
        self.streams.remove(&oldest);
        Ok(())
    }
}

/// State that the blocks of one frame change.
struct Blocks<'a> {
    tag: u8,
    decompressor: &'a mut Decompressor,
    generations: &'a mut Generations,
    received: &'a mut Received,
    feedback: &'a mut Feedback,
    packet: &'a mut Vec<u8>,
}

impl Blocks<'_> {
    /// Joins the beginning of a block with what `frame` has of it. Returns it when it goes on in
    /// the next frame.
    fn join(
        &mut self,
        partial: Option<Partial>,
        frame: &Frame<'_>,
        (place, ecn): (Place, Ecn),
        deliver: &mut impl FnMut(Inner<'_>, Ecn),
    ) -> Option<Partial> {
        let (rest, continuation) = (usize::from(frame.header().offset), frame.continuation());
        let Some(mut partial) = partial
            .filter(|partial| place == Place::Next && rest == partial.len - partial.bytes.len())
        else {
            self.received.unjoined += u64::from(rest > 0);
            return None;
        };
        partial.bytes.extend_from_slice(continuation);
        if ecn == Ecn::Ce {
            partial.ecn = ecn;
        }
        if continuation.len() < rest {
            return Some(partial);
        }
        // Two frames that are no neighbours look like it once in a while (see `aggfrag`).
        let whole = crc32(&partial.bytes) == partial.check;
        let decompressor = &self.decompressor;
        let block = Block::parse(&partial.bytes, |number| decompressor.payload_len(number));
        match block {
            Ok(block) if whole => {
                let taken = block.and_then(|block| self.take(block, partial.ecn, deliver));
                if let Err(number) = taken {
                    self.missed(number);
                }
            }
            _ => self.received.unjoined += 1,
        }
        None
    }

    /// Delivers the packets of all blocks; returns false if the end of the frame is in doubt.
    ///
    /// Behind a compressed packet that could not be restored, the blocks may be wrong ones: its
    /// context may have another length than the sender's. A compressed packet that is restored
    /// behind it shows that they are right, as its own check covers its place. Until then nothing
    /// else is believed.
    fn take_all(
        &mut self,
        frame: &Frame<'_>,
        ecn: Ecn,
        deliver: &mut impl FnMut(Inner<'_>, Ecn),
    ) -> bool {
        // Contexts that were missed since the last compressed packet that was restored.
        let mut doubt: Option<Feedback> = None;
        for block in frame.blocks() {
            if doubt.is_some() && !matches!(block, Block::Compressed(..)) {
                self.received.unrestored += 1;
                continue;
            }
            match self.take(block, ecn, deliver) {
                Ok(()) => {
                    let missed = doubt.take().unwrap_or_default();
                    missed.items().iter().for_each(|item| self.feedback.push(*item));
                }
                Err(number) => {
                    self.received.unrestored += 1;
                    let missed = doubt.get_or_insert_default();
                    self.decompressor.miss(self.tag, number, missed);
                }
            }
        }
        // The others may be numbers that nobody sent.
        if let Some(first) = doubt.as_ref().and_then(|missed| missed.items().first()) {
            self.feedback.push(*first);
        } else if let Some(number) = frame.unknown() {
            self.missed(number);
        }
        doubt.is_none()
    }

    /// Delivers the packet of a block. `Err`: it could not be restored from the context with this
    /// number.
    fn take(
        &mut self,
        block: Block<'_>,
        ecn: Ecn,
        deliver: &mut impl FnMut(Inner<'_>, Ecn),
    ) -> Result<(), u8> {
        match block {
            Block::Packet(bytes) => self.copy(bytes),
            Block::Ethernet(payload) => {
                self.copy(payload.bytes);
                deliver(Inner { ethertype: payload.ethertype, bytes: self.packet }, ecn);
                return Ok(());
            }
            Block::Definition(definition) => {
                let draw = || self.generations.draw();
                self.decompressor.define((self.tag, &definition), draw, self.feedback);
                self.copy(definition.headers.packet());
            }
            Block::Compressed(header, payload) => {
                if !self.decompressor.restore(&header, payload, self.packet) {
                    return Err(header.number);
                }
            }
        }
        deliver(Inner::ip(self.packet), ecn);
        Ok(())
    }

    fn copy(&mut self, packet: &[u8]) {
        self.packet.clear();
        self.packet.extend_from_slice(packet);
    }

    /// A packet could not be restored.
    fn missed(&mut self, number: u8) {
        self.received.unrestored += 1;
        self.decompressor.miss(self.tag, number, self.feedback);
    }
}

impl Partial {
    fn of(cut: Cut<'_>, ecn: Ecn) -> Partial {
        let mut bytes = Vec::with_capacity(usize::from(cut.len));
        bytes.extend_from_slice(cut.part);
        Partial { bytes, len: cut.len.into(), check: cut.check, ecn }
    }
}

impl Received {
    fn count(&mut self, place: Place) -> Result<(), Refusal> {
        match place {
            Place::Next => {}
            Place::Gap(missing) => self.missing += u64::from(missing),
            Place::Late => self.late += 1,
            Place::Duplicate => return Err(Refusal::Duplicate),
        }
        self.frames += 1;
        Ok(())
    }
}

/// Generations of contexts: all 65,536 in an order that only who has the secret knows.
///
/// None comes twice before all have come. So a forger cannot have definitions answered until the
/// generation comes again that a sender uses: the sender hears of the first, and stops using it.
#[derive(Clone, Debug)]
struct Generations {
    secret: u64,
    drawn: u16,
}

impl Generations {
    /// The next one: a Feistel network of four rounds over the number drawn (Luby and Rackoff,
    /// 1988), with the finalizer of SplitMix64 as its round function.
    fn draw(&mut self) -> u16 {
        let [mut left, mut right] = self.drawn.to_be_bytes();
        self.drawn = self.drawn.wrapping_add(1);
        for round in 0..4u64 {
            let mixed = mix(self.secret.wrapping_add(round << 8 | u64::from(right)));
            (left, right) = (right, left ^ (mixed >> 56) as u8);
        }
        u16::from_be_bytes([left, right])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_generation_comes_twice_and_another_secret_has_another_order() {
        let drawn = |secret| {
            let mut generations = Generations { secret, drawn: 0 };
            (0..=u16::MAX).map(|_| generations.draw()).collect::<Vec<_>>()
        };
        let (first, second) = (drawn(1), drawn(2));
        let different: std::collections::BTreeSet<_> = first.iter().collect();
        assert_eq!(different.len(), 1 << 16);
        let same = first.iter().zip(&second).filter(|(a, b)| a == b).count();
        assert!(same < 16, "{same} of 65,536 have the same place");
    }
}
