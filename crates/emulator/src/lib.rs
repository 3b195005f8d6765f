//! Emulated links.
//!
//! A packet meets a link's bandwidth first and its propagation delay then; so a [`Link`] is two
//! queues in a row, not the one of NetEm. All of NetEm's impairments and dummynet's pipes are
//! here, computed in logical time, and decided by seed and packet number.
//!
//! * [`link`]: the stage ([`Link`]), its [`config`], and a [`packet`] on its way through;
//! * [`queue`]: the rate queue and its management;
//! * [`overhead`]: bytes that packets cost on the wire;
//! * [`loss`], [`loss_pattern`]: loss models; `impairment`: all random decisions about a packet;
//! * [`distribution`]: shapes of random delays, `.dist` files, ping logs;
//! * [`trace`]: recorded links;
//! * [`classify`], [`mask`], [`pipes`]: many links ([`Pipes`]), rules that send packets through
//!   them, and masks that decide what a flow is;
//! * [`classes`]: pipes that share a rate and borrow from each other, as HTB's classes;
//! * [`cause`], [`accounting`]: causes of drops, delays and changes, counted and logged.
//!
//! ```
//! use sheaf_emulator::{Delay, Link, LinkConfig, Packet};
//! use sheaf_stage::{Bitrate, Duration, Instant, Stage};
//!
//! // 1000 bytes at 1 Mbit/s take 8 ms, then 50 ms on the way.
//! let config = LinkConfig {
//!     rate: Some(Bitrate::from_mbps(1)),
//!     delay: Delay::constant(Duration::from_millis(50)),
//!     ..LinkConfig::default()
//! };
//! let mut link = Link::new(config, 1)?;
//! link.enqueue(Packet::new(vec![0; 1000], Instant::ZERO, 0), Instant::ZERO).expect("it is empty");
//! assert_eq!(link.next_deadline(), Some(Instant::from_millis(58)));
//! let packet = link.dequeue(Instant::from_millis(59)).expect("it is due");
//! assert_eq!(packet.depart, Instant::from_millis(58), "whenever it was asked for");
//! # Ok::<(), sheaf_emulator::ConfigError>(())
//! ```

pub mod accounting;
pub mod cause;
pub mod classes;
pub mod classify;
pub mod config;
mod delay_line;
pub mod distribution;
mod error;
mod flow;
mod impairment;
mod jitter;
pub mod link;
pub mod loss;
pub mod loss_pattern;
pub mod mask;
mod normal;
pub mod overhead;
pub mod packet;
pub mod pipes;
pub mod queue;
pub mod random;
pub mod trace;
mod transmitter;
pub mod units;

pub use accounting::{Backlog, Event, Log, Stats};
pub use cause::{Cause, Causes};
pub use classes::{ClassConfig, ClassStats};
pub use classify::{Action, Rule};
pub use config::{Delay, LinkConfig, Reorder, Slot, SlotWait};
pub use distribution::{DistError, Distribution};
pub use error::ConfigError;
pub use link::Link;
pub use loss::{FourState, Gemodel, Loss};
pub use loss_pattern::{LossPattern, LossPatternError};
pub use mask::{Bits, Mask};
pub use overhead::Overhead;
pub use packet::{Direction, Packet, Segments, Target};
pub use pipes::{PipeConfig, PipeStats, Pipes};
pub use queue::{Limit, QueueConfig};
pub use random::Chance;
pub use trace::{Trace, TraceConfig};
