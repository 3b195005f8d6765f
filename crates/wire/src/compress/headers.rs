//! The headers of a packet that can be compressed.

use crate::checksum::{fold, ipv4_field, sum};
use crate::ip::{Ip, Protocol, Version};

/// The most bytes of headers: IPv6, UDP, RTP.
pub const MAX_HEADERS: usize = IPV6 + UDP + RTP;

/// Bytes of an IPv4 header without options, of IPv6's, UDP's and of RTP's without sources.
pub(super) const IPV4: usize = 20;
const IPV6: usize = 40;
pub(super) const UDP: usize = 8;
pub(super) const RTP: usize = 12;

/// First byte of RTP: version 2 without padding, extension and contributing sources (RFC 3550).
const RTP_FIRST: u8 = 0x80;
/// Bit of RTP's second byte: the marker; the others are the payload type.
pub(super) const MARKER: u8 = 0x80;

/// Headers of a UDP packet whose checksums are right, so that they can be restored.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a> {
    packet: &'a [u8],
    version: Version,
}

/// The fields of RTP that change, and those that tell its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtp {
    /// Marker bit.
    pub marker: bool,
    /// Payload type, 0..=127.
    pub payload_type: u8,
    /// Sequence number.
    pub sequence: u16,
    /// Time stamp, in units of the payload's clock.
    pub timestamp: u32,
    /// Synchronization source.
    pub source: u32,
}

impl<'a> Headers<'a> {
    /// Reads the headers of `packet`, which has no bytes behind it. `None` if it cannot be restored
    /// bit by bit from a context: no UDP, a fragment, options, or a checksum that is wrong.
    pub fn read(packet: &'a [u8]) -> Option<Headers<'a>> {
        let ip = Ip::parse(packet).ok()?;
        let segment = ip.transport();
        let plain = match ip.version() {
            Version::V4 => {
                ip.header_len() == IPV4
                    && !ip.is_fragment()
                    && ipv4_field(&packet[..IPV4]) == word(packet, 10)
            }
            Version::V6 => true,
        };
        let whole = ip.bytes().len() == packet.len() && segment.len() >= UDP;
        if !plain || !whole || ip.protocol() != Protocol::UDP {
            return None;
        }
        let headers = Headers { packet, version: ip.version() };
        let right = match word(segment, 6) {
            0 => ip.version() == Version::V4,
            checksum => checksum == udp_checksum(ip.addresses(), segment),
        };
        (usize::from(word(segment, 4)) == segment.len() && right).then_some(headers)
    }

    /// The whole packet.
    pub fn packet(&self) -> &'a [u8] {
        self.packet
    }

    /// IPv4 or IPv6.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Bytes of the IP header, 20 or 40.
    pub(super) fn ip_len(&self) -> usize {
        ip_len(self.version)
    }

    /// Payload of UDP.
    pub fn datagram(&self) -> &'a [u8] {
        &self.packet[self.ip_len() + UDP..]
    }

    /// Bytes that tell the flow: addresses and ports, 12 or 36.
    pub fn flow(&self) -> &'a [u8] {
        let start = if self.version == Version::V4 { 12 } else { 8 };
        &self.packet[start..self.ip_len() + 4]
    }

    /// The identification of IPv4.
    pub fn identification(&self) -> Option<u16> {
        (self.version == Version::V4).then(|| word(self.packet, 4))
    }

    /// The datagram as RTP, if it can be RTP in the form that is compressed.
    pub fn rtp(&self) -> Option<Rtp> {
        let header = self.datagram().first_chunk::<RTP>()?;
        (header[0] == RTP_FIRST).then(|| Rtp {
            marker: header[1] & MARKER != 0,
            payload_type: header[1] & !MARKER,
            sequence: word(header, 2),
            timestamp: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
            source: u32::from_be_bytes([header[8], header[9], header[10], header[11]]),
        })
    }
}

/// Bytes of the IP header.
pub(super) fn ip_len(version: Version) -> usize {
    match version {
        Version::V4 => IPV4,
        Version::V6 => IPV6,
    }
}

/// The checksum of a UDP segment between these addresses, whatever stands in its field.
pub(super) fn udp_checksum(addresses: &[u8], segment: &[u8]) -> u16 {
    let pseudo = sum(addresses, u32::from(Protocol::UDP.0) + segment.len() as u32);
    let header = sum(&segment[..6], pseudo);
    match !fold(sum(&segment[UDP..], header)) {
        0 => 0xffff, // zero would mean "no checksum" (RFC 768)
        checksum => checksum,
    }
}

/// The big-endian word at `at`.
pub(super) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
