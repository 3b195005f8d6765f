//! The capacity of the bottleneck: given, or found by itself.
//!
//! Principle: the sum of the windows is the assumed capacity times the round-trip time. If the
//! assumption is too high, the rest stands in the bottleneck's queue: round-trip times leave their
//! floor, and the delivery rate meanwhile *is* the capacity. If the assumption is too low,
//! round-trip times stay at the floor. So the assumption is raised a little from time to time, and
//! faster as long as nothing happens. When the queue shows, the delivery rate becomes the estimate,
//! and the queue is left to run empty. No packet is sent for it. (As in BBR, Cardwell et al. 2016:
//! the two edges are seen at different times, the rate with a queue and the RTT without.)
//!
//! Requests and acknowledgements alone do not fill a link, so without bulk data the estimate stays.

use sheaf_stage::{Bitrate, Duration, Instant};
use std::collections::VecDeque;

/// The source of the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The user gives it, link headers included.
    Given(Bitrate),
    /// The controller finds it between two bounds.
    Auto {
        /// First assumption; the nearest bound where it is outside of them.
        start: Bitrate,
        /// It is never taken to be less.
        least: Bitrate,
        /// It is never taken to be more.
        most: Bitrate,
    },
}

impl Source {
    /// A capacity that is found, without bounds that matter: a search from 10 Mbit/s.
    pub const AUTO: Source = Source::Auto {
        start: Bitrate::from_mbps(10),
        // A modem's rate: below it a full packet takes longer than a step of the controller.
        least: Bitrate::from_kbps(100),
        // Above any interface's.
        most: Bitrate::from_mbps(1_000_000),
    };

    /// The same between these bounds, where they are given and it is found.
    pub fn within(self, lower: Option<Bitrate>, upper: Option<Bitrate>) -> Source {
        match self {
            Source::Auto { start, least, most } => {
                // A bound alone takes the other one along where that excludes it.
                let (lower, upper) = match (lower, upper) {
                    (Some(lower), None) => (lower, most.max(lower)),
                    (None, Some(upper)) => (least.min(upper), upper),
                    (lower, upper) => (lower.unwrap_or(least), upper.unwrap_or(most)),
                };
                Source::Auto { start, least: lower, most: upper }
            }
            given => given,
        }
    }
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
    /// Whether bulk data goes the other way, too, and a clock keeps the queues of both short.
    pub both: bool,
    /// Whether data and acknowledgements come in clusters for that, of up to a round trip, which
    /// are no queue that stands.
    pub clusters: bool,
    /// Whether the other direction tries for more now, which is felt here, too.
    pub other_tries: bool,
    /// Whether flows with data made what is seen: requests and acknowledgements do not fill a link.
    pub loaded: bool,
    /// Whether there were flows to observe.
    pub seen: bool,
}

