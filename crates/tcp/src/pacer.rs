//! Pacing as inside Linux's TCP: a burst leaves at once, the next one when its time has passed.

use crate::control::Pace;
use sheaf_stage::{Duration, Instant};

/// Segments at the beginning that are not paced.
const FREE: u64 = 10;

/// Times at which segments may leave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pacer {
    /// Time at which the next burst may leave.
    pub release: Instant,
    /// Segments left of the burst.
    burst: u32,
    sent: u64,
}

impl Pacer {
    /// Time at which the next segment may leave, when that is behind `now`.
    pub fn wait(&self, now: Instant) -> Option<Instant> {
        (self.burst == 0 && self.release > now).then_some(self.release)
    }

    /// A segment of `bytes` leaves.
    pub fn send(&mut self, bytes: u64, pace: Pace, now: Instant) {
        self.sent += 1;
        if self.sent <= FREE {
            return;
        }
        if self.burst == 0 {
            self.burst = pace.burst;
        }
        self.burst -= 1;
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(pace.rate.max(1));
        let time = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let base = self.release.max(now);
        // A segment that was late makes the next one's wait shorter, by half at most.
        let credit =
            if self.release == Instant::ZERO { Duration::ZERO } else { base - self.release };
        self.release = base + time - credit.min(time / 2);
    }

    /// The burst ends here, because nothing more may be sent.
    pub fn stop(&mut self) {
        self.burst = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_leave_at_the_rate() {
        let pace = Pace { rate: 1_000_000, burst: 2 };
        let (mut pacer, mut now, mut times) = (Pacer::default(), Instant::from_millis(1), vec![]);
        while times.len() < 16 {
            match pacer.wait(now) {
                Some(at) => now = at,
                None => {
                    pacer.send(1000, pace, now);
                    times.push((now - Instant::ZERO).as_millis());
                }
            }
        }
        assert_eq!(times[..10], [1; 10], "the first ten are free");
        assert_eq!(times[10..], [1, 1, 3, 3, 5, 5]);
    }
}
