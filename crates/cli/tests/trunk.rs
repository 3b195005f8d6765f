//! `sheaf trunk` between two hosts joined by several cables. Needs root.

mod pair;
mod patient;

use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;
use pair::{Pair, Service, Trunk, number, run};
use patient::patient;
use sheaf_netio::packet::PacketSocket;
use sheaf_netio::{clock, ip};
use sheaf_stage::Duration;
use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use tempfile::TempDir;

/// Sends files, ten at most, until what the links carried of one is `right`: the difference that it
/// made to counter `what` of each. Returns what `sheaf show` says then.
///
/// A machine that gives nobody a turn for a while makes a link look slow, and it takes frames to
/// learn better.
fn files_until(
    pair: &Pair,
    here: &Trunk<'_>,
    what: &str,
    right: impl Fn(&[u64]) -> bool,
) -> serde_json::Value {
    let counts = |shown: &serde_json::Value| -> Vec<u64> {
        shown["links"].as_array().unwrap().iter().map(|link| number(link, &[what])).collect()
    };
    let mut before = counts(&here.shown());
    for port in 5001..5011 {
        pair.transfer(&format!("10.99.0.2:{port}"), 6 << 20);
        let shown = here.shown();
        let after = counts(&shown);
        let carried: Vec<_> =
            after.iter().zip(&before).map(|(after, before)| after - before).collect();
        if right(&carried) {
            return shown;
        }
        before = after;
    }
    panic!("the links share none of ten files as they should: {}", here.shown());
}

#[test]
fn a_file_arrives_whole_over_three_cables_of_frames_and_all_of_them_carry_it() {
    let pair = Pair::new(3).shaped(&[20, 20, 20]);
    let (here, there) = pair.trunks(&pair.frames());
    let right = |frames: &[u64]| frames.iter().all(|frames| *frames > 1000);
    let sent = files_until(&pair, &here, "frames_sent", right);
    assert_eq!(there.shown()["refused"], serde_json::json!({}));
    assert_eq!(sent["mtu"], 1492, "the header is 8 bytes");
}

#[test]
fn a_file_arrives_whole_over_unequal_paths_and_both_carry_their_share() {
    let pair = Pair::new(2).shaped(&[20, 10]);
    let (here, _there) = pair.trunks(&pair.paths());
    let right = |bytes: &[u64]| bytes[0] > bytes[1] && bytes[1] > bytes[0] / 4;
    files_until(&pair, &here, "bytes_sent", right);
}

#[test]
fn paths_of_ipv4_and_ipv6_and_frames_mix_and_the_narrowest_rules_the_mtu() {
    let pair = Pair::new(3).shaped(&[20, 20, 20]);
    let members = [
        ["path 10.1.0.1 10.1.0.2".to_owned(), "path 10.1.0.2 10.1.0.1".to_owned()],
        ["path fd01:1::1 fd01:1::2".to_owned(), "path fd01:1::2 fd01:1::1".to_owned()],
        ["dev if2 peer 10.1.2.2".to_owned(), "dev if2 peer fd01:3::1".to_owned()],
    ];
    let (here, there) = pair.trunks(&members);
    assert_eq!(here.shown()["mtu"], 1500 - 48 - 8);
    assert_eq!(pair.hosts[0].run(|| ip::mtu("t0")).unwrap(), 1500 - 48 - 8);
    pair.transfer("[fd99::2]:5001", 1 << 20);
    let right = |frames: &[u64]| frames.iter().all(|frames| *frames > 100);
    let sent = files_until(&pair, &here, "frames_sent", right);
    let received = there.shown();
    for link in ["0", "1", "2"] {
        assert!(number(&received, &["links", link, "frames_received"]) > 100, "{received}");
    }
    let mac = "02:00:00:00:02:02";
    assert_eq!(sent["links"][2]["peer"], mac, "found in the neighbour table");
}

#[test]
fn window_control_on_a_trunk_lets_a_longer_queue_stand_and_on_a_link_of_it_does_not() {
    let pair = Pair::new(2);
    let (_here, _there) = pair.trunks(&pair.paths());
    for (words, says) in [
        ("t0 capacity 28mbit", "maxmin, slack 5ms on a trunk, "),
        ("t0 capacity 28mbit slack 7ms", "maxmin, slack 7ms on a trunk, "),
        ("if0 capacity 20mbit", "maxmin, download "),
    ] {
        let (dev, _) = words.split_once(' ').unwrap();
        let first = format!("controlling windows on {dev}: formula {says}");
        let _window = Service::start(&pair.hosts[0], &format!("window dev {words}"), &first);
    }
}

#[test]
fn a_server_of_several_addresses_replies_from_the_one_that_the_other_end_has() {
    let pair = Pair::new(2);
    for address in ["10.1.0.9/24 dev if0", "fd01:2::9/64 dev if1 nodad"] {
        pair.hosts[1].run(|| ip::run(&format!("addr add {address}"))).unwrap();
    }
    let members = [
        ["path 10.1.0.1 10.1.0.9".to_owned(), "path 0.0.0.0".to_owned()],
        ["path fd01:2::1 fd01:2::9".to_owned(), "path ::".to_owned()],
    ];
    let (here, _there) = pair.trunks(&members);
    pair.transfer("10.99.0.2:5001", 1 << 20);
    let shown = here.shown();
    for (link, peer) in [("0", "10.1.0.9:7431"), ("1", "[fd01:2::9]:7431")] {
        assert_eq!(shown.pointer(&format!("/links/{link}/peer")).unwrap(), peer);
        assert_eq!(number(&shown, &["links", link, "moves"]), 0, "{shown}");
    }
}

