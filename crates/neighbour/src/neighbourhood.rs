//! One router's view of its neighbours on one link.
//!
//! Principle: what a neighbour says holds until it says otherwise, says goodbye, starts again, or
//! is silent for five of its own periods (KAU, section 3.4). A HELLO only says what a router could
//! do; whoever sends frames on its word asks for a proof first (a probe), so that a lie costs the
//! liar's neighbours nothing but the probe.
//!
//! With a key, a HELLO counts only under its seal and with a new number, and only once it lists a
//! HELLO of this run of ours: a recording of yesterday's lists none. A neighbour that has started
//! again takes the place of its former run once it lists a newer HELLO of ours than that did.
//!
//! This is a state machine without I/O: it is told the time, and returns what changed.

use crate::LinkAddress;
use crate::config::Config;
use crate::table::{Neighbour, Table};
use crate::timetable::{EAGER, Random, Timetable};
use sheaf_stage::{Duration, Instant};
use sheaf_wire::hello::{
    self, Hello, MAX_LEN, Node, Report, Repr, SEALED_LEN, Splits, UNLIMITED, append_seal,
};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Numbers behind a neighbour's last that are late or doubled HELLOs. What is further behind,
/// without a key, is a neighbour whose last number was forged.
const LATE: u32 = 8;
/// HELLOs of ours of which a neighbour has heard one, or its own are no proof: its report is as old
/// as its last HELLO, and several of ours may leave meanwhile or get lost.
const RECENT: u32 = 32;
/// A limit is said soon when it changes by one part in so many: less is noise.
const CHANGE: u16 = 8;

/// Outcome of a HELLO that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing: the neighbour is there as before.
    Same,
    /// The neighbour is new, or was gone.
    Appeared,
    /// It has started again.
    Restarted,
    /// Its abilities, or the size that it wants, are others; or it is proven now.
    Changed,
    /// It said goodbye.
    Left,
}

/// Reason for which a HELLO is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// It cannot be read.
    Malformed(hello::Refusal),
    /// It is this router's own, that a bridge has sent back or a host repeats.
    Own,
    /// Its number is not above the last one: late, doubled or repeated.
    Old,
    /// It has no seal, and a key is set.
    Unsealed,
    /// Its seal is wrong: another key, or forged.
    WrongSeal,
    /// With a key: a goodbye that lists no HELLO of ours of late, or another run of a proven
    /// neighbour that lists none newer than that one did.
    Unproven,
    /// All places belong to neighbours with which packets are exchanged.
    Full,
    /// A goodbye of somebody unknown.
    Unknown,
}

impl Refusal {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Refusal::Malformed(_) => "malformed",
            Refusal::Own => "own",
            Refusal::Old => "old",
            Refusal::Unsealed => "no-seal",
            Refusal::WrongSeal => "wrong-seal",
            Refusal::Unproven => "unproven",
            Refusal::Full => "no-place",
            Refusal::Unknown => "unknown",
        }
    }
}

/// The state of one router on one link.
#[derive(Clone, Debug)]
pub struct Neighbourhood {
    config: Config,
    address: LinkAddress,
    node: Node,
    sequence: u32,
    timetable: Timetable,
    table: Table,
    /// HELLOs to come that ask others for theirs.
    asks: u32,
    /// The neighbour that was reported last, where not all had room.
    reported: LinkAddress,
    /// Since then HELLOs are not dropped before they are heard.
    deaf: Instant,
    /// No neighbour expires before.
    expiry: Instant,
    random: Random,
}

impl Neighbourhood {
    /// A router with the link address `address`, of which nobody knows. `node` is random, another
    /// one at each start.
    pub fn new(config: Config, address: LinkAddress, node: Node, now: Instant) -> Neighbourhood {
        let mut random = Random(node.0);
        let timetable = Timetable::new(config.period, config.rest_rate, random.number(), now);
        Neighbourhood {
            config,
            address,
            node,
            sequence: 0,
            timetable,
            table: Table::default(),
            asks: EAGER,
            reported: [0; 6],
            deaf: Instant::ZERO,
            expiry: Instant::MAX,
            random,
        }
    }

