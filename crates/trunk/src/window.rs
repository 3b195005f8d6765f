//! The resequencer's memory: a ring of slots for the numbers from the expected one on, and one bit
//! for each number that was received, before and after it.
//!
//! Everything here is O(1) but [`Window::earlier_of_flow`], which only a timer that fired calls.

use crate::flow::Flow;
use sheaf_stage::Instant;
use sheaf_wire::trunk::{Packing, Predecessor};

/// No number: the end of a list.
const NONE: u32 = u32::MAX;

/// State of a sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not received, still expected.
    Missing,
    /// Received, waiting for another.
    Held,
    /// Handed up.
    Done,
    /// Given up.
    Lost,
}

/// A frame's packets with what the header said about them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The link that it was received on.
    pub link: u8,
    /// Its global sequence number.
    pub seq: u32,
    /// The frame that must be handed up before it.
    pub predecessor: Predecessor,
    /// The flow of its packets (of the first, if there are several).
    pub flow: Flow,
    /// It may have overtaken lower numbers on its link, so it says nothing about them.
    pub urgent: bool,
    /// It waits for what is late, and never for a repair.
    pub hasty: bool,
    /// Format of its packets in the payload.
    pub packing: Packing,
    /// Its packets as they stood in the frame.
    pub payload: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Slot {
    state: State,
    arrival: Option<Arrival>,
    arrived: Instant,
    /// First frame that waits for this one, as a ring place, and the next that waits for the same.
    first_waiter: u32,
    next_waiter: u32,
}

/// The ring.
#[derive(Clone, Debug)]
pub struct Window {
    slots: Vec<Slot>,
    received: Vec<u64>,
    /// The lowest number that is neither handed up nor given up.
    base: u32,
    held: u32,
    bytes: usize,
}

impl Window {
    /// A ring of `len` slots (a power of two) that expects `base` first.
    pub fn new(len: u32, base: u32) -> Self {
        let slot = Slot {
            state: State::Missing,
            arrival: None,
            arrived: Instant::ZERO,
            first_waiter: NONE,
            next_waiter: NONE,
        };
        let words = (2 * len as usize).div_ceil(64);
        Window {
            slots: vec![slot; len as usize],
            received: vec![0; words],
            base,
            held: 0,
            bytes: 0,
        }
    }

    /// Expects `base` next; nothing may be held.
    pub fn restart(&mut self, base: u32) {
        debug_assert_eq!(self.held, 0);
        for slot in &mut self.slots {
            (slot.state, slot.first_waiter) = (State::Missing, NONE);
        }
        self.received.fill(0);
        self.base = base;
    }

    /// Expects `base` next, more than a window ahead; nothing may be held. Numbers before it count
    /// as received: none of them is handed up any more.
    pub fn skip_to(&mut self, base: u32) {
        self.restart(base);
        self.received.fill(u64::MAX);
        let reach = 2 * self.capacity() - 1;
        for ahead in 0..self.capacity() {
            let bit = (base.wrapping_add(ahead) & reach) as usize;
            self.received[bit / 64] &= !(1 << (bit % 64));
        }
    }

    /// The lowest number that is neither handed up nor given up.
    pub fn base(&self) -> u32 {
        self.base
    }

    /// Numbers that fit.
    pub fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Frames that wait.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Their bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Distance of `seq` from the base; negative behind it.
    pub fn ahead(&self, seq: u32) -> i32 {
        seq.wrapping_sub(self.base).cast_signed()
    }

    /// The place of `seq` in the ring, a name for it while it is in the window.
    pub fn place(&self, seq: u32) -> u32 {
        seq & (self.capacity() - 1)
    }

    /// The number in the window that has this place.
    pub fn at_place(&self, place: u32) -> u32 {
        self.base.wrapping_add(self.place(place.wrapping_sub(self.base)))
    }

    /// State of a number at or after the base, within the window.
    pub fn state(&self, seq: u32) -> State {
        debug_assert!((0..self.capacity() as i32).contains(&self.ahead(seq)));
        self.slots[self.place(seq) as usize].state
    }

    /// Whether a number is out of the way of those that wait for it.
    pub fn is_settled(&self, seq: u32) -> bool {
        self.ahead(seq) < 0 || matches!(self.state(seq), State::Done | State::Lost)
    }

