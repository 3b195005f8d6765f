//! The built-in plans: what they show, to the packet, on the virtual engine, and that the netns
//! engine shows the same.

mod runs;

use runs::{run, virtual_run};
use sheaf_lab::experiment::{Engine, Experiment, Tools};
use sheaf_lab::measured::{Row, SweepPoint};
use sheaf_lab::median::Median;
use sheaf_lab::plan::{Changes, Plan};
use sheaf_lab::report;
use sheaf_lab::result::{Curve, RunResult};
use sheaf_lab::run::{self, Options};
use sheaf_medium::{Config, Phy, air_time};
use sheaf_stage::Bitrate;
use std::fmt::Write;

/// A number that was measured.
fn number(row: &Row, key: &str) -> f64 {
    row.get(key).unwrap_or_else(|| panic!("no {key} in {row:?}"))
}

/// The rows as a table of what does not depend on the last digits of floating-point functions.
fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let Row { scenario, treatment, x, .. } = row;
        let [kau, uwc, r70, sent] = ["kau", "uwc", "r70", "sent"].map(|key| number(row, key));
        let _ = writeln!(
            text,
            "{scenario} {treatment} {x}: kau {kau} uwc {uwc} r70 {r70}, sent {sent} loss {:.3} % \
             latency {:.3} ms, {:.2} a frame, {} dropped, {} over the bound",
            number(row, "loss"),
            number(row, "latency"),
            number(row, "packets_per_frame"),
            number(row, "queue_drops"),
            number(row, "over_bound")
        );
    }
    text
}

fn row<'a>(result: &'a RunResult, treatment: &str, x: f64) -> &'a Row {
    let found = result.rows.iter().find(|row| row.treatment == treatment && row.x == x);
    found.expect("the point was run")
}

#[test]
fn a_short_sweep_of_voip_two_hop_comes_out_as_it_did() {
    let result = virtual_run("voip-two-hop", &[1.0, 4.0, 10.0, 20.0], 20.0);
    insta::assert_snapshot!(table(&result.rows));
    let again = virtual_run("voip-two-hop", &[1.0, 4.0, 10.0, 20.0], 20.0);
    let json = |result: &RunResult| serde_json::to_string(&result.rows).unwrap();
    assert_eq!(json(&result), json(&again), "the same seed gives the same bytes");
}

#[test]
fn a_short_sweep_of_voip_hop_vs_end_comes_out_as_it_did() {
    let result = virtual_run("voip-hop-vs-end", &[2.0, 10.0], 10.0);
    insta::assert_snapshot!(table(&result.rows));
}

#[test]
fn busy_carries_more_than_forced_and_forced_more_than_nothing_and_busy_costs_no_delay() {
    let result = virtual_run("voip-two-hop", &[1.0, 9.0, 18.0], 60.0);
    // 4, 36 and 72 flows in all.
    let kau = |treatment, flows| number(row(&result, treatment, flows), "kau");
    assert!(kau("baseline", 36.0) < 20.0, "nothing carries 36 without aggregation");
    assert_eq!(kau("forced", 36.0), 36.0);
    assert_eq!(kau("busy", 72.0), 72.0);
    assert!(kau("forced", 72.0) < 72.0);
    let latency = |treatment| number(row(&result, treatment, 4.0), "latency");
    let added = latency("busy") - latency("baseline");
    assert!(added < 1.0, "busy adds {added} ms to an idle channel");
    let busy = result.summary("two-hop", "busy", "kau").unwrap();
    assert_eq!((busy.value, busy.to), (72.0, f64::INFINITY), "the sweep ends at 72");
}

