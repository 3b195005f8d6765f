//! Whether TCP yields to the rest, which windows do not govern.
//!
//! Principle: TCP has what the rest leaves, which keeps the queue empty beside calls, games and a
//! stream of constant rate. But a sender that takes all it can get, such as QUIC, takes what TCP
//! yields, too, until TCP has next to nothing. Which of both it is shows in its answer: the one has
//! its rate and leaves the rest of the link alone, the other goes on growing. Beside that one TCP
//! competes without windows, as it would without us, and the queue is what the other makes of it.
//! From time to time TCP yields again, as the rest may have become another one.

use sheaf_stage::{Duration, Instant};

/// Part of the capacity from which the rest leaves TCP less than it could be content with. A
/// stream that has more of a link than this is mistaken until the first trial.
const ALL: f64 = 0.8;
/// Time for which it has so much: a burst of a page is over by then.
const STAYS: Duration = Duration::from_millis(500);
/// Part of the capacity below which TCP yields again at once: whoever took all has gone.
const GONE: f64 = 0.25;
/// Part of the capacity by which the rest grows, when TCP yields again, if it takes what it can.
const GROWS: f64 = 0.1;
/// Time after which TCP yields again, the first time and at most; it trebles in between. A trial
/// costs TCP a second or two of growth.
const FIRST_TRIAL: Duration = Duration::from_secs(30);
const LAST_TRIAL: Duration = Duration::from_secs(600);
/// Time after which a rest that has not grown is taken for one that does not.
const TRIAL: Duration = Duration::from_secs(5);
/// Time for which TCP makes room before it has windows again: the queue of most modems (300 ms) and
/// a round trip. Round-trip times show their floor then, which is forgotten beside a queue that
/// stands.
const DRAIN: Duration = Duration::from_millis(500);
/// Steps of the controller over which the part of the rest is averaged: two seconds.
const MEAN: f64 = 20.0;

/// Conduct of TCP beside the rest.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// It yields to a rest of up to this part of the capacity, and this is when it got more.
    Yields { bound: f64, more: Option<Instant> },
    /// It competes, until the next trial; the rest has this part of the capacity, in the mean of
    /// some seconds. A sender that fills a queue bursts before it, and a trial that began with a
    /// burst would take it for a stream of that rate, for as long as it stays.
    Competes { until: Instant, part: f64 },
    /// It yields for a trial that began so, with this part of the capacity for the rest.
    Tries { since: Instant, part: f64 },
    /// It makes room, as the rest has gone.
    Drains { since: Instant },
}

/// Nothing is known of the rest.
const FRESH: State = State::Yields { bound: ALL, more: None };

/// Decides whether TCP yields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Yielding {
    state: State,
    /// Time until the next trial but one.
    trial: Duration,
}

impl Default for Yielding {
    fn default() -> Self {
        Yielding { state: FRESH, trial: FIRST_TRIAL }
    }
}

impl Yielding {
    /// Takes the rate of the rest and the capacity at `now`, in bit/s, and whether there is TCP to
    /// yield.
    pub fn step(&mut self, usage: f64, capacity: f64, any: bool, now: Instant) {
        let part = usage / capacity.max(1.0);
        self.state = match self.state {
            State::Drains { since } if now - since >= DRAIN => FRESH,
            State::Drains { since } => State::Drains { since },
            state if part < GONE => {
                self.trial = FIRST_TRIAL;
                match state {
                    State::Competes { .. } => State::Drains { since: now },
                    _ => FRESH,
                }
            }
            State::Yields { bound, .. } if part < bound || !any => {
                State::Yields { bound, more: None }
            }
            State::Yields { more: Some(since), .. } if now - since >= STAYS => {
                self.compete(part, now)
            }
            State::Yields { bound, more } => State::Yields { bound, more: more.or(Some(now)) },
            State::Competes { until, part: mean } => {
                let part = mean + (part - mean) / MEAN;
                match now >= until {
                    true => State::Tries { since: now, part },
                    false => State::Competes { until, part },
                }
            }
            State::Tries { part: before, .. } if part > before + GROWS => self.compete(part, now),
            State::Tries { since, .. } if now - since >= TRIAL => {
                State::Yields { bound: ALL.max(part + GROWS), more: None }
            }
            state => state,
        };
    }

