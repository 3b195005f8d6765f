//! Questions to the kernel by netlink, its answers, and changes: the socket for all families, and
//! the messages of the routing family. Those of generic netlink are in [`crate::generic`].

use crate::traffic_control::TcMessage;
use netlink_packet_core::{
    DecodeError, Emitable, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable, Parseable,
};
use netlink_packet_route::neighbour::NeighbourMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::libc;
use std::fmt;
use std::io;
use std::marker::PhantomData;

/// The longest answer: one message of any object here, or one part of a dump.
const ANSWER: usize = 1 << 16;

/// A message about an object of the routing family, of the kinds that this crate uses.
///
/// `netlink_packet_route::RouteNetlinkMessage` has all kinds, and with them the parsers of all
/// attributes of links and routes: 300 KB, a tenth of the binary for routers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// RTM_NEWNEIGH
    NewNeighbour(NeighbourMessage),
    /// RTM_GETNEIGH
    GetNeighbour(NeighbourMessage),
    /// RTM_NEWQDISC
    NewQueueDiscipline(TcMessage),
    /// RTM_GETQDISC
    GetQueueDiscipline(TcMessage),
    /// RTM_NEWTFILTER
    NewTrafficFilter(TcMessage),
    /// RTM_DELTFILTER
    DelTrafficFilter(TcMessage),
    /// RTM_GETTFILTER
    GetTrafficFilter(TcMessage),
    /// RTM_SETLINK
    SetLink(LinkChange),
    /// Of another kind.
    Other,
}

/// A change of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkChange {
    /// The interface's number.
    pub index: u32,
    /// The attributes to change, in the form in which the kernel reads them.
    pub attributes: Vec<u8>,
}

/// Bytes of `struct ifinfomsg`, and where the interface's number is in it.
const LINK_INFO: usize = 16;
const LINK_INDEX: std::ops::Range<usize> = 4..8;

impl Emitable for LinkChange {
    fn buffer_len(&self) -> usize {
        LINK_INFO + self.attributes.len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        let (info, attributes) = buffer.split_at_mut(LINK_INFO);
        info.fill(0);
        info[LINK_INDEX].copy_from_slice(&self.index.to_ne_bytes());
        attributes.copy_from_slice(&self.attributes);
    }
}

impl Object {
    fn body(&self) -> Option<&dyn Emitable> {
        match self {
            Object::NewNeighbour(message) | Object::GetNeighbour(message) => Some(message),
            Object::NewQueueDiscipline(message)
            | Object::GetQueueDiscipline(message)
            | Object::NewTrafficFilter(message)
            | Object::DelTrafficFilter(message)
            | Object::GetTrafficFilter(message) => Some(message),
            Object::SetLink(message) => Some(message),
            Object::Other => None,
        }
    }
}

impl NetlinkSerializable for Object {
    fn message_type(&self) -> u16 {
        match self {
            Object::NewNeighbour(_) => libc::RTM_NEWNEIGH,
            Object::GetNeighbour(_) => libc::RTM_GETNEIGH,
            Object::NewQueueDiscipline(_) => libc::RTM_NEWQDISC,
            Object::GetQueueDiscipline(_) => libc::RTM_GETQDISC,
            Object::NewTrafficFilter(_) => libc::RTM_NEWTFILTER,
            Object::DelTrafficFilter(_) => libc::RTM_DELTFILTER,
            Object::GetTrafficFilter(_) => libc::RTM_GETTFILTER,
            Object::SetLink(_) => libc::RTM_SETLINK,
            Object::Other => libc::NLMSG_NOOP as u16,
        }
    }

    fn buffer_len(&self) -> usize {
        self.body().map_or(0, Emitable::buffer_len)
    }

    fn serialize(&self, buffer: &mut [u8]) {
        if let Some(body) = self.body() {
            body.emit(buffer);
        }
    }
}

/// Reads a message about traffic control.
fn traffic(payload: &[u8]) -> Result<TcMessage, DecodeError> {
    TcMessage::parse(payload)
        .ok_or_else(|| DecodeError::from("a message about traffic control is too short"))
}

