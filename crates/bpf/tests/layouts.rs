//! No byte of any packet changes, whatever its layout and whatever its sender left to the device:
//! each arrives as it does without the program, beside an innocent flow. Needs root.

mod pair;

use nix::sys::socket::{setsockopt, sockopt};
use pair::{A, B, COOKIE, MAC_A, MAC_B, Pair};
use proptest::prelude::*;
use sheaf_aggregate::{Config, Policy, Rule, Rules, Senders};
use sheaf_bpf::layout::{self, SLOTS};
use sheaf_bpf::{Controller, merge};
use sheaf_netio::poller::Poller;
use sheaf_netio::vnet::{self, Header};
use sheaf_netio::vnet_packet::{Receive, VnetSocket};
use sheaf_netio::{clock, ip};
use sheaf_stage::{Duration, Instant};
use sheaf_wire::checksum;
use sheaf_wire::meta::{Meta, Outer};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::UdpSocket;

/// Longer than any frame takes to arrive on a machine that does other things, too.
const LONG: Duration = Duration::from_secs(10);
/// Bytes at which frames leave under `forced`: few, so that most packets share one.
const MIN: u32 = 300;
/// Bytes of memory for what a socket has not read.
const MEMORY: usize = 16 << 20;
/// Jumbo frames pass the cable: what is held may have to leave on a copy of one.
const MTU: u32 = 9000;
const HOP_BY_HOP: u8 = 0;
const IP_IN_IP: u8 = 4;
const TCP: u8 = 6;
const UDP: u8 = 17;

const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const GRE: u8 = 47;
const ICMP: u8 = 1;
const OPTIONS: u8 = 60;
const SCTP: u8 = 132;

/// What a packet's sender left to the device.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Left {
    Nothing,
    /// The checksum of its own transport.
    Outer,
    /// That of the packet in its tunnel.
    Inner,
    /// One that begins anywhere behind the IP header, at so many thousandths of what is there.
    Anywhere(u16, u8),
    /// One of UDP, so many bytes into the frame.
    At(u16),
}

#[derive(Clone, Debug)]
struct Layout {
    v6: bool,
    /// One of two flows each: the last byte of the source address, and the port's.
    flow: u8,
    protocol: u8,
    /// Bytes of IPv4 options, a multiple of four.
    options: usize,
    extensions: Vec<u8>,
    /// Fragment field of IPv4.
    fragment: u16,
    class: u8,
    payload: usize,
    left: Left,
    vlan: Option<u16>,
    trailer: usize,
    /// Bytes of a segment; 0: no super-packet.
    segment: u16,
    /// Over IPv4, UDP may go without.
    no_checksum: bool,
    seed: u8,
}

