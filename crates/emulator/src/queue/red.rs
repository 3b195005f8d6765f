//! Random early detection: drop with a chance that grows with the mean queue length.
//!
//! Source: S. Floyd, V. Jacobson, "Random early detection gateways for congestion avoidance",
//! IEEE/ACM ToN 1(4), 1993; the gentle variant: S. Floyd, 2000. An exponential mean of the queue
//! in bytes is taken at each arrival; between `min` and `max` the chance rises to `probability`,
//! spread so that drops come at even distances; above `max` every packet is dropped (gentle: the
//! chance rises to 1 at twice `max`). While the queue is empty the mean decays as if small packets
//! had been sent.
//!
//! Adaptive RED (S. Floyd, R. Gummadi, S. Shenker, "Adaptive RED: an algorithm for increasing the
//! robustness of RED's active queue management", 2001, section 4): twice a second `probability`
//! rises by up to 0.01 while the mean is in the upper two fifths of the curve or above, and falls
//! by a tenth while it is in the lower two fifths or below, within 0.01 to 0.5.

use super::{Limit, Queue, QueueContext, Row, Ticks, one_row};
use crate::accounting::Backlog;
use crate::cause::Cause;
use crate::error::ConfigError;
use crate::packet::Packet;
use crate::random::probability;
use sheaf_stage::{Bitrate, DropReason, Duration, Instant};

/// Time between two steps of adaptive RED, and the bounds that its chance is moved within.
const ADAPT_EVERY: Duration = Duration::from_millis(500);
const ADAPT_WITHIN: (f64, f64) = (0.01, 0.5);

/// Chance of a drop as a function of the mean queue.
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
    /// Let `probability` follow the load, so that the mean stays in the middle of the curve.
    pub adaptive: bool,
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
    /// Beyond the curve drop also packets that would understand a mark.
    pub hard_drop: bool,
}

/// RED's verdict on a packet that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    /// Signal congestion: mark or drop.
    Early,
    /// The mean is beyond the curve: drop.
    Forced,
}

impl Verdict {
    /// Whether a mark will do in place of a drop where marks are wanted at all.
    pub fn may_mark(self, hard_drop: bool) -> bool {
        match self {
            Verdict::Pass => false,
            Verdict::Early => true,
            Verdict::Forced => !hard_drop,
        }
    }
}

/// The mean queue and the count of packets since the last drop.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Average {
    mean: f64,
    /// The chance at the end of the curve where it adapts; `None` before its first step.
    adapted: Option<f64>,
    ticks: Ticks,
    since: u32,
    idle_since: Option<Instant>,
}

