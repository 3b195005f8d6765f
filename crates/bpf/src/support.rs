//! Whether the programs can be loaded at all. Which features the kernel has is found by trying.

use nix::libc;
use sheaf_netio::capability::{self, Capability, Missing};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use thiserror::Error;

/// Rights that loading and attaching the programs takes: the programs read and write packets by
/// pointers, for which the kernel wants CAP_PERFMON.
pub const CAPABILITIES: [Capability; 3] =
    [Capability::CAP_NET_ADMIN, Capability::CAP_BPF, Capability::CAP_PERFMON];

/// Why the kernel engine cannot be used, and what helps.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unsupported {
    /// A right is missing.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// Capabilities of a user namespace or a container, or a lockdown.
    #[error("bpf(2) is refused here; run outside of user namespaces and containers")]
    Denied,
    /// Built without.
    #[error("this kernel has no bpf(2); use one with CONFIG_BPF_SYSCALL")]
    NoBpf,
}

/// BPF_MAP_CREATE of linux/bpf.h.
const BPF_MAP_CREATE: libc::c_long = 0;
/// A kind of map that needs CAP_BPF on every kernel, and how it must be made (BPF_F_NO_PREALLOC).
const BPF_MAP_TYPE_LPM_TRIE: u32 = 11;
const BPF_F_NO_PREALLOC: u32 = 1;

/// Checks whether bpf(2) can be used at all.
///
/// # Errors
/// The process lacks the rights, or the kernel the system call.
pub fn support() -> Result<(), Unsupported> {
    capability::require(&CAPABILITIES)?;
    // Type, size of a key and of a value, number of entries, flags: the smallest map there is.
    let mut attributes = [BPF_MAP_TYPE_LPM_TRIE, 8, 4, 1, BPF_F_NO_PREALLOC];
    let (at, len) = (attributes.as_mut_ptr(), size_of_val(&attributes));
    // SAFETY: the command reads these numbers only.
    let map = unsafe { libc::syscall(libc::SYS_bpf, BPF_MAP_CREATE, at, len) };
    if let Ok(fd @ 0..) = i32::try_from(map) {
        // SAFETY: the descriptor is new and nobody else's.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
        return Ok(());
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::ENOSYS) => Err(Unsupported::NoBpf),
        Some(libc::EPERM | libc::EACCES) => Err(Unsupported::Denied),
        // What else goes wrong, loading the programs says with its reason.
        _ => Ok(()),
    }
}
