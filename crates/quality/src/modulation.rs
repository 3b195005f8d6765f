//! Bit error rate from the signal-to-noise ratio, for each modulation of 802.11.
//!
//! Principle: in white noise the error rate of a modulation depends on the energy of a bit over the
//! density of the noise alone. The ratio here is the one that drivers report: powers of signal and
//! noise in the bandwidth of the channel, 22 MHz for DSSS and 20 MHz for OFDM. Fading, interference
//! and imperfect receivers are not part of it, so a real card needs a few decibels more.
//!
//! Sources:
//! * DSSS and CCK as in G. Pei, T. Henderson, "Validation of ns-3 802.11b PHY model", Boeing
//!   (2009): DBPSK by J. Proakis, "Digital Communications" (2001), equation 5.2-69; DQPSK by G.
//!   Ferrari, G. Corazza, "Tight bounds and accurate approximations for DQPSK transmission bit
//!   error rate", Electronics Letters 40 (2004), equation 8; CCK by M. Pursley, T. Royster,
//!   "Properties and performance of the IEEE 802.11b complementary-code-key signal sets", IEEE
//!   Trans. Comm. 57 (2009), equations 17 and 18.
//! * OFDM: L. Miller, "Validation of 802.11a/UWB Coexistence Simulation", NIST (2003), and G. Pei,
//!   T. Henderson, "Validation of OFDM error rate model in ns-3", Boeing (2010): hard decisions and
//!   the union bound on the errors that Viterbi's decoder leaves, with the weight spectra of P.
//!   Frenger and others, "Multi-rate convolutional codes", Chalmers (1998), and for 5/6 of D.
//!   Haccoun, G. Bégin, "High-rate punctured convolutional codes", IEEE Trans. Comm. 37 (1989).

use core::f64::consts::{PI, SQRT_2};
use sheaf_stage::Bitrate;

/// A modulation with its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Modulation {
    /// Differential BPSK, 11 chips a bit: 1 Mbit/s.
    Dbpsk,
    /// Differential QPSK, 11 chips for two bits: 2 Mbit/s.
    Dqpsk,
    /// Complementary code keying, four bits a symbol: 5.5 Mbit/s.
    Cck4,
    /// Complementary code keying, eight bits a symbol: 11 Mbit/s.
    Cck8,
    /// OFDM: 6 to 54 Mbit/s, and the rates of HT, VHT and HE.
    Ofdm(Constellation, Code),
}

/// Constellation of an OFDM subcarrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Constellation {
    /// One bit.
    Bpsk,
    /// Two bits.
    Qpsk,
    /// Four bits.
    Qam16,
    /// Six bits.
    Qam64,
    /// Eight bits (VHT, HE).
    Qam256,
    /// Ten bits (HE).
    Qam1024,
}

/// Rate of the convolutional code with constraint length 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// 1/2.
    Half,
    /// 2/3, punctured.
    TwoThirds,
    /// 3/4, punctured.
    ThreeQuarters,
    /// 5/6, punctured.
    FiveSixths,
}

/// Highest bit error rate: bits by chance.
const CHANCE: f64 = 0.5;
/// Data subcarriers of 802.11a and g, and the time of a symbol.
const SUBCARRIERS: f64 = 48.0;
const SYMBOL_SECONDS: f64 = 4e-6;
/// DIFS 50 µs, 15.5 slots of 20 µs, a long preamble of 192 µs, SIFS 10 µs, and an acknowledgement
/// of 14 bytes at 2 Mbit/s behind its own preamble, 248 µs.
const DSSS_OVERHEAD_SECONDS: f64 = 810e-6;
/// DIFS 34 µs, 7.5 slots of 9 µs, a preamble of 20 µs, SIFS 16 µs, and an acknowledgement at 24
/// Mbit/s, 28 µs. Frames of an A-MPDU share it: there a frame costs less, and smaller ones carry
/// more than what follows from this.
const OFDM_OVERHEAD_SECONDS: f64 = 166e-6;
/// Noise bandwidth of a DSSS channel, in Hz.
const DSSS_BANDWIDTH: f64 = 22e6;
/// Symbols that one symbol of CCK at 5.5 Mbit/s is told from: biorthogonal, so half of 16.
const CCK_SIGNALS: f64 = 8.0;
/// Part of the normal distribution that is integrated, in standard deviations. Beyond it are 10⁻¹⁵.
const TAIL: f64 = 8.0;
/// Intervals of Simpson's rule, even. Twice as many change a result by less than 10⁻⁶ of it.
const INTERVALS: u32 = 128;

