//! Queue management: what each kind does to loads whose outcome is known.

use sheaf_emulator::queue::codel::{CodelConfig, CodelParams};
use sheaf_emulator::queue::dualpi2::DualPi2Config;
use sheaf_emulator::queue::fq_codel::FqCodelConfig;
use sheaf_emulator::queue::gred::GredConfig;
use sheaf_emulator::queue::pie::PieConfig;
use sheaf_emulator::queue::red::{RedConfig, RedCurve};
use sheaf_emulator::queue::weighted::WeightedConfig;
use sheaf_emulator::{Cause, Limit, Link, LinkConfig, Packet, QueueConfig};
use sheaf_stage::{Bitrate, Duration, Instant, Stage};
use sheaf_wire::ecn::Ecn;
use sheaf_wire::ip::Ip;
use std::sync::{Arc, Mutex};

const NOT_ECT: u8 = 0;
const ECT1: u8 = 1;
const ECT0: u8 = 2;

fn link(mbps: u64, queue: QueueConfig) -> Link {
    let rate = Some(Bitrate::from_mbps(mbps));
    Link::new(LinkConfig { rate, queue, ..LinkConfig::default() }, 9).unwrap()
}

/// A UDP packet of `len` bytes of flow `flow` with this TOS.
fn packet(flow: u8, tos: u8, len: usize, number: u64, at: Instant) -> Packet {
    let mut bytes = sheaf_wire::ip::example_udp(&vec![flow; len - 28]);
    (bytes[1], bytes[21]) = (tos, flow);
    Packet::new(bytes, at, number)
}

/// A constant stream.
#[derive(Clone, Copy)]
struct Stream {
    flow: u8,
    tos: u8,
    len: usize,
    /// Offered load.
    mbps: f64,
}

/// Result of a stream in the second half of a run.
#[derive(Debug, Default, Clone)]
struct Outcome {
    sent: u64,
    got: u64,
    marked: u64,
    bytes: u64,
    /// Time in the link, in milliseconds.
    waits: Vec<f64>,
}

impl Outcome {
    fn mean_wait(&self) -> f64 {
        self.waits.iter().sum::<f64>() / self.waits.len() as f64
    }

    fn longest_wait(&self) -> f64 {
        self.waits.iter().copied().fold(0.0, f64::max)
    }

    fn lost(&self) -> f64 {
        1.0 - self.got as f64 / self.sent as f64
    }
}

/// Runs streams for some seconds.
fn run(link: &mut Link, streams: &[Stream], seconds: u64) -> Vec<Outcome> {
    let mut outcomes = vec![Outcome::default(); streams.len()];
    let mut next: Vec<f64> = (0..streams.len()).map(|i| i as f64 * 1e-4).collect();
    let (half, end) = (seconds as f64 / 2.0, seconds as f64);
    let mut number = 0;
    loop {
        let (index, at) =
            next.iter().copied().enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        let now = Instant::from_nanos((at.min(end) * 1e9) as u64);
        while let Some(deadline) = link.next_deadline().filter(|deadline| *deadline <= now) {
            while let Some(packet) = link.dequeue(deadline) {
                let flow = packet.bytes[21];
                let index = streams.iter().position(|stream| stream.flow == flow).unwrap();
                if packet.arrived.as_secs_f64() < half {
                    continue;
                }
                let outcome = &mut outcomes[index];
                outcome.got += 1;
                outcome.bytes += packet.bytes.len() as u64;
                outcome.waits.push((packet.depart - packet.arrived).as_secs_f64() * 1e3);
                let ce = Ip::parse(&packet.bytes).unwrap().ecn() == Ecn::Ce;
                assert_eq!(ce, packet.causes.contains(Cause::Marked));
                outcome.marked += u64::from(ce);
            }
        }
        if at >= end {
            return outcomes;
        }
        let Stream { flow, tos, len, mbps } = streams[index];
        outcomes[index].sent += u64::from(at >= half);
        let _ = link.enqueue(packet(flow, tos, len, number, now), now);
        number += 1;
        next[index] += len as f64 * 8.0 / (mbps * 1e6);
    }
}

fn stream(flow: u8, tos: u8, len: usize, mbps: f64) -> Stream {
    Stream { flow, tos, len, mbps }
}

fn curve(min: u64, max: u64) -> RedCurve {
    RedCurve {
        min,
        max,
        probability: 0.1,
        weight: 0.02,
        gentle: false,
        adaptive: false,
        mean_packet: 1000,
        bandwidth: Bitrate::from_mbps(8),
    }
}

