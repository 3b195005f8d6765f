//! Packets a second over a veth pair with and without aggregation, taking turns in one run, and
//! what the programs cost by the kernel's own statistics. Needs root.

#[path = "empty/mod.rs"]
mod empty;
#[path = "../tests/pair/mod.rs"]
mod pair;

use aya::programs::loaded_programs;
use aya::sys::{Stats, enable_stats};
use empty::Empty;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, sendmmsg, setsockopt, sockopt};
use pair::{A, B, COOKIE, MAC_A, MAC_B, Pair};
use sheaf_aggregate::{Config, Format, Senders, Splitter, Threshold};
use sheaf_bpf::layout::Hop;
use sheaf_bpf::{Controller, Split};
use sheaf_netio::packet::PacketSocket;
use sheaf_netio::poller::Poller;
use sheaf_netio::{clock, ip, scheduling, timer};
use sheaf_stage::{Duration, Instant};
use sheaf_wire::compress::feedback::Item;
use sheaf_wire::meta::Outer;
use std::io::IoSlice;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

const ROUND: Duration = Duration::from_millis(500);
/// Time of a flood before packets are counted: the first probes of the device have passed then.
const WARM: Duration = Duration::from_millis(200);
/// Rounds of each kind, in turns: enough for a median with its quartiles.
const ROUNDS: usize = 11;
/// With headers 60 bytes, a voice packet of G.729A.
const PAYLOAD: [u8; 32] = [7; 32];
const BATCH: usize = 32;

fn main() {
    println!("packets of 60 bytes over veth, sender on CPU 0, receiver on CPU 1");
    let asked = |part| std::env::args().any(|word| word == part);
    if asked("flood") {
        return flood();
    }
    if asked("formats") {
        return formats();
    }
    for (offload, name) in [("off", "checksums by the sender"), ("on", "checksum offload")] {
        compare(offload, name);
    }
    flood();
    formats();
}

/// The program on the hook while a flood passes.
#[derive(Clone, Copy)]
enum Hook {
    Nothing,
    Empty,
    Busy,
}

/// A flood from two processors over a device that is never busy: what arrives under `busy` and with
/// an empty program, beside what arrives without one. All processors are full, so what arrives is
/// what a packet costs.
fn flood() {
    let pair = Pair::new();
    let mut tc = std::process::Command::new("tc");
    tc.args("qdisc add dev eth0 root pfifo limit 1000".split(' '));
    pair.a.enter(&mut tc);
    assert!(tc.status().expect("tc is installed").success(), "root may");
    let _split = pair.split(&Senders::far_ends([A.into()]));
    let ways = [Hook::Nothing, Hook::Empty, Hook::Busy];
    let mut ratios = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        let [plain, empty, busy] = ways.map(|hook| flood_round(&pair, hook));
        let all = [busy / plain, empty / plain, busy / empty];
        ratios.iter_mut().zip(all).for_each(|(ratios, ratio)| ratios.push(ratio));
    }
    println!("a flood through pfifo, two senders:");
    let names = ["busy of plain", "an empty program of plain", "busy of an empty program"];
    for (name, ratios) in names.into_iter().zip(ratios) {
        let [low, median, high] = quartiles(ratios);
        println!("  {name}: {median:.2} [{low:.2}, {high:.2}]");
    }
}

/// Datagrams that reach UDP at B in one round of a flood, from [`WARM`] on.
fn flood_round(pair: &Pair, hook: Hook) -> f64 {
    let done = AtomicBool::new(false);
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let done = &done;
        let _empty = match hook {
            Hook::Nothing => None,
            Hook::Empty => Some(pair.a.run(|| Ok(Empty::attach("eth0"))).expect("no error inside")),
            Hook::Busy => {
                scope.spawn(move || keep_time(pair, &Config::default(), ready, done));
                is_ready.recv().expect("the program is attached");
                None
            }
        };
        let (first, to) = pair.sockets();
        let second = pair.a.run(|| UdpSocket::bind((A, 0))).expect("there are ports");
        second.connect((B, 5004)).expect("B is there");
        for (from, cpu) in [(first, 0), (second, 1)] {
            scope.spawn(move || send(&from, cpu, || !done.load(Ordering::Relaxed)));
        }
        wait(WARM);
        let before = arrived(pair);
        wait(ROUND);
        let counted = arrived(pair) - before;
        done.store(true, Ordering::Relaxed);
        drop(to);
        counted
    })
}

