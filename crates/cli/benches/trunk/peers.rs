//! The same cables with plain TCP, with the kernel's MPTCP, with vtun, and with a trunk.
//!
//! MPTCP needs both hosts' applications to ask for it, and joins the links inside the socket; vtun
//! is a tunnel in user space like the trunk. It has one peer address for a session and cannot join
//! links, so it has the best one alone. Nothing is compressed or encrypted anywhere.

use crate::load::{Load, Target, Way, process_time, rest_time, within_seconds};
use crate::mptcp;
use crate::pair::Pair;
use crate::{FAR, MEASURED, WARM, Wanted, show, start};
use std::io;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Payload of a full TCP segment on a cable; what processor time is given for.
const SEGMENT: f64 = 1448.0;
const MBITS: f64 = 1e6 / 8.0;
const VTUND: &str = "/usr/sbin/vtund";
const IP: &str = "/sbin/ip";

/// Outcome of a run: Mbit/s, and µs of processor time for each segment's bytes.
struct Result {
    rate: f64,
    /// Of the tunnel's process at the sender and the receiver.
    tunnel: Option<[f64; 2]>,
    /// Of everything: tunnels, sender, receiver, kernel.
    all: f64,
}

/// Prints one table for each set of cables.
pub fn compare(wanted: &Wanted) {
    for (path, cables, rates) in [
        ("unshaped, 1 link", 1, &[][..]),
        ("unshaped, 3 links", 3, &[]),
        ("20 + 10 Mbit/s", 2, &[20, 10]),
        ("3 × 20 Mbit/s", 3, &[20; 3]),
    ] {
        let name = format!("peers: {path}");
        if !wanted.case(&name) {
            continue;
        }
        println!("{name}; one flow, CUBIC");
        println!(
            "  {:22} {:>9} {:>8} {:>8} {:>26} {:>8}",
            "", "Mbit/s", "of one", "of sum", "µs a segment: tunnel, both", "all"
        );
        let world = || Pair::new(cables).shaped(rates);
        let plain = world().measured(&Target::Tcp("10.1.0.2"), &[]);
        // How many times the best link all of them are.
        let best = rates.iter().max().copied().unwrap_or(1);
        let sum = f64::from(rates.iter().sum::<u32>()) / f64::from(best);
        let row = |name: &str, got: &Result| {
            let whole = match rates {
                [] => "–".to_owned(),
                _ => format!("{:.3}", got.rate / plain.rate / sum),
            };
            let tunnel = got.tunnel.map(|[send, receive]| format!("{send:.2} + {receive:.2}"));
            println!(
                "  {name:22} {:9.2} {:8.3} {whole:>8} {:>26} {:8.2}",
                got.rate,
                got.rate / plain.rate,
                tunnel.unwrap_or_default(),
                got.all
            );
        };
        row("plain TCP, best link", &plain);
        if cables > 1 {
            let pair = world();
            match mptcp::start(&pair, "cubic", &[Way::Forth]) {
                Ok(load) => row("MPTCP", &measured(load, &[])),
                Err(why) => println!("  MPTCP skipped: {why}"),
            }
        }
        match vtun(&world()) {
            Ok(result) => row("vtun, best link", &result),
            Err(why) => println!("  vtun skipped: {why}"),
        }
        for (name, paths) in [("sheaf trunk, Ethernet", false), ("sheaf trunk, UDP", true)] {
            let pair = world();
            let trunks = start(&pair, paths);
            let processes = [trunks.0.process(), trunks.1.process()];
            row(name, &pair.measured(&Target::Tcp(FAR), &processes));
            show(&trunks);
        }
    }
}

impl Pair {
    /// One flow to `target`, which the `tunnels` (sender's, receiver's) carry.
    fn measured(&self, target: &Target<'_>, tunnels: &[u32]) -> Result {
        measured(Load::start(self, target, (1, "cubic")), tunnels)
    }
}

