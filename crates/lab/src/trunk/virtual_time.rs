//! The engine under a virtual clock: stations and channels as nodes of one simulation.
//!
//! A station takes no time: a packet is handled when it arrives. The trunk of a station reads
//! the fill of its radios' transmit queues, as a driver would report it.

use super::air::{self, Moving};
use super::carrier::{Carrier, Radio, Radios};
use super::message::Message;
use super::outcome::{Meter, Outcome};
use super::point::{self, Neighbours, Point, Treatment};
use super::published;
use super::traffic::{Pace, Traffic};
use sheaf_medium::{Frame, Medium, RadioId, To};
use sheaf_sim::{Node, NodeId, Outbox, Simulation};
use sheaf_stage::{Bitrate, Duration, Instant, Stage};
use sheaf_tcp::{Config, Host};
use sheaf_trunk::{Endpoint, EndpointConfig, LinkConfig};
use std::net::Ipv4Addr;

/// The two ends of the trunk.
const ENDS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
/// The neighbours, on any channel.
const OTHERS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 1, 0, 1), Ipv4Addr::new(10, 1, 0, 2)];

/// Bytes of the UDP packets of neighbours, IP header included.
const NEIGHBOURS_PACKET: usize = 1500;
/// Time between two notes of the reordering timer: a curve of a minute has some hundred points.
const TIMER_PERIOD: Duration = Duration::from_millis(100);

enum Actor {
    Station(Box<Station>),
    Channel(Box<Channel>),
}

/// Runs one point to its end.
pub fn run(point: &Point) -> anyhow::Result<Outcome> {
    let mut actors = Vec::new();
    let links = point.links.len();
    // The channels come behind the two ends, the neighbours behind the channels.
    let channel = |link: usize| NodeId(2 + link as u32);
    for end in 0..2 {
        let radios = (0..links).map(|link| Radio::new(channel(link), [air::NEAR, air::FAR], end));
        actors.push(Actor::Station(Box::new(Station::new(point, end, radios.collect())?)));
    }
    let mut next = 2 + links as u32;
    for index in 0..links {
        let mut owners = vec![(NodeId(0), index), (NodeId(1), index)];
        if point.links[index].neighbours.is_some() {
            owners.extend([(NodeId(next), 0), (NodeId(next + 1), 0)]);
            next += 2;
        }
        actors.push(Actor::Channel(Box::new(Channel::new(point, index, owners)?)));
    }
    for index in 0..links {
        if let Some(neighbours) = point.links[index].neighbours {
            for end in 0..2 {
                let radio = Radio::new(channel(index), air::NEIGHBOURS, end);
                let seed = !point.link_seed(index);
                let station = Station::neighbour(point, neighbours, seed, end, radio);
                actors.push(Actor::Station(Box::new(station)));
            }
        }
    }
    let mut simulation = Simulation::new(actors);
    simulation.run_until(point.measured().end);
    let mut ends = simulation.into_nodes().into_iter().filter_map(|actor| match actor {
        Actor::Station(station) => Some(*station),
        Actor::Channel(_) => None,
    });
    let (first, second) = (ends.next(), ends.next());
    let (near, far) = first.zip(second).expect("two ends");
    let (late, timer) = far.carrier.late().unwrap_or_default();
    Ok(Outcome {
        sent: near.meter.finish().sent,
        late,
        timer,
        timers: far.timers,
        // Of each pair the second gets what the first sends.
        neighbour: ends.nth(1).map(|friend| friend.meter.finish().bytes),
        ..far.meter.finish()
    })
}

/// The settings of TCP at all stations.
fn tcp(point: &Point) -> Config {
    Config { control: point.tcp.algorithm(), ..Config::default() }
}

/// A channel and the stations of its radios.
struct Channel {
    medium: Medium<Vec<u8>>,
    /// The station of each radio, and its link.
    owners: Vec<(NodeId, usize)>,
    moving: Option<Moving>,
}

