//! `sheaf window` on an access point between a client and a server, with Linux TCP at both ends.
//! Needs root.

mod patient;

use aya::programs::{SchedClassifier, TcAttachType};
use etherparse::PacketBuilder;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::TcpCongestion;
use nix::unistd::Pid;
use patient::patient;
use sheaf_netio::netlink::Netlink;
use sheaf_netio::netns::Namespace;
use sheaf_netio::packet::PacketSocket;
use sheaf_netio::qdisc;
use sheaf_netio::{clock, ip};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");
const SERVER: &str = "10.8.1.2:80";
/// An end that waits this long will get nothing more.
const LONG: Duration = Duration::from_secs(20);
/// What is sent before anything is measured: shares and round-trip times are known by then.
const FIRST: usize = 1_000_000;
const MEASURED: usize = 4_000_000;

/// Client, access point, server. The access point has `lan` and `wan`, the others `eth0`.
struct Home {
    client: Namespace,
    ap: Namespace,
    server: Namespace,
}

impl Home {
    fn new() -> Home {
        let [client, ap, server] = std::array::from_fn(|_| Namespace::new().unwrap());
        for (number, dev, host) in [(0, "lan", &client), (1, "wan", &server)] {
            let other = host.path();
            let (ours, theirs) = if number == 0 { (2, 1) } else { (1, 2) };
            let end = |of: &Namespace, dev: &str, ours: u8, theirs: u8| {
                of.run(|| {
                    ip::run(&format!("addr add 10.8.{number}.{ours}/24 dev {dev}"))?;
                    ip::run(&format!("link set {dev} up"))?;
                    ip::run(&format!(
                        "neigh add 10.8.{number}.{theirs} lladdr 02:00:00:00:0{number}:0{theirs} \
                         dev {dev} nud permanent"
                    ))
                })
                .unwrap();
            };
            ap.run(|| {
                ip::run(&format!(
                    "link add {dev} address 02:00:00:00:0{number}:0{ours} type veth \
                     peer name eth0 address 02:00:00:00:0{number}:0{theirs} netns {other}"
                ))
            })
            .unwrap();
            end(&ap, dev, ours, theirs);
            end(host, "eth0", theirs, ours);
            host.run(|| ip::run(&format!("route add default via 10.8.{number}.{ours}"))).unwrap();
        }
        ap.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")).unwrap();
        Home { client, ap, server }
    }

    /// A connection that the client opened: its end and the server's. Both are Reno, which goes on
    /// until it loses a packet; CUBIC may give up before (HyStart).
    fn connect(&self) -> (TcpStream, TcpStream) {
        let listener = self.server.run(|| TcpListener::bind(SERVER)).unwrap();
        let near = self.client.run(|| TcpStream::connect(SERVER)).unwrap();
        let (far, _) = listener.accept().unwrap();
        for end in [&near, &far] {
            setsockopt(end, TcpCongestion, &OsString::from("reno")).unwrap();
            end.set_read_timeout(Some(LONG)).unwrap();
            end.set_write_timeout(Some(LONG)).unwrap();
        }
        (near, far)
    }

    fn sheaf(&self, line: &str) -> Command {
        let mut command = Command::new(SHEAF);
        command.args(line.split_whitespace());
        self.ap.enter(&mut command);
        command
    }

    fn run(&self, line: &str) -> Output {
        self.sheaf(line).output().unwrap()
    }

    /// Report of `sheaf show` on window control of `wan`.
    fn shown(&self) -> serde_json::Value {
        let output = self.run("show dev wan --json");
        let mut shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        shown[0]["window"].take()
    }

    /// Number of programs on `wan`.
    fn programs(&self) -> usize {
        let hooks = [TcAttachType::Ingress, TcAttachType::Egress];
        let count = |hook| SchedClassifier::query_tcx("wan", hook).map(|(_, all)| all.len());
        self.ap.run(|| Ok(hooks.map(|hook| count(hook).unwrap()).iter().sum())).unwrap()
    }
}

/// `sheaf window`, killed at the latest when the test ends.
struct Daemon(Child);

