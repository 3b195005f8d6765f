//! The rate queue: packets that wait for the link, and their management.
//!
//! * [`fifo`]: tail drop or drop-head, bounded in packets or bytes;
//! * [`red`], [`gred`]: random early detection, one curve or one for each class;
//!   [`red_parameters`]: what is left out of a curve;
//! * [`codel`], [`pie`]: a target for the wait;
//! * [`fq_codel`]: a CoDel queue for each flow;
//! * [`dualpi2`]: low latency for scalable senders;
//! * [`drr`], [`wf2q`]: [`weighted`] shares between queues.

mod any;
pub mod codel;
pub mod drr;
pub mod dualpi2;
pub mod fifo;
pub mod fq_codel;
pub mod gred;
pub mod pie;
pub mod red;
pub mod red_parameters;
pub mod weighted;
pub mod wf2q;

use crate::accounting::{Accounting, Backlog};
use crate::cause::Cause;
use crate::error::ConfigError;
use crate::packet::Packet;
use crate::random::{Dice, Purpose};
use sheaf_stage::{DropReason, Duration, Instant};
use std::collections::VecDeque;

pub(crate) use any::AnyQueue;
pub use any::QueueConfig;

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

/// The link around a queue, as far as the queue may see it, and its accounting.
pub(crate) struct QueueContext<'a> {
    /// Logical time; never decreases.
    pub now: Instant,
    /// Packets that count against a FIFO's limit without waiting in it: the one that is being sent,
    /// and in a single queue those under way.
    pub beyond: Backlog,
    /// Offset of the IP header.
    pub ip: usize,
    pub dice: Dice,
    pub accounting: &'a mut Accounting,
}

impl QueueContext<'_> {
    /// A draw in 0..1 about a packet.
    pub fn unit(&self, packet: &Packet) -> f64 {
        self.dice.unit(Purpose::QueueManagement, packet.number)
    }

    /// Drops a packet, and returns the reason under which it was counted.
    pub fn drop(&mut self, packet: Packet, cause: Cause) -> DropReason {
        self.accounting.drop(packet, cause, self.now)
    }

    /// Marks a packet with CE; returns whether its sender understands that.
    pub fn mark(&mut self, packet: &mut Packet) -> bool {
        self.accounting.mark(packet, self.ip, Cause::Marked, self.now)
    }
}

/// Operations of every kind of queue.
pub(crate) trait Queue {
    /// Takes a packet, or drops it or others, and accounts for that. `Err`: it was this one.
    fn enqueue(&mut self, packet: Packet, context: &mut QueueContext<'_>)
    -> Result<(), DropReason>;
    /// The next packet to send.
    fn dequeue(&mut self, context: &mut QueueContext<'_>) -> Option<Packet>;
    /// Takes a packet whatever the limit: one that another queue held.
    fn admit(&mut self, packet: Packet, context: &mut QueueContext<'_>);
    /// Gives up a packet without managing it.
    fn take(&mut self) -> Option<Packet>;
    /// The packets that wait.
    fn backlog(&self) -> Backlog;
    /// Takes another bound. What waits already stays.
    fn set_limit(&mut self, limit: Limit);
}

/// Operations that are the same for every queue of one row, whatever its management.
macro_rules! one_row {
    () => {
        fn admit(&mut self, packet: Packet, _desk: &mut QueueContext<'_>) {
            self.row.push(packet);
        }

        fn take(&mut self) -> Option<Packet> {
            self.row.pop()
        }

        fn backlog(&self) -> Backlog {
            self.row.backlog()
        }

        fn set_limit(&mut self, limit: Limit) {
            self.config.limit = limit;
        }
    };
}
use one_row;

/// Packets in a row, with their bytes counted.
#[derive(Debug, Default)]
pub(crate) struct Row {
    packets: VecDeque<Packet>,
    bytes: u64,
}

impl Row {
    pub fn push(&mut self, packet: Packet) {
        self.bytes += packet.size() as u64;
        self.packets.push_back(packet);
    }

    pub fn pop(&mut self) -> Option<Packet> {
        let packet = self.packets.pop_front()?;
        self.bytes -= packet.size() as u64;
        Some(packet)
    }

    pub fn head(&self) -> Option<&Packet> {
        self.packets.front()
    }

    /// Time that the head has waited at `at`.
    pub fn wait(&self, at: Instant) -> Duration {
        self.head().map_or(Duration::ZERO, |packet| at - packet.arrived)
    }

    pub fn backlog(&self) -> Backlog {
        Backlog { packets: self.packets.len() as u64, bytes: self.bytes }
    }
}

/// The updates of a controller at even distances, worked out when the queue is next used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ticks {
    next: Option<Instant>,
}

/// After so many updates without any event a controller has long settled; more are left out.
const MOST_TICKS: u32 = 2000;

impl Ticks {
    /// The next update that is due by `now`.
    pub fn next(&mut self, now: Instant, period: Duration) -> Option<Instant> {
        let next = *self.next.get_or_insert(now + period);
        if next > now {
            return None;
        }
        let due = next.max(now - period.saturating_mul(MOST_TICKS));
        self.next = Some(due + period);
        Some(due)
    }
}
