//! The socket.

use super::FAMILY;
use super::message::{command, encode};
use crate::generic::Generic;
use crate::socket;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};
use nix::libc;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use thiserror::Error;

/// Room for messages that wait to be read, in bytes; the kernel takes twice that. A frame takes
/// about 5 KB, so that is some 3000, a third of what 64 radios have under way at most. What comes
/// on a full socket the driver drops.
const ROOM: libc::c_int = 8 << 20;
/// Longest datagram: one message, or a refusal with the message that it is about.
const LONGEST: usize = 1 << 16;

/// The kernel does not accept a medium.
#[derive(Debug, Error)]
pub enum RegisterError {
    /// There is no such family.
    #[error("this kernel has no mac80211_hwsim; load it with `modprobe mac80211_hwsim radios=N`")]
    NoDriver,
    /// Another process is the medium.
    #[error(
        "another medium of mac80211_hwsim is at work in this network namespace; stop it first \
         (wmediumd, or another `sheaf emulate medium`)"
    )]
    Taken,
    /// Some radio has several channels.
    #[error(
        "mac80211_hwsim takes no medium while a radio has several channels; load it with channels=1"
    )]
    Channels,
    /// The right is missing.
    #[error("mac80211_hwsim takes a medium from root alone; run it with sudo")]
    NotPermitted,
    /// Another error.
    #[error("cannot register as the medium of mac80211_hwsim: {0}; see the kernel's log")]
    Other(#[from] io::Error),
}

/// The socket of the medium; when it is closed, radios do without one.
pub struct Hwsim {
    socket: Socket,
    family: u16,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for Hwsim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hwsim").field("family", &self.family).finish_non_exhaustive()
    }
}

impl Hwsim {
    /// A socket of the network namespace of this thread.
    ///
    /// # Errors
    /// [`RegisterError::NoDriver`], or that of the system.
    pub fn open() -> Result<Hwsim, RegisterError> {
        let family = Generic::open()?.number(FAMILY).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => RegisterError::NoDriver,
            _ => RegisterError::Other(error),
        })?;
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // A refusal without the frame that it is about.
        socket.set_cap_ack(true)?;
        if socket::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &ROOM).is_err() {
            // In a user namespace the bound of the machine holds.
            socket::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &ROOM)?;
        }
        Ok(Hwsim { socket, family, buffer: vec![0; LONGEST] })
    }

    /// Registers as the medium of the radios that were made in its network namespace. Needs
    /// CAP_NET_ADMIN there. Until it has returned, nothing is read or sent.
    ///
    /// # Errors
    /// As in [`RegisterError`].
    pub fn register(&mut self) -> Result<(), RegisterError> {
        let mut message = Vec::new();
        encode(&mut message, self.family, command::REGISTER, 0, |_| {});
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        message[FLAGS].copy_from_slice(&flags.to_ne_bytes());
        self.socket.send(&message, 0)?;
        loop {
            let len = self.socket.recv(&mut &mut self.buffer[..], 0)?;
            // Another processor may have sent a frame before the reply; it counts as lost before
            // the medium began.
            let Some(code) = reply(&self.buffer[..len.min(LONGEST)]) else { continue };
            return match code {
                0 => Ok(self.socket.set_non_blocking(true)?),
                libc::EBUSY => Err(RegisterError::Taken),
                libc::EOPNOTSUPP => Err(RegisterError::Channels),
                libc::EPERM => Err(RegisterError::NotPermitted),
                code => Err(io::Error::from_raw_os_error(code).into()),
            };
        }
    }

    /// Number of the family, for messages.
    pub fn family(&self) -> u16 {
        self.family
    }

    /// Reads a datagram; `None` where there is none.
    ///
    /// # Errors
    /// Errors of the socket. ENOBUFS is not one: the driver drops what did not fit, and the numbers
    /// of frames say how many those were.
    pub fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        loop {
            match self.socket.recv(&mut &mut self.buffer[..], 0) {
                Ok(len) => return Ok(Some(&self.buffer[..len.min(LONGEST)])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a message; the driver has acted on it when this returns.
    ///
    /// # Errors
    /// The kernel has no memory for it. Where the driver refuses it, a message says so.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        self.socket.send(message, 0).map(drop)
    }
}

impl AsFd for Hwsim {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Flags in `struct nlmsghdr`, and where its kind and the error code behind it are.
const FLAGS: std::ops::Range<usize> = 6..8;
const KIND: std::ops::Range<usize> = 4..6;
const CODE: std::ops::Range<usize> = 16..20;

/// The positive error number of a reply, 0 for success; `None` where the datagram is not one.
fn reply(datagram: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(datagram.get(KIND)?.try_into().ok()?);
    let code = i32::from_ne_bytes(datagram.get(CODE)?.try_into().ok()?);
    (kind == libc::NLMSG_ERROR as u16).then(|| code.saturating_neg())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_has_a_code_and_a_frame_has_not() {
        let mut message = Vec::new();
        encode(&mut message, libc::NLMSG_ERROR as u16, 0, 7, |_| {});
        message[CODE].copy_from_slice(&(-libc::EBUSY).to_ne_bytes());
        assert_eq!(reply(&message), Some(libc::EBUSY));
        assert_eq!(reply(&message[..19]), None);
        encode(&mut message, 0x20, command::REGISTER, 7, |_| {});
        assert_eq!(reply(&message), None);
    }
}
