//! Bit rates, and the exact time that bytes take at them.

use crate::Duration;
use core::fmt;

/// Nanoseconds of a byte at 1 bit/s.
const BYTE: u64 = 8 * 1_000_000_000;

/// A bit rate in bit/s (SI: 1 Mbit/s is 10⁶ bit/s, as in `tc`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bitrate(u64);

impl Bitrate {
    /// `bps` bits per second. A rate of zero carries nothing: [`Bitrate::time_for`] is `MAX`.
    pub const fn from_bps(bps: u64) -> Self {
        Bitrate(bps)
    }

    /// `kbps` · 10³ bit/s.
    pub const fn from_kbps(kbps: u64) -> Self {
        Bitrate(kbps * 1_000)
    }

    /// `mbps` · 10⁶ bit/s.
    pub const fn from_mbps(mbps: u64) -> Self {
        Bitrate(mbps * 1_000_000)
    }

    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// The time that `bytes` bytes take at this rate, rounded up to a whole nanosecond.
    pub fn time_for(self, bytes: u64) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        // Up to 2.3 GB 64 bits are enough; a division of 128 takes several times as long.
        let nanos = match bytes.checked_mul(BYTE) {
            Some(product) => product.div_ceil(self.0),
            None => {
                let nanos = (u128::from(bytes) * u128::from(BYTE)).div_ceil(u128::from(self.0));
                u64::try_from(nanos).unwrap_or(u64::MAX)
            }
        };
        Duration::from_nanos(nanos)
    }
}

impl fmt::Debug for Bitrate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Bitrate {
    /// As `tc` prints it: the largest unit that leaves a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            r if r >= 1_000_000_000 && r % 1_000_000_000 == 0 => {
                write!(f, "{}Gbit", r / 1_000_000_000)
            }
            r if r >= 1_000_000 && r % 1_000_000 == 0 => write!(f, "{}Mbit", r / 1_000_000),
            r if r >= 1_000 && r % 1_000 == 0 => write!(f, "{}Kbit", r / 1_000),
            r => write!(f, "{r}bit"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_for_bytes_is_exact_and_rounds_up() {
        assert_eq!(Bitrate::from_mbps(11).time_for(11), Duration::from_nanos(8_000));
        assert_eq!(Bitrate::from_bps(3).time_for(1), Duration::from_nanos(2_666_666_667));
        assert_eq!(Bitrate::from_bps(0).time_for(1), Duration::MAX);
        // The most bytes that 64 bits hold in nanoseconds at 1 bit/s, and one more.
        let most = u64::MAX / BYTE;
        let rate = Bitrate::from_bps(1_000_000_007);
        assert_eq!(rate.time_for(most), Duration::from_nanos(18_446_743_943));
        assert_eq!(rate.time_for(most + 1), Duration::from_nanos(18_446_743_951));
        assert_eq!(Bitrate::from_bps(1).time_for(most + 1), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn rates_print_as_tc_prints_them() {
        assert_eq!(Bitrate::from_mbps(2).to_string(), "2Mbit");
        assert_eq!(Bitrate::from_kbps(5_500).to_string(), "5500Kbit");
        assert_eq!(Bitrate::from_bps(64_001).to_string(), "64001bit");
    }
}
