//! Questions to the kernel by netlink, its answers, and changes: the socket for all families, and
//! the messages of the routing family. Those of generic netlink are in [`crate::generic`].

use crate::traffic_control::TcMessage;
use netlink_packet_core::{
    DecodeError, Emitable, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::libc;
use std::fmt;
use std::io;
use std::marker::PhantomData;

/// The longest answer: one message of any object here, or one part of a dump.
const ANSWER: usize = 1 << 16;

/// A message about an object of the routing family, of the kinds that this crate uses.
///
/// Parsers of all kinds, and of all their attributes, would be a tenth of the binary for routers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// RTM_NEWNEIGH
    NewNeighbour(Entry),
    /// RTM_GETNEIGH
    GetNeighbour(Entry),
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
    /// RTM_NEWLINK
    NewLink(Link),
    /// RTM_GETLINK
    GetLink(Link),
    /// RTM_SETLINK
    SetLink(Link),
    /// Of another kind.
    Other,
}

/// An interface, as much of it as a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The interface's number.
    pub index: u32,
    /// Its attributes, in the form in which the kernel reads and writes them.
    pub attributes: Vec<u8>,
}

/// An entry of the neighbour table, as much of it as a message says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Family of its address.
    pub family: u8,
    /// Number of its interface.
    pub index: u32,
    /// Its state (NUD_REACHABLE and others).
    pub state: u16,
    /// Flags (NTF_USE and others).
    pub flags: u8,
    /// Its attributes, in the form in which the kernel reads and writes them.
    pub attributes: Vec<u8>,
}

/// Bytes of `struct ndmsg`.
const ENTRY: usize = 12;

impl Entry {
    fn parse(bytes: &[u8]) -> Option<Entry> {
        let (head, attributes) = bytes.split_first_chunk::<ENTRY>()?;
        let [family, _, _, _, a, b, c, d, state, high, flags, _] = *head;
        Some(Entry {
            family,
            index: u32::from_ne_bytes([a, b, c, d]),
            state: u16::from_ne_bytes([state, high]),
            flags,
            attributes: attributes.to_vec(),
        })
    }
}

impl Emitable for Entry {
    fn buffer_len(&self) -> usize {
        ENTRY + self.attributes.len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        let ([a, b, c, d], [state, high]) = (self.index.to_ne_bytes(), self.state.to_ne_bytes());
        let head = [self.family, 0, 0, 0, a, b, c, d, state, high, self.flags, 0];
        let (info, attributes) = buffer.split_at_mut(ENTRY);
        info.copy_from_slice(&head);
        attributes.copy_from_slice(&self.attributes);
    }
}

/// Bytes of `struct ifinfomsg`, and where the interface's number is in it.
const LINK_INFO: usize = 16;
const LINK_INDEX: std::ops::Range<usize> = 4..8;

impl Emitable for Link {
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
            Object::NewLink(message) | Object::GetLink(message) | Object::SetLink(message) => {
                Some(message)
            }
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
            Object::NewLink(_) => libc::RTM_NEWLINK,
            Object::GetLink(_) => libc::RTM_GETLINK,
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

impl Link {
    fn parse(bytes: &[u8]) -> Option<Link> {
        let (info, attributes) = bytes.split_first_chunk::<LINK_INFO>()?;
        let index = info[LINK_INDEX].try_into().expect("four bytes");
        Some(Link { index: u32::from_ne_bytes(index), attributes: attributes.to_vec() })
    }
}

impl NetlinkDeserializable for Object {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Object, DecodeError> {
        let object = match header.message_type {
            libc::RTM_NEWNEIGH => Entry::parse(payload).map(Object::NewNeighbour),
            libc::RTM_NEWLINK => Link::parse(payload).map(Object::NewLink),
            libc::RTM_NEWQDISC => TcMessage::parse(payload).map(Object::NewQueueDiscipline),
            libc::RTM_NEWTFILTER => TcMessage::parse(payload).map(Object::NewTrafficFilter),
            _ => Some(Object::Other),
        };
        object.ok_or_else(|| DecodeError::from("a message of the kernel is too short"))
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
