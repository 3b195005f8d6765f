//! `sheaf emulate medium`: stations in named network namespaces on an emulated 802.11 channel.
//! Needs root, ip-netns(8) and ping.

mod patient;

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;
use patient::patient;
use pcap_file::pcapng::{Block, PcapNgReader};
use serde_json::Value;
use sheaf_medium::{Config, Phy, air_time};
use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use sheaf_stage::Bitrate;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");
/// A receiver that waits this long will get nothing more.
const LONG: Duration = Duration::from_secs(10);
/// 40 m apart 11 Mbit/s lose next to nothing; 80 m apart nothing is heard.
const CHANNEL: &str = "phy = \"dsss-long\"\nrate = 11\nsense = -90\nseed = 7\n";

/// A namespace with a name, removed at the latest when the test ends.
struct Named {
    name: String,
    namespace: Namespace,
}

impl Named {
    fn new(test: &str, station: usize) -> Named {
        let name = format!("sheaf{}{test}{station}", std::process::id());
        ip::run(&format!("netns add {name}")).unwrap();
        let namespace = Namespace::named(&name).unwrap();
        // No frames but those that a test causes.
        let setting = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
        namespace.run(|| std::fs::write(setting, "1")).unwrap();
        // The host's own errors, as of an address that does not reply, come by it.
        namespace.run(|| ip::run("link set lo up")).unwrap();
        Named { name, namespace }
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = ip::run(&format!("netns del {}", self.name));
    }
}

/// Stations s0, s1, … in a row, 40 m apart, with addresses 10.9.0.1, 10.9.0.2, …, and the host
/// that emulates.
struct Row {
    stations: Vec<Named>,
    host: Namespace,
    directory: TempDir,
}

impl Row {
    fn new(test: &str, count: usize) -> Row {
        let stations: Vec<_> = (0..count).map(|station| Named::new(test, station)).collect();
        let mut text = CHANNEL.to_owned();
        for (index, station) in stations.iter().enumerate() {
            text += &format!(
                "[[station]]\nname = \"s{index}\"\ninterface = \"radio0\"\nnamespace = \"{}\"\n\
                 address = \"10.9.0.{}/24\"\nposition = [{}, 0]\n",
                station.name,
                index + 1,
                40 * index
            );
        }
        Row::of(stations, &text)
    }

    /// With a file of this text.
    fn of(stations: Vec<Named>, text: &str) -> Row {
        let (host, directory) = (Namespace::new().unwrap(), TempDir::new().unwrap());
        let row = Row { stations, host, directory };
        std::fs::write(row.file(), text).unwrap();
        row
    }

    /// The example that packages install, with stations s0, s1, s2.
    fn example() -> Row {
        let mut text = include_str!("../../../packaging/examples/medium-row.toml").to_owned();
        let mut stations = Vec::new();
        for (index, name) in ["left", "middle", "right"].into_iter().enumerate() {
            let station = Named::new("row", index);
            let named = |key: &str, name: &str| format!("\n{key} = \"{name}\"\n");
            text = text.replace(&named("namespace", name), &named("namespace", &station.name));
            text = text.replace(&named("name", name), &named("name", &format!("s{index}")));
            stations.push(station);
        }
        Row::of(stations, &text)
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("row.toml")
    }

    fn start(&self, words: &str) -> Daemon {
        let line = format!("emulate medium {} {words}", self.file().display());
        Daemon::start(&self.host, &line, "emulating medium row of ")
    }

    fn at(&self, station: usize) -> &Namespace {
        &self.stations[station].namespace
    }

    fn show(&self) -> Value {
        let output = run(&self.host, "emulate show row --json");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn count(&self, station: usize, name: &str) -> u64 {
        count(&self.show(), station, name)
    }

    fn ping(&self, from: usize, to: usize) -> bool {
        // Ends with the reply, or when the host itself says that there is no way.
        let mut command = Command::new("ping");
        command.args(["-c", "1", "-W", "60", &format!("10.9.0.{}", to + 1)]);
        self.at(from).enter(&mut command);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.code() != Some(2), "{text}");
        text.contains(" 1 received")
    }

