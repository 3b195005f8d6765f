//! Trigger Round Robin, a baseline.
//!
//! Source: the TRR scheme that NCTU describes (1998): the sender stays on a link for a burst and
//! ends it with a trigger cell that carries the round number; the receiver stays on that link
//! until the trigger comes. A packet that comes after the receiver had to move on is late, and
//! dropped to keep the order; TCP suffers.

use super::Candidates;
use super::rounds::{self, Rules, Turn, Turns};
use sheaf_wire::trunk::MAX_LINKS;

/// Bytes of a burst.
pub const BURST: usize = 3000;

/// The sender's rounds.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    turn: Turn,
    sent: usize,
    trigger: Option<(usize, u32)>,
}

impl Rounds {
    /// The link that takes a packet of `len` bytes; `None` without a link or room on it.
    pub(crate) fn pick(&mut self, links: &Candidates, len: usize) -> Option<usize> {
        let link = self.in_turn(links)?;
        self.sent += len;
        if self.sent >= BURST {
            self.trigger = Some((link, self.turn.round));
            self.leave();
        }
        Some(link)
    }

    /// The trigger to send behind the packet just placed: its link and round.
    pub(crate) fn take_trigger(&mut self) -> Option<(usize, u32)> {
        self.trigger.take()
    }
}

impl Turns for Rounds {
    fn link(&self) -> usize {
        self.turn.link
    }

    fn leave(&mut self) {
        self.sent = 0;
        self.turn.advance();
    }
}

/// Turns end by triggers alone; a trigger says which round of its link it ends.
#[derive(Clone, Debug, Default)]
pub struct Triggers {
    /// The receiver moved on without this link's trigger: its packets are late until one comes.
    late: [bool; MAX_LINKS],
    /// The last trigger of a late link was of a round long over, too.
    behind: [bool; MAX_LINKS],
}

impl Rules for Triggers {
    type Mark = u32;

    fn is_late(&self, link: usize) -> bool {
        self.late[link]
    }

    fn take(&mut self, _link: usize, _len: usize) -> bool {
        false
    }

    fn mark(&mut self, _link: usize, round: u32) -> u32 {
        round.wrapping_add(1)
    }

    fn give_up(&mut self, link: usize) {
        self.late[link] = true;
    }

    fn leave(&mut self) {}
}

/// The receiver that follows the triggers.
pub type Receiver = rounds::Receiver<Triggers>;

impl Receiver {
    /// Takes a trigger of a link.
    pub fn trigger(&mut self, link: u8, round: u32) {
        let link = usize::from(link) % MAX_LINKS;
        if self.rules.late[link] {
            let next = round.wrapping_add(1);
            let mut behind = next.wrapping_sub(self.turn.round).cast_signed() < 0;
            // The receiver cannot be ahead of its sender for long: a forged trigger led it away.
            if behind && self.rules.behind[link] {
                self.turn.round = next;
                behind = false;
            }
            self.due[link] = next;
            self.rules.late[link] = behind;
            self.rules.behind[link] = behind;
        } else {
            self.push_mark(link, round);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Flow;
    use crate::resequencer::Arrival;
    use sheaf_stage::{DropReason, Duration, Instant};
    use sheaf_wire::trunk::{Packing, Predecessor};

    fn packet(link: u8, seq: u32) -> Arrival {
        let (predecessor, flow) = (Predecessor::Free, Flow::default());
        Arrival {
            link,
            seq,
            predecessor,
            flow,
            urgent: false,
            hasty: false,
            packing: Packing::One,
            payload: vec![0; 100],
        }
    }

    fn receiver() -> Receiver {
        let mut receiver = Receiver::new(64);
        (0..2).for_each(|link| receiver.set_link(link, true));
        receiver
    }

    fn order(receiver: &mut Receiver) -> Vec<u32> {
        std::iter::from_fn(|| receiver.pop(Instant::ZERO)).map(|delivery| delivery.seq).collect()
    }

    #[test]
    fn the_receiver_stays_on_a_link_until_its_trigger() {
        let mut r = receiver();
        (2..4).for_each(|seq| r.push(packet(1, seq)).unwrap());
        r.trigger(1, 0);
        assert_eq!(order(&mut r), []);
        (0..2).for_each(|seq| r.push(packet(0, seq)).unwrap());
        assert_eq!(order(&mut r), [0, 1]);
        r.trigger(0, 0);
        assert_eq!(order(&mut r), [2, 3]);
        r.push(packet(0, 4)).unwrap();
        assert_eq!(order(&mut r), [4], "the burst of link 1 is over");
    }

    #[test]
    fn a_link_whose_trigger_was_lost_keeps_single_packets_of_others_for_a_quarter_of_a_second() {
        let mut r = receiver();
        r.push(packet(1, 7)).unwrap();
        assert!(r.pop(Instant::ZERO).is_none());
        let due = r.next_deadline().unwrap();
        assert!(due - Instant::ZERO <= Duration::from_millis(250));
        assert!(r.pop(due - Duration::from_nanos(1)).is_none());
        assert_eq!(r.pop(due).map(|delivery| delivery.seq), Some(7));
        assert_eq!(r.next_deadline(), None);
    }

    #[test]
    fn a_link_that_blocks_half_of_all_room_is_passed_and_its_packets_are_late() {
        let mut r = receiver();
        (0..40).for_each(|seq| r.push(packet(1, seq)).unwrap());
        assert!(!order(&mut r).is_empty());
        assert_eq!(r.push(packet(0, 100)), Err(DropReason::OutOfWindow));
        assert_eq!(r.counters().dropped(DropReason::OutOfWindow), 1);
        r.trigger(0, 50);
        assert_eq!(r.push(packet(0, 101)), Ok(()), "a trigger ends that");
    }
}
