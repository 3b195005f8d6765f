//! Links that change over time, as recorded: [`mahimahi`] delivery opportunities, the same with the
//! [`trains`] of a light load, or [`csv`] rows of rate, delay, loss and more.

pub mod csv;
pub mod mahimahi;
pub mod trains;

pub use csv::{Row, Steps};
pub use mahimahi::Opportunities;
pub use trains::Trains;

use sheaf_stage::{Duration, Instant};
use std::sync::Arc;
use thiserror::Error;

/// A trace, and when and how it is played.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceConfig {
    /// The trace. Cheap to clone.
    pub trace: Trace,
    /// Time at which it begins; `None`: with the first packet. Until then the link is as
    /// configured otherwise.
    pub start: Option<Instant>,
    /// Start over at its end. Otherwise no opportunity comes after the last, and the last row of a
    /// CSV trace stays in force.
    pub looped: bool,
}

/// A recorded link.
#[derive(Clone, Debug, PartialEq)]
pub enum Trace {
    /// Times at which the link could deliver.
    Opportunities(Arc<Opportunities>),
    /// The same of a saturated link, and how trains of packets fared at the same time.
    Loads(Arc<Opportunities>, Arc<Trains>),
    /// Rate, delay, loss and more from time to time.
    Steps(Arc<Steps>),
}

impl Trace {
    /// Whether it says that the delay varies.
    pub(crate) fn varies(&self) -> bool {
        matches!(self, Trace::Steps(steps) if steps.varies())
    }

    /// The times at which the link could deliver, where it says these.
    pub(crate) fn opportunities(&self) -> Option<&Arc<Opportunities>> {
        match self {
            Trace::Opportunities(opportunities) | Trace::Loads(opportunities, _) => {
                Some(opportunities)
            }
            Trace::Steps(_) => None,
        }
    }
}

/// Error in the text of a trace.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("line {line}: {problem}")]
pub struct TraceError {
    /// Line of the error, from 1.
    pub line: usize,
    /// The kind of error.
    pub problem: TraceProblem,
}

/// Kinds of errors in the text of a trace.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceProblem {
    /// No whole number of milliseconds.
    #[error("no whole number of milliseconds")]
    Milliseconds,
    /// The first line does not name the columns.
    #[error("the columns are not among {}, or time is missing", COLUMNS.join(", "))]
    Header,
    /// More or fewer fields than columns.
    #[error("not as many fields as columns")]
    Fields,
    /// A field that cannot be read.
    #[error("no {0} that can be read")]
    Field(&'static str),
    /// Times that go back, or rows less than a millisecond apart.
    #[error("earlier than, or less than a millisecond after, the line before")]
    Order,
    /// A trace that lasts no time, or has no line at all.
    #[error("the trace lasts no time")]
    Empty,
    /// More than can be kept.
    #[error("more than {MOST} lines")]
    TooMany,
}

/// The columns of a CSV trace.
pub const COLUMNS: [&str; 9] =
    ["time", "rate", "delay", "jitter", "loss", "limit", "duplicate", "duplicate_delay", "route"];

/// Most lines of a trace that is read.
pub const MOST: usize = 10_000_000;

/// Number of whole periods in `elapsed`, and the remainder.
fn wrap(elapsed: Duration, period: Duration) -> (u64, Duration) {
    let (elapsed, period) = (nanos(elapsed), nanos(period).max(1));
    (elapsed / period, Duration::from_nanos(elapsed % period))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
