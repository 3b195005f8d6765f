//! Schedulers: which link a packet takes.

mod earliest;
mod redundant;
mod round_robin;
mod rounds;
pub mod srr;
pub mod trr;

use sheaf_stage::Duration;
use sheaf_wire::trunk::MAX_LINKS;

/// Who decides which link a packet takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheduler {
    /// NCTU: in turn, passing over busy links.
    RoundRobin,
    /// Surplus Round Robin with markers (SIGCOMM 1996); a baseline. Both ends must use it.
    Srr,
    /// Trigger Round Robin (1998); a baseline. Both ends must use it.
    Trr,
    /// Where the packet would arrive first; the default.
    Earliest,
    /// A copy on every link.
    Redundant,
}

impl Scheduler {
    /// Every scheduler, in the order of their declaration.
    pub const ALL: [Scheduler; 5] = [
        Scheduler::RoundRobin,
        Scheduler::Srr,
        Scheduler::Trr,
        Scheduler::Earliest,
        Scheduler::Redundant,
    ];

    /// The name used in settings and statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Scheduler::RoundRobin => "round-robin",
            Scheduler::Srr => "srr",
            Scheduler::Trr => "trr",
            Scheduler::Earliest => "earliest",
            Scheduler::Redundant => "redundant",
        }
    }

    /// Whether the receiver must follow the sender's rounds instead of the sequence numbers.
    pub const fn strict(self) -> bool {
        matches!(self, Scheduler::Srr | Scheduler::Trr)
    }
}

/// What a scheduler knows of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// It exists and takes packets.
    pub usable: bool,
    /// Its queue has room for this packet.
    pub room: bool,
    /// Its queue is filled above the busy share.
    pub busy: bool,
    /// When this packet would arrive, on a clock that all links share.
    pub arrival: Duration,
}

/// All links, by their numbers.
pub type Candidates = [Candidate; MAX_LINKS];

/// What schedulers remember.
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
