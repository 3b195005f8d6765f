//! Raw packet sockets: whole Ethernet frames of one interface.

use crate::socket::bind_packet;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socket};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A socket that sends and receives all frames of one interface.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
}

impl PacketSocket {
    /// For interface `ifindex` of this thread's network namespace.
    pub fn open(ifindex: u32) -> io::Result<PacketSocket> {
        PacketSocket::of_protocol(ifindex, libc::ETH_P_ALL as u16)
    }

    /// The same, which receives frames of EtherType `protocol` alone, after everything at the
    /// ingress hook has seen them; 0: of none.
    pub fn of_protocol(ifindex: u32, protocol: u16) -> io::Result<PacketSocket> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None)?;
        bind_packet(&socket, ifindex, protocol)?;
        Ok(PacketSocket { socket })
    }

    /// Sends a frame.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        send(self.socket.as_raw_fd(), frame, MsgFlags::empty())?;
        Ok(())
    }

    /// A frame that is there already; `None` when there is none.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match recv(self.socket.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(len) => Ok(Some(len)),
            Err(nix::Error::EAGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
