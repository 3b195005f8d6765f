//! The engine under a virtual clock: stations and channels as nodes of one simulation.
//!
//! A station takes no time: a packet is handled when it arrives. The trunk of a station reads
//! the fill of its radios' transmit queues, as a driver would report it.

use super::air::{self, Moving};
use super::outcome::{Meter, Outcome};
use super::point::{self, Neighbours, Point, Treatment};
use super::traffic::Traffic;
use sheaf_medium::{Frame, Medium, RadioId, To};
use sheaf_sim::{Node, NodeId, Outbox, Simulation};
use sheaf_stage::{Bitrate, Instant, Stage};
use sheaf_tcp::{Config, Host};
use sheaf_trunk::{DeliveryMode, Endpoint, EndpointConfig, Fill, LinkConfig, LinkId, Transmit};
use std::net::Ipv4Addr;

/// Bytes that a place in a transmit queue counts as: the queue holds frames of any size.
const PLACE: u64 = 1508;
/// The two ends of the trunk.
const ENDS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
/// The neighbours, on any channel.
const OTHERS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 1, 0, 1), Ipv4Addr::new(10, 1, 0, 2)];

/// Messages between the nodes.
enum Message {
    /// To a channel: a frame for the transmit queue of a radio.
    Send { radio: RadioId, to: RadioId, bytes: Vec<u8> },
    /// To a station: a frame arrived on this link.
    Frame { link: usize, bytes: Vec<u8> },
    /// To a station: its radio on this link is done with a frame, delivered or not.
    Done { link: usize },
}

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
        if point.links[index].neighbours != Neighbours::None {
            owners.extend([(NodeId(next), 0), (NodeId(next + 1), 0)]);
            next += 2;
        }
        actors.push(Actor::Channel(Box::new(Channel::new(point, index, owners)?)));
    }
    for index in 0..links {
        if point.links[index].neighbours != Neighbours::None {
            for end in 0..2 {
                let radio = Radio::new(channel(index), air::NEIGHBOURS, end);
                let seed = point.link_seed(index);
                let station = Station::neighbour(point, seed, end, radio);
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
    let mut outcome = far.meter.finish();
    outcome.sent = near.meter.finish().sent;
    if let Carrier::Trunk(end) = &far.carrier {
        outcome.late = end.stats().reorder.late;
        outcome.timer = end.stats().timer;
    }
    Ok(outcome)
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

/// A radio of a station.
struct Radio {
    channel: NodeId,
    radio: RadioId,
    /// The radio at the other end.
    to: RadioId,
    /// Frames in its transmit queue.
    waiting: u64,
}

impl Radio {
    fn new(channel: NodeId, radios: [RadioId; 2], end: usize) -> Radio {
        Radio { channel, radio: radios[end], to: radios[1 - end], waiting: 0 }
    }

    fn send(&mut self, bytes: Vec<u8>, out: &mut Outbox<Message>) {
        self.waiting += 1;
        out.send(self.channel, Message::Send { radio: self.radio, to: self.to, bytes });
    }
}

/// The way from a station's packets to its radios.
enum Carrier {
    /// Over the first radio, as they are.
    Plain,
    Trunk(Box<Endpoint>),
}

/// A station: traffic, carrier, radios.
struct Station {
    traffic: Traffic,
    meter: Meter,
    carrier: Carrier,
    radios: Vec<Radio>,
    queue: u64,
    frame: Vec<u8>,
}

impl Station {
    /// End `end` of the trunk of `point`: 0 sends, 1 receives.
    fn new(point: &Point, end: usize, radios: Vec<Radio>) -> anyhow::Result<Station> {
        let carrier = match point.treatment {
            Treatment::Single => Carrier::Plain,
            Treatment::Trunk(scheduler) => {
                let mut config = EndpointConfig::default();
                config.sender.scheduler = scheduler;
                let mut endpoint =
                    Endpoint::new(config, point.seed.wrapping_mul(2) | (1 + end as u64))?;
                for _ in &radios {
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
            (point::Traffic::Udp { rate }, 0) => {
                let rate = Bitrate::from_bps(rate.as_bps() * radios.len() as u64);
                (Traffic::udp(here, there, rate), 1)
            }
            (point::Traffic::Udp { .. }, _) => (Traffic::UdpSink, 1),
        };
        let meter = Meter::new(point.measured(), usize::from(flows));
        let queue = point.queue as u64;
        Ok(Station { traffic, meter, carrier, radios, queue, frame: Vec::new() })
    }

    /// One of a pair of neighbours with a TCP flow.
    fn neighbour(point: &Point, seed: u64, end: usize, radio: Radio) -> Station {
        let (here, there) = (OTHERS[end], OTHERS[1 - end]);
        let host = match end {
            0 => Host::sender(tcp(point), here, there, 1, !seed),
            _ => Host::receiver(tcp(point), here, 1, !seed),
        };
        Station {
            traffic: Traffic::tcp(host, 1),
            meter: Meter::new(point.measured(), 1),
            carrier: Carrier::Plain,
            radios: vec![radio],
            queue: point.queue as u64,
            frame: Vec::new(),
        }
    }

    fn receive(&mut self, message: Message, now: Instant, out: &mut Outbox<Message>) {
        match (message, &mut self.carrier) {
            (Message::Done { link }, _) => {
                let radio = &mut self.radios[link];
                radio.waiting = radio.waiting.saturating_sub(1);
            }
            (Message::Frame { bytes, .. }, Carrier::Plain) => {
                self.traffic.receive(bytes, &mut self.meter, now);
            }
            (Message::Frame { link, bytes }, Carrier::Trunk(end)) => {
                end.handle_frame(LinkId(link as u8), None, &bytes, now);
            }
            (Message::Send { .. }, _) => unreachable!("for a channel"),
        }
        self.pump(now, out);
    }

    /// Does all work that is due.
    fn pump(&mut self, now: Instant, out: &mut Outbox<Message>) {
        let Station { traffic, meter, carrier, radios, queue, frame } = self;
        let Carrier::Trunk(end) = carrier else {
            return traffic.poll(meter, now, |packet| radios[0].send(packet, out));
        };
        let tell = |end: &mut Endpoint, link: usize, waiting: u64| {
            let fill = Fill { waiting: waiting * PLACE, limit: *queue * PLACE };
            end.set_link_queue(LinkId(link as u8), Some(fill));
        };
        for (link, radio) in radios.iter().enumerate() {
            tell(end, link, radio.waiting);
        }
        while let Some(packet) = end.poll_deliver(now) {
            traffic.receive(packet.to_vec(), meter, now);
        }
        // A packet that cannot be sent is dropped, as on an interface; the trunk counts it.
        traffic.poll(meter, now, |packet| {
            let _ = end.handle_packet(&packet, DeliveryMode::Order, now);
        });
        while let Some(Transmit { link, .. }) = end.poll_transmit(now, frame) {
            let link = usize::from(link.0);
            radios[link].send(frame.clone(), out);
            tell(end, link, radios[link].waiting);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let carrier = match &self.carrier {
            Carrier::Plain => None,
            Carrier::Trunk(end) => end.next_deadline(),
        };
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
