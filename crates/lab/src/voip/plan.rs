//! Plans of calls over a wireless mesh: hosts, radios, calls, and the treatment of small packets by
//! the hosts; worked out to points.

use super::point::{Aggregation, Flow, Follows, Mode, Point, Queueing, Routes};
use super::walk::{Walk, Walking};
use crate::fault::Fault;
use crate::plan_file::PlanFile;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use sheaf_aggregate::{Format, Threshold};
use sheaf_baseline::kau;
use sheaf_medium::phy::UnknownPhy;
use sheaf_medium::{Ampdu, Hearing, Link, Phy};
use sheaf_quality::Modulation;
use sheaf_stage::{Bitrate, Duration, Instant};
use sheaf_voice::emodel::Codec;
use sheaf_voice::source::Pattern;
use std::collections::VecDeque;

/// Bound of the number of flows.
const MOST: u32 = 10_000;

/// Bounds of the time between two packets of a flow, in ms: a point ends, and has packets.
const SHORTEST: f64 = 0.01;
const LONGEST: f64 = 1000.0;
/// Bound of the bytes that a mesh protocol adds: more than any does.
const ENCAPSULATION: u32 = 200;
/// Bounds of the time between two broadcasts, in ms: the quickest beacons come each 10, and one a
/// minute says nothing any more.
const BROADCASTS: std::ops::RangeInclusive<f64> = 1.0..=60_000.0;
/// Bound of the bytes of a broadcast: an Ethernet frame's.
const BROADCAST: u32 = 1500;

/// A plan of this kind.
pub type Plan = PlanFile<Scenario, Treatment>;

/// A testbed and its sweep.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// Physical layer.
    pub phy: PhyName,
    /// Data rate in Mbit/s.
    pub rate: f64,
    /// Packets in the queue of a host. Without `device` it is the radio's transmit queue.
    pub queue: usize,
    /// Packets that the device has behind the queue of the host; where not given one under policy
    /// `kau`, and the whole queue under others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<usize>,
    /// Packets that the socket of each flow holds until the device takes them. A sender whose
    /// socket is full waits, as in a blocking write. Where not given, senders never wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<u32>,
    /// Milliseconds between two packets of a flow; the codec's 20 where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<f64>,
    /// Bytes that the mesh protocol adds to each packet on the air.
    #[serde(default, skip_serializing_if = "no_bytes")]
    pub encapsulation: u32,
    /// Frames that each host sends to all at intervals, besides calls: beacons, HELLO messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broadcasts: Vec<Broadcast>,
    /// Transmissions that the medium loses on each link besides collisions, in per cent; what is
    /// acknowledged is repeated.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub loss: f64,
    /// Names of the hosts.
    pub nodes: Vec<String>,
    /// The pairs of nodes that hear each other.
    pub hearing: HearingName,
    /// Pairs of nodes that may be next hops of each other; routes are shortest paths over these.
    pub links: Vec<(String, String)>,
    /// Bit errors of each link, in 10⁻⁶.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ber: f64,
    /// Attempts of a frame before it is given up; the standard's where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// Rule by which a host has a route over a neighbour; `static` where it is not given.
    #[serde(default, skip_serializing_if = "RoutesName::is_static")]
    pub routes: RoutesName,
    /// HELLO messages that are lost on each link besides collisions, in per cent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hello_loss: f64,
    /// Talker and listener of each direction.
    pub directions: Vec<(String, String)>,
    /// Whether packets leave in group-addressed frames: unacknowledged, at the lowest basic rate,
    /// to all that hear them. Each direction is a stream to a group of which its listener is a
    /// member.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub group: bool,
    /// Whether every second direction keeps silent until the others are done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub turns: bool,
    /// Codec of the calls.
    pub codec: CodecName,
    /// Pattern of talk spurts.
    pub pattern: PatternName,
    /// The sweep: flows per direction.
    pub flows: Vec<u32>,
    /// Points between those: flows in all, shared out as evenly as they go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub totals: Vec<u32>,
    /// Points, as flows in all, of which the latency over time is kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub over_time: Vec<u32>,
    /// Names of the treatments to compare.
    pub treatments: Vec<String>,
    /// The walk of a station away and back; all stand where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub walk: Option<Walk>,
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

