//! The sessions, the reports, and which links are up.

use super::{Endpoint, Path};
use crate::inbound::Inbound;
use crate::sender::LinkId;
use sheaf_stage::Instant;
use sheaf_wire::trunk::{Control, HELLO_LEN, Hello, REPORT_LEN};

/// Data frames that are worth a report where a report is as dear as a packet.
const ENOUGH: u32 = 24;

impl Endpoint {
    pub(super) fn handle_hello(&mut self, id: LinkId, hello: &Hello, len: usize, now: Instant) {
        let theirs = hello.control.session;
        if self.retired.contains(&theirs) || theirs == self.session {
            self.stats.unknown_session += 1;
            return;
        }
        let news = self.claimed != theirs;
        if self.peer != Some(theirs) && (self.peer.is_none() || hello.peer == self.session) {
            self.accept(theirs, hello.control.next_seq, now);
        }
        self.claimed = theirs;
        let known = self.peer == Some(theirs);
        if known {
            self.acknowledged |= hello.accepted && hello.peer == self.session;
            if let Some(path) = self.path(id) {
                path.inbound.control(&hello.control, len, now);
            }
            self.hear(id, now);
        }
        let established = self.is_established();
        let Some(path) = self.path(id) else { return };
        path.answer |= !hello.answer;
        if news && !established {
            path.told = None; // say at once what was learned
        }
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
                path.heard = None;
                path.owes_report = false;
            }
        }
    }

    /// A valid frame of the other end came on this link.
    pub(super) fn hear(&mut self, id: LinkId, now: Instant) {
        let established = self.is_established();
        let Some(path) = self.path(id).filter(|path| path.carrier) else { return };
        path.heard = Some(now);
        let (alive, awaited) = (path.alive, std::mem::replace(&mut path.awaited, true));
        path.alive = established;
        if !awaited {
            self.order.set_link(id.0, true, now);
        }
        if established && !alive {
            self.sender.set_up(id, true, now);
        }
    }

    /// A link is down.
    pub(super) fn lose(&mut self, id: LinkId, now: Instant) {
        let Some(path) = self.path(id) else { return };
        path.alive = false;
        path.awaited = false;
        self.order.set_link(id.0, false, now);
        self.sender.set_up(id, false, now);
    }

    /// Finds links that have become silent.
    pub(super) fn look_after(&mut self, now: Instant) {
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

    /// When a link will have been silent for so long that something follows from it.
    pub(super) fn silent_at(&self, path: &Path) -> Option<Instant> {
        let heard = path.heard?;
        match (path.awaited, path.alive) {
            // Behind data comes a report, behind a report a probe.
            (true, _) if path.owes_report => Some(heard + 3 * self.config.report),
            (true, _) => Some(heard + 2 * self.config.probe),
            (false, true) => Some(heard + self.config.silence),
            (false, false) => None,
        }
    }

    /// When the next report or hello leaves on a link.
    pub(super) fn control_due(&self, index: usize) -> Option<Instant> {
        let path = self.paths[index].as_ref().filter(|path| path.carrier)?;
        let Some(told) = path.told.filter(|_| !path.answer) else { return Some(Instant::ZERO) };
        if !self.is_established() {
            return Some(told + self.config.probe);
        }
        let report = self.config.report;
        let tells = self.sender.tells(LinkId(index as u8));
        let came = match path.came {
            0 => None,
            few if tells && few < ENOUGH => Some(told + 3 * report),
            _ => Some(told + report),
        };
        // Behind data that goes on, data says what has passed; the end has to be told.
        let went = path.went.map(|at| if tells { at.max(told) + report } else { told + report });
        [came, went, Some(told + self.config.probe)].into_iter().flatten().min()
    }

    /// Writes a report or hello.
    pub(super) fn tell(&mut self, id: LinkId, now: Instant, out: &mut Vec<u8>) {
        let established = self.is_established();
        let next_seq = self.sender.next_seq(id);
        let late = self.order.late() as u32;
        let answer = self.path(id).is_some_and(|path| path.answer);
        let hello = answer || !established;
        let len = if hello { HELLO_LEN } else { REPORT_LEN };
        let link_seq = self.sender.number(id, len).unwrap_or_default();
        let control = Control { link: id.0, next_seq, link_seq, session: self.session };
        let (accepted, claimed) = (self.peer == Some(self.claimed), self.claimed);
        let Some(path) = self.path(id) else { return };
        if hello {
            Hello { control, peer: claimed, accepted, answer }.emit(out);
        } else {
            path.inbound.fill(control, late, now).emit(out);
            (path.came, path.went) = (0, None);
        }
        // An answer does not replace what is due of ourselves.
        if !std::mem::take(&mut path.answer) {
            path.told = Some(now);
        }
    }
}
