//! HELLOs that only holders of a key can write: HMAC-SHA-256 (RFC 2104), cut to 16 bytes (RFC 4868
//! cuts it to 16 as well).
//!
//! The seal covers the link address of the sender, so that nobody can send another's HELLO as its
//! own. It does not say that a message is new: see [`Neighbour::is_proven`].
//!
//! [`Neighbour::is_proven`]: crate::Neighbour::is_proven

use crate::LinkAddress;
use ring::hmac;
use sheaf_wire::hello::SEAL_LEN;
use std::fmt;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Bytes of a key.
const LEN: usize = 32;

/// The key of HELLOs.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct SealKey([u8; LEN]);

impl SealKey {
    /// A key that was derived for HELLOs and serves nothing else.
    pub fn new(key: [u8; LEN]) -> SealKey {
        SealKey(key)
    }

    /// The seal of `message` from `sender`.
    pub fn seal(&self, sender: LinkAddress, message: &[u8]) -> [u8; SEAL_LEN] {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &self.0));
        context.update(&sender);
        context.update(message);
        let tag = context.sign();
        *tag.as_ref().first_chunk().expect("SHA-256 has 32 bytes")
    }

    /// Whether `seal` is that of `message` from `sender`. The time it takes does not depend on how
    /// much of the seal is right.
    pub fn verifies(&self, sender: LinkAddress, message: &[u8], seal: &[u8; SEAL_LEN]) -> bool {
        let right = self.seal(sender, message);
        right.iter().zip(seal).fold(0, |wrong, (one, other)| wrong | (one ^ other)) == 0
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_holds_for_its_sender_its_message_and_its_key_alone() {
        let (key, other) = (SealKey::new([1; LEN]), SealKey::new([2; LEN]));
        let (sender, message) = ([2, 0, 0, 0, 0, 1], b"hello".as_slice());
        let seal = key.seal(sender, message);
        assert!(key.verifies(sender, message, &seal));
        assert!(!other.verifies(sender, message, &seal));
        assert!(!key.verifies([2, 0, 0, 0, 0, 2], message, &seal));
        assert!(!key.verifies(sender, b"hellO", &seal));
        for bit in 0..SEAL_LEN * 8 {
            let mut damaged = seal;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!key.verifies(sender, message, &damaged), "bit {bit}");
        }
        assert_eq!(format!("{key:?}"), "SealKey(…)");
    }
}
