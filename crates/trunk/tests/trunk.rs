//! Two ends and simulated links: what the trunk promises.

mod world;

use sheaf_stage::Duration;
use sheaf_trunk::{EndpointConfig, LinkId, Scheduler};
use world::{MS, PACKET, Pipe, World, pipe};

const SECOND: Duration = Duration::from_secs(1);

fn saturated(scheduler: Scheduler, pipes: &[Pipe]) -> World {
    let mut config = EndpointConfig::default();
    config.sender.scheduler = scheduler;
    let mut world = World::new(config, pipes);
    world.run(SECOND);
    let sum: u64 = pipes.iter().map(|pipe| pipe.rate.as_bps()).sum();
    world.offer(sum as f64 / 1e6 * 1.3, PACKET, 4);
    world
}

fn trace(world: &World) {
    for link in 0..world.pipes[0].len() {
        println!(
            "{link}: {:?} dropped {}",
            world.ends[0].link_stats(LinkId(link as u8), world.now).unwrap(),
            world.pipes[0][link].dropped
        );
    }
    println!("{:?}", world.ends[1].stats());
    println!("{:?} fallback {:?}", world.ends[0].sent(), world.ends[0].sender().fallen_back_to());
}

/// Share of what the links carry that goes through in the next ten seconds.
fn share(world: &mut World) -> f64 {
    world.forget();
    let share = world.measure(10 * SECOND) / world.ideal();
    trace(world);
    share
}

#[test]
fn two_to_ten_equal_links_carry_97_percent_of_their_sum() {
    for scheduler in [Scheduler::Earliest, Scheduler::RoundRobin] {
        for links in 2..=10 {
            let mut world = saturated(scheduler, &vec![pipe(5, 2); links]);
            world.run(2 * SECOND);
            let share = world.measure(4 * SECOND) / world.ideal();
            trace(&world);
            assert!(share >= 0.97, "{scheduler:?}, {links} links: {share:.3}");
            assert_eq!(world.disordered(), 0);
        }
    }
}

/// The best that 20 + 10 Mbit/s can do is 28.5 with TCP's headers; 28.0 is asked for.
const NEARLY_ALL: f64 = 28.0 / 28.5;

#[test]
fn unequal_links_are_filled_without_being_told_their_rates() {
    let mut world = saturated(Scheduler::Earliest, &[pipe(20, 5), pipe(10, 5)]);
    for second in [10, 5, 10] {
        world.set_rate(1, second);
        world.run(2 * SECOND);
        assert_eq!(world.disordered(), 0, "while it adapts to 20 + {second}");
        let share = share(&mut world);
        assert!(share >= NEARLY_ALL, "20 + {second}: {share:.4}");
        assert_eq!(world.disordered(), 0);
    }
}

#[test]
fn links_far_apart_in_rate_and_delay_add_up() {
    for (a, b) in [((30, 5), (3, 50)), ((3, 5), (30, 50)), ((10, 5), (10, 50))] {
        let mut world = saturated(Scheduler::Earliest, &[pipe(a.0, a.1), pipe(b.0, b.1)]);
        world.run(3 * SECOND);
        let share = share(&mut world);
        assert!(share >= 0.98, "{share:.3}");
        assert_eq!(world.disordered(), 0);
    }
}

#[test]
fn a_link_that_is_pulled_costs_what_was_on_it() {
    let mut world = saturated(Scheduler::Earliest, &[pipe(10, 5); 3]);
    world.run(3 * SECOND);
    world.forget();
    world.cut(2);
    world.ends[0].link_down(LinkId(2), world.now);
    world.ends[1].link_down(LinkId(2), world.now);
    world.run(SECOND);
    trace(&world);
    let gap = world.longest_gap();
    assert!(gap <= 50 * MS, "{gap:?}");
    // 5 ms on the way and a queue of 4 ms, of 1.2 ms a frame, and what leaves while it is noticed.
    assert!(world.pipes[0][2].cut <= 12, "{}", world.pipes[0][2].cut);
    let share = world.measure(2 * SECOND) / world.ideal();
    assert!(share >= 0.97 * 2.0 / 3.0, "{share:.3}");

    world.mend(2);
    world.ends.iter_mut().for_each(|end| end.link_up(LinkId(2)));
    world.run(SECOND);
    let share = world.measure(2 * SECOND) / world.ideal();
    trace(&world);
    assert!(share >= 0.97, "{share:.3}");
}

#[test]
fn a_silent_cut_is_noticed_within_100_ms_and_mended_by_itself() {
    let mut world = saturated(Scheduler::Earliest, &[pipe(10, 5); 3]);
    world.run(3 * SECOND);
    world.forget();
    world.cut(2);
    world.run(SECOND);
    let gap = world.longest_gap();
    assert!(gap <= 100 * MS, "{gap:?}");
    trace(&world);
    assert!(!world.ends[0].link_stats(LinkId(2), world.now).unwrap().up);
    world.mend(2);
    world.run(SECOND);
    let share = world.measure(2 * SECOND) / world.ideal();
    assert!(share >= 0.97, "{share:.3}");
}

