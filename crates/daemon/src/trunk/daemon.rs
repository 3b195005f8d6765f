//! `sheaf trunk` at work, until Ctrl-C: one thread that turns between the TUN interface, the
//! endpoint and the links.
//!
//! * [`setup`]: what is done once, before;
//! * [`answer`]: what `sheaf show` is told.
//!
//! Each turn sends what may leave, hands up what is in order, waits for news or for the next
//! deadline, and takes at most a batch from every descriptor, so that none starves another. Waking
//! on time is left to the kernel's timer with its slack turned off: the endpoint lets a link catch
//! up what a late wake-up cost, so nothing is gained by spinning.

mod answer;
mod setup;

use super::key;
use super::member::{Change, End, Member};
use super::report::Trunk;
use super::settings::{Priority, Settings, Spec};
use crate::control::{Kind, ServiceName};
use crate::reactor::{Parse, Reactor};
use crate::service::{Next, Service};
use crate::{already, descriptors, say};
use anyhow::{Context, bail, ensure};
use serde_json::Value;
use sheaf_netio::batch::Inbox;
use sheaf_netio::capability::{self, Capability};
use sheaf_netio::carrier::Address;
use sheaf_netio::coalesce::Coalescer;
use sheaf_netio::monitor::{self, Monitor};
use sheaf_netio::netlink::Netlink;
use sheaf_netio::poller::Poller;
use sheaf_netio::segment;
use sheaf_netio::tun::{Offload, Tun};
use sheaf_netio::{clock, ip, random};
use sheaf_stage::{Duration, Instant};
use sheaf_trunk::{Endpoint, EndpointConfig, EndpointStats, Received, Seed, Transmit};
use sheaf_wire::trunk::HEADER_LEN;
use sheaf_wire::trunk::sealed::OVERHEAD;
use std::io;

/// How often the interfaces are looked at without news, and at most with news.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_AT_MOST: Duration = Duration::from_millis(20);
/// How often a device is asked how full it is, while packets wait for it: half the air time of a
/// small frame at 2 Mbit/s.
const ASK: Duration = Duration::from_micros(500);
/// How often changes of the links are told, at most.
const TELL: Duration = Duration::from_millis(10);
/// Least time between warnings of a difference of keys.
const WARN: Duration = Duration::from_secs(10);
/// What is due sooner waits this long, so that fast links send several frames a turn: at 500 Mbit/s
/// a turn for each would cost more than the frames. The endpoint catches up a pace that runs late.
const TURN: Duration = Duration::from_micros(200);
/// Packets, and bytes, that one turn takes from the host.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 256 << 10;

struct Daemon {
    settings: Settings,
    priority: Priority,
    mtu: u16,
    endpoint: Endpoint<End>,
    members: Vec<Member>,
    tun: Tun,
    coalescer: Coalescer,
    inbox: Inbox,
    netlink: Netlink,
    /// A packet from the host, and a frame to a link.
    packet: Vec<u8>,
    frame: Vec<u8>,
    /// Super-packets that could not be cut, and packets that the host did not take.
    uncut: u64,
    undelivered: u64,
    /// Members whose devices tell how full they are, and when they were asked.
    tellers: Vec<usize>,
    asked: Instant,
    looked: Instant,
    /// The last look at the interfaces failed.
    blind: bool,
    /// There is news of the interfaces.
    news: bool,
    /// Sockets came or went since the poller was filled.
    stale: bool,
    /// What was last told of each link, and of the other end.
    told: Vec<bool>,
    told_established: bool,
    told_stats: EndpointStats,
    /// Time at which frames with another key, or without one, were last warned of.
    warned_at: Option<Instant>,
    told_at: Instant,
    started: Instant,
    monitor: Monitor,
    numbers: Numbers,
}

/// Numbers of the descriptors among what is waited for.
#[derive(Debug, Default)]
struct Numbers {
    news: usize,
    host: usize,
    /// By link; `None` without a socket.
    links: Vec<Option<usize>>,
}

