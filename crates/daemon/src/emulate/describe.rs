//! Settings of a link, in the words of its command line.

use serde::{Deserialize, Serialize};
use sheaf_emulator::{LinkConfig, Loss};
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
