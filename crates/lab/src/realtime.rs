//! Threads in real time: their priority, and their waits.

use nix::libc;
use sheaf_netio::clock;
use sheaf_netio::poller::Poller;
use sheaf_stage::{Duration, Instant};
use std::io;

/// Priority of threads that measure: above ordinary processes, below what the kernel runs at 50.
const PRIORITY: libc::c_int = 10;

/// Runs the calling thread before all ordinary ones, so that others' work on the machine is not
/// measured. Needs root.
pub fn prioritise() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: the structure lives through the call; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits until `until`.
pub fn wait_until(until: Instant) -> io::Result<()> {
    loop {
        let left = until.saturating_since(clock::now());
        if left == Duration::ZERO {
            return Ok(());
        }
        Poller::default().wait(Some(left))?;
    }
}
