//! The capacity of the bottleneck: given, or found by itself.
//!
//! Principle: the sum of the windows is the capacity that is assumed, times the round-trip time. If
//! more is assumed than there is, the rest stands in the bottleneck's queue: round-trip times leave
//! their floor, and what is delivered meanwhile *is* the capacity. If less is assumed, round-trip
//! times stay at the floor. So the assumption is raised a little from time to time, and faster as
//! long as nothing happens; when the queue shows, what was delivered becomes the estimate and the
//! queue is let run empty. No packet is sent for it. (As in BBR, Cardwell et al. 2016: the two edges
//! are seen at different times, the rate with a queue and the RTT without.)

use sheaf_stage::{Bitrate, Duration, Instant};
use std::collections::VecDeque;

/// Where the capacity comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// It is known, link headers included.
    Given(Bitrate),
    /// It is found; the search begins with this.
    Auto {
        /// First assumption.
        start: Bitrate,
    },
}

/// What was seen in one step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observation {
    /// Bits delivered per second, link headers and UDP included.
    pub delivered: f64,
    /// By how much round-trip times are above their floor.
    pub queue: Duration,
    /// The floor, of the flows that deliver most.
    pub rtt: Duration,
    /// Whether windows are what limits the flows.
    pub limited: bool,
    /// Whether flows were there to see it.
    pub seen: bool,
}

/// Shortest time over which a rate is measured.
const ROUND: Duration = Duration::from_millis(300);
/// How long the estimate rests before it is tried again.
const REST: Duration = Duration::from_millis(1000);
/// First raise, and by how much each raise is larger than the one before.
const RAISE: f64 = 0.04;
const FASTER: f64 = 3.0;
const MAX_RAISE: f64 = 1.0;
/// While the queue runs empty, this part of the estimate is used.
const DRAIN: f64 = 0.92;
/// A packet, for what a queue of two of them is.
const PACKET_BITS: f64 = 1514.0 * 8.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The assumption was raised; what follows?
    Raised,
    /// The queue runs empty.
    Draining,
    /// Nothing is tried.
    Resting,
}

/// The capacity over time.
#[derive(Clone, Debug)]
pub struct Capacity {
    source: Source,
    estimate: f64,
    assumed: f64,
    raise: f64,
    phase: Phase,
    since: Instant,
    /// What was delivered, by step: when it ended, seconds, bits per second, with a queue.
    history: VecDeque<(Instant, f64, f64, bool)>,
    last: Option<Instant>,
}

impl Capacity {
    /// From `source`.
    pub fn new(source: Source) -> Capacity {
        let rate = match source {
            Source::Given(rate) | Source::Auto { start: rate } => (rate.as_bps() as f64).max(1.0),
        };
        Capacity {
            source,
            estimate: rate,
            assumed: rate,
            raise: MAX_RAISE,
            phase: Phase::Raised,
            since: Instant::ZERO,
            history: VecDeque::new(),
            last: None,
        }
    }

    /// The best knowledge of the capacity.
    pub fn estimate(&self) -> Bitrate {
        Bitrate::from_bps(self.estimate as u64)
    }

    /// What to divide now: the estimate, or a little more or less while it is tried. bit/s.
    pub fn assumed(&self) -> f64 {
        self.assumed
    }

    /// Whether it is found and not given.
    pub fn is_auto(&self) -> bool {
        matches!(self.source, Source::Auto { .. })
    }

    /// Takes in what was seen since the last step.
    pub fn step(&mut self, seen: Observation, now: Instant) {
        let last = self.last.replace(now).unwrap_or(now);
        let seconds = (now - last).as_secs_f64();
        if !self.is_auto() || seconds <= 0.0 || !seen.seen {
            return;
        }
        let full = seen.queue > self.threshold(seen.rtt);
        self.history.push_back((now, seconds, seen.delivered, full));
        let round = ROUND.max(seen.rtt * 2);
        while self.history.front().is_some_and(|(at, ..)| now - *at >= round * 2) {
            self.history.pop_front();
        }
        let elapsed = now - self.since;
        // What a change does is seen one round-trip time later; then a whole round is measured.
        let settled = elapsed >= seen.rtt + round;
        match self.phase {
            Phase::Raised if full && elapsed >= seen.rtt => {
                if let Some(rate) = self.delivered_while_full(round) {
                    self.found(rate, now);
                }
            }
            Phase::Raised if settled && seen.limited && !full => {
                // It got through: at least what was delivered is there.
                self.estimate = self.estimate.max(self.delivered(round));
                self.raise(now);
            }
            Phase::Draining if !full || elapsed >= seen.rtt * 2 + round => {
                self.enter(Phase::Resting, self.estimate, now);
            }
            Phase::Resting if full && elapsed >= seen.rtt => {
                // A queue without a raise: the link became slower.
                if let Some(rate) = self.delivered_while_full(round) {
                    self.found(rate, now);
                }
            }
            Phase::Resting if elapsed >= REST && seen.limited && !full => {
                self.raise = RAISE;
                self.raise(now);
            }
            _ => {}
        }
    }

    fn raise(&mut self, now: Instant) {
        let assumed = self.assumed.max(self.estimate) * (1.0 + self.raise);
        self.raise = (self.raise * FASTER).min(MAX_RAISE);
        self.enter(Phase::Raised, assumed, now);
    }

    fn found(&mut self, rate: f64, now: Instant) {
        self.estimate = rate.max(1.0);
        self.enter(Phase::Draining, self.estimate * DRAIN, now);
    }

    fn enter(&mut self, phase: Phase, assumed: f64, now: Instant) {
        self.phase = phase;
        self.assumed = assumed;
        self.since = now;
    }

    /// The excess that counts as a queue: 3 % of the round-trip time, but at least two packets and
    /// a millisecond, which come and go without one.
    fn threshold(&self, rtt: Duration) -> Duration {
        let packets = Duration::from_secs_f64(2.0 * PACKET_BITS / self.estimate.max(1e3));
        (rtt / 32).max(packets).max(Duration::from_millis(1))
    }

    /// Mean rate over the last `round`.
    fn delivered(&self, round: Duration) -> f64 {
        let now = self.last.unwrap_or_default();
        let part = self.history.iter().rev().take_while(|(at, ..)| now - *at < round);
        let (seconds, bits) = part.fold((0.0, 0.0), |(time, bits), (_, seconds, rate, _)| {
            (time + seconds, bits + rate * seconds)
        });
        if seconds > 0.0 { bits / seconds } else { 0.0 }
    }

    /// The same, if there was a queue all the time.
    fn delivered_while_full(&self, round: Duration) -> Option<f64> {
        let now = self.last.unwrap_or_default();
        let mut steps = self.history.iter().rev();
        let (mut seconds, mut bits) = (0.0, 0.0);
        while let Some((at, time, rate, full)) = steps.next() {
            if !full {
                return None;
            }
            seconds += time;
            bits += rate * time;
            if now - *at + Duration::from_secs_f64(*time) >= round {
                return Some(bits / seconds);
            }
        }
        None
    }
}
