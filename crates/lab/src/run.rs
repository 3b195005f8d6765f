//! Runs a plan: all its points on one of the two engines, and joins what was kept.

use crate::experiment::{Engine, Tools};
use crate::measured::{Measured, Row, SweepPoint};
use crate::plan::{Changes, Plan};
use crate::plan_file::Head;
use crate::progress::Progress;
use crate::result::{Curve, RunResult};
use crate::store::{self, Record, Store};
use anyhow::{Context, bail, ensure};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ScopedJoinHandle;

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Changes of the plan.
    pub changes: Changes,
    /// Folder in which finished points are kept and looked for; `None` to keep none.
    pub folder: Option<PathBuf>,
    /// Measure points again that were kept.
    pub again: bool,
    /// Only this point, written as [`SweepPoint`] is shown.
    pub only: Option<String>,
    /// Only the points of these parts of the sweep; `None` for all. The result counts the others as
    /// missing, and nothing is read off across them.
    pub parts: Option<Vec<SweepPart>>,
    /// Progress of the run, for those who watch or interrupt it.
    pub progress: Arc<Progress>,
}

/// A part of the sweep of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepPart {
    /// Name of the scenario.
    pub scenario: String,
    /// Name of the treatment; `None` for all.
    pub treatment: Option<String>,
    /// Place in the sweep; `None` for all.
    pub at: Option<f64>,
}

impl SweepPart {
    /// Whether `sweep_point` is in it.
    fn has(&self, sweep_point: &SweepPoint) -> bool {
        self.scenario == sweep_point.scenario
            && self.treatment.as_ref().is_none_or(|name| *name == sweep_point.treatment)
            && self.at.is_none_or(|at| at == sweep_point.x)
    }
}

/// Runs `plan` on `engine`: under the virtual clock on all cores, in real time point by point.
///
/// # Errors
/// Fails at the first point that cannot be measured. Finished points are kept.
pub fn run(
    plan: &Plan,
    engine: Engine,
    options: &Options,
    tools: &Tools,
) -> anyhow::Result<RunResult> {
    let plan = &plan.changed(engine, &options.changes)?;
    let sweep_points = chosen(plan, engine, options)?;
    plan.experiment().ready(engine, tools)?;
    let store = match &options.folder {
        Some(folder) => Some(Store::open(folder, plan)?),
        None => None,
    };
    let (again, progress) = (options.again, &*options.progress);
    let work = Work { plan, engine, tools, store, again, progress };
    let left_out = match options.parts {
        Some(_) => left_out(plan, engine, &sweep_points),
        None => Vec::new(),
    };
    Ok(join(plan, engine, &work.points(&sweep_points)?, &left_out))
}

/// The points of `plan` that are not among `sweep_points`, which are in the order of the plan.
fn left_out(plan: &Plan, engine: Engine, sweep_points: &[SweepPoint]) -> Vec<SweepPoint> {
    let mut chosen = sweep_points.iter().peekable();
    let all = plan.points(engine).into_iter();
    all.filter(|point| chosen.next_if(|next| *next == point).is_none()).collect()
}

/// Measures points of `plan` again, as it stands, and keeps none.
///
/// # Errors
/// Fails at the first point that cannot be measured.
pub(crate) fn again(
    plan: &Plan,
    engine: Engine,
    sweep_points: &[SweepPoint],
    tools: &Tools,
    progress: &Progress,
) -> anyhow::Result<Vec<Record>> {
    plan.experiment().ready(engine, tools)?;
    Work { plan, engine, tools, store: None, again: true, progress }.points(sweep_points)
}

/// The points that a run with `options` measures.
///
/// # Errors
/// Fails when the requested point does not exist, or the plan has none on `engine`.
pub fn chosen(plan: &Plan, engine: Engine, options: &Options) -> anyhow::Result<Vec<SweepPoint>> {
    let mut sweep_points = plan.points(engine);
    let other = match engine {
        Engine::Netns => Engine::Virtual,
        Engine::Virtual => Engine::Netns,
    };
    ensure!(
        !sweep_points.is_empty(),
        "nothing of {} runs on engine {}; give --engine {}",
        plan.head().name,
        engine.name(),
        other.name()
    );
    if let Some(only) = &options.only {
        sweep_points.retain(|sweep_point| sweep_point.to_string() == *only);
        ensure!(!sweep_points.is_empty(), "no point {only:?}; `sheaf lab points` prints all");
    }
    if let Some(parts) = &options.parts {
        sweep_points.retain(|sweep_point| parts.iter().any(|part| part.has(sweep_point)));
        let name = &plan.head().name;
        ensure!(!sweep_points.is_empty(), "{name} has no point in these parts; give others");
    }
    Ok(sweep_points)
}

