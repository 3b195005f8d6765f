//! The controller: reads what the program counted, and gives each flow its window.
//!
//! Principle: at least ten times a second, free = C − U(t) is divided among the flows that are
//! active ([`shares`]); a share is a rate, and the window that makes it is the rate times the
//! smallest round-trip time of the flow. All that is used of a flow is the difference between two
//! readings of its counters.
//!
//! One controller governs one direction of one interface, one bottleneck.

use crate::capacity::{Capacity, Observation, PACKET_BITS, time_of};
use crate::config::{Config, ConfigError, Push};
use crate::cost;
use crate::flow::{Connection, MAX_WINDOW};
use crate::gauge::Flow;
use crate::key::{Direction, FlowId, Key};
use crate::responsiveness::Responsiveness;
use crate::rest::{self, Policy, Rest, RestKey, RestSetting};
use crate::rewrite::Totals;
use crate::rounding::Rounding;
use crate::segment::FULL_SEGMENT;
use crate::shares::{self, Claim, Formula};
use crate::slow_start::{self, Arrived, Growth};
use crate::stretch::Stretch;
use crate::usage::Usage;
use crate::yielding::Yielding;
use sheaf_stage::{Bitrate, Duration, Instant};
use std::collections::BTreeMap;

/// The decision of one step about one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The flow.
    pub flow: FlowId,
    /// Its window, bytes.
    pub value: u32,
}

/// The controller's state, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Status {
    /// Estimate of the capacity, bit/s.
    pub capacity: f64,
    /// U(t): traffic that windows do not govern, bit/s.
    pub usage: f64,
    /// n(t): flows that are active.
    pub active: usize,
    /// Flows in the table.
    pub flows: usize,
    /// Rate that a flow of the rest is held to, bit/s; `None` while the rest is left alone.
    pub rest_share: Option<f64>,
    /// Whether TCP has no windows, because the rest takes whatever TCP yields.
    pub competes: bool,
    /// By how much round-trip times are above their floor.
    pub queue: Duration,
    /// Round trips while bulk data is under way, in the mean of some seconds.
    pub responsiveness: Responsiveness,
}

/// The controller's state of one flow, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlowStatus {
    /// Rate that arrives, bit/s on the wire, averaged over a few round-trip times.
    pub rate: f64,
    /// Smallest recent round-trip time; `None` before the first sample.
    pub rtt: Option<Duration>,
    /// Whether its window limits it.
    pub is_held: bool,
}

/// Load of one direction, for the controller of the other one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Whether bulk data goes in it.
    pub is_bulk: bool,
    /// Whether more data goes in it than requests have.
    pub has_data: bool,
    /// Whether its capacity is known.
    pub is_found: bool,
    /// Whether it tries for more now, or lets the queue of a try run empty.
    pub is_trying: bool,
    /// Wait in its queue.
    pub queue: Duration,
}

/// Governs the flows of one direction.
#[derive(Debug)]
pub struct Controller {
    config: Config,
    direction: Direction,
    capacity: Capacity,
    usage: Usage,
    yielding: Yielding,
    stretch: Stretch,
    /// Flows among which most of the capacity was divided in the last step, and when their number
    /// changed last.
    wanting: usize,
    changed: Instant,
    /// Excess of U(t) so far in bits, as a number of at most 0.
    owed: f64,
    flows: BTreeMap<Key, Flow>,
    rest: BTreeMap<RestKey, Elastic>,
    /// U(t) without the flows that are held to a share.
    sparse: Usage,
    /// Voice among it.
    voice: Usage,
    /// Whether the capacity is known well enough to hold the rest to a part of it.
    is_sure: bool,
    rest_setting: RestSetting,
    totals: [Totals; 2],
    seen_totals: bool,
    last: Option<Instant>,
    steps: u64,
    status: Status,
    initial: u32,
    spare: u32,
    growth: Growth,
    /// Time of a byte by which windows open; 0 for any.
    pace: u32,
    /// Time since which windows do not grow because packets wait.
    stays: Option<Instant>,
    /// Rates of the last step, and the round-trip time of the flows that deliver most.
    arrived: Arrived,
    rtt: Duration,
    /// Acknowledgements take the air of a radio.
    shares_air: bool,
    /// Copies of acknowledgements come back.
    has_clock: bool,
    /// Load of the other direction, and of its own.
    other: Load,
    load: Load,
    /// Wait in the queue of the other direction.
    elsewhere: Duration,
    /// Some window can only shrink by acknowledgements of pairs.
    pairs: bool,
    /// Round-trip time assumed of a new flow: the mean of earlier flows.
    new_rtt: Duration,
    has_rtt: bool,
    decisions: Vec<Decision>,
    claims: Vec<Claim>,
    windows: Vec<f64>,
    rounding: Rounding,
    queues: Vec<(Duration, f64, Duration)>,
}

