//! `sheaf aggregate` at work: the controller of one interface until Ctrl-C.

use super::arguments::{Aggregate, Peers};
use super::device::Queues;
use crate::show::{self, Interface};
use anyhow::Context;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use sheaf_aggregate::Policy;
use sheaf_bpf::Controller;
use sheaf_bpf::layout::Hop;
use sheaf_netio::{clock, ip, neigh};
use sheaf_stage::{Duration, Instant};
use sheaf_wire::meta::Outer;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// How often the neighbour table is read.
const NEIGHBOURS: Duration = Duration::from_secs(1);
/// How often a device that tells only when asked is asked, while packets wait for it.
const ASK: Duration = Duration::from_micros(500);

struct Daemon<'a> {
    arguments: &'a Aggregate,
    ifindex: u32,
    controller: Controller,
    queues: Option<Queues>,
    /// Our addresses on the interface.
    ours: Vec<(IpAddr, u32)>,
    /// Hop numbers by what was asked for, so that a changed link address keeps its counters.
    hops: BTreeMap<IpAddr, u32>,
    macs: BTreeMap<[u8; 6], IpAddr>,
    started: Instant,
}

/// Runs until SIGINT or SIGTERM.
pub fn run(arguments: &Aggregate) -> anyhow::Result<()> {
    let dev = &arguments.dev;
    let ifindex = ip::index(dev)?;
    let mac = ip::mac(dev)?;
    let mtu = ip::mtu(dev)?;
    let mut arguments = arguments.clone();
    let config = &mut arguments.config;
    anyhow::ensure!(
        u32::from(config.max) <= mtu,
        "max {} is above the MTU of {dev}, {mtu}; give max {mtu} or raise the MTU",
        config.max
    );
    sheaf_bpf::support()?;
    let control = SocketAddr::from_abstract_name(show::socket_name(dev))?;
    let control = UnixListener::bind_addr(&control).map_err(|_| {
        anyhow::anyhow!("{dev} is aggregated already; stop the other `sheaf aggregate` first")
    })?;
    control.set_nonblocking(true)?;

    let queues = Queues::find(dev);
    let mut told = "byte queue limits";
    if queues.is_none() {
        told = "nothing";
        if config.policy == Policy::Busy {
            eprintln!("sheaf: {dev} does not tell how full it is; using policy forced");
            config.policy = Policy::Forced;
        }
    }
    super::attach_split(dev, ifindex, &splits(&arguments))?;
    let mut seed = [0; 8];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut seed)?;
    let cookie = u64::from_ne_bytes(seed);
    let controller = Controller::attach(dev, ifindex, mac, &arguments.config, cookie)?;
    let policy = match arguments.config.policy {
        Policy::Busy => "busy",
        Policy::Forced => "forced",
    };
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;

    let mut daemon = Daemon {
        arguments: &arguments,
        ifindex,
        controller,
        queues,
        ours: ip::addresses(dev)?,
        hops: BTreeMap::new(),
        macs: BTreeMap::new(),
        started: clock::now(),
    };
    daemon.far_ends()?;
    daemon.neighbours()?;
    println!("aggregating on {dev}: engine kernel (tcx), policy {policy}, device tells {told}");
    daemon.serve(&control, &signals)?;
    daemon.controller.flush()?;
    print!("{}", show::text(&daemon.report()?));
    Ok(())
}

/// Whose meta packets are split: the peers' and the far ends'.
fn splits(arguments: &Aggregate) -> Peers {
    match &arguments.peers {
        Peers::Any => Peers::Any,
        Peers::These(peers) => {
            let far_ends = arguments.far_ends.iter().map(|far_end| far_end.address);
            Peers::These(peers.iter().copied().chain(far_ends).collect())
        }
    }
}

