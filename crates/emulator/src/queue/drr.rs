//! Deficit round robin between queues.
//!
//! Source: M. Shreedhar, G. Varghese, "Efficient fair queuing using deficit round robin",
//! SIGCOMM 1995. Queues take turns; in its turn a queue may send quantum · weight bytes more than
//! it had left, so that large packets gain nothing. O(1) a packet when the quantum is at least a
//! packet.

use super::weighted::{Classes, WeightedConfig};
use super::{Limit, Queue, QueueContext};
use crate::accounting::Backlog;
use crate::packet::Packet;
use sheaf_stage::DropReason;
use std::collections::VecDeque;

#[derive(Debug)]
pub(crate) struct Drr {
    classes: Classes,
    deficits: Vec<u64>,
    /// Queues with packets, in the order of their turns.
    turns: VecDeque<u32>,
    /// Whether the first of them has had its quantum in this turn.
    granted: bool,
}

impl Drr {
    pub fn new(config: WeightedConfig) -> Self {
        Drr {
            deficits: vec![0; config.weights.len()],
            classes: Classes::new(config),
            turns: VecDeque::new(),
            granted: false,
        }
    }

    fn next(&mut self) -> Option<Packet> {
        loop {
            let index = *self.turns.front()?;
            let len = self.classes.head_len(index)?;
            let deficit = &mut self.deficits[index as usize];
            if !self.granted {
                *deficit += self.classes.weight(index) * u64::from(self.classes.config.quantum);
                self.granted = true;
            }
            if len > *deficit {
                self.turns.rotate_left(1);
                self.granted = false;
                continue;
            }
            *deficit -= len;
            let packet = self.classes.pop(index);
            if self.classes.head_len(index).is_none() {
                // An empty queue saves nothing up.
                *deficit = 0;
                self.turns.pop_front();
                self.granted = false;
            }
            return packet;
        }
    }
}

impl Queue for Drr {
    fn enqueue(
        &mut self,
        packet: Packet,
        context: &mut QueueContext<'_>,
    ) -> Result<(), DropReason> {
        self.turns.extend(self.classes.push(packet, context)?);
        Ok(())
    }

    fn dequeue(&mut self, _desk: &mut QueueContext<'_>) -> Option<Packet> {
        self.next()
    }

    fn admit(&mut self, packet: Packet, context: &mut QueueContext<'_>) {
        self.turns.extend(self.classes.admit(packet, context));
    }

    fn take(&mut self) -> Option<Packet> {
        self.next()
    }

    fn backlog(&self) -> Backlog {
        self.classes.backlog
    }

    fn set_limit(&mut self, limit: Limit) {
        self.classes.config.limit = limit;
    }
}
