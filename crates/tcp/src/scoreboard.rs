//! The segments under way: what became of each, and the order in which they were sent.

use crate::ranges::Ranges;
use sheaf_stage::Instant;
use std::collections::{BTreeSet, VecDeque};

/// State of a segment that was sent and not yet acknowledged in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    InFlight,
    /// Taken for lost, and not yet sent again.
    Lost,
    /// Acknowledged selectively.
    Delivered,
}

/// A segment that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub start: u64,
    pub end: u64,
    /// Time of the last transmission, and its place among all transmissions.
    pub sent: Instant,
    pub order: u64,
    pub fate: Fate,
    pub repeats: u32,
    /// State of the delivery rate when it was sent.
    pub mark: Mark,
}

/// State of the delivery rate at a transmission
/// (draft-cheng-iccrg-delivery-rate-estimation-00, section 3.1).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark {
    /// Segments delivered so far, and the time of the last.
    pub delivered: u64,
    pub delivered_at: Instant,
    /// Transmission of the segment whose delivery was the newest.
    pub first_sent: Instant,
    /// Whether the application, not the path, held the sender back.
    pub limited: bool,
}

/// All segments between the first unacknowledged offset and the next one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scoreboard {
    flight: VecDeque<Sent>,
    /// Offsets acknowledged selectively.
    sacked: Ranges,
    /// Starts of lost segments.
    lost: BTreeSet<u64>,
    /// Transmissions in their order: place and start. One whose segment was sent again since, or is
    /// no longer under way, is stale.
    transmissions: VecDeque<(u64, u64)>,
    /// Place of the next transmission.
    order: u64,
    in_flight: u32,
    delivered: u32,
    /// End of the highest segment acknowledged in any way.
    pub highest: u64,
}

impl Scoreboard {
    pub fn is_empty(&self) -> bool {
        self.flight.is_empty()
    }

    /// Segments on the scoreboard.
    pub fn len(&self) -> u32 {
        self.flight.len() as u32
    }

    /// Segments that are in the network, as far as is known.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Segments taken for lost and not sent again.
    pub fn lost(&self) -> u32 {
        self.lost.len() as u32
    }

    /// Segments acknowledged selectively.
    pub fn delivered(&self) -> u32 {
        self.delivered
    }

    pub fn first(&self) -> Option<&Sent> {
        self.flight.front()
    }

    /// The last segment that the receiver is not known to have.
    pub fn last_missing(&self) -> Option<&Sent> {
        self.flight.iter().rev().find(|one| one.fate != Fate::Delivered)
    }

    /// The first segment that is lost.
    pub fn first_lost(&self) -> Option<&Sent> {
        let start = self.lost.first()?;
        Some(&self.flight[self.index(*start)])
    }

    /// The segment at `start`.
    pub fn get(&self, start: u64) -> &Sent {
        &self.flight[self.index(start)]
    }

    /// Repeats in the network. Counted one by one: it is rarely asked for.
    pub fn repeated(&self) -> u32 {
        let under_way = |one: &&Sent| one.repeats > 0 && one.fate == Fate::InFlight;
        self.flight.iter().filter(under_way).count() as u32
    }

    fn index(&self, start: u64) -> usize {
        self.flight.partition_point(|one| one.start < start)
    }

    /// `start..end` is sent for the first time.
    pub fn send(&mut self, start: u64, end: u64, mark: Mark, now: Instant) {
        let order = self.next_order(start);
        let fate = Fate::InFlight;
        self.flight.push_back(Sent { start, end, sent: now, order, fate, repeats: 0, mark });
        self.in_flight += 1;
    }

    /// The segment at `start`, which was not delivered, is sent again.
    pub fn repeat(&mut self, start: u64, mark: Mark, now: Instant) {
        let order = self.next_order(start);
        let at = self.index(start);
        let one = &mut self.flight[at];
        debug_assert_ne!(one.fate, Fate::Delivered, "counts would no longer be right");
        if one.fate == Fate::Lost {
            self.lost.remove(&start);
            self.in_flight += 1;
        }
        (one.sent, one.order, one.fate, one.mark) = (now, order, Fate::InFlight, mark);
        one.repeats += 1;
    }

    fn next_order(&mut self, start: u64) -> u64 {
        self.order += 1;
        self.transmissions.push_back((self.order, start));
        // Probes repeat what is under way; without this, stale entries could pile up behind one
        // that is not.
        if self.transmissions.len() > 2 * self.flight.len() + 16 {
            let mut all = std::mem::take(&mut self.transmissions);
            all.retain(|(order, start)| *order == self.order || self.current(*order, *start));
            self.transmissions = all;
        }
        self.order
    }

    fn current(&self, order: u64, start: u64) -> bool {
        let one = self.flight.get(self.index(start));
        one.is_some_and(|one| one.order == order && one.fate == Fate::InFlight)
    }

