//! Urgent packets, copies, and the effect of a silent cut.

mod world;

use sheaf_stage::{Bitrate, DropReason, Duration, Instant};
use sheaf_trunk::{DeliveryMode, EndpointConfig, Flow, LinkConfig, Sender, SenderConfig};
use sheaf_wire::ip::example_udp;
use sheaf_wire::trunk::{Data, Frame};
use world::{MS, PACKET, World, pipe};

const SECOND: Duration = Duration::from_secs(1);
const CALL: u16 = 40;

/// A packet of class EF.
fn voice(payload: usize) -> Vec<u8> {
    let mut packet = example_udp(&vec![0; payload]);
    packet[1] = 46 << 2;
    packet
}

/// A sender with three links that are up.
fn sender() -> Sender {
    let mut sender = Sender::new(SenderConfig::default(), 0, 1).unwrap();
    for _ in 0..3 {
        let id = sender.add_link(LinkConfig::default()).unwrap();
        sender.set_up(id, true, Instant::ZERO);
    }
    sender
}

/// All that leaves until `until`: link, number.
fn drained(sender: &mut Sender, from: Instant, until: Instant) -> Vec<(u8, u32)> {
    let frames = drained_frames(sender, from, until).into_iter();
    frames.map(|(link, number, _)| (link, number)).collect()
}

/// All that leaves until `until`: link, number, whether its first packet is of class EF.
fn drained_frames(sender: &mut Sender, from: Instant, until: Instant) -> Vec<(u8, u32, bool)> {
    let (mut now, mut frame, mut sent) = (from, Vec::new(), Vec::new());
    loop {
        while let Some(link) = sender.poll_transmit(0, now, &mut frame) {
            if let Ok(Frame::Data(Data { repr, payload })) = Frame::parse(&frame) {
                sent.push((link.0, repr.seq, payload[1] == 46 << 2));
            }
        }
        match sender.next_deadline() {
            Some(next) if next <= until => now = next.max(now),
            _ => return sent,
        }
    }
}

#[test]
fn a_link_that_goes_down_takes_one_copy_of_what_waits_and_no_more() {
    for (down, packets) in [(0, 1), (1, 20), (2, 20)] {
        let mut sender = sender();
        for _ in 0..packets {
            sender
                .send(&voice(600), Flow::of_hash(1), DeliveryMode::Copies, Instant::ZERO)
                .unwrap();
        }
        let now = Instant::from_millis(1);
        let mut sent = drained(&mut sender, Instant::ZERO, now);
        sender.set_up(sheaf_trunk::LinkId(down), false, now);
        sent.extend(drained(&mut sender, now, Instant::from_millis(500)));
        for link in (0..3).filter(|link| *link != down) {
            let of_link: Vec<u32> =
                sent.iter().filter(|(on, _)| *on == link).map(|(_, seq)| *seq).collect();
            assert_eq!(of_link, (0..packets).collect::<Vec<_>>(), "{down} down, link {link}");
        }
        assert_eq!(sender.held(), 0);
    }
}

#[test]
fn the_last_copy_of_a_packet_survives_the_failure_of_its_link() {
    let mut sender = sender();
    for _ in 0..20 {
        sender.send(&voice(600), Flow::of_hash(1), DeliveryMode::Copies, Instant::ZERO).unwrap();
    }
    let now = Instant::from_millis(1);
    for link in [0, 1] {
        sender.set_up(sheaf_trunk::LinkId(link), false, now);
    }
    let sent = drained(&mut sender, now, Instant::from_millis(500));
    let expected: Vec<(u8, u32)> = (0..20).map(|seq| (2, seq)).collect();
    assert_eq!(sent, expected);
    assert_eq!(sender.counters().dropped(DropReason::Duplicate), 40);
}

#[test]
fn a_burst_of_small_packets_finds_room_on_links_that_are_taken_to_be_slow() {
    // A busy machine once learned 318 kbit/s from the train of a cable.
    let first_rate = Bitrate::from_kbps(300);
    for mode in [DeliveryMode::Order, DeliveryMode::Loose, DeliveryMode::Copies] {
        let mut sender =
            Sender::new(SenderConfig { first_rate, ..SenderConfig::default() }, 0, 1).unwrap();
        for _ in 0..2 {
            let id = sender.add_link(LinkConfig::default()).unwrap();
            sender.set_up(id, true, Instant::ZERO);
        }
        for flow in 0..100 {
            let sent = sender.send(&voice(32), Flow::of_hash(flow), mode, Instant::ZERO);
            assert_eq!(sent, Ok(()), "{mode:?}: packet {flow}");
        }
    }
}

