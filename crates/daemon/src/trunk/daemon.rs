//! `sheaf trunk` at work, until Ctrl-C: one thread that serves the TUN interface, the endpoint and
//! the links in turn.
//!
//! * [`setup`]: the steps before the first turn;
//! * [`full_report`]: the report that `sheaf show` prints.
//!
//! Each turn takes at most a batch from every readable descriptor, so that no descriptor starves
//! another. Then it sends the frames that may leave, hands packets that are in order to the host,
//! and waits for the next descriptor or deadline. The kernel's timer, with its slack turned off,
//! ends the wait on time. Spinning would gain nothing, because the endpoint lets a link catch up
//! after a late wake-up.

mod full_report;
mod setup;

use super::key;
use super::lookup::News;
use super::member::{End, Member};
use super::quota::Ledger;
use super::report::Trunk;
use super::settings::{Link, Priority, Settings, Spec};
use super::socket::{Change, Socket};
use crate::control::{Kind, ServiceName};
use crate::reactor::{Parse, Reactor};
use crate::service::{Next, Service};
use crate::{already, descriptors, say};
use anyhow::{Context, bail, ensure};
use serde_json::Value;
use sheaf_bpf::Slot;
use sheaf_netio::batch::Inbox;
use sheaf_netio::capability::{self, Capability};
use sheaf_netio::carrier::Address;
use sheaf_netio::coalesce::Coalescer;
use sheaf_netio::monitor::{self, Monitor};
use sheaf_netio::netlink::Netlink;
use sheaf_netio::poller::Poller;
use sheaf_netio::segment;
use sheaf_netio::stamps::Stamps;
use sheaf_netio::tun::{Offload, Tun};
use sheaf_netio::{clock, ip, random};
use sheaf_stage::{Duration, Instant};
use sheaf_trunk::quota::{NEARLY, News as QuotaNews};
use sheaf_trunk::{Endpoint, EndpointStats, Key, LinkConfig, Received, Seed, Transmit};
use sheaf_wire::trunk::HEADER_LEN;
use sheaf_wire::trunk::sealed::OVERHEAD;
use std::io;

/// Time between two checks of the interfaces while the kernel reports no change of them and a link
/// has no socket or no address to send to.
const CHECK_PERIOD: Duration = Duration::from_secs(1);
/// The same while no link misses anything: in case that a report of the kernel was lost.
const CHECK_PERIOD_COMPLETE: Duration = Duration::from_secs(10);
/// Least time between two checks of the interfaces after a change: a change comes as a burst of
/// messages.
const CHECK_PAUSE: Duration = Duration::from_millis(20);
/// Time between two reads of a device's queue while packets wait for it: half the air time of a
/// small frame at 2 Mbit/s.
const QUEUE_PERIOD: Duration = Duration::from_micros(500);
/// Least time between two looks for changes to log and for quotas that are used up.
const LOG_PERIOD: Duration = Duration::from_millis(10);
/// Time without a link that is up after which the trunk has no carrier. Long against an outage that
/// connections live through: over another route their packets would come from another address, and
/// be reset.
const GONE: Duration = Duration::from_secs(10);
/// Least time between two warnings that the ends have different keys.
const WARN_PERIOD: Duration = Duration::from_secs(10);
/// Shortest wait of a turn, so that fast links send several frames a turn: at 500 Mbit/s a turn for
/// each frame would cost more than the frame. The endpoint lets a link catch up the delay.
const SHORTEST_WAIT: Duration = Duration::from_micros(200);
/// Ports below this one need a right of their own (ip(7), ip_unprivileged_port_start).
const FIRST_PORT_OF_ALL: u16 = 1024;
/// Most packets that one turn takes from the host.
const BATCH: usize = 64;
/// Most bytes that one turn takes from the host: four of the largest super-packets.
const BATCH_BYTES: usize = 256 << 10;
/// Room for the largest packet of the host, a super-packet of 64 KiB.
const LARGEST_PACKET: usize = 1 << 16;
/// Slack of the thread's timers in nanoseconds; 0 would mean the default of 50 µs (prctl(2)).
const TIMER_SLACK: nix::libc::c_ulong = 1;

