//! Never worse than the best single link: measured while running.
//!
//! Principle: once a second the bytes delivered by all links are held against what the best of
//! them was found to carry. If they are less, although packets are lost elsewhere or come too
//! late, and if so for two seconds, then perhaps the other links spoil what the best alone would do (TCP takes loss and
//! disorder for congestion). So the best link carries everything for two seconds. If more is
//! delivered in the second of them than before, it stays so for a while, and all are tried again
//! then; if not, all are used again at once, and the next trial waits longer.

use crate::link::Link;
use sheaf_stage::{Duration, Instant};

const EPOCH: Duration = Duration::from_secs(1);
/// The first time that a finding stands; doubles each time it is found again.
const STANDS: Duration = Duration::from_secs(10);
const STANDS_MAX: Duration = Duration::from_secs(300);
/// Loss beside the best link that makes it worth a trial.
const LOSS: f64 = 0.003;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// All links; no trial before this. `low`: what was delivered in the second before, if that
    /// was too little.
    All { until: Instant, low: Option<u64> },
    /// One link since some epochs, to be held against `before` bytes a second.
    Trial { link: usize, before: u64, epochs: u32 },
    /// One link, until all are tried again.
    Only { link: usize, until: Instant },
}

/// Whether one link carries everything.
#[derive(Clone, Debug)]
pub(crate) struct Fallback {
    mode: Mode,
    stands: Duration,
    epoch: Option<Epoch>,
}

#[derive(Clone, Copy, Debug)]
struct Epoch {
    started: Instant,
    delivered: u64,
    late: u32,
}

impl Fallback {
    pub fn new() -> Self {
        let mode = Mode::All { until: Instant::ZERO, low: None };
        Fallback { mode, stands: STANDS, epoch: None }
    }

    /// The link that carries everything.
    pub fn only(&self) -> Option<usize> {
        match self.mode {
            Mode::All { .. } => None,
            Mode::Trial { link, .. } | Mode::Only { link, .. } => Some(link),
        }
    }

    /// Looks at the links after a report; answers whether what carries changed.
    pub fn look(&mut self, links: &[Option<Link>], late: u32, now: Instant) -> bool {
        let delivered: u64 = links.iter().flatten().map(|link| link.delivered).sum();
        let Some(epoch) = self.epoch.filter(|epoch| now - epoch.started < 2 * EPOCH) else {
            self.epoch = Some(Epoch { started: now, delivered, late });
            return false;
        };
        let elapsed = now - epoch.started;
        if elapsed < EPOCH {
            return false;
        }
        self.epoch = Some(Epoch { started: now, delivered, late });
        let seconds = elapsed.as_secs_f64();
        let rate = (delivered.saturating_sub(epoch.delivered) as f64 / seconds) as u64;
        let before = self.only();
        self.judge(links, rate, late != epoch.late, now);
        before != self.only()
    }

    fn judge(&mut self, links: &[Option<Link>], rate: u64, late: bool, now: Instant) {
        match self.mode {
            Mode::All { until, low } => {
                let best = worth_a_trial(links, rate, late).filter(|_| now >= until);
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
                let until = now + self.stands;
                let better = rate > before + before / 32;
                self.mode = if better {
                    Mode::Only { link, until }
                } else {
                    Mode::All { until, low: None }
                };
                self.stands = (2 * self.stands).min(STANDS_MAX);
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
fn worth_a_trial(links: &[Option<Link>], rate: u64, late: bool) -> Option<usize> {
    let up = || {
        let links = links.iter().enumerate().filter_map(|(i, link)| Some((i, link.as_ref()?)));
        links.filter(|(_, link)| link.up && !link.lossy)
    };
    let goodput = |link: &Link| (link.rate.rate().as_bps() as f64 * (1.0 - link.loss())) as u64 / 8;
    let (best, link) = up().max_by_key(|(_, link)| goodput(link))?;
    let spoilt = late || up().any(|(index, other)| index != best && other.loss() > LOSS);
    let demanded = rate > goodput(link) / 20;
    (spoilt && demanded && rate < goodput(link) / 32 * 31 && up().count() > 1).then_some(best)
}
