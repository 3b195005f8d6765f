//! Values: how each kind is read, and the error for one that cannot be.

use super::near;
use super::table::{Done, Part, Set, Value};
use anyhow::Context;
use sheaf_emulator::units;
use sheaf_stage::Bitrate;
use sheaf_wire::dscp;
use sheaf_wire::prefix::{self, Prefix};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The longest time on a command line: a longer one is a slip of the hand.
const LONGEST: Duration = Duration::from_secs(3600);

impl<S> Part<S> {
    /// Whether `word` is such a value.
    pub(super) fn accepts(&self, word: &str) -> bool {
        match &self.value {
            Value::Literal(_) => word == self.name,
            Value::Choice(choices) => choices.iter().any(|(name, _)| *name == word),
            Value::Time(_) => time(word).is_some(),
            Value::Rate(_) => rate(word).is_some(),
            Value::Size(_) => size(word).is_some(),
            Value::Number(range, _) => number(word).is_some_and(|n| range.contains(&n)),
            Value::Signed(_) => word.parse::<i32>().is_ok(),
            Value::Percent(_) => units::percent(word).is_some(),
            Value::Chance(_) => units::chance(word).is_some(),
            Value::Address(_) => word.parse::<IpAddr>().is_ok(),
            Value::Prefixes(_) => prefixes(word).is_some(),
            Value::Ports(_) => ports(word).is_some(),
            Value::Class(_) => class(word).is_some(),
            Value::Classes(_) => units::classes(word).is_some(),
            Value::Mark(_) => mark(word).is_some(),
            // A flag that stands too early is not taken for an interface.
            Value::Interface(_) => !word.starts_with('-'),
            Value::File(_) | Value::Text(_) => true,
            Value::Like(accepts, _) => accepts(word),
        }
    }

    /// Stores `word`, which this part accepts.
    pub(super) fn store(&self, state: &mut S, word: &str) -> Done {
        // Every arm reads what `accepts` has read before; where it cannot, nothing is stored.
        fn set<S, T>(state: &mut S, read: Option<T>, set: &Set<S, T>) -> Done {
            read.map_or(Ok(()), |value| set(state, value))
        }
        match &self.value {
            Value::Literal(store) => store(state),
            Value::Choice(choices) => {
                let choice = choices.iter().find(|(name, _)| *name == word);
                choice.map_or(Ok(()), |(_, store)| store(state))
            }
            Value::Time(store) => set(state, time(word), store),
            Value::Rate(store) => set(state, rate(word), store),
            Value::Size(store) => set(state, size(word), store),
            Value::Number(_, store) => set(state, number(word), store),
            Value::Signed(store) => set(state, word.parse().ok(), store),
            Value::Percent(store) => set(state, units::percent(word), store),
            Value::Chance(store) => set(state, units::chance(word), store),
            Value::Address(store) => set(state, word.parse().ok(), store),
            Value::Prefixes(store) => set(state, prefixes(word), store),
            Value::Ports(store) => set(state, ports(word), store),
            Value::Class(store) => set(state, class(word), store),
            Value::Classes(store) => set(state, units::classes(word), store),
            Value::Mark(store) => set(state, mark(word), store),
            Value::Interface(store) | Value::File(store) | Value::Text(store) => store(state, word),
            Value::Like(_, store) => store(state, word),
        }
    }

    /// Whether `word` is a number that only lacks the unit.
    pub(super) fn lacks_unit(&self, word: &str) -> bool {
        let bare =
            word.parse::<f64>().is_ok() && word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        bare && matches!(self.value, Value::Time(_) | Value::Rate(_)) && !self.accepts(word)
    }

