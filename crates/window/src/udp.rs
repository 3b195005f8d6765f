//! Traffic that TCP windows cannot govern: U(t), and QUIC separately.
//!
//! Principle: real-time traffic is left alone and TCP gets what it leaves, so U(t) must follow a
//! rise at once (or a queue builds) and a fall slowly (or TCP takes the place of a game between two
//! of its packets). Bulk QUIC is elastic, as TCP is: a UDP flow from or to port 443 above
//! [`BULK`] for [`BULK_FOR`]. Where it says that it understands ECN it can be held to a share like
//! the others', by marks (RFC 9000 13.4, RFC 9002 7.1); the number of marks is steered until the
//! rate is right. A flow that does not understand ECN is never touched, and counts as U.

use sheaf_stage::{Duration, Instant};

/// Rate from which a QUIC flow is bulk; bit/s.
pub const BULK: f64 = 500_000.0;
/// Time for which a flow must have that rate.
pub const BULK_FOR: Duration = Duration::from_secs(1);
/// The densest and the sparsest marks: one of this number of packets.
const EVERY: std::ops::RangeInclusive<u32> = 8..=4096;

/// The treatment of bulk QUIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// Hold it to its share by ECN marks.
    Limit,
    /// Leave it alone; TCP gets the rest.
    #[default]
    Leave,
}

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

/// The controller's state of one direction of one QUIC flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Elastic {
    usage: Usage,
    bulk_since: Option<Instant>,
    capable: bool,
    every: u32,
}

impl Elastic {
    /// Takes the `bits` of `seconds` until `now`, and the number of packets that can carry a mark.
    pub fn add(&mut self, bits: f64, capable: u32, seconds: f64, now: Instant) {
        self.usage.add(bits, seconds);
        self.capable = capable > 0 || self.capable && bits == 0.0;
        if self.usage.rate() < BULK {
            self.bulk_since = None;
        } else if self.bulk_since.is_none() {
            self.bulk_since = Some(now);
        }
    }

    /// bit/s.
    pub fn rate(&self) -> f64 {
        self.usage.rate()
    }

    /// Whether it is bulk and can be held to a share.
    pub fn is_governed(&self, now: Instant) -> bool {
        self.capable && self.bulk_since.is_some_and(|since| now - since >= BULK_FOR)
    }

    /// Steers the marks towards `share` bit/s; one of so many packets is to be marked, 0 for none.
    pub fn steer(&mut self, share: f64) -> u32 {
        let rate = self.usage.rate();
        self.every = if rate > share * 1.05 {
            let halved = if self.every == 0 { *EVERY.end() / 8 } else { self.every / 2 };
            halved.max(*EVERY.start())
        } else if rate < share * 0.9 {
            let doubled = self.every * 2;
            if doubled > *EVERY.end() { 0 } else { doubled }
        } else {
            self.every
        };
        self.every
    }

    /// Ends the marks.
    pub fn release(&mut self) {
        self.every = 0;
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

    #[test]
    fn only_a_bulk_flow_that_understands_marks_is_governed() {
        let at = |step: u64| Instant::from_millis(100 * step);
        let (mut bulk, mut call, mut deaf) = <(Elastic, Elastic, Elastic)>::default();
        for step in 1..=20 {
            bulk.add(2e5, 20, 0.1, at(step));
            call.add(6.4e3, 5, 0.1, at(step));
            deaf.add(2e5, 0, 0.1, at(step));
        }
        assert!(bulk.is_governed(at(20)));
        assert!(!call.is_governed(at(20)), "64 kbit/s are no bulk");
        assert!(!deaf.is_governed(at(20)), "it would not hear");
    }

    #[test]
    fn marks_become_denser_until_the_rate_is_right_and_vanish_below_it() {
        let mut flow = Elastic::default();
        for step in 1..=20 {
            flow.add(2e5, 20, 0.1, Instant::from_millis(100 * step));
        }
        let first = flow.steer(1e6);
        let second = flow.steer(1e6);
        assert!(first > second && second > 0, "{first} {second}");
        assert_eq!(flow.steer(2e6), second, "right: no change");
        let mut every = second;
        for _ in 0..20 {
            every = flow.steer(4e6);
        }
        assert_eq!(every, 0);
    }
}
