//! Window control against nothing, short queues and fair queueing, with Linux TCP through an
//! emulated bottleneck. Needs root: `cargo bench -p sheaf --bench window [-- home|fairness|follow [NAME]]`;
//! NAME is what the name of a treatment contains.
//!
//! * `home`: the access point of "An OpenWRT solution for future wireless homes": 4 Mbit/s, 60 ms,
//!   UDP of 1.8 Mbit/s on the wire and one download;
//! * `fairness`: 1, 10 and 50 downloads with round-trip times of 20 to 200 ms over 50 Mbit/s;
//! * `follow`: `capacity auto` on a link that changes by half and back.

use sheaf_emulator::queue::fifo::FifoConfig;
use sheaf_emulator::queue::fq_codel::FqCodelConfig;
use sheaf_emulator::{Limit, QueueConfig};
use sheaf_stage::{Bitrate, Duration};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;

#[path = "window/traffic.rs"]
mod traffic;
#[path = "window/world.rs"]
mod world;
use traffic::{Downloads, Streams, wait};
use world::{Bottleneck, World};

const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");

fn main() {
    if !nix::unistd::geteuid().is_root() {
        println!("this benchmark needs root");
        return;
    }
    let asked: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |name: &str| asked.first().is_none_or(|word| word == name);
    let treatment = asked.get(1).map_or("", String::as_str);
    if wanted("home") {
        home(treatment);
    }
    if wanted("fairness") {
        fairness(treatment);
    }
    if wanted("follow") {
        follow();
    }
}

/// `sheaf window` on the access point while this lives.
struct Control(Child);