impl Daemon {
    /// At work: it has said so.
    fn start(home: &Home, line: &str) -> Daemon {
        let mut command = home.sheaf(line);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut first = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
        assert!(first.starts_with("controlling windows on wan: formula "), "{first}");
        Daemon(child)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Waits for its end; exit status, and what it said since the first line.
    fn end(&mut self) -> (Option<i32>, String, String) {
        let status = self.0.wait().unwrap();
        let (mut out, mut error) = (String::new(), String::new());
        self.0.stdout.as_mut().unwrap().read_to_string(&mut out).unwrap();
        self.0.stderr.as_mut().unwrap().read_to_string(&mut error).unwrap();
        (status.code(), out, error)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Byte number `at` of what is sent: a place that moved shows.
fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

/// Sends `bytes` from one end to the other and checks each; calls `look` with what has arrived.
fn transfer(mut from: &TcpStream, mut to: &TcpStream, bytes: usize, mut look: impl FnMut(usize)) {
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let all: Vec<u8> = (0..bytes).map(byte).collect();
            from.write_all(&all).unwrap();
        });
        let (mut buffer, mut arrived) = (vec![0; 65536], 0);
        while arrived < bytes {
            let read = patient(|| to.read(&mut buffer)).expect("the transfer goes on");
            assert!(read > 0, "it ended after {arrived} bytes");
            let whole = buffer[..read].iter().enumerate().all(|(i, b)| *b == byte(arrived + i));
            assert!(whole, "wrong bytes after {arrived}");
            arrived += read;
            look(arrived);
        }
    });
}

/// Makes `dev` of `host` a bottleneck of 20 Mbit/s with room for 400 packets.
fn bottleneck(host: &Namespace, dev: &str) -> Bottleneck {
    let words = ["qdisc", "add", "dev", dev, "root", "tbf", "rate", "20mbit", "burst", "3200"];
    host.run(|| {
        let status = Command::new("tc").args(words).args(["limit", "600000"]).status()?;
        assert!(status.success());
        Ok(Bottleneck { netlink: Netlink::open()?, ifindex: ip::index(dev)? })
    })
    .unwrap()
}

struct Bottleneck {
    netlink: Netlink,
    ifindex: u32,
}

impl Bottleneck {
    fn waiting(&mut self) -> u32 {
        qdisc::waiting(&mut self.netlink, self.ifindex).unwrap().unwrap()
    }

    /// The longest queue while a transfer runs, its beginning apart.
    fn longest(&mut self, from: &TcpStream, to: &TcpStream) -> u32 {
        let mut longest = 0;
        transfer(from, to, FIRST + MEASURED, |arrived| {
            // What is still to come keeps the queue full.
            if arrived > FIRST && arrived < FIRST + MEASURED * 3 / 4 {
                longest = longest.max(self.waiting());
            }
        });
        longest
    }
}

/// The only flow that `shown` lists.
fn only(shown: &serde_json::Value) -> &serde_json::Value {
    let flows = shown["flows"].as_array().unwrap();
    assert_eq!(flows.len(), 1, "{shown}");
    &flows[0]
}

/// The only flow in a direction.
fn only_of<'a>(shown: &'a serde_json::Value, direction: &str) -> &'a serde_json::Value {
    let flows = shown["flows"].as_array().unwrap().iter();
    let mut flows = flows.filter(|flow| flow["direction"] == direction);
    let first = flows.next().unwrap_or_else(|| panic!("{direction} in {shown}"));
    assert!(flows.next().is_none(), "{shown}");
    first
}

fn number(value: &serde_json::Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("{name} in {value}"))
}

