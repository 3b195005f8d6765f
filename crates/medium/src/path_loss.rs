//! Distance and rate: the range of each rate.
//!
//! Principle: log-distance path loss (Rappaport, "Wireless Communications", section 4.9): each
//! tenfold of the distance costs 10·n dB. A receiver that needs d dB less for a slower rate hears
//! it 10^(d / 10n) times as far. Rate adaptation is taken to be perfect: a station sends at the
//! fastest rate that is read at its distance.

use crate::phy::Phy;
use sheaf_stage::Bitrate;

/// The decay of signals with distance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathLoss {
    /// Range of the slowest rate of the physical layer, in metres, above 0.
    pub range: f64,
    /// Path loss exponent, above 0: 2 in free space, 3 to 4 between houses.
    pub exponent: f64,
}

impl PathLoss {
    /// Range of frames at `rate`, in metres; 0 for a rate that the layer does not have.
    pub fn range(&self, phy: Phy, rate: Bitrate) -> f64 {
        let place = phy.rates().iter().position(|known| *known == rate);
        place.map_or(0.0, |place| {
            let needs = sensitivities(phy);
            self.range * libm::pow(10.0, (needs[0] - needs[place]) / (10.0 * self.exponent))
        })
    }

    /// The fastest rate that is read at `distance` metres; `None` out of range.
    pub fn best_rate(&self, phy: Phy, distance: f64) -> Option<Bitrate> {
        phy.rates().iter().copied().rfind(|rate| distance <= self.range(phy, *rate))
    }
}

/// The weakest signal that is read, in dBm, for each rate of the layer, slowest first. DSSS/CCK:
/// the data sheet of the Orinoco card, the common one of its time; OFDM: IEEE 802.11-2020, table
/// 17-18; HT: table 19-23 for 20 MHz. Only differences matter here.
fn sensitivities(phy: Phy) -> &'static [f64] {
    match phy {
        Phy::Dsss { .. } | Phy::ErpDsss => &[-94.0, -91.0, -87.0, -82.0],
        Phy::ErpOfdm | Phy::Ofdm => &[-82.0, -81.0, -79.0, -77.0, -74.0, -70.0, -66.0, -65.0],
        Phy::Ht { .. } => &[-82.0, -79.0, -77.0, -74.0, -70.0, -66.0, -65.0, -64.0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_has_a_sensitivity_and_faster_ones_reach_less_far() {
        let loss = PathLoss { range: 115.0, exponent: 3.0 };
        let ht = Phy::Ht { short_guard: true };
        for phy in [Phy::Dsss { short_preamble: false }, Phy::ErpOfdm, Phy::Ofdm, ht] {
            assert_eq!(sensitivities(phy).len(), phy.rates().len());
            let ranges: Vec<_> = phy.rates().iter().map(|rate| loss.range(phy, *rate)).collect();
            assert!(ranges.windows(2).all(|pair| pair[0] > pair[1]), "{ranges:?}");
            assert_eq!(ranges[0], 115.0);
        }
    }

    #[test]
    fn twelve_decibels_at_exponent_three_are_a_factor_of_two_and_a_half() {
        let (loss, phy) =
            (PathLoss { range: 115.0, exponent: 3.0 }, Phy::Dsss { short_preamble: false });
        let mbps = Bitrate::from_mbps;
        assert!((45.0..46.5).contains(&loss.range(phy, mbps(11))));
        assert_eq!(loss.best_rate(phy, 10.0), Some(mbps(11)));
        assert_eq!(loss.best_rate(phy, 100.0), Some(mbps(1)));
        assert_eq!(loss.best_rate(phy, 116.0), None);
        assert_eq!(loss.range(phy, mbps(54)), 0.0);
    }
}
