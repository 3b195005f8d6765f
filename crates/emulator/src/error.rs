//! Errors in a configuration.

use crate::units::rate_text;
use sheaf_stage::Bitrate;
use thiserror::Error;

/// Error in the configuration of a link.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value that is not a probability.
    #[error("{option}: {value} is not a probability; give 0 to 1")]
    Probability {
        /// The option it was given for.
        option: &'static str,
        /// The value given.
        value: f64,
    },
    /// A correlation that no process can have.
    #[error("{option}: {value} is not a correlation that can be kept; give 0 to below 1")]
    Correlation {
        /// The option it was given for.
        option: &'static str,
        /// The value given.
        value: f64,
    },
    /// The ways out of a state have more than all the probability there is.
    #[error("{option}: {sum} is the probability to leave one state (at most 1)")]
    Sum {
        /// The option it was given for.
        option: &'static str,
        /// Their sum.
        sum: f64,
    },
    /// A factor that is negative, infinite or not a number.
    #[error("{option}: {value} is not a finite number from 0 on")]
    Factor {
        /// The option it was given for.
        option: &'static str,
        /// The value given.
        value: f64,
    },
    /// Something that must be more than zero.
    #[error("{option} must not be zero")]
    Zero {
        /// The option it was given for.
        option: &'static str,
    },
    /// Two bounds in the wrong order.
    #[error("{low} is above {high}")]
    Order {
        /// The one that must be lower.
        low: &'static str,
        /// The one that must be higher.
        high: &'static str,
    },
    /// Something that is too small to work with.
    #[error("{option} is below {least}")]
    Below {
        /// The option it was given for.
        option: &'static str,
        /// The least.
        least: u64,
    },
    /// Something that is larger than can be kept in memory or counted.
    #[error("{option}: {value} is more than {most}")]
    TooMany {
        /// The option it was given for.
        option: &'static str,
        /// The value given.
        value: u64,
        /// The most.
        most: u64,
    },
    /// RED's burst is smaller than its lower threshold.
    #[error("red burst is too small for min; it must be more than {least} packets")]
    Burst {
        /// Packets of the average size that make up `min`.
        least: u64,
    },
    /// A bound on bursts that not one frame fits into.
    #[error("burst {value} is less than a frame of {least} bytes")]
    BurstBelowFrame {
        /// The value given, in bytes.
        value: u64,
        /// The least, in bytes.
        least: u64,
    },
    /// A bound on bursts of a link without a rate, or of delivery opportunities.
    #[error("burst needs a rate, which neither a link without one nor delivery opportunities have")]
    BurstWithoutRate,
    /// Packets under way are to count against the limit of a queue that is not a FIFO.
    #[error("single is for queues that are first in, first out")]
    Single,
    /// A class that could not even have its rate.
    #[error("ceil {} is below rate {}", rate_text(*.ceil), rate_text(*.rate))]
    CeilBelowRate {
        /// The most that it gets.
        ceil: Bitrate,
        /// What it gets in any case.
        rate: Bitrate,
    },
    /// A root of classes that is to borrow.
    #[error(
        "a root has nobody to borrow from, so its ceil {} is its rate {}",
        rate_text(*.ceil), rate_text(*.rate)
    )]
    RootCeil {
        /// The ceil given.
        ceil: Bitrate,
        /// Its rate.
        rate: Bitrate,
    },
    /// More is promised to classes than the class above has.
    #[error(
        "the classes below one have {} together, more than its rate {}",
        rate_text(*.all), rate_text(*.above)
    )]
    RatesAbove {
        /// The sum of their rates.
        all: Bitrate,
        /// The rate of the class above.
        above: Bitrate,
    },
    /// Something that leaf classes alone have, of a class with others below it.
    #[error(
        "packets wait in classes without others below them alone, which number {number} is not"
    )]
    Inner {
        /// The number of the class.
        number: usize,
    },
    /// Something else than a class, where there must be one.
    #[error("number {number} is not a class")]
    NoClass {
        /// The number given.
        number: usize,
    },
    /// A class below one that may have packets already.
    #[error("a class comes before the rules")]
    LateClass,
    /// A class with a link for each flow.
    #[error("a class has one link, not one for each flow")]
    FlowsOfClass,
    /// A bound on bursts of a class's link.
    #[error("burst is for a link alone; a class sends no burst above the rate of its root")]
    BurstInClass,
    /// A rule or packet row that names a pipe that does not exist.
    #[error("{option}: there is no number {number}")]
    Missing {
        /// The option it was given for.
        option: &'static str,
        /// The value given.
        number: usize,
    },
}
