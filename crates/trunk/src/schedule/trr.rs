//! Trigger Round Robin, a baseline.
//!
//! Source: the TRR scheme that NCTU describes (1998): the sender stays on a link for a burst and
//! ends it with a trigger cell that carries the round number; the receiver stays on that link
//! until the trigger comes. What comes after the receiver had to move on is late, and dropped to
//! keep the order; TCP suffers.

use super::Candidates;
use crate::resequencer::{Arrival, Delivery};
use sheaf_stage::{Counters, DropReason};
use sheaf_wire::trunk::MAX_LINKS;
use std::collections::VecDeque;

/// Bytes of a burst.
pub const BURST: usize = 3000;

/// The sender's rounds.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    current: usize,
    sent: usize,
    round: u32,
    trigger: Option<(usize, u32)>,
}

impl Rounds {
    /// The link that takes a packet of `len` bytes; `None` when there is none or it has no room.
    pub(crate) fn pick(&mut self, links: &Candidates, len: usize) -> Option<usize> {
        links.iter().find(|link| link.usable)?;
        while !links[self.current].usable {
            self.leave();
        }
        let link = self.current;
        if !links[link].room {
            return None;
        }
        self.sent += len;
        if self.sent >= BURST {
            self.trigger = Some((link, self.round));
            self.leave();
        }
        Some(link)
    }

    /// The trigger to send behind the packet just placed: its link and round.
    pub(crate) fn take_trigger(&mut self) -> Option<(usize, u32)> {
        self.trigger.take()
    }

    fn leave(&mut self) {
        self.sent = 0;
        self.current = (self.current + 1) % MAX_LINKS;
        if self.current == 0 {
            self.round = self.round.wrapping_add(1);
        }
    }
}

#[derive(Clone, Debug)]
enum Item {
    Packet(Arrival),
    Trigger(u32),
}

/// The receiver that follows the triggers.
#[derive(Clone, Debug)]
pub struct Receiver {
    queues: Vec<VecDeque<Item>>,
    up: [bool; MAX_LINKS],
    /// Rounds that each link has ended: the last trigger's, plus one.
    ended: [u32; MAX_LINKS],
    /// The receiver moved on without this link's trigger: its packets are late until one comes.
    late: [bool; MAX_LINKS],
    current: usize,
    round: u32,
    held: usize,
    limit: usize,
    counters: Counters,
}

impl Receiver {
    /// A receiver that holds at most `limit` packets.
    pub fn new(limit: usize) -> Self {
        Receiver {
            queues: vec![VecDeque::new(); MAX_LINKS],
            up: [false; MAX_LINKS],
            ended: [0; MAX_LINKS],
            late: [false; MAX_LINKS],
            current: 0,
            round: 0,
            held: 0,
            limit,
            counters: Counters::default(),
        }
    }

    /// Takes part in the rounds or not.
    pub fn set_link(&mut self, link: u8, up: bool) {
        self.up[usize::from(link) % MAX_LINKS] = up;
    }

    /// Takes a packet; drops it when it is late or there is no room.
    pub fn push(&mut self, arrival: Arrival) {
        self.counters.packets_in += 1;
        let link = usize::from(arrival.link) % MAX_LINKS;
        if self.late[link] {
            return self.counters.drop(DropReason::OutOfWindow);
        }
        if self.held >= self.limit {
            return self.counters.drop(DropReason::TotalFull);
        }
        self.held += 1;
        self.queues[link].push_back(Item::Packet(arrival));
    }

    /// Takes a trigger of a link.
    pub fn trigger(&mut self, link: u8, round: u32) {
        let link = usize::from(link) % MAX_LINKS;
        if self.late[link] {
            self.ended[link] = round.wrapping_add(1);
            self.late[link] = round.wrapping_sub(self.round).cast_signed() < -1;
        } else if self.queues[link].len() < 2 * self.limit {
            self.queues[link].push_back(Item::Trigger(round));
        }
    }

    /// The next packet of the rounds; `None` when its link has not delivered it yet.
    pub fn pop(&mut self) -> Option<Delivery> {
        let mut passed_over = 0;
        while self.held > 0 {
            let link = self.current;
            let over = self.ended[link].wrapping_sub(self.round).cast_signed() > 0;
            let absent = !self.up[link] || self.late[link];
            if over || absent && self.queues[link].is_empty() {
                passed_over += 1;
                if passed_over > MAX_LINKS {
                    self.catch_up();
                    passed_over = 0;
                }
                self.leave();
                continue;
            }
            match self.queues[link].pop_front() {
                None if self.held < self.limit / 2 => return None,
                None => {
                    self.late[link] = true;
                    self.leave();
                }
                Some(Item::Trigger(round)) => self.ended[link] = round.wrapping_add(1),
                Some(Item::Packet(arrival)) => {
                    self.held -= 1;
                    self.counters.packets_out += 1;
                    let Arrival { seq, flow, packing, payload, .. } = arrival;
                    return Some(Delivery { seq, flow, packing, payload, late: false });
                }
            }
        }
        None
    }

    /// Packets in, out and held.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn leave(&mut self) {
        self.current = (self.current + 1) % MAX_LINKS;
        if self.current == 0 {
            self.round = self.round.wrapping_add(1);
        }
    }

    /// Moves on to the first round that a link with packets has not ended.
    fn catch_up(&mut self) {
        let waiting = (0..MAX_LINKS).filter(|link| !self.queues[*link].is_empty());
        let ahead = waiting.map(|link| self.ended[link].wrapping_sub(self.round)).min();
        self.round = self.round.wrapping_add(ahead.unwrap_or(1).max(1) - 1);
        self.current = MAX_LINKS - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Flow;
    use sheaf_wire::trunk::{Packing, Predecessor};

    fn packet(link: u8, seq: u32) -> Arrival {
        let (predecessor, flow) = (Predecessor::Free, Flow::default());
        Arrival { link, seq, predecessor, flow, packing: Packing::One, payload: vec![0; 100] }
    }

    fn receiver() -> Receiver {
        let mut receiver = Receiver::new(64);
        (0..2).for_each(|link| receiver.set_link(link, true));
        receiver
    }

    fn order(receiver: &mut Receiver) -> Vec<u32> {
        std::iter::from_fn(|| receiver.pop()).map(|delivery| delivery.seq).collect()
    }

    #[test]
    fn the_receiver_stays_on_a_link_until_its_trigger() {
        let mut r = receiver();
        (2..4).for_each(|seq| r.push(packet(1, seq)));
        r.trigger(1, 0);
        assert_eq!(order(&mut r), []);
        (0..2).for_each(|seq| r.push(packet(0, seq)));
        assert_eq!(order(&mut r), [0, 1]);
        r.trigger(0, 0);
        assert_eq!(order(&mut r), [2, 3]);
        r.push(packet(0, 4));
        assert_eq!(order(&mut r), [4], "the burst of link 1 is over");
    }

    #[test]
    fn a_link_that_blocks_half_of_all_room_is_passed_and_its_packets_are_late() {
        let mut r = receiver();
        (0..40).for_each(|seq| r.push(packet(1, seq)));
        assert!(!order(&mut r).is_empty());
        r.push(packet(0, 100));
        assert_eq!(r.counters().dropped(DropReason::OutOfWindow), 1);
        r.trigger(0, 50);
        r.push(packet(0, 101));
        assert_eq!(r.counters().dropped(DropReason::OutOfWindow), 1, "a trigger ends that");
    }
}
