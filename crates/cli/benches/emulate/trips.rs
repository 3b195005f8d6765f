//! The delay: of the link itself, and as users see it.
//!
//! Echo requests, which the far kernel answers. The *link's* part is taken from the stamps that
//! both hosts' kernels put on each frame where it leaves the host's interface and where it arrives
//! on the other's, both directions added; on the host's side of a cable no thread has to wake up
//! for that. The *user's* is what the sending thread sees, from its call to its waking up. A bare
//! cable in the same run says what each has without any link.

use crate::path::{FAR, Path, cable, sheaf};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg,
    setsockopt, socket, sockopt,
};
use sheaf_netio::netns::Namespace;
use sheaf_netio::packet::PacketSocket;
use sheaf_netio::poller::Poller;
use sheaf_netio::{clock, ip, scheduling, timer};
use sheaf_stage::Duration;
use std::io::IoSliceMut;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

/// Over the columns of [`row`].
pub const HEADING: &str = "\
us over what is set                link: least     p50     p90     p99     max   user: least\
        \x20    p50     p90     p99";

const REQUEST: u8 = 8;
const REPLY: u8 = 0;
/// Ethernet's and IP's headers.
const ICMP: usize = 34;

/// Round trips over what is set, in microseconds, sorted.
#[derive(Default)]
pub struct Trips {
    /// From interface to interface, by the kernels' stamps.
    link: Vec<f64>,
    /// From call to call.
    user: Vec<f64>,
}

impl Trips {
    fn add(&mut self, other: Trips) {
        self.link.extend(other.link);
        self.user.extend(other.user);
        self.link.sort_by(f64::total_cmp);
        self.user.sort_by(f64::total_cmp);
    }
}

/// Prints one line of the table.
pub fn row(name: &str, trips: &Trips) {
    let at = |of: &[f64], share: f64| of[((of.len() - 1) as f64 * share).round() as usize];
    print!("{name:<34}");
    for (of, shares) in
        [(&trips.link, &[0.0, 0.5, 0.9, 0.99, 1.0][..]), (&trips.user, &[0.0, 0.5, 0.9, 0.99])]
    {
        print!("{:>12.1}", at(of, shares[0]));
        shares[1..].iter().for_each(|share| print!("{:>8.1}", at(of, *share)));
        print!("  ");
    }
    println!();
}

/// Frames that a host's interface sends and receives, with the kernel's stamps.
struct Tap(PacketSocket);

impl Tap {
    fn open(host: &Namespace) -> Tap {
        let tap = host.run(|| PacketSocket::open(ip::index("eth0")?)).unwrap();
        setsockopt(&tap, sockopt::ReceiveTimestampns, &true).unwrap();
        Tap(tap)
    }

