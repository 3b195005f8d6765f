//! A host of the testbed in virtual time: forwards IP packets, aggregates and splits.
//!
//! It stands for a Linux node whose stack takes no time: a packet is forwarded at the instant it
//! arrives. Its packets go to its radio's transmit queue directly, or through a queue that learns
//! when the radio has finished with a frame: our [`Aggregator`], as on the netns engine, or the
//! thesis' qdisc.

use super::hello::{self, Hellos};
use super::message::{Message, Sent};
use super::sizes::{Heard, Sizes};
use crate::voip::point::{self, Aggregation, Follows, Mode, Point, Queueing, Routes};
use crate::voip::walked;
use sheaf_aggregate::{
    Aggregator, Answers, Device, Format, Frame, Hop, HopId, Outbound, Split, Splitter, Stats,
};
use sheaf_baseline::kau;
use sheaf_medium::{RadioId, To};
use sheaf_sim::{NodeId, Outbox};
use sheaf_stage::{Instant, Stage};
use sheaf_voice::packet::Stamp;
use sheaf_wire::ip::{Ip, Protocol};
use sheaf_wire::meta::{Meta, Outer, Repr};
use std::net::IpAddr;

/// Bytes of a UDP header (RFC 768).
const UDP_HEADER: usize = 8;
/// Bytes of the headers of IPv4 and UDP.
const IP_UDP: usize = 20 + UDP_HEADER;

/// A host.
pub(super) struct Host {
    index: usize,
    /// The next host towards each host.
    next_hop: Vec<usize>,
    queue: Queue,
    /// `None` where routes are static.
    hellos: Option<Hellos>,
    /// Packets dropped because there was no route.
    unrouted: u64,
    /// `None` where it cannot split.
    splitter: Option<Splitter>,
    /// Its messages about contexts.
    answers: Answers,
    /// Meta packets that reached it although it cannot split.
    unsplit: u64,
    /// Whether packets leave in group-addressed frames.
    is_group: bool,
    /// Whether its talkers wait while their sockets are full.
    is_blocking: bool,
    /// Bytes of a packet that travels alone.
    packet: u16,
    nodes: Neighbours,
}

/// The nodes to which a host sends messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Neighbours {
    /// The medium.
    pub air: NodeId,
    /// The talkers.
    pub talkers: NodeId,
    /// The listeners.
    pub sink: NodeId,
}

/// The queue above the radio's.
enum Queue {
    None,
    Fifo(kau::Plain),
    Sheaf(Box<Merge>),
    Kau(Box<kau::Aggregating>, Mode),
}

/// Our aggregator.
struct Merge {
    /// Its host.
    index: usize,
    aggregator: Aggregator,
    mode: Mode,
    /// Frames that the radio can have.
    limit: u32,
    /// Format of its frames.
    format: Format,
    /// `None` where the largest frame is fixed.
    sizes: Option<Sizes>,
    /// The HELLO that waits for a place in the radio's queue.
    hello: Option<Vec<u8>>,
    /// For each host, its largest frames.
    history: Vec<walked::Sizes>,
}

