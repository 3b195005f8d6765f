//! Format 2 from aggregator to splitter: full frames, compressed headers, and links that lose,
//! repeat, reorder and re-mark frames.

use proptest::prelude::*;
use proptest::sample::Index;
use sheaf_aggregate::{
    Aggregator, Config, Device, Format, Frame, Hop, HopId, Outbound, Refused, Senders, Split,
    Splitter, Threshold,
};
use sheaf_stage::{Duration, Instant, Stage};
use sheaf_wire::aggfrag::{self, Header};
use sheaf_wire::checksum;
use sheaf_wire::compress::feedback::{Feedback, Item};
use sheaf_wire::compress::{Definition, IdRule, Rules};
use sheaf_wire::ecn::Ecn;
use sheaf_wire::header::set_ecn;
use sheaf_wire::ip::{Ip, Protocol};
use sheaf_wire::meta::{HOP_LIMIT_NEIGHBOUR, Outer, Refusal, Repr};
use std::collections::BTreeMap;

const OUTER: Outer = Outer::V4 {
    src: std::net::Ipv4Addr::new(10, 0, 0, 1),
    dst: std::net::Ipv4Addr::new(10, 0, 0, 2),
};
const BUSY: Device = Device::Reports { waiting: 2, limit: 50 };
const READY: Device = Device::Reports { waiting: 0, limit: 50 };
/// Bytes of the outer header and that of the frame.
const HEADERS: usize = 24;
const EF: u8 = 46;
const SECRET: u64 = 0x005e_c2e7;

/// A voice packet: RTP with the time stamp of `offset`, and the flow's number in the source port.
fn rtp(flow: u16, sequence: u16, offset: u32, len: usize, dscp: u8) -> Vec<u8> {
    let mut datagram = vec![0x80, 18];
    datagram.extend_from_slice(&sequence.to_be_bytes());
    let timestamp = offset.wrapping_add(160 * u32::from(sequence));
    datagram.extend_from_slice(&timestamp.to_be_bytes());
    datagram.extend_from_slice(&[0xca, 0xfe, 0, flow as u8]);
    datagram.extend((0..len).map(|byte| (byte as u16 * 5).wrapping_add(sequence ^ flow) as u8));
    let mut packet = Vec::new();
    etherparse::PacketBuilder::ipv4([10, 1, 0, 1], [10, 1, 0, 2], 63)
        .udp(4000 + flow, 5004)
        .write(&mut packet, &datagram)
        .unwrap();
    packet[1] = dscp << 2;
    packet[4..6].copy_from_slice(&sequence.wrapping_mul(1).wrapping_add(flow).to_be_bytes());
    reseal(&mut packet);
    packet
}

fn voice(flow: u16, sequence: u16) -> Vec<u8> {
    rtp(flow, sequence, 5_000, 20, EF)
}

