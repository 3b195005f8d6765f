//! Next hops and far ends: who is there, whether they split, and how large their frames may be.
//!
//! A neighbour with several addresses is one next hop, named by its first. A hop joins the engine
//! when its first probe was answered. While it does not split, its largest frame is 0, which lets
//! its packets pass.
//!
//! Frames to a far end have at most [`SAFE`] bytes, or less where the kernel or an error from the
//! way knows better (RFC 1191, RFC 8201).

use super::engine::{Engine, Shape};
use super::life::{Faith, Life, Splits};
use super::offer::Offer;
use super::probe::Prober;
use super::settings::FarEnd;
use nix::errno::Errno;
use sheaf_aggregate::Format;
use sheaf_netio::icmp::{Error, Message};
use sheaf_netio::ip;
use sheaf_netio::neigh::Neighbour;
use sheaf_stage::{Duration, Instant};
use sheaf_wire::ethernet;
use sheaf_wire::meta::Outer;
use sheaf_wire::prefix::Prefix;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

/// Next hops that are known at a time; the packets of others pass. As many as the kernel engine's
/// table has places.
const MOST: usize = 1024;
/// Between two probes of hosts that may never split: a crowd of made-up neighbours brings 20 small
/// frames a second.
const SPARE: Duration = Duration::from_millis(50);
/// Bytes of a frame that every path of IPv6 takes (RFC 8200, section 5).
const SAFE: u16 = 1280;
/// The least that an error about a far end is believed: what every host takes (RFC 791). A forged
/// one makes frames smaller, not useless.
const LEAST: u16 = 576;
/// How long an error about the path is believed (RFC 1191, section 6.3; RFC 8201, section 4).
const BELIEVED: Duration = Duration::from_secs(600);
/// Pause before a probe that could not be sent, or that is for a neighbour which said goodbye.
const UNSENT: Duration = Duration::from_secs(1);
/// Pause before a probe that the device's queue refused. That it was lost here says nothing of the
/// neighbour, and the queue has room again for a packet or two soon.
const REFUSED: Duration = Duration::from_millis(50);
/// Lines about changes that may come at once, and how often one more: a stranger who forges errors
/// does not fill a disk.
const LINES: u32 = 20;
const LINE: Duration = Duration::from_secs(3);

/// Why a host does not split that is not heard.
const SILENT: &str = "no reply to probes";

/// What a neighbour wants to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wants {
    /// Largest frame, in bytes of IP.
    pub max: u16,
    /// The richest format.
    pub format: Format,
    /// Whether frames of format 2 may have Ethernet payloads.
    pub payloads: bool,
    /// Whether they may be without a header of IP.
    pub link: bool,
}

impl Wants {
    /// Wants of a host that says nothing of itself: frames of any size, and of any format up to
    /// `format`.
    pub fn any(format: Format) -> Wants {
        Wants { max: u16::MAX, format, payloads: false, link: false }
    }
}

/// One next hop or far end.
#[derive(Debug)]
struct Hop {
    /// Splits, if anybody does, at this address.
    address: IpAddr,
    far: bool,
    faith: Faith,
    life: Life,
    /// Whether it takes format 2.
    offer: Offer,
    /// Whether it takes that without a header of IP.
    link: Offer,
    /// Number of its next probe in format 2.
    frame: u8,
    /// Why it does not split.
    why: &'static str,
    /// The state that was said last.
    said: Splits,
    outer: Option<Outer>,
    neighbours: BTreeSet<([u8; 6], IpAddr)>,
    prefixes: Vec<Prefix>,
    /// The engine's number of it, and what the engine has.
    joined: Option<(u32, Shape)>,
    /// Its numbers with a header of IP and without: queues and streams of the one do not go on in
    /// the other.
    numbers: [Option<u32>; 2],
    /// As its HELLO says, where it says one.
    wants: Wants,
    /// The path's largest packet as the kernel knows it.
    path: u32,
    /// The same as an error said, and until when that counts.
    heard: Option<(u16, Instant)>,
    /// Meta packets that had left when last counted.
    frames: u64,
}

impl Hop {
    /// The largest frame at `now`, if the configuration allows `max`.
    fn largest(&self, max: u16, now: Instant) -> u16 {
        if self.life.splits() != Splits::Yes {
            return 0;
        }
        let path = u16::try_from(self.path).unwrap_or(u16::MAX);
        match (self.far, self.heard.filter(|(_, until)| now < *until)) {
            (false, _) => max.min(self.wants.max),
            (true, Some((heard, _))) => max.min(SAFE).min(path).min(heard),
            (true, None) => max.min(SAFE).min(path),
        }
    }

