//! Whether the programs can be loaded at all. Which features the kernel has is found by trying.

use nix::libc;
use std::io;
use thiserror::Error;

/// Why the kernel engine cannot be used, and what helps.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unsupported {
    /// Not root.
    #[error("loading eBPF needs root; run with sudo")]
    NotRoot,
    /// Root in a user namespace, a container without the capability, or a lockdown.
    #[error("bpf(2) is refused here; run as root of the host, outside of user namespaces")]
    Denied,
    /// Built without.
    #[error("this kernel has no bpf(2); use one with CONFIG_BPF_SYSCALL")]
    NoBpf,
}

/// BPF_PROG_GET_NEXT_ID of linux/bpf.h, which needs the rights that all else here needs.
const BPF_PROG_GET_NEXT_ID: libc::c_long = 11;

/// Checks whether bpf(2) can be used at all.
///
/// # Errors
/// The process lacks the rights, or the kernel the system call.
pub fn support() -> Result<(), Unsupported> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Unsupported::NotRoot);
    }
    let mut attributes = [0_u32; 4];
    let (at, len) = (attributes.as_mut_ptr(), size_of_val(&attributes));
    // SAFETY: the command reads one of these numbers and writes another.
    if unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_GET_NEXT_ID, at, len) } == 0 {
        return Ok(());
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::ENOSYS) => Err(Unsupported::NoBpf),
        Some(libc::EPERM | libc::EACCES) => Err(Unsupported::Denied),
        // ENOENT: there is no program yet.
        _ => Ok(()),
    }
}
