//! Behaviour of the resequencer.

use proptest::prelude::*;
use sheaf_stage::conformance::{self, Op};
use sheaf_stage::{DropReason, Duration, Instant, Stage};
use sheaf_trunk::{Arrival, Delivery, Flow, ReorderConfig, Resequencer};
use sheaf_wire::trunk::{Packing, Predecessor};

const MS: Duration = Duration::from_millis(1);

fn resequencer(links: u8, first: u32) -> Resequencer {
    let mut resequencer = Resequencer::new(ReorderConfig::default(), first).unwrap();
    (0..links).for_each(|link| resequencer.link_up(link));
    resequencer
}

fn arrival(link: u8, seq: u32, predecessor: Predecessor, flow: u64) -> Arrival {
    let flow = Flow::of_hash(flow);
    Arrival {
        link,
        seq,
        predecessor,
        flow,
        urgent: false,
        hasty: false,
        packing: Packing::One,
        payload: vec![0; 100],
    }
}

/// One flow that sends every frame.
fn next(link: u8, seq: u32) -> Arrival {
    arrival(link, seq, Predecessor::Back(1), 0)
}

fn drain(resequencer: &mut Resequencer, now: Instant) -> Vec<u32> {
    std::iter::from_fn(|| resequencer.dequeue(now)).map(|delivery| delivery.seq).collect()
}

/// Offers a frame, which may be dropped, and takes out what is ready.
fn put(resequencer: &mut Resequencer, arrival: Arrival, now: Instant) -> Vec<u32> {
    let _ = resequencer.enqueue(arrival, now);
    drain(resequencer, now)
}

#[test]
fn an_early_packet_waits_for_the_missing_one() {
    let mut r = resequencer(2, 0);
    assert_eq!(put(&mut r, next(1, 1), Instant::ZERO), []);
    assert_eq!(put(&mut r, next(1, 2), Instant::ZERO), []);
    assert_eq!(put(&mut r, next(0, 0), Instant::ZERO), [0, 1, 2]);
}

#[test]
fn the_numbers_wrap() {
    let mut r = resequencer(2, u32::MAX - 1);
    assert_eq!(put(&mut r, next(1, 0), Instant::ZERO), []);
    assert_eq!(put(&mut r, next(0, u32::MAX - 1), Instant::ZERO), [u32::MAX - 1]);
    assert_eq!(put(&mut r, next(0, u32::MAX), Instant::ZERO), [u32::MAX, 0]);
}

#[test]
fn a_loss_stalls_only_its_own_flow() {
    let mut r = resequencer(2, 0);
    // Flow 1 sends 0 and 2, flow 2 sends 1 and 3; 0 is lost on link 0.
    assert_eq!(put(&mut r, arrival(1, 1, Predecessor::Free, 2), Instant::ZERO), [1]);
    assert_eq!(put(&mut r, arrival(1, 2, Predecessor::Back(2), 1), Instant::ZERO), []);
    assert_eq!(put(&mut r, arrival(1, 3, Predecessor::Back(2), 2), Instant::ZERO), [3]);
}

/// The same, which waits for no repair.
fn hasty(link: u8, seq: u32) -> Arrival {
    Arrival { hasty: true, ..next(link, seq) }
}

#[test]
fn what_is_hasty_waits_for_what_is_late_and_for_no_repair() {
    let mut r = resequencer(2, 0);
    r.set_repair_wait(100 * MS, 15 * MS);
    assert_eq!(put(&mut r, hasty(1, 1), Instant::ZERO), []);
    assert_eq!(put(&mut r, hasty(0, 0), Instant::ZERO + 9 * MS), [0, 1], "it was late");
    // 2 is lost, and has data. It comes again after 60 ms.
    let now = Instant::from_millis(20);
    assert_eq!(put(&mut r, hasty(0, 3), now), []);
    assert_eq!(put(&mut r, hasty(1, 4), now + 5 * MS), []);
    assert_eq!(put(&mut r, arrival(1, 5, Predecessor::Back(3), 0), now + 6 * MS), []);
    assert_eq!(r.next_deadline(), Some(now + 15 * MS));
    assert_eq!(drain(&mut r, now + 15 * MS), [3, 4], "the second waits for the first alone");
    assert_eq!(put(&mut r, next(1, 2), now + 60 * MS), [2, 5], "data keeps its order");
    let stats = r.stats();
    assert_eq!((stats.late, stats.timed_out, stats.passed), (0, 0, 0), "no host saw a loss");
}

