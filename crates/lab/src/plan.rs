//! Plans: one TOML file per published experiment, read and checked before anything starts.
//!
//! A plan has scenarios (a testbed, its calls, a sweep), treatments (what the hosts do with small
//! packets) and the published figures to print beside ours. Everything that is wrong with it is
//! said in one line with file, line and remedy.

use crate::point::{Aggregation, Flow, Mode, Point};
use serde::{Deserialize, Serialize};
use sheaf_aggregate::Threshold;
use sheaf_medium::{Hearing, Link, Phy};
use sheaf_stage::{Bitrate, Duration};
use sheaf_voice::emodel::Codec;
use sheaf_voice::source::Pattern;
use std::collections::VecDeque;
use std::path::Path;

/// The plans that come with the program: name and text.
const BUILTIN: [(&str, &str); 2] = [
    ("voip-two-hop", include_str!("../../../plans/voip-two-hop.toml")),
    ("voip-hop-vs-end", include_str!("../../../plans/voip-hop-vs-end.toml")),
];

/// An experiment.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Its name, as given to `sheaf lab run`.
    pub name: String,
    /// What it shows, in one sentence.
    pub title: String,
    /// The published work.
    pub source: String,
    /// Seconds that are measured at each point.
    pub duration: f64,
    /// Seconds before, that are not.
    pub warm_up: f64,
    /// Seed of all randomness.
    pub seed: u64,
    /// What `--quick` and the netns engine run instead.
    pub quick: Quick,
    /// Testbeds.
    #[serde(rename = "scenario")]
    pub scenarios: Vec<Scenario>,
    /// What the hosts do.
    #[serde(rename = "treatment")]
    pub treatments: Vec<Treatment>,
    /// Figures of the source.
    #[serde(rename = "published", default)]
    pub published: Vec<Published>,
}

/// A shorter run.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// Flows per direction on the netns engine, which runs in real time.
    pub flows: Vec<u32>,
    /// Seconds per point on the netns engine.
    pub netns_duration: f64,
    /// Seconds per point on the virtual engine, whose sweep stays whole.
    pub virtual_duration: f64,
}

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
    /// Frames in a transmit queue.
    pub queue: usize,
    /// Names of the hosts.
    pub nodes: Vec<String>,
    /// Who hears whom.
    pub hearing: HearingName,
    /// Who may be whose next hop; routes are shortest paths over these.
    pub links: Vec<(String, String)>,
    /// Who talks to whom, one direction each.
    pub directions: Vec<(String, String)>,
    /// Codec of the calls.
    pub codec: CodecName,
    /// How the callers talk.
    pub pattern: PatternName,
    /// The sweep: flows per direction.
    pub flows: Vec<u32>,
    /// Points between those: flows in all, shared out as evenly as they go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub totals: Vec<u32>,
    /// Names of the treatments to compare.
    pub treatments: Vec<String>,
}

/// A physical layer.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhyName {
    /// DSSS/CCK with the long preamble.
    DsssLong,
    /// DSSS/CCK with the short preamble.
    DsssShort,
    /// ERP-OFDM in 2.4 GHz.
    ErpOfdm,
    /// OFDM in 5 GHz.
    Ofdm,
}

/// Who hears whom.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HearingName {
    /// Everyone everyone: one room.
    Everyone,
    /// Only hosts with a link: the others are hidden.
    Links,
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

/// What the hosts do with small packets.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Treatment {
    /// Its name.
    pub name: String,
    /// Hold policy; none for no aggregation.
    pub policy: Option<PolicyName>,
    /// Who splits; the next hop where it is not given.
    pub mode: Option<ModeName>,
    /// Bytes a queue must have under `forced`.
    pub min: Option<u32>,
    /// Largest meta packet in bytes.
    pub max: Option<u16>,
    /// Longest wait under `forced`, in milliseconds.
    pub timeout: Option<f64>,
    /// Longest wait, in milliseconds.
    pub hold: Option<f64>,
}

