//! Carries packets from port to port, through the links between them.
//!
//! A [`Carrier`] has the ports and the links of one place; [`Tools`] are what the carriers of a
//! thread share, because one of them at a time needs it: a thousand links take no more of it than
//! one. Neither waits; who calls them does ([`super::datapath`], [`super::many`]).

use super::capture::Capture;
use super::describe;
use super::machine::{Change, Machine};
use super::pcapng::LinkType;
use super::place::{Place, Port, Way};
use super::spare::Spare;
use super::status::{LatenessMeter, LinkStatus, Status};
use sheaf_emulator::{Direction, Packet, PipeStats, Segments};
use sheaf_netio::gso::{Gso, Headers};
use sheaf_netio::stamps::Stamps;
use sheaf_netio::vnet_packet::{BATCH, State};
use sheaf_netio::{clock, ip, vnet};
use sheaf_stage::{Duration, Instant};

/// Most bytes that all links of a process hold together. Beyond, packets are dropped before the
/// link.
pub const MEMORY: u64 = 1 << 30;
/// Period in which the packets held are added up.
const MEASURE: Duration = Duration::from_millis(10);
/// Most ways of a place: out and in.
const WAYS: usize = 2;

/// Buffers and meters that the carriers of a thread share.
pub struct Tools {
    spare: Spare,
    /// Packets to be sent, by way.
    leaving: [Vec<Packet>; WAYS],
    /// Room for a packet of a TUN or TAP interface, once there was one.
    buffer: Vec<u8>,
    stamps: Stamps,
    lateness: LatenessMeter,
    /// Bytes that the links hold, by the last measurement of each, and the most that they may.
    held: u64,
    memory: u64,
}

impl Tools {
    /// For links that hold `memory` bytes together at most.
    pub fn new(memory: u64) -> anyhow::Result<Tools> {
        Ok(Tools {
            spare: Spare::default(),
            leaving: std::array::from_fn(|_| Vec::with_capacity(BATCH)),
            buffer: Vec::new(),
            stamps: Stamps::new()?,
            lateness: LatenessMeter::new()?,
            held: 0,
            memory,
        })
    }

    /// Gives back to the system the buffers that were not needed since the last call.
    pub fn rest(&mut self) {
        self.spare.rest();
    }

    /// Lateness of what left.
    pub fn lateness(&self) -> &LatenessMeter {
        &self.lateness
    }
}

/// Carrier of the packets of one place.
pub struct Carrier {
    place: Place,
    machine: Machine,
    capture: Option<Capture>,
    /// Whether a port may have more; and when it surely had nothing, so that what comes later
    /// cannot have come before.
    ready: Vec<bool>,
    empty_at: Vec<Instant>,
    /// Packets that never came in as too much was held, and that the other side did not take.
    memory_full: u64,
    refused: u64,
    /// Bytes held when they were added up last, and when they are next.
    held: u64,
    measure: Instant,
}

impl Carrier {
    /// Between the ports of `place`.
    pub fn new(place: Place, machine: Machine) -> Carrier {
        let (now, ports) = (clock::now(), place.ports.len());
        Carrier {
            place,
            machine,
            capture: None,
            ready: vec![false; ports],
            empty_at: vec![now; ports],
            memory_full: 0,
            refused: 0,
            held: 0,
            measure: now,
        }
    }

    /// Captures what happens into `file` from now on.
    pub fn capture(&mut self, file: &str) -> anyhow::Result<()> {
        let mut names = ["out", "in"];
        for way in &self.place.ways {
            names[usize::from(way.direction == Direction::In)] = &way.name;
        }
        let kind = if self.place.ethernet { LinkType::Ethernet } else { LinkType::Raw };
        let capture = Capture::create(file, &names, kind)?;
        self.machine.set_log(capture.log());
        self.capture = Some(capture);
        Ok(())
    }

