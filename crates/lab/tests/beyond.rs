//! The plans of calls beyond the published works: aggregation in the MAC, meshes of which half is
//! upgraded, and streams to groups.

mod runs;

use runs::virtual_run;
use sheaf_lab::measured::Row;
use sheaf_lab::plan::Plan;
use sheaf_lab::result::RunResult;
use std::fmt::Write;

fn number(row: &Row, key: &str) -> f64 {
    row.get(key).unwrap_or_else(|| panic!("no {key} in {row:?}"))
}

fn get(result: &RunResult, scenario: &str, treatment: &str, x: f64, key: &str) -> f64 {
    let is_here = |row: &&Row| row.scenario == scenario && row.treatment == treatment && row.x == x;
    number(result.rows.iter().find(is_here).expect("the point was run"), key)
}

/// The rows as a table of what does not depend on the last digits of floating-point functions.
fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let Row { scenario, treatment, x, .. } = row;
        let _ = writeln!(
            text,
            "{scenario} {treatment} {x}: kau {} of {} packets, loss {:.3} % latency {:.3} ms, \
             {:.2} packets a frame, {:.2} frames a transmission, {} dropped, {} unsplit",
            number(row, "kau"),
            number(row, "sent"),
            number(row, "loss"),
            number(row, "latency"),
            number(row, "packets_per_frame"),
            number(row, "frames_per_transmission"),
            number(row, "queue_drops"),
            number(row, "unsplit")
        );
    }
    text
}

#[test]
fn short_sweeps_of_the_plans_beyond_the_works_come_out_as_they_did() {
    let ampdu = virtual_run("voip-ampdu", &[15.0, 35.0], 5.0);
    let mixed = virtual_run("voip-mixed", &[1.0, 2.0], 10.0);
    let group = virtual_run("voip-group", &[8.0, 12.0], 2.0);
    let rows = [ampdu.rows, mixed.rows, group.rows].concat();
    insta::assert_snapshot!(table(&rows));
}

#[test]
fn aggregation_in_ip_carries_more_than_in_the_mac_and_both_at_a_fast_rate_the_most() {
    // 160 and 900 flows in all.
    let result = virtual_run("voip-ampdu", &[40.0, 225.0], 8.0);
    let kau = |scenario, treatment, x| get(&result, scenario, treatment, x, "kau");
    assert_eq!(kau("mcs-0", "baseline", 160.0), 0.0);
    assert!(kau("mcs-0", "mac", 160.0) < 80.0);
    assert_eq!(kau("mcs-0", "ip", 160.0), 160.0);
    assert_eq!((kau("mcs-3", "baseline", 900.0), kau("mcs-3", "mac", 900.0)), (0.0, 0.0));
    assert!(kau("mcs-3", "ip", 900.0) < 450.0 && kau("mcs-3", "both", 900.0) > 800.0);
    let together = |treatment| get(&result, "mcs-3", treatment, 900.0, "frames_per_transmission");
    assert!(together("mac") > 30.0 && together("both") > 1.2, "what waits shares a transmission");
    assert_eq!((together("baseline"), together("ip")), (1.0, 1.0));
}

#[test]
fn no_meta_packet_reaches_a_router_that_cannot_split_and_some_upgraded_ones_harm_nobody() {
    let result = virtual_run("voip-mixed", &[1.0, 2.0], 30.0);
    for x in [16.0, 32.0] {
        let of = |treatment, key| get(&result, "grid", treatment, x, key);
        for treatment in ["baseline", "half", "checkered", "all"] {
            assert_eq!(of(treatment, "unsplit"), 0.0, "{treatment} {x}");
        }
        assert!(of("blind", "unsplit") > 0.0, "one that does not ask is taken for granted");
        assert!(
            of("half", "kau") >= of("baseline", "kau") && of("all", "kau") >= of("half", "kau")
        );
        // Where no two upgraded routers are neighbours, all is as it was.
        for key in ["kau", "loss", "latency", "jitter", "air_busy", "queue_drops"] {
            assert_eq!(of("checkered", key), of("baseline", key), "{key} at {x}");
        }
    }
    assert!(get(&result, "grid", "half", 32.0, "packets_per_frame") > 2.0, "they do gather");
}

#[test]
fn gathered_streams_to_groups_are_more_than_twice_as_many() {
    // 72, 80, 176 and 224 streams in all.
    let result = virtual_run("voip-group", &[9.0, 10.0, 22.0, 28.0], 4.0);
    let of = |treatment, x, key| get(&result, "access-point", treatment, x, key);
    assert_eq!((of("baseline", 72.0, "kau"), of("busy", 224.0, "kau")), (72.0, 224.0));
    assert!(of("baseline", 80.0, "kau") < 80.0, "the channel is full");
    assert_eq!(of("forced", 176.0, "kau"), 176.0);
    assert_eq!(of("busy", 224.0, "reordered"), 0.0);
    assert_eq!(of("busy", 224.0, "retries"), 0.0, "nothing is acknowledged");
}

#[test]
fn keys_that_do_not_go_together_are_refused_with_the_remedy() {
    let plan = |name| match name {
        "ampdu" => include_str!("../../../plans/voip-ampdu.toml"),
        "mixed" => include_str!("../../../plans/voip-mixed.toml"),
        _ => include_str!("../../../plans/voip-group.toml"),
    };
    for (name, from, to, remedy) in [
        ("ampdu", "phy = \"ht\"\nrate = 6.5", "phy = \"ofdm\"\nrate = 6", "an A-MPDU takes HT"),
        ("ampdu", "rate = 6.5", "rate = 7.2", "give a rate of its physical layer"),
        ("mixed", "[\"A1\", \"A2\", \"B1\", \"B2\"]", "[\"Z9\"]", "unknown node \"Z9\""),
        ("mixed", "policy = \"busy\"\nupgraded", "upgraded", "add policy"),
        ("mixed", "upgraded = [\"A1\", \"A2\", \"B1\", \"B2\"]\nblind", "blind", "add upgraded"),
        ("group", "[\"AP\", \"S1\"], [\"AP\", \"S2\"]", "[\"S1\", \"S2\"]", "add a link"),
        ("group", "group = true", "group = true\ndevice = 1", "no device"),
    ] {
        let text = plan(name);
        assert!(text.contains(from), "{from}");
        let fault = Plan::parse(&text.replacen(from, to, 1), "my.toml").unwrap_err().to_string();
        assert!(fault.contains(remedy), "{fault}");
    }
    let short =
        plan("ampdu").replacen("phy = \"ht\"\nrate = 6.5", "phy = \"ht-short\"\nrate = 7.2", 1);
    assert!(Plan::parse(&short, "my.toml").is_ok());
}
