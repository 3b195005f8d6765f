//! The aggregator: gathers packets per next hop and class, and decides which queue leaves.
//!
//! Principle (KAU, chapter 3, `sch_aggregate`): under [`Policy::Forced`] a queue whose oldest
//! packet is past its timeout goes first, the oldest of them; else the largest that has `min`
//! bytes; else nothing until the earliest deadline. Under [`Policy::Busy`] waiting is never
//! bought with delay: packets gather only while the device is busy with earlier frames, when they
//! would wait in its queue anyway, and the queue that waited longest leaves as soon as the device
//! can take a frame. No packet waits longer than `hold`.

use crate::backoff::{Backoff, Finished};
use crate::classify::{FlowBits, Verdict};
use crate::config::{Config, ConfigError, Policy};
use crate::queue::{Arrival, Key, Label, Layout, Left, Queue};
use crate::stats::{Cause, Stats};
use crate::streams::Streams;
use sheaf_stage::{Counters, DropReason, IndexedHeap, Instant, Stage};
use sheaf_wire::aggfrag::{self, ETHERNET_HEADER, Payload};
use sheaf_wire::batman;
use sheaf_wire::checksum;
use sheaf_wire::compress::Definition;
use sheaf_wire::compress::feedback::Feedback;
use sheaf_wire::ecn::Ecn;
use sheaf_wire::ethernet;
use sheaf_wire::group;
use sheaf_wire::ip::{Ip, Protocol};
use sheaf_wire::meta::{HOP_LIMIT_FAR, HOP_LIMIT_NEIGHBOUR, MAX_LEN, Outer, Repr};
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

/// A next hop (hop-to-hop) or a far end (end-to-end), by the number [`Aggregator::add_hop`] gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HopId(pub u32);

/// Wire formats of frames to a next hop, the richest last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// Meta packets ([`sheaf_wire::meta`]).
    #[default]
    Meta,
    /// Frames of format 2 ([`sheaf_wire::aggfrag`]).
    Frames,
    /// The same, with compressed headers ([`sheaf_wire::compress`]).
    Compressed,
}

impl Format {
    /// Its name, as settings and reports have it.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Meta => "meta",
            Format::Frames => "frames",
            Format::Compressed => "compressed",
        }
    }
}

/// Destination of meta packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Outer addresses.
    pub outer: Outer,
    /// Largest meta packet for this hop in bytes; `None` for the configured one, 0 when this hop
    /// cannot split: its packets pass as they are.
    pub max: Option<u16>,
    /// Outer hop limit: [`HOP_LIMIT_NEIGHBOUR`], or [`HOP_LIMIT_FAR`] behind routers.
    pub hop_limit: u8,
    /// Format of what is sent there.
    pub format: Format,
    /// Whether its frames of format 2 may have Ethernet payloads of other protocols than IP.
    pub payloads: bool,
}

impl Hop {
    /// A neighbour, with the configured largest meta packet and [`Format::Meta`].
    pub fn neighbour(outer: Outer) -> Hop {
        Hop {
            outer,
            max: None,
            hop_limit: HOP_LIMIT_NEIGHBOUR,
            format: Format::Meta,
            payloads: false,
        }
    }

    /// The group that `outer` has as its destination; see [`sheaf_wire::group`]. Of the packets to
    /// it those of UDP share frames, which all who hear them have to take apart.
    pub fn group(outer: Outer) -> Hop {
        Hop { format: Format::Frames, ..Hop::neighbour(outer) }
    }

    /// A far end behind routers, with the configured largest meta packet and [`Format::Meta`].
    pub fn far(outer: Outer) -> Hop {
        Hop { hop_limit: HOP_LIMIT_FAR, ..Hop::neighbour(outer) }
    }
}

/// A packet on its way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outbound {
    /// Its next hop.
    pub hop: HopId,
    /// Its firewall mark.
    pub mark: u32,
    /// The IP packet; link padding is cut off.
    pub packet: Vec<u8>,
}

