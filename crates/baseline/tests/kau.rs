//! Behaviour of Karlstad's qdisc and its baseline.

use proptest::prelude::*;
use sheaf_baseline::kau::{AGGREGATE, Aggregating, Config, Frame, Outbound, Plain};
use sheaf_stage::{DropReason, Duration, Instant, Stage};
use sheaf_wire::ip::example_udp;
use sheaf_wire::meta::{Meta, Outer};

const MS: Duration = Duration::from_millis(1);
/// Bytes of IP and UDP headers.
const HEADERS: usize = 28;

fn qdisc(config: Config) -> Aggregating {
    let outer = |to| Outer::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, to].into() };
    Aggregating::new(config, &[outer(2), outer(3)])
}

fn outbound(hop: usize, number: u16, len: usize) -> Outbound {
    let mut payload = vec![0; len - HEADERS];
    payload[..2].copy_from_slice(&number.to_be_bytes());
    Outbound { hop, mark: AGGREGATE, packet: example_udp(&payload) }
}

fn drain<S: Stage>(qdisc: &mut S, now: Instant) -> Vec<S::Out> {
    std::iter::from_fn(|| qdisc.dequeue(now)).collect()
}

/// Numbers of the packets in a frame.
fn numbers(frame: &Frame) -> Vec<u16> {
    let number = |packet: &[u8]| u16::from_be_bytes([packet[HEADERS], packet[HEADERS + 1]]);
    match Meta::parse(&frame.bytes) {
        Ok(meta) => {
            assert_eq!(meta.len(), frame.packets as usize);
            meta.packets().map(|packet| number(packet.bytes())).collect()
        }
        Err(_) => {
            assert_eq!(frame.packets, 1);
            vec![number(&frame.bytes)]
        }
    }
}

#[test]
fn a_packet_alone_leaves_at_its_timeout_as_it_was() {
    let mut qdisc = qdisc(Config::default());
    let packet = outbound(0, 1, 60);
    qdisc.enqueue(packet.clone(), Instant::ZERO).unwrap();
    assert_eq!(drain(&mut qdisc, Instant::ZERO), []);
    assert_eq!(qdisc.next_deadline(), Some(Instant::from_millis(5)));
    let frame = Frame { hop: 0, bytes: packet.packet, packets: 1 };
    assert_eq!(drain(&mut qdisc, Instant::from_millis(5)), [frame]);
    assert_eq!(qdisc.stats().unaggregated_packets, 1);
    assert_eq!(qdisc.stats().by_timeout, 1);
}

#[test]
fn a_queue_with_min_bytes_leaves_at_once_as_one_meta_packet() {
    let mut qdisc = qdisc(Config::default());
    for number in 0..9 {
        qdisc.enqueue(outbound(0, number, 60), Instant::ZERO).unwrap();
        let frames = drain(&mut qdisc, Instant::ZERO);
        assert_eq!(frames.len(), usize::from(number == 8), "540 bytes are the first above 500");
        if let [frame] = &frames[..] {
            assert_eq!(frame.bytes.len(), 20 + 9 * 60);
            assert_eq!(numbers(frame), (0..9).collect::<Vec<_>>());
        }
    }
    assert_eq!((qdisc.stats().by_size, qdisc.stats().meta_bytes), (1, 560));
}

#[test]
fn what_waits_for_the_device_can_still_be_joined() {
    let mut qdisc = qdisc(Config::default());
    for number in 0..9 {
        qdisc.enqueue(outbound(0, number, 60), Instant::ZERO).unwrap();
    }
    assert_eq!(drain(&mut qdisc, Instant::ZERO).len(), 1, "the device holds one frame");
    for number in 9..39 {
        qdisc.enqueue(outbound(0, number, 60), Instant::ZERO).unwrap();
        assert_eq!(drain(&mut qdisc, Instant::ZERO), []);
    }
    assert_eq!(qdisc.next_deadline(), None, "nothing leaves by time while the device is full");
    qdisc.finished();
    let frames = drain(&mut qdisc, Instant::ZERO + 20 * MS);
    assert_eq!(frames.iter().map(|frame| frame.packets).collect::<Vec<_>>(), [24]);
    assert_eq!(frames[0].bytes.len(), 20 + 24 * 60, "one more would be above 1500");
}

