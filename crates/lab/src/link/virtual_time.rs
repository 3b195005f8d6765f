//! The engine under a virtual clock: two hosts, and one [`Link`] each way between them.

use super::outcome::{self, Transfer};
use super::plan::{ETHERNET, LINE, PACKET, Point, Shaper, Test};
use crate::measured::Measured;
use crate::tcp;
use sheaf_emulator::queue::fifo::FifoConfig;
use sheaf_emulator::{Delay, Limit, Link, LinkConfig, Overhead, Packet, QueueConfig};
use sheaf_sim::{Node, NodeId, Outbox, Simulation};
use sheaf_stage::{Duration, Instant, Stage};
use std::net::Ipv4Addr;

const LEFT: NodeId = NodeId(0);
const RIGHT: NodeId = NodeId(1);
const FORWARD: NodeId = NodeId(2);
const BACK: NodeId = NodeId(3);
/// Between two pings.
pub(super) const PING: Duration = Duration::from_millis(20);
/// Between two looks at the data in flight.
pub(super) const SAMPLE: Duration = Duration::from_millis(10);
/// Bytes of data in a TCP segment of 1500 bytes.
const SEGMENT: u64 = 1460;
/// An echo request: 56 bytes of payload, as ping sends them.
const ECHO: usize = 84;

/// Runs one point to its end.
pub fn run(point: &Point) -> anyhow::Result<Measured> {
    let way = |to, seed| anyhow::Ok(Actor::Way(Box::new(Way::new(point, to, seed)?)));
    let (left, right) = hosts(point);
    let nodes = vec![left, right, way(RIGHT, point.seed)?, way(LEFT, !point.seed)?];
    let mut simulation = Simulation::new(nodes);
    let (start, end) = (Instant::ZERO + point.warm_up, Instant::ZERO + point.whole());
    if point.test == Test::Tcp {
        return Ok(transfer(point, simulation, start, end));
    }
    // Time for packets that are still on their way.
    simulation.run_until(end + point.rtt + Duration::from_secs(10));
    Ok(match simulation.nodes() {
        [Actor::Source(source), Actor::Sink(sink), ..] => {
            outcome::rate(point, &sink.arrivals, source.counted)
        }
        [Actor::Pinger(source, trips), ..] => {
            outcome::round_trips(point, trips.clone(), source.counted)
        }
        _ => unreachable!("no other hosts are made"),
    })
}

fn hosts(point: &Point) -> (Actor, Actor) {
    let source = |interval, bytes| Source {
        next: Some(Instant::ZERO),
        interval,
        bytes,
        from: Instant::ZERO + point.warm_up,
        end: Instant::ZERO + point.whole(),
        counted: 0,
    };
    match point.test {
        Test::Udp => {
            let sink = Sink { from: Instant::ZERO + point.warm_up, arrivals: Vec::new() };
            (Actor::Source(source(point.interval(), PACKET)), Actor::Sink(sink))
        }
        Test::Ping => (Actor::Pinger(source(PING, ECHO), Vec::new()), Actor::Echo),
        Test::Tcp => {
            let (a, b) = (Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2));
            let sender = tcp::Host::sender(a, b, 1, point.seed);
            let receiver = tcp::Host::receiver(b, 1, !point.seed);
            (Actor::Tcp(Box::new(sender), FORWARD), Actor::Tcp(Box::new(receiver), BACK))
        }
    }
}

/// Looks at the connection from time to time.
fn transfer(
    point: &Point,
    mut simulation: Simulation<Actor>,
    start: Instant,
    end: Instant,
) -> Measured {
    let flow =
        |simulation: &Simulation<Actor>, host: NodeId| match &simulation.nodes()[host.0 as usize] {
            Actor::Tcp(tcp, _) => tcp.flows()[0],
            _ => unreachable!("both hosts speak TCP"),
        };
    let mut transfer = Transfer::default();
    let (mut now, mut before) = (Instant::ZERO, 0);
    while now < end {
        now = (now + SAMPLE).min(end);
        simulation.run_until(now);
        transfer.in_flight.push((now - Instant::ZERO, under_way(&simulation)));
        if now <= start {
            before = flow(&simulation, RIGHT).bytes;
        }
    }
    let sender = flow(&simulation, LEFT);
    transfer.bytes = flow(&simulation, RIGHT).bytes - before;
    transfer.first_repeat = sender.first_repeat.map(|at| at - Instant::ZERO);
    transfer.repeats = sender.repeats;
    transfer.measured(point)
}

