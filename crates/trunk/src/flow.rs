//! Flows: what keeps its order.
//!
//! A flow is a hash of addresses, protocol and ports (of MAC addresses, too, for Ethernet frames).
//! Both ends keep one entry per bucket of the hash, [`BUCKETS`] in all, however many flows there
//! are; flows that share a bucket keep their order among each other, which costs little.

use sheaf_wire::ethernet::HEADER_LEN;
use sheaf_wire::flow::{FiveTuple, fold};
use sheaf_wire::ip::Ip;

/// Buckets of the hash.
pub const BUCKETS: usize = 1024;

/// The way in which a packet has to be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum DeliveryMode {
    /// In the order of its flow.
    #[default]
    Order,
    /// In any order: its flow tolerates reordering, so it never waits at the receiver.
    Loose,
    /// As a copy on every link, in the order of its flow: for voice.
    Copies,
}

/// A bucket of flows, below [`BUCKETS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Flow(u16);

impl Flow {
    /// The bucket of `hash`.
    pub const fn of_hash(hash: u64) -> Flow {
        // The high bits of a product are the mixed ones.
        Flow((hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as u16)
    }

    /// The bucket of an IP packet, or (`ip` false) of an Ethernet frame.
    pub fn of_packet(packet: &[u8], ip: bool) -> Flow {
        let (seed, packet) = match packet.split_at_checked(HEADER_LEN).filter(|_| !ip) {
            Some((header, rest)) => (fold(0, header), rest),
            None => (0, packet),
        };
        let view = Ip::parse(packet);
        Flow::of_hash(view.map_or(seed, |view| FiveTuple::of(&view).hash(seed)))
    }

    /// Its place in a table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_wire::ip::example_udp;

    #[test]
    fn a_flow_keeps_its_bucket_and_ports_spread_over_all() {
        let mut seen = [false; BUCKETS];
        for port in 0..16_384u16 {
            let mut packet = example_udp(&[0; 8]);
            packet[20..22].copy_from_slice(&port.to_be_bytes());
            let flow = Flow::of_packet(&packet, true);
            packet[35] = 1; // payload
            assert_eq!(flow, Flow::of_packet(&packet, true));
            seen[flow.index()] = true;
        }
        assert!(seen.iter().filter(|seen| **seen).count() > BUCKETS * 9 / 10);
    }

    #[test]
    fn bytes_that_are_no_packet_have_a_flow_too() {
        for len in 0..40 {
            assert!(Flow::of_packet(&vec![0xff; len], len % 2 == 0).index() < BUCKETS);
        }
    }
}
