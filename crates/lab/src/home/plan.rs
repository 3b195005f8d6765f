//! Scenarios and treatments of a home access point.

use super::capture::{Capture, LEAST_INTERVAL};
use crate::experiment::Engine;
use crate::fault::Fault;
use crate::plan_file::PlanFile;
use crate::tcp::Congestion;
use anyhow::ensure;
use serde::{Deserialize, Serialize};
use sheaf_stage::{Duration, Instant};
use sheaf_voice::emodel::Codec;
use sheaf_voice::packet::Stamp;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    /// Streams of UDP, and what else runs beside the transfers.
    #[serde(rename = "stream", default)]
    pub streams: Vec<Stream>,
    /// Limit of the first transfer's application, Mbit/s of data; without it all take
    /// what they get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited: Option<f64>,
    /// Handshakes of so many transfers, the first ones, do not pass window control, so that it does
    /// not govern them; in virtual time alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unseen: Option<u32>,
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

/// Streams beside the transfers, by its `role`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "role", rename_all = "kebab-case")]
pub enum Stream {
    /// A constant stream.
    Stream(Packets),
    /// A game.
    Game(Packets),
    /// A call with G.711.
    Call(Packets),
    /// Packets at random times, with exponential gaps whose mean is the interval.
    Poisson(Packets),
    /// A captured call, sent as it was.
    Capture(Replay),
    /// Pages of the web, over TCP.
    Web(Web),
    /// Requests with short answers, over TCP.
    Request(Request),
}

/// Packets of UDP of one size.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Packets {
    /// Time between two packets, ms.
    pub interval: f64,
    /// Payload of UDP.
    pub bytes: u32,
    /// Start, in seconds of the plan's duration.
    pub start: f64,
}

/// A captured call; it begins anew where it is shorter than the run.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// The capture, relative to the folder of the plan's file.
    pub file: PathBuf,
    /// SHA-256 of the file; another file is refused. Where it is not given, that of the file at
    /// hand is filled in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Start, in seconds of the plan's duration.
    pub start: f64,
    /// The call in the file, once it was read.
    #[serde(skip)]
    pub call: Option<Arc<Capture>>,
}

/// Pages that a client loads one after the other.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Web {
    /// Objects of a page, the page itself included.
    pub objects: u32,
    /// Connections on which the objects behind the first are loaded.
    pub parallel: u32,
    /// Mean time between a page and the next one, seconds.
    pub reading: f64,
    /// Start, in seconds of the plan's duration.
    pub start: f64,
}

/// Requests over one connection, each of which waits for the answer to the one before.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Bytes of a request.
    pub bytes: u32,
    /// Bytes of an answer.
    pub answer: u32,
    /// Mean time between an answer and the next request, ms.
    pub idle: f64,
    /// Start, in seconds of the plan's duration.
    pub start: f64,
}

impl Stream {
    /// Its start, in seconds of the plan's duration.
    pub(super) fn start(&self) -> f64 {
        match self {
            Stream::Stream(of) | Stream::Game(of) | Stream::Call(of) | Stream::Poisson(of) => {
                of.start
            }
            Stream::Capture(of) => of.start,
            Stream::Web(of) => of.start,
            Stream::Request(of) => of.start,
        }
    }

    /// The fault of a value that is out of its range.
    fn fault(&self) -> Option<&'static str> {
        let is_start = (0.0..LONGEST_WAIT).contains(&self.start());
        let is_size = |bytes: &u32| (LEAST_BYTES as u32..=MOST_BYTES).contains(bytes);
        let least = LEAST_INTERVAL.as_secs_f64() * 1e3;
        let is_sound = match self {
            Stream::Stream(of) | Stream::Game(of) | Stream::Call(of) | Stream::Poisson(of) => {
                (least..LONGEST_WAIT).contains(&of.interval) && is_size(&of.bytes)
            }
            Stream::Capture(_) => true,
            Stream::Web(of) => {
                (1..=MOST_OBJECTS).contains(&of.objects)
                    && (1..=MOST_PARALLEL).contains(&of.parallel)
                    && (0.01..LONGEST_WAIT).contains(&of.reading)
            }
            Stream::Request(of) => {
                is_size(&of.bytes)
                    && (1..=MOST_ANSWER).contains(&of.answer)
                    && (1.0..LONGEST_WAIT).contains(&of.idle)
            }
        };
        let message = match self {
            _ if is_start && is_sound => return None,
            Stream::Capture(_) => "a capture has a start from 0 s on; correct it",
            Stream::Web(_) => {
                "role web has 1 to 1000 objects, 1 to 64 of them in parallel, reading from 0.01 s \
                 on and a start; correct it"
            }
            Stream::Request(_) => {
                "role request has 32 to 1400 bytes, an answer of 1 byte to 1 MiB, idle from 1 ms \
                 on and a start; correct it"
            }
            _ => {
                "a stream has an interval of 0.5 ms or more, 32 to 1400 bytes and a start; \
                 correct it"
            }
        };
        Some(message)
    }
}

