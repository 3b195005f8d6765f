//! Keeps time for the merging program: which queue leaves when no packet in hand can carry it.
//!
//! The program tells which queue waits since when. How busy the device is comes from one of two
//! sides. Either the device counts its frames (the emulated medium, [`Controller::device_done`]),
//! or the controller tracks its own ticks until they are free ([`Controller::track`]), which works
//! on every device. From both follows the next tick, by the same rules as in the model
//! ([`sheaf_aggregate::Aggregator`]): under `forced` overdue queues first, the oldest of them, then
//! those that reached `min`; under `busy` the queue that waits longest, as soon as the device can
//! take a frame and the backoff after the last one is over; under both nobody beyond `hold`.
//!
//! Fair queues take a frame of each next hop at a time. Where other stations contend for the
//! channel, they are one station nevertheless, and have one frame at a time from us.

use crate::lane::{Front, Lane, Look};
use crate::layout::{MergeConfig, SLOTS};
use crate::merge::Rule;
use crate::rounds::{self, Rounds};
use crate::strangers::{self, Strangers};
use crate::ticker::{Cause, Tick};
use crate::{Error, Event, Merge, Ticker};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use sheaf_aggregate::{Backoff, Config, Finished, Policy};
use sheaf_netio::poller::Poller;
use sheaf_stage::{Duration, Instant};

/// How soon a queue is tried again into which a packet is being copied.
const AGAIN: Duration = Duration::from_micros(200);
/// What this process takes to look at a question, before it has been measured.
const REACTION: Duration = Duration::from_micros(100);
/// Reactions over which that is averaged.
const REACTIONS: u32 = 8;
/// For so long after others kept the channel from our frames they are taken to do so still. A few
/// frames that meet nobody are chance, and from then on a device fills unseen until the next probe.
const CONTENDED: Duration = Duration::from_secs(1);
/// How often, at most, empty queues are given back when all are in use.
const RECLAIM: Duration = Duration::from_millis(100);
/// How often contexts and streams of format 2 are looked through for idle ones.
const FORGET: Duration = Duration::from_secs(30);
/// Ticks of one call of [`Controller::run`]: what shares the thread has its turn in between.
const TURN: usize = 256;

/// Who says how busy the device is.
enum Side {
    /// Nobody, or the device itself.
    Device { ticker: Ticker },
    /// The lanes' ticks, by gate.
    Lanes { lanes: Vec<Option<Lane>>, fifo: bool, epoll: Epoll },
}

/// The merging program of one interface, and who keeps time for it.
pub struct Controller {
    config: Config,
    /// The program.
    pub merge: Merge,
    ifindex: u32,
    mac: [u8; 6],
    cookie: u64,
    side: Side,
    /// The device's time for frames of all queues, which contend as one station.
    backoff: Backoff,
    /// Until then others are taken to contend for the channel.
    contended_until: Instant,
    /// When the oldest packet of each queue came.
    waiting: [Option<Instant>; SLOTS as usize],
    /// Queues that may leave but found no carrier.
    wants: Vec<u32>,
    again: Option<Instant>,
    no_slot: bool,
    /// The device's queue has refused a packet since the last look.
    full: bool,
    /// The program has told something since the last look.
    heard: bool,
    /// What this process takes to look at a question. Where processors have no interrupt for
    /// themselves (irq_work on MIPS, user-mode Linux) it is a tick of the kernel.
    reaction: Duration,
    rounds: Rounds,
    strangers: Strangers,
    /// Until then no frame leaves that has time, so that packets which went alone leave their own
    /// queues first.
    drained: Instant,
    reclaimed: Instant,
    forgot: Instant,
}

impl Controller {
    /// Puts the program on `interface` (its number and link address) of this thread's network
    /// namespace. `cookie` is a random number that tells our tick frames from others.
    pub fn attach(
        interface: &str,
        ifindex: u32,
        mac: [u8; 6],
        config: &Config,
        cookie: u64,
    ) -> Result<Controller, Error> {
        let ticker = Ticker::new(ifindex, mac, cookie)?;
        Ok(Controller {
            merge: Merge::attach(interface, MergeConfig::new(config, cookie))?,
            ifindex,
            mac,
            cookie,
            side: Side::Device { ticker },
            backoff: Backoff::default(),
            contended_until: Instant::ZERO,
            config: config.clone(),
            waiting: [None; SLOTS as usize],
            wants: Vec::new(),
            again: None,
            no_slot: false,
            full: false,
            heard: false,
            reaction: REACTION,
            rounds: Rounds::default(),
            strangers: Strangers::default(),
            drained: Instant::ZERO,
            reclaimed: Instant::ZERO,
            forgot: Instant::ZERO,
        })
    }

