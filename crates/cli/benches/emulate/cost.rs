//! Cost of the emulator: packets a second and bulk TCP, as fractions of a bare cable and of a
//! bare forwarder over the same datapath.

use crate::path::{FAR, HEADERS, PORT, Path, cable, forwarder, mac, sheaf, tbf};
use sheaf_netio::poller::Poller;
use sheaf_netio::vnet_packet::{BATCH, Receive, VnetSocket};
use sheaf_netio::{clock, ip, timer, vnet};
use sheaf_stage::Duration;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

const LONG: Duration = Duration::from_secs(2);
/// Each way is measured so often, in turns with the others.
const TURNS: u32 = 3;
const SIZE: usize = 64;

/// Thousands of 64-byte UDP packets a second that arrive of as many as one sender can offer, 64
/// with one call.
fn datagrams(path: &Path) -> f64 {
    // Somebody to send to, who reads none: what is measured is the way to the host.
    let receiver = path.right.run(|| UdpSocket::bind((std::net::Ipv4Addr::from(FAR), PORT)));
    let _receiver = receiver.unwrap();
    let open = || VnetSocket::open(ip::index("eth0")?, Receive::Nothing);
    let mut sender = path.left.run(open).unwrap();
    let mut frame = vec![0; vnet::LEN];
    let builder = etherparse::PacketBuilder::ethernet2(mac(1), mac(2))
        .ipv4([10, 9, 0, 1], FAR, 64)
        .udp(9, PORT);
    builder.write(&mut frame, &[0; SIZE - HEADERS]).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                sender.send([frame.as_slice(); BATCH]);
            }
        });
        // The first tenth of a second is for whoever has to wake up.
        let wait = |long| {
            timer::wait(&mut Poller::default(), 0, clock::now() + long, Duration::ZERO).unwrap();
        };
        wait(LONG / 20);
        let (before, begin) = (arrived(path), clock::now());
        wait(LONG);
        let (after, end) = (arrived(path), clock::now());
        over.store(true, Ordering::Relaxed);
        (after - before) as f64 / (end - begin).as_secs_f64() / 1e3
    })
}

/// Datagrams that the right host has received. Its socket is full, so they are counted as such; an
/// interface would count those that come joined as one.
fn arrived(path: &Path) -> u64 {
    let counters = path.right.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"));
    let counters = counters.unwrap();
    // A line of names, and one of values.
    let mut lines = counters.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let mut names = lines.next().unwrap().split(' ');
    let at = names.position(|name| name == "RcvbufErrors").unwrap();
    lines.next().unwrap().split(' ').nth(at).unwrap().parse().unwrap()
}

/// Gbit/s of one TCP connection.
fn stream(path: &Path) -> f64 {
    let to = (std::net::Ipv4Addr::from(FAR), PORT);
    let listener = path.right.run(|| TcpListener::bind(to)).unwrap();
    let mut sender = path.left.run(|| TcpStream::connect(to)).unwrap();
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

/// Ways between the hosts, in the order of the columns.
const WAYS: [fn() -> Path; 5] =
    [cable, || tbf("40gbit"), forwarder, || sheaf(""), || sheaf("--gro 100us")];

/// Prints means over the turns, and the emulator's share of what the others have.
pub fn run() {
    println!(
        "{:<22}{:>9}{:>9}{:>11}{:>9}{:>11}{:>13}{:>17}{:>11}",
        "",
        "cable",
        "tbf",
        "forwarder",
        "sheaf",
        "with --gro",
        "sheaf/cable",
        "sheaf/forwarder",
        "gro/cable"
    );
    for (name, measure) in
        [("64-byte UDP, kpkt/s", datagrams as fn(&Path) -> f64), ("TCP, Gbit/s", stream)]
    {
        let mut sums = [0.0; WAYS.len()];
        for _ in 0..TURNS {
            for (sum, way) in sums.iter_mut().zip(WAYS) {
                *sum += measure(&way());
            }
        }
        let [cable, tbf, forwarder, sheaf, gro] = sums.map(|sum| sum / f64::from(TURNS));
        print!("{name:<22}{cable:>9.1}{tbf:>9.1}{forwarder:>11.1}{sheaf:>9.1}{gro:>11.1}");
        println!("{:>13.2}{:>17.2}{:>11.2}", sheaf / cable, sheaf / forwarder, gro / cable);
    }
}
