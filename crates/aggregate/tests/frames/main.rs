//! Format 2 from aggregator to splitter: full frames, compressed headers, and links that lose,
//! repeat, reorder and re-mark frames.

mod contexts;
mod link;
mod paths;

use link::{Link, OUTER, SECRET, STATIONS, rtp, voice};
use sheaf_aggregate::{Config, Format, Hop, Refused, Splitter};
use sheaf_wire::aggfrag;
use sheaf_wire::ip::Ip;
use sheaf_wire::meta::{Refusal, Repr};

/// The payload of a frame behind its outer header.
fn payload(frame: &[u8]) -> &[u8] {
    Repr::with_payload(frame).unwrap().1
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
fn without_a_header_of_ip_a_frame_has_20_bytes_more_for_packets_and_no_more_in_all() {
    let config = |max| Config { max, queue_frames: 256, ..Config::default() };
    let payloads = |outer, max| {
        let mut link = Link::behind(outer, Format::Frames, config(max));
        (0..40).for_each(|sequence| link.pass(rtp(1, sequence, 0, 33, 0)));
        let frames = link.flush();
        assert!(frames.iter().all(|frame| frame.bytes.len() <= usize::from(max)));
        assert!(frames.iter().all(|frame| frame.ethertype == outer.ethertype()));
        let header = outer.header_len();
        frames.into_iter().map(|frame| frame.bytes[header..].to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(payloads(STATIONS, 500), payloads(OUTER, 520));
}

#[test]
fn a_frame_without_a_header_of_ip_needs_a_station_that_is_known_and_its_padding_is_no_fault() {
    let mut link = Link::behind(STATIONS, Format::Compressed, Config::default());
    (0..2).for_each(|flow| link.pass(voice(flow, 0)));
    let frame = link.flush().remove(0).bytes;
    let padded = [&frame[..], &[0; 7]].concat();
    // IP's names do not stand for a station.
    link.splitter = Splitter::accepting([OUTER.source()]).with_frames(SECRET);
    assert_eq!(link.receive(&padded), Err(Refused::Meta(Refusal::UnknownPeer)));
    link.splitter = Splitter::accepting([STATIONS.source()]);
    assert_eq!(link.receive(&padded), Err(Refused::Meta(Refusal::NotMeta)));
    link.splitter = Splitter::accepting([STATIONS.source()]).with_frames(SECRET);
    link.receive(&padded).unwrap();
    assert_eq!(link.out, [voice(0, 0), voice(1, 0)]);
    let other = link.splitter.split_link(STATIONS, &[0x55; 46], |_| panic!("delivered"));
    assert_eq!(other, Err(Refused::Frame(aggfrag::Refusal::SubType)));
}

#[test]
fn a_class_for_which_there_is_no_tag_passes_where_no_meta_packet_can_carry_it() {
    let mut link = Link::behind(STATIONS, Format::Frames, Config::default());
    let packet = |class, sequence| rtp(1, sequence, 0, 33, class);
    let mut alone = 0;
    for class in 0..20 {
        alone += link.send(packet(class, 0)).len();
        alone += link.send(packet(class, 1)).len();
    }
    assert_eq!(alone, 2 * 5, "15 tags are for streams");
    assert!(link.flush().iter().all(|frame| frame.ethertype == STATIONS.ethertype()));
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
