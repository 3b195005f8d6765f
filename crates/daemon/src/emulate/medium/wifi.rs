//! Radios of mac80211_hwsim on the channel: a stage without I/O.
//!
//! A driver of hardware stops mac80211's queues when its own are full. mac80211_hwsim hands over
//! all frames at once, so they wait here: those of management before data, as in the queue for
//! voice, which has them on hardware. The channel has the next ones only, as hardware does. A frame
//! that finds no room is reported as sent without an acknowledgement after no attempt, in its turn:
//! at once, a full queue would look as quick as an empty one to whoever counts what is under way.
//!
//! The driver names a radio by an address that no frame has. Addresses of a radio's interfaces are
//! learned: the driver announces them when an interface comes up, and frames that the radio sends
//! have them, which tells those of interfaces that were up before. The frequency is learned, too.
//! Frames to groups also come to radios that are believed to be on another channel, in silence:
//! they may have tuned to this one without sending, as in a passive scan, and the driver refuses
//! frames of other channels itself.

use super::air::{Air, Body, Done};
use super::settings::Settings;
use crate::emulate::status::StationStatus;
use sheaf_medium::phy::GROUP_OVERHEAD;
use sheaf_medium::{ConfigError, Phy, To};
use sheaf_netio::hwsim::{Attempt, Delivery, Frame, LARGEST_FRAME, RATES, TransmitStatus};
use sheaf_stage::{Bitrate, Duration, Instant};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Frames of management that wait at a radio beside its data: what one access point sends in a
/// second, beacons and replies to scans.
const MANAGEMENT: usize = 32;
/// Addresses of a radio's interfaces that are known at a time. Radios that scan with random
/// addresses leave some behind.
const ADDRESSES: usize = 64;
/// Radios outside the medium that are remembered, so that each is reported once.
const STRANGERS: usize = 64;
/// Frames of a radio that the driver keeps at most until it is told what became of them.
const PENDING: u64 = 200;
/// Bytes of a frame's check sum, which drivers leave out.
const CHECK_SUM: u32 = 4;
/// Kind of a frame, in its first byte (IEEE 802.11-2020, 9.2.4.1.3), and that of data.
const KIND: u8 = 0b1100;
const DATA: u8 = 0b1000;
/// Cookies are counted in 32 bits. One so far behind the last is of a radio that started again.
const REORDERED: u32 = 64;
/// A gap in cookies above this is not a loss but a restart.
const LONGEST_GAP: u32 = 1 << 16;
/// The largest frequency of the band at 2.4 GHz, in MHz; the driver's table of rates begins with
/// DSSS there.
const LOW_BAND: u32 = 3000;
/// Memory for frames that are under way at the end: full queues of 64 radios, each frame sent up
/// to the limit at 1 Mbit/s, take less.
pub const REMAINDER: Duration = Duration::from_secs(3600);

/// Message to the driver about a frame that is done with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    radio: [u8; 6],
    cookie: u64,
    no_ack: bool,
    /// Centre of the channel, in MHz.
    frequency: Option<u32>,
    rates: [Attempt; RATES],
    is_mcs: bool,
}

/// The outcome of a frame that the driver handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// It waits, or is on the air; [`Wifi::next`] returns it.
    Taken,
    /// It found no room; [`Wifi::turned_away`] returns it behind the frames in front of it.
    TurnedAway,
    /// It was refused, which the driver is to be told at once.
    Refused(TransmitStatus),
    /// The same, for the first frame of a radio that is not a station.
    Stranger(TransmitStatus),
}

/// Where a frame goes, and from whom.
struct Header {
    to: [u8; 6],
    from: Option<[u8; 6]>,
    is_data: bool,
}

/// A radio.
struct Radio {
    /// Address by which the driver knows it.
    address: [u8; 6],
    management: VecDeque<Waiting>,
    data: VecDeque<Waiting>,
    /// Frames that it has at most, those on the channel included and management apart.
    limit: usize,
    /// Addresses of its interfaces, the newest last.
    addresses: VecDeque<[u8; 6]>,
    cookie: Option<u32>,
    /// Frames that were taken, and those of them that are done with.
    taken: u64,
    done: u64,
    /// Reports of frames that found no room, the oldest first, each due when so many are done.
    turned_away: VecDeque<(u64, TransmitStatus)>,
    counts: Counts,
}

/// Books of a radio beyond those of its station.
#[derive(Clone, Copy, Default)]
struct Counts {
    dropped: u64,
    oversized: u64,
    missed: u64,
    refused: u64,
}

/// A frame that waits for room on the channel.
struct Waiting {
    to: [u8; 6],
    length: u32,
    body: Body<Receipt>,
}

