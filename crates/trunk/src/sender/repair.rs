//! Frames sent again: those that the other end asks for, and those on a link that fell silent.
//!
//! Principle: selective repeat, per link (RFC 3366, section 1.3 and 2.2): the link's own numbers
//! show a loss within a round trip of the link, long before TCP can know it, and the receiver waits
//! for about that time ([`Resequencer`](crate::Resequencer)). A frame that is sent again takes the
//! link on which it arrives first, and a new number there, so that its loss is known, too.

use super::{Sender, bits};
use crate::config::Scheduler;
use crate::link::{History, Link, Precedence, Queued};
use crate::schedule::Candidates;
use crate::sender::LinkId;
use sheaf_stage::{Duration, Instant};
use sheaf_wire::trunk::Request;

/// Numbers looked up for one request at most: what a receiver asks for at a time, a row of losses
/// and single ones. More are forged.
const LOOKED_UP: u32 = 2048;
/// Times that a frame was lost after which a repair takes two links: the receiver waits for two
/// repairs, so it is the last that comes in time, and a flow would take the loss for its own.
const LAST_IN_TIME: u8 = 2;

impl Sender {
    /// Sends again what is still kept of the frames that the other end asks for.
    pub(crate) fn resend(&mut self, request: &Request<'_>, now: Instant) {
        let about = usize::from(request.about);
        let mut left = LOOKED_UP;
        for (first, count) in request.ranges() {
            let count = u32::from(count).min(left);
            left -= count;
            for number in (0..count).map(|n| first.wrapping_add(n)) {
                let link = self.links.get_mut(about).and_then(Option::as_mut);
                if let Some(queued) = link.and_then(|link| link.history.take(number)) {
                    self.send_again(queued, now);
                }
            }
        }
    }

    /// Sends again on other links what the other end did not report of a link that fell silent.
    pub(super) fn send_unheard_again(&mut self, index: usize, now: Instant) {
        if self.config.scheduler.strict() || self.usable(now) & !(1 << index) == 0 {
            return;
        }
        // Where the other links wait for reports, too, the other end is late, and nothing is lost.
        let responds = |(other, link): (usize, &Link)| other != index && !link.is_report_due();
        let others_respond = self.links().any(responds);
        let Some(link) = self.links[index].as_ref() else { return };
        let is_late = link.up && !link.is_passed_over() && !others_respond;
        if is_late || !link.may_alarm(now) {
            return;
        }
        let mut frames = 0;
        while let Some(queued) = self.links[index].as_mut().and_then(|link| link.take_unheard()) {
            frames += 1;
            self.send_again(queued, now);
        }
        if let Some(link) = &mut self.links[index] {
            link.alarmed(frames);
        }
    }

    /// The link on which a short frame and its reply take the least time.
    pub(crate) fn quickest(&self, now: Instant) -> Option<LinkId> {
        let usable = self.usable(now);
        let links = self.links().filter(|(index, _)| usable & 1 << index != 0);
        let quickest = links.min_by_key(|(_, link)| link.round_trip());
        quickest.map(|(index, _)| LinkId(index as u8))
    }

    /// Smoothed round trip of a link.
    pub(crate) fn round_trip(&self, id: LinkId) -> Duration {
        let link = self.links.get(id.index()).and_then(Option::as_ref);
        link.map_or(Duration::ZERO, |link| link.round_trip())
    }

    /// Keeps a copy of a frame that leaves, and gives up those that are too old.
    pub(super) fn keep(&mut self, index: usize, number: u32, queued: &Queued, now: Instant) {
        let Some(link) = &mut self.links[index] else { return };
        if !History::is_wanted(queued) || self.config.scheduler.strict() {
            return;
        }
        let oldest = link.history.expire(link.round_trip(), now);
        let kept = queued.again(oldest.or_else(|| self.spare.pop()).unwrap_or_default());
        link.history.keep(number, kept, now);
        while let Some(oldest) = link.history.expire(link.round_trip(), now) {
            if self.spare.len() < super::SPARE {
                self.spare.push(oldest);
            }
        }
    }

    /// Queues a frame that was lost, before those that are sent for the first time.
    fn send_again(&mut self, queued: Queued, now: Instant) {
        // Room and wait are those of urgent frames: it goes before the others.
        let (usable, len) = (self.usable(now), queued.bytes.len());
        let candidates = self.candidates(usable, len, Precedence::Urgent, now);
        let chosen = self.state.pick(Scheduler::Earliest, &candidates, queued.bytes.len());
        let Some(index) = bits(chosen).next() else { return self.recycle(queued.bytes) };
        if queued.transmissions >= LAST_IN_TIME {
            let others = self.candidates(usable & !(1 << index), len, Precedence::Urgent, now);
            self.copy_again(&queued, candidates[index].arrival, &others);
        }
        self.queue_again(index, queued);
    }
    /// Queues a copy of a frame that was lost, and that would arrive at `arrival`, on the link of
    /// `others` on which it arrives next, unless a repair would come before it.
    fn copy_again(&mut self, queued: &Queued, arrival: Duration, others: &Candidates) {
        let chosen = self.state.pick(Scheduler::Earliest, others, queued.bytes.len());
        let Some(index) = bits(chosen).next() else { return };
        let Some(link) = &self.links[index] else { return };
        if link.config.is_paid() || others[index].arrival >= arrival + link.round_trip() {
            return;
        }
        let bytes = self.copied(&queued.bytes);
        self.queue_again(index, Queued { copy: true, bytes, ..*queued });
    }

    /// Puts a frame that was lost in the queue of a link.
    fn queue_again(&mut self, index: usize, queued: Queued) {
        // It is no packet that came in; it counts as one so that the balance holds.
        self.held += u64::from(queued.packets);
        self.counters.packets_in += u64::from(queued.packets);
        self.queue(index, queued);
    }
}
