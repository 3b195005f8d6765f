//! Common part of TUN and TAP interfaces: a file of `/dev/net/tun`.

use crate::socket;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

mod ioctl {
    #![allow(missing_docs, reason = "the macros make the items")]
    use nix::libc;
    nix::ioctl_write_ptr_bad!(
        tunsetiff,
        nix::request_code_write!(b'T', 202, size_of::<libc::c_int>()),
        libc::ifreq
    );
    nix::ioctl_write_int_bad!(
        tunsetoffload,
        nix::request_code_write!(b'T', 208, size_of::<libc::c_uint>())
    );
}

/// Makes the interface `name` with `flags` (`IFF_…`) in this thread's network namespace; it goes
/// when the file is closed.
pub(crate) fn open(name: &str, flags: libc::c_int) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
    let file = options.open("/dev/net/tun")?;
    attach(&file, name, flags)?;
    Ok(file)
}

/// Ties a file to the interface `name`, with `flags` (`IFF_…`).
pub(crate) fn attach(file: &File, name: &str, flags: libc::c_int) -> io::Result<()> {
    let mut request = socket::request(name)?;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads one ifreq, which lives through the call.
    unsafe { ioctl::tunsetiff(file.as_raw_fd(), &raw const request) }?;
    Ok(())
}

/// The host may leave to us what `offloads` (`TUN_F_…`) name.
pub(crate) fn set_offloads(file: &File, offloads: libc::c_ulong) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes a number and touches no memory.
    unsafe { ioctl::tunsetoffload(file.as_raw_fd(), offloads as libc::c_int) }?;
    Ok(())
}

/// The next packet that the host sends; `None` when there is nothing.
pub(crate) fn receive(mut file: &File, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    none_yet(file.read(buffer))
}

/// A read of nothing is no error.
pub(crate) fn none_yet(read: io::Result<usize>) -> io::Result<Option<usize>> {
    match read {
        Ok(len) => Ok(Some(len)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// linux/if_tun.h; the libc crate has no names for these.
pub(crate) const TUN_F_CSUM: libc::c_ulong = 0x01;
pub(crate) const TUN_F_TSO4: libc::c_ulong = 0x02;
pub(crate) const TUN_F_TSO6: libc::c_ulong = 0x04;
pub(crate) const TUN_F_TSO_ECN: libc::c_ulong = 0x08;
/// Checksums and TCP over IPv4 and IPv6, also where the first segment carries CWR.
pub(crate) const TCP_OFFLOADS: libc::c_ulong = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
