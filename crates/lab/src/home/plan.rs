//! Scenarios and treatments of a home access point.

use crate::experiment::Engine;
use crate::fault::Fault;
use crate::plan_file::PlanFile;
use crate::tcp::Congestion;
use serde::{Deserialize, Serialize};
use sheaf_stage::{Duration, Instant};

/// A plan of this kind.
pub type Plan = PlanFile<Scenario, Treatment>;

/// A home: its bottleneck and the traffic through it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// Rate of the bottleneck, Mbit/s with link headers.
    pub rate: f64,
    /// Packets that its queue holds.
    pub queue: u32,
    /// Round-trip times, ms; flows have them in turn. The streams have the first.
    pub rtts: Vec<f64>,
    /// Bytes of data in a TCP segment; 1448 where it is not given.
    pub segment: Option<u32>,
    /// Congestion control of the senders.
    pub congestion: Congestion,
    /// Direction of bulk data and streams.
    pub direction: DirectionName,
    /// Start of bulk transfers, in seconds of the plan's duration.
    pub start: f64,
    /// Streams of UDP.
    #[serde(rename = "stream", default)]
    pub streams: Vec<Stream>,
    /// Limit of the first transfer's application, Mbit/s of data; without it all take
    /// what they get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited: Option<f64>,
    /// Rates that the bottleneck gets later.
    #[serde(rename = "change", default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// The sweep: bulk transfers.
    pub flows: Vec<u32>,
    /// Names of the treatments to compare.
    pub treatments: Vec<String>,
}

/// A change of the bottleneck while everything runs.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Time of the change, in seconds of the plan's duration.
    pub at: f64,
    /// Its rate from then on, Mbit/s with link headers.
    pub rate: f64,
}

/// A stream of equal packets at equal intervals.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// Role of the stream.
    pub role: Role,
    /// Time between two packets, ms.
    pub interval: f64,
    /// Payload of UDP.
    pub bytes: u32,
    /// Start, in seconds of the plan's duration.
    pub start: f64,
}

/// The role of a stream, which decides its measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A constant stream: losses.
    Stream,
    /// A game: losses, delay, and the time between its packets.
    Game,
    /// A call with G.711: losses and the rating of the E-model.
    Call,
}

impl Role {
    /// All, in the order of the metrics.
    pub const ALL: [Role; 3] = [Role::Stream, Role::Game, Role::Call];

    /// Its name in plans and curves.
    pub fn name(self) -> &'static str {
        match self {
            Role::Stream => "stream",
            Role::Game => "game",
            Role::Call => "call",
        }
    }
}

/// The direction of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectionName {
    /// From the server to the client.
    Down,
    /// From the client to the server.
    Up,
}

/// The queue of the bottleneck and the window control of the access point.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Treatment {
    /// Its name.
    pub name: String,
    /// Words for `sheaf window`, such as "formula 2"; without it the program is not there.
    pub window: Option<String>,
    /// A published window control in place of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyName>,
    /// Source of the capacity; the bottleneck's rate where it is not given.
    pub capacity: Option<CapacityName>,
    /// The bottleneck's queue.
    #[serde(default)]
    pub queue: QueueName,
    /// Packets that the queue holds, instead of the scenario's.
    pub limit: Option<u32>,
}

/// A published window control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// Formula 1 of Padova 2010 as published, in virtual time alone.
    Slus,
}

/// The source of the capacity for `sheaf window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityName {
    /// The capacity is given.
    Given,
    /// `sheaf window` finds the capacity.
    Auto,
}

/// A queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueName {
    /// One queue of the scenario's number of packets.
    #[default]
    Fifo,
    /// Flow queues with CoDel (RFC 8290).
    FqCodel,
    /// The kernel's token bucket filter with a queue of the same number of full packets; in virtual
    /// time the same queue without a bucket.
    Tbf,
}

/// Transfers of a point at most.
const MOST_FLOWS: u32 = 1000;
/// Bytes of a full frame, in which the queue of a token bucket filter is counted.
pub(super) const FULL_FRAME: u32 = 1514;
/// Time between the starts of two transfers: a hundred in the same instant are a flood, and one
/// after the other's handshake takes longer than what is measured.
pub(super) const SPACING: Duration = Duration::from_millis(20);
/// Time between two writes of an application that sends at a rate of its own.
pub(super) const WRITES: Duration = Duration::from_millis(10);
/// Time after the end for packets that wait in the bottleneck, beside the round-trip time.
const LAST: Duration = Duration::from_millis(500);

/// Bytes of data that an application of `mbps` Mbit/s writes at a time.
pub(super) fn written(mbps: f64) -> u64 {
    (mbps * 1e6 / 8.0 * WRITES.as_secs_f64()) as u64
}

/// Times of one point, by either engine's clock.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Start of the run.
    pub started: Instant,
    /// Start of the first transfer.
    pub bulk: Instant,
    /// Time from which everything runs.
    pub together: Instant,
    /// Time from which rates and queues count, after the warm-up.
    pub counted: Instant,
    /// End of the measurement.
    pub until: Instant,
    /// Time at which the last packets of the streams have arrived.
    pub last: Instant,
    /// Seconds that a second of the plan takes.
    pub scale: f64,
}

impl Times {
    /// The time of `seconds` of the plan.
    pub fn at(&self, seconds: f64) -> Instant {
        self.started + Duration::from_secs_f64(seconds * self.scale)
    }
}

