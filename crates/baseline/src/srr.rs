//! Surplus Round Robin with periodic markers.
//!
//! Source: Adiseshu, Parulkar, Varghese, "A Reliable and Scalable Striping Protocol", SIGCOMM 1996.
//! The sender visits the links in turn. A visit adds the link's quantum to its surplus; the link
//! sends while the surplus is above 0, and what its last packet overdraws is carried over. The
//! receiver simulates the sender: it visits the links by the same rule over the lengths of what
//! arrives, and waits where a packet is missing. So packets carry no numbers. After a loss it takes
//! a later packet of the link for the lost one, until a marker on that link says round and surplus
//! of the link's next packet; a link that turns out to be ahead is skipped until its round comes.
//!
//! Markers are sent on all links at once, every [`Config::marker_rounds`] rounds and, so that they
//! do not stop with the traffic, at the latest [`Config::marker_interval`] after the last ones.
//!
//! Assumed: the intervals; 512 packets of room for each link at the receiver; a data frame is the
//! IP packet itself, and a marker begins with a byte that no IP packet begins with, where the paper
//! uses a frame type. A marker of an earlier round than the receiver's is that of a sender that
//! began anew. The paper has no rule for a link that is dead: the receiver waits for it.

use crate::fifo::{Fifo, SENDER_LIMIT};
use crate::frame::Frame;
use crate::link_queues::{LinkQueues, Unit};
use sheaf_stage::{Counters, DropReason, Duration, Instant, Stage};
use std::collections::VecDeque;

/// First byte of a marker; an IP packet begins with nibble 4 or 6.
const MARKER: u8 = 0;
/// Bytes of a marker: its mark, the round, the surplus, both big-endian.
pub const MARKER_LEN: usize = 9;

/// Parameters that both ends share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes that each link may send in a round, above 0. The paper wants at least the largest
    /// packet, so that every visit sends one.
    pub quanta: Vec<u32>,
    /// Rounds between two markers of a link, above 0; 16, assumed.
    pub marker_rounds: u32,
    /// Time after which markers are sent in any case, above 0; 50 ms, assumed: 1 % of an 802.11b
    /// link.
    pub marker_interval: Duration,
}

impl Config {
    /// `links` links of one rate, with a quantum of 1500 bytes.
    pub fn equal(links: usize) -> Self {
        Config {
            quanta: vec![1500; links],
            marker_rounds: 16,
            marker_interval: Duration::from_millis(50),
        }
    }

    fn check(&self) {
        assert!(!self.quanta.is_empty(), "a trunk without links");
        assert!(!self.quanta.contains(&0), "a link without a quantum");
        assert!(self.marker_rounds > 0, "a marker in every 0 rounds");
        assert!(!self.marker_interval.is_zero(), "a marker every 0 s");
    }
}

/// Content of a marker: the implicit number of the next packet of its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Marker {
    round: u32,
    surplus: i64,
}

impl Marker {
    fn emit(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MARKER_LEN);
        bytes.push(MARKER);
        bytes.extend_from_slice(&self.round.to_be_bytes());
        bytes.extend_from_slice(&(self.surplus as u32).to_be_bytes());
        bytes
    }

    /// The marker in `bytes`; `None` for a packet.
    fn parse(bytes: &[u8]) -> Option<Marker> {
        let (&[MARKER], rest) = bytes.split_first_chunk()? else { return None };
        let (round, rest) = rest.split_first_chunk()?;
        let surplus = <[u8; 4]>::try_from(rest).ok()?;
        let surplus = i64::from(u32::from_be_bytes(surplus));
        Some(Marker { round: u32::from_be_bytes(*round), surplus })
    }
}

/// The scan over the links, the same at both ends.
#[derive(Clone, Debug)]
struct Scan {
    link: usize,
    round: u32,
    surplus: Vec<i64>,
    quanta: Vec<u32>,
    /// Links that are ahead of the scan: the next packet, as the last marker said.
    ahead: Vec<Option<Marker>>,
}

impl Scan {
    fn new(quanta: &[u32]) -> Self {
        let mut surplus = vec![0; quanta.len()];
        surplus[0] = i64::from(quanta[0]);
        let ahead = vec![None; quanta.len()];
        Scan { link: 0, round: 0, surplus, quanta: quanta.to_vec(), ahead }
    }

    /// Charges the link in turn for a packet, and moves on when its surplus is used up.
    fn charge(&mut self, len: usize) {
        self.surplus[self.link] -= len as i64;
        if self.surplus[self.link] <= 0 {
            self.leave();
        }
    }

    /// Moves on to the next link that may send.
    fn leave(&mut self) {
        loop {
            self.link = (self.link + 1) % self.quanta.len();
            if self.link == 0 {
                self.round = self.next_round();
            }
            let link = self.link;
            match self.ahead[link] {
                Some(marker) if self.is_before(marker.round) => continue,
                Some(marker) => {
                    self.surplus[link] = marker.surplus;
                    self.ahead[link] = None;
                }
                None => self.surplus[link] += i64::from(self.quanta[link]),
            }
            if self.surplus[link] > 0 {
                return;
            }
        }
    }

    /// The round behind this one. When all links are ahead, the rounds between are empty.
    fn next_round(&self) -> u32 {
        let next = self.round.wrapping_add(1);
        let gap = |marker: &Option<Marker>| marker.map_or(0, |m| m.round.wrapping_sub(next));
        // A round before the next one is due in it, not after 2³² rounds.
        let gap = self.ahead.iter().map(gap).map(|gap| gap.cast_signed().max(0)).min();
        next.wrapping_add(gap.unwrap_or(0).cast_unsigned())
    }

