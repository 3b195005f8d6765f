//! The engine `netns`: one point on real Linux stacks, in real time.
//!
//! * `testbed`: the hosts, and the programs on them; `traffic`: Linux TCP and streams of UDP;
//!   `sessions`: pages and requests.

mod sessions;
mod testbed;
mod traffic;

use super::change::{self, Home, LOOK};
use super::outcome::{self, Watched};
use super::plan::{CapacityName, Plan, QueueName, Scenario, Times, Treatment};
use crate::experiment::Tools;
use crate::measured::Measured;
use crate::realtime::wait_until;
use sessions::Sessions;
use sheaf_netio::clock;
use sheaf_stage::{Duration, Instant};
use testbed::Testbed;
use traffic::{Bulk, Streams};

/// Runs `flows` bulk transfers beside the streams of `scenario` for the plan's duration. Needs
/// root.
pub fn measure(
    plan: &Plan,
    scenario: &Scenario,
    treatment: &Treatment,
    flows: u32,
    tools: &Tools,
) -> anyhow::Result<Measured> {
    let mut testbed = Testbed::new(scenario, treatment, tools)?;
    let times = plan.times(scenario, clock::now());
    let streams = Streams::start(&testbed, scenario, &times, plan.head.seed)?;
    let sessions = Sessions::start(&testbed, scenario, &times, plan.head.seed)?;
    wait_until(times.bulk)?;
    let bulk = Bulk::start(&testbed, scenario, flows)?;
    let mut steps = vec![(clock::now(), scenario.rate)];
    steps.extend(scenario.changes.iter().map(|change| (times.at(change.at), change.rate)));
    let changes = !scenario.changes.is_empty() || treatment.capacity == Some(CapacityName::Auto);
    let (mut watched, known) = std::thread::scope(|scope| {
        let mut live = Live { testbed: &testbed, scenario, treatment };
        let follow = move || change::follow(&mut live, &steps, times.until);
        let known = changes.then(|| scope.spawn(follow));
        let progress = scope.spawn(|| progress(&bulk, &times));
        wait_until(times.counted)?;
        let watched = watch(&testbed, &bulk, times.until);
        let known = known.map(|known| known.join().expect("it does not panic"));
        let progress = progress.join().expect("it does not panic");
        let watched = Watched { progress: progress?, ..watched? };
        anyhow::Ok((watched, known.transpose()?.unwrap_or_default()))
    })?;
    if treatment.queue == QueueName::Tbf {
        // The emulator does not see the kernel's queue.
        (watched.queue, watched.drops) = (f64::NAN, f64::NAN);
    }
    testbed.check()?;
    drop(bulk);
    let loads = sessions.stop()?;
    let quality = streams.stop(times.last)?;
    Ok(outcome::measured(scenario, watched, quality, loads, &known, &times))
}

/// The testbed of a point at work.
struct Live<'a> {
    testbed: &'a Testbed,
    scenario: &'a Scenario,
    treatment: &'a Treatment,
}

impl Home for Live<'_> {
    fn wait(&mut self, until: Instant) -> anyhow::Result<()> {
        Ok(wait_until(until)?)
    }

    fn change(&mut self, rate: f64) -> anyhow::Result<()> {
        self.testbed.change(self.scenario, self.treatment, rate)
    }

    fn is_controlled(&self) -> bool {
        self.testbed.is_controlled()
    }

    fn capacity(&self) -> anyhow::Result<f64> {
        self.testbed.capacity()
    }
}

/// The bytes of each transfer, once a second.
fn progress(bulk: &Bulk, times: &Times) -> anyhow::Result<Vec<(Instant, Vec<u64>)>> {
    let (begun, mut progress) = (clock::now(), Vec::new());
    let seconds = (1u32..).map(|second| times.started + Duration::from_secs(1) * second);
    for second in seconds.skip_while(|at| *at < begun).take_while(|at| *at <= times.until) {
        wait_until(second)?;
        progress.push((clock::now(), bulk.bytes()));
    }
    Ok(progress)
}

fn watch(testbed: &Testbed, bulk: &Bulk, until: Instant) -> anyhow::Result<Watched> {
    let (before, started) = (bulk.bytes(), clock::now());
    let (mut sum, mut looks) = (0.0, 0.0f64);
    while clock::now() + LOOK < until {
        wait_until(clock::now() + LOOK)?;
        sum += testbed.bottleneck()?.1 as f64;
        looks += 1.0;
    }
    wait_until(until)?;
    let seconds = (clock::now() - started).as_secs_f64();
    Ok(Watched {
        rates: Watched::rates(&before, &bulk.bytes(), seconds),
        queue: sum / looks.max(1.0),
        drops: testbed.bottleneck()?.0 as f64,
        capacity: testbed.capacity()?,
        progress: Vec::new(),
    })
}
