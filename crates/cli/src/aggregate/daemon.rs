//! `sheaf aggregate` at work on one interface, until Ctrl-C: keeps time for its engine, learns the
//! neighbours, and answers `sheaf show`.

use super::arguments::{Arguments, Engine as Choice, Peers};
use super::device::Order;
use super::engine::Engine;
use super::kernel::Kernel;
use super::user::User;
use crate::control::{Service, Teller};
use crate::show::{self, Interface};
use anyhow::{Context, bail};
use nix::sys::signalfd::SignalFd;
use sheaf_aggregate::{Config, Policy};
use sheaf_netio::neigh::{self, Neighbour};
use sheaf_netio::netlink::Netlink;
use sheaf_netio::poller::Poller;
use sheaf_netio::{clock, ip};
use sheaf_stage::{Duration, Instant};
use sheaf_wire::meta::Outer;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// How often the neighbour table is read.
const NEIGHBOURS: Duration = Duration::from_secs(1);

struct Daemon<'a> {
    arguments: &'a Arguments,
    config: Config,
    ifindex: u32,
    engine: Box<dyn Engine>,
    /// Hop numbers by what was asked for, so that a changed link address keeps its counters.
    hops: BTreeMap<IpAddr, u32>,
    /// Neighbours that share frames, by link address.
    joined: BTreeSet<([u8; 6], IpAddr)>,
    netlink: Netlink,
    started: Instant,
}

/// Runs until SIGINT or SIGTERM.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let dev = &arguments.dev;
    let ifindex = ip::index(dev)?;
    let (mac, mtu) = (ip::mac(dev)?, ip::mtu(dev)?);
    let config = arguments.config(mtu)?;
    let (engine, why) = choose(arguments.engine)?;
    // Before anything is put on the interface, where the splitter would stay.
    let far_ends = arguments.far_ends.iter().map(|far_end| towards(far_end.address));
    let far_ends = far_ends.collect::<anyhow::Result<Vec<Outer>>>()?;
    let control = Teller::bind(Service::Aggregate, dev).map_err(|_| {
        anyhow::anyhow!("{dev} is aggregated already; stop the other `sheaf aggregate` first")
    })?;
    let mut netlink = Netlink::open()?;
    let order = Order::of(&mut netlink, dev, ifindex)?;
    let peers = splits(arguments);
    let engine: Box<dyn Engine> = match engine {
        Choice::User => Box::new(User::open(dev, ifindex, mtu, &config, &peers)?),
        _ => Box::new(Kernel::attach(dev, ifindex, mac, &config, &peers)?),
    };
    let signals = crate::signals::signals()?;
    let mut daemon = Daemon {
        arguments,
        config,
        ifindex,
        engine,
        hops: BTreeMap::new(),
        joined: BTreeSet::new(),
        netlink,
        started: clock::now(),
    };
    daemon.engine.order(order)?;
    daemon.far_ends(&far_ends)?;
    daemon.neighbours()?;
    let (name, policy) = (daemon.engine.name(), policy_name(daemon.config.policy));
    println!("aggregating on {dev}: engine {name}, {why}; policy {policy}, {order}");
    daemon.serve(&control, &signals)?;
    daemon.engine.flush()?;
    print!("{}", show::text(&daemon.report()?));
    Ok(())
}

/// The engine that `asked` comes to, and why.
fn choose(asked: Choice) -> anyhow::Result<(Choice, String)> {
    match (asked, sheaf_bpf::support()) {
        (_, Err(error @ sheaf_bpf::Unsupported::NotRoot)) => Err(error.into()),
        (Choice::User, _) => Ok((Choice::User, "as asked".to_owned())),
        (Choice::Auto, Err(error)) => Ok((Choice::User, format!("as {error}"))),
        (Choice::Kernel, Err(error)) => bail!(error),
        (Choice::Kernel, Ok(())) => Ok((Choice::Kernel, "as asked".to_owned())),
        (Choice::Auto, Ok(())) => Ok((Choice::Kernel, "the kernel can".to_owned())),
    }
}

/// Whose meta packets are split: the peers' and the far ends'.
fn splits(arguments: &Arguments) -> Peers {
    let mut peers = arguments.peers.clone();
    peers.far_ends.extend(arguments.far_ends.iter().map(|far_end| far_end.address));
    peers
}

fn policy_name(policy: Policy) -> &'static str {
    match policy {
        Policy::Busy => "busy",
        Policy::Forced => "forced",
    }
}

