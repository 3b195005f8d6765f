//! `sheaf aggregate` at work on one interface, until Ctrl-C: keeps time for its engine, learns the
//! neighbours, and answers `sheaf show`.
//!
//! An interface that goes down or away, or changes, takes the engine with it: packets then go as if
//! this process were not there. It waits for the interface by its name, and begins anew.

use super::device::Queues;
use super::engine::Engine;
use super::group::Reason;
use super::hello::{self, Hello, News};
use super::hops::{Hops, Wants};
use super::kernel::Kernel;
use super::life::Splits;
use super::place::{self, Place};
use super::settings::{Engine as Choice, Peers, Settings};
use super::user::User;
use super::{KEPT, LOOK, meta_packets};
use crate::control::{Kind, ServiceName};
use crate::reactor::{Parse, Reactor};
use crate::report::{GROUPS, Hop, Interface};
use crate::service::{Next, Service};
use crate::{already, descriptors, say};
use anyhow::{Context, bail, ensure};
use serde_json::Value;
use sheaf_aggregate::{Config, Format, Policy, Stats};
use sheaf_bpf::{Split, layout};
use sheaf_netio::capability::{self, Capability};
use sheaf_netio::neigh::{self, Neighbour};
use sheaf_netio::netlink::Netlink;
use sheaf_netio::poller::Poller;
use sheaf_netio::{batman, clock, ip};
use sheaf_stage::{Duration, Instant};
use sheaf_wire::hello::Formats;
use sheaf_wire::meta::Outer;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::ops::Range;

/// Least time between two looks, when neighbours say something new.
const LEAST_LOOK: Duration = Duration::from_millis(50);
/// Period in which an interface that is away is looked for: to load the programs takes most of the
/// 2 s within which its packets are to be gathered again.
const ABSENT: Duration = Duration::from_millis(100);
/// Time that the first probes may take before the command says that it is at work: two of them.
const FIRST: Duration = Duration::from_millis(600);
/// Turns in a row that wait for nothing and find nothing to read, before one waits all the same: a
/// fault must not keep the machine from ordinary processes, which come after this one.
const IDLE_TURNS: u32 = 1000;
/// Length of that wait.
const BREATH: Duration = Duration::from_millis(1);

struct Daemon {
    settings: Settings,
    choice: Choice,
    why: String,
    netlink: Netlink,
    started: Instant,
    /// Counters of engines that went with the interface, by address.
    past: BTreeMap<IpAddr, Stats>,
    /// Counters of frames to groups of those engines.
    past_groups: Stats,
    /// The engine, while there is an interface for it.
    attached: Option<Attached>,
    /// The splitter of the last one. The kernel has checked it, which takes long.
    kept: Option<Split>,
    /// Time of the next look at the interface.
    look: Instant,
    /// Time of the last one.
    looked: Instant,
    /// Reason why the last try to put an engine on the interface failed.
    failed: Option<String>,
    /// Descriptors that are waited for were closed.
    stale: bool,
    /// Turns in a row without a wait and without anything to read.
    idle: u32,
}

/// State that goes and comes with the interface.
struct Attached {
    place: Place,
    config: Config,
    engine: Box<dyn Engine>,
    queues: Queues,
    /// Number of the mesh interface of batman-adv whose frames the interface carries.
    mesh: Option<u32>,
    hops: Hops,
    /// HELLOs, with `peer auto`.
    hello: Option<Hello>,
    groups: Groups,
    /// Numbers of the sockets that hear ICMP, among what is waited for.
    icmp: Range<usize>,
    /// Time at which it is said that the engine is at work; `None` once it was.
    announce: Option<Instant>,
}

/// Reason for which packets to groups pass as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plain {
    /// The engine cannot gather them.
    Engine,
    /// The interface has no address.
    NoAddress,
    /// Not all neighbours take their frames.
    Neighbours(Reason),
}

impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Plain::Engine => f.write_str("this engine gathers none"),
            Plain::NoAddress => f.write_str("the interface has no address"),
            Plain::Neighbours(reason) => reason.fmt(f),
        }
    }
}

