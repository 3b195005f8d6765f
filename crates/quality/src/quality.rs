//! The state of one neighbour: samples in, the largest packet out.
//!
//! The estimates join as follows:
//!
//! * The *signal-to-noise ratio*, smoothed, gives a bit error rate by the modulation with which the
//!   neighbour sends, and so an upper bound of the size.
//! * *Losses* lower it further where they grow with the size ([`crate::losses`]). They raise
//!   nothing: a link without traffic has no losses.
//! * A *bit error rate* that a source states bounds it like these. A *size* that a source states
//!   bounds what comes out, without delay: whoever decided on it has considered that.
//!
//! * *Counters of the other direction*, where the caller gives them, raise the ratio where fewer
//!   frames are lost than it says ([`crate::correction`]).
//!
//! Of a bit error rate follows the size that brings most across, as long as no more than
//! [`Config::loss`] of the frames is lost after all attempts of the radio. Where the modulation is
//! not known, it is the largest whose frame error rate keeps [`Config::target`].
//!
//! Error rates of frames rise from nothing to all within two or three decibels, less than single
//! readings of the signal vary. So the size follows no single sample: the loss is judged some
//! standard errors below the smoothed ratio. The standard error follows from how the samples
//! scatter: a driver that reports the mean of many frames is trusted more than one that reports the
//! last. A smoothed ratio lags behind one that falls, and what it lags is taken off, too.
//!
//! A size that errs a little carries nearly as much, but loses much more. So the loss is judged
//! with the whole margin, and the size that carries most with the part above [`LEAST_MARGIN`]. The
//! size shrinks at once when it is larger than would be best on a link that is stronger by
//! [`BAND`]. It grows when it was too small for [`GROW_AFTER`], to the smallest that was best in
//! that time.
//!
//! Direction: signal and modulation belong to what the neighbour sends, the counters to what is
//! sent to it. A radio link is much the same in both directions, but noise is not. Who wants to
//! keep the directions apart has two of these for a neighbour: one for the size that a HELLO asks
//! for, fed with what is received, one for the own frames, fed with counters and with the size that
//! the neighbour asked for.

use crate::correction::Correction;
use crate::losses::Losses;
use crate::modulation::Modulation;
use crate::sample::{Sample, Transmitted};
use crate::size;
use crate::smooth::Smooth;
use sheaf_stage::{Bitrate, Duration, Instant};

/// Noise in a channel of 20 MHz where the driver measures none, in dBm: thermal noise of −101 dBm
/// and a noise figure of 6 dB. Linux's drivers for Atheros cards take the same
/// (`ATH_DEFAULT_NOISE_FLOOR`).
pub const NOISE_DBM: f64 = -95.0;
/// Standard errors of the smoothed ratio that the estimate stays below it.
const MARGIN_ERRORS: f64 = 1.5;
/// The most decibels that the estimate stays below the smoothed ratio: what single readings with a
/// standard deviation of 1.5 dB leave after smoothing with 0.3.
pub const MOST_MARGIN: f64 = 1.0;
/// The least: drivers that report the mean of many frames still report whole decibels.
pub const LEAST_MARGIN: f64 = 0.3;
/// The least decibels around the smoothed ratio within which a size stays as it is, a hundredth of
/// what the link carries; a standard error where that is more.
pub const BAND: f64 = 0.3;
/// Weight of a new sample in the scatter of the readings: ten samples, within which a walk passes
/// from one place to another.
const SCATTER_WEIGHT: f64 = 0.1;
/// Weight of a new sample in the drift: six samples, within which it is noticed that a walker turns
/// away.
const DRIFT_WEIGHT: f64 = 0.15;
/// The most decibels by which a ratio that falls is taken to be below its smoothed value: behind a
/// walker fifty metres away, whose signal falls by 0.4 dB a second.
const MOST_LAG: f64 = 1.0;
/// Scatter that is assumed at first, in square decibels: single readings, as above.
const FIRST_SCATTER: f64 = 2.65;
/// Factor between the bit error rates of the two bounds, where these come from losses or from a
/// source: twice the standard error of the rate that a trial over some hundred frames gives.
const RATE_BAND: f64 = 1.5;
/// Part of a size by which a larger one has to be better than it.
const GROW_BY: u16 = 8;
/// Time for which a link has to be better before the size grows.
pub const GROW_AFTER: Duration = Duration::from_secs(2);
/// A sample that many decibels from the smoothed ratio is an outlier; a second one in a row on the
/// same side is a change, and the smoothing begins anew with the mean of both. More than twice the
/// usual deviation.
const JUMP: f64 = 4.0;
/// Time between HELLOs, in seconds: each second of their ratio counts as one.
const HELLO_SECONDS: f64 = 1.0;

