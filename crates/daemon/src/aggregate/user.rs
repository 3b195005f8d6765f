//! The engine in user space: a TAP interface in front of the real one, and the model.
//!
//! Principle: more specific or earlier routes lead packets for the peers into a TAP interface; what
//! comes out of it is gathered by the model and sent through a raw socket on the real interface.
//! Meta packets arrive at the same socket and are handed to the host through the TAP interface. The
//! original routes stay beneath, so that, when the process ends and the TAP interface with it,
//! packets go their old way.
//!
//! How busy the device is follows from our own frames under way: the kernel charges each to the raw
//! socket until the device has sent it, and wakes this process when one is. A device that frees
//! frames at once is never busy, and one that holds them, in whatever queues, is busy exactly as
//! long as one of ours is in them.
//!
//! Order: a gathered packet that leaves alone has a meta header, too. So everything gathered for a
//! hop is one flow to a fair queue on the way, and goes one way through a receiver that splits in
//! user space, where a plain packet would overtake the meta packet before it.
//!
//! What it costs: two more crossings between kernel and user space per packet, and the host's
//! firewall sees these packets on the TAP interface.

use super::device::Order;
use super::engine::{Engine, Shape};
use super::settings::Peers;
use anyhow::{Context, bail};
use sheaf_aggregate::{
    Aggregator, Answers, Config, Device, Format, Frame, Hop, HopId, Outbound, Rules, Split,
    Splitter, Stats, Verdict,
};
use sheaf_netio::completion::Completions;
use sheaf_netio::ip;
use sheaf_netio::neigh::Neighbour;
use sheaf_netio::poller::Poller;
use sheaf_netio::raw::RawSocket;
use sheaf_netio::raw_batch::{BATCH, Inbox, Outbox};
use sheaf_netio::tap::Tap;
use sheaf_netio::{clock, random, scheduling, socket};
use sheaf_stage::{Duration, Instant, Stage};
use sheaf_wire::aggfrag;
use sheaf_wire::hello::Formats;
use sheaf_wire::ip::{Ip, Protocol};
use sheaf_wire::meta::{Meta, Refusal, Repr};
use sheaf_wire::prefix::{self, Prefix};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// More frames than any device has in its queue: what a device can have, it does not tell.
const NO_LIMIT: u32 = 1 << 16;
/// Ethernet header bytes.
const ETHERNET: usize = 14;
/// The longest frame that a TAP interface without offloads hands over.
const LONGEST: usize = 1 << 16;
/// Rounds of reading and sending in one turn, so that timers, signals and questions have theirs.
const ROUNDS: usize = 8;
/// Packets that the TAP interface keeps while the process does not get its turn: 0.4 s of 10,000 a
/// second. Its default of 500 loses some of a flow when a busy machine takes 50 ms.
const TAP_QUEUE: u32 = 4096;
/// How long the host's packets may lie in the TAP interface while the device is busy and all that
/// came was gathered: one wake-up for several of them, at a third of a full frame's time on the air
/// at 2 Mbit/s. A frame that the device has finished with ends it.
const GATHER: Duration = Duration::from_millis(2);
/// Memory that the kernel charges for the smallest packet is above this. What a socket has less of
/// is not a packet: while one is freed, a byte of it stays for a moment (sock_wfree()).
const NO_PACKET: u64 = 256;
/// The same for a full frame (its truesize): by it the bytes under way become frames.
const FULL_PACKET: u64 = 2304;

pub struct User {
    dev: String,
    tap_name: String,
    tap: Tap,
    mac: [u8; 6],
    /// IPv4, IPv6; where the interface has an address of the family.
    raw: [Option<RawSocket>; 2],
    completions: Completions,
    aggregator: Aggregator,
    rules: Rules,
    splitter: Splitter,
    answers: Answers,
    hops: Vec<(HopId, Hop)>,
    neighbours: HashMap<[u8; 6], HopId>,
    /// Next hops and far ends by their outer addresses.
    by_address: HashMap<IpAddr, HopId>,
    /// Time of the last frame from each of those.
    heard: HashMap<IpAddr, Instant>,
    /// Neighbours that routes lead to, and the source address of these.
    routed: BTreeMap<IpAddr, String>,
    far_ends: FarEnds,
    far_routes: BTreeMap<Prefix, String>,
    passed: u32,
    /// Frames that the interface refused.
    refused: u64,
    buffer: Vec<u8>,
    inbox: Inbox,
    outbox: Outbox,
    /// What leaves at the end of a round, in order.
    leaving: Vec<Vec<u8>>,
    /// Frames of ours are under way.
    busy: bool,
    /// The TAP interface is not looked at before.
    paused: Option<Instant>,
    /// Numbers of the descriptors that are waited for: the TAP interface, completions, sockets.
    waited: [Option<usize>; 4],
}