/// State of the packets to groups.
#[derive(Debug, Default)]
struct Groups {
    /// Our addresses that their frames bear, as looked up last.
    sources: Vec<IpAddr>,
    /// The largest frame that all neighbours take, as found last.
    size: u16,
    /// The largest frame, 0 for none, and by which addresses, that the engine has.
    joined: Option<(u16, Vec<IpAddr>)>,
    /// The verdict that was logged last.
    said: Option<Result<(), Plain>>,
    /// Frames that had left when last counted.
    frames: u64,
}

/// Runs until it is stopped; returns the last report.
pub fn run(settings: Settings, parse: Parse<Settings>) -> anyhow::Result<Interface> {
    descriptors::require()?;
    let dev = settings.dev.clone();
    ip::index(&dev)?;
    let place = Place::find(&dev)?;
    settings.config(place.mtu)?;
    check_layer(&settings, &place)?;
    let (choice, why) = choose(settings.engine)?;
    check_engine(&settings, choice, &why)?;
    // Before anything is put on the interface, where the splitter would stay.
    for far_end in &settings.far_ends {
        towards(far_end.address)?;
    }
    // A key that cannot be used is told before who else is at work.
    place::seal_key(settings.key.as_deref())?;
    // Two who say HELLO on one interface would contradict each other.
    let alias = ServiceName::new(Kind::Split, &dev)?;
    let mut reactor =
        Reactor::new(ServiceName::new(Kind::Aggregate, &dev)?, &[alias]).map_err(|error| {
            let advice = format!(
                "{dev} is aggregated already, or `sheaf split` says HELLO there; stop that first"
            );
            already(error, advice)
        })?;
    let now = clock::now();
    let mut daemon = Daemon {
        settings,
        choice,
        why,
        netlink: Netlink::open()?,
        started: now,
        past: BTreeMap::new(),
        past_groups: Stats::default(),
        attached: None,
        kept: None,
        look: now,
        looked: now,
        failed: None,
        stale: false,
        idle: 0,
    };
    // The first time, what is wrong ends the command.
    daemon.attached = Some(daemon.attach()?);
    capability::keep_only(&KEPT)?;
    reactor.run(&mut daemon, parse)?;
    if let Some(Attached { engine, hello, .. }) = &mut daemon.attached {
        // First, so that neighbours stop before the splitter does.
        if let Some(hello) = hello {
            hello.part(clock::now());
        }
        if let Err(error) = engine.forget().and_then(|()| engine.flush()) {
            // What cannot leave any more is lost with the interface.
            tracing::warn!("what was held is lost: {error:#}");
        }
    }
    daemon.interface()
}

impl Service for Daemon {
    type Change = Settings;

    fn interest(&mut self, poller: &mut Poller) {
        if let Some(Attached { engine, hops, icmp, hello, .. }) = &mut self.attached {
            engine.wait_for(poller);
            if let Some(hello) = hello {
                hello.wait_for(poller);
            }
            *icmp = hops.prober().wait_for(poller);
        }
    }

    fn turn(&mut self, now: Instant, poller: &mut Poller) -> anyhow::Result<Next> {
        if std::mem::take(&mut self.stale) {
            return Ok(Next::Refresh);
        }
        let Some(mut there) = self.attached.take() else { return Ok(self.try_attach(now)) };
        match self.serve(&mut there, now, poller) {
            Ok(next) => {
                self.attached = Some(there);
                Ok(Next::Wait(next))
            }
            Err(lost) => {
                tracing::warn!("{lost:#}; waits until {} is up", self.settings.dev);
                // Where only the MTU is another one, what is held can still leave.
                let _ = self.let_go(there);
                self.look = now + LOOK;
                Ok(Next::Refresh)
            }
        }
    }

    fn wait(&mut self, poller: &mut Poller, until: Instant) -> io::Result<()> {
        let mut left = until.saturating_since(clock::now());
        if self.idle > IDLE_TURNS {
            left = left.max(BREATH);
        }
        poller.wait(Some(left))?;
        self.idle = if left.is_zero() && !poller.any_readable() { self.idle + 1 } else { 0 };
        Ok(())
    }

