//! What `sheaf emulate link` costs and how exact it is, beside a bare cable and the kernel's token
//! bucket filter, in one run. Needs root; takes under a minute.

use sheaf_netio::netns::Namespace;
use sheaf_netio::{clock, ip};
use sheaf_stage::{Duration, Instant};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");
const LONG: Duration = Duration::from_secs(3);
const PORT: &str = "10.9.0.2:5004";
/// Ethernet, IP and UDP headers.
const HEADERS: usize = 42;

/// Two hosts, and a box between them where a link is emulated.
struct Path {
    left: Namespace,
    right: Namespace,
    /// Kept for its interfaces.
    _middle: Option<Namespace>,
    emulator: Option<Child>,
}

impl Drop for Path {
    fn drop(&mut self) {
        if let Some(child) = &mut self.emulator {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn set_up(host: &Namespace, number: u32) {
    let work = || {
        ip::run(&format!("addr add 10.9.0.{number}/24 dev eth0"))?;
        ip::run("link set eth0 up")
    };
    host.run(work).unwrap();
}

fn cable() -> Path {
    let (left, right) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    let other = right.path();
    let line = format!("link add eth0 type veth peer name eth0 netns {other}");
    left.run(|| ip::run(&line)).unwrap();
    set_up(&left, 1);
    set_up(&right, 2);
    Path { left, right, _middle: None, emulator: None }
}

fn tbf(rate: &str) -> Path {
    let path = cable();
    let line = format!("qdisc add dev eth0 root tbf rate {rate} burst 16k limit 200k");
    let tc = || Command::new("tc").args(line.split(' ')).status();
    assert!(path.left.run(tc).unwrap().success());
    path
}

fn sheaf(options: &str) -> Path {
    let [left, middle, right] = [(); 3].map(|()| Namespace::new().unwrap());
    for (dev, host) in [("near", &left), ("far", &right)] {
        let host = host.path();
        let work = || {
            std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")?;
            ip::run(&format!("link add {dev} type veth peer name eth0 netns {host}"))?;
            ip::run(&format!("link set {dev} up"))
        };
        middle.run(work).unwrap();
    }
    set_up(&left, 1);
    set_up(&right, 2);
    let mut command = Command::new(SHEAF);
    command.args(["emulate", "link", "near", "far"]).args(options.split_whitespace());
    middle.enter(&mut command);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    Path { left, right, _middle: Some(middle), emulator: Some(child) }
}

/// Sends frames of `size` bytes for [`LONG`], `rate` of them a second (0: as fast as they go).
/// Answers how many arrived, and from when to when.
fn datagrams(path: &Path, size: usize, rate: f64) -> (u64, Duration) {
    let receiver = path.right.run(|| UdpSocket::bind(PORT)).unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let buffer = nix::sys::socket::sockopt::RcvBufForce;
    nix::sys::socket::setsockopt(&receiver, buffer, &(32 << 20)).unwrap();
    let sender = path.left.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    sender.connect(PORT).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (payload, begin, mut sent) = (vec![0; size - HEADERS], clock::now(), 0.0);
            loop {
                let now = clock::now();
                if now - begin > LONG {
                    break;
                }
                if rate == 0.0 || sent < (now - begin).as_secs_f64() * rate {
                    let _ = sender.send(&payload);
                    sent += 1.0;
                }
            }
        });
        let (mut count, mut first, mut last) = (0, Instant::ZERO, Instant::ZERO);
        let mut bytes = [0; 2048];
        while receiver.recv(&mut bytes).is_ok() {
            last = clock::now();
            first = if count == 0 { last } else { first };
            count += 1;
        }
        (count, last - first)
    })
}

/// Gbit/s of one TCP connection.
fn stream(path: &Path) -> f64 {
    let listener = path.right.run(|| TcpListener::bind(PORT)).unwrap();
    let mut sender = path.left.run(|| TcpStream::connect(PORT)).unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let bytes = vec![0; 1 << 18];
            while !over.load(Ordering::Relaxed) {
                if sender.write_all(&bytes).is_err() {
                    break;
                }
            }
            drop(sender);
        });
        let (mut bytes, mut count, begin) = (vec![0; 1 << 18], 0_u64, clock::now());
        while clock::now() - begin < LONG {
            count += receiver.read(&mut bytes).unwrap() as u64;
        }
        over.store(true, Ordering::Relaxed);
        let took = clock::now() - begin;
        while receiver.read(&mut bytes).is_ok_and(|len| len > 0) {}
        count as f64 * 8e-9 / took.as_secs_f64()
    })
}

/// Round trips beyond `set`, sorted, in microseconds.
fn errors(path: &Path, set: Duration, count: usize) -> Vec<f64> {
    let receiver = path.right.run(|| UdpSocket::bind(PORT)).unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let sender = path.left.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    sender.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    sender.connect(PORT).unwrap();
    let mut errors = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = [0; 64];
            loop {
                match receiver.recv_from(&mut bytes) {
                    Ok((len, back)) => drop(receiver.send_to(&bytes[..len], back)),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
        });
        let round = |_| {
            let begin = clock::now();
            sender.send(&[0; 22]).ok()?;
            sender.recv(&mut [0; 64]).ok()?;
            Some(((clock::now() - begin).as_secs_f64() - set.as_secs_f64()) * 1e6)
        };
        // The first looks for the link address, too.
        (0..=count).map(round).skip(1).flatten().collect::<Vec<f64>>()
    });
    errors.sort_by(f64::total_cmp);
    errors
}

fn main() {
    let pps = |path: &Path| {
        let (count, took) = datagrams(path, 64, 0.0);
        count as f64 / took.as_secs_f64() / 1e3
    };
    println!("{:<26}{:>12}{:>12}{:>12}{:>12}", "", "bare", "tbf", "sheaf", "sheaf/bare");
    let row = |name: &str, bare: f64, tbf: f64, ours: f64| {
        println!("{name:<26}{bare:>12.1}{tbf:>12.1}{ours:>12.1}{:>12.2}", ours / bare);
    };
    row("64-byte UDP, kpkt/s", pps(&cable()), pps(&tbf("40gbit")), pps(&sheaf("")));
    row("TCP, Gbit/s", stream(&cable()), stream(&tbf("40gbit")), stream(&sheaf("")));
    let set = Duration::from_millis(20);
    let (bare, ours) =
        (errors(&cable(), Duration::ZERO, 150), errors(&sheaf("delay 10ms"), set, 150));
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        let at = |errors: &[f64]| errors[((errors.len() - 1) as f64 * share) as usize];
        let name = format!("RTT over 20 ms, {name}, us");
        row(&name, at(&bare), f64::NAN, at(&ours));
    }
    println!("least RTT over 20 ms, us: {:.1}", ours[0]);
    for mbps in [1_u32, 10, 100, 1000] {
        let achieved = |path: &Path| {
            let (count, took) = datagrams(path, 1514, f64::from(mbps) * 1.2e6 / 8.0 / 1514.0);
            count.saturating_sub(1) as f64 * 1514.0 * 8e-6 / took.as_secs_f64()
        };
        let rate = format!("{mbps}mbit");
        let ours = achieved(&sheaf(&format!("rate {rate} limit 100")));
        row(&format!("rate {mbps} Mbit/s"), f64::from(mbps), achieved(&tbf(&rate)), ours);
    }
}
