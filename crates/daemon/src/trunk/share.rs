//! A port that several trunks have: those that wait for their other ends there and have keys.

use sheaf_bpf::Port;
use sheaf_netio::carrier::Carrier;
use std::io;
use std::net::SocketAddr;

/// The part of one socket in sharing its port.
#[derive(Default)]
pub enum Share {
    /// It is not meant to: its other end is given, or it has no key.
    #[default]
    Alone,
    /// Nothing can be shared here, for this reason.
    Refused(String),
    /// Other trunks can have the port, too.
    Shared(Box<Port>),
}

impl Share {
    /// Opens the socket at `local`, on interface `dev` where one is given.
    pub fn open(&mut self, local: SocketAddr, dev: Option<&str>) -> io::Result<Carrier> {
        let Share::Shared(port) = self else { return Carrier::udp(local, dev) };
        let carrier = Carrier::udp_prepared(local, dev, |socket| port.prepare(socket))?;
        port.take(&carrier).map_err(io::Error::other)?;
        Ok(carrier)
    }

    /// Why a port that is in use was not shared, for the end of an error.
    pub fn shortcoming(&self) -> String {
        match self {
            Share::Alone => String::new(),
            Share::Refused(reason) => format!("; trunks cannot share it, because {reason}"),
            Share::Shared(_) => "; what has it does not share it".to_owned(),
        }
    }
}
