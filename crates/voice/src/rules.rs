//! Three rules by which a call counts as supported.

use crate::playout::Heard;
use sheaf_stage::Duration;

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// KAU: loss below 5 %, mean latency and jitter together below 150 ms.
    Kau,
    /// UWC: loss below 4 %, delay with jitter below 150 ms.
    Uwc,
    /// Rating of at least 70, play-out included.
    R70,
}

impl Rule {
    /// All rules.
    pub const ALL: [Rule; 3] = [Rule::Kau, Rule::Uwc, Rule::R70];

    /// The name used in plans and results.
    pub const fn name(self) -> &'static str {
        match self {
            Rule::Kau => "kau",
            Rule::Uwc => "uwc",
            Rule::R70 => "r70",
        }
    }

    /// Whether a flow with this loss (0..1), mean delay, jitter and quality is supported.
    pub fn supports(self, loss: f64, delay: Duration, jitter: Duration, heard: &Heard) -> bool {
        let in_time = delay + jitter < Duration::from_millis(150);
        match self {
            Rule::Kau => loss < 0.05 && in_time,
            Rule::Uwc => loss < 0.04 && in_time,
            Rule::R70 => heard.r >= 70.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_themselves_are_not_supported() {
        let ms = Duration::from_millis;
        let heard = Heard { delay: ms(60), loss: 0.0, r: 70.0, mos: 3.6 };
        assert!(Rule::Kau.supports(0.049, ms(100), ms(49), &heard));
        assert!(!Rule::Kau.supports(0.05, ms(100), ms(49), &heard));
        assert!(!Rule::Kau.supports(0.0, ms(100), ms(50), &heard));
        assert!(!Rule::Uwc.supports(0.04, ms(10), ms(1), &heard));
        assert!(Rule::R70.supports(0.9, ms(900), ms(1), &heard));
    }
}
