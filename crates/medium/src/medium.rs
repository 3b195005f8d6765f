//! The medium as a stage.
//!
//! Principle: everything that happens on the channel is an event at a computed instant: a
//! back-off that expires, a transmission that ends, a response due after SIFS, a response that
//! did not come. Back-offs that expire at the same instant send together; nobody can sense what
//! began in the same slot, so they collide. The rules are those of IEEE 802.11-2020, 10.3: DIFS or
//! EIFS, frozen count-downs, doubled windows, back-off after every exchange, NAV, acknowledgement
//! after SIFS, RTS/CTS above a threshold. With HT several frames may share a transmission
//! ([`ampdu`](crate::ampdu)).
//!
//! Events are processed at their own instants however late the caller comes, so a late wake-up
//! never stretches an air time.

mod exchange;

use crate::ampdu::with_subframe;
use crate::config::{Config, ConfigError, Hearing, Link};
use crate::frame::{Frame, RadioId, RadioStats, Receivers, To, Transmission};
use crate::phy::{ACK_BYTES, BLOCK_ACK_BYTES, GROUP_OVERHEAD, Phy, RTS_BYTES, Responses, Timing};
use crate::station::{Phase, Station};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_stage::{Bitrate, Counters, DropReason, Duration, Instant, Stage};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A transmission on the air.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Ack,
    Cts,
    Data,
    BlockAck,
    Rts,
}

#[derive(Clone, Debug)]
struct OnAir {
    from: usize,
    /// `None` for broadcast.
    to: Option<usize>,
    kind: Kind,
    /// Bytes of the MAC frame, for bit errors.
    bytes: u32,
    /// Time for which it reserves the channel after its end.
    reserves: Duration,
    /// Rate of the data frame of this exchange.
    rate: Bitrate,
    /// Radios that sensed its beginning, and so its end, even if they have moved since.
    sensed_by: Receivers,
}

/// Order of events at the same instant: transmissions end before others begin, and those that begin
/// begin together. It is small, because the heap moves events around; the rest is in `due`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    End { on_air: u32 },
    Timeout { station: u32, token: u32 },
    Respond { station: u32 },
    Expiry { station: u32, token: u32 },
}

/// A response that a station sends after SIFS.
#[derive(Clone, Copy, Debug)]
struct Response {
    to: usize,
    kind: Kind,
    /// Rate of the data frame of this exchange.
    rate: Bitrate,
    reserves: Duration,
}

struct Entry<P> {
    frame: Frame<P>,
    started: Option<Instant>,
    attempts: u32,
    receivers: Receivers,
    /// Its end, which an earlier frame to the same radio may still hold back.
    result: Option<Result<(), DropReason>>,
}

/// The radio channels and everything that is on its way over them.
pub struct Medium<P> {
    config: Config,
    phy: Phy,
    timing: Timing,
    /// The responses to data at each rate of the physical layer.
    responses: Vec<(Bitrate, Responses)>,
    links: Vec<Vec<Link>>,
    /// For each radio, the radios that sense it.
    sensed_by: Vec<Receivers>,
    stations: Vec<Station>,
    queues: Vec<VecDeque<Entry<P>>>,
    /// The frames of each radio's exchange, as places in its queue; one, or those of an A-MPDU.
    exchanges: Vec<Vec<u32>>,
    /// Frames in each queue that have ended; between exchanges those that wait for earlier ones.
    ended: Vec<u32>,
    /// Frames that others leave before; empty between events.
    passed_over: Vec<Entry<P>>,
    stats: Vec<RadioStats>,
    on_air: Vec<Option<OnAir>>,
    free: Vec<u32>,
    events: BinaryHeap<Reverse<(Instant, Event)>>,
    /// The response that each station is about to send.
    due: Vec<Option<Response>>,
    /// Frames that begin now; empty between events.
    starting: Vec<Event>,
    done: VecDeque<Transmission<P>>,
    rng: Xoshiro256PlusPlus,
    counters: Counters,
    /// Transmissions on the air now, and the time during which there were any.
    active: u32,
    busy_since: Instant,
    busy: Duration,
    now: Instant,
}

impl<P> std::fmt::Debug for Medium<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Medium").field("now", &self.now).field("stations", &self.stations).finish()
    }
}

