//! One end of a trunk: sender, receiver, sessions and reports as one machine without I/O.
//!
//! The owner calls [`Endpoint::handle_packet`] for packets from the host and
//! [`Endpoint::handle_frame`] for frames from the links, then [`Endpoint::poll_transmit`] and
//! [`Endpoint::poll_deliver`] until both return `None`, and again at
//! [`Endpoint::next_deadline`].
//!
//! * *Sessions.* Each run of an end has a session, a random number. Hellos exchange them, once
//!   every 100 ms on every link until both ends accept each other's, and again whenever the other
//!   end has been silent for 500 ms, as it may have started anew. Where nothing answers for 10 s
//!   they are ten times as rare. A session is accepted from a
//!   hello that echoes a challenge sent to its address, and only while no other session lives, so a
//!   forged or recorded hello changes nothing. Who is challenged learns nothing of this end's
//!   session. Data of an unknown session is refused.
//! * *Keys.* With a key every frame is sealed (`secure`), and what a sealed frame says needs no
//!   other proof: the session is the one that the handshake named.
//! * *Reports* go out on every link, every 20 ms while it carries data and every 100 ms as a probe
//!   while it does not. On a radio each costs as much as a packet; so where the carrier reports its
//!   queue, they are as rare as the frames on it allow. They say what was received, and how far the
//!   numbers on this link are. The probes of all links leave together, and one end's follow the
//!   other's: an end at rest wakes once or twice in 100 ms, whatever it has of links. A backup at
//!   rest is probed every 10 s. Each report and hello says when the next leaves at the latest.
//! * *Links.* A link that is silent for 500 ms is down, and up again with the next valid frame. The
//!   sender avoids a loaded link well before that, and the receiver waits for no link that missed
//!   three reports under load or two probes without.
//! * *Headers* of IP, TCP and UDP that the other end knows are left out, with a key (`headers`).
//! * *Carriers.* Several links can share a carrier, as a socket of a server: each frame names its
//!   link, and is taken only where that link uses the carrier by which the frame came.
//! * *Addresses.* Where a link's frames go to is given by the owner or learned ([`remote`]). The
//!   type parameter `A` is the carrier's kind of address; without addresses it is `()`.

mod challenge;
mod claims;
mod contexts;
mod headers;
pub mod outcome;
mod recover;
pub mod remote;
mod repair;
mod session;

use crate::config::{ConfigError, EndpointConfig};
use crate::flow::{DeliveryMode, Flow};
use crate::inbound::{Came, Inbound, micros};
use crate::link::{Fill, LinkConfig, LinkStats};
use crate::order::Order;
use crate::recovery::Recovery;
use crate::resequencer::{Arrival, Delivery, ReorderStats};
use crate::secure::{Guard, Key, Opened, Seal};
use crate::seed::Seed;
use crate::segment;
use crate::sender::{CompressStats, LinkId, ParityStats, Sender};
use challenge::Challenges;
use claims::{Claims, Sent};
use contexts::Contexts;
use outcome::{FrameKind, Received, Refusal, Transmit};
use remote::{Address, Origin, Remote};
use sheaf_stage::{Counters, DropReason, Duration, Instant};
use sheaf_wire::trunk::sealed::Outer;
use sheaf_wire::trunk::{
    Data, Frame, Marker, PROMPT_REPORT_LEN, Packets, Predecessor, Report, extend_seq, tag,
};
use std::collections::VecDeque;

/// Buffers kept for reuse, so that steady traffic allocates none: as many as the receiver's window
/// can hold.
const SPARE: usize = 4096;
/// Replies to strangers that can wait: as many as frames are read before the next are sent.
const REPLIES: usize = 64;

