//! Interfaces, addresses and neighbours of this thread's network namespace: what is set, by the
//! `ip` command of iproute2; numbers, link addresses and MTUs from the kernel itself.

use crate::socket::request;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, setsockopt, socket, sockopt,
};
use sheaf_wire::ethernet::HEADER_LEN;
use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;

mod ioctl {
    #![allow(missing_docs, reason = "the macros make the items")]
    use nix::libc;
    nix::ioctl_readwrite_bad!(siocgifindex, libc::SIOCGIFINDEX, libc::ifreq);
    nix::ioctl_readwrite_bad!(siocgifhwaddr, libc::SIOCGIFHWADDR, libc::ifreq);
    nix::ioctl_readwrite_bad!(siocgifmtu, libc::SIOCGIFMTU, libc::ifreq);
    nix::ioctl_readwrite_bad!(siocgifflags, libc::SIOCGIFFLAGS, libc::ifreq);
}

/// Runs `ip` with the words of `arguments`; an error carries what it said.
pub fn run(arguments: &str) -> io::Result<()> {
    output(arguments).map(drop)
}

/// Output of `ip`.
pub fn output(arguments: &str) -> io::Result<String> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("ip {arguments}: {}", said.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The index of interface `name`, or an error that names those that exist.
pub fn index(name: &str) -> io::Result<u32> {
    find_index(name).map_err(|error| {
        if is_exhausted(&error) {
            return error;
        }
        let known = nix::net::if_::if_nameindex().map_or(Vec::new(), |list| {
            list.iter().map(|one| one.name().to_string_lossy().into_owned()).collect()
        });
        let known = known.join(", ");
        io::Error::other(format!("no interface {name:?}; there are {known}"))
    })
}

/// The index of interface `name`. The C library's function would report a lack of descriptors as
/// an interface that does not exist.
fn find_index(name: &str) -> io::Result<u32> {
    let mut request = request(name)?;
    // SAFETY: SIOCGIFINDEX reads and writes one ifreq, which lives through the call, and leaves the
    // index member set.
    let index = unsafe {
        ioctl::siocgifindex(any_socket()?.as_raw_fd(), &raw mut request)?;
        request.ifr_ifru.ifru_ifindex
    };
    u32::try_from(index).map_err(io::Error::other)
}

/// Whether an error says that this process or the machine has no descriptor or memory left, and
/// nothing about what was asked for.
pub fn is_exhausted(error: &io::Error) -> bool {
    let errors = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS];
    error.raw_os_error().is_some_and(|error| errors.contains(&error))
}

/// A modem's interface (linux/if_arp.h).
const ARPHRD_RAWIP: u16 = 519;
/// Kinds of interfaces that carry bare IP packets: WireGuard and TUN, modems, and tunnels.
const LAYER_3: [u16; 7] = [
    libc::ARPHRD_NONE,
    ARPHRD_RAWIP,
    libc::ARPHRD_PPP,
    libc::ARPHRD_TUNNEL,
    libc::ARPHRD_TUNNEL6,
    libc::ARPHRD_SIT,
    libc::ARPHRD_IPGRE,
];

/// The link address of interface `name`; `None` for one that carries bare IP packets.
pub fn link_address(name: &str) -> io::Result<Option<[u8; 6]>> {
    let address = hardware_address(name)?;
    match address.sa_family {
        libc::ARPHRD_ETHER => Ok(Some(std::array::from_fn(|at| address.sa_data[at] as u8))),
        kind if LAYER_3.contains(&kind) => Ok(None),
        _ => Err(no_ethernet(name)),
    }
}

/// The link address of interface `name`.
pub fn mac(name: &str) -> io::Result<[u8; 6]> {
    link_address(name)?.ok_or_else(|| no_ethernet(name))
}

fn no_ethernet(name: &str) -> io::Error {
    io::Error::other(format!("{name} is not an Ethernet interface; give one that is"))
}

/// Bytes of the link header that packets of interface `name` have: an Ethernet header or none.
pub fn link_header(name: &str) -> io::Result<usize> {
    let ethernet = [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK];
    Ok(if ethernet.contains(&hardware_address(name)?.sa_family) { HEADER_LEN } else { 0 })
}

/// The kind of interface `name`, and its address in that kind's form.
fn hardware_address(name: &str) -> io::Result<libc::sockaddr> {
    let mut request = request(name)?;
    // SAFETY: SIOCGIFHWADDR reads and writes one ifreq, which lives through the call, and leaves
    // the address member set.
    unsafe {
        ioctl::siocgifhwaddr(any_socket()?.as_raw_fd(), &raw mut request)?;
        Ok(request.ifr_ifru.ifru_hwaddr)
    }
}

/// The names of all interfaces.
pub fn names() -> io::Result<Vec<String>> {
    let list = nix::net::if_::if_nameindex()?;
    Ok(list.iter().map(|one| one.name().to_string_lossy().into_owned()).collect())
}

/// The MTU of interface `name` in bytes.
pub fn mtu(name: &str) -> io::Result<u32> {
    let mut request = request(name)?;
    // SAFETY: SIOCGIFMTU reads and writes one ifreq, which lives through the call, and leaves the
    // MTU member set.
    let mtu = unsafe {
        ioctl::siocgifmtu(any_socket()?.as_raw_fd(), &raw mut request)?;
        request.ifr_ifru.ifru_mtu
    };
    u32::try_from(mtu).map_err(|_| io::Error::other(format!("{name} has no MTU")))
}

