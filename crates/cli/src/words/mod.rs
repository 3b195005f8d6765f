//! Words as tables: a command line in the manner of `ip` and `tc`, described once.
//!
//! A command's table is a [`Grammar`]: its operands, then [`Entry`] by entry the words that may
//! follow in any order. An entry has its name, the forms of its value with the function that stores
//! each ([`Value`]), a line of help, and the paragraphs of the manual. From it are made:
//!
//! * [`parse`]: the parser, whose errors name the word that is wrong and the right one;
//! * [`help`]: the text of `--help`; `manual`: SYNOPSIS and OPTIONS of the page in `man/`;
//! * [`complete`]: the candidates for the next word, for the completions of a shell.
//!
//! The tables are `words.rs` in the folder of each command. A new word is one entry there.

pub mod complete;
pub mod help;
#[cfg(test)]
pub mod manual;
mod near;
// The paragraphs are read by the test that writes the manual.
#[cfg_attr(not(test), allow(dead_code))]
mod outline;
mod parse;
mod spelling;
mod table;
pub mod value;

pub use near::unknown;
pub use spelling::Spelling;
pub use table::{
    Done, Entry, Form, Grammar, Part, Section, Times, Value, WordError, filler, flag, form,
    literal, optional, part,
};

/// A setter that cannot fail: `set!(|draft, rate| draft.rate = rate)`.
macro_rules! set {
    (|$($name:ident),+| $body:expr) => {
        |$($name),+| {
            $body;
            Ok(())
        }
    };
}

pub(crate) use set;
