//! Probes on idle links: seldom enough for an end at rest, often enough to know its links.

mod world;

use sheaf_stage::{Duration, Instant};
use sheaf_trunk::{EndpointConfig, LinkConfig, LinkId};
use std::collections::BTreeSet;
use world::{MS, PACKET, World, pipe};

const SECOND: Duration = Duration::from_secs(1);

/// Times at which an end sent something on any link since `from`.
fn times(world: &World, end: usize, from: Instant) -> BTreeSet<Instant> {
    world.controls[end].iter().map(|(at, _)| *at).filter(|at| *at >= from).collect()
}

/// The longest time between two probes of an end on a link since `from`, and their number.
fn pauses(world: &World, end: usize, link: usize, from: Instant) -> (Duration, usize) {
    let probes = world.controls[end].iter().filter(|(at, on)| *at >= from && *on == link);
    let times: Vec<_> = probes.map(|(at, _)| *at).collect();
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max();
    (longest.unwrap_or(Duration::MAX), times.len())
}

#[test]
fn probes_of_all_links_leave_together_and_those_of_one_end_follow_the_others() {
    let pipes = [pipe(20, 1), pipe(20, 2), pipe(20, 3)];
    let mut world = World::new(EndpointConfig::default(), &pipes);
    world.run(SECOND);
    // Each link's probes get a time of their own.
    for (end, link) in [(0, 0), (0, 1), (1, 2), (0, 2), (1, 1)] {
        world.ends[end].link_up(LinkId(link));
        world.run(23 * MS);
    }
    world.run(SECOND);
    let from = world.now;
    world.run(10 * SECOND);
    // Both send at nearly the same times: what one wakes for, the other does not wait for.
    let all: BTreeSet<_> = (0..2).flat_map(|end| times(&world, end, from)).collect();
    let apart = all.iter().zip(all.iter().skip(1)).map(|(one, next)| *next - *one);
    assert!(apart.filter(|pause| *pause > 5 * MS).count() <= 101, "all within the way's time");
    for end in 0..2 {
        let wakes = times(&world, end, from).len();
        assert!(wakes <= 101, "end {end} woke {wakes} times to send");
        for link in 0..3 {
            let (longest, count) = pauses(&world, end, link, from);
            assert!(longest <= 101 * MS, "a pause of {longest:?} on link {link}");
            assert!(count <= 101, "end {end} sent {count} probes on link {link}");
        }
    }
}

#[test]
fn a_link_with_a_long_way_is_probed_no_more_often() {
    for delay in [10, 30, 45, 60, 75, 90, 140, 300] {
        let mut world = World::new(EndpointConfig::default(), &[pipe(20, delay); 2]);
        world.run(3 * SECOND);
        let from = world.now;
        world.run(10 * SECOND);
        for (end, link) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let (longest, count) = pauses(&world, end, link, from);
            assert!(longest <= 101 * MS && count <= 101, "{count} probes, {longest:?} at {delay}");
        }
    }
}

#[test]
fn an_end_that_nobody_answers_asks_less_often_and_the_other_is_found_when_it_comes() {
    let mut world = World::new(EndpointConfig::default(), &[pipe(20, 5); 2]);
    world.cut(0);
    world.cut(1);
    world.run(10 * SECOND);
    let (_, often) = pauses(&world, 0, 0, Instant::ZERO);
    assert_eq!(often, 100);
    let from = world.now;
    world.run(100 * SECOND);
    let (_, seldom) = pauses(&world, 0, 0, from);
    assert!(seldom <= 101, "{seldom} hellos in 100 s");
    assert_eq!(times(&world, 0, from).len(), seldom, "those of both links leave together");
    world.mend(0);
    world.mend(1);
    world.run(SECOND + 30 * MS);
    assert!(world.ends.iter().all(|end| end.is_established()));
    let from = world.now;
    world.run(SECOND);
    assert!(pauses(&world, 0, 0, from).0 <= 100 * MS, "as often as before");
}

#[test]
fn a_link_that_was_silent_for_long_is_up_within_a_second_when_it_is_back() {
    let mut world = World::new(EndpointConfig::default(), &[pipe(20, 5); 2]);
    world.run(SECOND);
    world.cut(1);
    world.run(100 * SECOND);
    world.mend(1);
    world.run(SECOND + 20 * MS);
    for end in &world.ends {
        assert!(end.link_stats(LinkId(1), world.now).unwrap().up);
    }
}

