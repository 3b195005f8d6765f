//! Messages between the nodes of the virtual engine.

use sheaf_medium::RadioId;

/// Messages between the nodes.
pub(super) enum Message {
    /// To a channel: a frame for the transmit queue of a radio.
    Send { radio: RadioId, to: RadioId, bytes: Vec<u8> },
    /// To a station: a frame arrived on this link.
    Frame { link: usize, bytes: Vec<u8> },
    /// To a station: its radio on this link is done with a frame, delivered or not.
    Done { link: usize },
}
