//! The two queues of a link: times, limits, live changes.

use proptest::prelude::*;
use sheaf_emulator::queue::fifo::FifoConfig;
use sheaf_emulator::queue::fq_codel::FqCodelConfig;
use sheaf_emulator::queue::pie::PieConfig;
use sheaf_emulator::queue::weighted::WeightedConfig;
use sheaf_emulator::{
    Cause, Chance, Delay, Distribution, Limit, Link, LinkConfig, Overhead, Packet, QueueConfig,
    Reorder, Segments, Slot, SlotWait,
};
use sheaf_stage::{Bitrate, DropReason, Duration, Instant, Stage};

const MS: Duration = Duration::from_millis(1);

fn link(config: LinkConfig) -> Link {
    Link::new(config, 7).unwrap()
}

fn rate(bps: u64) -> LinkConfig {
    LinkConfig { rate: Some(Bitrate::from_bps(bps)), ..LinkConfig::default() }
}

fn constant(delay: Duration) -> LinkConfig {
    LinkConfig { delay: Delay::constant(delay), ..LinkConfig::default() }
}

fn fifo(limit: Limit, drop_head: bool) -> QueueConfig {
    QueueConfig::Fifo(FifoConfig { limit, drop_head })
}

/// Offers a packet, which a full queue drops.
fn send(link: &mut Link, number: u64, len: usize, at: Instant) {
    let _ = link.enqueue(Packet::new(vec![0; len], at, number), at);
}

/// Everything that leaves until `end`, called at each deadline.
fn drain(link: &mut Link, end: Instant) -> Vec<Packet> {
    let mut out = Vec::new();
    while let Some(deadline) = link.next_deadline().filter(|deadline| *deadline <= end) {
        out.extend(std::iter::from_fn(|| link.dequeue(deadline)));
    }
    out
}

fn numbers(packets: &[Packet]) -> Vec<u64> {
    packets.iter().map(|packet| packet.number).collect()
}

fn departs(packets: &[Packet]) -> Vec<u64> {
    packets.iter().map(|packet| packet.depart.as_nanos()).collect()
}

#[test]
fn the_example_of_the_thesis_takes_58_ms() {
    let mut link = link(LinkConfig { delay: Delay::constant(50 * MS), ..rate(1_000_000) });
    send(&mut link, 0, 1000, Instant::ZERO);
    assert_eq!(departs(&drain(&mut link, Instant::MAX)), [58_000_000]);
}

#[test]
fn an_hour_at_100_mbit_drifts_by_no_nanosecond() {
    // 8999 bytes at a rate that divides nothing: 719.92 µs and a fraction each.
    let bps = 99_999_989u128;
    let (len, each) = (8999usize, 8999u128 * 8 * 1_000_000_000);
    let mut link = link(LinkConfig { queue: fifo(Limit::Packets(3), false), ..rate(bps as u64) });
    let packets = 3_600 * 1_000_000_000u128 / (each / bps);
    let mut spare = vec![Vec::new(); 4];
    let mut sent = 0u64;
    let mut offer = |link: &mut Link, spare: &mut Vec<Vec<u8>>, now: Instant| {
        let mut bytes = spare.pop().unwrap_or_default();
        bytes.resize(len, 0);
        link.enqueue(Packet::new(bytes, now, sent), now).unwrap();
        sent += 1;
    };
    offer(&mut link, &mut spare, Instant::ZERO);
    offer(&mut link, &mut spare, Instant::ZERO);
    for n in 1..=packets {
        let exact = Instant::from_nanos((n * each).div_ceil(bps) as u64);
        assert_eq!(link.next_deadline(), Some(exact), "packet {n}");
        spare.push(link.dequeue(exact).unwrap().bytes);
        offer(&mut link, &mut spare, exact);
    }
}

