//! Bytes that a class may send: a token bucket that may go below zero.
//!
//! As in HTB a class may send while its bucket is not below zero, and pays afterwards, so a packet
//! need not fit. Tokens are counted in bits · 10⁹, of which a rate in bit/s makes as many in each
//! nanosecond: whole numbers, without an error that adds up.

use sheaf_stage::{Bitrate, Duration, Instant};

/// Work of a byte.
pub(super) const BYTE: u64 = 8 * 1_000_000_000;

#[derive(Debug)]
pub(super) struct Bucket {
    rate: i128,
    /// The most that it holds while it is not to keep more.
    most: i128,
    tokens: i128,
    at: Instant,
}

impl Bucket {
    /// A full one.
    pub fn new(rate: Bitrate, burst: u64) -> Bucket {
        let most = i128::from(burst) * i128::from(BYTE);
        Bucket { rate: i128::from(rate.as_bps()), most, tokens: most, at: Instant::ZERO }
    }

    /// Takes another rate and size; what is in it stays as far as it fits.
    pub fn set(&mut self, rate: Bitrate, burst: u64) {
        let Bucket { tokens, at, .. } = *self;
        *self = Bucket { at, ..Bucket::new(rate, burst) };
        self.tokens = tokens.min(self.most);
    }

    /// Fills it up to `now`. One that is to `keep` more overflows not: its class has been waiting
    /// for others to be sent.
    pub fn fill(&mut self, now: Instant, keep: bool) {
        // The product fits: 2⁶⁴ nanoseconds at 2⁶⁴ bit/s.
        let gain = i128::try_from((now - self.at).as_nanos()).unwrap_or(0);
        let filled = self.tokens.saturating_add(gain.saturating_mul(self.rate));
        self.at = self.at.max(now);
        self.tokens = if keep { filled } else { filled.min(self.most) };
    }

    /// Pays for `bytes`.
    pub fn pay(&mut self, bytes: u64) {
        self.tokens = self.tokens.saturating_sub(i128::from(bytes) * i128::from(BYTE));
    }

    /// Whether its class may send, by what was in it when it was filled last.
    pub fn allows(&self) -> bool {
        self.tokens >= 0
    }

    /// Time from which its class may send.
    pub fn when(&self) -> Instant {
        if self.allows() || self.rate <= 0 {
            return self.at;
        }
        // Rounded up: at the moment itself it allows.
        let nanos = (-self.tokens - 1) / self.rate + 1;
        self.at + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_allows_from_the_very_nanosecond_that_it_names() {
        for rate in [1, 3, 64_001, 999_999_937] {
            let mut bucket = Bucket::new(Bitrate::from_bps(rate), 0);
            bucket.pay(1514);
            let when = bucket.when();
            bucket.fill(when - Duration::from_nanos(1), false);
            assert!(!bucket.allows(), "{rate}");
            bucket.fill(when, false);
            assert!(bucket.allows(), "{rate}");
        }
    }

    #[test]
    fn an_idle_bucket_holds_its_burst_and_one_that_waits_keeps_more() {
        let byte_a_nano = Bitrate::from_bps(BYTE);
        let sends = |keep| {
            let mut bucket = Bucket::new(byte_a_nano, 1000);
            bucket.fill(Instant::from_nanos(5000), keep);
            let pay = std::iter::from_fn(|| bucket.allows().then(|| bucket.pay(1000)));
            pay.count()
        };
        assert_eq!((sends(false), sends(true)), (2, 7));
    }
}
