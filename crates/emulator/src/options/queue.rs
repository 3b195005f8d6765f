//! `queue KIND …`: how the rate queue is managed, in the words of tc(8) and, for weighted queues,
//! of ipfw(8).
//!
//! ```text
//! fifo | bfifo limit SIZE | pfifo_head_drop
//! codel [target TIME] [interval TIME] [ecn]   pie [target TIME] [tupdate TIME] [ecn]
//! fq_codel [flows N] [quantum SIZE] [target TIME] [interval TIME] [ecn|noecn]   dualpi2
//! red limit SIZE avpkt SIZE [min SIZE] [max SIZE] [burst N] [probability P] [bandwidth RATE]
//!     [ecn] [harddrop] [adaptive] [gentle]
//! gred [limit SIZE] [ecn] [harddrop] { vq [dscp CLASSES] RED }…
//! drr|wf2q+ [quantum SIZE] [limit N] { queue N weight W [dscp CLASSES] }…
//! ```
//!
//! The words of a kind follow it without others between; the first word of another option ends
//! them. Words of RED that are left out are as in tc-red(8): max is a quarter of limit, min a third
//! of max, burst (2 · min + max) / (3 · avpkt), probability 0.02; bandwidth is the link's rate, or
//! 10mbit.

use super::{OptionError, Reader, parse, time};
use crate::error::ConfigError;
use crate::queue::codel::{CodelConfig, CodelParams};
use crate::queue::fifo::FifoConfig;
use crate::queue::fq_codel::FqCodelConfig;
use crate::queue::gred::GredConfig;
use crate::queue::pie::PieConfig;
use crate::queue::red::{RedConfig, RedCurve};
use crate::queue::weighted::WeightedConfig;
use crate::queue::{Limit, QueueConfig};
use crate::units;
use sheaf_stage::Bitrate;

/// Most queues of a weighted scheduler, so that a number in a command line takes no memory.
const MOST_QUEUES: usize = 4096;

/// A kind of queue whose words are read. RED's are worked out when the link's rate is known.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Ready(QueueConfig),
    Red { red: Red, ecn: bool, hard_drop: bool },
    Gred { limit: Option<u64>, queues: Vec<(Red, Vec<u8>)>, ecn: bool, hard_drop: bool },
}

/// The words of one RED curve.
#[derive(Clone, Debug, Default)]
pub(super) struct Red {
    limit: Option<u64>,
    min: Option<u64>,
    max: Option<u64>,
    average: Option<u64>,
    burst: Option<u64>,
    probability: Option<f64>,
    bandwidth: Option<Bitrate>,
    adaptive: bool,
    gentle: bool,
}

impl Kind {
    /// The queue, for a link of this rate.
    pub fn finish(self, rate: Option<Bitrate>) -> Result<QueueConfig, OptionError> {
        match self {
            Kind::Ready(config) => Ok(config),
            Kind::Red { red, ecn, hard_drop } => {
                let (curve, limit) = red.finish(rate)?;
                Ok(QueueConfig::Red(RedConfig {
                    limit: Limit::Bytes(limit),
                    curve,
                    ecn,
                    hard_drop,
                }))
            }
            Kind::Gred { limit, queues, ecn, hard_drop } => {
                // What none names takes the queue that names none, or the first.
                let rest = queues.iter().position(|(_, classes)| classes.is_empty());
                let mut by_dscp = [rest.unwrap_or(0) as u8; 64];
                let mut virtual_queues = Vec::new();
                for (index, (red, classes)) in queues.into_iter().enumerate() {
                    virtual_queues.push(red.finish(rate)?);
                    for class in classes {
                        by_dscp[usize::from(class)] = index as u8;
                    }
                }
                let all = virtual_queues.iter().map(|(_, limit)| limit).sum();
                let limit = Limit::Bytes(limit.unwrap_or(all));
                Ok(QueueConfig::Gred(GredConfig { limit, virtual_queues, by_dscp, ecn, hard_drop }))
            }
        }
    }
}