    /// Our own run.
    pub fn node(&self) -> Node {
        self.node
    }

    /// The splitter came, went, or can do something else; neighbours hear of it soon.
    pub fn set_own_splits(&mut self, splits: Option<Splits>, now: Instant) {
        if std::mem::replace(&mut self.config.splits, splits) != splits {
            self.timetable.trigger(now);
        }
    }

    /// The last HELLO of the neighbour came from `source`; nothing where it is not known.
    pub fn set_source(&mut self, address: LinkAddress, source: IpAddr) {
        if let Some(known) = self.table.get_mut(address) {
            known.source = Some(source);
        }
    }

    /// Takes a HELLO that came from the link address `from` at `now`.
    pub fn hear(
        &mut self,
        from: LinkAddress,
        message: &[u8],
        now: Instant,
    ) -> Result<Heard, Refusal> {
        let hello = Hello::parse(message).map_err(Refusal::Malformed)?;
        if hello.node() == self.node || from == self.address {
            return Err(Refusal::Own);
        }
        if let Some(key) = &self.config.key {
            let (covered, seal) = hello.seal().ok_or(Refusal::Unsealed)?;
            if !key.verifies(from, covered, seal) {
                return Err(Refusal::WrongSeal);
            }
        }
        let ahead = self.ahead(from, &hello)?;
        let about_us = hello.reports().find(|report| report.node == self.node);
        let proof = about_us.map(|report| report.sequence).filter(|number| self.is_recent(*number));
        let proof = proof.filter(|_| self.config.key.is_some());
        if hello.is_goodbye() {
            return self.part(from, &hello, proof);
        }
        if self.is_older_run(from, &hello, proof) {
            // Unless it is a recording it hears of us, and its next HELLO is the proof.
            self.timetable.greet(now);
            return Err(Refusal::Unproven);
        }
        if hello.asks() {
            self.timetable.trigger(now);
        }
        let heard = self.note(from, &hello, ahead, now)?;
        let changed = self.learn(from, &hello, about_us, proof);
        if heard == Heard::Same {
            return Ok(if changed { Heard::Changed } else { Heard::Same });
        }
        // It does not know us either.
        self.timetable.greet(now);
        if self.config.key.is_some() && proof.is_none() {
            // Both have to hear each other before either counts.
            self.asks = self.asks.max(EAGER);
        }
        Ok(heard)
    }

    /// By how much the number of `hello` is above the last one; 0 for a neighbour that is new or
    /// has started again.
    fn ahead(&self, from: LinkAddress, hello: &Hello<'_>) -> Result<u32, Refusal> {
        let Some(known) = self.table.get(from).filter(|known| known.node == hello.node()) else {
            return Ok(0);
        };
        let ahead = hello.sequence().wrapping_sub(known.sequence);
        let behind = ahead.wrapping_neg();
        // Half of the numbers are ahead (RFC 1982); 0 is a copy.
        let is_new = ahead != 0 && ahead <= u32::MAX / 2;
        match is_new || self.config.key.is_none() && behind > LATE {
            true => Ok(ahead),
            false => Err(Refusal::Old),
        }
    }

    /// Whether a HELLO of ours with this number left of late.
    fn is_recent(&self, sequence: u32) -> bool {
        (1..=RECENT).contains(&self.sequence.wrapping_sub(sequence))
    }

    /// Whether `hello` is of another run than the one that proved itself, and proves no newer one.
    fn is_older_run(&self, from: LinkAddress, hello: &Hello<'_>, proof: Option<u32>) -> bool {
        let Some(known) = self.table.get(from) else { return false };
        known.is_proven()
            && known.node != hello.node()
            && !proof.is_some_and(|number| known.gives_way_to(number))
    }

