//! Trunks of 802.11 links: the experiments of "Using Wireless Trunks to increase available
//! bandwidth" (National Chiao Tung University, NSC92-2213-E-009-063, 2004; NCTU).
//!
//! Two stations have a radio on each of several channels; every channel is a
//! [`sheaf_medium::Medium`] of its own, where a pair of neighbours, a hidden one, bit errors or
//! the distance between the stations may take from the link. Over all of them lies one trunk, over
//! it go TCP or UDP. It is compared with the sum of the same links, each measured alone.
//!
//! * [`plan`]: scenarios and treatments; [`point`]: one point, worked out;
//! * [`outcome`]: its outcome;
//! * [`air`]: a channel and its stations;
//! * [`virtual_time`]: the engine under a virtual clock; its packets are made and measured in
//!   `traffic`, and take the ways of `carrier`; the trunks of the papers are in `published`;
//! * [`netns`]: the engine on real Linux stacks.

pub mod air;
mod carrier;
mod message;
pub mod netns;
pub mod outcome;
pub mod plan;
pub mod point;
mod published;
mod traffic;
pub mod virtual_time;

pub use plan::{Plan, Scenario, Treatment};

use crate::columns::{self, Column, Treated, column};
use crate::experiment::{Conclusion, Engine, Experiment, Tools};
use crate::fault::Fault;
use crate::measured::{
    Measured, Row, Series, SweepPoint, key, treatments, unique, whole_scenarios,
};
use crate::view::{Axis, Chart, View};
use anyhow::Context;
use outcome::Outcome;
use plan::Carrier;

const THROUGHPUT: Column<Apart> =
    column("throughput", "throughput", "Mbit/s", |links| links.sum(Outcome::throughput));
const LATENCY: Column<Apart> = column("latency", "mean one-way latency", "ms", |links| {
    links.mean(|link| millis(link.mean_delay()))
});

/// The numbers of a row.
const COLUMNS: &[Column<Apart>] = &[
    THROUGHPUT,
    column("unsteadiness", "deviation between seconds", "Mbit/s", |links| {
        // Links do not depend on each other, so their variances add up.
        links.sum(|link| link.unsteadiness() * link.unsteadiness()).sqrt()
    }),
    LATENCY,
    column("latency_p99", "one-way latency, 99 %", "ms", |links| {
        links.mean(|link| millis(link.delay_quantile(0.99)))
    }),
    column("latency_least", "least one-way latency", "ms", |links| {
        links.each(|link| millis(link.delay_quantile(0.0))).fold(f64::NAN, f64::min)
    }),
    column("latency_most", "highest one-way latency", "ms", |links| {
        links.each(|link| millis(link.delay_quantile(1.0))).fold(f64::NAN, f64::max)
    }),
    column("latency_deviation", "deviation of the one-way latency", "ms", |links| {
        links.mean(|link| millis(link.deviation()))
    }),
    column("neighbour", "throughput of a pair of neighbours", "Mbit/s", |links| {
        let found = links.0.iter().find_map(|(link, _)| link.neighbour_throughput());
        found.unwrap_or(f64::NAN)
    }),
    column("sent", "packets sent", "", |links| links.sum(|link| link.sent as f64)),
    column("arrived", "packets arrived", "", |links| links.sum(|link| link.arrived as f64)),
    column("reordered", "packets out of order", "", |links| {
        links.sum(|link| link.reordered as f64)
    }),
    column("late", "packets later than the reordering timer", "", |links| {
        links.sum(|link| link.late as f64)
    }),
    column("timer", "reordering timer", "ms", |links| {
        links.each(|link| millis(link.timer)).fold(0.0, f64::max)
    }),
];

/// The numbers of a treatment's summary. Shares are of the sum of the links.
const SUMMARY: &[Column<Treated>] = &[
    column(THROUGHPUT.key, "most throughput", "Mbit/s", |of| of.most(&THROUGHPUT)),
    column("share", "least share of the sum", "%", Treated::least_share),
    column(LATENCY.key, "highest mean latency", "ms", |of| of.most(&LATENCY)),
];

impl Experiment for Plan {
    fn check(&self) -> Result<(), Fault> {
        self.check_trunks()
    }