/// The lower quartile, the median and the upper quartile of `values`.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[values.len() * quarter / 4])
}

/// Lets `time` pass.
fn wait(time: Duration) {
    let until = clock::now() + time;
    timer::wait(&mut Poller::default(), 0, until, Duration::ZERO).expect("a timer");
}

/// Datagrams that have reached UDP at B, whether anybody had room for them or not.
fn arrived(pair: &Pair) -> f64 {
    let text = pair.b.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"));
    let text = text.expect("the kernel has /proc");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let names = lines.next().expect("names").split(' ');
    let values = lines.next().expect("values").split(' ').map(str::parse::<f64>);
    let counted = ["InDatagrams", "NoPorts", "InErrors"];
    let all = names.zip(values).filter(|(name, _)| counted.contains(name));
    // Of what is in a socket, InDatagrams counts only what was read.
    all.map(|(_, value)| value.expect("a number")).sum()
}

/// Measures the merging program in each format, with voice packets of 60 bytes of one call, and in
/// turn with it an empty program, which costs as much as the statistics.
fn formats() {
    let all = [Format::Meta, Format::Frames, Format::Compressed];
    let mut costs = all.map(|_| Vec::new());
    let mut empty = Vec::new();
    for _ in 0..ROUNDS {
        empty.push(empty_cost());
        for (format, costs) in all.into_iter().zip(&mut costs) {
            costs.push(Call::new(format).cost());
        }
    }
    println!("voice packets, min 500:");
    let [low, median, high] = quartiles(empty);
    println!("  an empty program: {median:.0} [{low:.0}, {high:.0}] ns a packet, in all below");
    for (format, costs) in all.into_iter().zip(costs) {
        let [low, median, high] = quartiles(costs);
        println!("  {format:?}: merge {median:.0} [{low:.0}, {high:.0}] ns a packet");
    }
}

/// Cost of an empty program for a packet of a call, in ns.
fn empty_cost() -> f64 {
    let pair = Pair::new();
    let (from, _to) = pair.sockets();
    let empty = pair.a.run(|| Ok(Empty::attach("eth0"))).expect("no error inside");
    let _statistics = statistics();
    let (start, mut sequence) = (clock::now(), 0);
    while clock::now() - start < ROUND {
        send_batch(&from, &mut sequence);
    }
    let (time, runs) = empty.cost();
    time.as_nanos() as f64 / runs as f64
}

/// Sends the next packets of a call.
fn send_batch(from: &UdpSocket, sequence: &mut u16) {
    let datagrams: Vec<_> = (0..BATCH).map(|_| datagram(sequence)).collect();
    let parts: Vec<_> = datagrams.iter().map(|bytes| [IoSlice::new(bytes)]).collect();
    let mut headers = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
    let to: [Option<SockaddrIn>; BATCH] = [None; BATCH];
    sendmmsg(from.as_raw_fd(), &mut headers, &parts, to, [], MsgFlags::empty())
        .expect("B is there");
}

/// The next packet of G.729A, as RTP.
fn datagram(sequence: &mut u16) -> [u8; 32] {
    *sequence = sequence.wrapping_add(1);
    let mut bytes = PAYLOAD;
    bytes[..2].copy_from_slice(&[0x80, 18]);
    bytes[2..4].copy_from_slice(&sequence.to_be_bytes());
    bytes[4..8].copy_from_slice(&(160 * u32::from(*sequence)).to_be_bytes());
    bytes
}

/// A call from A to B in one format.
struct Call {
    _pair: Pair,
    from: UdpSocket,
    _to: UdpSocket,
    controller: Controller,
    sequence: u16,
}

