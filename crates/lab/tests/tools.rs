//! Output of ping, iperf3, MGEN and D-ITG, as they printed it: read, and refused when damaged.

use sheaf_fuzz::{Fuzzer, RngExt};
use sheaf_lab::experiment::{Engine, Tools};
use sheaf_lab::link::Plan as Link;
use sheaf_lab::link::plan::Point;
use sheaf_lab::measured::SweepPoint;
use sheaf_lab::plan::{Changes, Plan};
use sheaf_lab::run::{self, Options};
use sheaf_lab::tool::figures::Figures;
use sheaf_lab::tool::{ditg, iperf3, mgen, ping};
use std::cmp::Ordering;

/// Damaged copies of each output.
const ROUNDS: u64 = 20_000;

/// The kept output in this file.
macro_rules! kept {
    ($file:literal) => {
        include_str!(concat!("fixtures/", $file))
    };
}

/// The plan with all four programs. It is not built in: it has no virtual time.
fn plan() -> Plan {
    Plan::parse(include_str!("../../../packaging/examples/emulator-tools.toml"), "emulator-tools")
        .unwrap()
}

fn tools() -> Link {
    let Plan::Link(plan) = plan() else { panic!("it is of a link") };
    plan
}

fn point(scenario: &str) -> Point {
    tools().point(&SweepPoint::new(scenario, "sheaf", 20.0, 10.0)).unwrap()
}

/// A stream of 200 bytes every 10 ms for one second, as the kept logs have it.
fn kept_stream() -> Point {
    let second = std::time::Duration::from_secs(1);
    Point { bytes: 200, stream_interval: second / 100, duration: second, ..point("stream-mgen") }
}

#[test]
fn command_lines_follow_from_the_plan() {
    let far = "10.9.0.2";
    let line = |words: Vec<String>| words.join(" ");
    assert_eq!(
        line(ping::command(&point("ping-iputils"), far)),
        "ping -n -i 0.01 -c 1000 -s 56 10.9.0.2"
    );
    assert_eq!(
        line(iperf3::client(&point("stream-iperf3"), far)),
        "iperf3 -c 10.9.0.2 -t 10 -J -u -l 172 -b 68800"
    );
    assert_eq!(
        line(iperf3::client(&point("tcp-iperf3"), far)),
        "iperf3 -c 10.9.0.2 -t 10 -J -i 0.1 -C cubic"
    );
    assert_eq!(
        line(mgen::sender(&point("stream-mgen"), far)),
        "mgen flush txlog event ON 1 UDP DST 10.9.0.2/5001 PERIODIC [50.000000 172] \
         event 10.000000 OFF 1"
    );
    assert_eq!(
        line(ditg::sender(&point("stream-ditg"), far, "/s".as_ref(), "/r".as_ref())),
        "ITGSend -a 10.9.0.2 -T UDP -C 50 -c 172 -t 10000 -l /s -x /r"
    );
}

#[test]
fn the_summary_of_ping_is_read_with_and_without_a_deviation_and_without_replies() {
    let iputils = ping::parse(kept!("ping-iputils.txt")).unwrap();
    let Figures { sent, arrived, rtt_min, rtt_mean, rtt_max, rtt_stdev, .. } = iputils;
    assert_eq!((sent, arrived), (40.0, 40.0));
    assert_eq!((rtt_min, rtt_mean, rtt_max, rtt_stdev), (0.01, 0.023, 0.163, 0.023));
    assert!((rtt_min..rtt_max).contains(&iputils.rtt_p50) && iputils.rtt_p99 <= rtt_max);
    let busybox = ping::parse(kept!("ping-busybox.txt")).unwrap();
    assert_eq!((busybox.rtt_min, busybox.rtt_mean, busybox.rtt_max), (0.007, 0.013, 0.044));
    assert!(busybox.rtt_stdev.is_nan());
    let none = ping::parse(kept!("ping-none.txt")).unwrap();
    assert_eq!((none.sent, none.arrived), (5.0, 0.0));
    assert!(none.rtt_mean.is_nan());
}