impl Average {
    /// Counts an arrival that finds `queued` bytes; `unit` in 0..1 decides.
    pub fn arrival(&mut self, curve: &RedCurve, queued: u64, now: Instant, unit: f64) -> Verdict {
        if curve.adaptive {
            self.adapt(curve, now);
        }
        match self.idle_since {
            Some(_) if queued == 0 => self.mean = self.mean_at(curve, now),
            _ => self.mean += curve.weight * (queued as f64 - self.mean),
        }
        self.idle_since = None;
        let (min, max) = (curve.min as f64, curve.max as f64);
        let most = self.most(curve);
        let chance = if self.mean < min {
            self.since = 0;
            return Verdict::Pass;
        } else if self.mean < max {
            most * (self.mean - min) / (max - min)
        } else if curve.gentle && self.mean < 2.0 * max {
            most + (1.0 - most) * (self.mean - max) / max
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

    /// The chance at the end of the curve.
    fn most(&self, curve: &RedCurve) -> f64 {
        self.adapted.filter(|_| curve.adaptive).unwrap_or(curve.probability)
    }

    /// The mean as it is at `now` if nothing has come since the last arrival.
    fn mean_at(&self, curve: &RedCurve, now: Instant) -> f64 {
        let Some(since) = self.idle_since else { return self.mean };
        let each = curve.bandwidth.time_for(curve.mean_packet).as_secs_f64();
        let packets = ((now - since).as_secs_f64() / each).min(1e9).trunc();
        self.mean * libm::pow(1.0 - curve.weight, packets)
    }

    /// Takes the steps of adaptive RED that are due by `now`.
    fn adapt(&mut self, curve: &RedCurve, now: Instant) {
        let (min, max) = (curve.min as f64, curve.max as f64);
        let (low, high) = (min + 0.4 * (max - min), min + 0.6 * (max - min));
        while let Some(at) = self.ticks.next(now, ADAPT_EVERY) {
            let (mean, most) = (self.mean_at(curve, at), self.most(curve));
            let step = if mean > high && most <= ADAPT_WITHIN.1 {
                most + (most / 4.0).min(0.01)
            } else if mean < low && most >= ADAPT_WITHIN.0 {
                most * 0.9
            } else {
                most
            };
            self.adapted = Some(step);
        }
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
    fn enqueue(
        &mut self,
        mut packet: Packet,
        context: &mut QueueContext<'_>,
    ) -> Result<(), DropReason> {
        let backlog = self.row.backlog();
        if self.config.limit.is_exceeded_by(backlog, packet.size()) {
            return Err(context.drop(packet, Cause::RateQueueFull));
        }
        let unit = context.unit(&packet);
        let verdict = self.average.arrival(&self.config.curve, backlog.bytes, context.now, unit);
        let marks = self.config.ecn && verdict.may_mark(self.config.hard_drop);
        match verdict {
            Verdict::Pass => self.row.push(packet),
            _ if marks && context.mark(&mut packet) => self.row.push(packet),
            Verdict::Early | Verdict::Forced => return Err(context.drop(packet, Cause::Red)),
        }
        Ok(())
    }

    fn dequeue(&mut self, context: &mut QueueContext<'_>) -> Option<Packet> {
        let packet = self.row.pop();
        if packet.is_some() && self.row.head().is_none() {
            self.average.idle(context.now);
        }
        packet
    }

    one_row!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Dice, Purpose};

    fn curve(gentle: bool) -> RedCurve {
        let (weight, mean_packet) = (0.002, 1000);
        let bandwidth = Bitrate::from_mbps(8);
        let (min, max, probability) = (10_000, 30_000, 0.1);
        RedCurve { min, max, probability, weight, gentle, adaptive: false, mean_packet, bandwidth }
    }

    /// The share of arrivals that are signalled while the mean stays at `mean`.
    fn share(mean: f64, dice: Dice, arrivals: u64) -> f64 {
        let mut average = Average { mean, ..Average::default() };
        let signalled = (0..arrivals).filter(|n| {
            let unit = dice.unit(Purpose::QueueManagement, *n);
            average.arrival(&curve(false), mean as u64, Instant::ZERO, unit) == Verdict::Early
        });
        signalled.count() as f64 / arrivals as f64
    }

    #[test]
    fn the_share_of_signals_is_the_function_of_the_mean_that_the_curve_draws() {
        let arrivals = 200_000;
        for tenth in 1..10u32 {
            let mean = 10_000.0 + 2_000.0 * f64::from(tenth);
            let p = 0.1 * f64::from(tenth) / 10.0;
            // With the chances p / (1 - n p) the next n pass with probability 1 - n p, so the mean
            // distance is the sum of that (section 7 of the paper).
            let passes = |n: f64| (1.0 - n * p).max(0.0);
            let distance: f64 = (0..2000).map(|n| passes(f64::from(n))).sum();
            let square: f64 = (0..2000).map(|n| f64::from(2 * n + 1) * passes(f64::from(n))).sum();
            let share = share(mean, Dice::new(u64::from(tenth)), arrivals);
            // Renewal theory: the count's variance is arrivals · variance / distance³.
            let variance = (square - distance * distance) / libm::pow(distance, 3.0);
            let error = 4.0 * (variance / arrivals as f64).sqrt();
            assert!((share - 1.0 / distance).abs() < error, "{mean}: {share}, {}", 1.0 / distance);
        }
        assert_eq!(share(9_999.0, Dice::new(1), 10_000), 0.0);
    }

    #[test]
    fn adaptive_red_moves_its_chance_until_the_mean_is_in_the_middle() {
        let curve = RedCurve { adaptive: true, ..curve(false) };
        let after = |mean: f64, seconds: u64| {
            let mut average = Average { mean, ..Average::default() };
            average.arrival(&curve, mean as u64, Instant::ZERO, 0.99);
            average.arrival(&curve, mean as u64, Instant::from_millis(seconds * 1000), 0.99);
            average.most(&curve)
        };
        // The first step is half a second after the first packet.
        assert!((after(23_000.0, 1) - 0.12).abs() < 1e-9, "two steps of 0.01");
        assert!((after(17_000.0, 1) - 0.081).abs() < 1e-9, "two steps of a tenth");
        assert_eq!(after(20_000.0, 100), 0.1, "the middle is where it should be");
        assert!((0.5..0.511).contains(&after(23_000.0, 1000)));
        assert!((0.009..0.01).contains(&after(17_000.0, 1000)));
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
        assert!((average.mean / (9_000.0 * (1.0 - libm::pow(0.998, 500.0))) - 1.0).abs() < 1e-9);
        let before = average.mean;
        average.idle(Instant::ZERO);
        // 100 ms are 100 packets of 1000 bytes at 8 Mbit/s.
        average.arrival(&curve(false), 0, Instant::from_millis(100), 0.99);
        assert!((average.mean / (before * libm::pow(0.998, 100.0)) - 1.0).abs() < 1e-9);
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
