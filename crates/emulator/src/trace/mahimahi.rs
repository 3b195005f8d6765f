//! Mahimahi's traces: one line for each moment, in milliseconds, at which the link can deliver
//! 1504 bytes.
//!
//! Source: R. Netravali et al., "Mahimahi: accurate record-and-replay for HTTP", USENIX ATC 2015;
//! mm-link(1). Several lines with the same number are several opportunities; what an opportunity
//! finds no packet for is lost; several small packets share one, a large packet takes several.
//! Looped, the trace begins again after its last line.
//!
//! Its link carries IP packets as a TUN interface hands them over, with four bytes of packet
//! information before each, and counts both: a packet of 1500 bytes fills an opportunity. So does
//! one here, whatever stands before its IP header and whatever the link's overhead.

use super::{MOST, TraceError, TraceProblem, wrap};
use sheaf_stage::{Duration, Instant};

/// Bytes that an opportunity delivers.
pub const MTU: u64 = 1504;
/// Bytes of packet information that a TUN interface puts before each IP packet (`struct tun_pi`).
pub const PACKET_INFORMATION: u64 = 4;

/// Delivery opportunities in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opportunities {
    /// Milliseconds, never decreasing; the last is above zero.
    times: Vec<u32>,
}

impl Opportunities {
    /// Reads a trace file: one whole number of milliseconds per line, never decreasing, the last
    /// above zero. Empty lines are skipped.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut times: Vec<u32> = Vec::new();
        let mut last = 1;
        for (line, field) in (1..).zip(text.lines()) {
            last = line;
            let wrong = |problem| TraceError { line, problem };
            let field = field.trim();
            if field.is_empty() {
                continue;
            }
            let time: u32 = field.parse().map_err(|_| wrong(TraceProblem::Milliseconds))?;
            if times.last().is_some_and(|before| time < *before) {
                return Err(wrong(TraceProblem::Order));
            }
            if times.len() == MOST {
                return Err(wrong(TraceProblem::TooMany));
            }
            times.push(time);
        }
        match times.last() {
            None | Some(0) => Err(TraceError { line: last, problem: TraceProblem::Empty }),
            Some(_) => Ok(Opportunities { times }),
        }
    }

    /// Number of opportunities in one pass.
    pub fn count(&self) -> usize {
        self.times.len()
    }

    /// Duration of one pass.
    pub fn period(&self) -> Duration {
        Duration::from_millis(u64::from(self.times[self.times.len() - 1]))
    }

    /// The mean rate over one pass in bit/s, were every opportunity filled.
    pub fn mean_bps(&self) -> f64 {
        (self.times.len() as u64 * MTU * 8) as f64 / self.period().as_secs_f64()
    }
}

/// A place in a trace that is played: the opportunity that was taken last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Passes before this one.
    pass: u64,
    /// The next opportunity of this pass; may be one past the end.
    index: usize,
}

impl Cursor {
    /// The first opportunity later than `at`.
    pub fn after(trace: &Opportunities, start: Instant, looped: bool, at: Instant) -> Cursor {
        if at < start {
            return Cursor::default();
        }
        let elapsed = at - start;
        if !looped {
            return Cursor { pass: 0, index: trace.first_after(elapsed) };
        }
        let (pass, rest) = wrap(elapsed, trace.period());
        // At a whole number of passes the last opportunities of the pass before are over, too.
        Cursor { pass, index: trace.first_after(rest) }
    }

    /// Time of this opportunity; `None`: the trace is over.
    pub fn time(self, trace: &Opportunities, start: Instant, looped: bool) -> Option<Instant> {
        let (pass, index) = match self.index < trace.times.len() {
            true => (self.pass, self.index),
            false if looped => (self.pass + 1, 0),
            false => return None,
        };
        let period = u64::from(trace.times[trace.times.len() - 1]);
        let ms = pass.saturating_mul(period).saturating_add(u64::from(trace.times[index]));
        Some(start + Duration::from_millis(ms))
    }

    /// The one after it.
    pub fn next(self, trace: &Opportunities) -> Cursor {
        match self.index < trace.times.len() {
            true => Cursor { index: self.index + 1, ..self },
            false => Cursor { pass: self.pass + 1, index: 1 },
        }
    }
}

impl Opportunities {
    fn first_after(&self, elapsed: Duration) -> usize {
        self.times.partition_point(|ms| Duration::from_millis(u64::from(*ms)) <= elapsed)
    }
}