impl NetlinkDeserializable for Object {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Object, DecodeError> {
        Ok(match header.message_type {
            libc::RTM_NEWNEIGH => Object::NewNeighbour(Parseable::parse(payload)?),
            libc::RTM_NEWQDISC => Object::NewQueueDiscipline(traffic(payload)?),
            libc::RTM_NEWTFILTER => Object::NewTrafficFilter(traffic(payload)?),
            _ => Object::Other,
        })
    }
}

/// A message of a family of netlink.
pub trait Message: NetlinkSerializable + NetlinkDeserializable {
    /// The family, as a protocol of the socket.
    const PROTOCOL: isize;
}

impl Message for Object {
    const PROTOCOL: isize = NETLINK_ROUTE;
}

/// A socket to the kernel, in the network namespace of the thread that opened it.
pub struct Netlink<M = Object> {
    socket: Socket,
    buffer: Vec<u8>,
    messages: PhantomData<fn(M) -> M>,
}

impl Netlink {
    /// A new one, to the routing family.
    pub fn open() -> io::Result<Netlink> {
        Netlink::to_family()
    }
}

impl<M: Message> Netlink<M> {
    /// A new one, to the family of its messages.
    pub(crate) fn to_family() -> io::Result<Netlink<M>> {
        let mut socket = Socket::new(M::PROTOCOL)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Netlink { socket, buffer: vec![0; ANSWER], messages: PhantomData })
    }

    /// Hands every object of the kind that `message` names to `each`.
    pub fn dump(&mut self, message: M, each: impl FnMut(M)) -> io::Result<()> {
        self.exchange(message, NLM_F_DUMP, each)
    }

    /// Asks for a change, with `flags` such as NLM_F_CREATE.
    pub fn request(&mut self, message: M, flags: u16) -> io::Result<()> {
        self.exchange(message, NLM_F_ACK | flags, |_| {})
    }

    /// Hands the objects that `message` asks for to `each`.
    pub fn ask(&mut self, message: M, each: impl FnMut(M)) -> io::Result<()> {
        self.exchange(message, NLM_F_ACK, each)
    }

    fn exchange(&mut self, message: M, flags: u16, mut each: impl FnMut(M)) -> io::Result<()> {
        self.send(message, flags)?;
        loop {
            let len = self.socket.recv(&mut &mut self.buffer[..], 0)?;
            if read(&self.buffer[..len], &mut each)? {
                return Ok(());
            }
        }
    }

    fn send(&mut self, message: M, flags: u16) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let len = message.buffer_len();
        message.serialize(&mut self.buffer[..len]);
        self.socket.send(&self.buffer[..len], 0).map(drop)
    }
}

/// Hands the messages of one datagram to `each`; returns whether it ends the answer.
///
/// # Errors
/// The kernel's error, or `InvalidData` where a message is damaged.
pub fn read<M: Message>(datagram: &[u8], mut each: impl FnMut(M)) -> io::Result<bool> {
    let mut rest = datagram;
    while !rest.is_empty() {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let message = NetlinkMessage::deserialize(rest).map_err(invalid)?;
        match message.payload {
            NetlinkPayload::InnerMessage(object) => each(object),
            // Without a code it is the acknowledgement of a change.
            NetlinkPayload::Error(error) if error.code.is_none() => return Ok(true),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            // A dump that failed, such as one of an interface that is gone, ends with an error.
            NetlinkPayload::Done(done) if done.code < 0 => {
                return Err(io::Error::from_raw_os_error(done.code.saturating_neg()));
            }
            NetlinkPayload::Done(_) => return Ok(true),
            _ => {}
        }
        // Messages begin at multiples of four bytes.
        let len = (message.header.length as usize).next_multiple_of(4).max(4);
        rest = rest.get(len..).unwrap_or_default();
    }
    Ok(false)
}

impl<M> fmt::Debug for Netlink<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Netlink").finish_non_exhaustive()
    }
}
