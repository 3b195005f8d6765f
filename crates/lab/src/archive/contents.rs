//! The contents of an archive: a plan, the records of its points, and the result of both.

use super::file::{Archive, PLAN, POINTS};
use crate::measured::SweepPoint;
use crate::plan::Plan;
use crate::report;
use crate::result::RunResult;
use crate::run;
use crate::store::{self, Record, Store};
use anyhow::{Context, ensure};
use std::collections::BTreeMap;
use std::path::Path;

/// Bound of the numbers in a record. What a run measures is far below it, and what is drawn stays
/// finite with it.
const LARGEST: f64 = 1e15;

/// A plan and the records of its points.
#[derive(Clone, Debug)]
pub struct Contents {
    /// The plan as it was run.
    pub plan: Plan,
    /// The records, in the order of the plan.
    pub records: Vec<Record>,
}

impl Contents {
    /// The run whose result is in `folder`.
    ///
    /// # Errors
    /// Fails when the folder has no result, or one that its plan and points do not give.
    pub fn of_folder(folder: &Path) -> anyhow::Result<Contents> {
        let result = report::read(folder)?;
        let (plan, found) = Store::read(folder)?;
        let mut by_name = BTreeMap::<String, Vec<Record>>::new();
        for record in found.into_iter().filter(|record| record.is_of(plan.head(), result.engine)) {
            by_name.entry(record.sweep_point.to_string()).or_default().push(record);
        }
        let store = Store::of(folder);
        let of_point = |point: SweepPoint| {
            // A folder may have points of former runs, too. Those of this build and this very plan
            // are found by their hash; those of others by the versions of the result.
            let kept = store.get(&store::hash(&plan, &point, result.engine));
            kept.or_else(|| {
                let others = by_name.remove(&point.to_string())?;
                let same = others.iter().find(|record| record.versions == result.versions);
                same.or(others.first()).cloned()
            })
        };
        let records = plan.points(result.engine).into_iter().filter_map(of_point).collect();
        let contents = Contents { plan, records };
        let ours = serde_json::to_string(&result)?;
        ensure!(
            contents.result().and_then(|made| Ok(serde_json::to_string(&made)?))? == ours,
            "result.json in {} is not what plan.toml and the points there give; run the plan again",
            folder.display()
        );
        Ok(contents)
    }

    /// Reads the plan and the records of `archive`.
    ///
    /// # Errors
    /// Fails when they cannot be read.
    pub fn of_archive(archive: &Archive) -> anyhow::Result<Contents> {
        let text = |name| {
            let text = std::str::from_utf8(archive.file(name));
            text.with_context(|| format!("{name} is not text; fetch the archive again"))
        };
        // A stranger's names stand in these errors.
        let plan = Plan::parse(text(PLAN)?, PLAN)
            .map_err(|error| anyhow::anyhow!("{}", format!("{error:#}").escape_debug()))?;
        let mut records = Vec::new();
        for (line, text) in (1..).zip(text(POINTS)?.lines()) {
            let record: Record = serde_json::from_str(text).map_err(|error| {
                let error = error.to_string();
                let error = error.escape_debug();
                anyhow::anyhow!("{POINTS}:{line}: {error}; use the version of sheaf that packed it")
            })?;
            ensure!(
                numbers(&record).all(|number| number.abs() <= LARGEST),
                "{POINTS}:{line}: a number is beyond {LARGEST:e}, which no run measures; do not \
                 trust this archive"
            );
            records.push(record);
        }
        Ok(Contents { plan, records })
    }

    /// The archive of this run.
    ///
    /// # Errors
    /// Fails when a file cannot be made.
    pub fn to_archive(&self) -> anyhow::Result<Archive> {
        let mut points = Vec::new();
        for record in &self.records {
            serde_json::to_writer(&mut points, record)?;
            points.push(b'\n');
        }
        let mut files = BTreeMap::from(report::files(&self.result()?)?);
        files.insert(PLAN, self.plan.to_toml()?.into_bytes());
        files.insert(POINTS, points);
        Ok(Archive::new(files))
    }

    /// The result of the records.
    ///
    /// # Errors
    /// Fails when a record is not of the plan, or of another one's run.
    pub fn result(&self) -> anyhow::Result<RunResult> {
        run::join_kept(&self.plan, &self.records)
    }
}

/// All numbers of a record.
fn numbers(record: &Record) -> impl Iterator<Item = f64> {
    let curves = record.measured.series.iter().flat_map(|series| &series.points);
    let metrics = record.measured.metrics.iter().map(|(_, value)| *value);
    metrics.chain(curves.flat_map(|(x, y)| [*x, *y]))
}