impl Controller {
    /// Governs data that goes in `direction`.
    pub fn new(config: Config, direction: Direction) -> Result<Controller, ConfigError> {
        config.check()?;
        Ok(Controller {
            capacity: Capacity::new(config.capacity),
            new_rtt: config.default_rtt,
            has_rtt: false,
            config,
            direction,
            usage: Usage::default(),
            yielding: Yielding::default(),
            stretch: Stretch::default(),
            wanting: 0,
            changed: Instant::ZERO,
            owed: 0.0,
            flows: BTreeMap::new(),
            rest: BTreeMap::new(),
            sparse: Usage::default(),
            voice: Usage::default(),
            is_sure: false,
            rest_setting: RestSetting::default(),
            totals: [Totals::default(); 2],
            seen_totals: false,
            last: None,
            steps: 0,
            status: Status::default(),
            initial: 0,
            spare: 0,
            growth: Growth::default(),
            pace: 0,
            stays: None,
            arrived: Arrived::default(),
            rtt: Duration::ZERO,
            shares_air: false,
            has_clock: false,
            other: Load::default(),
            load: Load::default(),
            elsewhere: Duration::ZERO,
            pairs: false,
            decisions: Vec::new(),
            claims: Vec::new(),
            windows: Vec::new(),
            rounding: Rounding::default(),
            queues: Vec::new(),
        })
    }

    /// Takes in what the controller of the other direction [has to show](Controller::load), so that
    /// waits in the other queue are not taken for waits in this one.
    pub fn observe_other(&mut self, other: Load) {
        self.other = other;
    }

    /// Takes in whether acknowledgements take the air of a radio, on which one of them costs about
    /// as much as half a full segment. Then [`Push::Auto`] does not ask for more of them.
    pub fn observe_air(&mut self, is_shared: bool) {
        self.shares_air = is_shared;
    }

    /// Takes in whether windows of uploads can be [paced](Controller::pace): what a clock withholds
    /// is given to copies of acknowledgements, which come back.
    pub fn observe_clock(&mut self, is_there: bool) {
        self.has_clock = is_there;
    }

    /// The load of its direction in the last step.
    pub fn load(&self) -> Load {
        self.load
    }

    /// The direction that it governs.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Takes in a connection's counters. A step forgets connections that were not observed since
    /// the last.
    pub fn observe(&mut self, key: Key, connection: &Connection) {
        let flow = self.flows.entry(key).or_insert_with(|| Flow::new(connection, self.direction));
        flow.observe(connection, self.direction);
        flow.seen = self.steps;
    }

    /// Takes in the counters of a flow of the rest. A step forgets flows that were not observed
    /// since the last.
    pub fn observe_rest(&mut self, key: RestKey, both: &[Rest; 2]) {
        let now = &both[self.direction.index()];
        let flow = self.rest.entry(key).or_insert_with(|| Elastic::new(now));
        flow.observe(now);
        flow.seen = self.steps;
    }

    /// Takes in that no packet passed since the last step, in no direction: every connection and
    /// every flow is as it was observed then. Only while [`Controller::is_settled`].
    pub fn observe_silence(&mut self) {
        let steps = self.steps;
        self.flows.values_mut().for_each(|flow| flow.seen = steps);
        self.rest.values_mut().for_each(|flow| flow.seen = steps);
    }

    /// Whether the last step changed no window, so that without packets the next observations are
    /// those of the last step.
    pub fn is_settled(&self) -> bool {
        self.steps > 0 && self.decisions.is_empty()
    }

