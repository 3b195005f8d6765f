//! The receiver: hands packets up in the order their flows sent them.
//!
//! Principle (NCTU, section on the receiver): an early packet waits and the reordering timer
//! starts; when the missing ones come in time all go up in order; when it fires, the waiting ones
//! go up and the expectation moves on; a packet that comes after that is handed up immediately.
//!
//! Added:
//! * *Order per flow.* Each frame names its predecessor, the last frame of its flow. It waits for
//!   that one alone, so a loss stalls the flow that it hit and no other.
//! * *Loss known without a timer.* Each link keeps the order of its frames. A number that was not
//!   received although every link in use has delivered a higher one is lost, and the frames that
//!   wait for it go up immediately. Urgent frames overtake others on their link, so they say
//!   nothing about these. Where the sender sends lost frames again, such a number is given up only
//!   after the time that this takes ([`Resequencer::set_repair_wait`]), and timers run for as much
//!   longer.
//! * *Haste.* Acknowledgements of TCP and packets of calls keep their order among frames that are
//!   late, but wait for no repair: the next acknowledgement says as much and more, and the packets
//!   of a call behind a lost one would come too late themselves. In no order at all, the least
//!   round trip of a flow would be that of its most prompt acknowledgements, and BBR then has too
//!   little under way.
//! * *Bounds.* A ring of `window` numbers and a limit on bytes; when either is reached, the lowest
//!   missing numbers are given up. Duplicates are known by one bit per number over two windows.
//!   Numbers wrap at 32 bits. A number far away moves nothing: frames carry eight bits of the
//!   session, which can be guessed. The endpoint restarts the receiver where the other end's
//!   reports say for long that its numbers are elsewhere.

use crate::config::{ConfigError, ReorderConfig};
use crate::flow::{BUCKETS, Flow};
use crate::timer::Timers;
use crate::window::{State, Window};
use sheaf_stage::{Counters, DropReason, Duration, IndexedHeap, Instant, Stage};
use sheaf_wire::trunk::{MAX_LINKS, Packing, Predecessor};
use std::collections::VecDeque;

pub use crate::window::Arrival;

/// Windows ahead of the expected number from which on a number is stray. Nearer, a long row of
/// losses explains it.
const STRAY_WINDOWS: i32 = 8;

/// Steps in which the time of a repair is measured: coarser ones cost a larger part of that time,
/// finer ones memory.
const REPAIR_STEPS: u32 = 16;

/// A frame's packets on their way up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Global sequence number of the frame.
    pub seq: u32,
    /// Its flow.
    pub flow: Flow,
    /// Format of the packets in the payload: see [`Packets`](sheaf_wire::trunk::Packets).
    pub packing: Packing,
    /// The packets.
    pub payload: Vec<u8>,
    /// Whether it came after it had been given up.
    pub late: bool,
}

/// Counters of a resequencer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReorderStats {
    /// Frames that came after they had been given up; handed up immediately.
    pub late: u64,
    /// Frames that went up after a later one of their flow: what an application sees as reordered.
    /// Frames that wait for no repair are not counted.
    pub disordered: u64,
    /// Frames that waited.
    pub waited: u64,
    /// Numbers given up because every link had passed them.
    pub passed: u64,
    /// Numbers given up because a timer fired.
    pub timed_out: u64,
    /// Numbers given up because a bound was reached.
    pub squeezed: u64,
}

/// The receiving stage.
#[derive(Debug)]
pub struct Resequencer {
    config: ReorderConfig,
    window: Window,
    timers: Timers,
    /// Times at which waiting frames give up what they wait for, by ring place.
    deadlines: IndexedHeap<Instant>,
    /// The highest number that each link in use delivered.
    marks: [Option<u32>; MAX_LINKS],
    /// Time that the repair of a lost frame takes; zero when none is repaired.
    repair: Duration,
    /// Longest time by which frames that are not lost were late.
    lateness: Duration,
    /// Numbers up to which every link has passed, and when; the oldest first.
    passed: VecDeque<(u32, Instant)>,
    /// The last number handed up of each flow.
    last: Vec<Option<u32>>,
    /// Numbers settled whose waiters have not been looked at.
    settled: Vec<u32>,
    ready: VecDeque<Delivery>,
    stats: ReorderStats,
    counters: Counters,
}

