//! The balance sheet of a stage: what went in is out, dropped with a reason, or still held.

use core::fmt;

/// Reason for which a packet was dropped. Dropping is an outcome, not an error; every drop has one
/// reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum DropReason {
    /// The queue that should hold it was full (tail drop).
    QueueFull,
    /// The bound on everything that one stage may hold was reached.
    TotalFull,
    /// The 802.11 retry limit was reached without an acknowledgement.
    RetryLimit,
    /// No station can hear the sender, or the destination does not exist.
    Unreachable,
    /// The bytes are not a packet that this stage can carry.
    Malformed,
    /// A frame that is larger than the link carries.
    TooBig,
    /// Queue management dropped it before the queue was full (RED, CoDel, PIE …).
    QueueManagement,
    /// An emulated loss model lost it.
    LossModel,
    /// A rule of a classifier denied it.
    Denied,
    /// A copy of a packet that came before.
    Duplicate,
    /// A sequence number too far from the expected one to be placed.
    OutOfWindow,
}

impl DropReason {
    /// Every reason, in the order of their discriminants.
    pub const ALL: [DropReason; 11] = [
        DropReason::QueueFull,
        DropReason::TotalFull,
        DropReason::RetryLimit,
        DropReason::Unreachable,
        DropReason::Malformed,
        DropReason::TooBig,
        DropReason::QueueManagement,
        DropReason::LossModel,
        DropReason::Denied,
        DropReason::Duplicate,
        DropReason::OutOfWindow,
    ];

    /// The name used in statistics and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::QueueFull => "queue-full",
            DropReason::TotalFull => "total-full",
            DropReason::RetryLimit => "retry-limit",
            DropReason::Unreachable => "unreachable",
            DropReason::Malformed => "malformed",
            DropReason::TooBig => "too-big",
            DropReason::QueueManagement => "queue-management",
            DropReason::LossModel => "loss-model",
            DropReason::Denied => "denied",
            DropReason::Duplicate => "duplicate",
            DropReason::OutOfWindow => "out-of-window",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Packets in, out, dropped by reason. The difference is held.
///
/// Counted in *packets as they came in*: a frame that carries 20 packets counts 20 out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets offered to the stage.
    pub packets_in: u64,
    /// Packets that left it.
    pub packets_out: u64,
    dropped: [u64; DropReason::ALL.len()],
}

impl Counters {
    /// Counts one packet dropped for `reason`.
    pub fn drop(&mut self, reason: DropReason) {
        self.drop_many(reason, 1);
    }

    /// Counts a packet that was offered and dropped for `reason`, and returns the reason.
    pub fn refuse(&mut self, reason: DropReason) -> DropReason {
        self.drop(reason);
        reason
    }

    /// Counts `packets` packets dropped for `reason`.
    pub fn drop_many(&mut self, reason: DropReason, packets: u64) {
        self.dropped[reason as usize] += packets;
    }

    /// Packets dropped for `reason`.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Packets dropped for any reason.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Packets held by the stage, by the balance.
    ///
    /// # Panics
    /// If more left than came in: the stage has a fault.
    pub fn held(&self) -> u64 {
        self.packets_in
            .checked_sub(self.packets_out + self.dropped_total())
            .expect("a stage never gives out more packets than it took in")
    }
}