impl Scenario {
    /// The same scenario with a bottleneck of `rate` Mbit/s.
    pub(super) fn with_rate(&self, rate: f64) -> Scenario {
        Scenario { rate, ..self.clone() }
    }

    /// Rate of the bottleneck, kbit/s.
    pub(super) fn kbps(&self) -> u64 {
        (self.rate * 1e3).round() as u64
    }

    /// Packets that the bottleneck's queue holds under `treatment`.
    pub(super) fn limit(&self, treatment: &Treatment) -> u32 {
        treatment.limit.unwrap_or(self.queue)
    }
}

impl Treatment {
    /// Whether it exists on `engine`.
    pub(super) fn runs_on(&self, engine: Engine) -> bool {
        engine == Engine::Virtual || self.policy.is_none()
    }
}

impl Plan {
    /// Scenario `name`.
    pub(super) fn scenario(&self, name: &str) -> Option<&Scenario> {
        self.scenarios.iter().find(|scenario| scenario.name == name)
    }

    /// Treatment `name`.
    pub(super) fn treatment(&self, name: &str) -> Option<&Treatment> {
        self.treatments.iter().find(|treatment| treatment.name == name)
    }

    /// The times of a point of `scenario` that begins at `started`.
    pub(super) fn times(&self, scenario: &Scenario, started: Instant) -> Times {
        let scale = self.scale(scenario);
        let at = |seconds: f64| started + Duration::from_secs_f64(seconds * scale);
        let together = at(Plan::together(scenario));
        let until = started + Duration::from_secs_f64(self.seconds());
        let longest = scenario.rtts.iter().copied().fold(0.0, f64::max);
        Times {
            started,
            bulk: at(scenario.start),
            together,
            counted: together + Duration::from_secs_f64(self.head.warm_up),
            until,
            last: until + Duration::from_secs_f64(longest / 1e3) + LAST,
            scale,
        }
    }

    /// Second of the plan from which everything runs.
    pub(super) fn together(scenario: &Scenario) -> f64 {
        scenario.streams.iter().map(|stream| stream.start).fold(scenario.start, f64::max)
    }

    pub(super) fn check_homes(&self) -> Result<(), Fault> {
        let is_count = |x: &f64| x.fract() == 0.0 && *x <= f64::from(MOST_FLOWS);
        let mut points = self.head.points.iter().flatten();
        if let Some(wrong) = points.find(|x| !is_count(x)) {
            let message = format!("{wrong} transfers; give whole numbers up to {MOST_FLOWS}");
            return Err(Fault::head("points", message));
        }
        for scenario in &self.scenarios {
            let fault =
                |key, message: String| Err(Fault::scenario(&scenario.name, message).at(key));
            for name in &scenario.treatments {
                let Some(treatment) = self.treatment(name) else {
                    let message =
                        format!("no treatment {name:?}; add [[treatment]] name = {name:?}");
                    return fault("treatments", message);
                };
                if treatment.policy.is_some() && scenario.direction == DirectionName::Up {
                    let message = format!("{name:?}: policy slus governs downloads; remove it");
                    return fault("treatments", message);
                }
            }
            let rates = scenario.changes.iter().map(|change| change.rate).chain([scenario.rate]);
            for rate in rates {
                if !(rate > 0.01 && rate <= 10_000.0) {
                    return fault("rate", format!("rate = {rate}; give 0.01 to 10000 Mbit/s"));
                }
            }
            let begin = Plan::together(scenario);
            let mut times = vec![begin];
            times.extend(scenario.changes.iter().map(|change| change.at));
            if !times.is_sorted_by(|one, other| one < other) {
                let message = format!("changes come in order, after everything runs ({begin} s)");
                return fault("change", message + "; correct them");
            }
            if scenario.limited.is_some_and(|rate| !(0.01..=10_000.0).contains(&rate)) {
                return fault("limited", "limited is 0.01 to 10000 Mbit/s; correct it".to_owned());
            }
            let rtts = &scenario.rtts;
            if rtts.is_empty()
                || rtts.len() > 100
                || !rtts.iter().all(|rtt| (0.1..=5e3).contains(rtt))
            {
                return fault(
                    "rtts",
                    "rtts are 1 to 100 times of 0.1 to 5000 ms; correct them".to_owned(),
                );
            }
            if scenario.segment.is_some_and(|segment| !(200..=1448).contains(&segment)) {
                return fault("segment", "segment is 200 to 1448 bytes; correct it".to_owned());
            }
            if scenario.queue == 0 {
                return fault("queue", "a queue holds at least a packet; correct it".to_owned());
            }
            if scenario.flows.iter().any(|flows| *flows > MOST_FLOWS) {
                return fault("flows", format!("at most {MOST_FLOWS} flows; correct them"));
            }
            for stream in &scenario.streams {
                let sound = stream.interval >= 0.5 && (12..=1400).contains(&stream.bytes);
                if !sound || stream.start < 0.0 {
                    return fault(
                        "stream",
                        "a stream has an interval of 0.5 ms or more, 12 to 1400 bytes and a start; \
                         correct it"
                            .to_owned(),
                    );
                }
            }
        }
        for treatment in &self.treatments {
            if treatment.limit == Some(0) {
                let message = "limit is at least 1; correct it";
                return Err(Fault::treatment(&treatment.name, message).at("limit"));
            }
            let ours = treatment.window.is_some() || treatment.capacity.is_some();
            if treatment.policy.is_some() && ours {
                let message = "policy slus has no window and no capacity; remove them";
                return Err(Fault::treatment(&treatment.name, message).at("policy"));
            }
        }
        Ok(())
    }
}
