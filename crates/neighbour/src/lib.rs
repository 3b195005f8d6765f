//! Neighbours that find each other: who on the link takes frames apart, and how large they may be.
//!
//! Routers say HELLO ([`sheaf_wire::hello`]) to all on the link, once a second while frames are
//! shared and as seldom as 20 bytes a second allow at rest. What changes is said soon. So a router
//! gathers packets only towards those who have said that they can split, and stops when they say
//! goodbye or fall silent.
//!
//! * [`config`]: the parameters;
//! * [`neighbourhood`]: the state machine, [`Neighbourhood`];
//! * [`timetable`]: when a HELLO leaves;
//! * [`table`]: the bounded table of neighbours, [`Neighbour`];
//! * [`seal`]: HELLOs that only holders of a key can write, [`SealKey`].
//!
//! ```
//! use sheaf_neighbour::{Config, Heard, Neighbourhood};
//! use sheaf_stage::Instant;
//! use sheaf_wire::hello::{Formats, Node, Splits};
//!
//! let splits = Some(Splits { formats: Formats::META, largest: 1500 });
//! let config = Config { splits, ..Config::default() };
//! let (ours, theirs) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
//! let mut here = Neighbourhood::new(config.clone(), ours, Node(1), Instant::ZERO);
//! let mut there = Neighbourhood::new(config, theirs, Node(2), Instant::ZERO);
//!
//! // The first HELLO of one leaves within a tenth of a second, and the other hears it.
//! let (mut hello, now) = (Vec::new(), here.next_deadline());
//! assert!(here.dequeue(now, &mut hello));
//! assert_eq!(there.hear(ours, &hello, now), Ok(Heard::Appeared));
//! assert_eq!(there.splits(ours), splits);
//! ```

pub mod config;
pub mod neighbourhood;
pub mod seal;
pub mod table;
pub mod timetable;

pub use config::Config;
pub use neighbourhood::{Heard, Neighbourhood, Refusal};
pub use seal::SealKey;
pub use table::{MAX_NEIGHBOURS, Neighbour};

/// A link address (MAC).
pub type LinkAddress = [u8; 6];
