//! Compressed headers of IP, TCP and UDP.
//!
//! Of the 52 bytes of headers that a TCP segment has over IPv4, ten or so change from one segment
//! of a flow to the next. A [`Context`] is the headers of one packet of a flow, and both ends keep
//! it: the sender says it in a [`Define`](super::Define), the receiver says that it has it in a
//! [`Known`](super::Known). From then on a packet of the flow carries what its headers differ in:
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-------+-------+---------------+---------------+---------------+
//! |   1   |  gen. |    context    | identification (of IPv4 only) |
//! +-------+-------+---------------+---------------+---------------+
//! |   checksum of TCP or UDP      |seq|ack|w|f|opt|  of TCP only:
//! +-------------------------------+---------------+
//! | sequence number: as in the context (seq 0), 3 bytes to be added to it (1), or all 4 (2)
//! | acknowledgement: as in the context (ack 0), 2 bytes to be added to it (1), or all 4 (2)
//! | window: as in the context (w 0), or 2 bytes (1)
//! | flags: as in the context (f 0), or 1 byte (1)
//! | options: as in the context but for both time stamps, 2 bytes each to be added to it (opt 0),
//! |          the same with 4 bytes each, as they are (1), or a length and so many bytes (2)
//! | payload …
//! ```
//!
//! * A packet refers to a context that the other end said it has, and to no other packet. So
//!   neither loss nor disorder between them harms, and no check of what was restored is needed: the
//!   sender compresses only what comes out as it was, byte by byte.
//! * *Generation*: a context of the same number that is newer has the next one of sixteen. The
//!   receiver keeps the last two, for frames that are late.
//! * Of every other protocol the header of IP alone is compressed, and what follows the
//!   identification is its payload: frames of `sheaf aggregate`, tunnels, pings.
//! * Checksums of TCP and UDP are carried as they are, also wrong ones. An IPv4 header whose
//!   checksum is wrong, with options, or of a fragment is not compressed.
//! * A version of 1 tells compressed packets from those of IP.
//!
//! Source: RFC 1144 for what changes in TCP; a reference that both ends are known to have in place
//! of the packet before is the acknowledged context of RFC 3095, section 4.6 (reliable mode).

use super::{Name, Refusal};
use crate::checksum;
use crate::flow::{fold, mix};
use crate::ip::{Ip, Protocol, Version};

/// The most bytes of a context: IPv6 and TCP with all options.
pub const MOST_HEADERS: usize = IPV6 + 60;

const IPV4: usize = 20;
const IPV6: usize = 40;
const TCP: usize = 20;
const UDP: usize = 8;
/// Bytes of both ports.
const PORTS: usize = 4;
/// The first nibble of a compressed packet.
const COMPRESSED: u8 = 1;
/// Options of nearly every segment: two of no meaning, which align, then the time stamps, 8 and
/// their length (RFC 7323, appendix A).
const STAMPS: [u8; 4] = [1, 1, 8, 10];

/// The headers of a packet that can be compressed.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a> {
    /// IP's, then TCP's or UDP's, if it has one of these.
    bytes: &'a [u8],
    /// Bytes of IP's.
    ip: usize,
    payload: &'a [u8],
}

impl<'a> Headers<'a> {
    /// Reads the headers of `packet`, which has nothing behind it. `None` where they cannot be
    /// restored byte by byte.
    pub fn read(packet: &'a [u8]) -> Option<Headers<'a>> {
        let view = Ip::parse(packet).ok().filter(|view| view.bytes().len() == packet.len())?;
        let ip = view.header_len();
        let is_plain = match view.version() {
            // Of the two zeros of ones' complement the field has the one that is restored.
            Version::V4 => {
                ip == IPV4
                    && !view.is_fragment()
                    && checksum::ipv4_field(packet) == half(packet, 10)
            }
            Version::V6 => true,
        };
        let transport = &packet[ip..];
        let len = match Transport::of(packet, ip) {
            _ if !is_plain => return None,
            Transport::Tcp => {
                let header = transport.get(..TCP)?;
                let len = usize::from(header[12] >> 4) * 4;
                // An urgent pointer would need a place of its own; nobody uses it.
                (len >= TCP && header[18..TCP] == [0, 0]).then_some(len)?
            }
            Transport::Udp => {
                let header = transport.get(..UDP)?;
                (usize::from(half(header, 4)) == transport.len()).then_some(UDP)?
            }
            Transport::Other => 0,
        };
        let (bytes, payload) = packet.split_at_checked(ip + len)?;
        Some(Headers { bytes, ip, payload })
    }

    /// Bytes of the headers.
    pub fn header_len(&self) -> usize {
        self.bytes.len()
    }

    /// Hash of addresses, protocol and, of TCP and UDP, ports. A `seed` that others do not know
    /// keeps them from choosing flows that collide.
    pub fn hash(&self, seed: u64) -> u64 {
        let addresses = if self.ip == IPV4 { 12 } else { 8 };
        let ports = self.bytes.len().min(self.ip + PORTS);
        let protocol = u64::from(protocol(self.bytes, self.ip).0);
        fold(mix(seed ^ protocol), &self.bytes[addresses..ports])
    }

    /// Bytes behind the headers.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    fn transport(&self) -> &'a [u8] {
        &self.bytes[self.ip..]
    }
}

