//! Losses, and what only looks like them.

mod world;

use sheaf_stage::{Duration, Instant};
use sheaf_tcp::{Algorithm, Config};
use std::collections::BTreeSet;
use world::{Fate, MS, Pipe, SEGMENT, Way, World, data, endless, transfer_of, untouched};

const BOTH: [Algorithm; 2] = [Algorithm::Cubic, Algorithm::Bbr];

/// Loses the first transmission of the data packets for which `lose` says so, by their number
/// among all first transmissions.
fn first_times(mut lose: impl FnMut(u64) -> bool) -> impl FnMut(Way, u64, &mut Vec<u8>) -> Fate {
    let (mut seen, mut count) = (BTreeSet::new(), 0);
    move |way, _, packet| {
        let (len, number) = data(packet);
        if way == Way::Out && len > 0 && seen.insert(number) {
            count += 1;
            if lose(count) {
                return Fate::Lose;
            }
        }
        Fate::Pass
    }
}

#[test]
fn any_number_of_losses_in_a_window_is_repaired_in_one_round_trip() {
    for control in BOTH {
        for losses in [1, 5, 20] {
            let mut world = World::perfect(transfer_of(400_000, control), 20 * MS);
            // In the third window of slow start, every second one.
            let lost = |number: u64| (31..31 + 2 * losses).contains(&number) && number % 2 == 1;
            let mut touch = first_times(lost);
            let (mut now, mut repaired) = (Instant::ZERO, None);
            while world.got().finished.is_none() && now < Instant::from_millis(5_000) {
                now += MS;
                world.run(now, &mut touch);
                if world.got().bytes >= (30 + 2 * losses) * SEGMENT {
                    repaired.get_or_insert(now);
                }
            }
            let (sent, got) = (world.sent(), world.got());
            assert_eq!(got.bytes, 400_000, "{control:?} {losses}: {sent:?}");
            assert_eq!((sent.repeats, sent.lost), (losses, losses), "{control:?} {sent:?}");
            assert_eq!((sent.timeouts, sent.reductions, sent.undone), (0, 1, 0), "{sent:?}");
            // The last repeat leaves with the window's last acknowledgement, a round trip later at
            // most, and arrives after half of one.
            let took = repaired.unwrap() - sent.first_repeat.unwrap();
            assert!(took <= 62 * MS, "{control:?} {losses}: {took:?}");
        }
    }
}

#[test]
fn a_lost_repeat_is_found_by_what_was_sent_after_it() {
    for control in BOTH {
        let pipe = Pipe::new(Some(10_000_000), 20 * MS, 60);
        let mut world = World::new(transfer_of(2_000_000, control), 1, pipe);
        let mut number = None;
        let mut lost = 0;
        world.run(Instant::from_millis(10_000), |way, count, packet| {
            let (len, this) = data(packet);
            if way == Way::Out && len > 0 && (count == 60 || number == Some(this)) && lost < 3 {
                number = Some(this);
                lost += 1;
                return Fate::Lose;
            }
            Fate::Pass
        });
        assert_eq!(lost, 3);
        assert_eq!(world.got().bytes, 2_000_000);
        assert_eq!(world.sent().timeouts, 0, "{control:?} {:?}", world.sent());
    }
}

#[test]
fn without_an_answer_the_timeout_passes_after_the_round_trip_and_200_ms_then_twice_that() {
    for control in BOTH {
        let mut world = World::perfect(endless(control), 20 * MS);
        world.run(Instant::from_millis(500), untouched);
        // From here on nothing arrives.
        let mut times = Vec::new();
        let mut seen = 0;
        while times.len() < 8 {
            let before = world.sent();
            world.run(world.now + MS, |_, _, _| Fate::Lose);
            let after = world.sent();
            if after.timeouts > before.timeouts || after.probes > before.probes {
                times.push((world.now - Instant::from_millis(500)).as_millis());
                seen += after.timeouts - before.timeouts;
            }
        }
        // The tail probe two round trips after the last acknowledgement, 40 ms later at most; then
        // the timeout of 240 ms, doubled.
        assert!(seen >= 7, "{times:?}");
        assert!((80..=130).contains(&times[0]), "{times:?}");
        for (at, pair) in times.windows(2).enumerate() {
            let expected = 240 << at;
            let gap = (pair[1] - pair[0]) as i64;
            assert!((gap - expected).abs() <= 45, "{control:?} {at}: {gap} of {expected}");
        }
        // It goes on when the path is back.
        let before = world.got().bytes;
        world.run(world.now + Duration::from_secs(40), untouched);
        assert!(world.got().bytes > before + 10_000_000, "{:?}", world.sent());
    }
}

