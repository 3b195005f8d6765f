//! The engine under a virtual clock: two hosts, and one `Line` each way between them.

use super::line::{Line, config};
use super::outcome::{self, Transfer};
use super::plan::{ECHO, PACKET, PAYLOAD, Point, Test};
use super::reply::Replier;
use crate::measured::Measured;
use crate::tool::figures::Figures;
use sheaf_emulator::{Link, Packet};
use sheaf_sim::{Node, NodeId, Outbox, Simulation};
use sheaf_stage::{Duration, Instant, Stage};
use sheaf_tcp::{Config, Flow, Host};
use std::net::Ipv4Addr;

const LEFT: NodeId = NodeId(0);
const RIGHT: NodeId = NodeId(1);
const FORWARD: NodeId = NodeId(2);
const BACK: NodeId = NodeId(3);
/// Time between two pings, as UiO has it.
pub(crate) const PING: Duration = Duration::from_millis(10);
/// Time between two samples of the data in flight and of the round trip.
pub(super) const SAMPLE: Duration = Duration::from_millis(10);
/// Bytes of data in a TCP segment of 1500 bytes with time stamps.
const SEGMENT: u64 = 1448;

/// Runs one point to its end.
pub fn run(point: &Point) -> anyhow::Result<Measured> {
    let way = |to, seed| anyhow::Ok(Actor::Way(Line::new(point, seed)?, to));
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
            let arrivals: Vec<_> = sink.arrivals.iter().map(|(_, arrived)| *arrived).collect();
            match point.test {
                Test::Stream => {
                    let figures = Figures::of_times(point, source.counted, &sink.arrivals);
                    outcome::figures(&figures)
                }
                _ => outcome::rate(point, &arrivals, source.counted, None),
            }
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
        Test::Udp | Test::Stream => {
            let bytes = match point.test {
                Test::Stream => point.bytes + PACKET - PAYLOAD,
                _ => PACKET,
            };
            let sink = Sink { from: Instant::ZERO + point.warm_up, arrivals: Vec::new() };
            (Actor::Source(source(point.interval(), bytes)), Actor::Sink(sink))
        }
        Test::Ping => {
            let replier = Replier::new(point.replies, point.seed);
            (Actor::Pinger(source(PING, ECHO), Vec::new()), Actor::Replier(replier))
        }
        Test::Tcp => {
            let (a, b) = (Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2));
            // Hosts of the netns engine have gso_max_segs 1, too.
            let config = Config { control: point.tcp.algorithm(), burst: 1, ..Config::default() };
            let sender = Host::sender(config, a, b, 1, point.seed);
            let receiver = Host::receiver(config, b, 1, !point.seed);
            (Actor::Tcp(Box::new(sender), FORWARD), Actor::Tcp(Box::new(receiver), BACK))
        }
    }
}

/// Samples the connection from time to time.
fn transfer(
    point: &Point,
    mut simulation: Simulation<Actor>,
    start: Instant,
    end: Instant,
) -> Measured {
    let flow = |simulation: &Simulation<Actor>, host: NodeId| -> Flow {
        match &simulation.nodes()[host.0 as usize] {
            Actor::Tcp(tcp, _) => tcp.flows()[0],
            _ => unreachable!("both hosts speak TCP"),
        }
    };
    let mut transfer = Transfer::new(point);
    let (mut now, mut before) = (Instant::ZERO, 0);
    while now < end {
        now = (now + SAMPLE).min(end);
        simulation.run_until(now);
        transfer.in_flight.push((now - Instant::ZERO, under_way(&simulation)));
        let trip = flow(&simulation, LEFT).round_trip;
        transfer.trips.extend(trip.map(|trip| (now - Instant::ZERO, trip)));
        if now <= start {
            before = flow(&simulation, RIGHT).bytes;
        }
    }
    let sender = flow(&simulation, LEFT);
    transfer.bytes = flow(&simulation, RIGHT).bytes - before;
    transfer.first_repeat = sender.first_repeat.map(|at| at - Instant::ZERO);
    transfer.repeats = sender.repeats;
    transfer.measured()
}

/// Bytes of data on the way to the receiver. The sender's own count of unacknowledged data has lost
/// segments, too.
fn under_way(simulation: &Simulation<Actor>) -> u64 {
    match &simulation.nodes()[FORWARD.0 as usize] {
        Actor::Way(line, _) => line.held() * SEGMENT,
        _ => unreachable!("it is a way"),
    }
}

/// A node of the simulation; messages are IP packets.
enum Actor {
    Source(Source),
    Sink(Sink),
    Pinger(Source, Vec<Duration>),
    Replier(Replier),
    Tcp(Box<Host>, NodeId),
    Way(Line, NodeId),
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

/// Time at which a packet was sent.
fn stamp(packet: &[u8]) -> Instant {
    let bytes = packet[..8].try_into().expect("sources stamp every packet");
    Instant::from_nanos(u64::from_be_bytes(bytes))
}

/// Records arrivals.
struct Sink {
    from: Instant,
    /// Times at which packets were sent and arrived.
    arrivals: Vec<(Instant, Instant)>,
}

/// Times at which the packets of `sends`, from number `from` on, arrive over a link of `point` that
/// is never late: the reference for real links, however late the sender was.
pub fn ideal(point: &Point, sends: &[Instant], from: usize) -> anyhow::Result<Vec<Instant>> {
    let mut link = Link::new(config(point), point.seed)?;
    let mut arrivals = Vec::with_capacity(sends.len());
    let mut fetch = |link: &mut Link, until: Instant| {
        while let Some(packet) = link.dequeue(until) {
            if packet.number >= from as u64 {
                arrivals.push(packet.depart);
            }
            link.recycle(packet.bytes);
        }
    };
    for (number, at) in (0..).zip(sends) {
        fetch(&mut link, *at);
        let mut bytes = link.buffer();
        bytes.resize(PACKET, 0);
        // What is dropped does not arrive.
        let _ = link.enqueue(Packet::new(bytes, *at, number), *at);
    }
    fetch(&mut link, Instant::MAX);
    Ok(arrivals)
}

impl Node for Actor {
    type Message = Vec<u8>;

