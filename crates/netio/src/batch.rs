//! Many frames of a [`Carrier`] in one system call: `recvmmsg` and `sendmmsg`, and segments of UDP
//! (GSO, GRO).
//!
//! A system call costs as much as a small frame does, a datagram's way through the kernel's stack
//! several times that. Frames of one length to one UDP socket therefore leave as one datagram that
//! the kernel or the card cuts into segments, and arrive so where the kernel received them in a
//! row. The memory of both directions is allocated once.

use crate::carrier::{Address, Carrier, UDP_GRO};
use crate::socket::{control_messages, stamp_in};
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};

/// Frames that leave in one system call, at most.
const OUT: usize = 64;
/// Messages that are received in one system call, at most.
const IN: usize = 32;
/// Bytes of room for each message: the largest datagram.
const ROOM: usize = 1 << 16;
/// Control message of linux/udp.h: length of the segments of a datagram.
const UDP_SEGMENT: libc::c_int = 103;
/// Bytes of a datagram that is cut into segments, at most (65535 less its headers).
const DATAGRAM: usize = 65_000;
/// Room for those of a message that came: an int, a time and an address.
type Controls = [u64; 12];

/// Frames on their way out on one link.
#[derive(Debug, Default)]
pub struct Outbox {
    frames: Vec<Vec<u8>>,
    len: usize,
}

/// Outcome of sending the frames of an outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames that the kernel did not take.
    pub refused: u64,
    /// Whether the interface is gone or down.
    pub gone: bool,
}

impl Outbox {
    /// Takes the frame and leaves an old buffer in its place. Returns whether the box is full.
    pub fn push(&mut self, frame: &mut Vec<u8>) -> bool {
        if self.len == self.frames.len() {
            self.frames.push(Vec::new());
        }
        mem::swap(&mut self.frames[self.len], frame);
        self.len += 1;
        self.len == OUT
    }

    /// Whether no frame is to be sent.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Drops the frames.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Sends all frames to `to`, from the address there where this host still has that, and
    /// empties the box.
    pub fn send(&mut self, carrier: &mut Carrier, to: &Address) -> Sent {
        let (mut sent, mut to) = (Sent::default(), *to);
        let mut frames = &self.frames[..self.len];
        while !frames.is_empty() && !sent.gone {
            let done = send_some(carrier, frames, &mut to, &mut sent);
            frames = &frames[done..];
        }
        sent.refused += frames.len() as u64;
        self.len = 0;
        sent
    }
}

/// Sends some of `frames`, at most [`OUT`]. Returns the number of frames that were sent or refused.
fn send_some(
    carrier: &mut Carrier,
    frames: &[Vec<u8>],
    to: &mut Address,
    sent: &mut Sent,
) -> usize {
    // SAFETY: all-zero is a valid value of each of these structures.
    let (mut parts, mut messages): ([libc::iovec; OUT], [libc::mmsghdr; OUT]) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    let mut controls = [Control::default(); OUT];
    for (part, frame) in parts.iter_mut().zip(frames) {
        // The kernel only reads what is sent.
        *part = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
    }
    let (name, name_len) = to.as_mut_ptr();
    // Where each message's frames begin; one more than there are messages.
    let mut starts = [0; OUT + 1];
    let (mut count, mut at) = (0, 0);
    while at < frames.len().min(OUT) {
        let group = if carrier.segments { alike(&frames[at..]) } else { 1 };
        let header = &mut messages[count].msg_hdr;
        header.msg_name = name;
        header.msg_namelen = name_len;
        header.msg_iov = &raw mut parts[at];
        header.msg_iovlen = group as _;
        let control = &mut controls[count];
        if group > 1 {
            control.add(libc::IPPROTO_UDP, UDP_SEGMENT, frames[at].len() as u16);
        }
        to.here.iter().for_each(|here| control.add_source(*here));
        if control.len > 0 {
            header.msg_control = control.room.as_mut_ptr().cast();
            header.msg_controllen = control.len as _;
        }
        at += group;
        count += 1;
        starts[count] = at;
    }
    let fd = carrier.as_fd().as_raw_fd();
    let flags = libc::MSG_DONTWAIT;
    // SAFETY: `count` messages, whose parts, names and controls live through the call.
    let done = unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), count as u32, flags as _) };
    if done > 0 {
        return starts[done as usize];
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EINTR) => 0,
        // The socket reports an ICMP error about an earlier frame. This frame did not leave; the
        // next one may.
        Some(libc::ECONNREFUSED) => {
            sent.refused += 1;
            1
        }
        // This host does not have that address any more. From another one the frames may arrive.
        Some(libc::EINVAL | libc::ENETUNREACH) if to.here.is_some() => {
            to.here = None;
            0
        }
        // The device cannot cut segments, or they are too long for it: one by one from now on.
        Some(libc::EINVAL | libc::EMSGSIZE | libc::EIO) if starts[1] > 1 => {
            carrier.segments = false;
            0
        }
        Some(libc::ENXIO | libc::ENODEV | libc::ENETDOWN) => {
            sent.gone = true;
            0
        }
        _ => {
            sent.refused += starts[1] as u64;
            starts[1]
        }
    }
}

