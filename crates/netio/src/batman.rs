//! Originators, neighbours and clients of a batman-adv mesh, by its generic netlink family
//! (linux/batman_adv.h).
//!
//! A mesh interface, such as bat0, lies above *hard interfaces*, which carry its frames. An
//! *originator* is a node of the mesh, reached through a neighbour: the next hop. A *client* is a
//! host behind a node, whose address the translation table gives.
//!
//! The first question makes the kernel load batman-adv where it can; so only those who found a mesh
//! interface should ask.

use crate::attribute::{Attributes, Value, put};
use crate::generic::Generic;
use crate::netlink::{Link, Netlink, Object};
use nix::libc;
use sheaf_stage::{Bitrate, Duration};
use std::io;

/// Name of the family, and of the kind of interface.
const FAMILY: &str = "batadv";
/// Kind of the interface that has another one as a part (linux/if_link.h).
const IFLA_INFO_SLAVE_KIND: u16 = 4;
const BATADV_CMD_GET_HARDIF: u8 = 5;
const BATADV_CMD_GET_TRANSTABLE_GLOBAL: u8 = 7;
const BATADV_CMD_GET_ORIGINATORS: u8 = 8;
const BATADV_CMD_GET_NEIGHBORS: u8 = 9;
/// Entries of a table that are read at most: a mesh of that many nodes or clients does not work.
const MOST_ENTRIES: usize = 1 << 14;
/// Bit of a VLAN's number that says that there is one, and the bits of the number
/// (BATADV_VLAN_HAS_TAG in batman-adv's main.h).
const HAS_TAG: u16 = 1 << 15;
const VLAN: u16 = 0xfff;

/// Attributes (`enum batadv_nl_attrs`).
mod attr {
    pub const MESH_IFINDEX: u16 = 3;
    pub const HARD_IFINDEX: u16 = 6;
    pub const HARD_IFNAME: u16 = 7;
    pub const HARD_ADDRESS: u16 = 8;
    pub const ORIG_ADDRESS: u16 = 9;
    pub const ACTIVE: u16 = 15;
    pub const TT_ADDRESS: u16 = 16;
    pub const TT_VID: u16 = 20;
    pub const FLAG_BEST: u16 = 22;
    pub const LAST_SEEN_MSECS: u16 = 23;
    pub const NEIGH_ADDRESS: u16 = 24;
    pub const TQ: u16 = 25;
    pub const THROUGHPUT: u16 = 26;
}

/// A way to a node of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Originator {
    /// Address of the node.
    pub address: [u8; 6],
    /// Address of the neighbour through which it is reached.
    pub next_hop: [u8; 6],
    /// Number of the hard interface towards the neighbour.
    pub hard_ifindex: Option<u32>,
    /// Transmit quality of the path, 0..=255 (BATMAN_IV).
    pub quality: Option<u8>,
    /// Throughput of the path (BATMAN_V).
    pub throughput: Option<Bitrate>,
    /// Time since the node was last heard.
    pub last_seen: Option<Duration>,
    /// Whether this way is taken.
    pub best: bool,
}

/// A neighbour on a hard interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Address of the neighbour.
    pub address: [u8; 6],
    /// Number of the hard interface on which it is.
    pub hard_ifindex: Option<u32>,
    /// Throughput of the link (BATMAN_V).
    pub throughput: Option<Bitrate>,
    /// Time since the neighbour was last heard.
    pub last_seen: Option<Duration>,
}

/// A hard interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardInterface {
    /// Number of the interface.
    pub ifindex: u32,
    /// Name of the interface.
    pub name: String,
    /// Address of the interface.
    pub address: Option<[u8; 6]>,
    /// Whether it carries frames of the mesh.
    pub active: bool,
}

/// A host behind a node of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Address of the host, or of a group that it is in.
    pub address: [u8; 6],
    /// Address of the node that has it.
    pub originator: [u8; 6],
    /// VLAN of the host; `None` where it is in none.
    pub vlan: Option<u16>,
    /// Whether this node is taken, where several have the host.
    pub best: bool,
}

