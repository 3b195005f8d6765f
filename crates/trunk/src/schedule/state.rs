//! The schedulers at work: the state of each, and the links that it picks.

use super::{Candidates, earliest, redundant, round_robin, srr, trr};
use crate::config::Scheduler;

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
