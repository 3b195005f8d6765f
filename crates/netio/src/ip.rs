//! Interfaces, addresses and neighbours of this thread's network namespace, by the `ip` command of
//! iproute2.

use std::io;
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

/// Reads `02:00:00:00:00:01`.
pub fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}
