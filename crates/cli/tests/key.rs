//! `sheaf trunk` with a key, between two hosts joined by cables. Needs root.

mod pair;
mod patient;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pair::{Pair, Trunk, number, run};
use patient::patient;
use sheaf_netio::ip;
use sheaf_netio::packet::PacketSocket;
use std::fs::Permissions;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// Words that only the application knows.
const SECRET: &[u8] = b"nobody else may read this";

/// A folder with the key of both ends, and another key.
struct Keys(tempfile::TempDir);

impl Keys {
    fn new(pair: &Pair) -> Keys {
        let keys = Keys(tempfile::tempdir().unwrap());
        for name in ["right", "wrong"] {
            let made = run(&pair.hosts[0], "trunk key");
            assert!(made.status.success() && made.stdout.len() == 65, "{made:?}");
            std::fs::write(keys.path(name), &made.stdout).unwrap();
            std::fs::set_permissions(keys.path(name), Permissions::from_mode(0o600)).unwrap();
        }
        keys
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The word and its value.
    fn word(&self, name: &str) -> String {
        format!("key {}", self.path(name).display())
    }
}

fn keyed(cables: usize) -> (Pair, Keys) {
    let mut pair = Pair::new(cables);
    pair.keyed = true;
    let keys = Keys::new(&pair);
    (pair, keys)
}

#[test]
fn a_file_arrives_whole_and_nothing_can_be_read_on_the_cables() {
    let (pair, keys) = keyed(2);
    let mut members = pair.paths();
    members[1] = pair.frames().remove(1);
    let sniffers = [0, 1].map(|cable| {
        let open = || PacketSocket::open(ip::index(&format!("if{cable}"))?);
        pair.hosts[1].run(open).unwrap()
    });
    let (here, there) = pair.trunks_with(&members, &keys.word("right"));
    let shown = here.shown();
    assert_eq!(shown["encrypted"], true);
    assert_eq!(shown["mtu"], 1500 - 28 - 24 - 8, "IPv4 and UDP, the seal, the trunk's header");
    pair.transfer("10.99.0.2:5001", 4 << 20);
    for link in ["0", "1"] {
        let frames = number(&there.shown(), &["links", link, "frames_received"]);
        assert!(frames > 50, "link {link} carried {frames}");
    }
    for reason in ["wrong-key", "replayed", "not-sealed", "malformed"] {
        assert!(there.shown()["refused"].get(reason).is_none(), "{}", there.shown());
    }
    let mut bytes = vec![0; 1 << 16];
    let mut seen = || {
        let mut frames = Vec::new();
        for sniffer in &sniffers {
            while let Some(len) = sniffer.receive(&mut bytes).unwrap() {
                frames.push(bytes[..len].to_vec());
            }
        }
        frames
    };
    seen();
    let to = pair.hosts[1].run(|| UdpSocket::bind("10.99.0.2:6000")).unwrap();
    let from = pair.hosts[0].run(|| UdpSocket::bind("10.99.0.1:0")).unwrap();
    from.send_to(SECRET, "10.99.0.2:6000").unwrap();
    let mut heard = [0; 64];
    let len = patient(|| to.recv(&mut heard)).unwrap();
    assert_eq!(&heard[..len], SECRET);
    let frames = seen();
    assert!(!frames.is_empty(), "it went over one of the cables");
    let reads = |frame: &Vec<u8>| frame.windows(SECRET.len()).any(|bytes| bytes == SECRET);
    assert!(!frames.iter().any(reads), "in clear");
}

#[test]
fn either_end_may_restart_or_sleep_whichever_of_them_was_given_the_address_of_the_other() {
    let given = [[true, true], [true, false], [false, true]];
    for (given, host) in given.into_iter().flat_map(|given| [(given, 0), (given, 1)]) {
        let (pair, keys) = keyed(2);
        let member = |cable: usize, host: usize| {
            let (ours, theirs) = (host + 1, 2 - host);
            let remote =
                if given[host] { format!(" 10.1.{cable}.{theirs}") } else { String::new() };
            format!("path 10.1.{cable}.{ours}{remote}")
        };
        let members: Vec<_> = (0..2).map(|cable| [member(cable, 0), member(cable, 1)]).collect();
        let line = |host| format!("{} {}", pair.line(host, &members), keys.word("right"));
        let start = |host: usize| Trunk::start(&pair.hosts[host], &line(host));
        let (one, mut other) = (start(host), start(1 - host));
        (0..2).for_each(|_| other.wait_for(" is up"));
        pair.transfer("10.99.0.2:5001", 1 << 20);
        let process = Pid::from_raw(one.process() as i32);
        kill(process, Signal::SIGSTOP).unwrap();
        (0..2).for_each(|_| other.wait_for(" is down"));
        kill(process, Signal::SIGCONT).unwrap();
        (0..2).for_each(|_| other.wait_for(" is up"));
        pair.transfer("10.99.0.2:5002", 1 << 20);
        one.kill();
        let mut anew = start(host);
        (0..2).for_each(|_| anew.wait_for(" is up"));
        pair.transfer("10.99.0.2:5003", 1 << 20);
        assert_eq!(number(&other.shown(), &["sessions"]), 2, "{given:?}");
    }
}

#[test]
fn an_end_with_another_key_or_none_gets_nowhere_and_the_log_says_why() {
    let (pair, keys) = keyed(1);
    let members = pair.paths();
    let line = |host, words: &str| format!("{} {words}", pair.line(host, &members));
    let mut there = Trunk::start(&pair.hosts[1], &line(1, &keys.word("right")));
    let wrong = Trunk::start(&pair.hosts[0], &line(0, &keys.word("wrong")));
    there.wait_for("frames with another key arrive; give both ends the same key file");
    assert!(number(&there.shown(), &["refused", "wrong-key"]) > 0);
    wrong.kill();
    let mut plain = Trunk::start(&pair.hosts[0], &line(0, "plain"));
    plain.wait_for("frames with a key arrive and there is none here");
    assert_eq!(plain.shown()["sessions"], 0);
    assert_eq!(there.shown()["sessions"], 0);
    assert!(number(&there.shown(), &["refused", "not-sealed"]) > 0);
    plain.kill();
    let mut right = Trunk::start(&pair.hosts[0], &line(0, &keys.word("right")));
    right.wait_for(" is up");
    pair.transfer("10.99.0.2:5001", 1 << 20);
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let (pair, keys) = keyed(1);
    std::fs::set_permissions(keys.path("right"), Permissions::from_mode(0o644)).unwrap();
    let output = run(&pair.hosts[0], &format!("trunk t0 path 10.1.0.1 {}", keys.word("right")));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("(mode 0644); run chmod 600") && said.lines().count() == 1, "{said}");
}
