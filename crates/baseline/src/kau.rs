//! The aggregating qdisc over a device that holds one packet, and the plain qdisc over the same.
//!
//! Source: "Packet aggregation in Linux" (Karlstad University, 2008), chapters 3 and 4. The device
//! usually has memory for one packet; what waits, waits in the qdisc, where other packets can still
//! join it. Marked packets (`simplerr`: the two lowest bits of the mark are set) are queued by next
//! hop (`sch_aggregate`), all others in a FIFO, and the two are served in turn. When the device can
//! take a packet, the aggregator gives the queue whose oldest packet waits past its timeout, the
//! oldest of them first; else the largest queue that has `min` bytes; else nothing until the first
//! timeout. A meta packet never has more than `max` bytes; the rest stays queued. A packet that
//! leaves alone has no meta header.
//!
//! Assumed, because the thesis leaves it open:
//! * the qdisc holds 1000 packets, the transmit queue length that Linux gives to Ethernet devices;
//! * a packet too large to share a meta packet keeps its place in its queue and leaves alone;
//! * what a splitter could not take out again (no whole IP packet, a meta packet of another router)
//!   goes to the FIFO.
//!
//! Left out: `max` 0, by which the maximum comes from each packet's mark; no published figure uses
//! it.

use crate::fifo::Fifo;
use sheaf_stage::{Counters, DropReason, Duration, Instant, Stage};
use sheaf_wire::ecn::Ecn;
use sheaf_wire::ip::{Ip, Protocol};
use sheaf_wire::meta::{HOP_LIMIT_NEIGHBOUR, MAX_LEN, MIN_MAX_LEN, Outer, Repr};
use std::collections::VecDeque;

/// Mark of packets to be aggregated.
pub const AGGREGATE: u32 = 0b11;
/// Packets that the device holds.
pub const PLACES: u32 = 1;
/// Packets that a qdisc holds, assumed.
pub const LIMIT: usize = 1000;

/// Parameters of the aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes of a meta packet, header included, at most; 100..=2048.
    pub max: usize,
    /// Bytes of packets that let a queue leave before its timeout.
    pub min: usize,
    /// The longest wait of a packet while the device takes frames.
    pub timeout: Duration,
    /// Packets that wait in all queues together.
    pub limit: usize,
}

impl Default for Config {
    /// The thesis' test bed: max 1500, min 500, timeout 5 ms.
    fn default() -> Self {
        Config { max: 1500, min: 500, timeout: Duration::from_millis(5), limit: LIMIT }
    }
}

/// A packet to send.
#[derive(Clone, Debug)]
pub struct Outbound {
    /// Its next hop, by number.
    pub hop: usize,
    /// Its firewall mark; [`AGGREGATE`] lets it share frames.
    pub mark: u32,
    /// The IP packet.
    pub packet: Vec<u8>,
}

/// A frame for the device: a meta packet, or a packet as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its next hop.
    pub hop: usize,
    /// The IP packet.
    pub bytes: Vec<u8>,
    /// Number of packets that it carries.
    pub packets: u32,
}

/// The device below a qdisc: takes a frame while it has a free place.
#[derive(Clone, Copy, Debug)]
struct Device {
    places: u32,
    taken: u32,
}

impl Device {
    fn has_room(self) -> bool {
        self.taken < self.places
    }
}

/// Counters of the aggregator (`/proc/KauStat`). What took the FIFO is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets that left inside meta packets.
    pub aggregated_packets: u64,
    /// Their bytes.
    pub aggregated_bytes: u64,
    /// Meta packets.
    pub meta_packets: u64,
    /// Bytes of the meta packets, headers included.
    pub meta_bytes: u64,
    /// Packets that left alone.
    pub unaggregated_packets: u64,
    /// Their bytes.
    pub unaggregated_bytes: u64,
    /// Frames that left because the oldest packet was past its timeout.
    pub by_timeout: u64,
    /// Frames that left because the queue had `min` bytes.
    pub by_size: u64,
}

/// Packets to one next hop.
#[derive(Clone, Debug)]
struct Queue {
    outer: Outer,
    /// Arrival and bytes of each packet, the oldest first.
    packets: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
}

