//! A trunk over UDP: two ends in one process, with two links over the loopback interface.
//!
//! `cargo run --package sheaf-trunk --example udp`

use sheaf_netio::{clock, poller::Poller};
use sheaf_trunk::{DeliveryMode, Endpoint, EndpointConfig, LinkConfig, LinkId, Remote, Transmit};
use std::error::Error;
use std::net::{SocketAddr, UdpSocket};

/// Packets that pass.
const PACKETS: usize = 1000;
/// One end: the machine without I/O, and a socket for each link.
type End = (Endpoint<SocketAddr>, [(LinkId, UdpSocket); 2]);

fn end(session: u64) -> Result<End, Box<dyn Error>> {
    let mut endpoint = Endpoint::new(EndpointConfig::default(), session)?;
    let mut link = || -> Result<_, Box<dyn Error>> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_nonblocking(true)?;
        Ok((endpoint.add_link(LinkConfig::default())?, socket))
    };
    let links = [link()?, link()?];
    Ok((endpoint, links))
}

/// Receives and sends all frames that are due; returns the number of packets delivered.
fn turn((endpoint, links): &mut End) -> Result<usize, Box<dyn Error>> {
    let (now, mut buffer, mut frame) = (clock::now(), [0; 2048], Vec::new());
    for (link, socket) in &*links {
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            endpoint.handle_frame(*link, Some(from), &buffer[..len], now);
        }
    }
    while let Some(Transmit { link, to }) = endpoint.poll_transmit(now, &mut frame) {
        let socket = links.iter().find_map(|(id, socket)| (*id == link).then_some(socket));
        socket.zip(to).map(|(socket, to)| socket.send_to(&frame, to)).transpose()?;
    }
    Ok(std::iter::from_fn(|| endpoint.poll_deliver(now).map(drop)).count())
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut here, mut there) = (end(1)?, end(2)?);
    for (ours, theirs) in here.1.iter().zip(&there.1) {
        here.0.set_remote(ours.0, Remote::Fixed(Some(theirs.1.local_addr()?)));
        there.0.set_remote(theirs.0, Remote::Fixed(Some(ours.1.local_addr()?)));
    }
    let packet = sheaf_wire::ip::example_udp(&[0; 1000]);
    let (mut sent, mut delivered) = (0, 0);
    while delivered < PACKETS {
        turn(&mut here)?;
        delivered += turn(&mut there)?;
        // The next packet follows when the last has arrived.
        if here.0.is_established() && sent == delivered {
            let taken = here.0.handle_packet(&packet, DeliveryMode::Order, clock::now());
            taken.map_err(|reason| format!("dropped: {reason:?}"))?;
            sent += 1;
        }
        let mut poller = Poller::default();
        here.1.iter().chain(&there.1).for_each(|(_, socket)| _ = poller.add(socket));
        let next = here.0.next_deadline().into_iter().chain(there.0.next_deadline()).min();
        poller.wait(next.map(|at| at.saturating_since(clock::now())))?;
    }
    println!("{delivered} packets of {} bytes arrived", packet.len());
    Ok(())
}

#[test]
fn the_example_runs() {
    main().unwrap();
}