    /// Takes in the counters of all packets in its direction.
    pub fn observe_totals(&mut self, totals: Totals) {
        if !self.seen_totals {
            self.totals[0] = totals;
            self.seen_totals = true;
        }
        self.totals[1] = totals;
    }

    /// Decides by the observations until `now`. Returns the windows that change. Call it at least
    /// ten times a second; a call at the same instant as the last changes nothing.
    pub fn step(&mut self, now: Instant) -> &[Decision] {
        self.decisions.clear();
        let last = self.last.replace(now);
        let seconds = last.map_or(0.0, |last| (now - last).as_secs_f64());
        let steps = self.steps;
        self.flows.retain(|_, flow| flow.seen == steps);
        self.rest.retain(|_, flow| flow.seen == steps);
        self.steps += 1;
        if seconds <= 0.0 {
            if last.is_none() {
                // Nothing is measured yet, but flows that begin now already need a window.
                self.divide(now);
            }
            self.settle();
            return &self.decisions;
        }
        let tcp = self.measure_flows(seconds);
        let elastic = self.measure_rest(seconds);
        let all = self.totals[1].wire.saturating_sub(self.totals[0].wire) as f64 * 8.0;
        // The counters are not all read at the same instant: what is missing in this step was
        // counted too much in the last one.
        let raw = all - tcp.passed + self.owed;
        let others = raw.max(0.0);
        self.owed = raw.min(0.0).max(-self.capacity.assumed() * seconds);
        self.usage.add(others, seconds);
        self.sparse.add((others - elastic).max(0.0), seconds);
        let voice = self.totals[1].voice.saturating_sub(self.totals[0].voice);
        self.voice.add(voice as f64 * 8.0, seconds);
        let governed = tcp.delivered / seconds;
        self.arrived = Arrived { all: governed + others / seconds, governed };
        let is_limited = self.estimate(all / seconds, seconds, now);
        self.load.has_data = tcp.passed >= DATA_FRAMES * PACKET_BITS;
        // The search for the capacity stretches windows itself. The plain formulas leave idle on
        // purpose what one flow does not use of its share.
        let is_limited = match self.config.formula {
            Formula::MaxMin => is_limited,
            _ => self.flows.values().all(|flow| !flow.has_arrived() || flow.is_held()),
        };
        if self.capacity.is_resting() {
            let free = (self.capacity.assumed() - self.usage.rate()).max(1.0);
            let used = (all - others) / seconds / free;
            let is_settled = now.saturating_since(self.changed) >= SETTLED;
            self.stretch.step(used, is_limited, is_settled, seconds);
        }
        let untouched = match self.config.rest {
            Policy::Leave => Some(self.usage.rate()),
            Policy::Mark => Some(self.sparse.rate()),
            Policy::Police => None,
        };
        if let Some(untouched) = untouched {
            let any = self.flows.values().any(|flow| flow.is_active(now, self.config.idle));
            self.yielding.step(untouched, self.capacity.assumed(), any, now);
        }
        self.divide(now);
        self.pairs = self.flows.values().any(|flow| flow.has_arrived() && flow.needs_pairs());
        self.settle();
        &self.decisions
    }

    /// The treatment of the rest now.
    pub fn rest(&self) -> RestSetting {
        self.rest_setting
    }

    /// The window in bytes for flows that begin now; 0 for none.
    pub fn initial(&self) -> u32 {
        self.initial
    }

    /// The growth of each window.
    pub fn growth(&self) -> Growth {
        self.growth
    }

    /// The time of a byte by which windows of uploads are to open, for
    /// [`Rewriter::set_pace`](crate::Rewriter::set_pace); 0 while they open as acknowledgements
    /// come.
    pub fn pace(&self) -> u32 {
        self.pace
    }

    /// Bytes that all flows which begin before the next step may be given together, beside one
    /// segment each.
    pub fn spare(&self) -> u32 {
        self.spare
    }

