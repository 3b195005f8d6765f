//! `sheaf run`: all that a router does, described in one file.
//!
//! * [`config`]: the file; [`section`]: one section of it;
//! * [`supervisor`]: which sections run, a state machine without I/O;
//! * [`driver`]: does what it says: processes, signals, interfaces, the control socket;
//! * [`journal`]: the log.

pub mod config;
mod driver;
mod journal;
mod section;
mod supervisor;

use crate::output;
use anyhow::{Context, bail};
use serde_json::Value;
use sheaf_daemon::{Request, ServiceName, control};
use sheaf_stage::Duration;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Time for a reload: services that do not take over a change in time are started again.
const RELOAD_DEADLINE: Duration = Duration::from_secs(10);

/// The file that is meant: the one that was named, or the usual one.
fn file(named: Option<PathBuf>) -> PathBuf {
    named.unwrap_or_else(|| config::DEFAULT.into())
}

/// Prints the faults of a file as editors read them; other errors are for the caller.
fn faults(error: anyhow::Error) -> anyhow::Result<ExitCode> {
    let faults = error.downcast::<config::Faults>()?;
    output::warn(faults);
    Ok(ExitCode::from(2))
}

/// `sheaf run`.
pub fn run(named: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    match driver::run(&file(named)) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => faults(error),
    }
}

/// `sheaf check`.
pub fn check(named: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    match checked(&file(named)) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => faults(error),
    }
}

fn checked(file: &Path) -> anyhow::Result<()> {
    let path = file
        .canonicalize()
        .with_context(|| format!("cannot read {}; write sheaf check FILE", file.display()))?;
    driver::enter_directory(&path)?;
    let named = |faults: config::Faults| config::Faults { file: file.to_owned(), ..faults };
    let config = config::read(&path).map_err(named)?;
    for section in config.sections.values() {
        output::print_line(format_args!("{}: {}", section.key, section.words().join(" ")))?;
    }
    if config.sections.is_empty() {
        output::print_line(format_args!("{}: no sections; nothing would run", path.display()))?;
    }
    Ok(())
}

/// `sheaf reload`.
pub fn reload() -> anyhow::Result<ExitCode> {
    let supervisor = ServiceName::supervisor();
    let response = match control::ask_within(&supervisor, &Request::Reload {}, RELOAD_DEADLINE) {
        Err(control::Error::NotRunning(_)) => {
            bail!("`sheaf run` does not run here; start it, or run `systemctl start sheaf`")
        }
        response => response?,
    };
    let lines = |key: &str| -> Vec<String> {
        let lines = response[key].as_array().into_iter().flatten();
        lines.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let (changes, faults) = (lines("changes"), lines("faults"));
    if !faults.is_empty() {
        faults.iter().for_each(output::warn);
        output::warn("sheaf: nothing was changed");
        return Ok(ExitCode::from(2));
    }
    changes.iter().try_for_each(output::print_line)?;
    if changes.is_empty() {
        output::print_line("no section changed")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `sheaf change`.
pub fn change(words: &[String]) -> anyhow::Result<()> {
    let (kind, name, words) = match words {
        // As in the commands themselves, and in ip(8).
        [kind, dev, name, words @ ..] if dev == "dev" => (kind, name, words),
        [kind, name, words @ ..] => (kind, name, words),
        _ => bail!("change needs a service and words; write change aggregate wlan0 policy forced"),
    };
    let kinds = section::Kind::SECTIONS;
    let Some(kind) = kinds.into_iter().find(|one| one.name() == kind) else {
        let known: Vec<_> = kinds.into_iter().map(section::Kind::name).collect();
        bail!(crate::words::unknown(kind, &known));
    };
    if words.is_empty() {
        bail!("change says nothing; write change {} {name} and words", kind.name());
    }
    let key = section::Key { kind, name: name.clone() };
    let Some(service) = key.service() else {
        bail!("{key} has no process; run its command again with other words");
    };
    let directory = std::env::current_dir().unwrap_or_default();
    let request = Request::Change { words: words.to_vec(), directory };
    match control::ask(&service, &request) {
        // The reason is about words, and does not say whose.
        Err(refused @ control::Error::Refused(_)) => Err(refused).with_context(|| key.to_string()),
        // The others name the service.
        asked => Ok(asked.map(drop)?),
    }
}
