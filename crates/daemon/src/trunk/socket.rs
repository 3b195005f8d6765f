//! The socket of one link of a trunk, or of several links with the same local end.
//!
//! Interfaces come and go, and sockets with them: after each change of the interfaces every socket
//! checks that its own exists and works, and is opened or closed.

use super::settings::Spec;
use super::share::Share;
use anyhow::{Context, ensure};
use nix::libc;
use sheaf_netio::batch::{Outbox, Sent};
use sheaf_netio::carrier::{Address, Carrier};
use sheaf_netio::monitor::Interface;
use sheaf_netio::netlink::Netlink;
use sheaf_netio::socket::unsent;
use sheaf_netio::{ip, qdisc};
use sheaf_stage::Instant;
use sheaf_trunk::{Fill, LinkId};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, SocketAddrV6};

/// Bytes of an Ethernet header, which count against the rate of most links.
const ETHERNET: u16 = 14;
/// Bytes of the headers of IPv4 and UDP.
const IPV4_UDP: u16 = 20 + 8;
/// Bytes of the headers of IPv6 and UDP.
const IPV6_UDP: u16 = 40 + 8;
/// Bytes that a packet in a device's queue is taken for: the kernel counts packets there.
const FULL_FRAME: u64 = 1514;
/// Bytes of memory that the kernel charges to a socket for a frame of [`FULL_FRAME`] bytes.
const FULL_MEMORY: u64 = 2304;
/// The largest frame that any carrier takes, a little below the largest UDP datagram.
const LARGEST: u32 = 65_000;

/// Result of [`Socket::check_interface`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The socket is as before.
    Same,
    /// The socket was opened.
    Opened,
    /// The socket was closed.
    Closed,
}

/// A socket, open while its interface works.
pub struct Socket {
    /// The first link that uses it.
    pub spec: Spec,
    /// Number of that link in the endpoint, which is handed all frames of the socket as its.
    pub id: LinkId,
    /// Whether all its links learn where their other ends are.
    pub learns: bool,
    /// Lets other trunks have the port, too.
    pub share: Share,
    /// The socket itself.
    pub carrier: Option<Carrier>,
    /// Whether it stays closed, because the quota of its only link is used up.
    pub is_closed: bool,
    /// Time at which nothing was left in it: what is there now came later.
    pub emptied: Instant,
    /// Index of the interface that the socket is bound to; 0 where it is not bound.
    index: u32,
    /// Whether the interface has a queueing discipline.
    has_discipline: bool,
    /// Whether the socket ever had unsent frames.
    had_unsent: bool,
    /// Whether frames may wait in the device.
    may_wait: bool,
}

impl Socket {
    /// A closed socket for a link, the first that uses it.
    pub fn new(spec: Spec, id: LinkId) -> Socket {
        Socket {
            learns: spec.learns(),
            spec,
            id,
            share: Share::default(),
            carrier: None,
            is_closed: false,
            emptied: Instant::ZERO,
            index: 0,
            has_discipline: false,
            had_unsent: false,
            may_wait: false,
        }
    }

    /// Index of the interface that the socket is, or was last, bound to; 0 where it is not bound.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Whether nothing keeps it from frames: it is open, or not to be.
    pub fn is_complete(&self) -> bool {
        self.is_closed || self.carrier.is_some()
    }

    /// Opens or closes the socket to match the interfaces and the quota.
    pub fn check_interface(
        &mut self,
        interfaces: &BTreeMap<String, Interface>,
        netlink: &mut Netlink,
    ) -> io::Result<Change> {
        let device = self.spec.device(interfaces);
        let index = match &device {
            _ if self.is_closed => None,
            Some((_, interface)) if interface.running => Some(interface.index),
            Some(_) => None,
            None => self.spec.is_unbound().then_some(0),
        };
        match (index, self.carrier.is_some()) {
            (None, false) => Ok(Change::Same),
            (None, true) => {
                self.carrier = None;
                Ok(Change::Closed)
            }
            (Some(index), true) if index == self.index => Ok(Change::Same),
            (Some(index), _) => {
                // The old socket has to go first: both would have the same address.
                self.carrier = None;
                let dev = device.map(|(name, _)| name);
                self.carrier = Some(self.spec.open(dev, index, &mut self.share)?);
                self.index = index;
                (self.had_unsent, self.may_wait) = (false, false);
                let has_queue = self.spec.queue().is_some();
                self.has_discipline = has_queue && qdisc::waiting(netlink, index)?.is_some();
                Ok(Change::Opened)
            }
        }
    }

