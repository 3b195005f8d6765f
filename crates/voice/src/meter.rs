//! Measurement of one flow at the listener's end, in memory that does not grow.

use crate::packet::Stamp;
use hdrhistogram::Histogram;
use sheaf_stage::{Duration, Instant};

/// Delays above this count as this.
const LONGEST: Duration = Duration::from_secs(20);
/// Number of packets back to which duplicates are recognised.
const WINDOW: u32 = 1024;

/// Measures one flow.
#[derive(Clone, Debug)]
pub struct Meter {
    received: u64,
    duplicates: u64,
    reordered: u64,
    highest: Option<u32>,
    seen: Box<[u64; WINDOW as usize / 64]>,
    delays: Histogram<u32>,
    total: Duration,
    jitter: Jitter,
}

impl Default for Meter {
    fn default() -> Self {
        let delays = Histogram::new_with_bounds(1, LONGEST.as_micros() as u64, 2)
            .expect("these bounds make a histogram");
        Meter {
            received: 0,
            duplicates: 0,
            reordered: 0,
            highest: None,
            seen: Box::new([0; WINDOW as usize / 64]),
            delays,
            total: Duration::ZERO,
            jitter: Jitter::default(),
        }
    }
}

impl Meter {
    /// A packet has arrived at `now`.
    pub fn arrived(&mut self, stamp: Stamp, now: Instant) {
        if !self.is_new(stamp.number) {
            self.duplicates += 1;
            return;
        }
        let delay = now.saturating_since(stamp.sent).min(LONGEST);
        self.received += 1;
        self.total += delay;
        self.delays.saturating_record(delay.as_micros() as u64);
        self.jitter.arrived(delay);
    }

    /// Records a number. Returns whether it was not seen before (numbers older than the window
    /// count as seen, so that a replay cannot pass for reception).
    fn is_new(&mut self, number: u32) -> bool {
        let highest = self.highest.unwrap_or(number.wrapping_sub(1));
        let ahead = number.wrapping_sub(highest) as i32;
        if ahead > 0 {
            for skipped in 1..=(ahead as u32).min(WINDOW) {
                self.mark(highest.wrapping_add(skipped), false);
            }
            self.highest = Some(number);
        } else if ahead <= -(WINDOW as i32) || self.is_marked(number) {
            return false;
        } else {
            self.reordered += 1;
        }
        self.mark(number, true);
        true
    }

    fn mark(&mut self, number: u32, seen: bool) {
        let bit = number % WINDOW;
        let word = &mut self.seen[bit as usize / 64];
        *word = *word & !(1 << (bit % 64)) | u64::from(seen) << (bit % 64);
    }

    fn is_marked(&self, number: u32) -> bool {
        let bit = number % WINDOW;
        self.seen[bit as usize / 64] >> (bit % 64) & 1 == 1
    }

    /// Packets received, duplicates not counted.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Packets received more than once.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Packets that arrived after one with a higher number.
    pub fn reordered(&self) -> u64 {
        self.reordered
    }

    /// The share of `sent` packets that did not arrive, 0..1.
    pub fn loss(&self, sent: u64) -> f64 {
        if sent == 0 { 0.0 } else { 1.0 - self.received.min(sent) as f64 / sent as f64 }
    }

    /// Mean one-way delay; zero before the first packet.
    pub fn mean_delay(&self) -> Duration {
        self.total.checked_div(self.received as u32).unwrap_or_default()
    }

    /// The delay that a share of `quantile` (0..1) of the packets does not exceed.
    pub fn delay_quantile(&self, quantile: f64) -> Duration {
        Duration::from_micros(self.delays.value_at_quantile(quantile))
    }

    /// For each of `quantiles`, which are above 0 and ascend, its delay and the share of received
    /// packets, 0..1, whose delay does not exceed that: [`delay_quantile`](Self::delay_quantile)
    /// and [`share_within`](Self::share_within) of many quantiles in one pass.
    pub fn delay_quantiles(
        &self,
        quantiles: impl Iterator<Item = f64>,
    ) -> impl Iterator<Item = (Duration, f64)> {
        let mut bins = self.delays.iter_recorded();
        let (mut within, mut delay) = (0, 0);
        quantiles.map(move |quantile| {
            // Without a packet no bin has an entry, and the delay stays zero.
            let target = ((quantile * self.received as f64).ceil() as u64).max(1);
            while within < target
                && let Some(bin) = bins.next()
            {
                within += bin.count_since_last_iteration();
                delay = bin.value_iterated_to();
            }
            let share = within as f64 / self.received.max(1) as f64;
            (Duration::from_micros(delay), share)
        })
    }

