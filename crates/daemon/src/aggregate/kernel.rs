//! The kernel engine: eBPF programs on the interface; this process only keeps time.

use super::UNHEARD;
use super::contexts::Contexts;
use super::device::Order;
use super::engine::{Engine, Shape};
use super::settings::Peers;
use anyhow::anyhow;
use nix::libc;
use sheaf_aggregate::{Config, Format, Stats};
use sheaf_bpf::Controller;
use sheaf_bpf::layout::Hop;
use sheaf_netio::neigh::Neighbour;
use sheaf_netio::poller::Poller;
use sheaf_netio::{clock, random, scheduling};
use sheaf_stage::Instant;
use sheaf_wire::ethernet;
use sheaf_wire::hello::Formats;
use sheaf_wire::prefix::Prefix;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::thread;

pub struct Kernel {
    ifindex: u32,
    config: Config,
    controller: Controller,
    /// The splitter that was attached or taken over; a later command may have replaced it.
    split: sheaf_bpf::Split,
    contexts: Contexts,
    /// Whether it is to take frames without a header of IP.
    links: bool,
    /// Until when it takes them nevertheless.
    links_until: Option<Instant>,
    /// Hops by their outer addresses.
    by_address: HashMap<IpAddr, u32>,
}

impl Kernel {
    /// Puts both programs on interface `dev`, with its number and link address; `kept` is the
    /// splitter of an engine that went with it.
    pub fn attach(
        dev: &str,
        ifindex: u32,
        mac: [u8; 6],
        config: &Config,
        peers: &Peers,
        kept: Option<sheaf_bpf::Split>,
    ) -> anyhow::Result<Kernel> {
        let cookie = u64::from_ne_bytes(random::unguessable()?);
        // The kernel takes its time to look at each program: on two processors, at the same time.
        let (controller, split) = thread::scope(|scope| {
            let loading = scope.spawn(|| super::load_split(peers, true, kept));
            let controller = Controller::attach(dev, ifindex, mac, config, cookie);
            (controller, loading.join().expect("loading does not panic"))
        });
        // In this order: the splitter stays, and must not where the engine cannot.
        let controller = controller?;
        let split = split?.attach(dev, ifindex)?;
        let contexts = Contexts::open(dev, &split, clock::now())?;
        // A tick that comes late finds a full queue.
        scheduling::realtime_if_allowed();
        let (config, by_address) = (config.clone(), HashMap::new());
        Ok(Kernel {
            ifindex,
            config,
            controller,
            split,
            contexts,
            links: false,
            links_until: None,
            by_address,
        })
    }

    fn hop(&mut self, id: u32, shape: Shape) -> Hop {
        let Shape { outer, max, format, payloads } = shape;
        self.by_address.insert(outer.destination(), id);
        let min = self.config.least(max);
        Hop::new(id, outer, min, max).with_format(format).with_payloads(payloads)
    }
}

impl Engine for Kernel {
    fn name(&self) -> String {
        format!("kernel (eBPF at {})", self.controller.merge.how())
    }

    fn takes(&self) -> Formats {
        super::formats(&self.split, self.links)
    }

    fn sends(&self) -> Format {
        if self.controller.merge.takes_frames() { Format::Compressed } else { Format::Meta }
    }

    fn join(&mut self, hop: u32, neighbour: Neighbour, shape: Shape) -> anyhow::Result<()> {
        // Its frames come with a header of IP or without, whatever it is sent.
        for from in [shape.outer.destination(), ethernet::station(neighbour.mac).into()] {
            self.split.watch(from)?;
        }
        let hop = self.hop(hop, shape);
        Ok(self.controller.merge.set_hop(neighbour.mac, hop)?)
    }

    fn leave(&mut self, neighbour: Neighbour) -> anyhow::Result<()> {
        Ok(self.controller.merge.remove_hop(neighbour.mac)?)
    }

