//! Header compression of IP, UDP and RTP inside frames of format 2.
//!
//! Most of the 40 to 60 bytes of headers of a voice packet are the same in every packet of its
//! flow, or follow from its RTP sequence number. A [`Context`] has what stays the same. It is
//! defined in band, by a full packet, and used once the other end has acknowledged it. A compressed
//! packet then has 4 bytes of header.
//!
//! ```text
//! Definition, then the packet that defines the context:
//! +-------+-+-+---+---------------+-------------------------------+
//! |   9   |0|R|id |    number     |            stride             |
//! +-------+-+-+---+---------------+-------------------------------+
//!
//! Compact, then the payload, whose length is that of the context:
//! +---+---------------+-----------+-------------------------------+
//! |1 1|    number     |counter, 6 |             check             |
//! +---+---------------+-----------+-------------------------------+
//!
//! Long, then the fields that its flags announce (M has none), then the payload:
//! +-------+-+-+-+-+---------------+---------------+---------------+
//! |  10   |M|L|T|I|    number     |  counter, 8   |    check …    |
//! +-------+-+-+-+-+---------------+---------------+---------------+
//! |    … check    | L: payload length, 16 bits; T: RTP time stamp, 32; I: identification, 16
//! +---------------+-----------------------------------------------
//! ```
//!
//! # Rules
//!
//! They are SCHC's (RFC 8724) with fixed rules in place of a table. Every field is one of these:
//!
//! * *constant*: in the context and never sent. Addresses, ports, class and ECN field, hop limit,
//!   flow label, DF, RTP payload type and SSRC;
//! * *computed*: lengths and the checksums of IPv4 and UDP. Whether UDP has a checksum is constant;
//! * *counter*: RTP's sequence number, or without RTP the identification of IPv4 if it counts; by
//!   its low bits against the newest of the flow that was restored ([`Reference`]);
//! * *time stamp* of RTP: the counter times the stride, from the last jump on; explicit where it
//!   jumps, which it does when a silence ends;
//! * *marker* of RTP: 0 in the compact form, explicit in the long one;
//! * *identification* of IPv4: constant, following the counter at a fixed distance, or explicit
//!   ([`IdRule`]).
//!
//! Packets that fit no rule travel as they are: options, fragments, other protocols, RTP with
//! padding, extension or contributing sources, any packet whose checksum is wrong, and any packet
//! whose constants are not those of its flow.
//!
//! # Losses and reordering
//!
//! The low 6 bits stand for the counters from 15 before to 48 after the newest one restored, so the
//! compact form survives 47 losses of a flow in a row and 15 packets of delay. The 8 bits of the
//! long form stand for 63 before to 192 after. Nothing but the reference changes from packet to
//! packet, and it changes only by packets whose check was right. So damage does not propagate,
//! which it did in CRTP (RFC 2508) by its differences, and no mode or state of the compressor has
//! to be followed, as in ROHC (RFC 5225). A jump of the time stamp is the one thing that a loss can
//! hide, so the compressor repeats it in further frames. A frame may have many packets of one flow;
//! the compressor therefore reckons with the loss of frames, not of packets.
//!
//! # The check
//!
//! A CRC of 16 bits over all header bytes of the original packet, both checksums included, shuffled
//! by the generation of the context. ROHC's shortest CRC of 3 bits lets one in eight wrong
//! restorations through when a burst of losses has moved the window. The width is that of the UDP
//! checksum, because this check stands for it: the checksum is restored from the payload that
//! arrived, so a damaged payload gives another checksum than the original's, and the check fails. A
//! receiver therefore believes a packet for the same 16 bits as before. RFC 6282 (section 4.3.2)
//! and RFC 8724 (section 10.11) ask for no less of whoever elides the checksum.
//!
//! # Generation
//!
//! A context's number is used for another flow once its flow has been silent. The receiver draws a
//! *generation* of 16 bits for each definition with other constants, in a secret order, and
//! says it in the acknowledgement. It goes into the check. A packet that refers to a context
//! which has been replaced, forged or damaged since therefore fails, except for one in 65,536;
//! whoever forges a definition cannot construct one that passes, because the generation is drawn
//! after it was sent. The acknowledgement has a CRC-32 of the constants, so only the compressor's
//! own definition counts, and who does not see the definition cannot acknowledge it.

mod codec;
mod context;
pub mod feedback;
mod headers;
mod reference;

pub use codec::{Compressed, restore};
pub use context::{Context, Definition, IdRule, Rules};
pub use headers::{Headers, MAX_HEADERS, Rtp};
pub use reference::Reference;

/// Contexts of one stream: the number has 8 bits.
pub const MAX_CONTEXTS: usize = 256;

#[cfg(test)]
mod tests;