#[test]
fn every_scheduler_carries_a_file() {
    for scheduler in ["earliest", "rr", "srr", "trr", "redundant"] {
        let pair = Pair::new(2);
        let (here, there) = pair.trunks_with(&pair.frames(), &format!("scheduler {scheduler}"));
        pair.transfer("10.99.0.2:5001", 1 << 20);
        let (sent, received) = (here.shown(), there.shown());
        let twice = number(&received, &["duplicates"]) > 0;
        assert_eq!(twice, scheduler == "redundant", "{sent} {received}");
    }
}

#[test]
fn a_cable_that_is_pulled_under_load_costs_no_byte_and_carries_again_when_it_is_back() {
    let pair = Pair::new(3).shaped(&[20, 20, 20]);
    let (mut here, mut there) = pair.trunks(&pair.frames());
    let mut flow = pair.flow("10.99.0.2:5001", 8 << 20);
    flow.receive(2 << 20);
    pair.hosts[0].run(|| ip::run("link del if1")).unwrap();
    here.wait_for("link dev if1 peer 02:00:00:00:01:02 is down");
    there.wait_for("link dev if1 peer 02:00:00:00:01:01 is down");
    flow.finish();
    let shown = here.shown();
    assert_eq!(shown["links"][1]["carrier"], false, "{shown}");
    // Not "used" at any moment: one may be tried alone, as hosts saw what was lost with the cable.
    for link in [0, 2] {
        assert_eq!(shown["links"][link]["up"], true, "{shown}");
    }
    let before = number(&shown, &["links", "1", "frames_sent"]);
    pair.plug(1);
    here.wait_for("is up");
    there.wait_for("is up");
    pair.transfer("10.99.0.2:5002", 4 << 20);
    let after = number(&here.shown(), &["links", "1", "frames_sent"]);
    assert!(after > before + 100, "{before} {after}");
}

#[test]
fn a_path_on_a_low_port_is_opened_again_after_its_interface_was_gone() {
    let pair = Pair::new(1);
    let members = ["path 10.1.0.1:443 10.1.0.2:443", "path 10.1.0.2:443 10.1.0.1:443"];
    let (mut here, mut there) = pair.trunks(&[members.map(str::to_owned)]);
    pair.hosts[0].run(|| ip::run("link del if0")).unwrap();
    here.wait_for("is down");
    there.wait_for("is down");
    pair.plug(0);
    here.wait_for("is up");
    there.wait_for("is up");
    pair.transfer("10.99.0.2:5001", 1 << 20);
}

#[test]
fn a_path_that_falls_silent_under_load_loses_what_was_in_flight_and_the_rest_goes_on() {
    let pair = Pair::new(3).shaped(&[20, 20, 20]);
    let (mut here, there) = pair.trunks(&pair.paths());
    let mut flow = pair.flow("10.99.0.2:5001", 12 << 20);
    flow.receive(4 << 20);
    // Nothing leaves any more on cable 1, and nobody says so.
    for host in &pair.hosts {
        pair.tc(host, "qdisc replace dev if1 root pfifo limit 0");
    }
    here.wait_for("link path 10.1.1.1:7431 10.1.1.2:7431 is down");
    flow.finish();
    let (sent, received) = (here.shown(), there.shown());
    let lost = number(&sent, &["links", "1", "frames_sent"])
        - number(&received, &["links", "1", "frames_received"]);
    // A fifth of a second at 20 Mbit/s, and the probes of the silent time.
    assert!(lost < 400, "{lost} frames lost: {sent}");
    pair.shape(1, 20);
    here.wait_for("is up");
    pair.transfer("10.99.0.2:5002", 4 << 20);
}

#[test]
fn a_device_that_tells_its_queue_is_kept_busy_and_drops_nothing() {
    let pair = Pair::new(2).shaped(&[20, 20]);
    // The queue holds 66 packets of 1514 bytes.
    let ends = |cable, host| format!("dev if{cable} queue 66 peer 02:00:00:00:0{cable}:0{host}");
    let members = [0, 1].map(|cable| [ends(cable, 2), ends(cable, 1)]);
    let (here, _there) = pair.trunks(&members);
    pair.transfer("10.99.0.2:5001", 4 << 20);
    let shown = here.shown();
    for (link, dev) in [("0", "if0"), ("1", "if1")] {
        assert!(number(&shown, &["links", link, "frames_sent"]) > 500, "{shown}");
        let queue = pair.tc(&pair.hosts[0], &format!("-s qdisc show dev {dev}"));
        assert!(queue.contains("(dropped 0,"), "{queue}");
    }
}