impl Channel {
    fn new(point: &Point, index: usize, owners: Vec<(NodeId, usize)>) -> anyhow::Result<Channel> {
        let start = point.measured().start;
        let moving = point.links[index].walk.map(|walk| Moving::new(walk, start));
        Ok(Channel { medium: air::medium(point, index)?, owners, moving })
    }

    fn send(&mut self, frame: Frame<Vec<u8>>, now: Instant, out: &mut Outbox<Message>) {
        let from = frame.from;
        if self.medium.enqueue(frame, now).is_err() {
            self.done(from, out);
        }
        self.drain(now, out);
    }

    fn drain(&mut self, now: Instant, out: &mut Outbox<Message>) {
        if let Some(moving) = &mut self.moving {
            moving.step(&mut self.medium, now);
        }
        while let Some(done) = self.medium.dequeue(now) {
            self.done(done.frame.from, out);
            if let Some(to) = done.receivers.iter().next() {
                let (station, link) = self.owners[to.0 as usize];
                out.send(station, Message::Frame { link, bytes: done.frame.payload });
            }
        }
    }

    fn done(&self, radio: RadioId, out: &mut Outbox<Message>) {
        let (station, link) = self.owners[radio.0 as usize];
        out.send(station, Message::Done { link });
    }

    fn next_deadline(&self) -> Option<Instant> {
        let moving = self.moving.as_ref().map(Moving::next_deadline);
        self.medium.next_deadline().into_iter().chain(moving).min()
    }
}

/// A station: traffic, carrier, radios.
struct Station {
    traffic: Traffic,
    meter: Meter,
    carrier: Carrier,
    radios: Radios,
    /// Time after which it is silent.
    leaves: Option<Instant>,
    /// Whether that time is over.
    is_silent: bool,
    /// The reordering timer over time.
    timers: Vec<(Duration, Duration)>,
    /// Room to write a frame.
    frame: Vec<u8>,
}

impl Station {
    /// End `end` of the trunk of `point`: 0 sends, 1 receives.
    fn new(point: &Point, end: usize, radios: Vec<Radio>) -> anyhow::Result<Station> {
        let carrier = match point.treatment {
            Treatment::Single => Carrier::Plain,
            Treatment::Published(system) => {
                Carrier::Published(Box::new(published::End::new(system, radios.len())))
            }
            Treatment::Trunk(scheduler) => {
                let mut config = EndpointConfig::default();
                config.sender.scheduler = scheduler;
                let mut endpoint =
                    Endpoint::new(config, point.seed.wrapping_mul(2) | (1 + end as u64))?;
                for _ in 0..radios.len() {
                    endpoint.add_link(LinkConfig::default())?;
                }
                Carrier::Trunk(Box::new(endpoint))
            }
        };
        let (here, there) = (ENDS[end], ENDS[1 - end]);
        let (tcp, seed) = (tcp(point), point.seed);
        let (traffic, flows) = match (point.traffic, end) {
            (point::Traffic::Tcp { flows }, 0) => {
                (Traffic::tcp(Host::sender(tcp, here, there, flows, seed), flows), flows)
            }
            (point::Traffic::Tcp { flows }, _) => {
                (Traffic::tcp(Host::receiver(tcp, here, flows, seed), flows), flows)
            }
            (point::Traffic::Udp { rate, bytes, room }, 0) => {
                let all = |rate: Bitrate| Bitrate::from_bps(rate.as_bps() * radios.len() as u64);
                let bytes = usize::from(bytes);
                let pace = rate.map(all).map_or(Pace::Greedy(room), |rate| Pace::rate(rate, bytes));
                (Traffic::udp(here, there, bytes, pace), 1)
            }
            (point::Traffic::Udp { .. }, _) => (Traffic::UdpSink, 1),
        };
        let meter = Meter::new(point.measured(), usize::from(flows));
        let radios = Radios::new(radios, point.queue);
        Ok(Station {
            traffic,
            meter,
            carrier,
            radios,
            leaves: None,
            is_silent: false,
            timers: Vec::new(),
            frame: Vec::new(),
        })
    }

