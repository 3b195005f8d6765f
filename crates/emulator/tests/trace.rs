//! Recorded links: parsed, played, and held against what they say.

use proptest::prelude::*;
use sheaf_emulator::queue::fifo::FifoConfig;
use sheaf_emulator::trace::mahimahi::{MTU, PACKET_INFORMATION};
use sheaf_emulator::trace::{Opportunities, Steps, TraceError, TraceProblem, Trains};
use sheaf_emulator::{
    Cause, Delay, Limit, Link, LinkConfig, Overhead, Packet, QueueConfig, Trace, TraceConfig,
};
use sheaf_stage::{Bitrate, Duration, Instant, Stage};

fn opportunities(text: &str, start: Instant, looped: bool) -> Link {
    let trace = Trace::Opportunities(Opportunities::parse(text).unwrap().into());
    let trace = Some(TraceConfig { trace, start: Some(start), looped });
    Link::new(LinkConfig { trace, ..LinkConfig::default() }, 1).unwrap()
}

/// A link recorded in two loads: saturated, an opportunity each millisecond, and `light`.
fn loads(light: &str, config: LinkConfig) -> Link {
    let heavy: String = (1..=1000).map(|ms| format!("{ms}\n")).collect();
    let heavy = Opportunities::parse(&heavy).unwrap();
    let trace = Trace::Loads(heavy.into(), Trains::parse(light).unwrap().into());
    let trace = Some(TraceConfig { trace, start: Some(Instant::ZERO), looped: true });
    Link::new(LinkConfig { trace, ..config }, 1).unwrap()
}

fn steps(text: &str, looped: bool) -> LinkConfig {
    let trace = Trace::Steps(Steps::parse(text).unwrap().into());
    let trace = Some(TraceConfig { trace, start: Some(Instant::ZERO), looped });
    LinkConfig { trace, ..LinkConfig::default() }
}

fn send(link: &mut Link, number: u64, len: usize, at: Instant) {
    link.enqueue(Packet::new(vec![0; len], at, number), at).unwrap();
}

/// Sends a packet that takes `len` bytes of opportunities.
fn fill(link: &mut Link, number: u64, len: usize, at: Instant) {
    send(link, number, len - PACKET_INFORMATION as usize, at);
}

/// Departures in milliseconds until `end`.
fn departs(link: &mut Link, end: Instant) -> Vec<f64> {
    let mut out = Vec::new();
    while let Some(at) = link.next_deadline().filter(|at| *at <= end) {
        while let Some(packet) = link.dequeue(at) {
            assert_eq!(packet.depart, at);
            out.push(packet.depart.as_nanos() as f64 / 1e6);
        }
    }
    out
}

#[test]
fn large_packets_take_several_opportunities_and_small_ones_share_one() {
    let mut link = opportunities("10\n20\n20\n30\n40\n", Instant::ZERO, false);
    for (n, len) in [(0, 700), (1, 804), (2, 1505), (3, 1503), (4, 5)] {
        fill(&mut link, n, len, Instant::ZERO);
    }
    // 1504 bytes leave at 10 ms; 1505 need both of 20 ms; what that leaves is used at 20 ms.
    assert_eq!(departs(&mut link, Instant::MAX), [10.0, 10.0, 20.0, 20.0, 30.0]);
}

#[test]
fn an_opportunity_that_finds_nothing_is_lost() {
    let mut link = opportunities("10\n20\n30\n", Instant::ZERO, false);
    send(&mut link, 0, 100, Instant::from_millis(12));
    assert_eq!(departs(&mut link, Instant::from_millis(25)), [20.0]);
    // At the very moment of an opportunity that is in use a packet comes too late.
    send(&mut link, 1, 100, Instant::from_millis(25));
    assert_eq!(departs(&mut link, Instant::from_millis(30)), [30.0]);
    send(&mut link, 2, 100, Instant::from_millis(30));
    assert_eq!(link.next_deadline(), None, "the trace is over");
    assert_eq!(link.held(), 1);
}