#[test]
fn late_calls_do_not_stretch_the_rate() {
    let config = LinkConfig { delay: Delay::constant(3 * MS), ..rate(8_000_000) };
    let run = |step: u64| {
        let mut link = link(config.clone());
        let mut out = Vec::new();
        let mut now = Instant::ZERO;
        for n in 0..50u64 {
            let arrival = Instant::from_micros(n * 900);
            while now < arrival {
                now += Duration::from_micros(step);
                out.extend(std::iter::from_fn(|| link.dequeue(now)));
            }
            // The packet is handed over late, but says when it came.
            link.enqueue(Packet::new(vec![0; 1000], arrival, n), now).unwrap();
        }
        out.extend(drain(&mut link, Instant::MAX));
        departs(&out)
    };
    let exact: Vec<u64> = (1..=50).map(|n| n * 1_000_000 + 3_000_000).collect();
    assert_eq!(run(1), exact);
    assert_eq!(run(17_777), exact, "calls every 18 ms");
}

#[test]
fn nothing_is_saved_up_while_the_link_is_idle() {
    let mut link = link(rate(8_000_000));
    send(&mut link, 0, 1000, Instant::ZERO);
    let later = Instant::from_millis(1000);
    drain(&mut link, later);
    for n in 1..4 {
        send(&mut link, n, 1000, later);
    }
    let out = drain(&mut link, Instant::MAX);
    assert_eq!(departs(&out), [1_001_000_000, 1_002_000_000, 1_003_000_000]);
}

#[test]
fn the_limit_counts_what_waits_and_is_sent_but_not_what_is_on_its_way() {
    let config = LinkConfig {
        queue: fifo(Limit::Packets(2), false),
        delay: Delay::constant(1000 * MS),
        ..rate(8_000_000)
    };
    let mut link = link(config);
    for n in 0..3 {
        send(&mut link, n, 1000, Instant::ZERO);
    }
    assert_eq!(link.counters().dropped(DropReason::QueueFull), 1);
    assert_eq!(link.stats().rate_queue.packets, 2);
    for n in 3..100 {
        send(&mut link, n, 1000, Instant::from_millis(n));
    }
    assert_eq!(link.stats().count(Cause::RateQueueFull), 1, "98 on the delay line are no matter");
    let out = drain(&mut link, Instant::MAX);
    assert_eq!(out.len(), 99);
    assert!(!numbers(&out).contains(&2), "the newest was dropped");
}

#[test]
fn a_limit_in_bytes_lets_small_packets_in_where_large_ones_do_not_fit() {
    let mut link = link(LinkConfig { queue: fifo(Limit::Bytes(2500), false), ..rate(8_000) });
    for (n, len) in [(0, 1000), (1, 1000), (2, 1000), (3, 500), (4, 1)] {
        send(&mut link, n, len, Instant::ZERO);
    }
    assert_eq!(numbers(&drain(&mut link, Instant::MAX)), [0, 1, 3]);
}

#[test]
fn drop_head_drops_the_oldest_that_waits() {
    let mut link = link(LinkConfig { queue: fifo(Limit::Packets(3), true), ..rate(8_000_000) });
    for n in 0..6 {
        send(&mut link, n, 1000, Instant::ZERO);
    }
    assert_eq!(link.stats().count(Cause::HeadDrop), 3);
    assert_eq!(numbers(&drain(&mut link, Instant::MAX)), [0, 4, 5]);
}

#[test]
fn overhead_and_cells_take_their_time() {
    let overhead = Overhead { packet: 8, cell: 48, per_cell: 5 };
    let mut link = link(LinkConfig { overhead, ..rate(8_000_000) });
    send(&mut link, 0, 41, Instant::ZERO);
    assert_eq!(departs(&drain(&mut link, Instant::MAX)), [106_000]);
}

