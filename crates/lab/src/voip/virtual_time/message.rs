//! Messages between the nodes of the simulation.

use sheaf_medium::To;

/// A frame to one station, as the driver of a radio counts it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// Station; `None` of a frame to all.
    pub to: Option<usize>,
    /// Bytes of the IP packet.
    pub bytes: u32,
    /// Attempts after the first.
    pub retries: u32,
    /// Whether it was given up.
    pub failed: bool,
}

/// A message from one node to another.
pub(super) enum Message {
    /// An IP packet for a host from its own talker.
    Packet(Vec<u8>),
    /// An IP packet for a host from its radio, sent by host `from`.
    Received { from: usize, packet: Vec<u8> },
    /// To a host: its radio has finished with a frame, delivered or not. Of a frame that the radio
    /// took there is what a driver counts of it.
    Finished(Option<Sent>),
    /// To the medium: a packet from a host's radio to another's, or to all that hear it.
    Send { from: usize, to: To, packet: Vec<u8> },
    /// To the talkers: a packet of this flow no longer counts against its socket.
    Left(u32),
    /// To the listeners: a packet has arrived where it was sent to.
    Heard(Vec<u8>),
}