#[test]
fn either_end_can_restart_and_the_trunk_resumes_within_a_second() {
    for end in 0..2 {
        let mut world = saturated(Scheduler::Earliest, &[pipe(10, 5); 2]);
        world.run(2 * SECOND);
        world.restart(end);
        world.run(SECOND);
        let share = world.measure(2 * SECOND) / world.ideal();
        trace(&world);
        assert!(share >= 0.97, "end {end}: {share:.3}");
    }
}

#[test]
fn a_link_that_loses_much_is_left_out_and_taken_back() {
    let mut world = saturated(Scheduler::Earliest, &[pipe(10, 5), pipe(10, 5)]);
    world.pipes[0][1].loss = 0.2;
    world.run(8 * SECOND);
    let used = |world: &World| world.ends[0].link_stats(LinkId(1), world.now).unwrap().used;
    trace(&world);
    assert!(!used(&world));
    world.pipes[0][1].loss = 0.0;
    world.run(30 * SECOND);
    trace(&world);
    assert!(used(&world), "probes find that it is good again");
    let share = world.measure(2 * SECOND) / world.ideal();
    assert!(share >= 0.97, "{share:.3}");
}

#[test]
fn a_loss_below_the_limit_costs_its_share_and_nothing_else() {
    let mut world = saturated(Scheduler::Earliest, &[pipe(10, 5), pipe(10, 5)]);
    world.pipes[0][1].loss = 0.01;
    world.run(3 * SECOND);
    world.forget();
    let share = world.measure(5 * SECOND) / world.ideal();
    trace(&world);
    assert!(share >= 0.98, "{share:.3}");
    assert_eq!(world.disordered(), 0);
    let delay = world.seen.iter().map(|seen| seen.longest_delay).max().unwrap();
    assert!(delay < 120 * MS, "a loss is known by the other link, not by a timer: {delay:?}");
}

#[test]
fn a_frame_that_was_lost_twice_takes_two_links_as_the_next_repair_would_come_too_late() {
    let mut link = pipe(10, 20);
    link.loss = 0.05;
    let mut config = EndpointConfig::default();
    config.sender.parity = false;
    let mut world = World::new(config, &[link; 2]);
    world.offer(4.0, 200, 1);
    world.run(40 * SECOND);
    let (packets, lost) =
        (world.seen[0].packets, u64::from(world.seen[0].next) - world.seen[0].packets);
    // One in 8,000 would be lost three times, twelve in all.
    assert!(packets > 90_000 && lost <= 3, "{lost} of {packets}");
}

#[test]
fn with_a_source_like_tcp_the_trunk_is_not_worse_than_its_best_link() {
    let alone = {
        let mut world = World::new(EndpointConfig::default(), &[pipe(20, 5)]);
        world.run(SECOND);
        world.start_window();
        world.run(5 * SECOND);
        world.measure(20 * SECOND)
    };
    let mut bad = pipe(10, 5);
    bad.loss = 0.03;
    let mut world = World::new(EndpointConfig::default(), &[pipe(20, 5), bad]);
    world.run(SECOND);
    world.start_window();
    world.run(20 * SECOND);
    let both = world.measure(20 * SECOND);
    trace(&world);
    println!("alone {alone:.2}, with a bad link {both:.2}");
    // What the bad link loses is repaired, so that it adds its rate.
    assert!(both >= 1.4 * alone, "{both:.2} with a bad link, {alone:.2} without it");
}

#[test]
fn a_source_like_tcp_gets_the_sum_of_clean_links_however_unequal() {
    for (a, b) in [((20, 5), (10, 15)), ((30, 5), (3, 50)), ((10, 5), (10, 50))] {
        let pipes = [pipe(a.0, a.1), pipe(b.0, b.1)];
        let mut world = World::new(EndpointConfig::default(), &pipes);
        world.run(SECOND);
        world.start_window();
        world.run(10 * SECOND);
        let share = world.measure(20 * SECOND) / world.ideal();
        trace(&world);
        assert!(share >= 0.98, "{a:?} and {b:?}: {share:.3}");
        assert_eq!(world.ends[0].sender().fallen_back_to(), None);
    }
}

#[test]
fn links_that_jitter_add_up_in_order() {
    let mut pipes = [pipe(20, 5), pipe(10, 15), pipe(5, 25)];
    pipes.iter_mut().for_each(|pipe| pipe.jitter = 4 * MS);
    let mut world = saturated(Scheduler::Earliest, &pipes);
    world.run(3 * SECOND);
    let share = share(&mut world);
    assert!(share >= 0.98, "{share:.3}");
    assert_eq!(world.disordered(), 0);
}

#[test]
fn copies_on_every_link_survive_the_loss_of_any_one() {
    let mut config = EndpointConfig::default();
    config.sender.scheduler = Scheduler::Redundant;
    let mut world = World::new(config, &[pipe(10, 5), pipe(10, 20)]);
    world.run(SECOND);
    world.offer(1.0, 200, 1);
    world.run(SECOND);
    world.forget();
    let before = world.seen[0].packets;
    world.cut(0);
    world.run(2 * SECOND);
    let seen = world.seen[0];
    assert_eq!(seen.packets, u64::from(seen.next), "none is lost");
    assert!(seen.packets - before > 1_200);
    assert_eq!(seen.disordered, 0);
    assert!(seen.longest_gap < 25 * MS, "{:?}", seen.longest_gap);
    assert!(world.ends[1].stats().duplicates > 500);
}