/// Number of frames at the front that can leave as one datagram: all of one length, except that the
/// last may be shorter.
fn alike(frames: &[Vec<u8>]) -> usize {
    let len = frames[0].len();
    if len == 0 {
        return 1;
    }
    let most = (DATAGRAM / len).clamp(1, OUT);
    let same = frames.iter().take(most).take_while(|frame| frame.len() == len).count();
    let shorter = frames.get(same).is_some_and(|frame| frame.len() < len && !frame.is_empty());
    if shorter && same < most { same + 1 } else { same }
}

/// The control messages of frames that leave.
#[derive(Clone, Copy, Default)]
struct Control {
    /// Room for an int and an address, aligned as the kernel wants it.
    room: [u64; 8],
    len: usize,
}

impl Control {
    fn add<T: Copy>(&mut self, level: libc::c_int, kind: libc::c_int, value: T) {
        let len = size_of::<T>() as u32;
        // SAFETY: a bare computation.
        let space = unsafe { libc::CMSG_SPACE(len) } as usize;
        assert!(self.len + space <= size_of_val(&self.room), "there is room for both kinds");
        // SAFETY: the message ends inside the room, as just checked, and begins aligned, as the
        // space of each before it is.
        unsafe {
            let one = self.room.as_mut_ptr().cast::<u8>().add(self.len).cast::<libc::cmsghdr>();
            (*one).cmsg_level = level;
            (*one).cmsg_type = kind;
            (*one).cmsg_len = libc::CMSG_LEN(len) as _;
            libc::CMSG_DATA(one).cast::<T>().write_unaligned(value);
        }
        self.len += space;
    }

    /// Says from which address of this host the frames leave.
    fn add_source(&mut self, here: IpAddr) {
        match here {
            IpAddr::V4(here) => {
                let here = libc::in_addr { s_addr: here.to_bits().to_be() };
                let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: here, ipi_addr: here };
                self.add(libc::IPPROTO_IP, libc::IP_PKTINFO, info);
            }
            IpAddr::V6(here) => {
                let here = libc::in6_addr { s6_addr: here.octets() };
                let info = libc::in6_pktinfo { ipi6_addr: here, ipi6_ifindex: 0 };
                self.add(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
            }
        }
    }
}

/// Room for received frames, shared by all links.
pub struct Inbox {
    room: Vec<u8>,
    names: Vec<Address>,
    controls: Vec<Controls>,
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox::new()
    }
}

impl Inbox {
    /// An empty inbox.
    pub fn new() -> Inbox {
        Inbox {
            room: vec![0; IN * ROOM],
            names: vec![Address::empty(); IN],
            controls: vec![Controls::default(); IN],
        }
    }

