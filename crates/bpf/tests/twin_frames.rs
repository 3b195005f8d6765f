//! In format 2, too, the merging program and its model give the same bytes for the same packets,
//! times and messages, and the model's splitter gets out of them what was put in. Needs root.

#[path = "../../aggregate/tests/calls/mod.rs"]
mod calls;
mod pair;

use nix::sys::socket::{LinkAddr, recvfrom, setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use pair::cable::{Cable, MARKS, framed, on_a};
use pair::{A, B, COOKIE, MAC_A, MAC_B, Pair, in_mesh};
use proptest::prelude::*;
use sheaf_aggregate::{
    Aggregator, Config, Device, Format, HopId, Inner, MeshFrame, Outbound, Policy, Rule, Rules,
    Split, Splitter, Threshold,
};
use sheaf_bpf::layout::{self, MergeConfig, SLOTS};
use sheaf_bpf::ticker::{Cause, Tick};
use sheaf_bpf::{Controller, Event, Merge, Ticker};
use sheaf_netio::packet::PacketSocket;
use sheaf_netio::{clock, ip};
use sheaf_stage::{Duration, Instant, Stage};
use sheaf_wire::compress::Definition;
use sheaf_wire::compress::feedback::{Feedback, Item};
use sheaf_wire::ip::Ip;
use sheaf_wire::meta::{HOP_LIMIT_NEIGHBOUR, Outer, Repr};
use sheaf_wire::{aggfrag, batman, checksum, ethernet};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};

const CALLS: usize = 14;
/// Bytes behind the Ethernet header of a frame that is padded as a mesh frame carries it.
const PADDED: usize = 114;
const SECRET: u64 = 0x005e_c2e7;
/// Frames that the device has under `busy`: too many for another one.
const WAITING: u32 = 2;
const LIMIT: u32 = 50;
/// The program's clock begins here: 0 would be the kernel's.
const START: Instant = Instant::from_millis(1_000_000);

/// Packets that each of two processors sends.
const PACKETS: u16 = 3000;
/// Calls of each, besides one that both have.
const OWN: usize = 3;

/// One step of a call; mostly the next voice packet.
#[derive(Clone, Copy, Debug)]
struct Step {
    call: usize,
    /// Steps of the sequence number.
    steps: u16,
    marker: bool,
    /// Growth of the time stamp beyond what the steps explain.
    jump: u32,
    payload: usize,
    /// Steps of the identification besides.
    id: u16,
}

fn step() -> impl Strategy<Value = Step> {
    let steps = prop_oneof![
        20 => Just(1u16),
        1 => 0..12u16,
        1 => Just(40u16),
        1 => Just(200u16),
        1 => Just(u16::MAX - 3),
    ];
    let payload = prop_oneof![12 => Just(20usize), 1 => 0..40usize];
    let jump = prop_oneof![12 => Just(0u32), 1 => Just(160u32), 1 => 1..100_000u32];
    let id = prop_oneof![20 => Just(0u16), 1 => 1..5u16];
    (0..CALLS, steps, prop::bool::weighted(0.05), jump, payload, id).prop_map(
        |(call, steps, marker, jump, payload, id)| Step { call, steps, marker, jump, payload, id },
    )
}

/// A packet that is of no call.
#[derive(Clone, Copy, Debug)]
struct Other {
    v6: bool,
    tcp: bool,
    port: u16,
    class: u8,
    payload: usize,
    /// Its checksum is left to the device.
    unfinished: bool,
    /// Its checksum is wrong.
    damaged: bool,
}

fn other() -> impl Strategy<Value = Other> {
    let payload = prop_oneof![6 => 0..120usize, 2 => 120..300usize, 1 => 300..1440usize];
    // More than there are tags, now and then.
    let class = prop_oneof![
        4 => prop::sample::select(vec![0u8, 1, 3, 46 << 2]),
        1 => (0..40u8).prop_map(|dscp| dscp << 2),
    ];
    let kind = (any::<bool>(), prop::bool::weighted(0.2), 0..4u16);
    (kind, class, payload, any::<bool>(), prop::bool::weighted(0.1)).prop_map(
        |((v6, tcp, port), class, payload, unfinished, damaged)| {
            let damaged = damaged && !unfinished;
            Other { v6, tcp, port: 6000 + port, class, payload, unfinished, damaged }
        },
    )
}

