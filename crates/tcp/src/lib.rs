//! TCP as Linux runs it, as a pure machine on real IPv4 packets: for experiments under a virtual
//! clock.
//!
//! A [`Host`] has connections on which it sends, or receives, bulk data. Packets are whole:
//! headers, options, checksums; their data is zeros. Time is an argument. The same seed gives the
//! same packets on every machine, because nothing is computed in floating point.
//!
//! * [`host`]: a host and its connections; [`config`]: settings; [`refusal`]: packets not used;
//! * `connection`: handshake, options, and the two halves; `sequence`: numbers modulo 2³²;
//!   `segment`: headers and options;
//! * `receiver`: acknowledgements, delayed, selective (RFC 2018) and of duplicates (RFC 2883);
//!   `ranges`: sets of offsets;
//! * `sender`: recovery from losses with tail probes, proportional reduction (RFC 6937) and undo;
//!   `scoreboard`: segments under way; `rack`: losses found by time (RFC 8985); `rtt`: the timeout
//!   (RFC 6298); `pacer`: pacing;
//! * `control`: congestion control: CUBIC (RFC 9438) and BBR of version 1; `random`: its dice.
//!
//! Left out, as bulk transfers do not need it: urgent data, resets, Nagle's algorithm, ECN, path
//! MTU discovery, and restarts after idle times. The receive window does not begin small and grow,
//! as Linux's does, and acknowledgements behind a gap are not compressed. A connection never gives
//! up.
//!
//! ```
//! use sheaf_stage::Instant;
//! use sheaf_tcp::{Config, Host};
//! use std::net::Ipv4Addr;
//!
//! let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
//! let config = Config { bytes: Some(1_000_000), ..Config::default() };
//! let mut sender = Host::sender(config, a, b, 1, 7);
//! let mut receiver = Host::receiver(config, b, 1, 8);
//! let mut now = Instant::ZERO;
//! while sender.flows()[0].finished.is_none() {
//!     // A path without delay.
//!     loop {
//!         let (out, back) = (sender.dequeue(now), receiver.dequeue(now));
//!         if out.is_none() && back.is_none() {
//!             break;
//!         }
//!         for packet in out {
//!             receiver.enqueue(packet, now)?;
//!         }
//!         for packet in back {
//!             sender.enqueue(packet, now)?;
//!         }
//!     }
//!     let deadlines = [sender.next_deadline(), receiver.next_deadline()];
//!     now = deadlines.into_iter().flatten().min().unwrap_or(now);
//! }
//! assert_eq!(receiver.flows()[0].bytes, 1_000_000);
//! # Ok::<(), sheaf_tcp::Refusal>(())
//! ```

pub mod config;
mod connection;
mod control;
mod growth;
pub mod host;
mod pacer;
mod rack;
mod random;
mod ranges;
mod receiver;
pub mod refusal;
mod rtt;
mod scoreboard;
mod segment;
mod sender;
mod sequence;

pub use config::{Algorithm, Config};
pub use host::{FROM_PORT, Flow, Host, PORT};
pub use refusal::{Refusal, Refusals};
