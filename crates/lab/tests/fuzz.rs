//! Damaged captures: refused in one line, or a call that can be sent. Damaged archives: refused in
//! one line, or a result that can be shown.

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use sheaf_fuzz::{Fuzzer, RngExt};
use sheaf_lab::archive::{Archive, Contents};
use sheaf_lab::experiment::{Engine, Tools};
use sheaf_lab::home::capture::Capture;
use sheaf_lab::home::pattern::Pattern;
use sheaf_lab::plan::{Changes, Plan};
use sheaf_lab::report;
use sheaf_lab::run::{self, Options};
use std::io::{Read, Write};

const ROUNDS: u64 = 100_000;
/// Archives are larger.
const ARCHIVES: u64 = 3_000;
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

/// The tar file inside the archive of a short run.
fn tar() -> Vec<u8> {
    let folder = tempfile::TempDir::new().unwrap();
    let changes = Changes { points: Some(vec![20.0]), duration: Some(0.1), ..Changes::default() };
    let options = Options { changes, folder: Some(folder.path().to_owned()), ..Options::default() };
    let plan = Plan::find("emulator-latency").unwrap();
    let tools = Tools { sheaf: "sheaf".into() };
    let result = run::run(&plan, Engine::Virtual, &options, &tools).unwrap();
    report::write(&result, folder.path()).unwrap();
    let archive = Contents::of_folder(folder.path()).unwrap().to_archive().unwrap();
    let (bytes, mut tar) = (archive.to_bytes().unwrap(), Vec::new());
    GzDecoder::new(bytes.as_slice()).read_to_end(&mut tar).unwrap();
    tar
}

/// Shows the result of the archive with this tar file.
fn shown(tar: &[u8]) -> anyhow::Result<()> {
    let mut zipped = GzEncoder::new(Vec::new(), Compression::none());
    zipped.write_all(tar)?;
    let archive = Archive::from_reader(zipped.finish()?.as_slice())?;
    report::files(&Contents::of_archive(&archive)?.result()?).map(drop)
}

#[test]
fn damaged_archives_are_refused_in_one_line_or_their_result_is_shown() {
    let (whole, mut fuzzer) = (tar(), Fuzzer::over(Vec::new(), ARCHIVES));
    shown(&whole).unwrap();
    let mut accepted = 0;
    for _ in 0..fuzzer.rounds() {
        // Longer than what the fuzzer damages.
        let mut bytes = whole.clone();
        for _ in 0..fuzzer.rng.random_range(0..4u8) {
            let at = fuzzer.rng.random_range(0..bytes.len());
            match fuzzer.rng.random_range(0..8u8) {
                0 => bytes.truncate(at + 1),
                1 => bytes[at] = fuzzer.rng.random(),
                2..5 => bytes[at] ^= 1 << fuzzer.rng.random_range(0..8u8),
                _ => bytes[at] = b'0' + fuzzer.rng.random_range(0..10u8),
            }
        }
        match shown(&bytes) {
            Ok(()) => accepted += 1,
            Err(error) => {
                let line = format!("{error:#}");
                assert!(!line.contains(['\n', '\x1b']), "{line:?}");
            }
        }
    }
    assert!((1..fuzzer.rounds()).contains(&accepted), "{accepted} were accepted");
}
