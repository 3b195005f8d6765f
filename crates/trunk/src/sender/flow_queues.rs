//! Packets that wait for the links, in a queue for each flow.
//!
//! Principle: FQ-CoDel (RFC 8290): flows take turns by bytes (deficit round robin), one that comes
//! anew goes before those that have a queue of their own making, and each queue has its own CoDel
//! ([`CodelGate`]). So a flow waits for its own packets and for one turn of the others, and is told
//! of its own queue alone.
//!
//! Packets wait here without a number. So the order of turns is the order of numbers, and the
//! receiver waits for none that CoDel drops.
//!
//! Bounds: [`QUEUES`] queues however many flows there are, and one pool of places for all. Which
//! flows share a queue depends on a seed, so that others cannot choose flows that share one with a
//! third.

use crate::codel_gate::CodelGate;
use crate::flow::{DeliveryMode, Flow};
use crate::segment::Segment;
use sheaf_stage::{Duration, Instant};
use sheaf_wire::ethernet;
use sheaf_wire::flow::{FiveTuple, fold};
use sheaf_wire::ip::Ip;
use sheaf_wire::trunk::Packing;
use std::collections::VecDeque;

/// Queues (RFC 8290, section 4.1.2).
pub(crate) const QUEUES: usize = 1024;

/// A packet that waits, as a frame will have it.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    /// Room for the header, then the packet.
    pub bytes: Vec<u8>,
    pub packing: Packing,
    pub flow: Flow,
    pub mode: DeliveryMode,
    pub segment: Segment,
    /// Time at which it came.
    pub at: Instant,
}

impl Waiting {
    /// Whether it is an acknowledgement of TCP alone, for which data does not wait (see
    /// [`is_hasty`](crate::segment::is_hasty)).
    pub fn is_acknowledgement(&self) -> bool {
        self.segment == Segment::Acknowledgement && self.mode == DeliveryMode::Order
    }
}

/// The packet whose turn it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next {
    /// Bytes of its frame so far.
    pub len: usize,
    pub packing: Packing,
    pub flow: Flow,
    pub mode: DeliveryMode,
    pub segment: Segment,
    /// Its flow has no queue of its own making.
    pub is_new: bool,
}

/// A place of the pool: a packet, and the place of the next one of its queue.
#[derive(Clone, Debug)]
struct Place {
    waiting: Option<Waiting>,
    next: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum List {
    /// In neither.
    #[default]
    Idle,
    New,
    Old,
}

#[derive(Clone, Debug, Default)]
struct Queue {
    first: Option<u32>,
    last: u32,
    list: List,
    /// Bytes that the flow may send before the next has its turn.
    credit: i64,
    gate: CodelGate,
}

/// The queues of all flows.
#[derive(Debug)]
pub(crate) struct FlowQueues {
    /// Bytes of a turn.
    quantum: i64,
    seed: u64,
    queues: Vec<Queue>,
    /// Bytes of each queue, apart from it: the longest is looked for in them.
    lengths: Vec<u32>,
    new: VecDeque<u16>,
    old: VecDeque<u16>,
    places: Vec<Place>,
    free: Vec<u32>,
    bytes: u64,
    packets: usize,
}

impl FlowQueues {
    /// Empty queues. `quantum`: bytes of a turn, those of a full frame. `seed`: a number that
    /// others do not know.
    pub fn new(quantum: u16, seed: u64) -> FlowQueues {
        FlowQueues {
            quantum: i64::from(quantum),
            seed,
            queues: vec![Queue::default(); QUEUES],
            lengths: vec![0; QUEUES],
            new: VecDeque::with_capacity(QUEUES),
            old: VecDeque::with_capacity(QUEUES),
            places: Vec::new(),
            free: Vec::new(),
            bytes: 0,
            packets: 0,
        }
    }

    /// The queue of an IP packet, or (`ip` false) of an Ethernet frame.
    pub fn queue_of(&self, packet: &[u8], ip: bool) -> usize {
        let (seed, packet) = match packet.split_at_checked(ethernet::HEADER_LEN).filter(|_| !ip) {
            Some((header, rest)) => (fold(self.seed, header), rest),
            None => (self.seed, packet),
        };
        let view = Ip::parse(packet);
        let hash = view.map_or(seed, |view| FiveTuple::of(&view).hash(seed));
        hash as usize % QUEUES
    }

