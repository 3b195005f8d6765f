//! The bound on bursts after late calls.

use proptest::prelude::*;
use sheaf_emulator::queue::fifo::FifoConfig;
use sheaf_emulator::{
    Action, Delay, Limit, Link, LinkConfig, Overhead, Packet, PipeConfig, Pipes, QueueConfig, Rule,
    Target,
};
use sheaf_stage::{Bitrate, Duration, Instant, Stage};

const MS: Duration = Duration::from_millis(1);
const US: Duration = Duration::from_micros(1);
/// A packet of 1500 bytes behind an Ethernet header.
const FRAME: usize = 1514;
const ETHERNET: usize = 14;
/// Packets that are offered to a link, which its queue can hold: none is lost.
const PACKETS: usize = 200;
/// 100 Mbit/s: a frame takes 121.12 µs.
const FAST: u64 = 100_000_000;

/// A packet that has left: its number, length, time of arrival, and time of the call.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Left {
    number: u64,
    len: usize,
    arrived: Instant,
    at: Instant,
}

fn config(bps: u64, delay: Duration, burst: Option<u64>) -> LinkConfig {
    LinkConfig {
        link_header: ETHERNET,
        rate: Some(Bitrate::from_bps(bps)),
        burst,
        delay: Delay::constant(delay),
        queue: QueueConfig::Fifo(FifoConfig {
            limit: Limit::Packets(PACKETS as u64),
            ..FifoConfig::default()
        }),
        ..LinkConfig::default()
    }
}

/// Calls `stage` with packets, by the gap before and the length of each. A call comes `late` for
/// what there was to do; `send` returns the time at which those that one call handed out had left.
fn play<S: Stage<In = Packet, Out = Packet>>(
    stage: &mut S,
    packets: &[(Duration, usize)],
    mut late: impl FnMut() -> Duration,
    mut send: impl FnMut(&mut S, &Packet, Instant) -> Instant,
) -> Vec<Left> {
    let mut arrival = Instant::ZERO;
    let mut to_come: Vec<_> = (0..)
        .zip(packets)
        .map(|(number, (gap, len))| {
            arrival += *gap;
            Packet::new(vec![0; *len], arrival, number)
        })
        .collect();
    to_come.reverse();
    let (mut now, mut out) = (Instant::ZERO, Vec::new());
    loop {
        let arrives = to_come.last().map(|packet| packet.arrived);
        let Some(next) = [arrives, stage.next_deadline()].into_iter().flatten().min() else {
            return out;
        };
        now = now.max(next) + late();
        while to_come.last().is_some_and(|packet| packet.arrived <= now) {
            stage.enqueue(to_come.pop().unwrap(), now).unwrap();
        }
        let batch: Vec<_> = std::iter::from_fn(|| stage.dequeue(now)).collect();
        if let Some(first) = batch.first() {
            now = send(stage, first, now);
        }
        out.extend(batch.iter().map(|packet| {
            let Packet { number, arrived, .. } = *packet;
            Left { number, len: packet.bytes.len(), arrived, at: now }
        }));
    }
}

/// Sending takes no time.
fn at_once<S>(_: &mut S, _: &Packet, now: Instant) -> Instant {
    now
}

/// Most bytes above the rate in any time, the packet at its begin included, rounded up.
fn largest_burst(left: &[Left], bps: u64) -> u64 {
    // Bits · 10⁹ in whole numbers, as the link reckons. Departures are rounded up to a nanosecond,
    // which two of them may come nearer to each other by.
    let (mut sent, mut lowest, mut largest) = (0i128, i128::MAX, 0i128);
    for packet in left {
        let passed = i128::from(packet.at.as_nanos()) * i128::from(bps);
        lowest = lowest.min(sent - passed);
        sent += packet.len as i128 * 8_000_000_000;
        largest = largest.max(sent - passed - lowest - i128::from(bps));
    }
    u64::try_from(largest.unsigned_abs().div_ceil(8_000_000_000)).unwrap()
}

fn numbers(left: &[Left]) -> Vec<u64> {
    left.iter().map(|packet| packet.number).collect()
}

/// Latenesses of a thread on a busy machine: mostly short, sometimes long.
fn late() -> impl Strategy<Value = Duration> {
    prop_oneof![
        4 => Just(Duration::ZERO),
        8 => (0u64..60).prop_map(|us| US * us as u32),
        2 => (0u64..400).prop_map(|us| US * us as u32),
        1 => (0u64..9_000_000).prop_map(Duration::from_nanos),
    ]
}

fn packets() -> impl Strategy<Value = Vec<(Duration, usize)>> {
    let gap = prop_oneof![
        3 => Just(Duration::ZERO),
        3 => (0u64..200_000).prop_map(Duration::from_nanos),
        1 => (0u64..5_000_000).prop_map(Duration::from_nanos),
    ];
    proptest::collection::vec((gap, ETHERNET..=FRAME), 1..PACKETS)
}

