//! Headers that are left out: definitions, accounts of what is known, and frames as they come.

use super::Endpoint;
use super::contexts::Contexts;
use super::outcome::{Refusal, Transmit};
use super::remote::Address;
use crate::inbound::Came;
use crate::sender::LinkId;
use sheaf_stage::Instant;
use sheaf_wire::trunk::{Control, Data, Define, Known, Packing, context};

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
        self.take_control(id, &define.control, came, now);
        Ok(())
    }

    /// Takes an account of what the other end has.
    pub(super) fn handle_known(&mut self, id: LinkId, known: &Known<'_>, came: Came, now: Instant) {
        known.entries().for_each(|(name, has)| self.sender.known_context(name, has));
        self.take_control(id, &known.control, came, now);
    }

    fn take_control(&mut self, id: LinkId, control: &Control, came: Came, now: Instant) {
        if let Some(path) = self.path(id) {
            path.inbound.control(control, came, now);
            self.hear(id, now);
        }
    }

    /// Whether a definition or an account of contexts is to be sent.
    pub(super) fn has_news_of_contexts(&self) -> bool {
        self.contexts.has_replies() || self.sender.has_context_due()
    }

    /// Writes a definition or an account over `out`, on the link whose round trip is the shortest.
    /// Where no link can take it, it is forgotten: the next packets of its flow cause another.
    pub(super) fn write_context(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit<A>> {
        if !self.has_news_of_contexts() {
            return None;
        }
        let link = self.sender.quickest(now);
        let to = link.and_then(|link| self.path(link)).and_then(|path| path.remote.address());
        if self.contexts.has_replies() {
            let replies = self.contexts.take_replies();
            let control = self.context_control(link?, Known::len_of(replies.len()));
            Known::emit(control, &replies, out);
        } else {
            let (name, context) = self.sender.pop_context()?;
            let headers = context.bytes();
            let control = self.context_control(link?, Define::len_of(headers.len()));
            Define { control, name, headers }.emit(out);
        }
        Some(Transmit { link: link?, to })
    }

    fn context_control(&mut self, link: LinkId, len: usize) -> Control {
        let next_seq = self.sender.next_seq(link);
        let link_seq = self.sender.number(link, len).unwrap_or_default();
        Control { link: link.0, next_seq, link_seq, session: self.session, pause: 0 }
    }

    /// Writes the packets of a frame over `payload`, with all of their headers, and returns how
    /// they are told apart.
    pub(super) fn unpack(&mut self, data: &Data<'_>, payload: &mut Vec<u8>) -> Packing {
        payload.clear();
        if data.repr.packing != Packing::Length || !self.restores() {
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
