//! HELLO at work on one interface: says ours, hears the neighbours', and reports who is there.
//!
//! The state machine is [`sheaf_neighbour`]; here are its socket, its counters, and its part in a
//! service.

use super::group::{Group as Groups, Reason};
use super::hops::Wants;
use super::place::Place;
use super::radio::{Figures, Radio};
use crate::report;
use anyhow::Context;
use sheaf_aggregate::Format;
use sheaf_neighbour::{Config, Heard, LinkAddress, Neighbour, Neighbourhood, Refusal, SealKey};
use sheaf_netio::link_group::{Group, LinkGroup};
use sheaf_netio::poller::Poller;
use sheaf_netio::{ip, neigh, random};
use sheaf_stage::{Duration, Instant};
use sheaf_wire::ethernet;
use sheaf_wire::hello::{Formats, GROUP_V4, GROUP_V6, MAX_LEN, Node, PORT, Splits};
use sheaf_wire::meta;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

const GROUP: Group = Group { v4: GROUP_V4, v6: GROUP_V6, port: PORT };
/// Between two looks at the socket while more is there than one look takes: a flood of HELLOs has a
/// bounded part of the processor, and what it drowns counts as missed.
const BREATH: Duration = Duration::from_millis(2);

/// HELLO on one interface.
#[derive(Debug)]
pub struct Hello {
    dev: String,
    socket: LinkGroup,
    neighbourhood: Neighbourhood,
    /// The words of the neighbours about frames to groups.
    groups: Groups,
    radio: Radio,
    has_key: bool,
    /// Whether our splitter takes frames without a header of IP.
    takes_links: bool,
    message: Vec<u8>,
    /// Numbers of the descriptors among what is waited for.
    readable: Range<usize>,
    /// Time of the next look at the socket, while it is flooded.
    flooded: Option<Instant>,
    counters: Counters,
    /// The kernel's neighbour table as it was last.
    present: BTreeSet<(LinkAddress, IpAddr)>,
    /// With a key: the addresses in it of those that hold the key, too.
    accepted: BTreeSet<IpAddr>,
    /// Meta packets that the splitter had taken apart then.
    taken: u64,
}

/// Counters of HELLOs.
#[derive(Clone, Debug, Default)]
struct Counters {
    sent: u64,
    unsent: u64,
    heard: u64,
    dropped: u64,
    refused: BTreeMap<&'static str, u64>,
}

/// A neighbour whose word changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct News {
    /// Its link address.
    pub address: LinkAddress,
    /// Reason for which it does not count any more; `None` where it is there.
    pub gone: Option<&'static str>,
}

impl Hello {
    /// Says HELLO on the interface at `place`, of a splitter that can do `splits`.
    pub fn open(
        place: &Place,
        splits: Option<Splits>,
        key: Option<SealKey>,
        now: Instant,
    ) -> anyhow::Result<Hello> {
        let Place { dev, ifindex, mtu, .. } = place;
        let mac = place.link_address()?;
        let socket = LinkGroup::join(*ifindex, GROUP)
            .with_context(|| format!("cannot hear neighbours on {dev}"))?;
        let node = Node(u64::from_ne_bytes(random::unguessable()?));
        let has_key = key.is_some();
        let splits = splits.map(|splits| said(splits, has_key));
        let config = Config { splits, key, ..Config::default() };
        Ok(Hello {
            dev: dev.clone(),
            socket,
            neighbourhood: Neighbourhood::new(config, mac, node, now),
            groups: Groups::default(),
            radio: Radio::open(dev, *ifindex, *mtu, now),
            has_key,
            takes_links: false,
            message: Vec::with_capacity(MAX_LEN),
            readable: 0..0,
            flooded: None,
            counters: Counters::default(),
            present: BTreeSet::new(),
            accepted: BTreeSet::new(),
            taken: 0,
        })
    }