#[test]
fn a_super_packet_takes_the_wire_as_long_as_its_segments() {
    let overhead = Overhead { packet: 4, ..Overhead::default() };
    let on_wire = |len: usize, payload| {
        let mut packet = Packet::new(vec![0; len], Instant::ZERO, 0);
        packet.segments = Some(Segments { header: 54, payload });
        packet.wire_len(overhead)
    };
    assert_eq!(on_wire(54 + 3000, 1000), 3 * 1058);
    assert_eq!(on_wire(54 + 3001, 1000), 3 * 1058 + 59);
    assert_eq!(on_wire(54 + 999, 1000), 1057);
    assert_eq!(on_wire(54, 1000), 58);
    assert_eq!(on_wire(20, 1000), 24, "shorter than its header");
    assert_eq!(on_wire(5000, 0), 5004, "no segments are one packet");
    let mut link = link(LinkConfig { overhead, ..rate(8_000_000) });
    let mut packet = Packet::new(vec![0; 3054], Instant::ZERO, 0);
    packet.segments = Some(Segments { header: 54, payload: 1000 });
    link.enqueue(packet, Instant::ZERO).unwrap();
    assert_eq!(departs(&drain(&mut link, Instant::MAX)), [3_174_000]);
}

#[test]
fn a_new_rate_applies_to_what_waits_and_to_the_rest_of_what_is_sent() {
    let mut link = link(rate(8_000_000));
    for n in 0..3 {
        send(&mut link, n, 1000, Instant::ZERO);
    }
    // After half of the first packet: half a millisecond of it becomes a quarter.
    let now = Instant::from_micros(500);
    link.change(rate(16_000_000), now).unwrap();
    assert_eq!(link.held(), 3);
    assert_eq!(departs(&drain(&mut link, Instant::MAX)), [750_000, 1_250_000, 1_750_000]);
}

#[test]
fn a_rate_of_zero_holds_everything_until_there_is_another() {
    let mut link = link(rate(0));
    send(&mut link, 0, 1000, Instant::ZERO);
    send(&mut link, 1, 1000, Instant::ZERO);
    assert_eq!(link.next_deadline(), None);
    link.change(LinkConfig::default(), Instant::from_millis(5)).unwrap();
    assert_eq!(departs(&drain(&mut link, Instant::MAX)), [5_000_000, 5_000_000]);
}

#[test]
fn a_new_delay_applies_to_packets_that_enter_the_line_later() {
    let mut link = link(constant(10 * MS));
    send(&mut link, 0, 100, Instant::ZERO);
    let now = Instant::from_millis(1);
    link.change(constant(2 * MS), now).unwrap();
    send(&mut link, 1, 100, now);
    let out = drain(&mut link, Instant::MAX);
    assert_eq!(numbers(&out), [1, 0], "the second has the shorter way");
    assert_eq!(departs(&out), [3_000_000, 10_000_000]);
}

#[test]
fn with_jitter_packets_overtake_unless_the_link_keeps_their_order() {
    let jitter = Delay {
        time: 10 * MS,
        jitter: 3 * MS,
        distribution: Distribution::normal(),
        ..Delay::default()
    };
    for ordered in [false, true] {
        let mut link = link(LinkConfig { delay: jitter.clone(), ordered, ..LinkConfig::default() });
        for n in 0..200 {
            send(&mut link, n, 100, Instant::from_micros(n * 100));
        }
        let out = drain(&mut link, Instant::MAX);
        assert_eq!(numbers(&out).is_sorted(), ordered);
        assert!(departs(&out).is_sorted());
        assert_eq!(out.len(), 200);
    }
}

#[test]
fn a_reordered_packet_skips_the_delay_after_each_gap() {
    let reorder = Some(Reorder { chance: Chance::of(1.0), gap: 4 });
    let mut link = link(LinkConfig { reorder, ..constant(10 * MS) });
    for n in 0..8 {
        send(&mut link, n, 100, Instant::from_millis(n));
    }
    let out = drain(&mut link, Instant::MAX);
    assert_eq!(numbers(&out), [3, 7, 0, 1, 2, 4, 5, 6]);
    assert_eq!(link.stats().count(Cause::Reordered), 2);
}

