//! Damaged frames of format 2, contexts and messages about contexts.
//!
//! The corpus (`tests/corpus/frames`, `tests/corpus/feedback`) has payloads behind the outer
//! header, as an aggregator sent them: definitions, compressed packets of both forms, cut packets,
//! marks. `SHEAF_FUZZ_ROUNDS=10000000` runs as many inputs as a release asks for.

use sheaf_aggregate::{
    Aggregator, Config, Device, Format, Hop, HopId, Outbound, Policy, Refused, Split, Splitter,
};
use sheaf_fuzz::{Fuzzer, RngExt};
use sheaf_stage::{Duration, Instant, Stage};
use sheaf_wire::aggfrag::{self, Frame};
use sheaf_wire::compress::feedback::{Feedback, Item};
use sheaf_wire::ecn::Ecn;
use sheaf_wire::ethernet;
use sheaf_wire::ip::Ip;
use sheaf_wire::meta::{HOP_LIMIT_NEIGHBOUR, Outer, Repr};
use std::collections::BTreeSet;

const ROUNDS: u64 = 20_000;
/// Every so many rounds another splitter begins.
const LIFE: u64 = 500;
const SECRET: u64 = 11;

fn outer(last: u8) -> Outer {
    Outer::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, last].into() }
}

fn repr(ecn: Ecn) -> Repr {
    Repr { outer: outer(2), dscp: 46, ecn, hop_limit: HOP_LIMIT_NEIGHBOUR }
}

fn fuzzer(name: &str) -> Fuzzer {
    /// First bytes of blocks and headers.
    const WORDS: [&[u8]; 7] =
        [&[0x45, 0], &[0x80, 40], &[0x90], &[0x95], &[0xa6], &[0xc0, 0x40], &[0, 0, 0, 0]];
    Fuzzer::new(env!("CARGO_MANIFEST_DIR"), name, ROUNDS).with_words(&WORDS)
}

/// The packet that carries `payload` to the splitter.
fn carried(payload: &[u8], ecn: Ecn) -> Vec<u8> {
    let payload = &payload[..payload.len().min(aggfrag::MAX_LEN - 20)];
    let mut packet = vec![0; repr(ecn).header_len()];
    packet.extend_from_slice(payload);
    let len = packet.len();
    repr(ecn).emit(len, &mut packet);
    packet
}

fn splitter() -> Splitter {
    Splitter::accepting_any().with_frames(SECRET)
}

/// Splits a payload, and checks that only whole packets come out and none of what is refused.
/// Ethernet payloads are left out: nothing here protects them, nor in frames of their own.
fn split(splitter: &mut Splitter, payload: &[u8], ecn: Ecn) -> (Vec<Vec<u8>>, bool) {
    let (mut packets, mut others) = (Vec::new(), 0);
    let result = splitter.split(&mut carried(payload, ecn), |inner| {
        if !ethernet::is_ip(inner.ethertype) {
            others += 1;
            return;
        }
        let view = Ip::parse(inner.bytes).expect("only whole packets are delivered");
        assert_eq!(view.bytes().len(), inner.bytes.len());
        assert_ne!(view.protocol().0, 253, "a nested meta packet was delivered");
        packets.push(inner.bytes.to_vec());
    });
    let nothing = packets.is_empty() && others == 0;
    match result {
        Ok(Split::Delivered(_)) => {}
        Ok(Split::Heard(feedback)) => assert!(nothing && !feedback.items().is_empty()),
        Err(_) => assert!(nothing, "something of a refused frame was delivered"),
    }
    (packets, result.is_ok())
}

#[test]
fn damaged_frames_deliver_whole_packets_or_none() {
    let mut fuzzer = fuzzer("frames");
    let mut receiver = splitter();
    let mut accepted = 0;
    let corpus = fuzzer.corpus().to_vec();
    let mut bytes = Vec::new();
    for round in 0..fuzzer.rounds() {
        if round % LIFE == 0 {
            receiver = splitter();
            corpus.iter().for_each(|file| drop(split(&mut receiver, file, Ecn::Ect0)));
        }
        fuzzer.take(&mut bytes);
        if let Some(sequence) = bytes.get_mut(1).filter(|_| fuzzer.rng.random_bool(0.5)) {
            *sequence = fuzzer.rng.random();
        }
        let ecn = if fuzzer.rng.random_bool(0.1) { Ecn::Ce } else { Ecn::Ect0 };
        accepted += u64::from(split(&mut receiver, &bytes, ecn).1);
    }
    let rounds = fuzzer.rounds();
    assert!((1..rounds).contains(&accepted), "{accepted} of {rounds} were accepted");
}

