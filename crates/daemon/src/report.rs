//! Report of one interface, which `sheaf show` prints: the statistics of the theses, per next
//! hop; the trunk that it is; and the flows whose windows are controlled.

use crate::emulate::Status;
use crate::trunk::report::Trunk;
use crate::window::report::Report as Window;
use serde::{Deserialize, Serialize};
use sheaf_aggregate::Stats;
use sheaf_bpf::Split;
use std::collections::BTreeMap;

/// The name of what went to groups, among next hops.
pub const GROUPS: &str = "groups";

/// Everything known of one interface.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Interface {
    /// Its name.
    pub interface: String,
    /// Engine that gathers; none where only a splitter is.
    pub engine: Option<String>,
    /// Hold policy.
    pub policy: Option<String>,
    /// Whether marks of packets bound frames further than the next hops do.
    #[serde(default)]
    pub by_mark: bool,
    /// Time since start.
    pub seconds: f64,
    /// Frames that wait now.
    pub held_frames: u32,
    /// Frames that were not to be gathered, or passed unseen as the device was done at once.
    pub passed_frames: u64,
    /// Neighbours for whom the table had no place.
    #[serde(default)]
    pub neighbours_left_out: usize,
    /// All next hops together.
    pub total: Counters,
    /// By next hop or far end, with what went to groups under [`GROUPS`].
    pub hops: BTreeMap<String, Counters>,
    /// Counters of the splitter: packets, and refusals by reason.
    pub split: Option<BTreeMap<String, u64>>,
    /// Neighbours that say HELLO.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbourhood: Option<Neighbourhood>,
    /// Report of the trunk, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trunk: Option<Trunk>,
    /// Window control.
    pub window: Option<Window>,
    /// The link that is emulated on it, or from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulate: Option<Status>,
}

/// Neighbours that say HELLO, and what this router says.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Neighbourhood {
    /// This run of the service, as its HELLOs name it.
    pub node: String,
    /// By link address.
    pub neighbours: BTreeMap<String, Neighbour>,
    /// HELLOs that left.
    pub hellos_sent: u64,
    /// HELLOs that the interface refused.
    pub hellos_unsent: u64,
    /// HELLOs of others that were taken.
    pub hellos_heard: u64,
    /// HELLOs of others that came faster than they were read.
    pub hellos_dropped: u64,
    /// HELLOs of others that were refused, by reason.
    pub hellos_refused: BTreeMap<String, u64>,
}

/// One neighbour, as it says and as it is heard.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Neighbour {
    /// Its IP addresses in the kernel's neighbour table.
    pub addresses: Vec<String>,
    /// The run of its service.
    pub node: String,
    /// Wire formats that it takes apart, 3 for frames of batman-adv in those of format 2, 4 for
    /// those to groups, and 5 for those without a header of IP; none without a splitter.
    pub formats: Vec<u8>,
    /// Largest frame that it wants, in bytes; none where its word does not count.
    pub largest: Option<u16>,
    /// Signal-to-noise ratio of what it sends, in dB, where the driver measures it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snr_db: Option<f64>,
    /// Largest packet that it should send here, in bytes, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asks: Option<u16>,
    /// Largest packet that it should be sent, in bytes, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u16>,
    /// With a key: whether it has heard this run, so that its HELLO is no recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proven: Option<bool>,
    /// Share of its HELLOs that are heard.
    pub heard: f64,
    /// Share of ours that it hears, where it says so.
    pub hears: Option<f64>,
    /// Seconds within which its next HELLO comes.
    pub period: f64,
    /// Seconds since its first HELLO.
    pub age: f64,
    /// Seconds since its last one.
    pub last: f64,
    /// Number of times that it started again.
    pub restarts: u32,
}

