//! Correction of the signal-to-noise ratio by the frames that really arrived.
//!
//! Principle: the ratio predicts which share of the frames sent is lost. Where fewer are lost, the
//! link is better than its ratio says: the noise floor is a guess, and cards are better than the
//! theory. The difference in dB is the difference of the shares over the slope of the curve. It
//! counts as much as the counters are certain of it, as in a Kalman filter with a fixed spread,
//! half a decibel a sample at most, and [`MOST`] in all.
//!
//! More losses than predicted take back what was gained, and no more: they may be collisions.
//! Taken for noise these would make frames smaller, smaller frames are more frames, and more frames
//! collide more, until each packet goes alone. That a link is worse than its ratio is found by
//! losses that grow with the size ([`crate::losses`]). For the same reason a share of losses that
//! collisions may have takes nothing back.
//!
//! Far from the edge the curve is flat: neither few losses nor collisions say anything about the
//! ratio there, and nothing changes. A correction that is not confirmed fades.
//!
//! Source: the counters are those of nl80211's stations. That a link is much the same in both
//! directions is assumed: the counters are of frames sent, the ratio is of frames received.

use crate::losses::rest;
use crate::modulation::Modulation;
use crate::sample::Transmitted;
use sheaf_stage::Instant;

/// The most that one sample changes, in dB: a factor of two in size. A sample errs now and then.
const STEP: f64 = 0.5;
/// The largest correction, in dB: no card is better than the theory by more.
pub const MOST: f64 = 2.0;
/// Standard deviation in dB that the correction is assumed to change by between two samples. It
/// gives counters of a hundred frames near the edge, which are certain to 0.3 dB, a third.
const SPREAD: f64 = 0.2;
/// Time constant with which a correction fades, in seconds: a walk lasts as long.
const FADE: f64 = 60.0;
/// Transmissions below which a share of losses is not judged.
const ENOUGH: f64 = 10.0;
/// Share of the transmissions that may collide without saying anything about the ratio: of two
/// stations that always have a frame to send, with the least contention window of OFDM.
const COLLISIONS: f64 = 1.0 / 16.0;
/// Decibels over which the slope of the curve is taken.
const SLOPE: f64 = 0.1;
/// Slope per dB below which the curve is flat: one frame in ten thousand.
const FLAT: f64 = 1e-4;

/// The correction of one neighbour's ratio.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Correction {
    decibels: f64,
    /// Counters as last seen, and when.
    before: Option<(Instant, Transmitted)>,
}

impl Correction {
    /// Decibels to add to the ratio, from 0 to [`MOST`].
    pub fn decibels(&self) -> f64 {
        self.decibels
    }

    /// Takes the counters at `now`, where the smoothed ratio of frames in `modulation` is `ratio`
    /// dB and the share `constant` of the losses has other causes than noise.
    pub fn update(
        &mut self,
        now: Instant,
        counters: Transmitted,
        ratio: f64,
        modulation: Modulation,
        constant: f64,
    ) {
        let Some((then, before)) = self.before.replace((now, counters)) else { return };
        let seconds = now.saturating_since(then).as_secs_f64();
        self.decibels *= libm::exp(-seconds / FADE);
        let Some(sent) = counters.since(&before) else { return };
        let (attempts, lost) = (sent.attempts(), sent.lost());
        if attempts < ENOUGH || sent.frames == 0 {
            return;
        }
        let bits = sent.mean_bits();
        let expected = |decibels: f64| {
            let rate = modulation.bit_error_rate(ratio + self.decibels + decibels);
            -libm::expm1(bits * libm::log1p(-rate))
        };
        let predicted = expected(0.0);
        let slope = (expected(-SLOPE) - predicted) / SLOPE;
        if slope < FLAT {
            return;
        }
        // Half a loss and half a delivery more, so that none lost of a few does not look certain.
        let share = (lost + 0.5) / (attempts + 1.0);
        let variance = share * (1.0 - share) / (attempts + 1.0) / (slope * slope);
        let gain = SPREAD * SPREAD / (SPREAD * SPREAD + variance);
        let all = (lost / attempts).min(1.0);
        let least = rest(all, constant.max(COLLISIONS));
        let step = ((predicted - predicted.clamp(least, all)) / slope).clamp(-STEP, STEP);
        self.decibels = (self.decibels + gain * step).clamp(0.0, MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_stage::Duration;

    const MODULATION: Modulation = Modulation::Dqpsk;
    /// Bytes of the frames on the air.
    const BYTES: u32 = 536;

    /// The correction after `seconds` in which each of 100 transmissions a second is lost with the
    /// share that a ratio of `truth` dB gives, and a share `collisions` besides.
    fn corrected(reported: f64, truth: f64, collisions: f64, seconds: u64) -> f64 {
        let rate = MODULATION.bit_error_rate(truth);
        let noise = -libm::expm1(f64::from(BYTES) * 8.0 * libm::log1p(-rate));
        let lost = 1.0 - (1.0 - noise) * (1.0 - collisions);
        let mut correction = Correction::default();
        for second in 0..=seconds {
            let attempts = 100.0 * second as f64;
            let retries = (attempts * lost).round() as u32;
            let frames = (attempts as u32) - retries;
            let bytes = u64::from(frames) * u64::from(BYTES);
            let counters = Transmitted { frames, bytes, retries, failed: 0 };
            let now = Instant::ZERO + Duration::from_secs(second);
            correction.update(now, counters, reported, MODULATION, 0.0);
        }
        correction.decibels()
    }

    #[test]
    fn a_signal_that_promises_too_little_is_corrected_within_five_seconds() {
        for truth in [0.0, 0.5, 1.0] {
            let up = corrected(truth - 0.8, truth, 0.0, 5);
            assert!((0.5..1.0).contains(&up), "{up} at {truth}");
        }
        assert!(corrected(0.5, 0.5, 0.0, 60).abs() < 0.1);
    }

    #[test]
    fn collisions_say_nothing_against_a_signal() {
        for truth in [0.0, 0.5, 1.0, 13.0] {
            assert_eq!(corrected(truth, truth, 0.3, 60), 0.0, "at {truth}");
        }
    }

    #[test]
    fn what_was_gained_is_taken_back_by_losses_is_bounded_and_fades_without_frames() {
        let counters = |frames, retries| {
            let bytes = u64::from(frames) * u64::from(BYTES);
            Transmitted { frames, bytes, retries, failed: 0 }
        };
        let at = |second| Instant::ZERO + Duration::from_secs(second);
        let mut lossy = Correction { decibels: MOST, before: None };
        let mut silent = lossy;
        for second in 0..=180 {
            // A third of the transmissions is lost.
            let frames = second as u32 * 100;
            lossy.update(at(second), counters(frames, frames / 2), 0.5, MODULATION, 0.0);
            silent.update(at(second), counters(0, 0), 0.5, MODULATION, 0.0);
        }
        assert!(lossy.decibels() < 0.1);
        assert!(silent.decibels() < 0.2);
        assert!(corrected(-8.0, 1.0, 0.0, 60) <= MOST);
    }
}
