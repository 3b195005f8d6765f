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
use crate::queue::{Limit, QueueConfig};
use crate::random::{Chance, correlation};
use crate::trace::{Trace, TraceConfig};
use crate::units::{percent_text, rate_text, time_text};
use sheaf_stage::{Bitrate, Duration};
use std::fmt::Write;

/// Bytes of the longest IP packet on Ethernet (RFC 894), of which a burst holds one at least.
pub const ETHERNET_MTU: usize = 1500;

/// A link: rate queue, then delay line. The default delays nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Bytes before the IP header: 0 for IP packets, 14 for Ethernet frames.
    pub link_header: usize,
    /// Bits per second; `None` for no bound. At zero nothing leaves until the rate is changed.
    pub rate: Option<Bitrate>,
    /// Bytes that each packet costs beyond its own.
    pub overhead: Overhead,
    /// Most bytes that leave at once after a late call, beyond which the link stands still and
    /// loses the time; `None`: a late call catches up, and the rate is kept. Counted as the rate
    /// counts them; at least a frame of [`ETHERNET_MTU`], and only with a rate. In any time T at
    /// most this and rate × T leave. A longer packet leaves alone. Jitter, reordering, slots and
    /// duplicates gather packets by themselves, whatever this is.
    pub burst: Option<u64>,
    /// The rate queue's bound and how it is managed.
    pub queue: QueueConfig,
    /// One queue for both kinds, as NetEm has it: packets on the delay line count against the
    /// queue's bound, too. Only of a first-in-first-out queue.
    pub single: bool,
    /// Rate, and for a CSV trace delay, loss and more, over time; goes before `rate`.
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
            burst: None,
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
        self.check_burst()?;
        self.queue.check()
    }

    fn check_burst(&self) -> Result<(), ConfigError> {
        let Some(value) = self.burst else { return Ok(()) };
        let opportunities = |trace: &TraceConfig| trace.trace.opportunities().is_some();
        if self.rate.is_none() || self.trace.as_ref().is_some_and(opportunities) {
            return Err(ConfigError::BurstWithoutRate);
        }
        let least = self.overhead.wire_len(self.link_header + ETHERNET_MTU);
        if value < least { Err(ConfigError::BurstBelowFrame { value, least }) } else { Ok(()) }
    }

    /// The words of a command line that make a link what it is; of the parameters of a queue, the
    /// limit. The first `unseen` bytes of each packet are on no wire, and were taken off the
    /// overhead.
    pub fn words(&self, unseen: i32) -> String {
        let mut text = String::new();
        let out = &mut text;
        if let Some(rate) = self.rate {
            push(out, &format!("rate {}", rate_text(rate)));
            let packet = self.overhead.packet + unseen;
            let (cell, per_cell) = (self.overhead.cell, self.overhead.per_cell);
            if (packet, cell, per_cell) != (0, 0, 0) {
                push(out, &format!("{packet} {cell} {per_cell}"));
            }
            if let Some(burst) = self.burst {
                push(out, &format!("burst {burst}b"));
            }
        }
        if let Some(trace) = &self.trace {
            let kind = match trace.trace {
                Trace::Opportunities(_) => "(delivery opportunities)",
                Trace::Loads(..) => "(delivery opportunities) --light (trains)",
                Trace::Steps(_) => "(CSV)",
            };
            let once = if trace.looped { "" } else { " --once" };
            let armed = if trace.start.is_none() { " --arm" } else { "" };
            push(out, &format!("--trace {kind}{once}{armed}"));
        }
        delay(out, &self.delay);
        if self.ordered {
            push(out, "ordered");
        }
        loss(out, &self.loss);
        if self.loss_ecn {
            push(out, "ecn");
        }
        chance(out, "duplicate", self.duplicate);
        chance(out, "corrupt", self.corrupt);
        if let Some(reorder) = self.reorder {
            chance(out, "reorder", reorder.chance);
            push(out, &format!("gap {}", reorder.gap));
        }
        if let Some(slotted) = &self.slot {
            slot(out, slotted);
        }
        push(out, &format!("queue {}", self.queue.name()));
        push(
            out,
            &match self.queue.limit() {
                Limit::Packets(packets) => format!("limit {packets}"),
                Limit::Bytes(bytes) => format!("limit {bytes}b"),
            },
        );
        if self.single {
            push(out, "single");
        }
        text
    }
}

/// Appends words behind a space.
fn push(out: &mut String, words: &str) {
    let space = if out.is_empty() { "" } else { " " };
    let _ = write!(out, "{space}{words}");
}

