//! The result of a run: the form of result.json, the same for all kinds of plans.

use crate::experiment::Engine;
use crate::measured::{Numbers, Row, Series, key, number, numbers, scenarios, treatments};
use crate::plan_file::Published;
use crate::view::View;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;

/// A run of a plan.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RunResult {
    /// Name of the plan.
    pub plan: String,
    /// Purpose of the plan, in one sentence.
    pub title: String,
    /// The published work.
    pub source: String,
    /// Stacks that packets passed.
    pub engine: Engine,
    /// Seed of all randomness.
    pub seed: u64,
    /// Seconds measured per point.
    #[serde(serialize_with = "number")]
    pub duration: f64,
    /// Versions of this program and of the kernel.
    pub versions: BTreeMap<String, String>,
    /// Processor and number of cores.
    pub machine: String,
    /// The conclusion in one sentence.
    pub answer: String,
    /// One for each point and treatment.
    pub rows: Vec<Row>,
    /// Curves of single points.
    pub series: Vec<Curve>,
    /// `scenario/treatment` → key → number; for calls, rule → supported flows: the most at any
    /// point of the sweep.
    #[serde(serialize_with = "summary")]
    pub summary: BTreeMap<String, Numbers>,
    /// Remarks on scenarios, such as the limit by arithmetic.
    pub remarks: BTreeMap<String, String>,
    /// Figures of the source.
    pub published: Vec<Published>,
    /// The form in which it is shown.
    pub view: View,
}

/// A curve of one point.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Curve {
    /// Scenario.
    pub scenario: String,
    /// Treatment.
    pub treatment: String,
    /// Place in the sweep.
    #[serde(serialize_with = "number")]
    pub at: f64,
    /// The curve.
    #[serde(flatten)]
    pub series: Series,
}

impl RunResult {
    /// The scenarios, in the order of their rows.
    pub fn scenarios(&self) -> Vec<&str> {
        scenarios(&self.rows)
    }

    /// The treatments of a scenario, in the order of their rows.
    pub fn treatments(&self, scenario: &str) -> Vec<&str> {
        treatments(&self.rows, scenario)
    }

    /// The rows of a treatment, by their place in the sweep.
    pub fn sweep(&self, scenario: &str, treatment: &str) -> Vec<&Row> {
        let of = |row: &&Row| row.scenario == scenario && row.treatment == treatment;
        let mut rows: Vec<_> = self.rows.iter().filter(of).collect();
        rows.sort_by(|one, other| one.x.total_cmp(&other.x));
        rows
    }

    /// A number of the summary.
    pub fn summary(&self, scenario: &str, treatment: &str, name: &str) -> Option<f64> {
        self.summary.get(&key(scenario, treatment))?.get(name).copied()
    }

    /// The published figures beside a treatment.
    pub fn published<'a>(
        &'a self,
        scenario: &'a str,
        treatment: &'a str,
    ) -> impl Iterator<Item = &'a Published> {
        self.published.iter().filter(move |published| {
            published.scenario == scenario && published.treatment == treatment
        })
    }

    /// The published value of `metric` beside a row.
    pub fn published_at(&self, row: &Row, metric: &str) -> Option<f64> {
        self.published(&row.scenario, &row.treatment).find_map(|published| {
            let points = published.points.get(metric)?;
            points.iter().find(|(x, _)| *x == row.x).map(|(_, value)| *value)
        })
    }
}

fn summary<S: Serializer>(
    values: &BTreeMap<String, Numbers>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    /// The numbers of one treatment.
    struct Inner<'a>(&'a Numbers);
    impl Serialize for Inner<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            numbers(self.0, serializer)
        }
    }
    serializer.collect_map(values.iter().map(|(key, values)| (key, Inner(values))))
}
