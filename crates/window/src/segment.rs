//! A checked view of a TCP segment, as far as window control reads it (RFC 9293 3.1, RFC 7323).

use sheaf_wire::ip::{Ip, Protocol};

/// Data of a full segment over Ethernet, bytes.
pub(crate) const FULL_SEGMENT: u32 = 1460;

/// Flag bits of byte 13 of the header.
pub(crate) mod flag {
    pub const FIN: u8 = 1;
    pub const SYN: u8 = 2;
    pub const RST: u8 = 4;
    pub const PSH: u8 = 8;
    pub const ACK: u8 = 16;
}

/// The options that matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Maximum segment size (kind 2), bytes. Of 0 no window could be made: it is passed over, as
    /// Linux does (tcp_parse_options).
    pub mss: Option<u16>,
    /// Window scale shift (kind 3), at most 14 (RFC 7323 2.3).
    pub scale: Option<u8>,
    /// Time stamp value and echo reply (kind 8).
    pub timestamps: Option<(u32, u32)>,
}

impl Options {
    /// Reads the options area, at most 40 bytes. Reading ends at the first option that does not
    /// fit; what was read before counts.
    pub fn parse(mut bytes: &[u8]) -> Options {
        let mut options = Options::default();
        while let [kind, rest @ ..] = bytes {
            match kind {
                0 => break,
                1 => {
                    bytes = rest;
                    continue;
                }
                _ => {}
            }
            let Some(length) = rest.first().map(|length| usize::from(*length)) else { break };
            if length < 2 || length > bytes.len() {
                break;
            }
            let (option, next) = bytes.split_at(length);
            let word = |at: usize| {
                u32::from_be_bytes([option[at], option[at + 1], option[at + 2], option[at + 3]])
            };
            match (kind, length) {
                (2, 4) => {
                    options.mss =
                        Some(u16::from_be_bytes([option[2], option[3]])).filter(|mss| *mss > 0);
                }
                (3, 3) => options.scale = Some(option[2].min(14)),
                (8, 10) => options.timestamps = Some((word(2), word(6))),
                _ => {}
            }
            bytes = next;
        }
        options
    }
}

/// A TCP segment inside an unfragmented packet.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    header: &'a [u8],
    /// Bytes of data.
    pub payload: u32,
    /// Offset of the TCP header in the packet.
    pub offset: usize,
}

impl<'a> Segment<'a> {
    /// The segment in `packet`; `None` when it is not a whole TCP packet.
    pub fn parse(packet: &Ip<'a>) -> Option<Segment<'a>> {
        if packet.protocol() != Protocol::TCP || packet.is_fragment() {
            return None;
        }
        let transport = packet.transport();
        let length = usize::from(transport.get(12)? >> 4) * 4;
        if length < 20 {
            return None;
        }
        let header = transport.get(..length)?;
        let payload = (transport.len() - length) as u32;
        Some(Segment { header, payload, offset: packet.transport_offset() })
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = &self.header[at..at + 4];
        u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    /// Sequence number.
    pub fn seq(&self) -> u32 {
        self.word(4)
    }

    /// Acknowledgement number.
    pub fn ack(&self) -> u32 {
        self.word(8)
    }

    /// Whether it does nothing but acknowledge.
    pub fn is_bare_ack(&self) -> bool {
        let others = flag::FIN | flag::SYN | flag::RST;
        self.payload == 0 && self.flags() & (flag::ACK | others) == flag::ACK
    }

    /// Flags: byte 13.
    pub fn flags(&self) -> u8 {
        self.header[13]
    }

    /// The word that ends with the flags.
    pub(crate) fn lead(&self) -> u16 {
        u16::from_be_bytes([self.header[12], self.header[13]])
    }

    /// The window field, unscaled.
    pub fn window(&self) -> u16 {
        u16::from_be_bytes([self.header[14], self.header[15]])
    }

    /// The options.
    pub fn options(&self) -> Options {
        Options::parse(&self.header[20..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn options_are_found_in_any_order_and_behind_unknown_ones() {
        let syn = [1, 3, 3, 9, 4, 2, 2, 4, 5, 0xb4, 30, 3, 7, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 0];
        let options = Options::parse(&syn);
        let expected = Options { mss: Some(1460), scale: Some(9), timestamps: Some((1, 2)) };
        assert_eq!(options, expected);
        assert_eq!(Options::parse(&[0, 3, 3, 9]), Options::default(), "nothing after the end");
        assert_eq!(Options::parse(&[3, 3, 99]).scale, Some(14), "RFC 7323 2.3: 14 at most");
        assert_eq!(Options::parse(&[2, 4, 0, 0]).mss, None, "no segment has no bytes");
    }

    proptest! {
        #[test]
        fn no_option_bytes_panic_or_loop(bytes in proptest::collection::vec(any::<u8>(), 0..=40)) {
            Options::parse(&bytes);
        }
    }
}
