//! One direction as far as words have set it.

use super::queue_draft::QueueDraft;
use crate::emulate::files;
use anyhow::{Context, anyhow, ensure};
use sheaf_emulator::{
    Chance, ConfigError, Distribution, LinkConfig, Loss, Reorder, SlotWait, TraceConfig,
};
use sheaf_netio::{clock, vnet};
use std::path::Path;

/// Packets on one delay line: at 10 Gbit/s and 1500 bytes, 300 ms.
pub const DELAY_LIMIT: usize = 250_000;

/// One direction as far as words have set it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkDraft {
    pub config: LinkConfig,
    /// The shape of the jitter, where it is not uniform.
    pub shape: Option<Shape>,
    pub slot_shape: Option<Shape>,
    pub limit: Option<u64>,
    pub gap: Option<u32>,
    pub queue: QueueDraft,
    pub trace: Option<String>,
    pub light: Option<String>,
    pub once: bool,
    pub arm: bool,
    /// Numbers of lost packets, or a file of them, and after how many packets they begin again.
    pub pattern: (String, Option<u64>),
}

/// A distribution by its name, or a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    Named(Distribution),
    File(String),
}

impl Shape {
    /// The distribution `name`.
    pub fn of(name: &str) -> Shape {
        match Distribution::named(name) {
            Some(distribution) => Shape::Named(distribution),
            None => Shape::File(name.to_owned()),
        }
    }

    fn load(self, directory: &Path) -> anyhow::Result<Distribution> {
        let name = match self {
            Shape::Named(distribution) => return Ok(distribution),
            Shape::File(name) => name,
        };
        let text = files::distribution(&name, directory).with_context(|| {
            format!(
                "there is no distribution {name}; give uniform, normal, pareto, paretonormal, or a \
                 file"
            )
        })?;
        Distribution::parse(&text)
            .map_err(|error| anyhow!("distribution {name}, {error}; give a file of `emulate dist`"))
    }
}

impl LinkDraft {
    /// Whether no word has set anything.
    pub fn is_empty(&self) -> bool {
        *self == LinkDraft::default()
    }

    /// The link, for packets whose IP header begins at byte `header`; files are looked for in
    /// `directory`.
    pub fn finish(self, header: usize, directory: &Path) -> anyhow::Result<LinkConfig> {
        let LinkDraft {
            mut config,
            shape,
            slot_shape,
            limit,
            gap,
            queue,
            trace,
            light,
            once,
            arm,
            pattern,
        } = self;
        if let Some(shape) = shape {
            config.delay.distribution = shape.load(directory)?;
        }
        if let (Some(shape), Some(slot)) = (slot_shape, &mut config.slot)
            && let SlotWait::Distributed(_, _, distribution) = &mut slot.wait
        {
            *distribution = shape.load(directory)?;
        }
        if let Some(gap) = gap {
            // A gap alone means that every packet after it skips the delay, as in tc.
            let chance = config.reorder.map_or(Chance::of(1.0), |reorder| reorder.chance);
            config.reorder = Some(Reorder { chance, gap });
        }
        config.queue = queue.finish(config.rate, limit)?;
        config.link_header = header;
        config.delay_limit = DELAY_LIMIT;
        // The virtio header is not on any wire.
        config.overhead.packet = config.overhead.packet.saturating_sub(vnet::LEN as i32);
        ensure!(light.is_none() || trace.is_some(), "--light without a trace; add --trace FILE");
        ensure!(!once || trace.is_some(), "--once without a trace; add --trace FILE");
        ensure!(!arm || trace.is_some(), "--arm without a trace; add --trace FILE");
        if let Some(file) = trace {
            let trace = files::trace(&file, light.as_deref(), directory)?;
            let start = (!arm).then(clock::now);
            config.trace = Some(TraceConfig { trace, start, looped: !once });
        }
        if let Loss::Pattern(given) = &mut config.loss {
            let (list, period) = pattern;
            *given = files::loss_pattern(&list, period, directory)?.into();
        }
        config.check().map_err(|error| match error {
            ConfigError::Single => {
                anyhow!("single does not go with this kind of queue; leave out one of them")
            }
            ConfigError::BurstWithoutRate => {
                anyhow!("burst does not go with delivery opportunities; leave out one of them")
            }
            ConfigError::BurstBelowFrame { least, .. } => {
                anyhow!("{error}; give {least} or more")
            }
            error => anyhow!("{error}; give a value in its range"),
        })?;
        Ok(config)
    }
}
