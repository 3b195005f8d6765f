//! Probes on the wire, and what comes back: see [`super::life`] for what follows from it.
//!
//! A probe is a meta packet like any other, from our address to the hop's, with one packet inside:
//! an ICMP echo request to the same address, whose cookie nobody guesses. In format 2 it is a frame
//! of a stream of its own. It is sent in class CS6
//! (RFC 4594: network control), and so is the reply, so that a full queue that tells classes apart
//! keeps neither.

use super::station::Station;
use anyhow::Context;
use sheaf_netio::icmp::{self, Icmp, Message, Wanted};
use sheaf_netio::poller::Poller;
use sheaf_netio::raw::{RawSocket, SEND_ONLY};
use sheaf_wire::aggfrag::{Header, PROBES_TAG};
use sheaf_wire::checksum;
use sheaf_wire::ecn::Ecn;
use sheaf_wire::ip::Protocol;
use sheaf_wire::meta::{HOP_LIMIT_FAR, HOP_LIMIT_NEIGHBOUR, Outer, Repr};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;

/// The first word of a probe's data: by it the other end knows that a probe came.
const WORD: u32 = u32::from_be_bytes(*b"Shf1");
const CS6: u8 = 48;
/// Messages that one turn takes before the packets have theirs.
const TURN: usize = 64;

/// Sends probes on one interface, and hears what comes back.
#[derive(Debug)]
pub struct Prober {
    wanted: Wanted,
    /// IPv4, IPv6; where the kernel has the family.
    raw: [Option<RawSocket>; 2],
    station: Station,
    icmp: [Option<Icmp>; 2],
    /// Cookies are a keyed hash of a count (SipHash). The key is drawn once: where the machine has
    /// little entropy yet, the kernel takes a second for each number it is asked for.
    keys: RandomState,
    count: u64,
}

impl Prober {
    /// On interface `dev`.
    pub fn open(dev: &str) -> anyhow::Result<Prober> {
        let keys = RandomState::new();
        let identifier = keys.hash_one(WORD) as u16;
        let wanted = Wanted { protocol: Protocol::META.0, identifier, word: WORD };
        let icmp = |v6| Icmp::open(v6, wanted).ok();
        // This host goes on refusing meta packets that nobody here splits.
        let raw = |v6| {
            let raw = RawSocket::open(dev, v6, SEND_ONLY).ok()?;
            raw.report_refusals().ok()?;
            Some(raw)
        };
        let prober = Prober {
            wanted,
            raw: [raw(false), raw(true)],
            station: Station::new(dev),
            icmp: [icmp(false), icmp(true)],
            keys,
            count: 0,
        };
        let heard = prober.icmp.iter().flatten().next();
        heard.context("no raw socket hears ICMP; run with sudo, on a kernel with IPv4 or IPv6")?;
        Ok(prober)
    }

    /// Sends a probe on the way that `outer` says; `far`: over routers; `frame`: in format 2, with
    /// that number. Returns its sequence number and cookie; fails with `ENOBUFS` where the device's
    /// queue is full.
    pub fn send(&mut self, outer: Outer, far: bool, frame: Option<u8>) -> io::Result<(u16, u64)> {
        self.count += 1;
        let mark = (self.count as u16, self.keys.hash_one(self.count));
        let packet = probe(outer, far, frame, self.wanted, mark)?;
        let to = outer.destination();
        let raw = self.raw[usize::from(to.is_ipv6())].as_ref();
        raw.ok_or(io::ErrorKind::Unsupported)?.send(&packet, to)?;
        Ok(mark)
    }

    /// The same as a frame of format 2 without a header of IP, from our link address to the
    /// neighbour's, both in `link`. What is asked has the addresses of `outer`.
    pub fn send_by_link(
        &mut self,
        outer: Outer,
        link: ([u8; 6], [u8; 6]),
        frame: u8,
    ) -> io::Result<(u16, u64)> {
        self.count += 1;
        let mark = (self.count as u16, self.keys.hash_one(self.count));
        let packet = probe(outer, false, Some(frame), self.wanted, mark)?;
        self.station.send(link.0, link.1, &packet[outer.header_len()..])?;
        Ok(mark)
    }

