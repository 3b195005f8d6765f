//! The fields that the packets of a flow have in common.

use super::headers::{Headers, IPV4, MARKER, MAX_HEADERS, RTP, UDP, ip_len, word};
use super::reference::Reference;
use crate::crc::crc32;
use crate::ip::Version;

/// Rule by which the identification of IPv4 is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum IdRule {
    /// It is always the same. Also that of IPv6, which has none.
    Constant = 0,
    /// It is the counter, plus what it was more in the packet that defined the context. Without
    /// RTP it is the counter itself.
    Follows = 1,
    /// It is sent with every packet.
    Explicit = 2,
}

/// Rules of a context, as the compressor chose them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The datagram is RTP.
    pub rtp: bool,
    /// The identification.
    pub id: IdRule,
    /// Growth of RTP's time stamp from one packet to the next; 0 without RTP.
    pub stride: u16,
}

/// Constants of a flow, and how the rest is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The headers, with zeros where a field is not constant; in place of UDP's checksum 1, if it
    /// has one.
    template: [u8; MAX_HEADERS],
    version: Version,
    rules: Rules,
    /// Bytes behind the headers.
    payload_len: u16,
    /// Identification, less the counter under [`IdRule::Follows`].
    id: u16,
}

/// A checked definition of a context.
#[derive(Clone, Copy, Debug)]
pub struct Definition<'a> {
    /// Number of the context.
    pub number: u8,
    /// The context.
    pub context: Context,
    /// The packet that defines it.
    pub headers: Headers<'a>,
}

impl<'a> Definition<'a> {
    /// Bytes before the packet.
    pub const HEADER: usize = 4;

    /// The header of a definition.
    pub fn header(number: u8, rules: Rules) -> [u8; Definition::HEADER] {
        let [high, low] = rules.stride.to_be_bytes();
        [0x90 | u8::from(rules.rtp) << 2 | rules.id as u8, number, high, low]
    }

    /// Reads the header of a definition whose packet has `headers`. `None`: such a context cannot
    /// be.
    pub(crate) fn read(
        head: &[u8; Definition::HEADER],
        headers: Headers<'a>,
    ) -> Option<Definition<'a>> {
        let [first, number, high, low] = *head;
        let id = match first & 0xb {
            0 => IdRule::Constant,
            1 => IdRule::Follows,
            2 => IdRule::Explicit,
            _ => return None,
        };
        let rules = Rules { rtp: first & 4 != 0, id, stride: u16::from_be_bytes([high, low]) };
        Some(Definition { number, context: Context::of(&headers, rules)?, headers })
    }
}

impl Context {
    /// The context that a packet with `headers` defines. `None`: the rules do not apply to it.
    pub fn of(headers: &Headers<'_>, rules: Rules) -> Option<Context> {
        let version = headers.version();
        let stands_for_nothing = version == Version::V6 && rules.id != IdRule::Constant
            || !rules.rtp && rules.stride != 0
            || rules.rtp && headers.rtp().is_none();
        if stands_for_nothing {
            return None;
        }
        let mut context =
            Context { template: [0; MAX_HEADERS], version, rules, payload_len: 0, id: 0 };
        context.template = context.constants(headers);
        context.payload_len = (headers.packet().len() - context.headers_len()) as u16;
        let id = headers.identification().unwrap_or(0);
        context.id = match rules.id {
            IdRule::Constant => id,
            IdRule::Follows => id.wrapping_sub(context.counter(headers)),
            IdRule::Explicit => 0,
        };
        Some(context)
    }

    /// The context that the eBPF program keeps in parts: headers as in the packet, with zeros for
    /// what is not constant and behind them, the bytes of the payload, and the identification, less
    /// the counter under [`IdRule::Follows`].
    pub fn from_parts(
        template: [u8; MAX_HEADERS],
        rules: Rules,
        payload_len: u16,
        id: u16,
    ) -> Context {
        let version = if template[0] >> 4 == 4 { Version::V4 } else { Version::V6 };
        Context { template, version, rules, payload_len, id }
    }

    /// Whether a packet has the constants of this context.
    pub fn fits(&self, headers: &Headers<'_>) -> bool {
        headers.version() == self.version
            && headers.packet().len() >= self.headers_len()
            && (!self.rules.rtp || headers.rtp().is_some())
            && self.constants(headers) == self.template
    }

    /// The counter of a packet that [fits](Self::fits).
    pub fn counter(&self, headers: &Headers<'_>) -> u16 {
        match headers.rtp() {
            Some(rtp) if self.rules.rtp => rtp.sequence,
            _ if self.rules.id == IdRule::Follows => headers.identification().unwrap_or(0),
            _ => 0,
        }
    }

    /// The reference that a packet which [fits](Self::fits) gives.
    pub fn reference(&self, headers: &Headers<'_>) -> Reference {
        let timestamp = headers.rtp().filter(|_| self.rules.rtp).map_or(0, |rtp| rtp.timestamp);
        Reference::new(self.counter(headers), timestamp)
    }

    /// Rules of this context.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// Bytes behind the headers of a packet in the compact form.
    pub fn payload_len(&self) -> u16 {
        self.payload_len
    }

    /// CRC-32 of all constants under `number`, by which an acknowledgement names the definition.
    pub fn check(&self, number: u8) -> u32 {
        let mut bytes = [0; MAX_HEADERS + 9];
        bytes[..MAX_HEADERS].copy_from_slice(&self.template);
        let Rules { rtp, id, stride } = self.rules;
        let [[a, b], [c, d], [e, f]] = [self.payload_len, self.id, stride].map(u16::to_be_bytes);
        bytes[MAX_HEADERS..].copy_from_slice(&[a, b, c, d, e, f, rtp.into(), id as u8, number]);
        crc32(&bytes)
    }

    /// Bytes of the headers that are restored, 28 to 60.
    pub fn headers_len(&self) -> usize {
        ip_len(self.version) + UDP + if self.rules.rtp { RTP } else { 0 }
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// The headers with zeros for what is not constant.
    pub(super) fn template(&self) -> &[u8] {
        &self.template[..self.headers_len()]
    }

    /// Identification, less the counter under [`IdRule::Follows`].
    pub(super) fn id(&self) -> u16 {
        self.id
    }

    fn constants(&self, headers: &Headers<'_>) -> [u8; MAX_HEADERS] {
        let mut template = [0; MAX_HEADERS];
        let len = self.headers_len();
        template[..len].copy_from_slice(&headers.packet()[..len]);
        match self.version {
            // Total length, identification, checksum.
            Version::V4 => {
                template[2..6].fill(0);
                template[10..12].fill(0);
            }
            // Payload length.
            Version::V6 => template[4..6].fill(0),
        }
        let (udp, rtp) = template[ip_len(self.version)..].split_at_mut(UDP);
        let summed = word(udp, 6) != 0;
        udp[4..8].copy_from_slice(&[0, 0, 0, summed.into()]);
        if self.rules.rtp {
            rtp[1] &= !MARKER;
            rtp[2..8].fill(0); // sequence number and time stamp
        }
        template
    }
}

// The template's places are those of these headers.
const _: () = assert!(IPV4 + UDP + RTP == 40 && MAX_HEADERS == 60);
