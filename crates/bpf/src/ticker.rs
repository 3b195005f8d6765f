//! Tick frames: on each the queue it names leaves.
//!
//! The program at the egress hook turns the frame into what the queue holds. It is sent by a raw
//! packet socket, so the call returns only when the frame has gone through hook and driver.

use crate::layout::TICK_ETHERTYPE;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, send, socket};
use nix::unistd::Pid;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Why a queue leaves, for the statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Cause {
    /// It had `min` bytes, or a full frame.
    Size = 0,
    /// The device could take a frame.
    Ready = 1,
    /// Its oldest packet was past its time.
    Timeout = 2,
    /// Nothing leaves: an empty queue goes out of use.
    Reclaim = 3,
}

/// A tick frame of the interface with address `mac`; [`name`] says what leaves on it.
pub fn frame(mac: [u8; 6], cookie: u64) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&mac);
    frame[6..12].copy_from_slice(&mac);
    frame[12..14].copy_from_slice(&TICK_ETHERTYPE.to_be_bytes());
    frame[14..22].copy_from_slice(&cookie.to_ne_bytes());
    frame
}

/// Writes into a tick frame which queue leaves on it, and why.
pub fn name(frame: &mut [u8; 60], slot: u32, cause: Cause) {
    frame[22..26].copy_from_slice(&slot.to_ne_bytes());
    frame[26..30].copy_from_slice(&(cause as u32).to_ne_bytes());
}

/// Sends tick frames on one interface.
#[derive(Debug)]
pub struct Ticker {
    socket: OwnedFd,
    frame: [u8; 60],
}

impl Ticker {
    /// For the interface `ifindex` with address `mac`; `cookie` as in the program's configuration.
    pub fn new(ifindex: u32, mac: [u8; 6], cookie: u64) -> io::Result<Ticker> {
        // Protocol 0: the socket only sends.
        let (family, kind) = (AddressFamily::Packet, SockType::Raw);
        let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?;
        // SAFETY: an all-zero sockaddr_ll is a valid one.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = ifindex as i32;
        let len = size_of_val(&address) as u32;
        // SAFETY: the address is a sockaddr_ll of `len` bytes that lives through the call.
        let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
        if bound < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Ticker { socket, frame: frame(mac, cookie) })
    }

    /// The same on CPU number `cpu`: where that CPU took the queue's last frame, this one follows it.
    pub fn tick_on(&mut self, cpu: u32, slot: u32, cause: Cause) -> io::Result<bool> {
        let thread = Pid::from_raw(0);
        let before = sched_getaffinity(thread)?;
        let mut there = CpuSet::new();
        if there.set(cpu as usize).and_then(|()| sched_setaffinity(thread, &there)).is_err() {
            return self.tick(slot, cause);
        }
        let left = self.tick(slot, cause);
        sched_setaffinity(thread, &before)?;
        left
    }

    /// Lets the oldest frame of queue `slot` leave; whether one did (not when it is empty or must
    /// wait for another CPU's transmission).
    pub fn tick(&mut self, slot: u32, cause: Cause) -> io::Result<bool> {
        name(&mut self.frame, slot, cause);
        match send(self.socket.as_raw_fd(), &self.frame, MsgFlags::empty()) {
            Ok(_) => Ok(true),
            // The program dropped it: nothing left.
            Err(nix::Error::ENOBUFS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
