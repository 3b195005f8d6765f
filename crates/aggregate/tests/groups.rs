//! Frames to a group: what shares them, and what a splitter takes of them.

use sheaf_aggregate::{Aggregator, Config, Frame, Hop, HopId, Outbound, Refused, Splitter};
use sheaf_stage::{Instant, Stage};
use sheaf_wire::aggfrag;
use sheaf_wire::ecn::Ecn;
use sheaf_wire::meta::{HOP_LIMIT_FAR, HOP_LIMIT_NEIGHBOUR, Outer, Refusal, Repr};

const GROUP: [u8; 4] = [239, 1, 2, 3];
const OTHER: [u8; 4] = [239, 1, 2, 4];
const OURS: [u8; 4] = [10, 0, 0, 1];

fn outer(group: [u8; 4]) -> Outer {
    Outer::V4 { src: OURS.into(), dst: group.into() }
}

/// A packet of `len` bytes to `group`, of UDP or of `protocol`.
fn packet(group: [u8; 4], number: u8, len: usize, protocol: u8) -> Vec<u8> {
    let builder = etherparse::PacketBuilder::ipv4(OURS, group, 1).udp(5000, 5004);
    let mut packet = Vec::new();
    builder.write(&mut packet, &vec![number; len - 28]).unwrap();
    packet[9] = protocol;
    packet[10..12].fill(0);
    let checksum = sheaf_wire::checksum::ipv4_header(&packet[..20]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet
}

fn aggregator() -> (Aggregator, HopId) {
    let mut aggregator = Aggregator::new(Config::forced()).unwrap();
    let hop = aggregator.add_hop(Hop::group(outer(GROUP)));
    (aggregator, hop)
}

fn send(aggregator: &mut Aggregator, hop: HopId, packet: Vec<u8>) -> Vec<Frame> {
    aggregator.enqueue(Outbound { hop, mark: 0, packet }, Instant::ZERO).unwrap();
    std::iter::from_fn(|| aggregator.dequeue(Instant::ZERO)).collect()
}

fn leave(aggregator: &mut Aggregator) -> Vec<Frame> {
    let late = Instant::ZERO + Config::forced().hold;
    std::iter::from_fn(|| aggregator.dequeue(late)).collect()
}

fn carried(outer: Outer, hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let repr = Repr { outer, dscp: 0, ecn: Ecn::NotEct, hop_limit };
    let mut bytes = vec![0; repr.header_len()];
    bytes.extend_from_slice(payload);
    repr.emit(bytes.len(), &mut bytes);
    bytes
}

#[test]
fn packets_to_a_group_share_frames_that_stand_for_themselves_and_come_out_as_they_were() {
    let (mut aggregator, hop) = aggregator();
    let packets: Vec<_> = (0..100).map(|number| packet(GROUP, number, 90, 17)).collect();
    let mut frames = Vec::new();
    for packet in &packets {
        frames.extend(send(&mut aggregator, hop, packet.clone()));
    }
    frames.extend(leave(&mut aggregator));
    assert!(frames.len() <= 17, "{} frames", frames.len());
    // Any of them may be lost, and all others come out whole.
    for lost in 0..frames.len() {
        let (mut splitter, mut heard) = (Splitter::accepting_any().with_frames(1), Vec::new());
        let mut missing = 0..0;
        for (number, frame) in frames.iter().enumerate() {
            let before = heard.len() + missing.len();
            if number == lost {
                missing = before..before + frame.packets as usize;
                continue;
            }
            assert_eq!(Repr::parse(&frame.bytes).unwrap().outer, outer(GROUP));
            let mut bytes = frame.bytes.clone();
            splitter.split(&mut bytes, |inner| heard.push(inner.bytes.to_vec())).unwrap();
        }
        let mut expected = packets.clone();
        expected.drain(missing);
        assert_eq!(heard, expected);
        assert_eq!(splitter.received().unwrap().missing, 0, "nothing is kept between frames");
    }
}

#[test]
fn what_is_no_udp_to_the_group_goes_alone_and_behind_what_is_held_of_its_flow() {
    let (mut aggregator, hop) = aggregator();
    let small = packet(GROUP, 1, 60, 17);
    assert!(send(&mut aggregator, hop, small.clone()).is_empty());
    // Another protocol, as IGMP, and another group: of other flows.
    for other in [packet(GROUP, 2, 60, 2), packet(OTHER, 3, 60, 17)] {
        let sent = send(&mut aggregator, hop, other.clone());
        assert_eq!(sent.last().unwrap().bytes, other);
    }
    assert!(send(&mut aggregator, hop, small.clone()).is_empty());
    let large = packet(GROUP, 4, 900, 17);
    let sent = send(&mut aggregator, hop, large.clone());
    assert_eq!(sent.last().unwrap().bytes, large, "behind what is held");
    assert!(sent.len() == 2 && leave(&mut aggregator).is_empty());
}

#[test]
fn groups_of_the_link_get_no_frames() {
    for group in [[224, 0, 0, 254], [224, 0, 0, 251]] {
        let mut aggregator = Aggregator::new(Config::forced()).unwrap();
        let hop = aggregator.add_hop(Hop::group(outer(group)));
        let packet = packet(group, 1, 60, 17);
        let sent = send(&mut aggregator, hop, packet.clone());
        assert_eq!(sent.iter().map(|frame| &frame.bytes).collect::<Vec<_>>(), [&packet]);
    }
}

#[test]
fn a_group_that_may_get_no_frames_any_more_gets_what_is_held_first() {
    let (mut aggregator, hop) = aggregator();
    let packets: Vec<_> = (0..3).map(|number| packet(GROUP, number, 60, 17)).collect();
    for packet in &packets[..2] {
        assert!(send(&mut aggregator, hop, packet.clone()).is_empty());
    }
    aggregator.set_hop(hop, Hop { max: Some(0), ..Hop::group(outer(GROUP)) });
    let sent = send(&mut aggregator, hop, packets[2].clone());
    assert_eq!(sent.iter().map(|frame| frame.packets).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(sent[1].bytes, packets[2]);
}

#[test]
fn a_frame_to_a_group_counts_from_a_neighbour_only_and_with_nothing_but_packets_to_it() {
    let good = packet(GROUP, 1, 60, 17);
    let frame = |blocks: &[&[u8]]| [&[0, 0, 0, 0][..], &blocks.concat()].concat();
    let (near, far) = (HOP_LIMIT_NEIGHBOUR, HOP_LIMIT_FAR);
    let mut splitter = Splitter::accepting_any().with_frames(1);
    let mut refused = |hop_limit, payload: &[u8]| {
        let mut bytes = carried(outer(GROUP), hop_limit, payload);
        splitter.split(&mut bytes, |_| panic!("nothing is delivered")).unwrap_err()
    };
    let group = Refused::Frame(aggfrag::Refusal::Group);
    assert_eq!(refused(far, &frame(&[&good])), Refused::Meta(Refusal::NotFromTheLink));
    assert_eq!(refused(near, &frame(&[&good, &packet(OTHER, 1, 60, 17)])), group);
    assert_eq!(refused(near, &frame(&[&good, &packet([10, 0, 0, 2], 1, 60, 17)])), group);
    // Format 1, and a message about contexts.
    assert_eq!(refused(near, &good), group);
    assert_eq!(refused(near, &[2, 1, 0x30]), group);
    assert_eq!(splitter.refused_frames(aggfrag::Refusal::Group), 4);
    let mut stranger = Splitter::accepting([[10, 0, 0, 9].into()]).with_frames(1);
    let split = stranger.split(&mut carried(outer(GROUP), near, &frame(&[&good])), |_| {});
    assert_eq!(split, Err(Refused::Meta(Refusal::UnknownPeer)));
    // Of a far end that is named nothing counts either.
    let mut named = Splitter::new(sheaf_aggregate::Senders::far_ends([OURS.into()]));
    named = named.with_frames(1);
    for hop_limit in [near, far] {
        let split = named.split(&mut carried(outer(GROUP), hop_limit, &frame(&[&good])), |_| {});
        assert_eq!(split, Err(Refused::Meta(Refusal::NotFromTheLink)));
    }
}
