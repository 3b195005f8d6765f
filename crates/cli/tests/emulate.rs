//! `sheaf emulate` on real interfaces between namespaces. Needs root.

mod many;
mod patient;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use patient::patient;
use serde_json::Value;
use sheaf_netio::ethtool::{self, Feature};
use sheaf_netio::netns::Namespace;
use sheaf_netio::vnet_packet::{Receive, VnetSocket};
use sheaf_netio::{clock, ip, vnet};
use sheaf_wire::checksum::{fold, sum};
use sheaf_wire::ip::Ip;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");
/// A receiver that waits this long will get nothing more.
const LONG: Duration = Duration::from_secs(10);

/// A host with 10.9.0.1 and fd09::1, a box with the interfaces `near` and `far`, and a host with
/// 10.9.0.2 and fd09::2.
struct Row {
    left: Namespace,
    middle: Namespace,
    right: Namespace,
}

impl Row {
    /// `known`: the hosts know each other's link addresses and send nothing of their own.
    fn new(known: bool) -> Row {
        let row = Row {
            left: Namespace::new().unwrap(),
            middle: Namespace::new().unwrap(),
            right: Namespace::new().unwrap(),
        };
        row.middle
            .run(|| {
                std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")?;
                for (dev, host, ours) in [("near", &row.left, 1), ("far", &row.right, 2)] {
                    let host = host.path();
                    ip::run(&format!(
                        "link add {dev} type veth peer name eth0 address 02:00:00:00:00:0{ours} \
                         netns {host}"
                    ))?;
                    ip::run(&format!("link set {dev} up"))?;
                }
                Ok(())
            })
            .unwrap();
        for (host, ours, theirs) in [(&row.left, 1, 2), (&row.right, 2, 1)] {
            host.run(|| {
                if known {
                    std::fs::write("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "1")?;
                    let link = format!("lladdr 02:00:00:00:00:0{theirs} dev eth0 nud permanent");
                    ip::run(&format!("neigh add 10.9.0.{theirs} {link}"))?;
                } else {
                    ip::run(&format!("addr add fd09::{ours}/64 dev eth0 nodad"))?;
                }
                ip::run(&format!("addr add 10.9.0.{ours}/24 dev eth0"))?;
                ip::run("link set eth0 up")
            })
            .unwrap();
        }
        row
    }
}

fn command(namespace: &Namespace, line: &str) -> Command {
    let mut command = Command::new(SHEAF);
    command.arg("emulate").args(line.split_whitespace());
    namespace.enter(&mut command);
    command
}

fn run(namespace: &Namespace, line: &str) -> Output {
    command(namespace, line).output().unwrap()
}

/// `sheaf emulate`, killed at the latest when the test ends.
struct Daemon {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Daemon {
    /// At work: it has said so.
    fn start(namespace: &Namespace, line: &str) -> Daemon {
        let mut command = command(namespace, line);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        out.read_line(&mut first).unwrap();
        assert!(first.starts_with("emulating "), "{first}");
        Daemon { child, out }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Waits for its end; the status, and what it printed and complained.
    fn end(&mut self) -> (Option<i32>, String, String) {
        let (mut out, mut error) = (String::new(), String::new());
        self.out.read_to_string(&mut out).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        (self.child.wait().unwrap().code(), out, error)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn show(namespace: &Namespace, dev: &str) -> Value {
    let output = run(namespace, &format!("show {dev} --json"));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn count(status: &Value, link: &str, name: &str) -> u64 {
    let link = &status["links"][link];
    link[name].as_u64().or(link["causes"][name].as_u64()).unwrap_or(0)
}

/// Asks until `enough` is shown.
fn shown(namespace: &Namespace, dev: &str, enough: impl Fn(&Value) -> bool) -> Value {
    loop {
        let status = show(namespace, dev);
        if enough(&status) {
            return status;
        }
    }
}

fn sockets(from: &Namespace, to: (&Namespace, &str)) -> (UdpSocket, UdpSocket) {
    let any = if to.1.contains('[') { "[::]:0" } else { "0.0.0.0:0" };
    let from = from.run(|| UdpSocket::bind(any)).unwrap();
    let receiver = to.0.run(|| UdpSocket::bind(to.1)).unwrap();
    receiver.set_read_timeout(Some(LONG)).unwrap();
    from.set_read_timeout(Some(LONG)).unwrap();
    from.connect(to.1).unwrap();
    (from, receiver)
}

fn send(socket: &UdpSocket, numbers: std::ops::Range<u32>) {
    for number in numbers {
        socket.send(&number.to_be_bytes()).unwrap();
    }
}

fn numbers(socket: &UdpSocket, count: u32) -> Vec<u32> {
    let mut bytes = [0; 4];
    let mut number = |_| {
        patient(|| socket.recv(&mut bytes)).expect("packets are missing");
        u32::from_be_bytes(bytes)
    };
    (0..count).map(&mut number).collect()
}

/// Sends `len` bytes by TCP and checks that the same arrive.
fn bulk(from: &Namespace, to: (&Namespace, &str), len: usize) {
    let listener = to.0.run(|| TcpListener::bind(to.1)).unwrap();
    let pattern = |at: usize| (at % 251) as u8;
    let sender = from.run(|| TcpStream::connect(to.1));
    let (mut sender, (mut receiver, _)) = (sender.unwrap(), listener.accept().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let bytes: Vec<u8> = (0..len).map(pattern).collect();
            sender.write_all(&bytes).unwrap();
        });
        let mut bytes = Vec::new();
        receiver.set_read_timeout(Some(LONG)).unwrap();
        receiver.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len(), len);
        assert!((0..len).all(|at| bytes[at] == pattern(at)));
    });
}

#[test]
fn a_link_carries_arp_ipv4_ipv6_and_bulk_tcp_whole() {
    for options in ["delay 1ms", "rate 1gbit"] {
        let row = Row::new(false);
        let _daemon = Daemon::start(&row.middle, &format!("link near far {options}"));
        for address in ["10.9.0.2:5004", "[fd09::2]:5004"] {
            let (from, to) = sockets(&row.left, (&row.right, address));
            // The first one alone: what waits for a link address is overtaken in the host itself.
            send(&from, 0..1);
            assert_eq!(numbers(&to, 1), [0], "{options} {address}");
            send(&from, 1..50);
            assert_eq!(numbers(&to, 49), (1..50).collect::<Vec<_>>(), "{options} {address}");
            bulk(&row.left, (&row.right, address), 8_000_000);
        }
        let status = show(&row.middle, "near");
        assert!(count(&status, "far to near", "delivered_packets") > 0, "{status}");
    }
}

#[test]
fn segments_of_super_packets_have_right_checksums_on_the_wire() {
    let row = Row::new(true);
    let _daemon = Daemon::start(&row.middle, "link near far rate 1gbit limit 100000");
    let raw = row.right.run(|| VnetSocket::open(ip::index("eth0")?, Receive::Everything));
    let mut raw = raw.unwrap();
    bulk(&row.left, (&row.right, "10.9.0.2:5004"), 2_000_000);
    let (mut segments, mut large) = (0, 0);
    let mut check = |bytes: &[u8], _| {
        let mut bytes = bytes.to_vec();
        large += usize::from(bytes.len() > 1514 + vnet::LEN);
        vnet::finish(&mut bytes);
        let Ok(ip) = Ip::parse(&bytes[vnet::LEN + 14..]) else { return };
        if ip.protocol().0 == 6 {
            let part = ip.transport();
            assert_eq!(fold(sum(part, sum(ip.addresses(), 6 + part.len() as u32))), 0xffff);
            segments += 1;
        }
    };
    while raw.receive(&mut check).unwrap() > 0 {}
    assert!(segments >= 2_000_000 / 1460, "{segments}");
    assert_eq!(large, 0, "each segment travels by itself");
}

#[test]
fn joined_datagrams_arrive_as_they_were_sent_and_the_interfaces_are_left_as_they_were() {
    // As many as a socket of the usual size holds.
    const MANY: u32 = 200;
    // A link that passes them as they came, and one that takes them apart.
    for (options, whole) in [("delay 20ms", true), ("rate 100mbit delay 20ms", false)] {
        let row = Row::new(true);
        let joins = || {
            let is_on = |(dev, name)| {
                let socket = ethtool::open()?;
                Feature::find(&socket, dev, name)?.is_on(&socket, dev)
            };
            let names = ["rx-gro", "rx-udp-gro-forwarding"];
            let all = ["near", "far"].iter().flat_map(|dev| names.map(|name| (*dev, name)));
            row.middle.run(|| all.map(is_on).collect::<Result<Vec<_>, _>>()).unwrap()
        };
        let before = joins();
        let line = format!("link near far {options} limit 10000 --gro 1ms");
        let mut daemon = Daemon::start(&row.middle, &line);
        assert_eq!(joins(), [true; 4], "{options}");
        let (from, to) = sockets(&row.left, (&row.right, "10.9.0.2:5004"));
        let begin = clock::now();
        send(&from, 0..MANY);
        assert_eq!(numbers(&to, MANY), (0..MANY).collect::<Vec<_>>(), "{options}");
        assert!(clock::now() - begin >= Duration::from_millis(20), "none is early: {options}");
        let devices = || std::fs::read_to_string("/proc/thread-self/net/dev");
        let devices = row.right.run(devices).unwrap();
        let line = devices.lines().find_map(|line| line.trim_start().strip_prefix("eth0:"));
        let frames: u64 = line.unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
        match whole {
            true => assert!(frames < MANY.into(), "{frames} frames"),
            false => {
                assert!(frames >= MANY.into(), "{frames} frames: each has a departure of its own")
            }
        }
        daemon.signal(Signal::SIGINT);
        daemon.end();
        assert_eq!(joins(), before, "{options}");
        assert_ne!(before, [true; 4], "this test has seen a change");
    }
}

#[test]
fn with_a_loss_of_100_percent_nothing_arrives_and_all_is_counted() {
    let row = Row::new(true);
    let _daemon = Daemon::start(&row.middle, "link near far loss 100%");
    let (from, to) = sockets(&row.left, (&row.right, "10.9.0.2:5004"));
    send(&from, 0..100);
    let all = |status: &Value| count(status, "near to far", "loss-random") == 100;
    let status = shown(&row.middle, "far", all);
    assert_eq!(count(&status, "near to far", "offered_packets"), 100);
    assert_eq!(count(&status, "near to far", "delivered_packets"), 0);
    to.set_nonblocking(true).unwrap();
    assert!(to.recv(&mut [0; 4]).is_err());
}

#[test]
fn the_packets_of_a_pattern_are_lost_and_no_others() {
    let row = Row::new(true);
    let _daemon = Daemon::start(&row.middle, "link near far loss pattern 3,7-8 10");
    let (from, to) = sockets(&row.left, (&row.right, "10.9.0.2:5004"));
    send(&from, 1..21);
    let expected = [1, 2, 4, 5, 6, 9, 10, 11, 12, 14, 15, 16, 19, 20];
    assert_eq!(numbers(&to, expected.len() as u32), expected);
    assert_eq!(count(&show(&row.middle, "near"), "near to far", "loss-pattern"), 6);
}

#[test]
fn traces_that_are_armed_begin_both_ways_with_the_first_packet() {
    let row = Row::new(true);
    let file = std::env::temp_dir().join(format!("sheaf-armed-{}.csv", std::process::id()));
    // No packet passes once the trace has begun, however soon the second one comes.
    std::fs::write(&file, "time,loss\n0,0\n0.001,100\n").unwrap();
    let trace = format!("--trace {} --once --arm", file.display());
    let _daemon = Daemon::start(&row.middle, &format!("link near far {trace}"));
    std::fs::remove_file(file).unwrap();
    let (from, to) = sockets(&row.left, (&row.right, "10.9.0.2:5004"));
    send(&from, 0..1);
    assert_eq!(numbers(&to, 1), [0]);
    let (begun, row_of_losses) = (clock::now(), Duration::from_millis(1));
    while clock::now() - begun < row_of_losses {}
    to.send_to(&[0; 4], ("10.9.0.1", from.local_addr().unwrap().port())).unwrap();
    shown(&row.middle, "near", |status| count(status, "far to near", "loss-trace") == 1);
}

#[test]
fn an_address_that_every_interface_has_is_no_reason_for_a_warning() {
    let row = Row::new(true);
    let warned = |line: &str| {
        row.middle.run(|| ip::run(line)).unwrap();
        let mut daemon = Daemon::start(&row.middle, "link near far");
        daemon.signal(Signal::SIGTERM);
        daemon.end().2.contains("near has addresses")
    };
    row.middle.run(|| std::fs::write("/proc/sys/net/ipv6/conf/near/disable_ipv6", "0")).unwrap();
    assert!(!warned("addr add fe80::7/64 dev near nodad"));
    assert!(warned("addr add 10.9.0.9/24 dev near"));
}

#[test]
fn a_change_keeps_what_is_queued() {
    let row = Row::new(true);
    let _daemon = Daemon::start(&row.middle, "link near far rate 100bit limit 100");
    let (from, to) = sockets(&row.left, (&row.right, "10.9.0.2:5004"));
    send(&from, 0..50);
    shown(&row.middle, "near", |status| count(status, "near to far", "rate_queue_packets") == 50);
    let output = run(&row.middle, "change link near rate 100mbit delay 1ms limit 100");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(numbers(&to, 50), (0..50).collect::<Vec<_>>());

    let output = run(&row.middle, "change link near rate");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("rate lacks its value; write rate 10mbit"), "{said}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn changes_under_load_lose_nothing() {
    let row = Row::new(true);
    let _daemon = Daemon::start(&row.middle, "link near far rate 2mbit limit 100000");
    let (from, to) = sockets(&row.left, (&row.right, "10.9.0.2:5004"));
    const ALL: u32 = 20_000;
    // Nobody reads while the changes are made.
    let buffer = nix::sys::socket::sockopt::RcvBufForce;
    nix::sys::socket::setsockopt(&to, buffer, &(64 << 20)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Faster than any of the rates, so that there is always a queue to carry over.
            for number in 0..ALL {
                send(&from, number..number + 1);
                if number % 100 == 0 {
                    std::thread::yield_now();
                }
            }
        });
        for link in [
            "rate 5mbit delay 5ms limit 100000",
            "rate 3mbit sched wf2q+ limit 100000 queue 0 weight 1 queue 1 weight 2",
            "rate 50mbit sched drr limit 100000 queue 0 weight 3",
            "rate 100mbit delay 1ms limit 100000",
        ] {
            let output = run(&row.middle, &format!("change link near {link}"));
            assert!(output.status.success(), "{output:?}");
        }
    });
    let mut got = numbers(&to, ALL);
    got.sort_unstable();
    assert!(got.into_iter().eq(0..ALL));
    let status = show(&row.middle, "near");
    assert_eq!(count(&status, "near to far", "delivered_packets"), u64::from(ALL), "{status}");
}

