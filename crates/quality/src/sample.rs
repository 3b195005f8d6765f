//! Measurements of one neighbour at one time.

use crate::modulation::Modulation;
use sheaf_stage::{Bitrate, Duration};

/// Measurements of one neighbour at one time. A source fills in what it measures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Time since the neighbour was last heard. Drivers keep figures of stations that are gone.
    pub age: Option<Duration>,
    /// Power of the signal that is received, in dBm.
    pub signal_dbm: Option<f64>,
    /// Power of the noise in the channel, in dBm.
    pub noise_dbm: Option<f64>,
    /// Signal-to-noise ratio in dB, of sources that measure it itself; goes before the other two.
    pub snr_db: Option<f64>,
    /// Modulation of the last unicast data frame received.
    pub modulation: Option<Modulation>,
    /// Counters of the frames sent to the neighbour.
    pub transmitted: Option<Transmitted>,
    /// The same counters for an estimate of frames *from* the neighbour: a link is much the same in
    /// both directions, so they correct its signal-to-noise ratio ([`crate::correction`]).
    pub reverse: Option<Transmitted>,
    /// Throughput that the rate control of the sender expects. It is reported, not used: it is a
    /// product of rate and delivery, and says nothing about sizes.
    pub expected_throughput: Option<Bitrate>,
    /// Share of the neighbour's HELLOs that arrived of late, 0..=1, or of another small broadcast:
    /// the transmit quality of batman-adv over 255.
    pub hello_ratio: Option<f64>,
    /// Bit error rate, 0..=1, of sources that are the medium.
    pub bit_error_rate: Option<f64>,
    /// The largest packet in bytes that somebody decided on: a fixed size, or what the neighbour
    /// asks for.
    pub largest: Option<u16>,
}

/// Counters of the frames sent to a neighbour, since any beginning. They may wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transmitted {
    /// Frames, each counted once however often it was sent.
    pub frames: u32,
    /// Bytes of these frames on the air.
    pub bytes: u64,
    /// Transmissions after the first of a frame.
    pub retries: u32,
    /// Frames that were given up.
    pub failed: u32,
}

/// Signal in dBm that a mean of mac80211 stands for, which reports `reported` and has left out the
/// fraction of the magnitude: half a decibel, in the mean.
pub fn of_mean(reported: f64) -> f64 {
    reported - 0.5
}

impl Sample {
    /// Signal-to-noise ratio in dB, with `noise_dbm` where no noise was measured.
    pub fn snr_db(&self, noise_dbm: f64) -> Option<f64> {
        let difference = |signal| signal - self.noise_dbm.unwrap_or(noise_dbm);
        self.snr_db.or(self.signal_dbm.map(difference)).filter(|ratio| ratio.is_finite())
    }

    /// This sample, completed by what only `other` has.
    pub fn or(self, other: Sample) -> Sample {
        Sample {
            age: self.age.or(other.age),
            signal_dbm: self.signal_dbm.or(other.signal_dbm),
            noise_dbm: self.noise_dbm.or(other.noise_dbm),
            // A ratio must not displace the signal of a better source.
            snr_db: self.snr_db.or(other.snr_db.filter(|_| self.signal_dbm.is_none())),
            modulation: self.modulation.or(other.modulation),
            transmitted: self.transmitted.or(other.transmitted),
            reverse: self.reverse.or(other.reverse),
            expected_throughput: self.expected_throughput.or(other.expected_throughput),
            hello_ratio: self.hello_ratio.or(other.hello_ratio),
            bit_error_rate: self.bit_error_rate.or(other.bit_error_rate),
            largest: self.largest.or(other.largest),
        }
    }
}

impl Transmitted {
    /// Transmissions of these frames.
    pub(crate) fn attempts(&self) -> f64 {
        f64::from(self.frames) + f64::from(self.retries)
    }

    /// Transmissions that were not acknowledged.
    pub(crate) fn lost(&self) -> f64 {
        f64::from(self.retries) + f64::from(self.failed)
    }

    /// Mean bits of a frame on the air.
    pub(crate) fn mean_bits(&self) -> f64 {
        8.0 * self.bytes as f64 / f64::from(self.frames.max(1))
    }

    /// Counters of what happened since `earlier`; `None` where the counters began anew.
    pub(crate) fn since(&self, earlier: &Transmitted) -> Option<Transmitted> {
        let difference = Transmitted {
            frames: self.frames.wrapping_sub(earlier.frames),
            bytes: self.bytes.checked_sub(earlier.bytes)?,
            retries: self.retries.wrapping_sub(earlier.retries),
            failed: self.failed.wrapping_sub(earlier.failed),
        };
        // Less than half the range: a counter that went back looks as if it had gone far ahead.
        let forward = |count: u32| count <= u32::MAX / 2;
        let counts = [difference.frames, difference.retries, difference.failed];
        counts.into_iter().all(forward).then_some(difference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_signal_over_noise_and_a_measured_one_goes_first() {
        let sample = Sample { signal_dbm: Some(-70.0), ..Sample::default() };
        assert_eq!(sample.snr_db(-95.0), Some(25.0));
        assert_eq!(Sample { noise_dbm: Some(-90.0), ..sample }.snr_db(-95.0), Some(20.0));
        assert_eq!(Sample { snr_db: Some(7.0), ..sample }.snr_db(-95.0), Some(7.0));
        assert_eq!(Sample::default().snr_db(-95.0), None);
    }

    #[test]
    fn counters_wrap_and_begin_anew() {
        let at = |frames, bytes| Transmitted { frames, bytes, ..Transmitted::default() };
        assert_eq!(at(5, 900).since(&at(u32::MAX, 800)), Some(at(6, 100)));
        assert_eq!(at(5, 900).since(&at(6, 800)), None);
        assert_eq!(at(5, 900).since(&at(4, 1000)), None);
    }
}
