//! Surplus Round Robin, a baseline.
//!
//! Source: Adiseshu, Parulkar, Varghese, "A Reliable and Scalable Striping Protocol", SIGCOMM
//! 1996. Each link may send a quantum of bytes per round; its last packet may overdraw it once,
//! and the deficit is carried over. The receiver runs the same rounds over the lengths of what
//! arrives, so it needs no sequence numbers, until a packet is lost: then it takes a later packet
//! for the lost one, and order is wrong until a marker, sent on every link every few rounds, tells
//! it the true round and deficit.

use super::Candidates;
use crate::resequencer::{Arrival, Delivery};
use sheaf_stage::{Counters, DropReason};
use sheaf_wire::trunk::MAX_LINKS;
use std::collections::VecDeque;

/// Bytes that each link sends per round.
pub const QUANTUM: i32 = 1500;
/// Rounds between markers.
pub const MARKER_ROUNDS: u32 = 16;

/// The sender's rounds.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    current: usize,
    entered: bool,
    round: u32,
    deficit: [i32; MAX_LINKS],
    markers_due: bool,
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
        if !std::mem::replace(&mut self.entered, true) {
            self.deficit[link] += QUANTUM;
        }
        self.deficit[link] -= len as i32;
        if self.deficit[link] <= 0 {
            self.leave();
            while !links[self.current].usable {
                self.leave();
            }
        }
        Some(link)
    }

    /// What the markers say, when a round begins that has them: round, and deficit per link.
    pub(crate) fn take_markers(&mut self) -> Option<(u32, [i32; MAX_LINKS])> {
        std::mem::take(&mut self.markers_due).then_some((self.round, self.deficit))
    }

    fn leave(&mut self) {
        self.entered = false;
        self.current = (self.current + 1) % MAX_LINKS;
        if self.current == 0 {
            self.round = self.round.wrapping_add(1);
            self.markers_due |= self.round.is_multiple_of(MARKER_ROUNDS);
        }
    }
}

#[derive(Clone, Debug)]
enum Item {
    Packet(Arrival),
    Marker { round: u32, deficit: i32 },
}

/// The receiver that simulates the sender.
#[derive(Clone, Debug)]
pub struct Receiver {
    queues: Vec<VecDeque<Item>>,
    up: [bool; MAX_LINKS],
    /// The round of the next packet of each link, as the last marker said.
    due: [u32; MAX_LINKS],
    deficit: [i32; MAX_LINKS],
    current: usize,
    entered: bool,
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
            due: [0; MAX_LINKS],
            deficit: [0; MAX_LINKS],
            current: 0,
            entered: false,
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

    /// Takes a packet.
    pub fn push(&mut self, arrival: Arrival) {
        self.counters.packets_in += 1;
        if self.held >= self.limit {
            self.counters.drop(DropReason::TotalFull);
            return;
        }
        self.held += 1;
        self.queues[usize::from(arrival.link) % MAX_LINKS].push_back(Item::Packet(arrival));
    }

    /// Takes a marker of a link.
    pub fn marker(&mut self, link: u8, round: u32, deficit: i32) {
        let queue = &mut self.queues[usize::from(link) % MAX_LINKS];
        if queue.len() < 2 * self.limit {
            queue.push_back(Item::Marker { round, deficit });
        }
    }

    /// The next packet of the rounds; `None` when its link has not delivered it yet.
    pub fn pop(&mut self) -> Option<Delivery> {
        // A round without a packet on any link: every link was passed over, or waits.
        let mut passed_over = 0;
        while self.held > 0 {
            let link = self.current;
            let behind = self.due[link].wrapping_sub(self.round).cast_signed() > 0;
            if !self.up[link] && self.queues[link].is_empty() || behind {
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
                None if self.held < self.limit / 2 => return None,
                // A link that blocks half of all room has lost its turn.
                None => self.leave(),
                Some(Item::Marker { round, deficit }) => {
                    self.due[link] = round;
                    self.deficit[link] = deficit.clamp(-0xffff, QUANTUM);
                    self.entered = false;
                }
                Some(Item::Packet(arrival)) => return Some(self.serve(link, arrival)),
            }
        }
        None
    }

