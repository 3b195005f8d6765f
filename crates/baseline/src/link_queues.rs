//! The receive queues of a trunk without sequence numbers: one for each link.

use sheaf_stage::{Counters, DropReason};
use std::collections::VecDeque;

/// Packets that wait for one link's turn. The papers give no value; 512 packets of 1500 bytes are
/// more than a second of an 802.11b link.
pub(crate) const LINK_LIMIT: usize = 512;

/// A unit received on a link.
#[derive(Clone, Debug)]
pub(crate) enum Unit<M> {
    Packet(Vec<u8>),
    /// A control message between the packets.
    Mark(M),
}

/// Packets and marks of each link in the order of their arrival.
#[derive(Clone, Debug)]
pub(crate) struct LinkQueues<M> {
    queues: Vec<VecDeque<Unit<M>>>,
    counters: Counters,
    held: u64,
}

impl<M> LinkQueues<M> {
    pub fn new(links: usize) -> Self {
        let queues = (0..links).map(|_| VecDeque::new()).collect();
        LinkQueues { queues, counters: Counters::default(), held: 0 }
    }

    /// Holds a packet, or drops it when its link does not exist or has no room.
    pub fn push(&mut self, link: usize, packet: Vec<u8>) -> Result<(), DropReason> {
        self.counters.packets_in += 1;
        let Some(queue) = self.queues.get_mut(link) else {
            return Err(self.counters.refuse(DropReason::Unreachable));
        };
        // Marks count too: nothing else bounds them while another link blocks.
        if queue.len() >= LINK_LIMIT {
            return Err(self.counters.refuse(DropReason::QueueFull));
        }
        queue.push_back(Unit::Packet(packet));
        self.held += 1;
        Ok(())
    }

    /// Holds a mark behind the packets of its link. Without room it is lost, as on the air.
    pub fn push_mark(&mut self, link: usize, mark: M) {
        if let Some(queue) = self.queues.get_mut(link).filter(|queue| queue.len() < 2 * LINK_LIMIT)
        {
            queue.push_back(Unit::Mark(mark));
        }
    }

    /// The mark at the end of a link's queue, if no packet came behind it.
    pub fn last_mark(&mut self, link: usize) -> Option<&mut M> {
        match self.queues.get_mut(link)?.back_mut()? {
            Unit::Mark(mark) => Some(mark),
            Unit::Packet(_) => None,
        }
    }

    /// Removes the first unit of `link`. A packet still counts as held: hand it up by
    /// [`LinkQueues::deliver`] or drop it by [`LinkQueues::discard`].
    pub fn pop(&mut self, link: usize) -> Option<Unit<M>> {
        self.queues[link].pop_front()
    }

    /// Counts a packet that goes up.
    pub fn deliver(&mut self) {
        self.held -= 1;
        self.counters.packets_out += 1;
    }

    /// Counts a packet that is dropped after all.
    pub fn discard(&mut self, reason: DropReason) {
        self.held -= 1;
        self.counters.drop(reason);
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    pub fn held(&self) -> u64 {
        self.held
    }
}
