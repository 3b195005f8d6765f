//! Rules, rows of pipes, and pipes for flows.

use proptest::prelude::*;
use sheaf_emulator::trace::Steps;
use sheaf_emulator::{
    Action, Bits, Cause, Chance, Delay, Direction, Link, LinkConfig, Loss, Mask, Packet,
    PipeConfig, Pipes, Rule, Target, Trace, TraceConfig,
};
use sheaf_stage::conformance::{self, Op};
use sheaf_stage::{Bitrate, DropReason, Duration, Instant, Stage};
use sheaf_wire::ip::Protocol;

fn udp(source: [u8; 4], destination: [u8; 4], ports: (u16, u16), number: u64) -> Packet {
    let mut bytes = sheaf_wire::ip::example_udp(&[0; 72]);
    bytes[12..16].copy_from_slice(&source);
    bytes[16..20].copy_from_slice(&destination);
    bytes[20..22].copy_from_slice(&ports.0.to_be_bytes());
    bytes[22..24].copy_from_slice(&ports.1.to_be_bytes());
    Packet::new(bytes, Instant::ZERO, number)
}

fn flow(port: u16, number: u64) -> Packet {
    udp([10, 0, 0, 1], [10, 0, 0, 2], (port, 80), number)
}

fn delay(ms: u64) -> LinkConfig {
    LinkConfig { delay: Delay::constant(Duration::from_millis(ms)), ..LinkConfig::default() }
}

/// 100 bytes take a millisecond.
fn slow() -> LinkConfig {
    LinkConfig { rate: Some(Bitrate::from_kbps(800)), ..LinkConfig::default() }
}

fn through(pipes: &[usize]) -> Action {
    Action::Pipes(pipes.iter().map(|pipe| Target { pipe: *pipe, queue: None }).collect())
}

fn drain(pipes: &mut Pipes) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    while let Some(at) = pipes.next_deadline() {
        let one = pipes.dequeue(at);
        out.extend(one.map(|packet| (packet.number, packet.depart.as_nanos() / 1_000_000)));
    }
    out
}

/// Whether a rule denies a packet.
fn denies(rule: Rule, packet: &Packet) -> bool {
    let mut pipes = Pipes::new(0, 1);
    pipes.set_rules(vec![Rule { action: Action::Deny, ..rule }]).unwrap();
    pipes.enqueue(packet.clone(), Instant::ZERO) == Err(DropReason::Denied)
}

#[test]
fn each_condition_of_a_rule_tells_packets_apart() {
    let mut packet = udp([192, 0, 2, 77], [198, 51, 100, 9], (4000, 53), 0);
    packet.bytes[1] = 46 << 2;
    packet.direction = Direction::In;
    packet.interface = 3;
    let prefix = |text: &str| Some(sheaf_wire::prefix::parse(text).unwrap());
    let hit = [
        Rule::default(),
        Rule { protocol: Some(Protocol::UDP), ..Rule::default() },
        Rule { source: prefix("192.0.2.64/26"), ..Rule::default() },
        Rule { source: prefix("0.0.0.0/0"), ..Rule::default() },
        Rule { destination: prefix("198.51.100.9"), ..Rule::default() },
        Rule { source_ports: 4000..=4000, destination_ports: 1..=100, ..Rule::default() },
        Rule { dscp: Some(46), ..Rule::default() },
        Rule { direction: Some(Direction::In), interface: Some(3), ..Rule::default() },
    ];
    let miss = [
        Rule { protocol: Some(Protocol::TCP), ..Rule::default() },
        Rule { source: prefix("192.0.2.0/26"), ..Rule::default() },
        Rule { source: prefix("::/0"), ..Rule::default() },
        Rule { destination: prefix("198.51.100.8"), ..Rule::default() },
        Rule { source_ports: 0..=3999, ..Rule::default() },
        Rule { destination_ports: 54..=u16::MAX, ..Rule::default() },
        Rule { dscp: Some(0), ..Rule::default() },
        Rule { direction: Some(Direction::Out), ..Rule::default() },
        Rule { interface: Some(4), ..Rule::default() },
        Rule { probability: 0.0, ..Rule::default() },
    ];
    for rule in hit {
        assert!(denies(rule.clone(), &packet), "{rule:?}");
    }
    for rule in miss {
        assert!(!denies(rule.clone(), &packet), "{rule:?}");
    }
    // A packet that is not IP matches only rules without conditions on IP.
    let other = Packet::new(vec![0; 40], Instant::ZERO, 0);
    assert!(denies(Rule::default(), &other));
    assert!(!denies(Rule { source_ports: 0..=65534, ..Rule::default() }, &other));
}

