//! `sheaf trunk`: one interface over several links.
//!
//! * [`words`]: the command line; [`arguments`]: what it says;
//! * [`daemon`]: the turns of the one thread: TUN interface, endpoint, links, time;
//! * [`member`]: one link: its interface, its socket, where the other end is;
//! * [`report`]: what `sheaf show` prints.
//!
//! The machine that numbers, deals out and puts in order is the crate `sheaf_trunk`.

mod arguments;
mod daemon;
mod member;
pub mod report;
mod words;

use crate::words::{Spelling, help};

/// Every form of the command line.
pub const GRAMMARS: &[&dyn Spelling] = &[&words::GRAMMAR];

/// The text of `--help`.
pub fn help() -> String {
    help::help(GRAMMARS, words::NOTES, words::EXAMPLES)
}

/// `sheaf trunk`: runs until it is interrupted.
pub fn trunk(words: &[String]) -> anyhow::Result<()> {
    daemon::run(&words::GRAMMAR.parse(words)?)
}