struct Daemon {
    settings: Settings,
    priority: Priority,
    mtu: u16,
    endpoint: Endpoint<End>,
    members: Vec<Member>,
    sockets: Vec<Socket>,
    /// The slot that frames to this trunk name, where it can share ports. Kept to its end.
    _slot: Option<Slot>,
    tun: Tun,
    coalescer: Coalescer,
    inbox: Inbox,
    stamps: Stamps,
    netlink: Netlink,
    /// Buffer for a packet from the host.
    packet: Vec<u8>,
    /// Buffer for a frame to a link.
    frame: Vec<u8>,
    /// Number of super-packets that could not be cut.
    uncut: u64,
    /// Number of packets that the host did not take.
    undelivered: u64,
    /// Sockets whose device's queue is read.
    queued: Vec<usize>,
    /// Time at which the queues were last read.
    queues_read_at: Instant,
    /// Time at which the interfaces were last checked.
    checked_at: Instant,
    /// Whether the last check of the interfaces failed.
    check_failed: bool,
    /// Whether the interfaces may have changed since the last check.
    news: bool,
    /// Whether sockets were opened or closed since the poller was filled.
    stale: bool,
    /// State that was last logged of each link: up or not.
    logged_up: Vec<bool>,
    /// Whether the log last said that the other end is there.
    logged_established: bool,
    /// Whether the trunk's interface has a carrier.
    has_carrier: bool,
    /// Time at which a link was last seen up.
    last_up: Instant,
    /// Counters at the last look for changes to log.
    logged_stats: EndpointStats,
    /// Time of the last look for changes to log and for quotas.
    logged_at: Instant,
    /// Time of the last warning about keys.
    warned_at: Option<Instant>,
    started: Instant,
    monitor: Monitor,
    /// Counters of quotas as they are kept; `None` where no link has a quota.
    ledger: Option<Ledger>,
    numbers: Numbers,
}

/// Numbers of the descriptors in the poller.
#[derive(Debug, Default)]
struct Numbers {
    news: usize,
    host: usize,
    /// By socket; `None` while it is closed.
    sockets: Vec<Option<usize>>,
}