fn delay(out: &mut String, delay: &Delay) {
    if delay.time.is_zero() && delay.jitter.is_zero() {
        return;
    }
    push(out, &format!("delay {}", time_text(delay.time)));
    if delay.jitter.is_zero() {
        return;
    }
    push(out, &time_text(delay.jitter));
    if delay.correlation > 0.0 {
        push(out, &percent_text(delay.correlation));
    }
    push(out, &format!("distribution {}", delay.distribution.name()));
}

fn loss(out: &mut String, loss: &Loss) {
    let shares = |model: &str, shares: &[f64]| {
        let shares: Vec<_> = shares.iter().copied().map(percent_text).collect();
        format!("loss {model} {}", shares.join(" "))
    };
    match loss {
        Loss::None => {}
        Loss::Random(random) => chance(out, "loss", *random),
        Loss::State(it) => push(out, &shares("state", &[it.p13, it.p31, it.p32, it.p23, it.p14])),
        Loss::Gemodel(it) => {
            push(out, &shares("gemodel", &[it.p, it.r, it.bad_loss, it.good_loss]));
        }
        Loss::Pattern(pattern) => push(out, &format!("loss pattern {}", pattern.words())),
    }
}

fn chance(out: &mut String, word: &str, chance: Chance) {
    if chance.probability > 0.0 {
        push(out, &format!("{word} {}", percent_text(chance.probability)));
        if chance.correlation > 0.0 {
            push(out, &percent_text(chance.correlation));
        }
    }
}

fn slot(out: &mut String, slot: &Slot) {
    push(
        out,
        &match &slot.wait {
            SlotWait::Between(min, max) if min == max => format!("slot {}", time_text(*min)),
            SlotWait::Between(min, max) => format!("slot {} {}", time_text(*min), time_text(*max)),
            SlotWait::Distributed(mean, jitter, shape) => {
                format!(
                    "slot distribution {} {} {}",
                    shape.name(),
                    time_text(*mean),
                    time_text(*jitter)
                )
            }
        },
    );
    if slot.packets > 0 {
        push(out, &format!("packets {}", slot.packets));
    }
    if slot.bytes > 0 {
        push(out, &format!("bytes {}", slot.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::FourState;
    use crate::queue::fifo::FifoConfig;

    /// Bytes before each packet.
    const UNSEEN: i32 = 10;

    fn link() -> LinkConfig {
        let overhead = Overhead { packet: -UNSEEN, ..Overhead::default() };
        LinkConfig { overhead, ..LinkConfig::default() }
    }

    #[test]
    fn a_link_is_shown_in_the_words_that_made_it() {
        let ms = Duration::from_millis;
        let delay = |time, jitter| Delay {
            time,
            jitter,
            distribution: Distribution::normal(),
            ..Delay::default()
        };
        let fifo = FifoConfig { limit: Limit::Bytes(60_000), ..FifoConfig::default() };
        let atm = Overhead { packet: 10 - UNSEEN, cell: 48, per_cell: 5 };
        let rate = Some(Bitrate::from_bps(2_500_000));
        let once = Chance { probability: 0.003, correlation: 0.25 };
        let reorder = Some(Reorder { chance: Chance::of(0.5), gap: 3 });
        let slot = Slot {
            wait: SlotWait::Between(ms(1), Duration::from_micros(1500)),
            packets: 4,
            bytes: 0,
        };
        for (config, words) in [
            (link(), "queue fifo limit 1000"),
            (LinkConfig { rate, ..link() }, "rate 2500kbit queue fifo limit 1000"),
            (
                LinkConfig { rate, overhead: atm, queue: QueueConfig::Fifo(fifo), ..link() },
                "rate 2500kbit 10 48 5 queue bfifo limit 60000b",
            ),
            (
                LinkConfig { rate, burst: Some(3028), ..link() },
                "rate 2500kbit burst 3028b queue fifo limit 1000",
            ),
            (
                LinkConfig { delay: delay(ms(20), ms(2)), ordered: true, ..link() },
                "delay 20ms 2ms distribution normal ordered queue fifo limit 1000",
            ),
            (
                LinkConfig { loss: Loss::Random(once), duplicate: Chance::of(1e-6), ..link() },
                "loss 0.3% 25% duplicate 0.0001% queue fifo limit 1000",
            ),
            (
                LinkConfig { loss: Loss::State(FourState::new(0.1)), loss_ecn: true, ..link() },
                "loss state 10% 90% 0% 100% 0% ecn queue fifo limit 1000",
            ),
            (
                LinkConfig { reorder, slot: Some(slot), single: true, ..link() },
                "reorder 50% gap 3 slot 1ms 1500us packets 4 queue fifo limit 1000 single",
            ),
            (
                LinkConfig { queue: QueueConfig::DualPi2(Default::default()), ..link() },
                "queue dualpi2 limit 10000",
            ),
        ] {
            assert_eq!(config.words(UNSEEN), words);
        }
    }
}