fn no_bytes(bytes: &u32) -> bool {
    *bytes == 0
}

/// A frame that each host sends to all at intervals.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Broadcast {
    /// Milliseconds between two of one host.
    pub interval: f64,
    /// Bytes of the IP packet, or what a frame without one has beyond the 36 bytes around those.
    pub bytes: u32,
}

/// A physical layer, by its name.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct PhyName(Phy);

impl TryFrom<String> for PhyName {
    type Error = UnknownPhy;

    fn try_from(name: String) -> Result<PhyName, UnknownPhy> {
        name.parse().map(PhyName)
    }
}

impl From<PhyName> for String {
    fn from(phy: PhyName) -> String {
        phy.0.name().to_owned()
    }
}

/// The pairs of nodes that hear each other.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HearingName {
    /// Everyone hears everyone: one room.
    Everyone,
    /// Only hosts with a link: the others are hidden.
    Links,
}

/// The rule by which a host has a route over a neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoutesName {
    /// Always.
    #[default]
    Static,
    /// While it hears the neighbour's HELLO messages.
    Aodv,
}

impl RoutesName {
    fn is_static(&self) -> bool {
        *self == RoutesName::Static
    }
}

/// A codec.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CodecName {
    /// G.711.
    G711,
    /// G.729A.
    G729a,
}

/// A way to talk.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PatternName {
    /// One second of talk, 1.5 s of silence in the mean.
    Kau,
    /// 60-1-60-2-60 s.
    Uwc,
    /// ITU-T P.59.
    P59,
    /// Without pause.
    Constant,
}

/// The treatment of small packets by the hosts.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Treatment {
    /// Its name.
    pub name: String,
    /// Hold policy; none for no aggregation.
    pub policy: Option<PolicyName>,
    /// Host that splits; the next hop where it is not given.
    pub mode: Option<ModeName>,
    /// Size that a queue must have under `forced`.
    pub min: Option<Min>,
    /// Largest meta packet.
    pub max: Option<Max>,
    /// Longest wait under `forced`, in milliseconds.
    pub timeout: Option<f64>,
    /// Longest wait, in milliseconds.
    pub hold: Option<f64>,
    /// Backoff on a contended channel under `busy`, as a multiple; 0 for none.
    pub backoff: Option<u32>,
    /// Whether radios send frames to the same receiver as one A-MPDU, with the usual limits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ampdu: bool,
    /// The hosts that have the policy and can split; all where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgraded: Option<Vec<String>>,
    /// Whether hosts gather towards those, too, that cannot split.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub blind: bool,
    /// Wire format under `forced` and `busy`; `meta` where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<FormatName>,
}

/// A wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FormatName {
    /// Bare meta packets.
    Meta,
    /// Format 2, in virtual time.
    Frames,
    /// Format 2 with compressed headers, in virtual time.
    Compressed,
}

/// The size that a queue must have under `forced`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged, expecting = "min needs bytes, or a share of max as \"80%\"")]
pub enum Min {
    /// Bytes.
    Bytes(u32),
    /// A share of the largest meta packet.
    Share(Share),
}

/// A number of per cent, 0 to 100, written as "80%".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Share(u8);

impl TryFrom<String> for Share {
    type Error = String;

    fn try_from(text: String) -> Result<Share, String> {
        let share = text.strip_suffix('%').and_then(|share| share.parse().ok());
        let share = share.filter(|share| *share <= 100).map(Share);
        share.ok_or_else(|| format!("{text:?} is not a share; give 0% to 100%"))
    }
}

impl From<Share> for String {
    fn from(share: Share) -> String {
        format!("{}%", share.0)
    }
}

impl From<Min> for Threshold {
    fn from(min: Min) -> Threshold {
        match min {
            Min::Bytes(bytes) => Threshold::Bytes(bytes),
            Min::Share(Share(share)) => Threshold::Percent(share),
        }
    }
}

/// The largest meta packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged, expecting = "max needs bytes, \"auto\" or \"known\"")]
pub enum Max {
    /// Bytes.
    Bytes(u16),
    /// A word.
    Named(MaxName),
}

