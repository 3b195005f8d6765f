//! The binary on real interfaces between namespaces. Needs root.

mod patient;

use patient::patient;
use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");
/// A receiver that waits this long will get nothing more.
const LONG: Duration = Duration::from_secs(10);

/// Hosts in a row, each pair joined by a cable: host i has 10.8.i.1 and fd08:i::1 on `right`
/// towards host i + 1, which has 10.8.i.2 and fd08:i::2 on `left`. Every host routes.
fn row(hosts: usize) -> Vec<Namespace> {
    let row: Vec<_> = (0..hosts).map(|_| Namespace::new().unwrap()).collect();
    for (cable, pair) in row.windows(2).enumerate() {
        let other = pair[1].path();
        pair[0]
            .run(|| {
                ip::run(&format!(
                    "link add right address 02:00:00:00:{cable:02x}:01 type veth \
                     peer name left address 02:00:00:00:{cable:02x}:02 netns {other}"
                ))
            })
            .unwrap();
        for (host, dev, ours, theirs) in [(&pair[0], "right", 1, 2), (&pair[1], "left", 2, 1)] {
            host.run(|| {
                std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
                std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1")?;
                std::fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "0")?;
                ip::run(&format!("addr add 10.8.{cable}.{ours}/24 dev {dev}"))?;
                ip::run(&format!("addr add fd08:{cable}::{ours}/64 dev {dev} nodad"))?;
                ip::run(&format!("link set {dev} up"))?;
                for neighbour in
                    [format!("10.8.{cable}.{theirs}"), format!("fd08:{cable}::{theirs}")]
                {
                    let link = format!("lladdr 02:00:00:00:{cable:02x}:0{theirs}");
                    ip::run(&format!("neigh add {neighbour} {link} dev {dev} nud permanent"))?;
                }
                Ok(())
            })
            .unwrap();
        }
    }
    for (index, host) in row.iter().enumerate() {
        for cable in 0..hosts - 1 {
            let (v4, v6) = (format!("10.8.{cable}.0/24"), format!("fd08:{cable}::/64"));
            let gateway = match cable {
                cable if cable > index => (format!("10.8.{index}.2"), format!("fd08:{index}::2")),
                cable if cable + 1 < index => {
                    (format!("10.8.{}.1", index - 1), format!("fd08:{}::1", index - 1))
                }
                _ => continue,
            };
            host.run(|| {
                ip::run(&format!("route add {v4} via {}", gateway.0))?;
                ip::run(&format!("route add {v6} via {}", gateway.1))
            })
            .unwrap();
        }
    }
    row
}

fn command(namespace: &Namespace, line: &str) -> Command {
    let mut command = Command::new(SHEAF);
    command.args(line.split_whitespace());
    namespace.enter(&mut command);
    command
}

fn run(namespace: &Namespace, line: &str) -> Output {
    command(namespace, line).output().unwrap()
}

/// `sheaf aggregate`, killed at the latest when the test ends.
struct Daemon(Child);

