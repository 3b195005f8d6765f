//! The engine in user space: a TAP interface in front of the real one, and the model.
//!
//! Principle: more specific or earlier routes lead packets for the peers into a TAP interface; what
//! comes out of it is gathered by the model and sent through a raw socket on the real interface.
//! Meta packets arrive at the same socket and are handed to the host through the TAP interface. The
//! original routes stay beneath, so that, when the process ends and the TAP interface with it,
//! packets go their old way.
//!
//! What it costs: two more crossings between kernel and user space per packet, and the host's
//! firewall sees these packets on the TAP interface.

use super::arguments::Peers;
use super::device::Order;
use super::engine::Engine;
use crate::grammar::Prefix;
use anyhow::Context;
use sheaf_aggregate::{Aggregator, Config, Device, Frame, Hop, HopId, Outbound, Splitter, Stats};
use sheaf_netio::ip;
use sheaf_netio::neigh::Neighbour;
use sheaf_netio::poller::Poller;
use sheaf_netio::raw::RawSocket;
use sheaf_netio::tap::Tap;
use sheaf_stage::{Instant, Stage};
use sheaf_wire::ip::{Ip, Protocol};
use sheaf_wire::meta::{Outer, Refusal};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// Ethernet header bytes.
const ETHERNET: usize = 14;
/// Packets that one turn takes from a descriptor before the others have theirs.
const BATCH: usize = 64;

pub struct User {
    dev: String,
    tap_name: String,
    tap: Tap,
    mac: [u8; 6],
    /// IPv4, IPv6; where the interface has an address of the family.
    raw: [Option<RawSocket>; 2],
    aggregator: Aggregator,
    splitter: Splitter,
    hops: Vec<HopId>,
    neighbours: HashMap<[u8; 6], HopId>,
    far_ends: FarEnds,
    passed: u32,
    buffer: Vec<u8>,
}

/// Far ends by destination; the longest prefix counts.
#[derive(Default)]
struct FarEnds {
    /// Lengths that occur, the longest first.
    lengths: Vec<u32>,
    by_prefix: HashMap<Prefix, HopId>,
}

impl FarEnds {
    fn insert(&mut self, prefix: Prefix, hop: HopId) {
        self.by_prefix.insert(prefix, hop);
        if !self.lengths.contains(&prefix.bits) {
            self.lengths.push(prefix.bits);
            self.lengths.sort_by(|a, b| b.cmp(a));
        }
    }

    fn find(&self, address: IpAddr) -> Option<HopId> {
        let hop = |bits: &u32| self.by_prefix.get(&Prefix::around(address, *bits));
        self.lengths.iter().find_map(hop).copied()
    }
}

impl User {
    /// Puts a TAP interface in front of interface `dev`, with its number and MTU.
    pub fn open(
        dev: &str,
        ifindex: u32,
        mtu: u32,
        config: &Config,
        peers: &Peers,
    ) -> anyhow::Result<User> {
        let tap_name = format!("sheaf{ifindex}");
        let tap = Tap::open(&tap_name).with_context(|| {
            format!("cannot make the TAP interface {tap_name}; load the module tun")
        })?;
        ip::run(&format!("link set {tap_name} mtu {mtu} arp off addrgenmode none"))?;
        ip::run(&format!("link set {tap_name} up"))?;
        let ours = ip::addresses(dev)?;
        let family = |v6: bool| -> anyhow::Result<Option<RawSocket>> {
            let wanted = ours.iter().any(|address| address.is_ipv6() == v6);
            Ok(wanted.then(|| RawSocket::open(dev, v6, Protocol::META.0)).transpose()?)
        };
        let mut aggregator = Aggregator::new(config.clone())?;
        aggregator.set_device(Device::Silent, Instant::ZERO);
        Ok(User {
            mac: ip::mac(&tap_name)?,
            raw: [family(false)?, family(true)?],
            aggregator,
            splitter: Splitter::new(peers.senders()),
            hops: Vec::new(),
            neighbours: HashMap::new(),
            far_ends: FarEnds::default(),
            passed: 0,
            buffer: vec![0; 1 << 16],
            dev: dev.to_owned(),
            tap_name,
            tap,
        })
    }

