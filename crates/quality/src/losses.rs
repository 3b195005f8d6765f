//! The part of the losses that grows with the frame.
//!
//! Smaller frames mend bit errors. They do not mend collisions, which hit frames of all sizes:
//! there they only cost air time and make more collisions. A count of losses does not show the
//! cause, so two things are compared that differ in size alone:
//!
//! 1. *Small frames.* HELLOs are short and sent at a robust rate: hardly a bit error hits them. The
//!    share of them that is lost is taken for losses of any size. When data frames lose more, and
//!    the rest exceeds the target, bit errors are suspected.
//! 2. *A trial.* The size is lowered for some seconds. If fewer transmissions are lost then, the
//!    suspicion was right, and the two sizes together give the bit error rate. If not, the size
//!    returns to what it was, and the share counts as losses of any size. After [`SHRINK_WAIT`],
//!    twice as long each time, the same losses may be suspected again, as a trial errs now and
//!    then; more losses may be suspected at once.
//!
//! A bound that is in force ends in two ways. Losses beyond the constant share are an upper bound
//! of bit errors, so without collisions it follows a link that mends within a second of traffic.
//! And when fewer frames are lost than expected, or the bound has stood for [`GROW_WAIT`] (twice as
//! long each time), the full size is tried: losses that do not grow with it end the bound.
//!
//! Losses to hidden stations grow with the time on the air and are mended by smaller frames: they
//! count as bit errors, rightly. Where little is sent nothing is concluded, and nothing is lost by
//! it.
//!
//! Sources: K. Whitehouse and others, "Exploiting the capture effect for collision detection and
//! recovery" (EmNetS 2005), for the two causes of losses; S. Rayanchu and others, "Diagnosing
//! wireless packet losses in 802.11: separating collision from weak signal" (INFOCOM 2008, COLLIE),
//! for why strength of signals tells them apart badly. COLLIE has the receiver return damaged
//! frames. That needs drivers which pass these up; trials need only counters.

use sheaf_stage::{Duration, Instant};

/// Transmissions that are remembered of data frames: their share of losses has a standard error of
/// 1.3 % at the target of 10 %.
const MEMORY: f64 = 500.0;
/// Standard errors between the share of losses in a sample and in what is remembered, above which
/// the link has changed and the memory begins anew.
const CHANGE: f64 = 3.0;
/// Time constant of the memory of data frames, in seconds. Shorter than the
/// five seconds within which a size has to follow.
const DATA_TIME: f64 = 3.0;
/// Time constant of the memory of HELLOs, of which there is one a second: their share has a
/// standard error of 7 %.
const SMALL_TIME: f64 = 20.0;
/// Transmissions below which a share of losses is not judged.
const ENOUGH: f64 = 20.0;
/// Standard errors by which losses exceed the target before they are suspected: one sample in
/// twenty does so by chance.
const SUSPICION: f64 = 1.6;
/// Standard errors by which losses follow the size when a trial proves bit errors.
const PROOF: f64 = 2.5;
/// Standard errors by which losses miss what bit errors predict when a trial disproves them.
const DISPROOF: f64 = 3.0;
/// Standard errors above the share of losses at which it is an upper bound.
const BOUND: f64 = 3.0;
/// The least share of deliveries that is reckoned with: no rate below one explains that all is
/// lost.
const LEAST: f64 = 0.001;
/// Standard errors by which fewer frames are lost than expected before the full size is tried.
const MENDED: f64 = 2.5;
/// Factor between two sizes that are compared.
const CONTRAST: f64 = 1.5;
/// Time after which a trial is judged by what there is: the size has to follow within it.
const TRIAL: Duration = Duration::from_secs(5);
/// Time after which another size has to show in the frames: a sample or two, as sizes shrink at
/// once. Before that nothing is concluded from them either.
const FOLLOW: Duration = Duration::from_secs(2);
/// Time to the next suspicion after one that was wrong; twice as long each time.
pub const SHRINK_WAIT: Duration = Duration::from_secs(10);
/// Time for which a bound stands until the full size is tried; twice as long each time.
pub const GROW_WAIT: Duration = Duration::from_secs(20);
/// The longest time to the next trial.
const LONGEST_WAIT: Duration = Duration::from_secs(160);