/// The channel and its radios.
pub struct Wifi {
    air: Air<Receipt>,
    phy: Phy,
    radios: Vec<Radio>,
    /// Stations by the addresses by which the driver knows their radios.
    stations: BTreeMap<[u8; 6], usize>,
    /// Addresses of interfaces that the driver has announced: frames with them from other radios
    /// are forged.
    announced: BTreeMap<[u8; 6], usize>,
    strangers: BTreeSet<[u8; 6]>,
}

impl Wifi {
    /// A silent channel. `addresses` are those by which the driver knows the radios of the
    /// stations, in their order.
    ///
    /// # Errors
    /// Fails where the channel cannot exist.
    pub fn new(
        settings: &Settings,
        addresses: &[[u8; 6]],
        start: Instant,
    ) -> Result<Wifi, ConfigError> {
        let radio = |(address, limit): (&[u8; 6], usize)| Radio {
            address: *address,
            management: VecDeque::new(),
            data: VecDeque::new(),
            limit,
            addresses: VecDeque::new(),
            cookie: None,
            taken: 0,
            done: 0,
            turned_away: VecDeque::new(),
            counts: Counts::default(),
        };
        let limits = settings.stations.iter().map(|station| station.queue);
        Ok(Wifi {
            air: Air::new(settings, start)?,
            phy: settings.channel.phy,
            radios: addresses.iter().zip(limits).map(radio).collect(),
            stations: addresses.iter().copied().zip(0..).collect(),
            announced: BTreeMap::new(),
            strangers: BTreeSet::new(),
        })
    }

    /// Takes a frame of a radio, or refuses it. What was done with by `now` was taken before.
    pub fn receive(&mut self, frame: &Frame<'_>, now: Instant) -> Received {
        let receipt = Receipt::of(frame);
        let Some(station) = self.stations.get(&frame.radio).copied() else {
            let is_new = self.strangers.len() < STRANGERS && self.strangers.insert(frame.radio);
            let refused = receipt.refused();
            return if is_new { Received::Stranger(refused) } else { Received::Refused(refused) };
        };
        self.radios[station].count(frame.cookie as u32);
        let header = Header::of(frame.bytes);
        let Some(header) = header.filter(|_| frame.bytes.len() <= LARGEST_FRAME) else {
            self.radios[station].counts.oversized += 1;
            return Received::Refused(receipt.refused());
        };
        if let Some(from) = header.from.filter(|from| !self.announced.contains_key(from)) {
            self.learn(from, station);
        }
        if let Some(frequency) = frame.frequency {
            self.air.tune(station, frequency, now);
        }
        let on_channel = self.air.waiting(station);
        let radio = &mut self.radios[station];
        let has_room = match header.is_data {
            true => radio.data.len() + on_channel < radio.limit,
            false => radio.management.len() < MANAGEMENT,
        };
        if !has_room {
            radio.counts.dropped += 1;
            radio.turned_away.push_back((radio.taken, receipt.refused()));
            // With a full queue and management the driver has fewer than it keeps.
            let most = (PENDING as usize - 1 - MANAGEMENT).saturating_sub(radio.limit);
            if radio.turned_away.len() > most
                && let Some((_, oldest)) = radio.turned_away.pop_front()
            {
                return Received::Refused(oldest);
            }
            return Received::TurnedAway;
        }
        radio.taken += 1;
        // The channel adds what is around an IP packet.
        let overhead = if is_group(header.to) { GROUP_OVERHEAD } else { self.phy.data_overhead() };
        let length = (frame.bytes.len() as u32 + CHECK_SUM).saturating_sub(overhead);
        let body = Body { bytes: self.air.buffer(frame.bytes), tag: receipt };
        let queue = if header.is_data { &mut radio.data } else { &mut radio.management };
        queue.push_back(Waiting { to: header.to, length, body });
        self.refill(station, now);
        Received::Taken
    }

    /// Messages to the driver before the first frame of a radio is received: a medium that
    /// was killed left frames there, which take their senders' memory. Nothing comes of it where
    /// there are none. Empty for all further frames.
    pub fn leftovers(&self, frame: &Frame<'_>) -> impl Iterator<Item = TransmitStatus> {
        let station = self.stations.get(&frame.radio).copied();
        let is_first = station.is_some_and(|station| self.radios[station].cookie.is_none());
        let first = frame.cookie.saturating_sub(PENDING).max(1);
        let cookies = if is_first { first..frame.cookie } else { 0..0 };
        let receipt = Receipt::of(frame);
        cookies.map(move |cookie| TransmitStatus { cookie, ..receipt.refused() })
    }

    /// An interface of the radio that the driver knows by `radio` has come up with this address.
    pub fn announce(&mut self, radio: [u8; 6], address: [u8; 6]) {
        let Some(station) = self.stations.get(&radio).copied() else { return };
        self.announced.insert(address, station);
        self.learn(address, station);
    }

