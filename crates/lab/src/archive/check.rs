//! The check of an archive, step by step: each step relies on those before it, so the first with a
//! difference is the last.

use super::contents::Contents;
use super::file::{Archive, PLAN, POINTS, SUMS};
use crate::experiment::{Engine, Tools};
use crate::measured::SweepPoint;
use crate::plan::Changes;
use crate::progress::Progress;
use crate::report;
use crate::run;
use crate::store::Record;
use anyhow::{Context, ensure};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fmt;

/// Differences that a step names; the others it counts.
const NAMED: usize = 10;

/// The points of an archive that are measured again.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Only these points of the sweep, as [`Changes::points`] has them; `None` for all.
    pub points: Option<Vec<f64>>,
    /// At most this many, chosen by the hash of the archive; `None` for all.
    pub count: Option<usize>,
}

/// Finding of a step of the check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The two sides that were compared.
    pub subject: String,
    /// The difference: the file, or the point and the key with both values.
    pub differences: Vec<String>,
}

impl Step {
    fn new(subject: impl Into<String>, differences: Vec<String>) -> Step {
        Step { subject: subject.into(), differences }
    }

    /// Whether nothing differs.
    pub fn holds(&self) -> bool {
        self.differences.is_empty()
    }
}

impl fmt::Display for Step {
    /// A line, and one for each difference.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = if self.holds() { "ok" } else { "differs" };
        write!(f, "{}: {found}", self.subject)?;
        for difference in self.differences.iter().take(NAMED) {
            write!(f, "\n  {difference}")?;
        }
        match self.differences.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

/// Checks `archive`, and passes each step to `say` when it is done; returns whether all hold.
///
/// The hashes come first, then what the plan and the records give: the result, and of it the rows
/// and the report. Last the points of `sample` are measured again on this machine, when the run was
/// under the virtual clock.
///
/// # Errors
/// Fails when the archive cannot be understood, `sample` is empty, a point cannot be measured, or
/// `say` fails.
pub fn check(
    archive: &Archive,
    sample: &Sample,
    tools: &Tools,
    progress: &Progress,
    mut say: impl FnMut(&Step) -> anyhow::Result<()>,
) -> anyhow::Result<bool> {
    let step = hashes(archive);
    say(&step)?;
    if !step.holds() {
        return Ok(false);
    }
    let contents = Contents::of_archive(archive)?;
    for step in results(archive, &contents)? {
        say(&step)?;
        if !step.holds() {
            return Ok(false);
        }
    }
    let step = again(archive, &contents, sample, tools, progress)?;
    say(&step)?;
    Ok(step.holds())
}

/// Holds the files against their hashes.
fn hashes(archive: &Archive) -> Step {
    let listed = String::from_utf8_lossy(archive.file(SUMS));
    let sums = archive.true_sums();
    let mut differences = Vec::new();
    for line in sums.lines().filter(|line| !listed.lines().any(|listed| listed == *line)) {
        let (sum, name) = line.split_once("  ").unwrap_or((line, ""));
        let is_of = |listed: &&str| listed.split_once("  ").is_some_and(|(_, of)| of == name);
        let other = listed.lines().find(is_of).and_then(|listed| listed.split_once(' '));
        let other = other.map_or("none".into(), |(other, _)| other.escape_debug().to_string());
        differences.push(format!("{name}: its SHA-256 is {sum}, in {SUMS} {other}"));
    }
    if differences.is_empty() && *listed != *sums {
        differences.push(format!("{SUMS}: it is not in the form in which it was packed"));
    }
    Step::new(format!("{} hashes in {SUMS}", sums.lines().count()), differences)
}

/// Holds the result against plan and records, and what is made of the result against it.
fn results(archive: &Archive, contents: &Contents) -> anyhow::Result<Vec<Step>> {
    let made = match contents.result() {
        Ok(made) => made,
        Err(error) => {
            return Ok(vec![Step::new(format!("{POINTS} of {PLAN}"), vec![error.to_string()])]);
        }
    };
    let mut steps = Vec::new();
    for (name, bytes) in report::files(&made)? {
        let mut differences = Vec::new();
        if archive.file(name) != bytes {
            if name == report::RESULT {
                let packed: Value = serde_json::from_slice(archive.file(name))
                    .with_context(|| format!("{name} is not JSON; pack the run again"))?;
                compare("", &packed, &serde_json::to_value(&made)?, &mut differences);
            }
            if differences.is_empty() {
                let place = std::iter::zip(archive.file(name), &bytes).take_while(|(a, b)| a == b);
                differences.push(format!("{name}: from byte {} on", place.count() + 1));
            }
        }
        let source = if name == report::RESULT { "the points of the plan" } else { "the result" };
        steps.push(Step::new(format!("{name} made from {source}"), differences));
    }
    Ok(steps)
}

/// Measures points again, and holds every number against the record.
fn again(
    archive: &Archive,
    contents: &Contents,
    sample: &Sample,
    tools: &Tools,
    progress: &Progress,
) -> anyhow::Result<Step> {
    let all = contents.records.len();
    let engine = contents.records.first().map_or(Engine::Virtual, |record| record.engine);
    let chosen = sample.of(archive, contents, engine)?;
    if engine == Engine::Netns {
        let subject = format!("0 of {all} points measured again, as real time does not repeat");
        return Ok(Step::new(subject, Vec::new()));
    }
    let points: Vec<_> = chosen.iter().map(|record| record.sweep_point.clone()).collect();
    let measured = run::again(&contents.plan, engine, &points, tools, progress)
        .context("points cannot be measured again from the archive")?;
    let mut differences = Vec::new();
    for (record, again) in std::iter::zip(&chosen, &measured) {
        let (packed, here) = (&record.measured, &again.measured);
        let (packed, here) = (serde_json::to_value(packed)?, serde_json::to_value(here)?);
        compare(&again.sweep_point.to_string(), &packed, &here, &mut differences);
    }
    let version = |record: &Record| record.versions.get("sheaf").cloned().unwrap_or_default();
    let versions = chosen.first().map(|record| version(record)).zip(measured.first().map(version));
    if let Some((packed, here)) = versions.filter(|(packed, here)| packed != here)
        && !differences.is_empty()
    {
        let packed = packed.escape_debug();
        differences.insert(0, format!("it was measured by sheaf {packed}, this is sheaf {here}"));
    }
    Ok(Step::new(format!("{} of {all} points measured again", points.len()), differences))
}

impl Sample {
    /// The chosen records of a run on `engine`, in their order.
    fn of<'a>(
        &self,
        archive: &Archive,
        contents: &'a Contents,
        engine: Engine,
    ) -> anyhow::Result<Vec<&'a Record>> {
        // They mean the same as for a run.
        let changes = Changes { points: self.points.clone(), ..Changes::default() };
        let asked = contents.plan.changed(engine, &changes)?.points(engine);
        let asked: BTreeSet<String> = asked.iter().map(SweepPoint::to_string).collect();
        let is_asked = |record: &&Record| asked.contains(&record.sweep_point.to_string());
        let mut chosen: Vec<_> = contents.records.iter().filter(is_asked).enumerate().collect();
        ensure!(!chosen.is_empty(), "the archive has none of these points; give some of its sweep");
        if let Some(count) = self.count {
            // Whoever packs it cannot choose them, and whoever checks it again gets the same.
            chosen.sort_by_cached_key(|(_, record)| {
                let name = record.sweep_point.to_string();
                Sha256::new().chain_update(archive.file(SUMS)).chain_update(name).finalize()
            });
            chosen.truncate(count);
            chosen.sort_by_key(|(place, _)| *place);
        }
        Ok(chosen.into_iter().map(|(_, record)| record).collect())
    }
}

