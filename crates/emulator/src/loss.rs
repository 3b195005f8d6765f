//! Loss models.
//!
//! Sources: S. Salsano, F. Ludovici, A. Ordine, D. Giannuzzi, "Definition of a
//! general and intuitive loss model for packet networks and its implementation in the Netem
//! module" (2012), for the four states; E. N. Gilbert (1960) and E. O. Elliott (1963).

use crate::error::ConfigError;
use crate::loss_pattern::LossPattern;
use crate::random::{Chance, probability};
use std::sync::Arc;

/// A loss model. All probabilities are 0..=1.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// `loss random P [CORR]`.
    Random(Chance),
    /// `loss state P13 [P31 [P32 [P23 [P14]]]]`.
    State(FourState),
    /// `loss gemodel P [R [1-H [1-K]]]`.
    Gemodel(Gemodel),
    /// `loss pattern LIST|FILE [PERIOD]`. Cheap to clone.
    Pattern(Arc<LossPattern>),
}

/// Four states: 1 received in a gap, 2 received within a burst, 3 lost within a burst, 4 lost
/// alone in a gap. The first packet leaves state 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FourState {
    /// A burst begins.
    pub p13: f64,
    /// A burst ends.
    pub p31: f64,
    /// A packet comes through within a burst.
    pub p32: f64,
    /// The next one is lost again.
    pub p23: f64,
    /// A single packet is lost.
    pub p14: f64,
}

impl FourState {
    /// With the values that tc uses where only P13 is given.
    pub fn new(p13: f64) -> Self {
        FourState { p13, p31: 1.0 - p13, p32: 0.0, p23: 1.0, p14: 0.0 }
    }
}

/// A good and a bad state, each with its loss. The first packet finds the good one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gemodel {
    /// From good to bad.
    pub p: f64,
    /// From bad to good.
    pub r: f64,
    /// Loss in the bad state: 1-h.
    pub bad_loss: f64,
    /// Loss in the good state: 1-k.
    pub good_loss: f64,
}

impl Gemodel {
    /// With the values that tc uses where only P is given: a Bernoulli loss.
    pub fn new(p: f64) -> Self {
        Gemodel { p, r: 1.0 - p, bad_loss: 1.0, good_loss: 0.0 }
    }
}

impl Loss {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let each = |option, values: &[f64]| values.iter().try_for_each(|v| probability(option, *v));
        let sum = |option, sum: f64| match sum <= 1.0 + 1e-12 {
            true => Ok(()),
            false => Err(ConfigError::Sum { option, sum }),
        };
        match *self {
            Loss::None | Loss::Pattern(_) => Ok(()),
            Loss::Random(chance) => chance.check("loss random"),
            Loss::State(FourState { p13, p31, p32, p23, p14 }) => {
                each("loss state", &[p13, p31, p32, p23, p14])?;
                sum("loss state P13 + P14", p13 + p14)?;
                sum("loss state P31 + P32", p31 + p32)
            }
            Loss::Gemodel(Gemodel { p, r, bad_loss, good_loss }) => {
                each("loss gemodel", &[p, r, bad_loss, good_loss])
            }
        }
    }
}
