//! `sheaf aggregate` beside what happens to neighbours, paths and interfaces. Needs root.

mod patient;

use patient::patient;
use sheaf_netio::netns::Namespace;
use sheaf_netio::poller::Poller;
use sheaf_netio::{clock, ip, timer};
use sheaf_stage::Instant;
use std::io::{BufRead, BufReader, Lines};
use std::net::UdpSocket;
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");
const ENGINES: [&str; 2] = ["kernel", "user"];

/// Hosts in a row on cables; host i has 10.8.i.1 and fd08:i::1 on `right`, host i + 1 has .2 and
/// ::2 of the same network on `left`. Every host routes, and finds its neighbours by itself.
fn row(hosts: usize) -> Vec<Namespace> {
    let row: Vec<_> = (0..hosts).map(|_| Namespace::new().unwrap()).collect();
    for (cable, pair) in row.windows(2).enumerate() {
        lay(pair, cable);
    }
    for (index, host) in row.iter().enumerate() {
        for cable in 0..hosts - 1 {
            let gateway = match cable {
                cable if cable > index => (index, 2),
                cable if cable + 1 < index => (index - 1, 1),
                _ => continue,
            };
            let (at, last) = gateway;
            host.run(|| {
                ip::run(&format!("route add 10.8.{cable}.0/24 via 10.8.{at}.{last}"))?;
                ip::run(&format!("route add fd08:{cable}::/64 via fd08:{at}::{last}"))
            })
            .unwrap();
        }
    }
    row
}

/// Lays cable number `cable` between two hosts.
fn lay(pair: &[Namespace], cable: usize) {
    let other = pair[1].path();
    pair[0]
        .run(|| ip::run(&format!("link add right type veth peer name left netns {other}")))
        .unwrap();
    for (host, dev, ours) in [(&pair[0], "right", 1), (&pair[1], "left", 2)] {
        host.run(|| {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
            std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1")?;
            std::fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "0")?;
            std::fs::write(format!("/proc/sys/net/ipv4/conf/{dev}/rp_filter"), "0")?;
            set_up(dev, cable, ours)
        })
        .unwrap();
    }
}

fn set_up(dev: &str, cable: usize, ours: u8) -> std::io::Result<()> {
    ip::run(&format!("addr replace 10.8.{cable}.{ours}/24 dev {dev}"))?;
    ip::run(&format!("addr replace fd08:{cable}::{ours}/64 dev {dev} nodad"))?;
    ip::run(&format!("link set {dev} up"))
}

fn run(namespace: &Namespace, line: &str) -> Output {
    let mut command = Command::new(SHEAF);
    command.args(line.split_whitespace());
    namespace.enter(&mut command);
    command.output().unwrap()
}

