//! Packet sockets that carry super-packets and unfinished checksums, in batches.
//!
//! Source: packet(7): PACKET_VNET_HDR, PACKET_AUXDATA, PACKET_IGNORE_OUTGOING; socket(7):
//! SO_TIMESTAMPNS. Packets have a virtio header before them ([`crate::vnet`]); a VLAN tag, which
//! the kernel takes out of a frame it receives, is put back.
//!
//! Room for a batch of super-packets is 4 MB, of which the kernel writes 256 kB even where all
//! frames are small. It is needed from a call to the end of the same call, so the sockets of a
//! thread share it: a thousand of them take no more than one does.

use crate::socket::{bind_packet, control_messages, set_option as set, stamp_in};
use crate::vnet::{self, Header};
use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Frames that one call receives or sends.
pub const BATCH: usize = 64;

/// Bytes of a VLAN tag, kept free before every frame received.
const TAG: usize = 4;
/// From one buffer to the next. Not a whole number of pages, so that the first bytes of all buffers
/// do not share a few lines of the cache.
const STRIDE: usize = (TAG + vnet::LEN + vnet::LONGEST).next_multiple_of(64) + 64;
/// Bytes of frames not yet received, and not yet sent, that a socket may hold.
const BUFFER: libc::c_int = 64 << 20;

/// linux/if_packet.h; the libc crate has no names for some of these.
const PACKET_VNET_HDR: libc::c_int = 15;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
const VLAN_VALID: u32 = 1 << 4;
const VLAN_TPID_VALID: u32 = 1 << 6;

#[repr(C)]
#[derive(Clone, Copy)]
struct Auxiliary {
    status: u32,
    len: u32,
    snap_len: u32,
    mac: u16,
    net: u16,
    tag: u16,
    tag_type: u16,
}

/// A frame in the buffers, and when it came.
struct Received {
    bytes: std::ops::Range<usize>,
    stamp: Option<u64>,
}

/// A socket on one interface.
#[derive(Debug)]
pub struct VnetSocket {
    socket: OwnedFd,
    refused: u64,
    unreadable: u64,
    missed: u64,
}

/// Room to receive a batch.
struct Inbox {
    buffers: Vec<u8>,
    controls: Vec<[u64; 16]>,
    parts: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
    received: Vec<Received>,
}

/// Room to send a batch.
struct Outbox {
    parts: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
}

thread_local! {
    // Taken out while in use: a frame may be sent, or another socket read, from what is received.
    static INBOX: Cell<Option<Box<Inbox>>> = const { Cell::new(None) };
    static OUTBOX: Cell<Option<Box<Outbox>>> = const { Cell::new(None) };
}

impl Inbox {
    fn new() -> Box<Inbox> {
        // SAFETY: all-zero is a valid value of each of these structures.
        let (part, message) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        Box::new(Inbox {
            buffers: vec![0; BATCH * STRIDE],
            controls: vec![[0; 16]; BATCH],
            parts: vec![part; BATCH],
            messages: vec![message; BATCH],
            received: Vec::with_capacity(BATCH),
        })
    }

    /// Runs `work` with the inbox of this thread.
    fn with<T>(work: impl FnOnce(&mut Inbox) -> T) -> T {
        let mut inbox = INBOX.take().unwrap_or_else(Inbox::new);
        let result = work(&mut inbox);
        INBOX.set(Some(inbox));
        result
    }
}

impl Outbox {
    fn new() -> Box<Outbox> {
        // SAFETY: all-zero is a valid value of the structure.
        let message: libc::mmsghdr = unsafe { std::mem::zeroed() };
        Box::new(Outbox { parts: Vec::with_capacity(BATCH), messages: vec![message; BATCH] })
    }

    /// Runs `work` with the outbox of this thread.
    fn with<T>(work: impl FnOnce(&mut Outbox) -> T) -> T {
        let mut outbox = OUTBOX.take().unwrap_or_else(Outbox::new);
        let result = work(&mut outbox);
        OUTBOX.set(Some(outbox));
        result
    }
}

/// Frames that a socket receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receive {
    /// Every frame that arrives, whoever it is for.
    Everything,
    /// Nothing: it only sends.
    Nothing,
}

/// Whether the interface still takes frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It does.
    Up,
    /// It is down or gone.
    Down,
}

