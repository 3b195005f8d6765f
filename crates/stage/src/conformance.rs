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

/// Runs `ops` on two stages from `make` and checks every clause of the contract. The stage never
/// drops a packet that it holds to take another one.
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
    check_both(false, &make, ops, &control, &describe);
}

/// The same for a stage that may drop packets that it holds to take another one. Then a packet that
/// was dropped but returned as taken is found only where nothing else can have been dropped.
///
/// # Panics
/// With a sentence that names the broken clause.
pub fn check_displacing<S, C, D>(
    make: impl Fn() -> S,
    ops: &[Op<S::In, C>],
    control: impl Fn(&mut S, &C, Instant),
    describe: impl Fn(&S::Out) -> D,
) where
    S: Stage,
    S::In: Clone,
    D: PartialEq + core::fmt::Debug,
{
    check_both(true, &make, ops, &control, &describe);
}

fn check_both<S, C, D>(
    displaces: bool,
    make: &impl Fn() -> S,
    ops: &[Op<S::In, C>],
    control: &impl Fn(&mut S, &C, Instant),
    describe: &impl Fn(&S::Out) -> D,
) where
    S: Stage,
    S::In: Clone,
    D: PartialEq + core::fmt::Debug,
{
    let first = run(displaces, make, ops, control, describe);
    let second = run(displaces, make, ops, control, describe);
    assert_eq!(first, second, "the same operations gave another trace");
}

fn run<S, C, D>(
    displaces: bool,
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
            Op::Enqueue(item) => enqueue(displaces, &mut stage, item.clone(), now),
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
fn enqueue<S: Stage>(displaces: bool, stage: &mut S, item: S::In, now: Instant) {
    let (before, held_before) = (stage.counters(), stage.held());
    let result = stage.enqueue(item, now);
    let (after, held) = (stage.counters(), stage.held());
    check_balance(stage);
    assert_eq!(after.packets_in, before.packets_in + 1, "one packet was offered");
    assert_eq!(after.packets_out, before.packets_out, "packets leave by dequeue alone");
    let dropped = after.dropped_total() - before.dropped_total();
    match result {
        // The new packet is held; only packets held before can have been dropped for it.
        Ok(()) => assert!(
            held > 0 && dropped <= if displaces { held_before } else { 0 },
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Counters, DropReason};

    /// A queue with room for one packet, which leaves after 1 ms; its results can be wrong.
    struct OnePlace {
        due: Option<Instant>,
        counters: Counters,
        results: Results,
    }

    #[derive(Clone, Copy)]
    enum Results {
        Right,
        SaysTaken,
        SaysDropped,
        WrongReason,
    }

    impl Stage for OnePlace {
        type In = ();
        type Out = ();

        fn enqueue(&mut self, (): (), now: Instant) -> Result<(), DropReason> {
            self.counters.packets_in += 1;
            let result = match self.due {
                Some(_) => Err(self.counters.refuse(DropReason::QueueFull)),
                None => {
                    self.due = Some(now + Duration::from_millis(1));
                    Ok(())
                }
            };
            match self.results {
                Results::Right => result,
                Results::SaysTaken => Ok(()),
                Results::SaysDropped => Err(DropReason::QueueFull),
                Results::WrongReason => result.map_err(|_| DropReason::TotalFull),
            }
        }

        fn dequeue(&mut self, now: Instant) -> Option<()> {
            self.due.take_if(|due| *due <= now)?;
            self.counters.packets_out += 1;
            Some(())
        }

        fn next_deadline(&self) -> Option<Instant> {
            self.due
        }

        fn counters(&self) -> Counters {
            self.counters
        }

        fn held(&self) -> u64 {
            u64::from(self.due.is_some())
        }
    }

    fn check_one_place(results: Results) {
        let make = || OnePlace { due: None, counters: Counters::default(), results };
        let ops = [Op::Enqueue(()), Op::Enqueue(()), Op::Enqueue(()), Op::Control(())];
        check(make, &ops, |_, (), _| {}, |()| ());
    }

    #[test]
    fn a_stage_whose_results_and_counters_agree_passes() {
        check_one_place(Results::Right);
    }

    #[test]
    #[should_panic(expected = "a packet was taken, but 1 were dropped")]
    fn a_drop_that_is_not_returned_is_found() {
        check_one_place(Results::SaysTaken);
    }

    #[test]
    #[should_panic(expected = "which was not counted")]
    fn a_packet_that_is_taken_and_returned_as_dropped_is_found() {
        check_one_place(Results::SaysDropped);
    }

    #[test]
    #[should_panic(expected = "dropped as total-full, which was not counted")]
    fn a_reason_that_is_not_the_counted_one_is_found() {
        check_one_place(Results::WrongReason);
    }
}
