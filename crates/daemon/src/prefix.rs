//! Prefixes of addresses.

use anyhow::{Context, anyhow};
use std::net::IpAddr;

/// Addresses that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// Its first address.
    pub network: IpAddr,
    /// How many bits all have in common.
    pub bits: u32,
}

impl Prefix {
    /// The one address `address`.
    pub fn host(address: IpAddr) -> Prefix {
        Prefix { network: address, bits: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// Reads 10.1.0.0/16, or an address as a prefix of its own.
    pub fn parse(keyword: &str, word: &str) -> anyhow::Result<Prefix> {
        let Some((network, bits)) = word.split_once('/') else {
            return Ok(Prefix::host(address(keyword, word)?));
        };
        let all = Prefix::host(address(keyword, network)?);
        let bits = bits.parse().ok().filter(|bits| *bits <= all.bits);
        let bits = bits.with_context(|| {
            format!("{keyword} {word:?} has a wrong length; give 0 to {} bits", all.bits)
        })?;
        Ok(Prefix::around(all.network, bits))
    }

    /// The prefix of `bits` bits that `address` lies in.
    pub fn around(address: IpAddr, bits: u32) -> Prefix {
        let network = match address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32_u32.saturating_sub(bits)).unwrap_or(0);
                IpAddr::V4((v4.to_bits() & mask).into())
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128_u32.saturating_sub(bits)).unwrap_or(0);
                IpAddr::V6((v6.to_bits() & mask).into())
            }
        };
        Prefix { network, bits }
    }
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.network, self.bits)
    }
}

fn address(keyword: &str, word: &str) -> anyhow::Result<IpAddr> {
    word.parse().map_err(|_| anyhow!("{keyword} {word:?} is no IP address; write it like 10.0.0.2"))
}
