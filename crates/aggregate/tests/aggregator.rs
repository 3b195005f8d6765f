//! Behaviour of the aggregator and the splitter together.

use proptest::prelude::*;
use sheaf_aggregate::{
    Aggregator, Config, Device, Frame, Hop, HopId, Outbound, Policy, Rule, Rules, Splitter,
};
use sheaf_stage::conformance::{self, Op};
use sheaf_stage::{DropReason, Duration, Instant, Stage};
use sheaf_wire::ecn::Ecn;
use sheaf_wire::ip::Ip;
use sheaf_wire::meta::{Meta, Outer};

const MS: Duration = Duration::from_millis(1);
const BUSY: Device = Device::Tells { waiting: 2, limit: 50 };

fn outer(last: u8) -> Outer {
    Outer::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, last].into() }
}

fn aggregator(config: Config) -> (Aggregator, HopId) {
    let mut aggregator = Aggregator::new(config).unwrap();
    let hop = aggregator.add_hop(Hop::neighbour(outer(2)));
    (aggregator, hop)
}

/// A UDP packet of `len` IP bytes of flow `port`, numbered `seq`.
fn packet(port: u16, seq: u32, len: usize, class: u8) -> Vec<u8> {
    let mut payload = vec![0; len - 28];
    payload[..4].copy_from_slice(&seq.to_be_bytes());
    let mut packet = Vec::new();
    let builder = etherparse::PacketBuilder::ipv4([10, 1, 0, 1], [10, 1, 0, 2], 63);
    builder.udp(port, 5004).write(&mut packet, &payload).unwrap();
    packet[1] = class;
    packet[10..12].fill(0);
    let checksum = sheaf_wire::checksum::ipv4_header(&packet[..20]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet
}

fn drain(aggregator: &mut Aggregator, now: Instant) -> Vec<Frame> {
    std::iter::from_fn(|| aggregator.dequeue(now)).collect()
}

fn send(aggregator: &mut Aggregator, hop: HopId, packet: Vec<u8>, now: Instant) -> Vec<Frame> {
    aggregator.enqueue(Outbound { hop, mark: 0, packet }, now);
    drain(aggregator, now)
}

#[test]
fn a_queue_leaves_when_it_has_min_bytes() {
    let (mut aggregator, hop) = aggregator(Config::forced());
    let mut sent = Vec::new();
    for seq in 0..9 {
        sent.extend(send(&mut aggregator, hop, packet(1, seq, 60, 0), Instant::ZERO));
    }
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].packets, 9, "nine packets of 60 bytes are the first to reach 500");
    assert_eq!(sent[0].bytes.len(), 20 + 9 * 60);
}

#[test]
fn a_packet_that_times_out_alone_leaves_as_it_came() {
    let (mut aggregator, hop) = aggregator(Config::forced());
    let lone = packet(1, 0, 60, 0);
    assert!(send(&mut aggregator, hop, lone.clone(), Instant::ZERO).is_empty());
    assert_eq!(aggregator.next_deadline(), Some(Instant::from_millis(5)));
    assert_eq!(drain(&mut aggregator, Instant::from_millis(5))[0].bytes, lone);
    assert_eq!(aggregator.total().unaggregated_packets, 1);
}

#[test]
fn past_its_timeout_the_oldest_goes_before_the_largest() {
    let (mut aggregator, first) = aggregator(Config::forced());
    let second = aggregator.add_hop(Hop::neighbour(outer(3)));
    aggregator.set_device(Device::Tells { waiting: 50, limit: 50 }, Instant::ZERO);
    send(&mut aggregator, first, packet(1, 0, 60, 0), Instant::ZERO);
    for seq in 0..20 {
        send(&mut aggregator, second, packet(2, seq, 60, 0), Instant::ZERO + MS);
    }
    aggregator.set_device(Device::Tells { waiting: 49, limit: 50 }, Instant::ZERO);
    assert_eq!(drain(&mut aggregator, Instant::from_millis(5))[0].hop, first);
    aggregator.set_device(Device::Tells { waiting: 49, limit: 50 }, Instant::ZERO);
    assert_eq!(drain(&mut aggregator, Instant::from_millis(5))[0].hop, second);
}