#[test]
fn full_frames_and_compressed_headers_carry_twice_as_many_calls() {
    let result = virtual_run("voip-compressed", &[1.0, 7.0, 8.0, 34.0, 84.0], 20.0);
    let found = |scenario: &str, treatment: &str, flows| {
        let mut rows = result.rows.iter().filter(|row| row.scenario == scenario);
        let row = rows.find(|row| row.treatment == treatment && row.x == flows);
        row.expect("the point was run")
    };
    let kau = |scenario, treatment, flows| number(found(scenario, treatment, flows), "kau");
    // Bare meta packets carry up to 80 at 2 Mbit/s; 1.6 times that are 128.
    assert_eq!((kau("2-mbit", "meta", 136.0), kau("2-mbit", "compressed", 136.0)), (0.0, 136.0));
    // Alone, packets of up to 28 calls pass at 11 Mbit/s; twelve times that are 336.
    assert!(kau("11-mbit", "baseline", 32.0) < 28.0);
    assert_eq!(kau("11-mbit", "compressed", 336.0), 336.0);
    for scenario in ["2-mbit", "11-mbit"] {
        let latency = |treatment| number(found(scenario, treatment, 4.0), "latency");
        let added = latency("compressed") - latency("baseline");
        assert!(added < 0.1, "compressed headers add {added} ms to an idle channel");
        assert_eq!(number(found(scenario, "compressed", 4.0), "loss"), 0.0);
    }
}

#[test]
fn the_thesis_own_qdisc_begins_to_lose_packets_where_the_thesis_says() {
    let result = virtual_run("voip-two-hop", &[1.0, 12.0, 14.0, 17.0], 60.0);
    // Graph 2: latency climbs from 54 flows on; the timeout is waited for on both hops before. None
    // is supported at 68.
    let thesis = |key, flows| number(row(&result, "thesis", flows), key);
    assert!((10.0..15.0).contains(&thesis("latency", 4.0)));
    assert!(thesis("loss", 48.0) < 1.0 && thesis("loss", 56.0) > 1.0, "the knee");
    assert_eq!((thesis("kau", 48.0), thesis("kau", 68.0)), (48.0, 0.0));
}

#[test]
fn a_published_system_runs_in_virtual_time_alone() {
    let plan = Plan::find("voip-two-hop").unwrap();
    let has = |engine| {
        let points = plan.experiment().points(engine);
        points.iter().any(|point| point.treatment == "thesis")
    };
    assert!(has(Engine::Virtual) && !has(Engine::Netns));
    let text =
        plan.to_toml().unwrap().replacen("policy = \"kau\"", "policy = \"kau\"\nhold = 9", 1);
    let fault = Plan::parse(&text, "my.toml").unwrap_err().to_string();
    assert!(fault.contains("policy kau has mode, min, max and timeout"), "{fault}");
}

#[test]
fn a_plan_of_which_nothing_runs_on_an_engine_is_refused_with_the_other() {
    let plan = Plan::find("voip-karlstad").unwrap();
    let tools = Tools { sheaf: "sheaf".into() };
    let refused = run::run(&plan, Engine::Netns, &Options::default(), &tools);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("runs on engine netns; give --engine virtual"), "{refused}");
}

#[test]
fn coarse_points_give_brackets_and_no_ratio_that_a_dense_sweep_would_not_give() {
    let result = virtual_run("voip-two-hop", &[4.0, 19.0, 20.0, 21.0], 20.0);
    let [baseline, busy] =
        ["baseline", "busy"].map(|name| result.summary("two-hop", name, "kau").unwrap());
    assert_eq!((baseline.value, baseline.to), (16.0, 75.0), "nothing was measured up to 76");
    assert!(busy.value >= 76.0);
    // A dense sweep says 4.2 times.
    let gain = busy.over(&baseline);
    assert!(gain.value < 1.1 && gain.to > 4.2, "{gain:?}");
    assert!(result.answer.contains("16 to 75 supported flows"), "{}", result.answer);
    assert!(result.answer.contains("too few points for one number"), "{}", result.answer);
    assert!(report::table(&result).contains("16 to 75"), "{}", report::table(&result));
}

/// The error of the karlstad plan when `from` becomes `to`.
fn refused(from: &str, to: &str) -> String {
    let text = include_str!("../../../plans/voip-karlstad.toml");
    assert!(text.contains(from), "{from}");
    Plan::parse(&text.replacen(from, to, 1), "my.toml").unwrap_err().to_string()
}

