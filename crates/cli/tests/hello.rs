//! Neighbours that find each other by HELLO, on a bridge of Linux hosts. Needs root.

mod patient;
mod voice;

use nix::sys::socket::{setsockopt, sockopt};
use serde_json::json;
use sheaf_netio::netns::Namespace;
use sheaf_netio::packet::PacketSocket;
use sheaf_netio::poller::Poller;
use sheaf_netio::{clock, ip, timer};
use sheaf_wire::aggfrag;
use sheaf_wire::ethernet::{self, FRAMES};
use sheaf_wire::hello::Formats;
use std::io::{BufRead, BufReader, Lines};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::time::Duration;
use voice::{CALLS, Talk, talk};

const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");
/// A receiver that waits this long gets nothing more.
const LONG: Duration = Duration::from_secs(10);
/// Time between two packets of a call.
const EVERY: Duration = Duration::from_millis(2);
/// IP protocol of meta packets.
const META: u8 = 253;
/// Receive buffer of sockets that are read when all is over, bytes: a call of 500 packets needs a
/// tenth of it.
const BUFFER: usize = 8 << 20;

/// Hosts on one bridge; host i has 10.7.0.i on eth0, from 1 on.
struct Link {
    hosts: Vec<Namespace>,
    _bridge: Namespace,
}

impl Link {
    fn new(hosts: usize) -> Link {
        let bridge = Namespace::new().unwrap();
        bridge
            .run(|| {
                ip::run("link add br0 type bridge")?;
                ip::run("link set br0 up")
            })
            .unwrap();
        let hosts = (1..=hosts).map(|number| {
            let host = Namespace::new().unwrap();
            let there = host.path();
            bridge
                .run(|| {
                    let peer = format!("peer name eth0 netns {there}");
                    ip::run(&format!("link add port{number} type veth {peer}"))?;
                    ip::run(&format!("link set port{number} master br0 up"))?;
                    // Like a hub, it delivers whoever forges a link address.
                    ip::run(&format!("link set port{number} type bridge_slave learning off"))
                })
                .unwrap();
            host.run(|| {
                ip::run(&format!("addr add 10.7.0.{number}/24 dev eth0"))?;
                ip::run("link set eth0 up")
            })
            .unwrap();
            host
        });
        Link { hosts: hosts.collect(), _bridge: bridge }
    }

    /// Sends `count` packets of a call from host `from` to host `to`; returns how many arrived.
    fn call(&self, from: usize, to: usize, count: usize) -> usize {
        self.marked_call(from, to, count, 0)
    }

    /// The same with a firewall mark.
    fn marked_call(&self, from: usize, to: usize, count: usize, mark: u32) -> usize {
        let address = format!("10.7.0.{to}:5004");
        let to = self.hosts[to - 1].run(|| UdpSocket::bind(&address)).unwrap();
        // Nobody reads before the end.
        setsockopt(&to, sockopt::RcvBufForce, &BUFFER).unwrap();
        let from = self.hosts[from - 1].run(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
        setsockopt(&from, sockopt::Mark, &mark).unwrap();
        from.connect(&address).unwrap();
        let mut next = clock::now();
        for _ in 0..count {
            next += EVERY;
            timer::wait(&mut Poller::default(), 0, next, Duration::ZERO).unwrap();
            from.send(&[7; 32]).unwrap();
        }
        // Behind all of them, in the order of their flow.
        from.send(b"end").unwrap();
        to.set_read_timeout(Some(LONG)).unwrap();
        let (mut bytes, mut arrived) = ([0; 64], 0);
        while to.recv(&mut bytes).expect("packets arrive") != 3 {
            arrived += 1;
        }
        arrived
    }
}

fn command(host: &Namespace, line: &str) -> Command {
    let mut command = Command::new(SHEAF);
    command.args(line.split_whitespace());
    host.enter(&mut command);
    command
}

fn run(host: &Namespace, line: &str) -> Output {
    command(host, line).output().unwrap()
}

/// A service, and what it says.
struct Service {
    child: Child,
    complained: Lines<BufReader<ChildStderr>>,
    said: Lines<BufReader<ChildStdout>>,
}

impl Service {
    fn start(host: &Namespace, line: &str) -> Service {
        let mut command = command(host, line);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let complained = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = said.next().expect("it runs").unwrap();
        assert!(first.contains(" on eth0: "), "{first}");
        Service { child, complained, said }
    }

    /// Waits until it says on standard error what contains `text`.
    fn says(&mut self, text: &str) {
        self.says_all([text]);
    }

    /// Waits until it has said all of `texts`, in whatever order.
    fn says_all<const N: usize>(&mut self, texts: [&str; N]) {
        let mut left = texts.to_vec();
        while !left.is_empty() {
            let Some(line) = self.complained.next() else {
                panic!("it ended without a word of {left:?}");
            };
            let line = line.unwrap();
            left.retain(|text| !line.contains(text));
        }
    }

