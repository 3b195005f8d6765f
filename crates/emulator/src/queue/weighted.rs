//! Several queues that share a link by weight: what DRR and WF2Q+ have in common.

use super::{Desk, Limit, Row};
use crate::cause::Cause;
use crate::config::ConfigError;
use crate::ledger::Backlog;
use crate::packet::Packet;

/// Queues with weights. A packet takes the queue that [`Packet::queue`] says; numbers beyond the
/// last take the last.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedConfig {
    /// The weight of each queue, 1 to 65535; at least one queue, at most 65536.
    pub weights: Vec<u32>,
    /// The bound on each queue.
    pub limit: Limit,
    /// DRR only: bytes that a queue of weight 1 sends in its turn, 64 or more. Best at least a
    /// large packet.
    pub quantum: u32,
}

impl WeightedConfig {
    /// Queues of these weights, 1000 packets each, and a quantum of 1514 bytes.
    pub fn new(weights: Vec<u32>) -> Self {
        WeightedConfig { weights, limit: Limit::Packets(1000), quantum: 1514 }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.limit.check()?;
        let too_many = |option, value, most| Err(ConfigError::TooMany { option, value, most });
        if self.weights.is_empty() || self.weights.contains(&0) {
            return Err(ConfigError::Zero { option: "weight" });
        }
        if self.weights.len() > 65_536 {
            return too_many("queues", self.weights.len() as u64, 65_536);
        }
        match self.weights.iter().find(|weight| **weight > 65_535) {
            Some(weight) => too_many("weight", u64::from(*weight), 65_535),
            None if self.quantum < 64 => {
                Err(ConfigError::Below { option: "drr quantum", least: 64 })
            }
            None => Ok(()),
        }
    }
}

/// The queues themselves.
#[derive(Debug)]
pub(crate) struct Classes {
    pub config: WeightedConfig,
    pub rows: Vec<Row>,
    pub backlog: Backlog,
}

impl Classes {
    pub fn new(config: WeightedConfig) -> Self {
        let rows = config.weights.iter().map(|_| Row::default()).collect();
        Classes { config, rows, backlog: Backlog::default() }
    }

    /// Puts a packet in its queue, within its limit if there is a desk to account for a drop;
    /// answers the queue if it had been empty.
    pub fn push(&mut self, packet: Packet, desk: Option<&mut Desk<'_>>) -> Option<u32> {
        let index = usize::from(packet.queue).min(self.rows.len() - 1);
        let row = &mut self.rows[index];
        if let Some(desk) = desk
            && self.config.limit.is_exceeded_by(row.backlog(), packet.bytes.len())
        {
            desk.drop(packet, Cause::RateQueueFull);
            return None;
        }
        let was_empty = row.head().is_none();
        self.backlog.add(&packet);
        row.push(packet);
        was_empty.then_some(index as u32)
    }

    pub fn pop(&mut self, index: u32) -> Option<Packet> {
        let packet = self.rows[index as usize].pop()?;
        self.backlog.remove(&packet);
        Some(packet)
    }

    /// Bytes of the head of a queue.
    pub fn head_len(&self, index: u32) -> Option<u64> {
        self.rows[index as usize].head().map(|packet| packet.bytes.len() as u64)
    }

    pub fn weight(&self, index: u32) -> u64 {
        u64::from(self.config.weights[index as usize])
    }
}