#[test]
fn red_keeps_the_mean_queue_within_its_curve() {
    let config = RedConfig {
        limit: Limit::Bytes(200_000),
        curve: curve(10_000, 40_000),
        ecn: false,
        hard_drop: false,
    };
    let mut link = link(8, QueueConfig::Red(config));
    let outcome = &run(&mut link, &[stream(1, NOT_ECT, 1000, 8.4)], 60)[0];
    // 1/21 of the packets is too much; at a chance of 0.1 at the end of the curve that is about
    // the middle of it, 25 ms of waiting. (Spreading doubles the chance: between 10 and 40.)
    assert!((0.04..0.055).contains(&outcome.lost()), "{}", outcome.lost());
    assert!((11.0..41.0).contains(&outcome.mean_wait()), "{}", outcome.mean_wait());
    assert_eq!(link.stats().count(Cause::RateQueueFull), 0);
    assert!(link.stats().count(Cause::Red) > 0);
}

#[test]
fn red_marks_those_who_understand_instead_of_dropping_them() {
    let config = RedConfig {
        limit: Limit::Bytes(200_000),
        curve: curve(1_000, 400_000),
        ecn: true,
        hard_drop: false,
    };
    let mut link = link(8, QueueConfig::Red(config));
    let streams = [stream(1, NOT_ECT, 1000, 4.05), stream(2, ECT0, 1000, 4.05)];
    let outcomes = run(&mut link, &streams, 30);
    assert!(outcomes[0].lost() > 0.0 && outcomes[0].marked == 0);
    assert!(outcomes[1].got >= outcomes[1].sent - 300 && outcomes[1].marked > 0);
}

#[test]
fn gred_drops_one_class_before_the_other() {
    let mut by_dscp = [0; 64];
    by_dscp[46] = 1;
    let config = GredConfig {
        limit: Limit::Bytes(400_000),
        virtual_queues: vec![(curve(5_000, 20_000), 100_000), (curve(100_000, 200_000), 300_000)],
        by_dscp,
        ecn: false,
        hard_drop: false,
    };
    let mut link = link(8, QueueConfig::Gred(config));
    let streams = [stream(1, 0, 1000, 6.0), stream(2, 46 << 2, 1000, 4.0)];
    let outcomes = run(&mut link, &streams, 20);
    assert!((0.3..0.37).contains(&outcomes[0].lost()), "{}", outcomes[0].lost());
    assert!(outcomes[1].lost() < 0.01, "{}", outcomes[1].lost());
}

#[test]
fn codel_drops_at_the_times_of_its_control_law() {
    let mut link = link(1, QueueConfig::Codel(CodelConfig::default()));
    let times = Arc::new(Mutex::new(Vec::new()));
    let log = times.clone();
    link.set_log(Some(Arc::new(move |event| {
        if event.cause == Cause::Codel {
            log.lock().unwrap().push(event.at.as_nanos() / 1_000_000);
        }
    })));
    for n in 0..100 {
        let _ = link.enqueue(packet(1, NOT_ECT, 1000, n, Instant::ZERO), Instant::ZERO);
    }
    while let Some(at) = link.next_deadline().filter(|at| *at <= Instant::from_millis(500)) {
        link.dequeue(at);
    }
    // A packet takes 8 ms. The wait is above 5 ms from 8 ms on; an interval later, at 108 ms, the
    // next to leave goes at 112 ms. Then 112 + 100, + 100/√2, + 100/√3 …, each at the next
    // departure.
    assert_eq!(*times.lock().unwrap(), [112, 216, 288, 344, 392, 440, 480]);
}

#[test]
fn codel_leaves_a_queue_below_its_target_alone_and_marks_with_ecn() {
    let mut quiet = link(8, QueueConfig::Codel(CodelConfig::default()));
    assert_eq!(run(&mut quiet, &[stream(1, NOT_ECT, 1000, 7.9)], 10)[0].lost(), 0.0);
    let params = CodelParams { ecn: true, ..CodelParams::default() };
    let config = CodelConfig { limit: Limit::Packets(100), params };
    let mut marking = link(8, QueueConfig::Codel(config));
    run(&mut marking, &[stream(1, ECT0, 1000, 8.8)], 10);
    assert_eq!(marking.stats().count(Cause::Codel), 0);
    assert!(marking.stats().count(Cause::Marked) > 50);
}