    /// The ports, by number. Only those that packets come from are to be waited for.
    pub fn ports(&self) -> &[Port] {
        &self.place.ports
    }

    /// Numbers of the ports that packets come from.
    pub fn sources(&self) -> impl Iterator<Item = usize> {
        self.place.ways.iter().map(|way| way.from)
    }

    /// Notes that a port is readable.
    pub fn readable(&mut self, port: usize) {
        self.ready[port] = true;
    }

    /// Notes which ports are readable of those that packets come from.
    pub fn look(&mut self, readable: impl Fn(usize) -> bool) {
        for way in &self.place.ways {
            self.ready[way.from] |= readable(way.from);
        }
    }

    /// Whether any port may have more packets.
    pub fn has_more(&self) -> bool {
        self.ready.contains(&true)
    }

    /// Whether every port may.
    pub fn all_have_more(&self) -> bool {
        self.ready.iter().all(|ready| *ready)
    }

    /// Time at which the next packet leaves, or something else comes to pass.
    pub fn next_deadline(&self) -> Instant {
        self.machine.next_deadline()
    }

    /// Interfaces that must not go away: name and index.
    pub fn interfaces(&self) -> &[(String, u32)] {
        &self.place.interfaces
    }

    /// Sets detours up again that somebody set down.
    pub fn raise_detours(&self) {
        self.place.raise_detours();
    }

    /// Makes the links other ones. Give out what is due afterwards.
    pub fn change(&mut self, change: &Change, now: Instant) -> anyhow::Result<()> {
        self.machine.change(change, now)
    }

    /// Where it emulates, for people.
    pub fn title(&self) -> String {
        let ways: Vec<&str> = self.place.ways.iter().map(|way| way.name.as_str()).collect();
        format!("emulating {}", ways.join(" and "))
    }

    /// The same with what each link is set to.
    pub fn summary(&self) -> String {
        let stats = self.machine.stats();
        let names = stats.iter().enumerate().map(|(index, (pipe, _))| (index, *pipe));
        let link = |(index, pipe): (usize, Option<&str>)| {
            let link = describe::settings(self.machine.config(index)).words;
            let words = match self.machine.class(index) {
                None => link,
                Some(class) if class.leaf => format!("{}, {link}", class.words),
                Some(class) => class.words,
            };
            Some(format!("{}: {words}", self.link_name(index, pipe)?))
        };
        let links: Vec<_> = names.filter_map(link).collect();
        format!("{}; {}", self.title(), links.join("; "))
    }

    /// The name of link number `index`: that of its pipe, or of its direction. `None` for a
    /// direction that is not emulated.
    fn link_name(&self, index: usize, pipe: Option<&str>) -> Option<String> {
        let is_its = |way: &&Way| usize::from(way.direction == Direction::In) == index;
        match pipe {
            Some(pipe) => {
                let kind = if self.machine.class(index).is_some() { "class" } else { "pipe" };
                Some(format!("{kind} {pipe}"))
            }
            None => self.place.ways.iter().find(is_its).map(|way| way.name.clone()),
        }
    }

