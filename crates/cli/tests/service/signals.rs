//! Ends of services: in order, by a signal that they cannot catch, and what a new start finds.

use crate::ground::{Ground, SHEAF, Service};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sheaf_netio::netns::Namespace;
use std::io::Read;
use std::process::{Command, Stdio};

/// Sequence that a program sends to a terminal to give back the screen that was there before it.
const SCREEN_BACK: &str = "\x1b[?1049l";

/// Services on the first host, and the address that packets pass them to.
fn services(ground: &Ground) -> [(String, &'static str); 6] {
    [
        ("aggregate dev right engine kernel policy forced peer 10.8.0.2".to_owned(), "10.8.0.2"),
        ("aggregate dev right engine user policy forced peer 10.8.0.2".to_owned(), "10.8.0.2"),
        ("window dev right capacity 20mbit".to_owned(), "10.8.0.2"),
        ("emulate dev right both delay 1ms".to_owned(), "10.8.0.2"),
        ("emulate dev right egress rate 50mbit".to_owned(), "10.8.0.2"),
        (ground.trunk(0), "10.99.0.2"),
    ]
}

/// The host as it is without Sheaf. Commands of aggregation leave a splitter by design.
fn bare(ground: &Ground) -> Vec<String> {
    if ground.sheaf("show dev right").status.success() {
        ground.works("split dev right off");
    }
    let mut state = ground.state();
    // The place of filters stays with the interface.
    state.retain(|line| !line.contains("clsact"));
    state
}

#[test]
fn signals_that_end_a_service_leave_nothing_and_a_hangup_ends_none() {
    let ground = Ground::new();
    ground.split();
    let _there = Service::start_on(&ground, 1, &ground.trunk(1));
    let before = bare(&ground);
    for (line, to) in services(&ground) {
        for signal in [Signal::SIGTERM, Signal::SIGINT] {
            let mut service = Service::start(&ground, &line);
            if line.starts_with("trunk") {
                service.says(" is up");
            }
            let mut stream = ground.stream(to);
            stream.during(|| {
                service.signal(Signal::SIGHUP);
                service.says("SIGHUP changes nothing; goes on");
            });
            service.signal(signal);
            let (status, said) = service.end();
            assert!(status.success(), "{line}: {said:#?}");
            assert_eq!(bare(&ground), before, "{line} after {signal}");
            if to == "10.8.0.2" {
                stream.batch();
            }
        }
    }
}

#[test]
fn a_service_that_is_killed_is_as_if_it_had_never_been_and_a_new_one_takes_over() {
    let ground = Ground::new();
    ground.split();
    let _there = Service::start_on(&ground, 1, &ground.trunk(1));
    for (line, to) in services(&ground) {
        let service = Service::start(&ground, &line);
        service.signal(Signal::SIGKILL);
        let (status, said) = service.end();
        assert!(!status.success(), "{said:#?}");
        if to == "10.8.0.2" {
            ground.stream(to).batch();
        }
        let mut again = Service::start(&ground, &line);
        if line.starts_with("trunk") {
            again.says(" is up");
        }
        ground.stream(to).batch();
        again.stop();
    }
}

#[test]
fn a_stream_beside_a_service_that_ends_in_order_loses_nothing() {
    let ground = Ground::new();
    ground.split();
    // What is on the way of an emulated link at its end is lost like in a cable that is cut.
    for (line, to) in services(&ground).into_iter().take(3) {
        let mut stream = ground.stream(to);
        for _ in 0..3 {
            let service = match line.starts_with("aggregate") {
                true => Service::aggregate(&ground, &line),
                false => Service::start(&ground, &line),
            };
            stream.during(|| service.stop());
        }
    }
}

#[test]
fn the_supervisor_ends_its_services_and_leaves_nothing() {
    let ground = Ground::new();
    let before = ground.state();
    let text = "[[window]]\ndev = \"right\"\ncapacity = \"20mbit\"\n\
                [[emulate]]\ndev = \"near\"\ndelay = \"1ms\"\n\
                [metrics]\nlisten = \"127.0.0.1:9477\"\n";
    let file = ground.write("sheaf.toml", text);
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut run = Service::spawn(ground.command(0, &format!("run -c {file}")));
        run.says_all(&[
            "window right: at work",
            "emulate near: at work",
            "metrics 127.0.0.1:9477: at work",
        ]);
        run.signal(Signal::SIGHUP);
        run.says("no section changed");
        run.signal(signal);
        let (status, said) = run.end();
        assert!(status.success(), "{said:#?}");
        assert_eq!(ground.state(), before, "after {signal}");
    }
}

#[test]
fn signals_end_the_live_view_in_order_and_the_terminal_is_as_before() {
    let host = Namespace::new().unwrap();
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM] {
        let line = format!("stty rows 24 cols 80; exec {SHEAF} top");
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        host.enter(&mut command);
        let mut script = command.spawn().unwrap();
        let (mut screen, mut shown) = (script.stdout.take().unwrap(), String::new());
        while !shown.contains("q ends") {
            let mut bytes = [0; 4096];
            let count = screen.read(&mut bytes).unwrap();
            assert!(count > 0, "{signal}: it ended: {shown:?}");
            shown += &String::from_utf8_lossy(&bytes[..count]);
        }
        let children = format!("/proc/{0}/task/{0}/children", script.id());
        let top = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
        kill(Pid::from_raw(top), signal).unwrap();
        let status = script.wait().unwrap();
        screen.read_to_string(&mut shown).unwrap();
        assert_eq!(status.code(), Some(0), "{signal}: {shown:?}");
        assert!(shown.contains(SCREEN_BACK), "{signal}: {shown:?}");
    }
}

#[test]
fn the_listener_for_metrics_ends_as_services_do() {
    let ground = Ground::new();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut listener = Service::spawn(ground.command(0, "metrics listen 10.8.0.1:9477"));
        listener.says("metrics under http://10.8.0.1:9477/metrics");
        listener.signal(Signal::SIGHUP);
        listener.says("SIGHUP changes nothing; goes on");
        listener.signal(signal);
        let (status, said) = listener.end();
        assert!(status.success(), "{signal}: {said:#?}");
    }
}
