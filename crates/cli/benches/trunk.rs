//! What a trunk carries, and what it costs: `cargo bench -p sheaf --bench trunk [-- WORDS]`.
//!
//! Two hosts joined by cables, real TCP, all cases in one run, so that the ratios hold whatever
//! else the machine does: TCP with CUBIC and with BBR. WORDS pick cases by their names. Needs root.

#[path = "../tests/pair/mod.rs"]
mod pair;

use nix::sys::socket::{setsockopt, sockopt};
use pair::{Pair, Trunk};
use sheaf_netio::clock;
use sheaf_netio::poller::Poller;
use sheaf_stage::Duration;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

const WARM: Duration = Duration::from_millis(1500);
const MEASURED: Duration = Duration::from_secs(5);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if !words.iter().any(|word| word == "--bench") {
        return; // a test run builds it, no more
    }
    let words: Vec<_> = words.into_iter().filter(|word| !word.starts_with("--")).collect();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));
    for (flows, control) in [(1, "cubic"), (4, "cubic"), (1, "bbr"), (4, "bbr")] {
        for paths in [false, true] {
            let carrier = if paths { "UDP" } else { "Ethernet" };
            let mut one = None;
            for rates in [&[20][..], &[20, 20, 20], &[20, 10], &[20, 5]] {
                let name = format!("{carrier} {rates:?} {flows} {control}");
                if !wanted(&name) {
                    continue;
                }
                let got = shaped(rates, (flows, control), paths);
                let one = *one.get_or_insert(got);
                println!("{name:31} {got:6.2} Mbit/s, {}", ratios(got, rates, one));
            }
            let name = format!("{carrier} changed {flows} {control}");
            if wanted(&name) {
                let (before, after) = changed((flows, control), paths);
                println!("{name:31} 20 + 10 {before:6.2} Mbit/s, then 20 + 5 {after:6.2}");
            }
        }
    }
    for cables in [1, 3] {
        for paths in [false, true] {
            let carrier = if paths { "UDP" } else { "Ethernet" };
            let name = format!("unshaped {carrier} {cables}");
            if wanted(&name) {
                println!("{name:31} {}", unshaped(cables, paths));
            }
        }
    }
}

fn ratios(got: f64, rates: &[u32], one: f64) -> String {
    let sum: u32 = rates.iter().sum();
    let best = rates.iter().max().copied().unwrap_or_default();
    format!(
        "{:.3} of the sum of rates, {:.2} of the best, {:.3} of the first case",
        got / f64::from(sum),
        got / f64::from(best),
        got / one
    )
}

/// Megabits a second of TCP payload over links of these rates.
fn shaped(rates: &[u32], flows: (usize, &str), paths: bool) -> f64 {
    let pair = Pair::new(rates.len()).shaped(rates);
    let trunks = pair.trunks(&if paths { pair.paths() } else { pair.frames() });
    let load = Load::start(&pair, flows);
    load.measure(WARM);
    let rate = load.measure(MEASURED);
    load.stop();
    if std::env::var_os("TRUNK_SHOW").is_some() {
        println!("{:#}\n{:#}", trunks.0.shown(), trunks.1.shown());
    }
    rate
}

/// The same over 20 + 10 Mbit/s, then while the second has only 5.
fn changed(flows: (usize, &str), paths: bool) -> (f64, f64) {
    let pair = Pair::new(2).shaped(&[20, 10]);
    let _trunks = pair.trunks(&if paths { pair.paths() } else { pair.frames() });
    let load = Load::start(&pair, flows);
    load.measure(WARM);
    let before = load.measure(MEASURED);
    pair.shape(1, 5);
    load.measure(WARM);
    let after = load.measure(MEASURED);
    load.stop();
    (before, after)
}

/// Frames a second and CPU time per frame of both ends, over cables without a rate.
fn unshaped(cables: usize, paths: bool) -> String {
    let pair = Pair::new(cables);
    let (here, there) = pair.trunks(&if paths { pair.paths() } else { pair.frames() });
    let load = Load::start(&pair, (1, "cubic"));
    load.measure(WARM);
    let before = (frames(&here), cpu(&here), cpu(&there));
    let rate = load.measure(MEASURED);
    let after = (frames(&here), cpu(&here), cpu(&there));
    load.stop();
    if std::env::var_os("TRUNK_SHOW").is_some() {
        println!("{:#}\n{:#}", here.shown(), there.shown());
    }
    let count = (after.0 - before.0) as f64;
    let micros = |after: u64, before: u64| (after - before) as f64 / 1e3 / count;
    format!(
        "{:.0} Mbit/s, {:.0} frames/s, CPU per frame {:.2} us sending, {:.2} us receiving",
        rate,
        count / MEASURED.as_secs_f64(),
        micros(after.1, before.1),
        micros(after.2, before.2)
    )
}

/// Frames that one end sent.
fn frames(trunk: &Trunk<'_>) -> u64 {
    let shown = trunk.shown();
    let links = shown["links"].as_array().expect("a trunk has links");
    links.iter().filter_map(|link| link["frames_sent"].as_u64()).sum()
}

/// Nanoseconds of CPU that one end has used.
fn cpu(trunk: &Trunk<'_>) -> u64 {
    let path = format!("/proc/{}/schedstat", trunk.process());
    let text = std::fs::read_to_string(path).expect("it runs");
    text.split(' ').next().and_then(|word| word.parse().ok()).expect("a number comes first")
}

/// TCP from host 1 to host 2 through the trunk.
struct Load {
    stop: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Load {
    /// So many flows, with this congestion control.
    fn start(pair: &Pair, (flows, control): (usize, &str)) -> Load {
        let (stop, received) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut threads = Vec::new();
        let listener = pair.hosts[1].run(|| TcpListener::bind("10.99.0.2:5001")).unwrap();
        for _ in 0..flows {
            let sender = pair.hosts[0].run(|| TcpStream::connect("10.99.0.2:5001")).unwrap();
            setsockopt(&sender, sockopt::TcpCongestion, &control.into()).unwrap();
            let receiver = listener.accept().unwrap().0;
            let stop = stop.clone();
            threads.push(thread::spawn(move || send(sender, &stop)));
            let received = received.clone();
            threads.push(thread::spawn(move || receive(receiver, &received)));
        }
        Load { stop, received, threads }
    }

    /// Megabits a second that arrive in this time.
    fn measure(&self, time: Duration) -> f64 {
        let (from, before) = (clock::now(), self.received.load(Ordering::Relaxed));
        let until = from + time;
        while clock::now() < until {
            Poller::default().wait(Some(until.saturating_since(clock::now()))).unwrap();
        }
        let bytes = self.received.load(Ordering::Relaxed) - before;
        bytes as f64 * 8.0 / 1e6 / (clock::now() - from).as_secs_f64()
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn send(mut stream: TcpStream, stop: &AtomicBool) {
    let data = vec![0; 1 << 16];
    while !stop.load(Ordering::Relaxed) && stream.write_all(&data).is_ok() {}
}

fn receive(mut stream: TcpStream, received: &AtomicU64) {
    let mut data = vec![0; 1 << 18];
    while let Ok(len @ 1..) = stream.read(&mut data) {
        received.fetch_add(len as u64, Ordering::Relaxed);
    }
}
