//! `sheaf aggregate` at work on one interface, until Ctrl-C: keeps time for its engine, learns the
//! neighbours, and answers `sheaf show`.
//!
//! An interface that goes down or away, or changes, takes the engine with it: packets then go as if
//! this process were not there. It waits for the interface by its name, and begins anew.

use super::device::Order;
use super::engine::Engine;
use super::hops::Hops;
use super::kernel::Kernel;
use super::life::Splits;
use super::settings::{Engine as Choice, Peers, Settings};
use super::user::User;
use crate::report::{Hop, Interface};
use crate::teller::{Service, Teller};
use anyhow::{Context, bail};
use nix::sys::signalfd::SignalFd;
use sheaf_aggregate::{Config, Policy, Stats};
use sheaf_netio::neigh::{self, Neighbour};
use sheaf_netio::netlink::Netlink;
use sheaf_netio::poller::Poller;
use sheaf_netio::{clock, ip};
use sheaf_stage::{Duration, Instant};
use sheaf_wire::meta::Outer;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// How often the neighbour table, the interface and the counters are read.
const LOOK: Duration = Duration::from_millis(500);
/// How long the first probes may take before the command says that it is at work: two of them.
const FIRST: Duration = Duration::from_millis(600);
/// Turns in a row that wait for nothing and find nothing to read, before one waits all the same: a
/// fault must not keep the machine from ordinary processes, which come after this one.
const IDLE_TURNS: u32 = 1000;
/// How long it waits then.
const BREATH: Duration = Duration::from_millis(1);

struct Daemon<'a> {
    settings: &'a Settings,
    choice: Choice,
    why: String,
    netlink: Netlink,
    started: Instant,
    /// Counters of engines that went with the interface, by address.
    past: BTreeMap<IpAddr, Stats>,
    control: Teller,
    signals: SignalFd,
}

/// What goes and comes with the interface.
struct Attached {
    ifindex: u32,
    mac: [u8; 6],
    mtu: u32,
    config: Config,
    engine: Box<dyn Engine>,
    order: Order,
    hops: Hops,
}

/// Why serving an interface ended.
enum End {
    /// A signal.
    Signal,
    /// What happened to the interface.
    Lost(String),
}

/// Runs until SIGINT or SIGTERM; returns the last report.
pub fn run(settings: &Settings) -> anyhow::Result<Interface> {
    let dev = &settings.dev;
    ip::index(dev)?;
    ip::mac(dev)?;
    settings.config(ip::mtu(dev)?)?;
    let (choice, why) = choose(settings.engine)?;
    // Before anything is put on the interface, where the splitter would stay.
    for far_end in &settings.far_ends {
        towards(far_end.address)?;
    }
    let control = Teller::bind(Service::Aggregate, dev).map_err(|_| {
        anyhow::anyhow!("{dev} is aggregated already; stop the other `sheaf aggregate` first")
    })?;
    let mut daemon = Daemon {
        settings,
        choice,
        why,
        netlink: Netlink::open()?,
        started: clock::now(),
        past: BTreeMap::new(),
        control,
        signals: crate::signals::signals()?,
    };
    // The first time, what is wrong ends the command.
    let mut attached = Some(daemon.attach()?);
    loop {
        let Some(mut there) = attached.take() else {
            attached = daemon.wait()?;
            if attached.is_none() {
                return daemon.report(None);
            }
            continue;
        };
        match daemon.serve(&mut there)? {
            End::Signal => {
                // What cannot leave any more is lost with the interface.
                if let Err(error) = there.engine.flush() {
                    eprintln!("sheaf: what was held is lost: {error:#}");
                }
                return daemon.report(Some(&there));
            }
            End::Lost(what) => {
                eprintln!("sheaf: {what}; waits until {dev} is up");
                daemon.keep_counters(&there);
            }
        }
    }
}

/// The engine that `asked` comes to, and why.
fn choose(asked: Choice) -> anyhow::Result<(Choice, String)> {
    match (asked, sheaf_bpf::support()) {
        (_, Err(error @ sheaf_bpf::Unsupported::NotRoot)) => Err(error.into()),
        (Choice::User, _) => Ok((Choice::User, "as asked".to_owned())),
        (Choice::Auto, Err(error)) => Ok((Choice::User, format!("as {error}"))),
        (Choice::Kernel, Err(error)) => bail!(error),
        (Choice::Kernel, Ok(())) => Ok((Choice::Kernel, "as asked".to_owned())),
        (Choice::Auto, Ok(())) => Ok((Choice::Auto, "the kernel can".to_owned())),
    }
}

