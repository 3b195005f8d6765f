//! The tc filters of eBPF programs on an interface, over netlink.
//!
//! aya attaches and detaches them; this lists them, with the handles by which the kernel replaces one
//! in a single step.

use crate::Error;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, sendto,
    socket,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Parent of the filters at ingress of a clsact discipline (`TC_H_MAKE(TC_H_CLSACT,
/// TC_H_MIN_INGRESS)` of linux/pkt_sched.h).
const INGRESS: u32 = 0xffff_fff2;
/// `struct nlmsghdr`, `struct tcmsg`, `struct nlattr`: bytes.
const MESSAGE: usize = 16;
const TC: usize = 20;
const ATTRIBUTE: usize = 4;
/// Attributes of a filter (linux/rtnetlink.h), and of those of kind bpf (linux/pkt_cls.h).
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_ID: u16 = 11;
/// Without the flags NLA_F_NESTED and NLA_F_NET_BYTEORDER.
const KIND: u16 = 0x3fff;
/// One part of a dump; the kernel makes them 32 KiB at most (`NLMSG_GOODSIZE` in netlink_dump).
const PART: usize = 1 << 15;

/// An eBPF filter at tc ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Its place among the filters.
    pub priority: u16,
    /// Its number at that place.
    pub handle: u32,
    /// Number of its program.
    pub program: u32,
}

/// The filters named `name` at ingress of interface `ifindex` of this thread's network namespace, in
/// the order in which packets meet them.
pub fn at_ingress(ifindex: u32, name: &str) -> Result<Vec<Filter>, Error> {
    let socket = ask(ifindex)?;
    let mut filters = Vec::new();
    let mut buffer = vec![0; PART];
    loop {
        let len =
            recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()).map_err(io::Error::from)?;
        let mut rest = &buffer[..len];
        while let Some((kind, message)) = next_message(&mut rest) {
            match i32::from(kind) {
                libc::NLMSG_DONE => return Ok(filters),
                libc::NLMSG_ERROR => return error(message).map(|()| filters),
                _ => filters.extend(read(message, name)),
            }
        }
    }
}

fn ask(ifindex: u32) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let route = SockProtocol::NetlinkRoute;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, route)?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
    let mut request = Vec::with_capacity(MESSAGE + TC);
    request.extend(((MESSAGE + TC) as u32).to_ne_bytes());
    request.extend(libc::RTM_GETTFILTER.to_ne_bytes());
    request.extend(((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    // Sequence number and port of the header, then family and padding of `struct tcmsg`.
    request.extend([0; 12]);
    request.extend(ifindex.to_ne_bytes());
    request.extend(0u32.to_ne_bytes());
    request.extend(INGRESS.to_ne_bytes());
    request.extend(0u32.to_ne_bytes());
    sendto(socket.as_raw_fd(), &request, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    Ok(socket)
}

/// Type and body of the next message; `None` behind the last.
fn next_message<'a>(rest: &mut &'a [u8]) -> Option<(u16, &'a [u8])> {
    let len = u32_at(rest, 0)? as usize;
    let message = rest.get(MESSAGE..len)?;
    let kind = u16_at(rest, 4)?;
    *rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, message))
}

/// An error message's number; an interface without a classifier has no filters.
fn error(message: &[u8]) -> Result<(), Error> {
    match u32_at(message, 0).map_or(0, |number| -(number as i32)) {
        0 | libc::ENOENT | libc::EINVAL => Ok(()),
        number => Err(io::Error::from_raw_os_error(number).into()),
    }
}

/// The filter that a message describes, if it has this name, or no name: so are all programs of aya on
/// kernels without tracing, where aya takes names to be unknown. Other tools name theirs.
fn read(message: &[u8], name: &str) -> Option<Filter> {
    let handle = u32_at(message, 8)?;
    let priority = (u32_at(message, 16)? >> 16) as u16;
    let options = attribute(message.get(TC..)?, TCA_OPTIONS)?;
    let found = attribute(options, TCA_BPF_NAME)?;
    let found = found.strip_suffix(&[0]).unwrap_or(found);
    (found == name.as_bytes() || found.is_empty()).then_some(())?;
    let program = u32_at(attribute(options, TCA_BPF_ID)?, 0)?;
    Some(Filter { priority, handle, program })
}

/// Value of the attribute of this kind.
fn attribute(mut rest: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16_at(rest, 0)?);
        let value = rest.get(ATTRIBUTE..len)?;
        if u16_at(rest, 2)? & KIND == wanted {
            return Some(value);
        }
        rest = rest.get(len.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
