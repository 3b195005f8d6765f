//! Segments on the wire: IPv4 (RFC 791), TCP (RFC 9293), and its options.
//!
//! ```text
//! | IPv4 header, 20 | TCP header, 20 | options, 0 to 40 | data |
//! ```
//!
//! Options stand as Linux writes them. A SYN has the maximum segment size, "SACK permitted", time
//! stamps and the window scale; other segments have two fillers and time stamps (RFC 7323), and,
//! behind two more, up to three ranges of selective acknowledgements (RFC 2018, RFC 2883). Data is
//! zeros: only its length matters here.

use crate::refusal::Refusal;
use sheaf_wire::checksum;
use sheaf_wire::ip::{Ip, Protocol, Version};
use std::net::Ipv4Addr;

/// Bytes of an IPv4 header without options, and of a TCP header without options.
pub(crate) const IP_HEADER: usize = 20;
pub(crate) const TCP_HEADER: usize = 20;
/// Bytes of the time stamps and their two fillers.
pub(crate) const STAMPS: usize = 12;
/// Ranges of selective acknowledgements beside time stamps: 40 bytes have no room for more.
pub(crate) const SACKS: usize = 3;
/// Ranges that a segment without time stamps has room for.
const MOST_SACKS: usize = 4;
/// Largest shift of the window (RFC 7323, section 2.3).
pub(crate) const MOST_SCALE: u8 = 14;

/// Kinds of options.
const END: u8 = 0;
const FILLER: u8 = 1;
const SEGMENT_SIZE: u8 = 2;
const SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIME: u8 = 8;

/// Flags of the header.
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// "Do not fragment", as Linux sets it on segments.
const DONT_FRAGMENT: [u8; 2] = [0x40, 0];
/// Hops that a packet may take, as on Linux.
const TTL: u8 = 64;

/// Addresses and ports of a segment, as its sender sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub source: (Ipv4Addr, u16),
    pub destination: (Ipv4Addr, u16),
}

/// Selective acknowledgements, first the newest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sacks {
    blocks: [(u32, u32); MOST_SACKS],
    len: usize,
}

impl Sacks {
    /// Adds a range; one for which there is no room is left out.
    pub fn push(&mut self, start: u32, end: u32) {
        if let Some(block) = self.blocks.get_mut(self.len) {
            *block = (start, end);
            self.len += 1;
        }
    }

    pub fn as_slice(&self) -> &[(u32, u32)] {
        &self.blocks[..self.len]
    }
}

/// A segment without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub path: Path,
    pub sequence: u32,
    /// The number acknowledged, where the flag is set.
    pub acknowledges: Option<u32>,
    pub syn: bool,
    pub fin: bool,
    /// Whether its receiver is to acknowledge it at once.
    pub push: bool,
    /// As it stands in the header, not yet scaled.
    pub window: u16,
    /// Maximum segment size.
    pub mss: Option<u16>,
    pub scale: Option<u8>,
    pub sack_permitted: bool,
    pub sacks: Sacks,
    /// The sender's time stamp, and the echo of the receiver's.
    pub stamps: Option<(u32, u32)>,
    /// Bytes of data.
    pub payload: usize,
}

impl Segment {
    /// A segment on `path` with no flag, option or data.
    pub fn new(path: Path, sequence: u32) -> Segment {
        Segment {
            path,
            sequence,
            acknowledges: None,
            syn: false,
            fin: false,
            push: false,
            window: 0,
            mss: None,
            scale: None,
            sack_permitted: false,
            sacks: Sacks::default(),
            stamps: None,
            payload: 0,
        }
    }