#[test]
fn a_device_that_takes_frames_and_tells_nothing_has_its_rate_learned_all_the_same() {
    let pair = Pair::new(2);
    let ends = |cable, host| format!("dev if{cable} queue 66 peer 02:00:00:00:0{cable}:0{host}");
    let members = [0, 1].map(|cable| [ends(cable, 2), ends(cable, 1)]);
    let (here, _there) = pair.trunks(&members);
    pair.transfer("10.99.0.2:5001", 16 << 20);
    let shown = here.shown();
    // What is never found full never shows its rate: it would stay at the 4 Mbit/s of the
    // beginning.
    let fastest =
        ["0", "1"].map(|link| number(&shown, &["links", link, "rate_bps"])).into_iter().max();
    assert!(fastest > Some(20_000_000), "{shown}");
}

#[test]
fn either_end_may_be_killed_and_start_anew_and_leaves_nothing_behind() {
    let pair = Pair::new(2);
    let members = pair.paths();
    let (mut here, there) = pair.trunks(&members);
    pair.transfer("10.99.0.2:5001", 1 << 20);
    there.kill();
    assert!(!pair.hosts[1].run(ip::names).unwrap().contains(&"t0".to_owned()));
    let mut there = Trunk::start(&pair.hosts[1], &pair.line(1, &members));
    (0..2).for_each(|_| there.wait_for("is up"));
    pair.transfer("10.99.0.2:5002", 1 << 20);
    assert_eq!(here.shown()["sessions"], 2);
    here.kill();
    here = Trunk::start(&pair.hosts[0], &pair.line(0, &members));
    (0..2).for_each(|_| here.wait_for("is up"));
    pair.transfer("10.99.0.2:5003", 1 << 20);
    assert_eq!(there.shown()["sessions"], 2, "it has itself started anew since the first");
}

#[test]
fn a_signal_ends_it_with_its_statistics_and_the_interface_goes() {
    let pair = Pair::new(1);
    let (mut here, _there) = pair.trunks(&pair.paths());
    let process = Pid::from_raw(here.process() as i32);
    nix::sys::signal::kill(process, Signal::SIGTERM).unwrap();
    here.wait_for("t0: trunk established plain scheduler earliest mtu 1464");
    here.wait_for("link path 10.1.0.1:7431 10.1.0.2:7431: up");
    assert!(here.end().success());
    assert!(!pair.hosts[0].run(ip::names).unwrap().contains(&"t0".to_owned()));
}

#[test]
fn an_address_behind_a_nat_is_learned_again_when_it_moves_and_no_stranger_moves_it() {
    let pair = Pair::new(1);
    let server = "trunk t0 path 10.1.0.2 plain address 10.99.0.2/24";
    let client =
        |port| format!("trunk t0 path 10.1.0.1:{port} 10.1.0.2 plain address 10.99.0.1/24");
    let mut there = Trunk::start(&pair.hosts[1], server);
    let mut here = Trunk::start(&pair.hosts[0], &client(1111));
    there.wait_for("is up");
    here.wait_for("is up");
    pair.transfer("10.99.0.2:5001", 1 << 20);
    let peer = |there: &Trunk<'_>| there.shown()["links"][0]["peer"].as_str().unwrap().to_owned();
    assert_eq!(peer(&there), "10.1.0.1:1111");

    // A stranger greets: he gets one answer, and that is all.
    let stranger = pair.hosts[0].run(|| UdpSocket::bind("10.1.0.1:2222")).unwrap();
    stranger.send_to(&hello(0x5555, 0), "10.1.0.2:7431").unwrap();
    let mut answer = [0; 64];
    assert_eq!(patient(|| stranger.recv(&mut answer)).unwrap(), 20, "a challenge");
    stranger.send_to(&data(0), "10.1.0.2:7431").unwrap();
    pair.transfer("10.99.0.2:5002", 1 << 20);
    assert_eq!(peer(&there), "10.1.0.1:1111");
    assert_eq!(number(&there.shown(), &["links", "0", "strangers"]), 1, "who greets is challenged");

    here.kill();
    let mut here = Trunk::start(&pair.hosts[0], &client(3333));
    here.wait_for("is up");
    pair.transfer("10.99.0.2:5003", 1 << 20);
    assert_eq!(peer(&there), "10.1.0.1:3333");
    assert_eq!(number(&there.shown(), &["links", "0", "moves"]), 2);
}

#[test]
fn a_path_that_names_its_interface_alone_lives_through_another_lease() {
    let pair = Pair::new(1);
    let mut there = Trunk::start(&pair.hosts[1], "trunk t0 path if0 plain address 10.99.0.2/24");
    let line = "trunk t0 path if0 10.1.0.2 plain address 10.99.0.1/24";
    let mut here = Trunk::start(&pair.hosts[0], line);
    there.wait_for("is up");
    here.wait_for("is up");
    pair.transfer("10.99.0.2:5001", 1 << 20);
    let lease = || {
        ip::run("addr add 10.1.0.77/24 dev if0")?;
        ip::run("addr del 10.1.0.1/24 dev if0")?;
        // The second address of a network is deleted along with the first (promote_secondaries).
        ip::run("addr replace 10.1.0.77/24 dev if0")
    };
    pair.hosts[0].run(lease).unwrap();
    pair.transfer("10.99.0.2:5002", 1 << 20);
    assert_eq!(there.shown()["links"][0]["peer"], "10.1.0.77:7431");
}

