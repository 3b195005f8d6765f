//! One link of a trunk: its interface and its socket.
//!
//! Interfaces come and go, and sockets with them: after each change of the interfaces every member
//! checks that its own exists and works, and opens or closes its socket. The endpoint decides on
//! the address of the other end: it is given the address, or learns it (`sheaf_trunk::Remote`).

use super::lookup::{Lookup, News};
use super::settings::{Far, Peer, Spec};
use anyhow::{Context, ensure};
use nix::libc;
use sheaf_netio::batch::{Outbox, Sent};
use sheaf_netio::carrier::{Address, Carrier, Mac};
use sheaf_netio::monitor::Interface;
use sheaf_netio::netlink::Netlink;
use sheaf_netio::socket::unsent;
use sheaf_netio::{ip, neigh, qdisc};
use sheaf_stage::Instant;
use sheaf_trunk::quota::Meter;
use sheaf_trunk::{Fill, LinkId, Remote};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};

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
/// UDP port whose packets nobody reads (discard, RFC 863).
const DISCARD: u16 = 9;

/// The address of an end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// On the same link.
    Mac(Mac),
    /// On a path.
    Udp(SocketAddr),
}

impl End {
    /// The sender of a frame; `None` for a frame that was not sent to this host alone.
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

/// Result of [`Member::check_interface`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The socket is as before.
    Same,
    /// A socket was opened.
    Opened,
    /// The socket was closed.
    Closed,
}

/// One link.
pub struct Member {
    /// The link as the command line describes it.
    pub spec: Spec,
    /// Its number in the endpoint.
    pub id: LinkId,
    /// Its socket, while its interface works.
    pub carrier: Option<Carrier>,
    /// Time at which nothing was left in the socket: what is there now came later.
    pub emptied: Instant,
    /// Frames that the kernel did not take.
    pub unsent: u64,
    /// The address of the other end, where it was given, and the neighbour table has it.
    pub found: Option<End>,
    /// The search for it, where a name was given.
    lookup: Option<Lookup>,
    /// A new address of the other end that was learned and is not in the log yet.
    pub moved: Option<End>,
    /// Counter of what it carries, where it has a quota.
    pub meter: Option<Meter>,
    /// Index of the interface that the socket is bound to; 0 where it is not bound.
    index: u32,
    /// Whether the interface has a queueing discipline.
    has_discipline: bool,
    /// Whether the socket ever had unsent frames.
    had_unsent: bool,
    /// Whether frames may wait in the device.
    may_wait: bool,
    /// The address to which the frames in the outbox go, as an end and as the kernel writes it.
    to: Option<(End, Address)>,
    outbox: Outbox,
}

impl Member {
    /// A member without a socket.
    pub fn new(spec: Spec, id: LinkId, meter: Option<Meter>) -> Member {
        let lookup = match &spec {
            Spec::Path { local, remote: Some(Far::Name(name)), .. } => {
                Some(Lookup::new(name.clone(), local.is_ipv4()))
            }
            _ => None,
        };
        Member {
            spec,
            id,
            carrier: None,
            emptied: Instant::ZERO,
            unsent: 0,
            found: None,
            lookup,
            moved: None,
            meter,
            index: 0,
            has_discipline: false,
            had_unsent: false,
            may_wait: false,
            to: None,
            outbox: Outbox::default(),
        }
    }

