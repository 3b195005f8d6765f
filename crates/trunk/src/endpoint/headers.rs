//! Headers that are left out: definitions, accounts of what is known, and frames as they come.

use super::Endpoint;
use super::contexts::Contexts;
use super::outcome::{Refusal, Transmit};
use super::remote::Address;
use crate::inbound::Came;
use crate::sender::LinkId;
use sheaf_stage::Instant;
use sheaf_wire::trunk::{Data, Define, Known, Packing, context};

impl<A: Address> Endpoint<A> {
    /// Whether this end restores headers. Only with a key, as what is learned here is used for
    /// packets of others.
    pub(super) fn restores(&self) -> bool {
        self.guard.is_some() && self.config.sender.ip
    }

    /// The other end begins anew. `restores`: it restores headers.
    pub(super) fn restart_contexts(&mut self, restores: bool) {
        self.contexts = Contexts::default();
        let is_on = restores && self.restores() && self.config.sender.compress;
        self.sender.restart_contexts(is_on);
    }

    /// Takes a definition of the other end.
    pub(super) fn handle_define(
        &mut self,
        id: LinkId,
        define: &Define<'_>,
        came: Came,
        now: Instant,
    ) -> Result<(), Refusal> {
        self.contexts.define(define.name, define.headers).map_err(Refusal::Malformed)?;
        self.hear_control(id, &define.control, came, now);
        Ok(())
    }

    /// Takes an account of what the other end has.
    pub(super) fn handle_known(&mut self, id: LinkId, known: &Known<'_>, came: Came, now: Instant) {
        known.entries().for_each(|(name, has)| self.sender.known_context(name, has));
        self.hear_control(id, &known.control, came, now);
    }

    /// Whether a definition or an account of contexts is to be sent.
    pub(super) fn has_news_of_contexts(&self) -> bool {
        self.contexts.has_replies() || self.sender.has_context_due()
    }

    /// Writes a definition or an account over `out`, on the link whose round trip is the shortest.
    /// Where no link can take it, it is forgotten: the next packets of its flow cause another.
    pub(super) fn write_context(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit<A>> {
        if self.contexts.has_replies() {
            let replies = self.contexts.take_replies();
            let link = self.sender.quickest(now)?;
            let control = self.control(link, Known::len_of(replies.len()), 0);
            Known::emit(control, &replies, out);
            return Some(self.transmit(link));
        }
        let (name, context) = self.sender.pop_context()?;
        let link = self.sender.quickest(now)?;
        let headers = context.bytes();
        let control = self.control(link, Define::len_of(headers.len()), 0);
        Define { control, name, headers }.emit(out);
        Some(self.transmit(link))
    }

    /// Writes the packets of a frame over `payload`, with all of their headers, and returns their
    /// packing.
    pub(super) fn unpack(&mut self, data: &Data<'_>, payload: &mut Vec<u8>) -> Packing {
        payload.clear();
        // Compressed packets are alone, or behind their lengths.
        if data.repr.packing == Packing::Ip || !self.restores() {
            payload.extend_from_slice(data.payload);
            return data.repr.packing;
        }
        let mut packets = data.packets();
        let first = packets.next();
        let is_alone = packets.rest().is_empty();
        for packet in first.into_iter().chain(packets) {
            match context::split(packet) {
                None => payload.extend_from_slice(packet),
                Some((name, rest)) => match self.contexts.restore(name, rest, payload) {
                    true => self.stats.restored += 1,
                    false => self.stats.not_restored += 1,
                },
            }
        }
        // One packet need not be measured again.
        if is_alone { Packing::One } else { Packing::Ip }
    }
}
