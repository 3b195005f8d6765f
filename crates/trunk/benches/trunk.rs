//! The cost of a packet through the sender and through the resequencer, over one and three links.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sheaf_stage::{Duration, Instant, Stage};
use sheaf_trunk::{
    Arrival, DeliveryMode, Endpoint, EndpointConfig, Fill, Flow, LinkConfig, LinkId, ReorderConfig,
    Resequencer, Transmit,
};
use sheaf_wire::trunk::{Packing, Predecessor};

const PACKETS: u64 = 1_000;

/// Two ends that know each other.
fn pair(links: usize) -> [Endpoint; 2] {
    let mut ends = [1, 2].map(|session| {
        let mut end = Endpoint::new(EndpointConfig::default(), session).expect("the defaults work");
        for _ in 0..links {
            end.add_link(LinkConfig::default()).expect("few links");
        }
        end
    });
    let mut frame = Vec::new();
    for _ in 0..4 {
        for from in 0..2 {
            while let Some(Transmit { link, .. }) =
                ends[from].poll_transmit(Instant::ZERO, &mut frame)
            {
                ends[1 - from].handle_frame(link, None, &frame, Instant::ZERO);
            }
        }
    }
    for link in 0..links {
        // A carrier that is never full: the bench is not about pacing.
        let fill = Fill { waiting: 0, limit: u64::MAX / 200 };
        ends[0].set_link_queue(LinkId(link as u8), Some(fill));
    }
    ends
}

fn through_both_ends(c: &mut Criterion) {
    let mut group = c.benchmark_group("packet");
    group.throughput(Throughput::Elements(PACKETS));
    group.measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    let packet = sheaf_wire::ip::example_udp(&[0; 1_400]);
    for links in [1, 3] {
        let [mut a, mut b] = pair(links);
        let (mut frame, mut now) = (Vec::new(), Instant::ZERO);
        group.bench_function(BenchmarkId::new("sent", links), |bench| {
            bench.iter(|| {
                for _ in 0..PACKETS {
                    now += Duration::from_micros(1);
                    let _ = a.handle_packet(&packet, DeliveryMode::Order, now);
                    while let Some(Transmit { link, .. }) = a.poll_transmit(now, &mut frame) {
                        std::hint::black_box((link, &frame));
                    }
                }
                // The other end reports, so that no link counts as silent.
                while b.poll_transmit(now, &mut frame).is_some_and(|Transmit { link, .. }| {
                    a.handle_frame(link, None, &frame, now);
                    true
                }) {}
            });
        });
        let [mut a, mut b] = pair(links);
        group.bench_function(BenchmarkId::new("sent and received", links), |bench| {
            bench.iter(|| {
                for _ in 0..PACKETS {
                    now += Duration::from_micros(1);
                    let _ = a.handle_packet(&packet, DeliveryMode::Order, now);
                    while let Some(Transmit { link, .. }) = a.poll_transmit(now, &mut frame) {
                        b.handle_frame(link, None, &frame, now);
                        while let Some(packet) = b.poll_deliver(now) {
                            std::hint::black_box(packet);
                        }
                    }
                }
                while b.poll_transmit(now, &mut frame).is_some_and(|Transmit { link, .. }| {
                    a.handle_frame(link, None, &frame, now);
                    true
                }) {}
            });
        });
    }
    group.finish();
}

fn through_the_resequencer(c: &mut Criterion) {
    let mut group = c.benchmark_group("resequencer");
    group.throughput(Throughput::Elements(PACKETS));
    group.measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    for links in [1u8, 3] {
        let mut resequencer =
            Resequencer::new(ReorderConfig::default(), 0).expect("the defaults work");
        (0..links).for_each(|link| resequencer.link_up(link));
        let mut spare: Vec<Vec<u8>> = (0..64).map(|_| vec![0; 1_400]).collect();
        let mut first = 0u32;
        // Links one burst apart: with three, two of three packets wait.
        group.bench_function(BenchmarkId::new("one flow", links), |bench| {
            bench.iter(|| {
                for burst in 0..PACKETS as u32 / 30 {
                    for place in 0..30u32 {
                        let link = place / (30 / u32::from(links));
                        let at = place % (30 / u32::from(links)) * u32::from(links);
                        let seq =
                            first.wrapping_add(burst * 30 + at + (u32::from(links) - 1 - link));
                        let payload = spare.pop().unwrap_or_default();
                        let predecessor = Predecessor::Back(1);
                        let (link, flow) = (link as u8, Flow::of_hash(1));
                        let packing = Packing::One;
                        let arrival = Arrival {
                            link,
                            seq,
                            predecessor,
                            flow,
                            urgent: false,
                            hasty: false,
                            packing,
                            payload,
                        };
                        resequencer.enqueue(arrival, Instant::ZERO).expect("it is new");
                        while let Some(delivery) = resequencer.dequeue(Instant::ZERO) {
                            spare.push(delivery.payload);
                        }
                    }
                }
                first = first.wrapping_add(PACKETS as u32 / 30 * 30);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, through_both_ends, through_the_resequencer);
criterion_main!(benches);