    fn compete(&mut self, part: f64, now: Instant) -> State {
        let until = now + self.trial;
        self.trial = (self.trial * 3).min(LAST_TRIAL);
        State::Competes { until, part }
    }

    /// Whether TCP makes room at `now`, so that the queue runs empty.
    pub fn makes_room(&self, now: Instant) -> bool {
        match self.state {
            State::Drains { .. } => true,
            State::Tries { since, .. } => now - since < DRAIN,
            _ => false,
        }
    }

    /// Whether TCP competes with the rest, without windows.
    pub fn competes(&self) -> bool {
        matches!(self.state, State::Competes { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CAPACITY: f64 = 20e6;

    /// Steps ten times a second until `to`, each with the rate of the rest that `usage` gives by
    /// whether TCP competes; returns the seconds in which TCP did.
    fn run(yielding: &mut Yielding, from: u64, to: u64, usage: impl Fn(bool) -> f64) -> f64 {
        let mut competed = 0;
        for tenth in from * 10..to * 10 {
            let now = Instant::from_millis(tenth * 100);
            yielding.step(usage(yielding.competes()) * CAPACITY, CAPACITY, true, now);
            competed += u32::from(yielding.competes());
        }
        f64::from(competed) / 10.0
    }

    #[test]
    fn tcp_yields_to_a_stream_and_not_to_who_takes_all() {
        let mut yielding = Yielding::default();
        assert_eq!(run(&mut yielding, 0, 600, |_| 0.6), 0.0);
        let takes_all = |competes| if competes { 0.5 } else { 0.95 };
        let competed = run(&mut yielding, 600, 1200, takes_all);
        assert!(competed > 595.0, "{competed} of 600 s");
    }

    #[test]
    fn a_burst_at_the_beginning_of_a_trial_does_not_hide_who_takes_all() {
        let mut yielding = Yielding::default();
        let mut competed = 0;
        for tenth in 0..3000 {
            let part = match yielding.state {
                State::Competes { until, .. } if Instant::from_millis(tenth * 100) >= until => 0.97,
                State::Competes { .. } => 0.5,
                _ => 0.95,
            };
            let now = Instant::from_millis(tenth * 100);
            yielding.step(part * CAPACITY, CAPACITY, true, now);
            competed += u32::from(yielding.competes());
        }
        assert!(competed > 2900, "{competed} of 3000 steps");
    }

    #[test]
    fn a_stream_that_fills_most_of_the_link_is_mistaken_once() {
        let mut yielding = Yielding::default();
        let competed = run(&mut yielding, 0, 3600, |_| 0.85);
        assert!((competed - FIRST_TRIAL.as_secs_f64()).abs() < 0.2, "{competed} s");
        // As soon as it is more than that, it is looked at anew.
        assert!(run(&mut yielding, 3600, 3700, |_| 0.97) > 85.0);
    }

    #[test]
    fn tcp_has_its_windows_again_as_soon_as_the_rest_has_gone() {
        let mut yielding = Yielding::default();
        run(&mut yielding, 0, 10, |_| 0.95);
        assert!(yielding.competes());
        assert_eq!(run(&mut yielding, 10, 20, |_| 0.1), 0.0);
        // Whoever comes then is not who was there before.
        assert_eq!(run(&mut yielding, 20, 100, |_| 0.7), 0.0);
    }

    #[test]
    fn without_tcp_nothing_is_decided() {
        let mut yielding = Yielding::default();
        for tenth in 0..600 {
            yielding.step(CAPACITY, CAPACITY, false, Instant::from_millis(tenth * 100));
            assert!(!yielding.competes());
        }
    }

    proptest! {
        #[test]
        fn a_rest_below_the_bound_is_yielded_to_whatever_was_before(
            parts in proptest::collection::vec((0.0..1.2f64, 1u64..100_000), 1..50),
        ) {
            let (mut yielding, mut now) = (Yielding::default(), Instant::ZERO);
            for (part, millis) in parts {
                now += Duration::from_millis(millis);
                yielding.step(part * CAPACITY, CAPACITY, true, now);
                prop_assert!(!yielding.competes() || part >= GONE);
            }
            // Ten minutes, a trial, and the step after each.
            for _ in 0..700 {
                now += Duration::from_secs(1);
                yielding.step(0.5 * CAPACITY, CAPACITY, true, now);
            }
            prop_assert!(!yielding.competes());
        }
    }
}
