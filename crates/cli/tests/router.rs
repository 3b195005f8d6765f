//! The binary on real interfaces between namespaces. Needs root.

use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");

/// Two hosts and a cable: 10.8.0.1 and 10.8.0.2 on eth0.
fn pair() -> (Namespace, Namespace) {
    let (a, b) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    let other = b.path();
    a.run(|| {
        ip::run(&format!(
            "link add eth0 address 02:00:00:00:08:01 type veth peer name eth0 \
             address 02:00:00:00:08:02 netns {other}"
        ))
    })
    .unwrap();
    for (host, ours, theirs) in [(&a, 1, 2), (&b, 2, 1)] {
        host.run(|| {
            ip::run(&format!("addr add 10.8.0.{ours}/24 dev eth0"))?;
            ip::run("link set eth0 up")?;
            let neighbour = format!("10.8.0.{theirs} lladdr 02:00:00:00:08:0{theirs}");
            ip::run(&format!("neigh add {neighbour} dev eth0 nud permanent"))
        })
        .unwrap();
    }
    (a, b)
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

/// `sheaf aggregate` at work: it has said so.
fn start(namespace: &Namespace, line: &str) -> Child {
    let mut child = command(namespace, line).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("aggregating on eth0: engine kernel"), "{first}");
    child
}

fn sockets(a: &Namespace, b: &Namespace) -> (UdpSocket, UdpSocket) {
    let to = b.run(|| UdpSocket::bind("10.8.0.2:5004")).unwrap();
    to.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let from = a.run(|| UdpSocket::bind("10.8.0.1:0")).unwrap();
    from.connect("10.8.0.2:5004").unwrap();
    (from, to)
}

fn numbers(socket: &UdpSocket, count: u32) -> Vec<u32> {
    let mut bytes = [0; 64];
    let mut number = || {
        socket.recv(&mut bytes).expect("every packet arrives");
        u32::from_be_bytes(bytes[..4].try_into().unwrap())
    };
    (0..count).map(|_| number()).collect()
}

fn payload(number: u32) -> [u8; 32] {
    let mut payload = [0; 32];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    payload
}

fn send(socket: &UdpSocket, numbers: std::ops::Range<u32>) {
    for number in numbers {
        socket.send(&payload(number)).unwrap();
    }
}

#[test]
fn what_is_aggregated_on_one_host_is_split_on_the_other_and_shown() {
    let (a, b) = pair();
    assert!(run(&b, "split dev eth0 peer 10.8.0.1").status.success());
    let mut daemon = start(&a, "aggregate dev eth0 policy forced peer 10.8.0.2");
    let (from, to) = sockets(&a, &b);
    send(&from, 0..200);
    assert_eq!(numbers(&to, 200), (0..200).collect::<Vec<_>>());

    let json = run(&a, "show --json").stdout;
    let shown: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let total = &shown[0]["total"];
    let count = |name: &str| total[name].as_u64().unwrap();
    assert_eq!(count("aggregated_packets") + count("unaggregated_packets"), 200, "{total}");
    assert!(count("meta_packets") > 0);
    assert!(shown[0]["hops"]["10.8.0.2"].is_object(), "{shown}");
    let json = run(&b, "show dev eth0 --json").stdout;
    let shown: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(shown[0]["split"]["packets"].as_u64().unwrap(), count("aggregated_packets"));

    let second = run(&a, "aggregate dev eth0 peer 10.8.0.2");
    assert!(String::from_utf8_lossy(&second.stderr).contains("aggregated already"));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}

#[test]
fn killed_under_load_the_process_leaves_traffic_that_flows_unaggregated() {
    let (a, b) = pair();
    assert!(run(&b, "split dev eth0 peer any").status.success());
    let mut daemon = start(&a, "aggregate dev eth0 policy forced peer any");
    let (from, to) = sockets(&a, &b);
    send(&from, 0..100);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    send(&from, 1000..1100);
    // What was held may be lost; everything after the kill arrives, at once and in order.
    let mut bytes = [0; 64];
    let mut after = Vec::new();
    while after.last() != Some(&1099) {
        to.recv(&mut bytes).expect("traffic goes on");
        let number = u32::from_be_bytes(bytes[..4].try_into().unwrap());
        if number >= 1000 {
            after.push(number);
        }
    }
    assert_eq!(after, (1000..1100).collect::<Vec<_>>());
}

#[test]
fn wrong_input_is_one_line_with_a_remedy_and_leaves_nothing_behind() {
    let (a, _b) = pair();
    for (line, expected) in [
        ("aggregate dev wlan9 peer any", "no interface \"wlan9\"; there are lo, eth0"),
        ("aggregate dev lo peer any", "no Ethernet interface"),
        ("aggregate dev eth0 peer any min 1600", "min 1600 is above max 1500"),
        ("aggregate dev eth0 peer any max 2000", "above the MTU of eth0, 1500"),
        ("aggregate dev eth0", "give peer ADDR"),
        ("aggregate dev eth0 peer any polcy busy", "did you mean \"policy\""),
        ("split dev eth0 off", "no splitter on eth0"),
        ("lab run no-such-plan", "no plan \"no-such-plan\""),
    ] {
        let output = run(&a, line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{line}: {said}");
        assert!(output.stdout.is_empty(), "{line}");
    }
    let left = a.run(|| {
        let tc = ["qdisc", "show", "dev", "eth0"];
        Ok(String::from_utf8(Command::new("tc").args(tc).output()?.stdout).unwrap())
    });
    assert!(!left.unwrap().contains("clsact"));
}
