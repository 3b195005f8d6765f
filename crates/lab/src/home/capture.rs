//! A capture of a real call: times and sizes of its RTP packets.
//!
//! The file is classic pcap or pcapng. Of its UDP packets those count that carry RTP (RFC 3550): by
//! version, by a payload type that RTCP does not use (RFC 5761, section 4), and by sequence numbers
//! that follow each other. Of several flows of RTP the one with the most packets is replayed.

use anyhow::{Context, anyhow, bail, ensure};
use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_file::DataLink;
use pcap_file::pcap::PcapParser;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgParser};
use sha2::{Digest, Sha256};
use sheaf_stage::Duration;
use sheaf_voice::emodel::Codec;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// Bytes of a file at most: an hour of G.711 both ways with Ethernet headers is 83 MB.
const MOST_BYTES: u64 = 100 << 20;
/// Least time between two packets of any stream, in the mean: 2000 a second.
pub(super) const LEAST_INTERVAL: Duration = Duration::from_micros(500);
/// Longest time that is replayed.
const LONGEST: Duration = Duration::from_secs(3_600);
/// Fewest packets of a flow: fewer can look like RTP by chance.
const FEWEST: usize = 10;
/// Largest payload of UDP: an IP packet of 1500 bytes.
const MOST_PAYLOAD: usize = 1472;
/// Bytes of an RTP header without extensions.
const RTP_HEADER: usize = 12;
/// First bytes of pcapng: the type of a section header block.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Second bytes of RTCP packets, beside marker and payload type of RTP.
const RTCP: std::ops::RangeInclusive<u8> = 192..=223;
/// Bytes of the two "cooked" headers of Linux, at the end of the one and the beginning of the other
/// the Ethernet type.
const SLL: (usize, usize) = (16, 14);
const SLL2: (usize, usize) = (20, 0);

/// The RTP packets of one call in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Time of each packet since the first, ascending.
    pub offsets: Vec<Duration>,
    /// Payload of UDP of each packet, bytes.
    pub sizes: Vec<u16>,
    /// Codec by which the call is rated: G.729 where the payload type says so, otherwise G.711.
    pub codec: Codec,
    /// SHA-256 of the file in hexadecimal digits.
    pub sha256: String,
}

/// Addresses and ports that the packets of a flow share.
type Key = (IpAddr, IpAddr, u16, u16, u32);

/// A packet of RTP.
#[derive(Clone, Copy, Debug)]
struct Rtp {
    at: Duration,
    number: u16,
    kind: u8,
    size: u16,
}

impl Capture {
    /// The call in `file`.
    ///
    /// # Errors
    /// A file that cannot be read, is damaged, empty or too long, or has no RTP.
    pub fn read(file: &Path) -> anyhow::Result<Capture> {
        let name = file.display();
        let unread = |error| {
            anyhow!("cannot read {name}: {error}; give a capture's path from the plan's folder")
        };
        let kind = std::fs::metadata(file).map_err(unread)?;
        ensure!(kind.is_file(), "{name} is not a file; give a capture");
        let mut bytes = Vec::new();
        let opened = File::open(file).map_err(unread)?;
        opened.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(unread)?;
        ensure!(
            bytes.len() as u64 <= MOST_BYTES,
            "{name} has more than {} MiB; cut it, e.g. with editcap",
            MOST_BYTES >> 20
        );
        Capture::parse(&bytes).with_context(|| format!("{name} cannot be replayed"))
    }

