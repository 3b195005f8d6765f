//! Randomness by seed and packet number.
//!
//! A generator with a state gives a packet another fate as soon as one packet before it takes
//! another way. Here every draw is a function of seed, purpose and number: the same seed gives the
//! same packets the same fate whatever the timing. Where events are to be correlated, a Markov
//! chain steps once per packet, with a draw of that kind.

use crate::error::ConfigError;
use sheaf_wire::flow::mix;

/// Purpose of a draw. Draws for different purposes are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Purpose {
    Loss = 1,
    /// The loss within a state of the Gilbert-Elliott model.
    LossInState,
    LossTrace,
    Duplicate,
    Corrupt,
    CorruptPlace,
    Reorder,
    Jitter,
    /// The jitter of a copy.
    CopyJitter,
    Slot,
    QueueManagement,
    Rule,
    FlowHash,
    Pipe,
    DuplicateTrace,
}

/// A seeded source of draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dice {
    seed: u64,
}

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice { seed: mix(seed.wrapping_add(GOLDEN)) }
    }

    /// 64 bits for `number`.
    pub fn word(self, purpose: Purpose, number: u64) -> u64 {
        let key = self.seed ^ (purpose as u64).wrapping_mul(GOLDEN);
        mix(mix(number.wrapping_add(key)) ^ key.rotate_left(32))
    }

    /// A number between 0 and 1, neither included.
    pub fn unit(self, purpose: Purpose, number: u64) -> f64 {
        ((self.word(purpose, number) >> 11) as f64 + 0.5) * (1.0 / (1u64 << 53) as f64)
    }

    /// Whether an event of this probability happens to `number`.
    pub fn happens(self, purpose: Purpose, number: u64, probability: f64) -> bool {
        probability > 0.0 && self.unit(purpose, number) < probability
    }
}

/// 2⁶⁴ divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A random event: how often, and how much like the packet before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Chance {
    /// Share of the packets it happens to, 0..=1.
    pub probability: f64,
    /// Correlation with whether it happened to the packet before, 0..1 (1 is not possible: the
    /// first packet would decide about all).
    pub correlation: f64,
}

impl Chance {
    /// Independent events of this probability, 0..=1.
    pub const fn of(probability: f64) -> Self {
        Chance { probability, correlation: 0.0 }
    }

    pub(crate) fn check(self, option: &'static str) -> Result<(), ConfigError> {
        probability(option, self.probability)?;
        correlation(option, self.correlation)
    }
}

/// Refuses a value that is not a probability.
pub(crate) fn probability(option: &'static str, value: f64) -> Result<(), ConfigError> {
    match (0.0..=1.0).contains(&value) {
        true => Ok(()),
        false => Err(ConfigError::Probability { option, value }),
    }
}

/// Refuses factors that are negative, infinite or no number.
pub(crate) fn factors(option: &'static str, values: &[f64]) -> Result<(), ConfigError> {
    match values.iter().find(|value| !value.is_finite() || **value < 0.0) {
        None => Ok(()),
        Some(value) => Err(ConfigError::Factor { option, value: *value }),
    }
}

/// Refuses a correlation that a process cannot have.
pub(crate) fn correlation(option: &'static str, value: f64) -> Result<(), ConfigError> {
    match (0.0..1.0).contains(&value) {
        true => Ok(()),
        false => Err(ConfigError::Correlation { option, value }),
    }
}

/// Correlated yes-or-no events: the two-state Markov chain whose stationary probability is p and
/// whose correlation from one step to the next is ρ. After a yes it says yes with p + ρ(1-p),
/// after a no with p(1-ρ). (NetEm mixes the last uniform number into the next one, which makes
/// its distribution narrower and so misses p.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    last: Option<bool>,
}

impl Chain {
    /// The next event, decided by `unit` in 0..1.
    pub fn next(&mut self, chance: Chance, unit: f64) -> bool {
        let Chance { probability: p, correlation: rho } = chance;
        let threshold = match self.last {
            None => p,
            Some(true) => p + rho * (1.0 - p),
            Some(false) => p * (1.0 - rho),
        };
        let happens = unit < threshold;
        self.last = Some(happens);
        happens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_of_neighbouring_numbers_purposes_and_seeds_are_uniform_and_independent() {
        let n = 100_000u64;
        let mean = |f: &dyn Fn(u64) -> f64| (0..n).map(f).sum::<f64>() / n as f64;
        let dice = Dice::new(1);
        let other = Dice::new(2);
        let draw = |i| dice.unit(Purpose::Loss, i) - 0.5;
        // The variance of a uniform number is 1/12, of a product of two 1/144; four deviations.
        let single = 4.0 * (1.0 / 12.0 / n as f64).sqrt();
        let product = 4.0 * (1.0 / 144.0 / n as f64).sqrt();
        assert!(mean(&draw).abs() < single);
        assert!((mean(&|i| draw(i) * draw(i)) - 1.0 / 12.0).abs() < 0.001);
        assert!(mean(&|i| draw(i) * draw(i + 1)).abs() < product);
        assert!(mean(&|i| draw(i) * (dice.unit(Purpose::Corrupt, i) - 0.5)).abs() < product);
        assert!(mean(&|i| draw(i) * (other.unit(Purpose::Loss, i) - 0.5)).abs() < product);
    }
}
