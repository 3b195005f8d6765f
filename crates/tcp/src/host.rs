//! A host: connections on which it sends, or receives, as much as it can.

use crate::config::Config;
use crate::connection::Connection;
use crate::random;
use crate::refusal::{Refusal, Refusals};
use crate::segment::{Path, Segment};
use sheaf_stage::{Duration, IndexedHeap, Instant};
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// Port of the first flow's receiver; the others follow.
pub const PORT: u16 = 5001;
/// Port of the first flow's sender; the others follow.
pub const FROM_PORT: u16 = 40_001;
/// Buffers of received packets that are kept for new ones.
const SPARE: usize = 256;

/// Progress of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Receiver: bytes that the application got, in order. Sender: bytes that were acknowledged.
    pub bytes: u64,
    /// Time of the last of them.
    pub last: Option<Instant>,
    /// Time at which all bytes and the FIN had arrived, or were acknowledged.
    pub finished: Option<Instant>,
    /// Sender: segments that were sent more than once.
    pub repeats: u64,
    /// Sender: time of the first of them.
    pub first_repeat: Option<Instant>,
    /// Sender: segments taken for lost.
    pub lost: u64,
    /// Sender: retransmission timeouts.
    pub timeouts: u64,
    /// Sender: probes of the tail and of a closed window.
    pub probes: u64,
    /// Sender: reductions of the window for losses, and those found needless.
    pub reductions: u64,
    /// Sender: reductions that were undone.
    pub undone: u64,
    /// Sender: bytes that were sent and not yet acknowledged.
    pub in_flight: u64,
    /// Sender: congestion window in segments.
    pub window: u32,
    /// Sender: smoothed round-trip time.
    pub round_trip: Option<Duration>,
}

/// A host with TCP connections on which it sends, or receives, as much as it can.
///
/// A pure machine on IP packets: [`Host::enqueue`] takes one that arrives, [`Host::dequeue`]
/// returns those that leave. Drain it after each call, and at [`Host::next_deadline`].
#[derive(Debug)]
pub struct Host {
    address: Ipv4Addr,
    /// Port of the first connection.
    port: u16,
    sends: bool,
    connections: Vec<Connection>,
    flows: Vec<Flow>,
    /// Connections that may have something to send now, each once.
    active: VecDeque<usize>,
    waiting: Vec<bool>,
    deadlines: IndexedHeap<Instant>,
    refusals: Refusals,
    spare: Vec<Vec<u8>>,
}

impl Host {
    /// A host at `address` with `flows` connections to `peer`, on which it sends. The connections
    /// begin with the first [`Host::dequeue`]. `seed` decides sequence numbers, and BBR's phases.
    pub fn sender(
        config: Config,
        address: Ipv4Addr,
        peer: Ipv4Addr,
        flows: u16,
        seed: u64,
    ) -> Host {
        Host::open(config, (address, peer), true, flows, seed)
    }

    /// A host at `address` that receives `flows` connections.
    pub fn receiver(config: Config, address: Ipv4Addr, flows: u16, seed: u64) -> Host {
        Host::listen(config, address, false, flows, seed)
    }

    /// A host at `address` that opens `flows` connections to `peer`, a [`Host::server`], and
    /// receives on them. They begin with the first [`Host::dequeue`].
    pub fn fetcher(
        config: Config,
        address: Ipv4Addr,
        peer: Ipv4Addr,
        flows: u16,
        seed: u64,
    ) -> Host {
        Host::open(config, (address, peer), false, flows, seed)
    }

    /// A host at `address` that waits for `flows` connections and sends on them.
    pub fn server(config: Config, address: Ipv4Addr, flows: u16, seed: u64) -> Host {
        Host::listen(config, address, true, flows, seed)
    }

    fn open(
        config: Config,
        (address, peer): (Ipv4Addr, Ipv4Addr),
        sends: bool,
        flows: u16,
        seed: u64,
    ) -> Host {
        let path = |flow| Path {
            source: (address, FROM_PORT.wrapping_add(flow)),
            destination: (peer, PORT.wrapping_add(flow)),
        };
        Host::new((address, FROM_PORT), sends, flows, |flow| {
            let seed = random::next(seed ^ u64::from(flow));
            Connection::open(config.clamped(), path(flow), sends, seed)
        })
    }

    fn listen(config: Config, address: Ipv4Addr, sends: bool, flows: u16, seed: u64) -> Host {
        let path = |flow| Path {
            source: (address, PORT.wrapping_add(flow)),
            destination: (Ipv4Addr::UNSPECIFIED, 0),
        };
        Host::new((address, PORT), sends, flows, |flow| {
            let seed = random::next(!seed ^ u64::from(flow));
            Connection::listen(config.clamped(), path(flow), sends, seed)
        })
    }