    /// Marks a number as received; returns whether it had been received before. It has to be within
    /// the window on either side of the base.
    pub fn mark(&mut self, seq: u32) -> bool {
        let bit = (seq & (2 * self.capacity() - 1)) as usize;
        let (word, mask) = (&mut self.received[bit / 64], 1 << (bit % 64));
        let before = *word & mask != 0;
        *word |= mask;
        before
    }

    /// Notes that a missing number was handed up without waiting, or given up.
    pub fn settle(&mut self, seq: u32, state: State) {
        let place = self.place(seq) as usize;
        self.slots[place].state = state;
    }

    /// Keeps a frame; `behind` is the missing or held number that it waits for.
    pub fn hold(&mut self, arrival: Arrival, behind: Option<u32>, now: Instant) {
        let place = self.place(arrival.seq);
        let next_waiter = match behind {
            Some(behind) => {
                let behind = self.place(behind) as usize;
                std::mem::replace(&mut self.slots[behind].first_waiter, place)
            }
            None => NONE,
        };
        self.held += 1;
        self.bytes += arrival.payload.len();
        let slot = &mut self.slots[place as usize];
        slot.state = State::Held;
        slot.arrived = now;
        slot.next_waiter = next_waiter;
        slot.arrival = Some(arrival);
    }

    /// Takes a held frame out, with the time it came; the number is then done. `None` when it is
    /// not held.
    pub fn take(&mut self, seq: u32) -> Option<(Arrival, Instant)> {
        let place = self.place(seq) as usize;
        let slot = &mut self.slots[place];
        let arrival = slot.arrival.take()?;
        slot.state = State::Done;
        self.held -= 1;
        self.bytes -= arrival.payload.len();
        Some((arrival, slot.arrived))
    }

    /// Takes the list of frames that wait for `seq`; walk it with [`Window::next_waiter`].
    pub fn take_waiters(&mut self, seq: u32) -> Option<u32> {
        let place = self.place(seq) as usize;
        let first = std::mem::replace(&mut self.slots[place].first_waiter, NONE);
        (first != NONE).then(|| self.at_place(first))
    }

    /// The one that waits for the same number as `seq` does, next in the list.
    pub fn next_waiter(&self, seq: u32) -> Option<u32> {
        let next = self.slots[self.place(seq) as usize].next_waiter;
        (next != NONE).then(|| self.at_place(next))
    }

    /// The frame that a held frame waits for.
    pub fn predecessor(&self, seq: u32) -> Option<Predecessor> {
        let slot = &self.slots[self.place(seq) as usize];
        slot.arrival.as_ref().map(|arrival| arrival.predecessor)
    }

    /// Whether a held frame waits for no repair.
    pub fn is_hasty(&self, seq: u32) -> bool {
        let slot = &self.slots[self.place(seq) as usize];
        slot.arrival.as_ref().is_some_and(|arrival| arrival.hasty)
    }

    /// The flow of a held frame.
    pub fn flow(&self, seq: u32) -> Option<Flow> {
        let slot = &self.slots[self.place(seq) as usize];
        slot.arrival.as_ref().map(|arrival| arrival.flow)
    }

    /// Moves the base over one settled number; returns whether there was one.
    pub fn step(&mut self) -> bool {
        let place = self.place(self.base) as usize;
        if !matches!(self.slots[place].state, State::Done | State::Lost) {
            return false;
        }
        self.slots[place].state = State::Missing;
        // The number that comes into reach was not received; its bit is that of one long past.
        let entering = self.base.wrapping_add(self.capacity());
        let bit = (entering & (2 * self.capacity() - 1)) as usize;
        self.received[bit / 64] &= !(1 << (bit % 64));
        self.base = self.base.wrapping_add(1);
        true
    }

    /// The first held number from `from` on, before `until`, that belongs to `flow`.
    pub fn earlier_of_flow(&self, from: u32, until: u32, flow: Flow) -> Option<u32> {
        let count = until.wrapping_sub(from);
        (0..count).map(|n| from.wrapping_add(n)).find(|seq| self.flow(*seq) == Some(flow))
    }
}
