//! Aggregation on interfaces that carry bare IP packets: WireGuard, and a trunk, which also leads
//! through a NAT. Needs root; says so in a line where WireGuard is missing.

mod pair;
mod patient;
mod voice;
mod wire;

use pair::{Pair, Service, Trunk, number, run};
use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use sheaf_netio::poller::Poller;
use sheaf_netio::{clock, timer};
use std::io::Write;
use std::process::Command;
use std::time::Duration;
use voice::{CALLS, Talk, talk};
use wire::{Key, Wire};

/// Bytes of a voice packet.
const PLAIN: f64 = 60.0;

/// `sheaf aggregate` on interface `dev` towards the far end `to`, at work.
fn gather(host: &Namespace, dev: &str, to: &str) -> Service {
    let line = format!("aggregate dev {dev} policy forced timeout 20ms to {to}");
    Service::start(host, &line, &format!("aggregating on {dev}: engine user (TAP "))
}

/// The counters of the far end `to`.
fn counters(host: &Namespace, dev: &str, to: &str) -> serde_json::Value {
    let output = run(host, &format!("show dev {dev} --json"));
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    shown[0]["hops"][to].clone()
}

/// Calls from host `from` to the far end `to` until its frames have the compressed format. Nothing
/// is lost meanwhile.
fn until_compressed(from: &Namespace, there: &Namespace, dev: &str, to: &str) {
    while counters(from, dev, to)["format"] != "compressed" {
        assert_eq!(talk(from, there, &format!("{to}:5004"), 10), Talk::default());
    }
}

/// Bytes on the way for each packet of calls from host `from` to the far end `to`.
fn cost(from: &Namespace, there: &Namespace, dev: &str, to: &str) -> f64 {
    const COUNT: u16 = 200;
    let bytes = || number(&counters(from, dev, to), &["aggregated_bytes_on_network"]) as f64;
    let before = bytes();
    assert_eq!(talk(from, there, &format!("{to}:5004"), COUNT), Talk::default());
    (bytes() - before) / (CALLS as f64 * f64::from(COUNT))
}

#[test]
fn calls_over_wireguard_share_frames_with_compressed_headers() {
    if let Some(missing) = wire::missing() {
        eprintln!("skipped: {missing}");
        return;
    }
    let pair = Pair::new(1);
    let [here, there] = &pair.hosts;
    let wires = Wire::both(&pair, 0, &[Key::new(), Key::new()]);
    let _far = gather(there, &wires[1].name, "10.9.0.1");
    let _near = gather(here, &wires[0].name, "10.9.0.2");
    until_compressed(here, there, &wires[0].name, "10.9.0.2");
    let bytes = cost(here, there, &wires[0].name, "10.9.0.2");
    assert!(bytes < PLAIN * 0.6, "{bytes} bytes a packet");
}

/// A host between both, whose cable 0 leads to host 1 and cable 1 to host 2, and behind which host
/// 1 is hidden. It forgets a flow after a second of silence.
fn nat() -> (Pair, Namespace) {
    let (pair, nat) = (Pair::new(0), Namespace::new().unwrap());
    let there = nat.path();
    for (cable, host) in pair.hosts.iter().enumerate() {
        let number = cable + 1;
        host.run(|| {
            ip::run(&format!("link add if{cable} type veth peer name if{cable} netns {there}"))?;
            ip::run(&format!("addr add 10.1.{cable}.2/24 dev if{cable}"))?;
            ip::run(&format!("link set if{cable} up"))
        })
        .unwrap_or_else(|error| panic!("host {number}: {error}"));
        nat.run(|| {
            ip::run(&format!("addr add 10.1.{cable}.1/24 dev if{cable}"))?;
            ip::run(&format!("link set if{cable} up"))
        })
        .unwrap();
    }
    pair.hosts[0].run(|| ip::run("route add default via 10.1.0.1")).unwrap();
    let rules = "add table ip nat\n\
                 add chain ip nat out { type nat hook postrouting priority 100; }\n\
                 add rule ip nat out oifname if1 masquerade\n";
    let set = |name: &str, value: &str| std::fs::write(format!("/proc/sys/net/{name}"), value);
    nat.run(|| {
        set("ipv4/ip_forward", "1")?;
        let mut nft = Command::new("nft");
        let mut nft = nft.args(["-f", "-"]).stdin(std::process::Stdio::piped()).spawn()?;
        nft.stdin.take().expect("piped").write_all(rules.as_bytes())?;
        assert!(nft.wait()?.success());
        set("netfilter/nf_conntrack_udp_timeout", "1")?;
        set("netfilter/nf_conntrack_udp_timeout_stream", "1")
    })
    .unwrap();
    (pair, nat)
}

#[test]
fn calls_through_a_nat_that_forgets_soon_share_frames_over_a_trunk_of_one_link() {
    let (pair, _nat) = nat();
    let [here, there] = &pair.hosts;
    let mut key = tempfile::NamedTempFile::new().unwrap();
    key.write_all("5a".repeat(32).as_bytes()).unwrap();
    let key = key.path().display();
    let server = format!("trunk t0 path 0.0.0.0 key {key} address 10.99.0.2/24");
    let client = format!("trunk t0 path if0 10.1.1.2 key {key} address 10.99.0.1/24");
    let mut far = Trunk::start(there, &server);
    let mut near = Trunk::start(here, &client);
    far.wait_for("is up");
    near.wait_for("is up");
    let services = [gather(there, "t0", "10.99.0.1"), gather(here, "t0", "10.99.0.2")];
    until_compressed(here, there, "t0", "10.99.0.2");
    until_compressed(there, here, "t0", "10.99.0.1");
    let bytes = cost(here, there, "t0", "10.99.0.2");
    assert!(bytes < PLAIN * 0.6, "{bytes} bytes a packet");
    // Longer than the NAT remembers; then the server calls first.
    let rest = clock::now() + Duration::from_secs(3);
    timer::wait(&mut Poller::default(), 0, rest, Duration::ZERO).unwrap();
    // All of one moment: frames that say who is there go on.
    let counters = || {
        let output = run(there, "show t0 --json");
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        ["packets_sent", "packets_compressed", "bytes_saved"]
            .map(|name| number(&shown[0]["trunk"], &[name]))
    };
    let before = counters();
    let bytes = cost(there, here, "t0", "10.99.0.1");
    assert!(bytes < PLAIN * 0.6, "{bytes} bytes a packet");
    let after = counters();
    let [frames, compressed, saved] = [0, 1, 2].map(|at| after[at] - before[at]);
    assert!(compressed * 10 > frames * 9, "{compressed} of {frames} frames without header of IP");
    assert_eq!(saved, 16 * compressed, "of the header of IP 4 bytes are left");
    drop(services);
}

#[test]
fn where_there_are_no_neighbours_the_error_names_far_ends_and_the_other_engine() {
    let (pair, _nat) = nat();
    let path = "trunk t0 path if0 10.1.1.2 plain address 10.99.0.1/24";
    let _trunk = Trunk::start(&pair.hosts[0], path);
    for (line, error) in [
        ("aggregate dev t0", "t0 carries bare IP packets, so it has no neighbours; name the other"),
        ("aggregate dev t0 to 10.99.0.2 engine kernel", "the kernel engine cannot gather"),
        ("split dev t0 from 10.99.0.2", "t0 carries bare IP packets"),
    ] {
        let output = run(&pair.hosts[0], line);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(error), "{line}: {said}");
    }
}