/// Rate of a flow from now on.
fn measured(load: Load, tunnels: &[u32]) -> Result {
    load.measure(WARM);
    let times =
        || -> Vec<u64> { tunnels.iter().copied().map(process_time).chain([rest_time()]).collect() };
    let before = times();
    let rate = load.measure(MEASURED);
    let after = times();
    let segments = rate * MBITS * MEASURED.as_secs_f64() / SEGMENT;
    let each: Vec<f64> = before
        .iter()
        .zip(after)
        .map(|(before, after)| (after - before) as f64 / 1e3 / segments)
        .collect();
    let tunnel = each[..tunnels.len()].try_into().ok();
    Result { rate, tunnel, all: each.iter().sum() }
}

/// By a tunnel over the first cable.
fn vtun(pair: &Pair) -> std::result::Result<Result, String> {
    if !Path::new(VTUND).exists() {
        return Err(format!("there is no {VTUND}; install Debian's vtun"));
    }
    let tunnel = Vtun::start(pair).map_err(|error| error.to_string())?;
    tunnel.up(pair)?;
    Ok(pair.measured(&Target::Tcp("10.98.0.2"), &[tunnel.client.0.id(), tunnel.session()?]))
}

/// vtund at both hosts: a listener, which starts a process for its one client.
struct Vtun {
    server: Killed,
    client: Killed,
    folder: PathBuf,
}

/// A process that ends with this.
struct Killed(Child);

impl Vtun {
    fn start(pair: &Pair) -> io::Result<Vtun> {
        let folder = std::env::temp_dir().join(format!("sheaf-vtun-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let start = |host: usize, words: &str| {
            let number = host + 1;
            let file = folder.join(format!("host{number}.conf"));
            // 1500 bytes less IP, UDP and vtun's two bytes.
            let conf = format!(
                "options {{ port 5000; syslog daemon; ip {IP}; }}\n\
                 bench {{\n passwd bench; type tun; proto udp; multi yes; encrypt no;\n \
                 compress no; keepalive yes; stat no; speed 0;\n up {{\n  \
                 ip \"link set %% up mtu 1470\";\n  ip \"addr add 10.98.0.{number}/24 dev %%\";\n \
                 }};\n}}\n"
            );
            std::fs::write(&file, conf)?;
            // A packet before the other end is up ends vtund, and IPv6 has some to send.
            let without = || std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            pair.hosts[host].run(without)?;
            let mut command = Command::new(VTUND);
            command.arg("-n").arg("-f").arg(file).args(words.split(' '));
            command.stdout(Stdio::null()).stderr(Stdio::null());
            pair.hosts[host].enter(&mut command);
            command.spawn().map(Killed)
        };
        let server = start(1, "-s -P 5000")?;
        // A client that comes too early gives up.
        listens(pair)?;
        let client = start(0, "-P 5000 bench 10.1.0.2")?;
        Ok(Vtun { server, client, folder })
    }

    /// Waits until both ends have their addresses, which they get when the session stands.
    fn up(&self, pair: &Pair) -> std::result::Result<(), String> {
        let has = |host: usize| {
            let own = format!("10.98.0.{}:0", host + 1);
            pair.hosts[host].run(|| UdpSocket::bind(own)).is_ok()
        };
        match within_seconds(|| has(0) && has(1)) {
            true => Ok(()),
            false => Err("vtund made no tunnel in 5 s; see the system log".to_owned()),
        }
    }

    /// The process that carries the packets at host 2.
    fn session(&self) -> std::result::Result<u32, String> {
        let id = self.server.0.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let first = children.ok().and_then(|list| list.split_whitespace().next()?.parse().ok());
        first.ok_or_else(|| "vtund's process for the session cannot be found".to_owned())
    }
}

/// Waits until vtund listens at host 2.
fn listens(pair: &Pair) -> io::Result<()> {
    let table = || std::fs::read_to_string("/proc/thread-self/net/tcp");
    // Port 5000, any address, state 10 (listen).
    let listens = || {
        let table = pair.hosts[1].run(table).unwrap_or_default();
        table.lines().any(|line| line.contains(":1388 00000000:0000 0A "))
    };
    match within_seconds(listens) {
        true => Ok(()),
        false => Err(io::Error::other("vtund does not listen after 5 s; see the system log")),
    }
}

impl Drop for Vtun {
    fn drop(&mut self) {
        if let Ok(session) = self.session() {
            let session = nix::unistd::Pid::from_raw(session as i32);
            let _ = nix::sys::signal::kill(session, nix::sys::signal::Signal::SIGKILL);
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
