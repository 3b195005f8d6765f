//! Shapes of random delays, as tables of the inverse distribution function.
//!
//! Principle (iproute2, `netem/`): a uniform number in 0..1 picks a place in the table of the
//! inverse distribution function; the value there, in standard deviations from the mean, is the
//! draw. NetEm's tables are 16-bit numbers at 1/8192 of a deviation, cut off at ±4, and two of
//! the four are scaled wrongly, so the deviation that comes out is not the one asked. Here every
//! table, read or computed, is brought to mean 0 and deviation 1 exactly (as the straight lines
//! between its entries give them).

use crate::normal;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use thiserror::Error;

/// Entries of a computed table and of a written one, as in iproute2.
const ENTRIES: usize = 4096;
/// Most entries of a table that is read; the kernel takes 16384.
const MAX_ENTRIES: usize = 1 << 16;
/// Names of the distributions that are computed.
const NAMES: [&str; 4] = ["uniform", "normal", "pareto", "paretonormal"];
/// Value that stands for one standard deviation in a `.dist` file.
const SCALE: f64 = 8192.0;

/// The shape of a random delay, with mean 0 and standard deviation 1. Cheap to clone.
#[derive(Clone, PartialEq)]
pub struct Distribution {
    name: &'static str,
    /// Ascending, at evenly spaced probabilities from 0 to 1.
    table: Arc<[f64]>,
}

impl Distribution {
    /// All values within ±√3 deviations, equally likely.
    pub fn uniform() -> Self {
        Self::scaled("uniform", vec![-1.0, 1.0]).expect("two values deviate")
    }

    /// The normal distribution.
    pub fn normal() -> Self {
        Self::computed("normal", normal::quantile)
    }

    /// Pareto with shape 3: rare long delays (`pareto.c` of iproute2). The table ends at the
    /// longest of about 8000 delays; the deviation of what is beyond is made up for by the rest.
    pub fn pareto() -> Self {
        Self::computed("pareto", pareto)
    }

    /// A quarter normal and three quarters Pareto, which fits measured delays reasonably well
    /// (`paretonormal.c` of iproute2).
    pub fn paretonormal() -> Self {
        Self::computed("paretonormal", |p| 0.25 * normal::quantile(p) + 0.75 * pareto(p))
    }

