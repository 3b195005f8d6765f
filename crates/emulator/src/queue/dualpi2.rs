//! DualPI2: low latency for scalable senders that share a link with classic ones.
//!
//! Source: RFC 9332, appendix A. Packets with ECT(1) or CE wait in the L4S queue, others in the
//! classic one. A PI controller on the wait gives a base chance p'; classic packets are dropped or
//! marked with p'², L4S packets marked with k·p' or when they waited longer than a step, whichever
//! is more, so that a classic and a scalable flow get the same rate. In overload (k·p' at 1) L4S
//! packets are dropped like classic ones. The scheduler is weighted round robin by bytes: the
//! classic queue is sure of its share, the rest goes to L4S first (4.2.2 asks for a bound on
//! starvation).

use super::{Limit, Queue, QueueContext, Row, Ticks};
use crate::accounting::Backlog;
use crate::cause::Cause;
use crate::error::ConfigError;
use crate::packet::Packet;
use crate::random::factors;
use sheaf_stage::{DropReason, Duration, Instant};
use sheaf_wire::ecn::Ecn;
use sheaf_wire::header;

/// A DualPI2 queue; the defaults are those of the RFC's appendix A.
#[derive(Clone, Debug, PartialEq)]
pub struct DualPi2Config {
    /// The bound on both queues together; 10000 packets in Linux.
    pub limit: Limit,
    /// The wait aimed at in the classic queue; 15 ms.
    pub target: Duration,
    /// Time between updates; 16 ms. Above zero.
    pub update: Duration,
    /// Weight of the distance to the target, per second; 0.16.
    pub alpha: f64,
    /// Weight of the trend, per second; 3.2.
    pub beta: f64,
    /// k: how much more L4S packets are marked than the base chance; 2.
    pub coupling: f64,
    /// L4S packets that waited longer are all marked; 1 ms.
    pub step: Duration,
    /// The share of the link that the classic queue is sure of, above 0 and below 1; 0.1.
    pub classic_share: f64,
    /// Mark packets that understand it; otherwise all are dropped, which defeats the purpose.
    pub ecn: bool,
}

impl Default for DualPi2Config {
    fn default() -> Self {
        DualPi2Config {
            limit: Limit::Packets(10_000),
            target: Duration::from_millis(15),
            update: Duration::from_millis(16),
            alpha: 0.16,
            beta: 3.2,
            coupling: 2.0,
            step: Duration::from_millis(1),
            classic_share: 0.1,
            ecn: true,
        }
    }
}