#[test]
fn a_looped_trace_begins_again_after_its_last_line() {
    let start = Instant::from_millis(100);
    let mut link = opportunities("0\n5\n10\n", start, true);
    for n in 0..8 {
        fill(&mut link, n, 1504, Instant::ZERO);
    }
    let times = [100.0, 105.0, 110.0, 110.0, 115.0, 120.0, 120.0, 125.0];
    assert_eq!(departs(&mut link, Instant::MAX), times);
    // After a long idle time the place is found without walking there.
    let later = start + Duration::from_secs(1_000_000) + Duration::from_millis(3);
    fill(&mut link, 9, 1504, later);
    let expected = (later - Instant::ZERO).as_nanos() as f64 / 1e6 + 2.0;
    assert_eq!(departs(&mut link, Instant::MAX), [expected]);
}

#[test]
fn a_packet_of_1500_bytes_fills_an_opportunity_as_in_mahimahi_whatever_stands_before_it() {
    // An Ethernet frame behind a virtio header, with the overhead of a cable.
    const BEFORE: usize = 10 + 14;
    let trace = Trace::Opportunities(Opportunities::parse("1\n2\n3\n4\n").unwrap().into());
    let trace = Some(TraceConfig { trace, start: Some(Instant::ZERO), looped: false });
    let overhead = Overhead { packet: 24 - 10, ..Overhead::default() };
    let config = LinkConfig { trace, overhead, link_header: BEFORE, ..LinkConfig::default() };
    let mut link = Link::new(config, 1).unwrap();
    // Two of 748 bytes share one, two of 749 do not.
    for (n, len) in [(0, 1500), (1, 748), (2, 748), (3, 749), (4, 749)] {
        send(&mut link, n, BEFORE + len, Instant::ZERO);
    }
    assert_eq!(departs(&mut link, Instant::MAX), [1.0, 2.0, 2.0, 3.0, 4.0]);
}

#[test]
fn a_trace_that_is_armed_begins_with_the_first_packet() {
    let ms = Instant::from_millis;
    let armed = |text: &str| {
        let trace = Trace::Steps(Steps::parse(text).unwrap().into());
        let trace = Some(TraceConfig { trace, start: None, looped: false });
        Link::new(LinkConfig { trace, ..LinkConfig::default() }, 1).unwrap()
    };
    let mut link = armed("time,delay\n0,10\n0.1,20\n");
    assert!(link.is_armed());
    let mut out = Vec::new();
    for (n, at) in [(0, 5000), (1, 5099), (2, 5100)] {
        send(&mut link, n, 100, ms(at));
        out.extend(departs(&mut link, ms(at + 50)));
    }
    assert_eq!(out, [5010.0, 5109.0, 5120.0]);
    // Or with the first packet of another link.
    let mut link = armed("time,delay\n0,10\n0.1,20\n");
    link.start_trace(ms(950));
    send(&mut link, 0, 100, ms(1050));
    assert_eq!(departs(&mut link, Instant::MAX), [1070.0]);
    // A trace that has begun does not begin again.
    link.start_trace(ms(1100));
    send(&mut link, 1, 100, ms(1110));
    assert_eq!(departs(&mut link, Instant::MAX), [1130.0]);
}

#[test]
fn a_table_bounds_the_queue_and_duplicates() {
    let text = "time,rate,limit,duplicate,duplicate_delay\n0,8mbit,,,\n0.1,,2,,\n0.2,,,100,5\n";
    let rate = Some(Bitrate::from_mbps(8));
    let mut link = Link::new(LinkConfig { rate, ..steps(text, false) }, 1).unwrap();
    let offer = |link: &mut Link, at: u64| {
        let now = Instant::from_millis(at);
        let taken =
            (0..5).filter(|n| link.enqueue(Packet::new(vec![0; 1000], now, at + n), now).is_ok());
        let taken = taken.count();
        let out = departs(link, now + Duration::from_millis(50));
        (taken, out.iter().map(|ms| ms - at as f64).collect::<Vec<_>>())
    };
    assert_eq!(offer(&mut link, 0), (5, vec![1.0, 2.0, 3.0, 4.0, 5.0]));
    assert_eq!(offer(&mut link, 100), (2, vec![1.0, 2.0]));
    let doubled = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0];
    assert_eq!(offer(&mut link, 200), (5, doubled));
}

#[test]
fn a_limit_that_shrinks_drops_nothing_that_waits() {
    let mut link = Link::new(steps("time,rate,limit\n0,1mbit,10\n0.05,1mbit,1\n", false), 1);
    let link = link.as_mut().unwrap();
    (0..10).for_each(|n| send(link, n, 1250, Instant::ZERO));
    let now = Instant::from_millis(55);
    assert!(link.enqueue(Packet::new(vec![0; 100], now, 10), now).is_err());
    assert_eq!(departs(link, Instant::MAX).len(), 10);
}

