//! The plans of one emulated link on the virtual engine: what they show, to the nanosecond.

mod runs;

use runs::{run_plan, virtual_run};
use sheaf_lab::experiment::Engine;
use sheaf_lab::plan::Plan;
use sheaf_lab::reproduced::{self, Value};
use sheaf_lab::result::RunResult;
use std::fmt::Write;

/// All numbers but the curves, to five digits.
fn table(result: &RunResult) -> String {
    let mut text = String::new();
    for row in &result.rows {
        let _ = write!(text, "{} {} {}:", row.scenario, row.treatment, row.x);
        for metric in &result.view.metrics {
            if let Some(value) = row.get(&metric.key) {
                let _ = write!(text, " {} {value:.5}", metric.key);
            }
        }
        text.push('\n');
    }
    text
}

fn number(result: &RunResult, scenario: &str, treatment: &str, x: f64, key: &str) -> f64 {
    let row = result.sweep(scenario, treatment).into_iter().find(|row| row.x == x);
    row.and_then(|row| row.get(key)).unwrap_or_else(|| panic!("no {key} of {treatment} at {x}"))
}

#[test]
fn a_link_keeps_its_rate_at_every_delay_without_a_byte_too_many() {
    let result = virtual_run("emulator-rate", &[0.0, 100.0], 5.0);
    for row in &result.rows {
        let burst = row.get("burst").unwrap();
        match row.treatment.as_str() {
            // A bucket of 1540 bytes holds 28 beside a packet.
            "tbf" => assert!(burst <= 28.0, "{row:?}"),
            _ => assert_eq!(burst, 0.0, "{row:?}"),
        }
        let error = row.get("error").unwrap().abs();
        assert!(error < if row.treatment == "tbf" { 0.01 } else { 0.0001 }, "{row:?}");
    }
    let is_rate = |value: &&Value| value.key == "datagrams";
    let values = reproduced::values(&result);
    for value in values.iter().filter(is_rate).filter(|value| value.ours.is_some()) {
        assert!((0.98..1.02).contains(&value.ratio().unwrap()), "{value:?}");
    }
    // Two treatments at 1.5 Mbit/s, three at 10 and 100.
    assert_eq!(result.rows.len(), 2 * (2 + 3 + 3));
    insta::assert_snapshot!(table(&result));
}

#[test]
fn a_link_that_keeps_its_rate_has_a_straight_line_over_time() {
    let result = virtual_run("emulator-rate", &[100.0], 5.0);
    let here = |name: &str, treatment: &str| {
        let found = result.series.iter().find(|curve| {
            (curve.scenario.as_str(), curve.treatment.as_str(), curve.series.name.as_str())
                == ("100-mbit", treatment, name)
        });
        found.unwrap_or_else(|| panic!("no {name:?} of {treatment}")).series.points.clone()
    };
    let received = number(&result, "100-mbit", "sheaf", 100.0, "datagrams");
    for name in ["Rate received over time", "Rate of each 40 packets over time"] {
        let points = here(name, "sheaf");
        assert!(points.len() >= 190, "{name}: {} points", points.len());
        assert!(points.iter().all(|(_, rate)| (rate / received - 1.0).abs() < 1e-4), "{name}");
    }
    let shares = here("Rate of each 40 packets", "sheaf");
    assert_eq!(shares.last().unwrap().1, 1.0);
}

#[test]
fn pings_take_the_round_trip_set_and_with_two_queues_their_time_at_the_rate() {
    let text = include_str!("../../../plans/emulator-latency.toml");
    let replies = text.lines().find(|line| line.starts_with("replies")).unwrap();
    let plan = Plan::parse(&text.replacen(replies, "", 1), "emulator-latency").unwrap();
    let result = run_plan(&plan, Engine::Virtual, &[20.0, 100.0], 10.0);
    for x in [20.0, 100.0] {
        let ping = |treatment, key| number(&result, "ping", treatment, x, key);
        assert_eq!(ping("tbf", "rtt_mean"), x, "the bucket is full");
        // 98 bytes at 10 Mbit/s, there and back: the thesis' means differ by 0.157 and 0.125 ms.
        let sending = 2.0 * 98.0 * 8.0 / 10e3;
        assert!((ping("sheaf", "rtt_mean") - x - sending).abs() < 1e-6);
        assert_eq!((ping("sheaf", "early"), ping("sheaf", "sent")), (0.0, 1000.0));
    }
}

