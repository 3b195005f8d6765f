//! Packets a second over a veth pair with and without aggregation, taking turns in one run, and
//! what the programs cost by the kernel's own statistics. Needs root.

#[path = "../tests/pair/mod.rs"]
mod pair;

use aya::programs::loaded_programs;
use aya::sys::{Stats, enable_stats};
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, sendmmsg, setsockopt, sockopt};
use pair::{A, B, COOKIE, MAC_A, MAC_B, Pair};
use sheaf_aggregate::Config;
use sheaf_bpf::Controller;
use sheaf_bpf::layout::Hop;
use sheaf_netio::poller::Poller;
use sheaf_netio::{clock, ip};
use sheaf_stage::{Duration, Instant};
use sheaf_wire::meta::Outer;
use std::io::IoSlice;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

const ROUND: Duration = Duration::from_millis(1500);
const ROUNDS: usize = 5;
/// With headers 60 bytes, a voice packet of G.729A.
const PAYLOAD: [u8; 32] = [7; 32];
const BATCH: usize = 32;

fn main() {
    let _statistics = enable_stats(Stats::RunTime).expect("the kernel keeps run statistics");
    println!("packets of 60 bytes over veth, sender on CPU 0, receiver on CPU 1");
    for (offload, name) in [("off", "checksums by the sender"), ("on", "checksum offload")] {
        compare(offload, name);
    }
}

fn compare(offload: &str, name: &str) {
    let pair = Pair::new();
    let mut ethtool = std::process::Command::new("ethtool");
    ethtool.args(["-K", "eth0", "tx", offload]);
    pair.a.enter(&mut ethtool);
    ethtool.output().expect("ethtool is installed");
    let mut split = pair.split();
    split.add_peer(A.into()).expect("the map has room");
    let (mut plain, mut bundled) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(round(&pair, None));
        bundled.push(round(&pair, Some(Config::forced())));
    }
    let before = ("sheaf_merge", "sheaf_split").map_both(run_time);
    let inner = split.counters().expect("the map is there")["packets"];
    let (sent, received, frames) = steady(&pair);
    let after = ("sheaf_merge", "sheaf_split").map_both(run_time);
    let split_inner = split.counters().expect("the map is there")["packets"] - inner;
    let (plain, bundled) = (median(&mut plain), median(&mut bundled));
    println!("{name}:");
    println!("  without {plain:9.0} packets/s received");
    println!("  with    {bundled:9.0} packets/s received, ratio {:.2}", bundled / plain);
    println!("  {:.1} packets a frame, {:.2} % lost", sent / frames, (1.0 - received / sent) * 1e2);
    println!("  merge {:4.0} ns a packet", (after.0 - before.0) / sent);
    println!("  split {:4.0} ns a packet", (after.1 - before.1) / split_inner as f64);
}

trait MapBoth<T> {
    fn map_both<U>(self, f: impl Fn(T) -> U) -> (U, U);
}

impl<T> MapBoth<T> for (T, T) {
    fn map_both<U>(self, f: impl Fn(T) -> U) -> (U, U) {
        (f(self.0), f(self.1))
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds that programs of this name have run.
fn run_time(name: &str) -> f64 {
    let ours = loaded_programs().flatten().filter(|info| info.name_as_str() == Some(name));
    ours.map(|info| info.run_time().as_nanos() as f64).sum()
}

/// Packets a second that arrive.
fn round(pair: &Pair, config: Option<Config>) -> f64 {
    let (_, received, _) = measure(pair, config);
    received / ROUND.as_secs_f64()
}

/// Packets sent, packets received, frames, with aggregation.
fn steady(pair: &Pair) -> (f64, f64, f64) {
    measure(pair, Some(Config::forced()))
}

fn measure(pair: &Pair, config: Option<Config>) -> (f64, f64, f64) {
    let done = AtomicBool::new(false);
    let (ready, is_ready) = std::sync::mpsc::channel();
    let (from, to) = pair.sockets();
    setsockopt(&to, sockopt::RcvBufForce, &(32 << 20)).expect("root may");
    std::thread::scope(|scope| {
        let done = &done;
        let program = config.map(|config| scope.spawn(move || keep_time(pair, &config, ready, done)));
        if program.is_some() {
            is_ready.recv().expect("the program is attached");
        }
        let receiver = scope.spawn(|| receive(&to, done));
        let sent = send(&from);
        // What is held leaves within its timeout, long before this.
        std::thread::sleep(Duration::from_millis(200));
        done.store(true, Ordering::Relaxed);
        let received = receiver.join().expect("no panic inside");
        let frames = program.map_or(sent, |program| program.join().expect("no panic inside"));
        (sent, received, frames)
    })
}

/// Keeps time for the program on A until `done`; answers the frames it sent.
fn keep_time(
    pair: &Pair,
    config: &Config,
    ready: std::sync::mpsc::Sender<()>,
    done: &AtomicBool,
) -> f64 {
    let work = || {
        let mut controller = Controller::attach("eth0", ip::index("eth0")?, MAC_A, config, COOKIE)
            .map_err(std::io::Error::other)?;
        let hop = Hop::new(0, Outer::V4 { src: A, dst: B }, 500, 1500);
        controller.merge.set_hop(MAC_B, hop).map_err(std::io::Error::other)?;
        ready.send(()).map_err(std::io::Error::other)?;
        let mut poller = Poller::default();
        poller.add(&controller.merge);
        while !done.load(Ordering::Relaxed) {
            let until = controller.run(clock::now()).map_err(std::io::Error::other)?;
            let wait = until.unwrap_or(Instant::MAX).saturating_since(clock::now());
            poller.wait(Some(wait.min(Duration::from_millis(20))))?;
        }
        let stats = controller.merge.stats().map_err(std::io::Error::other)?;
        Ok(stats.iter().map(|(_, s)| (s.meta_packets + s.unaggregated_packets) as f64).sum())
    };
    pair.a.run(work).expect("the program runs")
}

fn pin(cpu: usize) {
    let mut cpus = nix::sched::CpuSet::new();
    let set = cpus.set(cpu);
    let pinned = set.and_then(|()| nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &cpus));
    if pinned.is_err() {
        println!("  (no CPU {cpu}: unpinned)");
    }
}

/// Sends for [`ROUND`]; answers how many packets.
fn send(socket: &UdpSocket) -> f64 {
    pin(0);
    let parts: Vec<_> = (0..BATCH).map(|_| [IoSlice::new(&PAYLOAD)]).collect();
    let mut headers = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
    let to: [Option<SockaddrIn>; BATCH] = [None; BATCH];
    let (start, mut sent) = (clock::now(), 0);
    while clock::now() - start < ROUND {
        let flags = MsgFlags::empty();
        let result = sendmmsg(socket.as_raw_fd(), &mut headers, &parts, to, [], flags);
        sent += result.map_or(0, Iterator::count);
    }
    sent as f64
}

fn receive(socket: &UdpSocket, done: &AtomicBool) -> f64 {
    pin(1);
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("not zero");
    let (mut buffer, mut received) = ([0; 64], 0_u64);
    while !done.load(Ordering::Relaxed) {
        while socket.recv(&mut buffer).is_ok() {
            received += 1;
        }
    }
    received as f64
}
