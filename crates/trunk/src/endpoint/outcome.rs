//! Results of an endpoint's operations: the fate of a received frame, and a frame to send.

use crate::sender::LinkId;
use sheaf_stage::DropReason;
use sheaf_wire::trunk as wire;

/// Result of handling a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<A = ()> {
    /// The frame is of the other end's session, and was taken.
    Accepted {
        /// The kind of frame.
        kind: FrameKind,
        /// The link that it says it was sent on; of a message of a handshake, which says none, one
        /// of the carrier's.
        link: LinkId,
        /// The address that this link's frames go to from now on, where this frame changed it.
        new_address: Option<A>,
    },
    /// A data frame of the other end's session that the receiver dropped, for example because it
    /// came before. It shows that the link works.
    Dropped(DropReason),
    /// The frame changed nothing, but may have caused a reply.
    Refused(Refusal),
}

/// Kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// The start of a session.
    Hello,
    /// Counters of the frames that the other end received.
    Report,
    /// Frames that the other end misses.
    Request,
    /// A context for compressed headers.
    Define,
    /// Account of the contexts that the other end has.
    Known,
    /// A mark of the baseline schedulers.
    Marker,
    /// Packets.
    Data,
    /// Parity of data frames.
    Parity,
    /// A demand to prove this end's address, met with the next hello.
    Challenge,
    /// A message of a handshake.
    Handshake,
}

/// Reason for which a frame was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The endpoint has no such link.
    UnknownLink,
    /// The bytes could not be parsed.
    Malformed(wire::Refusal),
    /// It came from an address that is not the other end's, and does not prove a new one.
    Stranger,
    /// It is of a session that is not, or no longer, the other end's.
    UnknownSession,
    /// A hello of a new session, or of the known one from a new address, that echoes no challenge.
    /// The reply to it, sent to where it came from, is one.
    UnprovenSession,
    /// A hello of a new session while the accepted one lives.
    Displacing,
    /// A report that was sent before one that has been accepted, and is not only late: it was
    /// recorded, or the accepted one was forged.
    OldReport,
    /// A report of more than was sent. Its counters are not used.
    FalseReport,
    /// A frame of a link that does not use the carrier by which it came: somebody led it there, or
    /// the ends name their links in different orders.
    OtherLink,
    /// A frame that is not sealed, on a trunk that has a key.
    NotSealed,
    /// A frame that is sealed, on a trunk that has no key.
    Sealed,
    /// A sealed frame or message of a handshake for keys that this end does not have: of a session
    /// that is over, or before one.
    NoKeys,
    /// A sealed frame or message of a handshake that was made with another key, damaged or forged.
    WrongKey,
    /// A sealed frame that came before, or is older than the replay window.
    Replayed,
}

/// A frame to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit<A = ()> {
    /// The link to send it on.
    pub link: LinkId,
    /// The address to send it to; `None` where the carrier reaches one host only.
    pub to: Option<A>,
}