impl Host {
    /// Host `index` of `point`, among these nodes.
    pub fn new(point: &Point, index: usize, nodes: Neighbours) -> anyhow::Result<Host> {
        let places = point.medium.radios[index].queue_limit as u32;
        let queue = match point.queueing(index) {
            Queueing::Plain => Queue::None,
            Queueing::Fifo(limit) => {
                let mut fifo = kau::Plain::new(*limit);
                fifo.set_places(places);
                Queue::Fifo(fifo)
            }
            Queueing::Sheaf(aggregation) => {
                let config = &aggregation.config;
                let walking = point.walking.as_ref().filter(|_| aggregation.follows.is_some());
                let is_known = aggregation.follows == Some(Follows::Known);
                let sizes =
                    walking.map(|walking| Sizes::new(point, walking, index, config.max, is_known));
                let mut merge = Merge {
                    index,
                    aggregator: aggregator(point, index, aggregation)?,
                    mode: aggregation.mode,
                    limit: places,
                    format: aggregation.format,
                    sizes,
                    hello: None,
                    history: vec![vec![(Instant::ZERO, config.max)]; point.nodes.len()],
                };
                merge.follow(Instant::ZERO);
                Queue::Sheaf(Box::new(merge))
            }
            Queueing::Kau(config, mode) => {
                let hops: Vec<_> = (0..point.nodes.len()).map(|hop| outer(index, hop)).collect();
                let mut qdisc = kau::Aggregating::new(*config, &hops);
                qdisc.set_places(places);
                Queue::Kau(Box::new(qdisc), *mode)
            }
        };
        let next_hop = point.next_hop[index].clone();
        let is_neighbour =
            (0..point.nodes.len()).map(|host| host != index && next_hop[host] == host);
        let hellos = match point.routes {
            Routes::Static => None,
            Routes::Aodv { loss } => Some(Hellos::new(index, is_neighbour, loss, point.seed)),
        };
        let splitter =
            point.upgraded[index].then(|| Splitter::accepting_any().with_frames(point.seed));
        let packet = (IP_UDP + Stamp::len(point.codec)) as u16;
        Ok(Host {
            index,
            next_hop,
            queue,
            hellos,
            unrouted: 0,
            splitter,
            answers: Answers::default(),
            unsplit: 0,
            is_group: point.is_group,
            is_blocking: point.socket.is_some(),
            packet,
            nodes,
        })
    }

    /// Packets dropped because there was no route.
    pub fn unrouted(&self) -> u64 {
        self.unrouted
    }

    /// Meta packets that reached it although it cannot split.
    pub fn unsplit(&self) -> u64 {
        self.unsplit
    }

    /// The largest frames towards `to`; those of a single packet where nothing shares frames.
    pub fn sizes(&self, to: usize) -> walked::Sizes {
        match &self.queue {
            Queue::Sheaf(merge) => merge.history[to].clone(),
            Queue::None | Queue::Fifo(_) | Queue::Kau(..) => vec![(Instant::ZERO, self.packet)],
        }
    }

    /// Counters of its aggregator.
    pub fn stats(&self) -> Option<Stats> {
        match &self.queue {
            Queue::None | Queue::Fifo(_) => None,
            Queue::Sheaf(merge) => Some(merge.aggregator.total()),
            Queue::Kau(qdisc, _) => {
                let stats = qdisc.stats();
                Some(Stats {
                    aggregated_packets: stats.aggregated_packets,
                    aggregated_bytes: stats.aggregated_bytes,
                    meta_packets: stats.meta_packets,
                    meta_bytes: stats.meta_bytes,
                    unaggregated_packets: stats.unaggregated_packets,
                    unaggregated_bytes: stats.unaggregated_bytes,
                    by_timeout: stats.by_timeout,
                    by_size: stats.by_size,
                    ..Stats::default()
                })
            }
        }
    }

    pub fn receive(&mut self, message: Message, now: Instant, out: &mut Outbox<Message>) {
        match message {
            Message::Packet(packet) => self.route(packet, now, out),
            Message::Received { from, packet } => {
                let is_hello = match &mut self.queue {
                    Queue::Sheaf(merge) => merge.heard(from, &packet, now),
                    Queue::None | Queue::Fifo(_) | Queue::Kau(..) => false,
                };
                if !is_hello {
                    self.route(packet, now, out);
                }
            }
            Message::Finished(sent) => match &mut self.queue {
                Queue::None => {}
                Queue::Fifo(fifo) => fifo.finished(),
                Queue::Sheaf(merge) => merge.finished(sent, now),
                Queue::Kau(qdisc, _) => qdisc.finished(),
            },
            Message::Send { .. } | Message::Left(_) | Message::Heard(_) => {
                unreachable!("no message for a host")
            }
        }
        self.drain(now, out);
    }