impl Modulation {
    /// Modulation of a rate of 802.11b, g and a; `None` for a rate that these do not have.
    pub fn of_rate(rate: Bitrate) -> Option<Modulation> {
        use {Code::*, Constellation::*};
        let ofdm = |constellation, code| Some(Modulation::Ofdm(constellation, code));
        match rate.as_bps() / 100_000 {
            10 => Some(Modulation::Dbpsk),
            20 => Some(Modulation::Dqpsk),
            55 => Some(Modulation::Cck4),
            110 => Some(Modulation::Cck8),
            60 => ofdm(Bpsk, Half),
            90 => ofdm(Bpsk, ThreeQuarters),
            120 => ofdm(Qpsk, Half),
            180 => ofdm(Qpsk, ThreeQuarters),
            240 => ofdm(Qam16, Half),
            360 => ofdm(Qam16, ThreeQuarters),
            480 => ofdm(Qam64, TwoThirds),
            540 => ofdm(Qam64, ThreeQuarters),
            _ => None,
        }
    }

    /// Modulation of the index of a modulation and coding scheme of one stream: 0..=7 of HT, 0..=9
    /// of VHT, 0..=11 of HE. HT counts on with more streams: the index modulo 8 has the modulation.
    pub fn of_mcs(index: u8) -> Option<Modulation> {
        use {Code::*, Constellation::*};
        let (constellation, code) = match index {
            0 => (Bpsk, Half),
            1 => (Qpsk, Half),
            2 => (Qpsk, ThreeQuarters),
            3 => (Qam16, Half),
            4 => (Qam16, ThreeQuarters),
            5 => (Qam64, TwoThirds),
            6 => (Qam64, ThreeQuarters),
            7 => (Qam64, FiveSixths),
            8 => (Qam256, ThreeQuarters),
            9 => (Qam256, FiveSixths),
            10 => (Qam1024, ThreeQuarters),
            11 => (Qam1024, FiveSixths),
            _ => return None,
        };
        Some(Modulation::Ofdm(constellation, code))
    }

    /// Data bits per second of one stream, in 20 MHz with the long guard interval.
    pub fn bits_per_second(self) -> f64 {
        match self {
            Modulation::Dbpsk => 1e6,
            Modulation::Dqpsk => 2e6,
            Modulation::Cck4 => 5.5e6,
            Modulation::Cck8 => 11e6,
            Modulation::Ofdm(constellation, code) => {
                constellation.bits() * code.share() * SUBCARRIERS / SYMBOL_SECONDS
            }
        }
    }

    /// Seconds for which a frame keeps the channel besides its own bits: DIFS, the mean first
    /// back-off, preamble, SIFS and the acknowledgement.
    pub fn frame_overhead_seconds(self) -> f64 {
        match self {
            Modulation::Ofdm(..) => OFDM_OVERHEAD_SECONDS,
            _ => DSSS_OVERHEAD_SECONDS,
        }
    }

    /// Error rate of data bits, 0..=0.5, at a signal-to-noise ratio of `snr_db` dB in the bandwidth
    /// of the channel; 0.5 for what is not a number.
    ///
    /// It is the rate that gives the frame error rate by 1 − (1 − BER)^bits; where several bits are
    /// lost together, as in a symbol of CCK, it counts them as if they were lost one by one.
    pub fn bit_error_rate(self, snr_db: f64) -> f64 {
        let snr = libm::pow(10.0, snr_db / 10.0);
        let rate = match self {
            Modulation::Dbpsk => 0.5 * libm::exp(-snr * DSSS_BANDWIDTH / 1e6),
            Modulation::Dqpsk => dqpsk(snr * DSSS_BANDWIDTH / 2e6),
            Modulation::Cck4 => {
                let symbol = biorthogonal(snr * DSSS_BANDWIDTH / 1.375e6 / 2.0);
                of_bit(symbol, 4.0)
            }
            Modulation::Cck8 => {
                // Two independent symbols of half the energy each.
                let half = biorthogonal(snr * DSSS_BANDWIDTH / 1.375e6 / 4.0);
                of_bit(half, 4.0)
            }
            Modulation::Ofdm(constellation, code) => {
                code.decoded(constellation.symbol_bit_error_rate(snr))
            }
        };
        // The bounds exceed what is possible where next to nothing is read. `min` also takes 0.5
        // for what is not a number.
        rate.min(CHANCE)
    }
}

