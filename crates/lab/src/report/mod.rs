//! Results, and the three forms they are written in: `result.json`, `rows.csv`, `report.html`.

mod chart;
mod html;
mod terminal;

use crate::outcome::Outcome;
use crate::plan::{Plan, Published, Scenario};
use anyhow::Context;
use serde::{Deserialize, Serialize};
use sheaf_medium::air_time;
use sheaf_stage::Duration;
use sheaf_voice::rules::Rule;
use std::collections::BTreeMap;
use std::path::Path;

pub use terminal::table;

/// A run of a plan.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RunResult {
    /// Name of the plan.
    pub plan: String,
    /// What it shows.
    pub title: String,
    /// The published work.
    pub source: String,
    /// `virtual` or `netns`.
    pub engine: String,
    /// Seed of all randomness.
    pub seed: u64,
    /// Seconds measured per point.
    pub duration: f64,
    /// What was run: this program, the kernel.
    pub versions: BTreeMap<String, String>,
    /// Processor and number of cores.
    pub machine: String,
    /// One for each point and treatment.
    pub rows: Vec<Row>,
    /// Treatment → rule → supported flows: the most at any point of the sweep. Keyed by
    /// `scenario/treatment`.
    pub summary: BTreeMap<String, BTreeMap<String, u32>>,
    /// What the air-time arithmetic allows, by scenario.
    pub limits: BTreeMap<String, Limit>,
    /// Figures of the source.
    pub published: Vec<Published>,
}

/// One point under one treatment.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Row {
    /// Scenario.
    pub scenario: String,
    /// Treatment.
    pub treatment: String,
    /// Flows injected, all directions together.
    pub flows: u32,
    /// Flows supported by rule `kau`.
    pub kau: u32,
    /// Flows supported by rule `uwc`.
    pub uwc: u32,
    /// Flows supported by rule `r70`.
    pub r70: u32,
    /// Packets sent.
    pub sent: u64,
    /// Per cent of them lost.
    pub loss: f64,
    /// Mean one-way delay in ms.
    pub latency: f64,
    /// 99th percentile of the one-way delay in ms, mean over the flows.
    pub latency_p99: f64,
    /// Interarrival jitter in ms (RFC 3550), mean over the flows.
    pub jitter: f64,
    /// Rating of the E-model, mean over the flows.
    pub r: f64,
    /// The worst flow's.
    pub r_min: f64,
    /// Mean opinion score, mean over the flows.
    pub mos: f64,
    /// Packets that overtook or were overtaken.
    pub reordered: u64,
    /// Data frames on the air per second, repetitions included.
    pub frames_per_second: f64,
    /// Packets a frame (the theses' aggregation ratio); 1 without aggregation.
    pub packets_per_frame: f64,
    /// Per cent of the time with something on the air.
    pub air_busy: f64,
    /// Per cent of the frames on the air that are repetitions.
    pub retries: f64,
    /// Frames dropped by full transmit queues.
    pub queue_drops: u64,
    /// Packets dropped by the aggregators.
    pub aggregator_drops: u64,
}

/// What the air-time arithmetic of one scenario allows: flows for which the channel's time is
/// just enough, every hop paid, without collisions.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Limit {
    /// Microseconds on the air of a packet that travels alone.
    pub lone: f64,
    /// Microseconds of a packet's share of a full meta packet of 1500 bytes.
    pub full: f64,
    /// Flows, when all packets travel alone.
    pub flows_lone: f64,
    /// Flows, when all meta packets are full.
    pub flows_full: f64,
}

impl Limit {
    /// The limit of `scenario`.
    pub fn of(plan: &Plan, scenario: &Scenario) -> anyhow::Result<Limit> {
        let treatment = scenario.treatments.first().context("a scenario has a treatment")?;
        let point =
            plan.point(scenario, treatment, scenario.directions.len() as u32, plan.duration)?;
        let bytes = 28 + sheaf_voice::packet::Stamp::len(point.codec) as u32;
        let packets = (1500 - 20) / bytes;
        let rate = point.medium.radios[0].rate;
        let exchange = |bytes| air_time::exchange(&point.medium, rate, bytes);
        let (lone, full) = (exchange(bytes), exchange(20 + packets * bytes) / packets);
        let hops: usize =
            point.flows.iter().map(|flow| hops(&point.next_hop, flow.from, flow.to)).sum();
        let hops = hops as f64 / point.flows.len() as f64;
        let activity = point.flows[0].pattern.activity();
        let per_second = activity / sheaf_voice::source::INTERVAL.as_secs_f64() * hops;
        let flows = |time: Duration| 1.0 / (per_second * time.as_secs_f64());
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        Ok(Limit {
            lone: micros(lone),
            full: micros(full),
            flows_lone: flows(lone),
            flows_full: flows(full),
        })
    }
}

fn hops(next_hop: &[Vec<usize>], mut from: usize, to: usize) -> usize {
    let mut hops = 0;
    while from != to {
        from = next_hop[from][to];
        hops += 1;
    }
    hops
}

