//! The key of a flow: two ends, and the direction of its data.

use sheaf_wire::ip::Ip;
use std::net::{IpAddr, Ipv6Addr};

/// The direction in which a packet passes the interface of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Direction {
    /// It comes in from the wire (tc ingress).
    In = 0,
    /// It goes out to the wire (tc egress).
    Out = 1,
}

impl Direction {
    /// Both, in the order of [`Direction::index`].
    pub const BOTH: [Direction; 2] = [Direction::In, Direction::Out];

    /// 0 for [`Direction::In`], 1 for [`Direction::Out`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The other way.
    pub const fn reverse(self) -> Direction {
        match self {
            Direction::In => Direction::Out,
            Direction::Out => Direction::In,
        }
    }
}

/// A connection, seen from the interface: `outside` is the end behind the wire, `inside` the one
/// behind the host. IPv4 addresses are mapped into IPv6 (RFC 4291 2.5.5.2).
///
/// Behind a NAT both directions carry the translated address at this place, so they still meet in
/// one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Address of the end behind the wire.
    pub outside: [u8; 16],
    /// Address of the other end.
    pub inside: [u8; 16],
    /// Port of the end behind the wire.
    pub outside_port: u16,
    /// Port of the other end.
    pub inside_port: u16,
}

impl Key {
    /// The key of two ends.
    pub fn new(outside: (IpAddr, u16), inside: (IpAddr, u16)) -> Key {
        Key {
            outside: mapped(outside.0),
            inside: mapped(inside.0),
            outside_port: outside.1,
            inside_port: inside.1,
        }
    }

    /// The key of a packet that passes in `direction`; `None` without ports.
    pub(crate) fn of(packet: &Ip<'_>, direction: Direction) -> Option<Key> {
        let (source_port, destination_port) = packet.ports()?;
        let (source, destination) = (mapped(packet.source()), mapped(packet.destination()));
        Some(match direction {
            Direction::In => Key {
                outside: source,
                inside: destination,
                outside_port: source_port,
                inside_port: destination_port,
            },
            Direction::Out => Key {
                outside: destination,
                inside: source,
                outside_port: destination_port,
                inside_port: source_port,
            },
        })
    }
}

/// One direction of a connection: what a window governs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId {
    /// The connection.
    pub key: Key,
    /// The way the data goes; its acknowledgements, and so its windows, go the other way.
    pub direction: Direction,
}

/// `address` as 16 bytes, IPv4 mapped into IPv6.
pub fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The address that [`mapped`] made these bytes of.
pub fn unmapped(bytes: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(bytes).to_canonical()
}