proptest! {
    #[test]
    fn however_late_the_calls_no_burst_is_above_the_bound_and_no_packet_early_lost_or_overtaken(
        packets in packets(),
        lates in proptest::collection::vec(late(), 1..40),
        bps in prop_oneof![Just(FAST), 1_000_000u64..1_000_000_000],
        delay in prop_oneof![Just(Duration::ZERO), (0u64..20_000).prop_map(Duration::from_micros)],
        above in prop_oneof![Just(0u64), 0u64..6000],
        single in any::<bool>(),
        piped in any::<bool>(),
    ) {
        let burst = FRAME as u64 + above;
        let config = LinkConfig { single, ..config(bps, delay, Some(burst)) };
        let mut lates = lates.iter().copied().cycle();
        let late = || lates.next().unwrap();
        let left = if piped {
            let mut pipes = Pipes::new(ETHERNET, 1);
            pipes.add(PipeConfig::shared(config.clone())).unwrap();
            let row = [Target { pipe: 0, queue: None }];
            let action = Action::Pipes(row.into());
            pipes.set_rules(vec![Rule { action, ..Rule::default() }]).unwrap();
            play(&mut pipes, &packets, late, at_once)
        } else {
            let late = std::cell::RefCell::new(late);
            let send = |link: &mut Link, first: &Packet, now: Instant| {
                let sent = now + late.borrow_mut()();
                link.left(first, sent);
                sent
            };
            play(&mut Link::new(config, 1).unwrap(), &packets, || late.borrow_mut()(), send)
        };
        prop_assert!(largest_burst(&left, bps) <= burst, "{}", largest_burst(&left, bps));
        prop_assert_eq!(numbers(&left), (0..packets.len() as u64).collect::<Vec<_>>());
        for packet in &left {
            let least = Bitrate::from_bps(bps).time_for(packet.len as u64) + delay;
            // What an earlier packet left of a nanosecond counts for the next.
            prop_assert!(packet.at + Duration::from_nanos(1) >= packet.arrived + least);
        }
    }

    #[test]
    fn an_ordered_link_keeps_its_order_through_standstills_whatever_its_jitter(
        packets in packets(),
        lates in proptest::collection::vec(late(), 1..40),
    ) {
        let plain = config(FAST, Duration::ZERO, Some(2 * FRAME as u64));
        let delay = Delay { jitter: 2 * MS, ..Delay::constant(5 * MS) };
        let mut link = Link::new(LinkConfig { ordered: true, delay, ..plain }, 1).unwrap();
        let mut lates = lates.iter().copied().cycle();
        let left = play(&mut link, &packets, || lates.next().unwrap(), at_once);
        prop_assert_eq!(numbers(&left), (0..packets.len() as u64).collect::<Vec<_>>());
    }

    #[test]
    fn without_the_bound_the_last_packet_is_late_by_its_own_call_alone(
        lates in proptest::collection::vec(late(), PACKETS..PACKETS + 1),
    ) {
        let all = vec![(Duration::ZERO, FRAME); PACKETS];
        let mut lates = lates.into_iter();
        let mut last = Duration::ZERO;
        let mut link = Link::new(config(FAST, 2 * MS, None), 1).unwrap();
        let late = || {
            last = lates.next().unwrap_or_default();
            last
        };
        let left = play(&mut link, &all, late, at_once);
        let end = left.last().unwrap().at;
        let exact = Instant::ZERO + PACKETS as u32 * Duration::from_nanos(121_120) + 2 * MS;
        prop_assert!(end >= exact && end <= exact + last, "{end:?}");
    }
}

/// A full link at 100 Mbit/s that is called in time but for the call at `gap.0`, late by `gap.1`.
fn one_late_call(burst: Option<u64>, gap: (usize, Duration)) -> (Vec<Left>, Link) {
    let mut link = Link::new(config(FAST, Duration::ZERO, burst), 1).unwrap();
    let all = vec![(Duration::ZERO, FRAME); PACKETS];
    let mut call = 0;
    let late = || {
        call += 1;
        if call == gap.0 { gap.1 } else { Duration::ZERO }
    };
    let left = play(&mut link, &all, late, at_once);
    (left, link)
}

#[test]
fn after_a_late_call_two_frames_leave_at_once_and_the_others_at_the_rate() {
    let (left, link) = one_late_call(Some(2 * FRAME as u64), (50, 9 * MS));
    let late = left.iter().find(|packet| packet.at > Instant::ZERO + 10 * MS).unwrap().at;
    let behind: Vec<_> = left.iter().filter(|packet| packet.at >= late).collect();
    let gaps: Vec<_> = behind.windows(2).map(|pair| (pair[1].at - pair[0].at).as_nanos()).collect();
    assert_eq!((gaps[0], gaps[1]), (0, 121_120), "a bound of two frames lets two leave");
    assert!(gaps[1..].iter().all(|gap| *gap == 121_120), "{gaps:?}");
    assert_eq!(link.stats().standstills, 1);
    let bound = Duration::from_nanos(121_120);
    assert_eq!(link.stats().stood_still, 9 * MS - bound, "but for what the bound let catch up");
}