fn reseal(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let checksum = checksum::ipv4_header(&packet[..20]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

fn flow(packet: &[u8]) -> u16 {
    Ip::parse(packet).unwrap().ports().unwrap().0
}

/// An aggregator whose device is busy, and the splitter at the other end.
struct Link {
    aggregator: Aggregator,
    hop: HopId,
    splitter: Splitter,
    now: Instant,
    out: Vec<Vec<u8>>,
}

impl Link {
    fn new(format: Format, config: Config) -> Link {
        let mut aggregator = Aggregator::new(config).unwrap();
        let hop = aggregator.add_hop(Hop { format, ..Hop::neighbour(OUTER) });
        aggregator.set_device(BUSY, Instant::ZERO);
        let splitter = Splitter::accepting_any().with_frames(SECRET);
        Link { aggregator, hop, splitter, now: Instant::ZERO, out: Vec::new() }
    }

    fn compressed() -> Link {
        Link::new(Format::Compressed, Config { queue_frames: 256, ..Config::default() })
    }

    /// Takes a packet, and returns the frames that the busy device is given all the same.
    fn send(&mut self, packet: Vec<u8>) -> Vec<Frame> {
        self.aggregator
            .enqueue(Outbound { hop: self.hop, mark: 0, packet }, self.now)
            .expect("a packet");
        self.drain()
    }

    fn drain(&mut self) -> Vec<Frame> {
        std::iter::from_fn(|| self.aggregator.dequeue(self.now)).collect()
    }

    /// All frames that wait.
    fn flush(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while self.aggregator.held() > 0 {
            self.aggregator.set_device(READY, self.now);
            frames.extend(self.drain());
            self.now += Config::default().hold;
            frames.extend(self.drain());
        }
        self.aggregator.set_device(BUSY, self.now);
        frames
    }

    /// The other end receives a frame; returns what it says.
    fn receive(&mut self, frame: &[u8]) -> Result<Feedback, Refused> {
        if Ip::parse(frame).unwrap().protocol() != Protocol::META {
            self.out.push(frame.to_vec());
            return Ok(Feedback::default());
        }
        let out = &mut self.out;
        match self.splitter.split(&mut frame.to_vec(), |packet| out.push(packet.to_vec()))? {
            Split::Delivered(feedback) => Ok(feedback),
            Split::Heard(_) => panic!("the aggregator sends no feedback"),
        }
    }

    /// Passes frames on, and what the other end says back.
    fn exchange(&mut self, frames: Vec<Frame>) {
        for frame in frames {
            let feedback = self.receive(&frame.bytes).expect("no damage");
            self.aggregator.said(self.hop, &feedback, self.now);
        }
    }

    fn pass(&mut self, packet: Vec<u8>) {
        let frames = self.send(packet);
        self.exchange(frames);
    }

    fn finish(&mut self) {
        let frames = self.flush();
        self.exchange(frames);
    }

    /// Lets the contexts of these flows be known: three packets of each, in one frame each time.
    fn learn(&mut self, flows: std::ops::Range<u16>) {
        for sequence in 0..3 {
            flows.clone().for_each(|flow| self.pass(voice(flow, sequence)));
            self.finish();
        }
    }
}

/// The payload of a frame behind its outer header.
fn payload(frame: &[u8]) -> &[u8] {
    Repr::with_payload(frame).unwrap().1
}

#[test]
fn a_voice_packet_costs_27_bytes_in_a_frame_of_eight() {
    let mut link = Link::compressed();
    link.learn(0..8);
    link.out.clear();
    (0..8).for_each(|flow| link.pass(voice(flow, 3)));
    let frames = link.flush();
    assert_eq!(frames.len(), 1);
    assert_eq!((frames[0].packets, frames[0].bytes.len()), (8, 8 * 27));
    link.exchange(frames);
    assert_eq!(link.out, (0..8).map(|flow| voice(flow, 3)).collect::<Vec<_>>());
}

#[test]
fn frames_are_full_and_a_packet_that_does_not_fit_continues_in_the_next() {
    let config = Config { max: 500, queue_frames: 256, ..Config::default() };
    let mut link = Link::new(Format::Frames, config);
    let packets: Vec<_> = (0..40).map(|sequence| rtp(1, sequence, 0, 33, 0)).collect();
    packets.iter().for_each(|packet| link.pass(packet.clone()));
    let frames = link.flush();
    let (last, full) = frames.split_last().unwrap();
    assert!(full.iter().all(|frame| frame.bytes.len() == 500), "all but the last");
    assert!(last.bytes.len() <= 500);
    assert_eq!(frames.iter().map(|frame| frame.packets).sum::<u32>(), 40);
    link.exchange(frames);
    assert_eq!(link.out, packets);
}

#[test]
fn a_packet_that_leaves_alone_has_no_header_that_makes_it_longer() {
    for format in [Format::Frames, Format::Compressed] {
        let mut link = Link::new(format, Config::default());
        link.pass(voice(1, 0));
        let frames = link.flush();
        assert_eq!(frames[0].bytes, voice(1, 0));
    }
}

#[test]
fn a_splitter_that_was_not_told_of_format_2_refuses_it_as_before() {
    let mut link = Link::compressed();
    (0..4).for_each(|flow| link.pass(voice(flow, 0)));
    let mut frame = link.flush().remove(0).bytes;
    let refused = Splitter::accepting_any().split(&mut frame, |_| panic!("delivered"));
    assert_eq!(refused, Err(Refused::Meta(Refusal::BadVersion)));
}

#[test]
fn a_splitter_that_starts_again_knows_all_contexts_after_one_round_trip() {
    let mut link = Link::compressed();
    link.learn(0..20);
    link.splitter = Splitter::accepting_any().with_frames(SECRET + 1);
    link.out.clear();
    // What is on its way is lost, …
    (0..20).for_each(|flow| link.pass(voice(flow, 3)));
    link.finish();
    assert_eq!(link.out, Vec::<Vec<u8>>::new());
    // … the first answer makes all flows define their contexts, and then they are used.
    (0..20).for_each(|flow| link.pass(voice(flow, 4)));
    link.finish();
    (0..20).for_each(|flow| link.pass(voice(flow, 5)));
    let frames = link.flush();
    assert_eq!(frames[0].bytes.len(), HEADERS + 20 * 24);
    link.exchange(frames);
    let expected = (4..6).flat_map(|sequence| (0..20).map(move |flow| voice(flow, sequence)));
    assert_eq!(link.out, expected.collect::<Vec<_>>());
}

#[test]
fn a_context_is_used_only_after_its_own_definition_was_acknowledged() {
    let mut link = Link::compressed();
    let mut said = Vec::new();
    for sequence in 0..10 {
        (0..2).for_each(|flow| link.pass(voice(flow, sequence)));
        for frame in link.flush() {
            said.push(link.receive(&frame.bytes).unwrap());
            assert!(frame.bytes.len() >= HEADERS + 2 * 60, "compressed without being asked");
        }
        // What another definition is acknowledged with counts nothing.
        let mut wrong = Feedback::default();
        wrong.push(Item::Known { tag: 0, number: 0, generation: 1, check: 0xbad });
        link.aggregator.said(link.hop, &wrong, link.now);
    }
    said.iter().for_each(|feedback| link.aggregator.said(link.hop, feedback, link.now));
    (0..2).for_each(|flow| link.pass(voice(flow, 10)));
    // Behind definitions that are many packets ago, the long form.
    let frames = link.flush();
    assert!(frames[0].bytes.len() <= HEADERS + 2 * 29);
    link.exchange(frames);
    assert_eq!(link.out.len(), 22);
}

/// A frame with one definition of context `number`, as the aggregator of `link` would send it.
fn forged(number: u8, packet: &[u8], sequence: u8) -> Vec<u8> {
    let rules = Rules { rtp: true, id: IdRule::Follows, stride: 160 };
    let repr = Repr { outer: OUTER, dscp: EF, ecn: Ecn::NotEct, hop_limit: HOP_LIMIT_NEIGHBOUR };
    let mut frame = vec![0; repr.header_len()];
    frame.extend_from_slice(&Header { tag: 0, sequence, offset: 0 }.emit());
    frame.extend_from_slice(&Definition::header(number, rules));
    frame.extend_from_slice(packet);
    let len = frame.len();
    repr.emit(len, &mut frame);
    frame
}

#[test]
fn a_forged_context_stops_a_flow_for_a_round_trip_and_never_becomes_another() {
    let mut link = Link::compressed();
    link.learn(0..2);
    for round in 0..500u16 {
        // The forger has seen everything, and takes care that all checksums and CRCs agree: two
        // words of the addresses change against each other.
        let mut victim = voice(0, 3 + 2 * round);
        victim[15] += 1;
        victim[19] -= 1;
        let frame = forged((round % 2) as u8, &victim, (round * 3) as u8);
        let feedback = link.receive(&frame).unwrap();
        link.aggregator.said(link.hop, &feedback, link.now);
        link.out.clear();
        for step in 0..2 {
            (0..2).for_each(|flow| link.pass(voice(flow, 3 + 2 * round + step)));
            link.finish();
        }
        for packet in &link.out {
            let sequence = u16::from_be_bytes([packet[30], packet[31]]);
            assert_eq!(*packet, voice(flow(packet) - 4000, sequence));
        }
        let arrived = link.out.iter().filter(|packet| packet[31] == (4 + 2 * round) as u8);
        assert_eq!(arrived.count(), 2, "what was sent after the answer arrives");
    }
}

#[test]
fn a_packet_inside_a_payload_does_not_come_out_when_a_context_has_the_wrong_length() {
    let mut link = Link::compressed();
    link.learn(0..2);
    // A context without payload, so that the next block seems to begin where the payload does, …
    link.receive(&forged(0, &rtp(0, 3, 5_000, 0, EF), 200)).unwrap();
    link.out.clear();
    // … and there somebody put a packet of his own.
    let inside = sheaf_wire::ip::example_v4();
    let mut packet = voice(0, 3);
    packet[40..60].copy_from_slice(&inside);
    packet[26..28].fill(0);
    let pseudo = checksum::sum(&packet[12..20], 17 + 40);
    let checksum = !checksum::fold(checksum::sum(&packet[20..], pseudo));
    packet[26..28].copy_from_slice(&checksum.to_be_bytes());
    let mut frames = Vec::new();
    for packet in [packet, voice(1, 3)] {
        frames.extend(link.send(packet));
    }
    frames.extend(link.flush());
    assert_eq!(frames[0].bytes.len(), HEADERS + 2 * 24, "both are compressed");
    let feedback = link.receive(&frames[0].bytes).unwrap();
    assert_eq!(feedback.items(), [Item::Unknown { tag: 0, number: 0 }]);
    assert_eq!(link.out, [voice(1, 3)], "the packet behind it shows where the blocks are");
}

#[test]
fn streams_that_are_re_marked_to_one_class_are_told_apart() {
    let mut link = Link::compressed();
    let mut expected = Vec::new();
    for sequence in 0..400 {
        for (flow, dscp) in [(0, EF), (1, 0), (2, 8)] {
            let packet = rtp(flow, sequence, 0, 60, dscp);
            expected.push(packet.clone());
            assert_eq!(link.send(packet), []);
        }
        if sequence % 30 == 29 {
            for mut frame in link.flush() {
                // Somebody on the way forgets the class.
                frame.bytes[1] &= 3;
                if Ip::parse(&frame.bytes).unwrap().protocol() == Protocol::META {
                    reseal(&mut frame.bytes);
                }
                let feedback = link.receive(&frame.bytes).unwrap();
                link.aggregator.said(link.hop, &feedback, link.now);
            }
        }
    }
    link.finish();
    let of = |all: &[Vec<u8>], port: u16| -> Vec<Vec<u8>> {
        all.iter().filter(|packet| flow(packet) == 4000 + port).cloned().collect()
    };
    (0..3).for_each(|port| assert_eq!(of(&link.out, port), of(&expected, port)));
    let received = link.splitter.received().unwrap();
    assert_eq!((received.unjoined, received.missing, received.unrestored), (0, 0, 0));
}

#[test]
fn parts_of_two_packets_that_look_like_one_are_not_joined() {
    // Two senders one after the other at the same address, or 256 lost frames: the numbers follow
    // each other, and the rest is as long as it should be.
    let frames = |flow| {
        let mut link = link(Format::Frames, 300);
        (0..10).for_each(|sequence| link.pass(voice(flow, sequence)));
        link.flush()
    };
    let (before, after) = (frames(1), frames(2));
    let mut link = link(Format::Frames, 300);
    link.receive(&before[0].bytes).unwrap();
    link.receive(&after[1].bytes).unwrap();
    let sent = |packet: &Vec<u8>| (1..=2).any(|flow| (0..10).any(|n| voice(flow, n) == *packet));
    assert!(link.out.iter().all(sent));
    assert_eq!(link.splitter.received().unwrap().unjoined, 1);
    assert_eq!(link.out.len() as u32, before[0].packets + after[1].packets - 1);
}

#[test]
fn a_congestion_mark_breaks_no_stream_and_reaches_the_packet_that_was_cut() {
    for ecn in [Ecn::Ect0, Ecn::Ect1] {
        let mut link = link(Format::Frames, 300);
        let packet = |sequence| {
            let mut packet = voice(1, sequence);
            set_ecn(&mut packet, ecn);
            packet
        };
        (0..10).for_each(|sequence| link.pass(packet(sequence)));
        let frames = link.flush();
        for (index, mut frame) in frames.into_iter().enumerate() {
            if index == 1 {
                set_ecn(&mut frame.bytes, Ecn::Ce);
            }
            link.receive(&frame.bytes).unwrap();
        }
        let marks: Vec<_> =
            link.out.iter().map(|packet| Ip::parse(packet).unwrap().ecn()).collect();
        // 276 bytes: four packets and a part of the fifth; a part of the ninth after that.
        let marked = 4..=8;
        for (index, mark) in marks.iter().enumerate() {
            assert_eq!(*mark == Ecn::Ce, marked.contains(&index), "packet {index}");
        }
        assert_eq!(marks.len(), 10);
    }
}

#[test]
fn a_neighbour_that_invents_senders_stops_no_named_one() {
    let named = OUTER.source();
    let senders = Senders { any: true, ..Senders::neighbours([named]) };
    let mut link = Link::compressed();
    link.splitter = Splitter::new(senders).with_frames(SECRET);
    link.learn(0..4);
    for invented in 0..2000u32 {
        let src = std::net::Ipv4Addr::from(0x0a10_0000 + invented);
        let outer = Outer::V4 { src, dst: [10, 0, 0, 2].into() };
        let repr = Repr { outer, dscp: 0, ecn: Ecn::NotEct, hop_limit: HOP_LIMIT_NEIGHBOUR };
        let mut frame = forged(0, &voice(9, 0), 0);
        let len = frame.len();
        repr.emit(len, &mut frame);
        link.receive(&frame).expect("it takes the place of another invented one");
    }
    link.out.clear();
    (0..4).for_each(|flow| link.pass(voice(flow, 3)));
    link.finish();
    assert_eq!(link.out, (0..4).map(|flow| voice(flow, 3)).collect::<Vec<_>>());
    assert_eq!(link.splitter.received().unwrap().unrestored, 0);
}

#[test]
fn a_stranger_gets_no_stream_and_changes_nothing() {
    let mut link = Link::compressed();
    link.splitter = Splitter::accepting([OUTER.source()]).with_frames(SECRET);
    link.learn(0..2);
    let mut frame = forged(0, &voice(9, 0), 200);
    frame[8] = 64;
    reseal(&mut frame);
    assert_eq!(link.receive(&frame), Err(Refused::Meta(Refusal::NotFromTheLink)));
    frame[8] = 255;
    frame[15] = 99;
    reseal(&mut frame);
    assert_eq!(link.receive(&frame), Err(Refused::Meta(Refusal::UnknownPeer)));
    link.out.clear();
    (0..2).for_each(|flow| link.pass(voice(flow, 3)));
    link.finish();
    assert_eq!(link.out.len(), 2);
}

#[test]
fn frames_under_way_survive_smaller_frames_and_another_format() {
    let mut link = Link::new(Format::Compressed, Config { max: 1500, ..Config::default() });
    let mut sent = Vec::new();
    for (sequence, change) in [
        (0u16, Hop { format: Format::Compressed, ..Hop::neighbour(OUTER) }),
        (50, Hop { format: Format::Compressed, max: Some(200), ..Hop::neighbour(OUTER) }),
        (100, Hop::neighbour(OUTER)),
        (150, Hop { format: Format::Frames, ..Hop::neighbour(OUTER) }),
    ] {
        link.aggregator.set_hop(link.hop, change);
        for sequence in sequence..sequence + 50 {
            sent.push(voice(1, sequence));
            link.pass(voice(1, sequence));
        }
    }
    link.finish();
    assert_eq!(link.out, sent);
}

#[test]
fn a_message_from_the_other_end_is_handed_to_the_caller() {
    let mut feedback = Feedback::default();
    feedback.push(Item::Lost { tag: 3 });
    let frame = Repr { outer: OUTER, dscp: EF, ecn: Ecn::NotEct, hop_limit: HOP_LIMIT_NEIGHBOUR };
    let mut packet = feedback.packet(&frame.reply());
    let mut splitter = Splitter::accepting([OUTER.destination()]).with_frames(1);
    let split = splitter.split(&mut packet, |_| panic!("no packet")).unwrap();
    assert_eq!(split, Split::Heard(feedback));
}

/// Packets of a few flows: voice with silences and jumps, and datagrams of any length.
fn traffic() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let step = (0u16..6, prop_oneof![4 => Just(20usize), 1 => 0usize..230], 0u32..20, 0u8..3);
    proptest::collection::vec(step, 1..200).prop_map(|steps| {
        let mut sequences: BTreeMap<u16, (u16, u32)> = BTreeMap::new();
        steps
            .into_iter()
            .map(|(flow, len, jump, class)| {
                let (sequence, offset) = sequences.entry(flow).or_insert((flow * 7_000, 0));
                *sequence = sequence.wrapping_add(1);
                if jump == 0 {
                    *offset += 12_345;
                }
                let dscp = if flow < 4 { EF } else { 8 * class };
                rtp(flow, *sequence, *offset, len, dscp)
            })
            .collect()
    })
}

/// Lets `packets` pass a link that `carry` stands for: it is handed each frame, and returns what
/// the other end says to it.
fn pass_all(
    link: &mut Link,
    packets: &[Vec<u8>],
    mut carry: impl FnMut(&mut Link, Frame) -> Vec<Feedback>,
) {
    for packet in packets {
        let mut frames = link.send(packet.clone());
        if link.aggregator.frames() > 6 {
            frames.extend(link.flush());
        }
        for frame in frames {
            for feedback in carry(link, frame) {
                link.aggregator.said(link.hop, &feedback, link.now);
            }
        }
        link.now += Duration::from_millis(1);
    }
    for frame in link.flush() {
        carry(link, frame);
    }
}

/// All frames of `packets`. A splitter of its own acknowledges the contexts, or nobody does.
fn frames_of(link: &mut Link, packets: &[Vec<u8>], answered: bool) -> Vec<Frame> {
    let mut all = Vec::new();
    let mut other = Splitter::accepting_any().with_frames(SECRET);
    pass_all(link, packets, |_, frame| {
        let said = other.split(&mut frame.bytes.clone(), |_| ());
        all.push(frame);
        match said {
            Ok(Split::Delivered(feedback)) if answered => vec![feedback],
            _ => Vec::new(),
        }
    });
    all
}

fn link(format: Format, max: u16) -> Link {
    let min = Threshold::Percent(0);
    Link::new(format, Config { max, min, queue_frames: 256, ..Config::default() })
}

fn formats() -> impl Strategy<Value = Format> {
    prop_oneof![Just(Format::Frames), Just(Format::Compressed)]
}

fn counted(packets: &[Vec<u8>]) -> BTreeMap<&[u8], usize> {
    let mut count = BTreeMap::new();
    packets.iter().for_each(|packet| *count.entry(&packet[..]).or_default() += 1);
    count
}

proptest! {
    #[test]
    fn everything_comes_out_once_whole_and_in_flow_order(
        packets in traffic(), format in formats(), max in 100u16..=2048, answered in any::<bool>(),
    ) {
        let mut link = link(format, max);
        let frames = frames_of(&mut link, &packets, answered);
        for frame in &frames {
            prop_assert!(frame.packets <= 1 || frame.bytes.len() <= usize::from(max));
            link.receive(&frame.bytes).unwrap();
        }
        let of = |all: &[Vec<u8>], port: u16| -> Vec<Vec<u8>> {
            all.iter().filter(|packet| flow(packet) == port).cloned().collect()
        };
        // Classes of one flow change in this traffic; order is kept in each.
        for port in 4000..4004 {
            prop_assert_eq!(of(&link.out, port), of(&packets, port));
        }
        prop_assert_eq!(counted(&link.out), counted(&packets));
    }

    #[test]
    fn lost_repeated_and_reordered_frames_deliver_each_packet_at_most_once_and_as_it_was(
        packets in traffic(), format in formats(), max in 100u16..600, answered in any::<bool>(),
        picks in proptest::collection::vec(any::<Index>(), 1..300),
    ) {
        let mut link = link(format, max);
        // The reach of the sequence number: 127 frames.
        let mut frames = frames_of(&mut link, &packets, answered);
        frames.retain(|frame| Ip::parse(&frame.bytes).unwrap().protocol() == Protocol::META);
        frames.truncate(127);
        prop_assume!(!frames.is_empty());
        for pick in picks {
            let _ = link.receive(&pick.get(&frames).bytes);
        }
        let sent = counted(&packets);
        for (packet, count) in counted(&link.out) {
            prop_assert!(count <= sent.get(packet).copied().unwrap_or(0), "{packet:?}");
        }
    }

    #[test]
    fn a_lost_frame_costs_the_packets_in_it_and_one(
        packets in traffic(), format in formats(), max in 100u16..600, lost in 0usize..40,
    ) {
        let mut link = link(format, max);
        let (mut index, mut cost) = (0, 0);
        pass_all(&mut link, &packets, |link, frame| {
            index += 1;
            if index - 1 == lost {
                cost = frame.packets as usize + 1;
                return Vec::new();
            }
            vec![link.receive(&frame.bytes).unwrap()]
        });
        let missing = packets.len() - link.out.len();
        prop_assert!(missing <= cost, "{missing} are missing");
    }

    #[test]
    fn two_frames_the_other_way_round_cost_at_most_the_packets_at_their_ends(
        packets in traffic(), format in formats(), max in 100u16..400, at in 0usize..40,
    ) {
        let mut link = link(format, max);
        let (mut index, mut late, mut delay) = (0, None::<Frame>, 0);
        pass_all(&mut link, &packets, |link, frame| {
            index += 1;
            if index - 1 == at {
                late = Some(frame);
                return Vec::new();
            }
            let now = link.receive(&frame.bytes).unwrap();
            let late = late.take().map(|late| {
                delay = frame.packets + late.packets;
                link.receive(&late.bytes).unwrap()
            });
            [now].into_iter().chain(late).collect()
        });
        if let Some(late) = late {
            link.receive(&late.bytes).unwrap();
        }
        // Into the first, between them, out of the second. The reach of the compact form is 15.
        let ends = 3 * u32::from(delay > 0);
        let bound = if delay > 15 { delay } else { ends };
        prop_assert!(packets.len() - link.out.len() <= bound as usize);
    }

    #[test]
    fn no_payload_panics_the_splitter(
        bytes in proptest::collection::vec(any::<u8>(), 0..300), sub_type in 0u8..4,
    ) {
        let repr =
            Repr { outer: OUTER, dscp: 0, ecn: Ecn::NotEct, hop_limit: HOP_LIMIT_NEIGHBOUR };
        let mut frame = vec![0; repr.header_len()];
        frame.push(sub_type);
        frame.extend_from_slice(&bytes);
        let len = frame.len();
        repr.emit(len, &mut frame);
        let mut splitter = Splitter::accepting_any().with_frames(1);
        let _ = splitter.split(&mut frame, |packet| assert!(Ip::parse(packet).is_ok()));
    }
}

#[test]
fn the_frame_of_a_lone_class_is_one_that_a_dissector_of_rfc_9347_reads() {
    let mut link = Link::new(Format::Frames, Config::default());
    (0..3).for_each(|flow| link.pass(voice(flow, 0)));
    let frame = link.flush().remove(0).bytes;
    let blocks = payload(&frame);
    assert_eq!(blocks[..aggfrag::HEADER_LEN], [0, 0, 0, 0]);
    let mut at = aggfrag::HEADER_LEN;
    for flow in 0..3 {
        let packet = Ip::parse(&blocks[at..]).unwrap().bytes();
        assert_eq!(packet, voice(flow, 0));
        at += packet.len();
    }
    assert_eq!(at, blocks.len());
}
