//! Many frames with few system calls.
#![allow(dead_code, reason = "each benchmark uses its part")]

use crate::common::Packet;
use sheaf_window::Direction;
use std::os::fd::{AsRawFd, OwnedFd};

/// A packet socket on interface `index`, for sending alone.
pub fn packet_socket(index: u32) -> std::io::Result<OwnedFd> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: an all-zero sockaddr_ll is a valid one.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = index as i32;
    let len = size_of_val(&address) as u32;
    // SAFETY: the address is a sockaddr_ll of `len` bytes that lives through the call.
    match unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) } {
        0 => Ok(socket),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Sends the frames with one system call.
pub fn send_all(socket: &OwnedFd, frames: &[Vec<u8>]) {
    let mut parts: Vec<libc::iovec> = frames
        .iter()
        .map(|frame| libc::iovec { iov_base: frame.as_ptr() as *mut _, iov_len: frame.len() })
        .collect();
    let mut messages: Vec<libc::mmsghdr> = parts
        .iter_mut()
        .map(|part| {
            // SAFETY: an all-zero mmsghdr is a valid one.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (part, 1);
            message
        })
        .collect();
    // SAFETY: messages, parts and frames live through the call, which only reads the frames.
    let sent = unsafe {
        libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), messages.len() as u32, 0)
    };
    assert_eq!(sent, frames.len() as i32, "{}", std::io::Error::last_os_error());
}

/// The frame of `packet` between the inside end and outside end `number`.
pub fn addressed(packet: &Packet, number: u32) -> Vec<u8> {
    let mut frame = packet.frame();
    let at = if packet.direction == Direction::In { 14 + 12 } else { 14 + 16 };
    frame[at..at + 4].copy_from_slice(&(0x0b00_0000 + number).to_be_bytes());
    frame
}