    /// Opens or closes the socket to match the interfaces, and looks up the link address of the
    /// other end where an IP address was given.
    pub fn check_interface(
        &mut self,
        interfaces: &BTreeMap<String, Interface>,
        netlink: &mut Netlink,
    ) -> io::Result<Change> {
        let device = self.spec.device(interfaces);
        let index = match &device {
            _ if self.is_closed() => None,
            Some((_, interface)) if interface.running => Some(interface.index),
            Some(_) => None,
            None => self.spec.is_unbound().then_some(0),
        };
        let change = match (index, self.carrier.is_some()) {
            (None, false) => return Ok(Change::Same),
            (None, true) => {
                self.carrier = None;
                return Ok(Change::Closed);
            }
            (Some(index), true) if index == self.index => Change::Same,
            (Some(index), _) => {
                // The old socket has to go first: both would have the same address.
                self.carrier = None;
                self.carrier = Some(self.spec.open(device.map(|(name, _)| name), index)?);
                self.index = index;
                self.to = None;
                (self.had_unsent, self.may_wait) = (false, false);
                let has_queue = self.spec.queue().is_some();
                self.has_discipline = has_queue && qdisc::waiting(netlink, index)?.is_some();
                Change::Opened
            }
        };
        match &self.spec {
            Spec::Ethernet { peer: Peer::Mac(mac), .. } => self.found = Some(End::Mac(*mac)),
            Spec::Ethernet { peer: Peer::Address(address), dev, .. } => {
                let (address, known) = (*address, neigh::dump(netlink, self.index)?);
                match known.into_iter().find(|neighbour| neighbour.address == address) {
                    Some(neighbour) => self.found = Some(End::Mac(neighbour.mac)),
                    // Where that fails, the next check asks again.
                    None => drop(ask_for(address, dev, self.index)),
                }
            }
            Spec::Path { remote: Some(Far::Address(remote)), .. } => {
                self.found = Some(End::Udp(scoped(*remote, self.index)));
            }
            Spec::Path { .. } => {}
        }
        Ok(change)
    }

    /// Looks up the name of the other end, if it was given by name. Returns news for the log. Call
    /// it while the link is down.
    pub fn look_up(&mut self, now: Instant) -> Option<News> {
        let news = self.lookup.as_mut()?.poll(now)?;
        if let News::Found(address) = news {
            let end = Some(End::Udp(scoped(address, self.index)));
            if std::mem::replace(&mut self.found, end) == end {
                return None;
            }
        }
        Some(news)
    }

    /// Whether it has no socket because its quota is used up.
    pub fn is_closed(&self) -> bool {
        self.meter.as_ref().is_some_and(Meter::is_closed)
    }

    /// Counts a frame of `len` bytes against the quota.
    pub fn count(&mut self, len: usize) {
        if let Some(meter) = &mut self.meter {
            meter.count(len + usize::from(self.spec.carrier_headers()));
        }
    }

    /// Whether nothing is to be looked for: it has a socket, and the address of the other end if
    /// that is known at all, or it is closed. `up`: whether the link is.
    pub fn is_complete(&self, up: bool) -> bool {
        let learns = matches!(self.spec, Spec::Path { remote: None, .. });
        let known = learns || self.found.is_some() && (up || self.lookup.is_none());
        self.is_closed() || self.carrier.is_some() && known
    }

    /// The address of the other end, where it was given and found. On a path it may move later.
    pub fn remote(&self) -> Option<Remote<End>> {
        let found = self.found?;
        Some(match self.spec {
            Spec::Ethernet { .. } => Remote::Fixed(Some(found)),
            Spec::Path { .. } => Remote::roaming(found),
        })
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

    /// Puts a frame for `end` into the outbox, and sends when that is full. Returns whether the
    /// interface is still there.
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
        if self.carrier.is_some() {
            self.count(frame.len());
        }
        let full = self.outbox.push(frame);
        there && (!full || self.flush())
    }

    /// Sends the frames in the outbox. Returns whether the interface is still there.
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
            self.may_wait = true;
            // Right after sending is the moment at which a device that reports unsent frames has
            // some.
            self.had_unsent = self.had_unsent || unsent(carrier).is_ok_and(|bytes| bytes > 0);
        }
        if gone {
            self.carrier = None;
        }
        !gone
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

    /// The address of the other end before the first check: one to learn, or one to look up.
    pub fn remote(&self) -> Remote<End> {
        match self {
            Spec::Path { remote: None, .. } => Remote::Learned(None),
            _ => Remote::Fixed(None),
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
    fn carrier_headers(&self) -> u16 {
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

    fn open(&self, dev: Option<&str>, index: u32) -> io::Result<Carrier> {
        match self {
            Spec::Ethernet { .. } => Carrier::ethernet(index),
            Spec::Path { local, .. } => Carrier::udp(scoped(*local, index), dev),
        }
    }

    /// Adds the remedy to an error in opening.
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

/// `address` with the interface, which a link-local address needs.
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
    socket.send_to(&[], scoped((address, DISCARD).into(), index)).map(drop)
}
