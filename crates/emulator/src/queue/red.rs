//! Random early detection: drop with a chance that grows with the mean queue length.
//!
//! Source: S. Floyd, V. Jacobson, "Random early detection gateways for congestion avoidance",
//! IEEE/ACM ToN 1(4), 1993; the gentle variant: S. Floyd, 2000. An exponential mean of the queue
//! in bytes is taken at each arrival; between `min` and `max` the chance rises to `probability`,
//! spread so that drops come at even distances; above `max` every packet is dropped (gentle: the
//! chance rises to 1 at twice `max`). While the queue is empty the mean decays as if small packets
//! had been sent.

use super::{Desk, Limit, Queue, Row};
use crate::cause::Cause;
use crate::config::ConfigError;
use crate::ledger::Backlog;
use crate::packet::Packet;
use crate::random::probability;
use sheaf_stage::{Bitrate, Instant};

/// How the chance of a drop follows from the mean queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedCurve {
    /// Bytes; below it nothing is dropped.
    pub min: u64,
    /// Bytes, more than `min`.
    pub max: u64,
    /// The chance just below `max`, above 0 and at most 1.
    pub probability: f64,
    /// Weight of the present queue in the mean, above 0 and at most 1.
    pub weight: f64,
    /// Let the chance rise from `probability` at `max` to 1 at twice `max`.
    pub gentle: bool,
    /// Bytes of a typical packet, above 0: how fast the mean decays while the queue is empty.
    pub mean_packet: u64,
    /// The rate at which such packets would have left.
    pub bandwidth: Bitrate,
}

impl RedCurve {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        probability("red probability", self.probability)?;
        probability("red weight", self.weight)?;
        if self.min >= self.max {
            return Err(ConfigError::Order { low: "red min", high: "red max" });
        }
        let zero = [
            ("red probability", self.probability == 0.0),
            ("red weight", self.weight == 0.0),
            ("red mean packet", self.mean_packet == 0),
            ("red bandwidth", self.bandwidth.as_bps() == 0),
        ];
        match zero.into_iter().find(|(_, is_zero)| *is_zero) {
            Some((option, _)) => Err(ConfigError::Zero { option }),
            None => Ok(()),
        }
    }
}

/// A RED queue.
#[derive(Clone, Debug, PartialEq)]
pub struct RedConfig {
    /// The hard bound.
    pub limit: Limit,
    /// The curve.
    pub curve: RedCurve,
    /// Mark packets that understand it in place of dropping them early.
    pub ecn: bool,
}

/// What RED says about a packet that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    /// Signal congestion: mark or drop.
    Early,
    /// The mean is beyond the curve: drop.
    Forced,
}

/// The mean queue and the count of packets since the last drop.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Average {
    mean: f64,
    since: u32,
    idle_since: Option<Instant>,
}

impl Average {
    /// Counts an arrival that finds `queued` bytes; `unit` in 0..1 decides.
    pub fn arrival(&mut self, curve: &RedCurve, queued: u64, now: Instant, unit: f64) -> Verdict {
        match self.idle_since.take() {
            Some(since) if queued == 0 => {
                let each = curve.bandwidth.time_for(curve.mean_packet).as_secs_f64();
                let packets = ((now - since).as_secs_f64() / each).min(1e9) as i32;
                self.mean *= (1.0 - curve.weight).powi(packets);
            }
            _ => self.mean += curve.weight * (queued as f64 - self.mean),
        }
        let (min, max) = (curve.min as f64, curve.max as f64);
        let chance = if self.mean < min {
            self.since = 0;
            return Verdict::Pass;
        } else if self.mean < max {
            curve.probability * (self.mean - min) / (max - min)
        } else if curve.gentle && self.mean < 2.0 * max {
            curve.probability + (1.0 - curve.probability) * (self.mean - max) / max
        } else {
            self.since = 0;
            return Verdict::Forced;
        };
        // Spread: after n packets without a drop the chance is p / (1 - n p).
        let spread = 1.0 - f64::from(self.since) * chance;
        if spread <= 0.0 || unit < chance / spread {
            self.since = 0;
            return Verdict::Early;
        }
        self.since += 1;
        Verdict::Pass
    }