#[test]
fn a_table_varies_the_delay_by_its_jitter() {
    let text = "time,delay,jitter\n0,10,\n1,10,2\n";
    let mut link = Link::new(steps(text, false), 1).unwrap();
    let mut delays = |from: u64| -> Vec<f64> {
        let delay = |n: u64| {
            let now = Instant::from_millis(from + n * 30);
            send(&mut link, from + n, 100, now);
            departs(&mut link, now + Duration::from_millis(29))[0] - (from + n * 30) as f64
        };
        (0..30).map(delay).collect()
    };
    assert!(delays(0).iter().all(|delay| *delay == 10.0));
    let varied = delays(1000);
    let mean = varied.iter().sum::<f64>() / varied.len() as f64;
    let square = varied.iter().map(|delay| (delay - mean) * (delay - mean)).sum::<f64>();
    let deviation = (square / varied.len() as f64).sqrt();
    // Four deviations of the estimates from 30 uniform draws.
    assert!((mean - 10.0).abs() < 1.5 && (deviation - 2.0).abs() < 0.7, "{mean} {deviation}");
}

#[test]
fn packets_overtake_those_of_another_route_alone() {
    let text = "time,delay,route\n0,50,1\n0.01,20,1\n0.02,20,2\n0.03,5,0\n";
    let mut link = Link::new(steps(text, false), 1).unwrap();
    for n in 0..4 {
        send(&mut link, n, 100, Instant::from_millis(n * 10));
    }
    let mut order = Vec::new();
    while let Some(at) = link.next_deadline() {
        order.extend(link.dequeue(at).map(|packet| (packet.number, at.as_nanos() / 1_000_000)));
    }
    // The second has a shorter delay, but takes the route of the first.
    assert_eq!(order, [(3, 35), (2, 40), (0, 50), (1, 50)]);
}

#[test]
fn a_light_load_takes_its_own_delays_and_a_heavy_one_queues_behind_them() {
    let mut link = loads("0 20 0 2\n1000 20 0\n", LinkConfig::default());
    for n in 0..4 {
        fill(&mut link, n, 1504, Instant::ZERO);
    }
    assert_eq!(link.held(), 4);
    // The train has two opportunities; the rest has those of the saturated link from 22 ms on.
    assert_eq!(departs(&mut link, Instant::from_millis(100)), [20.0, 22.0, 23.0, 24.0]);
    // A single packet needs none of them, and no opportunity is waited for.
    let at = Instant::from_millis(100) + Duration::from_micros(300);
    fill(&mut link, 4, 1504, at);
    assert_eq!(departs(&mut link, Instant::from_millis(200)), [120.3]);
}

#[test]
fn a_light_packet_behind_a_heavy_load_waits_for_it() {
    let mut link = loads("0 20 0\n1000 20 0\n", LinkConfig::default());
    for n in 0..10 {
        fill(&mut link, n, 1504, Instant::ZERO);
    }
    // It begins a train, and nine packets wait for the saturated link when its delay is over.
    fill(&mut link, 10, 1504, Instant::from_millis(2));
    let out = departs(&mut link, Instant::MAX);
    assert_eq!(out, [20., 21., 22., 23., 24., 25., 26., 27., 28., 29., 30.]);
}

#[test]
fn whoever_has_left_takes_no_place_behind_the_delay_of_a_light_load() {
    let queue = QueueConfig::Fifo(FifoConfig { limit: Limit::Packets(2), drop_head: false });
    let delay = Delay::constant(Duration::from_millis(5));
    let mut link = loads(
        "0 20 0\n1000 20 0\n",
        LinkConfig { single: true, queue, delay, ..LinkConfig::default() },
    );
    // Two trains of two, of which the second comes to the queue when the first has left.
    for (n, ms) in [(0, 0), (1, 0), (2, 10), (3, 10)] {
        fill(&mut link, n, 1504, Instant::from_millis(ms));
    }
    // One late call for all of it.
    let late = Instant::from_millis(100);
    let left = std::iter::from_fn(|| link.dequeue(late));
    let left: Vec<_> = left.map(|packet| packet.depart.as_nanos() / 1_000_000).collect();
    assert_eq!(left, [25, 26, 35, 36]);
}

