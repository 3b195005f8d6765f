//! What a link is set to, in the words of its command line.

use serde::{Deserialize, Serialize};
use sheaf_emulator::{
    Chance, Delay, Distribution, Limit, LinkConfig, Loss, QueueConfig, Slot, SlotWait, Trace,
};
use sheaf_netio::vnet;
use sheaf_stage::Duration;
use std::fmt::Write;

/// What a link is set to. What it does not do is left out.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct LinkSettings {
    /// All of it, in the words of the command line.
    pub words: String,
    /// Rate, bit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// Mean delay, ms.
    pub delay_ms: f64,
    /// Standard deviation of the delay, ms.
    pub jitter_ms: f64,
    /// Share of packets lost, 0 to 1, where the loss is random; other models stand in the words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Kind of queue.
    pub queue: String,
}

/// Settings of a link as they are shown.
pub fn settings(config: &LinkConfig) -> LinkSettings {
    LinkSettings {
        words: words(config),
        rate_bps: config.rate.map(|rate| rate.as_bps()),
        delay_ms: config.delay.time.as_secs_f64() * 1e3,
        jitter_ms: config.delay.jitter.as_secs_f64() * 1e3,
        loss: match config.loss {
            Loss::Random(chance) => Some(chance.probability),
            _ => None,
        },
        queue: kind(&config.queue).to_owned(),
    }
}

/// The words that make a link what it is; of the parameters of a queue, the limit.
fn words(config: &LinkConfig) -> String {
    let mut text = String::new();
    let out = &mut text;
    if let Some(rate) = config.rate {
        push(out, &format!("rate {}", bits(rate.as_bps())));
        // The virtio header before each packet is on no wire, and was taken off.
        let packet = config.overhead.packet + vnet::LEN as i32;
        let (cell, per_cell) = (config.overhead.cell, config.overhead.per_cell);
        if (packet, cell, per_cell) != (0, 0, 0) {
            push(out, &format!("{packet} {cell} {per_cell}"));
        }
    }
    if let Some(trace) = &config.trace {
        let kind = match trace.trace {
            Trace::Opportunities(_) => "delivery opportunities",
            Trace::Steps(_) => "CSV",
        };
        push(out, &format!("--trace ({kind}){}", if trace.looped { "" } else { " --once" }));
    }
    delay(out, &config.delay);
    if config.ordered {
        push(out, "ordered");
    }
    loss(out, &config.loss);
    if config.loss_ecn {
        push(out, "ecn");
    }
    chance(out, "duplicate", config.duplicate);
    chance(out, "corrupt", config.corrupt);
    if let Some(reorder) = config.reorder {
        chance(out, "reorder", reorder.chance);
        push(out, &format!("gap {}", reorder.gap));
    }
    if let Some(slotted) = &config.slot {
        slot(out, slotted);
    }
    push(out, &format!("queue {}", kind(&config.queue)));
    push(
        out,
        &match limit(&config.queue) {
            Limit::Packets(packets) => format!("limit {packets}"),
            Limit::Bytes(bytes) => format!("limit {bytes}b"),
        },
    );
    if config.single {
        push(out, "single");
    }
    text
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
    push(out, &format!("delay {}", time(delay.time)));
    if delay.jitter.is_zero() {
        return;
    }
    push(out, &time(delay.jitter));
    if delay.correlation > 0.0 {
        push(out, &percent(delay.correlation));
    }
    push(out, &format!("distribution {}", name(&delay.distribution)));
}

fn loss(out: &mut String, loss: &Loss) {
    let shares = |model: &str, shares: &[f64]| {
        let shares: Vec<_> = shares.iter().copied().map(percent).collect();
        format!("loss {model} {}", shares.join(" "))
    };
    match loss {
        Loss::None => {}
        Loss::Random(random) => chance(out, "loss", *random),
        Loss::State(it) => push(out, &shares("state", &[it.p13, it.p31, it.p32, it.p23, it.p14])),
        Loss::Gemodel(it) => {
            push(out, &shares("gemodel", &[it.p, it.r, it.bad_loss, it.good_loss]));
        }
    }
}

