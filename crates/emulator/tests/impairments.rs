//! Random models do what was asked: rates, correlations, bursts, shapes, within confidence
//! intervals of five standard errors (estimated from the means of batches, so that correlated
//! series are judged fairly). Seeds are fixed: a test that passes keeps passing.

use sheaf_emulator::{
    Cause, Chance, Delay, Distribution, FourState, Gemodel, Link, LinkConfig, Loss, LossPattern,
    Packet, Reorder, Slot, SlotWait,
};
use sheaf_stage::{Bitrate, Duration, Instant, Stage};
use sheaf_wire::ecn::Ecn;

const PACKETS: u64 = 400_000;
const MS: Duration = Duration::from_millis(1);

/// Holds the mean of a series against what is expected.
#[track_caller]
fn check_mean(what: &str, series: &[f64], expected: f64) {
    let batches: Vec<f64> = series
        .chunks_exact(series.len() / 200)
        .map(|batch| batch.iter().sum::<f64>() / batch.len() as f64)
        .collect();
    let n = batches.len() as f64;
    let mean = batches.iter().sum::<f64>() / n;
    let variance = batches.iter().map(|b| (b - mean) * (b - mean)).sum::<f64>() / (n - 1.0);
    let error = (variance / n).sqrt();
    assert!(
        (mean - expected).abs() <= 5.0 * error + 1e-9,
        "{what}: {mean} ± {error}, expected {expected}"
    );
    // An interval that holds anything tests nothing.
    assert!(error <= 0.1 * expected.abs().max(0.1), "{what}: the interval ± {error} is too wide");
}

/// Sends packets 1 s apart through a link; returns for each whether `event` happened to it.
fn events(config: LinkConfig, event: impl Fn(&Packet) -> bool) -> Vec<bool> {
    let mut link = Link::new(config, 5).unwrap();
    let mut happened = Vec::new();
    let mut bytes = vec![0; 20];
    for n in 0..PACKETS {
        let now = Instant::from_millis(n * 1000);
        link.enqueue(Packet::new(std::mem::take(&mut bytes), now, n), now).unwrap();
        let mut this = false;
        while let Some(at) = link.next_deadline() {
            if let Some(packet) = link.dequeue(at) {
                this |= event(&packet);
                bytes = packet.bytes;
            }
        }
        happened.push(this);
    }
    happened
}

/// For each packet, whether it was lost.
fn losses(loss: Loss) -> Vec<bool> {
    let config = LinkConfig { loss, ..LinkConfig::default() };
    events(config, |_| true).iter().map(|arrived| !arrived).collect()
}

fn numbers(events: &[bool]) -> Vec<f64> {
    events.iter().map(|event| f64::from(u8::from(*event))).collect()
}

/// Rate, and correlation with the packet before, of yes-or-no events.
#[track_caller]
fn check_chance(what: &str, events: &[bool], chance: Chance) {
    let Chance { probability: p, correlation } = chance;
    let numbers = numbers(events);
    check_mean(what, &numbers, p);
    let products: Vec<f64> =
        numbers.windows(2).map(|w| (w[0] - p) * (w[1] - p) / (p * (1.0 - p))).collect();
    check_mean(&format!("{what}, correlation"), &products, correlation);
}

/// Lengths of the runs of losses.
fn bursts(lost: &[bool]) -> Vec<f64> {
    lost.split(|lost| !lost).filter(|run| !run.is_empty()).map(|run| run.len() as f64).collect()
}

#[test]
fn random_loss_has_the_rate_and_the_correlation_that_were_asked() {
    for (probability, correlation) in [(0.02, 0.0), (0.1, 0.25), (0.3, 0.5), (0.02, 0.8)] {
        let chance = Chance { probability, correlation };
        let lost = losses(Loss::Random(chance));
        check_chance("loss", &lost, chance);
        // A run goes on with p + ρ(1-p).
        let goes_on = probability + correlation * (1.0 - probability);
        check_mean("burst", &bursts(&lost), 1.0 / (1.0 - goes_on));
    }
}

#[test]
fn duplication_corruption_and_reordering_have_rate_and_correlation_too() {
    let chance = Chance { probability: 0.1, correlation: 0.4 };
    let base = || LinkConfig { delay: Delay::constant(MS), ..LinkConfig::default() };
    let cases = [
        (LinkConfig { duplicate: chance, ..base() }, Cause::Duplicated),
        (LinkConfig { corrupt: chance, ..base() }, Cause::Corrupted),
        (LinkConfig { reorder: Some(Reorder { chance, gap: 1 }), ..base() }, Cause::Reordered),
    ];
    for (config, cause) in cases {
        let happened = events(config, |packet| packet.causes.contains(cause));
        check_chance(cause.name(), &happened, chance);
    }
}

