//! The outcome of a walk: calls and sizes over time.
//!
//! Calls are judged over the whole walk as everywhere, and every five seconds. A sweep of the calls
//! then shows how many each place of the walk carries, whatever they are elsewhere: the most that
//! are supported there at any place of the sweep.
//!
//! Sizes are judged by the link as it is, not as the hosts see it: by the share of the largest
//! frames that each end may send, full or not, that is lost at each attempt and after all.

use super::supported;
use super::walk::{STEP, Walking};
use crate::measured::{Row, Series};
use crate::reading::{Numbers, Reading};
use crate::view::{Axis, Chart, Metric};
use sheaf_quality::Config;
use sheaf_quality::quality::BAND;
use sheaf_quality::size::frame_error_rate;
use sheaf_stage::{Duration, Instant};
use sheaf_voice::rules::Rule;
use std::ops::Range;

/// Length of a span: a listener who hears nothing for as long hangs up.
pub const WINDOW: Duration = Duration::from_secs(5);
/// Decibels that a size is not held against: it is too large when it is larger than what is best on
/// a link that much stronger. They are a hundredth of what the link carries.
const TOLERANCE: f64 = BAND;
/// Decibels below the margins of the estimate at which a size is certain to have room to grow: two
/// standard deviations of a smoothed reading.
const ROOM: f64 = 1.3;
/// Prefix of the flows that rule kau supports in a span, by its number. These are no columns: the
/// summary is made of them.
const KAU_SPAN: &str = "kau_span_";
/// The same by rule r70.
const R70_SPAN: &str = "r70_span_";
/// Key of the flows that rule kau supports in every span.
const KAU_THROUGHOUT: &str = "kau_throughout";
/// The same by rule r70.
const R70_THROUGHOUT: &str = "r70_throughout";
/// Key of the flows that the places of a walk carry by rule kau, in the mean.
const KAU_WALK: &str = "kau_walk";
/// The same by rule r70.
const R70_WALK: &str = "r70_walk";

/// Explanation of its rows, printed under the report.
pub const NOTES: &str = " \
    Over a walk the calls are judged every five seconds, too. What its places carry is the most of \
    the sweep that is supported in each five seconds, whatever becomes of the calls elsewhere; the \
    table has the mean. The frame error rate is that of the largest frame that may be sent, by the \
    link as it is, at each attempt; its loss is what remains after all attempts. Time above the \
    target counts where the loss is above 3 % and that of a smaller frame would be below.";

/// One span of a walk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Span {
    /// Its end, since packets began to be measured.
    pub end: Duration,
    /// Flows that rule kau supports.
    pub kau: u32,
    /// Flows that rule r70 supports.
    pub r70: u32,
    /// Packets sent.
    pub sent: u64,
    /// Packets of these that arrived.
    pub received: u64,
}

/// The spans of a walk.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    /// Each span.
    pub over: Vec<Span>,
    /// For each flow, the spans in which rules kau and r70 supported it.
    good: Vec<(u32, u32)>,
}

impl Spans {
    /// None yet, of `flows` flows.
    pub fn new(flows: usize) -> Spans {
        Spans { over: Vec::new(), good: vec![(0, 0); flows] }
    }

    /// Counts a span of `flow`.
    pub fn good(&mut self, flow: usize, kau: bool, r70: bool) {
        if let Some((by_kau, by_r70)) = self.good.get_mut(flow) {
            *by_kau += u32::from(kau);
            *by_r70 += u32::from(r70);
        }
    }

    /// Flows that were supported in every span, by rules kau and r70; none without a span.
    fn throughout(&self) -> (usize, usize) {
        let spans = self.over.len().max(1) as u32;
        let count =
            |of: fn(&(u32, u32)) -> u32| self.good.iter().filter(|one| of(one) == spans).count();
        (count(|one| one.0), count(|one| one.1))
    }