#[test]
fn a_call_that_the_bound_allows_to_be_late_loses_no_time() {
    let (_, link) = one_late_call(Some(2 * FRAME as u64), (50, Duration::from_nanos(121_120)));
    assert_eq!((link.stats().standstills, link.stats().stood_still), (0, Duration::ZERO));
    let (left, link) = one_late_call(None, (50, 9 * MS));
    assert_eq!((link.stats().standstills, link.stats().stood_still), (0, Duration::ZERO));
    assert!(largest_burst(&left, FAST) > 70 * FRAME as u64, "without a bound all leave at once");
}

#[test]
fn a_packet_that_comes_during_a_standstill_takes_its_own_time_behind_those_on_the_line() {
    // A packet on the line is due at 10.12 ms; the call comes at 15, and with it a packet of 12 ms.
    let mut link = Link::new(config(FAST, 10 * MS, Some(FRAME as u64)), 1).unwrap();
    let packet = |at, number| Packet::new(vec![0; FRAME], Instant::ZERO + at, number);
    link.enqueue(packet(Duration::ZERO, 0), Instant::ZERO).unwrap();
    let now = Instant::ZERO + 15 * MS;
    link.enqueue(packet(12 * MS, 1), now).unwrap();
    assert_eq!(link.dequeue(now).map(|packet| (packet.number, packet.depart)), Some((0, now)));
    assert_eq!(link.dequeue(now), None);
    let due = Instant::from_nanos(22_121_120);
    assert_eq!(link.next_deadline(), Some(due), "12 ms, the time of a frame, and the delay");
}

#[test]
fn a_queue_is_as_full_during_a_standstill_as_nothing_leaves_it() {
    let limit = QueueConfig::Fifo(FifoConfig { limit: Limit::Packets(2), drop_head: false });
    let config = LinkConfig { queue: limit, ..config(FAST, Duration::ZERO, Some(FRAME as u64)) };
    let mut link = Link::new(config, 1).unwrap();
    let now = Instant::ZERO + 9 * MS;
    // One packet each millisecond, all taken in at once at the end: the first stands at its end.
    let taken: Vec<_> = (0..9u32)
        .map(|n| link.enqueue(Packet::new(vec![0; FRAME], Instant::ZERO + n * MS, n.into()), now))
        .map(|taken| taken.is_ok())
        .collect();
    assert_eq!(taken, [true, true, true, false, false, false, false, false, false]);
}

#[test]
fn a_standstill_finds_packets_in_the_rate_queue_and_leaves_them_there() {
    let mut link = Link::new(config(FAST, Duration::ZERO, Some(FRAME as u64)), 1).unwrap();
    for n in 0..3 {
        link.enqueue(Packet::new(vec![0; FRAME], Instant::ZERO, n), Instant::ZERO).unwrap();
    }
    let now = Instant::ZERO + 9 * MS;
    assert!(link.dequeue(now).is_some() && link.dequeue(now).is_none());
    let stats = link.stats();
    assert_eq!((stats.rate_queue.packets, stats.delay_line.packets), (2, 0));
}

#[test]
fn the_bound_is_in_bytes_at_the_rate_of_now() {
    let slow = config(1_000_000, Duration::ZERO, Some(2 * FRAME as u64));
    let mut link = Link::new(config(FAST, Duration::ZERO, slow.burst), 1).unwrap();
    link.change(slow, Instant::ZERO).unwrap();
    for n in 0..3 {
        link.enqueue(Packet::new(vec![0; FRAME], Instant::ZERO, n), Instant::ZERO).unwrap();
    }
    // A frame takes 12.112 ms.
    let due = link.next_deadline().unwrap();
    assert!(link.dequeue(due + 12 * MS).is_some());
    assert_eq!(link.stats().standstills, 0, "at 1 Mbit/s the second frame takes longer");
}

#[test]
fn a_bound_holds_a_frame_and_needs_a_rate() {
    let refused = |config: LinkConfig| config.check().unwrap_err().to_string();
    let frame = FRAME as u64;
    assert_eq!(
        refused(config(FAST, MS, Some(frame - 1))),
        "burst 1513 is less than a frame of 1514 bytes"
    );
    assert_eq!(config(FAST, MS, Some(frame)).check(), Ok(()));
    let overhead = Overhead { packet: 24, ..Overhead::default() };
    let counted = LinkConfig { overhead, ..config(FAST, MS, Some(frame)) };
    assert_eq!(refused(counted), "burst 1514 is less than a frame of 1538 bytes");
    let unbounded = LinkConfig { rate: None, ..config(FAST, MS, Some(frame)) };
    assert!(refused(unbounded).starts_with("burst needs a rate"));
}
