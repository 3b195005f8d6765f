//! A channel and its stations. The radios are, in order: the two ends of the link, and where
//! there are neighbours, these two.

use super::point::{Link, Neighbours, Point, Walk};
use sheaf_medium::{Config, ConfigError, Hearing, Link as Hears, Medium, Phy, RadioId};
use sheaf_stage::{Duration, Instant};

/// Period in which a moving station's rate is adapted.
const STEP: Duration = Duration::from_millis(100);
/// 802.11b as it was in 2004.
const PHY: Phy = Phy::Dsss { short_preamble: false };

/// The radio of the sending end of the link.
pub const NEAR: RadioId = RadioId(0);
/// The radio of the receiving end.
pub const FAR: RadioId = RadioId(1);
/// The radios of the neighbours.
pub const NEIGHBOURS: [RadioId; 2] = [RadioId(2), RadioId(3)];

/// The channel of link `index` of `point`.
pub fn medium<P: Clone>(point: &Point, index: usize) -> Result<Medium<P>, ConfigError> {
    Medium::new(config(&point.links[index], point.queue), point.link_seed(index))
}

fn config(link: &Link, queue: usize) -> Config {
    let radios = if link.neighbours.is_none() { 2 } else { 4 };
    let mut config = Config::new(PHY, radios, link.rate);
    config.radios.iter_mut().for_each(|radio| radio.queue_limit = queue);
    let own = Hears { ber: link.ber, ..Hears::PERFECT };
    let (near, far) = (NEAR.0 as usize, FAR.0 as usize);
    let (other, friend) = (NEIGHBOURS[0].0 as usize, NEIGHBOURS[1].0 as usize);
    let hears = |from: usize, to: usize| {
        let pair = |a, b| (from, to) == (a, b) || (from, to) == (b, a);
        match link.neighbours {
            _ if pair(near, far) => own,
            // In a row: near, far, other, friend; each hears those beside it.
            Some(Neighbours { hidden: true, .. }) if pair(far, other) || pair(other, friend) => {
                Hears::PERFECT
            }
            Some(Neighbours { hidden: true, .. }) => Hears::NONE,
            Some(_) | None => Hears::PERFECT,
        }
    };
    let row = |from| (0..radios).map(|to| hears(from, to)).collect();
    config.hearing = Hearing::Table((0..radios).map(row).collect());
    config
}

/// Two stations that move apart: the rate of their radios falls, and in the end they are out of
/// range.
#[derive(Clone, Debug)]
pub struct Moving {
    walk: Walk,
    /// Time of the first distance.
    start: Instant,
    next: Instant,
    in_range: bool,
}

impl Moving {
    /// Stations that stand until `start`.
    pub fn new(walk: Walk, start: Instant) -> Moving {
        Moving { walk, start, next: Instant::ZERO, in_range: true }
    }

    /// Sets the rate of both ends of the link by their distance at `now`, when it is time.
    pub fn step<P: Clone>(&mut self, medium: &mut Medium<P>, now: Instant) {
        if now < self.next {
            return;
        }
        self.next = now + STEP;
        let rate = self.walk.loss.best_rate(PHY, self.walk.distance(self.start, now));
        for radio in [NEAR, FAR].into_iter().filter(|_| rate.is_some()) {
            let rate = rate.expect("filtered");
            medium.set_rate(radio, rate, now).expect("a rate of the physical layer");
        }
        if rate.is_some() != self.in_range {
            self.in_range = rate.is_some();
            let hears = if self.in_range { Hears::PERFECT } else { Hears::NONE };
            let table = vec![vec![hears; medium.radios()]; medium.radios()];
            medium.set_hearing(Hearing::Table(table), now).expect("a square table");
        }
    }

    /// Time of the next adaptation.
    pub fn next_deadline(&self) -> Instant {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_medium::PathLoss;
    use sheaf_stage::{Bitrate, Stage};

    fn link(hidden: Option<bool>) -> Link {
        let neighbours = hidden.map(|hidden| Neighbours { hidden, rate: None, leave: None });
        Link { rate: Bitrate::from_mbps(11), ber: 1e-5, neighbours, walk: None }
    }

    #[test]
    fn a_hidden_neighbour_is_heard_by_the_receiver_only() {
        let Hearing::Table(hidden) = config(&link(Some(true)), 50).hearing else {
            panic!("a table")
        };
        assert!(hidden[2][1].receive && !hidden[2][0].sense && !hidden[0][2].sense);
        assert_eq!((hidden[0][1].ber, hidden[1][0].ber, hidden[2][1].ber), (1e-5, 1e-5, 0.0));
        let Hearing::Table(pair) = config(&link(Some(false)), 50).hearing else {
            panic!("a table")
        };
        assert!(pair.iter().flatten().all(|link| link.sense));
    }

    #[test]
    fn stations_that_leave_lose_rate_and_then_each_other() {
        let loss = PathLoss { range: 115.0, exponent: 3.0 };
        let walk = Walk { from: 100.0, speed: 10.0, loss };
        let mut medium = Medium::<()>::new(config(&link(None), 50), 1).unwrap();
        let mut moving = Moving::new(walk, Instant::ZERO);
        let mut sends = |at: u64| {
            let now = Instant::from_millis(at);
            moving.step(&mut medium, now);
            let to = sheaf_medium::To::Radio(FAR);
            let frame = sheaf_medium::Frame { from: NEAR, to, bytes: 1500, payload: () };
            medium.enqueue(frame, now).unwrap();
            let done = medium.dequeue(now + Duration::from_millis(900)).unwrap();
            (done.result.is_ok(), done.ended - done.started)
        };
        let (arrived, took) = sends(0);
        assert!(arrived && took > Duration::from_millis(12), "1 Mbit/s at 100 m: {took:?}");
        assert!(!sends(2_000).0, "nothing at 120 m");
    }
}