    /// What a neighbour wants to be sent, where it says that it splits: in the format and up to the
    /// size that its splitter takes, and where frames `follow` the link, what the link carries
    /// well.
    pub fn wants(&self, address: LinkAddress, follow: bool, now: Instant) -> Option<Wants> {
        let splits = self.neighbourhood.splits(address)?;
        if !splits.formats.contain(Formats::META) {
            return None;
        }
        let richer = splits.formats.contain(Formats::FRAMES);
        let format = if richer { Format::Compressed } else { Format::Meta };
        let asked = self.neighbourhood.largest(address)?;
        let size = self.radio.size(address, now).unwrap_or(u16::MAX);
        let least = meta::MIN_MAX_LEN as u16;
        let max = if follow { asked.min(size).max(least) } else { splits.largest };
        let says = |formats| splits.formats.contain(formats);
        let (payloads, link) = (says(Formats::PAYLOADS), richer && says(Formats::LINK));
        Some(Wants { max, format, payloads, link })
    }

    /// Whether packets to groups may share frames at `now`; else why not.
    pub fn may_share_to_groups(&mut self, now: Instant) -> Result<(), Reason> {
        self.groups.may_share(now)
    }

    /// Largest frame to groups that all neighbours take at `now`, in bytes of IP, by what
    /// [`Hello::wants`] says of each.
    pub fn largest_to_groups(&self, follow: bool, now: Instant) -> u16 {
        let known = self.neighbourhood.iter().map(|(address, _)| address);
        let sizes = known.filter_map(|address| Some(self.wants(address, follow, now)?.max));
        sizes.min().unwrap_or(u16::MAX)
    }

    /// Takes note of what the service found: its splitter, where there is one, with the meta
    /// packets that it took apart so far; whether frames left; and the kernel's neighbour table.
    pub fn look(
        &mut self,
        splitter: Option<(Splits, u64)>,
        used: bool,
        neighbours: &[neigh::Neighbour],
        now: Instant,
    ) {
        let splits = splitter.map(|(splits, _)| said(splits, self.has_key));
        self.takes_links = splits.is_some_and(|splits| splits.formats.contain(Formats::LINK));
        self.neighbourhood.set_own_splits(splits, now);
        let taken = splitter.map_or(0, |(_, taken)| taken);
        if std::mem::replace(&mut self.taken, taken) != taken || used {
            self.neighbourhood.used(now);
        }
        self.radio.measure(&mut self.neighbourhood, now);
        self.set_present(neighbours.iter().map(|one| (one.mac, one.address)).collect(), now);
    }

    /// With a key: the addresses of its holders, where they are others than at the last call; with
    /// those of their stations, where frames without a header of IP are taken.
    pub fn newly_accepted(&mut self) -> Option<&BTreeSet<IpAddr>> {
        let known = |address| self.neighbourhood.get(address);
        let is_holder =
            |address| known(address).is_some_and(|known| self.neighbourhood.believes(known));
        let holders = self.present.iter().filter(|(address, _)| is_holder(*address));
        let accepted = match self.has_key {
            true if self.takes_links => {
                let station = |mac: &LinkAddress| IpAddr::V6(ethernet::station(*mac));
                holders.flat_map(|(mac, address)| [*address, station(mac)]).collect()
            }
            true => holders.map(|(_, address)| *address).collect(),
            false => BTreeSet::new(),
        };
        let is_new = accepted != self.accepted;
        self.accepted = accepted;
        is_new.then_some(&self.accepted)
    }

    /// With a key: the addresses of its holders at the last look.
    pub fn accepted(&self) -> &BTreeSet<IpAddr> {
        &self.accepted
    }

    /// Addresses of neighbours that split and are not in the kernel's neighbour table: on an
    /// interface whose packets are not of IP nobody has asked for them.
    pub fn unresolved(&self) -> impl Iterator<Item = IpAddr> {
        let is_present = |mac: &LinkAddress| self.present.iter().any(|(present, _)| present == mac);
        let splits = |mac: &LinkAddress| self.neighbourhood.splits(*mac).is_some();
        let known = self.neighbourhood.iter();
        let wanted = known.filter(move |(mac, _)| splits(mac) && !is_present(mac));
        wanted.filter_map(|(_, known)| known.source).filter(|address| !address.is_unspecified())
    }

