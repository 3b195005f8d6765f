//! Settings of `sheaf trunk`.

use super::lookup::Name;
use sheaf_aggregate::{Rules, Verdict};
use sheaf_netio::carrier::Mac;
use sheaf_netio::ip;
use sheaf_trunk::{DeliveryMode, EndpointConfig, LinkConfig, Quota};
use sheaf_wire::ip::Ip;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// The default UDP port: IANA assigned it to nobody, and it is below Linux's ephemeral ports.
pub const PORT: u16 = 7431;

/// Address of the other end of an Ethernet member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The link address itself.
    Mac(Mac),
    /// An address that the neighbour table resolves.
    Address(IpAddr),
}

/// Where the other end of a path is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Far {
    /// Its address.
    Address(SocketAddr),
    /// Its name, which is looked up while the link is down.
    Name(Name),
}

impl fmt::Display for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Far::Address(address) => address.fmt(f),
            Far::Name(Name { host, port }) => write!(f, "{host}:{port}"),
        }
    }
}

/// A link as the command line describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// Ethernet frames of our own type.
    Ethernet {
        /// Interface.
        dev: String,
        /// The other end.
        peer: Peer,
        /// Packets that the interface's queue holds; with it, the fill of that queue decides when
        /// frames leave, in place of a learned rate.
        queue: Option<u32>,
    },
    /// UDP datagrams.
    Path {
        /// Our end.
        local: SocketAddr,
        /// The interface; `None`: the one that has the address.
        dev: Option<String>,
        /// The other end; `None`: its address is learned.
        remote: Option<Far>,
    },
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spec::Ethernet { peer, queue, .. } => {
                f.write_str(&self.own_end())?;
                queue.iter().try_for_each(|queue| write!(f, " queue {queue}"))?;
                match peer {
                    Peer::Mac(mac) => write!(f, " peer {}", ip::mac_text(*mac)),
                    Peer::Address(peer) => write!(f, " peer {peer}"),
                }
            }
            Spec::Path { remote, .. } => {
                f.write_str(&self.own_end())?;
                remote.iter().try_for_each(|remote| write!(f, " {remote}"))
            }
        }
    }
}

impl Spec {
    /// Its words up to the other end, which may change: `dev IF` or `path LOCAL[@IF]`.
    pub fn own_end(&self) -> String {
        match self {
            Spec::Ethernet { dev, .. } => format!("dev {dev}"),
            Spec::Path { local, dev: Some(dev), .. } => format!("path {local}@{dev}"),
            Spec::Path { local, dev: None, .. } => format!("path {local}"),
        }
    }
}

/// A link and its terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The link as the command line describes it.
    pub spec: Spec,
    /// Its terms; what its carrier adds is known later.
    pub terms: LinkConfig,
    /// The most that it may carry in a calendar period.
    pub quota: Option<Quota>,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LinkConfig { backup, cost, least, most, .. } = self.terms;
        self.spec.fmt(f)?;
        f.write_str(if backup { " backup" } else { "" })?;
        if !cost.is_zero() {
            write!(f, " cost {cost:?}")?;
        }
        least.iter().try_for_each(|min| write!(f, " min {min}"))?;
        most.iter().try_for_each(|max| write!(f, " max {max}"))?;
        self.quota.iter().try_for_each(|quota| write!(f, " quota {quota}"))
    }
}

/// Scheduling of the process by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Ahead of every ordinary process (SCHED_RR).
    Realtime,
    /// The scheduling with which the process was started.
    Normal,
}

impl Priority {
    /// Its name on the command line.
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
    pub members: Vec<Link>,
    /// Parameters of both directions; the size of frames is found from the links.
    pub endpoint: EndpointConfig,
    /// The file with the key that both ends have; `None`: frames are not encrypted.
    pub key: Option<PathBuf>,
    /// Bytes of the largest packet; `None`: as many as fit all links.
    pub mtu: Option<u16>,
    /// Addresses with their prefix lengths.
    pub addresses: Vec<String>,
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
        let Settings { name, members, key, endpoint, mtu, addresses, priority, .. } = other;
        let (ours, sender) = (&self.endpoint.sender, &endpoint.sender);
        [
            ("the name", self.name != *name),
            ("path and dev", self.members != *members),
            ("key and plain", self.key != *key),
            ("scheduler", ours.scheduler != sender.scheduler),
            ("mtu", self.mtu != *mtu),
            ("address", self.addresses != *addresses),
            ("aggregate", ours.aggregate != sender.aggregate),
            ("compress", ours.compress != sender.compress),
            ("parity", ours.parity != sender.parity),
            ("a parameter of the links", self.endpoint != *endpoint),
            ("priority", self.priority != *priority),
        ]
        .into_iter()
        .find_map(|(word, differs)| differs.then_some(word))
    }

    /// The links as the log and the report name them: links with the same words have numbers.
    pub fn link_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for (at, Link { spec, .. }) in self.members.iter().enumerate() {
            let before = self.members[..at].iter().filter(|link| link.spec == *spec).count();
            let number = if before > 0 { format!(" #{}", before + 1) } else { String::new() };
            names.push(format!("{spec}{number}"));
        }
        names
    }

    /// The delivery that `packet` has to have.
    pub fn delivery_mode(&self, packet: &[u8]) -> DeliveryMode {
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
