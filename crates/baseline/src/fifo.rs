//! A bounded queue that keeps its own balance.

use sheaf_stage::{Counters, DropReason};
use std::collections::VecDeque;

/// Packets that wait before a sender of a trunk chooses their links. The owner drains after each
/// packet, so the bound is one for the memory.
pub(crate) const SENDER_LIMIT: usize = 1000;

/// A first-in first-out queue of packets with tail drop.
#[derive(Clone, Debug)]
pub(crate) struct Fifo<T> {
    queue: VecDeque<T>,
    limit: usize,
    counters: Counters,
}

impl<T> Fifo<T> {
    /// A queue for `limit` packets.
    pub fn new(limit: usize) -> Self {
        Fifo { queue: VecDeque::new(), limit, counters: Counters::default() }
    }

    /// Holds `packet`, or drops it when the queue is full.
    pub fn push(&mut self, packet: T) -> Result<(), DropReason> {
        if self.queue.len() >= self.limit {
            return Err(self.refuse(DropReason::QueueFull));
        }
        self.counters.packets_in += 1;
        self.queue.push_back(packet);
        Ok(())
    }

    /// Counts a packet that was offered and dropped.
    pub fn refuse(&mut self, reason: DropReason) -> DropReason {
        self.counters.packets_in += 1;
        self.counters.refuse(reason)
    }

    /// Removes the oldest packet.
    pub fn pop(&mut self) -> Option<T> {
        let packet = self.queue.pop_front()?;
        self.counters.packets_out += 1;
        Some(packet)
    }

    /// The oldest packet.
    pub fn front(&self) -> Option<&T> {
        self.queue.front()
    }

    /// Number of packets, from the newest back, of which `waits` holds. It holds of none that is
    /// older than one of which it does not.
    pub fn newest(&self, waits: impl Fn(&T) -> bool) -> usize {
        self.queue.len() - self.queue.partition_point(|packet| !waits(packet))
    }

    /// The balance sheet.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Number of packets that wait.
    pub fn held(&self) -> u64 {
        self.queue.len() as u64
    }
}
