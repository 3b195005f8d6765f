//! What follows `match` on a command line: which packets are meant.

use crate::grammar::{self, Words};
use anyhow::Context;
use sheaf_aggregate::Rule;
use sheaf_wire::ip::Protocol;

/// The words of a command that end a rule, and those that may stand in it.
#[derive(Clone, Copy, Debug)]
pub struct Vocabulary<'a> {
    /// The command's own keywords.
    pub keywords: &'a [&'a str],
    /// Criteria.
    pub criteria: &'a [&'a str],
}

impl Vocabulary<'_> {
    /// Reads criteria up to the next keyword of the command; `None` when there are none. `other`
    /// reads those that only this command has, and answers whether the word is one.
    pub fn read<'w>(
        self,
        words: &mut Words<'w>,
        mut other: impl FnMut(&mut Rule, &'w str, &mut Words<'w>) -> anyhow::Result<bool>,
    ) -> anyhow::Result<Option<Rule>> {
        let mut rule = Rule { protocol: None, max_len: u16::MAX, ..Rule::default() };
        let mut any = false;
        while let Some(word) = words.peek().filter(|word| !self.keywords.contains(word)) {
            words.next();
            match word {
                "dscp" => rule.dscp = Some(grammar::dscp(word, words.value(word, "ef")?)?),
                "sport" => rule.source_ports = ports(word, words)?,
                "dport" => rule.destination_ports = ports(word, words)?,
                "length" => rule.max_len = grammar::number(word, words.value(word, "256")?)?,
                word if other(&mut rule, word, words)? => {}
                word => {
                    return Err(grammar::unknown(word, &[self.criteria, self.keywords].concat()));
                }
            }
            any = true;
        }
        Ok(any.then_some(rule))
    }
}

fn ports(keyword: &str, words: &mut Words<'_>) -> anyhow::Result<std::ops::RangeInclusive<u16>> {
    grammar::range(keyword, words.value(keyword, "5004-5100")?)
}

/// A protocol by one of `names`, or by its number.
pub fn protocol(word: &str, names: &[(&str, u8)]) -> anyhow::Result<Protocol> {
    let named = names.iter().find(|(name, _)| *name == word).map(|(_, number)| *number);
    let number = named.or_else(|| grammar::number("proto", word).ok());
    number
        .map(Protocol)
        .with_context(|| format!("proto {word:?} is unknown; give udp, tcp or a number"))
}
