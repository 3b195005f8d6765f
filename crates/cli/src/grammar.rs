//! The grammar of command lines, as in iproute2: keywords in any order, each with its value.
//!
//! Times and sizes are written as for `tc`, but a bare number is no time: `timeout 5` would mean
//! 5 µs there, which nobody expects.

use anyhow::{Context, anyhow, bail, ensure};
use std::net::IpAddr;
use std::time::Duration;

/// The words of a command line, read from left to right.
#[derive(Clone, Debug)]
pub struct Words<'a> {
    rest: &'a [String],
    seen: Vec<&'a str>,
}

impl<'a> Words<'a> {
    /// All of `words`.
    pub fn new(words: &'a [String]) -> Self {
        Words { rest: words, seen: Vec::new() }
    }

    /// The next word, which stays.
    pub fn peek(&self) -> Option<&'a str> {
        self.rest.first().map(String::as_str)
    }

    /// Takes the next word.
    pub fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// Takes the value of `keyword`, which looks like `example`.
    pub fn value(&mut self, keyword: &str, example: &str) -> anyhow::Result<&'a str> {
        self.next().ok_or_else(|| anyhow!("{keyword} lacks its value; write {keyword} {example}"))
    }

    /// Takes the value of a `keyword` that stands once only.
    pub fn only(&mut self, keyword: &'a str, example: &str) -> anyhow::Result<&'a str> {
        if self.seen.contains(&keyword) {
            bail!("{keyword} is given twice; give it once");
        }
        self.seen.push(keyword);
        self.value(keyword, example)
    }
}

/// The error for a word that is none of `known`.
pub fn unknown(word: &str, known: &[&str]) -> anyhow::Error {
    let distance = |one: &str| edits(&word.to_lowercase(), one);
    match known.iter().min_by_key(|one| distance(one)) {
        // A word of which half is wrong is no slip of the hand.
        Some(nearest) if distance(nearest) * 2 <= word.chars().count().max(4) => {
            anyhow!("unknown keyword {word:?}; did you mean {nearest:?}?")
        }
        Some(_) => anyhow!("unknown keyword {word:?}; give one of {}", known.join(", ")),
        None => anyhow!("{word:?} is one word too many; leave it out"),
    }
}

/// Levenshtein's distance: insertions, deletions and substitutions from `a` to `b`.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

/// One of the words that `choices` names.
pub fn choice<T: Copy>(keyword: &str, word: &str, choices: &[(&str, T)]) -> anyhow::Result<T> {
    let found = choices.iter().find(|(name, _)| *name == word);
    let names = || choices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" or ");
    found.map(|(_, value)| *value).with_context(|| format!("{keyword} {word:?}; give {}", names()))
}

/// A number, decimal or hexadecimal (0x…).
pub fn number<T: TryFrom<u64>>(keyword: &str, word: &str) -> anyhow::Result<T> {
    let (digits, radix) = word.strip_prefix("0x").map_or((word, 10), |digits| (digits, 16));
    let digit = |c: char| c.is_digit(radix);
    ensure!(
        !digits.is_empty() && digits.chars().all(digit),
        "{keyword} {word:?} is no number; write it like 3 or 0x3"
    );
    let value = u64::from_str_radix(digits, radix).ok();
    value
        .and_then(|value| T::try_from(value).ok())
        .with_context(|| format!("{keyword} {word} is too large; give a smaller number"))
}

/// A time such as 5ms, 40000us or 0.04s.
pub fn time(keyword: &str, word: &str) -> anyhow::Result<Duration> {
    const UNITS: [(&str, f64); 10] = [
        ("ns", 1e-9),
        ("us", 1e-6),
        ("usec", 1e-6),
        ("usecs", 1e-6),
        ("ms", 1e-3),
        ("msec", 1e-3),
        ("msecs", 1e-3),
        ("s", 1.0),
        ("sec", 1.0),
        ("secs", 1.0),
    ];
    let scaled = scaled(word, &UNITS).or((word == "0").then_some(0.0));
    scaled
        .filter(|seconds| *seconds <= 3600.0)
        // Rounded to whole nanoseconds, as 0.005 is none in binary.
        .map(|seconds| Duration::from_nanos((seconds * 1e9).round() as u64))
        .with_context(|| format!("{keyword} {word:?} is no time; write it like 5ms or 0.04s"))
}

/// A size in bytes such as 1500, 1500b or 1.5k.
pub fn size(keyword: &str, word: &str) -> anyhow::Result<u32> {
    const UNITS: [(&str, f64); 6] =
        [("", 1.0), ("b", 1.0), ("k", 1024.0), ("kb", 1024.0), ("m", 1048576.0), ("mb", 1048576.0)];
    scaled(word, &UNITS)
        .filter(|bytes| *bytes <= f64::from(u32::MAX) && bytes.fract() == 0.0)
        .map(|bytes| bytes as u32)
        .with_context(|| format!("{keyword} {word:?} is no size; write it like 1500 or 1.5k"))
}

