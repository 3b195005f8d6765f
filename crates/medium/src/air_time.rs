//! Air time of one frame, by arithmetic (the "air-time arithmetic" of the plans).

use crate::config::Config;
use crate::phy::{ACK_BYTES, DATA_OVERHEAD};
use sheaf_stage::{Bitrate, Duration};

/// Time on the air of a data frame around an IP packet of `bytes`, sent at `rate`.
pub fn data(config: &Config, rate: Bitrate, bytes: u32) -> Duration {
    config.phy.frame_time(rate, DATA_OVERHEAD + bytes)
}

/// Time on the air of the acknowledgement of a frame sent at `rate`.
pub fn ack(config: &Config, rate: Bitrate) -> Duration {
    config.phy.frame_time(config.response_rate(rate), ACK_BYTES)
}

/// Time that a lone saturated station takes for an IP packet of `bytes`: DIFS, the mean back-off of
/// half the smallest contention window, the frame, SIFS and the acknowledgement.
pub fn exchange(config: &Config, rate: Bitrate, bytes: u32) -> Duration {
    let phy = config.phy;
    let back_off = phy.slot() * phy.cw_min() / 2;
    phy.difs() + back_off + data(config, rate, bytes) + phy.sifs() + ack(config, rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Phy;

    #[test]
    fn a_lone_voice_packet_at_2_mbit_costs_four_times_its_share_of_a_full_meta_packet() {
        let rate = Bitrate::from_mbps(2);
        let config = Config::new(Phy::Dsss { short_preamble: false }, 2, rate);
        let lone = exchange(&config, rate, 60);
        assert_eq!(lone, Duration::from_micros(50 + 310 + 576 + 10 + 248));
        let full = exchange(&config, rate, 20 + 24 * 60) / 24;
        let factor = lone.as_secs_f64() / full.as_secs_f64();
        assert!((4.0..4.3).contains(&factor), "{factor}");
    }

    #[test]
    fn acknowledgements_go_at_the_highest_basic_rate_not_above_the_data_rate() {
        let (dsss, ofdm) = (Phy::Dsss { short_preamble: false }, Phy::Ofdm);
        let mbps = Bitrate::from_mbps;
        assert_eq!(Config::new(dsss, 2, mbps(11)).response_rate(mbps(11)), mbps(2));
        assert_eq!(Config::new(ofdm, 2, mbps(18)).response_rate(mbps(18)), mbps(12));
    }
}
