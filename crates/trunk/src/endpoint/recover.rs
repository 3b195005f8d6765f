//! Parities of the other end, and the frames that are known by them.

use super::Endpoint;
use super::remote::Address;
use crate::inbound::Came;
use crate::sender::LinkId;
use sheaf_stage::{DropReason, Instant};
use sheaf_wire::trunk::{Data, Frame, Parity, extend_seq};

impl<A: Address> Endpoint<A> {
    /// Takes a parity of the other end.
    pub(super) fn handle_parity(
        &mut self,
        id: LinkId,
        parity: &Parity<'_>,
        came: Came,
        now: Instant,
    ) -> Result<(), DropReason> {
        // As with data, a number out of reach shows a guess.
        let first = extend_seq(parity.first, self.order.expected());
        if !self.order.reaches(first) {
            return Err(self.order.refuse(DropReason::OutOfWindow));
        }
        self.hear_data(id, parity.link_seq, came, now);
        self.recovery.parity(first, parity, now);
        self.recover(id, now);
        Ok(())
    }

    /// Notes a data frame with number `seq`, if the other end sends parities.
    pub(super) fn note_for_recovery(
        &mut self,
        id: LinkId,
        seq: u32,
        data: &Data<'_>,
        now: Instant,
    ) {
        if self.recovery.is_on() {
            self.recovery.note(seq, data, now);
            self.recover(id, now);
        }
    }

    /// Takes the frames that are known now, as if they had come on link `id` before others.
    fn recover(&mut self, id: LinkId, now: Instant) {
        let mut bytes = std::mem::take(&mut self.recovered);
        while let Some(seq) = self.recovery.pop(&mut bytes) {
            // A parity may say anything: what it makes is read as what comes from a link.
            let Ok(Frame::Data(data)) = Frame::parse(&bytes) else { continue };
            if self.order.reaches(seq) {
                // Where it is refused it came meanwhile, and that is counted.
                let _ = self.take_data(id, seq, &data, now);
                self.recovery.note(seq, &data, now);
            }
        }
        self.recovered = bytes;
    }
}
