//! TUN and TAP interfaces that hand over and take super-packets and unfinished checksums.
//!
//! Source: linux, Documentation/networking/tuntap.rst. Packets have a virtio header before them
//! ([`crate::vnet`]).

use crate::tuntap::{self, TCP_OFFLOADS};
use nix::libc;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// Kind of packets that go through the interface.
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
const TUN_F_USO4: libc::c_ulong = 0x20;
const TUN_F_USO6: libc::c_ulong = 0x40;
/// Refuse a name that exists.
const IFF_TUN_EXCL: libc::c_int = 0x8000;

impl VnetTun {
    /// Makes the interface `name` (at most 15 bytes) in this thread's network namespace.
    ///
    /// # Errors
    /// When it exists, when `/dev/net/tun` does not, or without the right to make one.
    pub fn open(name: &str, layer: Layer) -> io::Result<VnetTun> {
        let layer = if layer == Layer::Tun { libc::IFF_TUN } else { libc::IFF_TAP };
        let flags = layer | libc::IFF_NO_PI | libc::IFF_VNET_HDR | IFF_TUN_EXCL;
        let file = tuntap::open(name, flags)?;
        // Kernels before 6.2 know no UDP segmentation.
        tuntap::set_offloads(&file, TCP_OFFLOADS | TUN_F_USO4 | TUN_F_USO6)
            .or_else(|_| tuntap::set_offloads(&file, TCP_OFFLOADS))?;
        Ok(VnetTun { file })
    }

    /// Puts a packet that the host sends into `buffer`, virtio header first; `None` when there is
    /// none. `buffer` has room for [`vnet::LEN`](crate::vnet::LEN) +
    /// [`vnet::LONGEST`](crate::vnet::LONGEST) bytes.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        tuntap::receive(&self.file, buffer)
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