/// Joins the points of several folders, as different machines measured them.
///
/// # Errors
/// Fails when a folder has no points, when they belong to different runs, and, unless `holes`
/// accepts it, when a point of the folders' plans is missing.
pub fn gather(folders: &[PathBuf], holes: Holes) -> anyhow::Result<RunResult> {
    let (mut plans, mut found) = (Vec::new(), Vec::new());
    for folder in folders {
        let (plan, records) = Store::read(folder)?;
        plans.push((plan, folder));
        found.extend(records);
    }
    let (plan, first) = plans.first().context("no folder; give those to join")?;
    let engine = found.first().map(|record| record.engine);
    let engine = engine.with_context(|| format!("no points in {}; run some", first.display()))?;
    let head = plan.head();
    let run = |head: &Head| (head.name.clone(), head.seed, head.duration);
    if let Some((_, other)) = plans.iter().find(|(plan, _)| run(plan.head()) != run(head)) {
        bail!(
            "{} and {} are of different plans, seeds or durations; gather each apart",
            first.display(),
            other.display()
        );
    }
    let records = one_run(head, engine, found)?;
    let (missing, all) = missing(&plans, engine, &records);
    ensure!(missing.is_empty() || holes == Holes::Accepted, absent(&missing, all));
    let order = plan.experiment().points(engine);
    let place = |sweep_point: &SweepPoint| {
        let of = |one: &SweepPoint| (one.scenario.clone(), one.treatment.clone());
        order.iter().position(|here| of(here) == of(sweep_point))
    };
    let mut records: Vec<_> = records.into_values().collect();
    records.sort_by(|one, other| {
        let (one, other) = (&one.sweep_point, &other.sweep_point);
        (place(one).cmp(&place(other)))
            .then(one.x.total_cmp(&other.x))
            .then(one.repetition.cmp(&other.repetition))
    });
    Ok(join(plan, engine, &records, &missing))
}

/// Joins the records that a run of `plan` kept, which are in the order of its points.
///
/// # Errors
/// Fails when there are none, or one is not a point of the plan or not in its place.
pub(crate) fn join_kept(plan: &Plan, records: &[Record]) -> anyhow::Result<RunResult> {
    let engine = records.first().context("no points; run some")?.engine;
    let (mut rest, mut missing) = (records.iter().peekable(), Vec::new());
    for sweep_point in plan.points(engine) {
        let is_its = |record: &&Record| {
            record.is_of(plan.head(), engine) && record.sweep_point == sweep_point
        };
        if rest.next_if(is_its).is_none() {
            missing.push(sweep_point);
        }
    }
    if let Some(record) = rest.next() {
        let name = record.sweep_point.to_string();
        bail!("{} is not a point of the plan, or not in its place", name.escape_debug());
    }
    Ok(join(plan, engine, records, &missing))
}

/// The records by the names of their points, when all are of the run that `head` describes.
fn one_run(
    head: &Head,
    engine: Engine,
    found: Vec<Record>,
) -> anyhow::Result<BTreeMap<String, Record>> {
    let mut records = BTreeMap::<String, Record>::new();
    for record in found {
        let name = record.sweep_point.to_string();
        ensure!(
            record.is_of(head, engine),
            "{name} is of another plan, engine, seed or duration than the others; gather each apart"
        );
        match records.entry(name) {
            Entry::Vacant(place) => drop(place.insert(record)),
            // Two machines that measured the same may have got the same.
            Entry::Occupied(known) => {
                ensure!(known.get().measured == record.measured, conflict(known.get(), &record));
            }
        }
    }
    Ok(records)
}

/// The points of `plans` without a record, and the number of all their points. A folder's plan has
/// the sweep and the repetitions that were to be run there.
fn missing(
    plans: &[(Plan, &PathBuf)],
    engine: Engine,
    records: &BTreeMap<String, Record>,
) -> (Vec<SweepPoint>, usize) {
    let (mut names, mut missing) = (BTreeSet::new(), Vec::new());
    for sweep_point in plans.iter().flat_map(|(plan, _)| plan.points(engine)) {
        let name = sweep_point.to_string();
        let is_kept = records.contains_key(&name);
        if names.insert(name) && !is_kept {
            missing.push(sweep_point);
        }
    }
    (missing, names.len())
}

/// Handling of points of a plan that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holes {
    /// They are an error.
    Refused,
    /// The result says how many are missing.
    Accepted,
}

/// Missing points that an error names; the others it counts.
const NAMED: usize = 3;

fn absent(missing: &[SweepPoint], all: usize) -> String {
    let names = missing.iter().take(NAMED).map(SweepPoint::to_string).collect::<Vec<_>>();
    let (count, mut names) = (missing.len(), names.join(", "));
    if count > NAMED {
        names += &format!(" and {} more", count - NAMED);
    }
    let are = if count == 1 { "points is" } else { "points are" };
    format!(
        "{count} of {all} {are} missing: {names}; run them (`sheaf lab points` prints all), or \
         give --allow-missing"
    )
}

/// The message on two different measurements of one point.
fn conflict(one: &Record, other: &Record) -> String {
    let build = |record: &Record| record.versions.get("build").cloned().unwrap_or_default();
    format!(
        "{} was measured twice with different results, by builds {} and {}; gather each apart",
        one.sweep_point,
        build(one),
        build(other)
    )
}

/// State that the workers share.
struct Work<'a> {
    plan: &'a Plan,
    engine: Engine,
    tools: &'a Tools,
    store: Option<Store>,
    again: bool,
    progress: &'a Progress,
}

