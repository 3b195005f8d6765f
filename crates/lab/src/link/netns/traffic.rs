//! Traffic between the two hosts, by real sockets.

use super::path::{FAR, Path};
use crate::columns;
use crate::link::outcome::{self, MACHINE, Machine, Transfer};
use crate::link::plan::{PAYLOAD, Point};
use crate::link::virtual_time::{self, PING, SAMPLE};
use crate::measured::Measured;
use crate::tool::figures::Figures;
use anyhow::Context;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn,
    recvmsg, setsockopt, socket, sockopt,
};
use sheaf_netio::clock;
use sheaf_netio::poller::Poller;
use sheaf_netio::{scheduling, timer};
use sheaf_stage::{Duration, Instant};
use std::io::{self, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes that a receiver's socket holds until they are read.
const BUFFER: usize = 16 << 20;
/// Bytes of the time that a packet of a stream begins with.
const STAMP: usize = 8;
/// No spinning: a thread with real-time priority that spins stops all others.
const SPIN: Duration = Duration::ZERO;

/// UDP at equal distances; the receiver's kernel stamps arrivals.
pub(super) fn udp(point: &Point, path: &Path) -> anyhow::Result<Measured> {
    let receiver = path.far.run(|| UdpSocket::bind((FAR, 5004)))?;
    setsockopt(&receiver, sockopt::RcvBufForce, &BUFFER)?;
    setsockopt(&receiver, sockopt::ReceiveTimestampns, &true)?;
    receiver.set_read_timeout(Some(point.patience()))?;
    let sender = path.near.run(|| UdpSocket::bind("10.9.0.1:0"))?;
    // The socket holds more than a queue of this host, so that the queue drops and the overload
    // lasts.
    setsockopt(&sender, sockopt::SndBufForce, &BUFFER)?;
    sender.connect((FAR, 5004))?;
    let (sent, arrivals) = std::thread::scope(|scope| {
        let arrivals = scope.spawn(|| arrivals(&receiver));
        let sent = scope.spawn(|| send(point, &sender)).join().expect("no panic inside");
        (sent, arrivals.join().expect("no panic inside"))
    });
    let sent = sent?;
    let ideal = virtual_time::ideal(point, &sent.times, sent.from)?;
    let counted = (sent.times.len() - sent.from) as u64;
    let mut measured = outcome::rate(point, &arrivals?, counted, Some(&ideal));
    let sender_late = sent.latest.as_secs_f64() * 1e3;
    let machine = Machine { sender_late, ..Machine::UNKNOWN };
    measured.metrics.extend(columns::values(MACHINE, &machine));
    Ok(measured)
}

/// Packets as they were sent.
struct Sent {
    /// Time of each packet.
    times: Vec<Instant>,
    /// The first that counts.
    from: usize,
    /// Lateness of the latest of those.
    latest: Duration,
}

/// Sends until the end, and after a late wake-up sends all packets that are due. Measured packets
/// are marked with a 1 in the first byte.
fn send(point: &Point, socket: &UdpSocket) -> io::Result<Sent> {
    scheduling::precise_sleeps()?;
    // A sender that others keep from sending lets the queue run empty, and the link stand idle.
    scheduling::realtime_if_allowed();
    let mut poller = Poller::default();
    let mut packet = [0; PAYLOAD];
    let start = clock::now();
    let (measured, end) = (start + point.warm_up, start + point.whole());
    let count = (point.whole().as_nanos() / point.interval().as_nanos().max(1)) as usize;
    let mut sent = Sent { times: Vec::with_capacity(count + 1), from: 0, latest: Duration::ZERO };
    let mut next = start;
    while next < end {
        timer::wait(&mut poller, 0, next, SPIN)?;
        let now = clock::now();
        let counts = next >= measured;
        if counts {
            sent.latest = sent.latest.max(now - next);
        } else {
            sent.from += 1;
        }
        packet[0] = u8::from(counts);
        sent.times.push(now);
        match socket.send(&packet) {
            Ok(_) => {}
            // A queue of this host is full: a token bucket drops an overload in this way.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
            Err(error) => return Err(error),
        }
        next += point.interval();
    }
    Ok(sent)
}

/// Times of arrival of marked packets, until no more arrive.
fn arrivals(socket: &UdpSocket) -> io::Result<Vec<Instant>> {
    let mut arrivals = Vec::new();
    let mut bytes = [0; 2048];
    let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec);
    loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::empty();
        let got = match recvmsg::<SockaddrIn>(
            socket.as_raw_fd(),
            &mut parts,
            Some(&mut control),
            flags,
        ) {
            Ok(got) => got,
            Err(nix::Error::EAGAIN) => return Ok(arrivals),
            Err(nix::Error::EINTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let at = got.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(at) => Some(at),
            _ => None,
        });
        if let Some(at) = at.filter(|_| bytes[0] == 1) {
            let nanos = at.tv_sec() as u64 * 1_000_000_000 + at.tv_nsec() as u64;
            arrivals.push(Instant::from_nanos(nanos));
        }
    }
}

