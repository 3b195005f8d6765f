//! Behaviour of the aggregator and the splitter together.

use proptest::prelude::*;
use sheaf_aggregate::{
    Aggregator, Config, Device, Format, Frame, Hop, HopId, Outbound, Policy, Rule, Rules, Splitter,
    Threshold,
};
use sheaf_stage::conformance::{self, Op};
use sheaf_stage::{Duration, Instant, Stage};
use sheaf_wire::ecn::Ecn;
use sheaf_wire::ip::Ip;
use sheaf_wire::meta::{Meta, Outer};

const MS: Duration = Duration::from_millis(1);
/// The longest wait by default.
const HOLD: Instant = Instant::from_millis(100);
const BUSY: Device = Device::Reports { waiting: 2, limit: 50 };

const IDLE: Device = Device::Reports { waiting: 0, limit: 50 };

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
    send_marked(aggregator, hop, (packet, 0), now)
}

/// Sends a packet with a firewall mark.
fn send_marked(
    aggregator: &mut Aggregator,
    hop: HopId,
    (packet, mark): (Vec<u8>, u32),
    now: Instant,
) -> Vec<Frame> {
    let _ = aggregator.enqueue(Outbound { hop, mark, packet }, now);
    drain(aggregator, now)
}

/// The mark for frames of `bytes`, with the bits of Karlstad's classifier.
fn size(bytes: u32) -> u32 {
    bytes << 2 | 0b11
}

#[test]
fn a_frame_ends_before_the_packet_whose_mark_it_would_exceed_and_grows_with_a_larger_one() {
    // Packets of 60 bytes, and 20 of the outer header: 5 of them are 320 bytes.
    let sizes = [1500, 1500, 1500, 200, 0, 0, 0, 400, 400, 0xffff];
    let config = Config { by_mark: true, ..Config::default() };
    for (by_mark, packets) in [(true, vec![3, 7]), (false, vec![10])] {
        let (mut aggregator, hop) = aggregator(Config { by_mark, ..config.clone() });
        aggregator.set_device(BUSY, Instant::ZERO);
        for (seq, bytes) in sizes.into_iter().enumerate() {
            let packet = (packet(1, seq as u32, 60, 0), size(bytes));
            assert_eq!(send_marked(&mut aggregator, hop, packet, Instant::ZERO), []);
        }
        let frames = drain(&mut aggregator, HOLD);
        assert_eq!(frames.iter().map(|frame| frame.packets).collect::<Vec<_>>(), packets);
    }
}

#[test]
fn a_packet_that_fits_no_frame_of_its_mark_leaves_alone_behind_its_flow() {
    let (mut aggregator, hop) = aggregator(Config { by_mark: true, ..Config::default() });
    aggregator.set_device(BUSY, Instant::ZERO);
    let mut sent = Vec::new();
    // Of 80 bytes a frame holds the packet and the outer header, of 79 it does not.
    for (seq, bytes) in [0, 80, 79, 1].into_iter().enumerate() {
        let packet = (packet(1, seq as u32, 60, 0), size(bytes));
        sent.extend(send_marked(&mut aggregator, hop, packet, Instant::ZERO));
    }
    let bytes: Vec<_> = sent.into_iter().map(|frame| frame.bytes).collect();
    assert_eq!(bytes, [0, 1, 2, 3].map(|seq| packet(1, seq, 60, 0)));
    assert_eq!(aggregator.held(), 0);
}

#[test]
fn under_forced_less_lets_a_queue_leave_by_whose_last_mark_its_frames_are_smaller() {
    let share = Threshold::Percent(50);
    let config = Config { by_mark: true, min: share, ..Config::forced() };
    let (mut aggregator, hop) = aggregator(config);
    let mut count = |seq, bytes| {
        let packet = (packet(1, seq, 60, 0), size(bytes));
        let frames = send_marked(&mut aggregator, hop, packet, Instant::ZERO);
        frames.iter().map(|frame| frame.packets).sum::<u32>()
    };
    // Half of 1500 bytes is more than three packets, half of 400 is less than four.
    assert_eq!([count(0, 0), count(1, 0), count(2, 0)], [0, 0, 0]);
    assert_eq!(count(3, 400), 4);
    assert_eq!([count(4, 400), count(5, 0)], [0, 0]);
}

