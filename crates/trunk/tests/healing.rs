//! Either end starts anew, comes late, changes its address or sleeps: traffic within two seconds.

mod net;

use net::{Address, LINKS, MS, Net, SECOND, end, key};
use sheaf_stage::Duration;
use sheaf_trunk::Remote;

const HERE: Address = 1;
const THERE: Address = 2;
const MOVED: Address = 3;
/// Time within which traffic has to flow again.
const HEALED: Duration = Duration::from_secs(2);

/// Way in which each end has the other's address; at least one is given it.
const GIVEN: [[bool; 2]; 3] = [[true, true], [true, false], [false, true]];

#[derive(Clone, Copy, Debug)]
struct Setting {
    given: [bool; 2],
    keyed: bool,
}

fn settings() -> impl Iterator<Item = Setting> {
    let both = |given| [false, true].map(|keyed| Setting { given, keyed });
    GIVEN.into_iter().flat_map(both)
}

struct Pair {
    net: Net,
    setting: Setting,
    starts: u64,
}

impl Pair {
    fn new(setting: Setting) -> Pair {
        Pair { net: Net::new(&[HERE, THERE]), setting, starts: 0 }
    }

    /// Starts an end, anew or for the first time.
    fn start(&mut self, host: usize) {
        self.starts += 1;
        let other = self.net.hosts[1 - host].address;
        let remote = match self.setting.given[host] {
            true => Remote::roaming(other),
            false => Remote::Learned(None),
        };
        let key = self.setting.keyed.then(key);
        let end = end(1000 + self.starts, key, [remote; LINKS as usize]);
        self.net.hosts[host].end = Some(end);
    }

    fn started(setting: Setting) -> Pair {
        let mut pair = Pair::new(setting);
        pair.start(0);
        pair.start(1);
        pair.net.run(SECOND);
        assert!(pair.net.flows(SECOND), "{setting:?}");
        pair
    }

    fn heals(&mut self, after: &str) {
        self.net.run(HEALED);
        assert!(self.net.flows(4 * SECOND), "{after}, {:?}", self.setting);
    }
}

/// Tries `event` with each end, in each setting.
fn in_all_settings(after: &str, event: impl Fn(&mut Pair, usize)) {
    for setting in settings() {
        for host in 0..2 {
            let mut pair = Pair::started(setting);
            event(&mut pair, host);
            pair.heals(&format!("{after} of end {host}"));
        }
    }
}

#[test]
fn an_end_that_restarts_is_back_within_two_seconds() {
    in_all_settings("restart", |pair, host| pair.start(host));
    in_all_settings("three restarts in a row", |pair, host| {
        for _ in 0..3 {
            pair.start(host);
            pair.net.run(300 * MS);
        }
    });
}

#[test]
fn an_end_that_is_gone_for_long_or_comes_late_is_back_within_two_seconds() {
    in_all_settings("twenty seconds away", |pair, host| {
        pair.net.hosts[host].end = None;
        pair.net.run(20 * SECOND);
        pair.start(host);
    });
    for setting in settings() {
        for first in 0..2 {
            let mut pair = Pair::new(setting);
            pair.start(first);
            pair.net.run(10 * SECOND);
            pair.start(1 - first);
            pair.heals("a late start");
        }
    }
}

#[test]
fn both_ends_may_restart_at_once_or_one_after_the_other() {
    for setting in settings() {
        for gap in [Duration::ZERO, 5 * MS, 100 * MS, 700 * MS] {
            let mut pair = Pair::started(setting);
            pair.start(0);
            pair.net.run(gap);
            pair.start(1);
            pair.heals(&format!("a restart of both, {gap:?} apart"));
        }
    }
}

#[test]
fn an_end_that_sleeps_for_ten_seconds_is_back_within_two() {
    for time in [SECOND, 10 * SECOND, 300 * SECOND] {
        in_all_settings("sleep", |pair, host| pair.net.sleep(host, time));
    }
}

#[test]
fn an_end_that_changes_its_address_is_back_within_two_seconds() {
    in_all_settings("a new address", |pair, host| pair.net.hosts[host].address = MOVED);
    // With nothing to send but reports.
    in_all_settings("a new address at rest", |pair, host| {
        pair.net.talk = false;
        pair.net.run(SECOND);
        pair.net.hosts[host].address = MOVED;
        pair.net.run(SECOND);
        pair.net.talk = true;
    });
}

#[test]
fn a_pause_of_all_links_heals_within_two_seconds_of_its_end() {
    for setting in settings() {
        for time in [600 * MS, 5 * SECOND] {
            let mut pair = Pair::started(setting);
            for host in 0..2 {
                pair.net.hosts[host].address += 100;
            }
            pair.net.run(time);
            for host in 0..2 {
                pair.net.hosts[host].address -= 100;
            }
            pair.heals("a pause");
        }
    }
}

#[test]
fn an_end_with_a_key_may_restart_at_a_new_address() {
    for given in GIVEN {
        for host in 0..2 {
            if !given[host] {
                // Neither end would know where the other is.
                continue;
            }
            let mut pair = Pair::started(Setting { given, keyed: true });
            pair.net.hosts[host].address = MOVED;
            pair.start(host);
            pair.heals("a restart elsewhere");
        }
    }
}

#[test]
fn keys_change_while_traffic_flows_and_not_one_packet_is_lost() {
    for given in GIVEN {
        let mut pair = Pair::started(Setting { given, keyed: true });
        let before = pair.net.end(0).stats().handshakes;
        let delivered = pair.net.hosts[1].delivered;
        assert!(pair.net.flows(600 * SECOND));
        assert!(pair.net.end(0).stats().handshakes >= before + 4);
        // A packet every 10 ms; the last are under way.
        let delivered = pair.net.hosts[1].delivered - delivered;
        assert!((59_990..=60_010).contains(&delivered), "{delivered}");
    }
}