/// Error rate of bits of DQPSK with Gray's code at `energy`, the energy of a bit over the noise
/// density.
fn dqpsk(energy: f64) -> f64 {
    let factor = (SQRT_2 + 1.0) / (8.0 * PI * SQRT_2).sqrt();
    factor / energy.sqrt() * libm::exp(-(2.0 - SQRT_2) * energy)
}

/// Probability that one of 16 biorthogonal signals is taken for another; half of a symbol's energy
/// over the noise density is `energy`.
///
/// With y(x) = erf((x + β) / √2) the signal is read right with ∫ y⁷ φ(x) dx from −β; the complement
/// is integrated, so that small probabilities keep their digits.
fn biorthogonal(energy: f64) -> f64 {
    let beta = (2.0 * energy).sqrt();
    let lowest = (-beta).max(-TAIL);
    let step = (TAIL - lowest) / f64::from(INTERVALS);
    let density = |x: f64| libm::exp(-x * x / 2.0) / (2.0 * PI).sqrt();
    let wrong = |x: f64| {
        let miss = libm::erfc((x + beta) / SQRT_2);
        -libm::expm1((CCK_SIGNALS - 1.0) * libm::log1p(-miss)) * density(x)
    };
    let inner: f64 = (1..INTERVALS)
        .map(|at| {
            let weight = if at % 2 == 1 { 4.0 } else { 2.0 };
            weight * wrong(lowest + step * f64::from(at))
        })
        .sum();
    let below = 0.5 * libm::erfc(beta / SQRT_2);
    below + step / 3.0 * (wrong(lowest) + inner + wrong(TAIL))
}

/// Error rate of each of `bits` bits that are right together with probability 1 − `symbol`.
fn of_bit(symbol: f64, bits: f64) -> f64 {
    -libm::expm1(libm::log1p(-symbol.min(1.0)) / bits)
}

impl Constellation {
    /// Bits of a symbol.
    fn bits(self) -> f64 {
        match self {
            Constellation::Bpsk => 1.0,
            Constellation::Qpsk => 2.0,
            Constellation::Qam16 => 4.0,
            Constellation::Qam64 => 6.0,
            Constellation::Qam256 => 8.0,
            Constellation::Qam1024 => 10.0,
        }
    }

    /// Points on each axis; BPSK has one axis, the others have two.
    fn points_per_axis(self) -> f64 {
        match self {
            Constellation::Bpsk | Constellation::Qpsk => 2.0,
            Constellation::Qam16 => 4.0,
            Constellation::Qam64 => 8.0,
            Constellation::Qam256 => 16.0,
            Constellation::Qam1024 => 32.0,
        }
    }

    /// Error rate of bits before the decoder, at signal over noise power `snr`.
    fn symbol_bit_error_rate(self, snr: f64) -> f64 {
        if self == Constellation::Bpsk {
            return 0.5 * libm::erfc(snr.sqrt());
        }
        // Gray's code: an error is one step on one axis, and costs one bit.
        let points = self.points_per_axis();
        let energy = snr * 3.0 / (2.0 * (points * points - 1.0));
        (points - 1.0) / (points * libm::log2(points)) * libm::erfc(energy.sqrt())
    }
}

/// Free distance of a punctured code, the data bits per period of the puncturing, the step from
/// one distance to the next, and the sum of bit errors over all paths of each distance.
struct Spectrum {
    free_distance: f64,
    data_bits: f64,
    step: f64,
    weights: &'static [f64],
}

impl Code {
    /// Data bits of each coded bit.
    fn share(self) -> f64 {
        match self {
            Code::Half => 1.0 / 2.0,
            Code::TwoThirds => 2.0 / 3.0,
            Code::ThreeQuarters => 3.0 / 4.0,
            Code::FiveSixths => 5.0 / 6.0,
        }
    }