    fn mean(&self, value: fn(&Span) -> u32) -> f64 {
        let sum: u32 = self.over.iter().map(value).sum();
        f64::from(sum) / self.over.len().max(1) as f64
    }
}

/// The largest frames of one end towards the other, in bytes, each from a time on.
pub type Sizes = Vec<(Instant, u16)>;

/// Calls and sizes on a walk.
#[derive(Clone, Debug, Default)]
pub struct Walked {
    /// Calls every five seconds.
    pub spans: Spans,
    /// Sizes towards the router, and from it.
    pub sizes: [Sizes; 2],
}

/// The frame error rate of one end's size at the steps of a walk, and how late the size was.
#[derive(Clone, Copy, Debug, Default)]
struct Judged {
    /// Of each attempt: mean, and worst of five seconds.
    errors: f64,
    errors_worst: f64,
    /// After all attempts: mean, and worst of five seconds.
    loss: f64,
    loss_worst: f64,
    /// Share of the steps with a loss above the target, although a smaller frame was below.
    above: f64,
    /// The longest time for which the size was too large.
    late_shrink: Duration,
    /// The longest time for which it was smaller than what is certain to be below the target.
    late_grow: Duration,
    least: u16,
}

/// The longest time for which sizes, one of each step, were not justified by `bounds`, which may
/// change as well: back to the last bound that justified the size of a step, but no further than to
/// the step before which the size of its time was justified.
fn latest(sizes: &[u16], bounds: &[u16], justifies: fn(u16, u16) -> bool) -> Duration {
    let (mut justified, mut longest) = (0, 0);
    for (step, size) in sizes.iter().enumerate() {
        if justifies(bounds[step], *size) {
            justified = step + 1;
            continue;
        }
        let past = bounds[justified..=step].iter().rev();
        longest = longest.max(past.take_while(|bound| !justifies(**bound, *size)).count());
    }
    STEP * longest as u32
}

/// The size at `now`; 0 before the first.
fn size_at(sizes: &Sizes, now: Instant) -> u16 {
    let next = sizes.partition_point(|(at, _)| *at <= now);
    next.checked_sub(1).map_or(0, |at| sizes[at].1)
}

fn steps(measured: &Range<Instant>) -> impl Iterator<Item = Instant> + use<> {
    let (start, end) = (measured.start, measured.end);
    (0..).map(move |step| start + STEP * step).take_while(move |at| *at < end)
}

impl Judged {
    fn new(sizes: &Sizes, walking: &Walking, measured: &Range<Instant>) -> Judged {
        let Config { loss: target, floor, mtu, .. } = Config::default();
        let mut judged = Judged { least: u16::MAX, ..Judged::default() };
        let mut missed = 0u32;
        let (mut errors, mut losses, mut chosen) = (Vec::new(), Vec::new(), Vec::new());
        let (mut carried, mut certain) = (Vec::new(), Vec::new());
        for now in steps(measured) {
            let size = size_at(sizes, now);
            let rate = walking.bit_error_rate(now, 0.0);
            let lost = |size| {
                let error = frame_error_rate(rate, size);
                (error, libm::pow(error, f64::from(walking.attempts)))
            };
            let (error, loss) = lost(size);
            missed += u32::from(loss > target && lost(floor).1 <= target);
            judged.least = judged.least.min(size);
            errors.push(error);
            losses.push(loss);
            chosen.push(size);
            carried.push(walking.best(now, -TOLERANCE, mtu));
            certain.push(walking.best(now, BAND + ROOM, mtu));
        }
        let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        let of_span = (WINDOW.as_nanos() / STEP.as_nanos()) as usize;
        let worst = |rates: &[f64]| rates.chunks(of_span).map(mean).fold(0.0, f64::max);
        Judged {
            errors: mean(&errors),
            errors_worst: worst(&errors),
            loss: mean(&losses),
            loss_worst: worst(&losses),
            above: f64::from(missed) / losses.len().max(1) as f64,
            late_shrink: latest(&chosen, &carried, |bound, size| bound >= size),
            late_grow: latest(&chosen, &certain, |bound, size| bound <= size),
            ..judged
        }
    }
}

