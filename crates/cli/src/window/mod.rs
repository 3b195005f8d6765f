//! `sheaf window`: its [`words`], and its [`report`] as text.

mod report;
mod words;

use crate::words::{Spelling, help};
pub use report::text;
use sheaf_daemon::window;

/// The text of `--help`.
pub fn help() -> String {
    help::help(GRAMMARS, &[], words::EXAMPLES)
}

/// Every form of the command line.
pub const GRAMMARS: &[&dyn Spelling] = &[&words::GRAMMAR];

/// `sheaf window`: runs until it is interrupted.
pub fn window(words: &[String]) -> anyhow::Result<()> {
    let settings = words::GRAMMAR.parse(words)?;
    print!("{}", text(&settings.dev, &window::run(&settings)?));
    Ok(())
}
