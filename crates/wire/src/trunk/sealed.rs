//! Outer frames of a trunk that has a key: sealed frames, and the handshake that makes their keys.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------+-----------------------------------------------+
//! |     0xf0      |     index of the keys, chosen by the receiver |  Sealed
//! +---------------+-----------------------------------------------+
//! |                    counter of these keys                      |
//! +---------------------------------------------------------------+
//! | a frame of the trunk (see the module above), encrypted …      |
//! |                        authentication tag, 16 bytes           |
//! +---------------------------------------------------------------+
//!
//! +---------------+-----------------------------------------------+
//! |     0xf1      |     tag of the key that follows, see [`tag`]  |  Initiation, 84 bytes
//! +---------------+-----------------------------------------------+
//! | first message of Noise: key of 32 bytes, payload of 32, tag   |
//! +---------------------------------------------------------------+
//!
//! +---------------+-----------------------------------------------+
//! |     0xf2      |     index that the initiator chose            |  Retry, 52 bytes
//! +---------------+-----------------------------------------------+
//! | cookie, 16 bytes; authentication code, 32 bytes               |
//! +---------------------------------------------------------------+
//!
//! +---------------+-----------------------------------------------+
//! |     0xf3      |     index that the initiator chose            |  Response, 68 bytes
//! +---------------+-----------------------------------------------+
//! | second message of Noise: key of 32 bytes, payload of 16, tag  |
//! +---------------------------------------------------------------+
//! ```
//!
//! Several trunks can share a UDP port. The receiver's index then says whose a frame is: its
//! highest bits are the *slot* of the trunk ([`index_in`]). An initiation, which names no index
//! yet, has a tag that only who has the trunk's key can make or check.
//!
//! Zeros that Ethernet pads a short frame with are left out where the length is fixed. A sealed
//! frame is never short: what is in it is padded before it is encrypted ([`LEAST_INNER`]).

use super::Refusal;
use std::hash::Hasher;

/// Bytes before the encrypted frame.
pub const HEADER_LEN: usize = 8;
/// Bytes of the authentication tag behind it.
pub const TAG_LEN: usize = 16;
/// Bytes that sealing adds to a frame.
pub const OVERHEAD: usize = HEADER_LEN + TAG_LEN;
/// Fewest bytes of a frame to be sealed: its sealed form fills an Ethernet frame (46 bytes), so
/// that the tag is at the end.
pub const LEAST_INNER: usize = 46 - OVERHEAD;
/// Bytes of a key of X25519.
pub const KEY_LEN: usize = 32;
/// Bytes of the payload of an initiation.
pub const INITIATION_PAYLOAD: usize = 32;
/// Bytes of the payload of a response.
pub const RESPONSE_PAYLOAD: usize = 16;
/// Bytes of a cookie.
pub const COOKIE_LEN: usize = 16;
/// Bytes of the code that authenticates a cookie.
pub const CODE_LEN: usize = 32;
/// Bytes of an initiation.
pub const INITIATION_LEN: usize = 4 + KEY_LEN + INITIATION_PAYLOAD + TAG_LEN;
/// Bytes of a retry.
pub const RETRY_LEN: usize = 4 + COOKIE_LEN + CODE_LEN;
/// Bytes of a response.
pub const RESPONSE_LEN: usize = 4 + KEY_LEN + RESPONSE_PAYLOAD + TAG_LEN;
/// Largest index of keys: it has 24 bits.
pub const MOST_INDEX: u32 = 0x00ff_ffff;
/// Trunks that can share a port. The 18 bits that are left of an index tell the keys of one trunk
/// apart, three pairs at a time.
pub const SLOTS: u32 = 64;
/// Bits of an index below the slot.
const SLOT_SHIFT: u32 = 24 - SLOTS.ilog2();
/// Bytes of a tag.
pub const SHORT_TAG_LEN: usize = 3;

/// The tag of an initiation.
pub type ShortTag = [u8; SHORT_TAG_LEN];

const SEALED: u8 = 0xf0;
const INITIATION: u8 = 0xf1;
const RETRY: u8 = 0xf2;
const RESPONSE: u8 = 0xf3;

/// A view of one outer frame. Nothing of it is authenticated yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outer<'a> {
    /// A frame of the trunk, encrypted.
    Sealed {
        /// Index of the keys.
        index: u32,
        /// Counter of these keys.
        counter: u32,
        /// The encrypted frame and its tag.
        body: &'a [u8],
    },
    /// The first message of a handshake.
    Initiation {
        /// The tag of its key.
        tag: ShortTag,
        /// The message.
        message: &'a [u8],
    },
    /// A demand to repeat the first message with a cookie.
    Retry {
        /// Index that the initiator chose.
        index: u32,
        /// The cookie.
        cookie: &'a [u8],
        /// Its authentication code.
        code: &'a [u8],
    },
    /// The second message of a handshake.
    Response {
        /// Index that the initiator chose.
        index: u32,
        /// The message.
        message: &'a [u8],
    },
}

