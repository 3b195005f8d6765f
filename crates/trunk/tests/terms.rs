//! The terms of links: backups, and bounds of the rate.

mod world;

use sheaf_stage::{Bitrate, Duration};
use sheaf_trunk::{EndpointConfig, LinkConfig, LinkId, SenderConfig};
use world::{MS, PACKET, World, pipe};

const SECOND: Duration = Duration::from_secs(1);

/// Bytes that end 0 has sent on a link.
fn sent(world: &World, link: u8) -> u64 {
    world.ends[0].link_stats(LinkId(link), world.now).unwrap().bytes
}

/// Bytes that end 0 sends on a link in a second.
fn in_a_second(world: &mut World, link: u8) -> u64 {
    let before = sent(world, link);
    world.run(SECOND);
    sent(world, link) - before
}

#[test]
fn a_backup_carries_nothing_until_the_other_link_is_gone_and_nothing_when_it_is_back() {
    let backup = LinkConfig { backup: true, ..LinkConfig::default() };
    for round in 0..20 {
        let config = EndpointConfig::default();
        let links = [LinkConfig::default(), backup];
        let mut world = World::with_terms(config, &[pipe(20, 5), pipe(20, 15)], &links);
        world.run(SECOND);
        // The first is full. The second is not paid for that.
        world.offer(30.0, PACKET, 4);
        world.run(2 * SECOND + Duration::from_micros(1_300 * round));
        // A probe every ten seconds.
        let idle = in_a_second(&mut world, 1);
        assert!(idle < 200, "{idle} bytes on the backup");
        world.offer(10.0, PACKET, 4);
        world.run(SECOND);
        world.forget();
        world.cut(0);
        world.run(SECOND);
        let gap = world.longest_gap();
        assert!(gap <= 200 * MS, "it carries after {gap:?}");
        let carried = in_a_second(&mut world, 1);
        assert!(carried > 1_100_000, "all of it: {carried}");
        world.mend(0);
        world.run(2 * SECOND);
        let idle = in_a_second(&mut world, 1);
        assert!(idle < 5_000, "{idle} bytes on the backup, though the other is back");
    }
}

#[test]
fn of_two_backups_both_carry_when_nothing_else_does() {
    let backup = LinkConfig { backup: true, ..LinkConfig::default() };
    let links = [LinkConfig::default(), backup, backup];
    let mut world = World::with_terms(EndpointConfig::default(), &[pipe(20, 5); 3], &links);
    world.run(SECOND);
    world.offer(60.0, PACKET, 4);
    world.run(2 * SECOND);
    world.cut(0);
    world.run(2 * SECOND);
    for link in [1, 2] {
        let carried = in_a_second(&mut world, link);
        assert!(carried > 2_000_000, "link {link} carried {carried}");
    }
}

#[test]
fn a_link_that_costs_carries_what_would_wait_too_long_for_the_others_and_else_nothing() {
    let costs = |millis| LinkConfig { cost: millis * MS, ..LinkConfig::default() };
    let links = [costs(0), costs(10), costs(20)];
    // The dearest is the quickest: that makes it no cheaper.
    let pipes = [pipe(20, 15), pipe(20, 10), pipe(20, 5)];
    let mut world = World::with_terms(EndpointConfig::default(), &pipes, &links);
    world.run(SECOND);
    // Bytes a second on each link at most, and at least.
    for (offered, most, least) in [
        (15.0, [2_000_000, 2_000, 2_000], [1_800_000, 0, 0]),
        (30.0, [2_600_000, 2_000_000, 2_000], [2_100_000, 1_000_000, 0]),
        (50.0, [2_600_000, 2_600_000, 2_100_000], [2_100_000, 2_000_000, 1_000_000]),
        (15.0, [2_000_000, 2_000, 2_000], [1_800_000, 0, 0]),
    ] {
        world.offer(offered, PACKET, 4);
        world.run(3 * SECOND);
        world.forget();
        let before = [0, 1, 2].map(|link| sent(&world, link));
        world.run(2 * SECOND);
        let carried = [0, 1, 2].map(|link| (sent(&world, link) - before[usize::from(link)]) / 2);
        for link in 0..3 {
            let range = least[link]..=most[link];
            assert!(range.contains(&carried[link]), "{offered}: {carried:?} a second");
        }
        let (packets, delay) = world.seen.iter().fold((0, Duration::ZERO), |(sum, most), seen| {
            (sum + seen.packets, most.max(seen.longest_delay))
        });
        let share = packets as f64 * PACKET as f64 * 8.0 / (2.0 * offered * 1e6);
        assert!(share > 0.99, "{offered}: {share:.3} of what is offered arrives");
        assert!(delay < 80 * MS, "{offered}: {delay:?}");
    }
}

#[test]
fn a_link_that_costs_carries_when_the_other_is_gone_and_a_call_has_no_copy_on_it() {
    let cost = LinkConfig { cost: 10 * MS, ..LinkConfig::default() };
    let links = [LinkConfig::default(), cost];
    let mut world = World::with_terms(EndpointConfig::default(), &[pipe(20, 5); 2], &links);
    world.run(SECOND);
    let before = sent(&world, 1);
    for _ in 0..100 {
        world.say(0, 200);
        world.run(20 * MS);
    }
    assert!(sent(&world, 1) - before < 200, "none of 20 kB");
    world.offer(10.0, PACKET, 4);
    world.run(2 * SECOND);
    world.forget();
    world.cut(0);
    world.run(SECOND);
    let gap = world.longest_gap();
    assert!(gap <= 200 * MS, "it carries after {gap:?}");
}

#[test]
fn a_link_never_sends_more_than_its_most() {
    let most = Some(Bitrate::from_mbps(5));
    let links = [LinkConfig { most, ..LinkConfig::default() }, LinkConfig::default()];
    let mut world = World::with_terms(EndpointConfig::default(), &[pipe(50, 5); 2], &links);
    world.run(SECOND);
    world.offer(120.0, PACKET, 4);
    for _ in 0..5 {
        let carried = in_a_second(&mut world, 0);
        // 5 Mbit/s are 625,000 bytes; what a late timer left may follow, of 2 ms at the rate.
        assert!(carried <= 627_000, "{carried} bytes in a second");
    }
    assert!(in_a_second(&mut world, 0) > 560_000, "and nearly all of that");
    assert!(in_a_second(&mut world, 1) > 5_500_000, "the other is not slowed down");
}

#[test]
fn a_link_is_never_taken_to_carry_less_than_its_least() {
    let least = Some(Bitrate::from_mbps(8));
    let links = [LinkConfig { least, ..LinkConfig::default() }; 2];
    let first_rate = Bitrate::from_kbps(100);
    let sender = SenderConfig { first_rate, ..SenderConfig::default() };
    let config = EndpointConfig { sender, ..EndpointConfig::default() };
    let mut world = World::with_terms(config, &[pipe(10, 5); 2], &links);
    for _ in 0..40 {
        world.run(100 * MS);
        for link in [0, 1] {
            let rate = world.ends[0].link_stats(LinkId(link), world.now).unwrap().rate;
            assert!(rate >= 8_000_000, "{rate}");
        }
        world.offer(40.0, PACKET, 4);
    }
}