    /// Adds what is to be waited for.
    pub fn wait_for(&mut self, poller: &mut Poller) {
        let numbers: Vec<_> =
            self.socket.descriptors().iter().map(|descriptor| poller.add(descriptor)).collect();
        let first = numbers.first().copied().unwrap_or(0);
        self.readable = first..first + numbers.len();
    }

    /// Time at which [`Hello::run`] has something to do at the latest.
    pub fn deadline(&self) -> Instant {
        self.neighbourhood.next_deadline().min(self.flooded.unwrap_or(Instant::MAX))
    }

    /// Takes note of the kernel's neighbour table.
    fn set_present(&mut self, present: BTreeSet<(LinkAddress, IpAddr)>, now: Instant) {
        if present == self.present {
            return;
        }
        let links = |table: &BTreeSet<(LinkAddress, IpAddr)>| -> BTreeSet<_> {
            table.iter().map(|(address, _)| *address).collect()
        };
        let (before, after) = (links(&self.present), links(&present));
        let newcomers = after.difference(&before).copied();
        self.neighbourhood.set_present(&after, newcomers, now);
        self.present = present;
    }

    /// Hears what `poller` found and says what is due at `now`; hands `each` the neighbours whose
    /// word changed.
    pub fn run(&mut self, now: Instant, poller: &mut Poller, mut each: impl FnMut(News)) {
        let readable = self.readable.clone().any(|number| poller.readable(number));
        let looks = self.flooded.map_or(readable, |until| now >= until);
        if looks {
            let was_flooded = self.flooded.is_some();
            self.hear(now, &mut each);
            if was_flooded != self.flooded.is_some() {
                // Else the poller would return at once, again and again, for what is not read.
                self.readable.clone().for_each(|number| poller.pause(number, !was_flooded));
            }
        }
        if now < self.neighbourhood.next_deadline() {
            return;
        }
        if let Ok(dropped @ 1..) = self.socket.dropped() {
            self.counters.dropped += u64::from(dropped);
            self.neighbourhood.missed(now);
            self.groups.missed(now);
        }
        self.neighbourhood.expire(now, |address, _| {
            each(News { address, gone: Some("nothing any more") });
        });
        if self.neighbourhood.dequeue(now, &mut self.message) {
            self.send();
        }
    }

    fn hear(&mut self, now: Instant, each: &mut impl FnMut(News)) {
        let (neighbourhood, counters) = (&mut self.neighbourhood, &mut self.counters);
        let groups = &mut self.groups;
        let read = self.socket.receive(|(from, source), message| {
            let heard = neighbourhood.hear(from, message, now);
            if heard.is_ok() {
                neighbourhood.set_source(from, source);
            }
            match heard {
                // It says nothing of anybody who is there now.
                Err(Refusal::Own | Refusal::Old) => {}
                Err(_) | Ok(Heard::Left) => groups.heard(from, false, now),
                Ok(_) => {
                    let splits = neighbourhood.splits(from);
                    let takes = |splits: Splits| splits.formats.contain(Formats::GROUPS);
                    groups.heard(from, splits.is_some_and(takes), now);
                }
            }
            let gone = match heard {
                Ok(Heard::Same) => None,
                Ok(Heard::Left) => Some(Some("goodbye")),
                Ok(Heard::Appeared | Heard::Restarted | Heard::Changed) => {
                    let splits = neighbourhood.splits(from).is_some();
                    Some((!splits).then_some("that it has no splitter"))
                }
                Err(refusal) => {
                    *counters.refused.entry(refusal.name()).or_default() += 1;
                    return;
                }
            };
            counters.heard += 1;
            if let Some(gone) = gone {
                each(News { address: from, gone });
            }
        });
        // An error of the socket is taken with it; an interface that is gone is noticed elsewhere.
        let more = read.is_ok_and(|count| count >= sheaf_netio::link_group::TURN);
        self.flooded = more.then_some(now + BREATH);
    }

