//! The types of which tables are made.

use sheaf_stage::Bitrate;
use sheaf_wire::prefix::Prefix;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Result of a setter: nothing, or cause and remedy in one line.
pub type Done = anyhow::Result<()>;

/// A function that stores a value.
pub type Set<S, T> = fn(&mut S, T) -> Done;

/// The words of a choice, each with its setter.
pub type Choices<S> = &'static [(&'static str, fn(&mut S) -> Done)];

/// A kind of value, and the function that stores one.
pub enum Value<S: 'static> {
    /// The part's name, as it stands.
    Literal(fn(&mut S) -> Done),
    /// One of a few words.
    Choice(Choices<S>),
    /// A time with its unit, or 0.
    Time(Set<S, Duration>),
    /// A rate with its unit, or 0.
    Rate(Set<S, Bitrate>),
    /// Bytes.
    Size(Set<S, u64>),
    /// A whole number in a range, decimal or hexadecimal (0x…).
    Number(RangeInclusive<u64>, Set<S, u64>),
    /// A whole number that may be negative.
    Signed(Set<S, i32>),
    /// A percentage, with or without its sign, as a share of 1.
    Percent(Set<S, f64>),
    /// A chance: a number up to 1, or a percentage with its sign.
    Chance(Set<S, f64>),
    /// An IP address.
    Address(Set<S, IpAddr>),
    /// Prefixes or addresses, separated by commas.
    Prefixes(Set<S, Vec<Prefix>>),
    /// A port, or a range of ports.
    Ports(Set<S, RangeInclusive<u16>>),
    /// A class (DSCP), by number or name.
    Class(Set<S, u8>),
    /// Classes, ranges of classes, separated by commas.
    Classes(Set<S, Vec<u8>>),
    /// A firewall mark, with or without its mask.
    Mark(Set<S, (u32, u32)>),
    /// The name of an interface.
    Interface(fn(&mut S, &str) -> Done),
    /// The name of a file.
    File(fn(&mut S, &str) -> Done),
    /// Any word; the function reads it.
    Text(fn(&mut S, &str) -> Done),
    /// A word that the first function accepts, and that the second one reads.
    Like(fn(&str) -> bool, fn(&mut S, &str) -> Done),
}

/// A command line: operands in their order, then the words of the sections in any order.
pub struct Grammar<S: 'static, T: 'static> {
    /// The words that lead here, such as `emulate dev`.
    pub command: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// The values that stand first, in this order.
    pub operands: &'static [Part<S>],
    /// A line about the operands for `--help`; empty where the usage says all.
    pub operand_help: &'static str,
    /// A paragraph about them for the manual, in the markup of [`Entry::about`].
    pub operand_about: &'static str,
    /// The words that may follow.
    pub sections: &'static [&'static Section<S>],
    /// Stores the words behind `--`, where a command may stand there.
    pub tail: Option<fn(&mut S, &[String]) -> Done>,
    /// Checks the words together, and makes the settings of them.
    pub finish: fn(S) -> anyhow::Result<T>,
}

/// Words that belong together in the manual.
pub struct Section<S: 'static> {
    /// Heading in the manual and in `--help`; empty where there is only one section.
    pub title: &'static str,
    /// A sentence below the heading, in the markup of [`Entry::about`].
    pub about: &'static str,
    /// The name that stands for the section in a usage line, such as `LINK`; empty for none.
    pub name: &'static str,
    /// The words.
    pub entries: &'static [Entry<S>],
}

/// Number of times that a word may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Once.
    Once,
    /// As often as one likes; the last counts, as for `tc`.
    LastCounts,
    /// As often as one likes; all count.
    Many,
}

