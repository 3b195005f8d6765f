//! Threads in real time: their priority, and their waits.

use sheaf_netio::clock;
use sheaf_netio::poller::Poller;
use sheaf_netio::scheduling;
use sheaf_stage::{Duration, Instant};
use std::io;

/// Priority of threads that measure, of SCHED_FIFO: above ordinary processes, below the kernel's
/// interrupt threads, which have 50.
const PRIORITY: u8 = 10;

/// Runs the calling thread before all ordinary ones, so that others' work on the machine is not
/// measured. Needs root.
pub fn prioritise() -> io::Result<()> {
    scheduling::fifo(PRIORITY)
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