/// Counters of one end of a trunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointStats {
    /// Packets handed up to the host.
    pub delivered: u64,
    /// Frames that could not be parsed.
    pub refused: u64,
    /// Frames of a session that is not the other end's, hellos that were replied to apart.
    pub unknown_session: u64,
    /// Hellos of another session while the accepted one lives.
    pub displacing: u64,
    /// Reports that were refused because they are old or cannot be true.
    pub bad_reports: u64,
    /// Frames of a link that does not use the carrier by which they came.
    pub other_link: u64,
    /// Handshakes that made keys.
    pub handshakes: u64,
    /// Frames that were not sealed although there is a key.
    pub not_sealed: u64,
    /// Frames that were sealed although there is no key.
    pub sealed: u64,
    /// Sealed frames for keys that this end does not have.
    pub no_keys: u64,
    /// Frames sealed with another key, damaged or forged.
    pub wrong_key: u64,
    /// Sealed frames that came before, or too late to be told from those.
    pub replayed: u64,
    /// Frames on a link that does not exist.
    pub unknown_link: u64,
    /// Sessions of the other end that were accepted.
    pub sessions: u64,
    /// Packets sent with compressed headers.
    pub compress: CompressStats,
    /// Packets whose headers were restored.
    pub restored: u64,
    /// Packets lost because their headers could not be restored.
    pub not_restored: u64,
    /// Counters of the resequencer; all zero under `srr` and `trr`.
    pub reorder: ReorderStats,
    /// Frames received a second time.
    pub duplicates: u64,
    /// Frames that were known by a parity before they came: lost ones, and those that the parity
    /// overtook on another link.
    pub recovered: u64,
    /// Parities sent.
    pub parity: ParityStats,
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
    /// The link under whose number frames of its carrier are handed in: the first that uses it.
    carried_by: LinkId,
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
    /// The other end's last challenge on this link; 0 without one.
    echo: u64,
    claims: Claims,
    /// Time at which a handshake was last begun on it.
    last_initiation: Option<Instant>,
    /// Hellos, probes and handshakes sent since something was last heard on it.
    unanswered: u32,
    /// Time within which this end told the other that it will send the next report or hello, and
    /// the same of the other end; zero: the usual time.
    told: Duration,
    pause: Duration,
    /// Handshake and counter of the newest sealed frame.
    newest: (u64, u32),
    strangers: u64,
    moves: u64,
}

/// A reply to a frame that proves nothing. It is kept apart from the links' own frames, so that a
/// flood of hellos neither diverts nor delays these.
#[derive(Debug)]
struct Reply<A> {
    link: LinkId,
    to: Option<A>,
    bytes: Vec<u8>,
}

/// A frame's proof that it is the other end's.
#[derive(Clone, Copy, Debug)]
enum Proof<A> {
    /// The place that it came from, and numbers that only the two ends know.
    Place(Option<A>),
    /// A key.
    Seal(Seal),
}

impl<A> Path<A> {
    /// A path with a carrier of its own, which works, and on which nothing happened.
    fn new(id: LinkId) -> Path<A> {
        Path {
            carried_by: id,
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
            echo: 0,
            claims: Claims::default(),
            last_initiation: None,
            unanswered: 0,
            told: Duration::ZERO,
            pause: Duration::ZERO,
            newest: (0, 0),
            strangers: 0,
            moves: 0,
        }
    }

    /// Probes the link immediately, and then as often as one that was never probed.
    fn greet(&mut self) {
        self.last_report_sent = None;
        self.last_initiation = None;
        self.unanswered = 0;
        self.told = Duration::ZERO;
    }

    /// Whether no data came or left since the last report.
    fn is_idle(&self) -> bool {
        self.received_since_report == 0 && self.last_data_sent.is_none()
    }
}

/// One end of a trunk.
#[derive(Debug)]
pub struct Endpoint<A = ()> {
    config: EndpointConfig,
    session: u64,
    /// The session of the other end that is accepted.
    peer: Option<u64>,
    /// The last handshake under which a frame of that session came.
    peer_serial: u64,
    guard: Option<Guard>,
    /// The other end accepts our session, and when a frame last said so.
    acknowledged: bool,
    acknowledged_at: Instant,
    /// Time at which a frame that proves its session was last accepted.
    heard_at: Instant,
    /// A probe left or came: those of other links that are due soon leave with it.
    probing: bool,
    /// Time since which numbers of the other end are out of the receiver's reach.
    astray_since: Option<Instant>,
    challenges: Challenges,
    replies: VecDeque<Reply<A>>,
    sender: Sender,
    order: Order,
    paths: Vec<Option<Path<A>>>,
    current: Option<(Delivery, usize)>,
    contexts: Contexts,
    recovery: Recovery,
    /// A recovered frame.
    recovered: Vec<u8>,
    /// Rows of missing frames, while a request is written.
    missing: Vec<(u32, u16)>,
    spare: Vec<Vec<u8>>,
    stats: EndpointStats,
}

impl<A: Address> Endpoint<A> {
    /// An end without links and without a key. `seed`: random bytes, others at every start.
    pub fn new(config: EndpointConfig, seed: impl Into<Seed>) -> Result<Self, ConfigError> {
        Self::make(config, seed.into(), None)
    }

