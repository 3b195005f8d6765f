//! The files that the words of `sheaf emulate` name.

use anyhow::{Context, anyhow, ensure};
use serde::de::DeserializeOwned;
use sheaf_emulator::trace::{Opportunities, Steps, Trains};
use sheaf_emulator::{LossPattern, Trace};
use std::io::Read;
use std::path::Path;

/// The most bytes of a file that is read: a trace, a distribution, rules, a ping log.
const LONGEST: u64 = 256 << 20;

/// Returns the text of the distribution `name`: of a file, or one of iproute2's.
pub fn distribution(name: &str, directory: &Path) -> Option<String> {
    let places = [
        directory.join(name),
        Path::new("/usr/lib/tc").join(format!("{name}.dist")),
        Path::new("/usr/share/tc").join(format!("{name}.dist")),
    ];
    places.iter().find_map(|path| read(&path.to_string_lossy()).ok())
}

/// Reads a trace in either form, and the recording of a light load that goes with the first.
pub fn trace(file: &str, light: Option<&str>, directory: &Path) -> anyhow::Result<Trace> {
    let at = |file: &str| read(&directory.join(file).to_string_lossy());
    let text = at(file)?;
    let numbers = |line: &&str| line.trim().bytes().all(|byte| byte.is_ascii_digit());
    let first = text.lines().find(|line| !line.trim().is_empty());
    if first.filter(numbers).is_none() {
        ensure!(
            light.is_none(),
            "--light goes with delivery opportunities, and {file} is not in Mahimahi's form; leave \
             out --light"
        );
        let steps = Steps::parse(&text);
        let steps = steps.map_err(|error| anyhow!("{file}, {error}; give Mahimahi's form or CSV"));
        return Ok(Trace::Steps(steps?.into()));
    }
    let opportunities = Opportunities::parse(&text)
        .map_err(|error| anyhow!("{file}, {error}; give Mahimahi's form or CSV"))?;
    let Some(light) = light else { return Ok(Trace::Opportunities(opportunities.into())) };
    let trains = Trains::parse(&at(light)?).map_err(|error| {
        anyhow!("{light}, {error}; give a line for each train: its time, its delay, and times")
    })?;
    Ok(Trace::Loads(opportunities.into(), trains.into()))
}

/// Reads a pattern of losses: `list` itself, or the file of that name.
pub fn loss_pattern(
    list: &str,
    period: Option<u64>,
    directory: &Path,
) -> anyhow::Result<LossPattern> {
    let is_list = list.bytes().all(|byte| byte.is_ascii_digit() || b",-".contains(&byte));
    let (text, named) = match is_list {
        true => (list.to_owned(), String::new()),
        false => (read(&directory.join(list).to_string_lossy())?, format!("{list}, ")),
    };
    LossPattern::parse(&text, period)
        .map_err(|error| anyhow!("loss pattern: {named}{error}; write it like 3,7,100-110"))
}

/// Returns the text of a file.
pub fn read(file: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    let opened = std::fs::File::open(file)
        .with_context(|| format!("cannot read {file}; give a file that is there"))?;
    let len = opened.take(LONGEST).read_to_string(&mut text);
    let len = len.with_context(|| format!("cannot read {file}; give a file of text"))?;
    ensure!((len as u64) < LONGEST, "{file} is too large; give at most {} MB", LONGEST >> 20);
    Ok(text)
}

/// Reads the TOML `text`; an error has its line.
pub fn toml<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
        anyhow!("line {line}: {}; see `sheaf emulate --help`", error.message().replace('\n', " "))
    })
}

/// The example of TOML in the documentation of a module, of which `source` is the text.
#[cfg(test)]
pub fn example(source: &str) -> String {
    let lines = source
        .lines()
        .take_while(|line| line.starts_with("//!"))
        .map(|line| line.trim_start_matches("//!").trim_start())
        .skip_while(|line| *line != "```toml")
        .skip(1)
        .take_while(|line| *line != "```");
    lines.collect::<Vec<_>>().join("\n")
}
