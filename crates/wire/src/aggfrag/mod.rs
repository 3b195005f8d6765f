//! Format 2: frames of data blocks, in which a packet may continue in the next frame.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------+---------------+-------+-----------------------+
//! |  sub-type = 0 |   sequence    |  tag  |     block offset      |
//! +---------------+---------------+-------+-----------------------+
//! | rest of the block that the frame before this one began …      |  block offset bytes
//! +---------------------------------------------------------------+
//! | data block, data block, …                                     |
//! +---------------------------------------------------------------+
//! ```
//!
//! This is the payload behind an outer header: IP with protocol 253, UDP, or an EtherType. Its
//! first nibble, 0, tells it from format 1 ([`meta`](crate::meta)), whose first nibble is 4 or 6.
//! Sub-type 2 is a message of contexts ([`feedback`](crate::compress::feedback)).
//!
//! As an EtherType ([`ethernet::FRAMES`](crate::ethernet::FRAMES)) it stands right behind the
//! Ethernet header, between neighbours, whose link addresses name its streams. It has no class and
//! no ECN field there, so its packets arrive as if it had travelled as Not-ECT. Whatever else is
//! of that EtherType is not Sheaf's and goes on as it is.
//!
//! The layout is that of AGGFRAG_PAYLOAD without congestion control (RFC 9347, section 6.1.1). A
//! dissector for that reads the frames of tag 0. Two fields are ours: the reserved byte has the
//! sequence number, and the upper four bits of the block offset, which a frame of at most 2048
//! bytes does not need, have the tag.
//!
//! # Data blocks
//!
//! The first nibble tells the kind. Blocks tile the frame.
//!
//! ```text
//!  0     pad: zeros to the end of the frame
//!  2     Ethernet payload: its length (12 bits), its EtherType, its bytes
//!  4, 6  an IPv4 or IPv6 packet, complete
//!  8     cut: length of the block (12 bits), CRC-32 of the block, then as much of the block as
//!        the frame has room for; always the last of its frame
//!  9     definition of a context, and the packet that defines it
//! 10     compressed packet, long form
//! 12–15  compressed packet, compact form
//! ```
//!
//! Kinds 9 to 15 are described in [`compress`](crate::compress). Kinds 1, 3, 5, 7 and 11 are
//! refused.
//!
//! An Ethernet payload is a frame between the same two stations, of another protocol than IP:
//! batman-adv's. It is taken from neighbours only, who could send it in a frame of its own. An
//! EtherType of IP, or a length in its place, is refused ([`Refusal::BadPacket`]).
//!
//! A compressed packet in compact form has the length that its context says. Who does not know the
//! context cannot find the blocks behind it, and who knows another one finds wrong blocks, perhaps
//! in bytes that somebody chose. Therefore a receiver believes nothing behind a compressed packet
//! that cannot be restored, up to the next one that can be: its check covers its place. A fault
//! behind a packet of implied length is no proof of a damaged frame either ([`Frame::doubt`]): the
//! receiver then says that it does not know these contexts.
//!
//! # Streams
//!
//! A stream is one source, destination, class and ECN capability at the sender. On the wire it is
//! named by source, destination and *tag*, which the sender chooses for it. Class and ECN field of
//! the outer header do not name it: somebody on the way may change the class, routers set CE, and
//! a CE mark hides whether a frame was sent as ECT(0) or ECT(1). So re-marking neither joins two
//! streams nor breaks one.
//!
//! The sequence number has 8 bits and counts the frames of one stream. A receiver tells frames
//! apart that are less than 128 apart ([RFC 1982](https://www.rfc-editor.org/rfc/rfc1982)
//! arithmetic).
//!
//! # Continued packets
//!
//! Only neighbours in sequence are joined. Sequence numbers come again after 256 frames, and with a
//! sender that starts again, so the number proves nothing. Two more checks stand between a wrong
//! neighbour and a damaged packet: the block offset has to be exactly the rest that the cut block's
//! length asks for, and the CRC-32 of the whole block has to be right. RFC 9347 has neither,
//! because the sequence number of ESP never comes again. The 6 bytes are paid by cut packets only.
//!
//! An RFC 9347 sender cuts a packet without a header of its own. Such a cut is refused here
//! ([`Refusal::Truncated`]), because nothing would protect it.