/// A UDP packet over IPv6 whose addresses end in these bytes.
fn udp6(source: u8, destination: u8, ports: (u16, u16)) -> Packet {
    let mut bytes = vec![0; 48];
    (bytes[0], bytes[5], bytes[6]) = (0x60, 8, 17);
    bytes[8..12].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    bytes[24..28].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    (bytes[23], bytes[39]) = (source, destination);
    bytes[40..42].copy_from_slice(&ports.0.to_be_bytes());
    bytes[42..44].copy_from_slice(&ports.1.to_be_bytes());
    Packet::new(bytes, Instant::ZERO, 0)
}

#[test]
fn rules_and_masks_know_ipv6() {
    let packet = udp6(1, 2, (4000, 53));
    let source = |text: &str| {
        let prefix = sheaf_wire::prefix::parse(text).unwrap();
        Rule { source: Some(prefix), ..Rule::default() }
    };
    assert!(denies(source("2001:db8::/33"), &packet));
    assert!(denies(source("2001:db8::1"), &packet));
    assert!(!denies(source("2001:db8::2"), &packet));
    assert!(!denies(source("0.0.0.0/0"), &packet));
    assert!(denies(Rule { destination_ports: 53..=53, ..Rule::default() }, &packet));
    let mut pipes = Pipes::new(0, 1);
    let mask = Mask { source: Bits::first(0, 127), ..Mask::default() };
    pipes.add(PipeConfig::per_flow(slow(), mask)).unwrap();
    pipes.set_rules(vec![Rule { action: through(&[0]), ..Rule::default() }]).unwrap();
    for end in [1, 2, 3] {
        pipes.enqueue(udp6(end, 9, (1, 1)), Instant::ZERO).unwrap();
    }
    assert_eq!(pipes.stats(0).unwrap().flows, 2, "2 and 3 differ by the last bit only");
}

#[test]
fn rules_that_cannot_be_are_refused() {
    let mut pipes = Pipes::new(0, 1);
    assert!(pipes.set_rules(vec![Rule { action: through(&[0]), ..Rule::default() }]).is_err());
    assert!(pipes.set_rules(vec![Rule { probability: 2.0, ..Rule::default() }]).is_err());
    assert!(pipes.add(PipeConfig { max_flows: 0, ..PipeConfig::shared(slow()) }).is_err());
}

#[test]
fn a_rule_with_a_probability_takes_its_share_of_the_packets() {
    let mut pipes = Pipes::new(0, 1);
    let rule = |probability| Rule { probability, action: Action::Deny, ..Rule::default() };
    pipes.set_rules(vec![rule(0.3), rule(0.5)]).unwrap();
    let n = 40_000;
    for number in 0..n {
        let _ = pipes.enqueue(flow(1, number), Instant::ZERO);
        while pipes.dequeue(Instant::ZERO).is_some() {}
    }
    let share = pipes.counters().dropped(DropReason::Denied) as f64 / n as f64;
    // 0.3 + 0.7 · 0.5; four deviations of 0.0024.
    assert!((share - 0.65).abs() < 0.0096, "{share}");
}

#[test]
fn a_packet_passes_several_pipes_one_after_the_other() {
    let mut pipes = Pipes::new(0, 1);
    for config in [slow(), delay(20), slow()] {
        pipes.add(PipeConfig::shared(config)).unwrap();
    }
    let short = Rule { destination_ports: 53..=53, action: through(&[2]), ..Rule::default() };
    let long = Rule { action: through(&[0, 1, 2]), ..Rule::default() };
    pipes.set_rules(vec![short, long]).unwrap();
    pipes.enqueue(flow(1, 0), Instant::ZERO).unwrap();
    pipes.enqueue(flow(1, 1), Instant::ZERO).unwrap();
    pipes.enqueue(udp([10, 0, 0, 1], [10, 0, 0, 2], (1, 53), 2), Instant::ZERO).unwrap();
    assert_eq!(pipes.held(), 3);
    assert_eq!(drain(&mut pipes), [(2, 1), (0, 22), (1, 23)]);
    assert_eq!(pipes.stats(2).unwrap().links.delivered.packets, 3);
    assert_eq!(pipes.stats(3), None);
}

