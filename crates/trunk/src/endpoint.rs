//! One end of a trunk: sender, receiver, sessions and reports as one machine without I/O.
//!
//! The owner calls [`Endpoint::handle_packet`] for packets from the host and
//! [`Endpoint::handle_frame`] for frames from the links, then [`Endpoint::poll_transmit`] and
//! [`Endpoint::poll_deliver`] until both answer `None`, and again at
//! [`Endpoint::next_deadline`].
//!
//! * *Sessions.* Each run of an end has a session, a random number. Hellos exchange them, once
//!   every 100 ms on every link until both ends know and accept each other's. An end that has a
//!   session accepts another one only from a hello that names its own, so a forged or stale hello
//!   changes nothing; sessions that were replaced are never accepted again. Data of an unknown
//!   session is refused.
//! * *Reports* go out on every link, every 20 ms while it carries data and every 100 ms as a probe
//!   while it does not. On a radio each costs as much as a packet; so where the carrier tells its
//!   queue, they are as rare as the frames on it allow. They say what was received, and how far the
//!   numbers on this link are.
//! * *Links.* A link that is silent for 500 ms is down, and up again with the next valid frame. The
//!   sender avoids a loaded link well before that, and the receiver waits for no link that missed
//!   three reports under load or two probes without.

mod session;

use crate::config::{ConfigError, EndpointConfig};
use crate::flow::Flow;
use crate::inbound::{Inbound, micros};
use crate::link::{Fill, LinkConfig, LinkStats};
use crate::order::Order;
use crate::resequencer::{Arrival, Delivery, ReorderStats};
use crate::sender::{Care, LinkId, Sender, is_urgent};
use sheaf_stage::{Counters, DropReason, Duration, Instant};
use sheaf_wire::trunk::{Data, Frame, Marker, Packets, Report, tag};

/// Buffers kept for reuse.
const SPARE: usize = 4096;
/// Replaced sessions that are remembered.
const RETIRED: usize = 8;

/// What happened at one end of a trunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointStats {
    /// Packets handed up to the host.
    pub delivered: u64,
    /// Frames that are none.
    pub refused: u64,
    /// Frames of a session that is not the other end's.
    pub unknown_session: u64,
    /// Frames on a link that does not exist.
    pub unknown_link: u64,
    /// Sessions of the other end that were accepted.
    pub sessions: u64,
    /// What the resequencer did; all zero under `srr` and `trr`.
    pub reorder: ReorderStats,
    /// Frames that came a second time.
    pub duplicates: u64,
    /// The longest reordering timer of all flows.
    pub timer: Duration,
}

#[derive(Debug)]
struct Path {
    /// The carrier works, as far as its owner says.
    carrier: bool,
    /// Heard within the silence time.
    alive: bool,
    /// The receiver waits for it.
    awaited: bool,
    heard: Option<Instant>,
    inbound: Inbound,
    /// When the last report or hello left.
    told: Option<Instant>,
    /// Data frames that came since.
    came: u32,
    /// When data last went since.
    went: Option<Instant>,
    /// Data came, and no report since.
    owes_report: bool,
    /// A hello must be answered.
    answer: bool,
}

/// One end of a trunk.
#[derive(Debug)]
pub struct Endpoint {
    config: EndpointConfig,
    session: u64,
    /// The session of the other end that is accepted.
    peer: Option<u64>,
    /// The session that the other end claims, to be named in hellos.
    claimed: u64,
    /// The other end accepts our session.
    acknowledged: bool,
    retired: [u64; RETIRED],
    sender: Sender,
    order: Order,
    paths: Vec<Option<Path>>,
    current: Option<(Delivery, usize)>,
    spare: Vec<Vec<u8>>,
    stats: EndpointStats,
}

impl Endpoint {
    /// An end without links. `session`: a random number, another one at every start, not 0.
    pub fn new(config: EndpointConfig, session: u64) -> Result<Self, ConfigError> {
        config.check()?;
        if session == 0 {
            return Err(ConfigError::NoSession);
        }
        Ok(Endpoint {
            // The numbers start anywhere, so that a guess at them is one in 2³².
            sender: Sender::new(config.sender.clone(), session as u32)?,
            order: Order::new(config.sender.scheduler, &config.reorder)?,
            config,
            session,
            peer: None,
            claimed: 0,
            acknowledged: false,
            retired: [0; RETIRED],
            paths: Vec::new(),
            current: None,
            spare: Vec::new(),
            stats: EndpointStats::default(),
        })
    }