#[test]
fn a_trunk_begins_with_the_links_whose_interfaces_are_there_and_takes_the_others_later() {
    let pair = Pair::new(1);
    let server = "trunk t0 path if0 path if1 plain address 10.99.0.2/24";
    let client = "trunk t0 path if0 10.1.0.2 path if1 10.1.1.2 plain address 10.99.0.1/24";
    let mut there = Trunk::start(&pair.hosts[1], server);
    let mut here = Trunk::start(&pair.hosts[0], client);
    there.wait_for("@if0 is up");
    here.wait_for("is up");
    pair.transfer("10.99.0.2:5001", 1 << 20);
    pair.plug(1);
    here.wait_for("is up");
    there.wait_for("is up");
    pair.transfer("10.99.0.2:5002", 1 << 20);
    let none = run(&pair.hosts[0], "trunk t1 path if7 path if8:7432 plain");
    let said = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(!none.status.success() && said.contains("if7"), "{said}");
}

#[test]
fn links_of_one_port_carry_fail_and_move_each_by_itself() {
    let key = sheaf_key();
    for seal in ["plain".to_owned(), format!("key {}", key.path().display())] {
        let pair = Pair::new(2).shaped(&[20, 20]);
        let server = format!("trunk t0 path 0.0.0.0 path 0.0.0.0 {seal} address 10.99.0.2/24");
        let client = format!(
            "trunk t0 path if0 10.1.0.2 path if1:1111 10.1.1.2 {seal} address 10.99.0.1/24"
        );
        let mut there = Trunk::start(&pair.hosts[1], &server);
        let mut here = Trunk::start(&pair.hosts[0], &client);
        there.wait_for("is up");
        there.wait_for("is up");
        (0..2).for_each(|_| here.wait_for("is up"));
        let right = |frames: &[u64]| frames.iter().all(|frames| *frames > 1000);
        files_until(&pair, &here, "frames_sent", right);
        let shown = there.shown();
        assert_eq!(shown["refused"], serde_json::json!({}), "{seal}");
        for (link, name, peer) in [
            (0, "path 0.0.0.0:7431", "10.1.0.1:7431"),
            (1, "path 0.0.0.0:7431 #2", "10.1.1.1:1111"),
        ] {
            let shown = &shown["links"][link];
            assert_eq!((shown["link"].as_str(), shown["peer"].as_str()), (Some(name), Some(peer)));
            assert!(number(shown, &["frames_received"]) > 1000, "{shown}");
        }
        // Its address changes, as behind a NAT.
        let address = || {
            ip::run("addr del 10.1.1.1/24 dev if1")?;
            ip::run("addr add 10.1.1.77/24 dev if1")?;
            ip::run("addr add 10.1.1.1/24 dev if1")
        };
        pair.hosts[0].run(address).unwrap();
        there.wait_for("#2: the other end is at 10.1.1.77:1111");
        pair.hosts[0].run(|| ip::run("link del if0")).unwrap();
        there.wait_for("link path 0.0.0.0:7431 is down");
        pair.transfer("10.99.0.2:6001", 1 << 20);
        assert_eq!(there.shown()["links"][1]["up"], true, "{seal}");
    }
}

#[test]
fn headers_of_a_file_are_left_out_with_a_key_and_by_the_end_that_wants_it() {
    let key = sheaf_key();
    let pair = Pair::new(2).shaped(&[20, 20]);
    let words = |own: u8, far: u8, more: &str| {
        let path = |link| format!("path 10.1.{link}.{own} 10.1.{link}.{far}");
        let key = key.path().display();
        let (one, two) = (path(0), path(1));
        format!("trunk t0 {one} {two} key {key} {more} address 10.99.0.{own}/24")
    };
    let mut there = Trunk::start(&pair.hosts[1], &words(2, 1, "compress off"));
    let mut here = Trunk::start(&pair.hosts[0], &words(1, 2, ""));
    (0..2).for_each(|_| there.wait_for("is up"));
    (0..2).for_each(|_| here.wait_for("is up"));
    pair.transfer("10.99.0.2:6001", 4 << 20);
    let (sent, got) = (here.shown(), there.shown());
    let compressed = number(&sent, &["packets_compressed"]);
    // Three thousand segments of 1388 bytes, all but the first eight and a round trip of them.
    assert!(compressed > 2000, "{sent}");
    assert!(number(&sent, &["bytes_saved"]) >= 34 * compressed, "{sent}");
    assert!(number(&got, &["packets_restored"]) > 2000, "{got}");
    assert_eq!(number(&got, &["packets_compressed"]), 0, "{got}");
    assert_eq!(number(&sent, &["packets_restored"]), 0, "{sent}");
    for shown in [&sent, &got] {
        assert_eq!(shown["refused"]["unknown-context"], serde_json::Value::Null, "{shown}");
    }
}

/// A key that both ends are given.
fn sheaf_key() -> tempfile::NamedTempFile {
    use std::io::Write;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all("5a".repeat(32).as_bytes()).unwrap();
    file
}

