//! One emulated link: the precision of its rate and delay, and the effect of its queue on TCP.
//!
//! The experiments of "Implementing Rate Control in NetEm" (University of Oslo, 2013; UiO): UDP
//! above the rate, pings, and a bulk transfer, between two hosts with a link between them.
//!
//! * [`plan`]: scenarios and treatments; [`outcome`]: the numbers from arrivals, round trips and
//!   transfers, the same on both engines;
//! * [`netns`], [`virtual_time`]: the two engines; `line`: a direction of the link on the latter;
//!   [`reply`]: the host there that replies to pings.

mod line;
pub mod netns;
pub mod outcome;
pub mod plan;
pub mod reply;
pub mod virtual_time;

pub use plan::{Plan, Scenario, Treatment};

use crate::columns::{Column, Treated};
use crate::experiment::{Conclusion, Engine, Experiment, Tools};
use crate::fault::Fault;
use crate::measured::{Measured, Row, SweepPoint, treatments, whole_scenarios};
use crate::tool::kind::Tool;
use crate::view::{Axis, Chart, View};
use anyhow::{Context, bail, ensure};
use outcome::{
    BURST, DELAY_MEAN, ERROR, GOODPUT, IN_FLIGHT, LOSS, OVER_MIN, OVER_P99, RTT_MAX, RTT_MEAN,
};
use plan::{Shaper, Test};
use std::process::{Command, Stdio};

impl Experiment for Plan {
    fn check(&self) -> Result<(), Fault> {
        self.check_links()
    }

