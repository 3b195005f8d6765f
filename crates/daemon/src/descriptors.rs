//! The limit of open files.
//!
//! It is checked before anything is set up, because what fails half way fails in the wrong words: a
//! library that cannot open one more descriptor takes the kernel for one that lacks a feature.

use anyhow::ensure;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors that a service may have open: aggregation has 64 for its queues, 16 for those who
/// ask, and some 20 for programs, maps and sockets.
const NEEDED: u64 = 128;

/// Makes sure that the process may open as many files as a service needs: raises its limit as far
/// as that is allowed.
pub fn require() -> anyhow::Result<()> {
    require_beyond(0)
}

/// The same for a service that opens `more` besides.
pub fn require_beyond(more: u64) -> anyhow::Result<()> {
    let needed = NEEDED + more;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft >= needed {
        return Ok(());
    }
    ensure!(
        hard >= needed,
        "this needs {needed} open files, and the limit is {hard}; raise it (ulimit -n {needed})"
    );
    Ok(setrlimit(Resource::RLIMIT_NOFILE, needed, hard)?)
}
