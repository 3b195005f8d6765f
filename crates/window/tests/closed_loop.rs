//! The controller and TCP flows in a closed loop, under virtual time.

use sheaf_stage::{Bitrate, Duration, Instant};
use sheaf_window::{Config, Connection, Controller, Direction, Formula, Half, Key, Push, Source};

mod loop_model;
use loop_model::{Flow, Link, Stream, jain};

const RTTS: [u64; 8] = [10, 20, 35, 60, 80, 110, 150, 200];

fn controller(formula: Formula, capacity: Source) -> Controller {
    let config = Config { formula, capacity, ..Config::default() };
    Controller::new(config, Direction::In).unwrap()
}

fn given(formula: Formula, mbps: u64) -> Controller {
    controller(formula, Source::Given(Bitrate::from_mbps(mbps)))
}

fn downloads(rtts: &[u64]) -> Vec<Flow> {
    rtts.iter().map(|rtt| Flow::new(*rtt, f64::INFINITY)).collect()
}

fn settled(formula: Formula, mbps: u64, rtts: &[u64]) -> Link {
    let mut link = Link::new(given(formula, mbps), mbps as f64 * 1e6, downloads(rtts));
    link.run(5.0);
    link.mark();
    link.run(10.0);
    link
}

#[test]
fn formula_1_favours_short_round_trip_times() {
    let link = settled(Formula::EqualWindow, 50, &[20, 100]);
    let rates = link.rates();
    assert!(rates[0] > 2.5 * rates[1], "{rates:?}");
    assert!(jain(&rates) < 0.85);
}

#[test]
fn formula_2_and_max_min_are_fair_for_10_to_200_ms_and_fill_the_link_without_a_queue() {
    for formula in [Formula::EqualRate, Formula::MaxMin] {
        let link = settled(formula, 50, &RTTS);
        let rates = link.rates();
        assert!(jain(&rates) >= 0.98, "{formula:?}: {} {rates:?}", jain(&rates));
        assert!(rates.iter().sum::<f64>() >= 0.98 * 50e6, "{formula:?}: {rates:?}");
        // 10 ms of 50 Mbit/s are 41 packets.
        assert!(link.queue().0 < 15.0, "{formula:?}: {:?}", link.queue());
    }
}

#[test]
fn flows_with_few_segments_each_still_get_equal_rates() {
    // 1.25 Mbit/s each: 1 segment at 10 ms, 21 at 200 ms. Not less than two is allowed, so the
    // shortest round-trip times are the ones whose windows are rounded most.
    let link =
        settled(Formula::EqualRate, 20, &[30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 160, 200]);
    let rates = link.rates();
    assert!(jain(&rates) >= 0.98, "{} {rates:?}", jain(&rates));
    assert!(rates.iter().sum::<f64>() >= 0.98 * 20e6, "{rates:?}");
}

#[test]
fn what_an_application_does_not_use_goes_to_the_others() {
    let share = |formula| {
        let mut flows = downloads(&[40, 40, 80]);
        flows.push(Flow::new(60, 2e6));
        let mut link = Link::new(given(formula, 40), 40e6, flows);
        link.run(5.0);
        link.mark();
        link.run(10.0);
        link.rates()
    };
    let (plain, rates) = (share(Formula::EqualRate), share(Formula::MaxMin));
    assert!(plain[..3].iter().all(|rate| *rate < 10.7e6), "a quarter each: {plain:?}");
    assert!((rates[3] - 2e6).abs() < 0.1e6, "{rates:?}");
    let fair = 38e6 / 3.0;
    assert!(rates[..3].iter().all(|rate| (rate / fair - 1.0).abs() < 0.05), "{rates:?}");
    assert!(jain(&rates[..3]) >= 0.98);
}