#[test]
fn four_states_lose_as_their_stationary_distribution_says() {
    let model = FourState { p13: 0.02, p31: 0.3, p32: 0.2, p23: 0.4, p14: 0.01 };
    let FourState { p13, p31, p32, p23, p14 } = model;
    // Balance of each state, with state 1 as 1.
    let (lost_in_burst, lost_in_gap) = (p13 / p31, p14);
    let sum = 1.0 + lost_in_burst + lost_in_burst * p32 / p23 + lost_in_gap;
    let lost = losses(Loss::State(model));
    check_mean("loss", &numbers(&lost), (lost_in_burst + lost_in_gap) / sum);
    // Runs of losses in a burst begin from state 1 or state 2 and end with p31 + p32; lost alone
    // is one packet. (From state 4 only state 1 follows.)
    let begin_long = p13 + lost_in_burst * p32 / p23 * p23;
    let mean = (begin_long / (p31 + p32) + p14) / (begin_long + p14);
    check_mean("burst", &bursts(&lost), mean);
}

#[test]
fn four_states_with_p13_alone_lose_independently() {
    check_chance("loss", &losses(Loss::State(FourState::new(0.1))), Chance::of(0.1));
}

#[test]
fn the_gilbert_elliott_model_has_its_rate_and_bursts() {
    let simple = Gemodel { p: 0.01, r: 0.2, bad_loss: 1.0, good_loss: 0.0 };
    let lost = losses(Loss::Gemodel(simple));
    check_mean("loss", &numbers(&lost), 0.01 / 0.21);
    check_mean("burst", &bursts(&lost), 5.0);

    let full = Gemodel { p: 0.05, r: 0.2, bad_loss: 0.7, good_loss: 0.02 };
    let rate = (0.2 * 0.02 + 0.05 * 0.7) / 0.25;
    check_mean("loss", &numbers(&losses(Loss::Gemodel(full))), rate);

    let bernoulli = losses(Loss::Gemodel(Gemodel::new(0.1)));
    check_chance("loss with P alone", &bernoulli, Chance::of(0.1));
}

/// The delays of many packets, in deviations from the mean.
fn delays(distribution: Distribution, correlation: f64) -> Vec<f64> {
    let delay = Delay { time: 500 * MS, jitter: 10 * MS, correlation, distribution };
    let mut link = Link::new(LinkConfig { delay, ..LinkConfig::default() }, 5).unwrap();
    let mut bytes = Vec::new();
    (0..PACKETS)
        .map(|n| {
            let now = Instant::from_millis(n * 2000);
            link.enqueue(Packet::new(std::mem::take(&mut bytes), now, n), now).unwrap();
            let packet = loop {
                let at = link.next_deadline().unwrap();
                if let Some(packet) = link.dequeue(at) {
                    break packet;
                }
            };
            bytes = packet.bytes;
            ((packet.depart - now).as_secs_f64() - 0.5) / 0.01
        })
        .collect()
}

#[test]
fn jitter_is_the_deviation_that_comes_out_with_the_correlation_that_was_asked() {
    for name in ["uniform", "normal", "pareto", "paretonormal"] {
        for correlation in [0.0, 0.3, 0.8] {
            let what = |figure| format!("{name}, correlation {correlation}: {figure}");
            let delays = delays(Distribution::named(name).unwrap(), correlation);
            check_mean(&what("mean"), &delays, 0.0);
            let squares: Vec<f64> = delays.iter().map(|x| x * x).collect();
            check_mean(&what("variance"), &squares, 1.0);
            let products: Vec<f64> = delays.windows(2).map(|w| w[0] * w[1]).collect();
            check_mean(&what("correlation"), &products, correlation);
        }
    }
}

#[test]
fn the_shapes_are_those_of_their_names() {
    let below = |name: &str, limit: f64| {
        let delays = delays(Distribution::named(name).unwrap(), 0.5);
        delays.iter().map(|x| f64::from(u8::from(*x < limit))).collect::<Vec<_>>()
    };
    check_mean("uniform", &below("uniform", 1.0), 0.5 + 1.0 / 12f64.sqrt());
    check_mean("normal", &below("normal", 1.0), 0.8413447);
    // Pareto begins abruptly and ends slowly: P(y < t) = 1 - t⁻³ from t = 1, so ten thousand
    // delays hold one that is 20 times the smallest. The ratio needs no scale.
    let pareto = Distribution::pareto();
    let (least, half, rare) = (pareto.quantile(0.0), pareto.quantile(0.5), pareto.quantile(0.999));
    let expected = (10.0 - 1.0) / (libm::cbrt(2.0) - 1.0);
    let ratio = (rare - least) / (half - least);
    assert!((ratio / expected - 1.0).abs() < 0.02, "{ratio}, not {expected}");
}