    fn far_end(&mut self, hop: u32, prefix: Prefix, shape: Shape) -> anyhow::Result<()> {
        self.split.watch(shape.outer.destination())?;
        let hop = self.hop(hop, shape).far();
        Ok(self.controller.merge.set_far_end(prefix.addr(), prefix.prefix_len().into(), hop)?)
    }

    fn heard(&self, from: IpAddr) -> Option<Instant> {
        self.split.heard(from)
    }

    fn gathers_for_groups(&self) -> bool {
        self.controller.merge.takes_frames()
    }

    fn set_groups(&mut self, source: IpAddr, max: u16) -> anyhow::Result<()> {
        let min = self.config.least(max);
        Ok(self.controller.merge.set_groups(source, min, max)?)
    }

    fn take_links(&mut self, takes: bool, now: Instant) -> anyhow::Result<()> {
        self.links = takes;
        self.links_until = (!takes).then_some(now + UNHEARD);
        if takes {
            self.split.set_link(true)?;
        }
        Ok(())
    }

    fn order(&mut self, order: Order) -> anyhow::Result<()> {
        Ok(self.controller.track(order == Order::Fifo)?)
    }

    fn run(&mut self, now: Instant, poller: &mut Poller) -> anyhow::Result<Option<Instant>> {
        let (merge, by_address) = (&mut self.controller.merge, &self.by_address);
        let answers = self.contexts.run(&mut self.split, now, poller, |peer, feedback| {
            by_address.get(&peer).map_or(Ok(()), |hop| Ok(merge.said(*hop, feedback, now)?))
        })?;
        if self.links_until.is_some_and(|until| now >= until) {
            self.links_until = None;
            self.split.set_link(false)?;
        }
        let deadline = self.controller.run(now).map_err(|error| match is_down(&error) {
            true => anyhow!("the interface is down; set it up, and start again"),
            false => error.into(),
        })?;
        Ok(deadline.into_iter().chain(answers).min())
    }

    fn wait_for(&mut self, poller: &mut Poller) {
        self.controller.wait_for(poller);
        self.contexts.wait_for(poller);
    }

    fn held(&self) -> u32 {
        self.controller.merge.device().read().held
    }

    fn passed(&self) -> anyhow::Result<u64> {
        let merge = &self.controller.merge;
        Ok(u64::from(merge.device().read().passed) + merge.unseen()?)
    }

    fn stats(&self) -> anyhow::Result<Vec<(u32, Stats)>> {
        Ok(self.controller.merge.stats()?)
    }

    fn split(&self) -> anyhow::Result<Option<BTreeMap<String, u64>>> {
        let counters = match sheaf_bpf::Split::find(self.ifindex) {
            // Without CAP_SYS_ADMIN, only what this process has open can be read.
            Err(sheaf_bpf::Error::Hidden) => self.split.counters()?,
            Ok(Some(split)) => split.counters()?,
            Ok(None) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let counters = counters.into_iter();
        Ok(Some(counters.map(|(name, count)| (name.to_owned(), count)).collect()))
    }

    fn accept(&mut self, peers: &Peers) -> anyhow::Result<()> {
        Ok(self.split.accept(&peers.senders())?)
    }

    fn change(&mut self, config: &Config) -> anyhow::Result<()> {
        self.controller.change(config)?;
        self.config = config.clone();
        Ok(())
    }

    fn forget(&mut self) -> anyhow::Result<()> {
        self.by_address.clear();
        self.split.watch_nobody()?;
        Ok(self.controller.merge.forget_hops()?)
    }

    fn into_splitter(self: Box<Self>) -> Option<sheaf_bpf::Split> {
        Some(self.split)
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        match self.controller.flush() {
            // It takes nothing any more; what is held is lost with the link.
            Err(error) if is_down(&error) => Ok(()),
            flushed => Ok(flushed?),
        }
    }
}

/// Whether an error says that the interface is down.
fn is_down(error: &sheaf_bpf::Error) -> bool {
    matches!(error, sheaf_bpf::Error::Io(error) if error.raw_os_error() == Some(libc::ENETDOWN))
}