/// Transmissions and losses, the older ones with less weight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Tally {
    attempts: f64,
    lost: f64,
    bits: f64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.attempts += other.attempts;
        self.lost += other.lost;
        self.bits += other.bits;
    }

    /// Whether the mean sizes are far enough apart to compare them.
    fn contrasts(&self, other: &Tally) -> bool {
        let (ours, theirs) = (self.mean_bits(), other.mean_bits());
        ours.max(theirs) >= CONTRAST * ours.min(theirs)
    }

    /// Whether the shares lost are that many standard errors apart, of enough transmissions.
    fn differs(&self, other: &Tally, errors: f64) -> bool {
        let enough = self.attempts.min(other.attempts) >= ENOUGH;
        let error = (self.variance() + other.variance()).sqrt();
        enough && (self.share() - other.share()).abs() > errors * error
    }

    fn fade(&mut self, factor: f64) {
        self.attempts *= factor;
        self.lost *= factor;
        self.bits *= factor;
    }

    /// Share that was lost; 0 of nothing.
    fn share(&self) -> f64 {
        if self.attempts > 0.0 { self.lost / self.attempts } else { 0.0 }
    }

    /// Mean bits of a frame; 0 of nothing.
    fn mean_bits(&self) -> f64 {
        if self.attempts > 0.0 { self.bits / self.attempts } else { 0.0 }
    }

    /// Variance of the share. Half a loss and half a delivery are added, so that none lost of a few
    /// does not look certain.
    fn variance(&self) -> f64 {
        let share = (self.lost + 0.5) / (self.attempts + 1.0);
        share * (1.0 - share) / (self.attempts + 1.0)
    }
}

/// Bit error rate that loses `share` of the frames of `bits` bits.
fn bit_error_rate(share: f64, bits: f64) -> f64 {
    -libm::log1p(-share.min(1.0 - LEAST)) / bits.max(1.0)
}

/// Share of the frames lost that a constant share of losses does not explain.
pub(crate) fn rest(share: f64, constant: f64) -> f64 {
    (1.0 - (1.0 - share) / (1.0 - constant.min(1.0 - LEAST))).max(0.0)
}

/// Time of the next trial, and the pause after it, which doubles.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Retry {
    next: Instant,
    wait: Duration,
}

impl Retry {
    fn new(next: Instant, wait: Duration) -> Retry {
        Retry { next, wait }
    }

    fn failed(&mut self, now: Instant) {
        self.next = now + self.wait;
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
    }
}

/// A size that is tried.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Trial {
    since: Instant,
    /// The bit error rate that decides the size meanwhile: of a suspicion the one that explains all
    /// losses, so that the sizes differ well.
    rate: f64,
    /// The bit error rate that is true if the suspicion is, or the bound has to stay.
    high: f64,
    before: Tally,
    after: Tally,
}

/// Estimate of the bit error rate from losses.
#[derive(Clone, Debug, PartialEq)]
pub struct Losses {
    target: f64,
    /// Bit error rates below leave the largest size.
    negligible: f64,
    data: Tally,
    small: Tally,
    updated: Instant,
    /// Share of losses that no size mends, by the last trial.
    constant: f64,
    rate: f64,
    trial: Option<Trial>,
    /// Time of the last verdict.
    settled: Instant,
    shrink: Retry,
    grow: Retry,
}

impl Losses {
    /// An estimate without losses. `target` is the frame error rate (0..1) above which losses are
    /// suspected, `mtu` the largest packet in bytes.
    pub fn new(target: f64, mtu: u16) -> Losses {
        Losses {
            target,
            negligible: bit_error_rate(target, crate::size::bits(mtu)),
            data: Tally::default(),
            small: Tally::default(),
            updated: Instant::ZERO,
            constant: 0.0,
            rate: 0.0,
            trial: None,
            settled: Instant::ZERO,
            shrink: Retry::new(Instant::ZERO, SHRINK_WAIT),
            grow: Retry::new(Instant::ZERO, GROW_WAIT),
        }
    }

    /// The bit error rate by which losses bound the size; 0 where they do not bound it.
    pub fn bit_error_rate(&self) -> f64 {
        self.trial.map_or(self.rate, |trial| trial.rate)
    }

    /// Share of transmissions that are lost whatever their size, 0..=1.
    pub fn constant(&self) -> f64 {
        self.constant.max(self.small_share())
    }

    /// Share of HELLOs lost, a standard error less, as they are few: a suspicion too many costs one
    /// trial, one too few leaves the losses.
    fn small_share(&self) -> f64 {
        (self.small.share() - self.small.variance().sqrt()).max(0.0)
    }

    /// Adds the share of HELLOs that arrived, 0..=1, over the last `periods` of them.
    pub fn hello(&mut self, ratio: f64, periods: f64) {
        self.small.fade(libm::exp(-periods / SMALL_TIME));
        // The size of HELLOs does not matter here.
        let lost = periods * (1.0 - ratio);
        self.small.add(&Tally { attempts: periods, lost, bits: 0.0 });
    }

