//! Carries packets from port to port, through the links between them, in time.
//!
//! One thread. A turn takes what has come, with the kernel's time stamps, so that the links reckon
//! with when a packet came and not with when this thread had time for it; gives out what is due;
//! and waits for the next departure or arrival ([`Alarm`]). A late wake-up delays the packets
//! that were due, and no others.

use super::capture::Capture;
use super::describe;
use super::machine::{Change, Machine};
use super::pcapng::LinkType;
use super::place::{Place, Port, Way};
use super::settings::Settings;
use super::spare::Spare;
use super::status::{LatenessMeter, LinkStatus, Status};
use crate::service::{Next, Service, Stop};
use anyhow::Context;
use serde_json::Value;
use sheaf_emulator::{Direction, Packet, PipeStats, Segments};
use sheaf_netio::child::{self, Child};
use sheaf_netio::gso::{Gso, Headers};
use sheaf_netio::poller::Poller;
use sheaf_netio::stamps::Stamps;
use sheaf_netio::timer::Alarm;
use sheaf_netio::vnet_packet::{BATCH, State};
use sheaf_netio::{clock, ip, vnet};
use sheaf_stage::{Duration, Instant};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

/// Reason why an emulation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It was asked to.
    Asked,
    /// The command inside has ended with this status.
    Command(u8),
    /// This interface went away.
    Gone(String),
    /// Somebody deleted this interface, which the emulation had made.
    #[cfg(feature = "medium")]
    Deleted(String),
}

/// Most bytes that all links hold together. Beyond, packets are dropped before the link.
const MEMORY: u64 = 1 << 30;
/// Period in which the packets held are added up.
const MEASURE: Duration = Duration::from_millis(10);
/// How often interfaces are looked for, in case nobody told that they went, and buffers given back
/// that were not needed.
const LOOK: Duration = Duration::from_secs(1);
/// Turns after which signals and questions are looked at even when packets keep coming.
const TURNS: u32 = 32;

/// Carriers of the packets.
pub struct Datapath {
    place: Place,
    machine: Machine,
    /// The command of a shell, and its number among what is waited for.
    child: Option<Child>,
    child_number: Option<usize>,
    /// Numbers of the first port and behind the last descriptor.
    numbers: Range<usize>,
    capture: Option<Capture>,
    alarm: Alarm,
    seed: u64,
    started: Instant,
    /// Packets to be sent, by way.
    leaving: Vec<Vec<Packet>>,
    intake: Intake,
    lateness: LatenessMeter,
    refused: u64,
    stamps: Stamps,
    /// Time at which what is held is added up next, and when interfaces are looked for.
    measure: Instant,
    look: Instant,
    turns: u32,
    /// The interface that went away.
    gone: Option<String>,
    /// The last look at the interfaces failed.
    blind: bool,
}

/// Takes packets in.
struct Intake {
    /// Whether a port may have more; and when it surely had nothing, so that what comes later
    /// cannot have come before.
    ready: Vec<bool>,
    empty_at: Vec<Instant>,
    spare: Spare,
    /// Room for a packet of a TUN or TAP interface, where there is one.
    buffer: Vec<u8>,
    full: bool,
    memory_full: u64,
}

impl Service for Datapath {
    type Change = Change;

    fn interest(&mut self, poller: &mut Poller) {
        let mut add = |fd: BorrowedFd<'_>| poller.add(&fd);
        let ports: Vec<usize> = self.place.ports.iter().map(|port| add(port.as_fd())).collect();
        self.child_number = self.child.as_ref().map(|child| add(child.as_fd()));
        let first = ports.first().copied().unwrap_or_default();
        self.numbers = first..first + ports.len() + usize::from(self.child.is_some());
    }