/// Runs the trunk until it is stopped; returns the last report.
pub fn run(settings: Settings, parse: Parse<Settings>) -> anyhow::Result<Trunk> {
    descriptors::require()?;
    capability::require(rights(&settings))?;
    let name = &settings.name;
    let known = monitor::interfaces()?;
    ensure!(!known.contains_key(name), "there is an interface {name} already; take another name");
    let mut config = settings.endpoint.clone();
    let key = settings.key.as_deref().map(key::load).transpose()?;
    let seal = if key.is_some() { OVERHEAD as u16 } else { 0 };
    let tags = key.as_ref().map(Key::tags);
    config.sender.frame = setup::frame_size(&settings, &known, seal)?;
    let mtu = config.sender.frame - HEADER_LEN as u16;
    let mut reactor = Reactor::new(ServiceName::new(Kind::Trunk, name)?, &[]).map_err(|error| {
        already(error, format!("another `sheaf trunk {name}` runs here; stop it first"))
    })?;
    let mut netlink = Netlink::open()?;
    let tun = setup::open_tun(&settings, mtu, &mut netlink)?;
    nix::sys::prctl::set_timerslack(TIMER_SLACK)?;
    let priority = setup::take_priority(settings.priority)?;
    let now = clock::now();
    let seed = Seed::new(random::unguessable()?);
    let mut endpoint = match key {
        Some(key) => Endpoint::with_key(config, seed, key),
        None => Endpoint::new(config, seed),
    }?;
    let mut ledger = Ledger::open(&settings)?;
    let (mut members, mut sockets) = (Vec::new(), Vec::<Socket>::new());
    for (Link { spec, terms, quota }, name) in settings.members.iter().zip(settings.link_names()) {
        let id = endpoint.add_link(LinkConfig { overhead: spec.overhead(seal), ..*terms })?;
        endpoint.link_down(id, now);
        endpoint.set_remote(id, spec.remote());
        let shared = sockets.iter().position(|socket| socket.spec.shares_socket(spec));
        match shared {
            Some(at) => {
                sockets[at].learns &= spec.learns();
                endpoint.share_carrier(id, sockets[at].id);
            }
            None => sockets.push(Socket::new(spec.clone(), id)),
        }
        let socket = shared.unwrap_or(sockets.len() - 1);
        let meter = ledger.as_mut().zip(*quota).map(|(ledger, quota)| ledger.meter(spec, quota));
        members.push(Member::new(spec.clone(), name, id, socket, meter));
    }
    let slot = tags.and_then(|tags| setup::share_ports(&mut sockets, tags));
    if let Some(slot) = &slot {
        endpoint.set_slot(slot.number());
    }
    let has_queue = |at: &usize| sockets[*at].spec.queue().is_some();
    let queued = (0..sockets.len()).filter(has_queue).collect();
    let mut daemon = Daemon {
        settings,
        priority,
        mtu,
        endpoint,
        logged_up: vec![false; members.len()],
        members,
        sockets,
        _slot: slot,
        tun,
        coalescer: Coalescer::default(),
        inbox: Inbox::new(),
        stamps: Stamps::new().context("cannot measure the kernel's clock")?,
        netlink,
        packet: vec![0; LARGEST_PACKET],
        frame: Vec::new(),
        uncut: 0,
        undelivered: 0,
        queued,
        queues_read_at: now,
        checked_at: now,
        check_failed: false,
        news: false,
        stale: false,
        logged_established: false,
        has_carrier: true,
        last_up: now,
        logged_stats: EndpointStats::default(),
        logged_at: now,
        warned_at: None,
        started: now,
        monitor: Monitor::open()?,
        ledger,
        numbers: Numbers::default(),
    };
    daemon.check_quotas(now);
    daemon.check_interfaces(now, true)?;
    // From here on the process parses what strangers send, so it gives up all other rights.
    capability::keep_only(&kept_rights(&daemon.settings))?;
    if let Some(ledger) = &mut daemon.ledger {
        ledger.begin(&mut daemon.members, now)?;
    }
    let (count, scheduler) =
        (daemon.members.len(), daemon.settings.endpoint.sender.scheduler.name());
    let name = &daemon.settings.name;
    say(&format!("trunk {name}: {count} links, mtu {mtu}, scheduler {scheduler}"));
    let ended = reactor.run(&mut daemon, parse);
    if let Some(ledger) = &mut daemon.ledger {
        ledger.finish(&mut daemon.members);
    }
    ended?;
    Ok(daemon.full_report())
}

/// The warning where frames that arrived since `before` show that the ends have different keys or
/// links.
fn mismatch(stats: &EndpointStats, before: &EndpointStats) -> Option<&'static str> {
    if stats.wrong_key > before.wrong_key {
        Some("frames with another key arrive; give both ends the same key file")
    } else if stats.not_sealed > before.not_sealed {
        Some("frames without a key arrive; give the other end the key file, too")
    } else if stats.sealed > before.sealed {
        Some("frames with a key arrive and there is none here; give this end the key file, too")
    } else if stats.other_link > before.other_link {
        Some("frames of other links arrive; name the links in the same order at both ends")
    } else {
        None
    }
}

/// Logs what the search for the name of a link's other end has found.
fn tell(trunk: &str, link: &str, news: &News) {
    match news {
        News::Found(end) => tracing::info!("trunk {trunk}: link {link}: the other end is {end}"),
        News::Failed(reason) => tracing::warn!(
            "trunk {trunk}: link {link}: cannot look up the other end: {reason}; asking on"
        ),
    }
}

/// Capabilities without which no trunk can be made, nor its links be opened again after their
/// interfaces were gone.
fn rights(settings: &Settings) -> &'static [Capability] {
    let is_ethernet = |link: &Link| matches!(link.spec, Spec::Ethernet { .. });
    match settings.members.iter().any(is_ethernet) {
        true => &[Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW],
        false => &[Capability::CAP_NET_ADMIN],
    }
}

/// The same, and what else opening a link again may take.
fn kept_rights(settings: &Settings) -> Vec<Capability> {
    let port = |link: &Link| match &link.spec {
        Spec::Path { local, .. } => Some(local.port()),
        Spec::Ethernet { .. } => None,
    };
    let is_low = settings.members.iter().filter_map(port).any(|port| port < FIRST_PORT_OF_ALL);
    let bind = is_low.then_some(Capability::CAP_NET_BIND_SERVICE);
    rights(settings).iter().copied().chain(bind).collect()
}

