//! A home behind a slow link: downloads or uploads beside a game and a call, with and without
//! window control.
//!
//! * [`plan`]: scenarios and treatments; `control`: the words of window control;
//! * [`streams`]: streams of UDP; [`pattern`]: times and sizes of their packets; [`capture`]: calls
//!   that are replayed; [`sessions`]: pages and requests over TCP;
//! * [`change`]: a bottleneck that changes, and the capacity that is assumed meanwhile; `outcome`:
//!   the numbers from all of it, the same on both engines;
//! * [`netns`], [`virtual_time`]: the two engines.

pub mod capture;
pub mod change;
mod control;
pub mod netns;
mod outcome;
pub mod pattern;
pub mod plan;
pub mod sessions;
pub mod streams;
pub mod virtual_time;

pub use plan::{Plan, Scenario, Treatment};

use crate::columns::{self, Column, Treated, column};
use crate::experiment::{Conclusion, Engine, Experiment, Tools};
use crate::fault::Fault;
use crate::measured::{Measured, Row, SweepPoint, key, treatments, whole_scenarios};
use crate::view::{Axis, Chart, Metric, View};
use anyhow::{Context, bail, ensure};
use change::KNOWN_ERROR;
use outcome::{DELAY_P99, DROPS, GAP_P99, JAIN, Outcome, PAGE_P95, RATE, TRIP_P99};
use plan::Stream;

/// The treatment that the others are compared with.
const NOTHING: &str = "nothing";

/// Share of the TCP rate below which a treatment is not the best, whatever it does for the game.
const RATE_KEPT: f64 = 0.98;

/// The numbers of a treatment's summary.
const SUMMARY: &[Column<Treated>] = &[
    column(RATE.key, "TCP data, least", "Mbit/s", |of| of.least(&RATE)),
    column("ratio", "TCP data, share of nothing, least", "", Treated::least_share),
    column(JAIN.key, "Jain index, least", "", |of| of.least(&JAIN)),
    column(GAP_P99.key, "game inter-arrival p99, most", "ms", |of| of.most(&GAP_P99)),
    column(DELAY_P99.key, "game delay p99, most", "ms", |of| of.most(&DELAY_P99)),
    column(DROPS.key, "drops, most", "packets", |of| of.most(&DROPS)),
    column(KNOWN_ERROR.key, KNOWN_ERROR.label, "%", |of| of.most(&KNOWN_ERROR)),
];

/// The same of pages, and of requests, where the plan has them.
const SUMMARY_OF_PAGES: &[Column<Treated>] =
    &[column(PAGE_P95.key, "page load time p95, most", "s", |of| of.most(&PAGE_P95))];
const SUMMARY_OF_REQUESTS: &[Column<Treated>] =
    &[column(TRIP_P99.key, "request round trip p99, most", "ms", |of| of.most(&TRIP_P99))];

impl Plan {
    /// The numbers of the plan's summary; those of traffic that it does not have are left out.
    fn summary(&self) -> Vec<&'static [Column<Treated>]> {
        let of: [(bool, &'static [Column<Treated>]); 3] = [
            (true, SUMMARY),
            (self.has(|stream| matches!(stream, Stream::Web(_))), SUMMARY_OF_PAGES),
            (self.has(|stream| matches!(stream, Stream::Request(_))), SUMMARY_OF_REQUESTS),
        ];
        of.into_iter().filter_map(|(is_there, columns)| is_there.then_some(columns)).collect()
    }

    /// The numbers of the plan's rows, without those of capacities; likewise.
    fn columns(&self) -> Vec<&'static [Column<Outcome>]> {
        let of: [(bool, &'static [Column<Outcome>]); 5] = [
            (true, outcome::COLUMNS),
            (self.has(|stream| matches!(stream, Stream::Poisson(_))), outcome::POISSON),
            (self.has(|stream| matches!(stream, Stream::Capture(_))), outcome::CAPTURE),
            (self.has(|stream| matches!(stream, Stream::Web(_))), outcome::WEB),
            (self.has(|stream| matches!(stream, Stream::Request(_))), outcome::REQUEST),
        ];
        of.into_iter().filter_map(|(is_there, columns)| is_there.then_some(columns)).collect()
    }

    /// Seconds that a point takes.
    pub(crate) fn seconds(&self) -> f64 {
        self.head.warm_up + self.head.duration
    }

    /// Seconds that one second of the plan takes: shorter runs keep the order of starts and
    /// changes, and have the last of these at three quarters of their time.
    pub(crate) fn scale(&self, scenario: &Scenario) -> f64 {
        let changed = scenario.changes.last().map_or(0.0, |change| change.at);
        let last = Plan::together(scenario).max(changed);
        if last <= 0.0 { 1.0 } else { (0.75 * self.head.duration / last).min(1.0) }
    }

