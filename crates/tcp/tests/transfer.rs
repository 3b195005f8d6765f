//! Transfers without disturbance: the handshake, the goodput of a bottleneck, the memory of it all.

mod world;

use etherparse::{SlicedPacket, TcpOptionElement, TransportSlice};
use sheaf_stage::{Duration, Instant};
use sheaf_tcp::{Algorithm, Config, Host};
use sheaf_wire::checksum;
use world::{
    Fate, MS, Pipe, RECEIVER, SEGMENT, SENDER, Way, World, data, endless, transfer_of, untouched,
};

#[test]
fn a_handshake_of_three_packets_offers_what_linux_offers() {
    let mut world = World::perfect(transfer_of(1, Algorithm::Cubic), 10 * MS);
    let mut seen = Vec::new();
    world.run(Instant::from_millis(1000), |way, _, packet| {
        let sliced = SlicedPacket::from_ip(packet).unwrap();
        let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { panic!("not TCP") };
        let options: Vec<_> = tcp.options_iterator().map(Result::unwrap).collect();
        seen.push((way, tcp.syn(), tcp.ack(), tcp.fin(), tcp.window_size(), options));
        Fate::Pass
    });
    let [syn, answer, ..] = &seen[..] else { panic!("{seen:?}") };
    for (one, way, ack) in [(syn, Way::Out, false), (answer, Way::Back, true)] {
        assert_eq!((one.0, one.1, one.2, one.4), (way, true, ack, 64_240));
        assert_eq!(one.5[0], TcpOptionElement::MaximumSegmentSize(1460));
        assert_eq!(one.5[1], TcpOptionElement::SelectiveAcknowledgementPermitted);
        assert!(matches!(one.5[2], TcpOptionElement::Timestamp(..)));
        assert!(one.5.contains(&TcpOptionElement::WindowScale(7)));
    }
    // A byte and the FIN, each acknowledged.
    assert!(seen[2..].iter().all(|one| !one.1 && one.2));
    assert_eq!(seen[2..].iter().filter(|one| one.3).count(), 1);
    // 6 MiB in units of 128 bytes.
    assert_eq!(seen[2].4, 49_152);
    assert_eq!((world.sent().bytes, world.got().bytes), (1, 1));
    assert_eq!(world.got().finished, Some(Instant::from_millis(30)));
    assert_eq!(world.sent().finished, Some(Instant::from_millis(40)));
    assert_eq!(world.sender.next_deadline(), None, "nothing is left to do");
}

#[test]
fn slow_start_ends_before_a_queue_of_one_round_trip_overflows() {
    // HyStart's trains are as long as half of the round trip when the window fills the path, where
    // rounds are those of the first segments. Linux loses the first segment here after 0.45 s.
    let pipe = Pipe::new(Some(20_000_000), 10 * MS, 33);
    let mut world = World::new(endless(Algorithm::Cubic), 1, pipe);
    world.run(Instant::from_millis(400), untouched);
    assert_eq!((world.out.dropped, world.sent().repeats), (0, 0));
    world.run(Instant::from_millis(1_000), untouched);
    assert!(world.out.dropped > 0, "the window grew beyond the queue");
}

#[test]
fn both_ends_of_a_connection_can_write_and_close() {
    let mut world = World::perfect(endless(Algorithm::Cubic), 10 * MS);
    world.sender.write(0, 350);
    world.run(Instant::from_millis(100), untouched);
    assert_eq!(world.receiver.received(0), 350);
    world.receiver.write(0, 20_000);
    world.run(Instant::from_millis(200), untouched);
    assert_eq!((world.sender.received(0), world.receiver.received(0)), (20_000, 350));
    world.sender.close(0);
    world.receiver.close(0);
    world.run(Instant::from_millis(300), untouched);
    assert!(world.sent().finished.is_some() && world.got().finished.is_some());
    assert_eq!((world.sender.next_deadline(), world.receiver.next_deadline()), (None, None));
    assert_eq!((world.sent().repeats, world.sender.received(0)), (0, 20_000));
}

#[test]
fn a_perfect_path_carries_every_byte_once() {
    for control in [Algorithm::Cubic, Algorithm::Bbr] {
        let bytes = 20_000_000;
        let mut world = World::perfect(transfer_of(bytes, control), 10 * MS);
        world.run(Instant::from_millis(20_000), untouched);
        let (sent, got) = (world.sent(), world.got());
        assert_eq!((sent.bytes, got.bytes), (bytes, bytes), "{control:?}");
        assert_eq!((sent.repeats, sent.timeouts, sent.reductions), (0, 0, 0), "{control:?}");
        // Every second segment is acknowledged, but for the first ones.
        let packets = bytes / SEGMENT;
        assert!(world.packets[1] < packets * 6 / 10, "{} of {packets}", world.packets[1]);
        assert_eq!(world.sender.refusals().total() + world.receiver.refusals().total(), 0);
    }
}