impl Service for Daemon {
    type Change = Settings;

    fn interest(&mut self, poller: &mut Poller) {
        let numbers = &mut self.numbers;
        numbers.news = poller.add(&self.monitor);
        numbers.host = poller.add(&self.tun);
        let add = |socket: &Socket| socket.carrier.as_ref().map(|carrier| poller.add(carrier));
        numbers.sockets.clear();
        numbers.sockets.extend(self.sockets.iter().map(add));
        self.stale = false;
    }

    fn turn(&mut self, _now: Instant, poller: &mut Poller) -> anyhow::Result<Next> {
        if poller.readable(self.numbers.news) {
            self.monitor.drain();
            self.news = true;
        }
        for index in 0..self.sockets.len() {
            if self.numbers.sockets[index].is_some_and(|socket| poller.readable(socket)) {
                self.receive(index);
            }
        }
        if poller.readable(self.numbers.host) {
            self.take_packets()?;
        }
        // Reading a batch takes so long that the turn's time is out of date.
        let now = clock::now();
        // Before sending: the scheduler chooses links by the queues read here.
        let next_read = self.read_queues(now);
        self.transmit(now);
        self.deliver(now);
        if now - self.logged_at >= LOG_PERIOD {
            self.logged_at = now;
            self.log_changes(now);
            if self.ledger.is_some() {
                self.check_quotas(now);
                self.keep_quotas(now);
            }
        }
        self.check_carrier(now);
        if now >= self.next_check() {
            self.check_interfaces(now, false)?;
        }
        if self.stale {
            return Ok(Next::Refresh);
        }
        let due = self.endpoint.next_deadline();
        Ok(Next::Wait([due, next_read].into_iter().flatten().fold(self.next_check(), Instant::min)))
    }

    fn wait(&mut self, poller: &mut Poller, until: Instant) -> io::Result<()> {
        poller.wait(Some(until.saturating_since(clock::now()).max(SHORTEST_WAIT)))
    }

    fn report(&mut self, _now: Instant) -> anyhow::Result<Value> {
        Ok(serde_json::to_value(self.full_report())?)
    }

    /// Takes over which packets are copied and which need no order. All other settings are agreed
    /// between both ends or belong to the interface, so they cannot change.
    fn change(&mut self, settings: Settings, _now: Instant) -> anyhow::Result<()> {
        if let Some(word) = self.settings.fixed_difference(&settings) {
            bail!("{word}: cannot change while running; restart");
        }
        self.settings = settings;
        Ok(())
    }
}

impl Daemon {
    /// Reads the queues of the devices, while packets wait in them or for them; returns the time of
    /// the next read.
    fn read_queues(&mut self, now: Instant) -> Option<Instant> {
        let waits = |socket: &Socket| {
            let link = self.endpoint.link_stats(socket.id, now);
            socket.may_wait() || link.is_some_and(|link| link.waiting > 0)
        };
        if !self.queued.iter().any(|at| waits(&self.sockets[*at])) {
            return None;
        }
        if now - self.queues_read_at >= QUEUE_PERIOD {
            self.queues_read_at = now;
            for at in &self.queued {
                let socket = &mut self.sockets[*at];
                self.endpoint.set_link_queue(socket.id, socket.fill(&mut self.netlink));
            }
        }
        Some(self.queues_read_at + QUEUE_PERIOD)
    }

    /// Sends the frames that may leave at `now`.
    fn transmit(&mut self, now: Instant) {
        while let Some(Transmit { link, to }) = self.endpoint.poll_transmit(now, &mut self.frame) {
            let member = &mut self.members[usize::from(link.0)];
            // Without an address the other end of the link is not known any more: nobody would
            // receive the frame.
            if let Some(end) = to {
                let socket = &mut self.sockets[member.socket];
                self.stale |= !member.push(end, &mut self.frame, socket);
            }
        }
        for member in &mut self.members {
            self.stale |= !member.flush(&mut self.sockets[member.socket]);
        }
        self.news |= self.stale;
    }