fn split(namespace: &Namespace, line: &str) {
    let output = run(namespace, &format!("split dev {line}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// `sheaf aggregate`, and what it says.
struct Daemon {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
    complained: Lines<BufReader<ChildStderr>>,
}

impl Daemon {
    fn start(namespace: &Namespace, line: &str) -> Daemon {
        let mut command = Command::new(SHEAF);
        command.arg("aggregate").args(line.split_whitespace());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        namespace.enter(&mut command);
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        let complained = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut daemon = Daemon { child, said, complained };
        daemon.is_at_work();
        daemon
    }

    fn is_at_work(&mut self) {
        let line = self.said.next().expect("it runs").unwrap();
        assert!(line.starts_with("aggregating on "), "{line}");
    }

    /// Waits until it says on standard error what contains `text`.
    fn says(&mut self, text: &str) {
        let said = |line: std::io::Result<String>| line.unwrap().contains(text);
        assert!(self.complained.by_ref().any(said), "it ended without a word of {text:?}");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Report of `sheaf show` on an interface.
fn shown(namespace: &Namespace, dev: &str) -> serde_json::Value {
    let output = run(namespace, &format!("show dev {dev} --json"));
    let mut shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    shown[0].take()
}

/// A socket on the first host that sends to the returned one on the second, which has room for
/// thousands of packets.
fn sockets(row: &[Namespace]) -> (UdpSocket, UdpSocket) {
    let to = row[1].run(|| UdpSocket::bind("10.8.0.2:5004")).unwrap();
    to.set_read_timeout(Some(LONG)).unwrap();
    nix::sys::socket::setsockopt(&to, nix::sys::socket::sockopt::RcvBufForce, &(8 << 20)).unwrap();
    let from = row[0].run(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    from.connect("10.8.0.2:5004").unwrap();
    (from, to)
}

/// Runs `meanwhile` while the process of `daemon` does not get a turn.
fn stopped(daemon: &Daemon, meanwhile: impl FnOnce()) {
    let pid = nix::unistd::Pid::from_raw(daemon.child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    meanwhile();
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();
}

/// Moments in a row, whenever the machine comes to them.
struct Pace {
    every: Duration,
    next: Instant,
}

impl Pace {
    fn new(every: Duration) -> Pace {
        Pace { every, next: clock::now() }
    }

    fn wait(&mut self) {
        self.next += self.every;
        timer::wait(&mut Poller::default(), 0, self.next, Duration::ZERO).unwrap();
    }
}

/// A receiver that waits this long gets nothing more.
const LONG: Duration = Duration::from_secs(10);

/// Packets sent every 2 ms by another thread, each with its number, until the value goes.
struct Traffic<'a> {
    to: UdpSocket,
    /// The sender's next number.
    sent: &'a AtomicU32,
    /// Numbers that arrived.
    got: Vec<u32>,
}

impl Drop for Traffic<'_> {
    /// Ends the sender, whatever became of the test.
    fn drop(&mut self) {
        self.sent.store(END, Ordering::Relaxed);
    }
}

/// From this number on nothing is sent.
const END: u32 = u32::MAX / 2;
/// Time between two probes of a neighbour that frames leave for.
const HALF_SECOND: Duration = Duration::from_millis(500);
/// Time between two packets of [`Traffic`].
const EVERY: Duration = Duration::from_millis(2);

impl<'a> Traffic<'a> {
    fn start(
        scope: &'a std::thread::Scope<'a, '_>,
        from: &Namespace,
        to: (&Namespace, &str),
        sent: &'a AtomicU32,
    ) -> Traffic<'a> {
        let (host, address) = to;
        let to = host.run(|| UdpSocket::bind(address)).unwrap();
        nix::sys::socket::setsockopt(&to, nix::sys::socket::sockopt::RcvBufForce, &(8 << 20))
            .unwrap();
        let any = if address.contains('[') { "[::]:0" } else { "0.0.0.0:0" };
        let from = from.run(|| UdpSocket::bind(any)).unwrap();
        from.connect(address).unwrap();
        let send = move || {
            let mut pace = Pace::new(EVERY);
            loop {
                let number = sent.load(Ordering::Relaxed);
                if number >= END {
                    break;
                }
                let mut payload = [0; 32];
                payload[..4].copy_from_slice(&number.to_be_bytes());
                // Without a way it is lost, and counts as such.
                let _ = from.send(&payload);
                sent.fetch_add(1, Ordering::Relaxed);
                pace.wait();
            }
        };
        scope.spawn(send);
        to.set_read_timeout(Some(LONG)).unwrap();
        Traffic { to, sent, got: Vec::new() }
    }

    /// Receives until one has come that was sent `count` packets from now.
    fn arrive(&mut self, count: u32) {
        let until = self.sent.load(Ordering::Relaxed) + count;
        let mut bytes = [0; 64];
        while self.got.last().is_none_or(|last| *last < until) {
            patient(|| self.to.recv(&mut bytes)).expect("packets arrive");
            self.got.push(u32::from_be_bytes(bytes[..4].try_into().unwrap()));
        }
    }

    /// The longest row of numbers that are missing between those that arrived.
    fn longest_gap(&self) -> u32 {
        let mut got = self.got.clone();
        got.sort_unstable();
        got.windows(2).map(|pair| pair[1] - pair[0] - 1).max().unwrap_or(0)
    }
}

/// Packets of one second.
const SECOND: u32 = 500;

#[test]
fn a_neighbour_that_does_not_split_gets_its_packets_as_they_are() {
    for engine in ENGINES {
        for probed in ["10.8.0.2", "any"] {
            let row = row(2);
            // Both in each other's neighbour tables.
            row[0].run(|| ping("10.8.0.2")).unwrap();
            let line = format!("dev right policy forced engine {engine} peer {probed}");
            let _daemon = Daemon::start(&row[0], &line);
            let sent = AtomicU32::new(0);
            std::thread::scope(|scope| {
                let mut traffic = Traffic::start(scope, &row[0], (&row[1], "10.8.0.2:5004"), &sent);
                traffic.arrive(500);
                assert_eq!(traffic.longest_gap(), 0, "{engine} {probed}");
            });
            let shown = shown(&row[0], "right");
            assert_eq!(shown["total"]["meta_packets"], 0, "{shown}");
            if probed != "any" {
                assert_eq!(shown["hops"]["10.8.0.2"]["splits"], "no", "{shown}");
            }
        }
    }
}

fn ping(address: &str) -> std::io::Result<()> {
    let done = Command::new("ping").args(["-c1", "-q", address]).stdout(Stdio::null()).status()?;
    assert!(done.success());
    Ok(())
}

#[test]
fn a_splitter_that_goes_under_traffic_costs_a_second_at_most_and_is_used_again_when_it_returns() {
    for engine in ENGINES {
        for (peer, to) in [("10.8.0.2", "10.8.0.2:5004"), ("fd08:0::2", "[fd08:0::2]:5004")] {
            let row = row(2);
            row[0].run(|| ping(peer)).unwrap();
            split(&row[1], "left peer any");
            let line = format!("dev right policy forced engine {engine} peer {peer}");
            let mut daemon = Daemon::start(&row[0], &line);
            daemon.says("splits; small packets to it share frames");
            let sent = AtomicU32::new(0);
            std::thread::scope(|scope| {
                let mut traffic = Traffic::start(scope, &row[0], (&row[1], to), &sent);
                traffic.arrive(200);
                split(&row[1], "left off");
                daemon.says("cannot split (protocol unreachable); its packets pass as they are");
                traffic.arrive(500);
                assert!(traffic.longest_gap() < SECOND, "{engine}: {}", traffic.longest_gap());
                let before = shown(&row[0], "right")["total"]["meta_packets"].as_u64();
                split(&row[1], "left peer any");
                daemon.says("splits; small packets to it share frames");
                traffic.arrive(200);
                let after = shown(&row[0], "right")["total"]["meta_packets"].as_u64();
                assert!(after > before, "{before:?} {after:?}");
                assert!(traffic.longest_gap() < SECOND, "{engine}: {}", traffic.longest_gap());
            });
        }
    }
}

#[test]
fn a_neighbour_whose_process_is_stopped_gets_its_packets_as_they_are_after_a_second() {
    let row = row(2);
    row[0].run(|| ping("10.8.0.2")).unwrap();
    let far = Daemon::start(&row[1], "dev left engine user peer 10.8.0.1");
    let mut daemon = Daemon::start(&row[0], "dev right policy forced engine kernel peer 10.8.0.2");
    daemon.says("splits");
    let sent = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let mut traffic = Traffic::start(scope, &row[0], (&row[1], "10.8.0.2:5004"), &sent);
        traffic.arrive(200);
        stopped(&far, || {
            daemon.says("cannot split (no reply to probes)");
            traffic.arrive(300);
        });
        daemon.says("splits");
    });
}

#[test]
fn a_neighbour_that_sends_frames_itself_is_probed_every_five_seconds_and_any_other_every_half() {
    let engines = ENGINES.into_iter().flat_map(|engine| [(engine, true), (engine, false)]);
    for (engine, both_ways) in engines {
        let row = row(2);
        row[0].run(|| ping("10.8.0.2")).unwrap();
        let _far = Daemon::start(
            &row[1],
            &format!("dev left policy forced engine {engine} peer 10.8.0.1"),
        );
        let mut daemon = Daemon::start(
            &row[0],
            &format!("dev right policy forced engine {engine} peer 10.8.0.2"),
        );
        daemon.says("splits");
        let probes = || shown(&row[0], "right")["total"]["probes"].as_u64().unwrap();
        let (there, back) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            let mut traffic = Traffic::start(scope, &row[0], (&row[1], "10.8.0.2:5004"), &there);
            let back = both_ways
                .then(|| Traffic::start(scope, &row[1], (&row[0], "10.8.0.1:5004"), &back));
            traffic.arrive(500);
            let (before, began) = (probes(), clock::now());
            traffic.arrive(1500);
            let (sent, took) = (probes() - before, clock::now() - began);
            let halves = took.as_nanos() as u64 / HALF_SECOND.as_nanos() as u64;
            match both_ways {
                true => assert!(sent <= 1 + halves / 10, "{engine}: {sent} in {took:?}"),
                false => assert!(sent + 1 >= halves, "{engine}: {sent} in {took:?}"),
            }
            drop(back);
        });
    }
}

