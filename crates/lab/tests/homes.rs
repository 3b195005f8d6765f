//! The plans of homes on the virtual engine: what they show, to the packet, and what virtual time
//! refuses.

mod runs;

use runs::virtual_run;
use sheaf_lab::experiment::{Engine, Experiment, Tools};
use sheaf_lab::home;
use sheaf_lab::measured::{Measured, SweepPoint};
use sheaf_lab::plan::{Changes, Plan};
use sheaf_lab::result::RunResult;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

fn home(name: &str) -> home::Plan {
    let Plan::Home(plan) = Plan::find(name).unwrap() else { panic!("{name} is about homes") };
    plan
}

fn tools() -> Tools {
    Tools { sheaf: "sheaf".into() }
}

/// One point in virtual time, `duration` seconds long.
fn point(plan: &home::Plan, scenario: &str, treatment: &str, x: f64, duration: f64) -> Measured {
    let mut plan = plan.clone();
    plan.head.duration = duration;
    let sweep_point = SweepPoint::new(scenario, treatment, x, duration);
    plan.measure(&sweep_point, Engine::Virtual, &tools()).unwrap()
}

fn number(measured: &Measured, key: &str) -> f64 {
    let found = measured.metrics.iter().find(|(name, _)| name == key);
    found.unwrap_or_else(|| panic!("no {key} in {:?}", measured.metrics)).1
}

/// All numbers but the curves, to three digits.
fn table(result: &RunResult) -> String {
    let mut text = String::new();
    for row in &result.rows {
        let _ = write!(text, "{} {} {}:", row.scenario, row.treatment, row.x);
        for metric in &result.view.metrics {
            if let Some(value) = row.get(&metric.key) {
                let _ = write!(text, " {} {value:.3}", metric.key);
            }
        }
        text.push('\n');
    }
    text
}

#[test]
fn the_papers_table_1_comes_out_as_it_did_and_the_same_seed_gives_the_same_bytes() {
    let result = virtual_run("home-ap", &[1.0], 45.0);
    insta::assert_snapshot!(table(&result));
    let again = virtual_run("home-ap", &[1.0], 45.0);
    let json = |result: &RunResult| serde_json::to_string(&(&result.rows, &result.series)).unwrap();
    assert_eq!(json(&result), json(&again));
}

#[test]
fn max_min_takes_the_queue_from_the_game_and_costs_the_download_no_rate() {
    let plan = home("home-ap");
    let at = |treatment| point(&plan, "table-1", treatment, 1.0, 60.0);
    let (nothing, maxmin) = (at("nothing"), at("maxmin"));
    assert!(number(&maxmin, "rate") >= 0.98 * number(&nothing, "rate"));
    // A full queue of 100 segments is 213 ms; alone the game takes 32.
    assert!(number(&nothing, "delay_p99") > 200.0);
    assert!(number(&maxmin, "delay_p99") < 45.0, "{}", number(&maxmin, "delay_p99"));
    assert!(number(&maxmin, "r") > number(&nothing, "r") + 10.0);
    assert!(number(&nothing, "drops") > 0.0);
    let lost = ["drops", "loss_stream", "loss_game", "loss_call"].map(|key| number(&maxmin, key));
    assert_eq!(lost, [0.0; 4]);
    // Pushed segments come one by one: within the 3 ms of a full packet, and not in pairs.
    let pairs = at("pairs");
    assert!(number(&maxmin, "gap_p99") < 43.0, "{}", number(&maxmin, "gap_p99"));
    assert!(number(&pairs, "gap_p99") > number(&maxmin, "gap_p99") + 1.0);
}

#[test]
fn formula_1_as_published_loses_nothing_and_is_within_a_tenth_of_the_published_rates() {
    let plan = home("home-ap");
    for (treatment, published) in [("nothing", 2.183), ("slus", 2.164)] {
        let measured = point(&plan, "table-1", treatment, 1.0, 60.0);
        let share = number(&measured, "rate") / published;
        assert!((0.9..1.0).contains(&share), "{treatment}: {share:.3} of the paper's");
    }
    let slus = point(&plan, "table-1", "slus", 1.0, 60.0);
    let losses = ["loss_stream", "loss_game", "loss_call", "drops"].map(|key| number(&slus, key));
    assert_eq!(losses, [0.0; 4]);
}