    /// Whether segments are to be pushed now: not while a window can only shrink by pairs.
    pub fn push(&self) -> bool {
        let wanted = match self.config.push {
            Push::Auto => {
                let frame = PACKET_BITS / self.capacity.assumed().max(1.0);
                frame >= PAIRS_ARE_FELT && !self.shares_air
            }
            Push::On => true,
            Push::Off => false,
        };
        wanted && !self.pairs
    }

    /// The estimate of the capacity.
    pub fn capacity(&self) -> Bitrate {
        self.capacity.estimate()
    }

    /// State of the flow `key` in the last step; `None` when it was not observed then.
    pub fn flow(&self, key: &Key) -> Option<FlowStatus> {
        let flow = self.flows.get(key)?;
        Some(FlowStatus { rate: flow.rate, rtt: flow.rtt, is_held: flow.is_held() })
    }

    /// State after the last step.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Brings each flow's rate and recent RTT up to date.
    fn measure_flows(&mut self, seconds: f64) -> Measured {
        let mut sum = Measured::default();
        for flow in self.flows.values_mut() {
            let (acked, passed) = flow.measure(seconds, self.config.default_rtt);
            // Windows do not govern bare acknowledgements of the other direction's data.
            if acked > 0.0 || flow.has_sent() {
                sum.passed += passed;
                sum.delivered += acked;
            }
        }
        sum
    }

    /// Brings the rate of each flow of the rest up to date. Returns the bits of those that are held
    /// to a share.
    fn measure_rest(&mut self, seconds: f64) -> f64 {
        let (least, policy) = (self.sparse_rate(), self.config.rest);
        let mut sum = 0.0;
        for flow in self.rest.values_mut() {
            let bits = flow.measure(seconds);
            if flow.is_bulk(least, policy) {
                sum += bits;
            }
        }
        sum
    }

    /// Rate below which a flow of the rest is never touched, bit/s.
    fn sparse_rate(&self) -> f64 {
        rest::SPARSE.min(self.capacity.assumed() * SPARSE_PART)
    }

    /// Estimates the capacity from the round-trip times. Returns whether windows limit the flows.
    fn estimate(&mut self, passed: f64, seconds: f64, now: Instant) -> bool {
        let Arrived { all: delivered, governed } = self.arrived;
        self.queues.clear();
        let (mut held, mut all, mut flight) = (0.0, 0.0, 0.0);
        let pair = time_of(ACKNOWLEDGED, delivered.min(self.capacity.assumed()));
        for flow in self.flows.values() {
            if !flow.has_arrived() {
                continue;
            }
            if let Some(((floor, recent), wait)) = flow.rtt.zip(flow.recent).zip(flow.wait(pair)) {
                flight += flow.rate * recent.as_secs_f64();
                self.queues.push((wait, flow.rate, floor));
            }
            all += flow.rate;
            // A window that still grows does not show that a larger one is needed. One that stays
            // because packets wait holds its flow though it was given more.
            let is_limited = match slow_start::is_none(self.growth.bytes) {
                true => flow.is_held() || flow.fills_growing(),
                false => flow.is_held() && !flow.grows(flow.set, now),
            };
            if is_limited {
                held += flow.rate;
            }
        }
        let median = median(&mut self.queues);
        let (total, rtt) = median.map_or((Duration::ZERO, Duration::ZERO), |m| (m.0, m.2));
        let longest =
            self.queues.iter().map(|(queue, _, floor)| *queue + *floor).max().unwrap_or_default();
        let (limited, seen) = (held > all / 2.0, all > 0.0);
        let is_bulk = flight >= BULK_FRAMES * PACKET_BITS && governed >= delivered * BULK_PART;
        let loaded = limited || is_bulk;
        let usage = self.usage.rate();
        let (own, queue, elsewhere) = self.attribute(total);
        let part = 1.0 - libm::exp(-seconds / ELSEWHERE);
        self.elsewhere = Duration::from_secs_f64(
            self.elsewhere.as_secs_f64() * (1.0 - part) + elsewhere.as_secs_f64() * part,
        );
        // What a search has found is true while TCP goes on to show it.
        self.is_sure = self.capacity.is_found() && (loaded || !self.capacity.is_auto());
        let is_bulk = loaded && governed >= delivered * BULK_PART && all > 0.0;
        let is_found = self.capacity.is_found();
        self.load = Load { is_bulk, is_found, queue: own, ..self.load };
        self.status.queue = total;
        self.rtt = rtt;
        if self.load.is_bulk {
            self.status.responsiveness.add(rtt + total, total, seconds);
        }
        let seen = Observation {
            delivered,
            passed,
            usage,
            queue,
            rtt,
            longest,
            limited,
            both: self.other.is_bulk && self.has_clock,
            clusters: self.has_clusters(),
            other_tries: self.has_clock && self.other.is_trying,
            loaded,
            seen,
        };
        self.capacity.step(seen, now);
        // Without bulk data the search stands still in the phase that it was in.
        self.load.is_trying =
            self.load.is_bulk && self.capacity.is_found() && !self.capacity.is_resting();
        limited
    }