    /// Hands packets that are in order to the host.
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
            let mode = self.settings.delivery_mode(packet);
            let endpoint = &mut self.endpoint;
            // The endpoint counts dropped packets by their reason.
            let send = |packet: &[u8]| {
                let _ = endpoint.handle_packet(packet, mode, now);
            };
            self.uncut += u64::from(!segment::finish(packet, offload, send));
            bytes += len;
            if bytes >= BATCH_BYTES {
                break;
            }
        }
        Ok(())
    }

    /// Takes frames from socket `index`.
    fn receive(&mut self, index: usize) {
        let Daemon { endpoint, members, sockets, inbox, stamps, .. } = self;
        let Socket { carrier, id, learns, emptied, .. } = &mut sockets[index];
        let Some(open) = carrier else { return };
        let (now, mut offset) = (clock::now(), None);
        // The endpoint counts refused frames by their reason.
        let each = |from: &Address, frame: &[u8], stamp| {
            // A link with a quota shares its socket with none, so what is refused counts, too.
            members[usize::from(id.0)].count(frame.len());
            let offset = offset.get_or_insert_with(|| stamps.offset());
            let at = offset.arrival(stamp, *emptied, now);
            let received = endpoint.handle_frame_at(*id, End::of(from, *learns), frame, at, now);
            if let Received::Accepted { link, new_address: Some(end), .. } = received {
                members[usize::from(link.0)].moved = Some(end);
            }
        };
        let result = inbox.receive(open, each);
        if let Ok(false) = result {
            *emptied = now;
        }
        // An earlier datagram was refused, because the other end does not run yet: the socket
        // still works.
        let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if !result.as_ref().err().is_none_or(refused) {
            *carrier = None;
            (self.news, self.stale) = (true, true);
        }
    }

    fn next_check(&self) -> Instant {
        let mut links = self.members.iter().zip(&self.logged_up);
        let mut complete = || {
            links.all(|(link, up)| self.sockets[link.socket].is_closed || link.is_complete(*up))
                && self.sockets.iter().all(Socket::is_complete)
        };
        self.checked_at
            + match self.news {
                true => CHECK_PAUSE,
                false if complete() => CHECK_PERIOD_COMPLETE,
                false => CHECK_PERIOD,
            }
    }

    /// Opens and closes the sockets as their interfaces come and go, and finds the other ends. Only
    /// the `first` check returns errors of a link: later an interface may be missing for a while.
    fn check_interfaces(&mut self, now: Instant, first: bool) -> anyhow::Result<()> {
        (self.checked_at, self.news) = (now, false);
        let interfaces = match monitor::interfaces() {
            Ok(interfaces) => interfaces,
            // Links with a socket work on without a new descriptor.
            Err(error) if !first && ip::is_exhausted(&error) => {
                if !std::mem::replace(&mut self.check_failed, true) {
                    tracing::warn!("cannot see which interfaces there are: {error}");
                }
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        self.check_failed = false;
        let netlink = &mut self.netlink;
        let mut changes = Vec::new();
        for socket in &mut self.sockets {
            let change = match socket.check_interface(&interfaces, netlink) {
                Err(_) if !first => Change::Same,
                change => socket.spec.explain(change, &socket.share)?,
            };
            self.stale |= change != Change::Same;
            changes.push(change);
        }
        for (member, up) in self.members.iter_mut().zip(&self.logged_up) {
            let (socket, change) = (&self.sockets[member.socket], changes[member.socket]);
            if socket.carrier.is_some() {
                let found = member.find(socket.index(), netlink);
                if first {
                    member.spec.explain(found, &socket.share)?;
                }
            }
            if !up && !socket.is_closed {
                let news = member.look_up(socket.index(), now);
                news.iter().for_each(|news| tell(&self.settings.name, &member.name, news));
            }
            if let Some(remote) = member.remote() {
                self.endpoint.set_remote(member.id, remote);
            }
            if change == Change::Opened || socket.carrier.is_none() {
                self.endpoint.link_down(member.id, now);
            }
            if change == Change::Opened {
                member.forget_address();
                self.endpoint.link_up(member.id);
            }
        }
        Ok(())
    }

    /// Closes the links whose quota is used up, and opens them again in the next period.
    fn check_quotas(&mut self, now: Instant) {
        let (name, utc) = (&self.settings.name, clock::utc());
        for member in &mut self.members {
            let (link, Some(meter)) = (&member.name, &mut member.meter) else { continue };
            let quota = meter.quota();
            while let Some(news) = meter.poll(now, utc) {
                match news {
                    QuotaNews::NearlyUsed => {
                        tracing::warn!("trunk {name}: link {link}: {NEARLY} % of {quota} are used")
                    }
                    QuotaNews::UsedUp => tracing::warn!(
                        "trunk {name}: link {link}: {quota} are used up; closed until the next {}",
                        quota.period.name()
                    ),
                    QuotaNews::Opened => {
                        tracing::info!("trunk {name}: link {link}: open again, {quota} begin anew")
                    }
                    QuotaNews::SetBack => tracing::warn!(
                        "trunk {name}: link {link}: the clock was set back; what was counted of \
                         {quota} counts now"
                    ),
                }
                // The check of the interfaces opens and closes the socket.
                self.news = true;
            }
            self.sockets[member.socket].is_closed = meter.is_closed();
        }
    }

    /// Keeps the counters of quotas over restarts.
    fn keep_quotas(&mut self, now: Instant) {
        if let Some(ledger) = &mut self.ledger
            && let Err(error) = ledger.keep(&mut self.members, now)
        {
            let name = &self.settings.name;
            tracing::warn!("trunk {name}: {error:#}; they are counted on");
        }
    }

    /// Takes the carrier from the trunk's interface when the other end is gone for long, so that
    /// other routes take over, and gives it back when the other end is.
    fn check_carrier(&mut self, now: Instant) {
        let is_up = self.logged_established && self.logged_up.contains(&true);
        if is_up {
            self.last_up = now;
        }
        let has_carrier = is_up || self.has_carrier && now - self.last_up < GONE;
        if has_carrier == self.has_carrier {
            return;
        }
        self.has_carrier = has_carrier;
        let name = &self.settings.name;
        match (self.tun.set_carrier(has_carrier), has_carrier) {
            (Ok(()), true) => tracing::info!("trunk {name}: {name} has a carrier again"),
            (Ok(()), false) => tracing::info!(
                "trunk {name}: no link is up for {} s; {name} has no carrier until one is",
                GONE.as_secs()
            ),
            // As Linux before 5.0 had it: packets go into the trunk and are dropped there.
            (Err(error), _) => tracing::debug!("trunk {name}: carrier: {error}"),
        }
    }

    /// Logs what changed of the other end and of the links.
    fn log_changes(&mut self, now: Instant) {
        let name = &self.settings.name;
        let established = self.endpoint.is_established();
        if std::mem::replace(&mut self.logged_established, established) != established {
            let what = if established { "the other end answers" } else { "the other end is gone" };
            tracing::info!("trunk {name}: {what}");
        }
        let stats = self.endpoint.stats();
        let before = std::mem::replace(&mut self.logged_stats, stats);
        // With the first session nothing starts anew.
        if before.sessions > 0 && stats.sessions > before.sessions {
            tracing::info!("trunk {name}: the other end started anew");
        }
        if stats.handshakes > before.handshakes {
            tracing::debug!("trunk {name}: new keys, handshake {}", stats.handshakes);
        }
        // While the ends understand each other, such frames are a stranger's.
        if self.warned_at.is_none_or(|at| now - at >= WARN_PERIOD)
            && let Some(warning) = mismatch(&stats, &before).filter(|_| !established)
        {
            self.warned_at = Some(now);
            tracing::warn!("trunk {name}: {warning}");
        }
        for (member, logged_up) in self.members.iter_mut().zip(&mut self.logged_up) {
            if let Some(end) = member.moved.take() {
                tracing::info!("trunk {name}: link {}: the other end is at {end}", member.name);
            }
            let up = self.endpoint.link_stats(member.id, now).is_some_and(|link| link.up);
            if std::mem::replace(logged_up, up) != up {
                let state = if up { "up" } else { "down" };
                tracing::info!("trunk {name}: link {} is {state}", member.name);
            }
        }
    }
}
