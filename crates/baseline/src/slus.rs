//! Formula 1 for advertised windows.
//!
//! Source: "An OpenWRT solution for future wireless homes" (Padova and Bologna, 2010; SAP-LAW). The
//! access point in front of a bottleneck of capacity C sees U(t), the rate of UDP, and n(t), the
//! number of TCP flows. It lowers the advertised windows so that each flow gets
//! maxTCPrate(t) = (C − U(t)) / n(t), which is a window of that rate times the round-trip time,
//! the same for all flows.
//!
//! [`rate`] and [`window`] are the formula; [`AccessPoint`] applies it to the packets that pass.
//!
//! Assumed, because the paper leaves it open: U(t) and n(t) are those of the last whole second;
//! the round-trip time is given; a window is at least one segment; a flow is governed once both of
//! its SYNs were seen, since only they say the window scale; SYNs are not changed.

use sheaf_stage::{Bitrate, Duration, Instant};
use sheaf_wire::checksum::adjust;
use sheaf_wire::ip::{Ip, Protocol};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Time over which UDP and flows are counted, assumed.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// TCP flows in the table at most; the paper's home has a few.
pub const FLOWS: usize = 1024;

/// maxTCPrate: the rate of each of `flows` TCP flows, at least 1, where UDP uses `udp` of
/// `capacity`. 0 when UDP uses all.
pub fn rate(capacity: Bitrate, udp: Bitrate, flows: usize) -> Bitrate {
    Bitrate::from_bps(capacity.as_bps().saturating_sub(udp.as_bps()) / flows.max(1) as u64)
}

/// The window in bytes that gives a flow `rate` over `rtt`, at least one segment of `segment`
/// bytes.
pub fn window(rate: Bitrate, rtt: Duration, segment: u32) -> u32 {
    let bits = u128::from(rate.as_bps()) * rtt.as_nanos() / 1_000_000_000;
    u32::try_from(bits / 8).unwrap_or(u32::MAX).max(segment)
}

/// Direction in which a packet passes the access point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the clients, through the bottleneck.
    Down,
    /// From the clients.
    Up,
}

/// Parameters of an access point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Capacity of the bottleneck.
    pub capacity: Bitrate,
    /// Round-trip time of the flows without queues.
    pub rtt: Duration,
    /// Bytes of a segment.
    pub segment: u32,
}

/// A connection, from the client's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flow {
    client: (IpAddr, u16),
    server: (IpAddr, u16),
}

/// State of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    /// Window scale in the client's SYN, if it had the option.
    offered: Option<u8>,
    /// Shift of the client's window fields, once the server's SYN was seen, too.
    shift: Option<u8>,
    /// Segments passed in this interval.
    active: bool,
}

/// An access point that lowers the windows of downloads.
#[derive(Clone, Debug)]
pub struct AccessPoint {
    config: Config,
    connections: BTreeMap<Flow, Connection>,
    interval_ends: Instant,
    udp_bytes: u64,
    /// The window in force, in bytes.
    window: u32,
}

impl AccessPoint {
    /// An access point that saw no traffic: the window is that of one flow alone.
    pub fn new(config: Config) -> Self {
        let alone = rate(config.capacity, Bitrate::from_bps(0), 1);
        AccessPoint {
            config,
            connections: BTreeMap::new(),
            interval_ends: Instant::ZERO + INTERVAL,
            udp_bytes: 0,
            window: window(alone, config.rtt, config.segment),
        }
    }

    /// The window that every flow gets now, in bytes.
    pub fn window(&self) -> u32 {
        self.window
    }

