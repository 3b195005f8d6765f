//! The link: a rate queue, then a delay line.
//!
//! Principle (UiO 2013): a packet first waits for the link's bandwidth and then travels. Packets
//! under way are in no buffer, so the queue's limit does not count them; and nothing is saved up
//! while the link is idle, so there is no burst above the rate. A [single](LinkConfig::single)
//! queue is the same link with packets under way counted against the limit, as in NetEm.
//!
//! All times are logical. What happened between two calls is worked out in order at the second,
//! with the times at which it happened; a late call delays packets, but never the ones after them.
//! So whatever became due before a late call leaves at it, in one burst. With a bound on
//! [bursts](LinkConfig::burst) the link stands still instead, as a real transmitter would have:
//! rate queue and delay line move to later times together, and the time is lost.

use crate::accounting::{Accounting, Backlog, Log, Stats};
use crate::cause::Cause;
use crate::config::LinkConfig;
use crate::delay_line::DelayLine;
use crate::error::ConfigError;
use crate::impairment::Impairments;
use crate::overhead::Overhead;
use crate::packet::Packet;
use crate::queue::{AnyQueue, QueueContext};
use crate::random::{Dice, Purpose};
use crate::trace::mahimahi::PACKET_INFORMATION;
use crate::trace::trains::{Player, Release};
use crate::trace::{Row, Trace, TraceConfig};
use crate::transmitter::{Pace, Transmitter};
use sheaf_stage::{Counters, DropReason, Duration, Instant, Stage};
use std::collections::VecDeque;
use std::sync::Arc;

/// An emulated link in one direction.
#[derive(Debug)]
pub struct Link {
    config: Arc<LinkConfig>,
    dice: Dice,
    queue: AnyQueue,
    transmitter: Transmitter,
    line: DelayLine,
    impairments: Impairments,
    accounting: Accounting,
    /// Whether packets that are through the transmitter wait there until a class may send them, and
    /// the one that it sends.
    gated: bool,
    crossing: Option<Packet>,
    /// The logical time up to which everything is worked out.
    clock: Instant,
    last_arrival: Instant,
    /// The latest departure from the delay line that was planned, where packets keep their order:
    /// of all, or of each route of a CSV trace.
    last_ready: Vec<Instant>,
    /// Time at which the last standstill ended.
    stood_until: Instant,
    /// Start of the trace, where there is one and it does not wait for the first packet.
    trace_start: Option<Instant>,
    /// The row of a CSV trace in force, and when the next one comes.
    row: Row,
    next_row: Option<Instant>,
    /// The recording of a light load that is played, and the packets in the delay that it gives
    /// them, which comes before the rate queue.
    player: Player,
    coming: VecDeque<(Release, Packet)>,
}

/// The context of the queue, made of the parts of the link that it may see.
macro_rules! context {
    ($link:expr) => {
        &mut QueueContext {
            now: $link.clock,
            beyond: $link.beyond(),
            ip: $link.config.link_header,
            dice: $link.dice,
            accounting: &mut $link.accounting,
        }
    };
}

impl Link {
    /// A link whose random events are those of `seed`.
    pub fn new(config: LinkConfig, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let impairments = Impairments::new(&config);
        let start = config.trace.as_ref().and_then(|trace| trace.start);
        Ok(Self::with_impairments(config.into(), impairments, start, seed))
    }

    /// Makes it the leaf of a class, which says when packets go on. The link is to have seen none.
    pub(crate) fn set_gated(&mut self) {
        self.gated = true;
    }

    /// Time from which the first packet of the leaf of a class may be sent by the class; `None`
    /// where there is none, or it never is.
    pub(crate) fn ready(&self) -> Option<Instant> {
        self.transmitter.depart()
    }

    /// Hands the first packet to the line of the classes at `at`, and returns its bytes there. Of
    /// the time for which it was held, the transmitter catches up no more than so many bytes take.
    pub(crate) fn hand_over(
        &mut self,
        at: Instant,
        catches_up: u64,
        overhead: Overhead,
    ) -> Option<u64> {
        debug_assert!(self.crossing.is_none());
        self.advance(at);
        self.clock = self.clock.max(at);
        let behind = self.transmitter.time_for(catches_up).unwrap_or(Duration::ZERO);
        let (mut packet, depart, waited) = self.transmitter.finish_held(at, behind)?;
        if waited || depart < at {
            self.accounting.note(&mut packet, Cause::RateQueue, at);
        }
        let bytes = packet.wire_len(overhead);
        self.crossing = Some(packet);
        self.begin();
        Some(bytes)
    }

