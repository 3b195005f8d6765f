//! Ten million damaged byte strings and operations through parsing, packing and splitting.
//!
//! Each round starts from the kept corpus (`tests/corpus/meta`, replayed first and whole). What is
//! checked is not only that nothing panics but that nothing half-parsed comes out and no packet is
//! lost from the balance. A find goes into the corpus as a file.

use sheaf_aggregate::{
    Aggregator, Config, Device, Hop, HopId, Outbound, Policy, Refused, Split, Splitter,
};
use sheaf_fuzz::{Fuzzer, RngExt};
use sheaf_stage::{Duration, Instant, Stage};
use sheaf_wire::aggfrag;
use sheaf_wire::ip::Ip;
use sheaf_wire::meta::{HOP_LIMIT_NEIGHBOUR, Meta, Outer, Refusal, Repr};

const ROUNDS: u64 = 5_000_000;

fn fuzzer() -> Fuzzer {
    const VERSIONS_AND_PROTOCOLS: [&[u8]; 6] = [&[0x45], &[0x60], &[0x46], &[0x4f], &[253], &[17]];
    Fuzzer::new(env!("CARGO_MANIFEST_DIR"), "meta", ROUNDS).with_words(&VERSIONS_AND_PROTOCOLS)
}

/// Makes the outer checksum right again and the sender a neighbour, so that damage reaches what
/// lies behind these checks.
fn reseal(bytes: &mut [u8]) {
    if bytes.len() >= 20 {
        let hop_limit = if bytes[0] >> 4 == 6 { 7 } else { 8 };
        bytes[hop_limit] = HOP_LIMIT_NEIGHBOUR;
        bytes[10..12].fill(0);
        let checksum = sheaf_wire::checksum::ipv4_header(&bytes[..20]);
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Inner packets that were delivered or dropped singly.
fn handled(splitter: &Splitter) -> u64 {
    splitter.packets() + splitter.not_capable() + splitter.only_neighbours_say()
}

fn check_split(splitter: &mut Splitter, bytes: &mut [u8]) {
    let before = handled(splitter);
    let expected = Meta::parse(bytes).map(|meta| meta.len() as u64);
    let mut delivered = 0;
    let result = splitter.split(bytes, |inner| {
        delivered += 1;
        let packet = inner.bytes;
        let view = Ip::parse(packet).expect("only whole packets are delivered");
        assert_eq!(view.bytes().len(), packet.len());
        assert_ne!(view.protocol().0, 253, "a nested meta packet was delivered");
    });
    match (expected, result) {
        (Ok(count), Ok(Split::Delivered(_))) => {
            assert_eq!(handled(splitter), before + count);
        }
        // One to a group is of format 2.
        (_, Err(Refused::Frame(aggfrag::Refusal::Group))) => {
            let (outer, delivered) = (Repr::parse(bytes).map(|repr| repr.outer), delivered);
            assert!(outer.is_ok_and(Outer::is_to_group) && delivered == 0);
        }
        // The sender is judged before the inner packets are looked at.
        (_, Err(Refused::Meta(Refusal::NotFromTheLink))) => assert_eq!(delivered, 0),
        (Err(a), Err(b)) => assert_eq!((Refused::Meta(a), 0), (b, delivered)),
        (parsed, split) => panic!("parser and splitter disagree: {parsed:?}, {split:?}"),
    }
}

#[test]
fn damaged_meta_packets_are_split_whole_or_refused() {
    let mut fuzzer = fuzzer();
    let mut splitter = Splitter::accepting_any();
    for file in fuzzer.corpus() {
        check_split(&mut splitter, &mut file.clone());
    }
    let mut bytes = Vec::new();
    for _ in 0..fuzzer.rounds() {
        fuzzer.take(&mut bytes);
        if fuzzer.rng.random_bool(0.7) {
            reseal(&mut bytes);
        }
        check_split(&mut splitter, &mut bytes);
    }
    assert!(splitter.meta_packets() > 0, "no round got through: the fuzzer sees only the surface");
}

#[test]
fn damaged_operation_sequences_keep_the_balance_and_what_leaves_can_be_split() {
    let all = fuzzer();
    let inner = |file: &Vec<u8>| Some(Meta::parse(file).ok()?.packets().next()?.bytes().to_vec());
    let mut fuzzer = Fuzzer::over(all.corpus().iter().filter_map(inner).collect(), ROUNDS);
    let mut left = fuzzer.rounds();
    while left > 0 {
        left = operations(&mut fuzzer, left.min(400), left);
    }
}

fn operations(fuzzer: &mut Fuzzer, steps: u64, left: u64) -> u64 {
    let rng = &mut fuzzer.rng;
    let policy = if rng.random() { Policy::Busy } else { Policy::Forced };
    let max = rng.random_range(100..=2048);
    let min = sheaf_aggregate::Threshold::Percent(rng.random_range(0..=100));
    let config = Config { policy, max, min, queue_frames: 2, total_frames: 4, ..Config::default() };
    let mut aggregator = Aggregator::new(config).unwrap();
    let outer = Outer::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() };
    aggregator.add_hop(Hop::neighbour(outer));
    aggregator.add_hop(Hop { max: Some(rng.random_range(0..2048)), ..Hop::neighbour(outer) });
    let mut splitter = Splitter::accepting_any();
    let mut now = Instant::ZERO;
    for _ in 0..steps {
        match fuzzer.rng.random_range(0..8u8) {
            0 => now += Duration::from_nanos(fuzzer.rng.random_range(0..50_000_000)),
            1 => aggregator.set_device(Device::Silent, now),
            2 => aggregator.set_device(
                Device::Reports { waiting: fuzzer.rng.random_range(0..4), limit: 3 },
                now,
            ),
            _ => {
                let mut packet = aggregator.buffer();
                fuzzer.take(&mut packet);
                let hop = HopId(fuzzer.rng.random_range(0..3));
                let _ = aggregator.enqueue(Outbound { hop, mark: 0, packet }, now);
            }
        }
        while let Some(mut frame) = aggregator.dequeue(now) {
            if frame.packets > 1 {
                assert!(frame.bytes.len() <= usize::from(max));
                let mut packets = 0;
                splitter.split(&mut frame.bytes, |_| packets += 1).expect("we made it");
                assert_eq!(packets, frame.packets);
            }
            aggregator.recycle(frame.bytes);
        }
        let counters = aggregator.counters();
        let gone = counters.packets_out + counters.dropped_total();
        assert_eq!(counters.packets_in, gone + aggregator.held());
        assert!(aggregator.next_deadline().is_none_or(|deadline| deadline > now));
    }
    left - steps
}
