//! Windows a little above the shares, where shares leave the link idle.
//!
//! Principle: a window of capacity times the smallest round-trip time fills the link only if every
//! round takes no longer than that. But acknowledgements come in clumps (802.11 aggregates them),
//! and hosts are late: rounds are longer than their floor, without any queue. So while windows
//! limit the flows and yet less passes than the capacity, windows are stretched slowly, until the
//! link is full. If the given capacity is too large, the excess stands in the queue: at most
//! [`MOST`] − 1 of a round-trip time.

/// The largest factor.
pub const MOST: f64 = 1.25;
/// Of the capacity: below this the link counts as idle at times, above that as full.
const IDLE: f64 = 0.985;
const FULL: f64 = 0.995;
/// By how much the factor changes in a second.
const PER_SECOND: f64 = 0.05;
/// Time constant of the mean of what passes, seconds; shorter than the factor takes.
const MEAN: f64 = 0.3;

/// The factor over time.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    factor: f64,
    /// Part of the capacity that passes.
    used: f64,
}

impl Default for Stretch {
    fn default() -> Self {
        Stretch { factor: 1.0, used: 1.0 }
    }
}

impl Stretch {
    /// Takes in that `used` of the capacity passed in `seconds`, whether windows limit the flows,
    /// and whether they have been divided among the same flows for a while: what is idle while
    /// those that stay take over from those that end needs no larger windows.
    pub fn step(&mut self, used: f64, is_limited: bool, is_settled: bool, seconds: f64) {
        self.used += (used - self.used) * (1.0 - libm::exp(-seconds / MEAN));
        let change = PER_SECOND * seconds;
        self.factor = match is_limited {
            true if self.used < IDLE && is_settled => self.factor + change,
            true if self.used <= FULL => self.factor,
            _ => self.factor - change,
        }
        .clamp(1.0, MOST);
    }

    /// Factor by which windows are multiplied, 1 to [`MOST`].
    pub fn factor(&self) -> f64 {
        self.factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(steps: u32, used: f64, is_limited: bool, mut stretch: Stretch) -> Stretch {
        for _ in 0..steps {
            stretch.step(used, is_limited, true, 0.1);
        }
        stretch
    }

    #[test]
    fn an_idle_link_stretches_windows_to_a_bound_and_a_full_one_takes_it_back() {
        let idle = after(100, 0.9, true, Stretch::default());
        assert_eq!(idle.factor(), MOST);
        assert_eq!(after(100, 0.99, true, Stretch::default()).factor(), 1.0, "nearly full is full");
        assert_eq!(after(100, 1.0, true, idle).factor(), 1.0);
    }

    #[test]
    fn a_link_that_is_idle_while_one_flow_takes_over_from_another_stretches_nothing() {
        let mut stretch = Stretch::default();
        (0..100).for_each(|_| stretch.step(0.9, true, false, 0.1));
        assert_eq!(stretch.factor(), 1.0);
        let mut idle = after(100, 0.9, true, Stretch::default());
        (0..100).for_each(|_| idle.step(1.0, true, false, 0.1));
        assert_eq!(idle.factor(), 1.0, "a full one takes it back at any time");
    }

    #[test]
    fn flows_that_something_else_limits_are_not_stretched() {
        assert_eq!(after(100, 0.1, false, Stretch::default()).factor(), 1.0);
        let idle = after(100, 0.9, true, Stretch::default());
        assert_eq!(after(100, 0.1, false, idle).factor(), 1.0);
    }
}