/// UDP at equal distances below the rate, each packet with the time at which it was sent.
pub(super) fn stream(point: &Point, path: &Path) -> anyhow::Result<Measured> {
    let receiver = path.far.run(|| UdpSocket::bind((FAR, 5004)))?;
    receiver.set_read_timeout(Some(point.patience()))?;
    let sender = path.near.run(|| UdpSocket::bind("10.9.0.1:0"))?;
    sender.connect((FAR, 5004))?;
    let (sent, times) = std::thread::scope(|scope| {
        let times = scope.spawn(|| stamped(&receiver));
        let sent = scope.spawn(|| send_stamped(point, &sender)).join().expect("no panic inside");
        (sent, times.join().expect("no panic inside"))
    });
    Ok(outcome::figures(&Figures::of_times(point, sent?, &times?)))
}

/// Sends the packets of a stream, and returns the number of those that count. Packets of the
/// warm-up have no time inside.
fn send_stamped(point: &Point, socket: &UdpSocket) -> io::Result<u64> {
    scheduling::precise_sleeps()?;
    scheduling::realtime_if_allowed();
    let mut poller = Poller::default();
    let mut packet = vec![0; point.bytes];
    let start = clock::now();
    let (measured, end) = (start + point.warm_up, start + point.whole());
    let (mut next, mut counted) = (start, 0);
    while next < end {
        timer::wait(&mut poller, 0, next, SPIN)?;
        if next >= measured {
            counted += 1;
            packet[..STAMP].copy_from_slice(&clock::now().as_nanos().to_be_bytes());
        }
        socket.send(&packet)?;
        next += point.interval();
    }
    Ok(counted)
}

