//! In steady state no packet costs an allocation.

use sheaf_emulator::queue::codel::CodelConfig;
use sheaf_emulator::queue::dualpi2::DualPi2Config;
use sheaf_emulator::queue::fq_codel::FqCodelConfig;
use sheaf_emulator::queue::pie::PieConfig;
use sheaf_emulator::queue::weighted::WeightedConfig;
use sheaf_emulator::{
    Action, Chance, ClassConfig, Delay, Distribution, Link, LinkConfig, Packet, PipeConfig, Pipes,
    QueueConfig, Reorder, Rule, Slot, SlotWait, Target,
};
use sheaf_stage::{Bitrate, Duration, Instant, Stage};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

/// The system's allocator, counting.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Sends `packets` packets a little faster than the rate, and gives their buffers back.
fn run(link: &mut Link, spare: &mut Vec<Vec<u8>>, first: u64, packets: u64) {
    for number in first..first + packets {
        let now = Instant::from_micros(number * 95);
        let mut bytes = spare.pop().unwrap_or_else(|| link.buffer());
        bytes.clear();
        bytes.resize(1000, 0);
        // An IP header with ECT(0) or ECT(1) and one of 16 source addresses.
        (bytes[0], bytes[1], bytes[2], bytes[3]) = (0x45, 1 + (number % 2) as u8, 3, 232);
        bytes[15] = (number % 16) as u8;
        let mut packet = Packet::new(bytes, now, number);
        packet.queue = (number % 3) as u16;
        let _ = link.enqueue(packet, now);
        while let Some(packet) = link.dequeue(now) {
            if spare.len() < 10 {
                spare.push(packet.bytes);
            } else {
                link.recycle(packet.bytes);
            }
        }
    }
}

// One test: the counter is the whole program's.
#[test]
fn no_kind_of_link_allocates_for_a_packet() {
    let chance = Chance { probability: 0.01, correlation: 0.3 };
    let weighted = || WeightedConfig::new(vec![1, 2, 3]);
    let queues = [
        QueueConfig::default(),
        QueueConfig::Codel(CodelConfig::default()),
        QueueConfig::Pie(PieConfig::default()),
        QueueConfig::FqCodel(FqCodelConfig { limit: 300, ..FqCodelConfig::default() }),
        QueueConfig::DualPi2(DualPi2Config::default()),
        QueueConfig::Drr(weighted()),
        QueueConfig::Wf2q(weighted()),
    ];
    for queue in queues {
        let wait = SlotWait::Between(Duration::from_micros(50), Duration::from_micros(500));
        let config = LinkConfig {
            rate: Some(Bitrate::from_mbps(80)),
            queue: queue.clone(),
            delay: Delay {
                time: Duration::from_millis(5),
                jitter: Duration::from_millis(1),
                correlation: 0.3,
                distribution: Distribution::normal(),
            },
            duplicate: chance,
            corrupt: chance,
            reorder: Some(Reorder { chance, gap: 5 }),
            slot: Some(Slot { wait, packets: 0, bytes: 0 }),
            ..LinkConfig::default()
        };
        let mut link = Link::new(config, 1).unwrap();
        let mut spare = Vec::with_capacity(64);
        run(&mut link, &mut spare, 0, 100_000);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        run(&mut link, &mut spare, 100_000, 20_000);
        let after = ALLOCATIONS.load(Ordering::Relaxed);
        // Rings double a last time, and the pool of buffers may run short for a moment.
        assert!(after - before < 100, "{queue:?}: {} for 20000 packets", after - before);
    }
    no_class_allocates_for_a_packet();
}

/// The same for a tree of classes, of which one comes and goes and two borrow all the time.
fn no_class_allocates_for_a_packet() {
    let mut pipes = Pipes::new(0, 1);
    let delay = Delay::constant(Duration::from_millis(5));
    let link = LinkConfig { delay, ..LinkConfig::default() };
    let mut add = |class| pipes.add(PipeConfig::class(class, link.clone())).unwrap();
    let mbps = Bitrate::from_mbps;
    let root = add(ClassConfig::root(mbps(80)));
    let inner = add(ClassConfig::below(root, mbps(40), mbps(80)));
    let leaves = [(root, 10), (inner, 5), (inner, 5)];
    let leaves = leaves.map(|(above, rate)| add(ClassConfig::below(above, mbps(rate), mbps(80))));
    let to = |pipe| Action::Pipes([Target { pipe, queue: None }].into());
    let rules = (0..).zip(leaves).map(|(number, leaf)| Rule {
        interface: Some(number),
        action: to(leaf),
        ..Rule::default()
    });
    pipes.set_rules(rules.collect()).unwrap();
    let mut spare: Vec<Vec<u8>> = Vec::with_capacity(8000);
    let mut run = |first: u64, packets: u64| {
        for number in first..first + packets {
            let now = Instant::from_micros(number * 105);
            let mut bytes = spare.pop().unwrap_or_default();
            bytes.clear();
            bytes.resize(1000, 0);
            let mut packet = Packet::new(bytes, now, number);
            packet.interface = if number % 50 == 0 { 0 } else { 1 + (number % 2) as u16 };
            let _ = pipes.enqueue(packet, now);
            while let Some(packet) = pipes.dequeue(now) {
                spare.push(packet.bytes);
            }
        }
    };
    run(0, 100_000);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    run(100_000, 20_000);
    let after = ALLOCATIONS.load(Ordering::Relaxed);
    assert!(after - before < 20, "classes: {} for 20000 packets", after - before);
}
