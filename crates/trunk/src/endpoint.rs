//! One end of a trunk: sender, receiver, sessions and reports as one machine without I/O.
//!
//! The owner calls [`Endpoint::handle_packet`] for packets from the host and
//! [`Endpoint::handle_frame`] for frames from the links, then [`Endpoint::poll_transmit`] and
//! [`Endpoint::poll_deliver`] until both return `None`, and again at
//! [`Endpoint::next_deadline`].
//!
//! * *Sessions.* Each run of an end has a session, a random number. Hellos exchange them, once
//!   every 100 ms on every link until both ends accept each other's. An end that has a
//!   session accepts another one only from a hello that names its own, so a forged or stale hello
//!   changes nothing; sessions that were replaced are never accepted again. Data of an unknown
//!   session is refused.
//! * *Reports* go out on every link, every 20 ms while it carries data and every 100 ms as a probe
//!   while it does not. On a radio each costs as much as a packet; so where the carrier reports its
//!   queue, they are as rare as the frames on it allow. They say what was received, and how far the
//!   numbers on this link are.
//! * *Links.* A link that is silent for 500 ms is down, and up again with the next valid frame. The
//!   sender avoids a loaded link well before that, and the receiver waits for no link that missed
//!   three reports under load or two probes without.
//! * *Addresses.* Where a link's frames go to is given by the owner or learned ([`remote`]). The
//!   type parameter `A` is the carrier's kind of address; without addresses it is `()`.

pub mod outcome;
pub mod remote;
mod repair;
mod session;

use crate::config::{ConfigError, EndpointConfig};
use crate::flow::Flow;
use crate::inbound::{Inbound, micros};
use crate::link::{Fill, LinkConfig, LinkStats};
use crate::order::Order;
use crate::resequencer::{Arrival, Delivery, ReorderStats};
use crate::sender::{DeliveryMode, LinkId, Sender};
use outcome::{FrameKind, Received, Refusal, Transmit};
use remote::{Address, Origin, Remote};
use sheaf_stage::{Counters, DropReason, Duration, Instant};
use sheaf_wire::trunk::{Data, Frame, Marker, Packets, REPORT_LEN, Report, extend_seq, tag};

/// Buffers kept for reuse, so that steady traffic allocates none: as many as the receiver's window
/// can hold.
const SPARE: usize = 4096;
/// Replaced sessions that are remembered, so that a replayed hello of one of the last starts of the
/// other end is refused.
const RETIRED: usize = 8;

/// Counters of one end of a trunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointStats {
    /// Packets handed up to the host.
    pub delivered: u64,
    /// Frames from the other end's address that could not be parsed.
    pub refused: u64,
    /// Frames of a session that is not the other end's, hellos that were replied to apart.
    pub unknown_session: u64,
    /// Frames on a link that does not exist.
    pub unknown_link: u64,
    /// Sessions of the other end that were accepted.
    pub sessions: u64,
    /// Counters of the resequencer; all zero under `srr` and `trr`.
    pub reorder: ReorderStats,
    /// Frames received a second time.
    pub duplicates: u64,
    /// The longest reordering timer of all flows.
    pub timer: Duration,
}

/// Counters of the frames received on one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkReceived {
    /// Frames of the current session.
    pub frames: u32,
    /// Frames refused because of the address that they came from.
    pub strangers: u64,
    /// Times that the other end was found at a new address, the first included.
    pub moves: u64,
}

/// A link as the endpoint has it; the sender and the receiver have their own.
#[derive(Debug)]
struct Path<A> {
    /// The carrier works, as far as its owner says.
    carrier: bool,
    /// Heard within the silence time.
    alive: bool,
    /// The receiver waits for it.
    awaited: bool,
    last_heard: Option<Instant>,
    inbound: Inbound,
    last_report_sent: Option<Instant>,
    /// Data frames received since the last report was sent.
    received_since_report: u32,
    /// Time at which data was last sent, if after the last report.
    last_data_sent: Option<Instant>,
    /// Data was received, and no report since: the other end owes one.
    report_due: bool,
    /// Frames of a packet train that are still to be sent.
    train: u8,
    /// The other end sent a hello that has to be replied to.
    reply_due: bool,
    remote: Remote<A>,
    guest: Option<Guest<A>>,
    strangers: u64,
    moves: u64,
}

