//! `sheaf window`: its [`words`], and its [`report`] as text.

mod report;
mod words;

use crate::change::live;
use crate::words::{Spelling, help};
pub use report::text;
use sheaf_daemon::{say, window};
#[cfg(test)]
pub use words::GRAMMAR;

/// The text of `--help`.
pub fn help() -> String {
    help::help(GRAMMARS, &[], words::EXAMPLES)
}

/// Every form of the command line.
pub const GRAMMARS: &[&dyn Spelling] = &[&words::GRAMMAR];

/// `sheaf window`: runs until it is interrupted.
pub fn window(words: &[String]) -> anyhow::Result<()> {
    let settings = words::GRAMMAR.parse(words)?;
    let dev = settings.dev.clone();
    say(&text(&dev, &window::run(settings, live(&words::GRAMMAR, words))?));
    Ok(())
}