#[test]
fn tcp_makes_room_for_udp_and_takes_it_back() {
    let mut link = settled(Formula::MaxMin, 20, &[20, 60]);
    link.udp = 12e6;
    link.run(1.0);
    link.mark();
    link.run(4.0);
    let rates = link.rates();
    assert!((rates.iter().sum::<f64>() / 8e6 - 1.0).abs() < 0.05, "{rates:?}");
    assert!(link.queue().0 < 12.0, "{:?}", link.queue());
    link.udp = 0.0;
    link.run(3.0);
    link.mark();
    link.run(4.0);
    assert!(link.rates().iter().sum::<f64>() >= 0.97 * 20e6, "{:?}", link.rates());
}

#[test]
fn a_flow_that_begins_later_gets_its_share_and_one_that_ends_leaves_it() {
    let mut flows = downloads(&[30, 30]);
    flows[1].start = sheaf_stage::Instant::from_millis(5_000);
    let mut link = Link::new(given(Formula::MaxMin, 20), 20e6, flows);
    link.run(5.0);
    link.mark();
    link.run(2.0);
    link.mark();
    link.run(3.0);
    let rates = link.rates();
    assert!(jain(&rates) >= 0.98, "{rates:?}");
    link.flows[1].demand = 0.0;
    link.run(3.0);
    link.mark();
    link.run(3.0);
    assert!(link.rates()[0] > 0.97 * 20e6, "{:?}", link.rates());
}

#[test]
fn capacity_is_found_within_5_percent_in_5_s_after_start_halving_and_doubling() {
    let fifty: Vec<u64> = RTTS.iter().copied().cycle().take(50).collect();
    let sets: [&[u64]; 8] =
        [&[10], &[20], &[60], &[200], &[10, 40, 120], &[100, 150, 200], &[20; 10], &fifty];
    // A change meets the search in another phase each time.
    for (first, rtts) in [5.0, 5.4, 5.8, 6.3].into_iter().flat_map(|f| sets.map(|set| (f, set))) {
        for top in [10.0, 40.0, 200.0] {
            let source = Config::default().capacity;
            let mut link = Link::new(controller(Formula::MaxMin, source), 0.0, downloads(rtts));
            for (part, seconds) in [(2.0, first), (4.0, 5.0), (2.0, 5.0), (1.0, 5.0), (2.0, 5.0)] {
                link.rate = top / part * 1e6;
                link.run(seconds);
                let ratio = link.controller.status().capacity / link.rate;
                let what = format!("RTTs {rtts:?}, {} Mbit/s after {seconds} s", top / part);
                assert!((ratio - 1.0).abs() < 0.05, "{what}: found {ratio} times as much");
            }
        }
    }
}

#[test]
fn once_found_the_capacity_stays_within_5_percent_and_the_link_stays_full() {
    let source = Config::default().capacity;
    let mut link = Link::new(controller(Formula::MaxMin, source), 30e6, downloads(&[20, 60, 100]));
    link.run(5.0);
    link.mark();
    for _ in 0..100 {
        link.run(0.1);
        let found = link.controller.status().capacity / 30e6;
        assert!((found - 1.0).abs() < 0.05, "{found}");
    }
    let rates = link.rates();
    assert!(rates.iter().sum::<f64>() > 0.95 * 30e6, "{rates:?}");
    assert!(jain(&rates) > 0.98, "{rates:?}");
}

#[test]
fn a_controller_refuses_parameters_that_cannot_work() {
    let cases = [
        Config { capacity: Source::Given(Bitrate::from_bps(0)), ..Config::default() },
        Config { idle: std::time::Duration::ZERO, ..Config::default() },
        Config { min_segments: 0, ..Config::default() },
        Config { slack: Duration::from_secs(1), ..Config::default() },
    ];
    for config in cases {
        assert!(Controller::new(config.clone(), Direction::In).is_err(), "{config:?}");
    }
}

