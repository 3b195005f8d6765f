//! Plans: one TOML file per published experiment, read and checked before anything starts.
//!
//! A plan has a head (purpose, duration, seed), scenarios (testbeds and sweeps),
//! treatments (features that are compared) and published figures. The keys of scenarios
//! and treatments depend on its `kind`. Every fault of a plan is reported in
//! one line with file, line and remedy.

use crate::experiment::{Engine, Experiment};
use crate::fault::{self, Fault};
use crate::measured::SweepPoint;
use crate::plan_file::{Head, Kind};
use crate::{home, link, trunk, voip};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::Path;

/// The plans that come with the program: name and text.
const BUILTIN: [(&str, &str); 21] = [
    ("voip-two-hop", include_str!("../../../plans/voip-two-hop.toml")),
    ("voip-compressed", include_str!("../../../plans/voip-compressed.toml")),
    ("voip-karlstad", include_str!("../../../plans/voip-karlstad.toml")),
    ("voip-hop-vs-end", include_str!("../../../plans/voip-hop-vs-end.toml")),
    ("voip-ampdu", include_str!("../../../plans/voip-ampdu.toml")),
    ("voip-mixed", include_str!("../../../plans/voip-mixed.toml")),
    ("voip-group", include_str!("../../../plans/voip-group.toml")),
    ("voip-mobile", include_str!("../../../plans/voip-mobile.toml")),
    ("emulator-rate", include_str!("../../../plans/emulator-rate.toml")),
    ("emulator-latency", include_str!("../../../plans/emulator-latency.toml")),
    ("emulator-tcp", include_str!("../../../plans/emulator-tcp.toml")),
    ("tcp-model", include_str!("../../../plans/tcp-model.toml")),
    ("home-ap", include_str!("../../../plans/home-ap.toml")),
    ("home-many", include_str!("../../../plans/home-many.toml")),
    ("trunk-basic", include_str!("../../../plans/trunk-basic.toml")),
    ("trunk-congestion", include_str!("../../../plans/trunk-congestion.toml")),
    ("trunk-error", include_str!("../../../plans/trunk-error.toml")),
    ("trunk-hidden", include_str!("../../../plans/trunk-hidden.toml")),
    ("trunk-mobility", include_str!("../../../plans/trunk-mobility.toml")),
    ("trunk-scale", include_str!("../../../plans/trunk-scale.toml")),
    ("trunk-latency", include_str!("../../../plans/trunk-latency.toml")),
];

/// Bound of the repetitions of a point: the binomial distribution of some more is too small for
/// floating-point numbers.
const MOST_REPETITIONS: u32 = 1000;

/// Bound of the seconds of a point; more are a mistake, such as milliseconds.
const LONGEST: f64 = 1e6;

/// An experiment of any kind.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Calls over a wireless mesh.
    Voip(voip::Plan),
    /// A home behind a slow link.
    Home(home::Plan),
    /// One emulated link.
    Link(link::Plan),
    /// Trunks of radio links.
    Trunk(trunk::Plan),
}

/// Evaluates the same expression on the file of any kind.
macro_rules! each {
    ($plan:expr, $file:ident => $value:expr) => {
        match $plan {
            Plan::Voip($file) => $value,
            Plan::Home($file) => $value,
            Plan::Link($file) => $value,
            Plan::Trunk($file) => $value,
        }
    };
}

/// Changes of a plan for one run.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Shorter points, as the plan's `[quick]` says.
    pub quick: bool,
    /// The points of the sweep instead of the plan's.
    pub points: Option<Vec<f64>>,
    /// Seconds per point instead of the plan's.
    pub duration: Option<f64>,
    /// Seed instead of the plan's.
    pub seed: Option<u64>,
    /// Repetitions of each point instead of the plan's.
    pub repetitions: Option<u32>,
}

impl Plan {
    /// The plans that come with the program.
    pub fn all() -> Vec<Plan> {
        let parse = |(name, text)| Plan::parse(text, name).expect("built-in plans are checked");
        BUILTIN.into_iter().map(parse).collect()
    }

    /// A built-in plan by name, or a plan file by path.
    pub fn find(name: &str) -> anyhow::Result<Plan> {
        if let Some((_, text)) = BUILTIN.iter().find(|(known, _)| *known == name) {
            return Plan::parse(text, name);
        }
        if !Path::new(name).exists() {
            let known: Vec<_> = BUILTIN.iter().map(|(known, _)| *known).collect();
            anyhow::bail!("no plan {name:?}; give one of {} or a TOML file", known.join(", "));
        }
        let text = std::fs::read_to_string(name)
            .map_err(|error| anyhow::anyhow!("cannot read plan {name}: {error}"))?;
        let mut plan = Plan::parse(&text, name)?;
        if let Plan::Home(home) = &mut plan {
            let folder = Path::new(name).parent().unwrap_or(Path::new(""));
            let faulty = |fault: Fault| anyhow::anyhow!("{name}:{}: {fault}", fault.line(&text));
            home.load(folder).map_err(faulty)?;
        }
        Ok(plan)
    }

