//! Streams and contexts of format 2 at the merging program, as far as user space has a part in
//! them: it takes note of what splitters say, and forgets what is not used any more.
//!
//! The program changes a context under the context's lock, and user space reads and writes it as a
//! whole under the same lock (BPF_F_LOCK). A packet may come in between; `compress.h` has the
//! reasons why that does no harm.

use crate::Error;
use crate::batch::Buffer;
use crate::frames::Base;
use crate::layout::{Plain, QueueKey};
use aya::maps::{HashMap, IterableMap, MapData, MapError};
use bytemuck::{Pod, Zeroable};
use sheaf_stage::{Duration, Instant};
use sheaf_wire::compress::feedback::{Feedback, Item};
use sheaf_wire::compress::{self, IdRule, MAX_HEADERS, Rules};

/// Flags of linux/bpf.h: only what exists is written, and under its lock.
const BPF_EXIST: u64 = 2;
const BPF_F_LOCK: u64 = 4;

/// First pause between two definitions of a context, as in `aggregate`'s compressor.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Further frames with explicit time stamps, as there.
const REPEATS: u8 = 2;
/// After so long without a packet a context is forgotten, and a stream. A call with a longer
/// silence costs two full packets; longer than a tag or a number is kept from others (2 s).
const IDLE: Duration = Duration::from_secs(60);

/// Place of the second and the third kind of state in `enum state`.
const DEFINING: u8 = 1;
const KNOWN: u8 = 2;

/// `struct stream_key`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct StreamKey {
    hop: u32,
    tag: u32,
}

/// `struct stream`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Stream {
    key: QueueKey,
    last_used: u64,
    sequence: u32,
    cursor: u32,
    epoch: u32,
    pad: u32,
}

/// `struct flow_key`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct FlowKey {
    stream: StreamKey,
    words: [u32; 9],
}

/// `struct number_key`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct NumberKey {
    stream: StreamKey,
    number: u32,
}

/// `struct number`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Number {
    flow: FlowKey,
    epoch: u32,
    last_used: u64,
}

/// `struct sample`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
struct Sample {
    timestamp: u32,
    source: u32,
    id: u16,
    sequence: u16,
    payload_type: u8,
    marker: u8,
    has_id: u8,
    is_rtp: u8,
}

/// `struct context`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Context {
    lock: u32,
    epoch: u32,
    last_used: u64,
    next: u64,
    pause: u32,
    frame: u32,
    strained: u32,
    relearned: u32,
    sample: Sample,
    lines: [Base; 2],
    newest: u16,
    before: [u16; 2],
    generation: u16,
    payload: u16,
    stride: u16,
    id: u16,
    number: u8,
    state: u8,
    repeats: u8,
    rtp: u8,
    id_rule: u8,
    headers: u8,
    template: [u32; MAX_HEADERS / 4],
}

impl Context {
    /// CRC-32 by which an acknowledgement names the definition.
    fn check(&self) -> u32 {
        let id = match self.id_rule {
            0 => IdRule::Constant,
            1 => IdRule::Follows,
            _ => IdRule::Explicit,
        };
        let rules = Rules { rtp: self.rtp != 0, id, stride: self.stride };
        let mut template = [0; MAX_HEADERS];
        template.copy_from_slice(bytemuck::cast_slice(&self.template));
        compress::Context::from_parts(template, rules, self.payload, self.id).check(self.number)
    }

    /// Takes note of what the splitter said of this context at `now`, as the model's compressor
    /// does. Returns whether anything changed.
    fn said(&mut self, item: &Item, now: Instant) -> bool {
        let again = match *item {
            Item::Known { generation, check, .. } => {
                if self.state != DEFINING || self.check() != check {
                    return false;
                }
                // Of several definitions, the last may be the one that did not arrive.
                let several = Duration::from_nanos(self.pause.into()) > FIRST_PAUSE * 2;
                self.repeats = if several { REPEATS + 1 } else { 0 };
                (self.state, self.generation, self.strained) = (KNOWN, generation, 0);
                return true;
            }
            Item::Unknown { .. } => self.state == KNOWN,
            Item::Lost { .. } => [KNOWN, DEFINING].contains(&self.state),
        };
        if again {
            self.state = DEFINING;
            (self.next, self.pause) = (now.as_nanos(), FIRST_PAUSE.as_nanos() as u32);
        }
        again
    }
}

/// The maps of streams and contexts.
pub(crate) struct Contexts {
    streams: HashMap<MapData, Plain<StreamKey>, Plain<Stream>>,
    contexts: HashMap<MapData, Plain<FlowKey>, Plain<Context>>,
    numbers: HashMap<MapData, Plain<NumberKey>, Plain<Number>>,
}

impl Contexts {
    /// Of the maps `streams`, `contexts` and `numbers`.
    pub fn new(
        streams: HashMap<MapData, Plain<StreamKey>, Plain<Stream>>,
        contexts: HashMap<MapData, Plain<FlowKey>, Plain<Context>>,
        numbers: HashMap<MapData, Plain<NumberKey>, Plain<Number>>,
    ) -> Contexts {
        Contexts { streams, contexts, numbers }
    }