    /// The call in a capture of these `bytes`.
    ///
    /// # Errors
    /// The same as of [`Capture::read`], without the file's name.
    pub fn parse(bytes: &[u8]) -> anyhow::Result<Capture> {
        ensure!(!bytes.is_empty(), "it is empty; give a capture with a call");
        let mut flows = BTreeMap::<Key, Vec<Rtp>>::new();
        let mut count = 0u64;
        let mut take = |link: DataLink, at: Duration, data: &[u8]| -> anyhow::Result<()> {
            count += 1;
            if let Some((key, rtp)) = rtp(link, at, data)? {
                flows.entry(key).or_default().push(rtp);
            }
            Ok(())
        };
        if bytes.starts_with(&PCAPNG) {
            pcapng(bytes, &mut take)?
        } else {
            pcap(bytes, &mut take)?
        }
        ensure!(count > 0, "it has no packets; give a capture with a call");
        let calls = flows.into_values().filter(|packets| is_call(packets));
        // Of two equally long calls the first in the order of addresses.
        let call = calls.reduce(|best, one| if one.len() > best.len() { one } else { best });
        let mut call = call.with_context(|| {
            format!(
                "none of its {count} packets belongs to a call: {FEWEST} packets of RTP over UDP \
                 that follow each other; capture one, e.g. with tcpdump -w FILE udp"
            )
        })?;
        call.sort_by_key(|packet| packet.at);
        let first = call[0].at;
        let offsets: Vec<_> = call.iter().map(|packet| packet.at - first).collect();
        let length = offsets[offsets.len() - 1];
        ensure!(
            length <= LONGEST,
            "its call lasts for {} s; give one of up to {} s",
            length.as_secs(),
            LONGEST.as_secs()
        );
        ensure!(
            length >= LEAST_INTERVAL * (offsets.len() as u32 - 1),
            "its call has more than a packet in {} µs; give one with fewer",
            LEAST_INTERVAL.as_micros()
        );
        let codec = if call[0].kind == 18 { Codec::G729A } else { Codec::G711 };
        let sizes = call.iter().map(|packet| packet.size).collect();
        let digest = Sha256::digest(bytes);
        let sha256 = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Capture { offsets, sizes, codec, sha256 })
    }

    /// Mean time between two packets.
    pub fn gap(&self) -> Duration {
        let last = self.offsets.len() as u32 - 1;
        self.offsets[last as usize] / last
    }
}

/// Whether most packets follow the one before, by number.
fn is_call(packets: &[Rtp]) -> bool {
    let follow = |pair: &&[Rtp]| pair[1].number == pair[0].number.wrapping_add(1);
    packets.len() >= FEWEST && 2 * packets.windows(2).filter(follow).count() >= packets.len()
}

