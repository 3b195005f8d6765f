//! Trunks of 802.11 links: the experiments of "Using Wireless Trunks to increase available
//! bandwidth" (National Chiao Tung University, NSC92-2213-E-009-063, 2004; NCTU).
//!
//! Two stations have a radio on each of several channels; every channel is a
//! [`sheaf_medium::Medium`] of its own, where a pair of neighbours, a hidden one, bit errors or
//! the distance between the stations may take from the link. Over all of them lies one trunk, over
//! it go TCP or UDP.
//!
//! * [`point`]: one point, worked out: links, traffic, treatment;
//! * [`outcome`]: what it came to;
//! * [`air`]: a channel and who is on it;
//! * [`traffic`]: TCP and UDP under a virtual clock, measured packet by packet;
//! * [`virtual_time`]: the engine under a virtual clock.

pub mod air;
pub mod outcome;
pub mod point;
mod tcp;
mod traffic;
pub mod virtual_time;
