//! Round robin with the quarter rule.
//!
//! Source: NCTU, section on load balancing: a link whose transmit queue is above a quarter of its
//! maximum counts as busy; the next that is not takes the packet; when all are busy the choice of
//! the round stands, and the packet is dropped if that link has no room.

use super::Candidates;
use sheaf_wire::trunk::MAX_LINKS;

/// The link in turn.
#[derive(Clone, Debug, Default)]
pub(super) struct Turn {
    next: usize,
}

impl Turn {
    pub(super) fn pick(&mut self, links: &Candidates) -> Option<usize> {
        let order = (0..MAX_LINKS).map(|step| (self.next + step) % MAX_LINKS);
        let mut usable = order.filter(|link| links[*link].usable).peekable();
        let choice = *usable.peek()?;
        let link = usable.find(|link| !links[*link].busy).unwrap_or(choice);
        self.next = (link + 1) % MAX_LINKS;
        links[link].room.then_some(link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Candidate;

    fn links(busy: [bool; 3]) -> Candidates {
        let mut links = Candidates::default();
        for (link, busy) in busy.into_iter().enumerate() {
            links[link] = Candidate { usable: true, room: true, busy, ..Candidate::default() };
        }
        links
    }

    #[test]
    fn links_take_turns() {
        let mut turn = Turn::default();
        let order: Vec<_> = (0..6).map(|_| turn.pick(&links([false; 3])).unwrap()).collect();
        assert_eq!(order, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_busy_link_is_passed_over() {
        let mut turn = Turn::default();
        let order: Vec<_> =
            (0..4).map(|_| turn.pick(&links([false, true, false])).unwrap()).collect();
        assert_eq!(order, [0, 2, 0, 2]);
    }

    #[test]
    fn when_all_are_busy_the_round_goes_on() {
        let mut turn = Turn::default();
        let order: Vec<_> = (0..4).map(|_| turn.pick(&links([true; 3])).unwrap()).collect();
        assert_eq!(order, [0, 1, 2, 0]);
        let mut full = links([true; 3]);
        full[1].room = false;
        assert_eq!(turn.pick(&full), None, "the packet of a full link is dropped");
    }
}