    /// The error for a `word` behind `keyword` that this part does not accept.
    pub(super) fn refuse(&self, keyword: &str, word: &str) -> String {
        let kind = match &self.value {
            Value::Time(_) if self.lacks_unit(word) => {
                return format!("{keyword} {word} has no unit; write {word}ms or {word}us");
            }
            Value::Rate(_) if self.lacks_unit(word) => {
                return format!("{keyword} {word} has no unit; write {word}mbit or {word}kbit");
            }
            Value::Number(range, _) => match number(word) {
                // Where no most stands in the manual, none is printed.
                Some(n) if *range.end() >= u64::from(u32::MAX) => {
                    return if n < *range.start() {
                        format!("{keyword} {word} is too small; give {} or more", range.start())
                    } else {
                        format!("{keyword} {word} is too large; give a smaller number")
                    };
                }
                Some(_) => {
                    let (least, most) = (range.start(), range.end());
                    return format!("{keyword} {word} is out of range; give {least} to {most}");
                }
                None if !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit()) => {
                    return format!("{keyword} {word} is too large; give a smaller number");
                }
                None => "a number",
            },
            Value::Ports(_) => match word.split_once('-').map(|(a, b)| (number(a), number(b))) {
                Some((Some(first), Some(last))) if first > last => {
                    return format!("{keyword} {word} is empty; write {keyword} {last}-{first}");
                }
                _ => "a port or a range of ports",
            },
            Value::Literal(_) => {
                return format!("{keyword} {word:?} is unknown; give {}", self.name);
            }
            Value::Choice(choices) => {
                let names = near::either(choices.iter().map(|(name, _)| *name));
                return format!("{keyword} {word:?} is unknown; give {names}");
            }
            Value::Time(_) if leading_time(word) => "a time of at most an hour",
            Value::Time(_) => "a time",
            Value::Rate(_) => "a rate",
            Value::Size(_) => "a size in bytes",
            Value::Signed(_) => "a number",
            Value::Percent(_) => "a percentage",
            Value::Chance(_) => "a chance",
            Value::Address(_) => "an IP address",
            Value::Prefixes(_) => "a list of prefixes",
            Value::Class(_) | Value::Classes(_) => "a class",
            Value::Mark(_) => "a mark",
            Value::Interface(_) => "an interface",
            Value::File(_) => "a file",
            Value::Text(_) | Value::Like(..) => {
                return format!(
                    "{keyword} {word:?} is not {}; write it like {}",
                    self.name, self.example
                );
            }
        };
        format!("{keyword} {word:?} is not {kind}; write it like {}", self.example)
    }
}

/// A number, decimal or hexadecimal.
pub fn number(word: &str) -> Option<u64> {
    let (digits, radix) = word.strip_prefix("0x").map_or((word, 10), |digits| (digits, 16));
    let plain = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    u64::from_str_radix(digits, radix).ok().filter(|_| plain)
}

/// A time such as 5ms. A bare number is microseconds for `tc`, which nobody expects.
pub fn time(word: &str) -> Option<Duration> {
    let named = word == "0" || word.ends_with(|last: char| last.is_ascii_alphabetic());
    let time = units::time(word, Duration::ZERO).filter(|_| named && !word.contains(' '))?;
    (time <= LONGEST).then_some(time)
}

/// Whether `word` is a time, however long.
fn leading_time(word: &str) -> bool {
    word.ends_with('s') && units::time(word, Duration::ZERO).is_some()
}

/// A rate such as 20mbit. A bare number is bits a second for `tc`, which nobody expects.
fn rate(word: &str) -> Option<Bitrate> {
    let named = word == "0" || word.ends_with(|last: char| last.is_ascii_alphabetic());
    units::rate(word).filter(|_| named)
}

/// A whole number of bytes such as 1500 or 1.5k.
fn size(word: &str) -> Option<u64> {
    let bytes = units::size(word)?;
    // 1.4k is not a whole number of bytes; `units` rounds.
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let fraction = digits.contains('.') && {
        let kilo = units::size(&format!("1{}", &word[digits.len()..]))?;
        (digits.parse::<f64>().ok()? * kilo as f64).fract() != 0.0
    };
    (!fraction).then_some(bytes)
}

fn prefixes(word: &str) -> Option<Vec<Prefix>> {
    word.split(',').map(|prefix| prefix::parse(prefix).ok()).collect()
}