#[test]
fn an_idle_device_takes_every_packet_at_once() {
    let (mut aggregator, hop) = aggregator(Config::default());
    for seq in 0..100 {
        let now = Instant::ZERO + 20 * seq * MS;
        aggregator.set_device(Device::Tells { waiting: 0, limit: 50 }, now);
        let sent = send(&mut aggregator, hop, packet(1, seq, 60, 0), now);
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].packets, 1);
    }
}

#[test]
fn while_the_device_is_busy_packets_gather_and_fill_frames() {
    let (mut aggregator, hop) = aggregator(Config::default());
    aggregator.set_device(BUSY, Instant::ZERO);
    for seq in 0..30 {
        assert!(send(&mut aggregator, hop, packet(1, seq, 60, 0), Instant::ZERO).is_empty());
    }
    aggregator.set_device(Device::Tells { waiting: 0, limit: 50 }, Instant::ZERO + MS);
    let sent = drain(&mut aggregator, Instant::ZERO + MS);
    assert_eq!(sent.iter().map(|f| f.packets).collect::<Vec<_>>(), [24], "one, then it is busy");
    assert_eq!(sent[0].bytes.len(), 1460);
    assert_eq!(aggregator.held(), 6);
}

#[test]
fn after_a_frame_that_waited_for_the_channel_only_full_frames_leave_for_a_while() {
    let (mut aggregator, hop) = aggregator(Config::default());
    let idle = Device::Tells { waiting: 0, limit: 50 };
    let at = |ms: u32| Instant::ZERO + ms * MS;
    // The quickest service is 1 ms, the next takes 3 ms: 6 · 2 ms of rest.
    aggregator.set_device(idle, at(0));
    assert_eq!(send(&mut aggregator, hop, packet(1, 0, 60, 0), at(0)).len(), 1);
    aggregator.set_device(idle, at(1));
    assert_eq!(send(&mut aggregator, hop, packet(1, 1, 60, 0), at(10)).len(), 1);
    aggregator.set_device(idle, at(13));
    assert!(send(&mut aggregator, hop, packet(1, 2, 60, 0), at(14)).is_empty());
    let deadline = aggregator.next_deadline().unwrap();
    assert!(deadline > at(24) && deadline <= at(25), "{deadline:?}");
    for seq in 3..26 {
        let sent = send(&mut aggregator, hop, packet(1, seq, 60, 0), at(15));
        assert_eq!(sent.len(), usize::from(seq == 25), "only the 24th fills the frame");
    }
}

#[test]
fn no_packet_waits_longer_than_hold_when_the_device_is_stuck() {
    for config in [Config::default(), Config::forced()] {
        let (mut aggregator, hop) = aggregator(config);
        aggregator.set_device(Device::Tells { waiting: 5, limit: 5 }, Instant::ZERO);
        send(&mut aggregator, hop, packet(1, 0, 60, 0), Instant::ZERO);
        send(&mut aggregator, hop, packet(1, 1, 60, 0), Instant::ZERO + MS);
        assert_eq!(aggregator.next_deadline(), Some(Instant::from_millis(40)));
        assert_eq!(drain(&mut aggregator, Instant::from_millis(40))[0].packets, 2);
    }
}

#[test]
fn classes_and_ecn_capabilities_never_share_a_frame() {
    let (mut aggregator, hop) = aggregator(Config::default());
    aggregator.set_device(BUSY, Instant::ZERO);
    for class in [46 << 2, 0, 46 << 2 | 2, 46 << 2 | 3, 46 << 2 | 1, 0] {
        send(&mut aggregator, hop, packet(1, 0, 60, class), Instant::ZERO);
    }
    let sent = drain(&mut aggregator, Instant::from_millis(40));
    let seen: Vec<_> = sent.iter().map(|f| (Ip::parse(&f.bytes).unwrap(), f.packets)).collect();
    let mut classes: Vec<_> = seen.iter().map(|(v, n)| (v.dscp(), v.ecn(), *n)).collect();
    classes.sort();
    // CE travels with ECT(0), under ECT(0).
    let expected =
        [(0, Ecn::NotEct, 2), (46, Ecn::NotEct, 1), (46, Ecn::Ect1, 1), (46, Ecn::Ect0, 2)];
    assert_eq!(classes, expected);
}

