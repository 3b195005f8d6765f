//! The claims of README and docs: their words are there, and a run shows their numbers.

use sheaf_lab::claims::{Check, Claims, Length, Number};
use sheaf_lab::experiment::{Engine, Tools};
use sheaf_lab::measured::SweepPoint;
use sheaf_lab::plan::{Changes, Plan};
use sheaf_lab::report;
use sheaf_lab::run::{self, Options};
use std::path::Path;

/// Text with one space between words: tables in README are aligned.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_claim_stands_word_for_word_in_its_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for check in Claims::builtin().checks {
        for claim in check.claims {
            let text = std::fs::read_to_string(root.join(&claim.file)).unwrap();
            let stands = words(&text).contains(&words(&claim.says));
            assert!(stands, "{} does not say {:?}", claim.file, claim.says);
            assert!(!claim.shows.is_empty(), "{:?} is shown by nothing", claim.says);
        }
    }
}

#[test]
fn every_number_of_a_claim_is_one_that_its_plan_measures() {
    for check in Claims::builtin().checks {
        let plan = Plan::find(&check.plan).unwrap();
        let whole = plan.experiment().points(Engine::Virtual);
        let part = check.quick.as_ref().map(|part| {
            let changes = Changes { points: Some(part.points.clone()), ..Changes::default() };
            let short = plan.changed(Engine::Virtual, &changes).unwrap();
            short.experiment().points(Engine::Virtual)
        });
        let view = plan.experiment().view();
        for number in check.claims.iter().flat_map(|claim| &claim.shows) {
            let Number { of, times, key, at, band, quick } = number;
            let (scenario, treatment) = of.split_once('/').unwrap();
            let has = |points: &[SweepPoint], treatment: &str| {
                points.iter().any(|point| {
                    point.scenario == scenario
                        && point.treatment == treatment
                        && at.is_none_or(|at| point.x == at)
                })
            };
            let name = &check.plan;
            for treatment in [Some(treatment), times.as_deref()].into_iter().flatten() {
                assert!(has(&whole, treatment), "{name} has no {of} at {at:?}");
                let short = part.as_ref().is_some_and(|points| has(points, treatment));
                assert!(quick.is_none() || short, "the part of {name} has no {of} at {at:?}");
            }
            let is_known = match at {
                Some(_) => view.metric(key).is_some(),
                // Places in the sweep stand beside columns.
                None => view
                    .summary
                    .iter()
                    .any(|column| key == &column.key || *key == format!("{}_at", column.key)),
            };
            assert!(is_known, "{name} has no {key}");
            for (least, most) in quick.iter().chain([band]) {
                assert!(least <= most, "{of}, {key}");
            }
        }
    }
}

#[test]
fn a_run_measures_what_its_claims_read_and_has_the_numbers_of_the_whole_sweep() {
    let check = r#"
        plan = "voip-two-hop"
        quick = { points = [1, 2, 12], repetitions = 2, duration = 2 }
        [[claim]]
        file = "README.md"
        says = "twice as many"
        shows = [
            { of = "two-hop/busy", times = "baseline", key = "kau", band = [1, 2], quick = [1, 2] },
            { of = "two-hop/thesis", key = "latency", at = 8, band = [1, 9], quick = [1, 9] },
            { of = "two-hop/forced", key = "latency", at = 4, band = [1, 9] },
        ]
    "#;
    let check: Check = toml::from_str(check).unwrap();
    let tools = Tools { sheaf: "sheaf".into() };
    let read = check.run(Length::Quick, Options::default(), &tools).unwrap();
    let rows: Vec<_> = read.rows.iter().map(|row| (row.treatment.as_str(), row.x)).collect();
    let swept = |treatment| [4.0, 8.0, 48.0].map(|x| (treatment, x));
    let expected = [&swept("baseline")[..], &[("thesis", 8.0)], &swept("busy")].concat();
    assert_eq!(rows, expected);

    let changes = Changes {
        points: Some(vec![1.0, 2.0, 12.0]),
        repetitions: Some(2),
        duration: Some(2.0),
        ..Changes::default()
    };
    let options = Options { changes, ..Options::default() };
    let plan = Plan::find("voip-two-hop").unwrap();
    let whole = run::run(&plan, Engine::Virtual, &options, &tools).unwrap();
    assert_eq!((whole.missing, read.missing), (0, 2 * (whole.rows.len() - rows.len())));
    for row in &read.rows {
        assert!(whole.rows.contains(row), "{}/{} differs", row.treatment, row.x);
    }
    for name in ["two-hop/baseline", "two-hop/busy"] {
        assert_eq!(read.summary[name], whole.summary[name], "{name}");
    }
    // What is read where the network is full takes a sweep without a hole, of its own treatment.
    assert!(read.summary["two-hop/baseline"].contains_key("climbs"));
    assert!(!read.summary["two-hop/thesis"].contains_key("climbs"));
    let numbers = |result| -> Vec<_> {
        let verdicts = check.verdicts(Length::Quick, result);
        verdicts.iter().map(|verdict| verdict.measured.unwrap()).collect()
    };
    assert_eq!(numbers(&read), numbers(&whole));
}

#[test]
fn a_number_outside_its_band_falls_with_the_words_that_claim_it() {
    let claims = Claims::builtin();
    let found = claims.checks.into_iter().find(|check| check.plan == "emulator-rate");
    let mut check = found.unwrap();
    let tools = Tools { sheaf: "sheaf".into() };
    let result = check.run(Length::Quick, Options::default(), &tools).unwrap();
    let hold = check.verdicts(Length::Quick, &result);
    assert!(!hold.is_empty() && hold.iter().all(|verdict| verdict.holds()));
    assert!(!report::verdicts("emulator-rate", &hold).contains('\n'), "one line");
    let number = &mut check.claims[0].shows[0];
    let (least, most) = number.quick.unwrap();
    number.quick = Some((2.0 * least, 2.0 * most));
    // A number that nothing measures does not hold either.
    check.claims[0].shows[1].key = "no-such".into();
    let verdicts = check.verdicts(Length::Quick, &result);
    assert_eq!(verdicts.iter().filter(|verdict| !verdict.holds()).count(), 2);
    let text = report::verdicts("emulator-rate", &verdicts);
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.contains("docs/lab.md says “so 10 Mbit/s carry 9.72 of it”"), "{text}");
    assert!(text.contains("no-such of 10-mbit/sheaf at 20 is nothing"), "{text}");
}