#[test]
fn slots_are_as_far_away_as_their_distribution_says() {
    let waits = [
        (SlotWait::Between(2 * MS, 6 * MS), 4.0, 4.0 / 3.0),
        (SlotWait::Distributed(20 * MS, 3 * MS, Distribution::normal()), 20.0, 9.0),
    ];
    for (wait, mean, variance) in waits {
        let slot = Some(Slot { wait, packets: 0, bytes: 0 });
        let mut link = Link::new(LinkConfig { slot, ..LinkConfig::default() }, 5).unwrap();
        let mut taken = Vec::new();
        for n in 0..50_000 {
            let now = Instant::from_millis(n * 1000);
            link.enqueue(Packet::new(Vec::new(), now, n), now).unwrap();
            while let Some(at) = link.next_deadline() {
                taken.extend(link.dequeue(at).map(|p| (p.depart - now).as_secs_f64() * 1e3));
            }
        }
        check_mean("mean", &taken, mean);
        let squares: Vec<f64> = taken.iter().map(|t| (t - mean) * (t - mean)).collect();
        check_mean("variance", &squares, variance);
    }
}

#[test]
fn a_pattern_loses_the_packets_that_it_names_and_begins_again() {
    let pattern = LossPattern::parse("3,7,9-10", Some(12)).unwrap();
    let lost = losses(Loss::Pattern(pattern.into()));
    let named = |number: usize| [3, 7, 9, 10].contains(&(number % 12 + 1));
    assert!(lost.iter().enumerate().all(|(number, lost)| *lost == named(number)));
}

#[test]
fn with_ecn_a_loss_is_a_mark_where_the_sender_understands_it() {
    let loss = Loss::Random(Chance::of(0.5));
    let mut link =
        Link::new(LinkConfig { loss, loss_ecn: true, ..LinkConfig::default() }, 1).unwrap();
    let (mut marked, mut lost) = (0, 0);
    for n in 0..1000u64 {
        let capable = n % 2 == 0;
        let mut bytes = sheaf_wire::ip::example_udp(&[0; 8]);
        bytes[1] = if capable { 2 } else { 0 };
        link.enqueue(Packet::new(bytes, Instant::ZERO, n), Instant::ZERO).unwrap();
        match link.dequeue(Instant::ZERO) {
            Some(packet) => {
                let view = sheaf_wire::ip::Ip::parse(&packet.bytes).unwrap();
                let is_marked = packet.causes.contains(Cause::MarkedLoss);
                assert_eq!(view.ecn() == Ecn::Ce, is_marked);
                marked += u64::from(is_marked);
            }
            None => {
                assert!(!capable, "packet {n} could have been marked");
                lost += 1;
            }
        }
    }
    assert_eq!(
        (marked, lost),
        (link.stats().count(Cause::MarkedLoss), link.counters().dropped_total())
    );
    assert!(marked > 200 && lost > 200, "{marked} marked, {lost} lost");
}

#[test]
fn the_fate_of_a_packet_does_not_depend_on_timing_or_on_the_rate() {
    let chance = Chance { probability: 0.2, correlation: 0.3 };
    let run = |rate: Option<u64>, spacing: u64| {
        let config = LinkConfig {
            rate: rate.map(Bitrate::from_bps),
            loss: Loss::State(FourState { p31: 0.4, ..FourState::new(0.1) }),
            duplicate: chance,
            corrupt: chance,
            ..LinkConfig::default()
        };
        let mut link = Link::new(config, 11).unwrap();
        for n in 0..900 {
            let now = Instant::from_micros(n * spacing);
            link.enqueue(Packet::new(vec![0; 100], now, n), now).unwrap();
        }
        let mut out = Vec::new();
        while let Some(at) = link.next_deadline() {
            out.extend(link.dequeue(at).map(|packet| (packet.number, packet.bytes)));
        }
        out
    };
    let fates = run(None, 0);
    assert_eq!(fates, run(Some(1_000_000), 0));
    assert_eq!(fates, run(Some(1_000_000_000), 777));
}

#[test]
fn another_seed_is_another_fate() {
    let run = |seed| {
        let loss = Loss::Random(Chance::of(0.5));
        let mut link = Link::new(LinkConfig { loss, ..LinkConfig::default() }, seed).unwrap();
        (0..64)
            .filter(|n| {
                link.enqueue(Packet::new(Vec::new(), Instant::ZERO, *n), Instant::ZERO).unwrap();
                link.dequeue(Instant::ZERO).is_some()
            })
            .collect::<Vec<u64>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
