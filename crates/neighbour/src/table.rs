//! The neighbours that were heard, at most [`MAX_NEIGHBOURS`].
//!
//! Principle: a neighbour with which the kernel exchanges packets is *present*, and keeps its
//! place. When the table is full, a newcomer takes the place of one that is not present, drawn at
//! random. So made-up neighbours fill no memory, cannot push out those that matter, and keep nobody
//! out once they end.

use crate::LinkAddress;
use crate::timetable::Random;
use sheaf_stage::{Duration, Instant};
use sheaf_wire::hello::{Node, Report, SILENT_PERIODS, Splits, UNLIMITED};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Neighbours that are remembered: a radio link has tens, and the kernel's own table holds 1024 at
/// most by default (net.ipv4.neigh.default.gc_thresh3).
pub const MAX_NEIGHBOURS: usize = 1024;
/// Weight of one HELLO in the share that is heard: about the last 16 count.
const WEIGHT: f64 = 1.0 / 16.0;
/// HELLOs lost in a row that count in the share; beyond it was away, and the share starts over.
const MOST_LOST: u32 = 16;

/// One neighbour.
#[derive(Clone, Debug)]
pub struct Neighbour {
    /// The run of its service.
    pub node: Node,
    /// Abilities of its splitter, as it says; `None` without one.
    pub splits: Option<Splits>,
    /// Largest packet that it wants to be sent, in bytes of IP; [`UNLIMITED`] for any.
    pub largest: u16,
    /// Share of our HELLOs that it hears, 0.0 to 1.0, where it said so.
    pub hears: Option<f64>,
    /// Share of its HELLOs that are heard here, 0.0 to 1.0.
    pub heard: f64,
    /// Time within which its next HELLO leaves.
    pub period: Duration,
    /// Time of its first HELLO.
    pub since: Instant,
    /// Time of its last HELLO.
    pub last: Instant,
    /// Number of times that it started again.
    pub restarts: u32,
    /// The IP address that its last HELLO came from; `None` where nobody said.
    pub source: Option<IpAddr>,
    pub(crate) sequence: u32,
    /// Largest packet that it should send here.
    pub(crate) limit: u16,
    /// With a key: number of our newest HELLO that it has listed.
    proof: Option<u32>,
    present: bool,
}

impl Neighbour {
    pub(crate) fn new(node: Node, sequence: u32, period: Duration, now: Instant) -> Neighbour {
        Neighbour {
            node,
            splits: None,
            largest: UNLIMITED,
            hears: None,
            heard: 1.0,
            period,
            since: now,
            last: now,
            restarts: 0,
            source: None,
            sequence,
            limit: UNLIMITED,
            proof: None,
            present: false,
        }
    }

    /// Whether it has listed a HELLO of ours of late: what it says is no recording. Without a key
    /// nothing is proven.
    pub fn is_proven(&self) -> bool {
        self.proof.is_some()
    }

    /// Whether a HELLO of another run that lists our HELLO number `sequence` is newer than all that
    /// this run has listed. A recording of a former run lists none that is.
    pub(crate) fn gives_way_to(&self, sequence: u32) -> bool {
        // Half of the numbers are ahead (RFC 1982).
        let ahead = |proof| (1..=u32::MAX / 2).contains(&sequence.wrapping_sub(proof));
        self.proof.is_none_or(ahead)
    }

    /// Whether the kernel exchanges packets with it.
    pub fn is_present(&self) -> bool {
        self.present
    }

    /// Notes a HELLO with a number `ahead` of the last.
    pub(crate) fn came(&mut self, sequence: u32, ahead: u32, period: Duration, now: Instant) {
        match ahead {
            1..=MOST_LOST => {
                (1..ahead).for_each(|_| self.heard -= self.heard * WEIGHT);
                self.heard += (1.0 - self.heard) * WEIGHT;
            }
            _ => self.heard = 1.0,
        }
        (self.sequence, self.period, self.last) = (sequence, period, now);
    }

    pub(crate) fn set_present(&mut self, present: bool) {
        self.present = present;
    }

    /// It has listed our HELLO number `sequence`.
    pub(crate) fn prove(&mut self, sequence: u32) {
        if self.gives_way_to(sequence) {
            self.proof = Some(sequence);
        }
    }

    /// The report about it.
    pub(crate) fn report(&self) -> Report {
        Report {
            node: self.node,
            sequence: self.sequence,
            largest: self.limit,
            heard: (self.heard * 255.0) as u8,
        }
    }

    /// Time at which it is gone unless it is heard; silence counts from `from` on at the earliest.
    pub(crate) fn expires(&self, from: Instant) -> Instant {
        self.last.max(from) + self.period * SILENT_PERIODS
    }
}

/// All neighbours.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    neighbours: BTreeMap<LinkAddress, Neighbour>,
}

impl Table {
    pub fn get(&self, address: LinkAddress) -> Option<&Neighbour> {
        self.neighbours.get(&address)
    }

    pub fn get_mut(&mut self, address: LinkAddress) -> Option<&mut Neighbour> {
        self.neighbours.get_mut(&address)
    }

    pub fn len(&self) -> usize {
        self.neighbours.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (LinkAddress, &Neighbour)> {
        self.neighbours.iter().map(|(address, neighbour)| (*address, neighbour))
    }

    /// All neighbours, those behind `address` first.
    pub fn iter_behind(
        &self,
        address: LinkAddress,
    ) -> impl Iterator<Item = (LinkAddress, &Neighbour)> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let behind = self.neighbours.range((Excluded(address), Unbounded));
        let before = self.neighbours.range((Unbounded, Included(address)));
        behind.chain(before).map(|(address, neighbour)| (*address, neighbour))
    }

    pub fn remove(&mut self, address: LinkAddress) -> Option<Neighbour> {
        self.neighbours.remove(&address)
    }

    /// Adds a neighbour, in the place of another where there is none; `false` where all places
    /// belong to neighbours that are present.
    pub fn insert(
        &mut self,
        address: LinkAddress,
        neighbour: Neighbour,
        random: &mut Random,
    ) -> bool {
        if self.neighbours.len() >= MAX_NEIGHBOURS && !self.neighbours.contains_key(&address) {
            let mut start = [0; 6];
            start.copy_from_slice(&random.number().to_be_bytes()[..6]);
            let absent = self.iter_behind(start).find(|(_, one)| !one.present);
            let Some((absent, _)) = absent else { return false };
            self.neighbours.remove(&absent);
        }
        self.neighbours.insert(address, neighbour);
        true
    }

    /// Takes note of those with which the kernel exchanges packets.
    pub fn set_present(&mut self, is_present: impl Fn(&LinkAddress) -> bool) {
        for (address, neighbour) in &mut self.neighbours {
            neighbour.set_present(is_present(address));
        }
    }
}
