//! A home behind a slow link that is not ours, under virtual time: Linux's TCP at both ends
//! (`sheaf-tcp`), the model of the program and its controllers at the access point between them.
//!
//! ```text
//! servers ─ queue in ─ delay ─┐                       downloads
//!                             access point ─ clients
//! servers ─ delay ─ queue out ┘                       uploads
//! ```
//!
//! Both queues are the provider's: drop-tail, or one for each flow. Data of one direction and
//! acknowledgements of the other share a link, as do UDP, a call, and the pings that measure.

#![allow(dead_code, reason = "the tests and the example use their parts")]

mod queue;

use etherparse::PacketBuilder;
use queue::Queue;
use sheaf_stage::{Duration, Instant};
use sheaf_tcp::{Algorithm, Config as Tcp, Host};
use sheaf_voice::emodel::Codec;
use sheaf_voice::meter::Meter;
use sheaf_voice::packet::Stamp;
use sheaf_voice::playout::Heard;
use sheaf_window::pace::COPY;
use sheaf_window::{Controller, Direction, Outcome, Passing, Rewriter};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Period of the controllers, as `sheaf window` has it.
const STEP: Duration = Duration::from_millis(100);
/// Bytes of an Ethernet header, which the link carries, too.
const LINK_HEADER: usize = 14;
/// Period of the pings, and their size as an IP packet: `ping`'s default.
const PING: Duration = Duration::from_millis(10);
const PING_BYTES: usize = 84;
/// Bytes of each packet of UDP streams, as IP packets.
const UDP_BYTES: usize = 1200;
/// Ports of pings, UDP streams and QUIC.
const PING_PORT: u16 = 7;
const UDP_PORT: u16 = 9000;
const QUIC_PORT: u16 = 443;
/// Time between the packets of a call with G.711, and their bytes: 160 of voice behind the headers
/// of RTP, UDP and IP.
const CALL: Duration = Duration::from_millis(20);
const CALL_BYTES: usize = 200;
const CALL_PORT: u16 = 5004;
/// Flag of byte 13 of the TCP header.
const SYN: u8 = 2;
/// Address of all servers.
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Address of the clients' UDP.
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 1);

/// Rate over time, bit/s: each step holds from its time on.
pub type Trace = Vec<(f64, f64)>;

/// One direction of the slow link.
pub struct Slow {
    trace: Trace,
    /// Bytes that may wait.
    limit: usize,
    queue: Queue<Packet>,
    /// Packet that is on its way onto the link, its bytes, and when it came.
    serving: Option<(Packet, usize, Instant)>,
    /// Bytes that wait or are on their way onto the link.
    bytes: usize,
    /// UDP in bit/s from a time in seconds on.
    pub udp: Vec<(f64, f64)>,
    /// Packets that found the queue full.
    pub drops: usize,
    /// Time at which each packet left, how long it had waited, bits of data's packets, and whose.
    left: Vec<(Instant, Duration, f64, Carrier)>,
}

impl Slow {
    fn rate(&self, now: Instant) -> f64 {
        at(&self.trace, now)
    }

    /// Mean capacity between two times in seconds, bit/s.
    pub fn capacity(&self, from: f64, to: f64) -> f64 {
        let steps = 1000;
        let part = (to - from) / f64::from(steps);
        let mid = |step: i32| from + part * (f64::from(step) + 0.5);
        (0..steps).map(|step| at(&self.trace, seconds(mid(step)))).sum::<f64>() / f64::from(steps)
    }
}

fn at(steps: &[(f64, f64)], now: Instant) -> f64 {
    let now = now.as_secs_f64();
    steps.iter().take_while(|(from, _)| *from <= now).last().map_or(0.0, |(_, rate)| *rate)
}

/// The instant `seconds` after the beginning.
fn seconds(seconds: f64) -> Instant {
    Instant::ZERO + Duration::from_secs_f64(seconds)
}

struct Packet {
    bytes: Vec<u8>,
    owner: Owner,
}

#[derive(Clone, Copy)]
enum Owner {
    Transfer(usize),
    Ping(Instant),
    Udp,
    Call(Stamp),
}

