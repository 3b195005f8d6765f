//! The normal distribution function and its inverse.
//!
//! Sources: for the function, G. West, "Better approximations to cumulative normal functions"
//! (2005), after J. F. Hart; for the inverse, M. J. Wichura, algorithm AS 241 (PPND16), Applied
//! Statistics 37 (1988). The two approximations do not depend on each other, so each tests the
//! other.

// All numbers stand as they were published.
#![allow(clippy::excessive_precision)]

/// Probability that a standard normal variable is below `x`. The error is at most 1e-15, and at
/// most a ten-millionth of the probability of a tail.
pub fn cdf(x: f64) -> f64 {
    let z = x.abs();
    // Beyond 37 the tail is smaller than the least number; from 5 √2 on a continued fraction is
    // closer than Hart's polynomials.
    let tail = if z > 37.0 {
        0.0
    } else if z < core::f64::consts::SQRT_2 * 5.0 {
        libm::exp(-z * z / 2.0) * polynomial(&HART_ABOVE, z) / polynomial(&HART_BELOW, z)
    } else {
        let fraction = z + 1.0 / (z + 2.0 / (z + 3.0 / (z + 4.0 / (z + 0.65))));
        libm::exp(-z * z / 2.0) / fraction / (2.0 * core::f64::consts::PI).sqrt()
    };
    if x > 0.0 { 1.0 - tail } else { tail }
}

/// Value below which a standard normal variable is with probability `p`, which is above 0 and below
/// 1. The error is about 1e-15.
pub fn quantile(p: f64) -> f64 {
    // Each of three ranges has polynomials of its own: the middle, the tails, and the far tails.
    let q = p - 0.5;
    if q.abs() <= 0.425 {
        let r = 0.180625 - q * q;
        return q * polynomial(&A, r) / polynomial(&B, r);
    }
    let r = (-libm::log(p.min(1.0 - p))).sqrt();
    let value = if r <= 5.0 {
        polynomial(&C, r - 1.6) / polynomial(&D, r - 1.6)
    } else {
        polynomial(&E, r - 5.0) / polynomial(&F, r - 5.0)
    };
    value.copysign(q)
}

/// Σ coefficients[i] · xⁱ by Horner's rule.
fn polynomial(coefficients: &[f64; 8], x: f64) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, c| sum * x + c)
}

const HART_ABOVE: [f64; 8] = [
    220.206867912376,
    221.213596169931,
    112.079291497871,
    33.912866078383,
    6.37396220353165,
    0.700383064443688,
    3.52624965998911e-2,
    0.0,
];
const HART_BELOW: [f64; 8] = [
    440.413735824752,
    793.826512519948,
    637.333633378831,
    296.564248779674,
    86.7807322029461,
    16.064177579207,
    1.75566716318264,
    8.83883476483184e-2,
];
const A: [f64; 8] = [
    3.387132872796366608,
    133.14166789178437745,
    1971.5909503065514427,
    13731.693765509461125,
    45921.953931549871457,
    67265.770927008700853,
    33430.575583588128105,
    2509.0809287301226727,
];
const B: [f64; 8] = [
    1.0,
    42.313330701600911252,
    687.1870074920579083,
    5394.1960214247511077,
    21213.794301586595867,
    39307.89580009271061,
    28729.085735721942674,
    5226.495278852854561,
];
const C: [f64; 8] = [
    1.42343711074968357734,
    4.6303378461565452959,
    5.7694972214606914055,
    3.64784832476320460504,
    1.27045825245236838258,
    0.24178072517745061177,
    2.27238449892691845833e-2,
    7.7454501427834140764e-4,
];
const D: [f64; 8] = [
    1.0,
    2.05319162663775882187,
    1.6763848301838038494,
    0.68976733498510000455,
    0.14810397642748007459,
    1.51986665636164571966e-2,
    5.475938084995344946e-4,
    1.05075007164441684324e-9,
];
const E: [f64; 8] = [
    6.6579046435011037772,
    5.4637849111641143699,
    1.7848265399172913358,
    0.29656057182850489123,
    2.6532189526576123093e-2,
    1.2426609473880784386e-3,
    2.71155556874348757815e-5,
    2.01033439929228813265e-7,
];
const F: [f64; 8] = [
    1.0,
    0.59983220655588793769,
    0.1369298809227358053,
    1.48753612908506148525e-2,
    7.868691311456132591e-4,
    1.8463183175100546818e-5,
    1.4215117583164458887e-7,
    2.04426310338993978564e-15,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_and_its_inverse_agree_over_sixty_decades() {
        for step in 1..200 {
            for p in [f64::from(step) / 200.0, libm::pow(10.0, -0.3 * f64::from(step))] {
                let back = cdf(quantile(p));
                assert!((back / p - 1.0).abs() < 1e-7, "{p} became {back}");
            }
        }
        assert!((quantile(0.975) - 1.959963984540054).abs() < 1e-14);
        assert!((cdf(1.0) - 0.841344746068543).abs() < 1e-14);
    }
}
