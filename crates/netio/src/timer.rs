//! Waits for a moment to the microsecond: sleep first, then look again and again.
//!
//! Principle: the kernel wakes a sleeper late by what it takes to wake a processor and a thread; so
//! the sleep ends a little before the moment, and the rest is spent asking descriptors without
//! sleeping. A descriptor that becomes readable ends either part. [`wait`] is told how long before,
//! [`Alarm`] learns it ([`crate::lead`]).

use crate::clock;
use crate::lead::{Lead, Spin};
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

/// Waits like [`wait`], with a [`Lead`] that is learnt.
#[derive(Debug)]
pub struct Alarm {
    lead: Lead,
}

impl Alarm {
    /// Looks before a moment as `spin` says.
    pub fn new(spin: Spin) -> Alarm {
        Alarm { lead: Lead::new(spin) }
    }

    /// As [`wait`].
    pub fn wait(
        &mut self,
        poller: &mut Poller,
        descriptors: usize,
        until: Instant,
    ) -> io::Result<()> {
        let mut now = clock::now();
        let sleep = self.lead.sleep(until - now, now);
        if !sleep.is_zero() {
            poller.wait(Some(sleep))?;
            if (0..descriptors).any(|index| poller.readable(index)) {
                return Ok(());
            }
            // Where nothing was readable the sleep ended by itself (or by a signal, which is
            // early).
            let ends = now + sleep;
            now = clock::now();
            self.lead.woke(sleep, now - ends);
        }
        wait(poller, descriptors, until, Duration::MAX)?;
        self.lead.looked(clock::now().min(until) - now);
        Ok(())
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
        let mut alarm = Alarm::new(Spin::Frugal);
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
}