    /// Whether data and acknowledgements of both ways hold each other up, in clusters of up to a
    /// round trip: a clock prevents that, once it knows the rate of the upload's link.
    fn has_clusters(&self) -> bool {
        let is_known = self.direction == Direction::Out || self.other.is_found;
        self.other.is_bulk && !(self.has_clock && is_known)
    }

    /// Divides a wait between the queue of this direction and that of the other one. Round trips
    /// have both; the time stamps of downloads show how long data took to come here alone. Returns
    /// the wait here, the part of it that stands, and the wait there.
    fn attribute(&mut self, queue: Duration) -> (Duration, Duration, Duration) {
        // Only downloads show when it is not theirs.
        let may_be = self.direction == Direction::In && self.other.has_data;
        if !self.other.is_bulk && !may_be {
            return (queue, queue, Duration::ZERO);
        }
        let (own, stands) = match self.direction {
            Direction::Out => [queue.saturating_sub(self.other.queue); 2].into(),
            Direction::In => {
                self.queues.clear();
                let arrived = self.flows.values().filter(|flow| flow.has_arrived());
                let late = arrived.filter_map(|flow| {
                    let [mean, least] = flow.late()?;
                    Some((mean, flow.rate, least))
                });
                self.queues.extend(late);
                median(&mut self.queues)
                    .map_or((queue, queue), |(mean, _, least)| (mean.min(queue), least.min(queue)))
            }
        };
        let most = match self.has_clock && self.capacity.is_auto() {
            true => MOST_WHILE_SEARCHED,
            false => MOST_ELSEWHERE,
        };
        (own, stands, (queue - own).min(most))
    }

