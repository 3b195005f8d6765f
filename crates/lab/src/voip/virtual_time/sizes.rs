//! Sizes that follow the link: a host says HELLO, measures its neighbours by the frames that it
//! hears, asks them for the size that their link carries, and obeys what they ask for.
//!
//! It knows what the driver of a radio reports, and no more: the mean signal of a station, smoothed
//! frame by frame and in whole decibels as mac80211 does (`DECLARE_EWMA(signal, 10, 8)`), and
//! the counters of frames, repetitions and failures.

use super::message::Sent;
use crate::voip::point::{self, Point};
use crate::voip::walk::{STEP, Walking};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_neighbour::{Config, LinkAddress, Neighbourhood};
use sheaf_quality::sample::of_mean;
use sheaf_quality::size::FRAME_OVERHEAD;
use sheaf_quality::{Quality, Sample, Transmitted};
use sheaf_stage::{Duration, Instant};
use sheaf_wire::hello::{Formats, GROUP_V4, Node, PORT, Splits, UNLIMITED};

/// Time between two samples of a neighbour: the service reads its driver as often.
const SAMPLE: Duration = Duration::from_secs(1);
/// Bytes of the headers of IPv4 and UDP around a HELLO.
const IP_UDP: usize = 28;
/// Hop limit of a HELLO, which no router forwards (RFC 5082).
const HOP_LIMIT: u8 = 255;
/// Weight of a new frame in the mean signal of a station (mac80211).
const FRAME_WEIGHT: f64 = 1.0 / 8.0;

/// The neighbours of one host.
pub(super) struct Sizes {
    index: usize,
    walking: Walking,
    /// The largest frames, where hosts know the link as it is.
    known: Option<u16>,
    stepped: Instant,
    neighbourhood: Neighbourhood,
    neighbours: Vec<Measured>,
    rng: Xoshiro256PlusPlus,
    message: Vec<u8>,
}

/// One neighbour as its frames arrive, and as frames to it fare.
struct Measured {
    /// Of frames from it.
    received: Quality,
    /// Of frames to it.
    sent: Quality,
    /// Mean signal of its frames, in dBm; `None` before the first.
    signal: Option<f64>,
    counters: Transmitted,
    /// Time of the next sample.
    next: Instant,
}

/// Outcome of a frame that arrived.
pub(super) struct Heard {
    /// Whether it was a HELLO.
    pub is_hello: bool,
    /// Whether the link was measured by it.
    pub is_measured: bool,
}

impl Sizes {
    /// Host `index` of `point`, which can take frames of up to `largest` bytes apart; `is_known`
    /// where it knows the link as it is.
    pub fn new(
        point: &Point,
        walking: &Walking,
        index: usize,
        largest: u16,
        is_known: bool,
    ) -> Sizes {
        // Each host has a chance of its own.
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(point.seed ^ (index as u64 + 1) << 40);
        let splits = Some(Splits { formats: Formats::META, largest });
        let config = Config { splits, ..Config::default() };
        let node = Node(rng.random());
        let neighbourhood = Neighbourhood::new(config, link_address(index), node, Instant::ZERO);
        let rule = walking.rule(largest);
        let neighbour = |_| Measured {
            received: Quality::new(rule),
            sent: Quality::new(rule),
            signal: None,
            counters: Transmitted::default(),
            next: Instant::ZERO,
        };
        let neighbours = (0..point.nodes.len()).map(neighbour).collect();
        let (walking, known) = (walking.clone(), is_known.then_some(largest));
        let (stepped, message) = (Instant::ZERO, Vec::new());
        Sizes { index, walking, known, stepped, neighbourhood, neighbours, rng, message }
    }

    pub fn next_deadline(&self) -> Instant {
        let hello = self.neighbourhood.next_deadline();
        if self.known.is_some() { hello.min(self.stepped + STEP) } else { hello }
    }

    /// The HELLO that is due, as an IP packet.
    pub fn hello(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.stepped = now;
        if !self.neighbourhood.dequeue(now, &mut self.message) {
            return None;
        }
        let mut packet = Vec::with_capacity(IP_UDP + self.message.len());
        let from = point::address(self.index).octets();
        etherparse::PacketBuilder::ipv4(from, GROUP_V4.octets(), HOP_LIMIT)
            .udp(PORT, PORT)
            .write(&mut packet, &self.message)
            .expect("a HELLO fits");
        Some(packet)
    }

