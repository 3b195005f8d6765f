//! The sender's side of header compression: which packets define a context, and which use it.
//!
//! Principle: a flow is looked at for two packets, which show what is constant and what counts.
//! Then a packet defines the context, again and again until the splitter has acknowledged it, and
//! from then on packets are compressed. Packets in between, and packets that fit no rule, travel as
//! they are. So nothing is lost while a context is not known, and an answer that says so costs one
//! definition.

use sheaf_stage::{Duration, Instant};
use sheaf_wire::compress::feedback::Item;
use sheaf_wire::compress::{
    Compressed, Context, Definition, Headers, IdRule, MAX_CONTEXTS, Reference, Rtp, Rules,
};
use std::collections::HashMap;

/// First pause between two definitions of a context; each is twice the one before. A round trip to
/// a neighbour is shorter.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Longest pause between two definitions: the 4 bytes do not matter, and a splitter that begins to
/// understand them is used within about a second.
const LONGEST_PAUSE: Duration = Duration::from_millis(1280);
/// A number is used for another flow after this long without a packet of its flow: no packet that
/// refers to the old flow is on its way any more.
const REUSE: Duration = Duration::from_secs(2);
/// Numbers that are looked at for a new flow: a packet costs the same whatever the table holds.
const CANDIDATES: usize = 8;
/// Further frames in which packets carry their time stamp after a jump. A lost frame takes packets
/// of two frames with it: those in it, and one that continues from or into it. So no frame hides a
/// jump.
const REPEATS: u8 = 2;
/// Packets in a row that are not compact before the rules of a flow are chosen anew. Doubled each
/// time, because some flows fit no rule.
const PATIENCE: u32 = 8;
/// Doublings of [`PATIENCE`].
const MAX_RELEARNED: u32 = 10;
/// Steps of RTP's sequence number that two packets of one flow may be apart to show the rules.
const NEAR: std::ops::RangeInclusive<u16> = 1..=8;

/// Addresses and ports, with zeros behind those of IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Flow([u8; 36]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The packet before this one is known.
    Learning,
    /// The context has been defined, or will be with the next packet.
    Defining { next: Instant, pause: Duration },
    /// It has been acknowledged.
    Known { generation: u16 },
    /// Its rules did not fit. The flow gets another number, because a late frame with packets of
    /// this context could not be taken apart by other rules under the same.
    Spent,
}

/// Fields of one packet of a flow that show its rules.
#[derive(Clone, Copy, Debug)]
struct Sample {
    id: Option<u16>,
    rtp: Option<Rtp>,
}

/// A context and its flow.
#[derive(Clone, Debug)]
struct Slot {
    flow: Flow,
    state: State,
    sample: Sample,
    context: Option<Context>,
    reference: Reference,
    last_used: Instant,
    /// Frames in which packets still carry their time stamp.
    repeats: u8,
    /// The frame of the last packet.
    frame: u32,
    /// The newest counters before that frame, and before the one before it: the latter reached the
    /// receiver even if a frame was lost.
    newest: [u16; 2],
    /// Packets in a row that were not compact.
    strained: u32,
    relearned: u32,
}

/// The contexts of one stream.
#[derive(Debug)]
pub(crate) struct Compressor {
    slots: Vec<Option<Slot>>,
    index: HashMap<Flow, u8>,
    /// The number that is looked at first for a new flow.
    cursor: u8,
}

impl Default for Compressor {
    fn default() -> Self {
        let (slots, index) = (vec![None; MAX_CONTEXTS], HashMap::with_capacity(MAX_CONTEXTS));
        Compressor { slots, index, cursor: 0 }
    }
}

impl Compressor {
    /// Writes the block of a packet over `block`, and returns whether that is the packet as it is.
    /// It goes into the frame number `frame`, or into the next one.
    pub fn pack(&mut self, packet: &[u8], frame: u32, now: Instant, block: &mut Vec<u8>) -> bool {
        block.clear();
        let plain = Headers::read(packet)
            .is_none_or(|headers| self.compress(&headers, (frame, now), block).is_none());
        if plain {
            block.extend_from_slice(packet);
        }
        plain
    }