fn layout() -> impl Strategy<Value = Layout> {
    let payload = prop_oneof![6 => 0..120usize, 2 => 120..300usize, 1 => 300..1900usize];
    let protocol = prop::sample::select(vec![UDP, UDP, TCP, SCTP, ICMP, GRE, IP_IN_IP]);
    let options = prop_oneof![3 => Just(0), 1 => (0..=10usize).prop_map(|words| words * 4)];
    let extension = prop::sample::select(vec![HOP_BY_HOP, OPTIONS, ROUTING, FRAGMENT]);
    let extensions = prop_oneof![
        3 => Just(vec![]),
        1 => prop::collection::vec(extension, 1..4),
    ];
    let fragment = prop_oneof![8 => Just(0), 1 => Just(0x2000), 1 => 1..100u16];
    let left = prop_oneof![
        2 => Just(Left::Nothing),
        2 => Just(Left::Outer),
        1 => Just(Left::Inner),
        1 => (0..1000u16, 0..40u8).prop_map(|(start, offset)| Left::Anywhere(start, offset)),
    ];
    let vlan = prop::option::weighted(0.05, any::<u16>());
    let trailer = prop_oneof![4 => Just(0), 1 => 0..60usize];
    let segment = prop_oneof![9 => Just(0), 1 => 400..1400u16];
    let class = prop::sample::select(vec![0, 0, 0, 1, 3, 46 << 2]);
    let shape = (any::<bool>(), 0..2u8, protocol, options, extensions, fragment);
    let rest = (class, payload, left, vlan, trailer, segment, any::<bool>(), any::<u8>());
    (shape, rest).prop_map(|((v6, flow, protocol, options, extensions, fragment), rest)| {
        let (class, payload, left, vlan, trailer, segment, no_checksum, seed) = rest;
        Layout {
            v6,
            flow,
            protocol,
            options,
            extensions,
            fragment,
            class,
            payload,
            left,
            vlan,
            trailer,
            segment,
            no_checksum,
            seed,
        }
    })
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Field of the checksum in a transport header.
fn field(protocol: u8) -> usize {
    match protocol {
        UDP => 6,
        TCP => 16,
        SCTP => 8,
        GRE => 4,
        _ => 2,
    }
}

/// A transport header of `protocol` and `payload`, its checksum zero.
fn transport(protocol: u8, flow: u8, payload: &[u8]) -> Vec<u8> {
    let ports = [0x1f, 0x40 + flow, 0x13, 0x8d];
    let mut bytes = match protocol {
        UDP => {
            let len = (8 + payload.len()) as u16;
            [&ports[..], &len.to_be_bytes(), &[0; 2]].concat()
        }
        TCP => [&ports[..], &[0, 0, 0, 7, 0, 0, 0, 9, 0x50, 0x18, 9, 9, 0, 0, 0, 0]].concat(),
        SCTP => [&ports[..], &[0, 0, 0, 5, 0, 0, 0, 0]].concat(),
        // An echo reply: nobody replies to it.
        ICMP => vec![0, 0, 0, 0, 0, 7, 0, flow],
        _ => vec![],
    };
    bytes.extend_from_slice(payload);
    bytes
}

/// Puts the sum of the pseudo header, of these addresses, into the field, or the whole checksum.
fn sum_up(bytes: &mut [u8], protocol: u8, addresses: &[u8], whole: bool) {
    let at = field(protocol);
    match protocol {
        UDP | TCP => {
            let pseudo = checksum::sum(addresses, bytes.len() as u32 + u32::from(protocol));
            put(bytes, at, checksum::fold(pseudo));
        }
        // Not the right sum, but one that was computed; 0 stands for one that was not.
        SCTP => put(bytes, at, if whole { 0x5aea } else { 0 }),
        _ => return put(bytes, at, 0),
    }
    if whole && protocol != SCTP {
        vnet::finish_checksum(bytes, 0, at).unwrap();
    }
}

impl Layout {
    /// The frame, virtio header first.
    fn frame(&self) -> Vec<u8> {
        let super_packet = self.segment > 0 && matches!(self.protocol, UDP | TCP);
        let payload = if super_packet { self.payload + 2600 } else { self.payload };
        let payload: Vec<u8> = (0..payload).map(|at| at as u8 ^ self.seed).collect();
        // Not of the flows outside the VLAN.
        let host = 1 + self.flow + if self.vlan.is_some() && !super_packet { 100 } else { 0 };
        let source = [10, 66, 0, host];
        let mut addresses = [source, [10, 9, 0, 2]].concat();
        let v6 = self.v6 && self.protocol != GRE;
        // In a tunnel is a packet of UDP.
        let inner_start = match self.protocol {
            _ if super_packet => None,
            UDP if self.left == Left::Inner => Some(8 + 20),
            GRE => Some(4 + 20),
            IP_IN_IP => Some(20),
            _ => None,
        };
        let tunnelled = inner_start.map(|_| {
            let mut udp = transport(UDP, self.flow, &payload);
            let inside = [10, 99, 0, 1, 10, 99, 0, 2];
            sum_up(&mut udp, UDP, &inside, self.left != Left::Inner);
            [v4(UDP, 0, 0, 0, &inside, udp.len()), udp].concat()
        });
        let mut bytes = match (self.protocol, tunnelled) {
            (GRE, Some(inner)) => [vec![0, 0, 8, 0], inner].concat(),
            (UDP, Some(inner)) => transport(UDP, self.flow, &inner),
            (_, Some(inner)) => inner,
            _ => transport(self.protocol, self.flow, &payload),
        };
        if v6 {
            addresses = [&[0xfd, 0x66], &[0; 13][..], &[host]].concat();
            addresses.extend_from_slice(&[0xfd, 9]);
            addresses.extend_from_slice(&[0; 13]);
            addresses.push(2);
        }
        let unfinished = super_packet || self.left == Left::Outer;
        let can = matches!(self.protocol, UDP | TCP | SCTP);
        let without = self.protocol == UDP && !v6 && !unfinished && self.no_checksum;
        if can && !without && !(self.protocol == UDP && self.left == Left::Inner) {
            sum_up(&mut bytes, self.protocol, &addresses, !unfinished);
        } else if self.protocol == ICMP && self.left != Left::Outer {
            vnet::finish_checksum(&mut bytes, 0, 2).unwrap();
        }
        let extensions = if super_packet { &[][..] } else { &self.extensions };
        let head = if v6 {
            self.v6_headers(extensions, &addresses, bytes.len())
        } else {
            let options = if super_packet { 0 } else { self.options };
            let fragment = if super_packet { 0 } else { self.fragment };
            v4(self.protocol, self.class, options, fragment, &addresses, bytes.len())
        };
        let ethertype: [u8; 2] = if v6 { [0x86, 0xdd] } else { [8, 0] };
        let mut frame = [&MAC_B[..], &MAC_A].concat();
        if let Some(tag) = self.vlan.filter(|_| !super_packet) {
            frame.extend_from_slice(&[0x81, 0]);
            frame.extend_from_slice(&tag.to_be_bytes());
        }
        frame.extend_from_slice(&ethertype);
        let transport_start = frame.len() + head.len();
        frame.extend_from_slice(&head);
        frame.extend_from_slice(&bytes);
        let end = frame.len();
        let trailer = if super_packet { 0 } else { self.trailer };
        frame.resize(end + trailer, 0);

        let mut header = Header::default();
        let (start, offset) = match self.left {
            _ if super_packet => (transport_start, field(self.protocol)),
            Left::Outer if can || self.protocol == ICMP => (transport_start, field(self.protocol)),
            Left::Inner if inner_start.is_some() => (transport_start + inner_start.unwrap(), 6),
            Left::Anywhere(part, offset) => {
                let room = frame.len() - transport_start;
                let start = room * usize::from(part) / 1000;
                (transport_start + start, usize::from(offset))
            }
            Left::At(start) => (usize::from(start), 6),
            _ => (usize::MAX, 0),
        };
        if start.saturating_add(offset + 2) <= frame.len() {
            header.partial = true;
            (header.csum_start, header.csum_offset) = (start as u16, offset as u16);
        }
        if super_packet {
            header.gso_size = self.segment;
            header.gso_type = match (self.protocol, v6) {
                (UDP, _) => Header::UDP,
                (_, true) => Header::TCP_V6,
                (_, false) => Header::TCP_V4,
            };
            let transport_len = if self.protocol == UDP { 8 } else { 20 };
            header.hdr_len = (transport_start + transport_len) as u16;
        }
        let mut whole = vec![0; vnet::LEN];
        header.emit(&mut whole);
        whole.extend_from_slice(&frame);
        whole
    }

    fn v6_headers(&self, extensions: &[u8], addresses: &[u8], len: usize) -> Vec<u8> {
        let first = extensions.first().copied().unwrap_or(self.protocol);
        let mut head = vec![0x60 | self.class >> 4, self.class << 4, 0, 0];
        head.extend_from_slice(&((extensions.len() * 8 + len) as u16).to_be_bytes());
        head.extend_from_slice(&[first, 63]);
        head.extend_from_slice(addresses);
        for (index, kind) in extensions.iter().enumerate() {
            let next = extensions.get(index + 1).copied().unwrap_or(self.protocol);
            // PadN of four bytes, or a fragment that is whole.
            let body = if *kind == FRAGMENT { [0, 0, 0, 0, 0, 9] } else { [1, 4, 0, 0, 0, 0] };
            head.extend_from_slice(&[next, 0]);
            head.extend_from_slice(&body);
        }
        head
    }
}

fn v4(
    protocol: u8,
    class: u8,
    options: usize,
    fragment: u16,
    addresses: &[u8],
    len: usize,
) -> Vec<u8> {
    let mut head = vec![0x45 + (options / 4) as u8, class];
    head.extend_from_slice(&((20 + options + len) as u16).to_be_bytes());
    head.extend_from_slice(&[0, 7]);
    head.extend_from_slice(&fragment.to_be_bytes());
    head.extend_from_slice(&[63, protocol, 0, 0]);
    head.extend_from_slice(addresses);
    // No operation.
    head.resize(20 + options, 1);
    let checksum = checksum::ipv4_header(&head);
    put(&mut head, 10, checksum);
    head
}

impl Layout {
    /// A plain UDP packet with `payload` bytes.
    fn udp(payload: usize, left: Left) -> Layout {
        Layout {
            v6: false,
            flow: 0,
            protocol: UDP,
            options: 0,
            extensions: vec![],
            fragment: 0,
            class: 0,
            payload,
            left,
            vlan: None,
            trailer: 0,
            segment: 0,
            no_checksum: false,
            seed: 7,
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Packet(Layout),
    /// So many packets of the innocent flow.
    Innocent(u8),
    /// User space has its turn.
    Turn,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        10 => layout().prop_map(Op::Packet),
        4 => (1..6u8).prop_map(Op::Innocent),
        2 => Just(Op::Turn),
    ];
    prop::collection::vec(op, 1..80)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Forced,
    Fifo,
    Fair,
}

/// Every packet that the splitter would take back is gathered.
fn config(mode: Mode) -> Config {
    let any = Rule { protocol: None, max_len: 1500, ..Rule::default() };
    let rules = Rules { rules: vec![any], acks: true };
    let policy = if mode == Mode::Forced { Policy::Forced } else { Policy::Busy };
    Config { policy, rules, ..Config::default() }
}

/// A pair, with the programs in one of their modes or without.
struct Rig {
    pair: Pair,
    mode: Option<Mode>,
    /// Whether B splits; otherwise what arrives is what meta packets on the cable have in them.
    split: bool,
    controller: Option<Controller>,
    into: VnetSocket,
    behind: VnetSocket,
    /// What the layers of IPv4 and IPv6 get: behind the splitter, where `behind` is before it and
    /// hears what waited there twice.
    layers: Vec<VnetSocket>,
    from: UdpSocket,
    to: UdpSocket,
    number: u32,
}

impl Rig {
    fn new(mode: Option<Mode>, split: bool) -> Rig {
        let pair = Pair::new();
        for host in [&pair.a, &pair.b] {
            host.run(|| ip::run(&format!("link set eth0 mtu {MTU}"))).unwrap();
        }
        if split {
            pair.split(&Senders::neighbours([A.into()]));
        }
        let open = |receive| move || VnetSocket::open(ip::index("eth0")?, receive);
        let into = pair.a.run(open(Receive::Nothing)).unwrap();
        let behind = pair.b.run(open(Receive::Everything)).unwrap();
        let protocols = [libc::ETH_P_IP, libc::ETH_P_IPV6].into_iter().filter(|_| split);
        let layer = |protocol: i32| {
            let (ifindex, protocol) = (ip::index("eth0")?, protocol as u16);
            let socket = VnetSocket::open(ifindex, Receive::Everything)?;
            sheaf_netio::socket::bind_packet(&socket, ifindex, protocol)?;
            Ok(socket)
        };
        let layers = protocols.map(|protocol| pair.b.run(|| layer(protocol)).unwrap()).collect();
        let controller = mode.map(|mode| controller(&pair, mode));
        let (from, to) = pair.sockets();
        to.set_nonblocking(true).unwrap();
        // What is split counts with the memory of the whole frame.
        setsockopt(&to, sockopt::RcvBufForce, &MEMORY).unwrap();
        Rig { pair, mode, split, controller, into, behind, layers, from, to, number: 0 }
    }

    /// Lets user space look; gates stay closed, as if the device were always busy.
    fn turn(&mut self) {
        let Some(controller) = &mut self.controller else { return };
        self.pair
            .a
            .run(|| {
                controller.run(clock::now()).map_err(std::io::Error::other)?;
                close(controller);
                Ok(())
            })
            .unwrap();
    }

    /// Whoever waits in a FIFO with strangers ahead would lose the place in the line. Here they are
    /// gone at once, so packets gather.
    fn strangers_are_gone(&self) {
        let Some(controller) = self.controller.as_ref() else { return };
        if self.mode == Some(Mode::Fifo) {
            let passed = controller.merge.device().read().passed;
            controller.merge.gates().strangers_left(0, passed);
        }
    }

    /// Everything leaves that is held.
    fn flush(&mut self) {
        let Some(controller) = &mut self.controller else { return };
        let mut flush = || -> Result<(), sheaf_bpf::Error> {
            while controller.merge.device().read().held > 0 {
                controller.run(clock::now())?;
                controller.flush()?;
            }
            close(controller);
            Ok(())
        };
        self.pair.a.run(|| flush().map_err(std::io::Error::other)).unwrap();
    }

    fn gathered(&self) -> u64 {
        let stats = self.controller.as_ref().unwrap().merge.stats().unwrap();
        stats.iter().map(|(_, stats)| stats.aggregated_packets).sum()
    }

    /// Sends what `ops` say; returns all frames that arrive in B, in order, but for meta packets.
    fn arrivals(&mut self, ops: &[Op]) -> Vec<Vec<u8>> {
        for op in ops {
            match op {
                Op::Packet(layout) => {
                    self.into.send([&layout.frame()[..]]);
                }
                Op::Innocent(count) => {
                    for _ in 0..*count {
                        self.from.send(&innocent(self.number)).unwrap();
                        self.number += 1;
                    }
                }
                Op::Turn => self.turn(),
            }
            self.strangers_are_gone();
        }
        self.flush();
        let mut frames = Vec::new();
        // Behind the first marker everything has been split, behind the second all has arrived.
        for number in 0..2 {
            let marker = [&MAC_B[..], &MAC_A, &[0x88, 0xb6, number], &[0; 45]].concat();
            self.into.send([&[&[0; vnet::LEN][..], &marker].concat()[..]]);
            self.hear_until(&marker, &mut frames);
        }
        if self.split {
            frames.clear();
            for layer in &mut self.layers {
                let mut each = |bytes: &[u8], _| frames.extend(arrived(bytes, true));
                while layer.receive(&mut each).unwrap() > 0 {}
            }
        }
        frames
    }

    fn hear_until(&mut self, marker: &[u8], frames: &mut Vec<Vec<u8>>) {
        let mut poller = Poller::default();
        poller.add(&self.behind);
        let split = self.split;
        let mut over = false;
        while !over {
            let heard = self.behind.receive(|bytes, _| {
                let frame = &bytes[vnet::LEN..];
                if frame[..15] == marker[..15] {
                    over = true;
                } else if frame[..6] == MAC_B && frame[6..12] == MAC_A {
                    frames.extend(arrived(bytes, split));
                }
            });
            if heard.unwrap() == 0 {
                poller.wait(Some(LONG)).unwrap();
                assert!(poller.readable(0), "the marker arrives");
            }
        }
    }

    /// What B's socket received of the innocent flow since the last call.
    fn received(&self) -> Vec<Vec<u8>> {
        let mut bytes = [0; 2048];
        let one = || self.to.recv(&mut bytes).ok().map(|len| bytes[..len].to_vec());
        std::iter::from_fn(one).collect()
    }
}

fn controller(pair: &Pair, mode: Mode) -> Controller {
    let attach = || {
        let ifindex = ip::index("eth0")?;
        let mut controller = Controller::attach("eth0", ifindex, MAC_A, &config(mode), COOKIE)?;
        let hop = layout::Hop::new(0, Outer::V4 { src: A, dst: B }, MIN, 1500);
        controller.merge.set_hop(MAC_B, hop)?;
        if mode != Mode::Forced {
            controller.track(mode == Mode::Fifo)?;
            close(&controller);
        }
        Ok(controller)
    };
    pair.a.run(|| attach().map_err(|error: sheaf_bpf::Error| std::io::Error::other(error))).unwrap()
}

fn close(controller: &Controller) {
    let rule = merge::Rule { closed: true, probe_at: Instant::MAX, ..merge::Rule::OPEN };
    (0..SLOTS).for_each(|slot| controller.merge.gates().set(slot, rule));
    controller.merge.device().unseen_until(Instant::ZERO);
}

fn innocent(number: u32) -> Vec<u8> {
    let len = 20 + number as usize % 90;
    let mut payload: Vec<u8> = (0..len).map(|at| (at as u32 * 7 + number) as u8).collect();
    payload[..4].copy_from_slice(&number.to_be_bytes());
    payload
}

/// The frame as its receiver takes it, virtio header first: its checksum finished, of IP what its
/// length says. Of a meta packet what is inside, or nothing where B splits it.
fn arrived(bytes: &[u8], split: bool) -> Vec<Vec<u8>> {
    let header = Header::parse(bytes).unwrap();
    let frame = &bytes[vnet::LEN..];
    if let Ok(meta) = Meta::parse(&frame[14..]) {
        assert!(!header.partial, "the device would write into a meta packet");
        let framed = |inner: sheaf_wire::ip::Ip<'_>| {
            let kind: [u8; 2] = if inner.bytes()[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
            [&[0; vnet::LEN][..], &frame[..12], &kind, inner.bytes()].concat()
        };
        return if split { Vec::new() } else { meta.packets().map(framed).collect() };
    }
    let mut bytes = bytes.to_vec();
    if header.gso_type == 0 {
        vnet::finish(&mut bytes);
    }
    let packet = &bytes[vnet::LEN + 14..];
    let len = match bytes[vnet::LEN + 12..vnet::LEN + 14] {
        [8, 0] => usize::from(u16::from_be_bytes([packet[2], packet[3]])),
        [0x86, 0xdd] => 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]])),
        _ => packet.len(),
    };
    bytes.truncate(vnet::LEN + 14 + len);
    vec![bytes]
}

