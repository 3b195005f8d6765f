//! Where the link is put, and what is set up for that. All of it goes with the process.
//!
//! * between two interfaces: a packet socket on each;
//! * on one interface: what leaves or arrives takes a detour over a TAP interface
//!   ([`sheaf_bpf::redirect`]) and comes back with a mark;
//! * around a shell: a TUN interface here, one in an anonymous namespace, the link between them.

use super::settings::{Mode, Settings};
use crate::control::{self, Kind, ServiceName};
use anyhow::{Context, bail};
use nix::libc;
use sheaf_bpf::redirect::{self, Hook, Redirect};
use sheaf_emulator::Direction;
use sheaf_netio::child::Child;
use sheaf_netio::gro::{self, Joining};
use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use sheaf_netio::vnet_packet::{Receive, VnetSocket};
use sheaf_netio::vnet_tun::{Layer, VnetTun};
use sheaf_stage::Duration;
use sheaf_wire::prefix::{self, Prefix};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::Command;

/// Packets that a TUN or TAP interface of ours holds until they are read.
const TUN_QUEUE: u32 = 4000;
/// Shells that can be open at once, each with four addresses of 100.64.0.0/24.
const SHELLS: u32 = 64;

/// Where packets come from or go to.
pub enum Port {
    /// An interface that exists.
    Packet(Box<VnetSocket>),
    /// One of ours.
    Tun(VnetTun),
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Port::Packet(socket) => socket.as_fd(),
            Port::Tun(tun) => tun.as_fd(),
        }
    }
}

/// One direction.
#[derive(Clone, Debug)]
pub struct Way {
    /// Index of the port that packets come from.
    pub from: usize,
    /// Index of the port that they go to.
    pub to: usize,
    /// Which it is.
    pub direction: Direction,
    /// For rules: the number of its interface among [`Mode::interfaces`].
    pub interface: u16,
    /// For people.
    pub name: String,
}

/// Interfaces that are set up.
pub struct Place {
    /// Where packets come from and go to.
    pub ports: Vec<Port>,
    /// Means by which they go.
    pub ways: Vec<Way>,
    /// Whether packets are Ethernet frames.
    pub ethernet: bool,
    /// Interfaces of this host that must not go away: name and index.
    pub interfaces: Vec<(String, u32)>,
    /// Names under which questions are answered.
    pub answers_to: Vec<String>,
    redirects: Vec<Redirect>,
    /// Interfaces that join what they receive, as long as this is held.
    _joining: Vec<Joining>,
    /// TAP interfaces that packets are led to.
    detours: Vec<String>,
    shell: Option<Shell>,
}

struct Shell {
    namespace: Namespace,
    host: String,
}

impl Place {
    /// Sets up what `mode` asks for; two interfaces of others join what they receive in `joins`.
    pub fn open(mode: &Mode, joins: Option<Duration>) -> anyhow::Result<Place> {
        match mode {
            Mode::Link(ends) => link(ends, joins),
            Mode::Dev { dev, egress, ingress } => on(dev, *egress, *ingress),
            Mode::Shell { .. } => shell(),
        }
    }

    /// Starts the command of a shell; `None` where there is none to start.
    pub fn start_command(&self, settings: &Settings) -> anyhow::Result<Option<Child>> {
        let (Some(shell), Mode::Shell { command }) = (&self.shell, &settings.mode) else {
            return Ok(None);
        };
        let default = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
        let (program, words) = match command.split_first() {
            Some((program, words)) => (program.clone(), words),
            None => (default, &[][..]),
        };
        let mut command = Command::new(&program);
        command.args(words).env("SHEAF_HOST", &shell.host);
        shell.namespace.enter(&mut command);
        let child = Child::spawn(&mut command)
            .with_context(|| format!("cannot start {program}; give a command that exists"))?;
        Ok(Some(child))
    }

    /// Sets a detour up again that somebody set down: packets are led there all the same, and lost.
    pub fn raise_detours(&self) {
        for name in &self.detours {
            // One that cannot be asked is asked again.
            if ip::is_up(name).unwrap_or(true) {
                continue;
            }
            match ip::run(&format!("link set {name} up")) {
                Ok(()) => tracing::warn!("{name} was set down, which lost packets; it is up again"),
                Err(error) => tracing::error!("{name} is down, packets are lost: {error}"),
            }
        }
    }