#[test]
fn whether_marks_count_changes_while_packets_wait_and_none_is_lost() {
    for format in [Format::Meta, Format::Frames] {
        let config = Config { by_mark: true, ..Config::default() };
        let mut aggregator = Aggregator::new(config.clone()).unwrap();
        let hop = aggregator.add_hop(Hop { format, ..Hop::neighbour(outer(2)) });
        aggregator.set_device(BUSY, Instant::ZERO);
        let (mut frames, mut seq) = (Vec::new(), 0);
        for by_mark in [true, false, true, true, false] {
            aggregator.change(Config { by_mark, ..config.clone() }).unwrap();
            for bytes in [300, 90, 0] {
                let packet = (packet(1, seq, 60, 0), size(bytes));
                frames.extend(send_marked(&mut aggregator, hop, packet, Instant::ZERO));
                seq += 1;
            }
        }
        frames.extend(drain(&mut aggregator, HOLD));
        assert_eq!(frames.iter().map(|frame| frame.packets).sum::<u32>(), seq, "{format:?}");
        let mut splitter = Splitter::accepting_any().with_frames(1);
        let mut out = Vec::new();
        for mut frame in frames {
            match frame.packets {
                1 => out.push(frame.bytes),
                _ => drop(splitter.split(&mut frame.bytes, |one| out.push(one.bytes.to_vec()))),
            }
        }
        assert_eq!(out, (0..seq).map(|seq| packet(1, seq, 60, 0)).collect::<Vec<_>>());
    }
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
fn another_configuration_holds_for_packets_that_wait_and_loses_none() {
    let (mut aggregator, hop) = aggregator(Config::default());
    aggregator.set_device(BUSY, Instant::ZERO);
    for seq in 0..4 {
        assert!(send(&mut aggregator, hop, packet(1, seq, 60, 0), Instant::ZERO).is_empty());
    }
    // By `busy` they would wait for the device; four packets have the 200 bytes of the new `min`.
    let small = Config { min: Threshold::Bytes(200), ..Config::forced() };
    aggregator.change(small).unwrap();
    let sent = drain(&mut aggregator, Instant::ZERO);
    assert_eq!(sent.iter().map(|frame| frame.packets).collect::<Vec<_>>(), [4]);
    assert!(aggregator.change(Config { max: 10, ..Config::default() }).is_err());
    assert_eq!(aggregator.next_deadline(), None, "nothing is left");
}

#[test]
fn past_its_timeout_the_oldest_goes_before_the_largest() {
    let (mut aggregator, first) = aggregator(Config::forced());
    let second = aggregator.add_hop(Hop::neighbour(outer(3)));
    aggregator.set_device(Device::Reports { waiting: 50, limit: 50 }, Instant::ZERO);
    send(&mut aggregator, first, packet(1, 0, 60, 0), Instant::ZERO);
    for seq in 0..20 {
        send(&mut aggregator, second, packet(2, seq, 60, 0), Instant::ZERO + MS);
    }
    aggregator.set_device(Device::Reports { waiting: 49, limit: 50 }, Instant::ZERO);
    assert_eq!(drain(&mut aggregator, Instant::from_millis(5))[0].hop, first);
    aggregator.set_device(Device::Reports { waiting: 49, limit: 50 }, Instant::ZERO);
    assert_eq!(drain(&mut aggregator, Instant::from_millis(5))[0].hop, second);
}

#[test]
fn an_idle_device_takes_every_packet_at_once() {
    let (mut aggregator, hop) = aggregator(Config::default());
    for seq in 0..100 {
        let now = Instant::ZERO + 20 * seq * MS;
        aggregator.set_device(Device::Reports { waiting: 0, limit: 50 }, now);
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
    aggregator.set_device(Device::Reports { waiting: 0, limit: 50 }, Instant::ZERO + MS);
    let sent = drain(&mut aggregator, Instant::ZERO + MS);
    assert_eq!(sent.iter().map(|f| f.packets).collect::<Vec<_>>(), [24], "one, then it is busy");
    assert_eq!(sent[0].bytes.len(), 1460);
    assert_eq!(aggregator.held(), 6);
}

/// Sends frames of 12 packets by a device that takes `service` for each but the first, which takes
/// 5 ms; returns when the last of them was done.
fn contended(aggregator: &mut Aggregator, hop: HopId, frames: u32, service: Duration) -> Instant {
    let mut now = Instant::from_millis(10);
    for frame in 0..frames {
        aggregator.set_device(BUSY, now);
        for seq in 0..12 {
            assert!(send(aggregator, hop, packet(1, seq, 60, 0), now).is_empty());
        }
        aggregator.set_device(IDLE, now);
        now = now.max(aggregator.next_deadline().unwrap());
        assert_eq!(drain(aggregator, now)[0].packets, 12);
        now += if frame == 0 { 5 * MS } else { service };
    }
    aggregator.set_device(IDLE, now);
    now
}

#[test]
fn after_full_frames_that_waited_for_the_channel_only_full_frames_leave_for_a_while() {
    let (mut aggregator, hop) = aggregator(Config::default());
    let now = contended(&mut aggregator, hop, 30, 16 * MS);
    // Frames half as long as the longest, so full enough, waited 6 ms beyond twice the quickest:
    // 24 / 4 · 6 ms.
    assert!(send(&mut aggregator, hop, packet(1, 0, 60, 0), now).is_empty());
    let deadline = aggregator.next_deadline().unwrap();
    assert!(deadline > now + 27 * MS && deadline < now + 37 * MS, "{:?}", deadline - now);
    for seq in 1..24 {
        let sent = send(&mut aggregator, hop, packet(1, seq, 60, 0), now);
        assert_eq!(sent.len(), usize::from(seq == 23), "only the 24th fills the frame");
    }
}

#[test]
fn without_backoff_a_packet_leaves_as_soon_as_the_device_is_free() {
    let (mut aggregator, hop) = aggregator(Config { backoff: 0, ..Config::default() });
    aggregator.set_device(IDLE, Instant::ZERO);
    let now = contended(&mut aggregator, hop, 30, 25 * MS);
    assert_eq!(send(&mut aggregator, hop, packet(1, 0, 60, 0), now).len(), 1);
}

#[test]
fn frames_that_are_full_but_find_the_channel_free_are_followed_by_no_backoff() {
    let (mut aggregator, hop) = aggregator(Config::default());
    let now = contended(&mut aggregator, hop, 30, 7 * MS);
    assert_eq!(send(&mut aggregator, hop, packet(1, 0, 60, 0), now).len(), 1);
}

#[test]
fn no_packet_waits_longer_than_hold_when_the_device_is_stuck() {
    for config in [Config::default(), Config::forced()] {
        let (mut aggregator, hop) = aggregator(config);
        aggregator.set_device(Device::Reports { waiting: 5, limit: 5 }, Instant::ZERO);
        send(&mut aggregator, hop, packet(1, 0, 60, 0), Instant::ZERO);
        send(&mut aggregator, hop, packet(1, 1, 60, 0), Instant::ZERO + MS);
        assert_eq!(aggregator.next_deadline(), Some(HOLD));
        assert_eq!(drain(&mut aggregator, HOLD)[0].packets, 2);
    }
}

#[test]
fn classes_and_ecn_capabilities_never_share_a_frame() {
    let (mut aggregator, hop) = aggregator(Config::default());
    aggregator.set_device(BUSY, Instant::ZERO);
    for class in [46 << 2, 0, 46 << 2 | 2, 46 << 2 | 3, 46 << 2 | 1, 0] {
        send(&mut aggregator, hop, packet(1, 0, 60, class), Instant::ZERO);
    }
    let sent = drain(&mut aggregator, HOLD);
    let seen: Vec<_> = sent.iter().map(|f| (Ip::parse(&f.bytes).unwrap(), f.packets)).collect();
    let mut classes: Vec<_> = seen.iter().map(|(v, n)| (v.dscp(), v.ecn(), *n)).collect();
    classes.sort();
    // CE travels with ECT(0), under ECT(0).
    let expected =
        [(0, Ecn::NotEct, 2), (46, Ecn::NotEct, 1), (46, Ecn::Ect1, 1), (46, Ecn::Ect0, 2)];
    assert_eq!(classes, expected);
}

#[test]
fn a_long_packet_passes_strangers_and_lets_what_is_held_of_its_flow_leave_first() {
    let (mut aggregator, hop) = aggregator(Config::default());
    aggregator.set_device(BUSY, Instant::ZERO);
    send(&mut aggregator, hop, packet(1, 0, 60, 0), Instant::ZERO);
    send(&mut aggregator, hop, packet(1, 1, 60, 0), Instant::ZERO);
    let stranger = send(&mut aggregator, hop, packet(2, 0, 1400, 0), Instant::ZERO);
    assert_eq!(stranger.iter().map(|f| f.bytes.len()).collect::<Vec<_>>(), [1400]);
    let own = send(&mut aggregator, hop, packet(1, 2, 1400, 0), Instant::ZERO);
    assert_eq!(own.iter().map(|f| f.bytes.len()).collect::<Vec<_>>(), [140, 1400]);
    assert_eq!(aggregator.held(), 0);
}

#[test]
fn a_packet_that_no_rule_takes_does_not_overtake_its_flow() {
    let rule = Rule { mark: (1, 1), ..Rule::default() };
    let rules = Rules { rules: vec![rule], acks: false };
    let (mut aggregator, hop) = aggregator(Config { rules, ..Config::default() });
    aggregator.set_device(BUSY, Instant::ZERO);
    let marked = Outbound { hop, mark: 1, packet: packet(1, 0, 60, 0) };
    aggregator.enqueue(marked, Instant::ZERO).unwrap();
    let sent = send(&mut aggregator, hop, packet(1, 1, 60, 0), Instant::ZERO);
    let expected = [packet(1, 0, 60, 0), packet(1, 1, 60, 0)];
    assert_eq!(sent.into_iter().map(|f| f.bytes).collect::<Vec<_>>(), expected);
}

#[test]
fn a_fragment_waits_for_no_ports_and_lets_what_its_addresses_hold_leave_first() {
    let (mut aggregator, hop) = aggregator(Config::default());
    aggregator.set_device(BUSY, Instant::ZERO);
    send(&mut aggregator, hop, packet(1, 0, 60, 0), Instant::ZERO);
    let mut fragment = packet(0, 1, 60, 0);
    fragment[6] = 0x20;
    let sent = send(&mut aggregator, hop, fragment.clone(), Instant::ZERO);
    let expected = [packet(1, 0, 60, 0), fragment];
    assert_eq!(sent.into_iter().map(|f| f.bytes).collect::<Vec<_>>(), expected);
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
fn over_the_bound_the_oldest_frame_goes_to_the_busy_device_and_nothing_is_dropped() {
    let (mut aggregator, hop) = aggregator(Config::default());
    aggregator.set_device(BUSY, Instant::ZERO);
    let mut sent = Vec::new();
    for seq in 0..12 * 24 + 5 {
        sent.extend(send(&mut aggregator, hop, packet(1, seq, 60, 0), Instant::ZERO));
    }
    assert_eq!(sent.iter().map(|f| f.packets).collect::<Vec<_>>(), [24], "the 13th needs room");
    assert_eq!(sent[0].bytes[20..80], packet(1, 0, 60, 0), "the oldest");
    assert_eq!(aggregator.held(), 11 * 24 + 5);
    assert_eq!(aggregator.counters().dropped_total(), 0);
    assert_eq!(aggregator.total().over_bound, 1);
}

#[test]
fn over_the_bound_of_all_queues_a_frame_leaves_for_each_that_comes() {
    let (mut aggregator, first) = aggregator(Config { total_frames: 12, ..Config::default() });
    let second = aggregator.add_hop(Hop::neighbour(outer(3)));
    aggregator.set_device(BUSY, Instant::ZERO);
    for seq in 0..12 * 24 {
        assert!(send(&mut aggregator, first, packet(1, seq, 60, 0), Instant::ZERO).is_empty());
    }
    assert_eq!(send(&mut aggregator, second, packet(1, 0, 60, 0), Instant::ZERO).len(), 1);
    assert_eq!((aggregator.frames(), aggregator.total().over_bound), (12, 1));
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
    let sent = drain(&mut aggregator, HOLD);
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
    let mut frame = drain(&mut aggregator, HOLD).remove(0);
    frame.bytes[1] |= 3;
    frame.bytes[10..12].fill(0);
    let checksum = sheaf_wire::checksum::ipv4_header(&frame.bytes[..20]);
    frame.bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut splitter = Splitter::accepting(["10.0.0.1".parse().unwrap()]);
    splitter
        .split(&mut frame.bytes, |inner| {
            let inner = inner.bytes;
            let view = Ip::parse(inner).unwrap();
            assert_eq!(view.ecn(), Ecn::Ce);
            assert_eq!(sheaf_wire::checksum::ipv4_header(&inner[..20]), 0);
        })
        .unwrap();
    assert_eq!(splitter.packets(), 2);
}

fn operations() -> impl Strategy<Value = Vec<Op<Outbound, Device>>> {
    let packet = (0u32..5, 0u16..4, 28usize..600, prop_oneof![Just(0u8), Just(184), any::<u8>()])
        .prop_map(|(hop, port, len, class)| Outbound {
            hop: HopId(hop),
            mark: 0,
            packet: packet(port, 0, len.max(32), class),
        });
    let device = prop_oneof![
        Just(Device::Silent),
        (0u32..60).prop_map(|waiting| Device::Reports { waiting, limit: 50 })
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
    let (format, max) = (Format::Compressed, Some(400));
    aggregator.add_hop(Hop { format, max, ..Hop::neighbour(outer(4)) });
    aggregator.add_hop(Hop { format: Format::Frames, ..Hop::neighbour(outer(5)) });
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
    fn no_packet_waits_while_the_device_is_free_and_nobody_else_has_the_channel(
        arrivals in proptest::collection::vec((0u16..8, 32usize..256, 0u64..4_000_000), 1..400),
    ) {
        let (mut aggregator, hop) = aggregator(Config::default());
        aggregator.set_device(IDLE, Instant::ZERO);
        let (mut now, mut done) = (Instant::ZERO, None);
        let air_time = |frames: &[Frame]| -> Duration {
            // A channel of our own at 2 Mbit/s: 1 ms a frame and 4 µs a byte.
            frames.iter().map(|f| MS + Duration::from_micros(4 * f.bytes.len() as u64)).sum()
        };
        for (seq, (port, len, gap)) in arrivals.into_iter().enumerate() {
            now += Duration::from_nanos(gap);
            while let Some(at) = done.filter(|at| *at <= now) {
                aggregator.set_device(IDLE, at);
                let sent = drain(&mut aggregator, at);
                done = (!sent.is_empty()).then(|| at + air_time(&sent));
                prop_assert!(done.is_some() || aggregator.held() == 0, "a free device, and held");
            }
            let sent = send(&mut aggregator, hop, packet(port, seq as u32, len, 0), now);
            prop_assert!(done.is_some() || sent.len() == 1, "a free device takes it at once");
            prop_assert!(done.is_none() || sent.is_empty(), "a busy device is given nothing");
            done = done.or_else(|| Some(now + air_time(&sent)));
        }
    }

    #[test]
    fn whatever_goes_in_comes_out_whole_in_flow_order_and_within_max(
        sizes in proptest::collection::vec(
            (0u16..4, 32usize..700, 0u64..3_000_000, 0u32..4), 1..150,
        ),
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
                splitter.split(&mut frame.bytes, |inner| out.push(inner.bytes.to_vec())).unwrap();
            }
        };
        let mut offered = Vec::new();
        for (seq, (port, len, gap, waiting)) in sizes.into_iter().enumerate() {
            now += Duration::from_nanos(gap);
            aggregator.set_device(Device::Reports { waiting, limit: 50 }, now);
            let packet = packet(port, seq as u32, len, 0);
            offered.push(packet.clone());
            collect(send(&mut aggregator, hop, packet, now));
        }
        collect(drain(&mut aggregator, now + Config::default().hold));
        for port in 0..4u16 {
            let of = |all: &[Vec<u8>]| -> Vec<Vec<u8>> {
                all.iter().filter(|p| p[20..22] == port.to_be_bytes()).cloned().collect()
            };
            prop_assert_eq!(of(&out), of(&offered));
        }
    }

    #[test]
    fn no_frame_is_larger_than_its_last_packets_mark_says(
        packets in proptest::collection::vec((32usize..700, any::<u32>()), 1..150),
        max in 100u16..=2048,
    ) {
        let rules = Rules { rules: vec![Rule::default()], acks: false };
        let config = Config { max, by_mark: true, min: Threshold::Percent(40), rules,
            queue_frames: 256, ..Config::default() };
        let (mut aggregator, hop) = aggregator(config.clone());
        aggregator.set_device(BUSY, Instant::ZERO);
        let mut sent = Vec::new();
        for (seq, (len, mark)) in packets.iter().enumerate() {
            let packet = (packet(1, seq as u32, *len, 0), *mark);
            sent.extend(send_marked(&mut aggregator, hop, packet, Instant::ZERO));
        }
        sent.extend(drain(&mut aggregator, HOLD));
        let mut left = packets.iter();
        for frame in sent {
            let (_, mark) = left.nth(frame.packets as usize - 1).unwrap();
            let most = usize::from(config.largest(max, *mark));
            prop_assert!(frame.packets == 1 || frame.bytes.len() <= most, "{frame:?}");
        }
        prop_assert_eq!(left.len(), 0);
    }

    #[test]
    fn no_bytes_panic_the_splitter(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = bytes;
        let _ = Splitter::accepting_any().split(&mut bytes, |_| ());
    }
}
