//! `sheaf window`.
//!
//! * [`words`]: the command line; [`arguments`]: what it says;
//! * [`daemon`]: keeps time for program and controllers, and answers `sheaf show`;
//! * [`report`]: what `sheaf show` tells.

mod arguments;
mod daemon;
mod report;
mod words;

use crate::words::{Spelling, help};

#[cfg(test)]
pub use report::{Flow, Total};
pub use report::{Report, text};

/// The text of `--help`.
pub fn help() -> String {
    help::help(GRAMMARS, &[], words::EXAMPLES)
}

/// Every form of the command line.
pub const GRAMMARS: &[&dyn Spelling] = &[&words::GRAMMAR];

/// `sheaf window`: runs until it is interrupted.
pub fn window(words: &[String]) -> anyhow::Result<()> {
    daemon::run(&words::GRAMMAR.parse(words)?)
}