    fn report(&mut self, _now: Instant) -> anyhow::Result<Value> {
        Ok(serde_json::to_value(self.interface()?)?)
    }

    /// The engine goes on with other settings. Only another kind of engine takes the place of the
    /// old one, and packets leave as they are until it has.
    fn change(&mut self, settings: Settings, now: Instant) -> anyhow::Result<()> {
        ensure!(settings.dev == self.settings.dev, "dev: cannot change while running; restart");
        self.check_sizes(&settings)?;
        for far_end in &settings.far_ends {
            towards(far_end.address)?;
        }
        place::seal_key(settings.key.as_deref())?;
        if let Some(there) = &self.attached {
            check_layer(&settings, &there.place)?;
        }
        let other_engine = settings.engine != self.settings.engine;
        let (choice, why) = match other_engine {
            true => choose(settings.engine)?,
            false => (self.choice, self.why.clone()),
        };
        check_engine(&settings, choice, &why)?;
        (self.choice, self.why) = (choice, why);
        if let Some(mut there) = self.attached.take() {
            if other_engine {
                // The new engine needs the places of the old one.
                self.let_go(there)?;
                (self.look, self.stale) = (now, true);
            } else {
                let changed = self.adapt(&mut there, &settings, now);
                tracing::info!("{}", self.title(&there));
                self.attached = Some(there);
                changed?;
            }
        }
        self.settings = settings;
        Ok(())
    }
}

/// The engine that `asked` comes to, and why.
fn choose(asked: Choice) -> anyhow::Result<(Choice, String)> {
    // Either engine sends frames of its own, and changes what hangs on the interface.
    capability::require(&[Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW])?;
    match (asked, sheaf_bpf::support()) {
        (Choice::User, _) => Ok((Choice::User, "as asked".to_owned())),
        (Choice::Auto, Err(error)) => Ok((Choice::User, format!("as {error}"))),
        (Choice::Kernel, Err(error)) => bail!(error),
        (Choice::Kernel, Ok(())) => Ok((Choice::Kernel, "as asked".to_owned())),
        (Choice::Auto, Ok(())) => Ok((Choice::Auto, "the kernel can".to_owned())),
    }
}

/// Checks that the interface has what `settings` need: without a link header, there are no
/// neighbours, and nothing that the programs of the kernel engine could read.
fn check_layer(settings: &Settings, place: &Place) -> anyhow::Result<()> {
    let dev = &settings.dev;
    let has_link = place.mac.is_some();
    ensure!(
        has_link || settings.peers.is_empty(),
        "{dev} carries bare IP packets, so it has no neighbours; name the other end with to"
    );
    ensure!(
        has_link || settings.engine != Choice::Kernel,
        "{dev} carries bare IP packets, which the kernel engine cannot gather; leave out engine"
    );
    ensure!(
        has_link || !settings.config.by_mark,
        "{dev} carries bare IP packets, which only the engine in user space can gather, and that \
         sees no marks; give max in bytes in place of max mark"
    );
    Ok(())
}

/// Checks that the engine `choice`, which is there for the reason `why`, can what only the kernel's
/// can, where `settings` need it.
fn check_engine(settings: &Settings, choice: Choice, why: &str) -> anyhow::Result<()> {
    ensure!(
        !settings.links || choice != Choice::User,
        "carriage ethernet needs the kernel engine, not the one in user space ({why}); leave it out"
    );
    ensure!(
        !settings.config.by_mark || choice != Choice::User,
        "max mark needs the kernel engine, as the one in user space ({why}) sees no marks; give \
         max in bytes"
    );
    Ok(())
}

/// Whether descriptors or memory are lacking, and nothing is wrong with the interface.
fn is_exhausted(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref().is_some_and(ip::is_exhausted))
}