    /// Receives a batch of the messages that are there already and hands to `each` every frame,
    /// its sender, and when the kernel received it, in nanoseconds of CLOCK_REALTIME, where that is
    /// known. Returns whether there may be more.
    pub fn receive(
        &mut self,
        carrier: &Carrier,
        mut each: impl FnMut(&Address, &[u8], Option<u64>),
    ) -> io::Result<bool> {
        // SAFETY: all-zero is a valid value of each of these structures.
        let (mut parts, mut messages): ([libc::iovec; IN], [libc::mmsghdr; IN]) =
            unsafe { (mem::zeroed(), mem::zeroed()) };
        for (index, message) in messages.iter_mut().enumerate() {
            let room = &mut self.room[index * ROOM..][..ROOM];
            parts[index] = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: ROOM };
            self.names[index] = Address::empty();
            let (name, name_len) = self.names[index].as_mut_ptr();
            let header = &mut message.msg_hdr;
            (header.msg_name, header.msg_namelen) = (name, name_len);
            (header.msg_iov, header.msg_iovlen) = (&raw mut parts[index], 1);
            header.msg_control = self.controls[index].as_mut_ptr().cast();
            header.msg_controllen = size_of::<Controls>() as _;
        }
        let (fd, flags) = (carrier.as_fd().as_raw_fd(), libc::MSG_DONTWAIT);
        let none = std::ptr::null_mut();
        // SAFETY: every pointer in the messages leads to memory of the length given next to it.
        let count =
            unsafe { libc::recvmmsg(fd, messages.as_mut_ptr(), IN as u32, flags as _, none) };
        if count < 0 {
            let error = io::Error::last_os_error();
            let nothing = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted];
            return if nothing.contains(&error.kind()) { Ok(false) } else { Err(error) };
        }
        let messages = &messages[..count as usize];
        for (index, message) in messages.iter().enumerate() {
            let bytes = &self.room[index * ROOM..][..(message.msg_len as usize).min(ROOM)];
            // An empty datagram is handed on, too, so that it is counted as a frame that could not
            // be parsed.
            let Beside { size, stamp, here } = Beside::of(&message.msg_hdr);
            self.names[index].here = here;
            let size = size.unwrap_or(bytes.len()).max(1);
            if bytes.is_empty() {
                each(&self.names[index], bytes, stamp);
            }
            bytes.chunks(size).for_each(|frame| each(&self.names[index], frame, stamp));
        }
        Ok(messages.len() == IN)
    }
}

/// The control messages of a message that came.
#[derive(Default)]
struct Beside {
    /// Length of the segments that the kernel joined, where it joined any.
    size: Option<usize>,
    /// Time at which the message came.
    stamp: Option<u64>,
    /// Address of this host to which it came.
    here: Option<IpAddr>,
}