impl Step {
    /// The next voice packet of a call.
    const fn next(call: usize) -> Step {
        Step { call, steps: 1, marker: false, jump: 0, payload: 20, id: 0 }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Voice(Step),
    /// Every call says so many packets more.
    Talk(u16),
    Other(Other),
    /// A packet in a frame of batman-adv with this priority.
    Mesh(Other, u8),
    /// A packet to the group with this number.
    Group(Other, usize),
    /// So many packets more to the group with this number.
    Stream(u16, usize),
    /// Packets to groups share frames from now on, or no longer.
    Groups(bool),
    /// Another frame of batman-adv, of so many bytes.
    Control(usize),
    /// The device takes one frame.
    Done,
    /// Everything leaves, and so many milliseconds go by.
    Late(u64),
    /// What the splitter has said arrives.
    Hear,
    /// What it has said is lost.
    Deaf,
    /// So many frames are lost.
    Lose(usize),
    /// The splitter says this, whatever is true.
    Said(Item),
    /// The splitter starts again.
    Restart,
    /// The next hop gets another format.
    Format(Format),
    /// Packets have this mark from now on.
    Mark(u32),
    /// Marks bound frames from now on, or no longer.
    ByMark(bool),
}

/// Groups: two of each family, and one of the link.
const GROUPS: [&str; 5] = ["239.1.2.3", "239.1.2.4", "ff15::7", "ff05::1:2", "224.0.0.251"];

fn group() -> impl Strategy<Value = Op> {
    (other(), 0..GROUPS.len(), 0..3u8).prop_map(|(other, number, class)| {
        let v6 = address(number).is_ipv6();
        // There are 64 queues only.
        Op::Group(Other { v6, class: class << 2, ..other }, number)
    })
}

fn address(group: usize) -> IpAddr {
    GROUPS[group].parse().unwrap()
}

/// Link address of a group (RFC 1112, section 6.4; RFC 2464, section 7).
fn link_address(group: usize) -> [u8; 6] {
    match address(group) {
        IpAddr::V4(v4) => {
            let [_, a, b, c] = v4.octets();
            [1, 0, 0x5e, a & 0x7f, b, c]
        }
        IpAddr::V6(v6) => {
            let [.., a, b, c, d] = v6.octets();
            [0x33, 0x33, a, b, c, d]
        }
    }
}

/// The outer header of frames to a group.
fn to_group(group: usize) -> Outer {
    let group = address(group);
    let source: IpAddr = if group.is_ipv6() { "fd09::1".parse().unwrap() } else { A.into() };
    Outer::new(source, group).unwrap()
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let item = prop_oneof![
        3 => (0..3u8, any::<u8>())
            .prop_map(|(tag, number)| Item::Unknown { tag, number: number % 20 }),
        1 => (0..3u8).prop_map(|tag| Item::Lost { tag }),
        1 => (0..3u8, 0..20u8, any::<u16>()).prop_map(|(tag, number, generation)| {
            Item::Known { tag, number, generation, check: 7 }
        }),
    ];
    let format = prop::sample::select(vec![Format::Meta, Format::Frames, Format::Compressed]);
    let late = prop::sample::select(vec![5u64, 25, 60, 700, 1999, 2500]);
    let op = prop_oneof![
        40 => step().prop_map(Op::Voice),
        6 => (1..4u16).prop_map(Op::Talk),
        6 => other().prop_map(Op::Other),
        6 => Just(Op::Done),
        3 => late.prop_map(Op::Late),
        12 => Just(Op::Hear),
        1 => Just(Op::Deaf),
        1 => (1..4usize).prop_map(Op::Lose),
        1 => item.prop_map(Op::Said),
        1 => Just(Op::Restart),
        6 => (other(), 0..3u8).prop_map(|(other, priority)| Op::Mesh(other, priority)),
        6 => group(),
        4 => (2..12u16, 0..GROUPS.len()).prop_map(|(count, group)| Op::Stream(count, group)),
        1 => any::<bool>().prop_map(Op::Groups),
        1 => (0..60usize).prop_map(Op::Control),
        2 => format.prop_map(Op::Format),
        8 => prop::sample::select(MARKS.to_vec()).prop_map(Op::Mark),
        1 => any::<bool>().prop_map(Op::ByMark),
    ];
    prop::collection::vec(op, 1..250)
}

/// How far a call is.
#[derive(Clone, Copy, Debug, Default)]
struct Call {
    sequence: u16,
    timestamp: u32,
    id: u16,
}

/// What calls differ in, by their numbers.
struct Kind {
    v6: bool,
    rtp: bool,
    summed: bool,
    unfinished: bool,
    class: u8,
}

fn kind(call: usize) -> Kind {
    let v6 = call % 4 == 3;
    let summed = v6 || call % 5 != 4;
    let class = if call.is_multiple_of(3) { 0 } else { 46 << 2 };
    Kind { v6, rtp: call % 7 != 6, summed, unfinished: summed && call % 3 == 1, class }
}

impl Call {
    /// The packet of the next step.
    fn step(&mut self, step: Step) -> Vec<u8> {
        let kind = kind(step.call);
        self.sequence = self.sequence.wrapping_add(step.steps);
        self.timestamp = self
            .timestamp
            .wrapping_add(160u32.wrapping_mul(u32::from(step.steps)))
            .wrapping_add(step.jump);
        // Some count, some stay, some do neither.
        self.id = match step.call % 3 {
            0 => self.id.wrapping_add(step.steps).wrapping_add(step.id),
            1 => step.id,
            _ => self.id.wrapping_add(step.steps.wrapping_mul(7)).wrapping_add(step.id),
        };
        let mut datagram = Vec::new();
        if kind.rtp {
            datagram.extend_from_slice(&[0x80, 18 | u8::from(step.marker) << 7]);
            datagram.extend_from_slice(&self.sequence.to_be_bytes());
            datagram.extend_from_slice(&self.timestamp.to_be_bytes());
            datagram.extend_from_slice(&[0xca, 0xfe, 0, step.call as u8]);
        }
        let byte = |at: usize| (at as u16 * 7).wrapping_add(self.sequence) as u8;
        datagram.extend((0..step.payload).map(byte));
        let ports = (4000 + step.call as u16, 5004);
        let mut packet = udp(kind.v6, ports, kind.class, self.id, &datagram);
        if !kind.summed {
            packet[26..28].fill(0);
        }
        if kind.unfinished {
            unfinish(&mut packet);
        }
        packet
    }
}

fn udp(v6: bool, ports: (u16, u16), class: u8, id: u16, payload: &[u8]) -> Vec<u8> {
    let builder = builder(v6).udp(ports.0, ports.1);
    let mut packet = Vec::new();
    builder.write(&mut packet, payload).unwrap();
    head(&mut packet, class, id);
    packet
}

fn builder(v6: bool) -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
    if v6 {
        etherparse::PacketBuilder::ipv6([0xfd; 16], [0xfe; 16], 63)
    } else {
        etherparse::PacketBuilder::ipv4([10, 1, 0, 1], [10, 9, 0, 2], 63)
    }
}

