//! Restraint on a shared channel: after a frame that waited long for the channel, the station
//! leaves it to others for a while, unless it has a full frame.
//!
//! Stations that contend by DCF get equal numbers of frames. Those with little to say would fill
//! the channel with small frames, while a router that carries everybody's packets needs it most.
//! The excess of a frame's service time over the quickest one is what contention cost; resting a
//! multiple of it makes frames grow with the load, and vanishes on an idle channel.

use sheaf_stage::{Duration, Instant};

/// How long the device takes for its frames, and until when it leaves the channel to others.
#[derive(Clone, Copy, Debug)]
pub struct Rest {
    /// Since when the device works on its present frame.
    started: Instant,
    /// The quickest service. Creeps towards what is seen, so that a link that turned slow does
    /// not rest for ever.
    quickest: Duration,
    until: Instant,
}

impl Default for Rest {
    fn default() -> Self {
        Rest { started: Instant::ZERO, quickest: Duration::MAX, until: Instant::ZERO }
    }
}

impl Rest {
    /// How slowly the quickest service follows slower ones: 1/1024 of the difference a frame.
    const CREEP: u32 = 1024;

    /// An idle device was given a frame at `now`.
    pub fn began(&mut self, now: Instant) {
        self.started = self.started.max(now);
    }

    /// Until when only full frames leave.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// The device has finished with a frame at `now`; `share` times the excess is the rest.
    pub fn finished(&mut self, share: u32, now: Instant) {
        let took = now - self.started;
        self.started = now;
        if took < self.quickest {
            self.quickest = took;
        }
        let excess = took - self.quickest;
        self.quickest += excess / Rest::CREEP;
        self.until = now + excess * share;
    }
}
