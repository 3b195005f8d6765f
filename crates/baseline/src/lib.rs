//! Published systems, as their papers define them, for comparison in the lab.
//!
//! Each module is one system in its own words: nothing is shared with the crates that improve on
//! it, and nothing is added to it. Where a paper leaves a value open, the module says which value
//! is assumed. All are stages without I/O ([`sheaf_stage::Stage`]), except the window formula.
//!
//! * [`kau`]: the aggregating qdisc over a device with one place (Karlstad 2008), and a plain one;
//! * [`nctu`]: the wireless trunk with one sequence and one timer (Chiao Tung 2004);
//! * [`srr`]: Surplus Round Robin with periodic markers (SIGCOMM 1996);
//! * [`trr`]: Trigger Round Robin (1998);
//! * [`netem`]: NetEm with a token bucket in one queue, as measured in Oslo 2013;
//! * [`interface`]: an Ethernet interface at its line rate, as measured there beside it;
//! * [`slus`]: formula 1 for advertised windows (Padova 2010).
//!
//! The two halves of a trunk have one shape: a `Sender` takes packets and gives out a [`Frame`] for
//! a link; a `Receiver` takes frames and gives out packets.
//!
//! ```
//! use sheaf_baseline::nctu::{Receiver, Sender};
//! use sheaf_stage::{Instant, Stage};
//!
//! let (mut sender, mut receiver) = (Sender::new(2), Receiver::new());
//! let now = Instant::ZERO;
//! sender.enqueue(b"first".to_vec(), now)?;
//! sender.enqueue(b"second".to_vec(), now)?;
//! let mut frames: Vec<_> = std::iter::from_fn(|| sender.dequeue(now)).collect();
//! assert_eq!(frames.iter().map(|frame| frame.link).collect::<Vec<_>>(), [0, 1]);
//!
//! // The second link is the quicker one. Its packet waits for the first.
//! receiver.enqueue(frames.remove(1), now)?;
//! assert_eq!(receiver.dequeue(now), None);
//! receiver.enqueue(frames.remove(0), now)?;
//! assert_eq!(receiver.dequeue(now).as_deref(), Some(&b"first"[..]));
//! assert_eq!(receiver.dequeue(now).as_deref(), Some(&b"second"[..]));
//! # Ok::<(), sheaf_stage::DropReason>(())
//! ```

mod fifo;
mod frame;
pub mod interface;
pub mod kau;
mod link_queues;
pub mod nctu;
pub mod netem;
pub mod slus;
pub mod srr;
pub mod trr;

pub use frame::Frame;