impl Owner {
    /// Number of its flow, for queues that tell them apart.
    fn flow(self) -> usize {
        match self {
            Owner::Ping(_) => 0,
            Owner::Udp => 1,
            Owner::Call(_) => 2,
            Owner::Transfer(number) => 3 + number,
        }
    }
}

/// Carrier of a transfer, as the access point sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// TCP that it governs.
    Tcp,
    /// TCP whose handshake went another way.
    Unseen,
    /// UDP whose ends do as TCP's do, like QUIC's (RFC 9002).
    Quic,
}

enum Event {
    Begin(usize),
    Wake(usize),
    /// A packet that goes in this direction reaches the access point.
    Access(Direction, Packet),
    /// A copy of an acknowledgement of an upload comes back to it.
    Copy(Packet),
    Served(Direction),
    Outside(Packet),
    Step,
    Ping,
    Udp(Direction),
    Call(u32),
}

/// One TCP connection.
struct Transfer {
    direction: Direction,
    carrier: Carrier,
    inside: Host,
    outside: Host,
    delay: Duration,
    /// Bytes that it has, if it ends; when it began, and when the last of them arrived.
    bytes: Option<u64>,
    begun: Option<Instant>,
    ended: Option<Instant>,
    /// Time of its next deadline, if it has one.
    wake: Option<Instant>,
}

/// The whole home.
pub struct Rig {
    now: Instant,
    pub controllers: Vec<Controller>,
    pub slow: [Slow; 2],
    transfers: Vec<Transfer>,
    /// Time of each ping's return, and its round trip.
    pings: Vec<(Instant, Duration)>,
    /// Pings that were dropped, wherever.
    pub lost_pings: usize,
    /// The call that comes in, and how many of its packets were sent.
    call: Meter,
    called: u64,
    /// Packets that the access point dropped and marked.
    pub policed: usize,
    pub marked: usize,
    rewriter: Rewriter,
    /// The controllers' process hangs: neither do they step nor do copies come back.
    hangs: bool,
    delay: Duration,
    events: BTreeMap<(Instant, u64), Event>,
    number: u64,
    dice: Dice,
}

impl Rig {
    /// A link of these rates down and up, `rtt` ms without queues, and queues of `buffer` ms at the
    /// first rate. `controllers` govern it; without any it is left alone.
    pub fn new(
        mut controllers: Vec<Controller>,
        [down, up]: [Trace; 2],
        rtt: f64,
        buffer: f64,
        seed: u64,
    ) -> Rig {
        controllers.iter_mut().for_each(|controller| controller.observe_clock(true));
        let slow = |trace: Trace| Slow {
            limit: (trace[0].1 * buffer / 8e3) as usize,
            trace,
            queue: Queue::new(false),
            serving: None,
            bytes: 0,
            udp: Vec::new(),
            drops: 0,
            left: Vec::new(),
        };
        let mut rig = Rig {
            now: Instant::from_millis(1),
            controllers,
            slow: [slow(down), slow(up)],
            transfers: Vec::new(),
            pings: Vec::new(),
            lost_pings: 0,
            call: Meter::default(),
            called: 0,
            policed: 0,
            marked: 0,
            rewriter: Rewriter::new(),
            hangs: false,
            delay: Duration::from_secs_f64(rtt / 2e3),
            events: BTreeMap::new(),
            number: 0,
            dice: Dice(seed),
        };
        // The steps of the controllers meet the transfers in another phase with each seed.
        let phase = Duration::from_micros(1 + rig.dice(100_000));
        rig.push(rig.now + phase, Event::Step);
        rig.push(rig.now, Event::Ping);
        for direction in Direction::BOTH {
            rig.push(rig.now, Event::Udp(direction));
        }
        rig
    }

    /// A number below `below`, by the seed.
    fn dice(&mut self, below: u64) -> u64 {
        self.dice.next() % below
    }

    /// A transfer begins `start` seconds after the beginning, of `bytes` or without an end.
    pub fn transfer(
        &mut self,
        direction: Direction,
        control: Algorithm,
        start: f64,
        bytes: Option<u64>,
    ) {
        self.transfer_by(Carrier::Tcp, direction, control, start, bytes);
    }

