//! One link of a trunk: its interface and its socket.
//!
//! Interfaces come and go, sockets with them: whenever there is news, each member looks whether
//! its interface is there and works, and opens or closes its socket. Where the other end is, is the
//! endpoint's to say: it is given the address, or learns it (`sheaf_trunk::Remote`).

use super::settings::{Peer, Spec};
use anyhow::{Context, ensure};
use nix::libc;
use sheaf_netio::batch::{Outbox, Sent};
use sheaf_netio::carrier::{Address, Carrier, Mac};
use sheaf_netio::monitor::Interface;
use sheaf_netio::netlink::Netlink;
use sheaf_netio::socket::unsent;
use sheaf_netio::{ip, neigh, qdisc};
use sheaf_trunk::{Fill, LinkConfig, LinkId, Remote};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};

/// Bytes of an Ethernet header, which count against the rate of most links.
const ETHERNET: u16 = 14;
/// A packet in a device's queue is taken for so many bytes, and in memory for so many.
const FULL_FRAME: u64 = 1514;
const FULL_MEMORY: u64 = 2304;
/// The largest frame that any carrier takes: what fits a UDP datagram.
const LARGEST: u32 = 65_000;

/// The address of an end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// On the same link.
    Mac(Mac),
    /// On a path.
    Udp(SocketAddr),
}

impl End {
    /// The sender of a frame; `None` of a frame that was not sent to us alone.
    pub fn of(from: &Address) -> Option<End> {
        from.mac_to_us().map(End::Mac).or_else(|| from.udp_end().map(End::Udp))
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Mac(mac) => f.write_str(&mac.map(|byte| format!("{byte:02x}")).join(":")),
            End::Udp(address) => address.fmt(f),
        }
    }
}

/// What [`Member::look`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing new.
    Same,
    /// There is a socket now.
    Opened,
    /// There is none any more.
    Closed,
}

/// One link.
pub struct Member {
    /// What was asked for.
    pub spec: Spec,
    /// Its number in the endpoint.
    pub id: LinkId,
    /// Its socket, while its interface works.
    pub carrier: Option<Carrier>,
    /// Frames that the kernel did not take.
    pub unsent: u64,
    /// The address of the other end, where it was given and is found.
    pub found: Option<End>,
    /// A new address of the other end that was learned and not logged.
    pub moved: Option<End>,
    /// The interface that the socket is bound to; 0 for none.
    index: u32,
    /// The interface has a queueing discipline; the socket once had unsent frames.
    has_discipline: bool,
    had_unsent: bool,
    /// Frames may wait in the device.
    stirred: bool,
    /// The address that the frames in the outbox go to, as we write it and as the kernel does.
    to: Option<(End, Address)>,
    outbox: Outbox,
}

impl Member {
    /// A member without a socket.
    pub fn new(spec: Spec, id: LinkId) -> Member {
        Member {
            spec,
            id,
            carrier: None,
            unsent: 0,
            found: None,
            moved: None,
            index: 0,
            has_discipline: false,
            had_unsent: false,
            stirred: false,
            to: None,
            outbox: Outbox::default(),
        }
    }