    /// An end without links that seals its frames with `key`.
    pub fn with_key(
        config: EndpointConfig,
        seed: impl Into<Seed>,
        key: Key,
    ) -> Result<Self, ConfigError> {
        Self::make(config, seed.into(), Some(key))
    }

    fn make(config: EndpointConfig, seed: Seed, key: Option<Key>) -> Result<Self, ConfigError> {
        config.check()?;
        let session = seed.session();
        if session == 0 {
            return Err(ConfigError::NoSession);
        }
        Ok(Endpoint {
            // The numbers start anywhere, so that a guess at them is one in 2³².
            sender: Sender::new(
                config.sender.clone(),
                session as u32,
                seed.random(b"flow queues").number(),
            )?,
            order: Order::new(config.sender.scheduler, &config.reorder)?,
            config,
            session,
            peer: None,
            peer_serial: 0,
            guard: key.map(|key| Guard::new(key, session, seed.random(b"handshakes"))),
            acknowledged: false,
            acknowledged_at: Instant::ZERO,
            heard_at: Instant::ZERO,
            probing: false,
            astray_since: None,
            challenges: Challenges::new(seed.random(b"challenges")),
            replies: VecDeque::new(),
            paths: Vec::new(),
            current: None,
            contexts: Contexts::default(),
            recovery: Recovery::default(),
            recovered: Vec::new(),
            missing: Vec::new(),
            spare: Vec::new(),
            stats: EndpointStats::default(),
        })
    }

    /// Adds a link whose carrier works and reaches one host only.
    pub fn add_link(&mut self, config: LinkConfig) -> Result<LinkId, ConfigError> {
        let id = self.sender.add_link(config)?;
        let path = Path::new(id);
        if id.index() == self.paths.len() {
            self.paths.push(Some(path));
        } else {
            self.paths[id.index()] = Some(path);
        }
        Ok(id)
    }

    /// Lets link `id` use the carrier of link `with`, which was added before: frames that come by
    /// it are handed in as that link's, and say themselves whose they are.
    pub fn share_carrier(&mut self, id: LinkId, with: LinkId) {
        if let Some(path) = self.path(id) {
            path.carried_by = with;
        }
    }

    /// Gives this end, which has a key, its slot on a port that several trunks share: frames to it
    /// name the slot.
    pub fn set_slot(&mut self, slot: u32) {
        if let Some(guard) = &mut self.guard {
            guard.set_slot(slot);
        }
    }

    /// Sets where the other end of a link is, or that this is to be learned. What was learned stays
    /// where the same is set again.
    pub fn set_remote(&mut self, id: LinkId, remote: Remote<A>) {
        if let Some(path) = self.path(id)
            && !path.remote.is_same_setting(&remote)
        {
            path.remote = remote;
            path.greet();
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
            self.replies.retain(|reply| reply.link != id);
            self.lose(id, now);
        }
    }