#[test]
fn the_delay_of_a_light_load_comes_beside_that_of_the_link_and_holds_no_more_than_it_may() {
    let delay = Delay::constant(Duration::from_millis(5));
    let config = LinkConfig { delay, delay_limit: 2, ..LinkConfig::default() };
    let mut link = loads("0 20 0 0 0\n1000 20 0\n", config);
    send(&mut link, 0, 100, Instant::ZERO);
    send(&mut link, 1, 100, Instant::ZERO);
    assert!(link.enqueue(Packet::new(vec![0; 100], Instant::ZERO, 2), Instant::ZERO).is_err());
    assert_eq!(link.stats().count(Cause::DelayLineFull), 1);
    assert_eq!(link.stats().delay_line.packets, 2);
    assert_eq!(departs(&mut link, Instant::MAX), [25.0, 25.0]);
}

#[test]
fn a_mahimahi_trace_says_how_much_it_carries() {
    let trace = Opportunities::parse("1\n\n2\n 3\n4\n").unwrap();
    assert_eq!((trace.count(), trace.period()), (4, Duration::from_millis(4)));
    assert_eq!(trace.mean_bps(), (MTU * 8 * 1000) as f64);
}

#[test]
fn trace_errors_carry_their_line() {
    let mahimahi = |text: &str| Opportunities::parse(text).unwrap_err();
    let wrong = |line, problem| TraceError { line, problem };
    assert_eq!(mahimahi("1\n2\nx\n"), wrong(3, TraceProblem::Milliseconds));
    assert_eq!(mahimahi("5\n4\n"), wrong(2, TraceProblem::Order));
    assert_eq!(mahimahi(""), wrong(1, TraceProblem::Empty));
    assert_eq!(mahimahi("0\n0\n"), wrong(2, TraceProblem::Empty));
    let trains = |text: &str| Trains::parse(text).unwrap_err();
    assert_eq!(trains("0 20 0\n5 x\n"), wrong(2, TraceProblem::Milliseconds));
    assert_eq!(trains("0 20 0\n5\n"), wrong(2, TraceProblem::Field("delay")));
    assert_eq!(trains("5 20 0\n4 20 0\n"), wrong(2, TraceProblem::Order));
    assert_eq!(trains("0 20 0 3 2\n"), wrong(1, TraceProblem::Order));
    assert_eq!(trains("0 20 0\n"), wrong(1, TraceProblem::Empty));
    assert_eq!(trains("9 20 0\n\n9 20 0\n"), wrong(3, TraceProblem::Empty));
    let csv = |text: &str| Steps::parse(text).unwrap_err();
    assert_eq!(csv(""), wrong(1, TraceProblem::Empty));
    assert_eq!(csv("rate\n1\n"), wrong(1, TraceProblem::Header));
    assert_eq!(csv("time,speed\n"), wrong(1, TraceProblem::Header));
    assert_eq!(csv("# only\ntime,rate\n"), wrong(2, TraceProblem::Empty));
    assert_eq!(csv("time,rate\n0,1,2\n"), wrong(2, TraceProblem::Fields));
    assert_eq!(csv("time,rate\n0,1\n1,fast\n"), wrong(3, TraceProblem::Field("rate")));
    assert_eq!(csv("time,loss\n0,101\n"), wrong(2, TraceProblem::Field("loss")));
    assert_eq!(csv("time,rate\n1,1\n1.0005,1\n"), wrong(3, TraceProblem::Order));
    assert_eq!(csv("time,rate\n0,x").to_string(), "line 2: no rate that can be read");
    assert_eq!(csv("time,limit\n0,0\n"), wrong(2, TraceProblem::Field("limit")));
    assert_eq!(csv("time,route\n0,256\n"), wrong(2, TraceProblem::Field("route")));
    let columns = csv("time,speed\n").to_string();
    assert!(columns.contains("duplicate, duplicate_delay, route, or time"), "{columns}");
}

#[test]
fn a_table_changes_the_rate_in_the_midst_of_a_packet() {
    let mut link =
        Link::new(steps("time,rate\n0,8mbit\n0.0015,0\n0.01,80mbit\n", false), 1).unwrap();
    for n in 0..3 {
        send(&mut link, n, 1000, Instant::ZERO);
    }
    // Half of the second is sent when the link stops at 1.5 ms; the rest goes on at 10 ms.
    assert_eq!(departs(&mut link, Instant::MAX), [1.0, 10.05, 10.15]);
}

