//! The medium against the air-time sum, Bianchi's model and ns-3.

use proptest::prelude::*;
use sheaf_medium::{
    Ampdu, Config, Frame, Hearing, Link, Medium, Phy, RadioId, To, Transmission, air_time,
};
use sheaf_stage::conformance::{self, Op};
use sheaf_stage::{Bitrate, DropReason, Duration, Instant, Stage};

const DSSS: Phy = Phy::Dsss { short_preamble: false };
const HT: Phy = Phy::Ht { short_guard: false };
const WARM_UP: Instant = Instant::from_millis(1_000);

/// Frames a second that reach their last hop, when the `sources` always have a frame to send to
/// `next`; what arrives at a radio that is not the last is forwarded to the one after it.
fn throughput(config: Config, sources: &[u32], next: u32, bytes: u32, seconds: u64) -> f64 {
    let last = config.radios.len() as u32 - 1;
    // What an A-MPDU takes waits, and as much again.
    let depth = config.ampdu.map_or(5, |limits| 2 * limits.frames);
    let mut medium = Medium::new(config, 2008).unwrap();
    let send = |medium: &mut Medium<()>, from: u32, to: u32, now| {
        let to = To::Radio(RadioId(to));
        medium.enqueue(Frame { from: RadioId(from), to, bytes, payload: () }, now).unwrap();
    };
    for source in sources {
        (0..depth).for_each(|_| send(&mut medium, *source, next, Instant::ZERO));
    }
    let end = WARM_UP + Duration::from_secs(seconds);
    let mut arrived = 0u64;
    while let Some(now) = medium.next_deadline().filter(|deadline| *deadline <= end) {
        while let Some(Transmission { frame, result, .. }) = medium.dequeue(now) {
            if sources.contains(&frame.from.0) {
                send(&mut medium, frame.from.0, next, now);
            }
            let To::Radio(RadioId(at)) = frame.to else { continue };
            if result.is_ok() && at == last {
                arrived += u64::from(now > WARM_UP);
            } else if result.is_ok() {
                send(&mut medium, at, at + 1, now);
            }
        }
    }
    arrived as f64 / seconds as f64
}

/// `stations` sources that all hear each other and one sink.
fn star(config: impl Fn(usize) -> Config, stations: u32, bytes: u32, seconds: u64) -> f64 {
    let sources: Vec<u32> = (0..stations).collect();
    throughput(config(stations as usize + 1), &sources, stations, bytes, seconds)
}

/// Radios in a row that hear only their neighbours.
fn chain(mut config: Config) -> Config {
    let radios = config.radios.len();
    let link = |a: usize, b: usize| if a.abs_diff(b) == 1 { Link::PERFECT } else { Link::NONE };
    let row = |a| (0..radios).map(|b| link(a, b)).collect();
    config.hearing = Hearing::Table((0..radios).map(row).collect());
    config
}

fn assert_within(percent: f64, got: f64, expected: f64, what: &str) {
    let error = 100.0 * (got / expected - 1.0);
    assert!(error.abs() <= percent, "{what}: {got:.2}, expected {expected:.2}: {error:+.2} %");
}

#[test]
fn a_lone_station_reaches_the_air_time_sum_within_half_a_percent() {
    let cases = [(DSSS, 2_000), (DSSS, 11_000), (Phy::ErpOfdm, 54_000), (Phy::Ofdm, 6_000)];
    for (phy, kbps) in cases {
        let rate = Bitrate::from_kbps(kbps);
        for bytes in [60, 1500] {
            let config = |radios| Config::new(phy, radios, rate);
            let expected = 1.0 / air_time::exchange(&config(2), rate, bytes).as_secs_f64();
            let got = star(config, 1, bytes, 60);
            assert_within(0.5, got, expected, &format!("{phy:?} {rate} {bytes} bytes"));
        }
    }
}

