//! Calls over a wireless mesh, without and with aggregation.
//!
//! * [`plan`]: scenarios and treatments; [`point`]: one point, worked out;
//! * [`netns`], [`virtual_time`]: the two engines;
//! * [`outcome`]: the outcome of a point; [`limit`]: the capacity by air time.

pub mod limit;
pub mod netns;
pub mod outcome;
pub mod plan;
pub mod point;
pub mod virtual_time;

pub use plan::{Plan, Scenario, Treatment};

use crate::columns;
use crate::experiment::{Conclusion, Engine, Experiment, Tools};
use crate::fault::Fault;
use crate::measured::{Measured, Row, SweepPoint, key, scenarios, treatments};
use crate::view::{Axis, Chart, Metric, View};
use anyhow::Context;
use limit::Limit;
use outcome::Outcome;
use sheaf_voice::rules::Rule;
use std::collections::BTreeMap;

/// The treatment that the others are compared with.
const BASELINE: &str = "baseline";

impl Experiment for Plan {
    fn check(&self) -> Result<(), Fault> {
        self.check_calls()
    }

    fn ready(&self, engine: Engine, _tools: &Tools) -> anyhow::Result<()> {
        match engine {
            Engine::Netns => Ok(sheaf_bpf::support()?),
            Engine::Virtual => Ok(()),
        }
    }

    fn points(&self, _engine: Engine) -> Vec<SweepPoint> {
        let seconds = self.head.warm_up + self.head.duration;
        let mut sweep_points = Vec::new();
        for scenario in &self.scenarios {
            let sweep = scenario.sweep(self.head.points.as_deref());
            for treatment in &scenario.treatments {
                sweep_points.extend(sweep.iter().map(|flows| SweepPoint {
                    scenario: scenario.name.clone(),
                    treatment: treatment.clone(),
                    x: f64::from(*flows),
                    seconds,
                }));
            }
        }
        sweep_points
    }

    fn measure(
        &self,
        sweep_point: &SweepPoint,
        engine: Engine,
        _tools: &Tools,
    ) -> anyhow::Result<Measured> {
        let found = self.scenarios.iter().find(|scenario| scenario.name == sweep_point.scenario);
        let scenario = found.with_context(|| format!("no scenario {}", sweep_point.scenario))?;
        let point = self.point(scenario, &sweep_point.treatment, sweep_point.x as u32)?;
        let outcome = match engine {
            Engine::Netns => netns::run(&point)?,
            Engine::Virtual => virtual_time::run(&point)?,
        };
        let outcome = Outcome { watched: point.warm_up + point.duration, ..outcome };
        let metrics = columns::values(outcome::COLUMNS, &outcome);
        Ok(Measured { metrics, series: Vec::new() })
    }

    fn view(&self) -> View {
        let mut supported = Chart::new("Supported flows", "kau");
        for scenario in &self.scenarios {
            // A plan that was not checked has no limit to draw; its check says what is wrong.
            if let Ok(limit) = Limit::of(self, scenario) {
                let name = Some(scenario.name.as_str());
                supported = supported
                    .mark(name, "air-time limit, full frames", limit.flows_full)
                    .mark(name, "air-time limit, lone packets", limit.flows_lone);
            }
        }
        View {
            axis: Axis::new("flows injected", ""),
            metrics: columns::metrics(outcome::COLUMNS),
            charts: vec![
                supported,
                Chart::new("Mean one-way latency", "latency")
                    .up_to(250.0)
                    .mark(None, "150 ms", 150.0),
                Chart::new("Loss", "loss").up_to(30.0).mark(None, "5 %", 5.0),
                Chart::new("Voice quality", "r").down_to(0.0),
                Chart::new("Packets a frame", "packets_per_frame"),
                Chart::new("Channel in use", "air_busy"),
            ],
            summary: Rule::ALL
                .map(|rule| Metric::new(rule.name(), &format!("supported, {}", rule.name()), ""))
                .into(),
            notes:
                "A flow is supported by rule kau when its loss is below 5 % and its mean latency \
                    plus jitter below 150 ms; by uwc with 4 %; by r70 when the E-model rates it 70 \
                    or more with the best fixed play-out buffer."
                    .to_owned(),
        }
    }

    fn conclude(&self, rows: &[Row]) -> Conclusion {
        let mut conclusion = Conclusion::default();
        for row in rows {
            let rules = conclusion.summary.entry(key(&row.scenario, &row.treatment)).or_default();
            for rule in Rule::ALL {
                let most: &mut f64 = rules.entry(rule.name().to_owned()).or_default();
                *most = most.max(row.get(rule.name()).unwrap_or_default());
            }
        }
        let mut sentences = Vec::new();
        for name in scenarios(rows) {
            let scenario = self.scenarios.iter().find(|scenario| scenario.name == name);
            let limit = scenario.and_then(|scenario| Limit::of(self, scenario).ok());
            sentences.extend(answer(rows, name, &conclusion.summary, limit));
            if let Some(limit) = limit {
                conclusion.remarks.insert(name.to_owned(), limit.remark());
            }
        }
        conclusion.answer = sentences.join(" ");
        conclusion
    }
}

/// Sentence on the gain of a scenario's best treatment.
fn answer(
    rows: &[Row],
    scenario: &str,
    summary: &BTreeMap<String, BTreeMap<String, f64>>,
    limit: Option<Limit>,
) -> Option<String> {
    let kau = Rule::Kau.name();
    let supported = |treatment| Some(*summary.get(&key(scenario, treatment))?.get(kau)?);
    let baseline = supported(BASELINE).filter(|flows| *flows > 0.0)?;
    let others = treatments(rows, scenario).into_iter().filter(|name| *name != BASELINE);
    let (flows, name) = others
        .filter_map(|name| Some((supported(name)?, name)))
        .max_by(|one, other| one.0.total_cmp(&other.0))?;
    let gain = flows / baseline;
    let share = limit.map_or(String::new(), |limit| {
        format!(", {:.0} % of what the air time allows", 100.0 * flows / limit.flows_full)
    });
    Some(format!(
        "{scenario}: {baseline} supported flows without aggregation, {flows} with “{name}”: \
         {gain:.1} times as many{share}."
    ))
}
