//! Several queues that share a link by weight: the common part of DRR and WF2Q+.

use super::{Limit, QueueContext, Row};
use crate::accounting::Backlog;
use crate::cause::Cause;
use crate::error::ConfigError;
use crate::packet::Packet;
use sheaf_stage::DropReason;

/// Queues with weights. A packet takes the queue of its DSCP where `by_dscp` is given, else the one
/// that [`Packet::queue`] says; numbers beyond the last take the last.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedConfig {
    /// The weight of each queue, 1 to 65535; at least one queue, at most 65536.
    pub weights: Vec<u32>,
    /// The bound on each queue.
    pub limit: Limit,
    /// DRR only: bytes that a queue of weight 1 sends in its turn, 64 or more. Best at least a
    /// large packet.
    pub quantum: u32,
    /// The queue of each DSCP; packets that are not IP count as DSCP 0.
    pub by_dscp: Option<[u16; 64]>,
}

impl WeightedConfig {
    /// Queues of these weights, 1000 packets each, and a quantum of 1514 bytes.
    pub fn new(weights: Vec<u32>) -> Self {
        WeightedConfig { weights, limit: Limit::Packets(1000), quantum: 1514, by_dscp: None }
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

    /// Puts a packet in its queue if that has room, and returns the queue if it had been empty.
    pub fn push(
        &mut self,
        packet: Packet,
        context: &mut QueueContext<'_>,
    ) -> Result<Option<u32>, DropReason> {
        let index = self.index(&packet, context);
        if self.config.limit.is_exceeded_by(self.rows[index].backlog(), packet.size()) {
            return Err(context.drop(packet, Cause::RateQueueFull));
        }
        Ok(self.put(packet, index))
    }

    /// The same for a packet that another queue held, whatever the limit.
    pub fn admit(&mut self, packet: Packet, context: &QueueContext<'_>) -> Option<u32> {
        let index = self.index(&packet, context);
        self.put(packet, index)
    }

    fn index(&self, packet: &Packet, context: &QueueContext<'_>) -> usize {
        let queue = match &self.config.by_dscp {
            Some(queues) => queues[usize::from(packet.dscp(context.ip))],
            None => packet.queue,
        };
        usize::from(queue).min(self.rows.len() - 1)
    }

    fn put(&mut self, packet: Packet, index: usize) -> Option<u32> {
        let row = &mut self.rows[index];
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
        self.rows[index as usize].head().map(|packet| packet.size() as u64)
    }

    pub fn weight(&self, index: u32) -> u64 {
        u64::from(self.config.weights[index as usize])
    }
}
