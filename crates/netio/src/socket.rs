//! Questions to the kernel that several kinds of descriptors share.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// A request about interface `name` (at most 15 bytes), for ioctl(2); all but the name is zero.
pub fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: an all-zero ifreq is a valid one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "interface name too long"));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// Opens a raw socket for IP packets of `protocol`, IPv6 where `v6`, that never blocks.
pub fn raw(v6: bool, protocol: u8) -> io::Result<OwnedFd> {
    let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
    let kind = Type::RAW.cloexec().nonblocking();
    Ok(Socket::new(domain, kind, Some(Protocol::from(i32::from(protocol))))?.into())
}

/// The control messages of a received message: level, kind, and where the data is, which the
/// kernel wrote as long as the kind says.
pub(crate) fn control_messages(
    header: &libc::msghdr,
) -> impl Iterator<Item = (i32, i32, *const u8)> {
    // SAFETY: the kernel filled the control part, and the macros stay inside its length.
    let first = unsafe { libc::CMSG_FIRSTHDR(header) };
    let next = |one: &*mut libc::cmsghdr| unsafe { libc::CMSG_NXTHDR(header, *one) };
    let there = |one: *mut libc::cmsghdr| (!one.is_null()).then_some(one);
    std::iter::successors(there(first), move |one| there(next(one))).map(|one| {
        // SAFETY: it is not null, so it has a header.
        unsafe { ((*one).cmsg_level, (*one).cmsg_type, libc::CMSG_DATA(one).cast_const()) }
    })
}

/// The time in a control message of SO_TIMESTAMPNS, in nanoseconds of CLOCK_REALTIME.
///
/// # Safety
/// `data` has to be that of a message of kind SCM_TIMESTAMPNS.
pub(crate) unsafe fn stamp_in(data: *const u8) -> u64 {
    // SAFETY: the caller says what it is.
    let time = unsafe { data.cast::<libc::timespec>().read_unaligned() };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sets an option of a socket. `value` is a plain structure or number, as the option wants it.
pub fn set_option<T: Copy>(socket: &impl AsFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let (value, len): (*const T, _) = (value, size_of::<T>() as u32);
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the value has `len` bytes and lives through the call.
    match unsafe { libc::setsockopt(fd, level, name, value.cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// An instruction of a classic socket filter (bpf(4)): its code, how many instructions a jump skips
/// where the test holds and where it does not, and its operand.
pub(crate) fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// Lets only packets that pass `filter` through to a socket.
pub(crate) fn attach_filter(socket: &impl AsFd, filter: &[libc::sock_filter]) -> io::Result<()> {
    // The kernel copies the instructions, and writes to none.
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Bytes of memory that packets take which left `socket` and are not yet sent (SIOCOUTQ): in
/// queueing disciplines, and in devices that keep the owner until they have sent, as hardware does.
pub fn unsent(socket: &impl AsFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: SIOCOUTQ, which has the number of TIOCOUTQ, writes one int.
    match unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) } {
        0 => Ok(bytes.max(0) as u64),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Binds a packet socket to interface `ifindex` and to frames of `protocol` (an EtherType; 0 for
/// none: it only sends).
pub fn bind_packet(socket: &impl AsFd, ifindex: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: an all-zero sockaddr_ll is a valid one.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = ifindex as i32;
    let len = size_of_val(&address) as u32;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the address is a sockaddr_ll of `len` bytes that lives through the call.
    match unsafe { libc::bind(fd, (&raw const address).cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
