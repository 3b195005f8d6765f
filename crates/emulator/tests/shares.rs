//! Weighted queues: how far from their shares they may be.

use proptest::prelude::*;
use sheaf_emulator::queue::weighted::WeightedConfig;
use sheaf_emulator::{Limit, Link, LinkConfig, Packet, QueueConfig};
use sheaf_stage::{Bitrate, Instant, Stage};

const LARGEST: usize = 1500;

/// A link of a byte a microsecond that shares by these weights.
fn link(queue: fn(WeightedConfig) -> QueueConfig, weights: &[u32]) -> Link {
    let mut config = WeightedConfig::new(weights.to_vec());
    config.limit = Limit::Packets(100_000);
    let rate = Some(Bitrate::from_mbps(8));
    Link::new(LinkConfig { rate, queue: queue(config), ..LinkConfig::default() }, 1).unwrap()
}

/// A packet of `len` bytes; one of none is 40 bytes that count for no share.
fn packet(queue: usize, len: usize, at: Instant) -> Packet {
    let bytes = if len == 0 { 40 } else { len };
    let mut packet = Packet::new(vec![0; bytes], at, 0);
    packet.prefix = (bytes - len) as u16;
    packet.queue = queue as u16;
    packet
}

/// One packet that left: its queue, its bytes, and which queues had packets when it was chosen.
struct Service {
    queue: usize,
    len: usize,
    busy: Vec<bool>,
}

