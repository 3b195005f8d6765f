//! Aggregation in the MAC: what shares a transmission, what is repeated, and in which order frames
//! leave.

use proptest::prelude::*;
use sheaf_medium::{Ampdu, Config, ConfigError, Frame, Hearing, Link, Medium, Phy};
use sheaf_medium::{RadioId, To, Transmission, air_time};
use sheaf_stage::conformance::{self, Op};
use sheaf_stage::{Bitrate, DropReason, Duration, Instant, Stage};

const HT: Phy = Phy::Ht { short_guard: false };
const MCS_7: Bitrate = Bitrate::from_mbps(65);
const QUEUE: usize = 300;

/// HT with A-MPDUs over links that are all alike.
fn config(radios: usize, link: Link) -> Config {
    let mut config = Config::new(HT, radios, MCS_7);
    config.ampdu = Some(Ampdu::default());
    config.radios.iter_mut().for_each(|radio| radio.queue_limit = QUEUE);
    config.hearing = Hearing::Table(vec![vec![link; radios]; radios]);
    config
}

/// Puts numbered frames of `bytes` from radio 0 to these into its queue.
fn fill(medium: &mut Medium<u32>, to: impl Iterator<Item = To>, bytes: u32) {
    for (payload, to) in (0..).zip(to) {
        let frame = Frame { from: RadioId(0), to, bytes, payload };
        medium.enqueue(frame, Instant::ZERO).unwrap();
    }
}

fn radio(id: u32) -> To {
    To::Radio(RadioId(id))
}

/// All frames, when the medium has come to rest.
fn run(medium: &mut Medium<u32>) -> Vec<Transmission<u32>> {
    let mut ended = Vec::new();
    while let Some(now) = medium.next_deadline() {
        ended.extend(std::iter::from_fn(|| medium.dequeue(now)));
    }
    ended
}

#[test]
fn frames_to_one_radio_share_a_transmission_up_to_the_window() {
    let mut medium = Medium::new(config(2, Link::PERFECT), 1).unwrap();
    fill(&mut medium, (0..100).map(|_| radio(1)), 60);
    let ended = run(&mut medium);
    let numbers: Vec<_> = ended.iter().map(|done| done.frame.payload).collect();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    let stats = medium.stats(RadioId(0));
    assert_eq!((stats.attempts, stats.transmissions, stats.retries), (100, 2, 0));
    let config = config(2, Link::PERFECT);
    let [full, rest] = [64, 36].map(|frames| air_time::ampdu(&config, MCS_7, frames, 60));
    assert_eq!(stats.air_time, full + rest);
    // The frames of one transmission end with its block acknowledgement.
    assert!(ended[63].ended == ended[0].ended && ended[64].ended > ended[63].ended);
}

#[test]
fn frames_to_others_are_passed_over_and_wait_for_their_turn() {
    let mut medium = Medium::new(config(3, Link::PERFECT), 1).unwrap();
    fill(&mut medium, (0..9).map(|place| radio(1 + u32::from(place % 3 == 2))), 60);
    let order: Vec<_> = run(&mut medium).iter().map(|done| done.frame.payload).collect();
    assert_eq!(order, [0, 1, 3, 4, 6, 7, 2, 5, 8]);
    assert_eq!(medium.stats(RadioId(0)).transmissions, 2);
}

#[test]
fn only_subframes_that_were_lost_are_repeated() {
    let ber = 1e-5;
    let link = Link { ber, ..Link::PERFECT };
    let mut medium = Medium::new(config(2, link), 7).unwrap();
    let mut frames = 0;
    let end = Instant::from_millis(20_000);
    fill(&mut medium, (0..200).map(|_| radio(1)), 1500);
    let mut next = 0;
    while let Some(now) = medium.next_deadline().filter(|now| *now < end) {
        while let Some(done) = medium.dequeue(now) {
            assert_eq!(done.frame.payload, next, "in their order");
            next += 1;
            frames += u64::from(done.result.is_ok());
            let frame = Frame { payload: next + 199, ..done.frame };
            medium.enqueue(frame, now).unwrap();
        }
    }
    let stats = medium.stats(RadioId(0));
    // A subframe of 1542 bytes is hit; so is a block acknowledgement, which repeats all of them.
    let lost = |bytes: f64| 1.0 - libm::pow(1.0 - ber, 8.0 * bytes);
    let expected = 1.0 - (1.0 - lost(1542.0)) * (1.0 - lost(32.0));
    let share = stats.retries as f64 / stats.attempts as f64;
    assert!(frames > 80_000 && (share - expected).abs() < 0.005, "{share}, expected {expected}");
    let together = stats.attempts as f64 / stats.transmissions as f64;
    assert!(together > 19.5, "{together}: what is repeated shares a transmission with new frames");
}

#[test]
fn frames_without_any_block_acknowledgement_are_tried_up_to_the_limit() {
    let mut deaf = config(2, Link::PERFECT);
    let Hearing::Table(links) = &mut deaf.hearing else { panic!("it is a table") };
    links[1][0].loss = 1.0;
    let mut medium = Medium::new(deaf, 3).unwrap();
    fill(&mut medium, (0..5).map(|_| radio(1)), 60);
    let ended = run(&mut medium);
    assert!(ended.iter().all(|done| done.result.is_ok() && done.retries == 6), "they arrived");
    let mut broken = config(2, Link { loss: 1.0, ..Link::PERFECT });
    broken.retry_limit = 4;
    let mut medium = Medium::new(broken, 3).unwrap();
    fill(&mut medium, (0..5).map(|_| radio(1)), 60);
    for done in run(&mut medium) {
        assert_eq!((done.result, done.retries), (Err(DropReason::RetryLimit), 3));
    }
    assert_eq!(medium.stats(RadioId(0)).lost, 5);
    assert_eq!(medium.waiting(RadioId(0)), 0);
}

