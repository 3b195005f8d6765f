//! Sizes that follow the link: a host says HELLO, measures its neighbours by the frames that it
//! hears, asks them for the size that their link carries, and obeys what they ask for.

use crate::voip::point::{self, Point};
use crate::voip::walk::Walking;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_neighbour::{Config, LinkAddress, Neighbourhood};
use sheaf_quality::{Quality, Sample};
use sheaf_stage::{Duration, Instant};
use sheaf_wire::hello::{Formats, GROUP_V4, Node, PORT, Splits, UNLIMITED};

/// Time between two samples of a neighbour: the service reads its driver as often.
const SAMPLE: Duration = Duration::from_secs(1);
/// Bytes of the headers of IPv4 and UDP around a HELLO.
const IP_UDP: usize = 28;
/// Hop limit of a HELLO, which no router forwards (RFC 5082).
const HOP_LIMIT: u8 = 255;

/// The neighbours of one host.
pub(super) struct Sizes {
    index: usize,
    walking: Walking,
    neighbourhood: Neighbourhood,
    neighbours: Vec<Measured>,
    rng: Xoshiro256PlusPlus,
    message: Vec<u8>,
}

/// One neighbour as its frames arrive.
struct Measured {
    quality: Quality,
    /// Time of the next sample.
    next: Instant,
}

impl Sizes {
    /// Host `index` of `point`, which can take frames of up to `largest` bytes apart.
    pub fn new(point: &Point, walking: &Walking, index: usize, largest: u16) -> Sizes {
        // Each host has a chance of its own.
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(point.seed ^ (index as u64 + 1) << 40);
        let splits = Some(Splits { formats: Formats::META, largest });
        let config = Config { splits, ..Config::default() };
        let node = Node(rng.random());
        let neighbourhood = Neighbourhood::new(config, link_address(index), node, Instant::ZERO);
        let mtu = sheaf_quality::Config { mtu: largest, ..sheaf_quality::Config::default() };
        let neighbour = |_| Measured { quality: Quality::new(mtu), next: Instant::ZERO };
        let neighbours = (0..point.nodes.len()).map(neighbour).collect();
        let walking = walking.clone();
        Sizes { index, walking, neighbourhood, neighbours, rng, message: Vec::new() }
    }

    pub fn next_deadline(&self) -> Instant {
        self.neighbourhood.next_deadline()
    }

    /// The HELLO that is due, as an IP packet.
    pub fn hello(&mut self, now: Instant) -> Option<Vec<u8>> {
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

    /// Takes a frame that arrived from host `from`; returns whether it was a HELLO.
    pub fn heard(&mut self, from: usize, packet: &[u8], now: Instant) -> bool {
        let is_hello = packet.get(16..20) == Some(&GROUP_V4.octets());
        if let Some(message) = packet.get(IP_UDP..).filter(|_| is_hello) {
            // The hosts of a testbed send no HELLO that would be refused, but for late ones.
            let _ = self.neighbourhood.hear(link_address(from), message, now);
        }
        self.sample(from, now);
        if is_hello {
            // A neighbour that is new, or was gone, has no limit yet.
            self.ask(from, now);
        }
        is_hello
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
    pub fn largest(&self, neighbour: usize) -> u16 {
        self.neighbourhood.largest(link_address(neighbour)).unwrap_or(0)
    }

    /// Samples the link once a second, by a frame that has arrived.
    fn sample(&mut self, from: usize, now: Instant) {
        let neighbour = &mut self.neighbours[from];
        if now < neighbour.next {
            return;
        }
        neighbour.next = now + SAMPLE;
        let is_walked = (from == self.walking.station) != (self.index == self.walking.station);
        let signal_dbm = is_walked.then(|| {
            // Twelve uniform numbers are nearly normal in the sum, with a variance of one.
            let normal = (0..12).map(|_| self.rng.random::<f64>()).sum::<f64>() - 6.0;
            // Drivers report whole numbers.
            (self.walking.signal(now) + self.walking.walk.reading * normal).round()
        });
        let sample = Sample {
            age: Some(Duration::ZERO),
            signal_dbm,
            noise_dbm: Some(self.walking.walk.noise),
            modulation: Some(self.walking.modulation),
            ..Sample::default()
        };
        neighbour.quality.sample(now, sample);
        self.ask(from, now);
    }

    /// Asks host `from` for frames of the size that its link carries.
    fn ask(&mut self, from: usize, now: Instant) {
        let largest = self.neighbours[from].quality.largest(now).unwrap_or(UNLIMITED);
        self.neighbourhood.set_limit(link_address(from), largest, now);
    }
}

/// The link address of host `index`. Plans have at most 250.
fn link_address(index: usize) -> LinkAddress {
    [2, 0, 0, 0, 0, index as u8 + 1]
}
