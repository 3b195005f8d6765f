//! One link of a trunk: its interface, its socket, and where the other end is.
//!
//! Interfaces come and go, sockets with them: whenever there is news, each member looks whether
//! its interface is there and works, and opens or closes its socket.
//!
//! *Where the other end is.* A path without REMOTE takes the address that a hello or report came
//! from which the endpoint accepted: they carry a session of 64 bits that only the other end
//! knows. So the other end may sit behind a NAT that changes its mapping. A hello that it does not
//! accept, as it names no session of ours, is answered to where it came from, once, and moves
//! nothing: this is how an end that started anew learns our session.

use super::arguments::{Peer, Spec};
use anyhow::{Context, ensure};
use nix::libc;
use sheaf_netio::batch::{Outbox, Sent};
use sheaf_netio::carrier::{Address, Carrier, Mac};
use sheaf_netio::monitor::Interface;
use sheaf_netio::netlink::Netlink;
use sheaf_netio::socket::unsent;
use sheaf_netio::{ip, neigh, qdisc};
use sheaf_trunk::{Fill, LinkConfig, LinkId};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};

/// Bytes of an Ethernet header, which count against the rate of most links.
const ETHERNET: u16 = 14;
/// A packet in a device's queue is taken for so many bytes, and in memory for so many.
const FULL_FRAME: u64 = 1514;
const FULL_MEMORY: u64 = 2304;
/// The largest frame that any carrier takes: what fits a UDP datagram.
const LARGEST: u32 = 65_000;

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Mac(Mac),
    Udp(SocketAddr),
}

/// Where a frame came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The other end.
    Peer,
    /// Perhaps the other end at a new address.
    Candidate(SocketAddr),
    /// Somebody else.
    Stranger,
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

/// What happened below the endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames from somebody else.
    pub strangers: u64,
    /// Frames that the kernel did not take.
    pub unsent: u64,
    /// Times that the other end was found at a new address.
    pub moves: u64,
}

/// One link.
pub struct Member {
    /// What was asked for.
    pub spec: Spec,
    /// Its number in the endpoint.
    pub id: LinkId,
    /// Its socket, while its interface works.
    pub carrier: Option<Carrier>,
    /// What happened.
    pub counters: Counters,
    /// The interface that the socket is bound to; 0 for none.
    index: u32,
    /// The interface has a queueing discipline; the socket once had unsent frames.
    has_discipline: bool,
    had_unsent: bool,
    /// Frames may wait in the device.
    stirred: bool,
    peer: Option<End>,
    to: Option<Address>,
    /// Who said hello and is to be answered.
    guest: Option<SocketAddr>,
    outbox: Outbox,
}

impl Member {
    /// A member without a socket.
    pub fn new(spec: Spec, id: LinkId) -> Member {
        Member {
            spec,
            id,
            carrier: None,
            counters: Counters::default(),
            index: 0,
            has_discipline: false,
            had_unsent: false,
            stirred: false,
            peer: None,
            to: None,
            guest: None,
            outbox: Outbox::default(),
        }
    }

    /// Where the other end is, for people.
    pub fn peer(&self) -> Option<String> {
        Some(match self.peer? {
            End::Mac(mac) => mac.map(|byte| format!("{byte:02x}")).join(":"),
            End::Udp(address) => address.to_string(),
        })
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
                (self.had_unsent, self.stirred) = (false, false);
                let rules = self.spec.queue().is_some();
                self.has_discipline = rules && qdisc::waiting(netlink, index)?.is_some();
                Change::Opened
            }
        };
        match &self.spec {
            Spec::Ethernet { peer: Peer::Mac(mac), .. } => self.turn_to(End::Mac(*mac)),
            Spec::Ethernet { peer: Peer::Address(address), dev, .. } => {
                let (address, known) = (*address, neigh::dump(netlink, self.index)?);
                match known.into_iter().find(|neighbour| neighbour.address == address) {
                    Some(neighbour) => self.turn_to(End::Mac(neighbour.mac)),
                    // Whoever has no way there finds out later.
                    None => drop(ask_for(address, dev, self.index)),
                }
            }
            Spec::Path { remote: Some(remote), .. } => {
                self.turn_to(End::Udp(scoped(*remote, self.index)));
            }
            Spec::Path { remote: None, .. } => {}
        }
        Ok(change)
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

    /// Where a frame came from.
    pub fn origin(&self, from: &Address) -> Origin {
        let learns = matches!(self.spec, Spec::Path { remote: None, .. });
        match (self.peer, from.udp_end()) {
            (Some(End::Mac(mac)), _) if from.mac_to_us() == Some(mac) => Origin::Peer,
            (Some(End::Udp(peer)), Some(end)) if end == peer => Origin::Peer,
            (_, Some(end)) if learns => Origin::Candidate(end),
            _ => Origin::Stranger,
        }
    }

    /// The other end is at `end` from now on.
    pub fn move_to(&mut self, end: SocketAddr) {
        self.counters.moves += 1;
        self.guest = None;
        self.turn_to(End::Udp(end));
    }

    /// `end` is to get the next hello.
    pub fn invite(&mut self, end: SocketAddr) {
        self.guest = Some(end);
    }

    /// Whether the next hello goes elsewhere than to the other end.
    pub fn has_guest(&self) -> bool {
        self.guest.is_some()
    }

    /// Sends a hello to whom it answers.
    pub fn answer(&mut self, frame: &mut Vec<u8>) {
        let (Some(guest), Some(carrier)) = (self.guest.take(), &mut self.carrier) else { return };
        let mut outbox = Outbox::default();
        outbox.push(frame);
        self.counters.unsent += outbox.send(carrier, &Address::udp(guest)).refused;
    }

    /// Takes a frame to send; sends when there are many. Whether the interface is still there.
    pub fn push(&mut self, frame: &mut Vec<u8>) -> bool {
        !self.outbox.push(frame) || self.flush()
    }

    /// Sends what waits. Whether the interface is still there.
    pub fn flush(&mut self) -> bool {
        if self.outbox.is_empty() {
            return true;
        }
        let (Some(carrier), Some(to)) = (&mut self.carrier, &self.to) else {
            self.outbox.clear();
            return true;
        };
        let Sent { refused, gone } = self.outbox.send(carrier, to);
        self.counters.unsent += refused;
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

    fn turn_to(&mut self, end: End) {
        self.peer = Some(end);
        self.to = Some(match end {
            End::Mac(mac) => Address::ethernet(mac, self.index),
            End::Udp(address) => Address::udp(address),
        });
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

    /// What the carrier adds to each frame, in bytes.
    pub fn link(&self) -> LinkConfig {
        LinkConfig { overhead: ETHERNET + self.headers() }
    }

    /// The largest frame on an interface of this MTU.
    pub fn largest_frame(&self, mtu: u32) -> u16 {
        mtu.saturating_sub(self.headers().into()).min(LARGEST) as u16
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