impl Queue {
    fn oldest(&self) -> Option<Instant> {
        self.packets.front().map(|(arrived, _)| *arrived)
    }

    /// Takes the packets of the next frame: as many as `max` bytes allow, or one.
    fn frame(&mut self, hop: usize, max: usize) -> Option<Frame> {
        let header = self.outer.header_len();
        let (mut count, mut len) = (0, header);
        for (_, packet) in &self.packets {
            if len + packet.len() > max {
                break;
            }
            (count, len) = (count + 1, len + packet.len());
        }
        if count <= 1 {
            let (_, bytes) = self.packets.pop_front()?;
            self.bytes -= bytes.len();
            return Some(Frame { hop, bytes, packets: 1 });
        }
        let repr =
            Repr { outer: self.outer, dscp: 0, ecn: Ecn::NotEct, hop_limit: HOP_LIMIT_NEIGHBOUR };
        let mut bytes = Vec::with_capacity(len);
        bytes.resize(header, 0);
        repr.emit(len, &mut bytes);
        for (_, packet) in self.packets.drain(..count) {
            bytes.extend_from_slice(&packet);
        }
        self.bytes -= len - header;
        Some(Frame { hop, bytes, packets: count as u32 })
    }
}

/// The thesis' qdisc: `simplerr` over `sch_aggregate` and a FIFO.
#[derive(Clone, Debug)]
pub struct Aggregating {
    config: Config,
    device: Device,
    queues: Vec<Queue>,
    /// Packets that are not aggregated, with their next hop.
    fifo: VecDeque<(usize, Vec<u8>)>,
    /// Whether it is the FIFO's turn.
    fifo_turn: bool,
    stats: Stats,
    counters: Counters,
}

impl Aggregating {
    /// A qdisc over an empty device. Next hop `n` splits what is sent to `hops[n]`.
    ///
    /// # Panics
    /// When `max` is not in 100..=2048.
    pub fn new(config: Config, hops: &[Outer]) -> Self {
        let max = config.max;
        assert!((MIN_MAX_LEN..=MAX_LEN).contains(&max), "max is {max}, not in 100..=2048");
        let queue = |outer: &Outer| Queue { outer: *outer, packets: VecDeque::new(), bytes: 0 };
        Aggregating {
            config,
            device: Device { places: PLACES, taken: 0 },
            queues: hops.iter().map(queue).collect(),
            fifo: VecDeque::new(),
            fifo_turn: false,
            stats: Stats::default(),
            counters: Counters::default(),
        }
    }

    /// Sets the number of frames that the device holds. Drain afterwards.
    pub fn set_places(&mut self, places: u32) {
        self.device.places = places;
    }

    /// The device is done with a frame. Drain afterwards.
    pub fn finished(&mut self) {
        self.device.taken = self.device.taken.saturating_sub(1);
    }

    /// Counters of the aggregator.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The next hop whose queue leaves at `now`, and whether by its timeout.
    fn due(&self, now: Instant) -> Option<(usize, bool)> {
        let oldest = |(hop, queue): (usize, &Queue)| queue.oldest().map(|at| (at, hop));
        let first = self.queues.iter().enumerate().filter_map(oldest).min();
        if let Some((_, hop)) = first.filter(|(at, _)| *at + self.config.timeout <= now) {
            return Some((hop, true));
        }
        let large = |queue: &Queue| !queue.packets.is_empty() && queue.bytes >= self.config.min;
        let large = self.queues.iter().enumerate().filter(|(_, queue)| large(queue));
        // Reversed, because the last of equals is the largest: the first one shall be.
        let (hop, _) = large.rev().max_by_key(|(_, queue)| queue.bytes)?;
        Some((hop, false))
    }