/// The payloads of the innocent flow, taken out of `frames`.
fn innocents(frames: &mut Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    // The number that IP gives each packet differs from run to run.
    let mine = |frame: &&Vec<u8>| frame[vnet::LEN + 26..].starts_with(&A.octets());
    let payload = |frame: &Vec<u8>| {
        let (addresses, udp) = (&frame[vnet::LEN + 26..vnet::LEN + 34], &frame[vnet::LEN + 34..]);
        let pseudo = checksum::sum(addresses, udp.len() as u32 + u32::from(UDP));
        assert_eq!(checksum::fold(checksum::sum(udp, pseudo)), 0xffff, "{frame:?}");
        udp[8..].to_vec()
    };
    let payloads = frames.iter().filter(mine).map(payload);
    let payloads = payloads.collect();
    frames.retain(|frame| !mine(&frame));
    payloads
}

/// Addresses and class, then protocol and ports.
type Flow = (Vec<u8>, Vec<u8>);

/// Of which flow a frame is: its addresses and class, and its ports where it has some.
fn flow(bytes: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let gso = bytes[1] != 0;
    let packet = &bytes[vnet::LEN + 14..];
    let (addresses, class, protocol, portless, start) = match bytes[vnet::LEN + 12..vnet::LEN + 14]
    {
        [8, 0] => {
            let fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0;
            (&packet[12..20], packet[1], packet[9], packet[0] != 0x45 || fragment, 20)
        }
        [0x86, 0xdd] => {
            let class = packet[0] << 4 | packet[1] >> 4;
            let extension = [HOP_BY_HOP, OPTIONS, ROUTING, FRAGMENT].contains(&packet[6]);
            (&packet[8..40], class, packet[6], extension, 40)
        }
        _ => return None,
    };
    let class = if class & 3 == 3 { class & !1 } else { class };
    let pair = [addresses, &[class]].concat();
    let ports = match protocol {
        _ if portless => return Some((pair, None)),
        UDP | TCP => &packet[start..start + 4],
        SCTP if !gso && packet[start + 8..start + 12] == [0; 4] => return Some((pair, None)),
        _ => &[],
    };
    Some((pair, Some([&[protocol], ports].concat())))
}

