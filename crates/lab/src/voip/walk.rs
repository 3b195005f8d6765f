//! A station that walks away from the others and back, and its link on the way.
//!
//! Principle: log-distance path loss (Rappaport, "Wireless Communications", section 4.9). From the
//! signal and the noise follows the bit error rate of the modulation, and with it the medium loses
//! frames. Drivers report the signal with an error of its own, which the medium does not have: slow
//! shadowing by walls and people is left out, as one decibel of it decides between all and nothing.

use serde::{Deserialize, Serialize};
use sheaf_medium::{Hearing, Link};
use sheaf_quality::quality::LEAST_MARGIN;
use sheaf_quality::{Config, Modulation};
use sheaf_stage::{Duration, Instant};

/// Time between two steps of the medium, a seventh of a metre at a walker's pace.
pub const STEP: Duration = Duration::from_millis(100);
/// Bound of the corners of a path, and of the shadows on it.
const MOST: usize = 1000;

/// A station that walks, as plans have it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Walk {
    /// Name of the node that walks. It has one link, to its router; the others stand together.
    pub station: String,
    /// Corners of the path: seconds since packets began to be measured, and metres from the others.
    /// Between two corners the pace is steady.
    pub path: Vec<(f64, f64)>,
    /// Times behind something: seconds from, seconds to, and decibels that the signal is weaker.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shadow: Vec<(f64, f64, f64)>,
    /// Path loss exponent: 2 in free space, 3 to 4 between houses.
    pub exponent: f64,
    /// Power of all transmitters, in dBm.
    pub power: f64,
    /// Loss over the first metre, in dB.
    pub first_metre: f64,
    /// Noise in the channel, in dBm.
    pub noise: f64,
    /// Standard deviation of the signals that a driver reports around the true one, in dB.
    pub reading: f64,
}

impl Walk {
    /// Checks that the station can walk so.
    pub fn check(&self) -> Result<(), String> {
        let is_sound = |(seconds, metres): &(f64, f64)| *seconds >= 0.0 && *metres >= 1.0;
        let corners = &self.path;
        if corners.is_empty() || corners.len() > MOST || !corners.iter().all(is_sound) {
            return Err(
                "path needs 1 to 1000 corners [seconds, metres], from 0 s and 1 m up".into()
            );
        }
        if !corners.windows(2).all(|pair| pair[0].0 < pair[1].0) {
            return Err("the corners of path must be in the order of their times".into());
        }
        let is_sound = |(from, to, _): &(f64, f64, f64)| from < to;
        if self.shadow.len() > MOST || !self.shadow.iter().all(is_sound) {
            return Err("shadow needs at most 1000 of [from, to, decibels], from before to".into());
        }
        let decibels = [self.power, self.first_metre, self.noise, self.reading];
        let decibels = decibels.into_iter().chain(self.shadow.iter().map(|(_, _, loss)| *loss));
        let mut numbers = decibels.chain(corners.iter().map(|(_, metres)| *metres));
        if !numbers.all(f64::is_finite) || self.reading < 0.0 {
            return Err("decibels and metres must be finite, and reading 0 or more".into());
        }
        if !(self.exponent > 0.0 && self.exponent.is_finite()) {
            return Err(format!("exponent = {}; give a number above 0", self.exponent));
        }
        Ok(())
    }

    /// Metres from the others, `seconds` after packets began to be measured.
    fn distance(&self, seconds: f64) -> f64 {
        let next = self.path.partition_point(|(at, _)| *at <= seconds);
        let (Some(before), after) = (next.checked_sub(1), self.path.get(next)) else {
            return self.path[0].1;
        };
        let (from, near) = self.path[before];
        match after {
            Some((to, far)) => near + (far - near) * (seconds - from) / (to - from),
            None => near,
        }
    }

    /// Signal at the other end of the link, in dBm.
    fn signal(&self, seconds: f64) -> f64 {
        let is_there = |(from, to, _): &&(f64, f64, f64)| (*from..*to).contains(&seconds);
        let shadow: f64 = self.shadow.iter().filter(is_there).map(|(_, _, loss)| loss).sum();
        let distance = 10.0 * self.exponent * libm::log10(self.distance(seconds));
        self.power - self.first_metre - distance - shadow
    }
}

/// A walk on a testbed.
#[derive(Clone, Debug, PartialEq)]
pub struct Walking {
    /// The walk.
    pub walk: Walk,
    /// Host that walks.
    pub station: usize,
    /// Host at the other end of its only link.
    pub router: usize,
    /// Modulation of unicast frames.
    pub modulation: Modulation,
    /// Attempts that radios make of them.
    pub attempts: u32,
    /// Time at which packets begin to be measured.
    pub start: Instant,
}