#[test]
fn reports_of_iperf3_are_read_and_its_own_error_is_repeated() {
    let udp = iperf3::parse(kept!("iperf3-udp.json")).unwrap();
    assert_eq!((udp.sent, udp.arrived), (200.0, 200.0));
    assert!((udp.goodput - 0.16).abs() < 1e-4 && (udp.jitter - 0.01716).abs() < 1e-4, "{udp:?}");
    let tcp = iperf3::parse(kept!("iperf3-tcp.json")).unwrap();
    assert_eq!((tcp.rtt_min, tcp.rtt_mean, tcp.rtt_max), (0.022, 0.276, 0.632));
    assert!(tcp.repeats == 91.0 && tcp.goodput > 12_000.0 && tcp.sent.is_nan(), "{tcp:?}");
    let refused = iperf3::parse(kept!("iperf3-refused.json")).unwrap_err().to_string();
    assert_eq!(refused, "iperf3: unable to connect to server: Connection refused");
}

#[test]
fn logs_of_mgen_are_read_also_over_midnight() {
    let (sent, received) = (kept!("mgen-send.txt"), kept!("mgen-recv.txt"));
    let figures = mgen::parse(&kept_stream(), sent, received).unwrap();
    assert_eq!((figures.sent, figures.arrived, figures.goodput), (100.0, 100.0, 0.16));
    // Worked out of the log by awk.
    let near = |one: f64, other: f64| (one - other).abs() < 1e-5;
    assert!(near(figures.delay_min, 0.009) && near(figures.delay_max, 1.786), "{figures:?}");
    assert!(near(figures.delay_mean, 0.04747), "{figures:?}");
    let start = |log: &str| log.lines().next().unwrap().to_owned();
    let night = "00:00:00.010000 RECV proto>UDP flow>1 seq>0 sent>23:59:59.990000 size>200";
    let night = format!("{}\n{night}\n", start(received));
    let figures = mgen::parse(&kept_stream(), sent, &night).unwrap();
    assert!((figures.delay_mean - 20.0).abs() < 1e-3, "{figures:?}");
}

#[test]
fn summaries_of_itgdec_are_read() {
    let figures = ditg::parse(kept!("itgdec-send.txt"), kept!("itgdec-recv.txt")).unwrap();
    assert_eq!((figures.sent, figures.arrived), (199.0, 199.0));
    assert!((figures.goodput - 0.159_434_848).abs() < 1e-9, "{figures:?}");
    let near = |one: f64, other: f64| (one - other).abs() < 1e-9;
    assert!(near(figures.delay_mean, 0.024) && near(figures.delay_max, 0.075), "{figures:?}");
    assert!(near(figures.delay_step, 0.006) && figures.jitter.is_nan(), "{figures:?}");
}