/// The frames of each flow in order, with those of its ends that have no ports among them.
fn sequences(frames: &[Vec<u8>]) -> BTreeMap<Flow, Vec<Vec<u8>>> {
    let mut sequences = BTreeMap::<_, Vec<_>>::new();
    for frame in frames {
        if let Some((pair, Some(ports))) = flow(frame) {
            sequences.entry((pair, ports)).or_default();
        }
    }
    for frame in frames {
        let Some((pair, ports)) = flow(frame) else { continue };
        for ((of, with), sequence) in &mut sequences {
            if *of == pair && ports.as_ref().is_none_or(|ports| ports == with) {
                sequence.push(frame.clone());
            }
        }
    }
    sequences
}

fn stay_on_one_cpu() {
    let mut cpus = nix::sched::CpuSet::new();
    cpus.set(0).unwrap();
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &cpus).unwrap();
}

/// The frame as the layers of IP get it where there is no VLAN.
fn untagged(mut frame: Vec<u8>) -> Vec<u8> {
    if frame[vnet::LEN + 12..].starts_with(&[0x81, 0]) {
        frame.drain(vnet::LEN + 12..vnet::LEN + 16);
        return arrived(&frame, true).remove(0);
    }
    frame
}

fn sorted(mut items: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    items.sort();
    items
}