#[test]
fn a_backup_carries_when_the_other_cable_is_pulled_and_not_before() {
    let pair = Pair::new(2).shaped(&[20, 20]);
    let mut members = pair.paths();
    members[1].iter_mut().for_each(|words| words.push_str(" backup"));
    let (mut here, _there) = pair.trunks(&members);
    let carried = |here: &Trunk<'_>| number(&here.shown(), &["links", "1", "bytes_sent"]);
    let before = carried(&here);
    pair.transfer("10.99.0.2:5001", 4 << 20);
    let idle = carried(&here) - before;
    assert!(idle < 200_000, "reports and probes: {idle}");
    pair.hosts[0].run(|| ip::run("link del if0")).unwrap();
    here.wait_for("is down");
    pair.transfer("10.99.0.2:5002", 4 << 20);
    assert!(carried(&here) - before > 4 << 20);
}

#[test]
fn a_link_whose_quota_is_used_up_closes_until_it_is_given_more_and_costs_no_byte_of_a_file() {
    let state = TempDir::new().unwrap();
    let pair = Pair::new(2).shaped(&[20, 20]);
    let mut members = pair.paths();
    let start = |members: &[[String; 2]]| {
        Trunk::start_keeping(&pair.hosts[0], &pair.line(0, members), state.path())
    };
    members[1][0].push_str(" quota 3MB/month");
    let mut there = Trunk::start(&pair.hosts[1], &pair.line(1, &members));
    let mut here = start(&members);
    for trunk in [&mut here, &mut there] {
        (0..2).for_each(|_| trunk.wait_for("is up"));
    }
    // A machine that gives nobody a turn for a while makes the link look slow: ten files at most.
    let used_up = |here: &Trunk<'_>| here.shown()["links"][1]["quota"]["used_up"] == true;
    let ports = (5001..5011).take_while(|_| !used_up(&here));
    ports.for_each(|port| pair.transfer(&format!("10.99.0.2:{port}"), 8 << 20));
    here.wait_for("link path 10.1.1.1:7431 10.1.1.2:7431: 3MB/month are used up; closed until");
    there.wait_for("link path 10.1.1.2:7431 10.1.1.1:7431 is down");
    let used = number(&here.shown(), &["links", "1", "quota", "used_bytes"]);
    assert!((3_000_000..6_000_000).contains(&used), "{used}");
    let text = run(&pair.hosts[0], "show dev t0");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("10.1.1.2:7431: closed, its quota is used up"), "{text}");
    let metrics = run(&pair.hosts[0], "metrics");
    let metrics = String::from_utf8_lossy(&metrics.stdout).into_owned();
    assert!(metrics.contains("sheaf_trunk_link_quota_bytes{"), "{metrics}");

    // It is still closed after a restart, and the file says so after a crash, too.
    nix::sys::signal::kill(Pid::from_raw(here.process() as i32), Signal::SIGTERM).unwrap();
    assert!(here.end().success());
    for port in [5011, 5012] {
        let mut here = start(&members);
        here.wait_for("is up");
        pair.transfer(&format!("10.99.0.2:{port}"), 1 << 20);
        let shown = here.shown();
        let link = &shown["links"][1];
        assert_eq!((&link["carrier"], &link["quota"]["used_up"]), (&false.into(), &true.into()));
        assert_eq!(number(link, &["quota", "used_bytes"]), used, "nothing passes");
        here.kill();
    }

    // A larger quota has what is left of it, and a damaged file is begun anew.
    members[1][0] = members[1][0].replace("3MB", "300MB");
    for (damage, least, most) in [(None, used, 300_000_000), (Some("month 1"), 0, used)] {
        damage.iter().for_each(|text| fs::write(state.path().join("t0.quota"), text).unwrap());
        let mut here = start(&members);
        (0..2).for_each(|_| here.wait_for("is up"));
        let counted = number(&here.shown(), &["links", "1", "quota", "used_bytes"]);
        assert!((least..most).contains(&counted), "{damage:?}: {counted}");
        here.kill();
    }
}

#[test]
fn a_quota_that_cannot_be_kept_is_refused_at_the_start() {
    let state = TempDir::new().unwrap();
    let pair = Pair::new(1);
    let file = state.path().join("file");
    fs::write(&file, "").unwrap();
    let mut sheaf = Command::new(env!("CARGO_BIN_EXE_sheaf"));
    sheaf.args("trunk t0 path 10.1.0.1 quota 1GB/day plain".split(' '));
    pair.hosts[0].enter(&mut sheaf);
    let output = sheaf.env("STATE_DIRECTORY", &file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("STATE_DIRECTORY=/DIRECTORY") && said.lines().count() == 1, "{said}");
    assert!(!pair.hosts[0].run(ip::names).unwrap().contains(&"t0".to_owned()));
}