    /// Packets in, out and held.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn serve(&mut self, link: usize, arrival: Arrival) -> Delivery {
        if !std::mem::replace(&mut self.entered, true) {
            self.deficit[link] += QUANTUM;
        }
        self.deficit[link] -= arrival.payload.len() as i32;
        if self.deficit[link] <= 0 {
            self.leave();
        }
        self.held -= 1;
        self.counters.packets_out += 1;
        let Arrival { seq, flow, packing, payload, .. } = arrival;
        Delivery { seq, flow, packing, payload, late: false }
    }

    fn leave(&mut self) {
        self.entered = false;
        self.current = (self.current + 1) % MAX_LINKS;
        if self.current == 0 {
            self.round = self.round.wrapping_add(1);
        }
    }

    /// Moves on to the first round that a link with packets is due in.
    fn catch_up(&mut self) {
        let waiting = (0..MAX_LINKS).filter(|link| !self.queues[*link].is_empty());
        let ahead = waiting.map(|link| self.due[link].wrapping_sub(self.round)).min();
        // One less: leaving the last link of this round adds one.
        self.round = self.round.wrapping_add(ahead.unwrap_or(1).max(1) - 1);
        self.current = MAX_LINKS - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Flow;
    use crate::schedule::Candidate;
    use sheaf_wire::trunk::{Packing, Predecessor};

    /// Packets of mixed lengths as a sender over three links deals them out; markers among them.
    fn striped(count: u32) -> Vec<VecDeque<Item>> {
        let mut links = Candidates::default();
        for link in links.iter_mut().take(3) {
            *link = Candidate { usable: true, room: true, ..Candidate::default() };
        }
        let (mut rounds, mut wires) = (Rounds::default(), vec![VecDeque::new(); 3]);
        for seq in 0..count {
            let len = 100 + (seq * 397 % 1_400) as usize;
            let link = rounds.pick(&links, len).unwrap();
            wires[link].push_back(Item::Packet(Arrival {
                link: link as u8,
                seq,
                predecessor: Predecessor::Free,
                flow: Flow::default(),
                packing: Packing::One,
                payload: vec![0; len],
            }));
            if let Some((round, deficit)) = rounds.take_markers() {
                for (wire, deficit) in wires.iter_mut().zip(deficit) {
                    wire.push_back(Item::Marker { round, deficit });
                }
            }
        }
        wires
    }

    /// Brings the links' packets one link after the other, so that nothing but the rounds orders
    /// them.
    fn receive(wires: Vec<VecDeque<Item>>) -> Vec<u32> {
        let mut receiver = Receiver::new(10_000);
        (0..3).for_each(|link| receiver.set_link(link, true));
        for (link, wire) in wires.into_iter().enumerate() {
            for item in wire {
                match item {
                    Item::Packet(arrival) => receiver.push(arrival),
                    Item::Marker { round, deficit } => {
                        receiver.marker(link as u8, round, deficit);
                    }
                }
            }
        }
        std::iter::from_fn(|| receiver.pop()).map(|delivery| delivery.seq).collect()
    }

    fn disorder(order: &[u32]) -> usize {
        order.windows(2).filter(|pair| pair[1] < pair[0]).count()
    }

    #[test]
    fn without_loss_the_rounds_alone_give_the_order() {
        let order = receive(striped(2_000));
        assert!(order.len() > 1_990);
        assert_eq!(disorder(&order), 0);
    }

    #[test]
    fn after_a_loss_the_next_marker_restores_the_order() {
        let lost = |marked: bool| {
            let mut wires = striped(2_000);
            wires[1].remove(50);
            if !marked {
                let packet = |item: &Item| matches!(item, Item::Packet(_));
                wires.iter_mut().for_each(|wire| wire.retain(packet));
            }
            disorder(&receive(wires))
        };
        let (with, without) = (lost(true), lost(false));
        assert!(with > 0 && with < 40, "{with}");
        assert!(without > 10 * with, "{without} without markers, {with} with them");
    }
}