#[test]
fn small_packets_that_wait_share_frames() {
    let mut world = World::new(EndpointConfig::default(), &[pipe(1, 5), pipe(1, 5)]);
    world.run(SECOND);
    world.offer(1.5, 100, 8);
    world.run(3 * SECOND);
    world.forget();
    let before = world.bytes();
    world.run(3 * SECOND);
    trace(&world);
    let rate = (world.bytes() - before) as f64 * 8.0 / 3e6;
    assert!(rate > 1.45, "one by one only 2 * 100 / 150 Mbit/s fit: {rate:.2}");
    assert_eq!(world.disordered(), 0);
}

#[test]
fn srr_falls_into_disorder_when_packets_and_markers_are_lost() {
    let disorder = |scheduler, lose_marks| {
        let mut pipes = [pipe(5, 5); 3];
        pipes.iter_mut().for_each(|pipe| pipe.loss = 0.002);
        let mut world = saturated(scheduler, &pipes);
        world.lose_marks = lose_marks;
        world.run(10 * SECOND);
        trace(&world);
        let packets: u64 = world.seen.iter().map(|seen| seen.packets).sum();
        assert!(packets > 8_000, "{scheduler:?}: {packets}");
        world.disordered() as f64 / packets as f64
    };
    let (with, without) = (disorder(Scheduler::Srr, false), disorder(Scheduler::Srr, true));
    println!("disordered with markers {with:.4}, without {without:.4}");
    assert!(with > 0.0 && with < 0.2);
    assert!(without > 2.0 * with);
    assert_eq!(disorder(Scheduler::Earliest, false), 0.0);
}

#[test]
fn trr_goes_on_when_triggers_are_lost() {
    let mut pipes = [pipe(5, 5); 3];
    pipes.iter_mut().for_each(|pipe| pipe.loss = 0.002);
    let mut world = saturated(Scheduler::Trr, &pipes);
    world.run(3 * SECOND);
    let rate = world.measure(5 * SECOND);
    trace(&world);
    println!("{rate:.2} of {:.2}, disordered {}", world.ideal(), world.disordered());
    assert!(rate > 0.95 * world.ideal());
    // A lost trigger costs order until the next one; nothing is repaired for a follower of rounds.
    assert!(world.disordered() < 50);
}

#[test]
fn a_carrier_that_tells_its_queue_is_filled_to_a_quarter() {
    for scheduler in [Scheduler::Earliest, Scheduler::RoundRobin] {
        let mut config = EndpointConfig::default();
        config.sender.scheduler = scheduler;
        let mut world = World::new(config, &[pipe(20, 5), pipe(10, 5)]);
        world.tells = true;
        world.run(SECOND);
        world.offer(40.0, PACKET, 4);
        world.run(2 * SECOND);
        world.forget();
        let share = world.measure(5 * SECOND) / world.ideal();
        trace(&world);
        assert!(share >= 0.97, "{scheduler:?}: {share:.3}");
        assert!(world.pipes[0].iter().all(|pipe| pipe.fullest < 0.3), "{:?}", world.pipes[0]);
        assert_eq!(world.disordered(), 0, "{scheduler:?}");
    }
}

#[test]
fn links_that_drop_instead_of_queueing_are_filled_and_lose_little() {
    let mut pipes = [pipe(20, 5), pipe(10, 5)];
    pipes.iter_mut().for_each(|pipe| pipe.limit = 4_000);
    let mut world = saturated(Scheduler::Earliest, &pipes);
    world.run(3 * SECOND);
    let used = |link| world.ends[0].link_stats(LinkId(link), world.now).unwrap().used;
    trace(&world);
    assert!(used(0) && used(1), "what start-up lost is not held against a link");
    let before: u64 = world.pipes[0].iter().map(|pipe| pipe.dropped).sum();
    let sent = world.ends[0].sent().packets_out;
    let share = world.measure(20 * SECOND) / world.ideal();
    trace(&world);
    let lost = world.pipes[0].iter().map(|pipe| pipe.dropped).sum::<u64>() - before;
    let lost = lost as f64 / (world.ends[0].sent().packets_out - sent) as f64;
    println!("{share:.3}, lost {lost:.4}");
    assert!(share >= 0.98, "{share:.3}");
    assert!(lost < 0.01, "{lost:.4}");
}

#[test]
fn a_policed_link_that_becomes_slower_is_found_and_used_at_its_rate() {
    let mut pipes = [pipe(20, 5), pipe(10, 5)];
    pipes[1].limit = 4_000;
    let mut world = saturated(Scheduler::Earliest, &pipes);
    world.run(5 * SECOND);
    world.set_rate(1, 5);
    world.run(30 * SECOND);
    let share = world.measure(20 * SECOND) / world.ideal();
    trace(&world);
    println!("{share:.3}");
    assert!(share >= 0.98, "{share:.3}");
}