    /// Fill of the interface's queue; `None` without the word `queue`, or where the device does not
    /// report it.
    ///
    /// A queueing discipline reports its packets. Frames in the device itself show as unsent frames
    /// of the socket. Radios have no discipline on Linux, because mac80211 queues by itself. A veth
    /// or a TAP counts a frame as sent when it gets the frame, so that its socket never has unsent
    /// frames.
    pub fn fill(&mut self, netlink: &mut Netlink) -> Option<Fill> {
        let limit = u64::from(self.spec.queue()?) * FULL_FRAME;
        let unsent = unsent(self.carrier.as_ref()?).ok()?;
        self.had_unsent |= unsent > 0;
        let mut waiting = unsent * FULL_FRAME / FULL_MEMORY;
        if self.has_discipline {
            let packets = qdisc::waiting(netlink, self.index).ok().flatten()?;
            waiting = waiting.max(u64::from(packets) * FULL_FRAME);
        }
        self.may_wait = waiting > 0;
        (self.has_discipline || self.had_unsent).then_some(Fill { waiting, limit })
    }

    /// Whether frames may wait in a device whose queue is read.
    pub fn may_wait(&self) -> bool {
        self.may_wait
    }

    /// Sends the frames of an outbox to `to`. While the socket is closed they are dropped.
    pub fn send(&mut self, outbox: &mut Outbox, to: &Address) -> Sent {
        let Some(carrier) = &mut self.carrier else {
            outbox.clear();
            return Sent::default();
        };
        let sent = outbox.send(carrier, to);
        if self.spec.queue().is_some() {
            self.may_wait = true;
            // Right after sending is the moment at which a device that reports unsent frames has
            // some.
            self.had_unsent = self.had_unsent || unsent(carrier).is_ok_and(|bytes| bytes > 0);
        }
        if sent.gone {
            self.carrier = None;
        }
        sent
    }
}

impl Spec {
    /// Packets that the interface's queue holds, where its fill decides when frames leave.
    pub fn queue(&self) -> Option<u32> {
        match self {
            Spec::Ethernet { queue, .. } => *queue,
            Spec::Path { .. } => None,
        }
    }

    /// Bytes that the carrier adds to each frame; sealing adds `seal`.
    pub fn overhead(&self, seal: u16) -> u16 {
        ETHERNET + self.headers() + seal
    }

    /// The largest frame on an interface of this MTU; sealing adds `seal` bytes.
    pub fn largest_frame(&self, mtu: u32, seal: u16) -> u16 {
        mtu.saturating_sub((self.headers() + seal).into()).min(LARGEST) as u16
    }

    /// Bytes that a tariff counts beside a frame: IP and UDP headers, or the Ethernet header.
    pub fn carrier_headers(&self) -> u16 {
        match self {
            Spec::Ethernet { .. } => ETHERNET,
            Spec::Path { .. } => self.headers(),
        }
    }

    /// Bytes of IP and UDP headers.
    fn headers(&self) -> u16 {
        match self {
            Spec::Ethernet { .. } => 0,
            Spec::Path { local, .. } if local.is_ipv4() => IPV4_UDP,
            Spec::Path { .. } => IPV6_UDP,
        }
    }

    /// The interface that the link uses now, if that exists.
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

    /// Whether the link is bound to no interface.
    fn is_unbound(&self) -> bool {
        matches!(self, Spec::Path { local, dev: None, .. } if local.ip().is_unspecified())
    }

    /// Whether the link learns where its other end is.
    pub fn learns(&self) -> bool {
        matches!(self, Spec::Path { remote: None, .. })
    }

    /// Whether both links have the same local end, and so one socket.
    pub fn shares_socket(&self, other: &Spec) -> bool {
        let end = |spec: &Spec| match spec {
            Spec::Ethernet { .. } => None,
            Spec::Path { local, dev, .. } => Some((*local, dev.clone())),
        };
        end(self).is_some() && end(self) == end(other)
    }

    /// Whether its interface, or the one that has its address, exists.
    pub fn is_there(&self, interfaces: &BTreeMap<String, Interface>) -> bool {
        self.is_unbound() || self.device(interfaces).is_some()
    }

    /// Checks that the link can be opened, once its interface is up.
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
                let address = local.ip();
                ensure!(
                    self.is_there(interfaces),
                    "no interface has {address}; give an address of ours to path"
                );
            }
        }
        Ok(())
    }

    fn open(&self, dev: Option<&str>, index: u32, share: &mut Share) -> io::Result<Carrier> {
        match self {
            Spec::Ethernet { .. } => Carrier::ethernet(index),
            Spec::Path { local, .. } => share.open(scoped(*local, index), dev),
        }
    }

    /// Adds the remedy to an error in opening. `share`: what the socket shares its port by.
    pub fn explain<T>(&self, result: io::Result<T>, share: &Share) -> anyhow::Result<T> {
        let in_use = format!("{}; give it another port", share.shortcoming());
        let remedy = match result.as_ref().err().and_then(io::Error::raw_os_error) {
            Some(libc::EADDRINUSE) => &in_use,
            Some(libc::EADDRNOTAVAIL) => "; give an address that the interface has",
            Some(libc::EPERM | libc::EACCES) => "; run as root",
            _ => "",
        };
        result.with_context(|| format!("cannot open {self}{remedy}"))
    }
}

/// `address` with the interface, which a link-local address needs.
pub fn scoped(address: SocketAddr, index: u32) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0 => {
            SocketAddrV6::new(*v6.ip(), v6.port(), 0, index).into()
        }
        other => other,
    }
}