    /// A station knows the link address of another, so that nobody asks for it.
    fn introduce(&self, to: usize, other: usize) {
        let (address, mac) = (other + 1, other + 1);
        let link = format!("lladdr 02:00:00:00:00:0{mac} dev radio0 nud permanent");
        self.at(to).run(|| ip::run(&format!("neigh replace 10.9.0.{address} {link}"))).unwrap();
    }

    fn socket(&self, station: usize, address: &str) -> UdpSocket {
        let socket = self.at(station).run(|| UdpSocket::bind(address)).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        socket.set_broadcast(true).unwrap();
        socket
    }
}

fn count(status: &Value, station: usize, name: &str) -> u64 {
    status["stations"][format!("s{station}")][name].as_u64().unwrap()
}

fn run(namespace: &Namespace, line: &str) -> Output {
    let mut command = Command::new(SHEAF);
    command.args(line.split_whitespace());
    namespace.enter(&mut command);
    command.output().unwrap()
}

/// A service, killed at the latest when the test ends.
struct Daemon(Child);

impl Daemon {
    /// At work: it has said so.
    fn start(namespace: &Namespace, line: &str, begins: &str) -> Daemon {
        let mut command = Command::new(SHEAF);
        command.args(line.split_whitespace());
        namespace.enter(&mut command);
        Daemon::at_work(command.stdout(Stdio::piped()).spawn().unwrap(), begins)
    }