/// The header behind that of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Tcp,
    Udp,
    /// None that is known here.
    Other,
}

impl Transport {
    /// Of a packet whose header of IP is whole and has `ip` bytes.
    fn of(packet: &[u8], ip: usize) -> Transport {
        match protocol(packet, ip) {
            Protocol::TCP => Transport::Tcp,
            Protocol::UDP => Transport::Udp,
            _ => Transport::Other,
        }
    }

    /// The least bytes of its header.
    fn least(self) -> usize {
        match self {
            Transport::Tcp => TCP,
            Transport::Udp => UDP,
            Transport::Other => 0,
        }
    }
}

/// Fit of a context for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// A newer one would save nothing.
    Close,
    /// A newer one would save bytes now or soon.
    Far,
}

/// The headers of one packet of a flow.
#[derive(Clone, Copy)]
pub struct Context {
    bytes: [u8; MOST_HEADERS],
    len: u8,
    ip: u8,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Context").field(&self.bytes()).finish()
    }
}

impl Context {
    /// The context that a packet's headers make.
    pub fn new(headers: &Headers<'_>) -> Context {
        let mut bytes = [0; MOST_HEADERS];
        bytes[..headers.bytes.len()].copy_from_slice(headers.bytes);
        Context { bytes, len: headers.bytes.len() as u8, ip: headers.ip as u8 }
    }

    /// The context that these bytes of a [`Define`](super::Define) make.
    pub fn parse(bytes: &[u8]) -> Result<Context, Refusal> {
        // As a packet without payload: then lengths and checksum of IPv4 are this one's.
        let mut packet = bytes.to_vec();
        let ip = match bytes.first().ok_or(Refusal::Truncated)? >> 4 {
            4 => IPV4,
            6 => IPV6,
            _ => return Err(Refusal::Field),
        };
        let header = bytes.get(..ip).ok_or(Refusal::Truncated)?;
        let least = ip + Transport::of(header, ip).least();
        if !(least..=MOST_HEADERS).contains(&bytes.len()) {
            return Err(Refusal::Truncated);
        }
        finish(&mut packet, ip);
        let headers = Headers::read(&packet).filter(|headers| headers.payload.is_empty());
        headers.map(|headers| Context::new(&headers)).ok_or(Refusal::Field)
    }

    /// The headers, for a [`Define`](super::Define).
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    fn kind(&self) -> Transport {
        Transport::of(&self.bytes, usize::from(self.ip))
    }

    fn ip(&self) -> &[u8] {
        &self.bytes[..usize::from(self.ip)]
    }

    fn transport(&self) -> &[u8] {
        &self.bytes()[usize::from(self.ip)..]
    }

    /// Whether a packet is of the flow of this one, and all that compressed headers do not carry is
    /// the same.
    pub fn is_of(&self, headers: &Headers<'_>) -> bool {
        let same = match usize::from(self.ip) {
            IPV4 => [(0, 2), (6, 10), (12, IPV4)],
            _ => [(0, 4), (6, IPV6), (0, 0)],
        };
        let (theirs, transport) = (&headers.bytes[..headers.ip], headers.transport());
        theirs.len() == usize::from(self.ip)
            && same.iter().all(|&(from, to)| self.ip()[from..to] == theirs[from..to])
            && self.transport().get(..PORTS) == transport.get(..PORTS)
            // The reserved bits beside the length of the header.
            && (self.kind() != Transport::Tcp || (self.transport()[12] ^ transport[12]) & 0xf == 0)
    }