#[test]
fn the_papers_figures_have_a_curve_each() {
    let measured = point(&home("home-ap"), "table-1", "slus", 1.0, 60.0);
    let names: BTreeSet<_> = measured.series.iter().map(|series| series.name.as_str()).collect();
    let flows = ["stream", "game", "call"];
    let mut expected: BTreeSet<_> = flows.map(|name| format!("Rate of the {name}")).into();
    expected.extend(flows.map(|name| format!("Loss of the {name}")));
    expected.insert("Rate of the transfer".to_owned());
    expected.insert("Between two packets of the game".to_owned());
    assert_eq!(names, expected.iter().map(String::as_str).collect());
    let rate = |name: &str, after: f64| {
        let curve = measured.series.iter().find(|series| series.name == name).unwrap();
        curve.points.iter().find(|(time, _)| *time > after).unwrap().1
    };
    // 200 packets of 1000 bytes a second, throughout.
    assert_eq!((rate("Rate of the stream", 2.0), rate("Rate of the stream", 60.0)), (1.6, 1.6));
    // Everything begins at a third of the paper's times.
    assert!(rate("Rate of the transfer", 0.0) < rate("Rate of the transfer", 60.0));
    let begins = |name: &str| {
        let curve = measured.series.iter().find(|series| series.name == name).unwrap();
        curve.points[0].0
    };
    assert_eq!(begins("Rate of the game"), 15.5);
    assert_eq!(begins("Rate of the call"), 30.5);
    assert!((45.0..47.0).contains(&begins("Rate of the transfer")));
}

#[test]
fn every_number_that_is_shown_is_measured_in_virtual_time_and_no_other() {
    let mut measured = BTreeSet::new();
    let mut shown = BTreeSet::new();
    for name in ["home-ap", "home-many"] {
        let plan = home(name);
        shown.extend(plan.view().metrics.into_iter().map(|metric| metric.key));
        for sweep_point in plan.points(Engine::Virtual) {
            let is_new = ["auto", "nothing"].contains(&&*sweep_point.treatment);
            if is_new && sweep_point.x <= 5.0 {
                let point = point(
                    &plan,
                    &sweep_point.scenario,
                    &sweep_point.treatment,
                    sweep_point.x,
                    20.0,
                );
                let there = point.metrics.into_iter().filter(|(_, value)| value.is_finite());
                measured.extend(there.map(|(key, _)| key));
            }
        }
    }
    assert_eq!(measured, shown);
}

#[test]
fn the_engines_have_the_same_points_but_for_the_published_system() {
    for name in ["home-ap", "home-many"] {
        let plan = home(name);
        let names = |engine| {
            let points = plan.points(engine).into_iter();
            points.map(|point| point.to_string()).collect::<BTreeSet<_>>()
        };
        let (real, simulated) = (names(Engine::Netns), names(Engine::Virtual));
        assert!(real.is_subset(&simulated));
        let mut more = simulated.difference(&real).peekable();
        assert!(more.peek().is_some(), "{name}");
        assert!(more.all(|name| name.contains("/slus/")));
    }
}

#[test]
fn a_link_that_changes_is_found_again_and_its_game_keeps_a_short_delay() {
    let plan = home("home-many");
    for scenario in ["changing-cubic", "changing-bbr"] {
        let at = |treatment| point(&plan, scenario, treatment, 4.0, 60.0);
        let (nothing, auto) = (at("nothing"), at("auto"));
        assert!(number(&auto, "known_error") < 5.0, "{scenario}: {:?}", auto.metrics);
        assert!(number(&auto, "delay_p99") < number(&nothing, "delay_p99") / 2.0, "{scenario}");
        // The truth is drawn where nothing controls windows.
        let curve = nothing.series.iter().find(|series| series.name.starts_with("Capacity"));
        let rates: BTreeSet<_> = curve.unwrap().points.iter().map(|(_, y)| *y as u32).collect();
        assert_eq!(rates, BTreeSet::from([10, 20]), "{scenario}");
    }
}

#[test]
fn what_a_limited_application_leaves_is_for_the_others_under_max_min_alone() {
    let plan = home("home-many");
    let rate = |treatment| {
        let measured = point(&plan, "app-limited", treatment, 5.0, 30.0);
        assert!(number(&measured, "jain") > 0.98, "the other four share evenly");
        let curve = measured.series.iter().find(|series| series.name == "Rate of transfer 1");
        let limited = curve.unwrap().points.last().unwrap().1;
        assert!((limited - 1.0).abs() < 0.05, "{treatment}: {limited}");
        number(&measured, "rate")
    };
    // A fifth each, of which the first uses 1 of 3.8 Mbit/s.
    assert!((15.5..16.3).contains(&rate("formula-2")), "{}", rate("formula-2"));
    assert!(rate("maxmin") > 18.5, "{}", rate("maxmin"));
}