#[test]
fn what_is_hasty_and_comes_too_late_is_no_disorder() {
    let mut r = resequencer(2, 0);
    assert_eq!(put(&mut r, hasty(1, 1), Instant::ZERO), [1], "nothing was late so far");
    assert_eq!(put(&mut r, hasty(0, 0), Instant::ZERO + MS), [0]);
    assert_eq!((r.stats().late, r.stats().disordered), (0, 0));
}

#[test]
fn a_number_that_every_link_has_passed_is_lost_without_a_timer() {
    let mut r = resequencer(2, 0);
    assert_eq!(put(&mut r, next(0, 1), Instant::ZERO), []);
    assert_eq!(put(&mut r, next(1, 2), Instant::ZERO), [1, 2], "0 is on neither link any more");
    assert_eq!(r.stats().passed, 1);
}

#[test]
fn a_report_that_says_how_far_a_link_is_settles_a_loss() {
    let mut r = resequencer(2, 0);
    assert_eq!(put(&mut r, next(0, 1), Instant::ZERO), []);
    r.passed(1, 1, Instant::ZERO);
    assert_eq!(drain(&mut r, Instant::ZERO), [1]);
}

#[test]
fn nothing_waits_for_a_link_that_is_down() {
    let mut r = resequencer(2, 0);
    assert_eq!(put(&mut r, next(0, 1), Instant::ZERO), []);
    r.link_down(1, Instant::ZERO);
    assert_eq!(drain(&mut r, Instant::ZERO), [1]);
}

#[test]
fn when_the_timer_fires_the_waiting_go_up_and_a_late_one_at_once() {
    let mut r = resequencer(2, 0);
    put(&mut r, next(1, 1), Instant::ZERO);
    put(&mut r, next(1, 2), Instant::ZERO + MS);
    assert_eq!(r.next_deadline(), Some(Instant::from_millis(80)));
    assert_eq!(drain(&mut r, Instant::from_millis(79)), []);
    assert_eq!(drain(&mut r, Instant::from_millis(80)), [1, 2]);
    assert_eq!(r.timer(Flow::of_hash(0)), 80 * MS);
    r.enqueue(next(0, 0), Instant::from_millis(81)).unwrap();
    let late = r.dequeue(Instant::from_millis(81)).unwrap();
    assert!(late.late && late.seq == 0);
    assert_eq!(r.timer(Flow::of_hash(0)), 81 * MS, "a late packet adds a millisecond");
    let stats = r.stats();
    assert_eq!((stats.late, stats.disordered, stats.timed_out), (1, 1, 1));
}

#[test]
fn a_fired_timer_keeps_the_order_of_what_waits_of_the_flow() {
    let mut r = resequencer(2, 0);
    // 3 waits for 2, which is missing; then 1 comes and waits for 0, with a later deadline.
    put(&mut r, next(1, 3), Instant::ZERO);
    put(&mut r, next(1, 1), Instant::ZERO + 5 * MS);
    assert_eq!(drain(&mut r, Instant::from_millis(80)), [1, 3]);
    assert_eq!(r.stats().disordered, 0);
}

#[test]
fn waiting_in_vain_does_not_lengthen_the_timer() {
    let mut r = resequencer(2, 0);
    for n in 0..20 {
        let now = Instant::from_millis(1_000 * n);
        put(&mut r, next(1, 2 * n as u32 + 1), now);
        drain(&mut r, now + 500 * MS);
    }
    assert!(r.timer(Flow::of_hash(0)) == 40 * MS, "{:?}", r.timer(Flow::of_hash(0)));
}

#[test]
fn a_duplicate_is_dropped_wherever_the_first_one_is() {
    let mut r = resequencer(2, 0);
    assert_eq!(put(&mut r, next(0, 0), Instant::ZERO), [0]);
    assert_eq!(put(&mut r, next(1, 0), Instant::ZERO), [], "handed up");
    put(&mut r, next(0, 2), Instant::ZERO);
    assert_eq!(put(&mut r, next(0, 2), Instant::ZERO), [], "waiting");
    assert_eq!(drain(&mut r, Instant::from_millis(100)), [2]);
    assert_eq!(put(&mut r, next(1, 1), Instant::from_millis(101)), [1], "late");
    assert_eq!(put(&mut r, next(1, 1), Instant::from_millis(101)), [], "late and again");
    assert_eq!(r.counters().dropped(DropReason::Duplicate), 3);
}

#[test]
fn a_frame_of_several_flows_waits_for_all_before_it() {
    let mut r = resequencer(2, 0);
    put(&mut r, arrival(0, 1, Predecessor::Free, 1), Instant::ZERO);
    assert_eq!(put(&mut r, arrival(0, 2, Predecessor::All, 2), Instant::ZERO), []);
    assert_eq!(put(&mut r, arrival(1, 0, Predecessor::Free, 3), Instant::ZERO), [0, 2]);
}

