//! Quality of the radio link to a neighbour, and the largest packet that the link carries well.
//!
//! Principle: a frame of more bits is lost more often, 1 − (1 − BER)^bits. From what is measured of
//! a neighbour this crate estimates the bit error rate, and from it the largest packet whose frame
//! error rate stays under a target. Source: the Simple Packet Size Selection Protocol of Karlstad
//! (2008), section 3.4, which measured the signal-to-noise ratio alone; here delivery counts, too.
//!
//! * [`modulation`]: bit error rate from the signal-to-noise ratio, for each rate of 802.11;
//! * [`size`]: frame error rate, the largest packet under a target, and the one that carries most;
//! * [`smooth`]: the moving average of the protocol;
//! * [`sample`]: one set of measurements of one neighbour;
//! * [`source`]: where samples come from, best first;
//! * [`losses`]: the part of the losses that grows with the frame;
//! * [`correction`]: the ratio, corrected by the frames that were lost;
//! * [`quality`]: the state of one neighbour, [`Quality`].
//!
//! ```
//! use sheaf_quality::{Config, Modulation, Quality, Sample};
//! use sheaf_stage::{Duration, Instant};
//!
//! let mut quality = Quality::new(Config::default());
//! let modulation = Modulation::of_rate(sheaf_stage::Bitrate::from_mbps(54));
//! let sample = |signal| Sample { signal_dbm: Some(signal), modulation, ..Sample::default() };
//! let start = Instant::from_millis(1);
//! quality.sample(start, sample(-60.0));
//! assert_eq!(quality.largest(start), Some(1500));
//! // The station walks away: 64-QAM is hardly read 22 dB above the noise floor of −95 dBm.
//! for second in 1..=3 {
//!     quality.sample(start + Duration::from_secs(second), sample(-73.0));
//! }
//! assert!(quality.largest(start + Duration::from_secs(3)) < Some(200));
//! // Nothing is said about a neighbour of which nothing was measured for five seconds.
//! assert_eq!(quality.largest(start + Duration::from_secs(9)), None);
//! ```

pub mod correction;
pub mod losses;
pub mod modulation;
pub mod quality;
pub mod sample;
pub mod size;
pub mod smooth;
pub mod source;

pub use modulation::Modulation;
pub use quality::{Config, Estimate, Quality};
pub use sample::{Sample, Transmitted};
pub use source::{Fixed, Origin, Source, Sources};
