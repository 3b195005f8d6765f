//! The delay line: packets under way, in no buffer.
//!
//! With a constant delay packets leave in the order they came, and a ring holds them at no cost;
//! a packet that is to leave before one that came earlier (jitter, reordering, a delay that was
//! lowered) goes to a heap. The next to leave is the earlier of the two heads; of equal times the
//! one that came first.
//!
//! With slots, the next one opens some time after the first packet is ready (the time it takes to
//! acquire the medium), and all that are ready by then leave with it, up to what it holds. Its
//! time is a function of the head, so it needs no state of its own until it opens.
//!
//! Before the number of packets under way at some time is read, the line settles up to that time:
//! packets that have left by then are put aside, in order, until they are fetched. So the number
//! does not depend on when anybody was woken.
//!
//! While the link stands still, so does the line: its own clock is behind by all the time it stood,
//! so that no packet has to be touched for it.

use crate::accounting::Backlog;
use crate::config::{Slot, SlotWait};
use crate::packet::Packet;
use crate::random::{Dice, Purpose};
use core::cmp::Ordering;
use sheaf_stage::{Duration, Instant};
use std::collections::{BinaryHeap, VecDeque};

#[derive(Debug)]
struct Entry {
    /// By the line's own clock, as all times that the line keeps.
    ready: Instant,
    sequence: u64,
    packet: Packet,
}

impl Ord for Entry {
    /// Reversed: the standard heap gives its greatest, and the earliest is wanted.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.ready, other.sequence).cmp(&(self.ready, self.sequence))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

/// A packet that has left the line, when by the line's own clock, and whether it waited for a slot.
type Left = (Packet, Instant, bool);

#[derive(Debug)]
pub(crate) struct DelayLine {
    ring: VecDeque<Entry>,
    heap: BinaryHeap<Entry>,
    sequence: u64,
    /// Packets that left and were not fetched.
    left: VecDeque<Left>,
    /// Packets on the line, and those that left.
    backlog: Backlog,
    under_way: Backlog,
    dice: Dice,
    slot: Option<Slot>,
    /// The last slot: time of its opening, number, packets and bytes that left in it.
    opened: Instant,
    number: u64,
    used: Backlog,
    /// Time by which the line's own clock is behind.
    stood: Duration,
}

impl DelayLine {
    pub fn new(slot: Option<Slot>, dice: Dice) -> Self {
        DelayLine {
            ring: VecDeque::new(),
            heap: BinaryHeap::new(),
            sequence: 0,
            left: VecDeque::new(),
            backlog: Backlog::default(),
            under_way: Backlog::default(),
            dice,
            slot,
            opened: Instant::ZERO,
            number: 0,
            used: Backlog::default(),
            stood: Duration::ZERO,
        }
    }

    pub fn set_slot(&mut self, slot: Option<Slot>) {
        self.slot = slot;
    }

    /// Packets that were not fetched yet.
    pub fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// Packets that have not left by the time up to which the line has settled.
    pub fn under_way(&self) -> Backlog {
        self.under_way
    }

    /// Puts aside what has left by `at`. Nothing that is put on the line later may be ready before.
    pub fn settle(&mut self, at: Instant) {
        while let Some(left) = self.leave(at - self.stood) {
            self.left.push_back(left);
        }
    }

    /// Puts a packet on the line that is ready at `ready`.
    pub fn push(&mut self, packet: Packet, ready: Instant) {
        self.backlog.add(&packet);
        self.under_way.add(&packet);
        let ready = ready - self.stood;
        let entry = Entry { ready, sequence: self.sequence, packet };
        self.sequence += 1;
        match self.ring.back() {
            Some(last) if last.ready > ready => self.heap.push(entry),
            _ => self.ring.push_back(entry),
        }
    }

    /// Time at which the next packet leaves.
    pub fn next(&self) -> Option<Instant> {
        self.first().map(|(leaves, _)| leaves)
    }

    /// The next packet that leaves, and when.
    pub fn first(&self) -> Option<(Instant, &Packet)> {
        let (leaves, packet) = match (self.left.front(), self.head()) {
            (Some((packet, leaves, _)), _) => (*leaves, packet),
            (None, Some(head)) => (self.leaves(head.ready).0, &head.packet),
            (None, None) => return None,
        };
        Some((leaves + self.stood, packet))
    }

    /// Makes all packets leave later by `time`.
    pub fn stand_still(&mut self, time: Duration) {
        self.stood += time;
    }

    /// Fetches the next packet that has left by `now`; its time is that of the link.
    pub fn pop(&mut self, now: Instant) -> Option<Left> {
        let now = now - self.stood;
        let mut left = match self.left.front() {
            Some((_, leaves, _)) if *leaves > now => return None,
            Some(_) => self.left.pop_front(),
            None => self.leave(now),
        }?;
        self.backlog.remove(&left.0);
        left.1 += self.stood;
        Some(left)
    }

    /// Takes off the line the next packet that has left by `now` of the line's own clock.
    fn leave(&mut self, now: Instant) -> Option<Left> {
        let ready = self.head()?.ready;
        let (leaves, opens) = self.leaves(ready);
        if leaves > now {
            return None;
        }
        let entry = match (self.ring.front(), self.heap.peek()) {
            (Some(ring), Some(heap)) if heap > ring => self.heap.pop(),
            (Some(_), _) => self.ring.pop_front(),
            (None, _) => self.heap.pop(),
        }?;
        if opens {
            self.opened = leaves;
            self.number += 1;
            self.used = Backlog::default();
        }
        self.used.add(&entry.packet);
        self.under_way.remove(&entry.packet);
        Some((entry.packet, leaves, leaves > ready))
    }

    fn head(&self) -> Option<&Entry> {
        match (self.ring.front(), self.heap.peek()) {
            (Some(ring), Some(heap)) => Some(ring.max(heap)),
            (ring, heap) => ring.or(heap),
        }
    }

    /// Time at which a packet at the head that is ready at `ready` leaves, and whether that opens a
    /// slot.
    fn leaves(&self, ready: Instant) -> (Instant, bool) {
        let Some(slot) = &self.slot else { return (ready, false) };
        let room = (slot.packets == 0 || self.used.packets < u64::from(slot.packets))
            && (slot.bytes == 0 || self.used.bytes < slot.bytes);
        if self.number > 0 && ready <= self.opened && room {
            return (self.opened, false);
        }
        let unit = self.dice.unit(Purpose::Slot, self.number);
        (ready.max(self.opened) + slot.wait.draw(unit), true)
    }
}

impl SlotWait {
    fn draw(&self, unit: f64) -> Duration {
        let nanos = |d: &Duration| d.as_nanos() as f64;
        let drawn = match self {
            SlotWait::Between(min, max) if min == max => return *min,
            SlotWait::Between(min, max) => nanos(min) + (nanos(max) - nanos(min)) * unit,
            SlotWait::Distributed(mean, deviation, distribution) => {
                nanos(mean) + nanos(deviation) * distribution.quantile(unit)
            }
        };
        // The cast takes values below zero as zero.
        Duration::from_nanos(drawn.round() as u64)
    }
}
