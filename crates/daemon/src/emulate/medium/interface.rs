//! The interface of a station: a TAP interface, in the network namespace that its settings name.
//!
//! It goes with the process, however that ends. As long as nobody reads it, frames wait in the
//! host, `txqueuelen` of them; the kernel drops what comes then, and counts it at the interface.

use super::settings::Interface;
use anyhow::Context;
use nix::libc;
use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use sheaf_netio::tap::Tap;
use std::io;

/// Makes the interface of the station `station` and sets it up.
///
/// # Errors
/// Fails where the namespace does not exist, or where it has an interface of the name.
pub fn open(station: &str, interface: &Interface) -> anyhow::Result<Tap> {
    let made = match &interface.namespace {
        None => make(interface),
        Some(name) => {
            let namespace = Namespace::named(name).with_context(|| {
                format!(
                    "station {station}: cannot open namespace {name}; make it with `ip netns add \
                     {name}`"
                )
            })?;
            namespace.run(|| make(interface)).map_err(|error| match error.raw_os_error() {
                Some(libc::EPERM) => io::Error::other(format!(
                    "{error}; namespace {name} is another user's: run this with sudo, or make the \
                     namespace as this user"
                )),
                _ => error,
            })
        }
    };
    made.with_context(|| format!("station {station}: cannot make {}", interface.name))
}

fn make(interface: &Interface) -> io::Result<Tap> {
    let Interface { name, mac, txqueuelen, mtu, addresses, .. } = interface;
    // A TAP interface that somebody keeps would be taken over, and would stay.
    if ip::names()?.contains(name) {
        return Err(io::Error::other("it exists already; give another interface"));
    }
    let tap = Tap::open(name).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
            io::Error::other(format!("{error}; load the module tun"))
        }
        _ => error,
    })?;
    let mac = ip::mac_text(*mac);
    ip::run(&format!("link set dev {name} address {mac} mtu {mtu} txqueuelen {txqueuelen}"))?;
    for address in addresses {
        ip::run(&format!("addr add {address} dev {name}"))?;
    }
    ip::run(&format!("link set dev {name} up"))?;
    Ok(tap)
}