/// Offers both classes more than the link carries, and answers how many of the first `count`
/// packets that leave are of the second.
fn second_class(row: &Row, count: u32) -> usize {
    let (from, to) = sockets(&row.left, (&row.right, "10.9.0.2:5004"));
    for number in 0..500 {
        for (class, tos) in [(0, 0), (1, 46 << 2)] {
            nix::sys::socket::setsockopt(&from, nix::sys::socket::sockopt::Ipv4Tos, &tos).unwrap();
            send(&from, 2 * number + class..2 * number + class + 1);
        }
    }
    numbers(&to, count).iter().filter(|number| *number % 2 == 1).count()
}

#[test]
fn words_of_weighted_queues_share_a_link_by_class() {
    for scheduler in ["wf2q+", "drr quantum 100"] {
        let row = Row::new(true);
        let words = "limit 1000 queue 0 weight 1 queue 1 weight 3 dscp ef";
        let line = format!("link near far rate 200kbit sched {scheduler} {words}");
        let _daemon = Daemon::start(&row.middle, &line);
        let second = second_class(&row, 200);
        // The first packets leave while the second class is not there yet.
        assert!((145..=153).contains(&second), "{scheduler}: {second} of 200");
    }
}

#[test]
fn words_of_red_and_gred_drop_and_count_under_their_names() {
    let red = "limit 60000 min 500 max 2000 avpkt 100 burst 6 probability 10%";
    for (words, cause) in [(format!("red {red}"), "red"), (format!("gred vq {red}"), "gred")] {
        let row = Row::new(true);
        let line = format!("link near far rate 100kbit queue {words}");
        let _daemon = Daemon::start(&row.middle, &line);
        let (from, _to) = sockets(&row.left, (&row.right, "10.9.0.2:5004"));
        send(&from, 0..300);
        let all = |status: &Value| count(status, "near to far", "offered_packets") == 300;
        let status = shown(&row.middle, "near", all);
        assert!(count(&status, "near to far", cause) > 100, "{status}");
        assert_eq!(count(&status, "near to far", "rate-queue-full"), 0, "{status}");
    }
}

