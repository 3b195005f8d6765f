//! The report of an emulation.

use super::describe::{self, ClassSettings, LinkSettings};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use sheaf_emulator::{Cause, LinkConfig, PipeStats};
use sheaf_stage::Duration;
use std::collections::BTreeMap;

/// Everything known of a running emulation.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Status {
    /// Where the link is.
    pub place: String,
    /// The seed of all chances.
    pub seed: u64,
    /// Time since start.
    pub seconds: f64,
    /// Each direction, or each pipe.
    pub links: BTreeMap<String, LinkStatus>,
    /// Packets that a rule dropped.
    pub denied: u64,
    /// Packets that never came in: the emulation was too slow to take them.
    pub missed: u64,
    /// Packets that never came in: too much was held.
    pub memory_full: u64,
    /// Packets that the interface they should leave by did not take.
    pub refused: u64,
    /// Packets that are not in the capture: its disk was full, or too slow.
    #[serde(default)]
    pub uncaptured: u64,
    /// Stations of a medium.
    #[serde(default)]
    pub stations: BTreeMap<String, StationStatus>,
    /// Time during which something was on the air, in ms.
    #[serde(default)]
    pub busy_ms: f64,
    /// Frames of a medium that were handed over more than 10 ms late.
    #[serde(default)]
    pub behind: u64,
    /// Lateness of the packets that left.
    pub lateness: Lateness,
}

/// One link.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct LinkStatus {
    /// Its settings.
    #[serde(default)]
    pub settings: LinkSettings,
    /// Packets that came in.
    pub offered_packets: u64,
    /// Their bytes.
    pub offered_bytes: u64,
    /// Packets that left.
    pub delivered_packets: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Packets that wait for bandwidth, the one that is being sent included.
    pub rate_queue_packets: u64,
    /// Packets on the delay line.
    pub delay_line_packets: u64,
    /// Standstills for the bound on bursts, after late wake-ups.
    #[serde(default)]
    pub standstills: u64,
    /// Time that was lost in them, in ms.
    #[serde(default)]
    pub stood_still_ms: f64,
    /// Flows that have a link of their own now.
    #[serde(default)]
    pub flows: u32,
    /// Links taken back from flows that had gone.
    #[serde(default)]
    pub expired_flows: u64,
    /// Links that the longest idle flow gave up for a new one, as there were no more.
    #[serde(default)]
    pub reused_flows: u64,
    /// Packets of flows for which no link was left, and which share one.
    #[serde(default)]
    pub crowded_packets: u64,
    /// Of a class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ClassStatus>,
    /// Counters.
    pub causes: BTreeMap<String, u64>,
}

/// One class of a tree: its terms and its counters.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct ClassStatus {
    /// Its terms.
    pub terms: ClassSettings,
    /// Packets of it, or of those below it, that were sent.
    pub sent_packets: u64,
    /// Their bytes, as the tree counts them.
    pub sent_bytes: u64,
    /// Packets that classes below it sent of its rate.
    pub lent_packets: u64,
    /// Packets that it sent of the rate of classes above it.
    pub borrowed_packets: u64,
}

impl LinkStatus {
    /// From the books of a link or pipe, and the terms of the class that it is.
    pub fn new(
        PipeStats { links: stats, flows, expired, reused, crowded, class }: &PipeStats,
        config: &LinkConfig,
        terms: Option<ClassSettings>,
    ) -> LinkStatus {
        let class = terms.zip(class.as_ref()).map(|(terms, class)| ClassStatus {
            terms,
            sent_packets: class.sent_packets,
            sent_bytes: class.sent_bytes,
            lent_packets: class.lent,
            borrowed_packets: class.borrowed,
        });
        let count = |cause: &Cause| (cause.name().to_owned(), stats.count(*cause));
        LinkStatus {
            settings: describe::settings(config),
            offered_packets: stats.offered.packets,
            offered_bytes: stats.offered.bytes,
            delivered_packets: stats.delivered.packets,
            delivered_bytes: stats.delivered.bytes,
            rate_queue_packets: stats.rate_queue.packets,
            delay_line_packets: stats.delay_line.packets,
            standstills: stats.standstills,
            stood_still_ms: stats.stood_still.as_secs_f64() * 1e3,
            flows: *flows,
            expired_flows: *expired,
            reused_flows: *reused,
            crowded_packets: *crowded,
            class,
            causes: Cause::ALL.iter().map(count).filter(|(_, count)| *count > 0).collect(),
        }
    }
}

