//! The options of `tc qdisc … netem`, read as tc-netem(8) says, so that a command line that works
//! there works here.
//!
//! ```text
//! limit N [single]  seed N  ordered  queue KIND …
//! delay TIME [JITTER [CORRELATION]]   distribution uniform|normal|pareto|paretonormal|FILE
//! loss [random] P [CORR] | state P13 [P31 [P32 [P23 [P14]]]] | gemodel P [R [1-H [1-K]]]   ecn
//! duplicate P [CORR]   corrupt P [CORR]   reorder P [CORR] [gap N]
//! rate R [PACKETOVERHEAD [CELLSIZE [CELLOVERHEAD]]]
//! slot MIN [MAX] | slot distribution NAME DELAY JITTER   packets N  bytes N
//! ```
//!
//! Bare times are microseconds, bare shares percent, bare rates bit/s. `single` (packets under way
//! count against the limit, as NetEm has it), `ordered` and `queue` (options/queue.rs; `sched` is
//! the same word) are not NetEm's.

mod queue;

use crate::config::{LinkConfig, Reorder, Slot, SlotWait};
use crate::distribution::{DistError, Distribution};
use crate::error::ConfigError;
use crate::loss::{FourState, Gemodel, Loss};
use crate::overhead::Overhead;
use crate::queue::{Limit, QueueConfig};
use crate::random::Chance;
use crate::units;
use sheaf_stage::Duration;
use std::str::FromStr;
use thiserror::Error;

/// A link and the seed of its chances.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The link.
    pub config: LinkConfig,
    /// `seed N`.
    pub seed: Option<u64>,
}

/// Error in the words of options.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum OptionError {
    /// A word that is not an option.
    #[error("\"{0}\" is no option")]
    Unknown(String),
    /// An option without its value, or with one that cannot be read.
    #[error("{option}: {found} is no {wanted}")]
    Value {
        /// The option.
        option: &'static str,
        /// Value that the option needs.
        wanted: &'static str,
        /// Word found in its place; "nothing" at the end.
        found: String,
    },
    /// An option without words that it cannot do without.
    #[error("{option} lacks {word}")]
    Lacks {
        /// The option.
        option: &'static str,
        /// The words that it needs.
        word: &'static str,
    },
    /// RED's burst is smaller than its lower threshold.
    #[error("red burst is too small for min; it must be more than {least} packets")]
    Burst {
        /// Packets of the average size that make up `min`.
        least: u64,
    },
    /// A distribution that has no such name and no such file.
    #[error("there is no distribution {0}")]
    NoDistribution(String),
    /// A distribution file that cannot be read.
    #[error("distribution {0}, {1}")]
    Distribution(String, DistError),
    /// Values that no link can have.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl Options {
    /// Reads options. `load` returns the text of the distribution file of a name that is not one
    /// of the four built in (iproute2 keeps them in `/usr/lib/tc/NAME.dist`), `None` without one.
    ///
    /// # Errors
    /// The first word that cannot be understood, or what is wrong with the link as a whole.
    pub fn parse(
        words: &[&str],
        load: impl FnMut(&str) -> Option<String>,
    ) -> Result<Self, OptionError> {
        let mut reader = Reader { words, load, option: "" };
        let mut options = Options { config: LinkConfig::default(), seed: None };
        let (mut limit, mut gap, mut kind) = (None, None, None);
        while let Some((word, rest)) = reader.words.split_first() {
            reader.words = rest;
            if let "queue" | "sched" = *word {
                reader.option = "queue";
                kind = Some(queue::read(&mut reader)?);
                continue;
            }
            reader.option(word, &mut options, &mut limit, &mut gap)?;
        }
        let config = &mut options.config;
        if let Some(gap) = gap {
            // A gap alone means that every packet after it skips the delay, as in tc.
            let chance = config.reorder.map_or(Chance::of(1.0), |reorder| reorder.chance);
            config.reorder = Some(Reorder { chance, gap });
        }
        if let Some(kind) = kind {
            config.queue = kind.finish(config.rate)?;
        }
        if let Some(packets) = limit {
            set_limit(&mut config.queue, packets);
        }
        config.check()?;
        Ok(options)
    }
}

fn set_limit(queue: &mut QueueConfig, packets: u64) {
    match queue {
        QueueConfig::Fifo(config) => config.limit = Limit::Packets(packets),
        QueueConfig::Codel(config) => config.limit = Limit::Packets(packets),
        QueueConfig::Pie(config) => config.limit = Limit::Packets(packets),
        QueueConfig::DualPi2(config) => config.limit = Limit::Packets(packets),
        QueueConfig::FqCodel(config) => config.limit = packets,
        QueueConfig::Drr(config) | QueueConfig::Wf2q(config) => {
            config.limit = Limit::Packets(packets);
        }
        QueueConfig::Red(config) => config.limit = Limit::Packets(packets),
        QueueConfig::Gred(config) => config.limit = Limit::Packets(packets),
    }
}

struct Reader<'a, L> {
    words: &'a [&'a str],
    load: L,
    option: &'static str,
}