    fn turn(&mut self, now: Instant, poller: &mut Poller) -> anyhow::Result<Next> {
        if self.child_number.is_some_and(|number| poller.readable(number)) {
            return Ok(Next::End);
        }
        if now >= self.measure {
            self.measure();
            self.measure = now + MEASURE;
        }
        if now >= self.look {
            if let Some(gone) = self.gone() {
                self.gone = Some(gone);
                return Ok(Next::End);
            }
            self.place.raise_detours();
            self.intake.spare.rest();
            self.look = now + LOOK;
        }
        if self.take_in(now)? == State::Down {
            // Either it is down, and packets may come again, or it is gone.
            self.look = now;
        }
        self.give_out(clock::now());
        Ok(Next::Wait(self.machine.next_deadline().min(self.look)))
    }

    /// Sleeps, then looks without sleeping; and does neither while all ports have packets.
    fn wait(&mut self, poller: &mut Poller, until: Instant) -> io::Result<()> {
        self.turns = self.turns.wrapping_add(1);
        if self.intake.ready.contains(&true) || until <= clock::now() {
            if !self.turns.is_multiple_of(TURNS) && self.intake.ready.iter().all(|ready| *ready) {
                return Ok(());
            }
            poller.wait(Some(Duration::ZERO))?;
        } else {
            self.alarm.wait(poller, self.numbers.end, until)?;
        }
        for way in &self.place.ways {
            self.intake.ready[way.from] |= poller.readable(self.numbers.start + way.from);
        }
        Ok(())
    }

    fn report(&mut self, _now: Instant) -> anyhow::Result<Value> {
        Ok(serde_json::to_value(self.status())?)
    }

    fn change(&mut self, change: Change, now: Instant) -> anyhow::Result<()> {
        self.machine.change(&change, now)?;
        self.give_out(now);
        tracing::info!("{}", self.summary());
        Ok(())
    }

    /// A shell ends by itself: Ctrl-C reaches it without us.
    fn stop(&mut self, cause: Stop) -> bool {
        if let (Some(child), Stop::Terminate) = (&self.child, cause) {
            child.terminate();
        }
        self.child.is_none()
    }
}

impl Datapath {
    /// Between the ports of `place`.
    pub fn new(
        place: Place,
        mut machine: Machine,
        child: Option<Child>,
        settings: &Settings,
    ) -> anyhow::Result<Datapath> {
        let capture = match &settings.run.pcap {
            None => None,
            Some(file) => {
                let mut names = ["out", "in"];
                for way in &place.ways {
                    names[usize::from(way.direction == Direction::In)] = &way.name;
                }
                let kind = if place.ethernet { LinkType::Ethernet } else { LinkType::Raw };
                let capture = Capture::create(file, &names, kind)?;
                machine.set_log(capture.log());
                Some(capture)
            }
        };
        let now = clock::now();
        let ports = place.ports.len();
        let has_tun = place.ports.iter().any(|port| matches!(port, Port::Tun(_)));
        Ok(Datapath {
            intake: Intake {
                ready: vec![false; ports],
                empty_at: vec![now; ports],
                spare: Spare::default(),
                buffer: vec![0; if has_tun { vnet::LEN + vnet::LONGEST } else { 0 }],
                full: false,
                memory_full: 0,
            },
            leaving: place.ways.iter().map(|_| Vec::with_capacity(BATCH)).collect(),
            place,
            machine,
            child,
            child_number: None,
            numbers: 0..0,
            capture,
            alarm: Alarm::new(settings.run.spin),
            seed: settings.seed,
            started: now,
            lateness: LatenessMeter::new()?,
            refused: 0,
            stamps: Stamps::new()?,
            measure: now,
            look: now + LOOK,
            turns: 0,
            gone: None,
            blind: false,
        })
    }

    /// Where it emulates, for people.
    fn title(&self) -> String {
        let ways: Vec<&str> = self.place.ways.iter().map(|way| way.name.as_str()).collect();
        format!("emulating {}", ways.join(" and "))
    }