/// Far ends by destination; the longest prefix counts.
#[derive(Default)]
struct FarEnds {
    /// Lengths that occur, the longest first.
    lengths: Vec<u8>,
    by_prefix: HashMap<Prefix, HopId>,
}

impl FarEnds {
    fn insert(&mut self, prefix: Prefix, hop: HopId) {
        self.by_prefix.insert(prefix, hop);
        if !self.lengths.contains(&prefix.prefix_len()) {
            self.lengths.push(prefix.prefix_len());
            self.lengths.sort_by(|a, b| b.cmp(a));
        }
    }

    fn find(&self, address: IpAddr) -> Option<HopId> {
        let hop = |bits: &u8| self.by_prefix.get(&prefix::around(address, *bits));
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
        ip::run(&format!(
            "link set {tap_name} mtu {mtu} txqueuelen {TAP_QUEUE} arp off addrgenmode none"
        ))?;
        ip::run(&format!("link set {tap_name} up"))?;
        let ours = ip::addresses(dev)?;
        let completions = Completions::new()?;
        let family = |v6: bool| -> anyhow::Result<Option<RawSocket>> {
            if !ours.iter().any(|address| address.is_ipv6() == v6) {
                return Ok(None);
            }
            let raw = RawSocket::open(dev, v6, Protocol::META.0)?;
            completions.watch(&raw)?;
            Ok(Some(raw))
        };
        let raw = [family(false)?, family(true)?];
        let mut aggregator = Aggregator::new(config.clone())?;
        aggregator.set_device(Device::Reports { waiting: 0, limit: NO_LIMIT }, Instant::ZERO);
        let secret = u64::from_ne_bytes(random::unguessable()?);
        // Plain packets that arrive behind a meta packet must not reach the host before it.
        scheduling::realtime_if_allowed();
        Ok(User {
            mac: ip::mac(&tap_name)?,
            raw,
            completions,
            aggregator,
            splitter: Splitter::new(peers.senders()).with_frames(secret),
            answers: Answers::default(),
            rules: config.rules.clone(),
            hops: Vec::new(),
            neighbours: HashMap::new(),
            by_address: HashMap::new(),
            heard: HashMap::new(),
            routed: BTreeMap::new(),
            far_ends: FarEnds::default(),
            far_routes: BTreeMap::new(),
            passed: 0,
            refused: 0,
            buffer: vec![0; LONGEST],
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            leaving: Vec::with_capacity(BATCH),
            busy: false,
            paused: None,
            waited: [None; 4],
            dev: dev.to_owned(),
            tap_name,
            tap,
        })
    }