    /// Returns the time at which the echo message of `kind` and `number` passed, in
    /// nanoseconds; looks at all that passed.
    fn passed<const N: usize>(&self, number: u16, kinds: [u8; N]) -> [Option<u64>; N] {
        let mut stamps = [None; N];
        let mut bytes = [0; 128];
        let mut space = nix::cmsg_space!(nix::sys::time::TimeSpec);
        loop {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let (fd, flags) = (self.0.as_fd().as_raw_fd(), MsgFlags::MSG_DONTWAIT);
            let Ok(got) = recvmsg::<()>(fd, &mut parts, Some(&mut space), flags) else {
                return stamps;
            };
            let stamp = got.cmsgs().unwrap().find_map(|message| match message {
                ControlMessageOwned::ScmTimestampns(time) => {
                    Some(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
                }
                _ => None,
            });
            if bytes[23] == 1 && bytes[ICMP + 6..ICMP + 8] == number.to_be_bytes() {
                let kind = kinds.iter().position(|kind| *kind == bytes[ICMP]);
                if let Some(index) = kind {
                    stamps[index] = stamp;
                }
            }
        }
    }
}

/// `count` round trips, one each 20 ms or more: so processors have gone to sleep in between,
/// whatever the way is.
pub fn measure(path: &Path, set: Duration, count: usize) -> Trips {
    let patience = Duration::from_millis(500) + 4 * set;
    let open = || {
        Ok(socket(AddressFamily::Inet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Icmp)?)
    };
    let prober = UdpSocket::from(path.left.run(open).unwrap());
    prober.set_read_timeout(Some(patience)).unwrap();
    prober.connect((Ipv4Addr::from(FAR), 0)).unwrap();
    let (left, right) = (Tap::open(&path.left), Tap::open(&path.right));
    scheduling::precise_sleeps().unwrap();
    let mut trips = Trips::default();
    // The first makes everybody's acquaintance.
    for number in 0..=count {
        let (number, mut bytes) = (number as u16, [0; 128]);
        let begin = clock::now();
        prober.send(&request(number)).unwrap();
        // An answer that came too late for its own round is none of this.
        let came = loop {
            match prober.recv(&mut bytes) {
                Ok(_) if bytes[20] == REPLY && bytes[26..28] == number.to_be_bytes() => break true,
                Ok(_) => {}
                Err(_) => break false,
            }
        };
        let took = clock::now() - begin;
        let [out, back] = left.passed(number, [REQUEST, REPLY]);
        let [there, answered] = right.passed(number, [REQUEST, REPLY]);
        let stamps = [out, there, answered, back].map(|stamp| stamp.map(|stamp| stamp as f64));
        if let [Some(out), Some(there), Some(answered), Some(back)] = stamps
            && came
            && number > 0
        {
            let set = set.as_secs_f64() * 1e6;
            trips.link.push(((there - out) + (back - answered)) / 1e3 - set);
            trips.user.push(took.as_secs_f64() * 1e6 - set);
        }
        let rest = clock::now() + Duration::from_millis(20).saturating_sub(set);
        timer::wait(&mut Poller::default(), 0, rest, Duration::ZERO).unwrap();
    }
    trips.add(Trips::default());
    trips
}

/// Measures how late two sleeps in a row end, as a round trip over a link makes them, with nothing
/// to send: ended by the timer alone, and by looking for the last 200 µs.
fn sleeps(each: Duration, count: usize) -> Trips {
    scheduling::precise_sleeps().unwrap();
    let late = |spin: u64| {
        let until = clock::now() + each;
        timer::wait(&mut Poller::default(), 0, until, Duration::from_micros(spin)).unwrap();
        (clock::now() - until).as_secs_f64() * 1e6
    };
    let mut trips = Trips::default();
    for _ in 0..count {
        trips.link.push(late(200) + late(200));
        trips.user.push(late(0) + late(0));
    }
    trips.add(Trips::default());
    trips
}

/// An echo request (RFC 792) with 56 bytes of payload.
fn request(number: u16) -> [u8; 64] {
    let mut message = [0; 64];
    message[0] = REQUEST;
    message[6..8].copy_from_slice(&number.to_be_bytes());
    let checksum = !sheaf_wire::checksum::fold(sheaf_wire::checksum::sum(&message, 0));
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

/// Each of `ways` beside the bare cable, in turns, so that what else the machine does meets all
/// alike.
fn compare(ways: &[&str], turns: usize, count: usize) {
    let set = Duration::from_millis(20);
    let mut all: Vec<Trips> = (0..ways.len() + 3).map(|_| Trips::default()).collect();
    for _ in 0..turns {
        let (cables, links) = all.split_at_mut(3);
        cables[2].add(sleeps(set / 2, count));
        cables[0].add(measure(&cable(), Duration::ZERO, count));
        for (trips, way) in links.iter_mut().zip(ways) {
            trips.add(measure(&sheaf(&format!("delay 10ms {way}")), set, count));
        }
        // What the cable alone takes while processors are kept awake.
        let _awake = sheaf("--awake");
        cables[1].add(measure(&cable(), Duration::ZERO, count));
    }
    println!("{HEADING}");
    let links = ways.iter().map(|way| format!("over 20 ms, {way}"));
    let cables =
        ["bare cable", "bare cable, --awake elsewhere", "two sleeps of 10 ms"].map(str::to_owned);
    for (name, trips) in cables.into_iter().chain(links).zip(&all) {
        row(&name, trips);
    }
}

/// The default and the most that an option gives.
pub fn run() {
    compare(&["", "--awake"], 3, 200);
}

/// Takes the error away.
pub fn realtime() {
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
    compare(&ways, 3, 100);
}