mod block;
mod header;
mod view;

pub(crate) use block::packet_len;
pub use block::{Block, CUT_HEADER, Cut, ETHERNET_HEADER, Payload};
pub use header::{Header, MAX_TAG, PROBES_TAG};
pub use view::{Frame, MAX_BLOCKS};

use thiserror::Error;

/// Bytes of the header.
pub const HEADER_LEN: usize = 4;
/// The largest payload behind an outer header, in bytes: as much as format 1 carries.
pub const MAX_LEN: usize = crate::meta::MAX_LEN;

/// Sub-type of a frame (RFC 9347, section 6.1).
pub const FRAME: u8 = 0;
/// Sub-type of a message about contexts; RFC 9347 has 0 and 1.
pub const FEEDBACK: u8 = 2;

/// Reason for which a payload is refused. It is dropped whole, and nothing of it is delivered.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Refusal {
    /// A sub-type that is neither [`FRAME`] nor [`FEEDBACK`].
    #[error("unknown sub-type")]
    SubType,
    /// Shorter than the header, a block or a message says.
    #[error("truncated")]
    Truncated,
    /// Longer than [`MAX_LEN`].
    #[error("oversized")]
    Oversized,
    /// Neither a block nor a part of one.
    #[error("empty")]
    Empty,
    /// More than [`MAX_BLOCKS`] blocks.
    #[error("too many blocks")]
    TooMany,
    /// A block of a kind that does not exist.
    #[error("unknown block")]
    UnknownBlock,
    /// An inner packet with an impossible header, or an Ethernet payload with an EtherType that
    /// it may not have.
    #[error("bad packet")]
    BadPacket,
    /// A frame or meta packet inside a frame.
    #[error("nested")]
    Nested,
    /// A pad block that is not zero.
    #[error("padding is not zero")]
    Padding,
    /// A cut block that fits in its frame, or whose length no frame needs.
    #[error("bad cut")]
    BadCut,
    /// A definition whose packet or rules do not define a context.
    #[error("bad definition")]
    BadDefinition,
    /// A message of a kind that does not exist, or with other bytes than zeros behind it.
    #[error("bad feedback")]
    BadFeedback,
    /// A frame that has been received before.
    #[error("duplicate")]
    Duplicate,
    /// The receiver has no room for another stream of this sender.
    #[error("too many streams")]
    TooManyStreams,
    /// A frame to a group with something else in it than whole packets to that group.
    #[error("not to the group")]
    Group,
}

impl Refusal {
    /// Every reason, in the order of their discriminants.
    pub const ALL: [Refusal; 15] = [
        Refusal::SubType,
        Refusal::Truncated,
        Refusal::Oversized,
        Refusal::Empty,
        Refusal::TooMany,
        Refusal::UnknownBlock,
        Refusal::BadPacket,
        Refusal::Nested,
        Refusal::Padding,
        Refusal::BadCut,
        Refusal::BadDefinition,
        Refusal::BadFeedback,
        Refusal::Duplicate,
        Refusal::TooManyStreams,
        Refusal::Group,
    ];

    /// The name used in statistics and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Refusal::SubType => "sub-type",
            Refusal::Truncated => "truncated",
            Refusal::Oversized => "oversized",
            Refusal::Empty => "empty",
            Refusal::TooMany => "too-many-blocks",
            Refusal::UnknownBlock => "unknown-block",
            Refusal::BadPacket => "bad-packet",
            Refusal::Nested => "nested",
            Refusal::Padding => "padding",
            Refusal::BadCut => "bad-cut",
            Refusal::BadDefinition => "bad-definition",
            Refusal::BadFeedback => "bad-feedback",
            Refusal::Duplicate => "duplicate",
            Refusal::TooManyStreams => "too-many-streams",
            Refusal::Group => "group",
        }
    }
}

#[cfg(test)]
mod tests;
