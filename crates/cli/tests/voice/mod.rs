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

/// Sends `count` packets of each of [`CALLS`] calls from host `from` to `address` (`ADDR:PORT`) of
/// host `to`. What arrives is as it was sent, and nothing arrives twice.
pub fn talk(from: &Namespace, to: &Namespace, address: &str, count: u16) -> Talk {
    let receiver = to.run(|| UdpSocket::bind(address)).unwrap();
    // Nobody reads before the end.
    nix::sys::socket::setsockopt(&receiver, nix::sys::socket::sockopt::RcvBufForce, &(8 << 20))
        .unwrap();
    receiver.set_read_timeout(Some(LONG)).unwrap();
    let sender = |_| {
        let sender = from.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
        sender.connect(address).unwrap();
        sender
    };
    let senders: Vec<_> = (0..CALLS).map(sender).collect();
    let ports: Vec<_> = senders.iter().map(|one| one.local_addr().unwrap().port()).collect();
    let mut next = clock::now();
    let mut pace = || {
        next += EVERY;
        timer::wait(&mut Poller::default(), 0, next, Duration::ZERO).unwrap();
    };
    for number in 0..count {
        pace();
        for (source, sender) in senders.iter().enumerate() {
            sender.send(&rtp(source, number)).unwrap();
        }
    }
    for _ in 0..ENDS {
        pace();
        senders[0].send(END).unwrap();
    }
    let mut arrived = vec![vec![false; usize::from(count)]; CALLS];
    let (mut bytes, mut newest, mut ends) = ([0; 64], [None; CALLS], 0);
    let mut talk = Talk::default();
    // Half of the ends: what is overtaken by so many will not come any more.
    while ends < ENDS / 2 {
        let (len, from) = patient(|| receiver.recv_from(&mut bytes)).expect("packets arrive");
        if bytes[..len] == *END {
            ends += 1;
            continue;
        }
        let source = ports.iter().position(|port| *port == from.port()).expect("one of the calls");
        let number = u16::from_be_bytes([bytes[2], bytes[3]]);
        assert_eq!(bytes[..len], rtp(source, number), "call {source}");
        let there = arrived[source].get_mut(usize::from(number)).expect("a number that was sent");
        assert!(!std::mem::replace(there, true), "call {source}: {number} arrived twice");
        talk.late += usize::from(newest[source] > Some(number));
        newest[source] = newest[source].max(Some(number));
    }
    talk.lost = arrived.iter().flatten().filter(|arrived| !**arrived).count();
    talk
}