    fn at_work(child: Child, begins: &str) -> Daemon {
        let mut daemon = Daemon(child);
        let mut first = String::new();
        BufReader::new(daemon.0.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
        assert!(first.starts_with(begins), "{first}");
        daemon
    }

    /// Waits for its end; the status.
    fn end(&mut self) -> Option<i32> {
        self.0.stdout.take().unwrap().read_to_end(&mut Vec::new()).unwrap();
        self.0.wait().unwrap().code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn neighbours_reach_each_other_and_the_ends_of_a_row_only_through_the_middle() {
    let row = Row::example();
    let _daemon = row.start("");
    assert!(row.ping(0, 1) && row.ping(1, 2) && row.ping(2, 1));
    assert!(!row.ping(0, 2), "the ends do not hear each other");
    for (end, other) in [(0, 3), (2, 1)] {
        row.at(end).run(|| ip::run(&format!("route add 10.9.0.{other} via 10.9.0.2"))).unwrap();
    }
    row.at(1)
        .run(|| {
            for name in ["all/send_redirects", "radio0/send_redirects", "all/forwarding"] {
                let value = if name.ends_with("forwarding") { "1" } else { "0" };
                std::fs::write(format!("/proc/sys/net/ipv4/conf/{name}"), value)?;
            }
            Ok(())
        })
        .unwrap();
    let before = row.count(1, "offered_frames");
    assert!(row.ping(0, 2), "the middle forwards");
    assert!(row.count(1, "offered_frames") >= before + 2, "request and reply went through it");
}

#[test]
fn a_broadcast_is_heard_by_neighbours_alone_and_a_stranger_by_nobody() {
    let row = Row::new("cast", 3);
    let _daemon = row.start("");
    let [left, middle, right] = [0, 1, 2].map(|station| row.socket(station, "0.0.0.0:5005"));
    let mut bytes = [0; 16];
    left.send_to(b"left", "10.9.0.255:5005").unwrap();
    assert_eq!(patient(|| middle.recv(&mut bytes)).unwrap(), 4);
    let status = row.show();
    assert_eq!(
        (count(&status, 1, "received_frames"), count(&status, 2, "received_frames")),
        (1, 0)
    );
    assert_eq!((count(&status, 0, "attempts"), count(&status, 0, "retries")), (1, 0));
    middle.send_to(b"middle", "10.9.0.255:5005").unwrap();
    // What was for the left alone would have come before.
    assert_eq!(patient(|| right.recv(&mut bytes)).unwrap(), 6);
    row.at(0)
        .run(|| ip::run("neigh add 10.9.0.9 lladdr 02:00:00:00:00:99 dev radio0 nud permanent"))
        .unwrap();
    left.send_to(b"nobody", "10.9.0.9:5005").unwrap();
    let status = loop {
        let status = row.show();
        if count(&status, 0, "lost_frames") == 1 {
            break status;
        }
    };
    assert_eq!((count(&status, 0, "unknown_frames"), count(&status, 0, "retries")), (1, 6));
    assert_eq!(count(&status, 1, "received_frames"), 1, "nobody takes it");
}

#[test]
fn a_flood_over_one_hop_of_11_mbit_gets_what_the_channel_carries() {
    const FRAMES: u64 = 1500;
    let row = Row::new("flood", 2);
    let _daemon = row.start("");
    row.introduce(0, 1);
    let (from, to) = (row.socket(0, "0.0.0.0:0"), row.socket(1, "0.0.0.0:5005"));
    setsockopt(&to, sockopt::RcvBufForce, &(64 << 20)).unwrap();
    let status = std::thread::scope(|scope| {
        let (sender, stop) = std::sync::mpsc::channel::<()>();
        let flood = scope.spawn(move || {
            let mut dropped = false;
            // Far more than is carried: what the host's queue does not take is dropped there.
            while stop.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected) {
                dropped |= from.send_to(&[0; 1472], "10.9.0.2:5005").is_err();
            }
            dropped
        });
        let status = loop {
            let status = row.show();
            if count(&status, 0, "delivered_frames") >= FRAMES {
                break status;
            }
        };
        drop(sender);
        flood.join().unwrap();
        status
    });
    let (offered, delivered) =
        (count(&status, 0, "offered_frames"), count(&status, 0, "delivered_frames"));
    let waiting = count(&status, 0, "queued_frames");
    assert_eq!(offered - waiting - count(&status, 0, "lost_frames"), delivered);
    assert!(waiting <= 50, "{waiting} in a device queue of 50");
    // In the channel's own time, which does not know how busy the machine is.
    let rate = Bitrate::from_mbps(11);
    let lone = Config::new(Phy::Dsss { short_preamble: false }, 2, rate);
    let exchange = air_time::exchange(&lone, rate, 1500).as_secs_f64() * 1e3;
    let took = status["stations"]["s0"]["backlog_ms"].as_f64().unwrap() / delivered as f64;
    assert!((took / exchange - 1.0).abs() < 0.03, "{took} ms a frame, {exchange} expected");
    assert_eq!(count(&status, 1, "received_frames"), delivered);
    assert_eq!(count(&status, 0, "collisions"), 0);
    let dropped = row.at(0).run(|| ip::output("-s -j link show dev radio0")).unwrap();
    let dropped: Value = serde_json::from_str(&dropped).unwrap();
    let dropped = dropped[0]["stats64"]["tx"]["dropped"].as_u64().unwrap();
    assert!(dropped > 0, "the host's queue above the device is bounded, too");
}

#[test]
fn aggregation_on_a_station_needs_a_fraction_of_the_frames() {
    let row = Row::new("agg", 2);
    let _daemon = row.start("");
    let line = "aggregate dev radio0 policy forced timeout 20ms peer 10.9.0.";
    let _near = Daemon::start(row.at(0), &format!("{line}2"), "aggregating on ");
    let _far = Daemon::start(row.at(1), &format!("{line}1"), "aggregating on ");
    let (from, to) = (row.socket(0, "0.0.0.0:0"), row.socket(1, "0.0.0.0:5005"));
    setsockopt(&to, sockopt::RcvBufForce, &(8 << 20)).unwrap();
    // Once the far end has replied to a probe packets are gathered.
    row.introduce(0, 1);
    let gathers = || {
        let shown: Value =
            serde_json::from_slice(&run(row.at(0), "show dev radio0 --json").stdout).unwrap();
        from.send_to(&[0; 32], "10.9.0.2:5005").unwrap();
        shown[0]["total"]["aggregated_packets"].as_u64() > Some(0)
    };
    while !gathers() {}
    let before = row.count(0, "offered_frames");
    let mut last = [0xff; 32];
    for _ in 0..500 {
        from.send_to(&[1; 32], "10.9.0.2:5005").unwrap();
    }
    last[0] = 2;
    from.send_to(&last, "10.9.0.2:5005").unwrap();
    let (mut bytes, mut received) = ([0; 64], 0);
    loop {
        patient(|| to.recv(&mut bytes)).expect("packets are missing");
        received += u32::from(bytes[0] == 1);
        if bytes[0] == 2 {
            break;
        }
    }
    assert_eq!(received, 500);
    let frames = row.count(0, "offered_frames") - before;
    assert!(frames < 100, "{frames} frames for 501 packets");
}

#[test]
fn nothing_is_left_of_one_that_was_killed_or_stopped_and_both_can_start_again() {
    let row = Row::new("left", 2);
    let interfaces =
        || [0, 1].map(|station| row.at(station).run(ip::names).unwrap().contains(&"radio0".into()));
    let mut daemon = row.start("");
    assert_eq!(interfaces(), [true, true]);
    let second = run(&row.host, &format!("emulate medium {}", row.file().display()));
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        said.contains("row is emulated already; stop the other `sheaf emulate` first"),
        "{said}"
    );
    let change = run(&row.host, "emulate change dev row rate 1mbit");
    let said = String::from_utf8_lossy(&change.stderr).into_owned();
    assert!(said.contains("a medium cannot be changed; stop it"), "{said}");
    kill(Pid::from_raw(daemon.0.id() as i32), Signal::SIGKILL).unwrap();
    daemon.end();
    assert_eq!(interfaces(), [false, false]);
    let mut daemon = row.start("");
    assert!(row.ping(0, 1));
    assert!(run(&row.host, "emulate stop row").status.success());
    assert_eq!(daemon.end(), Some(0));
    assert_eq!(interfaces(), [false, false]);
}

#[test]
fn a_medium_whose_interface_somebody_deletes_ends_and_names_it() {
    let row = Row::new("del", 2);
    let mut command = Command::new(SHEAF);
    command.arg("emulate").arg("medium").arg(row.file());
    row.host.enter(&mut command);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut daemon = Daemon::at_work(child, "emulating medium row of ");
    row.at(1).run(|| ip::run("link del radio0")).unwrap();
    assert_eq!(daemon.end(), Some(2));
    let mut said = String::new();
    daemon.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(
        said,
        "sheaf: somebody deleted interface radio0 of station s1; start the medium again\n"
    );
}

#[test]
fn it_takes_two_capabilities_and_keeps_none() {
    let row = Row::new("caps", 2);
    let start = |rights: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--inh-caps", "-all", "--bounding-set", &format!("-all,{rights}"), SHEAF]);
        command.arg("emulate").arg("medium").arg(row.file());
        row.host.enter(&mut command);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let refused = start("+net_admin").wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.starts_with("sheaf: this needs CAP_SYS_ADMIN, which the process lacks"), "{said}");
    let daemon = Daemon::at_work(start("+net_admin,+sys_admin"), "emulating medium row");
    assert!(row.ping(0, 1));
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.0.id())).unwrap();
    for set in ["CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"] {
        assert!(status.contains(set), "{status}");
    }
}

