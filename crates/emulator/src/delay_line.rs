//! The delay line: packets under way, in no buffer.
//!
//! With a constant delay packets leave in the order they came, and a ring holds them at no cost;
//! what is to leave before one that came earlier (jitter, reordering, a delay that was lowered)
//! goes to a heap beside it. The next to leave is the earlier of the two heads; of equal times the
//! one that came first.
//!
//! With slots, the next one opens some time after the first packet is ready (the time it takes to
//! acquire the medium), and all that are ready by then leave with it, up to what it holds. Its
//! time is a function of the head, so it needs no state of its own until it opens.

use crate::config::{Slot, SlotWait};
use crate::ledger::Backlog;
use crate::packet::Packet;
use crate::random::{Dice, Purpose};
use core::cmp::Ordering;
use sheaf_stage::{Duration, Instant};
use std::collections::{BinaryHeap, VecDeque};

#[derive(Debug)]
struct Entry {
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

#[derive(Debug)]
pub(crate) struct DelayLine {
    ring: VecDeque<Entry>,
    heap: BinaryHeap<Entry>,
    sequence: u64,
    backlog: Backlog,
    dice: Dice,
    slot: Option<Slot>,
    /// The last slot: when it opened, its number, what left in it.
    opened: Instant,
    number: u64,
    used: Backlog,
}

impl DelayLine {
    pub fn new(slot: Option<Slot>, dice: Dice) -> Self {
        DelayLine {
            ring: VecDeque::new(),
            heap: BinaryHeap::new(),
            sequence: 0,
            backlog: Backlog::default(),
            dice,
            slot,
            opened: Instant::ZERO,
            number: 0,
            used: Backlog::default(),
        }
    }

    pub fn set_slot(&mut self, slot: Option<Slot>) {
        self.slot = slot;
    }

    pub fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// Puts a packet on the line that is ready at `ready`.
    pub fn push(&mut self, packet: Packet, ready: Instant) {
        self.backlog.add(&packet);
        let entry = Entry { ready, sequence: self.sequence, packet };
        self.sequence += 1;
        match self.ring.back() {
            Some(last) if last.ready > ready => self.heap.push(entry),
            _ => self.ring.push_back(entry),
        }
    }

    /// When the next packet leaves.
    pub fn next(&self) -> Option<Instant> {
        self.head().map(|head| self.leaves(head.ready).0)
    }

    /// The next packet that leaves at `now`, when it left, and whether it waited for a slot.
    pub fn pop(&mut self, now: Instant) -> Option<(Packet, Instant, bool)> {
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
        self.backlog.remove(&entry.packet);
        Some((entry.packet, leaves, leaves > ready))
    }

    fn head(&self) -> Option<&Entry> {
        match (self.ring.front(), self.heap.peek()) {
            (Some(ring), Some(heap)) => Some(ring.max(heap)),
            (ring, heap) => ring.or(heap),
        }
    }

    /// When a packet at the head that is ready at `ready` leaves, and whether that opens a slot.
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
        // The cast takes what is below zero as zero.
        Duration::from_nanos(drawn.round() as u64)
    }
}
