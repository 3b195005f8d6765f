//! Timing of the physical layers (IEEE 802.11-2020, clauses 15 to 19).

use sheaf_stage::{Bitrate, Duration};
use std::str::FromStr;
use thiserror::Error;

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
    /// HT in 5 GHz: 20 MHz, one spatial stream, MCS 0 to 7, mixed format (clause 19). Stations are
    /// QoS stations; all frames are best effort. Responses and group-addressed frames go at the
    /// rates of OFDM.
    Ht {
        /// The guard interval of 400 ns instead of 800: 7.2 to 72.2 Mbit/s instead of 6.5 to 65.
        short_guard: bool,
    },
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
const HT_LONG_GUARD: [Bitrate; 8] = [
    Bitrate::from_kbps(6_500),
    Bitrate::from_mbps(13),
    Bitrate::from_kbps(19_500),
    Bitrate::from_mbps(26),
    Bitrate::from_mbps(39),
    Bitrate::from_mbps(52),
    Bitrate::from_kbps(58_500),
    Bitrate::from_mbps(65),
];
/// The standard rounds them; the exact ones are 10/9 of those above.
const HT_SHORT_GUARD: [Bitrate; 8] = [
    Bitrate::from_kbps(7_200),
    Bitrate::from_kbps(14_400),
    Bitrate::from_kbps(21_700),
    Bitrate::from_kbps(28_900),
    Bitrate::from_kbps(43_300),
    Bitrate::from_kbps(57_800),
    Bitrate::from_mbps(65),
    Bitrate::from_kbps(72_200),
];
/// Data bits of a symbol with each MCS, one stream over 20 MHz (table 19-27).
const HT_BITS_PER_SYMBOL: [u64; 8] = [26, 52, 78, 104, 156, 208, 234, 260];
/// Preamble of a frame in mixed format, one stream: the one of clause 17 with its signal field (20
/// µs), HT-SIG (8), and the short and the long training field of HT (4 each).
const HT_PREAMBLE: Duration = us(36);
/// Nanoseconds of a symbol of OFDM, and of HT with the long guard interval.
const SYMBOL: u64 = 4_000;
/// Nanoseconds of a symbol of HT with the short guard interval.
const SHORT_SYMBOL: u64 = 3_600;
/// Service bits before and tail bits behind the payload of an OFDM or HT frame.
const SERVICE_AND_TAIL: u64 = 16 + 6;

/// A name that no physical layer has.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("phy {name:?} is unknown; give {}", Phy::NAMES.map(|(name, _)| name).join(", "))]
pub struct UnknownPhy {
    name: String,
}

impl FromStr for Phy {
    type Err = UnknownPhy;

    fn from_str(name: &str) -> Result<Phy, UnknownPhy> {
        let known = Phy::NAMES.iter().find(|(known, _)| *known == name);
        known.map(|(_, phy)| *phy).ok_or_else(|| UnknownPhy { name: name.to_owned() })
    }
}

impl Phy {
    /// All of them, by the names that plans and files have for them.
    pub const NAMES: [(&str, Phy); 7] = [
        ("dsss-long", Phy::Dsss { short_preamble: false }),
        ("dsss-short", Phy::Dsss { short_preamble: true }),
        ("erp-dsss", Phy::ErpDsss),
        ("erp-ofdm", Phy::ErpOfdm),
        ("ofdm", Phy::Ofdm),
        ("ht", Phy::Ht { short_guard: false }),
        ("ht-short", Phy::Ht { short_guard: true }),
    ];

