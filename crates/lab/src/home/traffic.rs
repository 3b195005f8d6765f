//! Traffic of the home: bulk transfers of Linux TCP, and streams of UDP with time stamps.

use super::plan::{DirectionName, Role, Scenario};
use super::testbed::{CLIENT, Testbed, server};
use crate::realtime::{self, wait_until};
use anyhow::Context;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::TcpCongestion;
use sheaf_netio::clock;
use sheaf_netio::netns::Namespace;
use sheaf_stage::{Duration, Instant};
use sheaf_voice::emodel::Codec;
use sheaf_voice::meter::Meter;
use sheaf_voice::packet::Stamp;
use sheaf_voice::playout::Heard;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

const PORT: u16 = 5004;

/// The sender and the receiver.
fn ends(testbed: &Testbed, direction: DirectionName) -> (&Namespace, &Namespace) {
    match direction {
        DirectionName::Down => (&testbed.server, &testbed.client),
        DirectionName::Up => (&testbed.client, &testbed.server),
    }
}

/// Bulk transfers that run until this is dropped.
pub struct Bulk {
    sockets: Vec<TcpStream>,
    bytes: Vec<Arc<AtomicU64>>,
}

impl Bulk {
    /// `count` transfers, which the client opens, over the server's addresses in turn; each begins
    /// when it is connected.
    pub fn start(testbed: &Testbed, scenario: &Scenario, count: u32) -> anyhow::Result<Bulk> {
        let bytes = (0..count).map(|_| Arc::default()).collect();
        let mut bulk = Bulk { sockets: Vec::new(), bytes };
        let listener = testbed.server.run(|| TcpListener::bind("0.0.0.0:80"))?;
        let (connected, connections) = channel();
        let begin = clock::now();
        std::thread::scope(|scope| {
            for number in 0..count {
                let to = format!("{}:80", server(number as usize % scenario.rtts.len()));
                let connected = connected.clone();
                scope.spawn(move || {
                    let near = wait_until(begin + SPACING * number)
                        .and_then(|()| testbed.client.run(|| TcpStream::connect(&to)));
                    // The receiver has gone where another connection failed.
                    let _ = connected.send((number, near));
                });
            }
            drop(connected);
            let mut accepted = BTreeMap::new();
            for (number, near) in connections {
                let near = near?;
                let far = loop {
                    if let Some(far) = accepted.remove(&near.local_addr()?) {
                        break far;
                    }
                    let (far, from) = listener.accept()?;
                    accepted.insert(from, far);
                };
                bulk.begin(scenario, number as usize, near, far)?;
            }
            Ok(bulk)
        })
    }

    /// Begins transfer `number` over its connection.
    fn begin(
        &mut self,
        scenario: &Scenario,
        number: usize,
        near: TcpStream,
        far: TcpStream,
    ) -> anyhow::Result<()> {
        let (from, to) = match scenario.direction {
            DirectionName::Down => (far, near),
            DirectionName::Up => (near, far),
        };
        let name = &scenario.congestion;
        setsockopt(&from, TcpCongestion, &OsString::from(name)).with_context(|| {
            format!("no congestion control {name}; `modprobe tcp_{name}`, or give another")
        })?;
        self.sockets.extend([from.try_clone()?, to.try_clone()?]);
        let bytes = self.bytes[number].clone();
        let limit = scenario.limited.filter(|_| number == 0);
        std::thread::spawn(move || match limit {
            None => send_all(from),
            Some(mbps) => send_some(from, mbps),
        });
        std::thread::spawn(move || receive(to, &bytes));
        Ok(())
    }

    /// Bytes that have arrived, by transfer.
    pub fn bytes(&self) -> Vec<u64> {
        self.bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).collect()
    }
}

