//! WireGuard links between two hosts.

use crate::pair::Pair;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Parts that WireGuard needs and this machine lacks.
pub fn missing() -> Option<&'static str> {
    let runs = |program: &str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        found.is_ok_and(|output| output.status.success())
    };
    if !runs("wg") {
        return Some("there is no wg; install wireguard-tools");
    }
    let kernel = Namespace::new().unwrap().run(|| ip::run("link add wg0 type wireguard"));
    (kernel.is_err() && !runs("wireguard-go"))
        .then_some("this kernel has no WireGuard; install wireguard-go")
}

/// A host's pair of keys.
pub struct Key {
    private: String,
    public: String,
}

impl Key {
    pub fn new() -> Key {
        let private = wg(None, &["genkey"], "");
        let public = wg(None, &["pubkey"], &private);
        Key { private, public }
    }
}

/// Runs `wg` with `input`; what it says.
fn wg(host: Option<&Namespace>, words: &[&str], input: &str) -> String {
    let mut command = Command::new("wg");
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
    host.iter().for_each(|host| host.enter(&mut command));
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "wg {words:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// One end of a WireGuard link over a cable: its interface, and the process that drives it where
/// the kernel does not.
pub struct Wire {
    pub name: String,
    process: Option<(Child, BufReader<ChildStdout>)>,
}

impl Wire {
    /// Both ends over cable number `cable`: 10.9.{cable}.{host}.
    pub fn both(pair: &Pair, cable: usize, keys: &[Key; 2]) -> [Wire; 2] {
        [0, 1].map(|host| {
            let (ours, theirs) = (&keys[host], &keys[1 - host]);
            let namespace = &pair.hosts[host];
            // wireguard-go's control sockets are named by interface, for all namespaces together.
            let name = format!("w{}-{cable}{host}", std::process::id());
            let wire = Wire::open(namespace, name);
            let (port, endpoint) = (51820 + cable, format!("10.1.{cable}.{}", 2 - host));
            let (name, endpoint) = (wire.name.as_str(), format!("{endpoint}:{port}"));
            let (port, allowed) = (port.to_string(), format!("10.9.{cable}.0/24"));
            let mut words = vec!["set", name, "listen-port", &port, "private-key", "/dev/stdin"];
            words.extend(["peer", &theirs.public, "endpoint", &endpoint]);
            words.extend(["allowed-ips", &allowed]);
            wg(Some(namespace), &words, &ours.private);
            let up = || {
                // 1500 less IPv4, UDP and WireGuard's 32 bytes.
                ip::run(&format!("link set {name} mtu 1440"))?;
                ip::run(&format!("addr add 10.9.{cable}.{}/24 dev {name}", host + 1))?;
                ip::run(&format!("link set {name} up"))
            };
            namespace.run(up).unwrap();
            wire
        })
    }

    fn open(host: &Namespace, name: String) -> Wire {
        if host.run(|| ip::run(&format!("link add {name} type wireguard"))).is_ok() {
            return Wire { name, process: None };
        }
        let mut command = Command::new("wireguard-go");
        command.args(["-f", &name]).env("LOG_LEVEL", "verbose");
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        host.enter(&mut command);
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("UAPI listener started") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "wireguard-go ended");
        }
        Wire { name, process: Some((child, said)) }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.process {
            // It removes its interface and its socket.
            let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM);
            let _ = child.wait();
        }
    }
}