impl Beside {
    fn of(header: &libc::msghdr) -> Beside {
        let mut beside = Beside::default();
        for (level, kind, data) in control_messages(header) {
            // SAFETY, in all arms: the kind says what the data is.
            match (level, kind) {
                (libc::IPPROTO_UDP, UDP_GRO) => {
                    let len = unsafe { data.cast::<libc::c_int>().read_unaligned() };
                    beside.size = usize::try_from(len).ok().filter(|len| *len > 0);
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    beside.stamp = Some(unsafe { stamp_in(data) });
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = unsafe { data.cast::<libc::in_pktinfo>().read_unaligned() };
                    let here = Ipv4Addr::from_bits(u32::from_be(info.ipi_spec_dst.s_addr));
                    beside.here = Some(here.into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = unsafe { data.cast::<libc::in6_pktinfo>().read_unaligned() };
                    let here = Ipv6Addr::from(info.ipi6_addr.s6_addr);
                    // Of an address that each interface has, the other end's says which is meant.
                    beside.here = Some(here.into()).filter(|_| !here.is_unicast_link_local());
                }
                _ => {}
            }
        }
        beside
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Namespace;
    use crate::poller::Poller;
    use crate::{cable, clock, ip};
    use sheaf_stage::Duration;
    use std::net::SocketAddr;

    #[test]
    fn frames_of_one_length_share_a_datagram_and_a_shorter_one_ends_it() {
        let frames = |lens: &[usize]| lens.iter().map(|len| vec![0; *len]).collect::<Vec<_>>();
        for (lens, group) in [
            (&[100, 100, 100][..], 3),
            (&[100, 100, 60, 100], 3),
            (&[100, 200], 1),
            (&[60, 100], 1),
            (&[100, 0], 1),
            (&[40_000, 40_000], 1),
            (&[30_000, 30_000, 30_000], 2),
        ] {
            assert_eq!(alike(&frames(lens)), group, "{lens:?}");
        }
    }

    #[test]
    fn frames_of_all_lengths_arrive_whole_and_in_order_however_they_travel() {
        let namespace = Namespace::new().unwrap();
        // Not one port twice: a child that another test has just forked has the first socket open
        // until it executes its program.
        for (segments, port) in [(true, 7431), (false, 7432)] {
            let passed = namespace.run(|| {
                let at = |host| SocketAddr::from(([127, 0, 0, host], port));
                let (here, there) = (at(1), at(2));
                let mut from = Carrier::udp(here, Some("lo"))?;
                let to = Carrier::udp(there, None)?;
                from.segments = segments;
                let mut outbox = Outbox::default();
                let lens = [1400, 1400, 1400, 60, 1400, 0, 1, 1400, 1400, 700, 700, 8000, 8000];
                let frames: Vec<Vec<u8>> =
                    (1u8..).zip(lens).map(|(number, len)| vec![number; len]).collect();
                for frame in &frames {
                    assert!(!outbox.push(&mut frame.clone()));
                }
                assert_eq!(outbox.send(&mut from, &Address::udp(there)), Sent::default());
                assert!(outbox.is_empty());
                let (mut inbox, mut got, mut poller) =
                    (Inbox::new(), Vec::new(), Poller::default());
                poller.add(&to);
                while got.len() < frames.len() {
                    poller.wait(None)?;
                    inbox.receive(&to, |sender, frame, _| {
                        assert_eq!(sender.udp_end(), Some(here));
                        got.push(frame.to_vec());
                    })?;
                }
                assert_eq!(got, frames);
                assert!(!inbox.receive(&to, |_, _, _| panic!("there is no more"))?);
                Ok(())
            });
            passed.unwrap();
        }
    }

    #[test]
    fn a_frame_has_the_time_at_which_it_came_and_not_that_at_which_it_was_read() {
        let namespace = Namespace::new().unwrap();
        let passed = namespace.run(|| {
            let there = "127.0.0.2:7431".parse().unwrap();
            let mut from = Carrier::udp("127.0.0.1:7431".parse().unwrap(), None)?;
            let (to, mut outbox) = (Carrier::udp(there, None)?, Outbox::default());
            let mut send = || {
                outbox.push(&mut vec![0; 100]);
                assert_eq!(outbox.send(&mut from, &Address::udp(there)), Sent::default());
            };
            let (mut inbox, mut poller) = (Inbox::new(), Poller::default());
            poller.add(&to);
            let wall = || clock::epoch() + clock::now().as_nanos();
            // Where no other socket wants stamps, the kernel begins with them a little after this
            // one was opened, and until then takes the time of reading.
            let mut is_stamped = false;
            while !is_stamped {
                send();
                poller.wait(None)?;
                let read_at = wall();
                inbox.receive(&to, |_, _, stamp| is_stamped = stamp.unwrap() < read_at)?;
            }
            send();
            poller.wait(None)?;
            // Long against what is between a clock and a look at it.
            let (first, pause) = (clock::now(), Duration::from_millis(5));
            while clock::now() - first < pause {}
            send();
            let mut stamps = Vec::new();
            while stamps.len() < 2 {
                poller.wait(None)?;
                inbox.receive(&to, |_, _, stamp| stamps.push(stamp.unwrap()))?;
            }
            // Clocks may be set forward or back by a two-thousandth.
            let apart = Duration::from_nanos(stamps[1] - stamps[0]);
            assert!(apart >= pause - pause / 1000, "{apart:?} apart");
            Ok(())
        });
        passed.unwrap();
    }

    #[test]
    fn where_segments_do_not_fit_frames_leave_one_by_one_from_then_on() {
        let namespace = Namespace::new().unwrap();
        let passed = namespace.run(|| {
            // Too narrow for a segment, so the frames leave in fragments.
            ip::run("link set lo mtu 1300")?;
            let there = "127.0.0.2:7431".parse().unwrap();
            let mut from = Carrier::udp("127.0.0.1:7431".parse().unwrap(), Some("lo"))?;
            let (to, mut outbox) = (Carrier::udp(there, None)?, Outbox::default());
            for number in 0..3 {
                outbox.push(&mut vec![number; 1400]);
            }
            assert_eq!(outbox.send(&mut from, &Address::udp(there)), Sent::default());
            assert!(!from.segments);
            let (mut inbox, mut got, mut poller) = (Inbox::new(), Vec::new(), Poller::default());
            poller.add(&to);
            while got.len() < 3 {
                poller.wait(None)?;
                inbox.receive(&to, |_, frame, _| got.push((frame[0], frame.len())))?;
            }
            assert_eq!(got, [(0, 1400), (1, 1400), (2, 1400)]);
            Ok(())
        });
        passed.unwrap();
    }

    #[test]
    fn a_reply_leaves_from_the_address_to_which_the_frame_came_while_that_is_there() {
        let namespace = Namespace::new().unwrap();
        let passed = namespace.run(|| {
            for (any, here, there, lost) in [
                ("0.0.0.0:7431", "192.0.2.9:7431", "192.0.2.1:7432", "192.0.2.9/32"),
                ("[::]:7431", "[fd01::9]:7431", "[fd01::1]:7432", "fd01::9/128"),
            ] {
                let [any, here, there]: [SocketAddr; 3] =
                    [any, here, there].map(|text| text.parse().unwrap());
                let bits = if here.is_ipv4() { 32 } else { 128 };
                // Nothing is sent from the second address unless somebody says so.
                for address in [there.ip(), here.ip()] {
                    ip::run(&format!("addr add {address}/{bits} dev lo"))?;
                }
                for address in [there.ip(), here.ip()] {
                    cable::wait_for(address);
                }
                let mut server = Carrier::udp(any, None)?;
                let client = Carrier::udp(there, None)?;
                let (mut inbox, mut outbox) = (Inbox::new(), Outbox::default());
                let mut poller = Poller::default();
                poller.add(&server);
                poller.add(&client);
                let mut receive = |carrier: &Carrier, poller: &mut Poller| {
                    let mut from = Vec::new();
                    while from.is_empty() {
                        poller.wait(None)?;
                        inbox.receive(carrier, |address, _, _| from.push(*address))?;
                    }
                    io::Result::Ok(from)
                };
                let mut asker = Carrier::udp(SocketAddr::new(there.ip(), 1), None)?;
                outbox.push(&mut vec![1; 100]);
                assert_eq!(outbox.send(&mut asker, &Address::udp(here)), Sent::default());
                let first = receive(&server, &mut poller)?[0];
                assert_eq!(first.here, Some(here.ip()));
                let mut to = Address::udp(there);
                to.here = first.here;
                for (is_there, count) in [(true, 3), (false, 3)] {
                    if !is_there {
                        ip::run(&format!("addr del {lost} dev lo"))?;
                    }
                    (0..count).for_each(|_| assert!(!outbox.push(&mut vec![2; 100])));
                    assert_eq!(outbox.send(&mut server, &to), Sent::default());
                    let mut from = Vec::new();
                    while from.len() < count {
                        from.extend(receive(&client, &mut poller)?);
                    }
                    let is_here = |from: &Address| from.udp_end() == Some(here);
                    assert!(from.iter().all(|from| is_here(from) == is_there), "{is_there}");
                    assert!(server.segments, "an address that is gone says nothing of segments");
                }
            }
            Ok(())
        });
        passed.unwrap();
    }

    #[test]
    fn frames_that_cannot_leave_are_counted() {
        let namespace = Namespace::new().unwrap();
        let sent = namespace.run(|| {
            let mut carrier = Carrier::udp("127.0.0.1:7431".parse().unwrap(), None)?;
            let mut outbox = Outbox::default();
            for _ in 0..3 {
                outbox.push(&mut vec![0; 100]);
            }
            // No route leads there.
            Ok(outbox.send(&mut carrier, &Address::udp("192.0.2.1:9".parse().unwrap())))
        });
        assert_eq!(sent.unwrap(), Sent { refused: 3, gone: false });
    }
}