/// A largest meta packet that is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MaxName {
    /// The size follows the link to each neighbour, as far as hosts can measure it.
    Auto,
    /// The size follows the link as it is, which no host knows: the bound of what can be gained.
    Known,
}

impl Max {
    /// Bytes; `None` for sizes that follow the link.
    fn bytes(self) -> Option<u16> {
        match self {
            Max::Bytes(bytes) => Some(bytes),
            Max::Named(_) => None,
        }
    }
}

/// A hold policy.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// The policy of the theses.
    Forced,
    /// The default.
    Busy,
    /// The qdisc of Karlstad 2008 as it was, in virtual time.
    Kau,
}

/// The host that splits a meta packet.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModeName {
    /// The next hop.
    Hop,
    /// The destination.
    End,
}

impl Plan {
    /// Checks that the plan can be run.
    pub(super) fn check_calls(&self) -> Result<(), Fault> {
        for treatment in &self.treatments {
            treatment.queueing(1).map_err(|error| Fault::treatment(&treatment.name, error))?;
        }
        for scenario in &self.scenarios {
            let fault =
                |key, message: String| Err(Fault::scenario(&scenario.name, message).at(key));
            for (key, loss) in [("loss", scenario.loss), ("hello_loss", scenario.hello_loss)] {
                if !(0.0..100.0).contains(&loss) {
                    return fault(key, format!("{key} = {loss}; give per cent, 0 to below 100"));
                }
            }
            if scenario.hello_loss > 0.0 && scenario.routes.is_static() {
                let message = "hello_loss without HELLO messages; add routes = \"aodv\"";
                return fault("hello_loss", message.to_owned());
            }
            if !(0.0..1e6).contains(&scenario.ber) {
                let message = format!("ber = {}; give millionths, 0 to below 10^6", scenario.ber);
                return fault("ber", message);
            }
            if scenario.attempts == Some(0) {
                return fault("attempts", "attempts = 0; give at least 1".to_owned());
            }
            if scenario.device == Some(0) {
                return fault("device", "device = 0; give at least 1 packet".to_owned());
            }
            if scenario.socket == Some(0) {
                return fault("socket", "socket = 0; give at least 1 packet".to_owned());
            }
            if scenario.socket.is_some() && scenario.device.is_none() {
                let message = "socket without device: packets leave their sockets as the device \
                               takes them; add device = 1, or more";
                return fault("socket", message.to_owned());
            }
            if scenario.interval.is_some_and(|interval| !(SHORTEST..=LONGEST).contains(&interval)) {
                return fault("interval", "give milliseconds, 0.01 to 1000".to_owned());
            }
            if scenario.interval.is_some() && !matches!(scenario.pattern, PatternName::Constant) {
                let message =
                    "interval with spurts, which have their own; add pattern = \"constant\"";
                return fault("interval", message.to_owned());
            }
            if scenario.encapsulation > ENCAPSULATION {
                return fault("encapsulation", format!("give bytes, 0 to {ENCAPSULATION}"));
            }
            for Broadcast { interval, bytes } in &scenario.broadcasts {
                if !BROADCASTS.contains(interval) {
                    let message = format!("interval = {interval}; give 1 to 60000 milliseconds");
                    return fault("broadcasts", message);
                }
                if *bytes > BROADCAST {
                    let message = format!("bytes = {bytes}; give 0 to {BROADCAST}");
                    return fault("broadcasts", message);
                }
            }
            if let Some(walk) = &scenario.walk {
                walk.check().map_err(|message| {
                    Fault::scenario(&scenario.name, format!("walk: {message}")).at("walk")
                })?;
            }
            if scenario.turns && scenario.directions.len() < 2 {
                let message = "turns with one direction; give two or more, or remove turns";
                return fault("turns", message.to_owned());
            }
            let fault = |error: anyhow::Error| Fault::scenario(&scenario.name, error);
            for name in &scenario.treatments {
                self.point(scenario, name, 1).map_err(fault)?;
            }
            let mut flows =
                scenario.flows.iter().chain(&scenario.totals).chain(&scenario.over_time);
            if scenario.flows.is_empty() || !flows.all(|flows| (1..MOST).contains(flows)) {
                let message = "flows must be a list of at least one number, each 1 to 9999";
                return Err(Fault::scenario(&scenario.name, message).at("flows"));
            }
        }
        let points = self.head.points.iter().chain([&self.head.quick.points]).flatten();
        if let Some(wrong) =
            points.into_iter().find(|x| x.fract() != 0.0 || !(1.0..f64::from(MOST)).contains(*x))
        {
            let message = format!("{wrong} flows a direction; give whole numbers from 1 up");
            return Err(Fault::quick("points", message));
        }
        Ok(())
    }

