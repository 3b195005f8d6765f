//! `sheaf emulate`: emulated links on real interfaces, and an emulated 802.11 channel.
//!
//! * [`words`]: the command lines; [`files`]: the files that they name; [`rules`]: the file of
//!   rules and pipes; [`links`]: that of many links; `medium`: that of a channel and its stations;
//! * [`status`]: the report as text.

mod files;
mod links;
#[cfg(feature = "medium")]
mod medium;
mod rules;
mod status;
mod words;

use crate::words::{Spelling, help};
pub use status::text;

use crate::output;
use anyhow::{Context, bail, ensure};
use sheaf_daemon::control::{self, Error, Kind, Request, ServiceName};
use sheaf_daemon::emulate::settings::{Mode, Run};
use sheaf_daemon::emulate::{self, End, Settings, Status};
use sheaf_daemon::say;
use sheaf_emulator::Distribution;
use std::io::{self, Write};
use std::process::ExitCode;

/// Every form of the command line.
pub const GRAMMARS: &[&dyn Spelling] = &[
    &words::LINK,
    &words::DEV,
    &words::SHELL,
    &words::LINKS,
    #[cfg(feature = "medium")]
    &words::MEDIUM,
    &words::CHANGE,
    &words::SHOW,
    &words::STOP,
    &words::DIST,
];

/// The text of `--help`.
pub fn help() -> String {
    help::help(GRAMMARS, words::NOTES, words::EXAMPLES)
}

/// `sheaf emulate`: the status that the program ends with.
pub fn run(words: &[String]) -> anyhow::Result<ExitCode> {
    let Some((first, rest)) = words.split_first() else {
        bail!("nothing to do; write link IF1 IF2, dev IF, shell, links FILE, or medium FILE");
    };
    let own = words.iter().take_while(|word| *word != "--");
    if first == "help" || own.into_iter().any(|word| word == "--help" || word == "-h") {
        output::print_line(help())?;
        return Ok(ExitCode::SUCCESS);
    }
    match first.as_str() {
        "link" => return emulate(&words::LINK.parse(rest)?),
        "dev" => return emulate(&words::DEV.parse(rest)?),
        "shell" => return emulate(&words::SHELL.parse(rest)?),
        "links" => {
            let settings = words::LINKS.parse(rest)?;
            let ended = emulate::many::run(&settings, words::parse_change_of(&settings))?;
            return finished(ended, &settings.run, false);
        }
        #[cfg(feature = "medium")]
        "medium" => {
            let (settings, run) = words::MEDIUM.parse(rest)?;
            return finished(emulate::medium::run(&settings, &run)?, &run, false);
        }
        "change" => {
            let (dev, _) = words::CHANGE.parse(rest)?;
            change(&dev, &rest[2..])?;
        }
        "show" => {
            let words::Show { dev, json } = words::SHOW.parse(rest)?;
            let status = show(&dev)?;
            if json {
                output::print_line(serde_json::to_string_pretty(&status)?)?;
            } else {
                output::print(status::text(&status))?;
            }
        }
        "stop" => drop(ask(&words::STOP.parse(rest)?, &Request::Stop {})?),
        "dist" => {
            let words::Dist { log, out } = words::DIST.parse(rest)?;
            dist(&log, out.as_deref())?;
        }
        word => {
            let known =
                ["link", "dev", "shell", "links", "medium", "change", "show", "stop", "dist"];
            bail!(crate::words::unknown(word, &known));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Emulates until Ctrl-C, or the end of the shell.
fn emulate(settings: &Settings) -> anyhow::Result<ExitCode> {
    let ended = emulate::run(settings, words::parse_change(settings))?;
    finished(ended, &settings.run, matches!(settings.mode, Mode::Shell { .. }))
}

/// Prints what an emulation did; the status that the program ends with. The standard output of one
/// around a command is the command's.
fn finished((status, end): (Status, End), run: &Run, command: bool) -> anyhow::Result<ExitCode> {
    let late = run.audit && status.lateness.p99_us > run.budget.as_micros() as f64;
    let print = |text: &str| match command {
        true => _ = writeln!(io::stderr(), "{}", text.trim_end()),
        false => say(text),
    };
    if run.audit || !command {
        print(&status::text(&status));
    }
    if late {
        print(&format!(
            "over budget: p99 of lateness is {:.0} us, more than {} us",
            status.lateness.p99_us,
            run.budget.as_micros()
        ));
    }
    let own = if late { 1 } else { 0 };
    match end {
        End::Gone(dev) => bail!("interface {dev} went away; put it back and start again"),
        #[cfg(feature = "medium")]
        End::Deleted(dev) => bail!("somebody deleted interface {dev}; start the medium again"),
        End::Command(status) => Ok(ExitCode::from(status.max(own))),
        End::Asked => Ok(ExitCode::from(own)),
    }
}

/// Asks what emulates on `dev`.
fn ask(dev: &str, request: &Request) -> anyhow::Result<serde_json::Value> {
    control::ask(&ServiceName::new(Kind::Emulate, dev)?, request).map_err(|error| match error {
        Error::NotRunning(_) => {
            anyhow::anyhow!(
                "nothing emulates on {dev}; start `sheaf emulate dev {dev} LINK`, or a medium of \
                 this name"
            )
        }
        error => error.into(),
    })
}

/// `sheaf emulate show`.
fn show(dev: &str) -> anyhow::Result<Status> {
    Ok(serde_json::from_value(ask(dev, &Request::Report {})?)?)
}

/// `sheaf emulate change`.
fn change(dev: &str, words: &[String]) -> anyhow::Result<()> {
    ensure!(!words.is_empty(), "change says nothing; write change dev {dev} LINK");
    let directory = std::env::current_dir().unwrap_or_default();
    // One of many links is known by its interface.
    let of = [words::OF_WORD.to_owned(), dev.to_owned()];
    let words = of.into_iter().chain(words.iter().cloned()).collect();
    ask(dev, &Request::Change { words, directory }).map(drop)
}

/// `sheaf emulate dist`: the distribution of a ping log, in the form of iproute2.
fn dist(log: &str, out: Option<&str>) -> anyhow::Result<()> {
    ensure!(out != Some(log), "--out {log} would overwrite the log; give another file");
    let text = files::read(log)?;
    let ping = Distribution::from_ping(&text)
        .map_err(|error| anyhow::anyhow!("{log}: {error}; give what `ping` printed"))?;
    let table = ping.distribution.to_dist_text();
    let summary = format!(
        "{} round trips: delay {:.3}ms {:.3}ms {:.0}% distribution {}",
        ping.samples,
        ping.mean_ms,
        ping.deviation_ms,
        // A link knows no negative correlation.
        ping.correlation.max(0.0) * 100.0,
        out.unwrap_or("FILE")
    );
    match out {
        None => output::print(table)?,
        Some(out) => std::fs::write(out, table)
            .with_context(|| format!("cannot write {out}; give another --out"))?,
    }
    output::warn(summary);
    Ok(())
}