#[test]
fn a_flow_that_begins_before_anything_was_measured_has_a_window() {
    let mut controller = given(Formula::MaxMin, 20);
    assert!(controller.step(Instant::from_millis(1)).is_empty(), "there is no flow yet");
    // All of 20 Mbit/s for 100 ms, because the flow's round-trip time was not measured yet.
    assert!((200_000..=260_000).contains(&controller.initial()), "{}", controller.initial());
}

#[test]
fn a_new_flow_begins_with_a_share_for_the_round_trip_time_that_others_have() {
    let link = settled(Formula::MaxMin, 4, &[30; 4]);
    // A fifth of 4 Mbit/s for 30 ms, a packet that stands in the queue, and one on top of it.
    let initial = link.controller.initial();
    assert!((2_920..=4_700).contains(&initial), "{initial}");
}

#[test]
fn a_full_packet_may_always_wait_and_more_only_with_more_slack() {
    // The window of one flow with 60 ms after a step.
    let window = |mbps: u64, slack: u64| {
        let slack = Duration::from_millis(slack);
        let capacity = Source::Given(Bitrate::from_mbps(mbps));
        let config = Config { capacity, slack, ..Config::default() };
        let mut controller = Controller::new(config, Direction::In).unwrap();
        let now = Instant::from_millis(100);
        let mut half = Half { mss: 1460, bytes: 1, last: now, ..Half::default() };
        half.rtt.sample(30_000_000, now);
        let connection = Connection { half: [half; 2], timestamps: false };
        let end = ([10, 0, 0, 1].into(), 80);
        controller.observe(Key::new(end, end), &connection);
        controller.step(now)[0].value
    };
    // 1514 bytes take 3.03 ms at 4 Mbit/s, and 0.12 ms at 100 Mbit/s.
    assert_eq!(window(4, 0), window(4, 3));
    assert!(window(4, 0) < window(4, 10));
    assert!(window(100, 0) < window(100, 3));
}

#[test]
fn acknowledgements_that_come_in_clumps_leave_no_gaps_on_the_link() {
    for rtts in [&[60][..], &[30, 60, 100]] {
        let mut link = Link::new(given(Formula::MaxMin, 50), 50e6, downloads(rtts));
        // Round-trip times are 4 ms above their floor on average, without any queue.
        link.clump = Duration::from_millis(8);
        link.run(10.0);
        link.mark();
        link.run(10.0);
        let rates = link.rates();
        assert!(rates.iter().sum::<f64>() >= 0.98 * 50e6, "{rates:?}");
        assert!(jain(&rates) >= 0.98, "{rates:?}");
        // A clump of 8 ms are 33 packets.
        assert!(link.queue().0 < 25.0, "{:?}", link.queue());
        link.clump = Duration::from_nanos(1);
        link.run(5.0);
        link.mark();
        link.run(10.0);
        assert!(link.queue().0 < 15.0, "no clumps, no queue: {:?}", link.queue());
    }
}

/// The home access point of "An OpenWRT solution for future wireless homes": 4 Mbit/s, 60 ms, 200
/// packets/s of 1 KB, a game and a call; `downloads` of segments of 1 KB. Returns the game's
/// inter-arrival times in ms, in order of size.
fn home(controller: Controller, downloads: usize) -> (Link, Vec<f64>) {
    let flows = (0..downloads).map(|_| Flow::new(60, f64::INFINITY).delaying());
    let mut link = Link::new(controller, 4e6, flows.collect());
    (link.segment, link.tick) = (1000, Duration::from_micros(100));
    let ms = Instant::from_millis;
    link.streams = vec![
        Stream::new(Duration::from_millis(5), 1042, ms(1)),
        Stream::new(Duration::from_millis(40), 242, ms(3)),
        Stream::new(Duration::from_millis(20), 214, ms(4)),
    ];
    link.run(10.0);
    link.mark();
    link.run(60.0);
    let left = &link.streams[1].left;
    let mut gaps: Vec<f64> =
        left.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1e3).collect();
    gaps.sort_unstable_by(f64::total_cmp);
    (link, gaps)
}