/// Parameters of an estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Frame error rate above which losses are suspected to grow with the size, and which the size
    /// keeps where the modulation is not known; above 0 and below 1.
    pub target: f64,
    /// Share of the frames that may be lost after all attempts, above 0 and below 1.
    pub loss: f64,
    /// Attempts that the radio makes of a frame; at least 1.
    pub attempts: u32,
    /// The smallest size, in bytes of the IP packet.
    pub floor: u16,
    /// The largest size, in bytes of the IP packet.
    pub mtu: u16,
    /// Weight of a new sample of the signal-to-noise ratio, 0..=1.
    pub alpha: f64,
    /// Noise where no source measures it, in dBm.
    pub noise_dbm: f64,
    /// Age above which the last sample is stale: then there is no estimate.
    pub stale: Duration,
}

impl Default for Config {
    /// A target of 10 %; a loss of 3 %, which an error of 0.2 dB makes the 5 % that the rules of
    /// calls grant; the standard's seven attempts, sizes of 100 to 1500 bytes, a weight of 0.3,
    /// [`NOISE_DBM`], and stale after five seconds, in which a neighbour that is silent counts as
    /// gone.
    fn default() -> Config {
        Config {
            target: 0.1,
            loss: 0.03,
            attempts: 7,
            floor: 100,
            mtu: 1500,
            alpha: 0.3,
            noise_dbm: NOISE_DBM,
            stale: Duration::from_secs(5),
        }
    }
}

impl Config {
    /// The best size in bytes at a bit error rate of `rate`, which keeps the loss at `cautious`,
    /// too: a size that is somewhat off carries nearly as much, but doubles what is lost.
    pub fn size(&self, rate: f64, cautious: f64, modulation: Option<Modulation>) -> u16 {
        let Config { target, floor, mtu, .. } = *self;
        let Some(modulation) = modulation else {
            return size::largest(cautious, target, floor, mtu);
        };
        // Of a frame that is lost with probability p, all n attempts are lost with pⁿ.
        let once = libm::pow(self.loss, 1.0 / f64::from(self.attempts.max(1)));
        let most = size::carries_most(rate, modulation, floor, mtu);
        size::largest(cautious, once, floor, mtu).min(most)
    }
}

/// Estimate of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The largest packet, in bytes.
    pub largest: u16,
    /// Signal-to-noise ratio, smoothed, in dB.
    pub snr_db: Option<f64>,
    /// Decibels by which counters correct the ratio.
    pub correction_db: f64,
    /// Modulation for which the ratio was judged.
    pub modulation: Option<Modulation>,
    /// Bit error rate that bounds the size, 0..=1, margins included; 0 where none does.
    pub bit_error_rate: f64,
    /// Share of transmissions that are lost whatever their size, 0..=1: collisions.
    pub constant_loss: f64,
    /// Throughput that the sender's rate control expects.
    pub expected_throughput: Option<Bitrate>,
}

/// The state of one neighbour.
#[derive(Clone, Debug, PartialEq)]
pub struct Quality {
    config: Config,
    /// Time of the last sample.
    sampled: Option<Instant>,
    last: Sample,
    snr: Smooth,
    /// Mean square of the differences between samples and the smoothed ratio, in square decibels.
    scatter: f64,
    /// Mean of these differences, in dB.
    drift: f64,
    correction: Correction,
    /// Decibels between the last sample and the smoothed ratio, where it was an outlier.
    outlier: Option<f64>,
    modulation: Option<Modulation>,
    losses: Losses,
    /// Counters as last seen.
    counters: Option<Transmitted>,
    size: Option<u16>,
    growth: Option<Growth>,
}