    /// Divides what is free.
    fn divide(&mut self, now: Instant) {
        let capacity = self.capacity.assumed();
        // A flood of UDP must not end all TCP.
        let least = capacity * LEAST_FREE;
        let free = match self.yielding.makes_room(now) {
            true => least,
            false => (capacity - self.usage.rate()).max(least),
        };
        let competes = self.yielding.competes();
        let (idle, default_rtt) = (self.config.idle, self.config.default_rtt);
        self.flows.values_mut().for_each(|flow| flow.grow_older(now));
        let max_min = self.config.formula == Formula::MaxMin;
        // Segments come in pairs, as every second one is acknowledged (RFC 9293 3.8.6.3): even with
        // no queue one of them waits for the other.
        let pair = time_of(1.0, capacity);
        let slack = match self.capacity.is_auto() {
            true => pair,
            false => self.config.slack.max(pair),
        };
        let elsewhere = self.elsewhere;
        // Flows that begin together share what there is. Beside one that is held they count for
        // what they have, or the objects of pages would take its share for as long as they load.
        let any_held = self.flows.values().any(|flow| flow.is_active(now, idle) && flow.is_held());
        self.claims.clear();
        self.claims.extend(self.flows.values().map(|flow| Claim {
            rtt: flow.rtt.unwrap_or(default_rtt) + slack + elsewhere,
            demand: match (flow.is_active(now, idle), max_min && !flow.is_held()) {
                (false, _) => 0.0,
                (true, false) => f64::INFINITY,
                (true, true) if !any_held && flow.fills_growing() => f64::INFINITY,
                (true, true) => flow.demand(now).max(PAUSED),
            },
        }));
        shares::divide(self.config.formula, free, &self.claims, &mut self.windows);
        let active = self.claims.iter().filter(|claim| claim.demand > 0.0).count();
        let felt = free * FELT;
        let wanting = self.claims.iter().filter(|claim| claim.demand > felt).count();
        if wanting != self.wanting {
            (self.wanting, self.changed) = (wanting, now);
        }
        let fixed = matches!(self.config.formula, Formula::Fixed(_));

        self.rounding.begin();
        let least = f64::from(self.config.min_segments);
        // Flows that have sent nothing yet take nothing from others, but many may begin at once.
        let beginners = self.flows.values().filter(|flow| flow.is_beginner(now)).count();
        let part = active.max(1) as f64 / (active.max(1) + beginners) as f64;
        for ((flow, window), claim) in self.flows.values_mut().zip(&self.windows).zip(&self.claims)
        {
            let part = if flow.is_beginner(now) { part } else { 1.0 };
            let window = match competes {
                true => {
                    capacity / 8.0 * flow.recent.unwrap_or(default_rtt).as_secs_f64() * COMPETING
                }
                false => *window * self.stretch.factor() * part,
            };
            let wish = flow.segments(window);
            self.rounding.wish(&mut flow.rounding, wish, least, claim.demand > 0.0);
        }
        self.rounding.divide();
        let mut growing = 0;
        for (number, (key, flow)) in self.flows.iter_mut().enumerate() {
            let segments = self.rounding.segments(number, &mut flow.rounding);
            let window = if fixed { self.windows[number] as u32 } else { flow.window(segments) };
            growing += usize::from(flow.grows(window, now));
            if window != flow.set {
                let flow = FlowId { key: *key, direction: self.direction };
                self.decisions.push(Decision { flow, value: window });
            }
        }
        if !self.claims.is_empty() {
            let sum: f64 = self.claims.iter().map(|claim| claim.rtt.as_secs_f64()).sum();
            self.new_rtt = Duration::from_secs_f64(sum / self.claims.len() as f64);
            self.has_rtt = true;
        }
        self.begin(free, active, growing, now);
        self.pace = self.paced(free, active);
        self.divide_rest();
        self.status.capacity = self.capacity.estimate().as_bps() as f64;
        self.status.usage = self.usage.rate();
        self.status.active = active;
        self.status.competes = self.yielding.competes();
        self.status.flows = self.flows.len();
    }

    /// Decides with how much flows begin, and how fast windows grow, where `free` bit/s are divided
    /// among so many `active` flows, of which some have `growing` windows.
    fn begin(&mut self, free: f64, active: usize, growing: usize, now: Instant) {
        let rate = free / (active + 1) as f64;
        let bytes = |rtt: Duration| (rate * rtt.as_secs_f64() / 8.0) as u32;
        let least = self.config.min_segments * FULL_SEGMENT;
        // A share of one flow more. It is in the SYN already, so it holds from the first flight
        // on, where ten segments would leave at once otherwise (RFC 6928).
        let initial = bytes(self.new_rtt).clamp(least, MAX_WINDOW);
        let mut wait = 0;
        let (initial, spare, bytes) = match self.config.formula {
            Formula::Fixed(window) => (window, u32::MAX, 0),
            // As large as they come.
            _ if self.yielding.competes() => (0, u32::MAX, 0),
            Formula::MaxMin => {
                // Without a clock, data and acknowledgements of both ways hold each other up: waits
                // show nothing.
                let is_blind = self.other.is_bulk && !self.has_clock;
                let (growth, first) = match self.capacity.is_found() || is_blind {
                    // A round trip has both queues.
                    true if self.other.has_data && self.has_clock => {
                        [slow_start::known(free / 2.0); 2].into()
                    }
                    true => [slow_start::known(free); 2].into(),
                    false => {
                        let estimate = self.capacity.estimate().as_bps() as f64;
                        let grown = |wait| {
                            let (way, rtt) = (self.direction, self.rtt);
                            slow_start::unknown(way, self.arrived, estimate, rtt, wait)
                        };
                        let growth = grown(self.load.queue);
                        let stays = slow_start::is_none(growth.0);
                        self.stays = stays.then(|| self.stays.unwrap_or(now));
                        match self.stays {
                            // The wait is that of others, which no window changes.
                            Some(since) if now - since > LONGEST_STAY => grown(Duration::ZERO),
                            _ => {
                                wait = slow_start::longest_wait(self.arrived, self.rtt);
                                growth
                            }
                        }
                    }
                };
                (initial, first.max(least), slow_start::each(growth, growing))
            }
            // The published formulas give a flow its share at once.
            _ => {
                let rtt = if self.has_rtt { self.new_rtt } else { self.new_rtt.min(FIRST_RTT) };
                (initial, bytes(rtt).max(least), 0)
            }
        };
        (self.initial, self.spare, self.growth) = (initial, spare, Growth { bytes, wait });
    }

