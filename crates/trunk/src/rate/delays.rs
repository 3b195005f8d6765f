//! One-way delays in a row: their minimum, their variation, and the queue that stands above both.

use std::collections::VecDeque;

/// The last delays among which the lowest counts: those of eight reports are of a sixth of a
/// second. On a link whose delay varies a single one says nothing of its queue; the lowest of some
/// does, as the standing round trip of Copa (NSDI 2018).
const DELAYS: usize = 8;
/// Variation of the delay, in seconds, for which one more of them is taken: below that of a link
/// without other traffic one is enough.
pub(super) const VARIATION_STEP: f64 = 0.001;
/// Changes of the delay over which the variation is averaged (RFC 3550, section 6.4.1). The first
/// ones are all it is known from: a variation that starts at zero takes the first delays that vary
/// for queues, and they end start-up.
const VARIATION_CHANGES: f64 = 16.0;
/// Difference of two changes in a row over one change, for independent delays: √3.
const BEND: f64 = 1.732;
/// Change counted in the variation at most, in seconds: more is a path that became another one.
const MOST_VARIATION: f64 = 0.1;
/// Width of an even spread of delays over the mean change from one to the next. So the lowest of
/// eight delays is above the least by more than this change in one case of 26: more is a queue.
pub(super) const SPREAD: f64 = 3.0;
/// Queueing delay taken for the link's at most, in seconds: more is a clock that was set.
pub(super) const MOST_QUEUE: f64 = 60.0;

/// Delays of one kind of frames on a link, in µs modulo 2³².
#[derive(Clone, Debug)]
pub(super) struct Delays {
    /// Minimum of this period, and of the one before.
    current: Option<u32>,
    previous: Option<u32>,
    /// The last ones.
    last: VecDeque<u32>,
    /// Mean change from one to the next, in seconds.
    variation: f64,
    /// Changes that it is the mean of.
    changes: f64,
}

impl Delays {
    pub fn new() -> Delays {
        let last = VecDeque::with_capacity(DELAYS);
        Delays { current: None, previous: None, last, variation: 0.0, changes: 0.0 }
    }

    /// Mean change from one to the next, in seconds.
    pub fn variation(&self) -> f64 {
        self.variation
    }

    /// Whether more than one of them is needed to see a queue.
    pub fn is_varied(&self) -> bool {
        self.variation >= VARIATION_STEP
    }

    pub fn forget_variation(&mut self) {
        self.variation = 0.0;
    }

    /// Minimum of this period and the one before.
    pub fn lowest(&self) -> Option<u32> {
        self.current.into_iter().chain(self.previous).reduce(lower)
    }

    /// Begins a period; the minimum of the one before last is forgotten.
    pub fn begin_period(&mut self) {
        self.previous = self.current.take().or(self.previous);
    }

    /// Takes the standing delay for the minimum: the path became longer.
    pub fn take_standing(&mut self) {
        self.current = self.standing().map(|(standing, _)| standing);
        self.previous = None;
    }

    pub fn note(&mut self, delay: u32) {
        let above = |lowest: u32| f64::from(later(delay, lowest)) * 1e-6;
        if self.lowest().is_some_and(|lowest| above(lowest) > MOST_QUEUE) {
            // No queue is that long, so the minimum is of another clock, or was forged.
            *self = Delays::new();
        }
        self.current = Some(self.current.map_or(delay, |current| lower(current, delay)));
        let [before, last] = [2, 1].map(|back| {
            let at = self.last.len().checked_sub(back)?;
            self.last.get(at).copied()
        });
        if let (Some(before), Some(last)) = (before, last) {
            // A queue that builds up or drains changes the delay evenly, jitter does not.
            let bend = later(delay, last).saturating_sub(later(last, before)).unsigned_abs();
            let change = (f64::from(bend) * 1e-6 / BEND).min(MOST_VARIATION);
            self.changes = (self.changes + 1.0).min(VARIATION_CHANGES);
            self.variation += (change - self.variation) / self.changes;
        }
        if self.last.len() == DELAYS {
            self.last.pop_front();
        }
        self.last.push_back(delay);
    }

    /// Queue that the last delays show above the minimum, in seconds.
    pub fn queue(&self) -> f64 {
        let (Some(lowest), Some((standing, excess))) = (self.lowest(), self.standing()) else {
            return 0.0;
        };
        let queue = f64::from(later(standing, lowest).max(0)) * 1e-6;
        (queue - excess).max(0.0)
    }

    /// The lowest of the last delays, of more where they vary, and how much of it is explained by
    /// that.
    fn standing(&self) -> Option<(u32, f64)> {
        let count = 1 + (self.variation / VARIATION_STEP) as usize;
        let lowest = self.last.iter().rev().take(count).copied().reduce(lower)?;
        Some((lowest, if count > 1 { self.variation } else { 0.0 }))
    }
}

fn lower(a: u32, b: u32) -> u32 {
    if later(a, b) < 0 { a } else { b }
}

/// `a − b` of two times modulo 2³² that are less than 2³¹ apart.
pub fn later(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b).cast_signed()
}
