//! Sends one packet after the other at the link's rate, by arithmetic alone.
//!
//! Principle (UiO 2013): a packet leaves (length + overhead) · 8 / rate after the later of its
//! arrival and the departure before it. The work of a packet is counted in bits · 10⁹, of which a
//! rate in bit/s does as much in each nanosecond, so everything is whole numbers. A departure is
//! rounded up to a nanosecond, never early; what the link did in the rest of that nanosecond
//! counts for the next packet if that one was waiting, so no error adds up. A change of the rate
//! applies to the rest of the packet that is being sent.

use crate::packet::Packet;
use crate::trace::Opportunities;
use crate::trace::mahimahi::{Cursor, MTU};
use sheaf_stage::{Bitrate, Duration, Instant};
use std::sync::Arc;

/// Work of a byte.
const BYTE: u64 = 8 * 1_000_000_000;
/// A packet on the wire is taken as no longer than this, so that its work fits into 64 bits.
const LONGEST: u64 = 1 << 31;

/// Pace at which a link sends.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Pace {
    /// Without limit.
    Unlimited,
    /// A constant rate.
    Rate(Bitrate),
    /// The opportunities of a trace.
    Opportunities { trace: Arc<Opportunities>, start: Instant, looped: bool },
}

/// The packet that is being sent.
#[derive(Debug)]
struct Job {
    packet: Packet,
    /// From when on `work` counts.
    since: Instant,
    /// Work that was left then.
    work: u64,
    depart: Instant,
    waited: bool,
}

#[derive(Debug)]
pub(crate) struct Transmitter {
    pace: Pace,
    job: Option<Job>,
    /// The last departure.
    free_at: Instant,
    /// Work done in the last nanosecond of the packet before, beyond that packet's.
    ahead: u64,
    /// Whether the packet that begins was waiting when the one before left.
    in_turn: bool,
    /// The opportunity in use: when it is, and the bytes that are left of it.
    open: (Instant, u64),
    /// The opportunity after that.
    cursor: Cursor,
}

impl Transmitter {
    pub fn new(pace: Pace) -> Self {
        Transmitter {
            pace,
            job: None,
            free_at: Instant::ZERO,
            ahead: 0,
            in_turn: false,
            open: (Instant::ZERO, 0),
            cursor: Cursor::default(),
        }
    }

    /// The packet that is being sent.
    pub fn packet(&self) -> Option<&Packet> {
        self.job.as_ref().map(|job| &job.packet)
    }

    /// Time at which the packet that is being sent leaves; `None` without one, or when it never
    /// does at this pace.
    pub fn depart(&self) -> Option<Instant> {
        self.job.as_ref().map(|job| job.depart).filter(|depart| *depart < Instant::MAX)
    }

    /// Begins with `packet`, which takes `bytes` on the wire.
    pub fn start(&mut self, packet: Packet, bytes: u64) {
        debug_assert!(self.job.is_none());
        let waited = packet.arrived < self.free_at;
        let since = packet.arrived.max(self.free_at);
        let work = bytes.min(LONGEST) * BYTE;
        let ahead = if waited { self.ahead } else { 0 };
        self.in_turn = waited;
        self.ahead = ahead.saturating_sub(work);
        let work = work.saturating_sub(ahead);
        let depart = self.finish_time(since, work);
        self.job = Some(Job { packet, since, work, depart, waited });
    }

    /// Ends with the packet that is being sent; returns it, its departure, and whether it had to
    /// wait for others.
    pub fn finish(&mut self) -> Option<(Packet, Instant, bool)> {
        let job = self.job.take()?;
        if let Pace::Rate(rate) = self.pace {
            let done = (job.depart - job.since).as_nanos() * u128::from(rate.as_bps());
            let beyond = done.saturating_sub(u128::from(job.work));
            self.ahead += u64::try_from(beyond).unwrap_or(0);
        }
        self.free_at = job.depart;
        Some((job.packet, job.depart, job.waited))
    }

    /// Ends at `at` with the packet that was through at its departure or before, and was held since
    /// because something behind this transmitter was busy. By so much as `behind` the next packet
    /// may begin before `at`: as a transmitter that went on meanwhile would have had it.
    pub fn finish_held(
        &mut self,
        at: Instant,
        behind: Duration,
    ) -> Option<(Packet, Instant, bool)> {
        let left = self.finish()?;
        let (_, depart, _) = left;
        if depart < at - behind {
            self.free_at = at - behind;
            self.ahead = 0;
        }
        Some(left)
    }

    /// Goes on at another pace from `now`. A packet in hand that was through before is held, and
    /// stays so.
    pub fn change(&mut self, pace: Pace, now: Instant) {
        if pace == self.pace {
            return;
        }
        let old = std::mem::replace(&mut self.pace, pace);
        self.ahead = 0;
        self.in_turn = false;
        let Some(Job { since, work, depart, .. }) = self.job else { return };
        if depart < now {
            // It is through, and held for others.
            return;
        }
        // Of a packet that took opportunities nothing is taken to be sent yet.
        let done = match old {
            Pace::Rate(rate) => (now - since).as_nanos() * u128::from(rate.as_bps()),
            Pace::Unlimited | Pace::Opportunities { .. } => 0,
        };
        let since = since.max(now);
        let work = work.saturating_sub(u64::try_from(done).unwrap_or(u64::MAX));
        let depart = self.finish_time(since, work);
        if let Some(job) = &mut self.job {
            (job.since, job.work, job.depart) = (since, work, depart);
        }
    }

    /// Loses `time`: what is sent, and the departure before it, are that much later.
    pub fn stand_still(&mut self, time: Duration) {
        self.free_at += time;
        if let Some(job) = &mut self.job {
            job.since += time;
            job.depart += time;
        }
    }

    /// Time that `bytes` take at the present rate, rounded down; `None` where the pace is not a
    /// rate above zero.
    pub fn time_for(&self, bytes: u64) -> Option<Duration> {
        let Pace::Rate(rate) = self.pace else { return None };
        let work = u128::from(bytes) * u128::from(BYTE);
        let nanos = work.checked_div(u128::from(rate.as_bps()))?;
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// Time at which `work` that begins at `since` is done.
    fn finish_time(&mut self, since: Instant, work: u64) -> Instant {
        match &self.pace {
            Pace::Unlimited => since,
            Pace::Rate(rate) => match work.checked_add(rate.as_bps().saturating_sub(1)) {
                _ if work == 0 => since,
                _ if rate.as_bps() == 0 => Instant::MAX,
                Some(up) => since + Duration::from_nanos(up / rate.as_bps()),
                None => since + Duration::from_nanos(work / rate.as_bps() + 1),
            },
            Pace::Opportunities { trace, start, looped } => {
                let (start, looped) = (*start, *looped);
                let mut need = work.div_ceil(BYTE).max(1);
                // Behind another packet this one goes on where that one ended; else what the link
                // could have delivered until now is lost.
                if !self.in_turn || self.open.0 != since {
                    self.open = (since, 0);
                    self.cursor = Cursor::after(trace, start, looped, since);
                }
                loop {
                    let used = need.min(self.open.1);
                    (need, self.open.1) = (need - used, self.open.1 - used);
                    if need == 0 {
                        return self.open.0;
                    }
                    let Some(time) = self.cursor.time(trace, start, looped) else {
                        return Instant::MAX;
                    };
                    self.open = (time, MTU);
                    self.cursor = self.cursor.next(trace);
                }
            }
        }
    }
}