    /// Refuses what does not exist in virtual time, before anything starts.
    fn ready_for_virtual_time(&self) -> anyhow::Result<()> {
        for scenario in &self.scenarios {
            let treatments = scenario.treatments.iter().filter_map(|name| self.treatment(name));
            for treatment in treatments {
                virtual_time::ready(scenario, treatment).with_context(|| {
                    format!("scenario {}, treatment {}", scenario.name, treatment.name)
                })?;
            }
        }
        Ok(())
    }

    /// All numbers of a row: those of each scenario, and the assumed capacities after its changes.
    fn metrics(&self) -> Vec<Metric> {
        let most = self.scenarios.iter().map(|scenario| scenario.changes.len()).max();
        let known = (0..=most.unwrap_or(0)).map(|number| {
            let since = match number {
                0 => "the start".to_owned(),
                number => format!("change {number}"),
            };
            let label = format!("capacity as it is known 5 s after {since}");
            Metric::new(&format!("known_{number}"), &label, "Mbit/s")
        });
        let error = columns::metrics(&[KNOWN_ERROR]);
        let measured = self.columns().into_iter().flat_map(columns::metrics);
        measured.chain(known).chain(error).collect()
    }
}

impl Experiment for Plan {
    fn check(&self) -> Result<(), Fault> {
        self.check_homes()
    }

    fn ready(&self, engine: Engine, tools: &Tools) -> anyhow::Result<()> {
        self.ready_to_replay()?;
        if engine == Engine::Virtual {
            return self.ready_for_virtual_time();
        }
        if let Some(scenario) = self.scenarios.iter().find(|one| one.unseen.is_some()) {
            let name = &scenario.name;
            bail!("unseen in scenario {name} exists in virtual time alone; remove it");
        }
        sheaf_bpf::support()?;
        ensure!(tools.sheaf.exists(), "{} is missing; build it", tools.sheaf.display());
        Ok(())
    }