#[test]
fn an_impossible_test_bed_is_refused_at_its_line_with_the_remedy() {
    let text = include_str!("../../../plans/voip-karlstad.toml");
    let line = |key: &str| 1 + text.lines().position(|line| line.starts_with(key)).unwrap();
    for (from, to, remedy) in [
        ("device = 1", "device = 0", "give at least 1 packet"),
        ("ber = 20", "ber = -1", "give millionths"),
        ("hello_loss = 44", "hello_loss = 100", "give per cent, 0 to below 100"),
    ] {
        let key = from.split(' ').next().unwrap();
        let fault = refused(from, to);
        assert!(fault.starts_with(&format!("my.toml:{}: ", line(key))), "{fault}");
        assert!(fault.contains(remedy), "{fault}");
    }
    assert!(refused("ber = 20", "loss = 100").contains("loss = 100; give per cent"));
    assert!(refused("ber = 20", "attempts = 0").contains("attempts = 0; give at least 1"));
    let ours = refused("policy = \"kau\"\nmin = 500\n", "policy = \"forced\"\nmin = 500\n");
    assert!(ours.contains("use policy kau, or static routes"), "{ours}");
    assert!(refused("routes = \"aodv\"", "").contains("add routes = \"aodv\""));
}

#[test]
fn more_depth_in_the_device_takes_packets_away_from_the_qdisc_that_could_share_a_frame() {
    let per_frame = |device: &str| {
        let text = include_str!("../../../plans/voip-karlstad.toml");
        let text = text.replacen("device = 1", device, 1).replacen("44", "0", 1);
        let changes = Changes {
            points: Some(vec![10.0]),
            duration: Some(20.0),
            repetitions: Some(1),
            ..Changes::default()
        };
        let plan = Plan::parse(&text, "deep").unwrap();
        let plan = plan.changed(Engine::Virtual, &changes).unwrap();
        let tools = Tools { sheaf: "sheaf".into() };
        let sweep_point = SweepPoint::new("2-mbit", "thesis", 40.0, 20.0);
        let measured = plan.experiment().measure(&sweep_point, Engine::Virtual, &tools).unwrap();
        let row = Row::new(&sweep_point, &[&measured]);
        let [ratio, average, frames, aggregated, alone] = [
            "packets_per_frame",
            "average_aggregation",
            "net_total",
            "net_aggregated",
            "net_alone",
        ]
        .map(|key| number(&row, key));
        assert!(average >= ratio, "lone packets lower the ratio alone");
        assert!((frames - aggregated - alone).abs() < 1e-9);
        ratio
    };
    let (one, deep) = (per_frame("device = 1"), per_frame("device = 50"));
    assert!(one > 1.05 * deep, "{one} packets a frame over one place, {deep} over fifty");
}

#[test]
fn karlstads_knees_and_lost_routes_are_where_the_thesis_has_them() {
    let result = virtual_run("voip-karlstad", &[1.0, 6.0, 12.0, 13.0, 17.0], 60.0);
    let get = |treatment, flows, key| {
        let here =
            |row: &&Row| row.scenario == "2-mbit" && row.treatment == treatment && row.x == flows;
        number(result.rows.iter().find(here).unwrap(), key)
    };
    // Graph 2: the latency leaves the ground at 24 and 54 injected.
    assert!(get("baseline", 24.0, "latency") < 150.0 && get("baseline", 48.0, "latency") > 1000.0);
    assert!(get("thesis", 52.0, "latency") < 75.0 && get("thesis", 68.0, "latency") > 150.0);
    assert_eq!(get("baseline", 48.0, "kau"), 0.0);
    assert_eq!(get("thesis", 68.0, "kau"), 0.0);
    // Below the knee it is lost routes that cost packets.
    assert!(get("thesis", 24.0, "unrouted") > 0.0);
    let over_time = |at: f64| {
        let is_here = |curve: &&Curve| {
            curve.scenario == "2-mbit" && curve.treatment == "thesis" && curve.at == at
        };
        result.series.iter().find(is_here).map(|curve| curve.series.points.len())
    };
    assert_eq!(over_time(52.0), Some(60), "graph 6, second by second");
}

