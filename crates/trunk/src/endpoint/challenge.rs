//! Challenges: numbers that a host has to echo before this end keeps anything of it.
//!
//! A challenge is a keyed hash of the address that it is sent to and of the time. Nothing is
//! remembered of whom it was sent to, so a flood of hellos costs no memory (as RFC 9000,
//! section 8.1 has it), and a hello that was recorded is worth nothing a few seconds later.

use crate::seed::Random;
use ring::hmac;
use sheaf_stage::Instant;
use std::hash::{Hash, Hasher};

/// Time after which challenges change; one is good for this long at least and twice as long at
/// most. The longest round trips are a few seconds.
const PERIOD_SECONDS: u64 = 8;

/// The challenges of one endpoint.
pub(super) struct Challenges {
    key: hmac::Key,
}

impl std::fmt::Debug for Challenges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Challenges(…)")
    }
}

impl Challenges {
    pub fn new(mut random: Random) -> Challenges {
        Challenges { key: hmac::Key::new(hmac::HMAC_SHA256, &random.block()) }
    }

    /// The number that whoever is at `place` has to echo now, never 0.
    pub fn demand(&self, place: &impl Hash, now: Instant) -> u64 {
        self.number(place, period(now))
    }

    /// Whether `echo` shows that its sender receives at `place`.
    pub fn is_met(&self, echo: u64, place: &impl Hash, now: Instant) -> bool {
        let period = period(now);
        let before = period.checked_sub(1);
        echo != 0
            && [Some(period), before]
                .into_iter()
                .flatten()
                .any(|period| self.number(place, period) == echo)
    }

    fn number(&self, place: &impl Hash, period: u64) -> u64 {
        let mut mac = Mac(hmac::Context::with_key(&self.key));
        mac.write(&period.to_be_bytes());
        place.hash(&mut mac);
        mac.finish()
    }
}

fn period(now: Instant) -> u64 {
    now.as_nanos() / 1_000_000_000 / PERIOD_SECONDS
}

/// Takes in what [`Hash`] gives.
struct Mac(hmac::Context);

impl Hasher for Mac {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let tag = self.0.clone().sign();
        let first = tag.as_ref().first_chunk().expect("SHA-256 has 32 bytes");
        u64::from_be_bytes(*first).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;
    use sheaf_stage::Duration;

    #[test]
    fn a_challenge_is_good_for_one_place_and_for_some_seconds() {
        let challenges = |seed: u64| Challenges::new(Seed::from(seed).random(b"challenges"));
        let (ours, others) = (challenges(1), challenges(2));
        let now = Instant::ZERO + Duration::from_secs(100);
        let demand = ours.demand(&Some(7u8), now);
        assert!(ours.is_met(demand, &Some(7u8), now + Duration::from_secs(7)));
        assert!(!ours.is_met(demand, &Some(8u8), now), "it was sent elsewhere");
        assert!(!ours.is_met(demand, &None::<u8>, now));
        assert!(!ours.is_met(demand, &Some(7u8), now + Duration::from_secs(16)), "it is old");
        assert!(!ours.is_met(0, &Some(7u8), now));
        assert!(!others.is_met(demand, &Some(7u8), now), "it was sent by another end");
    }
}
