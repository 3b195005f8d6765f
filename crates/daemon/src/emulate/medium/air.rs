//! The channel with the frames that are on their way, as stations see it: a stage without I/O.
//!
//! A frame to a link address of a station goes to that station and is acknowledged; one to a group
//! goes once to all that hear it; one to any other address is sent as often as one that nobody
//! acknowledges. A frame has a tag, by which its host knows it; those of interfaces are Ethernet
//! frames, and need none.

use super::settings::{Channel, Host, MOST_MTU, Rate, Settings, Station};
use super::signal::Links;
use crate::emulate::status::{Heard, StationStatus};
use sheaf_medium::{
    Ampdu, Config, ConfigError, Frame, Hearing, Medium, Radio, RadioId, To, Transmission,
};
use sheaf_netio::ip;
use sheaf_stage::{Bitrate, Duration, Instant, Stage};
use sheaf_wire::ethernet::HEADER_LEN;
use std::collections::HashMap;

/// Time between two steps of stations that move: at 30 m/s, a train, 3 metres.
const STEP: Duration = Duration::from_millis(100);
/// Frames that are read from a host before the other stations have their turn. A host that sends
/// frames which no radio sends fills no queue, so nothing else would end its turn; 64 stations with
/// so many frames each take a few milliseconds.
const TURN: usize = 64;
/// Frame bodies kept for frames to come.
const SPARE: usize = 256;
/// Largest Ethernet frame that a radio sends, in bytes.
const LARGEST: usize = HEADER_LEN + MOST_MTU as usize;
/// The bit of a link address that says it is a group's.
const GROUP: u8 = 1;
/// Frames that a radio's hardware has: the one on the air, and the next one. The others wait where
/// they can still be put into order.
const OF_HARDWARE: usize = 2;

/// A frame on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body<T> {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its tag.
    pub tag: T,
}

/// A frame that is done with: delivered or lost.
pub type Done<T = ()> = Transmission<Body<T>>;

/// The channel and its stations. Frames have tags of type `T`.
pub struct Air<T = ()> {
    medium: Medium<Body<T>>,
    stations: Vec<Station>,
    counts: Vec<Counts>,
    /// Stations by their link addresses.
    addresses: HashMap<[u8; 6], RadioId>,
    links: Links,
    start: Instant,
    next_step: Instant,
    spare: Vec<Vec<u8>>,
}

/// Books of a station beyond those of its radio.
#[derive(Clone, Copy, Default)]
struct Counts {
    offered: u64,
    delivered: u64,
    received: u64,
    unknown: u64,
    oversized: u64,
    /// Time since which it has frames to send, the end of the last one, and the sum of such times.
    since: Option<Instant>,
    ended: Instant,
    backlog: Duration,
}

impl<T: Clone> Air<T> {
    /// A silent channel, on which stations begin their paths at `start`.
    ///
    /// # Errors
    /// Fails where the channel cannot exist.
    pub fn new(settings: &Settings, start: Instant) -> Result<Air<T>, ConfigError> {
        let stations = settings.stations.clone();
        let links = Links::new(settings);
        let address = |(index, station): (u32, &Station)| {
            station.interface().map(|interface| (interface.mac, RadioId(index)))
        };
        let mut air = Air {
            medium: Medium::new(config(&settings.channel, &stations, &links), settings.seed)?,
            counts: vec![Counts::default(); stations.len()],
            addresses: (0..).zip(&stations).filter_map(address).collect(),
            links,
            start,
            next_step: Instant::MAX,
            spare: Vec::new(),
            stations,
        };
        air.plan_step(start);
        Ok(air)
    }

    /// Whether the device queue of a station takes another frame.
    pub fn has_room(&self, station: usize) -> bool {
        let radio = RadioId(station as u32);
        self.medium.waiting(radio) < self.medium.limit(radio)
    }

    /// Frames in the device queue of a station.
    pub fn waiting(&self, station: usize) -> usize {
        self.medium.waiting(RadioId(station as u32)) as usize
    }

