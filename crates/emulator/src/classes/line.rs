//! The rate that all classes of a tree share: one packet after the other, and nothing saved up.
//!
//! The arithmetic is that of a link's transmitter: departures are rounded up to a nanosecond, and
//! what the line did in the rest of it counts for a packet that follows at once.

use super::bucket::BYTE;
use crate::overhead::Overhead;
use sheaf_stage::{Bitrate, Duration, Instant};

/// A packet on the wire is taken as no longer than this, so that its work fits into 64 bits.
const LONGEST: u64 = 1 << 31;

/// The packet that is being sent: the class that has it, from when on `work` counts, and its end.
#[derive(Clone, Copy, Debug)]
struct Job {
    leaf: u32,
    since: Instant,
    work: u64,
    depart: Instant,
}

#[derive(Debug)]
pub(super) struct Line {
    rate: u64,
    pub overhead: Overhead,
    job: Option<Job>,
    free_at: Instant,
    /// Work done in the last nanosecond of the packet before, beyond that packet's.
    ahead: u64,
}

impl Line {
    pub fn new(rate: Bitrate, overhead: Overhead) -> Line {
        Line { rate: rate.as_bps(), overhead, job: None, free_at: Instant::ZERO, ahead: 0 }
    }

    /// End of the packet that is being sent.
    pub fn depart(&self) -> Option<Instant> {
        self.job.map(|job| job.depart)
    }

    /// End of the last packet that was finished.
    pub fn free_at(&self) -> Instant {
        self.free_at
    }

    /// Begins with `bytes` of a class at `now`, while nothing is being sent.
    pub fn start(&mut self, leaf: u32, bytes: u64, now: Instant) {
        debug_assert!(self.job.is_none() && now >= self.free_at);
        let ahead = if now == self.free_at { self.ahead } else { 0 };
        let work = bytes.min(LONGEST) * BYTE;
        self.ahead = ahead.saturating_sub(work);
        let work = work.saturating_sub(ahead);
        self.job = Some(Job { leaf, since: now, work, depart: self.end(now, work) });
    }

    /// Ends with the packet that is being sent; returns the class that has it, and when that was.
    pub fn finish(&mut self) -> Option<(u32, Instant)> {
        let Job { leaf, since, work, depart } = self.job.take()?;
        let done = (depart - since).as_nanos() * u128::from(self.rate);
        let beyond = done.saturating_sub(u128::from(work));
        self.ahead += u64::try_from(beyond).unwrap_or(0);
        self.free_at = depart;
        Some((leaf, depart))
    }

    /// Goes on at another rate from `now`, also with the packet that is being sent.
    pub fn change(&mut self, rate: Bitrate, overhead: Overhead, now: Instant) {
        self.overhead = overhead;
        if rate.as_bps() == self.rate {
            return;
        }
        let old = std::mem::replace(&mut self.rate, rate.as_bps());
        self.ahead = 0;
        let Some(Job { leaf, since, work, .. }) = self.job else { return };
        let done = (now - since).as_nanos() * u128::from(old);
        let work = work.saturating_sub(u64::try_from(done).unwrap_or(u64::MAX));
        let since = since.max(now);
        self.job = Some(Job { leaf, since, work, depart: self.end(since, work) });
    }

    /// Time at which `work` that begins at `since` is done.
    fn end(&self, since: Instant, work: u64) -> Instant {
        // A root's rate is not zero; of one that were, nothing would come.
        let nanos = work.checked_add(self.rate.saturating_sub(1)).map_or_else(
            || work.checked_div(self.rate).map(|nanos| nanos + 1),
            |up| up.checked_div(self.rate),
        );
        since + Duration::from_nanos(nanos.unwrap_or(u64::MAX))
    }
}