    /// The time of a byte by which windows open, where `free` bit/s are divided among so many
    /// `active` flows; 0 for any.
    fn paced(&self, free: f64, active: usize) -> u32 {
        // While an upload alone is searched for, nothing is known that could be its rate.
        let is_known = self.other.has_data || self.capacity.is_found();
        let is_ours = self.config.formula == Formula::MaxMin && !self.yielding.competes();
        let is_upload = self.direction == Direction::Out && self.load.has_data;
        if !(self.has_clock && is_upload && is_known && is_ours) {
            return 0;
        }
        let least = active as f64 * f64::from(self.config.min_segments * FULL_SEGMENT);
        let room = match least > free / 8.0 * self.new_rtt.as_secs_f64() {
            true => CROWDED_ROOM,
            false => PACE_ROOM,
        };
        cost::of(free * DATA_PART * room)
    }

    /// Gives the flows of the rest the share of a flow that wants all it can get, beside TCP, whose
    /// claims stand. TCP itself has what the rest leaves, until that is down to its share.
    fn divide_rest(&mut self) {
        let policy = self.config.rest;
        if policy == Policy::Leave {
            return;
        }
        let (capacity, least) = (self.capacity.assumed(), self.sparse_rate());
        let free = (capacity - self.sparse.rate()).max(capacity * LEAST_FREE);
        let bulk = self.rest.values().filter(|flow| flow.is_bulk(least, policy));
        self.claims.extend(bulk.map(|flow| Claim {
            rtt: self.config.default_rtt,
            demand: flow.usage.rate() * REST_ROOM,
        }));
        let level = match self.is_sure {
            true => (shares::level(free, &self.claims) * rest::DRAIN).max(least),
            false => f64::INFINITY,
        };
        self.rest_setting = RestSetting {
            cost: cost::of(level),
            drops: policy == Policy::Police,
            voice: self.voice.rate() <= capacity * rest::VOICE,
        };
        self.status.rest_share = self.is_sure.then_some(level);
    }

    /// Ends a step: the present counters become those of the last step.
    fn settle(&mut self) {
        for flow in self.flows.values_mut() {
            flow.settle();
        }
        self.totals[0] = self.totals[1];
    }
}