/// The columns of a walk: key, label and unit.
const COLUMNS: [(&str, &str, &str); 12] = [
    ("kau_mean", "flows supported in 5 s, mean (rule kau)", ""),
    ("r70_mean", "flows supported in 5 s, mean (rule r70)", ""),
    (KAU_THROUGHOUT, "flows supported in all 5 s (rule kau)", ""),
    (R70_THROUGHOUT, "flows supported in all 5 s (rule r70)", ""),
    ("frame_errors", "frame error rate of the size", "%"),
    ("frame_errors_worst", "the same, worst 5 s", "%"),
    ("frame_loss", "frames of the size lost after all attempts", "%"),
    ("frame_loss_worst", "the same, worst 5 s", "%"),
    ("late_shrink", "size too large for at most", "s"),
    ("late_grow", "size too small for at most", "s"),
    ("above_target", "time above the target", "%"),
    ("least_size", "least size", "B"),
];

/// The metrics that a view has of walks.
pub fn metrics() -> impl Iterator<Item = Metric> {
    COLUMNS.into_iter().map(|(key, label, unit)| Metric::new(key, label, unit))
}

/// The columns of the summary that plans with a walk have.
pub fn summary() -> [Metric; 4] {
    [
        Metric::new(KAU_THROUGHOUT, "supported in all 5 s, kau", ""),
        Metric::new(R70_THROUGHOUT, "supported in all 5 s, r70", ""),
        Metric::new(KAU_WALK, "carried by its places, kau", ""),
        Metric::new(R70_WALK, "carried by its places, r70", ""),
    ]
}

/// The charts that a view has of walks.
pub fn charts() -> [Chart; 3] {
    let target = 100.0 * Config::default().loss;
    [
        Chart::new("Flows supported in 5 s, mean", "kau_mean"),
        Chart::new("Flows supported in all 5 s", "kau_throughout"),
        Chart::new("Frames of the size that are lost", "frame_loss").mark(None, "target", target),
    ]
}

impl Walked {
    /// The numbers of a walk, by key.
    pub fn metrics(&self, walking: &Walking, measured: &Range<Instant>) -> Vec<(String, f64)> {
        let ends = self.sizes.each_ref().map(|sizes| Judged::new(sizes, walking, measured));
        let most = |value: fn(&Judged) -> f64| ends.iter().map(value).fold(0.0, f64::max);
        let (kau, r70) = self.spans.throughout();
        let least = ends.iter().map(|end| end.least).min().unwrap_or(0);
        let values = [
            self.spans.mean(|span| span.kau),
            self.spans.mean(|span| span.r70),
            kau as f64,
            r70 as f64,
            100.0 * most(|end| end.errors),
            100.0 * most(|end| end.errors_worst),
            100.0 * most(|end| end.loss),
            100.0 * most(|end| end.loss_worst),
            most(|end| end.late_shrink.as_secs_f64()),
            most(|end| end.late_grow.as_secs_f64()),
            100.0 * most(|end| end.above),
            f64::from(least),
        ];
        let keys = COLUMNS.iter().map(|(key, _, _)| (*key).to_owned());
        let mut metrics: Vec<_> = keys.zip(values).collect();
        for (number, span) in self.spans.over.iter().enumerate() {
            metrics.push((format!("{KAU_SPAN}{number:03}"), f64::from(span.kau)));
            metrics.push((format!("{R70_SPAN}{number:03}"), f64::from(span.r70)));
        }
        metrics
    }