    /// Reads and checks a plan; `file` is named in errors. Files that it names are not read.
    pub fn parse(text: &str, file: &str) -> anyhow::Result<Plan> {
        /// The key that decides how the others are read.
        #[derive(Deserialize)]
        struct Probe {
            #[serde(default)]
            kind: Kind,
        }
        let plan = match read::<Probe>(text, file)?.kind {
            Kind::Voip => Plan::Voip(read(text, file)?),
            Kind::Home => Plan::Home(read(text, file)?),
            Kind::Link => Plan::Link(read(text, file)?),
            Kind::Trunk => Plan::Trunk(read(text, file)?),
        };
        let faulty = |fault: Fault| anyhow::anyhow!("{file}:{}: {fault}", fault.line(text));
        plan.check().map_err(faulty)?;
        Ok(plan)
    }

    /// The plan as TOML.
    pub fn to_toml(&self) -> anyhow::Result<String> {
        Ok(each!(self, file => toml::to_string(file))?)
    }

    /// The keys that all kinds have.
    pub fn head(&self) -> &Head {
        each!(self, file => &file.head)
    }

    /// The same, to change it.
    fn head_mut(&mut self) -> &mut Head {
        each!(self, file => &mut file.head)
    }

    /// The experiment of its kind.
    pub fn experiment(&self) -> &dyn Experiment {
        each!(self, file => file)
    }

    /// The points of the plan on `engine` with all repetitions. Each sweep is whole before the next
    /// repetition, so that an interrupted run has as many whole ones as it can.
    pub fn points(&self, engine: Engine) -> Vec<SweepPoint> {
        let first = self.experiment().points(engine);
        let of =
            |repetition| first.iter().map(move |point| SweepPoint { repetition, ..point.clone() });
        (1..=self.head().repetitions(engine)).flat_map(of).collect()
    }

    /// The same plan with the seed of `repetition`.
    pub fn repeated(&self, repetition: u32) -> Plan {
        let mut plan = self.clone();
        let head = plan.head_mut();
        head.seed = head.seed_of(repetition);
        plan
    }

