//! TAP interfaces: an Ethernet interface whose other end is a file descriptor.

use crate::tuntap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// A TAP interface; it goes when this value does.
#[derive(Debug)]
pub struct Tap {
    file: File,
}

impl Tap {
    /// Makes the interface `name` (at most 15 bytes) in this thread's network namespace.
    pub fn open(name: &str) -> io::Result<Tap> {
        Ok(Tap { file: tuntap::open(name, libc::IFF_TAP | libc::IFF_NO_PI)? })
    }

    /// A frame that the host sends; `None` when there is none.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        tuntap::receive(&self.file, buffer)
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
