//! Many links in one process, spread over threads.
//!
//! A process for each link takes some megabytes and a wake-up for each departure. Here a thread
//! carries the packets of hundreds of links: what a batch of packets needs is there once
//! (`Tools`), one alarm waits for the next departure of any link, and what is due at the same
//! time leaves with one wake-up. Links of different threads share nothing, so threads do not wait
//! for each other. The thread that began carries nothing: it hears signals and requests, and looks
//! whether interfaces are still there.

use super::carrier::{Carrier, Look, MEMORY, Tools};
use super::datapath::{End, LOOK};
use super::machine::{Change, Machine};
use super::place::Place;
use super::settings::{Mode, Plan, Run};
use super::status::{LatenessMeter, Status};
use super::{become_timely, rights, rights_to_begin};
use crate::control::{Kind, ServiceName};
use crate::reactor::{Parse, Reactor};
use crate::service::{Next, Service};
use crate::{already, descriptors, say};
use anyhow::{Context, anyhow, ensure};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use serde_json::Value;
use sheaf_emulator::LinkConfig;
use sheaf_netio::lead::Spin;
use sheaf_netio::poller::Poller;
use sheaf_netio::timer::Alarm;
use sheaf_netio::vnet_packet::State;
use sheaf_netio::{capability, clock};
use sheaf_stage::{IndexedHeap, Instant};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::JoinHandle;

/// Descriptors of a link at most: two ports, and the locks of two names.
const DESCRIPTORS: u64 = 4;
/// Events that a thread takes with one call.
const EVENTS: usize = 256;
/// Key of a thread's event for requests; those of ports are below.
const ASKED: u64 = u64::MAX;
/// Ports of a place at most, by which keys of ports are numbered.
const PORTS: u64 = 4;

/// Settings of the service.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name under which it is shown and stopped.
    pub name: String,
    /// The links.
    pub links: Vec<Member>,
    /// Threads that carry packets, 1 or more.
    pub threads: usize,
    /// The seed of all chances; each link has another one made of it.
    pub seed: u64,
    /// Settings of the run.
    pub run: Run,
}

/// One link of many.
#[derive(Clone, Debug)]
pub struct Member {
    /// Where: between two interfaces, or on one.
    pub mode: Mode,
    /// Both directions.
    pub configs: Box<[LinkConfig; 2]>,
    /// Its own seed, where it has one.
    pub seed: Option<u64>,
}

/// A change of the link that has this interface.
pub type ChangeOf = (String, Change);

/// Emulates until it is asked to end, or no link is left.
///
/// # Errors
/// Fails where rights are missing, where an interface cannot be opened, or where one of them is
/// emulated already.
pub fn run(settings: &Settings, parse: Parse<ChangeOf>) -> anyhow::Result<(Status, End)> {
    descriptors::require_beyond(DESCRIPTORS * settings.links.len() as u64)?;
    let mut needed = Vec::new();
    for right in settings.links.iter().flat_map(|link| rights(&link.mode)) {
        if !needed.contains(right) {
            needed.push(*right);
        }
    }
    capability::require(&rights_to_begin(&needed, &settings.run))?;
    let name = |name: &str| ServiceName::new(Kind::Emulate, name);
    let interfaces = settings.links.iter().flat_map(|link| link.mode.interfaces());
    let names = interfaces.map(name).collect::<Result<Vec<_>, _>>()?;
    let mut reactor = Reactor::new(name(&settings.name)?, &names).map_err(|error| {
        let what = format!("{} or one of its interfaces", settings.name);
        already(error, format!("{what} is emulated already; stop the other `sheaf emulate` first"))
    })?;
    let begin = clock::now();
    let mut carriers = Vec::with_capacity(settings.links.len());
    for (number, link) in (0..).zip(&settings.links) {
        let place = Place::open(&link.mode, settings.run.gro)?;
        // A link has two seeds, one for each direction.
        let seed = link.seed.unwrap_or_else(|| settings.seed.wrapping_add(2 * number));
        let plan = Plan::Links(link.configs.clone());
        carriers.push(Carrier::new(place, Machine::new(&plan, true, seed, begin)?));
    }
    // Threads have from this one what it has been given by now.
    let _awake = become_timely(&settings.run)?;
    capability::keep_only(&needed)?;
    let mut many = Many::new(settings, carriers)?;
    say(&format!("{}; seed {}", many.title(), settings.seed));
    reactor.run(&mut many, parse)?;
    many.finish()
}

