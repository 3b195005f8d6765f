//! `sheaf lab`: plans, runs and reports.

use crate::output;
use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use nix::sys::signal::{SigSet, Signal};
use sheaf_lab::archive::{self, Archive, Contents, Sample};
use sheaf_lab::claims::{Check, Claims, Length};
use sheaf_lab::experiment::{self, Tools};
use sheaf_lab::plan::{Changes, Plan};
use sheaf_lab::progress::{Counts, Display, LINE_PERIOD, Progress};
use sheaf_lab::report;
use sheaf_lab::result::RunResult;
use sheaf_lab::run::{self, Holes, Options};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Status of a process that a signal ended is this and the signal's number, as shells have it.
const KILLED: i32 = 128;

/// Status when a claim does not hold, or an archive differs.
const FALLEN: u8 = 1;

/// Ending of an archive's name after that of its folder.
const ARCHIVE: &str = ".tar.gz";

/// Commands of `sheaf lab`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the built-in plans
    List,
    /// Print a plan
    Show {
        /// A built-in plan or a TOML file
        plan: String,
    },
    /// Run a plan and write result.json, rows.csv and report.html; goes on where it was interrupted
    Run(Run),
    /// Print a command for each point of a plan, to be run anywhere and gathered
    Points(Run),
    /// Join the points of several folders into one result
    Gather {
        /// Folders that `sheaf lab run` wrote
        #[arg(required = true)]
        folders: Vec<PathBuf>,
        /// Folder for the result [default: the first]
        #[arg(long, value_name = "FOLDER")]
        out: Option<PathBuf>,
        /// Join them although points of the plan are missing; the report says how many
        #[arg(long)]
        allow_missing: bool,
    },
    /// Run what README and docs claim, under the virtual clock; status 1 when a claim does not hold
    Verify {
        /// A part of it, in minutes
        #[arg(long)]
        quick: bool,
        /// Folder for the results, one folder in it for each plan
        #[arg(long, value_name = "FOLDER", default_value = "results/verify")]
        out: PathBuf,
        /// Only claims on this plan; may be given more than once
        #[arg(long = "plan", value_name = "PLAN")]
        plans: Vec<String>,
    },
    /// Write an archive of a finished run, which `sheaf lab check` checks on any machine
    Pack {
        /// The folder that `sheaf lab run` wrote
        folder: PathBuf,
        /// The archive [default: FOLDER.tar.gz]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Check an archive: its hashes, its result and its report, and each number of a virtual run by
    /// measuring it again; status 1 when something differs
    Check {
        /// The archive that `sheaf lab pack` wrote
        file: PathBuf,
        /// Measure again only these points of the sweep
        #[arg(long, value_delimiter = ',', value_name = "N,…", allow_negative_numbers = true)]
        points: Option<Vec<f64>>,
        /// Measure again only so many points, chosen by the hash of the archive
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        sample: Option<u32>,
    },
    /// Print every published value beside ours, as a page in Markdown
    Reproduction {
        /// Folders that `sheaf lab run` wrote, one of each plan
        #[arg(required = true)]
        folders: Vec<PathBuf>,
    },
    /// Print the table of a finished run and write its report anew
    Report {
        /// The folder that `sheaf lab run` wrote
        folder: PathBuf,
    },
}

