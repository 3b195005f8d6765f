//! Either end starts anew, comes late, changes its address or sleeps: traffic within two seconds.

mod net;

use net::{Address, LINKS, MS, Net, SECOND, end};
use sheaf_stage::Duration;
use sheaf_trunk::{Endpoint, Remote};

const HERE: Address = 1;
const THERE: Address = 2;
const MOVED: Address = 3;
/// Time within which traffic has to flow again.
const HEALED: Duration = Duration::from_secs(2);

/// How each end has the other's address; at least one is given it.
const SETTINGS: [[bool; 2]; 3] = [[true, true], [true, false], [false, true]];

struct Pair {
    net: Net,
    given: [bool; 2],
    starts: u64,
}

impl Pair {
    fn new(given: [bool; 2]) -> Pair {
        Pair { net: Net::new(&[HERE, THERE]), given, starts: 0 }
    }

    /// Starts an end, anew or for the first time.
    fn start(&mut self, host: usize) {
        self.starts += 1;
        let other = self.net.hosts[1 - host].address;
        let remote = if self.given[host] { Remote::roaming(other) } else { Remote::Learned(None) };
        self.net.hosts[host].end = Some(self.end(remote));
    }

    fn end(&self, remote: Remote<Address>) -> Endpoint<Address> {
        end(1000 + self.starts, [remote; LINKS as usize])
    }

    fn started(given: [bool; 2]) -> Pair {
        let mut pair = Pair::new(given);
        pair.start(0);
        pair.start(1);
        pair.net.run(SECOND);
        assert!(pair.net.flows(SECOND), "{given:?}");
        pair
    }

    fn heals(&mut self, after: &str) {
        self.net.run(HEALED);
        assert!(self.net.flows(4 * SECOND), "{after}, given {:?}", self.given);
    }
}

/// Tries `event` with each end, in each setting.
fn in_all_settings(after: &str, event: impl Fn(&mut Pair, usize)) {
    for given in SETTINGS {
        for host in 0..2 {
            let mut pair = Pair::started(given);
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
    for given in SETTINGS {
        for first in 0..2 {
            let mut pair = Pair::new(given);
            pair.start(first);
            pair.net.run(10 * SECOND);
            pair.start(1 - first);
            pair.heals("a late start");
        }
    }
}

#[test]
fn both_ends_may_restart_at_once_or_one_after_the_other() {
    for given in SETTINGS {
        for gap in [Duration::ZERO, 5 * MS, 100 * MS, 700 * MS] {
            let mut pair = Pair::started(given);
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
    for given in SETTINGS {
        for time in [600 * MS, 5 * SECOND] {
            let mut pair = Pair::started(given);
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