    fn points(&self, engine: Engine) -> Vec<SweepPoint> {
        let mut sweep_points = Vec::new();
        for scenario in &self.scenarios {
            // A home with one download does not become one with a hundred by another sweep.
            let mut sweep: Vec<f64> = scenario.flows.iter().copied().map(f64::from).collect();
            if let Some(points) = self.head.points.as_ref().filter(|_| sweep.len() > 1) {
                sweep.clone_from(points);
            }
            let treatments = scenario.treatments.iter().filter(|name| {
                self.treatment(name).is_some_and(|treatment| treatment.runs_on(engine))
            });
            for x in sweep {
                let seconds = self.seconds();
                let at =
                    |treatment: &String| SweepPoint::new(&scenario.name, treatment, x, seconds);
                sweep_points.extend(treatments.clone().map(at));
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
        let scenario = self.scenario(&sweep_point.scenario);
        let scenario = scenario.with_context(|| format!("no scenario {}", sweep_point.scenario))?;
        let treatment = self.treatment(&sweep_point.treatment);
        let treatment =
            treatment.with_context(|| format!("no treatment {}", sweep_point.treatment))?;
        let flows = sweep_point.x as u32;
        match engine {
            Engine::Netns => netns::measure(self, scenario, treatment, flows, tools),
            Engine::Virtual => virtual_time::measure(self, scenario, treatment, flows),
        }
    }

    fn view(&self) -> View {
        View {
            axis: Axis::new("bulk transfers", ""),
            metrics: self.metrics(),
            charts: vec![
                Chart::new("TCP data", "rate"),
                Chart::new("Fairness", "jain").mark(None, "0.98", 0.98),
                Chart::new("Between two packets of the game, p99", "gap_p99")
                    .up_to(200.0)
                    .mark(None, "40 ms", 40.0),
                Chart::new("Voice quality", "r"),
                Chart::new("Drops at the bottleneck", "drops"),
            ],
            summary: self.summary().into_iter().flat_map(columns::metrics).collect(),
            notes: "TCP data is what arrived, without headers, while everything ran. The \
                    game's inter-arrival times are of packets that followed each other while \
                    everything ran; its delay, all losses, drops and R are of the whole run. \
                    Pages and requests count that ended after the warm-up. \
                    Drops and queue are the emulator's; those of the kernel's token bucket \
                    filter on real stacks are not known. The capacity is counted on the wire, as \
                    the rate of the bottleneck is; where nothing controls windows, its curve is \
                    the truth."
                .to_owned(),
        }
    }

    fn conclude(&self, rows: &[Row], holes: &[SweepPoint]) -> Conclusion {
        let mut conclusion = Conclusion::default();
        let mut sentences = Vec::new();
        for scenario in whole_scenarios(rows, holes) {
            let here: Vec<_> = rows.iter().filter(|row| row.scenario == scenario).collect();
            let treated = treatments(rows, scenario)
                .into_iter()
                .map(|name| (name, Treated::new(&here, name, |row| ratio(&here, row))))
                .collect::<Vec<_>>();
            for (name, treated) in &treated {
                let numbers = self.summary().into_iter().flat_map(|of| treated.summary(of));
                conclusion.summary.insert(key(scenario, name), numbers.collect());
            }
            sentences.extend(answer(scenario, &treated));
        }
        conclusion.answer = sentences.join(" ");
        conclusion
    }
}

/// Share of the rate that the same point has without window control.
fn ratio(rows: &[&Row], row: &Row) -> Option<f64> {
    let mut same = rows.iter().filter(|other| other.treatment == NOTHING && other.x == row.x);
    let nothing = RATE.of(same.next()?).filter(|rate| *rate > 0.0)?;
    Some(RATE.of(row)? / nothing)
}

/// Sentence that compares the treatment with the best worst case to no control: by the game's
/// delay, or where there is no game by the round trips of requests.
fn answer(scenario: &str, treated: &[(&str, Treated)]) -> Option<String> {
    let (_, nothing) = treated.iter().find(|(name, _)| *name == NOTHING)?;
    let (column, what) = match nothing.most(&DELAY_P99).is_finite() {
        true => (&DELAY_P99, "the game's delay p99"),
        false => (&TRIP_P99, "the p99 of requests' round trips"),
    };
    let others = treated.iter().filter(|(name, _)| *name != NOTHING);
    let (name, best) = others
        .filter(|(_, treated)| treated.least_share() >= RATE_KEPT)
        .min_by(|one, other| one.1.most(column).total_cmp(&other.1.most(column)))?;
    let (before, after) = (nothing.most(column), best.most(column));
    (before.is_finite() && after.is_finite()).then(|| {
        format!(
            "{scenario}: “{name}” keeps {:.1} % of the TCP rate and takes {what} from {before:.0} \
             to {after:.0} ms.",
            100.0 * best.least_share()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(treatment: &str, x: f64, metrics: &[(&str, f64)]) -> Row {
        let metrics = metrics.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect();
        let measured = Measured { metrics, series: Vec::new() };
        Row::new(&SweepPoint::new("s", treatment, x, 1.0), &[&measured])
    }

    #[test]
    fn the_summary_has_the_worst_of_the_sweep_and_the_answer_the_best_that_costs_no_rate() {
        let crate::plan::Plan::Home(plan) = crate::plan::Plan::find("home-ap").unwrap() else {
            panic!("a home")
        };
        let rows = [
            row(NOTHING, 1.0, &[("rate", 2.0), ("delay_p99", 219.0)]),
            row(NOTHING, 5.0, &[("rate", 2.0), ("delay_p99", 230.0)]),
            row("formula-2", 1.0, &[("rate", 1.98), ("delay_p99", 45.0), ("gap_p99", 44.0)]),
            row("formula-2", 5.0, &[("rate", 2.0), ("delay_p99", 50.0), ("gap_p99", 46.0)]),
            row("short", 1.0, &[("rate", 1.5), ("delay_p99", 39.0)]),
        ];
        let conclusion = plan.conclude(&rows, &[]);
        let summary = &conclusion.summary["s/formula-2"];
        assert_eq!((summary["ratio"], summary["gap_p99"]), (0.99, 46.0));
        assert!(conclusion.answer.contains("“formula-2” keeps 99.0 %"), "{}", conclusion.answer);
        assert!(conclusion.answer.contains("from 230 to 50 ms"), "{}", conclusion.answer);
    }

    #[test]
    fn a_shorter_run_keeps_the_order_of_what_begins() {
        let crate::plan::Plan::Home(mut plan) = crate::plan::Plan::find("home-ap").unwrap() else {
            panic!("a home")
        };
        let scenario = plan.scenarios[0].clone();
        assert_eq!((Plan::together(&scenario), plan.scale(&scenario)), (135.0, 1.0));
        plan.head.duration = 36.0;
        assert_eq!(plan.scale(&scenario) * 135.0, 27.0);
        let change = plan::Change { at: 270.0, rate: 2.0 };
        let changing = Scenario { changes: vec![change], ..scenario };
        assert_eq!(plan.scale(&changing) * 270.0, 27.0);
    }
}