#[test]
fn pie_settles_at_its_target_and_drops_just_what_is_too_much() {
    let mut link = link(8, QueueConfig::Pie(PieConfig::default()));
    let outcome = &run(&mut link, &[stream(1, NOT_ECT, 1000, 8.8)], 120)[0];
    assert!((outcome.lost() - 1.0 / 11.0).abs() < 0.003, "{}", outcome.lost());
    assert!((13.0..18.0).contains(&outcome.mean_wait()), "{} ms", outcome.mean_wait());
}

#[test]
fn pie_lets_a_burst_pass_and_marks_while_its_chance_is_small() {
    let mut burst = link(8, QueueConfig::Pie(PieConfig::default()));
    // 100 ms of work at once, within the allowance of 150 ms.
    for n in 0..100 {
        burst.enqueue(packet(1, NOT_ECT, 1000, n, Instant::ZERO), Instant::ZERO).unwrap();
    }
    assert_eq!(burst.counters().dropped_total(), 0);
    let config = PieConfig { ecn_below: 0.1, ..PieConfig::default() };
    let mut marking = link(8, QueueConfig::Pie(config));
    run(&mut marking, &[stream(1, ECT0, 1000, 8.01)], 30);
    assert!(marking.stats().count(Cause::Marked) > 20);
}

#[test]
fn fq_codel_shares_equally_and_lets_a_sparse_flow_pass() {
    let config = FqCodelConfig { limit: 200, ..FqCodelConfig::default() };
    let mut link = link(8, QueueConfig::FqCodel(config));
    let streams = [
        stream(1, NOT_ECT, 1500, 20.0),
        stream(2, NOT_ECT, 300, 7.0),
        stream(3, NOT_ECT, 100, 0.05),
    ];
    let outcomes = run(&mut link, &streams, 10);
    let ratio = outcomes[0].bytes as f64 / outcomes[1].bytes as f64;
    assert!((ratio - 1.0).abs() < 0.03, "two greedy flows got {ratio}");
    assert_eq!(outcomes[2].lost(), 0.0);
    // Its own 0.1 ms, the packet that is being sent, and no more than that.
    assert!(outcomes[2].longest_wait() < 1.5 + 0.1 + 0.3, "{}", outcomes[2].longest_wait());
}

#[test]
fn a_full_fq_codel_drops_from_the_fattest_flow_alone() {
    let config = FqCodelConfig { limit: 20, ..FqCodelConfig::default() };
    let mut link = link(0, QueueConfig::FqCodel(config));
    let dropped = Arc::new(Mutex::new(Vec::new()));
    let log = dropped.clone();
    link.set_log(Some(Arc::new(move |event| log.lock().unwrap().push(event.packet.number))));
    for n in 0..5 {
        let _ = link.enqueue(packet(2, NOT_ECT, 100, n, Instant::ZERO), Instant::ZERO);
    }
    for n in 5..30 {
        let _ = link.enqueue(packet(1, NOT_ECT, 1000, n, Instant::ZERO), Instant::ZERO);
    }
    // One of the first flow is being sent and waits no more; 4 + 25 wait for 20 places.
    assert_eq!(*dropped.lock().unwrap(), (5..14).collect::<Vec<_>>());
    assert_eq!(link.stats().count(Cause::FattestFlow), 9);
}

#[test]
fn dualpi2_gives_l4s_a_short_wait_and_couples_its_marks_to_the_classic_drops() {
    let mut link = link(100, QueueConfig::DualPi2(DualPi2Config::default()));
    let streams = [stream(1, NOT_ECT, 1500, 94.0), stream(2, ECT1, 500, 10.0)];
    let outcomes = run(&mut link, &streams, 60);
    let (classic, l4s) = (&outcomes[0], &outcomes[1]);
    assert!(l4s.longest_wait() < 0.5, "{} ms", l4s.longest_wait());
    assert!((13.0..18.0).contains(&classic.mean_wait()), "{} ms", classic.mean_wait());
    assert!((classic.lost() - 4.0 / 94.0).abs() < 0.005, "{}", classic.lost());
    assert_eq!((l4s.lost(), classic.marked), (0.0, 0));
    let marked = l4s.marked as f64 / l4s.got as f64;
    let coupled = 2.0 * classic.lost().sqrt();
    assert!((marked / coupled - 1.0).abs() < 0.05, "marked {marked}, coupled {coupled}");
}

