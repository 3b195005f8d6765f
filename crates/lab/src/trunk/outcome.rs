//! The outcome of one point, on either engine.

use sheaf_stage::{Duration, Instant};
use std::ops::Range;

/// Everything measured at one point.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Bytes that the receiving application got, headers not counted.
    pub bytes: u64,
    /// The same, second by second.
    pub per_second: Vec<u64>,
    /// Time that was measured.
    pub duration: Duration,
    /// Packets with data that were sent.
    pub sent: u64,
    /// Packets with data that arrived.
    pub arrived: u64,
    /// Packets that arrived after a packet of their flow that was sent later.
    pub reordered: u64,
    /// One-way delays of the packets that arrived, in µs, sorted.
    pub delays: Vec<u32>,
    /// Frames that arrived after the trunk had given them up.
    pub late: u64,
    /// The longest reordering timer of all flows at the end; zero without a trunk.
    pub timer: Duration,
    /// The reordering timer over time, from the start, ten times a second at most.
    pub timers: Vec<(Duration, Duration)>,
    /// Bytes that the first pair of neighbours got; `None` where there is none, or it was not
    /// measured.
    pub neighbour: Option<u64>,
}

impl Outcome {
    /// Mbit/s that the application got.
    pub fn throughput(&self) -> f64 {
        self.mbps(self.bytes)
    }

    /// Mbit/s that the first pair of neighbours got.
    pub fn neighbour_throughput(&self) -> Option<f64> {
        self.neighbour.map(|bytes| self.mbps(bytes))
    }

    fn mbps(&self, bytes: u64) -> f64 {
        bytes as f64 * 8.0 / self.duration.as_secs_f64().max(1e-9) / 1e6
    }

    /// Adds the bytes of another flow.
    pub fn add(&mut self, other: &Outcome) {
        self.bytes += other.bytes;
        let seconds = self.per_second.len().max(other.per_second.len());
        self.per_second.resize(seconds, 0);
        for (all, bytes) in self.per_second.iter_mut().zip(&other.per_second) {
            *all += bytes;
        }
    }

    /// Standard deviation of the throughput of single seconds, in Mbit/s.
    pub fn unsteadiness(&self) -> f64 {
        let rates: Vec<_> = self.per_second.iter().map(|bytes| *bytes as f64 * 8e-6).collect();
        let count = rates.len().max(1) as f64;
        let mean = rates.iter().sum::<f64>() / count;
        let squares = rates.iter().map(|rate| (rate - mean) * (rate - mean));
        (squares.sum::<f64>() / count).sqrt()
    }

    /// Mean one-way delay.
    pub fn mean_delay(&self) -> Duration {
        let sum: u64 = self.delays.iter().map(|delay| u64::from(*delay)).sum();
        Duration::from_micros(sum / self.delays.len().max(1) as u64)
    }

    /// Standard deviation of the one-way delay.
    pub fn deviation(&self) -> Duration {
        let mean = self.mean_delay().as_micros() as f64;
        let off = self.delays.iter().map(|delay| f64::from(*delay) - mean);
        let squares = off.map(|off| off * off);
        let variance = squares.sum::<f64>() / self.delays.len().max(1) as f64;
        Duration::from_micros(variance.sqrt() as u64)
    }

    /// One-way delay that `share` (0..1) of the packets do not exceed.
    pub fn delay_quantile(&self, share: f64) -> Duration {
        let place = (share * self.delays.len() as f64).ceil() as usize;
        let delay = self.delays.get(place.saturating_sub(1)).or(self.delays.last());
        Duration::from_micros(delay.map_or(0, |delay| u64::from(*delay)))
    }
}

/// Measures arrivals.
#[derive(Clone, Debug)]
pub struct Meter {
    measured: Range<Instant>,
    outcome: Outcome,
    /// The next number of each flow.
    next: Vec<u32>,
}

impl Meter {
    /// A meter of `flows` flows.
    pub fn new(measured: Range<Instant>, flows: usize) -> Meter {
        let duration = measured.end - measured.start;
        let outcome = Outcome { duration, ..Outcome::default() };
        Meter { measured, outcome, next: vec![0; flows] }
    }

    /// A packet of data was sent.
    pub fn sent(&mut self, now: Instant) {
        self.outcome.sent += u64::from(self.measured.contains(&now));
    }

    /// A packet of data arrived.
    pub fn packet(&mut self, flow: u16, number: u32, sent: Instant, now: Instant) {
        let Some(next) = self.next.get_mut(usize::from(flow)) else { return };
        let overtaken = number < *next;
        *next = (*next).max(number.saturating_add(1));
        if self.measured.contains(&now) {
            self.outcome.arrived += 1;
            self.outcome.reordered += u64::from(overtaken);
            let micros = (now - sent).as_micros();
            self.outcome.delays.push(u32::try_from(micros).unwrap_or(u32::MAX));
        }
    }

    /// The application got `bytes`.
    pub fn received(&mut self, bytes: usize, now: Instant) {
        if self.measured.contains(&now) {
            let second = (now - self.measured.start).as_secs() as usize;
            if self.outcome.per_second.len() <= second {
                self.outcome.per_second.resize(second + 1, 0);
            }
            self.outcome.per_second[second] += bytes as u64;
            self.outcome.bytes += bytes as u64;
        }
    }

    /// Ends the measurement.
    pub fn finish(mut self) -> Outcome {
        self.outcome.delays.sort_unstable();
        self.outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_arrives_while_it_is_measured_counts() {
        let second = |s: u64| Instant::from_millis(1_000 * s);
        let mut meter = Meter::new(second(1)..second(3), 1);
        for (number, at) in [(0, 500), (2, 1_000), (1, 1_100), (3, 2_500), (4, 3_000)] {
            let now = Instant::from_millis(at);
            meter.packet(0, number, now - Duration::from_millis(20), now);
            meter.received(125_000, now);
        }
        let outcome = meter.finish();
        assert_eq!((outcome.arrived, outcome.reordered), (3, 1));
        assert_eq!(outcome.per_second, [250_000, 125_000]);
        assert_eq!(outcome.throughput(), 1.5);
        assert_eq!(outcome.unsteadiness(), 0.5);
        assert_eq!(outcome.mean_delay(), Duration::from_millis(20));
        assert_eq!(outcome.deviation(), Duration::ZERO);
        assert_eq!(outcome.delay_quantile(0.99), Duration::from_millis(20));
    }
}