    /// The same with another carrier.
    pub fn transfer_by(
        &mut self,
        carrier: Carrier,
        direction: Direction,
        control: Algorithm,
        start: f64,
        bytes: Option<u64>,
    ) {
        let number = self.transfers.len();
        let client = Ipv4Addr::new(10, 0, (number >> 8) as u8, number as u8);
        let config = Tcp { control, bytes, ..Tcp::default() };
        let (one, other) = (self.dice(u64::MAX), self.dice(u64::MAX));
        let (inside, outside) = match direction {
            Direction::In => (
                Host::fetcher(config, client, SERVER, 1, one),
                Host::server(config, SERVER, 1, other),
            ),
            Direction::Out => (
                Host::sender(config, client, SERVER, 1, one),
                Host::receiver(config, SERVER, 1, other),
            ),
        };
        let delay = self.delay;
        self.transfers.push(Transfer {
            direction,
            carrier,
            inside,
            outside,
            delay,
            bytes,
            begun: None,
            ended: None,
            wake: None,
        });
        let jitter = Duration::from_micros(self.dice(1000));
        self.push(seconds(start).max(self.now) + jitter, Event::Begin(number));
    }

    /// Each flow has a queue of its own at the provider's, and a turn after the other.
    pub fn queue_fairly(&mut self) {
        self.slow.iter_mut().for_each(|slow| slow.queue = Queue::new(true));
    }

    /// Copies of acknowledgements do not come back, and the controllers know.
    pub fn without_clock(mut self) -> Rig {
        self.controllers.iter_mut().for_each(|controller| controller.observe_clock(false));
        self
    }

    /// The controllers' process hangs from now on.
    pub fn hang(&mut self) {
        self.hangs = true;
    }

    /// A call with G.711 comes in, from `start` seconds after the beginning on.
    pub fn call(&mut self, start: f64) {
        self.push(seconds(start), Event::Call(0));
    }

    /// The rating R of the call by the E-model (ITU-T G.107).
    pub fn call_rating(&self) -> f64 {
        Heard::best(Codec::G711, &self.call, self.called).r
    }