/// A frame of batman-adv on its way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshFrame {
    /// Its next hop, a neighbour.
    pub hop: HopId,
    /// Its firewall mark.
    pub mark: u32,
    /// Its priority by IEEE 802.1D, 0..=7; frames of different ones do not wait for each other.
    pub priority: u8,
    /// Bytes behind the Ethernet header.
    pub bytes: Vec<u8>,
}

/// A frame to send: a meta packet, a frame of format 2, or a single packet as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its next hop.
    pub hop: HopId,
    /// EtherType of its bytes.
    pub ethertype: u16,
    /// The IP packet, or the mesh frame.
    pub bytes: Vec<u8>,
    /// Number of packets that it carries.
    pub packets: u32,
    /// Arrival of the oldest of them.
    pub oldest: Instant,
}

/// The device's report of its own queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// None: the device is taken to be always ready, so `busy` gathers nothing.
    Silent,
    /// Its fill.
    Reports {
        /// Frames that it has and has not finished with, the one on the air included.
        waiting: u32,
        /// Frames that it can have.
        limit: u32,
    },
}

/// A next hop, and what was sent there.
#[derive(Debug)]
struct Known {
    hop: Hop,
    stats: Stats,
    streams: Streams,
}

/// Way in which a packet travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// As it is.
    Packet,
    /// As an Ethernet payload.
    Payload,
    /// With compressed headers, or defining these.
    Compressed,
}

/// Content of a frame that was sent.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    packets: u32,
    bytes: u32,
}

/// The aggregating stage.
#[derive(Debug)]
pub struct Aggregator {
    config: Config,
    device: Device,
    backoff: Backoff,
    /// The frame that was handed over last.
    last: Sent,
    hops: Vec<Known>,
    slots: Vec<(Key, Queue)>,
    free: Vec<u32>,
    index: HashMap<Key, u32>,
    by_age: IndexedHeap<Instant>,
    by_size: IndexedHeap<Reverse<u32>>,
    /// Queues whose first frame is full, by age.
    full: IndexedHeap<Instant>,
    /// Frames that leave immediately, before all that wait.
    passing: VecDeque<Frame>,
    spare: Vec<Vec<u8>>,
    /// The block of the packet in hand.
    block: Vec<u8>,
    frames: usize,
    counters: Counters,
}