/// Fails where the two differ, with the place.
fn same(what: &str, with: &[Vec<u8>], without: &[Vec<u8>]) -> Result<(), TestCaseError> {
    for (index, (with, without)) in with.iter().zip(without).enumerate() {
        prop_assert_eq!(with, without, "{}, number {}", what, index);
    }
    prop_assert_eq!(with.len(), without.len(), "{}: how many arrive", what);
    Ok(())
}

fn compare(
    plain: &mut Rig,
    cable: &mut Rig,
    rig: &mut Rig,
    ops: &[Op],
) -> Result<(), TestCaseError> {
    // After a failure they may differ.
    let before = plain.number.max(cable.number).max(rig.number);
    for rig in [&mut *plain, cable, rig] {
        rig.number = before;
        drop(rig.received());
    }
    let [mut without, mut with, mut split] = [plain, cable, rig].map(|rig| {
        let frames = rig.arrivals(ops);
        (frames, rig.received(), rig.number)
    });
    let expected: Vec<_> = (before..without.2).map(innocent).collect();
    same("innocent, without", &innocents(&mut without.0), &expected)?;
    same("innocent, on the cable", &innocents(&mut with.0), &expected)?;
    same("innocent, split", &innocents(&mut split.0), &expected)?;
    same("innocent, at its socket", &split.1, &expected)?;
    for (flow, sequence) in sequences(&without.0) {
        for (what, frames) in [("on the cable", &with.0), ("split", &split.0)] {
            let with = sequences(frames).remove(&flow).unwrap_or_default();
            same(&format!("{what}, in order, {flow:?}"), &with, &sequence)?;
        }
    }
    let without = sorted(without.0);
    same("on the cable", &sorted(with.0), &without)?;
    let untagged = |frames: Vec<Vec<u8>>| sorted(frames.into_iter().map(untagged).collect());
    same("split", &untagged(split.0), &untagged(without))?;
    Ok(())
}

