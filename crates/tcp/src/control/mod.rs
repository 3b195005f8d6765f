//! Congestion control: its contract, and the algorithms.
//!
//! The sender keeps the window, finds losses and repairs them. An algorithm grows the window or
//! sets it outright, says how far a loss lowers it, and may pace the segments.

mod bbr;
mod contract;
mod cubic;

use crate::config::Algorithm;

pub(crate) use contract::{Connection, Control, Pace, Phase, Rate, Sample, Window};

/// The algorithm of that name; `seed` decides everything random.
pub(crate) fn new(algorithm: Algorithm, seed: u64) -> Box<dyn Control> {
    match algorithm {
        Algorithm::Cubic => Box::new(cubic::Cubic::default()),
        Algorithm::Bbr => Box::new(bbr::Bbr::new(seed)),
    }
}
