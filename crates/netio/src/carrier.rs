//! Sockets that carry a trunk's frames: packet sockets for Ethernet, UDP sockets for paths.
//!
//! Each is bound to its interface, so that a member's frames take that link whatever the routes
//! say. UDP leaves "don't fragment" off: on a path narrower than its first hop, fragments are
//! slow, but frames that never arrive are worse. A socket of any address says to which of this
//! host's a frame came, and can reply from there: a NAT lets nothing else through.

use crate::socket::{self, set_option};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind};
use sheaf_wire::trunk::ETHERTYPE;
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A link address.
pub type Mac = [u8; 6];

/// Socket buffers in bytes, both ways: some 100 ms of a gigabit.
const BUFFER: libc::c_int = 8 << 20;
/// Option of linux/udp.h: datagrams of one length in a row may be received as one.
pub(crate) const UDP_GRO: libc::c_int = 104;

/// The address of the other end, in the form that the kernel takes.
#[derive(Clone, Copy)]
pub struct Address {
    bytes: libc::sockaddr_storage,
    len: libc::socklen_t,
    /// The address of this host to which the other end sends, on a UDP socket that has any.
    pub here: Option<IpAddr>,
}

impl Address {
    /// An empty address, with room for any.
    pub(crate) fn empty() -> Address {
        let len = size_of::<libc::sockaddr_storage>() as u32;
        // SAFETY: all-zero is a valid address storage.
        Address { bytes: unsafe { mem::zeroed() }, len, here: None }
    }

    fn of<T>(value: &T) -> Address {
        let mut address = Address::empty();
        let len = size_of::<T>();
        assert!(len <= size_of_val(&address.bytes), "every address fits its storage");
        // SAFETY: both are at least `len` bytes, and plain bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(
                (&raw const *value).cast::<u8>(),
                (&raw mut address.bytes).cast(),
                len,
            );
        }
        address.len = len as u32;
        address
    }

    /// The host with link address `mac` on interface `ifindex`.
    pub fn ethernet(mac: Mac, ifindex: u32) -> Address {
        // SAFETY: all-zero is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ETHERTYPE.to_be();
        address.sll_ifindex = ifindex as i32;
        address.sll_halen = 6;
        address.sll_addr[..6].copy_from_slice(&mac);
        Address::of(&address)
    }

    /// The UDP socket at `address`.
    pub fn udp(address: SocketAddr) -> Address {
        match address {
            SocketAddr::V4(v4) => Address::of(&libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: v4.ip().to_bits().to_be() },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(v6) => Address::of(&libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            }),
        }
    }

    /// The memory that the kernel reads or writes, and its length.
    pub(crate) fn as_mut_ptr(&mut self) -> (*mut libc::c_void, libc::socklen_t) {
        ((&raw mut self.bytes).cast(), self.len)
    }

    /// The sender's link address, where its frame was sent to this host alone.
    pub fn mac_to_us(&self) -> Option<Mac> {
        // SAFETY: the storage is large enough and aligned for every address.
        let link = unsafe { &*(&raw const self.bytes).cast::<libc::sockaddr_ll>() };
        let to_us = i32::from(self.bytes.ss_family) == libc::AF_PACKET
            && link.sll_pkttype == libc::PACKET_HOST
            && link.sll_halen == 6;
        to_us.then(|| [0, 1, 2, 3, 4, 5].map(|at| link.sll_addr[at]))
    }

    /// The address and port of a UDP socket; `None` for a link address.
    pub fn udp_end(&self) -> Option<SocketAddr> {
        let pointer = &raw const self.bytes;
        match i32::from(self.bytes.ss_family) {
            libc::AF_INET => {
                // SAFETY: the family says which structure it is.
                let v4 = unsafe { &*pointer.cast::<libc::sockaddr_in>() };
                let ip = Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(v4.sin_port)))
            }
            libc::AF_INET6 => {
                // SAFETY: the family says which structure it is.
                let v6 = unsafe { &*pointer.cast::<libc::sockaddr_in6>() };
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Some(std::net::SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

/// The socket of one member of a trunk.
#[derive(Debug)]
pub struct Carrier {
    socket: OwnedFd,
    /// Whether several frames may leave as one datagram of segments.
    pub segments: bool,
}

impl Carrier {
    /// Opens a socket for frames of [`ETHERTYPE`] on interface `ifindex`.
    pub fn ethernet(ifindex: u32) -> io::Result<Carrier> {
        // Without a protocol until it is bound, so that no other interface's frames come in.
        let carrier = Carrier::new(AddressFamily::Packet, false)?;
        socket::bind_packet(&carrier, ifindex, ETHERTYPE)?;
        Ok(carrier)
    }

    /// Opens a socket for datagrams from `local`, on interface `dev` alone where one is given.
    pub fn udp(local: SocketAddr, dev: Option<&str>) -> io::Result<Carrier> {
        Carrier::udp_prepared(local, dev, |_| Ok(()))
    }

    /// The same; `prepare` is called before the socket is bound.
    pub fn udp_prepared(
        local: SocketAddr,
        dev: Option<&str>,
        prepare: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<Carrier> {
        let v6 = local.is_ipv6();
        let family = if v6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
        let carrier = Carrier::new(family, true)?;
        if let Some(dev) = dev {
            let name = socket::request(dev)?.ifr_name;
            set_option(&carrier, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &name)?;
        }
        if v6 {
            let level = libc::IPPROTO_IPV6;
            set_option(&carrier, level, libc::IPV6_V6ONLY, &1)?;
            set_option(&carrier, level, libc::IPV6_MTU_DISCOVER, &libc::IPV6_PMTUDISC_DONT)?;
        } else {
            let level = libc::IPPROTO_IP;
            set_option(&carrier, level, libc::IP_MTU_DISCOVER, &libc::IP_PMTUDISC_DONT)?;
        }
        match local.ip() {
            IpAddr::V4(any) if any.is_unspecified() => {
                set_option(&carrier, libc::IPPROTO_IP, libc::IP_PKTINFO, &1)?;
            }
            IpAddr::V6(any) if any.is_unspecified() => {
                set_option(&carrier, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, &1)?;
            }
            _ => {}
        }
        // Before Linux 5.0 there is no such option; datagrams then arrive one by one.
        let _ = set_option(&carrier, libc::IPPROTO_UDP, UDP_GRO, &1);
        prepare(carrier.as_fd())?;
        bind(carrier.socket.as_raw_fd(), &SockaddrStorage::from(local))?;
        Ok(carrier)
    }

    fn new(family: AddressFamily, segments: bool) -> io::Result<Carrier> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = nix::sys::socket::socket(family, SockType::Datagram, flags, None)?;
        let carrier = Carrier { socket, segments };
        for option in [libc::SO_SNDBUFFORCE, libc::SO_RCVBUFFORCE] {
            set_option(&carrier, libc::SOL_SOCKET, option, &BUFFER)?;
        }
        set_option(&carrier, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1)?;
        Ok(carrier)
    }
}

impl AsFd for Carrier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_were_written() {
        for text in ["192.0.2.7:7431", "[2001:db8::7]:1", "[fe80::1%3]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(Address::udp(address).udp_end(), Some(address));
            assert_eq!(Address::udp(address).mac_to_us(), None);
        }
        let ethernet = Address::ethernet([2, 0, 0, 0, 0, 1], 7);
        assert_eq!(ethernet.mac_to_us(), Some([2, 0, 0, 0, 0, 1]));
        assert_eq!(ethernet.udp_end(), None);
    }
}
