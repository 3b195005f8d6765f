//! One short run of a plan.

use sheaf_lab::experiment::{Engine, Tools};
use sheaf_lab::plan::{Changes, Plan};
use sheaf_lab::result::RunResult;
use sheaf_lab::run::{self, Options};

/// The built-in plan at these points of its sweep, `duration` seconds each, with seed 1, once.
pub fn run(plan: &str, engine: Engine, points: &[f64], duration: f64) -> RunResult {
    run_plan(&Plan::find(plan).unwrap(), engine, points, duration)
}

/// The same of any plan.
pub fn run_plan(plan: &Plan, engine: Engine, points: &[f64], duration: f64) -> RunResult {
    let changes = Changes {
        points: Some(points.to_vec()),
        duration: Some(duration),
        seed: Some(1),
        repetitions: Some(1),
        quick: false,
    };
    let options = Options { changes, ..Options::default() };
    let tools = Tools { sheaf: "sheaf".into() };
    run::run(plan, engine, &options, &tools).unwrap()
}

/// The same under the virtual clock.
pub fn virtual_run(plan: &str, points: &[f64], duration: f64) -> RunResult {
    run(plan, Engine::Virtual, points, duration)
}