    /// Sends the HELLO messages and the frames that are due.
    pub fn drain(&mut self, now: Instant, out: &mut Outbox<Message>) {
        while self.hellos.as_mut().is_some_and(|hellos| hellos.is_due(now)) {
            self.hello(now, out);
        }
        let mut leaving = Vec::new();
        self.answers.run(now, |to, what| leaving.push((to.outer.destination(), what.packet(to))));
        for (to, packet) in leaving {
            let IpAddr::V4(to) = to else { continue };
            self.forward(point::host(to.octets()), packet, now, out);
        }
        if let Queue::Sheaf(merge) = &mut self.queue
            && let Some(packet) = merge.hello(now)
        {
            self.send(self.index, packet, out);
        }
        while let Some((hop, bytes)) = self.next_frame(now) {
            self.send(hop, bytes, out);
        }
    }

    /// The next frame that is due, and the host that takes it apart.
    fn next_frame(&mut self, now: Instant) -> Option<(usize, Vec<u8>)> {
        match &mut self.queue {
            Queue::None => None,
            Queue::Fifo(fifo) => fifo.dequeue(now).map(|frame| (frame.hop, frame.bytes)),
            Queue::Sheaf(merge) => {
                let Frame { hop, bytes, .. } = merge.aggregator.dequeue(now)?;
                if let Some(sizes) = &mut merge.sizes {
                    sizes.used(now);
                }
                Some((hop.0 as usize, bytes))
            }
            Queue::Kau(qdisc, _) => qdisc.dequeue(now).map(|frame| (frame.hop, frame.bytes)),
        }
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        let queue = match &self.queue {
            Queue::None | Queue::Fifo(_) => None,
            Queue::Sheaf(merge) => {
                let hello = merge.sizes.as_ref().map(Sizes::next_deadline);
                merge.aggregator.next_deadline().into_iter().chain(hello).min()
            }
            Queue::Kau(qdisc, _) => qdisc.next_deadline(),
        };
        let hello = self.hellos.as_ref().map(Hellos::next);
        queue.into_iter().chain(hello).chain(self.answers.next_deadline()).min()
    }

    /// Delivers a packet here, takes it apart, or sends it on.
    fn route(&mut self, mut packet: Vec<u8>, now: Instant, out: &mut Outbox<Message>) {
        if let Some(from) = hello::sender(&packet) {
            if let Some(hellos) = &mut self.hellos {
                hellos.arrived(point::host(from), now);
            }
            return;
        }
        let Some(Destination { from, to, protocol }) = destination(&packet) else { return };
        let is_shared = protocol == Protocol::META;
        let is_own = from == self.index || to == self.index;
        if self.is_group && !is_own && !is_shared {
            return; // A stream to a group of which it is no member.
        }
        if to != self.index && !(self.is_group && is_shared) {
            self.forward(to, packet, now, out);
        } else if !is_shared {
            out.send(self.nodes.sink, Message::Heard(packet));
        } else if let Some(splitter) = &mut self.splitter {
            let mut inner = Vec::new();
            let split = splitter.split(&mut packet, |one| inner.push(one.bytes.to_vec()));
            for packet in inner {
                self.route(packet, now, out);
            }
            // The splitter counts refusals; between our own hosts there are none.
            if let Ok(split) = split {
                self.talk_about(split, &packet, now, out);
            }
        } else {
            self.unsplit += 1;
        }
    }

    /// Answers a frame of format 2, or takes note of an answer.
    fn talk_about(&mut self, split: Split, packet: &[u8], now: Instant, out: &mut Outbox<Message>) {
        let Ok(repr) = Repr::parse(packet) else { return };
        let IpAddr::V4(source) = repr.outer.source() else { return };
        let from = point::host(source.octets());
        match split {
            Split::Delivered(feedback) => {
                let mut leaving = Vec::new();
                self.answers.add(repr.reply(), &feedback, now, |to, what| {
                    leaving.push(what.packet(to));
                });
                leaving.into_iter().for_each(|packet| self.forward(from, packet, now, out));
            }
            Split::Heard(feedback) => {
                if let Queue::Sheaf(merge) = &mut self.queue {
                    merge.aggregator.said(HopId(from as u32), &feedback, now);
                }
            }
        }
    }

