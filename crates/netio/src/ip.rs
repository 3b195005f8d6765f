//! Interfaces, addresses and neighbours of this thread's network namespace, by the `ip` command of
//! iproute2.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::process::Command;

/// Runs `ip` with the words of `arguments`; an error carries what it said.
pub fn run(arguments: &str) -> io::Result<()> {
    output(arguments).map(drop)
}

/// What `ip` prints.
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
    nix::net::if_::if_nametoindex(name).map_err(|_| {
        let known = nix::net::if_::if_nameindex().map_or(Vec::new(), |list| {
            list.iter().map(|one| one.name().to_string_lossy().into_owned()).collect()
        });
        let known = known.join(", ");
        io::Error::other(format!("no interface {name:?}; there are {known}"))
    })
}

/// The link address of interface `name`.
pub fn mac(name: &str) -> io::Result<[u8; 6]> {
    let text = output(&format!("-o link show dev {name}"))?;
    let address = text.split_once("link/ether ").map(|(_, rest)| rest).unwrap_or_default();
    parse_mac(address.split_whitespace().next().unwrap_or_default())
        .ok_or_else(|| io::Error::other(format!("{name} is no Ethernet interface")))
}

/// The names of all interfaces.
pub fn names() -> io::Result<Vec<String>> {
    let list = nix::net::if_::if_nameindex()?;
    Ok(list.iter().map(|one| one.name().to_string_lossy().into_owned()).collect())
}

/// The MTU of interface `name` in bytes.
pub fn mtu(name: &str) -> io::Result<u32> {
    let text = output(&format!("-o link show dev {name}"))?;
    let mtu = text.split_once(" mtu ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    mtu.ok_or_else(|| io::Error::other(format!("{name} has no MTU")))
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

/// Reads `02:00:00:00:00:01`.
pub fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}
