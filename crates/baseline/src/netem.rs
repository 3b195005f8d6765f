//! NetEm of Linux 3.2 with a token bucket: delay and rate in one queue.
//!
//! Source: "Implementing Rate Control in NetEm" (University of Oslo, 2013) and `sch_netem.c`,
//! `sch_tbf.c` of that kernel. A packet gets its time to send, arrival and delay, when it is
//! queued. NetEm looks at the head of its child, a token bucket filter (TBF), which lets the head
//! out when it has tokens for it; then the head waits for its time to send. So the packets that
//! wait for the rate and those that are in flight stand in one queue, and `limit` counts both. The
//! bucket saves tokens while the link is idle, so bursts pass above the rate.
//!
//! Assumed: `limit` holds for the queue as a whole, as the thesis describes it, though each qdisc
//! of that kernel has a limit of its own. Times are exact where the kernel counts ticks of 64 ns.

use crate::fifo::Fifo;
use sheaf_stage::{Bitrate, Counters, DropReason, Duration, Instant, Stage};

/// Bytes of the bucket in the thesis' measurements.
pub const BURST: u64 = 1540;

/// Parameters of a link in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Delay of each packet from its arrival.
    pub delay: Duration,
    /// Rate of the bucket, above 0.
    pub rate: Bitrate,
    /// Bytes of the bucket: what can pass at once after a pause. Larger packets are dropped.
    pub burst: u64,
    /// Packets that wait for tokens or for their time, together.
    pub limit: usize,
    /// Bytes of the link header, which count as bytes of each packet.
    pub link_header: u64,
}

/// The queue.
#[derive(Clone, Debug)]
pub struct NetEm {
    config: Config,
    /// Packets with their time to send.
    queue: Fifo<(Instant, Vec<u8>)>,
    /// Tokens at `counted`, as the time in which they come.
    tokens: Duration,
    counted: Instant,
    /// Time since which the first packet is the first.
    head_since: Instant,
}

impl NetEm {
    /// An empty link with a full bucket.
    ///
    /// # Panics
    /// When the rate is 0.
    pub fn new(config: Config) -> Self {
        assert!(config.rate.as_bps() > 0, "a rate of 0");
        NetEm {
            config,
            queue: Fifo::new(config.limit),
            tokens: config.rate.time_for(config.burst),
            counted: Instant::ZERO,
            head_since: Instant::ZERO,
        }
    }

    fn cost(&self, packet: &[u8]) -> Duration {
        self.config.rate.time_for(packet.len() as u64 + self.config.link_header)
    }

    /// Time at which the bucket lets the first packet out, and time at which it is sent.
    fn head(&self) -> Option<(Instant, Instant)> {
        let (time_to_send, packet) = self.queue.front()?;
        let enough = self.counted + self.cost(packet).saturating_sub(self.tokens);
        let let_out = enough.max(self.head_since);
        Some((let_out, let_out.max(*time_to_send)))
    }
}

impl Stage for NetEm {
    /// An IP packet.
    type In = Vec<u8>;
    type Out = Vec<u8>;

    fn enqueue(&mut self, packet: Vec<u8>, now: Instant) -> Result<(), DropReason> {
        if packet.len() as u64 + self.config.link_header > self.config.burst {
            return Err(self.queue.refuse(DropReason::TooBig));
        }
        if self.queue.held() == 0 {
            self.head_since = now;
        }
        self.queue.push((now + self.config.delay, packet))
    }

    fn dequeue(&mut self, now: Instant) -> Option<Vec<u8>> {
        let (let_out, _) = self.head().filter(|(_, sent)| *sent <= now)?;
        let (_, packet) = self.queue.pop()?;
        let saved = self.tokens.saturating_add(let_out - self.counted);
        let bucket = self.config.rate.time_for(self.config.burst);
        // Saturates by rounding alone: the packet waited for its tokens.
        self.tokens = saved.min(bucket).saturating_sub(self.cost(&packet));
        self.counted = let_out;
        self.head_since = now;
        Some(packet)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.head().map(|(_, sent)| sent)
    }

    fn counters(&self) -> Counters {
        self.queue.counters()
    }

    fn held(&self) -> u64 {
        self.queue.held()
    }
}
