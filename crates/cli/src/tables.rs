//! All commands whose words are tables.

use crate::words::{Spelling, WordError};
use crate::{aggregate, emulate, trunk, window};

/// The forms of the command line of `command`; none where its words are not a table.
pub fn grammars(command: &str) -> &'static [&'static dyn Spelling] {
    match command {
        "aggregate" => aggregate::GRAMMARS,
        "split" => aggregate::SPLIT_GRAMMARS,
        "emulate" => emulate::GRAMMARS,
        "trunk" => trunk::GRAMMARS,
        "window" => window::GRAMMARS,
        _ => &[],
    }
}

/// The grammar of `command`, which is `window`, `emulate dev` and so on.
fn grammar(command: &str) -> Option<&'static dyn Spelling> {
    let first = command.split(' ').next().unwrap_or_default();
    grammars(first).iter().find(|grammar| grammar.outline().command == command).copied()
}

/// Whether `command` has the word `name`, apart from those that follow another one.
pub fn has(command: &str, name: &str) -> bool {
    let chapters = grammar(command).map(|grammar| grammar.outline().sections);
    chapters.into_iter().flatten().any(|chapter| chapter.words.iter().any(|word| word.name == name))
}

/// Checks the words of `command` as the command itself does, but without looking at interfaces.
pub fn check(command: &str, words: &[String]) -> Result<(), WordError> {
    match grammar(command) {
        Some(grammar) => grammar.check(words),
        None => Err(WordError { at: 0, message: format!("there is no command {command}") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::manual;
    use std::path::PathBuf;

    /// Commands whose words are tables; each has a page.
    const COMMANDS: [&str; 5] = ["aggregate", "split", "trunk", "window", "emulate"];
    /// The lines around what is made from a table.
    const BEGIN: &str = ".\\\" From the table of words; SHEAF_BLESS=1 cargo test writes it.\n";
    const END: &str = ".\\\" By hand again.\n";

    /// `page` with `made` between the marks below the heading `section`.
    fn with(page: &str, section: &str, made: &str) -> String {
        let heading = format!(".SH {section}\n{BEGIN}");
        let (before, rest) = page.split_once(&heading).unwrap_or_else(|| panic!("no {heading}"));
        let (_, after) = rest.split_once(END).unwrap_or_else(|| panic!("no {END}"));
        format!("{before}{heading}{made}{END}{after}")
    }

    #[test]
    fn the_manual_is_what_the_tables_say() {
        for command in COMMANDS {
            let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
                .join(format!("../../man/sheaf-{command}.8"));
            let page = std::fs::read_to_string(&path).unwrap();
            let wanted = with(&page, "SYNOPSIS", &manual::synopsis(grammars(command)));
            let wanted = with(&wanted, "OPTIONS", &manual::options(grammars(command)));
            if std::env::var_os("SHEAF_BLESS").is_some() {
                std::fs::write(&path, &wanted).unwrap();
                continue;
            }
            let differs = page.lines().zip(wanted.lines()).find(|(page, wanted)| page != wanted);
            assert!(
                page == wanted,
                "man/sheaf-{command}.8 differs from its table ({differs:?}); run \
                 SHEAF_BLESS=1 cargo test -p sheaf --bin sheaf manual"
            );
        }
    }

    #[test]
    fn every_example_of_a_table_is_a_good_one() {
        for command in COMMANDS {
            for grammar in grammars(command) {
                let outline = grammar.outline();
                for line in grammar.examples() {
                    let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
                    // Some need other words, too; then the walk has come to where these may stand.
                    let good = !grammar.next(&words).is_empty() || grammar.check(&words).is_ok();
                    assert!(good, "{} {line} is refused", outline.command);
                }
            }
        }
    }

    #[test]
    fn the_last_word_of_an_error_is_its_place() {
        let check = |line: &str| {
            let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            check("window", &words).unwrap_err().at
        };
        assert_eq!(check("dev eth0 capcity 20mbit"), 2, "the word itself");
        assert_eq!(check("dev eth0 capacity fast"), 3, "its value");
        assert_eq!(check("dev eth0 capacity"), 3, "the value that is missing");
        assert_eq!(check("dev eth0"), 2, "the word that is missing");
    }
}
