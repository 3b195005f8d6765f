//! The way from a station's packets to its radios, under the virtual clock.

use super::message::Message;
use super::point::Room;
use super::published;
use sheaf_medium::RadioId;
use sheaf_sim::{NodeId, Outbox};
use sheaf_stage::{Duration, Instant};
use sheaf_trunk::{DeliveryMode, Endpoint, Fill, LinkId, Transmit};

/// Bytes that a place in a transmit queue counts as: the queue holds frames of any size.
const PLACE: u64 = 1508;

/// A radio of a station.
pub(super) struct Radio {
    channel: NodeId,
    radio: RadioId,
    /// The radio at the other end.
    to: RadioId,
}

impl Radio {
    /// The radio of end `end` of a link.
    pub fn new(channel: NodeId, radios: [RadioId; 2], end: usize) -> Radio {
        Radio { channel, radio: radios[end], to: radios[1 - end] }
    }
}

/// The radios of a station, one for each link.
pub(super) struct Radios {
    radios: Vec<Radio>,
    /// Frames in the transmit queue of each.
    waiting: Vec<u64>,
    /// Frames that fit into a transmit queue.
    limit: u64,
}

impl Radios {
    /// Radios whose queues are empty.
    pub fn new(radios: Vec<Radio>, limit: usize) -> Radios {
        let waiting = vec![0; radios.len()];
        Radios { radios, waiting, limit: limit as u64 }
    }

    /// Number of radios.
    pub fn len(&self) -> usize {
        self.radios.len()
    }

    /// Puts a frame into a transmit queue.
    fn send(&mut self, link: usize, bytes: Vec<u8>, out: &mut Outbox<Message>) {
        self.waiting[link] += 1;
        let Radio { channel, radio, to } = self.radios[link];
        out.send(channel, Message::Send { radio, to, bytes });
    }

    /// A frame left a transmit queue.
    pub fn done(&mut self, link: usize) {
        self.waiting[link] = self.waiting[link].saturating_sub(1);
    }
}

/// The way from a station's packets to its radios.
pub(super) enum Carrier {
    /// Over the first radio, as they are.
    Plain,
    /// Ours.
    Trunk(Box<Endpoint>),
    /// That of a paper.
    Published(Box<published::End>),
}

impl Carrier {
    /// Takes a frame that came on `link`; returns it where it is a packet of the station.
    pub fn receive(&mut self, link: usize, bytes: Vec<u8>, now: Instant) -> Option<Vec<u8>> {
        match self {
            Carrier::Plain => return Some(bytes),
            Carrier::Trunk(end) => {
                end.handle_frame(LinkId(link as u8), None, &bytes, now);
            }
            Carrier::Published(end) => end.receive(sheaf_baseline::Frame { link, bytes }, now),
        }
        None
    }

    /// Looks how full the radios are.
    pub fn look(&mut self, radios: &Radios) {
        match self {
            Carrier::Plain => {}
            Carrier::Trunk(end) => (0..radios.len()).for_each(|link| tell(end, link, radios)),
            Carrier::Published(end) => end.look(&radios.waiting, radios.limit),
        }
    }

    /// The next packet for the station.
    pub fn deliver(&mut self, now: Instant) -> Option<Vec<u8>> {
        match self {
            Carrier::Plain => None,
            Carrier::Trunk(end) => end.poll_deliver(now).map(<[u8]>::to_vec),
            Carrier::Published(end) => end.deliver(now),
        }
    }

    /// Whether another packet finds `room`. Ours holds packets until a link has room, so any does,
    /// as long as what it holds is not dropped for it.
    pub fn has_room(&self, radios: &Radios, room: Room, now: Instant) -> bool {
        let any = |held: u64| {
            radios.waiting.iter().sum::<u64>() + held < radios.limit * radios.len() as u64
        };
        match (self, room) {
            (Carrier::Plain, _) => any(0),
            (Carrier::Trunk(end), _) => any(end.sender().held()) && end.sender().has_room(now),
            (Carrier::Published(end), Room::Any) => any(end.held()),
            (Carrier::Published(end), Room::Next) => end.has_room(&radios.waiting, radios.limit),
        }
    }

    /// Takes a packet of the station. Where it cannot be sent, it is dropped and counted, as on an
    /// interface, and this is false.
    pub fn send(
        &mut self,
        packet: Vec<u8>,
        radios: &mut Radios,
        now: Instant,
        out: &mut Outbox<Message>,
    ) -> bool {
        match self {
            Carrier::Plain => {
                radios.send(0, packet, out);
                true
            }
            Carrier::Trunk(end) => end.handle_packet(&packet, DeliveryMode::Order, now).is_ok(),
            Carrier::Published(end) => end.send(packet, now),
        }
    }

    /// Gives the radios all frames that can go; `frame` is room to write them.
    pub fn transmit(
        &mut self,
        radios: &mut Radios,
        frame: &mut Vec<u8>,
        now: Instant,
        out: &mut Outbox<Message>,
    ) {
        match self {
            Carrier::Plain => {}
            Carrier::Trunk(end) => {
                while let Some(Transmit { link, .. }) = end.poll_transmit(now, frame) {
                    let link = usize::from(link.0);
                    radios.send(link, frame.clone(), out);
                    tell(end, link, radios);
                }
            }
            Carrier::Published(end) => {
                while let Some(frame) = end.frame(&radios.waiting, radios.limit, now) {
                    radios.send(frame.link, frame.bytes, out);
                }
            }
        }
    }

    /// Frames that came too late for the trunk, and its longest reordering timer; `None` where
    /// packets have no order to keep.
    pub fn late(&self) -> Option<(u64, Duration)> {
        match self {
            Carrier::Plain => None,
            Carrier::Trunk(end) => Some((end.stats().reorder.late, end.stats().timer)),
            Carrier::Published(end) => end.late(),
        }
    }

    /// Time at which there is something to do although nothing arrives.
    pub fn next_deadline(&self, radios: &Radios) -> Option<Instant> {
        match self {
            Carrier::Plain => None,
            Carrier::Trunk(end) => end.next_deadline(),
            Carrier::Published(end) => end.next_deadline(&radios.waiting, radios.limit),
        }
    }
}

/// Tells a trunk how full the radio of `link` is.
fn tell(end: &mut Endpoint, link: usize, radios: &Radios) {
    let fill = Fill { waiting: radios.waiting[link] * PLACE, limit: radios.limit * PLACE };
    end.set_link_queue(LinkId(link as u8), Some(fill));
}