    /// Takes note of what the splitter said at `now` of one of these contexts.
    pub fn said(&mut self, item: Item, now: Instant) {
        let again = State::Defining { next: now, pause: FIRST_PAUSE };
        match item {
            Item::Known { number, generation, check, .. } => {
                let Some(slot) = &mut self.slots[usize::from(number)] else { return };
                // Of another definition than the last, or said twice: it names no generation that
                // the splitter has now.
                let defined = slot.context.is_some_and(|context| context.check(number) == check);
                let State::Defining { pause, .. } = slot.state else { return };
                if defined {
                    slot.state = State::Known { generation };
                    slot.strained = 0;
                    // Of several definitions, the last may be the one that did not arrive.
                    slot.repeats = if pause > FIRST_PAUSE * 2 { REPEATS + 1 } else { 0 };
                }
            }
            Item::Unknown { number, .. } => {
                let Some(slot) = &mut self.slots[usize::from(number)] else { return };
                if matches!(slot.state, State::Known { .. }) {
                    slot.state = again;
                }
            }
            Item::Lost { .. } => {
                for slot in self.slots.iter_mut().flatten() {
                    if matches!(slot.state, State::Known { .. } | State::Defining { .. }) {
                        slot.state = again;
                    }
                }
            }
        }
    }

    /// Appends the block of a packet that is compressed or defines a context. `None`: it travels as
    /// it is.
    fn compress(
        &mut self,
        headers: &Headers<'_>,
        (frame, now): (u32, Instant),
        block: &mut Vec<u8>,
    ) -> Option<()> {
        let number = self.number(headers, now)?;
        let slot = self.slots[usize::from(number)].as_mut().expect("found or made");
        slot.last_used = now;
        let sample = std::mem::replace(&mut slot.sample, Sample::of(headers));
        if slot.state == State::Learning {
            slot.context = Some(Context::of(headers, sample.rules(slot.sample)?)?);
            slot.state = State::Defining { next: now, pause: FIRST_PAUSE };
        }
        let context = slot.context.expect("a context that is no longer learned");
        let fits = context.fits(headers);
        if let State::Known { generation } = slot.state {
            let known = (number, &context, generation);
            if let Some(compressed) = fits.then(|| slot.compress(headers, known, frame)).flatten() {
                compressed.emit(block);
                block.extend_from_slice(&headers.packet()[context.headers_len()..]);
                return Some(());
            }
            if fits {
                // Too far from the last packet: a definition says where the flow is now.
                slot.state = State::Defining { next: now, pause: FIRST_PAUSE };
            }
        }
        match slot.state {
            State::Spent => None,
            State::Defining { next, pause } if next <= now => {
                if Context::of(headers, context.rules()) != Some(context) {
                    slot.strain();
                    return None;
                }
                slot.state =
                    State::Defining { next: now + pause, pause: LONGEST_PAUSE.min(pause * 2) };
                slot.reference = context.reference(headers);
                if pause == FIRST_PAUSE {
                    slot.newest = [slot.reference.newest(); 2];
                }
                block.extend_from_slice(&Definition::header(number, context.rules()));
                block.extend_from_slice(headers.packet());
                Some(())
            }
            _ if fits => None,
            _ => {
                slot.strain();
                None
            }
        }
    }