/// G. Bianchi, "Performance analysis of the IEEE 802.11 distributed coordination function", IEEE
/// JSAC 18(3), 2000: frames a second of `n` saturated stations. His fixed point gives how often
/// stations send and collide; a collision lasts until those who sensed it go on, after EIFS.
fn bianchi(config: &Config, rate: Bitrate, bytes: u32, n: u32) -> f64 {
    let phy = config.phy;
    let window = f64::from(phy.cw_min() + 1);
    let stages = libm::log2(f64::from((config.cw_max + 1) / (phy.cw_min() + 1)));
    let others = f64::from(n) - 1.0;
    let tau = |p: f64| {
        let doubled = (0..stages as u32).map(|i| libm::pow(2.0 * p, f64::from(i))).sum::<f64>();
        2.0 / (1.0 + window + p * window * doubled)
    };
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..100 {
        let p = (low + high) / 2.0;
        if 1.0 - libm::pow(1.0 - tau(p), others) > p { low = p } else { high = p }
    }
    let tau = tau(low);
    let busy = 1.0 - libm::pow(1.0 - tau, f64::from(n));
    let success = f64::from(n) * tau * libm::pow(1.0 - tau, others) / busy;
    let frames = air_time::ampdu_frames(config, rate, bytes);
    let (data, exchange) = match frames {
        1 => (air_time::data(config, rate, bytes), air_time::exchange(config, rate, bytes)),
        _ => (
            air_time::ampdu(config, rate, frames, bytes),
            air_time::block_exchange(config, rate, frames, bytes),
        ),
    };
    let success_time = exchange - phy.slot() * phy.cw_min() / 2;
    let collision_time = data + phy.eifs();
    let mean = (1.0 - busy) * phy.slot().as_secs_f64()
        + busy * success * success_time.as_secs_f64()
        + busy * (1.0 - success) * collision_time.as_secs_f64();
    f64::from(frames) * busy * success / mean
}

#[test]
fn saturation_throughput_follows_bianchi_within_three_percent() {
    let rate = Bitrate::from_mbps(11);
    let config = |radios| Config::new(DSSS, radios, rate);
    for n in 1..=20 {
        let expected = bianchi(&config(2), rate, 1028, n);
        let got = star(config, n, 1028, 60);
        assert_within(3.0, got, expected, &format!("{n} stations"));
    }
}

/// HT with A-MPDUs up to `air_time`.
fn ampdu(radios: usize, rate: Bitrate, air_time: Duration) -> Config {
    let mut config = Config::new(HT, radios, rate);
    config.ampdu = Some(Ampdu { air_time, ..Ampdu::default() });
    let depth = 2 * Ampdu::MOST_FRAMES as usize;
    config.radios.iter_mut().for_each(|radio| radio.queue_limit = depth);
    config
}

#[test]
fn saturation_throughput_of_ampdus_follows_bianchi_within_three_percent() {
    let ath9k = Ampdu::default().air_time;
    for (kbps, bytes) in [(6_500, 60), (26_000, 1500), (65_000, 60), (65_000, 1500)] {
        let rate = Bitrate::from_kbps(kbps);
        for n in [1, 2, 3, 5, 10, 20] {
            let expected = bianchi(&ampdu(2, rate, ath9k), rate, bytes, n);
            let got = star(|radios| ampdu(radios, rate, ath9k), n, bytes, 60);
            assert_within(3.0, got, expected, &format!("{n} stations at {rate}, {bytes} bytes"));
        }
    }
}

/// The example wifi-aggregation of ns-3: one station of 802.11n in 5 GHz, 20 MHz, MCS 7, sends 1472
/// bytes of UDP to another without pause; the test of its result takes 59 to 60 Mbit/s with A-MPDUs
/// of 65535 bytes, which the longest frame cuts short, and 30 to 31 without.
#[test]
fn ht_carries_what_the_example_of_ns3_does() {
    let rate = Bitrate::from_mbps(65);
    let mbps = |config: fn(usize) -> Config| 1472.0 * 8.0 * star(config, 1, 1500, 20) / 1e6;
    let together = mbps(|radios| ampdu(radios, Bitrate::from_mbps(65), Ampdu::LONGEST));
    let alone = mbps(|radios| Config::new(HT, radios, Bitrate::from_mbps(65)));
    assert!((59.0..60.0).contains(&together), "{together} Mbit/s at {rate}");
    assert!((30.0..31.0).contains(&alone), "{alone} Mbit/s at {rate}");
}

#[test]
fn throughput_agrees_with_ns3_within_five_percent() {
    let rows = include_str!("ns3-reference.csv").lines();
    for row in rows.filter(|row| row.starts_with(|c: char| c.is_ascii_digit())) {
        let field: Vec<f64> = row.split(',').map(|field| field.parse().unwrap()).collect();
        let (stations, hops) = (field[0] as u32, field[1] as usize);
        let (bytes, rate) = (field[2] as u32 + 28, Bitrate::from_mbps(field[3] as u64));
        // The file's head says acknowledgements at 2 Mbit/s. The exact sum of its lone stations at
        // 11 Mbit/s (1/1166.0 s and 1/524.7 s) is met with acknowledgements at 11 only.
        let config = |radios| {
            let mut config = Config::new(DSSS, radios, rate);
            if rate == Bitrate::from_mbps(11) {
                config.basic_rates.push(rate);
            }
            config
        };
        let got = match hops {
            1 => star(config, stations, bytes, 20),
            _ => throughput(chain(config(hops + 1)), &[0], 1, bytes, 20),
        };
        assert_within(5.0, got, field[4], row);
    }
}