/// Writes class, ECN field and identification.
fn head(packet: &mut [u8], class: u8, id: u16) {
    if packet[0] >> 4 == 6 {
        packet[0] = 0x60 | class >> 4;
        packet[1] = class << 4;
        return;
    }
    packet[1] = class;
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    packet[10..12].fill(0);
    let checksum = checksum::ipv4_header(&packet[..20]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// Leaves the checksum of UDP or TCP to the device.
fn unfinish(packet: &mut [u8]) {
    let (transport, addresses) = if packet[0] >> 4 == 6 { (40, 8..40) } else { (20, 12..20) };
    let protocol = if packet[0] >> 4 == 6 { packet[6] } else { packet[9] };
    let len = (packet.len() - transport) as u32 + u32::from(protocol);
    let pseudo = checksum::fold(checksum::sum(&packet[addresses], len));
    let field = transport + if protocol == 6 { 16 } else { 6 };
    packet[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
}

impl Other {
    fn packet(&self) -> Vec<u8> {
        let payload: Vec<u8> = (0..self.payload).map(|at| at as u8 ^ self.port as u8).collect();
        let mut packet = Vec::new();
        if self.tcp {
            builder(self.v6).tcp(self.port, 80, 7, 1000).write(&mut packet, &payload).unwrap();
            head(&mut packet, self.class, 9);
        } else {
            packet = udp(self.v6, (self.port, 5004), self.class, 9, &payload);
        }
        if self.unfinished {
            unfinish(&mut packet);
        }
        if self.damaged {
            let transport = if self.v6 { 40 } else { 20 };
            packet[transport + 6] ^= 0x55;
        }
        packet
    }

    /// The same to the group with this number.
    fn packet_to(&self, group: usize) -> Vec<u8> {
        let mut packet = Other { unfinished: false, damaged: false, ..*self }.packet();
        match address(group) {
            IpAddr::V4(v4) => packet[16..20].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => packet[24..40].copy_from_slice(&v6.octets()),
        }
        head(&mut packet, self.class, 9);
        unfinish(&mut packet);
        if !self.unfinished {
            checksum::finish(&mut packet);
        }
        packet
    }
}

/// The outside of frames to the next hop.
#[derive(Clone, Copy, Debug)]
enum Way {
    V4,
    V6,
    /// The Ethernet header alone.
    Link,
}

/// Whether what is behind an Ethernet header is a frame without a header of IP.
fn is_link(frame: &[u8]) -> bool {
    frame[0] >> 4 == 0
}

/// Both, and the splitter at the other end.
struct Twins<'a> {
    cable: &'a Cable,
    merge: Merge,
    ticker: Ticker,
    model: Aggregator,
    hop: HopId,
    /// The groups' in the model.
    groups: Vec<HopId>,
    outer: Outer,
    splitter: Splitter,
    restarts: u64,
    config: Config,
    mark: u32,
    calls: [Call; CALLS],
    now: Instant,
    /// What the splitter has said.
    said: VecDeque<Feedback>,
    /// Frames that are still to be lost.
    losses: usize,
    sent: Vec<Vec<u8>>,
    delivered: Vec<Vec<u8>>,
}

impl Twins<'_> {
    fn new(config: Config, way: Way, format: Format, cable: &Cable) -> Twins<'_> {
        let outer = match way {
            Way::V4 => Outer::V4 { src: A, dst: B },
            Way::V6 => Outer::new("fd09::1".parse().unwrap(), "fd09::2".parse().unwrap()).unwrap(),
            Way::Link => Outer::Link { src: MAC_A, dst: MAC_B },
        };
        let merge = Merge::attach("eth0", MergeConfig::new(&config, COOKIE)).unwrap();
        assert!(merge.takes_frames(), "a kernel that refuses format 2 has no twin of it");
        let mut model = Aggregator::new(config.clone()).unwrap();
        let hop = model.add_hop(sheaf_aggregate::Hop {
            format,
            payloads: true,
            ..sheaf_aggregate::Hop::neighbour(outer)
        });
        let group = |number| model.add_hop(sheaf_aggregate::Hop::group(to_group(number)));
        let groups = (0..GROUPS.len()).map(group).collect();
        let ticker = Ticker::new(ip::index("eth0").unwrap(), MAC_A, COOKIE).unwrap();
        let mut twins = Twins {
            cable,
            merge,
            ticker,
            model,
            hop,
            groups,
            outer,
            splitter: Splitter::accepting_any().with_frames(SECRET),
            restarts: 0,
            config,
            mark: 0,
            calls: [Call::default(); CALLS],
            now: START,
            said: VecDeque::new(),
            losses: 0,
            sent: Vec::new(),
            delivered: Vec::new(),
        };
        twins.set_format(format);
        twins.set_groups(true);
        twins.cable.mark(0);
        if twins.config.policy == Policy::Busy {
            // What the device has to begin with.
            for _ in 0..WAITING {
                let stranger = [&[2, 0, 0, 0, 9, 9][..], &MAC_A, &[0x88, 0xb6], &[0; 46]].concat();
                twins.merge.device().tell(0, LIMIT);
                twins.program(&stranger);
            }
            twins.keep_busy();
        }
        twins
    }

    fn set_format(&mut self, format: Format) {
        let (min, max) = (self.config.min.of(self.config.max), self.config.max);
        let hop = layout::Hop::new(3, self.outer, min, max);
        self.merge.set_hop(MAC_B, hop.with_format(format).with_payloads(true)).unwrap();
        let hop = sheaf_aggregate::Hop::neighbour(self.outer);
        self.model.set_hop(self.hop, sheaf_aggregate::Hop { format, payloads: true, ..hop });
    }

    fn set_groups(&mut self, on: bool) {
        let max = if on { self.config.max } else { 0 };
        let min = self.config.min.of(self.config.max);
        for source in [to_group(0).source(), to_group(2).source()] {
            self.merge.set_groups(source, min, max).unwrap();
        }
        for (number, hop) in self.groups.iter().enumerate() {
            let group = sheaf_aggregate::Hop::group(to_group(number));
            self.model.set_hop(*hop, sheaf_aggregate::Hop { max: Some(max), ..group });
        }
    }

    /// The device has no less to do than before: what leaves in place would stay as it is.
    fn keep_busy(&mut self) {
        if self.config.policy == Policy::Busy {
            let sent = self.merge.device().read().sent;
            self.merge.device().tell(sent - u64::from(WAITING), LIMIT);
            let device = Device::Reports { waiting: WAITING, limit: LIMIT };
            self.model.set_device(device, self.now);
        }
    }

    fn program(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        // The program may drop it.
        let _ = self.cable.into.send(frame);
        self.cable.packets()
    }

    fn ticked(&mut self, slot: u32, cause: Cause) -> Vec<Vec<u8>> {
        self.ticker.tick(Tick::new(slot, cause)).unwrap();
        self.merge.gates().tick_is_over(slot);
        self.cable.packets()
    }

    /// The queue that waits longest.
    fn oldest(&self) -> Option<u32> {
        let waits = |slot: &u32| !self.merge.queue(*slot).unwrap().is_empty();
        let oldest = |slot: &u32| self.merge.queue(*slot).unwrap().oldest();
        (0..SLOTS).filter(waits).min_by_key(oldest)
    }

    /// Frames that the program sends upon `frame`, with the ticks that it wants.
    fn offered(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        // Nobody hangs here, however long an operation takes.
        self.merge.device().looks();
        let mut sent = self.program(frame);
        while let Some(event) = self.merge.event() {
            if let Event::WantsTick { slot } = event {
                sent.extend(self.ticked(slot, Cause::Size));
                // Only a change of format leaves a third frame behind, which would have to wait for
                // its time.
                let enough = |queue: layout::Queue| !queue.is_empty() && queue.bytes >= queue.min();
                while enough(self.merge.queue(slot).unwrap()) {
                    sent.extend(self.ticked(slot, Cause::Size));
                }
            }
        }
        sent
    }

    /// Frames of the program and of the model upon `packet`.
    fn packet(&mut self, packet: Vec<u8>) -> [Vec<Vec<u8>>; 2] {
        self.packet_to(MAC_B, self.hop, packet)
    }

    /// The same upon one to a next hop or group.
    fn packet_to(&mut self, mac: [u8; 6], hop: HopId, packet: Vec<u8>) -> [Vec<Vec<u8>>; 2] {
        let sent = self.offered(&framed(mac, &packet));
        let mut whole = packet.clone();
        checksum::finish(&mut whole);
        self.sent.push(whole);
        self.model.enqueue(Outbound { hop, mark: self.mark, packet }, self.now).unwrap();
        [sent, self.model_sends()]
    }

    /// Frames of both upon a frame of batman-adv.
    fn mesh(&mut self, bytes: Vec<u8>, priority: u8) -> [Vec<Vec<u8>>; 2] {
        let frame = [&MAC_B[..], &MAC_A, &ethernet::BATMAN.to_be_bytes(), &bytes].concat();
        setsockopt(&self.cable.into, sockopt::Priority, &(256 + i32::from(priority))).unwrap();
        let sent = self.offered(&frame);
        setsockopt(&self.cable.into, sockopt::Priority, &0).unwrap();
        self.sent.push(bytes.clone());
        let frame = MeshFrame { hop: self.hop, mark: self.mark, priority, bytes };
        self.model.enqueue_mesh(frame, self.now).unwrap();
        [sent, self.model_sends()]
    }

    fn model_sends(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.model.dequeue(self.now)).map(|frame| frame.bytes).collect()
    }

    fn hear(&mut self, feedback: &Feedback) {
        self.merge.said(3, feedback, self.now).unwrap();
        self.model.said(self.hop, feedback, self.now);
    }

    /// Frames of both upon `op`.
    fn apply(&mut self, op: &Op) -> [Vec<Vec<u8>>; 2] {
        self.now += Duration::from_micros(1);
        self.merge.device().set_clock(self.now.as_nanos());
        let [mut program, mut model] = [Vec::new(), Vec::new()];
        match *op {
            Op::Voice(step) => {
                let packet = self.calls[step.call].step(step);
                [program, model] = self.packet(packet);
            }
            Op::Talk(count) => {
                for call in (0..count).flat_map(|_| 0..CALLS) {
                    let packet = self.calls[call].step(Step::next(call));
                    // The queue that waits longest has to be one.
                    self.now += Duration::from_micros(1);
                    let [ours, models] = self.packet(packet);
                    program.extend(ours);
                    model.extend(models);
                }
            }
            Op::Other(other) => [program, model] = self.packet(other.packet()),
            Op::Mesh(other, priority) => {
                let finished = Other { unfinished: false, ..other };
                [program, model] = self.mesh(in_mesh(&finished.packet()), priority);
            }
            Op::Group(other, number) => {
                let hop = self.groups[number];
                let packet = other.packet_to(number);
                [program, model] = self.packet_to(link_address(number), hop, packet);
            }
            Op::Stream(count, number) => {
                let (v6, hop) = (address(number).is_ipv6(), self.groups[number]);
                for port in 0..count {
                    let (tcp, class, payload, damaged) = (false, 0, 90, false);
                    let unfinished = port % 2 == 0;
                    let port = 6000 + port % 3;
                    let other = Other { v6, tcp, port, class, payload, unfinished, damaged };
                    self.now += Duration::from_micros(1);
                    let packet = other.packet_to(number);
                    let [ours, models] = self.packet_to(link_address(number), hop, packet);
                    program.extend(ours);
                    model.extend(models);
                }
            }
            Op::Groups(on) => self.set_groups(on),
            Op::Control(len) => [program, model] = self.mesh(vec![0x41; len + 1], 0),
            Op::Done if self.config.policy == Policy::Busy => {
                self.merge.device().tell(self.merge.device().read().sent, LIMIT);
                if let Some(slot) = self.oldest() {
                    program = self.ticked(slot, Cause::Ready);
                }
                let device = Device::Reports { waiting: 0, limit: LIMIT };
                self.model.set_device(device, self.now);
                model = self.model_sends();
            }
            Op::Done => {}
            Op::Mark(mark) => {
                self.mark = mark;
                self.cable.mark(mark);
            }
            Op::ByMark(by_mark) => {
                if self.config.policy == Policy::Forced {
                    // The program sees that more may leave at the next packet only.
                    [program, model] = self.apply(&Op::Late(5));
                }
                self.config.by_mark = by_mark;
                self.merge.set_config(MergeConfig::new(&self.config, COOKIE)).unwrap();
                self.model.change(self.config.clone()).unwrap();
            }
            Op::Late(millis) => {
                while let Some(slot) = self.oldest() {
                    let frames = self.ticked(slot, Cause::Timeout);
                    assert_eq!(frames.len(), 1, "a queue that waits leaves on a tick");
                    program.extend(frames);
                }
                self.now += Duration::from_millis(millis).max(self.config.hold);
                model = self.model_sends();
            }
            Op::Hear => {
                for feedback in std::mem::take(&mut self.said) {
                    self.hear(&feedback);
                }
            }
            Op::Deaf => self.said.clear(),
            Op::Lose(count) => self.losses = count,
            Op::Said(item) => {
                let mut feedback = Feedback::default();
                feedback.push(item);
                self.hear(&feedback);
            }
            Op::Format(format) => self.set_format(format),
            Op::Restart => {
                self.restarts += 1;
                let secret = SECRET + self.restarts;
                self.splitter = Splitter::accepting_any().with_frames(secret);
            }
        }
        self.keep_busy();
        [program, model]
    }

    /// Takes a frame apart at the other end.
    fn arrive(&mut self, frame: &[u8]) {
        let mut frame = frame.to_vec();
        if self.losses > 0 {
            self.losses -= 1;
            return;
        }
        if is_link(&frame) {
            let (outer, delivered) = (self.outer, &mut self.delivered);
            let deliver = |inner: Inner<'_>| delivered.push(inner.bytes.to_vec());
            match self.splitter.split_link(outer, &frame, deliver) {
                Ok(Split::Delivered(feedback)) if !feedback.items().is_empty() => {
                    self.said.push_back(feedback);
                }
                Ok(Split::Delivered(_)) => {}
                other => panic!("{other:?} for {frame:?}"),
            }
            return;
        }
        let meta =
            Repr::with_payload(&frame).is_ok_and(|(repr, _)| repr.hop_limit == HOP_LIMIT_NEIGHBOUR);
        if !meta {
            self.delivered.push(frame);
            return;
        }
        let delivered = &mut self.delivered;
        let split = self.splitter.split(&mut frame, |inner| delivered.push(inner.bytes.to_vec()));
        match split {
            Ok(Split::Delivered(feedback)) if !feedback.items().is_empty() => {
                self.said.push_back(feedback);
            }
            Ok(Split::Delivered(_)) => {}
            other => panic!("{other:?} for {frame:?}"),
        }
    }
}

