//! U(t): the rate of all that TCP windows do not govern.
//!
//! Principle: real-time traffic is left alone and TCP gets what it leaves, so U(t) must follow a
//! rise at once (or a queue builds) and a fall slowly (or TCP takes the place of a game between two
//! of its packets).

/// A rate that follows rises at once and falls slowly.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    rate: f64,
}

/// Time constants of a rise and of a fall, seconds.
const RISE: f64 = 0.1;
const FALL: f64 = 0.5;
/// A constant stream has a packet more in one step and one less in the next. If such a rise counted
/// more than the fall that follows, the mean would be too high: at 200 packets/s by 3 %.
const NOISE_BITS: f64 = 1514.0 * 8.0;

impl Usage {
    /// Takes `bits` of `seconds`.
    pub fn add(&mut self, bits: f64, seconds: f64) {
        let rate = bits / seconds;
        let rises = bits - self.rate * seconds > NOISE_BITS;
        let constant = if rises { RISE } else { FALL };
        self.rate += (rate - self.rate) * (1.0 - libm::exp(-seconds / constant));
    }

    /// bit/s.
    pub fn rate(&self) -> f64 {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_follows_a_rise_in_a_step_and_a_fall_in_seconds() {
        let mut usage = Usage::default();
        for _ in 0..3 {
            usage.add(1e5, 0.1);
        }
        assert!(usage.rate() > 0.94e6, "{}", usage.rate());
        usage.add(0.0, 0.1);
        assert!(usage.rate() > 0.75e6, "{}", usage.rate());
        for _ in 0..30 {
            usage.add(0.0, 0.1);
        }
        assert!(usage.rate() < 0.01e6);
    }

    #[test]
    fn a_constant_stream_counts_as_what_it_is_though_steps_do_not_fit_its_packets() {
        let mut usage = Usage::default();
        // 205 packets/s of 1042 bytes: 20 or 21 in a step.
        let packets = |step: u32| 205 * step / 10 - 205 * (step - 1) / 10;
        for step in 1..=50 {
            usage.add(f64::from(packets(step) * 1042 * 8), 0.1);
        }
        let mut mean = 0.0;
        for step in 51..=100 {
            usage.add(f64::from(packets(step) * 1042 * 8), 0.1);
            mean += usage.rate() / 50.0;
        }
        let true_rate = 205.0 * 1042.0 * 8.0;
        assert!((mean / true_rate - 1.0).abs() < 0.003, "{mean} is not {true_rate}");
    }
}