#[test]
fn an_interface_that_was_down_and_an_emulation_that_was_stopped_go_on() {
    let row = Row::new("stop", 2);
    let daemon = row.start("");
    assert!(row.ping(0, 1));
    row.at(1).run(|| ip::run("link set radio0 down")).unwrap();
    row.introduce(0, 1);
    let socket = row.socket(0, "0.0.0.0:0");
    socket.send_to(b"off", "10.9.0.2:5005").unwrap();
    // The radio acknowledges; its host takes nothing.
    while row.count(1, "refused_frames") == 0 {}
    row.at(1).run(|| ip::run("link set radio0 up")).unwrap();
    assert!(row.ping(0, 1));
    let signal = |signal| kill(Pid::from_raw(daemon.0.id() as i32), signal).unwrap();
    signal(Signal::SIGSTOP);
    // More than the host holds for a radio that does not read.
    (0..1100).for_each(|_| drop(socket.send_to(b"wait", "10.9.0.2:5005")));
    signal(Signal::SIGCONT);
    while row.count(0, "delivered_frames") < 1000 {}
    assert!(row.ping(0, 1) && row.ping(1, 0));
}

#[test]
fn a_frame_that_no_radio_sends_is_counted_and_the_next_one_goes() {
    let row = Row::new("size", 2);
    let _daemon = row.start("");
    row.at(0).run(|| ip::run("link set radio0 mtu 9000")).unwrap();
    row.introduce(0, 1);
    let socket = row.socket(0, "0.0.0.0:0");
    let receiver = row.socket(1, "0.0.0.0:5005");
    // 2296 bytes of IP are the most.
    for payload in [2296 - 28 + 1, 2296 - 28] {
        socket.send_to(&vec![1; payload], "10.9.0.2:5005").unwrap();
    }
    let mut bytes = [0; 4096];
    assert_eq!(patient(|| receiver.recv(&mut bytes)).unwrap(), 2268);
    let status = row.show();
    assert_eq!(
        (count(&status, 0, "oversized_frames"), count(&status, 0, "offered_frames")),
        (1, 1)
    );
}