impl Red {
    /// Takes the word `name` if it is one of RED's.
    fn take<L: FnMut(&str) -> Option<String>>(
        &mut self,
        name: &str,
        reader: &mut Reader<'_, L>,
    ) -> Result<bool, OptionError> {
        let size = |reader: &mut Reader<'_, L>| reader.word_and("size", units::size).map(Some);
        match name {
            "limit" => self.limit = size(reader)?,
            "min" => self.min = size(reader)?,
            "max" => self.max = size(reader)?,
            "avpkt" => self.average = size(reader)?,
            "burst" => self.burst = Some(reader.word_and("number of packets", parse)?),
            "probability" => self.probability = Some(reader.word_and("chance", units::chance)?),
            "bandwidth" => self.bandwidth = Some(reader.word_and("rate", units::rate)?),
            "adaptive" => (self.adaptive, reader.words) = (true, &reader.words[1..]),
            "gentle" => (self.gentle, reader.words) = (true, &reader.words[1..]),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The curve and the limit.
    fn finish(&self, rate: Option<Bitrate>) -> Result<(RedCurve, u64), OptionError> {
        let lacks = |word| OptionError::Lacks { option: "queue red", word };
        let limit = self.limit.ok_or(lacks("limit SIZE"))?;
        let mean_packet = self.average.ok_or(lacks("avpkt SIZE"))?;
        if mean_packet == 0 {
            return Err(ConfigError::Zero { option: "avpkt" }.into());
        }
        let max = self.max.unwrap_or(limit / 4);
        let min = self.min.unwrap_or(max / 3);
        if min >= max {
            return Err(ConfigError::Order { low: "red min", high: "red max" }.into());
        }
        if max > limit {
            return Err(ConfigError::Order { low: "red max", high: "red limit" }.into());
        }
        let burst = self.burst.unwrap_or((2 * min + max) / (3 * mean_packet)).max(1);
        let bandwidth = rate.filter(|rate| rate.as_bps() > 0).unwrap_or(Bitrate::from_mbps(10));
        let curve = RedCurve {
            min,
            max,
            probability: self.probability.unwrap_or(0.02),
            weight: weight(min, burst, mean_packet)?,
            gentle: self.gentle,
            adaptive: self.adaptive,
            mean_packet,
            bandwidth: self.bandwidth.unwrap_or(bandwidth),
        };
        Ok((curve, limit))
    }
}

/// The weight with which no packet of a burst of this length into an empty queue is dropped. It
/// solves `burst + 1 - min / avpkt = (1 - (1 - w)^burst) / w` (Floyd and Jacobson 1993, section 6),
/// and is a power of two as in tc.
fn weight(min: u64, burst: u64, mean_packet: u64) -> Result<f64, OptionError> {
    let (burst, room) = (burst as f64, burst as f64 + 1.0 - min as f64 / mean_packet as f64);
    let fits = |weight: &f64| room <= (1.0 - (1.0 - weight).powf(burst)) / weight;
    let weights = (1..32).map(|digits| 0.5f64.powi(digits));
    let found = if room < 1.0 { None } else { weights.into_iter().find(fits) };
    found.ok_or(OptionError::Burst { least: min.div_ceil(mean_packet) })
}

/// Reads the kind and its words.
pub(super) fn read<L: FnMut(&str) -> Option<String>>(
    reader: &mut Reader<'_, L>,
) -> Result<Kind, OptionError> {
    let kind = reader.need("kind of queue", |word| KINDS.into_iter().find(|kind| *kind == word))?;
    match kind {
        "red" => red(reader),
        "gred" => gred(reader),
        "drr" | "wf2q" | "wf2q+" => weighted(reader, kind == "drr").map(Kind::Ready),
        "codel" => {
            let mut config = CodelConfig::default();
            while codel(reader, &mut config.params)? {}
            Ok(Kind::Ready(QueueConfig::Codel(config)))
        }
        "fq_codel" => {
            let mut config = FqCodelConfig::default();
            loop {
                match reader.peek() {
                    "flows" => config.flows = reader.word_and("number", parse)?,
                    "quantum" => config.quantum = reader.word_and("size", small)?,
                    _ if codel(reader, &mut config.codel)? => {}
                    _ => return Ok(Kind::Ready(QueueConfig::FqCodel(config))),
                }
            }
        }
        "pie" => {
            let mut config = PieConfig::default();
            loop {
                match reader.peek() {
                    "target" => config.target = reader.word_and("time", time)?,
                    "tupdate" => config.update = reader.word_and("time", time)?,
                    "ecn" => (config.ecn_below, reader.words) = (0.1, &reader.words[1..]),
                    _ => return Ok(Kind::Ready(QueueConfig::Pie(config))),
                }
            }
        }
        "dualpi2" => Ok(Kind::Ready(QueueConfig::DualPi2(Default::default()))),
        "bfifo" => {
            let config = FifoConfig::default();
            if reader.peek() != "limit" {
                return Err(OptionError::Lacks { option: "queue bfifo", word: "limit SIZE" });
            }
            let limit = Limit::Bytes(reader.word_and("size", units::size)?);
            Ok(Kind::Ready(QueueConfig::Fifo(FifoConfig { limit, ..config })))
        }
        kind => {
            let drop_head = kind == "pfifo_head_drop";
            Ok(Kind::Ready(QueueConfig::Fifo(FifoConfig { drop_head, ..FifoConfig::default() })))
        }
    }
}

const KINDS: [&str; 13] = [
    "fifo",
    "pfifo",
    "bfifo",
    "pfifo_head_drop",
    "codel",
    "pie",
    "fq_codel",
    "dualpi2",
    "red",
    "gred",
    "drr",
    "wf2q",
    "wf2q+",
];

fn small(word: &str) -> Option<u32> {
    units::size(word).and_then(|size| u32::try_from(size).ok())
}

fn codel<L: FnMut(&str) -> Option<String>>(
    reader: &mut Reader<'_, L>,
    params: &mut CodelParams,
) -> Result<bool, OptionError> {
    match reader.peek() {
        "target" => params.target = reader.word_and("time", time)?,
        "interval" => params.interval = reader.word_and("time", time)?,
        "ecn" => (params.ecn, reader.words) = (true, &reader.words[1..]),
        "noecn" => (params.ecn, reader.words) = (false, &reader.words[1..]),
        _ => return Ok(false),
    }
    Ok(true)
}

fn red<L: FnMut(&str) -> Option<String>>(reader: &mut Reader<'_, L>) -> Result<Kind, OptionError> {
    let (mut red, mut ecn, mut hard_drop) = (Red::default(), false, false);
    loop {
        match reader.peek() {
            "ecn" => (ecn, reader.words) = (true, &reader.words[1..]),
            "harddrop" => (hard_drop, reader.words) = (true, &reader.words[1..]),
            word if red.take(word, reader)? => {}
            _ => return Ok(Kind::Red { red, ecn, hard_drop }),
        }
    }
}

fn gred<L: FnMut(&str) -> Option<String>>(reader: &mut Reader<'_, L>) -> Result<Kind, OptionError> {
    let (mut limit, mut ecn, mut hard_drop) = (None, false, false);
    let mut queues: Vec<(Red, Vec<u8>)> = Vec::new();
    loop {
        match (reader.peek(), queues.last_mut()) {
            ("vq", _) => {
                reader.words = &reader.words[1..];
                queues.push((Red::default(), Vec::new()));
            }
            ("ecn", _) => (ecn, reader.words) = (true, &reader.words[1..]),
            ("harddrop", _) => (hard_drop, reader.words) = (true, &reader.words[1..]),
            ("limit", None) => limit = Some(reader.word_and("size", units::size)?),
            ("dscp", Some((_, classes))) => {
                *classes = reader.word_and("class", units::classes)?;
            }
            (word, Some((red, _))) => {
                if !red.take(word, reader)? {
                    return Ok(Kind::Gred { limit, queues, ecn, hard_drop });
                }
            }
            (_, None) => {
                let word = "vq limit SIZE avpkt SIZE";
                return Err(OptionError::Lacks { option: "queue gred", word });
            }
        }
    }
}

fn weighted<L: FnMut(&str) -> Option<String>>(
    reader: &mut Reader<'_, L>,
    drr: bool,
) -> Result<QueueConfig, OptionError> {
    let mut config = WeightedConfig::new(Vec::new());
    loop {
        match reader.peek() {
            "quantum" => config.quantum = reader.word_and("size", small)?,
            "limit" => config.limit = Limit::Packets(reader.word_and("number of packets", parse)?),
            "queue" => {
                let number: usize = reader.word_and("number of a queue", parse)?;
                if number >= MOST_QUEUES {
                    let (option, value, most) = ("queue", number as u64, MOST_QUEUES as u64 - 1);
                    return Err(ConfigError::TooMany { option, value, most }.into());
                }
                if config.weights.len() <= number {
                    // Queues between that are not named have the weight of dummynet's default.
                    config.weights.resize(number + 1, 1);
                }
                if reader.peek() == "weight" {
                    config.weights[number] = reader.word_and("weight", parse)?;
                }
                if reader.peek() == "dscp" {
                    let classes = reader.word_and("class", units::classes)?;
                    let by_dscp = config.by_dscp.get_or_insert([0; 64]);
                    classes.iter().for_each(|class| by_dscp[usize::from(*class)] = number as u16);
                }
            }
            _ if config.weights.is_empty() => {
                let option = if drr { "queue drr" } else { "queue wf2q+" };
                return Err(OptionError::Lacks { option, word: "queue N weight W" });
            }
            _ if drr => return Ok(QueueConfig::Drr(config)),
            _ => return Ok(QueueConfig::Wf2q(config)),
        }
    }
}
