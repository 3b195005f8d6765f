//! What `sheaf emulate link` costs and how exact it is, beside a bare cable and the kernel's token
//! bucket filter, in one run. Needs root; takes a minute. Words after `--` choose parts: `cost`, `rtt`,
//! `rate`, and `netem` where the kernel has it.

use sheaf_netio::netns::Namespace;
use sheaf_netio::poller::Poller;
use sheaf_netio::{clock, ip, timer};
use sheaf_stage::{Duration, Instant};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
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
    let line = format!("qdisc add dev eth0 root tbf rate {rate} burst 16k limit 64m");
    let tc = || Command::new("tc").args(line.split(' ')).status();
    assert!(path.left.run(tc).unwrap().success());
    path
}

fn sheaf(options: &str) -> Path {
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

/// The rate at which frames of 1514 bytes come out of a full queue, in Mbit/s; no
/// number where not all came. They are offered at once, in super-packets of `burst`: a sender that shares two processors with the
/// emulator cannot be relied on to keep a queue full at 1 Gbit/s frame by frame.
fn achieved(path: &Path, set: f64, burst: usize) -> f64 {
    const SIZE: usize = 1514;
    // A second of them, and no more than the receiver's buffer holds while nobody reads.
    let count = ((set * 1e6 / 8.0) as usize / SIZE).clamp(200, 20_000);
    let sent = count / burst * burst;
    let receiver = path.right.run(|| UdpSocket::bind(PORT)).unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let buffer = nix::sys::socket::sockopt::RcvBufForce;
    nix::sys::socket::setsockopt(&receiver, buffer, &(64 << 20)).unwrap();
    let stamped = nix::sys::socket::sockopt::ReceiveTimestampns;
    nix::sys::socket::setsockopt(&receiver, stamped, &true).unwrap();
    let sender = path.left.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    sender.connect(PORT).unwrap();
    // Whoever is asked for the link address holds few packets until it is known.
    sender.send(&[0]).unwrap();
    receiver.recv(&mut [0; 1]).unwrap();
    let segment = nix::sys::socket::sockopt::UdpGsoSegment;
    nix::sys::socket::setsockopt(&sender, segment, &((SIZE - HEADERS) as i32)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let payload = vec![0; burst * (SIZE - HEADERS)];
            for _ in 0..count / burst {
                sender.send(&payload).unwrap();
            }
        });
        // When the kernel took each frame, not when this thread had time for it.
        let mut stamps = Vec::with_capacity(count);
        while let Some(stamp) = stamp(receiver.as_raw_fd()) {
            stamps.push(stamp as f64);
        }
        if stamps.len() != sent {
            return f64::NAN;
        }
        // From the most punctual frame of the first half to that of the second: what the link holds
        // to, whatever kept a processor from sending some of them on time.
        let each = SIZE as f64 * 8e3 / set;
        let late = |number: &usize| stamps[*number] - *number as f64 * each;
        let punctual = |frames: std::ops::Range<usize>| {
            frames.min_by(|a, b| late(a).total_cmp(&late(b))).unwrap_or(0)
        };
        let (one, two) = (punctual(0..sent / 2), punctual(sent / 2..sent));
        (two - one) as f64 * SIZE as f64 * 8e3 / (stamps[two] - stamps[one])
    })
}

/// Receives a datagram: when the kernel had it, in nanoseconds; `None` when none comes any more.
fn stamp(socket: i32) -> Option<u64> {
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
    let mut bytes = [0; 2048];
    let mut parts = [std::io::IoSliceMut::new(&mut bytes)];
    let mut space = nix::cmsg_space!(nix::sys::time::TimeSpec);
    let got = recvmsg::<()>(socket, &mut parts, Some(&mut space), MsgFlags::empty()).ok()?;
    got.cmsgs().ok()?.find_map(|message| match message {
        ControlMessageOwned::ScmTimestampns(time) => {
            Some(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
        }
        _ => None,
    })
}

/// Round trips beyond `set`, sorted, in microseconds, one each 20 ms or more: so processors have gone
/// to sleep in between, whatever the way is.
fn errors(path: &Path, set: Duration, count: usize) -> Vec<f64> {
    // The first has to wait for the link address, too: two round trips.
    let patience = Duration::from_millis(500) + 4 * set;
    let receiver = path.right.run(|| UdpSocket::bind(PORT)).unwrap();
    receiver.set_read_timeout(Some(patience)).unwrap();
    let sender = path.left.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    sender.set_read_timeout(Some(patience)).unwrap();
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
        let round = |number: usize| {
            let (number, mut bytes) = (number.to_be_bytes(), [0; 64]);
            let begin = clock::now();
            sender.send(&number).ok()?;
            // An answer that came too late for its own round is none of this.
            while sender.recv(&mut bytes).ok()? != number.len() || !bytes.starts_with(&number) {}
            let took = clock::now() - begin;
            let rest = clock::now() + Duration::from_millis(20).saturating_sub(set);
            timer::wait(&mut Poller::default(), 0, rest, Duration::ZERO).ok()?;
            Some((took.as_secs_f64() - set.as_secs_f64()) * 1e6)
        };
        // The first looks for the link address, too.
        (0..=count).map(round).skip(1).flatten().collect::<Vec<f64>>()
    });
    errors.sort_by(f64::total_cmp);
    errors
}

fn cost() {
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
}

