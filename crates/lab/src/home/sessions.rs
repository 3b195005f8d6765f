//! Sessions over TCP, the same on both engines: what a client asks for and when, and the times that
//! the answers take.
//!
//! A session loads one thing after the other, with pauses between. A page of the web is an object,
//! and behind it others on several connections at once; every page has connections of its own. A
//! request has one answer, and all requests of a session one connection.

use super::pattern::exponential;
use super::plan::{Scenario, Stream, Times};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_stage::{Duration, Instant};
use sheaf_wire::flow::mix;
use std::f64::consts::TAU;

/// Bytes of a request for an object, constant in models of the web: 3GPP2 C.R1002-0.
const OBJECT_REQUEST: u32 = 350;
/// Loads that are remembered at most, which bounds the memory of a long plan.
const MOST_LOADS: usize = 1 << 20;

/// Bytes of objects: a log-normal distribution, cut off at both ends.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// Mean and standard deviation of the logarithm.
    mean: f64,
    deviation: f64,
    least: f64,
    most: f64,
}

/// The page itself: 10.8 kB in the mean (3GPP TR 25.892, annex A.2, traffic model of HTTP).
const MAIN: Sizes = Sizes { mean: 8.35, deviation: 1.37, least: 100.0, most: 2e6 };
/// The objects in it: 8.2 kB in the mean, half of them below 790 bytes (the same). The mean of
/// 7.8 kB that is stated there is that of the distribution before it is cut off.
const EMBEDDED: Sizes = Sizes { mean: 6.17, deviation: 2.36, least: 50.0, most: 2e6 };

/// The kind of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Pages of the web.
    Web,
    /// Requests with short answers.
    Request,
}

/// A client's session, of which each load is drawn by seed.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its kind.
    pub kind: Kind,
    /// Time of its first load.
    pub start: Instant,
    /// Bytes of each request.
    pub request: u32,
    /// Connections of a load at most.
    pub parallel: usize,
    /// Answers of a load.
    objects: u32,
    /// Bytes of an answer that has always the same.
    answer: u32,
    /// Mean time between two loads.
    pause: Duration,
    rng: Xoshiro256PlusPlus,
}

/// One load: a page, or a request with its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Bytes of each answer. The first is there before the others are asked for.
    pub answers: Vec<u32>,
    /// Time between the end of this load and the next.
    pub pause: Duration,
}

impl Session {
    /// The sessions of `scenario`. Each begins a part of its pause later than the plan says, which
    /// `seed` decides, as it does all sizes and pauses.
    pub fn all(scenario: &Scenario, times: &Times, seed: u64) -> Vec<Session> {
        let session = |(number, stream): (u64, &Stream)| {
            let draw = mix(mix(seed) ^ (number + 1));
            let rng = Xoshiro256PlusPlus::seed_from_u64(mix(draw));
            let mut session = match stream {
                Stream::Web(web) => Session {
                    kind: Kind::Web,
                    start: times.at(web.start),
                    request: OBJECT_REQUEST,
                    parallel: web.parallel as usize,
                    objects: web.objects,
                    answer: 0,
                    pause: Duration::from_secs_f64(web.reading),
                    rng,
                },
                Stream::Request(request) => Session {
                    kind: Kind::Request,
                    start: times.at(request.start),
                    request: request.bytes,
                    parallel: 1,
                    objects: 1,
                    answer: request.answer,
                    pause: Duration::from_secs_f64(request.idle / 1e3),
                    rng,
                },
                _ => return None,
            };
            let phase = session.pause.mul_f64(session.rng.random::<f64>());
            session.start += phase;
            Some(session)
        };
        (0..).zip(&scenario.streams).filter_map(session).collect()
    }

    /// Whether one connection carries all loads.
    pub fn keeps_connection(&self) -> bool {
        self.kind == Kind::Request
    }

    /// Draws the next load.
    pub fn next_load(&mut self) -> Load {
        let rng = &mut self.rng;
        let answer = |number| match (self.kind, number) {
            (Kind::Request, _) => self.answer,
            (Kind::Web, 0) => MAIN.draw(rng),
            (Kind::Web, _) => EMBEDDED.draw(rng),
        };
        let answers = (0..self.objects).map(answer).collect();
        Load { answers, pause: exponential(self.pause, &mut self.rng) }
    }
}

impl Sizes {
    /// A size; one beyond the ends is drawn again.
    fn draw(self, rng: &mut Xoshiro256PlusPlus) -> u32 {
        loop {
            let bytes = libm::exp(self.mean + self.deviation * normal(rng));
            if (self.least..=self.most).contains(&bytes) {
                return bytes as u32;
            }
        }
    }
}