    /// The same with what each link is set to.
    pub fn summary(&self) -> String {
        let stats = self.machine.stats();
        let names = stats.iter().enumerate().map(|(index, (pipe, _))| (index, *pipe));
        let link = |(index, pipe): (usize, Option<&str>)| {
            let words = describe::settings(self.machine.config(index)).words;
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
            Some(pipe) => Some(format!("pipe {pipe}")),
            None => self.place.ways.iter().find(is_its).map(|way| way.name.clone()),
        }
    }

    /// Takes what has come to each port, up to a batch.
    fn take_in(&mut self, now: Instant) -> anyhow::Result<State> {
        let mut state = State::Up;
        for index in 0..self.place.ways.len() {
            let Way { from, direction, interface, .. } = self.place.ways[index];
            let origin = (direction, interface);
            if !self.intake.ready[from] {
                continue;
            }
            let before = clock::now();
            let ethernet = self.place.ethernet;
            let (machine, intake) = (&mut self.machine, &mut self.intake);
            let empty = intake.empty_at[from];
            let got = match &mut self.place.ports[from] {
                Port::Packet(socket) => {
                    let (stamps, mut offset) = (&mut self.stamps, None);
                    socket.receive(|bytes, stamp| {
                        // Only now the batch is read: a clock that was set by now is noticed.
                        let offset = offset.get_or_insert_with(|| stamps.offset());
                        let arrived = offset.arrival(stamp, empty, before);
                        intake.take(machine, bytes, ethernet, origin, arrived, before);
                    })
                }
                Port::Tun(tun) => {
                    let mut buffer = std::mem::take(&mut intake.buffer);
                    let mut got = 0;
                    let result = loop {
                        match tun.receive(&mut buffer) {
                            Ok(Some(len)) => {
                                let bytes = &buffer[..len];
                                intake.take(machine, bytes, ethernet, origin, before, before);
                                got += 1;
                            }
                            Ok(None) => break Ok(got),
                            Err(error) => break Err(error),
                        }
                        if got == BATCH {
                            break Ok(got);
                        }
                    };
                    intake.buffer = buffer;
                    result
                }
            };
            match got {
                Ok(BATCH) => {}
                Ok(_) => {
                    intake.ready[from] = false;
                    intake.empty_at[from] = before.max(now);
                }
                Err(error) => {
                    // A packet socket says once that its interface is down, a TUN device has no
                    // interface any more.
                    if let Port::Tun(_) = self.place.ports[from] {
                        let name = &self.place.ways[index].name;
                        anyhow::bail!("the interface for {name} went away ({error}); start again");
                    }
                    self.intake.ready[from] = false;
                    state = State::Down;
                }
            }
        }
        Ok(state)
    }

    /// Sends what is due by `now`.
    fn give_out(&mut self, now: Instant) {
        while let Some(packet) = self.machine.dequeue(now) {
            let ways = &self.place.ways;
            let way = ways.iter().position(|way| way.direction == packet.direction);
            let way = way.expect("a packet comes from one of the ways");
            self.leaving[way].push(packet);
            if self.leaving[way].len() == BATCH {
                self.send(way);
            }
        }
        for way in 0..self.leaving.len() {
            if !self.leaving[way].is_empty() {
                self.send(way);
            }
        }
    }

