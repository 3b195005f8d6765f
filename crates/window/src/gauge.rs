//! One flow as the controller sees it: the difference between two readings of its counters, and the
//! window that makes a share.

use crate::flow::{Connection, MAX_WINDOW};
use crate::key::Direction;
use crate::rounding;
use sheaf_stage::{Duration, Instant};

/// Round trips over which a rate is averaged: within fewer, a burst looks like the rate.
const AVERAGED_RTTS: f64 = 3.0;
/// Seconds over which a rate is averaged, at least: three steps of the controller.
const AVERAGED_SECONDS: f64 = 0.3;
/// Bytes that time stamps take of each segment (RFC 7323, appendix A).
const TIMESTAMPS: u32 = 12;
/// Bytes on the wire for each byte of data before any were counted: headers of 66 in 1448 bytes.
const FIRST_OVERHEAD: f64 = 1.05;
/// Part of its window that a flow must have in flight to count as limited by it. Data in flight is
/// computed from averages, so even a limited flow seldom shows all of its window.
const HELD: f64 = 0.8;

/// A flow between two steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    /// Counters at the last step.
    before: Counters,
    /// Counters now.
    after: Counters,
    /// Smallest round-trip time.
    pub rtt: Option<Duration>,
    /// Mean round-trip time of late.
    pub recent: Option<Duration>,
    /// Data of a full segment, bytes.
    segment: u32,
    scale: u8,
    /// Window that the program enforces, bytes; 0 for none.
    pub set: u32,
    /// Window that was advertised last, bytes.
    written: u32,
    /// The window that has been in force, bytes: follows a smaller one at once, and a larger one no
    /// faster than `rate` can.
    limit: f64,
    /// bit/s on the wire, averaged over a few round-trip times.
    pub rate: f64,
    /// Time at which its data passed last.
    pub last: Instant,
    /// State of rounding its window to whole segments.
    pub rounding: rounding::State,
    /// The step in which it was seen last.
    pub seen: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    bytes: u64,
    wire: u64,
    acked: u64,
    rtt: [(u64, u32); 2],
}

impl Flow {
    /// A flow that is seen first now.
    pub fn new(connection: &Connection, direction: Direction) -> Flow {
        let counters = Counters::of(connection, direction);
        Flow {
            before: counters,
            after: counters,
            rtt: None,
            recent: None,
            segment: 1,
            scale: 0,
            set: 0,
            written: 0,
            limit: 0.0,
            rate: 0.0,
            last: Instant::ZERO,
            rounding: rounding::State::default(),
            seen: 0,
        }
    }

    /// Takes note of the counters.
    pub fn observe(&mut self, connection: &Connection, direction: Direction) {
        let half = connection.half(direction);
        let after = Counters::of(connection, direction);
        if after.wire < self.after.wire {
            // Another connection under the same key.
            self.before = Counters::default();
        }
        let floors = connection.half.map(|half| half.rtt.floor());
        self.after = after;
        self.rtt = floors[0].zip(floors[1]).map(|(one, other)| one + other);
        let options = if connection.timestamps { TIMESTAMPS } else { 0 };
        self.segment = u32::from(half.mss).saturating_sub(options).max(1);
        self.scale = half.scale;
        (self.set, self.written, self.last) = (half.window, half.written, half.last);
    }

    /// Brings rate and recent RTT up to date, for `seconds` since the last time. Returns the bits
    /// on the wire that were acknowledged, and those that passed.
    pub fn measure(&mut self, seconds: f64, default_rtt: Duration) -> (f64, f64) {
        let (before, after) = (self.before, self.after);
        let acked = after.acked.saturating_sub(before.acked) as f64 * 8.0 * self.overhead();
        let passed = after.wire.saturating_sub(before.wire) as f64 * 8.0;
        let rtt = self.rtt.unwrap_or(default_rtt).as_secs_f64();
        let constant = (AVERAGED_RTTS * rtt).max(AVERAGED_SECONDS);
        self.rate += (acked / seconds - self.rate) * (1.0 - libm::exp(-seconds / constant));
        let set = f64::from(self.set);
        // Twice as slow as the rate, or the rate would seem too small for a window that just grew.
        let part = 1.0 - libm::exp(-seconds / (2.0 * constant));
        self.limit = set.min(self.limit + (set - self.limit) * part);
        self.recent = recent(&before, &after).or(self.recent);
        (acked, passed)
    }

    /// Whether data passed since the last time.
    pub fn has_sent(&self) -> bool {
        self.after.bytes > self.before.bytes
    }

    /// Whether data was acknowledged since the last time.
    pub fn has_arrived(&self) -> bool {
        self.after.acked > self.before.acked
    }

    /// Ends a step: the present counters become those of the last step.
    pub fn settle(&mut self) {
        self.before = self.after;
    }

    /// Bytes on the wire for each byte of data.
    fn overhead(&self) -> f64 {
        match self.after.bytes {
            0 => FIRST_OVERHEAD,
            bytes => (self.after.wire as f64 / bytes as f64).clamp(1.0, 2.0),
        }
    }

    /// Whether its window limits it: it has most of it in flight. A window that has just become
    /// larger cannot be in use yet; taken at once for too large, it would be given to others, by
    /// all flows at the same time.
    pub fn is_held(&self) -> bool {
        let Some(rtt) = self.recent.or(self.rtt) else { return false };
        let flight = self.rate / self.overhead() * rtt.as_secs_f64() / 8.0;
        self.set > 0 && flight >= HELD * self.limit
    }

    /// Whether its window is above what it was given and stays there while every segment is
    /// acknowledged alone. The right edge does not go back; where a segment is less than the unit
    /// of the field, rounding up to that takes the edge on by as much as each acknowledgement.
    pub fn needs_pairs(&self) -> bool {
        self.set > 0 && self.written > self.set && self.segment < 1 << self.scale
    }

    /// `share` bytes on the wire in segments.
    pub fn segments(&self, share: f64) -> f64 {
        (share / self.overhead()).min(f64::from(MAX_WINDOW)) / f64::from(self.segment)
    }

    /// The window in bytes of so many segments. The field counts in units of 2^scale and is rounded
    /// down to them.
    pub fn window(&self, segments: f64) -> u32 {
        let quantum = (1u32 << self.scale) - 1;
        let bytes = segments * f64::from(self.segment);
        (bytes as u32).saturating_add(quantum).min(MAX_WINDOW)
    }
}

impl Counters {
    fn of(connection: &Connection, direction: Direction) -> Counters {
        let half = connection.half(direction);
        Counters {
            bytes: half.bytes,
            wire: half.wire,
            acked: half.acked,
            rtt: connection.half.map(|half| (half.rtt.sum, half.rtt.count)),
        }
    }
}

/// The mean round-trip time between two readings, both halves together.
fn recent(before: &Counters, after: &Counters) -> Option<Duration> {
    let mut sum = 0;
    for (before, after) in before.rtt.iter().zip(&after.rtt) {
        let count = after.1.wrapping_sub(before.1);
        if count == 0 || after.0 < before.0 {
            return None;
        }
        sum += (after.0 - before.0) / u64::from(count);
    }
    Some(Duration::from_nanos(sum))
}