    /// The number of a packet's context, taken into use for a new flow if one is free.
    fn number(&mut self, headers: &Headers<'_>, now: Instant) -> Option<u8> {
        let mut flow = Flow([0; 36]);
        flow.0[..headers.flow().len()].copy_from_slice(headers.flow());
        let mut relearned = 0;
        if let Some(number) = self.index.get(&flow).copied() {
            let slot = self.slots[usize::from(number)].as_ref().expect("of a flow");
            if slot.state != State::Spent {
                return Some(number);
            }
            relearned = slot.relearned;
        }
        let free = (0..CANDIDATES).find_map(|_| {
            let number = self.cursor;
            self.cursor = self.cursor.wrapping_add(1);
            let slot = self.slots[usize::from(number)].as_ref();
            slot.is_none_or(|slot| now - slot.last_used >= REUSE).then_some(number)
        })?;
        if let Some(old) = self.slots[usize::from(free)].take()
            && self.index.get(&old.flow) == Some(&free)
        {
            self.index.remove(&old.flow);
        }
        self.index.insert(flow, free);
        self.slots[usize::from(free)] = Some(Slot {
            flow,
            state: State::Learning,
            sample: Sample { id: None, rtp: None },
            context: None,
            reference: Reference::new(0, 0),
            last_used: now,
            repeats: 0,
            frame: 0,
            newest: [0; 2],
            strained: 0,
            relearned,
        });
        Some(free)
    }
}

impl Slot {
    /// Compresses a packet that fits its context, unless its counter is too far away.
    fn compress(
        &mut self,
        headers: &Headers<'_>,
        (number, context, generation): (u8, &Context, u16),
        frame: u32,
    ) -> Option<Compressed> {
        let jumps = self.reference.jumps(context, headers);
        if frame != self.frame {
            self.frame = frame;
            self.newest = [self.reference.newest(), self.newest[0]];
            self.repeats = self.repeats.saturating_sub(1);
        }
        if jumps {
            // This frame, and further ones.
            self.repeats = REPEATS + 1;
        }
        let sent = (self.repeats > 0, self.newest[1]);
        let known = (number, context, generation);
        let compressed = Compressed::of(headers, known, &self.reference, sent)?;
        self.reference.sent(context, headers);
        if compressed.is_compact() {
            self.strained = 0;
        } else if jumps || self.repeats == 0 {
            self.strain();
        }
        Some(compressed)
    }

    /// A packet was not compact. After many in a row the rules are chosen anew.
    fn strain(&mut self) {
        self.strained += 1;
        if self.strained >= PATIENCE << self.relearned {
            self.strained = 0;
            self.relearned = MAX_RELEARNED.min(self.relearned + 1);
            self.state = State::Spent;
        }
    }
}

impl Sample {
    fn of(headers: &Headers<'_>) -> Sample {
        Sample { id: headers.identification(), rtp: headers.rtp() }
    }

    /// The rules that this packet and the `next` one of its flow show. `None`: they show none yet.
    fn rules(self, next: Sample) -> Option<Rules> {
        let step = |before: Option<u16>, after: Option<u16>| Some(after?.wrapping_sub(before?));
        let id = step(self.id, next.id);
        let rtp = self.rtp.zip(next.rtp).filter(|(before, after)| {
            (before.payload_type, before.source) == (after.payload_type, after.source)
                && NEAR.contains(&after.sequence.wrapping_sub(before.sequence))
        });
        let Some((before, after)) = rtp else {
            let first_packet = self.id.is_none() && self.rtp.is_none() && next.rtp.is_some();
            let id = match id {
                _ if first_packet => return None,
                None if next.id.is_some() => return None,
                None | Some(0) => IdRule::Constant,
                Some(_) => IdRule::Follows,
            };
            return Some(Rules { rtp: false, id, stride: 0 });
        };
        let steps = after.sequence.wrapping_sub(before.sequence);
        let id = match id {
            None | Some(0) => IdRule::Constant,
            Some(id) if id == steps => IdRule::Follows,
            Some(_) => IdRule::Explicit,
        };
        // Only neighbours show the stride; the first packet after a silence does not.
        let grown = after.timestamp.wrapping_sub(before.timestamp);
        let stride = u16::try_from(grown).ok().filter(|_| steps == 1 && !after.marker)?;
        Some(Rules { rtp: true, id, stride })
    }
}
