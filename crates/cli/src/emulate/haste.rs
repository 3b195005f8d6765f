//! What a machine does that makes departures late, and how not to let it.
//!
//! Measured in `docs/decisions/0006-emulator-precision.md`: what each of these gives and costs.

use super::arguments::Arguments;
use anyhow::{Context, bail};
use nix::libc;
use sheaf_netio::timer;
use std::fs::File;
use std::io::Write;

/// The least and the greatest priority of SCHED_FIFO (sched(7)).
pub const PRIORITIES: std::ops::RangeInclusive<u8> = 1..=99;

/// Makes this thread, which is to carry packets, as timely as `arguments` ask; lasts for as long as the
/// answer lives.
pub fn begin(arguments: &Arguments) -> anyhow::Result<Option<File>> {
    timer::precise()?;
    if let Some(priority) = arguments.fifo {
        fifo(priority)?;
    }
    arguments.awake.then(awake).transpose()
}

/// Keeps idle processors from sleeping for as long as the answer lives.
///
/// Source: Documentation/power/pm_qos_interface.rst of the kernel. The least latency, 0 µs, leaves only
/// the idle state that polls, so a wake-up takes no interrupt. Every idle processor of the machine
/// then runs at full power, and in a virtual machine takes its host's time.
fn awake() -> anyhow::Result<File> {
    let device = "/dev/cpu_dma_latency";
    let mut file = File::options().write(true).open(device).with_context(|| {
        format!("cannot open {device}; leave out --awake where the kernel has no idle states")
    })?;
    file.write_all(&0_i32.to_ne_bytes()).with_context(|| format!("cannot write {device}"))?;
    Ok(file)
}

/// Puts this thread before all ordinary processes (SCHED_FIFO). They still get a twentieth of each
/// second, in which this thread does not run if it would leave them nothing.
fn fifo(priority: u8) -> anyhow::Result<()> {
    let wanted = libc::sched_param { sched_priority: priority.into() };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the call reads one sched_param, which lives through it; thread 0 is this one.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const wanted) } != 0 {
        let error = std::io::Error::last_os_error();
        bail!(
            "--fifo {priority} is refused ({error}); give this process CAP_SYS_NICE, or leave it out"
        );
    }
    Ok(())
}
