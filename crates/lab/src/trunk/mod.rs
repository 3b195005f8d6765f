//! Trunks of 802.11 links: the experiments of "Using Wireless Trunks to increase available
//! bandwidth" (National Chiao Tung University, NSC92-2213-E-009-063, 2004; NCTU).
//!
//! Two stations have a radio on each of several channels; every channel is a
//! [`sheaf_medium::Medium`] of its own, where a pair of neighbours, a hidden one, bit errors or
//! the distance between the stations may take from the link. Over all of them lies one trunk, over
//! it go TCP or UDP. What it is compared with is the sum of the same links, each measured alone.
//!
//! * [`plan`]: scenarios and treatments; [`point`]: one point, worked out;
//! * [`outcome`]: what it came to;
//! * [`air`]: a channel and who is on it;
//! * [`virtual_time`]: the engine under a virtual clock; its packets are made and measured in
//!   `traffic`; [`netns`]: the engine on real Linux stacks.

pub mod air;
pub mod netns;
pub mod outcome;
pub mod plan;
pub mod point;
mod traffic;
pub mod virtual_time;

pub use plan::{Plan, Scenario, Treatment};

use crate::experiment::{Conclusion, Engine, Experiment, Tools};
use crate::fault::Fault;
use crate::measured::{Measured, Row, Series, Spot, key, scenarios, treatments};
use crate::view::{Axis, Chart, Metric, View};
use anyhow::Context;
use outcome::Outcome;
use plan::Carrier;

/// Every number of a row: key, label, unit.
const METRICS: [(&str, &str, &str); 9] = [
    ("throughput", "throughput", "Mbit/s"),
    ("unsteadiness", "deviation between seconds", "Mbit/s"),
    ("latency", "mean one-way latency", "ms"),
    ("latency_p99", "one-way latency, 99 %", "ms"),
    ("sent", "packets sent", ""),
    ("arrived", "packets arrived", ""),
    ("reordered", "packets out of order", ""),
    ("late", "packets later than the reordering timer", ""),
    ("timer", "reordering timer", "ms"),
];

impl Experiment for Plan {
    fn check(&self) -> Result<(), Fault> {
        self.check_trunks()
    }

    fn points(&self, engine: Engine) -> Vec<Spot> {
        let seconds = self.head.warm_up + self.head.duration;
        let mut spots = Vec::new();
        // A source of UDP that is faster than the links says nothing about a real stack.
        let runs = |scenario: &&Scenario| {
            engine == Engine::Virtual || scenario.traffic == plan::TrafficName::Tcp
        };
        for scenario in self.scenarios.iter().filter(runs) {
            let swept = self.head.points.clone().filter(|_| scenario.ber.is_empty());
            let sweep = swept.unwrap_or_else(|| scenario.points());
            for treatment in &scenario.treatments {
                spots.extend(sweep.iter().map(|x| Spot {
                    scenario: scenario.name.clone(),
                    treatment: treatment.clone(),
                    x: *x,
                    seconds,
                }));
            }
        }
        spots
    }

    fn measure(&self, spot: &Spot, engine: Engine, tools: &Tools) -> anyhow::Result<Measured> {
        let found = self.scenarios.iter().find(|scenario| scenario.name == spot.scenario);
        let scenario = found.with_context(|| format!("no scenario {}", spot.scenario))?;
        let mut outcomes = Vec::new();
        for (point, times) in self.jobs(scenario, &spot.treatment, spot.x)? {
            let outcome = match engine {
                Engine::Virtual => virtual_time::run(&point)?,
                Engine::Netns => netns::run(&point, tools)?,
            };
            outcomes.push((outcome, times));
        }
        Ok(measured(&outcomes))
    }

