//! The sender: numbers packets and deals them out to the links.
//!
//! Principle (NCTU): every packet carries a sequence number and goes to one of the links, each of
//! which has a queue. Added:
//! * The scheduler makes the choice ([`Scheduler`]).
//! * Packets wait here, paced at the rate learned of each link ([`rate`](crate::rate)), not in the
//!   links, where they could not be taken back: without a number in a queue of their flow
//!   (`flow_queues`), and numbered in the queue of a link, which is short. When a link fails or its
//!   rate changes, what waits there is dealt out again.
//! * TCP begins on the link that has the most rate where that is much farther than another
//!   (`steady`).
//! * Urgent packets (EF, CS6) go first, then those of new flows; the others take turns by flows.
//! * A link that loses much, or makes the whole worse than its best link alone (`fallback`), is
//!   left out.
//! * When the packets of a flow wait for long, single ones are dropped (`codel_gate`).
//! * Frames that the other end misses are sent again, on the link where they arrive first
//!   (`repair`). Where links have time left, parities tell what is lost (`protect`).
//! * Small packets that wait share a frame.
//! * Headers that the other end knows are left out (`compress`).

mod compress;
mod deal;
mod flow_queues;
mod join;
mod measured;
mod protect;
mod repair;
mod steady;
mod turns;

use crate::codel_gate::CodelGate;
use crate::config::{ConfigError, Scheduler, SenderConfig};
use crate::fallback::Fallback;
use crate::flow::{BUCKETS, DeliveryMode, Flow};
use crate::link::{Fill, Link, LinkConfig, LinkStats, Precedence, Queued};
use crate::schedule::State;
use crate::segment::Segment;
pub use compress::CompressStats;
use compress::Compressor;
use flow_queues::{FlowQueues, Next, Waiting};
use measured::Steady;
pub use protect::ParityStats;
use sheaf_stage::{Counters, DropReason, Duration, Instant};
use sheaf_wire::ip::Ip;
use sheaf_wire::trunk::context::Context;
use sheaf_wire::trunk::{
    HEADER_LEN, LENGTH_LEN, MAX_LINKS, Marker, Name, Packing, Predecessor, Report, Repr, push_parts,
};
use sheaf_wire::{dscp, ethernet, header};

/// A link of a trunk, by the number [`Sender::add_link`] gave; below 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u8);

impl LinkId {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Distance in numbers from which on a predecessor has surely been settled: the receiver's window
/// (`ReorderConfig::window`).
const FORGOTTEN: u32 = 4096;
/// Time after which a packet that left first has arrived or is lost, at most: the longest spread of
/// delays that is filled, and as much for its repair or what varies.
const SURELY_ARRIVED: Duration = Duration::from_millis(200);
/// Buffers kept for reuse, so that steady traffic allocates none: as many as can wait for a link.
const SPARE: usize = 4096;

/// A packet as a frame will have it.
#[derive(Clone, Copy, Debug)]
struct Body<'a> {
    /// The packet and nothing, or compressed headers and the payload.
    parts: [&'a [u8]; 2],
    packing: Packing,
}

impl Body<'_> {
    /// Bytes of a frame with nothing else.
    fn frame_len(&self) -> usize {
        let length = if self.packing == Packing::Length { LENGTH_LEN } else { 0 };
        HEADER_LEN + length + self.parts[0].len() + self.parts[1].len()
    }
}

/// The sending half of a trunk.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    links: Vec<Option<Link>>,
    state: State,
    fallback: Fallback,
    /// Packets that wait for a link to have room.
    flows: FlowQueues,
    /// No link has room for the packet whose turn it is.
    blocked: bool,
    /// For schedulers that deal out packets as they come.
    gate: CodelGate,
    next_seq: u32,
    /// The last number of each flow, acknowledgements apart, and of its acknowledgements.
    last: Vec<Option<u32>>,
    last_acknowledgement: Vec<Option<u32>>,
    /// Time at which the last packet of each flow was numbered.
    last_at: Vec<Instant>,
    /// How the packets of each flow went, which are to have one delay.
    steady: Vec<Steady>,
    /// Frames of each flow that wait for a link.
    waiting: Vec<u16>,
    /// The link that has the newest frame, alone, at the end of its queue; that of those going
    /// before others.
    newest: Option<usize>,
    newest_sparse: Option<usize>,
    /// Links that responded when last checked, as bits.
    responding: u16,
    dealing: Vec<(usize, Queued)>,
    /// The other end takes parities, and this one may send them.
    protects: bool,
    parity_stats: ParityStats,
    compressor: Compressor,
    /// Compressed headers of a packet, while it is placed.
    headers: Vec<u8>,
    spare: Vec<Vec<u8>>,
    counters: Counters,
    held: u64,
}

