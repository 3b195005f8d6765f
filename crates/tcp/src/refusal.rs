//! Reasons for which a packet is refused, and how many were.

use std::fmt;

/// Reason for which a host does not use a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Refusal {
    /// Fewer bytes than a header or a length field says, or no IP packet at all.
    #[error("shorter than its headers say")]
    Truncated,
    /// IPv6, a fragment, or a protocol other than TCP.
    #[error("not a whole IPv4 packet with TCP")]
    NotTcp,
    /// The checksum of the IP header or of the segment is wrong.
    #[error("wrong checksum")]
    Checksum,
    /// Options with an impossible length.
    #[error("malformed options")]
    Options,
    /// A reset: the hosts here neither send nor obey them.
    #[error("reset")]
    Reset,
    /// Addresses or ports that belong to no connection of the host.
    #[error("no such connection")]
    NoConnection,
    /// Flags or an acknowledgement that the state of the connection does not allow.
    #[error("unexpected in this state of the connection")]
    Unexpected,
    /// An acknowledgement of data that was never sent (RFC 9293, section 3.10.7.4).
    #[error("acknowledges what was not sent")]
    Acknowledgement,
    /// Data outside of the receive window, or in more pieces than a host remembers.
    #[error("outside of the window")]
    OutOfWindow,
    /// A time stamp older than the last one in order (RFC 7323, section 5).
    #[error("old time stamp")]
    OldStamp,
}

impl Refusal {
    /// Every reason, in the order of their discriminants.
    pub const ALL: [Refusal; 10] = [
        Refusal::Truncated,
        Refusal::NotTcp,
        Refusal::Checksum,
        Refusal::Options,
        Refusal::Reset,
        Refusal::NoConnection,
        Refusal::Unexpected,
        Refusal::Acknowledgement,
        Refusal::OutOfWindow,
        Refusal::OldStamp,
    ];
}

/// Packets that were refused, by reason.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Refusals([u64; Refusal::ALL.len()]);

impl Refusals {
    /// Packets refused for `reason`.
    pub fn of(&self, reason: Refusal) -> u64 {
        self.0[reason as usize]
    }

    /// Packets refused for any reason.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn count(&mut self, reason: Refusal) {
        self.0[reason as usize] += 1;
    }
}

impl fmt::Debug for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let there = Refusal::ALL.iter().filter(|reason| self.of(**reason) > 0);
        f.debug_map().entries(there.map(|reason| (reason, self.of(*reason)))).finish()
    }
}
