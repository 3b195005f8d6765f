//! The form in which results are shown: axes, metrics and charts, the same for the terminal and the
//! report.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The form in which the results of a plan are shown.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct View {
    /// The sweep.
    pub axis: Axis,
    /// All numbers of a row, in the order of the table.
    pub metrics: Vec<Metric>,
    /// Metrics over the sweep. The terminal shows these metrics.
    pub charts: Vec<Chart>,
    /// The columns of the summary, by the keys of
    /// [`Conclusion::summary`](crate::experiment::Conclusion::summary); none for a table of points
    /// in its place.
    pub summary: Vec<Metric>,
    /// Explanation of the rows, printed under the report.
    pub notes: String,
}

impl View {
    /// The metric of `key`.
    pub fn metric(&self, key: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.key == key)
    }
}

/// One number of a row.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Metric {
    /// Its name in JSON, CSV and plans.
    pub key: String,
    /// Its label for people.
    pub label: String,
    /// Its unit; empty for counts.
    pub unit: String,
}

impl Metric {
    /// A metric.
    pub fn new(key: &str, label: &str, unit: &str) -> Metric {
        Metric { key: key.to_owned(), label: label.to_owned(), unit: unit.to_owned() }
    }

    /// Its axis.
    pub fn axis(&self) -> Axis {
        Axis { label: self.label.clone(), unit: self.unit.clone() }
    }
}

/// A metric over the sweep.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Chart {
    /// Title above the chart.
    pub title: String,
    /// Key of the metric.
    pub metric: String,
    /// Whether the metric's axis is logarithmic.
    pub log: bool,
    /// Values above are cut off, so that an overload does not flatten the rest.
    pub most: Option<f64>,
    /// Values below are drawn at this one.
    pub least: Option<f64>,
    /// Horizontal lines, such as limits.
    pub marks: Vec<Mark>,
}

impl Chart {
    /// A chart of `metric`.
    pub fn new(title: &str, metric: &str) -> Chart {
        Chart { title: title.to_owned(), metric: metric.to_owned(), ..Chart::default() }
    }

    /// The same, cut off above `most`.
    pub fn up_to(self, most: f64) -> Chart {
        Chart { most: Some(most), ..self }
    }

    /// The same, with values below `least` drawn at `least`.
    pub fn down_to(self, least: f64) -> Chart {
        Chart { least: Some(least), ..self }
    }

    /// The same, logarithmic.
    pub fn logarithmic(self) -> Chart {
        Chart { log: true, ..self }
    }

    /// The same with a horizontal line, in one scenario or in all.
    pub fn mark(mut self, scenario: Option<&str>, label: &str, value: f64) -> Chart {
        let scenario = scenario.map(str::to_owned);
        self.marks.push(Mark { scenario, label: label.to_owned(), value });
        self
    }
}

/// A horizontal line in a chart.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Mark {
    /// The scenario it belongs to; `None` for all.
    pub scenario: Option<String>,
    /// Its name.
    pub label: String,
    /// Value at which the line lies.
    pub value: f64,
}

/// An axis of a chart.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Axis {
    /// Its label for people.
    pub label: String,
    /// Its unit; empty for counts.
    pub unit: String,
}

impl Axis {
    /// An axis of `label` in `unit`.
    pub fn new(label: &str, unit: &str) -> Axis {
        Axis { label: label.to_owned(), unit: unit.to_owned() }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unit.as_str() {
            "" => f.write_str(&self.label),
            unit => write!(f, "{} ({unit})", self.label),
        }
    }
}
