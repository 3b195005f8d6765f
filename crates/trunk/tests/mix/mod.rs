//! Two hosts and the links between them, in virtual time, with or without a trunk: TCP as Linux
//! runs it, calls, and links with rates, queues, jitter and losses.

#![allow(dead_code)] // each test file uses its part

pub mod link;
pub mod list;
pub mod tcp;

use link::{LinkSpec, Pipe};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_stage::{Duration, Instant};
use sheaf_trunk::{DeliveryMode, Endpoint, EndpointConfig, LinkConfig, LinkId, Transmit};
use sheaf_wire::trunk::Frame;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tcp::{Control, Receiver, Sender};

/// Bytes of a full packet of the hosts: it fits an outer one of 1500 bytes with the headers.
pub const PACKET: usize = 1_464;
/// Bytes of IPv4 and UDP headers, which a trunk puts before each frame and which links carry.
const OUTER: usize = 28;
/// Bytes of an Ethernet header, which every link carries.
const ETHERNET: usize = 14;
/// Flow numbers from here on are calls.
const CALLS: u16 = 100;
/// Time between packets of a call, and their bytes.
const CALL_GAP: Duration = Duration::from_millis(20);
const CALL_LEN: usize = 200;
/// Bytes of the packets of a stream.
const STREAM_LEN: usize = 1_250;

/// The way between the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Link `0` alone, without a trunk.
    Single(usize),
    /// All links as a trunk.
    Trunk,
}

/// The flows of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// TCP flows from host 0 to host 1, and their congestion control.
    pub tcp: u16,
    pub control: Control,
    /// TCP flows from host 1 to host 0.
    pub back: u16,
    /// Saturating UDP in Mbit/s.
    pub udp: f64,
    /// Whether there is a call (EF), and its mode.
    pub call: Option<DeliveryMode>,
    /// Whether there is a ping: a small packet of another flow every 20 ms.
    pub ping: bool,
    /// A stream of UDP that is paced, in Mbit/s.
    pub stream: f64,
}

/// Measurements of a call, a ping or a stream.
#[derive(Clone, Debug, Default)]
pub struct Probe {
    pub sent: u64,
    pub delays: Vec<Duration>,
    last_at: Option<Instant>,
    /// The longest time from one to the next.
    pub longest_gap: Duration,
}

impl Probe {
    /// Delay that this share of the packets keeps, in ms.
    pub fn percentile(&self, share: f64) -> f64 {
        let mut delays = self.delays.clone();
        delays.sort();
        let at = ((delays.len().max(1) - 1) as f64 * share) as usize;
        delays.get(at).map_or(f64::NAN, |delay| delay.as_secs_f64() * 1e3)
    }

    /// Share of packets lost.
    pub fn loss(&self) -> f64 {
        1.0 - self.delays.len() as f64 / self.sent.max(1) as f64
    }
}

/// The middle one.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

type Event = (Instant, u64, usize, usize, Vec<u8>);

/// An end with these links that knows what their carrier adds.
fn new_end(
    config: &EndpointConfig,
    links: impl Iterator<Item = LinkSpec>,
    session: u64,
) -> Endpoint {
    let mut end = Endpoint::new(config.clone(), session).unwrap();
    for link in links {
        let overhead = (OUTER + ETHERNET) as u16;
        let cost = Duration::from_secs_f64(link.cost_ms / 1e3);
        end.add_link(LinkConfig { overhead, cost, ..LinkConfig::default() }).unwrap();
    }
    end
}

/// The rig.
pub struct Rig {
    config: EndpointConfig,
    restarts: u64,
    pub way: Way,
    pub now: Instant,
    pub ends: [Endpoint; 2],
    /// By direction and link.
    pub pipes: [Vec<Pipe>; 2],
    events: BinaryHeap<Reverse<Event>>,
    count: u64,
    random: Xoshiro256PlusPlus,
    load: Load,
    /// By direction of the data.
    pub senders: [Vec<Sender>; 2],
    pub receivers: [Vec<Receiver>; 2],
    next_udp: Instant,
    next_probe: Instant,
    next_stream: Instant,
    pub probe: Probe,
    pub ping: Probe,
    pub stream: Probe,
    /// Bytes of packets delivered at each host.
    pub delivered: [u64; 2],
    /// Data frames that left host 0, repeated ones included.
    pub carried_data: u64,
    /// The link that the newest of them took.
    pub last_link: usize,
    frame: Vec<u8>,
    packet: Vec<u8>,
}

