//! The reports of services, as far as the lab reads them.

use serde::Deserialize;
use std::collections::BTreeMap;

/// The report of `sheaf emulate show`.
#[derive(Clone, Debug, Deserialize)]
pub struct Emulation {
    /// Each direction, or each pipe, by name.
    pub links: BTreeMap<String, EmulatedLink>,
    /// Lateness of departures.
    pub lateness: Lateness,
}

/// One direction or pipe of an emulation.
#[derive(Clone, Debug, Deserialize)]
pub struct EmulatedLink {
    /// Packets that entered.
    pub offered_packets: u64,
    /// Packets that left.
    pub delivered_packets: u64,
    /// Packets that wait for bandwidth.
    pub rate_queue_packets: u64,
    /// Packets on the delay line.
    pub delay_line_packets: u64,
}

impl EmulatedLink {
    /// Packets that were dropped.
    pub fn dropped(&self) -> u64 {
        let inside = self.rate_queue_packets + self.delay_line_packets;
        self.offered_packets.saturating_sub(self.delivered_packets + inside)
    }
}

/// Lateness of departures, in microseconds.
#[derive(Clone, Debug, Deserialize)]
pub struct Lateness {
    /// 99 % left no later.
    pub p99_us: f64,
    /// The latest.
    pub max_us: f64,
}

/// An interface in the report of `sheaf show`.
#[derive(Clone, Debug, Deserialize)]
pub struct Interface {
    /// Its trunk.
    pub trunk: Option<Trunk>,
    /// Its window control.
    pub window: Option<Window>,
}

/// A trunk.
#[derive(Clone, Debug, Deserialize)]
pub struct Trunk {
    /// The longest reordering timer of all flows, in milliseconds.
    pub reorder_timer_ms: f64,
    /// Frames that arrived after they had been given up.
    pub late: u64,
}

/// Window control.
#[derive(Clone, Debug, Deserialize)]
pub struct Window {
    /// All flows of a direction together.
    pub totals: Vec<Total>,
}

/// One direction of window control.
#[derive(Clone, Debug, Deserialize)]
pub struct Total {
    /// Estimate of the bottleneck's capacity, bit/s.
    pub capacity: f64,
}
