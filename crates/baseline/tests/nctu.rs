//! Behaviour of Chiao Tung's trunk.

use proptest::prelude::*;
use sheaf_baseline::Frame;
use sheaf_baseline::nctu::{Receiver, STEP, Sender, WAITING_LIMIT};
use sheaf_stage::{DropReason, Duration, Instant, Stage};

const MS: Duration = Duration::from_millis(1);

fn frame(seq: u32) -> Frame {
    let bytes = [seq.to_be_bytes(), seq.to_be_bytes()].concat();
    Frame { link: 0, bytes }
}

/// Brings a frame at `now`; the numbers that go up.
fn put(receiver: &mut Receiver, seq: u32, now: Instant) -> Vec<u32> {
    receiver.enqueue(frame(seq), now).unwrap();
    drain(receiver, now)
}

fn drain(receiver: &mut Receiver, now: Instant) -> Vec<u32> {
    let packets = std::iter::from_fn(|| receiver.dequeue(now));
    packets.map(|packet| u32::from_be_bytes(packet.try_into().unwrap())).collect()
}

/// A receiver whose timer has grown by `late` late packets at the start of the clock.
fn grown(late: u32) -> Receiver {
    let mut receiver = Receiver::new();
    put(&mut receiver, late, Instant::ZERO);
    drain(&mut receiver, Instant::ZERO + STEP);
    (0..late).for_each(|seq| assert_eq!(put(&mut receiver, seq, Instant::ZERO + STEP), [seq]));
    receiver
}

fn links(sender: &mut Sender, count: usize) -> Vec<usize> {
    for _ in 0..count {
        sender.enqueue(vec![0x45], Instant::ZERO).unwrap();
    }
    std::iter::from_fn(|| sender.dequeue(Instant::ZERO)).map(|frame| frame.link).collect()
}

#[test]
fn links_take_turns_and_one_sequence_numbers_all_packets() {
    let mut sender = Sender::new(3);
    for _ in 0..5 {
        sender.enqueue(vec![0x45], Instant::ZERO).unwrap();
    }
    for number in 0..5u8 {
        let frame = sender.dequeue(Instant::ZERO).unwrap();
        assert_eq!(frame.link, usize::from(number) % 3);
        assert_eq!(frame.bytes, [0, 0, 0, number, 0x45]);
    }
}

#[test]
fn a_link_above_a_quarter_is_skipped_and_with_all_busy_the_turn_stays() {
    let mut sender = Sender::new(3);
    sender.set_queue(1, 12, 50);
    assert_eq!(links(&mut sender, 3), [0, 1, 2], "12 of 50 are below a quarter");
    sender.set_queue(1, 13, 50);
    assert_eq!(links(&mut sender, 4), [0, 2, 0, 2]);
    sender.set_queue(0, 50, 50);
    sender.set_queue(2, 50, 50);
    assert_eq!(links(&mut sender, 4), [0, 1, 2, 0]);
}

#[test]
fn a_missing_packet_holds_up_everything_behind_it_until_the_timer_fires() {
    let mut receiver = grown(9);
    assert_eq!(receiver.timer(), 10 * MS);
    let now = Instant::from_millis(100);
    (11..20).for_each(|seq| assert_eq!(put(&mut receiver, seq, now), []));
    assert_eq!(receiver.next_deadline(), Some(now + 10 * MS));
    assert_eq!(drain(&mut receiver, now + 10 * MS), (11..20).collect::<Vec<_>>());
    assert_eq!(put(&mut receiver, 20, now + 11 * MS), [20]);
}

#[test]
fn what_comes_in_time_goes_up_in_order() {
    let mut receiver = grown(9);
    let now = Instant::from_millis(100);
    assert_eq!(put(&mut receiver, 12, now), []);
    assert_eq!(put(&mut receiver, 11, now + MS), []);
    assert_eq!(put(&mut receiver, 10, now + 9 * MS), [10, 11, 12]);
    assert_eq!(receiver.late(), 9, "none but the nine before");
}

#[test]
fn the_timer_starts_anew_for_the_next_gap_alone() {
    let mut receiver = grown(9);
    let now = Instant::from_millis(100);
    put(&mut receiver, 12, now);
    put(&mut receiver, 14, now);
    assert_eq!(put(&mut receiver, 10, now + 2 * MS), [10], "11 is still missing");
    assert_eq!(receiver.next_deadline(), Some(now + 10 * MS));
    assert_eq!(put(&mut receiver, 11, now + 4 * MS), [11, 12]);
    assert_eq!(receiver.next_deadline(), Some(now + 14 * MS));
}

