//! Randomness of an endpoint: drawn once by its owner, and stretched here, so that the endpoint
//! itself asks no device for any and a simulation can be repeated.

use ring::hmac;
use std::fmt;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The random beginning of an endpoint, another one at every start.
#[derive(Clone, PartialEq, Eq, ZeroizeOnDrop)]
pub struct Seed {
    session: u64,
    secret: [u8; 32],
}

impl Seed {
    /// A seed of 32 bytes that nobody can guess, from the kernel's generator.
    pub fn new(secret: [u8; 32]) -> Seed {
        let session = Random::new(&secret, b"session").number();
        Seed { session, secret }
    }

    /// The session of this run, never 0 but where a simulation asked for it.
    pub(crate) fn session(&self) -> u64 {
        self.session
    }

    /// A generator for one `purpose`, independent of all others.
    pub(crate) fn random(&self, purpose: &[u8]) -> Random {
        Random::new(&self.secret, purpose)
    }
}

/// Simulations and tests name the session; everything else follows from it, so it is a secret of
/// nobody.
impl From<u64> for Seed {
    fn from(session: u64) -> Seed {
        let mut secret = [0; 32];
        secret[..8].copy_from_slice(&session.to_be_bytes());
        Seed { session, secret }
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(…)")
    }
}

/// A generator of random bytes: HMAC-SHA-256 as a ratchet. What it gave out cannot be found from
/// what it holds now, so a key of a handshake that is over is gone (forward secrecy).
#[derive(ZeroizeOnDrop)]
pub(crate) struct Random {
    state: [u8; 32],
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random(…)")
    }
}

impl Random {
    fn new(secret: &[u8; 32], purpose: &[u8]) -> Random {
        Random { state: derive(secret, purpose) }
    }

    /// The next 32 bytes.
    pub fn block(&mut self) -> [u8; 32] {
        let block = derive(&self.state, b"give out");
        let next = derive(&self.state, b"go on");
        self.state.zeroize();
        self.state = next;
        block
    }

    /// The next number, not 0, which stands for none on the wire.
    pub fn number(&mut self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.block();
        u64::from_be_bytes([a, b, c, d, e, f, g, h]).max(1)
    }
}

/// A key for one purpose.
pub(crate) fn derive(secret: &[u8; 32], purpose: &[u8]) -> [u8; 32] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), purpose);
    tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_differs_by_purpose_and_by_turn_and_is_the_same_for_the_same_seed() {
        let seed = Seed::new([1; 32]);
        let (mut one, mut two) = (seed.random(b"one"), seed.random(b"two"));
        let drawn = [one.block(), one.block(), two.block(), two.block()];
        for (index, block) in drawn.iter().enumerate() {
            assert!(!drawn[..index].contains(block));
        }
        assert_eq!(seed.random(b"one").block(), drawn[0]);
        assert_ne!(Seed::new([2; 32]).session(), seed.session());
        assert_eq!(Seed::from(7).session(), 7);
        assert!(!format!("{seed:?} {one:?}").contains('1'), "secrets are not printed");
    }
}
