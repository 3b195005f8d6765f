//! `sheaf lab`: plans, runs and reports.

use clap::{Args, Subcommand, ValueEnum};
use sheaf_lab::plan::Plan;
use sheaf_lab::report::{self, RunResult};
use sheaf_lab::run::{self, Options};
use std::io::IsTerminal;
use std::path::PathBuf;

/// What `sheaf lab` does.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the built-in plans
    List,
    /// Print a plan
    Show {
        /// A built-in plan or a TOML file
        plan: String,
    },
    /// Run a plan and write result.json, rows.csv and report.html
    Run(Run),
    /// Print the table of a finished run and write its report anew
    Report {
        /// The folder that `sheaf lab run` wrote
        folder: PathBuf,
    },
}

/// Arguments of `sheaf lab run`.
#[derive(Args, Debug)]
pub struct Run {
    /// A built-in plan or a TOML file
    plan: String,
    /// Where the packets run: real Linux stacks in real time, or a virtual clock
    #[arg(long, value_enum, default_value_t = Engine::Virtual)]
    engine: Engine,
    /// Shorter points, as the plan's [quick] says
    #[arg(long)]
    quick: bool,
    /// Flows per direction, instead of the plan's sweep
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    points: Option<Vec<u32>>,
    /// Seconds measured per point
    #[arg(long, value_name = "SECONDS")]
    duration: Option<f64>,
    /// Seed of all randomness
    #[arg(long)]
    seed: Option<u64>,
    /// Folder for the results [default: results/PLAN-ENGINE]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Engine {
    /// Real Linux stacks in network namespaces, in real time; needs root
    Netns,
    /// Under a virtual clock; no root, same seed, same result
    Virtual,
}

/// Does what `command` asks.
pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::List => {
            for plan in Plan::all() {
                println!("{:<18} {}", plan.name, plan.title);
            }
        }
        Command::Show { plan } => print!("{}", toml::to_string(&Plan::find(&plan)?)?),
        Command::Run(arguments) => run_plan(arguments)?,
        Command::Report { folder } => {
            let result = RunResult::read(&folder)?;
            result.write(&folder)?;
            print!("{}", report::table(&result));
            println!("report: {}", folder.join("report.html").display());
        }
    }
    Ok(())
}

fn run_plan(arguments: Run) -> anyhow::Result<()> {
    let plan = Plan::find(&arguments.plan)?;
    if let Some(points) = &arguments.points {
        anyhow::ensure!(!points.contains(&0), "--points has a 0; give flows from 1 up");
    }
    anyhow::ensure!(
        arguments.duration.is_none_or(|seconds| seconds > 0.0 && seconds < 1e6),
        "--duration is out of range; give seconds above 0"
    );
    let engine = arguments.engine.to_possible_value().expect("no engine is hidden");
    let default = || format!("results/{}-{}", plan.name, engine.get_name()).into();
    let folder = arguments.out.unwrap_or_else(default);
    // A folder that cannot be written is known before the sweep, not after it.
    std::fs::create_dir_all(&folder)
        .map_err(|error| anyhow::anyhow!("cannot write to {}: {error}", folder.display()))?;
    let options = Options {
        quick: arguments.quick,
        flows: arguments.points,
        duration: arguments.duration,
        seed: arguments.seed,
        progress: std::io::stderr().is_terminal(),
    };
    let result = match arguments.engine {
        Engine::Virtual => run::run_virtual(&plan, &options)?,
        Engine::Netns => run::run_netns(&plan, &options)?,
    };
    result.write(&folder)?;
    print!("{}", report::table(&result));
    println!("report: {}", folder.join("report.html").display());
    Ok(())
}