    /// Returns a buffer with these bytes, for [`put`](Air::put).
    pub fn buffer(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// Puts a frame to link address `to` into the device queue of a station, which has room. On
    /// the air it is as long as a frame around an IP packet of `length` bytes.
    pub fn put(&mut self, station: usize, to: [u8; 6], length: u32, body: Body<T>, now: Instant) {
        self.step(now);
        let from = RadioId(station as u32);
        let counts = &mut self.counts[station];
        let to = match self.addresses.get(&to) {
            _ if to[0] & GROUP != 0 => To::Broadcast,
            Some(to) if *to != from => To::Radio(*to),
            _ => {
                counts.unknown += 1;
                To::Radio(RadioId(self.stations.len() as u32))
            }
        };
        if self.medium.waiting(from) == 0 {
            counts.settle();
            counts.since = Some(now);
        }
        // There is room, and both ends exist.
        if self.medium.enqueue(Frame { from, to, bytes: length, payload: body }, now).is_ok() {
            counts.offered += 1;
        }
    }

    /// Whether `address` is one of `station`.
    pub fn has(&self, address: [u8; 6], station: usize) -> bool {
        self.addresses.get(&address) == Some(&RadioId(station as u32))
    }

    /// From now on `address` is one of `station`.
    pub fn learn(&mut self, address: [u8; 6], station: usize) {
        self.addresses.insert(address, RadioId(station as u32));
    }

    /// From now on `address` is not one of `station`.
    pub fn unlearn(&mut self, address: [u8; 6], station: usize) {
        if self.has(address, station) {
            self.addresses.remove(&address);
        }
    }

    /// Moves a station to another channel, for transmissions that begin after `now`.
    pub fn tune(&mut self, station: usize, channel: u32, now: Instant) {
        if self.stations[station].channel == channel {
            return;
        }
        self.step(now);
        self.stations[station].channel = channel;
        let seconds = now.saturating_since(self.start).as_secs_f64();
        self.links.retune(station, &self.stations, seconds);
        self.change_hearing(now);
    }

    /// Stations that would hear a station if they were on its channel.
    pub fn elsewhere(&self, from: usize) -> impl Iterator<Item = usize> {
        self.links.elsewhere(from)
    }

    /// Signal of one station at another, in dBm.
    pub fn signal(&self, from: usize, to: usize) -> f64 {
        self.links.signals[from][to]
    }

    /// Rate of frames of one station to another; `None` where they do not hear each other.
    pub fn rate(&self, from: usize, to: usize) -> Option<Bitrate> {
        self.links.table[from][to].rate
    }

    /// The next frame that was done with by `now`. Whoever has handed it to its receivers gives it
    /// back to [`recycle`](Air::recycle).
    pub fn next(&mut self, now: Instant) -> Option<Done<T>> {
        self.step(now);
        let Some(done) = self.medium.dequeue(now) else {
            for (index, counts) in (0..).zip(&mut self.counts) {
                if self.medium.waiting(RadioId(index)) == 0 {
                    counts.settle();
                }
            }
            return None;
        };
        let counts = &mut self.counts[done.frame.from.0 as usize];
        counts.delivered += u64::from(done.result.is_ok());
        counts.ended = done.ended;
        for receiver in done.receivers.iter() {
            self.counts[receiver.0 as usize].received += 1;
        }
        Some(done)
    }

    /// Keeps the body of a frame for another.
    pub fn recycle(&mut self, done: Done<T>) {
        if self.spare.len() < SPARE {
            self.spare.push(done.frame.payload.bytes);
        }
    }

    /// Time of the next event of the channel; frames that are done with are taken before.
    pub fn next_deadline(&self) -> Instant {
        self.medium.next_deadline().map_or(self.next_step, |at| at.min(self.next_step))
    }

    /// Time during which something was on the air.
    pub fn busy(&self) -> Duration {
        self.medium.busy()
    }

    /// The reports of all stations, at a time up to which [`next`](Air::next) has returned all.
    pub fn status(&self, now: Instant) -> Vec<(String, StationStatus)> {
        let status =
            |index: usize| (self.stations[index].name.clone(), self.of_station(index, now));
        (0..self.stations.len()).map(status).collect()
    }

    fn of_station(&self, index: usize, now: Instant) -> StationStatus {
        let (radio, station) = (RadioId(index as u32), &self.stations[index]);
        let (stats, counts) = (self.medium.stats(radio), self.counts[index]);
        let interface = station.interface();
        let running = counts.since.map_or(Duration::ZERO, |since| now.saturating_since(since));
        let lasted = now.saturating_since(self.start).as_secs_f64();
        let air_time = stats.air_time.as_secs_f64();
        let (x, y) = self.links.position(index);
        let hears = |from: &usize| self.links.table[*from][index].receive;
        let heard = |from: usize| {
            let towards = self.links.table[index][from];
            let heard = Heard {
                signal_dbm: self.links.signals[from][index],
                rate_bps: towards.rate.map_or(0, |rate| rate.as_bps()),
                loss: self.links.losses(index, from),
            };
            (self.stations[from].name.clone(), heard)
        };
        StationStatus {
            interface: interface.map(|one| one.name.clone()),
            namespace: interface.and_then(|one| one.namespace.clone()),
            radio: match station.host {
                Host::Interface(_) => None,
                Host::Radio(address) => Some(ip::mac_text(address)),
            },
            offered_frames: counts.offered,
            delivered_frames: counts.delivered,
            lost_frames: stats.lost,
            unknown_frames: counts.unknown,
            oversized_frames: counts.oversized,
            received_frames: counts.received,
            attempts: stats.attempts,
            retries: stats.retries,
            transmissions: stats.transmissions,
            collisions: stats.collisions,
            queued_frames: u64::from(self.medium.waiting(radio)),
            queue_limit: station.queue as u64,
            air_time_ms: air_time * 1e3,
            air_share: if lasted > 0.0 { air_time / lasted } else { 0.0 },
            backlog_ms: (counts.backlog + running).as_secs_f64() * 1e3,
            position: [x, y],
            heard: (0..self.stations.len()).filter(hears).map(heard).collect(),
            ..StationStatus::default()
        }
    }

    /// Moves stations to where they are by `now`, each step at its own time. Steps between which
    /// nothing happens on the channel are taken as one, so that a process which was stopped for an
    /// hour does not catch up on 36,000.
    fn step(&mut self, now: Instant) {
        while self.next_step <= now {
            let event = self.medium.next_deadline().map_or(now, |at| at.min(now));
            let idle = event.saturating_since(self.next_step).as_nanos();
            let whole = idle - idle % STEP.as_nanos();
            let at = self.next_step + Duration::from_nanos(whole as u64);
            self.links.update(&self.stations, (at - self.start).as_secs_f64());
            self.change_hearing(at);
            self.plan_step(at);
        }
    }

    fn change_hearing(&mut self, at: Instant) {
        let table = Hearing::Table(self.links.table.clone());
        self.medium.set_hearing(table, at).expect("links are square and have known rates");
    }

    /// Plans the step after the one at `at`.
    fn plan_step(&mut self, at: Instant) {
        let seconds = (at - self.start).as_secs_f64();
        let moves = self.stations.iter().any(|station| station.moves_after(seconds));
        self.next_step = if moves { at + STEP } else { Instant::MAX };
    }
}

impl Air {
    /// Moves frames from the host of a station to its device queue, until the host has no more, the
    /// queue is full, or its turn is over. `receive` reads a frame into `buffer` and returns its
    /// length, or `None` where there is none. Returns whether the host may have more.
    ///
    /// # Errors
    /// As of `receive`.
    pub fn fill<E>(
        &mut self,
        station: usize,
        buffer: &mut [u8],
        now: Instant,
        mut receive: impl FnMut(&mut [u8]) -> Result<Option<usize>, E>,
    ) -> Result<bool, E> {
        for _ in 0..TURN {
            if !self.has_room(station) {
                break;
            }
            match receive(buffer)? {
                None => return Ok(false),
                // What an interface had before its MTU was lowered, or after it was raised.
                Some(len) if len > LARGEST => self.counts[station].oversized += 1,
                Some(len) => self.send(station, &buffer[..len], now),
            }
        }
        Ok(true)
    }