    /// The format of frames to it.
    fn format(&self) -> Format {
        if self.offer.is_accepted() { self.wants.format } else { Format::Meta }
    }

    /// Our link address and its own, where frames without a header of IP may be offered to it.
    fn stations(&self, ours: Option<[u8; 6]>) -> Option<([u8; 6], [u8; 6])> {
        let may = self.wants.link && !self.far && self.format() > Format::Meta;
        let (theirs, _) = self.neighbours.first().filter(|_| may)?;
        // Of two stations with one address, a reply does not say which sent it.
        let is_one = self.neighbours.iter().all(|(mac, _)| mac == theirs);
        ours.filter(|_| is_one).map(|ours| (ours, *theirs))
    }

    /// The same, where it has replied to such an offer.
    fn carried_by(&self, ours: Option<[u8; 6]>) -> Option<([u8; 6], [u8; 6])> {
        self.stations(ours).filter(|_| self.link.is_accepted())
    }

    /// Time of the next offer without a header of IP.
    fn link_offers(&self, ours: Option<[u8; 6]>) -> Instant {
        match self.stations(ours).is_some() && self.life.splits() == Splits::Yes {
            true => self.link.deadline(),
            false => Instant::MAX,
        }
    }

    /// Number of the next probe, if that is to be of format 2.
    fn next_frame(&mut self, is_frame: bool) -> Option<u8> {
        let next = self.frame;
        self.frame = next.wrapping_add(is_frame.into());
        is_frame.then_some(next)
    }

    /// Time of the next offer.
    fn offers(&self) -> Instant {
        let asks = self.faith != Faith::Trusted && self.wants.format > Format::Meta;
        match asks && self.life.splits() == Splits::Yes {
            true => self.offer.deadline(),
            false => Instant::MAX,
        }
    }

    /// What is to be said at a change of state. A neighbour that is only one of any is not expected
    /// to split.
    fn news(&mut self) -> Option<String> {
        let (address, splits) = (self.address, self.life.splits());
        let before = std::mem::replace(&mut self.said, splits);
        match splits {
            _ if splits == before => None,
            Splits::Unknown => None,
            Splits::No if before == Splits::Unknown && self.faith == Faith::Any => None,
            Splits::Yes => Some(format!("{address} splits; small packets to it share frames")),
            Splits::No => {
                Some(format!("{address} cannot split ({}); its packets pass as they are", self.why))
            }
        }
    }

    /// Looks up our address and the path MTU towards it.
    fn find_way(&mut self, dev: &str) {
        let way = ip::way_over(dev, self.address).ok();
        self.outer = way.and_then(|way| Outer::new(way.source, self.address));
        self.path = way.map_or(u32::MAX, |way| way.mtu);
    }

    /// Addresses from which its frames come: its own and those of its stations.
    fn sources(&self) -> impl Iterator<Item = IpAddr> {
        let stations = self.neighbours.iter().map(|(mac, _)| ethernet::station(*mac).into());
        std::iter::once(self.address).chain(stations)
    }

    /// Whether anything leads there.
    fn is_there(&self) -> bool {
        self.far || !self.neighbours.is_empty()
    }

    fn deadline(&self, ours: Option<[u8; 6]>) -> Instant {
        let expires = self.heard.map_or(Instant::MAX, |(_, until)| until);
        let offers = self.offers().min(self.link_offers(ours));
        match self.is_there() && self.outer.is_some() {
            true => self.life.deadline().min(offers).min(expires),
            false => Instant::MAX,
        }
    }
}

/// What is shown of a hop.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// Its address.
    pub address: IpAddr,
    /// The engine's numbers, where it joined.
    pub numbers: [Option<u32>; 2],
    /// Whether it splits.
    pub splits: Splits,
    /// Largest frame in bytes.
    pub max: u16,
    /// Format of its frames.
    pub format: Format,
    /// Whether these have no header of IP.
    pub link: bool,
    /// Probes sent.
    pub probes: u64,
}

