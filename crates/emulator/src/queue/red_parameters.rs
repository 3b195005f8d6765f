//! RED as tc-red(8) has it: parameters that are left out follow from the others.
//!
//! max is a quarter of limit, min a third of max, burst (2 · min + max) / (3 · avpkt), probability
//! 0.02; bandwidth is the link's rate, or 10 Mbit/s.

use super::red::RedCurve;
use crate::error::ConfigError;
use sheaf_stage::Bitrate;

/// The chance at `max` where none is given, as in tc.
const PROBABILITY: f64 = 0.02;
/// The bandwidth of a link without a rate, as in tc.
const BANDWIDTH: Bitrate = Bitrate::from_mbps(10);

/// The parameters of one RED curve.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RedParameters {
    /// Bytes that the queue holds.
    pub limit: u64,
    /// Bytes of a packet on average.
    pub mean_packet: u64,
    /// Bytes from which packets are dropped.
    pub min: Option<u64>,
    /// Bytes from which all packets are dropped.
    pub max: Option<u64>,
    /// Packets that may come at once into an empty queue without a drop.
    pub burst: Option<u64>,
    /// The chance at `max`.
    pub probability: Option<f64>,
    /// The rate by which an idle queue is reckoned.
    pub bandwidth: Option<Bitrate>,
    /// Whether the chance follows the load.
    pub adaptive: bool,
    /// Whether the chance rises to 1 at twice `max`.
    pub gentle: bool,
}

impl RedParameters {
    /// Returns the curve and its limit in bytes, for a link of this rate.
    ///
    /// # Errors
    /// Bounds in the wrong order, or a burst that is too small for `min`.
    pub fn curve(&self, rate: Option<Bitrate>) -> Result<(RedCurve, u64), ConfigError> {
        let (limit, mean_packet) = (self.limit, self.mean_packet);
        if mean_packet == 0 {
            return Err(ConfigError::Zero { option: "avpkt" });
        }
        let max = self.max.unwrap_or(limit / 4);
        let min = self.min.unwrap_or(max / 3);
        if min >= max {
            return Err(ConfigError::Order { low: "red min", high: "red max" });
        }
        if max > limit {
            return Err(ConfigError::Order { low: "red max", high: "red limit" });
        }
        let burst = self.burst.unwrap_or((2 * min + max) / (3 * mean_packet)).max(1);
        let bandwidth = rate.filter(|rate| rate.as_bps() > 0).unwrap_or(BANDWIDTH);
        let curve = RedCurve {
            min,
            max,
            probability: self.probability.unwrap_or(PROBABILITY),
            weight: weight(min, burst, mean_packet)?,
            gentle: self.gentle,
            adaptive: self.adaptive,
            mean_packet,
            bandwidth: self.bandwidth.unwrap_or(bandwidth),
        };
        Ok((curve, limit))
    }
}

/// Returns the weight with which no packet of a burst of this length into an empty queue is
/// dropped. It solves `burst + 1 - min / avpkt = (1 - (1 - w)^burst) / w` (Floyd and Jacobson 1993,
/// section 6), and is a power of two as in tc.
fn weight(min: u64, burst: u64, mean_packet: u64) -> Result<f64, ConfigError> {
    let (burst, room) = (burst as f64, burst as f64 + 1.0 - min as f64 / mean_packet as f64);
    let fits = |weight: &f64| room <= (1.0 - libm::pow(1.0 - weight, burst)) / weight;
    let weights = (1..32).map(|digits| libm::ldexp(1.0, -digits));
    let found = if room < 1.0 { None } else { weights.into_iter().find(fits) };
    found.ok_or(ConfigError::Burst { least: min.div_ceil(mean_packet) })
}
