//! Tick frames: on each the queue it names leaves.
//!
//! The program at the egress hook turns the frame into what the queue holds. A frame stays charged
//! to the socket that sent it until the device, or whatever lies between, has freed it; so the
//! socket says how many are under way (SIOCOUTQ), and its descriptor is an event when one is freed
//! (EPOLLOUT, edge-triggered). Drivers free frames soon after they have left, because TCP's small
//! queues depend on it (tcp_limit_output_bytes, tcp(7)).

use crate::layout::TICK_ETHERTYPE;
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, send, setsockopt, socket, sockopt,
};
use nix::unistd::Pid;
use sheaf_netio::socket::{bind_packet, unsent};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

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

/// A tick: which queue leaves, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// The queue.
    pub slot: u32,
    /// Why it leaves.
    pub cause: Cause,
    /// Frames that had left without a tick when user space last saw that everything is gone; `None`
    /// while something may be under way. With it a new flow hash begins.
    pub untracked: Option<u32>,
    /// Sends the frame as a copy. The kernel returns to the program whether the device's queue took
    /// the copy ([`Device::refused`](crate::layout::Device::refused)), and reports to nobody when
    /// the copy is free.
    pub checked: bool,
}

impl Tick {
    /// Queue `slot` leaves for `cause`, behind whatever is under way.
    pub fn new(slot: u32, cause: Cause) -> Tick {
        Tick { slot, cause, untracked: None, checked: false }
    }
}

/// Bytes of a tick frame: the shortest of Ethernet, without its checksum.
pub const FRAME: usize = 60;

/// A tick frame of the interface with address `mac`; [`name`] says what leaves on it.
pub fn frame(mac: [u8; 6], cookie: u64) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    frame[..6].copy_from_slice(&mac);
    frame[6..12].copy_from_slice(&mac);
    frame[12..14].copy_from_slice(&TICK_ETHERTYPE.to_be_bytes());
    frame[14..22].copy_from_slice(&cookie.to_ne_bytes());
    frame
}

/// Writes into a tick frame which queue leaves on it, and why.
pub fn name(frame: &mut [u8; FRAME], tick: Tick) {
    frame[22..26].copy_from_slice(&tick.slot.to_ne_bytes());
    frame[26..30].copy_from_slice(&(tick.cause as u32).to_ne_bytes());
    frame[30..34].copy_from_slice(&tick.untracked.unwrap_or(0).to_ne_bytes());
    frame[34..38].copy_from_slice(&u32::from(tick.untracked.is_some()).to_ne_bytes());
    frame[38..42].copy_from_slice(&u32::from(tick.checked).to_ne_bytes());
}

/// Memory that frames under way may take: more than any limit lets out, so that sending never
/// waits.
const BUFFER: usize = 1 << 20;

/// Sends tick frames on one interface.
#[derive(Debug)]
pub struct Ticker {
    socket: OwnedFd,
    frame: [u8; FRAME],
    /// Bytes that one frame is charged to the socket with; 0 until one was seen under way.
    charge: u64,
}

impl Ticker {
    /// For the interface `ifindex` with address `mac`; `cookie` as in the program's configuration.
    pub fn new(ifindex: u32, mac: [u8; 6], cookie: u64) -> io::Result<Ticker> {
        // Protocol 0: the socket only sends.
        let (family, kind) = (AddressFamily::Packet, SockType::Raw);
        let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?;
        bind_packet(&socket, ifindex, 0)?;
        setsockopt(&socket, sockopt::SndBuf, &BUFFER)?;
        Ok(Ticker::over(socket, mac, cookie))
    }

    /// The same over a socket that is there.
    pub(crate) fn over(socket: OwnedFd, mac: [u8; 6], cookie: u64) -> Ticker {
        Ticker { socket, frame: frame(mac, cookie), charge: 0 }
    }

    /// The same on CPU number `cpu`: where that CPU took the queue's last frame, this one follows
    /// it.
    pub fn tick_on(&mut self, cpu: u32, tick: Tick) -> io::Result<bool> {
        let thread = Pid::from_raw(0);
        let before = sched_getaffinity(thread)?;
        let mut there = CpuSet::new();
        if there.set(cpu as usize).and_then(|()| sched_setaffinity(thread, &there)).is_err() {
            return self.tick(tick);
        }
        let left = self.tick(tick);
        sched_setaffinity(thread, &before)?;
        left
    }

    /// Lets the oldest frame of a queue leave. Returns whether one did: not when the queue is empty
    /// or must wait for another CPU's transmission.
    pub fn tick(&mut self, tick: Tick) -> io::Result<bool> {
        name(&mut self.frame, tick);
        match send(self.socket.as_raw_fd(), &self.frame, MsgFlags::MSG_DONTWAIT) {
            Ok(_) => Ok(true),
            // The program dropped it: nothing left. Or too many are under way.
            Err(Errno::ENOBUFS | Errno::EAGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Frames that are under way, of `most` that were sent and not seen free.
    pub fn under_way(&mut self, most: u32) -> io::Result<u32> {
        let bytes = unsent(&self.socket)?;
        if bytes == 0 || most == 0 {
            return Ok(0);
        }
        // All frames are charged alike, and no more than `most` of them share these bytes.
        self.charge = self.charge.max(bytes.div_ceil(most.into()));
        Ok(u32::try_from(bytes.div_ceil(self.charge)).map_or(most, |frames| frames.min(most)))
    }
}

impl AsFd for Ticker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
