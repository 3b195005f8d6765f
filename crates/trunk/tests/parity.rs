//! Parities: what is lost on links that have time left is known within milliseconds, and nobody
//! pays for it where nothing is lost or nothing is left.

mod world;

use sheaf_stage::Duration;
use sheaf_trunk::{EndpointConfig, LinkConfig};
use world::{MS, Pipe, World, pipe};

const SECOND: Duration = Duration::from_secs(1);

/// Two links of 10 Mbit/s and 50 ms that lose this share.
fn links(loss: f64) -> [Pipe; 2] {
    let mut link = pipe(10, 50);
    link.loss = loss;
    [link; 2]
}

fn config(parity: bool) -> EndpointConfig {
    let mut config = EndpointConfig::default();
    config.sender.parity = parity;
    config
}

/// Four flows of `mbps` together for ten seconds, after two in which losses are seen.
fn run(mut world: World, mbps: f64) -> World {
    world.offer(mbps, 1_000, 4);
    world.run(2 * SECOND);
    world.forget();
    world.run(10 * SECOND);
    world
}

/// Longest delay of a packet.
fn longest_delay(world: &World) -> Duration {
    world.seen.iter().map(|seen| seen.longest_delay).max().unwrap()
}

#[test]
fn a_frame_that_is_lost_while_links_have_time_left_is_known_without_a_round_trip() {
    let [with, without] =
        [true, false].map(|parity| run(World::new(config(parity), &links(0.005)), 4.0));
    let repaired = longest_delay(&without);
    assert!(repaired > 150 * MS, "a request and a repair take a round trip: {repaired:?}");
    let recovered = longest_delay(&with);
    assert!(recovered < 60 * MS, "{recovered:?}");
    assert_eq!(with.disordered(), 0);
    let (sender, receiver) = (with.ends[0].stats(), with.ends[1].stats());
    assert!(receiver.recovered > 10, "{receiver:?}");
    assert!(sender.parity.frames <= 16 * sender.parity.sent, "{sender:?}");
    assert_eq!(without.ends[0].stats().parity.sent, 0);
}

#[test]
fn a_frame_that_is_lost_in_a_burst_has_a_parity_if_links_had_time_left_before_it() {
    let mut world = World::new(config(true), &links(0.005));
    let bursts = |world: &mut World, count: usize| {
        for _ in 0..count {
            // TCP sends such a window after a repair: 90 packets, 40 ms of both links.
            world.offer(40.0, 1_000, 1);
            world.run(18 * MS);
            world.source = None;
            world.run(82 * MS);
        }
    };
    bursts(&mut world, 20);
    world.forget();
    let before = world.ends[0].stats().parity.frames;
    bursts(&mut world, 100);
    let packets = world.seen[0].packets;
    let protected = world.ends[0].stats().parity.frames - before;
    // The last ones of a burst have none if its queue is still on the way.
    assert!(protected * 10 > packets * 8, "{protected} of {packets} packets");
    assert_eq!(world.disordered(), 0);
}

#[test]
fn where_nothing_is_lost_no_parities_are_sent() {
    let world = run(World::new(config(true), &links(0.0)), 4.0);
    assert_eq!(world.ends[0].stats().parity.sent, 0);
}

#[test]
fn where_nothing_is_left_of_the_rate_packets_go_out_and_not_parities() {
    let carried = |parity| {
        let mut world = World::new(config(parity), &links(0.005));
        world.offer(30.0, 1_000, 4);
        world.run(5 * SECOND);
        let mbps = world.measure(10 * SECOND);
        (mbps, world.ends[0].stats().parity.sent)
    };
    let ((with, sent), (without, _)) = (carried(true), carried(false));
    assert!(with > 0.99 * without, "{with} for {without} Mbit/s, {sent} parities");
}

#[test]
fn a_link_that_is_paid_for_carries_no_parities() {
    let cost = LinkConfig { cost: 10 * MS, ..LinkConfig::default() };
    let world = run(World::with_terms(config(true), &links(0.005), &[cost; 2]), 4.0);
    assert_eq!(world.ends[0].stats().parity.sent, 0);
}
