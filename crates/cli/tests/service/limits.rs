//! Processes that may open few files.

use crate::ground::{Ground, Service, errors};
use std::path::Path;
use std::process::Command;

/// Too few for any service; a process needs some to load its libraries.
const FEW: u32 = 16;
/// Every service gets along with this many.
const NEEDED: u32 = 128;

/// State of the first host, but for the place of filters, which stays with its interface.
fn state(ground: &Ground) -> Vec<String> {
    let mut state = ground.state();
    state.retain(|line| !line.contains("clsact"));
    state
}

#[test]
fn with_few_descriptors_a_service_says_so_and_leaves_nothing_behind() {
    let ground = Ground::new();
    let before = state(&ground);
    for line in [
        "aggregate dev right engine kernel policy forced peer 10.8.0.2",
        "aggregate dev right engine user policy forced peer 10.8.0.2",
        "split dev right peer 10.8.0.2",
        "window dev right capacity 20mbit",
        "emulate dev right both delay 1ms",
        &ground.trunk(0),
    ] {
        for limit in [FEW, NEEDED - 1] {
            let prefix = format!("--nofile={limit}:{limit}");
            let output = ground.under(0, &["prlimit", &prefix], line).output().unwrap();
            let said = errors(&output);
            assert_eq!(output.status.code(), Some(2), "{line}, {limit}: {said}");
            let reason = format!("needs {NEEDED} open files, and the limit is {limit}; raise it");
            assert!(said.contains(&reason) && said.lines().count() == 1, "{line}: {said}");
            assert_eq!(state(&ground), before, "{line} with {limit} descriptors");
        }
        if line.starts_with("split") {
            continue;
        }
        for limits in [format!("{NEEDED}:{NEEDED}"), format!("{FEW}:{NEEDED}")] {
            let prefix = format!("--nofile={limits}");
            let mut service = Service::spawn(ground.under(0, &["prlimit", &prefix], line));
            service.is_at_work();
            service.stop();
        }
        if line.contains("engine kernel") {
            ground.works("split dev right off");
        }
    }
}

/// The lowest number that no descriptor of a running service has.
fn lowest_free(service: &Service) -> u32 {
    let is_free =
        |number: &u32| !Path::new(&format!("/proc/{}/fd/{number}", service.id())).is_symlink();
    (0..).find(is_free).unwrap()
}

/// Sets the limit of open files of a running service.
fn limit(service: &Service, files: u32) {
    let (id, limit) = (format!("--pid={}", service.id()), format!("--nofile={files}:"));
    let output = Command::new("prlimit").args([id, limit]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
}

#[test]
fn a_service_that_runs_out_of_descriptors_says_so_goes_on_and_recovers() {
    let ground = Ground::new();
    ground.split();
    let _there = Service::start_on(&ground, 1, &ground.trunk(1));
    for (line, to) in [
        ("aggregate dev right engine kernel policy forced peer 10.8.0.2", "10.8.0.2"),
        ("aggregate dev right engine user policy forced peer 10.8.0.2", "10.8.0.2"),
        ("window dev right capacity 20mbit", "10.8.0.2"),
        ("emulate dev right egress delay 1ms", "10.8.0.2"),
        (&ground.trunk(0), "10.99.0.2"),
    ] {
        let mut service = match line.starts_with("aggregate") {
            true => Service::aggregate(&ground, line),
            false => Service::start(&ground, line),
        };
        if line.starts_with("trunk") {
            (0..2).for_each(|_| drop(service.says(" is up")));
        }
        let mut stream = ground.stream(to);
        stream.during(|| {
            limit(&service, lowest_free(&service));
            service.says("Too many open files");
        });
        limit(&service, 1024);
        stream.during(|| ground.works("show"));
        service.stop();
    }
}
