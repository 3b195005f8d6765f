//! Generalized RED: one queue, several RED curves, chosen by DSCP.
//!
//! Source: tc-gred(8); the idea is that of RIO (D. Clark, W. Fang, "Explicit allocation of best
//! effort packet delivery service", 1998). Every virtual queue has a curve, a mean and a bound of
//! its own, over the bytes it has in the common queue; so packets of one class are dropped before
//! those of another, and none overtakes.

use super::red::{Average, RedCurve, Verdict};
use super::{Limit, Queue, QueueContext, Row};
use crate::accounting::Backlog;
use crate::cause::Cause;
use crate::error::ConfigError;
use crate::packet::Packet;
use sheaf_stage::DropReason;

/// Most virtual queues, as in Linux.
pub const MOST: usize = 16;

/// A GRED queue.
#[derive(Clone, Debug, PartialEq)]
pub struct GredConfig {
    /// The bound on all together.
    pub limit: Limit,
    /// The virtual queues, 1 to 16: a curve, and the bytes that each may hold.
    pub virtual_queues: Vec<(RedCurve, u64)>,
    /// The virtual queue of each DSCP.
    pub by_dscp: [u8; 64],
    /// Mark packets that understand it in place of dropping them early.
    pub ecn: bool,
    /// Beyond its curve drop also packets that would understand a mark.
    pub hard_drop: bool,
}

impl GredConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.limit.check()?;
        let count = self.virtual_queues.len();
        if count == 0 {
            return Err(ConfigError::Zero { option: "gred virtual queues" });
        }
        if count > MOST {
            let (option, most) = ("gred virtual queues", MOST as u64);
            return Err(ConfigError::TooMany { option, value: count as u64, most });
        }
        if let Some(wrong) = self.by_dscp.iter().find(|index| usize::from(**index) >= count) {
            let (option, number) = ("gred virtual queue", usize::from(*wrong));
            return Err(ConfigError::Missing { option, number });
        }
        self.virtual_queues.iter().try_for_each(|(curve, _)| curve.check())
    }
}

#[derive(Debug)]
pub(crate) struct Gred {
    config: GredConfig,
    row: Row,
    /// Mean and bytes of each virtual queue.
    virtual_queues: Vec<(Average, u64)>,
    /// The virtual queue of each packet in `row`.
    belongs: std::collections::VecDeque<u8>,
}

impl Gred {
    pub fn new(config: GredConfig) -> Self {
        let virtual_queues = vec![(Average::default(), 0); config.virtual_queues.len()];
        Gred { config, row: Row::default(), virtual_queues, belongs: Default::default() }
    }

    /// The virtual queue of a packet; one that is not IP counts as DSCP 0.
    fn index(&self, packet: &Packet, context: &QueueContext<'_>) -> u8 {
        let dscp = packet.dscp(context.ip);
        self.config.by_dscp[usize::from(dscp)]
    }

    fn push(&mut self, packet: Packet, index: u8) {
        self.virtual_queues[usize::from(index)].1 += packet.size() as u64;
        self.belongs.push_back(index);
        self.row.push(packet);
    }

    fn pop(&mut self) -> Option<(Packet, u8)> {
        let (packet, index) = (self.row.pop()?, self.belongs.pop_front()?);
        self.virtual_queues[usize::from(index)].1 -= packet.size() as u64;
        Some((packet, index))
    }
}

impl Queue for Gred {
    fn enqueue(
        &mut self,
        mut packet: Packet,
        context: &mut QueueContext<'_>,
    ) -> Result<(), DropReason> {
        let index = self.index(&packet, context);
        let (curve, limit) = &self.config.virtual_queues[usize::from(index)];
        let (average, queued) = &mut self.virtual_queues[usize::from(index)];
        let len = packet.size();
        if *queued + len as u64 > *limit
            || self.config.limit.is_exceeded_by(self.row.backlog(), len)
        {
            return Err(context.drop(packet, Cause::RateQueueFull));
        }
        let verdict = average.arrival(curve, *queued, context.now, context.unit(&packet));
        let marks = self.config.ecn && verdict.may_mark(self.config.hard_drop);
        match verdict {
            Verdict::Pass => self.push(packet, index),
            _ if marks && context.mark(&mut packet) => self.push(packet, index),
            Verdict::Early | Verdict::Forced => return Err(context.drop(packet, Cause::Gred)),
        }
        Ok(())
    }

    fn dequeue(&mut self, context: &mut QueueContext<'_>) -> Option<Packet> {
        let (packet, index) = self.pop()?;
        let (average, queued) = &mut self.virtual_queues[usize::from(index)];
        if *queued == 0 {
            average.idle(context.now);
        }
        Some(packet)
    }

    fn admit(&mut self, packet: Packet, context: &mut QueueContext<'_>) {
        let index = self.index(&packet, context);
        self.push(packet, index);
    }

    fn take(&mut self) -> Option<Packet> {
        self.pop().map(|(packet, _)| packet)
    }

    fn backlog(&self) -> Backlog {
        self.row.backlog()
    }

    fn set_limit(&mut self, limit: Limit) {
        self.config.limit = limit;
    }
}
