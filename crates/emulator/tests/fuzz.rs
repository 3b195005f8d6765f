//! Damaged traces and distributions: refused in one line, or a link that works.
//!
//! Whatever is accepted is played: packets go in, time passes, and the balance holds. Nothing may
//! panic, hang, or take more memory for a number in a text than for the packets that came.

use sheaf_emulator::trace::{Opportunities, Steps, Trains};
use sheaf_emulator::{Distribution, Link, LinkConfig, Packet, Trace, TraceConfig};
use sheaf_fuzz::{Fuzzer, NUMBERS, Rng, RngExt, play};
use sheaf_stage::Instant;
use std::sync::Arc;

const ROUNDS: u64 = 100_000;

/// Gives every file of a corpus, then damaged ones.
fn run(name: &str, accept: impl FnMut(&str, &mut Rng) -> bool) {
    let fuzzer = Fuzzer::new(env!("CARGO_MANIFEST_DIR"), name, ROUNDS);
    fuzzer.with_words(&NUMBERS).try_texts(accept);
}

#[test]
fn damaged_traces_are_refused_with_their_line_or_played() {
    let heavy = Arc::new(Opportunities::parse("1\n3\n3\n7\n").unwrap());
    run("trace", |text, rng| {
        let traces = [
            Opportunities::parse(text).map(|trace| Trace::Opportunities(trace.into())),
            Steps::parse(text).map(|trace| Trace::Steps(trace.into())),
            Trains::parse(text).map(|trains| Trace::Loads(heavy.clone(), trains.into())),
        ];
        let mut accepted = false;
        for trace in traces {
            match trace {
                Ok(trace) => {
                    let start = rng.random::<bool>().then_some(Instant::from_millis(7));
                    let looped = rng.random();
                    let trace = Some(TraceConfig { trace, start, looped });
                    let config = LinkConfig { trace, ..LinkConfig::default() };
                    let _ = Link::new(config, 1).map(|link| play(link, rng, Packet::new));
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
