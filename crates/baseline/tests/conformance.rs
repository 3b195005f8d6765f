//! Every stage of this crate passes the suite of the contract.

use proptest::prelude::*;
use sheaf_baseline::{Frame, interface, kau, nctu, netem, srr, trr};
use sheaf_stage::conformance::{self, Op};
use sheaf_stage::{Bitrate, Duration, Instant, Stage};
use sheaf_wire::ip::example_udp;
use sheaf_wire::meta::Outer;

/// Operations over inputs and controls of these kinds; time passes by up to `micros`.
fn ops<I, C>(
    input: I,
    control: C,
    micros: u64,
) -> impl Strategy<Value = Vec<Op<I::Value, C::Value>>>
where
    I: Strategy + 'static,
    C: Strategy + 'static,
    I::Value: Clone + std::fmt::Debug,
    C::Value: Clone + std::fmt::Debug,
{
    let op = prop_oneof![
        6 => input.prop_map(Op::Enqueue),
        2 => (0..micros).prop_map(|micros| Op::Advance(Duration::from_micros(micros))),
        2 => control.prop_map(Op::Control),
    ];
    proptest::collection::vec(op, 1..300)
}

fn outbound() -> impl Strategy<Value = kau::Outbound> {
    let mark = prop_oneof![4 => Just(kau::AGGREGATE), 1 => Just(0)];
    (0usize..3, mark, 0usize..1600, 0u8..8).prop_map(|(hop, mark, len, kind)| {
        let mut packet = example_udp(&vec![0; len]);
        match kind {
            0 => packet[9] = 253,
            1 => packet.truncate(len),
            _ => {}
        }
        kau::Outbound { hop, mark, packet }
    })
}

/// Packets of IPv4, as far as their first byte goes.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    (any::<u8>(), 1usize..1600).prop_map(|(content, len)| {
        let mut packet = vec![content; len];
        packet[0] = 0x45;
        packet
    })
}

/// A frame of three links, and of one that does not exist.
fn frame() -> impl Strategy<Value = Frame> {
    (0usize..4, packet()).prop_map(|(link, bytes)| Frame { link, bytes })
}

/// A frame with a number, or too short for one.
fn numbered() -> impl Strategy<Value = Frame> {
    let number = prop_oneof![8 => 0u32..300, 1 => any::<u32>()];
    (number, 0usize..9).prop_map(|(number, cut)| {
        let mut bytes = [number.to_be_bytes(), [0x45; 4]].concat();
        bytes.truncate(12 - cut);
        Frame { link: 0, bytes }
    })
}

/// Nothing but packets happens to the stage.
fn nothing<S>(_: &mut S, (): &(), _: Instant) {}

proptest! {
    #[test]
    fn the_aggregating_qdisc_passes(
        ops in ops(outbound(), 0u32..6, 9_000),
        max in 100usize..2048,
        min in 0usize..1500,
        millis in 0u64..20,
    ) {
        let timeout = Duration::from_millis(millis);
        let config = kau::Config { max, min, timeout, limit: 50 };
        let outer = |to| Outer::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, to].into() };
        let make = || kau::Aggregating::new(config, &[outer(2), outer(3)]);
        let control = |qdisc: &mut kau::Aggregating, what: &u32, _: Instant| match what {
            0..3 => qdisc.set_places(*what),
            _ => qdisc.finished(),
        };
        conformance::check(make, &ops, control, kau::Frame::clone);
    }

    #[test]
    fn the_plain_qdisc_passes(ops in ops(outbound(), 0u32..6, 9_000)) {
        let control = |qdisc: &mut kau::Plain, what: &u32, _: Instant| match what {
            0..3 => qdisc.set_places(*what),
            _ => qdisc.finished(),
        };
        conformance::check(|| kau::Plain::new(50), &ops, control, kau::Frame::clone);
    }

    #[test]
    fn the_sender_with_one_sequence_passes(ops in ops(packet(), (0usize..4, 0u64..50), 9_000)) {
        let control = |sender: &mut nctu::Sender, (link, waiting): &(usize, u64), _: Instant| {
            sender.set_queue(*link, *waiting, 50);
        };
        conformance::check(|| nctu::Sender::new(3), &ops, control, Frame::clone);
    }

    #[test]
    fn the_receiver_with_one_timer_passes(ops in ops(numbered(), Just(()), 900_000)) {
        conformance::check(nctu::Receiver::new, &ops, nothing, Vec::clone);
    }

    #[test]
    fn the_sender_with_markers_passes(ops in ops(packet(), Just(()), 90_000)) {
        let make = || srr::Sender::new(srr::Config::equal(3));
        conformance::check(make, &ops, nothing, Frame::clone);
    }

    #[test]
    fn the_receiver_of_markers_passes(
        ops in ops(frame(), (0usize..4, 0u32..20, 0u32..3_000), 9_000),
    ) {
        let control = |receiver: &mut srr::Receiver, what: &(usize, u32, u32), now: Instant| {
            let (link, round, surplus) = *what;
            let bytes = [&[0][..], &round.to_be_bytes(), &surplus.to_be_bytes()].concat();
            receiver.receive(Frame { link, bytes }, now).unwrap();
        };
        let make = || srr::Receiver::new(&srr::Config::equal(3));
        conformance::check(make, &ops, control, Vec::clone);
    }

    #[test]
    fn the_sender_with_triggers_passes(ops in ops(packet(), Just(()), 9_000)) {
        conformance::check(|| trr::Sender::new(3, 3_000), &ops, nothing, Frame::clone);
    }

    #[test]
    fn the_receiver_of_triggers_passes(ops in ops(frame(), (0usize..4, 0u32..20), 9_000)) {
        let control = |receiver: &mut trr::Receiver, (link, round): &(usize, u32), now: Instant| {
            let mut bytes = vec![0; trr::TRIGGER_LEN];
            bytes[1..5].copy_from_slice(&round.to_be_bytes());
            receiver.receive(Frame { link: *link, bytes }, now).unwrap();
        };
        conformance::check(|| trr::Receiver::new(3), &ops, control, Vec::clone);
    }

    #[test]
    fn the_one_queue_of_netem_passes(
        ops in ops(packet(), Just(()), 30_000),
        millis in 0u64..50,
        kbps in 1u64..100_000,
    ) {
        let config = netem::Config {
            delay: Duration::from_millis(millis),
            rate: Bitrate::from_kbps(kbps),
            burst: netem::BURST,
            limit: 20,
            link_header: 14,
        };
        conformance::check(|| netem::NetEm::new(config), &ops, nothing, Vec::clone);
    }

    #[test]
    fn an_interface_at_its_line_rate_passes(
        ops in ops(packet(), Just(()), 30_000),
        millis in 0u64..50,
        kbps in 1u64..100_000,
        limit in 0usize..20,
    ) {
        let (rate, delay) = (Bitrate::from_kbps(kbps), Duration::from_millis(millis));
        let config = interface::Config { rate, delay, limit };
        conformance::check(|| interface::Interface::new(config), &ops, nothing, Vec::clone);
    }
}

#[test]
fn frames_count_the_packets_that_they_carry() {
    let mut sender = srr::Sender::new(srr::Config::equal(2));
    sender.enqueue(vec![0x45; 100], Instant::ZERO).unwrap();
    let frames: Vec<_> = std::iter::from_fn(|| sender.dequeue(Instant::from_millis(50))).collect();
    assert_eq!(frames.iter().map(srr::Sender::packets).collect::<Vec<_>>(), [0, 0, 1]);
}