/// Runs until it is stopped; returns the last report.
pub fn run(settings: Settings, parse: Parse<Settings>) -> anyhow::Result<Trunk> {
    descriptors::require()?;
    capability::require(rights(&settings))?;
    let name = &settings.name;
    let known = monitor::interfaces()?;
    ensure!(!known.contains_key(name), "there is an interface {name} already; take another name");
    let mut config = EndpointConfig::default();
    config.sender.scheduler = settings.scheduler;
    config.sender.aggregate = settings.aggregate;
    let key = settings.key.as_deref().map(key::load).transpose()?;
    let seal = if key.is_some() { OVERHEAD as u16 } else { 0 };
    config.sender.frame = setup::frame_size(&settings, &known, seal)?;
    let mtu = config.sender.frame - HEADER_LEN as u16;
    let mut reactor = Reactor::new(ServiceName::new(Kind::Trunk, name)?, &[]).map_err(|error| {
        already(error, format!("another `sheaf trunk {name}` runs here; stop it first"))
    })?;
    let tun = setup::open_tun(&settings, mtu)?;
    nix::sys::prctl::set_timerslack(1)?;
    let priority = setup::take_priority(settings.priority)?;
    let now = clock::now();
    let seed = Seed::new(random::unguessable()?);
    let mut endpoint = match key {
        Some(key) => Endpoint::with_key(config, seed, key),
        None => Endpoint::new(config, seed),
    }?;
    let mut members = Vec::new();
    for spec in &settings.members {
        let id = endpoint.add_link(spec.link(seal))?;
        endpoint.link_down(id, now);
        endpoint.set_remote(id, spec.remote());
        members.push(Member::new(spec.clone(), id));
    }
    let rules = |at: &usize| members[*at].spec.queue().is_some();
    let tellers = (0..members.len()).filter(rules).collect();
    let mut daemon = Daemon {
        settings,
        priority,
        mtu,
        endpoint,
        told: vec![false; members.len()],
        members,
        tun,
        coalescer: Coalescer::default(),
        inbox: Inbox::new(),
        netlink: Netlink::open()?,
        packet: vec![0; 1 << 16],
        frame: Vec::new(),
        uncut: 0,
        undelivered: 0,
        tellers,
        asked: now,
        looked: now,
        blind: false,
        news: false,
        stale: false,
        told_established: false,
        told_stats: EndpointStats::default(),
        warned_at: None,
        told_at: now,
        started: now,
        monitor: Monitor::open()?,
        numbers: Numbers::default(),
    };
    daemon.look(now, true)?;
    // Frames come from strangers.
    capability::keep_only(rights(&daemon.settings))?;
    let (count, scheduler) = (daemon.members.len(), daemon.settings.scheduler.name());
    let name = &daemon.settings.name;
    say(&format!("trunk {name}: {count} links, mtu {mtu}, scheduler {scheduler}"));
    reactor.run(&mut daemon, parse)?;
    Ok(daemon.full_report())
}

/// The warning to give where the two ends differ in what protects their frames.
fn mismatch(stats: &EndpointStats, told: &EndpointStats) -> Option<&'static str> {
    if stats.wrong_key > told.wrong_key {
        Some("frames with another key arrive; give both ends the same key file")
    } else if stats.not_sealed > told.not_sealed {
        Some("frames without a key arrive; give the other end the key file, too")
    } else if stats.sealed > told.sealed {
        Some("frames with a key arrive and there is none here; give this end the key file, too")
    } else if stats.other_link > told.other_link {
        Some("frames of other links arrive; name the links in the same order at both ends")
    } else {
        None
    }
}

/// Capabilities that making the trunk takes, and opening its links again when they come back.
fn rights(settings: &Settings) -> &'static [Capability] {
    let is_ethernet = |spec: &Spec| matches!(spec, Spec::Ethernet { .. });
    match settings.members.iter().any(is_ethernet) {
        true => &[Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW],
        false => &[Capability::CAP_NET_ADMIN],
    }
}

impl Service for Daemon {
    type Change = Settings;