#[test]
fn the_ends_of_a_pair_take_turns_and_a_row_is_supported_whole() {
    let result = virtual_run("voip-hop-vs-end", &[5.0, 10.0, 15.0, 20.0], 20.0);
    let four = |treatment, flows, key| {
        let here = |row: &&Row| {
            row.scenario == "four-nodes" && row.treatment == treatment && row.x == flows
        };
        number(result.rows.iter().find(here).unwrap(), key)
    };
    // 50 packets a second of each flow, in the warm-up and its own turn of 20 s.
    assert_eq!(four("baseline", 20.0, "sent"), 20.0 * 20.0 * 50.0);
    assert_eq!(four("baseline", 20.0, "uwc_row"), 20.0);
    assert_eq!(four("baseline", 40.0, "uwc_row"), 0.0);
    assert_eq!((four("thesis", 60.0, "uwc_row"), four("thesis", 80.0, "uwc_row")), (60.0, 0.0));
}

#[test]
fn blocked_senders_lose_nothing_in_their_own_queue_and_their_wait_counts_as_latency_and_jitter() {
    let result = virtual_run("voip-hop-vs-end", &[5.0, 10.0], 20.0);
    let get = |scenario, flows, key| {
        let here =
            |row: &&Row| row.scenario == scenario && row.treatment == "baseline" && row.x == flows;
        number(result.rows.iter().find(here).unwrap(), key)
    };
    for (flows, active) in [(10.0, 5.0), (20.0, 10.0)] {
        let [sent, loss, latency, jitter] =
            ["sent", "loss", "latency", "jitter"].map(|key| get("end-to-end", flows, key));
        // Both turns of 20 s.
        let packet = 40.0 * 1e3 / sent;
        assert!(sent < 0.3 * flows * 20.0 * 2083.0, "the channel, not the pace, decides: {sent}");
        assert!(sent > flows * 20.0 * 25.0, "senders go on when packets have left: {sent}");
        assert!(loss < 0.2, "{loss} % lost");
        // At least half of each socket waits ahead of a packet.
        assert!(latency > 8.0 * active * packet, "{latency} ms");
        assert!((0.85..1.05).contains(&(jitter / (2.0 * active * packet))), "{jitter} ms");
    }
    assert!(get("end-to-end-calls", 10.0, "latency") < 10.0, "nobody waits");
}

#[test]
fn senders_and_headers_that_cannot_be_are_refused_with_the_remedy() {
    let text = include_str!("../../../plans/voip-hop-vs-end.toml");
    for (from, to, remedy) in [
        ("socket = 16", "socket = 0", "give at least 1 packet"),
        ("device = 1\nsocket", "socket", "add device = 1"),
        ("interval = 0.48", "interval = 0", "give milliseconds, 0.01 to 1000"),
        ("encapsulation = 24", "encapsulation = 201", "give bytes, 0 to 200"),
    ] {
        assert!(text.contains(from), "{from}");
        let fault = Plan::parse(&text.replacen(from, to, 1), "my.toml").unwrap_err().to_string();
        assert!(fault.contains(remedy), "{fault}");
    }
}

/// Four flows over the two hops of the example `voip-mac80211`, with `broadcasts`.
fn four_flows(broadcasts: &str) -> impl Fn(&str) -> f64 {
    let text = include_str!("../../../packaging/examples/voip-mac80211.toml");
    let (before, behind) = text.split_once("broadcasts = ").unwrap();
    let (_, behind) = behind.split_once('\n').unwrap();
    let text = format!("{before}broadcasts = {broadcasts}\n{behind}");
    let Plan::Voip(plan) = Plan::parse(&text, "my.toml").unwrap() else {
        panic!("it is about calls");
    };
    let point = SweepPoint::new("two-hop", "alone", 4.0, plan.head.duration);
    let tools = Tools { sheaf: "sheaf".into() };
    let metrics = plan.measure(&point, Engine::Virtual, &tools).unwrap().metrics;
    move |key| metrics.iter().find(|(name, _)| name == key).unwrap().1
}

#[test]
fn what_hosts_send_to_all_besides_calls_takes_air_and_nothing_else() {
    let both = "[{ interval = 102.4, bytes = 42 }, { interval = 1000, bytes = 49 }]";
    let (alone, beside) = (four_flows("[]"), four_flows(both));
    // At 1 Mbit/s with the long preamble and 36 bytes around; four hosts.
    let time = |bytes: f64| 0.192 + (bytes + 36.0) * 8.0 / 1e3;
    let share = 4.0 * (time(42.0) / 102.4 + time(49.0) / 1000.0) * 100.0;
    let took = beside("air_busy") - alone("air_busy");
    assert!((took - share).abs() < 0.05 * share, "{took} % of the air, {share} expected");
    for key in ["loss", "unrouted", "unsplit", "queue_drops"] {
        assert_eq!(beside(key), 0.0, "{key}");
    }
}