    fn forward(&mut self, to: usize, packet: Vec<u8>, now: Instant, out: &mut Outbox<Message>) {
        let next_hop = self.next_hop[to];
        if self.hellos.as_ref().is_some_and(|hellos| !hellos.has_route(next_hop, now)) {
            self.unrouted += 1;
            return;
        }
        let flow = self.is_blocking.then(|| self.own_flow(&Ip::parse(&packet).ok()?)).flatten();
        // What cannot be sent is counted in the queue by its reason.
        let queued = match &mut self.queue {
            Queue::None => return self.send(to, packet, out),
            Queue::Fifo(fifo) => {
                fifo.enqueue(kau::Outbound { hop: next_hop, mark: 0, packet }, now)
            }
            Queue::Sheaf(merge) => {
                let splits_at = merge.mode.split_at(to, next_hop);
                let hop = HopId(if self.is_group { self.index } else { splits_at } as u32);
                merge.aggregator.enqueue(Outbound { hop, mark: 0, packet }, now)
            }
            Queue::Kau(qdisc, mode) => {
                let (hop, mark) = (mode.split_at(to, next_hop), kau::AGGREGATE);
                qdisc.enqueue(kau::Outbound { hop, mark, packet }, now)
            }
        };
        // A packet that was dropped is as gone from its socket as one that was sent.
        if let Some(flow) = flow.filter(|_| queued.is_err()) {
            out.send(self.nodes.talkers, Message::Left(flow));
        }
    }

    /// The flow of a packet from one of its own talkers.
    fn own_flow(&self, packet: &Ip<'_>) -> Option<u32> {
        let from = packet.addresses().get(..4)?;
        let is_own = point::host(from.try_into().ok()?) == self.index;
        let stamp = Stamp::parse(packet.transport().get(UDP_HEADER..)?);
        stamp.filter(|_| is_own).map(|stamp| stamp.flow)
    }

    /// Reports the packets of its own talkers that leave in `frame`, alone or in a meta packet.
    fn report_left(&self, frame: &[u8], out: &mut Outbox<Message>) {
        let alone = Ip::parse(frame).ok().filter(|packet| packet.protocol() != Protocol::META);
        let shared = Meta::parse(frame).ok().filter(|_| alone.is_none());
        let packets = alone.into_iter().chain(shared.iter().flat_map(Meta::packets));
        for flow in packets.filter_map(|packet| self.own_flow(&packet)) {
            out.send(self.nodes.talkers, Message::Left(flow));
        }
    }

    /// Sends a HELLO to all that hear it, through the same queue as packets that share no frames.
    /// A host has no packets to itself: its own number stands for all.
    fn hello(&mut self, now: Instant, out: &mut Outbox<Message>) {
        let packet = hello::message(point::address(self.index).octets());
        let hop = self.index;
        // A full queue drops it as it would any other.
        match &mut self.queue {
            Queue::None | Queue::Sheaf(_) => self.send(hop, packet, out),
            Queue::Fifo(fifo) => {
                let _ = fifo.enqueue(kau::Outbound { hop, mark: 0, packet }, now);
            }
            Queue::Kau(qdisc, _) => {
                let _ = qdisc.enqueue(kau::Outbound { hop, mark: 0, packet }, now);
            }
        }
    }

    /// Hands a frame towards host `to`, or to all for this very host, to the radio.
    fn send(&self, to: usize, packet: Vec<u8>, out: &mut Outbox<Message>) {
        let to = match self.is_group || to == self.index {
            true => To::Broadcast,
            false => To::Radio(RadioId(self.next_hop[to] as u32)),
        };
        if self.is_blocking {
            self.report_left(&packet, out);
        }
        out.send(self.nodes.air, Message::Send { from: self.index, to, packet });
    }
}

