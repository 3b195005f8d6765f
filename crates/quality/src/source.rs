//! Sources of samples.
//!
//! Sources are asked best first, and each completes what the better ones did not measure: so the
//! HELLO ratio stands beside the signal of the driver, and a fixed size counts where nothing is
//! measured.

use crate::sample::Sample;
use core::fmt;
use sheaf_stage::Instant;

/// Kinds of sources, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// The driver's data of a station, by nl80211.
    Station,
    /// Own figures of delivery: HELLOs that arrived.
    Delivery,
    /// The mesh's routing: transmit quality or throughput of batman-adv.
    Mesh,
    /// The emulated medium.
    Medium,
    /// A value that a user set.
    Fixed,
}

/// A source of samples.
pub trait Source {
    /// Kind of the source.
    fn origin(&self) -> Origin;

    /// Measurements of the neighbour with this link address; `None` where the source has none.
    fn sample(&mut self, neighbour: [u8; 6], now: Instant) -> Option<Sample>;
}

/// One sample for every neighbour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fixed(pub Sample);

impl Source for Fixed {
    fn origin(&self) -> Origin {
        Origin::Fixed
    }

    fn sample(&mut self, _: [u8; 6], _: Instant) -> Option<Sample> {
        Some(self.0)
    }
}

/// Sources, best first.
#[derive(Default)]
pub struct Sources {
    sources: Vec<Box<dyn Source>>,
}

impl Sources {
    /// Adds a source behind the better ones and those of its kind.
    pub fn add(&mut self, source: Box<dyn Source>) {
        let at = self.sources.partition_point(|other| other.origin() <= source.origin());
        self.sources.insert(at, source);
    }

    /// Measurements of a neighbour from all sources, and the best source among those that have one;
    /// `None` without a measurement.
    pub fn sample(&mut self, neighbour: [u8; 6], now: Instant) -> Option<(Origin, Sample)> {
        self.sources.iter_mut().fold(None, |found, source| {
            let sample = source.sample(neighbour, now);
            match (found, sample) {
                (Some((origin, best)), Some(sample)) => Some((origin, Sample::or(best, sample))),
                (None, Some(sample)) => Some((source.origin(), sample)),
                (found, None) => found,
            }
        })
    }
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.sources.iter().map(|source| source.origin())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Of(Origin, [u8; 6], Sample);

    impl Source for Of {
        fn origin(&self) -> Origin {
            self.0
        }

        fn sample(&mut self, neighbour: [u8; 6], _: Instant) -> Option<Sample> {
            (neighbour == self.1).then_some(self.2)
        }
    }

    #[test]
    fn better_sources_go_first_and_worse_ones_complete_them() {
        let mut sources = Sources::default();
        let fixed = Sample { largest: Some(500), snr_db: Some(3.0), ..Sample::default() };
        let driver = Sample { signal_dbm: Some(-60.0), ..Sample::default() };
        let hello = Sample { hello_ratio: Some(0.5), signal_dbm: Some(-1.0), ..Sample::default() };
        let (near, far) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        sources.add(Box::new(Fixed(fixed)));
        sources.add(Box::new(Of(Origin::Delivery, near, hello)));
        sources.add(Box::new(Of(Origin::Station, near, driver)));
        let joined = Sample {
            signal_dbm: Some(-60.0),
            hello_ratio: Some(0.5),
            largest: Some(500),
            ..Sample::default()
        };
        let now = Instant::ZERO;
        assert_eq!(sources.sample(near, now), Some((Origin::Station, joined)));
        assert_eq!(sources.sample(far, now), Some((Origin::Fixed, fixed)));
        assert_eq!(Sources::default().sample(near, now), None);
    }
}