#[test]
fn a_long_packet_goes_alone_behind_its_own_flow_and_past_others() {
    let (mut aggregator, hop) = aggregator(Config::default());
    aggregator.set_device(BUSY, Instant::ZERO);
    send(&mut aggregator, hop, packet(1, 0, 60, 0), Instant::ZERO);
    let stranger = send(&mut aggregator, hop, packet(2, 0, 1400, 0), Instant::ZERO);
    assert_eq!(stranger.len(), 1, "a long packet of another flow does not wait");
    assert!(send(&mut aggregator, hop, packet(1, 1, 1400, 0), Instant::ZERO).is_empty());
    send(&mut aggregator, hop, packet(1, 2, 60, 0), Instant::ZERO);
    let sent = drain(&mut aggregator, Instant::from_millis(40));
    assert_eq!(sent.iter().map(|f| f.bytes.len()).collect::<Vec<_>>(), [60, 1400, 60]);
}

#[test]
fn a_hop_that_cannot_split_is_never_sent_a_meta_packet() {
    let (mut aggregator, hop) = aggregator(Config::default());
    aggregator.set_hop(hop, Hop { max: Some(0), ..Hop::neighbour(outer(2)) });
    aggregator.set_device(BUSY, Instant::ZERO);
    for seq in 0..10 {
        let sent = send(&mut aggregator, hop, packet(1, seq, 60, 0), Instant::ZERO);
        assert_eq!(sent[0].bytes, packet(1, seq, 60, 0));
    }
}

#[test]
fn what_waits_is_bounded_and_the_overflow_is_counted() {
    let (mut aggregator, hop) = aggregator(Config::default());
    aggregator.set_device(BUSY, Instant::ZERO);
    for seq in 0..10 * 24 + 5 {
        send(&mut aggregator, hop, packet(1, seq, 60, 0), Instant::ZERO);
    }
    // Twelve frames, less the two that the device has.
    assert_eq!(aggregator.held(), 10 * 24);
    assert_eq!(aggregator.counters().dropped(DropReason::QueueFull), 5);
    assert_eq!(aggregator.total().dropped, 5);
}

#[test]
fn an_unfinished_inner_checksum_is_finished() {
    let (mut aggregator, hop) = aggregator(Config::default());
    aggregator.set_device(BUSY, Instant::ZERO);
    let right = packet(1, 0, 60, 0);
    let mut unfinished = right.clone();
    // What Linux leaves there: the folded pseudo-header sum, not complemented.
    let pseudo = sheaf_wire::checksum::fold(sheaf_wire::checksum::sum(&right[12..20], 17 + 40));
    unfinished[26..28].copy_from_slice(&pseudo.to_be_bytes());
    send(&mut aggregator, hop, unfinished, Instant::ZERO);
    send(&mut aggregator, hop, right.clone(), Instant::ZERO);
    let sent = drain(&mut aggregator, Instant::from_millis(40));
    for inner in Meta::parse(&sent[0].bytes).unwrap().packets() {
        assert_eq!(inner.bytes(), right);
    }
}

#[test]
fn a_congestion_mark_on_the_outer_header_reaches_the_capable_inner_packets() {
    let (mut aggregator, hop) = aggregator(Config::default());
    aggregator.set_device(BUSY, Instant::ZERO);
    send(&mut aggregator, hop, packet(1, 0, 60, 2), Instant::ZERO);
    send(&mut aggregator, hop, packet(1, 1, 60, 2), Instant::ZERO);
    let mut frame = drain(&mut aggregator, Instant::from_millis(40)).remove(0);
    frame.bytes[1] |= 3;
    frame.bytes[10..12].fill(0);
    let checksum = sheaf_wire::checksum::ipv4_header(&frame.bytes[..20]);
    frame.bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut splitter = Splitter::accepting(["10.0.0.1".parse().unwrap()]);
    splitter
        .split(&mut frame.bytes, |inner| {
            let view = Ip::parse(inner).unwrap();
            assert_eq!(view.ecn(), Ecn::Ce);
            assert_eq!(sheaf_wire::checksum::ipv4_header(&inner[..20]), 0);
        })
        .unwrap();
    assert_eq!(splitter.packets(), 2);
}

