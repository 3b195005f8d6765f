//! Rounds: the common part of the baselines that need no sequence numbers.
//!
//! Principle: links take turns in the order of their numbers, once each round. The sender decides
//! when a turn is over; the receiver keeps a queue for each link and takes turns likewise, so it
//! hands up in the order of sending as long as both agree whose turn it is. Marks that the sender
//! puts between the packets keep them in step. The [`Rules`] decide when a turn ends and what a
//! mark means.

use super::Candidates;
use crate::resequencer::{Arrival, Delivery};
use sheaf_stage::{Counters, DropReason, Duration, Instant};
use sheaf_wire::trunk::MAX_LINKS;
use std::collections::VecDeque;

/// Time for which the link in turn may keep what the others delivered. A frame waits for less in a
/// radio's queue: 50 full frames at 2.5 Mbit/s, half of the slowest link of the papers.
const PATIENCE: Duration = Duration::from_millis(240);

/// The link in turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    /// The link.
    pub link: usize,
    /// Rounds that went before; wraps at 32 bits.
    pub round: u32,
}

impl Turn {
    /// The next link's turn; whether a round begins with it.
    pub fn advance(&mut self) -> bool {
        self.link = (self.link + 1) % MAX_LINKS;
        let begins = self.link == 0;
        if begins {
            self.round = self.round.wrapping_add(1);
        }
        begins
    }
}

/// A sender's turns.
pub(super) trait Turns {
    /// The link in turn.
    fn link(&self) -> usize;
    /// Its turn is over.
    fn leave(&mut self);

    /// The link that takes a packet: the one in turn, unless none takes part or it has no room.
    fn in_turn(&mut self, links: &Candidates) -> Option<usize> {
        links.iter().find(|link| link.usable)?;
        while !links[self.link()].usable {
            self.leave();
        }
        let link = self.link();
        links[link].room.then_some(link)
    }
}

/// Rules by which a receiver follows its sender.
pub trait Rules: Clone + Default {
    /// A mark that the sender puts between packets.
    type Mark: Clone;

    /// Whether packets on `link` are late: dropped until a mark says where the link is.
    fn is_late(&self, link: usize) -> bool;
    /// A packet of `len` bytes on `link` is taken; whether the link's turn is over.
    fn take(&mut self, link: usize, len: usize) -> bool;
    /// A mark on `link` is reached; the first round in which the link may have more.
    fn mark(&mut self, link: usize, mark: Self::Mark) -> u32;
    /// `link` kept the others' packets for too long or blocked half of all room, and lost its turn.
    fn give_up(&mut self, link: usize);
    /// A turn is over.
    fn leave(&mut self);
}

/// A unit received on a link.
#[derive(Clone, Debug)]
pub enum Item<Mark> {
    /// A frame's packets.
    Packet(Arrival),
    /// A mark behind the packets before it.
    Mark(Mark),
}

/// A receiver that takes turns by the rules `R`.
#[derive(Clone, Debug)]
pub struct Receiver<R: Rules> {
    pub(super) rules: R,
    queues: Vec<VecDeque<Item<R::Mark>>>,
    up: [bool; MAX_LINKS],
    /// The first round in which each link may have a packet, as the last mark said.
    pub(super) due: [u32; MAX_LINKS],
    pub(super) turn: Turn,
    /// Time since which the link in turn keeps packets of others.
    blocked: Option<Instant>,
    held: usize,
    limit: usize,
    counters: Counters,
}

impl<R: Rules> Receiver<R> {
    /// A receiver that holds at most `limit` packets.
    pub fn new(limit: usize) -> Self {
        Receiver {
            rules: R::default(),
            queues: vec![VecDeque::new(); MAX_LINKS],
            up: [false; MAX_LINKS],
            due: [0; MAX_LINKS],
            turn: Turn::default(),
            blocked: None,
            held: 0,
            limit,
            counters: Counters::default(),
        }
    }

    /// Takes part in the rounds or not.
    pub fn set_link(&mut self, link: u8, up: bool) {
        self.up[usize::from(link) % MAX_LINKS] = up;
    }

    /// Takes a packet, or drops it when it is late or finds no room.
    pub fn push(&mut self, arrival: Arrival) -> Result<(), DropReason> {
        self.counters.packets_in += 1;
        let link = usize::from(arrival.link) % MAX_LINKS;
        if self.rules.is_late(link) {
            return Err(self.counters.refuse(DropReason::OutOfWindow));
        }
        if self.held >= self.limit {
            return Err(self.counters.refuse(DropReason::TotalFull));
        }
        self.held += 1;
        self.queues[link].push_back(Item::Packet(arrival));
        Ok(())
    }

    /// Takes a mark of a link, behind its packets.
    pub(super) fn push_mark(&mut self, link: usize, mark: R::Mark) {
        let queue = &mut self.queues[link];
        if queue.len() < 2 * self.limit {
            queue.push_back(Item::Mark(mark));
        }
    }

    /// The next packet of the rounds; `None` when its link has not delivered it yet.
    pub fn pop(&mut self, now: Instant) -> Option<Delivery> {
        // A round without a packet on any link: every link was passed over, or waits.
        let mut passed_over = 0;
        while self.held > 0 {
            let link = self.turn.link;
            let ahead = self.due[link].wrapping_sub(self.turn.round).cast_signed() > 0;
            let absent = !self.up[link] || self.rules.is_late(link);
            if ahead || absent && self.queues[link].is_empty() {
                passed_over += 1;
                if passed_over > MAX_LINKS {
                    // All are ahead of this round: it holds nothing.
                    self.catch_up();
                    passed_over = 0;
                }
                self.leave();
                continue;
            }
            match self.queues[link].pop_front() {
                None if self.waits(now) => return None,
                // A mark may be lost, and nothing come that would show it.
                None => {
                    self.rules.give_up(link);
                    self.leave();
                }
                Some(Item::Mark(mark)) => self.due[link] = self.rules.mark(link, mark),
                Some(Item::Packet(arrival)) => {
                    if self.rules.take(link, arrival.payload.len()) {
                        self.leave();
                    }
                    self.held -= 1;
                    self.blocked = None;
                    self.counters.packets_out += 1;
                    let Arrival { seq, flow, packing, payload, .. } = arrival;
                    return Some(Delivery { seq, flow, packing, payload, late: false });
                }
            }
        }
        None
    }

    /// Whether the link in turn, which has nothing, keeps its turn.
    fn waits(&mut self, now: Instant) -> bool {
        let since = *self.blocked.get_or_insert(now);
        self.held < self.limit / 2 && now < since + PATIENCE
    }

    /// Time at which the link in turn loses it.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.blocked.map(|since| since + PATIENCE)
    }

    /// Packets in, out and held.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn leave(&mut self) {
        self.blocked = None;
        self.rules.leave();
        self.turn.advance();
    }

    /// Moves on to the first round in which a link with packets is due.
    fn catch_up(&mut self) {
        let waiting = (0..MAX_LINKS).filter(|link| !self.queues[*link].is_empty());
        let ahead = waiting.map(|link| self.due[link].wrapping_sub(self.turn.round)).min();
        // One less: leaving the last link of this round adds one.
        self.turn.round = self.turn.round.wrapping_add(ahead.unwrap_or(1).max(1) - 1);
        self.turn.link = MAX_LINKS - 1;
    }
}
