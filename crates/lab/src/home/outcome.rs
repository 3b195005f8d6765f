//! The numbers and the curves of a point, from what either engine watched.

use super::change::Known;
use super::plan::{Role, Scenario, Times};
use super::sessions::Loads;
use super::streams::Quality;
use crate::columns::{self, Column, column};
use crate::measured::{Measured, Series};
use crate::view::Axis;
use sheaf_stage::{Duration, Instant};

/// Points of a curve, at most; a longer one is thinned.
const POINTS: usize = 2_000;
/// Transfers that have a curve each; of more there is their sum.
const EACH: usize = 5;

/// Observations of transfers and bottleneck.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// Rate of data that arrived while everything ran, by transfer, bit/s.
    pub rates: Vec<f64>,
    /// Mean queue while everything ran, packets.
    pub queue: f64,
    /// Packets that the bottleneck dropped, from the beginning on.
    pub drops: f64,
    /// Capacity that window control assumes, bit/s.
    pub capacity: f64,
    /// Bytes that arrived so far, by transfer, about once a second.
    pub progress: Vec<(Instant, Vec<u64>)>,
}

impl Watched {
    /// Rates in bit/s of transfers that had `before` bytes, and `after` bytes `seconds` later.
    pub fn rates(before: &[u64], after: &[u64], seconds: f64) -> Vec<f64> {
        let bits = before.iter().zip(after).map(|(before, after)| (after - before) as f64 * 8.0);
        bits.map(|bits| bits / seconds).collect()
    }
}

/// The measurement of a point of `scenario`.
pub(super) fn measured(
    scenario: &Scenario,
    watched: Watched,
    quality: Quality,
    loads: Loads,
    known: &Known,
    times: &Times,
) -> Measured {
    let mut series = series(scenario, &watched, &quality, known, times);
    if scenario.flows.len() == 1 {
        series.extend(load_times(&loads, times));
    }
    let limited = scenario.limited.iter().len();
    let outcome = Outcome::new(watched, limited, quality, &loads, times);
    let mut metrics = Vec::new();
    for columns in [COLUMNS, POISSON, CAPTURE, WEB, REQUEST] {
        metrics.extend(columns::values(columns, &outcome));
    }
    metrics.extend(known.metrics());
    Measured { metrics, series }
}

/// Everything that was measured at one point.
pub(super) struct Outcome {
    watched: Watched,
    /// Number of transfers, the first ones, whose application sends no more.
    limited: usize,
    quality: Quality,
    /// Times between two packets of the game while everything ran, in ms, sorted.
    gaps: Vec<f64>,
    /// Times in seconds of pages that ended while everything ran, sorted; where there are no pages
    /// in the plan none.
    pages: Vec<f64>,
    /// Round trips in ms of requests that ended then, sorted.
    trips: Vec<f64>,
}

pub(super) const RATE: Column<Outcome> =
    column("rate", "TCP data", "Mbit/s", |point| point.rate() / 1e6);
pub(super) const JAIN: Column<Outcome> = column("jain", "Jain index", "", Outcome::jain);
pub(super) const GAP_P99: Column<Outcome> =
    column("gap_p99", "game inter-arrival, p99", "ms", |point| share_of(&point.gaps, 0.99));
pub(super) const DELAY_P99: Column<Outcome> =
    column("delay_p99", "game delay, p99", "ms", |point| {
        point.quality.delay.map_or(f64::NAN, |delay| delay.as_secs_f64() * 1e3)
    });
pub(super) const DROPS: Column<Outcome> =
    column("drops", "drops at the bottleneck", "packets", |point| point.watched.drops);

/// The numbers of a row, without the assumed capacities after changes.
pub(super) const COLUMNS: &[Column<Outcome>] = &[
    RATE,
    JAIN,
    column("gap_p50", "game inter-arrival, median", "ms", |point| share_of(&point.gaps, 0.5)),
    GAP_P99,
    DELAY_P99,
    column("loss_stream", "loss of the stream", "%", |point| point.loss(Role::Stream)),
    column("loss_game", "loss of the game", "%", |point| point.loss(Role::Game)),
    column("loss_call", "loss of the call", "%", |point| point.loss(Role::Call)),
    column("r", "call, R", "", |point| point.quality.r),
    column("queue", "mean queue", "packets", |point| point.watched.queue),
    DROPS,
    column("capacity", "capacity as it is known", "Mbit/s", |point| point.watched.capacity / 1e6),
];

pub(super) const PAGE_P95: Column<Outcome> =
    column("page_p95", "page load time, p95", "s", |point| share_of(&point.pages, 0.95));
pub(super) const TRIP_P99: Column<Outcome> =
    column("trip_p99", "request round trip, p99", "ms", |point| share_of(&point.trips, 0.99));