    /// Hands what was heard to `each`.
    pub fn hear(&mut self, mut each: impl FnMut(Message)) {
        for icmp in self.icmp.iter().flatten() {
            for _ in 0..TURN {
                // An error of the socket is taken with it: there is nothing to be done.
                match icmp.receive() {
                    Ok(Some(message)) => each(message),
                    Ok(None) | Err(_) => break,
                }
            }
        }
    }

    /// Adds what is to be waited for; returns its numbers.
    pub fn wait_for(&self, poller: &mut Poller) -> Range<usize> {
        let numbers: Vec<_> = self.icmp.iter().flatten().map(|icmp| poller.add(icmp)).collect();
        let first = numbers.first().copied().unwrap_or(0);
        first..first + numbers.len()
    }
}

/// A probe, outer header and all.
fn probe(
    outer: Outer,
    far: bool,
    frame: Option<u8>,
    wanted: Wanted,
    (sequence, cookie): (u16, u64),
) -> io::Result<Vec<u8>> {
    let (from, to) = (outer.source(), outer.destination());
    let inner = icmp::echo_request(from, to, wanted, sequence, cookie);
    let mut inner = inner.ok_or(io::ErrorKind::InvalidInput)?;
    set_class(&mut inner);
    let hop_limit = if far { HOP_LIMIT_FAR } else { HOP_LIMIT_NEIGHBOUR };
    let repr = Repr { outer, dscp: CS6, ecn: Ecn::NotEct, hop_limit };
    let mut packet = vec![0; repr.header_len()];
    if let Some(sequence) = frame {
        packet.extend_from_slice(&Header { tag: PROBES_TAG, sequence, offset: 0 }.emit());
    }
    packet.extend_from_slice(&inner);
    repr.emit(packet.len(), &mut packet);
    Ok(packet)
}

/// Writes class CS6 into a packet without one: the host that replies copies it.
fn set_class(packet: &mut [u8]) {
    match packet[0] >> 4 {
        4 => {
            packet[1] = CS6 << 2;
            seal(&mut packet[..20]);
        }
        _ => {
            packet[0] |= CS6 >> 2;
            packet[1] |= CS6 << 6;
        }
    }
}

/// Writes the checksum of an IPv4 header.
fn seal(header: &mut [u8]) {
    header[10..12].fill(0);
    let checksum = checksum::ipv4_header(header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_wire::aggfrag::{Block, Frame};
    use sheaf_wire::meta::Meta;

    #[test]
    fn a_probe_is_a_meta_packet_with_one_echo_request_between_the_same_hosts() {
        let wanted = Wanted { protocol: 253, identifier: 7, word: WORD };
        for (ours, theirs) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let outer = Outer::new(ours.parse().unwrap(), theirs.parse().unwrap()).unwrap();
            for (far, ttl) in [(false, 255), (true, 64)] {
                let packet = probe(outer, far, None, wanted, (3, 4)).unwrap();
                assert_eq!(packet[if packet[0] >> 4 == 4 { 8 } else { 7 }], ttl);
                let meta = Meta::parse(&packet).unwrap();
                assert_eq!((meta.repr().outer, meta.repr().dscp, meta.len()), (outer, CS6, 1));
                let inner = meta.packets().next().unwrap();
                assert_eq!(
                    (inner.source(), inner.destination()),
                    (outer.source(), outer.destination())
                );
                assert_eq!(inner.dscp(), CS6);
                if packet[0] >> 4 == 4 {
                    assert_eq!(checksum::ipv4_header(&inner.bytes()[..20]), 0);
                }
                let framed = probe(outer, far, Some(7), wanted, (3, 4)).unwrap();
                let (repr, payload) = Repr::with_payload(&framed).unwrap();
                assert_eq!((repr.outer, repr.dscp, repr.hop_limit), (outer, CS6, ttl));
                let frame = Frame::parse(payload, |_| None).unwrap();
                assert_eq!((frame.header().sequence, frame.len()), (7, 1));
                let inside = frame.blocks().next().unwrap();
                assert!(matches!(inside, Block::Packet(packet) if packet == inner.bytes()));
            }
        }
    }
}
