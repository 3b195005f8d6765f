//! The sessions, the reports, and which links are up.

use super::outcome::Refusal;
use super::remote::Address;
use super::{Endpoint, Path, Proof};
use crate::inbound::{Came, Inbound};
use crate::link::TRAIN_FRAME;
use crate::sender::LinkId;
use sheaf_stage::{Duration, Instant};
use sheaf_wire::trunk::{Challenge, Control, HELLO_LEN, Hello, PROMPT_REPORT_LEN, REPORT_LEN};

/// Data frames that are worth a report where a report costs as much air time as a packet: one frame
/// in 25 is then a report.
const ENOUGH: u32 = 24;
/// Periods between reports on such a link while fewer frames arrive.
const RARE_REPORTS: u32 = 3;
/// Missed reports under load, and missed probes without, after which the receiver no longer waits
/// for a link. One can be lost by chance.
const MISSED_REPORTS: u32 = 3;
const MISSED_PROBES: u32 = 2;

/// Probes without an answer, those of 10 s, after which a link is probed less often.
const PATIENCE: u32 = 100;
/// Time between such probes: traffic flows again within two seconds of whatever happened.
const SELDOM: Duration = Duration::from_secs(1);
/// Time between probes on a backup at rest. They are paid for: with a key, both directions come to
/// 60 MB a month. A third of the time after which routers commonly forget a UDP flow (30 s), so
/// that two can be lost.
const AT_REST: Duration = Duration::from_secs(10);
/// Part of the probes' interval, in percent, that the following end waits for the other's.
const FOLLOWING_PERCENT: u32 = 125;
/// The unit of pauses on the wire.
const PAUSE_UNIT: Duration = Duration::from_millis(100);

/// Time for which the other end has to be silent before another session may take its place. TCP,
/// whose pauses double, goes on after up to 7/3 of an outage (two retransmissions, and the third):
/// that is to be less than 2 s after a restart. Five times the longest pause of an end that lives,
/// which sends ten frames a second on some link.
const TAKEOVER: Duration = Duration::from_millis(500);
/// Time for which the other end's numbers have to be out of the receiver's reach, and no other
/// number comes, before the receiver follows them: one frame may be damaged or forged.
const ASTRAY: Duration = Duration::from_millis(100);

impl<A: Address> Endpoint<A> {
    /// Takes a hello; `candidate`: where it came from, unless from the other end's known address.
    pub(super) fn handle_hello(
        &mut self,
        id: LinkId,
        candidate: Option<A>,
        proof: Proof<A>,
        hello: &Hello,
        came: Came,
        now: Instant,
    ) -> Result<(), Refusal> {
        let theirs = hello.control.session;
        if theirs == self.session {
            return Err(Refusal::UnknownSession);
        }
        let is_known = self.peer == Some(theirs);
        let is_fresh = match proof {
            Proof::Seal(_) => true,
            Proof::Place(from) => self.is_proven(id, from, hello, now),
        };
        if let Proof::Place(from) = proof {
            if !is_fresh && (!is_known || candidate.is_some()) {
                self.challenge(id, from, hello, now);
                return Err(Refusal::UnprovenSession);
            }
            if !is_known {
                self.check_displacing(id, candidate, now)?;
            }
        }
        if !is_known {
            self.accept(theirs, hello.control.next_seq, now);
            self.restart_contexts(hello.restores);
            self.recovery.restart();
            self.sender.restart_parities(hello.recovers);
        }
        // A recorded hello is no sign of life.
        if is_fresh {
            self.heard_at = now;
        }
        if hello.peer == self.session {
            (self.acknowledged, self.acknowledged_at) = (true, now);
        } else if is_fresh && now - self.acknowledged_at >= self.config.silence {
            // Not at the first such hello: one that was sent earlier may come later on another
            // link.
            self.acknowledged = false;
        }
        if let Some(path) = self.path(id) {
            path.inbound.control(&hello.control, came, now);
            path.echo = hello.challenge;
            path.reply_due |= !hello.answer;
            if !is_known {
                // The other end waits for this end to name its session.
                path.last_report_sent = None;
            }
        }
        self.hear(id, now);
        self.note_pause(id, hello.control.pause, now);
        self.note_next_seq(id, hello.control.next_seq, now);
        Ok(())
    }

    /// Whether the sender of a hello receives where it sends from.
    fn is_proven(&self, id: LinkId, from: Option<A>, hello: &Hello, now: Instant) -> bool {
        let path = self.paths.get(id.index()).and_then(Option::as_ref);
        path.is_some_and(|path| self.challenges.is_met(hello.echo, &path.remote.place(from), now))
    }