#[test]
fn a_far_predecessor_is_waited_for() {
    let mut r = resequencer(2, 0);
    for seq in 1..300u32 {
        put(&mut r, arrival(0, seq, Predecessor::Free, 1), Instant::ZERO);
    }
    assert_eq!(put(&mut r, arrival(0, 300, Predecessor::at(300), 2), Instant::ZERO), []);
    assert_eq!(put(&mut r, arrival(1, 0, Predecessor::Free, 2), Instant::ZERO), [0, 300]);
}

#[test]
fn memory_is_bounded_in_packets_and_bytes() {
    let config = ReorderConfig { window: 512, bytes: 65_536, ..ReorderConfig::default() };
    let mut r = Resequencer::new(config, 0).unwrap();
    r.link_up(0);
    r.link_up(1);
    for seq in 1..5_000 {
        r.enqueue(next(0, seq), Instant::ZERO).unwrap();
        drain(&mut r, Instant::ZERO);
        assert!(r.held() <= 512);
    }
    let mut r = resequencer(2, 0);
    let big = |seq: u32| Arrival { payload: vec![0; 60_000], ..next(0, 2 * seq + 1) };
    for seq in 0..1_000u32 {
        r.enqueue(big(seq), Instant::ZERO).unwrap();
        assert!(r.held_bytes() <= 8 << 20);
        drain(&mut r, Instant::ZERO);
    }
    assert!(r.stats().squeezed > 0);
}

#[test]
fn stray_numbers_move_nothing_however_many_come() {
    let mut r = resequencer(1, 0);
    assert_eq!(put(&mut r, next(0, 0), Instant::ZERO), [0]);
    for stray in 0..10 {
        assert_eq!(put(&mut r, next(0, (1 << 30) + stray), Instant::ZERO), []);
        assert_eq!(put(&mut r, next(0, 0u32.wrapping_sub(9_000) + stray), Instant::ZERO), []);
    }
    assert_eq!(put(&mut r, next(0, 1), Instant::ZERO), [1]);
}

#[test]
fn a_long_row_of_losses_is_skipped_and_nothing_from_before_comes_again() {
    let mut r = resequencer(1, 0);
    assert_eq!(put(&mut r, next(0, 0), Instant::ZERO), [0]);
    assert_eq!(put(&mut r, next(0, 30_000), Instant::ZERO), [30_000]);
    for before in [0, 1, 29_000 - 4_096, 29_999 - 4_096] {
        assert_eq!(put(&mut r, next(0, before), Instant::ZERO), [], "{before}");
    }
    assert_eq!(put(&mut r, next(0, 30_001), Instant::ZERO), [30_001]);
}

#[test]
fn a_restart_hands_up_what_waits_and_begins_anew() {
    let mut r = resequencer(2, 0);
    put(&mut r, next(0, 5), Instant::ZERO);
    r.restart(1_000_000, Instant::ZERO);
    assert_eq!(drain(&mut r, Instant::ZERO), [5]);
    assert_eq!(put(&mut r, next(1, 1_000_000), Instant::ZERO), [1_000_000]);
}

#[test]
fn flows_that_tolerate_reordering_never_wait() {
    let mut r = resequencer(2, 0);
    for seq in [4, 2, 9] {
        assert_eq!(put(&mut r, arrival(0, seq, Predecessor::Free, 0), Instant::ZERO), [seq]);
    }
}

/// Frames as a sender with four flows would number them, dealt out to three links that each keep
/// the order but differ in delay, some lost; then the operations that bring them.
fn striped() -> impl Strategy<Value = (u32, Vec<Op<Arrival, u8>>)> {
    let frame = (0u64..4, 0u8..3, 0u8..10, 0u64..4);
    let frames = proptest::collection::vec(frame, 1..300);
    (any::<u32>(), frames).prop_map(|(first, frames)| {
        let mut last = [None; 4];
        let mut links = vec![Vec::new(); 3];
        for (index, (flow, link, fate, gap)) in frames.iter().enumerate() {
            let seq = first.wrapping_add(index as u32);
            let predecessor = match last[*flow as usize].replace(seq) {
                Some(last) => Predecessor::at(seq.wrapping_sub(last)),
                None => Predecessor::Free,
            };
            if *fate > 0 {
                let at = index as u64 * 300 + u64::from(*link) * 4_000;
                links[usize::from(*link)].push((at, *gap, arrival(*link, seq, predecessor, *flow)));
            }
        }
        let mut all: Vec<_> = links.into_iter().flatten().collect();
        all.sort_by_key(|(at, ..)| *at);
        let mut ops = Vec::new();
        let mut time = 0;
        for (at, gap, arrival) in all {
            ops.push(Op::Advance(Duration::from_micros(at - time)));
            time = at;
            if gap == 0 {
                ops.push(Op::Enqueue(arrival.clone())); // comes twice
            }
            ops.push(Op::Enqueue(arrival));
        }
        ops.push(Op::Advance(Duration::from_secs(2)));
        (first, ops)
    })
}

