//! `sheaf show` beside services that hang or were killed. Needs root.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");

/// A host with the interfaces `lan` and `wan`.
fn host() -> Namespace {
    let host = Namespace::new().unwrap();
    let make = || {
        ip::run("link add lan type veth peer name wan")?;
        ip::run("link set lan up")?;
        ip::run("link set wan up")
    };
    host.run(make).unwrap();
    host
}

fn command(host: &Namespace, line: &str) -> Command {
    let mut command = Command::new(SHEAF);
    command.args(line.split_whitespace());
    host.enter(&mut command);
    command
}

fn show(host: &Namespace, line: &str) -> Output {
    command(host, &format!("show {line}")).output().unwrap()
}

/// `sheaf window`, at work when it is made and killed at the latest when the test ends.
struct Service(Child);

impl Service {
    fn start(host: &Namespace, dev: &str) -> Service {
        let line = format!("window dev {dev} capacity 1mbit");
        let mut child = command(host, &line).stdout(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(first.contains(dev), "{first}");
        Service(child)
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id() as i32), signal).unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_service_that_hangs_is_named_and_the_others_are_shown() {
    let host = host();
    let (_lan, wan) = (Service::start(&host, "lan"), Service::start(&host, "wan"));
    wan.signal(Signal::SIGSTOP);
    let output = show(&host, "--json");
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = shown.as_array().unwrap().iter().map(|one| &one["interface"]).collect();
    assert_eq!(names, ["lan"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("sheaf: window wan did not respond in time; "), "{said}");
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    wan.signal(Signal::SIGCONT);
    let output = show(&host, "");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    assert!(["lan: ", "wan: "].iter().all(|name| printed.contains(name)), "{printed}");
}

#[test]
fn what_a_killed_service_left_is_removed_by_the_next_show() {
    let host = host();
    let inode = host.run(|| std::fs::metadata("/proc/thread-self/ns/net")).unwrap().ino();
    let directory = PathBuf::from(format!("/run/sheaf/net-{inode}"));
    let service = Service::start(&host, "lan");
    assert!(directory.join("window-lan.sock").exists());
    assert!(show(&host, "dev lan").status.success());
    assert!(directory.exists(), "its service runs");
    drop(service);
    assert_eq!(show(&host, "--json").stdout, b"[]\n");
    assert!(!directory.exists());
}