impl Call {
    /// Of which the far end knows the context.
    fn new(format: Format) -> Call {
        let pair = Pair::new();
        let (from, to) = pair.sockets();
        let behind = pair.b.run(|| PacketSocket::open(ip::index("eth0")?)).expect("root may");
        let attach = || {
            let config = Config::forced();
            let ifindex = ip::index("eth0")?;
            let mut controller = Controller::attach("eth0", ifindex, MAC_A, &config, COOKIE)
                .map_err(std::io::Error::other)?;
            let hop = Hop::new(0, Outer::V4 { src: A, dst: B }, config.min.of(1500), 1500);
            let hop = hop.with_format(format);
            controller.merge.set_hop(MAC_B, hop).map_err(std::io::Error::other)?;
            Ok(controller)
        };
        let controller = pair.a.run(attach).expect("the program runs");
        let mut call = Call { _pair: pair, from, _to: to, controller, sequence: 0 };
        let (mut splitter, mut buffer) = (Splitter::accepting_any().with_frames(7), [0; 2048]);
        let mut known = format != Format::Compressed;
        while !known {
            call.send();
            while let Some(len) = behind.receive(&mut buffer).expect("the socket is open") {
                let split = splitter.split(&mut buffer[14..len], |_| {});
                if let Ok(sheaf_aggregate::Split::Delivered(feedback)) = split {
                    call.controller.merge.said(0, &feedback, clock::now()).expect("maps");
                    known |= matches!(feedback.items(), [Item::Known { .. }, ..]);
                }
            }
        }
        call
    }

    /// Sends a batch and lets what is due leave.
    fn send(&mut self) {
        send_batch(&self.from, &mut self.sequence);
        self.controller.run(clock::now()).expect("maps");
    }

    /// Nanoseconds a packet.
    fn cost(&mut self) -> f64 {
        let _statistics = statistics();
        let (start, before, mut sent) = (clock::now(), run_time("sheaf_merge"), 0);
        while clock::now() - start < ROUND {
            self.send();
            sent += BATCH;
        }
        (run_time("sheaf_merge") - before) / sent as f64
    }
}

/// The kernel's run statistics for as long as the value lives. They cost about 65 ns a run, so
/// packets a second are counted without.
fn statistics() -> OwnedFd {
    enable_stats(Stats::RunTime).expect("the kernel keeps run statistics")
}

fn compare(offload: &str, name: &str) {
    let pair = Pair::new();
    let mut ethtool = std::process::Command::new("ethtool");
    ethtool.args(["-K", "eth0", "tx", offload]);
    pair.a.enter(&mut ethtool);
    ethtool.output().expect("ethtool is installed");
    // The hop limit is the merging program's; from a far end any will do.
    let split = pair.split(&Senders::far_ends([A.into()]));
    let full = Config { min: Threshold::Percent(90), ..Config::forced() };
    let cases = [("min 500", Config::forced()), ("min 90%", full)];
    let mut plain = Vec::new();
    let mut bundled = cases.each_ref().map(|_| Vec::new());
    for _ in 0..ROUNDS {
        plain.push(measure(&pair, &split, None));
        for ((_, config), rounds) in cases.iter().zip(&mut bundled) {
            rounds.push(measure(&pair, &split, Some(config)));
        }
    }
    println!("{name}:");
    println!("  not gathered {:9.0} packets/s arrive", median(&plain, |round| round.received));
    let _statistics = statistics();
    for ((name, config), rounds) in cases.iter().zip(&bundled) {
        let cost = measure(&pair, &split, Some(config));
        let of = |value: fn(&Round) -> f64| median(rounds, value);
        let (received, lost) = (of(|r| r.received), of(|r| 1.0 - r.received / r.sent) * 1e2);
        // Each round with the plain one before it: the machine's pace drifts over a run.
        let pairs = rounds.iter().zip(&plain);
        let ratios = pairs.map(|(ours, plain)| ours.received / plain.received).collect();
        let [low, ratio, high] = quartiles(ratios);
        println!(
            "  {name}      {received:9.0}, ratio {ratio:.2} [{low:.2}, {high:.2}]; {:.1} a frame, \
             {lost:.1} % lost; merge {:.0} ns, split {:.0} ns a packet",
            of(|r| r.sent / r.frames),
            cost.merge,
            cost.split,
        );
    }
}

/// What one round shows: packets a second, packets a frame, ns a packet.
struct Round {
    sent: f64,
    received: f64,
    frames: f64,
    merge: f64,
    split: f64,
}