    /// Appends the differences of a packet's headers to `out`. The payload follows them.
    /// [`Context::is_of`] has to be true of the packet.
    pub fn compress(&self, name: Name, headers: &Headers<'_>, out: &mut Vec<u8>) -> Fit {
        out.extend([COMPRESSED << 4 | name.generation, name.id]);
        if self.ip().len() == IPV4 {
            out.extend(&headers.bytes[4..6]);
        }
        let theirs = headers.transport();
        match self.kind() {
            Transport::Tcp => {
                out.extend(&theirs[16..18]);
                return self.compress_tcp(theirs, out);
            }
            Transport::Udp => out.extend(&theirs[6..UDP]),
            Transport::Other => {}
        }
        Fit::Close
    }

    fn compress_tcp(&self, theirs: &[u8], out: &mut Vec<u8>) -> Fit {
        let own = self.transport();
        let mut fit = Fit::Close;
        let (at, mut says) = (out.len(), 0);
        out.push(0);
        match word(theirs, 4).wrapping_sub(word(own, 4)) {
            0 => {}
            ahead if ahead < 1 << 24 => {
                says |= 1 << 6;
                out.extend(&ahead.to_be_bytes()[1..]);
            }
            _ => {
                (says, fit) = (says | 2 << 6, Fit::Far);
                out.extend(&theirs[4..8]);
            }
        }
        match word(theirs, 8).wrapping_sub(word(own, 8)) {
            0 => {}
            ahead if ahead < 1 << 16 => {
                says |= 1 << 4;
                out.extend(&ahead.to_be_bytes()[2..]);
            }
            _ => {
                (says, fit) = (says | 2 << 4, Fit::Far);
                out.extend(&theirs[8..12]);
            }
        }
        if theirs[14..16] != own[14..16] {
            says |= 1 << 3;
            out.extend(&theirs[14..16]);
        }
        if theirs[13] != own[13] {
            says |= 1 << 2;
            out.push(theirs[13]);
        }
        let (options, known) = (&theirs[TCP..], &own[TCP..]);
        match (stamps(options), stamps(known)) {
            (Some(stamps), Some(known)) => {
                let ahead = [0, 1].map(|at| stamps[at].wrapping_sub(known[at]));
                // Half of what fits, so that a newer context is there in time.
                if ahead.iter().any(|ahead| *ahead >= 1 << 15) {
                    fit = Fit::Far;
                }
                if ahead.iter().all(|ahead| *ahead < 1 << 16) {
                    ahead.iter().for_each(|ahead| out.extend(&ahead.to_be_bytes()[2..]));
                } else {
                    says |= 1;
                    stamps.iter().for_each(|stamp| out.extend(&stamp.to_be_bytes()));
                }
            }
            (None, None) if options == known => {}
            _ => {
                says |= 2;
                out.push(options.len() as u8);
                out.extend(options);
            }
        }
        out[at] = says;
        fit
    }

    /// Appends a restored packet to `out`; `rest` follows the name in the compressed one. A refusal
    /// leaves `out` unchanged.
    pub fn restore(&self, rest: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let start = out.len();
        out.extend(self.bytes());
        let restored = self.fill(start, rest, out);
        if restored.is_err() {
            out.truncate(start);
        }
        restored
    }

    /// Turns the headers that stand in `out` from `start` on into those of a packet.
    fn fill(&self, start: usize, rest: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let ip = usize::from(self.ip);
        let mut rest = Rest(rest);
        if ip == IPV4 {
            out[start + 4..start + 6].copy_from_slice(rest.take(2)?);
        }
        let transport = start + ip;
        match self.kind() {
            Transport::Tcp => {
                out[transport + 16..transport + 18].copy_from_slice(rest.take(2)?);
                self.fill_tcp(transport, &mut rest, out)?;
            }
            Transport::Udp => {
                out[transport + 6..transport + UDP].copy_from_slice(rest.take(2)?);
            }
            Transport::Other => {}
        }
        out.extend(rest.0);
        if out.len() - start > usize::from(u16::MAX) {
            return Err(Refusal::Field);
        }
        finish(&mut out[start..], ip);
        Ok(())
    }

