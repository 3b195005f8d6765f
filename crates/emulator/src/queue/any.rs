//! A queue of any kind, as its configuration says.

use super::codel::{CodelConfig, CodelQueue};
use super::drr::Drr;
use super::dualpi2::{DualPi2, DualPi2Config};
use super::fifo::{Fifo, FifoConfig};
use super::fq_codel::{FqCodel, FqCodelConfig};
use super::gred::{Gred, GredConfig};
use super::pie::{Pie, PieConfig};
use super::red::{Red, RedConfig};
use super::weighted::WeightedConfig;
use super::wf2q::Wf2q;
use super::{Limit, Queue, QueueContext};
use crate::accounting::Backlog;
use crate::error::ConfigError;
use crate::packet::Packet;
use sheaf_stage::DropReason;

/// Management of the rate queue.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueConfig {
    /// First in, first out.
    Fifo(FifoConfig),
    /// Random early detection.
    Red(RedConfig),
    /// RED with a curve for each class.
    Gred(GredConfig),
    /// CoDel (RFC 8289).
    Codel(CodelConfig),
    /// PIE (RFC 8033).
    Pie(PieConfig),
    /// FQ-CoDel (RFC 8290).
    FqCodel(FqCodelConfig),
    /// DualPI2 (RFC 9332).
    DualPi2(DualPi2Config),
    /// Deficit round robin between queues.
    Drr(WeightedConfig),
    /// WF2Q+ between queues.
    Wf2q(WeightedConfig),
}

impl Default for QueueConfig {
    /// As tc-netem(8): 1000 packets, tail drop.
    fn default() -> Self {
        QueueConfig::Fifo(FifoConfig::default())
    }
}

impl QueueConfig {
    /// Name of its kind on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            QueueConfig::Fifo(fifo) => match (fifo.limit, fifo.drop_head) {
                (Limit::Bytes(_), _) => "bfifo",
                (Limit::Packets(_), true) => "pfifo_head_drop",
                (Limit::Packets(_), false) => "fifo",
            },
            QueueConfig::Red(_) => "red",
            QueueConfig::Gred(_) => "gred",
            QueueConfig::Codel(_) => "codel",
            QueueConfig::Pie(_) => "pie",
            QueueConfig::FqCodel(_) => "fq_codel",
            QueueConfig::DualPi2(_) => "dualpi2",
            QueueConfig::Drr(_) => "drr",
            QueueConfig::Wf2q(_) => "wf2q+",
        }
    }

    /// Limit of what it holds.
    pub fn limit(&self) -> Limit {
        match self {
            QueueConfig::Fifo(config) => config.limit,
            QueueConfig::Red(config) => config.limit,
            QueueConfig::Gred(config) => config.limit,
            QueueConfig::Codel(config) => config.limit,
            QueueConfig::Pie(config) => config.limit,
            QueueConfig::FqCodel(config) => Limit::Packets(config.limit),
            QueueConfig::DualPi2(config) => config.limit,
            QueueConfig::Drr(config) | QueueConfig::Wf2q(config) => config.limit,
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        match self {
            QueueConfig::Fifo(config) => config.limit.check(),
            QueueConfig::Red(config) => {
                config.limit.check()?;
                config.curve.check()
            }
            QueueConfig::Gred(config) => config.check(),
            QueueConfig::Codel(config) => {
                config.limit.check()?;
                config.params.check()
            }
            QueueConfig::Pie(config) => config.check(),
            QueueConfig::FqCodel(config) => config.check(),
            QueueConfig::DualPi2(config) => config.check(),
            QueueConfig::Drr(config) | QueueConfig::Wf2q(config) => config.check(),
        }
    }
}

/// A queue of any kind.
#[derive(Debug)]
pub(crate) enum AnyQueue {
    Fifo(Fifo),
    Red(Red),
    Gred(Gred),
    Codel(CodelQueue),
    Pie(Pie),
    FqCodel(FqCodel),
    DualPi2(DualPi2),
    Drr(Drr),
    Wf2q(Wf2q),
}

