//! Behaviour of Surplus Round Robin.

mod common;

use common::{arrivals, is_packet, number, striped};
use proptest::prelude::*;
use sheaf_baseline::Frame;
use sheaf_baseline::srr::{Config, MARKER_LEN, Receiver, Sender};
use sheaf_stage::{DropReason, Duration, Instant, Stage};
use std::collections::BTreeSet;

const MS: Duration = Duration::from_millis(1);

/// Numbers of the packets in the order in which they go up.
fn received(config: &Config, frames: impl IntoIterator<Item = Frame>) -> Vec<u32> {
    let mut receiver = Receiver::new(config);
    let mut up = Vec::new();
    for frame in frames {
        receiver.receive(frame, Instant::ZERO).unwrap();
        let packets = std::iter::from_fn(|| receiver.dequeue(Instant::ZERO));
        up.extend(packets.map(|packet| number(&packet)));
    }
    assert_eq!(receiver.held(), 0, "the last markers show that nothing is missing");
    up
}

/// Places of the last marker of each set.
fn marker_sets(frames: &[Frame]) -> Vec<usize> {
    let marker = |(_, frame): &(usize, &Frame)| !is_packet(frame);
    let markers: Vec<_> = frames.iter().enumerate().filter(marker).map(|(at, _)| at).collect();
    markers.chunks_exact(3).map(|set| set[2]).collect()
}

/// Numbers of the packets behind the first marker set that was sent wholly behind `lost`.
fn after_markers(frames: &[Frame], lost: usize) -> Vec<u32> {
    let set = marker_sets(frames).into_iter().find(|set| *set >= lost + 3).unwrap();
    let packets = frames[set..].iter().filter(|frame| is_packet(frame));
    packets.map(|frame| number(&frame.bytes)).collect()
}

fn without(frames: &[Frame], lost: &BTreeSet<usize>) -> Vec<Frame> {
    let kept = frames.iter().enumerate().filter(|(at, _)| !lost.contains(at));
    kept.map(|(_, frame)| frame.clone()).collect()
}

fn mixed_lens(count: usize) -> Vec<usize> {
    (0..count).map(|number| 60 + number * 397 % 1_440).collect()
}

#[test]
fn packets_are_sent_as_they_are_and_a_link_pays_back_its_surplus() {
    let mut sender = Sender::new(Config::equal(2));
    let mut links = Vec::new();
    for (number, len) in [1000, 1000, 1500, 1000, 1500].into_iter().enumerate() {
        let packet = common::packet(number as u32, len);
        sender.enqueue(packet.clone(), Instant::ZERO).unwrap();
        let frame = sender.dequeue(Instant::ZERO).unwrap();
        assert_eq!(frame.bytes, packet);
        links.push(frame.link);
    }
    // Link 0 overdraws its first quantum by 500 bytes, so one packet ends its second visit.
    assert_eq!(links, [0, 0, 1, 0, 1]);
}

#[test]
fn links_carry_bytes_by_their_quanta() {
    let config = Config { quanta: vec![1500, 4500], ..Config::equal(2) };
    let mut sender = Sender::new(config);
    let frames = striped(&mut sender, &mixed_lens(1_000), Duration::ZERO);
    let bytes = |link| -> usize {
        let of_link = frames.iter().filter(|frame| frame.link == link && is_packet(frame));
        of_link.map(|frame| frame.bytes.len()).sum()
    };
    // Apart by one round at most.
    assert!(bytes(1).abs_diff(3 * bytes(0)) <= 3 * 1500 + 4500);
}

#[test]
fn markers_go_on_when_the_traffic_stops() {
    let config = Config::equal(3);
    let mut sender = Sender::new(config.clone());
    let frames = striped(&mut sender, &[], Duration::ZERO);
    assert_eq!(frames.len(), 3 * 20, "on each link, every 50 ms of a second");
    assert!(frames.iter().all(|frame| frame.bytes.len() == MARKER_LEN));
    assert!(frames.iter().all(|frame| Sender::packets(frame) == 0));
}

#[test]
fn markers_come_by_rounds_while_there_is_traffic() {
    let config = Config::equal(3);
    let mut sender = Sender::new(config);
    // Each packet of 1500 bytes is a visit, and 48 of them are 16 rounds.
    let frames = striped(&mut sender, &[1500; 480], Duration::ZERO);
    let sets = marker_sets(&frames);
    assert_eq!(sets[..10], std::array::from_fn::<_, 10, _>(|set| (set + 1) * 51 - 1));
}

#[test]
fn a_receiver_that_waits_for_the_last_packet_goes_on_by_a_marker() {
    let config = Config::equal(3);
    let frames = striped(&mut Sender::new(config.clone()), &[1500; 6], MS);
    // Packet 0 is lost; 3 is taken for it, then nothing comes on link 0 but markers.
    let lost = without(&frames, &BTreeSet::from([0]));
    assert_eq!(received(&config, lost), [3, 1, 2, 4, 5]);
}

#[test]
fn order_is_regained_within_one_marker_period_whichever_frame_is_lost() {
    let config = Config { marker_rounds: 4, ..Config::equal(3) };
    let frames = striped(&mut Sender::new(config.clone()), &mixed_lens(300), MS / 10);
    let mut disturbed = 0;
    for lost in 0..frames.len() / 2 {
        let expected = after_markers(&frames, lost);
        assert!(expected.len() > 100, "the markers come soon");
        let up = received(&config, without(&frames, &BTreeSet::from([lost])));
        assert!(up.ends_with(&expected), "frame {lost} was lost: {up:?}");
        disturbed += usize::from(!up.is_sorted());
    }
    assert!(disturbed > 50, "a loss alone disturbs the order, as without numbers it must");
}

