//! Processes that may open few files.

use crate::ground::{Ground, Service, begins, errors};
use std::process::Command;

/// A process with fewer has its three streams alone.
const FEWEST: u32 = 4;
/// Status of a process whose libraries could not be loaded, before it runs.
const NOT_LOADED: i32 = 127;
/// Every service gets along with this many.
const ENOUGH: u32 = 120;

/// What is on the first host, but for the place of filters, which stays with its interface.
fn state(ground: &Ground) -> Vec<String> {
    let mut state = ground.state();
    state.retain(|line| !line.contains("clsact"));
    state
}

/// Starts `line` with fewer and fewer lacking descriptors until it is at work; each failure is one
/// line that says so, and leaves nothing.
fn grows(ground: &Ground, line: &str) -> Service {
    let before = state(ground);
    for limit in FEWEST..ENOUGH {
        let prefix = format!("--nofile={limit}:{limit}");
        let mut service = Service::spawn(ground.under(0, &["prlimit", &prefix], line));
        let mut last = String::new();
        loop {
            match service.line() {
                Some(said) if begins(&said) => return service,
                Some(said) => last = said,
                None => break,
            }
        }
        let (status, said) = service.end();
        if status.code() == Some(NOT_LOADED) {
            continue;
        }
        assert_eq!(status.code(), Some(2), "{line} with {limit} descriptors: {said:#?}");
        assert!(last.contains("raise the limit of open files"), "{line}, {limit}: {said:#?}");
        let splitter = ground.sheaf("split dev right off");
        assert!(!splitter.status.success(), "{line}, {limit}: a splitter is left");
        assert_eq!(state(ground), before, "{line} with {limit} descriptors: {said:#?}");
    }
    panic!("{line} does not start with {ENOUGH} descriptors");
}

#[test]
fn with_few_descriptors_a_service_says_so_and_leaves_nothing_behind() {
    let ground = Ground::new();
    for line in [
        "aggregate dev right engine kernel policy forced peer 10.8.0.2",
        "aggregate dev right engine user policy forced peer 10.8.0.2",
        "window dev right capacity 20mbit",
        "emulate dev right both delay 1ms",
        &ground.trunk(0),
    ] {
        grows(&ground, line).stop();
        if line.starts_with("aggregate") && line.contains("kernel") {
            ground.works("split dev right off");
        }
    }
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
            limit(&service, FEWEST);
            service.says("Too many open files");
        });
        limit(&service, 1024);
        stream.during(|| ground.works("show"));
        service.stop();
    }
}
