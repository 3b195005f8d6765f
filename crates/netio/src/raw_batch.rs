//! Many packets of raw IP sockets in one system call, in buffers made once.

use crate::raw::{RawSocket, V6_HEADER};
use nix::libc;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

/// Packets that one call receives or sends.
pub const BATCH: usize = 64;
/// Bytes of a packet that are received: any of 2048, and one more, so that a longer one is seen to
/// be cut; a multiple of 64, with room for the header that IPv6 sockets leave out.
const STRIDE: usize = 2048 + 64 + V6_HEADER + 24;

/// Packets that came.
pub struct Inbox {
    buffers: Vec<u8>,
    controls: Vec<[u64; 16]>,
    names: Vec<libc::sockaddr_in6>,
    parts: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers lead into buffers that the value owns, and are set anew before each use.
unsafe impl Send for Inbox {}

impl Default for Inbox {
    fn default() -> Self {
        // SAFETY: all-zero is a valid value of each of these structures.
        let (name, part, message) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed(), std::mem::zeroed()) };
        Inbox {
            buffers: vec![0; BATCH * STRIDE],
            controls: vec![[0; 16]; BATCH],
            names: vec![name; BATCH],
            parts: vec![part; BATCH],
            messages: vec![message; BATCH],
        }
    }
}

impl Inbox {
    /// Hands every packet that `raw` has, up to [`BATCH`], to `each`, header included; returns
    /// their number.
    pub fn receive(
        &mut self,
        raw: &RawSocket,
        mut each: impl FnMut(&mut [u8]),
    ) -> io::Result<usize> {
        // A raw IPv6 socket leaves the header out; room for it stays before the payload.
        let skip = if raw.is_v6() { V6_HEADER } else { 0 };
        for slot in 0..BATCH {
            let buffer = &mut self.buffers[slot * STRIDE + skip..(slot + 1) * STRIDE];
            self.parts[slot] =
                libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            let message = &mut self.messages[slot].msg_hdr;
            message.msg_name = (&raw mut self.names[slot]).cast();
            message.msg_namelen = size_of::<libc::sockaddr_in6>() as u32;
            message.msg_iov = &raw mut self.parts[slot];
            message.msg_iovlen = 1;
            message.msg_control = self.controls[slot].as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&self.controls[slot]) as _;
        }
        let (fd, to) = (raw.as_fd().as_raw_fd(), self.messages.as_mut_ptr());
        let (count, flags) = (BATCH as u32, libc::MSG_DONTWAIT);
        // SAFETY: every pointer in the messages leads to memory of the length beside it, which this
        // value owns.
        let got = unsafe { libc::recvmmsg(fd, to, count, flags as _, std::ptr::null_mut()) };
        if got < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                _ => Err(error),
            };
        }
        for slot in 0..got as usize {
            let (message, start) = (&self.messages[slot], slot * STRIDE);
            let len = message.msg_len as usize;
            if skip > 0 {
                let header = &mut self.buffers[start..start + V6_HEADER];
                raw.write_header(&message.msg_hdr, &self.names[slot], len, header);
            }
            each(&mut self.buffers[start..start + skip + len]);
        }
        Ok(got as usize)
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

/// Room for the addresses of packets that go.
pub struct Outbox {
    names: Vec<libc::sockaddr_in6>,
    parts: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers are set anew before each use.
unsafe impl Send for Outbox {}

impl Default for Outbox {
    fn default() -> Self {
        // SAFETY: an all-zero mmsghdr is a valid one.
        let message = unsafe { std::mem::zeroed() };
        Outbox {
            names: Vec::with_capacity(BATCH),
            parts: Vec::with_capacity(BATCH),
            messages: vec![message; BATCH],
        }
    }
}

/// Fate of packets that were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Packets that the kernel took.
    pub taken: usize,
    /// Packets that it refused: too large for the interface, or without a way.
    pub refused: usize,
    /// One was refused because the interface is down or gone.
    pub down: bool,
}