    /// Challenges the sender of a hello.
    fn challenge(&mut self, id: LinkId, from: Option<A>, hello: &Hello, now: Instant) {
        let Some(path) = self.path(id) else { return };
        let place = path.remote.place(from);
        let challenge = self.challenges.demand(&place, now);
        let mut bytes = Vec::new();
        Challenge { link: id.0, session: hello.control.session, challenge }.emit(&mut bytes);
        self.reply(id, from, bytes);
    }

    /// Checks that a new session may take the place of the accepted one.
    fn check_displacing(
        &self,
        id: LinkId,
        candidate: Option<A>,
        now: Instant,
    ) -> Result<(), Refusal> {
        let path = self.paths.get(id.index()).and_then(Option::as_ref);
        let is_welcome = |place| path.is_some_and(|path| path.remote.takes_sessions_from(place));
        if !candidate.is_none_or(is_welcome) {
            return Err(Refusal::Stranger);
        }
        if self.peer.is_some() && now - self.heard_at < TAKEOVER {
            return Err(Refusal::Displacing);
        }
        Ok(())
    }

    /// Takes a challenge to this end's hello: the next hello, which leaves immediately, echoes it.
    pub(super) fn handle_challenge(&mut self, id: LinkId, challenge: u64) {
        if let Some(path) = self.path(id) {
            path.echo = challenge;
            path.last_report_sent = None;
        }
    }

    /// Takes a new session of the other end.
    fn accept(&mut self, theirs: u64, first: u32, now: Instant) {
        self.peer = Some(theirs);
        self.acknowledged = false;
        self.astray_since = None;
        self.stats.sessions += 1;
        self.sender.restart();
        let window = self.config.reorder.window;
        self.order.restart(first, self.config.sender.scheduler, window, now);
        for index in 0..self.paths.len() {
            let id = LinkId(index as u8);
            self.lose(id, now);
            let sent = self.sent_on(id, now);
            if let Some(path) = &mut self.paths[index] {
                path.inbound = Inbound::default();
                path.claims.restart(sent);
                path.last_heard = None;
                path.report_due = false;
            }
        }
    }

    /// Whether nothing was heard of an accepted session for so long that the other end may have
    /// started anew or slept: it has to be greeted again.
    pub(super) fn is_silent(&self, now: Instant) -> bool {
        now - self.heard_at >= self.config.silence
    }

    /// Takes the number that the other end's next data frame on a link will have. It shows what was
    /// lost; where it is out of the receiver's reach for a while, after long losses or a forged
    /// number, the receiver follows it.
    pub(super) fn note_next_seq(&mut self, id: LinkId, next_seq: u32, now: Instant) {
        if self.order.reaches(next_seq) {
            self.astray_since = None;
            self.order.passed(id.0, next_seq, now);
            return;
        }
        let since = *self.astray_since.get_or_insert(now);
        if now - since >= ASTRAY {
            self.astray_since = None;
            let window = self.config.reorder.window;
            self.order.restart(next_seq, self.config.sender.scheduler, window, now);
        }
    }