#[test]
fn urgent_packets_leave_before_bulk_that_waits_and_bulk_keeps_half() {
    let mut sender = sender();
    let bulk = example_udp(&[0; 1_400]);
    for _ in 0..60 {
        sender.send(&bulk, Flow::of_hash(2), DeliveryMode::Order, Instant::ZERO).unwrap();
    }
    for _ in 0..60 {
        sender.send(&voice(1_400), Flow::of_hash(1), DeliveryMode::Order, Instant::ZERO).unwrap();
    }
    let sent = drained_frames(&mut sender, Instant::ZERO, Instant::from_millis(200));
    assert_eq!(sent.len(), 120);
    let urgent = |sent: &[(u8, u32, bool)]| sent.iter().filter(|(.., urgent)| *urgent).count();
    assert!(urgent(&sent[..12]) == 12, "first in line: {sent:?}");
    let half = urgent(&sent[15..75]);
    assert!((25..=35).contains(&half), "and then half: {half}");
    for link in 0..3 {
        let of = |urgent: bool| {
            let numbers = sent.iter().filter(move |(on, _, class)| *on == link && *class == urgent);
            numbers.map(|(_, seq, _)| *seq).collect::<Vec<_>>()
        };
        assert!(of(true).is_sorted() && of(false).is_sorted(), "in order each");
    }
}

#[test]
fn a_call_beside_bulk_that_fills_every_queue_waits_for_the_links_alone() {
    let mut world = World::new(EndpointConfig::default(), &[pipe(20, 5); 3]);
    world.run(SECOND);
    world.offer(80.0, PACKET, 4);
    world.run(3 * SECOND);
    world.forget();
    // What the search for the rates lost was repaired, some of it late.
    let late_before = world.ends[1].stats().reorder.late;
    let mut said = 0;
    for _ in 0..500 {
        said += u64::from(world.say(CALL, 200));
        world.run(20 * MS);
    }
    world.run(100 * MS);
    let (call, bulk) = (world.seen[usize::from(CALL)], world.seen[0]);
    println!("call {:?}, bulk {:?}", call.longest_delay, bulk.longest_delay);
    assert_eq!((said, call.packets, call.disordered), (500, 500, 0));
    // 5 ms on the way, 4 ms of queue that each link is kept with, and its variation.
    assert!(call.longest_delay < 20 * MS, "{:?}", call.longest_delay);
    assert!(bulk.longest_delay > 25 * MS, "there was a queue: {:?}", bulk.longest_delay);
    assert_eq!(world.disordered(), 0, "nobody is taken for lost that was overtaken");
    let late = world.ends[1].stats().reorder.late;
    assert_eq!(late, late_before);
}

#[test]
fn a_silent_cut_of_one_of_three_links_is_felt_for_less_than_100_ms_whenever_it_comes() {
    let (mut gaps, mut cut) = (Vec::new(), Vec::new());
    for round in 0..60 {
        let mut world = World::new(EndpointConfig::default(), &[pipe(20, 5); 3]);
        world.run(SECOND);
        world.offer(80.0, PACKET, 4);
        world.run(2 * SECOND + Duration::from_micros(700 * round));
        world.forget();
        let before = world.pipes[0][2].cut;
        world.cut(2);
        world.run(SECOND);
        gaps.extend(world.seen.iter().take(4).map(|seen| seen.longest_gap));
        cut.push(world.pipes[0][2].cut - before);
    }
    gaps.sort();
    cut.sort();
    let at = |share: usize| gaps[(gaps.len() - 1) * share / 100];
    println!(
        "pause p50 {:?}, p99 {:?}; frames lost p50 {}, most {}",
        at(50),
        at(99),
        cut[cut.len() / 2],
        cut[cut.len() - 1]
    );
    assert!(at(100) <= 100 * MS, "{:?}", at(100));
    // What is sent in two reports, a round trip and the time to the last one heard.
    assert!(cut[cut.len() - 1] <= 140, "{cut:?}");
}

#[test]
fn ef_and_cs6_of_either_version_overtake_and_no_other_class_does() {
    let ipv6 = |class: u8| {
        let mut packet = vec![0; 40 + 60];
        (packet[0], packet[1], packet[5], packet[6]) = (0x60 | class >> 4, class << 4, 60, 59);
        packet
    };
    let ipv4 = |class: u8| {
        let mut packet = example_udp(&[0; 60]);
        packet[1] = class;
        packet
    };
    for class in 0..64u8 {
        for packet in [ipv4(class << 2), ipv6(class << 2 | 3)] {
            let mut sender = Sender::new(SenderConfig::default(), 0, 1).unwrap();
            let id = sender.add_link(LinkConfig::default()).unwrap();
            sender.set_up(id, true, Instant::ZERO);
            let bulk = example_udp(&[0; 1_400]);
            sender.send(&bulk, Flow::of_hash(2), DeliveryMode::Order, Instant::ZERO).unwrap();
            sender.send(&packet, Flow::of_hash(1), DeliveryMode::Order, Instant::ZERO).unwrap();
            let sent = drained(&mut sender, Instant::ZERO, Instant::from_millis(50));
            let overtakes = sent.first().map(|(_, seq)| *seq) == Some(1);
            assert_eq!(overtakes, matches!(class, 46 | 48), "class {class}: {sent:?}");
        }
    }
}