#[test]
fn a_slot_takes_what_is_ready_up_to_its_packets_and_bytes() {
    let run = |packets, bytes| {
        let wait = SlotWait::Between(5 * MS, 5 * MS);
        let slot = Some(Slot { wait, packets, bytes });
        let mut link = link(LinkConfig { slot, ..constant(MS) });
        for n in 0..4 {
            send(&mut link, n, 100, Instant::from_millis(n));
        }
        send(&mut link, 4, 100, Instant::from_millis(20));
        let out = drain(&mut link, Instant::MAX);
        assert!(out.iter().all(|packet| packet.causes.contains(Cause::Slot)));
        out.iter().map(|packet| packet.depart.as_nanos() / 1_000_000).collect::<Vec<_>>()
    };
    // The first is ready at 1 ms, so the slot opens at 6 ms; the last is ready at 21 ms.
    assert_eq!(run(0, 0), [6, 6, 6, 6, 26]);
    assert_eq!(run(3, 0), [6, 6, 6, 11, 26]);
    assert_eq!(run(0, 101), [6, 6, 11, 11, 26], "the second packet reaches 101 bytes");
}

#[test]
fn a_corrupted_packet_differs_by_one_bit_behind_the_link_header() {
    let config = LinkConfig { corrupt: Chance::of(1.0), link_header: 14, ..LinkConfig::default() };
    let mut link = link(config);
    let mut places = std::collections::BTreeSet::new();
    for n in 0..2000 {
        send(&mut link, n, 20, Instant::ZERO);
        let out = link.dequeue(Instant::ZERO).unwrap();
        let ones: u32 = out.bytes.iter().map(|byte| byte.count_ones()).sum();
        assert_eq!(ones, 1);
        let at = out.bytes.iter().position(|byte| *byte != 0).unwrap();
        assert!(at >= 14);
        places.insert((at, out.bytes[at]));
    }
    assert_eq!(places.len(), 48, "every bit of six bytes is met");
    // Bytes too short to have anything behind the header pass as they are.
    send(&mut link, 2000, 10, Instant::ZERO);
    assert_eq!(link.dequeue(Instant::ZERO).unwrap().bytes, [0; 10]);
}

#[test]
fn a_copy_counts_as_no_packet_in_this_link_or_the_next() {
    let config = LinkConfig { duplicate: Chance::of(1.0), ..LinkConfig::default() };
    let (mut first, mut second) = (link(config.clone()), link(config));
    send(&mut first, 0, 100, Instant::ZERO);
    let mut out = Vec::new();
    for packet in drain(&mut first, Instant::MAX) {
        second.enqueue(packet, Instant::ZERO).unwrap();
        out.extend(drain(&mut second, Instant::MAX));
    }
    assert_eq!(out.len(), 4);
    assert_eq!(out.iter().map(Link::packets).sum::<u64>(), 1);
    for link in [&first, &second] {
        let counters = link.counters();
        assert_eq!((counters.packets_in, counters.packets_out, link.held()), (1, 1, 0));
    }
    assert_eq!(second.stats().offered.packets, 2);
    assert_eq!(second.stats().delivered.packets, 4);
}

#[test]
fn the_log_hears_of_every_event_with_its_logical_time() {
    let events = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut link = link(LinkConfig { queue: fifo(Limit::Packets(1), false), ..rate(8_000_000) });
    let log = events.clone();
    link.set_log(Some(std::sync::Arc::new(move |event| {
        log.lock().unwrap().push((event.packet.number, event.cause, event.at.as_nanos()));
    })));
    send(&mut link, 0, 1000, Instant::ZERO);
    send(&mut link, 1, 1000, Instant::from_micros(10));
    assert_eq!(*events.lock().unwrap(), [(1, Cause::RateQueueFull, 10_000)]);
}

#[test]
fn a_packet_carries_what_happened_to_it_and_no_more() {
    let mut link = link(LinkConfig { delay: Delay::constant(MS), ..rate(8_000_000) });
    send(&mut link, 0, 1000, Instant::ZERO);
    send(&mut link, 1, 1000, Instant::ZERO);
    let out = drain(&mut link, Instant::MAX);
    assert_eq!(out[0].causes.to_string(), "delay", "the first waited for nobody");
    assert_eq!(out[1].causes.to_string(), "rate-queue, delay");
    let jitter = Delay { jitter: MS / 10, ..Delay::constant(MS) };
    let now = Instant::from_millis(100);
    link.change(LinkConfig { delay: jitter, ..LinkConfig::default() }, now).unwrap();
    send(&mut link, 2, 1000, now);
    let out = link.dequeue(now + 10 * MS).unwrap();
    assert_eq!(out.causes.to_string(), "delay, jitter");
    assert_eq!((link.stats().count(Cause::Delay), link.stats().count(Cause::RateQueue)), (3, 1));
}