    /// An interface of the radio that the driver knows by `radio` has gone down.
    pub fn withdraw(&mut self, radio: [u8; 6], address: [u8; 6]) {
        let Some(station) = self.stations.get(&radio).copied() else { return };
        self.radios[station].addresses.retain(|known| *known != address);
        self.forget(address, station);
    }

    /// The driver did not take a frame that came to a station.
    pub fn refused(&mut self, station: usize) {
        if let Some(radio) = self.radios.get_mut(station) {
            radio.counts.refused += 1;
        }
    }

    fn learn(&mut self, address: [u8; 6], station: usize) {
        if self.air.has(address, station) || is_group(address) {
            return;
        }
        self.air.learn(address, station);
        let addresses = &mut self.radios[station].addresses;
        addresses.retain(|known| *known != address);
        addresses.push_back(address);
        if addresses.len() > ADDRESSES
            && let Some(oldest) = addresses.pop_front()
        {
            self.forget(oldest, station);
        }
    }

    fn forget(&mut self, address: [u8; 6], station: usize) {
        self.air.unlearn(address, station);
        if self.announced.get(&address) == Some(&station) {
            self.announced.remove(&address);
        }
    }

    /// Moves frames that wait at a radio to the channel.
    fn refill(&mut self, station: usize, now: Instant) {
        while self.air.has_room(station) {
            let radio = &mut self.radios[station];
            let next = radio.management.pop_front().or_else(|| radio.data.pop_front());
            let Some(Waiting { to, length, body }) = next else { return };
            self.air.put(station, to, length, body, now);
        }
    }

    /// The next frame that was done with by `now`. Whoever has handed it over gives it back to
    /// [`recycle`](Wifi::recycle).
    pub fn next(&mut self, now: Instant) -> Option<Done<Receipt>> {
        loop {
            // Step by step, so that what waits enters the channel when a frame leaves it, however
            // late the caller is.
            let at = self.air.next_deadline().min(now);
            if let Some(done) = self.air.next(at) {
                let from = done.frame.from.0 as usize;
                self.radios[from].done += 1;
                self.refill(from, at);
                return Some(done);
            }
            if at == now {
                return None;
            }
        }
    }

    /// Stations to whose radios a frame comes, each with whether it is meant to receive it.
    pub fn receivers(&self, done: &Done<Receipt>) -> impl Iterator<Item = (usize, bool)> {
        let heard = done.receivers.iter().map(|radio| (radio.0 as usize, true));
        let from = done.frame.from.0 as usize;
        let elsewhere = (done.frame.to == To::Broadcast).then(|| self.air.elsewhere(from));
        heard.chain(elsewhere.into_iter().flatten().map(|station| (station, false)))
    }

    /// A frame as it comes to the radio of station `to`.
    pub fn delivery<'a>(&self, done: &'a Done<Receipt>, to: usize) -> Delivery<'a> {
        let body = &done.frame.payload;
        let rate = self.rate(done).unwrap_or(self.phy.rates()[0]);
        Delivery {
            radio: self.radios[to].address,
            bytes: &body.bytes,
            rate: place(rate, body.tag.frequency) as u32,
            signal: self.signal(done.frame.from.0 as usize, to),
            frequency: body.tag.frequency,
        }
    }

    /// The next frame that found no room at the radio whose frame is `done` with, if its turn has
    /// come.
    pub fn turned_away(&mut self, done: &Done<Receipt>) -> Option<TransmitStatus> {
        let radio = &mut self.radios[done.frame.from.0 as usize];
        radio.turned_away.front().filter(|(after, _)| *after <= radio.done)?;
        radio.turned_away.pop_front().map(|(_, status)| status)
    }

    /// The end of a frame's transmission, for the driver.
    pub fn status(&self, done: &Done<Receipt>) -> TransmitStatus {
        let receipt = &done.frame.payload.tag;
        let from = done.frame.from.0 as usize;
        let acked = done.result.is_ok() && !receipt.no_ack;
        let signal = match done.frame.to {
            To::Radio(to) if acked => self.signal(to.0 as usize, from),
            _ => 0,
        };
        let attempts = u8::try_from(done.retries + 1).unwrap_or(u8::MAX);
        let index = self.rate(done).and_then(|rate| self.index(done, rate));
        TransmitStatus { acked, signal, ..receipt.ended(index, attempts) }
    }

    /// Rate at which a frame was sent; `None` where nobody has its address.
    fn rate(&self, done: &Done<Receipt>) -> Option<Bitrate> {
        match done.frame.to {
            To::Broadcast => Some(self.phy.basic_rates()[0]),
            To::Radio(to) => self.air.rate(done.frame.from.0 as usize, to.0 as usize),
        }
    }

    /// Index of the rate of a frame, where mac80211 takes one of that kind for this frame: its
    /// flag of a rate with an MCS cannot be changed.
    fn index(&self, done: &Done<Receipt>, rate: Bitrate) -> Option<usize> {
        let receipt = &done.frame.payload.tag;
        let is_mcs = matches!(self.phy, Phy::Ht { .. }) && done.frame.to != To::Broadcast;
        match (is_mcs, receipt.is_mcs) {
            (false, false) => Some(place(rate, receipt.frequency)),
            (true, true) => self.phy.rates().iter().position(|known| *known == rate),
            _ => None,
        }
    }

    fn signal(&self, from: usize, to: usize) -> i32 {
        match (from, to) {
            (from, to) if from.max(to) < self.radios.len() => {
                self.air.signal(from, to).round() as i32
            }
            _ => 0,
        }
    }

    /// Keeps the body of a frame for another.
    pub fn recycle(&mut self, done: Done<Receipt>) {
        self.air.recycle(done);
    }

    /// Time of the next event of the channel.
    pub fn next_deadline(&self) -> Instant {
        self.air.next_deadline()
    }

    /// Time during which something was on the air.
    pub fn busy(&self) -> Duration {
        self.air.busy()
    }

    /// Whether any station has sent a frame.
    pub fn has_heard(&self) -> bool {
        self.radios.iter().any(|radio| radio.cookie.is_some())
    }

    /// The reports of all stations, at a time up to which [`next`](Wifi::next) has returned all.
    pub fn report(&self, now: Instant) -> Vec<(String, StationStatus)> {
        let mut stations = self.air.status(now);
        for ((_, station), radio) in stations.iter_mut().zip(&self.radios) {
            let Counts { dropped, oversized, missed, refused } = radio.counts;
            station.queued_frames += (radio.management.len() + radio.data.len()) as u64;
            station.dropped_frames = dropped;
            station.oversized_frames = oversized;
            station.missed_frames = missed;
            station.refused_frames = refused;
        }
        stations
    }
}