    fn aggregate(&mut self, now: Instant) -> Option<Frame> {
        let (hop, by_timeout) = self.due(now)?;
        let before = self.queues[hop].bytes;
        let frame = self.queues[hop].frame(hop, self.config.max)?;
        let bytes = (before - self.queues[hop].bytes) as u64;
        if frame.packets == 1 {
            self.stats.unaggregated_packets += 1;
            self.stats.unaggregated_bytes += bytes;
        } else {
            self.stats.aggregated_packets += u64::from(frame.packets);
            self.stats.aggregated_bytes += bytes;
            self.stats.meta_packets += 1;
            self.stats.meta_bytes += frame.bytes.len() as u64;
        }
        self.stats.by_timeout += u64::from(by_timeout);
        self.stats.by_size += u64::from(!by_timeout);
        Some(frame)
    }

    fn pass(&mut self) -> Option<Frame> {
        let (hop, bytes) = self.fifo.pop_front()?;
        Some(Frame { hop, bytes, packets: 1 })
    }
}

impl Stage for Aggregating {
    type In = Outbound;
    type Out = Frame;

    fn enqueue(&mut self, outbound: Outbound, now: Instant) -> Result<(), DropReason> {
        self.counters.packets_in += 1;
        let Outbound { hop, mark, mut packet } = outbound;
        if hop >= self.queues.len() {
            return Err(self.counters.refuse(DropReason::Unreachable));
        }
        if self.held() >= self.config.limit as u64 {
            return Err(self.counters.refuse(DropReason::QueueFull));
        }
        let len = Ip::parse(&packet).ok().filter(|ip| ip.protocol() != Protocol::META);
        match len.map(|ip| ip.bytes().len()) {
            Some(len) if mark & AGGREGATE == AGGREGATE => {
                packet.truncate(len);
                let queue = &mut self.queues[hop];
                queue.bytes += len;
                queue.packets.push_back((now, packet));
            }
            _ => self.fifo.push_back((hop, packet)),
        }
        Ok(())
    }

    /// The next frame, which takes a place of the device; `None` while that has none.
    fn dequeue(&mut self, now: Instant) -> Option<Frame> {
        if !self.device.has_room() {
            return None;
        }
        let frame = if self.fifo_turn {
            self.pass().or_else(|| self.aggregate(now))?
        } else {
            self.aggregate(now).or_else(|| self.pass())?
        };
        self.fifo_turn = !self.fifo_turn;
        self.device.taken += 1;
        self.counters.packets_out += u64::from(frame.packets);
        Some(frame)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let oldest = self.queues.iter().filter_map(Queue::oldest).min();
        oldest.filter(|_| self.device.has_room()).map(|oldest| oldest + self.config.timeout)
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn held(&self) -> u64 {
        let queued: usize = self.queues.iter().map(|queue| queue.packets.len()).sum();
        (queued + self.fifo.len()) as u64
    }

    fn packets(frame: &Frame) -> u64 {
        u64::from(frame.packets)
    }
}

/// The thesis' baseline: a FIFO over the same device.
#[derive(Clone, Debug)]
pub struct Plain {
    fifo: Fifo<Outbound>,
    device: Device,
}

impl Plain {
    /// A FIFO for `limit` packets over an empty device; [`LIMIT`] is usual.
    pub fn new(limit: usize) -> Self {
        Plain { fifo: Fifo::new(limit), device: Device { places: PLACES, taken: 0 } }
    }

    /// Sets the number of frames that the device holds. Drain afterwards.
    pub fn set_places(&mut self, places: u32) {
        self.device.places = places;
    }

    /// The device is done with a frame. Drain afterwards.
    pub fn finished(&mut self) {
        self.device.taken = self.device.taken.saturating_sub(1);
    }
}

impl Stage for Plain {
    type In = Outbound;
    type Out = Frame;

    fn enqueue(&mut self, outbound: Outbound, _now: Instant) -> Result<(), DropReason> {
        self.fifo.push(outbound)
    }

    /// The next frame, which takes a place of the device; `None` while that has none.
    fn dequeue(&mut self, _now: Instant) -> Option<Frame> {
        if !self.device.has_room() {
            return None;
        }
        let Outbound { hop, packet, .. } = self.fifo.pop()?;
        self.device.taken += 1;
        Some(Frame { hop, bytes: packet, packets: 1 })
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn counters(&self) -> Counters {
        self.fifo.counters()
    }

    fn held(&self) -> u64 {
        self.fifo.held()
    }
}