    /// Takes what has come to each port, up to a batch.
    pub fn take_in(&mut self, tools: &mut Tools, now: Instant) -> anyhow::Result<State> {
        let mut state = State::Up;
        let full = tools.held > tools.memory;
        for index in 0..self.place.ways.len() {
            let Way { from, direction, interface, .. } = self.place.ways[index];
            let origin = (direction, interface);
            if !self.ready[from] {
                continue;
            }
            let before = clock::now();
            let ethernet = self.place.ethernet;
            let empty = self.empty_at[from];
            let Tools { spare, buffer, stamps, .. } = &mut *tools;
            let machine = &mut self.machine;
            let mut intake = Intake { machine, spare, ethernet, origin, full, memory_full: 0 };
            let got = match &mut self.place.ports[from] {
                Port::Packet(socket) => {
                    let mut offset = None;
                    socket.receive(|bytes, stamp| {
                        // Only now the batch is read: a clock that was set by now is noticed.
                        let offset = offset.get_or_insert_with(|| stamps.offset());
                        let arrived = offset.arrival(stamp, empty, before);
                        intake.take(bytes, arrived, before);
                    })
                }
                Port::Tun(tun) => {
                    buffer.resize(vnet::LEN + vnet::LONGEST, 0);
                    let mut got = 0;
                    loop {
                        match tun.receive(buffer) {
                            Ok(Some(len)) => {
                                let bytes = &buffer[..len];
                                intake.take(bytes, before, before);
                                got += 1;
                            }
                            Ok(None) => break Ok(got),
                            Err(error) => break Err(error),
                        }
                        if got == BATCH {
                            break Ok(got);
                        }
                    }
                }
            };
            self.memory_full += intake.memory_full;
            match got {
                Ok(BATCH) => {}
                Ok(_) => {
                    self.ready[from] = false;
                    self.empty_at[from] = before.max(now);
                }
                Err(error) => {
                    // A packet socket says once that its interface is down, a TUN device has no
                    // interface any more.
                    if let Port::Tun(_) = self.place.ports[from] {
                        let name = &self.place.ways[index].name;
                        anyhow::bail!("the interface for {name} went away ({error}); start again");
                    }
                    self.ready[from] = false;
                    state = State::Down;
                }
            }
        }
        // A link with a long delay has nothing to give out for as long.
        self.measure_if_due(tools, now);
        Ok(state)
    }

    /// Sends what is due by `now`.
    pub fn give_out(&mut self, tools: &mut Tools, now: Instant) {
        while let Some(packet) = self.machine.dequeue(now) {
            let ways = &self.place.ways;
            let way = ways.iter().position(|way| way.direction == packet.direction);
            let way = way.expect("a packet comes from one of the ways");
            tools.leaving[way].push(packet);
            if tools.leaving[way].len() == BATCH {
                self.send(tools, way);
            }
        }
        for way in 0..WAYS {
            if !tools.leaving[way].is_empty() {
                self.send(tools, way);
            }
        }
        // What was held and has left must not count for as long as the link has nothing to do.
        let empty = self.held > 0 && self.next_deadline() == Instant::MAX;
        if empty {
            self.measure = now;
        }
        self.measure_if_due(tools, now);
    }

    fn send(&mut self, tools: &mut Tools, way: usize) {
        let packets = &mut tools.leaving[way];
        match &mut self.place.ports[self.place.ways[way].to] {
            Port::Packet(socket) => {
                // Down is noticed when packets come, or by looking; these are lost as on a cable.
                socket.send(packets.iter().map(|packet| packet.bytes.as_slice()));
            }
            Port::Tun(tun) => {
                for packet in packets.iter() {
                    if tun.send(&packet.bytes).is_err() {
                        self.refused += 1;
                    }
                }
            }
        }
        let sent = clock::now();
        if let Some(first) = packets.first() {
            self.machine.left(first, sent);
        }
        for packet in packets.drain(..) {
            tools.lateness.record(sent - packet.depart);
            if let Some(capture) = &self.capture {
                capture.leaves(&packet);
            }
            tools.spare.give(packet.bytes);
        }
    }

    /// Adds up what is held, every [`MEASURE`].
    fn measure_if_due(&mut self, tools: &mut Tools, now: Instant) {
        if now < self.measure {
            return;
        }
        self.measure = now + MEASURE;
        let held = |(_, stats): &(Option<&str>, PipeStats)| {
            stats.links.rate_queue.bytes + stats.links.delay_line.bytes
        };
        let held = self.machine.stats().iter().map(held).sum::<u64>();
        tools.held = tools.held - self.held + held;
        self.held = held;
    }