#[test]
fn stations_share_the_channel_evenly() {
    let config = Config::new(DSSS, 5, Bitrate::from_mbps(2));
    let mut medium = Medium::new(config, 1).unwrap();
    let frame =
        |from| Frame { from: RadioId(from), to: To::Radio(RadioId(4)), bytes: 500, payload: () };
    (0..4).for_each(|from| medium.enqueue(frame(from), Instant::ZERO).unwrap());
    let mut sent = [0f64; 4];
    while let Some(now) = medium.next_deadline().filter(|at| *at < Instant::from_millis(30_000)) {
        while let Some(done) = medium.dequeue(now) {
            sent[done.frame.from.0 as usize] += 1.0;
            medium.enqueue(frame(done.frame.from.0), now).unwrap();
        }
    }
    let (sum, squares) = (sent.iter().sum::<f64>(), sent.iter().map(|x| x * x).sum::<f64>());
    let jain = sum * sum / (4.0 * squares);
    assert!(jain > 0.99, "Jain index {jain}: {sent:?}");
}

#[test]
fn hidden_stations_ruin_each_other_and_rts_helps_them() {
    let sent = |rts_threshold, hidden: bool| {
        let mut config = Config::new(DSSS, 3, Bitrate::from_mbps(2));
        config.rts_threshold = rts_threshold;
        if hidden {
            let mut links = vec![vec![Link::PERFECT; 3]; 3];
            (links[0][1], links[1][0]) = (Link::NONE, Link::NONE);
            config.hearing = Hearing::Table(links);
        }
        throughput(config, &[0, 1], 2, 1500, 30)
    };
    let (open, hidden, announced) = (sent(None, false), sent(None, true), sent(Some(500), true));
    assert!(hidden < 0.6 * open, "hidden {hidden:.1}/s against {open:.1}/s");
    assert!(announced > 1.3 * hidden, "with RTS {announced:.1}/s against {hidden:.1}/s");
}

#[test]
fn bit_errors_and_losses_cost_what_the_frame_error_rate_says() {
    // An attempt fails when the data or its acknowledgement of 14 bytes is hit.
    let hit = |ber: f64| 1.0 - libm::pow(1.0 - ber, 8.0 * (1536.0 + 14.0));
    failed_attempts(Link { ber: 2e-5, ..Link::PERFECT }, hit(2e-5));
    failed_attempts(Link { loss: 0.1, ..Link::PERFECT }, 1.0 - 0.9 * 0.9);
    let both = Link { ber: 2e-5, loss: 0.1, ..Link::PERFECT };
    failed_attempts(both, 1.0 - (1.0 - hit(2e-5)) * 0.9 * 0.9);
}

/// Checks that a share of `expected` of all attempts over `link` is repeated.
fn failed_attempts(link: Link, expected: f64) {
    let mut config = Config::new(DSSS, 2, Bitrate::from_mbps(2));
    config.retry_limit = 100;
    config.hearing = Hearing::Table(vec![vec![link; 2]; 2]);
    let mut medium = Medium::new(config, 3).unwrap();
    let frame = Frame { from: RadioId(0), to: To::Radio(RadioId(1)), bytes: 1500, payload: () };
    medium.enqueue(frame.clone(), Instant::ZERO).unwrap();
    while let Some(now) = medium.next_deadline().filter(|at| *at < Instant::from_millis(300_000)) {
        while medium.dequeue(now).is_some() {
            medium.enqueue(frame.clone(), now).unwrap();
        }
    }
    let stats = medium.stats(RadioId(0));
    let failed = stats.retries as f64 / stats.attempts as f64;
    let deviation = (expected * (1.0 - expected) / stats.attempts as f64).sqrt();
    assert!((failed - expected).abs() < 4.0 * deviation + 0.001, "{failed} {expected}");
}

