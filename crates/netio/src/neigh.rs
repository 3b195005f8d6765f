//! The kernel's neighbour table: which link address an IP neighbour has. Read, never owned.

use crate::netlink::{Netlink, Object};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use std::io;
use std::net::IpAddr;

/// A neighbour that has a link address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its IP address.
    pub address: IpAddr,
    /// Its link address.
    pub mac: [u8; 6],
}

/// The neighbours on interface `ifindex`, those that failed left out.
pub fn dump(netlink: &mut Netlink, ifindex: u32) -> io::Result<Vec<Neighbour>> {
    let mut neighbours = Vec::new();
    netlink.dump(Object::GetNeighbour(NeighbourMessage::default()), |object| {
        if let Object::NewNeighbour(entry) = object
            && entry.header.ifindex == ifindex
        {
            neighbours.extend(read(&entry));
        }
    })?;
    Ok(neighbours)
}

fn read(entry: &NeighbourMessage) -> Option<Neighbour> {
    use NeighbourState::{Delay, Permanent, Probe, Reachable, Stale};
    if !matches!(entry.header.state, Reachable | Stale | Delay | Probe | Permanent) {
        return None;
    }
    let address = entry.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => {
            Some(IpAddr::from(*address))
        }
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => {
            Some(IpAddr::from(*address))
        }
        _ => None,
    })?;
    let mac = entry.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => bytes.as_slice().try_into().ok(),
        _ => None,
    })?;
    Some(Neighbour { address, mac })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip;
    use crate::netns::Namespace;

    #[test]
    fn neighbours_of_both_families_are_found_and_those_without_an_address_left_out() {
        let namespace = Namespace::new().unwrap();
        let found = namespace.run(|| {
            ip::run("link add eth0 type veth peer name eth1")?;
            ip::run("link set eth0 up")?;
            ip::run("neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev eth0")?;
            ip::run("neigh add fe80::2 lladdr 02:00:00:00:00:02 dev eth0 nud stale")?;
            ip::run("neigh add 10.0.0.9 dev eth0 nud failed")?;
            ip::run("neigh add 10.0.0.3 lladdr 02:00:00:00:00:03 dev eth1")?;
            dump(&mut Netlink::open()?, ip::index("eth0")?)
        });
        let mut found = found.unwrap();
        found.sort_by_key(|neighbour| neighbour.address);
        let mac = [2, 0, 0, 0, 0, 2];
        let address = |text: &str| text.parse().unwrap();
        let expected = [
            Neighbour { address: address("10.0.0.2"), mac },
            Neighbour { address: address("fe80::2"), mac },
        ];
        assert_eq!(found, expected);
    }
}
