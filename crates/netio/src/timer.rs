//! Waits for a moment to the microsecond: sleep first, then look again and again.
//!
//! Principle: the kernel wakes a sleeper late by what it takes to wake a processor and a thread,
//! 15 µs and more; so the sleep ends a little before the moment, and the rest is spent asking
//! descriptors without sleeping. A descriptor that becomes readable ends either part.
//!
//! How long before is a matter of the machine and of the hour, and of how long it slept: after
//! 10 ms a processor of a virtual machine takes 70 µs to wake, now and then 160, after 1 ms half of
//! that. So [`Alarm`] learns it: the percentile 99.8 of how late recent sleeps ended, by stochastic
//! approximation (Robbins and Monro, "A stochastic approximation method", 1951): up by a step where
//! a sleep was later, down by 1/500 of it where it was not.

use crate::clock;
use crate::poller::Poller;
use sheaf_stage::{Duration, Instant};
use std::io;

/// Waits until one of the first `descriptors` of `poller` is readable or `until` has come; the last
/// `spin` of that without sleeping. What is readable is known afterwards in any case.
pub fn wait(
    poller: &mut Poller,
    descriptors: usize,
    until: Instant,
    spin: Duration,
) -> io::Result<()> {
    loop {
        let left = until.saturating_since(clock::now());
        poller.wait(Some(left.saturating_sub(spin)))?;
        let ready = (0..descriptors).any(|index| poller.readable(index));
        if ready || left.is_zero() {
            return Ok(());
        }
    }
}

/// Waits like [`wait`], and learns how long before the moment sleep has to end.
#[derive(Debug)]
pub struct Alarm {
    most: Duration,
    short: Ahead,
    long: Ahead,
}

/// From here on a sleep is a long one: the kernel's tick (at 250 Hz) has been stopped, and whatever
/// the processor remembered is gone.
const LONG: Duration = Duration::from_millis(4);

impl Alarm {
    /// Looks for no longer than `most` before a moment; zero for never.
    pub fn new(most: Duration) -> Alarm {
        let ahead = Ahead::new(most);
        Alarm { most, short: ahead, long: ahead }
    }

    /// As [`wait`].
    pub fn wait(
        &mut self,
        poller: &mut Poller,
        descriptors: usize,
        until: Instant,
    ) -> io::Result<()> {
        let left = until.saturating_since(clock::now());
        let ahead = if left < LONG { &mut self.short } else { &mut self.long };
        if left > ahead.time() {
            poller.wait(Some(left.saturating_sub(ahead.time())))?;
            if (0..descriptors).any(|index| poller.readable(index)) {
                return Ok(());
            }
            // Where nothing was readable the sleep ended by itself (or by a signal, which is
            // early).
            ahead.learn(clock::now().saturating_since(until - ahead.time()));
        }
        wait(poller, descriptors, until, self.most)
    }
}

/// How long before a moment sleep should end.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    nanos: u64,
    most: u64,
}

impl Ahead {
    /// Up by so much for each sleep that ended later, in nanoseconds.
    const UP: u64 = 20_000;
    /// Down for each other: so one of 501 is later. A round trip has two sleeps, so that this is
    /// 0.4 % of round trips.
    const DOWN: u64 = Self::UP / 500;

    /// On the safe side as long as nothing is known.
    fn new(most: Duration) -> Ahead {
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        Ahead { nanos: most, most }
    }

    fn time(self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// A sleep ended so `late`. Whoever was later than is ever looked waited for a processor, not
    /// for its waking up, and looking sooner would have taken even more from whoever had it.
    fn learn(&mut self, late: Duration) {
        let late = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        if late > self.most {
            return;
        }
        self.nanos = match late > self.nanos {
            true => self.nanos.saturating_add(Self::UP).min(self.most),
            false => self.nanos.saturating_sub(Self::DOWN),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduling::precise_sleeps;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn a_wait_never_ends_early_unless_there_is_something_to_read() {
        precise_sleeps().unwrap();
        let (here, there) = UnixDatagram::pair().unwrap();
        let mut poller = Poller::default();
        let index = poller.add(&here);
        for spin in [0, 50, 5000].map(Duration::from_micros) {
            let until = clock::now() + Duration::from_millis(2);
            wait(&mut poller, 1, until, spin).unwrap();
            assert!(clock::now() >= until);
            assert!(!poller.readable(index));
        }
        let mut alarm = Alarm::new(Duration::from_micros(200));
        for milliseconds in [1, 1, 5, 0] {
            let until = clock::now() + Duration::from_millis(milliseconds);
            alarm.wait(&mut poller, 1, until).unwrap();
            assert!(clock::now() >= until);
            assert!(!poller.readable(index));
        }
        there.send(b"now").unwrap();
        wait(&mut poller, 1, Instant::MAX, Duration::ZERO).unwrap();
        assert!(poller.readable(index));
        alarm.wait(&mut poller, 1, Instant::MAX).unwrap();
        assert!(poller.readable(index));
    }

    /// After `count` sleeps that end late by `late(n)` microseconds.
    fn learnt(count: u64, late: impl Fn(u64) -> u64) -> u64 {
        let mut ahead = Ahead::new(Duration::from_micros(200));
        (0..count).for_each(|n| ahead.learn(Duration::from_micros(late(n))));
        ahead.time().as_micros() as u64
    }

    #[test]
    fn looking_begins_as_long_before_as_all_but_a_five_hundredth_of_the_sleeps_are_late() {
        assert_eq!(learnt(0, |_| 0), 200, "nothing is known");
        assert!((39..=60).contains(&learnt(9000, |_| 40)));
        // A fiftieth is late by 120 us, so that is what must be covered; one of 3000 is not.
        assert!((118..=140).contains(&learnt(9000, |n| if n % 50 == 0 { 120 } else { 30 })));
        assert!((29..=70).contains(&learnt(9000, |n| if n % 3000 == 0 { 120 } else { 30 })));
    }

    #[test]
    fn who_waited_for_a_busy_processor_is_no_reason_to_look_for_longer() {
        assert!(learnt(9000, |n| if n % 3 == 0 { 5000 } else { 30 }) <= 60);
        assert_eq!(Ahead::new(Duration::ZERO).time(), Duration::ZERO);
    }
}