/// The far end of two uplinks, and a server behind it that is reached over either of them and over
/// the trunk. Returns the two ends' command lines.
fn server_behind_uplinks(pair: &Pair) -> [&'static str; 2] {
    let far = || {
        ip::run("link set lo up")?;
        ip::run("addr add 203.0.113.1/32 dev if0")?;
        ip::run("addr add 203.0.113.2/32 dev if1")?;
        ip::run("addr add 203.0.113.99/32 dev lo")
    };
    pair.hosts[1].run(far).unwrap();
    // As two DHCP clients leave them.
    let uplinks = || {
        ip::run("route add default via 10.1.0.2 dev if0 metric 100")?;
        ip::run("route add default via 10.1.1.2 dev if1 metric 200")
    };
    pair.hosts[0].run(uplinks).unwrap();
    [
        "trunk t0 path if0 203.0.113.1 path if1 203.0.113.2 plain address 10.99.0.1/24",
        "trunk t0 path 203.0.113.1 path 203.0.113.2 plain address 10.99.0.2/24",
    ]
}

/// Waits until the way to the server behind the uplinks is over `dev`: the kernel takes note of a
/// carrier up to a second after it changed (linkwatch), and a connection keeps the address that it
/// begins with.
fn until_routed(pair: &Pair, dev: &str) {
    let give_up = clock::now() + Duration::from_secs(30);
    loop {
        let way = pair.hosts[0].run(|| ip::output("route get 203.0.113.99")).unwrap();
        if way.contains(&format!(" dev {dev} ")) {
            return;
        }
        assert!(clock::now() < give_up, "not over {dev}: {way}");
        std::thread::yield_now();
    }
}

/// Whether a megabyte to the server behind the uplinks takes the trunk.
fn takes_trunk(pair: &Pair, here: &Trunk<'_>, port: u16) -> bool {
    let sent = || number(&here.shown(), &["packets_sent"]);
    let before = sent();
    pair.transfer(&format!("203.0.113.99:{port}"), 1 << 20);
    sent() - before > 700
}

#[test]
fn all_traffic_takes_the_trunk_by_a_route_of_its_own_and_the_uplinks_when_it_is_killed() {
    let pair = Pair::new(2);
    let [client, server] = server_behind_uplinks(&pair);
    let mut there = Trunk::start(&pair.hosts[1], server);
    let mut here = Trunk::start(&pair.hosts[0], client);
    for trunk in [&mut here, &mut there] {
        (0..2).for_each(|_| trunk.wait_for("is up"));
    }
    pair.hosts[0].run(|| ip::run("route add default dev t0 metric 1")).unwrap();
    assert!(takes_trunk(&pair, &here, 5001));
    here.kill();
    pair.transfer("203.0.113.99:5002", 1 << 20);
}

#[test]
fn all_traffic_takes_the_uplinks_while_the_other_end_is_gone_for_long() {
    let pair = Pair::new(2);
    let [client, server] = server_behind_uplinks(&pair);
    let mut here = Trunk::start(&pair.hosts[0], client);
    pair.hosts[0].run(|| ip::run("route add default dev t0 metric 1")).unwrap();
    // It never was there.
    here.wait_for("t0 has no carrier");
    until_routed(&pair, "if0");
    assert!(!takes_trunk(&pair, &here, 5001));
    for port in [5002, 5004] {
        let mut there = Trunk::start(&pair.hosts[1], server);
        here.wait_for("t0 has a carrier again");
        until_routed(&pair, "t0");
        assert!(takes_trunk(&pair, &here, port));
        there.wait_for("is up");
        there.kill();
        here.wait_for("t0 has no carrier");
        until_routed(&pair, "if0");
        assert!(!takes_trunk(&pair, &here, port + 1));
    }
}

#[test]
fn a_name_of_the_other_end_is_looked_up_until_the_link_is_up() {
    let pair = Pair::new(1);
    pair.hosts[0].run(|| ip::run("link set lo up")).unwrap();
    // The C library knows this name without any file or server: 127.0.0.1 (inet_aton(3)).
    let mut here = Trunk::start(&pair.hosts[0], "trunk t0 path lo:7441 0x7f000001:7442 plain");
    here.wait_for("the other end is 127.0.0.1:7442");
    let mut there = Trunk::start(&pair.hosts[0], "trunk t1 path lo:7442 plain");
    here.wait_for("is up");
    there.wait_for("is up");
    assert_eq!(here.shown()["links"][0]["peer"], "127.0.0.1:7442");
}

#[test]
fn forged_and_truncated_frames_are_counted_and_dropped() {
    let pair = Pair::new(1);
    let (_here, there) = pair.trunks(&pair.frames());
    let raw = pair.hosts[0].run(|| PacketSocket::open(ip::index("if0")?)).unwrap();
    let send = |host: u8, payload: &[u8]| {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, host, 0x88, 0xb6];
        frame.extend_from_slice(payload);
        raw.send(&frame).unwrap();
    };
    let good = there.shown();
    // Cut short, of no version, and nothing at all.
    for len in 1..8 {
        send(1, &data(0)[..len]);
    }
    send(1, &[0x45; 100]);
    // Of sessions that are not the other end's.
    (0..=255).for_each(|guess| send(1, &data(guess)));
    send(1, &hello(0x1234_5678_9abc_def0, 1));
    // From somebody else.
    (0..3).for_each(|_| send(9, &hello(7, 7)));
    pair.transfer("10.99.0.2:5001", 1 << 20);
    let shown = there.shown();
    assert_eq!(good["refused"], serde_json::json!({}));
    assert_eq!(number(&shown, &["refused", "malformed"]), 8);
    assert!(number(&shown, &["refused", "unknown-session"]) >= 255, "{shown}");
    assert_eq!(number(&shown, &["links", "0", "strangers"]), 3);
    assert_eq!(shown["sessions"], 1, "nobody took the other end's place");
}

