//! The result of a run: the form of result.json, the same for all kinds of plans.

use crate::experiment::Engine;
use crate::measured::{Row, Series, key, number, numbers, scenarios, sweep, treatments};
use crate::median;
use crate::plan_file::Published;
use crate::reading::{Numbers, Reading};
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
    /// Seed of the first repetition; those of the others follow from it.
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
    /// Points of the plan, repetitions counted, that were not measured.
    pub missing: usize,
    /// One for each point and treatment.
    pub rows: Vec<Row>,
    /// Curves of single points, of their first repetition.
    pub series: Vec<Curve>,
    /// `scenario/treatment` → key → number, with the keys of a [`Reading`]; for calls, rule →
    /// supported flows.
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
        sweep(&self.rows, scenario, treatment)
    }

    /// A number of the summary.
    pub fn summary(&self, scenario: &str, treatment: &str, name: &str) -> Option<Reading> {
        Reading::of(self.summary.get(&key(scenario, treatment))?, name)
    }

    /// The number of `key` of a treatment: of the row at `at`, or of the summary; where `times`
    /// names another treatment, as a multiple of that one's.
    pub fn number(
        &self,
        scenario: &str,
        treatment: &str,
        times: Option<&str>,
        key: &str,
        at: Option<f64>,
    ) -> Option<Reading> {
        let of = |treatment: &str| match at {
            None => self.summary(scenario, treatment, key),
            Some(at) => {
                let rows = self.sweep(scenario, treatment).into_iter();
                rows.filter(|row| row.x == at).find_map(|row| row.reading(key))
            }
        };
        match times {
            None => of(treatment),
            Some(times) => Some(of(treatment)?.over(&of(times)?)),
        }
    }

    /// The least and the most seeds of a row.
    pub fn seeds(&self) -> (usize, usize) {
        let seeds = || self.rows.iter().map(|row| row.seeds);
        (seeds().min().unwrap_or(0), seeds().max().unwrap_or(0))
    }

    /// Remark on points that are missing; `None` when none are.
    pub fn holes(&self) -> Option<String> {
        let missing = self.missing;
        match missing {
            0 => None,
            1 => Some("1 point of the plan is missing.".to_owned()),
            _ => Some(format!("{missing} points of the plan are missing.")),
        }
    }

    /// Explanation of the medians and of the range behind each; `None` for a single seed.
    pub fn spread(&self) -> Option<String> {
        let (least, most) = self.seeds();
        let seeds = if least == most { most.to_string() } else { format!("{least} to {most}") };
        let range = match (least >= median::LEAST, most >= median::LEAST) {
            (true, _) => "the interval of the median at 95 %".to_owned(),
            (_, false) => format!("the whole range: an interval takes {} seeds", median::LEAST),
            _ => format!(
                "the interval of the median at 95 %, of fewer than {} seeds the whole range",
                median::LEAST
            ),
        };
        (most > 1).then(|| format!("medians of {seeds} seeds; in parentheses {range}"))
    }

    /// The published figures in charts of a treatment. Multiples of another treatment are in none.
    pub fn drawn<'a>(
        &'a self,
        scenario: &'a str,
        treatment: &'a str,
    ) -> impl Iterator<Item = &'a Published> {
        let figures = self.published.iter().filter(|published| published.times.is_empty());
        figures.filter(move |published| {
            published.scenario == scenario && published.treatment == treatment
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