/// What of a round trip is the link's error, and what takes it away. Rounds take turns, so that what
/// else the machine does meets all alike.
fn rtt() {
    let set = Duration::from_millis(20);
    let ways = [
        "",
        "--spin 0",
        "--spin 200us",
        "--awake",
        "--fifo 50",
        "--fifo 50 --spin 200us",
        "--fifo 50 --awake",
        "--fifo 50 --awake --spin 200us",
    ];
    let mut errors_of = vec![Vec::new(); ways.len() + 2];
    for _ in 0..3 {
        errors_of[0].extend(errors(&cable(), Duration::ZERO, 60));
        for (index, way) in ways.iter().enumerate() {
            errors_of[index + 1].extend(errors(&sheaf(&format!("delay 10ms {way}")), set, 60));
        }
        // What the cable alone takes while processors are kept awake.
        let _awake = sheaf("--awake");
        errors_of[ways.len() + 1].extend(errors(&cable(), Duration::ZERO, 60));
    }
    println!("{:<34}{:>8}{:>8}{:>8}{:>8}", "round trip, us", "least", "p50", "p90", "p99");
    let names = ways.map(|way| format!("over 20 ms, {way}"));
    let names = ["bare cable".to_owned()].into_iter().chain(names);
    for (name, mut errors) in names.chain(["bare cable, --awake".to_owned()]).zip(errors_of) {
        errors.sort_by(f64::total_cmp);
        let at = |share: f64| errors[((errors.len() - 1) as f64 * share) as usize];
        print!("{name:<34}{:>8.0}{:>8.0}", errors[0], at(0.5));
        println!("{:>8.0}{:>8.0}", at(0.9), at(0.99));
    }
}

fn rate() {
    const BURST: usize = 40;
    println!("{:<26}{:>12}{:>12}{:>12}", "Mbit/s on the wire", "tbf", "sheaf", "--fifo 50");
    for mbps in [1_u32, 10, 100, 1000] {
        let ours = |more| {
            achieved(&sheaf(&format!("rate {mbps}mbit limit 30000 {more}")), f64::from(mbps), BURST)
        };
        let filter = achieved(&tbf(&format!("{mbps}mbit")), f64::from(mbps), BURST);
        println!("{mbps:<26}{filter:>12.3}{:>12.3}{:>12.3}", ours(""), ours("--fifo 50"));
    }
}

/// A cable with queueing disciplines of the kernel, one within the other, at both ends.
fn qdiscs(lines: &[String]) -> Option<Path> {
    let path = cable();
    for host in [&path.left, &path.right] {
        for (line, place) in lines.iter().zip(["root handle 1:", "parent 1:1 handle 10:"]) {
            let line = format!("qdisc add dev eth0 {place} {line}");
            let tc = || Command::new("tc").args(line.split(' ')).stderr(Stdio::null()).status();
            if !host.run(tc).unwrap().success() {
                return None;
            }
        }
    }
    Some(path)
}

/// NetEm beside ours, on a kernel that has it (`scripts/bench-netem` starts one). Packets that
/// one queue holds both for the rate and for the delay are why it has the larger limit.
fn netem() {
    let limit = "limit 30000";
    if qdiscs(&[format!("netem {limit}")]).is_none() {
        println!("netem: skipped, this kernel has none; try scripts/bench-netem");
        return;
    }
    println!(
        "{:<34}{:>8}{:>8}{:>8}{:>8}",
        "round trip, us over what is set", "least", "p50", "p90", "p99"
    );
    for ms in [10_u32, 50, 200] {
        let set = Duration::from_millis(u64::from(ms) * 2);
        let (delay, rate) =
            (format!("netem delay {ms}ms {limit}"), "tbf rate 1gbit burst 64k limit 64m");
        let ways = [
            ("netem", qdiscs(std::slice::from_ref(&delay))),
            ("tbf, netem", qdiscs(&[rate.to_owned(), delay])),
            ("sheaf", Some(sheaf(&format!("delay {ms}ms")))),
            ("sheaf --fifo 50", Some(sheaf(&format!("delay {ms}ms --fifo 50")))),
        ];
        for (name, path) in ways {
            let mut errors = errors(&path.unwrap(), set, if ms < 200 { 60 } else { 20 });
            errors.sort_by(f64::total_cmp);
            let at = |share: f64| errors[((errors.len() - 1) as f64 * share) as usize];
            print!("{:<34}{:>8.0}{:>8.0}", format!("{} ms, {name}", ms * 2), errors[0], at(0.5));
            println!("{:>8.0}{:>8.0}", at(0.9), at(0.99));
        }
    }
    // Frame by frame: before Linux 6.2 no packet socket could receive super-packets of UDP.
    println!("{:<18}{:>12}{:>12}{:>12}{:>12}", "Mbit/s set", "netem", "tbf", "tbf, netem", "sheaf");
    for mbps in ["1.5", "10", "100"] {
        let set: f64 = mbps.parse().unwrap();
        let filter = format!("tbf rate {mbps}mbit burst 16k limit 64m");
        let ways = [
            qdiscs(&[format!("netem rate {mbps}mbit {limit}")]),
            qdiscs(std::slice::from_ref(&filter)),
            qdiscs(&[filter, format!("netem delay 10ms {limit}")]),
            Some(sheaf(&format!("rate {mbps}mbit {limit}"))),
        ];
        let rates = ways.map(|path| format!("{:>12.3}", achieved(&path.unwrap(), set, 1)));
        println!("{mbps:<18}{}", rates.concat());
    }
}

fn main() {
    let parts: [(&str, fn()); 4] = [("cost", cost), ("rtt", rtt), ("rate", rate), ("netem", netem)];
    let words: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    for (name, part) in parts {
        if words.is_empty() || words.iter().any(|word| word == name) {
            part();
        }
    }
}
