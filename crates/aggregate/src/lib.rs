//! Packet aggregation: many small packets to the same next hop travel in one frame.
//!
//! On 802.11 every frame pays for preamble, back-off and acknowledgement, whatever its size; a
//! voice packet of 60 bytes spends four fifths of its air time on that. Packets that wait for
//! the same next hop anyway can pay once.
//!
//! * [`config`]: policies and their parameters, checked;
//! * [`classify`]: which packets are gathered;
//! * [`aggregator`]: the stage that gathers and sends meta packets ([`Aggregator`]);
//! * [`queue`]: one queue per next hop and class, packed into frames as packets come;
//! * [`backoff`]: backoff on a contended channel;
//! * `streams`, `compressor`: the sending side of format 2: streams, and contexts of headers;
//! * [`splitter`]: the other end ([`Splitter`]), and whose meta packets it takes ([`Senders`]);
//! * [`receiver`], `sequence`, `decompressor`: the receiving side of format 2: streams, which
//!   frames of a stream have been received, contexts;
//! * [`answers`]: what is said of contexts, as few messages;
//! * [`stats`]: the counters of the theses and the ratios derived from them.
//!
//! This is the model of the eBPF programs and the engine where eBPF cannot be loaded: the same
//! packets give the same bytes.
//!
//! ```
//! use sheaf_aggregate::{Aggregator, Config, Device, Hop, Outbound, Splitter};
//! use sheaf_stage::{Duration, Instant, Stage};
//! use sheaf_wire::meta::Outer;
//!
//! let mut aggregator = Aggregator::new(Config::default())?;
//! let outer = Outer::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() };
//! let hop = aggregator.add_hop(Hop::neighbour(outer));
//!
//! // The radio has two frames of its own, so packets gather …
//! let now = Instant::ZERO;
//! aggregator.set_device(Device::Reports { waiting: 2, limit: 50 }, now);
//! for _ in 0..3 {
//!     let packet = sheaf_wire::ip::example_udp(&[0; 32]);
//!     aggregator.enqueue(Outbound { hop, mark: 0, packet }, now).expect("it is a packet");
//!     assert!(aggregator.dequeue(now).is_none());
//! }
//! // … and leave together when it can take a frame.
//! aggregator.set_device(Device::Reports { waiting: 0, limit: 50 }, now);
//! let mut frame = aggregator.dequeue(now).expect("three packets wait");
//! assert_eq!(frame.packets, 3);
//!
//! let mut splitter = Splitter::accepting_any();
//! let mut packets = 0;
//! splitter.split(&mut frame.bytes, |_inner| packets += 1)?;
//! assert_eq!(packets, 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod aggregator;
pub mod answers;
pub mod backoff;
pub mod classify;
mod compressor;
pub mod config;
mod decompressor;
pub mod inner;
pub mod queue;
pub mod receiver;
mod sequence;
pub mod splitter;
pub mod stats;
mod streams;

pub use aggregator::{Aggregator, Device, Format, Frame, Hop, HopId, MeshFrame, Outbound};
pub use answers::Answers;
pub use backoff::{Backoff, Finished};
pub use classify::{Rule, Rules, Verdict};
pub use config::{Config, ConfigError, Policy, Threshold};
pub use inner::Inner;
pub use receiver::Received;
pub use splitter::{Refused, Senders, Split, Splitter};
pub use stats::Stats;
