//! Claims: numbers that README and docs give, each with the band in which a run of its plan must
//! come out. `plans/claims.toml` has them.

use crate::experiment::{Engine, Tools};
use crate::plan::{Changes, Plan};
use crate::reading::Reading;
use crate::result::RunResult;
use crate::run::{self, Options, SweepPart};
use anyhow::Context;
use serde::Deserialize;

const BUILTIN: &str = include_str!("../../../plans/claims.toml");

/// All claims, by the runs that show them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// Runs, in the order in which they are done.
    #[serde(rename = "check")]
    pub checks: Vec<Check>,
}

/// A run of a plan under the virtual clock, and what it must show.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Name of the plan.
    pub plan: String,
    /// The part of it that `--quick` runs; without it that runs nothing.
    #[serde(default)]
    pub quick: Option<Part>,
    /// Numbers that it must show.
    #[serde(rename = "claim")]
    pub claims: Vec<Claim>,
}

/// A part of a plan.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The sweep in place of the plan's.
    pub points: Vec<f64>,
    /// Repetitions of each point.
    pub repetitions: u32,
    /// Seconds of each point in place of the plan's.
    #[serde(default)]
    pub duration: Option<f64>,
}

/// Words of README or docs, and the numbers behind them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The file that makes it, from the root of the repository.
    pub file: String,
    /// Its words there.
    pub says: String,
    /// Numbers that must come out for it.
    pub shows: Vec<Number>,
}

/// A number, and the band in which it must be.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// `SCENARIO/TREATMENT` of the plan.
    pub of: String,
    /// Treatment of which the number is a multiple; none where it is not.
    #[serde(default)]
    pub times: Option<String>,
    /// Key of a metric, or of a column of the summary where there is no `at`.
    pub key: String,
    /// Place in the sweep.
    #[serde(default)]
    pub at: Option<f64>,
    /// The least and the most.
    pub band: (f64, f64),
    /// The same for `--quick`, where fewer seeds or seconds scatter more; without it the short run
    /// does not show the number, as one that is read off the whole sweep.
    #[serde(default)]
    pub quick: Option<(f64, f64)>,
}

/// The length of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// All points with all seeds.
    Whole,
    /// The parts that the claims name.
    Quick,
}

/// A number of a claim and what was measured.
#[derive(Clone, Debug)]
pub struct Verdict<'a> {
    /// The claim.
    pub claim: &'a Claim,
    /// The number.
    pub number: &'a Number,
    /// The band that was asked for.
    pub band: (f64, f64),
    /// The number; `None` where the run does not have it.
    pub measured: Option<Reading>,
}

impl Verdict<'_> {
    /// Whether the number is in its band.
    pub fn holds(&self) -> bool {
        let (least, most) = self.band;
        self.measured.is_some_and(|reading| (least..=most).contains(&reading.value))
    }
}

impl Claims {
    /// The claims of this version.
    ///
    /// # Panics
    /// Never: a test reads the file that is part of the program.
    pub fn builtin() -> Claims {
        toml::from_str(BUILTIN).expect("part of the program")
    }
}

impl Check {
    /// The numbers that a run of this length shows, each with its claim and its band.
    fn shown<'a>(
        &'a self,
        length: Length,
    ) -> impl Iterator<Item = (&'a Claim, &'a Number, (f64, f64))> {
        let numbers = |claim: &'a Claim| claim.shows.iter().map(move |number| (claim, number));
        self.claims.iter().flat_map(numbers).filter_map(move |(claim, number)| {
            let band = match length {
                Length::Whole => Some(number.band),
                Length::Quick => number.quick,
            };
            Some((claim, number, band?))
        })
    }

    /// Whether a run of this length shows anything.
    pub fn is_part_of(&self, length: Length) -> bool {
        self.shown(length).next().is_some()
    }

    /// The parts of the sweep of `plan` that a run of this length reads: those points that a number
    /// names, and for a number of the summary all that it is made of.
    fn reads(&self, plan: &Plan, length: Length) -> Vec<SweepPart> {
        let by_treatment = plan.experiment().concludes_by_treatment();
        let mut parts = Vec::new();
        for (_, Number { of, times, at, .. }, _) in self.shown(length) {
            let Some((scenario, treatment)) = of.split_once('/') else { continue };
            let part = |treatment| SweepPart { scenario: scenario.to_owned(), treatment, at: *at };
            if at.is_none() && !by_treatment {
                parts.push(part(None));
                continue;
            }
            let treatments = [Some(treatment), times.as_deref()].into_iter().flatten();
            parts.extend(treatments.map(|treatment| part(Some(treatment.to_owned()))));
        }
        parts
    }

    /// Runs what the claims read of the plan, or of its part, with these options; their changes and
    /// parts are replaced.
    ///
    /// # Errors
    /// Fails when there is no such plan, or a point cannot be measured.
    pub fn run(
        &self,
        length: Length,
        mut options: Options,
        tools: &Tools,
    ) -> anyhow::Result<RunResult> {
        let plan = Plan::find(&self.plan)?;
        options.changes = match (length, &self.quick) {
            (Length::Whole, _) => Changes::default(),
            (Length::Quick, part) => {
                let part = part.as_ref().with_context(|| format!("{} has no part", self.plan))?;
                Changes {
                    points: Some(part.points.clone()),
                    repetitions: Some(part.repetitions),
                    duration: part.duration,
                    ..Changes::default()
                }
            }
        };
        options.parts = Some(self.reads(&plan, length));
        run::run(&plan, Engine::Virtual, &options, tools)
    }

    /// Outcome of the claims in the result of [`run`](Self::run).
    pub fn verdicts<'a>(&'a self, length: Length, result: &RunResult) -> Vec<Verdict<'a>> {
        let verdict = |(claim, number, band): (&'a Claim, &'a Number, _)| {
            let Number { of, times, key, at, .. } = number;
            let measured = of.split_once('/').and_then(|(scenario, treatment)| {
                result.number(scenario, treatment, times.as_deref(), key, *at)
            });
            Verdict { claim, number, band, measured }
        };
        self.shown(length).map(verdict).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(plan: &str, number: &str) -> Vec<SweepPart> {
        let text = format!(
            "plan = {plan:?}\n[[claim]]\nfile = \"README.md\"\nsays = \"so\"\nshows = [{number}]"
        );
        let check: Check = toml::from_str(&text).unwrap();
        check.reads(&Plan::find(plan).unwrap(), Length::Whole)
    }

    #[test]
    fn a_number_reads_its_point_or_all_that_its_summary_is_made_of() {
        let part = |scenario: &str, treatment: Option<&str>, at| SweepPart {
            scenario: scenario.to_owned(),
            treatment: treatment.map(str::to_owned),
            at,
        };
        let point = r#"{ of = "two-hop/busy", key = "kau", at = 24, band = [1, 2] }"#;
        assert_eq!(reads("voip-two-hop", point), [part("two-hop", Some("busy"), Some(24.0))]);
        let gain = r#"{ of = "two-hop/busy", times = "baseline", key = "kau", band = [1, 2] }"#;
        let both = [part("two-hop", Some("busy"), None), part("two-hop", Some("baseline"), None)];
        assert_eq!(reads("voip-two-hop", gain), both);
        // The share of a trunk is that of the sum of its links, another treatment.
        let share = r#"{ of = "tcp/earliest", key = "least_share", band = [1, 2] }"#;
        assert_eq!(reads("trunk-basic", share), [part("tcp", None, None)]);
    }
}
