//! Timing of the physical layers (IEEE 802.11-2020, clauses 15 to 18).

use sheaf_stage::{Bitrate, Duration};

/// A physical layer in its band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phy {
    /// DSSS and CCK in 2.4 GHz: 1, 2, 5.5 and 11 Mbit/s (clauses 15, 16).
    Dsss {
        /// The short PLCP preamble (96 µs instead of 192).
        short_preamble: bool,
    },
    /// The DSSS/CCK rates of an 802.11g card among its like: short preamble, short slots and the
    /// contention window of clause 18.
    ErpDsss,
    /// ERP-OFDM in 2.4 GHz without 802.11b stations: 6 to 54 Mbit/s, short slots (clause 18).
    ErpOfdm,
    /// OFDM in 5 GHz: 6 to 54 Mbit/s (clause 17).
    Ofdm,
}

const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

const OFDM_RATES: [Bitrate; 8] = [
    Bitrate::from_mbps(6),
    Bitrate::from_mbps(9),
    Bitrate::from_mbps(12),
    Bitrate::from_mbps(18),
    Bitrate::from_mbps(24),
    Bitrate::from_mbps(36),
    Bitrate::from_mbps(48),
    Bitrate::from_mbps(54),
];
const DSSS_RATES: [Bitrate; 4] = [
    Bitrate::from_mbps(1),
    Bitrate::from_mbps(2),
    Bitrate::from_kbps(5_500),
    Bitrate::from_mbps(11),
];

impl Phy {
    /// A slot of the back-off.
    pub const fn slot(self) -> Duration {
        match self {
            Phy::Dsss { .. } => us(20),
            Phy::ErpDsss | Phy::ErpOfdm | Phy::Ofdm => us(9),
        }
    }

    /// The short interframe space: between a frame and its acknowledgement.
    pub const fn sifs(self) -> Duration {
        match self {
            Phy::Dsss { .. } | Phy::ErpDsss | Phy::ErpOfdm => us(10),
            Phy::Ofdm => us(16),
        }
    }

    /// The DCF interframe space: SIFS and two slots.
    pub fn difs(self) -> Duration {
        self.sifs() + 2 * self.slot()
    }

    /// The extended interframe space, after a frame that could not be read: long enough for the
    /// acknowledgement that somebody else may send for it.
    pub fn eifs(self) -> Duration {
        self.sifs() + self.frame_time(self.basic_rates()[0], ACK_BYTES) + self.difs()
    }

    /// Smallest contention window, in slots.
    pub const fn cw_min(self) -> u32 {
        match self {
            Phy::Dsss { .. } => 31,
            Phy::ErpDsss | Phy::ErpOfdm | Phy::Ofdm => 15,
        }
    }

    /// Preamble and header, before the first byte of the frame.
    pub const fn preamble(self) -> Duration {
        match self {
            Phy::Dsss { short_preamble: false } => us(192),
            Phy::Dsss { short_preamble: true } | Phy::ErpDsss => us(96),
            Phy::ErpOfdm | Phy::Ofdm => us(20),
        }
    }

    /// The rates of this layer, slowest first.
    pub const fn rates(self) -> &'static [Bitrate] {
        match self {
            Phy::Dsss { .. } | Phy::ErpDsss => &DSSS_RATES,
            Phy::ErpOfdm | Phy::Ofdm => &OFDM_RATES,
        }
    }

    /// The usual basic rates, which every station supports, slowest first: 1 and 2, or 6, 12 and 24
    /// Mbit/s.
    pub const fn basic_rates(self) -> &'static [Bitrate] {
        const OFDM: [Bitrate; 3] =
            [Bitrate::from_mbps(6), Bitrate::from_mbps(12), Bitrate::from_mbps(24)];
        const DSSS: [Bitrate; 2] = [Bitrate::from_mbps(1), Bitrate::from_mbps(2)];
        match self {
            Phy::Dsss { .. } | Phy::ErpDsss => &DSSS,
            Phy::ErpOfdm | Phy::Ofdm => &OFDM,
        }
    }

    /// The time on the air of a frame of `bytes` bytes (MAC header and check sum included).
    ///
    /// DSSS: preamble and payload, rounded up to a microsecond. OFDM: preamble, then symbols of
    /// 4 µs for 16 service bits, the payload and 6 tail bits; ERP-OFDM ends with 6 µs of silence.
    pub fn frame_time(self, rate: Bitrate, bytes: u32) -> Duration {
        let bits = u64::from(bytes) * 8;
        let payload = match self {
            Phy::Dsss { .. } | Phy::ErpDsss => us((bits * 1_000_000).div_ceil(rate.as_bps())),
            Phy::ErpOfdm | Phy::Ofdm => {
                let bits_per_symbol = rate.as_bps() / 250_000;
                us(4 * (16 + bits + 6).div_ceil(bits_per_symbol))
            }
        };
        let extension = if self == Phy::ErpOfdm { us(6) } else { Duration::ZERO };
        self.preamble() + payload + extension
    }

    /// Time within which a response must begin, or it counts as missing.
    pub fn response_timeout(self) -> Duration {
        self.sifs() + self.slot() + self.preamble()
    }
}

/// MAC header, LLC/SNAP header and check sum around an IP packet.
pub const DATA_OVERHEAD: u32 = 24 + 8 + 4;
/// An acknowledgement, or a clear-to-send.
pub const ACK_BYTES: u32 = 14;
/// A request-to-send.
pub const RTS_BYTES: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_times_are_those_of_the_standard() {
        let long = Phy::Dsss { short_preamble: false };
        assert_eq!(long.frame_time(Bitrate::from_mbps(2), 96), us(192 + 384));
        assert_eq!(long.frame_time(Bitrate::from_mbps(11), 1536), us(192 + 1118));
        assert_eq!(Phy::ErpDsss.frame_time(Bitrate::from_mbps(2), 96), us(96 + 384));
        // 802.11a: 1536 bytes at 54 Mbit/s are 57 symbols of 216 bits.
        assert_eq!(Phy::Ofdm.frame_time(Bitrate::from_mbps(54), 1536), us(20 + 57 * 4 + 4 - 4));
        assert_eq!(Phy::ErpOfdm.frame_time(Bitrate::from_mbps(24), 14), us(20 + 8 + 6));
    }

    #[test]
    fn interframe_spaces_are_those_of_the_standard() {
        let long = Phy::Dsss { short_preamble: false };
        assert_eq!((long.difs(), long.eifs()), (us(50), us(364)));
        assert_eq!(Phy::ErpOfdm.difs(), us(28));
        assert_eq!((Phy::ErpDsss.difs(), Phy::ErpDsss.cw_min()), (us(28), 15));
        assert_eq!(Phy::Ofdm.difs(), us(34));
    }
}
