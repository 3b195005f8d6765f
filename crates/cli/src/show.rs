//! `sheaf show`: the statistics of the theses, per interface and next hop; those of trunks; and the
//! flows whose windows are controlled.

use crate::control::Service;
use crate::trunk::report::{self as trunk, Trunk};
use crate::window;
use anyhow::bail;
use serde::{Deserialize, Serialize};
use sheaf_aggregate::Stats;
use sheaf_bpf::Split;
use sheaf_netio::ip;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Everything known of one interface.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Interface {
    /// Its name.
    pub interface: String,
    /// Which engine gathers; none where only a splitter is.
    pub engine: Option<String>,
    /// Hold policy.
    pub policy: Option<String>,
    /// Time since start.
    pub seconds: f64,
    /// Frames that wait now.
    pub held_frames: u32,
    /// Frames that were none of ours.
    pub passed_frames: u32,
    /// Neighbours for whom the table had no place.
    #[serde(default)]
    pub neighbours_left_out: usize,
    /// All next hops together.
    pub total: Counters,
    /// By next hop or far end.
    pub hops: BTreeMap<String, Counters>,
    /// What the splitter counted: packets, and refusals by reason.
    pub split: Option<BTreeMap<String, u64>>,
    /// What it carries, where it is a trunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trunk: Option<Trunk>,
    /// Window control.
    pub window: Option<window::Report>,
}

/// The counters of KAU's `/proc/KauStat`, and the ratios derived from them.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Counters {
    aggregated_packets: u64,
    meta_packets: u64,
    unaggregated_packets: u64,
    aggregated_bytes: u64,
    aggregated_bytes_on_network: u64,
    unaggregated_bytes: u64,
    sent_by_timeout: u64,
    sent_by_size: u64,
    sent_by_ready: u64,
    over_bound: u64,
    aggregation_ratio: Option<f64>,
    average_aggregation: Option<f64>,
    /// Of a next hop: whether it splits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    splits: Option<String>,
    /// Largest frame to it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max: Option<u16>,
    /// Probes sent.
    #[serde(default)]
    probes: u64,
}

/// What is known of one next hop.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hop {
    /// Its counters.
    pub stats: Stats,
    /// Whether it splits: yes, no or unknown.
    pub splits: Option<&'static str>,
    /// Largest frame to it, where it does.
    pub max: Option<u16>,
    /// Probes sent to it.
    pub probes: u64,
}

impl Hop {
    /// One of which only the counters are left.
    pub fn new(stats: Stats) -> Hop {
        Hop { stats, ..Hop::default() }
    }
}

impl From<Hop> for Counters {
    fn from(hop: Hop) -> Self {
        let Hop { stats, splits, max, probes } = hop;
        Counters { splits: splits.map(str::to_owned), max, probes, ..stats.into() }
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
    fn aggregates(&self) -> bool {
        self.engine.is_some() || self.split.is_some()
    }

    /// Reads the splitter on interface number `ifindex`, where there is one.
    pub fn read_splitter(&mut self, ifindex: u32) -> anyhow::Result<()> {
        if let Some(split) = Split::find(ifindex)? {
            let counters = split.counters()?.into_iter();
            self.split = Some(counters.map(|(name, count)| (name.to_owned(), count)).collect());
        }
        Ok(())
    }
}

/// `sheaf show`: `dev` or all interfaces of this namespace.
pub fn show(dev: Option<&str>, json: bool) -> anyhow::Result<()> {
    // A trunk needs no eBPF, and a machine without has no splitters.
    let support = sheaf_bpf::support();
    let names = match dev {
        Some(dev) => {
            ip::index(dev)?;
            vec![dev.to_owned()]
        }
        None => ip::names()?,
    };
    let mut interfaces = Vec::new();
    for name in names {
        let asked = Service::Aggregate.ask(&name)?;
        let mut interface = asked.unwrap_or_else(|| Interface::new(&name));
        if interface.split.is_none() && support.is_ok() {
            interface.read_splitter(ip::index(&name)?)?;
        }
        interface.trunk = Service::Trunk.ask(&name)?;
        interface.window = Service::Window.ask(&name)?;
        if interface.aggregates() || interface.trunk.is_some() || interface.window.is_some() {
            interfaces.push(interface);
        }
    }
    if interfaces.is_empty() {
        support?;
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&interfaces)?);
    } else if interfaces.is_empty() {
        bail!(
            "nothing aggregates or splits here, there is no trunk, and no windows are controlled; \
             start `sheaf aggregate`, `sheaf trunk` or `sheaf window`"
        );
    } else {
        interfaces.iter().for_each(|interface| print!("{}", text(interface)));
    }
    Ok(())
}

