//! Memory of links and flows while they hold nothing.

use sheaf_emulator::queue::fq_codel::FqCodelConfig;
use sheaf_emulator::{
    Action, Delay, Link, LinkConfig, Mask, Packet, PipeConfig, Pipes, QueueConfig, Rule, Target,
};
use sheaf_stage::{Bitrate, Duration, Instant, Stage};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, adding up what is taken.
struct Adding;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Adding {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Adding = Adding;

/// Flows of as many sources, as somebody forges them.
const FLOWS: u32 = 7700;
/// Most bytes of a flow with a link of its own.
const FLOW: usize = 4096;

fn from(source: u32, number: u64) -> Packet {
    let mut bytes = sheaf_wire::ip::example_udp(&[0; 72]);
    bytes[12..16].copy_from_slice(&source.to_be_bytes());
    Packet::new(bytes, Instant::from_millis(number), number)
}

/// Bytes that remain taken behind `run`, and what it returns.
fn taken<T>(run: impl FnOnce() -> T) -> (usize, T) {
    let before = TAKEN.load(Ordering::Relaxed);
    let result = run();
    (TAKEN.load(Ordering::Relaxed) - before, result)
}

// One test: the sum is the whole program's.
#[test]
fn a_flow_and_an_idle_link_take_little() {
    let queue = QueueConfig::FqCodel(FqCodelConfig::default());
    let (rate, delay) = (Some(Bitrate::from_mbps(10)), Delay::constant(Duration::from_millis(5)));
    let link = LinkConfig { rate, delay, queue, ..LinkConfig::default() };
    let (idle, _link) = taken(|| Link::new(link.clone(), 1).unwrap());
    assert!(idle < FLOW, "an idle link takes {idle} bytes");

    let max_flows = FLOWS;
    let flows = PipeConfig { max_flows, ..PipeConfig::per_flow(link, Mask::FLOW) };
    let mut pipes = Pipes::new(0, 1);
    pipes.add(flows).unwrap();
    let target = Target { pipe: 0, queue: None };
    let action = Action::Pipes([target].into());
    pipes.set_rules(vec![Rule { action, ..Rule::default() }]).unwrap();
    let (all, ()) = taken(|| {
        for number in 0..FLOWS {
            let packet = from(number, number.into());
            let now = packet.arrived;
            pipes.enqueue(packet, now).unwrap();
            while pipes.dequeue(now).is_some() {}
        }
        let end = Instant::from_millis(u64::from(FLOWS) + 100);
        while pipes.dequeue(end).is_some() {}
    });
    assert_eq!((pipes.held(), pipes.stats(0).unwrap().flows), (0, FLOWS));
    let each = all / FLOWS as usize;
    eprintln!("idle {idle} flow {each}");
    assert!(each < FLOW, "a flow takes {each} bytes");
}