    fn receive(&mut self, packet: Vec<u8>, now: Instant, out: &mut Outbox<Vec<u8>>) {
        match self {
            Actor::Source(_) => {}
            // Only packets sent while it was measured, as at the source.
            Actor::Sink(sink) if stamp(&packet) < sink.from => {}
            Actor::Sink(sink) => sink.arrivals.push((stamp(&packet), now)),
            Actor::Pinger(source, trips) => {
                let sent = stamp(&packet);
                trips.extend((sent >= source.from).then(|| now - sent));
            }
            Actor::Replier(replier) => {
                replier.enqueue(packet, now);
                reply(replier, now, out);
            }
            Actor::Tcp(host, way) => {
                // Links damage no packet, so none is refused but for what it repeats.
                let _ = host.enqueue(packet, now);
                drain(host, *way, now, out);
            }
            Actor::Way(line, to) => {
                line.enqueue(packet, now);
                deliver(line, *to, now, out);
            }
        }
    }

    fn wake(&mut self, now: Instant, out: &mut Outbox<Vec<u8>>) {
        match self {
            Actor::Source(source) | Actor::Pinger(source, _) => source.send(now, out),
            Actor::Tcp(host, way) => drain(host, *way, now, out),
            Actor::Way(line, to) => deliver(line, *to, now, out),
            Actor::Replier(replier) => reply(replier, now, out),
            Actor::Sink(_) => {}
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        match self {
            Actor::Source(source) | Actor::Pinger(source, _) => source.next,
            Actor::Tcp(host, _) => host.next_deadline(),
            Actor::Way(line, _) => line.next_deadline(),
            Actor::Replier(replier) => replier.next_deadline(),
            Actor::Sink(_) => None,
        }
    }
}

fn drain(host: &mut Host, way: NodeId, now: Instant, out: &mut Outbox<Vec<u8>>) {
    while let Some(packet) = host.dequeue(now) {
        out.send(way, packet);
    }
}

fn reply(replier: &mut Replier, now: Instant, out: &mut Outbox<Vec<u8>>) {
    while let Some(packet) = replier.dequeue(now) {
        out.send(BACK, packet);
    }
}

fn deliver(line: &mut Line, to: NodeId, now: Instant, out: &mut Outbox<Vec<u8>>) {
    while let Some(packet) = line.dequeue(now) {
        out.send(to, packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::plan::Shaper;
    use crate::link::reply::Replies;
    use crate::tcp::Congestion;
    use sheaf_stage::Bitrate;

    /// 100 Mbit/s without delay; a queue of 8 packets, which takes 1 ms.
    fn point() -> Point {
        Point {
            test: Test::Udp,
            tool: None,
            stream_interval: Duration::ZERO,
            bytes: 0,
            shaper: Shaper::TwoQueues,
            rate: Some(Bitrate::from_mbps(100)),
            rtt: Duration::ZERO,
            limit: 8,
            burst: None,
            overhead: 0,
            loss: 0.0,
            warm_up: Duration::from_millis(10),
            duration: Duration::from_millis(100),
            tcp: Congestion::Cubic,
            replies: Replies::default(),
            seed: 1,
        }
    }

    #[test]
    fn what_a_late_sender_keeps_from_the_link_is_no_error_of_the_link() {
        let point = point();
        let each = Duration::from_nanos(point.counted() as u64 * 80);
        let in_time = |n: u32| Instant::ZERO + point.interval() * n;
        // From 50 ms to 54 ms the sender did not run; then it makes up for it at once.
        let (gone, back) = (Instant::from_millis(50), Instant::from_millis(54));
        let late = |at: Instant| if at > gone { at.max(back) } else { at };
        let (all, from) = (1000, 100);
        let punctual = (0..all).map(in_time).collect::<Vec<_>>();
        let sends = punctual.iter().copied().map(late).collect::<Vec<_>>();
        let span = |arrivals: &[Instant]| *arrivals.last().unwrap() - arrivals[0];

        let ideal = super::ideal(&point, &punctual, from).unwrap();
        assert_eq!(span(&ideal), each * (ideal.len() as u32 - 1), "no gap");
        let arrivals = super::ideal(&point, &sends, from).unwrap();
        let idle = span(&arrivals) - each * (arrivals.len() as u32 - 1);
        let expected = Duration::from_millis(3)..Duration::from_micros(3200);
        assert!(expected.contains(&idle), "4 ms less what the queue held: {idle:?}");

        let error = |ideal| {
            let measured = outcome::rate(&point, &arrivals, sends.len() as u64, ideal);
            measured.metrics.iter().find(|(key, _)| key == outcome::ERROR.key).unwrap().1
        };
        assert!(error(None) < -2.5, "{}", error(None));
        assert_eq!(error(Some(&arrivals)), 0.0);
    }
}
