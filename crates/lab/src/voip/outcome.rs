//! The outcome of one point of a sweep, on either engine.

use super::walked::Walked;
use crate::columns::{Column, column};
use crate::measured::Series;
use crate::view::Axis;
use sheaf_aggregate::Stats;
use sheaf_medium::{Medium, RadioId};
use sheaf_stage::Duration;
use sheaf_voice::emodel::Codec;
use sheaf_voice::meter::Meter;
use sheaf_voice::playout::Heard;
use sheaf_voice::rules::Rule;

/// Everything measured at one point.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Each flow.
    pub flows: Vec<FlowReport>,
    /// The aggregators of all hosts together; zero without aggregation.
    pub aggregation: Stats,
    /// The channel.
    pub air: Air,
    /// Time that the channel was watched.
    pub watched: Duration,
    /// Time during which packets were sent that count.
    pub measured: Duration,
    /// Turns that the talkers took in it.
    pub turns: u32,
    /// Bytes of a packet, headers included.
    pub packet: usize,
    /// Packets dropped because a host had no route.
    pub unrouted: u64,
    /// Meta packets that reached a host that cannot split.
    pub unsplit: u64,
    /// Mean delay in ms of the packets sent in each second; empty where it is not kept.
    pub over_time: Vec<(f64, f64)>,
    /// Calls and sizes on the walk, where one walks.
    pub walked: Walked,
}

/// Report of one flow.
#[derive(Clone, Debug)]
pub struct FlowReport {
    /// Packets sent while it was measured.
    pub sent: u64,
    /// Packets that arrived, duplicates not counted.
    pub received: u64,
    /// Packets that arrived after a later one.
    pub reordered: u64,
    /// Packets that arrived more than once.
    pub duplicates: u64,
    /// Share of packets lost, 0..1.
    pub loss: f64,
    /// Mean one-way delay.
    pub delay: Duration,
    /// Median one-way delay.
    pub delay_p50: Duration,
    /// One-way delay that 99 % do not exceed.
    pub delay_p99: Duration,
    /// Interarrival jitter (RFC 3550).
    pub jitter: Duration,
    /// Quality for the listener with the best fixed play-out buffer.
    pub heard: Heard,
}

impl FlowReport {
    /// The report of a flow of `sent` packets.
    pub fn new(codec: Codec, meter: &Meter, sent: u64) -> FlowReport {
        FlowReport {
            sent,
            received: meter.received(),
            reordered: meter.reordered(),
            duplicates: meter.duplicates(),
            loss: meter.loss(sent),
            delay: meter.mean_delay(),
            delay_p50: meter.delay_quantile(0.5),
            delay_p99: meter.delay_quantile(0.99),
            jitter: meter.jitter(),
            heard: Heard::best(codec, meter, sent),
        }
    }

    /// Whether `rule` counts the flow as supported. A flow without packets is not supported.
    pub fn is_supported(&self, rule: Rule) -> bool {
        self.sent > 0 && rule.supports(self.loss, self.delay, self.jitter, &self.heard)
    }
}

/// Use of the channel, warm-up and end included.
#[derive(Clone, Copy, Debug, Default)]
pub struct Air {
    /// Data frames put on the air, repetitions included.
    pub frames: u64,
    /// Transmissions that carried them; an A-MPDU is one.
    pub transmissions: u64,
    /// Repetitions.
    pub retries: u64,
    /// Frames given up after the last attempt.
    pub lost: u64,
    /// Frames refused by full transmit queues.
    pub queue_drops: u64,
    /// Time with something on the air.
    pub busy: Duration,
}

impl Air {
    /// The counters of all radios of `medium`.
    pub fn of<P: Clone>(medium: &Medium<P>) -> Air {
        let mut air = Air { busy: medium.busy(), ..Air::default() };
        for radio in 0..medium.radios() {
            let stats = medium.stats(RadioId(radio as u32));
            air.frames += stats.attempts;
            air.transmissions += stats.transmissions;
            air.retries += stats.retries;
            air.lost += stats.lost;
            air.queue_drops += stats.queue_drops;
        }
        air
    }
}

/// Key of the flows that rule uwc supports as Western Cape counted: the row of its table as a
/// whole, by the loss and jitter of all flows together. Iperf measures no one-way delay.
pub const UWC_ROW: &str = "uwc_row";

