//! The few commands of bpf(2) that hanging a program on an interface takes.

use nix::libc;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Commands and constants of linux/bpf.h.
const BPF_PROG_GET_FD_BY_ID: libc::c_long = 13;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const BPF_PROG_QUERY: libc::c_long = 16;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_LINK_DETACH: libc::c_long = 34;
const BPF_F_BEFORE: u32 = 1 << 3;
const BPF_F_ID: u32 = 1 << 5;
/// Length of a program's name, with the zero that ends it.
const BPF_OBJ_NAME_LEN: usize = 16;
/// Most programs that are looked at on one hook, as many as the kernel allows (BPF_MPROG_MAX).
const PROGRAMS: usize = 64;

/// The first members of `union bpf_attr` for BPF_LINK_CREATE.
#[repr(C)]
#[derive(Default)]
struct Create {
    program: u32,
    ifindex: u32,
    hook: u32,
    flags: u32,
    relative: u32,
    pad: u32,
    revision: u64,
}

/// Attributes of BPF_PROG_QUERY.
#[repr(C)]
#[derive(Default)]
struct Query {
    ifindex: u32,
    hook: u32,
    flags: u32,
    attached: u32,
    ids: u64,
    count: u32,
    pad: u32,
    each_flags: u64,
    links: u64,
    link_flags: u64,
    revision: u64,
}

/// Attributes of BPF_OBJ_GET_INFO_BY_FD.
#[repr(C)]
struct GetInfo {
    fd: u32,
    len: u32,
    info: u64,
}

/// The first members of `struct bpf_prog_info`, up to the name.
#[repr(C)]
#[derive(Default)]
struct Info {
    before: [u64; 8],
    name: [u8; BPF_OBJ_NAME_LEN],
}

/// Puts `program` on tcx hook `hook` of interface `ifindex`, behind the others, or in front of the
/// program with number `before`. The kernel takes it off when the last copy of the descriptor goes.
pub fn link(
    program: BorrowedFd<'_>,
    ifindex: u32,
    hook: u32,
    before: Option<u32>,
) -> io::Result<OwnedFd> {
    let mut create = Create {
        program: program.as_raw_fd() as u32,
        ifindex,
        hook,
        flags: before.map_or(0, |_| BPF_F_BEFORE | BPF_F_ID),
        relative: before.unwrap_or(0),
        ..Create::default()
    };
    // SAFETY: this command takes numbers only. The link keeps the program.
    unsafe { new_fd(BPF_LINK_CREATE, &mut create) }
}

/// Takes the program of `link` off at once: closing the link alone leaves it on for a moment.
pub fn unlink(link: BorrowedFd<'_>) {
    let mut attributes = [link.as_raw_fd() as u32, 0];
    // SAFETY: the command reads these two numbers. It fails only where the interface has gone.
    let _ = unsafe { call(BPF_LINK_DETACH, &mut attributes) };
}

/// Numbers and names of the programs on tcx hook `hook` of interface `ifindex`, in their order.
pub fn linked(ifindex: u32, hook: u32) -> io::Result<Vec<(u32, String)>> {
    let mut ids = [0_u32; PROGRAMS];
    let mut query = Query {
        ifindex,
        hook,
        ids: ids.as_mut_ptr() as u64,
        count: ids.len() as u32,
        ..Query::default()
    };
    // SAFETY: the kernel writes at most `count` numbers to `ids`.
    unsafe { call(BPF_PROG_QUERY, &mut query) }?;
    let ids = &ids[..ids.len().min(query.count as usize)];
    // One that has gone in the meantime has no name.
    Ok(ids.iter().filter_map(|id| Some((*id, name_of(*id).ok()?))).collect())
}

/// Name of the program with number `id`.
fn name_of(id: u32) -> io::Result<String> {
    let mut attributes = [id, 0, 0, 0];
    // SAFETY: this command takes numbers only.
    let program = unsafe { new_fd(BPF_PROG_GET_FD_BY_ID, &mut attributes) }?;
    let mut info = Info::default();
    let mut get = GetInfo {
        fd: program.as_raw_fd() as u32,
        len: size_of::<Info>() as u32,
        info: &raw mut info as u64,
    };
    // SAFETY: the kernel writes at most `len` bytes to `info`.
    unsafe { call(BPF_OBJ_GET_INFO_BY_FD, &mut get) }?;
    let name = CStr::from_bytes_until_nul(&info.name).unwrap_or_default();
    Ok(name.to_string_lossy().into_owned())
}

/// A command that returns a descriptor.
///
/// # Safety
/// As for [`call`].
unsafe fn new_fd<T>(command: libc::c_long, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: as the caller promises.
    let fd = unsafe { call(command, attributes) }?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Calls bpf(2).
///
/// # Safety
/// `attributes` are those of `command`, and what their addresses lead to lives.
unsafe fn call<T>(command: libc::c_long, attributes: &mut T) -> io::Result<i32> {
    let (at, len) = (std::ptr::from_mut(attributes), size_of::<T>());
    // SAFETY: the kernel reads and writes `len` bytes, all of them ours; the rest is the caller's.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, at, len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

#[cfg(test)]
pub mod tests {
    //! Programs written out as instructions, for tests of the hooks.

    use super::*;

    const BPF_PROG_LOAD: libc::c_long = 5;
    const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;

    /// An eBPF instruction (RFC 9669, section 3).
    #[repr(C)]
    #[derive(Clone, Copy, Debug)]
    pub struct Instruction {
        opcode: u8,
        /// Source above, destination below.
        registers: u8,
        offset: i16,
        immediate: i32,
    }

    impl Instruction {
        pub const fn new(opcode: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Self {
            let registers =
                if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
            Instruction { opcode, registers, offset, immediate }
        }
    }

    /// The first members of `union bpf_attr` for BPF_PROG_LOAD.
    #[repr(C)]
    #[derive(Default)]
    struct Load {
        kind: u32,
        count: u32,
        instructions: u64,
        licence: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; BPF_OBJ_NAME_LEN],
    }

    /// Loads a classifier of `instructions`, which calls itself `name`.
    pub fn load(instructions: &[Instruction], name: &str) -> io::Result<OwnedFd> {
        let mut load = Load {
            kind: BPF_PROG_TYPE_SCHED_CLS,
            count: instructions.len() as u32,
            instructions: instructions.as_ptr() as u64,
            licence: c"Dual MIT/GPL".as_ptr() as u64,
            ..Load::default()
        };
        let len = name.len().min(BPF_OBJ_NAME_LEN - 1);
        load.name[..len].copy_from_slice(&name.as_bytes()[..len]);
        // SAFETY: the instructions and the licence outlive the call.
        unsafe { new_fd(BPF_PROG_LOAD, &mut load) }
    }
}
