//! Behaviour of Trigger Round Robin.

mod common;

use common::{arrivals, is_packet, number, striped};
use proptest::prelude::*;
use sheaf_baseline::Frame;
use sheaf_baseline::trr::{Receiver, Sender, TRIGGER_LEN};
use sheaf_stage::{DropReason, Duration, Instant, Stage};
use std::collections::BTreeSet;

const BURST: usize = 3_000;

fn sent(lens: &[usize]) -> Vec<Frame> {
    striped(&mut Sender::new(3, BURST), lens, Duration::ZERO)
}

fn received(frames: impl IntoIterator<Item = Frame>) -> (Vec<u32>, Receiver) {
    let mut receiver = Receiver::new(3);
    let mut up = Vec::new();
    for frame in frames {
        receiver.receive(frame, Instant::ZERO).unwrap();
        let packets = std::iter::from_fn(|| receiver.dequeue(Instant::ZERO));
        up.extend(packets.map(|packet| number(&packet)));
    }
    (up, receiver)
}

/// The round of each frame: three bursts, each ended by its trigger.
fn rounds(frames: &[Frame]) -> Vec<usize> {
    let mut bursts = 0;
    let round = |frame| {
        let round = bursts / 3;
        bursts += usize::from(!is_packet(frame));
        round
    };
    frames.iter().map(round).collect()
}

fn without(frames: &[Frame], lost: &BTreeSet<usize>) -> Vec<Frame> {
    let kept = frames.iter().enumerate().filter(|(at, _)| !lost.contains(at));
    kept.map(|(_, frame)| frame.clone()).collect()
}

/// Checks that the order is kept, and that losses cost nothing from the second round behind the
/// last of them.
fn check(lens: &[usize], lost: &BTreeSet<usize>, choices: &[usize]) -> Result<(), TestCaseError> {
    let frames = sent(lens);
    let rounds = rounds(&frames);
    let whole = rounds[*lost.last().unwrap()] + 2;
    let behind = frames.iter().zip(&rounds).filter(|(f, round)| is_packet(f) && **round >= whole);
    let expected: Vec<_> = behind.map(|(frame, _)| number(&frame.bytes)).collect();
    prop_assert!(!expected.is_empty());
    let (up, receiver) = received(arrivals(without(&frames, lost), choices));
    prop_assert!(up.is_sorted(), "{up:?}");
    prop_assert!(up.ends_with(&expected), "{up:?} does not end with {expected:?}");
    let counters = receiver.counters();
    prop_assert_eq!(counters.dropped_total(), counters.dropped(DropReason::OutOfWindow));
    Ok(())
}

#[test]
fn a_trigger_of_one_cell_ends_each_burst_on_its_link() {
    let frames = sent(&[1500; 12]);
    let kinds: Vec<_> = frames.iter().map(|frame| (frame.link, is_packet(frame))).collect();
    let burst = |link| [(link, true), (link, true), (link, false)];
    assert_eq!(kinds, [0, 1, 2, 0, 1, 2].map(burst).concat());
    let triggers = frames.iter().filter(|frame| !is_packet(frame));
    for (number, trigger) in triggers.enumerate() {
        assert_eq!(trigger.bytes.len(), TRIGGER_LEN);
        assert_eq!(trigger.bytes[1..5], (number as u32 / 3).to_be_bytes());
        assert_eq!(Sender::packets(trigger), 0);
    }
}

#[test]
fn the_receiver_stays_on_a_link_until_its_trigger() {
    let frames = sent(&[1500; 6]);
    let mut receiver = Receiver::new(3);
    let mut put = |frame: &Frame| {
        receiver.receive(frame.clone(), Instant::ZERO).unwrap();
        let packets = std::iter::from_fn(|| receiver.dequeue(Instant::ZERO));
        packets.map(|packet| number(&packet)).collect::<Vec<_>>()
    };
    assert_eq!(put(&frames[3]), []);
    assert_eq!(put(&frames[0]), [0]);
    assert_eq!(put(&frames[1]), [1]);
    assert_eq!(put(&frames[2]), [2], "the trigger of link 0");
}

#[test]
fn a_lost_trigger_makes_the_data_of_other_links_late_and_that_is_dropped() {
    let frames = sent(&[1500; 24]);
    // The trigger of link 0 in round 0; two packets and a trigger are a burst.
    let (up, receiver) = received(without(&frames, &BTreeSet::from([2])));
    assert_eq!(up[..8], [0, 1, 6, 7, 8, 9, 10, 11]);
    assert_eq!(receiver.counters().dropped(DropReason::OutOfWindow), 4, "round 0 of links 1, 2");
    assert!(up.is_sorted() && up.len() == 20);
}

#[test]
fn order_is_kept_and_two_rounds_later_all_goes_up_whichever_frame_is_lost() {
    let lens: Vec<_> = (0..150).map(|number| 60 + number * 397 % 1_440).collect();
    for lost in 0..100 {
        check(&lens, &BTreeSet::from([lost]), &[]).unwrap();
    }
}

#[test]
fn a_sender_that_begins_anew_is_followed() {
    let mut frames = sent(&[1500; 101]);
    frames.extend(sent(&[1500; 101]));
    let (up, _) = received(frames);
    assert!(up.ends_with(&(20..101).collect::<Vec<_>>()), "{up:?}");
}

#[test]
fn a_silent_link_stops_all_and_the_room_of_the_others_is_bounded() {
    let mut receiver = Receiver::new(3);
    let frame = |link| Frame { link, bytes: common::packet(0, 100) };
    let mut dropped = 0;
    for _ in 0..2_000 {
        dropped += u32::from(receiver.receive(frame(1), Instant::ZERO).is_err());
        assert_eq!(receiver.dequeue(Instant::ZERO), None);
    }
    assert!(dropped > 0 && receiver.held() < 2_000);
    assert_eq!(receiver.receive(frame(3), Instant::ZERO), Err(DropReason::Unreachable));
}

proptest! {
    #[test]
    fn without_loss_the_order_is_kept_whatever_the_delays(
        lens in proptest::collection::vec(5usize..1_500, 1..300),
        choices in proptest::collection::vec(0usize..3, 0..400),
    ) {
        let (up, _) = received(arrivals(sent(&lens), &choices));
        prop_assert_eq!(up, (0..lens.len() as u32).collect::<Vec<_>>());
    }

    #[test]
    fn order_is_kept_and_two_rounds_after_the_last_loss_all_goes_up(
        lens in proptest::collection::vec(60usize..1_500, 200..300),
        lost in proptest::collection::btree_set(0usize..120, 1..40),
        choices in proptest::collection::vec(0usize..3, 0..400),
    ) {
        check(&lens, &lost, &choices)?;
    }

    #[test]
    fn no_frames_panic_or_take_room_without_bound(
        frames in proptest::collection::vec(
            (0usize..4, any::<bool>(), proptest::collection::vec(any::<u8>(), 1..12)), 0..400,
        ),
    ) {
        let mut receiver = Receiver::new(3);
        for (link, trigger, mut bytes) in frames {
            if trigger {
                bytes.resize(TRIGGER_LEN, 0);
                bytes[0] = 0;
            }
            let _ = receiver.receive(Frame { link, bytes }, Instant::ZERO);
            while receiver.dequeue(Instant::ZERO).is_some() {}
        }
    }
}
