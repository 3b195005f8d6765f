//! Means to be run soon by the kernel: timer slack, real-time priorities, idle states.
//!
//! Measured in `docs/decisions/0006-emulator-precision.md`: what each of these gives and costs.

use std::fs::File;
use std::io::{self, Write};
use std::ops::RangeInclusive;

/// The least and the greatest priority of SCHED_FIFO and SCHED_RR (sched(7)).
pub const PRIORITIES: RangeInclusive<u8> = 1..=99;
/// The device that holds a limit on wake-up latency while a process keeps it open.
pub const LATENCY_DEVICE: &str = "/dev/cpu_dma_latency";
/// The shortest time slice that the scheduler grants, in nanoseconds.
const SLICE: u64 = 100_000;
/// The shortest timer slack, in nanoseconds: 0 would stand for the default of 50 µs.
const SLACK: libc::c_ulong = 1;

/// `struct sched_attr` (sched_setattr(2)).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Ends this thread's sleeps when they should end, and wakes it soon on a busy machine.
///
/// The kernel otherwise rounds each sleep up by 50 µs, to wake several threads at once. A thread
/// that asks for a short slice is scheduled sooner (EEVDF, Linux 6.12). SCHED_FIFO is not used for
/// that: it stops a thread that spins for 50 ms of every second.
pub fn precise_sleeps() -> io::Result<()> {
    let size = size_of::<Attributes>() as u32;
    let wanted = Attributes { size, runtime: SLICE, ..Attributes::default() };
    // SAFETY: sched_setattr reads `size` bytes, all of them ours. Process 0 is this thread.
    unsafe {
        // Only an improvement: an older kernel ignores the slice, and waits are as good as others'.
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0);
    }
    Ok(nix::sys::prctl::set_timerslack(SLACK)?)
}

/// Runs this thread before every ordinary process (SCHED_RR), where that is allowed. Returns
/// whether it does.
///
/// The kernel's own forwarding runs so as well: a packet that waits for this thread fills queues,
/// and a report that is late looks like a link that failed. Not for threads that spin. The kernel
/// keeps a twentieth of the time for other processes.
pub fn realtime_if_allowed() -> bool {
    // A refusal is no error here: the policy that holds afterwards decides, and it may have been
    // set from outside.
    let _ = set_policy(libc::SCHED_RR, *PRIORITIES.start());
    // SAFETY: a bare system call; thread 0 is this one.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    policy & !libc::c_long::from(libc::SCHED_RESET_ON_FORK) == libc::c_long::from(libc::SCHED_RR)
}

/// Runs this thread before all ordinary processes (SCHED_FIFO) with one of [`PRIORITIES`].
///
/// Other processes still get a twentieth of each second, in which this thread does not run if it
/// would leave them nothing.
pub fn fifo(priority: u8) -> io::Result<()> {
    set_policy(libc::SCHED_FIFO, priority)
}

/// Sets this thread's policy; its children start with the ordinary one.
fn set_policy(policy: libc::c_int, priority: u8) -> io::Result<()> {
    // `struct sched_param` of the kernel. The call is made without the C library: musl's function
    // only returns ENOSYS.
    let wanted = libc::c_int::from(priority);
    let policy = policy | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the call reads one sched_param, which lives through it; thread 0 is this one.
    match unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const wanted) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Keeps idle processors from sleeping while the returned file is open.
///
/// Source: Documentation/power/pm_qos_interface.rst of the kernel. The least latency, 0 µs, leaves
/// only the idle state that polls, so a wake-up takes no interrupt. Every idle processor of the
/// machine then runs at full power, and in a virtual machine takes its host's time.
pub fn keep_awake() -> io::Result<File> {
    let mut file = File::options().write(true).open(LATENCY_DEVICE)?;
    file.write_all(&0_i32.to_ne_bytes())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The policy of this thread by the kernel's own account.
    fn policy() -> String {
        let text = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // The name in parentheses may contain spaces; it is field 2, the policy field 41.
        let (_, fields) = text.rsplit_once(')').unwrap();
        fields.split_whitespace().nth(41 - 3).unwrap().to_owned()
    }

    #[test]
    fn a_thread_that_became_realtime_says_so_and_its_children_are_ordinary() {
        let realtime = std::thread::spawn(|| {
            let realtime = realtime_if_allowed();
            assert_eq!(realtime, policy() == libc::SCHED_RR.to_string());
            let child = std::thread::spawn(policy).join().unwrap();
            assert_eq!(child, libc::SCHED_OTHER.to_string());
        });
        realtime.join().unwrap();
    }

    #[test]
    fn a_priority_that_does_not_exist_is_refused() {
        assert_eq!(fifo(100).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