#[test]
fn downloads_that_begin_unseen_are_policed_to_their_share_and_the_queue_is_short() {
    let mut plan = home("home-many");
    let scenario = plan.scenarios.iter_mut().find(|one| one.name == "app-limited").unwrap();
    (scenario.limited, scenario.unseen, scenario.rtts) = (None, Some(2), vec![40.0]);
    let at = |plan: &home::Plan| point(plan, "app-limited", "maxmin", 4.0, 30.0);
    let left = at(&plan);
    // TCP competes, and the queue is theirs.
    assert!(number(&left, "jain") > 0.8 && number(&left, "drops") > 0.0, "{:?}", left.metrics);
    let maxmin = plan.treatments.iter_mut().find(|one| one.name == "maxmin").unwrap();
    maxmin.window = Some("formula maxmin rest police".to_owned());
    let held = at(&plan);
    assert!(number(&held, "jain") > 0.95 && number(&held, "rate") > 17.0, "{:?}", held.metrics);
    assert_eq!(number(&held, "drops"), 0.0);
    let error = plan.ready(Engine::Netns, &tools()).unwrap_err().to_string();
    assert!(error.contains("unseen in scenario app-limited exists in virtual time alone"));
}

#[test]
fn uploads_go_through_the_bottleneck_and_are_governed_like_downloads() {
    let plan = home("home-many");
    let at = |treatment| point(&plan, "upload-cubic", treatment, 10.0, 20.0);
    let (nothing, maxmin) = (at("nothing"), at("maxmin"));
    assert!(number(&nothing, "rate") > 18.5 && number(&nothing, "rate") < 20.0);
    assert!(number(&maxmin, "rate") >= 0.98 * number(&nothing, "rate"));
    assert!(number(&maxmin, "jain") > 0.98);
    assert!(number(&maxmin, "delay_p99") < number(&nothing, "delay_p99") / 2.0);
}

/// The plan `home-many` with these streams beside the download of scenario `web`.
fn with_streams(folder: &Path, streams: &str) -> anyhow::Result<Plan> {
    let text = include_str!("../../../plans/home-many.toml");
    let first = text.find("# Pages of 20 objects").unwrap();
    let scenario = &text[first..text.find("[[scenario.stream]]\nrole = \"web\"").unwrap()];
    let head = &text[..text.find("[[scenario]]").unwrap()];
    let treatments = &text[text.find("[[treatment]]").unwrap()..];
    let file = folder.join("my.toml");
    std::fs::write(&file, format!("{head}{scenario}{streams}{treatments}")).unwrap();
    Plan::find(file.to_str().unwrap())
}

fn found(folder: &Path, streams: &str) -> home::Plan {
    let Plan::Home(plan) = with_streams(folder, streams).unwrap() else { panic!("a home") };
    plan
}

/// One stream of a plan.
fn stream(keys: &str) -> String {
    format!("[[scenario.stream]]\n{keys}\nstart = 0\n")
}

#[test]
fn pages_and_requests_wait_behind_a_download_unless_its_queue_is_short() {
    let plan = home("home-many");
    let at = |scenario, treatment, x| point(&plan, scenario, treatment, x, 60.0);
    let (alone, nothing) = (at("web-alone", "nothing", 0.0), at("web", "nothing", 1.0));
    // A round trip of 40 ms, and a full queue of 200 packets, which is 121 ms.
    let trip = |measured: &Measured| number(measured, "trip_p50");
    assert!((40.0..41.0).contains(&trip(&alone)), "{}", trip(&alone));
    assert!((90.0..165.0).contains(&trip(&nothing)), "{}", trip(&nothing));
    // Behind a lost answer nothing follows: its sender waits for two more round trips, no longer.
    let late = number(&nothing, "trip_p99");
    assert!((trip(&nothing)..500.0).contains(&late), "{late}");
    // A queue that drops early takes rate from a single transfer, too.
    for (treatment, kept) in [("maxmin", 0.9), ("auto", 0.9), ("fq-codel", 0.75)] {
        let treated = at("web", treatment, 1.0);
        assert!(trip(&treated) < 50.0, "{treatment}: {}", trip(&treated));
        for key in ["page_p50", "page_p95"] {
            let (before, after) = (number(&nothing, key), number(&treated, key));
            assert!(after < 0.8 * before, "{treatment}: {key} {after} beside {before}");
        }
        assert!(number(&treated, "trip_p99") < 80.0, "{treatment}");
        assert!(number(&treated, "rate") >= kept * number(&nothing, "rate"), "{treatment}");
    }
    // Requests come every 140 ms: one round trip and 100 ms of idle time in the mean.
    let requests = number(&alone, "requests");
    assert!((60.0 / 0.14 * 0.85..60.0 / 0.14 * 1.15).contains(&requests), "{requests}");
    let names: BTreeSet<_> = nothing.series.iter().map(|series| series.name.as_str()).collect();
    assert!(names.is_superset(&["Load time of pages", "Round trips of requests"].into()));
}

