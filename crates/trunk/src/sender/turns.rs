//! Packets that wait for their turn, and their way to the links when these have room.
//!
//! Principle: packets wait in queues of flows for as long as possible, and are given to the links,
//! whose queues they cannot leave in another order, when these need them: as the queues of Linux's
//! mac80211 before a radio ("Ending the Anomaly", USENIX ATC 2017). A link needs packets for the
//! next [`READY`]; a quick link for as much longer as a slower one beside it takes, for so packets
//! that were dealt to both arrive in their order.

use super::flow_queues::{Next, Waiting};
use super::{Body, Sender};
use crate::config::Scheduler;
use crate::flow::{DeliveryMode, Flow};
use crate::link::{Link, Precedence};
use crate::schedule::{Candidates, TOO_LATE};
use crate::segment::Segment;
use sheaf_stage::{DropReason, Duration, Instant};

/// Time for which packets are dealt out in advance: that by which sending may run behind its pace
/// and catch up at once.
pub(super) const READY: Duration = Duration::from_millis(2);
/// Frames dealt out in advance however long they take: one that leaves and one that follows it, or
/// the link would seem to have run empty.
const READY_FRAMES: usize = 2;

impl Sender {
    /// Puts a packet, which goes as `body`, in the queue of its flow.
    pub(super) fn wait(
        &mut self,
        packet: &[u8],
        body: Body<'_>,
        flow: Flow,
        mode: DeliveryMode,
        now: Instant,
    ) -> Result<(), DropReason> {
        let usable = self.usable(now);
        if usable == 0 {
            return Err(DropReason::Unreachable);
        }
        let queue = self.flows.queue_of(packet, self.config.ip);
        if self.is_full(usable) {
            if self.flows.longest() == queue {
                return Err(DropReason::QueueFull);
            }
            if let Some(waiting) = self.flows.drop_longest() {
                self.dropped(waiting, DropReason::QueueFull);
            }
        }
        let segment = Segment::of(packet, self.config.ip);
        let (bytes, packing) = (self.framed(body), body.packing);
        self.held += 1;
        let waiting = Waiting { bytes, packing, flow, mode, segment, at: now };
        let is_new = self.flows.push(queue, waiting);
        // Behind packets that wait nothing changes.
        self.blocked &= !is_new;
        self.deal_out(now);
        Ok(())
    }

    /// Whether another packet would wait for its turn for less than CoDel lets packets wait: an
    /// application that waits for room loses nothing.
    pub fn has_room(&self, now: Instant) -> bool {
        let usable = self.usable(now);
        let target = self.config.target();
        let bytes = self.among(usable).map(|(_, link)| link.rate.bytes_in(target));
        self.flows.is_empty() || self.flows.bytes() < bytes.sum()
    }

    /// Whether the queues of flows hold as much as the links in `usable` may have waiting.
    fn is_full(&self, usable: u16) -> bool {
        if self.flows.is_empty() {
            return false;
        }
        let config = &self.config;
        let time = config.queue + self.spread(usable);
        let least = config.queue_frames as u64 * u64::from(config.frame);
        let bytes = self.among(usable).map(|(_, link)| link.rate.bytes_in(time).max(least));
        let links = usable.count_ones() as usize;
        self.flows.bytes() >= bytes.sum() || self.flows.len() >= links * config.queue_frames_max
    }

