//! The host that replies to pings under the virtual clock, which takes its time, as real ones do.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use sheaf_stage::{Duration, Instant};
use std::collections::VecDeque;

/// The time that a host takes for its replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Replies {
    /// Time in ms that each takes at least.
    pub delay: f64,
    /// Time in ms that each takes beyond that at most; evenly distributed.
    #[serde(default)]
    pub spread: f64,
    /// Time in ms that late ones take beyond that.
    #[serde(default)]
    pub late: f64,
    /// Replies that are late, in per cent.
    #[serde(default)]
    pub share: f64,
}

impl Replies {
    /// Longest time of each kind in ms: more than that is another host's.
    const MOST: f64 = 1e4;

    /// Whether all numbers are in their ranges.
    pub fn is_possible(&self) -> bool {
        let times = [self.delay, self.spread, self.late];
        times.iter().all(|time| (0.0..=Self::MOST).contains(time))
            && (0.0..=100.0).contains(&self.share)
    }
}

/// A host that sends each packet back.
pub(super) struct Replier {
    replies: Replies,
    rng: Xoshiro256PlusPlus,
    /// Replies in the making with their times, ascending: a host replies in order.
    due: VecDeque<(Instant, Vec<u8>)>,
}

impl Replier {
    pub fn new(replies: Replies, seed: u64) -> Replier {
        Replier { replies, rng: Xoshiro256PlusPlus::seed_from_u64(seed), due: VecDeque::new() }
    }

    /// Takes a packet that arrives at `now`.
    pub fn enqueue(&mut self, packet: Vec<u8>, now: Instant) {
        let Replies { delay, spread, late, share } = self.replies;
        let mut draw = || self.rng.random::<f64>();
        let (part, luck) = (draw(), draw());
        let late = if luck * 100.0 < share { late } else { 0.0 };
        let takes = Duration::from_secs_f64((delay + part * spread + late) / 1e3);
        let before = self.due.back().map_or(now, |(at, _)| *at);
        self.due.push_back(((now + takes).max(before), packet));
    }

    /// The next reply that is sent by `now`.
    pub fn dequeue(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.due.front().filter(|(at, _)| *at <= now)?;
        self.due.pop_front().map(|(_, packet)| packet)
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.due.front().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_take_the_time_of_the_host_some_are_late_and_none_overtakes() {
        let replies = Replies { delay: 0.1, spread: 0.05, late: 10.0, share: 5.0 };
        let mut replier = Replier::new(replies, 7);
        let number = 10_000u32;
        let mut late = 0u32;
        let mut order = Vec::new();
        for ping in 0..number {
            // A packet is long gone when the next arrives.
            let now = Instant::from_millis(u64::from(ping) * 100);
            replier.enqueue(ping.to_be_bytes().to_vec(), now);
            let at = replier.next_deadline().unwrap();
            assert!(replier.dequeue(at - Duration::from_nanos(1)).is_none());
            order.push(replier.dequeue(at).unwrap());
            let micros = (at - now).as_micros() as u64;
            match micros < 1_000 {
                true => assert!((100..=150).contains(&micros), "{micros}"),
                false => assert!((10_100..=10_150).contains(&micros), "{micros}"),
            }
            late += u32::from(micros > 1_000);
        }
        assert!(order.is_sorted());
        // Five per cent, within four standard errors.
        assert!((413..=587).contains(&late), "{late}");
        // In a row: those behind a late one wait.
        for ping in 0..1_000u32 {
            replier.enqueue(ping.to_be_bytes().to_vec(), Instant::from_millis(u64::from(ping)));
        }
        let all = std::iter::from_fn(|| replier.dequeue(Instant::MAX)).collect::<Vec<_>>();
        assert!(all.len() == 1_000 && all.is_sorted());
    }
}