    /// Reads and checks the segment in `packet`.
    ///
    /// # Errors
    /// The reason for which it cannot be used. Both checksums have to be right.
    pub fn parse(packet: &[u8]) -> Result<Segment, Refusal> {
        let ip = Ip::parse(packet).map_err(|_| Refusal::Truncated)?;
        if ip.version() != Version::V4 || ip.protocol() != Protocol::TCP || ip.is_fragment() {
            return Err(Refusal::NotTcp);
        }
        let tcp = ip.transport();
        let Some((header, _)) = tcp.split_first_chunk::<TCP_HEADER>() else {
            return Err(Refusal::Truncated);
        };
        let offset = usize::from(header[12] >> 4) * 4;
        if !(TCP_HEADER..=tcp.len()).contains(&offset) {
            return Err(Refusal::Truncated);
        }
        let pseudo = u32::from(Protocol::TCP.0) + tcp.len() as u32;
        let whole = checksum::sum(tcp, checksum::sum(ip.addresses(), pseudo));
        let ip_header = &ip.bytes()[..ip.header_len()];
        if checksum::fold(whole) != 0xffff || checksum::ipv4_header(ip_header) != 0 {
            return Err(Refusal::Checksum);
        }
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let double = |at: usize| u32::from(word(at)) << 16 | u32::from(word(at + 2));
        let address = |at: usize| {
            let bytes = ip.addresses();
            Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3])
        };
        let flags = header[13];
        if flags & RST != 0 {
            return Err(Refusal::Reset);
        }
        let path = Path { source: (address(0), word(0)), destination: (address(4), word(2)) };
        let mut segment = Segment {
            acknowledges: (flags & ACK != 0).then(|| double(8)),
            syn: flags & SYN != 0,
            fin: flags & FIN != 0,
            push: flags & PSH != 0,
            window: word(14),
            payload: tcp.len() - offset,
            ..Segment::new(path, double(4))
        };
        segment.read_options(&tcp[TCP_HEADER..offset])?;
        Ok(segment)
    }

    /// Reads the options. Unknown ones are skipped (RFC 9293, section 3.1).
    fn read_options(&mut self, mut options: &[u8]) -> Result<(), Refusal> {
        while let Some((kind, rest)) = options.split_first() {
            match *kind {
                END => break,
                FILLER => {
                    options = rest;
                    continue;
                }
                _ => {}
            }
            let len = usize::from(*rest.first().ok_or(Refusal::Options)?);
            let body = options.get(2..len).ok_or(Refusal::Options)?;
            let double = |at: usize| {
                u32::from_be_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]])
            };
            match (*kind, body.len()) {
                (SEGMENT_SIZE, 2) => self.mss = Some(u16::from_be_bytes([body[0], body[1]])),
                (SCALE, 1) => self.scale = Some(body[0].min(MOST_SCALE)),
                (SACK_PERMITTED, 0) => self.sack_permitted = true,
                (SACK, len) if len > 0 && len % 8 == 0 => {
                    (0..len / 8).for_each(|at| self.sacks.push(double(at * 8), double(at * 8 + 4)));
                }
                (TIME, 8) => self.stamps = Some((double(0), double(4))),
                (SEGMENT_SIZE | SCALE | SACK_PERMITTED | SACK | TIME, _) => {
                    return Err(Refusal::Options);
                }
                _ => {}
            }
            options = &options[len..];
        }
        Ok(())
    }

    /// Writes the segment as a packet, with both checksums and its data of zeros.
    pub fn emit(&self, packet: &mut Vec<u8>) {
        packet.clear();
        packet.resize(IP_HEADER + TCP_HEADER, 0);
        self.write_options(packet);
        let header = packet.len();
        let len = header + self.payload;
        let (ip, tcp) = packet.split_at_mut(IP_HEADER);
        (ip[0], ip[8], ip[9]) = (0x45, TTL, Protocol::TCP.0);
        ip[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        ip[6..8].copy_from_slice(&DONT_FRAGMENT);
        ip[12..16].copy_from_slice(&self.path.source.0.octets());
        ip[16..20].copy_from_slice(&self.path.destination.0.octets());
        let checksum = checksum::ipv4_header(ip);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());

        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        tcp[0..2].copy_from_slice(&self.path.source.1.to_be_bytes());
        tcp[2..4].copy_from_slice(&self.path.destination.1.to_be_bytes());
        tcp[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        tcp[8..12].copy_from_slice(&self.acknowledges.unwrap_or(0).to_be_bytes());
        tcp[12] = ((tcp.len() / 4) << 4) as u8;
        tcp[13] = flag(self.syn, SYN)
            | flag(self.fin, FIN)
            | flag(self.push, PSH)
            | flag(self.acknowledges.is_some(), ACK);
        tcp[14..16].copy_from_slice(&self.window.to_be_bytes());
        // Data of zeros adds nothing to the sum.
        let pseudo = u32::from(Protocol::TCP.0) + (len - IP_HEADER) as u32;
        let sum = checksum::sum(tcp, checksum::sum(&ip[12..20], pseudo));
        tcp[16..18].copy_from_slice(&(!checksum::fold(sum)).to_be_bytes());
        packet.resize(len, 0);
    }

    fn write_options(&self, packet: &mut Vec<u8>) {
        if let Some(mss) = self.mss {
            packet.extend([SEGMENT_SIZE, 4]);
            packet.extend(mss.to_be_bytes());
        }
        // Linux saves the fillers of the time stamps where "SACK permitted" stands before them.
        if self.sack_permitted {
            packet.extend([SACK_PERMITTED, 2]);
        } else if self.stamps.is_some() {
            packet.extend([FILLER, FILLER]);
        }
        if let Some((stamp, echo)) = self.stamps {
            packet.extend([TIME, 10]);
            packet.extend(stamp.to_be_bytes());
            packet.extend(echo.to_be_bytes());
        } else if self.sack_permitted {
            packet.extend([FILLER, FILLER]);
        }
        if let Some(scale) = self.scale {
            packet.extend([FILLER, SCALE, 3, scale]);
        }
        let sacks = self.sacks.as_slice();
        if !sacks.is_empty() {
            packet.extend([FILLER, FILLER, SACK, 2 + 8 * sacks.len() as u8]);
            for (start, end) in sacks {
                packet.extend(start.to_be_bytes());
                packet.extend(end.to_be_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, SlicedPacket, TcpOptionElement, TransportSlice};

    const PATH: Path = Path {
        source: (Ipv4Addr::new(10, 0, 0, 1), 40_001),
        destination: (Ipv4Addr::new(10, 0, 0, 2), 5001),
    };

    fn syn() -> Segment {
        Segment {
            syn: true,
            window: 64_240,
            mss: Some(1460),
            scale: Some(7),
            sack_permitted: true,
            stamps: Some((77, 0)),
            ..Segment::new(PATH, 0xdead_beef)
        }
    }

    fn data() -> Segment {
        let mut segment = Segment {
            acknowledges: Some(5),
            window: 4711,
            stamps: Some((1, 2)),
            payload: 1001,
            fin: true,
            push: true,
            ..Segment::new(PATH, 9)
        };
        segment.sacks.push(100, 200);
        segment.sacks.push(u32::MAX, 3);
        segment
    }

    #[test]
    fn a_segment_is_read_as_it_was_written() {
        let mut packet = Vec::new();
        let bare = Segment { payload: 3, ..Segment::new(PATH, 1) };
        let plain = Segment { sack_permitted: true, syn: true, ..Segment::new(PATH, 1) };
        for segment in [syn(), data(), bare, plain] {
            segment.emit(&mut packet);
            assert_eq!(Segment::parse(&packet), Ok(segment));
        }
    }

    #[test]
    fn another_parser_reads_the_same_headers_options_and_checksums() {
        let mut packet = Vec::new();
        for segment in [syn(), data()] {
            segment.emit(&mut packet);
            let sliced = SlicedPacket::from_ip(&packet).unwrap();
            let Some(NetSlice::Ipv4(ip)) = sliced.net else { panic!("no IPv4") };
            let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { panic!("no TCP") };
            let ip = ip.header();
            assert_eq!(ip.header_checksum(), ip.to_header().calc_header_checksum());
            let checksum =
                tcp.calc_checksum_ipv4(ip.to_header().source, ip.to_header().destination);
            assert_eq!(tcp.checksum(), checksum.unwrap());
            assert_eq!((tcp.source_port(), tcp.destination_port()), (40_001, 5001));
            assert_eq!(tcp.sequence_number(), segment.sequence);
            assert_eq!(tcp.payload().len(), segment.payload);
            let elements: Vec<_> = tcp.options_iterator().map(Result::unwrap).collect();
            let (stamp, echo) = segment.stamps.unwrap();
            assert!(elements.contains(&TcpOptionElement::Timestamp(stamp, echo)));
            let sacks = TcpOptionElement::SelectiveAcknowledgement(
                (100, 200),
                [Some((u32::MAX, 3)), None, None],
            );
            assert_eq!(elements.contains(&sacks), !segment.syn);
            assert_eq!(elements.contains(&TcpOptionElement::WindowScale(7)), segment.syn);
        }
    }

    #[test]
    fn what_is_no_sound_segment_is_refused_with_its_reason() {
        let mut whole = Vec::new();
        data().emit(&mut whole);
        let changed = |at: usize, value: u8| {
            let mut packet = whole.clone();
            packet[at] = value;
            Segment::parse(&packet).unwrap_err()
        };
        assert_eq!(Segment::parse(&[]), Err(Refusal::Truncated));
        assert_eq!(Segment::parse(&whole[..whole.len() - 1]), Err(Refusal::Truncated));
        assert_eq!(changed(9, 17), Refusal::NotTcp);
        assert_eq!(changed(6, 0x20), Refusal::NotTcp, "a fragment");
        assert_eq!(changed(32, 0x40), Refusal::Truncated, "a header of 16 bytes");
        assert_eq!(changed(8, 63), Refusal::Checksum, "of the IP header");
        assert_eq!(changed(100, 1), Refusal::Checksum, "of the data");
        let mut segment = data();
        segment.payload = 0;
        let mut packet = Vec::new();
        segment.emit(&mut packet);
        // The length of the time stamps, with the checksum made right again.
        for len in [0, 1, 9, 200] {
            let mut broken = packet.clone();
            broken[43] = len;
            checksum::adjust(&mut broken[36..38], 0x0800 | 10, 0x0800 | u16::from(len));
            assert_eq!(Segment::parse(&broken), Err(Refusal::Options), "{len}");
        }
        let mut reset = packet.clone();
        reset[33] |= RST;
        let flags = |packet: &[u8]| u16::from_be_bytes([packet[32], packet[33]]);
        let (before, after) = (flags(&packet), flags(&reset));
        checksum::adjust(&mut reset[36..38], before, after);
        assert_eq!(Segment::parse(&reset), Err(Refusal::Reset));
    }
}
