//! The trunks of the papers, in the place of ours.

use super::point::System;
use sheaf_baseline::{Frame, nctu, srr, trr};
use sheaf_stage::{Duration, Instant, Stage};

/// Places of a transmit queue that packets leave to markers and triggers, which are sent whatever
/// the queue has: one of each round, and one by time.
const FOR_MARKERS: u64 = 2;

/// One end of a published trunk: both of its halves.
pub enum End {
    /// One sequence, one timer.
    Nctu(nctu::Sender, nctu::Receiver),
    /// Surplus Round Robin.
    Srr(srr::Sender, srr::Receiver),
    /// Trigger Round Robin.
    Trr(trr::Sender, trr::Receiver),
}

/// Does the same with either half, whose operations have the same names.
macro_rules! each {
    ($end:expr, $sender:pat, $receiver:pat => $value:expr) => {
        match $end {
            End::Nctu($sender, $receiver) => $value,
            End::Srr($sender, $receiver) => $value,
            End::Trr($sender, $receiver) => $value,
        }
    };
}

impl End {
    /// An end with `links` links of one rate.
    pub fn new(system: System, links: usize) -> End {
        match system {
            System::Nctu => End::Nctu(nctu::Sender::new(links), nctu::Receiver::new()),
            System::Srr => {
                let config = srr::Config::equal(links);
                let receiver = srr::Receiver::new(&config);
                End::Srr(srr::Sender::new(config), receiver)
            }
            System::Trr => End::Trr(trr::Sender::new(links, trr::BURST), trr::Receiver::new(links)),
        }
    }

    /// Takes a packet of this host; false when it finds no room, and is dropped and counted there.
    pub fn send(&mut self, packet: Vec<u8>, now: Instant) -> bool {
        each!(self, sender, _ => sender.enqueue(packet, now)).is_ok()
    }

    /// Takes a frame that came.
    pub fn receive(&mut self, frame: Frame, now: Instant) {
        // What is refused is counted there by its reason.
        let _ = match self {
            End::Nctu(_, receiver) => receiver.enqueue(frame, now),
            End::Srr(_, receiver) => receiver.receive(frame, now),
            End::Trr(_, receiver) => receiver.receive(frame, now),
        };
    }

    /// The next packet for this host.
    pub fn deliver(&mut self, now: Instant) -> Option<Vec<u8>> {
        each!(self, _, receiver => receiver.dequeue(now))
    }

    /// Looks how full the links are: `waiting` frames are in the queue of each, of at most `limit`.
    pub fn look(&mut self, waiting: &[u64], limit: u64) {
        if let End::Nctu(sender, _) = self {
            let queues = waiting.iter().enumerate();
            queues.for_each(|(link, waiting)| sender.set_queue(link, *waiting, limit));
        }
    }

    /// Whether a packet finds a place in the queue of the next link.
    pub fn has_room(&self, waiting: &[u64], limit: u64) -> bool {
        let places = match self {
            End::Nctu(sender, _) => limit.saturating_sub(waiting[sender.link()]),
            End::Srr(sender, _) => places(waiting, sender.link(), limit),
            End::Trr(sender, _) => places(waiting, sender.link(), limit),
        };
        places > self.held()
    }

    /// Packets that wait to be sent.
    pub fn held(&self) -> u64 {
        each!(self, sender, _ => sender.held())
    }

    /// The next frame for a link. The round robins wait for room on the link in turn; NCTU's trunk
    /// does not.
    pub fn frame(&mut self, waiting: &[u64], limit: u64, now: Instant) -> Option<Frame> {
        self.look(waiting, limit);
        match self {
            End::Nctu(sender, _) => sender.dequeue(now),
            End::Srr(sender, _) => {
                (places(waiting, sender.link(), limit) > 0).then(|| sender.dequeue(now))?
            }
            End::Trr(sender, _) => {
                (places(waiting, sender.link(), limit) > 0).then(|| sender.dequeue(now))?
            }
        }
    }

    /// The earliest deadline of its receiver, and of its sender where that waits for no link.
    pub fn next_deadline(&self, waiting: &[u64], limit: u64) -> Option<Instant> {
        let sender = match self {
            End::Srr(sender, _) if places(waiting, sender.link(), limit) == 0 => None,
            _ => each!(self, sender, _ => sender.next_deadline()),
        };
        let receiver = each!(self, _, receiver => receiver.next_deadline());
        sender.into_iter().chain(receiver).min()
    }

    /// Packets that came too late, and the reordering timer, where there is one.
    pub fn late(&self) -> Option<(u64, Duration)> {
        match self {
            End::Nctu(_, receiver) => Some((receiver.late(), receiver.timer())),
            End::Srr(..) | End::Trr(..) => None,
        }
    }
}

/// Places for packets in the queue of `link`.
fn places(waiting: &[u64], link: usize, limit: u64) -> u64 {
    limit.saturating_sub(waiting[link] + FOR_MARKERS)
}
