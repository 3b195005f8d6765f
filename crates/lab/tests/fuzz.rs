//! Damaged captures: refused in one line, or a call that can be sent.

use sheaf_fuzz::{Fuzzer, RngExt};
use sheaf_lab::home::capture::Capture;
use sheaf_lab::home::pattern::Pattern;

const ROUNDS: u64 = 100_000;
/// Bytes of inputs that are all at random, below.
const AT_RANDOM: usize = 600;

/// Whether `bytes` are a call.
fn accept(bytes: &[u8]) -> bool {
    match Capture::parse(bytes) {
        Ok(capture) => {
            let pattern = Pattern::captured(&capture);
            let count = capture.offsets.len() as u32;
            assert_eq!(capture.sizes.len(), capture.offsets.len());
            assert!((0..2 * count).map(|number| pattern.offset(number)).is_sorted());
            assert!(pattern.offset(count) > pattern.offset(count - 1), "a period has an end");
            true
        }
        Err(error) => {
            let line = format!("{error:#}");
            assert!(!line.is_empty() && !line.contains('\n'), "{line:?}");
            false
        }
    }
}

#[test]
fn damaged_captures_are_refused_in_one_line_or_replayed() {
    let mut fuzzer = Fuzzer::new(env!("CARGO_MANIFEST_DIR"), "capture", ROUNDS);
    assert!(fuzzer.corpus().iter().all(|file| accept(file)));
    let (mut bytes, mut accepted) = (Vec::new(), 0);
    for _ in 0..fuzzer.rounds() {
        fuzzer.take(&mut bytes);
        accepted += u64::from(accept(&bytes));
    }
    assert!((1..fuzzer.rounds()).contains(&accepted), "{accepted} were accepted");
}

#[test]
fn bytes_at_random_are_refused_in_one_line() {
    let mut fuzzer = Fuzzer::over(Vec::new(), ROUNDS);
    for _ in 0..fuzzer.rounds() {
        let bytes: Vec<u8> =
            (0..fuzzer.rng.random_range(0..AT_RANDOM)).map(|_| fuzzer.rng.random()).collect();
        assert!(!accept(&bytes));
    }
}