    fn view(&self) -> View {
        let mut axes: Vec<_> =
            self.scenarios.iter().map(|scenario| scenario.over.label()).collect();
        axes.dedup();
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
            metrics: METRICS.map(|(key, label, unit)| Metric::new(key, label, unit)).into(),
            charts: vec![
                Chart::new("Throughput", "throughput"),
                Chart::new("Mean one-way latency", "latency").logarithmic(),
                Chart::new("Latency that 99 % stay below", "latency_p99").logarithmic(),
                Chart::new("How unsteady the throughput is", "unsteadiness"),
                Chart::new("Packets out of order", "reordered"),
            ],
            summary: vec![
                Metric::new("throughput", "most throughput", "Mbit/s"),
                Metric::new("share", "least share of the sum", "%"),
                Metric::new("latency", "highest mean latency", "ms"),
            ],
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

    fn conclude(&self, rows: &[Row]) -> Conclusion {
        let mut conclusion = Conclusion::default();
        let mut sentences = Vec::new();
        let is_sum = |name: &str| {
            let found = self.treatments.iter().find(|treatment| treatment.name == name);
            found.is_some_and(|treatment| treatment.over == Carrier::EachLink)
        };
        for scenario in scenarios(rows) {
            let of = |row: &&Row| row.scenario == scenario;
            let sum = |x: f64| {
                let mut sums = rows.iter().filter(of).filter(|row| is_sum(&row.treatment));
                sums.find(|row| row.x == x)?.get("throughput")
            };
            let mut shares = Vec::new();
            for treatment in treatments(rows, scenario) {
                let rows = || rows.iter().filter(of).filter(|row| row.treatment == treatment);
                let most = |key: &str| rows().filter_map(|row| row.get(key)).fold(0.0, f64::max);
                let share = |row: &Row| Some(100.0 * row.get("throughput")? / sum(row.x)?);
                let least = rows().filter_map(share).fold(f64::INFINITY, f64::min);
                let summary = conclusion.summary.entry(key(scenario, treatment)).or_default();
                summary.insert("throughput".to_owned(), most("throughput"));
                summary.insert("latency".to_owned(), most("latency"));
                if least.is_finite() {
                    summary.insert("share".to_owned(), least);
                    if !is_sum(treatment) {
                        shares.push(format!("“{treatment}” {least:.0} %"));
                    }
                }
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

/// The numbers of links that were measured apart, each counted `times`: throughputs and packets
/// add up, delays are those of all packets.
fn measured(outcomes: &[(Outcome, u32)]) -> Measured {
    let sum = |value: &dyn Fn(&Outcome) -> f64| {
        outcomes.iter().map(|(outcome, times)| value(outcome) * f64::from(*times)).sum::<f64>()
    };
    let millis = |time: sheaf_stage::Duration| time.as_secs_f64() * 1e3;
    let weight = sum(&|outcome| outcome.arrived as f64).max(1.0);
    let mean = |value: &dyn Fn(&Outcome) -> f64| {
        sum(&|outcome| outcome.arrived as f64 * value(outcome)) / weight
    };
    let values = [
        sum(&Outcome::throughput),
        sum(&|outcome| outcome.unsteadiness().powi(2)).sqrt(),
        mean(&|outcome| millis(outcome.mean_delay())),
        mean(&|outcome| millis(outcome.delay_quantile(0.99))),
        sum(&|outcome| outcome.sent as f64),
        sum(&|outcome| outcome.arrived as f64),
        sum(&|outcome| outcome.reordered as f64),
        sum(&|outcome| outcome.late as f64),
        outcomes.iter().map(|(outcome, _)| millis(outcome.timer)).fold(0.0, f64::max),
    ];
    let metrics = METRICS.iter().zip(values).map(|((key, ..), value)| ((*key).to_owned(), value));
    let seconds = outcomes.iter().map(|(outcome, _)| outcome.per_second.len()).max().unwrap_or(0);
    let at = |second: usize| {
        let bytes = |outcome: &Outcome| outcome.per_second.get(second).copied().unwrap_or(0) as f64;
        (second as f64, sum(&|outcome| bytes(outcome) * 8e-6))
    };
    let series = Series {
        name: "throughput over time".to_owned(),
        x: Axis::new("time", "s"),
        y: Axis::new("throughput", "Mbit/s"),
        points: (0..seconds).map(at).collect(),
    };
    Measured { metrics: metrics.collect(), series: vec![series] }
}