    fn interest(&mut self, poller: &mut Poller) {
        let numbers = &mut self.numbers;
        numbers.news = poller.add(&self.monitor);
        numbers.host = poller.add(&self.tun);
        let link = |member: &Member| member.carrier.as_ref().map(|it| poller.add(it));
        numbers.links.clear();
        numbers.links.extend(self.members.iter().map(link));
        self.stale = false;
    }

    fn turn(&mut self, _now: Instant, poller: &mut Poller) -> anyhow::Result<Next> {
        if poller.readable(self.numbers.news) {
            self.monitor.drain();
            self.news = true;
        }
        for index in 0..self.members.len() {
            if self.numbers.links[index].is_some_and(|link| poller.readable(link)) {
                self.receive(index);
            }
        }
        if poller.readable(self.numbers.host) {
            self.take_packets()?;
        }
        // What was just read took its time.
        let now = clock::now();
        let ask = self.ask_devices(now);
        self.transmit(now);
        self.deliver(now);
        self.tell_changes(now);
        let look = self.looked + if self.news { LOOK_AT_MOST } else { LOOK };
        if now >= look {
            self.look(now, false)?;
        }
        if self.stale {
            return Ok(Next::Refresh);
        }
        let due = self.endpoint.next_deadline();
        Ok(Next::Wait([due, ask].into_iter().flatten().fold(look, Instant::min)))
    }

    fn wait(&mut self, poller: &mut Poller, until: Instant) -> io::Result<()> {
        poller.wait(Some(until.saturating_since(clock::now()).max(TURN)))
    }

    fn report(&mut self, _now: Instant) -> anyhow::Result<Value> {
        Ok(serde_json::to_value(self.full_report())?)
    }

    /// Which packets are copied and which need no order can change at any time; all else is agreed
    /// between both ends, or is the interface itself.
    fn change(&mut self, settings: Settings, _now: Instant) -> anyhow::Result<()> {
        if let Some(word) = self.settings.fixed_difference(&settings) {
            bail!("{word}: cannot change while running; restart");
        }
        self.settings = settings;
        Ok(())
    }
}

impl Daemon {
    /// Asks the devices that tell how full they are, while something waits in them or for them;
    /// answers when to ask again.
    fn ask_devices(&mut self, now: Instant) -> Option<Instant> {
        let waits = |member: &Member| {
            let link = self.endpoint.link_stats(member.id, now);
            member.is_stirred() || link.is_some_and(|link| link.waiting > 0)
        };
        if !self.tellers.iter().any(|at| waits(&self.members[*at])) {
            return None;
        }
        if now - self.asked >= ASK {
            self.asked = now;
            for at in &self.tellers {
                let member = &mut self.members[*at];
                self.endpoint.set_link_queue(member.id, member.fill(&mut self.netlink));
            }
        }
        Some(self.asked + ASK)
    }

    /// Sends what may leave at `now`.
    fn transmit(&mut self, now: Instant) {
        while let Some(Transmit { link, to }) = self.endpoint.poll_transmit(now, &mut self.frame) {
            let member = &mut self.members[usize::from(link.0)];
            // A frame without an address is for a link whose other end was forgotten.
            if let Some(end) = to {
                self.stale |= !member.push(end, &mut self.frame);
            }
        }
        for member in &mut self.members {
            self.stale |= !member.flush();
        }
        self.news |= self.stale;
    }

    /// Hands up what is in order.
    fn deliver(&mut self, now: Instant) {
        let (tun, undelivered) = (&self.tun, &mut self.undelivered);
        let mut send = |packet: &[u8], offload: Offload, headers: u16| {
            *undelivered += u64::from(tun.send(packet, offload, headers).is_err());
        };
        while let Some(packet) = self.endpoint.poll_deliver(now) {
            self.coalescer.push(packet, &mut send);
        }
        self.coalescer.flush(&mut send);
    }

