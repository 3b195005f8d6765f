//! A call, a ping and a stream beside a download, over every mix of links.
//!
//! `cargo test -p sheaf-trunk --test calls -- --ignored --nocapture` prints the whole table.

mod mix;

use mix::link::{LinkSpec, link};
use mix::list::{Mix, mixes};
use mix::tcp::Control;
use mix::{Load, Rig, Way, median};
use sheaf_stage::Duration;
use sheaf_trunk::DeliveryMode;

const SECOND: Duration = Duration::from_secs(1);

const SEEDS: [u64; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
/// For links that neither lose nor jitter: nothing is drawn.
const ANY_SEED: [u64; 1] = [1];
/// Time in which the links are learned and the download begins.
const WARM: Duration = Duration::from_secs(3);

/// Medians: 99th percentile of the delays of call, ping and stream in ms, and shares lost.
#[derive(Debug)]
struct Beside {
    call: (f64, f64),
    ping: (f64, f64),
    stream: (f64, f64),
    mbps: f64,
}

fn beside(links: &[LinkSpec], load: Load, time: Duration, seeds: &[u64]) -> Beside {
    let runs: Vec<[f64; 7]> = seeds
        .iter()
        .map(|seed| {
            let mut rig = Rig::new(Way::Trunk, links, load, *seed);
            rig.run(WARM);
            (rig.probe, rig.ping, rig.stream) = Default::default();
            let mbps = rig.measure(1, time);
            rig.end_calls();
            rig.run(SECOND);
            let of = |probe: &mix::Probe| (probe.percentile(0.99), 100.0 * probe.loss().max(0.0));
            let (call, ping, stream) = (of(&rig.probe), of(&rig.ping), of(&rig.stream));
            [call.0, call.1, ping.0, ping.1, stream.0, stream.1, mbps]
        })
        .collect();
    let at = |index: usize| median(runs.iter().map(|run| run[index]).collect());
    Beside { call: (at(0), at(1)), ping: (at(2), at(3)), stream: (at(4), at(5)), mbps: at(6) }
}

#[test]
fn a_call_and_a_ping_beside_many_frames_wait_for_no_loss_of_others() {
    // 330 frames and more are numbered between two packets of the call: the header names 253.
    let links = [link(100.0, 20.0).loss(0.5); 2];
    let call = Some(DeliveryMode::Copies);
    let load = Load { udp: 220.0, call, ping: true, ..Load::default() };
    let beside = beside(&links, load, 4 * SECOND, &SEEDS);
    println!("{beside:?}");
    // 20 ms on the way, 4 ms of queue that a link is kept with, a frame being sent, and noise.
    assert!(beside.call.0 < 30.0 && beside.ping.0 < 30.0, "{beside:?}");
    assert!(beside.call.1 < 0.1, "{beside:?}");
}

#[test]
fn a_call_beside_a_download_over_links_that_lose_rows_of_frames_waits_for_the_links_alone() {
    let links = [link(20.0, 20.0).loss(2.0).burst(5.0); 2];
    // A call is late in a quarter of the runs, so that the median of ten would be left to chance.
    let seeds: Vec<_> = (1..=30).collect();
    for control in [Control::Cubic, Control::Bbr] {
        let call = Some(DeliveryMode::Copies);
        let load = Load { tcp: 1, control, call, ..Load::default() };
        let beside = beside(&links, load, 6 * SECOND, &seeds);
        println!("{control:?} {beside:?}");
        assert!(beside.call.0 < 30.0 && beside.call.1 <= 0.1, "{control:?} {beside:?}");
    }
}

#[test]
fn a_call_waits_for_no_rounds_of_a_download_that_losses_keep_below_the_rate_of_the_links() {
    for loss in [0.5, 2.0] {
        let links = [link(50.0, 20.0).loss(loss); 2];
        let call = Some(DeliveryMode::Copies);
        let load = Load { tcp: 1, control: Control::Cubic, call, ..Load::default() };
        let beside = beside(&links, load, 8 * SECOND, &SEEDS);
        println!("{loss} % {beside:?}");
        // 20 ms on the way, 4 ms of queue that a link is kept with, and noise. A round that is sent
        // at twice the rate, as in start-up, makes a queue of a third of a round trip.
        assert!(beside.call.0 < 28.0 && beside.call.1 <= 0.1, "{loss} % {beside:?}");
    }
}

#[test]
fn a_call_beside_a_download_over_links_whose_delay_varies_waits_little_longer_than_that() {
    let even = [link(50.0, 20.0).jitter(20.0); 2];
    let mobile = [link(40.0, 30.0).jitter(5.0).loss(0.5), link(25.0, 45.0).jitter(8.0).loss(0.5)];
    for (links, control, most) in [
        // The quicker of two copies takes 36 ms in one case of a hundred.
        (even, Control::Cubic, 42.0),
        // 35 ms, 4 ms of queue that a link is kept with, and noise. Where single delays are all
        // that a queue is known by, 54.
        (mobile, Control::Bbr, 46.0),
    ] {
        let call = Some(DeliveryMode::Copies);
        let load = Load { tcp: 1, control, call, ..Load::default() };
        let beside = beside(&links, load, 12 * SECOND, &SEEDS);
        println!("{beside:?}");
        assert!(beside.call.0 < most, "{control:?} {beside:?}");
    }
}

#[test]
fn a_paced_stream_beside_a_download_loses_nothing_and_waits_for_a_turn_and_not_for_the_download() {
    for (links, idle) in [
        (&[link(20.0, 10.0)][..], 10.0),
        (&[link(20.0, 10.0), link(20.0, 10.0)], 10.0),
        (&[link(20.0, 10.0), link(20.0, 60.0)], 10.0),
    ] {
        let load = Load { tcp: 1, stream: 2.0, ping: true, ..Load::default() };
        let beside = beside(links, load, 6 * SECOND, &ANY_SEED);
        println!("{beside:?}");
        // 4 ms of queue that a link is kept with, two frames that are ready or being sent, a turn
        // of the download, and noise.
        assert!(beside.stream.0 < idle + 10.0 && beside.stream.1 == 0.0, "{beside:?}");
        assert!(beside.ping.0 < idle + 10.0 && beside.ping.1 == 0.0, "{beside:?}");
    }
}

#[test]
fn a_download_that_starts_later_gets_its_share_beside_one_that_runs() {
    for links in [&[link(20.0, 10.0)][..], &[link(20.0, 10.0), link(20.0, 10.0)]] {
        let load = Load { tcp: 1, ..Load::default() };
        let mut rig = Rig::new(Way::Trunk, links, load, ANY_SEED[0]);
        rig.run(8 * SECOND);
        let later = rig.begin(Control::Cubic);
        rig.run(2 * SECOND);
        let before = [0, later].map(|flow| rig.receivers[0][flow].next());
        rig.run(6 * SECOND);
        let [first, second] =
            [0, later].map(|flow| f64::from(rig.receivers[0][flow].next() - before[flow]));
        let share = second / first;
        println!("{share:.2}");
        assert!((0.8..1.25).contains(&share), "{} links: {share:.2}", links.len());
    }
}

#[test]
#[ignore = "a table for people, some minutes long"]
fn table_of_calls() {
    let filter = std::env::var("MIX").unwrap_or_default();
    let seeds = std::env::var("SEEDS").map_or(3, |seeds| seeds.parse().unwrap());
    let ping = std::env::var("PING").is_ok();
    println!("p99 over the idle delay of the best link (ms), lost (%)");
    for Mix { name, links } in mixes().iter().filter(|mix| mix.name.contains(&filter)) {
        let idle = links.iter().map(|link| link.delay_ms).fold(f64::MAX, f64::min);
        print!("{name:28}");
        for control in [Control::Cubic, Control::Bbr] {
            let call = Some(DeliveryMode::Copies);
            let stream = if ping { 2.0 } else { 0.0 };
            let load = Load { tcp: 1, control, call, ping, stream, ..Load::default() };
            let beside = beside(links, load, 12 * SECOND, &SEEDS[..seeds]);
            let show = |(p99, lost): (f64, f64)| format!("{:6.1} {lost:5.2}%", p99 - idle);
            let (call, ping, stream) = (beside.call, beside.ping, beside.stream);
            print!(
                " | {control:?} {} {} {} {:5.1}",
                show(call),
                show(ping),
                show(stream),
                beside.mbps
            );
        }
        println!();
    }
}