/// A port, or the first and the last of a range.
pub fn ports(word: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let port = |word| number(word).and_then(|port| u16::try_from(port).ok());
    let (first, last) = (port(first)?, port(last)?);
    (first <= last).then_some(first..=last)
}

/// `VALUE[/MASK]`.
fn mark(word: &str) -> Option<(u32, u32)> {
    let (value, mask) = word.split_once('/').unwrap_or((word, "0xffffffff"));
    let bits = |word| number(word).and_then(|bits| u32::try_from(bits).ok());
    Some((bits(value)?, bits(mask)?))
}

/// A class by its number or name.
pub fn class(word: &str) -> Option<u8> {
    let number = || number(word).and_then(|number| u8::try_from(number).ok());
    dscp::named(word).or_else(number).filter(|class| *class <= dscp::MAX)
}

/// One of the words that `choices` names.
pub fn choice<T: Copy>(keyword: &str, word: &str, choices: &[(&str, T)]) -> anyhow::Result<T> {
    let found = choices.iter().find(|(name, _)| *name == word);
    let names = || near::either(choices.iter().map(|(name, _)| *name));
    let unknown = || format!("{keyword} {word:?} is unknown; give {}", names());
    found.map(|(_, value)| *value).with_context(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_for_tc_with_their_unit() {
        for (word, nanos) in [
            ("5ms", 5_000_000),
            ("40000us", 40_000_000),
            ("0.04s", 40_000_000),
            ("0.005s", 5_000_000),
            ("12msecs", 12_000_000),
            ("1sec", 1_000_000_000),
            ("250ns", 250),
            ("0", 0),
        ] {
            assert_eq!(time(word), Some(Duration::from_nanos(nanos)), "{word}");
        }
        for word in ["5", "", "ms", "-5ms", "5 ms", "1e3ms", "1.2.3ms", "9999s", "infs", "nanms"] {
            assert_eq!(time(word), None, "{word}");
        }
    }

    #[test]
    fn sizes_are_written_as_for_tc() {
        for (word, bytes) in
            [("1500", 1500), ("1.5k", 1536), ("2kb", 2048), ("100b", 100), ("1M", 1 << 20)]
        {
            assert_eq!(size(word), Some(bytes), "{word}");
        }
        for word in ["", "k", "1.5", "1.4k", "-1", "4096gb", "1e3", "99999999m"] {
            assert_eq!(size(word), None, "{word}");
        }
    }

    #[test]
    fn classes_have_names_and_numbers() {
        for (word, value) in [
            ("ef", 46),
            ("EF", 46),
            ("cs0", 0),
            ("cs7", 56),
            ("af11", 10),
            ("af43", 38),
            ("0x2e", 46),
            ("63", 63),
            ("be", 0),
        ] {
            assert_eq!(class(word), Some(value), "{word}");
        }
        for word in ["64", "cs8", "af14", "af51", "af", "cs", "voice", ""] {
            assert_eq!(class(word), None, "{word}");
        }
    }

    #[test]
    fn ranges_numbers_and_marks_are_checked() {
        assert_eq!(ports("5004-5005"), Some(5004..=5005));
        assert_eq!(ports("53"), Some(53..=53));
        assert_eq!((ports("9-3"), ports("70000")), (None, None));
        assert_eq!((number("0xff"), number("0x"), number("1-")), (Some(255), None, None));
        assert_eq!(mark("3/0x3"), Some((3, 3)));
        assert_eq!(mark("0x10"), Some((16, u32::MAX)));
        assert_eq!(rate("20mbit"), Some(Bitrate::from_mbps(20)));
        assert_eq!((rate("20"), rate("0")), (None, Some(Bitrate::from_bps(0))));
    }

    #[test]
    fn an_empty_range_is_turned_round() {
        let part = super::super::table::part("A[-B]", "53", Value::<()>::Ports(|_, _| Ok(())));
        assert_eq!(part.refuse("dport", "9-3"), "dport 9-3 is empty; write dport 3-9");
    }
}
