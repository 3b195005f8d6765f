//! `sheaf split` with `peer auto`, until Ctrl-C: keeps a splitter on one interface and says so to
//! the neighbours.
//!
//! The splitter stays when this process ends, because frames may be under way; neighbours stop at
//! the goodbye.

use super::contexts::Contexts;
use super::hello::Hello;
use super::place::{self, Place};
use super::settings::{Peers, Split};
use super::{KEPT, LOOK, UNHEARD, attach_split, formats, meta_packets};
use crate::control::{Kind, ServiceName};
use crate::reactor::{Parse, Reactor};
use crate::report::Interface;
use crate::service::{Next, Service};
use crate::{already, descriptors, say};
use anyhow::{Context, ensure};
use serde_json::Value;
use sheaf_netio::capability::{self, Capability};
use sheaf_netio::neigh;
use sheaf_netio::netlink::Netlink;
use sheaf_netio::poller::Poller;
use sheaf_netio::{clock, ip};
use sheaf_stage::Instant;
use sheaf_wire::hello::Splits;
use std::collections::BTreeSet;

struct Splitter {
    settings: Split,
    peers: Peers,
    netlink: Netlink,
    started: Instant,
    attached: Option<Attached>,
    /// The splitter of before. The kernel has checked it, which takes long.
    kept: Option<sheaf_bpf::Split>,
    look: Instant,
    /// Until when frames without a header of IP are taken though the settings do not say so.
    links_until: Option<Instant>,
    /// Reason why the last try failed.
    failed: Option<String>,
    /// Descriptors that are waited for were closed.
    stale: bool,
}

/// State that goes and comes with the interface.
struct Attached {
    place: Place,
    split: sheaf_bpf::Split,
    contexts: Contexts,
    hello: Hello,
}

/// Runs until it is stopped; returns the last report.
pub fn run(settings: Split, parse: Parse<Split>) -> anyhow::Result<Interface> {
    descriptors::require()?;
    let dev = settings.dev.clone();
    Place::find(&dev)?.link_address()?;
    capability::require(&[Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW])?;
    sheaf_bpf::support()?;
    // A key that cannot be used is told before who else is at work.
    place::seal_key(settings.key.as_deref())?;
    let mut reactor = Reactor::new(ServiceName::new(Kind::Split, &dev)?, &[]).map_err(|error| {
        let advice = format!(
            "`sheaf split` or `sheaf aggregate`, which splits, too, is at work on {dev} already; \
             stop it first"
        );
        already(error, advice)
    })?;
    let now = clock::now();
    let peers = settings.peers.clone().context("a splitter that says HELLO needs peers")?;
    let mut splitter = Splitter {
        settings,
        peers,
        netlink: Netlink::open()?,
        started: now,
        attached: None,
        kept: None,
        look: now,
        links_until: None,
        failed: None,
        stale: false,
    };
    // The first time, what is wrong ends the command.
    splitter.attached = Some(splitter.attach(now)?);
    capability::keep_only(&KEPT)?;
    say(&format!("splitting on {dev}: says HELLO to its neighbours"));
    reactor.run(&mut splitter, parse)?;
    if let Some(there) = &mut splitter.attached {
        there.hello.part(clock::now());
    }
    splitter.interface()
}

impl Splitter {
    fn attach(&mut self, now: Instant) -> anyhow::Result<Attached> {
        let place = Place::find(&self.settings.dev)?;
        let key = place::seal_key(self.settings.key.as_deref())?;
        let peers = self.peers.with_hellos(key.is_some(), &BTreeSet::new());
        let mut split = attach_split(&place.dev, place.ifindex, &peers, true, self.kept.take())?;
        split.set_link(self.settings.links || self.links_until.is_some())?;
        let contexts = Contexts::open(&place.dev, &split, now)?;
        let hello = Hello::open(&place, Some(self.splits(&place, &split)), key, now)?;
        Ok(Attached { place, split, contexts, hello })
    }

    /// What `split` takes apart at `place`, as HELLOs say it.
    fn splits(&self, place: &Place, split: &sheaf_bpf::Split) -> Splits {
        place.splits(formats(split, self.settings.links))
    }

