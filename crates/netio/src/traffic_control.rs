//! Messages about queueing disciplines and filters (`struct tcmsg`, linux/rtnetlink.h).
//!
//! The parsers of `netlink_packet_route` know all kinds of filters and actions, which take 57 KB of
//! a router's binary; the few attributes that are of interest here are read by
//! [`crate::attribute`].

use crate::attribute::{Attributes, put};
use netlink_packet_core::Emitable;

/// Bytes of `struct tcmsg`.
const HEAD: usize = 20;

/// Attributes (`enum` in linux/rtnetlink.h and linux/gen_stats.h).
pub(crate) mod attribute {
    pub const KIND: u16 = 1;
    pub const OPTIONS: u16 = 2;
    pub const STATS2: u16 = 7;
    pub const DUMP_INVISIBLE: u16 = 10;
    /// In STATS2: `struct gnet_stats_queue`, which begins with the packets that wait.
    pub const STATS_QUEUE: u16 = 3;
    /// In OPTIONS of a filter of kind bpf (linux/pkt_cls.h).
    pub const BPF_FD: u16 = 6;
    pub const BPF_NAME: u16 = 7;
    pub const BPF_FLAGS: u16 = 8;
    pub const BPF_ID: u16 = 11;
}

/// A message about a discipline or a filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcMessage {
    /// Number of the interface.
    pub index: u32,
    /// Number of the discipline or the filter; the upper half is its major number.
    pub handle: u32,
    /// Number of what it hangs on.
    pub parent: u32,
    /// Of a filter: its priority above its protocol.
    pub info: u32,
    /// Attributes, in the form of the kernel.
    pub attributes: Vec<u8>,
}

impl TcMessage {
    /// A message about something on interface `index`.
    pub fn on(index: u32) -> TcMessage {
        TcMessage { index, ..TcMessage::default() }
    }

    /// Reads the bytes of a message; `None` where they are too few.
    pub(crate) fn parse(bytes: &[u8]) -> Option<TcMessage> {
        let (head, attributes) = bytes.split_first_chunk::<HEAD>()?;
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| head[at + byte]));
        Some(TcMessage {
            index: word(4),
            handle: word(8),
            parent: word(12),
            info: word(16),
            attributes: attributes.to_vec(),
        })
    }

    /// The attributes.
    pub(crate) fn attributes(&self) -> Attributes<'_> {
        Attributes::of(&self.attributes)
    }

    /// The value of attribute `kind`, where it is there.
    pub(crate) fn attribute(&self, kind: u16) -> Option<&[u8]> {
        self.attributes().find_map(|(its, value)| (its == kind).then_some(value))
    }

    /// The kind of discipline or filter, as `tc` names it.
    pub(crate) fn kind(&self) -> Option<String> {
        self.attribute(attribute::KIND).and_then(text)
    }

    /// Adds its kind.
    pub(crate) fn put_kind(&mut self, kind: &str) {
        put_text(&mut self.attributes, attribute::KIND, kind);
    }
}

/// Text that the kernel ends with a zero.
pub(crate) fn text(value: &[u8]) -> Option<String> {
    let text = value.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(text).into_owned())
}

/// Writes text as the kernel wants it.
pub(crate) fn put_text(attributes: &mut Vec<u8>, kind: u16, text: &str) {
    put(attributes, kind, &[text.as_bytes(), &[0]].concat());
}

impl Emitable for TcMessage {
    fn buffer_len(&self) -> usize {
        HEAD + self.attributes.len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        let (head, attributes) = buffer.split_at_mut(HEAD);
        let words = [0, self.index, self.handle, self.parent, self.info];
        for (to, word) in head.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        attributes.copy_from_slice(&self.attributes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let mut message = TcMessage { handle: 1, parent: 2, info: 3, ..TcMessage::on(7) };
        message.put_kind("clsact");
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        assert_eq!(TcMessage::parse(&bytes), Some(message.clone()));
        assert_eq!(message.kind().as_deref(), Some("clsact"));
        assert_eq!(TcMessage::parse(&bytes[..HEAD - 1]), None);
    }
}
