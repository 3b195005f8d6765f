//! The contention state of one station (IEEE 802.11-2020, 10.3.4: the DCF access procedure).

use crate::phy::Timing;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_stage::{Duration, Instant};

/// State of the station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing to send, or counting down.
    Contending,
    /// On the air with a frame of its own exchange.
    Sending,
    /// Waiting for an acknowledgement or a clear-to-send.
    Awaiting,
}

/// Contention state: the transmissions that the station senses, and its back-off.
#[derive(Clone, Debug)]
pub(crate) struct Station {
    pub phase: Phase,
    /// Slots left to count down. `None`: no back-off is due, and an idle channel is free at once.
    pub slots: Option<u32>,
    pub cw: u32,
    /// Transmissions sensed now.
    pub sensed: u32,
    /// Its own transmission (also of a response) is on the air.
    pub on_air: bool,
    /// Time since which the channel is idle; `None` while it is busy.
    pub idle_since: Instant,
    /// Time until which others have reserved the channel (NAV).
    pub reserved_until: Instant,
    /// Time until which a response is or was waited for: no back-off ends before.
    pub not_before: Instant,
    /// The last frame sensed could not be read.
    pub garbled: bool,
    /// The transmission that it receives, and whether that is still undamaged.
    pub reading: Option<(u32, bool)>,
    /// Makes expiries and timeouts of an earlier state void.
    pub token: u32,
}

impl Station {
    pub fn new(timing: &Timing) -> Station {
        Station {
            phase: Phase::Contending,
            slots: None,
            cw: timing.cw_min,
            sensed: 0,
            on_air: false,
            idle_since: Instant::ZERO,
            reserved_until: Instant::ZERO,
            not_before: Instant::ZERO,
            garbled: false,
            reading: None,
            token: 0,
        }
    }

    /// Whether its own antenna senses the channel busy, itself included.
    pub fn is_busy(&self) -> bool {
        self.sensed > 0 || self.on_air
    }

    /// Start of the count-down of slots, on an idle channel.
    fn countdown_start(&self, timing: &Timing) -> Instant {
        let space = if self.garbled { timing.eifs } else { timing.difs };
        (self.idle_since.max(self.reserved_until) + space).max(self.not_before)
    }

    /// Time at which it may send if the channel stays idle; never before `now`.
    pub fn expiry(&self, timing: &Timing, now: Instant) -> Instant {
        let slots = timing.slot * u64::from(self.slots.unwrap_or(0));
        (self.countdown_start(timing) + Duration::from_nanos(slots)).max(now)
    }

    /// The channel turned busy at `now` during the count-down: keeps the slots left. A frame
    /// that wanted to leave and found the channel busy must back off.
    pub fn freeze(
        &mut self,
        timing: &Timing,
        now: Instant,
        wants: bool,
        rng: &mut Xoshiro256PlusPlus,
    ) {
        match self.slots {
            Some(slots) => {
                let start = self.countdown_start(timing);
                let counted = now.as_nanos().saturating_sub(start.as_nanos());
                self.slots = Some(slots.saturating_sub((counted / timing.slot) as u32));
            }
            None if wants => self.draw(rng),
            None => {}
        }
    }

    /// Draws a back-off from the contention window.
    pub fn draw(&mut self, rng: &mut Xoshiro256PlusPlus) {
        self.slots = Some(rng.random_range(0..=self.cw));
    }

    /// An attempt failed: doubles the window and backs off.
    pub fn failed(&mut self, cw_max: u32, rng: &mut Xoshiro256PlusPlus) {
        self.cw = (2 * self.cw + 1).min(cw_max);
        self.draw(rng);
    }

    /// The exchange is over, with success or without: the next frame starts anew, after a back-off.
    pub fn renew(&mut self, timing: &Timing, rng: &mut Xoshiro256PlusPlus) {
        self.cw = timing.cw_min;
        self.draw(rng);
    }

    /// Reserves the channel for `duration` from `now`, where that is longer than it is.
    pub fn reserve(&mut self, now: Instant, duration: Duration) {
        self.reserved_until = self.reserved_until.max(now + duration);
    }
}
