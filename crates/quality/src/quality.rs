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
//! Error rates of frames rise from nothing to all within two or three decibels, less than the
//! signal varies from sample to sample. So the size follows no single sample: it has a safe bound
//! [`MARGIN`] below the smoothed ratio, and a sure one [`BAND`] further down. A size above the safe
//! bound shrinks to the sure one at once. One below the sure bound grows to it when the bound has
//! lain above it for [`GROW_AFTER`]. Between the two bounds it stays.
//!
//! Direction: signal and modulation belong to what the neighbour sends, the counters to what is
//! sent to it. A radio link is much the same in both directions, but noise is not. Who wants to
//! keep the directions apart has two of these for a neighbour: one for the size that a HELLO asks
//! for, fed with what is received, one for the own frames, fed with counters and with the size that
//! the neighbour asked for.

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
/// Decibels that the estimate stays below the smoothed ratio: 1.5 standard deviations of what is
/// left, after smoothing with 0.3, of noise with a standard deviation of 1.5 dB; it also covers the
/// lag behind a walker, 0.4 dB a second fifty metres away.
pub const MARGIN: f64 = 1.0;
/// Decibels between the bound above which a size shrinks and the one below which it grows.
pub const BAND: f64 = 1.0;
/// Factor between the bit error rates of the two bounds, where these come from losses or from a
/// source: twice the standard error of the rate that a trial over some hundred frames gives.
const RATE_BAND: f64 = 1.5;
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
    /// Frame error rate that the size keeps, above 0 and below 1.
    pub target: f64,
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
    /// A target of 10 %, sizes of 100 to 1500 bytes, a weight of 0.3, [`NOISE_DBM`], and stale
    /// after five seconds, in which a neighbour that is silent counts as gone.
    fn default() -> Config {
        Config {
            target: 0.1,
            floor: 100,
            mtu: 1500,
            alpha: 0.3,
            noise_dbm: NOISE_DBM,
            stale: Duration::from_secs(5),
        }
    }
}

/// Estimate of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The largest packet, in bytes.
    pub largest: u16,
    /// Signal-to-noise ratio, smoothed, in dB.
    pub snr_db: Option<f64>,
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

/// Bit error rates of the bounds.
struct Rates {
    safe: f64,
    sure: f64,
}

impl Quality {
    /// A neighbour of which nothing is known.
    pub fn new(config: Config) -> Quality {
        Quality {
            config,
            sampled: None,
            last: Sample::default(),
            snr: Smooth::new(config.alpha),
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
            modulation: self.modulation,
            bit_error_rate: self.rates().safe,
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
            self.snr.update(ratio);
            return;
        }
        match self.outlier.take() {
            Some(before) if before * difference > 0.0 => {
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
        let attempts = f64::from(sent.frames) + f64::from(sent.retries);
        let lost = f64::from(sent.retries) + f64::from(sent.failed);
        let bits = 8.0 * sent.bytes as f64 / f64::from(sent.frames.max(1));
        // Without a frame the retries are those of frames that were counted before.
        let attempts = if sent.frames == 0 { 0.0 } else { attempts };
        self.losses.sent(now, bits, attempts, lost);
    }

    fn rates(&self) -> Rates {
        let mut rates = Rates { safe: 0.0, sure: 0.0 };
        if let (Some(ratio), Some(modulation)) = (self.snr.value(), self.modulation) {
            rates.safe = modulation.bit_error_rate(ratio - MARGIN);
            rates.sure = modulation.bit_error_rate(ratio - MARGIN - BAND);
        }
        let stated = self.last.bit_error_rate.unwrap_or(0.0);
        // `max` passes over what is not a number.
        let stated = stated.max(self.losses.bit_error_rate()).min(1.0);
        Rates { safe: rates.safe.max(stated), sure: rates.sure.max(stated * RATE_BAND) }
    }

    fn resize(&mut self, now: Instant) {
        let Config { target, floor, mtu, .. } = self.config;
        let rates = self.rates();
        let safe = size::largest(rates.safe, target, floor, mtu);
        let sure = size::largest(rates.sure, target, floor, mtu);
        let Some(size) = self.size.filter(|size| *size <= safe) else {
            // The first sample, or a size that is too large.
            (self.size, self.growth) = (Some(sure), None);
            return;
        };
        if sure <= size {
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
