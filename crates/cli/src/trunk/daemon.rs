//! `sheaf trunk` at work, until Ctrl-C: one thread that turns between the TUN interface, the
//! endpoint and the links.
//!
//! Each turn sends what may leave, hands up what is in order, waits for news or for the next
//! deadline, and takes at most a batch from every descriptor, so that none starves another. Waking
//! on time is left to the kernel's timer with its slack turned off: the endpoint lets a link catch
//! up what a late wake-up cost, so nothing is gained by spinning.

use super::arguments::Arguments;
use super::batch::{IN, Inbox};
use super::carrier::Address;
use super::coalesce::Coalescer;
use super::member::{Change, Member, Origin};
use super::monitor::{self, Monitor};
use super::report::{self, Link, Trunk};
use super::segment;
use anyhow::{Context, bail, ensure};
use nix::libc;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use sheaf_netio::netlink::Netlink;
use sheaf_netio::poller::Poller;
use sheaf_netio::tun::{Offload, Tun};
use sheaf_netio::{clock, ip};
use sheaf_stage::{DropReason, Duration, Instant};
use sheaf_trunk::{Endpoint, EndpointConfig, LinkStats};
use sheaf_wire::trunk::{Frame, HEADER_LEN};
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// How often the interfaces are looked at without news, and at most with news.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_AT_MOST: Duration = Duration::from_millis(20);
/// How often changes of the links are told, at most.
const TELL: Duration = Duration::from_millis(10);
/// What is due sooner waits this long, so that fast links send several frames a turn: at 500 Mbit/s
/// a turn for each would cost more than the frames. The endpoint catches up a pace that runs late.
const TURN: Duration = Duration::from_micros(200);
/// Packets, and bytes, that one turn takes from the host.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 256 << 10;
/// An unbound member has the MTU of most links.
const USUAL_MTU: u32 = 1500;

struct Daemon<'a> {
    arguments: &'a Arguments,
    mtu: u16,
    endpoint: Endpoint,
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
    looked: Instant,
    /// There is news of the interfaces.
    news: bool,
    /// Sockets came or went since the poller was filled.
    stale: bool,
    /// What was last told of each link, and of the other end.
    told: Vec<bool>,
    told_established: bool,
    told_at: Instant,
    started: Instant,
}

/// Runs until SIGINT or SIGTERM.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let name = &arguments.name;
    let known = monitor::interfaces()?;
    ensure!(!known.contains_key(name), "there is an interface {name} already; take another name");
    let mut config = EndpointConfig::default();
    config.sender.scheduler = arguments.scheduler;
    config.sender.aggregate = arguments.aggregate;
    config.sender.frame = frame_size(arguments, &known)?;
    let mtu = config.sender.frame - HEADER_LEN as u16;
    let control = SocketAddr::from_abstract_name(report::socket_name(name))?;
    let control = UnixListener::bind_addr(&control)
        .with_context(|| format!("another `sheaf trunk {name}` runs here; stop it first"))?;
    control.set_nonblocking(true)?;
    let (tun, signals) = (open_tun(arguments, mtu)?, signals()?);
    nix::sys::prctl::set_timerslack(1)?;
    hurry();
    let now = clock::now();
    let mut endpoint = Endpoint::new(config, session()?)?;
    let mut members = Vec::new();
    for spec in &arguments.members {
        let id = endpoint.add_link(spec.link())?;
        endpoint.link_down(id, now);
        members.push(Member::new(spec.clone(), id));
    }
    let monitor = Monitor::open()?;
    let mut daemon = Daemon {
        arguments,
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
        looked: now,
        news: false,
        stale: false,
        told_established: false,
        told_at: now,
        started: now,
    };
    daemon.look(now, true)?;
    let (count, scheduler) = (daemon.members.len(), arguments.scheduler.name());
    tell(&format!("trunk {name}: {count} links, mtu {mtu}, scheduler {scheduler}"));
    daemon.serve(&control, &signals, &monitor)?;
    tell(report::text(&daemon.report()).trim_end());
    Ok(())
}

/// The largest frame: as asked for, or what fits all members.
fn frame_size(
    arguments: &Arguments,
    known: &std::collections::BTreeMap<String, monitor::Interface>,
) -> anyhow::Result<u16> {
    let mut least = (u16::MAX, String::new());
    for spec in &arguments.members {
        spec.check(known)?;
        let mtu = spec.device(known).map_or(Ok(USUAL_MTU), |(dev, _)| ip::mtu(dev))?;
        let largest = spec.largest_frame(mtu);
        if largest < least.0 {
            least = (largest, spec.to_string());
        }
    }
    let (largest, narrowest) = (least.0, least.1);
    let most = largest.saturating_sub(HEADER_LEN as u16);
    ensure!(most >= 120, "{narrowest} has no room for packets; raise the MTU of its interface");
    match arguments.mtu {
        None => Ok(largest),
        Some(mtu) if mtu <= most => Ok(mtu + HEADER_LEN as u16),
        Some(mtu) => bail!("mtu {mtu} does not fit {narrowest}; give at most {most}, or auto"),
    }
}

