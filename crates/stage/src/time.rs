//! Time of stages: nanoseconds since the start of an abstract clock.
//!
//! Durations are the standard library's. The instant is our own because `std::time::Instant`
//! can only be made by reading the machine's clock, which a stage must never do.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

pub use core::time::Duration;

/// Nanoseconds of a second.
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A point on an abstract monotonic clock, in nanoseconds from its start.
///
/// The clock is CLOCK_MONOTONIC behind real interfaces and the simulator's under virtual time.
/// The range, 584 years, is never exceeded; arithmetic saturates.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The start of the clock.
    pub const ZERO: Instant = Instant(0);
    /// The end of time: later than any deadline.
    pub const MAX: Instant = Instant(u64::MAX);

    /// The instant `nanos` ns after the start of the clock.
    pub const fn from_nanos(nanos: u64) -> Self {
        Instant(nanos)
    }

    /// The instant `micros` µs after the start of the clock.
    pub const fn from_micros(micros: u64) -> Self {
        Instant(micros * 1_000)
    }

    /// The instant `millis` ms after the start of the clock.
    pub const fn from_millis(millis: u64) -> Self {
        Instant(millis * 1_000_000)
    }

    /// Nanoseconds since the start of the clock.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the start of the clock.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-9
    }

    /// The time from `earlier` to `self`; zero when `earlier` is later.
    pub const fn saturating_since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, rhs: Duration) -> Instant {
        Instant(self.0.saturating_add(nanos(rhs)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, rhs: Duration) -> Instant {
        Instant(self.0.saturating_sub(nanos(rhs)))
    }
}

impl Sub for Instant {
    type Output = Duration;
    /// The time between two instants; zero when `rhs` is later.
    fn sub(self, rhs: Instant) -> Duration {
        self.saturating_since(rhs)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// A duration in whole nanoseconds, saturated to the range of an [`Instant`].
fn nanos(duration: Duration) -> u64 {
    // `Duration::as_nanos` counts in 128 bits, which every step of a simulation would pay for.
    let seconds = duration.as_secs().saturating_mul(NANOS_PER_SECOND);
    seconds.saturating_add(u64::from(duration.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_saturate_instead_of_wrapping() {
        assert_eq!(Instant::MAX + Duration::from_secs(1), Instant::MAX);
        assert_eq!(Instant::ZERO - Duration::from_secs(1), Instant::ZERO);
        assert_eq!(Instant::ZERO - Instant::from_nanos(5), Duration::ZERO);
        assert_eq!(Instant::from_nanos(1) + Duration::MAX, Instant::MAX);
        assert_eq!(Instant::MAX - Duration::MAX, Instant::ZERO);
    }

    #[test]
    fn a_duration_counts_to_its_last_nanosecond() {
        // The longest duration that an instant can hold, and one more.
        let longest = Duration::from_nanos(u64::MAX);
        assert_eq!(Instant::ZERO + longest, Instant::MAX);
        assert_eq!(Instant::MAX - longest, Instant::ZERO);
        assert_eq!(Instant::MAX - (longest - Duration::from_nanos(1)), Instant::from_nanos(1));
        assert_eq!(Instant::ZERO + (longest + Duration::from_nanos(1)), Instant::MAX);
        let mixed = Duration::new(3, 999_999_999);
        assert_eq!(Instant::from_nanos(2) + mixed, Instant::from_nanos(4_000_000_001));
    }
}
