//! Choice of the links that take packets, and dealing out again when it changes.

use super::{Sender, bits};
use crate::config::Scheduler;
use crate::link::{Link, Precedence, Queued};
use crate::schedule::Candidates;
use sheaf_stage::{DropReason, Duration, Instant};

/// Longest time by which packets may wait for a quick link because another is slower: a flow that
/// is to fill both has to wait for the slower anyway, but beyond this the delay costs more than the
/// rate gives.
pub(super) const MOST_SPREAD: Duration = Duration::from_millis(100);

/// Links as bits by their numbers.
fn set_of<'a>(links: impl Iterator<Item = (usize, &'a Link)>) -> u16 {
    links.fold(0, |bits, (index, _)| bits | 1 << index)
}

impl Sender {
    /// Difference of the delays of the links that take packets, those that are too slow apart.
    /// Where the carrier reports its queue, delays are its queue's and not the path's.
    pub(super) fn spread(&self, usable: u16) -> Duration {
        let delays = || {
            let paced = self.among(usable).filter(|(_, link)| !link.has_queue_report());
            paced.filter_map(|(_, link)| link.rate.delay())
        };
        let Some(first) = delays().reduce(|a, b| if crate::rate::later(b, a) < 0 { b } else { a })
        else {
            return Duration::ZERO;
        };
        let later = |delay| crate::rate::later(delay, first).max(0) as u64;
        let spread = delays().map(|delay| Duration::from_micros(later(delay)));
        spread.filter(|spread| *spread <= MOST_SPREAD).max().unwrap_or_default()
    }

    /// The links that take packets, as bits: those that respond and lose little, else those that
    /// respond, else those that are up; backups only where no other link responds and loses little.
    pub(super) fn usable(&self, now: Instant) -> u16 {
        self.usable_of(self.that_respond(now))
    }

    /// The links that respond, as bits.
    fn that_respond(&self, now: Instant) -> u16 {
        set_of(self.links().filter(|(_, link)| link.responds(now)))
    }

    /// The links that take packets where those in `responding` respond.
    pub(super) fn usable_of(&self, responding: u16) -> u16 {
        let set = |wanted: &dyn Fn(usize, &Link) -> bool| {
            set_of(self.links().filter(|(index, link)| link.up && wanted(*index, link)))
        };
        let responding = set(&|index, _| responding & 1 << index != 0);
        if responding == 0 {
            return set(&|_, _| true);
        }
        let good = set(&|index, link| responding & 1 << index != 0 && !link.lossy);
        let regular = set(&|index, link| good & 1 << index != 0 && !link.config.backup);
        let only = self.fallback.only().map_or(u16::MAX, |link| 1 << link);
        let sets = [regular & only, regular, good & only, good, responding];
        sets.into_iter().find(|set| *set != 0).unwrap_or(0)
    }

    /// Whether a link is paid for, and others take packets, as far as was last looked.
    pub(crate) fn is_at_rest(&self, index: usize) -> bool {
        let link = self.links.get(index).and_then(Option::as_ref);
        // A receiver that follows rounds has to hear each link.
        let Some(link) = link.filter(|link| link.config.is_paid()) else { return false };
        if self.config.scheduler.strict() {
            return false;
        }
        let usable = self.usable_of(self.responding);
        match usable & 1 << index {
            0 => usable != 0,
            _ => self.cheaper(usable, link.config.cost).next().is_some(),
        }
    }

    /// The links in `usable` that cost less than `cost`.
    fn cheaper(&self, usable: u16, cost: Duration) -> impl Iterator<Item = &Link> {
        let links = self.among(usable).map(|(_, link)| link);
        links.filter(move |link| link.config.cost < cost)
    }

    /// The links in `usable` that a packet may take for what they cost.
    fn affordable(&self, usable: u16, precedence: Precedence, now: Instant) -> u16 {
        let is_worth = |link: &Link| {
            let cost = link.config.cost;
            let is_full = |less: &Link| {
                less.wait_of(precedence, now) >= cost
                    || !less.has_room(precedence, Duration::ZERO, &self.config)
            };
            // Without cost none is cheaper.
            cost.is_zero() || self.cheaper(usable, cost).all(is_full)
        };
        set_of(self.among(usable).filter(|(_, link)| is_worth(link)))
    }

    /// The links in a set.
    pub(super) fn among(&self, set: u16) -> impl Iterator<Item = (usize, &Link)> {
        self.links().filter(move |(index, _)| set & 1 << index != 0)
    }

    /// The links that take copies, as bits: also those that do not respond. Silence of a tenth of a
    /// second may be lost reports; a single copy would then be lost with the next row of losses.
    pub(super) fn usable_for_copies(&self, now: Instant) -> u16 {
        let usable = |link: &Link| link.up && !link.lossy && !link.config.is_paid();
        let good = set_of(self.links().filter(|(_, link)| usable(link)));
        let only = self.fallback.only().map_or(u16::MAX, |link| 1 << link);
        if good & only == 0 { self.usable(now) } else { good & only }
    }

