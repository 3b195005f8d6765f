//! Flows: what keeps its order.
//!
//! A flow is a hash of addresses, protocol and ports (of MAC addresses, too, for Ethernet frames).
//! Both ends keep one entry per bucket of the hash, [`BUCKETS`] in all, however many flows there
//! are; flows that share a bucket keep their order among each other, which costs little.

use sheaf_wire::ip::Ip;

/// Buckets of the hash.
pub const BUCKETS: usize = 1024;

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
        let (ethernet, packet) = match packet.split_at_checked(14).filter(|_| !ip) {
            Some((header, rest)) => (mix(0, header), rest),
            None => (0, packet),
        };
        let Ok(view) = Ip::parse(packet) else { return Flow::of_hash(ethernet) };
        let (from, to) = view.ports().unwrap_or_default();
        let transport = u64::from(view.protocol().0) << 32 | u64::from(from) << 16 | u64::from(to);
        Flow::of_hash(mix(ethernet ^ transport, view.addresses()))
    }

    /// Its place in a table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Folds bytes into a hash, eight at a time.
fn mix(seed: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(seed, |hash, chunk| {
        let word = chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        (hash ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29)
    })
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
