//! One point, in real time.

use super::change::{self, Known, LOOK};
use super::plan::{CapacityName, Plan, QueueName, Role, Scenario, Treatment};
use super::testbed::Testbed;
use super::traffic::{Bulk, Quality, Streams};
use crate::columns::{self, Column, column};
use crate::experiment::Tools;
use crate::measured::{Measured, Series};
use crate::realtime::wait_until;
use crate::view::Axis;
use sheaf_netio::clock;
use sheaf_stage::{Duration, Instant};

/// Points of a curve, at most; a longer one is thinned.
const POINTS: usize = 2_000;

/// Observations while everything ran.
struct Watched {
    /// Rate of data that arrived, by transfer, bit/s.
    rates: Vec<f64>,
    /// Number of transfers, the first ones, whose application sends no more.
    limited: usize,
    /// Mean queue, packets.
    queue: f64,
    /// Packets that the bottleneck dropped, from the beginning on.
    drops: f64,
    /// Capacity that window control assumes, bit/s.
    capacity: f64,
}

/// Runs `flows` bulk transfers beside the streams of `scenario` for the plan's duration.
pub fn measure(
    plan: &Plan,
    scenario: &Scenario,
    treatment: &Treatment,
    flows: u32,
    tools: &Tools,
) -> anyhow::Result<Measured> {
    let scale = plan.scale(scenario);
    let after = |seconds: f64| Duration::from_secs_f64(seconds * scale);
    let mut testbed = Testbed::new(scenario, treatment, tools)?;
    let started = clock::now();
    let streams = Streams::start(&testbed, scenario, scale)?;
    wait_until(started + after(scenario.start))?;
    let bulk = Bulk::start(&testbed, scenario, flows)?;
    let together = started + after(Plan::together(scenario));
    let until = started + Duration::from_secs_f64(plan.seconds());
    let mut steps = vec![(clock::now(), scenario.rate)];
    steps.extend(scenario.changes.iter().map(|change| (started + after(change.at), change.rate)));
    let changes = !scenario.changes.is_empty() || treatment.capacity == Some(CapacityName::Auto);
    let (mut watched, known) = std::thread::scope(|scope| {
        let follow = || change::follow(&testbed, scenario, treatment, &steps, until);
        let known = changes.then(|| scope.spawn(follow));
        wait_until(together + Duration::from_secs_f64(plan.head.warm_up))?;
        let watched = watch(&testbed, &bulk, scenario, until);
        let known = known.map(|known| known.join().expect("it does not panic"));
        anyhow::Ok((watched?, known.transpose()?.unwrap_or_default()))
    })?;
    if treatment.queue == QueueName::Tbf {
        // The emulator does not see the kernel's queue.
        (watched.queue, watched.drops) = (f64::NAN, f64::NAN);
    }
    testbed.check()?;
    drop(bulk);
    let rtt = scenario.rtts.iter().copied().fold(0.0, f64::max);
    let quality = streams.stop(Duration::from_secs_f64(rtt / 1e3))?;
    let series = series(&quality, &known, started);
    let mut metrics = columns::values(COLUMNS, &Outcome::new(watched, quality, together));
    metrics.extend(known.metrics());
    Ok(Measured { metrics, series })
}

fn watch(
    testbed: &Testbed,
    bulk: &Bulk,
    scenario: &Scenario,
    until: Instant,
) -> anyhow::Result<Watched> {
    let (before, started) = (bulk.bytes(), clock::now());
    let (mut sum, mut looks) = (0.0, 0.0f64);
    while clock::now() + LOOK < until {
        wait_until(clock::now() + LOOK)?;
        sum += testbed.bottleneck()?.1 as f64;
        looks += 1.0;
    }
    wait_until(until)?;
    let seconds = (clock::now() - started).as_secs_f64();
    let after = bulk.bytes();
    let rates = before.iter().zip(&after).map(|(before, after)| (after - before) as f64 * 8.0);
    Ok(Watched {
        rates: rates.map(|bits| bits / seconds).collect(),
        limited: scenario.limited.iter().len(),
        queue: sum / looks.max(1.0),
        drops: testbed.bottleneck()?.0 as f64,
        capacity: testbed.capacity()?,
    })
}

/// Everything that was measured at one point.
pub(super) struct Outcome {
    watched: Watched,
    quality: Quality,
    /// Times between two packets of the game while everything ran, in ms, sorted.
    gaps: Vec<f64>,
}

pub(super) const RATE: Column<Outcome> =
    column("rate", "TCP data", "Mbit/s", |point| point.watched.rates.iter().sum::<f64>() / 1e6);
pub(super) const JAIN: Column<Outcome> = column("jain", "Jain index", "", Outcome::jain);
pub(super) const GAP_P99: Column<Outcome> =
    column("gap_p99", "game inter-arrival, p99", "ms", |point| point.gap(0.99));
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
    column("gap_p50", "game inter-arrival, median", "ms", |point| point.gap(0.5)),
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

impl Outcome {
    /// Of the game's inter-arrival times those count that ended after `together`.
    fn new(watched: Watched, quality: Quality, together: Instant) -> Outcome {
        let counted = quality.gaps.iter().filter(|(at, _)| *at > together);
        let mut gaps: Vec<f64> = counted.map(|(_, gap)| gap.as_secs_f64() * 1e3).collect();
        gaps.sort_unstable_by(f64::total_cmp);
        Outcome { watched, quality, gaps }
    }

    /// Time in ms between two packets of the game that `share` (0..1) of the times do not exceed.
    fn gap(&self, share: f64) -> f64 {
        let place = (self.gaps.len() as f64 * share) as usize;
        self.gaps.get(place).copied().unwrap_or(f64::NAN)
    }

    fn loss(&self, role: Role) -> f64 {
        100.0 * self.quality.loss[role as usize]
    }

    /// Jain's index of the transfers that take what they get: a limited one has no equal share.
    fn jain(&self) -> f64 {
        let Watched { rates, limited, .. } = &self.watched;
        let equal = &rates[(*limited).min(rates.len())..];
        if equal.is_empty() { f64::NAN } else { jain(equal) }
    }
}

fn series(quality: &Quality, known: &Known, started: Instant) -> Vec<Series> {
    let every = quality.gaps.len().div_ceil(POINTS).max(1);
    let points: Vec<_> = quality
        .gaps
        .iter()
        .step_by(every)
        .map(|(at, gap)| ((*at - started).as_secs_f64(), gap.as_secs_f64() * 1e3))
        .collect();
    let gaps = (!points.is_empty()).then(|| Series {
        name: "Between two packets of the game".to_owned(),
        x: Axis::new("time", "s"),
        y: Axis::new("inter-arrival time", "ms"),
        points,
    });
    gaps.into_iter().chain(known.series(started)).collect()
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
        let quality = Quality { gaps, delay: None, loss: [0.0, 0.01, f64::NAN], r: 90.0 };
        let watched = Watched {
            rates: vec![0.5e6, 1e6, 1e6],
            limited: 1,
            queue: 1.0,
            drops: 0.0,
            capacity: f64::NAN,
        };
        let metrics = columns::values(COLUMNS, &Outcome::new(watched, quality, at(120)));
        let get = |key: &str| metrics.iter().find(|(name, _)| name == key).unwrap().1;
        assert_eq!((get("rate"), get("jain")), (2.5, 1.0));
        assert_eq!((get("gap_p50"), get("gap_p99")), (40.0, 43.0));
        assert_eq!(get("loss_game"), 1.0);
        assert!(get("loss_call").is_nan(), "there was no call");
    }
}