#[test]
fn called_late_a_row_of_pipes_gives_the_same_departures() {
    let build = || {
        let mut pipes = Pipes::new(0, 1);
        for config in [slow(), delay(7), delay(3), slow()] {
            pipes.add(PipeConfig::shared(config)).unwrap();
        }
        let one = Rule { probability: 0.5, action: through(&[0, 1, 3]), ..Rule::default() };
        let other = Rule { action: through(&[2, 3]), ..Rule::default() };
        pipes.set_rules(vec![one, other]).unwrap();
        for n in 0..40 {
            let now = Instant::from_micros(n * 700);
            let mut packet = flow(1, n);
            packet.arrived = now;
            pipes.enqueue(packet, now).unwrap();
        }
        pipes
    };
    let mut late = build();
    let end = Instant::from_millis(10_000);
    let all: Vec<_> = std::iter::from_fn(|| late.dequeue(end))
        .map(|packet| (packet.number, packet.depart.as_nanos() / 1_000_000))
        .collect();
    assert_eq!(all.len(), 40);
    assert_eq!(all, drain(&mut build()));
}

#[test]
fn with_a_mask_each_flow_has_a_link_of_its_own() {
    let mut pipes = Pipes::new(0, 1);
    pipes.add(PipeConfig::per_flow(slow(), Mask::FLOW)).unwrap();
    pipes.set_rules(vec![Rule { action: through(&[0]), ..Rule::default() }]).unwrap();
    for n in 0..6 {
        pipes.enqueue(flow(n as u16 % 3, n), Instant::ZERO).unwrap();
    }
    assert_eq!(pipes.stats(0).unwrap().flows, 3);
    let out: Vec<u64> = drain(&mut pipes).iter().map(|(_, at)| *at).collect();
    assert_eq!(out, [1, 1, 1, 2, 2, 2]);
}

#[test]
fn a_mask_tells_apart_only_by_the_bits_that_count() {
    let flows = |mask: Mask, packets: &[Packet]| {
        let mut pipes = Pipes::new(0, 1);
        pipes.add(PipeConfig::per_flow(slow(), mask)).unwrap();
        pipes.set_rules(vec![Rule { action: through(&[0]), ..Rule::default() }]).unwrap();
        packets.iter().for_each(|packet| pipes.enqueue(packet.clone(), Instant::ZERO).unwrap());
        pipes.stats(0).unwrap().flows
    };
    let from = |source, port| udp(source, [10, 9, 9, 9], (port, 80), 0);
    let packets = [from([10, 0, 0, 1], 1), from([10, 0, 1, 1], 2), from([10, 1, 0, 1], 257)];
    assert_eq!(flows(Mask::default(), &packets), 1);
    assert_eq!(flows(Mask { source: Bits::first(16, 0), ..Mask::default() }, &packets), 2);
    assert_eq!(flows(Mask { source: Bits::first(24, 0), ..Mask::default() }, &packets), 3);
    let last = Bits { v4: 0xff, v6: 0 };
    assert_eq!(flows(Mask { source: last, ..Mask::default() }, &packets), 1, "all end in 1");
    assert_eq!(flows(Mask { source_port: 0xff, ..Mask::default() }, &packets), 2);
    assert_eq!(flows(Mask { destination: Bits::ALL, ..Mask::default() }, &packets), 1);
}

#[test]
fn links_for_flows_are_bounded_and_idle_ones_go_to_new_flows() {
    let mut pipes = Pipes::new(0, 1);
    let config = PipeConfig { max_flows: 2, ..PipeConfig::per_flow(slow(), Mask::FLOW) };
    pipes.add(config).unwrap();
    pipes.set_rules(vec![Rule { action: through(&[0]), ..Rule::default() }]).unwrap();
    // While both links are busy the third and fourth flow share one.
    for n in 0..4 {
        pipes.enqueue(flow(n as u16, n), Instant::ZERO).unwrap();
    }
    let crowded = pipes.stats(0).unwrap();
    assert_eq!((crowded.flows, crowded.crowded, crowded.reused), (2, 2, 0));
    let mut out = drain(&mut pipes);
    out.sort_unstable();
    assert_eq!(out, [(0, 1), (1, 1), (2, 1), (3, 2)]);
    // Then a new flow takes the link that was used before the other.
    let now = Instant::from_millis(10);
    let mut packet = flow(9, 9);
    packet.arrived = now;
    pipes.enqueue(packet, now).unwrap();
    let stats = pipes.stats(0).unwrap();
    assert_eq!((stats.flows, stats.crowded, stats.reused), (2, 2, 1));
    drain(&mut pipes);
    assert_eq!(pipes.stats(0).unwrap().links.delivered.packets, 5, "nothing is forgotten");
}