    /// The model's number of hop `number`, which is made or changed.
    fn hop(&mut self, number: u32, hop: Hop) -> HopId {
        let id = match self.hops.get_mut(number as usize) {
            Some((id, there)) => {
                *there = hop;
                self.aggregator.set_hop(*id, hop);
                *id
            }
            None => {
                let id = self.aggregator.add_hop(hop);
                self.hops.push((id, hop));
                id
            }
        };
        self.by_address.insert(hop.outer.destination(), id);
        id
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

    /// Takes back the routes to neighbour `address`, where there are any.
    fn unroute(&mut self, address: IpAddr) -> anyhow::Result<()> {
        if self.routed.remove(&address).is_none() {
            return Ok(());
        }
        for (to, _) in self.routes_over(address)? {
            ignore_gone(ip::run(&format!("route del {to} via {address} dev {}", self.tap_name)))?;
        }
        let host = Prefix::from(address);
        ignore_gone(ip::run(&format!("route del {host} dev {}", self.tap_name)))?;
        ignore_gone(ip::run(&format!("neigh del {address} dev {}", self.tap_name)))
    }

    /// The device has what the sockets are charged for, as far as the model should know.
    fn tell_device(&mut self, now: Instant) {
        let unsent = |raw: &RawSocket| socket::unsent(raw).unwrap_or(0);
        let bytes: u64 = self.raw.iter().flatten().map(unsent).sum();
        let waiting = match bytes {
            0..NO_PACKET => 0,
            bytes => u32::try_from(bytes.div_ceil(FULL_PACKET)).unwrap_or(NO_LIMIT),
        };
        self.busy = waiting > 0;
        self.aggregator.set_device(Device::Reports { waiting, limit: NO_LIMIT }, now);
    }

    fn pause(&self, poller: &mut Poller, paused: bool) {
        if let Some(tap) = self.waited[0] {
            poller.pause(tap, paused);
        }
    }

    /// From the host: gathers or passes; returns whether there may be more.
    fn outbound(&mut self, now: Instant) -> anyhow::Result<bool> {
        for _ in 0..BATCH {
            let Some(len) = self.tap.receive(&mut self.buffer)? else { return Ok(false) };
            let frame = &self.buffer[..len];
            let Some((mac, packet)) = frame.split_at_checked(ETHERNET) else { continue };
            let Ok(view) = Ip::parse(packet) else { continue };
            let mac: [u8; 6] = mac[..6].try_into().expect("six bytes");
            let hop = self.far_ends.find(view.destination());
            let mut buffer = self.aggregator.buffer();
            buffer.extend_from_slice(view.bytes());
            match hop.or_else(|| self.neighbours.get(&mac).copied()) {
                Some(hop) => {
                    // What cannot be sent is counted there by its reason.
                    let _ = self.aggregator.enqueue(Outbound { hop, mark: 0, packet: buffer }, now);
                    self.drain(now);
                }
                None => {
                    self.passed = self.passed.wrapping_add(1);
                    self.leaving.push(buffer);
                }
            }
        }
        Ok(true)
    }

    /// Takes from the model what may leave.
    fn drain(&mut self, now: Instant) {
        while let Some(Frame { hop, mut bytes, packets, .. }) = self.aggregator.dequeue(now) {
            let (_, hop) = self.hops[hop.0 as usize];
            // It stopped splitting while these waited. A frame of format 2 leaves all the same:
            // only the neighbour can restore it, if its splitter is still there.
            if packets > 1
                && hop.max == Some(0)
                && let Ok(meta) = Meta::parse(&bytes)
            {
                for packet in meta.packets() {
                    let mut buffer = self.aggregator.buffer();
                    buffer.extend_from_slice(packet.bytes());
                    self.leaving.push(buffer);
                }
                self.aggregator.recycle(bytes);
                continue;
            }
            if packets == 1 {
                wrap(&self.rules, hop, &mut bytes);
            }
            self.leaving.push(bytes);
        }
    }

    /// Sends what leaves. Packets of one family leave in one call; order is kept between both.
    fn send(&mut self) -> anyhow::Result<()> {
        let mut down = false;
        let mut rest = self.leaving.as_slice();
        while let Some(first) = rest.first() {
            let v6 = is_v6(first);
            let alike = rest.iter().take(BATCH).take_while(|packet| is_v6(packet) == v6).count();
            let (batch, others) = rest.split_at(alike);
            rest = others;
            let Some(raw) = &self.raw[usize::from(v6)] else {
                self.refused += batch.len() as u64;
                continue;
            };
            let packets = batch.iter().filter_map(|packet| {
                Ip::parse(packet).ok().map(|view| (view.bytes(), view.destination()))
            });
            let sent = self.outbox.send(raw, packets);
            self.refused += sent.refused as u64;
            down |= sent.down;
        }
        for buffer in self.leaving.drain(..) {
            self.aggregator.recycle(buffer);
        }
        if down {
            bail!("{} is down or gone", self.dev);
        }
        Ok(())
    }

    /// From the link: splits; returns whether there may be more.
    fn inbound(&mut self, now: Instant) -> anyhow::Result<bool> {
        let mut more = false;
        for raw in self.raw.iter().flatten() {
            let (tap, mac, splitter) = (&self.tap, self.mac, &mut self.splitter);
            let (aggregator, by_address) = (&mut self.aggregator, &self.by_address);
            let heard = &mut self.heard;
            let (leaving, answers) = (&mut self.leaving, &mut self.answers);
            let got = self.inbox.receive(raw, |bytes| {
                let split = splitter.split(bytes, |inner| {
                    let mut header = [0; ETHERNET];
                    header[..6].copy_from_slice(&mac);
                    header[12..].copy_from_slice(&inner.ethertype.to_be_bytes());
                    // A full ring drops, as a full backlog would.
                    let _ = tap.send_parts(&header, inner.bytes);
                });
                // A refusal is counted by the splitter; there is nobody to tell.
                let (Ok(split), Ok((repr, _))) = (split, Repr::with_payload(bytes)) else { return };
                let from = repr.outer.source();
                if by_address.contains_key(&from) {
                    heard.insert(from, now);
                }
                match split {
                    Split::Delivered(feedback) => {
                        answers.add(repr.reply(), &feedback, now, |to, what| {
                            leaving.push(what.packet(to));
                        });
                    }
                    Split::Heard(feedback) => {
                        if let Some(hop) = by_address.get(&from) {
                            aggregator.said(*hop, &feedback, now);
                        }
                    }
                }
            })?;
            more |= got == BATCH;
        }
        Ok(more)
    }
}

fn is_v6(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == 6)
}

