//! The machine's clocks: the monotonic one, as stages know time, the kernel's stamps, and the
//! calendar's.

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use sheaf_stage::Instant;

/// CLOCK_MONOTONIC, the clock of `bpf_ktime_get_ns` too.
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has this clock");
    Instant::from_nanos(nanos(&time))
}

fn nanos(time: &TimeSpec) -> u64 {
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// CLOCK_REALTIME in nanoseconds since 1970. Before it is set it may show any date.
fn wall() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_REALTIME).expect("every Linux has this clock");
    nanos(&time)
}

/// CLOCK_REALTIME in whole seconds since 1970.
pub fn utc() -> u64 {
    wall() / 1_000_000_000
}

/// From 1970 to the start of the monotonic clock, in nanoseconds: what stamps of CLOCK_REALTIME
/// are ahead. The time between the two questions makes it too small, so that packets seem to come
/// late, by less than a microsecond as a rule; none seems to come early.
pub fn epoch() -> u64 {
    wall().saturating_sub(now().as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_brings_a_stamp_of_now_to_now() {
        let before = now();
        let stamp = wall();
        let at = Instant::from_nanos(stamp.saturating_sub(epoch()));
        // Half a day is more than any wait between the questions, and less than the two clocks are
        // apart.
        let day = sheaf_stage::Duration::from_secs(12 * 3600);
        assert!(at >= before && at < before + day);
    }
}