/// Arguments of `sheaf lab run` and `sheaf lab points`.
#[derive(Args, Debug)]
pub struct Run {
    /// A built-in plan or a TOML file
    plan: String,
    /// Where the packets run: real Linux stacks in real time, or a virtual clock
    #[arg(long, value_enum, default_value_t = Engine::Virtual)]
    engine: Engine,
    /// Shorter points, as the `[quick]` of the plan says
    #[arg(long)]
    quick: bool,
    /// The points of the sweep (for calls: flows per direction), instead of the plan's
    #[arg(long, value_delimiter = ',', value_name = "N,…", allow_negative_numbers = true)]
    points: Option<Vec<f64>>,
    /// Seconds measured per point
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    duration: Option<f64>,
    /// Seed of all randomness; of the first repetition
    #[arg(long, allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Repetitions of each point, each with a seed of its own, instead of the plan's
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    repetitions: Option<u32>,
    /// Folder for the results [default: results/PLAN-ENGINE]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Measure again what the folder already has
    #[arg(long)]
    again: bool,
    /// Only this point, and no report; beyond the first repetition with its number
    #[arg(long, value_name = "SCENARIO/TREATMENT/X[#N]")]
    only: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Engine {
    /// Real Linux stacks in network namespaces, in real time; needs root
    Netns,
    /// Under a virtual clock; no root, same seed, same result
    Virtual,
}

impl From<Engine> for experiment::Engine {
    fn from(engine: Engine) -> Self {
        match engine {
            Engine::Netns => experiment::Engine::Netns,
            Engine::Virtual => experiment::Engine::Virtual,
        }
    }
}

/// Does what `command` asks.
///
/// # Errors
/// Fails when it cannot be done. Claims that do not hold are a status.
pub fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List => {
            for plan in Plan::all() {
                let head = plan.head();
                output::print_line(format_args!("{:<18} {}", head.name, head.title))?;
            }
        }
        Command::Show { plan } => output::print(Plan::find(&plan)?.to_toml()?)?,
        Command::Run(arguments) => run_plan(&arguments)?,
        Command::Points(arguments) => print_points(&arguments)?,
        Command::Gather { folders, out, allow_missing } => {
            let holes = if allow_missing { Holes::Accepted } else { Holes::Refused };
            let result = run::gather(&folders, holes)?;
            write(&result, out.as_ref().unwrap_or(&folders[0]))?;
        }
        Command::Report { folder } => write(&report::read(&folder)?, &folder)?,
        Command::Pack { folder, out } => pack(&folder, out)?,
        Command::Check { file, points, sample } => {
            let count = sample.map(|count| count as usize);
            return check(&file, &Sample { points, count });
        }
        Command::Reproduction { folders } => {
            let results = folders.iter().map(|folder| report::read(folder));
            output::print(report::page(&results.collect::<anyhow::Result<Vec<_>>>()?))?;
        }
        Command::Verify { quick, out, plans } => {
            let length = if quick { Length::Quick } else { Length::Whole };
            return verify(length, &out, &plans);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the plans of which there are claims, and says which claims do not hold.
fn verify(length: Length, out: &Path, plans: &[String]) -> anyhow::Result<ExitCode> {
    let claims = Claims::builtin();
    let known: Vec<_> = claims.checks.iter().map(|check| check.plan.as_str()).collect();
    if let Some(unknown) = plans.iter().find(|plan| !known.contains(&plan.as_str())) {
        bail!("there is no claim on {unknown:?}; there are on {}", known.join(", "));
    }
    let tools = Tools { sheaf: std::env::current_exe()? };
    let is_asked_for = |check: &&Check| plans.is_empty() || plans.contains(&check.plan);
    let mut fallen = 0;
    for check in claims.checks.iter().filter(is_asked_for) {
        if !check.is_part_of(length) {
            continue;
        }
        let folder = out.join(&check.plan);
        let progress = Arc::new(Progress::new(display()));
        let options = Options { folder: Some(folder.clone()), progress, ..Options::default() };
        let result = check.run(length, options, &tools)?;
        report::write(&result, &folder)?;
        let verdicts = check.verdicts(length, &result);
        fallen += verdicts.iter().filter(|verdict| !verdict.holds()).count();
        output::print_line(report::verdicts(&check.plan, &verdicts))?;
    }
    match fallen {
        0 => Ok(ExitCode::SUCCESS),
        _ => {
            output::print_line(format_args!("numbers that do not hold: {fallen}"))?;
            Ok(ExitCode::from(FALLEN))
        }
    }
}

/// Writes the archive of the run in `folder`.
fn pack(folder: &Path, out: Option<PathBuf>) -> anyhow::Result<()> {
    let contents = Contents::of_folder(folder)?;
    let out = match (out, folder.file_name()) {
        (Some(out), _) => out,
        (None, Some(name)) => {
            let mut name = name.to_owned();
            name.push(ARCHIVE);
            folder.with_file_name(name)
        }
        (None, None) => bail!("{} has no name for an archive; give --out", folder.display()),
    };
    let sum = contents.to_archive()?.write(&out)?;
    let points = contents.records.len();
    output::print_line(format_args!("{}: {points} points, SHA-256 {sum}", out.display()))?;
    Ok(())
}

/// Checks an archive, with a line for each step.
fn check(file: &Path, sample: &Sample) -> anyhow::Result<ExitCode> {
    let archive = Archive::read(file)?;
    let tools = Tools { sheaf: std::env::current_exe()? };
    let progress = Progress::new(display());
    let say = |step: &archive::Step| Ok(output::print_line(step)?);
    match archive::check(&archive, sample, &tools, &progress, say)? {
        true => Ok(ExitCode::SUCCESS),
        false => Ok(ExitCode::from(FALLEN)),
    }
}

/// Progress for people, or for a log.
fn display() -> Display {
    match std::io::stderr().is_terminal() {
        true => Display::Bar,
        false => Display::Lines(LINE_PERIOD),
    }
}

fn run_plan(arguments: &Run) -> anyhow::Result<()> {
    let plan = Plan::find(&arguments.plan)?;
    let options = arguments.options(&plan);
    end_on_signals(arguments, &plan, &options)?;
    let tools = Tools { sheaf: std::env::current_exe()? };
    let result = run::run(&plan, arguments.engine.into(), &options, &tools)?;
    match &arguments.only {
        Some(_) => output::print(report::table(&result))?,
        None => write(&result, &arguments.folder(&plan))?,
    }
    Ok(())
}

fn print_points(arguments: &Run) -> anyhow::Result<()> {
    let plan = Plan::find(&arguments.plan)?;
    let (options, engine) = (arguments.options(&plan), arguments.engine.into());
    let changed = plan.changed(engine, &options.changes)?;
    let mut common =
        format!("sheaf lab run {} --engine {}", quoted(&arguments.plan), engine.name());
    if arguments.quick {
        common += " --quick";
    }
    if let Some(points) = &arguments.points {
        let points: Vec<_> = points.iter().map(f64::to_string).collect();
        common += &format!(" --points {}", points.join(","));
    }
    if let Some(seconds) = arguments.duration {
        common += &format!(" --duration {seconds}");
    }
    if let Some(seed) = arguments.seed {
        common += &format!(" --seed {seed}");
    }
    if let Some(repetitions) = arguments.repetitions {
        common += &format!(" --repetitions {repetitions}");
    }
    let out = arguments.folder(&plan);
    common += &format!(" --out {}", quoted(&out.display().to_string()));
    for sweep_point in run::chosen(&changed, engine, &options)? {
        output::print_line(format_args!("{common} --only {}", quoted(&sweep_point.to_string())))?;
    }
    Ok(())
}

/// Ends the process on SIGINT and SIGTERM, with a line that says how to go on. Points that are
/// being measured are lost, because some take minutes. Call it before other threads begin.
fn end_on_signals(arguments: &Run, plan: &Plan, options: &Options) -> anyhow::Result<()> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    signals.thread_block()?;
    let (progress, folder) = (options.progress.clone(), arguments.folder(plan));
    let command = if arguments.again { "the command without --again" } else { "the same command" };
    std::thread::spawn(move || {
        let Ok(signal) = signals.wait() else { return };
        progress.interrupt(|Counts { done, all, .. }| {
            let kept = format!("{done} of {all} points are kept in {}", folder.display());
            output::warn(format_args!("sheaf: interrupted; {kept}; {command} goes on from there"));
            std::process::exit(KILLED + signal as i32);
        })
    });
    Ok(())
}

/// As a shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Writes the result, and tells it.
fn write(result: &RunResult, folder: &Path) -> anyhow::Result<()> {
    report::write(result, folder)?;
    output::print(report::table(result))?;
    output::print_line(format_args!("report: {}", folder.join("report.html").display()))?;
    Ok(())
}

impl Run {
    fn folder(&self, plan: &Plan) -> PathBuf {
        let engine = experiment::Engine::from(self.engine).name();
        let default = || format!("results/{}-{engine}", plan.head().name).into();
        self.out.clone().unwrap_or_else(default)
    }

    fn options(&self, plan: &Plan) -> Options {
        Options {
            changes: Changes {
                quick: self.quick,
                points: self.points.clone(),
                duration: self.duration,
                seed: self.seed,
                repetitions: self.repetitions,
            },
            folder: Some(self.folder(plan)),
            again: self.again,
            only: self.only.clone(),
            parts: None,
            progress: Arc::new(Progress::new(display())),
        }
    }
}
