//! What every kind of experiment can do: name its points, measure one, say how it is shown.
//!
//! The house around it does the rest, the same for all kinds: reads plans, runs points (in parallel
//! under the virtual clock, one at a time in real time), keeps each finished point, joins them, and
//! writes the report with the published figures beside ours.

use crate::result::Row;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Where packets run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Real Linux stacks in network namespaces, in real time; needs root.
    Netns,
    /// Under a virtual clock: same seed, same result to the byte.
    Virtual,
}

impl Engine {
    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Netns => "netns",
            Engine::Virtual => "virtual",
        }
    }
}

/// A plan of one kind, ready to be run: seed, seconds and sweep are those of its
/// [`Head`](crate::plan::Head).
pub trait Experiment: Send + Sync {
    /// Refuses what cannot be run, before anything starts.
    fn check(&self) -> Result<(), Fault>;

    /// What this machine lacks for `engine`: tools, rights, kernel support.
    fn ready(&self, _engine: Engine, _tools: &Tools) -> anyhow::Result<()> {
        Ok(())
    }

    /// The independent points of the plan on `engine`, in the order in which they are shown.
    fn points(&self, engine: Engine) -> Vec<Spot>;

    /// Measures one. On [`Engine::Virtual`] it is called from several threads at once; on
    /// [`Engine::Netns`] never twice at a time.
    fn measure(&self, spot: &Spot, engine: Engine, tools: &Tools) -> anyhow::Result<Measured>;

    /// How the results are shown.
    fn view(&self) -> View;

    /// What all rows together say.
    fn conclude(&self, _rows: &[Row]) -> Conclusion {
        Conclusion::default()
    }
}

/// One point of a plan.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Spot {
    /// Name of the scenario.
    pub scenario: String,
    /// Name of the treatment.
    pub treatment: String,
    /// Where in the sweep, in the unit of [`View::axis`].
    pub x: f64,
    /// Seconds of the testbed's time, for the progress bar.
    pub seconds: f64,
}

impl fmt::Display for Spot {
    /// As `--only` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.scenario, self.treatment, self.x)
    }
}

/// What was measured at one point.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Measured {
    /// Numbers, by the keys of [`View::metrics`]. What is not finite was not measured, and is
    /// left out of results.
    pub metrics: Vec<(String, f64)>,
    /// Curves of this point alone: over time, or a distribution.
    pub series: Vec<Series>,
}

/// A curve.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Series {
    /// What it shows; curves of one name share a chart.
    pub name: String,
    /// Across.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// In the order in which they are joined.
    pub points: Vec<(f64, f64)>,
}

/// What an axis shows.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Axis {
    /// In words.
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

/// What an experiment may use.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The program `sheaf` itself, for `sheaf emulate`, `trunk` and `window` inside a namespace.
    pub sheaf: PathBuf,
}

/// How results are shown.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct View {
    /// The sweep.
    pub axis: Axis,
    /// All numbers of a row, in the order of the table.
    pub metrics: Vec<Metric>,
    /// Metrics over the sweep. The terminal shows these metrics.
    pub charts: Vec<Chart>,
    /// The columns of the summary, by the keys of [`Conclusion::summary`]; none for a table of
    /// points in its place.
    pub summary: Vec<Metric>,
    /// How rows come to be and how to read them, under the report.
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
    /// In words.
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
    /// Above it.
    pub title: String,
    /// Key of the metric.
    pub metric: String,
    /// Whether the metric's axis is logarithmic.
    pub log: bool,
    /// Values above are cut off, so that an overload does not flatten the rest.
    pub most: Option<f64>,
    /// Values below are drawn here.
    pub least: Option<f64>,
    /// Lines across, such as limits.
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

    /// The same, with what is below `least` drawn there.
    pub fn down_to(self, least: f64) -> Chart {
        Chart { least: Some(least), ..self }
    }

    /// The same, logarithmic.
    pub fn logarithmic(self) -> Chart {
        Chart { log: true, ..self }
    }

    /// The same with a line across, in one scenario or in all.
    pub fn mark(mut self, scenario: Option<&str>, label: &str, value: f64) -> Chart {
        let scenario = scenario.map(str::to_owned);
        self.marks.push(Mark { scenario, label: label.to_owned(), value });
        self
    }
}

/// A line across a chart.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Mark {
    /// The scenario it belongs to; `None` for all.
    pub scenario: Option<String>,
    /// Its name.
    pub label: String,
    /// Its place.
    pub value: f64,
}

/// What all rows together say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conclusion {
    /// `scenario/treatment` → key → number.
    pub summary: BTreeMap<String, BTreeMap<String, f64>>,
    /// The answer in one sentence.
    pub answer: String,
    /// A remark under a scenario's table, by scenario.
    pub remarks: BTreeMap<String, String>,
}

/// What is wrong with a plan, and where.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// The array it is in (`scenario`, `treatment`, `published`); empty for the head.
    pub table: &'static str,
    /// The name in that array; the key in the head.
    pub name: String,
    /// What is wrong and the remedy, in one line.
    pub message: String,
}

impl Fault {
    /// A fault of scenario `name`.
    pub fn scenario(name: &str, message: impl fmt::Display) -> Fault {
        let message = format!("scenario {name}: {message:#}");
        Fault { table: "scenario", name: name.to_owned(), message }
    }

    /// A fault of treatment `name`.
    pub fn treatment(name: &str, message: impl fmt::Display) -> Fault {
        let message = format!("treatment {name}: {message:#}");
        Fault { table: "treatment", name: name.to_owned(), message }
    }

    /// A fault of the head's `key`.
    pub fn head(key: &str, message: impl fmt::Display) -> Fault {
        Fault { table: "", name: key.to_owned(), message: format!("{message:#}") }
    }

    /// Its line in the plan `text`, from 1 on.
    pub fn line(&self, text: &str) -> usize {
        let mut table = "";
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if let Some(name) = line.strip_prefix("[[").and_then(|rest| rest.strip_suffix("]]")) {
                table = name;
            }
            let Some((key, value)) = line.split_once('=') else { continue };
            let (key, value) = (key.trim(), value.trim());
            let found = match self.table {
                "" => key == self.name,
                wanted => {
                    let names = ["name", "label"].contains(&key);
                    table == wanted && names && value.trim_matches('"') == self.name
                }
            };
            if found {
                return number;
            }
        }
        1
    }
}
