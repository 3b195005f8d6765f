//! Responsiveness of a link under load, by the round trips that its flows make anyway.
//!
//! Two measures that tests of lines use, without a packet of our own:
//! * round trips per minute under working conditions (RPM, draft-ietf-ippm-responsiveness): 60 s
//!   divided by the mean round trip while bulk data fills the link. The draft opens connections of
//!   its own and counts TLS and HTTP, too; here the connections are those that are there, and a
//!   round trip is one of TCP. So this is an upper bound of what such a test shows.
//! * the grade of bufferbloat: by how much round trips are longer then than on an idle link, in the
//!   steps of the well-known tests in browsers.

use sheaf_stage::Duration;

/// Time constant of the means, seconds: a test of a line takes about twice as long.
const MEAN: f64 = 5.0;

/// Grades by the added latency that each ends below, ms.
const GRADES: [(f64, &str); 5] =
    [(5.0, "A+"), (30.0, "A"), (60.0, "B"), (200.0, "C"), (400.0, "D")];

/// Means over the time under load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Responsiveness {
    /// Seconds of a round trip, and by how many it is above its floor; `None` before any load.
    means: Option<(f64, f64)>,
}

impl Responsiveness {
    /// Takes in `seconds` under load with round trips of `rtt`, `added` of it in queues.
    pub fn add(&mut self, rtt: Duration, added: Duration, seconds: f64) {
        let new = (rtt.as_secs_f64(), added.as_secs_f64());
        let old = self.means.unwrap_or(new);
        let part = 1.0 - libm::exp(-seconds / MEAN);
        self.means = Some((old.0 + (new.0 - old.0) * part, old.1 + (new.1 - old.1) * part));
    }

    /// Round trips per minute under load; `None` before any.
    pub fn rpm(&self) -> Option<f64> {
        self.means.filter(|(rtt, _)| *rtt > 0.0).map(|(rtt, _)| 60.0 / rtt)
    }

    /// Time by which round trips are longer under load.
    pub fn added(&self) -> Option<Duration> {
        self.means.map(|(_, added)| Duration::from_secs_f64(added.max(0.0)))
    }

    /// The grade of that time, `A+` to `F`.
    pub fn grade(&self) -> Option<&'static str> {
        let added = self.means?.1 * 1e3;
        let grade = GRADES.iter().find(|(below, _)| added < *below);
        Some(grade.map_or("F", |(_, grade)| grade))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grades_are_those_of_the_tests_that_people_know() {
        let grade = |added: u64| {
            let mut one = Responsiveness::default();
            one.add(Duration::from_millis(40 + added), Duration::from_millis(added), 1.0);
            one.grade().unwrap()
        };
        let added = [0, 4, 5, 29, 30, 59, 60, 199, 200, 399, 400, 2000];
        let expected = ["A+", "A+", "A", "A", "B", "B", "C", "C", "D", "D", "F", "F"];
        assert_eq!(added.map(grade), expected);
    }

    #[test]
    fn a_round_trip_of_60_ms_is_1000_in_a_minute_and_without_load_there_is_no_figure() {
        let mut one = Responsiveness::default();
        assert_eq!((one.rpm(), one.added(), one.grade()), (None, None, None));
        one.add(Duration::from_millis(60), Duration::from_millis(20), 0.1);
        assert!((one.rpm().unwrap() - 1000.0).abs() < 0.01);
        for _ in 0..300 {
            one.add(Duration::from_millis(300), Duration::from_millis(260), 0.1);
        }
        assert!((one.rpm().unwrap() - 200.0).abs() < 2.0, "{:?}", one.rpm());
    }
}