#[test]
fn damaged_compressed_packets_are_not_restored_but_for_one_in_65536() {
    // All packets of the corpus, as they were, and the frames that have only compressed ones.
    let mut all = fuzzer("frames");
    let mut receiver = splitter();
    let mut known = BTreeSet::new();
    let mut compressed = Vec::new();
    let mut definitions = Vec::new();
    for file in all.corpus().to_vec() {
        known.extend(split(&mut receiver, &file, Ecn::Ect0).0);
        let view = Frame::parse(&file, |_| Some(20)).expect("an undamaged frame");
        let form = |first: u8| file[aggfrag::HEADER_LEN] >> 4 >= first;
        if view.header().offset == 0 && view.cut().is_none() && form(10) {
            compressed.push(file);
        } else {
            definitions.push(file);
        }
    }
    assert!(compressed.len() > 4, "{} frames begin with a compressed packet", compressed.len());
    let rounds = all.rounds();
    let mut fuzzer = Fuzzer::over(compressed, ROUNDS);
    let (mut bytes, mut restored, mut wrong) = (Vec::new(), 0u64, 0u64);
    for round in 0..rounds {
        if round % LIFE == 0 {
            receiver = splitter();
            definitions.iter().for_each(|file| drop(split(&mut receiver, file, Ecn::Ect0)));
        }
        fuzzer.take(&mut bytes);
        if bytes.len() < aggfrag::HEADER_LEN {
            continue;
        }
        bytes[..2].copy_from_slice(&[0, all.rng.random()]);
        for packet in split(&mut receiver, &bytes, Ecn::Ect0).0 {
            restored += 1;
            // Nothing protects the payload of a packet that has no checksum, here as anywhere.
            let unsummed = packet[0] == 0x45 && packet[26..28] == [0, 0];
            wrong += u64::from(!unsummed && !known.contains(&packet));
        }
    }
    // Up to 24 compressed packets are tried in a round, and most rounds damage one of them.
    assert!(restored > rounds, "{restored} packets came out");
    assert!(wrong <= 4 + rounds / 8192, "{wrong} packets came out that nobody sent");
}

#[test]
fn damaged_messages_about_contexts_cost_no_packet_for_longer_than_a_round_trip() {
    let mut fuzzer = fuzzer("feedback");
    let mut link = Talk::new(Format::Compressed, Config { queue_frames: 64, ..Config::default() });
    let mut bytes = Vec::new();
    let mut heard = 0;
    for round in 0..fuzzer.rounds() {
        fuzzer.take(&mut bytes);
        if let Ok(feedback) = Feedback::parse(&bytes) {
            heard += 1;
            link.aggregator.said(HopId(0), &feedback, link.now);
        }
        if round % 10 == 0 {
            // Both flows, twice: by the second time, wrong generations have been found out.
            for step in 0..2 {
                let before = link.delivered;
                link.voice((round / 5 + step) as u16);
                if step == 1 {
                    assert_eq!(link.delivered, before + 2, "round {round}");
                }
            }
        }
    }
    assert!(heard > 0, "no message got through");
}

#[test]
fn damaged_operation_sequences_keep_the_balance_in_format_2() {
    let packets = fuzzer("packets");
    let mut fuzzer = Fuzzer::over(packets.corpus().to_vec(), ROUNDS);
    let mut left = fuzzer.rounds();
    while left > 0 {
        let steps = left.min(400);
        operations(&mut fuzzer, steps);
        left -= steps;
    }
}

