//! A station: a namespace, an interface for each radio, and over these a trunk or nothing.

use super::radio::Radio;
use crate::experiment::Tools;
use anyhow::{Context, bail};
use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use sheaf_stage::Duration;
use sheaf_trunk::Scheduler;
use sheaf_wire::ethernet::HEADER_LEN;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// The name of the trunk's interface.
const TRUNK: &str = "trunk0";
/// Port of the probes.
const PROBE_PORT: u16 = 5900;

/// The address of end 0 or 1.
pub fn address(end: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, end as u8 + 1)
}

/// Where probes go.
pub fn probe_address() -> SocketAddrV4 {
    SocketAddrV4::new(address(1), PROBE_PORT)
}

fn mac(radio: usize, end: usize) -> [u8; 6] {
    [2, 0, 0, 0, radio as u8, end as u8 + 1]
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// One end of a pair.
pub struct Station {
    pub radios: Vec<Radio>,
    end: usize,
    namespace: Arc<Namespace>,
    trunk: Option<Daemon>,
    sheaf: std::path::PathBuf,
}

impl Station {
    /// End `end` of a pair with `radios` radios, whose transmit queues hold `queue` frames; without
    /// a scheduler its packets go over the first as they are.
    pub fn new(
        radios: usize,
        queue: usize,
        end: usize,
        scheduler: Option<Scheduler>,
        tools: &Tools,
    ) -> anyhow::Result<Station> {
        let namespace = Namespace::new().context(
            "cannot make a network namespace; the netns engine needs root, run with sudo",
        )?;
        let interfaces = namespace
            .run(|| (0..radios).map(|radio| set_up(radio, end, queue)).collect())
            .context("cannot make the radios")?;
        let trunk = match scheduler {
            None => {
                namespace.run(|| plain(end)).context("cannot set up the radio")?;
                None
            }
            Some(scheduler) => {
                Some(Daemon::start(&namespace, (radios, queue), end, scheduler, tools)?)
            }
        };
        let sheaf = tools.sheaf.clone();
        Ok(Station { radios: interfaces, end, namespace: Arc::new(namespace), trunk, sheaf })
    }

    /// Its namespace.
    pub fn namespace(&self) -> Arc<Namespace> {
        Arc::clone(&self.namespace)
    }

    /// Whether an Ethernet frame goes to the other end, and to no group.
    pub fn is_for_peer(&self, frame: &[u8]) -> bool {
        let to = frame.get(..6).unwrap_or_default();
        frame.len() > HEADER_LEN
            && (0..self.radios.len()).any(|radio| *to == mac(radio, 1 - self.end))
    }

    /// A socket for probes.
    pub fn probe(&self) -> anyhow::Result<UdpSocket> {
        let port = if self.end == 1 { PROBE_PORT } else { 0 };
        let socket = self.namespace.run(|| UdpSocket::bind((address(self.end), port)))?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// Late frames and the longest reordering timer of its trunk, where it has one.
    pub fn trunk_stats(&mut self) -> anyhow::Result<Option<(u64, Duration)>> {
        let Some(daemon) = &mut self.trunk else { return Ok(None) };
        daemon.check()?;
        let mut command = Command::new(&self.sheaf);
        command.args(["show", TRUNK, "--json"]);
        self.namespace.enter(&mut command);
        let output = command.output().context("cannot run sheaf show")?;
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("sheaf show: {}", String::from_utf8_lossy(&output.stderr)))?;
        let stats = find(&answer, "reorder_timer_ms").context("sheaf show knows no trunk")?;
        let timer = stats["reorder_timer_ms"].as_f64().unwrap_or_default();
        let late = stats["late"].as_u64().unwrap_or_default();
        Ok(Some((late, Duration::from_secs_f64(timer.max(0.0) / 1e3))))
    }
}

/// The object in `value` that has `key`.
fn find<'a>(value: &'a serde_json::Value, key: &str) -> Option<&'a serde_json::Value> {
    match value {
        serde_json::Value::Object(fields) if fields.contains_key(key) => Some(value),
        serde_json::Value::Object(fields) => fields.values().find_map(|value| find(value, key)),
        serde_json::Value::Array(values) => values.iter().find_map(|value| find(value, key)),
        _ => None,
    }
}

fn set_up(radio: usize, end: usize, queue: usize) -> io::Result<Radio> {
    // Room for the trunk's header, so that packets are of the same size with and without it.
    let mtu = 1500 + sheaf_wire::trunk::HEADER_LEN;
    Radio::open(&format!("radio{radio}"), &text(mac(radio, end)), mtu, queue)
}

/// Addresses on the first radio.
fn plain(end: usize) -> io::Result<()> {
    let (here, there) = (address(end), address(1 - end));
    ip::run("link set radio0 mtu 1500")?;
    ip::run(&format!("addr add {here}/24 dev radio0"))?;
    ip::run(&format!("neigh add {there} lladdr {} dev radio0 nud permanent", text(mac(0, 1 - end))))
}

/// A running `sheaf trunk`; it ends with this value.
struct Daemon {
    child: Child,
}

impl Daemon {
    fn start(
        namespace: &Namespace,
        (radios, queue): (usize, usize),
        end: usize,
        scheduler: Scheduler,
        tools: &Tools,
    ) -> anyhow::Result<Daemon> {
        let mut command = Command::new(&tools.sheaf);
        command.args(["trunk", TRUNK]);
        for radio in 0..radios {
            let peer = text(mac(radio, 1 - end));
            let queue = queue.to_string();
            command.args(["dev", &format!("radio{radio}"), "queue", &queue, "peer", &peer]);
        }
        let word = match scheduler {
            Scheduler::RoundRobin => "rr",
            other => other.name(),
        };
        command.args(["address", &format!("{}/24", address(end)), "scheduler", word]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
        // SAFETY: prctl is a bare system call and touches no memory.
        unsafe {
            command.pre_exec(|| {
                // It must not outlive the lab.
                match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            });
        }
        namespace.enter(&mut command);
        let child = command.spawn().context("cannot start sheaf trunk")?;
        let mut daemon = Daemon { child };
        // Its first line says that the interface is there.
        let out = daemon.child.stdout.as_mut().context("its output is a pipe")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        if !line.starts_with("trunk") {
            bail!("sheaf trunk did not start: {}", daemon.said());
        }
        Ok(daemon)
    }

    /// Refuses to go on without it.
    fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(_) => bail!("sheaf trunk ended: {}", self.said()),
        }
    }

    /// What it said on its way out.
    fn said(&mut self) -> String {
        let _ = self.child.kill();
        let mut said = String::new();
        if let Some(errors) = &mut self.child.stderr {
            let _ = errors.take(4096).read_to_string(&mut said);
        }
        said.trim().to_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Either fails when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