    /// The plan as it is run on `engine` with `changes`.
    ///
    /// # Errors
    /// Fails when the changed plan cannot be run.
    pub fn changed(&self, engine: Engine, changes: &Changes) -> anyhow::Result<Plan> {
        let mut plan = self.clone();
        let head = plan.head_mut();
        head.seed = changes.seed.unwrap_or(head.seed);
        if changes.quick {
            head.duration = match engine {
                Engine::Netns => head.quick.netns_duration,
                Engine::Virtual => head.quick.virtual_duration,
            };
            head.points = (engine == Engine::Netns).then(|| head.quick.points.clone());
        }
        head.duration = changes.duration.unwrap_or(head.duration);
        let repetitions = changes.repetitions.or(changes.quick.then_some(head.quick.repetitions));
        if let Some(repetitions) = repetitions {
            (head.repetitions, head.netns_repetitions) = (repetitions, None);
        }
        if changes.points.is_some() {
            head.points.clone_from(&changes.points);
        }
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<(), Fault> {
        let head = self.head();
        let (some, quick) = (f64::MIN_POSITIVE, &head.quick);
        let in_head = [("duration", head.duration, some), ("warm_up", head.warm_up, 0.0)];
        let in_quick = [
            ("netns_duration", quick.netns_duration, some),
            ("virtual_duration", quick.virtual_duration, some),
        ];
        let wrong = |(key, seconds, least): &(&str, f64, f64)| {
            let message = format!("{key} = {seconds} is not a time; give seconds above zero");
            (!(*seconds >= *least && *seconds < LONGEST)).then_some(message)
        };
        for one in in_head {
            wrong(&one).map_or(Ok(()), |message| Err(Fault::head(one.0, message)))?;
        }
        for one in in_quick {
            wrong(&one).map_or(Ok(()), |message| Err(Fault::quick(one.0, message)))?;
        }
        let message = |repetitions: &u32| {
            (!(1..=MOST_REPETITIONS).contains(repetitions))
                .then(|| format!("{repetitions} repetitions; give 1 to {MOST_REPETITIONS}"))
        };
        if let Some(message) = message(&head.repetitions) {
            return Err(Fault::head("repetitions", message));
        }
        if let Some(message) = head.netns_repetitions.as_ref().and_then(message) {
            return Err(Fault::head("netns_repetitions", message));
        }
        if let Some(message) = message(&quick.repetitions) {
            return Err(Fault::quick("repetitions", message));
        }
        let points = head.points.iter().chain([&head.quick.points]).flatten();
        if let Some(wrong) = points.into_iter().find(|x| !x.is_finite() || **x < 0.0) {
            let message = format!("{wrong} is not a point of a sweep; give numbers from zero up");
            return Err(Fault::quick("points", message));
        }
        self.experiment().check()?;
        let view = self.experiment().view();
        for published in &head.published {
            let unknown = published.points.keys().find(|key| view.metric(key).is_none());
            if let Some(key) = unknown {
                let known: Vec<_> = view.metrics.iter().map(|metric| metric.key.as_str()).collect();
                let message = format!("no metric {key:?}; there are {}", known.join(", "));
                return Err(Fault::published(&published.label, message).at("points"));
            }
            let unknown = published.summary.keys().find(|key| {
                view.summary.iter().all(|column| column.key != **key && !key.ends_with("_at"))
            });
            if let Some(key) = unknown {
                let known: Vec<_> = view.summary.iter().map(|column| column.key.as_str()).collect();
                let message = format!("no column {key:?}; there are {}", known.join(", "));
                return Err(Fault::published(&published.label, message).at("summary"));
            }
        }
        Ok(())
    }

    /// Everything that decides the outcome of `sweep_point`, without engine and version: what a
    /// kept result is found by. Other points of the sweep and what is only shown are not part of
    /// it.
    pub fn recipe(&self, sweep_point: &SweepPoint) -> serde_json::Value {
        let file = each!(self, file => serde_json::to_value(file)).expect("plans are plain");
        let named = |table: &str, name: &str| {
            let found = file[table].as_array().into_iter().flatten();
            let mut found = found.filter(|one| one["name"] == name).cloned();
            let mut one = found.next().unwrap_or_default();
            if let Some(fields) = one.as_object_mut() {
                fields
                    .retain(|key, _| !["sweep", "flows", "totals", "treatments"].contains(&&**key));
            }
            one
        };
        serde_json::json!({
            "kind": file["kind"],
            "seed": self.head().seed_of(sweep_point.repetition),
            "repetition": sweep_point.repetition,
            "duration": file["duration"],
            "warm_up": file["warm_up"],
            "scenario": named("scenario", &sweep_point.scenario),
            "treatment": named("treatment", &sweep_point.treatment),
            "x": sweep_point.x,
        })
    }
}

fn read<T: DeserializeOwned>(text: &str, file: &str) -> anyhow::Result<T> {
    toml::from_str(text).map_err(|error| {
        let line = fault::line(text, error.span().unwrap_or_default());
        let message = error.message().replace('\n', " ");
        let remedy = match message.starts_with("missing field") {
            true => "add it",
            false => "correct or remove it",
        };
        anyhow::anyhow!("{file}:{line}: {message}; {remedy}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn broken(from: &str, to: &str) -> String {
        let text = BUILTIN[0].1;
        assert!(text.contains(from), "{from}");
        Plan::parse(&text.replacen(from, to, 1), "my.toml").unwrap_err().to_string()
    }

    #[test]
    fn the_built_in_plans_are_sound_and_have_points() {
        for plan in Plan::all() {
            assert!(!plan.experiment().points(Engine::Virtual).is_empty(), "{}", plan.head().name);
            let view = plan.experiment().view();
            let missing = view.charts.iter().find(|chart| view.metric(&chart.metric).is_none());
            assert_eq!(missing, None, "{}", plan.head().name);
        }
    }

    #[test]
    fn a_plan_that_is_printed_can_be_read_again() {
        for plan in Plan::all() {
            let text = plan.to_toml().unwrap();
            let again = Plan::parse(&text, "again").unwrap();
            assert_eq!(again.to_toml().unwrap(), text);
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line_with_place_and_remedy() {
        let unknown = broken("seed", "sede = 3\nseed");
        assert!(unknown.starts_with("my.toml:") && unknown.contains("sede"), "{unknown}");
        assert!(unknown.contains("expected one of") && !unknown.contains('\n'), "{unknown}");
        assert!(unknown.ends_with("; correct or remove it"), "{unknown}");
        let missing = broken("duration = 180", "");
        assert!(missing.ends_with("missing field `duration`; add it"), "{missing}");
        let kind = broken("name = \"voip-two-hop\"", "kind = \"vioip\"\nname = \"x\"");
        assert!(kind.starts_with("my.toml:1:") && kind.contains("voip"), "{kind}");
        let node = broken("[\"A\", \"C\"]", "[\"A\", \"X\"]");
        let line_of = |text: &str| BUILTIN[0].1.lines().position(|line| line == text).unwrap() + 1;
        let line = line_of("name = \"two-hop\"");
        assert!(node.starts_with(&format!("my.toml:{line}: scenario two-hop")), "{node}");
        let line = line_of("flows = [");
        let flows = broken("flows = [", "flows = [0,");
        assert!(flows.starts_with(&format!("my.toml:{line}: scenario two-hop: flows")), "{flows}");
        assert!(broken("rate = 2", "rate = 3").contains("scenario"));
        assert!(broken("min = 500", "min = 5000").contains("at most 1500"));
        assert!(broken("timeout = 5", "timeout = 1e300").contains("give milliseconds"));
        assert!(broken("flows = [", "flows = [4000000000,").contains("1 to 9999"));
        assert!(broken("warm_up = 5", "warm_up = -5").contains("my.toml:5: warm_up"));
        let line = line_of("repetitions = 10");
        let none = broken("repetitions = 10", "repetitions = 0");
        let start = format!("my.toml:{line}: 0 repetitions; give 1 to 1000");
        assert!(none.starts_with(&start), "{none}");
        let quick = broken("netns_duration = 10", "netns_duration = 10\nrepetitions = 1001");
        assert!(quick.contains("1001 repetitions; give 1"), "{quick}");
        let metric = broken("latency = [", "latincy = [");
        assert!(metric.contains("no metric \"latincy\""), "{metric}");
    }

    #[test]
    fn every_repetition_has_a_seed_of_its_own_and_the_first_that_of_the_plan() {
        let plan = Plan::find("voip-two-hop").unwrap();
        let head = plan.head();
        assert_eq!(head.seed_of(1), head.seed);
        let seeds: BTreeSet<u64> = (1..=1000).map(|repetition| head.seed_of(repetition)).collect();
        assert_eq!(seeds.len(), 1000);
        let other = Head { seed: head.seed + 1, ..head.clone() };
        assert!((1..=1000).all(|repetition| !seeds.contains(&other.seed_of(repetition))));
        assert_eq!(plan.repeated(3).head().seed, head.seed_of(3));
    }

    #[test]
    fn real_time_and_quick_runs_have_repetitions_of_their_own_and_a_flag_goes_before_them() {
        let plan = Plan::find("voip-two-hop").unwrap();
        let repetitions = |changes: Changes| {
            [Engine::Virtual, Engine::Netns].map(|engine| {
                let plan = plan.changed(engine, &changes).unwrap();
                let once = plan.experiment().points(engine).len();
                plan.points(engine).len() / once
            })
        };
        assert_eq!(repetitions(Changes::default()), [10, 1]);
        let quick = Changes { quick: true, ..Changes::default() };
        assert_eq!(repetitions(quick.clone()), [1, 1]);
        assert_eq!(repetitions(Changes { repetitions: Some(3), ..quick }), [3, 3]);
        let points = plan.points(Engine::Virtual);
        let first = plan.experiment().points(Engine::Virtual);
        assert_eq!(points[..first.len()], first, "a whole sweep before the next");
        assert_eq!(points[first.len()].to_string(), format!("{}#2", first[0]));
    }

    #[test]
    fn a_recipe_changes_with_what_is_run_and_not_with_what_else_is() {
        let plan = Plan::find("voip-two-hop").unwrap();
        let sweep_points = plan.experiment().points(Engine::Virtual);
        let recipe = |plan: &Plan| plan.recipe(&sweep_points[3]);
        let changes = Changes { points: Some(vec![1.0]), ..Changes::default() };
        let swept = plan.changed(Engine::Virtual, &changes).unwrap();
        assert_eq!(recipe(&plan), recipe(&swept));
        let changes = Changes { seed: Some(1), ..Changes::default() };
        let seeded = plan.changed(Engine::Virtual, &changes).unwrap();
        assert_ne!(recipe(&plan), recipe(&seeded));
        let again = SweepPoint { repetition: 2, ..sweep_points[3].clone() };
        assert_ne!(recipe(&plan), plan.recipe(&again));
        let changes = Changes { repetitions: Some(50), ..Changes::default() };
        let more = plan.changed(Engine::Virtual, &changes).unwrap();
        assert_eq!(plan.recipe(&again), more.recipe(&again));
        let forced = BUILTIN[0].1.replace("min = 500", "min = 400");
        let forced = Plan::parse(&forced, "forced").unwrap();
        let of = |plan: &Plan, name: &str| {
            let sweep_point =
                sweep_points.iter().find(|sweep_point| sweep_point.treatment == name).unwrap();
            plan.recipe(sweep_point)
        };
        assert_eq!(of(&plan, "busy"), of(&forced, "busy"));
        assert_ne!(of(&plan, "forced"), of(&forced, "forced"));
    }
}