/// Adds each value below `path` that is not the same `packed` and `here` to `differences`.
fn compare(path: &str, packed: &Value, here: &Value, differences: &mut Vec<String>) {
    // Names may be a stranger's.
    let below = |name: &str| format!("{path} {}", name.escape_debug()).trim_start().to_owned();
    match (packed, here) {
        (Value::Object(one), Value::Object(other)) => {
            for (name, packed) in one {
                compare(&below(name), packed, other.get(name).unwrap_or(&NOTHING), differences);
            }
            for (name, here) in other.iter().filter(|(name, _)| !one.contains_key(*name)) {
                compare(&below(name), &NOTHING, here, differences);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (place, (packed, here)) in std::iter::zip(one, other).enumerate() {
                match (packed.as_array().map(Vec::as_slice), here.as_array().map(Vec::as_slice)) {
                    // A number and its key.
                    (Some([Value::String(key), packed]), Some([Value::String(other), here]))
                        if key == other =>
                    {
                        compare(&below(key), packed, here, differences);
                    }
                    _ => compare(&below(&name(here, place)), packed, here, differences),
                }
            }
        }
        (Value::Array(one), Value::Array(other)) => {
            let (packed, here) = (one.len(), other.len());
            differences.push(format!("{path}: {packed} entries in the archive, {here} here"));
        }
        _ => {
            // As text, in which every bit of a number counts.
            let (packed, here) = (packed.to_string(), here.to_string());
            if packed != here {
                let (packed, here) = (short(&packed), short(&here));
                differences.push(format!("{path}: {packed} in the archive, {here} here"));
            }
        }
    }
}

const NOTHING: Value = Value::Null;

/// The name of an entry of a list: its point, its own name, or its place.
fn name(entry: &Value, place: usize) -> String {
    let text = |key: &str| entry[key].as_str().map(str::to_owned);
    let x = [&entry["x"], &entry["at"]].into_iter().find(|x| x.is_number());
    let point = text("scenario").zip(text("treatment")).zip(x);
    let point = point.map(|((scenario, treatment), x)| format!("{scenario}/{treatment}/{x}"));
    let names: Vec<_> = point.into_iter().chain(text("name")).chain(text("key")).collect();
    if names.is_empty() { format!("[{place}]") } else { names.join(" ") }
}

/// Most characters of a value in a difference.
const SHORT: usize = 80;

fn short(value: &str) -> String {
    value.chars().take(SHORT).collect()
}