    /// Opens or closes the socket as the interfaces now are, and finds the other end where it has
    /// to be asked for.
    pub fn look(
        &mut self,
        interfaces: &BTreeMap<String, Interface>,
        netlink: &mut Netlink,
    ) -> io::Result<Change> {
        let device = self.spec.device(interfaces);
        let index = match &device {
            Some((_, interface)) if interface.running => Some(interface.index),
            Some(_) => None,
            None => self.spec.anywhere().then_some(0),
        };
        let change = match (index, self.carrier.is_some()) {
            (None, false) => return Ok(Change::Same),
            (None, true) => {
                self.carrier = None;
                return Ok(Change::Closed);
            }
            (Some(index), true) if index == self.index => Change::Same,
            (Some(index), _) => {
                self.carrier = None;
                self.carrier = Some(self.spec.open(device.map(|(name, _)| name), index)?);
                self.index = index;
                self.to = None;
                (self.had_unsent, self.stirred) = (false, false);
                let rules = self.spec.queue().is_some();
                self.has_discipline = rules && qdisc::waiting(netlink, index)?.is_some();
                Change::Opened
            }
        };
        match &self.spec {
            Spec::Ethernet { peer: Peer::Mac(mac), .. } => self.found = Some(End::Mac(*mac)),
            Spec::Ethernet { peer: Peer::Address(address), dev, .. } => {
                let (address, known) = (*address, neigh::dump(netlink, self.index)?);
                match known.into_iter().find(|neighbour| neighbour.address == address) {
                    Some(neighbour) => self.found = Some(End::Mac(neighbour.mac)),
                    // Whoever has no way there finds out later.
                    None => drop(ask_for(address, dev, self.index)),
                }
            }
            Spec::Path { remote: Some(remote), .. } => {
                self.found = Some(End::Udp(scoped(*remote, self.index)));
            }
            Spec::Path { remote: None, .. } => {}
        }
        Ok(change)
    }

    /// Where the other end is, as far as it was given and found. On a path it may move from there.
    pub fn remote(&self) -> Option<Remote<End>> {
        let found = self.found?;
        Some(match self.spec {
            Spec::Ethernet { .. } => Remote::Fixed(Some(found)),
            Spec::Path { .. } => Remote::roaming(found),
        })
    }

    /// How full the interface's queue is; `None` where it is not to rule, or does not tell.
    ///
    /// A queueing discipline is asked; what waits in the device itself shows as unsent frames of
    /// our socket. Radios have no discipline on Linux (mac80211 queues by itself), a veth or a TAP
    /// counts a frame as sent when it gets it: such a device is found by never having any.
    pub fn fill(&mut self, netlink: &mut Netlink) -> Option<Fill> {
        let limit = u64::from(self.spec.queue()?) * FULL_FRAME;
        let unsent = unsent(self.carrier.as_ref()?).ok()?;
        self.had_unsent |= unsent > 0;
        let mut waiting = unsent * FULL_FRAME / FULL_MEMORY;
        if self.has_discipline {
            let packets = qdisc::waiting(netlink, self.index).ok().flatten()?;
            waiting = waiting.max(u64::from(packets) * FULL_FRAME);
        }
        self.stirred = waiting > 0;
        (self.has_discipline || self.had_unsent).then_some(Fill { waiting, limit })
    }

    /// Whether frames may wait in a device that is to be asked for them.
    pub fn is_stirred(&self) -> bool {
        self.stirred
    }

    /// Takes a frame for `end`; sends when there are many. Whether the interface is still there.
    pub fn push(&mut self, end: End, frame: &mut Vec<u8>) -> bool {
        let mut there = true;
        if self.to.is_none_or(|(before, _)| before != end) {
            there = self.flush();
            let address = match end {
                End::Mac(mac) => Address::ethernet(mac, self.index),
                End::Udp(address) => Address::udp(address),
            };
            self.to = Some((end, address));
        }
        let full = self.outbox.push(frame);
        there && (!full || self.flush())
    }

    /// Sends what waits. Whether the interface is still there.
    pub fn flush(&mut self) -> bool {
        if self.outbox.is_empty() {
            return true;
        }
        let (Some(carrier), Some((_, to))) = (&mut self.carrier, &self.to) else {
            self.outbox.clear();
            return true;
        };
        let Sent { refused, gone } = self.outbox.send(carrier, to);
        self.unsent += refused;
        if self.spec.queue().is_some() {
            self.stirred = true;
            // It is soon sent: the moment to see whether the device tells at all.
            self.had_unsent = self.had_unsent || unsent(carrier).is_ok_and(|bytes| bytes > 0);
        }
        if gone {
            self.carrier = None;
        }
        !gone
    }
}

impl Spec {
    /// Packets that the interface's queue holds, where that is to rule.
    pub fn queue(&self) -> Option<u32> {
        match self {
            Spec::Ethernet { queue, .. } => *queue,
            Spec::Path { .. } => None,
        }
    }

