//! The trunk plans: what they show on the virtual engine, and that real stacks show it, too.

mod runs;

use runs::virtual_run;
use sheaf_lab::experiment::Tools;
use sheaf_lab::plan::Plan;
use sheaf_lab::result::RunResult;
use sheaf_lab::tcp::Congestion;
use sheaf_lab::trunk::netns;
use sheaf_lab::trunk::point::{Link, Point, Traffic, Treatment};
use sheaf_medium::{Config, Phy, air_time};
use sheaf_stage::{Bitrate, Duration};
use std::fmt::Write;

fn number(result: &RunResult, treatment: &str, x: f64, key: &str) -> f64 {
    let scenario = result.scenarios()[0];
    let row = result.sweep(scenario, treatment).into_iter().find(|row| row.x == x);
    row.and_then(|row| row.get(key)).unwrap_or_else(|| panic!("no {key} of {treatment} at {x}"))
}

/// Share of the sum of its links that a treatment carries.
fn share(result: &RunResult, treatment: &str, x: f64) -> f64 {
    number(result, treatment, x, "throughput") / number(result, "sum", x, "throughput")
}

/// The rows as a table.
fn table(result: &RunResult) -> String {
    let mut text = String::new();
    for row in &result.rows {
        let [throughput, latency, p99, reordered] =
            ["throughput", "latency", "latency_p99", "reordered"].map(|key| row.get(key).unwrap());
        let _ = writeln!(
            text,
            "{} {} {}: {throughput:.2} Mbit/s, {latency:.1} ms, 99 % {p99:.1} ms, {reordered} \
             out of order",
            row.scenario, row.treatment, row.x
        );
    }
    text
}

#[test]
fn three_links_carry_three_times_as_much_and_the_same_seed_gives_the_same_bytes() {
    let result = virtual_run("trunk-basic", &[3.0], 20.0);
    insta::assert_snapshot!(table(&result));
    let again = virtual_run("trunk-basic", &[3.0], 20.0);
    let json = |result: &RunResult| serde_json::to_string(&result.rows).unwrap();
    assert_eq!(json(&result), json(&again));
    // Headers and marks are what is missing.
    for treatment in ["earliest", "paper", "srr", "trr"] {
        let share = share(&result, treatment, 3.0);
        assert!(share > 0.95, "{treatment}: {share:.3}");
    }
}

#[test]
fn from_two_to_ten_links_earliest_delivery_carries_97_percent_of_the_sum_in_less_than_83_ms() {
    let links: Vec<f64> = (2..=10).map(f64::from).collect();
    let result = virtual_run("trunk-scale", &links, 20.0);
    for x in links {
        let share = share(&result, "earliest", x);
        assert!(share >= 0.97, "{x} links: {share:.3}");
        // NCTU had 83 ms with three links, 347 ms with ten.
        let latency = number(&result, "earliest", x, "latency");
        assert!(latency < 83.0, "{x} links: {latency:.1} ms");
    }
}

#[test]
fn earliest_delivery_takes_what_neighbours_leave_and_what_bit_errors_and_distance_leave() {
    for (plan, points, least) in [
        // What the neighbours' TCP leaves varies from run to run by some per cent.
        ("trunk-congestion", [1.0, 2.0, 3.0], 0.93),
        ("trunk-error", [1.0, 5.0, 10.0], 0.97),
        ("trunk-mobility", [1.0, 40.0, 70.0], 0.97),
    ] {
        let result = virtual_run(plan, &points, 30.0);
        for x in points {
            let share = share(&result, "earliest", x);
            assert!(share >= least, "{plan} at {x}: {share:.3}");
        }
    }
}

#[test]
fn a_link_that_a_hidden_station_kills_costs_its_share_and_no_more() {
    let result = virtual_run("trunk-hidden", &[1.0], 20.0);
    insta::assert_snapshot!(table(&result));
    let share = |treatment| share(&result, treatment, 1.0);
    assert!(share("earliest") >= 0.95, "{:.3}", share("earliest"));
    // The trunk of the paper gives a link that loses everything a packet of each round. When TCP
    // has little in flight, that is every third packet, and it may stay so.
    assert!(share("paper") < 0.95, "{:.3}", share("paper"));
    // A receiver that waits for each link in turn stands with it.
    assert!(share("srr") < 0.1 && share("trr") < 0.1);
}

