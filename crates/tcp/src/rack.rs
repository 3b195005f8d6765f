//! RACK (RFC 8985): losses found by time.
//!
//! A segment is lost when one that was sent after it was delivered, and a round trip and a
//! reordering window have passed since it was sent. The window is zero until reordering was seen,
//! once three segments were delivered beyond a gap; then it is a quarter of the least round trip,
//! and another quarter for each round trip in which the receiver reported a needless repeat.

use crate::rtt::RoundTrip;
use crate::scoreboard::{Scoreboard, Sent};
use sheaf_stage::{Duration, Instant};

/// Segments delivered beyond a gap that show a loss (RFC 5681).
const DUPLICATES: u32 = 3;
/// The same at most, where packets overtake each other (tcp_max_reordering).
const MOST_DUPLICATES: u32 = 300;
/// Recoveries for which a larger window is kept (RFC 8985, section 6.2).
const PERSIST: u32 = 16;
/// Steps of the window at most, as on Linux.
const MOST_STEPS: u32 = 255;

/// Losses that were found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    pub lost: u32,
    /// Some of them were repeats.
    pub again: bool,
    /// Time after which more may be lost.
    pub wait: Option<Duration>,
}

/// State of the detection.
#[derive(Clone, Debug)]
pub(crate) struct Rack {
    /// Place of the newest transmission that was delivered, and its round trip.
    newest: u64,
    trip: Duration,
    /// Whether that changed since losses were last looked for.
    advanced: bool,
    /// Whether packets overtake each other on the path, and by how many.
    reordered: bool,
    duplicates: u32,
    steps: u32,
    persist: u32,
    /// A needless repeat was reported; segments delivered when the window last grew for one.
    needless: bool,
    grown_at: u64,
}

impl Rack {
    pub fn new() -> Rack {
        Rack {
            newest: 0,
            trip: Duration::ZERO,
            advanced: false,
            reordered: false,
            duplicates: DUPLICATES,
            steps: 1,
            persist: 0,
            needless: false,
            grown_at: 0,
        }
    }

    /// `one` was delivered.
    pub fn deliver(&mut self, one: &Sent, least: Duration, now: Instant) {
        let trip = now - one.sent;
        // The original was delivered, not the repeat (RFC 8985, section 6.2, step 2).
        if one.repeats > 0 && trip < least {
            return;
        }
        (self.advanced, self.trip) = (true, trip);
        self.newest = self.newest.max(one.order);
    }

    /// A segment that was sent once was delivered `segments` behind a later one.
    pub fn note_reordering(&mut self, segments: u32) {
        self.duplicates = self.duplicates.max(segments.min(MOST_DUPLICATES));
        self.reordered = true;
    }

    /// Whether packets overtake each other by more than TCP expects.
    pub fn reorders(&self) -> bool {
        self.duplicates > DUPLICATES
    }

    /// The receiver reported a needless repeat.
    pub fn note_needless(&mut self) {
        self.needless = true;
    }

    /// A reduction was undone: patience lasts longer.
    pub fn note_undo(&mut self) {
        self.persist = (self.persist + 1).min(MOST_STEPS);
    }

    /// Losses are to be looked for again.
    pub fn examine(&mut self) {
        self.advanced = true;
    }

    /// A recovery ended.
    pub fn leave_recovery(&mut self) {
        self.persist = self.persist.saturating_sub(1);
    }

    /// Adapts the window, once a round trip. `before` are the segments that were delivered when the
    /// newest delivered one was sent, `delivered` those delivered now.
    pub fn adapt(&mut self, before: u64, delivered: u64) {
        if before < self.grown_at {
            self.needless = false;
        }
        if self.needless {
            (self.needless, self.grown_at) = (false, delivered);
            (self.steps, self.persist) = ((self.steps + 1).min(MOST_STEPS), PERSIST);
        } else if self.persist == 0 {
            self.steps = 1;
        }
    }

    fn window(&self, board: &Scoreboard, trips: &RoundTrip, recovering: bool) -> Duration {
        if !self.reordered && (recovering || board.delivered() >= self.duplicates) {
            return Duration::ZERO;
        }
        (trips.least() / 4 * self.steps).min(trips.smoothed().unwrap_or_default())
    }

    /// Marks segments as lost where something new was delivered.
    pub fn detect(
        &mut self,
        board: &mut Scoreboard,
        trips: &RoundTrip,
        recovering: bool,
        now: Instant,
    ) -> Found {
        if !std::mem::take(&mut self.advanced) {
            return Found::default();
        }
        self.mark(board, trips, recovering, now)
    }

    /// The same after waiting.
    pub fn mark(
        &mut self,
        board: &mut Scoreboard,
        trips: &RoundTrip,
        recovering: bool,
        now: Instant,
    ) -> Found {
        let patience = self.trip + self.window(board, trips, recovering);
        let mut found = Found::default();
        // The newest one itself was delivered.
        found.lost = board.lose(self.newest, |one| {
            let left = patience.saturating_sub(now - one.sent);
            if left.is_zero() {
                found.again |= one.repeats > 0;
            } else {
                found.wait = found.wait.max(Some(left));
            }
            left.is_zero()
        });
        found
    }

    /// Marks segments as lost at the timeout: the first, and all that were sent long enough ago.
    pub fn time_out(&mut self, board: &mut Scoreboard, now: Instant) {
        let first = board.first().map(|one| one.start);
        let trip = self.trip;
        board.lose(u64::MAX, |one| Some(one.start) == first || now - one.sent >= trip);
    }
}
