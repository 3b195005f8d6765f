//! The contract of a stage.

use crate::{Counters, Instant};

/// A pure state machine that packets pass through.
///
/// # Contract
/// 1. *Time is an argument.* `now` never decreases over the calls to one stage; the stage reads
///    no clock. Given the same calls it gives the same answers.
/// 2. *One mutation, then drain.* After `enqueue` (or any other change of state) the owner calls
///    `dequeue` until it answers `None`.
/// 3. *Deadlines are in the future.* After draining at `now`, `next_deadline` is `None` or later
///    than `now`. Nothing becomes ready by time alone before that deadline.
/// 4. *Early calls change nothing.* `dequeue` before the deadline answers `None` and leaves the
///    stage as it was.
/// 5. *Nothing is lost silently.* At any time, packets in = out + dropped + held.
///
/// [`conformance`](crate::conformance) checks all five.
pub trait Stage {
    /// What goes in.
    type In;
    /// What comes out. May stand for several packets ([`Stage::packets`]).
    type Out;

    /// Takes `item` at `now`: holds it, or drops it and counts why.
    fn enqueue(&mut self, item: Self::In, now: Instant);

    /// The next thing that leaves at `now`, or `None`.
    fn dequeue(&mut self, now: Instant) -> Option<Self::Out>;

    /// When `dequeue` may next answer by the passing of time alone.
    fn next_deadline(&self) -> Option<Instant>;

    /// The balance sheet since the stage was made.
    fn counters(&self) -> Counters;

    /// Packets held now, counted in the queues themselves and not by the balance.
    fn held(&self) -> u64;

    /// How many of the packets that went in `out` stands for.
    fn packets(_out: &Self::Out) -> u64 {
        1
    }
}
