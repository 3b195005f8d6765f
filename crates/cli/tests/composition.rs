//! Aggregation and emulation on one interface. Needs root.

mod pair;
mod patient;

use pair::{Pair, number, run};
use patient::patient;
use sheaf_netio::netns::Namespace;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");
/// A receiver that waits this long will get nothing more.
const LONG: Duration = Duration::from_secs(10);
/// Packets of each test: fewer than a receiver's socket holds, which counts each packet with the
/// whole frame that it came in.
const PACKETS: u32 = 100;

/// A command, killed at the latest when the test ends.
struct Running(Child);

impl Running {
    /// At work: it has said `word`.
    fn start(host: &Namespace, line: &str, word: &str) -> Running {
        let mut command = Command::new(SHEAF);
        command.args(line.split_whitespace()).stdout(Stdio::piped());
        host.enter(&mut command);
        let mut child = command.spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(first.starts_with(word), "{first}");
        Running(child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const AGGREGATE: [&str; 2] =
    ["aggregate dev if0 peer 10.1.0.2 policy forced engine kernel", "aggregating "];

fn emulate(direction: &str) -> [String; 2] {
    [format!("emulate dev if0 {direction} delay 10ms"), "emulating ".to_owned()]
}

/// Every packet from host 1 to host 2 arrives once, in order; the emulator of `host` saw each frame
/// once, which are fewer than packets.
fn carries_all(pair: &Pair, host: usize, link: &str) {
    let to = pair.hosts[1].run(|| UdpSocket::bind("10.1.0.2:5004")).unwrap();
    to.set_read_timeout(Some(LONG)).unwrap();
    let from = pair.hosts[0].run(|| UdpSocket::bind("10.1.0.1:0")).unwrap();
    from.connect("10.1.0.2:5004").unwrap();
    for number in 0..PACKETS {
        from.send(&number.to_be_bytes()).unwrap();
    }
    let mut bytes = [0; 4];
    let arrived: Vec<_> = (0..PACKETS)
        .map_while(|_| {
            patient(|| to.recv(&mut bytes)).ok()?;
            Some(u32::from_be_bytes(bytes))
        })
        .collect();
    assert_eq!(arrived, (0..PACKETS).collect::<Vec<_>>());
    let shown = run(&pair.hosts[host], "emulate show if0 --json");
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let passed = number(&shown, &["links", link, "delivered_packets"]);
    assert!((1..u64::from(PACKETS)).contains(&passed), "{passed} frames: {shown}");
    to.set_nonblocking(true).unwrap();
    assert!(to.recv(&mut bytes).is_err(), "a packet came twice");
}

/// Both hosts know each other as neighbours; host 2 splits.
fn prepared() -> Pair {
    let pair = Pair::new(1);
    for (host, other) in [(0, 2), (1, 1)] {
        let link = format!("neigh replace 10.1.0.{other} lladdr 02:00:00:00:00:0{other} dev if0");
        pair.hosts[host].run(|| sheaf_netio::ip::run(&format!("{link} nud permanent"))).unwrap();
    }
    pair
}

#[test]
fn what_is_gathered_is_emulated_as_frames_whichever_was_started_first() {
    for first in ["aggregate", "emulate"] {
        let pair = prepared();
        let split = run(&pair.hosts[1], "split dev if0 peer 10.1.0.1");
        assert!(split.status.success(), "{split:?}");
        let [line, word] = emulate("egress");
        let [aggregate, emulate] = [AGGREGATE, [line.as_str(), word.as_str()]];
        let order = if first == "aggregate" { [aggregate, emulate] } else { [emulate, aggregate] };
        let _both = order.map(|[line, word]| Running::start(&pair.hosts[0], line, word));
        carries_all(&pair, 0, "if0 egress");
    }
}

#[test]
fn what_arrives_is_emulated_as_frames_and_split_then_whichever_was_started_first() {
    for first in ["split", "emulate"] {
        let pair = prepared();
        let split = || {
            let split = run(&pair.hosts[1], "split dev if0 peer 10.1.0.1");
            assert!(split.status.success(), "{split:?}");
        };
        if first == "split" {
            split();
        }
        let [line, word] = emulate("ingress");
        let _emulation = Running::start(&pair.hosts[1], &line, &word);
        if first == "emulate" {
            split();
        }
        let [line, word] = AGGREGATE;
        let _aggregation = Running::start(&pair.hosts[0], line, word);
        carries_all(&pair, 1, "if0 ingress");
    }
}
