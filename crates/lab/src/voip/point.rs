//! One point of a sweep, worked out from a plan: the input of both engines.

use sheaf_baseline::kau;
use sheaf_stage::{Duration, Instant};
use sheaf_voice::emodel::Codec;
use sheaf_voice::source::{Pattern, Source};
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
    /// Treatment of packets by the hosts, before the radio has them.
    pub queueing: Queueing,
    /// Time before anything is measured.
    pub warm_up: Duration,
    /// Time that is measured.
    pub duration: Duration,
    /// Seed of all randomness.
    pub seed: u64,
}

impl Point {
    /// The talker of flow `index`: the same on both engines and under all treatments.
    pub fn source(&self, index: usize) -> Source {
        let seed = self.seed.wrapping_add((index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Source::new(self.flows[index].pattern.clone(), seed)
    }

    /// The time during which packets are sent that count.
    pub fn measured(&self) -> Range<Instant> {
        let start = Instant::ZERO + self.warm_up;
        start..start + self.duration
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
}

/// The treatment of packets before the radio has them.
#[derive(Clone, Debug)]
pub enum Queueing {
    /// The radio's queue has all of them.
    Plain,
    /// Ours.
    Sheaf(Aggregation),
    /// The thesis' qdisc over a device that holds one packet.
    Kau(kau::Config),
}

/// The aggregation of the hosts.
#[derive(Clone, Debug)]
pub struct Aggregation {
    /// Policy and parameters.
    pub config: sheaf_aggregate::Config,
    /// Host up to which packets share frames.
    pub mode: Mode,
}

/// The host that splits a meta packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The next hop; every router splits and gathers again.
    Hop,
    /// The destination; routers in between forward it as an ordinary packet.
    End,
}

/// The address of host `index`, on both engines: 10.0.0.1 for the first. Plans have at most 250.
pub fn address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, index as u8 + 1)
}

/// The host that has `address`.
pub fn host(address: [u8; 4]) -> usize {
    usize::from(address[3].wrapping_sub(1))
}