/// Puts a meta header before a gathered packet that leaves alone. A packet that passes by itself
/// stays as it is, as does one that does not fit into the hop's largest meta packet.
fn wrap(rules: &Rules, hop: Hop, packet: &mut Vec<u8>) {
    let Ok(view) = Ip::parse(packet) else { return };
    let Hop { outer, max, hop_limit, .. } = hop;
    let repr = Repr { outer, dscp: view.dscp(), ecn: view.ecn().outer(), hop_limit };
    let len = repr.header_len() + packet.len();
    let is_frame = view.protocol() == Protocol::META;
    let fits = len <= usize::from(max.unwrap_or(0));
    if is_frame || !fits || rules.classify(&view, 0) != Verdict::Gather {
        return;
    }
    packet.splice(..0, std::iter::repeat_n(0, repr.header_len()));
    repr.emit(len, packet);
}

/// What `ip` says of something that is not there any more.
fn ignore_gone(done: std::io::Result<()>) -> anyhow::Result<()> {
    match done {
        Err(error)
            if ["No such", "Cannot find"].iter().any(|text| error.to_string().contains(text)) =>
        {
            Ok(())
        }
        done => Ok(done?),
    }
}

impl Engine for User {
    fn name(&self) -> String {
        format!("user (TAP {})", self.tap_name)
    }

    fn takes(&self) -> Formats {
        Formats(Formats::META.0 | Formats::FRAMES.0)
    }

    fn sends(&self) -> Format {
        Format::Compressed
    }

    fn join(&mut self, hop: u32, neighbour: Neighbour, shape: Shape) -> anyhow::Result<()> {
        let Shape { outer, max, format, .. } = shape;
        let hop = self.hop(hop, Hop { max: Some(max), format, ..Hop::neighbour(outer) });
        let Neighbour { address, mac } = neighbour;
        self.neighbours.insert(mac, hop);
        // What this host sends there has the source that it would have without us.
        let source = ip::way_over(&self.dev, address)
            .map_or_else(|_| String::new(), |way| format!(" src {}", way.source));
        if self.routed.get(&address) == Some(&source) {
            return Ok(());
        }
        let tap = &self.tap_name;
        let link = ip::mac_text(mac);
        ip::run(&format!("neigh replace {address} lladdr {link} dev {tap} nud permanent"))?;
        ip::run(&format!("route replace {}{source} dev {tap}", Prefix::from(address)))?;
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
        self.routed.insert(address, source);
        Ok(())
    }

