//! Air time of one frame, by arithmetic (the "air-time arithmetic" of the plans).

use crate::ampdu::{Ampdu, with_subframe};
use crate::config::Config;
use crate::phy::{ACK_BYTES, BLOCK_ACK_BYTES, GROUP_OVERHEAD};
use sheaf_stage::{Bitrate, Duration};

/// Time on the air of a data frame around an IP packet of `bytes`, sent at `rate`.
pub fn data(config: &Config, rate: Bitrate, bytes: u32) -> Duration {
    config.phy.frame_time(rate, config.phy.data_overhead() + bytes)
}

/// Time on the air of an A-MPDU of `frames` frames, each around an IP packet of `bytes`, sent at
/// `rate`. It is not held against any limits.
pub fn ampdu(config: &Config, rate: Bitrate, frames: u32, bytes: u32) -> Duration {
    let mpdu = config.phy.data_overhead() + bytes;
    let length = (0..frames).fold(0, |length, _| with_subframe(length, mpdu));
    config.phy.frame_time(rate, length)
}

/// Frames around IP packets of `bytes` each that an A-MPDU at `rate` carries, within the limits of
/// `config`; 1 where it does not aggregate.
pub fn ampdu_frames(config: &Config, rate: Bitrate, bytes: u32) -> u32 {
    let Some(Ampdu { bytes: most, air_time, frames }) = config.ampdu else { return 1 };
    let mpdu = config.phy.data_overhead() + bytes;
    let mut length = with_subframe(0, mpdu);
    let mut count = 1;
    while count < frames {
        length = with_subframe(length, mpdu);
        if length > most || config.phy.frame_time(rate, length) > air_time {
            break;
        }
        count += 1;
    }
    count
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

/// The same for an A-MPDU of `frames` frames, two or more, each around an IP packet of `bytes`, and
/// its block acknowledgement.
pub fn block_exchange(config: &Config, rate: Bitrate, frames: u32, bytes: u32) -> Duration {
    let phy = config.phy;
    let back_off = phy.slot() * phy.cw_min() / 2;
    let block_ack = phy.frame_time(config.response_rate(rate), BLOCK_ACK_BYTES);
    phy.difs() + back_off + ampdu(config, rate, frames, bytes) + phy.sifs() + block_ack
}

/// The same for a frame to all that hear it, at the lowest basic rate and without acknowledgement.
pub fn group_exchange(config: &Config, bytes: u32) -> Duration {
    let phy = config.phy;
    let back_off = phy.slot() * phy.cw_min() / 2;
    phy.difs() + back_off + phy.frame_time(phy.basic_rates()[0], GROUP_OVERHEAD + bytes)
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
    fn an_ampdu_takes_what_its_subframes_add_up_to() {
        let rate = Bitrate::from_mbps(65);
        let ht = Config::new(Phy::Ht { short_guard: false }, 2, rate);
        // Two frames of 38 + 60 bytes: 104 + 102 bytes are 1648 bits, with service and tail 1670:
        // 7 symbols of 260.
        assert_eq!(ampdu(&ht, rate, 2, 60), Duration::from_micros(36 + 7 * 4));
        // AIFS, 7.5 slots, the frame, SIFS and a block acknowledgement at 24 Mbit/s.
        let expected = Duration::from_nanos(43_000 + 67_500 + 64_000 + 16_000 + 32_000);
        assert_eq!(block_exchange(&ht, rate, 2, 60), expected);
        assert_eq!(ampdu(&ht, rate, 1, 60), Duration::from_micros(36 + 4 * 4), "816 + 22 bits");
    }

    #[test]
    fn a_group_of_packets_is_paid_at_the_lowest_basic_rate() {
        let ofdm = Config::new(Phy::Ofdm, 2, Bitrate::from_mbps(54));
        // DIFS, 7.5 slots, and 33 symbols of 24 bits.
        assert_eq!(group_exchange(&ofdm, 60), Duration::from_nanos(34_000 + 67_500 + 152_000));
    }

    #[test]
    fn whichever_limit_is_met_first_bounds_an_ampdu() {
        let frames = |mbps, bytes, air_time| {
            let rate = Bitrate::from_kbps(mbps);
            let mut config = Config::new(Phy::Ht { short_guard: false }, 2, rate);
            assert_eq!(ampdu_frames(&config, rate, bytes), 1, "it does not aggregate");
            config.ampdu = Some(Ampdu { air_time, ..Ampdu::default() });
            ampdu_frames(&config, rate, bytes)
        };
        let ath9k = Ampdu::default().air_time;
        // 4 ms less 36 µs are 991 symbols: 25766 bits at 6.5 Mbit/s, 3218 bytes, 30 times 104 and
        // 98. At 65 Mbit/s 32207 bytes: 20 times 1544 and 1327, too few for another.
        assert_eq!(frames(6_500, 60, ath9k), 30);
        assert_eq!(frames(65_000, 1500, ath9k), 20);
        assert_eq!(frames(65_000, 60, ath9k), 64, "the window");
        // The longest frame: 1362 symbols, 44262 bytes.
        assert_eq!(frames(65_000, 1500, Ampdu::LONGEST), 28);
        assert_eq!(frames(65_000, 1500, Duration::from_millis(9)), 42, "65535 bytes");
    }

    #[test]
    fn acknowledgements_go_at_the_highest_basic_rate_not_above_the_data_rate() {
        let (dsss, ofdm) = (Phy::Dsss { short_preamble: false }, Phy::Ofdm);
        let mbps = Bitrate::from_mbps;
        assert_eq!(Config::new(dsss, 2, mbps(11)).response_rate(mbps(11)), mbps(2));
        assert_eq!(Config::new(ofdm, 2, mbps(18)).response_rate(mbps(18)), mbps(12));
    }
}