/// A hold policy.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// The theses'.
    Forced,
    /// The default.
    Busy,
}

/// Who splits a meta packet.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModeName {
    /// The next hop.
    Hop,
    /// The destination.
    End,
}

/// A published figure.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Scenario it belongs beside.
    pub scenario: String,
    /// Treatment it is comparable with.
    pub treatment: String,
    /// Where it stands, in a few words.
    pub label: String,
    /// Supported flows.
    pub supported: Option<f64>,
    /// Points of loss: injected flows and per cent.
    #[serde(default)]
    pub loss: Vec<(f64, f64)>,
    /// Points of latency: injected flows and milliseconds.
    #[serde(default)]
    pub latency: Vec<(f64, f64)>,
}

impl Plan {
    /// Names and plans that come with the program.
    pub fn all() -> Vec<Plan> {
        let parse = |(name, text)| Plan::parse(text, name).expect("built-in plans are checked");
        BUILTIN.into_iter().map(parse).collect()
    }

    /// A built-in plan by name, or a plan file by path.
    pub fn find(name: &str) -> anyhow::Result<Plan> {
        if let Some((_, text)) = BUILTIN.iter().find(|(known, _)| *known == name) {
            return Plan::parse(text, name);
        }
        if !Path::new(name).exists() {
            let known: Vec<_> = BUILTIN.iter().map(|(known, _)| *known).collect();
            anyhow::bail!("no plan {name:?}; give one of {} or a TOML file", known.join(", "));
        }
        let text = std::fs::read_to_string(name)
            .map_err(|error| anyhow::anyhow!("cannot read plan {name}: {error}"))?;
        Plan::parse(&text, name)
    }

    /// Reads and checks a plan; `file` is named in errors.
    pub fn parse(text: &str, file: &str) -> anyhow::Result<Plan> {
        let plan: Plan = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = 1 + text[..at.min(text.len())].matches('\n').count();
            let message = error.message().replace('\n', " ");
            anyhow::anyhow!("{file}:{line}: {message}; correct or remove it")
        })?;
        plan.check().map_err(|error| anyhow::anyhow!("{file}: {error}"))?;
        Ok(plan)
    }

    fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.duration > 0.0 && self.warm_up >= 0.0 && self.duration < 1e6,
            "duration and warm_up are seconds above zero; correct them"
        );
        for scenario in &self.scenarios {
            for name in &scenario.treatments {
                self.treatment(name)?;
                self.point(scenario, name, 1, self.duration)?;
            }
            anyhow::ensure!(
                !scenario.flows.is_empty()
                    && !scenario.flows.iter().chain(&scenario.totals).any(|flows| *flows == 0),
                "scenario {}: flows must be a list of at least one number above zero",
                scenario.name
            );
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
    pub fn point(
        &self,
        scenario: &Scenario,
        name: &str,
        flows: u32,
        duration: f64,
    ) -> anyhow::Result<Point> {
        let in_scenario =
            |error: anyhow::Error| error.context(format!("scenario {}", scenario.name));
        let topology = Topology::new(scenario).map_err(in_scenario)?;
        let pattern = scenario.pattern.pattern();
        let mut calls = Vec::new();
        let directions = scenario.directions.len() as u32;
        for (index, (from, to)) in (0..).zip(&scenario.directions) {
            let (from, to) = (topology.index(from)?, topology.index(to)?);
            let flow = Flow { from, to, pattern: pattern.clone() };
            let share = flows / directions + u32::from(index < flows % directions);
            calls.extend((0..share).map(|_| flow.clone()));
        }
        let aggregation = self.treatment(name)?.aggregation()?;
        let medium = topology.medium(scenario);
        medium.check().map_err(|error| in_scenario(error.into()))?;
        Ok(Point {
            nodes: scenario.nodes.clone(),
            next_hop: topology.next_hops().map_err(in_scenario)?,
            medium,
            flows: calls,
            codec: scenario.codec.codec(),
            aggregation,
            warm_up: Duration::from_secs_f64(self.warm_up),
            duration: Duration::from_secs_f64(duration),
            seed: self.seed.wrapping_add(u64::from(flows)),
        })
    }
}