    fn fill_tcp(&self, at: usize, rest: &mut Rest<'_>, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let own = self.transport();
        let says = rest.take(1)?[0];
        let sequence = match says >> 6 {
            0 => word(own, 4),
            1 => word(own, 4).wrapping_add(rest.number(3)?),
            2 => rest.number(4)?,
            _ => return Err(Refusal::Field),
        };
        let acknowledgement = match says >> 4 & 3 {
            0 => word(own, 8),
            1 => word(own, 8).wrapping_add(rest.number(2)?),
            2 => rest.number(4)?,
            _ => return Err(Refusal::Field),
        };
        out[at + 4..at + 8].copy_from_slice(&sequence.to_be_bytes());
        out[at + 8..at + 12].copy_from_slice(&acknowledgement.to_be_bytes());
        if says & 1 << 3 != 0 {
            out[at + 14..at + 16].copy_from_slice(rest.take(2)?);
        }
        if says & 1 << 2 != 0 {
            out[at + 13] = rest.take(1)?[0];
        }
        let known = stamps(&own[TCP..]);
        match (says & 3, known) {
            (0, None) => {}
            (0 | 1, Some(known)) => {
                for (number, known) in known.into_iter().enumerate() {
                    let stamp = match says & 3 {
                        0 => known.wrapping_add(rest.number(2)?),
                        _ => rest.number(4)?,
                    };
                    let place = at + TCP + STAMPS.len() + 4 * number;
                    out[place..place + 4].copy_from_slice(&stamp.to_be_bytes());
                }
            }
            (2, _) => {
                let len = usize::from(rest.take(1)?[0]);
                if len % 4 != 0 || len > 40 {
                    return Err(Refusal::Field);
                }
                out.truncate(at + TCP);
                out.extend(rest.take(len)?);
                out[at + 12] = ((TCP + len) as u8 / 4) << 4 | own[12] & 0xf;
            }
            _ => return Err(Refusal::Field),
        }
        Ok(())
    }
}

/// The name and the rest of a compressed packet; `None`: the packet is not compressed.
pub fn split(packet: &[u8]) -> Option<(Name, &[u8])> {
    let ([first, id], rest) = packet.split_first_chunk()?;
    let name = Name { id: *id, generation: first & 0xf };
    (first >> 4 == COMPRESSED).then_some((name, rest))
}

/// Writes the lengths of a packet and the checksum of its IPv4 header.
fn finish(packet: &mut [u8], ip: usize) {
    let len = packet.len() as u16;
    if ip == IPV4 {
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        let checksum = checksum::ipv4_field(packet);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    } else {
        packet[4..6].copy_from_slice(&(len - IPV6 as u16).to_be_bytes());
    }
    if Transport::of(packet, ip) == Transport::Udp {
        packet[ip + 4..ip + 6].copy_from_slice(&(len - ip as u16).to_be_bytes());
    }
}

/// The protocol in a header of IP with `ip` bytes.
fn protocol(headers: &[u8], ip: usize) -> Protocol {
    Protocol(headers[if ip == IPV4 { 9 } else { 6 }])
}

/// Both time stamps of options that are nothing else.
fn stamps(options: &[u8]) -> Option<[u32; 2]> {
    let is_stamps = options.len() == 12 && options[..4] == STAMPS;
    is_stamps.then(|| [word(options, 4), word(options, 8)])
}

fn half(bytes: &[u8], at: usize) -> u16 {
    super::half(bytes, at..at + 2)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    super::word(bytes, at..at + 4)
}

