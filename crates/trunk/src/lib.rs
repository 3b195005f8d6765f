//! The trunk: one interface over several links, in order, adapting.
//!
//! The sending end numbers packets and deals them out to links of any rate and delay; the
//! receiving end hands them up in the order of their flows. The rates of the links are learned from
//! traffic. Everything here is pure: the carriers (Ethernet frames, UDP) live elsewhere.
//!
//! * [`endpoint`]: one end as a machine without I/O ([`Endpoint`]);
//!   * [`endpoint::remote`]: the address of each link's other end, given or learned;
//!   * [`endpoint::outcome`]: the result of a frame ([`Received`]), a frame to send ([`Transmit`]);
//! * [`sender`]: numbers packets, deals them out ([`Sender`]);
//!   * [`schedule`]: the choice of a link for a packet, one file per scheduler;
//!   * [`rate`]: the rate of a link, learned;
//!   * [`link`]: a link's queue, urgent frames first, and its state by the reports;
//!   * `flow_queues`: packets that wait for a link, in turns by flows;
//!   * `codel_gate`: single packets are dropped before the queues are full;
//!   * `fallback`: never worse than the best single link;
//!   * `sender::compress`: headers that the other end knows; `endpoint::headers` restores them;
//! * [`resequencer`]: order, per flow ([`Resequencer`], a [`Stage`](sheaf_stage::Stage));
//!   * [`timer`]: the reordering timer of each flow;
//!   * `window`: the frames that wait;
//!   * `gaps`: the frames that are missing on a link, to be asked for again;
//! * [`secure`]: keys, handshakes, and one replay window over all links;
//! * [`quota`]: bytes of a link in a calendar period ([`Quota`]), counted by who runs the endpoint;
//! * [`seed`]: randomness, given once;
//! * [`flow`]: flows, as buckets of a hash;
//! * [`config`]: parameters, checked.
//!
//! The frames are in [`sheaf_wire::trunk`]. [`Endpoint::with_key`] makes an end that encrypts them.
//!
//! ```
//! use sheaf_stage::Instant;
//! use sheaf_trunk::{DeliveryMode, Endpoint, EndpointConfig, LinkConfig};
//!
//! let mut here: Endpoint = Endpoint::new(EndpointConfig::default(), 1)?;
//! let mut there: Endpoint = Endpoint::new(EndpointConfig::default(), 2)?;
//! for _ in 0..2 {
//!     here.add_link(LinkConfig::default())?;
//!     there.add_link(LinkConfig::default())?;
//! }
//!
//! // Links without delay: the ends exchange their sessions …
//! let (now, mut frame) = (Instant::ZERO, Vec::new());
//! while let Some(transmit) = here.poll_transmit(now, &mut frame) {
//!     there.handle_frame(transmit.link, None, &frame, now);
//!     while let Some(transmit) = there.poll_transmit(now, &mut frame) {
//!         here.handle_frame(transmit.link, None, &frame, now);
//!     }
//! }
//! assert!(here.is_established() && there.is_established());
//!
//! // … and a packet passes.
//! let packet = sheaf_wire::ip::example_udp(&[0; 32]);
//! here.handle_packet(&packet, DeliveryMode::Order, now).expect("there is room");
//! let transmit = here.poll_transmit(now, &mut frame).expect("a packet waits");
//! there.handle_frame(transmit.link, None, &frame, now);
//! assert_eq!(there.poll_deliver(now), Some(&packet[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod codel_gate;
pub mod config;
pub mod endpoint;
mod fallback;
pub mod flow;
mod gaps;
mod inbound;
pub mod link;
mod order;
pub mod quota;
pub mod rate;
mod recovery;
pub mod resequencer;
pub mod schedule;
pub mod secure;
pub mod seed;
mod segment;
pub mod sender;
pub mod timer;
mod window;

pub use config::{ConfigError, EndpointConfig, ReorderConfig, Scheduler, SenderConfig};
pub use endpoint::outcome::{FrameKind, Received, Refusal, Transmit};
pub use endpoint::remote::{Address, Remote};
pub use endpoint::{Endpoint, EndpointStats, LinkReceived};
pub use flow::{DeliveryMode, Flow};
pub use link::{Fill, LinkConfig, LinkStats};
pub use quota::Quota;
pub use resequencer::{Arrival, Delivery, ReorderStats, Resequencer};
pub use secure::{Key, KeyError};
pub use seed::Seed;
pub use sender::{LinkId, Sender};
