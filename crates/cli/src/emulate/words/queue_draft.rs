//! The rate queue as far as words have set it.

use anyhow::{anyhow, ensure};
use sheaf_emulator::queue::codel::{CodelConfig, CodelParams};
use sheaf_emulator::queue::dualpi2::DualPi2Config;
use sheaf_emulator::queue::fifo::FifoConfig;
use sheaf_emulator::queue::fq_codel::FqCodelConfig;
use sheaf_emulator::queue::gred::GredConfig;
use sheaf_emulator::queue::pie::PieConfig;
use sheaf_emulator::queue::red::{RedConfig, RedCurve};
use sheaf_emulator::queue::red_parameters::RedParameters;
use sheaf_emulator::queue::weighted::WeightedConfig;
use sheaf_emulator::{Limit, QueueConfig};
use sheaf_stage::Bitrate;

/// The kinds of queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Fifo,
    ByteFifo,
    HeadDrop,
    Codel,
    Pie,
    FqCodel,
    DualPi2,
    Red,
    Gred,
    Drr,
    Wf2q,
}

/// A queue as far as words have set it. Fields of other kinds keep their defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueDraft {
    pub kind: Kind,
    /// Bound of `bfifo` and `gred`.
    pub bytes: Option<u64>,
    pub codel: CodelParams,
    pub fq_codel: FqCodelConfig,
    pub pie: PieConfig,
    pub weighted: Weighted,
    /// RED's curve, or those of GRED with their classes.
    pub curves: Vec<(RedParameters, Vec<u8>)>,
    pub ecn: bool,
    pub hard_drop: bool,
}

/// Queues with shares.
#[derive(Clone, Debug, PartialEq)]
pub struct Weighted {
    pub config: WeightedConfig,
    /// Index of the queue that the next words set.
    pub at: usize,
}

impl Default for Weighted {
    fn default() -> Self {
        Weighted { config: WeightedConfig::new(Vec::new()), at: 0 }
    }
}

impl QueueDraft {
    /// The queue of a link with this rate. The word `limit` bounds it, where it was given, else a
    /// bound of the kind.
    pub fn finish(self, rate: Option<Bitrate>, limit: Option<u64>) -> anyhow::Result<QueueConfig> {
        let packets = limit.map(Limit::Packets);
        let codel = CodelConfig { params: self.codel, ..CodelConfig::default() };
        Ok(match self.kind {
            Kind::Fifo | Kind::ByteFifo | Kind::HeadDrop => {
                let bound = packets.or(self.bytes.map(Limit::Bytes));
                let drop_head = self.kind == Kind::HeadDrop;
                let limit = bound.unwrap_or(FifoConfig::default().limit);
                QueueConfig::Fifo(FifoConfig { limit, drop_head })
            }
            Kind::Codel => {
                let limit = packets.unwrap_or(codel.limit);
                QueueConfig::Codel(CodelConfig { limit, ..codel })
            }
            Kind::Pie => {
                let limit = packets.unwrap_or(self.pie.limit);
                QueueConfig::Pie(PieConfig { limit, ..self.pie })
            }
            Kind::FqCodel => {
                let limit = limit.unwrap_or(self.fq_codel.limit);
                QueueConfig::FqCodel(FqCodelConfig { limit, codel: self.codel, ..self.fq_codel })
            }
            Kind::DualPi2 => {
                let mut config = DualPi2Config::default();
                config.limit = packets.unwrap_or(config.limit);
                QueueConfig::DualPi2(config)
            }
            Kind::Red => {
                let Some((parameters, classes)) = self.curves.first() else {
                    anyhow::bail!("queue red lacks limit SIZE")
                };
                ensure!(classes.is_empty(), "dscp stands behind vq; write queue gred vq dscp ef …");
                let (curve, bytes) = curve(parameters, rate)?;
                let limit = packets.unwrap_or(Limit::Bytes(bytes));
                let (ecn, hard_drop) = (self.ecn, self.hard_drop);
                QueueConfig::Red(RedConfig { limit, curve, ecn, hard_drop })
            }
            Kind::Gred => self.gred(rate, packets)?,
            Kind::Drr | Kind::Wf2q => {
                let drr = self.kind == Kind::Drr;
                let mut config = self.weighted.config;
                config.limit = packets.unwrap_or(config.limit);
                if drr { QueueConfig::Drr(config) } else { QueueConfig::Wf2q(config) }
            }
        })
    }

    fn gred(self, rate: Option<Bitrate>, packets: Option<Limit>) -> anyhow::Result<QueueConfig> {
        // Classes without a curve of their own take the curve that lists no classes, or the first.
        let rest = self.curves.iter().position(|(_, classes)| classes.is_empty());
        let mut by_dscp = [rest.unwrap_or(0) as u8; 64];
        let mut virtual_queues = Vec::new();
        for (index, (parameters, classes)) in self.curves.iter().enumerate() {
            virtual_queues.push(curve(parameters, rate)?);
            for class in classes {
                by_dscp[usize::from(*class)] = index as u8;
            }
        }
        let all = virtual_queues.iter().map(|(_, limit)| limit).sum();
        let limit = packets.unwrap_or(Limit::Bytes(self.bytes.unwrap_or(all)));
        let (ecn, hard_drop) = (self.ecn, self.hard_drop);
        Ok(QueueConfig::Gred(GredConfig { limit, virtual_queues, by_dscp, ecn, hard_drop }))
    }
}

fn curve(parameters: &RedParameters, rate: Option<Bitrate>) -> anyhow::Result<(RedCurve, u64)> {
    parameters.curve(rate).map_err(|error| anyhow!("{error}; give a value in its range"))
}
