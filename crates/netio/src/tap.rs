//! TAP interfaces: an Ethernet interface whose other end is a file descriptor.

use crate::tuntap;
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// Frames as they are, with nothing before them.
const FLAGS: libc::c_int = libc::IFF_TAP | libc::IFF_NO_PI;
/// IP packets likewise.
const IP_FLAGS: libc::c_int = libc::IFF_TUN | libc::IFF_NO_PI;

/// A TAP interface; it goes when this value does.
#[derive(Debug)]
pub struct Tap {
    file: File,
}

impl Tap {
    /// Makes the interface `name` (at most 15 bytes) in this thread's network namespace.
    pub fn open(name: &str) -> io::Result<Tap> {
        Ok(Tap { file: tuntap::open(name, FLAGS)? })
    }

    /// Makes the interface `name` likewise, without Ethernet: its frames are IP packets.
    pub fn open_ip(name: &str) -> io::Result<Tap> {
        Ok(Tap { file: tuntap::open(name, IP_FLAGS)? })
    }

    /// The macvtap interface `name`, of whose character device `file` is open, non-blocking. It
    /// stays when this value goes.
    pub fn of_macvtap(file: File, name: &str) -> io::Result<Tap> {
        tuntap::attach(&file, name, FLAGS)?;
        Ok(Tap { file })
    }

    /// A frame that the host sends; `None` when there is none.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        tuntap::receive(&self.file, buffer)
    }

    /// Hands a frame to the host that lies in two parts.
    pub fn send_parts(&self, header: &[u8], packet: &[u8]) -> io::Result<()> {
        (&self.file).write_vectored(&[IoSlice::new(header), IoSlice::new(packet)]).map(drop)
    }

    /// Hands a frame to the host.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        (&self.file).write(frame).map(drop)
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