/// Whose meta packets are split: the peers' and the far ends'.
fn splits(settings: &Settings) -> Peers {
    let mut peers = settings.peers.clone();
    peers.far_ends.extend(settings.far_ends.iter().map(|far_end| far_end.address));
    peers
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

impl Daemon<'_> {
    /// Puts an engine on the interface as it is now.
    fn attach(&mut self) -> anyhow::Result<Attached> {
        let dev = &self.settings.dev;
        let (ifindex, mac, mtu) = (ip::index(dev)?, ip::mac(dev)?, ip::mtu(dev)?);
        let config = self.settings.fitted(mtu)?;
        let order = Order::of(&mut self.netlink, dev, ifindex)?;
        let peers = splits(self.settings);
        let kernel = match self.choice {
            Choice::User => None,
            Choice::Kernel => Some(Kernel::attach(dev, ifindex, mac, &config, &peers)?),
            Choice::Auto => match Kernel::attach(dev, ifindex, mac, &config, &peers) {
                Ok(kernel) => Some(kernel),
                Err(error) => {
                    // A kernel that refuses once will do so after each change of the interface.
                    (self.choice, self.why) = (Choice::User, format!("as {error:#}"));
                    None
                }
            },
        };
        let mut engine: Box<dyn Engine> = match kernel {
            Some(kernel) => Box::new(kernel),
            None => Box::new(User::open(dev, ifindex, mtu, &config, &peers)?),
        };
        engine.order(order)?;
        let Settings { peers, far_ends, probe, .. } = self.settings;
        let hops = Hops::new(dev, config.max, !probe, &peers.addresses, far_ends, clock::now())?;
        Ok(Attached { ifindex, mac, mtu, config, engine, order, hops })
    }

    /// Waits until the interface is there and up, and an engine is on it; `None` after a signal.
    fn wait(&mut self) -> anyhow::Result<Option<Attached>> {
        let mut poller = Poller::default();
        let (asked, ended) = (poller.add(&self.control), poller.add(&self.signals));
        let mut said = None;
        loop {
            poller.wait(Some(LOOK))?;
            if poller.readable(ended) {
                return Ok(None);
            }
            if poller.readable(asked) {
                self.control.tell(|| self.report(None));
            }
            if !ip::is_up(&self.settings.dev).unwrap_or(false) {
                continue;
            }
            match self.attach() {
                Ok(attached) => return Ok(Some(attached)),
                Err(error) => {
                    let error = format!("{error:#}");
                    if said.as_ref() != Some(&error) {
                        eprintln!("sheaf: {error}; tries again");
                        said = Some(error);
                    }
                }
            }
        }
    }

    fn serve(&mut self, attached: &mut Attached) -> anyhow::Result<End> {
        let mut poller = Poller::default();
        let (asked, ended) = (poller.add(&self.control), poller.add(&self.signals));
        attached.engine.wait_for(&mut poller);
        let icmp = attached.hops.prober().wait_for(&mut poller);
        let (mut look, mut idle) = (clock::now(), 0);
        let mut announce = Some(look + FIRST);
        loop {
            let now = clock::now();
            if now >= look {
                if let Some(what) = changed(&self.settings.dev, attached) {
                    return Ok(End::Lost(what));
                }
                if let Err(error) = self.look(attached, now) {
                    return Ok(End::Lost(format!("{error:#}")));
                }
                look = now + LOOK;
            }
            let Attached { engine, hops, .. } = attached;
            if icmp.clone().any(|index| poller.readable(index)) {
                hops.hear(engine.as_mut(), now);
            }
            if now >= hops.deadline() {
                hops.run(engine.as_mut(), now);
            }
            if let Some(until) = announce
                && (now >= until || hops.are_known())
            {
                announce = None;
                self.announce(attached);
            }
            let Attached { engine, hops, .. } = attached;
            let next = match engine.run(now, &mut poller) {
                Ok(next) => next,
                Err(error) => {
                    let what = changed(&self.settings.dev, attached);
                    return Ok(End::Lost(what.unwrap_or_else(|| format!("{error:#}"))));
                }
            };
            let mut until = next.unwrap_or(Instant::MAX).min(look).min(hops.deadline());
            until = until.min(announce.unwrap_or(Instant::MAX));
            let mut left = until.saturating_since(clock::now());
            if idle > IDLE_TURNS {
                left = left.max(BREATH);
            }
            poller.wait(Some(left))?;
            idle = if left.is_zero() && !poller.any_readable() { idle + 1 } else { 0 };
            if poller.readable(ended) {
                return Ok(End::Signal);
            }
            if poller.readable(asked) {
                self.control.tell(|| self.report(Some(attached)));
            }
        }
    }

    /// Reads who is there and who had frames.
    fn look(&mut self, attached: &mut Attached, now: Instant) -> anyhow::Result<()> {
        let Attached { engine, hops, ifindex, order, .. } = attached;
        // Disciplines change while we run, too.
        *order = Order::of(&mut self.netlink, &self.settings.dev, *ifindex)?;
        engine.order(*order)?;
        let stats = engine.stats()?.into_iter();
        hops.count(stats.map(|(id, one)| (id, one.meta_packets + one.unaggregated_packets)), now);
        let mut seen = BTreeSet::new();
        if !self.settings.peers.is_empty() {
            for Neighbour { address, mac } in neigh::dump(&mut self.netlink, *ifindex)? {
                if self.settings.peers.contains(address) {
                    seen.insert((mac, address));
                }
            }
        }
        hops.set_neighbours(&seen, engine.as_mut(), now);
        Ok(())
    }

    /// Says that it is at work.
    fn announce(&self, attached: &Attached) {
        let (dev, why) = (&self.settings.dev, &self.why);
        let (name, policy) = (attached.engine.name(), policy_name(attached.config.policy));
        let order = attached.order;
        println!("aggregating on {dev}: engine {name}, {why}; policy {policy}, {order}");
    }

    /// Keeps the counters of an engine that goes.
    fn keep_counters(&mut self, attached: &Attached) {
        // A table that cannot be read went with the interface.
        let stats: BTreeMap<_, _> =
            attached.engine.stats().unwrap_or_default().into_iter().collect();
        for hop in attached.hops.shown(clock::now()) {
            if let Some(stats) = hop.number.and_then(|number| stats.get(&number)) {
                self.past.entry(hop.address).or_default().add(stats);
            }
        }
    }

    fn report(&self, attached: Option<&Attached>) -> anyhow::Result<Interface> {
        let mut interface = Interface::new(&self.settings.dev);
        interface.seconds = (clock::now() - self.started).as_secs_f64();
        let mut hops: BTreeMap<IpAddr, Hop> =
            self.past.iter().map(|(address, stats)| (*address, Hop::new(*stats))).collect();
        match attached {
            None => interface.engine = Some(format!("none, waits for {}", self.settings.dev)),
            Some(Attached { config, engine, hops: table, .. }) => {
                interface.engine = Some(engine.name());
                interface.policy = Some(policy_name(config.policy).to_owned());
                interface.held_frames = engine.held();
                interface.passed_frames = engine.passed();
                interface.split = engine.split()?;
                interface.neighbours_left_out = table.left_out();
                let stats: BTreeMap<_, _> = engine.stats()?.into_iter().collect();
                for shown in table.shown(clock::now()) {
                    let hop = hops.entry(shown.address).or_default();
                    if let Some(stats) = shown.number.and_then(|number| stats.get(&number)) {
                        hop.stats.add(stats);
                    }
                    hop.splits = Some(shown.splits.name());
                    hop.max = (shown.splits == Splits::Yes).then_some(shown.max);
                    hop.probes = shown.probes;
                }
            }
        }
        interface.set_hops(hops.into_iter().map(|(name, hop)| (name.to_string(), hop)).collect());
        Ok(interface)
    }
}

/// What happened to interface `dev` since an engine was put on it; `None` for nothing.
fn changed(dev: &str, attached: &Attached) -> Option<String> {
    match ip::index(dev) {
        Ok(ifindex) if ifindex == attached.ifindex => {}
        Ok(_) => return Some(format!("{dev} is another interface now")),
        Err(_) => return Some(format!("{dev} is gone")),
    }
    if !ip::is_up(dev).unwrap_or(false) {
        return Some(format!("{dev} is down"));
    }
    if ip::mtu(dev).ok() != Some(attached.mtu) {
        return Some(format!("{dev} has another MTU"));
    }
    (ip::mac(dev).ok() != Some(attached.mac)).then(|| format!("{dev} has another link address"))
}