    /// Goes by `config` from now on; packets that wait keep their frames.
    pub fn change(&mut self, config: &Config) -> Result<(), Error> {
        self.merge.set_config(MergeConfig::new(config, self.cookie))?;
        self.merge.device().unseen_until(Instant::ZERO);
        self.config = config.clone();
        Ok(())
    }

    /// The device has finished with `done` frames in all since it told first, and can have `limit`.
    pub fn device_done(&mut self, done: u64, limit: u32, now: Instant) {
        let before = self.merge.device().read();
        if done > before.done && matches!(self.side, Side::Device { .. }) {
            self.backoff.began(Instant::from_nanos(before.handed));
            // One frame at a time, so the last that went out is the one that is done.
            let (packets, bytes) = before.last_frame();
            self.backoff.finished(&self.config, Finished::single(packets, bytes), now);
            self.merge.device().rest_until(self.backoff.until().as_nanos());
        }
        self.merge.device().tell(done, limit);
    }

    /// From now on the controller tracks its own frames. `fifo` says that the device keeps the
    /// order in which frames come, strangers' among them; otherwise it has fair queues. May be
    /// called again when the device changes.
    pub fn track(&mut self, fifo: bool) -> Result<(), Error> {
        let none = || (0..SLOTS).map(|_| None).collect();
        match &mut self.side {
            Side::Lanes { fifo: before, .. } if *before == fifo => return Ok(()),
            // The descriptor stays: others wait for it. Sockets leave it when they are closed.
            Side::Lanes { lanes, fifo: before, .. } => (*lanes, *before) = (none(), fifo),
            Side::Device { .. } => {
                let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC);
                let epoll = epoll.map_err(std::io::Error::from)?;
                self.side = Side::Lanes { lanes: none(), fifo, epoll };
            }
        }
        self.merge.device().set_fifo(fifo);
        self.merge.device().unseen_until(Instant::ZERO);
        let open = Rule { reaction: self.reaction, ..Rule::OPEN };
        (0..SLOTS).for_each(|slot| self.merge.gates().set(slot, open));
        Ok(())
    }

    /// Adds what is to be waited for, besides time.
    pub fn wait_for(&self, poller: &mut Poller) {
        poller.add(&self.merge);
        if let Side::Lanes { epoll, .. } = &self.side {
            poller.add(&epoll.0);
        }
    }

    /// Lets everything leave that may at `now`; returns when to call again at the latest. Call also
    /// when a descriptor of [`Controller::wait_for`] is readable, and after
    /// [`Controller::device_done`].
    pub fn run(&mut self, now: Instant) -> Result<Option<Instant>, Error> {
        self.again = None;
        let asked = self.merge.device().looks();
        // A look that was due anyway says nothing of how long a question takes.
        if let Some(asked) = asked.filter(|_| !self.rounds.is_due(now)) {
            let took = now.saturating_since(asked);
            // Up at once: each probe too many would cost somebody that long.
            self.reaction = took.max((self.reaction * (REACTIONS - 1) + took) / REACTIONS);
        }
        self.listen();
        self.settle(now)?;
        if std::mem::take(&mut self.full)
            && let Side::Lanes { lanes, .. } = &mut self.side
            && let Some(lane) = &mut lanes[0]
        {
            lane.refused(now);
        }
        self.count_strangers(now)?;
        for _ in 0..TURN {
            let Some((slot, cause)) = self.choose(now)? else { break };
            if !self.leave(slot, cause, now)? {
                self.again = Some(now + AGAIN);
                break;
            }
        }
        if self.no_slot && now.saturating_since(self.reclaimed) >= RECLAIM {
            (self.no_slot, self.reclaimed) = (false, now);
            self.reclaim()?;
        }
        self.plan_round(now);
        let forget = self.forget(now);
        if now.saturating_since(self.forgot) >= FORGET {
            self.forgot = now;
            self.merge.forget_idle(now)?;
        }
        let rests = self.set_rules(now);
        // What found a gate closed a moment ago woke nobody: a packet, or one that filled a frame.
        let missed = self.missed()?;
        if self.again.is_none() && (missed || rests && self.choose(now)?.is_some()) {
            self.again = Some(now);
        }
        let next = [self.next_look(now), forget].into_iter().flatten().min();
        self.merge.device().look_at(next.unwrap_or(Instant::MAX).as_nanos());
        Ok(next)
    }

    /// Learns, where it matters, how much strangers give the device beside our packets.
    fn count_strangers(&mut self, now: Instant) -> Result<(), Error> {
        let tracks = matches!(self.side, Side::Lanes { .. });
        if tracks && self.config.policy == Policy::Busy && self.strangers.is_due(now) {
            let stats = self.merge.stats()?;
            let packets =
                stats.iter().map(|(_, one)| one.aggregated_packets + one.unaggregated_packets);
            let ours = packets.sum();
            if self.strangers.note(self.merge.device().read().passed_bytes, ours, now) {
                // What leaves in a frame would overtake what waits alone in front of it.
                self.drained = now + self.config.hold;
            }
        }
        Ok(())
    }

    /// Learns which ticks are done.
    fn settle(&mut self, now: Instant) -> Result<(), Error> {
        let Side::Lanes { lanes, epoll, .. } = &mut self.side else { return Ok(()) };
        let mut events = [EpollEvent::empty(); SLOTS as usize];
        // Only to take the events back: the sockets themselves say what is done.
        epoll.wait(&mut events, EpollTimeout::ZERO).map_err(std::io::Error::from)?;
        let mut done = [0; SLOTS as usize];
        for (gate, lane) in lanes.iter_mut().enumerate() {
            if let Some(lane) = lane.as_mut().filter(|lane| lane.under_way() > 0) {
                done[gate] = lane.finished()?;
            }
        }
        let mut sharing = done.iter().sum();
        let alone = !self.strangers.are_many();
        for (gate, lane) in lanes.iter_mut().enumerate() {
            let (Some(lane), done @ 1..) = (lane, done[gate]) else { continue };
            let look = Look { now, done, sharing, at_once: false, alone };
            settle(&self.merge, gate as u32, lane, look, &self.config, &mut self.backoff);
            sharing -= done;
        }
        Ok(())
    }

    /// Lets the oldest frame of queue `slot` leave; `false` when it must be tried again.
    fn leave(&mut self, slot: u32, cause: Cause, now: Instant) -> Result<bool, Error> {
        self.waiting[slot as usize] = None;
        if cause == Cause::Size {
            self.wants.retain(|wants| *wants != slot);
        }
        let mut left = self.tick(slot, cause, None, now)?;
        let mut queue = self.merge.queue(slot)?;
        if !left && !queue.is_empty() {
            // Another CPU took the last frame, and may not be done with it.
            left = self.tick(slot, cause, Some(queue.owner_cpu), now)?;
            queue = self.merge.queue(slot)?;
        }
        self.listen();
        if !left && !queue.is_empty() {
            self.waiting[slot as usize] = Some(queue.oldest());
            return Ok(false);
        }
        Ok(true)
    }

    fn tick(
        &mut self,
        slot: u32,
        cause: Cause,
        on: Option<u32>,
        now: Instant,
    ) -> Result<bool, Error> {
        let tick = Tick::new(slot, cause);
        // A packet that passed unseen could overtake what leaves now.
        self.merge.device().unseen_until(Instant::ZERO);
        let left = match &mut self.side {
            Side::Device { ticker } => match on {
                None => ticker.tick(tick)?,
                Some(cpu) => ticker.tick_on(cpu, tick)?,
            },
            Side::Lanes { lanes, fifo, epoll } => {
                let gate = if *fifo { 0 } else { slot };
                let front = front(lanes, &self.merge);
                let lane = match &mut lanes[gate as usize] {
                    Some(lane) => lane,
                    none => {
                        let ticker = Ticker::new(self.ifindex, self.mac, self.cookie)?;
                        let when = EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
                        epoll
                            .add(&ticker, EpollEvent::new(when, gate.into()))
                            .map_err(std::io::Error::from)?;
                        none.insert(Lane::new(ticker, !*fifo))
                    }
                };
                let device = self.merge.device().read();
                let left = if *fifo && lane.checks() {
                    let left = lane.check(tick, on, now)?;
                    if self.merge.device().read().refused != device.refused {
                        lane.refused(now);
                    }
                    left
                } else {
                    let untracked = self.merge.gates().untracked(gate);
                    let left = lane.send(tick, on, device.passed, untracked, now)?;
                    if left {
                        let number = self.merge.gates().ticks(gate);
                        let (packets, bytes) = self.merge.device().read().last_frame();
                        lane.carries(number, packets, bytes, front);
                    }
                    left
                };
                // An idle device is done already.
                if let done @ 1.. = lane.finished()? {
                    let (now, alone) = (sheaf_netio::clock::now(), !self.strangers.are_many());
                    let look = Look { now, done, sharing: done, at_once: true, alone };
                    settle(&self.merge, gate, lane, look, &self.config, &mut self.backoff);
                }
                left
            }
        };
        self.merge.gates().tick_is_over(slot);
        Ok(left)
    }

    /// Whether something is held at an open gate that nobody is to take care of.
    fn missed(&mut self) -> Result<bool, Error> {
        let Side::Lanes { lanes, fifo, .. } = &self.side else { return Ok(false) };
        let holding = self.merge.device().read().holding;
        let mut missed = false;
        for slot in (0..SLOTS).filter(|slot| holding >> slot & 1 != 0) {
            let lane = lanes[if *fifo { 0 } else { slot as usize }].as_ref();
            if self.waiting[slot as usize].is_none() {
                let queue = self.merge.queue(slot)?;
                if !queue.is_empty() {
                    self.waiting[slot as usize] = Some(queue.oldest());
                    missed |= lane.is_none_or(|lane| lane.under_way() == 0);
                }
            }
        }
        Ok(missed && self.config.policy == Policy::Busy)
    }

    /// Plans the next look for probes, where one is needed.
    fn plan_round(&mut self, now: Instant) {
        let Side::Lanes { lanes, .. } = &self.side else { return };
        let is_used = |(gate, lane): (usize, &Option<Lane>)| {
            let Some(lane) = lane else { return false };
            let last = lane.done().max(self.merge.gates().last(gate as u32));
            now.saturating_since(last) < rounds::SILENCE
        };
        let used = self.config.policy == Policy::Busy && lanes.iter().enumerate().any(is_used);
        self.rounds.plan(used, self.reaction, now);
    }

    /// Forgets what was learnt of lanes through which nothing goes any more. Returns when to look
    /// again.
    fn forget(&mut self, now: Instant) -> Option<Instant> {
        let Side::Lanes { lanes, .. } = &mut self.side else { return None };
        let gates = self.merge.gates();
        let lanes = lanes.iter_mut().enumerate();
        lanes.filter_map(|(gate, lane)| lane.as_mut()?.forget(gates.last(gate as u32), now)).min()
    }

    /// Tells the program what to do at the gates. Returns true if one of them rests.
    fn set_rules(&mut self, now: Instant) -> bool {
        if self.backoff.contention(now) > self.reaction {
            self.contended_until = now + CONTENDED;
        }
        let Side::Lanes { lanes, fifo, .. } = &self.side else { return false };
        let (passed, hurried) = (self.merge.device().read().passed, self.hurried());
        let occupied = self.occupied_until(now).is_some();
        let waits_for_full = now < self.backoff.until() && now >= self.drained && !occupied;
        let mut rests = false;
        for (gate, lane) in lanes.iter().enumerate() {
            let Some(lane) = lane else { continue };
            let strangers = *fifo && lane.strangers() != Some(passed);
            let least = self.config.inflight;
            let contended = now < self.contended_until;
            let mut rule = lane.rule(least, self.reaction, strangers, hurried, contended, now);
            rule.rests = waits_for_full && lane.takes(least, hurried, now);
            rests |= rule.rests;
            rule.closed |= occupied || now < self.drained.max(self.backoff.until());
            rule.probe_at = rule.probe_at.min(self.rounds.probe_at());
            self.merge.gates().set(gate as u32, rule);
            // Fair queues have to be told of every packet whose flow it is, even then.
            if *fifo && self.config.policy == Policy::Busy {
                let free = lane.is_done_at_once() && !rule.closed;
                let until = if free { rule.probe_at } else { Instant::ZERO };
                self.merge.device().unseen_until(until);
            }
        }
        rests
    }

    /// Returns the time of the next look: at the deadline; and, while there is traffic, soon
    /// enough to hear of new queues before theirs.
    fn next_look(&mut self, now: Instant) -> Option<Instant> {
        let heard = std::mem::take(&mut self.heard);
        let soon = heard.then(|| now + self.config.longest_wait() / 4);
        // When strangers are gone, only a look shows it.
        let strangers = self.hurried().then(|| now + strangers::WINDOW);
        let drained = Some(self.drained).filter(|drained| *drained > now);
        let round = self.rounds.next();
        [self.deadline(now), soon, strangers, drained, round].into_iter().flatten().min()
    }

    /// Gives empty queues back: there are more next hops and classes than queues.
    fn reclaim(&mut self) -> Result<(), Error> {
        for slot in 0..SLOTS {
            let queue = self.merge.queue(slot)?;
            if queue.is_used()
                && queue.is_empty()
                && self.tick(slot, Cause::Reclaim, None, Instant::ZERO)?
            {
                self.waiting[slot as usize] = None;
                self.wants.retain(|wants| *wants != slot);
                self.merge.retire(slot, queue.key.hop)?;
            }
        }
        Ok(())
    }

    /// Lets everything leave that is held, whatever the device says: for an orderly end.
    pub fn flush(&mut self) -> Result<(), Error> {
        for slot in 0..SLOTS {
            while self.tick(slot, Cause::Timeout, None, Instant::ZERO)? {}
        }
        Ok(())
    }

    fn listen(&mut self) {
        while let Some(event) = self.merge.event() {
            self.heard = true;
            match event {
                Event::Waits { slot, oldest } if slot < SLOTS => {
                    self.waiting[slot as usize] = Some(Instant::from_nanos(oldest));
                }
                Event::WantsTick { slot } if !self.wants.contains(&slot) => self.wants.push(slot),
                // What is full is found where it is looked for.
                Event::Waits { .. } | Event::WantsTick { .. } | Event::Filled => {}
                Event::NoSlot => self.no_slot = true,
                Event::Full => self.full = true,
            }
        }
    }

    /// The queue that waits longest, of those for which `may` says that it may leave.
    fn oldest(&self, may: impl Fn(usize) -> bool) -> Option<(Instant, u32)> {
        let waits = |(slot, oldest): (usize, &Option<Instant>)| {
            oldest.filter(|_| may(slot)).map(|oldest| (oldest, slot as u32))
        };
        self.waiting.iter().enumerate().filter_map(waits).min()
    }

    /// The queue whose oldest frame leaves at `now`, and why.
    fn choose(&self, now: Instant) -> Result<Option<(u32, Cause)>, Error> {
        let longest = self.oldest(|_| true);
        let waited = longest.map(|(oldest, slot)| (now.saturating_since(oldest), slot));
        if let Some((_, slot)) = waited.filter(|(waited, _)| *waited >= self.config.hold) {
            return Ok(Some((slot, Cause::Timeout)));
        }
        if now < self.drained {
            return Ok(None);
        }
        let device = self.merge.device().read();
        let fill = device.sent.saturating_sub(device.done);
        match (self.config.policy, &self.side) {
            (Policy::Forced, _) if device.told != 0 && fill >= u64::from(device.limit) => Ok(None),
            (Policy::Forced, _) => {
                match waited.filter(|(waited, _)| *waited >= self.config.timeout) {
                    Some((_, slot)) => Ok(Some((slot, Cause::Timeout))),
                    None => Ok(self.wants.last().map(|slot| (*slot, Cause::Size))),
                }
            }
            (Policy::Busy, Side::Lanes { lanes, fifo, .. }) => {
                let lane = |slot: usize| lanes[if *fifo { 0 } else { slot }].as_ref();
                let least = self.config.inflight;
                let hurried = self.hurried();
                let mut follows = [false; SLOTS as usize];
                if hurried {
                    for slot in 0..SLOTS {
                        follows[slot as usize] = self.follows(slot, now)?;
                    }
                }
                let occupied = self.occupied_until(now).is_some();
                let takes = |slot: usize| {
                    let takes = lane(slot).is_none_or(|lane| lane.takes(least, hurried, now));
                    follows[slot] || takes && !occupied
                };
                let rested = now >= self.backoff.until();
                if let Some((_, slot)) = self.oldest(takes).filter(|_| rested) {
                    return Ok(Some((slot, Cause::Ready)));
                }
                if let Some(slot) = self.wants.iter().find(|slot| takes(**slot as usize)) {
                    return Ok(Some((*slot, Cause::Size)));
                }
                let full = self.oldest(|slot| takes(slot) && device.has_full_frame(slot));
                Ok(full.map(|(_, slot)| (slot, Cause::Size)))
            }
            (Policy::Busy, Side::Device { .. })
                if device.told != 0 && fill >= u64::from(self.config.inflight) =>
            {
                Ok(None)
            }
            (Policy::Busy, Side::Device { .. }) => {
                let Some((_, slot)) = waited else { return Ok(None) };
                if now >= self.backoff.until() {
                    return Ok(Some((slot, Cause::Ready)));
                }
                if let Some(slot) = self.wants.last() {
                    return Ok(Some((*slot, Cause::Size)));
                }
                let full = self.oldest(|slot| device.has_full_frame(slot));
                Ok(full.map(|(_, slot)| (slot, Cause::Size)))
            }
        }
    }

    /// Whether the device has fair queues with many strangers' frames in them.
    fn hurried(&self) -> bool {
        let fair = matches!(self.side, Side::Lanes { fifo: false, .. });
        fair && self.config.policy == Policy::Busy && self.strangers.are_many()
    }

    /// Whether beside strangers in fair queues the next frame of queue `slot` may leave, though
    /// earlier ones are under way: for the sake of dense flows. A sparse one has its place alone as
    /// soon as those have left.
    fn follows(&self, slot: u32, now: Instant) -> Result<bool, Error> {
        let due = self.next_of(slot).is_some_and(|next| next <= now);
        Ok(due && self.merge.queue(slot)?.dense != 0)
    }

    /// Time from which beside strangers in fair queues the next frame may leave, though earlier
    /// ones are under way.
    fn next_frame(&self, now: Instant) -> Option<Instant> {
        let slots = (0..SLOTS).filter(|_| self.hurried());
        slots.filter_map(|slot| self.next_of(slot)).filter(|next| *next > now).min()
    }

    /// The same of queue `slot`, where something waits in it.
    fn next_of(&self, slot: u32) -> Option<Instant> {
        let Side::Lanes { lanes, .. } = &self.side else { return None };
        self.waiting[slot as usize]?;
        lanes[slot as usize].as_ref()?.next()
    }

    /// Until when a frame of ours has the channel that others contend for, so that those of other
    /// queues wait: in the device they would wait behind it, too, but gather no more packets.
    fn occupied_until(&self, now: Instant) -> Option<Instant> {
        let Side::Lanes { lanes, fifo: false, .. } = &self.side else { return None };
        // Where strangers' frames are, too, each queue of the device has its own share of it.
        let is_shared = now < self.contended_until && !self.strangers.are_many();
        let lanes = lanes.iter().flatten().filter(|_| is_shared);
        lanes.filter_map(Lane::occupies_until).filter(|until| *until > now).max()
    }

    /// Time from which a device that was full has room.
    fn next_room(&self, now: Instant) -> Option<Instant> {
        let Side::Lanes { lanes, .. } = &self.side else { return None };
        lanes.iter().flatten().map(Lane::full_until).filter(|until| *until > now).min()
    }

    fn deadline(&self, now: Instant) -> Option<Instant> {
        let mut deadline = self.oldest(|_| true).map(|(oldest, _)| {
            let deadline = oldest + self.config.longest_wait();
            // Overdue, but the device is full: the ceiling counts.
            if deadline <= now { oldest + self.config.hold } else { deadline }
        });
        if self.config.policy == Policy::Busy {
            let rest = match &self.side {
                Side::Device { .. } => deadline.and(Some(self.backoff.until())),
                // The gate opens then, too.
                Side::Lanes { .. } => Some(self.backoff.until()),
            };
            let rest = rest.filter(|until| *until > now);
            let free = deadline.and(self.occupied_until(now));
            let (room, next) = (self.next_room(now), self.next_frame(now));
            deadline = [deadline, rest, free, room, next].into_iter().flatten().min();
        }
        [deadline, self.again].into_iter().flatten().min()
    }
}