/// Bytes of data on the way to the receiver: what the sender has not seen acknowledged counts lost
/// segments, too.
fn under_way(simulation: &Simulation<Actor>) -> u64 {
    match &simulation.nodes()[FORWARD.0 as usize] {
        Actor::Way(way) => way.link.held() * SEGMENT,
        _ => unreachable!("it is a way"),
    }
}

/// A node of the simulation; messages are IP packets.
enum Actor {
    Source(Source),
    Sink(Sink),
    Pinger(Source, Vec<Duration>),
    Echo,
    Tcp(Box<tcp::Host>, NodeId),
    Way(Box<Way>),
}

/// Sends packets of one size at equal distances, each with its time inside.
struct Source {
    next: Option<Instant>,
    interval: Duration,
    bytes: usize,
    from: Instant,
    end: Instant,
    /// Packets sent while it was measured.
    counted: u64,
}

impl Source {
    fn send(&mut self, now: Instant, out: &mut Outbox<Vec<u8>>) {
        if self.next.is_none_or(|next| next > now) {
            return;
        }
        let mut packet = vec![0; self.bytes];
        packet[..8].copy_from_slice(&now.as_nanos().to_be_bytes());
        out.send(FORWARD, packet);
        self.counted += u64::from(now >= self.from);
        self.next = Some(now + self.interval).filter(|next| *next < self.end);
    }
}

/// When a packet was sent.
fn stamp(packet: &[u8]) -> Instant {
    let bytes = packet[..8].try_into().expect("sources stamp every packet");
    Instant::from_nanos(u64::from_be_bytes(bytes))
}

/// Notes arrivals.
struct Sink {
    from: Instant,
    arrivals: Vec<Instant>,
}

/// One direction of the link.
struct Way {
    link: Link,
    to: NodeId,
    number: u64,
}

impl Way {
    fn new(point: &Point, to: NodeId, seed: u64) -> anyhow::Result<Way> {
        let config = LinkConfig {
            rate: point.rate,
            // Simulated packets begin with IP.
            overhead: Overhead { packet: (ETHERNET + LINE) as i32, ..Overhead::default() },
            queue: QueueConfig::Fifo(FifoConfig {
                limit: Limit::Packets(point.limit),
                ..FifoConfig::default()
            }),
            single: point.shaper == Shaper::OneQueue,
            delay: Delay::constant(point.rtt / 2),
            ..LinkConfig::default()
        };
        Ok(Way { link: Link::new(config, seed)?, to, number: 0 })
    }

    fn enqueue(&mut self, packet: Vec<u8>, now: Instant) {
        self.link.enqueue(Packet::new(packet, now, self.number), now);
        self.number += 1;
    }

    fn drain(&mut self, now: Instant, out: &mut Outbox<Vec<u8>>) {
        while let Some(packet) = self.link.dequeue(now) {
            out.send(self.to, packet.bytes);
        }
    }
}

impl Node for Actor {
    type Message = Vec<u8>;

    fn receive(&mut self, packet: Vec<u8>, now: Instant, out: &mut Outbox<Vec<u8>>) {
        match self {
            Actor::Source(_) => {}
            // Of what was sent while it was measured, as the source counts.
            Actor::Sink(sink) if stamp(&packet) < sink.from => {}
            Actor::Sink(sink) => sink.arrivals.push(now),
            Actor::Pinger(source, trips) => {
                let sent = stamp(&packet);
                trips.extend((sent >= source.from).then(|| now - sent));
            }
            Actor::Echo => out.send(BACK, packet),
            Actor::Tcp(host, way) => {
                host.enqueue(packet, now);
                drain(host, *way, now, out);
            }
            Actor::Way(way) => {
                way.enqueue(packet, now);
                way.drain(now, out);
            }
        }
    }

    fn wake(&mut self, now: Instant, out: &mut Outbox<Vec<u8>>) {
        match self {
            Actor::Source(source) | Actor::Pinger(source, _) => source.send(now, out),
            Actor::Tcp(host, way) => drain(host, *way, now, out),
            Actor::Way(way) => way.drain(now, out),
            Actor::Sink(_) | Actor::Echo => {}
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        match self {
            Actor::Source(source) | Actor::Pinger(source, _) => source.next,
            Actor::Tcp(host, _) => host.next_deadline(),
            Actor::Way(way) => way.link.next_deadline(),
            Actor::Sink(_) | Actor::Echo => None,
        }
    }
}

fn drain(host: &mut tcp::Host, way: NodeId, now: Instant, out: &mut Outbox<Vec<u8>>) {
    while let Some(packet) = host.dequeue(now) {
        out.send(way, packet);
    }
}
