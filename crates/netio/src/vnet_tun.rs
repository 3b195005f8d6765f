//! TUN and TAP interfaces that hand over and take super-packets and unfinished checksums.
//!
//! Source: linux, Documentation/networking/tuntap.rst. Packets have a virtio header before them
//! ([`crate::vnet`]).

use nix::libc;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

/// What goes through the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// IP packets.
    Tun,
    /// Ethernet frames.
    Tap,
}

/// An interface whose other end is ours; it goes when this value does.
#[derive(Debug)]
pub struct VnetTun {
    file: File,
}

/// linux/if_tun.h; the libc crate has no names for these.
const TUN_F_CSUM: libc::c_ulong = 0x01;
const TUN_F_TSO4: libc::c_ulong = 0x02;
const TUN_F_TSO6: libc::c_ulong = 0x04;
const TUN_F_TSO_ECN: libc::c_ulong = 0x08;
const TUN_F_USO4: libc::c_ulong = 0x20;
const TUN_F_USO6: libc::c_ulong = 0x40;
/// Refuse a name that exists.
const IFF_TUN_EXCL: libc::c_int = 0x8000;

mod ioctl {
    #![allow(missing_docs, reason = "the macro makes the item")]
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

impl VnetTun {
    /// Makes the interface `name` (at most 15 bytes) in this thread's network namespace.
    ///
    /// # Errors
    /// When it exists, when `/dev/net/tun` does not, or without the right to make one.
    pub fn open(name: &str, layer: Layer) -> io::Result<VnetTun> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
        let file = options.open("/dev/net/tun")?;
        // SAFETY: an all-zero ifreq is a valid one.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if name.len() >= request.ifr_name.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "interface name too long"));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let layer = if layer == Layer::Tun { libc::IFF_TUN } else { libc::IFF_TAP };
        let flags = layer | libc::IFF_NO_PI | libc::IFF_VNET_HDR | IFF_TUN_EXCL;
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        let fd = file.as_raw_fd();
        // SAFETY: TUNSETIFF reads one ifreq, which lives through the call.
        unsafe { ioctl::tunsetiff(fd, &raw const request) }?;
        let tcp = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
        // SAFETY: TUNSETOFFLOAD takes a number and touches no memory.
        let set = |flags| unsafe { ioctl::tunsetoffload(fd, flags as libc::c_int) };
        // Kernels before 6.2 know no UDP segmentation.
        set(tcp | TUN_F_USO4 | TUN_F_USO6).or_else(|_| set(tcp))?;
        Ok(VnetTun { file })
    }

    /// Puts a packet that the host sends into `buffer`, virtio header first; `None` when there is
    /// none. `buffer` has room for [`vnet::LEN`](crate::vnet::LEN) +
    /// [`vnet::LONGEST`](crate::vnet::LONGEST) bytes.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(buffer) {
            Ok(len) => Ok(Some(len)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Hands a packet to the host, virtio header first.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(drop)
    }
}

impl AsFd for VnetTun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