impl Aggregator {
    /// An aggregator without next hops; its device is [`Device::Silent`].
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Aggregator {
            config,
            device: Device::Silent,
            backoff: Backoff::default(),
            last: Sent::default(),
            hops: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            index: HashMap::new(),
            by_age: IndexedHeap::default(),
            by_size: IndexedHeap::default(),
            full: IndexedHeap::default(),
            passing: VecDeque::new(),
            spare: Vec::new(),
            block: Vec::new(),
            frames: 0,
            counters: Counters::default(),
        })
    }

    /// Goes by `config` from now on; packets that wait keep their frames. Drain afterwards.
    pub fn change(&mut self, config: Config) -> Result<(), ConfigError> {
        config.check()?;
        self.config = config;
        // The orders by size depend on `min` and `max`. Slots without an entry are free.
        for slot in 0..self.slots.len() as u32 {
            if self.index.get(&self.slots[slot as usize].0) == Some(&slot) {
                self.settle(slot);
            }
        }
        Ok(())
    }

    /// Makes a next hop known.
    pub fn add_hop(&mut self, hop: Hop) -> HopId {
        self.hops.push(Known { hop, stats: Stats::default(), streams: Streams::default() });
        HopId(self.hops.len() as u32 - 1)
    }

    /// Changes a next hop; packets that wait for it keep the frames they are in.
    ///
    /// # Panics
    /// If `id` is not from [`Aggregator::add_hop`], or the outer header gets another length.
    pub fn set_hop(&mut self, id: HopId, hop: Hop) {
        let old = &mut self.hops[id.0 as usize].hop;
        assert_eq!(old.outer.header_len(), hop.outer.header_len(), "a hop keeps its family");
        *old = hop;
    }

    /// Takes note of what a next hop said at `now` about the contexts of packets sent there. The
    /// caller has made sure that the next hop said it.
    ///
    /// # Panics
    /// If `id` is not from [`Aggregator::add_hop`].
    pub fn said(&mut self, id: HopId, feedback: &Feedback, now: Instant) {
        self.hops[id.0 as usize].streams.said(feedback, now);
    }

    /// Sets how full the device is at `now`. Drain afterwards.
    pub fn set_device(&mut self, device: Device, now: Instant) {
        if device.waiting() < self.device.waiting() {
            let frame = Finished::single(self.last.packets, self.last.bytes);
            self.backoff.finished(&self.config, frame, now);
        }
        self.device = device;
    }

    /// Fill of the device: its last report, and the frames handed over since.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Counters of one next hop.
    pub fn stats(&self, id: HopId) -> Stats {
        self.hops[id.0 as usize].stats
    }

    /// Counters of all next hops together.
    pub fn total(&self) -> Stats {
        self.hops.iter().fold(Stats::default(), |mut sum, known| {
            sum.add(&known.stats);
            sum
        })
    }

    /// Frames that wait.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Takes back a buffer, so that steady traffic needs no new ones.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < self.config.total_frames {
            self.spare.push(buffer);
        }
    }

    /// An empty buffer, used before where there is one.
    pub fn buffer(&mut self) -> Vec<u8> {
        buffer(&mut self.spare)
    }

    /// Gathers a frame of batman-adv or lets it pass. Its class and flow are those of the packet of
    /// UDP or TCP in it. One for an unknown hop is dropped as malformed.
    pub fn enqueue_mesh(&mut self, frame: MeshFrame, now: Instant) -> Result<(), DropReason> {
        let MeshFrame { hop, mark, priority, bytes } = frame;
        self.counters.packets_in += 1;
        let Some(Known { hop: Hop { payloads, .. }, .. }) = self.hops.get(hop.0 as usize) else {
            self.recycle(bytes);
            return Err(self.counters.refuse(DropReason::Malformed));
        };
        // As DSCP, the priority is a class selector (RFC 2474, section 4.2.2).
        let key = Key { hop: hop.0, dscp: priority << 3, ecn: Ecn::NotEct };
        let fits = self.fits(hop, Form::Payload, ETHERNET_HEADER + bytes.len(), mark);
        let inner = batman::inner(&bytes);
        let verdict = inner.map(|inner| self.config.rules.classify(&inner, mark));
        let flow = FlowBits::of_mesh(inner.as_ref());
        let gathers = *payloads && fits && verdict == Some(Verdict::Gather);
        if gathers && let Some(layout) = self.tagged(hop, key, now) {
            self.block.clear();
            self.block.extend(Payload::header(ethernet::BATMAN, bytes.len()));
            self.block.extend_from_slice(&bytes);
            let label = Label { flow, mark };
            self.join(hop, bytes, key, (layout, Form::Payload), label, now);
            return Ok(());
        }
        self.pass(hop, bytes, ethernet::BATMAN, (key, flow), now);
        Ok(())
    }

    /// Lets a packet pass. Held packets of its flow leave first, and with them the frames before
    /// these.
    fn pass(
        &mut self,
        hop: HopId,
        bytes: Vec<u8>,
        ethertype: u16,
        (key, flow): (Key, FlowBits),
        now: Instant,
    ) {
        let slot = self.index.get(&key).copied();
        if let Some(slot) = slot.filter(|slot| self.slots[*slot as usize].1.holds(flow)) {
            while self.slots[slot as usize].1.frames() > 0 {
                self.let_go(slot, Cause::Ready);
            }
            self.settle(slot);
        }
        self.passing.push_back(Frame { hop, ethertype, bytes, packets: 1, oldest: now });
    }

    /// Puts a packet in its queue. Without a header of IP there are frames of streams only: a
    /// packet of a class for which no tag is left passes.
    fn gather(&mut self, hop: HopId, mut packet: Vec<u8>, key: Key, label: Label, now: Instant) {
        let link = self.hops[hop.0 as usize].hop.outer.is_link();
        if link && self.tagged(hop, key, now).is_none() {
            let ethertype = ethernet::of_ip(&packet);
            self.pass(hop, packet, ethertype, (key, label.flow), now);
            return;
        }
        checksum::finish(&mut packet);
        let laid_out = self.lay_out(hop, &packet, key, now);
        self.join(hop, packet, key, laid_out, label, now);
    }

    /// Puts a packet, or the block that stands for it, in its queue. Over the bound, the queue's
    /// oldest frame leaves.
    fn join(
        &mut self,
        hop: HopId,
        packet: Vec<u8>,
        key: Key,
        (layout, form): (Layout, Form),
        label: Label,
        now: Instant,
    ) {
        let (header, max) = (self.header_len(hop), self.largest(hop, label.mark));
        let slot = self.slot(key);
        let queue = &mut self.slots[slot as usize].1;
        let block = if form == Form::Packet { &packet } else { &self.block };
        let plain = form != Form::Compressed;
        let arrival = Arrival { block, plain, len: packet.len(), label, now };
        let begun = queue.push(arrival, (layout, header), max, || buffer(&mut self.spare));
        self.frames += begun;
        if let Layout::Frame { tag } = layout {
            self.hops[hop.0 as usize].streams.begun(tag, begun);
        }
        if queue.frames() > self.config.queue_frames || self.frames > self.config.total_frames {
            let full = queue.has_full_frame(max) || self.config.policy == Policy::Forced;
            self.let_go(slot, if full { Cause::Size } else { Cause::Ready });
            self.hops[hop.0 as usize].stats.over_bound += 1;
        }
        self.settle(slot);
        self.recycle(packet);
    }

    /// The layout of a frame of format 2 for the stream of this queue; `None` where there are more
    /// streams than tags.
    fn tagged(&mut self, hop: HopId, key: Key, now: Instant) -> Option<Layout> {
        let Known { hop, streams, .. } = &mut self.hops[hop.0 as usize];
        if hop.format == Format::Meta {
            return None;
        }
        if hop.outer.is_to_group() {
            return Some(Layout::Group);
        }
        let tag = streams.tag(key.dscp, key.ecn, self.config.hold, now)?;
        Some(Layout::Frame { tag })
    }

    /// Packs a packet for its stream. Unless it travels as it is, its block is in `self.block`.
    fn lay_out(&mut self, hop: HopId, packet: &[u8], key: Key, now: Instant) -> (Layout, Form) {
        let Some(layout) = self.tagged(hop, key, now) else { return (Layout::Meta, Form::Packet) };
        let Known { hop, streams, .. } = &mut self.hops[hop.0 as usize];
        let form = match (hop.format, layout) {
            (Format::Compressed, Layout::Frame { tag })
                if !streams.compress(tag, packet, now, &mut self.block) =>
            {
                Form::Compressed
            }
            _ => Form::Packet,
        };
        (layout, form)
    }

    /// Takes the oldest frame of queue `slot`, which has one. Settle the queue afterwards.
    fn take(&mut self, slot: u32, cause: Cause) -> Frame {
        let (key, queue) = &mut self.slots[slot as usize];
        let Known { hop: Hop { outer, hop_limit, .. }, stats, streams } =
            &mut self.hops[key.hop as usize];
        let repr = Repr { outer: *outer, dscp: key.dscp, ecn: key.ecn, hop_limit: *hop_limit };
        let left = queue.pop(&repr, |tag| streams.next_sequence(tag));
        let Left { ethertype, bytes, packets, payload, alone, oldest } =
            left.expect("a queue that leaves has a frame");
        stats.count(packets, u64::from(payload), (!alone).then_some(bytes.len() as u64), cause);
        self.frames -= 1;
        Frame { hop: HopId(key.hop), ethertype, bytes, packets, oldest }
    }

    /// Lets the oldest frame of queue `slot` go to the device, busy or not, which then decides what
    /// becomes of it. Settle the queue afterwards.
    fn let_go(&mut self, slot: u32, cause: Cause) {
        let frame = self.take(slot, cause);
        self.passing.push_back(frame);
    }

    /// The slot of a queue, taken into use where it has none.
    fn slot(&mut self, key: Key) -> u32 {
        if let Some(slot) = self.index.get(&key) {
            return *slot;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((key, Queue::default()));
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize].0 = key;
        self.index.insert(key, slot);
        slot
    }

    /// Brings the orders in line with a queue that changed; an empty queue gives its slot back.
    fn settle(&mut self, slot: u32) {
        let (key, queue) = &self.slots[slot as usize];
        let (oldest, bytes, key) = (queue.oldest(), queue.bytes, *key);
        // A queue goes by its last packet's mark.
        let max = self.largest(HopId(key.hop), queue.mark);
        let min = self.config.least(max);
        self.by_age.set(slot, oldest);
        self.full.set(slot, oldest.filter(|_| queue.has_full_frame(max)));
        self.by_size.set(slot, (oldest.is_some() && bytes >= min).then_some(Reverse(bytes)));
        if oldest.is_none() {
            self.index.remove(&key);
            self.free.push(slot);
        }
    }

    /// The queue that leaves at `now`, and why.
    fn choose(&self, now: Instant) -> Option<(u32, Cause)> {
        let (oldest, slot) = self.by_age.first()?;
        let waited = now - oldest;
        match (self.config.policy, self.device) {
            _ if waited >= self.config.hold => Some((slot, Cause::Timeout)),
            (Policy::Forced, device) if device.takes_frames() => {
                if waited >= self.config.timeout {
                    Some((slot, Cause::Timeout))
                } else {
                    self.by_size.first().map(|(_, slot)| (slot, Cause::Size))
                }
            }
            (Policy::Busy, device) if device.waiting() < self.config.inflight => {
                if now >= self.backoff.until() {
                    Some((slot, Cause::Ready))
                } else {
                    self.full.first().map(|(_, slot)| (slot, Cause::Size))
                }
            }
            _ => None,
        }
    }

    fn max(&self, hop: HopId) -> u16 {
        self.hops[hop.0 as usize].hop.max.unwrap_or(self.config.max).min(self.config.max)
    }

    /// The largest frame to this hop that a packet with `mark` may be in.
    fn largest(&self, hop: HopId, mark: u32) -> u16 {
        self.config.largest(self.max(hop), mark)
    }

    /// Whether `len` bytes of this form, with `mark`, can share a frame to this hop.
    fn fits(&self, hop: HopId, form: Form, len: usize, mark: u32) -> bool {
        let format = match (self.hops[hop.0 as usize].hop.format, form) {
            (Format::Meta, _) => 0,
            // A payload is never compressed, so nothing of it is defined.
            (Format::Frames, _) | (Format::Compressed, Form::Payload) => aggfrag::HEADER_LEN,
            (Format::Compressed, _) => aggfrag::HEADER_LEN + Definition::HEADER,
        };
        self.header_len(hop) + format + len <= usize::from(self.largest(hop, mark))
    }

    fn header_len(&self, hop: HopId) -> usize {
        self.hops[hop.0 as usize].hop.outer.header_len()
    }

    /// Counts a frame that goes to the device.
    fn hand_over(&mut self, frame: Frame, now: Instant) -> Frame {
        if self.device.waiting() == 0 {
            self.backoff.began(now);
        }
        self.last = Sent { packets: frame.packets, bytes: frame.bytes.len() as u32 };
        self.counters.packets_out += u64::from(frame.packets);
        if let Device::Reports { waiting, .. } = &mut self.device {
            *waiting = waiting.saturating_add(1);
        }
        frame
    }
}