/// What the frames had in them, so that a test of nothing does not pass.
#[derive(Debug, Default)]
struct Seen {
    cut: Cell<u32>,
    compressed: Cell<u32>,
    to_groups: Cell<u32>,
    links: Cell<u32>,
}

impl Seen {
    fn note(&self, frame: &[u8]) {
        let count = |cell: &Cell<u32>, seen: bool| cell.set(cell.get() + u32::from(seen));
        let payload = match Repr::with_payload(frame) {
            _ if is_link(frame) => frame,
            Ok((repr, payload)) => {
                count(&self.to_groups, repr.outer.is_to_group());
                payload
            }
            Err(_) => return,
        };
        count(&self.links, is_link(frame));
        if payload.first() != Some(&aggfrag::FRAME) {
            return;
        }
        let frame = aggfrag::Frame::parse(payload, |_| None).expect("a whole frame");
        count(&self.cut, frame.cut().is_some());
        // Nobody knows the context here.
        count(&self.compressed, frame.unknown().is_some());
    }
}

impl Op {
    /// Whether packets may be lost by it.
    fn disturbs(&self) -> bool {
        matches!(self, Op::Lose(_) | Op::Said(_) | Op::Restart)
    }
}

/// Cuts off what pads a short frame that a mesh frame has carried, of which the model's is `model`.
fn unpad(frame: &mut Vec<u8>, model: Option<&Vec<u8>>) {
    if is_link(frame) {
        let len = model.map_or(frame.len(), |model| model.len().min(frame.len()));
        // Only so short a frame is padded.
        if frame.len() == PADDED && frame[len..].iter().all(|byte| *byte == 0) {
            frame.truncate(len);
        }
        return;
    }
    let len = match (Ip::parse(frame), batman::inner(frame)) {
        (Ok(packet), _) => packet.bytes().len(),
        (_, Some(inner)) => in_mesh(&[0]).len() - 1 + inner.bytes().len(),
        _ => frame.len(),
    };
    assert!(frame[len..].iter().all(|byte| *byte == 0), "padding is zero");
    frame.truncate(len);
}