    /// Looks at the interface, the splitter and the neighbours.
    fn look(&mut self, there: &mut Attached, now: Instant) -> anyhow::Result<()> {
        if let Some(what) = there.place.changed()? {
            anyhow::bail!(what);
        }
        // Somebody may have taken it off.
        let found = sheaf_bpf::Split::is_there(there.place.ifindex)?;
        let taken = meta_packets(&there.split.counters()?);
        let splitter = found.then(|| (self.splits(&there.place, &there.split), taken));
        let neighbours = neigh::dump(&mut self.netlink, there.place.ifindex)?;
        there.hello.look(splitter, false, &neighbours, now);
        if let Some(accepted) = there.hello.newly_accepted() {
            let has_key = self.settings.key.is_some();
            there.split.accept(&self.peers.with_hellos(has_key, accepted).senders())?;
        }
        Ok(())
    }

    fn interface(&self) -> anyhow::Result<Interface> {
        let mut interface = Interface::new(&self.settings.dev);
        interface.seconds = (clock::now() - self.started).as_secs_f64();
        if let Some(there) = &self.attached {
            interface.neighbourhood = Some(there.hello.report(clock::now()));
            let counters = there.split.counters()?.into_iter();
            interface.split =
                Some(counters.map(|(name, count)| (name.to_owned(), count)).collect());
        }
        Ok(interface)
    }

    /// Logs a failure, once for as long as it lasts.
    fn warn(&mut self, failure: String) {
        if self.failed.as_ref() != Some(&failure) {
            tracing::warn!("{failure}");
            self.failed = Some(failure);
        }
    }
}

impl Service for Splitter {
    type Change = Split;

    fn interest(&mut self, poller: &mut Poller) {
        if let Some(there) = &mut self.attached {
            there.hello.wait_for(poller);
            there.contexts.wait_for(poller);
        }
    }

    fn turn(&mut self, now: Instant, poller: &mut Poller) -> anyhow::Result<Next> {
        if std::mem::take(&mut self.stale) {
            return Ok(Next::Refresh);
        }
        let Some(mut there) = self.attached.take() else {
            if now < self.look {
                return Ok(Next::Wait(self.look));
            }
            self.look = now + LOOK;
            if !ip::is_up(&self.settings.dev).unwrap_or(false) {
                return Ok(Next::Wait(self.look));
            }
            match self.attach(now) {
                Ok(there) => (self.attached, self.failed) = (Some(there), None),
                Err(error) => self.warn(format!("{error:#}; tries again")),
            }
            return Ok(Next::Refresh);
        };
        if now >= self.look {
            self.look = now + LOOK;
            if let Err(lost) = self.look(&mut there, now) {
                self.warn(format!("{lost:#}; waits until {} is up", self.settings.dev));
                self.kept = Some(there.split);
                return Ok(Next::Refresh);
            }
        }
        if self.links_until.is_some_and(|until| now >= until) {
            self.links_until = None;
            there.split.set_link(false)?;
        }
        // Nothing is sent from here of which anybody could speak.
        there.contexts.run(&mut there.split, now, poller, |_, _| Ok(()))?;
        there.hello.run(now, poller, |_| ());
        let until = self.look.min(there.hello.deadline());
        let until = until.min(self.links_until.unwrap_or(Instant::MAX));
        self.attached = Some(there);
        Ok(Next::Wait(until))
    }

    fn report(&mut self, _now: Instant) -> anyhow::Result<Value> {
        Ok(serde_json::to_value(self.interface()?)?)
    }

    fn change(&mut self, settings: Split, now: Instant) -> anyhow::Result<()> {
        ensure!(settings.dev == self.settings.dev, "dev: cannot change while running; restart");
        let peers = settings.peers.clone().filter(|peers| peers.auto);
        let peers = peers.context("a splitter without peer auto needs no process; restart")?;
        place::seal_key(settings.key.as_deref())?;
        if let Some(mut there) = self.attached.take() {
            there.hello.part(now);
            self.kept = Some(there.split);
        }
        self.links_until = if settings.links {
            None
        } else if self.settings.links {
            Some(now + UNHEARD)
        } else {
            self.links_until
        };
        (self.settings, self.peers) = (settings, peers);
        (self.look, self.stale) = (now, true);
        Ok(())
    }
}