    /// Takes packets from the host.
    fn take_packets(&mut self) -> anyhow::Result<()> {
        let mut bytes = 0;
        for _ in 0..BATCH {
            let received = self.tun.receive(&mut self.packet);
            let name = &self.settings.name;
            let Some((len, offload)) = received.with_context(|| format!("{name} is gone"))? else {
                break;
            };
            let now = clock::now();
            let packet = &mut self.packet[..len];
            let care = self.settings.care(packet);
            let endpoint = &mut self.endpoint;
            // What cannot be sent is counted there by its reason.
            let send = |packet: &[u8]| {
                let _ = endpoint.handle_packet(packet, care, now);
            };
            self.uncut += u64::from(!segment::finish(packet, offload, send));
            bytes += len;
            if bytes >= BATCH_BYTES {
                break;
            }
        }
        Ok(())
    }

    /// Takes frames from link `index`.
    fn receive(&mut self, index: usize) {
        let (endpoint, member) = (&mut self.endpoint, &mut self.members[index]);
        let Some(carrier) = member.carrier.take() else { return };
        let now = clock::now();
        // Refused frames are counted by the endpoint.
        let (id, moved) = (member.id, &mut member.moved);
        let each = |from: &Address, frame: &[u8]| {
            let received = endpoint.handle_frame(id, End::of(from), frame, now);
            if let Received::Accepted { new_address: Some(end), .. } = received {
                *moved = Some(end);
            }
        };
        let result = self.inbox.receive(&carrier, each);
        // What the socket tells of earlier sending is no reason to close it.
        let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if result.as_ref().err().is_none_or(refused) {
            member.carrier = Some(carrier);
        } else {
            (self.news, self.stale) = (true, true);
        }
    }

    /// Looks at the interfaces. `first`: errors count.
    fn look(&mut self, now: Instant, first: bool) -> anyhow::Result<()> {
        (self.looked, self.news) = (now, false);
        let interfaces = match monitor::interfaces() {
            Ok(interfaces) => interfaces,
            // The links that there are need no more descriptors.
            Err(error) if !first && ip::is_exhausted(&error) => {
                if !std::mem::replace(&mut self.blind, true) {
                    tracing::warn!("cannot see which interfaces there are: {error}");
                }
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        self.blind = false;
        for member in &mut self.members {
            let change = match member.look(&interfaces, &mut self.netlink) {
                Err(_) if !first => Change::Same,
                change => member.spec.explain(change)?,
            };
            self.stale |= change != Change::Same;
            if let Some(remote) = member.remote() {
                self.endpoint.set_remote(member.id, remote);
            }
            if change == Change::Opened || member.carrier.is_none() {
                self.endpoint.link_down(member.id, now);
            }
            if change == Change::Opened {
                self.endpoint.link_up(member.id);
            }
        }
        Ok(())
    }

    /// Says which links came and went.
    fn tell_changes(&mut self, now: Instant) {
        if now - self.told_at < TELL {
            return;
        }
        self.told_at = now;
        let name = &self.settings.name;
        let established = self.endpoint.is_established();
        if std::mem::replace(&mut self.told_established, established) != established {
            let what = if established { "the other end answers" } else { "the other end is gone" };
            tracing::info!("trunk {name}: {what}");
        }
        let stats = self.endpoint.stats();
        let told = std::mem::replace(&mut self.told_stats, stats);
        if told.sessions > 0 && stats.sessions > told.sessions {
            tracing::info!("trunk {name}: the other end started anew");
        }
        if stats.handshakes > told.handshakes {
            tracing::debug!("trunk {name}: new keys, handshake {}", stats.handshakes);
        }
        if self.warned_at.is_none_or(|at| now - at >= WARN)
            && let Some(warning) = mismatch(&stats, &told).filter(|_| !established)
        {
            self.warned_at = Some(now);
            tracing::warn!("trunk {name}: {warning}");
        }
        for (member, told) in self.members.iter_mut().zip(&mut self.told) {
            if let Some(end) = member.moved.take() {
                tracing::info!("trunk {name}: link {}: the other end is at {end}", member.spec);
            }
            let up = self.endpoint.link_stats(member.id, now).is_some_and(|link| link.up);
            if std::mem::replace(told, up) != up {
                let state = if up { "up" } else { "down" };
                tracing::info!("trunk {name}: link {} is {state}", member.spec);
            }
        }
    }
}
