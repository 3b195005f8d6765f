//! A link: a queue with a rate, then a delay that varies, and losses, single or in bursts.

use rand::{Rng, RngExt};
use sheaf_stage::{Bitrate, Duration, Instant};

/// Properties of both directions of a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkSpec {
    pub mbps: f64,
    pub delay_ms: f64,
    /// The delay is drawn from `delay ± jitter` for each packet, so that packets overtake.
    pub jitter_ms: f64,
    /// Whether packets keep their order in spite of jitter.
    pub ordered: bool,
    /// Share of packets lost on average, and the mean length of a row of losses.
    pub loss: f64,
    pub burst: f64,
    /// Time that the queue holds.
    pub queue_ms: f64,
    /// Its cost as a link of a trunk.
    pub cost_ms: f64,
}

/// A clean link of this rate and one-way delay.
pub const fn link(mbps: f64, delay_ms: f64) -> LinkSpec {
    let (jitter_ms, loss, burst, queue_ms, cost_ms) = (0.0, 0.0, 1.0, 100.0, 0.0);
    LinkSpec { mbps, delay_ms, jitter_ms, ordered: false, loss, burst, queue_ms, cost_ms }
}

impl LinkSpec {
    pub const fn jitter(mut self, ms: f64) -> LinkSpec {
        self.jitter_ms = ms;
        self
    }

    pub const fn ordered(mut self) -> LinkSpec {
        self.ordered = true;
        self
    }

    pub const fn loss(mut self, percent: f64) -> LinkSpec {
        self.loss = percent / 100.0;
        self
    }

    pub const fn cost(mut self, ms: f64) -> LinkSpec {
        self.cost_ms = ms;
        self
    }

    pub const fn burst(mut self, frames: f64) -> LinkSpec {
        self.burst = frames;
        self
    }
}

/// One direction.
#[derive(Clone, Debug)]
pub struct Pipe {
    pub spec: LinkSpec,
    pub up: bool,
    /// Added to the delay.
    pub extra: Duration,
    free_at: Instant,
    last: Instant,
    losing: bool,
    pub dropped: u64,
    pub lost: u64,
    pub sent: u64,
    pub sent_bytes: u64,
}

impl Pipe {
    pub fn new(spec: LinkSpec) -> Pipe {
        Pipe {
            spec,
            up: true,
            extra: Duration::ZERO,
            free_at: Instant::ZERO,
            last: Instant::ZERO,
            losing: false,
            dropped: 0,
            lost: 0,
            sent: 0,
            sent_bytes: 0,
        }
    }

    /// Takes `len` bytes; returns when they arrive, if they do.
    pub fn carry(&mut self, len: usize, now: Instant, random: &mut impl Rng) -> Option<Instant> {
        let spec = self.spec;
        if (self.free_at - now).as_secs_f64() * 1e3 > spec.queue_ms {
            self.dropped += 1;
            return None;
        }
        (self.sent, self.sent_bytes) = (self.sent + 1, self.sent_bytes + len as u64);
        let rate = Bitrate::from_bps((spec.mbps * 1e6) as u64);
        self.free_at = self.free_at.max(now) + rate.time_for(len as u64);
        if self.draw_loss(random) || !self.up {
            self.lost += 1;
            return None;
        }
        let vary = (2.0 * random.random::<f64>() - 1.0) * spec.jitter_ms;
        let delay = Duration::from_secs_f64((spec.delay_ms + vary).max(0.0) / 1e3) + self.extra;
        let mut at = self.free_at + delay;
        if spec.ordered {
            at = at.max(self.last);
        }
        self.last = at;
        Some(at)
    }

    /// Gilbert's model: rows of losses with a geometric length.
    fn draw_loss(&mut self, random: &mut impl Rng) -> bool {
        let LinkSpec { loss, burst, .. } = self.spec;
        if loss == 0.0 {
            return false;
        }
        let leave = 1.0 / burst;
        let enter = loss * leave / (1.0 - loss);
        let chance = if self.losing { 1.0 - leave } else { enter };
        self.losing = random.random::<f64>() < chance;
        self.losing
    }
}