/// Our frames that the device may have now.
fn front(lanes: &[Option<Lane>], merge: &Merge) -> Front {
    let used = || lanes.iter().enumerate().filter_map(|(gate, lane)| Some((gate, lane.as_ref()?)));
    // What left in place before the last tick that is done left before it.
    let done = used().map(|(_, lane)| lane.done()).max();
    if used().any(|(gate, _)| Some(merge.gates().last(gate as u32)) > done) {
        Front::InPlace
    } else if used().any(|(_, lane)| lane.under_way() > 0) {
        Front::Ticks
    } else {
        Front::Nothing
    }
}

/// Learns from a look which ticks of `gate` are done, and shows the program which strangers' frames
/// are, too.
fn settle(
    merge: &Merge,
    gate: u32,
    lane: &mut Lane,
    look: Look,
    config: &Config,
    backoff: &mut Backoff,
) {
    lane.settle(look, config, backoff);
    if let Some(passed) = lane.strangers() {
        merge.gates().strangers_left(gate, passed);
    }
    if let Some((tick, gone)) = lane.left() {
        merge.gates().ticks_left(gate, tick, gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::tests::{SERVICE, learnt};
    use crate::layout::Hop;
    use nix::errno::Errno;
    use nix::sys::socket::{MsgFlags, recv};
    use sheaf_netio::netns::Namespace;
    use sheaf_netio::{clock, ip};
    use sheaf_wire::meta::Outer;
    use std::net::{Ipv4Addr, UdpSocket};
    use std::os::fd::{AsRawFd, OwnedFd};

    const US: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
    const MS: Duration = Duration::from_millis(1);
    const COOKIE: u64 = 1;

    /// A router with fair queues, and a packet for each of its next hops that waits. The test is
    /// the device: a frame that it takes is done. Needs root.
    struct Router {
        controller: Controller,
        /// Of each next hop its queue's number, and its device.
        devices: Vec<(usize, OwnedFd)>,
        /// Takes out of the queue what is in a frame that the device had.
        ticker: Ticker,
        socket: UdpSocket,
        _namespace: Namespace,
    }

    /// Packets that fill a frame of 1500 bytes: 20 of its own header, and 60 each.
    const FULL: usize = 24;

    impl Router {
        /// With `hops` next hops, at `now`.
        fn new(hops: u8, now: Instant) -> Router {
            let namespace = Namespace::new().unwrap();
            let attach = || -> Result<(Controller, Ticker, UdpSocket), Error> {
                ip::run("link add eth0 address 02:00:00:00:09:01 type veth peer name eth1")?;
                ip::run("link set eth1 up")?;
                ip::run(&format!("addr add {US}/24 dev eth0"))?;
                ip::run("link set eth0 up")?;
                let (ifindex, mac) = (ip::index("eth0")?, ip::mac("eth0")?);
                let config = Config { policy: Policy::Busy, ..Config::default() };
                let mut controller = Controller::attach("eth0", ifindex, mac, &config, COOKIE)?;
                controller.track(false)?;
                let closed = Rule { closed: true, ..Rule::OPEN };
                (0..SLOTS).for_each(|slot| controller.merge.gates().set(slot, closed));
                let socket = UdpSocket::bind((US, 0))?;
                for hop in 0..hops {
                    let (mac, to) = ([2, 0, 0, 0, 9, 2 + hop], Router::address(hop));
                    ip::run(&format!("neigh add {to} lladdr {} dev eth0", ip::mac_text(mac)))?;
                    let outer = Outer::V4 { src: US, dst: to };
                    controller.merge.set_hop(mac, Hop::new(hop.into(), outer, 500, 1500))?;
                }
                // The test takes its time, but does not hang.
                controller.merge.device().look_at(u64::MAX);
                for hop in 0..hops {
                    controller.merge.device().looks();
                    socket.send_to(&[7; 32], (Router::address(hop), 5004))?;
                }
                controller.listen();
                Ok((controller, Ticker::new(ifindex, mac, COOKIE)?, socket))
            };
            let attach = || attach().map_err(std::io::Error::other);
            let (mut controller, ticker, socket) = namespace.run(attach).unwrap();
            let waiting = (0..SLOTS as usize).filter(|slot| controller.waiting[*slot].is_some());
            let waiting: Vec<_> = waiting.collect();
            assert_eq!(waiting.len(), hops.into());
            let Side::Lanes { lanes, .. } = &mut controller.side else { unreachable!() };
            let device = |slot| {
                let (lane, device) = learnt(now);
                lanes[slot] = Some(lane);
                (slot, device)
            };
            let devices = waiting.into_iter().map(device).collect();
            Router { controller, devices, ticker, socket, _namespace: namespace }
        }

        fn address(hop: u8) -> Ipv4Addr {
            Ipv4Addr::new(10, 9, 0, 2 + hop)
        }

        /// Has more packets of 60 bytes to `hop`. Returns whether this process was woken by them.
        fn send(&self, hop: u8, packets: usize) -> bool {
            self.controller.merge.device().looks();
            // The test takes its time, but does not hang.
            self.controller.merge.device().look_at(u64::MAX);
            for _ in 0..packets {
                self.socket.send_to(&[7; 32], (Router::address(hop), 5004)).unwrap();
            }
            self.controller.merge.device().looks().is_some()
        }

        /// Leaves the channel to others from `now` on: the last frames took far longer than the
        /// first one of their length.
        fn back_off(&mut self, now: Instant) {
            let Controller { backoff, config, .. } = &mut self.controller;
            for frame in (0..20).rev() {
                let done = now - MS * 10 * frame;
                backoff.began(if frame == 19 { done - MS } else { done - MS * 10 });
                backoff.finished(config, Finished::single(4, 250), done);
            }
            assert!(backoff.until() > now + MS * 10);
        }

        /// The queues whose devices have got a frame, with which they are done now.
        fn done(&mut self) -> Vec<usize> {
            let has = |device: &OwnedFd| match recv(
                device.as_raw_fd(),
                &mut [0; 64],
                MsgFlags::MSG_DONTWAIT,
            ) {
                Ok(_) => true,
                Err(Errno::EAGAIN) => false,
                Err(error) => panic!("{error}"),
            };
            let done = self.devices.iter().filter(|(_, device)| has(device));
            let done: Vec<_> = done.map(|(slot, _)| *slot).collect();
            for slot in &done {
                self.controller.waiting[*slot] = None;
                assert!(self.ticker.tick(Tick::new(*slot as u32, Cause::Ready)).unwrap());
            }
            done
        }

        /// Numbers of the next hops' queues.
        fn slots(&self) -> Vec<usize> {
            self.devices.iter().map(|(slot, _)| *slot).collect()
        }

        /// Frames that the devices have.
        fn under_way(&self) -> usize {
            let Side::Lanes { lanes, .. } = &self.controller.side else { unreachable!() };
            lanes.iter().flatten().map(|lane| lane.under_way() as usize).sum()
        }
    }

    #[test]
    fn where_others_contend_for_the_channel_frames_to_several_next_hops_leave_one_after_another() {
        let now = clock::now();
        let mut router = Router::new(3, now);
        router.controller.contended_until = Instant::MAX;
        let mut served = Vec::new();
        for turn in 0..3 {
            let now = now + SERVICE * turn;
            router.controller.run(now).unwrap();
            router.controller.run(now + MS).unwrap();
            assert_eq!(router.under_way(), 1, "the others gather meanwhile");
            served.extend(router.done());
        }
        served.sort_unstable();
        assert_eq!(served, router.slots(), "each has had its turn");
    }

    #[test]
    fn a_full_frame_leaves_during_the_backoff_whichever_queue_waits_longest() {
        let now = clock::now();
        let mut router = Router::new(3, now);
        router.back_off(now);
        router.send(1, FULL - 1);
        router.controller.run(now).unwrap();
        let full = router.slots()[1];
        assert_eq!(router.done(), [full]);
        router.controller.run(now + MS).unwrap();
        assert_eq!(router.done(), [0; 0], "the others wait");
    }

    #[test]
    fn during_the_backoff_a_frame_that_becomes_full_wakes_this_process() {
        let now = clock::now();
        let mut router = Router::new(2, now);
        router.back_off(now);
        router.controller.run(now).unwrap();
        assert!(!router.send(0, FULL - 2), "a packet has room");
        assert!(router.send(0, 1));
        router.controller.run(now).unwrap();
        let full = router.slots()[0];
        assert_eq!(router.done(), [full]);
    }

    #[test]
    fn a_full_frame_wakes_nobody_while_the_device_has_one_before_it() {
        let now = clock::now();
        let mut router = Router::new(2, now);
        router.controller.contended_until = Instant::MAX;
        router.back_off(now);
        router.send(0, FULL - 1);
        router.controller.run(now).unwrap();
        assert_eq!(router.under_way(), 1);
        assert!(!router.send(1, FULL - 1));
        assert_eq!(router.done(), [router.slots()[0]]);
        router.controller.run(now + MS).unwrap();
        assert_eq!(router.done(), [router.slots()[1]]);
    }

    #[test]
    fn a_station_that_sleeps_does_not_keep_the_channel_from_the_others() {
        let now = clock::now();
        let mut router = Router::new(2, now);
        router.controller.contended_until = Instant::MAX;
        let next = router.controller.run(now).unwrap().unwrap();
        assert_eq!((router.under_way(), next), (1, now + SERVICE * 2));
        router.controller.run(next).unwrap();
        assert_eq!(router.done().len(), 2);
    }

    #[test]
    fn on_a_channel_of_ones_own_each_next_hop_has_a_frame_in_the_device() {
        let now = clock::now();
        let mut router = Router::new(2, now);
        router.controller.run(now).unwrap();
        assert_eq!(router.done().len(), 2);
    }
}