fn compare(
    cable: &Cable,
    (config, way, format): (Config, Way, Format),
    ops: &[Op],
    seen: &Seen,
) -> Result<(), TestCaseError> {
    let mut twins = Twins::new(config, way, format, cable);
    for (index, op) in ops.iter().enumerate() {
        let [mut program, mut model] = twins.apply(op);
        for (number, frame) in program.iter_mut().enumerate() {
            checksum::finish(frame);
            unpad(frame, model.get(number));
        }
        for frame in &mut model {
            checksum::finish(frame);
            unpad(frame, None);
        }
        let lengths = |frames: &[Vec<u8>]| frames.iter().map(Vec::len).collect::<Vec<_>>();
        prop_assert_eq!(lengths(&program), lengths(&model), "after operation {}", index);
        for frame in &program {
            seen.note(frame);
            twins.arrive(frame);
        }
        prop_assert_eq!(program, model, "after operation {}", index);
    }
    let sum = |mut sum: sheaf_aggregate::Stats, (_, stats): &(u32, sheaf_aggregate::Stats)| {
        sum.add(stats);
        sum
    };
    let program = twins.merge.stats().unwrap().iter().fold(sheaf_aggregate::Stats::default(), sum);
    prop_assert_eq!(program, twins.model.total());
    // Nothing comes out that was not put in.
    let mut sent = twins.sent.clone();
    sent.sort();
    for packet in &twins.delivered {
        prop_assert!(sent.binary_search(packet).is_ok(), "{:?}", Ip::parse(packet));
    }
    if !ops.iter().any(Op::disturbs) {
        twins.delivered.sort();
        prop_assert_eq!(twins.delivered.len(), sent.len());
        prop_assert_eq!(twins.delivered, sent);
    }
    Ok(())
}

