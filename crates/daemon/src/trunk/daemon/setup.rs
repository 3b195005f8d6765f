//! The steps before the first turn.

use crate::trunk::settings::{Link, Priority, Settings, Spec};
use crate::trunk::share::Share;
use crate::trunk::socket::Socket;
use anyhow::{Context, bail, ensure};
use nix::libc;
use sheaf_bpf::{Port, Slot};
use sheaf_netio::monitor::Interface;
use sheaf_netio::netlink::Netlink;
use sheaf_netio::tun::Tun;
use sheaf_netio::{ip, linkdown, scheduling};
use sheaf_trunk::SenderConfig;
use sheaf_wire::trunk::HEADER_LEN;
use std::collections::BTreeMap;

/// MTU that is taken for that of a member without an interface: that of most links.
const USUAL_MTU: u32 = 1500;
/// The least MTU of a link that IPv6 runs over (RFC 8200, section 5).
const IPV6_LEAST: u16 = 1280;

/// Size of the largest frame: by the wished MTU, or the size that fits all members. `seal`: bytes
/// that sealing adds.
pub fn frame_size(
    settings: &Settings,
    known: &BTreeMap<String, Interface>,
    seal: u16,
) -> anyhow::Result<u16> {
    let mut least = (u16::MAX, String::new());
    let some_are_there = settings.members.iter().any(|link| link.spec.is_there(known));
    for Link { spec, .. } in &settings.members {
        if some_are_there && !spec.is_there(known) {
            let name = &settings.name;
            tracing::warn!("trunk {name}: link {spec} waits for its interface or address");
        } else {
            spec.check(known)?;
        }
        let mtu = spec.device(known).map_or(Ok(USUAL_MTU), |(dev, _)| ip::mtu(dev))?;
        let largest = spec.largest_frame(mtu, seal);
        if largest < least.0 {
            least = (largest, spec.to_string());
        }
    }
    let (largest, narrowest) = (least.0, least.1);
    let most = largest.saturating_sub(HEADER_LEN as u16);
    ensure!(
        largest >= SenderConfig::LEAST_FRAME,
        "{narrowest} has no room for packets; raise the MTU of its interface"
    );
    match settings.mtu {
        None => Ok(largest),
        Some(mtu) if mtu <= most => Ok(mtu + HEADER_LEN as u16),
        Some(mtu) => bail!("mtu {mtu} does not fit {narrowest}; give at most {most}, or auto"),
    }
}

/// Takes the priority `wish`, or without a wish the best that is allowed; returns the one taken.
pub fn take_priority(wish: Option<Priority>) -> anyhow::Result<Priority> {
    if wish == Some(Priority::Normal) {
        return Ok(Priority::Normal);
    }
    if scheduling::realtime_if_allowed() {
        return Ok(Priority::Realtime);
    }
    ensure!(
        wish.is_none(),
        "priority realtime is not allowed here; give it CAP_SYS_NICE, or leave priority out"
    );
    Ok(Priority::Normal)
}

/// Makes the trunk's interface, with its MTU and addresses. While it has no carrier the host passes
/// over its routes.
pub fn open_tun(settings: &Settings, mtu: u16, netlink: &mut Netlink) -> anyhow::Result<Tun> {
    let name = &settings.name;
    let tun = Tun::open(name).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            anyhow::anyhow!("cannot make the interface {name}: {error}; run as root")
        }
        _ => anyhow::anyhow!("cannot make the interface {name}: {error}; load the module tun"),
    })?;
    ip::run(&format!("link set {name} mtu {mtu}"))?;
    for address in &settings.addresses {
        let six = address.contains(':');
        ensure!(
            !six || mtu >= IPV6_LEAST,
            "address {address} needs an mtu of {IPV6_LEAST}, there are {mtu}; leave it out, or \
             raise the MTU of the narrowest link"
        );
        // Nobody else is on the trunk who could have the address, so nothing waits for a search.
        let nodad = if six { " nodad" } else { "" };
        ip::run(&format!("addr add {address} dev {name}{nodad}"))
            .with_context(|| format!("{name} cannot have address {address}; give another"))?;
    }
    let passed_over = linkdown::pass_over_ipv4(netlink, ip::index(name)?);
    if let Err(error) = passed_over.and_then(|()| linkdown::pass_over_ipv6(name)) {
        // IPv6 may be turned off, and /proc/sys read-only.
        tracing::debug!("trunk {name}: routes without a carrier are not passed over: {error}");
    }
    ip::run(&format!("link set {name} up"))?;
    Ok(tun)
}

/// Lets the sockets that wait for their other ends share their ports, where this machine can.
/// Returns the slot of this trunk. `tags`: what the tags of its initiations are made with.
pub fn share_ports(sockets: &mut [Socket], tags: [u64; 2]) -> Option<Slot> {
    let waits = |socket: &&mut Socket| socket.spec.learns();
    let mut waiting = sockets.iter_mut().filter(waits).peekable();
    waiting.peek()?;
    let supported = sheaf_bpf::support().map_err(|reason| reason.to_string());
    let slot = supported.and_then(|()| Slot::claim().map_err(|error| error.to_string()));
    for socket in waiting {
        let Spec::Path { local, dev, .. } = &socket.spec else { continue };
        let opened = slot.as_ref().map_err(Clone::clone).and_then(|slot| {
            let opened = Port::open(*local, dev.as_deref(), slot, tags);
            opened.map_err(|error| {
                error.log().iter().for_each(|log| tracing::debug!("{log}"));
                error.to_string()
            })
        });
        socket.share = match opened {
            Ok(port) => Share::Shared(Box::new(port)),
            Err(reason) => {
                tracing::debug!("{} cannot share its port: {reason}", socket.spec);
                Share::Refused(reason)
            }
        };
    }
    slot.ok()
}