    /// Packets that wait.
    pub fn len(&self) -> usize {
        self.packets
    }

    /// Whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Puts a packet at the end of a queue; returns whether its flow is a new one, whose turn comes
    /// before that of others.
    pub fn push(&mut self, index: usize, waiting: Waiting) -> bool {
        let len = waiting.bytes.len();
        let place = Place { waiting: Some(waiting), next: None };
        let at = match self.free.pop() {
            Some(free) => {
                self.places[free as usize] = place;
                free
            }
            None => {
                self.places.push(place);
                self.places.len() as u32 - 1
            }
        };
        let queue = &mut self.queues[index];
        match queue.first {
            Some(_) => self.places[queue.last as usize].next = Some(at),
            None => queue.first = Some(at),
        }
        queue.last = at;
        self.lengths[index] += len as u32;
        self.bytes += len as u64;
        self.packets += 1;
        let is_new = queue.list == List::Idle;
        if is_new {
            (queue.list, queue.credit) = (List::New, self.quantum);
            self.new.push_back(index as u16);
        }
        is_new
    }

    /// The packet whose turn it is (RFC 8290, section 4.2).
    pub fn next(&mut self) -> Option<Next> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let index = *list.front()?;
            let queue = &mut self.queues[usize::from(index)];
            if queue.credit > 0
                && let Some(first) = queue.first
                && let Some(waiting) = &self.places[first as usize].waiting
            {
                let Waiting { ref bytes, packing, flow, mode, segment, .. } = *waiting;
                return Some(Next { len: bytes.len(), packing, flow, mode, segment, is_new });
            }
            list.pop_front();
            // A flow that sends little and is new each time would keep the others from their turn.
            let stays = queue.first.is_some() || is_new && !self.old.is_empty();
            queue.list = if stays { List::Old } else { List::Idle };
            if queue.credit <= 0 {
                queue.credit += self.quantum;
            }
            if stays {
                self.old.push_back(index);
            }
        }
    }

    /// Removes the packet whose turn it is; `Err`: CoDel drops it. `target`: time for which packets
    /// may wait here.
    pub fn pop(&mut self, target: Duration, now: Instant) -> Option<Result<Waiting, Waiting>> {
        self.next()?;
        let index = usize::from(*self.new.front().or(self.old.front())?);
        let is_last = i64::from(self.lengths[index]) <= self.quantum;
        let waiting = self.take_first(index)?;
        let queue = &mut self.queues[index];
        // What is no more than a frame is no queue (RFC 8289, section 4.4).
        let wait = if is_last { Duration::ZERO } else { now - waiting.at };
        if queue.gate.drops(wait, target, now) {
            return Some(Err(waiting));
        }
        queue.credit -= waiting.bytes.len() as i64;
        Some(Ok(waiting))
    }

    /// The queue that has the most bytes.
    pub fn longest(&self) -> usize {
        let longest = self.lengths.iter().enumerate().max_by_key(|(_, length)| **length);
        longest.map_or(0, |(index, _)| index)
    }

    /// Removes the oldest packet of the longest queue (RFC 8290, section 4.1).
    pub fn drop_longest(&mut self) -> Option<Waiting> {
        self.take_first(self.longest())
    }

    /// Removes some packet.
    pub fn take_any(&mut self) -> Option<Waiting> {
        let index = self.lengths.iter().position(|length| *length > 0)?;
        self.take_first(index)
    }

    /// Removes the first packet of a queue, which keeps its turn.
    fn take_first(&mut self, index: usize) -> Option<Waiting> {
        let queue = &mut self.queues[index];
        let first = queue.first?;
        let place = &mut self.places[first as usize];
        queue.first = place.next.take();
        let waiting = place.waiting.take()?;
        self.free.push(first);
        self.lengths[index] -= waiting.bytes.len() as u32;
        self.bytes -= waiting.bytes.len() as u64;
        self.packets -= 1;
        Some(waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUANTUM: u16 = 1_500;
    const TARGET: Duration = Duration::from_millis(25);

    fn waiting(flow: usize, len: usize, ms: u64) -> Waiting {
        Waiting {
            bytes: vec![flow as u8; len],
            packing: Packing::One,
            flow: Flow::of_hash(flow as u64),
            mode: DeliveryMode::Order,
            segment: Segment::Other,
            at: Instant::from_millis(ms),
        }
    }

    fn queues() -> FlowQueues {
        FlowQueues::new(QUANTUM, 1)
    }

    fn push_many(queues: &mut FlowQueues, count: usize, waiting: Waiting) {
        for _ in 0..count {
            queues.push(usize::from(waiting.bytes[0]), waiting.clone());
        }
    }

    /// The flows of the packets that leave now, until none waits.
    fn order(queues: &mut FlowQueues, ms: u64) -> Vec<u8> {
        let mut order = Vec::new();
        while let Some(popped) = queues.pop(TARGET, Instant::from_millis(ms)) {
            order.extend(popped.ok().map(|waiting| waiting.bytes[0]));
        }
        order
    }

    #[test]
    fn flows_take_turns_by_their_bytes_and_a_new_one_goes_first() {
        let mut queues = queues();
        push_many(&mut queues, 4, waiting(1, 1_500, 0));
        push_many(&mut queues, 12, waiting(2, 500, 0));
        // The first turn of each is that of a new flow.
        let first: Vec<_> =
            (0..4).map(|_| queues.pop(TARGET, Instant::ZERO).unwrap().unwrap().bytes[0]).collect();
        assert_eq!(first, [1, 2, 2, 2]);
        queues.push(3, waiting(3, 100, 0));
        assert_eq!(order(&mut queues, 0), [3, 1, 2, 2, 2, 1, 2, 2, 2, 1, 2, 2, 2]);
        assert_eq!((queues.len(), queues.bytes()), (0, 0));
    }

    #[test]
    fn flows_that_are_always_new_do_not_starve_the_others() {
        let mut queues = queues();
        push_many(&mut queues, 100, waiting(1, 1_500, 0));
        let mut old = 0;
        for turn in 0..60 {
            queues.push(2 + turn % 2, waiting(2 + turn % 2, 1_400, 0));
            let popped = queues.pop(TARGET, Instant::ZERO).unwrap().unwrap();
            old += usize::from(popped.bytes[0] == 1);
        }
        assert!(old >= 15, "{old} of 60 turns");
    }

    #[test]
    fn codel_drops_of_the_flow_that_makes_a_queue_and_of_no_other() {
        let mut queues = queues();
        let mut dropped = [0; 3];
        for ms in 0..1_000 {
            // Flow 1 keeps 50 ms of queue; flow 2 sends what leaves at once.
            let at = Instant::from_millis(1_000 + ms);
            queues.push(1, waiting(1, 1_500, 950 + ms));
            queues.push(1, waiting(1, 1_500, 950 + ms));
            queues.push(2, waiting(2, 100, 1_000 + ms));
            for _ in 0..2 {
                if let Some(Err(waiting)) = queues.pop(TARGET, at) {
                    dropped[usize::from(waiting.bytes[0])] += 1;
                }
            }
        }
        assert!(dropped[1] > 5 && dropped[2] == 0, "{dropped:?}");
    }

    #[test]
    fn the_longest_queue_gives_way_and_places_are_used_again() {
        let mut queues = queues();
        queues.push(1, waiting(1, 1_500, 0));
        push_many(&mut queues, 3, waiting(2, 600, 0));
        assert_eq!(queues.drop_longest().unwrap().bytes[0], 2);
        for _ in 0..10_000 {
            queues.push(3, waiting(3, 100, 0));
            assert!(queues.drop_longest().is_some());
        }
        assert!(queues.places.len() <= 5 && queues.len() == 3, "{}", queues.places.len());
        while queues.take_any().is_some() {}
        assert!(queues.is_empty() && queues.next().is_none());
    }

    #[test]
    fn which_flows_share_a_queue_depends_on_the_seed() {
        let packet = |port: u16| {
            let mut packet = sheaf_wire::ip::example_udp(&[0; 8]);
            packet[20..22].copy_from_slice(&port.to_be_bytes());
            packet
        };
        let shared = |seed| {
            let queues = FlowQueues::new(QUANTUM, seed);
            let first = queues.queue_of(&packet(0), true);
            (1..20_000).filter(|port| queues.queue_of(&packet(*port), true) == first).collect()
        };
        let (one, other): (Vec<u16>, Vec<u16>) = (shared(1), shared(2));
        assert!((10..40).contains(&one.len()), "{}", one.len());
        assert!(one.iter().filter(|port| other.contains(port)).count() < 3);
    }
}
