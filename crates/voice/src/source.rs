//! The packets of a talker: one every 20 ms while it talks, none while it is silent.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_stage::{Duration, Instant};

/// The time between two packets of a talk spurt.
pub const INTERVAL: Duration = Duration::from_millis(20);

/// The length of a spurt or a silence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// Always this long.
    Fixed(Duration),
    /// Exponentially distributed with this mean.
    Exponential(Duration),
}

impl Length {
    fn draw(self, rng: &mut Xoshiro256PlusPlus) -> Duration {
        match self {
            Length::Fixed(length) => length,
            Length::Exponential(mean) => mean.mul_f64(-libm::log(1.0 - rng.random::<f64>())),
        }
    }

    fn mean(self) -> Duration {
        match self {
            Length::Fixed(length) | Length::Exponential(length) => length,
        }
    }
}

/// The pattern of talk spurts and pauses.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// Spurts and silences in turn.
    Spurts {
        /// Length of a spurt.
        talk: Length,
        /// Length of a silence.
        silence: Length,
    },
    /// Without pause.
    Constant,
    /// Fixed spurts and silences in turn, beginning with a spurt; over and over, with a pause of
    /// one second.
    Sequence(Vec<Duration>),
}

impl Pattern {
    /// KAU: one second of talk (50 packets) and a silence of random length, 1.5 s in the mean.
    pub const fn kau() -> Pattern {
        let talk = Length::Fixed(Duration::from_secs(1));
        Pattern::Spurts { talk, silence: Length::Exponential(Duration::from_millis(1_500)) }
    }

    /// ITU-T P.59: spurts of 1.004 s and pauses of 1.587 s in the mean.
    pub const fn p59() -> Pattern {
        Pattern::Spurts {
            talk: Length::Exponential(Duration::from_millis(1_004)),
            silence: Length::Exponential(Duration::from_millis(1_587)),
        }
    }

    /// UWC: 60 s of talk, 1 s of silence, 60 s, 2 s, 60 s.
    pub fn uwc() -> Pattern {
        Pattern::Sequence([60, 1, 60, 2, 60].map(Duration::from_secs).to_vec())
    }

    /// The share of time that is talk, 0..1.
    pub fn activity(&self) -> f64 {
        match self {
            Pattern::Spurts { talk, silence } => {
                talk.mean().as_secs_f64() / (talk.mean() + silence.mean()).as_secs_f64()
            }
            Pattern::Constant => 1.0,
            Pattern::Sequence(lengths) => {
                let total: Duration = lengths.iter().sum::<Duration>() + Duration::from_secs(1);
                let talk: Duration = lengths.iter().step_by(2).sum();
                talk.as_secs_f64() / total.as_secs_f64()
            }
        }
    }
}

/// A talker: an endless iterator over the times of its packets.
#[derive(Clone, Debug)]
pub struct Source {
    pattern: Pattern,
    next: Instant,
    spurt_end: Instant,
    /// Place in a [`Pattern::Sequence`].
    place: usize,
    rng: Xoshiro256PlusPlus,
}

impl Source {
    /// A talker that begins at a random time within one mean cycle (a packet interval for one that
    /// never pauses) after the clock's start.
    pub fn new(pattern: Pattern, seed: u64) -> Source {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let cycle = match &pattern {
            Pattern::Spurts { talk, silence } => talk.mean() + silence.mean(),
            Pattern::Constant | Pattern::Sequence(_) => INTERVAL,
        };
        let start = Instant::ZERO + cycle.mul_f64(rng.random::<f64>());
        let mut source = Source { pattern, next: start, spurt_end: start, place: 0, rng };
        source.begin_spurt();
        source
    }

    fn begin_spurt(&mut self) {
        let length = match &self.pattern {
            Pattern::Spurts { talk, .. } => talk.draw(&mut self.rng),
            Pattern::Constant => Duration::from_secs(1 << 32),
            Pattern::Sequence(lengths) => lengths[self.place],
        };
        self.spurt_end = self.next + length.max(INTERVAL);
    }

    fn silence(&mut self) -> Duration {
        match &self.pattern {
            Pattern::Spurts { silence, .. } => silence.draw(&mut self.rng),
            Pattern::Constant => Duration::ZERO,
            Pattern::Sequence(lengths) => {
                self.place += 2;
                let pause = lengths.get(self.place - 1).copied();
                if self.place >= lengths.len() {
                    self.place = 0;
                }
                pause.unwrap_or(Duration::from_secs(1))
            }
        }
    }
}

impl Iterator for Source {
    type Item = Instant;

    /// The time of the next packet. Never ends.
    fn next(&mut self) -> Option<Instant> {
        let time = self.next;
        self.next += INTERVAL;
        if self.next >= self.spurt_end {
            self.next = self.spurt_end + self.silence();
            self.begin_spurt();
        }
        Some(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(pattern: Pattern, seed: u64, seconds: u64) -> Vec<Instant> {
        let end = Instant::from_millis(seconds * 1000);
        Source::new(pattern, seed).take_while(|time| *time < end).collect()
    }

    #[test]
    fn a_kau_flow_talks_in_spurts_of_fifty_packets_two_fifths_of_the_time() {
        let times = packets(Pattern::kau(), 1, 5_000);
        let share = times.len() as f64 / (5_000.0 * 50.0);
        assert!((share - 0.4).abs() < 0.01, "{share}");
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]).enumerate();
        let ends: Vec<usize> = gaps.filter(|(_, gap)| *gap > INTERVAL).map(|(i, _)| i).collect();
        assert!(ends.windows(2).all(|pair| pair[1] - pair[0] == 50));
    }

    #[test]
    fn the_uwc_pattern_pauses_one_and_two_seconds() {
        let times = packets(Pattern::uwc(), 1, 186);
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
        let pauses: Vec<u64> = gaps.map(|g| g.as_millis() as u64).filter(|ms| *ms > 20).collect();
        assert_eq!(pauses, [1020, 2020, 1020]);
    }

    #[test]
    fn the_same_seed_talks_at_the_same_times() {
        assert_eq!(packets(Pattern::p59(), 7, 60), packets(Pattern::p59(), 7, 60));
        assert_ne!(packets(Pattern::p59(), 7, 60), packets(Pattern::p59(), 8, 60));
    }
}