#[test]
fn a_link_that_carries_one_way_only_is_not_up_and_down_in_turn() {
    let mut world = World::new(EndpointConfig::default(), &[pipe(20, 5); 2]);
    world.run(SECOND);
    // End 1 hears end 0 no longer.
    world.pipes[0][1].up = false;
    world.run(20 * SECOND);
    for _ in 0..10_000 {
        world.run(MS);
        assert!(world.ends[0].link_stats(LinkId(1), world.now).unwrap().up, "at {:?}", world.now);
    }
}

#[test]
fn a_backup_at_rest_is_probed_every_ten_seconds_and_carries_when_the_other_is_gone() {
    let backup = LinkConfig { backup: true, ..LinkConfig::default() };
    let links = [LinkConfig::default(), backup];
    for round in 0..20 {
        let config = EndpointConfig::default();
        let mut world = World::with_terms(config, &[pipe(20, 5), pipe(20, 15)], &links);
        world.run(3 * SECOND + Duration::from_micros(431_300 * round));
        let from = world.now;
        // With traffic on the other link and without.
        world.offer(10.0, PACKET, 4);
        world.run(20 * SECOND);
        world.source = None;
        world.run(20 * SECOND);
        for end in 0..2 {
            let (longest, count) = pauses(&world, end, 1, from);
            assert!((3..=5).contains(&count), "{count} probes in 40 s");
            assert!(longest <= 10_200 * MS, "a pause of {longest:?}");
            assert!(world.ends[end].link_stats(LinkId(1), world.now).unwrap().up);
        }
        world.offer(10.0, PACKET, 4);
        world.run(2 * SECOND);
        world.forget();
        world.cut(0);
        world.run(SECOND);
        let gap = world.longest_gap();
        assert!(gap <= 200 * MS, "it carries after {gap:?}");
        // It is a link like others now: its end is noticed as soon.
        world.cut(1);
        world.run(600 * MS);
        for end in &world.ends {
            assert!(!end.link_stats(LinkId(1), world.now).unwrap().up);
        }
    }
}

#[test]
fn a_backup_that_died_at_rest_is_noticed_and_one_that_is_back_found() {
    let backup = LinkConfig { backup: true, ..LinkConfig::default() };
    let links = [LinkConfig::default(), backup];
    let mut world = World::with_terms(EndpointConfig::default(), &[pipe(20, 5); 2], &links);
    let up = |world: &World| {
        [0, 1].map(|end: usize| world.ends[end].link_stats(LinkId(1), world.now).unwrap().up)
    };
    world.run(5 * SECOND);
    world.cut(1);
    world.run(11 * SECOND);
    assert_eq!(up(&world), [false; 2]);
    let from = world.now;
    world.run(100 * SECOND);
    assert!(pauses(&world, 0, 1, from).1 <= 12, "nor does it cost more than at rest");
    world.mend(1);
    world.run(10_100 * MS);
    assert_eq!(up(&world), [true; 2]);
    // Where the other link is gone as well, it is looked for as any.
    world.cut(1);
    world.run(100 * SECOND);
    world.cut(0);
    world.run(20 * SECOND);
    world.mend(1);
    world.run(SECOND + 20 * MS);
    assert_eq!(up(&world), [true; 2]);
}

#[test]
fn losses_on_a_link_are_known_without_waiting_for_a_backup_at_rest() {
    let backup = LinkConfig { backup: true, ..LinkConfig::default() };
    let links = [LinkConfig::default(), backup];
    let mut world = World::with_terms(EndpointConfig::default(), &[pipe(20, 5); 2], &links);
    world.run(3 * SECOND);
    world.pipes[0][0].loss = 0.01;
    world.offer(10.0, PACKET, 4);
    world.run(10 * SECOND);
    let delay = world.seen.iter().map(|seen| seen.longest_delay).max().unwrap();
    // 5 ms there, and a repair or two of a round trip each.
    assert!(delay <= 60 * MS, "{delay:?}");
}

#[test]
fn a_packet_train_never_shows_less_than_its_link_though_its_reader_had_no_processor_for_a_while() {
    for start in 0..100 {
        let mut world = World::new(EndpointConfig::default(), &[pipe(20, 10)]);
        world.run(MS * start);
        world.stalled = Some((1, world.now + 8 * MS));
        world.run(SECOND);
        for (index, end) in world.ends.iter().enumerate() {
            let rate = end.link_stats(LinkId(0), world.now).unwrap().rate;
            let mbps = rate as f64 / 1e6;
            // Where all of it was read at once, it shows nothing.
            let first = world.config.sender.first_rate.as_bps() as f64 / 1e6;
            assert!((first..25.0).contains(&mbps), "stalled at {start} ms, end {index}: {mbps}");
        }
    }
}
