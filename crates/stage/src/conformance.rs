//! The suite that every stage passes: drives it with operations and checks the contract of
//! [`Stage`] after each one.
//!
//! A crate calls [`check`] from a property test, with a factory for its stage and a list of
//! operations that the property-test library made up.

use crate::{Duration, Instant, Stage};

/// One operation on a stage.
#[derive(Clone, Debug)]
pub enum Op<I, C> {
    /// Offer a packet.
    Enqueue(I),
    /// Let this much time pass (stopping at every deadline on the way).
    Advance(Duration),
    /// Change something else about the stage (a device's fill, a rate …).
    Control(C),
}

/// Runs `ops` on two stages from `make` and checks every clause of the contract.
///
/// `control` applies [`Op::Control`]; `describe` turns an output into something comparable, so
/// that both runs can be held against each other.
///
/// # Panics
/// With a sentence that names the broken clause.
pub fn check<S, C, D>(
    make: impl Fn() -> S,
    ops: &[Op<S::In, C>],
    control: impl Fn(&mut S, &C, Instant),
    describe: impl Fn(&S::Out) -> D,
) where
    S: Stage,
    S::In: Clone,
    D: PartialEq + core::fmt::Debug,
{
    let first = run(&make, ops, &control, &describe);
    let second = run(&make, ops, &control, &describe);
    assert_eq!(first, second, "the same operations gave another trace");
}

fn run<S, C, D>(
    make: &impl Fn() -> S,
    ops: &[Op<S::In, C>],
    control: &impl Fn(&mut S, &C, Instant),
    describe: &impl Fn(&S::Out) -> D,
) -> Vec<(Instant, D)>
where
    S: Stage,
    S::In: Clone,
{
    let mut stage = make();
    let mut now = Instant::ZERO;
    let mut trace = Vec::new();
    for op in ops {
        match op {
            Op::Enqueue(item) => enqueue(&mut stage, item.clone(), now),
            Op::Control(c) => control(&mut stage, c, now),
            Op::Advance(duration) => {
                let until = now + *duration;
                while let Some(deadline) = stage.next_deadline().filter(|d| *d <= until) {
                    check_early_call_changes_nothing(&mut stage, now, deadline);
                    now = deadline;
                    drain(&mut stage, now, describe, &mut trace);
                }
                now = until;
            }
        }
        drain(&mut stage, now, describe, &mut trace);
    }
    trace
}

/// Offers a packet and checks that the result and the counters agree.
fn enqueue<S: Stage>(stage: &mut S, item: S::In, now: Instant) {
    let (before, held_before) = (stage.counters(), stage.held());
    let result = stage.enqueue(item, now);
    let (after, held) = (stage.counters(), stage.held());
    check_balance(stage);
    assert_eq!(after.packets_in, before.packets_in + 1, "one packet was offered");
    assert_eq!(after.packets_out, before.packets_out, "packets leave by dequeue alone");
    let dropped = after.dropped_total() - before.dropped_total();
    match result {
        // Then all that was dropped had been held before, and the new packet is held.
        Ok(()) => assert!(
            dropped <= held_before && held > 0,
            "a packet was taken, but {dropped} were dropped of {held_before} held: {after:?}"
        ),
        Err(reason) => assert!(
            after.dropped(reason) > before.dropped(reason),
            "a packet was dropped as {reason}, which was not counted: {after:?}"
        ),
    }
}

fn drain<S: Stage, D>(
    stage: &mut S,
    now: Instant,
    describe: &impl Fn(&S::Out) -> D,
    trace: &mut Vec<(Instant, D)>,
) {
    // A stage holds finitely many packets; one that goes on for ever would hang the test.
    let mut left = 1_000_000u32;
    while let Some(out) = stage.dequeue(now) {
        trace.push((now, describe(&out)));
        left = left.checked_sub(1).expect("dequeue never came to an end");
    }
    if let Some(deadline) = stage.next_deadline() {
        assert!(
            deadline > now,
            "after draining at {now:?} the deadline is {deadline:?}, not later"
        );
    }
    check_balance(stage);
}

fn check_early_call_changes_nothing<S: Stage>(stage: &mut S, now: Instant, deadline: Instant) {
    let before = (stage.counters(), stage.held());
    let early = deadline - Duration::from_nanos(1);
    if early > now {
        assert!(stage.dequeue(early).is_none(), "something left 1 ns before its deadline");
        assert_eq!(before, (stage.counters(), stage.held()), "an early call changed the stage");
        assert_eq!(Some(deadline), stage.next_deadline(), "an early call moved the deadline");
    }
}

fn check_balance<S: Stage>(stage: &S) {
    let counters = stage.counters();
    assert_eq!(
        counters.packets_in,
        counters.packets_out + counters.dropped_total() + stage.held(),
        "packets in are not out + dropped + held: {counters:?}, held {}",
        stage.held()
    );
}