    fn send(&mut self, way: usize) {
        let packets = &mut self.leaving[way];
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
            self.lateness.record(sent - packet.depart);
            if let Some(capture) = &self.capture {
                capture.leaves(&packet);
            }
            self.intake.spare.give(packet.bytes);
        }
    }

    /// Adds up what is held.
    fn measure(&mut self) {
        let held = |(_, stats): &(Option<&str>, PipeStats)| {
            stats.links.rate_queue.bytes + stats.links.delay_line.bytes
        };
        self.intake.full = self.machine.stats().iter().map(held).sum::<u64>() > MEMORY;
    }

    /// An interface that does not exist any more, or has another name: it is somebody else's then.
    fn gone(&mut self) -> Option<String> {
        let mut blind = None;
        let lost = |(name, index): &&(String, u32)| match ip::index(name) {
            Ok(found) => found != *index,
            // Without a descriptor it cannot be seen, which does not mean that it is gone.
            Err(error) if ip::is_exhausted(&error) => {
                blind = Some(format!("cannot see whether {name} is there: {error}"));
                false
            }
            Err(_) => true,
        };
        let gone = self.place.interfaces.iter().find(lost).map(|(name, _)| name.clone());
        if let Some(blind) = blind.as_ref().filter(|_| !self.blind) {
            tracing::warn!("{blind}");
        }
        self.blind = blind.is_some();
        gone
    }

    fn status(&mut self) -> Status {
        let (mut missed, mut refused) = (0, self.refused);
        for port in &mut self.place.ports {
            if let Port::Packet(socket) = port {
                missed += socket.missed() + socket.unreadable();
                refused += socket.refused();
            }
        }
        let name = |(index, (pipe, stats)): (usize, (Option<&str>, PipeStats))| {
            let status = LinkStatus::new(&stats, self.machine.config(index));
            Some((self.link_name(index, pipe)?, status))
        };
        Status {
            place: self.title(),
            seed: self.seed,
            seconds: (clock::now() - self.started).as_secs_f64(),
            links: self.machine.stats().into_iter().enumerate().filter_map(name).collect(),
            denied: self.machine.denied(),
            missed: missed + self.intake.memory_full,
            memory_full: self.intake.memory_full,
            refused,
            uncaptured: self.capture.as_ref().map_or(0, Capture::missed),
            lateness: self.lateness.report(),
            ..Status::default()
        }
    }

    /// Lets packets go their old way and ends the capture; returns what was done, and why it ended.
    pub fn finish(mut self) -> anyhow::Result<(Status, End)> {
        let status = self.status();
        self.place.leave();
        // The links tell the capture of drops.
        drop(self.machine);
        if let Some(capture) = self.capture {
            capture.end()?;
        }
        let end = match (self.gone, self.child) {
            (Some(dev), _) => End::Gone(dev),
            (None, Some(child)) => {
                let status = child.wait().context("the command is lost")?;
                End::Command(child::shell_status(status))
            }
            (None, None) => End::Asked,
        };
        Ok((status, end))
    }
}

impl Intake {
    /// Takes in a packet, or its segments.
    fn take(
        &mut self,
        machine: &mut Machine,
        bytes: &[u8],
        ethernet: bool,
        origin: (Direction, u16),
        arrived: Instant,
        now: Instant,
    ) {
        if bytes.len() <= vnet::LEN {
            return;
        }
        if self.full {
            self.memory_full += 1;
            return;
        }
        let Some(gso) = Gso::parse(bytes, ethernet) else {
            let mut buffer = self.buffer(machine);
            buffer.clear();
            buffer.extend_from_slice(bytes);
            if machine.finish() {
                vnet::finish(&mut buffer);
            }
            return machine.enqueue(buffer, None, origin, arrived, now);
        };
        if machine.whole() {
            let mut buffer = self.buffer(machine);
            buffer.clear();
            buffer.extend_from_slice(bytes);
            let Headers { len, size, .. } = gso.headers;
            let segments = Segments { header: (vnet::LEN + len) as u16, payload: size as u16 };
            return machine.enqueue(buffer, Some(segments), origin, arrived, now);
        }
        for index in 0..gso.count() {
            let mut buffer = self.buffer(machine);
            gso.segment(bytes, index, &mut buffer);
            if machine.finish() {
                vnet::finish(&mut buffer);
            }
            machine.enqueue(buffer, None, origin, arrived, now);
        }
    }

    fn buffer(&mut self, machine: &mut Machine) -> Vec<u8> {
        self.spare.take().or_else(|| machine.buffer()).unwrap_or_default()
    }
}
