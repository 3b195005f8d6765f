//! Headers that the other end knows are not sent again.
//!
//! The context of a flow ([`Context`]) is said when the flow has had some packets, and used once
//! the other end has replied. So a packet depends on nothing that can be lost. It is said anew when
//! what changed since no longer fits the short forms, and used until the newer one is known.
//!
//! Bounds: 256 flows at a time, the first ones; a number goes to another flow when its own rests.
//! Nothing here has a timer: packets alone cause definitions, and each at most one a second.

use sheaf_stage::{Duration, Instant};
use sheaf_wire::trunk::Name;
use sheaf_wire::trunk::context::{Context, Fit, Headers};
use std::collections::VecDeque;

/// Flows with a context: numbers have 8 bits.
const FLOWS: usize = 256;
/// Packets of a flow after which its context is said. A definition and its reply take some 280
/// bytes, as much as eight segments save.
const WORTH: u32 = 8;
/// Least time between two definitions of a flow: longer than a round trip on nearly every path.
const SPACING: Duration = Duration::from_secs(1);
/// Time without a packet after which a flow's number may go to another.
const REST: Duration = Duration::from_secs(2);

/// A flow that has a number.
#[derive(Clone, Debug)]
struct Slot {
    /// The other end has this one.
    known: Option<(Context, Name)>,
    /// The newest context: known, offered or not sent yet. A packet of the flow matches it.
    newest: Context,
    /// Name of the newest.
    name: Name,
    /// The newest was said, and is not known.
    is_offered: bool,
    /// It is to be said.
    is_due: bool,
    said_at: Option<Instant>,
    packets: u32,
    used_at: Instant,
}

/// Packets sent with compressed headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompressStats {
    /// Packets.
    pub packets: u64,
    /// Bytes that their headers would have taken more.
    pub saved: u64,
    /// Definitions sent.
    pub definitions: u64,
}

/// The contexts of a sender.
#[derive(Debug)]
pub(crate) struct Compressor {
    seed: u64,
    /// Empty while the other end restores nothing.
    slots: Vec<Option<Slot>>,
    /// Numbers of contexts to be said.
    due: VecDeque<u8>,
    stats: CompressStats,
}

impl Compressor {
    /// Without contexts. `seed`: a number that others do not know.
    pub fn new(seed: u64) -> Compressor {
        let (slots, due) = (Vec::new(), VecDeque::new());
        Compressor { seed, slots, due, stats: CompressStats::default() }
    }

    /// Begins anew, as the other end knows nothing. `is_on`: it restores headers.
    pub fn restart(&mut self, is_on: bool) {
        self.due.clear();
        self.slots.clear();
        self.slots.resize(if is_on { FLOWS } else { 0 }, None);
    }

    /// Writes the compressed headers of a packet over `out`, and returns its payload; `None`: the
    /// packet has to go as it is.
    pub fn compress<'a>(
        &mut self,
        packet: &'a [u8],
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        if self.slots.is_empty() {
            return None;
        }
        let headers = Headers::read(packet)?;
        let id = self.number(&headers, now)?;
        let slot = self.slots[usize::from(id)].as_mut().expect("it has a number");
        slot.used_at = now;
        slot.packets = slot.packets.saturating_add(1);
        out.clear();
        let known = slot.known.as_ref();
        let fit = known.map(|(context, name)| context.compress(*name, &headers, out));
        let is_wanted = match fit {
            Some(fit) => fit == Fit::Far,
            None => slot.packets >= WORTH,
        };
        if is_wanted && slot.said_at.is_none_or(|at| now - at >= SPACING) {
            if !slot.is_offered {
                slot.newest = Context::new(&headers);
                slot.name = slot.name.next();
                slot.is_offered = true;
            }
            slot.said_at = Some(now);
            if !std::mem::replace(&mut slot.is_due, true) {
                self.due.push_back(id);
            }
        }
        fit?;
        self.stats.packets += 1;
        self.stats.saved += headers.header_len().saturating_sub(out.len()) as u64;
        Some(headers.payload())
    }

    /// The number of a packet's flow: the one it has, or a free one.
    fn number(&mut self, headers: &Headers<'_>, now: Instant) -> Option<u8> {
        let hash = headers.hash(self.seed);
        // Two places for each flow: with one, a tenth of 50 flows would share theirs.
        let places = [hash as u8, (hash >> 8) as u8];
        let slot = |id: u8| self.slots[usize::from(id)].as_ref();
        let is_own = |id: &u8| slot(*id).is_some_and(|slot| slot.newest.is_of(headers));
        if let Some(id) = places.into_iter().find(is_own) {
            return Some(id);
        }
        let is_free = |id: &u8| slot(*id).is_none_or(|slot| now - slot.used_at >= REST);
        let id = places.into_iter().find(is_free)?;
        // The other end may have a context of this number: the next is another generation.
        let before = slot(id).map_or(Name { id, generation: 0 }, |slot| slot.name);
        self.slots[usize::from(id)] = Some(Slot {
            known: None,
            newest: Context::new(headers),
            name: before,
            is_offered: false,
            is_due: slot(id).is_some_and(|slot| slot.is_due),
            said_at: None,
            packets: 0,
            used_at: now,
        });
        Some(id)
    }

    /// The next context to be said; it counts as said.
    pub fn pop_due(&mut self) -> Option<(Name, Context)> {
        while let Some(id) = self.due.pop_front() {
            let slot = self.slots[usize::from(id)].as_mut().expect("what is due has a number");
            slot.is_due = false;
            if slot.is_offered {
                self.stats.definitions += 1;
                return Some((slot.name, slot.newest));
            }
        }
        None
    }

    /// Whether a context is to be said.
    pub fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// The other end says that it has a context, or that it misses one.
    pub fn reply(&mut self, name: Name, has: bool) {
        let Some(slot) = self.slots.get_mut(usize::from(name.id)).and_then(Option::as_mut) else {
            return;
        };
        if has && slot.is_offered && slot.name == name {
            slot.known = Some((slot.newest, name));
            slot.is_offered = false;
        }
        if !has && slot.known.as_ref().is_some_and(|(_, known)| *known == name) {
            slot.known = None;
        }
    }

    /// Counters.
    pub fn stats(&self) -> CompressStats {
        self.stats
    }
}