impl Resequencer {
    /// A resequencer without links that expects number `first`.
    pub fn new(config: ReorderConfig, first: u32) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Resequencer {
            window: Window::new(config.window, first),
            timers: Timers::new(&config),
            config,
            deadlines: IndexedHeap::default(),
            marks: [None; MAX_LINKS],
            repair: Duration::ZERO,
            lateness: Duration::ZERO,
            passed: VecDeque::new(),
            last: vec![None; BUCKETS],
            settled: Vec::new(),
            ready: VecDeque::new(),
            stats: ReorderStats::default(),
            counters: Counters::default(),
        })
    }

    /// Hands up everything and expects `first`: the other end began a new session.
    pub fn restart(&mut self, first: u32, now: Instant) {
        self.flush(now);
        self.window.restart(first);
        self.last.fill(None);
        self.passed.clear();
        for mark in self.marks.iter_mut().flatten() {
            *mark = first.wrapping_sub(1);
        }
    }

    /// Link `link` is in use: numbers are lost only when it, too, has passed them.
    pub fn link_up(&mut self, link: u8) {
        let mark = &mut self.marks[usize::from(link) % MAX_LINKS];
        mark.get_or_insert(self.window.base().wrapping_sub(1));
    }

    /// Link `link` is not in use: nothing waits for it. Drain afterwards.
    pub fn link_down(&mut self, link: u8, now: Instant) {
        self.marks[usize::from(link) % MAX_LINKS] = None;
        self.pass(now);
    }

    /// Link `link` has delivered everything before number `next` that it will. Drain afterwards.
    pub fn passed(&mut self, link: u8, next: u32, now: Instant) {
        let ahead = self.window.ahead(next);
        if ahead <= self.window.capacity() as i32 {
            self.raise(link, next.wrapping_sub(1));
            self.pass(now);
        }
    }

    /// Sets the time for which a lost frame is waited for, because the sender sends it again; zero:
    /// it does not. `lateness`: the longest time by which frames that are not lost were late.
    pub fn set_repair_wait(&mut self, wait: Duration, lateness: Duration) {
        (self.repair, self.lateness) = (wait, lateness);
    }

    /// Whether a number is near enough to the expected one to be looked at: at most a window behind
    /// it, or eight ahead.
    pub fn reaches(&self, seq: u32) -> bool {
        let len = self.window.capacity() as i32;
        (-len..STRAY_WINDOWS * len).contains(&self.window.ahead(seq))
    }

    /// Counts a frame that is dropped unseen.
    pub(crate) fn refuse(&mut self, reason: DropReason) -> DropReason {
        self.counters.packets_in += 1;
        self.counters.refuse(reason)
    }

    /// Counters.
    pub fn stats(&self) -> ReorderStats {
        self.stats
    }

    /// The number expected next.
    pub fn expected(&self) -> u32 {
        self.window.base()
    }

    /// Bytes that wait for others.
    pub fn held_bytes(&self) -> usize {
        self.window.bytes()
    }

    /// The reordering timer of `flow`.
    pub fn timer(&self, flow: Flow) -> Duration {
        self.timers.peek(flow)
    }

    /// The longest reordering timer of all flows.
    pub fn longest_timer(&self) -> Duration {
        self.timers.longest()
    }

    /// Puts a frame whose number is in the window where it belongs.
    fn place(&mut self, arrival: Arrival, now: Instant) -> Result<(), DropReason> {
        let seq = arrival.seq;
        match self.window.state(seq) {
            State::Missing => {}
            State::Lost => {
                self.hand_up_late(arrival, now);
                return Ok(());
            }
            // `mark` found it new, so it is neither held nor done.
            State::Held | State::Done => return Err(DropReason::Duplicate),
        }
        let behind = match arrival.predecessor {
            Predecessor::Back(distance) => Some(seq.wrapping_sub(u32::from(distance))),
            _ => None,
        };
        let waits = match (arrival.predecessor, behind) {
            (Predecessor::Free, _) => false,
            (Predecessor::Far, _) => self.window.ahead(seq) >= Predecessor::REACH as i32,
            (_, Some(behind)) => !self.window.is_settled(behind),
            _ => seq != self.window.base(),
        };
        if !waits {
            self.window.settle(seq, State::Done);
            self.hand_up(arrival, false);
            self.follow(seq, true, now);
            return Ok(());
        }
        if arrival.hasty {
            self.deadlines.set(self.window.place(seq), Some(now + self.lateness));
        } else if behind.is_none_or(|behind| self.window.state(behind) == State::Missing) {
            // Behind a frame that waits itself, that one's timer is enough.
            let deadline = now + self.timers.get(arrival.flow, now) + self.repair;
            self.deadlines.set(self.window.place(seq), Some(deadline));
        }
        self.stats.waited += 1;
        self.window.hold(arrival, behind, now);
        Ok(())
    }

    /// Hands up all that waited for `seq`, directly or in turn, and moves the expectation on.
    /// `rewarded`: it was worth waiting for.
    fn follow(&mut self, seq: u32, rewarded: bool, now: Instant) {
        self.settled.push(seq);
        loop {
            while let Some(seq) = self.settled.pop() {
                let mut waiter = self.window.take_waiters(seq);
                while let Some(waiting) = waiter {
                    waiter = self.window.next_waiter(waiting);
                    self.release(waiting, rewarded, now);
                }
            }
            if !self.window.step() {
                break;
            }
            let base = self.window.base();
            // The base has just come within reach of one that waits for all far before it …
            let far = base.wrapping_add(Predecessor::REACH - 1);
            if self.window.predecessor(far) == Some(Predecessor::Far) {
                self.release(far, rewarded, now);
            }
            // … and is itself a number that waited for all before it.
            if self.window.predecessor(base) == Some(Predecessor::All) {
                self.release(base, rewarded, now);
            }
        }
    }

    /// Hands up a frame that waits, if it still does.
    fn release(&mut self, seq: u32, rewarded: bool, now: Instant) {
        if let Some((arrival, arrived)) = self.window.take(seq) {
            self.deadlines.set(self.window.place(seq), None);
            if rewarded {
                self.timers.rewarded(arrival.flow, now - arrived);
            }
            self.hand_up(arrival, false);
            self.settled.push(seq);
        }
    }

    fn hand_up(&mut self, arrival: Arrival, late: bool) {
        let Arrival { seq, flow, packing, payload, predecessor, hasty, .. } = arrival;
        let last = &mut self.last[flow.index()];
        let newer = last.is_none_or(|last| seq.wrapping_sub(last).cast_signed() > 0);
        if newer {
            *last = Some(seq);
        } else if predecessor != Predecessor::Free && !hasty {
            self.stats.disordered += 1;
        }
        self.ready.push_back(Delivery { seq, flow, packing, payload, late });
    }

    fn hand_up_late(&mut self, arrival: Arrival, now: Instant) {
        if !arrival.hasty {
            self.stats.late += 1;
            self.timers.late(arrival.flow, now);
        }
        self.hand_up(arrival, true);
    }

    fn raise(&mut self, link: u8, seq: u32) {
        if let Some(mark) = &mut self.marks[usize::from(link) % MAX_LINKS]
            && seq.wrapping_sub(*mark).cast_signed() > 0
        {
            *mark = seq;
        }
    }

    /// Gives up what every link in use has passed, or lets it wait for its repair.
    fn pass(&mut self, now: Instant) {
        let ahead = self.marks.iter().flatten().map(|mark| self.window.ahead(*mark)).min();
        let Some(ahead) = ahead.filter(|ahead| *ahead >= 0) else { return };
        let last = self.window.base().wrapping_add_signed(ahead);
        if self.repair.is_zero() {
            self.stats.passed += self.give_up(last, now);
            return;
        }
        while self.passed.front().is_some_and(|(last, _)| self.window.ahead(*last) < 0) {
            self.passed.pop_front();
        }
        match self.passed.back_mut() {
            Some((newest, _)) if *newest == last => {}
            Some((newest, at)) if now - *at < self.repair / REPAIR_STEPS => *newest = last,
            _ => self.passed.push_back((last, now)),
        }
    }

    /// Gives up what was not repaired in time.
    fn give_up_unrepaired(&mut self, now: Instant) {
        while let Some((last, at)) = self.passed.front().copied() {
            if self.window.ahead(last) >= 0 {
                if at + self.repair > now {
                    return;
                }
                self.stats.passed += self.give_up(last, now);
            }
            self.passed.pop_front();
        }
    }

    /// Gives up every missing number up to and including `last`; returns how many.
    fn give_up(&mut self, last: u32, now: Instant) -> u64 {
        let mut given_up = 0;
        // The frame at the base is never held: everything that it could wait for is settled.
        while self.window.ahead(last) >= 0 {
            let base = self.window.base();
            debug_assert_eq!(self.window.state(base), State::Missing);
            self.window.settle(base, State::Lost);
            given_up += 1;
            self.follow(base, false, now);
        }
        given_up
    }

    /// Hands up a waiting frame whose timer fired, after the earlier waiting frames of its flow.
    fn time_out(&mut self, place: u32, now: Instant) {
        let seq = self.window.at_place(place);
        self.deadlines.set(place, None);
        if self.window.is_hasty(seq) {
            // What it waited for may still be repaired, and others wait for that.
            self.release(seq, false, now);
            return self.drain_settled(now);
        }
        let Some((flow, predecessor)) = self.window.flow(seq).zip(self.window.predecessor(seq))
        else {
            return;
        };
        match predecessor {
            Predecessor::All => {
                self.stats.timed_out += self.give_up(seq.wrapping_sub(1), now);
            }
            Predecessor::Far => {
                let last = seq.wrapping_sub(Predecessor::REACH);
                self.stats.timed_out += self.give_up(last, now);
            }
            Predecessor::Back(distance) => {
                self.settle_flow(flow, seq, now);
                let missing = seq.wrapping_sub(u32::from(distance));
                if !self.window.is_settled(missing) {
                    self.stats.timed_out += 1;
                    self.window.settle(missing, State::Lost);
                    self.follow(missing, false, now);
                }
            }
            Predecessor::Free => {}
        }
    }

    /// Hands up, in order, the waiting frames of `flow` before `until`.
    fn settle_flow(&mut self, flow: Flow, until: u32, now: Instant) {
        let mut from = self.window.base();
        while let Some(seq) = self.window.earlier_of_flow(from, until, flow) {
            let behind = match self.window.predecessor(seq) {
                Some(Predecessor::Back(distance)) => seq.wrapping_sub(u32::from(distance)),
                _ => seq,
            };
            if !self.window.is_settled(behind) && self.window.state(behind) == State::Missing {
                self.stats.timed_out += 1;
                self.window.settle(behind, State::Lost);
                self.follow(behind, false, now);
            } else {
                self.release(seq, false, now);
                self.drain_settled(now);
            }
            let base = self.window.base();
            let next = seq.wrapping_add(1);
            from = if self.window.ahead(next) < 0 { base } else { next };
            if until.wrapping_sub(from).cast_signed() <= 0 {
                break;
            }
        }
    }

    /// Follows what [`Resequencer::release`] left in the list.
    fn drain_settled(&mut self, now: Instant) {
        if let Some(seq) = self.settled.pop() {
            self.follow(seq, false, now);
        }
    }

    /// Hands up all that waits, in order.
    fn flush(&mut self, now: Instant) {
        while self.window.held() > 0 {
            let base = self.window.base();
            self.stats.squeezed += self.give_up(base, now);
        }
    }

    /// Gives up everything before `base`, which is more than a window ahead or nearly so. The work
    /// is that of one window however far that is.
    fn skip_to(&mut self, base: u32, now: Instant) {
        self.flush(now);
        if let Ok(left) = u32::try_from(self.window.ahead(base)) {
            self.stats.squeezed += u64::from(left);
            self.window.skip_to(base);
        }
    }

    fn take_in(&mut self, arrival: Arrival, now: Instant) -> Result<(), DropReason> {
        if !self.reaches(arrival.seq) {
            return Err(DropReason::OutOfWindow);
        }
        let len = self.window.capacity();
        if self.window.ahead(arrival.seq) >= len as i32 {
            // A long row of losses: everything that no longer fits is given up.
            let base = arrival.seq.wrapping_sub(len - 1);
            if self.window.ahead(base) >= len as i32 {
                self.skip_to(base, now);
            } else {
                self.stats.squeezed += self.give_up(base.wrapping_sub(1), now);
            }
        }
        if self.window.mark(arrival.seq) {
            return Err(DropReason::Duplicate);
        }
        let (link, seq, urgent) = (arrival.link, arrival.seq, arrival.urgent);
        if self.window.ahead(seq) < 0 {
            self.hand_up_late(arrival, now);
            return Ok(());
        }
        self.place(arrival, now)?;
        if !urgent {
            self.raise(link, seq);
            self.pass(now);
        }
        while self.window.bytes() > self.config.bytes {
            let base = self.window.base();
            self.stats.squeezed += self.give_up(base, now);
        }
        Ok(())
    }
}

impl Stage for Resequencer {
    type In = Arrival;
    type Out = Delivery;

    fn enqueue(&mut self, arrival: Arrival, now: Instant) -> Result<(), DropReason> {
        self.counters.packets_in += 1;
        self.take_in(arrival, now).map_err(|reason| self.counters.refuse(reason))
    }

    fn dequeue(&mut self, now: Instant) -> Option<Delivery> {
        while let Some((_, place)) = self.deadlines.first().filter(|(at, _)| *at <= now) {
            self.time_out(place, now);
        }
        self.give_up_unrepaired(now);
        let delivery = self.ready.pop_front()?;
        self.counters.packets_out += 1;
        Some(delivery)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let unrepaired = self.passed.iter().find(|(last, _)| self.window.ahead(*last) >= 0);
        let timer = self.deadlines.first().map(|(at, _)| at);
        timer.into_iter().chain(unrepaired.map(|(_, at)| *at + self.repair)).min()
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn held(&self) -> u64 {
        u64::from(self.window.held()) + self.ready.len() as u64
    }
}