fn configs() -> impl Strategy<Value = (Config, Way)> {
    let every = Rule { protocol: None, max_len: 1500, ..Rule::default() };
    let rules = vec![Rules::default(), Rules { rules: vec![every], acks: false }];
    let policy = prop::sample::select(vec![Policy::Forced, Policy::Busy]);
    let max = prop::sample::select(vec![400u16, 700, 1500, 2048]);
    let pause = Duration::from_millis(5);
    let times = Config { timeout: pause, hold: pause, backoff: 0, ..Config::default() };
    let frames = prop::sample::select(vec![3usize, 12]);
    let way = prop::sample::select(vec![Way::V4, Way::V6, Way::Link]);
    let flags = (way, any::<bool>());
    (policy, prop::sample::select(rules), max, frames, flags).prop_map(
        move |(policy, rules, max, queue_frames, (way, by_mark))| {
            let min = Threshold::Percent(40);
            let config = Config { policy, rules, max, min, by_mark, ..times.clone() };
            (Config { queue_frames, ..config }, way)
        },
    )
}

fn twins(format: Format, changes: bool) {
    let pair = Pair::new();
    for host in [&pair.a, &pair.b] {
        host.run(|| ip::run("link set eth0 mtu 9000")).unwrap();
    }
    let cable = Cable::new(&pair);
    on_a(&pair, || {
        let cases =
            ProptestConfig { cases: 20, failure_persistence: None, ..ProptestConfig::default() };
        let seen = Seen::default();
        proptest!(cases, |((config, way) in configs(), ops in ops(), calm in any::<bool>())| {
            let mut ops = ops;
            ops.retain(|op| !calm || !op.disturbs());
            ops.retain(|op| changes || !matches!(op, Op::Format(_)));
            ops.push(Op::Late(5));
            compare(&cable, (config, way, format), &ops, &seen)?;
        });
        assert!(seen.cut.get() > 0 && seen.to_groups.get() > 20, "{seen:?}");
        assert!(seen.links.get() > 20, "{seen:?}");
        assert_eq!(seen.compressed.get() > 20, format == Format::Compressed, "{seen:?}");
    });
}

#[test]
fn the_verifier_gets_through_both_programs() {
    let pair = Pair::new();
    let ours = |info: &aya::programs::ProgramInfo| {
        matches!(info.name_as_str(), Some("sheaf_merge" | "sheaf_pack"))
    };
    on_a(&pair, || {
        let config = MergeConfig::new(&Config::default(), COOKIE);
        let merge = Merge::attach("eth0", config).unwrap();
        assert!(merge.takes_frames(), "the kernel refuses the second one");
        let loaded = aya::programs::loaded_programs().flatten().filter(ours);
        let counts: Vec<_> = loaded.filter_map(|one| one.verified_instruction_count()).collect();
        // The kernel allows a million. With another compiler or kernel it is another number.
        assert!(counts.iter().all(|count| *count < 750_000), "{counts:?}");
        println!("verified instructions: {counts:?}");
    });
}

#[test]
fn full_frames_have_the_bytes_of_the_model() {
    twins(Format::Frames, false);
}

#[test]
fn compressed_packets_have_the_bytes_of_the_model() {
    twins(Format::Compressed, false);
}

#[test]
fn a_change_of_format_has_the_bytes_of_the_model() {
    twins(Format::Compressed, true);
}

