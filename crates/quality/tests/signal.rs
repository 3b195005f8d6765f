//! Sizes follow the signal, in time and without flapping.

mod link;

use link::Link;
use sheaf_quality::size::frame_error_rate;
use sheaf_quality::{Config, Modulation, Quality, Sample};
use sheaf_stage::{Bitrate, Duration, Instant};

const NOISE: f64 = -95.0;
const SEEDS: u64 = 20;

fn modulations() -> Vec<Modulation> {
    let rates = [1_000, 2_000, 5_500, 11_000].map(Bitrate::from_kbps);
    let dsss = rates.into_iter().filter_map(Modulation::of_rate);
    dsss.chain((0..=9).filter_map(Modulation::of_mcs)).collect()
}

/// A link at a distance in dB above where 1500 bytes are best.
fn link(seed: u64, modulation: Modulation, above: f64) -> Link {
    let mut link = Link::new(seed);
    link.modulation = Some(modulation);
    link.frames = 0;
    set(&mut link, modulation, above);
    link
}

fn set(link: &mut Link, modulation: Modulation, above: f64) {
    let config = Config::default();
    let carries = |snr: &f64| {
        let rate = modulation.bit_error_rate(*snr);
        config.size(rate, rate, Some(modulation)) == 1500
    };
    let edge = (-100..500).map(|tenth| f64::from(tenth) / 10.0).find(carries).unwrap();
    link.bit_error_rate = modulation.bit_error_rate(edge + above);
    link.signal = Some((NOISE + edge + above, 1.5));
}

/// Number of changes of the size in the last `seconds`.
fn changes(link: &Link, seconds: usize) -> usize {
    let last = &link.sizes[link.sizes.len() - seconds..];
    last.windows(2).filter(|pair| pair[0].0 != pair[1].0).count()
}

#[test]
fn on_a_steady_link_with_noise_sizes_are_not_much_too_large_nine_seconds_of_ten() {
    // From where small frames are best to where the largest are.
    for modulation in modulations() {
        for tenth in [-7, -4, -2, 0, 2, 5, 10, 20] {
            let mut good = 0.0;
            for seed in 0..SEEDS {
                let mut link = link(seed, modulation, f64::from(tenth) / 10.0);
                if link.best() == 100 {
                    // The floor, whatever is measured.
                    good += 1.0;
                    continue;
                }
                good += link.run(310).good(300);
                assert!(changes(&link, 300) <= 90, "{} at {modulation:?}", changes(&link, 300));
            }
            let share = good / SEEDS as f64;
            assert!(share >= 0.9, "{share} at {modulation:?}, {tenth} tenths above");
        }
    }
}

#[test]
fn a_strong_link_never_leaves_the_largest_size() {
    for seed in 0..SEEDS {
        for modulation in modulations() {
            let mut link = link(seed, modulation, 8.0);
            link.run(300);
            assert!(link.sizes.iter().all(|(size, _)| *size == 1500), "{modulation:?}");
        }
    }
}

#[test]
fn sizes_shrink_within_five_seconds_and_grow_back_within_five() {
    for modulation in modulations() {
        let mut shrunk = 0;
        for seed in 0..SEEDS {
            let mut link = link(seed, modulation, 12.0);
            assert_eq!(link.run(20).size(), 1500);
            set(&mut link, modulation, -0.3);
            link.run(5);
            // What the noise of single readings allows: eight of ten.
            shrunk += usize::from(link.good(1) == 1.0);
            link.run(20);
            set(&mut link, modulation, 12.0);
            assert_eq!(link.run(5).size(), 1500, "{modulation:?}, seed {seed}");
        }
        assert!(shrunk * 10 >= 8 * SEEDS as usize, "{shrunk} at {modulation:?}");
    }
}

#[test]
fn on_a_walk_away_and_back_sizes_are_not_much_too_large() {
    let modulation = Modulation::of_rate(Bitrate::from_mbps(24)).unwrap();
    let (mut good, mut seconds) = (0.0, 0.0);
    for seed in 0..SEEDS {
        let mut link = link(seed, modulation, 6.0);
        link.run(10);
        // 0.4 dB a second, down to where smaller frames are best.
        for step in (0..=16).chain((0..16).rev()) {
            set(&mut link, modulation, 6.0 - 0.4 * f64::from(step));
            link.run(1);
            good += link.good(1);
            seconds += 1.0;
        }
        assert_eq!(link.run(5).size(), 1500);
    }
    assert!(good / seconds >= 0.9, "{}", good / seconds);
}

