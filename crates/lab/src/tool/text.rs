//! Reading what programs print, and writing what they are called with.

use anyhow::Context;
use std::str::FromStr;

/// Characters of a program's output that an error repeats.
const QUOTED: usize = 60;

/// The number that `text` begins with, up to the first character that no decimal number has.
///
/// # Errors
/// Fails with `text` when it begins with something else.
pub(super) fn number<T: FromStr>(text: &str) -> anyhow::Result<T> {
    let text = text.trim_start();
    let end = text.find(|one: char| !one.is_ascii_digit() && one != '.').unwrap_or(text.len());
    text[..end].parse().ok().with_context(|| format!("no number at {:?}", quoted(text)))
}

/// The beginning of `text`, for one line of an error.
pub(super) fn quoted(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(QUOTED).collect()
}

/// Words of a command line.
pub(super) fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}