/// Time for which windows stay what they are because packets wait while the capacity is searched
/// for. Their own queue is gone by then, or has shown the capacity; it is that of others.
const LONGEST_STAY: Duration = Duration::from_secs(2);
/// Part of a full frame that is data, where there are time stamps.
const DATA_PART: f64 = 1448.0 / 1514.0;
/// Rate at which windows open, as a multiple of what is free: no time may be lost that an
/// acknowledgement came late.
const PACE_ROOM: f64 = 1.02;
/// The same where the smallest windows of all fill more than the link: what stands in its queue
/// runs empty, until each has the segment that always fits.
const CROWDED_ROOM: f64 = 0.98;
/// Part of the capacity that is always divided among TCP flows.
const LEAST_FREE: f64 = 1.0 / 20.0;
/// Window of a flow that competes with the rest, as a multiple of what fills the link over its
/// round-trip time: it limits nothing, and can be taken back within a second or two, as no window
/// that was given may be withdrawn (RFC 9293, 3.8.6).
const COMPETING: f64 = 2.0;
/// Full frames of data in a step, which requests of a browser seldom have, from which on a wait may
/// be in the other direction's queue: before it counts as bulk data an upload that begins has made
/// a queue of 30 ms, which would be taken for the download's.
const DATA_FRAMES: f64 = 3.0;
/// Demand of a flow that is active and has paused, bit/s.
const PAUSED: f64 = 1.0;
/// Part of what is free that a flow wants at least whose coming and going leaves the link idle for
/// a moment: a link counts as idle from as much on.
const FELT: f64 = 0.015;
/// Time for which the same flows share the link before what they leave idle counts: means of the
/// rates are of these flows by then.
const SETTLED: Duration = Duration::from_millis(500);
/// Demand of a flow of the rest, which no window limits, as a multiple of its rate: room to speed
/// up until the next step.
const REST_ROOM: f64 = 1.25;
/// Part of the capacity below which a flow of the rest is sparse at any rate.
const SPARSE_PART: f64 = 0.25;
/// Full frames in flight, and part of all traffic, from which data that no window limits can have
/// filled the link. Requests of a browser have less, and where acknowledgements of downloads are
/// most of what passes, their rate is not the link's.
const BULK_FRAMES: f64 = 8.0;
const BULK_PART: f64 = 0.25;
/// Segments for which a receiver has one acknowledgement (RFC 9293 3.8.6.3). The time that they
/// take on the link passes at the receiver, too, and is all that waits there because of the link.
const ACKNOWLEDGED: f64 = 2.0;
/// Round-trip time for which flows that begin together share the link while none is known: that of
/// near servers, where what is too much arrives at once. Alone, each has the default.
const FIRST_RTT: Duration = Duration::from_millis(30);
/// Seconds that a full frame takes, from which on a pair of them delays others noticeably: that of
/// 12 Mbit/s.
const PAIRS_ARE_FELT: f64 = 1e-3;

/// Time constant of the mean wait in the other direction's queue, seconds: some of its bursts.
const ELSEWHERE: f64 = 0.5;
/// Longest wait in the other queue that windows make up for. More would be a queue here as soon as
/// the other one is gone.
const MOST_ELSEWHERE: Duration = Duration::from_millis(15);
/// The same where the capacity is searched for, with a clock, which leaves no more: each try makes
/// a queue, for which the other direction's windows would make up by another one.
const MOST_WHILE_SEARCHED: Duration = Duration::from_millis(5);

/// The entry in the middle of the bytes, because one flow with a slow receiver is no sign of a
/// queue.
fn median(queues: &mut [(Duration, f64, Duration)]) -> Option<(Duration, f64, Duration)> {
    queues.sort_unstable_by_key(|(queue, ..)| *queue);
    let half = queues.iter().map(|(_, rate, _)| rate).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    let mut all = queues.iter().copied();
    all.find(|(_, rate, _)| {
        sum += rate;
        sum >= half
    })
}

/// A flow of the rest between two steps.
#[derive(Clone, Copy, Debug)]
struct Elastic {
    /// Bytes and packets that can carry a mark at the last step, and now.
    before: (u64, u32),
    after: (u64, u32),
    usage: Usage,
    is_capable: bool,
    seen: u64,
}

impl Elastic {
    fn new(now: &Rest) -> Elastic {
        let counters = (now.wire, now.capable);
        let usage = Usage::default();
        Elastic { before: counters, after: counters, usage, is_capable: false, seen: 0 }
    }

    fn observe(&mut self, now: &Rest) {
        self.after = (now.wire, now.capable);
        // Its place in the table went to others meanwhile.
        if self.after.0 < self.before.0 {
            self.before = (0, 0);
        }
    }

    /// Brings the rate up to date; returns the bits since the last step.
    fn measure(&mut self, seconds: f64) -> f64 {
        let bits = (self.after.0 - self.before.0) as f64 * 8.0;
        self.usage.add(bits, seconds);
        if bits > 0.0 {
            self.is_capable = self.after.1 != self.before.1;
        }
        self.before = self.after;
        bits
    }

    /// Whether it is held to a share by `policy`, if it has more than `least` bit/s.
    fn is_bulk(&self, least: f64, policy: Policy) -> bool {
        self.usage.rate() >= least && (self.is_capable || policy == Policy::Police)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    /// Bits that passed.
    passed: f64,
    /// Bits that arrived.
    delivered: f64,
}