    /// A treatment by name.
    pub fn treatment(&self, name: &str) -> anyhow::Result<&Treatment> {
        self.treatments.iter().find(|treatment| treatment.name == name).ok_or_else(|| {
            anyhow::anyhow!("no treatment {name:?}; add [[treatment]] name = {name:?}")
        })
    }

    /// One point: `flows` flows over all directions of `scenario` under treatment `name`.
    pub fn point(&self, scenario: &Scenario, name: &str, flows: u32) -> anyhow::Result<Point> {
        let topology = Topology::new(scenario)?;
        let pattern = scenario.pattern.pattern();
        let mut calls = Vec::new();
        let directions = scenario.directions.len() as u32;
        for (index, (from, to)) in (0..).zip(&scenario.directions) {
            let (from, to) = (topology.index(from)?, topology.index(to)?);
            let turn = if scenario.turns { index % 2 } else { 0 };
            let flow = Flow { from, to, pattern: pattern.clone(), turn };
            let share = flows / directions + u32::from(index < flows % directions);
            calls.extend((0..share).map(|_| flow.clone()));
        }
        let treatment = self.treatment(name)?;
        let queueing = treatment.queueing(scenario.queue)?;
        let walking = scenario.walking(&topology, self.head.warm_up)?;
        let follows = matches!(&queueing, Queueing::Sheaf(one) if one.follows.is_some());
        anyhow::ensure!(
            !follows || walking.is_some() && treatment.upgraded.is_none(),
            "max = \"auto\" follows a link that changes, among hosts that all say so; add \
             [scenario.walk] and remove upgraded, or give bytes"
        );
        anyhow::ensure!(
            scenario.socket.is_none() || treatment.format() == Format::Meta,
            "socket asks for packets that are seen in their frames; use format meta, or no socket"
        );
        let is_ours = matches!(queueing, Queueing::Sheaf(_));
        anyhow::ensure!(
            !is_ours || scenario.routes.is_static(),
            "policies forced and busy have no HELLO messages; use policy kau, or static routes"
        );
        let (queueing, places) = match (queueing, scenario.device) {
            (Queueing::Plain, Some(device)) => (Queueing::Fifo(scenario.queue), device),
            (kau @ Queueing::Kau(..), device) => (kau, device.unwrap_or(kau::PLACES as usize)),
            (other, device) => (other, device.unwrap_or(scenario.queue)),
        };
        anyhow::ensure!(
            scenario.broadcasts.is_empty() || places >= scenario.queue,
            "broadcasts would take the few places of the device; remove them, or device and policy \
             kau"
        );
        let between = match places < scenario.queue {
            true => Queueing::Fifo(scenario.queue),
            false => Queueing::Plain,
        };
        let upgraded = match &treatment.upgraded {
            Some(names) => {
                anyhow::ensure!(is_ours, "upgraded hosts have policy forced or busy; add policy");
                let mut upgraded = vec![false; scenario.nodes.len()];
                for name in names {
                    upgraded[topology.index(name)?] = true;
                }
                upgraded
            }
            None => {
                anyhow::ensure!(
                    !treatment.blind,
                    "blind takes hosts that cannot split; add upgraded"
                );
                vec![true; scenario.nodes.len()]
            }
        };
        if scenario.group {
            scenario.check_group(&topology, &queueing)?;
        }
        let mut medium = topology.medium(scenario);
        medium.ampdu = treatment.ampdu.then(Ampdu::default);
        medium.radios.iter_mut().for_each(|radio| radio.queue_limit = places);
        medium.check()?;
        Ok(Point {
            nodes: scenario.nodes.clone(),
            next_hop: topology.next_hops()?,
            medium,
            flows: calls,
            codec: scenario.codec.codec(),
            socket: scenario.socket,
            interval: scenario.interval.map(millis).transpose()?,
            encapsulation: scenario.encapsulation,
            broadcasts: scenario
                .broadcasts
                .iter()
                .map(Broadcast::times)
                .collect::<Result<_, _>>()?,
            queueing,
            between,
            upgraded,
            is_blind: treatment.blind,
            is_group: scenario.group,
            routes: match scenario.routes {
                RoutesName::Static => Routes::Static,
                RoutesName::Aodv => Routes::Aodv { loss: scenario.hello_loss / 100.0 },
            },
            walking,
            warm_up: Duration::from_secs_f64(self.head.warm_up),
            duration: Duration::from_secs_f64(self.head.duration),
            turns: if scenario.turns { 2 } else { 1 },
            over_time: scenario.over_time.contains(&flows),
            seed: self.head.seed.wrapping_add(u64::from(flows)),
        })
    }
}