/// One station of a medium.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct StationStatus {
    /// Its interface, where it has one.
    pub interface: Option<String>,
    /// The namespace of that; none for the one of the process.
    pub namespace: Option<String>,
    /// Address of its radio of mac80211_hwsim, in place of an interface.
    #[serde(default)]
    pub radio: Option<String>,
    /// Frames of the host that entered the device queue.
    pub offered_frames: u64,
    /// Frames that arrived: acknowledged, or heard by a station where they were for a group.
    pub delivered_frames: u64,
    /// Frames that were given up, or that nobody heard.
    pub lost_frames: u64,
    /// Frames to addresses of no station.
    pub unknown_frames: u64,
    /// Frames of others that it received.
    pub received_frames: u64,
    /// Frames of the host that no radio sends, because they are too large.
    pub oversized_frames: u64,
    /// Received frames that the interface or the radio did not take, because it is down, or the
    /// radio on another channel.
    pub refused_frames: u64,
    /// Frames of a radio that its full device queue did not take.
    #[serde(default)]
    pub dropped_frames: u64,
    /// Frames of a radio that mac80211_hwsim dropped, as this program was too slow to take them.
    #[serde(default)]
    pub missed_frames: u64,
    /// Frames put on the air, repetitions included.
    pub attempts: u64,
    /// Attempts beyond the first of each frame.
    pub retries: u64,
    /// Transmissions that carried them.
    pub transmissions: u64,
    /// Transmissions that others spoilt where they were to be received.
    pub collisions: u64,
    /// Frames in the device queue now.
    pub queued_frames: u64,
    /// The most that it holds.
    pub queue_limit: u64,
    /// Time on the air, responses included, in ms.
    pub air_time_ms: f64,
    /// The same as a share of the time since the start.
    pub air_share: f64,
    /// Time during which its device queue had frames, in ms of the channel.
    pub backlog_ms: f64,
    /// Its position in metres.
    pub position: [f64; 2],
    /// The stations that it hears.
    pub heard: BTreeMap<String, Heard>,
}

/// A station that another one hears.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Heard {
    /// Signal of the one that is heard, in dBm.
    pub signal_dbm: f64,
    /// Rate of frames to it, bit/s.
    pub rate_bps: u64,
    /// Share of full frames to it that are lost without collisions, 0 to 1.
    pub loss: f64,
}

/// From when packets should have left to when they had left, in microseconds.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Lateness {
    /// Packets.
    pub packets: u64,
    /// Half of them left no later.
    pub p50_us: f64,
    /// 99 % did.
    pub p99_us: f64,
    /// 99.9 % did.
    pub p999_us: f64,
    /// The latest.
    pub max_us: f64,
}

/// Measures lateness, in nanoseconds.
#[derive(Clone, Debug)]
pub struct LatenessMeter(Histogram<u64>);

impl LatenessMeter {
    /// Latenesses beyond a minute count as one.
    const LATEST: u64 = 60_000_000_000;
    /// Digits to which they are kept: to a hundredth. One more takes 200 KiB.
    const DIGITS: u8 = 2;

    /// Nothing has left so far.
    pub fn new() -> anyhow::Result<LatenessMeter> {
        Ok(LatenessMeter(Histogram::new_with_bounds(1, Self::LATEST, Self::DIGITS)?))
    }

    /// A packet left so `late`.
    pub fn record(&mut self, late: Duration) {
        let nanos = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanos.min(Self::LATEST));
    }

    /// Adds what another one has measured.
    pub fn add(&mut self, other: &LatenessMeter) -> anyhow::Result<()> {
        Ok(self.0.add(&other.0)?)
    }

    /// The report.
    pub fn report(&self) -> Lateness {
        Lateness::new(&self.0)
    }
}

impl Lateness {
    /// From a histogram of nanoseconds.
    fn new(histogram: &Histogram<u64>) -> Lateness {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        Lateness {
            packets: histogram.len(),
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: histogram.max() as f64 / 1000.0,
        }
    }
}
