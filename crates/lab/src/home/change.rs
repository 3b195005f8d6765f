//! A bottleneck that changes while everything runs, and the capacity that window control assumes.
//!
//! Both are rates on the wire: the emulator's counts whole frames with their link headers, and so
//! does the program of `sheaf window`.

use crate::columns::{self, Column, column};
use crate::measured::Series;
use crate::view::Axis;
use sheaf_stage::{Duration, Instant};

/// Time between two looks at the bottleneck.
pub(super) const LOOK: Duration = Duration::from_millis(500);

/// Time after a change within which window control is to find the capacity again.
const SETTLED: Duration = Duration::from_secs(5);

/// A rate in Mbit/s from this moment on.
pub type Step = (Instant, f64);

/// The capacity that window control assumed, in Mbit/s.
#[derive(Debug, Default, PartialEq)]
pub struct Known {
    /// Over time.
    curve: Vec<Step>,
    /// The true and the assumed capacity 5 s after the start and after each change.
    settled: Vec<(f64, f64)>,
}

/// By how many per cent the assumed capacity was wrong at most.
pub(super) const KNOWN_ERROR: Column<Known> =
    column("known_error", "known capacity wrong by, most", "%", |known| {
        let error = |(truth, known): &(f64, f64)| 100.0 * (known / truth - 1.0).abs();
        known.settled.iter().map(error).fold(f64::NAN, f64::max)
    });

/// A home at work, on either engine.
pub(super) trait Home {
    /// Lets the time until `until` pass.
    fn wait(&mut self, until: Instant) -> anyhow::Result<()>;

    /// Gives the link `rate` Mbit/s; packets that wait for it stay.
    fn change(&mut self, rate: f64) -> anyhow::Result<()>;

    /// Whether window control is there.
    fn is_controlled(&self) -> bool;

    /// The capacity that window control assumes, bit/s; NaN without it.
    fn capacity(&self) -> anyhow::Result<f64>;
}

/// A step of the agenda.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Item {
    /// The bottleneck gets this rate.
    Change(f64),
    /// The assumed capacity is recorded.
    Look,
    /// The assumed capacity is compared with this rate.
    Settled(f64),
}

/// Changes the bottleneck as `steps` say, the first of which is the state at the start, and looks
/// at the assumed capacity, until `until`.
pub(super) fn follow(
    home: &mut impl Home,
    steps: &[Step],
    until: Instant,
) -> anyhow::Result<Known> {
    let mut known = Known::default();
    for (at, item) in agenda(steps, until) {
        if !home.is_controlled() && !matches!(item, Item::Change(_)) {
            continue;
        }
        home.wait(at)?;
        match item {
            Item::Change(rate) => home.change(rate)?,
            Item::Look => known.curve.push((at, home.capacity()? / 1e6)),
            Item::Settled(truth) => known.settled.push((truth, home.capacity()? / 1e6)),
        }
    }
    if !home.is_controlled() {
        // The report draws the truth over the assumptions of the other treatments.
        let ends = steps.iter().skip(1).map(|(at, _)| *at).chain([until]);
        let drawn =
            steps.iter().zip(ends).flat_map(|((at, rate), end)| [(*at, *rate), (end, *rate)]);
        known.curve = drawn.collect();
    }
    Ok(known)
}

/// All steps in order of time. A rate that does not last for 5 s need not be found.
fn agenda(steps: &[Step], until: Instant) -> Vec<(Instant, Item)> {
    let mut items = Vec::new();
    let Some((start, _)) = steps.first() else { return items };
    items.extend(steps.iter().skip(1).map(|(at, rate)| (*at, Item::Change(*rate))));
    for (number, (at, rate)) in steps.iter().enumerate() {
        let end = steps.get(number + 1).map_or(until, |(next, _)| *next);
        if *at + SETTLED <= end {
            items.push((*at + SETTLED, Item::Settled(*rate)));
        }
    }
    let looks = (1..).map(|number| *start + LOOK * number).take_while(|at| *at <= until);
    items.extend(looks.map(|at| (at, Item::Look)));
    items.retain(|(at, _)| *at <= until);
    items.sort_by_key(|(at, _)| *at);
    items
}

impl Known {
    /// `known_0`, `known_1` …: assumed capacity 5 s after the start and each change; and
    /// `known_error`, NaN where the capacity was given.
    pub fn metrics(&self) -> Vec<(String, f64)> {
        let known = self.settled.iter().map(|(_, known)| *known);
        let mut metrics: Vec<_> = (0..)
            .zip(known)
            .map(|(number, known): (u32, _)| (format!("known_{number}"), known))
            .collect();
        metrics.extend(columns::values(&[KNOWN_ERROR], self));
        metrics
    }

    /// The capacity over time since `started`.
    pub fn series(&self, started: Instant) -> Option<Series> {
        let points = self.curve.iter().map(|(at, rate)| ((*at - started).as_secs_f64(), *rate));
        (!self.curve.is_empty()).then(|| Series {
            name: "Capacity of the bottleneck".to_owned(),
            x: Axis::new("time", "s"),
            y: Axis::new("capacity", "Mbit/s"),
            points: points.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn what_is_known_counts_five_seconds_after_the_start_and_each_change_that_lasts() {
        let steps = [(at(1_000), 20.0), (at(8_000), 10.0), (at(9_000), 40.0), (at(20_000), 20.0)];
        let agenda = agenda(&steps, at(24_000));
        let counted: Vec<_> =
            agenda.iter().filter(|(_, item)| matches!(item, Item::Settled(_))).copied().collect();
        assert_eq!(counted, [(at(6_000), Item::Settled(20.0)), (at(14_000), Item::Settled(40.0))]);
        let changes = agenda.iter().filter(|(_, item)| matches!(item, Item::Change(_))).count();
        assert_eq!(changes, 3, "the first is the state at the start");
        assert!(agenda.is_sorted_by_key(|(at, _)| *at));
        assert!(agenda.iter().all(|(when, _)| *when <= at(24_000)));
    }

    #[test]
    fn the_error_is_the_largest_in_either_direction() {
        let known = Known { curve: Vec::new(), settled: vec![(20.0, 19.0), (10.0, 11.2)] };
        let metrics = known.metrics();
        assert_eq!(metrics[1], ("known_1".to_owned(), 11.2));
        assert!((metrics[2].1 - 12.0).abs() < 1e-9, "{metrics:?}");
        assert!(Known::default().metrics()[0].1.is_nan(), "nothing was to be known");
    }
}