#[test]
fn without_probes_the_command_line_is_trusted() {
    for engine in ENGINES {
        let row = row(2);
        row[0].run(|| ping("10.8.0.2")).unwrap();
        // Nothing replies to echoes here.
        row[1].run(|| std::fs::write("/proc/sys/net/ipv4/icmp_echo_ignore_all", "1")).unwrap();
        split(&row[1], "left peer any");
        let line = format!("dev right policy forced engine {engine} peer 10.8.0.2 probe off");
        let _daemon = Daemon::start(&row[0], &line);
        let sent = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let mut traffic = Traffic::start(scope, &row[0], (&row[1], "10.8.0.2:5004"), &sent);
            traffic.arrive(200);
        });
        let shown = shown(&row[0], "right");
        assert!(shown["total"]["meta_packets"].as_u64() > Some(0), "{shown}");
        assert_eq!(shown["total"]["probes"], 0, "{shown}");
    }
}

#[test]
fn over_a_second_hop_with_a_smaller_mtu_nearly_everything_arrives() {
    const SENT: u32 = 9000;
    // Packets of three frames: so many may be lost before the path has told its MTU.
    const UNDER_WAY: u32 = 60;
    for engine in ENGINES {
        for (mtu, to) in [
            (1400, "10.8.1.2"),
            (1280, "10.8.1.2"),
            (1000, "10.8.1.2"),
            (1400, "fd08:1::2"),
            (1280, "fd08:1::2"),
        ] {
            let row = row(3);
            row[1].run(|| ip::run(&format!("link set right mtu {mtu}"))).unwrap();
            row[2].run(|| ip::run(&format!("link set left mtu {mtu}"))).unwrap();
            row[0].run(|| ping(to)).unwrap();
            split(&row[2], "left from 10.8.0.1 from fd08:0::1");
            let line = format!("dev right policy forced min 95% engine {engine} to {to}");
            let _daemon = Daemon::start(&row[0], &line);
            let address =
                if to.contains(':') { format!("[{to}]:5004") } else { format!("{to}:5004") };
            let there = row[2].run(|| UdpSocket::bind(&address)).unwrap();
            let buffer = nix::sys::socket::sockopt::RcvBufForce;
            nix::sys::socket::setsockopt(&there, buffer, &(32 << 20)).unwrap();
            let any = if to.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
            let here = row[0].run(|| UdpSocket::bind(any)).unwrap();
            here.connect(&address).unwrap();
            // A packet that has not come for this long is lost.
            there.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            let (mut got, mut lost, mut bytes) = (0, 0, [0; 64]);
            for sent in 1..=SENT {
                here.send(&[7; 32]).unwrap();
                while sent - got - lost > if sent < SENT { UNDER_WAY } else { 0 } {
                    match patient(|| there.recv(&mut bytes)) {
                        Ok(_) => got += 1,
                        Err(_) => lost = sent - got,
                    }
                }
            }
            assert!(got >= 8900, "{engine}, MTU {mtu} to {to}: {got} of {SENT}");
            let shown = shown(&row[0], "right");
            assert!(shown["hops"][to]["meta_packets"].as_u64() > Some(0), "{shown}");
            let max = shown["hops"][to]["max"].as_u64().unwrap();
            assert_eq!(max, u64::from(1280_u16.min(mtu)), "{shown}");
        }
    }
}

