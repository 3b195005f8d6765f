//! One link of a trunk: the address of its other end, and frames on their way there.
//!
//! The endpoint decides on the address: it is given one that was found here, or learns it
//! (`sheaf_trunk::Remote`).

use super::lookup::{Lookup, News};
use super::settings::{Far, Peer, Spec};
use super::socket::{Socket, scoped};
use sheaf_netio::batch::{Outbox, Sent};
use sheaf_netio::carrier::{Address, Mac};
use sheaf_netio::ip;
use sheaf_netio::neigh;
use sheaf_netio::netlink::Netlink;
use sheaf_stage::Instant;
use sheaf_trunk::quota::Meter;
use sheaf_trunk::{LinkId, Remote};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// UDP port whose packets nobody reads (discard, RFC 863).
const DISCARD: u16 = 9;

/// The address of an end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// On the same link.
    Mac(Mac),
    /// On a path.
    Udp {
        /// Where it is.
        at: SocketAddr,
        /// The address of this host that it knows, where it found this host by itself.
        here: Option<IpAddr>,
    },
}

impl End {
    /// The sender of a frame; `None` for a frame that was not sent to this host alone. `learns`: it
    /// found this host by itself, and behind a NAT hears nothing from another address than that.
    pub fn of(from: &Address, learns: bool) -> Option<End> {
        let here = from.here.filter(|_| learns);
        let path = || from.udp_end().map(|at| End::Udp { at, here });
        from.mac_to_us().map(End::Mac).or_else(path)
    }

    /// On a path, where this host is the one that looks for the other end.
    fn given(at: SocketAddr) -> End {
        End::Udp { at, here: None }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Mac(mac) => f.write_str(&ip::mac_text(*mac)),
            End::Udp { at, .. } => at.fmt(f),
        }
    }
}

/// One link.
pub struct Member {
    /// The link as the command line describes it.
    pub spec: Spec,
    /// The same words, with a number where several links have the same.
    pub name: String,
    /// Its number in the endpoint.
    pub id: LinkId,
    /// Place of its socket among the trunk's.
    pub socket: usize,
    /// Frames that the kernel did not take.
    pub unsent: u64,
    /// The address of the other end, where it was given, and the neighbour table has it.
    found: Option<End>,
    /// The search for it, where a name was given.
    lookup: Option<Lookup>,
    /// A new address of the other end that was learned and is not in the log yet.
    pub moved: Option<End>,
    /// Counter of what it carries, where it has a quota.
    pub meter: Option<Meter>,
    /// The address to which the frames in the outbox go, as an end and as the kernel writes it.
    to: Option<(End, Address)>,
    outbox: Outbox,
}

impl Member {
    /// A member that has sent nothing.
    pub fn new(
        spec: Spec,
        name: String,
        id: LinkId,
        socket: usize,
        meter: Option<Meter>,
    ) -> Member {
        let lookup = match &spec {
            Spec::Path { local, remote: Some(Far::Name(name)), .. } => {
                Some(Lookup::new(name.clone(), local.is_ipv4()))
            }
            _ => None,
        };
        Member {
            spec,
            name,
            id,
            socket,
            unsent: 0,
            found: None,
            lookup,
            moved: None,
            meter,
            to: None,
            outbox: Outbox::default(),
        }
    }

    /// Finds the address of the other end on the interface with this index, where one was given:
    /// the link address is looked up where that was an IP address.
    pub fn find(&mut self, index: u32, netlink: &mut Netlink) -> io::Result<()> {
        match &self.spec {
            Spec::Ethernet { peer: Peer::Mac(mac), .. } => self.found = Some(End::Mac(*mac)),
            Spec::Ethernet { peer: Peer::Address(address), dev, .. } => {
                let (address, known) = (*address, neigh::dump(netlink, index)?);
                match known.into_iter().find(|neighbour| neighbour.address == address) {
                    Some(neighbour) => self.found = Some(End::Mac(neighbour.mac)),
                    // Where that fails, the next check asks again.
                    None => drop(ask_for(address, dev, index)),
                }
            }
            Spec::Path { remote: Some(Far::Address(remote)), .. } => {
                self.found = Some(End::given(scoped(*remote, index)));
            }
            Spec::Path { .. } => {}
        }
        Ok(())
    }

    /// Looks up the name of the other end, if it was given by name, for the interface with this
    /// index. Returns news for the log. Call it while the link is down.
    pub fn look_up(&mut self, index: u32, now: Instant) -> Option<News> {
        let news = self.lookup.as_mut()?.poll(now)?;
        if let News::Found(address) = news {
            let end = Some(End::given(scoped(address, index)));
            if std::mem::replace(&mut self.found, end) == end {
                return None;
            }
        }
        Some(news)
    }

    /// Counts a frame of `len` bytes against the quota.
    pub fn count(&mut self, len: usize) {
        if let Some(meter) = &mut self.meter {
            meter.count(len + usize::from(self.spec.carrier_headers()));
        }
    }

    /// Whether the address of the other end need not be looked for: it is known, or learned. `up`:
    /// whether the link is.
    pub fn is_complete(&self, up: bool) -> bool {
        self.spec.learns() || self.found.is_some() && (up || self.lookup.is_none())
    }

    /// The address of the other end, where it was given and found. On a path it may move later.
    pub fn remote(&self) -> Option<Remote<End>> {
        let found = self.found?;
        Some(match self.spec {
            Spec::Ethernet { .. } => Remote::Fixed(Some(found)),
            Spec::Path { .. } => Remote::roaming(found),
        })
    }

    /// Forgets how the kernel writes the address of the other end: its socket was opened anew.
    pub fn forget_address(&mut self) {
        self.to = None;
    }

    /// Puts a frame for `end` into the outbox, and sends by `socket`, its own, when that is full.
    /// Returns whether the interface is still there.
    pub fn push(&mut self, end: End, frame: &mut Vec<u8>, socket: &mut Socket) -> bool {
        let mut there = true;
        if self.to.is_none_or(|(before, _)| before != end) {
            there = self.flush(socket);
            let address = match end {
                End::Mac(mac) => Address::ethernet(mac, socket.index()),
                End::Udp { at, here } => {
                    let mut address = Address::udp(at);
                    address.here = here;
                    address
                }
            };
            self.to = Some((end, address));
        }
        if socket.carrier.is_some() {
            self.count(frame.len());
        }
        let full = self.outbox.push(frame);
        there && (!full || self.flush(socket))
    }

    /// Sends the frames in the outbox by `socket`, its own. Returns whether the interface is still
    /// there.
    pub fn flush(&mut self, socket: &mut Socket) -> bool {
        if self.outbox.is_empty() {
            return true;
        }
        let Some((_, to)) = &self.to else {
            self.outbox.clear();
            return true;
        };
        let Sent { refused, gone } = socket.send(&mut self.outbox, to);
        self.unsent += refused;
        !gone
    }
}

impl Spec {
    /// The address of the other end before the first check: one to learn, or one to look up.
    pub fn remote(&self) -> Remote<End> {
        match self.learns() {
            true => Remote::Learned(None),
            false => Remote::Fixed(None),
        }
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
