//! Nanoseconds per packet through the model: gathered, sent, split; to one next hop and to many.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sheaf_aggregate::{Aggregator, Config, Hop, HopId, Outbound, Splitter};
use sheaf_stage::{Duration, Instant, Stage};
use sheaf_wire::meta::Outer;

const PACKETS: u64 = 1024;

fn round(aggregator: &mut Aggregator, splitter: &mut Splitter, hops: u32, packet: &[u8]) -> u64 {
    let mut delivered = 0;
    for number in 0..PACKETS {
        let mut buffer = aggregator.buffer();
        buffer.extend_from_slice(packet);
        let hop = HopId(number as u32 % hops);
        aggregator
            .enqueue(Outbound { hop, mark: 0, packet: buffer }, Instant::ZERO)
            .expect("it is a packet");
        while let Some(mut frame) = aggregator.dequeue(Instant::ZERO) {
            // A lone packet is not a meta packet.
            let _ = splitter.split(&mut frame.bytes, |_| delivered += 1);
            aggregator.recycle(frame.bytes);
        }
    }
    delivered
}

fn aggregator(c: &mut Criterion) {
    let mut group = c.benchmark_group("aggregator");
    group.throughput(Throughput::Elements(PACKETS));
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    let packet = sheaf_wire::ip::example_udp(&[0; 32]);
    for hops in [1, 16, 128] {
        let config = Config { total_frames: 1024, ..Config::forced() };
        let mut aggregator = Aggregator::new(config).expect("a right configuration");
        for hop in 0..hops {
            let dst = [10, 0, 1, hop as u8].into();
            aggregator.add_hop(Hop::neighbour(Outer::V4 { src: [10, 0, 0, 1].into(), dst }));
        }
        let mut splitter = Splitter::accepting_any();
        group.bench_function(BenchmarkId::new("next hops", hops), |b| {
            b.iter(|| round(&mut aggregator, &mut splitter, hops, &packet));
        });
    }
    group.finish();
}

criterion_group!(benches, aggregator);
criterion_main!(benches);
