//! Schedulers: each picks the link of a packet by one rule.

mod earliest;
mod redundant;
mod round_robin;
mod rounds;
pub mod srr;
mod state;
pub mod trr;

use sheaf_stage::Duration;
use sheaf_wire::trunk::MAX_LINKS;

pub(crate) use earliest::TOO_LATE;
pub(crate) use state::State;

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