/// An interface in the manner of `tc -s`.
pub fn text(interface: &Interface) -> String {
    let mut text = interface.trunk.as_ref().map_or_else(String::new, trunk::text);
    if interface.aggregates() {
        aggregation(&mut text, interface);
    }
    if let Some(report) = &interface.window {
        text += &window::text(&interface.interface, report);
    }
    text
}

fn aggregation(out: &mut String, interface: &Interface) {
    let (engine, policy) = (interface.engine.as_deref(), interface.policy.as_deref());
    let _ = writeln!(
        out,
        "{}: engine {} policy {} up {:.1}s held {} frames, passed {} frames",
        interface.interface,
        engine.unwrap_or("none"),
        policy.unwrap_or("none"),
        interface.seconds,
        interface.held_frames,
        interface.passed_frames
    );
    if interface.neighbours_left_out > 0 {
        let _ = writeln!(out, "  neighbours left out {}", interface.neighbours_left_out);
    }
    for (name, counters) in &interface.hops {
        let splits = counters.splits.as_deref().unwrap_or("-");
        let max = counters.max.map_or("-".into(), |max| max.to_string());
        let _ = writeln!(out, "  to {name}: splits {splits} max {max} probes {}", counters.probes);
        let _ = writeln!(
            out,
            "    aggregated {} pkt {} bytes in {} meta packets ({} bytes), alone {} pkt {} bytes",
            counters.aggregated_packets,
            counters.aggregated_bytes,
            counters.meta_packets,
            counters.aggregated_bytes_on_network,
            counters.unaggregated_packets,
            counters.unaggregated_bytes
        );
        let _ = writeln!(
            out,
            "    sent by size {} by ready {} by timeout {} over bound {}; {} pkt a frame, {} pkt a meta packet",
            counters.sent_by_size,
            counters.sent_by_ready,
            counters.sent_by_timeout,
            counters.over_bound,
            counters.aggregation_ratio.map_or("-".into(), |ratio| format!("{ratio:.2}")),
            counters.average_aggregation.map_or("-".into(), |ratio| format!("{ratio:.2}")),
        );
    }
    if let Some(split) = &interface.split {
        let mut counts = String::new();
        for (name, count) in split.iter().filter(|(_, count)| **count > 0) {
            let _ = write!(counts, " {name} {count}");
        }
        let _ =
            writeln!(out, "  split:{}", if counts.is_empty() { " nothing yet" } else { &counts });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::{Flow, Total};
    use serde_json::Value;

    /// Every key in `value`, however deep.
    pub fn keys(value: &Value, into: &mut Vec<String>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| {
                into.push(key.clone());
                keys(value, into);
            }),
            Value::Array(list) => list.iter().for_each(|value| keys(value, into)),
            _ => {}
        }
    }

    #[test]
    fn the_manual_has_every_key_of_the_json() {
        let mut interface = Interface::new("eth0");
        let links = vec![trunk::Link::default()];
        interface.trunk = Some(Trunk { links, ..Trunk::default() });
        let (totals, flows) = (vec![Total::default()], vec![Flow::default()]);
        interface.window = Some(window::Report { totals, flows, ..window::Report::default() });
        let mut all = Vec::new();
        keys(&serde_json::to_value(&interface).unwrap(), &mut all);
        let page = include_str!("../../../man/sheaf-show.8");
        for key in all {
            let bold = [format!("\\fB{key}\\fR"), format!(".BR {key} "), format!("\" {key} ")];
            let listed = format!("\" {key}\n");
            let known = bold.iter().chain([&listed]).any(|form| page.contains(form));
            assert!(known, "man/sheaf-show.8 does not explain {key}");
        }
    }
}
