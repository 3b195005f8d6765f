//! The machine's monotonic clock, as stages know time.

use nix::time::{ClockId, clock_gettime};
use sheaf_stage::Instant;

/// CLOCK_MONOTONIC, the clock of `bpf_ktime_get_ns` too.
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has this clock");
    Instant::from_nanos(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}