    fn leave(&mut self, Neighbour { address, mac }: Neighbour) -> anyhow::Result<()> {
        self.neighbours.remove(&mac);
        self.unroute(address)
    }

    fn far_end(&mut self, hop: u32, prefix: Prefix, shape: Shape) -> anyhow::Result<()> {
        let Shape { outer, max, format, .. } = shape;
        let hop = self.hop(hop, Hop { max: Some(max), format, ..Hop::far(outer) });
        self.far_ends.insert(prefix, hop);
        let source = format!(" src {}", outer.source());
        let source = if prefix.addr().is_ipv4() == outer.source().is_ipv4() {
            source
        } else {
            String::new()
        };
        if self.far_routes.get(&prefix) == Some(&source) {
            return Ok(());
        }
        let verb = match (prefix.addr().is_ipv4(), self.far_routes.contains_key(&prefix)) {
            (true, false) => "prepend",
            _ => "replace",
        };
        ip::run(&format!("route {verb} {prefix}{source} dev {}", self.tap_name))?;
        self.far_routes.insert(prefix, source);
        Ok(())
    }

    /// Strangers' frames that come meanwhile in a FIFO are not seen here.
    fn order(&mut self, _order: Order) -> anyhow::Result<()> {
        Ok(())
    }

    fn to_split(&self, stats: &Stats) -> u64 {
        // One that leaves alone has a meta header, too.
        stats.meta_packets + stats.unaggregated_packets
    }

    fn run(&mut self, now: Instant, poller: &mut Poller) -> anyhow::Result<Option<Instant>> {
        let [tap, completions, sockets @ ..] =
            self.waited.map(|index| index.is_some_and(|index| poller.readable(index)));
        if completions {
            self.completions.take()?;
        }
        if self.busy {
            self.tell_device(now);
        }
        let over = self.paused.is_some_and(|until| now >= until || !self.busy);
        if over {
            self.paused = None;
        }
        self.answers.run(now, |to, what| self.leaving.push(what.packet(to)));
        self.drain(now);
        let (mut outbound, mut inbound) = (tap || over, sockets[0] || sockets[1]);
        for _ in 0..ROUNDS {
            if outbound {
                outbound = self.outbound(now)?;
            }
            if inbound {
                inbound = self.inbound(now)?;
            }
            if !self.leaving.is_empty() {
                self.send()?;
                self.paused = None;
                // A device that frees frames at once takes the next one in this round.
                self.tell_device(now);
                self.drain(now);
            } else if self.busy && !outbound {
                self.paused = self.paused.or(Some(now + GATHER));
            }
            if !outbound && !inbound && self.leaving.is_empty() {
                self.pause(poller, self.paused.is_some());
                let deadline = self.aggregator.next_deadline();
                let answers = self.answers.next_deadline();
                return Ok([deadline, answers, self.paused].into_iter().flatten().min());
            }
        }
        self.send()?;
        self.tell_device(now);
        self.pause(poller, false);
        Ok(Some(now))
    }

    fn wait_for(&mut self, poller: &mut Poller) {
        self.waited =
            [Some(poller.add(&self.tap)), Some(poller.add(&self.completions)), None, None];
        for (waited, raw) in self.waited[2..].iter_mut().zip(&self.raw) {
            *waited = raw.as_ref().map(|raw| poller.add(raw));
        }
    }

    fn held(&self) -> u32 {
        self.aggregator.frames() as u32
    }

    fn passed(&self) -> anyhow::Result<u64> {
        Ok(self.passed.into())
    }

    fn stats(&self) -> anyhow::Result<Vec<(u32, Stats)>> {
        let stats = |(id, _): &(HopId, Hop)| (id.0, self.aggregator.stats(*id));
        Ok(self.hops.iter().map(stats).collect())
    }

