//! Words that change while a service runs, and what `sheaf show` has of services.

use crate::ground::{Ground, Service};

const ENGINES: [&str; 2] = ["kernel", "user"];

#[test]
fn aggregation_takes_over_words_and_loses_no_packet() {
    for engine in ENGINES {
        let ground = Ground::new();
        ground.split();
        let line = format!("aggregate dev right engine {engine} peer 10.8.0.2");
        let mut service = Service::aggregate(&ground, &line);
        let mut stream = ground.stream("10.8.0.2");
        let rules = format!("match proto udp dport {} match proto udp length 64", stream.port());
        let words = [
            "policy forced",
            "min 200 max 1200",
            "timeout 1ms hold 20ms",
            &rules,
            "policy busy inflight 2 backoff 4",
            "max 1400 acks off",
            "policy forced min 600",
        ];
        stream.during(|| {
            for words in words {
                ground.works(&format!("change aggregate right {words}"));
                service.says("aggregate right: changed");
            }
        });
        let shown = ground.shown("right");
        assert_eq!(shown["policy"], "forced", "{engine}: {shown}");
        assert_eq!(shown["hops"]["10.8.0.2"]["max"], 1400, "{engine}: {shown}");
        assert_eq!(shown["hops"]["10.8.0.2"]["splits"], "yes", "{engine}: {shown}");
        service.stop();
    }
}

#[test]
fn whom_aggregation_is_for_changes_without_a_loss_and_counters_go_on() {
    for engine in ENGINES {
        let ground = Ground::new();
        ground.split();
        let line = format!("aggregate dev right policy forced engine {engine} peer 10.8.0.2");
        let mut service = Service::aggregate(&ground, &line);
        let sent = |ground: &Ground| ground.shown("right")["total"]["meta_packets"].as_u64();
        let mut stream = ground.stream("10.8.0.2");
        stream.batch();
        let before = sent(&ground);
        stream.during(|| {
            for words in ["peer any", "probe off", "probe on peer 10.8.0.2", "peer any"] {
                ground.works(&format!("change aggregate right {words}"));
                service.says("10.8.0.2 splits");
            }
        });
        let after = sent(&ground);
        assert!(after > before, "{engine}: {before:?} {after:?}");
        service.stop();
    }
}

#[test]
fn the_engine_of_aggregation_changes_without_a_loss() {
    let ground = Ground::new();
    ground.split();
    let line = "aggregate dev right policy forced engine kernel peer 10.8.0.2";
    let mut service = Service::aggregate(&ground, line);
    let mut stream = ground.stream("10.8.0.2");
    stream.during(|| {
        for engine in ["user", "kernel"] {
            ground.works(&format!("change aggregate right engine {engine}"));
            service.says_all(&[&format!("engine {engine} "), "10.8.0.2 splits"]);
        }
    });
    service.stop();
}

#[test]
fn what_aggregation_cannot_become_is_refused_and_changes_nothing() {
    let ground = Ground::new();
    let line = "aggregate dev right policy forced engine user peer 10.8.0.2 max 1300";
    let _service = Service::start(&ground, line);
    for (words, reason) in [
        ("policy frob", "give busy or forced"),
        ("max 99999", "give 100 to 2048 bytes"),
        ("max 2000", "above the MTU of right, 1500"),
        ("min 1400", "min 1400 is above max 1300"),
        ("hold 5", "hold 5 has no unit"),
        ("dev left", "dev: cannot change while running; restart"),
        ("to 192.0.2.1", "no route leads to 192.0.2.1"),
        ("polcy busy", "did you mean \"policy\""),
    ] {
        ground.refuses(&format!("change aggregate right {words}"), reason);
    }
    ground.refuses("change aggregate near policy busy", "sheaf: aggregate near does not run here");
    ground.refuses("change aggregate dev right max 99999", "aggregate right: max 99999");
    ground.refuses("change aggregate right", "change says nothing");
    ground.refuses("change agregate right policy busy", "did you mean \"aggregate\"");
    assert_eq!(ground.shown("right")["policy"], "forced");
}

#[test]
fn window_control_takes_over_words_and_loses_no_packet() {
    let ground = Ground::new();
    let mut service = Service::start(&ground, "window dev right capacity 20mbit");
    let mut stream = ground.stream("10.8.0.2");
    stream.during(|| {
        for words in ["formula 1", "slack 2ms segments 4", "upload 3mbit", "capacity 8mbit"] {
            ground.works(&format!("change window right {words}"));
            service.says("window right: changed");
        }
    });
    let shown = ground.shown("right");
    let window = &shown["window"];
    assert_eq!(window["formula"], "1", "{shown}");
    let capacity = |at: usize| window["totals"][at]["capacity"].as_f64();
    assert_eq!((capacity(0), capacity(1)), (Some(8e6), Some(3e6)), "{shown}");
    for (words, reason) in [
        ("capacity 10", "capacity 10 has no unit"),
        ("direction upload", "direction: cannot change while running; restart"),
        ("formula 3", "give maxmin, 1 or 2"),
        ("dev left", "dev: cannot change while running; restart"),
    ] {
        ground.refuses(&format!("change window right {words}"), reason);
    }
    service.stop();
}

