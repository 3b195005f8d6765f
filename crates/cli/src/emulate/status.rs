//! What an emulation did so far and holds now, for people and as JSON.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use sheaf_emulator::{Cause, PipeStats};
use std::collections::BTreeMap;
use std::fmt::Write;

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
    /// How late packets left.
    pub lateness: Lateness,
}

/// One link.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct LinkStatus {
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
    /// Flows that have a link of their own now.
    #[serde(default)]
    pub flows: u32,
    /// Links taken back from flows that had gone.
    #[serde(default)]
    pub expired_flows: u64,
    /// What happened how often.
    pub causes: BTreeMap<String, u64>,
}

impl LinkStatus {
    /// From the books of a link or pipe.
    pub fn new(PipeStats { links: stats, flows, expired, .. }: &PipeStats) -> LinkStatus {
        let count = |cause: &Cause| (cause.name().to_owned(), stats.count(*cause));
        LinkStatus {
            offered_packets: stats.offered.packets,
            offered_bytes: stats.offered.bytes,
            delivered_packets: stats.delivered.packets,
            delivered_bytes: stats.delivered.bytes,
            rate_queue_packets: stats.rate_queue.packets,
            delay_line_packets: stats.delay_line.packets,
            flows: *flows,
            expired_flows: *expired,
            causes: Cause::ALL.iter().map(count).filter(|(_, count)| *count > 0).collect(),
        }
    }
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

impl Lateness {
    /// From a histogram of nanoseconds.
    pub fn new(histogram: &Histogram<u64>) -> Lateness {
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

impl Status {
    /// In the manner of `tc -s`.
    pub fn text(&self) -> String {
        let mut text = format!("{}: seed {} up {:.1}s\n", self.place, self.seed, self.seconds);
        let out = &mut text;
        for (name, link) in &self.links {
            let _ = writeln!(
                out,
                "  {name}: in {} pkt {} bytes, out {} pkt {} bytes, held {} in the rate queue, {} on the delay line",
                link.offered_packets,
                link.offered_bytes,
                link.delivered_packets,
                link.delivered_bytes,
                link.rate_queue_packets,
                link.delay_line_packets
            );
            if link.flows > 0 || link.expired_flows > 0 {
                let _ = writeln!(out, "    flows {}, gone {}", link.flows, link.expired_flows);
            }
            let causes: Vec<_> =
                link.causes.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
            if !causes.is_empty() {
                let _ = writeln!(out, "    {}", causes.join(", "));
            }
        }
        let late = &self.lateness;
        let _ = writeln!(
            out,
            "  late by p50 {:.0} us, p99 {:.0} us, p99.9 {:.0} us, at most {:.0} us ({} pkt)",
            late.p50_us, late.p99_us, late.p999_us, late.max_us, late.packets
        );
        if self.missed + self.memory_full + self.refused + self.denied > 0 {
            let _ = writeln!(
                out,
                "  lost before the link {} (memory full {}), behind it {}, denied by rules {}",
                self.missed, self.memory_full, self.refused, self.denied
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_has_every_key_of_the_json_and_every_cause() {
        let page = include_str!("../../../../man/sheaf-emulate.8");
        let object = |value| match value {
            serde_json::Value::Object(map) => map.into_iter().map(|(key, _)| key),
            other => panic!("{other} is no object"),
        };
        let status = serde_json::to_value(Status::default()).unwrap();
        let link = serde_json::to_value(LinkStatus::default()).unwrap();
        let lateness = serde_json::to_value(Lateness::default()).unwrap();
        for key in [status, link, lateness].into_iter().flat_map(object) {
            let known = page.contains(&format!("\\fB{key}\\fR"));
            assert!(known, "man/sheaf-emulate.8 does not explain {key}");
        }
        for cause in Cause::ALL {
            let name = cause.name().replace('-', "\\-");
            let known = [format!(".BR {name} "), format!("\" {name} ")];
            let known = known.iter().any(|form| page.contains(form));
            assert!(known, "man/sheaf-emulate.8 does not explain the cause {name}");
        }
    }
}
