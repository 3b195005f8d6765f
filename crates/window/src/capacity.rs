//! The capacity of the bottleneck: given, or found by itself.
//!
//! Principle: the sum of the windows is the assumed capacity times the round-trip time. If the
//! assumption is too high, the rest stands in the bottleneck's queue: round-trip times leave their
//! floor, and the delivery rate meanwhile *is* the capacity. If the assumption is too low,
//! round-trip times stay at the floor. So the assumption is raised a little from time to time, and
//! faster as long as nothing happens. When the queue shows, the delivery rate becomes the estimate,
//! and the queue is left to run empty. No packet is sent for it. (As in BBR, Cardwell et al. 2016:
//! the two edges are seen at different times, the rate with a queue and the RTT without.)

use sheaf_stage::{Bitrate, Duration, Instant};
use std::collections::VecDeque;

/// The source of the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The user gives it, link headers included.
    Given(Bitrate),
    /// The controller finds it; the search begins with this.
    Auto {
        /// First assumption.
        start: Bitrate,
    },
}

/// The observations of one step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observation {
    /// Bits delivered per second, by acknowledgements; link headers and UDP included.
    pub delivered: f64,
    /// Bits that passed the interface per second.
    pub passed: f64,
    /// U(t): traffic that windows do not govern, bit/s.
    pub usage: f64,
    /// By how much round-trip times are above their floor.
    pub queue: Duration,
    /// The floor, of the flows that deliver most.
    pub rtt: Duration,
    /// The longest recent round-trip time: the last flows show an effect that much later.
    pub longest: Duration,
    /// Whether windows limit the flows.
    pub limited: bool,
    /// Whether there were flows to observe.
    pub seen: bool,
}

/// Time after the longest round-trip time for which the effect of a change is watched.
const ROUND: Duration = Duration::from_millis(200);
/// Shortest time over which a rate is measured: two steps of the controller.
const MEASURE: Duration = Duration::from_millis(200);
/// Time for which the estimate rests before it is tried again.
const REST: Duration = Duration::from_millis(600);
/// First raise, and by how much each raise is larger than the one before.
const RAISE: f64 = 0.04;
const FASTER: f64 = 3.0;
const MAX_RAISE: f64 = 0.5;
/// Each raise while nothing was found yet.
const SEARCH_RAISE: f64 = 1.0;
/// While the queue runs empty, this part of what windows govern is left unused.
const DRAIN: f64 = 0.08;
/// Part of the estimate from which a try in vain is distinguished from the noise of a measurement.
const PLATEAU: f64 = 0.1;
/// Bits of a full packet, to express a queue as packets.
const PACKET_BITS: f64 = 1514.0 * 8.0;

/// Packets of the largest burst that counts as noise; a longer wait is a queue.
const BURST: f64 = 5.0;
/// Packets of the shortest queue: fewer come and go with bursts.
const SHORTEST_QUEUE: f64 = 3.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The assumption was raised, and its effect is awaited.
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
    /// Whether the capacity was reached once.
    is_found: bool,
    phase: Phase,
    since: Instant,
    /// Time for which packets wait for each other while nothing is tried: bursts, not a queue.
    noise: Duration,
    /// Time since which there is a queue without a break.
    full_since: Option<Instant>,
    /// Recent deliveries, by step: time of its end, seconds, bits per second
    /// by acknowledgements and by what passed.
    history: VecDeque<(Instant, f64, [f64; 2])>,
    last: Option<Instant>,
}

impl Capacity {
    /// A capacity from `source`.
    pub fn new(source: Source) -> Capacity {
        let rate = match source {
            Source::Given(rate) | Source::Auto { start: rate } => (rate.as_bps() as f64).max(1.0),
        };
        Capacity {
            source,
            estimate: rate,
            assumed: rate,
            raise: SEARCH_RAISE,
            is_found: false,
            phase: Phase::Raised,
            since: Instant::ZERO,
            noise: Duration::ZERO,
            full_since: None,
            history: VecDeque::new(),
            last: None,
        }
    }

    /// The best estimate of the capacity.
    pub fn estimate(&self) -> Bitrate {
        Bitrate::from_bps(self.estimate as u64)
    }

    /// Capacity to divide now, in bit/s: the estimate, or a little more or less while it is tried.
    pub fn assumed(&self) -> f64 {
        self.assumed
    }

    /// Whether the capacity is found and not given.
    pub fn is_auto(&self) -> bool {
        matches!(self.source, Source::Auto { .. })
    }

    /// Whether nothing is tried: the assumption is the best estimate.
    pub fn is_resting(&self) -> bool {
        !self.is_auto() || self.phase == Phase::Resting
    }