/// The counters of KAU's `/proc/KauStat`, and the ratios derived from them.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Counters {
    /// Packets that left inside meta packets.
    pub aggregated_packets: u64,
    /// Meta packets that left.
    pub meta_packets: u64,
    /// Packets that left alone.
    pub unaggregated_packets: u64,
    /// Bytes of the packets inside meta packets.
    pub aggregated_bytes: u64,
    /// Bytes of the meta packets.
    pub aggregated_bytes_on_network: u64,
    /// Bytes of the packets that left alone.
    pub unaggregated_bytes: u64,
    /// Frames sent because their time was over.
    pub sent_by_timeout: u64,
    /// Frames sent because they were large enough.
    pub sent_by_size: u64,
    /// Frames sent because the device was ready.
    pub sent_by_ready: u64,
    /// Frames sent because too many waited.
    pub over_bound: u64,
    /// Packets per frame.
    pub aggregation_ratio: Option<f64>,
    /// Packets per meta packet.
    pub average_aggregation: Option<f64>,
    /// Of a next hop: whether it splits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub splits: Option<String>,
    /// Largest frame to it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u16>,
    /// Wire format of frames to it now: meta, frames or compressed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Carriage of these frames, where it is not IP: ethernet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carriage: Option<String>,
    /// Probes sent.
    #[serde(default)]
    pub probes: u64,
    /// Of groups: why packets to them pass as they are now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// State of one next hop.
#[derive(Clone, Debug, Default)]
pub struct Hop {
    /// Its counters.
    pub stats: Stats,
    /// Whether it splits: yes, no or unknown.
    pub splits: Option<&'static str>,
    /// Largest frame to it, where it does.
    pub max: Option<u16>,
    /// Wire format of frames to it, where it does.
    pub format: Option<&'static str>,
    /// Carriage of these frames, where it is not IP.
    pub carriage: Option<&'static str>,
    /// Probes sent to it.
    pub probes: u64,
    /// Of groups: why packets to them pass as they are.
    pub why: Option<String>,
}

impl Hop {
    /// One of which only the counters are left.
    pub fn new(stats: Stats) -> Hop {
        Hop { stats, ..Hop::default() }
    }
}

impl From<Hop> for Counters {
    fn from(hop: Hop) -> Self {
        let Hop { stats, splits, max, format, carriage, probes, why } = hop;
        let [splits, format, carriage] =
            [splits, format, carriage].map(|word| word.map(str::to_owned));
        Counters { splits, max, format, carriage, probes, why, ..stats.into() }
    }
}

impl From<Stats> for Counters {
    fn from(stats: Stats) -> Self {
        Counters {
            aggregated_packets: stats.aggregated_packets,
            meta_packets: stats.meta_packets,
            unaggregated_packets: stats.unaggregated_packets,
            aggregated_bytes: stats.aggregated_bytes,
            aggregated_bytes_on_network: stats.meta_bytes,
            unaggregated_bytes: stats.unaggregated_bytes,
            sent_by_timeout: stats.by_timeout,
            sent_by_size: stats.by_size,
            sent_by_ready: stats.by_ready,
            over_bound: stats.over_bound,
            aggregation_ratio: stats.aggregation_ratio(),
            average_aggregation: stats.average_aggregation(),
            ..Counters::default()
        }
    }
}

impl Interface {
    /// Nothing known yet of `interface`.
    pub fn new(interface: &str) -> Interface {
        Interface { interface: interface.to_owned(), ..Interface::default() }
    }

    /// Sets the counters of the next hops, and their sum.
    pub fn set_hops(&mut self, hops: BTreeMap<String, Hop>) {
        let mut sum = Hop::default();
        for hop in hops.values() {
            sum.stats.add(&hop.stats);
            sum.probes += hop.probes;
        }
        self.total = sum.into();
        self.hops = hops.into_iter().map(|(name, hop)| (name, hop.into())).collect();
    }

    /// Whether packets are gathered or split.
    pub fn aggregates(&self) -> bool {
        self.engine.is_some() || self.split.is_some() || self.neighbourhood.is_some()
    }

    /// Whether there is anything to show.
    pub fn has_anything(&self) -> bool {
        self.aggregates() || self.trunk.is_some() || self.window.is_some() || self.emulate.is_some()
    }

    /// Reads the splitter on interface number `ifindex`, where there is one.
    pub fn read_splitter(&mut self, ifindex: u32) -> anyhow::Result<()> {
        let split = match Split::find(ifindex) {
            // One of another version, with other maps: it splits, and cannot be read.
            Err(sheaf_bpf::Error::Missing(_)) => None,
            split => split?,
        };
        if let Some(split) = split {
            let counters = split.counters()?.into_iter();
            self.split = Some(counters.map(|(name, count)| (name.to_owned(), count)).collect());
        }
        Ok(())
    }
}