#[test]
fn a_flow_that_has_gone_gives_its_link_back_and_finds_a_new_one_when_it_returns() {
    let expire = Some(Duration::from_secs(10));
    let mut pipes = Pipes::new(0, 1);
    pipes.add(PipeConfig { expire, ..PipeConfig::per_flow(slow(), Mask::FLOW) }).unwrap();
    pipes.set_rules(vec![Rule { action: through(&[0]), ..Rule::default() }]).unwrap();
    let offer = |pipes: &mut Pipes, port, ms| {
        let now = Instant::from_millis(ms);
        let mut packet = flow(port, ms);
        packet.arrived = now;
        pipes.enqueue(packet, now).unwrap();
        drain(pipes);
        pipes.stats(0).unwrap()
    };
    for port in 0..5 {
        offer(&mut pipes, port, u64::from(port));
    }
    // Port 0 was served until 1 ms; at 10 s one nanosecond and more is missing.
    let before = offer(&mut pipes, 9, 10_000);
    assert_eq!((before.flows, before.expired), (6, 0));
    // Two at each packet, so three packets see the five off.
    let after: Vec<_> = (0..3).map(|n| offer(&mut pipes, 9, 11_000 + n)).collect();
    assert_eq!(
        after.iter().map(|s| (s.flows, s.expired)).collect::<Vec<_>>(),
        [(4, 2), (2, 4), (1, 5)]
    );
    let back = offer(&mut pipes, 3, 12_000);
    assert_eq!((back.flows, back.expired, back.reused, back.crowded), (2, 5, 0, 0));
    assert_eq!(back.links.delivered.packets, 10, "nothing is forgotten");
    assert_eq!(pipes.counters().packets_in, pipes.counters().packets_out);
}

#[test]
fn a_flow_has_the_same_fate_whoever_came_before_it() {
    let loss = Loss::Random(Chance { probability: 0.5, correlation: 0.5 });
    let run = |others: u16| {
        let mut pipes = Pipes::new(0, 3);
        let link = LinkConfig { loss: loss.clone(), ..LinkConfig::default() };
        pipes.add(PipeConfig::per_flow(link, Mask::FLOW)).unwrap();
        pipes.set_rules(vec![Rule { action: through(&[0]), ..Rule::default() }]).unwrap();
        (0..others).for_each(|n| pipes.enqueue(flow(n, 1000), Instant::ZERO).unwrap());
        drain(&mut pipes);
        (0..50).for_each(|n| pipes.enqueue(flow(999, n), Instant::ZERO).unwrap());
        drain(&mut pipes)
    };
    assert_eq!(run(0), run(7));
}

#[test]
fn a_pipe_changes_live_and_the_log_hears_of_every_pipe() {
    let heard = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut pipes = Pipes::new(0, 1);
    pipes.add(PipeConfig::per_flow(slow(), Mask::FLOW)).unwrap();
    pipes.set_rules(vec![Rule { action: through(&[0]), ..Rule::default() }]).unwrap();
    let log = heard.clone();
    pipes.set_log(Some(std::sync::Arc::new(move |event| {
        log.lock().unwrap().push((event.packet.number, event.cause));
    })));
    (0..3).for_each(|n| pipes.enqueue(flow(1, n), Instant::ZERO).unwrap());
    pipes.change(0, delay(5), Instant::ZERO).unwrap();
    assert_eq!(drain(&mut pipes), [(0, 5), (1, 5), (2, 5)]);
    assert!(heard.lock().unwrap().contains(&(2, Cause::Delay)));
    assert!(pipes.change(1, delay(5), Instant::ZERO).is_err());
}

fn packets() -> impl Strategy<Value = Packet> {
    (0u16..6, any::<u64>(), any::<bool>()).prop_map(|(port, number, out)| {
        let mut packet = flow(port, number);
        packet.arrived = Instant::MAX;
        packet.direction = if out { Direction::Out } else { Direction::In };
        packet
    })
}

