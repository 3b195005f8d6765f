//! One LINK alone, as a file of rules has it.

use super::draft::Draft;
use super::{link, queue};
use crate::words::Grammar;
use sheaf_emulator::LinkConfig;
use std::path::Path;

/// The words of one LINK.
pub static ALONE: Grammar<Draft, Draft> = Grammar {
    command: "link",
    about: "",
    operands: &[],
    operand_help: "",
    operand_about: "",
    sections: &[&link::SECTION, &queue::SECTION],
    tail: None,
    finish: Ok,
};

/// Reads one LINK: the link, and a seed where one is given. Files are looked for in `directory`.
pub fn link(
    words: &[&str],
    header: usize,
    directory: &Path,
) -> anyhow::Result<(LinkConfig, Option<u64>)> {
    let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
    let draft = ALONE.parse(&words)?;
    let seed = draft.seed;
    let [link, _] = draft.both(header, directory)?;
    Ok((link, seed))
}