#[test]
fn rules_ask_about_interfaces_and_masks_give_each_source_a_link() {
    let row = Row::new(true);
    let file = std::env::temp_dir().join(format!("sheaf-masks-{}.toml", std::process::id()));
    let text = "[pipe.each]\nlink = \"rate 1mbit delay 1ms\"\nmask = \"dst-port 0xffff\"\n\
                flows = 2\nexpire = \"60s\"\n[pipe.back]\nlink = \"delay 1ms\"\n\
                [[rule]]\nprotocol = \"udp\"\ninterface = \"near\"\npipes = [\"each\"]\n\
                [[rule]]\ninterface = \"far\"\npipes = [\"back\"]\n";
    std::fs::write(&file, text).unwrap();
    let mut daemon =
        Daemon::start(&row.middle, &format!("link near far --rules {}", file.display()));
    std::fs::remove_file(file).unwrap();
    let ways = ["10.9.0.2:5004", "10.9.0.2:5005", "10.9.0.2:5006"];
    let ways = ways.map(|address| sockets(&row.left, (&row.right, address)));
    for (from, to) in &ways {
        send(from, 0..3);
        assert_eq!(numbers(to, 3), [0, 1, 2]);
    }
    let (from, to) = &ways[0];
    to.send_to(&[0; 4], from.local_addr().map(|own| ("10.9.0.1", own.port())).unwrap()).unwrap();
    numbers(from, 1);
    let status = show(&row.middle, "near");
    assert_eq!(count(&status, "pipe each", "offered_packets"), 9, "{status}");
    assert_eq!(
        count(&status, "pipe each", "flows"),
        2,
        "the third took over an idle one: {status}"
    );
    assert_eq!(count(&status, "pipe back", "offered_packets"), 1, "{status}");
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.end().1.contains("flows 2, gone 0, gave way 1, without a link 0 pkt"));
}

