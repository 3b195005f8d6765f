//! The plan of a station that walks away from its router and back, on the virtual engine.

mod runs;

use runs::{run_plan, virtual_run};
use sheaf_lab::experiment::Engine;
use sheaf_lab::plan::Plan;
use sheaf_lab::result::RunResult;
use std::fmt::Write;

/// Seconds of the whole walk.
const WALK: f64 = 180.0;

fn number(result: &RunResult, scenario: &str, treatment: &str, key: &str) -> f64 {
    let rows = result.sweep(scenario, treatment);
    let [row] = rows[..] else { panic!("one point of {treatment}") };
    row.get(key).unwrap_or_else(|| panic!("no {key} of {treatment}"))
}

#[test]
fn a_walk_with_sixteen_flows_comes_out_as_it_did() {
    let result = virtual_run("voip-mobile", &[8.0], WALK);
    let mut text = String::new();
    for row in &result.rows {
        let get = |key: &str| row.get(key).unwrap_or_else(|| panic!("no {key} in {row:?}"));
        let _ = writeln!(
            text,
            "{} {} {}: kau {} r70 {}, in all {} and {}, loss {:.3} % latency {:.3} ms, {:.2} a \
             frame, least {} bytes, frame errors {:.2} %, worst {:.2} %, lost {:.2} %, worst \
             {:.2} %, late {:.1} and {:.1} s",
            row.scenario,
            row.treatment,
            row.x,
            get("kau"),
            get("r70"),
            get("kau_throughout"),
            get("r70_throughout"),
            get("loss"),
            get("latency"),
            get("packets_per_frame"),
            get("least_size"),
            get("frame_errors"),
            get("frame_errors_worst"),
            get("frame_loss"),
            get("frame_loss_worst"),
            get("late_shrink"),
            get("late_grow"),
        );
    }
    insta::assert_snapshot!(text);
    let again = virtual_run("voip-mobile", &[8.0], WALK);
    let json = |result: &RunResult| serde_json::to_string(&result.rows).unwrap();
    assert_eq!(json(&result), json(&again), "the same seed gives the same bytes");
}

#[test]
fn sixteen_calls_are_good_over_the_walk_in_frames_that_follow_the_link_and_in_no_fixed_ones() {
    let result = virtual_run("voip-mobile", &[8.0], WALK);
    let get = |treatment, key| number(&result, "walk", treatment, key);
    assert_eq!(get("auto", "r70"), 16.0);
    for fixed in ["500", "1500"] {
        assert_eq!((get(fixed, "r70"), get(fixed, "kau_throughout")), (0.0, 0.0), "{fixed}");
        assert!(get(fixed, "frame_errors_worst") > 20.0, "{fixed}");
    }
    assert!(get("auto", "frame_loss") < 3.0, "the target");
    // Beside the router its frames are as large as the fixed ones: as many calls fit in.
    let near = virtual_run("voip-mobile", &[33.0], 20.0);
    let near = |treatment| number(&near, "walk", treatment, "kau_throughout");
    assert_eq!((near("auto"), near("1500"), near("500")), (66.0, 66.0, 0.0));
}

#[test]
fn sizes_follow_a_link_that_changes_at_once_within_five_seconds() {
    let result = virtual_run("voip-mobile", &[8.0], WALK);
    let get = |treatment, key| number(&result, "corner", treatment, key);
    assert!(get("auto", "late_shrink") < 5.0 && get("auto", "late_grow") < 5.0);
    assert_eq!(get("1500", "late_shrink"), 40.0, "both times behind the house");
    assert_eq!(get("500", "late_grow"), 40.0, "both times before it");
    let curves = result.series.iter().filter(|curve| curve.treatment == "auto");
    let sizes = curves.filter(|curve| curve.series.name.starts_with("Size to the station"));
    let sizes: Vec<_> = sizes.filter(|curve| curve.scenario == "corner").collect();
    let [sizes] = sizes[..] else { panic!("one curve") };
    let at = |second: usize| sizes.series.points[second].1;
    assert_eq!((at(35), at(110), at(170)), (1500.0, 1500.0, 1500.0));
    assert!(at(60) < 400.0 && at(140) < 400.0, "{} and {}", at(60), at(140));
}

#[test]
fn a_walk_that_cannot_be_is_refused_at_its_line_with_the_remedy() {
    let text = include_str!("../../../plans/voip-mobile.toml");
    let refused = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        Plan::parse(&text.replacen(from, to, 1), "my.toml").unwrap_err().to_string()
    };
    let line = 1 + text.lines().position(|line| line == "[scenario.walk]").unwrap();
    let fault = refused("[132, 95]", "[2, 95]");
    assert!(fault.starts_with(&format!("my.toml:{line}: ")), "{fault}");
    assert!(fault.contains("in the order of their times"), "{fault}");
    for (from, to, remedy) in [
        ("station = \"station\"", "station = \"nobody\"", "unknown node"),
        ("attempts = 2", "attempts = 2\nber = 3", "walk decides the bit errors"),
        ("rate = 2", "rate = 3", "give one of 802.11a, b or g"),
        ("max = \"auto\"", "max = \"automatic\"", "max needs bytes, \"auto\" or \"known\""),
        ("max = \"auto\"", "max = \"auto\"\nmode = \"end\"", "remove mode, or give bytes"),
        ("min = \"100%\"", "min = \"101%\"", "min needs bytes, or a share"),
    ] {
        let fault = refused(from, to);
        assert!(fault.contains(remedy), "{fault}");
    }
    let two_hop = include_str!("../../../plans/voip-two-hop.toml");
    let auto = two_hop.replacen("policy = \"busy\"", "policy = \"busy\"\nmax = \"auto\"", 1);
    let fault = Plan::parse(&auto, "my.toml").unwrap_err().to_string();
    assert!(fault.contains("add [scenario.walk]"), "{fault}");
}

#[test]
fn a_share_of_the_largest_frame_is_that_many_bytes() {
    let text = include_str!("../../../plans/voip-mobile.toml");
    let rows = |min: &str| {
        let plan = Plan::parse(&text.replace("min = \"100%\"", min), "my.toml").unwrap();
        assert!(plan.experiment().points(Engine::Netns).is_empty());
        let result = run_plan(&plan, Engine::Virtual, &[4.0], 10.0);
        let fixed = result.rows.iter().filter(|row| row.treatment == "500");
        serde_json::to_string(&fixed.collect::<Vec<_>>()).unwrap()
    };
    assert_eq!(rows("min = \"50%\""), rows("min = 250"));
    assert_ne!(rows("min = \"50%\""), rows("min = \"100%\""));
}
