//! A checked view of one IP packet, as far as aggregation reads it.
//!
//! The headers are parsed by `etherparse`; this view adds what a bundler needs: the packet's own
//! length (so that link padding is cut off), the class bits, and the place of the transport
//! header. IPv6 extension headers are not walked: [`Ip::protocol`] is then the extension header's
//! number, and no classifier rule matches it.

use crate::ecn::Ecn;
use etherparse::{Ipv4HeaderSlice, Ipv6HeaderSlice};
use std::net::IpAddr;
use thiserror::Error;

/// IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// IPv4 (RFC 791).
    V4,
    /// IPv6 (RFC 8200).
    V6,
}

/// An IP protocol number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Protocol(pub u8);

impl Protocol {
    /// TCP.
    pub const TCP: Protocol = Protocol(6);
    /// UDP.
    pub const UDP: Protocol = Protocol(17);
    /// ICMPv6.
    pub const ICMPV6: Protocol = Protocol(58);
    /// 253, for experimentation (RFC 3692): the meta packet.
    pub const META: Protocol = Protocol(253);
}

/// Why bytes are not an IP packet.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum IpError {
    /// The first nibble is neither 4 nor 6.
    #[error("neither IPv4 nor IPv6")]
    Version,
    /// Fewer bytes than the header or its length field says.
    #[error("shorter than its header says")]
    Truncated,
    /// A header length that no header has, or a total length below the header's.
    #[error("impossible header length")]
    Header,
}

/// A checked view of an IPv4 or IPv6 packet, trimmed to the packet's own length.
#[derive(Clone, Copy, Debug)]
pub struct Ip<'a> {
    bytes: &'a [u8],
    version: Version,
    header_len: usize,
}

