//! A trunk over WireGuard: what the manual shows in docs/trunk.md. Needs root, Debian's
//! wireguard-tools, and WireGuard in the kernel or as wireguard-go; says so in a line where one is
//! missing.

mod pair;
mod patient;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pair::Pair;
use patient::patient;
use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use sheaf_netio::packet::PacketSocket;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Words that only the application knows.
const SECRET: &[u8] = b"nobody else may read this";

#[test]
fn nothing_can_be_read_on_the_cables_of_a_trunk_over_wireguard_and_its_mtu_fits() {
    if let Some(missing) = missing() {
        eprintln!("skipped: {missing}");
        return;
    }
    let pair = Pair::new(2);
    let keys = [Key::new(), Key::new()];
    let wires: Vec<Wire> = (0..2).flat_map(|cable| Wire::both(&pair, cable, &keys)).collect();
    // Host 1 names both ends of each path, host 2 learns where the other is.
    let member = |cable: usize| {
        let [here, there] = [0, 1].map(|host| wires[2 * cable + host].name.as_str());
        let path = format!("path 10.9.{cable}.1@{here} 10.9.{cable}.2");
        [path, format!("path 10.9.{cable}.2@{there}")]
    };
    let members = [member(0), member(1)];
    let sniffers = [0, 1].map(|cable| {
        let open = || PacketSocket::open(ip::index(&format!("if{cable}"))?);
        pair.hosts[1].run(open).unwrap()
    });
    let (here, there) = pair.trunks(&members);
    // 1500 less 60 for WireGuard over IPv4, 28 for IPv4 and UDP inside, 8 for the trunk.
    assert_eq!(here.shown()["mtu"], 1404);
    pair.transfer("10.99.0.2:5001", 1 << 20);
    // How they share the file depends on how often this machine gives everybody a turn.
    let received = |link| pair::number(&there.shown(), &["links", link, "frames_received"]);
    let frames = received("0") + received("1");
    assert!(frames > 700, "{frames} frames for a megabyte");
    let to = pair.hosts[1].run(|| UdpSocket::bind("10.99.0.2:6000")).unwrap();
    let from = pair.hosts[0].run(|| UdpSocket::bind("10.99.0.1:0")).unwrap();
    let tell = || {
        from.send_to(SECRET, "10.99.0.2:6000").unwrap();
        let mut heard = [0; 64];
        let len = patient(|| to.recv(&mut heard)).unwrap();
        assert_eq!(&heard[..len], SECRET);
    };
    sniffers.iter().for_each(|sniffer| drop(seen(sniffer)));
    tell();
    let frames: Vec<_> = sniffers.iter().flat_map(seen).collect();
    assert!(!frames.is_empty(), "it went over one of the cables");
    assert!(!frames.iter().any(|frame| contains(frame, SECRET)), "in clear");
    drop((here, there));

    // Without WireGuard it stands in the frame: what the manual warns of, and the sniffer works.
    let _trunks = pair.trunks(&pair.paths());
    sniffers.iter().for_each(|sniffer| drop(seen(sniffer)));
    tell();
    assert!(sniffers.iter().flat_map(seen).any(|frame| contains(&frame, SECRET)));
}

/// All frames that a socket has.
fn seen(socket: &PacketSocket) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; 1 << 16];
    let next = || socket.receive(&mut buffer).unwrap().map(|len| buffer[..len].to_vec());
    std::iter::from_fn(next).collect()
}

fn contains(frame: &[u8], words: &[u8]) -> bool {
    frame.windows(words.len()).any(|window| window == words)
}

/// What a trunk over WireGuard needs and this machine lacks.
fn missing() -> Option<&'static str> {
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
struct Key {
    private: String,
    public: String,
}

impl Key {
    fn new() -> Key {
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
struct Wire {
    name: String,
    process: Option<(Child, BufReader<ChildStdout>)>,
}

impl Wire {
    /// Both ends over cable number `cable`: 10.9.{cable}.{host}.
    fn both(pair: &Pair, cable: usize, keys: &[Key; 2]) -> [Wire; 2] {
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
