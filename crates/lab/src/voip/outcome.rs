//! What one point of a sweep came to, on either engine.

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
}

/// What became of one flow.
#[derive(Clone, Debug)]
pub struct FlowReport {
    /// Packets sent while it was measured.
    pub sent: u64,
    /// Packets that arrived, duplicates not counted.
    pub received: u64,
    /// Packets that came after a later one.
    pub reordered: u64,
    /// Packets that came more than once.
    pub duplicates: u64,
    /// Share lost, 0..1.
    pub loss: f64,
    /// Mean one-way delay.
    pub delay: Duration,
    /// Median one-way delay.
    pub delay_p50: Duration,
    /// One-way delay that 99 % do not exceed.
    pub delay_p99: Duration,
    /// Interarrival jitter (RFC 3550).
    pub jitter: Duration,
    /// What the listener hears with the best fixed play-out buffer.
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

    /// Whether `rule` counts the flow as supported. One that never talked proves nothing.
    pub fn is_supported(&self, rule: Rule) -> bool {
        self.sent > 0 && rule.supports(self.loss, self.delay, self.jitter, &self.heard)
    }
}

/// What the channel saw, warm-up and end included.
#[derive(Clone, Copy, Debug, Default)]
pub struct Air {
    /// Data frames put on the air, repetitions included.
    pub frames: u64,
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
            air.retries += stats.retries;
            air.lost += stats.lost;
            air.queue_drops += stats.queue_drops;
        }
        air
    }
}

/// The numbers of a row: key, name, unit.
pub const METRICS: [(&str, &str, &str); 19] = [
    ("flows", "flows injected", ""),
    ("kau", "flows supported (rule kau)", ""),
    ("uwc", "flows supported (rule uwc)", ""),
    ("r70", "flows supported (rule r70)", ""),
    ("sent", "packets sent", ""),
    ("loss", "loss", "%"),
    ("latency", "mean one-way delay", "ms"),
    ("latency_p99", "99th percentile of the one-way delay", "ms"),
    ("jitter", "interarrival jitter", "ms"),
    ("r", "mean R of the E-model", ""),
    ("r_min", "the worst flow's R", ""),
    ("mos", "mean opinion score", ""),
    ("reordered", "packets out of order", ""),
    ("frames_per_second", "frames on the air", "1/s"),
    ("packets_per_frame", "packets a frame", ""),
    ("air_busy", "channel in use", "%"),
    ("retries", "frames that are repetitions", "%"),
    ("queue_drops", "frames dropped by full queues", ""),
    ("over_bound", "frames let go over an aggregator's bound", ""),
];

impl Outcome {
    /// The row of this outcome by [`METRICS`]; `seconds` is how long the channel was watched.
    /// Delays, jitter and quality are means over the flows.
    pub fn metrics(&self, seconds: f64) -> Vec<(String, f64)> {
        let (flows, air) = (&self.flows, self.air);
        let supported = |rule| flows.iter().filter(|flow| flow.is_supported(rule)).count() as f64;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let mean = |value: &dyn Fn(&FlowReport) -> f64| {
            flows.iter().map(value).sum::<f64>() / flows.len().max(1) as f64
        };
        let sum = |value: &dyn Fn(&FlowReport) -> u64| flows.iter().map(value).sum::<u64>() as f64;
        let (sent, received) = (sum(&|flow| flow.sent), sum(&|flow| flow.received));
        let values = [
            flows.len() as f64,
            supported(Rule::Kau),
            supported(Rule::Uwc),
            supported(Rule::R70),
            sent,
            100.0 * (1.0 - received / sent.max(1.0)),
            mean(&|flow| ms(flow.delay)),
            mean(&|flow| ms(flow.delay_p99)),
            mean(&|flow| ms(flow.jitter)),
            mean(&|flow| flow.heard.r),
            flows.iter().map(|flow| flow.heard.r).fold(f64::INFINITY, f64::min),
            mean(&|flow| flow.heard.mos),
            sum(&|flow| flow.reordered),
            air.frames as f64 / seconds,
            self.aggregation.aggregation_ratio().unwrap_or(1.0),
            100.0 * air.busy.as_secs_f64() / seconds,
            100.0 * air.retries as f64 / air.frames.max(1) as f64,
            air.queue_drops as f64,
            self.aggregation.over_bound as f64,
        ];
        METRICS.iter().map(|(key, ..)| (*key).to_owned()).zip(values).collect()
    }
}