impl Merge {
    /// Takes a frame from the radio of host `from`; returns whether it was a HELLO.
    fn heard(&mut self, from: usize, packet: &[u8], now: Instant) -> bool {
        let Some(sizes) = &mut self.sizes else { return false };
        let Heard { is_hello, is_measured } = sizes.heard(from, packet, now);
        if is_hello || is_measured {
            self.follow(now);
        }
        is_hello
    }

    /// The HELLO that is due, when the radio has a place for it. It goes before all frames, as
    /// control traffic does, or a full queue would cost the neighbour.
    fn hello(&mut self, now: Instant) -> Option<Vec<u8>> {
        if let Some(sizes) = self.sizes.as_mut().filter(|sizes| sizes.next_deadline() <= now) {
            sizes.expire(now);
            self.hello = sizes.hello(now).or(self.hello.take());
            self.follow(now);
        }
        let Device::Reports { waiting, limit } = self.aggregator.device() else { return None };
        let packet = self.hello.take_if(|_| waiting < limit)?;
        self.aggregator.set_device(Device::Reports { waiting: waiting + 1, limit }, now);
        Some(packet)
    }

    /// Obeys the sizes that the neighbours ask for.
    fn follow(&mut self, now: Instant) {
        let Some(sizes) = &self.sizes else { return };
        for (host, history) in self.history.iter_mut().enumerate() {
            let largest = sizes.largest(host, now);
            if history.last().is_some_and(|(_, before)| *before == largest) {
                continue;
            }
            history.push((now, largest));
            let hop = Hop::neighbour(outer(self.index, host));
            let hop = Hop { max: Some(largest), format: self.format, ..hop };
            self.aggregator.set_hop(HopId(host as u32), hop);
        }
    }

    /// The radio has finished with a frame.
    fn finished(&mut self, sent: Option<Sent>, now: Instant) {
        if let Some((sizes, sent)) = self.sizes.as_mut().zip(sent) {
            sizes.sent(&sent);
        }
        if let Device::Reports { waiting, .. } = self.aggregator.device() {
            let waiting = waiting.saturating_sub(1);
            self.aggregator.set_device(Device::Reports { waiting, limit: self.limit }, now);
        }
    }
}

/// The outer header of meta packets from one host to another.
fn outer(from: usize, to: usize) -> Outer {
    Outer::V4 { src: point::address(from), dst: point::address(to) }
}

/// An aggregator that has every other host, by its index, as a next hop or far end, and by its own
/// all of them as a group.
fn aggregator(
    point: &Point,
    index: usize,
    aggregation: &Aggregation,
) -> anyhow::Result<Aggregator> {
    let mut aggregator = Aggregator::new(aggregation.config.clone())?;
    for other in 0..point.nodes.len() {
        let format = aggregation.format;
        let outer = match other == index {
            true => Outer::V4 { src: point::address(index), dst: point::ALL },
            false => outer(index, other),
        };
        let can_split = point.upgraded[other] || point.is_blind;
        let max = if can_split { None } else { Some(0) };
        aggregator.add_hop(Hop { max, format, ..Hop::neighbour(outer) });
    }
    let limit = point.medium.radios[index].queue_limit as u32;
    aggregator.set_device(Device::Reports { waiting: 0, limit }, Instant::ZERO);
    Ok(aggregator)
}

/// The end points of a packet, and its protocol.
struct Destination {
    from: usize,
    to: usize,
    protocol: Protocol,
}

fn destination(packet: &[u8]) -> Option<Destination> {
    let view = Ip::parse(packet).ok()?;
    let addresses = view.addresses();
    let host = |bytes: &[u8]| Some(point::host(bytes.try_into().ok()?));
    let (from, to) = (host(addresses.get(..4)?)?, host(addresses.get(4..8)?)?);
    Some(Destination { from, to, protocol: view.protocol() })
}