#[test]
fn a_page_takes_the_round_trips_of_its_connections_and_in_parallel_fewer() {
    let folder = tempfile::tempdir().unwrap();
    let page = |parallel: u32| {
        let web = format!("role = \"web\"\nobjects = 13\nparallel = {parallel}\nreading = 0.5");
        let plan = found(folder.path(), &stream(&web));
        number(&point(&plan, "web", "nothing", 0.0, 60.0), "page_p50")
    };
    // The handshake, and 13 objects one after the other, most of which take one round trip.
    let serial = page(1);
    assert!((0.040 * 14.0..0.040 * 20.0).contains(&serial), "{serial}");
    // A handshake, the page, another handshake for all but one, and 12 objects on six connections.
    let parallel = page(6);
    assert!((0.040 * 4.0..0.040 * 8.0).contains(&parallel), "{parallel}");
}

#[test]
fn a_captured_call_and_packets_at_random_are_measured_beside_a_download() {
    let folder = tempfile::tempdir().unwrap();
    let call = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/call.pcap");
    std::fs::copy(call, folder.path().join("call.pcap")).unwrap();
    let streams = stream("role = \"capture\"\nfile = \"call.pcap\"")
        + &stream("role = \"poisson\"\ninterval = 10\nbytes = 100");
    let plan = found(folder.path(), &streams);
    let at = |treatment| point(&plan, "web", treatment, 1.0, 30.0);
    let (nothing, maxmin) = (at("nothing"), at("maxmin"));
    assert_eq!((number(&maxmin, "loss_capture"), number(&maxmin, "loss_poisson")), (0.0, 0.0));
    assert!(number(&maxmin, "r_capture") > number(&nothing, "r_capture") + 1.0);
    assert!((20.0..35.0).contains(&number(&maxmin, "delay_poisson_p99")));
    assert!(number(&nothing, "delay_poisson_p99") > 100.0);
    let keys: BTreeSet<_> = plan.view().metrics.into_iter().map(|metric| metric.key).collect();
    assert!(keys.contains("r_capture") && keys.contains("loss_poisson"));
    assert!(!keys.contains("page_p50"), "the plan has no pages");
    // 50 packets in about a second, all but the last of 172 bytes, again and again.
    let rate = maxmin.series.iter().find(|series| series.name == "Rate of the captured call");
    let rates = rate.unwrap().points.iter().map(|(_, rate)| *rate);
    let inner: Vec<_> = rates.skip(2).take(25).collect();
    let mean = inner.iter().sum::<f64>() / inner.len() as f64;
    assert!((mean / 0.0677 - 1.0).abs() < 0.03, "{mean} Mbit/s");
    let again = at("maxmin");
    assert_eq!(
        serde_json::to_string(&maxmin).unwrap(),
        serde_json::to_string(&again).unwrap(),
        "the same seed gives the same bytes"
    );
}

#[test]
fn a_point_is_kept_by_what_was_replayed_and_not_by_the_name_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/call.pcap");
    let mut bytes = std::fs::read(kept).unwrap();
    let file = folder.path().join("call.pcap");
    let replay = stream("role = \"capture\"\nfile = \"call.pcap\"");
    let plan = || with_streams(folder.path(), &replay).unwrap();
    let sweep_point = SweepPoint::new("web", "nothing", 1.0, 1.0);
    std::fs::write(&file, &bytes).unwrap();
    let (before, text) = (plan().recipe(&sweep_point), plan().to_toml().unwrap());
    assert_eq!(plan().recipe(&sweep_point), before);
    // Half a millisecond later in the last packet.
    let last = bytes.len() - 16 - 14 - 28 - 92 + 6;
    bytes[last] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    assert_ne!(plan().recipe(&sweep_point), before);
    let printed = folder.path().join("printed.toml");
    std::fs::write(&printed, text).unwrap();
    let refused = Plan::find(printed.to_str().unwrap()).unwrap_err().to_string();
    assert!(refused.contains("call.pcap is another file than before"), "{refused}");
}

