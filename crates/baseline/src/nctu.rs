//! The wireless trunk with one sequence and one timer.
//!
//! Source: "Using Wireless Trunks to increase available bandwidth" (National Chiao Tung University,
//! NSC92-2213-E-009-063, 2004). The sender deals packets out in turn and numbers them in one
//! sequence for the whole trunk. A link whose transmit queue is above a quarter of its maximum is
//! busy and is passed over; when all are busy the link in turn takes the packet. The receiver hands
//! packets up in sequence. An early packet waits, and the reordering timer runs; when it fires, all
//! that waits goes up. A packet that comes after that is late: it goes up at once and adds 1 ms to
//! the timer, and an adjusting timer of 1 s, restarted by every late packet, halves it.
//!
//! Assumed, because the paper's text leaves it open:
//! * the number has 32 bits in a header of its own; the paper hides 4 bits in the TOS byte, which
//!   are DSCP and ECN today;
//! * the reordering timer begins at 1 ms, the step by which it grows, and is never shorter;
//! * it starts anew when what was missing has come and something else is missing;
//! * the adjusting timer goes on after it fired, as "halved again and again" says;
//! * the receiver has room for [`WAITING_LIMIT`] early packets; one more is as if the timer fired.

use crate::fifo::{Fifo, SENDER_LIMIT};
use crate::frame::Frame;
use sheaf_stage::{Counters, DropReason, Duration, Instant, Stage};
use std::collections::{BTreeMap, VecDeque};

/// Bytes of the header: the sequence number, big-endian.
pub const HEADER_LEN: usize = 4;
/// A link is busy when its queue is above this part of its maximum.
pub const BUSY_PART: u64 = 4;
/// Growth of the reordering timer for each late packet; also its first and smallest value.
pub const STEP: Duration = Duration::from_millis(1);
/// The adjusting timer: the time without a late packet after which the reordering timer halves.
pub const ADJUST: Duration = Duration::from_secs(1);
/// Early packets that wait at most; more than the transmit queues of ten links with 50 frames.
pub const WAITING_LIMIT: usize = 1000;

/// The sending half: chooses the link of each packet and numbers it.
#[derive(Clone, Debug)]
pub struct Sender {
    packets: Fifo<Vec<u8>>,
    busy: Vec<bool>,
    turn: usize,
    seq: u32,
}

impl Sender {
    /// A sender over `links` links whose queues are empty.
    ///
    /// # Panics
    /// When `links` is 0.
    pub fn new(links: usize) -> Self {
        assert!(links > 0, "a trunk without links");
        Sender { packets: Fifo::new(SENDER_LIMIT), busy: vec![false; links], turn: 0, seq: 0 }
    }

    /// Sets the fill of a link's transmit queue: `waiting` of at most `limit`, in any unit. A link
    /// that does not exist is ignored.
    pub fn set_queue(&mut self, link: usize, waiting: u64, limit: u64) {
        if let Some(busy) = self.busy.get_mut(link) {
            *busy = waiting.saturating_mul(BUSY_PART) > limit;
        }
    }

    /// The link of the next packet: the one in turn, or the next that is not busy.
    pub fn link(&self) -> usize {
        let links = self.busy.len();
        let mut order = (0..links).map(|step| (self.turn + step) % links);
        order.find(|link| !self.busy[*link]).unwrap_or(self.turn)
    }
}

impl Stage for Sender {
    type In = Vec<u8>;
    type Out = Frame;

    fn enqueue(&mut self, packet: Vec<u8>, _now: Instant) -> Result<(), DropReason> {
        self.packets.push(packet)
    }

