//! Configuration of a link, checked before it is built.
//!
//! Names and meanings are those of tc-netem(8). Three things differ on purpose: jitter is the
//! standard deviation of the delay whatever the distribution (NetEm's uniform jitter deviates by
//! only 0.58 of what was asked, and its tables are cut off), a correlation is the one that comes
//! out, and `limit` bounds the rate queue alone: packets under way on the delay line are not in
//! any buffer. With `single` it bounds both together, as in NetEm.

use crate::distribution::Distribution;
use crate::error::ConfigError;
use crate::loss::Loss;
use crate::overhead::Overhead;
use crate::queue::QueueConfig;
use crate::random::{Chance, correlation};
use crate::trace::TraceConfig;
use sheaf_stage::{Bitrate, Duration};

/// A link: rate queue, then delay line. The default delays nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Bytes before the IP header: 0 for IP packets, 14 for Ethernet frames.
    pub link_header: usize,
    /// Bits per second; `None` for no bound. At zero nothing leaves until the rate is changed.
    pub rate: Option<Bitrate>,
    /// Bytes that each packet costs beyond its own.
    pub overhead: Overhead,
    /// The rate queue's bound and how it is managed.
    pub queue: QueueConfig,
    /// One queue for both kinds, as NetEm has it: packets on the delay line count against the
    /// queue's bound, too. Only of a first-in-first-out queue.
    pub single: bool,
    /// Rate, and for a CSV trace delay and loss, over time; goes before `rate`.
    pub trace: Option<TraceConfig>,
    /// Delay of the delay line.
    pub delay: Delay,
    /// Whether packets leave in the order they came whatever their jitter; not in NetEm, whose
    /// jitter overtakes.
    pub ordered: bool,
    /// Most packets on the delay line, a guard for the memory where no rate bounds them.
    pub delay_limit: usize,
    /// The loss model.
    pub loss: Loss,
    /// Mark packets that understand it (ECT) in place of losing them.
    pub loss_ecn: bool,
    /// Packets that arrive twice.
    pub duplicate: Chance,
    /// Packets with one bit flipped at a random place behind the link header.
    pub corrupt: Chance,
    /// Packets that skip the delay.
    pub reorder: Option<Reorder>,
    /// Delivery in slots.
    pub slot: Option<Slot>,
}

impl Default for LinkConfig {
    fn default() -> Self {
        LinkConfig {
            link_header: 0,
            rate: None,
            overhead: Overhead::default(),
            queue: QueueConfig::default(),
            single: false,
            trace: None,
            delay: Delay::default(),
            ordered: false,
            delay_limit: 1_000_000,
            loss: Loss::None,
            loss_ecn: false,
            duplicate: Chance::default(),
            corrupt: Chance::default(),
            reorder: None,
            slot: None,
        }
    }
}

/// `delay TIME [JITTER [CORRELATION]] [distribution …]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delay {
    /// The mean. A draw below zero is taken as zero, so jitter near the mean shifts both mean and
    /// deviation.
    pub time: Duration,
    /// The standard deviation.
    pub jitter: Duration,
    /// Correlation with the delay of the packet before, 0..1.
    pub correlation: f64,
    /// Its shape.
    pub distribution: Distribution,
}

impl Delay {
    /// `time` for every packet.
    pub fn constant(time: Duration) -> Self {
        Delay { time, ..Delay::default() }
    }
}

/// `reorder P [CORR] [gap N]`: after `gap - 1` delayed packets each further one skips the delay
/// with this chance, until one does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// Share of the packets.
    pub chance: Chance,
    /// 1 or more.
    pub gap: u32,
}

/// `slot MIN [MAX] [packets N] [bytes N]` or `slot distribution … DELAY JITTER`: a packet that is
/// ready waits for the next slot, which is so far away; then all that are ready leave together,
/// as many as the slot takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// Time until the next slot.
    pub wait: SlotWait,
    /// Most packets in a slot; 0 for no bound.
    pub packets: u32,
    /// A slot ends with the packet that reaches so many bytes; 0 for no bound.
    pub bytes: u64,
}

/// The distance from the first ready packet, or from a slot that was too small, to the next slot.
#[derive(Clone, Debug, PartialEq)]
pub enum SlotWait {
    /// Uniform between two bounds.
    Between(Duration, Duration),
    /// Mean and standard deviation of a distribution; no less than zero.
    Distributed(Duration, Duration, Distribution),
}

impl LinkConfig {
    /// Refuses values that no link can have.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.loss.check()?;
        self.duplicate.check("duplicate")?;
        self.corrupt.check("corrupt")?;
        correlation("delay", self.delay.correlation)?;
        if let Some(reorder) = self.reorder {
            reorder.chance.check("reorder")?;
            if reorder.gap == 0 {
                return Err(ConfigError::Zero { option: "reorder gap" });
            }
        }
        if let Some(Slot { wait: SlotWait::Between(min, max), .. }) = self.slot
            && min > max
        {
            return Err(ConfigError::Order { low: "slot MIN", high: "slot MAX" });
        }
        if self.delay_limit == 0 {
            return Err(ConfigError::Zero { option: "delay limit" });
        }
        if self.single && !matches!(self.queue, QueueConfig::Fifo(_)) {
            return Err(ConfigError::Single);
        }
        self.queue.check()
    }
}