/// The numbers of a row. Delays, jitter and quality are means over the flows.
pub const COLUMNS: &[Column<Outcome>] = &[
    column("flows", "flows injected", "", |point| point.flows.len() as f64),
    column(Rule::Kau.name(), "flows supported (rule kau)", "", |point| point.supported(Rule::Kau)),
    column(Rule::Uwc.name(), "flows supported (rule uwc)", "", |point| point.supported(Rule::Uwc)),
    column(Rule::R70.name(), "flows supported (rule r70)", "", |point| point.supported(Rule::R70)),
    column(UWC_ROW, "flows supported (rule uwc, all or none)", "", |point| {
        let all = point.flows.len() as f64;
        if point.is_whole(Rule::Uwc) { all } else { 0.0 }
    }),
    column("sent", "packets sent", "", Outcome::sent),
    column("loss", "loss", "%", |point| 100.0 * point.loss()),
    column("latency", "mean one-way delay", "ms", |point| point.mean(|flow| millis(flow.delay))),
    column("latency_p99", "99th percentile of the one-way delay", "ms", |point| {
        point.mean(|flow| millis(flow.delay_p99))
    }),
    column("jitter", "interarrival jitter", "ms", |point| point.mean(|flow| millis(flow.jitter))),
    column("r", "mean R of the E-model", "", |point| point.mean(|flow| flow.heard.r)),
    column("r_min", "the worst flow's R", "", |point| {
        point.flows.iter().map(|flow| flow.heard.r).fold(f64::INFINITY, f64::min)
    }),
    column("mos", "mean opinion score", "", |point| point.mean(|flow| flow.heard.mos)),
    column("throughput", "throughput with headers", "kbit/s", |point| {
        point.arrived_bytes() * 8.0 / point.measured.as_secs_f64() / 1e3
    }),
    column("carried", "carried in one turn, with headers", "MB", |point| {
        point.arrived_bytes() / f64::from(point.turns.max(1)) / 1e6
    }),
    column("reordered", "packets out of order", "", |point| point.sum(|flow| flow.reordered)),
    column("frames_per_second", "frames on the air", "1/s", |point| {
        point.air.frames as f64 / point.watched.as_secs_f64()
    }),
    column("frames_per_transmission", "frames a transmission", "", |point| {
        point.air.frames as f64 / point.air.transmissions.max(1) as f64
    }),
    column("packets_per_frame", "packets a frame", "", |point| {
        point.aggregation.aggregation_ratio().unwrap_or(1.0)
    }),
    column("average_aggregation", "packets a meta packet", "", |point| {
        point.aggregation.average_aggregation().unwrap_or(f64::NAN)
    }),
    column("net_total", "frames a flow", "", |point| {
        point.a_flow(|stats| stats.meta_packets + stats.unaggregated_packets)
    }),
    column("net_aggregated", "meta packets a flow", "", |point| {
        point.a_flow(|stats| stats.meta_packets)
    }),
    column("net_alone", "lone packets a flow", "", |point| {
        point.a_flow(|stats| stats.unaggregated_packets)
    }),
    column("net_by_size", "frames a flow that left by size", "", |point| {
        point.a_flow(|stats| stats.by_size)
    }),
    column("net_by_timeout", "frames a flow that left by timeout", "", |point| {
        point.a_flow(|stats| stats.by_timeout)
    }),
    column("air_busy", "channel in use", "%", |point| {
        100.0 * point.air.busy.as_secs_f64() / point.watched.as_secs_f64()
    }),
    column("retries", "frames that are repetitions", "%", |point| {
        100.0 * point.air.retries as f64 / point.air.frames.max(1) as f64
    }),
    column("queue_drops", "frames dropped by full queues", "", |point| {
        point.air.queue_drops as f64
    }),
    column("over_bound", "frames let go over an aggregator's bound", "", |point| {
        point.aggregation.over_bound as f64
    }),
    column("unrouted", "packets dropped without a route", "", |point| point.unrouted as f64),
    column("unsplit", "meta packets at hosts that cannot split", "", |point| point.unsplit as f64),
];

impl Outcome {
    fn supported(&self, rule: Rule) -> f64 {
        self.flows.iter().filter(|flow| flow.is_supported(rule)).count() as f64
    }

    /// Whether `rule` supports a flow with the loss of all flows and their mean jitter.
    fn is_whole(&self, rule: Rule) -> bool {
        let flows = self.flows.len().max(1) as u32;
        let jitter = self.flows.iter().map(|flow| flow.jitter).sum::<Duration>() / flows;
        // Nothing arrived, then nobody was heard.
        let heard = self.flows.first().map(|flow| &flow.heard);
        self.sent() > 0.0
            && heard.is_some_and(|heard| rule.supports(self.loss(), Duration::ZERO, jitter, heard))
    }

    /// Share of all packets lost, 0..1.
    fn loss(&self) -> f64 {
        1.0 - self.sum(|flow| flow.received) / self.sent().max(1.0)
    }

    fn sent(&self) -> f64 {
        self.sum(|flow| flow.sent)
    }

    fn arrived_bytes(&self) -> f64 {
        self.sum(|flow| flow.received) * self.packet as f64
    }

    /// A counter of the aggregators for each flow; NaN without an aggregator.
    fn a_flow(&self, value: fn(&Stats) -> u64) -> f64 {
        let frames = self.aggregation.meta_packets + self.aggregation.unaggregated_packets;
        if frames == 0 {
            return f64::NAN;
        }
        value(&self.aggregation) as f64 / self.flows.len().max(1) as f64
    }

    /// The curves of this point: the latency over time, where it was kept.
    pub fn series(&self) -> Vec<Series> {
        if self.over_time.is_empty() {
            return Vec::new();
        }
        vec![Series {
            name: "Latency over time".to_owned(),
            x: Axis::new("time", "s"),
            y: Axis::new("mean one-way delay", "ms"),
            points: self.over_time.clone(),
        }]
    }

    fn sum(&self, value: fn(&FlowReport) -> u64) -> f64 {
        self.flows.iter().map(value).sum::<u64>() as f64
    }

    fn mean(&self, value: fn(&FlowReport) -> f64) -> f64 {
        self.flows.iter().map(value).sum::<f64>() / self.flows.len().max(1) as f64
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