#[test]
fn a_table_changes_delay_and_loss_and_leaves_the_rest_as_configured() {
    let text = "# a comment\ntime, delay, loss\n10ms,20,\n20ms,,100%\n30ms,5,0\n";
    let config = LinkConfig {
        delay: Delay::constant(Duration::from_millis(1)),
        rate: Some(Bitrate::from_mbps(8)),
        ..steps(text, false)
    };
    let mut link = Link::new(config, 1).unwrap();
    let mut out = Vec::new();
    for n in 0..4 {
        send(&mut link, n, 1000, Instant::from_millis(n * 10));
        out.extend(departs(&mut link, Instant::from_millis(n * 10 + 9)));
    }
    out.extend(departs(&mut link, Instant::MAX));
    // The first before the table begins; the second takes 20 ms; the third is lost.
    assert_eq!(out, [2.0, 31.0, 36.0]);
    assert_eq!(link.stats().count(Cause::LossTrace), 1);
}

#[test]
fn a_looped_table_repeats_and_its_last_line_is_only_the_end() {
    let mut link = Link::new(steps("time,delay\n0,10\n1,20\n2,999\n", true), 1).unwrap();
    let mut seen = Vec::new();
    for n in 0..6 {
        let now = Instant::from_millis(n * 1000 + 500);
        send(&mut link, n, 10, now);
        let out = departs(&mut link, now + Duration::from_millis(400));
        seen.extend(out.iter().map(|ms| ms - (n * 1000 + 500) as f64));
    }
    assert_eq!(seen, [10.0, 20.0, 10.0, 20.0, 10.0, 20.0]);
}

proptest! {
    #[test]
    fn no_text_panics_and_what_is_read_can_be_played(
        text in "(time,rate,delay,loss\n|time,limit,jitter,route\n)?([0-9., ]{0,6}\n){0,6}",
        looped in any::<bool>(),
        gaps in proptest::collection::vec(0u64..50_000_000_000, 1..6),
    ) {
        let mahimahi = Opportunities::parse(&text).ok().map(|t| Trace::Opportunities(t.into()));
        let csv = Steps::parse(&text).ok().map(|t| Trace::Steps(t.into()));
        let heavy = || Opportunities::parse("1\n2\n").unwrap().into();
        let trains = Trains::parse(&text).ok().map(|t| Trace::Loads(heavy(), t.into()));
        for trace in [mahimahi, csv, trains].into_iter().flatten() {
            let start = Some(Instant::from_millis(7));
            let trace = Some(TraceConfig { trace, start, looped });
            let mut link = Link::new(LinkConfig { trace, ..LinkConfig::default() }, 1).unwrap();
            let mut now = Instant::ZERO;
            for (n, gap) in (0..).zip(&gaps) {
                now += Duration::from_nanos(*gap);
                send(&mut link, n, 1500, now);
                while link.dequeue(now).is_some() {}
            }
            let counters = link.counters();
            let gone = counters.packets_out + counters.dropped_total();
            prop_assert_eq!(counters.packets_in, gone + link.held());
        }
    }

    #[test]
    fn a_busy_link_uses_every_opportunity(
        gaps in proptest::collection::vec(0u32..5, 1..40),
        lens in proptest::collection::vec(5usize..5000, 1..40),
        first in 1u32..5,
    ) {
        let times: Vec<u32> = gaps.iter().scan(first, |t, gap| { *t += gap; Some(*t) }).collect();
        let text: String = times.iter().map(|t| format!("{t}\n")).collect();
        let mut link = opportunities(&text, Instant::ZERO, false);
        for (n, len) in lens.iter().enumerate() {
            fill(&mut link, n as u64, *len, Instant::ZERO);
        }
        let out = departs(&mut link, Instant::MAX);
        // The n-th packet leaves with the opportunity in which the sum of all bytes so far ends.
        let mut sum = 0;
        let expected: Vec<f64> = lens.iter().map_while(|len| {
            sum += *len as u64;
            times.get((sum.div_ceil(MTU) - 1) as usize).map(|t| f64::from(*t))
        }).collect();
        prop_assert_eq!(out, expected);
    }
}
