//! Runs a plan: all points of the sweep on one of the two engines.

use crate::plan::{Plan, Scenario};
use crate::report::{Limit, Row, RunResult};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How a plan is run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Shorter points, as the plan's `[quick]` says.
    pub quick: bool,
    /// Flows per direction instead of the plan's sweep.
    pub flows: Option<Vec<u32>>,
    /// Seconds per point instead of the plan's.
    pub duration: Option<f64>,
    /// Seed instead of the plan's.
    pub seed: Option<u64>,
    /// Whether to draw a progress bar.
    pub progress: bool,
}

/// One point to run.
struct Task<'a> {
    scenario: &'a Scenario,
    treatment: &'a str,
    flows: u32,
}

/// Runs `plan` on the virtual engine, on all cores. Same seed, same result to the byte.
pub fn run_virtual(plan: &Plan, options: &Options) -> anyhow::Result<RunResult> {
    let mut plan = plan.clone();
    plan.seed = options.seed.unwrap_or(plan.seed);
    let quick = options.quick.then_some(plan.quick.virtual_duration);
    let duration = options.duration.or(quick).unwrap_or(plan.duration);
    let tasks = tasks(&plan, options);
    let bar = progress(options, tasks.len());
    let next = AtomicUsize::new(0);
    let rows = Mutex::new(Vec::new());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let worker = || {
            while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                let place = task_place(&tasks, task);
                let row = run_one(&plan, task, duration);
                rows.lock().expect("no worker panics holding it").push((place, row));
                bar.inc(1);
            }
        };
        (0..cores).for_each(|_| drop(scope.spawn(worker)));
    });
    bar.finish_and_clear();
    let mut rows = rows.into_inner().expect("no worker panics holding it");
    rows.sort_by_key(|(place, _)| *place);
    let rows = rows.into_iter().map(|(_, row)| row).collect::<anyhow::Result<Vec<_>>>()?;
    result(&plan, "virtual", duration, rows)
}

/// Runs `plan` on the netns engine, point by point in real time. Needs root.
pub fn run_netns(plan: &Plan, options: &Options) -> anyhow::Result<RunResult> {
    sheaf_bpf::support()?;
    let mut plan = plan.clone();
    plan.seed = options.seed.unwrap_or(plan.seed);
    let quick = options.quick.then_some(plan.quick.netns_duration);
    let duration = options.duration.or(quick).unwrap_or(plan.duration);
    let mut options = options.clone();
    if options.quick && options.flows.is_none() {
        options.flows = Some(plan.quick.flows.clone());
    }
    let tasks = tasks(&plan, &options);
    let bar = progress(&options, tasks.len());
    let mut rows = Vec::new();
    for task in &tasks {
        bar.set_message(format!("{} {}", task.treatment, task.flows));
        bar.tick();
        let point = plan.point(task.scenario, task.treatment, task.flows, duration)?;
        let outcome = crate::netns::run(&point)?;
        let watched = (point.warm_up + point.duration).as_secs_f64();
        rows.push(Row::new(&task.scenario.name, task.treatment, &outcome, watched));
        bar.inc(1);
    }
    bar.finish_and_clear();
    result(&plan, "netns", duration, rows)
}

fn run_one(plan: &Plan, task: &Task<'_>, duration: f64) -> anyhow::Result<Row> {
    let point = plan.point(task.scenario, task.treatment, task.flows, duration)?;
    let outcome = crate::virtual_time::run(&point)?;
    let watched = (point.warm_up + point.duration).as_secs_f64();
    Ok(Row::new(&task.scenario.name, task.treatment, &outcome, watched))
}

fn task_place(tasks: &[Task<'_>], task: &Task<'_>) -> usize {
    tasks.iter().position(|other| std::ptr::eq(other, task)).unwrap_or(usize::MAX)
}

/// All points, treatment by treatment.
fn tasks<'a>(plan: &'a Plan, options: &'a Options) -> Vec<Task<'a>> {
    let mut tasks = Vec::new();
    for scenario in &plan.scenarios {
        let sweep = scenario.sweep(options.flows.as_deref());
        for treatment in &scenario.treatments {
            let task = |flows: &u32| Task { scenario, treatment, flows: *flows };
            tasks.extend(sweep.iter().map(task));
        }
    }
    tasks
}

fn progress(options: &Options, points: usize) -> ProgressBar {
    if !options.progress {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} points, {eta} left {msg}")
        .expect("the template is right");
    ProgressBar::new(points as u64).with_style(style)
}

/// Joins rows to a result.
fn result(plan: &Plan, engine: &str, duration: f64, rows: Vec<Row>) -> anyhow::Result<RunResult> {
    let mut limits = BTreeMap::new();
    for scenario in &plan.scenarios {
        limits.insert(scenario.name.clone(), Limit::of(plan, scenario)?);
    }
    let mut result = RunResult {
        plan: plan.name.clone(),
        title: plan.title.clone(),
        source: plan.source.clone(),
        engine: engine.to_owned(),
        seed: plan.seed,
        duration,
        versions: versions(),
        machine: machine(),
        rows,
        summary: BTreeMap::new(),
        limits,
        published: plan.published.clone(),
    };
    result.summarise();
    Ok(result)
}

fn versions() -> BTreeMap<String, String> {
    let read = |file| std::fs::read_to_string(file).map(|text: String| text.trim().to_owned());
    let mut versions = BTreeMap::from([("sheaf".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]);
    if let Ok(release) = read("/proc/sys/kernel/osrelease") {
        versions.insert("Linux".to_owned(), release);
    }
    versions
}

fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores, {}", model.unwrap_or("unknown processor"))
}