#[test]
fn a_game_beside_a_download_waits_for_no_more_than_a_pair_of_segments() {
    let given = |formula| {
        let capacity = Source::Given(Bitrate::from_mbps(4));
        let config = Config { formula, capacity, push: Push::Off, ..Config::default() };
        Controller::new(config, Direction::In).unwrap()
    };
    let at = |gaps: &[f64], share: f64| gaps[(gaps.len() as f64 * share) as usize];
    // Without TCP the other streams, whose beats fit, leave the game's as it is.
    let (_, alone) = home(given(Formula::MaxMin), 0);
    assert!((at(&alone, 0.99) - 40.0).abs() < 0.2, "{alone:?}");
    // 1066 bytes take 2.1 ms. Acknowledgements come for pairs, and a pair is what stands in the way
    // now and not the next time.
    let pair = 2.0 * 1066.0 * 8.0 / 4e3;
    let free = 4e6 - (1042.0 * 200.0 + 242.0 * 25.0 + 214.0 * 50.0) * 8.0;
    for formula in [Formula::EqualWindow, Formula::EqualRate, Formula::MaxMin] {
        let (link, gaps) = home(given(formula), 1);
        assert!(at(&gaps, 0.99) <= 40.0 + pair + 0.2, "{formula:?}: {}", at(&gaps, 0.99));
        assert!(link.rates()[0] >= 0.98 * free, "{formula:?}: {:?} of {free}", link.rates());
        // One of them is on the link.
        assert!(link.queue().0 < 3.5, "{formula:?}: {:?}", link.queue());
    }
    let (link, gaps) = home(given(Formula::MaxMin), 5);
    assert!(link.rates().iter().sum::<f64>() >= 0.98 * free, "{:?}", link.rates());
    assert!(at(&gaps, 0.99) <= 40.0 + 1.5 * pair, "{}", at(&gaps, 0.99));
}

#[test]
fn a_search_beside_a_game_and_a_stream_leaves_tcp_most_of_what_is_free() {
    let free = 4e6 - (1042.0 * 200.0 + 242.0 * 25.0 + 214.0 * 50.0) * 8.0;
    for downloads in [1, 5] {
        let (link, _) = home(controller(Formula::MaxMin, Config::default().capacity), downloads);
        let found = link.controller.status().capacity / 4e6;
        assert!((found - 1.0).abs() < 0.05, "{downloads} downloads: {found}");
        let share = link.rates().iter().sum::<f64>() / free;
        assert!(share >= 0.965, "{downloads} downloads: {share}");
        // What is tried in vain stands in the queue for a moment.
        assert!(link.queue().0 < 11.0, "{downloads} downloads: {:?}", link.queue());
    }
}

#[test]
fn a_game_beside_a_download_that_is_pushed_waits_for_no_more_than_a_segment() {
    // 1066 bytes at 4 Mbit/s.
    let segment = 1066.0 * 8.0 / 4e3;
    let free = 4e6 - (1042.0 * 200.0 + 242.0 * 25.0 + 214.0 * 50.0) * 8.0;
    let capacity = Source::Given(Bitrate::from_mbps(4));
    let config = Config { capacity, push: Push::Auto, ..Config::default() };
    let (link, gaps) = home(Controller::new(config, Direction::In).unwrap(), 1);
    let p99 = gaps[gaps.len() * 99 / 100];
    assert!(p99 <= 40.0 + segment + 0.2, "{p99}");
    assert!(link.rates()[0] >= 0.98 * free, "{:?} of {free}", link.rates());
}

