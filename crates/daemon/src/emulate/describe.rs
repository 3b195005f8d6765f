//! Settings of a link, in the words of its command line.

use serde::{Deserialize, Serialize};
use sheaf_emulator::classes::{BURST, quantum};
use sheaf_emulator::units::rate_text;
use sheaf_emulator::{ClassConfig, LinkConfig, Loss};
use sheaf_netio::vnet;

/// Settings of a link, without what it does not do.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct LinkSettings {
    /// All of it, in the words of the command line.
    pub words: String,
    /// Rate, bit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// Most bytes that leave at once after a late wake-up, where that is bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_bytes: Option<u64>,
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

/// Terms of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ClassSettings {
    /// The class above; `None` for the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Whether packets take its link, as no classes are below it.
    pub leaf: bool,
    /// Rate that it gets whatever others send, bit/s.
    pub rate_bps: u64,
    /// The most that it gets, bit/s.
    pub ceil_bps: u64,
    /// Its priority.
    pub prio: u8,
    /// Its share of what is lent to several.
    pub quantum: u64,
    /// Bytes that it saves up of its rate.
    pub burst_bytes: u64,
    /// Bytes that it saves up of its ceil.
    pub cburst_bytes: u64,
    /// All of it in words; what follows from the rest is left out.
    pub words: String,
}

impl ClassSettings {
    /// Of `class`, below `parent`.
    pub fn new(class: &ClassConfig, leaf: bool, parent: Option<String>) -> ClassSettings {
        let mut words = format!("rate {}", rate_text(class.rate));
        let mut say = |word: String| words = format!("{words} {word}");
        if let Some(parent) = &parent {
            say(format!("ceil {} parent {parent}", rate_text(class.ceil)));
            if leaf {
                say(format!("prio {}", class.prio));
            }
        }
        if class.quantum != quantum(class.rate) {
            say(format!("quantum {}", class.quantum));
        }
        for (name, bytes) in [("burst", class.burst), ("cburst", class.cburst)] {
            if bytes != BURST {
                say(format!("{name} {bytes}b"));
            }
        }
        ClassSettings {
            parent,
            leaf,
            rate_bps: class.rate.as_bps(),
            ceil_bps: class.ceil.as_bps(),
            prio: class.prio,
            quantum: class.quantum,
            burst_bytes: class.burst,
            cburst_bytes: class.cburst,
            words,
        }
    }
}

/// Settings of a link as they are shown.
pub fn settings(config: &LinkConfig) -> LinkSettings {
    LinkSettings {
        // The virtio header before each packet is on no wire.
        words: config.words(vnet::LEN as i32),
        rate_bps: config.rate.map(|rate| rate.as_bps()),
        burst_bytes: config.burst,
        delay_ms: config.delay.time.as_secs_f64() * 1e3,
        jitter_ms: config.delay.jitter.as_secs_f64() * 1e3,
        loss: match config.loss {
            Loss::Random(chance) => Some(chance.probability),
            _ => None,
        },
        queue: config.queue.name().to_owned(),
    }
}