#[test]
fn an_interface_may_be_called_like_a_word_of_ip() {
    let row = Row::new("word", 1);
    for name in ["up", "dev"] {
        let text = std::fs::read_to_string(row.file()).unwrap().replace("radio0", name);
        let file = row.directory.path().join("row2.toml");
        std::fs::write(&file, text).unwrap();
        let line = format!("emulate medium {}", file.display());
        let _daemon = Daemon::start(&row.host, &line, "emulating medium row2 of ");
        assert!(row.at(0).run(ip::names).unwrap().contains(&name.to_owned()));
    }
}

#[test]
fn a_capture_says_of_each_frame_who_received_it() {
    let row = Row::new("pcap", 2);
    let file = row.directory.path().join("row.pcapng");
    let mut daemon = row.start(&format!("--pcap {}", file.display()));
    assert!(row.ping(0, 1));
    assert!(run(&row.host, "emulate stop row").status.success());
    assert_eq!(daemon.end(), Some(0));
    let mut reader = PcapNgReader::new(std::fs::File::open(&file).unwrap()).unwrap();
    let mut comments = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.unwrap() {
            comments.push((packet.interface_id, format!("{:?}", packet.options)));
        }
    }
    let has = |interface, words| {
        comments
            .iter()
            .any(|(from, text): &(u32, String)| *from == interface && text.contains(words))
    };
    assert!(has(0, "received by s1, 0 retries"), "{comments:?}");
    assert!(has(1, "received by s0, 0 retries"), "{comments:?}");
}

#[test]
fn what_is_not_there_is_named_with_what_helps() {
    let row = Row::new("miss", 1);
    let refused = |change: &dyn Fn(&str) -> String| {
        let text = std::fs::read_to_string(row.file()).unwrap();
        let file = row.directory.path().join("wrong.toml");
        std::fs::write(&file, change(&text)).unwrap();
        let output = run(&row.host, &format!("emulate medium {}", file.display()));
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(said.lines().count(), 1, "{said}");
        said
    };
    let said = refused(&|text| text.replace(&row.stations[0].name, "sheaf-no-such"));
    assert!(said.contains("make it with `ip netns add sheaf-no-such`"), "{said}");
    let said = refused(&|text| text.replace("radio0", "lo"));
    assert!(said.contains("cannot make lo: it exists already; give another interface"), "{said}");
    let said = refused(&|text| text.replace("sense = -90", "sense = \"far\""));
    assert!(said.contains("wrong.toml: line 3: invalid type"), "{said}");
    // Of a group that documentation has (RFC 7042), so no machine has it, nor mac80211_hwsim.
    let radio = "radio = \"02:00:5e:00:53:01\"\nposition = [0, 0]\n";
    let said = refused(&|_| format!("{CHANNEL}[[station]]\nname = \"s0\"\n{radio}"));
    assert!(said.contains("`modprobe mac80211_hwsim radios=N`"), "{said}");
    let missing = run(&row.host, "emulate medium /nowhere/air.toml");
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(said.contains("cannot read /nowhere/air.toml; give a file that is there"), "{said}");
}