    /// Adds a link whose carrier works.
    pub fn add_link(&mut self, config: LinkConfig) -> Result<LinkId, ConfigError> {
        let id = self.sender.add_link(config)?;
        let path = Path {
            carrier: true,
            alive: false,
            awaited: false,
            heard: None,
            inbound: Inbound::default(),
            told: None,
            came: 0,
            went: None,
            owes_report: false,
            answer: false,
        };
        if id.index() == self.paths.len() {
            self.paths.push(Some(path));
        } else {
            self.paths[id.index()] = Some(path);
        }
        Ok(id)
    }

    /// Removes a link; what waits for it takes the others.
    pub fn remove_link(&mut self, id: LinkId, now: Instant) {
        self.link_down(id, now);
        self.sender.remove_link(id, now);
        if let Some(path) = self.paths.get_mut(id.index()) {
            *path = None;
        }
    }

    /// The carrier of a link failed.
    pub fn link_down(&mut self, id: LinkId, now: Instant) {
        if let Some(path) = self.path(id) {
            path.carrier = false;
            self.lose(id, now);
        }
    }

    /// The carrier of a link works again: it is probed at once.
    pub fn link_up(&mut self, id: LinkId) {
        if let Some(path) = self.path(id) {
            path.carrier = true;
            path.told = None;
        }
    }

    /// What the carrier tells of its transmit queue; `None` when it does not tell. Tell only where
    /// that queue is before the bottleneck: such a link is not paced.
    pub fn set_link_queue(&mut self, id: LinkId, fill: Option<Fill>) {
        self.sender.set_queue(id, fill);
    }

    /// Takes a packet from the host. A packet that cannot be sent is dropped with a reason.
    pub fn handle_packet(
        &mut self,
        packet: &[u8],
        care: Care,
        now: Instant,
    ) -> Result<(), DropReason> {
        let flow = Flow::of_packet(packet, self.config.sender.ip);
        self.sender.send(packet, flow, care, now)
    }

    /// Takes a frame from link `id`.
    pub fn handle_frame(&mut self, id: LinkId, bytes: &[u8], now: Instant) {
        self.look_after(now);
        if self.path(id).is_none() {
            self.stats.unknown_link += 1;
            return;
        }
        match Frame::parse(bytes) {
            Err(_) => self.stats.refused += 1,
            Ok(Frame::Hello(hello)) => self.handle_hello(id, &hello, bytes.len(), now),
            Ok(Frame::Data(Data { repr, .. })) if !self.knows(repr.tag) => {
                self.stats.unknown_session += 1;
            }
            Ok(Frame::Marker(marker)) if !self.knows(marker.tag) => {
                self.stats.unknown_session += 1;
            }
            Ok(Frame::Report(report)) if self.peer != Some(report.control.session) => {
                self.stats.unknown_session += 1;
            }
            Ok(Frame::Data(data)) => self.handle_data(id, &data, bytes.len(), now),
            Ok(Frame::Marker(marker)) => self.handle_marker(id, &marker, bytes.len(), now),
            Ok(Frame::Report(report)) => self.handle_report(id, &report, bytes.len(), now),
        }
    }