/// All next hops and far ends of one interface.
#[derive(Debug)]
pub struct Hops {
    dev: String,
    /// Our link address.
    mac: Option<[u8; 6]>,
    max: u16,
    /// The richest format that frames may have.
    format: Format,
    /// `probe off`: everybody is taken at their word.
    trusting: bool,
    /// Neighbours given by name.
    named: Vec<IpAddr>,
    hops: BTreeMap<IpAddr, Hop>,
    /// Numbers given to the engine.
    numbers: u32,
    prober: Prober,
    /// When the next probe of a host that may never split may leave.
    spare: Instant,
    /// Neighbours without a place.
    left_out: usize,
    lines: u32,
    line: Instant,
    /// When something is due.
    next: Instant,
}

impl Hops {
    /// Those of interface `dev`, with the far ends; frames have at most `max` bytes, and no richer
    /// format than `format`.
    pub fn new(
        dev: &str,
        (max, format): (u16, Format),
        trusting: bool,
        named: &[IpAddr],
        far_ends: &[FarEnd],
        now: Instant,
    ) -> anyhow::Result<Hops> {
        let mut hops = Hops {
            dev: dev.to_owned(),
            mac: ip::link_address(dev)?,
            max,
            format,
            trusting,
            named: named.to_vec(),
            hops: BTreeMap::new(),
            numbers: 0,
            prober: Prober::open(dev)?,
            spare: now,
            left_out: 0,
            lines: LINES,
            line: now,
            next: now,
        };
        for far_end in far_ends {
            let hop = hops.place(far_end.address, now);
            (hop.far, hop.faith) = (true, if trusting { Faith::Trusted } else { Faith::Named });
            hop.life = Life::new(hop.faith, now);
            hop.prefixes.extend(&far_end.prefixes);
        }
        hops.find_ways();
        Ok(hops)
    }

    /// Gives other numbers to hops than `before` did: the engine still counts by those.
    pub fn number_behind(&mut self, before: &Hops) {
        self.numbers = before.numbers;
    }

    /// Frames have at most `max` bytes from now on, and no richer format than `format`; all hops
    /// join again, as what the engine makes of a hop may depend on more that changed.
    pub fn refit(&mut self, (max, format): (u16, Format), engine: &mut dyn Engine, now: Instant) {
        (self.max, self.format) = (max, format);
        for hop in self.hops.values_mut() {
            // More than before a neighbour may be sent after the next look at it.
            hop.wants.format = if hop.far { format } else { format.min(hop.wants.format) };
            let (max, format) = (hop.largest(max, now), hop.format());
            if let Some((_, joined)) = &mut hop.joined {
                (joined.max, joined.format) = (max, format);
                rejoin(hop, engine);
            }
        }
    }

    /// What probes and errors bring; for [`Hops::hear`].
    pub fn prober(&self) -> &Prober {
        &self.prober
    }

    /// Whether everybody who is there was found to split or not.
    pub fn are_known(&self) -> bool {
        let none = |hop: &Hop| hop.deadline(self.mac) == Instant::MAX;
        self.hops.values().all(|hop| none(hop) || hop.life.is_known())
    }

    /// When [`Hops::run`] has something to do at the latest.
    pub fn deadline(&self) -> Instant {
        self.next
    }

    /// Neighbours that found no place.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// All hops, for statistics: those of which something is known, and those that were named.
    pub fn shown(&self, now: Instant) -> impl Iterator<Item = Shown> {
        let worth = |hop: &&Hop| hop.faith != Faith::Any || hop.joined.is_some();
        self.hops.values().filter(worth).map(move |hop| Shown {
            address: hop.address,
            numbers: hop.numbers,
            splits: hop.life.splits(),
            max: hop.largest(self.max, now),
            format: hop.format(),
            link: hop.carried_by(self.mac).is_some(),
            probes: hop.life.sent(),
        })
    }

    fn place(&mut self, address: IpAddr, now: Instant) -> &mut Hop {
        let faith = match (self.trusting, self.named.contains(&address)) {
            (true, _) => Faith::Trusted,
            (false, true) => Faith::Named,
            (false, false) => Faith::Any,
        };
        let format = self.format;
        self.hops.entry(address).or_insert_with(|| Hop {
            address,
            far: false,
            faith,
            life: Life::new(faith, now),
            offer: Offer::new(now),
            link: Offer::new(now),
            frame: 0,
            why: SILENT,
            said: Splits::Unknown,
            outer: None,
            neighbours: BTreeSet::new(),
            prefixes: Vec::new(),
            joined: None,
            numbers: [None; 2],
            wants: Wants::any(format),
            path: u32::MAX,
            heard: None,
            frames: 0,
        })
    }