impl Rig {
    pub fn new(way: Way, links: &[LinkSpec], load: Load, seed: u64) -> Rig {
        Rig::with(EndpointConfig::default(), way, links, load, seed)
    }

    pub fn with(
        config: EndpointConfig,
        way: Way,
        links: &[LinkSpec],
        load: Load,
        seed: u64,
    ) -> Rig {
        let end = |session| new_end(&config, links.iter().copied(), session);
        let pipes = || links.iter().map(|link| Pipe::new(*link)).collect::<Vec<_>>();
        let flows = |count: u16| (0..count).map(|_| Sender::new(load.control)).collect();
        let sinks = |count: u16| (0..count).map(|_| Receiver::default()).collect();
        let mut rig = Rig {
            restarts: 0,
            way,
            now: Instant::ZERO,
            ends: [end(0xffff_ff00), end(0x1_0000_0002)],
            config: config.clone(),
            pipes: [pipes(), pipes()],
            events: BinaryHeap::new(),
            count: 0,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            load,
            senders: [flows(load.tcp), flows(load.back)],
            receivers: [sinks(load.tcp), sinks(load.back)],
            next_udp: Instant::MAX,
            next_probe: Instant::MAX,
            next_stream: Instant::MAX,
            probe: Probe::default(),
            ping: Probe::default(),
            stream: Probe::default(),
            delivered: [0; 2],
            carried_data: 0,
            last_link: 0,
            frame: Vec::new(),
            packet: Vec::new(),
        };
        let idle = std::mem::take(&mut rig.senders);
        // The trunk exists before its flows do.
        rig.run(Duration::from_secs(2));
        rig.senders = idle;
        if load.udp > 0.0 {
            rig.next_udp = rig.now;
        }
        if load.call.is_some() || load.ping {
            rig.next_probe = rig.now;
        }
        if load.stream > 0.0 {
            rig.next_stream = rig.now;
        }
        rig
    }

    /// Starts an end anew, as after a crash.
    pub fn restart(&mut self, end: usize) {
        self.restarts += 1;
        let session = 0x2_0000_0000 + self.restarts;
        let links = self.pipes[0].iter().map(|pipe| pipe.spec);
        self.ends[end] = new_end(&self.config, links, session);
    }

    /// Begins another TCP flow from host 0 to host 1; returns its number.
    pub fn begin(&mut self, control: Control) -> usize {
        self.senders[0].push(Sender::new(control));
        self.receivers[0].push(Receiver::default());
        self.senders[0].len() - 1
    }

