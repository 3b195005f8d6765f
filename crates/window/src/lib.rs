//! Advertised-window control, the pure part: how a router makes TCP leave the queue empty.
//!
//! TCP fills the bottleneck's queue until it loses a packet, and every game and call behind the
//! same router waits in that queue. But a sender never has more in flight than its receiver
//! advertises, and the router sees every acknowledgement. With smaller windows in them all flows
//! together use what UDP leaves free, and no queue builds; nothing changes at either end.
//!
//! * [`rewrite`]: the model of the eBPF program: tables, and windows lowered in place;
//! * [`flow`]: the state of one connection, and the window that it may be given;
//! * [`segment`], [`key`], [`lru`]: TCP headers, names of flows, bounded tables;
//! * [`controller`]: reads counters, gives windows, ten times a second; [`config`]: its parameters;
//! * pushed segments ([`Push`]): acknowledgements for single segments on slow links;
//! * [`shares`]: the division of capacity: formula 1, formula 2, max-min, fixed;
//! * `rounding`: shares in whole segments;
//! * `slow_start`: the growth of windows;
//! * [`stretch`]: a little more where shares leave the link idle;
//! * [`capacity`]: the bottleneck's rate, given or found;
//! * [`responsiveness`]: round trips per minute under load, and the grade of bufferbloat;
//! * [`usage`]: the rate of all that windows do not govern;
//! * `yielding`: whether TCP yields to that, or competes with it;
//! * [`rest`]: bulk data among that, held to its share by marks and drops.
//!
//! ```
//! use sheaf_stage::{Bitrate, Instant};
//! use sheaf_window::{Config, Controller, Direction, Formula, Rewriter, Source};
//!
//! let config = Config {
//!     formula: Formula::MaxMin,
//!     capacity: Source::Given(Bitrate::from_mbps(20)),
//!     ..Config::default()
//! };
//! let mut rewriter = Rewriter::new(); // or the eBPF program
//! let mut controller = Controller::new(config, Direction::In)?;
//! for tick in 1..=10 {
//!     let now = Instant::from_millis(100 * tick);
//!     for (key, connection) in rewriter.flows() {
//!         controller.observe(*key, connection);
//!     }
//!     controller.observe_totals(rewriter.totals(Direction::In));
//!     for decision in controller.step(now) {
//!         rewriter.set(decision.flow, decision.value);
//!     }
//!     rewriter.set_initial(Direction::In, controller.initial(), controller.spare());
//!     rewriter.set_growth(Direction::In, controller.growth());
//!     rewriter.set_rest(Direction::In, controller.rest());
//!     rewriter.beat(now);
//! }
//! assert_eq!(controller.status().capacity, 20e6);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod capacity;
pub mod config;
pub mod controller;
pub mod cost;
pub mod flow;
mod gauge;
pub mod key;
pub mod lru;
pub mod pace;
pub mod responsiveness;
pub mod rest;
pub mod rewrite;
mod rounding;
pub mod segment;
pub mod shares;
mod slow_start;
pub mod stretch;
pub mod usage;
mod yielding;

pub use capacity::Source;
pub use config::{Config, ConfigError, Push};
pub use controller::{Controller, Decision, Load, Status};
pub use flow::{Connection, Half};
pub use key::{Direction, FlowId, Key};
pub use responsiveness::Responsiveness;
pub use rest::{Policy, Rest, RestKey, RestSetting};
pub use rewrite::{Outcome, Passing, Rewriter, Totals};
pub use shares::Formula;
pub use slow_start::Growth;
