//! The built-in plans: what they show, to the packet, on the virtual engine, and that the netns
//! engine shows the same.

use sheaf_lab::plan::Plan;
use sheaf_lab::report::{Row, RunResult};
use sheaf_lab::run::{self, Options};
use std::fmt::Write;

fn virtual_run(plan: &str, flows: &[u32], duration: f64) -> RunResult {
    let options = Options {
        flows: Some(flows.to_vec()),
        duration: Some(duration),
        seed: Some(1),
        ..Options::default()
    };
    run::run_virtual(&Plan::find(plan).unwrap(), &options).unwrap()
}

/// The rows as a table of what does not depend on the last digits of floating-point functions.
fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let Row { scenario, treatment, flows, kau, uwc, r70, sent, .. } = row;
        let _ = writeln!(
            text,
            "{scenario} {treatment} {flows}: kau {kau} uwc {uwc} r70 {r70}, sent {sent} loss {:.3} % \
             latency {:.3} ms, {:.2} a frame, {} + {} dropped",
            row.loss, row.latency, row.packets_per_frame, row.queue_drops, row.aggregator_drops
        );
    }
    text
}

fn row<'a>(result: &'a RunResult, treatment: &str, flows: u32) -> &'a Row {
    let found = result.rows.iter().find(|row| row.treatment == treatment && row.flows == flows);
    found.expect("the point was run")
}

#[test]
fn a_short_sweep_of_voip_two_hop_comes_out_as_it_did() {
    let result = virtual_run("voip-two-hop", &[1, 4, 10, 20], 20.0);
    insta::assert_snapshot!(table(&result.rows));
    let again = virtual_run("voip-two-hop", &[1, 4, 10, 20], 20.0);
    let json = |result: &RunResult| serde_json::to_string(&result.rows).unwrap();
    assert_eq!(json(&result), json(&again), "the same seed gives the same bytes");
}

#[test]
fn a_short_sweep_of_voip_hop_vs_end_comes_out_as_it_did() {
    let result = virtual_run("voip-hop-vs-end", &[2, 10], 10.0);
    insta::assert_snapshot!(table(&result.rows));
}

#[test]
fn busy_carries_more_than_forced_and_forced_more_than_nothing_and_busy_costs_no_delay() {
    let result = virtual_run("voip-two-hop", &[1, 9, 18], 60.0);
    // 4, 36 and 72 flows in all.
    let kau = |treatment, flows| row(&result, treatment, flows).kau;
    assert!(kau("baseline", 36) < 20, "nothing carries 36 without aggregation");
    assert_eq!(kau("forced", 36), 36);
    assert_eq!(kau("busy", 72), 72);
    assert!(kau("forced", 72) < 72);
    let added = row(&result, "busy", 4).latency - row(&result, "baseline", 4).latency;
    assert!(added < 1.0, "busy adds {added} ms to an idle channel");
}

#[test]
fn on_real_stacks_two_flows_a_direction_arrive_whole_with_every_treatment() {
    let plan = Plan::find("voip-two-hop").unwrap();
    let options =
        Options { flows: Some(vec![2]), duration: Some(4.0), seed: Some(1), ..Options::default() };
    let result = run::run_netns(&plan, &options).unwrap();
    assert_eq!(result.rows.len(), 3);
    for row in &result.rows {
        assert!(row.sent > 300, "{row:?}");
        assert!(row.loss < 1.0, "{row:?}");
        assert_eq!(row.reordered, 0, "{row:?}");
    }
}