#[test]
fn a_packet_leaves_on_a_mesh_frame_that_cannot_be_cut_as_short() {
    let pair = Pair::new();
    let cable = Cable::new(&pair);
    on_a(&pair, || {
        // The kernel notes where the transport header is: behind that of IPv6.
        let (v6, tcp, port, class) = (true, false, 6000, 0);
        let (payload, unfinished, damaged) = (69, false, false);
        let mesh = Op::Mesh(Other { v6, tcp, port, class, payload, unfinished, damaged }, 0);
        let voice = Op::Voice(Step::next(0));
        // In meta packets mesh frames are not gathered, and what is held leaves before them.
        let ops = [mesh.clone(), Op::Format(Format::Meta), voice, mesh, Op::Late(5)];
        let config = Config { backoff: 0, ..Config::default() };
        let seen = Seen::default();
        for way in [Way::V4, Way::Link] {
            compare(&cable, (config.clone(), way, Format::Frames), &ops, &seen).unwrap();
        }
    });
}

#[test]
fn a_mesh_frame_that_just_fits_takes_a_tag_in_both() {
    let pair = Pair::new();
    let cable = Cable::new(&pair);
    on_a(&pair, || {
        let (v6, tcp, port, class) = (true, false, 6000, 0);
        let (payload, unfinished, damaged) = (47, false, false);
        let inner = Other { v6, tcp, port, class, payload, unfinished, damaged };
        let voice = Op::Voice(Step::next(0));
        let min = Threshold::Percent(40);
        let config = Config { max: 400, min, by_mark: true, ..Config::forced() };
        let seen = Seen::default();
        let outer = Outer::V4 { src: A, dst: B }.header_len();
        let headers = outer + aggfrag::HEADER_LEN + aggfrag::ETHERNET_HEADER;
        let least = (headers + in_mesh(&inner.packet()).len()) as u32;
        for format in [Format::Frames, Format::Compressed] {
            for max in [least - 1, least, least + Definition::HEADER as u32 - 1] {
                // The class of the frame is another than that of the call, whose tag shows whether
                // the frame took one. A size is in bits 2 to 17 (`Config::by_mark`).
                let small = Op::Mark(max << 2);
                let mesh = Op::Mesh(inner, 2);
                let ops = [small, mesh, Op::Mark(0), voice.clone(), voice.clone(), Op::Late(5)];
                compare(&cable, (config.clone(), Way::V4, format), &ops, &seen).unwrap();
            }
        }
    });
}

#[test]
fn queues_see_the_protocol_of_a_frame_without_a_header_of_ip_whatever_carries_it() {
    let pair = Pair::new();
    let cable = Cable::new(&pair);
    on_a(&pair, || {
        let config = Config { min: Threshold::Percent(40), ..Config::forced() };
        let mut twins = Twins::new(config, Way::Link, Format::Frames, &cable);
        let tap = PacketSocket::open(ip::index("eth0").unwrap()).unwrap();
        // Enough bytes let packets in hand carry frames; ticks carry the rest.
        twins.apply(&Op::Talk(6));
        twins.apply(&Op::Late(5));
        let (mut buffer, mut seen) = ([0; 4096], 0);
        let mut next = || {
            let (len, from) = recvfrom::<LinkAddr>(tap.as_fd().as_raw_fd(), &mut buffer).ok()?;
            Some((buffer[..len].to_vec(), from?.protocol()))
        };
        setsockopt(&tap, sockopt::ReceiveTimeout, &TimeVal::microseconds(1)).unwrap();
        while let Some((frame, protocol)) = next() {
            if frame[12..14] == ethernet::FRAMES.to_be_bytes() && frame[..6] == MAC_B {
                seen += 1;
                assert_eq!(u16::from_be(protocol), ethernet::FRAMES, "frame {seen}");
            }
        }
        assert!(seen > 5, "{seen} frames");
    });
}

#[test]
fn contexts_are_forgotten_after_a_minute_without_a_packet() {
    let pair = Pair::new();
    let cable = Cable::new(&pair);
    on_a(&pair, || {
        let config = calls::config();
        let mut twins = Twins::new(config, Way::V4, Format::Compressed, &cable);
        let mut sequence = 0;
        // A packet that waits alone, and whether it is compressed then.
        let mut compressed = |twins: &mut Twins<'_>| {
            twins.now += Duration::from_millis(20);
            twins.merge.device().set_clock(twins.now.as_nanos());
            twins.merge.device().looks();
            sequence += 1;
            assert!(twins.program(&framed(MAC_B, &calls::rtp(0, sequence))).is_empty());
            let seen = Seen::default();
            for frame in twins.ticked(0, Cause::Timeout) {
                seen.note(&frame);
                twins.arrive(&frame);
            }
            for feedback in std::mem::take(&mut twins.said) {
                twins.merge.said(3, &feedback, twins.now).unwrap();
            }
            twins.keep_busy();
            seen.compressed.get() == 1
        };
        let first: Vec<_> = (0..4).map(|_| compressed(&mut twins)).collect();
        assert_eq!(first, [false, false, true, true], "it is learned, then defined");
        let minute = Duration::from_secs(60);
        twins.merge.forget_idle(twins.now + minute - Duration::from_millis(1)).unwrap();
        assert!(compressed(&mut twins), "a minute is not over");
        twins.merge.forget_idle(twins.now + minute).unwrap();
        let again: Vec<_> = (0..3).map(|_| compressed(&mut twins)).collect();
        assert_eq!(again, [false, false, true], "it is learned again");
    });
}