fn chance(out: &mut String, word: &str, chance: Chance) {
    if chance.probability > 0.0 {
        push(out, &format!("{word} {}", percent(chance.probability)));
        if chance.correlation > 0.0 {
            push(out, &percent(chance.correlation));
        }
    }
}

fn slot(out: &mut String, slot: &Slot) {
    push(
        out,
        &match &slot.wait {
            SlotWait::Between(min, max) if min == max => format!("slot {}", time(*min)),
            SlotWait::Between(min, max) => format!("slot {} {}", time(*min), time(*max)),
            SlotWait::Distributed(mean, jitter, shape) => {
                format!("slot distribution {} {} {}", name(shape), time(*mean), time(*jitter))
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

/// Name of a queue's kind on the command line.
fn kind(queue: &QueueConfig) -> &'static str {
    match queue {
        QueueConfig::Fifo(fifo) => match (fifo.limit, fifo.drop_head) {
            (Limit::Bytes(_), _) => "bfifo",
            (Limit::Packets(_), true) => "pfifo_head_drop",
            (Limit::Packets(_), false) => "fifo",
        },
        QueueConfig::Red(_) => "red",
        QueueConfig::Gred(_) => "gred",
        QueueConfig::Codel(_) => "codel",
        QueueConfig::Pie(_) => "pie",
        QueueConfig::FqCodel(_) => "fq_codel",
        QueueConfig::DualPi2(_) => "dualpi2",
        QueueConfig::Drr(_) => "drr",
        QueueConfig::Wf2q(_) => "wf2q+",
    }
}

fn limit(queue: &QueueConfig) -> Limit {
    match queue {
        QueueConfig::Fifo(config) => config.limit,
        QueueConfig::Red(config) => config.limit,
        QueueConfig::Gred(config) => config.limit,
        QueueConfig::Codel(config) => config.limit,
        QueueConfig::Pie(config) => config.limit,
        QueueConfig::FqCodel(config) => Limit::Packets(config.limit),
        QueueConfig::DualPi2(config) => config.limit,
        QueueConfig::Drr(config) | QueueConfig::Wf2q(config) => config.limit,
    }
}

fn name(distribution: &Distribution) -> &'static str {
    let named = |name: &&str| Distribution::named(name).as_ref() == Some(distribution);
    let known = ["uniform", "normal", "pareto", "paretonormal"];
    known.into_iter().find(named).unwrap_or("FILE")
}

/// A rate in the largest unit in which it is a whole number.
fn bits(bps: u64) -> String {
    let units = [(1_000_000_000, "gbit"), (1_000_000, "mbit"), (1000, "kbit")];
    let fits = |(unit, _): &(u64, &str)| bps > 0 && bps.is_multiple_of(*unit);
    match units.into_iter().find(fits) {
        Some((unit, name)) => format!("{}{name}", bps / unit),
        None => format!("{bps}bit"),
    }
}

/// A time in the largest unit, up to seconds, in which it is a whole number.
fn time(time: Duration) -> String {
    let nanos = time.as_nanos();
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")];
    match units.into_iter().find(|(unit, _)| nanos > 0 && nanos.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", nanos / unit),
        None => format!("{nanos}ns"),
    }
}

/// A share of 1 as a percentage, without the rounding of binary fractions.
fn percent(share: f64) -> String {
    let rounded = format!("{:.6}", share * 100.0);
    format!("{}%", rounded.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_emulator::queue::fifo::FifoConfig;
    use sheaf_emulator::{FourState, Overhead, Reorder};
    use sheaf_stage::Bitrate;

    fn link() -> LinkConfig {
        let overhead = Overhead { packet: -(vnet::LEN as i32), ..Overhead::default() };
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
        let atm = Overhead { packet: 10 - vnet::LEN as i32, cell: 48, per_cell: 5 };
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
            assert_eq!(super::words(&config), words);
        }
    }
}