#[test]
fn the_delay_line_has_a_bound_of_its_own() {
    let mut link = link(LinkConfig { delay_limit: 3, ..constant(10 * MS) });
    for n in 0..5 {
        send(&mut link, n, 100, Instant::ZERO);
    }
    let out = drain(&mut link, Instant::MAX);
    assert_eq!(numbers(&out), [0, 1, 2]);
    assert_eq!(link.stats().count(Cause::DelayLineFull), 2);
}

#[test]
fn wrong_configurations_are_refused() {
    let wrong = |config: LinkConfig| assert!(Link::new(config, 0).is_err());
    let base = LinkConfig::default;
    wrong(LinkConfig { duplicate: Chance::of(1.1), ..base() });
    wrong(LinkConfig { corrupt: Chance::of(f64::NAN), ..base() });
    wrong(LinkConfig { corrupt: Chance { probability: 0.1, correlation: 1.0 }, ..base() });
    wrong(LinkConfig { queue: fifo(Limit::Packets(0), false), ..base() });
    wrong(LinkConfig { delay_limit: 0, ..base() });
    wrong(LinkConfig { reorder: Some(Reorder { chance: Chance::of(0.5), gap: 0 }), ..base() });
    wrong(LinkConfig { queue: QueueConfig::Drr(WeightedConfig::new(vec![])), ..base() });
    wrong(LinkConfig { queue: QueueConfig::Wf2q(WeightedConfig::new(vec![1, 0])), ..base() });
    let codel = FqCodelConfig { quantum: 1, ..FqCodelConfig::default() };
    wrong(LinkConfig { queue: QueueConfig::FqCodel(codel), ..base() });
    let pie = PieConfig { alpha: f64::INFINITY, ..PieConfig::default() };
    wrong(LinkConfig { queue: QueueConfig::Pie(pie), ..base() });
    let wait = SlotWait::Between(2 * MS, MS);
    wrong(LinkConfig { slot: Some(Slot { wait, packets: 0, bytes: 0 }), ..base() });
}

proptest! {
    #[test]
    fn no_window_longer_than_two_packets_carries_more_than_the_rate(
        arrivals in proptest::collection::vec((0u64..3_000_000, 1usize..1500), 2..60),
        bps in 64_000u64..1_000_000_000,
    ) {
        let mut link = link(rate(bps));
        let mut out = Vec::new();
        let mut now = Instant::ZERO;
        for (n, (gap, len)) in arrivals.iter().enumerate() {
            let next = now + Duration::from_nanos(*gap);
            out.extend(drain(&mut link, next));
            now = next;
            send(&mut link, n as u64, *len, now);
        }
        out.extend(drain(&mut link, Instant::MAX));
        prop_assert_eq!(out.len(), arrivals.len());
        for first in 0..out.len() {
            let mut bits = 0;
            for packet in &out[first + 1..] {
                bits += packet.bytes.len() as u128 * 8;
                let took = (packet.depart - out[first].depart).as_nanos() + 1;
                prop_assert!(bits * 1_000_000_000 <= took * u128::from(bps));
            }
        }
    }

    #[test]
    fn a_busy_link_leaves_exactly_by_the_sum_of_all_work(
        lens in proptest::collection::vec(0usize..9000, 1..200), bps in 1u64..10_000_000_000,
    ) {
        let mut link = link(rate(bps));
        for (n, len) in lens.iter().enumerate() {
            send(&mut link, n as u64, *len, Instant::ZERO);
        }
        let mut work = 0u128;
        for (packet, len) in drain(&mut link, Instant::MAX).iter().zip(&lens) {
            work += *len as u128 * 8_000_000_000;
            let exact = work.div_ceil(u128::from(bps));
            prop_assert_eq!(u128::from(packet.depart.as_nanos()), exact);
        }
    }
}