/// Whether interface `name` is set up (IFF_UP).
pub fn is_up(name: &str) -> io::Result<bool> {
    let mut request = request(name)?;
    // SAFETY: SIOCGIFFLAGS reads and writes one ifreq, which lives through the call, and leaves the
    // flags member set.
    let flags = unsafe {
        ioctl::siocgifflags(any_socket()?.as_raw_fd(), &raw mut request)?;
        request.ifr_ifru.ifru_flags
    };
    Ok(i32::from(flags) & libc::IFF_UP != 0)
}

/// A socket to ask of interfaces; of what family does not matter.
fn any_socket() -> io::Result<OwnedFd> {
    Ok(socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?)
}

/// The addresses of interface `name`.
pub fn addresses(name: &str) -> io::Result<Vec<IpAddr>> {
    let text = output(&format!("-o addr show dev {name}"))?;
    let address = |line: &str| {
        let mut words = line.split_whitespace().skip_while(|word| !word.starts_with("inet"));
        let (address, _) = words.nth(1)?.split_once('/')?;
        address.parse().ok()
    };
    Ok(text.lines().filter_map(address).collect())
}

/// The address that this host uses to talk to `address`, by its routes.
pub fn source_towards(address: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Connecting a UDP socket sends nothing; the port does not matter.
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((address, 9))?;
    Ok(socket.local_addr()?.ip())
}

/// A way to an address, as this host's routes over one interface have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Our address on it.
    pub source: IpAddr,
    /// The largest packet it takes, in bytes, as far as the kernel knows: that of the first hop,
    /// or less where an error said so.
    pub mtu: u32,
}

/// The way to `address` over interface `dev`, whatever routes there are over others.
pub fn way_over(dev: &str, address: IpAddr) -> io::Result<Way> {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    setsockopt(&socket, sockopt::BindToDevice, &OsString::from(dev))?;
    // As in `source_towards`, nothing is sent.
    socket.connect((address, 9))?;
    let (level, name) = match address {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let (mut mtu, mut len) = (0_u32, size_of::<u32>() as u32);
    let to = (&raw mut mtu).cast();
    // SAFETY: the option is one int, for which there is room.
    if unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, to, &raw mut len) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Way { source: socket.local_addr()?.ip(), mtu })
}

/// Whether `address` is one of interface `name` itself.
pub fn has_address(name: &str, address: IpAddr) -> io::Result<bool> {
    let of = |part: &SockaddrStorage| match (part.as_sockaddr_in(), part.as_sockaddr_in6()) {
        (Some(v4), _) => Some(IpAddr::from(v4.ip())),
        (None, v6) => v6.map(|v6| v6.ip().into()),
    };
    let is_it = |part: InterfaceAddress| {
        part.interface_name == name && part.address.as_ref().and_then(of) == Some(address)
    };
    Ok(getifaddrs()?.any(is_it))
}

/// A link address as `ip link` prints it.
pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Reads `02:00:00:00:00:01`.
pub fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Namespace;

    #[test]
    fn a_way_is_over_the_interface_asked_for_and_knows_a_smaller_path() {
        let namespace = Namespace::new().unwrap();
        let asked = namespace.run(|| {
            for (dev, net) in [("eth0", 0), ("eth1", 1)] {
                run(&format!("link add {dev} type veth peer name {dev}p"))?;
                run(&format!("addr add 10.0.{net}.1/24 dev {dev}"))?;
                run(&format!("link set {dev} up"))?;
                run(&format!("link set {dev}p up"))?;
            }
            let there: IpAddr = "10.9.0.1".parse().unwrap();
            run("route add 10.9.0.1 via 10.0.0.2 dev eth0 metric 20")?;
            run("route add 10.9.0.1 via 10.0.1.2 dev eth1 mtu 1400")?;
            let address = |text: &str| text.parse().unwrap();
            assert_eq!(source_towards(there)?, address("10.0.1.1"));
            assert_eq!(way_over("eth0", there)?, Way { source: address("10.0.0.1"), mtu: 1500 });
            assert_eq!(way_over("eth1", there)?, Way { source: address("10.0.1.1"), mtu: 1400 });
            assert!(is_up("eth0")?);
            run("link set eth0 down")?;
            assert!(!is_up("eth0")?);
            assert!(is_up("eth7").is_err());
            Ok(())
        });
        asked.unwrap();
    }

    #[test]
    fn link_address_and_mtu_are_those_that_were_set_and_a_loopback_has_no_link_address() {
        let namespace = Namespace::new().unwrap();
        let asked = namespace.run(|| {
            run("link add eth0 address 02:00:00:00:00:fe mtu 1400 type veth peer name eth1")?;
            assert_eq!(mac("eth0")?, [2, 0, 0, 0, 0, 0xfe]);
            assert_eq!(mtu("eth0")?, 1400);
            assert_eq!(mtu("lo")?, 65_536);
            assert!(mac("lo").unwrap_err().to_string().contains("lo is not an Ethernet interface"));
            assert!(mac("eth7").is_err() && mtu("eth7").is_err());
            assert!(mtu("a-name-that-is-too-long").is_err());
            Ok(())
        });
        asked.unwrap();
    }
}