#[test]
fn a_lost_tail_is_probed_after_two_round_trips_instead_of_timed_out() {
    for control in BOTH {
        let segments = 40;
        let mut world = World::perfect(transfer_of(segments * 1448, control), 20 * MS);
        world.run(Instant::from_millis(3_000), first_times(|number| number > segments - 3));
        let (sent, got) = (world.sent(), world.got());
        assert!(got.finished.is_some(), "{sent:?}");
        assert_eq!(sent.timeouts, 0, "{sent:?}");
        assert_eq!(sent.probes, 1, "{sent:?}");
        assert!(got.finished.unwrap() < Instant::from_millis(400), "{got:?}");
    }
}

#[test]
fn reordering_is_learned_and_what_it_cost_is_given_back() {
    for control in BOTH {
        let pipe = Pipe::new(Some(20_000_000), 20 * MS, 200);
        let mut world = World::new(endless(control), 1, pipe);
        // Every 50th packet is late by 8 ms: 13 others overtake it.
        let late = |way, number: u64, _: &mut Vec<u8>| match number % 50 {
            0 if way == Way::Out => Fate::Later(8 * MS),
            _ => Fate::Pass,
        };
        world.run(Instant::from_millis(3_000), late);
        let before = world.sent();
        world.run(Instant::from_millis(13_000), late);
        let after = world.sent();
        assert_eq!(after.timeouts, 0, "{control:?} {before:?} {after:?}");
        assert!(before.repeats < 60, "{control:?} {before:?}");
        // 330 packets were late in this time; repeats are of true losses at the queue.
        let needless = (after.repeats - before.repeats).saturating_sub(world.out.dropped);
        assert!(needless < 20, "{control:?}: {needless}, {after:?}");
        let rate = (after.bytes - before.bytes) as f64 * 8.0 / 10.0;
        assert!(rate > 0.93 * 20e6 * 1448.0 / 1500.0, "{control:?}: {rate}");
    }
}

#[test]
fn a_delay_that_jumps_up_costs_no_window() {
    for control in BOTH {
        let pipe = Pipe::new(Some(20_000_000), 20 * MS, 2_000);
        let mut world = World::new(transfer_of(3_000_000, control), 1, pipe);
        world.run(Instant::from_millis(600), untouched);
        let before = world.sent().window;
        // From here on everything is later by 1 s: the timeout passes for nothing.
        world.out.delay = 1020 * MS;
        world.run(Instant::from_millis(20_000), untouched);
        let sent = world.sent();
        assert_eq!(world.got().bytes, 3_000_000);
        assert!(sent.timeouts > 0 && sent.undone > 0, "{control:?} {sent:?}");
        assert!(sent.window >= before / 2, "{control:?}: {before} before, {sent:?}");
    }
}

#[test]
fn random_losses_hurt_cubic_as_its_function_says_and_bbr_hardly() {
    let goodput = |control| {
        let pipe = Pipe::new(Some(10_000_000), 40 * MS, 80);
        let mut world = World::new(endless(control), 1, pipe);
        let mut state = 1u64;
        world.run(Instant::from_millis(60_000), |way, _, _| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let lose = way == Way::Out && (state >> 33) % 1000 < 5;
            if lose { Fate::Lose } else { Fate::Pass }
        });
        assert!(world.sent().timeouts <= 2, "{control:?} {:?}", world.sent());
        world.got().bytes as f64 * 8.0 / 60.0
    };
    let (cubic, bbr) = (goodput(Algorithm::Cubic), goodput(Algorithm::Bbr));
    // Reno's 1.22 / √0.005 segments a round trip, 2 Mbit/s, and cubic's region a little above.
    assert!((1.6e6..3.6e6).contains(&cubic), "{cubic}");
    assert!(bbr > 8.5e6, "{bbr}");
}

/// Repeats of 22 s over 100 Mbit/s and round trips of 8 to 13 ms, through a queue of 20 packets.
/// `linux` are those of user-mode Linux 7.3.4 in simulated time. At one round trip alone a packet
/// more or less in the queue decides about half of what CUBIC loses.
#[test]
fn a_queue_of_a_quarter_of_a_round_trip_loses_what_linuxs_senders_lose() {
    let linux = [
        (Algorithm::Cubic, [109, 76, 53, 49, 45, 41]),
        (Algorithm::Bbr, [5_234, 5_304, 5_386, 5_301, 5_334, 5_440]),
    ];
    for (control, linux) in linux {
        let repeats = (8u32..=13).map(|trip| {
            // The rate of full packets beside preamble, gap and header of Ethernet.
            let pipe = Pipe::new(Some(97_530_000), MS * trip / 2, 20);
            let config = Config { burst: 1, ..endless(control) };
            let mut world = World::new(config, 1, pipe);
            world.run(Instant::from_millis(22_000), untouched);
            world.sent().repeats
        });
        let (all, theirs) = (repeats.sum::<u64>(), linux.iter().sum::<u64>());
        assert!(all.abs_diff(theirs) * 20 <= theirs, "{control:?}: {all} for {theirs}");
    }
}