    /// Takes back the packet that the line of the classes has sent by `at`, to travel.
    pub(crate) fn cross(&mut self, at: Instant) {
        self.advance(at);
        self.clock = self.clock.max(at);
        if let Some(packet) = self.crossing.take() {
            self.travel(packet, at);
        }
    }

    /// A link of the same kind with a seed of its own, that has seen no packet.
    pub(crate) fn like(&self, seed: u64) -> Self {
        let (config, impairments) = (self.config.clone(), self.impairments.anew());
        let mut link = Self::with_impairments(config, impairments, self.trace_start, seed);
        link.accounting.log.clone_from(&self.accounting.log);
        link
    }

    fn with_impairments(
        config: Arc<LinkConfig>,
        impairments: Impairments,
        trace_start: Option<Instant>,
        seed: u64,
    ) -> Self {
        let dice = Dice::new(seed);
        let mut link = Link {
            dice,
            queue: AnyQueue::new(&config.queue),
            transmitter: Transmitter::new(Pace::Unlimited),
            line: DelayLine::new(config.slot.clone(), dice),
            impairments,
            accounting: Accounting::default(),
            gated: false,
            crossing: None,
            clock: Instant::ZERO,
            last_arrival: Instant::ZERO,
            last_ready: Vec::new(),
            stood_until: Instant::ZERO,
            trace_start,
            row: Row::default(),
            next_row: None,
            player: Player::default(),
            coming: VecDeque::new(),
            config,
        };
        link.enter_row(Instant::ZERO);
        link
    }

    /// The configuration.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Makes the link another one at `now`. Nothing that it holds is lost: a new rate applies to
    /// waiting packets and to the rest of the one being sent, a new delay to packets that enter the
    /// delay line from now on, new chances to packets that arrive from now on. Drain afterwards.
    pub fn change(&mut self, config: LinkConfig, now: Instant) -> Result<(), ConfigError> {
        config.check()?;
        self.adopt(config.into(), now);
        Ok(())
    }

    /// The same with a configuration that was checked, and that other links may share.
    pub(crate) fn adopt(&mut self, config: Arc<LinkConfig>, now: Instant) {
        self.stand_still(now, now);
        self.advance(now);
        self.clock = self.clock.max(now);
        self.impairments.change(&config);
        self.line.set_slot(config.slot.clone());
        if self.config.queue != config.queue {
            self.queue.change(&config.queue, context!(self));
        }
        self.trace_start = config.trace.as_ref().and_then(|trace| trace.start);
        self.config = config;
        self.player = Player::default();
        self.enter_row(self.clock);
    }

    /// Whether a trace waits for the first packet.
    pub fn is_armed(&self) -> bool {
        self.trace_start.is_none() && self.config.trace.is_some()
    }

    /// Begins a trace that waits for the first packet at `at`, as that packet would: for links that
    /// begin with the first packet of any of them.
    pub fn start_trace(&mut self, at: Instant) {
        if self.is_armed() {
            self.advance(at);
            self.clock = self.clock.max(at);
            self.trace_start = Some(at);
            self.enter_row(self.clock);
        }
    }

    /// Counts by cause, and the contents.
    pub fn stats(&self) -> Stats {
        let mut stats = self.accounting.stats;
        stats.rate_queue = self.queue.backlog();
        stats.rate_queue.join(self.sending());
        stats.delay_line = self.line.backlog();
        self.coming.iter().for_each(|(_, packet)| stats.delay_line.add(packet));
        stats
    }

    /// Whether nothing is in the link, not even a duplicate.
    pub fn is_empty(&self) -> bool {
        self.line.backlog().packets == 0 && self.coming.is_empty() && self.is_idle()
    }

    /// Whether nothing waits for the link's bandwidth, or has it.
    fn is_idle(&self) -> bool {
        self.queue.backlog().packets == 0 && self.sending().packets == 0
    }

    /// The packet that is being sent; in the leaf of a class its first one, too.
    fn sending(&self) -> Backlog {
        let mut backlog = Backlog::default();
        let sent = [self.transmitter.packet(), self.crossing.as_ref()];
        sent.into_iter().flatten().for_each(|packet| backlog.add(packet));
        backlog
    }

    /// Calls `log` with every event from now on.
    pub fn set_log(&mut self, log: Option<Log>) {
        self.accounting.log = log;
    }