    /// A valid frame of the other end came on this link.
    pub(super) fn hear(&mut self, id: LinkId, now: Instant) {
        let established = self.is_established();
        let Some(path) = self.path(id).filter(|path| path.carrier) else { return };
        path.last_heard = Some(now);
        path.unanswered = 0;
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
        path.remote.go_home();
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
        let heard = path.last_heard? + path.pause;
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
        if !path.remote.is_reachable() {
            return None;
        }
        let Some(last) = path.last_report_sent.filter(|_| !path.reply_due) else {
            return Some(Instant::ZERO);
        };
        // Not later than the other end was told.
        let probe = last + self.probe_interval(index, path).min(path.told.max(self.following()));
        if !self.is_established() {
            return Some(probe);
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
        [received, sent, Some(probe)].into_iter().flatten().min()
    }

    /// Time between probes, hellos and handshakes on a link.
    pub(super) fn probe_interval(&self, index: usize, path: &Path<A>) -> Duration {
        match path.unanswered {
            _ if path.is_idle() && self.is_established() && self.sender.is_at_rest(index) => {
                AT_REST
            }
            // This end's probe leaves when the other's has come, which may be late.
            _ if path.alive && path.is_idle() && self.follows() => self.following(),
            0..PATIENCE => self.config.probe,
            _ => SELDOM,
        }
    }

    /// Time between probes of an end that follows: the longest that the other need not be told.
    fn following(&self) -> Duration {
        self.config.probe * FOLLOWING_PERCENT / 100
    }

    /// Takes note of what the other end says of its next report or hello. A link that rests is not
    /// waited for: what is lost on another is known without it.
    pub(super) fn note_pause(&mut self, id: LinkId, pause: u8, now: Instant) {
        let Some(path) = self.path(id) else { return };
        path.pause = (PAUSE_UNIT * u32::from(pause)).min(AT_REST);
        if !path.pause.is_zero() && std::mem::take(&mut path.awaited) {
            self.order.set_link(id.0, false, now);
        }
    }

    /// Whether this end's probes leave when the other's come. So do those of the end whose session
    /// is the smaller number: if both did, each answer would be answered.
    fn follows(&self) -> bool {
        self.is_established() && self.peer.is_some_and(|peer| self.session < peer)
    }

    /// Takes note of a probe of the other end.
    pub(super) fn follow(&mut self, id: LinkId) {
        let is_idle = self.path(id).is_some_and(|path| path.is_idle());
        self.probing |= is_idle && self.follows();
    }

    /// Whether the probe of a link, due at `due`, leaves already with another that left or came.
    /// Up to half an interval early: so all come together, whenever each was first sent.
    pub(super) fn goes_along(&self, index: usize, due: Instant, now: Instant) -> bool {
        let is_idle = self.paths[index].as_ref().is_some_and(Path::is_idle);
        self.probing && is_idle && due <= now + self.config.probe / 2
    }

    /// The pause that the other end is told of. A reply does not stand for the hello that is due.
    fn tell(&mut self, id: LinkId, reply: bool) -> Duration {
        let index = id.index();
        let Some(path) = self.paths.get(index).and_then(Option::as_ref) else {
            return Duration::ZERO;
        };
        let wanted = self.probe_interval(index, path);
        let is_usual = wanted <= self.following();
        let told = match reply {
            true => path.told,
            false if is_usual => Duration::ZERO,
            false => wanted,
        };
        if let Some(path) = self.path(id) {
            path.told = told;
        }
        told
    }

    /// Numbers a frame of `len` bytes that is not data, and returns its common part.
    pub(super) fn control(&mut self, link: LinkId, len: usize, pause: u8) -> Control {
        let next_seq = self.sender.next_seq(link);
        let link_seq = self.sender.number(link, len).unwrap_or_default();
        Control { link: link.0, next_seq, link_seq, session: self.session, pause }
    }

    /// Takes the common part of such a frame that came on this link.
    pub(super) fn hear_control(&mut self, id: LinkId, control: &Control, came: Came, now: Instant) {
        if let Some(path) = self.path(id) {
            path.inbound.control(control, came, now);
            self.hear(id, now);
        }
    }

    /// Writes a report or hello, and returns the address that it goes to.
    pub(super) fn write_control(
        &mut self,
        id: LinkId,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Option<A> {
        let reply = self.path(id)?.reply_due;
        let hello = reply || !self.is_established() || self.is_silent(now);
        let train = !hello && self.path(id)?.train > 0;
        let report = match self.path(id)?.inbound.has_prompt() {
            true => PROMPT_REPORT_LEN,
            false => REPORT_LEN,
        };
        let len = match (hello, train) {
            (true, _) => HELLO_LEN,
            (false, false) => report,
            (false, true) => usize::from(self.config.sender.frame).clamp(report, TRAIN_FRAME),
        };
        let told = self.tell(id, reply);
        let pause = told.as_millis().div_ceil(PAUSE_UNIT.as_millis()) as u8;
        let control = self.control(id, len, pause);
        let late = self.order.spoilt() as u32;
        let path = self.paths.get_mut(id.index())?.as_mut()?;
        if hello {
            let place = path.remote.address();
            let challenge = self.challenges.demand(&place, now);
            let (peer, echo) = (self.peer.unwrap_or_default(), path.echo);
            let restores = self.restores();
            // By rounds, order has no numbers.
            let recovers = !self.config.sender.scheduler.strict();
            Hello { control, peer, challenge, echo, answer: reply, restores, recovers }.emit(out);
        } else {
            path.inbound.fill(control, late, now).emit(out);
            // Whoever reads a report does not look at what is behind it.
            out.resize(len, 0);
        }
        let path = self.path(id)?;
        path.unanswered = path.unanswered.saturating_add(1);
        let is_idle = path.is_idle();
        path.train -= u8::from(train);
        if hello && !reply {
            // A train that waits for the end of a silence would be due again at once, for ever.
            path.train = 0;
        }
        if !hello {
            (path.received_since_report, path.last_data_sent) = (0, None);
        }
        // A reply does not stand for the hello or report that is due anyway.
        if !std::mem::take(&mut path.reply_due) {
            path.last_report_sent = Some(now);
        }
        let to = path.remote.address();
        self.probing |= is_idle;
        to
    }
}
