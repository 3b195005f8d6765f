//! Windows in whole segments, that change seldom.
//!
//! Principle: a sender sends no parts of a segment, so a share of 16.3 segments is 16 or 17. Each
//! change of a window by a segment is a change of the queue by a segment, which every packet behind
//! it feels; so a flow keeps its number while its wish stays near it. The remainders of all flows
//! together are given out as single segments to the flows that were short the longest, and these
//! keep them for a while (largest remainders, Hamilton's method of apportionment, over
//! time).

/// By how much a wish may leave a window, in segments, before the window follows.
const HOLD: f64 = 0.25;
/// By how many segments, summed over the steps, one flow must be shorter than another to take over
/// its extra one: at ten steps a second for a second.
const TURN: f64 = 10.0;

/// The state of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct State {
    /// Segments without an extra one.
    base: f64,
    /// Segments that it had too few so far, summed over the steps.
    short: f64,
    /// Whether it has an extra one.
    has_extra: bool,
}

impl State {
    /// Takes a wish of `segments`, not below `least`. Returns the remainder.
    fn wish(&mut self, segments: f64, least: f64) -> f64 {
        let segments = segments.max(least);
        let near = (self.base - HOLD..self.base + 1.0 + HOLD).contains(&segments);
        if !near || self.base < least {
            self.base = segments.floor();
        }
        segments - self.base
    }

    /// Urgency of its need for an extra segment.
    fn urgency(&self) -> f64 {
        self.short + if self.has_extra { TURN } else { 0.0 }
    }

    /// Gives it an extra segment or none, after a wish with the remainder `over`. Returns all its
    /// segments.
    fn settle(&mut self, over: f64, has_extra: bool) -> f64 {
        self.has_extra = has_extra;
        let extra = f64::from(u8::from(has_extra));
        // Bounded, so that a shortage of long ago does not outweigh a recent one.
        self.short = (self.short + over - extra).clamp(-2.0 * TURN, 2.0 * TURN);
        self.base + extra
    }
}

/// Gives out the remainders of all flows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounding {
    /// Extra segments that are given out.
    extras: usize,
    /// Urgency, and which flow, of those that take part.
    order: Vec<(f64, usize)>,
    /// Remainder of each flow's wish, and whether it gets an extra segment.
    over: Vec<(f64, bool)>,
}

impl Rounding {
    /// Begins a step.
    pub fn begin(&mut self) {
        self.order.clear();
        self.over.clear();
    }

    /// The next flow wishes `segments`, at least `least`; one that is not `active` leaves nothing
    /// to others.
    pub fn wish(&mut self, state: &mut State, segments: f64, least: f64, active: bool) {
        let over = state.wish(segments, least);
        if active {
            self.order.push((state.urgency(), self.over.len()));
        }
        self.over.push((over, false));
    }

    /// Gives out the extra segments, after all flows have wished.
    pub fn divide(&mut self) {
        let sum: f64 = self.order.iter().map(|(_, which)| self.over[*which].0).sum();
        let extras = self.extras as f64;
        if !(extras - HOLD..extras + 1.0 + HOLD).contains(&sum) {
            self.extras = sum.max(0.0) as usize;
        }
        self.extras = self.extras.min(self.order.len());
        // Of equal flows the first, so that the same input gives the same windows.
        self.order.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        for (_, which) in &self.order[..self.extras] {
            self.over[*which].1 = true;
        }
    }

    /// The segments of the flow that wished as number `which`.
    pub fn segments(&self, which: usize, state: &mut State) -> f64 {
        let (over, has_extra) = self.over[which];
        state.settle(over, has_extra)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(rounding: &mut Rounding, states: &mut [State], wishes: &[f64]) -> Vec<f64> {
        rounding.begin();
        for (state, wish) in states.iter_mut().zip(wishes) {
            rounding.wish(state, *wish, 2.0, true);
        }
        rounding.divide();
        (0..).zip(states).map(|(which, state)| rounding.segments(which, state)).collect()
    }

    #[test]
    fn a_wish_that_only_trembles_changes_nothing() {
        let (mut rounding, mut states) = (Rounding::default(), [State::default()]);
        for wish in [16.1, 15.9, 17.1, 16.9, 15.8] {
            assert_eq!(step(&mut rounding, &mut states, &[wish]), [16.0]);
        }
        assert_eq!(step(&mut rounding, &mut states, &[18.5]), [18.0]);
        assert_eq!(step(&mut rounding, &mut states, &[0.3]), [2.0], "the least");
    }

    #[test]
    fn all_flows_together_get_what_they_wish_and_each_its_share_in_time() {
        let (mut rounding, mut states) = (Rounding::default(), [State::default(); 5]);
        let wishes = [3.9, 3.4, 3.4, 7.2, 2.3];
        let (mut sums, mut changes) = ([0.0; 5], 0);
        let mut before = Vec::new();
        for _ in 0..600 {
            let now = step(&mut rounding, &mut states, &wishes);
            assert_eq!(now.iter().sum::<f64>(), 20.0, "of 20.2");
            changes += usize::from(now != before);
            sums.iter_mut().zip(&now).for_each(|(sum, now)| *sum += now / 600.0);
            before = now;
        }
        for (mean, wish) in sums.iter().zip(wishes) {
            assert!((mean - wish).abs() < 0.2, "{sums:?} for {wishes:?}");
        }
        assert!(changes <= 150, "{changes} times in a minute");
    }

    #[test]
    fn flows_that_are_not_active_take_no_part() {
        let (mut rounding, mut states) = (Rounding::default(), [State::default(); 3]);
        rounding.begin();
        for (state, active) in states.iter_mut().zip([true, false, false]) {
            rounding.wish(state, 4.9, 2.0, active);
        }
        rounding.divide();
        let all: Vec<_> =
            (0..).zip(&mut states).map(|(which, state)| rounding.segments(which, state)).collect();
        assert_eq!(all, [4.0, 4.0, 4.0]);
    }
}