    /// The next frame. Its link is chosen now, so set the queues before each call.
    fn dequeue(&mut self, _now: Instant) -> Option<Frame> {
        let packet = self.packets.pop()?;
        let mut bytes = Vec::with_capacity(HEADER_LEN + packet.len());
        bytes.extend_from_slice(&self.seq.to_be_bytes());
        bytes.extend_from_slice(&packet);
        self.seq = self.seq.wrapping_add(1);
        let link = self.link();
        self.turn = (link + 1) % self.busy.len();
        Some(Frame { link, bytes })
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn counters(&self) -> Counters {
        self.packets.counters()
    }

    fn held(&self) -> u64 {
        self.packets.held()
    }
}

/// The receiving half: hands packets up in sequence while the reordering timer allows it.
#[derive(Clone, Debug)]
pub struct Receiver {
    /// The next number, extended beyond 32 bits so that keys below it never wrap.
    expected: u64,
    /// Early packets by their extended numbers.
    waiting: BTreeMap<u64, Vec<u8>>,
    /// Packets that go up.
    up: VecDeque<Vec<u8>>,
    /// Time at which the reordering timer fires.
    fires: Option<Instant>,
    timer: Duration,
    /// Time at which the adjusting timer halves the reordering timer.
    halves: Option<Instant>,
    late: u64,
    counters: Counters,
}

impl Default for Receiver {
    fn default() -> Self {
        Receiver::new()
    }
}

impl Receiver {
    /// A receiver that expects number 0.
    pub fn new() -> Self {
        Receiver {
            expected: 0,
            waiting: BTreeMap::new(),
            up: VecDeque::new(),
            fires: None,
            timer: STEP,
            halves: None,
            late: 0,
            counters: Counters::default(),
        }
    }

    /// The reordering timer as it is set now.
    pub fn timer(&self) -> Duration {
        self.timer
    }

    /// Number of packets that came too late.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Does what the timers are due to do at `now`.
    fn expire(&mut self, now: Instant) {
        if self.fires.is_some_and(|fires| fires <= now) {
            self.release();
        }
        while let Some(halves) = self.halves.filter(|halves| *halves <= now) {
            self.timer = (self.timer / 2).max(STEP);
            self.halves = (self.timer > STEP).then(|| halves + ADJUST);
        }
    }

    /// Hands up everything that waits and moves the expected number behind it.
    fn release(&mut self) {
        if let Some((last, _)) = self.waiting.last_key_value() {
            self.expected = last + 1;
        }
        self.up.extend(std::mem::take(&mut self.waiting).into_values());
        self.fires = None;
    }

    /// Takes the packet that was expected, and those behind it that came before.
    fn advance(&mut self, packet: Vec<u8>, now: Instant) {
        let waited = self.waiting.len();
        self.up.push_back(packet);
        self.expected += 1;
        while let Some(next) = self.waiting.remove(&self.expected) {
            self.up.push_back(next);
            self.expected += 1;
        }
        // The gap is closed. What still waits does so for another one.
        if self.waiting.len() < waited {
            self.fires = (!self.waiting.is_empty()).then(|| now + self.timer);
        }
    }
}

impl Stage for Receiver {
    type In = Frame;
    type Out = Vec<u8>;

    fn enqueue(&mut self, frame: Frame, now: Instant) -> Result<(), DropReason> {
        self.expire(now);
        self.counters.packets_in += 1;
        let mut packet = frame.bytes;
        let Some(header) = packet.first_chunk::<HEADER_LEN>() else {
            return Err(self.counters.refuse(DropReason::Malformed));
        };
        let ahead = u32::from_be_bytes(*header).wrapping_sub(self.expected as u32).cast_signed();
        if self.up.len() >= WAITING_LIMIT {
            return Err(self.counters.refuse(DropReason::TotalFull));
        }
        packet.drain(..HEADER_LEN);
        match ahead {
            0 => self.advance(packet, now),
            ..0 => {
                self.late += 1;
                self.timer = self.timer.saturating_add(STEP);
                self.halves = Some(now + ADJUST);
                self.up.push_back(packet);
            }
            1.. => {
                let number = self.expected + u64::from(ahead.unsigned_abs());
                if self.waiting.contains_key(&number) {
                    return Err(self.counters.refuse(DropReason::Duplicate));
                }
                self.waiting.insert(number, packet);
                self.fires.get_or_insert(now + self.timer);
                if self.waiting.len() > WAITING_LIMIT {
                    self.release();
                }
            }
        }
        Ok(())
    }

    fn dequeue(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.expire(now);
        let packet = self.up.pop_front()?;
        self.counters.packets_out += 1;
        Some(packet)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.fires.into_iter().chain(self.halves).min()
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn held(&self) -> u64 {
        (self.waiting.len() + self.up.len()) as u64
    }
}