    /// Takes the neighbours that are there at `now`, with what each wants: new ones are probed,
    /// those that went leave.
    pub fn set_neighbours(
        &mut self,
        seen: &BTreeMap<([u8; 6], IpAddr), Wants>,
        engine: &mut dyn Engine,
        now: Instant,
    ) {
        let (mut names, mut left_out) = (BTreeMap::<IpAddr, (BTreeSet<_>, Wants)>::new(), 0);
        let mut first: Option<([u8; 6], IpAddr)> = None;
        let far = |hop: &Hop| hop.far;
        for ((mac, address), wants) in seen {
            let name = match first {
                Some((same, name)) if same == *mac => name,
                _ => *address,
            };
            first = Some((*mac, name));
            let known = names.contains_key(&name);
            if self.hops.get(&name).is_some_and(far) || !known && names.len() >= MOST {
                left_out += 1;
            } else {
                // The addresses of one link address belong to one neighbour, which wants the same.
                let (here, _) = names.entry(name).or_insert_with(|| (BTreeSet::new(), *wants));
                here.insert((*mac, *address));
            }
        }
        if left_out > 0 && self.left_out == 0 {
            self.say(
                &format!(
                    "more than {MOST} neighbours; the packets of those beyond pass as they are"
                ),
                now,
            );
        }
        self.left_out = left_out;
        let none = (BTreeSet::new(), Wants::any(Format::Meta));
        let mut left = BTreeSet::new();
        for hop in self.hops.values_mut().filter(|hop| !hop.far) {
            let (here, _) = names.get(&hop.address).unwrap_or(&none);
            let gone: Vec<_> = hop.neighbours.difference(here).copied().collect();
            for (mac, address) in gone {
                hop.neighbours.remove(&(mac, address));
                left.insert(mac);
                if hop.joined.is_some() {
                    // What is not there any more needs no leave.
                    let _ = engine.leave(Neighbour { address, mac });
                }
            }
        }
        for (name, (here, wants)) in names {
            let hop = self.place(name, now);
            hop.wants = wants;
            if hop.neighbours.is_empty() {
                hop.life = Life::new(hop.faith, now);
                if let Some((_, shape)) = &mut hop.joined {
                    shape.max = 0;
                }
            }
            // Others of a link address have gone from the engine with one of it that left.
            if hop.neighbours != here || here.iter().any(|(mac, _)| left.contains(mac)) {
                hop.neighbours = here;
                rejoin(hop, engine);
            }
        }
        self.hops.retain(|_, hop| hop.is_there() || hop.joined.is_some());
        self.find_ways();
        self.apply(engine, now);
    }

    /// Looks up source addresses and path MTUs anew, of those that matter now.
    pub fn find_ways(&mut self) {
        for hop in self.hops.values_mut().filter(|hop| hop.is_there()) {
            // The others' are looked up before they are probed.
            if hop.outer.is_none() || hop.life.is_urgent() {
                hop.find_way(&self.dev);
            }
        }
    }

    /// The neighbour with link address `mac` says that it does not split any more, or says nothing,
    /// for the reason `why`: its packets pass as they are from now on.
    pub fn lost(&mut self, mac: [u8; 6], why: &str, engine: &mut dyn Engine, now: Instant) {
        let mut lines = Vec::new();
        for hop in self.hops.values_mut() {
            if !hop.neighbours.iter().any(|(its, _)| *its == mac) {
                continue;
            }
            if std::mem::replace(&mut hop.said, Splits::Unknown) == Splits::Yes {
                let address = hop.address;
                lines.push(format!("{address} says {why}; its packets pass as they are"));
            }
            hop.life = Life::new(hop.faith, now);
            // One that is named is asked again; another one is not a peer at the next look.
            hop.life.postpone(now + UNSENT);
        }
        lines.iter().for_each(|line| self.say(line, now));
        self.apply(engine, now);
    }

    /// The neighbour with link address `mac` says something new of itself.
    pub fn stirred(&mut self, mac: [u8; 6], now: Instant) {
        for hop in self.hops.values_mut() {
            if hop.neighbours.iter().any(|(its, _)| *its == mac) {
                hop.life.stirred(now);
                self.next = self.next.min(hop.deadline(self.mac));
            }
        }
    }