/// `word` as a number in front of one of `units`. No sign, no exponent.
fn scaled(word: &str, units: &[(&str, f64)]) -> Option<f64> {
    let digits = word.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (number, unit) = word.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name))?;
    Some(number.parse::<f64>().ok()? * factor)
}

/// A range of numbers such as 5004 or 5004-5100.
pub fn range(keyword: &str, word: &str) -> anyhow::Result<std::ops::RangeInclusive<u16>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let (first, last) = (number(keyword, first)?, number(keyword, last)?);
    if first > last {
        bail!("{keyword} {word} is empty; write {keyword} {last}-{first}");
    }
    Ok(first..=last)
}

/// An address.
pub fn address(keyword: &str, word: &str) -> anyhow::Result<IpAddr> {
    word.parse().map_err(|_| anyhow!("{keyword} {word:?} is no IP address; write it like 10.0.0.2"))
}

pub use sheaf_daemon::prefix::Prefix;

/// The names of DSCP values: RFC 2474 (cs), 2597 (af), 3246 (ef), 5865 (va), 8622 (le).
pub fn dscp(keyword: &str, word: &str) -> anyhow::Result<u8> {
    let lower = word.to_lowercase();
    let digit = |at: usize| lower.as_bytes().get(at).map(|byte| byte.wrapping_sub(b'0'));
    let named = match (lower.as_str(), lower.len()) {
        ("be" | "default", _) => Some(0),
        ("le", _) => Some(1),
        ("va", _) => Some(44),
        ("ef", _) => Some(46),
        (name, 3) if name.starts_with("cs") => digit(2).filter(|class| *class < 8).map(|c| c * 8),
        (name, 4) if name.starts_with("af") => match (digit(2), digit(3)) {
            (Some(class @ 1..=4), Some(drop @ 1..=3)) => Some(class * 8 + drop * 2),
            _ => None,
        },
        _ => number(keyword, word).ok(),
    };
    named
        .filter(|dscp| *dscp < 64)
        .with_context(|| format!("{keyword} {word:?} is no class; give 0 to 63, or a name like ef"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_for_tc() {
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
            assert_eq!(time("timeout", word).unwrap(), Duration::from_nanos(nanos), "{word}");
        }
        for word in ["5", "", "ms", "-5ms", "5 ms", "1e3ms", "1.2.3ms", "9999s", "infs", "nanms"] {
            assert!(time("timeout", word).is_err(), "{word}");
        }
    }

    #[test]
    fn sizes_are_written_as_for_tc() {
        for (word, bytes) in
            [("1500", 1500), ("1.5k", 1536), ("2kb", 2048), ("100b", 100), ("1M", 1 << 20)]
        {
            assert_eq!(size("max", word).unwrap(), bytes, "{word}");
        }
        for word in ["", "k", "1.5", "-1", "4096gb", "1e3", "99999m"] {
            assert!(size("max", word).is_err(), "{word}");
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
            assert_eq!(dscp("dscp", word).unwrap(), value, "{word}");
        }
        for word in ["64", "cs8", "af14", "af51", "af", "cs", "voice", ""] {
            assert!(dscp("dscp", word).is_err(), "{word}");
        }
    }

    #[test]
    fn ranges_numbers_and_prefixes_are_checked() {
        assert_eq!(range("dport", "5004-5005").unwrap(), 5004..=5005);
        assert_eq!(range("dport", "53").unwrap(), 53..=53);
        assert!(range("dport", "9-3").unwrap_err().to_string().contains("dport 3-9"));
        assert!(range("dport", "70000").is_err());
        assert_eq!(number::<u32>("mark", "0xff").unwrap(), 255);
        let prefix = Prefix::parse("via", "10.1.0.0/16").unwrap();
        assert_eq!(Prefix::around("10.1.200.3".parse().unwrap(), 16), prefix);
        assert_ne!(Prefix::around("10.2.0.1".parse().unwrap(), 16), prefix);
        let all = Prefix::parse("via", "2001:db8::1/0").unwrap();
        assert_eq!(all.to_string(), "::/0");
        assert!(Prefix::parse("via", "10.0.0.0/33").is_err());
    }

    #[test]
    fn an_unknown_word_is_answered_with_the_nearest_known_one() {
        let known = ["timeout", "hold", "policy", "peer"];
        for (word, nearest) in [("timout", "timeout"), ("per", "peer"), ("polcy", "policy")] {
            let error = unknown(word, &known).to_string();
            assert_eq!(error, format!("unknown keyword {word:?}; did you mean {nearest:?}?"));
        }
    }
}