/// Takes the packets of a classic capture, one by one.
fn pcap(
    bytes: &[u8],
    take: &mut impl FnMut(DataLink, Duration, &[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (mut left, parser) = PcapParser::new(bytes).context("it is neither pcap nor pcapng")?;
    let mut number = 0;
    while !left.is_empty() {
        number += 1;
        let next = parser.next_packet(left);
        let (behind, packet) = next.with_context(|| format!("packet {number} is damaged"))?;
        take(parser.header().datalink, packet.timestamp, &packet.data)?;
        left = behind;
    }
    Ok(())
}

/// Takes the packets of a pcapng capture, one by one.
fn pcapng(
    bytes: &[u8],
    take: &mut impl FnMut(DataLink, Duration, &[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (mut left, mut parser) =
        PcapNgParser::new(bytes).context("its section header is damaged")?;
    let mut number = 0;
    while !left.is_empty() {
        number += 1;
        let next = parser.next_block(left);
        let (behind, block) = next.with_context(|| format!("block {number} is damaged"))?;
        left = behind;
        // Others have no packet with a time.
        let Block::EnhancedPacket(packet) = block else { continue };
        let interface = parser
            .packet_interface(&packet)
            .with_context(|| format!("block {number} is of an unknown interface"))?;
        // The parser takes all units for nanoseconds.
        let at = resolution(interface).time(packet.timestamp.as_nanos());
        take(interface.linktype, at, &packet.data)?;
    }
    Ok(())
}

/// Unit of an interface's time stamps: so many a second.
#[derive(Clone, Copy, Debug)]
struct Unit(u128);

impl Unit {
    fn time(self, stamp: u128) -> Duration {
        let nanos = stamp * 1_000_000_000 / self.0;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The unit that `if_tsresol` gives: a power of ten, or with the first bit set of two;
/// microseconds without it (draft-ietf-opsawg-pcapng, section 4.2).
fn resolution(interface: &InterfaceDescriptionBlock) -> Unit {
    let stated = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(value) => Some(*value),
        _ => None,
    });
    let value = stated.unwrap_or(6);
    // No clock is finer than these bounds; without them the power would overflow.
    match value & 0x80 {
        0 => Unit(10u128.pow(u32::from(value).min(18))),
        _ => Unit(1 << (value & 0x7f).min(63)),
    }
}

/// The packet of RTP in a frame, if it is one.
fn rtp(link: DataLink, at: Duration, data: &[u8]) -> anyhow::Result<Option<(Key, Rtp)>> {
    let cooked = |(header, place): (usize, usize)| {
        let kind = data.get(place..place + 2)?;
        let kind = EtherType(u16::from_be_bytes([kind[0], kind[1]]));
        Some(LaxSlicedPacket::from_ether_type(kind, data.get(header..)?))
    };
    let sliced = match link {
        DataLink::ETHERNET => LaxSlicedPacket::from_ethernet(data).ok(),
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => LaxSlicedPacket::from_ip(data).ok(),
        // Four bytes of an address family.
        DataLink::NULL | DataLink::LOOP => {
            data.get(4..).and_then(|data| LaxSlicedPacket::from_ip(data).ok())
        }
        DataLink::LINUX_SLL => cooked(SLL),
        DataLink::LINUX_SLL2 => cooked(SLL2),
        other => bail!("its link type {other:?} is not known; capture Ethernet, IP or \"any\""),
    };
    let Some(LaxSlicedPacket { net: Some(net), transport: Some(transport), .. }) = sliced else {
        return Ok(None);
    };
    let TransportSlice::Udp(udp) = transport else { return Ok(None) };
    let (from, to) = match &net {
        LaxNetSlice::Ipv4(ip) => {
            let [from, to] = [ip.header().source(), ip.header().destination()];
            (IpAddr::V4(Ipv4Addr::from(from)), IpAddr::V4(Ipv4Addr::from(to)))
        }
        LaxNetSlice::Ipv6(ip) => {
            let [from, to] = [ip.header().source(), ip.header().destination()];
            (IpAddr::V6(Ipv6Addr::from(from)), IpAddr::V6(Ipv6Addr::from(to)))
        }
        LaxNetSlice::Arp(_) => return Ok(None),
    };
    // A capture may have cut the packet off; its length is that of the UDP header.
    let size = usize::from(udp.length()).saturating_sub(8);
    let payload = udp.payload();
    let is_rtp = size >= RTP_HEADER && payload.len() >= RTP_HEADER && payload[0] >> 6 == 2;
    if !is_rtp || RTCP.contains(&payload[1]) {
        return Ok(None);
    }
    ensure!(
        size <= MOST_PAYLOAD,
        "it has RTP packets of {size} bytes; give one with packets of up to {MOST_PAYLOAD}"
    );
    let source = u32::from_be_bytes([payload[8], payload[9], payload[10], payload[11]]);
    let rtp = Rtp {
        at,
        number: u16::from_be_bytes([payload[2], payload[3]]),
        kind: payload[1] & 0x7f,
        size: size as u16,
    };
    Ok(Some(((from, to, udp.source_port(), udp.destination_port(), source), rtp)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;
    use std::path::PathBuf;

    /// Time of the first packet: captures have the time of day.
    const EPOCH: u64 = 1_700_000_000_000_000;

    /// An Ethernet frame with RTP of `size` bytes of payload of UDP.
    fn frame(from_port: u16, kind: u8, number: u16, size: usize) -> Vec<u8> {
        let mut payload = vec![0; size];
        payload[0] = 0x80;
        payload[1] = kind;
        payload[2..4].copy_from_slice(&number.to_be_bytes());
        payload[8..12].copy_from_slice(&u32::from(from_port).to_be_bytes());
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64)
            .udp(from_port, 5004)
            .write(&mut frame, &payload)
            .unwrap();
        frame
    }

    /// A classic capture of `frames` with their times in microseconds.
    fn file(frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Magic, version 2.4, zone, accuracy, longest packet, Ethernet; in network order.
        for word in [0xa1b2_c3d4u32, 0x0002_0004, 0, 0, 65_535, 1] {
            bytes.extend(word.to_be_bytes());
        }
        for (micros, frame) in frames {
            let at = EPOCH + micros;
            let length = frame.len() as u32;
            for word in [(at / 1_000_000) as u32, (at % 1_000_000) as u32, length, length] {
                bytes.extend(word.to_be_bytes());
            }
            bytes.extend(frame);
        }
        bytes
    }

    /// A call with G.711: 50 packets, of which every fifth is 3 ms late and the last is short.
    fn call() -> Vec<(u64, Vec<u8>)> {
        let packet = |number: u16| {
            let late = if number % 5 == 4 { 3_000 } else { 0 };
            let size = if number == 49 { 92 } else { 172 };
            (
                20_000 * u64::from(number) + late,
                frame(4000, 0, 65_530u16.wrapping_add(number), size),
            )
        };
        (0..50).map(packet).collect()
    }

    /// The kept capture.
    fn kept() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/call.pcap")
    }

    /// The kept beginnings of fuzzing: a short call in each format.
    fn corpus() -> [(&'static str, Vec<u8>); 2] {
        let short: Vec<_> = (0..14).map(|n| (20_000 * n, frame(4000, 0, n as u16, 40))).collect();
        [("classic", file(&short)), ("pcapng", as_pcapng(&short, Some(9), 1_000_000_000))]
    }

    #[test]
    fn the_kept_corpus_of_fuzzing_is_the_one_that_is_made_here() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/capture");
        for (name, bytes) in corpus() {
            if std::env::var_os("SHEAF_BLESS").is_some() {
                std::fs::write(folder.join(name), &bytes).unwrap();
            }
            assert_eq!(std::fs::read(folder.join(name)).unwrap(), bytes);
            assert_eq!(Capture::parse(&bytes).unwrap().offsets.len(), 14);
        }
    }

    fn refused(bytes: &[u8]) -> String {
        format!("{:#}", Capture::parse(bytes).unwrap_err())
    }

    #[test]
    fn the_kept_capture_is_the_one_that_is_made_here() {
        if std::env::var_os("SHEAF_BLESS").is_some() {
            std::fs::write(kept(), file(&call())).unwrap();
        }
        assert_eq!(std::fs::read(kept()).unwrap(), file(&call()));
    }

    #[test]
    fn times_and_sizes_are_those_of_the_capture() {
        let capture = Capture::read(&kept()).unwrap();
        assert_eq!((capture.offsets.len(), capture.codec), (50, Codec::G711));
        let micros: Vec<_> = capture.offsets.iter().map(|at| at.as_micros()).collect();
        assert_eq!(micros[..6], [0, 20_000, 40_000, 60_000, 83_000, 100_000]);
        assert_eq!((capture.sizes[0], capture.sizes[49]), (172, 92));
        assert_eq!(capture.sha256.len(), 64);
    }

    #[test]
    fn other_packets_and_shorter_calls_are_left_out() {
        let mut frames = call();
        frames.extend(
            (0..20).map(|number| (5 + 20_000 * number, frame(4002, 18, number as u16, 32))),
        );
        // Reports of RTCP, and packets whose numbers follow nothing.
        frames.extend(
            (0..90).map(|number| (7 + 9_000 * number, frame(4001, 200, number as u16, 60))),
        );
        frames.extend((0..90).map(|n| (9 + 9_000 * n, frame(4003, 0, 77 * n as u16, 60))));
        frames.sort();
        let capture = Capture::parse(&file(&frames)).unwrap();
        assert_eq!((capture.offsets.len(), capture.codec), (50, Codec::G711));
        let short: Vec<_> = frames.into_iter().filter(|(at, _)| at % 20_000 == 5).collect();
        let capture = Capture::parse(&file(&short)).unwrap();
        assert_eq!((capture.offsets.len(), capture.codec), (20, Codec::G729A));
    }

    #[test]
    fn a_capture_that_cut_packets_off_keeps_their_sizes() {
        let mut bytes = file(&[]);
        for (at, frame) in call() {
            let at = EPOCH + at;
            for word in [at / 1_000_000, at % 1_000_000, 60, frame.len() as u64] {
                bytes.extend((word as u32).to_be_bytes());
            }
            bytes.extend(&frame[..60]);
        }
        let (cut, whole) =
            (Capture::parse(&bytes).unwrap(), Capture::parse(&file(&call())).unwrap());
        assert_eq!((cut.offsets, cut.sizes), (whole.offsets, whole.sizes));
    }

    /// `frames` as pcapng whose clock has `unit` a second, as the option says.
    fn as_pcapng(frames: &[(u64, Vec<u8>)], option: Option<u8>, unit: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut block = |kind: u32, body: &[u8]| {
            let length = (12 + body.len()) as u32;
            bytes.extend(kind.to_be_bytes());
            bytes.extend(length.to_be_bytes());
            bytes.extend(body);
            bytes.extend(length.to_be_bytes());
        };
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let section: Vec<u8> = words(&[0x1a2b_3c4d, 0x0001_0000, u32::MAX, u32::MAX]);
        block(0x0a0d_0d0a, &section);
        let mut interface: Vec<u8> = words(&[0x0001_0000, 0]);
        if let Some(value) = option {
            interface.extend([0, 9, 0, 1, value, 0, 0, 0, 0, 0, 0, 0]);
        }
        block(1, &interface);
        for (at, frame) in frames {
            let stamp = at * unit / 1_000_000;
            let length = frame.len() as u32;
            let mut body: Vec<u8> = words(&[0, (stamp >> 32) as u32, stamp as u32, length, length]);
            body.extend(frame);
            body.resize(body.len().next_multiple_of(4), 0);
            block(6, &body);
        }
        bytes
    }

    #[test]
    fn pcapng_has_the_same_call_whatever_the_unit_of_its_clock() {
        let expected = Capture::parse(&file(&call())).unwrap();
        for (option, unit) in [(None, 1_000_000), (Some(9), 1_000_000_000), (Some(3), 1_000)] {
            let capture = Capture::parse(&as_pcapng(&call(), option, unit)).unwrap();
            assert_eq!(capture.offsets, expected.offsets, "{option:?}");
            assert_eq!(capture.sizes, expected.sizes);
        }
        // 2²⁰ a second: within a microsecond.
        let capture = Capture::parse(&as_pcapng(&call(), Some(0x94), 1 << 20)).unwrap();
        let pairs = capture.offsets.iter().zip(&expected.offsets);
        assert!(pairs.into_iter().all(|(one, other)| one.abs_diff(*other).as_nanos() < 1_000));
    }

    #[test]
    fn what_cannot_be_replayed_is_refused_with_the_reason() {
        assert!(refused(&[]).contains("it is empty"));
        assert!(refused(b"hello, this is no capture at all").contains("neither pcap nor pcapng"));
        assert!(refused(&file(&[])).contains("it has no packets"));
        let whole = file(&call());
        assert!(refused(&whole[..whole.len() - 1]).contains("packet 50 is damaged"));
        assert!(refused(&file(&call()[..9])).contains("none of its 9 packets belongs to a call"));
        let slow = |(number, (_, frame)): (u64, (u64, Vec<u8>))| (400_000_000 * number, frame);
        let long: Vec<_> = (0..).zip(call()).map(slow).collect();
        assert!(refused(&file(&long)).contains("lasts for 19600 s; give one of up to 3600 s"));
        let still: Vec<_> = call().into_iter().map(|(_, frame)| (0, frame)).collect();
        assert!(refused(&file(&still)).contains("more than a packet in 500 µs"));
        let large: Vec<_> = (0..20).map(|n| (20_000 * n, frame(1, 96, n as u16, 1473))).collect();
        assert!(refused(&file(&large)).contains("1473 bytes"));
        let mut other = whole;
        other[20..24].copy_from_slice(&105u32.to_be_bytes());
        assert!(refused(&other).contains("link type"), "{}", refused(&other));
        let missing = Capture::read(Path::new("no/such.pcap")).unwrap_err();
        let missing = format!("{missing:#}");
        assert!(missing.starts_with("cannot read no/such.pcap: No such file"), "{missing}");
        assert!(missing.ends_with("; give a capture's path from the plan's folder"), "{missing}");
        let folder = Capture::read(Path::new("/")).unwrap_err();
        assert!(format!("{folder:#}").contains("is not a file"));
    }

    #[test]
    fn no_damage_of_a_byte_makes_it_panic() {
        for (_, whole) in corpus() {
            for at in 0..whole.len() {
                for mask in [0x01, 0x80, 0xff] {
                    let mut damaged = whole.clone();
                    damaged[at] ^= mask;
                    let Ok(capture) = Capture::parse(&damaged) else { continue };
                    assert!(capture.offsets.is_sorted());
                    assert!(capture.gap() >= LEAST_INTERVAL);
                }
                let _ = Capture::parse(&whole[..at]);
            }
        }
    }
}
