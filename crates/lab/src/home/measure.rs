//! One point, in real time.

use super::change::{self, Known};
use super::plan::{CapacityName, Plan, QueueName, Role, Scenario, Treatment};
use super::testbed::Testbed;
use super::traffic::{Bulk, Quality, Streams};
use crate::experiment::Tools;
use crate::measured::{Measured, Series};
use crate::realtime::wait_until;
use crate::view::Axis;
use sheaf_netio::clock;
use sheaf_stage::{Duration, Instant};

/// Between two looks at the bottleneck.
pub(super) const LOOK: Duration = Duration::from_millis(500);
/// Points of a curve, at most; a longer one is thinned.
const POINTS: usize = 2_000;

/// What was seen while everything ran.
struct Watched {
    /// bit/s of data that arrived, by transfer.
    rates: Vec<f64>,
    /// So many of them, the first ones, have an application that sends no more.
    limited: usize,
    /// Mean queue, packets.
    queue: f64,
    /// Packets that the bottleneck dropped, from the beginning on.
    drops: f64,
    /// The capacity that window control knows of, bit/s.
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
        // The kernel's queue is another one.
        (watched.queue, watched.drops) = (f64::NAN, f64::NAN);
    }
    testbed.check()?;
    drop(bulk);
    let rtt = scenario.rtts.iter().copied().fold(0.0, f64::max);
    let quality = streams.stop(Duration::from_secs_f64(rtt / 1e3))?;
    Ok(Measured {
        metrics: metrics(&watched, &known, &quality, together),
        series: series(&quality, &known, started),
    })
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

/// Of the game's inter-arrival times those count that ended after `together`.
fn metrics(
    watched: &Watched,
    known: &Known,
    quality: &Quality,
    together: Instant,
) -> Vec<(String, f64)> {
    let late = quality.gaps.iter().filter(|(at, _)| *at > together);
    let mut gaps: Vec<f64> = late.map(|(_, gap)| gap.as_secs_f64() * 1e3).collect();
    gaps.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| gaps.get((gaps.len() as f64 * share) as usize).copied();
    let loss = |role: Role| 100.0 * quality.loss[role as usize];
    // Equal shares are for those that take what they get.
    let equal = &watched.rates[watched.limited.min(watched.rates.len())..];
    [
        ("rate", watched.rates.iter().fold(0.0, |sum, rate| sum + rate) / 1e6),
        ("jain", if equal.is_empty() { f64::NAN } else { jain(equal) }),
        ("gap_p50", at(0.5).unwrap_or(f64::NAN)),
        ("gap_p99", at(0.99).unwrap_or(f64::NAN)),
        ("delay_p99", quality.delay.map_or(f64::NAN, |delay| delay.as_secs_f64() * 1e3)),
        ("loss_stream", loss(Role::Stream)),
        ("loss_game", loss(Role::Game)),
        ("loss_call", loss(Role::Call)),
        ("r", quality.r),
        ("queue", watched.queue),
        ("drops", watched.drops),
        ("capacity", watched.capacity / 1e6),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into_iter()
    .chain(known.metrics())
    .collect()
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
        let metrics = metrics(&watched, &Known::default(), &quality, at(120));
        let get = |key: &str| metrics.iter().find(|(name, _)| name == key).unwrap().1;
        assert_eq!((get("rate"), get("jain")), (2.5, 1.0));
        assert_eq!((get("gap_p50"), get("gap_p99")), (40.0, 43.0));
        assert_eq!(get("loss_game"), 1.0);
        assert!(get("loss_call").is_nan(), "there was no call");
    }
}
