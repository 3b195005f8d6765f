//! First in, first out, with a bound.
//!
//! Tail drop refuses the packet that finds the queue full. Drop-head makes room for it by dropping
//! the oldest, so that the sender learns of it a queue's length earlier (T. V. Lakshman,
//! A. Neidhardt, T. Ott, "The drop from front strategy in TCP and in TCP over ATM", 1996).

use super::{Limit, Queue, QueueContext, Row, one_row};
use crate::accounting::Backlog;
use crate::cause::Cause;
use crate::packet::Packet;
use sheaf_stage::DropReason;

/// A bounded queue.
#[derive(Clone, Debug, PartialEq)]
pub struct FifoConfig {
    /// Its bound, the packet that is being sent included, and those under way where the link is
    /// [single](crate::LinkConfig::single): 1 or more.
    pub limit: Limit,
    /// Drop the oldest that waits instead of the newest.
    pub drop_head: bool,
}

impl Default for FifoConfig {
    fn default() -> Self {
        FifoConfig { limit: Limit::Packets(1000), drop_head: false }
    }
}

#[derive(Debug)]
pub(crate) struct Fifo {
    pub config: FifoConfig,
    row: Row,
}

impl Fifo {
    pub fn new(config: FifoConfig) -> Self {
        Fifo { config, row: Row::default() }
    }

    fn is_full(&self, packet: &Packet, context: &QueueContext<'_>) -> bool {
        let mut backlog = self.row.backlog();
        backlog.packets += context.beyond.packets;
        backlog.bytes += context.beyond.bytes;
        self.config.limit.is_exceeded_by(backlog, packet.size())
    }
}

impl Queue for Fifo {
    fn enqueue(
        &mut self,
        packet: Packet,
        context: &mut QueueContext<'_>,
    ) -> Result<(), DropReason> {
        while self.is_full(&packet, context) {
            // Packets that are being sent, or are under way, cannot be taken back.
            match self.config.drop_head.then(|| self.row.pop()).flatten() {
                Some(oldest) => context.drop(oldest, Cause::HeadDrop),
                None => return Err(context.drop(packet, Cause::RateQueueFull)),
            };
        }
        self.row.push(packet);
        Ok(())
    }

    fn dequeue(&mut self, _desk: &mut QueueContext<'_>) -> Option<Packet> {
        self.row.pop()
    }

    one_row!();
}
