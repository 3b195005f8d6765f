//! Rules that select the packets to gather.
//!
//! Rules are tried in order; the first that matches, length included, decides. A packet that a
//! rule would take but for its length is sent alone ([`Verdict::Alone`]). No packet overtakes
//! gathered packets of its own flow: those held of the flow leave first.

use sheaf_wire::ip::{Ip, Protocol, Version};
use std::ops::RangeInclusive;

/// Decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Gather it with others.
    Gather,
    /// Too long to share a frame: send it alone.
    Alone,
    /// Not ours: let it pass.
    Pass,
}

/// One rule; every field must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Protocol number; `None` for any.
    pub protocol: Option<Protocol>,
    /// DSCP, 0..63; `None` for any.
    pub dscp: Option<u8>,
    /// Source port of UDP or TCP; the full range matches packets without ports, too.
    pub source_ports: RangeInclusive<u16>,
    /// Destination port of UDP or TCP.
    pub destination_ports: RangeInclusive<u16>,
    /// Firewall mark and mask: matches when `mark & mask` is the value.
    pub mark: (u32, u32),
    /// Longest packet that is gathered, in bytes of IP.
    pub max_len: u16,
}

impl Default for Rule {
    /// UDP packets of up to 256 bytes.
    fn default() -> Self {
        Rule {
            protocol: Some(Protocol::UDP),
            dscp: None,
            source_ports: 0..=u16::MAX,
            destination_ports: 0..=u16::MAX,
            mark: (0, 0),
            max_len: 256,
        }
    }
}

impl Rule {
    /// Whether the rule matches but for the length.
    fn matches(&self, packet: &Ip<'_>, mark: u32) -> bool {
        self.protocol.is_none_or(|protocol| protocol == packet.protocol())
            && self.dscp.is_none_or(|dscp| dscp == packet.dscp())
            && mark & self.mark.1 == self.mark.0
            && self.matches_ports(packet)
    }

    fn matches_ports(&self, packet: &Ip<'_>) -> bool {
        let any = 0..=u16::MAX;
        if self.source_ports == any && self.destination_ports == any {
            return true;
        }
        packet.ports().is_some_and(|(source, destination)| {
            self.source_ports.contains(&source) && self.destination_ports.contains(&destination)
        })
    }
}

/// The classifier: rules in order, and pure TCP acknowledgements when asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Tried in order.
    pub rules: Vec<Rule>,
    /// Gather TCP segments without data whose only flag is ACK.
    pub acks: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Rules { rules: vec![Rule::default()], acks: false }
    }
}

impl Rules {
    /// Decides about `packet`, which carries firewall mark `mark`.
    ///
    /// Fragments, packets with IPv4 options and meta packets always pass: the first have no
    /// ports, the second are slow-path packets everywhere, the last must not nest.
    pub fn classify(&self, packet: &Ip<'_>, mark: u32) -> Verdict {
        let options = packet.version() == Version::V4 && packet.header_len() != 20;
        if packet.is_fragment() || options || packet.protocol() == Protocol::META {
            return Verdict::Pass;
        }
        if self.acks && packet.is_pure_ack() {
            return Verdict::Gather;
        }
        let mut verdict = Verdict::Pass;
        for rule in self.rules.iter().filter(|rule| rule.matches(packet, mark)) {
            if packet.bytes().len() <= usize::from(rule.max_len) {
                return Verdict::Gather;
            }
            verdict = Verdict::Alone;
        }
        verdict
    }
}

/// The flows of some packets, as bits of two sets: by addresses, protocol and ports, and by
/// addresses only: fragments have no ports, and a meta packet from host to host carries flows of
/// its own addresses.
///
/// Two flows may share a bit. A queue then leaves early for a stranger's packet, which costs a
/// little and breaks nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowBits {
    /// Five-tuples; empty for a fragment or a meta packet.
    tuples: u64,
    /// Pairs of addresses.
    pairs: u64,
}

impl FlowBits {
    /// The flow of one packet.
    pub fn of(packet: &Ip<'_>) -> FlowBits {
        let pairs = bit(packet, 0);
        if packet.is_fragment() || packet.protocol() == Protocol::META {
            return FlowBits { tuples: 0, pairs };
        }
        let (source, destination) = packet.ports().unwrap_or((0, 0));
        let ports = u64::from(source) << 16 | u64::from(destination);
        FlowBits { tuples: bit(packet, u64::from(packet.protocol().0) << 32 | ports), pairs }
    }

    /// The flow of the packet in a mesh frame, if one is seen there. All frames count as one pair
    /// of addresses, as parts of packets are among them.
    pub fn of_mesh(inner: Option<&Ip<'_>>) -> FlowBits {
        let tuples = inner.map_or(0, |inner| FlowBits::of(inner).tuples);
        FlowBits { tuples, pairs: 1 }
    }

    /// Adds the flow of another packet.
    pub fn add(&mut self, other: FlowBits) {
        self.tuples |= other.tuples;
        self.pairs |= other.pairs;
    }

    /// Whether the flow of one packet, `other`, may be among these: by its ports where it has them.
    pub fn meets(self, other: FlowBits) -> bool {
        match other.tuples {
            0 => self.pairs & other.pairs != 0,
            tuples => self.tuples & tuples != 0,
        }
    }
}

/// One of 64 bits, chosen by the addresses of `packet` and the hash so far, as the eBPF program
/// does (packet.h): one multiplication a word has to do there.
fn bit(packet: &Ip<'_>, before: u64) -> u64 {
    let (words, _) = packet.addresses().as_chunks::<4>();
    let hash = words.iter().fold(before, |hash, word| {
        (hash ^ u64::from(u32::from_be_bytes(*word))).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    1 << (hash >> 58)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_wire::ip::example_udp;

    fn verdict(rules: &Rules, packet: &[u8], mark: u32) -> Verdict {
        rules.classify(&Ip::parse(packet).unwrap(), mark)
    }

    #[test]
    fn by_default_small_udp_is_gathered_and_long_udp_goes_alone() {
        let rules = Rules::default();
        assert_eq!(verdict(&rules, &example_udp(&[0; 228]), 0), Verdict::Gather);
        assert_eq!(verdict(&rules, &example_udp(&[0; 229]), 0), Verdict::Alone);
        assert_eq!(verdict(&rules, &sheaf_wire::ip::example_v4(), 0), Verdict::Pass);
    }

    #[test]
    fn every_field_of_a_rule_must_match() {
        let rule = Rule { destination_ports: 5004..=5005, mark: (3, 3), ..Rule::default() };
        let rules = Rules { rules: vec![rule], acks: false };
        let packet = example_udp(&[0; 20]);
        assert_eq!(verdict(&rules, &packet, 7), Verdict::Gather);
        assert_eq!(verdict(&rules, &packet, 1), Verdict::Pass);
        let mut other = packet;
        other[23] = 1; // destination port 5001
        assert_eq!(verdict(&rules, &other, 7), Verdict::Pass);
    }

    #[test]
    fn meta_packets_and_fragments_are_never_gathered() {
        let rules = Rules { rules: vec![Rule { protocol: None, ..Rule::default() }], acks: true };
        let mut meta = example_udp(&[0; 20]);
        meta[9] = 253;
        assert_eq!(verdict(&rules, &meta, 0), Verdict::Pass);
        let mut fragment = example_udp(&[0; 20]);
        fragment[6] = 0x20;
        assert_eq!(verdict(&rules, &fragment, 0), Verdict::Pass);
    }
}