fn operations(fuzzer: &mut Fuzzer, steps: u64) {
    let rng = &mut fuzzer.rng;
    let policy = if rng.random() { Policy::Busy } else { Policy::Forced };
    let max = rng.random_range(100..=2048);
    let min = sheaf_aggregate::Threshold::Percent(rng.random_range(0..=100));
    let config = Config { policy, max, min, queue_frames: 2, total_frames: 4, ..Config::default() };
    let format = if rng.random() { Format::Compressed } else { Format::Frames };
    let mut talk = Talk::new(format, config);
    for _ in 0..steps {
        match fuzzer.rng.random_range(0..9u8) {
            0 => talk.now += Duration::from_nanos(fuzzer.rng.random_range(0..50_000_000)),
            1 => talk.aggregator.set_device(Device::Silent, talk.now),
            2 => {
                let waiting = fuzzer.rng.random_range(0..4);
                talk.aggregator.set_device(Device::Reports { waiting, limit: 3 }, talk.now);
            }
            3 if fuzzer.rng.random_bool(0.1) => {
                let max = Some(fuzzer.rng.random_range(0..2048));
                talk.aggregator.set_hop(HopId(0), Hop { format, max, ..Hop::neighbour(outer(2)) });
            }
            _ => {
                let mut packet = talk.aggregator.buffer();
                fuzzer.take(&mut packet);
                let outbound = Outbound { hop: HopId(0), mark: 0, packet };
                let _ = talk.aggregator.enqueue(outbound, talk.now);
            }
        }
        talk.drain();
        let counters = talk.aggregator.counters();
        let gone = counters.packets_out + counters.dropped_total();
        assert_eq!(counters.packets_in, gone + talk.aggregator.held());
        assert!(talk.aggregator.next_deadline().is_none_or(|deadline| deadline > talk.now));
    }
}

/// An aggregator, its splitter, and what they say to each other.
struct Talk {
    aggregator: Aggregator,
    splitter: Splitter,
    now: Instant,
    delivered: u64,
}

impl Talk {
    fn new(format: Format, config: Config) -> Talk {
        let mut aggregator = Aggregator::new(config).unwrap();
        aggregator.add_hop(Hop { format, ..Hop::neighbour(outer(2)) });
        Talk { aggregator, splitter: splitter(), now: Instant::ZERO, delivered: 0 }
    }

    /// Every frame brings the packets that end in it.
    fn drain(&mut self) {
        while let Some(mut frame) = self.aggregator.dequeue(self.now) {
            let alone = Ip::parse(&frame.bytes).unwrap().protocol().0 != 253;
            if alone {
                self.delivered += 1;
            } else {
                let mut packets = 0;
                let split = self.splitter.split(&mut frame.bytes, |_| packets += 1);
                // What a corpus' meta packet has inside is none of ours.
                match split {
                    Ok(Split::Delivered(feedback)) => {
                        let unknown =
                            feedback.items().iter().any(|item| !matches!(item, Item::Known { .. }));
                        assert!(unknown || packets == frame.packets);
                        self.aggregator.said(HopId(0), &feedback, self.now);
                    }
                    Ok(Split::Heard(_)) => unreachable!("only frames are sent"),
                    Err(Refused::Frame(refusal)) => panic!("we made it: {refusal}"),
                    Err(Refused::Meta(_)) => assert_eq!(frame.packets, 1),
                }
                self.delivered += u64::from(packets);
            }
            self.aggregator.recycle(frame.bytes);
        }
    }

    /// A packet of each of two flows, in one frame.
    fn voice(&mut self, sequence: u16) {
        self.aggregator.set_device(Device::Reports { waiting: 2, limit: 50 }, self.now);
        for flow in 0..2u16 {
            let packet = voice(flow, sequence);
            let outbound = Outbound { hop: HopId(0), mark: 0, packet };
            self.aggregator.enqueue(outbound, self.now).unwrap();
        }
        self.now += Config::default().hold;
        self.drain();
    }
}

/// An RTP packet with right checksums.
fn voice(flow: u16, sequence: u16) -> Vec<u8> {
    let mut datagram = vec![0x80, 18];
    datagram.extend_from_slice(&sequence.to_be_bytes());
    datagram.extend_from_slice(&(160 * u32::from(sequence)).to_be_bytes());
    datagram.extend_from_slice(&[1, 2, 3, flow as u8]);
    datagram.extend((0..20u16).map(|byte| (byte * 3).wrapping_add(sequence) as u8));
    let mut packet = Vec::new();
    etherparse::PacketBuilder::ipv4([10, 1, 0, 1], [10, 1, 0, 2], 63)
        .udp(4000 + flow, 5004)
        .write(&mut packet, &datagram)
        .unwrap();
    packet
}
