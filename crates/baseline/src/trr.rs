//! Trigger Round Robin.
//!
//! Source: the scheme of 1998 that "Using Wireless Trunks to increase available bandwidth"
//! (National Chiao Tung University, 2004) describes as related work; the paper of the scheme itself
//! was not at hand. Known from there: the sender stays on a link for a burst; a trigger cell with
//! the round number follows each switch of link; the receiver stays on a link until the trigger
//! comes; data that is late is dropped to keep the order.
//!
//! Assumed:
//! * the trigger ends the burst on the link that the sender leaves;
//! * it has the size of an ATM cell, since the source says cell; over 802.11 it is a frame with its
//!   own access to the channel, which is what it costs;
//! * a burst ends by its bytes, never by time;
//! * a trigger of a later round than the receiver's says that triggers were lost: the receiver goes
//!   on in that round, and what other links still have of earlier rounds is late;
//! * a trigger of an earlier round than the one before it on its link is that of a sender that
//!   began anew;
//! * the receiver has room for 512 packets of each link, and waits for a link that is silent.

use crate::fifo::{Fifo, SENDER_LIMIT};
use crate::frame::Frame;
use crate::link_queues::{LinkQueues, Unit};
use sheaf_stage::{Counters, DropReason, Instant, Stage};

/// First byte of a trigger; an IP packet begins with nibble 4 or 6.
const TRIGGER: u8 = 0;
/// Bytes of a trigger: an ATM cell.
pub const TRIGGER_LEN: usize = 53;
/// Bytes of a burst, assumed: eight packets of 1500 bytes, so a trigger costs about 5 % of an
/// 802.11b link at 11 Mbit/s.
pub const BURST: usize = 12_000;

/// Position in the scan over the links.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    link: usize,
    round: u32,
}

impl Turn {
    fn advance(&mut self, links: usize) {
        self.link = (self.link + 1) % links;
        if self.link == 0 {
            self.round = self.round.wrapping_add(1);
        }
    }
}

fn trigger(round: u32) -> Vec<u8> {
    let mut bytes = vec![0; TRIGGER_LEN];
    bytes[0] = TRIGGER;
    bytes[1..5].copy_from_slice(&round.to_be_bytes());
    bytes
}

/// The round of the trigger in `bytes`; `None` for a packet.
fn parse_trigger(bytes: &[u8]) -> Option<u32> {
    let (&[TRIGGER], rest) = bytes.split_first_chunk()? else { return None };
    (bytes.len() == TRIGGER_LEN).then(|| rest.first_chunk().copied().map(u32::from_be_bytes))?
}

/// The sending half.
#[derive(Clone, Debug)]
pub struct Sender {
    links: usize,
    burst: usize,
    turn: Turn,
    /// Bytes of this burst so far.
    sent: usize,
    packets: Fifo<Vec<u8>>,
    /// The trigger that leaves before the next packet.
    trigger: Option<Frame>,
}

impl Sender {
    /// A sender over `links` links with bursts of at least `burst` bytes; [`BURST`] is usual.
    ///
    /// # Panics
    /// When `links` or `burst` is 0.
    pub fn new(links: usize, burst: usize) -> Self {
        assert!(links > 0, "a trunk without links");
        assert!(burst > 0, "a burst of 0 bytes");
        let packets = Fifo::new(SENDER_LIMIT);
        Sender { links, burst, turn: Turn::default(), sent: 0, packets, trigger: None }
    }

    /// The link that takes the next packet, so that the owner can ask for room on it first.
    pub fn link(&self) -> usize {
        self.turn.link
    }
}

impl Stage for Sender {
    /// An IP packet.
    type In = Vec<u8>;
    type Out = Frame;

    fn enqueue(&mut self, packet: Vec<u8>, _now: Instant) -> Result<(), DropReason> {
        self.packets.push(packet)
    }

    fn dequeue(&mut self, _now: Instant) -> Option<Frame> {
        if let Some(trigger) = self.trigger.take() {
            return Some(trigger);
        }
        let bytes = self.packets.pop()?;
        let Turn { link, round } = self.turn;
        self.sent += bytes.len();
        if self.sent >= self.burst {
            self.sent = 0;
            self.turn.advance(self.links);
            self.trigger = Some(Frame { link, bytes: trigger(round) });
        }
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

    /// A trigger carries no packet.
    fn packets(frame: &Frame) -> u64 {
        u64::from(parse_trigger(&frame.bytes).is_none())
    }
}

/// The receiving half: follows the triggers.
#[derive(Clone, Debug)]
pub struct Receiver {
    turn: Turn,
    /// Round of each link's next packet, as its triggers say.
    rounds: Vec<u32>,
    queues: LinkQueues<u32>,
}

impl Receiver {
    /// A receiver over `links` links.
    ///
    /// # Panics
    /// When `links` is 0.
    pub fn new(links: usize) -> Self {
        assert!(links > 0, "a trunk without links");
        Receiver { turn: Turn::default(), rounds: vec![0; links], queues: LinkQueues::new(links) }
    }

    /// Takes a frame of either kind: a trigger, or a packet for [`Stage::enqueue`]. Drain
    /// afterwards.
    pub fn receive(&mut self, frame: Frame, now: Instant) -> Result<(), DropReason> {
        let Some(round) = parse_trigger(&frame.bytes) else { return self.enqueue(frame, now) };
        self.queues.push_mark(frame.link, round);
        Ok(())
    }

    /// Takes a trigger that is reached on the link in turn.
    fn end_burst(&mut self, round: u32) {
        let link = self.turn.link;
        let begins_anew = distance(self.rounds[link], round) < 0;
        self.rounds[link] = round.wrapping_add(1);
        // Before the receiver's round: the rest of a burst that was late.
        if begins_anew || distance(self.turn.round, round) >= 0 {
            self.turn.round = round;
            self.turn.advance(self.rounds.len());
        }
    }
}

/// Rounds from `from` to `to`; they wrap at 32 bits.
fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from).cast_signed()
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
            let link = self.turn.link;
            match self.queues.pop(link)? {
                Unit::Mark(round) => self.end_burst(round),
                Unit::Packet(_) if distance(self.turn.round, self.rounds[link]) < 0 => {
                    self.queues.discard(DropReason::OutOfWindow);
                }
                Unit::Packet(packet) => {
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