    /// By the name that tc-netem(8) uses; other names are those of files.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "uniform" => Some(Self::uniform()),
            "normal" => Some(Self::normal()),
            "pareto" => Some(Self::pareto()),
            "paretonormal" => Some(Self::paretonormal()),
            _ => None,
        }
    }

    /// The name that [`Distribution::named`] takes; `FILE` for others.
    pub fn name(&self) -> &'static str {
        let is_it = |name: &&str| Self::named(name).as_ref() == Some(self);
        NAMES.into_iter().find(is_it).unwrap_or("FILE")
    }

    /// Reads iproute2's `.dist` form: whole numbers of 1/8192 deviation between white space, `#`
    /// before comments.
    pub fn parse(text: &str) -> Result<Self, DistError> {
        let mut table = Vec::new();
        let mut last = 1;
        for (line, words) in (1..).zip(text.lines()) {
            last = line;
            let words = words.split('#').next().unwrap_or("");
            for word in words.split_ascii_whitespace() {
                let value: i16 =
                    word.parse().map_err(|_| DistError { line, problem: DistProblem::Number })?;
                if table.len() == MAX_ENTRIES {
                    return Err(DistError { line, problem: DistProblem::TooMany });
                }
                table.push(f64::from(value));
            }
        }
        Self::scaled("file", table).ok_or(DistError { line: last, problem: DistProblem::TooFew })
    }

    /// The distribution of the round-trip times in what `ping` printed (`… time=12.3 ms`).
    pub fn from_ping(text: &str) -> Result<PingLog, DistError> {
        let mut times = Vec::new();
        let mut last = 1;
        for (line, words) in (1..).zip(text.lines()) {
            last = line;
            let Some((_, rest)) = words.split_once("time=").or_else(|| words.split_once("time<"))
            else {
                continue;
            };
            let number = rest.split([' ', 'm']).next().unwrap_or("");
            let time: f64 =
                number.parse().map_err(|_| DistError { line, problem: DistProblem::Number })?;
            // A round trip takes less than an hour; this also keeps infinities and NaN out.
            if !(0.0..3_600_000.0).contains(&time) {
                return Err(DistError { line, problem: DistProblem::Number });
            }
            times.push(time);
        }
        let too_few = DistError { line: last, problem: DistProblem::TooFew };
        let n = times.len() as f64;
        let mean = times.iter().sum::<f64>() / n;
        let square = times.iter().map(|t| (t - mean) * (t - mean)).sum::<f64>();
        let product: f64 = times.windows(2).map(|t| (t[0] - mean) * (t[1] - mean)).sum();
        times.sort_by(f64::total_cmp);
        if is_one_value(&times) {
            return Err(too_few);
        }
        let sample = |p: f64| interpolate(&times, p);
        let table = (0..ENTRIES).map(|i| sample(i as f64 / (ENTRIES - 1) as f64)).collect();
        Ok(PingLog {
            distribution: Self::scaled("ping", table).ok_or(too_few)?,
            samples: times.len(),
            mean_ms: mean,
            deviation_ms: (square / (n - 1.0)).sqrt(),
            correlation: product / square,
        })
    }

    /// The table in iproute2's `.dist` form, 4096 entries. Values beyond ±4 deviations are cut
    /// off there, as its 16 bits want.
    pub fn to_dist_text(&self) -> String {
        let mut text = format!("# {} distribution, by sheaf\n", self.name);
        for i in 0..ENTRIES {
            let value = self.quantile(i as f64 / (ENTRIES - 1) as f64) * SCALE;
            let end = if i % 8 == 7 { '\n' } else { ' ' };
            write!(text, "{}{end}", value.round() as i16).expect("a String takes all");
        }
        text
    }

    /// The value, in deviations from the mean, below which a draw is with probability `p`.
    pub fn quantile(&self, p: f64) -> f64 {
        interpolate(&self.table, p)
    }

    fn computed(name: &'static str, quantile: impl Fn(f64) -> f64) -> Self {
        // Ends at half a step from 0 and 1, where these functions are infinite.
        let end = 0.5 / ENTRIES as f64;
        let place = |i: usize| (i as f64 / (ENTRIES - 1) as f64).clamp(end, 1.0 - end);
        let table = (0..ENTRIES).map(|i| quantile(place(i))).collect();
        Self::scaled(name, table).expect("a computed table deviates")
    }

    /// Sorts the table and brings it to mean 0 and deviation 1; `None` when all its values are
    /// one.
    fn scaled(name: &'static str, mut table: Vec<f64>) -> Option<Self> {
        table.sort_by(f64::total_cmp);
        if is_one_value(&table) {
            return None;
        }
        let segments = (table.len() - 1) as f64;
        let mean = table.windows(2).map(|w| (w[0] + w[1]) / 2.0).sum::<f64>() / segments;
        table.iter_mut().for_each(|value| *value -= mean);
        // The second moment of a straight line from a to b is (a² + ab + b²) / 3.
        let square = |w: &[f64]| (w[0] * w[0] + w[0] * w[1] + w[1] * w[1]) / 3.0;
        let deviation = (table.windows(2).map(square).sum::<f64>() / segments).sqrt();
        table.iter_mut().for_each(|value| *value /= deviation);
        Some(Distribution { name, table: table.into() })
    }
}

/// Whether all values of a sorted table are equal within the precision of arithmetic.
fn is_one_value(table: &[f64]) -> bool {
    let [first, .., last] = table else { return true };
    last - first <= 1e-9 * last.abs().max(first.abs())
}

impl Default for Distribution {
    /// As NetEm's: uniform.
    fn default() -> Self {
        Self::uniform()
    }
}

impl fmt::Debug for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Distribution({}, {} entries)", self.name, self.table.len())
    }
}

/// Round-trip times of a path, from a ping log.
#[derive(Clone, Debug, PartialEq)]
pub struct PingLog {
    /// The shape of its round-trip times.
    pub distribution: Distribution,
    /// Number of round trips.
    pub samples: usize,
    /// Their mean in milliseconds.
    pub mean_ms: f64,
    /// Their standard deviation in milliseconds.
    pub deviation_ms: f64,
    /// Their correlation from one to the next, -1..1.
    pub correlation: f64,
}

/// Error in the text of a distribution.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("line {line}: {problem}")]
pub struct DistError {
    /// Line of the error, from 1.
    pub line: usize,
    /// The kind of error.
    pub problem: DistProblem,
}

/// Kinds of errors in the text of a distribution.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum DistProblem {
    /// No number, or none that can stand here.
    #[error("no number of this kind")]
    Number,
    /// More entries than a table has.
    #[error("more than 65536 entries")]
    TooMany,
    /// The text ends before there are two different values.
    #[error("no two different values")]
    TooFew,
}

/// The inverse distribution function of Pareto with shape 3, smallest value 1.
fn pareto(p: f64) -> f64 {
    (libm::pow(1.0 - p, -1.0 / 3.0) - 1.5) / 0.75f64.sqrt()
}

/// The value at `p` (0..=1) of the way through `table`, which has at least one value.
fn interpolate(table: &[f64], p: f64) -> f64 {
    let at = p.clamp(0.0, 1.0) * (table.len() - 1) as f64;
    let index = (at as usize).min(table.len().saturating_sub(2));
    let next = table[(index + 1).min(table.len() - 1)];
    table[index] + (next - table[index]) * (at - index as f64)
}