/// The senders whose meta packets are split: the peers, the far ends, and the neighbours that are
/// `accepted` by their HELLOs.
fn senders(settings: &Settings, accepted: &BTreeSet<IpAddr>) -> Peers {
    let mut peers = settings.peers.with_hellos(settings.key.is_some(), accepted);
    peers.far_ends.extend(settings.far_ends.iter().map(|far_end| far_end.address));
    peers
}

/// The next hops and far ends of `settings`; frames to them have at most `max` bytes, and no richer
/// format than `format`.
fn find_hops(
    settings: &Settings,
    (max, format): (u16, Format),
    now: Instant,
) -> anyhow::Result<Hops> {
    let Settings { dev, peers, far_ends, probe, .. } = settings;
    Hops::new(dev, (max, format), !probe, &peers.addresses, far_ends, now)
}

/// HELLOs on the interface, with `peer auto`.
fn say_hello(settings: &Settings, place: &Place, now: Instant) -> anyhow::Result<Option<Hello>> {
    if !settings.peers.auto {
        return Ok(None);
    }
    let key = place::seal_key(settings.key.as_deref())?;
    // More formats are said once the engine is there that takes them.
    Ok(Some(Hello::open(place, Some(place.splits(Formats::META)), key, now)?))
}

/// The richest format that `engine` is to send by `settings`.
fn richest(settings: &Settings, engine: &dyn Engine) -> Format {
    engine.sends().min(settings.format)
}

/// The peers of `settings` among `neighbours`, with what each wants; no format is richer than
/// `richest`.
fn peers_among(
    settings: &Settings,
    hello: Option<&Hello>,
    neighbours: &[Neighbour],
    richest: Format,
    now: Instant,
) -> BTreeMap<([u8; 6], IpAddr), Wants> {
    let peer = |one: &Neighbour| {
        let says = hello.and_then(|hello| hello.wants(one.mac, settings.follow, now));
        let is_peer = says.is_some() || settings.peers.contains(one.address);
        let wants = says.unwrap_or(Wants::any(richest));
        let format = wants.format.min(richest);
        let link = settings.links && wants.link && format > Format::Meta;
        let wants = Wants { format, link, ..wants };
        is_peer.then_some(((one.mac, one.address), wants))
    };
    neighbours.iter().filter_map(peer).collect()
}

fn policy_name(policy: Policy) -> &'static str {
    match policy {
        Policy::Busy => "busy",
        Policy::Forced => "forced",
    }
}

/// Outer addresses towards a far end, which must be reachable from the start.
fn towards(address: IpAddr) -> anyhow::Result<Outer> {
    let outer = ip::source_towards(address).ok().and_then(|ours| Outer::new(ours, address));
    outer.with_context(|| {
        format!("no route leads to {address}; add one, or an address of its family")
    })
}

impl Daemon {
    /// Puts an engine on the interface as it is now. Where that fails, nothing of it stays.
    fn attach(&mut self) -> anyhow::Result<Attached> {
        let dev = self.settings.dev.clone();
        let ifindex = ip::index(&dev)?;
        let splitter = match self.choice {
            Choice::User => true,
            Choice::Auto | Choice::Kernel => Split::is_there(ifindex)?,
        };
        let attached = self.attach_engine();
        if attached.is_err() && !splitter {
            // A splitter outlives its process.
            let _ = Split::detach(&dev, ifindex);
        }
        attached
    }

