//! Sixteen mixes of two links: a CUBIC, a BBR and a QUIC flow over each link alone and over the
//! trunk, and a call beside a download.
//!
//! Delays are one way and jitter is drawn evenly, as in the same mixes in virtual time
//! (`crates/trunk/tests/mixes.rs`). The links alone carry plain TCP or QUIC, without a trunk. They
//! and the trunk take turns, and medians are shown.

use crate::links::{KeptUp, Link, Linked, WARM, link};
use crate::load::{Load, Target};
use crate::pair::Pair;
use crate::{FAR, Wanted, call, median};
use sheaf_stage::Duration;

/// Share of the best link alone that the trunk is to reach, in every mix with every flow.
const OF_BEST: f64 = 0.98;
/// Of the sum of the links' rates, where a mix says so. A keyed trunk's headers leave 0.940 of it:
/// 1388 bytes of a segment in 1476 of a frame.
const OF_SUM: f64 = 0.90;
/// Of the best link alone, where both are like mobile networks.
const OF_BEST_MOBILE: f64 = 1.3;
/// Of the sum of the rates, where losses on both links bound a CUBIC flow.
const OF_LOSSLESS: f64 = 0.8;
/// Time in ms by which a call beside a download may be later than on the best link while idle.
const CALL_MS: f64 = 10.0;

/// Goal of a mix beside [`OF_BEST`].
#[derive(Clone, Copy, PartialEq)]
enum Goal {
    Best,
    Sum,
    Mobile,
}

struct Mix {
    name: &'static str,
    links: [Link; 2],
    goal: Goal,
}

fn mixes() -> [Mix; 16] {
    let mix = |name, goal, links| Mix { name, links, goal };
    let base = link(50, 20.0);
    [
        mix("baseline", Goal::Sum, [base, base]),
        mix("40 ms", Goal::Sum, [base, link(50, 40.0)]),
        mix("70 ms", Goal::Sum, [base, link(50, 70.0)]),
        mix("120 ms", Goal::Best, [base, link(50, 120.0)]),
        mix("320 ms", Goal::Best, [base, link(50, 320.0)]),
        mix("jitter 5", Goal::Sum, [base.jitter(5.0); 2]),
        mix("jitter 20", Goal::Best, [base.jitter(20.0); 2]),
        mix("loss 0.5 %", Goal::Best, [base.loss(0.5); 2]),
        mix("loss 2 %", Goal::Best, [base.loss(2.0); 2]),
        mix("50/12 M", Goal::Sum, [base, link(12, 20.0)]),
        mix("100/10 M", Goal::Sum, [link(100, 20.0), link(10, 20.0)]),
        mix(
            "30±5 ms 0.5 % 40 M, 45±8 ms 0.5 % 25 M",
            Goal::Mobile,
            [link(40, 30.0).jitter(5.0).loss(0.5), link(25, 45.0).jitter(8.0).loss(0.5)],
        ),
        mix(
            "8 ms 300 M, 40±8 ms 0.5 % 30 M",
            Goal::Sum,
            [link(300, 8.0), link(30, 40.0).jitter(8.0).loss(0.5)],
        ),
        mix(
            "35±8 ms 40 M, 50±25 ms 1 % 100 M",
            Goal::Best,
            [link(40, 35.0).jitter(8.0), link(100, 50.0).jitter(25.0).loss(1.0)],
        ),
        mix(
            "35 ms 40 M, 320±20 ms 0.5 % 20 M",
            Goal::Best,
            [link(40, 35.0), link(20, 320.0).jitter(20.0).loss(0.5)],
        ),
        mix(
            "50±20 ms 2 % 20 M, 60±25 ms 2 % 15 M",
            Goal::Mobile,
            [link(20, 50.0).jitter(20.0).loss(2.0), link(15, 60.0).jitter(25.0).loss(2.0)],
        ),
    ]
}

#[derive(Clone, Copy, PartialEq)]
enum Flow {
    Cubic,
    Bbr,
    Quic,
}

const FLOWS: [(Flow, &str); 3] = [(Flow::Cubic, "CUBIC"), (Flow::Bbr, "BBR"), (Flow::Quic, "QUIC")];

impl Flow {
    /// From host 1 to this address of host 2.
    fn start(self, pair: &Pair, address: &str) -> Load {
        match self {
            Flow::Cubic => Load::start(pair, &Target::Tcp(address), (1, "cubic")),
            Flow::Bbr => Load::start(pair, &Target::Tcp(address), (1, "bbr")),
            Flow::Quic => Load::quic(pair, address),
        }
    }
}

