//! Settings of `sheaf trunk`.

use sheaf_aggregate::{Rules, Verdict};
use sheaf_netio::carrier::Mac;
use sheaf_trunk::{DeliveryMode, Scheduler};
use sheaf_wire::ip::Ip;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// The UDP port where none is given: no assigned one, and below Linux's ephemeral ports.
pub const PORT: u16 = 7431;

/// Where the other end of an Ethernet member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Its link address.
    Mac(Mac),
    /// An address that the neighbour table resolves.
    Address(IpAddr),
}

/// A link, as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// Ethernet frames of our own type.
    Ethernet {
        /// Interface.
        dev: String,
        /// The other end.
        peer: Peer,
        /// Packets that the interface's queue holds, where that is to rule instead of a learned
        /// rate.
        queue: Option<u32>,
    },
    /// UDP datagrams.
    Path {
        /// Our end.
        local: SocketAddr,
        /// The interface; without it, the one that has the address.
        dev: Option<String>,
        /// The other end; without it, it is learned.
        remote: Option<SocketAddr>,
    },
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spec::Ethernet { dev, peer, queue } => {
                write!(f, "dev {dev}")?;
                queue.iter().try_for_each(|queue| write!(f, " queue {queue}"))?;
                match peer {
                    Peer::Mac(mac) => {
                        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
                        write!(f, " peer {mac}")
                    }
                    Peer::Address(peer) => write!(f, " peer {peer}"),
                }
            }
            Spec::Path { local, dev, remote } => {
                write!(f, "path {local}")?;
                dev.iter().try_for_each(|dev| write!(f, "@{dev}"))?;
                remote.iter().try_for_each(|remote| write!(f, " {remote}"))
            }
        }
    }
}

/// Scheduling of the process by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Before every ordinary process (SCHED_RR).
    Realtime,
    /// As it was started.
    Normal,
}

impl Priority {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Priority::Realtime => "realtime",
            Priority::Normal => "normal",
        }
    }
}

/// Settings of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of the interface to make.
    pub name: String,
    /// Its links, in the order in which both ends number them.
    pub members: Vec<Spec>,
    /// Scheduler, which decides by which link a packet goes.
    pub scheduler: Scheduler,
    /// The file with the key that both ends have; `None`: nothing is encrypted.
    pub key: Option<PathBuf>,
    /// Bytes of the largest packet; `None`: whatever fits.
    pub mtu: Option<u16>,
    /// Addresses with their prefix lengths.
    pub addresses: Vec<String>,
    /// Whether small packets share frames.
    pub aggregate: bool,
    /// Scheduling of the process; `None`: real time where that is allowed.
    pub priority: Option<Priority>,
    /// Packets that go out on every link.
    pub copies: Rules,
    /// Packets that need no order.
    pub loose: Rules,
}

impl Settings {
    /// The first word by which `other` differs and which cannot change while the trunk runs.
    pub fn fixed_difference(&self, other: &Settings) -> Option<&'static str> {
        let Settings { name, members, key, scheduler, mtu, addresses, aggregate, .. } = other;
        [
            ("the name", self.name != *name),
            ("path and dev", self.members != *members),
            ("key and plain", self.key != *key),
            ("scheduler", self.scheduler != *scheduler),
            ("mtu", self.mtu != *mtu),
            ("address", self.addresses != *addresses),
            ("aggregate", self.aggregate != *aggregate),
            ("priority", self.priority != other.priority),
        ]
        .into_iter()
        .find_map(|(word, differs)| differs.then_some(word))
    }

    /// Returns the needs of `packet`.
    pub fn care(&self, packet: &[u8]) -> DeliveryMode {
        let Ok(packet) = Ip::parse(packet) else { return DeliveryMode::Order };
        if self.copies.classify(&packet, 0) == Verdict::Gather {
            DeliveryMode::Copies
        } else if self.loose.classify(&packet, 0) == Verdict::Gather {
            DeliveryMode::Loose
        } else {
            DeliveryMode::Order
        }
    }
}
