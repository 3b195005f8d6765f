//! Addresses of the hosts, and the way of each packet through the nodes of the simulation.
//!
//! ```text
//! server ─ bottleneck ─ delay in  ─ access point ─ client       downloads; in uploads the
//! server ─ ──────────── delay out ─ access point ─ client       bottleneck stands in the other way
//! ```
//!
//! A server has an address for each round-trip time. Each transfer has a client address of its own,
//! by which its hosts are found, and so has each connection of a session; the streams of UDP share
//! one, as a home's hosts do behind a NAT.

use crate::home::plan::DirectionName;
use sheaf_sim::NodeId;
use sheaf_window::Direction;
use std::net::Ipv4Addr;

/// Client address of the streams.
pub(super) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 1);
/// Second byte of the client addresses of transfers.
const TRANSFERS: u8 = 7;
/// Second byte of the client addresses of the first session; the others follow.
const SESSIONS: u8 = 100;

/// The access point.
pub(super) const ACCESS: NodeId = NodeId(0);
/// The slow link.
pub(super) const BOTTLENECK: NodeId = NodeId(1);
/// The sender and the receiver of the streams.
pub(super) const SOURCE: NodeId = NodeId(2);
const SINK: NodeId = NodeId(3);
const FIRST: u32 = 4;

/// The server's address for round-trip time number `class`.
pub(super) fn server(class: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 8, 1, class as u8 + 2)
}

/// The client's address for transfer `number`.
pub(super) fn client(number: u16) -> Ipv4Addr {
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(10, TRANSFERS, high, low)
}

/// The client's address for connection `id` of session `number`.
pub(super) fn session_client(number: u8, id: u16) -> Ipv4Addr {
    let [high, low] = id.to_be_bytes();
    Ipv4Addr::new(10, SESSIONS + number, high, low)
}

/// Whose client a packet belongs to.
enum Inside {
    Streams,
    Transfer(u32),
    Session(u32),
}

/// Flow of a packet, by its addresses.
struct Ends {
    /// From the servers to the clients, or back.
    direction: Direction,
    /// Number of the round-trip time.
    class: u32,
    inside: Inside,
}

impl Ends {
    /// Of a packet that hosts here made: IPv4.
    fn of(packet: &[u8]) -> Ends {
        let direction = direction(packet);
        let (outside, inside) = match direction {
            Direction::In => (&packet[12..16], &packet[16..20]),
            Direction::Out => (&packet[16..20], &packet[12..16]),
        };
        let inside = match inside[1] {
            TRANSFERS => Inside::Transfer(u32::from(inside[2]) << 8 | u32::from(inside[3])),
            SESSIONS.. => Inside::Session(u32::from(inside[1] - SESSIONS)),
            _ => Inside::Streams,
        };
        Ends { direction, class: u32::from(outside[3]) - 2, inside }
    }
}

/// The direction in which `packet` passes the access point's interface to the provider.
pub(super) fn direction(packet: &[u8]) -> Direction {
    let is_server = packet[12..15] == [10, 8, 1];
    if is_server { Direction::In } else { Direction::Out }
}

/// Number of the transfer that `packet` belongs to.
pub(super) fn transfer(packet: &[u8]) -> Option<u32> {
    match Ends::of(packet).inside {
        Inside::Transfer(number) => Some(number),
        Inside::Streams | Inside::Session(_) => None,
    }
}

/// The nodes of a home.
#[derive(Clone, Copy, Debug)]
pub(super) struct Map {
    /// Direction of bulk data: that of the bottleneck.
    pub bulk: DirectionName,
    /// Number of round-trip times.
    pub classes: u32,
    /// Number of sessions.
    pub sessions: u32,
}

impl Map {
    /// The delay of `class` towards the clients, or from them.
    fn delay(self, class: u32, direction: Direction) -> NodeId {
        NodeId(FIRST + 2 * class + direction.index() as u32)
    }

    /// Both ends of session `number`.
    pub fn session(self, number: u32) -> NodeId {
        NodeId(FIRST + 2 * self.classes + number)
    }

    /// The client of transfer `number`, or its server.
    pub fn host(self, number: u32, is_server: bool) -> NodeId {
        NodeId(FIRST + 2 * self.classes + self.sessions + 2 * number + u32::from(is_server))
    }

    /// The next node of a packet that its host sends.
    pub fn leave(self, packet: &[u8]) -> NodeId {
        match direction(packet) {
            Direction::In => self.to_provider(packet),
            Direction::Out => ACCESS,
        }
    }

    /// The next node of a packet that passed the access point.
    pub fn behind_access(self, packet: &[u8]) -> NodeId {
        match direction(packet) {
            Direction::In => self.to_host(packet),
            Direction::Out => self.to_provider(packet),
        }
    }

    /// The provider's first node for a packet: bulk data goes through the slow link.
    fn to_provider(self, packet: &[u8]) -> NodeId {
        let ends = Ends::of(packet);
        let is_bulk = ends.direction == self.direction();
        if is_bulk { BOTTLENECK } else { self.delay(ends.class, ends.direction) }
    }

    /// Direction of bulk data at the access point.
    pub fn direction(self) -> Direction {
        match self.bulk {
            DirectionName::Down => Direction::In,
            DirectionName::Up => Direction::Out,
        }
    }

    /// The next node of a packet that leaves the bottleneck.
    pub fn behind_bottleneck(self, packet: &[u8]) -> NodeId {
        let ends = Ends::of(packet);
        self.delay(ends.class, ends.direction)
    }

    /// The next node of a packet that was delayed.
    pub fn behind_delay(self, packet: &[u8]) -> NodeId {
        match direction(packet) {
            Direction::In => ACCESS,
            Direction::Out => self.to_host(packet),
        }
    }

    /// The host that `packet` is for.
    fn to_host(self, packet: &[u8]) -> NodeId {
        let ends = Ends::of(packet);
        let is_server = ends.direction == Direction::Out;
        match ends.inside {
            Inside::Streams => SINK,
            Inside::Transfer(number) => self.host(number, is_server),
            Inside::Session(number) => self.session(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 header without more.
    fn packet(from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
        let mut packet = vec![0x45; 12];
        packet.extend(from.octets());
        packet.extend(to.octets());
        packet
    }

    #[test]
    fn data_takes_the_bottleneck_and_the_delay_of_its_server_and_acknowledgements_the_delay() {
        let down = Map { bulk: DirectionName::Down, classes: 3, sessions: 2 };
        let data = packet(server(2), client(700));
        let ack = packet(client(700), server(2));
        assert_eq!(down.leave(&data), BOTTLENECK);
        assert_eq!(down.behind_bottleneck(&data), NodeId(FIRST + 4));
        assert_eq!(down.behind_delay(&data), ACCESS);
        assert_eq!(down.behind_access(&data), down.host(700, false));
        assert_eq!(down.leave(&ack), ACCESS);
        assert_eq!(down.behind_access(&ack), NodeId(FIRST + 5));
        assert_eq!(down.behind_delay(&ack), down.host(700, true));
        let up = Map { bulk: DirectionName::Up, ..down };
        assert_eq!(up.behind_access(&ack), BOTTLENECK);
        assert_eq!(up.leave(&data), NodeId(FIRST + 4));
        assert_eq!(up.behind_delay(&packet(CLIENT, server(0))), SINK);
        let (request, answer) = (session_client(1, 9), server(0));
        assert_eq!(down.behind_access(&packet(answer, request)), down.session(1));
        assert_eq!(down.behind_delay(&packet(request, answer)), down.session(1));
        assert_eq!(down.session(1).0 + 1, down.host(0, false).0, "sessions stand before transfers");
    }
}
