//! Waits for a moment to the microsecond: sleep first, then look again and again.
//!
//! Principle: the kernel wakes a sleeper late by what it takes to wake a processor and a thread,
//! 15 µs and more; so the sleep ends a little before the moment, and the rest is spent asking
//! descriptors without sleeping. A descriptor that becomes readable ends either part.

use crate::clock;
use crate::poller::Poller;
use nix::libc;
use sheaf_stage::{Duration, Instant};
use std::io;

/// `struct sched_attr` (sched_setattr(2)).
#[repr(C)]
#[derive(Default)]
struct Scheduling {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// The shortest time slice that the scheduler grants, in nanoseconds.
const SLICE: u64 = 100_000;

/// Lets this thread's sleeps end when they should: the kernel rounds up by 50 µs otherwise, to wake
/// several at once. And lets it run soon though others have the processors:
/// who asks for a short slice is scheduled sooner (EEVDF, Linux 6.12). Not under SCHED_FIFO,
/// which stops a thread that spins for 50 ms of every second.
pub fn precise() -> io::Result<()> {
    let size = size_of::<Scheduling>() as u32;
    let wanted = Scheduling { size, runtime: SLICE, ..Scheduling::default() };
    // SAFETY: sched_setattr reads `size` bytes, all of them ours; prctl takes numbers and touches
    // no memory. Process 0 is this thread.
    unsafe {
        // Only an improvement: on an older kernel waits are as good as others'.
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0);
        match libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Lets this thread come before every ordinary process, as the kernel's own forwarding does: what
/// has to wait for us fills queues, and a report that is late looks like a link that failed. Not for
/// threads that spin. The kernel keeps a twentieth of the time for the others; where it is not
/// allowed, nothing changes.
pub fn hurry() {
    let least = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the call reads one sched_param, which lives through it.
    let _ = unsafe { libc::sched_setscheduler(0, policy, &raw const least) };
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn a_wait_never_ends_early_unless_there_is_something_to_read() {
        precise().unwrap();
        let (here, there) = UnixDatagram::pair().unwrap();
        let mut poller = Poller::default();
        let index = poller.add(&here);
        for spin in [0, 50, 5000].map(Duration::from_micros) {
            let until = clock::now() + Duration::from_millis(2);
            wait(&mut poller, 1, until, spin).unwrap();
            assert!(clock::now() >= until);
            assert!(!poller.readable(index));
        }
        there.send(b"now").unwrap();
        wait(&mut poller, 1, Instant::MAX, Duration::ZERO).unwrap();
        assert!(poller.readable(index));
    }
}
