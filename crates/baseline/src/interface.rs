//! An Ethernet interface at its line rate: the link that emulators stand for.
//!
//! Source: IEEE 802.3, and "Implementing Rate Control in NetEm" (University of Oslo, 2013), which
//! measured interfaces of 10 and 100 Mbit/s beside emulated links, with a delay behind them. The
//! device sends one frame after the other, each with its preamble, check sum and gap. It saves
//! nothing up while it is idle. What waits stands in one queue with tail drop.

use crate::fifo::Fifo;
use sheaf_stage::{Bitrate, Counters, DropReason, Duration, Instant, Stage};

/// Bytes of the line for each packet: header (14), preamble (8), check sum (4) and gap (12).
pub const LINE: u64 = 38;

/// Parameters of an interface in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Rate of the line, above 0.
    pub rate: Bitrate,
    /// Delay of each packet once it was sent.
    pub delay: Duration,
    /// Packets that wait or are being sent.
    pub limit: usize,
}

/// The interface with its queue and the way behind it.
#[derive(Clone, Debug)]
pub struct Interface {
    config: Config,
    /// Packets with the time at which the last byte is sent, in order.
    queue: Fifo<(Instant, Vec<u8>)>,
    /// Time at which the line is free.
    free_at: Instant,
}

impl Interface {
    /// An idle interface.
    ///
    /// # Panics
    /// When the rate is 0.
    pub fn new(config: Config) -> Self {
        assert!(config.rate.as_bps() > 0, "a rate of 0");
        // What was sent waits no more, so `enqueue` holds the limit.
        Interface { config, queue: Fifo::new(usize::MAX), free_at: Instant::ZERO }
    }
}

impl Stage for Interface {
    /// An IP packet.
    type In = Vec<u8>;
    type Out = Vec<u8>;

    fn enqueue(&mut self, packet: Vec<u8>, now: Instant) -> Result<(), DropReason> {
        if self.queue.newest(|(sent, _)| *sent > now) >= self.config.limit {
            return Err(self.queue.refuse(DropReason::QueueFull));
        }
        let cost = self.config.rate.time_for(packet.len() as u64 + LINE);
        self.free_at = self.free_at.max(now) + cost;
        self.queue.push((self.free_at, packet))
    }

    fn dequeue(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.next_deadline().filter(|arrives| *arrives <= now)?;
        self.queue.pop().map(|(_, packet)| packet)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.queue.front().map(|(sent, _)| *sent + self.config.delay)
    }

    fn counters(&self) -> Counters {
        self.queue.counters()
    }

    fn held(&self) -> u64 {
        self.queue.held()
    }
}
