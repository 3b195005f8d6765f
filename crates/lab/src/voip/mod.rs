//! Calls over a wireless mesh, without and with aggregation.
//!
//! * [`plan`]: scenarios and treatments; [`point`]: one point, worked out;
//! * [`netns`], [`virtual_time`]: the two engines;
//! * [`outcome`]: the outcome of a point; [`supported`]: the flows that a sweep supports;
//!   [`knee`]: the flows at which it is full; [`limit`]: the capacity by air time;
//! * [`walk`]: a station that walks; [`walked`]: calls and sizes on its way.

pub mod knee;
pub mod limit;
pub mod netns;
pub mod outcome;
pub mod plan;
pub mod point;
pub mod supported;
pub mod virtual_time;
pub mod walk;
pub mod walked;

pub use plan::{Plan, Scenario, Treatment};

use crate::columns;
use crate::experiment::{Conclusion, Engine, Experiment, Tools};
use crate::fault::Fault;
use crate::measured::{Measured, Row, SweepPoint, key, scenarios, sweep, treatments};
use crate::reading::Reading;
use crate::view::{Axis, Chart, Metric, View};
use anyhow::Context;
use limit::Limit;
use outcome::Outcome;
use sheaf_voice::packet::Stamp;
use sheaf_voice::rules::Rule;