    /// Takes note of what next hop `hop` said at `now`.
    pub fn said(&mut self, hop: u32, feedback: &Feedback, now: Instant) -> Result<(), Error> {
        for item in feedback.items() {
            let (Item::Known { tag, .. } | Item::Unknown { tag, .. } | Item::Lost { tag }) = *item;
            let stream = StreamKey { hop, tag: tag.into() };
            let Some(Plain(Stream { epoch, .. })) = there(self.streams.get(&Plain(stream), 0))?
            else {
                continue;
            };
            let flows = match *item {
                Item::Known { number, .. } | Item::Unknown { number, .. } => {
                    let key = NumberKey { stream, number: number.into() };
                    self.context(key)?.map(|(flow, _)| flow).into_iter().collect()
                }
                Item::Lost { .. } => self.flows(|flow, _| flow.stream == stream)?,
            };
            for flow in flows.into_iter().map(Plain) {
                // It may be gone by now, or go before it is written.
                let context = there(self.contexts.get(&flow, BPF_F_LOCK))?;
                let Some(Plain(mut context)) = context else { continue };
                if context.epoch == epoch && context.said(item, now) {
                    let flags = BPF_EXIST | BPF_F_LOCK;
                    there(self.contexts.insert(flow, Plain(context), flags))?;
                }
            }
        }
        Ok(())
    }

    /// The context that has the number of `key`, and its flow.
    fn context(&self, key: NumberKey) -> Result<Option<(FlowKey, Context)>, Error> {
        let Some(Plain(number)) = there(self.numbers.get(&Plain(key), 0))? else {
            return Ok(None);
        };
        let context = there(self.contexts.get(&Plain(number.flow), BPF_F_LOCK))?;
        let context = context.map(|Plain(context)| (number.flow, context));
        Ok(context.filter(|(_, context)| u32::from(context.number) == key.number))
    }

    /// The flows that are `wanted`, by few system calls.
    fn flows(&self, wanted: impl Fn(&FlowKey, &Context) -> bool) -> Result<Vec<FlowKey>, Error> {
        let mut contexts = Buffer::<FlowKey, Context>::default();
        let contexts = contexts.read(self.contexts.map())?;
        Ok(contexts.filter(|(flow, one)| wanted(flow, one)).map(|(flow, _)| *flow).collect())
    }

    /// Forgets what was not used since [`IDLE`] before `now`.
    pub fn forget_idle(&mut self, now: Instant) -> Result<(), Error> {
        let idle = |used: u64| now.saturating_since(Instant::from_nanos(used)) >= IDLE;
        for flow in self.flows(|_, context| idle(context.last_used))? {
            there(self.contexts.remove(&Plain(flow)))?;
        }
        let mut numbers = Buffer::<NumberKey, Number>::default();
        let numbers = numbers.read(self.numbers.map())?;
        let keys: Vec<_> =
            numbers.filter(|(_, one)| idle(one.last_used)).map(|(key, _)| *key).collect();
        for key in keys {
            // One that is still in use was taken long ago, too.
            if self.context(key)?.is_none() {
                there(self.numbers.remove(&Plain(key)))?;
            }
        }
        let streams: Vec<_> = self.streams.iter().collect::<Result<_, _>>()?;
        for (key, Plain(stream)) in streams {
            if idle(stream.last_used) {
                there(self.streams.remove(&key))?;
            }
        }
        Ok(())
    }
}

/// `None` where the entry is not there, or no longer.
fn there<T>(result: Result<T, MapError>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(MapError::KeyNotFound) => Ok(None),
        Err(MapError::SyscallError(error))
            if error.io_error.raw_os_error() == Some(libc::ENOENT) =>
        {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirrors::{same, structures};

    #[test]
    fn structures_are_laid_out_as_in_c() {
        let merge = structures(include_bytes!(concat!(env!("OUT_DIR"), "/merge.bpf.o")));
        same!(merge, "stream_key", StreamKey { hop, tag });
        same!(merge, "stream", Stream { key, last_used, sequence, cursor, epoch, pad });
        same!(merge, "flow_key", FlowKey { stream, words });
        same!(merge, "number_key", NumberKey { stream, number });
        same!(merge, "number", Number { flow, epoch, last_used });
        same!(
            merge,
            "sample",
            Sample { timestamp, source, id, sequence, payload_type, marker, has_id, is_rtp }
        );
        same!(
            merge,
            "context",
            Context {
                lock,
                epoch,
                last_used,
                next,
                pause,
                frame,
                strained,
                relearned,
                sample,
                lines,
                newest,
                before,
                generation,
                payload,
                stride,
                id,
                number,
                state,
                repeats,
                rtp,
                id_rule,
                headers,
                template,
            }
        );
    }
}
