//! Trunks over links that lose, jitter and differ, against the best of these links alone.
//!
//! `cargo test -p sheaf-trunk --test mixes -- --ignored --nocapture` prints the whole table.

mod mix;

use mix::link::{LinkSpec, link};
use mix::list::{Mix, mixes};
use mix::tcp::{Control, packet};
use mix::{Load, PACKET, Rig, Way, median};
use sheaf_stage::Duration;
use sheaf_trunk::{DeliveryMode, LinkId};

const SECOND: Duration = Duration::from_secs(1);
/// Share of a link's rate that packets have of frames with all headers.
const PAYLOAD: f64 = PACKET as f64 / (PACKET + 8 + 42) as f64;
const SEEDS: [u64; 3] = [1, 2, 3];
/// Seeds where single losses decide.
const MANY_SEEDS: [u64; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

/// Mbit/s over `time`, from the start of the flows but for the first `warm`.
fn goodput_once(
    way: Way,
    links: &[LinkSpec],
    load: Load,
    warm: Duration,
    time: Duration,
    seed: u64,
) -> f64 {
    let mut rig = Rig::new(way, links, load, seed);
    rig.run(warm);
    rig.measure(1, time)
}

/// Goodput of the trunk, and of the best of its links alone, with one CUBIC flow; medians.
fn compared(links: &[LinkSpec], warm: Duration, time: Duration) -> (f64, f64) {
    let load = Load { tcp: 1, ..Load::default() };
    let once = |way, seed| goodput_once(way, links, load, warm, time, seed);
    let goodput = |way| median(MANY_SEEDS.map(|seed| once(way, seed)).to_vec());
    let single = (0..links.len()).map(|link| goodput(Way::Single(link))).fold(0.0, f64::max);
    (goodput(Way::Trunk), single)
}

#[test]
fn a_tcp_flow_over_a_link_that_loses_and_a_clean_one_gets_more_than_the_clean_one_carries() {
    for percent in [0.5, 2.0] {
        let links = [link(20.0, 10.0).loss(percent), link(20.0, 10.0)];
        let (trunk, single) = compared(&links, 2 * SECOND, 6 * SECOND);
        assert!(trunk > 1.5 * single, "{percent} %: {trunk:.1}, alone {single:.1} Mbit/s");
    }
}

#[test]
fn where_loss_limits_tcp_on_each_link_the_trunk_carries_most_of_what_the_links_can() {
    let links = [link(20.0, 20.0).loss(2.0); 2];
    let (trunk, single) = compared(&links, 4 * SECOND, 8 * SECOND);
    assert!(single < 10.0 && trunk > 0.75 * 40.0 * PAYLOAD, "{trunk:.1}, alone {single:.1} Mbit/s");
}

#[test]
fn one_cubic_flow_over_links_that_lose_waits_for_the_repair_of_data_alone() {
    let links = [link(50.0, 20.0).loss(2.0); 2];
    let (trunk, _) = compared(&links, SECOND, 14 * SECOND);
    // Where acknowledgements behind a lost one wait for its repair, 41.
    assert!(trunk > 48.0, "{trunk:.1} Mbit/s");
}

#[test]
fn one_cubic_flow_over_links_that_lose_fills_most_of_them() {
    let links = [link(50.0, 20.0).loss(2.0); 2];
    let (trunk, _) = compared(&links, SECOND, 14 * SECOND);
    // Where bursts have no parities and a drop comes before a queue that a repair empties, 66.
    assert!(trunk > 69.0, "{trunk:.1} Mbit/s");
}

#[test]
fn one_bbr_flow_over_two_mobile_links_that_lose_has_more_than_over_the_best_of_them() {
    let links = [link(20.0, 50.0).jitter(20.0).loss(2.0), link(15.0, 60.0).jitter(25.0).loss(2.0)];
    let load = Load { tcp: 1, control: Control::Bbr, ..Load::default() };
    let goodput = |way| {
        let once = |seed| goodput_once(way, &links, load, SECOND, 14 * SECOND, seed);
        median(MANY_SEEDS.map(once).to_vec())
    };
    let (trunk, single) = (goodput(Way::Trunk), goodput(Way::Single(0)));
    assert!(trunk > 1.2 * single, "{trunk:.1}, alone {single:.1} Mbit/s");
}

#[test]
fn a_slow_link_beside_a_fast_one_does_not_hold_it_up_even_in_the_first_seconds() {
    let (trunk, _) = compared(&[link(100.0, 10.0), link(1.0, 10.0)], 2 * SECOND, SECOND);
    assert!(trunk > 0.95 * 101.0 * PAYLOAD, "{trunk:.1} Mbit/s");
}

#[test]
fn jitter_on_one_link_takes_nothing_from_the_other() {
    let links = [link(20.0, 10.0).jitter(9.0), link(20.0, 10.0)];
    let (trunk, single) = compared(&links, 5 * SECOND, 8 * SECOND);
    assert!(trunk > 1.3 * single, "{trunk:.1}, alone {single:.1} Mbit/s");
}

#[test]
fn links_whose_delay_varies_have_the_rates_that_they_deliver_and_not_those_that_jitter_suggests() {
    let links = [link(40.0, 30.0).jitter(5.0).loss(0.5), link(25.0, 45.0).jitter(8.0).loss(0.5)];
    let (trunk, single) = compared(&links, SECOND, 14 * SECOND);
    // Rates that jitter and single losses pulled down let 13 Mbit/s pass.
    assert!(trunk > 20.0 && trunk > 1.3 * single, "{trunk:.1}, alone {single:.1} Mbit/s");
}

/// Links as mobile networks have them: frames overtake each other by up to 16 and 50 ms.
const MOBILE: [LinkSpec; 2] =
    [link(40.0, 35.0).jitter(8.0), link(100.0, 50.0).jitter(25.0).loss(1.0)];

#[test]
fn flows_find_the_rates_of_links_whose_delay_varies_in_their_first_seconds() {
    let load = Load { tcp: 4, ..Load::default() };
    let once = |seed| goodput_once(Way::Trunk, &MOBILE, load, SECOND, 10 * SECOND, seed);
    let least = MANY_SEEDS.map(once).into_iter().fold(f64::MAX, f64::min);
    // Where a train, the first delays or late frames are taken for a queue or losses, 31.
    assert!(least > 50.0, "{least:.1} Mbit/s");
}

#[test]
fn a_link_is_not_left_out_because_its_frames_overtake() {
    let load = Load { tcp: 1, ..Load::default() };
    for seed in MANY_SEEDS {
        let mut rig = Rig::new(Way::Trunk, &MOBILE, load, seed);
        for _ in 0..10 {
            rig.run(SECOND / 2);
            let link = rig.ends[0].link_stats(LinkId(1), rig.now).unwrap();
            assert!(link.used, "seed {seed}: {:.3} taken for lost at {:?}", link.loss, rig.now);
        }
    }
}

/// A quick link, and one that is much farther and has most of the rate: DSL and a mobile network.
const HYBRID: [LinkSpec; 2] = [link(20.0, 50.0), link(5.0, 10.0)];

#[test]
fn one_bbr_flow_fills_a_quick_link_and_a_far_one_that_has_most_of_the_rate() {
    let call = Some(DeliveryMode::Copies);
    let load = Load { tcp: 1, control: Control::Bbr, ..Load::default() };
    let once = |way, load| goodput_once(way, &HYBRID, load, SECOND, 4 * SECOND, 1);
    let single = once(Way::Single(0), load);
    let trunk = once(Way::Trunk, load);
    // Where its least round trip was that of the quick link, a quarter of the single one.
    assert!(trunk > 1.15 * single, "{trunk:.1}, alone {single:.1} Mbit/s");

    let mut rig = Rig::new(Way::Trunk, &HYBRID, Load { call, ping: true, ..load }, 1);
    rig.run(5 * SECOND);
    // 10 ms on the way, 4 ms of queue, a full frame of 2.4 ms being sent, and the packet itself.
    let (call, ping) = (rig.probe.percentile(0.99), rig.ping.percentile(0.99));
    assert!(call < 20.0 && ping < 20.0, "call {call:.1}, ping {ping:.1} ms");
}

#[test]
fn what_tcp_measures_its_round_trip_by_takes_the_link_of_most_rate_and_the_rest_the_quick_one() {
    const SYN_ACK: u8 = 0x12;
    const ACK: u8 = 0x10;
    let (far, quick) = (0, 1);
    let mut rig = Rig::new(Way::Trunk, &HYBRID, Load::default(), 1);
    let mut link_of = |flow: u16, protocol: u8, flags: u8, data: usize| {
        let mut packet = packet(flow, 40 + data, 0);
        (packet[9], packet[32], packet[33]) = (protocol, 5 << 4, flags);
        rig.send(0, packet, DeliveryMode::Order);
        rig.run(SECOND / 5);
        rig.last_link
    };
    let (udp, tcp, full) = (17, 6, PACKET - 40);
    assert_eq!(link_of(1, udp, 0, full), quick, "UDP");
    assert_eq!(link_of(1, tcp, 2, 0), quick, "SYN");
    assert_eq!(link_of(1, tcp, ACK, full), far, "a full segment");
    assert_eq!(link_of(1, tcp, ACK, 100), far, "the end of what was sent");
    assert_eq!(link_of(1, tcp, ACK, 0), quick, "an acknowledgement");
    assert_eq!(link_of(2, tcp, SYN_ACK, 0), far, "by which both ends measure");
    assert_eq!(link_of(2, tcp, ACK, 100), far, "what the server says first");
    assert_eq!(link_of(3, tcp, ACK, 100), quick, "a question");
    assert_eq!(link_of(3, tcp, ACK, full), quick, "its flow has measured the quick link");
    for _ in 0..50 {
        link_of(4, udp, 0, 0);
    }
    assert_eq!(link_of(1, tcp, ACK, 100), quick, "after ten seconds");
    assert_eq!(link_of(2, tcp, ACK, 100), quick, "a terminal, after ten seconds");
    assert_eq!(link_of(3, tcp, ACK, full), far, "measured again after ten seconds");
}

#[test]
fn a_flow_that_began_before_the_rates_were_known_is_no_worse_for_the_link_of_most_rate() {
    // The delay varies, so that the first rate of the far link is found with traffic.
    let links = [link(100.0, 30.0).jitter(3.0).loss(0.2), link(16.0, 8.0)];
    let load = Load { tcp: 1, control: Control::Bbr, ..Load::default() };
    let once = |seed| goodput_once(Way::Trunk, &links, load, SECOND, 9 * SECOND, seed);
    let mbps = median(SEEDS.map(once).to_vec());
    // Its least round trip is that of the quick link: over the far one alone it fell to 20.
    assert!(mbps > 90.0, "{mbps:.1} Mbit/s");
}

#[test]
fn where_the_far_link_has_no_more_rate_or_a_cost_tcp_begins_on_the_quick_one() {
    let [far, quick] = HYBRID;
    let (equal, dear) = ([far, link(20.0, 10.0)], [far.cost(1.0), quick]);
    for (links, expected) in [(equal, 1), (dear, 1), (HYBRID, 0)] {
        let mut rig = Rig::new(Way::Trunk, &links, Load::default(), 1);
        let mut full = packet(3, PACKET, 0);
        (full[9], full[32], full[33]) = (6, 5 << 4, 0x10);
        rig.send(0, full, DeliveryMode::Order);
        rig.run(SECOND / 5);
        assert_eq!(rig.last_link, expected, "{links:?}");
    }
}

#[test]
fn a_ping_beside_a_download_waits_for_the_link_and_not_for_the_download() {
    let load = Load { tcp: 1, ping: true, ..Load::default() };
    let mut rig = Rig::new(Way::Trunk, &[link(20.0, 10.0), link(10.0, 10.0)], load, 1);
    rig.run(10 * SECOND);
    // 10 ms on the way, 4 ms of queue that a link is kept with, a frame being sent, and noise.
    let (p50, p99) = (rig.ping.percentile(0.5), rig.ping.percentile(0.99));
    assert!(p50 < 20.0 && p99 < 30.0, "p50 {p50:.1}, p99 {p99:.1} ms");
}

#[test]
fn a_call_over_links_that_lose_rows_of_frames_is_repaired_at_a_small_cost() {
    for (mode, extra) in [(DeliveryMode::Order, 0.15), (DeliveryMode::Copies, 1.2)] {
        let load = Load { call: Some(mode), ..Load::default() };
        let bursts = link(20.0, 10.0).loss(2.0).burst(5.0);
        let calls = MANY_SEEDS.map(|seed| {
            let mut rig = Rig::new(Way::Trunk, &[bursts; 2], load, seed);
            let before = rig.carried_data;
            rig.run(120 * SECOND);
            rig.end_calls();
            rig.run(SECOND);
            (rig.probe.loss(), (rig.carried_data - before) as f64 / rig.probe.sent as f64 - 1.0)
        });
        let loss = median(calls.map(|(loss, _)| loss).to_vec());
        let cost = median(calls.map(|(_, cost)| cost).to_vec());
        println!("{mode:?}: {:.3} % lost, {:.1} % more frames", 100.0 * loss, 100.0 * cost);
        assert!(loss <= 0.001 && cost <= extra, "{mode:?}: {loss} lost, {cost} more");
    }
}

/// Prints every mix with one CUBIC, four CUBIC and one BBR flow.
#[test]
#[ignore = "a table for people, some minutes long"]
fn table_of_mixes() {
    let filter = std::env::var("MIX").unwrap_or_default();
    let seeds = std::env::var("SEEDS").map_or(SEEDS.len(), |seeds| seeds.parse().unwrap());
    let (warm, time) = (SECOND, 14 * SECOND);
    println!(
        "{:28} {:>6} {:>21} {:>21} {:>21}",
        "single, trunk (Mbit/s)", "sum", "1 CUBIC", "4 CUBIC", "1 BBR"
    );
    for Mix { name, links } in mixes().iter().filter(|mix| mix.name.contains(&filter)) {
        let sum: f64 = links.iter().map(|link| link.mbps).sum();
        print!("{name:28} {sum:6.0}");
        for (tcp, control) in [(1, Control::Cubic), (4, Control::Cubic), (1, Control::Bbr)] {
            let load = Load { tcp, control, ..Load::default() };
            let runs = |way| {
                let each = MANY_SEEDS[..seeds].iter();
                median(each.map(|seed| goodput_once(way, links, load, warm, time, *seed)).collect())
            };
            let single = (0..links.len()).map(|link| runs(Way::Single(link))).fold(0.0, f64::max);
            let trunk = runs(Way::Trunk);
            print!(" {single:6.1} {trunk:6.1} ({:4.2})", trunk / single);
        }
        println!();
    }
}

/// Prints when so many bytes of one flow have arrived, over [`HYBRID`] and each of its links.
#[test]
#[ignore = "a table for people"]
fn table_of_short_flows() {
    for control in [Control::Cubic, Control::Bbr] {
        for way in [Way::Trunk, Way::Single(0), Way::Single(1)] {
            let load = Load { tcp: 1, control, ..Load::default() };
            let mut rig = Rig::new(way, &HYBRID, load, 1);
            let start = rig.now;
            print!("{control:?} {way:?}:");
            for kilobytes in [14, 50, 100, 200, 500, 1_000, 2_000, 5_000] {
                while rig.delivered[1] < kilobytes * 1_000 {
                    rig.run(Duration::from_millis(1));
                }
                print!(" {kilobytes} kB {:.0} ms", (rig.now - start).as_secs_f64() * 1e3);
            }
            println!();
        }
    }
}

/// Prints the state of one mix every half second.
#[test]
#[ignore = "a trace for people"]
fn trace_of_a_mix() {
    let filter = std::env::var("MIX").unwrap_or_default();
    let tcp = std::env::var("FLOWS").map_or(1, |flows| flows.parse().unwrap());
    let control = if std::env::var("BBR").is_ok() { Control::Bbr } else { Control::Cubic };
    let mixes = mixes();
    let mix = mixes.iter().find(|mix| mix.name.contains(&filter)).unwrap();
    println!("{}", mix.name);
    let load = Load { tcp, control, ping: true, ..Load::default() };
    let mut rig = Rig::new(Way::Trunk, &mix.links, load, 1);
    for _ in 0..30 {
        let rate = rig.measure(1, SECOND / 2);
        let links = (0..mix.links.len()).map(|link| {
            let stats = rig.ends[0].link_stats(LinkId(link as u8), rig.now).unwrap();
            let pipe = &rig.pipes[0][link];
            format!(
                "{:6.1} Mbit/s {} queue {:4.0} rtt {:4.0} wait {:4} loss {:.3} drop {:3}",
                stats.rate as f64 / 1e6,
                if stats.used { ' ' } else { '-' },
                stats.queue.as_secs_f64() * 1e3,
                stats.round_trip.as_secs_f64() * 1e3,
                stats.waiting,
                stats.loss,
                pipe.dropped
            )
        });
        let links: Vec<_> = links.collect();
        let sender = &rig.senders[0][0];
        let order = rig.ends[1].stats().reorder;
        println!(
            "{:5.1}: {rate:6.1} | {} | {} | late {} passed {} timed {} squeezed {} timer {:?} \
             only {:?}",
            rig.now.as_secs_f64() - 2.0,
            links.join(" | "),
            sender.state(),
            order.late,
            order.passed,
            order.timed_out,
            order.squeezed,
            rig.ends[1].stats().timer,
            rig.ends[0].sender().fallen_back_to(),
        );
    }
    println!("ping p50 {:.1} p99 {:.1}", rig.ping.percentile(0.5), rig.ping.percentile(0.99));
    println!("{:?}", rig.ends[0].sent());
}
