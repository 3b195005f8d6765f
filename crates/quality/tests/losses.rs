//! Losses shrink frames where they grow with the size, and only there.

mod link;

use link::Link;
use proptest::prelude::*;
use sheaf_quality::{Config, Modulation, Quality, Sample, Transmitted};
use sheaf_stage::{Duration, Instant};

const SEEDS: u64 = 40;
/// Bit error rates at which 22, 39 and 58 % of the largest frames are lost.
const RATES: [f64; 3] = [2e-5, 4e-5, 7e-5];

fn link(seed: u64, hellos: bool, collisions: f64) -> Link {
    let mut link = Link::new(seed);
    link.hellos = hellos;
    link.collisions = collisions;
    link
}

#[test]
fn bit_errors_shrink_frames_within_five_seconds_and_keep_them_under_the_target() {
    for rate in RATES {
        for (hellos, collisions) in
            [(false, 0.0), (false, 0.1), (false, 0.3), (true, 0.0), (true, 0.1), (true, 0.3)]
        {
            let (mut good, mut in_time) = (0.0, 0);
            for seed in 0..SEEDS {
                let mut link = link(seed, hellos, collisions);
                link.run(30);
                link.bit_error_rate = rate;
                in_time += u64::from(link.run(5).good(1) == 1.0);
                good += link.run(200).good(200);
            }
            let share = good / SEEDS as f64;
            let circumstances = format!("{rate}, collisions {collisions}, HELLOs {hellos}");
            assert!(share >= 0.9, "{share} at {circumstances}");
            assert!(in_time * 10 >= 8 * SEEDS, "{in_time} of {SEEDS} at {circumstances}");
        }
    }
}

#[test]
fn without_collisions_frames_grow_back_within_five_seconds_of_the_mending() {
    for rate in RATES {
        let (mut shrunk, mut grown) = (0, 0);
        for seed in 0..SEEDS {
            let mut link = link(seed, false, 0.0);
            link.run(30);
            link.bit_error_rate = rate;
            shrunk += u64::from(link.run(15).size() < 1000);
            link.bit_error_rate = 0.0;
            grown += u64::from(link.run(5).size() == 1500);
        }
        assert!(shrunk * 10 >= 9 * SEEDS, "{shrunk} of {SEEDS} at {rate}");
        assert!(grown * 10 >= 9 * SEEDS, "{grown} of {SEEDS} at {rate}");
    }
}

#[test]
fn with_collisions_frames_grow_back_at_the_latest_by_the_next_trial_of_the_full_size() {
    for rate in RATES {
        for seed in 0..SEEDS {
            let mut link = link(seed, false, 0.2);
            link.run(30);
            link.bit_error_rate = rate;
            link.run(15);
            link.bit_error_rate = 0.0;
            link.run(30);
            let grown = link.sizes.iter().rev().take(30).any(|(size, _)| *size == 1500);
            assert!(grown, "seed {seed} at {rate}");
        }
    }
}

/// Trials cost some seconds of small frames: without HELLOs nothing else tells collisions from bit
/// errors.
#[test]
fn collisions_leave_frames_as_they_are_but_for_rare_trials() {
    for (collisions, most) in [(0.05, 0.01), (0.15, 0.1), (0.3, 0.1), (0.6, 0.2)] {
        for hellos in [false, true] {
            let mut small = 0;
            for seed in 0..SEEDS {
                let mut link = link(seed, hellos, collisions);
                link.run(300);
                small += link.sizes.iter().filter(|(size, _)| *size < 1500).count();
            }
            let share = small as f64 / (300 * SEEDS) as f64;
            assert!(share <= most, "{share} at {collisions}, HELLOs {hellos}");
        }
    }
}

#[test]
fn collisions_are_reported_as_losses_of_any_size() {
    let mut link = link(1, true, 0.3);
    link.run(100);
    let estimate = link.quality.estimate(link.now).expect("a sample a second");
    assert!((0.2..0.45).contains(&estimate.constant_loss), "{}", estimate.constant_loss);
}