fn operations() -> impl Strategy<Value = Vec<Op<Outbound, Device>>> {
    let packet = (0u32..3, 0u16..4, 28usize..600, prop_oneof![Just(0u8), Just(184), any::<u8>()])
        .prop_map(|(hop, port, len, class)| Outbound {
            hop: HopId(hop),
            mark: 0,
            packet: packet(port, 0, len.max(32), class),
        });
    let device = prop_oneof![
        Just(Device::Silent),
        (0u32..60).prop_map(|waiting| Device::Tells { waiting, limit: 50 })
    ];
    let op = prop_oneof![
        6 => packet.prop_map(Op::Enqueue),
        2 => (0u64..20_000_000).prop_map(|ns| Op::Advance(Duration::from_nanos(ns))),
        1 => device.prop_map(Op::Control),
    ];
    proptest::collection::vec(op, 1..120)
}

fn conforming(policy: Policy) -> Aggregator {
    let config = Config { policy, queue_frames: 3, total_frames: 5, ..Config::default() };
    let (mut aggregator, _) = aggregator(config);
    aggregator.add_hop(Hop { max: Some(300), ..Hop::neighbour(outer(3)) });
    aggregator
}

proptest! {
    #[test]
    fn the_aggregator_keeps_the_contract_of_a_stage(
        ops in operations(), policy in prop_oneof![Just(Policy::Busy), Just(Policy::Forced)],
    ) {
        conformance::check(
            || conforming(policy),
            &ops,
            |stage, device, now| stage.set_device(*device, now),
            |frame| (frame.hop, frame.bytes.clone()),
        );
    }

    #[test]
    fn whatever_goes_in_comes_out_whole_in_flow_order_and_within_max(
        sizes in proptest::collection::vec((0u16..4, 32usize..700, 0u64..3_000_000, 0u32..4), 1..150),
        max in 100u16..=2048,
    ) {
        let rules = Rules { rules: vec![Rule::default()], acks: false };
        let config = Config { max, min: sheaf_aggregate::Threshold::Percent(40), rules,
            queue_frames: 256, ..Config::default() };
        let (mut aggregator, hop) = aggregator(config);
        let mut splitter = Splitter::accepting_any();
        let mut now = Instant::ZERO;
        let mut out: Vec<Vec<u8>> = Vec::new();
        let mut collect = |frames: Vec<Frame>| for mut frame in frames {
            if frame.packets == 1 {
                out.push(frame.bytes);
            } else {
                assert!(frame.bytes.len() <= usize::from(max));
                splitter.split(&mut frame.bytes, |inner| out.push(inner.to_vec())).unwrap();
            }
        };
        let mut offered = Vec::new();
        for (seq, (port, len, gap, waiting)) in sizes.into_iter().enumerate() {
            now += Duration::from_nanos(gap);
            aggregator.set_device(Device::Tells { waiting, limit: 50 }, now);
            let packet = packet(port, seq as u32, len, 0);
            offered.push(packet.clone());
            collect(send(&mut aggregator, hop, packet, now));
        }
        collect(drain(&mut aggregator, now + Duration::from_millis(40)));
        for port in 0..4u16 {
            let of = |all: &[Vec<u8>]| -> Vec<Vec<u8>> {
                all.iter().filter(|p| p[20..22] == port.to_be_bytes()).cloned().collect()
            };
            prop_assert_eq!(of(&out), of(&offered));
        }
    }

    #[test]
    fn no_bytes_panic_the_splitter(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = bytes;
        let _ = Splitter::accepting_any().split(&mut bytes, |_| ());
    }
}