    /// Lets go of the detours, so that packets go their old way.
    pub fn leave(&mut self) {
        self.redirects.clear();
    }
}

fn link(ends: &[String; 2], joins: Option<Duration>) -> anyhow::Result<Place> {
    let (mut ports, mut interfaces, mut joining) = (Vec::new(), Vec::new(), Vec::new());
    if joins.is_some() && !gro::is_handed_over()? {
        bail!("Linux 6.2 is the first to hand over what --gro joins; leave it out");
    }
    // Both, before anything is said of one.
    let indices = [ip::index(&ends[0])?, ip::index(&ends[1])?];
    for (dev, ifindex) in ends.iter().zip(indices) {
        ip::mac(dev)?;
        if ip::addresses(dev)?.iter().any(is_of_a_host) {
            tracing::warn!(
                "{dev} has addresses, so this host answers beside the link; take them off"
            );
        }
        let socket = VnetSocket::open(ifindex, Receive::Everything)
            .with_context(|| format!("cannot open {dev}; set it up, and be root"))?;
        ports.push(Port::Packet(Box::new(socket)));
        interfaces.push((dev.clone(), ifindex));
        if let Some(longest) = joins {
            let refused = || format!("{dev} does not join packets; leave out --gro");
            joining.push(Joining::begin(dev, longest).with_context(refused)?);
        }
    }
    let [one, two] = ends;
    // Rules call a direction by the interface that packets come from, the one they are numbered by.
    let way = |from, to, direction, name| Way { from, to, direction, interface: from as u16, name };
    Ok(Place {
        ports,
        ways: vec![
            way(0, 1, Direction::Out, format!("{one} to {two}")),
            way(1, 0, Direction::In, format!("{two} to {one}")),
        ],
        ethernet: true,
        interfaces,
        answers_to: ends.to_vec(),
        redirects: Vec::new(),
        _joining: joining,
        detours: Vec::new(),
        shell: None,
    })
}

fn on(dev: &str, egress: bool, ingress: bool) -> anyhow::Result<Place> {
    let ifindex = ip::index(dev)?;
    ip::mac(dev)?;
    let mark = redirect::MARK | std::process::id() & !redirect::MASK;
    let (mut ports, mut ways, mut redirects) = (Vec::new(), Vec::new(), Vec::new());
    let mut detours = Vec::new();
    let refused = || format!("cannot lead packets of {dev} aside");
    if egress {
        let (detour, tap) = detour(dev, ifindex, 'e', &mut detours)?;
        let socket = VnetSocket::open(ifindex, Receive::Nothing)?;
        socket.set_mark(mark)?;
        let redirect = Redirect::unless_marked(ifindex, Hook::Egress, detour, mark);
        redirects.push(redirect.with_context(refused)?);
        let from = ports.len();
        ports.extend([tap, Port::Packet(Box::new(socket))]);
        ways.push(Way {
            from,
            to: from + 1,
            direction: Direction::Out,
            interface: 0,
            name: format!("{dev} egress"),
        });
    }
    if ingress {
        let (detour, tap) = detour(dev, ifindex, 'i', &mut detours)?;
        redirects.push(Redirect::arrive_on(detour, ifindex, mark).with_context(refused)?);
        let redirect = Redirect::unless_marked(ifindex, Hook::Ingress, detour, mark);
        redirects.push(redirect.with_context(refused)?);
        let from = ports.len();
        ports.push(tap);
        ways.push(Way {
            from,
            to: from,
            direction: Direction::In,
            interface: 0,
            name: format!("{dev} ingress"),
        });
    }
    Ok(Place {
        ports,
        ways,
        ethernet: true,
        interfaces: vec![(dev.to_owned(), ifindex)],
        answers_to: vec![dev.to_owned()],
        redirects,
        _joining: Vec::new(),
        detours,
        shell: None,
    })
}