impl Scenario {
    /// The points of the sweep as flows in all: `per_direction` instead of the plan's, where given.
    pub fn sweep(&self, per_direction: Option<&[u32]>) -> Vec<u32> {
        let all = |flows: &u32| flows * self.directions.len() as u32;
        let mut sweep: Vec<u32> = per_direction.unwrap_or(&self.flows).iter().map(all).collect();
        if per_direction.is_none() {
            sweep.extend(&self.totals);
        }
        sweep.sort_unstable();
        sweep.dedup();
        sweep
    }
}

impl Treatment {
    fn aggregation(&self) -> anyhow::Result<Option<Aggregation>> {
        let Some(policy) = self.policy else { return Ok(None) };
        let mut config = match policy {
            PolicyName::Forced => sheaf_aggregate::Config::forced(),
            PolicyName::Busy => sheaf_aggregate::Config::default(),
        };
        config.min = self.min.map_or(config.min, Threshold::Bytes);
        config.max = self.max.unwrap_or(config.max);
        let millis = |ms: f64| Duration::from_secs_f64(ms.max(0.0) / 1e3);
        config.timeout = self.timeout.map_or(config.timeout, millis);
        config.hold = self.hold.map_or(config.hold, millis);
        config.check().map_err(|error| anyhow::anyhow!("treatment {}: {error}", self.name))?;
        let mode = match self.mode {
            Some(ModeName::End) => Mode::End,
            Some(ModeName::Hop) | None => Mode::Hop,
        };
        Ok(Some(Aggregation { config, mode }))
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
        let phy = match scenario.phy {
            PhyName::DsssLong => Phy::Dsss { short_preamble: false },
            PhyName::DsssShort => Phy::Dsss { short_preamble: true },
            PhyName::ErpOfdm => Phy::ErpOfdm,
            PhyName::Ofdm => Phy::Ofdm,
        };
        let rate = Bitrate::from_bps((scenario.rate * 1e6) as u64);
        let mut config = sheaf_medium::Config::new(phy, self.nodes.len(), rate);
        config.radios.iter_mut().for_each(|radio| radio.queue_limit = scenario.queue);
        if matches!(scenario.hearing, HearingName::Links) {
            let link = |a, b| if self.linked(a, b) { Link::PERFECT } else { Link::NONE };
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

    fn broken(from: &str, to: &str) -> String {
        let text = BUILTIN[0].1;
        assert!(text.contains(from), "{from}");
        Plan::parse(&text.replacen(from, to, 1), "my.toml").unwrap_err().to_string()
    }

    #[test]
    fn the_built_in_plans_are_sound() {
        for plan in Plan::all() {
            assert!(!plan.scenarios.is_empty(), "{}", plan.name);
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line_with_place_and_remedy() {
        let unknown = broken("seed", "sede = 3\nseed");
        assert!(unknown.starts_with("my.toml:") && unknown.contains("sede"), "{unknown}");
        assert!(unknown.contains("expected one of") && !unknown.contains('\n'), "{unknown}");
        assert!(broken("[\"A\", \"C\"]", "[\"A\", \"X\"]").contains("scenario"));
        assert!(broken("rate = 2", "rate = 3").contains("scenario"));
        assert!(broken("min = 500", "min = 5000").contains("at most 1500"));
        assert!(broken("warm_up = 5", "warm_up = -5").contains("warm_up"));
    }

    #[test]
    fn two_hops_go_through_the_router() {
        let plan = Plan::find("voip-two-hop").unwrap();
        let point = plan.point(&plan.scenarios[0], "baseline", 13, 10.0).unwrap();
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