/// Outer addresses towards `address`; `None` where no route leads there.
fn outer(address: IpAddr) -> Option<Outer> {
    Outer::new(ip::source_towards(address).ok()?, address)
}

/// The same for a far end, which must be reachable from the start.
fn towards(address: IpAddr) -> anyhow::Result<Outer> {
    outer(address).with_context(|| {
        format!("no route leads to {address}; add one, or an address of its family")
    })
}

impl Daemon<'_> {
    fn serve(&mut self, control: &Teller, signals: &SignalFd) -> anyhow::Result<()> {
        let mut poller = Poller::default();
        let (asked, ended) = (poller.add(control), poller.add(signals));
        self.engine.wait_for(&mut poller);
        let mut look = clock::now() + NEIGHBOURS;
        loop {
            let now = clock::now();
            if now >= look {
                self.neighbours()?;
                // Disciplines change while we run, too.
                let order = Order::of(&mut self.netlink, &self.arguments.dev, self.ifindex)?;
                self.engine.order(order)?;
                look = now + NEIGHBOURS;
            }
            let until = self.engine.run(now)?.unwrap_or(Instant::MAX).min(look);
            poller.wait(Some(until.saturating_since(clock::now())))?;
            if poller.readable(ended) {
                return Ok(());
            }
            if poller.readable(asked) {
                control.tell(|| self.report());
            }
        }
    }

    /// Lets every neighbour join that is a peer and not one yet, and those leave that went; an error
    /// when the interface is gone. A neighbour with several addresses is one next hop, named by its
    /// first.
    fn neighbours(&mut self) -> anyhow::Result<()> {
        let dev = &self.arguments.dev;
        if ip::index(dev).ok() != Some(self.ifindex) {
            bail!("{dev} is gone; start `sheaf aggregate` again when it is back");
        }
        if self.arguments.peers.is_empty() {
            return Ok(());
        }
        let mut seen = BTreeSet::new();
        for Neighbour { address, mac } in neigh::dump(&mut self.netlink, self.ifindex)? {
            if self.arguments.peers.contains(address) {
                seen.insert((mac, address));
            }
        }
        let gone: Vec<_> = self.joined.difference(&seen).copied().collect();
        for (mac, address) in gone {
            self.engine.leave(Neighbour { address, mac })?;
            // What else is known of the same neighbour joins anew.
            self.joined.retain(|(other, _)| *other != mac);
        }
        let mut first = None;
        for (mac, address) in seen {
            let name = match first {
                Some((same, name)) if same == mac => name,
                _ => address,
            };
            first = Some((mac, name));
            if self.joined.contains(&(mac, address)) {
                continue;
            }
            if let Some(outer) = outer(name) {
                let hop = self.hop(name);
                self.engine.join(hop, Neighbour { address, mac }, outer)?;
                self.joined.insert((mac, address));
            }
        }
        Ok(())
    }

    /// Lets the far ends join; `outers`: the outer addresses towards each.
    fn far_ends(&mut self, outers: &[Outer]) -> anyhow::Result<()> {
        for (far_end, outer) in self.arguments.far_ends.iter().zip(outers) {
            let hop = self.hop(far_end.address);
            for prefix in &far_end.prefixes {
                self.engine.far_end(hop, *prefix, *outer)?;
            }
        }
        Ok(())
    }

    fn hop(&mut self, address: IpAddr) -> u32 {
        let next = self.hops.len() as u32;
        *self.hops.entry(address).or_insert(next)
    }

    fn report(&self) -> anyhow::Result<Interface> {
        let names: BTreeMap<u32, IpAddr> = self.hops.iter().map(|(ip, id)| (*id, *ip)).collect();
        let mut interface = Interface::new(&self.arguments.dev);
        interface.engine = Some(self.engine.name());
        interface.policy = Some(policy_name(self.config.policy).to_owned());
        interface.seconds = (clock::now() - self.started).as_secs_f64();
        let name = |id: u32| names.get(&id).map_or_else(|| id.to_string(), IpAddr::to_string);
        let hops = self.engine.stats()?.into_iter();
        interface.set_hops(hops.map(|(id, stats)| (name(id), stats)).collect());
        interface.held_frames = self.engine.held();
        interface.passed_frames = self.engine.passed();
        interface.split = self.engine.split()?;
        Ok(interface)
    }
}
