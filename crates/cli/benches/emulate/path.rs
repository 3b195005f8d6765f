//! Two hosts, and what lies between them.

use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use sheaf_netio::poller::Poller;
use sheaf_netio::vnet_packet::{Receive, VnetSocket};
use sheaf_stage::Duration;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");
/// The right host's address.
pub const FAR: [u8; 4] = [10, 9, 0, 2];
pub const PORT: u16 = 5004;
/// Ethernet, IP and UDP headers.
pub const HEADERS: usize = 42;

/// Two hosts, and a box between them where a link is emulated or frames are forwarded.
pub struct Path {
    pub left: Namespace,
    pub right: Namespace,
    /// Kept for its interfaces.
    _middle: Option<Namespace>,
    emulator: Option<Child>,
    forwarder: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Drop for Path {
    fn drop(&mut self) {
        if let Some(child) = &mut self.emulator {
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some((over, thread)) = self.forwarder.take() {
            over.store(true, Ordering::Relaxed);
            let _ = thread.join();
        }
    }
}

/// The link address of host `number`.
pub fn mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

fn set_up(host: &Namespace, number: u8) {
    let work = || {
        ip::run(&format!("link set eth0 address 02:00:00:00:00:0{number}"))?;
        ip::run(&format!("addr add 10.9.0.{number}/24 dev eth0"))?;
        ip::run("link set eth0 up")?;
        // Nothing is asked over the link before a packet goes.
        let other = 3 - number;
        ip::run(&format!("neigh add 10.9.0.{other} lladdr 02:00:00:00:00:0{other} dev eth0"))
    };
    host.run(work).unwrap();
}

/// Nothing between the two.
pub fn cable() -> Path {
    let (left, right) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    let other = right.path();
    let line = format!("link add eth0 type veth peer name eth0 netns {other}");
    left.run(|| ip::run(&line)).unwrap();
    set_up(&left, 1);
    set_up(&right, 2);
    Path { left, right, _middle: None, emulator: None, forwarder: None }
}

/// The kernel's token bucket filter before the cable.
pub fn tbf(rate: &str) -> Path {
    let path = cable();
    let line = format!("qdisc add dev eth0 root tbf rate {rate} burst 16k limit 64m");
    let tc = || Command::new("tc").args(line.split(' ')).status();
    assert!(path.left.run(tc).unwrap().success());
    path
}

/// A box with the interfaces `near` and `far`, and a cable from each to its host.
fn boxed() -> (Path, Namespace) {
    let [left, middle, right] = [(); 3].map(|()| Namespace::new().unwrap());
    for (dev, host) in [("near", &left), ("far", &right)] {
        let host = host.path();
        let work = || {
            let ipv6 = std::path::Path::new("/proc/sys/net/ipv6/conf/default/disable_ipv6");
            if ipv6.exists() {
                std::fs::write(ipv6, "1")?;
            }
            ip::run(&format!("link add {dev} type veth peer name eth0 netns {host}"))?;
            ip::run(&format!("link set {dev} up"))
        };
        middle.run(work).unwrap();
    }
    set_up(&left, 1);
    set_up(&right, 2);
    (Path { left, right, _middle: None, emulator: None, forwarder: None }, middle)
}

/// `sheaf emulate link` in the box.
pub fn sheaf(options: &str) -> Path {
    let (mut path, middle) = boxed();
    let mut command = Command::new(SHEAF);
    command.args(["emulate", "link", "near", "far"]).args(options.split_whitespace());
    middle.enter(&mut command);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    (path.emulator, path._middle) = (Some(child), Some(middle));
    path
}

/// The least that can stand in the box: a thread that sends on what it receives, over the sockets
/// that the emulator has.
pub fn forwarder() -> Path {
    let (mut path, middle) = boxed();
    let open = |dev| VnetSocket::open(ip::index(dev)?, Receive::Everything);
    let mut ends = middle.run(|| Ok([open("near")?, open("far")?])).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let asked = over.clone();
    let thread = std::thread::spawn(move || {
        let mut poller = Poller::default();
        for end in &ends {
            poller.add(end);
        }
        while !asked.load(Ordering::Relaxed) {
            poller.wait(Some(Duration::from_millis(100))).unwrap();
            let [near, far] = &mut ends;
            while near.forward(far).unwrap() + far.forward(near).unwrap() > 0 {}
        }
    });
    (path.forwarder, path._middle) = (Some((over, thread)), Some(middle));
    path
}