impl<'a> Outer<'a> {
    /// Reads an outer frame; `None` where the bytes are of another kind.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Self>, Refusal> {
        let kind = *bytes.first().ok_or(Refusal::Truncated)?;
        let fixed = |len: usize| bytes.get(4..len).ok_or(Refusal::Truncated);
        Ok(Some(match kind {
            SEALED => {
                let least = HEADER_LEN + LEAST_INNER + TAG_LEN;
                if bytes.len() < least {
                    return Err(Refusal::Truncated);
                }
                let (header, body) = bytes.split_at(HEADER_LEN);
                let counter = super::word(header, 4..8);
                Outer::Sealed { index: index(header), counter, body }
            }
            INITIATION => {
                let message = fixed(INITIATION_LEN)?;
                Outer::Initiation { tag: [bytes[1], bytes[2], bytes[3]], message }
            }
            RETRY => {
                let (cookie, code) = fixed(RETRY_LEN)?.split_at(COOKIE_LEN);
                Outer::Retry { index: index(bytes), cookie, code }
            }
            RESPONSE => Outer::Response {
                index: index(bytes.get(..4).ok_or(Refusal::Truncated)?),
                message: fixed(RESPONSE_LEN)?,
            },
            _ => return Ok(None),
        }))
    }

    /// Whether bytes are of a kind that only trunks with a key send.
    pub fn is_outer(bytes: &[u8]) -> bool {
        matches!(bytes.first(), Some(&(SEALED..=RESPONSE)))
    }
}

/// The header of a sealed frame. It is authenticated with the frame.
pub fn header(index: u32, counter: u32) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..4].copy_from_slice(&(index & MOST_INDEX).to_be_bytes());
    header[0] = SEALED;
    header[4..].copy_from_slice(&counter.to_be_bytes());
    header
}

/// An index of `slot`, whose other bits are those of `random`.
pub fn index_in(slot: u32, random: u32) -> u32 {
    (slot << SLOT_SHIFT | random & ((1 << SLOT_SHIFT) - 1)) & MOST_INDEX
}

/// The tag of an initiation: SipHash-2-4 of the key of X25519 at the beginning of `message`, by two
/// words that both ends have. The kernel finds by it which trunk of a port the initiation is for.
/// It is another one each time, as the key is, so nobody else can tell by it who initiates.
pub fn tag(words: &[u64; 2], message: &[u8]) -> ShortTag {
    #[expect(deprecated, reason = "the one in the standard library that says its algorithm")]
    let mut hasher = std::hash::SipHasher::new_with_keys(words[0], words[1]);
    hasher.write(&message[..message.len().min(KEY_LEN)]);
    let [a, b, c, ..] = hasher.finish().to_le_bytes();
    [a, b, c]
}

/// Writes an initiation over `bytes`.
pub fn initiation(tag: ShortTag, message: &[u8], bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.push(INITIATION);
    bytes.extend_from_slice(&tag);
    bytes.extend_from_slice(message);
}

/// Writes a retry over `bytes`.
pub fn retry(index: u32, cookie: &[u8], code: &[u8], bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.extend_from_slice(&(index & MOST_INDEX).to_be_bytes());
    bytes[0] = RETRY;
    bytes.extend_from_slice(cookie);
    bytes.extend_from_slice(code);
}

/// Writes a response over `bytes`.
pub fn response(index: u32, message: &[u8], bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.extend_from_slice(&(index & MOST_INDEX).to_be_bytes());
    bytes[0] = RESPONSE;
    bytes.extend_from_slice(message);
}

/// The index in the first four bytes.
fn index(bytes: &[u8]) -> u32 {
    super::word(bytes, 0..4) & MOST_INDEX
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn outer_frames_say_what_they_were_given_and_leave_padding_out() {
        let mut bytes = header(0x0012_3456, 77).to_vec();
        bytes.extend([9; LEAST_INNER + TAG_LEN]);
        assert_eq!(bytes.len(), 46, "Ethernet adds nothing to it");
        let body = &[9; LEAST_INNER + TAG_LEN][..];
        let sealed = Outer::Sealed { index: 0x0012_3456, counter: 77, body };
        assert_eq!(Outer::parse(&bytes), Ok(Some(sealed)));

        initiation([7, 8, 9], &[1; INITIATION_LEN - 4], &mut bytes);
        bytes.resize(90, 0);
        let first = Outer::Initiation { tag: [7, 8, 9], message: &[1; INITIATION_LEN - 4] };
        assert_eq!(Outer::parse(&bytes), Ok(Some(first)));
        retry(6, &[2; 16], &[3; 32], &mut bytes);
        bytes.resize(60, 0);
        assert_eq!(
            Outer::parse(&bytes),
            Ok(Some(Outer::Retry { index: 6, cookie: &[2; 16], code: &[3; 32] }))
        );
        response(5, &[4; RESPONSE_LEN - 4], &mut bytes);
        let response = Outer::Response { index: 5, message: &[4; RESPONSE_LEN - 4] };
        assert_eq!(Outer::parse(&bytes), Ok(Some(response)));
        for len in 1..RESPONSE_LEN {
            assert_eq!(Outer::parse(&bytes[..len]), Err(Refusal::Truncated));
        }
    }

    #[test]
    fn an_index_says_its_slot_in_the_first_bits_behind_the_kind() {
        for slot in 0..SLOTS {
            let header = header(index_in(slot, u32::MAX), 0);
            assert_eq!(u32::from(header[1] >> 2), slot);
            assert_eq!(header[1] & 3, 3, "what is random stays");
        }
    }

    #[test]
    fn a_tag_is_that_of_siphash() {
        // From the paper (Aumasson and Bernstein 2012), appendix A: SipHash-2-4 of 00 01 … 0e.
        let words = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let bytes: Vec<_> = (0..15).collect();
        assert_eq!(tag(&words, &bytes), [0xe5, 0x45, 0xbe]);
        assert_eq!(tag(&words, &[1; 80]), tag(&words, &[1; KEY_LEN]), "of the key alone");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            kind in 0xee..=0xffu8,
        ) {
            let mut bytes = bytes;
            let _ = Outer::parse(&bytes);
            if let Some(first) = bytes.first_mut() {
                *first = kind;
                prop_assert_eq!(Outer::is_outer(&bytes), !matches!(Outer::parse(&bytes), Ok(None)));
            }
        }
    }
}
