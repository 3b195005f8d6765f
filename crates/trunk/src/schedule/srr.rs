//! Surplus Round Robin, a baseline.
//!
//! Source: Adiseshu, Parulkar, Varghese, "A Reliable and Scalable Striping Protocol", SIGCOMM
//! 1996. Each link may send a quantum of bytes per round; its last packet may overdraw it once,
//! and the deficit is carried over. The receiver runs the same rounds over the lengths of what
//! arrives, so it needs no sequence numbers, until a packet is lost: then it takes a later packet
//! for the lost one, and order is wrong until a marker, sent on every link every few rounds, brings
//! the true round and deficit.

use super::Candidates;
use super::rounds::{self, Rules, Turn, Turns};
use sheaf_wire::trunk::MAX_LINKS;

/// Bytes that each link sends per round.
pub const QUANTUM: i32 = 1500;
/// Rounds between markers.
pub const MARKER_ROUNDS: u32 = 16;

/// The sender's rounds.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    turn: Turn,
    deficits: Deficits,
    markers_due: bool,
}

impl Rounds {
    /// The link that takes a packet of `len` bytes; `None` without a link or room on it.
    pub(crate) fn pick(&mut self, links: &Candidates, len: usize) -> Option<usize> {
        let link = self.in_turn(links)?;
        if self.deficits.take(link, len) {
            self.leave();
            while !links[self.turn.link].usable {
                self.leave();
            }
        }
        Some(link)
    }

    /// Content of the markers, when a round begins that has them: round, and deficit per link.
    pub(crate) fn take_markers(&mut self) -> Option<(u32, [i32; MAX_LINKS])> {
        std::mem::take(&mut self.markers_due).then_some((self.turn.round, self.deficits.each))
    }
}

impl Turns for Rounds {
    fn link(&self) -> usize {
        self.turn.link
    }

    fn leave(&mut self) {
        self.deficits.leave();
        if self.turn.advance() {
            self.markers_due |= self.turn.round.is_multiple_of(MARKER_ROUNDS);
        }
    }
}

/// Bytes that each link may still send, by which sender and receiver end turns alike.
#[derive(Clone, Debug, Default)]
pub struct Deficits {
    each: [i32; MAX_LINKS],
    /// Whether the link in turn has had its quantum.
    entered: bool,
}

/// The round of the next packet of a link, and its deficit.
#[derive(Clone, Copy, Debug)]
pub struct Marker {
    round: u32,
    deficit: i32,
}

impl Rules for Deficits {
    type Mark = Marker;

    fn is_late(&self, _link: usize) -> bool {
        false
    }

    fn take(&mut self, link: usize, len: usize) -> bool {
        if !std::mem::replace(&mut self.entered, true) {
            self.each[link] += QUANTUM;
        }
        self.each[link] -= len as i32;
        self.each[link] <= 0
    }

    fn mark(&mut self, link: usize, Marker { round, deficit }: Marker) -> u32 {
        self.each[link] = deficit.clamp(-0xffff, QUANTUM);
        self.entered = false;
        round
    }

    fn give_up(&mut self, _link: usize) {}

    fn leave(&mut self) {
        self.entered = false;
    }
}

/// The receiver that simulates the sender.
pub type Receiver = rounds::Receiver<Deficits>;

impl Receiver {
    /// Takes a marker of a link.
    pub fn marker(&mut self, link: u8, round: u32, deficit: i32) {
        self.push_mark(usize::from(link) % MAX_LINKS, Marker { round, deficit });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Flow;
    use crate::resequencer::Arrival;
    use crate::schedule::Candidate;
    use crate::schedule::rounds::Item;
    use sheaf_stage::Instant;
    use sheaf_wire::trunk::{Packing, Predecessor};
    use std::collections::VecDeque;

    /// Packets of mixed lengths as a sender over three links deals them out; markers among them.
    fn striped(count: u32) -> Vec<VecDeque<Item<Marker>>> {
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
                urgent: false,
                hasty: false,
                packing: Packing::One,
                payload: vec![0; len],
            }));
            if let Some((round, deficit)) = rounds.take_markers() {
                for (wire, deficit) in wires.iter_mut().zip(deficit) {
                    wire.push_back(Item::Mark(Marker { round, deficit }));
                }
            }
        }
        wires
    }

    /// Brings the links' packets one link after the other, so that nothing but the rounds orders
    /// them.
    fn receive(wires: Vec<VecDeque<Item<Marker>>>) -> Vec<u32> {
        let mut receiver = Receiver::new(10_000);
        (0..3).for_each(|link| receiver.set_link(link, true));
        for (link, wire) in wires.into_iter().enumerate() {
            for item in wire {
                match item {
                    Item::Packet(arrival) => receiver.push(arrival).expect("there is room"),
                    Item::Mark(Marker { round, deficit }) => {
                        receiver.marker(link as u8, round, deficit);
                    }
                }
            }
        }
        std::iter::from_fn(|| receiver.pop(Instant::ZERO)).map(|delivery| delivery.seq).collect()
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
                let packet = |item: &Item<_>| matches!(item, Item::Packet(_));
                wires.iter_mut().for_each(|wire| wire.retain(packet));
            }
            disorder(&receive(wires))
        };
        let (with, without) = (lost(true), lost(false));
        assert!(with > 0 && with < 40, "{with}");
        assert!(without > 10 * with, "{without} without markers, {with} with them");
    }
}