impl Daemon {
    /// At work: it has said so, and that `engine` carries the packets.
    fn start(namespace: &Namespace, line: &str, engine: &str) -> Daemon {
        let mut child = command(namespace, line).stdout(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
        assert!(first.starts_with("aggregating on "), "{first}");
        assert!(first.contains(&format!(": engine {engine}")), "{first}");
        Daemon(child)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sockets(from: &Namespace, to: (&Namespace, &str)) -> (UdpSocket, UdpSocket) {
    let (host, address) = to;
    let any = if address.contains('[') { "[::]:0" } else { "0.0.0.0:0" };
    let to = host.run(|| UdpSocket::bind(address)).unwrap();
    to.set_read_timeout(Some(LONG)).unwrap();
    // What is split has the buffer of a full frame each: room for all, whenever we are scheduled.
    nix::sys::socket::setsockopt(&to, nix::sys::socket::sockopt::RcvBufForce, &(8 << 20)).unwrap();
    let from = from.run(|| UdpSocket::bind(any)).unwrap();
    from.connect(address).unwrap();
    (from, to)
}

fn numbers(socket: &UdpSocket, count: u32) -> Vec<u32> {
    let mut bytes = [0; 64];
    let mut number = || {
        patient(|| socket.recv(&mut bytes))
            .unwrap_or_else(|_| panic!("packets are missing at {:?}", socket.local_addr()));
        u32::from_be_bytes(bytes[..4].try_into().unwrap())
    };
    (0..count).map(|_| number()).collect()
}

fn send(socket: &UdpSocket, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let mut payload = [0; 32];
        payload[..4].copy_from_slice(&number.to_be_bytes());
        socket.send(&payload).unwrap();
    }
}

/// Report of `sheaf show` on an interface.
fn shown(namespace: &Namespace, dev: &str) -> serde_json::Value {
    let output = run(namespace, &format!("show dev {dev} --json"));
    let mut shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    shown[0].take()
}

fn total(shown: &serde_json::Value, name: &str) -> u64 {
    shown["total"][name].as_u64().unwrap()
}

/// Every packet that left in a meta packet came out of one, and besides them only probes did, and
/// gathered packets that left alone. `ours` was shown before `theirs`.
fn assert_split(theirs: &serde_json::Value, ours: &serde_json::Value) {
    let split = theirs["split"]["packets"].as_u64().unwrap();
    assert!(split >= total(ours, "aggregated_packets"), "{split} of {ours}");
}

#[test]
fn what_is_aggregated_on_one_host_is_split_on_the_other_and_shown() {
    let row = row(2);
    assert!(run(&row[1], "split dev left peer 10.8.0.1").status.success());
    let line = "aggregate dev right policy forced peer 10.8.0.2";
    let _daemon = Daemon::start(&row[0], line, "kernel");
    let (from, to) = sockets(&row[0], (&row[1], "10.8.0.2:5004"));
    send(&from, 0..200);
    assert_eq!(numbers(&to, 200), (0..200).collect::<Vec<_>>());

    let ours = shown(&row[0], "right");
    assert_eq!(total(&ours, "aggregated_packets") + total(&ours, "unaggregated_packets"), 200);
    assert!(total(&ours, "meta_packets") > 0);
    assert!(ours["hops"]["10.8.0.2"].is_object(), "{ours}");
    let theirs = shown(&row[1], "left");
    assert_split(&theirs, &ours);
    let second = run(&row[0], "aggregate dev right peer 10.8.0.2");
    assert!(String::from_utf8_lossy(&second.stderr).contains("aggregated already"));
}

#[test]
fn every_router_on_the_way_splits_and_aggregates_again_hop_by_hop() {
    let row = row(3);
    assert!(run(&row[2], "split dev left peer 10.8.1.1").status.success());
    assert!(run(&row[1], "split dev left peer 10.8.0.1").status.success());
    let line = "aggregate dev right policy forced peer 10.8.1.2";
    let _second = Daemon::start(&row[1], line, "kernel");
    let line = "aggregate dev right policy forced peer 10.8.0.2";
    let _first = Daemon::start(&row[0], line, "kernel");
    let (from, to) = sockets(&row[0], (&row[2], "10.8.1.2:5004"));
    send(&from, 0..200);
    assert_eq!(numbers(&to, 200), (0..200).collect::<Vec<_>>());
    for (host, dev) in [(&row[0], "right"), (&row[1], "right")] {
        let shown = shown(host, dev);
        assert!(total(&shown, "meta_packets") > 0, "{shown}");
    }
}

#[test]
fn a_plain_router_carries_meta_packets_between_far_ends() {
    let row = row(3);
    assert!(run(&row[2], "split dev left from 10.8.0.1 from fd08:0::1").status.success());
    let line = "aggregate dev right policy forced to 10.8.1.2 to fd08:1::2";
    let _daemon = Daemon::start(&row[0], line, "kernel");
    for address in ["10.8.1.2:5004", "[fd08:1::2]:5004"] {
        let (from, to) = sockets(&row[0], (&row[2], address));
        send(&from, 0..200);
        assert_eq!(numbers(&to, 200), (0..200).collect::<Vec<_>>(), "{address}");
    }
    let ours = shown(&row[0], "right");
    for far_end in ["10.8.1.2", "fd08:1::2"] {
        assert!(ours["hops"][far_end]["meta_packets"].as_u64().unwrap() > 0, "{ours}");
    }
    let theirs = shown(&row[2], "left");
    assert_split(&theirs, &ours);
    assert!(run(&row[1], "show").stderr.starts_with(b"sheaf: nothing aggregates or splits here"));
}

/// Looks at a report until it says what it must, each of which takes some milliseconds.
const LOOKS: usize = 2000;

#[test]
fn the_engine_in_user_space_speaks_with_the_kernels_in_both_directions() {
    let row = row(3);
    let line = "aggregate dev right policy forced engine user peer 10.8.0.2 peer fd08:0::2";
    let user = Daemon::start(&row[0], line, "user (TAP sheaf");
    let line = "aggregate dev left policy forced peer 10.8.0.1 peer fd08:0::1";
    let _kernel = Daemon::start(&row[1], line, "kernel");
    // The one that was first has still to hear of the other.
    let knows = || shown(&row[0], "right")["hops"]["10.8.0.2"]["splits"] == "yes";
    assert!((0..LOOKS).any(|_| knows()), "{}", shown(&row[0], "right"));
    // To the neighbour itself and to a host behind it, in IPv4 and IPv6; and back.
    for address in ["10.8.0.2:5004", "[fd08:0::2]:5004"] {
        let (from, to) = sockets(&row[0], (&row[1], address));
        send(&from, 0..200);
        assert_eq!(numbers(&to, 200), (0..200).collect::<Vec<_>>(), "{address}");
    }
    for address in ["10.8.1.2:5004", "[fd08:1::2]:5004"] {
        let (from, to) = sockets(&row[0], (&row[2], address));
        send(&from, 0..200);
        assert_eq!(numbers(&to, 200), (0..200).collect::<Vec<_>>(), "{address}");
    }
    for address in ["10.8.0.1:5004", "[fd08:0::1]:5004"] {
        let (from, to) = sockets(&row[1], (&row[0], address));
        send(&from, 0..200);
        assert_eq!(numbers(&to, 200), (0..200).collect::<Vec<_>>(), "{address}");
    }
    let ours = shown(&row[0], "right");
    let theirs = shown(&row[1], "left");
    assert!(total(&ours, "aggregated_packets") > 0, "{ours}");
    assert!(total(&theirs, "aggregated_packets") > 0, "{theirs}");
    assert_split(&theirs, &ours);
    // In user space what leaves alone has a meta header, too.
    let theirs = shown(&row[1], "left");
    let split = theirs["split"]["packets"].as_u64().unwrap();
    let ours = shown(&row[0], "right");
    let gathered = total(&ours, "aggregated_packets") + total(&ours, "unaggregated_packets");
    assert!(split >= gathered, "{split} of {gathered}");
    drop(user);
    let links = row[0].run(|| ip::output("link")).unwrap();
    assert!(!links.contains("sheaf"), "{links}");
}

#[test]
fn killed_under_load_the_process_leaves_traffic_that_flows_unaggregated() {
    for engine in ["kernel", "user"] {
        let row = row(2);
        assert!(run(&row[1], "split dev left peer any").status.success());
        let line = format!("aggregate dev right policy forced engine {engine} peer any");
        let mut daemon = Daemon::start(&row[0], &line, engine);
        let (from, to) = sockets(&row[0], (&row[1], "10.8.0.2:5004"));
        send(&from, 0..100);
        daemon.kill();
        send(&from, 1000..1100);
        // What was held may be lost; everything after the kill arrives, in order.
        let mut after = Vec::new();
        while after.last() != Some(&1099) {
            after.extend(numbers(&to, 1).into_iter().filter(|number| *number >= 1000));
        }
        assert_eq!(after, (1000..1100).collect::<Vec<_>>(), "{engine}");
    }
}

#[test]
fn wrong_input_is_one_line_with_a_remedy_and_leaves_nothing_behind() {
    let row = row(2);
    let plan = std::env::temp_dir().join(format!("sheaf-plan-{}.toml", std::process::id()));
    std::fs::write(&plan, "titel = \"misspelt\"\n").unwrap();
    let bad_plan = format!("lab run {}", plan.display());
    for (line, expected) in [
        ("aggregate dev wlan9 peer any", "no interface \"wlan9\"; there are lo, right"),
        ("aggregate dev lo peer any", "lo is not an Ethernet interface; give one that is"),
        ("aggregate dev right peer any min 1600", "min 1600 is above max 1500"),
        ("aggregate dev right peer any max 2000", "above the MTU of right, 1500"),
        ("aggregate dev right to 10.0.0.9 key k", "key is for HELLOs"),
        ("aggregate dev right peer any polcy busy", "did you mean \"policy\""),
        ("split dev right off", "no splitter on right"),
        ("split dev right peer any key k", "key is for HELLOs"),
        ("show dev right", "nothing aggregates or splits here"),
        ("lab run no-such-plan", "no plan \"no-such-plan\""),
        (bad_plan.as_str(), "titel"),
    ] {
        let output = run(&row[0], line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{line}: {said}");
        assert!(output.stdout.is_empty(), "{line}");
    }
    std::fs::remove_file(plan).unwrap();
    let left = row[0].run(|| {
        let tc = ["qdisc", "show", "dev", "right"];
        Ok(String::from_utf8(Command::new("tc").args(tc).output()?.stdout).unwrap())
    });
    assert!(!left.unwrap().contains("clsact"));
}

/// Root without the capabilities that loading programs needs.
const NO_BPF: [&str; 3] = ["setpriv", "--bounding-set", "-sys_admin,-bpf"];

/// Runs the line under `prefix`, a command that changes what the program finds.
fn run_under(namespace: &Namespace, prefix: &[&str], line: &str) -> Output {
    let mut command = Command::new(prefix[0]);
    command.args(&prefix[1..]).arg(SHEAF).args(line.split_whitespace());
    namespace.enter(&mut command);
    command.output().unwrap()
}

#[test]
fn without_root_or_the_right_to_load_programs_the_program_says_what_helps() {
    let row = row(2);
    let nobody = ["setpriv", "--reuid", "65534", "--clear-groups"];
    for (prefix, line, expected) in [
        (&nobody[..], "aggregate dev right peer any", "needs CAP_NET_ADMIN and CAP_NET_RAW"),
        (&nobody[..], "split dev right peer any", "needs CAP_NET_ADMIN"),
        (&NO_BPF[..], "aggregate dev right peer any engine kernel", "needs CAP_BPF"),
    ] {
        let output = run_under(&row[0], prefix, line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{line}: {said}");
    }
}

/// The line that `sheaf aggregate` under `prefix` prints when it is at work.
fn first_line(namespace: &Namespace, prefix: &[&str]) -> String {
    let mut command = Command::new(prefix[0]);
    command.args(&prefix[1..]).args([SHEAF, "aggregate", "dev", "right", "peer", "any"]);
    command.stdout(Stdio::piped());
    namespace.enter(&mut command);
    let mut daemon = Daemon(command.spawn().unwrap());
    let mut first = String::new();
    BufReader::new(daemon.0.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    first
}

#[test]
fn where_programs_are_refused_the_engine_in_user_space_takes_over_and_says_why() {
    let first = first_line(&row(2)[0], &NO_BPF);
    assert!(first.contains("engine user (TAP sheaf"), "{first}");
    assert!(first.contains("as this needs CAP_BPF"), "{first}");
}

#[test]
fn without_type_information_the_kernel_engine_is_at_work() {
    let no_btf =
        ["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /sys/kernel && exec \"$@\"", "sh"];
    let first = first_line(&row(2)[0], &no_btf);
    assert!(first.contains("engine kernel (eBPF at "), "{first}");
    assert!(first.trim_end().ends_with("policy busy, fifo"), "{first}");
}