impl Radio {
    /// Counts frames that the driver has numbered and could not hand over.
    fn count(&mut self, cookie: u32) {
        let Some(last) = self.cookie else {
            self.cookie = Some(cookie);
            return;
        };
        let (ahead, behind) = (cookie.wrapping_sub(last), last.wrapping_sub(cookie));
        if behind <= REORDERED {
            // Two processors have sent at the same time; this one was counted as missing.
            self.counts.missed = self.counts.missed.saturating_sub(u64::from(behind > 0));
            return;
        }
        if ahead <= LONGEST_GAP {
            self.counts.missed += u64::from(ahead - 1);
        }
        self.cookie = Some(cookie);
    }
}

impl Receipt {
    fn of(frame: &Frame<'_>) -> Receipt {
        let &Frame { radio, no_ack, frequency, cookie, rates, is_mcs, .. } = frame;
        Receipt { radio, cookie, no_ack, frequency, rates, is_mcs }
    }

    /// The end of a transmission of so many attempts at the rate of an index; `None` stands for
    /// the first one that mac80211 has chosen.
    fn ended(&self, index: Option<usize>, attempts: u8) -> TransmitStatus {
        let index = index.map_or(self.rates[0].index, |index| index as i8);
        let mut rates = [Attempt::NONE; RATES];
        rates[0] = Attempt { index, count: attempts };
        let Receipt { radio, cookie, no_ack, .. } = *self;
        TransmitStatus { radio, cookie, no_ack, acked: false, rates, signal: 0 }
    }

    /// The end of a frame that was never sent.
    fn refused(&self) -> TransmitStatus {
        self.ended(None, 0)
    }
}

impl Header {
    /// The header of a frame; `None` where that is not whole.
    fn of(frame: &[u8]) -> Option<Header> {
        let address = |at: usize| frame.get(at..at + 6)?.try_into().ok();
        Some(Header { to: address(4)?, from: address(10), is_data: frame[0] & KIND == DATA })
    }
}

/// Whether a link address is a group's.
fn is_group(address: [u8; 6]) -> bool {
    address[0] & 1 != 0
}

/// Place of a rate in the driver's table of a band: that of the fastest one up to it. Rates of HT
/// are not in it.
fn place(rate: Bitrate, frequency: Option<u32>) -> usize {
    let dsss = Phy::Dsss { short_preamble: false }.rates();
    let dsss = if frequency.is_some_and(|mhz| mhz >= LOW_BAND) { &[] } else { dsss };
    let table = || dsss.iter().chain(Phy::Ofdm.rates()).enumerate();
    let slower = table().filter(|(_, known)| **known <= rate);
    slower.max_by_key(|(_, known)| **known).map_or(0, |(place, _)| place)
}

#[cfg(test)]
mod tests;