#[test]
fn the_emulator_runs_with_real_time_priority_where_it_is_asked_to() {
    let row = Row::new(true);
    let daemon = Daemon::start(&row.middle, "link near far delay 1ms --awake --fifo 7 --spin 20us");
    // Field 40 and 41 of proc_pid_stat(5).
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.child.id())).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<&str> = fields.split(' ').collect();
    assert_eq!((fields[37], fields[38]), ("7", "1"), "priority 7 of SCHED_FIFO: {stat}");
}

#[test]
fn packets_on_the_delay_line_take_a_place_in_a_single_queue() {
    let row = Row::new(true);
    let _daemon = Daemon::start(&row.middle, "link near far rate 1mbit delay 1s limit 10 single");
    let (from, _to) = sockets(&row.left, (&row.right, "10.9.0.2:5004"));
    let (mut under_way, mut dropped) = (0, 0);
    while under_way < 10 || dropped < 100 {
        send(&from, 0..50);
        let status = show(&row.middle, "near");
        under_way = count(&status, "near to far", "delay_line_packets");
        let waiting = count(&status, "near to far", "rate_queue_packets");
        assert!(waiting + under_way <= 10, "{status}");
        dropped = count(&status, "near to far", "rate-queue-full");
    }
}

#[test]
fn packets_on_the_delay_line_take_no_place_in_the_rate_queue() {
    let row = Row::new(true);
    let _daemon = Daemon::start(&row.middle, "link near far rate 1mbit delay 1s limit 10");
    let (from, _to) = sockets(&row.left, (&row.right, "10.9.0.2:5004"));
    let (mut under_way, mut dropped) = (0, 0);
    while under_way <= 10 || dropped == 0 {
        send(&from, 0..50);
        let status = show(&row.middle, "near");
        let waiting = count(&status, "near to far", "rate_queue_packets");
        assert!(waiting <= 10, "{status}");
        under_way = count(&status, "near to far", "delay_line_packets");
        dropped = count(&status, "near to far", "rate-queue-full");
    }
}

#[test]
fn an_echo_through_20_ms_each_way_never_takes_less_than_40_ms() {
    let row = Row::new(true);
    let _daemon = Daemon::start(&row.middle, "link near far delay 20ms");
    let (from, to) = sockets(&row.left, (&row.right, "10.9.0.2:5004"));
    for number in 0..10 {
        let sent = clock::now();
        send(&from, number..number + 1);
        let (len, back) = patient(|| to.recv_from(&mut [0; 4])).unwrap();
        to.send_to(&number.to_be_bytes()[..len], back).unwrap();
        assert_eq!(numbers(&from, 1), [number]);
        let took = clock::now() - sent;
        assert!(took >= Duration::from_millis(40), "{took:?}");
    }
}

#[test]
fn one_interface_is_emulated_both_ways_and_left_as_it_was_by_a_kill() {
    let row = Row::new(false);
    // The middle is no part of this: its interfaces become one cable.
    let _cable = Daemon::start(&row.middle, "link near far");
    let (from, to) = sockets(&row.left, (&row.right, "10.9.0.2:5004"));
    send(&from, 0..1);
    numbers(&to, 1);
    let state = || ip::output("-4 -o address").and_then(|a| Ok(a + &ip::output("-4 route")?));
    let before = row.left.run(state).unwrap();
    let mut daemon = Daemon::start(&row.left, "dev eth0 both delay 20ms");
    let sent = clock::now();
    send(&from, 0..1);
    let (len, back) = patient(|| to.recv_from(&mut [0; 4])).unwrap();
    assert!(clock::now() - sent >= Duration::from_millis(20));
    to.send_to(&[0; 4][..len], back).unwrap();
    numbers(&from, 1);
    assert!(clock::now() - sent >= Duration::from_millis(40));
    bulk(&row.left, (&row.right, "10.9.0.2:5005"), 8_000_000);
    bulk(&row.left, (&row.right, "[fd09::2]:5005"), 2_000_000);
    let status = show(&row.left, "eth0");
    assert!(count(&status, "eth0 ingress", "delivered_packets") > 0, "{status}");
    let second = run(&row.left, "dev eth0 delay 1ms");
    assert!(String::from_utf8_lossy(&second.stderr).contains("emulated already"));

    daemon.signal(Signal::SIGKILL);
    daemon.end();
    send(&from, 7..107);
    assert_eq!(numbers(&to, 100), (7..107).collect::<Vec<_>>());
    assert_eq!(row.left.run(state).unwrap(), before);
}

