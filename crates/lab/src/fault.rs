//! Faults of a plan, and the line of the file that each belongs to.

use std::fmt;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A fault of a plan.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// The fault and the remedy, in one line.
    message: String,
    place: Place,
    /// The key whose value is wrong; empty for one that is not known.
    key: &'static str,
}

/// A part of a plan.
#[derive(Debug)]
enum Place {
    /// The keys before all tables.
    Head,
    /// The table `[quick]`.
    Quick,
    /// An element of an array of tables, by the `name` or `label` in it.
    Element { array: &'static str, name: String },
}

impl Fault {
    /// A fault of scenario `name`.
    pub fn scenario(name: &str, message: impl fmt::Display) -> Fault {
        Fault::element("scenario", name, format!("scenario {name}: {message:#}"))
    }

    /// A fault of treatment `name`.
    pub fn treatment(name: &str, message: impl fmt::Display) -> Fault {
        Fault::element("treatment", name, format!("treatment {name}: {message:#}"))
    }

    /// A fault of the published figures with this label.
    pub fn published(label: &str, message: impl fmt::Display) -> Fault {
        Fault::element("published", label, format!("published {label:?}: {message:#}"))
    }

    /// A fault of the head's `key`.
    pub fn head(key: &'static str, message: impl fmt::Display) -> Fault {
        Fault { message: format!("{message:#}"), place: Place::Head, key }
    }

    /// A fault of `key` in the table `[quick]`.
    pub fn quick(key: &'static str, message: impl fmt::Display) -> Fault {
        Fault { message: format!("{message:#}"), place: Place::Quick, key }
    }

    /// The same fault, which is in the value of `key`.
    pub fn at(self, key: &'static str) -> Fault {
        Fault { key, ..self }
    }

    fn element(array: &'static str, name: &str, message: String) -> Fault {
        Fault { message, place: Place::Element { array, name: name.to_owned() }, key: "" }
    }

    /// Line of the fault in the plan `text`, from 1 on: that of the key; where the key is not
    /// written, that of the table; 1 where that is not written either.
    pub fn line(&self, text: &str) -> usize {
        let plan = DeTable::parse(text).ok();
        let span = plan.and_then(|plan| self.span(plan.get_ref()));
        line(text, span.unwrap_or_default())
    }

    fn span(&self, plan: &DeTable<'_>) -> Option<Range<usize>> {
        match &self.place {
            Place::Head => key_span(plan, self.key),
            Place::Quick => {
                let quick = plan.get("quick")?.get_ref().as_table()?;
                key_span(quick, self.key).or(key_span(plan, "quick"))
            }
            Place::Element { array, name } => {
                let elements = plan.get(*array)?.get_ref().as_array()?.iter();
                let tables = elements.filter_map(|element| element.get_ref().as_table());
                let is_named = |table: &&DeTable<'_>| name_key(table, name).is_some();
                let table = tables.into_iter().find(is_named)?;
                key_span(table, self.key).or(key_span(table, name_key(table, name)?))
            }
        }
    }
}

/// The key that gives `table` this name.
fn name_key(table: &DeTable<'_>, name: &str) -> Option<&'static str> {
    let value = |key: &str| table.get(key).map(Spanned::get_ref).and_then(DeValue::as_str);
    ["name", "label"].into_iter().find(|key| value(key) == Some(name))
}

fn key_span(table: &DeTable<'_>, key: &str) -> Option<Range<usize>> {
    table.get_key_value(key).map(|(key, _)| key.span())
}

/// Line of `text`, from 1 on, in which `span` begins.
pub(crate) fn line(text: &str, span: Range<usize>) -> usize {
    let before = &text.as_bytes()[..span.start.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "seed = 1\n[quick]\nduration = 3\n\n[[scenario]]\nname = \"a\"\nrate = 1\n\
                        [[scenario]]\nrate = \"name\"\nname = \"b\"\nsweep = [\n  1,\n]\n\
                        [[published]]\nlabel = \"a\"\n";

    #[test]
    fn a_fault_has_the_line_of_its_key_in_its_own_table() {
        assert_eq!(Fault::scenario("a", "x").at("rate").line(PLAN), 7);
        assert_eq!(Fault::scenario("b", "x").at("rate").line(PLAN), 9);
        assert_eq!(Fault::scenario("b", "x").at("sweep").line(PLAN), 11);
        assert_eq!(Fault::published("a", "x").line(PLAN), 15);
        assert_eq!(Fault::quick("duration", "x").line(PLAN), 3);
    }

    #[test]
    fn a_fault_of_a_key_that_is_not_written_has_the_line_of_its_table() {
        assert_eq!(Fault::scenario("b", "x").at("limit").line(PLAN), 10);
        assert_eq!(Fault::quick("points", "x").line(PLAN), 2);
        assert_eq!(Fault::head("warm_up", "x").line(PLAN), 1);
        assert_eq!(Fault::head("seed", "x").line("seed = "), 1, "the plan is not TOML");
    }
}