/// Whether a packet may travel in frames to the group that `outer` has as its destination.
fn may_share(packet: &Ip<'_>, outer: Outer) -> bool {
    packet.protocol() == Protocol::UDP
        && packet.destination() == outer.destination()
        && group::may_share(packet.destination())
}

/// An empty buffer, a spare one where there is one.
fn buffer(spare: &mut Vec<Vec<u8>>) -> Vec<u8> {
    let mut buffer = spare.pop().unwrap_or_else(|| Vec::with_capacity(MAX_LEN));
    buffer.clear();
    buffer
}

impl Device {
    /// Whether it has room (a silent one is taken to have).
    fn takes_frames(self) -> bool {
        match self {
            Device::Silent => true,
            Device::Reports { waiting, limit } => waiting < limit,
        }
    }

    fn waiting(self) -> u32 {
        match self {
            Device::Silent => 0,
            Device::Reports { waiting, .. } => waiting,
        }
    }
}

impl Stage for Aggregator {
    type In = Outbound;
    type Out = Frame;

    /// Gathers a packet or lets it pass. One for an unknown hop is dropped as malformed.
    fn enqueue(
        &mut self,
        Outbound { hop, mark, mut packet }: Outbound,
        now: Instant,
    ) -> Result<(), DropReason> {
        self.counters.packets_in += 1;
        let Some(view) = Ip::parse(&packet).ok().filter(|_| (hop.0 as usize) < self.hops.len())
        else {
            self.recycle(packet);
            return Err(self.counters.refuse(DropReason::Malformed));
        };
        let len = view.bytes().len();
        let key = Key { hop: hop.0, dscp: view.dscp(), ecn: view.ecn().outer() };
        let fits = self.fits(hop, Form::Packet, len, mark);
        let outer = self.hops[hop.0 as usize].hop.outer;
        let verdict = match self.config.rules.classify(&view, mark) {
            _ if outer.is_to_group() && !may_share(&view, outer) => Verdict::Pass,
            Verdict::Gather if !fits => Verdict::Alone,
            verdict => verdict,
        };
        let flow = FlowBits::of(&view);
        packet.truncate(len);
        if verdict == Verdict::Gather {
            self.gather(hop, packet, key, Label { flow, mark }, now);
            return Ok(());
        }
        let ethertype = ethernet::of_ip(&packet);
        self.pass(hop, packet, ethertype, (key, flow), now);
        Ok(())
    }

    fn dequeue(&mut self, now: Instant) -> Option<Frame> {
        let frame = self.passing.pop_front().or_else(|| {
            let (slot, cause) = self.choose(now)?;
            let frame = self.take(slot, cause);
            self.settle(slot);
            Some(frame)
        })?;
        Some(self.hand_over(frame, now))
    }

    fn next_deadline(&self) -> Option<Instant> {
        let (oldest, _) = self.by_age.first()?;
        let ceiling = oldest + self.config.hold;
        match self.config.policy {
            Policy::Forced if self.device.takes_frames() => Some(oldest + self.config.timeout),
            Policy::Busy if self.device.waiting() < self.config.inflight => {
                Some(ceiling.min(self.backoff.until()))
            }
            Policy::Forced | Policy::Busy => Some(ceiling),
        }
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn held(&self) -> u64 {
        let gathered: u64 = self.slots.iter().map(|(_, queue)| u64::from(queue.packets)).sum();
        let passing: u64 = self.passing.iter().map(|frame| u64::from(frame.packets)).sum();
        gathered + passing
    }

    fn packets(out: &Frame) -> u64 {
        u64::from(out.packets)
    }
}