/// A request to a thread.
enum Ask {
    Report(SyncSender<Part>),
    Change(usize, Change, SyncSender<anyhow::Result<()>>),
    /// The link's interface has gone.
    Leave(usize),
    Stop,
}

/// The part of a report that a thread has.
struct Part {
    status: Status,
    lateness: LatenessMeter,
}

/// The service.
struct Many {
    name: String,
    seed: u64,
    started: Instant,
    threads: Vec<Thread>,
    /// The links that are there.
    links: Vec<Seat>,
    look: Instant,
    /// The last look at the interfaces failed.
    blind: bool,
    /// The interface that went away last.
    gone: Option<String>,
}

/// Where a link is carried.
struct Seat {
    /// Number of the thread, and of the link there.
    thread: usize,
    number: usize,
    /// Name and index of each interface.
    interfaces: Vec<(String, u32)>,
}

/// A thread that carries packets, seen from the one that asks it.
struct Thread {
    asks: Sender<Ask>,
    wake: Arc<EventFd>,
    handle: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Thread {
    fn ask(&self, ask: Ask) -> anyhow::Result<()> {
        let sent = self.asks.send(ask).map_err(|_| anyhow!("a thread has ended; start again"));
        self.wake.write(1)?;
        sent
    }

    /// Ends with the error of a thread that has ended, or will.
    fn join(handle: JoinHandle<anyhow::Result<()>>) -> anyhow::Result<()> {
        handle.join().map_err(|_| anyhow!("a thread has panicked"))?
    }
}

impl Many {
    fn new(settings: &Settings, carriers: Vec<Carrier>) -> anyhow::Result<Many> {
        let count = settings.threads.clamp(1, carriers.len().max(1));
        let mut of_threads: Vec<Vec<Carrier>> = (0..count).map(|_| Vec::new()).collect();
        let mut links = Vec::with_capacity(carriers.len());
        for (number, carrier) in carriers.into_iter().enumerate() {
            let own = &mut of_threads[number % count];
            links.push(Seat {
                thread: number % count,
                number: own.len(),
                interfaces: carrier.interfaces().to_vec(),
            });
            own.push(carrier);
        }
        let mut threads = Vec::with_capacity(count);
        for (number, carriers) in of_threads.into_iter().enumerate() {
            let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
            let wake = Arc::new(EventFd::from_flags(flags)?);
            let (asks, asked) = channel();
            let memory = MEMORY / count as u64;
            let mut worker = Worker::new(carriers, settings.run.spin, memory, wake.clone(), asked)?;
            let handle = std::thread::Builder::new()
                .name(format!("links-{number}"))
                .spawn(move || worker.run())
                .context("cannot start a thread; raise the limit of tasks, or lower threads")?;
            threads.push(Thread { asks, wake, handle: Some(handle) });
        }
        let now = clock::now();
        Ok(Many {
            name: settings.name.clone(),
            seed: settings.seed,
            started: now,
            threads,
            links,
            look: now + LOOK,
            blind: false,
            gone: None,
        })
    }

    fn title(&self) -> String {
        let (links, threads) = (self.links.len(), self.threads.len());
        format!("emulating {links} links ({}) on {threads} threads", self.name)
    }

    /// Takes leave of links whose interface has gone.
    fn look(&mut self) -> anyhow::Result<()> {
        let threads = &self.threads;
        let (mut look, mut asked) = (Look::default(), Ok(()));
        self.links.retain(|Seat { thread, number, interfaces }| {
            let Some(name) = look.lost(interfaces) else { return true };
            tracing::error!("interface {name} went away, and its link has ended; start again");
            self.gone = Some(name.to_owned());
            if let Err(error) = threads[*thread].ask(Ask::Leave(*number)) {
                asked = Err(error);
            }
            false
        });
        self.blind = look.end(self.blind);
        asked
    }

    fn status(&self) -> anyhow::Result<Status> {
        let parts = self.threads.iter().map(|thread| {
            let (sender, part) = sync_channel(1);
            thread.ask(Ask::Report(sender))?;
            Ok(part)
        });
        // All are asked before the first has to have an answer.
        let parts = parts.collect::<anyhow::Result<Vec<_>>>()?;
        let mut status = Status {
            place: self.title(),
            seed: self.seed,
            seconds: (clock::now() - self.started).as_secs_f64(),
            ..Status::default()
        };
        let mut lateness = LatenessMeter::new()?;
        for part in parts {
            let mut part = part.recv().context("a thread has ended; start again")?;
            status.links.append(&mut part.status.links);
            status.missed += part.status.missed;
            status.memory_full += part.status.memory_full;
            status.refused += part.status.refused;
            lateness.add(&part.lateness)?;
        }
        status.lateness = lateness.report();
        Ok(status)
    }

