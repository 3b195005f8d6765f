//! Contexts: how small packets become, and what forged, lost and foreign ones do.

use crate::link::{EF, HEADERS, Link, OUTER, SECRET, flow, reseal, rtp, voice};
use sheaf_aggregate::{Refused, Senders, Split, Splitter};
use sheaf_wire::aggfrag::Header;
use sheaf_wire::checksum;
use sheaf_wire::compress::feedback::{Feedback, Item};
use sheaf_wire::compress::{Definition, IdRule, Rules};
use sheaf_wire::ecn::Ecn;
use sheaf_wire::meta::{HOP_LIMIT_NEIGHBOUR, Outer, Refusal, Repr};

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
fn a_message_from_the_other_end_is_handed_to_the_caller() {
    let mut feedback = Feedback::default();
    feedback.push(Item::Lost { tag: 3 });
    let frame = Repr { outer: OUTER, dscp: EF, ecn: Ecn::NotEct, hop_limit: HOP_LIMIT_NEIGHBOUR };
    let mut packet = feedback.packet(&frame.reply());
    let mut splitter = Splitter::accepting([OUTER.destination()]).with_frames(1);
    let split = splitter.split(&mut packet, |_| panic!("no packet")).unwrap();
    assert_eq!(split, Split::Heard(feedback));
}
