//! Parities of frames that may be lost, in time that links have left.
//!
//! Principle: forward error correction (RFC 6363; one row of RFC 8627) out of what is left of the
//! rate. Frames that leave on a link which loses some are summed up, link by link. When a link has
//! nothing to send, a sum leaves on it, and the next one begins: where much is left each frame has
//! a copy, where less is left several have one parity. So a lost frame is known a few milliseconds
//! after it would have come, and not after the round trip and the wait of a repair
//! ([`repair`](super::repair)), which a flow takes for its own: it would think that the path is
//! longer or full (HyStart), or have too little under way (BBR).
//!
//! * After a repair a flow sends its whole window, and nothing more until that arrives: the links
//!   are busy and then at rest. A sum that takes no more frames leaves before what waits, out of
//!   the time that the link had left lately: a frame waits for one parity for each sixteen frames
//!   of the burst before it. Urgent frames wait for none but the one that is being sent.
//! * Where nothing is left of the rate there are no parities, and what is lost is sent again, as it
//!   is anyway. No more is sent than the learned rate, and a link with a queue on its way carries
//!   none.
//! * Frames on links that lose nothing are not summed up. Links that are paid for carry no parity.
//! * Packets of which each link has a copy need none. Nor do other urgent ones: a parity of a
//!   single packet is as long as it, and a call is to cost little more than its packets
//!   (`copies none`).

use super::{LinkId, Sender};
use crate::link::{Link, Precedence, Queued};
use sheaf_stage::{Duration, Instant};
use sheaf_wire::trunk::{Data, HEADER_LEN, PARITY_LEN, Repr};

/// Queue of a link from which on it carries none when it has nothing to send: they would keep it
/// full, and what goes first in the trunk, as calls, would wait there. Less is noise.
const MOST_QUEUE: Duration = Duration::from_millis(1);
/// The same while it has something to send: the queue that a link is kept with whose rate is used
/// up ([`rate`](crate::rate)). A link that sends a little less has some of it, and time left.
const MOST_QUEUE_IN_BURST: Duration = Duration::from_millis(4);

/// Counters of the parities sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParityStats {
    /// Parities.
    pub sent: u64,
    /// Frames in their sums.
    pub frames: u64,
}

impl Sender {
    /// A session begins. `recovers`: the other end takes parities.
    pub(crate) fn restart_parities(&mut self, recovers: bool) {
        self.protects = recovers && self.config.parity && !self.config.scheduler.strict();
        self.links.iter_mut().flatten().for_each(|link| link.unprotected.clear());
    }

    /// Counters of the parities sent.
    pub fn parity_stats(&self) -> ParityStats {
        self.parity_stats
    }

    /// Adds a frame that left on a link, with its header `repr`, to the sum if it may be lost.
    pub(super) fn sum_up(&mut self, index: usize, repr: &Repr, queued: &Queued, now: Instant) {
        let Some(link) = self.links[index].as_mut().filter(|link| link.loses(now)) else { return };
        let payload = &queued.bytes[HEADER_LEN..];
        let fits = PARITY_LEN + payload.len() <= usize::from(self.config.frame);
        let is_urgent = queued.precedence == Precedence::Urgent;
        let is_new = !queued.copy && queued.transmissions == 0;
        if self.protects && fits && is_new && !is_urgent {
            link.unprotected.add(&Data { repr: *repr, payload }, now);
        }
    }

    /// The time from which the next parity can leave.
    pub(super) fn parity_due(&self) -> Option<Instant> {
        let (index, from) = self.at_rest()?;
        self.unprotected(index, |link| link.unprotected.since(from)).map(|_| from)
    }

    /// Writes the parity that can leave at `now` on a link that has nothing to send over `out`, and
    /// returns its link.
    pub(super) fn poll_parity(
        &mut self,
        tag: u8,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Option<LinkId> {
        self.links.iter_mut().flatten().for_each(|link| link.unprotected.expire(now));
        let (index, _) = self.at_rest().filter(|(_, from)| *from <= now)?;
        let of = self.unprotected(index, |link| link.unprotected.since(now))?;
        self.emit_parity(index, of, tag, now, out)
    }

    /// Writes the parity that leaves on link `index` before what waits there over `out`, if the
    /// link had the time left.
    pub(super) fn poll_parity_in_burst(
        &mut self,
        index: usize,
        tag: u8,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Option<LinkId> {
        let of = self.unprotected(index, |link| link.unprotected.full_since(now))?;
        let left = self.links[index].as_ref()?.spare_after(self.parity_len(of)?)?;
        self.carries_parities(MOST_QUEUE_IN_BURST).find(|(carries, _)| *carries == index)?;
        self.links[index].as_mut()?.spare = left;
        self.emit_parity(index, of, tag, now, out)
    }

    /// Bytes of the next parity of frames of link `of`.
    fn parity_len(&self, of: usize) -> Option<usize> {
        Some(PARITY_LEN + self.links[of].as_ref()?.unprotected.payload_len())
    }

    /// Writes the parity of frames of link `of` that leaves on link `index`.
    fn emit_parity(
        &mut self,
        index: usize,
        of: usize,
        tag: u8,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Option<LinkId> {
        let len = self.parity_len(of)?;
        let link = self.links[index].as_mut()?;
        let link_seq = link.number_data(len, now) as u16;
        link.pace(len, now);
        let (members, sum) = self.links[of].as_mut()?.unprotected.take();
        sum.parity(index as u8, tag, link_seq, members).emit(out);
        self.parity_stats.sent += 1;
        self.parity_stats.frames += u64::from(members.mask.count_ones());
        Some(LinkId(index as u8))
    }

    /// The link whose frames have waited the longest, by `since`, for a parity that leaves on link
    /// `index`: another one, if there are any, as losses come in rows.
    fn unprotected(&self, index: usize, since: impl Fn(&Link) -> Option<Instant>) -> Option<usize> {
        let waiting = self.links().filter_map(|(of, link)| Some((of == index, since(link)?, of)));
        waiting.min().map(|(.., of)| of)
    }

    /// The link that has nothing to send first, and the time, if there are frames without parity.
    fn at_rest(&self) -> Option<(usize, Instant)> {
        if self.links().all(|(_, link)| link.unprotected.is_empty()) {
            return None;
        }
        let carries = self.carries_parities(MOST_QUEUE);
        let resting = carries.filter_map(|(index, link)| Some((index, link.rests_from()?)));
        resting.min_by_key(|(_, from)| *from)
    }

    /// The links on which a parity may leave: those with less than `queue` on their way.
    fn carries_parities(&self, queue: Duration) -> impl Iterator<Item = (usize, &Link)> {
        let usable = self.usable_of(self.responding);
        let reference = self.reference(usable);
        let time = move |link: &Link| link.path_time(usize::from(self.config.frame), reference);
        let first = self.among(usable).map(|(_, link)| time(link)).min().unwrap_or_default();
        // On a link that is farther a repair would come before it.
        let repair = self.among(usable).map(|(_, link)| link.round_trip()).min();
        let latest = first + repair.unwrap_or_default();
        self.among(usable).filter(move |(_, link)| {
            !link.config.is_paid() && time(link) <= latest && link.rate.queue() < queue
        })
    }
}
