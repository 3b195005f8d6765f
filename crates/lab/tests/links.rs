//! The plans of one emulated link on the virtual engine: what they show, to the nanosecond.

mod runs;

use runs::virtual_run;
use sheaf_lab::plan::Plan;
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
    for row in result.rows.iter().filter(|row| row.treatment == "sheaf") {
        assert!(row.get("error").unwrap().abs() < 0.0001, "{row:?}");
        assert_eq!(row.get("burst"), Some(0.0), "{row:?}");
    }
    assert_eq!(result.rows.len(), 12);
    insta::assert_snapshot!(table(&result));
}

#[test]
fn packets_under_way_fill_no_buffer_so_more_is_under_way_and_drops_come_later() {
    let result = virtual_run("emulator-latency", &[20.0, 100.0], 10.0);
    for x in [20.0, 100.0] {
        let tcp = |treatment, key| number(&result, "tcp-10-mbit", treatment, x, key);
        // A full queue of rate × RTT, and half of that under way to the receiver.
        let more = tcp("sheaf", "in_flight") / tcp("single", "in_flight");
        assert!((1.4..1.6).contains(&more), "{more}");
        assert!(tcp("sheaf", "first_repeat") > tcp("single", "first_repeat"));
        assert_eq!(number(&result, "ping", "sheaf", x, "rtt_mean"), x);
        assert_eq!(number(&result, "ping", "sheaf", x, "early"), 0.0);
    }
    // One queue of rate × RTT / 1498 packets: 83 at 100 ms.
    let most = number(&result, "tcp-10-mbit", "single", 100.0, "in_flight");
    assert_eq!(most.round(), (83.0f64 * 1.448).round());
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
}