impl<'a, L: FnMut(&str) -> Option<String>> Reader<'a, L> {
    /// Reads one option whose name was `word`.
    fn option(
        &mut self,
        word: &str,
        options: &mut Options,
        limit: &mut Option<u64>,
        gap: &mut Option<u32>,
    ) -> Result<(), OptionError> {
        let config = &mut options.config;
        let Some(name) = NAMES.into_iter().find(|name| *name == word) else {
            return Err(OptionError::Unknown(word.to_owned()));
        };
        self.option = name;
        match name {
            "limit" => *limit = Some(self.number()?),
            "gap" => *gap = Some(self.number()?),
            "seed" => options.seed = Some(self.number()?),
            "single" => config.single = true,
            "ordered" => config.ordered = true,
            "ecn" => config.loss_ecn = true,
            "delay" | "latency" => {
                config.delay.time = self.time()?;
                config.delay.jitter = self.may(time).unwrap_or_default();
                config.delay.correlation = self.may(units::percent).unwrap_or_default();
            }
            "distribution" => config.delay.distribution = self.distribution()?,
            "duplicate" => config.duplicate = self.chance()?,
            "corrupt" => config.corrupt = self.chance()?,
            "reorder" => {
                let chance = self.chance()?;
                config.reorder = Some(Reorder { chance, gap: 1 });
            }
            "loss" | "drop" => config.loss = self.loss()?,
            "rate" => {
                config.rate = Some(self.need("rate", units::rate)?);
                let packet = self.may(parse).unwrap_or_default();
                let cell = self.may(parse).unwrap_or_default();
                let per_cell = self.may(parse).unwrap_or_default();
                config.overhead = Overhead { packet, cell, per_cell };
            }
            "slot" => config.slot = Some(self.slot()?),
            // The names of what follows `slot`.
            "packets" => self.slot_of(config)?.packets = self.number()?,
            _ => self.slot_of(config)?.bytes = self.number()?,
        }
        Ok(())
    }

    fn loss(&mut self) -> Result<Loss, OptionError> {
        match self.words.first().copied() {
            Some("state") => {
                self.words = &self.words[1..];
                let mut model = FourState::new(self.share()?);
                for place in [&mut model.p31, &mut model.p32, &mut model.p23, &mut model.p14] {
                    *place = self.may(units::percent).unwrap_or(*place);
                }
                Ok(Loss::State(model))
            }
            Some("gemodel") => {
                self.words = &self.words[1..];
                let mut model = Gemodel::new(self.share()?);
                for place in [&mut model.r, &mut model.bad_loss, &mut model.good_loss] {
                    *place = self.may(units::percent).unwrap_or(*place);
                }
                Ok(Loss::Gemodel(model))
            }
            word => {
                if word == Some("random") {
                    self.words = &self.words[1..];
                }
                Ok(Loss::Random(self.chance()?))
            }
        }
    }

    fn slot(&mut self) -> Result<Slot, OptionError> {
        let wait = if self.words.first() == Some(&"distribution") {
            self.words = &self.words[1..];
            let distribution = self.distribution()?;
            SlotWait::Distributed(self.time()?, self.time()?, distribution)
        } else {
            let min = self.time()?;
            SlotWait::Between(min, self.may(time).unwrap_or(min))
        };
        Ok(Slot { wait, packets: 0, bytes: 0 })
    }

    fn slot_of<'c>(&self, config: &'c mut LinkConfig) -> Result<&'c mut Slot, OptionError> {
        config.slot.as_mut().ok_or_else(|| OptionError::Unknown(self.option.to_owned()))
    }

    fn distribution(&mut self) -> Result<Distribution, OptionError> {
        let name = self.need("name", |word| Some(word.to_owned()))?;
        if let Some(distribution) = Distribution::named(&name) {
            return Ok(distribution);
        }
        match (self.load)(&name) {
            None => Err(OptionError::NoDistribution(name)),
            Some(text) => {
                Distribution::parse(&text).map_err(|e| OptionError::Distribution(name, e))
            }
        }
    }

    fn chance(&mut self) -> Result<Chance, OptionError> {
        let probability = self.share()?;
        let correlation = self.may(units::percent).unwrap_or_default();
        Ok(Chance { probability, correlation })
    }

    fn share(&mut self) -> Result<f64, OptionError> {
        self.need("percentage", units::percent)
    }

    fn time(&mut self) -> Result<Duration, OptionError> {
        self.need("time", time)
    }

    fn number<T: FromStr>(&mut self) -> Result<T, OptionError> {
        self.need("number", parse)
    }

    /// The next word, which stays; empty at the end.
    fn peek(&self) -> &'a str {
        self.words.first().copied().unwrap_or_default()
    }

    /// Takes the next word, a name, and the value after it.
    fn word_and<T>(
        &mut self,
        wanted: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, OptionError> {
        self.words = &self.words[1..];
        self.need(wanted, read)
    }

    /// The next word, which must be there.
    fn need<T>(
        &mut self,
        wanted: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, OptionError> {
        let found = self.words.first().copied();
        self.may(read).ok_or_else(|| {
            let found = found.map_or("nothing".to_owned(), |word| format!("\"{word}\""));
            OptionError::Value { option: self.option, wanted, found }
        })
    }

    /// The next word, if it is one of this kind.
    fn may<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let (word, rest) = self.words.split_first()?;
        let value = read(word)?;
        self.words = rest;
        Some(value)
    }
}

const NAMES: [&str; 18] = [
    "limit",
    "single",
    "gap",
    "seed",
    "ordered",
    "ecn",
    "delay",
    "latency",
    "distribution",
    "duplicate",
    "corrupt",
    "reorder",
    "loss",
    "drop",
    "rate",
    "slot",
    "packets",
    "bytes",
];

fn time(word: &str) -> Option<Duration> {
    units::time(word, Duration::from_micros(1))
}

fn parse<T: FromStr>(word: &str) -> Option<T> {
    word.parse().ok()
}
