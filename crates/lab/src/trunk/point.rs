//! One point, worked out: the input of both engines.

use crate::tcp::Congestion;
use serde::{Deserialize, Serialize};
use sheaf_medium::PathLoss;
use sheaf_stage::{Bitrate, Duration, Instant};
use sheaf_trunk::Scheduler;
use std::ops::Range;

/// Everything that an engine needs to run one point.
#[derive(Clone, Debug)]
pub struct Point {
    /// The links of the trunk, each on a channel of its own; 1 to 16.
    pub links: Vec<Link>,
    /// The use that is made of them together.
    pub treatment: Treatment,
    /// Traffic over them.
    pub traffic: Traffic,
    /// Congestion control of TCP, of the neighbours, too.
    pub tcp: Congestion,
    /// Frames that each radio's transmit queue holds.
    pub queue: usize,
    /// Time before anything is measured.
    pub warm_up: Duration,
    /// Time that is measured.
    pub duration: Duration,
    /// Seed of all randomness.
    pub seed: u64,
}

impl Point {
    /// The time during which packets count.
    pub fn measured(&self) -> Range<Instant> {
        let start = Instant::ZERO + self.warm_up;
        start..start + self.duration
    }

    /// The point that measures link `index` alone, without a trunk.
    pub fn alone(&self, index: usize) -> Point {
        Point {
            links: vec![self.links[index].clone()],
            treatment: Treatment::Single,
            // A link's channel is the same channel alone as in the trunk.
            seed: self.link_seed(index),
            ..self.clone()
        }
    }

    /// The seed of the channel of link `index`.
    pub fn link_seed(&self, index: usize) -> u64 {
        self.seed.wrapping_add((index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// The use that is made of several links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Nothing: packets go over the first link, as they do without a trunk.
    Single,
    /// Our trunk with this scheduler.
    Trunk(Scheduler),
    /// A trunk as its paper has it.
    Published(System),
}

/// A published trunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// One sequence and one timer (Chiao Tung 2004).
    Nctu,
    /// Surplus Round Robin with markers (1996).
    Srr,
    /// Trigger Round Robin (1998).
    Trr,
}

/// One link.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// 802.11b rate; where it moves, the rate follows the distance.
    pub rate: Bitrate,
    /// Bit error rate, 0..1, both ways.
    pub ber: f64,
    /// Other stations on the channel.
    pub neighbours: Option<Neighbours>,
    /// Movement of the two stations; `None` when they stand side by side.
    pub walk: Option<Walk>,
}

/// Another pair of stations on a channel, with a flow of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbours {
    /// Whether the sender is hidden: the link's receiver hears it, while it and the link's sender
    /// do not hear each other. Else all hear all.
    pub hidden: bool,
    /// UDP that it offers, in bit/s; `None` for a TCP flow.
    pub rate: Option<Bitrate>,
    /// Time from the start after which they are silent; `None` where they stay.
    pub leave: Option<Duration>,
}

/// The movement of two stations away from each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Walk {
    /// Metres between them when the measurement begins.
    pub from: f64,
    /// Metres a second.
    pub speed: f64,
    /// Effect of the distance on the rate.
    pub loss: PathLoss,
}

impl Walk {
    /// Metres between the stations at `now`, when measuring begins at `start`.
    pub fn distance(&self, start: Instant, now: Instant) -> f64 {
        self.from + self.speed * (now - start).as_secs_f64()
    }
}

/// Traffic from the first station to the second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Traffic {
    /// Bulk TCP flows.
    Tcp {
        /// Number of flows at the same time.
        flows: u16,
    },
    /// One UDP flow.
    Udp {
        /// Bit/s for each link of the trunk, IP headers included; `None` for as many as find room.
        rate: Option<Bitrate>,
        /// Bytes of a packet, IP header included.
        bytes: u16,
        /// Place for which a source without a rate waits.
        room: Room,
    },
}

/// The place for which a source waits whose socket blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Room {
    /// One on the link that is next.
    #[default]
    Next,
    /// One on any link; so a packet may be lost whose link is full.
    Any,
}

impl Room {
    /// Whether it is where a source waits for the next link.
    pub fn is_default(&self) -> bool {
        *self == Room::default()
    }
}