fn every_layout(mode: Mode) {
    stay_on_one_cpu();
    let rigs = [(None, false), (Some(mode), false), (Some(mode), true)];
    let rigs = RefCell::new(rigs.map(|(mode, split)| Rig::new(mode, split)));
    let cases =
        ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(cases, |(ops in ops())| {
        let [plain, cable, rig] = &mut *rigs.borrow_mut();
        compare(plain, cable, rig, &ops)?;
    });
    let gathered = rigs.borrow()[2].gathered();
    assert!(gathered > 100, "packets share frames, {gathered} in all");
}

#[test]
fn a_frame_that_leaves_on_a_copy_of_a_jumbo_frame_keeps_its_bytes_wherever_a_checksum_is_left() {
    stay_on_one_cpu();
    // In a FIFO, whatever passes takes along what was there before it.
    let rigs = [(None, false), (Some(Mode::Fifo), false), (Some(Mode::Fifo), true)];
    let [mut plain, mut cable, mut rig] = rigs.map(|(mode, split)| Rig::new(mode, split));
    // Around the most bytes that one call pulls away.
    for start in 3960..4120 {
        let small = || Op::Packet(Layout::udp(40, Left::Outer));
        let jumbo = Op::Packet(Layout { flow: 1, ..Layout::udp(6000, Left::At(start)) });
        let ops = [small(), Op::Innocent(1), small(), jumbo, small(), Op::Innocent(1)];
        let result = compare(&mut plain, &mut cable, &mut rig, &ops);
        result.unwrap_or_else(|error| panic!("a checksum from byte {start} on: {error}"));
    }
}