    /// The curves of a walk over time.
    pub fn series(&self, walking: &Walking, measured: &Range<Instant>) -> Vec<Series> {
        let curve = |name: &str, y: Axis, points: Vec<(f64, f64)>| Series {
            name: name.to_owned(),
            x: Axis::new("time", "s"),
            y,
            points,
        };
        let over_steps = |value: &dyn Fn(Instant) -> f64| -> Vec<(f64, f64)> {
            let seconds = |now: Instant| (now - measured.start).as_secs_f64();
            // One point a second: a sample is not more frequent.
            let every = (Duration::from_secs(1).as_nanos() / STEP.as_nanos()) as usize;
            steps(measured).step_by(every).map(|now| (seconds(now), value(now))).collect()
        };
        let over_spans = |value: &dyn Fn(&Span) -> f64| -> Vec<(f64, f64)> {
            let spans = self.spans.over.iter();
            spans.map(|span| (span.end.as_secs_f64(), value(span))).collect()
        };
        let mtu = Config::default().mtu;
        let bytes = || Axis::new("largest frame", "B");
        let loss = |span: &Span| {
            100.0 * (1.0 - span.received as f64 / (span.sent as f64).max(1.0)).max(0.0)
        };
        vec![
            curve(
                "Distance over time",
                Axis::new("distance", "m"),
                over_steps(&|now| walking.distance(now)),
            ),
            curve(
                "Size from the station over time",
                bytes(),
                over_steps(&|now| f64::from(size_at(&self.sizes[0], now))),
            ),
            curve(
                "Size to the station over time",
                bytes(),
                over_steps(&|now| f64::from(size_at(&self.sizes[1], now))),
            ),
            curve(
                "Size that carries most over time",
                bytes(),
                over_steps(&|now| f64::from(walking.best(now, 0.0, mtu))),
            ),
            curve("Loss over time", Axis::new("loss", "%"), over_spans(&loss)),
            curve(
                "Flows supported over time (rule kau)",
                Axis::new("flows", ""),
                over_spans(&|span| f64::from(span.kau)),
            ),
        ]
    }
}

/// The rules by which the spans of a walk are judged, with the keys of its spans and its summary.
const RULES: [(Rule, &str, &str); 2] =
    [(Rule::Kau, KAU_SPAN, KAU_WALK), (Rule::R70, R70_SPAN, R70_WALK)];

/// Flows that a walk carries by rule kau.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Carried {
    /// The most flows that are supported in every span.
    pub throughout: Reading,
    /// The flows that its places carry, in the mean.
    pub places: Reading,
}

/// Writes what a walk carries to `summary`: the peak of the flows that are supported in every span,
/// and the flows that its places carry, which are the most of the sweep in each span, in the mean
/// over the spans. The interval of that mean is the mean of the intervals, which is wider. Nothing
/// is written for a sweep without a walk.
pub fn read(sweep: &[&Row], summary: &mut Numbers) -> Option<Carried> {
    let [throughout, _] =
        [KAU_THROUGHOUT, R70_THROUGHOUT].map(|key| supported::read(sweep, key, summary));
    let [kau, _] = RULES.map(|(_, span, key)| {
        let carried = carried(sweep, span)?;
        for (end, value) in [
            ("", Some(carried.value)),
            ("_low", carried.interval.map(|(low, _)| low)),
            ("_high", carried.interval.map(|(_, high)| high)),
        ] {
            summary.extend(value.map(|value| (format!("{key}{end}"), value)));
        }
        Some(carried)
    });
    throughout.zip(kau).map(|(throughout, places)| Carried { throughout, places })
}

