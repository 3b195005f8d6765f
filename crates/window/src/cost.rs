//! Rates as whole numbers: the time of a byte, as the eBPF program has no fractions (`maps.h`).

use sheaf_stage::Duration;

/// Fraction of ns in the time of a byte, as a power of two.
const SHIFT: u32 = 16;

/// Time of a byte at `rate` bit/s, 2⁻¹⁶ ns; at least 1. From 123 kbit/s on.
pub fn of(rate: f64) -> u32 {
    // A cast from f64 saturates.
    ((8e9 * f64::from(1 << SHIFT) / rate.max(1.0)) as u32).max(1)
}

/// Time of so many `bytes`.
pub(crate) fn time(bytes: u32, cost: u32) -> Duration {
    Duration::from_nanos((u64::from(bytes) * u64::from(cost)) >> SHIFT)
}

/// Bytes that `time` is enough for, where `cost` is not 0 and the time at most that of 2³² bytes.
pub(crate) fn bytes(time: Duration, cost: u32) -> u32 {
    (((time.as_nanos() as u64) << SHIFT) / u64::from(cost)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_span_links_from_a_modem_to_any_interface() {
        assert_eq!(of(8e9), 1 << SHIFT, "a byte takes a nanosecond");
        assert_eq!(of(1e15), 1, "0 would be no clock");
        assert_eq!(of(0.0), u32::MAX);
    }
}