    /// Counts a packet that passes at `now`, and lowers its window in place. Returns whether the
    /// packet was changed.
    pub fn pass(&mut self, packet: &mut [u8], direction: Direction, now: Instant) -> bool {
        if now >= self.interval_ends {
            self.apply(now);
        }
        let Ok(ip) = Ip::parse(packet) else { return false };
        if ip.protocol() == Protocol::UDP && direction == Direction::Down {
            self.udp_bytes += ip.bytes().len() as u64;
        }
        let Some(segment) = Segment::parse(&ip, direction) else { return false };
        let Some(shift) = self.observe(&segment, direction) else { return false };
        if direction == Direction::Down {
            return false;
        }
        // Rounded down, but never to a closed window.
        let limit = (self.window >> shift).clamp(1, u32::from(u16::MAX)) as u16;
        let (at, field) = (segment.offset, segment.window);
        if field <= limit {
            return false;
        }
        packet[at + 14..at + 16].copy_from_slice(&limit.to_be_bytes());
        adjust(&mut packet[at + 16..at + 18], field, limit);
        true
    }

    /// Applies the formula to the interval that ended.
    fn apply(&mut self, now: Instant) {
        // An interval that ended long ago says nothing about now.
        let recent = now < self.interval_ends + INTERVAL;
        let udp = if recent { self.udp_bytes * 8 / INTERVAL.as_secs() } else { 0 };
        let active = self.connections.values().filter(|connection| connection.active).count();
        let flows = if recent { active } else { 0 };
        let rate = rate(self.config.capacity, Bitrate::from_bps(udp), flows);
        self.window = window(rate, self.config.rtt, self.config.segment);
        self.connections.values_mut().for_each(|connection| connection.active = false);
        self.udp_bytes = 0;
        self.interval_ends = now + INTERVAL;
    }

    /// Notes what a segment says about its connection. Returns the shift of the client's windows;
    /// `None` for a client's SYN, whose window is not scaled, and before the server's.
    fn observe(&mut self, segment: &Segment, direction: Direction) -> Option<u8> {
        if segment.is_syn() && direction == Direction::Up {
            if self.connections.len() >= FLOWS {
                self.connections.retain(|_, connection| connection.active);
            }
            if self.connections.len() < FLOWS {
                let offered = segment.scale;
                self.connections.insert(segment.flow, Connection { offered, ..Default::default() });
            }
            return None;
        }
        let connection = self.connections.get_mut(&segment.flow)?;
        connection.active = true;
        if segment.is_syn() {
            // RFC 7323, 2.2: windows are scaled when both SYNs have the option.
            let scaled = segment.scale.and(connection.offered);
            connection.shift = Some(scaled.unwrap_or(0));
        }
        connection.shift
    }
}

/// The parts of a TCP segment that matter here.
struct Segment {
    flow: Flow,
    flags: u8,
    window: u16,
    /// Shift in the window scale option.
    scale: Option<u8>,
    /// Place of the TCP header in the packet.
    offset: usize,
}

impl Segment {
    fn parse(ip: &Ip<'_>, direction: Direction) -> Option<Segment> {
        if ip.protocol() != Protocol::TCP {
            return None;
        }
        let (source, destination) = ip.ports()?;
        let (source, destination) = ((ip.source(), source), (ip.destination(), destination));
        let flow = match direction {
            Direction::Up => Flow { client: source, server: destination },
            Direction::Down => Flow { client: destination, server: source },
        };
        let header = ip.transport();
        let options = header.get(20..usize::from(header.get(12)? >> 4) * 4)?;
        let window = u16::from_be_bytes([header[14], header[15]]);
        let (flags, offset) = (header[13], ip.transport_offset());
        Some(Segment { flow, flags, window, scale: scale(options), offset })
    }

    fn is_syn(&self) -> bool {
        self.flags & 2 != 0
    }
}

/// The shift in the window scale option (RFC 7323, 2.2: kind 3, at most 14).
fn scale(mut options: &[u8]) -> Option<u8> {
    loop {
        options = match options {
            [3, 3, shift, ..] => return Some((*shift).min(14)),
            // The end of the options, or no whole one.
            [] | [0, ..] | [_] => return None,
            [1, rest @ ..] => rest,
            [_, len, ..] => options.get(usize::from(*len).max(2)..)?,
        };
    }
}
