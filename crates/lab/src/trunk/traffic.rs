//! TCP and UDP at one host under a virtual clock, measured packet by packet: every packet with
//! data carries a stamp at the beginning of its payload, which nothing else reads.

use super::outcome::Meter;
use super::point::Room;
use sheaf_stage::{Bitrate, Duration, Instant};
use sheaf_tcp::{Host, PORT};
use sheaf_wire::checksum;
use std::net::Ipv4Addr;

/// Bytes of IPv4 and UDP headers.
const UDP_HEADERS: usize = 28;

/// The checksum of a TCP segment in a packet without IP options.
const CHECKSUM: std::ops::Range<usize> = 36..38;

/// A sender or receiver at a host.
pub(super) enum Traffic {
    /// Bulk TCP.
    Tcp {
        host: Box<Host>,
        /// Bytes that its applications got so far.
        got: u64,
        /// The next number of each flow.
        numbers: Vec<u32>,
    },
    /// Datagrams at a constant rate, or as many as find room.
    UdpSource { packet: Vec<u8>, pace: Pace, number: u32 },
    /// The receiver of such a source.
    UdpSink,
}

/// The pace of a source.
pub(super) enum Pace {
    /// A constant rate.
    Rate {
        /// Time from one packet to the next.
        gap: Duration,
        /// Time of the next packet.
        next: Instant,
    },
    /// Whenever there is room, as an application whose socket blocks.
    Greedy(Room),
}

impl Pace {
    /// Packets of `bytes` at `rate`, from the start on.
    pub fn rate(rate: Bitrate, bytes: usize) -> Pace {
        Pace::Rate { gap: rate.time_for(bytes as u64), next: Instant::ZERO }
    }
}

impl Traffic {
    /// A bulk sender or receiver of `flows` flows.
    pub fn tcp(host: Host, flows: u16) -> Traffic {
        Traffic::Tcp { host: Box::new(host), got: 0, numbers: vec![0; usize::from(flows)] }
    }

    /// A source of packets of `bytes`, headers included.
    pub fn udp(from: Ipv4Addr, to: Ipv4Addr, bytes: usize, pace: Pace) -> Traffic {
        let mut packet = Vec::with_capacity(bytes);
        etherparse::PacketBuilder::ipv4(from.octets(), to.octets(), 64)
            .udp(PORT, PORT)
            .write(&mut packet, &vec![0; bytes - UDP_HEADERS])
            .expect("the plan checked the length");
        Traffic::UdpSource { packet, pace, number: 0 }
    }

    /// A packet arrived.
    pub fn receive(&mut self, packet: Vec<u8>, meter: &mut Meter, now: Instant) {
        if let Some(stamp) = payload(&packet).and_then(|at| Stamp::read(&packet[at..])) {
            meter.packet(stamp.flow, stamp.number, stamp.sent, now);
        }
        match self {
            Traffic::Tcp { host, got, .. } => {
                // The host counts what it refuses; a repeat of what it has is no fault.
                let _ = host.enqueue(packet, now);
                let all = host.flows().iter().map(|flow| flow.bytes).sum();
                meter.received((all - std::mem::replace(got, all)) as usize, now);
            }
            Traffic::UdpSource { .. } => {}
            Traffic::UdpSink => meter.received(packet.len() - UDP_HEADERS, now),
        }
    }

    /// Does the work that is due. `send` gets the packets to send, and says whether it took one. A
    /// greedy source sends one where there is `room` below; true when it may send another then.
    pub fn poll(
        &mut self,
        meter: &mut Meter,
        now: Instant,
        room: bool,
        mut send: impl FnMut(Vec<u8>) -> bool,
    ) -> bool {
        match self {
            Traffic::Tcp { host, numbers, .. } => {
                while let Some(mut packet) = host.dequeue(now) {
                    if let Some(at) = payload(&packet) {
                        let port = u16::from_be_bytes([packet[22], packet[23]]);
                        let flow = port.wrapping_sub(PORT);
                        let number = numbers.get_mut(usize::from(flow));
                        if let Some(number) = number.filter(|_| packet.len() >= at + Stamp::LEN) {
                            let stamp = Stamp { flow, number: *number, sent: now };
                            let bytes = &mut packet[at..at + Stamp::LEN];
                            stamp.write(bytes);
                            // The data was zeros, and it begins at an even place.
                            let sum = checksum::fold(checksum::sum(bytes, 0));
                            checksum::adjust(&mut packet[CHECKSUM], 0, sum);
                            *number += 1;
                            meter.sent(now);
                        }
                    }
                    send(packet);
                }
            }
            Traffic::UdpSource { packet, pace, number } => {
                let mut write = |sent: Instant| {
                    let stamp = Stamp { flow: 0, number: *number, sent };
                    stamp.write(&mut packet[UDP_HEADERS..]);
                    *number += 1;
                    send(packet.clone())
                };
                match pace {
                    // One that is refused was not sent: its application is told.
                    Pace::Greedy(_) => {
                        let is_sent = room && write(now);
                        if is_sent {
                            meter.sent(now);
                        }
                        return is_sent;
                    }
                    Pace::Rate { gap, next } => {
                        while *next <= now {
                            meter.sent(now);
                            write(*next);
                            *next += *gap;
                        }
                    }
                }
            }
            Traffic::UdpSink => {}
        }
        false
    }

    /// The room that a greedy source waits for; `None` for others.
    pub fn room(&self) -> Option<Room> {
        match self {
            Traffic::UdpSource { pace: Pace::Greedy(room), .. } => Some(*room),
            _ => None,
        }
    }

    /// Next time to poll although no packet arrives.
    pub fn next_deadline(&self) -> Option<Instant> {
        match self {
            Traffic::Tcp { host, .. } => host.next_deadline(),
            Traffic::UdpSource { pace: Pace::Rate { next, .. }, .. } => Some(*next),
            // Frames that left wake it later.
            Traffic::UdpSource { pace: Pace::Greedy(_), number: 0, .. } => Some(Instant::ZERO),
            Traffic::UdpSource { .. } | Traffic::UdpSink => None,
        }
    }
}

/// Offset of the payload of an IPv4 packet without options; `None` for other packets.
fn payload(packet: &[u8]) -> Option<usize> {
    let at = match packet.get(9)? {
        6 => 20 + usize::from(packet.get(32)? >> 4) * 4,
        _ => UDP_HEADERS,
    };
    (at < packet.len()).then_some(at)
}

/// Number of a packet and the time at which it was sent.
struct Stamp {
    flow: u16,
    number: u32,
    sent: Instant,
}

impl Stamp {
    const LEN: usize = 14;

    fn write(&self, bytes: &mut [u8]) {
        bytes[..2].copy_from_slice(&self.flow.to_be_bytes());
        bytes[2..6].copy_from_slice(&self.number.to_be_bytes());
        bytes[6..14].copy_from_slice(&self.sent.as_nanos().to_be_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Stamp> {
        let flow = u16::from_be_bytes(bytes.get(..2)?.try_into().ok()?);
        let number = u32::from_be_bytes(bytes.get(2..6)?.try_into().ok()?);
        let sent = u64::from_be_bytes(bytes.get(6..14)?.try_into().ok()?);
        Some(Stamp { flow, number, sent: Instant::from_nanos(sent) })
    }
}
