//! Frames of format 2 without a header of IP that the process itself sends: probes, and messages
//! about contexts.

use sheaf_netio::ip;
use sheaf_netio::packet::PacketSocket;
use sheaf_wire::ethernet;
use std::io;

/// Sends them on one interface.
#[derive(Debug)]
pub struct Station {
    dev: String,
    /// Opened with the first frame: most interfaces carry none.
    socket: Option<PacketSocket>,
}

impl Station {
    /// The one on interface `dev`.
    pub fn new(dev: &str) -> Station {
        Station { dev: dev.to_owned(), socket: None }
    }

    /// Sends `payload` from our link address `src` to the neighbour `dst`.
    pub fn send(&mut self, src: [u8; 6], dst: [u8; 6], payload: &[u8]) -> io::Result<()> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => PacketSocket::of_protocol(ip::index(&self.dev)?, 0)?,
        };
        let frame = [&ethernet::header(src, dst, ethernet::FRAMES), payload].concat();
        let sent = socket.send(&frame);
        self.socket = Some(socket);
        sent
    }
}
