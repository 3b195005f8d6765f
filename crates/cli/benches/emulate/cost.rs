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

/// Packets that the right host's interface has received.
fn arrived(path: &Path) -> u64 {
    let devices = path.right.run(|| std::fs::read_to_string("/proc/thread-self/net/dev")).unwrap();
    let line = devices.lines().find_map(|line| line.trim_start().strip_prefix("eth0:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
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

/// Prints means over the turns, and the emulator's share of what the others have.
pub fn run() {
    println!(
        "{:<22}{:>9}{:>9}{:>11}{:>9}{:>13}{:>17}",
        "", "cable", "tbf", "forwarder", "sheaf", "sheaf/cable", "sheaf/forwarder"
    );
    for (name, measure) in
        [("64-byte UDP, kpkt/s", datagrams as fn(&Path) -> f64), ("TCP, Gbit/s", stream)]
    {
        let mut sums = [0.0; 4];
        for _ in 0..TURNS {
            let ways = [cable, || tbf("40gbit"), forwarder, || sheaf("")];
            for (sum, way) in sums.iter_mut().zip(ways) {
                *sum += measure(&way());
            }
        }
        let [cable, tbf, forwarder, sheaf] = sums.map(|sum| sum / f64::from(TURNS));
        print!("{name:<22}{cable:>9.1}{tbf:>9.1}{forwarder:>11.1}{sheaf:>9.1}");
        println!("{:>13.2}{:>17.2}", sheaf / cable, sheaf / forwarder);
    }
}
