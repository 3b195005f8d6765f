//! The nodes of the simulation; their messages are IP packets.

use super::access::Access;
use super::address::{CLIENT, Map, server};
use super::session::Loader;
use crate::home::plan::{DirectionName, FULL_FRAME, QueueName, Scenario, Treatment, WRITES};
use crate::home::streams::{Beat, Received};
use etherparse::PacketBuilder;
use sheaf_emulator::queue::fifo::FifoConfig;
use sheaf_emulator::queue::fq_codel::FqCodelConfig;
use sheaf_emulator::{Limit, Link, LinkConfig, Overhead, Packet, QueueConfig};
use sheaf_sim::{Node, Outbox};
use sheaf_stage::{Bitrate, Duration, Instant, Stage};
use sheaf_tcp::Host;
use sheaf_wire::ethernet::HEADER_LEN;
use std::collections::VecDeque;

/// Ports of the streams: one socket sends them all.
const FROM_PORT: u16 = 40_000;
const PORT: u16 = 5004;
/// Hops that a packet may take, as on Linux.
const TTL: u8 = 64;
/// Bytes of IPv4 and UDP headers.
const UDP_HEADERS: usize = 28;
/// Largest payload of a stream.
const PAYLOAD: usize = 1500;

/// A node.
pub(super) enum Actor {
    /// The access point.
    Access(Access, Map),
    /// The slow link.
    Bottleneck(Box<Bottleneck>),
    /// The distance of a server, one way.
    Delay(Delay),
    /// The sender of all streams.
    Source(Box<Source>),
    /// Their receiver.
    Sink(Box<Received>),
    /// Both ends of a session.
    Session(Box<Loader>),
    /// An end of a transfer.
    Peer(Box<Peer>),
}

/// The next of `waiting` whose time has come.
fn due<T>(waiting: &mut VecDeque<(Instant, T)>, now: Instant) -> Option<(Instant, T)> {
    let is_due = waiting.front().is_some_and(|(at, _)| *at <= now);
    if is_due { waiting.pop_front() } else { None }
}

/// The slow link, and its rates to come.
pub(super) struct Bottleneck {
    link: Link,
    changes: VecDeque<(Instant, LinkConfig)>,
    number: u64,
    map: Map,
}

impl Bottleneck {
    /// The link of `scenario` under `treatment`, with the rates in Mbit/s that it gets later.
    pub fn new(
        scenario: &Scenario,
        treatment: &Treatment,
        changes: &[(Instant, f64)],
        seed: u64,
        map: Map,
    ) -> anyhow::Result<Bottleneck> {
        let later =
            |(at, rate): &(Instant, f64)| (*at, config(&scenario.with_rate(*rate), treatment));
        let link = Link::new(config(scenario, treatment), seed)?;
        Ok(Bottleneck { link, changes: changes.iter().map(later).collect(), number: 0, map })
    }

    /// Packets that were dropped so far.
    pub fn dropped(&self) -> u64 {
        let stats = self.link.stats();
        stats.offered.packets - stats.delivered.packets - self.waiting()
    }

    /// Packets that wait, the one that is being sent included.
    pub fn waiting(&self) -> u64 {
        self.link.stats().rate_queue.packets
    }

    fn drain(&mut self, now: Instant, out: &mut Outbox<Vec<u8>>) {
        while let Some(packet) = self.link.dequeue(now) {
            out.send(self.map.behind_bottleneck(&packet.bytes), packet.bytes);
        }
    }

    fn receive(&mut self, packet: Vec<u8>, now: Instant, out: &mut Outbox<Vec<u8>>) {
        // A packet that leaves at this instant makes its place free.
        self.drain(now, out);
        // What is dropped does not arrive.
        let _ = self.link.enqueue(Packet::new(packet, now, self.number), now);
        self.number += 1;
        self.drain(now, out);
    }

    fn wake(&mut self, now: Instant, out: &mut Outbox<Vec<u8>>) {
        while let Some((_, config)) = due(&mut self.changes, now) {
            self.link.change(config, now).expect("rates of a plan are checked");
        }
        self.drain(now, out);
    }
}

/// The slow link: a rate of whole frames, as `sheaf emulate` counts them, and a queue.
fn config(scenario: &Scenario, treatment: &Treatment) -> LinkConfig {
    let limit = scenario.limit(treatment);
    let fifo = |limit| QueueConfig::Fifo(FifoConfig { limit, ..FifoConfig::default() });
    LinkConfig {
        rate: Some(Bitrate::from_kbps(scenario.kbps())),
        // Simulated packets begin with IP.
        overhead: Overhead { packet: HEADER_LEN as i32, ..Overhead::default() },
        queue: match treatment.queue {
            QueueName::Fifo => fifo(Limit::Packets(u64::from(limit))),
            QueueName::FqCodel => QueueConfig::FqCodel(FqCodelConfig::default()),
            QueueName::Tbf => fifo(Limit::Bytes(u64::from(limit) * u64::from(FULL_FRAME))),
        },
        ..LinkConfig::default()
    }
}

/// The distance of a server: what enters leaves in the same order, a constant time later.
pub(super) struct Delay {
    time: Duration,
    waiting: VecDeque<(Instant, Vec<u8>)>,
    map: Map,
}

impl Delay {
    /// A distance of `time`, above zero.
    pub fn new(time: Duration, map: Map) -> Delay {
        Delay { time, waiting: VecDeque::new(), map }
    }
}