    /// Adds `attempts` transmissions of frames of `bits` bits in the mean, of which `lost` were not
    /// acknowledged, and draws conclusions.
    pub fn sent(&mut self, now: Instant, bits: f64, attempts: f64, lost: f64) {
        let seconds = now.saturating_since(self.updated).as_secs_f64();
        self.updated = now;
        // What is remembered makes room for what is new, so that the memory is short on a busy
        // link.
        let room = ((MEMORY - attempts) / self.data.attempts.max(1.0)).clamp(0.0, 1.0);
        self.data.fade(room.min(libm::exp(-seconds / DATA_TIME)));
        if attempts > 0.0 {
            let new = Tally { attempts, lost: lost.clamp(0.0, attempts), bits: attempts * bits };
            // Shares of losses belong to one size and one state of the link.
            if new.contrasts(&self.data) || new.differs(&self.data, CHANGE) {
                self.data = Tally::default();
            }
            self.data.add(&new);
            if let Some(trial) = &mut self.trial {
                // Frames of before the size followed are not part of the trial.
                if new.contrasts(&trial.before) {
                    trial.after.add(&new);
                }
            }
        }
        match self.trial {
            Some(trial) => self.judge(now, &trial),
            None => self.consider(now),
        }
    }

    /// Begins a trial where losses suggest one.
    fn consider(&mut self, now: Instant) {
        let (share, bits) = (self.data.share(), self.data.mean_bits());
        let error = self.data.variance().sqrt();
        let enough = self.data.attempts >= ENOUGH;
        if enough {
            // No more can be lost whatever the size than is lost in all.
            self.constant = self.constant.min(share + error);
            self.bound(rest(share + BOUND * error, self.constant));
            let suspect = |constant: f64| {
                let certain = rest(share - SUSPICION * error, constant) > self.target;
                Some(bit_error_rate(rest(share, constant), bits))
                    .filter(|rate| certain && *rate > self.rate)
            };
            // The last verdict may have been wrong: after a while it does not count any more,
            // unless a bound is in force that came from it.
            let again = self.rate == 0.0 && now >= self.shrink.next;
            let anew = again.then(|| suspect(self.small_share())).flatten();
            if let Some(rate) = anew.or_else(|| suspect(self.constant())) {
                let all = bit_error_rate(share, bits);
                return self.begin(now, all.max(rate), rate);
            }
        }
        let expected = 1.0 - (1.0 - self.constant) * libm::exp(-self.rate * bits);
        let mended = enough && share + MENDED * error < expected && now >= self.settled + FOLLOW;
        if self.rate > 0.0 && (mended || now >= self.grow.next) {
            self.begin(now, 0.0, self.rate);
        }
    }

    /// Lowers the bit error rate to what explains `share` as bit errors alone.
    fn bound(&mut self, share: f64) {
        self.rate = self.rate.min(bit_error_rate(share, self.data.mean_bits()));
        if self.rate < self.negligible {
            self.rate = 0.0;
        }
    }

    fn begin(&mut self, now: Instant, rate: f64, high: f64) {
        let after = Tally::default();
        self.trial = Some(Trial { since: now, rate, high, before: self.data, after });
    }

    /// Ends a trial whose outcome is clear, or that lasted for too long.
    fn judge(&mut self, now: Instant, trial: &Trial) {
        let Trial { before, after, .. } = trial;
        let shrunk = trial.rate > self.rate;
        let delivered = (1.0 - before.share()).max(LEAST);
        let difference = after.mean_bits() - before.mean_bits();
        let share_at = |rate: f64| 1.0 - delivered * libm::exp(-rate * difference);
        let (high, low) = (trial.high, trial.rate.min(self.rate));
        let (of_high, of_low) = (share_at(high), share_at(low));
        let error = (before.variance() + after.variance()).sqrt();
        let enough = after.attempts >= ENOUGH;
        let towards = (after.share() - of_low) * (of_high - of_low).signum();
        let bit_errors = enough && towards >= PROOF * error;
        let constant = enough && (of_high - after.share()).abs() >= DISPROOF * error;
        // Frames that are not full, or as small as may be, do not follow: nothing can be learned.
        let follows = after.attempts > 0.0 || !shrunk || now < trial.since + FOLLOW;
        if follows && !bit_errors && !constant && now < trial.since + TRIAL {
            return;
        }
        self.trial = None;
        self.settled = now;
        self.rate = if bit_errors {
            // Both sizes together.
            let ratio = delivered / (1.0 - after.share()).max(LEAST);
            (libm::log(ratio) / difference).clamp(low, 2.0 * high)
        } else {
            low
        };
        // The deliveries before the trial, without the bit errors that are known now.
        let constant = 1.0 - delivered * libm::exp(self.rate * before.mean_bits());
        self.constant = constant.clamp(0.0, 1.0);
        match (shrunk, bit_errors) {
            (true, true) => {
                self.shrink = Retry::new(now, SHRINK_WAIT);
                self.grow = Retry::new(now + GROW_WAIT, GROW_WAIT);
            }
            (true, false) => self.shrink.failed(now),
            (false, true) => self.grow.failed(now),
            (false, false) => {}
        }
    }
}