    /// Where the other end is as far as this says; what was given has to be found first.
    pub fn remote(&self) -> Remote<End> {
        match self {
            Spec::Path { remote: None, .. } => Remote::Learned(None),
            _ => Remote::Fixed(None),
        }
    }

    /// Bytes that the carrier adds to each frame. `seal`: bytes that sealing adds.
    pub fn link(&self, seal: u16) -> LinkConfig {
        LinkConfig { overhead: ETHERNET + self.headers() + seal }
    }

    /// The largest frame on an interface of this MTU. `seal`: bytes that sealing adds.
    pub fn largest_frame(&self, mtu: u32, seal: u16) -> u16 {
        mtu.saturating_sub((self.headers() + seal).into()).min(LARGEST) as u16
    }

    /// Bytes of IP and UDP headers.
    fn headers(&self) -> u16 {
        match self {
            Spec::Ethernet { .. } => 0,
            Spec::Path { local, .. } if local.is_ipv4() => 28,
            Spec::Path { .. } => 48,
        }
    }

    /// The interface that it uses now, if that exists.
    pub fn device<'a>(
        &self,
        interfaces: &'a BTreeMap<String, Interface>,
    ) -> Option<(&'a str, &'a Interface)> {
        let found = match self {
            Spec::Ethernet { dev, .. } | Spec::Path { dev: Some(dev), .. } => {
                interfaces.get_key_value(dev)
            }
            Spec::Path { local, .. } => {
                interfaces.iter().find(|(_, one)| one.addresses.contains(&local.ip()))
            }
        };
        found.map(|(name, interface)| (name.as_str(), interface))
    }

    /// Whether it is bound to no interface.
    fn anywhere(&self) -> bool {
        matches!(self, Spec::Path { local, dev: None, .. } if local.ip().is_unspecified())
    }

    /// Whether what was asked for can be, interfaces that are down apart.
    pub fn check(&self, interfaces: &BTreeMap<String, Interface>) -> anyhow::Result<()> {
        match self {
            Spec::Ethernet { dev, .. } => {
                ip::index(dev)?;
                ip::mac(dev).with_context(|| {
                    format!("{dev} carries no frames; name another interface, or use path")
                })?;
            }
            Spec::Path { dev: Some(dev), .. } => {
                ip::index(dev)?;
            }
            Spec::Path { local, .. } => {
                let ours = self.anywhere() || self.device(interfaces).is_some();
                let address = local.ip();
                ensure!(ours, "no interface has {address}; give an address of ours to path");
            }
        }
        Ok(())
    }

    fn open(&self, dev: Option<&str>, index: u32) -> io::Result<Carrier> {
        match self {
            Spec::Ethernet { .. } => Carrier::ethernet(index),
            Spec::Path { local, .. } => Carrier::udp(scoped(*local, index), dev),
        }
    }

    /// Adds what helps to an error in opening.
    pub fn explain<T>(&self, result: io::Result<T>) -> anyhow::Result<T> {
        let remedy = match result.as_ref().err().and_then(io::Error::raw_os_error) {
            Some(libc::EADDRINUSE) => "; give it another port",
            Some(libc::EADDRNOTAVAIL) => "; give an address that the interface has",
            Some(libc::EPERM | libc::EACCES) => "; run as root",
            _ => "",
        };
        result.with_context(|| format!("cannot open {self}{remedy}"))
    }
}

/// A link-local address needs the interface that it is on.
fn scoped(address: SocketAddr, index: u32) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0 => {
            SocketAddrV6::new(*v6.ip(), v6.port(), 0, index).into()
        }
        other => other,
    }
}

/// Makes the kernel look for the link address of a neighbour.
fn ask_for(address: IpAddr, dev: &str, index: u32) -> io::Result<()> {
    let any: SocketAddr = match address {
        IpAddr::V4(_) => ([0; 4], 0).into(),
        IpAddr::V6(_) => ([0; 16], 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    let dev = std::ffi::OsString::from(dev);
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::BindToDevice, &dev)?;
    // Port 9 is discard (RFC 863).
    socket.send_to(&[], scoped((address, 9).into(), index)).map(drop)
}