    fn hop(&mut self, hop: u32, outer: Outer) -> HopId {
        match self.hops.get(hop as usize) {
            Some(id) => *id,
            None => {
                let id = self.aggregator.add_hop(Hop { outer, max: None });
                self.hops.push(id);
                id
            }
        }
    }

    /// The routes of the interface that lead over gateway `address`: destination and metric.
    fn routes_over(&self, address: IpAddr) -> anyhow::Result<Vec<(String, u32)>> {
        let family = if address.is_ipv4() { "-4" } else { "-6" };
        let text = ip::output(&format!("{family} route show dev {} via {address}", self.dev))?;
        let route = |line: &str| {
            let mut words = line.split_whitespace();
            let to = words.next()?.to_owned();
            let metric = words.skip_while(|word| *word != "metric").nth(1);
            Some((to, metric.and_then(|metric| metric.parse().ok()).unwrap_or(0)))
        };
        Ok(text.lines().filter_map(route).collect())
    }

    /// Our address towards `address`, as a route's word: what we send there has it as its source.
    fn source(&self, address: IpAddr) -> String {
        ip::source_towards(address).map_or_else(|_| String::new(), |ours| format!(" src {ours}"))
    }

    /// From the host: gathers or passes.
    fn outbound(&mut self, now: Instant) -> anyhow::Result<()> {
        for _ in 0..BATCH {
            let Some(len) = self.tap.receive(&mut self.buffer)? else { break };
            let frame = &self.buffer[..len];
            let Some((mac, packet)) = frame.split_at_checked(ETHERNET) else { continue };
            let Ok(view) = Ip::parse(packet) else { continue };
            let mac: [u8; 6] = mac[..6].try_into().expect("six bytes");
            let hop = self.far_ends.find(view.destination());
            match hop.or_else(|| self.neighbours.get(&mac).copied()) {
                Some(hop) => {
                    let mut buffer = self.aggregator.buffer();
                    buffer.extend_from_slice(packet);
                    self.aggregator.enqueue(Outbound { hop, mark: 0, packet: buffer }, now);
                    self.drain(now);
                }
                None => {
                    self.passed = self.passed.wrapping_add(1);
                    send(&self.raw, packet);
                }
            }
        }
        Ok(())
    }

    fn drain(&mut self, now: Instant) {
        while let Some(Frame { bytes, .. }) = self.aggregator.dequeue(now) {
            send(&self.raw, &bytes);
            self.aggregator.recycle(bytes);
        }
    }

    /// From the link: splits.
    fn inbound(&mut self) -> anyhow::Result<()> {
        for raw in self.raw.iter().flatten() {
            for _ in 0..BATCH {
                let Some(len) = raw.receive(&mut self.buffer)? else { break };
                let (tap, mac) = (&self.tap, self.mac);
                // A refusal is counted by the splitter; there is nobody to tell.
                let _ = self.splitter.split(&mut self.buffer[..len], |packet| {
                    let mut frame = [0; ETHERNET + sheaf_wire::meta::MAX_LEN];
                    let kind: [u8; 2] = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
                    frame[..6].copy_from_slice(&mac);
                    frame[12..14].copy_from_slice(&kind);
                    frame[ETHERNET..ETHERNET + packet.len()].copy_from_slice(packet);
                    // A full ring drops, as a full backlog would.
                    let _ = tap.send(&frame[..ETHERNET + packet.len()]);
                });
            }
        }
        Ok(())
    }
}

/// Sends an IP packet on the real interface. One that cannot leave is dropped, as there.
fn send(raw: &[Option<RawSocket>; 2], packet: &[u8]) {
    if let Ok(view) = Ip::parse(packet)
        && let Some(raw) = &raw[usize::from(view.destination().is_ipv6())]
    {
        let _ = raw.send(view.bytes(), view.destination());
    }
}

impl Engine for User {
    fn name(&self) -> String {
        format!("user (TAP {})", self.tap_name)
    }

