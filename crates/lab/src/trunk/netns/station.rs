//! A station: a namespace, an interface for each radio, and over these a trunk or nothing.

use super::radio::Radio;
use crate::experiment::Tools;
use crate::program::{Schedule, Service};
use anyhow::Context;
use sheaf_daemon::report::Interface;
use sheaf_daemon::trunk::report::Trunk;
use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use sheaf_stage::Duration;
use sheaf_trunk::Scheduler;
use sheaf_wire::ethernet::HEADER_LEN;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;

/// The name of the trunk's interface.
const TRUNK: &str = "trunk0";
/// Port of the probes.
const PROBE_PORT: u16 = 5900;

/// The address of end 0 or 1.
pub fn address(end: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, end as u8 + 1)
}

/// Address to which probes are sent.
pub fn probe_address() -> SocketAddrV4 {
    SocketAddrV4::new(address(1), PROBE_PORT)
}

fn mac(radio: usize, end: usize) -> [u8; 6] {
    [2, 0, 0, 0, radio as u8, end as u8 + 1]
}

/// One end of a pair.
pub struct Station {
    pub radios: Vec<Radio>,
    end: usize,
    namespace: Arc<Namespace>,
    trunk: Option<Service>,
    tools: Tools,
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
                let words = self::trunk(radios, queue, end, scheduler);
                Some(tools.start(&namespace, &words, "", Schedule::Ordinary)?)
            }
        };
        let (namespace, tools) = (Arc::new(namespace), tools.clone());
        Ok(Station { radios: interfaces, end, namespace, trunk, tools })
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
        let Some(service) = &mut self.trunk else { return Ok(None) };
        service.check()?;
        let shown: Vec<Interface> =
            self.tools.report(&self.namespace, &["show", TRUNK, "--json"])?;
        let trunk = shown.into_iter().find_map(|interface| interface.trunk);
        let Trunk { late, reorder_timer_ms, .. } = trunk.context("sheaf show lists no trunk")?;
        Ok(Some((late, Duration::from_secs_f64(reorder_timer_ms.max(0.0) / 1e3))))
    }
}

/// The words that start the trunk of a station.
fn trunk(radios: usize, queue: usize, end: usize, scheduler: Scheduler) -> Vec<String> {
    let mut line = format!("trunk {TRUNK}");
    for radio in 0..radios {
        let peer = ip::mac_text(mac(radio, 1 - end));
        line += &format!(" dev radio{radio} queue {queue} peer {peer}");
    }
    let scheduler = match scheduler {
        Scheduler::RoundRobin => "rr",
        other => other.name(),
    };
    line += &format!(" address {}/24 scheduler {scheduler}", address(end));
    line.split(' ').map(str::to_owned).collect()
}

fn set_up(radio: usize, end: usize, queue: usize) -> io::Result<Radio> {
    // Room for the trunk's header, so that packets are of the same size with and without it.
    let mtu = 1500 + sheaf_wire::trunk::HEADER_LEN;
    Radio::open(&format!("radio{radio}"), &ip::mac_text(mac(radio, end)), mtu, queue)
}

/// Addresses on the first radio.
fn plain(end: usize) -> io::Result<()> {
    let (here, there) = (address(end), address(1 - end));
    ip::run("link set radio0 mtu 1500")?;
    ip::run(&format!("addr add {here}/24 dev radio0"))?;
    let mac = ip::mac_text(mac(0, 1 - end));
    ip::run(&format!("neigh add {there} lladdr {mac} dev radio0 nud permanent"))
}