fn chaos() -> impl Strategy<Value = Vec<Op<Arrival, u8>>> {
    let predecessor = prop_oneof![
        Just(Predecessor::Free),
        (1u8..254).prop_map(Predecessor::Back),
        Just(Predecessor::Far),
        Just(Predecessor::All),
    ];
    let seq = prop_oneof![10 => 0u32..600, 2 => 0u32..20_000, 1 => any::<u32>()];
    let op = prop_oneof![
        8 => (0u8..4, seq, predecessor, 0u64..5)
            .prop_map(|(link, seq, p, flow)| Op::Enqueue(arrival(link, seq, p, flow))),
        2 => (0u64..60_000).prop_map(|us| Op::Advance(Duration::from_micros(us))),
        1 => (0u8..12).prop_map(Op::Control),
    ];
    proptest::collection::vec(op, 1..400)
}

fn control(r: &mut Resequencer, what: &u8, now: Instant) {
    match what {
        0..4 => r.link_up(*what),
        4..8 => r.link_down(what - 4, now),
        8 => r.restart(77, now),
        _ => r.passed(what - 9, 300, now),
    }
}

proptest! {
    #[test]
    fn every_clause_of_the_contract_holds_whatever_comes(ops in chaos()) {
        let make = || {
            let config = ReorderConfig { window: 512, bytes: 65_536, ..ReorderConfig::default() };
            let mut r = Resequencer::new(config, 0).unwrap();
            (0..3).for_each(|link| r.link_up(link));
            r
        };
        conformance::check(make, &ops, control, |d: &Delivery| (d.seq, d.late));
    }

    #[test]
    fn over_links_that_keep_their_order_every_flow_keeps_its_own((first, ops) in striped()) {
        let mut r = resequencer(3, first);
        let mut now = Instant::ZERO;
        let mut last = [None; 4];
        let mut sent = std::collections::BTreeSet::new();
        let mut got = std::collections::BTreeSet::new();
        for op in &ops {
            match op {
                Op::Enqueue(arrival) => {
                    sent.insert(arrival.seq);
                    let _ = r.enqueue(arrival.clone(), now);
                }
                Op::Advance(time) => {
                    let until = now + *time;
                    while let Some(at) = r.next_deadline().filter(|at| *at <= until) {
                        now = at;
                        while let Some(d) = r.dequeue(now) {
                            prop_assert!(got.insert(d.seq));
                            check(&mut last, &d, first)?;
                        }
                    }
                    now = until;
                }
                Op::Control(_) => {}
            }
            while let Some(d) = r.dequeue(now) {
                prop_assert!(got.insert(d.seq));
                check(&mut last, &d, first)?;
            }
        }
        prop_assert_eq!(sent, got, "everything that came goes up once");
        prop_assert_eq!(r.held(), 0);
        prop_assert_eq!(r.stats().disordered, 0);
    }
}

fn check(last: &mut [Option<u32>; 4], d: &Delivery, first: u32) -> Result<(), TestCaseError> {
    let flow = (0..4).find(|flow| Flow::of_hash(*flow) == d.flow).unwrap();
    let place = d.seq.wrapping_sub(first);
    let before = last[flow as usize].replace(place);
    prop_assert!(before.is_none_or(|before| before < place), "flow {flow}: {place} {before:?}");
    Ok(())
}

#[test]
fn after_a_restart_nothing_is_left_of_what_waited_before() {
    let mut r = resequencer(2, 0);
    // 3 and 1 wait for numbers whose places in the ring come again.
    put(&mut r, next(1, 3), Instant::ZERO);
    put(&mut r, next(1, 1), Instant::ZERO + 5 * MS);
    r.restart(4096, Instant::ZERO + 6 * MS);
    drain(&mut r, Instant::ZERO + 6 * MS);
    let now = Instant::ZERO + 7 * MS;
    assert_eq!(put(&mut r, arrival(0, 4099, Predecessor::Back(2), 0), now), []);
    assert_eq!(put(&mut r, arrival(0, 4098, Predecessor::Free, 1), now), [4098]);
    assert_eq!(put(&mut r, arrival(1, 4097, Predecessor::Free, 0), now), [4097, 4099]);
}
