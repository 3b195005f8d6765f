//! How services end: in order, by a signal that they cannot catch, and what a new start finds.

use crate::ground::{Ground, Service};
use nix::sys::signal::Signal;

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