    /// Notes that the carrier of a link works again; the link is probed immediately.
    pub fn link_up(&mut self, id: LinkId) {
        if let Some(path) = self.path(id) {
            path.carrier = true;
            path.greet();
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

    /// Takes a frame that comes by the carrier of link `id` now, from the address `from`; `None`
    /// where the carrier has no usable address of it.
    pub fn handle_frame(
        &mut self,
        id: LinkId,
        from: Option<A>,
        bytes: &[u8],
        now: Instant,
    ) -> Received<A> {
        self.handle_frame_at(id, from, bytes, now, now)
    }

    /// The same with a frame that came at `at`, not after `now`, and waited for this process.
    /// Rates and delays are those of the link, so they are measured at `at`; all that is decided is
    /// decided now.
    pub fn handle_frame_at(
        &mut self,
        id: LinkId,
        from: Option<A>,
        bytes: &[u8],
        at: Instant,
        now: Instant,
    ) -> Received<A> {
        self.check_silence(now);
        if self.path(id).is_none() {
            self.stats.unknown_link += 1;
            return Received::Refused(Refusal::UnknownLink);
        }
        let is_elsewhere = match self.origin(id, from) {
            Origin::Peer => false,
            Origin::Candidate(_) => true,
            Origin::Stranger => return self.refuse(id, true, Refusal::Stranger),
        };
        let Some(guard) = &mut self.guard else {
            return match Outer::is_outer(bytes) {
                true => self.refuse(id, is_elsewhere, Refusal::Sealed),
                false => self.take_frame(id, from, Proof::Place(from), bytes, at, now),
            };
        };
        match guard.open(bytes, now) {
            Err(why) => return self.refuse(id, is_elsewhere, why),
            Ok(Opened::Reply(bytes)) => self.reply(id, from, bytes),
            // The other end takes its keys into use when a frame has proved them.
            Ok(Opened::Keys) => {
                self.paths.iter_mut().flatten().for_each(|path| path.last_report_sent = None);
            }
            Ok(Opened::Frame(seal)) => {
                let frame = guard.take_frame();
                let received = self.take_frame(id, from, Proof::Seal(seal), &frame, at, now);
                if let Some(guard) = &mut self.guard {
                    guard.give_back(frame);
                }
                return received;
            }
        }
        Received::Accepted { kind: FrameKind::Handshake, link: id, new_address: None }
    }

    /// Judges a frame that came by the carrier of link `id` from `from`, by what is known of all
    /// links of this carrier.
    fn origin(&self, id: LinkId, from: Option<A>) -> Origin<A> {
        let links = self.paths.iter().flatten().filter(|path| path.carried_by == id);
        let mut origin = Origin::Stranger;
        for path in links {
            match path.remote.origin(from) {
                Origin::Peer => return Origin::Peer,
                Origin::Candidate(address) => origin = Origin::Candidate(address),
                Origin::Stranger => {}
            }
        }
        origin
    }

    /// Takes a frame, opened if it was sealed, that came by the carrier of link `carrier`. An
    /// accepted one from a new address moves its link there.
    fn take_frame(
        &mut self,
        carrier: LinkId,
        from: Option<A>,
        proof: Proof<A>,
        bytes: &[u8],
        at: Instant,
        now: Instant,
    ) -> Received<A> {
        // What has the right seal is no stranger's, wherever it comes from.
        let is_sealed = matches!(proof, Proof::Seal(_));
        let refuse = |endpoint: &mut Endpoint<A>, why| {
            let is_candidate = matches!(endpoint.origin(carrier, from), Origin::Candidate(_));
            endpoint.refuse(carrier, is_candidate && !is_sealed, why)
        };
        let frame = match Frame::parse(bytes) {
            Ok(frame) => frame,
            Err(why) => return refuse(self, Refusal::Malformed(why)),
        };
        // Somebody on the way may lead a frame to another carrier, whose links' counters and
        // addresses it must not touch.
        let id = LinkId(frame.link());
        let Some(path) = self.path(id).filter(|path| path.carried_by == carrier) else {
            return refuse(self, Refusal::OtherLink);
        };
        let candidate = match path.remote.origin(from) {
            Origin::Peer => None,
            Origin::Candidate(address) => Some(address),
            Origin::Stranger => return self.refuse(id, true, Refusal::Stranger),
        };
        let came = Came { len: bytes.len(), at };
        match self.accept_frame(id, candidate, proof, &frame, came, now) {
            Ok((_, Some(reason))) => {
                self.is_newest(id, proof);
                Received::Dropped(reason)
            }
            Ok((kind, None)) => {
                let is_newest = self.is_newest(id, proof);
                let new_address = candidate.filter(|_| is_newest);
                if let (Some(address), Some(path)) = (new_address, self.path(id)) {
                    path.remote.move_to(address);
                    path.moves += 1;
                }
                Received::Accepted { kind, link: id, new_address }
            }
            Err(why) => self.refuse(id, candidate.is_some() && !is_sealed, why),
        }
    }

    /// Whether a sealed frame is the newest of its link: the link goes to where that came from. An
    /// older one may have been held back. Without a seal nobody can tell.
    fn is_newest(&mut self, id: LinkId, proof: Proof<A>) -> bool {
        let Proof::Seal(seal) = proof else { return true };
        let this = (seal.serial, seal.counter);
        let Some(path) = self.path(id).filter(|path| this >= path.newest) else { return false };
        path.newest = this;
        true
    }

    /// Queues a reply to a frame that came from `from`.
    fn reply(&mut self, link: LinkId, from: Option<A>, bytes: Vec<u8>) {
        let Some(path) = self.path(link).filter(|path| path.carrier) else { return };
        let to = from.or(path.remote.address());
        if self.replies.len() < REPLIES {
            self.replies.push_back(Reply { link, to, bytes });
        }
    }

    /// Takes a frame of the other end, or one that perhaps comes from the other end at the address
    /// `candidate`. A data frame can be dropped although it is of the session.
    fn accept_frame(
        &mut self,
        id: LinkId,
        candidate: Option<A>,
        proof: Proof<A>,
        frame: &Frame<'_>,
        came: Came,
        now: Instant,
    ) -> Result<(FrameKind, Option<DropReason>), Refusal> {
        if let Proof::Seal(seal) = proof {
            self.check_seal(seal, frame)?;
        } else if candidate.is_some() && !matches!(frame, Frame::Hello(_) | Frame::Report(_)) {
            // All other frames carry 8 bits of the session at most: too few for a new address.
            return Err(Refusal::Stranger);
        }
        match frame {
            Frame::Hello(hello) => {
                self.handle_hello(id, candidate, proof, hello, came, now)?;
                Ok((FrameKind::Hello, None))
            }
            Frame::Report(report) if self.peer == Some(report.control.session) => {
                let is_elsewhere = candidate.is_some() && matches!(proof, Proof::Place(_));
                self.handle_report(id, is_elsewhere, report, came, now)?;
                Ok((FrameKind::Report, None))
            }
            Frame::Request(request) if self.peer == Some(request.control.session) => {
                self.handle_request(id, request, came, now);
                Ok((FrameKind::Request, None))
            }
            Frame::Define(define)
                if self.restores() && self.peer == Some(define.control.session) =>
            {
                self.handle_define(id, define, came, now)?;
                Ok((FrameKind::Define, None))
            }
            Frame::Known(known) if self.restores() && self.peer == Some(known.control.session) => {
                self.handle_known(id, known, came, now);
                Ok((FrameKind::Known, None))
            }
            Frame::Data(data) if self.has_tag(data.repr.tag) => {
                Ok((FrameKind::Data, self.handle_data(id, data, came, now).err()))
            }
            Frame::Marker(marker) if self.has_tag(marker.tag) => {
                self.handle_marker(id, marker, came, now);
                Ok((FrameKind::Marker, None))
            }
            Frame::Parity(parity) if self.has_tag(parity.tag) => {
                Ok((FrameKind::Parity, self.handle_parity(id, parity, came, now).err()))
            }
            Frame::Challenge(challenge) if challenge.session == self.session => {
                self.handle_challenge(id, challenge.challenge);
                Ok((FrameKind::Challenge, None))
            }
            _ => Err(Refusal::UnknownSession),
        }
    }

    /// Checks that a sealed frame is of the session that its keys were made for, and that this is
    /// the other end's: its first hello says so.
    fn check_seal(&mut self, seal: Seal, frame: &Frame<'_>) -> Result<(), Refusal> {
        let named = match frame {
            Frame::Hello(hello) => Some(hello.control.session),
            Frame::Report(report) => Some(report.control.session),
            Frame::Request(request) => Some(request.control.session),
            Frame::Define(define) => Some(define.control.session),
            Frame::Known(known) => Some(known.control.session),
            _ => None,
        };
        let is_first = matches!(frame, Frame::Hello(_)) && seal.serial > self.peer_serial;
        let is_known = self.peer == Some(seal.session);
        if named.is_some_and(|named| named != seal.session) || !is_known && !is_first {
            return Err(Refusal::UnknownSession);
        }
        self.peer_serial = self.peer_serial.max(seal.serial);
        Ok(())
    }

    /// Refuses a frame, and counts it on link `id` where it came from an address that is not the
    /// other end's.
    fn refuse(&mut self, id: LinkId, is_elsewhere: bool, why: Refusal) -> Received<A> {
        match why {
            Refusal::Malformed(_) => self.stats.refused += 1,
            Refusal::UnknownSession => self.stats.unknown_session += 1,
            Refusal::Displacing => self.stats.displacing += 1,
            Refusal::OldReport | Refusal::FalseReport => self.stats.bad_reports += 1,
            Refusal::OtherLink => self.stats.other_link += 1,
            Refusal::NotSealed => self.stats.not_sealed += 1,
            Refusal::Sealed => self.stats.sealed += 1,
            Refusal::NoKeys => self.stats.no_keys += 1,
            Refusal::WrongKey => self.stats.wrong_key += 1,
            Refusal::Replayed => self.stats.replayed += 1,
            // The first is counted where it is found, the second below, the last is replied to.
            Refusal::UnknownLink | Refusal::Stranger | Refusal::UnprovenSession => {}
        }
        // The other end, too, is challenged when it starts.
        let is_challenged = why == Refusal::UnprovenSession;
        if let (true, false, Some(path)) = (is_elsewhere, is_challenged, self.path(id)) {
            path.strangers += 1;
        }
        Received::Refused(why)
    }

    /// Writes the next frame to send at `now` over `out`, and returns where to send it.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit<A>> {
        self.check_silence(now);
        if let Some(guard) = &mut self.guard {
            guard.forget_old(now);
        }
        if let Some(Reply { link, to, bytes }) = self.replies.pop_front() {
            out.clear();
            out.extend_from_slice(&bytes);
            return Some(Transmit { link, to });
        }
        for index in 0..self.paths.len() {
            if self.initiation_due(index).is_some_and(|due| due <= now) {
                let link = LinkId(index as u8);
                self.guard.as_mut()?.write_initiation(now, out);
                let path = self.path(link)?;
                path.last_initiation = Some(now);
                path.unanswered = path.unanswered.saturating_add(1);
                return Some(self.transmit(link));
            }
        }
        if !self.has_keys() {
            return None;
        }
        let transmit = self.poll_frame(now, out)?;
        if let Some(guard) = &mut self.guard {
            guard.seal(out);
        }
        Some(transmit)
    }

    /// Writes the next frame as it is before it is sealed.
    fn poll_frame(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit<A>> {
        for index in 0..self.paths.len() {
            let due = self.control_due(index);
            if due.is_some_and(|due| due <= now || self.goes_along(index, due, now)) {
                let link = LinkId(index as u8);
                let to = self.write_control(link, now, out);
                return Some(Transmit { link, to });
            }
        }
        self.probing = false;
        if !self.is_established() {
            return None;
        }
        if let Some(transmit) = self.write_request(now, out) {
            return Some(transmit);
        }
        if let Some(transmit) = self.write_context(now, out) {
            return Some(transmit);
        }
        let link = self.sender.poll_transmit(tag(self.session), now, out)?;
        let path = self.path(link)?;
        path.last_data_sent = Some(now);
        Some(self.transmit(link))
    }

    /// Whether frames can leave: there are keys, or none are needed.
    fn has_keys(&self) -> bool {
        self.guard.as_ref().is_none_or(Guard::has_keys)
    }

    /// The time at which a handshake is to be begun, or begun again, on a link.
    fn initiation_due(&self, index: usize) -> Option<Instant> {
        let guard = self.guard.as_ref()?;
        let path = self.paths[index].as_ref().filter(|path| path.carrier)?;
        if !path.remote.is_reachable() {
            return None;
        }
        let again = path.last_initiation.map(|last| last + self.probe_interval(index, path));
        Some(guard.initiation_from(self.config.silence).max(again.unwrap_or_default()))
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
        if !self.replies.is_empty() {
            return Some(Instant::ZERO);
        }
        // Without keys nothing leaves but a handshake.
        let has_keys = self.has_keys();
        let indices = 0..self.paths.len();
        let initiation = indices.clone().filter_map(|index| self.initiation_due(index));
        let control = indices.filter_map(|index| self.control_due(index)).filter(|_| has_keys);
        let silence = self.paths.iter().flatten().filter_map(|path| self.silent_at(path));
        let sends = self.is_established() && has_keys;
        let news = self.has_news_of_contexts().then_some(Instant::ZERO);
        let own = self.sender.next_deadline().into_iter().chain(self.request_due()).chain(news);
        let out = initiation.chain(control).chain(own.filter(|_| sends));
        out.chain(silence).chain(self.order.next_deadline()).min()
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
            recovered: self.recovery.recovered(),
            parity: self.sender.parity_stats(),
            handshakes: self.guard.as_ref().map_or(0, Guard::handshakes),
            compress: self.sender.compress_stats(),
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

    /// The way of a frame that leaves on a link.
    fn transmit(&self, link: LinkId) -> Transmit<A> {
        Transmit { link, to: self.remote(link) }
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
        came: Came,
        now: Instant,
    ) -> Result<(), DropReason> {
        // Eight bits of the session can be guessed. A number out of reach shows such a guess: it
        // must neither count nor be a sign of life.
        let seq = extend_seq(data.repr.seq, self.order.expected());
        if !self.order.reaches(seq) {
            return Err(self.order.refuse(DropReason::OutOfWindow));
        }
        self.astray_since = None;
        self.hear_data(id, data.repr.link_seq, came, now);
        let taken = self.take_data(id, seq, data, now);
        self.note_for_recovery(id, seq, data, now);
        taken?;
        // A recorded frame is no sign of life.
        self.heard_at = now;
        Ok(())
    }

    /// Counts a data frame or parity on link `id`, which is a sign of life.
    fn hear_data(&mut self, id: LinkId, link_seq: u16, came: Came, now: Instant) {
        if let Some(path) = self.path(id) {
            path.inbound.data(link_seq, came, now);
            path.received_since_report += 1;
            path.report_due = true;
            path.pause = Duration::ZERO;
            self.hear(id, now);
        }
    }

    /// Puts the packets of a data frame with number `seq` where they belong.
    fn take_data(
        &mut self,
        id: LinkId,
        seq: u32,
        data: &Data<'_>,
        now: Instant,
    ) -> Result<(), DropReason> {
        let mut payload = self.spare.pop().unwrap_or_default();
        let packing = self.unpack(data, &mut payload);
        let first = Packets::new(packing, &payload).next().unwrap_or_default();
        let ip = self.config.sender.ip;
        let flow = Flow::of_packet(first, ip);
        let predecessor = data.repr.predecessor;
        let hasty = matches!(predecessor, Predecessor::Back(_))
            && Packets::new(packing, &payload).all(|packet| segment::is_hasty(packet, ip));
        let (link, urgent) = (id.0, data.repr.overtakes);
        let arrival = Arrival { link, seq, predecessor, flow, urgent, hasty, packing, payload };
        self.order.push(arrival, now)
    }

    fn handle_marker(&mut self, id: LinkId, marker: &Marker, came: Came, now: Instant) {
        if let Some(path) = self.path(id) {
            path.inbound.data(marker.link_seq, came, now);
            self.hear(id, now);
            self.order.marker(id.0, marker);
        }
    }

    /// Takes a report. `is_elsewhere`: it comes from a new address, which it alone would prove.
    fn handle_report(
        &mut self,
        id: LinkId,
        is_elsewhere: bool,
        report: &Report,
        came: Came,
        now: Instant,
    ) -> Result<(), Refusal> {
        let sent = self.sent_on(id, now);
        let Some(path) = self.path(id) else { return Ok(()) };
        // A newer report has overtaken this one and said more; this one only fills its gap. A
        // recorded report has no gap, and one that somebody held back must not prove an address.
        // Totals leave it out: with it, one BBR flow over links whose delays vary the most had 3 %
        // less (90 seeds of `mixes`).
        let is_late = path.inbound.gaps.is_late(report.control.link_seq, now);
        if is_late && !is_elsewhere && path.claims.is_old(report) {
            path.inbound.gaps.arrived(report.control.link_seq, now);
            self.hear(id, now);
            return Ok(());
        }
        let checked = path.claims.check(report, sent, micros(now));
        if checked == Err(Refusal::OldReport) {
            return Err(Refusal::OldReport);
        }
        path.inbound.control(&report.control, came, now);
        path.inbound.report(report, came.at);
        path.report_due = false;
        if came.len > PROMPT_REPORT_LEN {
            // A frame of a packet train: its sender waits for what was received and when.
            path.last_report_sent = None;
        }
        // A recorded report is no sign of life.
        if self.guard.is_some() || claims::is_fresh(report, micros(now)) {
            (self.heard_at, self.acknowledged_at) = (now, now);
        }
        self.hear(id, now);
        self.note_pause(id, report.control.pause, now);
        self.follow(id);
        self.note_next_seq(id, report.control.next_seq, now);
        match checked {
            Ok(report) => self.sender.report(id, &report, micros(came.at), now),
            // Counters that cannot be true still come from an end that lives.
            Err(_) => self.stats.bad_reports += 1,
        }
        self.order.set_repair_wait(self.repair_wait(now), self.lateness());
        Ok(())
    }

    /// Totals of what was sent on a link.
    fn sent_on(&self, id: LinkId, now: Instant) -> Sent {
        let LinkStats { frames, bytes, .. } = self.sender.stats(id, now).unwrap_or_default();
        let next_number = self.sender.next_number(id).unwrap_or_default();
        Sent { next_number, frames, bytes }
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE && buffer.capacity() > 0 {
            self.spare.push(buffer);
        }
    }
}