    /// The links in `usable`, as the scheduler sees them for a packet of `len` bytes.
    pub(super) fn candidates(
        &self,
        usable: u16,
        len: usize,
        precedence: Precedence,
        now: Instant,
    ) -> Candidates {
        let usable = self.affordable(usable, precedence, now);
        let spread = self.spread(usable);
        let reference = self.reference(usable);
        let mut candidates = Candidates::default();
        for (index, link) in self.among(usable) {
            let candidate = &mut candidates[index];
            candidate.usable = true;
            candidate.room = link.has_room(precedence, spread, &self.config);
            match self.config.scheduler {
                Scheduler::RoundRobin => candidate.busy = link.is_busy(&self.config),
                Scheduler::Earliest | Scheduler::Redundant => {
                    candidate.arrival = link.arrival((len, precedence), reference, now)
                }
                _ => {}
            }
        }
        candidates
    }

    /// The shortest delay of the links in a set, on the other end's clock.
    pub(super) fn reference(&self, usable: u16) -> Option<u32> {
        let delays = self.among(usable).filter_map(|(_, link)| link.rate.delay());
        delays.reduce(|a, b| if crate::rate::later(b, a) < 0 { b } else { a })
    }

    /// Deals out again what waits for links that stopped responding.
    pub(super) fn check_responding(&mut self, now: Instant) {
        let responding = self.that_respond(now);
        let silent = std::mem::replace(&mut self.responding, responding) & !responding;
        if silent != 0 {
            bits(silent).for_each(|index| self.send_unheard_again(index, now));
            self.deal_again(now);
        }
    }

    /// Takes back all packets that wait and deals them out anew. A copy stays on its link while
    /// that is used: the other links have one already. The baselines cannot deal again, because
    /// their receiver derives the order from the link of each packet.
    pub(super) fn deal_again(&mut self, now: Instant) {
        let strict = self.config.scheduler.strict();
        let mut dealing = std::mem::take(&mut self.dealing);
        for (index, link) in self.links.iter_mut().enumerate() {
            if let Some(link) = link.as_mut().filter(|link| !strict || !link.up) {
                dealing.extend(link.queue.take_all().map(|queued| (index, queued)));
            }
        }
        if strict {
            dealing.drain(..).for_each(|(_, queued)| self.give_up(queued, DropReason::Unreachable));
        }
        let usable = self.usable(now);
        let stays = |link: usize, queued: &Queued| queued.copy && usable & 1 << link != 0;
        // Copies that stay come first, so that the others are dropped as duplicates of them.
        dealing.sort_by_key(|(link, queued)| {
            (queued.seq.wrapping_sub(self.next_seq), !stays(*link, queued))
        });
        (self.newest, self.newest_sparse) = (None, None);
        let mut before = None;
        for (from, queued) in dealing.drain(..) {
            let again = before.replace(queued.seq) == Some(queued.seq);
            let to = match stays(from, &queued) {
                true => Some(from),
                false if again => {
                    self.give_up(queued, DropReason::Duplicate);
                    continue;
                }
                false => self.deal(&queued, now),
            };
            match to.and_then(|index| self.links[index].as_mut()) {
                Some(link) => link.queue.push(queued),
                None => self.give_up(queued, DropReason::QueueFull),
            }
        }
        self.dealing = dealing;
        self.blocked = false;
    }

    /// The link that takes a packet which has been numbered before.
    fn deal(&mut self, queued: &Queued, now: Instant) -> Option<usize> {
        let len = queued.bytes.len();
        let all = self.candidates(self.usable(now), len, queued.precedence, now);
        // The receiver takes a link that has carried a later number to have passed this one, frames
        // that overtook it apart.
        let mut candidates = all;
        for (candidate, link) in candidates.iter_mut().zip(&self.links) {
            let last = link
                .as_ref()
                .and_then(|link| link.last_sent)
                .filter(|_| queued.precedence != Precedence::Urgent);
            let passed = |last: u32| queued.seq.wrapping_sub(last).cast_signed() < 0;
            candidate.usable &= !last.is_some_and(passed);
        }
        let scheduler = match self.config.scheduler {
            Scheduler::Redundant => Scheduler::Earliest,
            scheduler => scheduler,
        };
        let chosen = match self.state.pick(scheduler, &candidates, len) {
            0 => self.state.pick(scheduler, &all, len),
            chosen => chosen,
        };
        bits(chosen).next()
    }

    fn give_up(&mut self, queued: Queued, reason: DropReason) {
        self.held -= u64::from(queued.packets);
        self.left(&queued);
        self.counters.drop_many(reason, u64::from(queued.packets));
        self.recycle(queued.bytes);
    }
}
