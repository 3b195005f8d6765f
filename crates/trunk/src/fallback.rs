//! Never worse than the best single link: measured while running.
//!
//! Principle: once a second the bytes delivered by all links are compared with the rate of the best
//! of them. If for two seconds they are less, and hosts see losses or disorder (the receiver gives
//! frames up, or they come too late), then perhaps the other links spoil what the best alone would
//! carry: TCP takes both for congestion. Losses that were repaired in time spoil nothing, and a
//! host that asks for no more is not slowed down. So the best link carries everything for two
//! seconds. If more is delivered in the second of them than before, it stays so for a while, and
//! all are tried again then; if not, all are used again immediately, and the next trial waits
//! longer. A link that is left out meanwhile, for its loss or as it is down, ends trial and result:
//! perhaps it was the one that spoilt the others.

use crate::link::Link;
use sheaf_stage::{Duration, Instant};

/// Time over which delivered bytes are compared: long against a round trip and the steps of TCP.
const EPOCH: Duration = Duration::from_secs(1);
/// Time for which the first result of a trial is valid; it doubles with each trial up to the most.
const VALID: Duration = Duration::from_secs(10);
const VALID_MOST: Duration = Duration::from_secs(300);
/// Share of frames that hosts see as lost or late, one in this many, above which a trial is worth
/// it: fewer do not explain that the trunk is slower than its best link.
const SPOILT: u64 = 1_000;
/// Bytes of a frame, to count frames by.
const FRAME: u64 = 1_500;
/// A result is better or worse by more than one part in this many: less is chance.
const MARGIN: u64 = 32;
/// The links are compared only while they carry at least one part in this many of the best one's
/// rate: else the application asks for no more.
const DEMAND: u64 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// All links; no trial before `until`. `low`: bytes delivered in the second before, if these
    /// were too few.
    All { until: Instant, low: Option<u64> },
    /// One link for `epochs` epochs so far, to be compared with `before` bytes a second.
    Trial { link: usize, before: u64, epochs: u32 },
    /// One link, until all are tried again.
    Only { link: usize, until: Instant },
}

/// Decides when to fall back to the best single link.
#[derive(Clone, Debug)]
pub(crate) struct Fallback {
    mode: Mode,
    valid: Duration,
    epoch: Option<Epoch>,
    /// Links that were up and not left out for their loss when last looked at, as bits.
    good: u16,
}

#[derive(Clone, Copy, Debug)]
struct Epoch {
    started: Instant,
    delivered: u64,
    /// Frames that the receiver gave up or that came too late.
    spoilt: u32,
}

impl Fallback {
    pub fn new() -> Self {
        let mode = Mode::All { until: Instant::ZERO, low: None };
        Fallback { mode, valid: VALID, epoch: None, good: 0 }
    }

    /// The link that carries everything.
    pub fn only(&self) -> Option<usize> {
        match self.mode {
            Mode::All { .. } => None,
            Mode::Trial { link, .. } | Mode::Only { link, .. } => Some(link),
        }
    }

    /// Takes note of the links after a report; returns whether the choice of links changed.
    pub fn update(&mut self, links: &[Option<Link>], spoilt: u32, now: Instant) -> bool {
        let good = links.iter().enumerate().filter(|(_, link)| link.as_ref().is_some_and(is_good));
        let good = good.fold(0, |bits, (index, _)| bits | 1 << index);
        let left_out = std::mem::replace(&mut self.good, good) & !good;
        if left_out != 0 && self.only().is_some() {
            self.mode = Mode::All { until: now + EPOCH, low: None };
            return true;
        }
        let delivered: u64 = links.iter().flatten().map(|link| link.delivered).sum();
        let Some(epoch) = self.epoch.filter(|epoch| now - epoch.started < 2 * EPOCH) else {
            self.epoch = Some(Epoch { started: now, delivered, spoilt });
            return false;
        };
        let elapsed = now - epoch.started;
        if elapsed < EPOCH {
            return false;
        }
        self.epoch = Some(Epoch { started: now, delivered, spoilt });
        let seconds = elapsed.as_secs_f64();
        let delivered = delivered.saturating_sub(epoch.delivered);
        let rate = (delivered as f64 / seconds) as u64;
        let frames = delivered / FRAME;
        let spoilt = u64::from(spoilt.wrapping_sub(epoch.spoilt)) * SPOILT > frames;
        let before = self.only();
        self.judge(links, rate, spoilt, now);
        before != self.only()
    }

    fn judge(&mut self, links: &[Option<Link>], rate: u64, spoilt: bool, now: Instant) {
        match self.mode {
            Mode::All { until, low } => {
                let best = worth_a_trial(links, rate, spoilt).filter(|_| now >= until);
                self.mode = match (best, low) {
                    (Some(link), Some(low)) => {
                        Mode::Trial { link, before: rate.max(low), epochs: 0 }
                    }
                    (best, _) => Mode::All { until, low: best.map(|_| rate) },
                };
            }
            Mode::Trial { link, before, epochs: 0 } => {
                self.mode = Mode::Trial { link, before, epochs: 1 };
            }
            Mode::Trial { link, before, .. } => {
                let until = now + self.valid;
                let better = rate > before + before / MARGIN;
                self.mode = if better {
                    Mode::Only { link, until }
                } else {
                    Mode::All { until, low: None }
                };
                self.valid = (2 * self.valid).min(VALID_MOST);
            }
            Mode::Only { link, until } => {
                let up = links.get(link).and_then(Option::as_ref).is_some_and(|link| link.up);
                if now >= until || !up {
                    self.mode = Mode::All { until: now + EPOCH, low: None };
                }
            }
        }
    }
}

/// The best link, if all together deliver less than it would alone and something explains it.
fn worth_a_trial(links: &[Option<Link>], rate: u64, spoilt: bool) -> Option<usize> {
    let up = || {
        let links = links.iter().enumerate().filter_map(|(i, link)| Some((i, link.as_ref()?)));
        links.filter(|(_, link)| is_good(link) && !link.config.is_paid())
    };
    let goodput = |link: &Link| (link.rate.rate().as_bps() as f64 * (1.0 - link.loss())) as u64 / 8;
    let (best, link) = up().max_by_key(|(_, link)| goodput(link))?;
    let demanded = rate > goodput(link) / DEMAND;
    (spoilt && demanded && rate < goodput(link) / MARGIN * (MARGIN - 1) && up().count() > 1)
        .then_some(best)
}

/// Whether a link takes packets as far as its loss goes.
fn is_good(link: &Link) -> bool {
    link.up && !link.lossy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkConfig;
    use sheaf_stage::Bitrate;

    #[test]
    fn a_link_that_is_left_out_meanwhile_ends_the_trial_of_another() {
        let link = || {
            let mut link = Link::new(LinkConfig::default(), Bitrate::from_mbps(5));
            link.up = true;
            Some(link)
        };
        let mut links = [link(), link(), link()];
        let mut fallback = Fallback::new();
        fallback.update(&links, 0, Instant::ZERO);
        fallback.mode = Mode::Only { link: 2, until: Instant::from_millis(10_000) };
        assert!(!fallback.update(&links, 0, Instant::from_millis(500)));
        assert_eq!(fallback.only(), Some(2));
        links[0].as_mut().unwrap().lossy = true;
        assert!(fallback.update(&links, 0, Instant::from_millis(600)));
        assert_eq!(fallback.only(), None, "the other two may add up now");
    }
}
