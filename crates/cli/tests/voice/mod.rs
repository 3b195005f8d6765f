//! Calls between two hosts, of which every packet can be told from every other.

use crate::patient::patient;
use sheaf_netio::netns::Namespace;
use sheaf_netio::poller::Poller;
use sheaf_netio::{clock, timer};
use std::net::UdpSocket;
use std::time::Duration;

/// Calls at a time.
pub const CALLS: usize = 8;
/// Time between two packets of one call.
const EVERY: Duration = Duration::from_millis(16);
/// A receiver that waits this long gets nothing more.
const LONG: Duration = Duration::from_secs(10);
/// Words behind the last packet. On a path that loses some, one of them arrives.
const ENDS: usize = 20;
const END: &[u8] = b"end";

/// Outcome of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Talk {
    /// Packets that did not arrive.
    pub lost: usize,
    /// Packets that arrived behind a later one of their call.
    pub late: usize,
}

/// Packet number `number` of the call `source`: G.729 in RTP.
fn rtp(source: usize, number: u16) -> Vec<u8> {
    const SAMPLES: u32 = 160;
    let mut packet = vec![0x80, 18];
    packet.extend_from_slice(&number.to_be_bytes());
    packet.extend_from_slice(&(u32::from(number) * SAMPLES).to_be_bytes());
    packet.extend_from_slice(&(source as u32).to_be_bytes());
    packet.extend((0..20).map(|at| (number as u8).wrapping_mul(31).wrapping_add(at)));
    packet
}

/// Packets of the calls that have arrived.
struct Arrivals {
    socket: UdpSocket,
    /// Source port of each call.
    ports: Vec<u16>,
    arrived: Vec<Vec<bool>>,
    newest: [Option<u16>; CALLS],
    late: usize,
    ends: usize,
}

impl Arrivals {
    /// Reads one packet.
    fn read(&mut self) -> std::io::Result<()> {
        let mut bytes = [0; 64];
        let (len, from) = patient(|| self.socket.recv_from(&mut bytes))?;
        if bytes[..len] == *END {
            self.ends += 1;
            return Ok(());
        }
        let source = self.ports.iter().position(|port| *port == from.port());
        let source = source.expect("one of the calls");
        let number = u16::from_be_bytes([bytes[2], bytes[3]]);
        assert_eq!(bytes[..len], rtp(source, number), "call {source}");
        let there = self.arrived[source].get_mut(usize::from(number));
        let there = there.expect("a number that was sent");
        assert!(!std::mem::replace(there, true), "call {source}: {number} arrived twice");
        self.late += usize::from(self.newest[source] > Some(number));
        self.newest[source] = self.newest[source].max(Some(number));
        Ok(())
    }
}

/// Sends `count` packets of each of [`CALLS`] calls from host `from` to `address` (`ADDR:PORT`) of
/// host `to`. What arrives is as it was sent, and nothing arrives twice.
pub fn talk(from: &Namespace, to: &Namespace, address: &str, count: u16) -> Talk {
    let socket = to.run(|| UdpSocket::bind(address)).unwrap();
    let sender = |_| {
        let sender = from.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
        sender.connect(address).unwrap();
        sender
    };
    let senders: Vec<_> = (0..CALLS).map(sender).collect();
    let mut arrivals = Arrivals {
        socket,
        ports: senders.iter().map(|one| one.local_addr().unwrap().port()).collect(),
        arrived: vec![vec![false; usize::from(count)]; CALLS],
        newest: [None; CALLS],
        late: 0,
        ends: 0,
    };
    let mut next = clock::now();
    let mut pace = || {
        next += EVERY;
        timer::wait(&mut Poller::default(), 0, next, Duration::ZERO).unwrap();
    };
    // They are read meanwhile: of a whole call, no socket's buffer would have room.
    arrivals.socket.set_nonblocking(true).unwrap();
    for number in 0..count {
        pace();
        for (source, sender) in senders.iter().enumerate() {
            sender.send(&rtp(source, number)).unwrap();
        }
        while arrivals.read().is_ok() {}
    }
    for _ in 0..ENDS {
        pace();
        senders[0].send(END).unwrap();
    }
    arrivals.socket.set_nonblocking(false).unwrap();
    arrivals.socket.set_read_timeout(Some(LONG)).unwrap();
    // Half of the ends: what is overtaken by so many will not come any more.
    while arrivals.ends < ENDS / 2 {
        arrivals.read().expect("packets arrive");
    }
    let lost = arrivals.arrived.iter().flatten().filter(|arrived| !**arrived).count();
    Talk { lost, late: arrivals.late }
}