#[test]
fn group_addressed_frames_go_alone_and_at_the_lowest_basic_rate() {
    let mut medium = Medium::new(config(3, Link::PERFECT), 1).unwrap();
    fill(&mut medium, (0..4).map(|_| To::Broadcast), 60);
    assert!(run(&mut medium).iter().all(|done| done.receivers.iter().count() == 2));
    let stats = medium.stats(RadioId(0));
    // 96 bytes are 790 bits with service and tail: 33 symbols of 24 bits.
    assert_eq!((stats.transmissions, stats.air_time), (4, Duration::from_micros(4 * (20 + 132))));
}

#[test]
fn announced_ampdus_keep_a_hidden_station_from_spoiling_them() {
    let arrived = |rts_threshold| {
        let mut config = config(3, Link::PERFECT);
        config.rts_threshold = rts_threshold;
        let Hearing::Table(links) = &mut config.hearing else { panic!("it is a table") };
        (links[0][1], links[1][0]) = (Link::NONE, Link::NONE);
        let mut medium = Medium::new(config, 5).unwrap();
        let frame = |from| Frame { from: RadioId(from), to: radio(2), bytes: 1500, payload: 0 };
        for _ in 0..100 {
            (0..2).for_each(|from| medium.enqueue(frame(from), Instant::ZERO).unwrap());
        }
        let mut arrived = 0;
        let end = Instant::from_millis(5_000);
        while let Some(now) = medium.next_deadline().filter(|now| *now < end) {
            while let Some(done) = medium.dequeue(now) {
                arrived += u32::from(done.result.is_ok());
                medium.enqueue(frame(done.frame.from.0), now).unwrap();
            }
        }
        arrived
    };
    let (open, announced) = (arrived(None), arrived(Some(500)));
    assert!(announced > 2 * open, "{announced} frames with RTS, {open} without");
}

#[test]
fn limits_that_ht_does_not_allow_are_refused() {
    let check = |phy, ampdu| {
        let rate = *Phy::rates(phy).last().unwrap();
        Config { ampdu: Some(ampdu), ..Config::new(phy, 2, rate) }.check()
    };
    let usual = Ampdu::default();
    assert_eq!(check(HT, usual), Ok(()));
    let refused = Err(ConfigError::Ampdu);
    assert_eq!(check(Phy::Ofdm, usual), refused);
    assert_eq!(check(HT, Ampdu { frames: 65, ..usual }), refused);
    assert_eq!(check(HT, Ampdu { bytes: 65_536, ..usual }), refused);
    assert_eq!(check(HT, Ampdu { air_time: Duration::from_millis(6), ..usual }), refused);
    assert_eq!(check(HT, Ampdu { frames: 0, ..usual }), refused);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_medium_with_ampdus_keeps_the_contract_of_a_stage(
        ops in proptest::collection::vec(prop_oneof![
            8 => (0u32..3, 0u32..4, 20u32..1500).prop_map(|(from, to, bytes)| {
                let to = if to == 3 { To::Broadcast } else { To::Radio(RadioId(to)) };
                Op::Enqueue(Frame { from: RadioId(from), to, bytes, payload: bytes })
            }),
            2 => (0u64..3_000_000).prop_map(|ns| Op::Advance(Duration::from_nanos(ns))),
            1 => (0.0..0.001f64).prop_map(Op::Control),
        ], 1..120),
        rts in proptest::option::of(0u32..3000), frames in 1u32..=8, seed: u64,
    ) {
        let make = || {
            let mut config = config(3, Link::PERFECT);
            config.rts_threshold = rts;
            config.retry_limit = 3;
            config.ampdu = Some(Ampdu { frames, ..Ampdu::default() });
            config.radios.iter_mut().for_each(|radio| radio.queue_limit = 20);
            Medium::new(config, seed).unwrap()
        };
        conformance::check(make, &ops, |medium, ber: &f64, now| {
            let link = Link { ber: *ber, ..Link::PERFECT };
            medium.set_hearing(Hearing::Table(vec![vec![link; 3]; 3]), now).unwrap();
        }, |done| done.clone());
    }

    #[test]
    fn frames_to_each_radio_leave_in_the_order_in_which_they_came_and_each_once(
        to in proptest::collection::vec(1u32..4, 1..200), ber in 0.0..0.0005f64,
        loss in 0.0..0.5f64, retry_limit in 1u32..9, seed: u64,
    ) {
        let mut config = config(4, Link { ber, loss, ..Link::PERFECT });
        config.retry_limit = retry_limit;
        let mut medium = Medium::new(config, seed).unwrap();
        fill(&mut medium, to.iter().map(|to| radio(*to)), 200);
        let ended = run(&mut medium);
        for to in 1..4 {
            let number = |done: &Transmission<u32>| {
                (done.frame.to == radio(to)).then_some(done.frame.payload)
            };
            let left: Vec<_> = ended.iter().filter_map(number).collect();
            prop_assert!(left.is_sorted_by(|a, b| a < b), "{left:?}");
        }
        prop_assert_eq!(ended.len(), to.len());
        prop_assert!(ended.iter().all(|done| done.retries < retry_limit));
        prop_assert_eq!(medium.waiting(RadioId(0)), 0);
    }
}