#[test]
fn the_oldest_past_its_timeout_goes_before_the_largest() {
    let mut qdisc = qdisc(Config::default());
    qdisc.set_places(0);
    qdisc.enqueue(outbound(0, 0, 60), Instant::ZERO).unwrap();
    for number in 1..20 {
        qdisc.enqueue(outbound(1, number, 60), Instant::ZERO + MS).unwrap();
    }
    qdisc.set_places(2);
    let hops = drain(&mut qdisc, Instant::ZERO + 5 * MS);
    assert_eq!(hops.iter().map(|frame| frame.hop).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn of_the_queues_with_min_bytes_the_largest_goes_first() {
    for (larger, other) in [(0, 1), (1, 0)] {
        let mut qdisc = qdisc(Config::default());
        qdisc.set_places(0);
        (0..10)
            .for_each(|number| qdisc.enqueue(outbound(other, number, 60), Instant::ZERO).unwrap());
        (0..11)
            .for_each(|number| qdisc.enqueue(outbound(larger, number, 60), Instant::ZERO).unwrap());
        qdisc.set_places(2);
        let hops = drain(&mut qdisc, Instant::ZERO).into_iter().map(|frame| frame.hop);
        assert_eq!(hops.collect::<Vec<_>>(), [larger, other]);
    }
}

#[test]
fn a_meta_packet_can_have_max_bytes() {
    let mut qdisc = qdisc(Config::default());
    qdisc.set_places(0);
    (0..3).for_each(|number| qdisc.enqueue(outbound(0, number, 740), Instant::ZERO).unwrap());
    qdisc.set_places(9);
    assert_eq!(drain(&mut qdisc, Instant::ZERO)[0].bytes.len(), 20 + 2 * 740);
}

#[test]
fn a_packet_too_large_to_share_keeps_its_place_and_leaves_alone() {
    let mut qdisc = qdisc(Config::default());
    qdisc.set_places(0);
    for (number, len) in [(0, 60), (1, 60), (2, 1500), (3, 60), (4, 500)] {
        qdisc.enqueue(outbound(0, number, len), Instant::ZERO).unwrap();
    }
    qdisc.set_places(9);
    let frames = drain(&mut qdisc, Instant::ZERO);
    assert_eq!(frames.iter().map(numbers).collect::<Vec<_>>(), [vec![0, 1], vec![2], vec![3, 4]]);
}

#[test]
fn packets_that_are_not_aggregated_take_turns_with_those_that_are() {
    let mut qdisc = qdisc(Config { min: 60, max: 100, ..Config::default() });
    qdisc.set_places(0);
    for number in 0..3 {
        qdisc.enqueue(outbound(0, number, 60), Instant::ZERO).unwrap();
        let unmarked = Outbound { mark: 0, ..outbound(0, 10 + number, 60) };
        qdisc.enqueue(unmarked, Instant::ZERO).unwrap();
    }
    qdisc.set_places(9);
    let frames = drain(&mut qdisc, Instant::ZERO);
    assert_eq!(frames.iter().flat_map(numbers).collect::<Vec<_>>(), [0, 10, 1, 11, 2, 12]);
}

#[test]
fn a_meta_packet_of_another_router_is_never_put_into_one() {
    let mut qdisc = qdisc(Config::default());
    let mut transit = outbound(0, 0, 60);
    transit.packet[9] = 253;
    for number in 1..10 {
        qdisc.enqueue(transit.clone(), Instant::ZERO).unwrap();
        qdisc.enqueue(outbound(0, number, 60), Instant::ZERO).unwrap();
    }
    qdisc.set_places(99);
    for frame in drain(&mut qdisc, Instant::ZERO + 5 * MS) {
        assert!(frame.bytes == transit.packet || Meta::parse(&frame.bytes).is_ok());
    }
    assert_eq!(qdisc.held(), 0);
}

#[test]
fn the_plain_qdisc_keeps_the_order_and_drops_at_its_tail() {
    let mut plain = Plain::new(3);
    for number in 0..4 {
        let result = plain.enqueue(outbound(0, number, 60), Instant::ZERO);
        assert_eq!(result, if number < 3 { Ok(()) } else { Err(DropReason::QueueFull) });
    }
    let mut order = Vec::new();
    while plain.held() > 0 {
        let frames = drain(&mut plain, Instant::ZERO);
        assert_eq!(frames.len(), 1, "the device holds one");
        order.extend(frames.iter().flat_map(numbers));
        plain.finished();
    }
    assert_eq!(order, [0, 1, 2]);
}

proptest! {
    #[test]
    fn frames_keep_max_order_and_timeout(
        packets in proptest::collection::vec((0usize..2, 60usize..700, 0u64..4_000), 1..200),
        service in 0u64..6_000,
    ) {
        let config = Config::default();
        let mut qdisc = qdisc(config);
        let mut now = Instant::ZERO;
        let (mut arrived, mut free_at) = (Vec::new(), None::<Instant>);
        let mut order = [Vec::new(), Vec::new()];
        let mut room_since = Instant::ZERO;
        for (number, (hop, len, gap)) in packets.iter().enumerate() {
            let until = now + Duration::from_micros(*gap);
            loop {
                for frame in drain(&mut qdisc, now) {
                    prop_assert!(frame.bytes.len() <= config.max);
                    for number in numbers(&frame) {
                        let since = Instant::max(arrived[usize::from(number)], room_since);
                        prop_assert!(now - since <= config.timeout, "{number} at {now:?}");
                        order[frame.hop].push(number);
                    }
                    prop_assert!(free_at.is_none(), "the device held a frame already");
                    free_at = Some(now + Duration::from_micros(service));
                }
                let next = free_at.into_iter().chain(qdisc.next_deadline()).min();
                let Some(next) = next.filter(|next| *next <= until) else { break };
                now = next;
                if free_at.is_some_and(|free| free <= now) {
                    (free_at, room_since) = (None, now);
                    qdisc.finished();
                }
            }
            now = until;
            arrived.push(now);
            qdisc.enqueue(outbound(*hop, number as u16, *len), now).unwrap();
        }
        for order in order {
            prop_assert!(order.is_sorted(), "{order:?}");
        }
    }
}