impl Row {
    /// The row of one outcome; `seconds` is how long the channel was watched.
    pub fn new(scenario: &str, treatment: &str, outcome: &Outcome, seconds: f64) -> Row {
        let flows = &outcome.flows;
        let count = flows.len().max(1) as f64;
        let supported = |rule| flows.iter().filter(|flow| flow.is_supported(rule)).count() as u32;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let mean = |value: &dyn Fn(&crate::outcome::FlowReport) -> f64| {
            flows.iter().map(value).sum::<f64>() / count
        };
        let sent: u64 = flows.iter().map(|flow| flow.sent).sum();
        let received: u64 = flows.iter().map(|flow| flow.received).sum();
        let air = outcome.air;
        Row {
            scenario: scenario.to_owned(),
            treatment: treatment.to_owned(),
            flows: flows.len() as u32,
            kau: supported(Rule::Kau),
            uwc: supported(Rule::Uwc),
            r70: supported(Rule::R70),
            sent,
            loss: 100.0 * (1.0 - received as f64 / sent.max(1) as f64),
            latency: mean(&|flow| ms(flow.delay)),
            latency_p99: mean(&|flow| ms(flow.delay_p99)),
            jitter: mean(&|flow| ms(flow.jitter)),
            r: mean(&|flow| flow.heard.r),
            r_min: flows.iter().map(|flow| flow.heard.r).fold(f64::INFINITY, f64::min),
            mos: mean(&|flow| flow.heard.mos),
            reordered: flows.iter().map(|flow| flow.reordered).sum(),
            frames_per_second: air.frames as f64 / seconds,
            packets_per_frame: outcome.aggregation.aggregation_ratio().unwrap_or(1.0),
            air_busy: 100.0 * air.busy.as_secs_f64() / seconds,
            retries: 100.0 * air.retries as f64 / air.frames.max(1) as f64,
            queue_drops: air.queue_drops,
            aggregator_drops: outcome.aggregation.dropped,
        }
    }

    /// Flows supported by `rule`.
    pub fn supported(&self, rule: Rule) -> u32 {
        match rule {
            Rule::Kau => self.kau,
            Rule::Uwc => self.uwc,
            Rule::R70 => self.r70,
        }
    }
}

impl RunResult {
    /// Works out the summary from the rows.
    pub fn summarise(&mut self) {
        self.summary.clear();
        for row in &self.rows {
            let key = format!("{}/{}", row.scenario, row.treatment);
            let rules = self.summary.entry(key).or_default();
            for rule in Rule::ALL {
                let most = rules.entry(rule.name().to_owned()).or_default();
                *most = (*most).max(row.supported(rule));
            }
        }
    }

    /// Supported flows of a treatment.
    pub fn supported(&self, scenario: &str, treatment: &str, rule: Rule) -> Option<u32> {
        self.summary.get(&format!("{scenario}/{treatment}"))?.get(rule.name()).copied()
    }

    /// The scenarios, in the order of their rows.
    pub fn scenarios(&self) -> Vec<&str> {
        unique(self.rows.iter().map(|row| row.scenario.as_str()))
    }

    /// The treatments of a scenario, in the order of their rows.
    pub fn treatments(&self, scenario: &str) -> Vec<&str> {
        let rows = self.rows.iter().filter(|row| row.scenario == scenario);
        unique(rows.map(|row| row.treatment.as_str()))
    }

    /// The rows of a treatment, by flows.
    pub fn sweep(&self, scenario: &str, treatment: &str) -> Vec<&Row> {
        let of = |row: &&Row| row.scenario == scenario && row.treatment == treatment;
        let mut rows: Vec<_> = self.rows.iter().filter(of).collect();
        rows.sort_by_key(|row| row.flows);
        rows
    }

    /// Writes result.json, rows.csv and report.html to `folder`, which is made where needed.
    pub fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let in_folder = || format!("cannot write to {}", folder.display());
        std::fs::create_dir_all(folder).with_context(in_folder)?;
        let json = serde_json::to_string_pretty(self)?;
        std::fs::write(folder.join("result.json"), json + "\n").with_context(in_folder)?;
        let mut csv = csv::Writer::from_path(folder.join("rows.csv"))?;
        self.rows.iter().try_for_each(|row| csv.serialize(row))?;
        csv.flush()?;
        std::fs::write(folder.join("report.html"), html::page(self)?).with_context(in_folder)
    }

    /// Reads a result.json that [`RunResult::write`] wrote.
    pub fn read(folder: &Path) -> anyhow::Result<RunResult> {
        let file = folder.join("result.json");
        let text = std::fs::read_to_string(&file).with_context(|| {
            format!("no result in {}; run `sheaf lab run` first", folder.display())
        })?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} is not a result of this version", file.display()))
    }
}

fn unique<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    names.for_each(|name| {
        if !seen.contains(&name) {
            seen.push(name);
        }
    });
    seen
}