#[test]
fn a_download_arrives_whole_and_leaves_the_queue_empty() {
    let home = Home::new();
    let mut queue = bottleneck(&home.server, "eth0");
    let (near, far) = home.connect();
    let before = queue.longest(&far, &near);
    drop((near, far));

    let daemon = Daemon::start(&home, "window dev wan capacity 20mbit direction download");
    let (near, far) = home.connect();
    let after = queue.longest(&far, &near);

    // On the sender's own interface TCP keeps its queue below that of a router (tcp_limit_output).
    assert!(before > 50, "TCP fills a queue of 400 packets: {before}");
    assert!(after * 5 < before, "{after} packets in place of {before}");

    let shown = home.shown();
    let flow = only(&shown);
    assert_eq!(flow["direction"], "download");
    assert_eq!(flow["from"], SERVER);
    assert_eq!(flow["to"], near.local_addr().unwrap().to_string());
    assert!(number(flow, "written") < number(flow, "asked"), "{flow}");
    assert!(number(flow, "clamped") > 0.0 && number(flow, "rtt_ms") > 0.0, "{flow}");
    assert!(number(flow, "share") > 0.0 && number(flow, "rate") > 0.0, "{flow}");
    assert_eq!(number(flow, "acked"), (FIRST + MEASURED) as f64);
    let total = &shown["totals"][0];
    assert_eq!((number(total, "capacity"), number(total, "flows")), (20e6, 1.0));
    assert!(number(total, "bytes") > (FIRST + MEASURED) as f64, "{total}");
    drop(daemon);
}

#[test]
fn an_upload_arrives_whole_and_leaves_the_queue_empty() {
    let home = Home::new();
    let mut queue = bottleneck(&home.ap, "wan");
    let (near, far) = home.connect();
    let before = queue.longest(&near, &far);
    drop((near, far));

    let line = "window dev wan capacity 100mbit upload 20mbit formula 2";
    let _daemon = Daemon::start(&home, line);
    let (near, far) = home.connect();
    let after = queue.longest(&near, &far);

    assert!(before > 100, "TCP fills a queue of 400 packets: {before}");
    assert!(after * 5 < before, "{after} packets in place of {before}");
    let shown = home.shown();
    let flow = only(&shown);
    assert_eq!((&flow["direction"], &flow["to"]), (&"upload".into(), &SERVER.into()));
    assert!(number(flow, "written") < number(flow, "asked"), "{flow}");
    let capacities: Vec<_> =
        shown["totals"].as_array().unwrap().iter().map(|total| number(total, "capacity")).collect();
    assert_eq!(capacities, [100e6, 20e6]);
}