fn median(rounds: &[Round], value: impl Fn(&Round) -> f64) -> f64 {
    let mut values: Vec<_> = rounds.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds that programs of this name have run.
fn run_time(name: &str) -> f64 {
    let ours = loaded_programs().flatten().filter(|info| info.name_as_str() == Some(name));
    ours.map(|info| info.run_time().as_nanos() as f64).sum()
}

fn measure(pair: &Pair, split: &Split, config: Option<&Config>) -> Round {
    let done = AtomicBool::new(false);
    let (ready, is_ready) = std::sync::mpsc::channel();
    let (from, to) = pair.sockets();
    setsockopt(&to, sockopt::RcvBufForce, &(32 << 20)).expect("root may");
    let inner = || split.counters().expect("the map is there")["packets"];
    let before = (run_time("sheaf_split"), inner());
    std::thread::scope(|scope| {
        let done = &done;
        let program =
            config.map(|config| scope.spawn(move || keep_time(pair, config, ready, done)));
        if program.is_some() {
            is_ready.recv().expect("the program is attached");
        }
        let receiver = scope.spawn(|| receive(&to, done));
        let start = clock::now();
        let sent = send(&from, 0, || clock::now() - start < ROUND);
        done.store(true, Ordering::Relaxed);
        let received = receiver.join().expect("no panic inside");
        let (frames, merge) =
            program.map_or((sent, 0.0), |program| program.join().expect("no panic inside"));
        let split = run_time("sheaf_split") - before.0;
        Round {
            sent: sent / ROUND.as_secs_f64(),
            received: received / ROUND.as_secs_f64(),
            frames: frames / ROUND.as_secs_f64(),
            merge: merge / sent,
            split: split / (inner() - before.1) as f64,
        }
    })
}

/// Keeps time for the program on A until `done`; returns the frames it sent and the time that it
/// ran.
fn keep_time(
    pair: &Pair,
    config: &Config,
    ready: std::sync::mpsc::Sender<()>,
    done: &AtomicBool,
) -> (f64, f64) {
    let work = || {
        let mut controller = Controller::attach("eth0", ip::index("eth0")?, MAC_A, config, COOKIE)
            .map_err(std::io::Error::other)?;
        let hop = Hop::new(0, Outer::V4 { src: A, dst: B }, config.min.of(1500), 1500);
        controller.merge.set_hop(MAC_B, hop).map_err(std::io::Error::other)?;
        controller.track(true).map_err(std::io::Error::other)?;
        ready.send(()).map_err(std::io::Error::other)?;
        // As the daemon does.
        scheduling::realtime_if_allowed();
        let mut poller = Poller::default();
        controller.wait_for(&mut poller);
        while !done.load(Ordering::Relaxed) {
            let until = controller.run(clock::now()).map_err(std::io::Error::other)?;
            let wait = until.unwrap_or(Instant::MAX).saturating_since(clock::now());
            poller.wait(Some(wait.min(Duration::from_millis(20))))?;
        }
        controller.flush().map_err(std::io::Error::other)?;
        let stats = controller.merge.stats().map_err(std::io::Error::other)?;
        let frames = stats.iter().map(|(_, s)| (s.meta_packets + s.unaggregated_packets) as f64);
        Ok((frames.sum(), run_time("sheaf_merge")))
    };
    pair.a.run(work).expect("the program runs")
}

fn pin(cpu: usize) {
    let mut cpus = nix::sched::CpuSet::new();
    let set = cpus.set(cpu);
    let pinned =
        set.and_then(|()| nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &cpus));
    if pinned.is_err() {
        println!("  (no CPU {cpu}: unpinned)");
    }
}

/// Sends from processor `cpu` while `goes_on`; returns how many packets.
fn send(socket: &UdpSocket, cpu: usize, goes_on: impl Fn() -> bool) -> f64 {
    pin(cpu);
    let parts: Vec<_> = (0..BATCH).map(|_| [IoSlice::new(&PAYLOAD)]).collect();
    let mut headers = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
    let to: [Option<SockaddrIn>; BATCH] = [None; BATCH];
    let mut sent = 0;
    while goes_on() {
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