    /// Takes a frame that arrived from host `from`.
    pub fn heard(&mut self, from: usize, packet: &[u8], now: Instant) -> Heard {
        let is_hello = packet.get(16..20) == Some(&GROUP_V4.octets());
        if let Some(message) = packet.get(IP_UDP..).filter(|_| is_hello) {
            // The hosts of a testbed send no HELLO that would be refused, but for late ones.
            let _ = self.neighbourhood.hear(link_address(from), message, now);
        }
        self.listen(from, now);
        let is_measured = now >= self.neighbours[from].next;
        if is_measured {
            self.sample(from, now);
        }
        if is_hello || is_measured {
            // A neighbour that is new, or was gone, has no limit yet.
            self.ask(from, now);
        }
        Heard { is_hello, is_measured }
    }

    /// Counts a frame that the radio has finished with.
    pub fn sent(&mut self, sent: &Sent) {
        let Some(to) = sent.to else { return };
        let counters = &mut self.neighbours[to].counters;
        counters.frames = counters.frames.wrapping_add(1);
        counters.bytes += u64::from(sent.bytes) + u64::from(FRAME_OVERHEAD);
        counters.retries = counters.retries.wrapping_add(sent.retries);
        counters.failed = counters.failed.wrapping_add(u32::from(sent.failed));
    }

    /// Forgets neighbours that are silent.
    pub fn expire(&mut self, now: Instant) {
        self.neighbourhood.expire(now, |_, _| {});
    }

    /// A frame has left for a neighbour.
    pub fn used(&mut self, now: Instant) {
        self.neighbourhood.used(now);
    }

    /// Largest packet that host `neighbour` should be sent, in bytes; 0 where it takes none apart.
    pub fn largest(&self, neighbour: usize, now: Instant) -> u16 {
        if let Some(mtu) = self.known {
            return if self.is_walked(neighbour) { self.walking.best(now, 0.0, mtu) } else { mtu };
        }
        let asked = self.neighbourhood.largest(link_address(neighbour)).unwrap_or(0);
        asked.min(self.neighbours[neighbour].sent.largest(now).unwrap_or(u16::MAX))
    }

    /// Whether the link to host `neighbour` is the one of the station that walks.
    fn is_walked(&self, neighbour: usize) -> bool {
        (neighbour == self.walking.station) != (self.index == self.walking.station)
    }

    /// Takes the signal of a frame from host `from` into the mean of its station.
    fn listen(&mut self, from: usize, now: Instant) {
        if !self.is_walked(from) {
            return;
        }
        // Twelve uniform numbers are nearly normal in the sum, with a variance of one.
        let normal = (0..12).map(|_| self.rng.random::<f64>()).sum::<f64>() - 6.0;
        // Drivers report whole numbers.
        let signal = (self.walking.signal(now) + self.walking.walk.reading * normal).round();
        let mean = self.neighbours[from].signal.get_or_insert(signal);
        *mean += FRAME_WEIGHT * (signal - *mean);
    }

    /// Samples the link to host `from`, in both directions, as the service does.
    fn sample(&mut self, from: usize, now: Instant) {
        let (heard, hears, asked) = match self.neighbourhood.get(link_address(from)) {
            Some(one) => (Some(one.heard), one.hears, Some(one.largest)),
            None => (None, None, None),
        };
        let neighbour = &mut self.neighbours[from];
        neighbour.next = now + SAMPLE;
        let modulation = Some(self.walking.modulation);
        let received = Sample {
            age: Some(Duration::ZERO),
            // The kernel leaves out the fraction of the magnitude.
            signal_dbm: neighbour.signal.map(|mean| of_mean(mean.ceil())),
            noise_dbm: Some(self.walking.walk.noise),
            modulation,
            hello_ratio: heard,
            reverse: Some(neighbour.counters),
            ..Sample::default()
        };
        neighbour.received.sample(now, received);
        let sent = Sample {
            age: Some(Duration::ZERO),
            modulation,
            hello_ratio: hears,
            transmitted: Some(neighbour.counters),
            largest: asked,
            ..Sample::default()
        };
        neighbour.sent.sample(now, sent);
    }

    /// Asks host `from` for frames of the size that its link carries.
    fn ask(&mut self, from: usize, now: Instant) {
        let largest = self.neighbours[from].received.largest(now).unwrap_or(UNLIMITED);
        self.neighbourhood.set_limit(link_address(from), largest, now);
    }
}

/// The link address of host `index`. Plans have at most 250.
fn link_address(index: usize) -> LinkAddress {
    [2, 0, 0, 0, 0, index as u8 + 1]
}
