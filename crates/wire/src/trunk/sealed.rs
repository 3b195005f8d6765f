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
//! |     0xf1      |                       0                       |  Initiation, 84 bytes
//! +---------------+-----------------------------------------------+
//! | first message of Noise: key of 32 bytes, payload of 32, tag   |
//! +---------------------------------------------------------------+
//!
//! +---------------+-----------------------------------------------+
//! |     0xf2      |                       0                       |  Retry, 52 bytes
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
//! Zeros that Ethernet pads a short frame with are left out where the length is fixed. A sealed
//! frame is never short: what is in it is padded before it is encrypted ([`LEAST_INNER`]).

use super::Refusal;

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
    Initiation(&'a [u8]),
    /// A demand to repeat the first message with a cookie.
    Retry {
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
            INITIATION => Outer::Initiation(fixed(INITIATION_LEN)?),
            RETRY => {
                let (cookie, code) = fixed(RETRY_LEN)?.split_at(COOKIE_LEN);
                Outer::Retry { cookie, code }
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

/// Writes an initiation over `bytes`.
pub fn initiation(message: &[u8], bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.extend_from_slice(&[INITIATION, 0, 0, 0]);
    bytes.extend_from_slice(message);
}

/// Writes a retry over `bytes`.
pub fn retry(cookie: &[u8], code: &[u8], bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.extend_from_slice(&[RETRY, 0, 0, 0]);
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

        initiation(&[1; INITIATION_LEN - 4], &mut bytes);
        bytes.resize(90, 0);
        assert_eq!(Outer::parse(&bytes), Ok(Some(Outer::Initiation(&[1; INITIATION_LEN - 4]))));
        retry(&[2; 16], &[3; 32], &mut bytes);
        bytes.resize(60, 0);
        assert_eq!(
            Outer::parse(&bytes),
            Ok(Some(Outer::Retry { cookie: &[2; 16], code: &[3; 32] }))
        );
        response(5, &[4; RESPONSE_LEN - 4], &mut bytes);
        let response = Outer::Response { index: 5, message: &[4; RESPONSE_LEN - 4] };
        assert_eq!(Outer::parse(&bytes), Ok(Some(response)));
        for len in 1..RESPONSE_LEN {
            assert_eq!(Outer::parse(&bytes[..len]), Err(Refusal::Truncated));
        }
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