    fn is_before(&self, round: u32) -> bool {
        round.wrapping_sub(self.round).cast_signed() > 0
    }

    /// Round and surplus of the next packet on `link`.
    fn next_on(&self, link: usize) -> Marker {
        if link == self.link {
            return Marker { round: self.round, surplus: self.surplus[link] };
        }
        let mut round = if link > self.link { self.round } else { self.round.wrapping_add(1) };
        let mut surplus = self.surplus[link] + i64::from(self.quanta[link]);
        while surplus <= 0 {
            round = round.wrapping_add(1);
            surplus += i64::from(self.quanta[link]);
        }
        Marker { round, surplus }
    }

    /// Takes a marker that is reached on the link in turn.
    fn resynchronize(&mut self, marker: Marker) {
        if self.is_before(marker.round) {
            self.ahead[self.link] = Some(marker);
            return self.leave();
        }
        if marker.round != self.round {
            // Losses only put a link ahead of the scan, so the sender began anew.
            self.round = marker.round;
            self.ahead.fill(None);
        }
        self.surplus[self.link] = marker.surplus;
    }
}

/// The sending half.
#[derive(Clone, Debug)]
pub struct Sender {
    config: Config,
    scan: Scan,
    packets: Fifo<Vec<u8>>,
    /// Markers that leave before the next packet.
    markers: VecDeque<Frame>,
    markers_due: Instant,
    /// Round of the last markers.
    marked: u32,
}

impl Sender {
    /// A sender that begins with round 0.
    ///
    /// # Panics
    /// When `config` has no links or a value that is 0.
    pub fn new(config: Config) -> Self {
        config.check();
        let scan = Scan::new(&config.quanta);
        let markers_due = Instant::ZERO + config.marker_interval;
        let packets = Fifo::new(SENDER_LIMIT);
        Sender { config, scan, packets, markers: VecDeque::new(), markers_due, marked: 0 }
    }

    /// The link that takes the next packet, so that the owner can ask for room on it first. A frame
    /// that the link's queue drops is a loss like any other.
    pub fn link(&self) -> usize {
        self.scan.link
    }

    /// Puts a marker on every link, before the packets that come next.
    fn mark(&mut self, now: Instant) {
        let scan = &self.scan;
        let marker = |link| Frame { link, bytes: scan.next_on(link).emit() };
        self.markers.extend((0..scan.quanta.len()).map(marker));
        self.markers_due = now + self.config.marker_interval;
        self.marked = scan.round;
    }
}

impl Stage for Sender {
    /// An IP packet.
    type In = Vec<u8>;
    type Out = Frame;

    fn enqueue(&mut self, packet: Vec<u8>, _now: Instant) -> Result<(), DropReason> {
        self.packets.push(packet)
    }

    fn dequeue(&mut self, now: Instant) -> Option<Frame> {
        if self.markers_due <= now {
            self.mark(now);
        }
        if let Some(marker) = self.markers.pop_front() {
            return Some(marker);
        }
        let bytes = self.packets.pop()?;
        let link = self.scan.link;
        self.scan.charge(bytes.len());
        if self.scan.round.wrapping_sub(self.marked) >= self.config.marker_rounds {
            self.mark(now);
        }
        Some(Frame { link, bytes })
    }

    fn next_deadline(&self) -> Option<Instant> {
        Some(self.markers_due)
    }

    fn counters(&self) -> Counters {
        self.packets.counters()
    }

    fn held(&self) -> u64 {
        self.packets.held()
    }

    /// A marker carries no packet.
    fn packets(frame: &Frame) -> u64 {
        u64::from(Marker::parse(&frame.bytes).is_none())
    }
}

/// The receiving half: simulates the sender.
#[derive(Clone, Debug)]
pub struct Receiver {
    scan: Scan,
    queues: LinkQueues<Marker>,
}

impl Receiver {
    /// A receiver of a sender with the same `config`.
    ///
    /// # Panics
    /// When `config` has no links or a value that is 0.
    pub fn new(config: &Config) -> Self {
        config.check();
        let links = config.quanta.len();
        Receiver { scan: Scan::new(&config.quanta), queues: LinkQueues::new(links) }
    }

    /// Takes a frame of either kind: a marker, or a packet for [`Stage::enqueue`]. Drain
    /// afterwards.
    pub fn receive(&mut self, frame: Frame, now: Instant) -> Result<(), DropReason> {
        let Some(marker) = Marker::parse(&frame.bytes) else { return self.enqueue(frame, now) };
        match self.queues.last_mark(frame.link) {
            // No packet between the two: the later one says the same or more.
            Some(last) => *last = marker,
            None => self.queues.push_mark(frame.link, marker),
        }
        Ok(())
    }
}

impl Stage for Receiver {
    /// A frame that carries a packet.
    type In = Frame;
    type Out = Vec<u8>;

    fn enqueue(&mut self, frame: Frame, _now: Instant) -> Result<(), DropReason> {
        self.queues.push(frame.link, frame.bytes)
    }

    fn dequeue(&mut self, _now: Instant) -> Option<Vec<u8>> {
        loop {
            match self.queues.pop(self.scan.link)? {
                Unit::Mark(marker) => self.scan.resynchronize(marker),
                Unit::Packet(packet) => {
                    self.scan.charge(packet.len());
                    self.queues.deliver();
                    return Some(packet);
                }
            }
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn counters(&self) -> Counters {
        self.queues.counters()
    }

    fn held(&self) -> u64 {
        self.queues.held()
    }
}
