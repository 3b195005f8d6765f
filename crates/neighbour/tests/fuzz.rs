//! Ten million damaged HELLOs, and what a neighbourhood makes of them.
//!
//! Each round starts from the kept corpus (`tests/corpus/hello`, replayed first and whole). Checked
//! is that nothing panics, that the table keeps its bound, that HELLOs stay as rare as their
//! timetable says, and that with a key nothing damaged is believed. A find goes into the corpus as
//! a file.

use sheaf_fuzz::{Fuzzer, Rng, RngExt};
use sheaf_neighbour::{Config, MAX_NEIGHBOURS, Neighbourhood, Refusal, SealKey};
use sheaf_stage::{Duration, Instant};
use sheaf_wire::hello::{Formats, Hello, MAX_LEN, Node, REPORT_LEN, Splits};

const ROUNDS: u64 = 5_000_000;
const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn fuzzer() -> Fuzzer {
    const WORDS: [&[u8]; 6] = [b"Sh\x10", &[1, 3], &[2, 15], &[3, 16], &[0xff; 4], &[0; 8]];
    Fuzzer::new(env!("CARGO_MANIFEST_DIR"), "hello", ROUNDS).with_words(&WORDS)
}

/// Hands the corpus and then the damaged files to `each`.
fn rounds(mut each: impl FnMut(&[u8], &mut Rng)) {
    let mut fuzzer = fuzzer();
    for file in fuzzer.corpus().to_vec() {
        each(&file, &mut fuzzer.rng);
    }
    let mut bytes = Vec::new();
    for _ in 0..fuzzer.rounds() {
        fuzzer.take(&mut bytes);
        each(&bytes, &mut fuzzer.rng);
    }
}

#[test]
fn damaged_hellos_are_read_whole_or_refused() {
    let mut sealed = 0;
    rounds(|bytes, _| {
        let Ok(hello) = Hello::parse(bytes) else { return };
        assert!(bytes.len() <= MAX_LEN && hello.period() > 0);
        assert!(hello.reports().count() <= MAX_LEN / REPORT_LEN);
        if let Some((covered, _)) = hello.seal() {
            assert!(Hello::parse(covered).is_ok(), "what a seal covers is a HELLO of its own");
            sealed += 1;
        }
    });
    assert!(sealed > 0, "no round got through: the fuzzer sees only the surface");
}

#[test]
fn a_neighbourhood_hears_anything_and_keeps_its_bounds_and_its_timetable() {
    let splits = Some(Splits { formats: Formats::META, largest: 1500 });
    let config = Config { splits, ..Config::default() };
    let key = Some(SealKey::new([7; 32]));
    let mut open = Neighbourhood::new(config.clone(), OURS, Node(1), Instant::ZERO);
    let mut closed = Neighbourhood::new(Config { key, ..config }, OURS, Node(2), Instant::ZERO);
    let (mut now, mut sent, mut message) = (Instant::ZERO, 0_u64, Vec::new());
    rounds(|bytes, rng| {
        now += Duration::from_micros(rng.random_range(0..20_000));
        let from = [2, 0, 0, rng.random(), rng.random(), rng.random_range(0..4)];
        let _ = open.hear(from, bytes, now);
        let refused = closed.hear(from, bytes, now).expect_err("nobody here has the key");
        assert!(!matches!(refused, Refusal::Full | Refusal::Old | Refusal::Unproven));
        open.expire(now, |_, _| ());
        assert!(open.len() <= MAX_NEIGHBOURS && closed.is_empty());
        if open.dequeue(now, &mut message) {
            sent += 1;
            assert!(Hello::parse(&message).is_ok() && open.next_deadline() > now);
        }
    });
    let seconds = now.saturating_since(Instant::ZERO).as_secs();
    assert!(sent <= 2 * seconds + 10, "{sent} HELLOs in {seconds} s");
}
