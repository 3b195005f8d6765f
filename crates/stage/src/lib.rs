//! The contract that carries Sheaf: *stages without I/O*.
//!
//! Every algorithm of Sheaf (aggregator, radio medium, trunk, rate queue …) is a pure state
//! machine that never reads a clock, sleeps or opens a socket. Time is an argument. So the same
//! code runs behind real interfaces and under a virtual clock, is replayed by seed, fuzzed by
//! operation sequence, and compared with its eBPF twin packet by packet.
//!
//! * [`time`]: [`Instant`], [`Duration`]: nanoseconds on an abstract clock;
//! * [`rate`]: [`Bitrate`], and the time that bytes take at it;
//! * [`stage`]: the [`Stage`] trait and its contract;
//! * [`counters`]: the balance sheet of a stage, with a [`DropReason`] for every loss;
//! * [`heap`]: the smallest of many keys that change, for deadlines;
//! * [`conformance`]: the suite that every stage passes.
//!
//! ```
//! use sheaf_stage::{Bitrate, Duration, Instant};
//!
//! // A 1500-byte packet on a 2 Mbit/s link.
//! let rate = Bitrate::from_bps(2_000_000);
//! assert_eq!(rate.time_for(1500), Duration::from_micros(6000));
//! assert_eq!(Instant::ZERO + Duration::from_millis(6), Instant::from_nanos(6_000_000));
//! ```

pub mod conformance;
pub mod counters;
pub mod heap;
pub mod rate;
pub mod stage;
pub mod time;

pub use counters::{Counters, DropReason};
pub use heap::IndexedHeap;
pub use rate::Bitrate;
pub use stage::Stage;
pub use time::{Duration, Instant};