impl Sender {
    /// A sender without links whose first frame has number `first`. `seed`: a number that others
    /// do not know, on which it depends which flows share a queue.
    pub fn new(config: SenderConfig, first: u32, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Sender {
            flows: FlowQueues::new(config.frame, seed),
            blocked: false,
            config,
            links: Vec::new(),
            state: State::new(),
            fallback: Fallback::new(),
            gate: CodelGate::default(),
            next_seq: first,
            last: vec![None; BUCKETS],
            last_acknowledgement: vec![None; BUCKETS],
            last_at: vec![Instant::ZERO; BUCKETS],
            steady: vec![Steady::default(); BUCKETS],
            waiting: vec![0; BUCKETS],
            newest: None,
            newest_sparse: None,
            responding: 0,
            dealing: Vec::new(),
            protects: false,
            parity_stats: ParityStats::default(),
            compressor: Compressor::new(seed),
            headers: Vec::new(),
            spare: Vec::new(),
            counters: Counters::default(),
            held: 0,
        })
    }

    /// Makes a link known; it is down.
    pub fn add_link(&mut self, config: LinkConfig) -> Result<LinkId, ConfigError> {
        let link = Some(Link::new(config, self.config.first_rate));
        if let Some(free) = self.links.iter().position(Option::is_none) {
            self.links[free] = link;
            return Ok(LinkId(free as u8));
        }
        if self.links.len() == MAX_LINKS {
            return Err(ConfigError::TooManyLinks);
        }
        self.links.push(link);
        Ok(LinkId(self.links.len() as u8 - 1))
    }

    /// Forgets a link; packets that wait for it are dealt out to the others.
    pub fn remove_link(&mut self, id: LinkId, now: Instant) {
        self.set_up(id, false, now);
        if let Some(link) = self.links.get_mut(id.index()) {
            *link = None;
        }
    }

    /// Lets a link take packets, or not: then packets that wait for it are dealt out to the others.
    pub fn set_up(&mut self, id: LinkId, up: bool, now: Instant) {
        let Some(link) = self.link_mut(id).filter(|link| link.up != up) else { return };
        link.up = up;
        if up {
            link.restart();
            self.blocked = false;
        } else {
            self.send_unheard_again(id.index(), now);
            self.deal_again(now);
        }
    }

    /// Sets how full the carrier's transmit queue is: then the link is kept below the busy share
    /// instead of paced. `None`: the carrier does not report it.
    pub fn set_queue(&mut self, id: LinkId, fill: Option<Fill>) {
        if let Some(link) = self.link_mut(id) {
            link.set_carrier(fill);
            self.blocked = false;
        }
    }

    /// Begins a packet train on a link; returns its frames.
    pub(crate) fn begin_train(&mut self, id: LinkId, now: Instant) -> u8 {
        let Some(link) = self.link_mut(id).filter(|link| !link.has_queue_report()) else {
            return 0;
        };
        link.begin_train(now);
        crate::link::TRAIN
    }

    /// Whether the carrier of a link reports how full its queue is.
    pub(crate) fn has_queue_report(&self, id: LinkId) -> bool {
        let link = self.links.get(id.index()).and_then(Option::as_ref);
        link.is_some_and(Link::has_queue_report)
    }

    /// Puts a packet in the queue of its flow, or of a link, or drops it with a reason. While it
    /// waits it can still be dropped, by CoDel or for a packet of another flow; this is counted.
    ///
    /// `packet`: an IP packet (bytes after its own length are cut off) or, if so configured, an
    /// Ethernet frame.
    pub fn send(
        &mut self,
        packet: &[u8],
        flow: Flow,
        mode: DeliveryMode,
        now: Instant,
    ) -> Result<(), DropReason> {
        self.counters.packets_in += 1;
        let result = self.place(packet, flow, mode, now);
        if let Err(reason) = result {
            self.counters.drop(reason);
        }
        result
    }

    /// Writes the next frame that may leave at `now` over `out`, and returns its link.
    pub fn poll_transmit(&mut self, tag: u8, now: Instant, out: &mut Vec<u8>) -> Option<LinkId> {
        self.check_responding(now);
        self.deal_out(now);
        let ready = self.links().filter(|(_, link)| link.ready(&self.config, now));
        let Some((index, _)) = ready.min_by_key(|(_, link)| link.next_send()) else {
            return self.poll_parity(tag, now, out);
        };
        if let Some(id) = self.poll_parity_in_burst(index, tag, now, out) {
            return Some(id);
        }
        let link = self.links[index].as_mut()?;
        let (mut queued, overtakes) = link.pop(now)?;
        self.blocked = false;
        let number = link.number_data(queued.bytes.len(), now);
        let link_seq = number as u16;
        let gone = |newest: Option<usize>, queue| {
            newest.is_some_and(|at| at == index && !link.queue.has_last(queue))
        };
        if gone(self.newest, Precedence::None) {
            self.newest = None;
        }
        if gone(self.newest_sparse, Precedence::Sparse) {
            self.newest_sparse = None;
        }
        if let Some((round, deficit)) = queued.mark {
            Marker { link: index as u8, tag, link_seq, round, deficit }.emit(out);
            return Some(LinkId(index as u8));
        }
        self.left(&queued);
        let Queued { seq, predecessor, packing, packets, .. } = queued;
        let link = index as u8;
        let repr = Repr { packing, overtakes, link, tag, link_seq, predecessor, seq };
        repr.emit(&mut queued.bytes);
        self.keep(index, number, &queued, now);
        self.sum_up(index, &repr, &queued, now);
        std::mem::swap(out, &mut queued.bytes);
        self.recycle(queued.bytes);
        self.held -= u64::from(packets);
        self.counters.packets_out += u64::from(packets);
        Some(LinkId(index as u8))
    }

    /// The time at which [`Sender::poll_transmit`] may next have a frame if nothing else happens.
    pub fn next_deadline(&self) -> Option<Instant> {
        let send = self.links().filter_map(|(_, link)| link.next_send());
        let suspect = self
            .links()
            .filter(|(index, link)| !link.queue.is_empty() && self.responding & 1 << index != 0);
        let suspect = suspect.filter_map(|(_, link)| link.suspect_at());
        send.chain(suspect).chain(self.parity_due()).min()
    }

    /// Numbers a report or hello of `len` bytes that leaves on a link.
    pub fn number(&mut self, id: LinkId, len: usize) -> Option<u32> {
        Some(self.link_mut(id)?.number(len))
    }

    /// The link number of the next frame on a link.
    pub(crate) fn next_number(&self, id: LinkId) -> Option<u32> {
        Some(self.links.get(id.index())?.as_ref()?.next_number())
    }

    /// The number of the next data frame on a link: of the first that waits for it, or the next.
    pub fn next_seq(&self, id: LinkId) -> u32 {
        let link = self.links.get(id.index()).and_then(Option::as_ref);
        link.and_then(|link| link.queue.next_seq()).unwrap_or(self.next_seq)
    }

    /// Learns from a report about link `id`. `micros`: this end's clock, in µs modulo 2³².
    pub fn report(&mut self, id: LinkId, report: &Report, micros: u32, now: Instant) {
        let percent = self.config.max_loss_percent;
        self.blocked = false;
        let Some(link) = self.link_mut(id) else { return };
        let (was_lossy, report_due) = (link.lossy, link.is_report_due());
        let rate_changed = link.report(report, micros, percent, now);
        let newly_lossy = link.lossy && !was_lossy;
        if report_due && !link.is_report_due() {
            let others =
                self.links.iter_mut().enumerate().filter(|(other, _)| *other != id.index());
            others.filter_map(|(_, link)| link.as_mut()).for_each(Link::other_link_reported);
        }
        let changed = self.fallback.update(&self.links, report.late, now);
        if rate_changed || newly_lossy || changed {
            self.deal_again(now);
        }
    }

    /// The other end starts anew: it counts from zero.
    pub fn restart(&mut self) {
        self.links.iter_mut().flatten().for_each(Link::restart);
        self.fallback = Fallback::new();
    }

    /// Begins with contexts anew. `is_on`: the other end restores headers.
    pub(crate) fn restart_contexts(&mut self, is_on: bool) {
        self.compressor.restart(is_on);
    }

    /// The other end says that it has a context, or that it misses one.
    pub(crate) fn known_context(&mut self, name: Name, has: bool) {
        self.compressor.reply(name, has);
    }

    /// Whether a context is to be said.
    pub(crate) fn has_context_due(&self) -> bool {
        self.compressor.has_due()
    }

    /// The next context to be said; it counts as said.
    pub(crate) fn pop_context(&mut self) -> Option<(Name, Context)> {
        self.compressor.pop_due()
    }

    /// Packets sent with compressed headers.
    pub fn compress_stats(&self) -> CompressStats {
        self.compressor.stats()
    }

    /// State of a link; `None` when it does not exist.
    pub fn stats(&self, id: LinkId, now: Instant) -> Option<LinkStats> {
        let link = self.links.get(id.index())?.as_ref()?;
        Some(link.stats(self.usable(now) & 1 << id.0 != 0))
    }

    /// The link that carries everything while the trunk is worse than it alone.
    pub fn fallen_back_to(&self) -> Option<LinkId> {
        self.fallback.only().map(|link| LinkId(link as u8))
    }

    /// Packets in, out and dropped.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Packets that wait, a packet with copies once for each.
    pub fn held(&self) -> u64 {
        self.held
    }

    fn links(&self) -> impl Iterator<Item = (usize, &Link)> {
        self.links.iter().enumerate().filter_map(|(index, link)| Some((index, link.as_ref()?)))
    }

    fn link_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        self.links.get_mut(id.index())?.as_mut()
    }

    fn place(
        &mut self,
        packet: &[u8],
        flow: Flow,
        mode: DeliveryMode,
        now: Instant,
    ) -> Result<(), DropReason> {
        let packet = match self.config.ip {
            true => Ip::parse(packet).map_err(|_| DropReason::Malformed)?.bytes(),
            false => packet,
        };
        if packet.is_empty() {
            return Err(DropReason::Malformed);
        }
        let mut headers = std::mem::take(&mut self.headers);
        let body = match self.compressor.compress(packet, now, &mut headers) {
            Some(payload) => Body { parts: [&headers, payload], packing: Packing::Length },
            None => Body { parts: [packet, &[]], packing: self.packing(packet.len()) },
        };
        let placed = self.place_body(packet, body, flow, mode, now);
        self.headers = headers;
        placed
    }

    /// Puts a packet, which goes as `body`, where it waits.
    fn place_body(
        &mut self,
        packet: &[u8],
        body: Body<'_>,
        flow: Flow,
        mode: DeliveryMode,
        now: Instant,
    ) -> Result<(), DropReason> {
        let len = body.frame_len();
        if len > usize::from(self.config.frame) {
            return Err(DropReason::TooBig);
        }
        let urgent = !self.config.scheduler.strict() && is_urgent(packet, self.config.ip);
        let takes_turns =
            matches!(self.config.scheduler, Scheduler::Earliest | Scheduler::Redundant);
        if !urgent && takes_turns {
            return self.wait(packet, body, flow, mode, now);
        }
        let precedence = if urgent { Precedence::Urgent } else { Precedence::None };
        if mode != DeliveryMode::Copies && !urgent && self.gate_drops(now) {
            return Err(DropReason::QueueManagement);
        }
        let (segment, packing) = (Segment::Other, body.packing);
        let next = Next { len, packing, flow, mode, segment, is_new: false };
        let joined = if urgent { None } else { self.joined(&next, precedence) };
        let chosen = if joined.is_some() { 0 } else { self.choose(mode, len, precedence, now) };
        if joined.is_none() && chosen == 0 {
            let any = self.usable(now) != 0;
            return Err(if any { DropReason::QueueFull } else { DropReason::Unreachable });
        }
        let bytes = self.framed(body);
        let waiting = Waiting { bytes, packing, flow, mode, segment, at: now };
        match joined {
            Some(joined) => self.join(waiting, joined, now),
            None => self.give(waiting, precedence, chosen, now),
        }
        Ok(())
    }

    /// A frame with a packet and room for the header.
    fn framed(&mut self, body: Body<'_>) -> Vec<u8> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.resize(HEADER_LEN, 0);
        push_parts(body.packing, body.parts, &mut bytes);
        bytes
    }

    /// A copy of a frame in a spare buffer.
    fn copied(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut copied = self.spare.pop().unwrap_or_default();
        copied.clear();
        copied.extend_from_slice(bytes);
        copied
    }

    /// The rule by which a packet of this mode gets its links.
    fn scheduler(&self, mode: DeliveryMode) -> Scheduler {
        match mode {
            DeliveryMode::Copies if !self.config.scheduler.strict() => Scheduler::Redundant,
            _ => self.config.scheduler,
        }
    }

    /// The links that take a packet whose frame has `len` bytes, as bits; 0: none has room.
    fn choose(
        &mut self,
        mode: DeliveryMode,
        len: usize,
        precedence: Precedence,
        now: Instant,
    ) -> u16 {
        let scheduler = self.scheduler(mode);
        let usable = match scheduler {
            Scheduler::Redundant => self.usable_for_copies(now),
            _ => self.usable(now),
        };
        let candidates = self.candidates(usable, len, precedence, now);
        self.state.pick(scheduler, &candidates, len - HEADER_LEN)
    }

    /// Numbers a frame and puts it in the queues of the links in `chosen`, which is not 0.
    fn give(&mut self, waiting: Waiting, precedence: Precedence, chosen: u16, now: Instant) {
        let seq = self.next_seq;
        self.next_seq = seq.wrapping_add(1);
        let predecessor = self.predecessor(seq, &waiting, now);
        let Waiting { mut bytes, packing, flow, mode, .. } = waiting;
        let alone = chosen.is_power_of_two();
        let copy = self.scheduler(mode) == Scheduler::Redundant && !alone;
        let last = chosen.ilog2() as usize;
        for index in bits(chosen) {
            let bytes = match index == last {
                true => std::mem::take(&mut bytes),
                false => self.copied(&bytes),
            };
            let (packets, mark, transmissions) = (1, None, 0);
            let queued = Queued {
                seq,
                flow,
                predecessor,
                packing,
                packets,
                mark,
                precedence,
                copy,
                transmissions,
                bytes,
            };
            self.queue(index, queued);
            self.held += 1;
        }
        // A copy is not a packet that came in; it counts as one so that the balance holds.
        self.counters.packets_in += u64::from(chosen.count_ones()) - 1;
        let newest = (alone && !self.config.scheduler.strict()).then_some(last);
        match precedence {
            Precedence::Urgent => {}
            Precedence::Sparse => self.newest_sparse = newest,
            Precedence::None => self.newest = newest,
        }
        self.mark_rounds();
    }

    /// The frame that has to be handed up before number `seq`, the next one of its flow.
    fn predecessor(&mut self, seq: u32, waiting: &Waiting, now: Instant) -> Predecessor {
        let Waiting { ref bytes, flow, mode, .. } = *waiting;
        if mode == DeliveryMode::Loose {
            return Predecessor::Free;
        }
        if waiting.is_acknowledgement() {
            // It waits for what is late and never for a repair, so what is far back has arrived.
            let last = self.last_acknowledgement[flow.index()].replace(seq);
            let before = last.into_iter().chain(self.last[flow.index()]);
            let distance = before.map(|last| seq.wrapping_sub(last)).min();
            return match distance.map(Predecessor::at) {
                Some(Predecessor::Back(distance)) => Predecessor::Back(distance),
                _ => Predecessor::Free,
            };
        }
        let len = bytes.len();
        let last_at = std::mem::replace(&mut self.last_at[flow.index()], now);
        let last = self.last[flow.index()].replace(seq);
        let Some(distance) = last.map(|last| seq.wrapping_sub(last)) else {
            return Predecessor::Free;
        };
        match Predecessor::at(distance) {
            _ if distance >= FORGOTTEN => Predecessor::Free,
            Predecessor::Far if self.is_behind(flow, mode, len, now - last_at) => Predecessor::Free,
            predecessor => predecessor,
        }
    }

    /// Whether a frame of `len` bytes need not wait for the last one of its flow, which was
    /// numbered `ago`: that arrives before it, if it is not lost. Its number is too far back to be
    /// named, so to wait for it is to wait for every loss of all other flows.
    fn is_behind(&self, flow: Flow, mode: DeliveryMode, len: usize, ago: Duration) -> bool {
        if self.waiting[flow.index()] > 0 {
            return false;
        }
        // Copies arrive by the quickest link, wherever the others are.
        if mode == DeliveryMode::Copies {
            return true;
        }
        // A full packet begins a burst of TCP or QUIC, which takes disorder for a loss; a short one
        // is of a game, a question or an answer, which waiting costs more.
        if 2 * len >= usize::from(self.config.frame) {
            return ago > SURELY_ARRIVED;
        }
        let usable = self.usable_of(self.responding);
        let varied = self.among(usable).map(|(_, link)| link.varied()).max().unwrap_or_default();
        ago > (self.spread(usable) + varied).min(SURELY_ARRIVED)
    }

    /// Whether the CoDel gate drops a packet now.
    fn gate_drops(&mut self, now: Instant) -> bool {
        let usable = self.usable(now);
        let wait = self.among(usable).map(|(_, link)| link.wait()).min().unwrap_or_default();
        self.gate.drops(wait, self.config.target() + self.spread(usable), now)
    }

    /// Queues the marks that the baselines send.
    fn mark_rounds(&mut self) {
        let mark = |round, deficit| Queued {
            seq: 0,
            flow: Flow::default(),
            predecessor: Predecessor::Free,
            packing: Packing::One,
            packets: 0,
            mark: Some((round, deficit)),
            precedence: Precedence::None,
            copy: false,
            transmissions: 0,
            bytes: Vec::new(),
        };
        if let Some((round, deficits)) = self.state.srr.take_markers() {
            let links = self.links.iter_mut().zip(deficits);
            for (link, deficit) in
                links.filter_map(|(link, deficit)| Some((link.as_mut()?, deficit)))
            {
                link.queue.push(mark(round, deficit));
            }
        }
        if let Some((index, round)) = self.state.trr.take_trigger()
            && let Some(link) = &mut self.links[index]
        {
            link.queue.push(mark(round, 0));
        }
    }

    /// Puts a frame in the queue of a link.
    fn queue(&mut self, index: usize, queued: Queued) {
        if let Some(link) = &mut self.links[index] {
            let waiting = &mut self.waiting[queued.flow.index()];
            *waiting = waiting.saturating_add(1);
            link.queue.push(queued);
        }
    }

    /// Notes that a frame no longer waits.
    fn left(&mut self, queued: &Queued) {
        let waiting = &mut self.waiting[queued.flow.index()];
        *waiting = waiting.saturating_sub(1);
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE && buffer.capacity() > 0 {
            self.spare.push(buffer);
        }
    }
}

/// Whether a packet goes before others: expedited forwarding (RFC 3246), which telephones use, and
/// network control (CS6, RFC 4594).
fn is_urgent(packet: &[u8], ip: bool) -> bool {
    let packet = if ip { packet } else { packet.get(ethernet::HEADER_LEN..).unwrap_or_default() };
    // This is asked of every packet, so the rest of the header is not checked.
    let class = header::traffic_class(packet);
    class.is_some_and(|class| matches!(class >> 2, dscp::EF | dscp::CS6))
}

fn bits(set: u16) -> impl Iterator<Item = usize> {
    (0..MAX_LINKS).filter(move |index| set & 1 << index != 0)
}