impl Scenario {
    /// Whether only the virtual engine has it.
    pub(super) fn is_virtual(&self) -> bool {
        let of_radio =
            self.device.is_some() || self.encapsulation > 0 || !self.broadcasts.is_empty();
        let of_senders = self.socket.is_some() || self.interval.is_some();
        let is_ht = matches!(self.phy.0, Phy::Ht { .. });
        of_radio
            || of_senders
            || is_ht
            || self.group
            || self.routes == RoutesName::Aodv
            || self.walk.is_some()
    }

    /// Checks that its packets can go to groups: each listener hears its talker.
    fn check_group(&self, topology: &Topology<'_>, queueing: &Queueing) -> anyhow::Result<()> {
        let is_known = match queueing {
            Queueing::Plain => true,
            Queueing::Sheaf(aggregation) => aggregation.mode == Mode::Hop,
            Queueing::Fifo(_) | Queueing::Kau(..) => false,
        };
        anyhow::ensure!(
            is_known && self.device.is_none() && self.routes.is_static(),
            "group takes policy forced, busy or none, hop by hop, static routes and no device"
        );
        for (from, to) in &self.directions {
            anyhow::ensure!(
                topology.linked(topology.index(from)?, topology.index(to)?),
                "{to} does not hear the group frames of {from}; add a link"
            );
        }
        Ok(())
    }

    /// The walk on the testbed `topology`, which begins when `warm_up` seconds are over.
    fn walking(&self, topology: &Topology<'_>, warm_up: f64) -> anyhow::Result<Option<Walking>> {
        let Some(walk) = self.walk.clone() else { return Ok(None) };
        let station = topology.index(&walk.station)?;
        let near: Vec<_> =
            (0..self.nodes.len()).filter(|node| topology.linked(station, *node)).collect();
        let [router] = near[..] else {
            anyhow::bail!("walk: {} has {} links; give it one", walk.station, near.len());
        };
        let is_plain =
            self.ber == 0.0 && self.loss == 0.0 && matches!(self.hearing, HearingName::Everyone);
        anyhow::ensure!(
            is_plain && self.socket.is_none() && !self.group,
            "walk decides the bit errors; give hearing = \"everyone\", and no ber, loss, socket or \
             group"
        );
        let modulation = Modulation::of_rate(self.bitrate());
        let modulation = modulation.with_context(|| {
            format!("walk: rate {} has no error rates; give one of 802.11a, b or g", self.rate)
        })?;
        let start = Instant::ZERO + Duration::from_secs_f64(warm_up);
        let usual = sheaf_medium::Config::new(self.phy.0, 1, self.bitrate()).retry_limit;
        let attempts = self.attempts.unwrap_or(usual);
        Ok(Some(Walking { walk, station, router, modulation, attempts, start }))
    }

    fn bitrate(&self) -> Bitrate {
        // Rates of HT have decimals that binary numbers miss.
        Bitrate::from_bps((self.rate * 1e6).round() as u64)
    }

