//! Schedulers: each picks the link of a packet by one rule.

mod earliest;
mod redundant;
mod round_robin;
mod rounds;
pub mod srr;
pub mod trr;

use crate::config::Scheduler;
use sheaf_stage::Duration;
use sheaf_wire::trunk::MAX_LINKS;

/// State of a link, as schedulers see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// It exists and takes packets.
    pub usable: bool,
    /// Its queue has room for this packet.
    pub room: bool,
    /// Its queue is filled above the busy share.
    pub busy: bool,
    /// Time at which this packet would arrive, on a clock that all links share.
    pub arrival: Duration,
}

/// All links, by their numbers.
pub type Candidates = [Candidate; MAX_LINKS];

/// State of all schedulers.
#[derive(Clone, Debug)]
pub(crate) struct State {
    turn: round_robin::Turn,
    pub(crate) srr: srr::Rounds,
    pub(crate) trr: trr::Rounds,
}

impl State {
    pub(crate) fn new() -> Self {
        State {
            turn: round_robin::Turn::default(),
            srr: srr::Rounds::default(),
            trr: trr::Rounds::default(),
        }
    }

    /// The links that take a packet of `len` bytes, as a bit each; none when it must be dropped.
    pub(crate) fn pick(&mut self, scheduler: Scheduler, links: &Candidates, len: usize) -> u16 {
        let bit = |link: Option<usize>| link.map_or(0, |link| 1 << link);
        match scheduler {
            Scheduler::RoundRobin => bit(self.turn.pick(links)),
            Scheduler::Earliest => bit(earliest::pick(links)),
            Scheduler::Redundant => redundant::pick(links),
            Scheduler::Srr => bit(self.srr.pick(links, len)),
            Scheduler::Trr => bit(self.trr.pick(links, len)),
        }
    }
}