/// Whether somebody gave this address to an interface. Every interface that is up has a link-local
/// one of IPv6 (RFC 4862, section 5.3).
fn is_of_a_host(address: &IpAddr) -> bool {
    !matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// A TAP interface for one direction of `dev`: its index, and our end.
fn detour(
    dev: &str,
    ifindex: u32,
    direction: char,
    names: &mut Vec<String>,
) -> anyhow::Result<(u32, Port)> {
    let name = format!("sheaf{direction}{ifindex}");
    let tap = VnetTun::open(&name, Layer::Tap).map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => {
            anyhow::anyhow!("{dev} is emulated already; stop the other `sheaf emulate` first")
        }
        _ => anyhow::anyhow!("cannot make the TAP interface {name}, {error}; load the module tun"),
    })?;
    let mtu = ip::mtu(dev)?;
    // Nothing but what is led here is to come out of it.
    ip::run(&format!("link set {name} mtu {mtu} txqueuelen {TUN_QUEUE} arp off addrgenmode none"))?;
    ip::run(&format!("link set {name} up"))?;
    let index = ip::index(&name)?;
    names.push(name);
    Ok((index, Port::Tun(tap)))
}

fn shell() -> anyhow::Result<Place> {
    let routes = ip::output("-4 route show table all")?;
    let taken: Vec<Prefix> = routes
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with(char::is_numeric)))
        .filter_map(|word| prefix::parse(word).ok())
        .collect();
    let namespace = Namespace::new()?;
    for number in 0..SHELLS {
        let (host, inside) =
            (format!("100.64.0.{}", 4 * number + 1), format!("100.64.0.{}", 4 * number + 2));
        let overlaps = |prefix: &Prefix| {
            prefix.prefix_len() > 10
                && [&host, &inside]
                    .into_iter()
                    .any(|address| address.parse::<IpAddr>().is_ok_and(|ip| prefix.contains(&ip)))
        };
        let name = format!("shell{number}");
        if taken.iter().any(overlaps) || is_taken(&name) {
            continue;
        }
        let outer = match VnetTun::open(&name, Layer::Tun) {
            Ok(tun) => tun,
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => continue,
            Err(error) => {
                bail!("cannot make the TUN interface {name}, {error}; load the module tun")
            }
        };
        set_up(&name, &host, &inside)?;
        let inner = namespace.run(|| {
            let tun = VnetTun::open("link0", Layer::Tun)?;
            set_up("link0", &inside, &host)?;
            ip::run(&format!("route add default via {host}"))?;
            Ok(tun)
        })?;
        let forwards = std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward");
        if !forwards.is_ok_and(|on| on.trim() == "1") {
            tracing::warn!(
                "only this host ({host}) is reachable; for more, turn on forwarding and NAT"
            );
        }
        let way = |from, to, direction, name: &str| Way {
            from,
            to,
            direction,
            interface: 0,
            name: name.into(),
        };
        return Ok(Place {
            ports: vec![Port::Tun(inner), Port::Tun(outer)],
            ways: vec![way(0, 1, Direction::Out, "up"), way(1, 0, Direction::In, "down")],
            ethernet: false,
            interfaces: Vec::new(),
            answers_to: vec![name],
            redirects: Vec::new(),
            _joining: Vec::new(),
            detours: Vec::new(),
            shell: Some(Shell { namespace, host }),
        });
    }
    bail!(
        "all addresses of 100.64.0.0/24 are taken; end another shell, or remove the route to them"
    )
}

/// Whether a shell of this name runs.
fn is_taken(name: &str) -> bool {
    let name = ServiceName::new(Kind::Emulate, name);
    let services = control::services().unwrap_or_default();
    name.is_ok_and(|name| services.contains(&name))
}

fn set_up(dev: &str, own: &str, peer: &str) -> std::io::Result<()> {
    ip::run(&format!("link set {dev} txqueuelen {TUN_QUEUE} addrgenmode none"))?;
    ip::run(&format!("addr add {own} peer {peer} dev {dev}"))?;
    ip::run(&format!("link set {dev} up"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_that_every_interface_has_is_nobodys() {
        let of_a_host = |text: &str| is_of_a_host(&text.parse().unwrap());
        assert!(!of_a_host("fe80::fc54:ff:fe12:3456"));
        assert!(of_a_host("10.0.0.1") && of_a_host("169.254.1.2") && of_a_host("fd09::1"));
    }
}