    /// Takes back a buffer, so that steady traffic needs no new ones.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        self.accounting.recycle(buffer);
    }

    /// A buffer that was used before where there is one; its content is of no meaning.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.accounting.buffer()
    }

    /// Works out what happens in the rate queue up to `until`.
    fn advance(&mut self, until: Instant) {
        while self.step(until) {}
    }

    /// End of the delay before the rate queue of the next packet in it.
    fn coming(&self) -> Option<Instant> {
        self.coming.front().map(|(release, _)| release.at)
    }

    /// Lets the next packet come to the rate queue.
    fn come(&mut self) {
        let Some((Release { at, light }, mut packet)) = self.coming.pop_front() else { return };
        self.clock = self.clock.max(at);
        packet.arrived = at;
        if light && self.is_idle() && !self.gated {
            self.travel(packet, at);
        } else {
            // A packet that the queue refuses was taken long ago, and is counted there.
            let _ = self.wait(packet);
        }
    }

    /// Puts a packet into the rate queue at its arrival, up to which everything is worked out.
    fn wait(&mut self, packet: Packet) -> Result<(), DropReason> {
        if self.config.single {
            // A packet that has left by now takes no place, even if nobody was woken to fetch it.
            // That holds for every way into the queue: a call that comes late works off several
            // ends of the delay before it, and none of them may count what left before.
            self.line.settle(packet.arrived);
        }
        self.queue.enqueue(packet, context!(self))?;
        self.begin();
        Ok(())
    }

    /// Works out the next event in the rate queue, if one happens up to `until`.
    fn step(&mut self, until: Instant) -> bool {
        let departs = self.transmitter.depart().filter(|_| !self.gated);
        let depart = departs.unwrap_or(Instant::MAX);
        // Of the same time, what leaves makes room first.
        if self.coming().is_some_and(|comes| comes <= until && comes < depart) {
            self.come();
            return true;
        }
        if self.transmitter.packet().is_none() {
            return false;
        }
        match self.next_row {
            Some(change) if change < depart && change <= until => self.enter_row(change),
            _ if depart <= until && depart < Instant::MAX => self.send_off(),
            _ => return false,
        }
        true
    }

    /// Loses the time by which a call at `now` comes too late for the bound on bursts, and returns
    /// whether it did. Works out the rate queue up to `until` at most.
    ///
    /// The packets that leave during a time T from the call on are those due from the first
    /// packet's due time to the end of T. They arrive on the line at the rate, so they are at most
    /// the first packet and rate × (lateness + T): the bound holds where the first is late by no
    /// more than the rest of the bound takes at the rate.
    pub(crate) fn stand_still(&mut self, until: Instant, now: Instant) -> bool {
        if self.config.burst.is_none() {
            return false;
        }
        // No further than to the first departure: behind it, everything happens later.
        while self.step(self.line.next().unwrap_or(until).min(until)) {}
        let Some((due, packet)) = self.line.first() else { return false };
        let bytes = packet.wire_len(self.config.overhead);
        self.lose(due, bytes, now)
    }

    /// Takes note of when packets left that one call handed out at their time: `first` is the first
    /// of them. By what a thread was kept from sending, the bound on bursts moves the link, too;
    /// without one this does nothing.
    pub fn left(&mut self, first: &Packet, at: Instant) {
        self.lose(first.depart, first.wire_len(self.config.overhead), at);
    }

    /// Loses the time by which a packet of `bytes` that was due at `due` leaves too late at `now`.
    fn lose(&mut self, due: Instant, bytes: u64, now: Instant) -> bool {
        let Some(burst) = self.config.burst else { return false };
        let rest = burst.saturating_sub(bytes);
        let Some(bound) = self.transmitter.time_for(rest) else { return false };
        let lost = (now - bound) - due;
        if lost.is_zero() {
            return false;
        }
        self.transmitter.stand_still(lost);
        self.line.stand_still(lost);
        self.last_ready.iter_mut().for_each(|ready| *ready += lost);
        // A second call that finds the same packet still waiting goes on with the same standstill.
        let stats = &mut self.accounting.stats;
        stats.standstills += u64::from(due > self.stood_until);
        stats.stood_still += lost;
        self.stood_until = due + lost;
        true
    }

    /// Takes the packet that was sent to the delay line and begins with the next.
    fn send_off(&mut self) {
        let Some((mut packet, depart, waited)) = self.transmitter.finish() else { return };
        self.clock = self.clock.max(depart);
        if waited {
            self.accounting.note(&mut packet, Cause::RateQueue, depart);
        }
        self.travel(packet, depart);
        self.begin();
    }

    /// Begins with the next packet if none is being sent.
    fn begin(&mut self) {
        if self.transmitter.packet().is_some() {
            return;
        }
        if let Some(packet) = self.queue.dequeue(context!(self)) {
            if self.next_row.is_some_and(|change| change <= self.clock) {
                self.enter_row(self.clock);
            }
            let bytes = self.wire_len(&packet);
            self.transmitter.start(packet, bytes);
        }
    }

    /// Bytes of a packet as the link's pace counts them.
    fn wire_len(&self, packet: &Packet) -> u64 {
        let trace = self.config.trace.as_ref();
        if trace.and_then(|trace| trace.trace.opportunities()).is_none() {
            return packet.wire_len(self.config.overhead);
        }
        packet.after_link(self.config.link_header).len() as u64 + PACKET_INFORMATION
    }

    /// Sets the pace, by the row of a CSV trace that holds at `at` where there is one.
    fn enter_row(&mut self, at: Instant) {
        (self.row, self.next_row) = (Row::default(), None);
        let configured = self.config.rate.map_or(Pace::Unlimited, Pace::Rate);
        let pace = match (&self.config.trace, self.trace_start) {
            (Some(TraceConfig { trace, looped, .. }), Some(start)) => match trace {
                Trace::Opportunities(trace) | Trace::Loads(trace, _) => {
                    Pace::Opportunities { trace: trace.clone(), start, looped: *looped }
                }
                Trace::Steps(steps) => {
                    (self.row, self.next_row) = steps.at(start, *looped, at);
                    self.row.rate.map_or(configured, Pace::Rate)
                }
            },
            _ => configured,
        };
        self.queue.set_limit(&self.config.queue, self.row.limit);
        self.transmitter.change(pace, at);
    }

    /// Packets that count against the limit without waiting in the queue.
    fn beyond(&self) -> Backlog {
        let mut beyond = self.sending();
        if self.config.single {
            beyond.join(self.line.under_way());
        }
        beyond
    }

    /// Carries out the decisions about a packet that leaves the rate queue at `at`.
    fn travel(&mut self, mut packet: Packet, at: Instant) {
        let fate = packet.fate;
        let by_trace = || {
            let share = self.row.loss?;
            let happens = self.dice.happens(Purpose::LossTrace, packet.number, share);
            happens.then_some(Cause::LossTrace)
        };
        if let Some(cause) = fate.lost.or_else(by_trace) {
            let (ip, ecn) = (self.config.link_header, self.config.loss_ecn);
            if !ecn || !self.accounting.mark(&mut packet, ip, Cause::MarkedLoss, at) {
                self.accounting.drop(packet, cause, at);
                return;
            }
        }
        let share = self.row.duplicate.unwrap_or(0.0);
        let by_trace = self.dice.happens(Purpose::DuplicateTrace, packet.number, share);
        let copy = (fate.duplicated || by_trace).then(|| self.copy(&mut packet, at));
        if fate.corrupted {
            self.corrupt(&mut packet, at);
        }
        self.put_on_line(packet, at, Duration::ZERO);
        if let Some(copy) = copy {
            self.put_on_line(copy, at, self.row.duplicate_delay.unwrap_or_default());
        }
    }

    fn copy(&mut self, packet: &mut Packet, at: Instant) -> Packet {
        self.accounting.note(packet, Cause::Duplicated, at);
        self.accounting.copies += 1;
        let mut copy = packet.duplicate(self.accounting.buffer());
        let unit = self.dice.unit(Purpose::CopyJitter, packet.number);
        copy.fate.jitter = self.config.delay.distribution.quantile(unit);
        copy.fate.reordered = false;
        copy
    }

    /// Flips one bit behind the link header.
    fn corrupt(&mut self, packet: &mut Packet, at: Instant) {
        let first = self.config.link_header.min(packet.bytes.len());
        let bits = (packet.bytes.len() - first) as u64 * 8;
        if bits > 0 {
            let bit = self.dice.word(Purpose::CorruptPlace, packet.number) % bits;
            packet.bytes[first + (bit / 8) as usize] ^= 1 << (bit % 8);
            self.accounting.note(packet, Cause::Corrupted, at);
        }
    }

    /// `behind`: time that the packet takes beyond the link's delay.
    fn put_on_line(&mut self, mut packet: Packet, at: Instant, behind: Duration) {
        if self.line.backlog().packets >= self.config.delay_limit as u64 {
            self.accounting.drop(packet, Cause::DelayLineFull, at);
            return;
        }
        let mean = self.row.delay.unwrap_or(self.config.delay.time);
        let jitter = self.row.jitter.unwrap_or(self.config.delay.jitter);
        let delay = if packet.fate.reordered {
            self.accounting.note(&mut packet, Cause::Reordered, at);
            Duration::ZERO
        } else if jitter.is_zero() {
            mean
        } else {
            self.accounting.note(&mut packet, Cause::Jitter, at);
            let drawn = mean.as_nanos() as f64 + jitter.as_nanos() as f64 * packet.fate.jitter;
            // The cast takes values below zero as zero.
            Duration::from_nanos(drawn.round() as u64)
        };
        if !delay.is_zero() {
            self.accounting.note(&mut packet, Cause::Delay, at);
        }
        let mut ready = at + delay + behind;
        let keeps_order = !packet.fate.reordered && behind.is_zero();
        if let Some(last) = self.last_ready().filter(|_| keeps_order) {
            ready = ready.max(*last);
            *last = ready;
        }
        self.line.push(packet, ready);
    }

    /// The latest departure planned of those that packets may not overtake now.
    fn last_ready(&mut self) -> Option<&mut Instant> {
        let route = usize::from(self.row.route.unwrap_or(0));
        // The first place is that of links that keep the order of all.
        let place = match self.config.ordered {
            true => 0,
            false if route == 0 => return None,
            false => route,
        };
        if self.last_ready.len() <= place {
            self.last_ready.resize(place + 1, Instant::ZERO);
        }
        self.last_ready.get_mut(place)
    }

    /// The least time between rate queue and departure: no wake-up is needed before.
    fn least_delay(&self) -> Duration {
        let jitter = self.row.jitter.unwrap_or(self.config.delay.jitter);
        match jitter.is_zero() && self.config.reorder.is_none() {
            true => self.row.delay.unwrap_or(self.config.delay.time),
            false => Duration::ZERO,
        }
    }
}

