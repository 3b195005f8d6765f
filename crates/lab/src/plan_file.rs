//! The form of a plan: a head that all kinds share, and the kind's own scenarios and treatments.

use crate::experiment::Engine;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// The subject of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Calls over a wireless mesh.
    #[default]
    Voip,
    /// A home behind a slow link.
    Home,
    /// One emulated link.
    Link,
    /// Trunks of radio links.
    Trunk,
}

/// The keys with which plans of all kinds begin.
#[derive(Clone, Debug)]
pub struct Head {
    /// Kind of the plan.
    pub kind: Kind,
    /// Its name, as given to `sheaf lab run`.
    pub name: String,
    /// Purpose of the plan, in one sentence.
    pub title: String,
    /// The published work.
    pub source: String,
    /// Seconds that are measured at each point.
    pub duration: f64,
    /// Seconds before, which are not measured.
    pub warm_up: f64,
    /// Seed of all randomness; of the first repetition.
    pub seed: u64,
    /// Repetitions of each point, each with a seed of its own.
    pub repetitions: u32,
    /// Repetitions on the netns engine, which runs in real time; as many as on the other where not
    /// given.
    pub netns_repetitions: Option<u32>,
    /// The points of the sweep in place of those in the scenarios, as a run with `--points` keeps
    /// them.
    pub points: Option<Vec<f64>>,
    /// The shorter run of `--quick`.
    pub quick: Quick,
    /// Figures of the source.
    pub published: Vec<Published>,
}

impl Head {
    /// Repetitions of each point on `engine`.
    pub fn repetitions(&self, engine: Engine) -> u32 {
        match engine {
            Engine::Netns => self.netns_repetitions.unwrap_or(self.repetitions),
            Engine::Virtual => self.repetitions,
        }
    }

    /// Seed of a repetition: the plan's for the first, so that a single run is the first of many;
    /// for others 32 bits of a hash, because near seeds would share talkers, whose own seeds count
    /// up from the point's.
    pub fn seed_of(&self, repetition: u32) -> u64 {
        if repetition <= 1 {
            return self.seed;
        }
        let hash = Sha256::new().chain_update(self.seed.to_be_bytes());
        let hash = hash.chain_update(repetition.to_be_bytes()).finalize();
        hash[..4].iter().fold(0, |seed, byte| seed << 8 | u64::from(*byte))
    }
}

/// A plan of one kind: `S` is a scenario, `T` a treatment.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(from = "Toml<S, T>", into = "Toml<S, T>")]
#[serde(bound(deserialize = "S: DeserializeOwned, T: DeserializeOwned"))]
#[serde(bound(serialize = "S: Clone + Serialize, T: Clone + Serialize"))]
pub struct PlanFile<S, T> {
    /// The keys that all plans have.
    pub head: Head,
    /// Testbeds.
    pub scenarios: Vec<S>,
    /// Features that are compared.
    pub treatments: Vec<T>,
}

/// A shorter run.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// The sweep on the netns engine, which runs in real time.
    pub points: Vec<f64>,
    /// Seconds per point on the netns engine.
    pub netns_duration: f64,
    /// Seconds per point on the virtual engine, whose sweep stays whole.
    pub virtual_duration: f64,
    /// Repetitions of each point, on both engines.
    #[serde(default = "once")]
    pub repetitions: u32,
}

/// Repetitions where a plan gives none.
fn once() -> u32 {
    1
}

/// A published figure.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Scenario it belongs beside.
    pub scenario: String,
    /// Treatment it is comparable with.
    pub treatment: String,
    /// Treatment of which the values are multiples, where the source gives no more than that; such
    /// values are in no chart.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub times: String,
    /// Name beside the values in charts, in a few words.
    pub label: String,
    /// Table or figure of the source, such as `table 3.1`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// Reason why values of ours differ from these, with the experiment that shows it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Step to which the source rounds the values, where that hides more than the tolerance: one of
    /// ours that rounds to a value is that value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounded: Option<f64>,
    /// Values beside the columns of the summary, by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub summary: BTreeMap<String, f64>,
    /// Values beside the rows: by metric, points of the sweep and values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub points: BTreeMap<String, Vec<(f64, f64)>>,
}

/// The form of the TOML file; `deny_unknown_fields` forbids to nest the head.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Toml<S, T> {
    #[serde(default)]
    kind: Kind,
    name: String,
    title: String,
    source: String,
    duration: f64,
    warm_up: f64,
    seed: u64,
    #[serde(default = "once")]
    repetitions: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    netns_repetitions: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    points: Option<Vec<f64>>,
    quick: Quick,
    #[serde(rename = "scenario")]
    scenarios: Vec<S>,
    #[serde(rename = "treatment")]
    treatments: Vec<T>,
    #[serde(default)]
    published: Vec<Published>,
}

impl<S, T> From<Toml<S, T>> for PlanFile<S, T> {
    fn from(file: Toml<S, T>) -> Self {
        let Toml { kind, name, title, source, duration, warm_up, seed, .. } = file;
        let Toml { repetitions, netns_repetitions, points, quick, published, .. } = file;
        PlanFile {
            head: Head {
                kind,
                name,
                title,
                source,
                duration,
                warm_up,
                seed,
                repetitions,
                netns_repetitions,
                points,
                quick,
                published,
            },
            scenarios: file.scenarios,
            treatments: file.treatments,
        }
    }
}

impl<S, T> From<PlanFile<S, T>> for Toml<S, T> {
    fn from(plan: PlanFile<S, T>) -> Self {
        let Head { kind, name, title, source, duration, warm_up, seed, .. } = plan.head;
        let Head { repetitions, netns_repetitions, points, quick, published, .. } = plan.head;
        let (scenarios, treatments) = (plan.scenarios, plan.treatments);
        Toml {
            kind,
            name,
            title,
            source,
            duration,
            warm_up,
            seed,
            repetitions,
            netns_repetitions,
            points,
            quick,
            scenarios,
            treatments,
            published,
        }
    }
}