    /// The neighbour says goodbye.
    fn part(
        &mut self,
        from: LinkAddress,
        hello: &Hello<'_>,
        proof: Option<u32>,
    ) -> Result<Heard, Refusal> {
        let known = self.table.get(from).filter(|known| known.node == hello.node());
        if known.is_none() {
            return Err(Refusal::Unknown);
        }
        if self.config.key.is_some() && proof.is_none() {
            return Err(Refusal::Unproven);
        }
        self.table.remove(from);
        Ok(Heard::Left)
    }

    /// Notes that the neighbour is there.
    fn note(
        &mut self,
        from: LinkAddress,
        hello: &Hello<'_>,
        ahead: u32,
        now: Instant,
    ) -> Result<Heard, Refusal> {
        let period = Duration::from_millis(u64::from(hello.period()) * 100);
        let heard = match self.table.get_mut(from) {
            Some(known) if known.node == hello.node() => {
                known.came(hello.sequence(), ahead, period, now);
                Heard::Same
            }
            Some(known) => {
                let mut again = Neighbour::new(hello.node(), hello.sequence(), period, now);
                again.restarts = known.restarts.saturating_add(1);
                again.limit = known.limit;
                again.set_present(known.is_present());
                *known = again;
                Heard::Restarted
            }
            None => {
                let newcomer = Neighbour::new(hello.node(), hello.sequence(), period, now);
                if !self.table.insert(from, newcomer, &mut self.random) {
                    return Err(Refusal::Full);
                }
                Heard::Appeared
            }
        };
        let expires = self.table.get(from).map_or(Instant::MAX, |known| known.expires(self.deaf));
        self.expiry = self.expiry.min(expires);
        Ok(heard)
    }

    /// Takes over what the neighbour says of itself and of us; returns whether that matters.
    fn learn(
        &mut self,
        from: LinkAddress,
        hello: &Hello<'_>,
        about_us: Option<Report>,
        proof: Option<u32>,
    ) -> bool {
        let Some(known) = self.table.get_mut(from) else { return false };
        let before = (known.splits, known.largest, known.is_proven());
        known.splits = hello.splits();
        match about_us {
            Some(report) => {
                known.largest = report.largest;
                known.hears = Some(f64::from(report.heard) / 255.0);
            }
            None if !hello.is_partial() => known.largest = UNLIMITED,
            None => {}
        }
        if let Some(number) = proof {
            known.prove(number);
        }
        before != (known.splits, known.largest, known.is_proven())
    }

    /// Abilities of the neighbour's splitter, where it may be believed: with a key, once it is
    /// proven. `None` for a router that takes nothing apart or that is unknown.
    pub fn splits(&self, address: LinkAddress) -> Option<Splits> {
        let known = self.table.get(address)?;
        known.splits.filter(|_| self.believes(known))
    }

    /// Largest packet that the neighbour should be sent, in bytes of IP: what its splitter takes
    /// and its report asks for. `None` where [`Neighbourhood::splits`] is.
    pub fn largest(&self, address: LinkAddress) -> Option<u16> {
        let splits = self.splits(address)?;
        Some(splits.largest.min(self.table.get(address)?.largest))
    }

    /// Whether what this neighbour says counts.
    pub fn believes(&self, neighbour: &Neighbour) -> bool {
        self.config.key.is_none() || neighbour.is_proven()
    }

    /// A neighbour that is there.
    pub fn get(&self, address: LinkAddress) -> Option<&Neighbour> {
        self.table.get(address)
    }

    /// All neighbours, by address.
    pub fn iter(&self) -> impl Iterator<Item = (LinkAddress, &Neighbour)> {
        self.table.iter()
    }

    /// Number of neighbours.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether nobody was heard.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The link addresses with which the kernel exchanges packets. These keep their places, and
    /// where one is new and was not heard, the next HELLO asks for its own.
    pub fn set_present(
        &mut self,
        present: &BTreeSet<LinkAddress>,
        newcomers: impl IntoIterator<Item = LinkAddress>,
        now: Instant,
    ) {
        self.table.set_present(|address| present.contains(address));
        if newcomers.into_iter().any(|address| self.table.get(address).is_none()) {
            self.asks = self.asks.max(1);
            self.timetable.trigger(now);
        }
    }