#[test]
fn a_full_transmit_queue_refuses_frames_and_reports_its_fill() {
    let mut config = Config::new(DSSS, 2, Bitrate::from_mbps(1));
    config.radios[0].queue_limit = 3;
    let mut medium = Medium::new(config, 1).unwrap();
    let mut results = Vec::new();
    for _ in 0..5 {
        let frame = Frame { from: RadioId(0), to: To::Radio(RadioId(1)), bytes: 60, payload: () };
        results.push(medium.enqueue(frame, Instant::ZERO));
    }
    let full = Err(DropReason::QueueFull);
    assert_eq!(results, [Ok(()), Ok(()), Ok(()), full, full]);
    assert_eq!((medium.waiting(RadioId(0)), medium.limit(RadioId(0))), (3, 3));
    assert_eq!(medium.queue_drops(RadioId(0)), 2);
    assert_eq!(medium.counters().dropped(DropReason::QueueFull), 2);
}

#[test]
fn a_radio_whose_rate_falls_takes_longer_for_the_next_frame() {
    let config = Config::new(DSSS, 2, Bitrate::from_mbps(11));
    let mut medium = Medium::new(config, 1).unwrap();
    let frame = Frame { from: RadioId(0), to: To::Radio(RadioId(1)), bytes: 1500, payload: () };
    let mut air_time = |rate, at| {
        medium.set_rate(RadioId(0), rate, at).unwrap();
        let before = medium.stats(RadioId(0)).air_time;
        medium.enqueue(frame.clone(), at).unwrap();
        assert!(medium.dequeue(at + Duration::from_millis(50)).is_some());
        medium.stats(RadioId(0)).air_time - before
    };
    let fast = air_time(Bitrate::from_mbps(11), Instant::ZERO);
    let slow = air_time(Bitrate::from_mbps(1), Instant::from_millis(100));
    assert_eq!(fast, Duration::from_micros(192 + 1118));
    assert_eq!(slow, Duration::from_micros(192 + 12_288));
    let wrong = medium.set_rate(RadioId(0), Bitrate::from_mbps(3), Instant::from_millis(200));
    assert!(wrong.is_err());
}

#[test]
fn a_late_caller_stretches_nothing() {
    let finish = |step: Duration| {
        let config = Config::new(DSSS, 2, Bitrate::from_mbps(2));
        let mut medium = Medium::new(config, 5).unwrap();
        for _ in 0..20 {
            let frame =
                Frame { from: RadioId(0), to: To::Radio(RadioId(1)), bytes: 60, payload: () };
            medium.enqueue(frame, Instant::ZERO).unwrap();
        }
        let mut now = Instant::ZERO;
        let mut ended = Vec::new();
        while ended.len() < 20 {
            now += step;
            ended.extend(std::iter::from_fn(|| medium.dequeue(now)).map(|done| done.ended));
        }
        ended
    };
    assert_eq!(finish(Duration::from_micros(1)), finish(Duration::from_millis(7)));
}

fn link() -> impl Strategy<Value = Link> {
    (any::<bool>(), any::<bool>(), 0.0..0.001f64, 0.0..=1.0f64, -40f32..0.0).prop_map(
        |(receive, sense, ber, loss, level)| {
            let sense = sense || receive;
            Link { receive, sense, ber, loss, level, ..Link::PERFECT }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn the_medium_keeps_the_contract_of_a_stage(
        ops in proptest::collection::vec(prop_oneof![
            6 => (0u32..6, 0u32..7, 20u32..1500).prop_map(|(from, to, bytes)| {
                let to = if to == 6 { To::Broadcast } else { To::Radio(RadioId(to)) };
                Op::Enqueue(Frame { from: RadioId(from), to, bytes, payload: bytes })
            }),
            3 => (0u64..20_000_000).prop_map(|ns| Op::Advance(Duration::from_nanos(ns))),
            1 => proptest::collection::vec(link(), 25).prop_map(Op::Control),
        ], 1..80),
        rts in proptest::option::of(0u32..1500), capture in proptest::option::of(0f32..20.0),
        seed: u64,
    ) {
        let make = || {
            let mut config = Config::new(DSSS, 5, Bitrate::from_mbps(11));
            config.rts_threshold = rts;
            config.capture = capture;
            config.radios[4].channel = 2;
            config.radios.iter_mut().for_each(|radio| radio.queue_limit = 4);
            Medium::new(config, seed).unwrap()
        };
        conformance::check(make, &ops, |medium, links: &Vec<Link>, now| {
            // Brings the medium to the present before it changes.
            let rows = links.chunks(5).map(<[Link]>::to_vec).collect();
            medium.set_hearing(Hearing::Table(rows), now).unwrap();
        }, |done| done.clone());
    }
}
