//! Runs a plan: all its points on one of the two engines, and joins what was kept.

use crate::experiment::{Engine, Tools};
use crate::measured::{Row, SweepPoint};
use crate::plan::{Changes, Plan};
use crate::progress::Progress;
use crate::result::{Curve, RunResult};
use crate::store::{self, Record, Store};
use anyhow::{Context, ensure};
use std::path::{Path, PathBuf};
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
    /// Progress of the run, for those who watch or interrupt it.
    pub progress: Arc<Progress>,
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
    plan.experiment().ready(engine, tools)?;
    let sweep_points = chosen(plan, engine, options)?;
    let store = match &options.folder {
        Some(folder) => Some(Store::open(folder, plan)?),
        None => None,
    };
    let (again, progress) = (options.again, &*options.progress);
    let work = Work { plan, engine, tools, store, again, progress };
    let workers = match engine {
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
            let record = work.point(sweep_point).with_context(|| format!("at {sweep_point}"));
            failed.fetch_or(record.is_err(), Ordering::Relaxed);
            done.lock().expect("no worker panics holding it").push((place, record));
        }
    };
    progress.begin(&sweep_points);
    std::thread::scope(|scope| {
        scope.spawn(|| progress.log_lines());
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        let joined: Vec<_> = workers.into_iter().map(ScopedJoinHandle::join).collect();
        // Before a worker's panic goes on, or the log of lines would hold this scope open.
        progress.end();
        for panic in joined.into_iter().filter_map(Result::err) {
            std::panic::resume_unwind(panic);
        }
    });
    let mut done = done.into_inner().expect("no worker panics holding it");
    done.sort_by_key(|(place, _)| *place);
    let records = done.into_iter().map(|(_, record)| record).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(join(plan, engine, &records))
}

/// The points that a run with `options` measures.
///
/// # Errors
/// Fails when the requested point does not exist.
pub fn chosen(plan: &Plan, engine: Engine, options: &Options) -> anyhow::Result<Vec<SweepPoint>> {
    let mut sweep_points = plan.experiment().points(engine);
    if let Some(only) = &options.only {
        sweep_points.retain(|sweep_point| sweep_point.to_string() == *only);
        ensure!(!sweep_points.is_empty(), "no point {only:?}; `sheaf lab points` prints all");
    }
    Ok(sweep_points)
}

/// Joins the points of several folders, as different machines measured them.
///
/// # Errors
/// Fails when a folder has no points, or they belong to different runs.
pub fn gather(folders: &[PathBuf]) -> anyhow::Result<RunResult> {
    let mut joined: Option<(Plan, Vec<Record>, &Path)> = None;
    for folder in folders {
        let (plan, records) = Store::read(folder)?;
        match &mut joined {
            None => joined = Some((plan, records, folder)),
            Some((_, all, first)) => {
                all.extend(
                    records.into_iter().filter(|record| !all.contains(record)).collect::<Vec<_>>(),
                );
                let same = |one: &Record| (one.plan.clone(), one.engine, one.seed);
                let odd = all
                    .iter()
                    .find(|one| same(one) != same(&all[0]) || one.duration != all[0].duration);
                ensure!(
                    odd.is_none(),
                    "{} and {} are of different plans, engines, seeds or durations; gather each \
                     apart",
                    first.display(),
                    folder.display()
                );
            }
        }
    }
    let (plan, mut records, folder) = joined.context("no folder; give those to join")?;
    let first = records.first();
    let first = first.with_context(|| format!("no points in {}; run some", folder.display()))?;
    let engine = first.engine;
    let changes =
        Changes { seed: Some(first.seed), duration: Some(first.duration), ..Changes::default() };
    let plan = plan.changed(engine, &changes)?;
    let order = plan.experiment().points(engine);
    let place = |record: &Record| {
        let here = |sweep_point: &SweepPoint| {
            (&sweep_point.scenario, &sweep_point.treatment)
                == (&record.sweep_point.scenario, &record.sweep_point.treatment)
        };
        order.iter().position(here)
    };
    records.sort_by(|one, other| {
        (place(one).cmp(&place(other))).then(one.sweep_point.x.total_cmp(&other.sweep_point.x))
    });
    Ok(join(&plan, engine, &records))
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
        let head = self.plan.head();
        let mut measured = self.plan.experiment().measure(sweep_point, self.engine, self.tools)?;
        // JSON has no infinity.
        measured.metrics.retain(|(_, value)| value.is_finite());
        for series in &mut measured.series {
            series.points.retain(|(x, y)| x.is_finite() && y.is_finite());
        }
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

fn join(plan: &Plan, engine: Engine, records: &[Record]) -> RunResult {
    let (head, experiment) = (plan.head(), plan.experiment());
    let rows: Vec<_> =
        records.iter().map(|record| Row::new(&record.sweep_point, &record.measured)).collect();
    let curves = records.iter().flat_map(|record| {
        record.measured.series.iter().map(|series| Curve {
            scenario: record.sweep_point.scenario.clone(),
            treatment: record.sweep_point.treatment.clone(),
            at: record.sweep_point.x,
            series: series.clone(),
        })
    });
    let conclusion = experiment.conclude(&rows);
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
        series: curves.collect(),
        rows,
        summary: conclusion.summary,
        remarks: conclusion.remarks,
        published: head.published.clone(),
        view: experiment.view(),
    }
}
