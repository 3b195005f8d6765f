//! The sessions, the reports, and which links are up.

use super::outcome::Refusal;
use super::remote::Address;
use super::{Endpoint, Guest, Path};
use crate::inbound::Inbound;
use crate::sender::LinkId;
use sheaf_stage::Instant;
use sheaf_wire::trunk::{Control, HELLO_LEN, Hello, REPORT_LEN};

/// Data frames that are worth a report where a report costs as much air time as a packet: one frame
/// in 25 is then a report.
const ENOUGH: u32 = 24;
/// Periods between reports on such a link while fewer frames arrive.
const RARE_REPORTS: u32 = 3;
/// Missed reports under load, and missed probes without, after which the receiver no longer waits
/// for a link. One can be lost by chance.
const MISSED_REPORTS: u32 = 3;
const MISSED_PROBES: u32 = 2;

impl<A: Address> Endpoint<A> {
    /// Takes a hello; `candidate`: where it came from, unless from the other end's known address.
    pub(super) fn handle_hello(
        &mut self,
        id: LinkId,
        candidate: Option<A>,
        hello: &Hello,
        len: usize,
        now: Instant,
    ) -> Result<(), Refusal> {
        let theirs = hello.control.session;
        if self.retired.contains(&theirs) || theirs == self.session {
            return Err(Refusal::UnknownSession);
        }
        let proven = self.peer.is_none() || hello.peer == self.session;
        if self.peer != Some(theirs) && proven {
            self.accept(theirs, hello.control.next_seq, now);
        }
        let known = self.peer == Some(theirs);
        if let (false, Some(address)) = (known, candidate) {
            let guest = Guest { address, session: theirs };
            if let Some(path) = self.path(id).filter(|path| path.carrier && !hello.answer) {
                path.guest = Some(guest);
            }
            return Err(Refusal::UnprovenSession);
        }
        let news = std::mem::replace(&mut self.claimed, theirs) != theirs;
        if known {
            self.acknowledged |= hello.accepted && hello.peer == self.session;
            if let Some(path) = self.path(id) {
                path.inbound.control(&hello.control, len, now);
            }
            self.hear(id, now);
        }
        let established = self.is_established();
        if let Some(path) = self.path(id) {
            path.reply_due |= !hello.answer;
            if news && !established {
                // The other end waits for this end to name its session.
                path.last_report_sent = None;
            }
        }
        if known { Ok(()) } else { Err(Refusal::UnprovenSession) }
    }

    /// Takes a new session of the other end.
    fn accept(&mut self, theirs: u64, first: u32, now: Instant) {
        if let Some(old) = self.peer.replace(theirs) {
            self.retired.rotate_right(1);
            self.retired[0] = old;
        }
        self.acknowledged = false;
        self.stats.sessions += 1;
        self.sender.restart();
        let window = self.config.reorder.window;
        self.order.restart(first, self.config.sender.scheduler, window, now);
        for index in 0..self.paths.len() {
            self.lose(LinkId(index as u8), now);
            if let Some(path) = &mut self.paths[index] {
                path.inbound = Inbound::default();
                path.last_heard = None;
                path.report_due = false;
            }
        }
    }

    /// A valid frame of the other end came on this link.
    pub(super) fn hear(&mut self, id: LinkId, now: Instant) {
        let established = self.is_established();
        let Some(path) = self.path(id).filter(|path| path.carrier) else { return };
        path.last_heard = Some(now);
        let (alive, awaited) = (path.alive, std::mem::replace(&mut path.awaited, true));
        path.alive = established;
        if !awaited {
            self.order.set_link(id.0, true, now);
        }
        if established && !alive {
            self.sender.set_up(id, true, now);
            let train = self.sender.begin_train(id, now);
            self.paths[id.index()].as_mut().expect("looked at above").train = train;
        }
    }

    /// A link is down.
    pub(super) fn lose(&mut self, id: LinkId, now: Instant) {
        let Some(path) = self.path(id) else { return };
        path.alive = false;
        path.train = 0;
        path.awaited = false;
        self.order.set_link(id.0, false, now);
        self.sender.set_up(id, false, now);
    }