    /// The share of received packets, 0..1, whose delay does not exceed `delay`.
    pub fn share_within(&self, delay: Duration) -> f64 {
        if self.received == 0 {
            return 0.0;
        }
        self.delays.count_between(0, delay.as_micros() as u64) as f64 / self.received as f64
    }

    /// Interarrival jitter of RFC 3550, 6.4.1, averaged over all packets (the estimate after the
    /// last one depends on how the call ended).
    pub fn jitter(&self) -> Duration {
        self.jitter.mean()
    }
}

/// RFC 3550's estimate: J ← J + (|D| − J) / 16 with D the difference of two packets' delays.
#[derive(Clone, Copy, Debug, Default)]
struct Jitter {
    last: Option<Duration>,
    estimate: f64,
    sum: f64,
    count: u64,
}

impl Jitter {
    fn arrived(&mut self, delay: Duration) {
        if let Some(last) = self.last {
            let difference = delay.abs_diff(last).as_secs_f64();
            self.estimate += (difference - self.estimate) / 16.0;
            self.sum += self.estimate;
            self.count += 1;
        }
        self.last = Some(delay);
    }

    fn mean(&self) -> Duration {
        Duration::from_secs_f64(if self.count == 0 { 0.0 } else { self.sum / self.count as f64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(arrivals: &[(u32, u64)]) -> Meter {
        let mut meter = Meter::default();
        for (number, delay) in arrivals {
            let sent = Instant::from_millis(u64::from(*number) * 20);
            let stamp = Stamp { flow: 1, number: *number, sent };
            meter.arrived(stamp, sent + Duration::from_millis(*delay));
        }
        meter
    }

    #[test]
    fn loss_duplicates_and_reordering_are_distinguished() {
        let meter = meter(&[(0, 5), (1, 5), (3, 5), (2, 30), (3, 40), (6, 5)]);
        assert_eq!((meter.received(), meter.duplicates(), meter.reordered()), (5, 1, 1));
        assert_eq!(meter.loss(10), 0.5);
    }

    #[test]
    fn the_delay_is_measured_from_the_stamp() {
        let meter = meter(&[(0, 10), (1, 20), (2, 30), (3, 40)]);
        assert_eq!(meter.mean_delay(), Duration::from_millis(25));
        assert!((meter.share_within(Duration::from_millis(30)) - 0.75).abs() < 1e-9);
        let p99 = meter.delay_quantile(0.99).as_secs_f64();
        assert!((p99 / 0.040 - 1.0).abs() < 0.01, "{p99}");
    }

    #[test]
    fn many_quantiles_in_one_pass_are_those_that_are_asked_for_one_by_one() {
        let spread = |packets: u32| {
            // Some delays are equal, some share a bin, and some are longer than the longest.
            let delay = |n: u32| u64::from(n.wrapping_mul(2_654_435_761) >> 20) % 3_000 * 8;
            (0..packets).map(|n| (n, delay(n))).collect::<Vec<_>>()
        };
        for meter in [0, 1, 2, 7, 400].map(|packets| meter(&spread(packets))) {
            let quantiles = || (1..=1000).map(|per_mille| f64::from(per_mille) / 1000.0);
            let together: Vec<_> = meter.delay_quantiles(quantiles()).collect();
            let one_by_one: Vec<_> = quantiles()
                .map(|quantile| meter.delay_quantile(quantile))
                .map(|delay| (delay, meter.share_within(delay)))
                .collect();
            assert_eq!(together, one_by_one, "of {} packets", meter.received());
        }
    }

    #[test]
    fn constant_delay_has_no_jitter_and_alternating_delay_has_its_difference() {
        let constant: Vec<_> = (0..100).map(|n| (n, 10)).collect();
        assert_eq!(meter(&constant).jitter(), Duration::ZERO);
        let alternating: Vec<_> = (0..5000).map(|n| (n, 10 + 8 * u64::from(n % 2))).collect();
        let jitter = meter(&alternating).jitter().as_secs_f64();
        assert!((jitter / 0.008 - 1.0).abs() < 0.01, "{jitter}");
    }
}