impl VnetSocket {
    /// On interface `ifindex` of this thread's network namespace.
    pub fn open(ifindex: u32, receive: Receive) -> io::Result<VnetSocket> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        // Without a protocol, so that nothing arrives from other interfaces before bind.
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None)?;
        let everything = receive == Receive::Everything;
        let on: libc::c_int = 1;
        set(&socket, libc::SOL_PACKET, PACKET_VNET_HDR, &on)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &BUFFER)?;
        if everything {
            set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &BUFFER)?;
            set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &on)?;
            set(&socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, &on)?;
            set(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &on)?;
        }
        bind_packet(&socket, ifindex, if everything { libc::ETH_P_ALL as u16 } else { 0 })?;
        if everything {
            // SAFETY: an all-zero packet_mreq is a valid one.
            let mut promiscuous: libc::packet_mreq = unsafe { std::mem::zeroed() };
            promiscuous.mr_ifindex = ifindex as i32;
            promiscuous.mr_type = libc::PACKET_MR_PROMISC as u16;
            // It ends with the socket.
            set(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)?;
        }
        Ok(VnetSocket { socket, refused: 0, unreadable: 0, missed: 0 })
    }

    /// Marks what is sent, as SO_MARK does (socket(7)).
    pub fn set_mark(&self, mark: u32) -> io::Result<()> {
        set(&self.socket, libc::SOL_SOCKET, libc::SO_MARK, &mark)
    }

    /// Frames that could not be sent: the interface was full, or they were too large for it.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Super-packets of kinds that a virtio header cannot describe; the kernel dropped them.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Frames that the kernel dropped because they were not received fast enough, so far.
    pub fn missed(&mut self) -> u64 {
        let mut counts = [0_u32; 2];
        let mut len = size_of_val(&counts) as u32;
        let (fd, to) = (self.socket.as_raw_fd(), counts.as_mut_ptr().cast());
        let (level, name) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
        // SAFETY: `counts` has `len` bytes and lives through the call.
        if unsafe { libc::getsockopt(fd, level, name, to, &raw mut len) } == 0 {
            // The kernel begins anew with each question.
            self.missed += u64::from(counts[1]);
        }
        self.missed
    }

    /// Hands every frame that is there, up to [`BATCH`], to `each`: virtio header first, and when
    /// it came, in nanoseconds of CLOCK_REALTIME, where the kernel says. Answers how many there
    /// were.
    ///
    /// # Errors
    /// ENETDOWN once when the interface goes down or away.
    pub fn receive(&mut self, mut each: impl FnMut(&[u8], Option<u64>)) -> io::Result<usize> {
        Inbox::with(|inbox| {
            let got = self.fetch(inbox)?;
            for frame in &inbox.received {
                each(&inbox.buffers[frame.bytes.clone()], frame.stamp);
            }
            Ok(got)
        })
    }

    /// Sends every frame that is there, up to [`BATCH`], by `to` at once: what a bridge does over
    /// these sockets, and the yardstick for whatever stands between them. Answers how many there
    /// were.
    ///
    /// # Errors
    /// As [`VnetSocket::receive`].
    pub fn forward(&mut self, to: &mut VnetSocket) -> io::Result<usize> {
        Inbox::with(|inbox| {
            let got = self.fetch(inbox)?;
            to.send(inbox.received.iter().map(|frame| &inbox.buffers[frame.bytes.clone()]));
            Ok(got)
        })
    }

    /// Puts what is there into `inbox`; answers how many frames, readable or not.
    fn fetch(&mut self, inbox: &mut Inbox) -> io::Result<usize> {
        inbox.received.clear();
        for slot in 0..BATCH {
            let buffer = &mut inbox.buffers[slot * STRIDE + TAG..(slot + 1) * STRIDE];
            inbox.parts[slot] =
                libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            let message = &mut inbox.messages[slot].msg_hdr;
            message.msg_iov = &raw mut inbox.parts[slot];
            message.msg_iovlen = 1;
            message.msg_control = inbox.controls[slot].as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&inbox.controls[slot]) as _;
        }
        let (fd, count) = (self.socket.as_raw_fd(), BATCH as u32);
        let (to, flags) = (inbox.messages.as_mut_ptr(), libc::MSG_DONTWAIT);
        // SAFETY: every pointer in the `count` messages leads to memory of the length beside it,
        // which the inbox owns.
        let got = unsafe { libc::recvmmsg(fd, to, count, flags as _, std::ptr::null_mut()) };
        if got < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN) => Ok(0),
                Some(libc::EINTR) => Ok(0),
                Some(libc::EINVAL) => {
                    self.unreadable += 1;
                    Ok(1)
                }
                _ => Err(error),
            };
        }
        for slot in 0..got as usize {
            let message = &inbox.messages[slot];
            if message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
                self.unreadable += 1;
                continue;
            }
            let (stamp, tag) = beside(&message.msg_hdr);
            let (start, end) = (slot * STRIDE, slot * STRIDE + TAG + message.msg_len as usize);
            let begins = match tag {
                Some(tag) => start + with_tag(&mut inbox.buffers[start..end], tag),
                None => start + TAG,
            };
            inbox.received.push(Received { bytes: begins..end, stamp });
        }
        Ok(got as usize)
    }

    /// Sends frames, virtio header first. What the interface does not take is dropped and counted,
    /// as its own queue would.
    pub fn send<'a>(&mut self, frames: impl IntoIterator<Item = &'a [u8]>) -> State {
        let mut frames = frames.into_iter();
        Outbox::with(|outbox| {
            let mut state = State::Up;
            loop {
                outbox.parts.clear();
                for frame in frames.by_ref().take(BATCH) {
                    let (base, len) = (frame.as_ptr().cast_mut().cast(), frame.len());
                    outbox.parts.push(libc::iovec { iov_base: base, iov_len: len });
                }
                if outbox.parts.is_empty() {
                    return state;
                }
                if self.send_batch(outbox) == State::Down {
                    state = State::Down;
                }
            }
        })
    }

    fn send_batch(&mut self, outbox: &mut Outbox) -> State {
        for (message, part) in outbox.messages.iter_mut().zip(&mut outbox.parts) {
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
        }
        let (mut done, count, mut state) = (0, outbox.parts.len(), State::Up);
        while done < count {
            let rest = &mut outbox.messages[done..count];
            let (fd, flags) = (self.socket.as_raw_fd(), libc::MSG_DONTWAIT);
            // SAFETY: every message has one part, which leads to a frame that outlives the call and
            // is only read.
            let sent =
                unsafe { libc::sendmmsg(fd, rest.as_mut_ptr(), rest.len() as u32, flags as _) };
            if sent > 0 {
                done += sent as usize;
                continue;
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => continue,
                Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => state = State::Down,
                _ => {}
            }
            self.refused += 1;
            done += 1;
        }
        state
    }
}

