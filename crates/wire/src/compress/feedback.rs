//! Messages of a receiver about the contexts of a sender.
//!
//! ```text
//! +---------------+---------------+
//! |  sub-type = 2 |  count, 1..32 |
//! +-------+-------+---------------+-------------------------------+
//! |kind 1 |  tag  |    number     |        generation             |  Known
//! +-------+-------+---------------+-------------------------------+
//! |               CRC-32 of the context's constants               |
//! +-------+-------+---------------+-------------------------------+
//! |kind 2 |  tag  |    number     |  Unknown
//! +-------+-------+---------------+
//! |kind 3 |  tag  |  Lost
//! +-------+-------+
//! ```
//!
//! The payload stands behind an outer header, as a frame does, and goes to whom the frames came
//! from. Zeros may follow, because Ethernet pads a message that has no header of IP. A message may
//! be lost or come twice: the sender defines a context again until it is known, and a receiver says
//! again what it does not know with every packet that needs it.

use crate::aggfrag::{FEEDBACK, Refusal};
use crate::meta::Repr;

/// The most items of one message.
pub const MAX_ITEMS: usize = 32;
/// Bytes of the longest message.
pub const MAX_LEN: usize = 2 + 8 * MAX_ITEMS;

const KNOWN: u8 = 1;
const UNKNOWN: u8 = 2;
const LOST: u8 = 3;

/// One statement about the stream with this tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// The context can be used from now on.
    Known {
        /// Its stream.
        tag: u8,
        /// Its number.
        number: u8,
        /// Number that its checks start with.
        generation: u16,
        /// [`Context::check`](super::Context::check) of what was defined.
        check: u32,
    },
    /// A packet could not be restored from this context.
    Unknown {
        /// Its stream.
        tag: u8,
        /// Its number.
        number: u8,
    },
    /// No context of this stream is known: the receiver has started again.
    Lost {
        /// The stream.
        tag: u8,
    },
}

impl Item {
    /// Whether both acknowledge the same context.
    fn of_same(&self, other: &Item) -> bool {
        let context = |item: &Item| match *item {
            Item::Known { tag, number, .. } => Some((tag, number)),
            Item::Unknown { .. } | Item::Lost { .. } => None,
        };
        context(self).is_some_and(|one| context(other) == Some(one))
    }
}

/// A message, of up to [`MAX_ITEMS`] items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    items: [Item; MAX_ITEMS],
    len: usize,
}

impl Default for Feedback {
    fn default() -> Self {
        Feedback { items: [Item::Lost { tag: 0 }; MAX_ITEMS], len: 0 }
    }
}

impl Feedback {
    /// Reads the payload `bytes`, sub-type included.
    pub fn parse(bytes: &[u8]) -> Result<Feedback, Refusal> {
        let (&[sub_type, count], mut rest) =
            bytes.split_first_chunk::<2>().ok_or(Refusal::Truncated)?;
        if sub_type != FEEDBACK {
            return Err(Refusal::SubType);
        }
        if !(1..=MAX_ITEMS).contains(&usize::from(count)) {
            return Err(Refusal::BadFeedback);
        }
        let mut feedback = Feedback::default();
        for _ in 0..count {
            let (&first, body) = rest.split_first().ok_or(Refusal::Truncated)?;
            let tag = first & 0xf;
            let (item, len) = match first >> 4 {
                KNOWN => {
                    let [number, a, b, check @ ..] =
                        *body.first_chunk::<7>().ok_or(Refusal::Truncated)?;
                    let generation = u16::from_be_bytes([a, b]);
                    let check = u32::from_be_bytes(check);
                    (Item::Known { tag, number, generation, check }, 7)
                }
                UNKNOWN => {
                    let number = *body.first().ok_or(Refusal::Truncated)?;
                    (Item::Unknown { tag, number }, 1)
                }
                LOST => (Item::Lost { tag }, 0),
                _ => return Err(Refusal::BadFeedback),
            };
            feedback.push(item);
            rest = &body[len..];
        }
        // Ethernet pads short frames with zeros.
        let ends = rest.iter().all(|byte| *byte == 0);
        if ends { Ok(feedback) } else { Err(Refusal::BadFeedback) }
    }

    /// Adds an item, unless the same stands there already or there is no room: then it is said
    /// again with the next packet that needs it.
    pub fn push(&mut self, item: Item) {
        if self.len < MAX_ITEMS && !self.items().contains(&item) {
            self.items[self.len] = item;
            self.len += 1;
        }
    }

    /// Adds the items of a later message: what it says of a context takes the place of what was
    /// said of it before. Returns whether there was room; without, nothing changes.
    pub fn add(&mut self, later: &Feedback) -> bool {
        if self.len + later.len > MAX_ITEMS {
            return false;
        }
        for item in later.items() {
            let before = self.items[..self.len].iter_mut().find(|before| before.of_same(item));
            match before {
                Some(before) => *before = *item,
                None => self.push(*item),
            }
        }
        true
    }

    /// The items.
    pub fn items(&self) -> &[Item] {
        &self.items[..self.len]
    }

    /// The packet that carries the message behind the outer header `repr`.
    ///
    /// # Panics
    /// Without items.
    pub fn packet(&self, repr: &Repr) -> Vec<u8> {
        let mut packet = Vec::with_capacity(repr.header_len() + MAX_LEN);
        packet.resize(repr.header_len(), 0);
        self.emit(&mut packet);
        let len = packet.len();
        repr.emit(len, &mut packet);
        packet
    }

    /// Appends the message to `bytes`.
    ///
    /// # Panics
    /// Without items.
    pub fn emit(&self, bytes: &mut Vec<u8>) {
        assert!(self.len > 0, "a message without items");
        bytes.extend_from_slice(&[FEEDBACK, self.len as u8]);
        for item in self.items() {
            match *item {
                Item::Known { tag, number, generation, check } => {
                    bytes.extend_from_slice(&[KNOWN << 4 | tag, number]);
                    bytes.extend_from_slice(&generation.to_be_bytes());
                    bytes.extend_from_slice(&check.to_be_bytes());
                }
                Item::Unknown { tag, number } => {
                    bytes.extend_from_slice(&[UNKNOWN << 4 | tag, number]);
                }
                Item::Lost { tag } => bytes.push(LOST << 4 | tag),
            }
        }
    }
}