impl Walking {
    fn seconds(&self, now: Instant) -> f64 {
        now.saturating_since(self.start).as_secs_f64()
    }

    /// Metres between station and router.
    pub fn distance(&self, now: Instant) -> f64 {
        self.walk.distance(self.seconds(now))
    }

    /// Signal over the link between station and router, in dBm, the same in both directions.
    pub fn signal(&self, now: Instant) -> f64 {
        self.walk.signal(self.seconds(now))
    }

    /// Bit error rate of the link when the signal is `decibels` weaker than it is, 0..=0.5.
    pub fn bit_error_rate(&self, now: Instant, decibels: f64) -> f64 {
        self.modulation.bit_error_rate(self.signal(now) - self.walk.noise - decibels)
    }

    /// The rule by which sizes follow the link, up to `mtu` bytes.
    pub fn rule(&self, mtu: u16) -> Config {
        Config { attempts: self.attempts, mtu, ..Config::default() }
    }

    /// The size that is best for the link when the signal is `decibels` weaker than it is, with the
    /// caution of the rule.
    pub fn best(&self, now: Instant, decibels: f64, mtu: u16) -> u16 {
        let cautious = self.bit_error_rate(now, decibels + LEAST_MARGIN);
        let rate = self.bit_error_rate(now, decibels);
        self.rule(mtu).size(rate, cautious, Some(self.modulation))
    }

    /// The reception among `nodes` hosts: the link of the station has bit errors.
    pub fn hearing(&self, nodes: usize, now: Instant) -> Hearing {
        let walked = Link { ber: self.bit_error_rate(now, 0.0), ..Link::PERFECT };
        let link = |from, to| match (from == self.station) != (to == self.station) {
            true => walked,
            false => Link::PERFECT,
        };
        let row = |from| (0..nodes).map(|to| link(from, to)).collect();
        Hearing::Table((0..nodes).map(row).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk() -> Walk {
        Walk {
            station: "S".to_owned(),
            path: vec![(10.0, 10.0), (20.0, 100.0), (30.0, 10.0)],
            shadow: vec![(14.0, 16.0, 6.0)],
            exponent: 3.0,
            power: 15.0,
            first_metre: 40.0,
            noise: -95.0,
            reading: 1.5,
        }
    }

    #[test]
    fn ten_times_as_far_is_thirty_decibels_weaker_at_exponent_three() {
        let walk = walk();
        assert_eq!((walk.distance(0.0), walk.signal(0.0)), (10.0, -55.0));
        assert_eq!((walk.distance(20.0), walk.signal(20.0)), (100.0, -85.0));
        assert_eq!((walk.distance(15.0), walk.distance(25.0)), (55.0, 55.0));
        assert_eq!(walk.distance(99.0), 10.0);
        assert!((walk.signal(25.0) - walk.signal(15.0) - 6.0).abs() < 1e-9, "behind something");
    }

    #[test]
    fn only_the_links_of_the_station_have_bit_errors() {
        let modulation = Modulation::Dqpsk;
        let start = Instant::from_millis(5_000);
        let (walk, attempts) = (walk(), 7);
        let walking = Walking { walk, station: 1, router: 0, modulation, attempts, start };
        let Hearing::Table(links) = walking.hearing(3, Instant::from_millis(25_000)) else {
            panic!("it is a table");
        };
        let with_errors = |from: usize, to: usize| links[from][to].ber > 0.0;
        assert!(with_errors(0, 1) && with_errors(1, 2) && !with_errors(0, 2));
        assert!(walking.bit_error_rate(start, 0.0) < 1e-9);
    }

    #[test]
    fn a_path_that_cannot_be_walked_is_refused() {
        let refused = |change: fn(&mut Walk)| {
            let mut walk = walk();
            change(&mut walk);
            walk.check().unwrap_err()
        };
        assert_eq!(walk().check(), Ok(()));
        assert!(refused(|walk| walk.path.clear()).contains("1 to 1000 corners"));
        assert!(refused(|walk| walk.path[1].0 = 10.0).contains("order of their times"));
        assert!(refused(|walk| walk.path[1].1 = 0.0).contains("1 m up"));
        assert!(refused(|walk| walk.path[1].1 = f64::INFINITY).contains("finite"));
        assert!(refused(|walk| walk.shadow[0].1 = 1.0).contains("from before to"));
        assert!(refused(|walk| walk.exponent = 0.0).contains("above 0"));
    }
}