fn carried(sweep: &[&Row], prefix: &str) -> Option<Reading> {
    let key = |number: u32| format!("{prefix}{number:03}");
    let has = |number: &u32| sweep.iter().any(|row| row.get(&key(*number)).is_some());
    let spans: Vec<_> = (0..).take_while(has).map(key).collect();
    // The first of the most: the fewest injected.
    let most = |key: &String| {
        let readings = sweep.iter().filter_map(|row| row.reading(key));
        readings.reduce(|most, next| if next.value > most.value { next } else { most })
    };
    let readings: Vec<_> = spans.iter().filter_map(most).collect();
    let mean = |value: &dyn Fn(&Reading) -> f64| {
        readings.iter().map(value).sum::<f64>() / readings.len() as f64
    };
    let interval = readings.iter().any(|one| one.interval.is_some());
    let ends = |one: &Reading| one.interval.unwrap_or((one.value, one.value));
    (!readings.is_empty()).then(|| Reading {
        interval: interval.then(|| (mean(&|one| ends(one).0), mean(&|one| ends(one).1))),
        ..Reading::exact(mean(&|one| one.value))
    })
}

/// Sentence on what a walk carries under each treatment.
pub fn answer(scenario: &str, treatments: &[(&str, Carried)]) -> Option<String> {
    let list = |text: fn(&Carried) -> String| {
        let named = treatments.iter().map(|(name, one)| format!("“{name}” {}", text(one)));
        named.collect::<Vec<_>>().join(", ")
    };
    let throughout = list(|one| one.throughout.text(|flows| flows.to_string()));
    let places = list(|one| one.places.text(|flows| format!("{flows:.1}")));
    (!treatments.is_empty()).then(|| {
        format!(
            "{scenario}: supported in every five seconds of the walk: {throughout}; carried by its \
             places, in the mean: {places}."
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::{Measured, SweepPoint};

    #[test]
    fn a_size_is_late_since_the_link_that_justified_it_or_since_it_was_chosen() {
        let too_large =
            |sizes: &[u16], bounds: &[u16]| latest(sizes, bounds, |bound, size| bound >= size);
        // The link shrinks in two steps, the size follows each two steps later.
        let (sizes, bounds) = ([9, 9, 9, 9, 6, 6, 3], [9, 9, 6, 6, 3, 3, 3]);
        assert_eq!(too_large(&sizes, &bounds), STEP * 2);
        // A size that is wrong for a moment is not as late as the link is old.
        assert_eq!(too_large(&[3, 3, 3, 3, 4, 3], &[3; 6]), STEP);
        assert_eq!(too_large(&[9; 4], &[9, 3, 3, 3]), STEP * 3);
        assert_eq!(too_large(&[3; 4], &[9, 3, 3, 3]), Duration::ZERO);
    }

    #[test]
    fn a_walk_carries_in_each_span_the_most_of_the_sweep() {
        let row = |x: f64, flows: [f64; 2]| {
            let spans = (0..).zip(flows);
            let spans = spans.map(|(span, flows)| (format!("{KAU_SPAN}{span:03}"), flows));
            let metrics = spans.chain([(KAU_THROUGHOUT.to_owned(), flows[1])]).collect();
            let measured = Measured { metrics, series: Vec::new() };
            Row::new(&SweepPoint::new("s", "t", x, 1.0), &[&measured])
        };
        let rows = [row(10.0, [10.0, 10.0]), row(40.0, [40.0, 0.0]), row(80.0, [0.0, 0.0])];
        let mut summary = Numbers::new();
        let carried = read(&rows.iter().collect::<Vec<_>>(), &mut summary).unwrap();
        assert_eq!(carried.places, Reading::exact(25.0));
        assert_eq!((carried.throughout.value, carried.throughout.to), (10.0, 39.0));
        assert_eq!((summary[KAU_WALK], summary[KAU_THROUGHOUT]), (25.0, 10.0));
        assert_eq!(read(&[], &mut summary), None);
    }

    #[test]
    fn only_flows_that_were_good_in_every_span_are_supported_throughout() {
        let mut spans = Spans::new(2);
        for good in [true, false] {
            spans.good(0, true, good);
            spans.good(1, good, good);
            spans.over.push(Span { kau: 1 + u32::from(good), ..Span::default() });
        }
        assert_eq!(spans.throughout(), (1, 0));
        assert_eq!(spans.mean(|span| span.kau), 1.5);
    }
}
