//! Rates, times and shares as tc and trace files write them.

use sheaf_stage::{Bitrate, Duration};

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
        for wrong in ["", "-1", "1x", "nan", "inf", "1e3", "ms", "1.2.3"] {
            assert_eq!(rate(wrong), None, "{wrong}");
            assert_eq!(time(wrong, Duration::from_micros(1)), None, "{wrong}");
            assert_eq!(percent(wrong), None, "{wrong}");
        }
    }
}
