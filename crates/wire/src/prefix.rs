//! Prefixes of addresses, as routes and rules have them.

use std::net::IpAddr;
use thiserror::Error;

/// Addresses that share their first bits. What this module makes has no bits behind those.
pub use ipnet::IpNet as Prefix;

/// Reason why a word is not a prefix.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum PrefixError {
    /// No IP address.
    #[error("no IP address; write it like 10.0.0.2 or 10.0.0.0/8")]
    Address,
    /// No number of bits, or more than an address has.
    #[error("no length of a prefix; give 0 to {most} bits")]
    Length {
        /// Bits of an address.
        most: u8,
    },
}

/// Reads 10.1.0.0/16, or an address as a prefix of its own.
///
/// # Errors
/// The word is neither.
pub fn parse(word: &str) -> Result<Prefix, PrefixError> {
    let (address, bits) = word.split_once('/').map_or((word, None), |(a, bits)| (a, Some(bits)));
    let all = Prefix::from(address.parse::<IpAddr>().map_err(|_| PrefixError::Address)?);
    let Some(bits) = bits else { return Ok(all) };
    let most = all.max_prefix_len();
    let bits = bits.parse().ok().filter(|bits| *bits <= most);
    Ok(around(all.addr(), bits.ok_or(PrefixError::Length { most })?))
}

/// The prefix of `bits` bits that `address` lies in; more bits than it has are all.
pub fn around(address: IpAddr, bits: u8) -> Prefix {
    let all = Prefix::from(address);
    Prefix::new(address, bits).map_or(all, |prefix| prefix.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_read_without_what_stands_behind_its_bits() {
        let prefix = parse("10.1.200.3/16").unwrap();
        assert_eq!(prefix.to_string(), "10.1.0.0/16");
        assert_eq!(around([10, 1, 7, 7].into(), 16), prefix);
        assert_ne!(around([10, 2, 0, 1].into(), 16), prefix);
        assert_eq!(parse("2001:db8::1/0").unwrap().to_string(), "::/0");
    }

    #[test]
    fn an_address_is_a_prefix_of_its_own() {
        assert_eq!(parse("fd00::1").unwrap().to_string(), "fd00::1/128");
        let address = IpAddr::from([10, 0, 0, 1]);
        assert_eq!((around(address, 32), around(address, 99)), (address.into(), address.into()));
    }

    #[test]
    fn a_word_that_is_not_a_prefix_is_refused_with_the_remedy() {
        assert_eq!(parse("10.0.0.0/33"), Err(PrefixError::Length { most: 32 }));
        assert_eq!(parse("::/129"), Err(PrefixError::Length { most: 128 }));
        for word in ["", "/8", "ten", "10.0.0/8"] {
            assert_eq!(parse(word), Err(PrefixError::Address), "{word}");
        }
    }
}
