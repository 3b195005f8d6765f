//! The contract of a stage.

use crate::{Counters, DropReason, Instant};

/// A pure state machine that packets pass through.
///
/// # Contract
/// 1. *Time is an argument.* `now` never decreases over the calls to one stage; the stage reads
///    no clock. The same calls return the same values.
/// 2. *One mutation, then drain.* After `enqueue` (or any other change of state) the owner calls
///    `dequeue` until it returns `None`.
/// 3. *Deadlines are in the future.* After draining at `now`, `next_deadline` is `None` or later
///    than `now`. Nothing becomes ready by time alone before that deadline.
/// 4. *Early calls change nothing.* `dequeue` before the deadline returns `None` and leaves the
///    stage as it was.
/// 5. *Nothing is lost silently.* At any time, packets in = out + dropped + held.
/// 6. *Results and counters agree.* `enqueue` returns `Err` exactly when it dropped the packet it
///    was given, with the reason under which it counted that packet. Packets that the stage held
///    before may be dropped by the same call; they are counted, not returned.
///
/// [`conformance`](crate::conformance) checks all six.
pub trait Stage {
    /// A packet on its way in.
    type In;
    /// A unit on its way out. May stand for several packets ([`Stage::packets`]).
    type Out;

    /// Takes `item` at `now` and holds it, or drops it, counts it and returns the reason.
    fn enqueue(&mut self, item: Self::In, now: Instant) -> Result<(), DropReason>;

    /// The next unit that leaves at `now`, or `None`.
    fn dequeue(&mut self, now: Instant) -> Option<Self::Out>;

    /// The time at which `dequeue` may next return something by the passing of time alone.
    fn next_deadline(&self) -> Option<Instant>;

    /// The balance sheet since the stage was made.
    fn counters(&self) -> Counters;

    /// Packets held now, counted in the queues themselves and not by the balance.
    fn held(&self) -> u64;

    /// Number of the packets that went in which `out` stands for.
    fn packets(_out: &Self::Out) -> u64 {
        1
    }
}