impl DualPi2Config {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.limit.check()?;
        if self.update.is_zero() {
            return Err(ConfigError::Zero { option: "dualpi2 update" });
        }
        factors("dualpi2 alpha, beta or coupling", &[self.alpha, self.beta, self.coupling])?;
        match self.classic_share > 0.0 && self.classic_share < 1.0 {
            true => Ok(()),
            false => {
                let (option, value) = ("dualpi2 classic share", self.classic_share);
                Err(ConfigError::Probability { option, value })
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct DualPi2 {
    pub config: DualPi2Config,
    classic: Lane,
    l4s: Lane,
    ticks: Ticks,
    /// p'.
    base: f64,
    /// The wait at the last update.
    wait: Duration,
    /// Bytes that the classic queue is behind its share while both have packets; then it is its
    /// turn.
    credit: f64,
}

/// One of the two queues, with its sum of chances: a signal each time it passes 1 (`recur`).
#[derive(Debug, Default)]
struct Lane {
    row: Row,
    sum: f64,
}

impl Lane {
    fn recurs(&mut self, chance: f64) -> bool {
        self.sum += chance;
        let recurs = self.sum > 1.0;
        if recurs {
            self.sum -= 1.0;
        }
        recurs
    }
}

impl DualPi2 {
    pub fn new(config: DualPi2Config) -> Self {
        DualPi2 {
            config,
            classic: Lane::default(),
            l4s: Lane::default(),
            ticks: Ticks::default(),
            base: 0.0,
            wait: Duration::ZERO,
            credit: 0.0,
        }
    }

    fn catch_up(&mut self, now: Instant) {
        while let Some(tick) = self.ticks.next(now, self.config.update) {
            let wait = self.classic.row.wait(tick).max(self.l4s.row.wait(tick));
            let DualPi2Config { target, alpha, beta, .. } = self.config;
            let seconds = |a: Duration, b: Duration| a.as_secs_f64() - b.as_secs_f64();
            let step = alpha * seconds(wait, target) + beta * seconds(wait, self.wait);
            self.base = (self.base + step).clamp(0.0, 1.0);
            self.wait = wait;
        }
    }

    /// The next packet by the scheduler, and whether it is an L4S one.
    fn schedule(&mut self) -> Option<(Packet, bool)> {
        let share = self.config.classic_share;
        let both = self.classic.row.head().is_some() && self.l4s.row.head().is_some();
        let l4s = match both {
            true => self.credit <= 0.0,
            false => self.l4s.row.head().is_some(),
        };
        let lane = if l4s { &mut self.l4s } else { &mut self.classic };
        let packet = lane.row.pop()?;
        let len = packet.size() as f64;
        self.credit = match (both, l4s) {
            (false, _) => 0.0,
            (true, true) => self.credit + len * share,
            (true, false) => self.credit - len * (1.0 - share),
        };
        Some((packet, l4s))
    }

    /// Marks or drops an L4S packet that leaves its queue: `None` when it was dropped.
    fn leave_l4s(&mut self, mut packet: Packet, context: &mut QueueContext<'_>) -> Option<Packet> {
        let coupled = (self.config.coupling * self.base).min(1.0);
        let overload = coupled >= 1.0;
        if overload && self.l4s.recurs(self.base * self.base) {
            context.drop(packet, Cause::DualPi2);
            return None;
        }
        // A packet that nothing waits behind says nothing of a queue: on a slow link the packet
        // before it may take longer than the step.
        let stepped =
            context.now - packet.arrived > self.config.step && self.l4s.row.head().is_some();
        let signals = self.l4s.recurs(coupled) || stepped;
        if signals && !(self.config.ecn && context.mark(&mut packet)) {
            context.drop(packet, Cause::DualPi2);
            return None;
        }
        Some(packet)
    }

    /// Marks or drops a classic packet that leaves its queue: `None` when it was dropped.
    fn leave_classic(
        &mut self,
        mut packet: Packet,
        context: &mut QueueContext<'_>,
    ) -> Option<Packet> {
        let chance = self.base * self.base;
        if !self.classic.recurs(chance) {
            return Some(packet);
        }
        // Beyond p_Cmax = 1 / k² marks do not help any more.
        let overload = self.config.coupling * self.base >= 1.0;
        if !overload && self.config.ecn && context.mark(&mut packet) {
            return Some(packet);
        }
        context.drop(packet, Cause::DualPi2);
        None
    }
}

impl Queue for DualPi2 {
    fn enqueue(
        &mut self,
        packet: Packet,
        context: &mut QueueContext<'_>,
    ) -> Result<(), DropReason> {
        self.catch_up(context.now);
        if self.config.limit.is_exceeded_by(self.backlog(), packet.size()) {
            return Err(context.drop(packet, Cause::RateQueueFull));
        }
        self.admit(packet, context);
        Ok(())
    }

    fn dequeue(&mut self, context: &mut QueueContext<'_>) -> Option<Packet> {
        self.catch_up(context.now);
        loop {
            let (packet, l4s) = self.schedule()?;
            let left = match l4s {
                true => self.leave_l4s(packet, context),
                false => self.leave_classic(packet, context),
            };
            if left.is_some() {
                return left;
            }
        }
    }

    fn admit(&mut self, packet: Packet, context: &mut QueueContext<'_>) {
        match header::ecn(packet.after_link(context.ip)) {
            Ecn::Ect1 | Ecn::Ce => self.l4s.row.push(packet),
            Ecn::NotEct | Ecn::Ect0 => self.classic.row.push(packet),
        }
    }

    fn take(&mut self) -> Option<Packet> {
        self.classic.row.pop().or_else(|| self.l4s.row.pop())
    }

    fn backlog(&self) -> Backlog {
        let (classic, l4s) = (self.classic.row.backlog(), self.l4s.row.backlog());
        Backlog { packets: classic.packets + l4s.packets, bytes: classic.bytes + l4s.bytes }
    }

    fn set_limit(&mut self, limit: Limit) {
        self.config.limit = limit;
    }
}
