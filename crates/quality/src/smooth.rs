//! Exponential smoothing of measurements.
//!
//! Principle: s ← s + α (x − s), as the Simple Packet Size Selection Protocol has it (Karlstad
//! 2008, section 3.4). The thesis calls α a damping factor and says that a value near 0 damps
//! little and one near 1 much, while its formula does the opposite. Here the formula holds: α is
//! the weight of the new sample. With 1 the newest sample counts alone, with 0 the first one for
//! ever.

/// A smoothed value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Smooth {
    alpha: f64,
    value: Option<f64>,
}

impl Smooth {
    /// A value without samples; `alpha` is the weight of a new sample, brought into 0..=1
    /// (0 where it is not a number).
    pub fn new(alpha: f64) -> Smooth {
        let alpha = if alpha.is_nan() { 0.0 } else { alpha.clamp(0.0, 1.0) };
        Smooth { alpha, value: None }
    }

    /// The smoothed value after sample `x`; the first sample is taken as it is, and one that is not
    /// finite changes nothing.
    pub fn update(&mut self, x: f64) -> Option<f64> {
        if x.is_finite() {
            let value = self.value.unwrap_or(x);
            self.value = Some(value + self.alpha * (x - value));
        }
        self.value
    }

    /// Begins anew at `x`.
    pub fn restart(&mut self, x: f64) {
        self.value = Some(x);
    }

    /// The smoothed value; `None` before the first sample.
    pub fn value(&self) -> Option<f64> {
        self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn alpha_is_the_weight_of_the_new_sample() {
        let after = |alpha| {
            let mut smooth = Smooth::new(alpha);
            smooth.update(10.0);
            smooth.update(20.0)
        };
        assert_eq!(after(0.0), Some(10.0));
        assert_eq!(after(0.25), Some(12.5));
        assert_eq!(after(1.0), Some(20.0));
        assert_eq!(after(f64::NAN), Some(10.0));
    }

    proptest! {
        #[test]
        fn the_value_stays_between_the_extremes_of_its_samples(
            alpha in 0.0..=1.0f64,
            samples in prop::collection::vec(-100.0..0.0f64, 1..50),
        ) {
            let mut smooth = Smooth::new(alpha);
            for sample in &samples {
                smooth.update(*sample);
            }
            let least = samples.iter().copied().fold(f64::INFINITY, f64::min);
            let most = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let value = smooth.update(f64::NAN).expect("there were samples");
            prop_assert!((least - 1e-9..=most + 1e-9).contains(&value));
        }
    }
}