    /// The points of the sweep as flows in all: `per_direction` instead of the plan's, where given.
    pub fn sweep(&self, per_direction: Option<&[f64]>) -> Vec<u32> {
        let all = |flows: u32| flows * self.directions.len() as u32;
        let mut sweep: Vec<u32> = match per_direction {
            Some(flows) => flows.iter().map(|flows| all(*flows as u32)).collect(),
            None => self.flows.iter().map(|flows| all(*flows)).chain(self.totals.clone()).collect(),
        };
        sweep.sort_unstable();
        sweep.dedup();
        sweep
    }
}

impl Treatment {
    /// Whether only the virtual engine has it.
    pub(super) fn is_virtual(&self) -> bool {
        let is_kau = matches!(self.policy, Some(PolicyName::Kau));
        let is_meta = self.format() == Format::Meta;
        is_kau || self.upgraded.is_some() || self.follows().is_some() || !is_meta
    }

    fn format(&self) -> Format {
        match self.format {
            None | Some(FormatName::Meta) => Format::Meta,
            Some(FormatName::Frames) => Format::Frames,
            Some(FormatName::Compressed) => Format::Compressed,
        }
    }

    /// The treatment at hosts whose queues hold `queue` packets.
    fn queueing(&self, queue: usize) -> anyhow::Result<Queueing> {
        let is_ours = matches!(self.policy, Some(PolicyName::Forced | PolicyName::Busy));
        anyhow::ensure!(
            is_ours || self.format.is_none(),
            "format is of policies forced and busy; remove it"
        );
        let mut config = match self.policy {
            None => return Ok(Queueing::Plain),
            Some(PolicyName::Kau) => return Ok(Queueing::Kau(self.kau(queue)?, self.mode())),
            Some(PolicyName::Forced) => sheaf_aggregate::Config::forced(),
            Some(PolicyName::Busy) => sheaf_aggregate::Config::default(),
        };
        config.min = self.min.map_or(config.min, Threshold::from);
        config.max = self.max.and_then(Max::bytes).unwrap_or(config.max);
        config.timeout = self.timeout.map_or(Ok(config.timeout), millis)?;
        config.backoff = self.backoff.unwrap_or(config.backoff);
        config.hold = self.hold.map_or(Ok(config.hold), millis)?;
        config.check()?;
        let (mode, follows) = (self.mode(), self.follows());
        anyhow::ensure!(
            follows.is_none() || mode == Mode::Hop,
            "max = \"auto\" follows the link to the next hop; remove mode, or give bytes"
        );
        Ok(Queueing::Sheaf(Aggregation { config, format: self.format(), mode, follows }))
    }

    fn follows(&self) -> Option<Follows> {
        match self.max {
            Some(Max::Named(MaxName::Auto)) => Some(Follows::Measured),
            Some(Max::Named(MaxName::Known)) => Some(Follows::Known),
            None | Some(Max::Bytes(_)) => None,
        }
    }

    fn mode(&self) -> Mode {
        match self.mode {
            Some(ModeName::End) => Mode::End,
            Some(ModeName::Hop) | None => Mode::Hop,
        }
    }

    /// Parameters of the thesis' qdisc, which holds `limit` packets.
    fn kau(&self, limit: usize) -> anyhow::Result<kau::Config> {
        let known = self.hold.is_none() && self.backoff.is_none();
        anyhow::ensure!(known, "policy kau has mode, min, max and timeout; remove the others");
        anyhow::ensure!(self.follows().is_none(), "policy kau has a fixed max; give bytes");
        let usual = kau::Config::default();
        let max = self.max.and_then(Max::bytes).map_or(usual.max, usize::from);
        anyhow::ensure!((100..=2048).contains(&max), "max {max}; give 100 to 2048 bytes");
        let most = u16::try_from(max).unwrap_or(u16::MAX);
        let min = self.min.map_or(usual.min, |min| Threshold::from(min).of(most) as usize);
        anyhow::ensure!(min <= max, "min {min}; give at most {max}, the largest meta packet");
        Ok(kau::Config {
            max,
            min,
            timeout: self.timeout.map_or(Ok(usual.timeout), millis)?,
            limit,
        })
    }
}

fn millis(ms: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(ms / 1e3)
        .map_err(|_| anyhow::anyhow!("{ms} is not a time; give milliseconds from zero up"))
}

impl Broadcast {
    /// The time between two, and bytes.
    fn times(&self) -> anyhow::Result<(Duration, u32)> {
        Ok((millis(self.interval)?, self.bytes))
    }
}