impl Stage for Link {
    type In = Packet;
    type Out = Packet;

    fn enqueue(&mut self, mut packet: Packet, now: Instant) -> Result<(), DropReason> {
        packet.arrived = packet.arrived.min(now).max(self.last_arrival);
        self.last_arrival = packet.arrived;
        self.accounting.take_in(&packet);
        self.stand_still(packet.arrived, now);
        self.advance(packet.arrived);
        self.clock = self.clock.max(packet.arrived);
        self.start_trace(packet.arrived);
        if self.next_row.is_some_and(|change| change <= self.clock) {
            self.enter_row(self.clock);
        }
        packet.fate = self.impairments.decide(self.dice, packet.number);
        if let (Some(TraceConfig { trace: Trace::Loads(_, trains), looped, .. }), Some(start)) =
            (&self.config.trace, self.trace_start)
            && packet.arrived >= start
        {
            if self.coming.len() >= self.config.delay_limit {
                self.accounting.drop(packet, Cause::DelayLineFull, self.clock);
                return Err(DropReason::TotalFull);
            }
            let bytes = self.wire_len(&packet);
            let release = self.player.take(trains, start, *looped, packet.arrived, bytes);
            self.accounting.note(&mut packet, Cause::Delay, self.clock);
            self.coming.push_back((release, packet));
            return Ok(());
        }
        self.wait(packet)?;
        // The transmitter is idle only while nothing waits. Had it been idle, this packet would be
        // in it now, unless the queue's management dropped it on its way there.
        match self.transmitter.packet() {
            Some(_) => Ok(()),
            None => Err(DropReason::QueueManagement),
        }
    }

    fn dequeue(&mut self, now: Instant) -> Option<Packet> {
        if self.next_deadline().is_none_or(|deadline| deadline > now) {
            return None;
        }
        self.stand_still(now, now);
        self.advance(now);
        let (mut packet, leaves, in_slot) = self.line.pop(now)?;
        if in_slot {
            self.accounting.note(&mut packet, Cause::Slot, leaves);
        }
        packet.depart = leaves;
        self.accounting.give_out(&packet);
        Some(packet)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let departs = self.transmitter.depart().filter(|_| !self.gated);
        let departs = departs.map(|depart| depart + self.least_delay());
        let changes = self.next_row.filter(|_| self.transmitter.packet().is_some());
        let comes = self.coming();
        [self.line.next(), departs, changes, comes].into_iter().flatten().min()
    }

    fn counters(&self) -> Counters {
        self.accounting.counters
    }

    fn held(&self) -> u64 {
        let queued = self.queue.backlog().packets + self.sending().packets;
        let queued = queued + self.coming.len() as u64;
        queued + self.line.backlog().packets - self.accounting.copies
    }

    /// A duplicate stands for no packet that went in.
    fn packets(out: &Packet) -> u64 {
        u64::from(!out.is_copy())
    }
}