impl<P: Clone> Medium<P> {
    /// A silent medium; the back-offs and bit errors follow from `seed`.
    pub fn new(config: Config, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let radios = config.radios.len();
        let (phy, timing) = (config.phy, Timing::new(config.phy));
        let responses = |rate: &Bitrate| (*rate, Responses::new(phy, config.response_rate(*rate)));
        let mut medium = Medium {
            phy,
            timing,
            responses: phy.rates().iter().map(responses).collect(),
            links: Vec::new(),
            sensed_by: Vec::new(),
            stations: vec![Station::new(&timing); radios],
            queues: config.radios.iter().map(|r| VecDeque::with_capacity(r.queue_limit)).collect(),
            exchanges: vec![Vec::new(); radios],
            ended: vec![0; radios],
            passed_over: Vec::new(),
            stats: vec![RadioStats::default(); radios],
            on_air: Vec::new(),
            free: Vec::new(),
            events: BinaryHeap::new(),
            due: vec![None; radios],
            starting: Vec::new(),
            done: VecDeque::new(),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            counters: Counters::default(),
            active: 0,
            busy_since: Instant::ZERO,
            busy: Duration::ZERO,
            now: Instant::ZERO,
            config,
        };
        medium.work_out_links();
        Ok(medium)
    }

    /// Changes the reception among radios (ranges, bit error rates), for transmissions that begin
    /// after `now`.
    pub fn set_hearing(&mut self, hearing: Hearing, now: Instant) -> Result<(), ConfigError> {
        self.advance(now);
        let changed = Config { hearing, ..self.config.clone() };
        changed.check()?;
        self.config = changed;
        self.work_out_links();
        Ok(())
    }

    /// Moves `radio` to `position` in metres, for transmissions that begin after `now`.
    pub fn set_position(&mut self, radio: RadioId, position: (f64, f64), now: Instant) {
        self.advance(now);
        self.config.radios[radio.0 as usize].position = position;
        self.work_out_links();
    }

    /// Changes the data rate of `radio`, for frames whose exchange begins after `now`.
    pub fn set_rate(
        &mut self,
        radio: RadioId,
        rate: Bitrate,
        now: Instant,
    ) -> Result<(), ConfigError> {
        let index = radio.0 as usize;
        if !self.phy.rates().contains(&rate) {
            return Err(ConfigError::Rate { radio: index, rate });
        }
        self.advance(now);
        self.config.radios[index].rate = rate;
        Ok(())
    }

    /// Frames in the transmit queue of `radio`, the one on the air included.
    pub fn waiting(&self, radio: RadioId) -> u32 {
        self.queues[radio.0 as usize].len() as u32
    }

    /// Frames that the transmit queue of `radio` holds.
    pub fn limit(&self, radio: RadioId) -> u32 {
        self.config.radios[radio.0 as usize].queue_limit as u32
    }

    /// Frames that the full transmit queue of `radio` refused.
    pub fn queue_drops(&self, radio: RadioId) -> u64 {
        self.stats[radio.0 as usize].queue_drops
    }

    /// Counters of `radio`.
    pub fn stats(&self, radio: RadioId) -> RadioStats {
        self.stats[radio.0 as usize]
    }

    /// Number of radios.
    pub fn radios(&self) -> usize {
        self.stations.len()
    }

    /// Time during which something was on the air, on any channel.
    pub fn busy(&self) -> Duration {
        let running = if self.active > 0 { self.now - self.busy_since } else { Duration::ZERO };
        self.busy + running
    }

    fn work_out_links(&mut self) {
        let radios = self.config.radios.len();
        let row = |from| (0..radios).map(|to| self.config.link(from, to)).collect::<Vec<_>>();
        self.links = (0..radios).map(row).collect();
        let audible = |row: &Vec<Link>| {
            let mut set = Receivers::default();
            let heard = |to: &usize| row[*to].sense || row[*to].receive;
            (0..radios).filter(heard).for_each(|to| set.insert(to));
            set
        };
        self.sensed_by = self.links.iter().map(audible).collect();
    }

    /// Processes all events up to and including `now`, each at its own instant.
    fn advance(&mut self, now: Instant) {
        while let Some(Reverse((at, _))) = self.events.peek().filter(|next| next.0.0 <= now) {
            let at = *at;
            self.now = at;
            while let Some(Reverse((_, event))) = self.next_event_at(at) {
                match event {
                    Event::End { on_air } => self.end(on_air, at),
                    Event::Timeout { station, token } => self.timeout(station as usize, token, at),
                    begins => self.starting.push(begins),
                }
            }
            self.begin_together(at);
        }
        self.now = self.now.max(now);
    }

