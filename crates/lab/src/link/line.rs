//! One direction of a link under the virtual clock: ours, or the published system beside it.

use super::plan::{Point, Shaper};
use sheaf_baseline::interface::{self, Interface};
use sheaf_baseline::netem::{self, NetEm};
use sheaf_emulator::queue::fifo::FifoConfig;
use sheaf_emulator::{Chance, Delay, Limit, Link, LinkConfig, Loss, Overhead, Packet, QueueConfig};
use sheaf_stage::{Instant, Stage};
use sheaf_wire::ethernet::HEADER_LEN;

/// One direction of a link. Packets begin with IP.
#[derive(Debug)]
pub(super) enum Line {
    /// The stage of `sheaf emulate`, and the number of the next packet.
    Emulated(Box<Link>, u64),
    /// NetEm 3.2 with a token bucket.
    NetEm(NetEm),
    /// An interface at its line rate.
    Interface(Interface),
}

impl Line {
    /// The direction of `point`'s link whose randomness is that of `seed`.
    ///
    /// # Panics
    /// When a published system has no rate, which the plan's check refuses.
    pub fn new(point: &Point, seed: u64) -> anyhow::Result<Line> {
        let (delay, limit) = (point.rtt / 2, point.limit as usize);
        let rate = || point.rate.expect("the plan is checked");
        Ok(match point.shaper {
            Shaper::TwoQueues | Shaper::OneQueue | Shaper::None => {
                Line::Emulated(Box::new(Link::new(config(point), seed)?), 0)
            }
            Shaper::Tbf => Line::NetEm(NetEm::new(netem::Config {
                delay,
                rate: rate(),
                burst: netem::BURST,
                limit,
                link_header: HEADER_LEN as u64 + u64::from(point.overhead),
            })),
            Shaper::Interface => {
                let config = interface::Config { rate: rate(), delay, limit };
                Line::Interface(Interface::new(config))
            }
        })
    }

    /// Takes a packet that arrives at `now`. What is dropped does not arrive at the other end.
    pub fn enqueue(&mut self, packet: Vec<u8>, now: Instant) {
        let _ = match self {
            Line::Emulated(link, number) => {
                *number += 1;
                link.enqueue(Packet::new(packet, now, *number - 1), now)
            }
            Line::NetEm(netem) => netem.enqueue(packet, now),
            Line::Interface(interface) => interface.enqueue(packet, now),
        };
    }

    /// The next packet that arrives at the other end by `now`.
    pub fn dequeue(&mut self, now: Instant) -> Option<Vec<u8>> {
        match self {
            Line::Emulated(link, _) => link.dequeue(now).map(|packet| packet.bytes),
            Line::NetEm(netem) => netem.dequeue(now),
            Line::Interface(interface) => interface.dequeue(now),
        }
    }

    /// Time of the next arrival at the other end.
    pub fn next_deadline(&self) -> Option<Instant> {
        match self {
            Line::Emulated(link, _) => link.next_deadline(),
            Line::NetEm(netem) => netem.next_deadline(),
            Line::Interface(interface) => interface.next_deadline(),
        }
    }

    /// Packets that wait or are under way.
    pub fn held(&self) -> u64 {
        match self {
            Line::Emulated(link, _) => link.held(),
            Line::NetEm(netem) => netem.held(),
            Line::Interface(interface) => interface.held(),
        }
    }
}

/// One direction of `point`'s link as the emulator has it.
pub(super) fn config(point: &Point) -> LinkConfig {
    LinkConfig {
        rate: point.rate,
        // Simulated packets begin with IP; rates count Ethernet frames.
        overhead: Overhead {
            packet: HEADER_LEN as i32 + i32::from(point.overhead),
            ..Overhead::default()
        },
        queue: QueueConfig::Fifo(FifoConfig {
            limit: Limit::Packets(point.limit),
            ..FifoConfig::default()
        }),
        single: point.shaper == Shaper::OneQueue,
        delay: Delay::constant(point.rtt / 2),
        loss: match point.loss {
            0.0 => Loss::None,
            loss => Loss::Random(Chance::of(loss)),
        },
        ..LinkConfig::default()
    }
}