/// A larger size that waits.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Growth {
    since: Instant,
    /// The least of the sure bounds since then.
    to: u16,
}

/// Bit error rates of a link and, with the margin, of a worse one.
#[derive(Clone, Copy)]
struct Rates {
    rate: f64,
    cautious: f64,
}

impl Quality {
    /// A neighbour of which nothing is known.
    pub fn new(config: Config) -> Quality {
        Quality {
            config,
            sampled: None,
            last: Sample::default(),
            snr: Smooth::new(config.alpha),
            scatter: FIRST_SCATTER,
            drift: 0.0,
            correction: Correction::default(),
            outlier: None,
            modulation: None,
            losses: Losses::new(config.target, config.mtu),
            counters: None,
            size: None,
            growth: None,
        }
    }

    /// Takes what was measured at `now`; what is older than [`Config::stale`] counts as nothing.
    /// Once a second is enough for sizes that follow within five.
    pub fn sample(&mut self, now: Instant, sample: Sample) {
        if sample.age.is_some_and(|age| age > self.config.stale) {
            return;
        }
        if self.is_stale(now) {
            *self = Quality::new(self.config);
        }
        let periods = self.sampled.map_or(1.0, |last| (now - last).as_secs_f64() / HELLO_SECONDS);
        self.sampled = Some(now);
        if let Some(ratio) = sample.snr_db(self.config.noise_dbm) {
            self.update_snr(ratio);
        }
        self.update_modulation(sample.modulation);
        if let Some(ratio) = sample.hello_ratio.filter(|ratio| (0.0..=1.0).contains(ratio)) {
            self.losses.hello(ratio, periods);
        }
        self.count(now, sample.transmitted);
        self.correct(now, sample.reverse);
        self.last = sample;
        self.resize(now);
    }

    /// The largest packet that the link carries well, in bytes; `None` where nothing recent is
    /// known, so that the configured maximum counts.
    pub fn largest(&self, now: Instant) -> Option<u16> {
        let stated = self.last.largest.unwrap_or(u16::MAX);
        self.size.filter(|_| !self.is_stale(now)).map(|size| size.min(stated))
    }

    /// Estimate of the link; `None` without a recent sample.
    pub fn estimate(&self, now: Instant) -> Option<Estimate> {
        self.largest(now).map(|largest| Estimate {
            largest,
            snr_db: self.snr.value(),
            correction_db: self.correction.decibels(),
            modulation: self.modulation,
            bit_error_rate: self.rates(0.0).cautious,
            constant_loss: self.losses.constant(),
            expected_throughput: self.last.expected_throughput,
        })
    }

    fn is_stale(&self, now: Instant) -> bool {
        self.sampled.is_none_or(|last| now.saturating_since(last) > self.config.stale)
    }

    fn update_snr(&mut self, ratio: f64) {
        let difference = self.snr.value().map_or(0.0, |smoothed| ratio - smoothed);
        if difference.abs() < JUMP {
            self.outlier = None;
            if self.snr.value().is_some() {
                self.scatter += SCATTER_WEIGHT * (difference * difference - self.scatter);
                self.drift += DRIFT_WEIGHT * (difference - self.drift);
            }
            self.snr.update(ratio);
            return;
        }
        match self.outlier.take() {
            Some(before) if before * difference > 0.0 => {
                self.drift = 0.0;
                self.snr.restart(ratio + (before - difference) / 2.0);
                // The bounds since the growth began were those of a ratio that is out of date.
                self.growth = self.growth.map(|growth| Growth { to: u16::MAX, ..growth });
            }
            _ => self.outlier = Some(difference),
        }
    }

    /// Takes a modulation that two samples in a row have: rate control tries others now and then.
    fn update_modulation(&mut self, modulation: Option<Modulation>) {
        if modulation.is_some() && (self.modulation.is_none() || modulation == self.last.modulation)
        {
            self.modulation = modulation;
        }
    }

