//! `sheaf trunk`: its [`words`], and its [`report`] as text.

pub mod report;
pub mod words;

use crate::change::live;
use crate::output;
use crate::words::{Spelling, help};
use sheaf_daemon::{say, trunk};

/// Every form of the command line.
pub const GRAMMARS: &[&dyn Spelling] = &[&words::GRAMMAR, &words::KEY];

/// The text of `--help`.
pub fn help() -> String {
    help::help(GRAMMARS, words::NOTES, words::EXAMPLES)
}

/// `sheaf trunk`: runs until it is interrupted, or prints a new key.
pub fn trunk(words: &[String]) -> anyhow::Result<()> {
    if let [first] = words
        && first == "key"
    {
        return Ok(output::print_line(trunk::key::make()?.to_text().as_str())?);
    }
    let last = trunk::run(words::GRAMMAR.parse(words)?, live(&words::GRAMMAR, words))?;
    say(&report::text(&last));
    Ok(())
}