/// Notes of the kernel beside a frame: when it came, and the VLAN tag that it took out.
fn beside(message: &libc::msghdr) -> (Option<u64>, Option<[u8; TAG]>) {
    let (mut stamp, mut tag) = (None, None);
    for (level, kind, data) in control_messages(message) {
        match (level, kind) {
            // SAFETY: the kind says what it is.
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                stamp = Some(unsafe { stamp_in(data) });
            }
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                // SAFETY: the kind says what it is.
                let beside = unsafe { data.cast::<Auxiliary>().read_unaligned() };
                if beside.status & VLAN_VALID != 0 {
                    let known = beside.status & VLAN_TPID_VALID != 0;
                    let kind = if known { beside.tag_type } else { 0x8100 };
                    let ([a, b], [c, d]) = (kind.to_be_bytes(), beside.tag.to_be_bytes());
                    tag = Some([a, b, c, d]);
                }
            }
            _ => {}
        }
    }
    (stamp, tag)
}

/// Puts a VLAN tag behind the addresses of the frame that begins [`TAG`] bytes into `buffer`;
/// answers where it begins then.
fn with_tag(buffer: &mut [u8], tag: [u8; TAG]) -> usize {
    const ADDRESSES: usize = 12;
    let moved = vnet::LEN + ADDRESSES;
    if buffer.len() < TAG + moved {
        return TAG;
    }
    buffer.copy_within(TAG..TAG + moved, 0);
    buffer[moved..moved + TAG].copy_from_slice(&tag);
    if let Some(mut header) = Header::parse(buffer) {
        if header.partial {
            header.csum_start += TAG as u16;
        }
        if header.hdr_len > 0 {
            header.hdr_len += TAG as u16;
        }
        header.emit(buffer);
    }
    0
}

impl AsFd for VnetSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip;
    use crate::monitor;
    use crate::netns::Namespace;

    #[test]
    fn tagged_frames_come_and_go_whole_and_what_is_sent_does_not_come_back() {
        let namespace = Namespace::new().unwrap();
        namespace
            .run(|| {
                // Else the kernel sends packets of its own.
                std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")?;
                ip::run("link add near type veth peer name far")?;
                for dev in ["near", "far"] {
                    ip::run(&format!("link set {dev} up"))?;
                }
                // Until the kernel has seen that both are up it drops what is sent.
                while ["near", "far"]
                    .iter()
                    .any(|dev| !monitor::interfaces().unwrap()[*dev].running)
                {}
                let mut a = VnetSocket::open(ip::index("near")?, Receive::Everything)?;
                let mut b = VnetSocket::open(ip::index("far")?, Receive::Everything)?;
                let mut frame = vec![0; vnet::LEN];
                frame.extend_from_slice(&[0xff; 6]);
                frame.extend_from_slice(&[2, 0, 0, 0, 0, 1, 0x81, 0, 0, 7, 0x88, 0xb5]);
                frame.extend_from_slice(&[9; 50]);
                assert_eq!(a.send([frame.as_slice(), frame.as_slice()]), State::Up);
                let mut got = Vec::new();
                while got.len() < 2 {
                    b.receive(|bytes, stamp| got.push((bytes.to_vec(), stamp.is_some())))?;
                }
                assert_eq!(got, [(frame.clone(), true), (frame.clone(), true)]);
                assert_eq!(a.receive(|_, _| panic!("it came back"))?, 0);
                assert_eq!((a.refused(), b.missed()), (0, 0));

                // A bridge of this socket sends the same bytes back, tag and all.
                assert_eq!(a.send([frame.as_slice()]), State::Up);
                let mut back = VnetSocket::open(ip::index("far")?, Receive::Nothing)?;
                while b.forward(&mut back)? == 0 {}
                let mut came = None;
                while came.is_none() {
                    a.receive(|bytes, _| came = Some(bytes.to_vec()))?;
                }
                assert_eq!(came, Some(frame.clone()));

                ip::run("link del near")?;
                assert_eq!(a.send([frame.as_slice()]), State::Down);
                assert_eq!(a.refused(), 1);
                Ok(())
            })
            .unwrap();
    }
}
