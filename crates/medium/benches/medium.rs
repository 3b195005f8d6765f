//! Nanoseconds per frame on the air, with few and with many saturated stations.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sheaf_medium::{Config, Frame, Medium, Phy, RadioId, To};
use sheaf_stage::{Bitrate, Duration, Instant, Stage};

const FRAMES: u64 = 1000;

fn saturated(c: &mut Criterion) {
    let mut group = c.benchmark_group("medium");
    group.throughput(Throughput::Elements(FRAMES));
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    for stations in [2_u32, 10, 40] {
        let phy = Phy::Dsss { short_preamble: false };
        let config = Config::new(phy, stations as usize + 1, Bitrate::from_mbps(11));
        let mut medium = Medium::new(config, 1).expect("a right configuration");
        let sink = To::Radio(RadioId(stations));
        let send = |medium: &mut Medium<()>, from, now| {
            medium
                .enqueue(Frame { from, to: sink, bytes: 1500, payload: () }, now)
                .expect("there is room");
        };
        for station in 0..stations {
            (0..3).for_each(|_| send(&mut medium, RadioId(station), Instant::ZERO));
        }
        group.bench_function(BenchmarkId::new("stations", stations), |b| {
            b.iter(|| {
                let mut left = FRAMES;
                while left > 0 {
                    let now = medium.next_deadline().expect("stations have frames");
                    while let Some(done) = medium.dequeue(now) {
                        send(&mut medium, done.frame.from, now);
                        left = left.saturating_sub(1);
                    }
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, saturated);
criterion_main!(benches);