impl Daemon<'_> {
    fn serve(&mut self, control: &UnixListener, signals: &SignalFd) -> anyhow::Result<()> {
        let mut look = clock::now();
        loop {
            let now = clock::now();
            if now >= look {
                self.neighbours()?;
                look = now + NEIGHBOURS;
            }
            let held = self.ask();
            let deadline = self.controller.run(now)?.unwrap_or(Instant::MAX);
            let mut until = deadline.min(look);
            if held && self.queues.is_some() {
                until = until.min(now + ASK);
            }
            // SAFETY: the controller keeps the descriptor open beyond the call.
            let events = unsafe { BorrowedFd::borrow_raw(self.controller.merge.events_fd()) };
            let mut fds = [events, control.as_fd(), signals.as_fd()]
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            let timeout = TimeSpec::from_duration(until - clock::now());
            match ppoll(&mut fds, Some(timeout), None) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            let readable = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
            if readable(&fds[2]) {
                return Ok(());
            }
            if readable(&fds[1]) {
                self.answer(control);
            }
        }
    }

    /// Asks the device how full it is; whether packets wait.
    fn ask(&mut self) -> bool {
        let page = self.controller.merge.device().read();
        if let Some(queues) = &self.queues {
            // Bytes in flight are at least one frame, and no more than as many full ones.
            let frames = queues.bytes().div_ceil(1514);
            let done = page.sent.saturating_sub(frames);
            self.controller.device_done(done.max(page.done), 50, clock::now());
        }
        page.held > 0
    }

    /// Makes every neighbour that may be a next hop.
    fn neighbours(&mut self) -> anyhow::Result<()> {
        let wanted = |address: &IpAddr| match &self.arguments.peers {
            Peers::Any => true,
            Peers::These(peers) => peers.contains(address),
        };
        let mut seen = BTreeMap::new();
        for neighbour in neigh::dump(&self.arguments.dev)? {
            if wanted(&neighbour.address) {
                seen.entry(neighbour.mac).or_insert(neighbour.address);
            }
        }
        let gone: Vec<_> =
            self.macs.keys().filter(|mac| !seen.contains_key(*mac)).copied().collect();
        for mac in gone {
            self.controller.merge.remove_hop(mac)?;
            self.macs.remove(&mac);
        }
        for (mac, address) in seen {
            let Some(outer) = self.outer(address) else { continue };
            if self.macs.insert(mac, address) != Some(address) {
                let hop = self.hop(address, outer);
                self.controller.merge.set_hop(mac, hop)?;
            }
        }
        Ok(())
    }

    fn far_ends(&mut self) -> anyhow::Result<()> {
        for far_end in &self.arguments.far_ends {
            let outer = self.outer(far_end.address).with_context(|| {
                format!(
                    "{} has no address of the family of {}; add one",
                    self.arguments.dev, far_end.address
                )
            })?;
            let hop = self.hop(far_end.address, outer);
            for (network, bits) in &far_end.networks {
                self.controller.merge.set_far_end(*network, *bits, hop)?;
            }
        }
        Ok(())
    }

    /// Outer addresses towards `address`: from ours in its subnet, or any of its family.
    fn outer(&self, address: IpAddr) -> Option<Outer> {
        let near = self.ours.iter().find(|(ours, bits)| ip::in_subnet(*ours, *bits, address));
        let same = || self.ours.iter().find(|(ours, _)| ours.is_ipv4() == address.is_ipv4());
        Outer::new(near.or_else(same)?.0, address)
    }

    fn hop(&mut self, address: IpAddr, outer: Outer) -> Hop {
        let next = self.hops.len() as u32;
        let id = *self.hops.entry(address).or_insert(next);
        let config = &self.arguments.config;
        Hop::new(id, outer, config.min.of(config.max), config.max)
    }

    fn report(&self) -> anyhow::Result<Interface> {
        let names: BTreeMap<u32, IpAddr> = self.hops.iter().map(|(ip, id)| (*id, *ip)).collect();
        let mut interface = Interface::new(&self.arguments.dev);
        interface.engine = Some("kernel".to_owned());
        interface.policy = Some(
            match self.arguments.config.policy {
                Policy::Busy => "busy",
                Policy::Forced => "forced",
            }
            .to_owned(),
        );
        interface.seconds = (clock::now() - self.started).as_secs_f64();
        for (id, stats) in self.controller.merge.stats()? {
            let name = names.get(&id).map_or_else(|| id.to_string(), IpAddr::to_string);
            interface.add_hop(name, &stats);
        }
        let device = self.controller.merge.device().read();
        (interface.held_frames, interface.passed_frames) = (device.held, device.passed);
        interface.read_splitter(self.ifindex)?;
        Ok(interface)
    }

    /// Answers whoever asks with the statistics; someone who does not read them is dropped.
    fn answer(&self, control: &UnixListener) {
        while let Ok((mut stream, _)) = control.accept() {
            let answer = self.report().and_then(|report| Ok(serde_json::to_vec(&report)?));
            if let Ok(json) = answer {
                let _ = std::io::Write::write_all(&mut stream, &json);
            }
        }
    }
}
