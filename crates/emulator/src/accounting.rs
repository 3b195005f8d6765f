//! Accounting of a link: the balance, counts by cause, and the log.

use crate::cause::Cause;
use crate::packet::Packet;
use core::fmt;
use sheaf_stage::{Counters, DropReason, Duration, Instant};
use sheaf_wire::header;
use std::sync::Arc;

/// An event of a packet, passed to a [`Log`] when it happens.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The packet, with its causes so far.
    pub packet: &'a Packet,
    /// The kind of event.
    pub cause: Cause,
    /// Its time, by the link's own arithmetic.
    pub at: Instant,
}

/// A function that is called with every event, for example by a capture that comments its packets.
/// Several links may call it, so it keeps its state behind a lock or a channel.
pub type Log = Arc<dyn Fn(&Event<'_>) + Send + Sync>;

/// Packets and bytes of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Packets.
    pub packets: u64,
    /// Bytes, as the packets have them: without overhead, and without what stands before them.
    pub bytes: u64,
}

impl Backlog {
    pub(crate) fn add(&mut self, packet: &Packet) {
        self.packets += 1;
        self.bytes += packet.size() as u64;
    }

    pub(crate) fn join(&mut self, other: Backlog) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }

    pub(crate) fn remove(&mut self, packet: &Packet) {
        self.packets -= 1;
        self.bytes -= packet.size() as u64;
    }
}

/// Counters of a link, and its contents now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    by_cause: [u64; Cause::ALL.len()],
    /// The rate queue, the packet that is being sent included.
    pub rate_queue: Backlog,
    /// The delay line.
    pub delay_line: Backlog,
    /// Packets that came in, duplicates of earlier links included.
    pub offered: Backlog,
    /// Packets that left, duplicates included.
    pub delivered: Backlog,
    /// Standstills for the bound on bursts, after late calls.
    pub standstills: u64,
    /// Time that was lost in them.
    pub stood_still: Duration,
}

impl Stats {
    /// Packets, duplicates included, that `cause` happened to.
    pub fn count(&self, cause: Cause) -> u64 {
        self.by_cause[cause as usize]
    }

    /// Adds the counters and the contents of another link.
    pub(crate) fn add(&mut self, other: &Stats) {
        for (own, other) in self.by_cause.iter_mut().zip(other.by_cause) {
            *own += other;
        }
        for (own, other) in [
            (&mut self.rate_queue, other.rate_queue),
            (&mut self.delay_line, other.delay_line),
            (&mut self.offered, other.offered),
            (&mut self.delivered, other.delivered),
        ] {
            own.join(other);
        }
        self.standstills += other.standstills;
        self.stood_still += other.stood_still;
    }
}

/// Counts, logs, and keeps the buffers of packets that are gone.
#[derive(Default)]
pub(crate) struct Accounting {
    pub counters: Counters,
    pub stats: Stats,
    pub log: Option<Log>,
    /// Duplicates in the link, which the balance leaves out.
    pub copies: u64,
    spare: Vec<Vec<u8>>,
}

/// Buffers kept for duplicates.
const SPARE: usize = 64;

impl Accounting {
    pub fn take_in(&mut self, packet: &Packet) {
        self.stats.offered.add(packet);
        if packet.is_copy() {
            self.copies += 1;
        } else {
            self.counters.packets_in += 1;
        }
    }

    pub fn give_out(&mut self, packet: &Packet) {
        self.stats.delivered.add(packet);
        if packet.is_copy() {
            self.copies -= 1;
        } else {
            self.counters.packets_out += 1;
        }
    }

    /// Counts and logs what happened to a packet that goes on.
    pub fn note(&mut self, packet: &mut Packet, cause: Cause, at: Instant) {
        packet.causes.insert(cause);
        self.stats.by_cause[cause as usize] += 1;
        if let Some(log) = &self.log {
            log(&Event { packet, cause, at });
        }
    }

    /// Counts and logs a drop, and returns its reason.
    pub fn drop(&mut self, packet: Packet, cause: Cause, at: Instant) -> DropReason {
        self.copies -= u64::from(packet.is_copy());
        self.turn_away(packet, cause, at)
    }

    /// Counts and logs the drop of a packet that no link has taken in, and returns its reason.
    pub fn turn_away(&mut self, mut packet: Packet, cause: Cause, at: Instant) -> DropReason {
        let reason = cause.drop_reason().expect("packets are dropped for a cause that drops");
        self.note(&mut packet, cause, at);
        // The balance leaves copies out.
        if !packet.is_copy() {
            self.counters.drop(reason);
        }
        self.recycle(packet.bytes);
        reason
    }

    /// Marks a packet with CE; returns whether its sender understands that.
    pub fn mark(&mut self, packet: &mut Packet, ip: usize, cause: Cause, at: Instant) -> bool {
        let marked = header::set_ce(packet.bytes.get_mut(ip..).unwrap_or_default());
        if marked {
            self.note(packet, cause, at);
        }
        marked
    }

    pub fn recycle(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE {
            self.spare.push(buffer);
        }
    }

    pub fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }
}

impl fmt::Debug for Accounting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accounting")
            .field("counters", &self.counters)
            .field("copies", &self.copies)
            .field("logs", &self.log.is_some())
            .finish_non_exhaustive()
    }
}