    /// Ends the threads; returns what was done, and why it ended.
    fn finish(mut self) -> anyhow::Result<(Status, End)> {
        let status = self.status()?;
        for thread in &self.threads {
            thread.ask(Ask::Stop)?;
        }
        for thread in &mut self.threads {
            thread.handle.take().map_or(Ok(()), Thread::join)?;
        }
        let gone = self.gone.filter(|_| self.links.is_empty());
        Ok((status, gone.map_or(End::Asked, End::Gone)))
    }
}

impl Service for Many {
    type Change = ChangeOf;

    fn interest(&mut self, _poller: &mut Poller) {}

    fn turn(&mut self, now: Instant, _poller: &mut Poller) -> anyhow::Result<Next> {
        if now >= self.look {
            for thread in &mut self.threads {
                let ended = thread.handle.take_if(|handle| handle.is_finished());
                ended.map_or(Ok(()), Thread::join)?;
            }
            self.look()?;
            if self.links.is_empty() {
                return Ok(Next::End);
            }
            self.look = now + LOOK;
        }
        Ok(Next::Wait(self.look))
    }

    fn report(&mut self, _now: Instant) -> anyhow::Result<Value> {
        Ok(serde_json::to_value(self.status()?)?)
    }

    fn change(&mut self, (interface, change): ChangeOf, _now: Instant) -> anyhow::Result<()> {
        let has = |seat: &&Seat| seat.interfaces.iter().any(|(name, _)| *name == interface);
        let Some(Seat { thread, number, .. }) = self.links.iter().find(has) else {
            return Err(anyhow!(
                "{interface} has no link here; name one of its interfaces: change link IF"
            ));
        };
        let (sender, done) = sync_channel(1);
        self.threads[*thread].ask(Ask::Change(*number, change, sender))?;
        done.recv().context("a thread has ended; start again")?
    }
}

/// A thread that carries packets.
struct Worker {
    /// `None`: its interface has gone.
    carriers: Vec<Option<Carrier>>,
    tools: Tools,
    asked: Receiver<Ask>,
    wake: Arc<EventFd>,
    epoll: Epoll,
    alarm: Alarm,
    /// Times at which packets of carriers leave, or something else comes to pass.
    deadlines: IndexedHeap<Instant>,
    /// Carriers that may have more packets, in turn, and whether each is among them.
    ready: VecDeque<usize>,
    in_turn: Vec<bool>,
    /// Time at which buffers that were not needed are given back.
    rest: Instant,
}

impl Worker {
    fn new(
        carriers: Vec<Carrier>,
        spin: Spin,
        memory: u64,
        wake: Arc<EventFd>,
        asked: Receiver<Ask>,
    ) -> anyhow::Result<Worker> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&*wake, EpollEvent::new(EpollFlags::EPOLLIN, ASKED))?;
        let mut deadlines = IndexedHeap::default();
        for (number, carrier) in carriers.iter().enumerate() {
            let sources: BTreeSet<usize> = carrier.sources().collect();
            for port in sources {
                let key = number as u64 * PORTS + port as u64;
                epoll.add(&carrier.ports()[port], EpollEvent::new(EpollFlags::EPOLLIN, key))?;
            }
            // A trace may begin with what is no packet.
            deadlines.set(number as u32, Some(carrier.next_deadline()));
        }
        Ok(Worker {
            tools: Tools::new(memory)?,
            in_turn: vec![false; carriers.len()],
            carriers: carriers.into_iter().map(Some).collect(),
            asked,
            wake,
            epoll,
            alarm: Alarm::new(spin),
            deadlines,
            ready: VecDeque::new(),
            rest: clock::now() + LOOK,
        })
    }

    /// Carries packets until it is asked to stop.
    fn run(&mut self) -> anyhow::Result<()> {
        let mut poller = Poller::default();
        poller.add(&self.epoll.0);
        let mut events = [EpollEvent::empty(); EVENTS];
        loop {
            if self.ready.is_empty() {
                let next = self.deadlines.first().map_or(Instant::MAX, |(at, _)| at);
                self.alarm.wait(&mut poller, 1, next.min(self.rest))?;
            }
            // Without a packet in turn most wake-ups are departures, where nothing has come.
            let count = match !self.ready.is_empty() || poller.readable(0) {
                true => self.epoll.wait(&mut events, 0u8).unwrap_or(0),
                false => 0,
            };
            for event in &events[..count] {
                match event.data() {
                    ASKED => {
                        if self.obey()? {
                            return self.finish();
                        }
                    }
                    key => self.readable((key / PORTS) as usize, (key % PORTS) as usize),
                }
            }
            self.turn()?;
        }
    }

    fn readable(&mut self, number: usize, port: usize) {
        if let Some(carrier) = &mut self.carriers[number] {
            carrier.readable(port);
            if !std::mem::replace(&mut self.in_turn[number], true) {
                self.ready.push_back(number);
            }
        }
    }

    /// Gives each carrier that has packets one turn, and out what is due meanwhile: a departure
    /// waits for one batch, and not for those of all links.
    fn turn(&mut self) -> anyhow::Result<()> {
        let mut now = clock::now();
        self.give_out(now);
        for _ in 0..self.ready.len() {
            let Some(number) = self.ready.pop_front() else { break };
            self.in_turn[number] = false;
            let Some(carrier) = &mut self.carriers[number] else { continue };
            match carrier.take_in(&mut self.tools, now) {
                // Of an interface that is gone the thread that looks for them says so.
                Ok(State::Up | State::Down) => {}
                Err(error) => {
                    tracing::error!("{error:#}; its link has ended");
                    self.leave(number)?;
                    continue;
                }
            }
            if carrier.has_more() {
                self.in_turn[number] = true;
                self.ready.push_back(number);
            }
            let next = carrier.next_deadline();
            self.deadlines.set(number as u32, Some(next));
            now = clock::now();
            self.give_out(now);
        }
        if now >= self.rest {
            self.tools.rest();
            self.carriers.iter().flatten().for_each(Carrier::raise_detours);
            self.rest = now + LOOK;
        }
        Ok(())
    }

    /// Gives out what is due by `now`, in the order of time.
    fn give_out(&mut self, now: Instant) {
        while let Some((_, number)) = self.deadlines.first().filter(|(at, _)| *at <= now) {
            let Some(carrier) = &mut self.carriers[number as usize] else {
                self.deadlines.set(number, None);
                continue;
            };
            carrier.give_out(&mut self.tools, now);
            let next = carrier.next_deadline();
            self.deadlines.set(number, Some(next));
        }
    }

    /// Does what was asked; returns whether that is to stop.
    fn obey(&mut self) -> anyhow::Result<bool> {
        let _ = self.wake.read();
        loop {
            match self.asked.try_recv() {
                Ok(Ask::Report(to)) => {
                    let mut status = Status::default();
                    for carrier in self.carriers.iter_mut().flatten() {
                        carrier.add_to(&mut status);
                    }
                    let lateness = self.tools.lateness().clone();
                    // Who asked may have gone.
                    let _ = to.send(Part { status, lateness });
                }
                Ok(Ask::Change(number, change, to)) => {
                    let now = clock::now();
                    let done = match &mut self.carriers[number] {
                        Some(carrier) => carrier.change(&change, now),
                        None => Err(anyhow!("the link has ended")),
                    };
                    self.deadlines.set(number as u32, Some(now));
                    let _ = to.send(done);
                }
                Ok(Ask::Leave(number)) => self.leave(number)?,
                Ok(Ask::Stop) | Err(TryRecvError::Disconnected) => return Ok(true),
                Err(TryRecvError::Empty) => return Ok(false),
            }
        }
    }

    /// Ends one link.
    fn leave(&mut self, number: usize) -> anyhow::Result<()> {
        self.deadlines.set(number as u32, None);
        let carrier = self.carriers[number].take();
        carrier.map_or(Ok(()), |carrier| carrier.finish(&mut self.tools))
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        (0..self.carriers.len()).try_for_each(|number| self.leave(number))
    }
}

impl Settings {
    /// Checks what no single link can see.
    ///
    /// # Errors
    /// An interface is named by two links, or there is no link.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.links.is_empty(), "there is no link; add a table [[link]]");
        let mut seen = BTreeSet::new();
        for name in self.links.iter().flat_map(|link| link.mode.interfaces()) {
            ensure!(seen.insert(name), "{name} is named by two links; an interface has one");
            ensure!(name != self.name, "{name} is an interface; give the file another name");
        }
        Ok(())
    }
}
