//! Two hosts and links between them that lose, jitter and differ.
//!
//! Each link is `sheaf emulate link` in a namespace between the hosts, which see fast cables that
//! tell them nothing, as they see modems. All of it goes with this process, however that ends.

use crate::load::Load;
use crate::nameless;
use crate::pair::{Pair, Service, Trunk, run};
use sheaf_daemon::emulate::Status;
use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use sheaf_stage::Duration;
use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io;

/// Time that the queue before each link holds at the link's rate: with it a CUBIC flow, which goes
/// back to 0.7 of what is under way, fills links of up to 230 ms there and back. In bytes, so that
/// small packets take no more room than they have. The mixes in virtual time have the same.
const QUEUE_MS: u32 = 100;
/// Before the trunk's real-time priority: what stands for a cable does not wait for its ends. It
/// never spins, as two links that spin would take both processors of a small machine.
const RUN: &str = "--fifo 50 --spin 0";
/// Least, first and most bytes of TCP's buffers: the most is four times what a flow over two links
/// of 50 Mbit/s has under way in a round trip of 640 ms, so that no window bounds it.
const TCP_BUFFERS: &str = "4096 131072 33554432";
/// Index of a host's first interface. The kernel tells late that a veth end has a carrier when its
/// index is that of its other end, and those in between count from 1.
const FIRST_INDEX: usize = 100;

/// Both directions of a link.
#[derive(Clone, Copy)]
pub struct Link {
    /// Mbit/s of Ethernet frames.
    pub mbps: u32,
    /// Milliseconds one way.
    pub delay_ms: f64,
    /// Each packet's delay is drawn evenly from `delay ± jitter`, so packets overtake.
    pub jitter_ms: f64,
    /// Packets in a hundred that are lost, each by itself.
    pub loss_percent: f64,
    /// Rates in Mbit/s that it has in turn, [`STEP_S`] seconds each, in place of its own.
    pub swing: Option<&'static [u32]>,
}

/// Slow start is over then on most links.
pub const WARM: Duration = Duration::from_secs(1);
/// Seconds that a link which swings stays at a rate.
const STEP_S: f64 = 0.5;

/// A clean link of this rate (Mbit/s) and delay one way (ms).
pub const fn link(mbps: u32, delay_ms: f64) -> Link {
    Link { mbps, delay_ms, jitter_ms: 0.0, loss_percent: 0.0, swing: None }
}

impl Link {
    pub const fn jitter(mut self, ms: f64) -> Link {
        self.jitter_ms = ms;
        self
    }

    pub const fn loss(mut self, percent: f64) -> Link {
        self.loss_percent = percent;
        self
    }

    pub const fn swing(mut self, mbps: &'static [u32]) -> Link {
        self.swing = Some(mbps);
        self
    }

    /// The delay one way in ms that this share of packets has at most while nobody else sends.
    pub fn idle_delay_ms(&self, share: f64) -> f64 {
        self.delay_ms + self.jitter_ms * (2.0 * share - 1.0)
    }

    /// The words of `sheaf emulate`, and the file that they name.
    fn words(&self, seed: usize) -> (String, Option<File>) {
        let bytes = self.mbps * 1_000_000 / 8 / 1000 * QUEUE_MS;
        // The emulator's jitter is the standard deviation of the delay.
        let deviation = self.jitter_ms / 3f64.sqrt();
        let micros = |ms: f64| (ms * 1e3).round();
        let delay = format!("delay {}us {}us", micros(self.delay_ms), micros(deviation));
        let loss = format!("loss {}%", self.loss_percent);
        let trace = self.swing.map(|rates| nameless(&trace(rates)));
        let (trace, path) = trace.unzip();
        let rate = match path {
            Some(path) => format!("--trace {path}"),
            None => format!("rate {}mbit", self.mbps),
        };
        (format!("{rate} queue bfifo limit {bytes}b {delay} {loss} seed {seed}"), trace)
    }
}

/// A trace of these rates in turn.
fn trace(mbps: &[u32]) -> String {
    // The last row says when it begins again.
    let rates = mbps.iter().chain(mbps.last()).enumerate();
    let rows = rates.map(|(row, mbps)| format!("{},{mbps}000000\n", row as f64 * STEP_S));
    "time,rate\n".to_owned() + &rows.collect::<String>()
}

/// Host 1 and host 2, joined by emulated links as by cables.
pub struct Linked {
    links: Vec<Service>,
    between: Namespace,
    pub pair: Pair,
}

