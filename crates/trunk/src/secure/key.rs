//! The key of a trunk, the same at both ends.

use crate::seed::derive;
use std::fmt;
use thiserror::Error;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// Bytes of a key.
const LEN: usize = 32;

/// A key that two ends share. It shows that a host is one of the two; frames are encrypted with
/// keys of the session, which nobody can compute from it.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Key([u8; LEN]);

/// Text that is not a key.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum KeyError {
    /// Not one line of 64 hexadecimal digits.
    #[error("a key is one line of 64 hexadecimal digits; make one by sheaf trunk key")]
    Form,
    /// Zeros only: a file that was never filled.
    #[error("the key is all zeros; make one by sheaf trunk key")]
    Zero,
}

impl Key {
    /// A key of random bytes, from the kernel's generator.
    pub fn new(random: [u8; LEN]) -> Key {
        Key(random)
    }

    /// Reads a key from the text of its file.
    pub fn parse(text: &str) -> Result<Key, KeyError> {
        let digits = text.trim_ascii().as_bytes();
        let mut key = Key([0; LEN]);
        if digits.len() != 2 * LEN {
            return Err(KeyError::Form);
        }
        for (byte, pair) in key.0.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16).ok_or(KeyError::Form);
            *byte = (digit(0)? << 4 | digit(1)?) as u8;
        }
        if key.0 == [0; LEN] {
            return Err(KeyError::Zero);
        }
        Ok(key)
    }

    /// Returns the text of the key's file, without the line's end.
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(self.0.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The two words that the tags of initiations are made with
    /// ([`tag`](sheaf_wire::trunk::sealed::tag)). The key cannot be found from them.
    pub fn tags(&self) -> [u64; 2] {
        let derived = derive(&self.0, b"initiation");
        let word = |at: usize| std::array::from_fn(|byte| derived[8 * at + byte]);
        [0, 1].map(|at| u64::from_le_bytes(word(at)))
    }

    /// Returns the key of HELLOs (`sheaf_neighbour::SealKey`), from which this one cannot be found.
    pub fn for_hello(&self) -> Zeroizing<[u8; LEN]> {
        Zeroizing::new(derive(&self.0, b"hello"))
    }

    pub(crate) fn bytes(&self) -> &[u8; LEN] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_written_and_never_printed() {
        let key = Key::new(std::array::from_fn(|at| at as u8 + 200));
        assert_eq!(Key::parse(&format!("{}\n", key.to_text().as_str())), Ok(key.clone()));
        assert_eq!(format!("{key:?}"), "Key(…)");
    }

    #[test]
    fn what_is_not_a_key_is_refused() {
        for text in ["", "abc", &"0".repeat(63), &"g".repeat(64), &"é".repeat(32), &"a".repeat(65)]
        {
            assert_eq!(Key::parse(text), Err(KeyError::Form), "{text}");
        }
        assert_eq!(Key::parse(&"0".repeat(64)), Err(KeyError::Zero));
    }
}
