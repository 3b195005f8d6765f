//! Grammars of all types under one roof.

use super::complete::Candidate;
use super::outline::Outline;
use super::table::{Grammar, WordError};

/// A grammar without its types.
pub trait Spelling: Sync {
    /// Its words as text.
    fn outline(&self) -> Outline;
    /// Checks `words` as the command itself does.
    fn check(&self, words: &[String]) -> Result<(), WordError>;
    /// Returns the candidates for the word behind `words`.
    fn next(&self, words: &[String]) -> Vec<Candidate>;
    /// Returns a line with each word of the grammar, in each of its forms.
    #[cfg(test)]
    fn examples(&self) -> Vec<String>;
}

impl<S: Default, T> Spelling for Grammar<S, T> {
    fn outline(&self) -> Outline {
        Outline::of(self)
    }

    fn check(&self, words: &[String]) -> Result<(), WordError> {
        self.parse(words).map(drop)
    }

    fn next(&self, words: &[String]) -> Vec<Candidate> {
        self.expected(words)
    }

    #[cfg(test)]
    fn examples(&self) -> Vec<String> {
        self.lines()
    }
}
