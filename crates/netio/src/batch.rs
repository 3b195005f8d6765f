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
/// Room for the control message of a frame that leaves: an int.
type Control = [u64; 4];
/// Room for those of a message that came: an int and a time.
type Beside = [u64; 8];

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

    /// Sends all frames to `to` and empties the box.
    pub fn send(&mut self, carrier: &mut Carrier, to: &Address) -> Sent {
        let mut sent = Sent::default();
        let mut frames = &self.frames[..self.len];
        while !frames.is_empty() && !sent.gone {
            let done = send_some(carrier, frames, to, &mut sent);
            frames = &frames[done..];
        }
        sent.refused += frames.len() as u64;
        self.len = 0;
        sent
    }
}

/// Sends some of `frames`, at most [`OUT`]. Returns the number of frames that were sent or refused.
fn send_some(carrier: &mut Carrier, frames: &[Vec<u8>], to: &Address, sent: &mut Sent) -> usize {
    let mut to = *to;
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
        if group > 1 {
            segment(header, &mut controls[count], frames[at].len());
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

/// Marks a message as one datagram that is cut into segments of `size` bytes.
fn segment(header: &mut libc::msghdr, control: &mut Control, size: usize) {
    header.msg_control = control.as_mut_ptr().cast();
    // SAFETY: a bare computation; then, the control part has room for one message of two bytes.
    unsafe {
        header.msg_controllen = libc::CMSG_SPACE(2) as _;
        let one = libc::CMSG_FIRSTHDR(header);
        (*one).cmsg_level = libc::IPPROTO_UDP;
        (*one).cmsg_type = UDP_SEGMENT;
        (*one).cmsg_len = libc::CMSG_LEN(2) as _;
        libc::CMSG_DATA(one).cast::<u16>().write_unaligned(size as u16);
    }
}

/// Room for received frames, shared by all links.
pub struct Inbox {
    room: Vec<u8>,
    names: Vec<Address>,
    controls: Vec<Beside>,
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
            controls: vec![Beside::default(); IN],
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
            header.msg_controllen = size_of::<Beside>() as _;
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
            let (size, stamp) = beside(&message.msg_hdr);
            let size = size.unwrap_or(bytes.len()).max(1);
            if bytes.is_empty() {
                each(&self.names[index], bytes, stamp);
            }
            bytes.chunks(size).for_each(|frame| each(&self.names[index], frame, stamp));
        }
        Ok(messages.len() == IN)
    }
}

/// Reads the length of the segments that the kernel joined, where it joined any, and the time at
/// which the message came.
fn beside(header: &libc::msghdr) -> (Option<usize>, Option<u64>) {
    let (mut size, mut stamp) = (None, None);
    for (level, kind, data) in control_messages(header) {
        match (level, kind) {
            (libc::IPPROTO_UDP, UDP_GRO) => {
                // SAFETY: the kind says what it is.
                let len = unsafe { data.cast::<libc::c_int>().read_unaligned() };
                size = usize::try_from(len).ok().filter(|len| *len > 0);
            }
            // SAFETY: the kind says what it is.
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                stamp = Some(unsafe { stamp_in(data) });
            }
            _ => {}
        }
    }
    (size, stamp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::netns::Namespace;
    use crate::poller::Poller;
    use sheaf_stage::Duration;

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
        for segments in [true, false] {
            let passed = namespace.run(|| {
                let (here, there) = ("127.0.0.1:7431".parse().unwrap(), "127.0.0.2:7431");
                let there = there.parse().unwrap();
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
            crate::ip::run("link set lo mtu 1300")?;
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