#[test]
fn failures_lower_the_size_that_the_signal_allows() {
    let mut link = link(3, true, 0.0);
    // The driver's noise floor is far too low: the signal promises what the link does not keep.
    link.signal = Some((-60.0, 1.5));
    link.modulation = Modulation::of_mcs(7);
    assert_eq!(link.run(20).size(), 1500);
    link.bit_error_rate = 2e-4;
    assert!(link.run(5).size() < 800, "{}", link.size());
}

#[test]
fn a_link_that_carries_nothing_keeps_the_size_that_the_signal_allows() {
    let mut link = link(3, true, 0.5);
    link.frames = 0;
    link.run(100);
    assert!(link.sizes.iter().all(|(size, _)| *size == 1500));
}

#[test]
fn counters_that_begin_anew_or_wrap_are_no_losses() {
    let mut quality = Quality::new(Config::default());
    for second in 0..60u64 {
        let frames = (u32::MAX - 3000).wrapping_add(100 * second as u32);
        let transmitted = match second {
            30.. => Transmitted { frames: 100 * second as u32, ..Transmitted::default() },
            _ => Transmitted { frames, bytes: 150_000 * second, retries: 5, failed: 7 },
        };
        let now = Instant::ZERO + Duration::from_secs(second);
        quality.sample(now, Sample { transmitted: Some(transmitted), ..Sample::default() });
        assert_eq!(quality.largest(now), Some(1500), "second {second}");
    }
}

fn optional(range: std::ops::Range<f64>) -> impl Strategy<Value = Option<f64>> {
    let extremes = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, -f64::MAX, 0.0];
    prop_oneof![
        Just(None),
        range.prop_map(Some),
        prop::sample::select(extremes.to_vec()).prop_map(Some),
    ]
}

fn transmitted((frames, bytes, retries, failed): (u32, u64, u32, u32)) -> Transmitted {
    Transmitted { frames: frames >> 8, bytes, retries: retries >> 8, failed: failed >> 8 }
}

fn any_sample() -> impl Strategy<Value = Sample> {
    let counters = any::<Option<(u32, u64, u32, u32)>>();
    let levels = (optional(-100.0..0.0), optional(-110.0..-80.0), optional(-20.0..60.0));
    let rates = (optional(0.0..1.0), optional(0.0..1.0), any::<Option<u16>>(), 0u8..14);
    (counters, levels, rates).prop_map(|(counters, levels, rates)| Sample {
        signal_dbm: levels.0,
        noise_dbm: levels.1,
        snr_db: levels.2,
        hello_ratio: rates.0,
        bit_error_rate: rates.1,
        largest: rates.2,
        modulation: Modulation::of_mcs(rates.3),
        transmitted: counters.map(transmitted),
        reverse: counters.map(transmitted),
        expected_throughput: None,
        age: None,
    })
}

proptest! {
    #[test]
    fn whatever_is_measured_the_size_stays_within_its_bounds(
        samples in prop::collection::vec((0u64..8_000, any_sample()), 1..60),
        floor in 0u16..2000,
    ) {
        let config = Config { floor, ..Config::default() };
        let mut quality = Quality::new(config);
        let mut now = Instant::ZERO;
        for (millis, sample) in samples {
            now += Duration::from_millis(millis);
            quality.sample(now, sample);
            let largest = sample.largest.unwrap_or(1500).min(1500);
            let size = quality.largest(now).expect("a sample at this time");
            prop_assert!(size <= largest && size >= floor.min(largest));
            let estimate = quality.estimate(now).expect("a sample at this time");
            prop_assert!((0.0..=1.0).contains(&estimate.constant_loss));
            prop_assert!((0.0..=1.0).contains(&estimate.bit_error_rate));
        }
    }
}
