//! Each command runs with the capabilities that sheaf(8) lists for it, names the one that is
//! missing, and gives away after set-up what it no longer needs. Needs root.

use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};

const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");
const MANUAL: &str = include_str!("../../../man/sheaf.8");

/// Commands, and the capabilities that each needs, in the order in which the manual lists them.
const RIGHTS: [(&str, &[&str]); 8] = [
    ("split dev v0 peer 10.5.0.2", &["NET_ADMIN", "BPF", "PERFMON"]),
    ("aggregate dev v0 peer 10.5.0.2 engine kernel", &["NET_ADMIN", "NET_RAW", "BPF", "PERFMON"]),
    ("aggregate dev v0 peer 10.5.0.2 engine user", &["NET_ADMIN", "NET_RAW"]),
    ("window dev v0 capacity 20mbit", &["NET_ADMIN", "BPF", "PERFMON"]),
    ("trunk t0 path 10.5.0.1 10.5.0.2 plain", &["NET_ADMIN"]),
    ("trunk t0 dev v0 peer 02:00:00:00:00:01", &["NET_ADMIN", "NET_RAW"]),
    ("emulate link w0 x0 rate 10mbit", &["NET_ADMIN", "NET_RAW"]),
    ("emulate dev v0 rate 10mbit", &["NET_ADMIN", "NET_RAW", "BPF", "PERFMON"]),
];

/// A host with three cables; `v0` has 10.5.0.1.
fn host() -> Namespace {
    let host = Namespace::new().unwrap();
    host.run(|| {
        for near in ["v0", "w0", "x0"] {
            let far = near.replace('0', "1");
            ip::run(&format!("link add {near} type veth peer name {far}"))?;
            ip::run(&format!("link set {near} up"))?;
            ip::run(&format!("link set {far} up"))?;
        }
        ip::run("addr add 10.5.0.1/24 dev v0")
    })
    .unwrap();
    host
}

/// `sheaf line` on `host`, as root with no capabilities but `rights`.
fn start(host: &Namespace, line: &str, rights: &[&str]) -> Child {
    let rights = rights.iter().map(|right| format!(",+{}", right.to_lowercase()));
    let bounding = format!("-all{}", rights.collect::<String>());
    let mut command = Command::new("setpriv");
    command.args(["--inh-caps", "-all", "--bounding-set", &bounding, SHEAF]);
    command.args(line.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
    host.enter(&mut command);
    command.spawn().unwrap()
}

/// The first line that a process prints, or none when it ends before.
fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line
}

fn stop(mut child: Child) -> ExitStatus {
    let id = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    let _ = nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM);
    child.wait().unwrap()
}

/// A set of capabilities in /proc/PID/status.
fn set(child: &Child, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    u64::from_str_radix(line.trim_start_matches(':').trim(), 16).unwrap()
}

#[test]
fn every_command_runs_with_the_capabilities_of_its_line_and_no_more() {
    for (line, rights) in RIGHTS {
        let host = host();
        let mut child = start(&host, line, rights);
        let said = first_line(&mut child);
        if line.starts_with("split") {
            assert!(child.wait().unwrap().success(), "{line}: {:?}", child.wait_with_output());
            continue;
        }
        assert!(!said.is_empty(), "{line}: {:?}", child.wait_with_output());
        assert!(stop(child).success(), "{line}");
    }
}

#[test]
fn a_command_that_lacks_a_capability_names_it_and_what_helps() {
    let host = host();
    for (line, rights) in RIGHTS {
        for missing in rights {
            let others: Vec<_> = rights.iter().filter(|right| *right != missing).copied().collect();
            let output = start(&host, line, &others).wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{line} without {missing}: {said}");
            let told = format!("sheaf: this needs CAP_{missing}, which the process lacks; run it");
            assert!(said.starts_with(&told), "{line} without {missing}: {said}");
            assert_eq!(said.lines().count(), 1, "{line} without {missing}: {said}");
        }
    }
}

#[test]
fn what_a_command_no_longer_needs_is_gone_once_it_has_begun() {
    // CAP_NET_BIND_SERVICE, CAP_NET_ADMIN and CAP_NET_RAW by their numbers in linux/capability.h.
    let (bind, admin, raw) = (1 << 10, 1 << 12, 1 << 13);
    let cases = [
        ("trunk t0 path 10.5.0.1 10.5.0.2 plain", admin),
        ("trunk t0 path 10.5.0.1:443 10.5.0.2 plain", admin | bind),
        ("trunk t0 dev v0 peer 02:00:00:00:00:01", admin | raw),
        ("emulate link w0 x0 rate 10mbit", admin | raw),
    ];
    for (line, kept) in cases {
        let host = host();
        let mut command = Command::new(SHEAF);
        command.args(line.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::null());
        host.enter(&mut command);
        let mut child = command.spawn().unwrap();
        assert!(!first_line(&mut child).is_empty(), "{line}");
        for name in ["CapPrm", "CapEff", "CapBnd"] {
            assert_eq!(set(&child, name), kept, "{line}: {name}");
        }
        assert_eq!(set(&child, "NoNewPrivs"), 1, "{line}");
        assert!(stop(child).success(), "{line}");
    }
}

#[test]
fn the_manual_lists_these_capabilities() {
    let (_, section) = MANUAL.split_once(".SH CAPABILITIES").unwrap();
    for (line, rights) in RIGHTS {
        let command: Vec<_> = line.split_whitespace().take(1).collect();
        assert!(section.contains(command[0]), "{line}");
        for right in rights {
            assert!(section.contains(&format!("CAP_{right}")), "{line}: {right}");
        }
    }
}
