//! Loss by a given pattern: which packets are lost, by their place among those that arrive.

use crate::trace::MOST;
use std::fmt::Write;
use thiserror::Error;

/// Packets that are lost, by number from 1 in the order in which they arrive, whether or not the
/// rate queue has room for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossPattern {
    /// First and last of each range, in order, with others between them.
    ranges: Vec<(u64, u64)>,
    /// Packets after which the pattern begins again.
    period: Option<u64>,
}

/// Error in a pattern.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LossPatternError {
    /// A word that is neither a number from 1 nor a range of them.
    #[error("\"{0}\" is not a packet's number from 1, or a range like 100-110")]
    Word(String),
    /// No number at all.
    #[error("a pattern without numbers loses nothing")]
    Empty,
    /// A number that the pattern never reaches.
    #[error("packet {last} is beyond the {period} packets after which the pattern begins again")]
    Beyond {
        /// The number.
        last: u64,
        /// The period, in packets.
        period: u64,
    },
    /// More than can be kept.
    #[error("more than {MOST} ranges")]
    TooMany,
}

/// Longer than this a pattern's text is left out of a link's words, in bytes.
const SHOWN: usize = 60;

impl LossPattern {
    /// Reads numbers and ranges between commas or white space, such as `3,7,100-110`, in any order;
    /// `#` begins a comment. With a `period` the pattern begins again after so many packets.
    pub fn parse(text: &str, period: Option<u64>) -> Result<Self, LossPatternError> {
        let mut ranges = Vec::new();
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let is_between = |c: char| c == ',' || c.is_whitespace();
        for word in lines.flat_map(|line| line.split(is_between)).filter(|word| !word.is_empty()) {
            let range = range(word).ok_or_else(|| LossPatternError::Word(word.to_owned()))?;
            if ranges.len() == MOST {
                return Err(LossPatternError::TooMany);
            }
            ranges.push(range);
        }
        ranges.sort_unstable();
        ranges.dedup_by(|next, range| {
            let joins = next.0 <= range.1.saturating_add(1);
            range.1 = if joins { range.1.max(next.1) } else { range.1 };
            joins
        });
        let last = ranges.last().ok_or(LossPatternError::Empty)?.1;
        match period {
            Some(period) if last > period => Err(LossPatternError::Beyond { last, period }),
            _ => Ok(LossPattern { ranges, period }),
        }
    }

    /// Whether the packet that arrives as number `number`, from 1, is lost.
    pub(crate) fn loses(&self, number: u64) -> bool {
        let number = self.period.map_or(number, |period| (number - 1) % period + 1);
        let behind = self.ranges.partition_point(|(first, _)| *first <= number);
        behind.checked_sub(1).is_some_and(|index| self.ranges[index].1 >= number)
    }

    /// The words that make it, or FILE in place of a long list.
    pub(crate) fn words(&self) -> String {
        let mut text = String::new();
        for (first, last) in &self.ranges {
            let comma = if text.is_empty() { "" } else { "," };
            let _ = match first == last {
                true => write!(text, "{comma}{first}"),
                false => write!(text, "{comma}{first}-{last}"),
            };
            if text.len() > SHOWN {
                "FILE".clone_into(&mut text);
                break;
            }
        }
        if let Some(period) = self.period {
            let _ = write!(text, " {period}");
        }
        text
    }
}

/// Reads `7` or `100-110`.
fn range(word: &str) -> Option<(u64, u64)> {
    let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let range: (u64, u64) = (number(first)?, number(last)?);
    (range.0 <= range.1).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(text: &str, period: Option<u64>, of: u64) -> Vec<u64> {
        let pattern = LossPattern::parse(text, period).unwrap();
        (1..=of).filter(|number| pattern.loses(*number)).collect()
    }

    #[test]
    fn the_packets_that_are_named_are_lost_and_no_others() {
        assert_eq!(lost("3,7,10-12", None, 30), [3, 7, 10, 11, 12]);
        assert_eq!(
            lost("# of a recording\n7 3\n10-11\n11-12, 9-9", None, 30),
            [3, 7, 9, 10, 11, 12]
        );
        assert_eq!(lost("1,4-5", Some(5), 12), [1, 4, 5, 6, 9, 10, 11]);
        assert_eq!(lost("1", Some(1), 4), [1, 2, 3, 4]);
        assert_eq!(lost("2-18446744073709551615", None, 4), [2, 3, 4]);
    }

    #[test]
    fn a_pattern_is_shown_in_the_words_that_made_it() {
        let words = |text, period| LossPattern::parse(text, period).unwrap().words();
        assert_eq!(words("7,3,4-5", Some(100)), "3-5,7 100");
        let long: Vec<_> = (1..100).map(|n| (n * 2).to_string()).collect();
        assert_eq!(words(&long.join(","), None), "FILE");
    }

    #[test]
    fn what_is_not_a_pattern_is_refused() {
        let wrong = |text, period| LossPattern::parse(text, period).unwrap_err();
        for word in ["0", "x", "5-3", "1-", "-3", "1-2-3", "0011x"] {
            assert_eq!(wrong(word, None), LossPatternError::Word(word.to_owned()));
        }
        assert_eq!(wrong(" # none\n,", None), LossPatternError::Empty);
        let (last, period) = (9, 8);
        assert_eq!(wrong("9", Some(8)), LossPatternError::Beyond { last, period });
    }
}
