//! Classes that share one rate and lend each other what they leave, as those of tc-htb(8), each
//! with a whole [`Link`](crate::Link) as its leaf.
//!
//! * here: what a class is set to, and its counters;
//! * `tree`: who sends next; `bucket`: what a class may send; `line`: the rate that all share.

mod bucket;
mod line;
mod tree;

use crate::error::ConfigError;
use crate::overhead::Overhead;
use sheaf_stage::{Bitrate, Duration};

pub(crate) use tree::Tree;

/// Most classes on the way from the root to a leaf, both included, as in HTB.
pub const MAX_DEPTH: usize = 8;
/// The last priority, as in HTB.
pub const LAST_PRIO: u8 = 7;
/// Most classes in one tree: as many as the minor numbers of tc name within one qdisc, less a bit.
/// It bounds what a file can make a program allocate.
pub const MOST_CLASSES: usize = 4096;
/// Bytes that a class saves up where nothing else is said: those of tc without its part for timers,
/// which departures here do not wait for. An Ethernet frame fits, by which another class may delay
/// one that is to send.
pub const BURST: u64 = 1600;
/// A quantum is what a class sends in this time at its rate where nothing else is said, as in tc
/// with its `r2q` of 10.
const QUANTUM_TIME: Duration = Duration::from_millis(100);

/// A class. One without a parent is the root of a tree, whose rate all classes below it share.
/// A class without children has a link.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassConfig {
    /// The number of the pipe that is the class above.
    pub parent: Option<usize>,
    /// Rate of the class whatever the others send. Those of classes with the same parent are no
    /// more than the parent's together.
    pub rate: Bitrate,
    /// The most that it gets, with what others leave. That of a root is its rate.
    pub ceil: Bitrate,
    /// Whom others lend to first: 0, to 7. Of classes without children.
    pub prio: u8,
    /// Share of what is lent to several classes of the same priority and parent.
    pub quantum: u64,
    /// Bytes that it saves up of its rate while it has nothing to send.
    pub burst: u64,
    /// Bytes that it saves up of its ceil.
    pub cburst: u64,
    /// Bytes that packets cost beyond their own in the tree; those of the root count.
    pub overhead: Overhead,
}

impl ClassConfig {
    /// The root of a tree.
    pub fn root(rate: Bitrate) -> Self {
        ClassConfig {
            parent: None,
            rate,
            ceil: rate,
            prio: 0,
            quantum: quantum(rate),
            burst: BURST,
            cburst: BURST,
            overhead: Overhead::default(),
        }
    }

    /// A class below pipe number `parent`.
    pub fn below(parent: usize, rate: Bitrate, ceil: Bitrate) -> Self {
        ClassConfig { parent: Some(parent), ceil, ..ClassConfig::root(rate) }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.rate.as_bps() == 0 {
            return Err(ConfigError::Zero { option: "rate of a class" });
        }
        if self.ceil < self.rate {
            return Err(ConfigError::CeilBelowRate { ceil: self.ceil, rate: self.rate });
        }
        if self.parent.is_none() && self.ceil != self.rate {
            return Err(ConfigError::RootCeil { ceil: self.ceil, rate: self.rate });
        }
        if self.prio > LAST_PRIO {
            let (value, most) = (u64::from(self.prio), u64::from(LAST_PRIO));
            return Err(ConfigError::TooMany { option: "prio", value, most });
        }
        if self.quantum == 0 {
            return Err(ConfigError::Zero { option: "quantum" });
        }
        Ok(())
    }
}

/// The quantum of a class where nothing else is said.
pub fn quantum(rate: Bitrate) -> u64 {
    let bits = u128::from(rate.as_bps()) * QUANTUM_TIME.as_nanos() / 1_000_000_000;
    u64::try_from(bits / 8).unwrap_or(u64::MAX).max(1)
}

/// Counters of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Packets of the class, or of those below it, that the tree has sent.
    pub sent_packets: u64,
    /// Their bytes, as the tree counts them.
    pub sent_bytes: u64,
    /// Packets that classes below it sent of its rate.
    pub lent: u64,
    /// Packets that were sent of the rate of a class above it.
    pub borrowed: u64,
}