    /// Largest packet that `address` should send here, in bytes of IP; [`UNLIMITED`] for any. It
    /// hears of it soon where that matters.
    pub fn set_limit(&mut self, address: LinkAddress, largest: u16, now: Instant) {
        let Some(known) = self.table.get_mut(address) else { return };
        let before = std::mem::replace(&mut known.limit, largest);
        if before.abs_diff(largest) > before.min(largest) / CHANGE {
            self.timetable.trigger(now);
        }
    }

    /// Frames are shared at `now`: HELLOs leave once a period.
    pub fn used(&mut self, now: Instant) {
        self.timetable.used(now);
    }

    /// HELLOs were dropped before this router could hear them, so silence until now says nothing.
    pub fn missed(&mut self, now: Instant) {
        self.deaf = now;
    }

    /// Time of the next HELLO or the next neighbour that may be gone.
    pub fn next_deadline(&self) -> Instant {
        self.timetable.next().min(self.expiry)
    }

    /// Removes the neighbours that are silent for too long, and hands each to `gone`.
    pub fn expire(&mut self, now: Instant, mut gone: impl FnMut(LinkAddress, Neighbour)) {
        if now < self.expiry {
            return;
        }
        let deaf = self.deaf;
        let silent: Vec<_> = self
            .table
            .iter()
            .filter(|(_, one)| one.expires(deaf) <= now)
            .map(|(address, _)| address)
            .collect();
        for address in silent {
            if let Some(neighbour) = self.table.remove(address) {
                gone(address, neighbour);
            }
        }
        let next = self.table.iter().map(|(_, one)| one.expires(deaf)).min();
        self.expiry = next.unwrap_or(Instant::MAX);
    }

    /// Writes the HELLO that is due into `message`, which is emptied; `false` where none is due.
    pub fn dequeue(&mut self, now: Instant, message: &mut Vec<u8>) -> bool {
        if now < self.timetable.next() {
            return false;
        }
        let limit = self.timetable.longest_frame(now).saturating_sub(self.config.overhead);
        self.write(false, limit, now, message);
        true
    }

    /// Writes the last HELLO, a goodbye, into `message`, which is emptied.
    pub fn part_from_all(&mut self, now: Instant, message: &mut Vec<u8>) {
        self.write(true, MAX_LEN, now, message);
    }

    fn write(&mut self, goodbye: bool, limit: usize, now: Instant, message: &mut Vec<u8>) {
        message.clear();
        let key = self.config.key.clone();
        // With a key each neighbour has to see that it was heard; without one, limits are said.
        let worth = |one: &Neighbour| key.is_some() || one.limit != UNLIMITED;
        let mut last = self.reported;
        let reports = self.table.iter_behind(self.reported).filter(|(_, one)| worth(one));
        let sealed = if key.is_some() { SEALED_LEN } else { 0 };
        let repr = Repr {
            node: self.node,
            sequence: self.sequence,
            // The pause follows from the length; the field is written again below.
            period: u8::MAX,
            goodbye,
            asks: self.asks > 0,
            splits: self.config.splits,
        };
        let mut addresses = Vec::new();
        let reports = reports.map(|(address, one)| {
            addresses.push(address);
            one.report()
        });
        let limit = limit.min(MAX_LEN).saturating_sub(sealed);
        let written = repr.emit(reports, limit, message);
        if let Some(address) = written.checked_sub(1).and_then(|at| addresses.get(at)) {
            last = *address;
        }
        self.reported = last;
        let len = self.config.overhead + message.len() + sealed;
        hello::set_period(message, self.timetable.sent(len, now));
        if let Some(key) = &key {
            let seal = key.seal(self.address, message);
            append_seal(&seal, message);
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.asks = self.asks.saturating_sub(1);
    }
}
