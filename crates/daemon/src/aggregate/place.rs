//! The interface as it was when something was put on it.

use anyhow::Context;
use sheaf_neighbour::SealKey;
use sheaf_netio::ip;
use sheaf_wire::hello::{Formats, Splits};
use sheaf_wire::meta;
use std::io;
use std::path::Path;

/// An interface: its name, and what it had.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its name.
    pub dev: String,
    /// Its number.
    pub ifindex: u32,
    /// Its link address; `None` where it carries bare IP packets (WireGuard, TUN).
    pub mac: Option<[u8; 6]>,
    /// Bytes of its largest packet.
    pub mtu: u32,
}

impl Place {
    /// Interface `dev` as it is now.
    pub fn find(dev: &str) -> io::Result<Place> {
        let (ifindex, mac, mtu) = (ip::index(dev)?, ip::link_address(dev)?, ip::mtu(dev)?);
        Ok(Place { dev: dev.to_owned(), ifindex, mac, mtu })
    }

    /// Its link address. An error where it has none: what a splitter in the kernel and HELLOs need.
    pub fn link_address(&self) -> anyhow::Result<[u8; 6]> {
        self.mac.with_context(|| {
            let dev = &self.dev;
            format!("{dev} carries bare IP packets; use sheaf aggregate with to, which splits, too")
        })
    }

    /// Change of the interface since then; `None` for nothing. An error where the system cannot
    /// say.
    pub fn changed(&self) -> io::Result<Option<String>> {
        let dev = &self.dev;
        let compare = || -> io::Result<Option<&str>> {
            Ok(if ip::index(dev)? != self.ifindex {
                Some("is another interface now")
            } else if !ip::is_up(dev)? {
                Some("is down")
            } else if ip::mtu(dev)? != self.mtu {
                Some("has another MTU")
            } else if ip::link_address(dev)? != self.mac {
                Some("has another link address")
            } else {
                None
            })
        };
        match compare() {
            Ok(what) => Ok(what.map(|what| format!("{dev} {what}"))),
            Err(error) if ip::is_exhausted(&error) => Err(error),
            Err(_) => Ok(Some(format!("{dev} is gone"))),
        }
    }

    /// Abilities of a splitter here that takes `formats` apart, as HELLOs say them.
    pub fn splits(&self, formats: Formats) -> Splits {
        let largest = self.mtu.min(meta::MAX_LEN as u32) as u16;
        Splits { formats, largest }
    }
}

/// The key of HELLOs in the file `path`.
pub fn seal_key(path: Option<&Path>) -> anyhow::Result<Option<SealKey>> {
    let Some(path) = path else { return Ok(None) };
    let key = crate::trunk::key::load(path).context("HELLOs need a key")?;
    Ok(Some(SealKey::new(*key.for_hello())))
}
