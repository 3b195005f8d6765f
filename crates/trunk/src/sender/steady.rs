//! One delay for a TCP flow, that of the link which has most of the rate.
//!
//! Principle: BBR keeps twice its rate times its *least* round trip under way, and takes the least
//! of ten seconds, the handshake's included (`bbr_init` and `bbr_update_min_rtt` of Linux). Over
//! 5 Mbit/s with 10 ms and 20 Mbit/s with 50 ms, packets that take the quick link while it is idle
//! make that 20 ms. Twice as much is not enough for the 60 ms that the link of four fifths of the
//! rate takes; so the flow has less at each round trip, until the quick link alone carries it.
//!
//! So what TCP measures its round trip by takes the main link as long as that has room, and the
//! quicker ones carry what is more. As the receiver keeps the order of a flow, packets of these
//! wait there for the ones before them, and all have the delay of the main link: what the flow
//! would have over its best link alone.
//!
//! * Only full segments count, as a flow that never sends one has no use for rate, and what follows
//!   them within the time that BBR remembers; and the second segment of a handshake, by which both
//!   ends measure their first round trip, with what its sender sends in that time.
//!   Acknowledgements, keystrokes, short questions and all that is not TCP take the link on which
//!   they arrive first.
//! * Only flows of which nothing took a quick link for as long as BBR remembers: another one has a
//!   short round trip already, and over the main link alone less than over both.
//! * Only where the main link is so much farther that BBR needs it, and only for as far as the
//!   receiver waits for packets of a flow.

use super::Sender;
use super::deal::MOST_SPREAD;
use super::flow_queues::Next;
use super::turns::READY;
use crate::flow::DeliveryMode;
use crate::link::{Link, Precedence};
use crate::schedule::Candidates;
use crate::segment::Segment;
use sheaf_stage::{Duration, Instant};

/// Queue of the main link up to which packets keep to it: what links are dealt in advance, and the
/// 4 ms that are kept in a link whose rate is used up.
const MOST_QUEUE: Duration = READY.saturating_add(Duration::from_millis(4));

impl Sender {
    /// The link that keeps the flow of this packet at one delay, if it has room for it.
    pub(super) fn steady_link(
        &mut self,
        usable: u16,
        candidates: &Candidates,
        next: &Next,
        precedence: Precedence,
        now: Instant,
    ) -> Option<usize> {
        if next.segment == Segment::Other || next.mode != DeliveryMode::Order {
            return None;
        }
        let main = self.far_main_link(usable);
        let steady = &mut self.steady[next.flow.index()];
        let Some(main) = main else {
            steady.was_free(now);
            return None;
        };
        let is_full = 2 * next.len >= usize::from(self.config.frame);
        if !steady.keeps(next.segment, is_full, now) {
            return None;
        }
        let link = self.links[main].as_ref()?;
        let is_short = link.wait_of(precedence, now) <= MOST_QUEUE;
        (candidates[main].usable && candidates[main].room && is_short).then_some(main)
    }

    /// The link that has more rate than all quicker ones together, if the quickest is so much
    /// quicker that BBR, once it has seen this one, leaves the other empty.
    fn far_main_link(&self, usable: u16) -> Option<usize> {
        let quickest = self.reference(usable)?;
        let behind = |link: &Link| {
            let delay = link.rate.delay().filter(|_| !link.has_queue_report())?;
            Some(crate::rate::later(delay, quickest).max(0) as u64)
        };
        let links = || self.among(usable).filter_map(|(at, link)| Some((at, link, behind(link)?)));
        let in_time = links().filter(|(.., behind)| *behind <= MOST_SPREAD.as_micros() as u64);
        let (at, main, main_behind) = in_time.max_by_key(|(_, link, _)| link.rate.rate())?;
        if main_behind == 0 {
            return None;
        }
        let quicker = || links().filter(|(.., behind)| *behind < main_behind);
        // Round trips of 2 : 3 leave BBR a quarter of what is under way for queues.
        let least = quicker().map(|(_, link, _)| link.round_trip()).min()?;
        let is_far = Duration::from_micros(2 * main_behind) > least;
        let rates: u64 = quicker().map(|(_, link, _)| link.rate.rate().as_bps()).sum();
        // Learned rates vary by less.
        let has_more = main.rate.rate().as_bps() > rates + rates / 8;
        let is_dear = quicker().any(|(_, link, _)| link.config.cost < main.config.cost);
        (is_far && has_more && !is_dear).then_some(at)
    }
}
