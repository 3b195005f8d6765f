//! The splitter's side of header compression: the contexts of one stream.

use sheaf_wire::aggfrag::{Block, Frame};
use sheaf_wire::compress::feedback::{Feedback, Item};
use sheaf_wire::compress::{Compressed, Context, Definition, MAX_CONTEXTS, Reference, restore};

/// A context that was defined.
#[derive(Clone, Debug)]
struct Known {
    context: Context,
    generation: u16,
    reference: Reference,
}

/// The contexts of one stream, by their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decompressor {
    /// Empty before the first definition, then of all numbers.
    known: Vec<Option<Known>>,
}

impl Decompressor {
    /// Payload length of the packets that a context stands for.
    pub fn payload_len(&self, number: u8) -> Option<u16> {
        self.get(number).map(|known| known.context.payload_len())
    }

    /// Takes note of a definition. A context with other constants than the one before it has the
    /// generation that `draw` returns.
    pub fn define(
        &mut self,
        (tag, definition): (u8, &Definition<'_>),
        draw: impl FnOnce() -> u16,
        feedback: &mut Feedback,
    ) {
        let Definition { number, context, headers } = definition;
        self.known.resize(MAX_CONTEXTS, None);
        let slot = &mut self.known[usize::from(*number)];
        let same = slot.as_ref().filter(|known| known.context == *context);
        let generation = same.map_or_else(draw, |known| known.generation);
        let reference = context.reference(headers);
        *slot = Some(Known { context: *context, generation, reference });
        let check = context.check(*number);
        feedback.push(Item::Known { tag, number: *number, generation, check });
    }

    /// Writes over `packet` what was compressed, and returns whether that is right.
    pub fn restore(&mut self, header: &Compressed, payload: &[u8], packet: &mut Vec<u8>) -> bool {
        let known = self.known.get_mut(usize::from(header.number)).and_then(Option::as_mut);
        known.is_some_and(|Known { context, generation, reference }| {
            restore(header, payload, (context, *generation), reference, packet)
        })
    }

    /// Says that a packet could not be restored from the context with this number.
    pub fn miss(&self, tag: u8, number: u8, feedback: &mut Feedback) {
        // A splitter that has started again knows none; one message then stands for all.
        let lost = self.known.is_empty();
        feedback.push(if lost { Item::Lost { tag } } else { Item::Unknown { tag, number } });
    }

    /// Says that the contexts are not known by which the blocks of `frame` were told apart.
    pub fn doubt(&self, tag: u8, frame: &Frame<'_>) -> Feedback {
        let mut feedback = Feedback::default();
        for block in frame.blocks() {
            if let Block::Compressed(Compressed { number, length: None, .. }, _) = block {
                self.miss(tag, number, &mut feedback);
            }
        }
        feedback
    }

    fn get(&self, number: u8) -> Option<&Known> {
        self.known.get(usize::from(number)).and_then(Option::as_ref)
    }
}