impl Replay {
    /// Reads the file, from `folder` on.
    fn read(&mut self, folder: &Path) -> anyhow::Result<()> {
        self.file = std::path::absolute(folder.join(&self.file))?;
        let call = Capture::read(&self.file)?;
        let expected = self.sha256.get_or_insert_with(|| call.sha256.clone());
        ensure!(
            *expected == call.sha256,
            "{} is another file than before: its SHA-256 is {}; give that one, or no sha256",
            self.file.display(),
            call.sha256
        );
        self.call = Some(Arc::new(call));
        Ok(())
    }
}

/// The role of a stream of UDP, which decides its measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A constant stream: losses.
    Stream,
    /// A game: losses, delay, and the time between its packets.
    Game,
    /// A call with G.711: losses and the rating of the E-model.
    Call,
    /// Packets at random times: losses and delay.
    Poisson,
    /// A captured call: losses and the rating of the E-model.
    Capture,
}

impl Role {
    /// All, in the order of the metrics.
    pub const ALL: [Role; 5] = [Role::Stream, Role::Game, Role::Call, Role::Poisson, Role::Capture];

    /// Its name in curves.
    pub fn name(self) -> &'static str {
        match self {
            Role::Stream => "stream",
            Role::Game => "game",
            Role::Call => "call",
            Role::Poisson => "packets at random",
            Role::Capture => "captured call",
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

/// Bytes of a packet of UDP: RTP and the time stamp at least.
pub(super) const LEAST_BYTES: usize = Stamp::len(Codec::G729A);
const MOST_BYTES: u32 = 1400;
/// Objects of a page, connections, and bytes of an answer at most. An answer fits into the send
/// buffer of TCP, which takes it at once.
const MOST_OBJECTS: u32 = 1000;
const MOST_PARALLEL: u32 = 64;
const MOST_ANSWER: u32 = 1 << 20;
/// Bound of times in a stream, in their units; more are a mistake.
const LONGEST_WAIT: f64 = 1e6;
/// Streams of a scenario at most: in virtual time each has a network of its own.
const MOST_STREAMS: usize = 100;
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
        scenario.streams.iter().map(Stream::start).fold(scenario.start, f64::max)
    }

    /// Whether a scenario has such a stream.
    pub(super) fn has(&self, is: impl Fn(&Stream) -> bool) -> bool {
        self.scenarios.iter().flat_map(|scenario| &scenario.streams).any(is)
    }

    /// Reads the captures that the plan names, relative to `folder`. From then on their paths are
    /// absolute, and their hashes part of the plan: results are kept by what was replayed.
    pub(crate) fn load(&mut self, folder: &Path) -> Result<(), Fault> {
        for scenario in &mut self.scenarios {
            for stream in &mut scenario.streams {
                let Stream::Capture(replay) = stream else { continue };
                let fault = |message| Fault::scenario(&scenario.name, message).at("stream");
                replay.read(folder).map_err(fault)?;
            }
        }
        Ok(())
    }

    /// Refuses captures that were not read.
    pub(super) fn ready_to_replay(&self) -> anyhow::Result<()> {
        let is_missing =
            |stream: &Stream| matches!(stream, Stream::Capture(Replay { call: None, .. }));
        ensure!(!self.has(is_missing), "a capture was not read; run the plan from its file");
        Ok(())
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
            if scenario.streams.len() > MOST_STREAMS {
                return fault("stream", format!("at most {MOST_STREAMS} streams; remove some"));
            }
            if let Some(message) = scenario.streams.iter().find_map(Stream::fault) {
                return fault("stream", message.to_owned());
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
