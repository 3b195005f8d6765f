//! Parameters of the controller.

use crate::capacity::Source;
use crate::rest::Policy;
use crate::shares::Formula;
use sheaf_stage::{Bitrate, Duration};
use thiserror::Error;

/// The use of the push flag, by which each segment is acknowledged at once. An acknowledgement of
/// two lets two segments go, and who comes behind such a pair waits for both; the price is twice
/// the acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Push {
    /// While a full frame takes 1 ms or more, so that a pair delays others noticeably, and no
    /// acknowledgement takes the air of a radio.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// Parameters of a [`Controller`](crate::Controller).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Division of the free capacity; [`Formula::MaxMin`].
    pub formula: Formula,
    /// Source of the capacity; auto, from 10 Mbit/s.
    pub capacity: Source,
    /// Treatment of bulk data that windows do not govern; leave.
    pub rest: Policy,
    /// Use of the push flag; auto.
    pub push: Push,
    /// A flow without data for so long does not count, 0.1..=60 s; 1 s.
    pub idle: Duration,
    /// No window below so many full segments, 1..=10; 2, because a receiver holds back the
    /// acknowledgement of a single segment (RFC 1122 4.2.3.2).
    pub min_segments: u32,
    /// Queue that may stand on top of the round-trip time so that the link never runs dry, at most
    /// 100 ms; 1 ms. At least the time that a full frame takes. Not used while the capacity is
    /// searched for.
    pub slack: Duration,
    /// Round-trip time of a flow that has none yet; 100 ms.
    pub default_rtt: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            formula: Formula::MaxMin,
            capacity: Source::AUTO,
            rest: Policy::default(),
            push: Push::default(),
            idle: Duration::from_secs(1),
            min_segments: 2,
            slack: Duration::from_millis(1),
            default_rtt: Duration::from_millis(100),
        }
    }
}

/// Parameters that cannot work, each with its remedy.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The capacity is zero.
    #[error("a capacity of 0 leaves nothing to divide; give the link's rate, or auto")]
    NoCapacity,
    /// The bounds of a capacity that is found exclude each other.
    #[error("capacity auto has min {least} above max {most}; exchange them")]
    Bounds {
        /// The lower one that was given.
        least: Bitrate,
        /// The upper one that was given.
        most: Bitrate,
    },
    /// A flow would count too shortly or for ever.
    #[error("idle is {idle:?}; choose 0.1 s to 60 s")]
    Idle {
        /// The value that was given.
        idle: Duration,
    },
    /// No segment, or too many.
    #[error("min_segments is {segments}; choose 1 to 10")]
    Segments {
        /// The value that was given.
        segments: u32,
    },
    /// A slack so long that it is a queue.
    #[error("slack is {slack:?}; choose at most 100 ms")]
    Slack {
        /// The value that was given.
        slack: Duration,
    },
}

impl Config {
    /// Checks the parameters.
    pub fn check(&self) -> Result<(), ConfigError> {
        let rate = match self.capacity {
            Source::Given(rate) => rate,
            Source::Auto { start, least, most } => {
                if least > most {
                    return Err(ConfigError::Bounds { least, most });
                }
                start.min(least)
            }
        };
        if rate.as_bps() == 0 {
            return Err(ConfigError::NoCapacity);
        }
        if self.idle < Duration::from_millis(100) || self.idle > Duration::from_secs(60) {
            return Err(ConfigError::Idle { idle: self.idle });
        }
        if !(1..=10).contains(&self.min_segments) {
            return Err(ConfigError::Segments { segments: self.min_segments });
        }
        if self.slack > Duration::from_millis(100) {
            return Err(ConfigError::Slack { slack: self.slack });
        }
        Ok(())
    }
}