    fn attach_engine(&mut self) -> anyhow::Result<Attached> {
        let dev = &self.settings.dev.clone();
        let place = Place::find(dev)?;
        let Place { ifindex, mac, mtu, .. } = place;
        let queues = Queues::of(&mut self.netlink, dev, ifindex)?;
        let config = self.settings.fitted(mtu, queues.shaped)?;
        let mesh = batman::mesh_of(&mut self.netlink, ifindex)?;
        // Before the splitter that may be there has other senders: a key may not be readable.
        let hello = say_hello(&self.settings, &place, clock::now())?;
        let peers = senders(&self.settings, &BTreeSet::new());
        let kept = self.kept.take();
        let kernel = match (self.choice, mac) {
            (Choice::User, _) => None,
            (_, None) => {
                let why = format!("as {dev} carries bare IP packets");
                // An interface of that name that comes later may have a link header.
                check_engine(&self.settings, Choice::User, &why)?;
                (self.choice, self.why) = (Choice::User, why);
                None
            }
            (Choice::Kernel, Some(mac)) => {
                Some(Kernel::attach(dev, ifindex, mac, &config, &peers, kept)?)
            }
            (Choice::Auto, Some(mac)) => {
                match Kernel::attach(dev, ifindex, mac, &config, &peers, kept) {
                    Ok(kernel) => Some(kernel),
                    Err(error) => {
                        // A kernel that refuses once will do so after each change of the interface.
                        (self.choice, self.why) = (Choice::User, format!("as {error:#}"));
                        None
                    }
                }
            }
        };
        let mut engine: Box<dyn Engine> = match kernel {
            Some(kernel) => Box::new(kernel),
            None => {
                check_engine(&self.settings, self.choice, &self.why)?;
                Box::new(User::open(dev, ifindex, mtu, &config, &peers)?)
            }
        };
        engine.order(queues.order)?;
        let now = clock::now();
        engine.take_links(self.settings.links, now)?;
        let hops =
            find_hops(&self.settings, (config.max, richest(&self.settings, engine.as_ref())), now)?;
        let (icmp, announce) = (0..0, Some(now + FIRST));
        let groups = Groups::default();
        Ok(Attached { place, config, engine, queues, mesh, hops, hello, groups, icmp, announce })
    }

    /// Puts an engine on the interface once that is there and up.
    fn try_attach(&mut self, now: Instant) -> Next {
        if now < self.look {
            return Next::Wait(self.look);
        }
        if !ip::is_up(&self.settings.dev).unwrap_or(false) {
            self.look = now + ABSENT;
            return Next::Wait(self.look);
        }
        self.look = now + LOOK;
        match self.attach() {
            Ok(mut attached) => {
                // Whoever waits for the line knows its neighbours from before.
                attached.announce = Some(now);
                (self.attached, self.failed) = (Some(attached), None);
                self.look = now;
                Next::Refresh
            }
            Err(error) => {
                self.warn(format!("{error:#}; tries again"));
                Next::Wait(self.look)
            }
        }
    }

    /// Logs a failure, once for as long as it lasts.
    fn warn(&mut self, failure: String) {
        if self.failed.as_ref() != Some(&failure) {
            tracing::warn!("{failure}");
            self.failed = Some(failure);
        }
    }

    /// Does what is due with an engine on the interface; returns when the next turn is due, or
    /// what happened to the interface.
    fn serve(
        &mut self,
        attached: &mut Attached,
        now: Instant,
        poller: &mut Poller,
    ) -> anyhow::Result<Instant> {
        if now >= self.look {
            (self.look, self.looked) = (now + LOOK, now);
            let looked = self.changed(attached).and_then(|changed| match changed {
                Some(what) => bail!(what),
                None => self.look(attached, now),
            });
            match looked {
                // The engine does not need what is lacking, and goes on.
                Err(error) if is_exhausted(&error) => self.warn(format!("{error:#}")),
                Err(error) => return Err(error),
                Ok(()) => self.failed = None,
            }
        }
        let Attached { engine, hops, hello, .. } = attached;
        if let Some(hello) = hello {
            let mut any = false;
            hello.run(now, poller, |News { address, gone }| {
                any = true;
                match gone {
                    Some(why) => hops.lost(address, why, engine.as_mut(), now),
                    None => hops.stirred(address, now),
                }
            });
            if any {
                // A flood of changes does not make this process read tables all the time.
                self.look = self.look.min(now.max(self.looked + LEAST_LOOK));
            }
        }
        self.set_groups(attached, now)?;
        let Attached { engine, hops, icmp, .. } = attached;
        if icmp.clone().any(|index| poller.readable(index)) {
            hops.hear(engine.as_mut(), now);
        }
        if now >= hops.deadline() {
            hops.run(engine.as_mut(), now);
        }
        if attached.announce.is_some_and(|until| now >= until || attached.hops.are_known()) {
            attached.announce = None;
            self.announce(attached);
        }
        let next = match attached.engine.run(now, poller) {
            Ok(next) => next,
            Err(error) => match self.changed(attached) {
                Ok(Some(what)) => bail!(what),
                _ => return Err(error),
            },
        };
        let hello = attached.hello.as_ref().map_or(Instant::MAX, Hello::deadline);
        let due = self.look.min(attached.hops.deadline()).min(hello);
        let until = next.unwrap_or(Instant::MAX).min(due);
        Ok(until.min(attached.announce.unwrap_or(Instant::MAX)))
    }