#[test]
fn an_interface_that_goes_down_is_taken_up_again_when_it_returns() {
    for engine in ENGINES {
        let row = row(2);
        row[0].run(|| ping("10.8.0.2")).unwrap();
        split(&row[1], "left peer any");
        let line = format!("dev right policy forced engine {engine} peer 10.8.0.2");
        let mut daemon = Daemon::start(&row[0], &line);
        daemon.says("splits");
        row[0].run(|| ip::run("link set right down")).unwrap();
        daemon.says("right is down; waits until right is up");
        row[0].run(|| set_up("right", 0, 1)).unwrap();
        row[0].run(|| ping("10.8.0.2")).unwrap();
        daemon.is_at_work();
        daemon.says("splits");

        // Renamed: somebody else's. Named back: ours.
        row[0]
            .run(|| {
                ip::run("link set right down")?;
                ip::run("link set right name other")
            })
            .unwrap();
        daemon.says("waits until right is up");
        row[0]
            .run(|| {
                ip::run("link set other name right")?;
                set_up("right", 0, 1)?;
                ping("10.8.0.2")
            })
            .unwrap();
        daemon.is_at_work();
        daemon.says("splits");

        // Deleted and made again.
        row[0].run(|| ip::run("link del right")).unwrap();
        daemon.says("waits until right is up");
        lay(&row, 0);
        split(&row[1], "left peer any");
        row[0].run(|| ping("10.8.0.2")).unwrap();
        daemon.is_at_work();
        daemon.says("splits");

        // Another MTU, smaller than frames were.
        row[0].run(|| ip::run("link set right mtu 1300")).unwrap();
        daemon.says("right has another MTU");
        daemon.is_at_work();
        daemon.says("splits");
        let shown = shown(&row[0], "right");
        assert_eq!(shown["hops"]["10.8.0.2"]["max"], 1300, "{shown}");
    }
}

