//! The engine `netns`: two hosts as anonymous network namespaces, a box between them in which
//! `sheaf emulate` runs, real sockets, real time.
//!
//! Everything goes with this process, however it ends: namespaces and interfaces with their
//! descriptors, the emulator because the kernel is asked to kill it.

mod traffic;

use super::plan::{LINE, ON_WIRE, Point, Shaper, Test};
use crate::experiment::{Measured, Tools};
use anyhow::{Context, ensure};
use nix::sys::signal::Signal;
use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// The far host's address; the near one has 10.9.0.1.
const FAR: &str = "10.9.0.2";

/// Runs one point in real time. Needs root.
pub fn run(point: &Point, tools: &Tools) -> anyhow::Result<Measured> {
    let path = Path::new(point, tools)?;
    match point.test {
        Test::Udp => traffic::udp(point, &path),
        Test::Ping => traffic::ping(point, &path),
        Test::Tcp => traffic::tcp(point, &path),
    }
}

/// Two hosts and what lies between them.
struct Path {
    near: Namespace,
    far: Namespace,
    /// Kept for its interfaces, and what runs in it.
    _middle: Option<(Namespace, Emulator)>,
}

impl Path {
    fn new(point: &Point, tools: &Tools) -> anyhow::Result<Path> {
        let refused = "cannot make network namespaces; the netns engine needs root, run with sudo";
        let (near, far) = (Namespace::new().context(refused)?, Namespace::new().context(refused)?);
        let middle = match emulation(point) {
            None => {
                cable(&near, "eth0", &far)?;
                None
            }
            Some(options) => {
                let middle = Namespace::new().context(refused)?;
                cable(&middle, "near", &near)?;
                cable(&middle, "far", &far)?;
                middle.run(|| {
                    ["near", "far"]
                        .iter()
                        .try_for_each(|dev| ip::run(&format!("link set {dev} up")))
                })?;
                Some((middle, options))
            }
        };
        for (host, ours, theirs) in [(&near, 1, 2), (&far, 2, 1)] {
            host.run(|| host_side(ours, theirs)).context("cannot set up the hosts")?;
        }
        let middle = match middle {
            None => None,
            Some((middle, options)) => {
                let emulator = Emulator::start(tools, &middle, &options)?;
                Some((middle, emulator))
            }
        };
        if point.shaper == Shaper::Tbf {
            token_bucket(point, &near)?;
        }
        Ok(Path { near, far, _middle: middle })
    }
}

/// What `sheaf emulate` has to do, in its words; `None` where nothing lies between the hosts.
fn emulation(point: &Point) -> Option<String> {
    let mut words = format!("seed {}", point.seed % (1 << 32));
    if let Some(rate) = point.rate.filter(|_| point.shaper == Shaper::TwoQueues) {
        words += &format!(" rate {}bit {LINE} limit {}", rate.as_bps(), point.limit);
    }
    if !point.rtt.is_zero() {
        words += &format!(" delay {}ns", (point.rtt / 2).as_nanos());
    }
    let needed = match point.shaper {
        Shaper::TwoQueues => true,
        Shaper::Tbf => !point.rtt.is_zero(),
        Shaper::None | Shaper::OneQueue => false,
    };
    needed.then_some(words)
}

/// A cable from `dev` in `from` to eth0 of `host`.
fn cable(from: &Namespace, dev: &str, host: &Namespace) -> io::Result<()> {
    let other = host.path();
    from.run(|| {
        // Only what the experiment sends is to be on the link.
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")?;
        ip::run(&format!("link add {dev} type veth peer name eth0 netns {other}"))
    })
}

/// Address and neighbour, so that nothing is asked over the link.
fn host_side(ours: u8, theirs: u8) -> io::Result<()> {
    std::fs::write("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "1")?;
    // Single packets, as they are on a cable: a super-packet would be one in a queue.
    ip::run(&format!("link set eth0 address 02:00:00:00:00:0{ours} gso_max_segs 1 up"))?;
    ip::run(&format!("addr add 10.9.0.{ours}/24 dev eth0"))?;
    let link = format!("lladdr 02:00:00:00:00:0{theirs} dev eth0 nud permanent");
    ip::run(&format!("neigh add 10.9.0.{theirs} {link}"))
}

/// The kernel's token bucket filter on the near host's interface.
fn token_bucket(point: &Point, near: &Namespace) -> anyhow::Result<()> {
    let Some(rate) = point.rate else { return Ok(()) };
    let rate = rate.as_bps();
    // tc-tbf(8): a bucket of at least the rate over the kernel's tick, here of 4 ms; and of a packet.
    let burst = (rate / 8 / 250).max(2 * ON_WIRE as u64);
    let limit = point.limit * ON_WIRE as u64;
    let line = format!(
        "qdisc add dev eth0 root tbf rate {rate}bit burst {burst} limit {limit} overhead {LINE}"
    );
    let output = near.run(|| Command::new("tc").args(line.split(' ')).output())?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "tc {line}: {}; is sch_tbf in this kernel?", said.trim());
    Ok(())
}

/// `sheaf emulate`, ended with its path or with this process.
struct Emulator(Child);

impl Emulator {
    /// At work between the two interfaces of `middle`: it has said so.
    fn start(tools: &Tools, middle: &Namespace, options: &str) -> anyhow::Result<Emulator> {
        let line = format!("emulate link near far {options}");
        let mut command = Command::new(&tools.sheaf);
        command.args(line.split(' ')).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        middle.enter(&mut command);
        let with_us = || Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?);
        // SAFETY: the closure makes one system call and touches no memory.
        unsafe { command.pre_exec(with_us) };
        let child =
            command.spawn().with_context(|| format!("cannot start {}", tools.sheaf.display()))?;
        let mut emulator = Emulator(child);
        let mut first = String::new();
        let out = emulator.0.stdout.take().context("its output is ours")?;
        BufReader::new(out).read_line(&mut first)?;
        if !first.starts_with("emulating ") {
            let mut said = String::new();
            emulator
                .0
                .stderr
                .take()
                .context("its complaints are ours")?
                .read_to_string(&mut said)?;
            anyhow::bail!("sheaf {line}: {}", said.trim().replace('\n', "; "));
        }
        Ok(emulator)
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
