//! Times and sizes of the packets of a stream: regular, at random, or as captured.

use super::capture::Capture;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_stage::Duration;
use std::sync::Arc;

/// Random gaps at most, of which a stream has all before it begins anew: two megabytes.
const MOST_GAPS: usize = 1 << 17;

/// Times and sizes of packets, which begin anew after a period.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// Time of each packet since the period began, ascending, and its bytes.
    packets: Arc<[(Duration, u16)]>,
    period: Duration,
}

impl Pattern {
    /// Packets of `bytes`, one in each `interval`.
    pub fn regular(interval: Duration, bytes: u16) -> Pattern {
        Pattern { packets: Arc::new([(Duration::ZERO, bytes)]), period: interval }
    }

    /// Packets of `bytes` with exponential gaps of this `mean`, for a run of `length`; they begin
    /// anew after 131,072 packets where it is longer.
    pub fn poisson(mean: Duration, bytes: u16, length: Duration, seed: u64) -> Pattern {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mut packets, mut at) = (Vec::new(), Duration::ZERO);
        while packets.is_empty() || at < length && packets.len() < MOST_GAPS {
            packets.push((at, bytes));
            at += exponential(mean, &mut rng);
        }
        Pattern { packets: packets.into(), period: at }
    }

    /// The packets of `capture`; the next period begins a mean gap behind the last packet.
    pub fn captured(capture: &Capture) -> Pattern {
        let packets = capture.offsets.iter().copied().zip(capture.sizes.iter().copied()).collect();
        let last = capture.offsets.last().copied().unwrap_or_default();
        Pattern { packets, period: last + capture.gap() }
    }

    /// Time of packet `number` since the first.
    pub fn offset(&self, number: u32) -> Duration {
        let (round, at) = self.place(number);
        self.period * round + self.packets[at].0
    }

    /// Bytes of packet `number`.
    pub fn bytes(&self, number: u32) -> usize {
        usize::from(self.packets[self.place(number).1].1)
    }

    /// Periods before packet `number`, and its place in its own.
    fn place(&self, number: u32) -> (u32, usize) {
        let count = self.packets.len() as u32;
        (number / count, (number % count) as usize)
    }
}

/// A time with an exponential distribution of this `mean`, at least a nanosecond.
pub fn exponential(mean: Duration, rng: &mut Xoshiro256PlusPlus) -> Duration {
    let time = mean.mul_f64(-libm::log(1.0 - rng.random::<f64>()));
    time.max(Duration::from_nanos(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn regular_packets_come_one_in_each_interval() {
        let pattern = Pattern::regular(Duration::from_millis(20), 172);
        let offsets = [0, 1, 50].map(|number| pattern.offset(number).as_millis());
        assert_eq!((offsets, pattern.bytes(7)), ([0, 20, 1_000], 172));
    }

    #[test]
    fn random_gaps_have_the_mean_and_the_spread_of_an_exponential_distribution() {
        let mean = Duration::from_millis(1);
        let pattern = Pattern::poisson(mean, 100, MINUTE, 7);
        let gaps: Vec<f64> = (0..50_000)
            .map(|number| (pattern.offset(number + 1) - pattern.offset(number)).as_secs_f64() * 1e3)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let square = gaps.iter().map(|gap| gap * gap).sum::<f64>() / gaps.len() as f64;
        // Four standard errors of the mean of 50 000.
        assert!((mean - 1.0).abs() < 0.018, "{mean}");
        assert!((square - 2.0).abs() < 0.08, "{square}: twice the square of the mean");
        let long = gaps.iter().filter(|gap| **gap > 3.0).count() as f64 / gaps.len() as f64;
        assert!((long - libm::exp(-3.0)).abs() < 0.004, "{long} are three times as long");
    }

    #[test]
    fn a_seed_decides_all_gaps_and_another_has_others() {
        let offsets = |seed| {
            let pattern = Pattern::poisson(Duration::from_millis(5), 100, MINUTE, seed);
            (0..1_000).map(|number| pattern.offset(number)).collect::<Vec<_>>()
        };
        assert_eq!(offsets(7), offsets(7));
        assert!(offsets(7).is_sorted_by(|one, other| one < other));
        assert_ne!(offsets(7)[1], offsets(8)[1]);
    }

    #[test]
    fn a_long_run_begins_anew_and_takes_no_more_memory() {
        let hours = Duration::from_secs(1_000_000);
        let pattern = Pattern::poisson(Duration::from_micros(500), 100, hours, 7);
        assert_eq!(pattern.packets.len(), MOST_GAPS);
        let gap = |number: u32| pattern.offset(number + 1) - pattern.offset(number);
        assert_eq!(gap(5), gap(5 + MOST_GAPS as u32));
        assert!((0..3).all(|more| gap(MOST_GAPS as u32 - 1 + more) > Duration::ZERO));
    }

    #[test]
    fn a_capture_comes_again_a_mean_gap_behind_its_last_packet() {
        let capture = Capture::parse(include_bytes!("../../tests/call.pcap")).unwrap();
        let pattern = Pattern::captured(&capture);
        let last = pattern.offset(49);
        assert_eq!(last, Duration::from_millis(49 * 20 + 3));
        assert_eq!(pattern.offset(50) - last, last / 49);
        assert_eq!(pattern.offset(54) - pattern.offset(50), Duration::from_millis(83));
        assert_eq!((pattern.bytes(49), pattern.bytes(50), pattern.bytes(99)), (92, 172, 92));
    }
}