    /// Adds its links and counters to a report.
    pub fn add_to(&mut self, status: &mut Status) {
        for port in &mut self.place.ports {
            if let Port::Packet(socket) = port {
                status.missed += socket.missed() + socket.unreadable();
                status.refused += socket.refused();
            }
        }
        for (index, (pipe, stats)) in self.machine.stats().into_iter().enumerate() {
            if let Some(name) = self.link_name(index, pipe) {
                let (config, class) = (self.machine.config(index), self.machine.class(index));
                status.links.insert(name, LinkStatus::new(&stats, config, class));
            }
        }
        status.denied += self.machine.denied();
        status.missed += self.memory_full;
        status.memory_full += self.memory_full;
        status.refused += self.refused;
        status.uncaptured += self.capture.as_ref().map_or(0, Capture::missed);
    }

    /// Lets packets go their old way and ends the capture.
    pub fn finish(mut self, tools: &mut Tools) -> anyhow::Result<()> {
        tools.held -= self.held;
        self.place.leave();
        // The links tell the capture of drops.
        drop(self.machine);
        self.capture.map_or(Ok(()), Capture::end)
    }
}

/// A look at interfaces that must not go away.
#[derive(Default)]
pub struct Look {
    /// The last one that could not be seen, and why.
    unseen: Option<String>,
}

impl Look {
    /// The first of `interfaces` that is not there any more, or has another name: it is somebody
    /// else's then.
    pub fn lost<'a>(&mut self, interfaces: &'a [(String, u32)]) -> Option<&'a str> {
        let lost = |(name, index): &&(String, u32)| match ip::index(name) {
            Ok(found) => found != *index,
            // Without a descriptor it cannot be seen, which does not mean that it is gone.
            Err(error) if ip::is_exhausted(&error) => {
                self.unseen = Some(format!("cannot see whether {name} is there: {error}"));
                false
            }
            Err(_) => true,
        };
        interfaces.iter().find(lost).map(|(name, _)| name.as_str())
    }

    /// Warns of an interface that could not be seen, unless the look before was `blind`, too;
    /// returns whether this one was.
    pub fn end(self, blind: bool) -> bool {
        if let Some(unseen) = self.unseen.as_ref().filter(|_| !blind) {
            tracing::warn!("{unseen}");
        }
        self.unseen.is_some()
    }
}

/// Takes packets in that came by one way.
struct Intake<'a> {
    machine: &'a mut Machine,
    spare: &'a mut Spare,
    ethernet: bool,
    origin: (Direction, u16),
    full: bool,
    memory_full: u64,
}

impl Intake<'_> {
    /// Takes in a packet, or its segments.
    fn take(&mut self, bytes: &[u8], arrived: Instant, now: Instant) {
        let origin = self.origin;
        if bytes.len() <= vnet::LEN {
            return;
        }
        if self.full {
            self.memory_full += 1;
            return;
        }
        let Some(gso) = Gso::parse(bytes, self.ethernet) else {
            let mut buffer = self.buffer();
            buffer.clear();
            buffer.extend_from_slice(bytes);
            if self.machine.finish() {
                vnet::finish(&mut buffer);
            }
            return self.machine.enqueue(buffer, None, origin, arrived, now);
        };
        if self.machine.whole() {
            let mut buffer = self.buffer();
            buffer.clear();
            buffer.extend_from_slice(bytes);
            let Headers { len, size, .. } = gso.headers;
            let segments = Segments { header: (vnet::LEN + len) as u16, payload: size as u16 };
            return self.machine.enqueue(buffer, Some(segments), origin, arrived, now);
        }
        for index in 0..gso.count() {
            let mut buffer = self.buffer();
            gso.segment(bytes, index, &mut buffer);
            if self.machine.finish() {
                vnet::finish(&mut buffer);
            }
            self.machine.enqueue(buffer, None, origin, arrived, now);
        }
    }

    fn buffer(&mut self) -> Vec<u8> {
        self.spare.take().or_else(|| self.machine.buffer()).unwrap_or_default()
    }
}
