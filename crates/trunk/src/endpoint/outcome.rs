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
        /// The address that the link's frames go to from now on, where this frame changed it.
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
    /// A mark of the baseline schedulers.
    Marker,
    /// Packets.
    Data,
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
    /// A hello of a new session that does not name this end's session. The reply to it, sent to
    /// where it came from, does: so an end that started anew learns what to name.
    UnprovenSession,
}

/// A frame to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit<A = ()> {
    /// The link to send it on.
    pub link: LinkId,
    /// The address to send it to; `None` where the carrier reaches one host only.
    pub to: Option<A>,
}
