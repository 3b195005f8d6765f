//! Paths that lose, repeat, reorder and re-mark frames.

use crate::link::{
    EF, Link, OUTER, SECRET, STATIONS, flow, is_alone, link, link_behind, reseal, rtp, take_apart,
    voice,
};
use proptest::prelude::*;
use proptest::sample::Index;
use sheaf_aggregate::{Format, Frame, Split, Splitter};
use sheaf_stage::Duration;
use sheaf_wire::compress::feedback::Feedback;
use sheaf_wire::ecn::Ecn;
use sheaf_wire::ethernet;
use sheaf_wire::header::set_ecn;
use sheaf_wire::ip::{Ip, Protocol};
use sheaf_wire::meta::{HOP_LIMIT_NEIGHBOUR, Outer, Repr};
use std::collections::BTreeMap;

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

/// Packets of a few flows: voice with silences and jumps, and datagrams of any length.
fn traffic() -> impl Strategy<Value = Vec<Vec<u8>>> {
    traffic_with_spurts(1)
}

/// The same, with at least so many packets of a flow between two jumps.
fn traffic_with_spurts(spurt: u16) -> impl Strategy<Value = Vec<Vec<u8>>> {
    let len = prop_oneof![4 => Just(20usize), 1 => 0usize..230];
    let step = (0u16..6, len, 0u32..20, 0u8..3);
    proptest::collection::vec(step, 1..200).prop_map(move |steps| {
        // Sequence number, offset of the time stamps, and packets since it jumped.
        let mut flows: BTreeMap<u16, (u16, u32, u16)> = BTreeMap::new();
        steps
            .into_iter()
            .map(|(flow, len, jump, class)| {
                let (sequence, offset, age) = flows.entry(flow).or_insert((flow * 7_000, 0, 0));
                *sequence = sequence.wrapping_add(1);
                *age += 1;
                if jump == 0 && *age >= spurt {
                    *offset += 12_345;
                    *age = 0;
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
        let said = take_apart(&mut other, &frame.bytes, |_| ());
        all.push(frame);
        match said {
            Ok(Split::Delivered(feedback)) if answered => vec![feedback],
            _ => Vec::new(),
        }
    });
    all
}

fn formats() -> impl Strategy<Value = Format> {
    prop_oneof![Just(Format::Frames), Just(Format::Compressed)]
}

fn outers() -> impl Strategy<Value = Outer> {
    prop_oneof![Just(OUTER), Just(STATIONS)]
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
        outer in outers(),
    ) {
        let mut link = link_behind(outer, format, max);
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
        picks in proptest::collection::vec(any::<Index>(), 1..300), outer in outers(),
    ) {
        let mut link = link_behind(outer, format, max);
        // The reach of the sequence number: 127 frames.
        let mut frames = frames_of(&mut link, &packets, answered);
        frames.retain(|frame| !is_alone(&frame.bytes));
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
        outer in outers(),
    ) {
        let mut link = link_behind(outer, format, max);
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
        packets in traffic_with_spurts(16), format in formats(), max in 100u16..400,
        at in 0usize..40,
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
        // Into the first, between them, out of the second. The reach of the compact form is 15
        // packets, and that of the time stamps one jump.
        let ends = 3 * u32::from(delay > 0);
        let bound = if delay > 15 { delay } else { ends };
        let missing = packets.len() - link.out.len();
        prop_assert!(missing <= bound as usize, "{missing} of {delay} are missing");
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
        let _ = splitter.split(&mut frame, |inner| {
            assert!(!ethernet::is_ip(inner.ethertype) || Ip::parse(inner.bytes).is_ok());
        });
    }
}