    /// Everything before `offset` is acknowledged: moves it to `gone`, with the fate it had.
    pub fn acknowledge(&mut self, offset: u64, gone: &mut Vec<Sent>) {
        while let Some(one) = self.flight.front().filter(|one| one.end <= offset).copied() {
            self.flight.pop_front();
            match one.fate {
                Fate::InFlight => self.in_flight -= 1,
                Fate::Delivered => self.delivered -= 1,
                Fate::Lost => {
                    self.lost.remove(&one.start);
                }
            }
            gone.push(one);
        }
        self.sacked.remove_before(offset);
        while let Some((order, start)) = self.transmissions.front().copied() {
            if self.current(order, start) {
                break;
            }
            self.transmissions.pop_front();
        }
    }

    /// `start..end` is acknowledged selectively: adds the segments newly delivered to `news`, with
    /// the fate that they had.
    pub fn deliver(&mut self, start: u64, end: u64, news: &mut Vec<Sent>) {
        let Scoreboard { flight, sacked, .. } = self;
        let (mut from, mut until) = (u64::MAX, 0);
        sacked.insert(start, end, |first, last| {
            (from, until) = (from.min(first), until.max(last));
        });
        if from >= until {
            return;
        }
        let first = flight.partition_point(|one| one.end <= from);
        for one in flight.range_mut(first..) {
            if one.start >= until {
                break;
            }
            if one.fate == Fate::Delivered || !sacked.contains(one.start, one.end) {
                continue;
            }
            news.push(*one);
            match one.fate {
                Fate::InFlight => self.in_flight -= 1,
                _ => {
                    self.lost.remove(&one.start);
                }
            }
            one.fate = Fate::Delivered;
            self.delivered += 1;
        }
    }

    /// Goes through the segments in flight in the order of their transmission, up to place `until`.
    /// Those for which `lost` returns `true` are lost. Returns their number.
    pub fn lose(&mut self, until: u64, mut lost: impl FnMut(&Sent) -> bool) -> u32 {
        let mut count = 0;
        let mut at = 0;
        while let Some((order, start)) = self.transmissions.get(at).copied() {
            if order > until {
                break;
            }
            let index = self.index(start);
            let one = self.flight.get_mut(index);
            let one = one.filter(|one| one.order == order && one.fate == Fate::InFlight);
            let keep = match one {
                Some(one) if lost(one) => {
                    one.fate = Fate::Lost;
                    self.lost.insert(start);
                    self.in_flight -= 1;
                    count += 1;
                    false
                }
                Some(_) => true,
                None => false,
            };
            if keep || at > 0 {
                at += 1;
            } else {
                self.transmissions.pop_front();
            }
        }
        count
    }

    /// Takes no segment for lost any more: the acknowledgements were only late.
    pub fn find_lost(&mut self) {
        for start in std::mem::take(&mut self.lost) {
            let at = self.index(start);
            self.flight[at].fate = Fate::InFlight;
            self.in_flight += 1;
        }
        // Places of lost segments were forgotten.
        let there = self.flight.iter().filter(|one| one.fate == Fate::InFlight);
        self.transmissions = there.map(|one| (one.order, one.start)).collect();
        self.transmissions.make_contiguous().sort_unstable();
    }

    /// Forgets what was acknowledged selectively: the receiver discarded it (RFC 2018, section 8).
    pub fn renege(&mut self) {
        for one in &mut self.flight {
            if one.fate == Fate::Delivered {
                one.fate = Fate::Lost;
                self.lost.insert(one.start);
            }
        }
        self.delivered = 0;
        self.sacked.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(segments: u64) -> Scoreboard {
        let mut board = Scoreboard::default();
        for number in 0..segments {
            board.send(number * 10, number * 10 + 10, Mark::default(), Instant::ZERO);
        }
        board
    }

    #[test]
    fn a_segment_is_delivered_once_and_only_as_a_whole() {
        let mut board = board(5);
        let mut news = Vec::new();
        board.deliver(10, 25, &mut news);
        assert_eq!(news.iter().map(|one| one.start).collect::<Vec<_>>(), [10]);
        board.deliver(10, 30, &mut news);
        assert_eq!(news.iter().map(|one| one.start).collect::<Vec<_>>(), [10, 20]);
        board.deliver(10, 30, &mut news);
        assert_eq!((news.len(), board.in_flight(), board.delivered()), (2, 3, 2));
        let mut gone = Vec::new();
        board.acknowledge(35, &mut gone);
        assert_eq!(gone.len(), 3);
        assert_eq!((board.in_flight(), board.delivered(), board.len()), (2, 0, 2));
    }

    #[test]
    fn segments_are_lost_in_the_order_in_which_they_were_sent() {
        let mut board = board(4);
        assert_eq!(board.lose(2, |_| true), 2);
        assert_eq!(board.first_lost().unwrap().start, 0);
        board.repeat(0, Mark::default(), Instant::ZERO);
        assert_eq!((board.lost(), board.in_flight()), (1, 3));
        let mut seen = Vec::new();
        board.lose(u64::MAX, |one| {
            seen.push(one.start);
            false
        });
        assert_eq!(seen, [20, 30, 0], "the one sent again is the last");
        board.find_lost();
        assert_eq!((board.lost(), board.in_flight()), (0, 4));
    }

    #[test]
    fn repeating_without_end_does_not_grow_the_memory() {
        let mut board = board(2);
        for _ in 0..10_000 {
            board.repeat(10, Mark::default(), Instant::ZERO);
        }
        assert!(board.transmissions.len() < 40, "{}", board.transmissions.len());
    }
}
