//! Causes: why a packet was dropped, delayed or changed.
//!
//! Every link counts by cause, writes the causes on the packet, and calls a log if there is one,
//! so that a capture can be commented.

use core::fmt;
use sheaf_stage::DropReason;

/// One thing that a link does to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Cause {
    /// Dropped: it found the rate queue full.
    RateQueueFull,
    /// Dropped: it was the oldest of a full queue with drop-head.
    HeadDrop,
    /// Dropped by random early detection.
    Red,
    /// Dropped by generalized RED.
    Gred,
    /// Dropped by CoDel, alone or within FQ-CoDel.
    Codel,
    /// Dropped by PIE.
    Pie,
    /// Dropped from the fattest flow of a full FQ-CoDel.
    FattestFlow,
    /// Dropped by DualPI2.
    DualPi2,
    /// Lost by independent or correlated loss.
    LossRandom,
    /// Lost by the four-state model.
    LossState,
    /// Lost by the Gilbert-Elliott model.
    LossGemodel,
    /// Lost by the loss column of a trace.
    LossTrace,
    /// Lost by a given pattern.
    LossPattern,
    /// Dropped: the delay line's bound was reached.
    DelayLineFull,
    /// Dropped by a rule.
    Denied,
    /// Marked with CE by queue management.
    Marked,
    /// Marked with CE in place of a loss.
    MarkedLoss,
    /// One bit was flipped.
    Corrupted,
    /// A duplicate, or a packet of which one was made.
    Duplicated,
    /// It waited for others in the rate queue.
    RateQueue,
    /// It took its time on the delay line.
    Delay,
    /// Its delay was varied.
    Jitter,
    /// It skipped the delay, ahead of those before it.
    Reordered,
    /// It waited for a slot.
    Slot,
}

/// Kinds of causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The packet is gone.
    Dropped,
    /// The packet came out otherwise than it went in.
    Changed,
    /// The packet came out at another time.
    Delayed,
}

impl Cause {
    /// Every cause, in the order of their discriminants.
    pub const ALL: [Cause; 24] = [
        Cause::RateQueueFull,
        Cause::HeadDrop,
        Cause::Red,
        Cause::Gred,
        Cause::Codel,
        Cause::Pie,
        Cause::FattestFlow,
        Cause::DualPi2,
        Cause::LossRandom,
        Cause::LossState,
        Cause::LossGemodel,
        Cause::LossTrace,
        Cause::LossPattern,
        Cause::DelayLineFull,
        Cause::Denied,
        Cause::Marked,
        Cause::MarkedLoss,
        Cause::Corrupted,
        Cause::Duplicated,
        Cause::RateQueue,
        Cause::Delay,
        Cause::Jitter,
        Cause::Reordered,
        Cause::Slot,
    ];

    /// The name used in statistics and in captures.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::RateQueueFull => "rate-queue-full",
            Cause::HeadDrop => "head-drop",
            Cause::Red => "red",
            Cause::Gred => "gred",
            Cause::Codel => "codel",
            Cause::Pie => "pie",
            Cause::FattestFlow => "fattest-flow",
            Cause::DualPi2 => "dualpi2",
            Cause::LossRandom => "loss-random",
            Cause::LossState => "loss-state",
            Cause::LossGemodel => "loss-gemodel",
            Cause::LossTrace => "loss-trace",
            Cause::LossPattern => "loss-pattern",
            Cause::DelayLineFull => "delay-line-full",
            Cause::Denied => "denied",
            Cause::Marked => "marked",
            Cause::MarkedLoss => "marked-loss",
            Cause::Corrupted => "corrupted",
            Cause::Duplicated => "duplicated",
            Cause::RateQueue => "rate-queue",
            Cause::Delay => "delay",
            Cause::Jitter => "jitter",
            Cause::Reordered => "reordered",
            Cause::Slot => "slot",
        }
    }

    /// The reason under which the balance counts a drop of this cause; `None`: it does not drop.
    pub const fn drop_reason(self) -> Option<DropReason> {
        match self {
            Cause::RateQueueFull | Cause::HeadDrop | Cause::FattestFlow => {
                Some(DropReason::QueueFull)
            }
            Cause::Red | Cause::Gred | Cause::Codel | Cause::Pie | Cause::DualPi2 => {
                Some(DropReason::QueueManagement)
            }
            Cause::LossRandom
            | Cause::LossState
            | Cause::LossGemodel
            | Cause::LossTrace
            | Cause::LossPattern => Some(DropReason::LossModel),
            Cause::DelayLineFull => Some(DropReason::TotalFull),
            Cause::Denied => Some(DropReason::Denied),
            _ => None,
        }
    }

    /// Whether it drops, changes or delays.
    pub const fn kind(self) -> Kind {
        match self {
            Cause::Marked | Cause::MarkedLoss | Cause::Corrupted | Cause::Duplicated => {
                Kind::Changed
            }
            Cause::RateQueue | Cause::Delay | Cause::Jitter | Cause::Reordered | Cause::Slot => {
                Kind::Delayed
            }
            _ => Kind::Dropped,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of causes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Causes(u32);

impl Causes {
    /// Adds `cause`.
    pub fn insert(&mut self, cause: Cause) {
        self.0 |= 1 << cause as u32;
    }

    /// Whether `cause` is in the set.
    pub const fn contains(self, cause: Cause) -> bool {
        self.0 & 1 << cause as u32 != 0
    }

    /// Whether nothing happened.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The causes in the order of [`Cause::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Cause> {
        Cause::ALL.into_iter().filter(move |cause| self.contains(*cause))
    }
}

impl fmt::Display for Causes {
    /// The names, with commas between them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, cause) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{cause}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Causes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_stands_at_its_own_place_and_only_drops_have_a_reason() {
        for (index, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, index);
            assert_eq!(cause.drop_reason().is_some(), cause.kind() == Kind::Dropped, "{cause}");
        }
    }

    #[test]
    fn a_set_of_causes_prints_their_names() {
        let mut causes = Causes::default();
        causes.insert(Cause::Delay);
        causes.insert(Cause::Corrupted);
        assert_eq!(causes.to_string(), "corrupted, delay");
    }
}
