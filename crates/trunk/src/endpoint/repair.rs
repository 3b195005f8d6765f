//! Requests for frames that are missing on a link, and the time that a repair takes.

use super::outcome::Transmit;
use super::remote::Address;
use super::{Endpoint, Path};
use crate::gaps;
use crate::inbound::Came;
use crate::sender::LinkId;
use sheaf_stage::{Duration, Instant};
use sheaf_wire::trunk::Request;

/// Time that a repair takes besides round trips: the frame that is being sent, and timers that run
/// late on a busy machine.
const REPAIR_MARGIN: Duration = Duration::from_millis(10);
/// Longest wait for a repair: beyond it TCP repeats what is missing by itself (Linux waits for at
/// least 200 ms), and a call has long gone on.
const LONGEST_REPAIR: Duration = Duration::from_millis(300);

impl<A: Address> Endpoint<A> {
    /// Takes a request of the other end.
    pub(super) fn handle_request(
        &mut self,
        id: LinkId,
        request: &Request<'_>,
        came: Came,
        now: Instant,
    ) {
        self.hear_control(id, &request.control, came, now);
        self.sender.resend(request, now);
    }

    /// The time of the next request; `None` while nothing is missing.
    pub(super) fn request_due(&self) -> Option<Instant> {
        self.asking().filter_map(|(_, path)| path.inbound.gaps.due()).min()
    }

    /// Writes a request that is due over `out`, on the link whose round trip is the shortest.
    pub(super) fn write_request(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit<A>> {
        while let Some(about) = self.due_request(now) {
            let transmit = self.ask(about, now, out);
            if transmit.is_some() {
                return transmit;
            }
        }
        None
    }

    /// A link about which a request is due.
    fn due_request(&self, now: Instant) -> Option<usize> {
        let is_due = |path: &Path<A>| path.inbound.gaps.due().is_some_and(|due| due <= now);
        self.asking().find(|(_, path)| is_due(path)).map(|(about, _)| about)
    }

    /// Writes a request for what is missing on link `about`, if any link can carry it.
    fn ask(&mut self, about: usize, now: Instant, out: &mut Vec<u8>) -> Option<Transmit<A>> {
        let link = self.sender.quickest(now);
        let round_trip = link.map_or(Duration::ZERO, |link| self.sender.round_trip(link));
        let mut missing = std::mem::take(&mut self.missing);
        if let Some(path) = &mut self.paths[about] {
            path.inbound.gaps.ask(round_trip, now, &mut missing);
        }
        let transmit = link.filter(|_| !missing.is_empty()).map(|link| {
            let control = self.control(link, Request::len(missing.len()), 0);
            Request::emit(control, about as u8, &missing, out);
            self.transmit(link)
        });
        self.missing = missing;
        transmit
    }

    /// Time for which a lost frame is waited for: two requests and replies on the quickest link,
    /// because one of them can be lost, too, after the reordering window of the slowest, and half a
    /// round trip for the variation of all that.
    pub(super) fn repair_wait(&self, now: Instant) -> Duration {
        let Some(link) = self.sender.quickest(now) else { return Duration::ZERO };
        let spaced = 2 * gaps::SPACING + REPAIR_MARGIN;
        (self.sender.round_trip(link) * 5 / 2 + self.lateness() + spaced).min(LONGEST_REPAIR)
    }

    /// The longest reordering window of all links.
    pub(super) fn lateness(&self) -> Duration {
        let windows = self.paths.iter().flatten().map(|path| path.inbound.gaps.window());
        windows.max().unwrap_or_default()
    }

    /// The links whose missing frames are asked for: by rounds, order has nothing to wait for.
    fn asking(&self) -> impl Iterator<Item = (usize, &Path<A>)> {
        let strict = self.config.sender.scheduler.strict();
        let paths = self.paths.iter().enumerate().filter(move |_| !strict);
        paths.filter_map(|(index, path)| Some((index, path.as_ref()?)))
    }
}
