//! The measurement of one point of a plan, and the row that it becomes in results.

use crate::view::Axis;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// Numbers by key.
pub type Numbers = BTreeMap<String, f64>;

/// One point of a plan.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct SweepPoint {
    /// Name of the scenario.
    pub scenario: String,
    /// Name of the treatment.
    pub treatment: String,
    /// Place in the sweep, in the unit of [`View::axis`](crate::view::View::axis).
    pub x: f64,
    /// Seconds of the testbed's time, for the progress bar.
    pub seconds: f64,
}

impl fmt::Display for SweepPoint {
    /// As `--only` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.scenario, self.treatment, self.x)
    }
}

/// The measurement of one point.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Measured {
    /// Numbers, by the keys of [`View::metrics`](crate::view::View::metrics). A value that is not
    /// finite was not measured, and is left out of results.
    pub metrics: Vec<(String, f64)>,
    /// Curves of this point alone: over time, or a distribution.
    pub series: Vec<Series>,
}

/// A curve.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Series {
    /// Title of the curve; curves of one name share a chart.
    pub name: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// In the order in which they are joined.
    pub points: Vec<(f64, f64)>,
}

/// One point under one treatment.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Row {
    /// Scenario.
    pub scenario: String,
    /// Treatment.
    pub treatment: String,
    /// Place in the sweep.
    #[serde(serialize_with = "number")]
    pub x: f64,
    /// Measured numbers, by the keys of the view.
    #[serde(flatten, serialize_with = "numbers")]
    pub metrics: Numbers,
}

impl Row {
    /// The row of a measurement at `sweep_point`.
    pub fn new(sweep_point: &SweepPoint, measured: &Measured) -> Row {
        let finite = measured.metrics.iter().filter(|(_, value)| value.is_finite());
        Row {
            scenario: sweep_point.scenario.clone(),
            treatment: sweep_point.treatment.clone(),
            x: sweep_point.x,
            metrics: finite.cloned().collect(),
        }
    }

    /// The number of `key`; `None` where it was not measured.
    pub fn get(&self, key: &str) -> Option<f64> {
        self.metrics.get(key).copied()
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

pub(crate) fn number<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    Number(*value).serialize(serializer)
}

pub(crate) fn numbers<S: Serializer>(values: &Numbers, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(values.iter().map(|(key, value)| (key, Number(*value))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_flat_in_json_counts_are_whole_and_it_reads_back() {
        let sweep_point =
            SweepPoint { scenario: "s".into(), treatment: "t".into(), x: 4.0, seconds: 1.0 };
        let metrics =
            vec![("kau".to_owned(), 3.0), ("loss".to_owned(), 0.5), ("none".to_owned(), f64::NAN)];
        let row = Row::new(&sweep_point, &Measured { metrics, series: Vec::new() });
        let json = serde_json::to_string(&row).unwrap();
        assert_eq!(json, r#"{"scenario":"s","treatment":"t","x":4,"kau":3,"loss":0.5}"#);
        assert_eq!(serde_json::from_str::<Row>(&json).unwrap(), row);
    }
}