#[test]
fn an_upload_beside_a_download_is_paced_by_copies_of_its_acknowledgements() {
    let home = Home::new();
    let mut command = Command::new(SHEAF);
    let link = "rate 20mbit delay 20ms limit 400 reverse rate 4mbit delay 20ms limit 100";
    command.args(["emulate", "dev", "eth0", "both"]).args(link.split(' '));
    home.server.enter(&mut command);
    let mut link = Daemon(command.stdout(Stdio::piped()).spawn().expect("it starts"));
    BufReader::new(link.0.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    let mut daemon = Daemon::start(&home, "window dev wan capacity 20mbit upload 4mbit");
    let taps = || {
        let names = home.ap.run(ip::names).unwrap();
        names.iter().filter(|name| name.starts_with("sheafw")).count()
    };
    assert_eq!(taps(), 1);

    let (download, upload) = (home.connect(), home.connect());
    let paced = std::thread::scope(|scope| {
        scope.spawn(|| transfer(&download.1, &download.0, FIRST + MEASURED, |_| {}));
        transfer(&upload.0, &upload.1, FIRST, |_| {});
        let shown = home.shown();
        let totals = shown["totals"].as_array().unwrap();
        totals.iter().map(|total| number(total, "paced")).collect::<Vec<_>>()
    });
    assert_eq!(paced[0], 0.0, "acknowledgements of downloads are in no clumps here");
    assert!(paced[1] > 0.0, "{paced:?}");

    kill(Pid::from_raw(daemon.0.id() as i32), Signal::SIGINT).unwrap();
    let (status, out, error) = daemon.end();
    assert_eq!((status, &*error), (Some(0), ""));
    assert!(out.contains(" paced "), "{out}");
    assert_eq!((taps(), home.programs()), (0, 0));
}

#[test]
fn an_interface_of_copies_that_goes_ends_the_clock_and_nothing_else() {
    let home = Home::new();
    let mut daemon = Daemon::start(&home, "window dev wan capacity 20mbit upload 4mbit");
    let names = home.ap.run(ip::names).unwrap();
    let tap = names.iter().find(|name| name.starts_with("sheafw")).expect("there is one");
    home.ap.run(|| ip::run(&format!("link del {tap}"))).unwrap();
    let (near, far) = home.connect();
    transfer(&near, &far, FIRST, |_| {});
    transfer(&far, &near, FIRST, |_| {});
    let shown = home.shown();
    assert!(number(only_of(&shown, "upload"), "clamped") > 0.0, "{shown}");

    kill(Pid::from_raw(daemon.0.id() as i32), Signal::SIGINT).unwrap();
    let (status, _, error) = daemon.end();
    assert_eq!(status, Some(0));
    assert!(error.contains(&format!("{tap} is gone")) && error.lines().count() == 1, "{error}");
}

#[test]
fn killed_in_the_midst_of_a_transfer_it_leaves_no_program_and_tcp_whole() {
    let home = Home::new();
    let mut daemon = Daemon::start(&home, "window dev wan fixed 20000");
    assert_eq!(home.programs(), 2);
    let (near, far) = home.connect();
    let mut is_alive = true;
    transfer(&far, &near, FIRST + MEASURED, |arrived| {
        if is_alive && arrived > FIRST {
            let shown = home.shown();
            assert!(number(only(&shown), "clamped") > 0.0, "{shown}");
            daemon.kill();
            assert_eq!(home.programs(), 0);
            is_alive = false;
        }
    });
    assert!(!is_alive);
}

/// A download over 20 Mbit/s and 40 ms is held to a part of that by a small window; after `signal`
/// to the controller TCP takes all of it again, and more.
fn a_download_recovers_after(signal: Signal) {
    let home = Home::new();
    let mut command = Command::new(SHEAF);
    command.args("emulate dev eth0 egress rate 20mbit delay 40ms limit 100".split(' '));
    home.server.enter(&mut command);
    let mut link = Daemon(command.stdout(Stdio::piped()).spawn().expect("it starts"));
    BufReader::new(link.0.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    let daemon = Daemon::start(&home, "window dev wan fixed 20000");
    let drops = || {
        let mut command = Command::new(SHEAF);
        home.server.enter(command.args(["emulate", "show", "eth0", "--json"]));
        let shown = command.output().unwrap().stdout;
        let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap();
        let link = &shown["links"]["eth0 egress"];
        let count = |key: &str| number(link, key) as u64;
        let held = count("rate_queue_packets") + count("delay_line_packets");
        count("offered_packets") - count("delivered_packets") - held
    };

    let (mut near, mut far) = home.connect();
    std::thread::scope(|scope| {
        scope.spawn(move || while far.write_all(&[0; 65536]).is_ok() {});
        let (mut buffer, mut arrived) = (vec![0; 65536], 0);
        let mut read = || patient(|| near.read(&mut buffer)).expect("the download goes on");
        while arrived < 2 * FIRST {
            arrived += read();
        }
        let shown = home.shown();
        assert!(number(only(&shown), "clamped") > 0.0, "{shown}");
        assert_eq!(drops(), 0, "20 kB in flight fill no queue of 100 packets");
        kill(Pid::from_raw(daemon.0.id() as i32), signal).unwrap();
        // Only a sender that has more in flight than the link takes loses packets. Held to 20 kB,
        // it never would.
        let give_up = clock::now() + LONG;
        while drops() == 0 {
            assert!(clock::now() < give_up, "the download is still held");
            (0..100).for_each(|_| assert!(read() > 0));
        }
        near.shutdown(Shutdown::Both).unwrap();
    });
}

#[test]
fn a_download_takes_the_whole_link_again_when_the_controller_is_killed() {
    a_download_recovers_after(Signal::SIGKILL);
}

#[test]
fn a_download_takes_the_whole_link_again_when_the_controller_hangs() {
    a_download_recovers_after(Signal::SIGSTOP);
}

#[test]
fn a_flood_of_syns_pushes_out_no_established_flow() {
    let home = Home::new();
    let _daemon = Daemon::start(&home, "window dev wan fixed 20000 direction download");
    let (near, far) = home.connect();
    transfer(&far, &near, FIRST, |_| {});
    let before = number(only(&home.shown()), "clamped");

    let open = || PacketSocket::open(ip::index("eth0")?);
    let attacker = home.server.run(open).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for spoofed in 0..100_000u32 {
                attacker.send(&syn(spoofed)).unwrap();
            }
        });
        transfer(&far, &near, FIRST, |_| {});
    });
    transfer(&far, &near, FIRST, |_| {});

    let shown = home.shown();
    let packets = number(&shown["totals"][0], "packets");
    assert!(packets > 100_000.0, "the flood passed the program: {packets}");
    let flow = only(&shown);
    assert!(number(flow, "clamped") > before, "it is still held: {flow}");
    assert_eq!(number(flow, "acked"), 3.0 * FIRST as f64, "its counters are those from its begin");
    assert_eq!(number(&shown["totals"][0], "flows"), 1.0, "a SYN alone is no flow");
}