    /// The queue ran empty.
    pub fn idle(&mut self, now: Instant) {
        self.idle_since = Some(now);
    }
}

#[derive(Debug)]
pub(crate) struct Red {
    pub config: RedConfig,
    average: Average,
    row: Row,
}

impl Red {
    pub fn new(config: RedConfig) -> Self {
        Red { config, average: Average::default(), row: Row::default() }
    }
}

impl Queue for Red {
    fn enqueue(&mut self, mut packet: Packet, desk: &mut Desk<'_>) {
        let backlog = self.row.backlog();
        if self.config.limit.is_exceeded_by(backlog, packet.bytes.len()) {
            return desk.drop(packet, Cause::RateQueueFull);
        }
        let unit = desk.unit(&packet);
        match self.average.arrival(&self.config.curve, backlog.bytes, desk.now, unit) {
            Verdict::Pass => self.row.push(packet),
            Verdict::Early if self.config.ecn && desk.mark(&mut packet) => self.row.push(packet),
            Verdict::Early | Verdict::Forced => desk.drop(packet, Cause::Red),
        }
    }

    fn dequeue(&mut self, desk: &mut Desk<'_>) -> Option<Packet> {
        let packet = self.row.pop();
        if packet.is_some() && self.row.head().is_none() {
            self.average.idle(desk.now);
        }
        packet
    }

    fn admit(&mut self, packet: Packet, _desk: &mut Desk<'_>) {
        self.row.push(packet);
    }

    fn take(&mut self) -> Option<Packet> {
        self.row.pop()
    }

    fn backlog(&self) -> Backlog {
        self.row.backlog()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Dice, Purpose};

    fn curve(gentle: bool) -> RedCurve {
        let (weight, mean_packet) = (0.002, 1000);
        let bandwidth = Bitrate::from_mbps(8);
        let (min, max, probability) = (10_000, 30_000, 0.1);
        RedCurve { min, max, probability, weight, gentle, mean_packet, bandwidth }
    }

    #[test]
    fn at_a_steady_mean_the_distances_between_drops_are_uniform() {
        let mut average = Average { mean: 20_000.0, ..Average::default() };
        let dice = Dice::new(3);
        let (mut distances, mut last) = (Vec::new(), 0u64);
        for n in 1..200_000u64 {
            let unit = dice.unit(Purpose::QueueManagement, n);
            if average.arrival(&curve(false), 20_000, Instant::ZERO, unit) == Verdict::Early {
                distances.push(n - last);
                last = n;
            }
        }
        // The chance is half of 0.1, so distances are 1 to 20 (section 7 of the paper).
        assert_eq!(distances.iter().max(), Some(&20));
        let n = distances.len() as f64;
        let mean = distances.iter().sum::<u64>() as f64 / n;
        let error = (399.0 / 12.0 / n).sqrt();
        assert!((mean - 10.5).abs() < 4.0 * error, "{mean} ± {error}");
    }

    #[test]
    fn the_mean_follows_slowly_and_decays_while_the_queue_is_empty() {
        let mut average = Average::default();
        for _ in 0..500 {
            average.arrival(&curve(false), 9_000, Instant::ZERO, 0.99);
        }
        assert!((average.mean / (9_000.0 * (1.0 - 0.998f64.powi(500))) - 1.0).abs() < 1e-9);
        let before = average.mean;
        average.idle(Instant::ZERO);
        // 100 ms are 100 packets of 1000 bytes at 8 Mbit/s.
        average.arrival(&curve(false), 0, Instant::from_millis(100), 0.99);
        assert!((average.mean / (before * 0.998f64.powi(100)) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn beyond_the_curve_every_packet_goes_unless_the_curve_is_gentle() {
        let verdict = |gentle, mean: f64| {
            let mut average = Average { mean, ..Average::default() };
            average.arrival(&curve(gentle), mean as u64, Instant::ZERO, 0.999)
        };
        assert_eq!(verdict(false, 31_000.0), Verdict::Forced);
        assert_eq!(verdict(true, 31_000.0), Verdict::Pass);
        assert_eq!(verdict(true, 61_000.0), Verdict::Forced);
        assert_eq!(verdict(false, 9_000.0), Verdict::Pass);
    }
}
