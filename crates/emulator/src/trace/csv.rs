//! A table of how a link changes: `time,rate,delay,loss` and more ([`COLUMNS`]).
//!
//! The first line names the columns, in any order; only `time` is required. Each further line
//! holds from its time until the next line's. Without a unit, time is in seconds, rate in bit/s,
//! delay, jitter and the delay of duplicates in milliseconds, loss and duplicates in percent; units
//! are those of tc. An empty field leaves what the link is configured to. Before the first line's
//! time the configuration holds. Looped, the last line only says when the table begins again. `#`
//! begins a comment line.
//!
//! The columns are those of TheaterQ's traces (M. Ottens, K.-S. Hielscher, R. German, "TheaterQ: a
//! qdisc for dynamic network emulation", 2025), with times from the start in place of durations.

use super::{COLUMNS, MOST, TraceError, TraceProblem, nanos, wrap};
use crate::units;
use sheaf_stage::{Bitrate, Duration, Instant};

/// One line; a field that is `None` stays as configured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Row {
    /// From when on, since the start of the trace.
    pub time: Duration,
    /// The rate; zero for an outage.
    pub rate: Option<Bitrate>,
    /// The mean delay.
    pub delay: Option<Duration>,
    /// The standard deviation of the delay.
    pub jitter: Option<Duration>,
    /// The share of packets lost, 0..=1, in addition to the loss model.
    pub loss: Option<f64>,
    /// The bound of the rate queue, in packets or bytes as it is configured; from 1. What waits
    /// already is not dropped for it.
    pub limit: Option<u64>,
    /// The share of packets that arrive twice, 0..=1, in addition to those configured.
    pub duplicate: Option<f64>,
    /// Time by which a duplicate is later than its original would be.
    pub duplicate_delay: Option<Duration>,
    /// The way through the network: packets of the same one leave in the order they came, whatever
    /// their delays, but may overtake those of another. 0: all may overtake.
    pub route: Option<u8>,
}

/// Rows in order of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    rows: Vec<Row>,
}

/// Rows closer than this would let a table make a program busy with nothing.
const CLOSEST: Duration = Duration::from_millis(1);

impl Steps {
    /// Reads a table.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut lines = (1..)
            .zip(text.lines())
            .map(|(line, text)| (line, text.trim()))
            .filter(|(_, text)| !text.is_empty() && !text.starts_with('#'));
        let empty = |line| TraceError { line, problem: TraceProblem::Empty };
        let (line, header) = lines.next().ok_or(empty(1))?;
        let columns: Vec<&str> = header.split(',').map(str::trim).collect();
        if !columns.iter().all(|name| COLUMNS.contains(name)) || !columns.contains(&"time") {
            return Err(TraceError { line, problem: TraceProblem::Header });
        }
        let mut rows: Vec<Row> = Vec::new();
        for (line, text) in lines {
            let wrong = |problem| TraceError { line, problem };
            let row = row(&columns, text).map_err(wrong)?;
            if rows.last().is_some_and(|before| row.time < before.time + CLOSEST) {
                return Err(wrong(TraceProblem::Order));
            }
            if rows.len() == MOST {
                return Err(wrong(TraceProblem::TooMany));
            }
            rows.push(row);
        }
        if rows.is_empty() {
            return Err(empty(line));
        }
        Ok(Steps { rows })
    }

    /// Number of rows.
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// Whether any row has a jitter.
    pub(crate) fn varies(&self) -> bool {
        self.rows.iter().any(|row| row.jitter.is_some_and(|jitter| !jitter.is_zero()))
    }

    /// The row in force at `at` when the table was started at `start`, and the time of the next.
    pub(crate) fn at(&self, start: Instant, looped: bool, at: Instant) -> (Row, Option<Instant>) {
        let last = self.rows[self.rows.len() - 1].time;
        let looped = looped && self.rows.len() > 1;
        if at < start {
            return (Row::default(), Some(start));
        }
        let (pass, elapsed) = if looped { wrap(at - start, last) } else { (0, at - start) };
        let began = start + Duration::from_nanos(pass.saturating_mul(nanos(last)));
        let next = self.rows.partition_point(|row| row.time <= elapsed);
        let row = next.checked_sub(1).map_or(Row::default(), |index| self.rows[index]);
        (row, self.rows.get(next).map(|row| began + row.time))
    }
}

fn row(columns: &[&str], text: &str) -> Result<Row, TraceProblem> {
    if text.split(',').count() != columns.len() {
        return Err(TraceProblem::Fields);
    }
    let mut row = Row::default();
    for (column, field) in columns.iter().zip(text.split(',').map(str::trim)) {
        let name = COLUMNS.into_iter().find(|name| name == column).unwrap_or_default();
        let wrong = TraceProblem::Field(name);
        if name == "time" {
            row.time = units::time(field, Duration::from_secs(1)).ok_or(wrong)?;
        } else if !field.is_empty() {
            set(&mut row, name, field).ok_or(wrong)?;
        }
    }
    Ok(row)
}

/// Sets what column `name` says; `None` where it cannot be read.
fn set(row: &mut Row, name: &str, field: &str) -> Option<()> {
    let time = || units::time(field, Duration::from_millis(1));
    match name {
        "rate" => row.rate = Some(units::rate(field)?),
        "delay" => row.delay = Some(time()?),
        "jitter" => row.jitter = Some(time()?),
        "loss" => row.loss = Some(units::percent(field)?),
        "limit" => row.limit = Some(field.parse().ok().filter(|limit| *limit > 0)?),
        "duplicate" => row.duplicate = Some(units::percent(field)?),
        "duplicate_delay" => row.duplicate_delay = Some(time()?),
        _ => row.route = Some(field.parse().ok()?),
    }
    Some(())
}