#[test]
fn a_tcp_checksum_that_comes_to_zero_leaves_as_linux_writes_it() {
    stay_on_one_cpu();
    let rigs = [(None, false), (Some(Mode::Forced), false), (Some(Mode::Forced), true)];
    let [mut plain, mut cable, mut rig] = rigs.map(|(mode, split)| Rig::new(mode, split));
    // Of the 512 layouts some have a segment whose sum has every bit.
    let tcp = Layout { protocol: TCP, flow: 1, ..Layout::udp(129, Left::Outer) };
    let zero = |layout: &Layout| {
        let mut finished = layout.frame();
        vnet::finish(&mut finished);
        let field = vnet::LEN + 14 + if layout.v6 { 40 } else { 20 } + 16;
        finished[field..field + 2] == [0xff, 0xff]
    };
    let layouts =
        (0..=255).flat_map(|seed| [false, true].map(|v6| Layout { v6, seed, ..tcp.clone() }));
    let ops: Vec<_> = layouts.filter(zero).map(Op::Packet).collect();
    assert!(!ops.is_empty(), "a checksum comes to zero");
    compare(&mut plain, &mut cable, &mut rig, &ops).unwrap();
}

#[test]
fn every_layout_arrives_under_forced_as_without_the_program() {
    every_layout(Mode::Forced);
}

#[test]
fn every_layout_arrives_through_a_busy_fifo_as_without_the_program() {
    every_layout(Mode::Fifo);
}

#[test]
fn every_layout_arrives_through_busy_fair_queues_as_without_the_program() {
    every_layout(Mode::Fair);
}

/// Segments of datagrams on the way out of a socket (linux/udp.h).
const UDP_SEGMENT: libc::c_int = 103;
/// Bytes of each datagram of a burst.
const SEGMENT: libc::c_int = 200;

/// Sends datagrams of one flow from `first` on: small ones, bursts, and some in fragments; returns
/// their number.
fn mixed(from: &UdpSocket, first: u32, seed: u32) -> u32 {
    let datagram = |number: u32, len: usize| {
        let mut bytes: Vec<u8> = (0..len).map(|at| (at as u32 * 3 + number) as u8).collect();
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        bytes
    };
    match seed % 8 {
        0 => {
            let set = |bytes: &libc::c_int| {
                sheaf_netio::socket::set_option(from, libc::SOL_UDP, UDP_SEGMENT, bytes).unwrap();
            };
            let count = 2 + seed / 8 % 20;
            let burst: Vec<u8> = (first..first + count)
                .flat_map(|number| datagram(number, SEGMENT as usize))
                .collect();
            set(&SEGMENT);
            from.send(&burst).unwrap();
            set(&0);
            count
        }
        1 => {
            from.send(&datagram(first, 1800 + seed as usize % 4000)).unwrap();
            1
        }
        _ => {
            from.send(&datagram(first, 20 + seed as usize % 100)).unwrap();
            1
        }
    }
}

/// Numbers of the datagrams that begin in `frame`.
fn numbers(frame: &[u8]) -> Vec<u32> {
    let header = Header::parse(frame).unwrap();
    let packet = &frame[vnet::LEN + 14..];
    if u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff != 0 {
        return Vec::new();
    }
    let len = if header.gso_type == 0 { packet.len() } else { header.gso_size.into() };
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes[..4].try_into().unwrap());
    packet[28..].chunks(len).map(number).collect()
}