#[test]
fn frames_have_the_address_that_the_interface_has_now() {
    for engine in ENGINES {
        let row = row(2);
        row[0].run(|| ping("10.8.0.2")).unwrap();
        split(&row[1], "left peer 10.8.0.1 peer 10.8.0.9");
        let line = format!("dev right policy forced engine {engine} peer 10.8.0.2");
        let mut daemon = Daemon::start(&row[0], &line);
        daemon.says("splits");
        row[0]
            .run(|| {
                ip::run("addr del 10.8.0.1/24 dev right")?;
                ip::run("addr add 10.8.0.9/24 dev right")
            })
            .unwrap();
        // The splitter no longer takes the old address.
        split(&row[1], "left peer 10.8.0.9");
        let sent = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let mut traffic = Traffic::start(scope, &row[0], (&row[1], "10.8.0.2:5004"), &sent);
            traffic.arrive(1500);
            let before = shown(&row[0], "right")["total"]["meta_packets"].as_u64();
            traffic.arrive(500);
            let after = shown(&row[0], "right")["total"]["meta_packets"].as_u64();
            assert!(after > before, "{before:?} {after:?}");
            assert!(traffic.longest_gap() <= 2 * SECOND, "{}", traffic.longest_gap());
        });
    }
}

#[test]
fn a_crowd_of_made_up_neighbours_ends_nothing() {
    for engine in ENGINES {
        let row = row(2);
        row[0].run(|| ping("10.8.0.2")).unwrap();
        split(&row[1], "left peer any");
        let batch: String = (0..1800)
            .map(|n| {
                let (a, b) = (n / 250, n % 250 + 1);
                format!("neigh add 10.7.{a}.{b} lladdr 02:00:00:01:{a:02x}:{b:02x} dev right\n")
            })
            .collect();
        let file = std::env::temp_dir().join(format!("sheaf-crowd-{}", std::process::id()));
        std::fs::write(&file, batch).unwrap();
        row[0].run(|| ip::run(&format!("-batch {}", file.display()))).unwrap();
        std::fs::remove_file(file).unwrap();
        let mut daemon =
            Daemon::start(&row[0], &format!("dev right policy forced engine {engine} peer any"));
        daemon.says("more than 1024 neighbours");
        // It is still there, and answers.
        let shown = shown(&row[0], "right");
        assert!(shown["neighbours_left_out"].as_u64() > Some(0), "{shown}");
    }
}

#[test]
fn what_comes_while_an_engine_in_user_space_does_not_get_its_turn_is_not_lost() {
    const SENT: u32 = 3000;
    let row = row(2);
    row[0].run(|| ping("10.8.0.2")).unwrap();
    let far = Daemon::start(&row[1], "dev left engine user peer 10.8.0.1");
    let line = "dev right engine user policy forced peer 10.8.0.2";
    let mut near = Daemon::start(&row[0], line);
    near.says("splits");
    let (from, to) = sockets(&row);
    for late in [&near, &far] {
        stopped(late, || (0..SENT).for_each(|_| assert_eq!(from.send(&[7; 32]).unwrap(), 32)));
        for number in 0..SENT {
            patient(|| to.recv(&mut [0; 64]))
                .unwrap_or_else(|error| panic!("packet {number}: {error}"));
        }
    }
}

#[test]
fn sparse_and_dense_packets_of_a_flow_keep_their_order_through_two_engines_in_user_space() {
    let row = row(2);
    row[0].run(|| ping("10.8.0.2")).unwrap();
    let _far = Daemon::start(&row[1], "dev left engine user peer 10.8.0.1");
    let mut daemon = Daemon::start(&row[0], "dev right engine user peer 10.8.0.2");
    daemon.says("splits");
    let (from, to) = sockets(&row);
    let (mut number, mut pace) = (0_u32, Pace::new(Duration::from_micros(700)));
    // Bursts of 1 to 7 between single packets.
    for turn in 0..600_u32 {
        for _ in 0..[1, 1, 7, 1, 3][turn as usize % 5] {
            let mut payload = [0; 32];
            payload[..4].copy_from_slice(&number.to_be_bytes());
            from.send(&payload).unwrap();
            number += 1;
        }
        pace.wait();
    }
    let mut got = Vec::new();
    let mut bytes = [0; 64];
    while got.len() < number as usize {
        patient(|| to.recv(&mut bytes)).expect("none is lost");
        got.push(u32::from_be_bytes(bytes[..4].try_into().unwrap()));
    }
    assert_eq!(got, (0..number).collect::<Vec<_>>());
}