#[test]
fn the_kept_conversation_is_sent_byte_for_byte() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../aggregate/tests/corpus");
    let kept = |name: String| std::fs::read(corpus.join(name)).unwrap();
    let pair = Pair::new();
    let cable = Cable::new(&pair);
    on_a(&pair, || {
        let mut twins = Twins::new(calls::config(), Way::V4, Format::Compressed, &cable);
        twins.splitter = Splitter::accepting_any().with_frames(calls::SECRET);
        let mut number = 0;
        for sequence in 0..calls::ROUNDS {
            for call in 0..calls::CALLS {
                twins.merge.device().looks();
                twins.merge.device().set_clock(twins.now.as_nanos());
                assert!(twins.program(&framed(MAC_B, &calls::rtp(call, sequence))).is_empty());
            }
            twins.now += twins.config.hold;
            while let Some(slot) = twins.oldest() {
                for mut frame in twins.ticked(slot, Cause::Timeout) {
                    let payload = Repr::with_payload(&frame).unwrap().1;
                    let expected = kept(format!("frames/{number:02}"));
                    assert_eq!(payload, expected, "frame {number}");
                    let Split::Delivered(feedback) =
                        twins.splitter.split(&mut frame, |_| {}).unwrap()
                    else {
                        panic!("a frame");
                    };
                    twins.merge.said(3, &feedback, twins.now).unwrap();
                    number += 1;
                }
            }
            twins.keep_busy();
        }
        let kept = std::fs::read_dir(corpus.join("frames")).unwrap().count();
        assert_eq!(number, kept, "all that is kept is sent");
    });
}

/// The number of the call, and the packet's in it.
fn named(packet: &[u8]) -> (u8, u16) {
    (packet[39], u16::from_be_bytes([packet[30], packet[31]]))
}

/// Sends voice packets from processor `cpu`: of its own calls, and of one whose numbers it counts
/// with the other processor.
fn talk(cpu: usize, into: &PacketSocket, shared: &AtomicU16) {
    let mut cpus = nix::sched::CpuSet::new();
    cpus.set(cpu).unwrap();
    // Where there is only one, they take turns.
    let _ = nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &cpus);
    for number in 0..PACKETS {
        let call = usize::from(number) % (OWN + 1);
        // In a class of its own: what is lost of it takes nothing of the others along.
        let (call, sequence, class) = if call == OWN {
            (2 * OWN, shared.fetch_add(1, Ordering::Relaxed), 46 << 2)
        } else {
            (call + cpu * OWN, number / (OWN as u16 + 1), 0)
        };
        let mut datagram = vec![0x80, 18];
        datagram.extend_from_slice(&sequence.to_be_bytes());
        datagram.extend_from_slice(&(160 * u32::from(sequence)).to_be_bytes());
        datagram.extend_from_slice(&[0xca, 0xfe, 0, call as u8]);
        datagram.extend_from_slice(&[sequence as u8; 20]);
        let packet = udp(false, (4000 + call as u16, 5004), class, sequence, &datagram);
        // The program may drop it.
        let _ = into.send(&framed(MAC_B, &packet));
        // So that others have their turn, and frames do not outrun their reader.
        std::thread::yield_now();
    }
}

#[test]
fn calls_from_two_processors_come_out_whole_and_in_order() {
    let pair = Pair::new();
    let behind = pair.b.run(|| PacketSocket::open(ip::index("eth0")?)).unwrap();
    setsockopt(&behind, sockopt::RcvBufForce, &(64 << 20)).unwrap();
    let config = Config::forced();
    let attach = || {
        let ifindex = ip::index("eth0")?;
        let controller = Controller::attach("eth0", ifindex, MAC_A, &config, COOKIE);
        let into = [(); 2].map(|()| PacketSocket::open(ifindex).unwrap());
        Ok((controller.map_err(io::Error::other)?, into))
    };
    let (mut controller, into) = pair.a.run(attach).unwrap();
    let hop = layout::Hop::new(3, Outer::V4 { src: A, dst: B }, 500, 1500);
    controller.merge.set_hop(MAC_B, hop.with_format(Format::Compressed)).unwrap();
    let mut splitter = Splitter::accepting_any().with_frames(SECRET);
    let (shared, seen) = (AtomicU16::new(0), Seen::default());
    let mut came: BTreeMap<u8, Vec<u16>> = BTreeMap::new();
    let mut hear = |controller: &mut Controller| {
        let mut buffer = [0; 4096];
        while let Some(len) = behind.receive(&mut buffer).unwrap() {
            // B itself may say that nobody listens.
            if buffer[6..12] != MAC_A {
                continue;
            }
            let frame = &mut buffer[14..len];
            let mut deliver = |packet: &[u8]| {
                let (call, sequence) = named(packet);
                came.entry(call).or_default().push(sequence);
            };
            if Repr::with_payload(frame).is_err() {
                deliver(frame);
                continue;
            }
            seen.note(frame);
            let split = splitter.split(frame, |inner| deliver(inner.bytes)).unwrap();
            let Split::Delivered(feedback) = split else { panic!("a frame") };
            controller.merge.said(3, &feedback, clock::now()).unwrap();
        }
    };
    std::thread::scope(|scope| {
        let threads = [0, 1].map(|cpu| {
            let (into, shared) = (&into[cpu], &shared);
            scope.spawn(move || talk(cpu, into, shared))
        });
        while threads.iter().any(|thread| !thread.is_finished()) {
            controller.run(clock::now()).unwrap();
            hear(&mut controller);
        }
    });
    controller.flush().unwrap();
    hear(&mut controller);
    assert!(seen.compressed.get() > 100, "{seen:?}");
    let mut both = came.remove(&(2 * OWN as u8)).unwrap();
    for (call, numbers) in came {
        assert_eq!(numbers, (0..PACKETS / (OWN as u16 + 1)).collect::<Vec<_>>(), "call {call}");
    }
    // Of the shared one they overtake each other, and who is overtaken by too many is lost.
    let all = both.len();
    both.sort_unstable();
    both.dedup();
    assert_eq!(both.len(), all, "nothing comes twice");
    assert!(both.last() < Some(&shared.into_inner()));
}
