//! Questions to the kernel's routing family, its answers, and changes.

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::fmt;
use std::io;

/// The longest answer: one message of any object here, or one part of a dump.
const ANSWER: usize = 1 << 16;

/// A socket to the kernel, in the network namespace of the thread that opened it.
pub struct Netlink {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Netlink {
    /// A new one.
    pub fn open() -> io::Result<Netlink> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Netlink { socket, buffer: vec![0; ANSWER] })
    }

    /// Hands every object of the kind that `message` names to `each`.
    pub fn dump(
        &mut self,
        message: RouteNetlinkMessage,
        mut each: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        self.send(message, NLM_F_DUMP)?;
        while !self.receive(&mut each)? {}
        Ok(())
    }

    /// Asks for a change, with `flags` such as NLM_F_CREATE.
    pub fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.send(message, NLM_F_ACK | flags)?;
        while !self.receive(|_| {})? {}
        Ok(())
    }

    fn send(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let len = message.buffer_len();
        message.serialize(&mut self.buffer[..len]);
        self.socket.send(&self.buffer[..len], 0).map(drop)
    }

    /// Reads one datagram; whether it ends the answer.
    fn receive(&mut self, mut each: impl FnMut(RouteNetlinkMessage)) -> io::Result<bool> {
        let len = self.socket.recv(&mut &mut self.buffer[..], 0)?;
        let mut rest = &self.buffer[..len];
        while !rest.is_empty() {
            let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
            let message = NetlinkMessage::deserialize(rest).map_err(invalid)?;
            match message.payload {
                NetlinkPayload::InnerMessage(object) => each(object),
                // Without a code it is the acknowledgement of a change.
                NetlinkPayload::Error(error) if error.code.is_none() => return Ok(true),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::Done(_) => return Ok(true),
                _ => {}
            }
            // Messages begin at multiples of four bytes.
            let len = (message.header.length as usize).next_multiple_of(4).max(4);
            rest = rest.get(len..).unwrap_or_default();
        }
        Ok(false)
    }
}

impl fmt::Debug for Netlink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Netlink").finish_non_exhaustive()
    }
}
