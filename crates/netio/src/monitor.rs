//! Interfaces with their addresses, and news of changes from the kernel.
//!
//! A message only says that something changed. The present state is then read anew, so a lost
//! message costs nothing but time.

use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// linux/rtnetlink.h: links, neighbours, addresses of both families.
const GROUPS: u32 = 0x1 | 0x4 | 0x10 | 0x100;

/// A netlink socket that is readable when links, neighbours or addresses changed.
pub struct Monitor {
    socket: OwnedFd,
}

impl Monitor {
    /// Opens one for this thread's network namespace.
    pub fn open() -> io::Result<Monitor> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let protocol = SockProtocol::NetlinkRoute;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
        Ok(Monitor { socket })
    }

    /// Drops the messages received so far.
    pub fn drain(&self) {
        let mut message = [0; 8192];
        // An overrun is news as well: the state is read anew in any case.
        let more = |result| matches!(result, Ok(_) | Err(nix::Error::ENOBUFS));
        while more(recv(self.socket.as_raw_fd(), &mut message, MsgFlags::empty())) {}
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// State of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// Whether it is up and its carrier works.
    pub running: bool,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// Returns all interfaces of this thread's network namespace, by name.
pub fn interfaces() -> io::Result<BTreeMap<String, Interface>> {
    let mut interfaces = BTreeMap::<String, Interface>::new();
    for part in getifaddrs()? {
        let interface = match interfaces.entry(part.interface_name) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                // It may have gone since.
                let Ok(index) = if_nametoindex(new.key().as_str()) else { continue };
                new.insert(Interface { index, ..Interface::default() })
            }
        };
        interface.running =
            part.flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING);
        if let Some(address) = part.address {
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            let v6 = || address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()));
            interface.addresses.extend(v4.or_else(v6));
        }
    }
    Ok(interfaces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip;
    use crate::netns::Namespace;
    use crate::poller::Poller;

    #[test]
    fn a_link_that_loses_its_carrier_is_reported_and_no_longer_running() {
        let namespace = Namespace::new().unwrap();
        let passed = namespace.run(|| {
            let monitor = Monitor::open()?;
            let mut poller = Poller::default();
            poller.add(&monitor);
            ip::run("link add eth0 type veth peer name eth1")?;
            ip::run("addr add 10.0.0.1/24 dev eth0")?;
            ip::run("addr add fd00::1/64 dev eth0 nodad")?;
            ip::run("link set eth0 up")?;
            ip::run("link set eth1 up")?;
            while !interfaces()?["eth0"].running {
                poller.wait(None)?;
                monitor.drain();
            }
            let eth0 = interfaces()?.remove("eth0").expect("it exists");
            assert_eq!(eth0.index, ip::index("eth0")?);
            for address in ["10.0.0.1", "fd00::1"] {
                assert!(eth0.addresses.contains(&address.parse().unwrap()));
            }
            ip::run("link set eth1 down")?;
            while interfaces()?["eth0"].running {
                poller.wait(None)?;
                monitor.drain();
            }
            ip::run("link del eth0")?;
            assert!(!interfaces()?.contains_key("eth0"));
            Ok(())
        });
        passed.unwrap();
    }
}