/// Bytes of a compressed packet that are still to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Refusal> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Refusal::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A big-endian number of so many bytes, at most four.
    fn number(&mut self, len: usize) -> Result<u32, Refusal> {
        Ok(self.take(len)?.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAME: Name = Name { id: 7, generation: 3 };

    /// Fields of a segment in a test.
    #[derive(Clone, Debug)]
    struct Segment {
        v6: bool,
        sequence: u32,
        acknowledgement: u32,
        window: u16,
        flags: u8,
        identification: u16,
        options: Vec<u8>,
        payload: Vec<u8>,
    }

    impl Segment {
        fn stamped(sequence: u32, stamps: [u32; 2], payload: usize) -> Segment {
            let mut options = STAMPS.to_vec();
            stamps.iter().for_each(|stamp| options.extend(stamp.to_be_bytes()));
            Segment {
                v6: false,
                sequence,
                acknowledgement: 99,
                window: 500,
                flags: 0x10,
                identification: 4,
                options,
                payload: vec![0x5a; payload],
            }
        }

        fn packet(&self) -> Vec<u8> {
            let mut packet = match self.v6 {
                false => vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2],
                true => [&[0x60, 0, 0, 9, 0, 0, 6, 64][..], &[0xfd; 32]].concat(),
            };
            let ip = packet.len();
            packet[4..6].copy_from_slice(&self.identification.to_be_bytes());
            packet.extend([0x12, 0x34, 0, 80]);
            packet.extend(self.sequence.to_be_bytes());
            packet.extend(self.acknowledgement.to_be_bytes());
            packet.extend([((TCP + self.options.len()) as u8 / 4) << 4, self.flags]);
            packet.extend(self.window.to_be_bytes());
            packet.extend([0xab, 0xcd, 0, 0]);
            packet.extend(&self.options);
            packet.extend(&self.payload);
            finish(&mut packet, ip);
            packet
        }
    }

    fn datagram(v6: bool, payload: &[u8]) -> Vec<u8> {
        let mut packet = Segment { v6, ..Segment::stamped(0, [0, 0], 0) }.packet();
        let ip = if v6 { IPV6 } else { IPV4 };
        packet.truncate(ip + 4);
        packet.extend([0, 0, 0x77, 0x66]);
        packet.extend(payload);
        packet[if v6 { 6 } else { 9 }] = 17;
        finish(&mut packet, ip);
        packet
    }

    /// A frame of `sheaf aggregate`, as other protocols are: bytes behind a header of IP.
    fn frame(v6: bool, payload: &[u8]) -> Vec<u8> {
        let mut packet = datagram(v6, &[]);
        let ip = if v6 { IPV6 } else { IPV4 };
        packet.truncate(ip);
        packet.extend(payload);
        packet[if v6 { 6 } else { 9 }] = Protocol::META.0;
        finish(&mut packet, ip);
        packet
    }

    fn context(packet: &[u8]) -> Context {
        Context::new(&Headers::read(packet).unwrap())
    }

    /// A packet that was compressed, and how the context fitted; what is restored is checked.
    fn compressed(context: &Context, packet: &[u8]) -> (Vec<u8>, Fit) {
        let headers = Headers::read(packet).unwrap();
        assert!(context.is_of(&headers));
        let mut out = vec![0xee];
        let fit = context.compress(NAME, &headers, &mut out);
        out.extend(headers.payload());
        let (name, rest) = split(&out[1..]).unwrap();
        assert_eq!(name, NAME);
        let mut back = vec![0xdd];
        context.restore(rest, &mut back).unwrap();
        assert_eq!(&back[1..], packet);
        (out.split_off(1), fit)
    }

    #[test]
    fn a_segment_of_a_download_takes_14_bytes_in_place_of_52_and_of_a_call_6_in_place_of_28() {
        let first = context(&Segment::stamped(1000, [70, 80], 0).packet());
        let next = Segment::stamped(1_001_000, [900, 870], 1388).packet();
        let (bytes, fit) = compressed(&first, &next);
        assert_eq!((bytes.len(), fit), (1388 + 14, Fit::Close));

        let call = datagram(false, &[1; 32]);
        let (bytes, _) = compressed(&context(&call), &datagram(false, &[2; 172]));
        assert_eq!(bytes.len(), 172 + 6);
    }

    #[test]
    fn a_header_of_ip_alone_takes_4_bytes_in_place_of_20_and_2_in_place_of_40() {
        for (v6, left) in [(false, 4), (true, 2)] {
            let first = context(&frame(v6, &[1; 9]));
            assert_eq!(compressed(&first, &frame(v6, &[2; 1300])).0.len(), 1300 + left);
            assert_eq!(compressed(&first, &frame(v6, &[])).0.len(), left);
        }
    }

    #[test]
    fn an_old_context_says_so_before_its_time_stamps_take_more_room() {
        let first = context(&Segment::stamped(0, [0, 0], 0).packet());
        let at = |stamp| compressed(&first, &Segment::stamped(1, [stamp, 0], 9).packet());
        let (len, fit) = (at(32_767).0.len(), at(32_767).1);
        assert_eq!(fit, Fit::Close);
        assert_eq!((at(32_768).0.len(), at(32_768).1), (len, Fit::Far));
        assert_eq!((at(65_536).0.len(), at(65_536).1), (len + 4, Fit::Far));
        let far = compressed(&first, &Segment::stamped(1 << 24, [0, 0], 9).packet());
        assert_eq!((far.0.len(), far.1), (len + 1, Fit::Far));
    }

    #[test]
    fn a_context_is_of_its_flow_alone() {
        let packet = Segment::stamped(5, [1, 2], 30).packet();
        let context = context(&packet);
        // Class, flags, time to live, protocol, each address, each port, reserved bits.
        for at in [1, 6, 8, 12, 16, 20, 22, IPV4 + 12] {
            let mut other = packet.clone();
            other[at] ^= 1 << if at == 6 { 6 } else { 0 };
            finish(&mut other, IPV4);
            let headers = Headers::read(&other).unwrap();
            assert!(!context.is_of(&headers), "byte {at}");
        }
        assert!(!context.is_of(&Headers::read(&datagram(true, b"")).unwrap()));
    }

    #[test]
    fn packets_that_would_not_come_back_as_they_were_are_not_read() {
        let packet = Segment::stamped(5, [1, 2], 20).packet();
        let is_read = |at: usize, value: u8, finishes: bool| {
            let mut packet = packet.clone();
            packet[at] = value;
            if finishes {
                finish(&mut packet, IPV4);
            }
            Headers::read(&packet).is_some()
        };
        assert!(is_read(8, 63, true));
        assert!(is_read(9, 1, true), "ICMP");
        assert!(!is_read(8, 63, false), "the checksum of IPv4");
        assert!(!is_read(6, 0x20, true), "a fragment");
        assert!(!is_read(IPV4 + 12, 0x40, true), "a header of 16 bytes");
        assert!(!is_read(IPV4 + 12, 0xf0, true), "no room for a header of 60 bytes");
        assert!(!is_read(IPV4 + 19, 1, true), "an urgent pointer");
        let mut longer = packet.clone();
        longer.push(0);
        assert!(Headers::read(&longer).is_none(), "bytes behind it");
        let mut call = datagram(true, b"abc");
        call[IPV6 + 5] ^= 1;
        assert!(Headers::read(&call).is_none(), "a datagram shorter than its packet");
    }

    #[test]
    fn a_context_is_the_same_at_both_ends() {
        for packet in [
            Segment::stamped(5, [1, 2], 30).packet(),
            Segment { v6: true, ..Segment::stamped(5, [1, 2], 30) }.packet(),
            datagram(false, b"abc"),
            datagram(true, b"abc"),
            frame(false, b"abc"),
            frame(true, b"abc"),
        ] {
            let own = context(&packet);
            let theirs = Context::parse(own.bytes()).unwrap();
            let (bytes, _) = compressed(&own, &packet);
            let mut back = Vec::new();
            theirs.restore(split(&bytes).unwrap().1, &mut back).unwrap();
            assert_eq!(back, packet);
            for len in 0..own.bytes().len() {
                assert!(Context::parse(&own.bytes()[..len]).is_err());
            }
        }
        assert!(Context::parse(&[0x45; MOST_HEADERS + 1]).is_err());
    }

    fn segments() -> impl Strategy<Value = Segment> {
        let options = prop_oneof![
            Just(vec![]),
            any::<[u8; 8]>().prop_map(|stamps| [&STAMPS[..], &stamps].concat()),
            (0usize..=10)
                .prop_flat_map(|words| { proptest::collection::vec(any::<u8>(), 4 * words) }),
        ];
        let numbers = (any::<u32>(), any::<u32>(), any::<u16>(), any::<u8>(), any::<u16>());
        let payload = proptest::collection::vec(any::<u8>(), 0..40);
        (any::<bool>(), numbers, options, payload).prop_map(|(v6, numbers, options, payload)| {
            let (sequence, acknowledgement, window, flags, identification) = numbers;
            Segment {
                v6,
                sequence,
                acknowledgement,
                window,
                flags,
                identification,
                options,
                payload,
            }
        })
    }

    proptest! {
        #[test]
        fn any_segment_comes_back_from_any_context_of_its_flow(
            first in segments(), mut next in segments(), near: bool,
        ) {
            next.v6 = first.v6;
            if near {
                let near = |number: u32, to: u32, bits: u32| to.wrapping_add(number % (1 << bits));
                next.sequence = near(next.sequence, first.sequence, 25);
                next.acknowledgement = near(next.acknowledgement, first.acknowledgement, 17);
            }
            compressed(&context(&first.packet()), &next.packet());
        }

        #[test]
        fn no_bytes_panic(
            first in segments(), rest in proptest::collection::vec(any::<u8>(), 0..80)
        ) {
            let mut out = vec![1];
            for packet in [first.packet(), datagram(first.v6, b"x"), frame(first.v6, b"x")] {
                let context = context(&packet);
                match context.restore(&rest, &mut out) {
                    Ok(()) => {
                        // What is handed up is a packet of the context's flow.
                        let headers = Headers::read(&out[1..]);
                        prop_assert!(headers.is_some_and(|headers| context.is_of(&headers)));
                        out.truncate(1);
                    }
                    Err(_) => prop_assert_eq!(&out, &[1]),
                }
            }
            let _ = Context::parse(&rest);
        }
    }
}