    fn new(
        (address, port): (Ipv4Addr, u16),
        sends: bool,
        flows: u16,
        connection: impl FnMut(u16) -> Connection,
    ) -> Host {
        Host {
            address,
            port,
            sends,
            connections: (0..flows).map(connection).collect(),
            flows: vec![Flow::default(); usize::from(flows)],
            active: (0..usize::from(flows)).collect(),
            waiting: vec![true; usize::from(flows)],
            deadlines: IndexedHeap::default(),
            refusals: Refusals::default(),
            spare: Vec::new(),
        }
    }

    /// A packet arrives. Drain the host afterwards: it may have replies to send.
    ///
    /// # Errors
    /// The reason for which the packet is not used; it is counted in [`Host::refusals`].
    pub fn enqueue(&mut self, packet: Vec<u8>, now: Instant) -> Result<(), Refusal> {
        let result = self.receive(&packet, now);
        if let Err(reason) = result {
            self.refusals.count(reason);
        }
        if self.spare.len() < SPARE {
            self.spare.push(packet);
        }
        result
    }

    fn receive(&mut self, packet: &[u8], now: Instant) -> Result<(), Refusal> {
        let segment = Segment::parse(packet)?;
        let (address, port) = segment.path.destination;
        let at = usize::from(port.wrapping_sub(self.port));
        let connection = self.connections.get_mut(at).filter(|_| address == self.address);
        let result = connection.ok_or(Refusal::NoConnection)?.arrive(&segment, now);
        // One that was refused may have to be acknowledged, too.
        self.note(at, now);
        self.activate(at);
        result
    }

    /// The application writes `bytes` more on connection `flow`, of which the send buffer takes
    /// what it has room for; the one of a receiver may, too, as for a request. A connection that is
    /// written to has no other data, and does not end before [`Host::close`]. Drain the host
    /// afterwards.
    ///
    /// # Panics
    /// Panics where there is no such connection.
    pub fn write(&mut self, flow: usize, bytes: u64) {
        self.connections[flow].sender.write(bytes);
        self.activate(flow);
    }

    /// The application of connection `flow` has no more to write. Drain the host afterwards.
    ///
    /// # Panics
    /// Panics where there is no such connection.
    pub fn close(&mut self, flow: usize) {
        self.connections[flow].sender.close();
        self.activate(flow);
    }

    /// Bytes that the application of connection `flow` got, in order, of a sender's, too.
    ///
    /// # Panics
    /// Panics where there is no such connection.
    pub fn received(&self, flow: usize) -> u64 {
        self.connections[flow].receiver.bytes()
    }

    /// Connection `at` may have something to send.
    fn activate(&mut self, at: usize) {
        if !std::mem::replace(&mut self.waiting[at], true) {
            self.active.push_back(at);
        }
    }

    /// The next packet that leaves at `now`.
    pub fn dequeue(&mut self, now: Instant) -> Option<Vec<u8>> {
        while let Some((_, at)) = self.deadlines.first().filter(|(due, _)| *due <= now) {
            self.deadlines.set(at, None);
            self.activate(at as usize);
        }
        let mut packet = self.spare.pop().unwrap_or_default();
        while let Some(at) = self.active.front().copied() {
            if self.connections[at].transmit(&mut packet, now) {
                self.note(at, now);
                return Some(packet);
            }
            self.active.pop_front();
            self.waiting[at] = false;
            self.deadlines.set(at as u32, self.connections[at].next_deadline(now));
        }
        self.spare.push(packet);
        None
    }

    /// Next time at which [`Host::dequeue`] may have a packet by the passing of time alone; later
    /// than the last call once the host is drained.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.active.is_empty() {
            self.deadlines.first().map(|(at, _)| at)
        } else {
            Some(Instant::ZERO)
        }
    }

    /// The connections.
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// Packets that were refused.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Notes the progress of connection `at`.
    fn note(&mut self, at: usize, now: Instant) {
        let (connection, flow) = (&self.connections[at], &mut self.flows[at]);
        if !self.sends {
            let receiver = &connection.receiver;
            (flow.bytes, flow.last) = (receiver.bytes(), receiver.last());
            if receiver.finished() {
                flow.finished.get_or_insert(now);
            }
            return;
        }
        let sender = &connection.sender;
        let bytes = sender.acknowledged().min(sender.limit()) - 1;
        if bytes > flow.bytes {
            (flow.bytes, flow.last) = (bytes, Some(now));
        }
        if sender.finished() {
            flow.finished.get_or_insert(now);
        }
        let counts = sender.counts();
        (flow.repeats, flow.first_repeat) = (counts.repeats, counts.first_repeat);
        (flow.lost, flow.timeouts, flow.probes) = (counts.lost, counts.timeouts, counts.probes);
        (flow.reductions, flow.undone) = (counts.reductions, counts.undone);
        flow.in_flight = sender.next() - sender.acknowledged();
        (flow.window, flow.round_trip) = (sender.window(), sender.smoothed());
    }
}