    /// Memory in kB that is its own: pages of its file come and go as the kernel likes.
    fn memory(&self) -> u64 {
        let status = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    fn end(mut self) -> String {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        self.said.by_ref().map(Result::unwrap).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn shown(host: &Namespace, line: &str) -> serde_json::Value {
    let output = run(host, &format!("{line} --json"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Frames that arrive at a host.
struct Capture {
    socket: PacketSocket,
    mac: [u8; 6],
}

impl Capture {
    fn new(host: &Namespace) -> Capture {
        host.run(|| {
            let socket = PacketSocket::open(ip::index("eth0")?)?;
            // Nobody reads during a call, of which each packet comes twice: in a frame, and alone.
            setsockopt(&socket, sockopt::RcvBufForce, &BUFFER)?;
            Ok(Capture { socket, mac: ip::mac("eth0")? })
        })
        .unwrap()
    }

    /// Frames to this host since the last call: meta packets, and UDP alone.
    fn received(&self) -> (usize, usize) {
        let (mut bytes, mut meta, mut udp) = ([0; 2048], 0, 0);
        while let Some(len) = self.socket.receive(&mut bytes).unwrap() {
            let frame = &bytes[..len];
            if frame.len() > 33 && frame[..6] == self.mac && frame[12..14] == [8, 0] {
                meta += usize::from(frame[23] == META);
                udp += usize::from(frame[23] == 17);
            }
        }
        (meta, udp)
    }

    /// Frames of format 2 to this host since the last call, in Ethernet and in IP, and the most
    /// bytes behind the Ethernet header of one.
    fn carried(&self) -> (usize, usize, usize) {
        let (mut bytes, mut in_ethernet, mut in_ip, mut most) = ([0; 2048], 0, 0, 0);
        while let Some(len) = self.socket.receive(&mut bytes).unwrap() {
            let frame = &bytes[..len];
            if len <= 33 || frame[..6] != self.mac {
                continue;
            }
            let bare = frame[12..14] == FRAMES.to_be_bytes();
            // Not the messages about contexts.
            in_ethernet += usize::from(bare && frame[14] == aggfrag::FRAME);
            in_ip += usize::from(frame[12..14] == [8, 0] && frame[23] == META);
            most = most.max(if bare { len - 14 } else { 0 });
        }
        (in_ethernet, in_ip, most)
    }

    /// Bytes of IP of the largest meta packet to this host since the last call.
    fn largest(&self) -> u16 {
        let (mut bytes, mut largest) = ([0; 2048], 0);
        while let Some(len) = self.socket.receive(&mut bytes).unwrap() {
            if len > 33 && bytes[..6] == self.mac && bytes[12..14] == [8, 0] && bytes[23] == META {
                largest = largest.max(u16::from_be_bytes([bytes[16], bytes[17]]));
            }
        }
        largest
    }

    /// Waits until `count` frames have arrived; returns these, and the number of shared ones on the
    /// way.
    fn arrivals(&self, count: usize, judge: impl Fn(&[u8]) -> Seen) -> (Vec<Vec<u8>>, usize) {
        let (mut poller, mut bytes) = (Poller::default(), [0; 2048]);
        poller.add(&self.socket);
        let give_up = clock::now() + sheaf_stage::Duration::from_secs(10);
        let (mut arrived, mut shared) = (Vec::new(), 0);
        while arrived.len() < count {
            let Some(len) = self.socket.receive(&mut bytes).unwrap() else {
                poller.wait(Some(give_up.saturating_since(clock::now()))).unwrap();
                assert!(clock::now() < give_up, "{} frames arrived", arrived.len());
                continue;
            };
            let frame = &bytes[..len];
            match judge(frame) {
                Seen::Arrived => arrived.push(frame.to_vec()),
                Seen::Shared => shared += 1,
                Seen::Other => {}
            }
        }
        (arrived, shared)
    }
}

/// A captured frame, as a test sees it.
enum Seen {
    Arrived,
    /// It has others in it.
    Shared,
    Other,
}

const GATHERS: &str = "aggregate dev eth0 policy forced timeout 20ms";

#[test]
fn routers_without_a_word_about_each_other_share_frames_and_a_host_without_sheaf_gets_none() {
    let link = Link::new(3);
    let mut first = Service::start(&link.hosts[0], GATHERS);
    // A neighbour is looked for before it is there.
    assert_eq!(link.call(1, 2, 10), 10);
    let second = Service::start(&link.hosts[1], "split dev eth0");
    assert_eq!(link.call(1, 2, 10), 10);
    first.says("10.7.0.2 splits");
    let there = [&link.hosts[1], &link.hosts[2]].map(Capture::new);
    assert_eq!(link.call(1, 2, 500), 500);
    assert_eq!(link.call(1, 3, 100), 100);
    let (meta, _) = there[0].received();
    assert!(meta >= 15, "{meta} meta packets");
    assert_eq!(there[1].received(), (0, 101), "a host that says nothing gets plain packets");
    let neighbours = &shown(&link.hosts[0], "show neighbours")["eth0"]["neighbours"];
    let one = neighbours.as_object().unwrap().values().next().unwrap();
    assert_eq!((&one["addresses"][0], &one["largest"]), (&"10.7.0.2".into(), &1500.into()));
    let text = run(&link.hosts[0], "show neighbours dev eth0").stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("10.7.0.2") && text.contains("splits 1,2,3,4 max 1500"), "{text}");
    // At the goodbye it is over, although the splitter stays.
    assert!(second.end().contains("HELLO sent"));
    first.says("10.7.0.2 says goodbye; its packets pass as they are");
    // What left before the goodbye.
    there[0].received();
    assert_eq!(link.call(1, 2, 250), 250);
    assert_eq!(there[0].received().0, 0, "nobody shares frames after a goodbye");
    assert!(shown(&link.hosts[1], "show dev eth0")[0]["split"].is_object());
}

#[test]
fn frames_have_no_header_of_ip_between_neighbours_that_both_say_so_and_live_changes_are_heard() {
    let link = Link::new(3);
    let ethernet = format!("{GATHERS} carriage ethernet");
    let mut first = Service::start(&link.hosts[0], &ethernet);
    let mut second = Service::start(&link.hosts[1], &ethernet);
    let mut third = Service::start(&link.hosts[2], GATHERS);
    let there = [&link.hosts[1], &link.hosts[2]].map(Capture::new);
    for (from, to) in [(1, 2), (1, 3), (2, 1), (3, 1)] {
        assert_eq!(link.call(from, to, 10), 10);
    }
    first.says_all(["frames to 10.7.0.2 travel as Ethernet frames", "10.7.0.3 splits"]);
    second.says("frames to 10.7.0.1 travel as Ethernet frames");
    third.says("10.7.0.1 splits");
    for there in &there {
        there.carried();
    }
    assert_eq!(link.call(1, 2, 500), 500);
    assert_eq!(link.call(1, 3, 500), 500);
    let (in_ethernet, in_ip, most) = there[0].carried();
    assert!(in_ethernet >= 15 && in_ip == 0, "{in_ethernet} and {in_ip} frames");
    assert!(most <= 1500, "a frame of {most} bytes is beyond the MTU");
    let (in_ethernet, in_ip, _) = there[1].carried();
    assert!(in_ethernet == 0 && in_ip >= 15, "{in_ethernet} and {in_ip} frames without the word");
    let text = String::from_utf8(run(&link.hosts[0], "show dev eth0").stdout).unwrap();
    assert!(text.contains("to 10.7.0.2: splits yes max 1500 format compressed carriage ethernet"));
    assert!(text.contains("to 10.7.0.3: splits yes max 1500 format compressed probes"), "{text}");
    let split = &shown(&link.hosts[1], "show dev eth0")[0]["split"];
    assert_eq!((&split["reinject-failed"], &split["unrestored"]), (&0.into(), &0.into()));
    // One that leaves the word out is sent IP, and sends IP.
    let changed = run(&link.hosts[1], "change aggregate eth0 carriage ip");
    assert!(changed.status.success(), "{}", String::from_utf8_lossy(&changed.stderr));
    first.says("frames to 10.7.0.2 travel as IP again");
    second.says("frames to 10.7.0.1 travel as IP again");
    there[0].carried();
    assert_eq!(link.call(1, 2, 500), 500);
    let (in_ethernet, in_ip, _) = there[0].carried();
    assert!(in_ethernet == 0 && in_ip >= 15, "{in_ethernet} and {in_ip} frames");
    let changed = run(&link.hosts[1], "change aggregate eth0 carriage ethernet");
    assert!(changed.status.success(), "{}", String::from_utf8_lossy(&changed.stderr));
    first.says("frames to 10.7.0.2 travel as Ethernet frames");
    assert_eq!(link.call(1, 2, 500), 500);
    // Gone with its process, the other's frames are still taken until that is noticed.
    drop(second);
    first.says("10.7.0.2 says nothing any more");
    assert_eq!(link.call(1, 2, 100), 100);
}

#[test]
fn a_host_that_only_splits_takes_frames_without_a_header_of_ip_where_it_says_so() {
    let link = Link::new(2);
    let mut first = Service::start(&link.hosts[0], &format!("{GATHERS} carriage ethernet"));
    let _second = Service::start(&link.hosts[1], "split dev eth0 carriage ethernet");
    let there = Capture::new(&link.hosts[1]);
    assert_eq!(link.call(1, 2, 10), 10);
    first.says("frames to 10.7.0.2 travel as Ethernet frames");
    there.carried();
    assert_eq!(link.call(1, 2, 500), 500);
    let (in_ethernet, in_ip, _) = there.carried();
    assert!(in_ethernet >= 15 && in_ip == 0, "{in_ethernet} and {in_ip} frames");
    let change = |words: &str| {
        let changed = run(&link.hosts[1], &format!("change split eth0 {words}"));
        assert!(changed.status.success(), "{}", String::from_utf8_lossy(&changed.stderr));
    };
    change("carriage ip");
    // What was sent before that was heard is taken.
    assert_eq!(link.call(1, 2, 500), 500);
    first.says("frames to 10.7.0.2 travel as IP again");
    there.carried();
    assert_eq!(link.call(1, 2, 500), 500);
    let (in_ethernet, in_ip, _) = there.carried();
    assert!(in_ethernet == 0 && in_ip >= 15, "{in_ethernet} and {in_ip} frames");
    change("carriage ethernet");
    assert_eq!(link.call(1, 2, 10), 10);
    first.says("frames to 10.7.0.2 travel as Ethernet frames");
}

#[test]
fn with_a_key_frames_without_a_header_of_ip_are_taken_of_who_has_it_alone() {
    let link = Link::new(3);
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, run(&link.hosts[0], "trunk key").stdout).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let keyed = format!("{GATHERS} carriage ethernet key {}", key.display());
    let mut first = Service::start(&link.hosts[0], &keyed);
    let mut second = Service::start(&link.hosts[1], &keyed);
    for (from, to) in [(1, 2), (2, 1), (3, 2)] {
        assert_eq!(link.call(from, to, 10), 10);
    }
    first.says("frames to 10.7.0.2 travel as Ethernet frames");
    second.says("frames to 10.7.0.1 travel as Ethernet frames");
    assert_eq!(link.call(1, 2, 500), 500);
    // Host 3, which has no key, sends one in its own name.
    let stranger = Capture::new(&link.hosts[2]);
    let to = link.hosts[1].run(|| ip::mac("eth0")).unwrap();
    let mut frame = ethernet::header(stranger.mac, to, FRAMES).to_vec();
    frame.extend([&[0, 0, 0, 0][..], &sheaf_wire::ip::example_udp(&[7; 20])].concat());
    let unknown = |host| shown(host, "show dev eth0")[0]["split"]["unknown-peer"].as_u64().unwrap();
    // Probes of the first host come until the second has accepted its station.
    let before = unknown(&link.hosts[1]);
    stranger.socket.send(&frame).unwrap();
    // Behind it, so that it has arrived.
    assert_eq!(link.call(3, 2, 10), 10);
    assert_eq!(unknown(&link.hosts[1]), before + 1);
}

#[test]
fn a_neighbour_whose_process_dies_is_left_after_five_periods_and_one_whose_splitter_goes_soon() {
    let link = Link::new(2);
    let mut first = Service::start(&link.hosts[0], GATHERS);
    let second = Service::start(&link.hosts[1], "split dev eth0");
    assert_eq!(link.call(1, 2, 10), 10);
    first.says("10.7.0.2 splits");
    // The splitter stays, so nothing is lost until the silence is noticed.
    drop(second);
    first.says("10.7.0.2 says nothing any more");
    assert_eq!(link.call(1, 2, 100), 100);
    let _second = Service::start(&link.hosts[1], "split dev eth0");
    assert_eq!(link.call(1, 2, 10), 10);
    first.says("10.7.0.2 splits");
    assert!(run(&link.hosts[1], "split dev eth0 off").status.success());
    // Its HELLO says so, or the kernel, which does not know the protocol then.
    first.says("its packets pass as they are");
    assert_eq!(link.call(1, 2, 100), 100);
}

#[test]
fn routers_that_both_gather_find_each_other_and_one_interface_says_hello_once() {
    let link = Link::new(2);
    let mut services: Vec<_> =
        link.hosts.iter().map(|host| Service::start(host, GATHERS)).collect();
    assert_eq!(link.call(1, 2, 10), 10);
    assert_eq!(link.call(2, 1, 10), 10);
    services[0].says("10.7.0.2 splits");
    services[1].says("10.7.0.1 splits");
    let taken = run(&link.hosts[0], "split dev eth0");
    let error = String::from_utf8(taken.stderr).unwrap();
    assert!(error.contains("at work on eth0 already; stop it first"), "{error}");
    // Who was named stays, and who says HELLO goes.
    let changed = run(&link.hosts[0], "change aggregate eth0 peer 10.7.0.2");
    assert!(changed.status.success(), "{}", String::from_utf8_lossy(&changed.stderr));
    services[1].says("10.7.0.1 says goodbye");
    services[0].says("10.7.0.2 splits");
}

#[test]
fn nine_hosts_half_of_them_with_sheaf_lose_nothing_while_some_start_again_and_some_lie() {
    const UPGRADED: usize = 5;
    let link = Link::new(9);
    let mut services: Vec<_> =
        link.hosts[..UPGRADED].iter().map(|host| Service::start(host, GATHERS)).collect();
    // Host 9 says in the name of host 8, which has no Sheaf, that it splits.
    let mac = link.hosts[7].run(|| ip::mac("eth0")).unwrap();
    let liar = Capture::new(&link.hosts[8]).socket;
    let mut lie = made_up(1, Formats::META);
    lie[6..12].copy_from_slice(&mac);
    for (from, to) in [(1, 2), (2, 1), (1, 8), (3, 8)] {
        assert_eq!(link.call(from, to, 10), 10);
    }
    services[0].says("10.7.0.2 splits");
    services[1].says("10.7.0.1 splits");
    liar.send(&lie).unwrap();
    let plain = [&link.hosts[5], &link.hosts[7]].map(Capture::new);
    for round in 0..3 {
        // One starts again; what it splits meanwhile is split by the program that stays.
        drop(services.remove(1));
        services.insert(1, Service::start(&link.hosts[1], GATHERS));
        liar.send(&lie).unwrap();
        for (from, to) in [(1, 2), (2, 3), (1, 6), (1, 8), (3, 8), (9, 1)] {
            assert_eq!(link.call(from, to, 100), 100, "{round}: {from} to {to}");
        }
    }
    assert_eq!(plain[0].received().0, 0, "no meta packet for a host that says nothing");
    // A host of which others lie is probed, as that shows the lie, and sent nothing else.
    let probes = plain[1].received().0;
    assert!(probes <= 20, "{probes} probes");
    let shown = shown(&link.hosts[0], "show dev eth0");
    assert_eq!(shown[0]["hops"]["10.7.0.8"]["meta_packets"].as_u64().unwrap_or(0), 0, "{shown}");
}

#[test]
fn with_a_key_only_its_holders_count() {
    let link = Link::new(3);
    let folder = tempfile::tempdir().unwrap();
    let keys = ["one.key", "other.key"].map(|name| {
        let path = folder.path().join(name);
        std::fs::write(&path, run(&link.hosts[0], "trunk key").stdout).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    });
    let mut first = Service::start(&link.hosts[0], &format!("{GATHERS} key {}", keys[0]));
    let line = format!("aggregate dev eth0 policy forced timeout 20ms key {}", keys[0]);
    let mut second = Service::start(&link.hosts[1], &line);
    let _stranger = Service::start(&link.hosts[2], &format!("{GATHERS} key {}", keys[1]));
    assert_eq!(link.call(1, 2, 10), 10);
    assert_eq!(link.call(2, 1, 10), 10);
    first.says("10.7.0.2 splits");
    second.says("10.7.0.1 splits");
    let there = [&link.hosts[1], &link.hosts[2]].map(Capture::new);
    assert_eq!(link.call(1, 2, 250), 250);
    assert_eq!(link.call(1, 3, 250), 250);
    assert_eq!(link.call(3, 1, 250), 250);
    assert!(there[0].received().0 >= 15);
    assert_eq!(there[1].received().0, 0, "nobody shares frames with another key's holder");
    // Frames to groups are taken of everybody or of nobody.
    let said = &shown(&link.hosts[0], "show neighbours")["eth0"];
    let formats = said["neighbours"].as_object().unwrap().values().map(|one| &one["formats"]);
    assert!(formats.clone().count() > 0 && formats.clone().all(|one| *one == json!([1, 2, 3])));
    let refused = &said["hellos_refused"];
    assert!(refused["wrong-seal"].as_u64().unwrap() > 0, "{refused}");
    let readable = folder.path().join("readable.key");
    std::fs::copy(&keys[0], &readable).unwrap();
    std::fs::set_permissions(&readable, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = run(&link.hosts[2], &format!("split dev eth0 key {}", readable.display())).stderr;
    assert!(String::from_utf8(error).unwrap().contains("chmod 600"));
}

#[test]
fn where_both_can_headers_are_compressed_and_every_packet_arrives_as_it_was() {
    compresses("kernel");
}

#[test]
fn the_engine_in_user_space_compresses_headers_as_well() {
    compresses("user");
}

fn compresses(engine: &str) {
    let link = Link::new(3);
    let line = format!("{GATHERS} engine {engine} peer auto peer 10.7.0.3");
    let mut services: Vec<_> =
        link.hosts[..2].iter().map(|host| Service::start(host, &line)).collect();
    // Nobody answers for the third one's splitter, so it takes no format 2.
    assert!(run(&link.hosts[2], "split dev eth0 peer any").status.success());
    for (from, to) in [(1, 2), (2, 1), (1, 3)] {
        assert_eq!(link.call(from, to, 10), 10);
    }
    services[0].says_all(["10.7.0.2 splits", "10.7.0.3 splits"]);
    services[1].says("10.7.0.1 splits");
    let hop = |name: &str| shown(&link.hosts[0], "show dev eth0")[0]["hops"][name].clone();
    let format = |name| hop(name)["format"].as_str().unwrap().to_owned();
    assert_eq!((format("10.7.0.2"), format("10.7.0.3")), ("compressed".into(), "meta".into()));
    let calls = |from: usize, to: usize, count| {
        let address = format!("10.7.0.{to}:5006");
        let talk = talk(&link.hosts[from - 1], &link.hosts[to - 1], &address, count);
        assert_eq!(talk, Talk::default(), "{from} to {to}");
    };
    // Bytes on the air for each packet of 60.
    let cost = |count| {
        let read = || {
            let hop = hop("10.7.0.2");
            hop["aggregated_bytes_on_network"].as_f64().unwrap()
        };
        let before = read();
        calls(1, 2, count);
        calls(2, 1, count);
        (read() - before) / (CALLS as f64 * f64::from(count))
    };
    // Another host says in the third one's name that it takes format 2; it replies to no such
    // probe.
    let mut lie = made_up(1, Formats(3));
    lie[6..12].copy_from_slice(&link.hosts[2].run(|| ip::mac("eth0")).unwrap());
    Capture::new(&link.hosts[1]).socket.send(&lie).unwrap();
    let compressed = cost(200);
    assert!(compressed < 35.0, "{compressed} bytes a packet");
    calls(1, 3, 50);
    assert_eq!(format("10.7.0.3"), "meta");
    let changed = run(&link.hosts[0], "change aggregate eth0 format meta");
    assert!(changed.status.success(), "{}", String::from_utf8_lossy(&changed.stderr));
    let plain = cost(50);
    assert!(plain > 55.0, "{plain} bytes a packet");
    // The other one starts again, and knows no context of before.
    assert!(run(&link.hosts[0], "change aggregate eth0 format compressed").status.success());
    services.remove(1).end();
    services[0].says("10.7.0.2 says goodbye");
    calls(1, 2, 20);
    services.push(Service::start(&link.hosts[1], &line));
    services[0].says("10.7.0.2 splits");
    let again = cost(200);
    assert!(again < 35.0, "{again} bytes a packet");
    let text = String::from_utf8(run(&link.hosts[0], "show").stdout).unwrap();
    assert!(text.contains("to 10.7.0.2: splits yes max 1500 format compressed"), "{text}");
}

#[test]
fn marks_bound_frames_from_a_change_on_and_until_another_and_user_space_refuses_them() {
    let link = Link::new(2);
    let line = format!("{GATHERS} format meta");
    let mut services: Vec<_> = link.hosts.iter().map(|host| Service::start(host, &line)).collect();
    assert_eq!((link.call(1, 2, 10), link.call(2, 1, 10)), (10, 10));
    services[0].says("10.7.0.2 splits");
    let change = |words: &str| {
        let output = run(&link.hosts[0], &format!("change aggregate eth0 {words}"));
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let there = Capture::new(&link.hosts[1]);
    // The largest frame of a call whose packets say `bytes`, beside other bits.
    let largest = |bytes: u32| {
        there.largest();
        assert_eq!(link.marked_call(1, 2, 100, 0xfffc_0003 | bytes << 2), 100);
        there.largest()
    };
    // Packets of 60 bytes leave by 500; frames of probes have less than 100.
    assert!((500..=620).contains(&largest(300)), "marks say nothing");
    assert_eq!(change("max mark"), (true, String::new()));
    for (bytes, range) in [
        (300, 200..=300),
        (0, 500..=620),
        (0xffff, 500..=620),
        (1, 0..=100),
        // Two packets need 140 bytes, and one with the last, which is shorter, 111.
        (110, 0..=100),
        (140, 140..=140),
    ] {
        let largest = largest(bytes);
        assert!(range.contains(&largest), "{largest} bytes for {bytes}");
    }
    let text = String::from_utf8(run(&link.hosts[0], "show dev eth0").stdout).unwrap();
    assert!(text.contains("to 10.7.0.2: splits yes max 1500 by mark format meta"), "{text}");
    assert_eq!(shown(&link.hosts[0], "show dev eth0")[0]["by_mark"], true);
    let (changed, error) = change("engine user");
    assert!(!changed && error.contains("max mark needs the kernel engine"), "{error}");
    assert_eq!(change("max 700"), (true, String::new()));
    assert!((500..=620).contains(&largest(300)), "marks say nothing any more");
    drop(services);
    let refused = run(&link.hosts[0], "aggregate dev eth0 max mark engine user");
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && error.lines().count() == 1, "{error}");
    let bare = || ip::run("tuntap add bare0 mode tun").and_then(|()| ip::run("link set bare0 up"));
    link.hosts[0].run(bare).unwrap();
    let refused = run(&link.hosts[0], "aggregate dev bare0 to 10.7.0.2 max mark");
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(error.contains("bare0 carries bare IP packets") && error.contains("marks"), "{error}");
}

/// A unicast frame of batman-adv from `from` to `to` with packet `number` of a call in it.
fn mesh_frame(from: [u8; 6], to: [u8; 6], number: u16) -> Vec<u8> {
    let mut packet = Vec::new();
    let builder = etherparse::PacketBuilder::ipv4([10, 8, 0, 1], [10, 8, 0, 2], 64);
    builder.udp(4000, 5004).write(&mut packet, &number.to_be_bytes()).unwrap();
    let link = [&to[..], &from, &[0x43, 0x05]].concat();
    let unicast = [&[0x40, 15, 50, 1][..], &to].concat();
    [&link[..], &unicast, &to, &from, &[8, 0], &packet].concat()
}

#[test]
fn frames_of_a_mesh_share_frames_and_arrive_as_they_were() {
    let link = Link::new(2);
    let mut services: Vec<_> =
        link.hosts.iter().map(|host| Service::start(host, GATHERS)).collect();
    assert_eq!((link.call(1, 2, 10), link.call(2, 1, 10)), (10, 10));
    services[0].says("10.7.0.2 splits");
    let hop = || shown(&link.hosts[0], "show dev eth0")[0]["hops"]["10.7.0.2"].clone();
    while hop()["format"] != "compressed" {
        std::thread::yield_now();
    }
    let [from, to] = [0, 1].map(|host| Capture::new(&link.hosts[host]));
    // Nobody reads while they are sent.
    setsockopt(&to.socket, sockopt::RcvBufForce, &(16 << 20)).unwrap();
    let frames: Vec<_> = (0..300).map(|number| mesh_frame(from.mac, to.mac, number)).collect();
    // What arrives, and the frames with others in them on the way.
    let sent = || {
        to.received();
        frames.iter().for_each(|frame| from.socket.send(frame).unwrap());
        let (arrived, shared) = to.arrivals(frames.len(), |frame| match frame[12..14] {
            _ if frame[..6] != to.mac => Seen::Other,
            [0x43, 0x05] => Seen::Arrived,
            [8, 0] if frame[23] == META => Seen::Shared,
            _ => Seen::Other,
        });
        (arrived == frames, shared)
    };
    let (same, shared) = sent();
    assert!(same && (3..100).contains(&shared), "{shared} frames shared");
    let changed = run(&link.hosts[0], "change aggregate eth0 format meta");
    assert!(changed.status.success(), "{}", String::from_utf8_lossy(&changed.stderr));
    let (same, shared) = sent();
    assert!(same && shared < 10, "{shared} frames shared by meta packets");
}

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const GROUP_MAC: [u8; 6] = [1, 0, 0x5e, 1, 2, 3];
/// Every so many packets of a stream one is too large to be gathered.
const LARGE: u32 = 23;

/// Host 1 gathers for groups, and hosts 2 and 3 split.
fn group_services(link: &Link) -> Vec<Service> {
    let gathers = format!("{GATHERS} group on");
    let mut services = vec![Service::start(&link.hosts[0], &gathers)];
    services.extend(link.hosts[1..3].iter().map(|host| Service::start(host, "split dev eth0")));
    services[0].says("small packets to groups share frames");
    services
}

/// Hears a stream to the group.
fn member(host: &Namespace) -> UdpSocket {
    let socket = host.run(|| {
        let socket = UdpSocket::bind((GROUP, 5004))?;
        let own = ip::way_over("eth0", GROUP.into())?.source;
        let IpAddr::V4(own) = own else { unreachable!("of one family") };
        socket.join_multicast_v4(&GROUP, &own)?;
        Ok(socket)
    });
    let socket = socket.unwrap();
    setsockopt(&socket, sockopt::RcvBufForce, &(8 << 20)).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

/// Packet `number` of a stream.
fn datagram(number: u32) -> Vec<u8> {
    let len = if number % LARGE == LARGE - 1 { 700 } else { 30 + number as usize % 50 };
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.resize(len, number as u8);
    bytes
}

/// Sends packets with these numbers to the group.
fn stream(host: &Namespace, numbers: std::ops::Range<u32>) {
    let socket = host.run(|| UdpSocket::bind("10.7.0.1:5000")).unwrap();
    let mut next = clock::now();
    for number in numbers {
        next += Duration::from_millis(1);
        timer::wait(&mut Poller::default(), 0, next, Duration::ZERO).unwrap();
        socket.send_to(&datagram(number), (GROUP, 5004)).unwrap();
    }
}

/// All of these numbers arrive, in order and as they were.
fn arrive(socket: &UdpSocket, numbers: std::ops::Range<u32>) {
    let mut bytes = [0; 2048];
    for number in numbers {
        let len = socket.recv(&mut bytes).unwrap_or_else(|error| panic!("{number}: {error}"));
        assert_eq!(bytes[..len], datagram(number), "{number}");
    }
}

/// Frames to the group since the last call that have others in them.
fn shared(capture: &Capture) -> usize {
    let (mut bytes, mut count) = ([0; 2048], 0);
    while let Some(len) = capture.socket.receive(&mut bytes).unwrap() {
        let frame = &bytes[..len];
        if len > 33 && frame[..6] == GROUP_MAC && frame[12..14] == [8, 0] && frame[23] == META {
            assert_eq!((&frame[30..34], frame[22]), (&GROUP.octets()[..], 255));
            count += 1;
        }
    }
    count
}

#[test]
fn a_stream_to_a_group_shares_frames_while_all_neighbours_take_them_and_loses_nothing() {
    let link = Link::new(4);
    let mut services = group_services(&link);
    let members = [1, 2].map(|host| member(&link.hosts[host]));
    let there = Capture::new(&link.hosts[1]);
    // Nobody reads while they are sent.
    setsockopt(&there.socket, sockopt::RcvBufForce, &(16 << 20)).unwrap();
    let numbers = 0..600;
    stream(&link.hosts[0], numbers.clone());
    members.iter().for_each(|member| arrive(member, numbers.clone()));
    let frames = shared(&there);
    assert!((20..200).contains(&frames), "{frames} frames shared");
    let groups = || shown(&link.hosts[0], "show dev eth0")[0]["hops"]["groups"].clone();
    let told = groups();
    assert_eq!((&told["splits"], &told["format"]), (&"yes".into(), &"frames".into()), "{told}");
    assert!(told["aggregated_packets"].as_u64().unwrap() >= 500, "{told}");

    // A host says that it takes no such frames, while packets are on their way.
    let liar = Capture::new(&link.hosts[3]).socket;
    let numbers = 600..1_600;
    std::thread::scope(|scope| {
        scope.spawn(|| stream(&link.hosts[0], numbers.clone()));
        arrive(&members[0], 600..1_000);
        liar.send(&made_up(1, Formats(7))).unwrap();
        services[0].says("packets to groups pass as they are (06:00:00:00:01:01 takes no frames");
        arrive(&members[0], 1_000..1_600);
    });
    arrive(&members[1], numbers);
    let frames = shared(&there);
    assert!(frames >= 10, "{frames} frames shared before");
    stream(&link.hosts[0], 1_600..1_700);
    members.iter().for_each(|member| arrive(member, 1_600..1_700));
    assert_eq!(shared(&there), 0, "none for a host that cannot");
    let told = groups();
    assert_eq!(told["splits"], "no");
    assert!(told["why"].as_str().unwrap().contains("06:00:00:00:01:01"), "{told}");
    let text = String::from_utf8(run(&link.hosts[0], "show").stdout).unwrap();
    assert!(text.contains("  to groups: splits no (06:00:00:00:01:01 takes no frames"), "{text}");

    // It takes that back, and another one takes its leave.
    let mut again = made_up(2, Formats(15));
    again[6..12].copy_from_slice(&made_up(1, Formats(15))[6..12]);
    liar.send(&again).unwrap();
    services[0].says("small packets to groups share frames");
    services.pop().unwrap().end();
    services[0].says("packets to groups pass as they are");
}

#[test]
fn a_router_that_cannot_take_frames_of_groups_keeps_those_of_its_neighbours_plain() {
    let link = Link::new(4);
    let mut services = group_services(&link);
    // The engine in user space takes none.
    let line = format!("{GATHERS} engine user group on");
    let mut user = command(&link.hosts[3], &line).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(user.stdout.take().unwrap()).lines();
    let first = said.next().expect("it runs").unwrap();
    let plain = "packets to groups pass as they are, as this engine gathers none";
    assert!(first.contains(plain), "{first}");
    services[0].says("packets to groups pass as they are");
    let hears = member(&link.hosts[3]);
    let there = Capture::new(&link.hosts[1]);
    stream(&link.hosts[0], 0..100);
    arrive(&hears, 0..100);
    assert_eq!(shared(&there), 0);
    user.kill().unwrap();
    user.wait().unwrap();
    // Off, and on again with `change`.
    let groups = || shown(&link.hosts[0], "show dev eth0")[0]["hops"]["groups"].clone();
    assert!(run(&link.hosts[0], "change aggregate eth0 group off").status.success());
    assert!(groups().is_null(), "nothing went there");
    let refused = run(&link.hosts[0], "change aggregate eth0 group on format meta");
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && error.contains("group on needs frames"), "{error}");
    assert!(run(&link.hosts[0], "change aggregate eth0 group on").status.success());
    assert_eq!(groups()["splits"], "no", "its word counts for a minute");
}

/// A frame with packet `number` to the group, as a host sends it.
fn group_frame(from: [u8; 6], number: u16) -> Vec<u8> {
    let mut packet = Vec::new();
    let builder = etherparse::PacketBuilder::ipv4([10, 7, 0, 1], GROUP.octets(), 1);
    builder.udp(4000 + number % 3, 5004).write(&mut packet, &number.to_be_bytes()).unwrap();
    [&GROUP_MAC[..], &from, &[8, 0], &packet].concat()
}

#[test]
fn frames_to_a_group_arrive_byte_for_byte_with_the_addresses_that_they_left_with() {
    let link = Link::new(3);
    let _services = group_services(&link);
    let from = Capture::new(&link.hosts[0]);
    let receivers = [1, 2].map(|host| Capture::new(&link.hosts[host]));
    for to in &receivers {
        // Nobody reads while they are sent.
        setsockopt(&to.socket, sockopt::RcvBufForce, &(16 << 20)).unwrap();
    }
    let frames: Vec<_> = (0..300).map(|number| group_frame(from.mac, number)).collect();
    frames.iter().for_each(|frame| from.socket.send(frame).unwrap());
    for to in &receivers {
        let (arrived, shared) = to.arrivals(frames.len(), |frame| match frame[23] {
            _ if frame[..6] != GROUP_MAC => Seen::Other,
            META => Seen::Shared,
            _ => Seen::Arrived,
        });
        assert!(arrived == frames && (3..100).contains(&shared), "{shared} frames shared");
    }
}

#[test]
fn on_a_path_that_loses_and_reorders_a_lost_compressed_frame_costs_its_packets_and_one() {
    loses("kernel");
}

#[test]
fn the_same_holds_for_the_engine_in_user_space() {
    loses("user");
}

fn loses(engine: &str) {
    /// A frame leaves with 500 bytes, which 20 blocks of 24 have, and one that is cut; another
    /// packet continues in it.
    const MOST: u64 = 22;
    let link = Link::new(2);
    let line = format!("{GATHERS} engine {engine}");
    let mut services = [0, 1].map(|host| Service::start(&link.hosts[host], &line));
    for (from, to) in [(1, 2), (2, 1)] {
        assert_eq!(link.call(from, to, 10), 10);
    }
    services[0].says("10.7.0.2 splits");
    let emulated = "emulate dev eth0 loss 1% delay 60ms reorder 5% seed 7";
    let mut emulator = command(&link.hosts[0], emulated);
    let mut emulator = emulator.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(emulator.stdout.take().unwrap()).lines();
    assert!(said.next().expect("it runs").unwrap().contains("eth0"));
    let talked = talk(&link.hosts[0], &link.hosts[1], "10.7.0.2:5006", 2_000);
    emulator.kill().unwrap();
    emulator.wait().unwrap();
    let hops = &shown(&link.hosts[0], "show dev eth0")[0]["hops"]["10.7.0.2"];
    assert_eq!(hops["format"], "compressed");
    let split = &shown(&link.hosts[1], "show dev eth0")[0]["split"];
    let count = |name: &str| split[name].as_u64().unwrap();
    assert!(count("frames-missing") > 0 && count("frames-late") > 0, "{split}");
    // A frame that comes late was missing before.
    let gone = count("frames-missing");
    assert!(talked.lost as u64 <= gone * MOST, "{talked:?}: {split}");
}

#[test]
fn a_flood_of_made_up_hellos_costs_no_packet_and_little_memory() {
    const FLOOD: u32 = 300_000;
    let link = Link::new(3);
    let mut first = Service::start(&link.hosts[0], &format!("{GATHERS} group on"));
    let _second = Service::start(&link.hosts[1], "split dev eth0");
    assert_eq!(link.call(1, 2, 10), 10);
    first.says("10.7.0.2 splits");
    let before = first.memory();
    let flood = Capture::new(&link.hosts[2]).socket;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..FLOOD {
                flood.send(&made_up(number, Formats::META)).unwrap();
            }
        });
        assert_eq!(link.call(1, 2, 1_500), 1_500);
    });
    let groups = &shown(&link.hosts[0], "show dev eth0")[0]["hops"]["groups"];
    assert_eq!(groups["splits"], "no", "whoever is made up takes no frames of groups");
    let shown = shown(&link.hosts[0], "show neighbours");
    let said = &shown["eth0"];
    let heard = said["hellos_heard"].as_u64().unwrap();
    assert!(heard + said["hellos_dropped"].as_u64().unwrap() > 10_000, "{heard}");
    assert!(said["neighbours"].as_object().unwrap().len() <= 1024);
    let known = said["neighbours"].as_object().unwrap().values();
    let known: Vec<_> = known.filter(|one| one["addresses"][0] == "10.7.0.2").collect();
    assert_eq!(known.len(), 1, "the neighbour with which packets are exchanged keeps its place");
    // The process fills its table of 1024 neighbours and builds both answers from it, in 1.6 MB.
    // It took 13 MB while it kept the addresses of each HELLO.
    let grown = first.memory().saturating_sub(before);
    assert!(grown < 4 << 10, "{grown} kB more");
}

/// A HELLO of a neighbour that does not exist, as an Ethernet frame.
fn made_up(number: u32, formats: Formats) -> Vec<u8> {
    use sheaf_wire::hello::{Node, Repr, Splits};
    let [a, b, c, d] = number.to_be_bytes();
    let mut message = Vec::new();
    let splits = Some(Splits { formats, largest: 1500 });
    let (node, sequence) = (Node(u64::from(number) << 8 | 1), number);
    let repr = Repr { node, sequence, period: 255, goodbye: false, asks: true, splits };
    repr.emit([], usize::MAX, &mut message);
    let len = 28 + message.len() as u16;
    let [high, low] = len.to_be_bytes();
    let mut packet = vec![0x45, 0, high, low, 0, 0, 0, 0, 255, 17, 0, 0, 10, 7, 0, 3, 224, 0, 0];
    packet.push(254);
    let checksum = sheaf_wire::checksum::ipv4_header(&packet);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    // Without a checksum, which UDP over IPv4 allows, it would not be heard.
    let mut datagram = [&[3, 253, 3, 253], &(len - 20).to_be_bytes()[..], &[0, 0]].concat();
    datagram.extend_from_slice(&message);
    let pseudo = sheaf_wire::checksum::sum(&packet[12..20], 17 + datagram.len() as u32);
    let checksum = !sheaf_wire::checksum::fold(sheaf_wire::checksum::sum(&datagram, pseudo));
    datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
    let link = [1, 0, 0x5e, 0, 0, 254, 6, a, b, c, d, 1, 8, 0];
    [&link[..], &packet, &datagram].concat()
}
