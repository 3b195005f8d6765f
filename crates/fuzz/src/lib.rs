//! Fuzzing in ordinary tests: damaged copies of a kept corpus.
//!
//! Principle: a round takes a file of the corpus and damages it a little — a bit, a byte, a cut, a
//! piece repeated, a word of the format, the end of another file — so that most of it still gets
//! past the first checks. The same seed gives the same rounds on every machine. A find goes into
//! the corpus as a file, and every run begins with the corpus itself.
//!
//! `SHEAF_FUZZ_ROUNDS` sets the number of rounds, `SHEAF_FUZZ_SEED` another beginning.

#[doc(no_inline)]
pub use rand::RngExt;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_stage::{Duration, Instant, Stage};
use std::path::Path;

/// The generator of all rounds.
pub type Rng = Xoshiro256PlusPlus;

/// Words of formats in which people write numbers.
pub const NUMBERS: [&[u8]; 8] =
    [b"0", b"-1", b"1e308", b"nan", b"18446744073709551615", b"100%", b"0.5ms", b"\n"];

/// Packets that [`play`] sends.
const PLAYED: u64 = 8;
/// Bytes that a packet of [`play`] stays below: two of Ethernet's.
const LARGEST: usize = 3_000;
/// Nanoseconds that a pause of [`play`] stays below: longer than most delays that a text sets.
const PAUSE: u64 = 200_000_000;

/// No input grows beyond so many bytes.
const LONGEST: usize = 4096;

/// A corpus, and the rounds over it.
#[derive(Clone, Debug)]
pub struct Fuzzer {
    corpus: Vec<Vec<u8>>,
    words: &'static [&'static [u8]],
    rounds: u64,
    /// Everything random.
    pub rng: Rng,
}

impl Fuzzer {
    /// The files of `tests/corpus/NAME` under `manifest` (a crate's `CARGO_MANIFEST_DIR`), and so
    /// many rounds unless the environment says otherwise.
    ///
    /// # Panics
    /// Without a corpus: nothing would be tested.
    pub fn new(manifest: &str, name: &str, rounds: u64) -> Fuzzer {
        let folder = Path::new(manifest).join("tests/corpus").join(name);
        let files =
            std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
        let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        files.sort();
        let corpus: Vec<_> =
            files.iter().map(|file| std::fs::read(file).expect("readable")).collect();
        assert!(!corpus.is_empty(), "{folder:?} is empty");
        Fuzzer::over(corpus, rounds)
    }

    /// Rounds over inputs that are made by the test itself, or over none.
    pub fn over(corpus: Vec<Vec<u8>>, rounds: u64) -> Fuzzer {
        let rng = Rng::seed_from_u64(setting("SHEAF_FUZZ_SEED").unwrap_or(2008));
        let rounds = setting("SHEAF_FUZZ_ROUNDS").unwrap_or(rounds);
        Fuzzer { corpus, words: &[], rounds, rng }
    }

    /// The same, with words of the format that are put in now and then.
    pub fn with_words(self, words: &'static [&'static [u8]]) -> Fuzzer {
        Fuzzer { words, ..self }
    }

    /// The kept inputs, to be tried as they are.
    pub fn corpus(&self) -> &[Vec<u8>] {
        &self.corpus
    }

    /// Number of rounds.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Writes a damaged file of the corpus over `bytes`.
    pub fn take(&mut self, bytes: &mut Vec<u8>) {
        let file = self.rng.random_range(0..self.corpus.len());
        bytes.clear();
        bytes.extend_from_slice(&self.corpus[file]);
        self.damage(bytes);
    }

    /// Gives every text of the corpus, then damaged ones.
    ///
    /// # Panics
    /// When all or none of the damaged ones were accepted: then one side was not tested.
    pub fn try_texts(&mut self, mut accept: impl FnMut(&str, &mut Rng) -> bool) {
        for file in &self.corpus {
            accept(&String::from_utf8_lossy(file), &mut self.rng);
        }
        let (mut bytes, mut accepted) = (Vec::new(), 0);
        for _ in 0..self.rounds {
            self.take(&mut bytes);
            accepted += u64::from(accept(&String::from_utf8_lossy(&bytes), &mut self.rng));
        }
        let rounds = self.rounds;
        assert!((1..rounds).contains(&accepted), "{accepted} of {rounds} were accepted");
    }

    /// Damages `bytes` in up to three places, or not at all.
    pub fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..self.rng.random_range(0..4u8) {
            if bytes.is_empty() {
                return;
            }
            let at = self.rng.random_range(0..bytes.len());
            match self.rng.random_range(0..7u8) {
                0 => bytes[at] ^= 1 << self.rng.random_range(0..8u8),
                1 => bytes[at] = self.rng.random(),
                2 => bytes.truncate(at),
                3 => bytes.extend_from_within(at..),
                4 => bytes.extend([0; 7]),
                5 if !self.words.is_empty() => {
                    let word = self.words[self.rng.random_range(0..self.words.len())];
                    let end = (at + word.len()).min(bytes.len());
                    bytes.splice(at..end, word.iter().copied());
                }
                _ if !self.corpus.is_empty() => {
                    let other = &self.corpus[self.rng.random_range(0..self.corpus.len())];
                    bytes.truncate(at);
                    bytes.extend_from_slice(&other[at.min(other.len())..]);
                }
                _ => bytes.extend([0xff; 3]),
            }
        }
        bytes.truncate(LONGEST);
    }
}

/// Sends packets of any length through a stage at any times, and checks that it does not hang and
/// that its counters balance. `packet` makes one of its bytes, the time and its number.
///
/// # Panics
/// With the clause of the contract that was broken.
pub fn play<S: Stage>(
    mut stage: S,
    rng: &mut Rng,
    packet: impl Fn(Vec<u8>, Instant, u64) -> S::In,
) {
    let mut now = Instant::from_millis(1);
    for number in 0..PLAYED {
        let bytes = vec![0x45; rng.random_range(0..LARGEST)];
        let _ = stage.enqueue(packet(bytes, now, number), now);
        now += Duration::from_nanos(rng.random_range(0..PAUSE));
        while stage.dequeue(now).is_some() {}
        assert!(stage.next_deadline().is_none_or(|at| at > now), "a deadline stands still");
        let counters = stage.counters();
        let gone = counters.packets_out + counters.dropped_total();
        assert_eq!(counters.packets_in, gone + stage.held());
    }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
