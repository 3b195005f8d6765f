//! The rate queue: packets that wait for the link, and how they are managed.
//!
//! * [`fifo`]: tail drop or drop-head, bounded in packets or bytes.

pub mod fifo;

use crate::config::ConfigError;
use crate::ledger::{Backlog, Ledger};
use crate::packet::Packet;
use crate::random::Dice;
use fifo::{Fifo, FifoConfig};
use sheaf_stage::Instant;
use std::collections::VecDeque;

/// A bound on a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// So many packets.
    Packets(u64),
    /// So many bytes.
    Bytes(u64),
}

impl Limit {
    /// Whether one more packet of `len` bytes is too much.
    pub(crate) fn is_exceeded_by(self, backlog: Backlog, len: usize) -> bool {
        match self {
            Limit::Packets(limit) => backlog.packets >= limit,
            Limit::Bytes(limit) => backlog.bytes + len as u64 > limit,
        }
    }

    pub(crate) fn check(self) -> Result<(), ConfigError> {
        match self {
            Limit::Packets(0) | Limit::Bytes(0) => Err(ConfigError::Zero { option: "limit" }),
            _ => Ok(()),
        }
    }
}

/// How the rate queue is managed.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueConfig {
    /// First in, first out.
    Fifo(FifoConfig),
}

impl Default for QueueConfig {
    /// As tc-netem(8): 1000 packets, tail drop.
    fn default() -> Self {
        QueueConfig::Fifo(FifoConfig::default())
    }
}

impl QueueConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        match self {
            QueueConfig::Fifo(config) => config.limit.check(),
        }
    }
}

/// What a queue may know of the link around it, and where it accounts for drops.
pub(crate) struct Desk<'a> {
    /// Logical time; never decreases.
    pub now: Instant,
    /// The packet that is being sent.
    pub sending: Backlog,
    /// Where IP begins.
    pub ip: usize,
    pub dice: Dice,
    pub ledger: &'a mut Ledger,
}

/// What every kind of queue can do.
pub(crate) trait Queue {
    /// Takes a packet, or drops it or another, and accounts for it.
    fn enqueue(&mut self, packet: Packet, desk: &mut Desk<'_>);
    /// The next packet to send.
    fn dequeue(&mut self, desk: &mut Desk<'_>) -> Option<Packet>;
    /// Takes a packet whatever the limit: one that another queue held.
    fn admit(&mut self, packet: Packet);
    /// Gives up a packet without managing it.
    fn take(&mut self) -> Option<Packet>;
    /// What waits.
    fn backlog(&self) -> Backlog;
}

/// A queue of any kind.
#[derive(Debug)]
pub(crate) enum AnyQueue {
    Fifo(Fifo),
}

/// Calls the same method on whichever queue it is.
macro_rules! each {
    ($self:expr, $queue:ident => $call:expr) => {
        match $self {
            AnyQueue::Fifo($queue) => $call,
        }
    };
}

impl AnyQueue {
    pub fn new(config: &QueueConfig) -> Self {
        match config {
            QueueConfig::Fifo(config) => AnyQueue::Fifo(Fifo::new(config.clone())),
        }
    }

    /// Takes other parameters; nothing that waits is lost.
    pub fn change(&mut self, config: &QueueConfig) {
        match (&mut *self, config) {
            (AnyQueue::Fifo(queue), QueueConfig::Fifo(config)) => queue.config = config.clone(),
        }
    }

    pub fn enqueue(&mut self, packet: Packet, desk: &mut Desk<'_>) {
        each!(self, queue => queue.enqueue(packet, desk));
    }

    pub fn dequeue(&mut self, desk: &mut Desk<'_>) -> Option<Packet> {
        each!(self, queue => queue.dequeue(desk))
    }

    pub fn backlog(&self) -> Backlog {
        each!(self, queue => queue.backlog())
    }
}

/// Packets in a row, with their bytes counted.
#[derive(Debug, Default)]
pub(crate) struct Row {
    packets: VecDeque<Packet>,
    bytes: u64,
}

impl Row {
    pub fn push(&mut self, packet: Packet) {
        self.bytes += packet.bytes.len() as u64;
        self.packets.push_back(packet);
    }

    pub fn pop(&mut self) -> Option<Packet> {
        let packet = self.packets.pop_front()?;
        self.bytes -= packet.bytes.len() as u64;
        Some(packet)
    }

    pub fn head(&self) -> Option<&Packet> {
        self.packets.front()
    }

    pub fn backlog(&self) -> Backlog {
        Backlog { packets: self.packets.len() as u64, bytes: self.bytes }
    }
}