    /// Reads who is there and who had frames.
    fn look(&mut self, attached: &mut Attached, now: Instant) -> anyhow::Result<()> {
        let Attached { engine, hops, place, config, queues, hello, groups, mesh, .. } = attached;
        // Disciplines change while we run, too.
        let before = *queues;
        *queues = Queues::of(&mut self.netlink, &self.settings.dev, place.ifindex)?;
        engine.order(queues.order)?;
        if queues.shaped != before.shaped {
            *config = self.settings.fitted(place.mtu, queues.shaped)?;
            engine.change(config)?;
        }
        // Only these go by what probes and HELLOs say; on a calm link they are the load.
        let left = |(id, one): (u32, Stats)| (id, engine.to_split(&one));
        let left: BTreeMap<_, _> = engine.stats()?.into_iter().map(left).collect();
        let frames = left.get(&layout::GROUPS).copied().unwrap_or(0);
        let any = std::mem::replace(&mut groups.frames, frames) != frames;
        let used = hops.count(left, now) || any;
        if self.settings.groups {
            groups.sources = hello::sources_to_groups(&self.settings.dev).collect();
            let size = |hello: &Hello| hello.largest_to_groups(self.settings.follow, now);
            groups.size = hello.as_ref().map_or(0, size);
        }
        if self.settings.peers.is_empty() {
            return Ok(());
        }
        let neighbours = neigh::dump(&mut self.netlink, place.ifindex)?;
        if let Some(hello) = hello {
            let split = engine.split()?.map(|counters| meta_packets(&counters));
            hello.look(
                split.map(|taken| (place.splits(engine.takes()), taken)),
                used,
                &neighbours,
                now,
            );
            *mesh = batman::mesh_of(&mut self.netlink, place.ifindex)?;
            if mesh.is_some() {
                for address in hello.unresolved() {
                    // Where it fails, the next look tries again.
                    let _ = neigh::resolve(&mut self.netlink, place.ifindex, address);
                }
            }
        }
        hops.set_neighbours(
            &peers_among(
                &self.settings,
                hello.as_ref(),
                &neighbours,
                richest(&self.settings, engine.as_ref()),
                now,
            ),
            engine.as_mut(),
            now,
        );
        if let Some(accepted) = hello.as_mut().and_then(Hello::newly_accepted) {
            engine.accept(&senders(&self.settings, accepted))?;
        }
        Ok(())
    }

    /// Tells the engine whether packets to groups share frames at `now`, and says what changed.
    fn set_groups(&self, attached: &mut Attached, now: Instant) -> anyhow::Result<()> {
        let Attached { engine, hops, hello, groups, config, .. } = attached;
        let is_on = self.settings.groups;
        if !is_on && groups.joined.is_none() {
            return Ok(());
        }
        let may_share = match hello {
            _ if !engine.gathers_for_groups() => Err(Plain::Engine),
            _ if groups.sources.is_empty() => Err(Plain::NoAddress),
            None => Err(Plain::Neighbours(Reason::Nobody)),
            Some(hello) => hello.may_share_to_groups(now).map_err(Plain::Neighbours),
        };
        if is_on && groups.said != Some(may_share) {
            let line = match may_share {
                Ok(()) => "small packets to groups share frames".to_owned(),
                Err(why) => format!("packets to groups pass as they are ({why})"),
            };
            hops.say(&line, now);
        }
        groups.said = is_on.then_some(may_share);
        let max = if is_on && may_share.is_ok() { groups.size.min(config.max) } else { 0 };
        let sources = &groups.sources;
        if groups.joined.as_ref().is_some_and(|(had, by)| *had == max && by == sources) {
            return Ok(());
        }
        let before = groups.joined.take().map_or_else(Vec::new, |(_, sources)| sources);
        for source in before.iter().filter(|source| !sources.contains(source)) {
            engine.set_groups(*source, 0)?;
        }
        for source in sources {
            engine.set_groups(*source, max)?;
        }
        groups.joined = Some((max, sources.clone()));
        Ok(())
    }