    /// One of a pair of neighbours.
    fn neighbour(
        point: &Point,
        neighbours: Neighbours,
        seed: u64,
        end: usize,
        radio: Radio,
    ) -> Station {
        let (here, there) = (OTHERS[end], OTHERS[1 - end]);
        let traffic = match (neighbours.rate, end) {
            (Some(rate), 0) => {
                Traffic::udp(here, there, NEIGHBOURS_PACKET, Pace::rate(rate, NEIGHBOURS_PACKET))
            }
            (Some(_), _) => Traffic::UdpSink,
            (None, 0) => Traffic::tcp(Host::sender(tcp(point), here, there, 1, seed), 1),
            (None, _) => Traffic::tcp(Host::receiver(tcp(point), here, 1, seed), 1),
        };
        Station {
            traffic,
            meter: Meter::new(point.measured(), 1),
            carrier: Carrier::Plain,
            radios: Radios::new(vec![radio], point.queue),
            leaves: neighbours.leave.map(|after| Instant::ZERO + after),
            is_silent: false,
            timers: Vec::new(),
            frame: Vec::new(),
        }
    }

    /// Notes the reordering timer.
    fn note_timer(&mut self, now: Instant) {
        let at = now - Instant::ZERO;
        let last = self.timers.last();
        if last.is_some_and(|(last, _)| at - *last < TIMER_PERIOD) {
            return;
        }
        let Some((_, timer)) = self.carrier.late() else { return };
        if last.is_none_or(|(_, noted)| *noted != timer) {
            self.timers.push((at, timer));
        }
    }

    fn receive(&mut self, message: Message, now: Instant, out: &mut Outbox<Message>) {
        match message {
            Message::Done { link } => self.radios.done(link),
            Message::Frame { link, bytes } => {
                if let Some(packet) = self.carrier.receive(link, bytes, now) {
                    self.traffic.receive(packet, &mut self.meter, now);
                }
            }
            Message::Send { .. } => unreachable!("for a channel"),
        }
        self.pump(now, out);
    }

    /// Does all work that is due.
    fn pump(&mut self, now: Instant, out: &mut Outbox<Message>) {
        if self.leaves.is_some_and(|leaves| leaves <= now) {
            self.is_silent = true;
            return;
        }
        self.note_timer(now);
        let Station { traffic, meter, carrier, radios, frame, .. } = self;
        carrier.look(radios);
        while let Some(packet) = carrier.deliver(now) {
            traffic.receive(packet, meter, now);
        }
        loop {
            let room = traffic.room().is_some_and(|room| carrier.has_room(radios, room, now));
            let send = |packet| carrier.send(packet, radios, now, out);
            let more = traffic.poll(meter, now, room, send);
            carrier.transmit(radios, frame, now, out);
            if !more {
                return;
            }
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        if self.is_silent {
            return None;
        }
        let carrier = self.carrier.next_deadline(&self.radios);
        carrier.into_iter().chain(self.traffic.next_deadline()).min()
    }
}

impl Node for Actor {
    type Message = Message;

    fn receive(&mut self, message: Message, now: Instant, out: &mut Outbox<Message>) {
        match (self, message) {
            (Actor::Station(station), message) => station.receive(message, now, out),
            (Actor::Channel(channel), Message::Send { radio, to, bytes }) => {
                let (len, to) = (bytes.len() as u32, To::Radio(to));
                channel.send(Frame { from: radio, to, bytes: len, payload: bytes }, now, out);
            }
            (Actor::Channel(_), _) => unreachable!("for a station"),
        }
    }

    fn wake(&mut self, now: Instant, out: &mut Outbox<Message>) {
        match self {
            Actor::Station(station) => station.pump(now, out),
            Actor::Channel(channel) => channel.drain(now, out),
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        match self {
            Actor::Station(station) => station.next_deadline(),
            Actor::Channel(channel) => channel.next_deadline(),
        }
    }
}