#[test]
fn a_sender_that_begins_anew_is_followed() {
    let config = Config::equal(3);
    let mut receiver = Receiver::new(&config);
    let mut up = Vec::new();
    for _ in 0..2 {
        for frame in striped(&mut Sender::new(config.clone()), &mixed_lens(1_001), MS) {
            receiver.receive(frame, Instant::ZERO).unwrap();
            let packets = std::iter::from_fn(|| receiver.dequeue(Instant::ZERO));
            up.extend(packets.map(|packet| number(&packet)));
        }
    }
    assert_eq!(receiver.held(), 0);
    let again = &up[up.len() - 900..];
    assert!(again.is_sorted(), "{again:?}");
}

#[test]
fn of_markers_without_a_packet_between_them_the_last_one_counts() {
    let mut receiver = Receiver::new(&Config::equal(2));
    let marker = |link, round: u8| Frame { link, bytes: vec![0, 0, 0, 0, round, 0, 0, 5, 220] };
    let packet = |link, number| Frame { link, bytes: common::packet(number, 1500) };
    // What link 1 carried in rounds 0 and 1 is lost while link 0 is silent.
    let frames = [marker(1, 0), marker(1, 2), packet(1, 5)];
    let mut up = Vec::new();
    for frame in frames.into_iter().chain([0, 2, 4].map(|number| packet(0, number))) {
        receiver.receive(frame, Instant::ZERO).unwrap();
        up.extend(std::iter::from_fn(|| receiver.dequeue(Instant::ZERO)));
    }
    assert_eq!(up.iter().map(|packet| number(packet)).collect::<Vec<_>>(), [0, 2, 4, 5]);
}

#[test]
fn a_link_that_was_ahead_of_the_old_sender_is_not_ahead_of_the_new_one() {
    let mut receiver = Receiver::new(&Config::equal(2));
    let marker = |link, round: u8| Frame { link, bytes: vec![0, 0, 0, 0, round, 0, 0, 5, 220] };
    let packet = |link, number| Frame { link, bytes: common::packet(number, 1500) };
    let (old, new) = ([packet(0, 0), marker(1, 50)], [marker(0, 0), marker(1, 0)]);
    let packets = [packet(0, 1), packet(1, 2), packet(0, 3), packet(1, 4)];
    let mut up = Vec::new();
    for frame in old.into_iter().chain(new).chain(packets) {
        receiver.receive(frame, Instant::ZERO).unwrap();
        up.extend(std::iter::from_fn(|| receiver.dequeue(Instant::ZERO)));
    }
    assert_eq!(up.iter().map(|packet| number(packet)).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

#[test]
fn a_silent_link_stops_all_and_the_room_of_the_others_is_bounded() {
    let mut receiver = Receiver::new(&Config::equal(2));
    let frame = |link| Frame { link, bytes: common::packet(0, 100) };
    let mut dropped = 0;
    for _ in 0..2_000 {
        dropped += u32::from(receiver.receive(frame(1), Instant::ZERO).is_err());
        assert_eq!(receiver.dequeue(Instant::ZERO), None);
    }
    assert!(dropped > 0 && receiver.held() < 2_000);
    assert_eq!(receiver.receive(frame(2), Instant::ZERO), Err(DropReason::Unreachable));
}

proptest! {
    #[test]
    fn without_loss_the_order_is_kept_whatever_the_delays(
        quanta in proptest::collection::vec(500u32..5_000, 3),
        lens in proptest::collection::vec(5usize..1_500, 1..300),
        gap in 0u64..30_000,
        choices in proptest::collection::vec(0usize..3, 0..400),
    ) {
        let config = Config { quanta, marker_rounds: 3, ..Config::equal(3) };
        let gap = Duration::from_micros(gap);
        let frames = striped(&mut Sender::new(config.clone()), &lens, gap);
        let up = received(&config, arrivals(frames, &choices));
        prop_assert_eq!(up, (0..lens.len() as u32).collect::<Vec<_>>());
    }

    #[test]
    fn after_losses_the_next_markers_restore_the_order_and_nothing_else_is_lost(
        lens in proptest::collection::vec(60usize..1_500, 200..300),
        lost in proptest::collection::btree_set(0usize..120, 1..40),
        choices in proptest::collection::vec(0usize..3, 0..400),
    ) {
        let config = Config { marker_rounds: 4, ..Config::equal(3) };
        let frames = striped(&mut Sender::new(config.clone()), &lens, MS / 10);
        let expected = after_markers(&frames, *lost.last().unwrap());
        let kept = without(&frames, &lost);
        let mut all: Vec<_> =
            kept.iter().filter(|frame| is_packet(frame)).map(|f| number(&f.bytes)).collect();
        let mut up = received(&config, arrivals(kept, &choices));
        prop_assert!(up.ends_with(&expected));
        up.sort_unstable();
        all.sort_unstable();
        prop_assert_eq!(up, all);
    }

    #[test]
    fn no_frames_panic_or_take_room_without_bound(
        frames in proptest::collection::vec(
            (0usize..4, any::<bool>(), proptest::collection::vec(any::<u8>(), 0..12)), 0..400,
        ),
    ) {
        let mut receiver = Receiver::new(&Config::equal(3));
        for (link, marker, mut bytes) in frames {
            if marker {
                bytes.resize(MARKER_LEN, 0);
                bytes[0] = 0;
            }
            let _ = receiver.receive(Frame { link, bytes }, Instant::ZERO);
            while receiver.dequeue(Instant::ZERO).is_some() {}
        }
    }
}
