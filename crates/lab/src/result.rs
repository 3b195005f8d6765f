//! What a run of a plan came to: the form of result.json, the same for all kinds of plans.

use crate::experiment::{Engine, Measured, Series, Spot, View};
use crate::plan::Published;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;

/// Numbers by key.
pub type Numbers = BTreeMap<String, f64>;

/// A run of a plan.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RunResult {
    /// Name of the plan.
    pub plan: String,
    /// What it shows.
    pub title: String,
    /// The published work.
    pub source: String,
    /// Where packets ran.
    pub engine: Engine,
    /// Seed of all randomness.
    pub seed: u64,
    /// Seconds measured per point.
    #[serde(serialize_with = "number")]
    pub duration: f64,
    /// What was run: this program, the kernel.
    pub versions: BTreeMap<String, String>,
    /// Processor and number of cores.
    pub machine: String,
    /// The answer in one sentence.
    pub answer: String,
    /// One for each point and treatment.
    pub rows: Vec<Row>,
    /// Curves of single points.
    pub series: Vec<Curve>,
    /// `scenario/treatment` → key → number; for calls, rule → supported flows: the most at any
    /// point of the sweep.
    #[serde(serialize_with = "summary")]
    pub summary: BTreeMap<String, Numbers>,
    /// A remark on a scenario, such as what arithmetic allows.
    pub remarks: BTreeMap<String, String>,
    /// Figures of the source.
    pub published: Vec<Published>,
    /// How it is shown.
    pub view: View,
}

/// One point under one treatment.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Row {
    /// Scenario.
    pub scenario: String,
    /// Treatment.
    pub treatment: String,
    /// Where in the sweep.
    #[serde(serialize_with = "number")]
    pub x: f64,
    /// What was measured, by the keys of the view.
    #[serde(flatten, serialize_with = "numbers")]
    pub metrics: Numbers,
}

/// A curve of one point.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Curve {
    /// Scenario.
    pub scenario: String,
    /// Treatment.
    pub treatment: String,
    /// Where in the sweep.
    #[serde(serialize_with = "number")]
    pub at: f64,
    /// The curve.
    #[serde(flatten)]
    pub series: Series,
}

impl Row {
    /// The row of what was measured at `spot`.
    pub fn new(spot: &Spot, measured: &Measured) -> Row {
        let finite = measured.metrics.iter().filter(|(_, value)| value.is_finite());
        Row {
            scenario: spot.scenario.clone(),
            treatment: spot.treatment.clone(),
            x: spot.x,
            metrics: finite.cloned().collect(),
        }
    }

    /// The number of `key`; `None` where it was not measured.
    pub fn get(&self, key: &str) -> Option<f64> {
        self.metrics.get(key).copied()
    }
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

/// The key of a treatment in a summary.
pub fn key(scenario: &str, treatment: &str) -> String {
    format!("{scenario}/{treatment}")
}

/// The scenarios, in the order of their rows.
pub fn scenarios(rows: &[Row]) -> Vec<&str> {
    unique(rows.iter().map(|row| row.scenario.as_str()))
}

/// The treatments of a scenario, in the order of their rows.
pub fn treatments<'a>(rows: &'a [Row], scenario: &str) -> Vec<&'a str> {
    let rows = rows.iter().filter(|row| row.scenario == scenario);
    unique(rows.map(|row| row.treatment.as_str()))
}

/// Each name once, where it comes first.
pub(crate) fn unique<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    names.for_each(|name| {
        if !seen.contains(&name) {
            seen.push(name);
        }
    });
    seen
}

/// A number; a count is written as one, without a decimal point.
struct Number(f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.fract() == 0.0 && self.0.abs() < 1e15 {
            true => serializer.serialize_i64(self.0 as i64),
            false => serializer.serialize_f64(self.0),
        }
    }
}

fn number<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    Number(*value).serialize(serializer)
}

fn numbers<S: Serializer>(values: &Numbers, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(values.iter().map(|(key, value)| (key, Number(*value))))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_flat_in_json_counts_are_whole_and_it_reads_back() {
        let spot = Spot { scenario: "s".into(), treatment: "t".into(), x: 4.0, seconds: 1.0 };
        let metrics =
            vec![("kau".to_owned(), 3.0), ("loss".to_owned(), 0.5), ("none".to_owned(), f64::NAN)];
        let row = Row::new(&spot, &Measured { metrics, series: Vec::new() });
        let json = serde_json::to_string(&row).unwrap();
        assert_eq!(json, r#"{"scenario":"s","treatment":"t","x":4,"kau":3,"loss":0.5}"#);
        assert_eq!(serde_json::from_str::<Row>(&json).unwrap(), row);
    }
}
