//! A trunk over UDP: two ends in one process, with two links over the loopback interface.
//!
//! `cargo run --package sheaf-trunk --example udp`

use sheaf_netio::{clock, poller::Poller};
use sheaf_trunk::{DeliveryMode, Endpoint, EndpointConfig, LinkConfig, LinkId, Remote};
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};

/// Links of the trunk.
const LINKS: usize = 2;
/// Packets that pass.
const PACKETS: usize = 1000;

type Error = Box<dyn std::error::Error>;

/// One end: the machine without I/O, and a socket for each link.
struct End {
    endpoint: Endpoint<SocketAddr>,
    sockets: Vec<UdpSocket>,
    links: Vec<LinkId>,
}

impl End {
    fn new(session: u64) -> Result<End, Error> {
        let bind = |_| {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let sockets = (0..LINKS).map(bind).collect::<std::io::Result<_>>()?;
        let endpoint = Endpoint::new(EndpointConfig::default(), session)?;
        Ok(End { endpoint, sockets, links: Vec::new() })
    }

    /// Adds the links to `peer`.
    fn connect(&mut self, peer: &End) -> Result<(), Error> {
        for socket in &peer.sockets {
            let link = self.endpoint.add_link(LinkConfig::default())?;
            self.endpoint.set_remote(link, Remote::Fixed(Some(socket.local_addr()?)));
            self.links.push(link);
        }
        Ok(())
    }

    /// Receives and sends all frames that are due; returns the number of packets delivered.
    fn turn(&mut self) -> Result<usize, Error> {
        let (now, mut buffer) = (clock::now(), [0; 2048]);
        for (link, socket) in self.links.iter().zip(&self.sockets) {
            loop {
                match socket.recv_from(&mut buffer) {
                    Ok((len, from)) => {
                        self.endpoint.handle_frame(*link, Some(from), &buffer[..len], now);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let mut frame = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(now, &mut frame) {
            let to = transmit.to.ok_or("every link has an address")?;
            let link = self.links.iter().position(|link| *link == transmit.link);
            self.sockets[link.ok_or("the link is one of ours")?].send_to(&frame, to)?;
        }
        Ok(std::iter::from_fn(|| self.endpoint.poll_deliver(now).map(drop)).count())
    }
}

fn main() -> Result<(), Error> {
    let (mut here, mut there) = (End::new(1)?, End::new(2)?);
    here.connect(&there)?;
    there.connect(&here)?;
    let packet = sheaf_wire::ip::example_udp(&[0; 1000]);
    let (mut sent, mut delivered) = (0, 0);
    while delivered < PACKETS {
        here.turn()?;
        delivered += there.turn()?;
        // The next packet follows when the last has arrived.
        if here.endpoint.is_established() && sent == delivered {
            let result = here.endpoint.handle_packet(&packet, DeliveryMode::Order, clock::now());
            result.map_err(|reason| format!("dropped: {reason:?}"))?;
            sent += 1;
            continue;
        }
        let mut poller = Poller::default();
        here.sockets.iter().chain(&there.sockets).for_each(|socket| _ = poller.add(socket));
        let deadlines = [here.endpoint.next_deadline(), there.endpoint.next_deadline()];
        let next = deadlines.into_iter().flatten().min();
        poller.wait(next.map(|at| at.saturating_since(clock::now())))?;
    }
    println!("{delivered} packets of {} bytes over {LINKS} links", packet.len());
    Ok(())
}

#[test]
fn the_example_runs() {
    main().unwrap();
}
