//! Two hosts in namespaces, and what lies between them.

use crate::columns;
use crate::experiment::Tools;
use crate::link::outcome::{MACHINE, Machine};
use crate::link::plan::{Point, Shaper};
use crate::program::{Schedule, Service};
use anyhow::{Context, ensure};
use sheaf_baseline::netem;
use sheaf_daemon::emulate::{Lateness, Status};
use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use std::io;
use std::process::Command;

/// The far host's address; the near one has 10.9.0.1.
pub(super) const FAR: &str = "10.9.0.2";

/// Two hosts and the boxes between them.
pub(super) struct Path {
    pub near: Namespace,
    pub far: Namespace,
    /// From near to far; the emulator is in the last.
    boxes: Vec<Namespace>,
    emulator: Option<Service>,
}

impl Path {
    pub fn new(point: &Point, tools: &Tools) -> anyhow::Result<Path> {
        let (emulation, shaped) = (emulation(point), point.shaper == Shaper::Tbf);
        // From the near host to the far one; each has a cable to the next.
        let count = 2 + usize::from(shaped) + usize::from(emulation.is_some());
        let refused = "cannot make network namespaces; the netns engine needs root, run with sudo";
        let row: io::Result<Vec<_>> = (0..count).map(|_| Namespace::new()).collect();
        let mut row = row.context(refused)?;
        for at in 1..count {
            let end = |host, inside| if host { "eth0" } else { inside };
            cable((&row[at - 1], end(at == 1, "far")), (&row[at], end(at == count - 1, "near")))?;
        }
        let host = |at: usize, ours, theirs| row[at].run(|| host_side(ours, theirs));
        host(0, 1, 2).context("cannot set up the near host")?;
        host(count - 1, 2, 1).context("cannot set up the far host")?;
        if shaped {
            token_bucket(point, &row[1])?;
        }
        let emulator = match emulation {
            Some(options) => {
                let line = format!("emulate link near far {options}");
                let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
                Some(tools.start(&row[count - 2], &words, "", Schedule::Ordinary)?)
            }
            None => None,
        };
        let (far, near) = (row.remove(count - 1), row.remove(0));
        Ok(Path { near, far, boxes: row, emulator })
    }

    /// Lateness of packets by the emulator's own report: the effect of the machine's load.
    pub fn lateness(&self, tools: &Tools) -> anyhow::Result<Vec<(String, f64)>> {
        let (Some(_), Some(inside)) = (&self.emulator, self.boxes.last()) else {
            return Ok(Vec::new());
        };
        let report: Status = tools.report(inside, &["emulate", "show", "near", "--json"])?;
        let Lateness { p99_us, max_us, .. } = report.lateness;
        let (late_p99, late_max) = (p99_us / 1e3, max_us / 1e3);
        let stood_still = report.links.values().map(|link| link.stood_still_ms).sum();
        let machine = Machine { late_p99, late_max, stood_still, ..Machine::UNKNOWN };
        Ok(columns::values(MACHINE, &machine))
    }
}

/// The link in the words of `sheaf emulate`; `None` where nothing lies between the hosts.
fn emulation(point: &Point) -> Option<String> {
    let mut words = format!("seed {}", point.seed % (1 << 32));
    let ours = matches!(point.shaper, Shaper::TwoQueues | Shaper::OneQueue);
    if let Some(rate) = point.rate.filter(|_| ours) {
        let Point { overhead, limit, .. } = point;
        let burst = point.burst.map(|burst| format!(" burst {burst}b")).unwrap_or_default();
        words += &format!(" rate {}bit {overhead}{burst} limit {limit}", rate.as_bps());
    }
    if point.shaper == Shaper::OneQueue {
        words += " single";
    }
    if !point.rtt.is_zero() {
        words += &format!(" delay {}ns", (point.rtt / 2).as_nanos());
    }
    if point.loss > 0.0 {
        words += &format!(" loss random {}%", point.loss * 100.0);
    }
    let needed = match point.shaper {
        Shaper::TwoQueues | Shaper::OneQueue => true,
        Shaper::Tbf => !point.rtt.is_zero() || point.loss > 0.0,
        Shaper::Interface | Shaper::None => false,
    };
    needed.then_some(words)
}

/// A cable between an interface of one namespace and one of another.
fn cable(one: (&Namespace, &str), other: (&Namespace, &str)) -> io::Result<()> {
    let quiet = || std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    // Packets of IPv6's neighbour discovery would disturb the measurement.
    other.0.run(quiet)?;
    one.0.run(quiet)?;
    let ((_, here), (there, peer)) = (one, (other.0.path(), other.1));
    one.0.run(|| {
        ip::run(&format!("link add {here} type veth peer name {peer} netns {there}"))?;
        ip::run(&format!("link set {here} up"))
    })?;
    other.0.run(|| ip::run(&format!("link set {peer} up")))
}

/// Address and neighbour, so that no ARP request is on the link.
fn host_side(ours: u8, theirs: u8) -> io::Result<()> {
    // Single packets, as they are on a cable: a super-packet would be one in a queue.
    ip::run(&format!("link set eth0 address 02:00:00:00:00:0{ours} gso_max_segs 1"))?;
    ip::run(&format!("addr add 10.9.0.{ours}/24 dev eth0"))?;
    let link = format!("lladdr 02:00:00:00:00:0{theirs} dev eth0 nud permanent");
    ip::run(&format!("neigh add 10.9.0.{theirs} {link}"))
}

/// A bridge with the kernel's token bucket filter towards the far host. On the sender itself it
/// would slow the socket down and lose nothing.
fn token_bucket(point: &Point, bridge: &Namespace) -> anyhow::Result<()> {
    let Some(rate) = point.rate else { return Ok(()) };
    let rate = rate.as_bps();
    let (burst, overhead) = (netem::BURST, point.overhead);
    let limit = point.limit * point.counted() as u64;
    let line = format!(
        "qdisc add dev far root tbf rate {rate}bit burst {burst} limit {limit} overhead {overhead}"
    );
    let set_up = || {
        ip::run("link add br0 type bridge")?;
        ip::run("link set br0 up")?;
        ["near", "far"]
            .iter()
            .try_for_each(|dev| ip::run(&format!("link set {dev} master br0")))?;
        Command::new("tc").args(line.split(' ')).output()
    };
    let output = bridge.run(set_up).context("cannot make a bridge; load the module bridge")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "tc {line}: {}; is sch_tbf in this kernel?", said.trim());
    Ok(())
}