    /// The name of this one.
    pub fn name(self) -> &'static str {
        let own = Phy::NAMES.iter().find(|(_, phy)| *phy == self);
        own.expect("each has a name").0
    }

    /// A slot of the back-off.
    pub const fn slot(self) -> Duration {
        match self {
            Phy::Dsss { .. } => us(20),
            Phy::ErpDsss | Phy::ErpOfdm | Phy::Ofdm | Phy::Ht { .. } => us(9),
        }
    }

    /// The short interframe space: between a frame and its acknowledgement.
    pub const fn sifs(self) -> Duration {
        match self {
            Phy::Dsss { .. } | Phy::ErpDsss | Phy::ErpOfdm => us(10),
            Phy::Ofdm | Phy::Ht { .. } => us(16),
        }
    }

    /// Idle time before a back-off: the DCF interframe space, SIFS and two slots. With HT the
    /// arbitration space of best effort, SIFS and three slots (table 9-155).
    pub fn difs(self) -> Duration {
        let slots = if matches!(self, Phy::Ht { .. }) { 3 } else { 2 };
        self.sifs() + slots * self.slot()
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
            Phy::ErpDsss | Phy::ErpOfdm | Phy::Ofdm | Phy::Ht { .. } => 15,
        }
    }

    /// Preamble and header before the first byte of a frame at a basic rate.
    pub const fn preamble(self) -> Duration {
        match self {
            Phy::Dsss { short_preamble: false } => us(192),
            Phy::Dsss { short_preamble: true } | Phy::ErpDsss => us(96),
            Phy::ErpOfdm | Phy::Ofdm | Phy::Ht { .. } => us(20),
        }
    }

    /// The data rates of this layer, slowest first; with HT the place is the MCS.
    pub const fn rates(self) -> &'static [Bitrate] {
        match self {
            Phy::Dsss { .. } | Phy::ErpDsss => &DSSS_RATES,
            Phy::ErpOfdm | Phy::Ofdm => &OFDM_RATES,
            Phy::Ht { short_guard: false } => &HT_LONG_GUARD,
            Phy::Ht { short_guard: true } => &HT_SHORT_GUARD,
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
            Phy::ErpOfdm | Phy::Ofdm | Phy::Ht { .. } => &OFDM,
        }
    }

    /// The rates that responses and group-addressed frames can have, slowest first.
    pub const fn control_rates(self) -> &'static [Bitrate] {
        match self {
            Phy::Ht { .. } => &OFDM_RATES,
            other => other.rates(),
        }
    }

    /// Bytes of the MAC header, the LLC/SNAP header and the check sum around an IP packet to one
    /// station.
    pub const fn data_overhead(self) -> u32 {
        match self {
            Phy::Ht { .. } => GROUP_OVERHEAD + QOS_CONTROL,
            _ => GROUP_OVERHEAD,
        }
    }

    /// The time on the air of a frame of `bytes` bytes (MAC header and check sum included) at one
    /// of the data or control rates.
    ///
    /// DSSS: preamble and payload, rounded up to a microsecond. OFDM: preamble, then symbols of
    /// 4 µs for 16 service bits, the payload and 6 tail bits; ERP-OFDM ends with 6 µs of silence.
    /// HT: its own preamble, and with the short guard interval symbols of 3.6 µs that end with a
    /// whole 4 µs (equations 19-90 to 19-92).
    pub fn frame_time(self, rate: Bitrate, bytes: u32) -> Duration {
        let bits = u64::from(bytes) * 8;
        let mcs = match self {
            Phy::Ht { .. } => self.rates().iter().position(|known| *known == rate),
            _ => None,
        };
        match (self, mcs) {
            (Phy::Dsss { .. } | Phy::ErpDsss, _) => {
                self.preamble() + us((bits * 1_000_000).div_ceil(rate.as_bps()))
            }
            (Phy::Ht { short_guard }, Some(mcs)) => {
                let symbols = (SERVICE_AND_TAIL + bits).div_ceil(HT_BITS_PER_SYMBOL[mcs]);
                let symbols = match short_guard {
                    true => (SHORT_SYMBOL * symbols).div_ceil(SYMBOL),
                    false => symbols,
                };
                HT_PREAMBLE + Duration::from_nanos(SYMBOL * symbols)
            }
            (Phy::ErpOfdm | Phy::Ofdm | Phy::Ht { .. }, _) => {
                let bits_per_symbol = rate.as_bps() / 250_000;
                let symbols = (SERVICE_AND_TAIL + bits).div_ceil(bits_per_symbol);
                let extension = if self == Phy::ErpOfdm { us(6) } else { Duration::ZERO };
                self.preamble() + Duration::from_nanos(SYMBOL * symbols) + extension
            }
        }
    }

    /// Time within which a response must begin, or it counts as missing.
    pub fn response_timeout(self) -> Duration {
        self.sifs() + self.slot() + self.preamble()
    }
}

/// Times and limits of a physical layer, worked out once: every station needs them for every frame
/// that it senses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// A slot of the back-off, in nanoseconds.
    pub slot: u64,
    /// The short interframe space.
    pub sifs: Duration,
    /// Idle time before a back-off.
    pub difs: Duration,
    /// The same after a frame that could not be read.
    pub eifs: Duration,
    /// Time within which a response must begin.
    pub response_timeout: Duration,
    /// Smallest contention window, in slots.
    pub cw_min: u32,
}

impl Timing {
    pub fn new(phy: Phy) -> Timing {
        Timing {
            slot: phy.slot().as_nanos() as u64,
            sifs: phy.sifs(),
            difs: phy.difs(),
            eifs: phy.eifs(),
            response_timeout: phy.response_timeout(),
            cw_min: phy.cw_min(),
        }
    }
}