    fn spectrum(self) -> Spectrum {
        match self {
            // Only even distances exist.
            Code::Half => Spectrum {
                free_distance: 10.0,
                data_bits: 1.0,
                step: 2.0,
                weights: &[
                    36.0,
                    211.0,
                    1_404.0,
                    11_633.0,
                    77_433.0,
                    502_690.0,
                    3_322_763.0,
                    21_292_910.0,
                    134_365_911.0,
                ],
            },
            Code::TwoThirds => Spectrum {
                free_distance: 6.0,
                data_bits: 2.0,
                step: 1.0,
                weights: &[
                    3.0,
                    70.0,
                    285.0,
                    1_276.0,
                    6_160.0,
                    27_128.0,
                    117_019.0,
                    498_860.0,
                    2_103_891.0,
                    8_784_123.0,
                ],
            },
            Code::ThreeQuarters => Spectrum {
                free_distance: 5.0,
                data_bits: 3.0,
                step: 1.0,
                weights: &[
                    42.0,
                    201.0,
                    1_492.0,
                    10_469.0,
                    62_935.0,
                    379_644.0,
                    2_253_373.0,
                    13_073_811.0,
                    75_152_755.0,
                    428_005_675.0,
                ],
            },
            Code::FiveSixths => Spectrum {
                free_distance: 4.0,
                data_bits: 5.0,
                step: 1.0,
                weights: &[
                    92.0,
                    528.0,
                    8_694.0,
                    79_453.0,
                    792_114.0,
                    7_375_573.0,
                    67_884_974.0,
                    610_875_423.0,
                    5_427_275_376.0,
                    47_664_215_639.0,
                ],
            },
        }
    }

