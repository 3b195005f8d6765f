//! Masks, which decide what a flow is: dummynet's `mask` (ipfw(8), "TRAFFIC SHAPER CONFIGURATION").
//!
//! A flow is what is left of addresses, ports and protocol when every bit that the mask has not is
//! cleared; each flow gets a pipe of its own.

use crate::classify::split;
use crate::packet::Packet;
use sheaf_wire::ip::{Ip, Version};
use std::net::Ipv4Addr;
use std::str::FromStr;
use thiserror::Error;

/// Bits of an address that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bits {
    /// Of an IPv4 address.
    pub v4: u32,
    /// Of an IPv6 address.
    pub v6: u128,
}

impl Bits {
    /// Every bit.
    pub const ALL: Bits = Bits { v4: u32::MAX, v6: u128::MAX };

    /// The first bits: `v4` of an IPv4 address and `v6` of an IPv6 address. More than there are
    /// count as all.
    pub const fn first(v4: u32, v6: u32) -> Bits {
        let v4 = if v4 == 0 { 0 } else { u32::MAX << 32_u32.saturating_sub(v4) };
        let v6 = if v6 == 0 { 0 } else { u128::MAX << 128_u32.saturating_sub(v6) };
        Bits { v4, v6 }
    }

    /// Writes what counts of `address`, 4 or 16 bytes.
    fn copy(self, to: &mut [u8], address: &[u8]) {
        let (v4, v6) = (self.v4.to_be_bytes(), self.v6.to_be_bytes());
        let mask = if address.len() == 4 { &v4[..] } else { &v6[..] };
        for ((to, byte), mask) in to.iter_mut().zip(address).zip(mask) {
            *to = byte & mask;
        }
    }
}

/// The bits that count. The default has none: all is one flow of each version of IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mask {
    /// Of the protocol.
    pub protocol: u8,
    /// Of the source address.
    pub source: Bits,
    /// Of the destination address.
    pub destination: Bits,
    /// Of the source port.
    pub source_port: u16,
    /// Of the destination port.
    pub destination_port: u16,
}

/// Error in the words of a mask.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MaskError {
    /// A word that names no part of a packet.
    #[error(
        "\"{0}\" is not part of a mask (all, proto, src-ip, dst-ip, src-ip6, dst-ip6, src-port, \
         dst-port)"
    )]
    Part(String),
    /// A part without bits, or with ones that cannot be read.
    #[error("{0} is not a mask for {1}")]
    Value(String, String),
    /// No part at all.
    #[error("a mask without parts makes one flow")]
    Empty,
}

impl Mask {
    /// Every 5-tuple is a flow.
    pub const FLOW: Mask = Mask {
        protocol: u8::MAX,
        source: Bits::ALL,
        destination: Bits::ALL,
        source_port: u16::MAX,
        destination_port: u16::MAX,
    };

    /// The flow of a packet. All packets that are not IP are one flow.
    pub(crate) fn key(&self, packet: &Packet, ip: usize) -> Key {
        let mut key: Key = [0; 40];
        let Ok(view) = Ip::parse(packet.after_link(ip)) else { return key };
        let (source, destination) = split(&view);
        key[0] = if view.version() == Version::V4 { 4 } else { 6 };
        key[1] = view.protocol().0 & self.protocol;
        let (source_port, destination_port) = view.ports().unwrap_or((0, 0));
        key[2..4].copy_from_slice(&(source_port & self.source_port).to_be_bytes());
        key[4..6].copy_from_slice(&(destination_port & self.destination_port).to_be_bytes());
        self.source.copy(&mut key[8..24], source);
        self.destination.copy(&mut key[24..40], destination);
        key
    }
}

/// A flow's name: version, protocol, ports, and 16 bytes for each address.
pub(crate) type Key = [u8; 40];

impl FromStr for Mask {
    type Err = MaskError;

    /// Reads the words of ipfw(8), such as `src-ip 0xffffff00 dst-port 0xffff`. Bits are a
    /// hexadecimal or decimal number or `/N` for the first N; those of an IPv4 address also
    /// 255.255.255.0.
    fn from_str(text: &str) -> Result<Self, MaskError> {
        let mut mask = Mask::default();
        let mut words = text.split_whitespace().peekable();
        if words.peek().is_none() {
            return Err(MaskError::Empty);
        }
        while let Some(part) = words.next() {
            if part == "all" {
                mask = Mask::FLOW;
                continue;
            }
            let width = match part {
                "proto" => 8,
                "src-port" | "dst-port" => 16,
                "src-ip" | "dst-ip" => 32,
                "src-ip6" | "dst-ip6" => 128,
                _ => return Err(MaskError::Part(part.to_owned())),
            };
            let word = words.next().unwrap_or("nothing");
            let bits = bits(word, width);
            let bits = bits.ok_or_else(|| MaskError::Value(word.to_owned(), part.to_owned()))?;
            match part {
                "proto" => mask.protocol = bits as u8,
                "src-port" => mask.source_port = bits as u16,
                "dst-port" => mask.destination_port = bits as u16,
                "src-ip" => mask.source.v4 = bits as u32,
                "dst-ip" => mask.destination.v4 = bits as u32,
                "src-ip6" => mask.source.v6 = bits,
                _ => mask.destination.v6 = bits,
            }
        }
        Ok(mask)
    }
}

/// Bits of a field that is `width` bits wide.
fn bits(word: &str, width: u32) -> Option<u128> {
    let most = u128::MAX >> (128 - width);
    if let Some(first) = word.strip_prefix('/') {
        let first: u32 = first.parse().ok().filter(|first| *first <= width)?;
        let rest = width - first;
        return Some(if rest == 128 { 0 } else { most >> rest << rest });
    }
    let number = match word.strip_prefix("0x") {
        Some(digits) => u128::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    };
    let dotted = || word.parse::<Ipv4Addr>().ok().filter(|_| width == 32);
    number.or_else(|| dotted().map(|address| address.to_bits().into())).filter(|n| *n <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_written_as_for_ipfw() {
        let mask = |text: &str| text.parse::<Mask>();
        assert_eq!(mask("all"), Ok(Mask::FLOW));
        let source = |bits| Mask { source: bits, ..Mask::default() };
        assert_eq!(mask("src-ip 0xffffff00"), Ok(source(Bits::first(24, 0))));
        assert_eq!(mask("src-ip 255.255.255.0"), mask("src-ip /24"));
        assert_eq!(mask("src-ip 0x000000ff"), Ok(source(Bits { v4: 255, v6: 0 })));
        assert_eq!(mask("src-ip6 /64 src-ip 0"), Ok(source(Bits::first(0, 64))));
        assert_eq!(mask("src-ip6 /0"), Ok(Mask::default()));
        let ports = Mask { source_port: 255, destination_port: u16::MAX, ..Mask::default() };
        assert_eq!(mask("dst-port 0xffff src-port 255"), Ok(ports));
        let whole = "proto 0xff src-ip 0xffffffff src-ip6 /128 dst-ip /32 dst-ip6 /128 \
                     src-port 0xffff dst-port 65535";
        assert_eq!(mask(whole), Ok(Mask::FLOW));
        for wrong in
            ["", "src", "src-ip", "src-ip /33", "proto 256", "dst-port 1.2.3.4", "src-ip -1"]
        {
            assert!(mask(wrong).is_err(), "{wrong}");
        }
    }
}
