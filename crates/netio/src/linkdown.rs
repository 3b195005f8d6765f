//! Routes over an interface that has no carrier: the kernel takes them unless it is told to pass
//! them over (`ignore_routes_with_linkdown`).

use crate::attribute::put;
use crate::netlink::{Link, Netlink, Object};
use nix::libc;
use std::{fs, io};

/// Attributes of linux/if_link.h and linux/ip.h; the libc crate has no names for the last two.
const IFLA_AF_SPEC: u16 = libc::IFLA_AF_SPEC;
const IFLA_INET_CONF: u16 = 1;
const IPV4_DEVCONF_IGNORE_ROUTES_WITH_LINKDOWN: u16 = 29;

/// Passes over the IPv4 routes on interface `index` while it has no carrier. By netlink, because
/// services of systemd commonly cannot write to /proc/sys. Needs CAP_NET_ADMIN.
pub fn pass_over_ipv4(netlink: &mut Netlink, index: u32) -> io::Result<()> {
    // Each attribute lies in the one before.
    let kinds = [
        IFLA_AF_SPEC,
        libc::AF_INET as u16,
        IFLA_INET_CONF,
        IPV4_DEVCONF_IGNORE_ROUTES_WITH_LINKDOWN,
    ];
    let on = 1_u32.to_ne_bytes().to_vec();
    let attributes = kinds.into_iter().rev().fold(on, |inner, kind| {
        let mut outer = Vec::new();
        put(&mut outer, kind, &inner);
        outer
    });
    netlink.request(Object::SetLink(Link { index, attributes }), 0)
}

/// The same for IPv6, for which there is /proc/sys alone.
pub fn pass_over_ipv6(name: &str) -> io::Result<()> {
    fs::write(format!("/proc/sys/net/ipv6/conf/{name}/ignore_routes_with_linkdown"), "1")
}