    /// Error rate of data bits after the decoder, where `rate` of the coded bits are wrong.
    fn decoded(self, rate: f64) -> f64 {
        let Spectrum { free_distance, data_bits, step, weights } = self.spectrum();
        // Bhattacharyya's parameter of the binary symmetric channel.
        let parameter = (4.0 * rate * (1.0 - rate)).sqrt();
        let factor = libm::pow(parameter, step);
        let series = weights.iter().rev().fold(0.0, |sum, weight| sum * factor + weight);
        series * libm::pow(parameter, free_distance) / (2.0 * data_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(kbps: u64) -> Modulation {
        Modulation::of_rate(Bitrate::from_kbps(kbps)).expect("a rate of 802.11")
    }

    fn success(modulation: Modulation, snr_db: f64, bits: f64) -> f64 {
        libm::exp(bits * libm::log1p(-modulation.bit_error_rate(snr_db)))
    }

    fn every() -> Vec<Modulation> {
        let dsss = [1_000, 2_000, 5_500, 11_000].map(rate);
        dsss.into_iter().chain((0..=11).filter_map(Modulation::of_mcs)).collect()
    }

    /// Points of Pei and Henderson's validation of the 802.11b model: the share of frames of 1078
    /// bytes that arrive at a signal in dBm, above thermal noise in 22 MHz and a noise figure of
    /// 7 dB.
    #[test]
    fn frames_of_802_11b_arrive_as_often_as_tabulated() {
        const NOISE: f64 = -100.5522786 + 7.0;
        let table = [
            (1_000, -99.0, 0.0003, 0.0001),
            (1_000, -98.0, 0.202, 0.005),
            (1_000, -97.0, 0.813, 0.005),
            (1_000, -96.0, 0.984, 0.005),
            (2_000, -94.0, 0.036, 0.005),
            (2_000, -93.0, 0.519, 0.005),
            (2_000, -92.0, 0.915, 0.005),
            (2_000, -91.0, 0.993, 0.005),
            (5_500, -92.0, 0.0001, 0.00005),
            (5_500, -91.0, 0.132, 0.005),
            (5_500, -90.0, 0.744, 0.005),
            (5_500, -89.0, 0.974, 0.005),
            (11_000, -89.0, 8.85e-5, 1e-5),
            (11_000, -88.0, 0.128, 0.005),
            (11_000, -87.0, 0.739, 0.005),
            (11_000, -86.0, 0.973, 0.005),
        ];
        for (kbps, signal, expected, tolerance) in table {
            let share = success(rate(kbps), signal - NOISE, 1078.0 * 8.0);
            assert!((share - expected).abs() < tolerance, "{kbps} at {signal}: {share}");
        }
    }

    /// Points of the validation of the OFDM model: the share of frames of 2000 bytes that arrive.
    #[test]
    fn frames_of_802_11a_arrive_as_often_as_tabulated() {
        let table = [
            (6_000, 3.0, 0.020),
            (6_000, 4.0, 0.885),
            (6_000, 5.0, 0.997),
            (9_000, 6.0, 0.097),
            (9_000, 7.0, 0.918),
            (9_000, 8.0, 0.998),
            (12_000, 6.0, 0.0174),
            (12_000, 7.0, 0.881),
            (12_000, 8.0, 0.997),
            (18_000, 9.5, 0.623),
            (18_000, 10.5, 0.985),
            (24_000, 13.0, 0.495),
            (24_000, 14.0, 0.974),
            (36_000, 15.5, 0.012),
            (36_000, 16.5, 0.818),
            (36_000, 17.5, 0.993),
            (48_000, 21.0, 0.649),
            (48_000, 22.0, 0.983),
            (54_000, 22.0, 0.410),
            (54_000, 23.0, 0.958),
            (54_000, 24.0, 0.999),
        ];
        for (kbps, snr_db, expected) in table {
            let share = success(rate(kbps), snr_db, 16_000.0);
            assert!((share - expected).abs() < 0.001, "{kbps} at {snr_db} dB: {share}");
        }
    }

    #[test]
    fn error_rates_fall_as_the_signal_rises_and_stay_between_zero_and_a_half() {
        for modulation in every() {
            let rate = |tenth: i32| modulation.bit_error_rate(f64::from(tenth) / 10.0);
            let rates: Vec<_> = (-400..=600).map(rate).collect();
            assert!(rates.iter().all(|rate| (0.0..=0.5).contains(rate)), "{modulation:?}");
            let rises = rates.windows(2).find(|pair| pair[1] > pair[0] * (1.0 + 1e-9));
            assert_eq!(rises, None, "{modulation:?}");
            assert!(rates[0] > 0.4, "{modulation:?}");
            assert!(rates[1000] < 1e-30, "{modulation:?}");
        }
    }

    #[test]
    fn faster_rates_of_a_kind_need_more_signal() {
        let needed = |modulation: &Modulation| {
            let reads = |tenth: &i32| modulation.bit_error_rate(f64::from(*tenth) / 10.0) < 1e-5;
            (-200..600).find(reads).expect("every modulation is read at last")
        };
        let all = every();
        for kind in [&all[..4], &all[4..]] {
            let needs: Vec<_> = kind.iter().map(needed).collect();
            assert!(needs.windows(2).all(|pair| pair[0] < pair[1]), "{needs:?}");
        }
    }

    #[test]
    fn what_is_not_a_number_or_infinite_has_an_error_rate_all_the_same() {
        for modulation in every() {
            assert_eq!(modulation.bit_error_rate(f64::NAN), 0.5, "{modulation:?}");
            assert_eq!(modulation.bit_error_rate(f64::INFINITY), 0.0, "{modulation:?}");
            assert_eq!(modulation.bit_error_rate(f64::NEG_INFINITY), 0.5, "{modulation:?}");
        }
    }

    #[test]
    fn a_modulation_has_the_bits_per_second_of_its_rate() {
        for kbps in [1, 2, 11, 6, 9, 12, 18, 24, 36, 48, 54].map(|mbps| 1_000 * mbps) {
            let exact = rate(kbps).bits_per_second();
            assert!((exact - kbps as f64 * 1e3).abs() < 1e-3, "{exact} of {kbps}");
        }
        assert_eq!(rate(5_500).bits_per_second(), 5.5e6);
    }

    #[test]
    fn rates_that_802_11_does_not_have_are_refused() {
        assert_eq!(Modulation::of_rate(Bitrate::from_mbps(7)), None);
        assert_eq!(Modulation::of_rate(Bitrate::from_bps(u64::MAX)), None);
        assert_eq!(Modulation::of_mcs(12), None);
        assert_eq!(Modulation::of_mcs(0), Modulation::of_rate(Bitrate::from_mbps(6)));
    }
}