#[test]
fn a_trunk_takes_over_words_and_loses_no_packet() {
    let ground = Ground::new();
    let [mut here, there] = ground.trunks();
    let duplicates = || {
        let shown = ground.command(1, "show dev t0 --json").output().unwrap();
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        shown[0]["trunk"]["duplicates"].as_u64().unwrap()
    };
    let mut stream = ground.stream("10.99.0.2");
    stream.batch();
    assert_eq!(duplicates(), 0, "nothing is copied yet");
    let copies = format!("copies match proto udp dport {}", stream.port());
    stream.during(|| {
        for words in [&copies, "loose match proto udp dport 9"] {
            ground.works(&format!("change trunk t0 {words}"));
            here.says("trunk t0: changed");
        }
    });
    stream.batch();
    assert!(duplicates() > 0, "all is copied");
    for (words, reason) in [
        ("scheduler rr", "scheduler: cannot change while running; restart"),
        ("mtu 1300", "mtu: cannot change while running; restart"),
        ("copies match proto udp dport x", "dport"),
        ("schedular rr", "did you mean \"scheduler\""),
    ] {
        ground.refuses(&format!("change trunk t0 {words}"), reason);
    }
    here.stop();
    there.stop();
}

#[test]
fn an_emulated_link_takes_over_words_and_loses_no_packet() {
    let ground = Ground::new();
    let mut service = Service::start(&ground, "emulate dev right both rate 50mbit delay 1ms");
    let mut stream = ground.stream("10.8.0.2");
    stream.during(|| {
        for words in ["rate 20mbit delay 5ms", "delay 2ms", "rate 100mbit sched drr queue 0"] {
            ground.works(&format!("change emulate right {words}"));
            service.says("emulate right: changed");
        }
        ground.works("emulate change dev right rate 30mbit delay 3ms");
        let line = service.says("emulating right egress and right ingress; ");
        assert!(line.contains("right egress: rate 30mbit delay 3ms"), "{line}");
    });
    let shown = ground.shown("right");
    let settings = &shown["emulate"]["links"]["right egress"]["settings"];
    assert_eq!((&settings["rate_bps"], &settings["delay_ms"]), (&30_000_000.into(), &3.0.into()));
    for (words, reason) in [
        ("delay 20", "delay 20 has no unit; write 20ms"),
        ("rate 1", "rate 1 has no unit"),
        ("loss 101%", "is not a percentage"),
        ("pipe slow delay 1ms", "there are no pipes here"),
    ] {
        ground.refuses(&format!("change emulate right {words}"), reason);
        ground.refuses(&format!("emulate change dev right {words}"), reason);
    }
    let still = ground.shown("right")["emulate"]["links"]["right egress"]["settings"].clone();
    assert_eq!(&still, settings);
    service.stop();
}

#[test]
fn an_emulated_link_says_what_it_is_and_stops_by_command() {
    let ground = Ground::new();
    let before = ground.state();
    let mut service = Service::spawn(
        ground.command(0, "emulate dev right egress rate 10mbit delay 20ms loss 1% seed 7"),
    );
    let first = service.line().unwrap();
    let settings = "rate 10mbit delay 20ms loss 1%";
    assert!(first.starts_with(&format!("emulating right egress; right egress: {settings}")));
    assert!(first.ends_with("; seed 7"), "{first}");
    for line in ["emulate show right", "show dev right", "show"] {
        let text = ground.works(line);
        assert!(text.contains(settings), "{line}: {text}");
    }
    let shown = ground.shown("right")["emulate"]["links"]["right egress"]["settings"].clone();
    assert_eq!(shown["rate_bps"], 10_000_000, "{shown}");
    assert_eq!((shown["delay_ms"].as_f64(), shown["loss"].as_f64()), (Some(20.0), Some(0.01)));

    ground.works("emulate stop right");
    let (status, said) = service.end();
    assert!(status.success(), "{said:#?}");
    assert!(said.iter().any(|line| line.contains("stopped by request")), "{said:#?}");
    assert_eq!(ground.state(), before);
    ground.refuses("emulate stop right", "nothing emulates on right");
}

#[test]
fn all_services_of_a_host_are_shown() {
    let ground = Ground::new();
    ground.split();
    let [_here, _there] = ground.trunks();
    let _services = [
        "aggregate dev right engine kernel peer 10.8.0.2",
        "window dev t0 capacity 20mbit",
        "emulate dev near egress delay 1ms",
    ]
    .map(|line| Service::start(&ground, line));
    let text = ground.works("show");
    for part in [
        "right: engine kernel",
        "t0: windows by formula maxmin",
        "t0: trunk established",
        "emulating near egress",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let all: serde_json::Value = serde_json::from_str(&ground.works("show --json")).unwrap();
    let names: Vec<_> = all.as_array().unwrap().iter().map(|one| &one["interface"]).collect();
    assert_eq!(names, ["near", "right", "t0"]);
}