    /// Takes note of which hops had frames since the last time, and returns whether any had;
    /// `frames`: meta packets by number.
    pub fn count(&mut self, frames: impl IntoIterator<Item = (u32, u64)>, now: Instant) -> bool {
        let frames: BTreeMap<_, _> = frames.into_iter().collect();
        let mut any = false;
        for hop in self.hops.values_mut() {
            let Some((number, _)) = hop.joined else { continue };
            let left = frames.get(&number).copied().unwrap_or(0);
            if std::mem::replace(&mut hop.frames, left) != left {
                hop.life.used(now);
                self.next = self.next.min(hop.deadline(self.mac));
                any = true;
            }
        }
        any
    }

    /// Does what is due at `now`: probes leave, and what follows from those missed.
    pub fn run(&mut self, engine: &mut dyn Engine, now: Instant) {
        for hop in self.hops.values_mut() {
            if hop.deadline(self.mac) > now {
                continue;
            }
            hop.heard = hop.heard.filter(|(_, until)| now < *until);
            let heard = || hop.sources().filter_map(|from| engine.heard(from)).max();
            if let Some(at) = hop.joined.and_then(|_| heard()) {
                hop.life.heard(at);
            }
            let splits = hop.life.splits();
            let due = hop.life.is_due(now);
            if splits != Splits::No && hop.life.splits() == Splits::No {
                hop.why = SILENT;
            }
            if let Some(outer) = hop.outer
                && now >= hop.offers()
            {
                let frame = hop.next_frame(true);
                let mark = self.prober.send(outer, hop.far, frame);
                hop.offer.offered(mark.ok(), now);
            }
            if let (Some(outer), Some(link)) = (hop.outer, hop.stations(self.mac))
                && now >= hop.link_offers(self.mac)
            {
                let frame = hop.next_frame(true).unwrap_or_default();
                let mark = self.prober.send_by_link(outer, link, frame);
                hop.link.offered(mark.ok(), now);
            }
            if !due {
                continue;
            }
            if !hop.life.is_urgent() {
                if now < self.spare {
                    hop.life.postpone(self.spare);
                    continue;
                }
                self.spare = now + SPARE;
                hop.find_way(&self.dev);
            }
            let frame = hop.next_frame(hop.format() > Format::Meta);
            let link = hop.carried_by(self.mac);
            let probe = |outer| match (link, frame) {
                (Some(link), Some(frame)) => self.prober.send_by_link(outer, link, frame),
                _ => self.prober.send(outer, hop.far, frame),
            };
            let is_full = |error: &io::Error| error.raw_os_error() == Some(Errno::ENOBUFS as i32);
            match hop.outer.map(probe) {
                Some(Ok((sequence, cookie))) => hop.life.probed(sequence, cookie, now),
                Some(Err(error)) if is_full(&error) => hop.life.postpone(now + REFUSED),
                Some(Err(_)) | None => hop.life.postpone(now + UNSENT),
            }
        }
        self.apply(engine, now);
    }

    /// Hears replies and errors.
    pub fn hear(&mut self, engine: &mut dyn Engine, now: Instant) {
        let (hops, mut any) = (&mut self.hops, false);
        self.prober.hear(|message| any |= heard(hops, message, now));
        if any {
            self.apply(engine, now);
        }
    }

    /// Brings the engine in line with what is known, and says what changed.
    fn apply(&mut self, engine: &mut dyn Engine, now: Instant) {
        let mut news = Vec::new();
        for hop in self.hops.values_mut() {
            news.extend(hop.news());
            if hop.life.splits() != Splits::Yes {
                // When it is back it may be another one.
                (hop.offer, hop.link) = (Offer::new(now), Offer::new(now));
            }
            let Some(outer) = hop.outer else { continue };
            let link = hop.carried_by(self.mac);
            let outer = link.map_or(outer, |(src, dst)| Outer::Link { src, dst });
            let max = hop.largest(self.max, now);
            let shape = Shape { outer, max, format: hop.format(), payloads: hop.wants.payloads };
            match hop.joined {
                Some((_, there)) if there == shape => continue,
                None if max == 0 || !hop.is_there() => continue,
                Some(_) | None => {}
            }
            if hop.joined.is_some_and(|(_, there)| there.outer.is_link()) != link.is_some() {
                let way = if link.is_some() { "Ethernet frames" } else { "IP again" };
                news.push(format!("frames to {} travel as {way}", hop.address));
            }
            let number = *hop.numbers[usize::from(link.is_some())].get_or_insert_with(|| {
                self.numbers += 1;
                self.numbers - 1
            });
            hop.joined = Some((number, shape));
            rejoin(hop, engine);
        }
        let deadlines = self.hops.values().map(|hop| hop.deadline(self.mac));
        self.next = deadlines.min().unwrap_or(Instant::MAX);
        news.iter().for_each(|line| self.say(line, now));
    }