#[test]
fn a_late_packet_goes_up_at_once_and_adds_a_millisecond() {
    let mut receiver = Receiver::new();
    put(&mut receiver, 3, Instant::ZERO);
    assert_eq!(drain(&mut receiver, Instant::ZERO + STEP), [3]);
    for (late, timer) in [(1, 2), (0, 3), (2, 4)] {
        assert_eq!(put(&mut receiver, late, Instant::from_millis(2)), [late]);
        assert_eq!(receiver.timer(), timer * MS);
    }
    assert_eq!(receiver.late(), 3);
}

#[test]
fn the_timer_halves_after_each_second_without_a_late_packet() {
    let mut receiver = grown(16);
    let mut now = Instant::ZERO + STEP;
    put(&mut receiver, 3, now + 900 * MS);
    assert_eq!(receiver.timer(), 18 * MS);
    now += 900 * MS;
    for timer in [9.0, 4.5, 2.25, 1.125, 1.0] {
        now += Duration::from_secs(1);
        assert_eq!(receiver.next_deadline(), Some(now), "the late packet restarted it");
        drain(&mut receiver, now);
        assert_eq!(receiver.timer(), Duration::from_secs_f64(timer / 1e3));
    }
    assert_eq!(receiver.next_deadline(), None, "it is as short as it gets");
}

#[test]
fn the_numbers_wrap() {
    let mut receiver = Receiver::new();
    let mut now = Instant::ZERO;
    for far in [u32::MAX / 2, u32::MAX - 1] {
        put(&mut receiver, far, now);
        now += STEP;
        assert_eq!(drain(&mut receiver, now), [far]);
    }
    assert_eq!(put(&mut receiver, 1, now), []);
    assert_eq!(put(&mut receiver, u32::MAX, now), [u32::MAX]);
    assert_eq!(put(&mut receiver, 0, now), [0, 1]);
}

#[test]
fn a_copy_of_what_waits_is_dropped() {
    let mut receiver = Receiver::new();
    put(&mut receiver, 1, Instant::ZERO);
    let copy = receiver.enqueue(frame(1), Instant::ZERO);
    assert_eq!(copy, Err(DropReason::Duplicate));
}

#[test]
fn when_all_room_is_taken_what_waits_goes_up() {
    let mut receiver = Receiver::new();
    for seq in 1..=WAITING_LIMIT as u32 {
        assert_eq!(put(&mut receiver, seq, Instant::ZERO), []);
    }
    let up = put(&mut receiver, WAITING_LIMIT as u32 + 1, Instant::ZERO);
    assert_eq!(up.len(), WAITING_LIMIT + 1);
    assert_eq!(receiver.held(), 0);
}

proptest! {
    #[test]
    fn whatever_comes_goes_up_once_and_in_order_unless_it_was_late(
        frames in proptest::collection::vec((0u64..3, 0u64..5_000, 0u8..10), 1..300),
    ) {
        // Frames of three links with unlike delays; some are lost.
        let delays = [0, 7_000, 20_000];
        let mut arrivals = Vec::new();
        let mut sent = 0;
        for (seq, (link, gap, fate)) in frames.iter().enumerate() {
            sent += gap;
            if *fate > 0 {
                arrivals.push((sent + delays[*link as usize], seq as u32));
            }
        }
        arrivals.sort_unstable();
        let mut receiver = Receiver::new();
        let mut up = Vec::new();
        for (at, seq) in &arrivals {
            let at = Instant::from_micros(*at);
            while let Some(deadline) = receiver.next_deadline().filter(|deadline| *deadline <= at) {
                up.extend(drain(&mut receiver, deadline));
            }
            up.extend(put(&mut receiver, *seq, at));
        }
        while let Some(deadline) = receiver.next_deadline() {
            up.extend(drain(&mut receiver, deadline));
        }
        let mut greatest = None;
        let behind = up.iter().filter(|seq| {
            let late = greatest.is_some_and(|greatest| **seq < greatest);
            greatest = greatest.max(Some(**seq));
            late
        });
        prop_assert_eq!(behind.count() as u64, receiver.late());
        let mut all: Vec<_> = arrivals.iter().map(|(_, seq)| *seq).collect();
        all.sort_unstable();
        up.sort_unstable();
        prop_assert_eq!(up, all);
    }
}