/// Offers packets (microsecond, queue, bytes) and returns all services in their order.
fn serve(link: &mut Link, queues: usize, offers: &[(u64, usize, usize)]) -> Vec<Service> {
    let mut services: Vec<Service> = Vec::new();
    let (mut waiting, mut offers) = (vec![0i64; queues], offers.iter().peekable());
    let mut left = 0;
    // The first packet begins when it comes, each other one when the one before it leaves.
    let mut starts: Vec<Vec<bool>> = Vec::new();
    loop {
        let next = link.next_deadline();
        match offers.peek() {
            Some((us, queue, len)) if next.is_none_or(|at| Instant::from_micros(*us) < at) => {
                let now = Instant::from_micros(*us);
                link.enqueue(packet(*queue, *len, now), now).unwrap();
                waiting[*queue] += 1;
                if starts.len() == left {
                    starts.push(waiting.iter().map(|count| *count > 0).collect());
                }
                offers.next();
            }
            _ => {
                let Some(at) = next else { return services };
                let packet = link.dequeue(at).unwrap();
                let queue = usize::from(packet.queue);
                waiting[queue] -= 1;
                let busy = starts[left].clone();
                services.push(Service { queue, len: packet.size(), busy });
                left += 1;
                if waiting.iter().any(|count| *count > 0) {
                    starts.push(waiting.iter().map(|count| *count > 0).collect());
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn drr_gives_every_full_queue_its_quantum_a_round_within_one_packet(
        weights in proptest::collection::vec(1u32..6, 2..6),
        lens in proptest::collection::vec(40usize..=LARGEST, 100),
    ) {
        let queues = weights.len();
        let mut link = link(QueueConfig::Drr, &weights);
        // The first begins at once; the others wait together, more than ten rounds of each.
        let mut offers = vec![(0, 0, 0)];
        for (queue, weight) in weights.iter().enumerate() {
            let mut bytes = 0;
            for len in lens.iter().cycle() {
                offers.push((1, queue, *len));
                bytes += len;
                if bytes > 12 * 1514 * *weight as usize {
                    break;
                }
            }
        }
        let services = serve(&mut link, queues, &offers);
        // Shreedhar and Varghese, lemma 2: after k turns a queue that was never empty has sent
        // k · quantum · weight, less than one packet short, and never more.
        let (mut sent, mut turns, mut last) = (vec![0; queues], vec![0; queues], usize::MAX);
        for service in services[1..].iter().take_while(|service| service.busy.iter().all(|b| *b)) {
            let queue = service.queue;
            if queue != last && last != usize::MAX {
                let due = turns[last] * 1514 * weights[last] as usize;
                prop_assert!(sent[last] <= due && due - sent[last] < LARGEST, "queue {}", last);
            }
            turns[queue] += usize::from(queue != last);
            sent[queue] += service.len;
            last = queue;
        }
        prop_assert!(turns.iter().sum::<usize>() > 5 * queues);
    }

    #[test]
    fn wf2q_keeps_each_full_queue_within_one_packet_of_its_fluid_share(
        weights in proptest::collection::vec(1u32..20, 2..8),
        lens in proptest::collection::vec(40usize..=LARGEST, 64),
    ) {
        let queues = weights.len();
        let all: u32 = weights.iter().sum();
        let mut link = link(QueueConfig::Wf2q, &weights);
        let mut offers = vec![(0, 0, 0)];
        for queue in 0..queues {
            offers.extend((0..64).map(|n| (1, queue, lens[(n * (queue + 3)) % 64])));
        }
        let services = serve(&mut link, queues, &offers);
        let (mut sent, mut total) = (vec![0.0; queues], 0.0);
        for service in services[1..].iter().take_while(|service| service.busy.iter().all(|b| *b)) {
            sent[service.queue] += service.len as f64;
            total += service.len as f64;
            for (queue, weight) in weights.iter().enumerate() {
                let share = f64::from(*weight) / f64::from(all);
                let ahead = sent[queue] - share * total;
                // Bennett and Zhang, theorem 3: never a packet ahead of the fluid server, nor more
                // than the largest packet behind it.
                prop_assert!(ahead <= (1.0 - share) * LARGEST as f64 + 0.01, "{} ahead", ahead);
                prop_assert!(ahead >= -(LARGEST as f64) - 0.01, "{} behind", ahead);
            }
        }
    }

    #[test]
    fn wf2q_is_within_a_packet_of_the_worst_case_fair_index_of_the_paper_whoever_comes_and_goes(
        weights in proptest::collection::vec(1u32..20, 2..6),
        offers in proptest::collection::vec((0u64..4000, 0usize..6, 40usize..=LARGEST), 1..150),
    ) {
        let queues = weights.len();
        let mut now = 0;
        let offers: Vec<_> = offers
            .iter()
            .map(|(gap, queue, len)| {
                now += gap / 4;
                (now, queue % queues, *len)
            })
            .collect();
        let all: u32 = weights.iter().sum();
        let services = serve(&mut link(QueueConfig::Wf2q, &weights), queues, &offers);
        prop_assert_eq!(services.len(), offers.len());
        for (queue, weight) in weights.iter().enumerate() {
            let share = f64::from(*weight) / f64::from(all);
            let own = offers.iter().filter(|(_, of, _)| *of == queue).map(|(_, _, len)| *len).max();
            let own = own.unwrap_or(0) as f64;
            // Bennett and Zhang, definition 2 and theorem 4: a packet that finds Q bytes of its
            // queue with it is gone after Q / share bytes of all queues and no more than the index
            // on top, which is L_i + (L_max - L_i) · share in bytes of its own queue. Virtual time
            // moves by whole packets, when one is chosen: who comes while it is sent is behind all
            // of it.
            let index = own + (LARGEST as f64 - own) * share + LARGEST as f64 * share;
            for first in 0..services.len() {
                let (mut sent, mut total) = (0.0, 0.0);
                for service in services[first..].iter().take_while(|service| service.busy[queue]) {
                    total += service.len as f64;
                    sent += if service.queue == queue { service.len as f64 } else { 0.0 };
                    let behind = share * total - sent;
                    let gone = service.queue == queue;
                    prop_assert!(!gone || behind <= index + 0.01, "queue {}: {}", queue, behind);
                }
            }
        }
    }
}

#[test]
fn drr_has_no_such_bound_which_is_what_wf2q_is_for() {
    // Twenty queues, one of half the weight: DRR lets it wait for all the others' turns.
    let mut weights = vec![1; 20];
    weights[0] = 19;
    let late = |queue: fn(WeightedConfig) -> QueueConfig| {
        let mut offers: Vec<_> = (0..20).flat_map(|queue| [(1, queue, LARGEST); 40]).collect();
        offers.insert(0, (0, 1, 0));
        let services = serve(&mut link(queue, &weights), 20, &offers);
        let (mut behind, mut most) = (0.0f64, 0.0f64);
        for service in services[1..].iter().take_while(|service| service.busy[0]) {
            let own = if service.queue == 0 { LARGEST as f64 } else { 0.0 };
            behind = (behind + service.len as f64 / 2.0 - own).max(0.0);
            most = most.max(behind);
        }
        most / LARGEST as f64
    };
    assert!(late(QueueConfig::Wf2q) <= 1.0, "{} packets", late(QueueConfig::Wf2q));
    assert!(late(QueueConfig::Drr) > 5.0, "{} packets", late(QueueConfig::Drr));
}

#[test]
fn queues_are_chosen_by_dscp_where_the_link_says_so() {
    let mut config = WeightedConfig::new(vec![1, 3]);
    let mut by_dscp = [0; 64];
    by_dscp[46] = 1;
    config.by_dscp = Some(by_dscp);
    let rate = Some(Bitrate::from_mbps(8));
    let queue = QueueConfig::Wf2q(config);
    let mut link = Link::new(LinkConfig { rate, queue, ..LinkConfig::default() }, 1).unwrap();
    for _ in 0..200 {
        for tos in [0, 46 << 2] {
            let mut bytes = sheaf_wire::ip::example_udp(&[0; 472]);
            bytes[1] = tos;
            link.enqueue(Packet::new(bytes, Instant::ZERO, 0), Instant::ZERO).unwrap();
        }
    }
    let mut voice = 0;
    for _ in 0..100 {
        let at = link.next_deadline().unwrap();
        voice += u64::from(link.dequeue(at).unwrap().bytes[1] == 46 << 2);
    }
    assert!((74..=76).contains(&voice), "{voice} of 100");
}

#[test]
fn what_stands_before_a_packet_counts_for_no_share() {
    // 40 bytes with 1000 in front of them, against 1040 without: 26 packets for one.
    let mut link = link(QueueConfig::Wf2q, &[1, 1]);
    for _ in 0..300 {
        let mut small = packet(0, 1040, Instant::ZERO);
        small.prefix = 1000;
        link.enqueue(small, Instant::ZERO).unwrap();
        link.enqueue(packet(1, 1040, Instant::ZERO), Instant::ZERO).unwrap();
    }
    let mut small = 0;
    for _ in 0..270 {
        let at = link.next_deadline().unwrap();
        small += u64::from(link.dequeue(at).unwrap().queue == 0);
    }
    assert!((259..=261).contains(&small), "{small} of 270");
}
