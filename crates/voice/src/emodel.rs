//! The E-model (ITU-T G.107) in its reduced form: R = 93.2 − Id − Ie,eff.
//!
//! Delay costs Id = 0.024 d + 0.11 (d − 177.3) H(d − 177.3) with d in milliseconds from mouth to
//! ear; the codec and its losses cost Ie,eff = Ie + (95 − Ie) Ppl / (Ppl / BurstR + Bpl). Values of
//! Ie and Bpl are those of G.113, Appendix I.

/// A voice codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// G.711 with packet loss concealment: 160 bytes every 20 ms.
    G711,
    /// G.729A with voice activity detection: 20 bytes every 20 ms.
    G729A,
}

impl Codec {
    /// Equipment impairment Ie.
    pub const fn impairment(self) -> f64 {
        match self {
            Codec::G711 => 0.0,
            Codec::G729A => 11.0,
        }
    }

    /// Robustness against loss, Bpl.
    pub const fn robustness(self) -> f64 {
        match self {
            Codec::G711 => 25.1,
            Codec::G729A => 19.0,
        }
    }

    /// Bytes of voice in a packet.
    pub const fn payload(self) -> usize {
        match self {
            Codec::G711 => 160,
            Codec::G729A => 20,
        }
    }

    /// Delay of the codec in milliseconds: the speech of one packet, and the look-ahead.
    pub const fn delay_ms(self) -> f64 {
        match self {
            Codec::G711 => 20.0,
            Codec::G729A => 25.0,
        }
    }

    /// The rating R for `delay` ms from mouth to ear and a share of `loss` (0..1) of the packets,
    /// lost in bursts of `burst` times the length that random loss would give (1 for random).
    pub fn r(self, delay: f64, loss: f64, burst: f64) -> f64 {
        let delay_impairment = 0.024 * delay + 0.11 * (delay - 177.3).max(0.0);
        let percent = 100.0 * loss;
        let ie = self.impairment();
        let effective = ie + (95.0 - ie) * percent / (percent / burst + self.robustness());
        93.2 - delay_impairment - effective
    }
}

/// Mean opinion score, 1..4.5, of a rating (G.107, Annex B).
pub fn mos(r: f64) -> f64 {
    match r {
        r if r <= 0.0 => 1.0,
        r if r >= 100.0 => 4.5,
        r => (1.0 + 0.035 * r + 7e-6 * r * (r - 60.0) * (100.0 - r)).max(1.0),
    }
}

/// The name of a rating's class (UWC's scale).
pub fn class(r: f64) -> &'static str {
    match r {
        r if r >= 90.0 => "best",
        r if r >= 80.0 => "high",
        r if r >= 70.0 => "medium",
        r if r >= 60.0 => "low",
        r if r >= 50.0 => "poor",
        _ => "unusable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_opinion_scores_are_those_of_the_published_scale() {
        for (r, published) in [(50.0, 2.58), (60.0, 3.10), (70.0, 3.60), (80.0, 4.03), (90.0, 4.34)]
        {
            assert!((mos(r) - published).abs() < 0.01, "MOS of {r}: {}", mos(r));
        }
        assert_eq!((mos(-3.0), mos(120.0)), (1.0, 4.5));
        assert_eq!((class(85.0), class(69.9)), ("high", "low"));
    }

    #[test]
    fn delay_hurts_more_beyond_177_ms_and_bursts_more_than_random_loss() {
        assert!((Codec::G711.r(277.3, 0.0, 1.0) - (93.2 - 0.024 * 277.3 - 11.0)).abs() < 1e-9);
        // 2 % random loss with G.729A: 11 + 84 · 2 / 21 = 19.
        assert!((Codec::G729A.r(0.0, 0.02, 1.0) - (93.2 - 19.0)).abs() < 1e-9);
        assert!(Codec::G729A.r(0.0, 0.02, 2.0) < Codec::G729A.r(0.0, 0.02, 1.0));
    }
}