/// Times at which stamped packets were sent and arrived, until no more arrive.
fn stamped(socket: &UdpSocket) -> io::Result<Vec<(Instant, Instant)>> {
    scheduling::realtime_if_allowed();
    let mut times = Vec::new();
    let mut bytes = [0; 2048];
    loop {
        match socket.recv(&mut bytes) {
            Ok(STAMP..) => {
                let now = clock::now();
                let stamp = u64::from_be_bytes(bytes[..STAMP].try_into().expect("eight bytes"));
                times.extend((stamp > 0).then_some((Instant::from_nanos(stamp), now)));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(times),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Echo requests; the far kernel replies.
pub(super) fn ping(point: &Point, path: &Path) -> anyhow::Result<Measured> {
    let open = || {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        Ok(socket(AddressFamily::Inet, SockType::Raw, flags, SockProtocol::Icmp)?)
    };
    // The standard library has no raw sockets; those for UDP make the same calls.
    let socket = UdpSocket::from(path.near.run(open).context("no raw socket; run as root")?);
    socket.connect((FAR, 0))?;
    let work = || trips(point, &socket);
    let (sent, trips) =
        std::thread::scope(|scope| scope.spawn(work).join().expect("no panic inside"))?;
    Ok(outcome::round_trips(point, trips, sent))
}

/// Pings until the end and collects the replies: the number sent while it was measured, and
/// their round trips. On a thread of its own, whose timers are set to be precise.
fn trips(point: &Point, socket: &UdpSocket) -> io::Result<(u64, Vec<Duration>)> {
    scheduling::precise_sleeps()?;
    scheduling::realtime_if_allowed();
    let mut poller = Poller::default();
    poller.add(socket);
    let start = clock::now();
    let (measured, end) = (start + point.warm_up, start + point.whole());
    let last = end + point.patience();
    let (mut next, mut sent) = (start, Vec::<Option<Instant>>::new());
    let (mut trips, mut counted) = (Vec::new(), 0);
    while trips.len() < counted || next < end {
        let now = clock::now();
        if now >= last {
            break;
        }
        if next < end && now >= next {
            let number = sent.len() as u16;
            let counts = next >= measured;
            counted += usize::from(counts);
            let request = echo_request(number);
            sent.push(counts.then(clock::now));
            socket.send(&request)?;
            next += PING;
        }
        let until = if next < end { next } else { last };
        timer::wait(&mut poller, 1, until, SPIN)?;
        let mut bytes = [0; 256];
        while let Some(len) = received(socket, &mut bytes)? {
            let now = clock::now();
            let answered =
                echo_reply(&bytes[..len]).and_then(|number| sent.get_mut(usize::from(number)));
            trips.extend(answered.and_then(Option::take).map(|sent| now - sent));
        }
    }
    Ok((counted as u64, trips))
}

fn received(socket: &UdpSocket, bytes: &mut [u8]) -> io::Result<Option<usize>> {
    match socket.recv(bytes) {
        Ok(len) => Ok(Some(len)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// An echo request (RFC 792) with 56 bytes of payload.
fn echo_request(number: u16) -> [u8; 64] {
    let mut message = [0; 64];
    message[0] = 8;
    message[6..8].copy_from_slice(&number.to_be_bytes());
    let checksum = !sheaf_wire::checksum::fold(sheaf_wire::checksum::sum(&message, 0));
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

/// The number of the request that `packet`, IP header first, is the reply to.
fn echo_reply(packet: &[u8]) -> Option<u16> {
    let header = usize::from(packet.first()? & 15) * 4;
    let message = packet.get(header..header + 8)?;
    (message[0] == 0).then(|| u16::from_be_bytes([message[6], message[7]]))
}

/// One bulk transfer from the near to the far host.
pub(super) fn tcp(point: &Point, path: &Path) -> anyhow::Result<Measured> {
    let listener = path.far.run(|| TcpListener::bind((FAR, 5001)))?;
    let sender = path.near.run(|| TcpStream::connect((FAR, 5001)))?;
    point.tcp.set(&sender)?;
    let (receiver, _) = listener.accept()?;
    let (got, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let transfer = std::thread::scope(|scope| {
        scope.spawn(|| fill(&sender, &over));
        scope.spawn(|| drain(&receiver, &got));
        let transfer = scope.spawn(|| watch(point, &sender, &got)).join().expect("no panic inside");
        over.store(true, Ordering::Relaxed);
        // Ends both threads: a write fails, a read finds the end.
        let _ = sender.shutdown(Shutdown::Both);
        let _ = receiver.shutdown(Shutdown::Both);
        transfer
    })?;
    Ok(transfer.measured())
}

fn fill(mut sender: &TcpStream, over: &AtomicBool) {
    let bytes = [0; 16 << 10];
    while !over.load(Ordering::Relaxed) && sender.write_all(&bytes).is_ok() {}
}

fn drain(mut receiver: &TcpStream, got: &AtomicU64) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(len @ 1..) = receiver.read(&mut bytes) {
        got.fetch_add(len as u64, Ordering::Relaxed);
    }
}

/// Samples the sender's socket from time to time until the end.
fn watch(point: &Point, sender: &TcpStream, got: &AtomicU64) -> anyhow::Result<Transfer> {
    let mut poller = Poller::default();
    let mut transfer = Transfer::new(point);
    let start = clock::now();
    let (mut next, mut before) = (Duration::ZERO, 0);
    while next < point.whole() {
        next = (next + SAMPLE).min(point.whole());
        timer::wait(&mut poller, 0, start + next, Duration::ZERO)?;
        let now = clock::now() - start;
        let info = tcp_info(sender).context("the kernel does not tell of its TCP")?;
        transfer.repeats = info.tcpi_total_retrans.into();
        if transfer.repeats > 0 {
            transfer.first_repeat.get_or_insert(now);
        }
        // As the kernel itself estimates it: without segments that are presumed lost or were
        // acknowledged.
        let gone = info.tcpi_sacked + info.tcpi_lost;
        let segments = (info.tcpi_unacked + info.tcpi_retrans).saturating_sub(gone);
        transfer.in_flight.push((now, u64::from(segments) * u64::from(info.tcpi_snd_mss)));
        // Zero until the first segment is acknowledged.
        if info.tcpi_rtt > 0 {
            transfer.trips.push((now, Duration::from_micros(info.tcpi_rtt.into())));
        }
        if next <= point.warm_up {
            before = got.load(Ordering::Relaxed);
        }
    }
    transfer.bytes = got.load(Ordering::Relaxed) - before;
    Ok(transfer)
}

/// The kernel's state of a connection (tcp(7)).
fn tcp_info(stream: &TcpStream) -> io::Result<libc::tcp_info> {
    // SAFETY: the structure is of plain numbers, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes no more than `len` bytes, all of them ours.
    let answer = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut len,
        )
    };
    if answer == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
}