    fn split(&self) -> anyhow::Result<Option<BTreeMap<String, u64>>> {
        let splitter = &self.splitter;
        let refused =
            Refusal::ALL.iter().map(|why| (why.name().to_owned(), splitter.refused(*why)));
        let all = aggfrag::Refusal::ALL.iter();
        let refused_frames =
            all.map(|why| (format!("frame-{}", why.name()), splitter.refused_frames(*why)));
        let received = splitter.received().unwrap_or_default();
        let taken = [
            ("meta-packets", splitter.meta_packets()),
            ("packets", splitter.packets()),
            ("ecn-not-capable", splitter.not_capable()),
            ("only-neighbours-say", splitter.only_neighbours_say()),
            ("frames", received.frames),
            ("frames-missing", received.missing),
            ("frames-late", received.late),
            ("unjoined", received.unjoined),
            ("unrestored", received.unrestored),
        ];
        let taken = taken.map(|(name, count)| (name.to_owned(), count));
        Ok(Some(refused.chain(refused_frames).chain(taken).collect()))
    }

    fn fault(&self) -> anyhow::Result<Option<String>> {
        let down = !ip::is_up(&self.tap_name)?;
        Ok(down.then(|| format!("{} was set down; it is made anew", self.tap_name)))
    }

    fn heard(&self, from: IpAddr) -> Option<Instant> {
        self.heard.get(&from).copied()
    }

    fn accept(&mut self, peers: &Peers) -> anyhow::Result<()> {
        self.splitter.set_senders(peers.senders());
        Ok(())
    }

    fn change(&mut self, config: &Config) -> anyhow::Result<()> {
        self.aggregator.change(config.clone())?;
        self.rules = config.rules.clone();
        Ok(())
    }

    fn forget(&mut self) -> anyhow::Result<()> {
        let routed: Vec<IpAddr> = self.routed.keys().copied().collect();
        for address in routed {
            self.unroute(address)?;
        }
        for prefix in std::mem::take(&mut self.far_routes).into_keys() {
            ignore_gone(ip::run(&format!("route del {prefix} dev {}", self.tap_name)))?;
        }
        self.neighbours.clear();
        self.far_ends = FarEnds::default();
        Ok(())
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        // What the host sent before is still in the TAP interface, and goes with it.
        let now = clock::now();
        for _ in 0..ROUNDS {
            let more = self.outbound(now)?;
            self.send()?;
            if !more {
                break;
            }
        }
        let idle = Device::Reports { waiting: 0, limit: NO_LIMIT };
        // One frame makes the device busy again.
        while self.aggregator.frames() > 0 {
            self.aggregator.set_device(idle, Instant::MAX);
            self.drain(Instant::MAX);
            self.send()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_wire::meta::Outer;

    #[test]
    fn the_longest_prefix_leads_to_its_far_end() {
        let mut far_ends = FarEnds::default();
        for (text, hop) in [("10.0.0.0/8", 0), ("10.9.0.0/16", 1), ("10.9.0.1", 2), ("fd00::/8", 3)]
        {
            far_ends.insert(prefix::parse(text).unwrap(), HopId(hop));
        }
        let find = |text: &str| far_ends.find(text.parse().unwrap()).map(|hop| hop.0);
        assert_eq!(find("10.9.0.1"), Some(2));
        assert_eq!(find("10.9.7.1"), Some(1));
        assert_eq!(find("10.200.7.1"), Some(0));
        assert_eq!(find("fdff::1"), Some(3));
        assert_eq!(find("192.0.2.1"), None);
        assert_eq!(find("2001:db8::1"), None);
    }

    #[test]
    fn a_gathered_packet_that_leaves_alone_has_a_meta_header_and_others_stay_as_they_are() {
        let outer = Outer::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() };
        let small = sheaf_wire::ip::example_udp(&[7; 32]);
        let mut wrapped = small.clone();
        wrap(&Rules::default(), Hop { max: Some(1500), ..Hop::neighbour(outer) }, &mut wrapped);
        let meta = Meta::parse(&wrapped).unwrap();
        assert_eq!(meta.repr().outer, outer);
        assert!(meta.packets().map(|packet| packet.bytes().to_vec()).eq([small.clone()]));
        let long = sheaf_wire::ip::example_udp(&[7; 300]);
        for (packet, max) in [(&small, 0), (&small, 79), (&long, 1500)] {
            let mut same = packet.clone();
            let hop = Hop { max: Some(max), ..Hop::neighbour(outer) };
            wrap(&Rules::default(), hop, &mut same);
            assert_eq!(&same, packet);
        }
    }
}
