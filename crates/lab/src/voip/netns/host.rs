//! A host of the testbed: a namespace, a TAP as its radio, and the programs on it.

use crate::voip::point::{self, Aggregation, Mode, Point, Queueing};
use anyhow::{Context, bail};
use rand::RngExt;
use sheaf_aggregate::{Senders, Stats};
use sheaf_bpf::layout::Hop;
use sheaf_bpf::{Controller, Split};
use sheaf_netio::netns::Namespace;
use sheaf_netio::tap::Tap;
use sheaf_stage::Instant;
use sheaf_wire::ethernet::HEADER_LEN;
use sheaf_wire::meta::Outer;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// The name of the radio's interface in every host.
const RADIO: &str = "radio0";

/// One host.
pub(super) struct Host {
    pub tap: Tap,
    /// Socket of the talkers and listeners on this host.
    pub socket: UdpSocket,
    merge: Option<Controller>,
    done: u64,
    _namespace: Namespace,
}

impl Host {
    /// Host `index` of `point`, with its routes and, where the point says so, its programs.
    pub fn new(point: &Point, index: usize) -> anyhow::Result<Host> {
        let namespace = Namespace::new().context(
            "cannot make a network namespace; the netns engine needs root, run with sudo",
        )?;
        let (tap, socket) = namespace
            .run(|| set_up(point, index))
            .with_context(|| format!("cannot set up host {}", point.nodes[index]))?;
        let merge = match point.queueing(index) {
            Queueing::Plain => None,
            Queueing::Sheaf(aggregation) => {
                let programs = || programs(point, index, aggregation).map_err(io::Error::other);
                Some(namespace.run(programs)?)
            }
            Queueing::Fifo(_) | Queueing::Kau(..) => bail!("this queue is for --engine virtual"),
        };
        Ok(Host { tap, socket, merge, done: 0, _namespace: namespace })
    }

    /// Descriptors that the thread waits for.
    pub fn fds(&self) -> impl Iterator<Item = RawFd> {
        let events = self.merge.as_ref().map(|merge| merge.merge.as_fd().as_raw_fd());
        [self.tap.as_fd().as_raw_fd(), self.socket.as_raw_fd()].into_iter().chain(events)
    }

    /// The radio has finished with a frame.
    pub fn finished(&mut self, limit: u32, now: Instant) {
        self.done += 1;
        if let Some(merge) = &mut self.merge {
            merge.device_done(self.done, limit, now);
        }
    }

    /// Lets due frames leave. Returns the next deadline.
    pub fn keep_time(&mut self, now: Instant) -> anyhow::Result<Option<Instant>> {
        Ok(match &mut self.merge {
            Some(merge) => merge.run(now)?,
            None => None,
        })
    }

    /// A packet that has arrived; `None` when there is none.
    pub fn hear(&self, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        match self.socket.recv(bytes) {
            Ok(len) => Ok(Some(len)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Counters of its merging program.
    pub fn stats(&self) -> anyhow::Result<Stats> {
        let mut sum = Stats::default();
        if let Some(merge) = &self.merge {
            merge.merge.stats()?.iter().for_each(|(_, stats)| sum.add(stats));
        }
        Ok(sum)
    }
}

fn mac(index: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, index as u8 + 1]
}

/// The host that an Ethernet frame goes to; `None` for broadcasts and strangers.
pub(super) fn destination(frame: &[u8], hosts: usize) -> Option<usize> {
    (0..hosts).find(|host| frame.get(..6) == Some(&mac(*host)))
}

/// Bytes of IP in an Ethernet frame.
pub(super) fn ip_len(frame: &[u8]) -> u32 {
    frame.len().saturating_sub(HEADER_LEN) as u32
}

/// Interface, address, neighbours, routes and socket.
fn set_up(point: &Point, index: usize) -> io::Result<(Tap, UdpSocket)> {
    use sheaf_netio::ip::{mac_text, run};
    let sysctl = |name: &str, value| std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value);
    let tap = Tap::open(RADIO)?;
    sysctl("ip_forward", "1")?;
    for interface in ["all", RADIO] {
        // Both hops use the same radio; a redirect would make A try without C.
        sysctl(&format!("conf/{interface}/send_redirects"), "0")?;
        sysctl(&format!("conf/{interface}/accept_redirects"), "0")?;
        sysctl(&format!("conf/{interface}/rp_filter"), "0")?;
    }
    std::fs::write(format!("/proc/sys/net/ipv6/conf/{RADIO}/disable_ipv6"), "1")?;
    run(&format!("link set {RADIO} address {} mtu 1500 up", mac_text(mac(index))))?;
    run(&format!("addr add {}/32 dev {RADIO}", point::address(index)))?;
    for other in (0..point.nodes.len()).filter(|other| *other != index) {
        let (to, via) = (point::address(other), point.next_hop[index][other]);
        run(&format!("neigh add {to} lladdr {} dev {RADIO} nud permanent", mac_text(mac(other))))?;
        if via == other {
            run(&format!("route add {to} dev {RADIO}"))?;
        } else {
            run(&format!("route add {to} via {} dev {RADIO} onlink", point::address(via)))?;
        }
    }
    let socket = UdpSocket::bind((point::address(index), point::RTP_PORT))?;
    socket.set_nonblocking(true)?;
    Ok((tap, socket))
}

/// The splitter, and the merging program with every host it may send meta packets to.
fn programs(point: &Point, index: usize, aggregation: &Aggregation) -> anyhow::Result<Controller> {
    let config = &aggregation.config;
    let ifindex = sheaf_netio::ip::index(RADIO)?;
    let others = (0..point.nodes.len()).filter(|other| *other != index);
    let addresses = others.clone().map(|other| point::address(other).into());
    let senders = match aggregation.mode {
        Mode::Hop => Senders::neighbours(addresses),
        Mode::End => Senders::far_ends(addresses),
    };
    Split::attach(RADIO, ifindex, &senders, None)?;
    let cookie = rand::rng().random();
    let mut merge = Controller::attach(RADIO, ifindex, mac(index), config, cookie)?;
    for other in others {
        let outer = Outer::V4 { src: point::address(index), dst: point::address(other) };
        let hop = Hop::new(other as u32, outer, config.min.of(config.max), config.max);
        match aggregation.mode {
            Mode::Hop => merge.merge.set_hop(mac(other), hop)?,
            Mode::End => merge.merge.set_far_end(point::address(other).into(), 32, hop)?,
        }
    }
    merge.device_done(0, point.medium.radios[index].queue_limit as u32, Instant::ZERO);
    Ok(merge)
}
