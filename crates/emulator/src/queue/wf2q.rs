//! WF2Q+ between queues: as close to sharing the link bit by bit as whole packets can be.
//!
//! Source: J. C. R. Bennett, H. Zhang, "Hierarchical packet fair queueing algorithms", IEEE/ACM
//! ToN 5(5), 1997; dummynet's `dn_sched_wf2q.c`. Each queue's head has a virtual start and finish
//! time, finish = start + length / weight. Of the queues whose start has come, the one with the
//! earliest finish sends; virtual time goes on by length / sum of weights for each packet, and
//! never lags behind the earliest start. O(log queues) a packet.

use super::weighted::{Classes, WeightedConfig};
use super::{Limit, Queue, QueueContext};
use crate::accounting::Backlog;
use crate::packet::Packet;
use sheaf_stage::{DropReason, IndexedHeap};

/// Virtual time is in bytes / weight with so many binary digits: fine enough for any weight, and
/// 128 bits never end.
const DIGITS: u32 = 32;

type Virtual = u128;

#[derive(Debug)]
pub(crate) struct Wf2q {
    classes: Classes,
    /// Virtual start and finish of each queue's head, or of the packet that it sent last.
    times: Vec<(Virtual, Virtual)>,
    /// Virtual time.
    now: Virtual,
    /// The latest finish so far: where virtual time stands when all is sent.
    latest: Virtual,
    /// The sum of all weights.
    weights: u64,
    /// Queues whose start has come, by finish.
    eligible: IndexedHeap<Virtual>,
    /// The others that have packets, by start.
    waiting: IndexedHeap<Virtual>,
}

impl Wf2q {
    pub fn new(config: WeightedConfig) -> Self {
        Wf2q {
            times: vec![(0, 0); config.weights.len()],
            weights: config.weights.iter().map(|weight| u64::from(*weight)).sum(),
            classes: Classes::new(config),
            now: 0,
            latest: 0,
            eligible: IndexedHeap::default(),
            waiting: IndexedHeap::default(),
        }
    }

    /// A queue has got its first packet.
    fn wake(&mut self, index: Option<u32>) {
        let Some(index) = index else { return };
        if self.eligible.first().is_none() && self.waiting.first().is_none() {
            self.now = self.now.max(self.latest);
        }
        let start = self.now.max(self.times[index as usize].1);
        self.plan(index, start);
    }

    /// Orders the head of a queue that starts at `start`.
    fn plan(&mut self, index: u32, start: Virtual) {
        let len = self.classes.head_len(index).unwrap_or(0);
        let finish =
            start + (Virtual::from(len) << DIGITS) / Virtual::from(self.classes.weight(index));
        self.times[index as usize] = (start, finish);
        self.latest = self.latest.max(finish);
        if start <= self.now {
            self.eligible.set(index, Some(finish));
        } else {
            self.waiting.set(index, Some(start));
        }
    }

    fn next(&mut self) -> Option<Packet> {
        if self.eligible.first().is_none() {
            self.now = self.now.max(self.waiting.first()?.0);
        }
        while let Some((_, index)) = self.waiting.first().filter(|(start, _)| *start <= self.now) {
            self.waiting.set(index, None);
            self.eligible.set(index, Some(self.times[index as usize].1));
        }
        let (finish, index) = self.eligible.first()?;
        self.eligible.set(index, None);
        let packet = self.classes.pop(index)?;
        self.now += ((packet.size() as Virtual) << DIGITS) / Virtual::from(self.weights);
        if self.classes.head_len(index).is_some() {
            self.plan(index, finish);
        }
        Some(packet)
    }
}

impl Queue for Wf2q {
    fn enqueue(
        &mut self,
        packet: Packet,
        context: &mut QueueContext<'_>,
    ) -> Result<(), DropReason> {
        let woken = self.classes.push(packet, context)?;
        self.wake(woken);
        Ok(())
    }

    fn dequeue(&mut self, _desk: &mut QueueContext<'_>) -> Option<Packet> {
        self.next()
    }

    fn admit(&mut self, packet: Packet, context: &mut QueueContext<'_>) {
        let woken = self.classes.admit(packet, context);
        self.wake(woken);
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
