//! Format 2 at the splitter: what is said about contexts, and streams that are silent.

use crate::Error;
use crate::layout::Plain;
use crate::split_layout::{
    Context, ContextName, Event, ITEMS, Item, Made, NAMED, STREAMS, STREAMS_UNNAMED, Stream,
    StreamName,
};
use aya::maps::{Array, HashMap, MapData, MapError, RingBuf};
use bytemuck::Pod;
use sheaf_stage::{Duration, Instant};
use sheaf_wire::compress::feedback::{self, Feedback};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// A stream that was silent for so long has no session: with calls go reports every 5 s at least
/// (RTCP, RFC 3550, section 6.2), and twelve in a row are not lost.
const SILENT: Duration = Duration::from_secs(60);
/// Streams that are kept, of all senders and of those without a name. The others are room for what
/// comes before the next sweep: as many neighbours with all their tags as come in a second.
const KEPT: usize = STREAMS - 48;
const KEPT_UNNAMED: usize = STREAMS_UNNAMED - 48;

/// Direction of a [`Message`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To be sent: it is about what came.
    ToSay,
    /// Received: it is about what was sent.
    Heard,
}

/// A message about contexts between a splitter and who sends to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Direction.
    pub direction: Direction,
    /// The other end, which sent a frame or this message.
    pub peer: IpAddr,
    /// This host's address, to which it was sent.
    pub own: IpAddr,
    /// The message; it has items.
    pub feedback: Feedback,
}

/// The messages of a splitter, in their order. Its descriptor is readable when there is one.
///
/// Who loses some loses little: the splitter says again what is missing with each frame.
pub struct Messages {
    ring: RingBuf<MapData>,
}

impl Messages {
    /// Of the map `events`. Messages that nobody has read before are forgotten.
    pub(crate) fn new(events: &MapData) -> Result<Messages, Error> {
        let fd = events.fd().as_fd().try_clone_to_owned()?;
        let map = aya::maps::Map::RingBuf(MapData::from_fd(fd)?);
        let mut messages = Messages { ring: map.try_into()? };
        while messages.ring.next().is_some() {}
        Ok(messages)
    }
}

impl Iterator for Messages {
    type Item = Message;

    /// The next message; `None`: there is none now.
    fn next(&mut self) -> Option<Message> {
        loop {
            let bytes = self.ring.next()?;
            // The program writes none that cannot be read.
            if let Some(message) = parse(&bytes) {
                return Some(message);
            }
        }
    }
}

impl AsFd for Messages {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring buffer keeps its descriptor open as long as `self` lives.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

fn parse(bytes: &[u8]) -> Option<Message> {
    let (event, rest): (Event, _) = read(bytes)?;
    let count = event.count as usize;
    let (direction, feedback) = match event.kind {
        0 => (Direction::ToSay, items(event.stream.tag as u8, rest.get(..count.min(ITEMS) * 8)?)?),
        _ => (Direction::Heard, Feedback::parse(rest.get(..count)?).ok()?),
    };
    let (peer, own) = (unmapped(event.stream.source), unmapped(event.stream.destination));
    Some(Message { direction, peer, own, feedback })
}

/// The message of the items in `bytes`, about the stream with this tag.
fn items(tag: u8, mut bytes: &[u8]) -> Option<Feedback> {
    let mut feedback = Feedback::default();
    while !bytes.is_empty() {
        let (Item { kind, number, generation, check }, rest) = read(bytes)?;
        feedback.push(match kind {
            1 => feedback::Item::Known { tag, number, generation, check },
            2 => feedback::Item::Unknown { tag, number },
            _ => feedback::Item::Lost { tag },
        });
        bytes = rest;
    }
    Some(feedback)
}

/// A structure at the start of `bytes`, and what follows it.
fn read<T: Pod>(bytes: &[u8]) -> Option<(T, &[u8])> {
    let (head, rest) = bytes.split_at_checked(size_of::<T>())?;
    Some((bytemuck::pod_read_unaligned(head), rest))
}

fn unmapped(address: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(address).to_canonical()
}

/// The streams of a splitter and their contexts.
pub(crate) struct Streams {
    pub streams: HashMap<MapData, Plain<StreamName>, Plain<Stream>>,
    pub contexts: HashMap<MapData, Plain<ContextName>, Plain<Context>>,
    pub made: Array<MapData, Plain<Made>>,
}

/// Number of streams and contexts of senders without a name that were removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Swept {
    pub streams: u32,
    pub contexts: u32,
}

impl Streams {
    /// Removes the streams that have been silent for long at `now`, and, where there is little
    /// room, those that were silent for longest: first of senders that the configuration does not
    /// name.
    pub fn sweep(&mut self, now: Instant) -> Result<Swept, Error> {
        // First: what is made from now on is not on the list, and lives.
        let Plain(Made { ids, .. }) = self.made.get(&0, 0)?;
        let mut streams = Vec::new();
        for stream in self.streams.iter() {
            let (Plain(name), Plain(Stream { id, last, .. })) = stream?;
            streams.push((id & NAMED, last, id, name));
        }
        streams.sort_by_key(|(named, last, ..)| (*named, *last));
        let (count, mut left) = (streams.len(), streams.len());
        let mut unnamed = streams.iter().filter(|(named, ..)| *named == 0).count();
        let mut swept = Swept::default();
        let mut alive = BTreeSet::new();
        for (named, last, id, name) in streams {
            let silent = now.saturating_since(Instant::from_nanos(last)) >= SILENT;
            if !silent && left <= KEPT && (named != 0 || unnamed <= KEPT_UNNAMED) {
                alive.insert(id);
                continue;
            }
            left -= 1;
            if removed(self.streams.remove(&Plain(name)))? && named == 0 {
                swept.streams += 1;
            }
            unnamed -= usize::from(named == 0);
        }
        if left < count {
            swept.contexts = self.sweep_contexts(ids, &alive)?;
        }
        Ok(swept)
    }

    /// Removes the contexts of streams that are gone: below number `ids` and not `alive`.
    fn sweep_contexts(&mut self, ids: u32, alive: &BTreeSet<u32>) -> Result<u32, Error> {
        let dead = |name: &ContextName| {
            ids.wrapping_sub(name.stream) as i32 > 0 && !alive.contains(&name.stream)
        };
        let names = self.contexts.keys().collect::<Result<Vec<_>, _>>()?;
        let mut unnamed = 0;
        for Plain(name) in names {
            if dead(&name) && removed(self.contexts.remove(&Plain(name)))? {
                unnamed += u32::from(name.stream & NAMED == 0);
            }
        }
        Ok(unnamed)
    }
}

/// Whether an entry was removed; it may have gone before.
fn removed(result: Result<(), MapError>) -> Result<bool, Error> {
    match result {
        Ok(()) => Ok(true),
        Err(MapError::KeyNotFound) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