#[test]
fn voice_goes_out_on_every_link_and_arrives_once() {
    let pair = Pair::new(3);
    let (_here, there) = pair.trunks(&pair.frames());
    let to = pair.hosts[1].run(|| UdpSocket::bind("10.99.0.2:6000")).unwrap();
    let from = pair.hosts[0].run(|| UdpSocket::bind("10.99.0.1:0")).unwrap();
    setsockopt(&from, sockopt::Ipv4Tos, &(46 << 2)).unwrap();
    let mut bytes = [0; 64];
    for packet in 0..100u8 {
        from.send_to(&[packet; 40], "10.99.0.2:6000").unwrap();
        assert_eq!(patient(|| to.recv(&mut bytes)).unwrap(), 40);
        assert_eq!(bytes[0], packet, "in order, and none twice");
    }
    pair.transfer("10.99.0.2:5001", 1 << 20);
    assert_eq!(number(&there.shown(), &["duplicates"]), 200);
}

#[test]
fn a_call_does_not_notice_that_a_link_falls_silent() {
    let pair = Pair::new(2);
    let (mut here, _there) = pair.trunks(&pair.paths());
    let to = pair.hosts[1].run(|| UdpSocket::bind("10.99.0.2:6000")).unwrap();
    let from = pair.hosts[0].run(|| UdpSocket::bind("10.99.0.1:0")).unwrap();
    setsockopt(&from, sockopt::Ipv4Tos, &(46 << 2)).unwrap();
    let say = |number: u8| {
        let mut bytes = [0; 64];
        from.send_to(&[number; 40], "10.99.0.2:6000").unwrap();
        assert_eq!(patient(|| to.recv(&mut bytes)).unwrap(), 40);
        assert_eq!(bytes[0], number, "none is lost and none comes twice");
    };
    (0..50).for_each(say);
    for host in &pair.hosts {
        pair.tc(host, "qdisc replace dev if0 root pfifo limit 0");
    }
    (50..200).for_each(say);
    here.wait_for("10.1.0.2:7431 is down");
    (200..=255).for_each(say);
}

#[test]
fn a_frame_that_is_replayed_is_counted_and_goes_up_once() {
    let pair = Pair::new(1);
    let (_here, there) = pair.trunks(&pair.frames());
    let open =
        |host: usize| pair.hosts[host].run(|| PacketSocket::open(ip::index("if0")?)).unwrap();
    let (wire, listens) = (open(0), open(1));
    let to = pair.hosts[1].run(|| UdpSocket::bind("10.99.0.2:6000")).unwrap();
    let from = pair.hosts[0].run(|| UdpSocket::bind("10.99.0.1:0")).unwrap();
    let mut bytes = [0; 2048];
    for packet in 0..50u8 {
        from.send_to(&[packet; 40], "10.99.0.2:6000").unwrap();
        assert_eq!(patient(|| to.recv(&mut bytes)).unwrap(), 40);
    }
    let mut frames = Vec::new();
    while let Some(len) = listens.receive(&mut bytes).unwrap() {
        // Those that carry one of the packets, behind Ethernet, our, IPv4 and UDP headers.
        frames.extend((len == 14 + 8 + 28 + 40).then(|| bytes[..len].to_vec()));
    }
    assert_eq!(frames.len(), 50, "{:?}", there.shown());
    for _ in 0..2 {
        frames.iter().for_each(|frame| wire.send(frame).unwrap());
    }
    from.send_to(b"the next", "10.99.0.2:6000").unwrap();
    let len = patient(|| to.recv(&mut bytes)).unwrap();
    assert_eq!(&bytes[..len], b"the next", "nothing came twice before it");
    assert_eq!(number(&there.shown(), &["duplicates"]), 100);
}

#[test]
fn a_call_beside_a_download_loses_nothing_while_a_link_loses_a_tenth() {
    let pair = Pair::new(3).shaped(&[20, 20, 20]);
    let lossy = "emulate dev if1 egress loss 10% seed 7";
    let _lossy = Service::start(&pair.hosts[0], lossy, "emulating ");
    let (here, _there) = pair.trunks(&pair.paths());
    let to = pair.hosts[1].run(|| UdpSocket::bind("10.99.0.2:6000")).unwrap();
    let from = pair.hosts[0].run(|| UdpSocket::bind("10.99.0.1:0")).unwrap();
    setsockopt(&from, sockopt::Ipv4Tos, &(46 << 2)).unwrap();
    let download = pair.flow("10.99.0.2:5001", 8 << 20);
    let mut bytes = [0; 64];
    for packet in 0..200u8 {
        from.send_to(&[packet; 40], "10.99.0.2:6000").unwrap();
        assert_eq!(patient(|| to.recv(&mut bytes)).unwrap(), 40);
        assert_eq!(bytes[0], packet, "none is lost and none comes twice");
    }
    download.finish();
    let show = run(&pair.hosts[0], "emulate show if1 --json").stdout;
    let shown: serde_json::Value = serde_json::from_slice(&show).unwrap();
    let dropped = shown.to_string().contains("loss-random");
    assert!(dropped, "the link did lose: {shown} {}", here.shown());
}