    fn next_event_at(&mut self, at: Instant) -> Option<Reverse<(Instant, Event)>> {
        self.events.peek().filter(|next| next.0.0 == at)?;
        self.events.pop()
    }

    /// Puts everything on the air that begins at `at`, before anyone senses any of it.
    fn begin_together(&mut self, at: Instant) {
        if self.starting.is_empty() {
            return;
        }
        let mut starting = std::mem::take(&mut self.starting);
        starting.retain(|event| self.may_begin(event));
        for event in &starting {
            match *event {
                Event::Expiry { station, .. } => self.stations[station as usize].on_air = true,
                Event::Respond { station } => self.stations[station as usize].on_air = true,
                _ => {}
            }
        }
        for event in starting.drain(..) {
            match event {
                Event::Expiry { station, .. } => self.begin_exchange(station as usize, at),
                Event::Respond { station } => self.respond(station as usize, at),
                _ => {}
            }
        }
        self.starting = starting;
    }

    /// Whether an expiry still stands and has a frame to send, or a responder's antenna is free.
    fn may_begin(&mut self, event: &Event) -> bool {
        match *event {
            Event::Expiry { station, token } => {
                let id = station as usize;
                if self.stations[id].token != token {
                    return false;
                }
                self.stations[id].slots = None;
                !self.queues[id].is_empty()
            }
            Event::Respond { station } => {
                let is_free = !self.stations[station as usize].on_air;
                self.due[station as usize].take_if(|_| !is_free);
                is_free
            }
            _ => false,
        }
    }

    /// The responses to data at `rate`.
    fn responses(&self, rate: Bitrate) -> Responses {
        let known = self.responses.iter().find(|(known, _)| *known == rate);
        known.expect("data is sent at a rate of the physical layer").1
    }

    /// The back-off of `id` is over: sends its first frame and those that go with it, or announces
    /// them.
    fn begin_exchange(&mut self, id: usize, now: Instant) {
        self.choose_frames(id);
        let stats = &mut self.stats[id];
        let mut bytes = 0;
        for place in &self.exchanges[id] {
            let entry = &mut self.queues[id][*place as usize];
            entry.started.get_or_insert(now);
            entry.attempts += 1;
            stats.attempts += 1;
            stats.retries += u64::from(entry.attempts > 1);
            bytes += entry.frame.bytes;
        }
        stats.transmissions += 1;
        let announced = self.config.rts_threshold.is_some_and(|threshold| bytes > threshold);
        match self.queues[id][0].frame.to {
            To::Radio(to) if announced => {
                let rate = self.data_rate(id, to);
                let cts = self.responses(rate).ack;
                let data = self.phy.frame_time(rate, self.data_bytes(id));
                let data = data + self.response_time(id, rate);
                let reserves = 3 * self.timing.sifs + cts + data;
                self.transmit(id, Some(to.0 as usize), Kind::Rts, RTS_BYTES, rate, reserves, now);
            }
            _ => self.send_data(id, now),
        }
    }

    /// Rate of data of `id` to one radio.
    fn data_rate(&self, id: usize, to: RadioId) -> Bitrate {
        self.links[id][to.0 as usize].rate.unwrap_or(self.config.radios[id].rate)
    }

    /// Chooses the frames of the next exchange of `id`: the first that waits and, within the limits
    /// of an A-MPDU, the others to the same radio.
    fn choose_frames(&mut self, id: usize) {
        self.exchanges[id].clear();
        self.exchanges[id].push(0);
        let first = &self.queues[id][0].frame;
        let (Some(limits), To::Radio(to)) = (self.config.ampdu, first.to) else { return };
        let (phy, rate) = (self.phy, self.data_rate(id, to));
        let overhead = phy.data_overhead();
        let (queue, frames) = (&self.queues[id], &mut self.exchanges[id]);
        let first = &queue[0].frame;
        let mut length = with_subframe(0, overhead + first.bytes);
        let same = queue.iter().enumerate().filter(|(_, entry)| entry.frame.to == first.to);
        // Frames that have ended count, too: the window begins with the first that has not.
        for (place, entry) in same.take(limits.frames as usize).skip(1) {
            if entry.result.is_some() {
                continue;
            }
            let longer = with_subframe(length, overhead + entry.frame.bytes);
            if longer > limits.bytes || phy.frame_time(rate, longer) > limits.air_time {
                break;
            }
            frames.push(place as u32);
            length = longer;
        }
    }