    /// Takes in the observations since the last step.
    pub fn step(&mut self, seen: Observation, now: Instant) {
        let last = self.last.replace(now).unwrap_or(now);
        let seconds = (now - last).as_secs_f64();
        if !self.is_auto() || seconds <= 0.0 || !seen.seen {
            return;
        }
        // While nothing is tried, only a queue that is not a burst shows that the link became
        // slower.
        let sure = if self.phase == Phase::Resting { 2 } else { 1 };
        let full = seen.queue > self.visible(seen.rtt) + self.threshold(seen.rtt) * (sure - 1);
        if self.phase == Phase::Resting && !full {
            let most = seen.rtt / 8 + self.packets(BURST);
            // An average over about five steps, so that a single burst moves it little.
            self.noise = (self.noise * 4 + seen.queue.min(most)) / 5;
        }
        // Flows with long round-trip times send in clumps: two of their rounds level them out.
        let measure = MEASURE.max(seen.longest * 2);
        self.history.push_back((now, seconds, [seen.delivered, seen.passed]));
        while self.history.front().is_some_and(|(at, ..)| now - *at >= measure) {
            self.history.pop_front();
        }
        self.full_since = if full { self.full_since.or(Some(last)) } else { None };
        // Acknowledgements report the past: when the queue has stood for the longest round-trip
        // time, all of them come from packets that went through it.
        let standing = self.full_since.map_or(Duration::ZERO, |since| now - since);
        let measured = full && standing >= seen.longest + measure;
        let elapsed = now - self.since;
        match self.phase {
            Phase::Raised | Phase::Resting if measured => self.found(seen.usage, now),
            Phase::Raised if elapsed >= seen.longest + ROUND && seen.limited && !full => {
                let (tried, came) =
                    (self.assumed - self.estimate, self.delivered() - self.estimate);
                let extra = tried * seen.rtt.as_secs_f64();
                // More than a segment, so that windows did grow; and the queue that it would make.
                let is_felt = extra >= 1.5 * PACKET_BITS && tried >= self.estimate * PLATEAU;
                let hides = extra <= self.estimate * self.visible(seen.rtt).as_secs_f64();
                if !self.is_found || !is_felt || !hides || came >= tried / 4.0 {
                    // The try got through, so the link has at least the rate delivered.
                    self.estimate = self.estimate.max(self.delivered());
                    self.raise(seen.usage, now);
                } else if elapsed >= seen.longest + measure {
                    // The added data did not arrive: it stands in a queue too short to be seen.
                    self.drain(seen.usage, now);
                }
            }
            Phase::Draining if !full || elapsed >= seen.longest * 2 + ROUND => {
                self.enter(Phase::Resting, self.estimate, now);
            }
            Phase::Resting if elapsed >= REST && seen.limited && !full => {
                self.raise = RAISE;
                self.raise(seen.usage, now);
            }
            _ => {}
        }
    }

    fn raise(&mut self, usage: f64, now: Instant) {
        let base = self.assumed.max(self.estimate);
        let assumed = base + governed(base, usage) * self.raise;
        let most = if self.is_found { MAX_RAISE } else { SEARCH_RAISE };
        self.raise = (self.raise * FASTER).min(most);
        self.enter(Phase::Raised, assumed, now);
    }

    /// Takes the delivery rate while a queue stands for the capacity of the link.
    fn found(&mut self, usage: f64, now: Instant) {
        self.estimate = self.delivered().max(1.0);
        self.is_found = true;
        self.drain(usage, now);
    }

    /// Lets the queue run empty.
    fn drain(&mut self, usage: f64, now: Instant) {
        self.enter(Phase::Draining, self.estimate - governed(self.estimate, usage) * DRAIN, now);
    }

    fn enter(&mut self, phase: Phase, assumed: f64, now: Instant) {
        self.phase = phase;
        self.assumed = assumed;
        self.since = now;
        // An older queue is not an effect of the present assumption.
        self.full_since = None;
    }

    /// The excess that counts as a queue: 3 % of the round-trip time, but at least three packets
    /// and a millisecond, which come and go without one.
    fn threshold(&self, rtt: Duration) -> Duration {
        (rtt / 32).max(self.packets(SHORTEST_QUEUE)).max(Duration::from_millis(1))
    }

    /// The shortest queue that is distinguished from bursts.
    fn visible(&self, rtt: Duration) -> Duration {
        self.noise + self.threshold(rtt)
    }

    /// The time that `count` packets take on the link.
    fn packets(&self, count: f64) -> Duration {
        Duration::from_secs_f64(count * PACKET_BITS / self.estimate.max(1e3))
    }

    /// Recent mean rate. A link that is full delivers at a constant rate; but acknowledgements of
    /// flows with different round-trip times report different moments, and in front of the queue
    /// packets pass in bursts. The steadier of the two is nearer to the truth.
    fn delivered(&self) -> f64 {
        let measure = |which: usize| {
            let sum = |(time, bits, squares), (_, seconds, rates): &(Instant, f64, [f64; 2])| {
                let bits_now = rates[which] * seconds;
                (time + seconds, bits + bits_now, squares + bits_now * rates[which])
            };
            let (time, bits, squares) = self.history.iter().fold((0.0, 0.0, 0.0), sum);
            if time <= 0.0 {
                return (0.0, 0.0);
            }
            let mean: f64 = bits / time;
            (mean, squares / time - mean * mean)
        };
        let (acknowledged, passed) = (measure(0), measure(1));
        if passed.1 < acknowledged.1 { passed.0 } else { acknowledged.0 }
    }
}

/// Part of `rate` that windows govern. A try is a part of that, because windows grow by it.
fn governed(rate: f64, usage: f64) -> f64 {
    (rate - usage).max(rate / 20.0)
}
