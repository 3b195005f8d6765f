//! The purpose of the two queues, on the example of the thesis, and changes in the middle of it.

use proptest::prelude::*;
use sheaf_emulator::queue::codel::CodelConfig;
use sheaf_emulator::queue::fifo::FifoConfig;
use sheaf_emulator::queue::weighted::WeightedConfig;
use sheaf_emulator::{Cause, Delay, Limit, Link, LinkConfig, Packet, QueueConfig};
use sheaf_stage::{Bitrate, Duration, Instant, Stage};

const LEN: usize = 250;
/// A packet of [`LEN`] bytes at 1 Mbit/s.
const EACH: Duration = Duration::from_millis(2);
const DELAY: Duration = Duration::from_millis(100);
const LIMIT: u64 = 10;

fn config() -> LinkConfig {
    LinkConfig {
        rate: Some(Bitrate::from_mbps(1)),
        delay: Delay::constant(DELAY),
        queue: QueueConfig::Fifo(FifoConfig { limit: Limit::Packets(LIMIT), drop_head: false }),
        ..LinkConfig::default()
    }
}

#[test]
fn ten_packets_of_queue_fill_a_link_of_100_ms_and_delay_by_no_more_than_ten_packets() {
    let mut link = Link::new(config(), 1).unwrap();
    let (mut out, mut most_waiting, mut most_under_way) = (Vec::new(), 0, 0);
    // Three times the rate, for two seconds.
    for n in 0..3000u64 {
        let now = Instant::ZERO + EACH / 3 * n as u32;
        while let Some(at) = link.next_deadline().filter(|at| *at <= now) {
            out.extend(link.dequeue(at));
        }
        let _ = link.enqueue(Packet::new(vec![0; LEN], now, n), now);
        most_waiting = most_waiting.max(link.stats().rate_queue.packets);
        most_under_way = most_under_way.max(link.stats().delay_line.packets);
    }
    assert_eq!(most_waiting, LIMIT);
    let product = (DELAY.as_nanos() / EACH.as_nanos()) as u64;
    assert_eq!((product, most_under_way), (50, 50), "the delay line holds rate times delay");
    let wait = |packet: &Packet| packet.depart - packet.arrived;
    assert!(out.iter().all(|packet| wait(packet) <= DELAY + EACH * LIMIT as u32));
    assert!(out.iter().any(|packet| wait(packet) > DELAY + EACH * (LIMIT as u32 - 1)));
    // The rate is reached: from the first to the last, no gap.
    let spans = out.windows(2).all(|pair| pair[1].depart - pair[0].depart == EACH);
    assert!(spans && out.len() > 900, "{}", out.len());
}

#[test]
fn a_single_queue_of_ten_holds_ten_with_those_under_way_and_carries_a_sixth() {
    // What NetEm does with `rate 1mbit delay 100ms limit 10`.
    let mut link = Link::new(LinkConfig { single: true, ..config() }, 1).unwrap();
    let (mut left, mut most) = (0, 0);
    for n in 0..3000u64 {
        let now = Instant::ZERO + EACH / 3 * n as u32;
        while let Some(at) = link.next_deadline().filter(|at| *at <= now) {
            left += u64::from(link.dequeue(at).is_some());
        }
        let _ = link.enqueue(Packet::new(vec![0; LEN], now, n), now);
        most = most.max(link.held());
    }
    assert_eq!(most, LIMIT);
    // Ten packets in each 100 ms and a bit, of fifty that the rate would carry.
    let mbps = left as f64 * LEN as f64 * 8.0 / 2e6;
    assert!((0.12..0.2).contains(&mbps), "{mbps}");
}

#[test]
fn whoever_has_left_takes_no_place_in_a_single_queue_though_nobody_fetched_it() {
    let mut link = Link::new(LinkConfig { single: true, rate: None, ..config() }, 1).unwrap();
    let mut number = 0..;
    let mut burst = |link: &mut Link, now: Instant| {
        for number in number.by_ref().take(LIMIT as usize + 1) {
            let _ = link.enqueue(Packet::new(vec![0; LEN], now, number), now);
        }
        link.stats().count(Cause::RateQueueFull)
    };
    let begin = Instant::from_millis(1);
    assert_eq!(burst(&mut link, begin), 1);
    assert_eq!(burst(&mut link, begin + DELAY - Duration::from_nanos(1)), 1 + LIMIT + 1);
    // Ten leave at this moment, ten come in their place.
    assert_eq!(burst(&mut link, begin + DELAY), 2 + LIMIT + 1);
    assert_eq!(link.held(), 2 * LIMIT, "ten of them wait to be fetched");
    let left = std::iter::from_fn(|| link.dequeue(begin + DELAY)).count();
    assert_eq!((left, link.next_deadline()), (LIMIT as usize, Some(begin + 2 * DELAY)));
}

fn kinds() -> impl Strategy<Value = QueueConfig> {
    let limit = Limit::Packets(1_000_000);
    let mut weighted = WeightedConfig::new(vec![2, 1]);
    weighted.limit = limit;
    prop_oneof![
        Just(QueueConfig::Fifo(FifoConfig { limit, drop_head: false })),
        Just(QueueConfig::Drr(weighted.clone())),
        Just(QueueConfig::Wf2q(weighted)),
        Just(QueueConfig::Codel(CodelConfig { limit, ..CodelConfig::default() })),
    ]
}

proptest! {
    #[test]
    fn changes_under_load_lose_nothing_and_send_nothing_above_the_rate(
        changes in proptest::collection::vec(
            (1u64..50_000_000, 0u64..200, 1u64..100, kinds()), 1..12,
        ),
    ) {
        let limit = Limit::Packets(1_000_000);
        let queue = QueueConfig::Fifo(FifoConfig { limit, drop_head: false });
        let mut link = Link::new(LinkConfig { queue, ..config() }, 1).unwrap();
        let (mut sent, mut got, mut managed) = (0u64, Vec::new(), 0);
        let mut now = Instant::ZERO;
        for (nanos, delay, mbps, queue) in changes {
            let until = now + Duration::from_nanos(nanos);
            while now < until {
                let _ = link.enqueue(Packet::new(vec![0; LEN], now, sent), now);
                sent += 1;
                now += Duration::from_micros(300);
                while let Some(at) = link.next_deadline().filter(|at| *at <= now) {
                    got.extend(link.dequeue(at).map(|packet| packet.number));
                }
            }
            let held = link.held();
            link.change(
                LinkConfig {
                    rate: Some(Bitrate::from_mbps(mbps)),
                    delay: Delay::constant(Duration::from_millis(delay)),
                    queue,
                    ..LinkConfig::default()
                },
                now,
            )
            .unwrap();
            prop_assert_eq!(link.held(), held, "the change itself takes nothing away");
        }
        while let Some(at) = link.next_deadline() {
            got.extend(link.dequeue(at).map(|packet| packet.number));
        }
        managed += link.stats().count(Cause::Codel);
        got.sort_unstable();
        got.dedup();
        let all = got.len() as u64 + managed;
        prop_assert_eq!(all, sent, "each once, but what CoDel meant to drop");
    }
}
