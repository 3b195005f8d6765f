//! Policies and their parameters.

use crate::classify::Rules;
use sheaf_stage::Duration;
use sheaf_wire::meta;
use thiserror::Error;

/// The lowest bit of a frame's size in a packet's mark: the two below it choose the packets to
/// gather (KAU, chapter 3, `simplerr`).
const SIZE_SHIFT: u32 = 2;

/// Condition on which a queue may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The theses': the queue has `min` bytes or its oldest packet is past `timeout`, and
    /// the device takes frames. Costs up to `timeout` on an idle link.
    Forced,
    /// The device can take a frame: immediately on an idle link; while the device has more than
    /// `inflight` frames of its own, packets gather. At the latest after `hold`.
    Busy,
}

/// A number of bytes, absolute or relative to the largest meta packet of the next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// Bytes.
    Bytes(u32),
    /// Percent of the next hop's current `max`, 0..=100.
    Percent(u8),
}

impl Threshold {
    /// Bytes, when the largest meta packet is `max` bytes.
    pub fn of(self, max: u16) -> u32 {
        match self {
            Threshold::Bytes(bytes) => bytes,
            Threshold::Percent(percent) => u32::from(max) * u32::from(percent) / 100,
        }
    }
}

/// Parameters of an [`Aggregator`](crate::Aggregator). The defaults are those of
/// `sheaf aggregate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Hold policy; `busy`.
    pub policy: Policy,
    /// Bytes that a queue must have to leave before its timeout under `forced`; 500 (KAU).
    pub min: Threshold,
    /// Largest meta packet in bytes, outer header included, 100..=2048; 1500. A hop can have
    /// less.
    pub max: u16,
    /// Whether each packet's mark bounds the frame that it is in, see [`Config::largest`]; `false`.
    pub by_mark: bool,
    /// Longest wait under `forced` while the device takes frames; 5 ms (both theses).
    pub timeout: Duration,
    /// Longest wait under any policy, also when the device's signal is stuck; 100 ms. A station
    /// with ten calls fills a frame in 60 ms; with less than that, frames leave half full at the
    /// top.
    pub hold: Duration,
    /// Frames that the device has, the one on the air included, when packets begin to gather under
    /// `busy`; 1.
    pub inflight: u32,
    /// Backoff on a contended channel under `busy`, as a multiple of the time for which full frames
    /// wait for the channel beyond their own; 24. 0 for none. See [`crate::backoff`].
    pub backoff: u32,
    /// Rules that select the packets to gather.
    pub rules: Rules,
    /// Frames that wait per next hop and class, under `busy` with those that the device has; 12.
    pub queue_frames: usize,
    /// Frames that wait in total; 256.
    pub total_frames: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            policy: Policy::Busy,
            min: Threshold::Bytes(500),
            max: 1500,
            by_mark: false,
            timeout: Duration::from_millis(5),
            hold: Duration::from_millis(100),
            inflight: 1,
            backoff: 24,
            rules: Rules::default(),
            queue_frames: 12,
            total_frames: 256,
        }
    }
}

impl Config {
    /// The theses' parameters: `forced`, min 500, max 1500, timeout 5 ms (KAU).
    pub fn forced() -> Self {
        Config { policy: Policy::Forced, ..Config::default() }
    }

    /// Bytes that a queue must have to leave early, when its frames have at most `max`.
    pub fn least(&self, max: u16) -> u32 {
        self.min.of(max).min(max.into())
    }

    /// Largest frame that a packet with `mark` may be in, to a next hop that takes `max` bytes.
    /// With [`Config::by_mark`] that is in bits 2 to 17 of the mark, as Karlstad's `max 0` has it.
    /// 0 there says nothing, and no mark makes a frame larger than the next hop takes.
    pub fn largest(&self, max: u16, mark: u32) -> u16 {
        match (mark >> SIZE_SHIFT) as u16 {
            size if self.by_mark && size != 0 => size.min(max),
            _ => max,
        }
    }