    fn join(&mut self, hop: u32, neighbour: Neighbour, outer: Outer) -> anyhow::Result<()> {
        let hop = self.hop(hop, outer);
        let Neighbour { address, mac } = neighbour;
        self.neighbours.insert(mac, hop);
        let (tap, source) = (&self.tap_name, self.source(address));
        let link = mac.map(|byte| format!("{byte:02x}")).join(":");
        ip::run(&format!("neigh replace {address} lladdr {link} dev {tap} nud permanent"))?;
        ip::run(&format!("route replace {}{source} dev {tap}", Prefix::host(address)))?;
        for (to, metric) in self.routes_over(address)? {
            // The first of equal routes counts in IPv4; in IPv6, the one with the lower metric.
            let (verb, metric) = if address.is_ipv4() {
                ("prepend", metric)
            } else {
                ("replace", metric.max(2) - 1)
            };
            let way = format!("via {address} dev {tap} onlink{source} metric {metric}");
            ip::run(&format!("route {verb} {to} {way}"))?;
        }
        Ok(())
    }

    fn leave(&mut self, Neighbour { address, mac }: Neighbour) -> anyhow::Result<()> {
        self.neighbours.remove(&mac);
        for (to, _) in self.routes_over(address)? {
            ip::run(&format!("route del {to} via {address} dev {}", self.tap_name))?;
        }
        ip::run(&format!("route del {} dev {}", Prefix::host(address), self.tap_name))?;
        Ok(ip::run(&format!("neigh del {address} dev {}", self.tap_name))?)
    }

    fn far_end(&mut self, hop: u32, prefix: Prefix, outer: Outer) -> anyhow::Result<()> {
        let hop = self.hop(hop, outer);
        self.far_ends.insert(prefix, hop);
        let (tap, source) = (&self.tap_name, self.source(prefix.network));
        let verb = if prefix.network.is_ipv4() { "prepend" } else { "replace" };
        Ok(ip::run(&format!("route {verb} {prefix}{source} dev {tap}"))?)
    }

    fn order(&mut self, _order: Order) -> anyhow::Result<()> {
        Ok(())
    }

    fn run(&mut self, now: Instant) -> anyhow::Result<Option<Instant>> {
        self.drain(now);
        self.outbound(now)?;
        self.inbound()?;
        Ok(self.aggregator.next_deadline())
    }

    fn wait_for(&self, poller: &mut Poller) {
        poller.add(&self.tap);
        self.raw.iter().flatten().for_each(|raw| {
            poller.add(raw);
        });
    }

    fn held(&self) -> u32 {
        self.aggregator.frames() as u32
    }

    fn passed(&self) -> u32 {
        self.passed
    }

    fn stats(&self) -> anyhow::Result<Vec<(u32, Stats)>> {
        let stats = |id: &HopId| (id.0, self.aggregator.stats(*id));
        Ok(self.hops.iter().map(stats).collect())
    }

    fn split(&self) -> anyhow::Result<Option<BTreeMap<String, u64>>> {
        let refused =
            |refusal: &Refusal| (refusal.name().to_owned(), self.splitter.refused(*refusal));
        let mut counters: BTreeMap<_, _> = Refusal::ALL.iter().map(refused).collect();
        counters.insert("meta-packets".to_owned(), self.splitter.meta_packets());
        counters.insert("packets".to_owned(), self.splitter.packets());
        counters.insert("ecn-not-capable".to_owned(), self.splitter.not_capable());
        counters.insert("only-neighbours-say".to_owned(), self.splitter.only_neighbours_say());
        Ok(Some(counters))
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.drain(Instant::MAX);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_leads_to_its_far_end() {
        let mut far_ends = FarEnds::default();
        for (text, hop) in [("10.0.0.0/8", 0), ("10.9.0.0/16", 1), ("10.9.0.1", 2), ("fd00::/8", 3)]
        {
            far_ends.insert(Prefix::parse("via", text).unwrap(), HopId(hop));
        }
        let find = |text: &str| far_ends.find(text.parse().unwrap()).map(|hop| hop.0);
        assert_eq!(find("10.9.0.1"), Some(2));
        assert_eq!(find("10.9.7.1"), Some(1));
        assert_eq!(find("10.200.7.1"), Some(0));
        assert_eq!(find("fdff::1"), Some(3));
        assert_eq!(find("192.0.2.1"), None);
        assert_eq!(find("2001:db8::1"), None);
    }
}