#[test]
fn broadcasts_that_cannot_be_are_refused_with_the_remedy() {
    let text = include_str!("../../../plans/voip-hop-vs-end.toml");
    for (list, remedy) in [
        ("[{ interval = 0, bytes = 43 }]", "give 1 to 60000 milliseconds"),
        ("[{ interval = 100, bytes = 1501 }]", "give 0 to 1500"),
        ("[{ interval = 100, bytes = 43 }]", "remove them, or device and policy kau"),
        ("[{ interval = 100 }]", "add it"),
    ] {
        let words = format!("device = 1\nbroadcasts = {list}");
        let fault = Plan::parse(&text.replacen("device = 1", &words, 1), "my.toml").unwrap_err();
        assert!(fault.to_string().contains(remedy), "{fault}");
    }
}

/// Medians over `seeds` seeds at one point of `voip-two-hop` in virtual time, of `duration` seconds
/// each.
fn medians<const N: usize>(
    treatment: &str,
    flows: u32,
    seeds: u64,
    duration: f64,
    keys: [&str; N],
) -> [f64; N] {
    let Plan::Voip(mut plan) = Plan::find("voip-two-hop").unwrap() else {
        panic!("it is about calls");
    };
    plan.head.duration = duration;
    let sweep_point = SweepPoint::new("two-hop", treatment, f64::from(flows), duration);
    let rows: Vec<_> = (0..seeds)
        .map(|seed| {
            plan.head.seed = 1000 * seed + 1;
            let tools = Tools { sheaf: "sheaf".into() };
            plan.measure(&sweep_point, Engine::Virtual, &tools).unwrap().metrics
        })
        .collect();
    keys.map(|key| {
        let value = |row: &Vec<(String, f64)>| row.iter().find(|(name, _)| name == key).unwrap().1;
        Median::of(rows.iter().map(value).collect()).unwrap().value
    })
}

/// Air time of a frame of 1500 bytes in `voip-two-hop`, in ms.
fn full_frame() -> f64 {
    let rate = Bitrate::from_mbps(2);
    let config = Config::new(Phy::Dsss { short_preamble: false }, 4, rate);
    air_time::exchange(&config, rate, 1500).as_secs_f64() * 1e3
}

#[test]
fn below_saturation_busy_is_later_than_nothing_by_at_most_one_full_frame() {
    // The baseline carries 19.
    for flows in [6, 12, 17] {
        let of = |treatment| medians(treatment, flows, 5, 60.0, ["latency", "latency_p99"]);
        let ([mean, p99], [plain, plain_p99]) = (of("busy"), of("baseline"));
        assert!(mean <= plain + full_frame(), "{flows} flows: mean {mean} ms, without {plain}");
        assert!(p99 <= plain_p99 + full_frame(), "{flows} flows: p99 {p99}, without {plain_p99}");
    }
}

#[test]
fn just_above_what_the_baseline_carries_busy_is_quick_and_at_the_top_it_carries_nine_tenths() {
    let [mean, p99] = medians("busy", 24, 5, 60.0, ["latency", "latency_p99"]);
    assert!(mean < 10.0 && p99 < 35.0, "24 flows: mean {mean} ms, p99 {p99} ms");
    // Air time allows 88 without any contention; the dense end takes the plan's own length.
    let [kau] = medians("busy", 79, 10, 180.0, ["kau"]);
    assert_eq!(kau, 79.0);
}

#[test]
fn on_real_stacks_two_flows_a_direction_arrive_whole_with_every_treatment() {
    let result = run("voip-two-hop", Engine::Netns, &[2.0], 4.0);
    assert_eq!(result.rows.len(), 3);
    for row in &result.rows {
        assert!(number(row, "sent") > 300.0, "{row:?}");
        assert!(number(row, "loss") < 1.0, "{row:?}");
        assert_eq!(number(row, "reordered"), 0.0, "{row:?}");
    }
}
