//! ICMP as a sender of one protocol hears it: errors about its packets, replies to its echo
//! requests, and requests of its own kind.
//!
//! Principle: a raw socket hears all of a host's ICMP. A classic socket filter (bpf(4)) in the
//! kernel lets three kinds of messages through and no others, so that a flood of pings wakes
//! nobody: errors that quote a packet of the protocol, echo replies with our identifier, and echo
//! requests that begin with a known word. What passes is parsed again here.
//!
//! Nothing of ICMP is authenticated. A caller compares what is quoted with what it sent, and lets
//! no message do more harm than a lost packet would.

use crate::socket::{self, instruction as code};
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{SockaddrStorage, recvfrom};
use sheaf_wire::checksum::{fold, sum};
use sheaf_wire::ip::Protocol;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The number of ICMP in IPv4 (RFC 792).
const ICMP: u8 = 1;
/// Bytes of an ICMP header before what it quotes or carries.
const HEADER: usize = 8;
/// Bytes of a message that are read: an IPv4 header with options, and what RFC 1812 and RFC 4443
/// let an error quote at most.
const LONGEST: usize = 1400;
/// Where the cookie of an echo begins in its data, behind the known word.
const COOKIE: usize = 4;

/// Messages that the filter lets through.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Errors must quote a packet of this protocol.
    pub protocol: u8,
    /// Echo replies must have this identifier.
    pub identifier: u16,
    /// The data of echo requests must begin with this word.
    pub word: u32,
}

/// Contents of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The destination does not know the protocol (RFC 792 type 3 code 2, RFC 4443 type 4 code 1).
    ProtocolUnreachable,
    /// Somebody on the way, or the destination, forbids it.
    Prohibited,
    /// The packet is larger than the next link takes.
    TooBig {
        /// Bytes that the link takes; 0 from routers that do not say (before RFC 1191).
        mtu: u32,
    },
}

/// A message that concerns the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// An error that quotes a packet from `source` to `destination`.
    Error {
        /// The fault.
        error: Error,
        /// Source of the packet quoted.
        source: IpAddr,
        /// Its destination.
        destination: IpAddr,
    },
    /// An echo reply.
    Reply {
        /// Address that replies.
        from: IpAddr,
        /// The request's sequence number.
        sequence: u16,
        /// The request's cookie.
        cookie: u64,
    },
    /// An echo request of our kind.
    Request {
        /// Address that asks.
        from: IpAddr,
    },
}

/// A socket that hears ICMP of one family.
#[derive(Debug)]
pub struct Icmp {
    socket: OwnedFd,
    v6: bool,
}

impl Icmp {
    /// Hears ICMP in IPv4, or ICMPv6 where `v6`, as far as it is `wanted`.
    pub fn open(v6: bool, wanted: Wanted) -> io::Result<Icmp> {
        let protocol = if v6 { Protocol::ICMPV6.0 } else { ICMP };
        let icmp = Icmp { socket: socket::raw(v6, protocol)?, v6 };
        socket::attach_filter(&icmp, &filter(v6, wanted))?;
        // What came before the filter was there.
        while icmp.read(&mut [0; 1])?.is_some() {}
        Ok(icmp)
    }

    /// The next message that is there already; `None` when there is none, or one that is not
    /// `wanted`. Readable when the descriptor is.
    ///
    /// A caller that hears until there is none bounds how often it asks.
    pub fn receive(&self) -> io::Result<Option<Message>> {
        let mut bytes = [0; LONGEST];
        let Some((len, from)) = self.read(&mut bytes)? else { return Ok(None) };
        Ok(match self.v6 {
            true => parse_v6(&bytes[..len], from),
            false => parse_v4(&bytes[..len]),
        })
    }

