//! The contexts of compressed headers that the other end defined, and the replies to it.

use sheaf_wire::trunk::context::Context;
use sheaf_wire::trunk::{MAX_ENTRIES, Name, Refusal};

/// Contexts of which one can be kept: numbers have 8 bits.
const NUMBERS: usize = 256;

/// The contexts that the other end defined.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    /// The newest of each number, and the one before, for frames that are late. Empty before the
    /// first definition.
    kept: Vec<[Option<(u8, Context)>; 2]>,
    /// Replies that are still to be sent.
    replies: Vec<(Name, bool)>,
}

impl Contexts {
    /// Keeps a context.
    pub fn define(&mut self, name: Name, headers: &[u8]) -> Result<(), Refusal> {
        let context = Context::parse(headers)?;
        self.kept.resize(NUMBERS, [None, None]);
        let [newest, before] = &mut self.kept[usize::from(name.id)];
        if newest.as_ref().is_some_and(|(generation, _)| *generation != name.generation) {
            *before = newest.take();
        }
        *newest = Some((name.generation, context));
        self.reply(name, true);
        Ok(())
    }

    /// Restores a packet behind what is in `out`; `false`: it cannot be.
    pub fn restore(&mut self, name: Name, rest: &[u8], out: &mut Vec<u8>) -> bool {
        let kept = self.kept.get(usize::from(name.id)).into_iter().flatten().flatten();
        let mut of_generation = kept.filter(|(generation, _)| *generation == name.generation);
        let Some((_, context)) = of_generation.next() else {
            self.reply(name, false);
            return false;
        };
        context.restore(rest, out).is_ok()
    }

    /// Takes the replies that are still to be sent.
    pub fn take_replies(&mut self) -> Vec<(Name, bool)> {
        std::mem::take(&mut self.replies)
    }

    /// Whether a reply is to be sent.
    pub fn has_replies(&self) -> bool {
        !self.replies.is_empty()
    }

    fn reply(&mut self, name: Name, has: bool) {
        // What finds no place is asked again: definitions are repeated, and packets go on.
        if self.replies.len() < MAX_ENTRIES && !self.replies.contains(&(name, has)) {
            self.replies.push((name, has));
        }
    }
}