impl Linked {
    /// With the links at work. The same seed gives the same packets the same fate.
    pub fn new(links: &[Link], seed: usize) -> Linked {
        let mut pair = Pair::new(0);
        let between = Namespace::new().expect("this is root");
        // What comes of itself would be on the links.
        let quiet = || std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        between.run(quiet).expect("it can be set");
        for host in &pair.hosts {
            host.run(set_buffers).expect("a namespace has them");
        }
        (pair.cables, pair.keyed) = (links.len(), true);
        let mut linked = Linked { links: Vec::new(), between, pair };
        for (number, link) in links.iter().enumerate() {
            linked.lay(number);
            let (words, _trace) = link.words(seed * links.len() + number);
            let line = format!("emulate link near{number} far{number} {words} {RUN}");
            linked.links.push(Service::start(&linked.between, &line, "emulating "));
        }
        linked
    }

    /// Joins interface number `link` of both hosts with the emulator's.
    fn lay(&self, link: usize) {
        let Linked { between, pair, .. } = self;
        for ((host, number), end) in pair.hosts.iter().zip(1..).zip(["near", "far"]) {
            let (index, there) = (FIRST_INDEX + link, between.path());
            let cable = format!(
                "link add if{link} index {index} address 02:00:00:00:{link:02x}:{number:02} \
                 type veth peer name {end}{link} netns {there}"
            );
            host.run(|| ip::run(&cable)).expect("the names are new");
            let up = || ip::run(&format!("link set {end}{link} up"));
            between.run(up).expect("it is there");
        }
        pair.up(link);
        for ((host, number), other) in pair.hosts.iter().zip(1..).zip([2, 1]) {
            // A link that loses would lose questions for addresses, too.
            let known = format!(
                "neigh replace 10.1.{link}.{other} lladdr 02:00:00:00:{link:02x}:{other:02} \
                 dev if{link} nud permanent"
            );
            host.run(|| ip::run(&known)).unwrap_or_else(|error| panic!("host {number}: {error}"));
        }
    }

    /// A keyed trunk by UDP over all links, all of them up.
    pub fn trunks(&self) -> (Trunk<'_>, Trunk<'_>) {
        let (_file, words) = crate::key_words();
        self.pair.trunks_with(&self.pair.paths(), &words)
    }

    /// Address of host 2 over link number `link` alone.
    pub fn address(link: usize) -> String {
        format!("10.1.{link}.2")
    }

    /// Mbit/s of a load in this time, after it has begun, and whether the emulation kept up. Shows
    /// the trunks that carried it, where there are any.
    pub fn measure(
        &self,
        load: &Load,
        trunks: Option<&(Trunk<'_>, Trunk<'_>)>,
        time: Duration,
    ) -> (f64, KeptUp) {
        load.measure(WARM);
        let rate = load.measure(time);
        let kept_up = self.kept_up();
        trunks.into_iter().for_each(crate::show);
        (rate, kept_up)
    }

    /// Whether the emulation kept up so far.
    pub fn kept_up(&self) -> KeptUp {
        let mut worst = KeptUp::default();
        for number in 0..self.links.len() {
            let said = run(&self.between, &format!("emulate show near{number} --json")).stdout;
            let said: Status = serde_json::from_slice(&said).expect("it is at work");
            worst.with(KeptUp { late_ms: said.lateness.p99_us / 1e3, missed: said.missed });
        }
        worst
    }
}

fn set_buffers() -> io::Result<()> {
    std::fs::write("/proc/sys/net/ipv4/tcp_rmem", TCP_BUFFERS)?;
    std::fs::write("/proc/sys/net/ipv4/tcp_wmem", TCP_BUFFERS)
}

/// Whether the machine was quick enough for the links: else figures are the machine's.
#[derive(Default)]
pub struct KeptUp {
    /// Lateness of packets that left, 99th percentile in ms.
    pub late_ms: f64,
    /// Packets that the emulation was too slow to take.
    pub missed: u64,
}

impl Display for KeptUp {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{:.1}", self.late_ms)?;
        match self.missed {
            0 => Ok(()),
            missed => write!(out, ", {missed} missed"),
        }
    }
}

impl KeptUp {
    /// The worst of both.
    pub fn with(&mut self, other: KeptUp) {
        self.late_ms = self.late_ms.max(other.late_ms);
        self.missed += other.missed;
    }
}