    /// Writes the next frame to send at `now` over `out`, and answers its link.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<LinkId> {
        self.look_after(now);
        for index in 0..self.paths.len() {
            if self.control_due(index).is_some_and(|due| due <= now) {
                let id = LinkId(index as u8);
                self.tell(id, now, out);
                return Some(id);
            }
        }
        if !self.is_established() {
            return None;
        }
        let id = self.sender.poll_transmit(tag(self.session), now, out)?;
        if let Some(path) = self.path(id) {
            path.went = Some(now);
        }
        Some(id)
    }

    /// The next packet for the host, in the order of its flow.
    pub fn poll_deliver(&mut self, now: Instant) -> Option<&[u8]> {
        self.look_after(now);
        let range = loop {
            if let Some((delivery, offset)) = &mut self.current {
                let mut packets = Packets::new(delivery.packing, &delivery.payload[*offset..]);
                if let Some(packet) = packets.next() {
                    let end = delivery.payload.len() - packets.rest().len();
                    *offset = end;
                    break end - packet.len()..end;
                }
            }
            if let Some((delivery, _)) = self.current.take() {
                self.recycle(delivery.payload);
            }
            self.current = Some((self.order.pop(now)?, 0));
        };
        self.stats.delivered += 1;
        self.current.as_ref().map(|(delivery, _)| &delivery.payload[range])
    }

    /// When to poll again although nothing came.
    pub fn next_deadline(&self) -> Option<Instant> {
        let control = (0..self.paths.len()).filter_map(|index| self.control_due(index));
        let silence = self.paths.iter().flatten().filter_map(|path| self.silent_at(path));
        let sender = self.sender.next_deadline().filter(|_| self.is_established());
        control.chain(silence).chain(sender).chain(self.order.next_deadline()).min()
    }

    /// Whether both ends know and accept each other's session.
    pub fn is_established(&self) -> bool {
        self.peer.is_some() && self.acknowledged
    }

    /// What happened at this end.
    pub fn stats(&self) -> EndpointStats {
        EndpointStats {
            reorder: self.order.numbers().map(|order| order.stats()).unwrap_or_default(),
            duplicates: self.order.counters().dropped(DropReason::Duplicate),
            timer: self.order.longest_timer(),
            ..self.stats
        }
    }

    /// What is known of a link's sending direction.
    pub fn link_stats(&self, id: LinkId, now: Instant) -> Option<LinkStats> {
        self.sender.stats(id, now)
    }

    /// Frames that came on a link in this session.
    pub fn link_received(&self, id: LinkId) -> Option<u32> {
        Some(self.paths.get(id.index())?.as_ref()?.inbound.frames())
    }

    /// Packets from the host: in, out and dropped.
    pub fn sent(&self) -> Counters {
        self.sender.counters()
    }

    /// Frames from the links: in, handed up and dropped.
    pub fn received(&self) -> Counters {
        self.order.counters()
    }

    /// The sending half, to look at.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    fn path(&mut self, id: LinkId) -> Option<&mut Path> {
        self.paths.get_mut(id.index())?.as_mut()
    }

    fn knows(&self, frame_tag: u8) -> bool {
        self.peer.is_some_and(|peer| tag(peer) == frame_tag)
    }

    fn handle_data(&mut self, id: LinkId, data: &Data<'_>, len: usize, now: Instant) {
        let Some(path) = self.path(id) else { return };
        path.inbound.data(data.repr.link_seq, len, now);
        path.came += 1;
        path.owes_report = true;
        self.hear(id, now);
        let mut payload = self.spare.pop().unwrap_or_default();
        payload.clear();
        payload.extend_from_slice(data.payload);
        let first = data.packets().next().unwrap_or_default();
        let flow = Flow::of_packet(first, self.config.sender.ip);
        let (seq, predecessor, packing) = (data.repr.seq, data.repr.predecessor, data.repr.packing);
        let urgent = is_urgent(first, self.config.sender.ip);
        let arrival = Arrival { link: id.0, seq, predecessor, flow, urgent, packing, payload };
        self.order.push(arrival, now);
    }

    fn handle_marker(&mut self, id: LinkId, marker: &Marker, len: usize, now: Instant) {
        if let Some(path) = self.path(id) {
            path.inbound.data(marker.link_seq, len, now);
            self.hear(id, now);
            self.order.marker(id.0, marker);
        }
    }

    fn handle_report(&mut self, id: LinkId, report: &Report, len: usize, now: Instant) {
        let Some(path) = self.path(id) else { return };
        path.inbound.control(&report.control, len, now);
        path.inbound.report(report, now);
        path.owes_report = false;
        self.hear(id, now);
        self.order.passed(id.0, report.control.next_seq, now);
        self.sender.report(id, report, micros(now), now);
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE && buffer.capacity() > 0 {
            self.spare.push(buffer);
        }
    }
}