    /// One message, and who sent it (IPv6; in IPv4 its header says).
    fn read(&self, bytes: &mut [u8]) -> io::Result<Option<(usize, Ipv6Addr)>> {
        match recvfrom::<SockaddrStorage>(self.socket.as_raw_fd(), bytes) {
            Ok((len, from)) => {
                let from = from.and_then(|from| from.as_sockaddr_in6().map(|from| from.ip()));
                Ok(Some((len, from.unwrap_or(Ipv6Addr::UNSPECIFIED))))
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Icmp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Types of messages: errors, echo reply, echo request.
const V4_UNREACHABLE: u8 = 3;
const V4_REPLY: u8 = 0;
const V4_REQUEST: u8 = 8;
const V6_UNREACHABLE: u8 = 1;
const V6_TOO_BIG: u8 = 2;
const V6_PARAMETER: u8 = 4;
const V6_REPLY: u8 = 129;
const V6_REQUEST: u8 = 128;

/// The filter's instructions. A raw IPv4 socket hands the filter the IP header, too, a raw ICMPv6
/// socket does not; register X holds where the message begins.
fn filter(v6: bool, wanted: Wanted) -> Vec<libc::sock_filter> {
    let load = |size: u32, at: u32| code(libc::BPF_LD | size | libc::BPF_IND, 0, 0, at);
    let is = |k: u32, jt: u8, jf: u8| code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, k);
    let end =
        |accept: bool| code(libc::BPF_RET | libc::BPF_K, 0, 0, if accept { u32::MAX } else { 0 });
    let start = match v6 {
        true => code(libc::BPF_LDX | libc::BPF_W | libc::BPF_IMM, 0, 0, 0),
        // X = 4 * (the low nibble of byte 0): the length of the IPv4 header.
        false => code(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0, 0, 0),
    };
    let (errors, reply, request, protocol) = match v6 {
        true => ([V6_UNREACHABLE, V6_TOO_BIG, V6_PARAMETER], V6_REPLY, V6_REQUEST, 6),
        false => ([V4_UNREACHABLE; 3], V4_REPLY, V4_REQUEST, 9),
    };
    let header = HEADER as u32;
    vec![
        start,
        load(libc::BPF_B, 0),
        is(errors[0].into(), 5, 0),
        is(errors[1].into(), 4, 0),
        is(errors[2].into(), 3, 0),
        is(reply.into(), 4, 0),
        is(request.into(), 5, 0),
        end(false),
        // An error: the protocol that it quotes.
        load(libc::BPF_B, header + protocol),
        is(wanted.protocol.into(), 4, 5),
        // A reply: its identifier.
        load(libc::BPF_H, 4),
        is(wanted.identifier.into(), 2, 3),
        // A request: the first word of its data.
        load(libc::BPF_W, header),
        is(wanted.word, 0, 1),
        end(true),
        end(false),
    ]
}

fn parse_v4(packet: &[u8]) -> Option<Message> {
    let header_len = usize::from(packet.first()? & 0xf) * 4;
    let from = Ipv4Addr::from(*packet.get(12..)?.first_chunk::<4>()?);
    let message = packet.get(header_len..)?;
    // The kernel checks it only after raw sockets had their copy.
    if message.len() < HEADER || fold(sum(message, 0)) != 0xffff {
        return None;
    }
    let quoted = &message[HEADER..];
    let error = match (message[0], message[1]) {
        (V4_UNREACHABLE, 2) => Error::ProtocolUnreachable,
        // Port unreachable, as REJECT of iptables says by default, and the prohibitions.
        (V4_UNREACHABLE, 3 | 9 | 10 | 13) => Error::Prohibited,
        (V4_UNREACHABLE, 4) => {
            Error::TooBig { mtu: u16::from_be_bytes([message[6], message[7]]).into() }
        }
        (kind @ (V4_REPLY | V4_REQUEST), 0) => {
            return echo(kind == V4_REPLY, from.into(), message);
        }
        _ => return None,
    };
    let address = |at: usize| Some(Ipv4Addr::from(*quoted.get(at..)?.first_chunk::<4>()?).into());
    Some(Message::Error { error, source: address(12)?, destination: address(16)? })
}

fn parse_v6(message: &[u8], from: Ipv6Addr) -> Option<Message> {
    let quoted = message.get(HEADER..)?;
    let error = match (message[0], message[1]) {
        (V6_PARAMETER, 1) => Error::ProtocolUnreachable,
        (V6_UNREACHABLE, 1 | 4 | 5 | 6) => Error::Prohibited,
        (V6_TOO_BIG, _) => {
            Error::TooBig { mtu: u32::from_be_bytes(*message[4..].first_chunk::<4>()?) }
        }
        (kind @ (V6_REPLY | V6_REQUEST), 0) => {
            return echo(kind == V6_REPLY, from.into(), message);
        }
        _ => return None,
    };
    let address = |at: usize| Some(Ipv6Addr::from(*quoted.get(at..)?.first_chunk::<16>()?).into());
    Some(Message::Error { error, source: address(8)?, destination: address(24)? })
}

/// An echo, behind whose header stand the known word and the cookie.
fn echo(reply: bool, from: IpAddr, message: &[u8]) -> Option<Message> {
    if !reply {
        return Some(Message::Request { from });
    }
    let cookie = message.get(HEADER + COOKIE..)?.first_chunk::<8>()?;
    Some(Message::Reply {
        from,
        sequence: u16::from_be_bytes([message[6], message[7]]),
        cookie: u64::from_be_bytes(*cookie),
    })
}

/// An echo request from `from` to `to`, IP header included: `wanted` has its identifier and word.
/// `None` when the addresses are of two families.
pub fn echo_request(
    from: IpAddr,
    to: IpAddr,
    wanted: Wanted,
    sequence: u16,
    cookie: u64,
) -> Option<Vec<u8>> {
    /// What a host sends to its neighbours and beyond; 255 would claim to be from the link.
    const HOPS: u8 = 64;
    const DATA: usize = COOKIE + 8;
    const LEN: usize = HEADER + DATA;
    let mut packet = Vec::with_capacity(40 + LEN);
    let pseudo = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            packet.extend_from_slice(&[0x45, 0, 0, (20 + LEN) as u8, 0, 0, 0x40, 0, HOPS, 1, 0, 0]);
            packet.extend_from_slice(&from.octets());
            packet.extend_from_slice(&to.octets());
            let checksum = sheaf_wire::checksum::ipv4_header(&packet);
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
            0
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            packet.extend_from_slice(&[0x60, 0, 0, 0, 0, LEN as u8, 58, HOPS]);
            packet.extend_from_slice(&from.octets());
            packet.extend_from_slice(&to.octets());
            sum(&packet[8..40], LEN as u32 + 58)
        }
        _ => return None,
    };
    let start = packet.len();
    packet.extend_from_slice(&[if from.is_ipv4() { V4_REQUEST } else { V6_REQUEST }, 0, 0, 0]);
    packet.extend_from_slice(&wanted.identifier.to_be_bytes());
    packet.extend_from_slice(&sequence.to_be_bytes());
    packet.extend_from_slice(&wanted.word.to_be_bytes());
    packet.extend_from_slice(&cookie.to_be_bytes());
    let checksum = !fold(sum(&packet[start..], pseudo));
    packet[start + 2..start + 4].copy_from_slice(&checksum.to_be_bytes());
    Some(packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cable;
    use crate::netns::Namespace;
    use crate::poller::Poller;
    use crate::raw::RawSocket;

    const WANTED: Wanted = Wanted { protocol: 253, identifier: 0x5ea4, word: 0x5368_6561 };

    /// Two hosts on a cable; `work` runs on the first.
    fn on_a_cable(work: impl FnOnce(&Namespace) -> io::Result<()> + Send) {
        let [here, there] = cable::hosts();
        here.run(|| work(&there)).unwrap();
    }

    fn next(icmp: &Icmp) -> Message {
        let mut poller = Poller::default();
        poller.add(icmp);
        loop {
            poller.wait(None).unwrap();
            if let Some(message) = icmp.receive().unwrap() {
                return message;
            }
        }
    }

    #[test]
    fn errors_that_quote_the_protocol_and_replies_to_us_are_heard_and_nothing_else() {
        on_a_cable(|_| {
            for (v6, ours, theirs) in
                [(false, "10.0.0.1", "10.0.0.2"), (true, "fd00::1", "fd00::2")]
            {
                let (ours, theirs): (IpAddr, IpAddr) =
                    (ours.parse().unwrap(), theirs.parse().unwrap());
                let icmp = Icmp::open(v6, WANTED)?;
                // Sends any protocol, and receives none.
                let raw = RawSocket::open("eth0", v6, 255)?;
                // First what must not be heard: another identifier, and an error about another
                // protocol. The order of the replies is that of the requests.
                let stranger = Wanted { identifier: 7, ..WANTED };
                let echo = |wanted| echo_request(ours, theirs, wanted, 9, 77).unwrap();
                let protocol = |protocol: u8| {
                    let mut packet = echo(WANTED);
                    match v6 {
                        true => packet[6] = protocol,
                        false => {
                            packet[9] = protocol;
                            packet[10..12].fill(0);
                            let checksum = sheaf_wire::checksum::ipv4_header(&packet[..20]);
                            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
                        }
                    }
                    packet
                };
                for packet in [echo(stranger), protocol(254), protocol(253), echo(WANTED)] {
                    raw.send(&packet, theirs)?;
                }
                assert_eq!(
                    next(&icmp),
                    Message::Error {
                        error: Error::ProtocolUnreachable,
                        source: ours,
                        destination: theirs
                    }
                );
                let reply = Message::Reply { from: theirs, sequence: 9, cookie: 77 };
                assert_eq!(next(&icmp), reply);
            }
            Ok(())
        });
    }

    #[test]
    fn a_request_of_our_kind_is_heard_by_the_other_host() {
        on_a_cable(|there| {
            for (v6, ours, theirs) in
                [(false, "10.0.0.1", "10.0.0.2"), (true, "fd00::1", "fd00::2")]
            {
                let (ours, theirs) = (ours.parse().unwrap(), theirs.parse().unwrap());
                let icmp = there.run(|| Icmp::open(v6, WANTED))?;
                let raw = RawSocket::open("eth0", v6, 255)?;
                let other = Wanted { word: 1, ..WANTED };
                for wanted in [other, WANTED] {
                    raw.send(&echo_request(ours, theirs, wanted, 1, 1).unwrap(), theirs)?;
                }
                assert_eq!(next(&icmp), Message::Request { from: ours });
            }
            Ok(())
        });
    }

    #[test]
    fn damaged_and_cut_messages_are_not_heard() {
        let request = echo_request(
            Ipv4Addr::new(10, 0, 0, 1).into(),
            Ipv4Addr::new(10, 0, 0, 2).into(),
            WANTED,
            1,
            2,
        )
        .unwrap();
        assert!(parse_v4(&request).is_some());
        for at in 20..request.len() {
            let mut damaged = request.clone();
            damaged[at] ^= 0x10;
            assert_eq!(parse_v4(&damaged), None, "byte {at}");
        }
        for len in 0..request.len() {
            assert_eq!(parse_v4(&request[..len]), None, "{len} bytes");
            let _ = parse_v6(&request[..len], Ipv6Addr::LOCALHOST);
        }
    }
}