#[test]
fn dualpi2_keeps_a_share_for_classic_packets_when_l4s_floods_the_link() {
    let mut link = link(100, QueueConfig::DualPi2(DualPi2Config::default()));
    let streams = [stream(1, NOT_ECT, 1500, 5.0), stream(2, ECT1, 1500, 200.0)];
    let outcomes = run(&mut link, &streams, 20);
    let share = |o: &Outcome| o.bytes as f64 * 8.0 / 10.0 / 1e6;
    // Half of what is offered is dropped of both, and the classic queue soon has its turn.
    assert!(outcomes[0].longest_wait() < 2.0, "{} ms", outcomes[0].longest_wait());
    assert!(share(&outcomes[0]) > 2.0, "{} Mbit/s", share(&outcomes[0]));
    assert!(share(&outcomes[1]) > 90.0, "{} Mbit/s", share(&outcomes[1]));
}

/// Bytes per queue that left while three queues were kept full.
fn weighted_shares(config: fn(WeightedConfig) -> QueueConfig) -> Vec<f64> {
    let weights =
        WeightedConfig { limit: Limit::Packets(50), ..WeightedConfig::new(vec![1, 2, 5]) };
    let mut link = link(8, config(weights));
    let lens = [1500, 300, 700];
    let mut bytes = [0.0; 3];
    for n in 0..30_000u64 {
        let now = Instant::ZERO + Duration::from_micros(100) * n as u32;
        for (queue, len) in lens.into_iter().enumerate() {
            let mut packet = packet(queue as u8, NOT_ECT, len, n, now);
            packet.queue = queue as u16;
            let _ = link.enqueue(packet, now);
        }
        while let Some(packet) = link.dequeue(now) {
            bytes[usize::from(packet.queue)] += packet.bytes.len() as f64;
        }
    }
    let sum: f64 = bytes.iter().sum();
    bytes.iter().map(|bytes| bytes / sum).collect()
}

#[test]
fn drr_and_wf2q_share_the_link_by_weight_whatever_the_packet_sizes() {
    for config in [QueueConfig::Drr as fn(WeightedConfig) -> QueueConfig, QueueConfig::Wf2q] {
        let shares = weighted_shares(config);
        for (share, weight) in shares.iter().zip([1.0, 2.0, 5.0]) {
            assert!((share - weight / 8.0).abs() < 0.003, "{shares:?}");
        }
    }
}

#[test]
fn wf2q_lets_a_heavy_queue_alternate_with_light_ones_instead_of_going_first() {
    // The example of Bennett and Zhang: one queue of weight 10, ten of weight 1.
    let mut weights = vec![1; 11];
    weights[0] = 10;
    let mut link = link(8, QueueConfig::Wf2q(WeightedConfig::new(weights)));
    let mut offer = |queue: u16, number| {
        let mut packet = packet(1, NOT_ECT, 1000, number, Instant::ZERO);
        packet.queue = queue;
        link.enqueue(packet, Instant::ZERO).unwrap();
    };
    (0..11).for_each(|n| offer(0, n));
    (1..11).for_each(|queue| offer(queue, 100));
    let mut order = Vec::new();
    while let Some(at) = link.next_deadline() {
        order.extend(link.dequeue(at).map(|packet| packet.queue));
    }
    // The first had begun before the others came.
    let heavy: Vec<bool> = order[1..].iter().map(|queue| *queue == 0).collect();
    assert!(heavy.windows(2).all(|pair| pair[0] != pair[1]), "{order:?}");
}

#[test]
fn a_queue_that_becomes_another_kind_keeps_what_waits() {
    let kinds = [
        QueueConfig::FqCodel(FqCodelConfig::default()),
        QueueConfig::Drr(WeightedConfig::new(vec![1, 2])),
        QueueConfig::DualPi2(DualPi2Config::default()),
        QueueConfig::Wf2q(WeightedConfig::new(vec![3])),
        QueueConfig::Pie(PieConfig::default()),
    ];
    let mut link = link(0, QueueConfig::default());
    for n in 0..30 {
        link.enqueue(packet(n as u8, n as u8 % 4, 100, n, Instant::ZERO), Instant::ZERO).unwrap();
    }
    let before = link.stats().rate_queue;
    for queue in kinds {
        let config = LinkConfig { queue, ..link.config().clone() };
        link.change(config, Instant::ZERO).unwrap();
        assert_eq!(link.stats().rate_queue, before);
    }
    link.change(LinkConfig::default(), Instant::ZERO).unwrap();
    let left = std::iter::from_fn(|| link.dequeue(Instant::ZERO)).count();
    assert_eq!(left, 30);
}