    fn count(&mut self, now: Instant, counters: Option<Transmitted>) {
        let Some(counters) = counters else { return };
        let before = self.counters.replace(counters);
        let Some(sent) = before.and_then(|before| counters.since(&before)) else { return };
        // Without a frame the retries are those of frames that were counted before.
        let attempts = if sent.frames == 0 { 0.0 } else { sent.attempts() };
        self.losses.sent(now, sent.mean_bits(), attempts, sent.lost());
    }

    fn correct(&mut self, now: Instant, counters: Option<Transmitted>) {
        if let (Some(counters), Some(ratio), Some(modulation)) =
            (counters, self.ratio(), self.modulation)
        {
            let constant = self.losses.constant();
            self.correction.update(now, counters, ratio, modulation, constant);
        }
    }

    /// The smoothed ratio in dB, less by what it lags behind a ratio that falls.
    ///
    /// One that rises is left to lag: sizes grow late anyway, and what is too small loses nothing.
    fn ratio(&self) -> Option<f64> {
        // A sample leaves this part of its difference.
        let lag = (1.0 - self.config.alpha) * self.drift;
        self.snr.value().map(|smoothed| smoothed + lag.clamp(-MOST_LAG, 0.0))
    }

    /// Decibels below the smoothed ratio at which the loss is judged.
    fn margin(&self) -> f64 {
        (MARGIN_ERRORS * self.error()).clamp(LEAST_MARGIN, MOST_MARGIN)
    }

    /// Standard error of the smoothed ratio, in dB.
    fn error(&self) -> f64 {
        // Of white noise the smoothed value has α / 2 of the variance of its differences.
        (self.scatter * self.config.alpha / 2.0).max(0.0).sqrt()
    }

    /// Bit error rates where the smoothed ratio is `decibels` stronger than it is.
    fn rates(&self, decibels: f64) -> Rates {
        let mut rates = Rates { rate: 0.0, cautious: 0.0 };
        if let (Some(ratio), Some(modulation)) = (self.ratio(), self.modulation) {
            let ratio = ratio + self.correction.decibels() + decibels;
            let margin = self.margin();
            // A size that is a decibel too large loses all, one too small carries half: what is
            // uncertain beyond the least is kept from both.
            rates.rate = modulation.bit_error_rate(ratio - (margin - LEAST_MARGIN));
            rates.cautious = modulation.bit_error_rate(ratio - margin);
        }
        // Rates that losses gave, or a source, have no decibels.
        let factor = if decibels < 0.0 { RATE_BAND } else { 1.0 };
        let stated = self.last.bit_error_rate.unwrap_or(0.0);
        // `max` passes over what is not a number.
        let stated = (stated.max(self.losses.bit_error_rate()) * factor).min(1.0);
        Rates { rate: rates.rate.max(stated), cautious: rates.cautious.max(stated) }
    }

    fn resize(&mut self, now: Instant) {
        let band = self.error().clamp(BAND, MOST_MARGIN);
        let [stronger, same, weaker] = [band, 0.0, -band].map(|decibels| self.rates(decibels));
        let of = |rate: Rates, cautious: Rates| {
            self.config.size(rate.rate, cautious.cautious, self.modulation)
        };
        // Rates that only losses gave err more.
        let sure = if self.modulation.is_some() { of(same, same) } else { of(same, weaker) };
        let most = of(stronger, stronger);
        let Some(size) = self.size.filter(|size| *size <= most) else {
            // The first sample, or a size that is too large.
            (self.size, self.growth) = (Some(sure), None);
            return;
        };
        // A size that is all but right stays, unless the largest is right.
        let stays = self.modulation.is_some() && sure < self.config.mtu;
        let least = if stays { sure - sure / GROW_BY } else { sure };
        if least <= size {
            self.growth = None;
            return;
        }
        let waited = self.growth.unwrap_or(Growth { since: now, to: sure });
        let growth = Growth { to: waited.to.min(sure), ..waited };
        let due = now.saturating_since(growth.since) >= GROW_AFTER;
        self.growth = if due { None } else { Some(growth) };
        if due {
            self.size = Some(growth.to);
        }
    }
}