    /// Bytes of the MAC frame, or the A-MPDU, of the exchange of `id`.
    fn data_bytes(&self, id: usize) -> u32 {
        let (queue, overhead) = (&self.queues[id], self.phy.data_overhead());
        match self.exchanges[id].as_slice() {
            [only] => {
                let frame = &queue[*only as usize].frame;
                let overhead = if frame.to == To::Broadcast { GROUP_OVERHEAD } else { overhead };
                overhead + frame.bytes
            }
            frames => frames.iter().fold(0, |length, place| {
                with_subframe(length, overhead + queue[*place as usize].frame.bytes)
            }),
        }
    }

    /// Time on the air of the response to the data of `id`, sent at `rate`.
    fn response_time(&self, id: usize, rate: Bitrate) -> Duration {
        let Responses { ack, block_ack, .. } = self.responses(rate);
        if self.exchanges[id].len() > 1 { block_ack } else { ack }
    }

    fn send_data(&mut self, id: usize, now: Instant) {
        let to = self.queues[id].front().expect("data is sent from the queue").frame.to;
        let bytes = self.data_bytes(id);
        let (to, rate, reserves) = match to {
            To::Broadcast => (None, self.phy.basic_rates()[0], Duration::ZERO),
            To::Radio(to) => {
                let rate = self.data_rate(id, to);
                let response = self.response_time(id, rate);
                (Some(to.0 as usize), rate, self.timing.sifs + response)
            }
        };
        self.transmit(id, to, Kind::Data, bytes, rate, reserves, now);
    }

    fn respond(&mut self, id: usize, now: Instant) {
        let response = self.due[id].take().expect("it is due");
        let Response { to, kind, rate, reserves } = response;
        match kind {
            Kind::Data => self.send_data(id, now),
            kind => {
                let bytes = if kind == Kind::BlockAck { BLOCK_ACK_BYTES } else { ACK_BYTES };
                self.transmit(id, Some(to), kind, bytes, rate, reserves, now);
            }
        }
    }

    /// Puts one frame on the air: every radio that senses it freezes, and receives it or loses the
    /// frame it was receiving.
    #[allow(clippy::too_many_arguments, reason = "the fields of one frame on the air")]
    fn transmit(
        &mut self,
        from: usize,
        to: Option<usize>,
        kind: Kind,
        bytes: u32,
        rate: Bitrate,
        reserves: Duration,
        now: Instant,
    ) {
        let air_time = match kind {
            Kind::Data => self.phy.frame_time(rate, bytes),
            Kind::Ack | Kind::Cts => self.responses(rate).ack,
            Kind::BlockAck => self.responses(rate).block_ack,
            Kind::Rts => self.responses(rate).rts,
        };
        let sensed_by = self.sensed_by[from];
        let on_air = OnAir { from, to, kind, bytes, reserves, rate, sensed_by };
        let index = match self.free.pop() {
            Some(index) => {
                self.on_air[index as usize] = Some(on_air);
                index
            }
            None => {
                self.on_air.push(Some(on_air));
                self.on_air.len() as u32 - 1
            }
        };
        self.events.push(Reverse((now + air_time, Event::End { on_air: index })));
        self.stats[from].air_time += air_time;
        if self.active == 0 {
            self.busy_since = now;
        }
        self.active += 1;

        let wants = !self.queues[from].is_empty();
        let sender = &mut self.stations[from];
        if matches!(kind, Kind::Data | Kind::Rts) {
            sender.phase = Phase::Sending;
        } else if sender.sensed == 0 && sender.phase == Phase::Contending {
            sender.freeze(&self.timing, now, wants, &mut self.rng);
        }
        sender.on_air = true;
        sender.token = sender.token.wrapping_add(1);
        sender.reading = None;

        for other in sensed_by.indices() {
            let link = self.links[from][other];
            let wants = !self.queues[other].is_empty();
            let station = &mut self.stations[other];
            if !station.is_busy() && station.phase == Phase::Contending {
                station.freeze(&self.timing, now, wants, &mut self.rng);
                station.token = station.token.wrapping_add(1);
            }
            station.sensed += 1;
            let alone = station.sensed == 1 && !station.on_air;
            station.reading = match station.reading {
                None if alone && link.receive => Some((index, true)),
                None => None,
                Some((current, whole)) => {
                    let current_from = self.on_air[current as usize].as_ref().map(|air| air.from);
                    let current_level =
                        current_from.map_or(f32::MIN, |from| self.links[from][other].level);
                    match self.config.capture {
                        Some(margin) if current_level - link.level >= margin => {
                            Some((current, whole))
                        }
                        Some(margin) if link.receive && link.level - current_level >= margin => {
                            Some((index, true))
                        }
                        _ => Some((current, false)),
                    }
                }
            };
        }
    }