/// Time after the longest round-trip time for which the effect of a change is watched.
const ROUND: Duration = Duration::from_millis(200);
/// The same while nothing was found yet: a step of the controller, or a fast path would be held
/// back for seconds.
const SEARCH_ROUND: Duration = Duration::from_millis(100);
/// Part of the assumption that must arrive for that, or it is several times as long.
const USED: f64 = 0.75;
const UNUSED_ROUNDS: u32 = 4;
/// Shortest time over which a rate is measured: two steps of the controller.
const MEASURE: Duration = Duration::from_millis(200);
/// Time for which the estimate rests before it is tried again, and the same where the last try
/// found another one: a link that changes goes on changing.
const REST: Duration = Duration::from_millis(600);
const SHORT_REST: Duration = Duration::from_millis(100);
/// Part of the estimate by which it must differ from the one before to count as another.
const CHANGE: f64 = 0.1;
/// Part of the assumption that must arrive before more is tried while bulk data goes both ways.
const COMES: f64 = 0.85;
/// First raise, and by how much each raise is larger than the one before.
const RAISE: f64 = 0.04;
const FASTER: f64 = 3.0;
const MAX_RAISE: f64 = 0.5;
/// The same beside bulk data that goes the other way, as a round trip has the queues of both.
/// Without a clock they are long in any case.
const MAX_RAISE_BESIDE: f64 = 0.08;
/// Each raise while nothing was found yet: a fast path would be held back for seconds with less,
/// and with more a slow one has a queue of several round trips for a moment.
const SEARCH_RAISE: f64 = 2.0;
/// While the queue runs empty, this part of what windows govern is left unused.
const DRAIN: f64 = 0.08;
/// Part of the estimate from which a try in vain is distinguished from the noise of a measurement.
const PLATEAU: f64 = 0.1;
/// Part of the estimate that counts as governed at least. With less, a try beside UDP would be too
/// small to be felt, and the search would stand still.
const LEAST_GOVERNED: f64 = 0.25;
/// Packets by which a rate is known to about 2 %.
const MEASURED: f64 = 80.0;
/// Bits of a full packet, to express a queue as packets.
pub(crate) const PACKET_BITS: f64 = 1514.0 * 8.0;
/// Least rate that a time is computed for, in bit/s: a rate that is not known yet is 0.
const LEAST_RATE: f64 = 1e3;

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
    /// Time for which it rests now.
    rest: Duration,
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
            Source::Given(rate) => rate,
            Source::Auto { start, least, most } => start.min(most).max(least),
        };
        let rate = (rate.as_bps() as f64).max(1.0);
        Capacity {
            source,
            estimate: rate,
            assumed: rate,
            raise: SEARCH_RAISE,
            is_found: false,
            phase: Phase::Raised,
            since: Instant::ZERO,
            rest: REST,
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

    /// Whether the capacity was reached once; a given one counts as found.
    pub fn is_found(&self) -> bool {
        self.is_found || !self.is_auto()
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
        let clusters = if seen.clusters { seen.rtt / 2 } else { Duration::ZERO };
        let least = self.visible(seen.rtt) + self.threshold(seen.rtt) * (sure - 1);
        let full = seen.queue > least + clusters;
        if self.phase == Phase::Resting && !full && !seen.clusters {
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
        let is_long = seen.queue > least + clusters + seen.rtt / 2;
        let quick = MEASURE.max(self.packets(MEASURED)).max(seen.longest);
        let wait = if is_long { quick } else { seen.longest + measure };
        let measured = full && seen.loaded && standing >= wait;
        if let Some(since) = self.full_since.filter(|_| measured && is_long) {
            // What came before the queue was not the link's rate.
            self.history.retain(|(at, ..)| *at > since);
        }
        // Where data and acknowledgements hold each other up, larger windows make more of that,
        // unless what they allow arrives.
        let comes = !seen.clusters || self.delivered() >= COMES * self.assumed;
        let elapsed = now - self.since;
        // Senders that still grow do not use the last raise yet. Those that wait for delayed
        // acknowledgements never will.
        let arrives = seen.delivered.max(seen.passed) >= USED * self.assumed;
        let round = match (self.is_found, arrives) {
            (true, _) => ROUND,
            (false, true) => SEARCH_ROUND,
            (false, false) => SEARCH_ROUND * UNUSED_ROUNDS,
        };
        // A packet is on the link.
        let is_empty = seen.queue <= self.packets(1.0);
        match self.phase {
            Phase::Raised | Phase::Resting if measured => self.found(seen.usage, now),
            Phase::Raised if !comes && self.is_found && elapsed >= seen.longest + measure => {
                self.enter(Phase::Resting, self.estimate, now);
            }
            Phase::Raised if elapsed >= seen.longest + round && seen.limited && comes && !full => {
                let (tried, came) =
                    (self.assumed - self.estimate, self.delivered() - self.estimate);
                let extra = tried * seen.rtt.as_secs_f64();
                // More than a segment, so that windows did grow; and the queue that it would make.
                let is_felt = extra >= 1.5 * PACKET_BITS && tried >= self.estimate * PLATEAU;
                let hides = extra <= self.estimate * self.visible(seen.rtt).as_secs_f64();
                if !self.is_found || !is_felt || !hides || came >= tried / 4.0 {
                    // The try got through, so the link has at least the rate delivered.
                    self.estimate = self.bounded(self.estimate.max(self.delivered()));
                    self.raise(&seen, now);
                } else if elapsed >= seen.longest + measure {
                    // The added data did not arrive: it stands in a queue too short to be seen.
                    self.drain(seen.usage, now);
                }
            }
            // A shorter queue than can be seen would stand from one try to the next, and count as
            // part of the path once the smallest round trip is older than RTT_AGE.
            Phase::Draining
                if is_empty
                    || (!full && elapsed >= seen.rtt * 2 + ROUND)
                    || elapsed >= seen.longest * 2 + ROUND =>
            {
                self.enter(Phase::Resting, self.estimate, now);
            }
            Phase::Resting
                if elapsed >= self.rest && seen.limited && comes && !full && !seen.other_tries =>
            {
                // Where rounds are late by themselves, a try has to be felt in spite of that.
                let is_noisy = self.noise > self.threshold(seen.rtt);
                let hidden = self.noise.as_secs_f64() / seen.rtt.as_secs_f64().max(1e-3);
                self.raise = match self.rest {
                    // What has just become slower soon becomes faster.
                    SHORT_REST => RAISE * FASTER,
                    _ if is_noisy => hidden.clamp(RAISE, MAX_RAISE),
                    _ => RAISE,
                };
                self.raise(&seen, now);
            }
            _ => {}
        }
    }

    fn raise(&mut self, seen: &Observation, now: Instant) {
        let base = self.assumed.max(self.estimate);
        let most = match self.is_found {
            true if seen.both => MAX_RAISE_BESIDE,
            true => MAX_RAISE,
            false => SEARCH_RAISE,
        };
        let assumed = self.bounded(base + governed(base, seen.usage) * self.raise.min(most));
        self.raise = (self.raise * FASTER).min(most);
        self.enter(Phase::Raised, assumed, now);
    }

    /// Takes the delivery rate while a queue stands for the capacity of the link.
    fn found(&mut self, usage: f64, now: Instant) {
        let before = self.estimate;
        self.estimate = self.bounded(self.delivered().max(1.0));
        let has_changed = (self.estimate / before - 1.0).abs() > CHANGE;
        self.rest = if has_changed && self.is_found { SHORT_REST } else { REST };
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

    /// `rate` within the bounds.
    fn bounded(&self, rate: f64) -> f64 {
        match self.source {
            Source::Given(_) => rate,
            Source::Auto { least, most, .. } => {
                rate.min(most.as_bps() as f64).max(least.as_bps() as f64)
            }
        }
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
        time_of(count, self.estimate)
    }

    /// Recent mean rate. A link that is full delivers at a constant rate; but acknowledgements of
    /// flows with different round-trip times report different moments, and in front of the queue
    /// packets pass in bursts. The steadier of the two is nearer to the truth.
    fn delivered(&self) -> f64 {
        let measure = |which: usize| {
            let sum = |(time, bits, squares): (f64, f64, f64),
                       (_, seconds, rates): &(Instant, f64, [f64; 2])| {
                let bits_now = rates[which] * seconds;
                (time + seconds, bits + bits_now, squares + bits_now * rates[which])
            };
            let (time, bits, squares) = self.history.iter().fold((0.0, 0.0, 0.0), sum);
            if time <= 0.0 {
                return (0.0, 0.0);
            }
            let mean = bits / time;
            (mean, squares / time - mean * mean)
        };
        let (acknowledged, passed) = (measure(0), measure(1));
        if passed.1 < acknowledged.1 { passed.0 } else { acknowledged.0 }
    }
}

/// Part of `rate` that windows govern. A try is a part of that, because windows grow by it.
fn governed(rate: f64, usage: f64) -> f64 {
    (rate - usage).max(rate * LEAST_GOVERNED)
}

/// The time that `count` full packets take at `rate` bit/s.
pub(crate) fn time_of(count: f64, rate: f64) -> Duration {
    Duration::from_secs_f64(count * PACKET_BITS / rate.max(LEAST_RATE))
}