impl Work<'_> {
    /// Measures all `sweep_points`, or reads them from the store; the records are in their order.
    fn points(&self, sweep_points: &[SweepPoint]) -> anyhow::Result<Vec<Record>> {
        let workers = match self.engine {
            Engine::Netns => 1,
            Engine::Virtual => std::thread::available_parallelism().map_or(1, usize::from),
        };
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let done = Mutex::new(Vec::new());
        let worker = || {
            while !failed.load(Ordering::Relaxed)
                && let place = next.fetch_add(1, Ordering::Relaxed)
                && let Some(sweep_point) = sweep_points.get(place)
            {
                let record = self.point(sweep_point).with_context(|| format!("at {sweep_point}"));
                failed.fetch_or(record.is_err(), Ordering::Relaxed);
                done.lock().expect("no worker panics holding it").push((place, record));
            }
        };
        self.progress.begin(sweep_points);
        std::thread::scope(|scope| {
            scope.spawn(|| self.progress.log_lines());
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
            let joined: Vec<_> = workers.into_iter().map(ScopedJoinHandle::join).collect();
            // Before a worker's panic goes on, or the log of lines would hold this scope open.
            self.progress.end();
            if let Some(panic) = joined.into_iter().find_map(Result::err) {
                std::panic::resume_unwind(panic);
            }
        });
        let mut done = done.into_inner().expect("no worker panics holding it");
        done.sort_by_key(|(place, _)| *place);
        done.into_iter().map(|(_, record)| record).collect()
    }

    /// Measures one point, or reads it from the store.
    fn point(&self, sweep_point: &SweepPoint) -> anyhow::Result<Record> {
        if self.engine == Engine::Netns {
            self.progress.measuring(sweep_point);
        }
        let hash = self
            .store
            .as_ref()
            .map(|store| (store, store::hash(self.plan, sweep_point, self.engine)));
        let kept = hash.as_ref().filter(|_| !self.again).and_then(|(store, hash)| store.get(hash));
        if let Some(record) = kept {
            self.progress.found(sweep_point);
            return Ok(record);
        }
        let record = self.measure(sweep_point)?;
        let write = || hash.map_or(Ok(()), |(store, hash)| store.put(&hash, &record));
        self.progress.keep(sweep_point, write)?;
        Ok(record)
    }

    fn measure(&self, sweep_point: &SweepPoint) -> anyhow::Result<Record> {
        let plan = self.plan.repeated(sweep_point.repetition);
        let mut measured = plan.experiment().measure(sweep_point, self.engine, self.tools)?;
        // JSON has no infinity.
        measured.metrics.retain(|(_, value)| value.is_finite());
        for series in &mut measured.series {
            series.points.retain(|(x, y)| x.is_finite() && y.is_finite());
        }
        let head = plan.head();
        Ok(Record {
            plan: head.name.clone(),
            engine: self.engine,
            seed: head.seed,
            duration: head.duration,
            versions: store::versions(),
            machine: store::machine(),
            sweep_point: sweep_point.clone(),
            measured,
        })
    }
}

/// The result of `records`, in the order of their rows; `missing` are points without a record.
fn join(plan: &Plan, engine: Engine, records: &[Record], missing: &[SweepPoint]) -> RunResult {
    let (head, experiment) = (plan.head(), plan.experiment());
    let rows = rows(records);
    let first_ones = records.iter().filter(|record| record.sweep_point.repetition == 1);
    let curves = first_ones.flat_map(|record| {
        record.measured.series.iter().map(|series| Curve {
            scenario: record.sweep_point.scenario.clone(),
            treatment: record.sweep_point.treatment.clone(),
            at: record.sweep_point.x,
            series: series.clone(),
        })
    });
    let is_hole =
        |point: &&SweepPoint| records.iter().all(|record| !record.sweep_point.repeats(point));
    let holes: Vec<_> = missing.iter().filter(is_hole).cloned().collect();
    let conclusion = experiment.conclude(&rows, &holes);
    let first = records.first();
    RunResult {
        plan: head.name.clone(),
        title: head.title.clone(),
        source: head.source.clone(),
        engine,
        seed: head.seed,
        duration: head.duration,
        versions: first.map_or_else(store::versions, |record| record.versions.clone()),
        machine: first.map_or_else(store::machine, |record| record.machine.clone()),
        answer: conclusion.answer,
        missing: missing.len(),
        series: curves.collect(),
        rows,
        summary: conclusion.summary,
        remarks: conclusion.remarks,
        published: head.published.clone(),
        view: experiment.view(),
    }
}

/// The rows of all repetitions, each where its first record is.
fn rows(records: &[Record]) -> Vec<Row> {
    let mut points: Vec<(&SweepPoint, Vec<&Measured>)> = Vec::new();
    for Record { sweep_point, measured, .. } in records {
        match points.iter_mut().find(|(point, _)| point.repeats(sweep_point)) {
            Some((_, repetitions)) => repetitions.push(measured),
            None => points.push((sweep_point, vec![measured])),
        }
    }
    points.into_iter().map(|(point, repetitions)| Row::new(point, &repetitions)).collect()
}
