//! Correlated draws from any distribution: a Gaussian copula over a first-order autoregression.
//!
//! Principle: z' = r·z + √(1-r²)·ε is a standard normal process with correlation r from one step
//! to the next; Φ(z) is uniform and still correlated; the inverse distribution function of that
//! has exactly the asked distribution. The correlation that comes out is Σ aₖ²·rᵏ, with aₖ the
//! coefficients of the distribution in Hermite polynomials (Mehler's formula; Cario and Nelson,
//! "Autoregressive to anything", 1996); r is chosen so that this is the correlation asked.
//! (NetEm averages the last uniform number with the new one: the more correlation, the less
//! jitter.)

use crate::distribution::Distribution;
use crate::normal;

/// Hermite coefficients taken apart; what is beyond is taken as one more.
const TERMS: usize = 48;

/// A process of draws in standard deviations.
#[derive(Clone, Debug)]
pub(crate) struct Jitter {
    distribution: Distribution,
    /// Correlation of the normal process.
    r: f64,
    last: Option<f64>,
}

impl Jitter {
    /// Draws from `distribution` whose correlation from one to the next is `correlation`, 0..1.
    pub fn new(distribution: &Distribution, correlation: f64) -> Self {
        let r = if correlation > 0.0 { copula(distribution, correlation) } else { 0.0 };
        Jitter { distribution: distribution.clone(), r, last: None }
    }

    /// Takes over where `other` is, so that a live change does not break the process.
    pub fn continue_from(&mut self, other: &Jitter) {
        self.last = other.last;
    }

    /// Forgets the last draw.
    pub fn restart(&mut self) {
        self.last = None;
    }

    /// The next draw, decided by `unit` between 0 and 1.
    pub fn next(&mut self, unit: f64) -> f64 {
        if self.r == 0.0 {
            return self.distribution.quantile(unit);
        }
        let new = normal::quantile(unit);
        let z = match self.last {
            None => new,
            Some(last) => self.r * last + (1.0 - self.r * self.r).sqrt() * new,
        };
        self.last = Some(z);
        self.distribution.quantile(normal::cdf(z))
    }
}

/// The correlation of the normal process that gives `distribution` the correlation `asked`.
fn copula(distribution: &Distribution, asked: f64) -> f64 {
    let squares = hermite_squares(distribution);
    let comes_out = |r: f64| squares.iter().rev().fold(0.0, |sum, a| (sum + a) * r);
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if comes_out(middle) < asked { low = middle } else { high = middle }
    }
    low
}

/// aₖ² for k from 1; the last holds the rest of the variance, so that they add up to one.
fn hermite_squares(distribution: &Distribution) -> [f64; TERMS + 1] {
    // The trapezoidal rule over ±8 deviations; the integrand is zero at both ends.
    const STEPS: i32 = 4000;
    let step = 16.0 / f64::from(STEPS);
    let mut sums = [0.0; TERMS + 1];
    for i in 0..=STEPS {
        let z = f64::from(i) * step - 8.0;
        let density = libm::exp(-z * z / 2.0) / (2.0 * core::f64::consts::PI).sqrt();
        let value = distribution.quantile(normal::cdf(z)) * density * step;
        let (mut before, mut now) = (0.0, 1.0);
        for (k, sum) in (1u32..).zip(&mut sums[..TERMS]) {
            let next = (z * now - f64::from(k - 1).sqrt() * before) / f64::from(k).sqrt();
            (before, now) = (now, next);
            *sum += value * now;
        }
    }
    sums.iter_mut().for_each(|a| *a *= *a);
    sums[TERMS] = (1.0 - sums[..TERMS].iter().sum::<f64>()).max(0.0);
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uniform_copula_is_the_known_formula() {
        for asked in [0.1f64, 0.5, 0.9] {
            let known = 2.0 * libm::sin(core::f64::consts::PI * asked / 6.0);
            let found = copula(&Distribution::uniform(), asked);
            assert!((found - known).abs() < 1e-4, "{asked}: {found}, not {known}");
        }
    }
}