    /// Puts an Ethernet frame into the device queue of a station, which has room. One without a
    /// whole header is ignored; the kernel makes none.
    pub fn send(&mut self, station: usize, frame: &[u8], now: Instant) {
        let Some((to, _)) = frame.split_first_chunk::<6>().filter(|_| frame.len() >= HEADER_LEN)
        else {
            return;
        };
        let body = Body { bytes: self.buffer(frame), tag: () };
        self.put(station, *to, (frame.len() - HEADER_LEN) as u32, body, now);
    }
}

impl Counts {
    /// Closes the time during which there were frames to send.
    fn settle(&mut self) {
        if let Some(since) = self.since.take() {
            self.backlog += self.ended.saturating_since(since);
        }
    }
}

/// The medium of a channel. The last radio is nobody.
fn config(channel: &Channel, stations: &[Station], links: &Links) -> Config {
    let slowest = channel.phy.rates()[0];
    let mut config = Config::new(channel.phy, stations.len() + 1, slowest);
    config.retry_limit = channel.attempts;
    config.ampdu = channel.ampdu.then(Ampdu::default);
    config.rts_threshold = channel.rts;
    config.capture = channel.capture;
    config.hearing = Hearing::Table(links.table.clone());
    for (radio, station) in config.radios.iter_mut().zip(stations) {
        let rate = match station.rate {
            Rate::Fixed(rate) => rate,
            Rate::Auto => slowest,
        };
        // Stations on other channels do not hear each other by their links.
        let queue_limit = match station.host {
            Host::Interface(_) => station.queue,
            // As many as an A-MPDU has.
            Host::Radio(_) if channel.ampdu => station.queue.min(Ampdu::MOST_FRAMES as usize),
            Host::Radio(_) => station.queue.min(OF_HARDWARE),
        };
        *radio = Radio { rate, queue_limit, ..radio.clone() };
    }
    config
}

#[cfg(test)]
mod tests;