    /// Finds links that have become silent.
    pub(super) fn check_silence(&mut self, now: Instant) {
        for index in 0..self.paths.len() {
            let Some(path) = &self.paths[index] else { continue };
            if self.silent_at(path).is_none_or(|at| at > now) {
                continue;
            }
            let id = LinkId(index as u8);
            if path.awaited {
                self.order.set_link(id.0, false, now);
                self.paths[index].as_mut().expect("looked at above").awaited = false;
            } else {
                self.lose(id, now);
            }
        }
    }

    /// The time at which a link will have been silent for so long that the receiver stops waiting
    /// for it, or that it is down.
    pub(super) fn silent_at(&self, path: &Path<A>) -> Option<Instant> {
        let heard = path.last_heard?;
        match (path.awaited, path.alive) {
            // Behind data comes a report, behind a report a probe.
            (true, _) if path.report_due => Some(heard + MISSED_REPORTS * self.config.report),
            (true, _) => Some(heard + MISSED_PROBES * self.config.probe),
            (false, true) => Some(heard + self.config.silence),
            (false, false) => None,
        }
    }

    /// The time at which the next report or hello leaves on a link.
    pub(super) fn control_due(&self, index: usize) -> Option<Instant> {
        let path = self.paths[index].as_ref().filter(|path| path.carrier)?;
        if path.guest.is_some() {
            return Some(Instant::ZERO);
        }
        if !path.remote.is_reachable() {
            return None;
        }
        let Some(last) = path.last_report_sent.filter(|_| !path.reply_due) else {
            return Some(Instant::ZERO);
        };
        if !self.is_established() {
            return Some(last + self.config.probe);
        }
        if path.train > 0 {
            return Some(Instant::ZERO);
        }
        let report = self.config.report;
        let queue_reported = self.sender.has_queue_report(LinkId(index as u8));
        let received = match path.received_since_report {
            0 => None,
            few if queue_reported && few < ENOUGH => Some(last + RARE_REPORTS * report),
            _ => Some(last + report),
        };
        // While data flows, the next data frame carries the sequence number. After the last one a
        // report has to.
        let sent = path.last_data_sent;
        let sent =
            sent.map(|at| if queue_reported { at.max(last) + report } else { last + report });
        [received, sent, Some(last + self.config.probe)].into_iter().flatten().min()
    }

    /// Writes a report or hello, and returns the address that it goes to.
    pub(super) fn write_control(
        &mut self,
        id: LinkId,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Option<A> {
        let next_seq = self.sender.next_seq(id);
        let mut control = Control { link: id.0, next_seq, link_seq: 0, session: self.session };
        if let Some(Guest { address, session }) = self.path(id)?.guest.take() {
            // It takes no number of the link: where the other end is elsewhere, the number would
            // be missing there and count as a loss.
            control.link_seq = self.sender.next_number(id).unwrap_or_default();
            Hello { control, peer: session, accepted: false, answer: true }.emit(out);
            return Some(address);
        }
        let reply = self.path(id)?.reply_due;
        let hello = reply || !self.is_established();
        let train = !hello && self.path(id)?.train > 0;
        let len = match (hello, train) {
            (true, _) => HELLO_LEN,
            (false, false) => REPORT_LEN,
            (false, true) => usize::from(self.config.sender.frame).max(REPORT_LEN),
        };
        control.link_seq = self.sender.number(id, len).unwrap_or_default();
        let late = self.order.spoilt() as u32;
        let (accepted, claimed) = (self.peer == Some(self.claimed), self.claimed);
        let path = self.path(id)?;
        if hello {
            Hello { control, peer: claimed, accepted, answer: reply }.emit(out);
        } else {
            path.inbound.fill(control, late, now).emit(out);
            // Whoever reads a report does not look at what is behind it.
            out.resize(len, 0);
            path.train -= u8::from(train);
            (path.received_since_report, path.last_data_sent) = (0, None);
        }
        // A reply does not stand for the hello or report that is due anyway.
        if !std::mem::take(&mut path.reply_due) {
            path.last_report_sent = Some(now);
        }
        path.remote.address()
    }
}