    /// Lets time pass until `until` seconds after the beginning.
    pub fn run(&mut self, until: f64) {
        let until = seconds(until);
        while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= until) {
            let ((now, _), event) = entry.remove_entry();
            self.now = now;
            self.happen(event);
        }
        self.now = until;
    }

    fn push(&mut self, at: Instant, event: Event) {
        self.number += 1;
        self.events.insert((at, self.number), event);
    }

    fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Begin(number) => {
                self.transfers[number].begun = Some(now);
                self.drain(number);
            }
            Event::Wake(number) => {
                let wake = &mut self.transfers[number].wake;
                if *wake == Some(now) {
                    *wake = None;
                    self.drain(number);
                }
            }
            Event::Copy(_) | Event::Step if self.hangs => {}
            Event::Copy(mut packet) => {
                let (copy, owner) = (packet.bytes.clone(), packet.owner);
                let outcome = self.rewriter.release(&mut packet.bytes, now);
                if matches!(outcome, Outcome::Withheld { .. }) {
                    self.push(now + COPY, Event::Copy(Packet { bytes: copy, owner }));
                }
                if outcome != Outcome::Dropped {
                    self.inside(packet);
                }
            }
            Event::Access(direction, mut packet) => {
                let copy = packet.bytes.clone();
                match self.access(direction, &mut packet) {
                    Outcome::Withheld { .. } => {
                        let owner = packet.owner;
                        self.push(now + COPY, Event::Copy(Packet { bytes: copy, owner }));
                    }
                    Outcome::Dropped => {
                        self.policed += 1;
                        self.lost_pings += usize::from(matches!(packet.owner, Owner::Ping(_)));
                        return;
                    }
                    Outcome::Marked => self.marked += 1,
                    _ => {}
                }
                match direction {
                    Direction::Out => self.wait(Direction::Out, packet),
                    Direction::In => self.inside(packet),
                }
            }
            Event::Served(direction) => self.served(direction),
            Event::Outside(packet) => match packet.owner {
                Owner::Transfer(number) => {
                    let _ = self.transfers[number].outside.enqueue(packet.bytes, now);
                    self.drain(number);
                }
                Owner::Ping(sent) => {
                    let bytes = udp(SERVER, CLIENT, PING_PORT, PING_BYTES);
                    self.wait(Direction::In, Packet { bytes, owner: Owner::Ping(sent) });
                }
                Owner::Udp | Owner::Call(_) => {}
            },
            Event::Step => {
                self.step();
                self.push(now + STEP, Event::Step);
            }
            Event::Ping => {
                let bytes = udp(CLIENT, SERVER, PING_PORT, PING_BYTES);
                let packet = Packet { bytes, owner: Owner::Ping(now) };
                self.push(now, Event::Access(Direction::Out, packet));
                self.push(now + PING, Event::Ping);
            }
            Event::Call(number) => {
                let bytes = udp(SERVER, CLIENT, CALL_PORT, CALL_BYTES);
                let stamp = Stamp { flow: 0, number, sent: now };
                self.wait(Direction::In, Packet { bytes, owner: Owner::Call(stamp) });
                self.called = u64::from(number) + 1;
                self.push(now + CALL, Event::Call(number + 1));
            }
            Event::Udp(direction) => {
                let rate = at(&self.slow[direction.index()].udp, now);
                if rate > 0.0 {
                    let (from, to) = match direction {
                        Direction::In => (SERVER, CLIENT),
                        Direction::Out => (CLIENT, SERVER),
                    };
                    let bytes = udp(from, to, UDP_PORT, UDP_BYTES);
                    let packet = Packet { bytes, owner: Owner::Udp };
                    match direction {
                        Direction::In => self.wait(Direction::In, packet),
                        Direction::Out => self.push(now, Event::Access(direction, packet)),
                    }
                    let bits = ((UDP_BYTES + LINK_HEADER) * 8) as f64;
                    // Half to one and a half of the interval: no clock beats with another.
                    let part = 0.5 + self.dice(1000) as f64 / 1e3;
                    let interval = Duration::from_secs_f64(bits / rate * part);
                    self.push(now + interval, Event::Udp(direction));
                } else {
                    self.push(now + Duration::from_millis(1), Event::Udp(direction));
                }
            }
        }
    }

    /// Treatment of a packet at the access point.
    fn access(&mut self, direction: Direction, packet: &mut Packet) -> Outcome {
        if self.controllers.is_empty() {
            return Outcome::Kept;
        }
        let carrier = match packet.owner {
            Owner::Transfer(number) => self.transfers[number].carrier,
            Owner::Ping(_) | Owner::Udp | Owner::Call(_) => Carrier::Tcp,
        };
        let (passing, now) = (Passing::plain(direction), self.now);
        let bytes = &mut packet.bytes;
        match carrier {
            Carrier::Tcp => self.rewriter.rewrite(bytes, passing, now),
            Carrier::Unseen if bytes[33] & SYN != 0 => Outcome::Kept,
            Carrier::Unseen => self.rewriter.rewrite(bytes, passing, now),
            Carrier::Quic => {
                let address = |at: usize| Ipv4Addr::from([0, 1, 2, 3].map(|byte| bytes[at + byte]));
                let mut shown = udp(address(12), address(16), QUIC_PORT, bytes.len());
                self.rewriter.rewrite(&mut shown, passing, now)
            }
        }
    }

    /// A packet reaches the clients.
    fn inside(&mut self, packet: Packet) {
        match packet.owner {
            Owner::Transfer(number) => {
                let _ = self.transfers[number].inside.enqueue(packet.bytes, self.now);
                self.drain(number);
            }
            Owner::Ping(sent) => self.pings.push((self.now, self.now - sent)),
            Owner::Udp => {}
            Owner::Call(stamp) => self.call.arrived(stamp, self.now),
        }
    }

    /// Sends all that transfer `number` has to send now.
    fn drain(&mut self, number: usize) {
        let now = self.now;
        if self.transfers[number].begun.is_none() {
            return;
        }
        let owner = Owner::Transfer(number);
        while let Some(bytes) = self.transfers[number].inside.dequeue(now) {
            self.push(now, Event::Access(Direction::Out, Packet { bytes, owner }));
        }
        while let Some(bytes) = self.transfers[number].outside.dequeue(now) {
            self.wait(Direction::In, Packet { bytes, owner });
        }
        let transfer = &mut self.transfers[number];
        let receiver = match transfer.direction {
            Direction::In => &transfer.inside,
            Direction::Out => &transfer.outside,
        };
        if transfer.bytes.is_some_and(|bytes| receiver.received(0) >= bytes) {
            transfer.ended = transfer.ended.or(Some(now));
        }
        let ends = [&transfer.inside, &transfer.outside].map(Host::next_deadline);
        if let Some(next) = ends.into_iter().flatten().min() {
            let next = next.max(now + Duration::from_nanos(1));
            if transfer.wake.is_none_or(|wake| wake > next) {
                transfer.wake = Some(next);
                self.push(next, Event::Wake(number));
            }
        }
    }

    /// A packet comes to the queue of `direction`.
    fn wait(&mut self, direction: Direction, packet: Packet) {
        let slow = &mut self.slow[direction.index()];
        let bytes = packet.bytes.len() + LINK_HEADER;
        slow.bytes += bytes;
        slow.queue.push(packet.owner.flow(), packet, bytes, self.now);
        if slow.bytes > slow.limit
            && let Some((dropped, bytes)) = slow.queue.drop()
        {
            slow.bytes -= bytes;
            slow.drops += 1;
            self.lost_pings += usize::from(matches!(dropped.owner, Owner::Ping(_)));
        }
        if slow.serving.is_none() {
            self.serve(direction);
        }
    }

    /// The next packet of the queue goes onto the link.
    fn serve(&mut self, direction: Direction) {
        let now = self.now;
        let slow = &mut self.slow[direction.index()];
        slow.serving = slow.queue.pop();
        if let Some((_, bytes, _)) = slow.serving {
            let time = Duration::from_secs_f64((bytes * 8) as f64 / slow.rate(now).max(1e3));
            self.push(now + time, Event::Served(direction));
        }
    }

    /// The packet is through.
    fn served(&mut self, direction: Direction) {
        let now = self.now;
        let slow = &mut self.slow[direction.index()];
        let Some((packet, bytes, since)) = slow.serving.take() else { return };
        slow.bytes -= bytes;
        let mut delay = self.delay;
        let (mut bits, mut carrier) = (0.0, Carrier::Tcp);
        if let Owner::Transfer(number) = packet.owner {
            let transfer = &self.transfers[number];
            (delay, carrier) = (transfer.delay, transfer.carrier);
            if transfer.direction == direction {
                bits = (bytes * 8) as f64;
            }
        }
        slow.left.push((now, now - since, bits, carrier));
        match direction {
            Direction::In => self.push(now + delay, Event::Access(direction, packet)),
            Direction::Out => self.push(now + delay, Event::Outside(packet)),
        }
        self.serve(direction);
    }

    /// As `sheaf_bpf::Window::step` does it with the program itself.
    fn step(&mut self) {
        let Rig { rewriter, controllers, now, .. } = self;
        for controller in controllers.iter_mut() {
            for (key, connection) in rewriter.flows() {
                controller.observe(*key, connection);
            }
            for (key, both) in rewriter.rest() {
                controller.observe_rest(*key, both);
            }
        }
        // What one direction showed in the last step, the other one takes in.
        let loads: Vec<_> = controllers.iter().map(Controller::load).collect();
        for (number, controller) in controllers.iter_mut().enumerate() {
            let direction = controller.direction();
            controller.observe_other(loads.get(1 - number).copied().unwrap_or_default());
            controller.observe_totals(rewriter.totals(direction));
            for decision in controller.step(*now) {
                rewriter.set(decision.flow, decision.value);
            }
            rewriter.set_initial(direction, controller.initial(), controller.spare());
            rewriter.set_growth(direction, controller.growth());
            rewriter.set_push(direction, controller.push());
            if direction == Direction::Out {
                rewriter.set_pace(controller.pace());
            }
            rewriter.set_rest(direction, controller.rest());
        }
        rewriter.beat(*now);
    }

    /// bit/s on the wire of the data of transfers in `direction`, between two times in seconds.
    pub fn carried(&self, direction: Direction, from: f64, to: f64) -> f64 {
        let each = [Carrier::Tcp, Carrier::Unseen, Carrier::Quic];
        each.map(|carrier| self.carried_by(carrier, direction, from, to)).into_iter().sum()
    }

    /// Time in ms that each transfer took which has ended, the handshake included.
    pub fn took(&self) -> Vec<f64> {
        let took = |transfer: &Transfer| Some(transfer.ended? - transfer.begun?);
        self.transfers.iter().filter_map(took).map(|time| time.as_secs_f64() * 1e3).collect()
    }

    /// The same of the transfers with one carrier.
    pub fn carried_by(&self, carrier: Carrier, direction: Direction, from: f64, to: f64) -> f64 {
        let within = self.slow[direction.index()].left.iter();
        let bits = within.filter(|(at, .., whose)| {
            (seconds(from)..seconds(to)).contains(at) && *whose == carrier
        });
        bits.map(|(.., bits, _)| bits).sum::<f64>() / (to - from)
    }

    /// By how many ms the pings that return between two times are above a ping of an idle link:
    /// the `part`, 0 to 1, of them that is shorter.
    pub fn ping(&self, from: f64, to: f64, part: f64) -> f64 {
        let within = self.pings.iter().filter(|(at, _)| (seconds(from)..seconds(to)).contains(at));
        let idle = self.delay.as_secs_f64() * 2e3
            + self.slow.iter().map(|slow| 98.0 * 8e3 / slow.trace[0].1).sum::<f64>();
        let mut added: Vec<f64> = within.map(|(_, rtt)| rtt.as_secs_f64() * 1e3 - idle).collect();
        added.sort_unstable_by(f64::total_cmp);
        *added.get((added.len() as f64 * part) as usize).or(added.last()).unwrap_or(&f64::NAN)
    }

    /// The same of the time in ms that packets waited in the queue of `direction`.
    pub fn waited(&self, direction: Direction, from: f64, to: f64, part: f64) -> f64 {
        let left = self.slow[direction.index()].left.iter();
        let within = left.filter(|(at, ..)| (seconds(from)..seconds(to)).contains(at));
        let mut waits: Vec<f64> = within.map(|(_, wait, ..)| wait.as_secs_f64() * 1e3).collect();
        waits.sort_unstable_by(f64::total_cmp);
        *waits.get((waits.len() as f64 * part) as usize).or(waits.last()).unwrap_or(&f64::NAN)
    }
}