/// A word and its value.
pub struct Entry<S: 'static> {
    /// The word.
    pub name: &'static str,
    /// Other words for the same.
    pub aliases: &'static [&'static str],
    /// Number of times that it may stand.
    pub times: Times,
    /// Whether it cannot be left out.
    pub required: bool,
    /// Whether it stands in place of the entry before it; in usage lines both share brackets, and
    /// `finish` checks that one of them is there.
    pub instead: bool,
    /// Whether the value can change while the service runs.
    pub live: bool,
    /// The ways to write its value.
    pub forms: &'static [Form<S>],
    /// The name of all forms together in a usage line, such as `KIND`; empty: the forms themselves.
    pub forms_name: &'static str,
    /// A line for `--help`.
    pub help: &'static str,
    /// A paragraph of the manual about the word as a whole: `bold` between backticks, an `<IF>`
    /// between angle brackets in italics. Empty where the forms have one each.
    pub about: &'static str,
}

impl<S> Entry<S> {
    /// A word that may be left out and stands once.
    pub const ONCE: Entry<S> = Entry {
        name: "",
        aliases: &[],
        times: Times::Once,
        required: false,
        instead: false,
        live: false,
        forms: &[],
        forms_name: "",
        help: "",
        about: "",
    };
    /// A word of which the last counts.
    pub const LAST: Entry<S> = Entry { times: Times::LastCounts, ..Entry::ONCE };
    /// A word that may stand several times.
    pub const MANY: Entry<S> = Entry { times: Times::Many, ..Entry::ONCE };
    /// A word that cannot be left out.
    pub const REQUIRED: Entry<S> = Entry { required: true, ..Entry::ONCE };

    /// Whether `word` is this one.
    pub(super) fn is(&self, word: &str) -> bool {
        self.name == word || self.aliases.contains(&word)
    }
}

/// One way to write the value of a word.
pub struct Form<S: 'static> {
    /// Called first, for a flag and for what begins a new element of a list.
    pub begin: Option<fn(&mut S) -> Done>,
    /// The values in their order.
    pub parts: &'static [Part<S>],
    /// Words of their own that may follow in any order.
    pub group: &'static [Entry<S>],
    /// The name of the group in a usage line, such as `RULE`; empty: its words themselves.
    pub group_name: &'static str,
    /// An example of the group, where at least one of its words must stand.
    pub group_example: &'static str,
    /// A paragraph of the manual, in the markup of [`Entry::about`].
    pub about: &'static str,
}

impl<S> Form<S> {
    /// Nothing at all.
    pub const EMPTY: Form<S> =
        Form { begin: None, parts: &[], group: &[], group_name: "", group_example: "", about: "" };
}

/// One word of a value.
pub struct Part<S: 'static> {
    /// Its name in usage lines, such as `TIME`; of a literal, the word itself.
    pub name: &'static str,
    /// A good one.
    pub example: &'static str,
    /// Whether it, and with it what follows, may be left out.
    pub optional: bool,
    /// Its kind, and the function that stores it.
    pub value: Value<S>,
}

/// A value that must stand.
pub const fn part<S>(name: &'static str, example: &'static str, value: Value<S>) -> Part<S> {
    Part { name, example, optional: false, value }
}

/// A value that may be left out.
pub const fn optional<S>(name: &'static str, example: &'static str, value: Value<S>) -> Part<S> {
    Part { name, example, optional: true, value }
}

/// A word that stands as it is.
pub const fn literal<S>(name: &'static str, set: fn(&mut S) -> Done) -> Part<S> {
    Part { name, example: name, optional: false, value: Value::Literal(set) }
}

/// A word that may stand as it is, and says nothing.
pub const fn filler<S>(name: &'static str) -> Part<S> {
    Part { name, example: name, optional: true, value: Value::Literal(|_| Ok(())) }
}

/// A value of these parts.
pub const fn form<S>(parts: &'static [Part<S>], about: &'static str) -> Form<S> {
    Form { parts, about, ..Form::EMPTY }
}

/// No value: the word alone says it.
pub const fn flag<S>(set: fn(&mut S) -> Done, about: &'static str) -> Form<S> {
    Form { begin: Some(set), about, ..Form::EMPTY }
}

/// A word of a command line that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordError {
    /// Its place among the words; their number where one is missing, or where they do not go
    /// together.
    pub at: usize,
    /// Cause and remedy in one line.
    pub message: String,
}

impl std::fmt::Display for WordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for WordError {}