    /// Everything that happens in the next `time`.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        self.drain();
        while let Some(at) = self.next().filter(|at| *at <= end) {
            self.now = at.max(self.now);
            self.arrive();
            self.offer();
            self.drain();
        }
        self.now = end;
    }

    /// Mbit/s of packets that arrive at host `to` over the next `time`.
    pub fn measure(&mut self, to: usize, time: Duration) -> f64 {
        let before = self.delivered[to];
        self.run(time);
        (self.delivered[to] - before) as f64 * 8e-6 / time.as_secs_f64()
    }

    /// Calls, pings and streams end.
    pub fn end_calls(&mut self) {
        (self.next_probe, self.next_stream) = (Instant::MAX, Instant::MAX);
    }

    fn next(&self) -> Option<Instant> {
        let ends = self.ends.iter().filter(|_| self.way == Way::Trunk);
        let ends = ends.filter_map(|end| end.next_deadline());
        let flows = self.senders.iter().flatten().filter_map(Sender::next_deadline);
        let event = self.events.peek().map(|Reverse((at, ..))| *at);
        let own = [self.next_udp, self.next_probe, self.next_stream]
            .into_iter()
            .filter(|at| *at < Instant::MAX);
        ends.chain(flows).chain(event).chain(own).min()
    }

    fn arrive(&mut self) {
        while let Some(Reverse((at, ..))) = self.events.peek()
            && *at <= self.now
        {
            let Some(Reverse((_, _, from, link, bytes))) = self.events.pop() else { break };
            match self.way {
                Way::Single(_) => self.take(1 - from, &bytes),
                Way::Trunk => {
                    let id = LinkId(link as u8);
                    self.ends[1 - from].handle_frame(id, None, &bytes, self.now);
                    self.deliver(1 - from);
                }
            }
        }
    }

    fn offer(&mut self) {
        if self.next_udp <= self.now {
            let packet = tcp::packet(99, PACKET, 0);
            self.send(0, packet, DeliveryMode::Order);
            self.next_udp += Duration::from_secs_f64(PACKET as f64 * 8e-6 / self.load.udp);
        }
        if self.next_stream <= self.now {
            self.next_stream +=
                Duration::from_secs_f64(STREAM_LEN as f64 * 8e-6 / self.load.stream);
            self.stream.sent += 1;
            self.send_stamped(CALLS + 2, STREAM_LEN, 0, DeliveryMode::Order);
        }
        if self.next_probe <= self.now {
            self.next_probe += CALL_GAP;
            if let Some(mode) = self.load.call {
                self.probe.sent += 1;
                self.send_stamped(CALLS, CALL_LEN, 46 << 2, mode);
            }
            if self.load.ping {
                self.ping.sent += 1;
                self.send_stamped(CALLS + 1, 84, 0, DeliveryMode::Order);
            }
        }
    }

    /// Host 0 sends a packet of a flow that is not TCP, with the time in it.
    fn send_stamped(&mut self, flow: u16, len: usize, class: u8, mode: DeliveryMode) {
        let mut packet = tcp::packet(flow, len, class);
        packet[32..40].copy_from_slice(&self.now.as_nanos().to_be_bytes());
        self.send(0, packet, mode);
    }

    /// Sends whatever may leave now.
    fn drain(&mut self) {
        for from in 0..2 {
            for flow in 0..self.senders[from].len() {
                while let Some(number) = self.senders[from][flow].transmit(self.now) {
                    let packet = tcp::data(from, flow, number, self.now);
                    self.send(from, packet, DeliveryMode::Order);
                }
            }
        }
        if self.way != Way::Trunk {
            return;
        }
        for from in 0..2 {
            let mut frame = std::mem::take(&mut self.frame);
            while let Some(Transmit { link, .. }) =
                self.ends[from].poll_transmit(self.now, &mut frame)
            {
                let is_data = matches!(Frame::parse(&frame), Ok(Frame::Data(_)));
                if from == 0 && is_data {
                    self.carried_data += 1;
                    self.last_link = usize::from(link.0);
                }
                self.carry(from, usize::from(link.0), frame.clone(), OUTER + ETHERNET);
            }
            self.frame = frame;
            self.deliver(from);
        }
    }

    fn deliver(&mut self, to: usize) {
        loop {
            let Some(packet) = self.ends[to].poll_deliver(self.now) else { return };
            let mut copy = std::mem::take(&mut self.packet);
            copy.clear();
            copy.extend_from_slice(packet);
            self.take(to, &copy);
            self.packet = copy;
        }
    }

    /// A host takes a packet.
    fn take(&mut self, host: usize, packet: &[u8]) {
        let now = self.now;
        let (flow, back, is_ack) = tcp::kind(packet);
        if flow >= CALLS {
            let at = u64::from_be_bytes(packet[32..40].try_into().unwrap());
            let probe = match flow - CALLS {
                0 => &mut self.probe,
                1 => &mut self.ping,
                _ => &mut self.stream,
            };
            probe.delays.push(now - Instant::from_nanos(at));
            let gap = probe.last_at.replace(now).map_or(Duration::ZERO, |last| now - last);
            probe.longest_gap = probe.longest_gap.max(gap);
            return;
        }
        if !is_ack {
            self.delivered[host] += packet.len() as u64;
        }
        let flow = usize::from(flow);
        let direction = usize::from(back);
        if is_ack {
            self.senders[direction][flow].acknowledge(&tcp::read_ack(packet), now);
        } else if let Some(receiver) = self.receivers[direction].get_mut(flow) {
            let (number, sent) = tcp::read_data(packet);
            if let Some(ack) = receiver.arrive(number, sent) {
                let packet = tcp::ack(direction, flow, &ack);
                self.send(host, packet, DeliveryMode::Order);
            }
        }
    }

    /// Host `from` sends a packet.
    pub fn send(&mut self, from: usize, packet: Vec<u8>, mode: DeliveryMode) {
        match self.way {
            Way::Single(link) => self.carry(from, link, packet, ETHERNET),
            Way::Trunk => {
                let _ = self.ends[from].handle_packet(&packet, mode, self.now);
            }
        }
    }

    fn carry(&mut self, from: usize, link: usize, bytes: Vec<u8>, headers: usize) {
        let len = bytes.len() + headers;
        let pipe = &mut self.pipes[from][link];
        if let Some(at) = pipe.carry(len, self.now, &mut self.random) {
            self.count += 1;
            self.events.push(Reverse((at, self.count, from, link, bytes)));
        }
    }
}