#[test]
fn an_interface_that_goes_away_ends_the_run_with_its_name() {
    let row = Row::new(true);
    for (space, line, dev) in
        [(&row.left, "dev eth0 delay 1ms", "eth0"), (&row.middle, "link near far", "far")]
    {
        let mut daemon = Daemon::start(space, line);
        space.run(|| ip::run(&format!("link del {dev}"))).unwrap();
        let (status, _, error) = daemon.end();
        assert_eq!(status, Some(2), "{error}");
        assert!(error.contains("went away") && error.lines().count() == 1, "{error}");
        // The cable is gone at both ends; lay another for the second turn.
        if dev == "eth0" {
            row.middle.run(|| ip::run("link add near type veth peer name other")).unwrap();
            row.middle.run(|| ip::run("link set near up")).unwrap();
        }
    }
}

#[test]
fn a_shell_reaches_the_host_through_the_link_and_its_status_is_ours() {
    let host = Namespace::new().unwrap();
    let shell = |options: &str, script: &str| {
        let mut command = command(&host, &format!("shell {options} --"));
        command.args(["sh", "-c", script]).output().unwrap()
    };
    assert_eq!(shell("delay 1ms", "exit 7").status.code(), Some(7));
    assert_eq!(shell("delay 1ms", "kill -9 $$").status.code(), Some(137));
    let output = shell("delay 1ms", "echo of the command");
    assert_eq!(output.stdout, b"of the command\n", "the standard output is the command's");
    let output = shell("delay 20ms", "ping -c 2 -i 0.2 -q $SHEAF_HOST");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let (_, times) = said.split_once("mdev = ").expect("ping tells the times");
    let least: f64 = times.split('/').next().unwrap().parse().unwrap();
    assert!(least >= 40.0, "{said}");
    let missing = run(&host, "shell -- /no/such/command");
    assert_eq!(missing.status.code(), Some(2));
    assert!(host.run(|| ip::output("-br link")).unwrap().lines().count() == 1);
}

#[test]
fn a_capture_tells_the_cause_of_every_drop_and_delay() {
    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption::Comment;
    let row = Row::new(true);
    let file = std::env::temp_dir().join(format!("sheaf-{}.pcapng", std::process::id()));
    let line = format!("link near far delay 1ms loss 50% seed 5 --pcap {}", file.display());
    let mut daemon = Daemon::start(&row.middle, &line);
    let (from, to) = sockets(&row.left, (&row.right, "10.9.0.2:5004"));
    send(&from, 0..100);
    let status = shown(&row.middle, "near", |status| {
        let count = |name| count(status, "near to far", name);
        count("delivered_packets") + count("loss-random") == 100
    });
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.end().0, Some(0));
    let read = std::fs::File::open(&file).unwrap();
    let mut reader = pcap_file::pcapng::PcapNgReader::new(read).unwrap();
    let (mut dropped, mut delayed) = (0, 0);
    while let Some(block) = reader.next_block() {
        let Some(packet) = block.unwrap().into_enhanced_packet() else { continue };
        let [Comment(comment)] = packet.options.as_slice() else { panic!("{packet:?}") };
        dropped += u64::from(comment.starts_with("dropped: loss-random"));
        delayed += u64::from(comment.starts_with("delay (1."));
        // What a capture shows is finished, though the sender left it to the device.
        let ip = Ip::parse(&packet.data[14..]).unwrap();
        let part = ip.transport();
        assert_eq!(fold(sum(part, sum(ip.addresses(), 17 + part.len() as u32))), 0xffff);
    }
    assert_eq!(dropped, count(&status, "near to far", "loss-random"));
    assert_eq!(delayed, count(&status, "near to far", "delivered_packets"));
    assert_eq!(numbers(&to, delayed as u32).len() as u64, delayed);
    std::fs::remove_file(file).unwrap();
}

#[test]
fn the_same_seed_loses_the_same_packets() {
    let survivors = || {
        let row = Row::new(true);
        let _daemon = Daemon::start(&row.middle, "link near far loss 50% seed 11");
        let (from, to) = sockets(&row.left, (&row.right, "10.9.0.2:5004"));
        send(&from, 0..64);
        let status = shown(&row.middle, "near", |status| {
            let count = |name| count(status, "near to far", name);
            count("delivered_packets") + count("loss-random") == 64
        });
        numbers(&to, count(&status, "near to far", "delivered_packets") as u32)
    };
    assert_eq!(survivors(), survivors());
}

#[test]
fn rules_lead_packets_through_pipes_or_drop_them() {
    let row = Row::new(true);
    let file = std::env::temp_dir().join(format!("sheaf-rules-{}.toml", std::process::id()));
    let text = "[pipe.slow]\nlink = \"delay 5ms\"\n\
                [[rule]]\nprotocol = \"udp\"\ndestination_ports = \"5005\"\naction = \"deny\"\n\
                [[rule]]\nprotocol = \"udp\"\ndirection = \"out\"\npipes = [\"slow\"]\n";
    std::fs::write(&file, text).unwrap();
    let _daemon = Daemon::start(&row.middle, &format!("link near far --rules {}", file.display()));
    std::fs::remove_file(file).unwrap();
    let (denied, _never) = sockets(&row.left, (&row.right, "10.9.0.2:5005"));
    let (from, to) = sockets(&row.left, (&row.right, "10.9.0.2:5004"));
    send(&denied, 0..10);
    send(&from, 0..10);
    assert_eq!(numbers(&to, 10), (0..10).collect::<Vec<_>>());
    let status = show(&row.middle, "near");
    assert_eq!(status["denied"], 10, "{status}");
    assert_eq!(count(&status, "pipe slow", "delay"), 10, "{status}");
    let output = run(&row.middle, "change link near pipe slow delay 1ms");
    assert!(output.status.success(), "{output:?}");
    let output = run(&row.middle, "change link near delay 1ms");
    assert!(String::from_utf8_lossy(&output.stderr).contains("name one: pipe slow"));
}

