//! Small packets that wait share a frame.

use super::Sender;
use super::flow_queues::{Next, Waiting};
use crate::flow::DeliveryMode;
use crate::link::{Precedence, Queued};
use sheaf_stage::Instant;
use sheaf_wire::trunk::{HEADER_LEN, MIN_OPAQUE, Packing, Predecessor};

impl Sender {
    /// The format in which a packet of `len` bytes goes alone.
    pub(super) fn packing(&self, len: usize) -> Packing {
        let small = 2 * len < usize::from(self.config.frame) && self.config.aggregate;
        match self.config.ip {
            true if len < MIN_OPAQUE => Packing::Ip,
            false if len < MIN_OPAQUE || small => Packing::Length,
            _ => Packing::One,
        }
    }

    /// The link and queue whose newest frame a packet can join: it still waits, and has room. A
    /// frame that goes before others takes packets of its own flow: those of a full frame are what
    /// a flow may send first, the quantum of FQ-CoDel. A packet that could go first by itself
    /// shares the frame that is the next to leave a radio, where a short frame takes as long as
    /// half a packet.
    pub(super) fn joined(
        &self,
        next: &Next,
        precedence: Precedence,
    ) -> Option<(usize, Precedence)> {
        if !self.config.aggregate || next.mode == DeliveryMode::Copies {
            return None;
        }
        let queues = [(Precedence::None, self.newest), (Precedence::Sparse, self.newest_sparse)];
        let mut newest = queues.into_iter().filter_map(|(queue, link)| Some((link?, queue)));
        newest.find(|newest| self.can_join(next, precedence, *newest))
    }

    fn can_join(
        &self,
        next: &Next,
        precedence: Precedence,
        (link, queue): (usize, Precedence),
    ) -> bool {
        let Some(link) = self.links[link].as_ref() else { return false };
        let leaves_next = link.has_queue_report() && link.queue.len() == 1;
        let Some(queued) = link.queue.last(queue).filter(|queued| queued.mark.is_none()) else {
            return false;
        };
        let shares = match (precedence, queue) {
            (Precedence::None, Precedence::None) => true,
            (Precedence::None, _) => queued.flow == next.flow,
            _ => leaves_next,
        };
        // An urgent packet of the flow may have been numbered since.
        let is_older = |last: u32| last.wrapping_sub(queued.seq).cast_signed() > 0;
        // Packets of IP say their lengths; others share a frame where each has its length before
        // it.
        let fits_packing = match (queued.packing, next.packing) {
            (Packing::Length, Packing::Length) => true,
            (Packing::Length, _) | (_, Packing::Length) => false,
            _ => self.config.ip,
        };
        let grown = queued.bytes.len() + next.len - HEADER_LEN;
        shares
            && fits_packing
            && grown <= usize::from(self.config.frame)
            && !self.last[next.flow.index()].is_some_and(is_older)
    }

    /// Puts a packet in the newest frame of a queue, which [`Sender::joined`] found.
    pub(super) fn join(
        &mut self,
        waiting: Waiting,
        (link, queue): (usize, Precedence),
        now: Instant,
    ) {
        let Waiting { flow, mode, .. } = waiting;
        let newest = self.links[link].as_ref().and_then(|link| link.queue.last(queue));
        let Some(&Queued { seq, flow: first, predecessor, .. }) = newest else { return };
        let needs_order = mode != DeliveryMode::Loose && !waiting.is_acknowledgement();
        let predecessor = match predecessor {
            same if !needs_order || self.last[flow.index()] == Some(seq) => same,
            // Frames that began with another flow, or took packets of one, wait for all. What this
            // one has of the flow so far needs no order.
            Predecessor::All => Predecessor::All,
            _ if flow == first => self.predecessor(seq, &waiting, now),
            _ => Predecessor::All,
        };
        if needs_order {
            self.last[flow.index()] = Some(seq);
        }
        let Some(link) = self.links[link].as_mut() else { return };
        let Some(queued) = link.queue.last_mut(queue) else { return };
        queued.predecessor = predecessor;
        if queued.packing != Packing::Length {
            queued.packing = Packing::Ip;
        }
        let packet = &waiting.bytes[HEADER_LEN..];
        queued.bytes.extend_from_slice(packet);
        queued.packets += 1;
        link.queue.grew(queue, packet.len());
        self.held += 1;
        self.recycle(waiting.bytes);
    }
}