    /// Checks sizes that are new against the interface as it is now. Those given before were made
    /// to fit when it changed.
    fn check_sizes(&self, settings: &Settings) -> anyhow::Result<()> {
        let given = |settings: &Settings| (settings.min, settings.max);
        match &self.attached {
            Some(there) if given(settings) != given(&self.settings) => {
                settings.config(there.place.mtu).map(drop)
            }
            Some(there) => settings.fitted(there.place.mtu, there.queues.shaped).map(drop),
            None => settings.config(u32::MAX).map(drop),
        }
    }

    /// Makes the engine on the interface one of `settings`.
    fn adapt(
        &mut self,
        there: &mut Attached,
        settings: &Settings,
        now: Instant,
    ) -> anyhow::Result<()> {
        let config = settings.fitted(there.place.mtu, there.queues.shaped)?;
        there.engine.change(&config)?;
        if settings.links != self.settings.links {
            there.engine.take_links(settings.links, now)?;
            // Neighbours hear of it, and are looked at anew.
            self.look = now;
        }
        let says = |settings: &Settings| (settings.peers.auto, settings.key.clone());
        if says(settings) != says(&self.settings) {
            if let Some(hello) = &mut there.hello {
                hello.part(now);
            }
            there.hello = say_hello(settings, &there.place, now)?;
            // Neighbours are looked for, and the new sockets waited for.
            (self.look, self.stale) = (now, true);
        }
        let none = BTreeSet::new();
        let accepted = there.hello.as_ref().map_or(&none, Hello::accepted);
        there.engine.accept(&senders(settings, accepted))?;
        let who = |settings: &Settings| {
            (settings.peers.clone(), settings.far_ends.clone(), settings.probe)
        };
        if who(settings) == who(&self.settings) {
            let format = richest(settings, there.engine.as_ref());
            there.hops.refit((config.max, format), there.engine.as_mut(), now);
        } else {
            let mut hops =
                find_hops(settings, (config.max, richest(settings, there.engine.as_ref())), now)?;
            there.engine.forget()?;
            there.groups.joined = None;
            self.keep_counters(there);
            hops.number_behind(&there.hops);
            there.hops = hops;
            // Neighbours are looked for, and the new sockets waited for.
            (self.look, self.stale) = (now, true);
        }
        if let Some((max @ 1.., _)) = &mut there.groups.joined {
            // What the engine makes of it may depend on more that changed.
            *max = u16::MAX;
        }
        there.config = config;
        Ok(())
    }

    /// Takes the engine from the interface; what it holds leaves first.
    fn let_go(&mut self, mut there: Attached) -> anyhow::Result<()> {
        let left = there.engine.forget().and_then(|()| there.engine.flush());
        self.keep_counters(&there);
        let groups = there.engine.stats().unwrap_or_default();
        for (_, stats) in groups.iter().filter(|(id, _)| *id == layout::GROUPS) {
            self.past_groups.add(stats);
        }
        self.kept = there.engine.into_splitter();
        left
    }

    /// Says that it is at work.
    fn announce(&self, attached: &Attached) {
        say(&self.title(attached));
    }

