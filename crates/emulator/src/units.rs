//! Rates, times and shares as tc and trace files write them.

use sheaf_stage::{Bitrate, Duration};
use sheaf_wire::dscp;

/// A rate: a number and one of `bit` (also nothing), `kbit`, `mbit`, `gbit`, `bps` (bytes per
/// second), `kbps`, `mbps`, `gbps`; SI, not case-sensitive, as in tc(8).
pub fn rate(text: &str) -> Option<Bitrate> {
    let (number, unit) = split(text)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "bit" => 1.0,
        "kbit" => 1e3,
        "mbit" => 1e6,
        "gbit" => 1e9,
        "bps" => 8.0,
        "kbps" => 8e3,
        "mbps" => 8e6,
        "gbps" => 8e9,
        _ => return None,
    };
    let bps = (number * factor).round();
    (bps <= 1e15).then(|| Bitrate::from_bps(bps as u64))
}

/// A time: a number and one of `s`, `ms`, `us`, `ns`; a bare number is in `bare`.
pub fn time(text: &str, bare: Duration) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" => bare.as_nanos() as f64,
        "s" | "sec" | "secs" => 1e9,
        "ms" | "msec" | "msecs" => 1e6,
        "us" | "usec" | "usecs" => 1e3,
        "ns" | "nsec" | "nsecs" => 1.0,
        _ => return None,
    };
    let nanos = (number * factor).round();
    (nanos <= 1e18).then(|| Duration::from_nanos(nanos as u64))
}

/// Bytes: a number and one of nothing or `b`, `k` or `kb` (1024), `m` or `mb` (1024²), `kbit`
/// (1000/8), `mbit`, as in tc(8).
pub fn size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1024.0,
        "m" | "mb" => 1024.0 * 1024.0,
        "kbit" => 125.0,
        "mbit" => 125_000.0,
        _ => return None,
    };
    let bytes = (number * factor).round();
    (bytes <= 1e12).then_some(bytes as u64)
}

/// A chance: a number from 0 to 1, or a percentage with its sign.
pub fn chance(text: &str) -> Option<f64> {
    match text.strip_suffix('%') {
        Some(_) => percent(text),
        None => number(text).filter(|chance| *chance <= 1.0),
    }
}

/// Classes, separated by commas: DSCP 0 to 63, ranges such as 8-15, or names: `be`, `le`, `va`,
/// `ef`, `cs0` to `cs7`, `af11` to `af43` (RFC 2474, 2597, 3246, 5865, 8622).
pub fn classes(text: &str) -> Option<Vec<u8>> {
    let mut classes = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            Some((first, last)) => classes.extend(class(first)?..=class(last)?),
            None => classes.push(class(part)?),
        }
    }
    Some(classes)
}

fn class(text: &str) -> Option<u8> {
    dscp::named(text).or_else(|| text.parse().ok()).filter(|class| *class <= dscp::MAX)
}

/// A share: a percentage, with or without its sign; 0..=1 comes out.
pub fn percent(text: &str) -> Option<f64> {
    let number = number(text.strip_suffix('%').unwrap_or(text))?;
    (number <= 100.0).then_some(number / 100.0)
}

/// A number that is finite and not negative.
fn number(text: &str) -> Option<f64> {
    let digits = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.parse().ok().filter(|n: &f64| digits && n.is_finite())
}

fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    Some((number(digits)?, unit))
}

/// The text of a rate: the largest unit in which it is a whole number.
pub fn rate_text(rate: Bitrate) -> String {
    let bps = rate.as_bps();
    let units = [(1_000_000_000, "gbit"), (1_000_000, "mbit"), (1000, "kbit")];
    let fits = |(unit, _): &(u64, &str)| bps > 0 && bps.is_multiple_of(*unit);
    match units.into_iter().find(fits) {
        Some((unit, name)) => format!("{}{name}", bps / unit),
        None => format!("{bps}bit"),
    }
}

/// The text of a time: the largest unit, up to seconds, in which it is a whole number.
pub fn time_text(time: Duration) -> String {
    let nanos = time.as_nanos();
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")];
    match units.into_iter().find(|(unit, _)| nanos > 0 && nanos.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", nanos / unit),
        None => format!("{nanos}ns"),
    }
}

/// The text of a share of 1: a percentage, without the rounding of binary fractions.
pub fn percent_text(share: f64) -> String {
    let rounded = format!("{:.6}", share * 100.0);
    format!("{}%", rounded.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_of_tc() {
        assert_eq!(rate("1.5Mbit"), Some(Bitrate::from_kbps(1500)));
        assert_eq!(rate("10kbps"), Some(Bitrate::from_kbps(80)));
        assert_eq!(time("2.5ms", Duration::from_micros(1)), Some(Duration::from_micros(2500)));
        assert_eq!(time("7", Duration::from_micros(1)), Some(Duration::from_micros(7)));
        assert_eq!(percent("0.5%"), Some(0.005));
        assert_eq!(size("1.5k"), Some(1536));
        assert_eq!((size("400kB"), size("8kbit")), (Some(409_600), Some(1000)));
        assert_eq!((chance("0.02"), chance("2%"), chance("2")), (Some(0.02), Some(0.02), None));
        assert_eq!(classes("ef,af41,8-10,cs7"), Some(vec![46, 34, 8, 9, 10, 56]));
        for wrong in ["", "64", "ef,", "af44", "cs8", "-", "1-x"] {
            assert_eq!(classes(wrong), None, "{wrong}");
        }
        for wrong in ["", "-1", "1x", "nan", "inf", "1e3", "ms", "1.2.3"] {
            assert_eq!(rate(wrong), None, "{wrong}");
            assert_eq!(time(wrong, Duration::from_micros(1)), None, "{wrong}");
            assert_eq!(percent(wrong), None, "{wrong}");
        }
    }
}