    /// Gives the links the packets whose turn it is, as far as these have room.
    pub(super) fn deal_out(&mut self, now: Instant) {
        if self.blocked || self.flows.is_empty() {
            return;
        }
        let usable = self.usable(now);
        if usable == 0 {
            while let Some(waiting) = self.flows.take_any() {
                self.dropped(waiting, DropReason::Unreachable);
            }
            return;
        }
        let target = self.config.target() + self.spread(usable) + self.repair_time(usable, now);
        while let Some(next) = self.flows.next() {
            let alone = self.waiting[next.flow.index()] == 0 && next.mode != DeliveryMode::Copies;
            let earliest = self.config.scheduler == Scheduler::Earliest;
            let precedence = match next.is_new && alone && earliest {
                true => Precedence::Sparse,
                false => Precedence::None,
            };
            let joined = self.joined(&next, precedence);
            let chosen = match joined {
                Some(_) => 0,
                None => self.room_for(usable, &next, precedence, now),
            };
            if joined.is_none() && chosen == 0 {
                self.blocked = true;
                return;
            }
            let waiting = match self.flows.pop(target, now) {
                Some(Ok(waiting)) => waiting,
                Some(Err(waiting)) => {
                    self.dropped(waiting, DropReason::QueueManagement);
                    continue;
                }
                None => return,
            };
            self.held -= 1;
            match joined {
                Some(joined) => self.join(waiting, joined, now),
                None => {
                    // Copies take every link, as far as there is room at all.
                    let chosen = match self.scheduler(waiting.mode) {
                        Scheduler::Redundant => {
                            let len = waiting.bytes.len();
                            self.choose(waiting.mode, len, precedence, now) | chosen
                        }
                        _ => chosen,
                    };
                    self.give(waiting, precedence, chosen, now);
                }
            }
        }
    }

    /// Time that the repair of a lost frame takes, if links in `usable` lose any. The round trip of
    /// a flow varies by it, so that its queue runs empty after each repair if it holds less, and a
    /// drop would tell it of a queue that does not stand.
    fn repair_time(&self, usable: u16, now: Instant) -> Duration {
        let loses = self.among(usable).any(|(_, link)| link.loses(now));
        let quickest = self.among(usable).map(|(_, link)| link.round_trip()).min();
        quickest.filter(|_| loses).unwrap_or_default()
    }

    /// The link on which the packet whose turn it is arrives first of those that need one, or the
    /// one that keeps its flow steady, as a bit.
    fn room_for(&mut self, usable: u16, next: &Next, precedence: Precedence, now: Instant) -> u16 {
        let len = next.len;
        let mut candidates = self.candidates(usable, len, precedence, now);
        self.keep_short(usable, &mut candidates, len, precedence, now);
        if let Some(main) = self.steady_link(usable, &candidates, next, precedence, now) {
            return 1 << main;
        }
        self.state.pick(Scheduler::Earliest, &candidates, len)
    }

    /// Takes the room from links that have enough to send.
    fn keep_short(
        &self,
        usable: u16,
        candidates: &mut Candidates,
        len: usize,
        precedence: Precedence,
        now: Instant,
    ) {
        // Arrival if the link had nothing to send.
        let reference = self.reference(usable);
        let bare = |(_, link): (usize, &Link)| {
            let arrival = link.arrival((len, precedence), reference, now);
            arrival.saturating_sub(link.queued_time(precedence))
        };
        let first = self.among(usable).map(bare).min().unwrap_or_default();
        // A queue in a link is no reason to leave it out for good.
        let too_late = first + TOO_LATE + self.config.target();
        let in_time = self.among(usable).map(bare).filter(|at| *at <= too_late);
        let latest = in_time.max().unwrap_or_default();
        let dearest = self.among(usable).map(|(_, link)| link.config.cost).max();
        for (index, link) in self.among(usable) {
            let candidate = &mut candidates[index];
            // A link that costs more takes packets when those of cheaper ones wait for so long.
            let spills = dearest.filter(|dearest| link.config.cost < *dearest);
            let cheap = spills.is_some_and(|cost| link.wait_of(precedence, now) < cost + READY);
            // Behind urgent frames, too, some must be ready to have their half.
            let few = link.queue.len_of(precedence) < READY_FRAMES;
            candidate.room &= few || cheap || candidate.arrival <= latest + READY;
        }
    }

    /// Counts a packet that was dropped while it waited for its turn.
    fn dropped(&mut self, waiting: Waiting, reason: DropReason) {
        self.held -= 1;
        self.counters.drop(reason);
        self.recycle(waiting.bytes);
    }
}
