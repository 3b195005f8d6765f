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

#[test]
fn unequal_links_are_filled_without_being_told_their_rates() {
    let mut world = saturated(Scheduler::Earliest, &[pipe(20, 5), pipe(10, 5)]);
    world.run(SECOND);
    let rate = world.measure(10 * SECOND);
    trace(&world);
    assert!(rate >= 28.0 / 28.5 * world.ideal(), "{rate:.2} of {:.2}", world.ideal());
    world.set_rate(1, 5);
    world.run(SECOND);
    let rate = world.measure(10 * SECOND);
    trace(&world);
    assert!(rate >= 28.0 / 28.5 * world.ideal(), "{rate:.2} of {:.2}", world.ideal());
    world.set_rate(1, 10);
    world.run(2 * SECOND);
    let rate = world.measure(10 * SECOND);
    trace(&world);
    assert!(rate >= 28.0 / 28.5 * world.ideal(), "{rate:.2} of {:.2}", world.ideal());
    assert_eq!(world.disordered(), 0);
}

#[test]
fn links_far_apart_in_rate_and_delay_add_up() {
    for pipes in [[pipe(30, 5), pipe(3, 50)], [pipe(3, 5), pipe(30, 50)], [pipe(10, 5), pipe(10, 50)]] {
        let mut world = saturated(Scheduler::Earliest, &pipes);
        world.run(2 * SECOND);
        let share = world.measure(10 * SECOND) / world.ideal();
        trace(&world);
        assert!(share >= 0.95, "{share:.3}");
        assert_eq!(world.disordered(), 0);
    }
}

#[test]
fn a_link_that_is_pulled_costs_what_was_on_it() {
    let mut world = saturated(Scheduler::Earliest, &[pipe(10, 5); 3]);
    world.run(3 * SECOND);
    world.seen.iter_mut().for_each(|seen| seen.longest_gap = Duration::ZERO);
    world.cut(2);
    world.ends[0].link_down(LinkId(2), world.now);
    world.ends[1].link_down(LinkId(2), world.now);
    world.run(SECOND);
    trace(&world);
    let gap = world.seen.iter().map(|seen| seen.longest_gap).max().unwrap();
    assert!(gap <= 100 * MS, "{gap:?}");
    // 5 ms on the way and a queue of a few milliseconds.
    assert!(world.pipes[0][2].cut <= 25, "{}", world.pipes[0][2].cut);
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
    world.seen.iter_mut().for_each(|seen| seen.longest_gap = Duration::ZERO);
    world.cut(2);
    world.run(SECOND);
    let gap = world.seen.iter().map(|seen| seen.longest_gap).max().unwrap();
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