impl Outbox {
    /// Sends up to [`BATCH`] whole IP packets of the family of `raw` in order, each on the way that
    /// leads to the address beside it.
    pub fn send<'a>(
        &mut self,
        raw: &RawSocket,
        packets: impl IntoIterator<Item = (&'a [u8], IpAddr)>,
    ) -> Sent {
        self.names.clear();
        self.parts.clear();
        for (packet, to) in packets.into_iter().take(BATCH) {
            self.names.push(name(to));
            let (base, len) = (packet.as_ptr().cast_mut().cast(), packet.len());
            self.parts.push(libc::iovec { iov_base: base, iov_len: len });
        }
        let count = self.parts.len();
        let name_len = match raw.is_v6() {
            true => size_of::<libc::sockaddr_in6>(),
            false => size_of::<libc::sockaddr_in>(),
        };
        for (slot, message) in self.messages[..count].iter_mut().enumerate() {
            message.msg_hdr.msg_name = (&raw mut self.names[slot]).cast();
            message.msg_hdr.msg_namelen = name_len as u32;
            message.msg_hdr.msg_iov = &raw mut self.parts[slot];
            message.msg_hdr.msg_iovlen = 1;
        }
        let (mut sent, mut at) = (Sent::default(), 0);
        // Each turn takes a packet or refuses one, so there are at most `count`.
        while at < count {
            let rest = &mut self.messages[at..count];
            let (fd, len) = (raw.as_fd().as_raw_fd(), rest.len() as u32);
            let flags = libc::MSG_DONTWAIT as _;
            // SAFETY: every message has one part and one name; both outlive the call, and the part
            // is only read.
            let taken = unsafe { libc::sendmmsg(fd, rest.as_mut_ptr(), len, flags) };
            if taken > 0 {
                (at, sent.taken) = (at + taken as usize, sent.taken + taken as usize);
                continue;
            }
            let error = io::Error::last_os_error().raw_os_error();
            sent.down |= matches!(error, Some(libc::ENETDOWN | libc::ENODEV | libc::ENXIO));
            (at, sent.refused) = (at + 1, sent.refused + 1);
        }
        sent
    }
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").finish_non_exhaustive()
    }
}

/// A socket address of either family, in the room of the larger.
fn name(to: IpAddr) -> libc::sockaddr_in6 {
    // SAFETY: an all-zero sockaddr_in6 is a valid one.
    let mut name: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    match to {
        IpAddr::V4(to) => {
            // SAFETY: a sockaddr_in is shorter, and made of integers only.
            let v4 = unsafe { &mut *(&raw mut name).cast::<libc::sockaddr_in>() };
            v4.sin_family = libc::AF_INET as u16;
            v4.sin_addr.s_addr = u32::from_ne_bytes(to.octets());
        }
        IpAddr::V6(to) => {
            name.sin6_family = libc::AF_INET6 as u16;
            name.sin6_addr.s6_addr = to.octets();
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cable;
    use crate::icmp::{Wanted, echo_request};
    use crate::poller::Poller;

    const META: u8 = 253;

    #[test]
    fn a_batch_comes_out_as_it_went_in_with_the_hop_limit_it_had_on_the_way() {
        let [here, there] = cable::hosts();
        for (v6, ours, theirs) in [(false, "10.0.0.1", "10.0.0.2"), (true, "fd00::1", "fd00::2")] {
            let (ours, theirs) = (ours.parse().unwrap(), theirs.parse().unwrap());
            let from = here.run(|| RawSocket::open("eth0", v6, META)).unwrap();
            let to = there.run(|| RawSocket::open("eth0", v6, META)).unwrap();
            let packets: Vec<_> = (0..BATCH as u16)
                .map(|number| {
                    let wanted = Wanted { protocol: 0, identifier: number, word: 0 };
                    let mut packet = echo_request(ours, theirs, wanted, 0, 0).unwrap();
                    match v6 {
                        true => packet[6..8].copy_from_slice(&[META, 255]),
                        false => {
                            packet[8..12].copy_from_slice(&[255, META, 0, 0]);
                            let checksum = sheaf_wire::checksum::ipv4_header(&packet[..20]);
                            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
                        }
                    }
                    packet
                })
                .collect();
            let mut poller = Poller::default();
            poller.add(&to);
            let sent = here
                .run(|| {
                    let packets = packets.iter().map(|packet| (packet.as_slice(), theirs));
                    Ok(Outbox::default().send(&from, packets))
                })
                .unwrap();
            assert_eq!(sent, Sent { taken: BATCH, refused: 0, down: false });
            let (mut inbox, mut got) = (Inbox::default(), Vec::new());
            while got.len() < BATCH {
                poller.wait(None).unwrap();
                inbox.receive(&to, |packet| got.push(packet.to_vec())).unwrap();
            }
            // The kernel chooses the identification of an IPv4 packet that has none.
            let plain = |mut packet: Vec<u8>| {
                if !v6 {
                    packet[4..6].fill(0);
                    packet[10..12].fill(0);
                }
                packet
            };
            let packets: Vec<_> = packets.into_iter().map(plain).collect();
            assert_eq!(got.into_iter().map(plain).collect::<Vec<_>>(), packets);
        }
    }
}