proptest! {
    #[test]
    fn pipes_keep_the_contract(
        ops in proptest::collection::vec(
            prop_oneof![
                6 => packets().prop_map(Op::Enqueue),
                3 => (0u64..5_000_000).prop_map(|ns| Op::Advance(Duration::from_nanos(ns))),
                1 => (0usize..3, 0u64..10).prop_map(Op::Control),
            ],
            1..80,
        ),
        max_flows in 1u32..4,
    ) {
        let chance = Chance { probability: 0.3, correlation: 0.2 };
        let random = LinkConfig { duplicate: chance, loss: Loss::Random(chance), ..slow() };
        let flows = PipeConfig {
            max_flows,
            expire: Some(Duration::from_millis(3)),
            ..PipeConfig::per_flow(random.clone(), Mask::FLOW)
        };
        let make = || {
            let mut pipes = Pipes::new(0, 5);
            pipes.add(flows.clone()).unwrap();
            pipes.add(PipeConfig::shared(random.clone())).unwrap();
            pipes.add(PipeConfig::shared(delay(2))).unwrap();
            let deny = Rule { source_ports: 5..=5, action: Action::Deny, ..Rule::default() };
            let direction = Some(Direction::In);
            let inwards = Rule { direction, action: through(&[2, 0, 1]), ..Rule::default() };
            let rest = Rule { probability: 0.8, action: through(&[0]), ..Rule::default() };
            pipes.set_rules(vec![deny, inwards, rest]).unwrap();
            pipes
        };
        conformance::check_displacing(
            make,
            &ops,
            |pipes, (pipe, ms), now| pipes.change(*pipe, delay(*ms), now).unwrap(),
            |packet| (packet.number, packet.depart, packet.causes),
        );
    }
}

#[test]
fn traces_of_all_links_begin_together_with_the_first_packet_of_any() {
    let steps = Steps::parse("time,delay\n0,10\n0.1,20\n").unwrap();
    let trace = Some(TraceConfig { trace: Trace::Steps(steps.into()), start: None, looped: false });
    let traced = LinkConfig { trace, ..LinkConfig::default() };
    let mut pipes = Pipes::new(0, 1);
    pipes.add(PipeConfig::per_flow(traced.clone(), Mask::FLOW)).unwrap();
    pipes.add(PipeConfig::shared(traced)).unwrap();
    let other = Rule { destination_ports: 53..=53, action: through(&[1]), ..Rule::default() };
    let pass = Rule { destination_ports: 1..=1, action: Action::Pass, ..Rule::default() };
    let rest = Rule { action: through(&[0]), ..Rule::default() };
    pipes.set_rules(vec![other, pass, rest]).unwrap();
    let mut send = |ports, ms| {
        let now = Instant::from_millis(ms);
        let mut packet = udp([10, 0, 0, 1], [10, 0, 0, 2], ports, ms);
        packet.arrived = now;
        pipes.enqueue(packet, now).unwrap();
        drain(&mut pipes)[0].1 - ms
    };
    // What passes by the links begins nothing.
    assert_eq!(send((1, 1), 400), 0);
    assert_eq!([send((1, 80), 500), send((2, 80), 550)], [10, 10]);
    // A link that is new to its flow, and one that had no packet, are where the first is.
    assert_eq!([send((3, 80), 610), send((1, 53), 620)], [20, 20]);
}

#[test]
fn the_contract_of_a_link_is_not_bent_by_a_duplicate_of_a_duplicate() {
    // Two links in a row within pipes, each duplicating all: four leave, one is counted.
    let link = LinkConfig { duplicate: Chance::of(1.0), ..LinkConfig::default() };
    let mut pipes = Pipes::new(0, 1);
    pipes.add(PipeConfig::shared(link.clone())).unwrap();
    pipes.add(PipeConfig::shared(link)).unwrap();
    pipes.set_rules(vec![Rule { action: through(&[0, 1]), ..Rule::default() }]).unwrap();
    pipes.enqueue(flow(1, 0), Instant::ZERO).unwrap();
    let out: Vec<Packet> = std::iter::from_fn(|| pipes.dequeue(Instant::ZERO)).collect();
    assert_eq!((out.len(), pipes.counters().packets_out), (4, 1));
    assert_eq!(out.iter().map(Link::packets).sum::<u64>(), 1);
}
