//! FQ-CoDel: a CoDel queue for each flow, served in turn, new flows first.
//!
//! Source: RFC 8290, sections 4.1 (enqueue) and 4.2 (dequeue). Packets are spread over queues by a
//! seeded hash of their 5-tuple; deficit round robin serves them, first those that were empty a
//! moment ago. When all together reach the limit, the head of the fattest queue is dropped. (Linux
//! finds it by a search over all queues, this code by a heap.) A queue takes memory from its first
//! packet on.

use super::codel::{Codel, CodelParams};
use super::{Limit, Queue, QueueContext, Row};
use crate::accounting::Backlog;
use crate::cause::Cause;
use crate::error::ConfigError;
use crate::flow::flow_hash;
use crate::packet::Packet;
use sheaf_stage::{DropReason, IndexedHeap};
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

/// An FQ-CoDel queue; the defaults are those of the RFC and Linux.
#[derive(Clone, Debug, PartialEq)]
pub struct FqCodelConfig {
    /// Most packets in all queues together; 10240. Above zero.
    pub limit: u64,
    /// Most bytes in all queues together; 32 MiB. Above zero.
    pub memory: u64,
    /// Queues, 1 to 65536; 1024.
    pub flows: u32,
    /// Bytes that a queue sends in its turn, 64 or more; 1514.
    pub quantum: u32,
    /// Parameters of CoDel in each.
    pub codel: CodelParams,
}

impl Default for FqCodelConfig {
    fn default() -> Self {
        FqCodelConfig {
            limit: 10_240,
            memory: 32 << 20,
            flows: 1024,
            quantum: 1514,
            codel: CodelParams { ecn: true, ..CodelParams::default() },
        }
    }
}

impl FqCodelConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let zero = |option, value: u64| match value {
            0 => Err(ConfigError::Zero { option }),
            _ => Ok(()),
        };
        zero("fq_codel limit", self.limit)?;
        zero("fq_codel memory", self.memory)?;
        zero("fq_codel flows", u64::from(self.flows))?;
        if self.quantum < 64 {
            return Err(ConfigError::Below { option: "fq_codel quantum", least: 64 });
        }
        if self.flows > 65_536 {
            let (option, value) = ("fq_codel flows", u64::from(self.flows));
            return Err(ConfigError::TooMany { option, value, most: 65_536 });
        }
        self.codel.check()
    }
}

#[derive(Debug, Default)]
struct Flow {
    row: Row,
    codel: Codel,
    credit: i64,
    listed: bool,
}

#[derive(Debug)]
pub(crate) struct FqCodel {
    config: FqCodelConfig,
    /// Flows that have had a packet, and where they stand here, by number.
    flows: Vec<Flow>,
    places: HashMap<u32, u32>,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    by_bytes: IndexedHeap<Reverse<u64>>,
    backlog: Backlog,
}

impl FqCodel {
    pub fn new(config: FqCodelConfig) -> Self {
        FqCodel {
            config,
            flows: Vec::new(),
            places: HashMap::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            by_bytes: IndexedHeap::default(),
            backlog: Backlog::default(),
        }
    }

    /// The place of the packet's queue.
    fn place(&mut self, packet: &Packet, context: &QueueContext<'_>) -> u32 {
        let hash = flow_hash(packet, context.ip, context.dice);
        // The high half of the product spreads the hash evenly over any number of flows.
        let number = ((u128::from(hash) * u128::from(self.config.flows)) >> 64) as u32;
        let next = self.flows.len() as u32;
        let place = *self.places.entry(number).or_insert(next);
        if place == next {
            self.flows.push(Flow::default());
        }
        place
    }

    fn push(&mut self, packet: Packet, index: u32) {
        self.backlog.add(&packet);
        let flow = &mut self.flows[index as usize];
        flow.row.push(packet);
        if !flow.listed {
            (flow.listed, flow.credit) = (true, i64::from(self.config.quantum));
            self.new.push_back(index);
        }
        self.settle(index);
    }

    /// Brings the order by size and the total in line with a flow that changed.
    fn settle(&mut self, index: u32) {
        let bytes = self.flows[index as usize].row.backlog();
        self.by_bytes.set(index, (bytes.packets > 0).then_some(Reverse(bytes.bytes)));
    }

    /// Drops the head of the fattest queue, and returns the reason and the queue.
    fn drop_fattest(&mut self, context: &mut QueueContext<'_>) -> Option<(DropReason, u32)> {
        let (_, index) = self.by_bytes.first()?;
        let packet = self.flows[index as usize].row.pop()?;
        self.backlog.remove(&packet);
        let reason = context.drop(packet, Cause::FattestFlow);
        self.settle(index);
        Some((reason, index))
    }
}

impl Queue for FqCodel {
    fn enqueue(
        &mut self,
        packet: Packet,
        context: &mut QueueContext<'_>,
    ) -> Result<(), DropReason> {
        let index = self.place(&packet, context);
        self.push(packet, index);
        while self.backlog.packets > self.config.limit || self.backlog.bytes > self.config.memory {
            let Some((reason, from)) = self.drop_fattest(context) else { break };
            // The new packet is the last of its queue: when that is empty, it was the one.
            if from == index && self.flows[index as usize].row.head().is_none() {
                return Err(reason);
            }
        }
        Ok(())
    }

    fn dequeue(&mut self, context: &mut QueueContext<'_>) -> Option<Packet> {
        loop {
            let from_new = !self.new.is_empty();
            let index = *if from_new { self.new.front() } else { self.old.front() }?;
            let list = if from_new { &mut self.new } else { &mut self.old };
            let flow = &mut self.flows[index as usize];
            if flow.credit <= 0 {
                flow.credit += i64::from(self.config.quantum);
                list.pop_front();
                self.old.push_back(index);
                continue;
            }
            let before = flow.row.backlog();
            let packet = flow.codel.dequeue(&self.config.codel, &mut flow.row, context);
            let after = flow.row.backlog();
            self.backlog.packets -= before.packets - after.packets;
            self.backlog.bytes -= before.bytes - after.bytes;
            match packet {
                Some(packet) => {
                    flow.credit -= packet.size() as i64;
                    self.settle(index);
                    return Some(packet);
                }
                None => {
                    list.pop_front();
                    // A new flow that ran empty waits a round among the old ones, or it could
                    // come first for ever.
                    if from_new && !self.old.is_empty() {
                        self.old.push_back(index);
                    } else {
                        flow.listed = false;
                    }
                    self.settle(index);
                }
            }
        }
    }

    fn admit(&mut self, packet: Packet, context: &mut QueueContext<'_>) {
        let index = self.place(&packet, context);
        self.push(packet, index);
    }

    fn take(&mut self) -> Option<Packet> {
        let (_, index) = self.by_bytes.first()?;
        let packet = self.flows[index as usize].row.pop()?;
        self.backlog.remove(&packet);
        self.settle(index);
        Some(packet)
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn set_limit(&mut self, limit: Limit) {
        self.config.limit = match limit {
            Limit::Packets(limit) | Limit::Bytes(limit) => limit,
        };
    }
}