    fn send(&mut self) {
        match self.socket.send(source(&self.dev), &self.message) {
            Ok(()) => self.counters.sent += 1,
            // The next one may leave.
            Err(_) => self.counters.unsent += 1,
        }
    }

    /// Says goodbye.
    pub fn part(&mut self, now: Instant) {
        self.neighbourhood.part_from_all(now, &mut self.message);
        self.send();
    }

    /// The report.
    pub fn report(&self, now: Instant) -> report::Neighbourhood {
        let neighbours = self.neighbourhood.iter().map(|(address, known)| {
            let addresses = self.present.iter().filter(|(mac, _)| *mac == address);
            let addresses = addresses.map(|(_, address)| address.to_string()).collect();
            (ip::mac_text(address), self.neighbour(address, known, addresses, now))
        });
        let refused = self.counters.refused.clone().into_iter();
        report::Neighbourhood {
            node: format!("{:016x}", self.neighbourhood.node().0),
            neighbours: neighbours.collect(),
            hellos_sent: self.counters.sent,
            hellos_unsent: self.counters.unsent,
            hellos_heard: self.counters.heard,
            hellos_dropped: self.counters.dropped,
            hellos_refused: refused.map(|(name, count)| (name.to_owned(), count)).collect(),
        }
    }

    fn neighbour(
        &self,
        address: LinkAddress,
        known: &Neighbour,
        addresses: Vec<String>,
        now: Instant,
    ) -> report::Neighbour {
        let Figures { snr_db, asks, size } = self.radio.figures(address, now);
        let formats = |splits: Splits| (0..8).filter(move |bit| splits.formats.0 >> bit & 1 == 1);
        report::Neighbour {
            addresses,
            node: format!("{:016x}", known.node.0),
            formats: known
                .splits
                .map_or_else(Vec::new, |splits| formats(splits).map(|bit| bit as u8 + 1).collect()),
            largest: self.neighbourhood.largest(address),
            snr_db,
            asks,
            size,
            proven: self.has_key.then_some(known.is_proven()),
            heard: known.heard,
            hears: known.hears,
            period: known.period.as_secs_f64(),
            age: now.saturating_since(known.since).as_secs_f64(),
            last: now.saturating_since(known.last).as_secs_f64(),
            restarts: known.restarts,
        }
    }
}

/// The part of `splits` that a HELLO announces. With a key a splitter takes the frames of holders
/// only, by the addresses that the kernel's neighbour table has for them. Who sends to a group
/// cannot know that it is there, so nothing is said of groups.
fn said(splits: Splits, has_key: bool) -> Splits {
    let hidden = if has_key { Formats::GROUPS.0 } else { 0 };
    Splits { formats: Formats(splits.formats.0 & !hidden), ..splits }
}

/// Our addresses by which frames to groups leave on `dev`, one for each family that has one.
pub fn sources_to_groups(dev: &str) -> impl Iterator<Item = IpAddr> {
    let groups: [IpAddr; 2] = [GROUP_V4.into(), GROUP_V6.into()];
    let ways = groups.map(|group| ip::way_over(dev, group).ok().map(|way| way.source));
    ways.into_iter().flatten().filter(|source| !source.is_unspecified())
}

/// The address that HELLOs leave from: one of the interface itself, by which it can be reached
/// there, before one that the host has elsewhere.
fn source(dev: &str) -> IpAddr {
    let way = |group: IpAddr| ip::way_over(dev, group).ok().map(|way| way.source);
    let v4 = way(GROUP_V4.into()).filter(|source| !source.is_unspecified());
    let is_own = |source: &IpAddr| ip::has_address(dev, *source).unwrap_or(false);
    let own = v4.filter(is_own).or_else(|| way(GROUP_V6.into())).or(v4);
    own.unwrap_or(Ipv4Addr::UNSPECIFIED.into())
}