    fn ready(&self, engine: Engine, tools: &Tools) -> anyhow::Result<()> {
        if engine == Engine::Virtual {
            let driven = self.scenarios.iter().find_map(|one| Some((&one.name, one.tool?.name())));
            return match driven {
                Some((name, tool)) => bail!(
                    "the traffic of scenario {name} is {tool}'s, which knows no virtual time; add \
                     --engine netns, or remove tool = \"{tool}\""
                ),
                None => Ok(()),
            };
        }
        ensure!(nix::unistd::geteuid().is_root(), "the netns engine needs root; run with sudo");
        let program = tools.sheaf.display();
        ensure!(tools.sheaf.exists(), "{program} has been removed; build it and run it from there");
        if self.treatments.iter().any(|treatment| treatment.shaper == Shaper::Tbf) {
            let tc = Command::new("tc").arg("-V").stdout(Stdio::null()).status();
            ensure!(tc.is_ok_and(|tc| tc.success()), "no program tc; install iproute2");
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let tools = self.scenarios.iter().filter_map(|scenario| scenario.tool);
        for tool in tools {
            if let Some(program) = tool.absent(&path) {
                bail!("no program {program}; install the package {}", tool.package());
            }
        }
        Ok(())
    }

    fn points(&self, engine: Engine) -> Vec<SweepPoint> {
        let seconds = self.head.warm_up + self.head.duration;
        let mut sweep_points = Vec::new();
        for scenario in &self.scenarios {
            let sweep = self.head.points.as_deref().unwrap_or(&scenario.sweep);
            for treatment in self.treatments_of(scenario, engine) {
                // The delay of a bare path cannot be set.
                let sweep = if treatment.shaper == Shaper::None { &[0.0] } else { sweep };
                let at = |x: &f64| SweepPoint::new(&scenario.name, &treatment.name, *x, seconds);
                sweep_points.extend(sweep.iter().map(at));
            }
        }
        sweep_points
    }

    fn measure(
        &self,
        sweep_point: &SweepPoint,
        engine: Engine,
        tools: &Tools,
    ) -> anyhow::Result<Measured> {
        let point = self.point(sweep_point).context("the plan has changed")?;
        match engine {
            Engine::Netns => netns::run(&point, tools),
            Engine::Virtual => virtual_time::run(&point),
        }
    }

    fn view(&self) -> View {
        View {
            axis: Axis::new("round-trip time set", "ms"),
            metrics: outcome::metrics(),
            charts: vec![
                Chart::new("Rate received", "received"),
                Chart::new("Rate received with UDP headers", "datagrams"),
                Chart::new("Error of the rate", "error"),
                Chart::new("Largest burst above the rate", "burst"),
                Chart::new("Least round-trip time", "rtt_min"),
                Chart::new("Mean round-trip time", "rtt_mean"),
                Chart::new("Longest round-trip time", "rtt_max"),
                Chart::new("Standard deviation of the round-trip time", "rtt_stdev"),
                Chart::new("Round trips later than ideal, 99th percentile", "over_p99"),
                Chart::new("The earliest round trip against the ideal one", "over_min"),
                Chart::new("Mean one-way delay of a stream", "delay_mean"),
                Chart::new("Jitter of a stream", "jitter"),
                Chart::new("Goodput", "goodput"),
                Chart::new("Most data on its way", "in_flight"),
                Chart::new("First repeated segment", "first_repeat"),
                Chart::new("Packets late in the emulator, 99th percentile", "late_p99"),
            ],
            summary: Vec::new(),
            notes: NOTES.to_owned(),
        }
    }

    fn conclude(&self, rows: &[Row], holes: &[SweepPoint]) -> Conclusion {
        let whole = whole_scenarios(rows, holes);
        let named = |name: &str| self.scenarios.iter().find(|scenario| scenario.name == name);
        let sentences: Vec<_> =
            whole.iter().filter_map(|name| self.answer(rows, named(name)?)).collect();
        Conclusion { answer: sentences.join(" "), ..Conclusion::default() }
    }
}

/// The explanation under the report.
const NOTES: &str = "The rate counts Ethernet frames without preamble and gap, as NetEm and token \
                     buckets do; for an interface, or with overhead, more. Received is UDP \
                     payload of 1470 bytes, with its header 1478. A burst is the excess over the \
                     rate in any window of two packets or more. On real stacks the error is \
                     relative to an ideal link that got the same packets at the same times, \
                     because a sender that is late lets a short queue run empty. Half of the \
                     round-trip time lies on each way. Every queue holds rate × RTT / 1498 \
                     packets, with an RTT of 1 ms where less is set, and never less than two, \
                     unless the plan says otherwise; in one queue the packets under way count, \
                     too. An ideal link's RTT is the one set and the time to send a ping both \
                     ways. Under the virtual clock no link is late, and a host that replies \
                     takes the time that the plan gives it: pings there prove nothing about a \
                     machine. Round trips of TCP are the sender's smoothed ones, every 10 ms. Data \
                     on its way is the content of the link to the receiver in virtual time, and \
                     on real stacks the data that the sender's TCP presumes neither lost nor \
                     acknowledged.";

impl Plan {
    /// Conclusion on a scenario, treatment by treatment.
    fn answer(&self, rows: &[Row], scenario: &Scenario) -> Option<String> {
        let mut parts = Vec::new();
        let here: Vec<_> = rows.iter().filter(|row| row.scenario == scenario.name).collect();
        for treatment in treatments(rows, &scenario.name) {
            let treated = Treated::new(&here, treatment, |_| None);
            let measured = |number: f64| number.is_finite().then_some(number);
            let sentence = match scenario.test {
                Test::Ping if scenario.tool.is_some() => format!(
                    "{treatment} with a mean of up to {:.3} ms by {}",
                    measured(treated.most(&RTT_MEAN))?,
                    scenario.tool?.name()
                ),
                Test::Tcp if scenario.tool.is_some() => format!(
                    "{treatment} with {:.2} Mbit/s or more by {}",
                    measured(treated.least(&GOODPUT))?,
                    scenario.tool?.name()
                ),
                Test::Stream => {
                    let delay = match measured(treated.most(&DELAY_MEAN)) {
                        Some(delay) => format!("delays of {delay:.3} ms in the mean"),
                        None => "delays that its source does not measure".to_owned(),
                    };
                    let source = scenario.tool.map_or("the lab", Tool::name);
                    let loss = measured(treated.most(&LOSS))?;
                    format!("{treatment} with {delay} and {loss:.2} % lost by {source}")
                }
                Test::Udp => format!(
                    "{treatment} within {:.3} % of it, bursts up to {:.0} bytes",
                    // No sign of a zero: of `max` either zero may come out.
                    measured(treated.most(&ERROR).max(-treated.least(&ERROR)).abs())?,
                    measured(treated.most(&BURST))?
                ),
                Test::Ping => format!(
                    "{treatment} late by {:.3} ms at p99, the earliest {:+.3} ms",
                    measured(treated.most(&OVER_P99))?,
                    measured(treated.least(&OVER_MIN))?
                ),
                Test::Tcp => format!(
                    "{treatment} with up to {:.0} kB on its way and round trips up to {:.0} ms",
                    measured(treated.most(&IN_FLIGHT))?,
                    measured(treated.most(&RTT_MAX))?
                ),
            };
            parts.push(sentence);
        }
        let of = match scenario.test {
            Test::Udp => "the rate set",
            Test::Stream => "a stream",
            Test::Ping if scenario.tool.is_some() => "round trips",
            Test::Ping => "round trips against an ideal link's",
            Test::Tcp => "one TCP download",
        };
        let order = self.order(&here).unwrap_or_default();
        (!parts.is_empty())
            .then(|| format!("{}, {of}: {}.{order}", scenario.name, parts.join("; ")))
    }

    /// Sentence on the order of UiO's figure 4.6: TCP's round trips are longer with two queues than
    /// with one, on average and at most. `None` without rows to compare.
    fn order(&self, rows: &[&Row]) -> Option<String> {
        let shaper = |row: &Row| {
            let treatment = self.treatments.iter().find(|one| one.name == row.treatment);
            treatment.map(|treatment| treatment.shaper)
        };
        let two = |row: &&&Row| shaper(row) == Some(Shaper::TwoQueues);
        let one = |row: &&&Row| matches!(shaper(row), Some(Shaper::OneQueue | Shaper::Tbf));
        let (mut pairs, mut longer) = (0, 0);
        for two in rows.iter().filter(two).filter(|row| IN_FLIGHT.of(row).is_some()) {
            for one in rows.iter().filter(one).filter(|one| one.x == two.x) {
                let is_longer = |key: &Column<_>| key.of(two) > key.of(one);
                pairs += 1;
                longer += usize::from(is_longer(&RTT_MEAN) && is_longer(&RTT_MAX));
            }
        }
        (pairs > 0).then(|| {
            format!(
                " TCP's mean and longest round trips are longer with two queues than with one in \
                 {longer} of {pairs} comparisons."
            )
        })
    }
}
