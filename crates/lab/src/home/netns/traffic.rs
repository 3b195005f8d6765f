//! Bulk transfers of Linux TCP, and streams of UDP with time stamps.

use super::testbed::{CLIENT, Testbed, server};
use crate::home::plan::{DirectionName, SPACING, Scenario, Times, WRITES, written};
use crate::home::streams::{Beat, Quality, Received};
use crate::realtime::{self, wait_until};
use anyhow::Context;
use sheaf_netio::clock;
use sheaf_netio::netns::Namespace;
use sheaf_stage::{Duration, Instant};
use std::collections::BTreeMap;
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
        scenario.congestion.set(&from)?;
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

/// Sends without an end.
fn send_all(mut to: TcpStream) {
    while to.write_all(&[0; 16384]).is_ok() {}
}

/// Sends `mbps` Mbit/s, as an application that has no more; data that TCP did not take in time is
/// not sent.
fn send_some(mut to: TcpStream, mbps: f64) {
    let bytes = vec![0; written(mbps) as usize];
    let mut next = clock::now();
    while to.write_all(&bytes).is_ok() {
        next = (next + WRITES).max(clock::now());
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

/// All streams of a scenario, until [`Streams::stop`].
pub struct Streams {
    is_over: Arc<AtomicBool>,
    sender: JoinHandle<io::Result<Vec<u32>>>,
    receiver: JoinHandle<io::Result<Received>>,
    socket: UdpSocket,
}

impl Streams {
    /// Begins all streams, at `times` and with the phases of `seed`.
    pub fn start(
        testbed: &Testbed,
        scenario: &Scenario,
        times: &Times,
        seed: u64,
    ) -> anyhow::Result<Streams> {
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
        let beats = Beat::all(scenario, times, seed);
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, all) = (is_over.clone(), beats.clone());
        let sender = std::thread::spawn(move || send(&from, &all, &over));
        let (socket, over) = (to.try_clone()?, is_over.clone());
        let received = Received::new(beats, times.started);
        let receiver = std::thread::spawn(move || listen(&to, received, &over));
        Ok(Streams { is_over, sender, receiver, socket })
    }

    /// Ends the streams and evaluates arrivals; the last packets arrive until `last`.
    pub fn stop(self, last: Instant) -> anyhow::Result<Quality> {
        self.is_over.store(true, Ordering::Relaxed);
        let sent = self.sender.join().ok().context("the sender panicked")??;
        // Packets under way arrive; then an empty packet ends the receiver.
        wait_until(last)?;
        self.socket.send_to(&[], self.socket.local_addr()?)?;
        let received = self.receiver.join().ok().context("the receiver panicked")??;
        Ok(received.quality(&sent))
    }
}

/// Sends each stream on its beat. Returns the number of packets of each.
fn send(socket: &UdpSocket, beats: &[Beat], is_over: &AtomicBool) -> io::Result<Vec<u32>> {
    realtime::prioritise()?;
    let mut sent = vec![0; beats.len()];
    let mut payload = [0; 1500];
    while !is_over.load(Ordering::Relaxed) {
        let due = |at: usize| beats[at].due(sent[at]);
        let Some(at) = (0..beats.len()).min_by_key(|at| due(*at)) else { break };
        // In short waits, or the end would wait for a stream that begins late.
        wait_until(due(at).min(clock::now() + Duration::from_millis(50)))?;
        if clock::now() < due(at) {
            continue;
        }
        let payload = beats[at].payload(at, sent[at], clock::now(), &mut payload);
        // A full device queue is a loss like any other.
        let _ = socket.send(payload);
        sent[at] += 1;
    }
    Ok(sent)
}

fn listen(
    socket: &UdpSocket,
    mut received: Received,
    is_over: &AtomicBool,
) -> io::Result<Received> {
    realtime::prioritise()?;
    let mut buffer = [0; 2048];
    loop {
        let read = socket.recv(&mut buffer)?;
        let now = clock::now();
        if read == 0 && is_over.load(Ordering::Relaxed) {
            return Ok(received);
        }
        received.arrived(&buffer[..read], now);
    }
}