    /// One line on standard error, unless there were too many.
    pub fn say(&mut self, line: &str, now: Instant) {
        let earned = now.saturating_since(self.line).as_nanos() / LINE.as_nanos();
        if earned > 0 {
            self.line = now;
            self.lines = LINES.min(self.lines.saturating_add(earned.min(u128::from(LINES)) as u32));
        }
        if let Some(left) = self.lines.checked_sub(1) {
            self.lines = left;
            tracing::info!("{line}");
        }
    }
}

/// Lets all of a hop join, or join again with what changed.
fn rejoin(hop: &Hop, engine: &mut dyn Engine) {
    let Some((number, shape)) = hop.joined else { return };
    for (mac, address) in &hop.neighbours {
        let neighbour = Neighbour { address: *address, mac: *mac };
        if let Err(error) = engine.join(number, neighbour, shape) {
            tracing::warn!("packets to {address} pass as they are: {error:#}");
        }
    }
    for prefix in &hop.prefixes {
        if let Err(error) = engine.far_end(number, *prefix, shape) {
            tracing::warn!("packets to {prefix} pass as they are: {error:#}");
        }
    }
}

/// Takes a message; returns whether it changed a hop.
fn heard(hops: &mut BTreeMap<IpAddr, Hop>, message: Message, now: Instant) -> bool {
    match message {
        Message::Reply { from, sequence, cookie } => {
            let Some(hop) = hops.get_mut(&from) else { return false };
            let mark = (sequence, cookie);
            hop.offer.replied(mark)
                || hop.link.replied(mark)
                || hop.life.replied(sequence, cookie, now)
        }
        Message::Request { from } => {
            let hop = hops.get_mut(&from);
            hop.map(|hop| hop.life.stirred(now)).is_some()
        }
        Message::Error { error, source, destination } => {
            let ours = |hop: &&mut Hop| hop.outer.is_some_and(|outer| outer.source() == source);
            let Some(hop) = hops.get_mut(&destination).filter(ours) else { return false };
            match error {
                Error::ProtocolUnreachable => {
                    hop.why = "protocol unreachable";
                    hop.life.refused(now);
                }
                Error::Prohibited => {
                    hop.why = "prohibited on the way";
                    hop.life.refused(now);
                }
                Error::TooBig { mtu } if hop.far => {
                    let least = if destination.is_ipv6() { SAFE } else { LEAST };
                    let mtu = u16::try_from(mtu).unwrap_or(u16::MAX).max(least);
                    // A router that does not say is one of the oldest: the least, then.
                    hop.heard = Some((mtu, now + BELIEVED));
                }
                Error::TooBig { .. } => return false,
            }
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::device::Order;
    use super::super::settings::Peers;
    use super::*;
    use sheaf_aggregate::{Config, Stats};
    use sheaf_netio::netns::Namespace;
    use sheaf_netio::poller::Poller;
    use sheaf_wire::hello::Formats;

    /// An engine that knows its next hops by link address and nothing else.
    #[derive(Default)]
    struct Table(BTreeMap<[u8; 6], Shape>);

    impl Engine for Table {
        fn join(&mut self, _: u32, neighbour: Neighbour, shape: Shape) -> anyhow::Result<()> {
            self.0.insert(neighbour.mac, shape);
            Ok(())
        }

        fn leave(&mut self, neighbour: Neighbour) -> anyhow::Result<()> {
            self.0.remove(&neighbour.mac);
            Ok(())
        }

        fn name(&self) -> String {
            unreachable!()
        }

        fn takes(&self) -> Formats {
            unreachable!()
        }

        fn sends(&self) -> Format {
            unreachable!()
        }

        fn far_end(&mut self, _: u32, _: Prefix, _: Shape) -> anyhow::Result<()> {
            unreachable!()
        }

        fn order(&mut self, _: Order) -> anyhow::Result<()> {
            unreachable!()
        }

        fn run(&mut self, _: Instant, _: &mut Poller) -> anyhow::Result<Option<Instant>> {
            unreachable!()
        }

        fn wait_for(&mut self, _: &mut Poller) {}

        fn held(&self) -> u32 {
            unreachable!()
        }

        fn passed(&self) -> anyhow::Result<u64> {
            unreachable!()
        }

        fn stats(&self) -> anyhow::Result<Vec<(u32, Stats)>> {
            unreachable!()
        }

        fn split(&self) -> anyhow::Result<Option<BTreeMap<String, u64>>> {
            unreachable!()
        }

        fn change(&mut self, _: &Config) -> anyhow::Result<()> {
            unreachable!()
        }

        fn accept(&mut self, _: &Peers) -> anyhow::Result<()> {
            unreachable!()
        }

        fn heard(&self, _: IpAddr) -> Option<Instant> {
            None
        }

        fn forget(&mut self) -> anyhow::Result<()> {
            unreachable!()
        }

        fn flush(&mut self) -> anyhow::Result<()> {
            unreachable!()
        }
    }

    #[test]
    fn a_neighbour_that_loses_one_of_its_addresses_stays_a_next_hop() {
        let namespace = Namespace::new().unwrap();
        let left = namespace.run(|| {
            ip::run("link add eth0 type veth peer name eth1")?;
            ip::run("addr add 10.0.0.1/24 dev eth0")?;
            ip::run("link set eth1 up")?;
            ip::run("link set eth0 up")?;
            let now = Instant::ZERO;
            let any = (1500, Format::Frames);
            let mut hops = Hops::new("eth0", any, true, &[], &[], now).unwrap();
            let (mac, mut engine) = ([2, 0, 0, 0, 0, 2], Table::default());
            let [first, other]: [IpAddr; 2] =
                ["10.0.0.2", "fd00::2"].map(|one| one.parse().unwrap());
            let seen = |addresses: &[IpAddr]| -> BTreeMap<_, _> {
                let wants = Wants::any(Format::Frames);
                addresses.iter().map(|address| ((mac, *address), wants)).collect()
            };
            hops.set_neighbours(&seen(&[first, other]), &mut engine, now);
            assert!(engine.0.contains_key(&mac));
            hops.set_neighbours(&seen(&[first]), &mut engine, now);
            Ok(engine.0)
        });
        assert_eq!(left.unwrap().into_keys().collect::<Vec<_>>(), [[2, 0, 0, 0, 0, 2]]);
    }

    #[test]
    fn probes_that_the_own_queue_refuses_say_nothing_of_the_neighbour() {
        let namespace = Namespace::new().unwrap();
        let outcome = |family: &str, ours: &str, theirs: &str| {
            ip::run("link add eth0 type veth peer name eth1")?;
            ip::run(&format!("{family} addr add {ours} dev eth0 nodad"))?;
            ip::run("link set eth1 up")?;
            ip::run("link set eth0 up")?;
            ip::run(&format!("{family} neigh add {theirs} lladdr 02:00:00:00:00:02 dev eth0"))?;
            // One packet in a quarter of an hour, and room for one more and some small ones.
            let tbf = "qdisc add dev eth0 root tbf rate 8bit burst 1600 limit 1600";
            assert!(std::process::Command::new("tc").args(tbf.split(' ')).status()?.success());
            let theirs: IpAddr = theirs.parse().unwrap();
            let any = if theirs.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
            let socket = std::net::UdpSocket::bind(any)?;
            for size in [1000; 3].into_iter().chain([1; 40]) {
                socket.send_to(&vec![0; size], (theirs, 9))?;
            }
            let (mut hops, mut engine) = (
                Hops::new("eth0", (1500, Format::Meta), false, &[theirs], &[], Instant::ZERO)
                    .unwrap(),
                Table::default(),
            );
            let seen = [(([2, 0, 0, 0, 0, 2], theirs), Wants::any(Format::Meta))].into();
            hops.set_neighbours(&seen, &mut engine, Instant::ZERO);
            for ms in (0..5000).step_by(10) {
                hops.run(&mut engine, Instant::ZERO + Duration::from_millis(ms));
            }
            let shown = hops.shown(Instant::ZERO).next().map(|hop| (hop.splits, hop.probes));
            ip::run("link del eth0")?;
            Ok(shown)
        };
        let none = Some((Splits::Unknown, 0));
        assert_eq!(namespace.run(|| outcome("-4", "10.0.0.1/24", "10.0.0.2")).unwrap(), none);
        assert_eq!(namespace.run(|| outcome("-6", "fd00::1/64", "fd00::2")).unwrap(), none);
    }
}
