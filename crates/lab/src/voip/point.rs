//! One point of a sweep, worked out from a plan: the input of both engines.

use super::walk::Walking;
use sheaf_baseline::kau;
use sheaf_stage::{Duration, Instant};
use sheaf_voice::emodel::Codec;
use sheaf_voice::source::{self, Pattern, Source};
use std::net::Ipv4Addr;
use std::ops::Range;

/// The port that all calls use, as RTP does by convention.
pub const RTP_PORT: u16 = 5004;

/// Everything that an engine needs to run one point.
#[derive(Clone, Debug)]
pub struct Point {
    /// Names of the hosts; host `i` has radio `i` and [`address`]`(i)`.
    pub nodes: Vec<String>,
    /// The next host from host `i` towards host `j`: `next_hop[i][j]`. Undefined on the diagonal.
    pub next_hop: Vec<Vec<usize>>,
    /// The channel and the radios.
    pub medium: sheaf_medium::Config,
    /// The calls, one direction each.
    pub flows: Vec<Flow>,
    /// The codec of all calls.
    pub codec: Codec,
    /// Packets that the socket of each flow holds; `None` where senders never wait.
    pub socket: Option<u32>,
    /// Time between two packets of a flow; `None` for that of the codec.
    pub interval: Option<Duration>,
    /// Bytes that the mesh protocol adds to each packet on the air.
    pub encapsulation: u32,
    /// Frames that each host sends to all besides calls: the time between two, and bytes.
    pub broadcasts: Vec<(Duration, u32)>,
    /// Treatment of packets by the hosts, before the radio has them.
    pub queueing: Queueing,
    /// The same by hosts without the treatment: between the ends, where packets share frames from
    /// end to end, and those that are not upgraded.
    pub between: Queueing,
    /// For each host, whether it has that treatment and can split.
    pub upgraded: Vec<bool>,
    /// Whether hosts gather towards those, too, that cannot split.
    pub is_blind: bool,
    /// Whether packets leave in group-addressed frames.
    pub is_group: bool,
    /// Rule by which a host has a route over a neighbour.
    pub routes: Routes,
    /// The station that walks; `None` where all stand.
    pub walking: Option<Walking>,
    /// Time before anything is measured.
    pub warm_up: Duration,
    /// Time that is measured, of each turn.
    pub duration: Duration,
    /// Number of turns that the talkers take; 1 where all talk at once.
    pub turns: u32,
    /// Whether the latency over time is kept.
    pub over_time: bool,
    /// Seed of all randomness.
    pub seed: u64,
}

impl Point {
    /// Treatment of packets by host `index`: from end to end only the ends gather, and of a mixed
    /// mesh only the upgraded hosts.
    pub fn queueing(&self, index: usize) -> &Queueing {
        let is_end = || self.flows.iter().any(|flow| flow.from == index || flow.to == index);
        match &self.queueing {
            _ if !self.upgraded[index] => &self.between,
            Queueing::Sheaf(Aggregation { mode: Mode::End, .. }) | Queueing::Kau(_, Mode::End)
                if !is_end() =>
            {
                &self.between
            }
            queueing => queueing,
        }
    }

    /// The times at which flow `index` sends: the same on both engines and under all treatments.
    pub fn talk(&self, index: usize) -> Talk {
        let seed = self.seed.wrapping_add((index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let flow = &self.flows[index];
        let end = self.warm_up + self.duration * (flow.turn + 1);
        // The first turn begins with the warm-up.
        let begin = if flow.turn == 0 { Duration::ZERO } else { end - self.duration };
        let end = Instant::ZERO + end;
        let source = Source::new(flow.pattern.clone(), seed);
        Talk { source, interval: self.interval, begin, end }
    }

    /// The time during which packets are sent that count.
    pub fn measured(&self) -> Range<Instant> {
        let start = Instant::ZERO + self.warm_up;
        start..start + self.duration * self.turns
    }
}

/// The times at which one flow sends, the first to the last.
#[derive(Clone, Debug)]
pub struct Talk {
    source: Source,
    /// Time between two packets, where it is not the source's.
    interval: Option<Duration>,
    begin: Duration,
    end: Instant,
}

impl Talk {
    /// The time from which on it is silent.
    pub fn end(&self) -> Instant {
        self.end
    }
}

impl Iterator for Talk {
    type Item = Instant;

    fn next(&mut self) -> Option<Instant> {
        let time = self.source.next()? - Instant::ZERO;
        let time = self.interval.map_or(time, |interval| {
            time.mul_f64(interval.as_secs_f64() / source::INTERVAL.as_secs_f64())
        });
        Some(Instant::ZERO + time + self.begin).filter(|time| *time < self.end)
    }
}

/// One direction of a call.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The host that talks.
    pub from: usize,
    /// The host that listens.
    pub to: usize,
    /// Talk spurts and pauses.
    pub pattern: Pattern,
    /// The turn in which it talks, from 0.
    pub turn: u32,
}

/// The rule by which a host has a route over a neighbour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Routes {
    /// Always.
    Static,
    /// While it hears the neighbour's HELLO messages, as under AODV.
    Aodv {
        /// Share of these that is lost on each link besides collisions, 0..1.
        loss: f64,
    },
}

/// The treatment of packets before the radio has them.
#[derive(Clone, Debug)]
pub enum Queueing {
    /// The radio's queue has all of them.
    Plain,
    /// A queue of so many packets has those for which the device has no place.
    Fifo(usize),
    /// Ours.
    Sheaf(Aggregation),
    /// The thesis' qdisc.
    Kau(kau::Config, Mode),
}

/// The aggregation of the hosts.
#[derive(Clone, Debug)]
pub struct Aggregation {
    /// Policy and parameters.
    pub config: sheaf_aggregate::Config,
    /// Format of what is sent.
    pub format: sheaf_aggregate::Format,
    /// Host up to which packets share frames.
    pub mode: Mode,
    /// Rule by which the largest meta packet follows the link to each neighbour, up to that of the
    /// configuration; `None` where it is fixed.
    pub follows: Option<Follows>,
}

/// Rule by which sizes follow a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// By what hosts measure and tell each other.
    Measured,
    /// By the true bit error rate of the link, without delay.
    Known,
}

/// The host that splits a meta packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The next hop; every router splits and gathers again.
    Hop,
    /// The destination; routers in between forward it as an ordinary packet.
    End,
}

impl Mode {
    /// The host that splits packets to host `to`, whose next hop is `next_hop`.
    pub fn split_at(self, to: usize, next_hop: usize) -> usize {
        match self {
            Mode::Hop => next_hop,
            Mode::End => to,
        }
    }
}

/// The address of meta packets in group-addressed frames, the broadcast address of the hosts. They
/// carry packets to many groups, which frames to a single group ([`sheaf_wire::group`]) may not.
pub const ALL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 255);

/// The address of host `index`, on both engines: 10.0.0.1 for the first. Plans have at most 250.
pub fn address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, index as u8 + 1)
}

/// The host that has `address`.
pub fn host(address: [u8; 4]) -> usize {
    usize::from(address[3].wrapping_sub(1))
}