/// Prints the table of the flows, that of the calls, and what does not hold.
pub fn tables(wanted: &Wanted) {
    let mixes = mixes();
    let mixes: Vec<&Mix> = mixes.iter().filter(|mix| wanted.case(mix.name)).collect();
    if mixes.is_empty() {
        return;
    }
    println!("mixes: Mbit/s, {} rounds of {} s, medians", wanted.rounds, wanted.time.as_secs());
    println!();
    println!(
        "| mix | flow | sum | link 1 | link 2 | trunk | of best | of sum | of 1 + 2 | late, ms | \
         holds |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let mut missed = Vec::new();
    for mix in &mixes {
        missed.extend(flows(mix, wanted));
    }
    println!();
    println!(
        "| call beside a CUBIC download | p99, ms | over idle | over idle p99 | lost | download | \
         late, ms | holds |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for mix in &mixes {
        missed.extend(calls(mix, wanted));
    }
    println!();
    let verdicts = mixes.len() * (FLOWS.len() + 1);
    println!("mixes: {} of {verdicts} rows hold", verdicts - missed.len());
    missed.iter().for_each(|row| println!("* {row}"));
}

/// Rates of one flow: over each link alone, then over the trunk.
#[derive(Default)]
struct Rates {
    ways: [Vec<f64>; 3],
    kept_up: KeptUp,
}

/// Prints a row for each flow; returns those that miss a goal.
fn flows(mix: &Mix, wanted: &Wanted) -> Vec<String> {
    let mut all: [Rates; FLOWS.len()] = Default::default();
    for round in 0..wanted.rounds {
        for ((flow, _), rates) in FLOWS.iter().zip(&mut all) {
            for (way, found) in rates.ways.iter_mut().enumerate() {
                let (rate, kept_up) = measure(mix, *flow, way, round, wanted.time);
                found.push(rate);
                rates.kept_up.with(kept_up);
            }
        }
    }
    let rows = FLOWS.iter().zip(all);
    rows.filter_map(|((flow, name), rates)| {
        let [one, two, trunk] = rates.ways.map(median);
        let sum: f64 = mix.links.iter().map(|link| f64::from(link.mbps)).sum();
        let best = one.max(two);
        let verdict = verdict(mix, *flow, [trunk / best, trunk / sum]);
        println!(
            "| {} | {name} | {sum:.0} | {one:.1} | {two:.1} | {trunk:.1} | {:.2} | {:.2} | {:.2} \
             | {} | {} |",
            mix.name,
            trunk / best,
            trunk / sum,
            trunk / (one + two),
            rates.kept_up,
            verdict.as_deref().unwrap_or("yes")
        );
        verdict.map(|why| format!("{}, {name}: {why}", mix.name))
    })
    .collect()
}

/// Mbit/s over link number `way` alone, or over the trunk where there is none of this number.
fn measure(mix: &Mix, flow: Flow, way: usize, round: usize, time: Duration) -> (f64, KeptUp) {
    let linked = Linked::new(&mix.links, round);
    let alone = way < mix.links.len();
    let trunks = (!alone).then(|| linked.trunks());
    let address = if alone { Linked::address(way) } else { FAR.to_owned() };
    let load = flow.start(&linked.pair, &address);
    linked.measure(&load, trunks.as_ref(), time)
}

/// The goals that are missed, where any is.
fn verdict(mix: &Mix, flow: Flow, [of_best, of_sum]: [f64; 2]) -> Option<String> {
    let lossy = flow == Flow::Cubic && mix.links.iter().all(|link| link.loss_percent > 0.0);
    let goals = [
        (true, "best", of_best, OF_BEST),
        (mix.goal == Goal::Sum, "sum", of_sum, OF_SUM),
        (mix.goal == Goal::Mobile, "best", of_best, OF_BEST_MOBILE),
        (lossy, "lossless sum", of_sum, OF_LOSSLESS),
    ];
    let missed = goals.iter().filter(|(asked, _, got, least)| *asked && got < least);
    let missed: Vec<_> =
        missed.map(|(_, of, got, least)| format!("{got:.3} < {least} of {of}")).collect();
    (!missed.is_empty()).then(|| missed.join(", "))
}

/// Prints the row of a call; returns it if it is later than it may be.
fn calls(mix: &Mix, wanted: &Wanted) -> Option<String> {
    let packets = (wanted.time.as_nanos() / call::BEAT.as_nanos()) as u32;
    let (mut late, mut lost, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    let mut kept_up = KeptUp::default();
    for round in 0..wanted.rounds {
        let linked = Linked::new(&mix.links, round);
        let trunks = linked.trunks();
        let load = Flow::Cubic.start(&linked.pair, FAR);
        load.measure(WARM);
        let (meter, rate) = call::hold(&linked.pair, &load, packets);
        late.push(meter.delay_quantile(0.99).as_secs_f64() * 1e3);
        lost.push(meter.loss(packets.into()) * 100.0);
        rates.push(rate);
        kept_up.with(linked.kept_up());
        crate::show(&trunks);
    }
    let idle = |share| {
        let delays = mix.links.iter().map(|link| link.idle_delay_ms(share));
        delays.fold(f64::INFINITY, f64::min)
    };
    let (late, lost, rate) = (median(late), median(lost), median(rates));
    let over = late - idle(0.5);
    let verdict = (over > CALL_MS).then(|| format!("{over:.1} > {CALL_MS} ms"));
    println!(
        "| {} | {late:.1} | {over:.1} | {:.1} | {lost:.2} % | {rate:.1} | {kept_up} | {} |",
        mix.name,
        late - idle(0.99),
        verdict.as_deref().unwrap_or("yes")
    );
    verdict.map(|why| format!("{}, call: {why}", mix.name))
}