/// A file of rules with these classes, where EF takes `calls` and all else `bulk`, behind a pipe
/// that can hold both back.
fn classes(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let rules = "[[rule]]\ndscp = \"ef\"\npipes = [\"hold\", \"calls\"]\n\
                 [[rule]]\npipes = [\"hold\", \"bulk\"]\n";
    writeln!(file, "{text}\n{rules}").unwrap();
    file
}

#[test]
fn classes_share_a_cable_by_rate_and_lend_what_is_left_up_to_the_ceil() {
    let row = Row::new(true);
    let file = classes(
        "[pipe.hold]\nlink = \"rate 0 limit 5000\"\n[class.home]\nrate = \"200kbit\"\n\
         [class.calls]\nparent = \"home\"\nrate = \"100kbit\"\nceil = \"160kbit\"\nburst = 0\n\
         cburst = 100\n\
         link = \"delay 3ms\"\n\
         [class.bulk]\nparent = \"home\"\nrate = \"20kbit\"\nceil = \"200kbit\"\nburst = 0\n\
         prio = 1\nlink = \"delay 50ms loss pattern 2,5\"\n",
    );
    let line = format!("link near far --rules {}", file.path().display());
    let _daemon = Daemon::start(&row.middle, &line);
    let (from, to) = sockets(&row.left, (&row.right, "10.9.0.2:5004"));
    for number in 0..500 {
        for (class, tos) in [(0, 0), (1, 46 << 2)] {
            nix::sys::socket::setsockopt(&from, nix::sys::socket::sockopt::Ipv4Tos, &tos).unwrap();
            send(&from, 2 * number + class..2 * number + class + 1);
        }
    }
    // All come to the classes at one moment, so that what follows is arithmetic alone.
    shown(&row.middle, "near", |status| count(status, "pipe hold", "offered_packets") == 1000);
    let output = run(&row.middle, "change link near pipe hold limit 5000");
    assert!(output.status.success(), "{output:?}");
    let all = numbers(&to, 998);
    let of = |class| all.iter().copied().filter(move |number| number % 2 == class);
    let (bulk, calls) = (of(0).collect::<Vec<_>>(), of(1).collect::<Vec<_>>());
    assert!(calls.iter().copied().eq((0..500).map(|number| 2 * number + 1)), "{calls:?}");
    let lost = [2, 8];
    assert!(
        bulk.iter().copied().eq((0..1000).step_by(2).filter(|n| !lost.contains(n))),
        "{bulk:?}"
    );
    let first = all[..200].iter().filter(|number| **number % 2 == 1).count();
    // Calls have 160 of 200 kbit/s, and those of bulk among them left 47 ms before.
    assert!((160..=170).contains(&first), "{first} of 200");
    let status = show(&row.middle, "near");
    assert_eq!(count(&status, "class bulk", "loss-pattern"), 2, "{status}");
    assert_eq!(count(&status, "class calls", "delivered_packets"), 500, "{status}");
    let class = |name: &str, key: &str| status["links"][name]["class"][key].as_u64().unwrap();
    assert_eq!(class("class home", "sent_packets"), 1000, "{status}");
    let (lent, borrowed) = (class("class home", "lent_packets"), "borrowed_packets");
    assert_eq!(lent, class("class calls", borrowed) + class("class bulk", borrowed), "{status}");
    assert!(class("class calls", borrowed) > 100, "{status}");
}

#[test]
fn terms_of_classes_change_while_packets_wait_and_wrong_ones_change_nothing() {
    let row = Row::new(true);
    let file = classes(
        "[pipe.hold]\nlink = \"\"\n[class.home]\nrate = \"100bit\"\n\
         [class.calls]\nparent = \"home\"\nrate = \"50bit\"\nlink = \"limit 10\"\n\
         [class.bulk]\nparent = \"home\"\nrate = \"50bit\"\n",
    );
    let line = format!("link near far --rules {}", file.path().display());
    let _daemon = Daemon::start(&row.middle, &line);
    let (from, to) = sockets(&row.left, (&row.right, "10.9.0.2:5004"));
    send(&from, 0..50);
    shown(&row.middle, "near", |status| count(status, "class bulk", "rate_queue_packets") == 50);
    for (change, expected) in [
        ("class bulk rate 60bit ceil 90bit", "110bit together, more than its rate 100bit; change"),
        ("class bulk rate 40bit ceil 30bit", "ceil 30bit is below rate 40bit"),
        ("class home ceil 200bit", "a root has nobody to borrow from"),
        ("class bluk rate 40bit", "there is no class bluk; there are hold, home, bulk, calls"),
        ("class bulk", "class bulk says nothing; write class bulk rate 2mbit"),
        ("class bulk rate 40bit delay 1ms", "write pipe bulk for its link"),
        ("pipe home delay 1ms", "class home has others below it"),
        ("pipe calls rate 1mbit burst 3k", "burst is for a link alone"),
    ] {
        let output = run(&row.middle, &format!("change link near {change}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{change}: {said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{change}: {said}");
    }
    for change in ["pipe bulk delay 1ms", "class home rate 10mbit", "class bulk ceil 10mbit prio 3"]
    {
        let output = run(&row.middle, &format!("change link near {change}"));
        assert!(output.status.success(), "{output:?}");
    }
    assert_eq!(numbers(&to, 50), (0..50).collect::<Vec<_>>());
    let status = show(&row.middle, "near");
    let words = |name: &str| status["links"][name]["class"]["terms"]["words"].clone();
    assert_eq!(words("class bulk"), "rate 50bit ceil 10mbit parent home prio 3");
    assert_eq!(words("class home"), "rate 10mbit");
    bulk(&row.left, (&row.right, "10.9.0.2:5005"), 2_000_000);
}

#[test]
fn an_audit_over_its_budget_is_told_and_ends_with_status_1() {
    let row = Row::new(true);
    let mut daemon = Daemon::start(&row.middle, "link near far delay 1ms --audit --budget 0");
    let (from, to) = sockets(&row.left, (&row.right, "10.9.0.2:5004"));
    send(&from, 0..10);
    numbers(&to, 10);
    daemon.signal(Signal::SIGINT);
    let (status, out, _) = daemon.end();
    assert_eq!(status, Some(1), "{out}");
    assert!(out.contains("over budget: p99 of lateness"), "{out}");
}

#[test]
fn a_ping_log_becomes_a_distribution_that_a_link_takes() {
    let row = Row::new(true);
    let name = |kind| std::env::temp_dir().join(format!("sheaf-{}.{kind}", std::process::id()));
    let (log, dist) = (name("log"), name("dist"));
    let line = |at: u32| format!("64 bytes from 10.0.0.2: icmp_seq={at} ttl=64 time={at}.5 ms\n");
    std::fs::write(&log, (1..50).map(line).collect::<String>()).unwrap();
    let output = run(&row.middle, &format!("dist {} --out {}", log.display(), dist.display()));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("49 round trips: delay 25.500ms"), "{said}");
    let line = format!("link near far delay 5ms 1ms distribution {}", dist.display());
    let _daemon = Daemon::start(&row.middle, &line);
    std::fs::remove_file(log).unwrap();
    std::fs::remove_file(dist).unwrap();
}