#[test]
fn it_runs_before_ordinary_processes_unless_the_ordinary_priority_is_asked_for() {
    let pair = Pair::new(1);
    // sched(7): 0 is SCHED_OTHER, 2 is SCHED_RR.
    for (words, name, policy) in [
        ("", "realtime", "2"),
        ("priority realtime", "realtime", "2"),
        ("priority normal", "normal", "0"),
    ] {
        let line = format!("trunk t0 path 10.1.0.1 plain {words}");
        let trunk = Trunk::start(&pair.hosts[0], &line);
        assert_eq!(trunk.shown()["priority"], name, "{words}");
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", trunk.process())).unwrap();
        // proc(5): field 41; the second, in brackets, is the only one that may have spaces.
        let fields = stat.rsplit(") ").next().unwrap();
        assert_eq!(fields.split(' ').nth(41 - 3), Some(policy), "{words}: {stat}");
    }
}

#[test]
fn wrong_input_is_one_line_with_a_remedy_and_leaves_nothing_behind() {
    let pair = Pair::new(1);
    let host = &pair.hosts[0];
    let _used = host.run(|| UdpSocket::bind("10.1.0.1:9999")).unwrap();
    for (line, expected) in [
        ("trunk t0 dev wlan9 peer 02:00:00:00:00:02", "no interface \"wlan9\"; there are"),
        ("trunk t0 dev lo peer 02:00:00:00:00:02", "lo is not an Ethernet interface"),
        ("trunk t0 dev if0", "write dev if0 peer MAC"),
        ("trunk t0 path 10.7.7.7 10.1.0.2 plain", "no interface has 10.7.7.7"),
        ("trunk t0 path 10.7.7.7@if0 10.1.0.2 plain", "give an address that the interface has"),
        ("trunk t0 path 10.1.0.1:9999 10.1.0.2 plain", "give it another port"),
        ("trunk t0 path 10.1.0.1 fd01:1::2", "two of one family"),
        ("trunk t0 path 10.1.0.1 10.1.0.2 mtu 1500 plain", "give at most 1464"),
        ("trunk if0 path 10.1.0.1 10.1.0.2 plain", "take another name"),
        ("trunk t0 path 10.1.0.1 10.1.0.2 shceduler rr", "did you mean \"scheduler\""),
        (
            "trunk t0 path 10.1.0.1 address 224.0.0.1/4 plain",
            "cannot have address 224.0.0.1/4; give that of one host",
        ),
        ("trunk t0 path 10.1.0.1 mtu 1000 address fd99::1/64 plain", "needs an mtu of 1280"),
        ("trunk t0 path 10.1.0.1 10.1.0.2", "write key FILE"),
        ("trunk t0 path 10.1.0.1 10.1.0.2 key /nowhere", "make it by sheaf trunk key > /nowhere"),
        ("trunk t0 path 10.1.0.1 10.1.0.2 key /etc/passwd", "run chmod 600 /etc/passwd"),
        ("trunk", "trunk lacks NAME; write trunk trunk0"),
        ("trunk path 10.1.0.1 10.1.0.2", "the interface to make comes first"),
        ("trunk t0", "no link is named"),
    ] {
        let output = run(host, line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{line}: {said}");
        assert!(output.stdout.is_empty(), "{line}");
        assert!(!host.run(ip::names).unwrap().contains(&"t0".to_owned()), "{line}");
    }
    let _trunk = Trunk::start(host, "trunk t0 path 10.1.0.1 plain");
    let second = run(host, "trunk t0 path 10.1.0.1:1 plain");
    assert!(String::from_utf8_lossy(&second.stderr).contains("t0 already; take another name"));
    let text = run(host, "show dev t0");
    assert!(String::from_utf8_lossy(&text.stdout).contains("waiting for the other end"));
}

/// A hello of `session` that names `peer`.
fn hello(session: u64, peer: u64) -> Vec<u8> {
    use sheaf_wire::trunk::{Control, Hello};
    let control = Control { link: 0, next_seq: 1, link_seq: 0, session, pause: 0 };
    let mut bytes = Vec::new();
    Hello { control, peer, challenge: 1, echo: 0, answer: false, restores: false, recovers: false }
        .emit(&mut bytes);
    bytes
}

/// A data frame of the session that has this tag.
fn data(tag: u8) -> Vec<u8> {
    use sheaf_wire::trunk::{Packing, Predecessor, Repr};
    let mut bytes = vec![0; 8];
    let (packing, predecessor) = (Packing::One, Predecessor::Free);
    let (overtakes, link, link_seq, seq) = (false, 0, 0, 0);
    Repr { packing, overtakes, link, tag, link_seq, predecessor, seq }.emit(&mut bytes);
    bytes.extend([0; 60]);
    bytes
}