/// A frame to the access point with a SYN of a sender that does not exist.
fn syn(number: u32) -> Vec<u8> {
    let source = (0xac10_0000 + number).to_be_bytes();
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 1, 2], [2, 0, 0, 0, 1, 1])
        .ipv4(source, [10, 8, 0, 1], 64)
        .tcp(1024 + (number % 60_000) as u16, 80, number, 64240)
        .syn();
    let mut frame = Vec::with_capacity(builder.size(0));
    builder.write(&mut frame, &[]).unwrap();
    frame
}

#[test]
fn interrupted_it_says_what_it_did_and_takes_its_programs_along() {
    let home = Home::new();
    let mut daemon = Daemon::start(&home, "window dev wan capacity link");
    let (near, far) = home.connect();
    transfer(&far, &near, FIRST, |_| {});
    let second = home.run("window dev wan fixed 20000");
    assert!(String::from_utf8_lossy(&second.stderr).contains("controlled already; stop the other"));
    let shown = home.run("show");
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.starts_with("wan: windows by formula maxmin up "), "{shown}");
    kill(Pid::from_raw(daemon.0.id() as i32), Signal::SIGINT).unwrap();
    let (status, out, _) = daemon.end();
    assert_eq!(status, Some(0));
    assert!(out.contains("  download: capacity 10.00Gbit (link)"), "{out}");
    assert!(out.contains(&format!("  download {SERVER} > 10.8.0.1:")), "{out}");
    assert_eq!(home.programs(), 0);
}

#[test]
fn an_interface_that_goes_ends_it_with_a_remedy() {
    let home = Home::new();
    let mut daemon = Daemon::start(&home, "window dev wan capacity auto");
    home.ap.run(|| ip::run("link del wan")).unwrap();
    let (status, _, error) = daemon.end();
    assert_eq!(status, Some(2), "{error}");
    assert_eq!(error, "sheaf: wan is gone; start `sheaf window` again when it is back\n");
}

#[test]
fn wrong_input_is_one_line_with_a_remedy_and_leaves_nothing_behind() {
    let home = Home::new();
    for (line, expected) in [
        ("window dev wan9 capacity auto", "no interface \"wan9\"; there are"),
        ("window capacity auto", "dev is missing; write dev eth0"),
        ("window dev wan", "write capacity 20mbit, auto, or link"),
        ("window dev wan capacity 20", "capacity 20 has no unit; write 20mbit"),
        ("window dev lo capacity link", "lo does not tell its speed; give capacity RATE"),
        ("window dev wan capacity auto formula 3", "give maxmin, 1 or 2"),
        ("window dev wan capacity auto slack 1", "slack 1 has no unit; write 1ms"),
        ("window dev wan capcity auto", "did you mean \"capacity\"?"),
        ("show dev wan", "no windows are controlled"),
    ] {
        let output = home.run(line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{line}: {said}");
        assert!(output.stdout.is_empty(), "{line}");
    }
    assert_eq!(home.programs(), 0);
}