/// Share of a bottleneck's capacity for data that `flows` flows use between 5 s and 35 s.
fn share(control: Algorithm, mbit: u64, delay: Duration, limit: usize, flows: u16) -> f64 {
    let pipe = Pipe::new(Some(mbit * 1_000_000), delay, limit);
    let mut world = World::new(endless(control), flows, pipe);
    let all = |world: &World| world.receiver.flows().iter().map(|flow| flow.bytes).sum::<u64>();
    world.run(Instant::from_millis(5_000), untouched);
    let before = all(&world);
    world.run(Instant::from_millis(35_000), untouched);
    let bits = (all(&world) - before) as f64 * 8.0 * 1500.0 / SEGMENT as f64;
    bits / 30.0 / (mbit * 1_000_000) as f64
}

#[test]
fn a_bottleneck_with_a_queue_of_one_round_trip_is_used_to_98_percent() {
    // BBR is at the least window for 200 ms of every 10 s, which is another 2 %.
    for (control, least) in [(Algorithm::Cubic, 0.98), (Algorithm::Bbr, 0.96)] {
        for (mbit, delay) in [(2, 50 * MS), (10, 20 * MS), (20, 10 * MS), (100, 10 * MS)] {
            let packets = mbit as f64 * 1e6 * 2.0 * delay.as_secs_f64() / 12_000.0;
            for flows in [1, 4] {
                let share = share(control, mbit, delay, packets as usize, flows);
                let what = format!("{flows} {control:?} at {mbit} Mbit/s: {share:.4}");
                assert!((least..=1.0001).contains(&share), "{what}");
            }
        }
    }
}

#[test]
fn bbr_keeps_the_queue_short_where_cubic_fills_it() {
    let trip = |control| {
        let pipe = Pipe::new(Some(10_000_000), 20 * MS, 500);
        let mut world = World::new(endless(control), 1, pipe);
        world.run(Instant::from_millis(8_000), untouched);
        world.sent().round_trip.unwrap()
    };
    assert!(trip(Algorithm::Bbr) < 80 * MS, "twice the round trip at most");
    assert!(trip(Algorithm::Cubic) > 150 * MS, "of 40 ms and a queue of 600");
}

#[test]
fn bbr_finds_the_least_round_trip_every_ten_seconds() {
    let pipe = Pipe::new(Some(10_000_000), 20 * MS, 500);
    let mut world = World::new(endless(Algorithm::Bbr), 1, pipe);
    let mut probes = Vec::new();
    for at in 1..=700 {
        world.run(Instant::from_millis(at * 50), untouched);
        if world.sent().window <= 4 && world.sent().bytes > 1_000_000 {
            probes.push(at * 50);
        }
    }
    let begins = probes.windows(2).filter(|pair| pair[1] - pair[0] > 1_000).count() + 1;
    assert_eq!(begins, 3, "{probes:?}");
    assert!(probes.len() <= 3 * 6, "200 ms and a round trip each: {probes:?}");
}

#[test]
fn sequence_numbers_wrap_within_a_transfer() {
    // More than 2³² bytes: the numbers pass zero wherever they begin.
    let bytes = (1 << 32) + 100_000_000;
    let config = Config { bytes: Some(bytes), mtu: 65_535, ..Config::default() };
    let mut world = World::perfect(config, MS);
    let mut lost = 0;
    world.run(Instant::from_millis(100_000), |way, number, _| {
        let lose = way == Way::Out && number % 4001 == 4000;
        lost += u64::from(lose);
        if lose { Fate::Lose } else { Fate::Pass }
    });
    assert_eq!((world.sent().bytes, world.got().bytes), (bytes, bytes));
    assert!(lost > 10 && world.sent().repeats >= lost - 1);
}