#[test]
fn wrong_input_is_one_line_with_a_remedy() {
    let row = Row::new(true);
    let pipe = std::env::temp_dir().join(format!("sheaf-{}.pipe", std::process::id()));
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR)
        .unwrap();
    let unread = format!("link near far --pcap {}", pipe.display());
    for (line, expected) in [
        (unread.as_str(), "start its reader before"),
        ("link near", "link lacks IF2, such as eth2; add it"),
        ("link near wlan9", "no interface \"wlan9\"; there are"),
        ("link near far --gro 0us", "--gro takes more than 0 and at most 1ms; give 100us"),
        ("link near far --gro 2ms", "--gro takes more than 0 and at most 1ms; give 100us"),
        ("dev near --gro 100us", "--gro is for packets between two interfaces; leave it out"),
        ("link near lo", "lo is not an Ethernet interface; give one that is"),
        ("link near far dellay 1ms", "did you mean \"delay\"?"),
        ("link near far loss 101%", "is not a percentage"),
        ("link near far --rules /no/such", "cannot read /no/such"),
        ("link near far --pcap /no/such/file", "cannot write /no/such/file"),
        ("dev wlan9 delay 1ms", "no interface \"wlan9\""),
        ("dev lo delay 1ms", "lo is not an Ethernet interface; give one that is"),
        ("change dev near delay 1ms", "nothing emulates on near"),
        ("show near", "nothing emulates on near"),
        ("show --json", "is not an interface; write it like eth0"),
        ("dist /no/such", "cannot read /no/such"),
        ("lnik near far", "did you mean \"link\"?"),
    ] {
        let output = run(&row.middle, line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{line}: {said}");
        assert!(output.stdout.is_empty(), "{line}");
    }
    std::fs::remove_file(pipe).unwrap();
}

/// `count` links of one process, `ANUMBER` to `BNUMBER`, of a box whose other ends are `pANUMBER`
/// and `pBNUMBER`, each with `options` of its own in place of `common`.
struct Many {
    middle: Namespace,
    file: tempfile::NamedTempFile,
}

impl Many {
    fn new(count: usize, common: &str, options: &[&str]) -> Many {
        let middle = Namespace::new().unwrap();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "name = \"many\"\nthreads = 2\noptions = \"{common}\"").unwrap();
        middle.run(|| many::links(&mut file, count, options)).unwrap();
        Many { middle, file }
    }

    fn start(&self) -> Daemon {
        Daemon::start(&self.middle, &format!("links {}", self.file.path().display()))
    }

    fn open(&self, dev: &str) -> VnetSocket {
        let open = || VnetSocket::open(ip::index(dev)?, Receive::Everything);
        self.middle.run(open).unwrap()
    }

    /// Time that a frame takes through link `number`, out or back.
    fn takes(&self, [from, to]: [&str; 2]) -> Duration {
        let (mut from, mut to) = (self.open(from), self.open(to));
        let begin = clock::now();
        from.send([frame().as_slice()]);
        let mut got = 0;
        while got == 0 {
            assert!(clock::now() - begin < LONG, "nothing arrives");
            to.receive(|bytes, _| got += usize::from(bytes.ends_with(&[9; 50]))).unwrap();
        }
        Duration::from_nanos((clock::now() - begin).as_nanos() as u64)
    }
}

/// A frame of no protocol that anybody answers.
fn frame() -> Vec<u8> {
    let mut frame = vec![0; vnet::LEN];
    frame.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame.extend_from_slice(&[9; 50]);
    frame
}

#[test]
fn each_of_many_links_has_its_own_delay_is_changed_alone_and_may_go_alone() {
    let many = Many::new(3, "delay 20ms", &["delay 1ms", "delay 100ms"]);
    let mut daemon = many.start();
    const MS: Duration = Duration::from_millis(1);
    assert!(many.takes(["pa1", "pb1"]) >= 100 * MS);
    assert!(many.takes(["pb2", "pa2"]) >= 20 * MS);
    // Of a wake-up that is as late as 50 ms there are few, and not many in a row.
    let soon = |ends: [&str; 2]| (0..20).any(|_| many.takes(ends) < 50 * MS);
    assert!(soon(["pa0", "pb0"]) && soon(["pb0", "pa0"]));
    assert!(run(&many.middle, "change link b1 delay 1ms").status.success());
    assert!(soon(["pa1", "pb1"]) && soon(["pb1", "pa1"]));
    assert!(many.takes(["pa2", "pb2"]) >= 20 * MS);

    // By the name of the file or of any interface.
    for name in ["many", "a0", "b2"] {
        let status = show(&many.middle, name);
        assert_eq!(status["links"].as_object().unwrap().len(), 6, "{status}");
        assert!(count(&status, "a1 to b1", "delivered_packets") >= 2, "{status}");
        assert_eq!(
            status["links"]["b1 to a1"]["settings"]["words"],
            "delay 1ms queue fifo limit 1000"
        );
    }
    let refused = run(&many.middle, "change link many delay 1ms");
    let refused = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.contains("many has no link here; name one of its interfaces"), "{refused}");

    // One goes, the others go on; with the last the program ends.
    many.middle.run(|| ip::run("link del a0")).unwrap();
    shown(&many.middle, "many", |status| status["links"].as_object().unwrap().len() == 4);
    assert!(many.takes(["pa2", "pb2"]) >= 20 * MS);
    many.middle.run(|| ip::run("link del b1").and_then(|()| ip::run("link del a2"))).unwrap();
    let (code, _, error) = daemon.end();
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("interface a0 went away, and its link has ended"), "{error}");
}

