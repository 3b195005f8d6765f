//! The measurement of one point of a plan, and the row that it becomes in results.

use crate::median::Median;
use crate::reading::{Numbers, Reading};
use crate::view::Axis;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// One point of a plan.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct SweepPoint {
    /// Name of the scenario.
    pub scenario: String,
    /// Name of the treatment.
    pub treatment: String,
    /// Place in the sweep, in the unit of [`View::axis`](crate::view::View::axis).
    pub x: f64,
    /// Number of the repetition, from 1 on; each has a [seed](crate::plan_file::Head::seed_of).
    pub repetition: u32,
    /// Seconds of the testbed's time, for the progress bar.
    pub seconds: f64,
}

impl SweepPoint {
    /// The first repetition of a point.
    pub fn new(scenario: &str, treatment: &str, x: f64, seconds: f64) -> SweepPoint {
        let (scenario, treatment) = (scenario.to_owned(), treatment.to_owned());
        SweepPoint { scenario, treatment, x, repetition: 1, seconds }
    }

    /// Whether both are repetitions of one point.
    pub fn repeats(&self, other: &SweepPoint) -> bool {
        (&self.scenario, &self.treatment, self.x) == (&other.scenario, &other.treatment, other.x)
    }
}

impl fmt::Display for SweepPoint {
    /// As `--only` takes it: `SCENARIO/TREATMENT/X`, and `#N` beyond the first repetition.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.scenario, self.treatment, self.x)?;
        match self.repetition {
            1 => Ok(()),
            repetition => write!(f, "#{repetition}"),
        }
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
    /// Number of seeds: the repetitions of the point.
    pub seeds: usize,
    /// Medians of the repetitions in which a number was measured, by the keys of the view. The ends
    /// of a median's [interval](Median) are `KEY_low` and `KEY_high`; one seed has none.
    #[serde(flatten, serialize_with = "numbers")]
    pub metrics: Numbers,
}

impl Row {
    /// The row of all repetitions that were measured of `sweep_point`.
    pub fn new(sweep_point: &SweepPoint, repetitions: &[&Measured]) -> Row {
        let mut values = BTreeMap::<&str, Vec<f64>>::new();
        let measured = repetitions.iter().flat_map(|measured| &measured.metrics);
        for (key, value) in measured.filter(|(_, value)| value.is_finite()) {
            values.entry(key).or_default().push(*value);
        }
        let mut metrics = Numbers::new();
        for (key, values) in values {
            let Some(median) = Median::of(values) else { continue };
            metrics.insert(key.to_owned(), median.value);
            if repetitions.len() > 1 {
                metrics.insert(format!("{key}_low"), median.low);
                metrics.insert(format!("{key}_high"), median.high);
            }
        }
        Row {
            scenario: sweep_point.scenario.clone(),
            treatment: sweep_point.treatment.clone(),
            x: sweep_point.x,
            seeds: repetitions.len(),
            metrics,
        }
    }

    /// The median of `key`; `None` where it was not measured.
    pub fn get(&self, key: &str) -> Option<f64> {
        self.metrics.get(key).copied()
    }

    /// The median of `key` with its interval; `None` where it was not measured.
    pub fn reading(&self, key: &str) -> Option<Reading> {
        Reading::of(&self.metrics, key)
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

/// The scenarios without a hole, in the order of their rows.
pub fn whole_scenarios<'a>(rows: &'a [Row], holes: &[SweepPoint]) -> Vec<&'a str> {
    let is_whole = |name: &&str| holes.iter().all(|hole| hole.scenario != *name);
    scenarios(rows).into_iter().filter(is_whole).collect()
}

/// The treatments of a scenario, in the order of their rows.
pub fn treatments<'a>(rows: &'a [Row], scenario: &str) -> Vec<&'a str> {
    let rows = rows.iter().filter(|row| row.scenario == scenario);
    unique(rows.map(|row| row.treatment.as_str()))
}

/// The rows of a treatment, by their place in the sweep.
pub fn sweep<'a>(rows: &'a [Row], scenario: &str, treatment: &str) -> Vec<&'a Row> {
    let of = |row: &&Row| row.scenario == scenario && row.treatment == treatment;
    let mut rows: Vec<_> = rows.iter().filter(of).collect();
    rows.sort_by(|one, other| one.x.total_cmp(&other.x));
    rows
}

/// Each item once, where it comes first.
pub(crate) fn unique<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    items.for_each(|item| {
        if !seen.contains(&item) {
            seen.push(item);
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
        let sweep_point = SweepPoint::new("s", "t", 4.0, 1.0);
        let metrics =
            vec![("kau".to_owned(), 3.0), ("loss".to_owned(), 0.5), ("none".to_owned(), f64::NAN)];
        let row = Row::new(&sweep_point, &[&Measured { metrics, series: Vec::new() }]);
        let json = serde_json::to_string(&row).unwrap();
        assert_eq!(json, r#"{"scenario":"s","treatment":"t","x":4,"seeds":1,"kau":3,"loss":0.5}"#);
        assert_eq!(serde_json::from_str::<Row>(&json).unwrap(), row);
    }

    #[test]
    fn a_row_of_repetitions_has_medians_with_intervals_of_what_was_measured() {
        let sweep_point = SweepPoint::new("s", "t", 4.0, 1.0);
        let measured = |kau: f64, late: f64| Measured {
            metrics: vec![("kau".to_owned(), kau), ("late".to_owned(), late)],
            series: Vec::new(),
        };
        let all = [measured(4.0, f64::NAN), measured(2.0, 7.0), measured(3.0, f64::INFINITY)];
        let row = Row::new(&sweep_point, &all.iter().collect::<Vec<_>>());
        assert_eq!(row.seeds, 3);
        let interval = |low, high| Some((low, high));
        let kau = Reading { interval: interval(2.0, 4.0), ..Reading::exact(3.0) };
        let late = Reading { interval: interval(7.0, 7.0), ..Reading::exact(7.0) };
        assert_eq!((row.reading("kau"), row.reading("late")), (Some(kau), Some(late)));
    }

    #[test]
    fn a_point_is_named_with_its_repetition_beyond_the_first() {
        let first = SweepPoint::new("s", "t", 4.0, 1.0);
        let third = SweepPoint { repetition: 3, ..first.clone() };
        assert_eq!((first.to_string(), third.to_string()), ("s/t/4".into(), "s/t/4#3".into()));
        assert!(first.repeats(&third) && !first.repeats(&SweepPoint { x: 5.0, ..third }));
    }
}