/// The frames that respond to data at one rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Responses {
    /// Time on the air of an acknowledgement, or a clear-to-send.
    pub ack: Duration,
    /// The same of a block acknowledgement.
    pub block_ack: Duration,
    /// The same of a request to send, which goes at the rate of responses, too.
    pub rts: Duration,
}

impl Responses {
    /// Responses at `rate`.
    pub fn new(phy: Phy, rate: Bitrate) -> Responses {
        let [ack, block_ack, rts] =
            [ACK_BYTES, BLOCK_ACK_BYTES, RTS_BYTES].map(|bytes| phy.frame_time(rate, bytes));
        Responses { ack, block_ack, rts }
    }
}

/// MAC header, LLC/SNAP header and check sum around an IP packet to a group, or to one station
/// without QoS.
pub const GROUP_OVERHEAD: u32 = 24 + 8 + 4;
/// The QoS control field in the MAC header of a frame to one QoS station.
const QOS_CONTROL: u32 = 2;
/// An acknowledgement, or a clear-to-send.
pub const ACK_BYTES: u32 = 14;
/// A compressed block acknowledgement of 64 frames (9.3.1.8).
pub const BLOCK_ACK_BYTES: u32 = 32;
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
    fn ht_frame_times_are_the_sum_of_preamble_and_whole_symbols() {
        let long = Phy::Ht { short_guard: false };
        let short = Phy::Ht { short_guard: true };
        let kbps = Bitrate::from_kbps;
        // 1538 bytes are 12304 bits, with service and tail 12326: 475 symbols of 26 bits, 48 of
        // 260. 48 symbols of 3.6 µs are 172.8 µs, 43.2 symbols of 4.
        assert_eq!(long.frame_time(kbps(6_500), 1538), us(36 + 475 * 4));
        assert_eq!(long.frame_time(kbps(65_000), 1538), us(36 + 48 * 4));
        assert_eq!(short.frame_time(kbps(72_200), 1538), us(36 + 44 * 4));
        // With the short guard interval 65 Mbit/s is MCS 6.
        assert_eq!(short.frame_time(kbps(65_000), 1538), us(36 + 48 * 4));
        // An acknowledgement at 24 Mbit/s: 134 bits, 2 symbols of 96; a block acknowledgement 3.
        assert_eq!(long.frame_time(kbps(24_000), ACK_BYTES), us(20 + 2 * 4));
        assert_eq!(long.frame_time(kbps(24_000), BLOCK_ACK_BYTES), us(20 + 3 * 4));
        // The test of durations of ns-3 (wifi-tx-duration), mixed format, MCS 7.
        for (bytes, micros) in [(1536, 228), (76, 48), (14, 40)] {
            assert_eq!(long.frame_time(kbps(65_000), bytes), us(micros));
        }
        // The same at MCS 0 with the short guard interval, where ns-3 ends with the last symbol:
        // 1742.4, 126 and 57.6 µs. The standard adds silence up to whole 4 µs.
        for (bytes, micros) in [(1536, 1744), (76, 128), (14, 60)] {
            assert_eq!(short.frame_time(kbps(7_200), bytes), us(micros));
        }
        for phy in [long, short] {
            assert!(phy.rates().iter().all(|rate| !phy.control_rates().contains(rate)));
        }
    }

    #[test]
    fn every_layer_has_a_name_that_leads_back_to_it() {
        for (name, phy) in Phy::NAMES {
            assert_eq!((phy.name(), name.parse()), (name, Ok(phy)));
        }
        let error = "dsss".parse::<Phy>().unwrap_err().to_string();
        assert!(error.starts_with("phy \"dsss\" is unknown; give dsss-long, "), "{error}");
    }

    #[test]
    fn interframe_spaces_are_those_of_the_standard() {
        let long = Phy::Dsss { short_preamble: false };
        assert_eq!((long.difs(), long.eifs()), (us(50), us(364)));
        assert_eq!(Phy::ErpOfdm.difs(), us(28));
        assert_eq!((Phy::ErpDsss.difs(), Phy::ErpDsss.cw_min()), (us(28), 15));
        assert_eq!(Phy::Ofdm.difs(), us(34));
        // An acknowledgement at 6 Mbit/s takes 44 µs.
        let ht = Phy::Ht { short_guard: false };
        assert_eq!((ht.difs(), ht.eifs()), (us(16 + 27), us(16 + 44 + 43)));
    }
}
