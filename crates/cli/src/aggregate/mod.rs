//! `sheaf aggregate` and `sheaf split`: their [`words`].

mod words;

use crate::change::live;
use crate::show;
use crate::words::{Spelling, help};
use sheaf_daemon::{aggregate, say};

/// Every form of the command line of `sheaf aggregate`.
pub const GRAMMARS: &[&dyn Spelling] = &[&words::GRAMMAR];

/// Every form of the command line of `sheaf split`.
pub const SPLIT_GRAMMARS: &[&dyn Spelling] = &[&words::SPLIT];

/// The text of `sheaf aggregate --help`.
pub fn help() -> String {
    help::help(GRAMMARS, &[], words::EXAMPLES)
}

/// The text of `sheaf split --help`.
pub fn split_help() -> String {
    help::help(SPLIT_GRAMMARS, &[], words::SPLIT_EXAMPLES)
}

/// `sheaf aggregate`: runs until it is interrupted.
pub fn aggregate(words: &[String]) -> anyhow::Result<()> {
    let last = aggregate::run(words::GRAMMAR.parse(words)?, live(&words::GRAMMAR, words))?;
    say(&show::text(&last));
    Ok(())
}

/// `sheaf split`: puts a splitter on an interface, or takes it off; with `peer auto`, runs until it
/// is interrupted.
pub fn split(words: &[String]) -> anyhow::Result<()> {
    let settings = words::SPLIT.parse(words)?;
    if settings.peers.as_ref().is_none_or(|peers| !peers.auto) {
        return aggregate::split(&settings);
    }
    let last = aggregate::run_splitter(settings, live(&words::SPLIT, words))?;
    say(&show::text(&last));
    Ok(())
}