/// Sends each stream on its beat until `end`.
pub(super) struct Source {
    beats: Vec<Beat>,
    /// Packets of each that were sent.
    pub sent: Vec<u32>,
    end: Instant,
    payload: [u8; PAYLOAD],
    map: Map,
}

impl Source {
    /// The sender of `beats`.
    pub fn new(beats: Vec<Beat>, end: Instant, map: Map) -> Source {
        Source { sent: vec![0; beats.len()], beats, end, payload: [0; PAYLOAD], map }
    }

    /// The stream whose packet is next, and its time.
    fn next(&self) -> Option<(usize, Instant)> {
        let due = |at: usize| (at, self.beats[at].due(self.sent[at]));
        let next = (0..self.beats.len()).map(due).min_by_key(|(_, due)| *due);
        next.filter(|(_, due)| *due < self.end)
    }

    fn send(&mut self, now: Instant, out: &mut Outbox<Vec<u8>>) {
        let (from, to) = match self.map.bulk {
            DirectionName::Down => (server(0), CLIENT),
            DirectionName::Up => (CLIENT, server(0)),
        };
        while let Some((at, _)) = self.next().filter(|(_, due)| *due <= now) {
            let payload = self.beats[at].payload(at, self.sent[at], now, &mut self.payload);
            let mut packet = Vec::with_capacity(UDP_HEADERS + payload.len());
            PacketBuilder::ipv4(from.octets(), to.octets(), TTL)
                .udp(FROM_PORT, PORT)
                .write(&mut packet, payload)
                .expect("1472 bytes are a packet");
            self.sent[at] += 1;
            out.send(self.map.leave(&packet), packet);
        }
    }
}

/// An end of a transfer.
pub(super) struct Peer {
    pub host: Host,
    map: Map,
    /// Time at which it opens the connection, until it has; an end that waits has none.
    opens: Option<Instant>,
    /// The application writes so many bytes next at this time.
    writes: Option<(Instant, u64)>,
}

impl Peer {
    /// An end with the TCP of `host`, which begins at `opens` where it opens the connection.
    pub fn new(host: Host, opens: Option<Instant>, map: Map) -> Peer {
        Peer { host, map, opens, writes: None }
    }

    /// The same, with an application that writes `bytes` from time to time from `from` on.
    pub fn writing(mut self, bytes: u64, from: Instant) -> Peer {
        // It has nothing until then.
        self.host.write(0, 0);
        self.writes = Some((from, bytes));
        self
    }

    fn drain(&mut self, now: Instant, out: &mut Outbox<Vec<u8>>) {
        if self.opens.is_some_and(|at| at > now) {
            return;
        }
        self.opens = None;
        while let Some((at, bytes)) = self.writes.filter(|(at, _)| *at <= now) {
            self.host.write(0, bytes);
            self.writes = Some((at + WRITES, bytes));
        }
        while let Some(packet) = self.host.dequeue(now) {
            out.send(self.map.leave(&packet), packet);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        if self.opens.is_some() {
            return self.opens;
        }
        let writes = self.writes.map(|(at, _)| at);
        self.host.next_deadline().into_iter().chain(writes).min()
    }
}

impl Node for Actor {
    type Message = Vec<u8>;

    fn receive(&mut self, mut packet: Vec<u8>, now: Instant, out: &mut Outbox<Vec<u8>>) {
        match self {
            Actor::Access(access, map) => {
                if access.pass(&mut packet, now) {
                    out.send(map.behind_access(&packet), packet);
                }
            }
            Actor::Bottleneck(bottleneck) => bottleneck.receive(packet, now, out),
            Actor::Delay(delay) => delay.waiting.push_back((now + delay.time, packet)),
            Actor::Source(_) => {}
            Actor::Sink(received) => received.arrived(&packet[UDP_HEADERS..], now),
            Actor::Session(session) => session.receive(packet, now, out),
            Actor::Peer(peer) => {
                // Links damage no packet, so none is refused but for what it repeats.
                let _ = peer.host.enqueue(packet, now);
                peer.drain(now, out);
            }
        }
    }

    fn wake(&mut self, now: Instant, out: &mut Outbox<Vec<u8>>) {
        match self {
            Actor::Access(access, _) => access.wake(now),
            Actor::Bottleneck(bottleneck) => bottleneck.wake(now, out),
            Actor::Delay(delay) => {
                while let Some((_, packet)) = due(&mut delay.waiting, now) {
                    out.send(delay.map.behind_delay(&packet), packet);
                }
            }
            Actor::Source(source) => source.send(now, out),
            Actor::Sink(_) => {}
            Actor::Session(session) => session.drain(now, out),
            Actor::Peer(peer) => peer.drain(now, out),
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        match self {
            Actor::Access(access, _) => access.next_deadline(),
            Actor::Bottleneck(bottleneck) => {
                let change = bottleneck.changes.front().map(|(at, _)| *at);
                bottleneck.link.next_deadline().into_iter().chain(change).min()
            }
            Actor::Delay(delay) => delay.waiting.front().map(|(at, _)| *at),
            Actor::Source(source) => source.next().map(|(_, due)| due),
            Actor::Sink(_) => None,
            Actor::Session(session) => session.next_deadline(),
            Actor::Peer(peer) => peer.next_deadline(),
        }
    }
}
