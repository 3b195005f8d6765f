//! Nanoseconds per packet through a link.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sheaf_emulator::{
    Chance, Delay, Distribution, FourState, Link, LinkConfig, Loss, Packet, Reorder, Slot, SlotWait,
};
use sheaf_stage::{Bitrate, Duration, Instant, Stage};

/// Packets per round.
const PACKETS: u64 = 1000;

/// Sends packets through the link at a little less than its rate, with about 250 under way.
fn run(link: &mut Link, clock: &mut u64, spare: &mut Vec<Vec<u8>>) {
    for _ in 0..PACKETS {
        *clock += 1;
        let now = Instant::from_micros(*clock * 4);
        let mut bytes = spare.pop().unwrap_or_default();
        bytes.resize(64, 0);
        link.enqueue(Packet::new(bytes, now, *clock), now).expect("there is room");
        while let Some(packet) = link.dequeue(now) {
            spare.push(packet.bytes);
        }
    }
}

fn link(c: &mut Criterion) {
    let mut group = c.benchmark_group("link");
    group.throughput(Throughput::Elements(PACKETS));
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    let plain = LinkConfig {
        rate: Some(Bitrate::from_mbps(130)),
        delay: Delay::constant(Duration::from_millis(1)),
        ..LinkConfig::default()
    };
    let chance = Chance { probability: 0.01, correlation: 0.25 };
    let all = LinkConfig {
        delay: Delay {
            jitter: Duration::from_micros(200),
            correlation: 0.25,
            distribution: Distribution::normal(),
            ..plain.delay.clone()
        },
        loss: Loss::State(FourState { p31: 0.3, ..FourState::new(0.01) }),
        duplicate: chance,
        corrupt: chance,
        reorder: Some(Reorder { chance, gap: 2 }),
        slot: Some(Slot {
            wait: SlotWait::Between(Duration::from_micros(50), Duration::from_micros(80)),
            packets: 0,
            bytes: 0,
        }),
        ..plain.clone()
    };
    for (name, config) in [("rate and delay", plain), ("every impairment", all)] {
        let mut link = Link::new(config, 1).expect("a right configuration");
        let (mut clock, mut spare) = (0, Vec::new());
        group.bench_function(name, |b| b.iter(|| run(&mut link, &mut clock, &mut spare)));
    }
    group.finish();
}

criterion_group!(benches, link);
criterion_main!(benches);
