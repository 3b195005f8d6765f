//! Round-trip times and the retransmission timeout (RFC 6298, as Linux computes it).
//!
//! The timeout is the smoothed round trip plus four times its variation, where the latter is the
//! largest of the last round trips and at least 200 ms: so the timeout is never below 200 ms plus
//! the round trip. A round trip that is shorter than expected raises the variation by an eighth of
//! what a longer one does.

use sheaf_stage::{Duration, Instant};

/// Linux's least variation (TCP_RTO_MIN), and so the least of the timeout.
pub(crate) const RTO_MIN: Duration = Duration::from_millis(200);
/// Timeout while no round trip was measured (RFC 6298, section 2.1).
pub(crate) const RTO_INITIAL: Duration = Duration::from_secs(1);
/// Linux's TCP_RTO_MAX.
pub(crate) const RTO_MAX: Duration = Duration::from_secs(120);
/// Time after which a least round trip is forgotten: Linux's tcp_min_rtt_wlen.
const LEAST_LASTS: Duration = Duration::from_secs(300);

/// Estimate of the round trip. Times in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct RoundTrip {
    smoothed: i64,
    /// Four times the mean deviation.
    deviation: i64,
    /// The largest deviation of this round trip, and the variation that the timeout uses.
    largest: i64,
    variation: i64,
    /// The round trip ends when this offset is acknowledged.
    round_end: u64,
    least: Option<(Duration, Instant)>,
}

impl RoundTrip {
    pub fn new() -> RoundTrip {
        RoundTrip { smoothed: 0, deviation: 0, largest: 0, variation: 0, round_end: 0, least: None }
    }

    /// A round trip was measured; data up to `acknowledged` arrived and `next` is sent next.
    pub fn sample(&mut self, trip: Duration, acknowledged: u64, next: u64) {
        let trip = trip.as_nanos() as i64;
        let floor = RTO_MIN.as_nanos() as i64;
        if self.smoothed == 0 {
            self.smoothed = trip.max(1);
            self.deviation = 2 * trip;
            self.variation = self.deviation.max(floor);
            (self.largest, self.round_end) = (self.variation, next);
            return;
        }
        let error = trip - self.smoothed;
        self.smoothed = (self.smoothed + error / 8).max(1);
        let change = error.abs() - self.deviation / 4;
        self.deviation += if error < 0 && change > 0 { change / 8 } else { change };
        if self.deviation > self.largest {
            self.largest = self.deviation;
            self.variation = self.variation.max(self.largest);
        }
        if acknowledged > self.round_end {
            if self.largest < self.variation {
                self.variation -= (self.variation - self.largest) / 4;
            }
            (self.round_end, self.largest) = (next, floor);
        }
    }

    /// A round trip of data that was not repeated: a candidate for the least one.
    pub fn note_least(&mut self, trip: Duration, now: Instant) {
        let keep = self.least.is_some_and(|(least, at)| least < trip && now - at < LEAST_LASTS);
        if !keep {
            self.least = Some((trip, now));
        }
    }

    /// The smoothed round trip; `None` before the first sample.
    pub fn smoothed(&self) -> Option<Duration> {
        (self.smoothed > 0).then(|| Duration::from_nanos(self.smoothed as u64))
    }

    /// The least round trip of the last five minutes; zero before the first sample.
    pub fn least(&self) -> Duration {
        self.least.map_or(Duration::ZERO, |(least, _)| least)
    }

    /// The retransmission timeout without back-off.
    pub fn timeout(&self) -> Duration {
        match self.smoothed() {
            None => RTO_INITIAL,
            Some(trip) => (trip + Duration::from_nanos(self.variation as u64)).min(RTO_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_timeout_of_a_steady_path_is_its_round_trip_plus_200_ms() {
        let mut trip = RoundTrip::new();
        assert_eq!(trip.timeout(), RTO_INITIAL);
        for round in 0..100 {
            trip.sample(20 * MS, round, round);
        }
        assert_eq!(trip.timeout(), 220 * MS);
    }

    #[test]
    fn a_path_that_becomes_slower_raises_the_timeout_above_its_round_trip_at_once() {
        let mut trip = RoundTrip::new();
        trip.sample(20 * MS, 0, 1);
        trip.sample(500 * MS, 1, 2);
        assert!(trip.timeout() > 500 * MS, "{:?}", trip.timeout());
        assert_eq!(trip.smoothed(), Some(80 * MS));
    }

    #[test]
    fn the_least_round_trip_is_forgotten_after_five_minutes() {
        let mut trip = RoundTrip::new();
        trip.note_least(10 * MS, Instant::ZERO);
        trip.note_least(30 * MS, Instant::ZERO + LEAST_LASTS - MS);
        assert_eq!(trip.least(), 10 * MS);
        trip.note_least(30 * MS, Instant::ZERO + LEAST_LASTS);
        assert_eq!(trip.least(), 30 * MS);
    }
}
