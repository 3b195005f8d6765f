//! Damaged traces and distributions: refused in one line, or a link that works.
//!
//! Whatever is accepted is played: packets go in, time passes, and the balance holds. Nothing may
//! panic, hang, or take more memory for a number in a text than for the packets that came.

use sheaf_emulator::trace::csv::Steps;
use sheaf_emulator::trace::mahimahi::Opportunities;
use sheaf_emulator::{Distribution, Link, LinkConfig, Packet, Trace, TraceConfig};
use sheaf_fuzz::{Fuzzer, Rng, RngExt};
use sheaf_stage::{Duration, Instant, Stage};

const ROUNDS: u64 = 100_000;

const NUMBERS: [&[u8]; 8] =
    [b"0", b"-1", b"1e308", b"nan", b"18446744073709551615", b"100%", b"0.5ms", b"\n"];

fn fuzzer(name: &str) -> Fuzzer {
    Fuzzer::new(env!("CARGO_MANIFEST_DIR"), name, ROUNDS).with_words(&NUMBERS)
}

/// Sends packets through the link and checks its balance.
fn play(config: LinkConfig, rng: &mut Rng) {
    let Ok(mut link) = Link::new(config, 1) else { return };
    let mut now = Instant::from_millis(1);
    for number in 0..8 {
        let len = rng.random_range(0..3_000);
        let _ = link.enqueue(Packet::new(vec![0x45; len], now, number), now);
        now += Duration::from_nanos(rng.random_range(0..200_000_000));
        while link.dequeue(now).is_some() {}
        assert!(link.next_deadline().is_none_or(|at| at > now), "a deadline stands still");
        let counters = link.counters();
        let gone = counters.packets_out + counters.dropped_total();
        assert_eq!(counters.packets_in, gone + link.held());
    }
}

/// Gives every file of the corpus, then damaged ones; returns how many were accepted.
fn run(name: &str, mut accept: impl FnMut(&str, &mut Rng) -> bool) {
    let mut fuzzer = fuzzer(name);
    let (mut bytes, mut accepted, rounds) = (Vec::new(), 0, fuzzer.rounds());
    for file in fuzzer.corpus().to_vec() {
        accept(&String::from_utf8_lossy(&file), &mut fuzzer.rng);
    }
    for _ in 0..rounds {
        fuzzer.take(&mut bytes);
        accepted += u64::from(accept(&String::from_utf8_lossy(&bytes), &mut fuzzer.rng));
    }
    assert!((1..rounds).contains(&accepted), "{accepted} of {rounds} were accepted");
}

#[test]
fn damaged_traces_are_refused_with_their_line_or_played() {
    run("trace", |text, rng| {
        let traces = [
            Opportunities::parse(text).map(|trace| Trace::Opportunities(trace.into())),
            Steps::parse(text).map(|trace| Trace::Steps(trace.into())),
        ];
        let mut accepted = false;
        for trace in traces {
            match trace {
                Ok(trace) => {
                    let (start, looped) = (Instant::from_millis(7), rng.random());
                    let trace = Some(TraceConfig { trace, start, looped });
                    play(LinkConfig { trace, ..LinkConfig::default() }, rng);
                    accepted = true;
                }
                Err(error) => assert!((1..=1 + text.lines().count()).contains(&error.line)),
            }
        }
        accepted
    });
}

#[test]
fn damaged_distributions_are_refused_with_their_line_or_are_finite() {
    run("distribution", |text, _| {
        let tables = [
            Distribution::parse(text),
            Distribution::from_ping(text).map(|ping| ping.distribution),
        ];
        let mut accepted = false;
        for table in tables {
            match table {
                Ok(table) => {
                    assert!(
                        (0..=10).all(|tenth| table.quantile(f64::from(tenth) / 10.0).is_finite())
                    );
                    assert!(Distribution::parse(&table.to_dist_text()).is_ok());
                    accepted = true;
                }
                Err(error) => assert!((1..=1 + text.lines().count()).contains(&error.line)),
            }
        }
        accepted
    });
}