fn open_tun(arguments: &Arguments, mtu: u16) -> anyhow::Result<Tun> {
    let name = &arguments.name;
    let tun = Tun::open(name).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            anyhow::anyhow!("cannot make the interface {name}: {error}; run as root")
        }
        _ => anyhow::anyhow!("cannot make the interface {name}: {error}; load the module tun"),
    })?;
    ip::run(&format!("link set {name} mtu {mtu}"))?;
    for address in &arguments.addresses {
        let nodad = if address.contains(':') { " nodad" } else { "" };
        ip::run(&format!("addr add {address} dev {name}{nodad}"))?;
    }
    ip::run(&format!("link set {name} up"))?;
    Ok(tun)
}

/// A number that nobody guesses.
fn session() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes).max(1))
}

fn signals() -> anyhow::Result<SignalFd> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    Ok(SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

/// Comes before every ordinary process, as the kernel's own forwarding does: capacity of a link that
/// has to wait for us is lost for ever, and a report that is late looks like a link that failed.
/// The kernel keeps a twentieth of the time for the others. Where this is not allowed, it works
/// without.
fn hurry() {
    let least = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the call reads one sched_param, which lives through it.
    let _ = unsafe { libc::sched_setscheduler(0, policy, &raw const least) };
}

/// Says something to whoever reads; nobody has to.
fn tell(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

impl Daemon<'_> {
    fn serve(
        &mut self,
        control: &UnixListener,
        signals: &SignalFd,
        monitor: &Monitor,
    ) -> anyhow::Result<()> {
        loop {
            let mut poller = Poller::default();
            let (ended, asked) = (poller.add(signals), poller.add(control));
            let (news, host) = (poller.add(monitor), poller.add(&self.tun));
            let link = |member: &Member| member.carrier.as_ref().map(|it| poller.add(it));
            let links: Vec<Option<usize>> = self.members.iter().map(link).collect();
            self.stale = false;
            while !self.stale {
                let now = clock::now();
                self.transmit(now);
                self.deliver(now);
                self.tell_changes(now);
                let look = self.looked + if self.news { LOOK_AT_MOST } else { LOOK };
                if now >= look {
                    self.look(now, false)?;
                }
                if self.stale {
                    break;
                }
                let until = self.endpoint.next_deadline().map_or(look, |due| due.min(look));
                poller.wait(Some(until.saturating_since(clock::now()).max(TURN)))?;
                if poller.readable(ended) {
                    return Ok(());
                }
                if poller.readable(asked) {
                    self.answer(control);
                }
                if poller.readable(news) {
                    monitor.drain();
                    self.news = true;
                }
                for (index, link) in links.iter().enumerate() {
                    if link.is_some_and(|link| poller.readable(link)) {
                        self.receive(index);
                    }
                }
                if poller.readable(host) {
                    self.take_packets()?;
                }
            }
        }
    }

    /// Sends what may leave at `now`.
    fn transmit(&mut self, now: Instant) {
        while let Some(id) = self.endpoint.poll_transmit(now, &mut self.frame) {
            let member = &mut self.members[usize::from(id.0)];
            if member.has_guest() && matches!(Frame::parse(&self.frame), Ok(Frame::Hello(_))) {
                member.answer(&mut self.frame);
            } else {
                self.stale |= !member.push(&mut self.frame);
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
            let name = &self.arguments.name;
            let Some((len, offload)) = received.with_context(|| format!("{name} is gone"))? else {
                break;
            };
            let now = clock::now();
            let packet = &mut self.packet[..len];
            let care = self.arguments.care(packet);
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
        let each = |from: &Address, frame: &[u8]| take_frame(endpoint, member, from, frame, now);
        let result = self.inbox.receive(&carrier, each);
        debug_assert!(result.as_ref().is_ok_and(|count| *count <= IN) || result.is_err());
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
        let interfaces = monitor::interfaces()?;
        for member in &mut self.members {
            let change = match member.look(&interfaces, &mut self.netlink) {
                Err(_) if !first => Change::Same,
                change => member.spec.explain(change)?,
            };
            self.stale |= change != Change::Same;
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
        let name = &self.arguments.name;
        let established = self.endpoint.is_established();
        if std::mem::replace(&mut self.told_established, established) != established {
            let what = if established { "the other end answers" } else { "the other end is gone" };
            tell(&format!("trunk {name}: {what}"));
        }
        for (member, told) in self.members.iter().zip(&mut self.told) {
            let up = self.endpoint.link_stats(member.id, now).is_some_and(|link| link.up);
            if std::mem::replace(told, up) != up {
                let state = if up { "up" } else { "down" };
                tell(&format!("trunk {name}: link {} is {state}", member.spec));
            }
        }
    }

    fn report(&self) -> Trunk {
        let now = clock::now();
        let (endpoint, stats) = (&self.endpoint, self.endpoint.stats());
        let sent = endpoint.sent();
        let reasons = DropReason::ALL.iter().filter(|reason| sent.dropped(**reason) > 0);
        let mut trunk = Trunk {
            interface: self.arguments.name.clone(),
            scheduler: self.arguments.scheduler.name().to_owned(),
            mtu: self.mtu,
            seconds: (now - self.started).as_secs_f64(),
            established: endpoint.is_established(),
            sessions: stats.sessions,
            packets_sent: sent.packets_out,
            dropped: reasons.map(|why| (why.name().to_owned(), sent.dropped(*why))).collect(),
            waiting: endpoint.sender().held(),
            packets_delivered: stats.delivered,
            undelivered: self.undelivered,
            reorder_timer_ms: millis(stats.timer),
            late: stats.reorder.late,
            disordered: stats.reorder.disordered,
            given_up: stats.reorder.passed + stats.reorder.timed_out + stats.reorder.squeezed,
            duplicates: stats.duplicates,
            refused: stats.refused,
            unknown_session: stats.unknown_session,
            fallen_back_to: None,
            links: self.members.iter().map(|member| self.link(member, now)).collect(),
        };
        if self.uncut > 0 {
            trunk.dropped.insert("uncut".to_owned(), self.uncut);
        }
        let alone = endpoint.sender().fallen_back_to();
        trunk.fallen_back_to = alone.map(|id| self.members[usize::from(id.0)].spec.to_string());
        trunk
    }

    fn link(&self, member: &Member, now: Instant) -> Link {
        let LinkStats {
            up,
            used,
            frames,
            bytes,
            waiting,
            rate,
            loss,
            round_trip,
            queue,
            jitter,
            ..
        } = self.endpoint.link_stats(member.id, now).unwrap_or_default();
        Link {
            link: member.spec.to_string(),
            peer: member.peer(),
            carrier: member.carrier.is_some(),
            up,
            used,
            rate_bps: rate,
            loss,
            round_trip_ms: millis(round_trip),
            queue_ms: millis(queue),
            jitter_ms: millis(jitter),
            waiting,
            frames_sent: frames,
            bytes_sent: bytes,
            frames_received: self.endpoint.link_received(member.id).unwrap_or_default(),
            strangers: member.counters.strangers,
            unsent: member.counters.unsent,
            moves: member.counters.moves,
        }
    }

    /// Answers whoever asks with the statistics; someone who does not read them is dropped.
    fn answer(&self, control: &UnixListener) {
        while let Ok((mut stream, _)) = control.accept() {
            let answer = serde_json::to_vec(&self.report());
            let sent = answer.map_err(io::Error::from).and_then(|json| {
                stream.set_nonblocking(true)?;
                stream.write_all(&json)
            });
            if let Err(error) = sent {
                eprintln!("sheaf: cannot answer `sheaf show`: {error}");
            }
        }
    }
}

/// A frame from a link: whose is it?
fn take_frame(
    endpoint: &mut Endpoint,
    member: &mut Member,
    from: &Address,
    frame: &[u8],
    now: Instant,
) {
    let end = match member.origin(from) {
        Origin::Peer => return endpoint.handle_frame(member.id, frame, now),
        Origin::Stranger => {
            member.counters.strangers += 1;
            return;
        }
        Origin::Candidate(end) => end,
    };
    // Data carries eight bits of the session: too few to believe a new address.
    let kind = Frame::parse(frame);
    if !matches!(kind, Ok(Frame::Hello(_) | Frame::Report(_))) {
        member.counters.strangers += 1;
        return;
    }
    let accepted =
        |endpoint: &Endpoint| (endpoint.stats().sessions, endpoint.link_received(member.id));
    let before = accepted(endpoint);
    endpoint.handle_frame(member.id, frame, now);
    if accepted(endpoint) != before {
        member.move_to(end);
    } else {
        member.counters.strangers += 1;
        if matches!(kind, Ok(Frame::Hello(_))) {
            member.invite(end);
        }
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