    /// Line about the engine at work.
    fn title(&self, attached: &Attached) -> String {
        let (dev, why) = (&self.settings.dev, &self.why);
        let (name, policy) = (attached.engine.name(), policy_name(attached.config.policy));
        let order = attached.queues.order;
        let engine = attached.engine.as_ref();
        let shares = engine.takes().contain(Formats::PAYLOADS)
            && richest(&self.settings, engine) > Format::Meta;
        let marks = if attached.config.by_mark { "; frames as large as marks say" } else { "" };
        let groups = match self.settings.groups {
            true if engine.gathers_for_groups() => "; packets to groups share frames, too",
            true => "; packets to groups pass as they are, as this engine gathers none",
            false => "",
        };
        let mesh = match attached.mesh {
            Some(_) if shares => "; small frames of batman-adv share frames, too",
            Some(_) => "; frames of batman-adv pass as they are",
            None => "",
        };
        let more = [marks, groups, mesh].concat();
        format!("aggregating on {dev}: engine {name}, {why}; policy {policy}, {order}{more}")
    }

    /// Keeps the counters of an engine that goes.
    fn keep_counters(&mut self, attached: &Attached) {
        // A table that cannot be read went with the interface.
        let stats: BTreeMap<_, _> =
            attached.engine.stats().unwrap_or_default().into_iter().collect();
        for hop in attached.hops.shown(clock::now()) {
            for stats in hop.numbers.iter().flatten().filter_map(|number| stats.get(number)) {
                self.past.entry(hop.address).or_default().add(stats);
            }
        }
    }

    /// The report.
    fn interface(&self) -> anyhow::Result<Interface> {
        let mut interface = Interface::new(&self.settings.dev);
        interface.seconds = (clock::now() - self.started).as_secs_f64();
        let mut groups = Hop::new(self.past_groups);
        let mut hops: BTreeMap<IpAddr, Hop> =
            self.past.iter().map(|(address, stats)| (*address, Hop::new(*stats))).collect();
        match &self.attached {
            None => interface.engine = Some(format!("none, waits for {}", self.settings.dev)),
            Some(Attached { config, engine, hops: table, hello, groups: state, .. }) => {
                interface.engine = Some(engine.name());
                interface.policy = Some(policy_name(config.policy).to_owned());
                interface.by_mark = config.by_mark;
                interface.held_frames = engine.held();
                interface.passed_frames = engine.passed()?;
                interface.split = engine.split()?;
                interface.neighbours_left_out = table.left_out();
                interface.neighbourhood = hello.as_ref().map(|hello| hello.report(clock::now()));
                let stats: BTreeMap<_, _> = engine.stats()?.into_iter().collect();
                if let Some(stats) = stats.get(&layout::GROUPS) {
                    groups.stats.add(stats);
                }
                if let Some(said) = state.said {
                    groups.splits = Some(if said.is_ok() { "yes" } else { "no" });
                    groups.why = said.err().map(|why| why.to_string());
                    let size = state.joined.as_ref().map(|(max, _)| *max);
                    groups.max = size.filter(|_| said.is_ok());
                    groups.format = said.is_ok().then_some(Format::Frames.name());
                }
                for shown in table.shown(clock::now()) {
                    let hop = hops.entry(shown.address).or_default();
                    let numbers = shown.numbers.iter().flatten();
                    for stats in numbers.filter_map(|number| stats.get(number)) {
                        hop.stats.add(stats);
                    }
                    hop.splits = Some(shown.splits.name());
                    let splits = shown.splits == Splits::Yes;
                    hop.max = splits.then_some(shown.max);
                    hop.format = splits.then_some(shown.format.name());
                    hop.carriage = (splits && shown.link).then_some("ethernet");
                    hop.probes = shown.probes;
                }
            }
        }
        let mut hops: BTreeMap<_, _> =
            hops.into_iter().map(|(name, hop)| (name.to_string(), hop)).collect();
        if groups.splits.is_some() || groups.stats != Stats::default() {
            hops.insert(GROUPS.to_owned(), groups);
        }
        interface.set_hops(hops);
        Ok(interface)
    }

    /// Change of the interface since the engine was put on it; `None` for nothing. An error
    /// where the system cannot say.
    fn changed(&self, attached: &Attached) -> anyhow::Result<Option<String>> {
        match attached.place.changed()? {
            Some(what) => Ok(Some(what)),
            None => attached.engine.fault(),
        }
    }
}