impl Control {
    fn start(world: &World, line: &str) -> Control {
        let mut command = Command::new(SHEAF);
        command.args(["window", "dev", "wan", "direction", "download"]);
        command.args(line.split_whitespace()).stdout(Stdio::piped());
        world.ap.enter(&mut command);
        let mut child = command.spawn().expect("the binary is there");
        let mut first = String::new();
        let out = child.stdout.as_mut().expect("it is piped");
        BufReader::new(out).read_line(&mut first).expect("it says something");
        assert!(first.starts_with("controlling"), "{first}");
        Control(child)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn fifo(packets: u64) -> QueueConfig {
    QueueConfig::Fifo(FifoConfig { limit: Limit::Packets(packets), ..FifoConfig::default() })
}

fn home(treatment: &str) {
    println!("home access point: 4 Mbit/s, 60 ms, queue of 100 packets; 5 s to settle, 20 s");
    println!("                          Mbit/s  game, ms: between packets  delay   lost, %");
    println!(
        "{:<22} {:>9} {:>10} {:>8} {:>8} {:>7} {:>7} {:>7} {:>7} {:>6} {:>6}",
        "treatment",
        "download",
        "p50",
        "p99",
        "p99",
        "stream",
        "game",
        "call",
        "call: R",
        "queue",
        "drops"
    );
    let long = || fifo(100);
    for (name, queue, line, downloads) in [
        ("no download", long(), None, 0),
        ("nothing", long(), None, 1),
        ("fixed 17000", long(), Some("fixed 17000"), 1),
        ("formula 1", long(), Some("capacity 4mbit formula 1"), 1),
        ("formula 2", long(), Some("capacity 4mbit formula 2"), 1),
        ("maxmin", long(), Some("capacity 4mbit formula maxmin"), 1),
        ("maxmin, auto", long(), Some("capacity auto"), 1),
        ("queue of 5 packets", fifo(5), None, 1),
        ("FQ-CoDel", QueueConfig::FqCodel(FqCodelConfig::default()), None, 1),
    ] {
        if !name.contains(treatment) {
            continue;
        }
        let rtts = vec![Duration::from_millis(60)];
        let (rate, down) = (Bitrate::from_mbps(4), Duration::from_millis(30));
        let world = World::new(&Bottleneck { rate, queue, down, rtts });
        let world = world.expect("namespaces and interfaces");
        let _control = line.map(|line| Control::start(&world, line));
        let streams = Streams::start(&world);
        let downloads = Downloads::start(&world, downloads, 1, "cubic");
        let run = measure(&world, &downloads, Duration::from_secs(5), Duration::from_secs(20));
        drop(downloads);
        let quality = streams.stop();
        println!(
            "{name:<22} {:>9.3} {:>10.2} {:>8.2} {:>8.1} {:>7.2} {:>7.2} {:>7.2} {:>7.1} {:>6.1} {:>6}",
            run.rates.iter().fold(0.0, |sum, rate| sum + rate) / 1e6,
            quality.gaps[0],
            quality.gaps[1],
            quality.delay,
            quality.loss[0] * 100.0,
            quality.loss[1] * 100.0,
            quality.loss[2] * 100.0,
            quality.r,
            run.waiting,
            run.dropped
        );
    }
}

fn fairness(treatment: &str) {
    println!("downloads over 50 Mbit/s, 20..200 ms, queue of 400 packets; 5 s to settle, 10 s");
    println!(
        "{:>5} {:<6} {:<12} {:>8} {:>6} {:>6} {:>6} {:>6}",
        "flows", "cc", "control", "Mbit/s", "ratio", "Jain", "queue", "drops"
    );
    for count in [1, 10, 50] {
        // One flow alone has the middle one.
        let millis: &[u64] = if count == 1 { &[60] } else { &[20, 40, 60, 100, 200] };
        let rtts: Vec<_> = millis.iter().copied().map(Duration::from_millis).collect();
        for congestion in ["cubic", "bbr"] {
            let mut without = None;
            for (name, line) in [
                ("none", None),
                ("formula 1", Some("capacity 50mbit formula 1")),
                ("formula 2", Some("capacity 50mbit formula 2")),
                ("maxmin", Some("capacity 50mbit")),
                ("maxmin, auto", Some("capacity auto")),
            ] {
                if line.is_some() && !name.contains(treatment) {
                    continue;
                }
                let (rate, queue) = (Bitrate::from_mbps(50), fifo(400));
                let down = Duration::from_millis(5);
                let world = World::new(&Bottleneck { rate, queue, down, rtts: rtts.clone() });
                let world = world.expect("namespaces and interfaces");
                let _control = line.map(|line| Control::start(&world, line));
                let downloads = Downloads::start(&world, count, rtts.len(), congestion);
                let run =
                    measure(&world, &downloads, Duration::from_secs(5), Duration::from_secs(10));
                let sum: f64 = run.rates.iter().sum();
                println!(
                    "{count:>5} {congestion:<6} {name:<12} {:>8.2} {:>6.3} {:>6.3} {:>6.1} {:>6}",
                    sum / 1e6,
                    sum / *without.get_or_insert(sum),
                    jain(&run.rates),
                    run.waiting,
                    run.dropped
                );
            }
        }
    }
}

fn follow() {
    println!(
        "capacity auto, 4 downloads, 60 ms: link and what is known of it after 1, 2 … seconds"
    );
    let (rtts, down) = (vec![Duration::from_millis(60)], Duration::from_millis(30));
    let (rate, queue) = (Bitrate::from_mbps(20), fifo(200));
    let world = World::new(&Bottleneck { rate, queue, down, rtts });
    let world = world.expect("namespaces and interfaces");
    let _control = Control::start(&world, "capacity auto");
    let downloads = Downloads::start(&world, 4, 1, "cubic");
    for mbps in [20, 10, 20] {
        world.counts.rate.store(mbps * 1_000_000, Ordering::Relaxed);
        print!("{mbps} Mbit/s:");
        for _ in 0..8 {
            let run = measure(&world, &downloads, Duration::ZERO, Duration::from_secs(1));
            print!(" {:.1} (queue {:.0})", known(&world) / 1e6, run.waiting);
        }
        println!();
    }
}

/// The capacity that the access point knows of, bit/s.
fn known(world: &World) -> f64 {
    let mut command = Command::new(SHEAF);
    world.ap.enter(command.args(["show", "dev", "wan", "--json"]));
    let answer = command.output().expect("the binary is there").stdout;
    let answer: serde_json::Value = serde_json::from_slice(&answer).expect("it is JSON");
    answer[0]["window"]["totals"][0]["capacity"].as_f64().expect("it is a number")
}

/// What was measured, the time to settle apart.
struct Run {
    /// bit/s of data that arrived, by download.
    rates: Vec<f64>,
    /// Mean queue, packets.
    waiting: f64,
    /// Packets that the queue dropped.
    dropped: u64,
}

fn measure(world: &World, downloads: &Downloads, settle: Duration, time: Duration) -> Run {
    const LOOK: Duration = Duration::from_millis(10);
    wait(settle);
    let (before, started) = (downloads.bytes(), sheaf_netio::clock::now());
    let dropped = world.counts.dropped.load(Ordering::Relaxed);
    let (mut sum, mut looks) = (0, 0);
    while sheaf_netio::clock::now() - started < time {
        wait(LOOK);
        sum += world.counts.waiting.load(Ordering::Relaxed);
        looks += 1;
    }
    let seconds = (sheaf_netio::clock::now() - started).as_secs_f64();
    let after = downloads.bytes();
    let rates = before.iter().zip(&after).map(|(before, after)| (after - before) as f64 * 8.0);
    Run {
        rates: rates.map(|bits| bits / seconds).collect(),
        waiting: sum as f64 / f64::from(looks.max(1)),
        dropped: world.counts.dropped.load(Ordering::Relaxed) - dropped,
    }
}

/// Jain's fairness index: 1 where all are equal, 1/n where one has all.
fn jain(rates: &[f64]) -> f64 {
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(a, b), x| (a + x, b + x * x));
    sum * sum / (rates.len() as f64 * squares).max(f64::MIN_POSITIVE)
}