#[test]
fn a_capture_that_cannot_be_replayed_is_refused_with_its_name_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let replay = stream("role = \"capture\"\nfile = \"call.pcap\"");
    let refused = || with_streams(folder.path(), &replay).unwrap_err().to_string();
    let missing = refused();
    assert!(missing.contains("my.toml:") && missing.contains("scenario web"), "{missing}");
    assert!(missing.contains("cannot read") && missing.contains("call.pcap"), "{missing}");
    std::fs::write(folder.path().join("call.pcap"), b"").unwrap();
    let empty = refused();
    assert!(empty.contains("call.pcap cannot be replayed: it is empty"), "{empty}");
    let text = std::fs::read_to_string(folder.path().join("my.toml")).unwrap();
    let plan = Plan::parse(&text, "my.toml").unwrap();
    for engine in [Engine::Virtual, Engine::Netns] {
        let unread = plan.experiment().ready(engine, &tools()).unwrap_err().to_string();
        assert!(unread.contains("a capture was not read"), "{unread}");
    }
}

#[test]
fn streams_out_of_range_are_refused_with_what_is_possible() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |keys: &str| with_streams(folder.path(), &stream(keys)).unwrap_err().to_string();
    let web = refused("role = \"web\"\nobjects = 0\nparallel = 6\nreading = 2");
    assert!(web.contains("scenario web: role web has 1 to 1000 objects"), "{web}");
    let request = refused("role = \"request\"\nbytes = 100\nanswer = 0\nidle = 5");
    assert!(request.contains("an answer of 1 byte to 1 MiB"), "{request}");
    let poisson = refused("role = \"poisson\"\nbytes = 100\ninterval = 0.1");
    assert!(poisson.contains("an interval of 0.5 ms or more"), "{poisson}");
    let unknown = refused("role = \"poisson\"\nbytes = 100\ninterval = 1\nidle = 3");
    assert!(unknown.contains("idle"), "{unknown}");
    let role = refused("role = \"video\"");
    assert!(role.contains("unknown variant `video`"), "{role}");
}

#[test]
fn what_virtual_time_cannot_do_is_refused_before_anything_starts() {
    let text = home("home-ap");
    let text = Plan::Home(text).to_toml().unwrap();
    let changed = |from: &str, to: &str| {
        assert!(text.contains(from), "{from} in {text}");
        Plan::parse(&text.replacen(from, to, 1), "my.toml")
    };
    let refused = |from: &str, to: &str| {
        let plan = changed(from, to).unwrap();
        plan.experiment().ready(Engine::Virtual, &tools()).unwrap_err()
    };
    let slack = refused("formula maxmin push off", "formula maxmin slack 5ms");
    assert!(slack.to_string().contains("scenario table-1, treatment pairs"), "{slack}");
    assert!(format!("{slack:#}").contains("slack 5ms does not exist in virtual time"));
    let segment = format!("{:#}", refused("segment = 1000", "segment = 300"));
    assert!(segment.contains("segments of 300 bytes") && segment.contains("524"), "{segment}");
    let fault = |from: &str, to: &str| changed(from, to).unwrap_err().to_string();
    let both = fault("policy = \"slus\"", "policy = \"slus\"\nwindow = \"formula 1\"");
    assert!(both.contains("treatment slus: policy slus has no window"), "{both}");
    let up = fault("direction = \"down\"", "direction = \"up\"");
    assert!(up.contains("policy slus governs downloads"), "{up}");
    for points in [vec![1.5], vec![1.0, 70_000.0]] {
        let changes = Changes { points: Some(points), ..Changes::default() };
        let plan = Plan::find("home-many").unwrap();
        let refused = plan.changed(Engine::Virtual, &changes).unwrap_err().to_string();
        assert!(refused.contains("give whole numbers up to 1000"), "{refused}");
    }
    let reno = fault("congestion = \"cubic\"", "congestion = \"reno\"");
    assert!(reno.contains("unknown variant `reno`"), "{reno}");
}