#[test]
fn flows_of_a_host_do_not_disturb_each_other_and_the_same_seed_gives_the_same_packets() {
    let run = || {
        let pipe = Pipe::new(Some(10_000_000), 10 * MS, 30);
        let mut world = World::new(transfer_of(1_000_000, Algorithm::Bbr), 8, pipe);
        let mut hash = 0u64;
        world.run(Instant::from_millis(60_000), |_, _, packet| {
            for byte in packet.iter() {
                hash = hash.wrapping_mul(0x100_0000_01b3) ^ u64::from(*byte);
            }
            Fate::Pass
        });
        for flow in world.receiver.flows() {
            assert_eq!((flow.bytes, flow.finished.is_some()), (1_000_000, true));
        }
        hash
    };
    assert_eq!(run(), run());
}

#[test]
fn a_server_sends_to_who_opens_the_connection_as_a_sender_does_that_opens_it() {
    let bytes = 2_000_000;
    let config = transfer_of(bytes, Algorithm::Cubic);
    let mut opened = World::perfect(config, 10 * MS);
    opened.run(Instant::from_millis(20_000), untouched);
    let mut world = World::perfect(config, 10 * MS);
    world.sender = Host::server(config, SENDER, 1, 1);
    world.receiver = Host::fetcher(config, RECEIVER, SENDER, 1, 2);
    world.run(Instant::from_millis(20_000), untouched);
    assert_eq!(world.got().bytes, bytes);
    // The SYN and its way are what it takes longer.
    assert_eq!(world.got().finished, opened.got().finished.map(|at| at + 10 * MS));
    assert_eq!(world.sent().repeats, 0);
}

#[test]
fn a_connection_that_is_written_to_carries_what_was_written_and_never_ends() {
    for control in [Algorithm::Cubic, Algorithm::Bbr] {
        let mut world = World::perfect(endless(control), 10 * MS);
        world.sender.write(0, 0);
        let mut written = 0;
        for tenth in 1..=50 {
            world.run(Instant::from_millis(100 * tenth), untouched);
            world.sender.write(0, 10_000);
            written += 10_000;
        }
        world.run(Instant::from_millis(6_000), untouched);
        assert_eq!((world.sent().bytes, world.got().bytes), (written, written), "{control:?}");
        assert_eq!((world.sent().finished, world.sent().timeouts), (None, 0), "{control:?}");
        // Of more than fits only what does is taken.
        world.sender.write(0, 1 << 40);
        world.run(Instant::from_millis(60_000), untouched);
        assert_eq!(world.got().bytes, written + (4 << 20), "{control:?}");
    }
}

#[test]
fn segments_of_a_growing_window_are_acknowledged_at_once_as_on_linux() {
    // A round trip of 100 ms over 10 Mbit/s, whose pairs are too far apart for HyStart's trains.
    let pipe = Pipe::new(Some(9_753_000), 50 * MS, 83);
    let mut world = World::new(endless(Algorithm::Cubic), 1, pipe);
    let mut acknowledgements = Vec::new();
    for round in 0..5 {
        // The first segment arrives at 151 ms.
        world.run(Instant::from_millis(150 + 101 * round), untouched);
        acknowledgements.push(world.packets[1]);
    }
    let rounds: Vec<_> = acknowledgements.windows(2).map(|two| two[1] - two[0]).collect();
    // Linux 7.3.4 has 10, 12 and 4 pairs, 25 and 7 pairs.
    assert_eq!(rounds[..3], [10, 16, 32], "{rounds:?}");
    // So slow start ends at 123 segments where 166 fit, and the first is lost after 1.5 s.
    world.run(Instant::from_millis(1_400), untouched);
    assert_eq!(world.out.dropped, 0);
    world.run(Instant::from_millis(2_000), untouched);
    assert!(world.out.dropped > 0);
}

#[test]
fn every_pushed_segment_is_acknowledged_at_once() {
    let acknowledgements = |push: bool| {
        // Linux acknowledges each segment of a growing window at once; this window does not grow.
        let config = Config { receive_window: 64_000, ..transfer_of(2_000_000, Algorithm::Cubic) };
        let mut world = World::perfect(config, 10 * MS);
        world.run(Instant::from_millis(20_000), |way, _, packet| {
            if push && way == Way::Out && data(packet).0 > 0 {
                let flags = u16::from_be_bytes([packet[32], packet[33]]);
                packet[33] |= 8;
                checksum::adjust(&mut packet[36..38], flags, flags | 8);
            }
            Fate::Pass
        });
        assert_eq!(world.receiver.refusals().total(), 0);
        world.packets[1] as f64 / (2_000_000 / SEGMENT) as f64
    };
    assert!(acknowledgements(false) < 0.6, "{}", acknowledgements(false));
    assert!(acknowledgements(true) >= 1.0, "{}", acknowledgements(true));
}