#[test]
fn damaged_output_is_refused_in_one_line_or_gives_figures_of_a_possible_run() {
    type Parse = Box<dyn Fn(&str) -> anyhow::Result<Figures>>;
    let stream = kept_stream();
    let outputs: [(&str, Parse); 8] = [
        (kept!("ping-iputils.txt"), Box::new(ping::parse)),
        (kept!("ping-busybox.txt"), Box::new(ping::parse)),
        (kept!("ping-none.txt"), Box::new(ping::parse)),
        (kept!("iperf3-udp.json"), Box::new(iperf3::parse)),
        (kept!("iperf3-tcp.json"), Box::new(iperf3::parse)),
        (kept!("itgdec-recv.txt"), Box::new(|text| ditg::parse(kept!("itgdec-send.txt"), text))),
        (kept!("itgdec-send.txt"), Box::new(|text| ditg::parse(text, kept!("itgdec-recv.txt")))),
        (
            kept!("mgen-recv.txt"),
            Box::new(move |text| mgen::parse(&stream, kept!("mgen-send.txt"), text)),
        ),
    ];
    let mut fuzzer = Fuzzer::over(vec![Vec::new()], ROUNDS);
    let (mut accepted, mut refused) = (0, 0);
    for round in 0..fuzzer.rounds() {
        let (whole, parse) = &outputs[round as usize % outputs.len()];
        let mut bytes = whole.as_bytes().to_vec();
        for _ in 0..fuzzer.rng.random_range(1..5u8) {
            let at = fuzzer.rng.random_range(0..bytes.len());
            match fuzzer.rng.random_range(0..8u8) {
                0 => bytes.truncate(at + 1),
                1 => bytes[at] = fuzzer.rng.random(),
                2..5 => bytes[at] = b'0' + fuzzer.rng.random_range(0..10u8),
                5 => drop(bytes.remove(at)),
                _ => {
                    let words = sheaf_fuzz::NUMBERS;
                    let word = words[fuzzer.rng.random_range(0..words.len())];
                    bytes.splice(at..at, word.iter().copied());
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        match parse(&String::from_utf8_lossy(&bytes)) {
            Ok(figures) => {
                accepted += 1;
                // Either may be unknown.
                let order = figures.arrived.partial_cmp(&figures.sent);
                assert!(order != Some(Ordering::Greater), "{figures:?}");
                assert!(!(figures.rtt_mean < 0.0 || figures.goodput < 0.0), "{figures:?}");
            }
            Err(error) => {
                refused += 1;
                let line = format!("{error:#}");
                assert!(!line.is_empty() && !line.contains(['\n', '\x1b']), "{line:?}");
            }
        }
    }
    assert!(accepted > 0 && refused > 0, "{accepted} accepted, {refused} refused");
}

#[test]
fn in_virtual_time_a_tool_is_refused_and_the_labs_own_stream_is_exact() {
    let options = Options {
        changes: Changes { duration: Some(2.0), points: Some(vec![20.0]), ..Changes::default() },
        ..Options::default()
    };
    let run = |plan: &Plan| {
        let tools = Tools { sheaf: "sheaf".into() };
        run::run(plan, Engine::Virtual, &options, &tools)
    };
    let mut plan = self::plan();
    let refused = run(&plan).unwrap_err().to_string();
    assert_eq!(
        refused,
        "the traffic of scenario stream-iperf3 is iperf3's, which knows no virtual time; add \
         --engine netns, or remove tool = \"iperf3\""
    );
    let Plan::Link(link) = &mut plan else { panic!("it is of a link") };
    link.scenarios.retain(|scenario| scenario.tool.is_none());
    let result = run(&plan).unwrap();
    let row = result.rows.iter().find(|row| row.scenario == "stream").unwrap();
    let number = |key: &str| row.get(key).unwrap_or_else(|| panic!("no {key} in {row:?}"));
    // 172 bytes with 42 of headers take 171.2 us at 10 Mbit/s.
    assert!((number("delay_mean") - 10.1712).abs() < 1e-6, "{row:?}");
    assert!(number("jitter") == 0.0 && number("loss") == 0.0 && number("sent") == 100.0);
    assert!((number("goodput") - 0.0688).abs() < 1e-9);
}

#[test]
fn a_tool_that_makes_no_such_traffic_is_refused_with_its_line() {
    let plan = self::plan().to_toml().unwrap();
    let broken = |from: &str, to: &str| {
        assert!(plan.contains(from), "{from}");
        Plan::parse(&plan.replacen(from, to, 1), "my.toml").unwrap_err().to_string()
    };
    let wrong = broken("tool = \"mgen\"", "tool = \"ping\"");
    assert!(wrong.contains("ping makes no such traffic; give test = \"ping\""), "{wrong}");
    let unknown = broken("tool = \"mgen\"", "tool = \"netperf\"");
    assert!(unknown.contains("unknown variant `netperf`"), "{unknown}");
    let duration = broken("duration = 10.0", "duration = 1.5");
    assert!(duration.contains("iperf3 sends for whole seconds"), "{duration}");
    let bytes = broken("bytes = 172", "bytes = 20000");
    assert!(bytes.contains("give 32 to 1472"), "{bytes}");
    let stream = broken("bytes = 172\n", "");
    assert!(stream.contains("a stream needs interval = 20 (ms) and bytes = 172"), "{stream}");
}