    /// A transmission ends: the radios that received it whole act on it.
    fn end(&mut self, index: u32, now: Instant) {
        let air = self.on_air[index as usize].take().expect("a transmission ends once");
        self.free.push(index);
        self.active -= 1;
        if self.active == 0 {
            self.busy += now - self.busy_since;
        }
        let mut collided = false;
        for other in air.sensed_by.indices() {
            self.stations[other].sensed -= 1;
            let undisturbed = self.stations[other].reading == Some((index, true));
            if self.stations[other].reading.is_some_and(|(reading, _)| reading == index) {
                self.stations[other].reading = None;
            }
            let whole = undisturbed && self.is_read(&air, other);
            let is_meant = air.to.is_none_or(|to| to == other);
            collided |= is_meant && !undisturbed && self.links[air.from][other].receive;
            if !self.stations[other].on_air && self.links[air.from][other].receive {
                self.stations[other].garbled = !whole;
            }
            if whole {
                self.received(&air, other, now);
            }
        }
        if collided && matches!(air.kind, Kind::Data | Kind::Rts) {
            self.stats[air.from].collisions += 1;
        }
        let sender = &mut self.stations[air.from];
        sender.on_air = false;
        sender.garbled = false;
        self.sent(&air, now);
        self.fell_silent(air.from, now);
        for other in air.sensed_by.indices() {
            self.fell_silent(other, now);
        }
    }
}

impl<P: Clone> Stage for Medium<P> {
    type In = Frame<P>;
    type Out = Transmission<P>;

    /// Puts a frame into the transmit queue of its radio; drops it when that is full, or when the
    /// radio or its destination does not exist.
    fn enqueue(&mut self, frame: Frame<P>, now: Instant) -> Result<(), DropReason> {
        self.advance(now);
        self.counters.packets_in += 1;
        let id = frame.from.0 as usize;
        let exists = |radio: RadioId| (radio.0 as usize) < self.stations.len();
        let to_exists = match frame.to {
            To::Radio(to) => exists(to) && to != frame.from,
            To::Broadcast => true,
        };
        if !exists(frame.from) || !to_exists {
            return Err(self.counters.refuse(DropReason::Unreachable));
        }
        if self.queues[id].len() >= self.config.radios[id].queue_limit {
            self.stats[id].queue_drops += 1;
            return Err(self.counters.refuse(DropReason::QueueFull));
        }
        self.queues[id].push_back(Entry {
            frame,
            started: None,
            attempts: 0,
            receivers: Receivers::default(),
            result: None,
        });
        let station = &mut self.stations[id];
        let first = self.queues[id].len() == 1 && station.phase == Phase::Contending;
        if first && station.is_busy() {
            if station.slots.is_none() {
                station.draw(&mut self.rng);
            }
        } else if first && station.slots.is_none() {
            self.schedule(id, now);
            self.advance(now);
        }
        Ok(())
    }

    fn dequeue(&mut self, now: Instant) -> Option<Transmission<P>> {
        self.advance(now);
        self.done.pop_front()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.events.peek().map(|Reverse((at, _))| *at)
    }

    fn counters(&self) -> Counters {
        let mut counters = self.counters;
        // Frames that are done but not yet dequeued are still held.
        counters.packets_out -= self.done.iter().filter(|done| done.result.is_ok()).count() as u64;
        counters
    }

    fn held(&self) -> u64 {
        let queued: usize = self.queues.iter().map(VecDeque::len).sum();
        let done = self.done.iter().filter(|done| done.result.is_ok()).count();
        (queued + done) as u64
    }

    fn packets(out: &Transmission<P>) -> u64 {
        u64::from(out.result.is_ok())
    }
}
