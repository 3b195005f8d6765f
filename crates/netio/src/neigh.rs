//! The kernel's neighbour table: which link address an IP neighbour has. Read, never owned.

use crate::attribute::{Attributes, put};
use crate::netlink::{Entry, Netlink, Object};
use netlink_packet_core::NLM_F_CREATE;
use nix::libc;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// States of a neighbour that has a link address, or may have it still.
const PRESENT: u16 =
    libc::NUD_REACHABLE | libc::NUD_STALE | libc::NUD_DELAY | libc::NUD_PROBE | libc::NUD_PERMANENT;

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
    netlink.dump(Object::GetNeighbour(Entry::default()), |object| {
        if let Object::NewNeighbour(entry) = object
            && entry.index == ifindex
        {
            neighbours.extend(read(&entry));
        }
    })?;
    Ok(neighbours)
}

/// Has the kernel ask for the link address of `address` on interface `ifindex`, as for a packet to
/// it. The answer is in the table a moment later.
pub fn resolve(netlink: &mut Netlink, ifindex: u32, address: IpAddr) -> io::Result<()> {
    let mut attributes = Vec::new();
    let family = match address {
        IpAddr::V4(v4) => {
            put(&mut attributes, libc::NDA_DST, &v4.octets());
            libc::AF_INET
        }
        IpAddr::V6(v6) => {
            put(&mut attributes, libc::NDA_DST, &v6.octets());
            libc::AF_INET6
        }
    };
    let (family, flags) = (family as u8, libc::NTF_USE);
    let entry = Entry { family, index: ifindex, flags, attributes, ..Entry::default() };
    netlink.request(Object::NewNeighbour(entry), NLM_F_CREATE)
}

fn read(entry: &Entry) -> Option<Neighbour> {
    if entry.state & PRESENT == 0 {
        return None;
    }
    let value = |wanted| {
        let mut all = Attributes::of(&entry.attributes);
        all.find_map(|(kind, value)| (kind == wanted).then_some(value))
    };
    let address = value(libc::NDA_DST)?;
    let address = match i32::from(entry.family) {
        libc::AF_INET => Ipv4Addr::from(<[u8; 4]>::try_from(address).ok()?).into(),
        libc::AF_INET6 => Ipv6Addr::from(<[u8; 16]>::try_from(address).ok()?).into(),
        _ => return None,
    };
    Some(Neighbour { address, mac: value(libc::NDA_LLADDR)?.try_into().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cable;
    use crate::ip;
    use crate::netns::Namespace;

    #[test]
    fn an_address_that_nobody_asked_for_is_resolved() {
        let [here, there] = cable::hosts();
        let mac = there.run(|| ip::mac("eth0")).unwrap();
        for address in ["10.0.0.2", "fd00::2"] {
            let expected = Neighbour { address: address.parse().unwrap(), mac };
            let found = here.run(|| {
                let (mut netlink, ifindex) = (Netlink::open()?, ip::index("eth0")?);
                assert!(!dump(&mut netlink, ifindex)?.contains(&expected));
                resolve(&mut netlink, ifindex, expected.address)?;
                while !dump(&mut netlink, ifindex)?.contains(&expected) {
                    std::thread::yield_now();
                }
                Ok(())
            });
            found.unwrap();
        }
    }

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
