//! PIE: drop on arrival with a chance that a controller keeps at a target wait.
//!
//! Source: RFC 8033: drop decision (4.1, 5.1, 5.4), controller (4.2, 5.2), burst allowance (4.4),
//! ECN (5.1), spread of drops (5.4). The wait is that of the oldest packet, by time stamps
//! (5.2 allows it), so no departure rate is estimated. The controller's updates are worked out
//! when the queue is next used, each with the wait that it would have found.

use super::{Limit, Queue, QueueContext, Row, Ticks, one_row};
use crate::accounting::Backlog;
use crate::cause::Cause;
use crate::error::ConfigError;
use crate::packet::Packet;
use crate::random::{factors, probability};
use sheaf_stage::{DropReason, Duration, Instant};

/// A PIE queue; the defaults are those of the RFC.
#[derive(Clone, Debug, PartialEq)]
pub struct PieConfig {
    /// The hard bound; 1000 packets in Linux.
    pub limit: Limit,
    /// QDELAY_REF: the wait aimed at; 15 ms.
    pub target: Duration,
    /// T_UPDATE: time between updates of the chance; 15 ms. Above zero.
    pub update: Duration,
    /// Weight of the distance to the target, per second; 0.125.
    pub alpha: f64,
    /// Weight of the trend, per second; 1.25.
    pub beta: f64,
    /// MAX_BURST: for so long after a quiet time nothing is dropped; 150 ms.
    pub burst: Duration,
    /// MEAN_PKTSIZE: a queue of no more than two of them is never dropped from; 1024 bytes.
    pub mean_packet: u64,
    /// Mark packets that understand it while the chance is below this; 0 for no marks. 0.1 in the
    /// RFC.
    pub ecn_below: f64,
}

impl Default for PieConfig {
    fn default() -> Self {
        PieConfig {
            limit: Limit::Packets(1000),
            target: Duration::from_millis(15),
            update: Duration::from_millis(15),
            alpha: 0.125,
            beta: 1.25,
            burst: Duration::from_millis(150),
            mean_packet: 1024,
            ecn_below: 0.0,
        }
    }
}

impl PieConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.limit.check()?;
        if self.update.is_zero() {
            return Err(ConfigError::Zero { option: "pie update" });
        }
        factors("pie alpha or beta", &[self.alpha, self.beta])?;
        probability("pie ecn", self.ecn_below)
    }
}

#[derive(Debug)]
pub(crate) struct Pie {
    pub config: PieConfig,
    row: Row,
    ticks: Ticks,
    chance: f64,
    /// Chances since the last drop, added up.
    spread: f64,
    /// The wait at the last update.
    wait: Duration,
    allowance: Duration,
}

impl Pie {
    pub fn new(config: PieConfig) -> Self {
        Pie {
            row: Row::default(),
            ticks: Ticks::default(),
            chance: 0.0,
            spread: 0.0,
            wait: Duration::ZERO,
            allowance: config.burst,
            config,
        }
    }

    /// Makes the updates that are due at `now`.
    fn catch_up(&mut self, now: Instant) {
        while let Some(tick) = self.ticks.next(now, self.config.update) {
            self.update(self.row.wait(tick));
        }
    }

    /// One update (RFC 8033, 4.2 and 5.2).
    fn update(&mut self, wait: Duration) {
        let PieConfig { target, update, alpha, beta, burst, .. } = self.config;
        let seconds = |a: Duration, b: Duration| a.as_secs_f64() - b.as_secs_f64();
        let mut step = alpha * seconds(wait, target) + beta * seconds(wait, self.wait);
        step /= match self.chance {
            p if p < 0.000_001 => 2048.0,
            p if p < 0.000_01 => 512.0,
            p if p < 0.000_1 => 128.0,
            p if p < 0.001 => 32.0,
            p if p < 0.01 => 8.0,
            p if p < 0.1 => 2.0,
            _ => 1.0,
        };
        if self.chance >= 0.1 {
            step = step.min(0.02);
        }
        self.chance += step;
        if wait.is_zero() && self.wait.is_zero() {
            self.chance *= 0.98;
        }
        self.chance = self.chance.clamp(0.0, 1.0);
        let quiet = wait < target / 2 && self.wait < target / 2;
        self.allowance = match self.chance == 0.0 && quiet {
            true => burst,
            false => self.allowance.saturating_sub(update),
        };
        self.wait = wait;
    }

    /// Whether to signal congestion by a packet that arrives (4.1, 5.4).
    fn signals(&mut self, unit: f64) -> bool {
        let relaxed = self.wait < self.config.target / 2 && self.chance < 0.2;
        let short = self.row.backlog().bytes <= 2 * self.config.mean_packet;
        if !self.allowance.is_zero() || relaxed || short {
            return false;
        }
        self.spread = if self.chance == 0.0 { 0.0 } else { self.spread + self.chance };
        let signals = self.spread >= 0.85 && (self.spread >= 8.5 || unit < self.chance);
        if signals {
            self.spread = 0.0;
        }
        signals
    }
}

impl Queue for Pie {
    fn enqueue(
        &mut self,
        mut packet: Packet,
        context: &mut QueueContext<'_>,
    ) -> Result<(), DropReason> {
        self.catch_up(context.now);
        if self.config.limit.is_exceeded_by(self.row.backlog(), packet.size()) {
            return Err(context.drop(packet, Cause::RateQueueFull));
        }
        if self.signals(context.unit(&packet)) {
            let may_mark = self.chance < self.config.ecn_below;
            if !may_mark || !context.mark(&mut packet) {
                return Err(context.drop(packet, Cause::Pie));
            }
        }
        self.row.push(packet);
        Ok(())
    }

    fn dequeue(&mut self, context: &mut QueueContext<'_>) -> Option<Packet> {
        self.catch_up(context.now);
        self.row.pop()
    }

    one_row!();
}