#[test]
fn frames_that_arrive_all_the_same_raise_a_size_that_a_weak_signal_holds_down() {
    let modulation = Modulation::of_rate(Bitrate::from_mbps(2)).unwrap();
    for seed in 0..SEEDS {
        let mut link = link(seed, modulation, -1.0);
        link.frames = 100;
        link.is_reverse = true;
        let best = f64::from(link.best());
        // The noise floor of the driver, which reports means, is a decibel too high.
        link.signal = link.signal.map(|(mean, _)| (mean - 1.0, 0.4));
        link.run(30);
        let sizes = link.run(60).sizes.iter().rev().take(60);
        let mean = sizes.map(|(size, _)| f64::from(*size)).sum::<f64>() / 60.0;
        assert!((0.5 * best..1.2 * best).contains(&mean), "{mean} of {best}");
        let correction = link.quality.estimate(link.now).unwrap().correction_db;
        assert!((0.4..1.6).contains(&correction), "{correction}");
    }
}

#[test]
fn a_driver_that_reports_means_is_trusted_more_than_one_that_reports_single_frames() {
    let modulation = Modulation::of_rate(Bitrate::from_mbps(2)).unwrap();
    let mean = |deviation: f64| {
        let sizes = (0..SEEDS).map(|seed| {
            let mut link = link(seed, modulation, -1.0);
            link.signal = link.signal.map(|(mean, _)| (mean, deviation));
            f64::from(link.run(60).size())
        });
        sizes.sum::<f64>() / SEEDS as f64
    };
    assert!(mean(0.4) > 1.5 * mean(1.5), "{} and {}", mean(0.4), mean(1.5));
}

#[test]
fn a_single_sample_far_off_changes_nothing() {
    let mut quality = Quality::new(Config::default());
    let modulation = Modulation::of_mcs(7);
    for second in 0..10 {
        let signal = if second == 5 { -90.0 } else { -50.0 };
        let sample = Sample { signal_dbm: Some(signal), modulation, ..Sample::default() };
        quality.sample(Instant::ZERO + Duration::from_secs(second), sample);
        assert_eq!(quality.largest(Instant::ZERO + Duration::from_secs(second)), Some(1500));
    }
}

#[test]
fn rates_that_rate_control_only_tries_do_not_count() {
    let mut quality = Quality::new(Config::default());
    let slow = Modulation::of_mcs(0);
    for second in 0..20 {
        let modulation = if second % 5 == 4 { Modulation::of_mcs(7) } else { slow };
        let sample = Sample { snr_db: Some(10.0), modulation, ..Sample::default() };
        let now = Instant::from_millis(1000 * second);
        quality.sample(now, sample);
        assert_eq!(quality.largest(now), Some(1500));
        assert_eq!(quality.estimate(now).unwrap().modulation, slow);
    }
}

#[test]
fn stale_samples_give_no_size_and_the_next_one_begins_anew() {
    let mut quality = Quality::new(Config::default());
    let modulation = Modulation::of_mcs(7);
    let at = Instant::from_millis;
    assert_eq!(quality.largest(at(0)), None);
    let sample = |ratio| Sample { snr_db: Some(ratio), modulation, ..Sample::default() };
    quality.sample(at(0), sample(10.0));
    assert_eq!(quality.largest(at(5_000)), Some(100));
    assert_eq!(quality.largest(at(5_001)), None);
    assert_eq!(quality.estimate(at(5_001)), None);
    quality.sample(at(6_000), sample(50.0));
    assert_eq!(quality.largest(at(6_000)), Some(1500));
}

#[test]
fn a_station_that_was_not_heard_for_long_is_stale_whatever_the_driver_keeps_of_it() {
    let mut quality = Quality::new(Config::default());
    let modulation = Modulation::of_mcs(7);
    for second in 0..10 {
        let age = Some(Duration::from_secs(second));
        let sample = Sample { age, snr_db: Some(50.0), modulation, ..Sample::default() };
        quality.sample(Instant::from_millis(1000 * second), sample);
    }
    assert_eq!(quality.largest(Instant::from_millis(9_000)), Some(1500));
    assert_eq!(quality.largest(Instant::from_millis(11_000)), None);
}

#[test]
fn sizes_and_error_rates_that_a_source_states_bound_the_size() {
    let at = Instant::from_millis;
    let mut quality = Quality::new(Config::default());
    quality.sample(at(0), Sample { largest: Some(500), ..Sample::default() });
    assert_eq!(quality.largest(at(0)), Some(500));
    quality.sample(at(1), Sample { largest: Some(1400), ..Sample::default() });
    assert_eq!(quality.largest(at(1)), Some(1400));
    let mut quality = Quality::new(Config::default());
    let stated = |rate| Sample { bit_error_rate: Some(rate), ..Sample::default() };
    quality.sample(at(0), stated(0.0));
    assert_eq!(quality.largest(at(0)), Some(1500));
    quality.sample(at(1_000), stated(2e-5));
    let size = quality.largest(at(1_000)).unwrap();
    assert!(frame_error_rate(2e-5, size) <= 0.1 && size > 400, "{size}");
    (2..=4).for_each(|second| quality.sample(at(1_000 * second), stated(0.0)));
    assert_eq!(quality.largest(at(4_000)), Some(1500));
}