/// An IP packet of so many bytes of UDP between these ports.
fn udp(from: Ipv4Addr, to: Ipv4Addr, port: u16, bytes: usize) -> Vec<u8> {
    let mut packet = Vec::with_capacity(bytes);
    // IP and UDP headers.
    let data = vec![0; bytes - 28];
    PacketBuilder::ipv4(from.octets(), to.octets(), 64)
        .udp(port, port)
        .write(&mut packet, &data)
        .expect("a Vec takes all");
    packet
}

/// Numbers for traces: SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Between 0 and 1.
    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A phone that walks: every 200 ms a step of up to 17 % up or down, between 4 and 40 Mbit/s.
pub fn lte(seed: u64, until: f64) -> Trace {
    let (mut dice, mut rate) = (Dice(seed), 20e6);
    let steps = (until * 5.0) as usize;
    let step = |number: usize| {
        let factor: f64 = 1.0 + (dice.part() - 0.5) / 3.0;
        rate = (rate * factor).clamp(4e6, 40e6);
        (number as f64 * 0.2, rate)
    };
    (0..steps).map(step).collect()
}

/// Satellites that take over from each other every 15 s: 20 to 100 Mbit/s.
pub fn satellite(seed: u64, until: f64) -> Trace {
    let mut dice = Dice(seed);
    let handovers = (until / 15.0) as usize + 1;
    (0..handovers).map(|number| (number as f64 * 15.0, 20e6 + 80e6 * dice.part())).collect()
}

/// A cable whose neighbours come home: from 50 to 30 Mbit/s, and every second up to 5 % more or
/// less.
pub fn cable(seed: u64, until: f64) -> Trace {
    let mut dice = Dice(seed);
    let step = |second: usize| {
        let part = second as f64 / until;
        (second as f64, (50e6 - 20e6 * part) * (0.95 + 0.1 * dice.part()))
    };
    (0..until as usize).map(step).collect()
}