    fn points(&self, engine: Engine) -> Vec<SweepPoint> {
        let seconds = self.head.warm_up + self.head.duration;
        let mut sweep_points = Vec::new();
        let runs = |scenario: &&Scenario| engine == Engine::Virtual || scenario.runs_on_netns();
        for scenario in self.scenarios.iter().filter(runs) {
            let swept = self.head.points.clone().filter(|_| scenario.ber.is_empty());
            let sweep = swept.unwrap_or_else(|| scenario.points());
            let runs = |name: &&String| engine == Engine::Virtual || !self.is_published(name);
            for treatment in scenario.treatments.iter().filter(runs) {
                let at = |x: &f64| SweepPoint::new(&scenario.name, treatment, *x, seconds);
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
        let found = self.scenarios.iter().find(|scenario| scenario.name == sweep_point.scenario);
        let scenario = found.with_context(|| format!("no scenario {}", sweep_point.scenario))?;
        let mut outcomes = Vec::new();
        for (point, times) in self.jobs(scenario, &sweep_point.treatment, sweep_point.x)? {
            let outcome = match engine {
                Engine::Virtual => virtual_time::run(&point)?,
                Engine::Netns => netns::run(&point, tools)?,
            };
            outcomes.push((outcome, times));
        }
        let links = Apart(outcomes);
        let metrics = columns::values(COLUMNS, &links);
        Ok(Measured { metrics, series: links.series() })
    }

    fn view(&self) -> View {
        let axes = unique(self.scenarios.iter().map(|scenario| scenario.over.label()));
        let axis = match axes[..] {
            [(label, unit)] => Axis::new(label, unit),
            _ => {
                let label = |(label, unit): &(&str, &str)| match *unit {
                    "" => (*label).to_owned(),
                    unit => format!("{label} in {unit}"),
                };
                Axis::new(&axes.iter().map(label).collect::<Vec<_>>().join(", or "), "")
            }
        };
        View {
            axis,
            metrics: columns::metrics(COLUMNS),
            charts: vec![
                Chart::new("Throughput", "throughput"),
                Chart::new("Mean one-way latency", "latency").logarithmic(),
                Chart::new("Latency that 99 % stay below", "latency_p99").logarithmic(),
                Chart::new("How unsteady the throughput is", "unsteadiness"),
                Chart::new("Packets out of order", "reordered"),
            ],
            summary: columns::metrics(SUMMARY),
            notes: "The sum is what the same links carry when each is measured alone, without a \
                    trunk. Throughput is what the receiving application got; latency is from the \
                    packet that leaves the sender's stack to the one that reaches the receiver's, \
                    on the netns engine that of a small probe every 50 ms (packets sent, arrived \
                    and out of order are the probes there). \
                    A trunk may carry more than the sum: it puts several acknowledgements into a \
                    frame."
                .to_owned(),
        }
    }

    fn conclude(&self, rows: &[Row], holes: &[SweepPoint]) -> Conclusion {
        let mut conclusion = Conclusion::default();
        let mut sentences = Vec::new();
        let is_sum = |name: &str| {
            let found = self.treatments.iter().find(|treatment| treatment.name == name);
            found.is_some_and(|treatment| treatment.over == Carrier::EachLink)
        };
        for scenario in whole_scenarios(rows, holes) {
            let here: Vec<_> = rows.iter().filter(|row| row.scenario == scenario).collect();
            let share = |row: &Row| {
                let mut sums = here.iter().filter(|row| is_sum(&row.treatment));
                let sum = THROUGHPUT.of(sums.find(|sum| sum.x == row.x)?)?;
                Some(100.0 * THROUGHPUT.of(row)? / sum)
            };
            let mut shares = Vec::new();
            for treatment in treatments(rows, scenario) {
                let treated = Treated::new(&here, treatment, share);
                let least = treated.least_share();
                if least.is_finite() && !is_sum(treatment) {
                    shares.push(format!("“{treatment}” {least:.0} %"));
                }
                conclusion.summary.insert(key(scenario, treatment), treated.summary(SUMMARY));
            }
            if !shares.is_empty() {
                let shares = shares.join(", ");
                sentences.push(format!("{scenario}: of the sum of its links, at least {shares}."));
            }
        }
        conclusion.answer = sentences.join(" ");
        conclusion
    }
}

/// Links that were measured apart, each with the number of links that are like it.
struct Apart(Vec<(Outcome, u32)>);

impl Apart {
    /// The sum of `value` over all links.
    fn sum(&self, value: impl Fn(&Outcome) -> f64) -> f64 {
        self.0.iter().map(|(link, times)| value(link) * f64::from(*times)).sum()
    }

    /// The mean of `value` over all packets that arrived.
    fn mean(&self, value: fn(&Outcome) -> f64) -> f64 {
        let packets = self.sum(|link| link.arrived as f64).max(1.0);
        self.sum(|link| link.arrived as f64 * value(link)) / packets
    }

    /// `value` of each link that was measured, and that has packets.
    fn each(&self, value: impl Fn(&Outcome) -> f64) -> impl Iterator<Item = f64> {
        let measured = self.0.iter().filter(|(link, _)| !link.delays.is_empty());
        measured.map(move |(link, _)| value(link))
    }

    /// Throughput in each second, and the reordering timer where a trunk has one.
    fn series(&self) -> Vec<Series> {
        let seconds = self.0.iter().map(|(link, _)| link.per_second.len()).max().unwrap_or(0);
        let at = |second: usize| {
            let bytes = |link: &Outcome| link.per_second.get(second).copied().unwrap_or(0) as f64;
            (second as f64, self.sum(|link| bytes(link) * 8e-6))
        };
        let mut series = vec![Series {
            name: "throughput over time".to_owned(),
            x: Axis::new("time", "s"),
            y: Axis::new("throughput", "Mbit/s"),
            points: (0..seconds).map(at).collect(),
        }];
        let timers: Vec<_> = self.0.iter().flat_map(|(link, _)| &link.timers).collect();
        if !timers.is_empty() {
            series.push(Series {
                name: "reordering timer over time, from the start".to_owned(),
                x: Axis::new("time", "s"),
                y: Axis::new("reordering timer", "ms"),
                points: timers
                    .iter()
                    .map(|(at, timer)| (at.as_secs_f64(), millis(*timer)))
                    .collect(),
            });
        }
        series
    }
}

fn millis(time: sheaf_stage::Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