fn a_mixed_flow(mode: Mode, split: bool) {
    stay_on_one_cpu();
    let mut rig = Rig::new(Some(mode), split);
    for host in [&rig.pair.a, &rig.pair.b] {
        host.run(|| ip::run("link set eth0 mtu 1500")).unwrap();
    }
    let mut next = 0;
    for seed in (0..2000_u32).map(|step| step.wrapping_mul(0x9e37_79b9) >> 8) {
        next += mixed(&rig.from, next, seed);
        rig.strangers_are_gone();
        if seed % 11 == 0 {
            rig.turn();
        }
    }
    let mut numbers: Vec<_> = rig.arrivals(&[]).iter().flat_map(|frame| numbers(frame)).collect();
    if split {
        let number = |bytes: &Vec<u8>| u32::from_be_bytes(bytes[..4].try_into().unwrap());
        numbers = rig.received().iter().map(number).collect();
    }
    assert_eq!(numbers.len(), next as usize);
    let wrong = numbers.iter().zip(0..).position(|(number, expected)| *number != expected);
    assert_eq!(wrong, None, "out of order: {:?}", wrong.map(|at| numbers.get(at..at + 10)));
    // In fair queues a flow stays in its own from its first large packet on.
    let most_share = mode == Mode::Fair || rig.gathered() > 500;
    assert!(most_share, "{mode:?}: {} share frames", rig.gathered());
}

#[test]
fn small_datagrams_bursts_and_fragments_of_a_flow_leave_in_order_under_forced() {
    a_mixed_flow(Mode::Forced, false);
}

#[test]
fn small_datagrams_bursts_and_fragments_of_a_flow_leave_in_order_through_a_busy_fifo() {
    a_mixed_flow(Mode::Fifo, false);
}

#[test]
fn small_datagrams_bursts_and_fragments_of_a_flow_leave_in_order_through_busy_fair_queues() {
    a_mixed_flow(Mode::Fair, false);
}

#[test]
fn what_passes_beside_meta_packets_does_not_overtake_what_was_in_them() {
    for mode in [Mode::Forced, Mode::Fifo, Mode::Fair] {
        a_mixed_flow(mode, true);
    }
}

/// Kinds of tunnels: what `ip link add … type` says behind the name, with the far end.
const TUNNELS: [(&str, &str); 4] = [
    ("vxlan", "vxlan id 5 dstport 4789 local SELF remote PEER"),
    ("geneve", "geneve id 5 remote PEER"),
    ("gre", "gre local SELF remote PEER"),
    ("ipip", "ipip local SELF remote PEER"),
];

/// Makes the ends of a tunnel on A and B; `false` where the kernel has none of its kind.
fn tunnel(pair: &Pair, how: &str) -> bool {
    [(&pair.a, A, B, 1), (&pair.b, B, A, 2)].into_iter().all(|(host, own, peer, number)| {
        let how = how.replace("SELF", &own.to_string()).replace("PEER", &peer.to_string());
        host.run(|| {
            ip::run(&format!("link add tun9 type {how}"))?;
            ip::run(&format!("addr add 10.88.0.{number}/24 dev tun9"))?;
            ip::run("link set tun9 up")
        })
        .is_ok()
    })
}

fn through_a_tunnel(mode: Mode, how: &str) -> bool {
    /// Small packets through each.
    const PACKETS: u32 = 1000;
    let mut rig = Rig::new(Some(mode), true);
    if !tunnel(&rig.pair, how) {
        return false;
    }
    let to = rig.pair.b.run(|| UdpSocket::bind("10.88.0.2:5005")).unwrap();
    setsockopt(&to, sockopt::RcvBufForce, &MEMORY).unwrap();
    to.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    let from = rig.pair.a.run(|| UdpSocket::bind("10.88.0.1:0")).unwrap();
    from.connect("10.88.0.2:5005").unwrap();
    let mut bytes = [0; 2048];
    // The ends of the tunnel find each other: what waits for that is bounded.
    from.send(b"here").unwrap();
    rig.turn();
    rig.flush();
    assert_eq!(pair::receive(&to, &mut bytes).unwrap(), 4);
    for number in 0..PACKETS {
        from.send(&innocent(number)).unwrap();
        rig.from.send(&innocent(number)).unwrap();
        rig.strangers_are_gone();
        if number % 17 == 0 {
            rig.turn();
        }
    }
    rig.arrivals(&[]);
    let expected: Vec<_> = (0..PACKETS).map(innocent).collect();
    for payload in &expected {
        let len = pair::receive(&to, &mut bytes).expect("every packet arrives");
        assert_eq!(&bytes[..len], payload, "{how}");
    }
    assert_eq!(sorted(rig.received()), sorted(expected), "{how}");
    // In a FIFO every packet of the tunnel takes along what was there before it.
    assert!(mode == Mode::Fifo || rig.gathered() > 500, "packets share frames beside the tunnel");
    true
}

#[test]
fn a_thousand_of_a_thousand_packets_arrive_through_each_tunnel() {
    stay_on_one_cpu();
    for mode in [Mode::Forced, Mode::Fifo, Mode::Fair] {
        let has = |(_, how): &&(&str, &str)| through_a_tunnel(mode, how);
        let (with, without): (Vec<_>, Vec<_>) = TUNNELS.iter().partition(has);
        let names = |tunnels: &[&(&'static str, &str)]| {
            tunnels.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
        };
        println!("{mode:?}: through {}; no {} here", names(&with), names(&without));
    }
}