/// Calls the same method on whichever queue it is.
macro_rules! each {
    ($self:expr, $queue:ident => $call:expr) => {
        match $self {
            AnyQueue::Fifo($queue) => $call,
            AnyQueue::Red($queue) => $call,
            AnyQueue::Gred($queue) => $call,
            AnyQueue::Codel($queue) => $call,
            AnyQueue::Pie($queue) => $call,
            AnyQueue::FqCodel($queue) => $call,
            AnyQueue::DualPi2($queue) => $call,
            AnyQueue::Drr($queue) => $call,
            AnyQueue::Wf2q($queue) => $call,
        }
    };
}

impl AnyQueue {
    pub fn new(config: &QueueConfig) -> Self {
        match config.clone() {
            QueueConfig::Fifo(config) => AnyQueue::Fifo(Fifo::new(config)),
            QueueConfig::Red(config) => AnyQueue::Red(Red::new(config)),
            QueueConfig::Gred(config) => AnyQueue::Gred(Gred::new(config)),
            QueueConfig::Codel(config) => AnyQueue::Codel(CodelQueue::new(config)),
            QueueConfig::Pie(config) => AnyQueue::Pie(Pie::new(config)),
            QueueConfig::FqCodel(config) => AnyQueue::FqCodel(FqCodel::new(config)),
            QueueConfig::DualPi2(config) => AnyQueue::DualPi2(DualPi2::new(config)),
            QueueConfig::Drr(config) => AnyQueue::Drr(Drr::new(config)),
            QueueConfig::Wf2q(config) => AnyQueue::Wf2q(Wf2q::new(config)),
        }
    }

    /// Takes other parameters, or becomes another kind of queue; nothing that waits is lost. A
    /// queue with one row keeps what it has learnt; others begin anew with the packets they held.
    pub fn change(&mut self, config: &QueueConfig, context: &mut QueueContext<'_>) {
        match (&mut *self, config) {
            (AnyQueue::Fifo(queue), QueueConfig::Fifo(config)) => queue.config = config.clone(),
            (AnyQueue::Red(queue), QueueConfig::Red(config)) => queue.config = config.clone(),
            (AnyQueue::Codel(queue), QueueConfig::Codel(config)) => queue.config = config.clone(),
            (AnyQueue::Pie(queue), QueueConfig::Pie(config)) => queue.config = config.clone(),
            (AnyQueue::DualPi2(queue), QueueConfig::DualPi2(config)) => {
                queue.config = config.clone();
            }
            _ => {
                let mut old = std::mem::replace(self, AnyQueue::new(config));
                while let Some(packet) = each!(&mut old, queue => queue.take()) {
                    each!(self, queue => queue.admit(packet, context));
                }
            }
        }
    }

    pub fn enqueue(
        &mut self,
        packet: Packet,
        context: &mut QueueContext<'_>,
    ) -> Result<(), DropReason> {
        each!(self, queue => queue.enqueue(packet, context))
    }

    pub fn dequeue(&mut self, context: &mut QueueContext<'_>) -> Option<Packet> {
        each!(self, queue => queue.dequeue(context))
    }

    /// Takes the bound `limit` in place of that of `config`, in its unit; `None`: that of `config`.
    /// Packets that wait already stay.
    pub fn set_limit(&mut self, config: &QueueConfig, limit: Option<u64>) {
        let limit = match (config.limit(), limit) {
            (configured, None) => configured,
            (Limit::Packets(_), Some(limit)) => Limit::Packets(limit),
            (Limit::Bytes(_), Some(limit)) => Limit::Bytes(limit),
        };
        each!(self, queue => queue.set_limit(limit));
    }

    pub fn backlog(&self) -> Backlog {
        each!(self, queue => queue.backlog())
    }
}