/// The numbers of packets at random.
pub(super) const POISSON: &[Column<Outcome>] = &[
    column("delay_poisson_p99", "delay of packets at random, p99", "ms", |point| {
        point.quality.poisson_delay.map_or(f64::NAN, |delay| delay.as_secs_f64() * 1e3)
    }),
    column("loss_poisson", "loss of packets at random", "%", |point| point.loss(Role::Poisson)),
];

/// The numbers of a captured call.
pub(super) const CAPTURE: &[Column<Outcome>] = &[
    column("loss_capture", "loss of the captured call", "%", |point| point.loss(Role::Capture)),
    column("r_capture", "captured call, R", "", |point| point.quality.capture_r),
];

/// The numbers of pages of the web.
pub(super) const WEB: &[Column<Outcome>] = &[
    column("page_p50", "page load time, median", "s", |point| share_of(&point.pages, 0.5)),
    PAGE_P95,
    column("pages", "pages", "", |point| count(&point.pages)),
];

/// The numbers of requests.
pub(super) const REQUEST: &[Column<Outcome>] = &[
    column("trip_p50", "request round trip, median", "ms", |point| share_of(&point.trips, 0.5)),
    TRIP_P99,
    column("requests", "requests", "", |point| count(&point.trips)),
];

/// The value of `sorted` that `share` (0..1) of all do not exceed; NaN where there is none.
fn share_of(sorted: &[f64], share: f64) -> f64 {
    let place = (sorted.len() as f64 * share) as usize;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

/// Number of `times`; NaN where there is none.
fn count(times: &[f64]) -> f64 {
    if times.is_empty() { f64::NAN } else { times.len() as f64 }
}

/// Times, multiplied by `unit`, of what ended after `from` and until `until`, sorted.
fn sorted(ended: &[(Instant, Duration)], (from, until): (Instant, Instant), unit: f64) -> Vec<f64> {
    let counted = ended.iter().filter(|(at, _)| *at > from && *at <= until);
    let mut times: Vec<f64> = counted.map(|(_, time)| time.as_secs_f64() * unit).collect();
    times.sort_unstable_by(f64::total_cmp);
    times
}

impl Outcome {
    /// Of the game's inter-arrival times those count that ended while everything ran; of loads,
    /// those after the warm-up.
    fn new(
        watched: Watched,
        limited: usize,
        quality: Quality,
        loads: &Loads,
        times: &Times,
    ) -> Outcome {
        let gaps = sorted(&quality.gaps, (times.together, times.last), 1e3);
        let counted = (times.counted, times.until);
        let pages = sorted(&loads.pages, counted, 1.0);
        let trips = sorted(&loads.requests, counted, 1e3);
        Outcome { watched, limited, quality, gaps, pages, trips }
    }

    /// Rate of all transfers, bit/s. A sum of none would be a negative zero.
    fn rate(&self) -> f64 {
        self.watched.rates.iter().fold(0.0, |sum, rate| sum + rate)
    }

    fn loss(&self, role: Role) -> f64 {
        100.0 * self.quality.loss[role as usize]
    }

    /// Jain's index of the transfers that take what they get: a limited one has no equal share.
    fn jain(&self) -> f64 {
        let rates = &self.watched.rates;
        let equal = &rates[self.limited.min(rates.len())..];
        if equal.is_empty() { f64::NAN } else { jain(equal) }
    }
}

/// Curves of the game's inter-arrival times and of the capacity; where the scenario is no sweep, of
/// which each point would have its own charts, also of every flow's rate and losses.
fn series(
    scenario: &Scenario,
    watched: &Watched,
    quality: &Quality,
    known: &Known,
    times: &Times,
) -> Vec<Series> {
    let axis = Axis::new("inter-arrival time", "ms");
    let gaps = curve("Between two packets of the game", &quality.gaps, times, axis, 1e3);
    let mut series: Vec<_> = gaps.into_iter().chain(known.series(times.started)).collect();
    if scenario.flows.len() == 1 {
        series.extend(transfers(&watched.progress, times.started));
        series.extend(quality.curves.iter().cloned());
    }
    series
}

/// Times of loads over time, each where the load ended.
fn load_times(loads: &Loads, times: &Times) -> impl Iterator<Item = Series> {
    let (page, trip) = (Axis::new("load time", "s"), Axis::new("round trip", "ms"));
    let pages = curve("Load time of pages", &loads.pages, times, page, 1.0);
    let trips = curve("Round trips of requests", &loads.requests, times, trip, 1e3);
    pages.into_iter().chain(trips)
}

/// The curve of what took some time, which is multiplied by `unit`; none of nothing.
fn curve(
    name: &str,
    ended: &[(Instant, Duration)],
    times: &Times,
    y: Axis,
    unit: f64,
) -> Option<Series> {
    let every = ended.len().div_ceil(POINTS).max(1);
    let point = |(at, time): &(Instant, Duration)| {
        ((*at - times.started).as_secs_f64(), time.as_secs_f64() * unit)
    };
    let points: Vec<_> = ended.iter().step_by(every).map(point).collect();
    let name = name.to_owned();
    (!points.is_empty()).then(|| Series { name, x: Axis::new("time", "s"), y, points })
}

/// Rate of each transfer over time, or of all where they are many.
fn transfers(progress: &[(Instant, Vec<u64>)], started: Instant) -> Vec<Series> {
    let curve = |name: String, bytes: &dyn Fn(&[u64]) -> u64| {
        let point = |pair: &[(Instant, Vec<u64>)]| {
            let [(from, before), (to, after)] = pair else { unreachable!("windows of two") };
            let (begin, end) = ((*from - started).as_secs_f64(), (*to - started).as_secs_f64());
            let bits = (bytes(after) - bytes(before)) as f64 * 8.0;
            ((begin + end) / 2.0, bits / (end - begin) / 1e6)
        };
        Series {
            name,
            x: Axis::new("time", "s"),
            y: Axis::new("TCP data", "Mbit/s"),
            points: progress.windows(2).map(point).collect(),
        }
    };
    let count = progress.first().map_or(0, |(_, bytes)| bytes.len());
    match count {
        0 => Vec::new(),
        1 => vec![curve("Rate of the transfer".to_owned(), &|bytes| bytes[0])],
        2..=EACH => (0..count)
            .map(|at| curve(format!("Rate of transfer {}", at + 1), &|bytes| bytes[at]))
            .collect(),
        _ => vec![curve("Rate of all transfers".to_owned(), &|bytes| bytes.iter().sum())],
    }
}

/// Jain's fairness index: 1 where all are equal, 1/n where one has all.
fn jain(rates: &[f64]) -> f64 {
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(a, b), x| (a + x, b + x * x));
    sum * sum / (rates.len() as f64 * squares).max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_is_one_for_equals_and_a_part_where_one_has_all() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), 1.0);
        assert_eq!(jain(&[8.0, 0.0, 0.0, 0.0]), 0.25);
    }

    #[test]
    fn only_what_arrived_while_everything_ran_counts() {
        let at = Instant::from_millis;
        let gaps = [(100, 90), (140, 40), (183, 43), (220, 37)];
        let gaps = gaps.map(|(end, gap)| (at(end), Duration::from_millis(gap))).to_vec();
        let loss = [0.0, 0.01, f64::NAN, f64::NAN, f64::NAN];
        let quality = Quality { gaps, loss, r: 90.0, ..Quality::default() };
        let watched = Watched { rates: vec![0.5e6, 1e6, 1e6], ..Watched::default() };
        let (started, counted, until) = (at(0), at(130), at(250));
        let together = at(120);
        let times =
            Times { started, bulk: started, together, counted, until, last: until, scale: 1.0 };
        let pages = [(125, 1), (200, 60), (240, 90), (251, 200)];
        let pages = pages.map(|(end, time)| (at(end), Duration::from_secs(time))).to_vec();
        let loads = Loads { pages, ..Loads::default() };
        let outcome = Outcome::new(watched, 1, quality, &loads, &times);
        let metrics: Vec<_> = [COLUMNS, WEB, REQUEST]
            .into_iter()
            .flat_map(|columns| columns::values(columns, &outcome))
            .collect();
        let get = |key: &str| metrics.iter().find(|(name, _)| name == key).unwrap().1;
        assert_eq!((get("rate"), get("jain")), (2.5, 1.0));
        assert_eq!((get("gap_p50"), get("gap_p99")), (40.0, 43.0));
        assert_eq!(get("loss_game"), 1.0);
        assert!(get("loss_call").is_nan(), "there was no call");
        assert_eq!((get("pages"), get("page_p50"), get("page_p95")), (2.0, 90.0, 90.0));
        assert!(get("requests").is_nan() && get("trip_p99").is_nan(), "there were no requests");
    }

    #[test]
    fn few_transfers_have_a_curve_each_and_many_have_their_sum() {
        let at = |seconds: u64| Instant::from_millis(1_000 * seconds);
        let progress =
            |count: usize| vec![(at(10), vec![0; count]), (at(11), vec![125_000; count])];
        let curves = |count: usize| transfers(&progress(count), at(1));
        assert_eq!(curves(0), []);
        assert_eq!(curves(1)[0].points, [(9.5, 1.0)]);
        assert_eq!((curves(5).len(), &*curves(5)[4].name), (5, "Rate of transfer 5"));
        assert_eq!((curves(6).len(), curves(6)[0].points[0].1), (1, 6.0));
    }
}
