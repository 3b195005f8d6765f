//! Candidates for the next word of a command line.

use super::table::{Part, Value};

/// Something that may stand next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Candidate {
    /// This word, and what it is for.
    Word(String, &'static str),
    /// An interface.
    Interface,
    /// A file.
    File,
    /// A value of one's own, such as `TIME`.
    Value(&'static str),
}

impl Candidate {
    /// A word.
    pub fn word(word: &str, help: &'static str) -> Candidate {
        Candidate::Word(word.to_owned(), help)
    }

    /// Adds what `part` may be to `candidates`.
    pub fn push<S>(part: &Part<S>, candidates: &mut Vec<Candidate>) {
        candidates.push(match part.value {
            Value::Literal(_) => Candidate::word(part.name, ""),
            Value::Choice(choices) => {
                candidates.extend(choices.iter().map(|(name, _)| Candidate::word(name, "")));
                return;
            }
            Value::Interface(_) => Candidate::Interface,
            Value::File(_) => Candidate::File,
            _ => Candidate::Value(part.name),
        });
    }
}
