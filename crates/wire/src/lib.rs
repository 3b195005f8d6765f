//! Wire formats: what Sheaf puts on the air, and the little of IP that it must read.
//!
//! * [`ip`]: a checked view of one IPv4 or IPv6 packet (headers by `etherparse`);
//! * [`aggfrag`]: frames of format 2, in which packets may continue in the next frame;
//! * [`checksum`]: the Internet checksum, and finishing the unfinished ones that Linux hands out;
//! * [`compress`]: header compression inside these frames;
//! * [`crc`]: cyclic redundancy checks;
//! * [`dscp`]: classes and their names;
//! * [`ecn`]: congestion marks through a tunnel, RFC 6040;
//! * [`ethernet`]: the header of an Ethernet frame;
//! * [`flow`]: the five-tuple of a packet, and its hash;
//! * [`group`]: frames of format 2 to a group of hosts;
//! * [`hello`]: what neighbours tell each other of themselves;
//! * [`header`]: the class of a packet, and congestion marks, in place;
//! * [`meta`]: the meta packet: several IP packets in one;
//! * [`prefix`]: prefixes of addresses;
//! * [`trunk`]: frames on the links of a trunk.
//!
//! Bytes from the network never panic here; they are refused with a reason.
//!
//! ```
//! use sheaf_wire::ecn::Ecn;
//! use sheaf_wire::meta::{HOP_LIMIT_NEIGHBOUR, Meta, Outer, Repr};
//!
//! // Two minimal IPv4 packets (a bare header each) in one meta packet.
//! let inner = sheaf_wire::ip::example_v4();
//! let outer = Outer::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() };
//! let repr = Repr { outer, dscp: 0, ecn: Ecn::NotEct, hop_limit: HOP_LIMIT_NEIGHBOUR };
//! let mut frame = vec![0; repr.header_len()];
//! frame.extend_from_slice(&inner);
//! frame.extend_from_slice(&inner);
//! let len = frame.len();
//! repr.emit(len, &mut frame);
//!
//! let meta = Meta::parse(&frame)?;
//! assert!(meta.packets().all(|packet| packet.bytes() == inner));
//! assert_eq!(meta.packets().count(), 2);
//! # Ok::<(), sheaf_wire::meta::Refusal>(())
//! ```

pub mod aggfrag;
pub mod batman;
pub mod checksum;
pub mod compress;
pub mod crc;
pub mod dscp;
pub mod ecn;
pub mod ethernet;
pub mod flow;
pub mod group;
pub mod header;
pub mod hello;
pub mod ip;
pub mod meta;
pub mod prefix;
pub mod trunk;