#[test]
fn a_host_that_replies_as_the_thesis_has_it_takes_its_time_beyond_the_link() {
    let result = virtual_run("emulator-latency", &[20.0, 100.0], 10.0);
    let bare = |key| number(&result, "bare-path", "bare", 0.0, key);
    assert!((bare("rtt_min") - 0.124).abs() < 0.001);
    assert!((10.1..10.3).contains(&bare("rtt_max")), "{}", bare("rtt_max"));
    for x in [20.0, 100.0] {
        for (treatment, sending) in [("tbf", 0.0), ("sheaf", 0.1568)] {
            let least = number(&result, "ping", treatment, x, "rtt_min");
            assert!((least - x - sending - bare("rtt_min")).abs() < 0.001, "{treatment}: {least}");
        }
    }
    assert!(result.view.notes.contains("prove nothing about a machine"));
    insta::assert_snapshot!(table(&result));
}

#[test]
fn packets_under_way_fill_no_buffer_so_more_is_under_way_and_drops_come_later() {
    let result = virtual_run("emulator-tcp", &[20.0, 100.0], 10.0);
    for x in [20.0, 100.0] {
        for one in ["single", "tbf"] {
            let tcp = |treatment, key| number(&result, "tcp-10-mbit", treatment, x, key);
            // A full queue of rate × RTT, and half of that under way to the receiver.
            let more = tcp("sheaf", "in_flight") / tcp(one, "in_flight");
            assert!((1.4..1.6).contains(&more), "{more}");
            assert!(tcp("sheaf", "first_repeat") > tcp(one, "first_repeat"));
            // Figure 4.6.
            assert!(tcp("sheaf", "rtt_mean") > tcp(one, "rtt_mean"));
            assert!(tcp("sheaf", "rtt_max") > tcp(one, "rtt_max"));
        }
    }
    assert!(result.answer.contains("with one in 4 of 4 comparisons"), "{}", result.answer);
    // One queue of rate × RTT / 1498 packets: 84 at 100 ms.
    let most = number(&result, "tcp-10-mbit", "single", 100.0, "in_flight");
    assert_eq!(most.round(), (84.0f64 * 1.448).round());
    insta::assert_snapshot!(table(&result));
}

#[test]
fn a_plan_that_no_link_can_have_is_refused_with_its_line() {
    let plan = Plan::find("emulator-rate").unwrap().to_toml().unwrap();
    let broken = |from: &str, to: &str| {
        assert!(plan.contains(from), "{from}");
        Plan::parse(&plan.replacen(from, to, 1), "my.toml").unwrap_err().to_string()
    };
    let line = 1 + plan.lines().position(|line| line == "rate = 10.0").unwrap();
    let rate = broken("rate = 10.0", "rate = -10.0");
    assert!(rate.starts_with(&format!("my.toml:{line}: scenario 10-mbit: rate")), "{rate}");
    let test = broken("test = \"udp\"", "test = \"upd\"");
    assert!(test.contains("unknown variant `upd`") && test.contains("`udp`"), "{test}");
    for huge in ["rate = 1e300", "rate = nan", "rate = 10.0\nlimit = 0"] {
        let message = broken("rate = 10.0", huge);
        let at = message.starts_with("my.toml:") && message.contains("scenario 10-mbit");
        assert!(at, "{huge}: {message}");
    }
    let points = broken("points = [0.0", "points = [1e300");
    assert!(points.contains("is not a round-trip time"), "{points}");
    let quick = broken("netns_duration = 3", "netns_duration = -3");
    assert!(quick.contains("netns_duration"), "{quick}");
    let treatment = broken("\"sheaf\"]", "\"shaef\"]");
    assert!(treatment.contains("no treatment \"shaef\""), "{treatment}");
    let burst = broken("burst = 3028", "burst = 1000");
    assert!(burst.contains("less than a frame; give burst = 1514 or more"), "{burst}");
    let burst = broken("shaper = \"tbf\"", "shaper = \"tbf\"\nburst = 3028");
    assert!(burst.contains("burst of tbf is for shaper"), "{burst}");
    let loss = broken("rate = 10.0", "rate = 10.0\nloss = 1.0");
    assert!(loss.contains("tbf has a rate and no loss"), "{loss}");
    let overhead = broken("rate = 10.0", "rate = 10.0\noverhead = 27");
    assert!(overhead.contains("give overhead = 26 at most"), "{overhead}");
}