/// A standard normal variable (Box and Muller, 1958).
fn normal(rng: &mut Xoshiro256PlusPlus) -> f64 {
    let radius = (-2.0 * libm::log(1.0 - rng.random::<f64>())).sqrt();
    radius * libm::cos(TAU * rng.random::<f64>())
}

/// Loads that ended.
#[derive(Clone, Debug, Default)]
pub struct Loads {
    /// Ends and times of pages.
    pub pages: Vec<(Instant, Duration)>,
    /// Ends and times of requests, without the first of each connection, which waits for the
    /// handshake.
    pub requests: Vec<(Instant, Duration)>,
}

impl Loads {
    /// The loads of `sessions`: of each its kind, and its loads from the first one on.
    pub fn new(sessions: impl IntoIterator<Item = (Kind, Vec<(Instant, Duration)>)>) -> Loads {
        let mut loads = Loads::default();
        for (kind, ended) in sessions {
            match kind {
                Kind::Web => loads.pages.extend(ended),
                Kind::Request => loads.requests.extend(ended.into_iter().skip(1)),
            }
        }
        loads.pages.sort_unstable();
        loads.requests.sort_unstable();
        loads
    }
}

/// Notes a load that ended, while there is room.
pub fn note(ended: &mut Vec<(Instant, Duration)>, begun: Instant, now: Instant) {
    if ended.len() < MOST_LOADS {
        ended.push((now, now - begun));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::plan::{Request, Web};
    use crate::plan::Plan;

    fn sessions(seed: u64) -> Vec<Session> {
        let Plan::Home(plan) = Plan::find("home-ap").unwrap() else { panic!("a home") };
        let web = Web { objects: 20, parallel: 6, reading: 3.0, start: 2.0 };
        let request = Request { bytes: 100, answer: 300, idle: 50.0, start: 1.0 };
        let streams = vec![Stream::Web(web), Stream::Request(request)];
        let scenario = Scenario { streams, ..plan.scenarios[0].clone() };
        Session::all(&scenario, &plan.times(&scenario, Instant::from_millis(1_000)), seed)
    }

    #[test]
    fn sizes_are_those_of_the_model() {
        // Medians and means of the distributions between their ends, from the normal one's tables.
        // The lower end cuts off one in six of the embedded objects.
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        for (sizes, median, mean) in [(MAIN, 4_250.0, 10_840.0), (EMBEDDED, 790.0, 8_190.0)] {
            let mut drawn: Vec<u32> = (0..100_000).map(|_| sizes.draw(&mut rng)).collect();
            drawn.sort_unstable();
            let (low, high) = (drawn[0], drawn[99_999]);
            assert!(f64::from(low) >= sizes.least && f64::from(high) <= sizes.most);
            // Four standard errors of a hundred thousand.
            let middle = f64::from(drawn[50_000]);
            assert!((middle / median - 1.0).abs() < 0.04, "{middle} beside {median}");
            let average = drawn.iter().map(|bytes| f64::from(*bytes)).sum::<f64>() / 1e5;
            assert!((average / mean - 1.0).abs() < 0.07, "{average} beside {mean}");
        }
    }

    #[test]
    fn a_seed_decides_all_pages_and_pauses_and_another_has_others() {
        let loads = |seed| {
            let mut sessions = sessions(seed);
            (0..10).map(|_| sessions[0].next_load()).collect::<Vec<_>>()
        };
        assert_eq!(loads(7), loads(7));
        assert_ne!(loads(7)[0], loads(8)[0]);
        assert!(loads(7).iter().all(|load| load.answers.len() == 20));
        let [web, request] = &mut sessions(7)[..] else { panic!("two sessions") };
        assert!((2..5).contains(&(web.start - Instant::from_millis(1_000)).as_secs()));
        let load = request.next_load();
        assert_eq!((load.answers, request.request), (vec![300], 100));
        let mean = (0..10_000).map(|_| request.next_load().pause.as_secs_f64()).sum::<f64>() / 1e4;
        assert!((mean - 0.05).abs() < 0.002, "{mean}: four standard errors");
    }

    #[test]
    fn the_first_request_of_a_connection_does_not_count_and_every_page_does() {
        let at = |millis| (Instant::from_millis(millis), Duration::from_millis(3));
        let ended = |kind, times: &[u64]| (kind, times.iter().copied().map(at).collect());
        let loads = Loads::new([
            ended(Kind::Request, &[10, 20, 40]),
            ended(Kind::Web, &[5, 50]),
            ended(Kind::Request, &[15, 30]),
            ended(Kind::Web, &[]),
        ]);
        assert_eq!(loads.pages, [5, 50].map(at));
        assert_eq!(loads.requests, [20, 30, 40].map(at));
    }
}