/// A controller of 4 Mbit/s after a step in which a connection's data arrived. Its segments of 1000
/// bytes were advertised `written` bytes where it was given 17000.
fn after_a_step(scale: u8, written: u32) -> Controller {
    let capacity = Source::Given(Bitrate::from_mbps(4));
    let mut controller =
        Controller::new(Config { capacity, ..Config::default() }, Direction::In).unwrap();
    let mut connection = Connection::default();
    let half = &mut connection.half[0];
    (half.mss, half.scale, half.window, half.written) = (1000, scale, 17_000, written);
    for step in 0..3 {
        connection.half[0].acked += 50_000;
        controller.observe(loop_model::key(1), &connection);
        controller.step(Instant::from_millis(100 * step));
    }
    controller
}

#[test]
fn a_silence_that_is_told_is_as_the_same_counters_again() {
    let mut connections = [Connection::default(); 2];
    let mut controllers = [(); 2].map(|()| given(Formula::MaxMin, 4));
    let mut told = 0;
    for step in 0..200 {
        let arrives = step < 5 || step == 100;
        let mut outcomes = Vec::new();
        for (which, (controller, connection)) in
            controllers.iter_mut().zip(&mut connections).enumerate()
        {
            let half = &mut connection.half[0];
            half.mss = 1000;
            if arrives {
                half.bytes += 50_000;
                half.acked += 50_000;
            }
            if which == 1 && !arrives && controller.is_settled() {
                controller.observe_silence();
                told += 1;
            } else {
                controller.observe(loop_model::key(1), connection);
            }
            let decisions = controller.step(Instant::from_millis(100 * step)).to_vec();
            // The program has it by the next step.
            decisions.iter().for_each(|decision| connection.half[0].window = decision.value);
            let flow = controller.flow(&loop_model::key(1));
            outcomes.push((decisions, flow, controller.status(), controller.initial()));
        }
        assert_eq!(outcomes[0], outcomes[1], "step {step}");
    }
    assert!(told > 150, "nearly all steps were silent: {told}");
}

#[test]
fn nothing_is_pushed_while_a_window_can_shrink_by_pairs_alone() {
    assert!(!after_a_step(10, 27_648).push(), "each 1000 bytes are rounded up to 1024");
    assert!(after_a_step(10, 16_384).push(), "it has shrunk");
    assert!(after_a_step(7, 27_648).push(), "it shrinks by every acknowledgement");
}

#[test]
fn acknowledgements_that_take_the_air_of_a_radio_are_doubled_only_on_request() {
    let push = |push, is_shared| {
        let capacity = Source::Given(Bitrate::from_mbps(4));
        let config = Config { capacity, push, ..Config::default() };
        let mut controller = Controller::new(config, Direction::In).unwrap();
        controller.observe_air(is_shared);
        controller.push()
    };
    assert!(push(Push::Auto, false));
    assert!(!push(Push::Auto, true));
    assert!(push(Push::On, true));
}

#[test]
fn segments_are_pushed_where_a_full_one_takes_a_millisecond() {
    let push = |mbps, push| {
        let capacity = Source::Given(Bitrate::from_mbps(mbps));
        let config = Config { capacity, push, ..Config::default() };
        Controller::new(config, Direction::In).unwrap().push()
    };
    assert!(push(4, Push::Auto) && push(12, Push::Auto) && !push(13, Push::Auto));
    assert!(push(100, Push::On) && !push(1, Push::Off));
}

#[test]
fn fifty_flows_whose_windows_grow_in_the_search_do_not_take_each_others_share() {
    let rtts: Vec<u64> = RTTS.iter().copied().cycle().take(50).collect();
    let source = Config::default().capacity;
    let mut link = Link::new(controller(Formula::MaxMin, source), 100e6, downloads(&rtts));
    link.run(6.0);
    link.mark();
    link.run(30.0);
    // The search itself raises windows by a part of what 83 ms, the mean, of 100 Mbit/s are: 685
    // packets.
    assert!(link.queue().1 < 685, "{:?}", link.queue());
    assert!(jain(&link.rates()) >= 0.98, "{}", jain(&link.rates()));
}
