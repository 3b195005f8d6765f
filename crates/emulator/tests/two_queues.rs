//! What the two queues are for, on the example of the thesis, and changes in the middle of it.

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
        link.enqueue(Packet::new(vec![0; LEN], now, n), now);
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
fn the_same_limit_over_both_kinds_in_one_queue_carries_a_sixth() {
    // What NetEm does with `rate 1mbit delay 100ms limit 10`: one queue, in which packets that wait
    // and packets under way are counted together.
    let (mut held, mut sent, mut free_at) = (std::collections::VecDeque::new(), 0, Instant::ZERO);
    let end = Instant::from_millis(2000);
    for n in 0..3000u32 {
        let now = Instant::ZERO + EACH / 3 * n;
        while held.front().is_some_and(|leaves| *leaves <= now) {
            held.pop_front();
            sent += 1;
        }
        if held.len() < LIMIT as usize {
            free_at = free_at.max(now) + EACH;
            held.push_back(free_at + DELAY);
        }
        assert!(now < end);
    }
    // Ten packets in each 100 ms and a bit, of fifty that the rate would carry.
    let mbps = f64::from(sent) * LEN as f64 * 8.0 / 2e6;
    assert!((0.12..0.2).contains(&mbps), "{mbps}");
    // And with room for the whole product, up to that many wait.
    let mut link = Link::new(
        LinkConfig {
            queue: QueueConfig::Fifo(FifoConfig { limit: Limit::Packets(60), drop_head: false }),
            ..config()
        },
        1,
    )
    .unwrap();
    let mut longest = Duration::ZERO;
    for n in 0..3000u64 {
        let now = Instant::ZERO + EACH / 3 * n as u32;
        while let Some(at) = link.next_deadline().filter(|at| *at <= now) {
            let packet = link.dequeue(at).unwrap();
            longest = longest.max(packet.depart - packet.arrived);
        }
        link.enqueue(Packet::new(vec![0; LEN], now, n), now);
    }
    assert!(longest > DELAY + EACH * 55, "{longest:?}");
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
        changes in proptest::collection::vec((1u64..50_000_000, 0u64..200, 1u64..100, kinds()), 1..12),
    ) {
        let limit = Limit::Packets(1_000_000);
        let queue = QueueConfig::Fifo(FifoConfig { limit, drop_head: false });
        let mut link = Link::new(LinkConfig { queue, ..config() }, 1).unwrap();
        let (mut sent, mut got, mut managed) = (0u64, Vec::new(), 0);
        let mut now = Instant::ZERO;
        for (nanos, delay, mbps, queue) in changes {
            let until = now + Duration::from_nanos(nanos);
            while now < until {
                link.enqueue(Packet::new(vec![0; LEN], now, sent), now);
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
        prop_assert_eq!(got.len() as u64 + managed, sent, "each once, but what CoDel meant to drop");
    }
}