#[test]
fn a_source_that_waits_for_room_fills_a_trunk_and_loses_nothing_in_front_of_it() {
    let result = virtual_run("trunk-latency", &[3.0], 10.0);
    let of = |treatment, key| number(&result, treatment, 3.0, key);
    for treatment in ["sum", "paper", "earliest"] {
        // Fifty frames of each link are in flight at the end, and some in the trunk; ours divides
        // the packets of 1024 bytes and headers so that each frame has 1500.
        let lost = of(treatment, "sent") - of(treatment, "arrived");
        let room = 160.0 * 1_500.0 / 1_052.0;
        assert!((0.0..=room).contains(&lost), "{treatment}: {lost} of those sent did not come");
        assert!(of(treatment, "throughput") > 0.95 * of("sum", "throughput"), "{treatment}");
    }
}

#[test]
fn neighbours_that_leave_a_link_leave_it_to_the_trunk() {
    let result = virtual_run("trunk-congestion", &[3.0], 160.0);
    let curve = result.series.iter().find(|curve| {
        (curve.scenario.as_str(), curve.treatment.as_str()) == ("leaving", "earliest")
            && curve.series.name == "throughput over time"
    });
    let curve = &curve.expect("a curve").series.points;
    let mean = |from: usize, to: usize| {
        curve[from..to].iter().map(|(_, rate)| rate).sum::<f64>() / (to - from) as f64
    };
    // The measurement begins 10 s after the start; a few seconds to grow after each that left.
    let rates = [mean(0, 40), mean(45, 90), mean(95, 140), mean(145, 160)];
    assert!(rates.windows(2).all(|pair| pair[1] > pair[0] + 1.0), "{rates:?}");
}

#[test]
fn a_plan_that_no_trunk_can_have_is_refused_with_its_line() {
    let plan = Plan::find("trunk-congestion").unwrap().to_toml().unwrap();
    let broken = |from: &str, to: &str| {
        assert!(plan.contains(from), "{from} in {plan}");
        Plan::parse(&plan.replacen(from, to, 1), "my.toml").unwrap_err().to_string()
    };
    let line = 1 + plan.lines().position(|line| line == "name = \"shared\"").unwrap();
    let place = format!("my.toml:{line}: scenario shared: ");
    let links = broken("links = 3", "links = 2");
    assert_eq!(links, format!("{place}3 of 2 links; give at most 2"));
    assert!(broken("rate = 11.0", "rate = 12.0").contains("not one of 802.11b"));
    assert!(broken("traffic = \"tcp\"", "traffic = \"udp\"").contains("UDP needs offered"));
    let scheduler = broken("over = \"each-link\"", "over = \"each-link\"\nscheduler = \"srr\"");
    assert!(scheduler.contains("treatment sum: only a trunk has a scheduler"), "{scheduler}");
}

#[test]
fn real_tcp_over_one_radio_fits_into_the_time_of_its_channel() {
    let rate = Bitrate::from_mbps(2);
    let point = Point {
        links: vec![Link { rate, ber: 0.0, neighbours: None, walk: None }],
        treatment: Treatment::Single,
        traffic: Traffic::Tcp { flows: 1 },
        tcp: Congestion::Cubic,
        queue: 50,
        warm_up: Duration::from_secs(1),
        duration: Duration::from_secs(4),
        seed: 1,
    };
    let got = netns::run(&point, &Tools { sheaf: "sheaf".into() }).unwrap().throughput();
    // A segment of 1448 bytes takes the time of a packet of 1500, even without acknowledgements. A
    // busy machine may slow all of it down.
    let config = Config::new(Phy::Dsss { short_preamble: false }, 2, rate);
    let most = 1448.0 * 8e-6 / air_time::exchange(&config, rate, 1500).as_secs_f64();
    assert!(got > 0.0 && got < most, "{got:.2} of {most:.2} Mbit/s");
}