    /// The longest that a packet waits while the device takes frames.
    pub fn longest_wait(&self) -> Duration {
        match self.policy {
            Policy::Forced => self.timeout,
            Policy::Busy => self.hold,
        }
    }

    /// Checks that the parameters make sense together.
    pub fn check(&self) -> Result<(), ConfigError> {
        let max = self.max;
        if !(meta::MIN_MAX_LEN..=meta::MAX_LEN).contains(&usize::from(max)) {
            return Err(ConfigError::Max { max });
        }
        match self.min {
            Threshold::Percent(percent) if percent > 100 => {
                return Err(ConfigError::Percent { percent });
            }
            min if min.of(max) > u32::from(max) => {
                return Err(ConfigError::MinAboveMax { min: min.of(max), max });
            }
            _ => {}
        }
        if self.timeout > self.hold {
            return Err(ConfigError::TimeoutAboveHold { timeout: self.timeout, hold: self.hold });
        }
        if self.hold.is_zero() {
            return Err(ConfigError::NoHold);
        }
        if self.queue_frames == 0 || self.total_frames < self.queue_frames {
            return Err(ConfigError::Limits);
        }
        Ok(())
    }
}

/// Parameters that cannot work, each with its remedy.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// `max` out of range.
    #[error("max {max} is out of range; give 100 to 2048 bytes")]
    Max {
        /// Bytes asked for.
        max: u16,
    },
    /// `min` above `max`: no queue would ever leave by size.
    #[error("min {min} is above max {max}; give a min of at most {max} bytes or a percentage")]
    MinAboveMax {
        /// Bytes asked for.
        min: u32,
        /// Largest meta packet.
        max: u16,
    },
    /// More than 100 %.
    #[error("min {percent}% is above 100%; give 0% to 100% of max")]
    Percent {
        /// Percent asked for.
        percent: u8,
    },
    /// `timeout` above `hold`.
    #[error("timeout {timeout:?} is above hold {hold:?}; raise hold or lower timeout")]
    TimeoutAboveHold {
        /// Timeout asked for.
        timeout: Duration,
        /// Ceiling asked for.
        hold: Duration,
    },
    /// A ceiling of zero.
    #[error("hold 0 would gather nothing; give at least 1us, or do not aggregate")]
    NoHold,
    /// No room for a frame, or less in total than for one queue.
    #[error("the bounds leave no room: at least one frame per queue, and no less in total")]
    Limits,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_bounds_a_frame_by_its_bits_2_to_17_where_they_are_not_zero() {
        let config = Config { by_mark: true, ..Config::default() };
        for (mark, largest) in [
            (0, 1500),
            // The two lowest bits are the classifier's, those above bit 17 somebody else's.
            (3, 1500),
            (0xfffc_0003, 1500),
            (1 << 2, 1),
            (0xfffc_0003 | 700 << 2, 700),
            (1500 << 2, 1500),
            (1501 << 2, 1500),
            (0xffff << 2, 1500),
            (u32::MAX, 1500),
        ] {
            assert_eq!(config.largest(1500, mark), largest, "{mark:#x}");
            assert_eq!(Config::default().largest(1500, mark), 1500, "{mark:#x}");
        }
        assert_eq!(config.largest(0, 700 << 2), 0, "who cannot split gets no frame");
        let share = Config { min: Threshold::Percent(40), ..config };
        assert_eq!((share.least(700), Config::default().least(300)), (280, 300));
    }

    #[test]
    fn parameters_that_cannot_work_are_refused_with_a_remedy() {
        let refused = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert!(refused(|c| c.max = 99).contains("100 to 2048"));
        assert!(refused(|c| c.min = Threshold::Bytes(1501)).contains("at most 1500"));
        assert!(refused(|c| c.min = Threshold::Percent(101)).contains("100%"));
        assert!(refused(|c| c.hold = Duration::from_millis(4)).contains("raise hold"));
        assert!(refused(|c| c.total_frames = 1).contains("room"));
        assert_eq!(Config::default().check(), Ok(()));
        assert_eq!(Config::forced().check(), Ok(()));
    }
}