#[test]
fn single_interfaces_are_links_of_many_too_and_left_as_they_were_by_a_kill() {
    let row = Row::new(true);
    let _cable = Daemon::start(&row.middle, "link near far");
    // A second cable between the hosts.
    let peer = format!("link add eth1 type veth peer name eth1 netns {}", row.right.path());
    row.left.run(|| ip::run(&peer)).unwrap();
    for (host, ours) in [(&row.left, 1), (&row.right, 2)] {
        let up = || {
            ip::run(&format!("addr add 10.9.1.{ours}/24 dev eth1"))?;
            ip::run("link set eth1 up")
        };
        host.run(up).unwrap();
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let links = "name = \"two\"\n[[link]]\ndev = \"eth0\"\nways = \"both\"\n\
                 options = \"delay 20ms\"\nreverse = \"delay 30ms\"\n\
                 [[link]]\ndev = \"eth1\"\noptions = \"loss 100%\"\n";
    file.write_all(links.as_bytes()).unwrap();
    let (from, to) = sockets(&row.left, (&row.right, "10.9.0.2:5004"));
    let (second, far) = sockets(&row.left, (&row.right, "10.9.1.2:5004"));
    // Both know the other's link address.
    send(&second, 0..1);
    numbers(&far, 1);
    let mut daemon = Daemon::start(&row.left, &format!("links {}", file.path().display()));
    let sent = clock::now();
    send(&from, 0..1);
    let (_, back) = patient(|| to.recv_from(&mut [0; 4])).unwrap();
    assert!(clock::now() - sent >= Duration::from_millis(20));
    to.send_to(&[0; 4], back).unwrap();
    numbers(&from, 1);
    assert!(clock::now() - sent >= Duration::from_millis(50));
    send(&second, 0..10);
    let lost = |status: &Value| count(status, "eth1 egress", "loss-random") >= 10;
    let status = shown(&row.left, "eth1", lost);
    let links: Vec<_> = status["links"].as_object().unwrap().keys().collect();
    assert_eq!(links, ["eth0 egress", "eth0 ingress", "eth1 egress"]);
    assert_eq!(count(&status, "eth0 egress", "loss-random"), 0, "{status}");
    // What arrives by the second one is not emulated.
    far.send_to(&[0, 0, 0, 5], second.local_addr().unwrap()).unwrap();
    assert_eq!(numbers(&second, 1), [5]);
    let output = run(&row.left, "change dev eth1 delay 1ms");
    assert!(output.status.success(), "{output:?}");
    send(&second, 20..30);
    assert_eq!(numbers(&far, 10), (20..30).collect::<Vec<_>>());
    let refused = run(&row.left, "change dev eth1 delay 1ms reverse delay 2ms");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("which is not emulated; leave it out"), "{refused:?}");

    daemon.signal(Signal::SIGKILL);
    daemon.end();
    for (from, to) in [(&from, &to), (&second, &far)] {
        send(from, 7..107);
        assert_eq!(numbers(to, 100), (7..107).collect::<Vec<_>>());
    }
}

#[test]
fn many_links_are_not_started_twice_and_end_when_asked_to() {
    let many = Many::new(2, "", &[]);
    let mut daemon = many.start();
    let file = many.file.path().display();
    for line in [format!("links {file}"), "link a1 b1".to_owned()] {
        let second = run(&many.middle, &line);
        let said = String::from_utf8(second.stderr).unwrap();
        assert!(said.contains("emulated already; stop the other"), "{said}");
    }
    assert!(run(&many.middle, "stop many").status.success());
    let (code, out, _) = daemon.end();
    assert_eq!(code, Some(0));
    assert!(out.contains("a1 to b1: in 0 pkt"), "{out}");
}

#[test]
fn an_idle_link_of_many_takes_less_than_200_kilobytes_even_after_traffic() {
    const COUNT: usize = 60;
    let testbed = Many::new(COUNT, "rate 10mbit delay 20ms", &[]);
    let mut daemon = testbed.start();
    // More than a batch each way through every link.
    let frames: Vec<Vec<u8>> = (0..200).map(|_| frame()).collect();
    for number in 0..COUNT {
        for side in ["pa", "pb"] {
            testbed.open(&format!("{side}{number}")).send(frames.iter().map(Vec::as_slice));
        }
    }
    let all = (COUNT * 2 * 200) as u64;
    let left = |status: &Value| {
        let links = status["links"].as_object().unwrap();
        links.values().map(|link| link["delivered_packets"].as_u64().unwrap()).sum::<u64>()
    };
    shown(&testbed.middle, "many", |status| {
        left(status) + status["missed"].as_u64().unwrap() >= all
    });
    // Without what the process takes for itself, with one link.
    let alone = Many::new(1, "", &[]);
    let alone = many::memory(alone.start().child.id());
    let each = many::memory(daemon.child.id()).saturating_sub(alone) / COUNT as u64;
    eprintln!("{each} bytes a link");
    assert!(each < 200_000, "{each} bytes a link");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.end().0, Some(0));
}
