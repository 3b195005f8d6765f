//! Frames, their receivers, and their outcome.

use crate::config::MAX_RADIOS;
use sheaf_stage::{DropReason, Duration, Instant};

/// A radio, by its place in [`Config::radios`](crate::config::Config::radios).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RadioId(pub u32);

/// The destination of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// One radio, which acknowledges.
    Radio(RadioId),
    /// All that hear it, at the lowest basic rate, without acknowledgement.
    Broadcast,
}

/// A frame to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<P> {
    /// Radio whose transmit queue it enters.
    pub from: RadioId,
    /// Destination.
    pub to: To,
    /// Bytes of the IP packet in it.
    pub bytes: u32,
    /// Content.
    pub payload: P,
}

/// A set of radios.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receivers(pub(crate) [u64; MAX_RADIOS / 64]);

impl Receivers {
    pub(crate) fn insert(&mut self, radio: usize) {
        self.0[radio / 64] |= 1 << (radio % 64);
    }

    /// The radios, in order.
    pub fn iter(self) -> impl Iterator<Item = RadioId> {
        let (mut words, mut place) = (self.0, 0);
        std::iter::from_fn(move || {
            while let Some(word) = words.get_mut(place) {
                if *word != 0 {
                    let bit = word.trailing_zeros();
                    *word &= *word - 1;
                    return Some(RadioId(place as u32 * 64 + bit));
                }
                place += 1;
            }
            None
        })
    }

    pub(crate) fn indices(self) -> impl Iterator<Item = usize> {
        self.iter().map(|radio| radio.0 as usize)
    }
}

/// The end of a frame: delivered or lost. One for every frame that entered a transmit queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmission<P> {
    /// The frame.
    pub frame: Frame<P>,
    /// Radios that received it.
    pub receivers: Receivers,
    /// Success when a radio that it was meant for received it, or the reason why none did.
    pub result: Result<(), DropReason>,
    /// Start of its first attempt.
    pub started: Instant,
    /// Time at which the radio was done with it, acknowledgement included, and with earlier frames
    /// to the same radio.
    pub ended: Instant,
    /// Attempts beyond the first.
    pub retries: u32,
}

/// Counters of one radio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RadioStats {
    /// Data frames put on the air, repetitions included.
    pub attempts: u64,
    /// Attempts beyond the first.
    pub retries: u64,
    /// Transmissions that carried them; an A-MPDU is one.
    pub transmissions: u64,
    /// Transmissions of data, or requests to send, that others spoilt at a radio they were meant
    /// for and that could have read them.
    pub collisions: u64,
    /// Frames given up.
    pub lost: u64,
    /// Frames refused by a full transmit queue.
    pub queue_drops: u64,
    /// Time on the air, responses included.
    pub air_time: Duration,
}