impl CodecName {
    fn codec(self) -> Codec {
        match self {
            CodecName::G711 => Codec::G711,
            CodecName::G729a => Codec::G729A,
        }
    }
}

impl PatternName {
    fn pattern(self) -> Pattern {
        match self {
            PatternName::Kau => Pattern::kau(),
            PatternName::Uwc => Pattern::uwc(),
            PatternName::P59 => Pattern::p59(),
            PatternName::Constant => Pattern::Constant,
        }
    }
}

/// The hosts of a scenario and the links between them.
struct Topology<'a> {
    nodes: &'a [String],
    links: Vec<(usize, usize)>,
}

impl<'a> Topology<'a> {
    fn new(scenario: &'a Scenario) -> anyhow::Result<Topology<'a>> {
        let nodes = scenario.nodes.as_slice();
        anyhow::ensure!((2..=250).contains(&nodes.len()), "{} nodes; give 2 to 250", nodes.len());
        let mut topology = Topology { nodes, links: Vec::new() };
        for (a, b) in &scenario.links {
            let link = (topology.index(a)?, topology.index(b)?);
            topology.links.push(link);
        }
        Ok(topology)
    }

    fn index(&self, name: &str) -> anyhow::Result<usize> {
        self.nodes.iter().position(|node| node == name).ok_or_else(|| {
            anyhow::anyhow!("unknown node {name:?}; the nodes are {}", self.nodes.join(", "))
        })
    }

    fn linked(&self, a: usize, b: usize) -> bool {
        self.links.contains(&(a, b)) || self.links.contains(&(b, a))
    }

    #[allow(clippy::needless_range_loop, reason = "`to` is a column of the table, not a row")]
    /// Shortest paths by breadth-first search from each destination.
    fn next_hops(&self) -> anyhow::Result<Vec<Vec<usize>>> {
        let count = self.nodes.len();
        let mut next = vec![vec![usize::MAX; count]; count];
        for to in 0..count {
            next[to][to] = to;
            let mut reached = VecDeque::from([to]);
            while let Some(near) = reached.pop_front() {
                for far in (0..count).filter(|far| self.linked(near, *far)) {
                    if next[far][to] == usize::MAX {
                        next[far][to] = near;
                        reached.push_back(far);
                    }
                }
            }
            if let Some(from) = (0..count).find(|from| next[*from][to] == usize::MAX) {
                let (from, to) = (&self.nodes[from], &self.nodes[to]);
                anyhow::bail!("no path from {from} to {to}; add a link");
            }
        }
        Ok(next)
    }

    fn medium(&self, scenario: &Scenario) -> sheaf_medium::Config {
        let rate = scenario.bitrate();
        let mut config = sheaf_medium::Config::new(scenario.phy.0, self.nodes.len(), rate);
        config.retry_limit = scenario.attempts.unwrap_or(config.retry_limit);
        let in_range =
            Link { loss: scenario.loss / 100.0, ber: scenario.ber / 1e6, ..Link::PERFECT };
        let everyone = matches!(scenario.hearing, HearingName::Everyone);
        if !everyone || in_range != Link::PERFECT {
            let heard = |a, b| a != b && (everyone || self.linked(a, b));
            let link = |a, b| if heard(a, b) { in_range } else { Link::NONE };
            let nodes = 0..self.nodes.len();
            let row = |a| nodes.clone().map(|b| link(a, b)).collect();
            config.hearing = Hearing::Table(nodes.clone().map(row).collect());
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_hops_go_through_the_router() {
        let crate::plan::Plan::Voip(plan) = crate::plan::Plan::find("voip-two-hop").unwrap() else {
            panic!("it is about calls");
        };
        let point = plan.point(&plan.scenarios[0], "baseline", 13).unwrap();
        let from_a = |flow: &&Flow| (flow.from, flow.to) == (0, 3);
        assert_eq!(point.flows.len(), 13);
        assert_eq!(
            point.flows.iter().filter(from_a).count(),
            4,
            "the first direction has one more"
        );
        assert_eq!(point.next_hop[0][3], 2, "A reaches D through C");
        assert_eq!(point.next_hop[2][3], 3);
    }
}