impl Drop for Bulk {
    fn drop(&mut self) {
        for socket in &self.sockets {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// Time between the starts of two transfers: a hundred in the same instant are a flood, and one
/// after the other's handshake takes longer than what is measured.
const SPACING: Duration = Duration::from_millis(20);

/// Sends without an end.
fn send_all(mut to: TcpStream) {
    while to.write_all(&[0; 16384]).is_ok() {}
}

/// Sends `mbps` Mbit/s, as an application that has no more; data that TCP did not take in time is
/// not sent.
fn send_some(mut to: TcpStream, mbps: f64) {
    let every = Duration::from_millis(10);
    let bytes = vec![0; (mbps * 1e6 / 8.0 * every.as_secs_f64()) as usize];
    let mut next = clock::now();
    while to.write_all(&bytes).is_ok() {
        next = (next + every).max(clock::now());
        if wait_until(next).is_err() {
            return;
        }
    }
}

fn receive(mut from: TcpStream, bytes: &AtomicU64) {
    let mut buffer = vec![0; 65536];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        bytes.fetch_add(read as u64, Ordering::Relaxed);
    }
}

/// A stream as it is sent.
#[derive(Clone, Copy)]
struct Beat {
    role: Role,
    interval: Duration,
    bytes: usize,
    first: Instant,
}

/// All streams of a scenario, until [`Streams::stop`].
pub struct Streams {
    is_over: Arc<AtomicBool>,
    sender: JoinHandle<io::Result<Vec<u32>>>,
    receiver: JoinHandle<io::Result<Received>>,
    socket: UdpSocket,
    beats: Vec<Beat>,
}

/// Packets that arrived.
struct Received {
    meters: Vec<Meter>,
    /// Numbers of game packets and their times of arrival.
    game: Vec<(u32, Instant)>,
}

/// Quality of the streams.
pub struct Quality {
    /// Pairs of consecutive game packets: arrival of the second, and the time since the first.
    pub gaps: Vec<(Instant, Duration)>,
    /// One-way delay that 99 % of the game's packets do not exceed.
    pub delay: Option<Duration>,
    /// Share of packets lost, by role; NaN where there is no such stream.
    pub loss: [f64; 3],
    /// Rating of the call.
    pub r: f64,
}

impl Streams {
    /// Begins all streams; a plan's second takes `scale` seconds.
    pub fn start(testbed: &Testbed, scenario: &Scenario, scale: f64) -> anyhow::Result<Streams> {
        let (source, sink) = ends(testbed, scenario.direction);
        let address = match scenario.direction {
            DirectionName::Down => CLIENT.to_owned(),
            DirectionName::Up => server(0),
        };
        let to = sink.run(|| UdpSocket::bind((address.as_str(), PORT)))?;
        let from = source.run(|| {
            // The server's first address has the first round-trip time.
            let own = match scenario.direction {
                DirectionName::Down => server(0),
                DirectionName::Up => CLIENT.to_owned(),
            };
            let socket = UdpSocket::bind((own.as_str(), 0))?;
            socket.connect((address.as_str(), PORT))?;
            Ok(socket)
        })?;
        let now = clock::now();
        let beats: Vec<_> = scenario
            .streams
            .iter()
            .map(|stream| Beat {
                role: stream.role,
                interval: Duration::from_secs_f64(stream.interval / 1e3),
                bytes: stream.bytes as usize,
                first: now + Duration::from_secs_f64(stream.start * scale),
            })
            .collect();
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, all) = (is_over.clone(), beats.clone());
        let sender = std::thread::spawn(move || send(&from, &all, &over));
        let (socket, over, all) = (to.try_clone()?, is_over.clone(), beats.clone());
        let receiver = std::thread::spawn(move || listen(&to, &all, &over));
        Ok(Streams { is_over, sender, receiver, socket, beats })
    }

    /// Ends the streams and evaluates arrivals; the last packets may take `rtt`.
    pub fn stop(self, rtt: Duration) -> anyhow::Result<Quality> {
        self.is_over.store(true, Ordering::Relaxed);
        let sent = self.sender.join().ok().context("the sender panicked")??;
        // Packets under way arrive; then an empty packet ends the receiver.
        wait_until(clock::now() + rtt + Duration::from_millis(500))?;
        self.socket.send_to(&[], self.socket.local_addr()?)?;
        let received = self.receiver.join().ok().context("the receiver panicked")??;
        let follow = |pair: &[(u32, Instant)]| {
            (pair[1].0 == pair[0].0 + 1).then(|| (pair[1].1, pair[1].1 - pair[0].1))
        };
        let find = |role: Role| self.beats.iter().position(|beat| beat.role == role);
        let of = |role: Role| find(role).map(|at| (&received.meters[at], u64::from(sent[at])));
        Ok(Quality {
            gaps: received.game.windows(2).filter_map(follow).collect(),
            delay: of(Role::Game).map(|(meter, _)| meter.delay_quantile(0.99)),
            loss: Role::ALL.map(|role| of(role).map_or(f64::NAN, |(meter, sent)| meter.loss(sent))),
            r: of(Role::Call)
                .map_or(f64::NAN, |(meter, sent)| Heard::best(Codec::G711, meter, sent).r),
        })
    }
}

/// Sends each stream on its beat. Returns the number of packets of each.
fn send(socket: &UdpSocket, beats: &[Beat], is_over: &AtomicBool) -> io::Result<Vec<u32>> {
    realtime::prioritise()?;
    let mut sent = vec![0; beats.len()];
    let mut payload = [0; 1500];
    while !is_over.load(Ordering::Relaxed) {
        let due = |at: usize| beats[at].first + beats[at].interval * sent[at];
        let Some(at) = (0..beats.len()).min_by_key(|at| due(*at)) else { break };
        // In short waits, or the end would wait for a stream that begins late.
        wait_until(due(at).min(clock::now() + Duration::from_millis(50)))?;
        if clock::now() < due(at) {
            continue;
        }
        let stamp = Stamp { flow: at as u32, number: sent[at], sent: clock::now() };
        stamp.emit(Codec::G711, &mut payload[..Stamp::len(Codec::G711)]);
        // A full device queue is a loss like any other.
        let _ = socket.send(&payload[..beats[at].bytes.max(Stamp::len(Codec::G711))]);
        sent[at] += 1;
    }
    Ok(sent)
}

fn listen(socket: &UdpSocket, beats: &[Beat], is_over: &AtomicBool) -> io::Result<Received> {
    realtime::prioritise()?;
    let meters = beats.iter().map(|_| Meter::default()).collect();
    let mut received = Received { meters, game: Vec::new() };
    let mut buffer = [0; 2048];
    loop {
        let read = socket.recv(&mut buffer)?;
        let now = clock::now();
        if read == 0 && is_over.load(Ordering::Relaxed) {
            return Ok(received);
        }
        let Some(stamp) = Stamp::parse(&buffer[..read]) else { continue };
        let Some(meter) = received.meters.get_mut(stamp.flow as usize) else { continue };
        meter.arrived(stamp, now);
        if beats[stamp.flow as usize].role == Role::Game {
            received.game.push((stamp.number, now));
        }
    }
}