/// Number of the mesh interface of which interface `ifindex` is a hard interface, if it is one.
/// Asks the kernel's list of interfaces, so that batman-adv is not loaded for it.
pub fn mesh_of(netlink: &mut Netlink, ifindex: u32) -> io::Result<Option<u32>> {
    let mut mesh = None;
    let question = Link { index: ifindex, attributes: Vec::new() };
    netlink.ask(Object::GetLink(question), |object| {
        if let Object::NewLink(link) = object {
            mesh = mesh_in(&link.attributes);
        }
    })?;
    Ok(mesh)
}

/// Number of the mesh interface that the attributes of a hard interface name.
fn mesh_in(attributes: &[u8]) -> Option<u32> {
    let value = |bytes, wanted| {
        Attributes::of(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
    };
    let kind = value(value(attributes, libc::IFLA_LINKINFO)?, IFLA_INFO_SLAVE_KIND)?;
    let is_mesh = kind.strip_suffix(b"\0").unwrap_or(kind) == FAMILY.as_bytes();
    u32::of(value(attributes, libc::IFLA_MASTER)?).filter(|_| is_mesh)
}

/// The ways to the nodes of mesh interface `ifindex`.
///
/// # Errors
/// `NotFound` where batman-adv is not loaded; ENODEV or EINVAL where the interface is not a mesh.
pub fn originators(generic: &mut Generic, ifindex: u32) -> io::Result<Vec<Originator>> {
    dump(generic, BATADV_CMD_GET_ORIGINATORS, ifindex, Originator::parse)
}

/// The neighbours of mesh interface `ifindex`, on all of its hard interfaces.
///
/// # Errors
/// As of [`originators`].
pub fn neighbours(generic: &mut Generic, ifindex: u32) -> io::Result<Vec<Neighbour>> {
    dump(generic, BATADV_CMD_GET_NEIGHBORS, ifindex, Neighbour::parse)
}

/// The hard interfaces of mesh interface `ifindex`.
///
/// # Errors
/// As of [`originators`].
pub fn hard_interfaces(generic: &mut Generic, ifindex: u32) -> io::Result<Vec<HardInterface>> {
    dump(generic, BATADV_CMD_GET_HARDIF, ifindex, HardInterface::parse)
}

/// The hosts behind other nodes of mesh interface `ifindex`: the global translation table.
///
/// # Errors
/// As of [`originators`].
pub fn clients(generic: &mut Generic, ifindex: u32) -> io::Result<Vec<Client>> {
    dump(generic, BATADV_CMD_GET_TRANSTABLE_GLOBAL, ifindex, Client::parse)
}

fn dump<T>(
    generic: &mut Generic,
    command: u8,
    ifindex: u32,
    parse: fn(&[u8]) -> Option<T>,
) -> io::Result<Vec<T>> {
    let (mut attributes, mut entries) = (Vec::new(), Vec::new());
    put(&mut attributes, attr::MESH_IFINDEX, &ifindex.to_ne_bytes());
    generic.dump(FAMILY, command, attributes, |reply| {
        if entries.len() < MOST_ENTRIES {
            entries.extend(parse(reply));
        }
    })?;
    Ok(entries)
}

/// The value of the first attribute of this kind.
fn find(reply: &[u8], kind: u16) -> Option<&[u8]> {
    Attributes::of(reply).find(|(other, _)| *other == kind).map(|(_, value)| value)
}

fn value<V: Value>(reply: &[u8], kind: u16) -> Option<V> {
    find(reply, kind).and_then(V::of)
}

fn last_seen(reply: &[u8]) -> Option<Duration> {
    let millis: Option<u32> = value(reply, attr::LAST_SEEN_MSECS);
    millis.map(|millis| Duration::from_millis(millis.into()))
}

/// In the kernel in steps of 100 kbit/s, in messages of 1 kbit/s.
fn throughput(reply: &[u8]) -> Option<Bitrate> {
    let kbps: Option<u32> = value(reply, attr::THROUGHPUT);
    kbps.map(|kbps| Bitrate::from_kbps(kbps.into()))
}

impl Originator {
    /// A way from the attributes of a reply to BATADV_CMD_GET_ORIGINATORS; `None` where an address
    /// is missing.
    pub fn parse(reply: &[u8]) -> Option<Originator> {
        Some(Originator {
            address: value(reply, attr::ORIG_ADDRESS)?,
            next_hop: value(reply, attr::NEIGH_ADDRESS)?,
            hard_ifindex: value(reply, attr::HARD_IFINDEX),
            quality: value(reply, attr::TQ),
            throughput: throughput(reply),
            last_seen: last_seen(reply),
            best: find(reply, attr::FLAG_BEST).is_some(),
        })
    }
}

impl Neighbour {
    /// A neighbour from the attributes of a reply to BATADV_CMD_GET_NEIGHBORS; `None` where there
    /// is no address.
    pub fn parse(reply: &[u8]) -> Option<Neighbour> {
        Some(Neighbour {
            address: value(reply, attr::NEIGH_ADDRESS)?,
            hard_ifindex: value(reply, attr::HARD_IFINDEX),
            throughput: throughput(reply),
            last_seen: last_seen(reply),
        })
    }
}

impl HardInterface {
    /// An interface from the attributes of a reply to BATADV_CMD_GET_HARDIF; `None` where number or
    /// name is missing.
    pub fn parse(reply: &[u8]) -> Option<HardInterface> {
        let name = find(reply, attr::HARD_IFNAME)?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        Some(HardInterface {
            ifindex: value(reply, attr::HARD_IFINDEX)?,
            name: String::from_utf8_lossy(name).into_owned(),
            address: value(reply, attr::HARD_ADDRESS),
            active: find(reply, attr::ACTIVE).is_some(),
        })
    }
}

impl Client {
    /// A host from the attributes of a reply to BATADV_CMD_GET_TRANSTABLE_GLOBAL; `None` where an
    /// address is missing.
    pub fn parse(reply: &[u8]) -> Option<Client> {
        let vlan: Option<u16> = value(reply, attr::TT_VID);
        Some(Client {
            address: value(reply, attr::TT_ADDRESS)?,
            originator: value(reply, attr::ORIG_ADDRESS)?,
            vlan: vlan.filter(|vlan| vlan & HAS_TAG != 0).map(|vlan| vlan & VLAN),
            best: find(reply, attr::FLAG_BEST).is_some(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::put;
    use crate::ip;
    use crate::netns::Namespace;

    #[test]
    fn the_interface_above_counts_as_a_mesh_by_its_kind() {
        let link = |kind: &[u8]| {
            let (mut attributes, mut info) = (Vec::new(), Vec::new());
            put(&mut attributes, libc::IFLA_MASTER, &7u32.to_ne_bytes());
            put(&mut info, IFLA_INFO_SLAVE_KIND, kind);
            put(&mut attributes, libc::IFLA_LINKINFO, &info);
            mesh_in(&attributes)
        };
        assert_eq!(
            (link(b"batadv\0"), link(b"batadv"), link(b"bridge\0")),
            (Some(7), Some(7), None)
        );
        assert_eq!(mesh_in(&[]), None);
    }

    #[test]
    fn a_part_of_a_bridge_and_an_interface_by_itself_carry_no_mesh() {
        let namespace = Namespace::new().unwrap();
        let found = namespace.run(|| {
            ip::run("link add eth0 type veth peer name eth1")?;
            ip::run("link add br0 type bridge")?;
            ip::run("link set eth0 master br0")?;
            let mut netlink = Netlink::open()?;
            let mut mesh_of = |name: &str| mesh_of(&mut netlink, ip::index(name)?);
            assert!(mesh_of("lo").is_ok());
            Ok((mesh_of("eth0")?, mesh_of("eth1")?))
        });
        assert_eq!(found.unwrap(), (None, None));
    }
}