/// The treatment that the others are compared with.
const BASELINE: &str = "baseline";
/// Bytes of the IPv4 and UDP headers of a packet.
const IP_UDP: usize = 28;
/// Columns of the summary that only plans with such a published figure have.
const PUBLISHED: [(&str, &str, &str); 6] = [
    ("kau_at", "injected there, kau", ""),
    (outcome::UWC_ROW, "supported, uwc, all or none", ""),
    ("uwc_row_at", "injected there, uwc", ""),
    (knee::LEVELS_OFF, "throughput levels off at", "flows"),
    (knee::CLIMBS, "latency climbs from", "flows"),
    (knee::META_RISE, "meta packets rise until", "flows"),
];

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

    fn points(&self, engine: Engine) -> Vec<SweepPoint> {
        let seconds = self.head.warm_up + self.head.duration;
        let mut sweep_points = Vec::new();
        for scenario in &self.scenarios {
            let sweep = scenario.sweep(self.head.points.as_deref());
            let runs = |name: &&String| {
                let treatment = self.treatment(name);
                let is_virtual =
                    scenario.is_virtual() || treatment.is_ok_and(Treatment::is_virtual);
                engine == Engine::Virtual || !is_virtual
            };
            for treatment in scenario.treatments.iter().filter(runs) {
                sweep_points.extend(sweep.iter().map(|flows| {
                    SweepPoint::new(&scenario.name, treatment, f64::from(*flows), seconds)
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
        let measured = point.duration * point.turns;
        let watched = point.warm_up + measured;
        let packet = IP_UDP + Stamp::len(point.codec);
        let turns = point.turns;
        let outcome = Outcome { watched, measured, turns, packet, ..outcome };
        let mut metrics = columns::values(outcome::COLUMNS, &outcome);
        let mut series = outcome.series();
        if let Some(walking) = &point.walking {
            let measured = point.measured();
            metrics.extend(outcome.walked.metrics(walking, &measured));
            if point.over_time {
                series.extend(outcome.walked.series(walking, &measured));
            }
        }
        Ok(Measured { metrics, series })
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
        let wanted = |(key, _, _): &&(&str, &str, &str)| {
            self.head.published.iter().any(|one| one.summary.contains_key(*key))
        };
        let rules = Rule::ALL
            .map(|rule| Metric::new(rule.name(), &format!("supported, {}", rule.name()), ""));
        let published = PUBLISHED.iter().filter(wanted);
        let published = published.map(|(key, label, unit)| Metric::new(key, label, unit));
        let walks = self.scenarios.iter().any(|scenario| scenario.walk.is_some());
        let mut view = View {
            axis: Axis::new("flows injected", ""),
            metrics: columns::metrics(outcome::COLUMNS),
            charts: vec![
                supported,
                Chart::new("Mean one-way latency", "latency")
                    .up_to(250.0)
                    .mark(None, "150 ms", 150.0),
                Chart::new("Loss", "loss").up_to(35.0).mark(None, "5 %", 5.0),
                Chart::new("Jitter", "jitter"),
                Chart::new("Throughput", "throughput"),
                Chart::new("Voice quality", "r").down_to(0.0),
                Chart::new("Aggregation ratio", "packets_per_frame"),
                Chart::new("Average aggregation", "average_aggregation"),
                Chart::new("Frames a flow", "net_total"),
                Chart::new("Meta packets a flow", "net_aggregated"),
                Chart::new("Lone packets a flow", "net_alone"),
                Chart::new("Frames a flow by size", "net_by_size"),
                Chart::new("Frames a flow by timeout", "net_by_timeout"),
                Chart::new("Channel in use", "air_busy"),
            ],
            summary: rules.into_iter().chain(published).collect(),
            notes: "A flow is supported by rule kau when its loss is below 5 % and its mean \
                    latency plus jitter below 150 ms; by uwc with 4 %; by r70 when the E-model \
                    rates it 70 or more with the best fixed play-out buffer. A treatment supports \
                    as many as it does at the peak of its sweep. Where flow counts beside the \
                    peak were not swept, more may be supported there, at most as many as are \
                    injected: a bracket from one to the other, \
                    with the interval of the lower end."
                .to_owned(),
        };
        if walks {
            view.metrics.extend(walked::metrics());
            view.charts.extend(walked::charts());
            view.summary.extend(walked::summary());
            view.notes += walked::NOTES;
        }
        view
    }

    /// A hole is a place of the sweep where nothing was measured, as others are between points: it
    /// widens the bracket.
    fn conclude(&self, rows: &[Row], holes: &[SweepPoint]) -> Conclusion {
        let mut conclusion = Conclusion::default();
        let mut sentences = Vec::new();
        for name in scenarios(rows) {
            let (mut supported, mut carried) = (Vec::new(), Vec::new());
            for treatment in treatments(rows, name) {
                let summary = conclusion.summary.entry(key(name, treatment)).or_default();
                let sweep = sweep(rows, name, treatment);
                let [kau, ..] = Rule::ALL.map(|rule| supported::read(&sweep, rule.name(), summary));
                supported::read(&sweep, outcome::UWC_ROW, summary);
                supported.extend(kau.map(|kau| (treatment, kau)));
                carried.extend(walked::read(&sweep, summary).map(|kau| (treatment, kau)));
                // The first place where something happens may lie in a hole.
                let is_here =
                    |hole: &SweepPoint| hole.scenario == name && hole.treatment == treatment;
                if !holes.iter().any(is_here) {
                    summary.extend(knee::read(&sweep));
                }
            }
            let scenario = self.scenarios.iter().find(|scenario| scenario.name == name);
            let limit = scenario.and_then(|scenario| Limit::of(self, scenario).ok());
            sentences.extend(answer(name, &supported, limit));
            sentences.extend(walked::answer(name, &carried));
            if let Some(limit) = limit {
                conclusion.remarks.insert(name.to_owned(), limit.remark());
            }
        }
        conclusion.answer = sentences.join(" ");
        conclusion
    }

    fn concludes_by_treatment(&self) -> bool {
        true
    }
}

/// Sentence on the gain of a scenario's best treatment, from the flows that each supports.
fn answer(scenario: &str, supported: &[(&str, Reading)], limit: Option<Limit>) -> Option<String> {
    let (_, baseline) = supported.iter().find(|(name, _)| *name == BASELINE)?;
    let others = supported.iter().filter(|(name, _)| *name != BASELINE);
    // The bracket decides between equals.
    let order = |reading: &Reading| (reading.value, reading.to);
    let (name, best) = others.max_by(|one, other| {
        let (one, other) = (order(&one.1), order(&other.1));
        one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1))
    })?;
    let flows = |reading: &Reading| reading.text(|flows| flows.to_string());
    let mut sentence = format!(
        "{scenario}: {} supported flows without aggregation, {} with “{name}”",
        flows(baseline),
        flows(best)
    );
    let gain = best.over(baseline);
    if best.value > 0.0 && baseline.to > 0.0 {
        sentence += &format!(": {} times as many", gain.text(|gain| format!("{gain:.1}")));
    }
    if let Some(limit) = limit.filter(|_| best.to.is_finite()) {
        let share = best.over(&Reading::exact(limit.flows_full));
        let share = share.text(|share| format!("{:.0}", 100.0 * share));
        sentence += &format!(", {share} % of what the air time allows");
    }
    sentence += ".";
    let coarse: Vec<_> = [(BASELINE, baseline), (name, best)]
        .into_iter()
        .filter(|(_, reading)| reading.is_coarse())
        .map(|(name, _)| format!("“{name}”"))
        .collect();
    if !coarse.is_empty() {
        let names = coarse.join(" and ");
        sentence += &format!(" The sweep has too few points for one number of {names}.");
    }
    Some(sentence)
}