impl<'a> Ip<'a> {
    /// Reads the packet at the start of `bytes`; what follows it is left out of the view.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, IpError> {
        match bytes.first().ok_or(IpError::Truncated)? >> 4 {
            4 => {
                if bytes.len() < 20 {
                    return Err(IpError::Truncated);
                }
                let header_len = usize::from(bytes[0] & 0xf) * 4;
                if header_len < 20 {
                    return Err(IpError::Header);
                }
                let header = Ipv4HeaderSlice::from_slice(bytes).map_err(|_| IpError::Truncated)?;
                let total = usize::from(header.total_len());
                if total < header_len {
                    return Err(IpError::Header);
                }
                let bytes = bytes.get(..total).ok_or(IpError::Truncated)?;
                Ok(Ip { bytes, version: Version::V4, header_len })
            }
            6 => {
                let header = Ipv6HeaderSlice::from_slice(bytes).map_err(|_| IpError::Truncated)?;
                let total = 40 + usize::from(header.payload_length());
                let bytes = bytes.get(..total).ok_or(IpError::Truncated)?;
                Ok(Ip { bytes, version: Version::V6, header_len: 40 })
            }
            _ => Err(IpError::Version),
        }
    }

    /// The whole packet.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// IPv4 or IPv6.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Bytes of the IP header: 20..60 for IPv4, 40 for IPv6 (extension headers not counted).
    pub fn header_len(&self) -> usize {
        self.header_len
    }

    /// The TOS byte or traffic class.
    pub fn traffic_class(&self) -> u8 {
        match self.version {
            Version::V4 => self.bytes[1],
            Version::V6 => self.bytes[0] << 4 | self.bytes[1] >> 4,
        }
    }

    /// The six DSCP bits (RFC 2474).
    pub fn dscp(&self) -> u8 {
        self.traffic_class() >> 2
    }

    /// The two ECN bits.
    pub fn ecn(&self) -> Ecn {
        Ecn::from_bits(self.traffic_class())
    }

    /// The protocol or next header.
    pub fn protocol(&self) -> Protocol {
        Protocol(match self.version {
            Version::V4 => self.bytes[9],
            Version::V6 => self.bytes[6],
        })
    }

    /// The hop limit, or time to live.
    pub fn hop_limit(&self) -> u8 {
        match self.version {
            Version::V4 => self.bytes[8],
            Version::V6 => self.bytes[7],
        }
    }

    /// Whether this is an IPv4 fragment. (An IPv6 one shows as protocol 44.)
    pub fn is_fragment(&self) -> bool {
        // More-fragments flag or an offset.
        self.version == Version::V4
            && u16::from_be_bytes([self.bytes[6], self.bytes[7]]) & 0x3fff != 0
    }

    /// Source and destination address, back to back: 8 or 32 bytes.
    pub fn addresses(&self) -> &'a [u8] {
        match self.version {
            Version::V4 => &self.bytes[12..20],
            Version::V6 => &self.bytes[8..40],
        }
    }

    /// Its sender.
    pub fn source(&self) -> IpAddr {
        self.address(false)
    }

    /// Whom it is for.
    pub fn destination(&self) -> IpAddr {
        self.address(true)
    }

    fn address(&self, second: bool) -> IpAddr {
        let both = self.addresses();
        let (first, last) = both.split_at(both.len() / 2);
        let one = if second { last } else { first };
        match self.version {
            Version::V4 => IpAddr::from(<[u8; 4]>::try_from(one).expect("half of eight bytes")),
            Version::V6 => IpAddr::from(<[u8; 16]>::try_from(one).expect("half of 32 bytes")),
        }
    }

    /// Where the transport header begins.
    pub fn transport_offset(&self) -> usize {
        self.header_len
    }

    /// Transport header and payload.
    pub fn transport(&self) -> &'a [u8] {
        &self.bytes[self.header_len..]
    }

    /// Source and destination port of TCP or UDP; `None` for other protocols and for fragments.
    pub fn ports(&self) -> Option<(u16, u16)> {
        let known = matches!(self.protocol(), Protocol::TCP | Protocol::UDP);
        let header = self.transport();
        (known && !self.is_fragment() && header.len() >= 8).then(|| {
            (u16::from_be_bytes([header[0], header[1]]), u16::from_be_bytes([header[2], header[3]]))
        })
    }

    /// Whether this is a TCP segment without data whose only flag is ACK.
    pub fn is_pure_ack(&self) -> bool {
        let header = self.transport();
        if self.protocol() != Protocol::TCP || self.is_fragment() || header.len() < 20 {
            return false;
        }
        usize::from(header[12] >> 4) * 4 == header.len() && header[13] == 0x10
    }
}

/// A right IPv4 header without payload, for documentation and tests.
#[doc(hidden)]
pub fn example_v4() -> Vec<u8> {
    vec![0x45, 0, 0, 20, 0, 0, 0x40, 0, 64, 59, 0xb6, 0xab, 192, 0, 2, 1, 192, 0, 2, 2]
}

/// A right UDP over IPv4 packet, for documentation and tests.
#[doc(hidden)]
pub fn example_udp(payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    etherparse::PacketBuilder::ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64)
        .udp(5004, 5004)
        .write(&mut packet, payload)
        .expect("a short payload fits");
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn link_padding_is_not_part_of_the_packet() {
        let mut padded = example_v4();
        padded.extend_from_slice(&[0; 26]);
        assert_eq!(Ip::parse(&padded).unwrap().bytes(), example_v4());
    }

    #[test]
    fn a_header_that_lies_about_its_length_is_refused() {
        let mut packet = example_v4();
        packet[3] = 21;
        assert_eq!(Ip::parse(&packet).unwrap_err(), IpError::Truncated);
        packet[3] = 19;
        assert_eq!(Ip::parse(&packet).unwrap_err(), IpError::Header);
        packet[0] = 0x44;
        assert_eq!(Ip::parse(&packet).unwrap_err(), IpError::Header);
        packet[0] = 0x55;
        assert_eq!(Ip::parse(&packet).unwrap_err(), IpError::Version);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            if let Ok(view) = Ip::parse(&bytes) {
                let _ = (view.ports(), view.is_pure_ack(), view.dscp(), view.ecn());
                prop_assert!(view.bytes().len() <= bytes.len());
            }
        }
    }
}
