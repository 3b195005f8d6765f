//! Raw IP sockets for one protocol on one interface: whole IP packets out, whole IP packets in.
//!
//! The kernel routes what is sent over the interface's own routes and finds the link address; a
//! host that listens for a protocol does not answer it with ICMP's "protocol unreachable".

use crate::socket::{self, set_option};
use nix::libc;
use nix::sys::socket::{SockaddrStorage, setsockopt, sockopt};
use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

const ON: libc::c_int = 1;
/// IPv6 header bytes.
pub(crate) const V6_HEADER: usize = 40;
/// Bytes of the kernel's memory that may be on their way to the device: more than its queues
/// hold.
const SEND_BUFFER: libc::c_int = 16 << 20;
/// Room for frames while the process does not get its turn, in bytes of the kernel's memory: 1,800
/// full ones, 0.2 s at 100 Mbit/s. The default has 92.
const RECEIVE_BUFFER: libc::c_int = 4 << 20;
/// linux/in6.h; the libc crate has no name for it.
const IPV6_HDRINCL: i32 = 36;

/// A raw socket of one family.
#[derive(Debug)]
pub struct RawSocket {
    socket: OwnedFd,
    protocol: u8,
    v6: bool,
}

/// Protocol of a socket that sends every protocol and receives none (IPPROTO_RAW, raw(7)).
pub const SEND_ONLY: u8 = 255;

impl RawSocket {
    /// For packets of `protocol` in IPv4, or IPv6 where `v6`, on interface `name`.
    pub fn open(name: &str, v6: bool, protocol: u8) -> io::Result<RawSocket> {
        let socket = socket::raw(v6, protocol)?;
        setsockopt(&socket, sockopt::BindToDevice, &OsString::from(name))?;
        let raw = RawSocket { socket, protocol, v6 };
        // The device's queue decides what is too much, as it does for other senders.
        set_option(&raw, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER)?;
        set_option(&raw, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &RECEIVE_BUFFER)?;
        if v6 {
            set_option(&raw, libc::IPPROTO_IPV6, IPV6_HDRINCL, &ON)?;
            set_option(&raw, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, &ON)?;
            set_option(&raw, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, &ON)?;
            set_option(&raw, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, &ON)?;
        } else {
            set_option(&raw, libc::IPPROTO_IP, libc::IP_HDRINCL, &ON)?;
        }
        Ok(raw)
    }

    /// Lets [`RawSocket::send`] fail with `ENOBUFS` from now on where the device's queue refuses
    /// the packet. The kernel says nothing of that otherwise (`IP_RECVERR`, ip(7)).
    pub fn report_refusals(&self) -> io::Result<()> {
        match self.v6 {
            true => set_option(self, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, &ON),
            false => set_option(self, libc::IPPROTO_IP, libc::IP_RECVERR, &ON),
        }
    }

    /// Sends the IP packet `packet` as it is, on the way that leads to `to`.
    pub fn send(&self, packet: &[u8], to: IpAddr) -> io::Result<()> {
        let address = SockaddrStorage::from(SocketAddr::new(to, 0));
        let flags = nix::sys::socket::MsgFlags::empty();
        nix::sys::socket::sendto(self.socket.as_raw_fd(), packet, &address, flags)?;
        Ok(())
    }

    /// A packet of the protocol that is there already, header included; `None` when there is none.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let skip = if self.v6 { V6_HEADER } else { 0 };
        let Some(payload) = buffer.get_mut(skip..) else { return Ok(None) };
        // SAFETY: all-zero is a valid value of each of these structures.
        let (mut from, mut message): (libc::sockaddr_in6, libc::msghdr) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let mut control = [MaybeUninit::<u64>::zeroed(); 16];
        let mut part =
            libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: payload.len() };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of_val(&from) as u32;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: every pointer in the message leads to memory of the length beside it.
        let len = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, 0) };
        if len < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
        }
        if !self.v6 {
            return Ok(Some(len as usize));
        }
        self.write_header(&message, &from, len as usize, &mut buffer[..V6_HEADER]);
        Ok(Some(V6_HEADER + len as usize))
    }

    /// Whether it is for IPv6.
    pub fn is_v6(&self) -> bool {
        self.v6
    }

    /// Writes the IPv6 header that a raw socket leaves out before the `len` bytes of a message.
    pub(crate) fn write_header(
        &self,
        message: &libc::msghdr,
        from: &libc::sockaddr_in6,
        len: usize,
        header: &mut [u8],
    ) {
        let Beside { class, hop_limit, to } = beside(message);
        header[0] = 0x60 | class >> 4;
        header[1] = class << 4;
        header[2..4].fill(0);
        header[4..6].copy_from_slice(&(len as u16).to_be_bytes());
        header[6] = self.protocol;
        header[7] = hop_limit;
        header[8..24].copy_from_slice(&from.sin6_addr.s6_addr);
        header[24..40].copy_from_slice(&to.octets());
    }
}

/// Notes beside a message of an IPv6 socket.
struct Beside {
    class: u8,
    hop_limit: u8,
    to: Ipv6Addr,
}

fn beside(message: &libc::msghdr) -> Beside {
    let mut beside = Beside { class: 0, hop_limit: 0, to: Ipv6Addr::UNSPECIFIED };
    // SAFETY: the kernel filled the control part, and the macros stay inside its length.
    unsafe {
        let mut one = libc::CMSG_FIRSTHDR(message);
        while !one.is_null() {
            let data = libc::CMSG_DATA(one);
            match ((*one).cmsg_level, (*one).cmsg_type) {
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    beside.class = data.cast::<libc::c_int>().read_unaligned() as u8;
                }
                (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    beside.hop_limit = data.cast::<libc::c_int>().read_unaligned() as u8;
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    beside.to = info.ipi6_addr.s6_addr.into();
                }
                _ => {}
            }
            one = libc::CMSG_NXTHDR(message, one);
        }
    }
    beside
}

impl AsFd for RawSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