/// The sender of an unproven hello, which gets one reply at its address. It is kept apart from the
/// other end, so that a flood of hellos neither diverts nor delays the other end's frames.
#[derive(Clone, Copy, Debug)]
struct Guest<A> {
    address: A,
    session: u64,
}

impl<A> Path<A> {
    /// A path whose carrier works and on which nothing happened.
    fn new() -> Path<A> {
        Path {
            carrier: true,
            alive: false,
            awaited: false,
            last_heard: None,
            inbound: Inbound::default(),
            last_report_sent: None,
            received_since_report: 0,
            last_data_sent: None,
            report_due: false,
            train: 0,
            reply_due: false,
            remote: Remote::Only,
            guest: None,
            strangers: 0,
            moves: 0,
        }
    }
}

/// One end of a trunk.
#[derive(Debug)]
pub struct Endpoint<A = ()> {
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
    paths: Vec<Option<Path<A>>>,
    current: Option<(Delivery, usize)>,
    /// Rows of missing frames, while a request is written.
    missing: Vec<(u32, u16)>,
    spare: Vec<Vec<u8>>,
    stats: EndpointStats,
}

impl<A: Address> Endpoint<A> {
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
            missing: Vec::new(),
            spare: Vec::new(),
            stats: EndpointStats::default(),
        })
    }

    /// Adds a link whose carrier works and reaches one host only.
    pub fn add_link(&mut self, config: LinkConfig) -> Result<LinkId, ConfigError> {
        let id = self.sender.add_link(config)?;
        let path = Path::new();
        if id.index() == self.paths.len() {
            self.paths.push(Some(path));
        } else {
            self.paths[id.index()] = Some(path);
        }
        Ok(id)
    }

    /// Sets where the other end of a link is, or that this is to be learned.
    pub fn set_remote(&mut self, id: LinkId, remote: Remote<A>) {
        if let Some(path) = self.path(id) {
            path.remote = remote;
        }
    }

    /// Removes a link; packets that wait for it take the others.
    pub fn remove_link(&mut self, id: LinkId, now: Instant) {
        self.link_down(id, now);
        self.sender.remove_link(id, now);
        if let Some(path) = self.paths.get_mut(id.index()) {
            *path = None;
        }
    }

    /// Notes that the carrier of a link failed.
    pub fn link_down(&mut self, id: LinkId, now: Instant) {
        if let Some(path) = self.path(id) {
            path.carrier = false;
            path.guest = None;
            self.lose(id, now);
        }
    }

    /// Notes that the carrier of a link works again; the link is probed immediately.
    pub fn link_up(&mut self, id: LinkId) {
        if let Some(path) = self.path(id) {
            path.carrier = true;
            path.last_report_sent = None;
        }
    }

    /// Sets how full the carrier's transmit queue is; `None` when the carrier does not report it.
    /// Only for a queue in front of the bottleneck: such a link is not paced.
    pub fn set_link_queue(&mut self, id: LinkId, fill: Option<Fill>) {
        self.sender.set_queue(id, fill);
    }

    /// Takes a packet from the host. A packet that cannot be sent is dropped with a reason.
    pub fn handle_packet(
        &mut self,
        packet: &[u8],
        mode: DeliveryMode,
        now: Instant,
    ) -> Result<(), DropReason> {
        let flow = Flow::of_packet(packet, self.config.sender.ip);
        self.sender.send(packet, flow, mode, now)
    }

    /// Takes a frame that came on link `id` from the address `from`; `None` where the carrier has
    /// no usable address of it.
    pub fn handle_frame(
        &mut self,
        id: LinkId,
        from: Option<A>,
        bytes: &[u8],
        now: Instant,
    ) -> Received<A> {
        self.check_silence(now);
        let Some(path) = self.path(id) else {
            self.stats.unknown_link += 1;
            return Received::Refused(Refusal::UnknownLink);
        };
        let candidate = match path.remote.origin(from) {
            Origin::Peer => None,
            Origin::Candidate(address) => Some(address),
            Origin::Stranger => {
                path.strangers += 1;
                return Received::Refused(Refusal::Stranger);
            }
        };
        match self.accept_frame(id, candidate, bytes, now) {
            Ok((_, Some(reason))) => Received::Dropped(reason),
            Ok((kind, None)) => {
                if let (Some(address), Some(path)) = (candidate, self.path(id)) {
                    path.remote = Remote::Learned(Some(address));
                    path.guest = None;
                    path.moves += 1;
                }
                Received::Accepted { kind, new_address: candidate }
            }
            Err(why) => {
                self.count_refusal(id, candidate, why);
                Received::Refused(why)
            }
        }
    }

    /// Takes a frame of the other end, or one that perhaps comes from the other end at the address
    /// `candidate`. A data frame can be dropped although it is of the session.
    fn accept_frame(
        &mut self,
        id: LinkId,
        candidate: Option<A>,
        bytes: &[u8],
        now: Instant,
    ) -> Result<(FrameKind, Option<DropReason>), Refusal> {
        let len = bytes.len();
        match Frame::parse(bytes) {
            Ok(Frame::Hello(hello)) => {
                self.handle_hello(id, candidate, &hello, len, now)?;
                Ok((FrameKind::Hello, None))
            }
            Ok(Frame::Report(report)) if self.peer == Some(report.control.session) => {
                self.handle_report(id, &report, len, now);
                Ok((FrameKind::Report, None))
            }
            Ok(Frame::Request(request)) if self.peer == Some(request.control.session) => {
                self.handle_request(id, &request, len, now);
                Ok((FrameKind::Request, None))
            }
            Ok(Frame::Report(_) | Frame::Request(_)) => Err(Refusal::UnknownSession),
            // All other frames carry 8 bits of the session at most: too few for a new address.
            _ if candidate.is_some() => Err(Refusal::Stranger),
            Ok(Frame::Data(data)) if self.has_tag(data.repr.tag) => {
                Ok((FrameKind::Data, self.handle_data(id, &data, len, now).err()))
            }
            Ok(Frame::Marker(marker)) if self.has_tag(marker.tag) => {
                self.handle_marker(id, &marker, len, now);
                Ok((FrameKind::Marker, None))
            }
            Ok(Frame::Data(_) | Frame::Marker(_)) => Err(Refusal::UnknownSession),
            Err(why) => Err(Refusal::Malformed(why)),
        }
    }

    fn count_refusal(&mut self, id: LinkId, candidate: Option<A>, why: Refusal) {
        match why {
            Refusal::Malformed(_) => self.stats.refused += 1,
            Refusal::UnknownSession => self.stats.unknown_session += 1,
            // The first is counted where it is found, the second below, the last is replied to.
            Refusal::UnknownLink | Refusal::Stranger | Refusal::UnprovenSession => {}
        }
        if let (Some(_), Some(path)) = (candidate, self.path(id)) {
            path.strangers += 1;
        }
    }

    /// Writes the next frame to send at `now` over `out`, and returns where to send it.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit<A>> {
        self.check_silence(now);
        for index in 0..self.paths.len() {
            if self.control_due(index).is_some_and(|due| due <= now) {
                let link = LinkId(index as u8);
                let to = self.write_control(link, now, out);
                return Some(Transmit { link, to });
            }
        }
        if !self.is_established() {
            return None;
        }
        if let Some(transmit) = self.write_request(now, out) {
            return Some(transmit);
        }
        let link = self.sender.poll_transmit(tag(self.session), now, out)?;
        let path = self.path(link)?;
        path.last_data_sent = Some(now);
        Some(Transmit { link, to: path.remote.address() })
    }

    /// The next packet for the host, in the order of its flow.
    pub fn poll_deliver(&mut self, now: Instant) -> Option<&[u8]> {
        self.check_silence(now);
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

    /// The time to poll again although nothing was received.
    pub fn next_deadline(&self) -> Option<Instant> {
        let control = (0..self.paths.len()).filter_map(|index| self.control_due(index));
        let silence = self.paths.iter().flatten().filter_map(|path| self.silent_at(path));
        let own = self.sender.next_deadline().into_iter().chain(self.request_due());
        let own = own.filter(|_| self.is_established());
        control.chain(silence).chain(own).chain(self.order.next_deadline()).min()
    }

    /// Whether both ends accept each other's session.
    pub fn is_established(&self) -> bool {
        self.peer.is_some() && self.acknowledged
    }

    /// Counters of this end.
    pub fn stats(&self) -> EndpointStats {
        EndpointStats {
            reorder: self.order.numbers().map(|order| order.stats()).unwrap_or_default(),
            duplicates: self.order.counters().dropped(DropReason::Duplicate),
            timer: self.order.longest_timer(),
            ..self.stats
        }
    }

    /// State of a link's sending direction.
    pub fn link_stats(&self, id: LinkId, now: Instant) -> Option<LinkStats> {
        self.sender.stats(id, now)
    }

    /// Counters of the frames received on a link.
    pub fn link_received(&self, id: LinkId) -> Option<LinkReceived> {
        let path = self.paths.get(id.index())?.as_ref()?;
        let Path { inbound, strangers, moves, .. } = path;
        Some(LinkReceived { frames: inbound.frames(), strangers: *strangers, moves: *moves })
    }

    /// The address of a link's other end, where one is known.
    pub fn remote(&self, id: LinkId) -> Option<A> {
        self.paths.get(id.index())?.as_ref()?.remote.address()
    }

    /// Packets from the host: in, out and dropped.
    pub fn sent(&self) -> Counters {
        self.sender.counters()
    }

    /// Frames from the links: in, handed up and dropped.
    pub fn received(&self) -> Counters {
        self.order.counters()
    }

    /// The sending half, for its counters.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    fn path(&mut self, id: LinkId) -> Option<&mut Path<A>> {
        self.paths.get_mut(id.index())?.as_mut()
    }

    /// Whether a tag is that of the other end's session.
    fn has_tag(&self, frame_tag: u8) -> bool {
        self.peer.is_some_and(|peer| tag(peer) == frame_tag)
    }

    fn handle_data(
        &mut self,
        id: LinkId,
        data: &Data<'_>,
        len: usize,
        now: Instant,
    ) -> Result<(), DropReason> {
        if let Some(path) = self.path(id) {
            path.inbound.data(data.repr.link_seq, len, now);
            path.received_since_report += 1;
            path.report_due = true;
            self.hear(id, now);
        }
        let mut payload = self.spare.pop().unwrap_or_default();
        payload.clear();
        payload.extend_from_slice(data.payload);
        let first = data.packets().next().unwrap_or_default();
        let flow = Flow::of_packet(first, self.config.sender.ip);
        let seq = extend_seq(data.repr.seq, self.order.expected());
        let (predecessor, packing) = (data.repr.predecessor, data.repr.packing);
        let urgent = data.repr.overtakes;
        let arrival = Arrival { link: id.0, seq, predecessor, flow, urgent, packing, payload };
        self.order.push(arrival, now)
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
        path.report_due = false;
        if len > REPORT_LEN {
            // A frame of a packet train: its sender waits for what was received and when.
            path.last_report_sent = None;
        }
        self.hear(id, now);
        self.order.passed(id.0, report.control.next_seq, now);
        self.sender.report(id, report, micros(now), now);
        self.order.set_repair_wait(self.repair_wait(now));
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE && buffer.capacity() > 0 {
            self.spare.push(buffer);
        }
    }
}
